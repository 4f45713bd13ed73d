//! A CoAPs client for one server, with DTLS 1.2 and a pre-shared key. It needs no heap, and it does no input and output
//! itself.
//!
//! The owner of the client has the socket and the clock. It calls [`Client::connect`] once. Then it calls
//! [`Client::poll`]
//!
//! * for each datagram that arrives from the server, and
//! * at the time of [`Client::next_alarm`], so that the client sends unanswered datagrams again.
//!
//! In both cases the owner repeats the call until [`Client::poll`] returns `None`. [`Client::request`] writes a
//! request. The owner also has the buffers for datagrams, and passes them to each call.
#![no_std]

mod error;

pub use error::Error;
pub use tegmen::address::{Address, Path};
pub use tegmen::coap::Code;
pub use tegmen::dtls::Records;
pub use tegmen::time::Instant;

use core::mem::take;
use heapless::Vec;
use tegmen::coap::{Exchanges, Fixed, RequestId};
use tegmen::crypto::Compact;
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, ClientOnly, Config};
use tegmen::endpoint::{self, Endpoint, OnePeer, Peers as _};
use tegmen::identity::{PeerId, Principal};
use tegmen::node::{Application, Node, Reply};
use tegmen::oscore::OpenedRequest;

/// Length of the longest DTLS datagram in bytes. The buffer for a received datagram and the buffer for a datagram to
/// send both have this length.
pub const DATAGRAM_LEN: usize = 256;
/// Length of the longest payload of a response in bytes.
pub const PAYLOAD_LEN: usize = 64;

/// A pre-shared key and its identity (RFC 4279).
#[derive(Clone, Copy)]
pub struct Credentials<'k> {
    /// The PSK identity.
    pub identity: &'k [u8],
    /// The key.
    pub key: &'k [u8],
}

/// Converts hexadecimal digits, the form of keys in a credentials file of Tegmen, to bytes. Returns `None` if the text
/// has other characters or an odd length, or if there are more than `N` bytes.
pub fn bytes_of_hex<const N: usize>(hex: &str) -> Option<Vec<u8, N>> {
    let (pairs, []) = hex.as_bytes().as_chunks::<2>() else { return None };
    let mut bytes = Vec::new();
    for pair in pairs {
        let digits = core::str::from_utf8(pair).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?).ok()?;
    }
    Some(bytes)
}

/// The response of the server.
#[derive(Debug)]
pub struct Response {
    /// The code, such as 2.05 Content.
    pub code: Code,
    /// The payload.
    pub payload: Vec<u8, PAYLOAD_LEN>,
}

/// The result of [`Client::poll`]. `'o` is the lifetime of the buffer for a datagram to send.
#[derive(Debug)]
pub enum Event<'o> {
    /// The owner must send this datagram to the server.
    Send(&'o [u8]),
    /// The handshake is complete. Both ends have proved that they have the key.
    Connected,
    /// The response to the request.
    Response(Response),
    /// The session has ended, or there is no response to the request.
    Failed(Error),
}

/// A client for one server.
pub struct Client<'k> {
    node: Node<OnePeer<Exchanges<Kept>>, ClientOnly>,
    environment: Environment<Compact>,
    credentials: Credentials<'k>,
    path: Path,
    session: Option<PeerId>,
    inbox: Inbox,
}

/// The memory for CoAP exchanges. It has space for one message of the client, of at most 64 bytes, that is not
/// acknowledged yet. It also remembers the last four messages of the server.
type Kept = Fixed<1, 64, 4, 64>;

impl<'k> Client<'k> {
    /// Makes a client. `path` has the address of this mote and the address of the server.
    ///
    /// `seed` must be unpredictable, and different in each run. Take it from the random number generator of the chip.
    pub fn new(path: Path, credentials: Credentials<'k>, seed: [u8; 32]) -> Self {
        let mut environment = Environment::new(Compact::new(seed));
        let config = Config { mtu: DATAGRAM_LEN as u16, ..Config::default() };
        let endpoint = Endpoint::new(&mut environment.at(Instant::default()), OnePeer::new(), config);
        let node = Node::new(endpoint, Kept::default());
        Self { node, environment, credentials, path, session: None, inbox: Inbox(None) }
    }

    /// Begins a handshake. An earlier session of this client is discarded.
    ///
    /// # Errors
    /// [`Error::Full`] after a call of [`Self::close`], until [`Self::poll`] has sent the close_notify of the old
    /// session.
    pub fn connect(&mut self, now: Instant) -> Result<(), Error> {
        if let Some(earlier) = self.session.take() {
            self.node.endpoint.peers.remove(earlier);
        }
        let cx = &mut self.environment.at(now);
        self.session = Some(self.node.endpoint.connect(cx, &self.path).map_err(Error::Full)?);
        Ok(())
    }

    /// Writes a confirmable request into `out`. Returns the datagram, which the caller must send.
    ///
    /// # Errors
    /// [`Error::NotSent`] in three cases: before [`Event::Connected`], as long as another request has no response, and
    /// if the request is too long.
    pub fn request<'o>(
        &mut self,
        now: Instant,
        code: Code,
        path: &str,
        payload: &[u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], Error> {
        let peer = self.session.ok_or(Error::NotSent(endpoint::Misuse::NotEstablished.into()))?;
        let cx = &mut self.environment.at(now);
        let request = self.node.request(
            cx,
            peer,
            code,
            |message| {
                message.path(path)?;
                message.payload(payload)
            },
            out,
        );
        let (_, len) = request.map_err(Error::NotSent)?;
        Ok(out.get(..len).unwrap_or(&[]))
    }

    /// Processes the next record of `received`, a datagram from the server. If no record is left, does the next work
    /// that is due at the time `now`. If no datagram has arrived, pass `Records::new(&mut [])`. Call this function
    /// until it returns `None`.
    pub fn poll<'o>(&mut self, now: Instant, received: &mut Records<'_>, out: &'o mut [u8]) -> Option<Event<'o>> {
        let len = loop {
            let cx = &mut self.environment.at(now);
            let event = match self.node.handle(cx, &self.path, received, &mut self.inbox, out) {
                None => self.node.poll(cx, &mut self.inbox, out),
                event => event,
            };
            let event = match event {
                Some(endpoint::Event::Need(peer)) => {
                    let Credentials { identity, key } = self.credentials;
                    let answer = Answer::Psk { identity, key, principal: THE_SERVER };
                    self.node.endpoint.resume(cx, peer, answer)
                }
                None => return take(&mut self.inbox.0).map(|reply| reply.map_or_else(Event::Failed, Event::Response)),
                event => event,
            };
            match event {
                Some(endpoint::Event::Answer { len } | endpoint::Event::Transmit { len, .. }) => break len,
                Some(endpoint::Event::Established(_)) => return Some(Event::Connected),
                Some(endpoint::Event::Closed { reason, .. }) => return Some(Event::Failed(Error::Closed(reason))),
                _ => {}
            }
        };
        Some(Event::Send(out.get(..len.into()).unwrap_or(&[])))
    }

    /// Returns the time at which [`Self::poll`] must be called, if no datagram arrives earlier. Returns `None` if no
    /// work is planned.
    pub fn next_alarm(&self) -> Option<Instant> {
        self.node.endpoint.next_alarm()
    }

    /// Ends the session. The next call of [`Self::poll`] sends close_notify.
    pub fn close(&mut self) {
        if let Some(peer) = self.session.take() {
            self.node.endpoint.close(peer);
        }
    }
}

/// The response to the request, or an error. It is stored until [`Client::poll`] returns it.
struct Inbox(Option<Result<Response, Error>>);

impl<X: OpenedRequest> Application<X> for Inbox {
    fn on_reply(&mut self, _: PeerId, _: RequestId, reply: Reply<'_>) {
        self.0 = match reply {
            // The response follows in a message of its own.
            Reply::Acknowledged => return,
            Reply::Response(response) => Some(
                Vec::from_slice(response.payload())
                    .map(|payload| Response { code: response.code(), payload })
                    .map_err(|_| Error::LongResponse),
            ),
            Reply::Reset => Some(Err(Error::Rejected)),
            _ => Some(Err(Error::NoResponse)),
        };
    }
}

/// The principal of the server, which identifies it in the table of peers.
const THE_SERVER: Principal = Principal(1);
