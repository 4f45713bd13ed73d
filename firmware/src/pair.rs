//! Two DTLS endpoints in one image, which exchange real datagrams in memory.

use crate::Provider;
use crate::measure::{Note, Region, measured};
use crate::place::Kept;
use core::hint::black_box;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
#[cfg(feature = "public-keys")]
use tegmen::crypto::{Crypto as _, DIGEST_LEN, SCALAR_LEN};
use tegmen::cx::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::{Answer, Config, Configured, Keys, Need, PublicKeys, Records, Resuming, Resumption, Roles};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, Peers, TAILROOM};
use tegmen::identity::{PeerId, Principal};
use tegmen::time::Instant;
use tegmen_x509::PublicKey;

/// The roles of an endpoint that can be client or server. The two endpoints of an image never connect to each other at
/// the same time. So the image does not contain the code (about 530 bytes) that ends one of two handshakes if each
/// endpoint has begun a handshake.
pub struct Either;

impl Roles for Either {
    const CLIENT: bool = true;
    const SERVER: bool = true;
    const SIMULTANEOUS: bool = false;
}

impl Configured for Either {
    fn new(_: &Config) -> Self {
        Self
    }
}

/// One of the two DTLS endpoints in the image, with its peer table `T` and its roles `R`.
pub struct Node<T: Peers + 'static, R: Answers + 'static> {
    /// The DTLS endpoint.
    pub endpoint: Endpoint<&'static mut T, R>,
    /// The measured [region](Region) in which the instructions of this endpoint are counted, and the path to the other
    /// endpoint.
    pub end: &'static End,
    /// The session; `None` before it is established.
    pub session: Option<PeerId>,
    /// The state that [`Answers::answer`] keeps from one call to the next.
    kept: R::Kept,
}

/// Two DTLS endpoints, a client and a server, and their memory. Datagrams have at most `LEN` bytes.
pub struct Pair<T: Peers + 'static, R: Answers + 'static, const LEN: usize>(Kept<Memory<T, R, LEN>>);

struct Memory<T: Peers + 'static, R: Answers + 'static, const LEN: usize> {
    nodes: [MaybeUninit<Node<T, R>>; 2],
    tables: [T; 2],
    // Client and server use the same provider and the same counters, as on a mote that is client and server.
    crypto: MaybeUninit<Provider>,
    counters: Counters,
    wire: Wire<LEN>,
}

/// The two DTLS endpoints after their start.
pub struct Running<T: Peers + 'static, R: Answers + 'static, const LEN: usize> {
    /// The crypto provider, the clock and the counters, which every call of an endpoint takes.
    pub cx: Cx<'static, Provider>,
    /// The endpoint that opens sessions.
    pub client: &'static mut Node<T, R>,
    /// The endpoint that answers the client.
    pub server: &'static mut Node<T, R>,
    /// The buffers for datagrams between the client and the server.
    pub wire: &'static mut Wire<LEN>,
}

/// Buffers for a datagram in each direction, and the content of the record that follows the handshake.
pub struct Wire<const LEN: usize> {
    there: [u8; LEN],
    back: [u8; LEN],
    text: [u8; RECORD_LEN],
}

impl<T: Peers, R: Answers, const LEN: usize> Pair<T, R, LEN> {
    /// Creates a pair with the peer tables of the client and of the server.
    pub const fn new(client: T, server: T) -> Self {
        const { assert!(LEN >= MIN_DATAGRAM) };
        Self(Kept::new(Memory {
            nodes: [MaybeUninit::uninit(), MaybeUninit::uninit()],
            tables: [client, server],
            crypto: MaybeUninit::uninit(),
            counters: Counters::new(),
            wire: Wire { there: [0; LEN], back: [0; LEN], text: [0; RECORD_LEN] },
        }))
    }

    /// Starts the client and the server. Returns `None` from the second call on. The function `endpoint` makes both
    /// endpoints, so that its code is in the image once.
    #[inline]
    pub fn start(
        &'static self,
        endpoint: fn(&mut Cx<'_, Provider>, &'static mut T) -> Endpoint<&'static mut T, R>,
    ) -> Option<Running<T, R, LEN>> {
        let Memory { nodes: [client, server], tables: [client_table, server_table], crypto, counters, wire } =
            self.0.take()?;
        let mut cx = Cx { now: NOW, crypto: crypto.write(Provider::new([0; 32])), counters };
        let client = Node::start(&mut cx, client, client_table, &CLIENT, endpoint);
        let server = Node::start(&mut cx, server, server_table, &SERVER, endpoint);
        Some(Running { cx, client, server, wire })
    }
}

impl<T: Peers, R: Answers, const LEN: usize> Running<T, R, LEN> {
    /// Exchanges flights until both endpoints have a session. Calls `each_time` with the client after each exchange of
    /// flights. Returns `None` if neither endpoint sends a datagram any more, or if `each_time` returns `None`.
    #[inline]
    pub fn meet(&mut self, mut each_time: impl FnMut(&mut Node<T, R>) -> Option<()>) -> Option<()> {
        let Self { cx, client, server, wire: Wire { there, back, .. } } = self;
        while client.session.is_none() || server.session.is_none() {
            let said = client.send_flight(cx, there, back, server) | server.send_flight(cx, there, back, client);
            each_time(client)?;
            if !said {
                return None;
            }
        }
        Some(())
    }

    /// Sends to the server the record that follows the handshake. Returns `None` if the server does not receive the
    /// content of the record.
    #[inline]
    pub fn speak(&mut self) -> Option<()> {
        let Self { cx, client, server, wire: Wire { there, text, .. } } = self;
        let datagram = client.seal(cx, there, text)?;
        server.open(cx, datagram, text)
    }

    /// Sends the last flight of the handshake to the server. Call this function only for a handshake whose last flight
    /// is sent by the client.
    #[inline]
    pub fn finish(&mut self) {
        let Self { cx, client, server, wire: Wire { there, back, .. } } = self;
        client.send_flight(cx, there, back, server);
    }
}

/// The measured region in which the instructions of the client are counted, and the path from the client to the server.
pub static CLIENT: End = End { region: Region::new(0), path: THERE };
/// The measured region in which the instructions of the server are counted, and the path from the server to the client.
pub static SERVER: End = End { region: Region::new(1), path: BACK };
/// The path from the client to the server.
pub const THERE: Path = Path { local: address(1), remote: address(2) };
/// The path from the server to the client.
pub const BACK: Path = Path { local: address(2), remote: address(1) };

/// Notes for the measured operations of a handshake with public keys: the instructions of the client and of the server,
/// in total and for each flight. If an endpoint prepares its next flight while it processes a received flight, these
/// instructions are counted for the received flight.
pub const HANDSHAKE_NOTES: [Note; 13] = [
    Note::operation(CLIENT.region.id(), "handshake client"),
    Note::operation(SERVER.region.id(), "handshake server"),
    Note::operation(flight_region(&CLIENT, 1), "client flight 1"),
    Note::operation(flight_region(&CLIENT, 2), "client flight 2"),
    Note::operation(flight_region(&CLIENT, 3), "client flight 3"),
    Note::operation(flight_region(&CLIENT, 4), "client flight 4"),
    Note::operation(flight_region(&CLIENT, 5), "client flight 5"),
    Note::operation(flight_region(&CLIENT, 6), "client flight 6"),
    Note::operation(flight_region(&SERVER, 1), "server flight 1"),
    Note::operation(flight_region(&SERVER, 3), "server flight 3"),
    Note::operation(flight_region(&SERVER, 4), "server flight 4"),
    Note::operation(flight_region(&SERVER, 5), "server flight 5"),
    Note::operation(flight_region(&SERVER, 6), "server flight 6"),
];

/// The properties in which the client and the server of an image differ.
pub struct End {
    /// The measured region in which the instructions of the client or of the server are counted.
    pub region: Region,
    /// The path to the other endpoint of the pair.
    pub path: Path,
}

/// Answers the questions of a handshake ([`Need`]): the handshake asks for a key, a signature or a decision. The type
/// that implements this trait is the role of the endpoint: client, server or both.
pub trait Answers: Roles {
    /// True if [`Self::answer`] answers each [`Need`]. If false, the answer to each [`Need`] is one pre-shared key, and
    /// [`Self::answer`] is not called.
    const LOOKS: bool = false;
    /// True if the instructions for each flight of the handshake are also counted separately, each flight in its own
    /// measured region. All instructions of an endpoint are counted in [`End::region`] in any case.
    const BY_FLIGHT: bool = false;
    /// The state that [`Self::answer`] keeps from one call to the next.
    type Kept: Default;

    /// Returns the answer to `need`. `room` is a buffer for a signature or a public key in the answer.
    fn answer<'a>(
        crypto: &mut Provider,
        need: Need<'_>,
        kept: &mut Self::Kept,
        room: &'a mut [u8; ANSWER_LEN],
    ) -> Answer<'a> {
        let _ = (crypto, need, kept, room);
        Answer::Unknown
    }
}

/// Answers the questions of a handshake with public keys: the handshake asks for a signature, or for a decision about
/// the public key of the peer. The type that contains the credentials of an endpoint implements this trait.
pub trait Proves {
    /// See [`Answers::Kept`].
    type Kept: Default + 'static;

    /// Returns the answer, as [`Answers::answer`] does.
    fn answer<'a>(
        crypto: &mut Provider,
        need: Need<'_>,
        kept: &mut Self::Kept,
        room: &'a mut [u8; ANSWER_LEN],
    ) -> Answer<'a>;
}

impl Answers for Either {
    type Kept = ();
}

impl<S: Resumption> Answers for Resuming<Either, S> {
    type Kept = ();
}

impl<K: Keys + Proves> Answers for PublicKeys<Either, K> {
    const LOOKS: bool = true;
    const BY_FLIGHT: bool = true;
    type Kept = K::Kept;

    fn answer<'a>(
        crypto: &mut Provider,
        need: Need<'_>,
        kept: &mut Self::Kept,
        room: &'a mut [u8; ANSWER_LEN],
    ) -> Answer<'a> {
        K::answer(crypto, need, kept, room)
    }
}

impl<T: Peers, R: Answers> Node<T, R> {
    /// Makes the client or the server. The function is not inlined, so that the stack holds the node only while it is
    /// made.
    #[inline(never)]
    fn start(
        cx: &mut Cx<'_, Provider>,
        place: &'static mut MaybeUninit<Self>,
        table: &'static mut T,
        end: &'static End,
        endpoint: fn(&mut Cx<'_, Provider>, &'static mut T) -> Endpoint<&'static mut T, R>,
    ) -> &'static mut Self {
        place.write(Self { endpoint: endpoint(cx, table), end, session: None, kept: R::Kept::default() })
    }

    /// Opens a session.
    pub fn connect(&mut self, cx: &mut Cx<'_, Provider>) -> Option<()> {
        worked::<R, _>(self.end, || self.endpoint.connect(cx, &self.end.path)).ok().map(|_| ())
    }

    /// Sends to `other` all datagrams that this endpoint has to send now. The only datagram that `other` sends
    /// immediately as an answer is a HelloVerifyRequest, which contains a cookie. This function delivers the
    /// HelloVerifyRequest to this endpoint. Returns false if there is nothing to send.
    pub fn send_flight<const LEN: usize>(
        &mut self,
        cx: &mut Cx<'_, Provider>,
        there: &mut [u8; LEN],
        back: &mut [u8; LEN],
        other: &mut Self,
    ) -> bool {
        let mut sent = false;
        next_flight::<R>();
        loop {
            let len = self.poll(cx, there);
            if len == 0 {
                return sent;
            }
            sent = true;
            let answer_len = other.receive(cx, there.get_mut(..len).unwrap_or(&mut []), back);
            if answer_len > 0 {
                next_flight::<R>();
                self.receive(cx, back.get_mut(..answer_len).unwrap_or(&mut []), &mut []);
                next_flight::<R>();
            }
        }
    }

    /// Writes the next datagram that must be sent now. Returns its length, or 0 if there is none. The function is not
    /// inlined, so that its stack is free while the other endpoint works.
    #[inline(never)]
    fn poll(&mut self, cx: &mut Cx<'_, Provider>, out: &mut [u8]) -> usize {
        loop {
            match worked::<R, _>(self.end, || self.endpoint.poll(cx, out)) {
                Some(Event::Transmit { len, .. }) => return len.into(),
                Some(Event::Need(id)) if R::LOOKS => while self.give_key(cx, id) {},
                _ => return 0,
            }
        }
    }

    /// Handles a datagram of the other endpoint. Returns the length of the answer, or 0 if there is none.
    #[inline(never)]
    fn receive(&mut self, cx: &mut Cx<'_, Provider>, datagram: &mut [u8], out: &mut [u8]) -> usize {
        let mut records = Records::new(datagram);
        let mut answer_len = 0;
        loop {
            let Self { endpoint, end, .. } = self;
            match worked::<R, _>(end, || endpoint.handle(cx, &end.path, &mut records, out)) {
                Some(Event::Answer { len }) => answer_len = len.into(),
                Some(Event::Need(id)) => while self.give_key(cx, id) {},
                Some(Event::Established(id)) => self.session = Some(id),
                Some(_) => {}
                None => return answer_len,
            }
        }
    }

    /// Answers the [`Need`] of the handshake with the peer `id`. Returns true if the handshake then needs one more
    /// answer. The function is not inlined, so that its variables are not on the stack while records are handled.
    #[inline(never)]
    fn give_key(&mut self, cx: &mut Cx<'_, Provider>, id: PeerId) -> bool {
        let Self { endpoint, end, kept, .. } = self;
        let mut room = [0; ANSWER_LEN];
        if R::LOOKS {
            return worked::<R, _>(end, || {
                let need = endpoint.need(id);
                let answer = need.map_or(Answer::Unknown, |need| R::answer(cx.crypto, need, kept, &mut room));
                let event = endpoint.resume(cx, id, answer);
                // The next certificate may have arrived with the previous one.
                R::CERTIFICATES_IN_PARTS && matches!(event, Some(Event::Need(_)))
            });
        }
        let answer = Answer::Psk { identity: b"Client_identity", key: b"0123456789abcdef", principal: WHO };
        worked::<R, _>(end, || self.endpoint.resume(cx, id, answer));
        false
    }

    /// Protects `text` in `wire`. Returns `None` if the endpoint refuses it.
    pub fn seal<'w>(&mut self, cx: &mut Cx<'_, Provider>, wire: &'w mut [u8], text: &[u8]) -> Option<&'w mut [u8]> {
        let mut frame = Frame::new(wire, HEADROOM);
        frame.append(text).ok()?;
        let id = self.session?;
        measured(SEAL, || self.endpoint.seal(cx, id, &mut frame)).ok()?;
        Some(black_box(frame.finish()))
    }

    /// Opens a datagram. Returns `None` if its content is not `expected`.
    pub fn open(&mut self, cx: &mut Cx<'_, Provider>, datagram: &mut [u8], expected: &[u8]) -> Option<()> {
        let mut records = Records::new(datagram);
        match measured(OPEN, || self.endpoint.handle(cx, &self.end.path, &mut records, &mut [])) {
            Some(Event::Message { bytes, .. }) if records.bytes(bytes) == expected => Some(()),
            _ => None,
        }
    }
}

/// Runs `work`, and counts its instructions in the region of `end`. If [`Answers::BY_FLIGHT`] is true, also counts them
/// in the region for the current flight at this endpoint. The instructions for a flight send the flight, or receive it
/// and process its content.
#[inline(always)]
fn worked<R: Answers, T>(end: &End, work: impl FnOnce() -> T) -> T {
    if R::BY_FLIGHT {
        let flight = Region::new(flight_region(end, FLIGHT.load(Ordering::Relaxed).max(1)));
        return flight.measured(|| end.region.measured(work));
    }
    end.region.measured(work)
}

#[inline(always)]
fn next_flight<R: Answers>() {
    if R::BY_FLIGHT {
        FLIGHT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the number of the measured region in which the instructions of `end` for the flight `flight` are counted.
/// `flight` is from 1 to 6.
pub const fn flight_region(end: &End, flight: u32) -> u32 {
    FLIGHTS + 6 * end.region.id() + flight - 1
}

/// The number of the current flight of the handshake; 0 before the first flight.
static FLIGHT: AtomicU32 = AtomicU32::new(0);
/// The number of the measured region for flight 1 of the client. The regions for the other flights follow.
const FLIGHTS: u32 = 8;

/// Answers [`Need::Sign`] with a private key on secp256r1. The function is not inlined, so that its variables are not
/// on the stack while signatures are checked.
#[cfg(feature = "public-keys")]
#[inline(never)]
pub fn sign<'a>(
    crypto: &mut Provider,
    private: &[u8; SCALAR_LEN],
    digest: &[u8; DIGEST_LEN],
    room: &'a mut [u8; ANSWER_LEN],
) -> Answer<'a> {
    let len = room.first_chunk_mut().and_then(|room| crypto.sign(private, digest, room).ok()).unwrap_or(0);
    Answer::Signature(room.get(..len).unwrap_or(&[]))
}

/// Length of the longest [`Answer`] that this program gives, in bytes. The longest answer is a public key.
pub const ANSWER_LEN: usize = size_of::<PublicKey>();
/// The number of the measured region in which the instructions that protect a record are counted.
pub const SEAL: u32 = 2;
/// The number of the measured region in which the instructions that verify and decrypt a record are counted.
pub const OPEN: u32 = 3;

/// Returns the address of an endpoint: `fd00::` with the last byte `last`.
pub const fn address(last: u8) -> Address {
    Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], port: 5684, scope: 0 }
}

/// The identity (principal) by which the client knows the server, and the server knows the client.
pub const WHO: Principal = Principal(1);
/// The time of every call. No exchange depends on the clock.
pub const NOW: Instant = Instant::from_micros(0);
/// Length of the content of a record, in bytes.
pub const RECORD_LEN: usize = 64;
/// Minimum length of a buffer for a record with a content of [`RECORD_LEN`] bytes, in bytes.
pub const MIN_DATAGRAM: usize = HEADROOM + RECORD_LEN + TAILROOM;
