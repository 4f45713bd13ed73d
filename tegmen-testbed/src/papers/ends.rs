//! A client and a server in this process that perform handshakes with real keys and certificates, in the roles of the
//! firmware images. Every datagram is recorded.

use crate::mote::credentials::{Shown, WHO, answer};
use crate::mote::delegated::{delegation, first_epoch, in_epoch, in_first_epoch, seal, second_epoch};
use crate::mote::sessions::{Memory, Resumed};
use std::cell::RefCell;
use std::collections::VecDeque;
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::crypto::Compact;
use tegmen::cx::Environment;
use tegmen::dtls::{
    Answer, Both, Config, Handle, Need, Profile, PublicKeys, Records, Resumable, Resuming, Roles, SessionState,
};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, PeerArray};
use tegmen::identity::PeerId;
use tegmen::time::Instant;
use tegmen_delegation::{HandedOver, Issuer, PSK_LEN, Sessions};
use tegmen_x509::PublicKey;

/// A datagram of a handshake, and its sender (client or server).
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) by_client: bool,
    pub(super) bytes: Vec<u8>,
}

/// Returns the datagrams of a handshake with a pre-shared key, as in the image `dtls_psk`.
pub(super) fn psk(profile: Profile) -> Vec<Sent> {
    let mut ends = Ends::new(profile, [Both, Both]);
    ends.connect();
    ends.sent
}

/// A session with a pre-shared key, in which client and server can send messages.
pub(super) struct Session(Ends<Both>);

impl Session {
    /// Opens a session. The client has this identity and key, and the server accepts them.
    pub(super) fn open(identity: &[u8], key: &[u8]) -> Self {
        let mut ends = Ends::new(Profile::Default, [Both, Both]);
        ends.ends.iter_mut().for_each(|end| end.psk = Some((identity.to_vec(), key.to_vec())));
        ends.connect();
        Self(ends)
    }

    /// Returns the datagrams of a handshake that fails because the server does not accept the identity of the client.
    pub(super) fn refused(identity: &[u8], key: &[u8]) -> Vec<Sent> {
        let mut ends = Ends::new(Profile::Default, [Both, Both]);
        ends.ends[0].psk = Some((identity.to_vec(), key.to_vec()));
        ends.ends[1].psk = None;
        let client = &mut ends.ends[0];
        let path = client.path;
        client.endpoint.connect(&mut client.environment.at(NOW), &path).expect("a table with space");
        ends.deliver();
        assert!(ends.ends.iter().all(|end| end.session.is_none()), "a handshake that is refused");
        ends.sent
    }

    /// Sends a message. The client sends it if `by_client` is true, and otherwise the server.
    pub(super) fn send(&mut self, by_client: bool, message: &[u8]) {
        self.0.send(by_client, message);
    }

    /// Ends the session with a close_notify alert. The client sends it if `by_client` is true, and otherwise the
    /// server.
    pub(super) fn close(&mut self, by_client: bool) {
        let end = &mut self.0.ends[usize::from(!by_client)];
        let id = end.session.expect("a session");
        end.endpoint.close(id);
        self.0.sent.extend(end.poll().into_iter().map(|bytes| Sent { by_client, bytes }));
    }

    /// Returns the number of datagrams that were sent until now.
    pub(super) const fn len(&self) -> usize {
        self.0.sent.len()
    }

    /// Returns the datagrams that were sent.
    pub(super) fn sent(self) -> Vec<Sent> {
        self.0.sent
    }
}

/// Returns the datagrams of a handshake with raw public keys, as in the image `dtls_rpk`. Client and server know each
/// other's key.
pub(super) fn raw_public_keys() -> Vec<Sent> {
    shown(Shown::raw_public_key)
}

/// Returns the datagrams of a handshake in which client and server each have a certificate that the trust anchor
/// issued.
pub(super) fn certificates() -> Vec<Sent> {
    shown(Shown::certificate)
}

/// Returns the datagrams of a handshake with the certificates of the image `dtls_x509`. Client and server each send
/// their own certificate, and the certificate of the CA that issued it. The CA is below the trust anchor.
pub(super) fn certificate_chains() -> Vec<Sent> {
    shown(Shown::certificate_chain)
}

/// Returns the datagrams of a handshake that resumes a session with a pre-shared key, as in the image `dtls_resume`.
/// Also returns the length of the ticket or session id. If `tickets` is true, the client has a ticket. Otherwise it has
/// a session id, and the server remembers the session.
pub(super) fn resumed(tickets: bool) -> (Vec<Sent>, usize) {
    let role = |seed| Resuming { role: Both, sessions: Memory::new(tickets, [seed; 32]) };
    let mut ends = Ends::new(Profile::Default, [role(1), role(2)]);
    ends.connect();
    let kept = ends.ends[0].kept.take().expect("a server that gives tickets or ids gave one");
    ends.forget();
    ends.connect_again(&kept.session, kept.handle());
    (ends.sent, kept.handle_len())
}

/// Returns the datagrams of a handshake that resumes a session of a delegation server, as in the image
/// `dtls_delegated`. Also returns the length of the ticket or session id. The device is the server of the handshake. If
/// `tickets` is true, the client has a ticket. Otherwise it has the session id with which the delegation server gave
/// the session to the device.
pub(super) fn delegated(tickets: bool) -> (Vec<Sent>, usize) {
    let devices = [1, 2].map(|seed| in_first_epoch([seed; 32], NOW, TIME));
    let [(of_peer, _), (of_server, mut issuer)] = devices;
    let of_server = RefCell::new(of_server);
    let of_peer = RefCell::new(of_peer);
    let opened = || delegation(1, TIME, TIME + 3600);
    let handle = match tickets {
        true => seal(&mut issuer, &mut Compact::new([3; 32]), &opened()),
        false => {
            let id = [5; SESSION_ID];
            let state = opened().state().expect("a session with its time");
            let session = HandedOver { state: state.expose(), handle: Handle::Id(&id), opens: false };
            of_server.borrow_mut().keep(session).expect("a place for a session");
            id.to_vec()
        }
    };
    let role = |device| Resuming { role: Both, sessions: Sessions(device) };
    let mut ends = Ends::new(Profile::Default, [role(&of_peer), role(&of_server)]);
    let known = if tickets { Handle::Ticket(&handle) } else { Handle::Id(&handle) };
    ends.connect_again(&opened().session, known);
    (ends.sent, handle.len())
}

/// Returns the datagrams of a peer that reconnects to a device whose epoch has ended. The first list has the handshake
/// with a ticket of the previous epoch. The device refuses this ticket. The second list has the handshake with a ticket
/// of the current epoch, and then a request and its response.
pub(super) fn returned(request: &[u8], response: &[u8]) -> [Vec<Sent>; 2] {
    let (seed, of_peer) = ([2; PSK_LEN], in_first_epoch([1; PSK_LEN], NOW, TIME).0);
    let devices = [of_peer, in_epoch(second_epoch(seed), NOW, TIME)].map(RefCell::new);
    let mut ends =
        Ends::new(Profile::Default, [0, 1].map(|end| Resuming { role: Both, sessions: Sessions(&devices[end]) }));
    let opened = delegation(1, TIME, TIME + 3600);
    let [stale, renewed] = [first_epoch(seed), second_epoch(seed)]
        .map(|epoch| seal(&mut Issuer::new(epoch, None, 0), &mut Compact::new([3; 32]), &opened));
    ends.try_again(&opened.session, Handle::Ticket(&stale));
    assert!(ends.ends.iter().all(|end| end.session.is_none()), "a ticket of an epoch that has ended");
    let refused = std::mem::take(&mut ends.sent);
    ends.connect_again(&opened.session, Handle::Ticket(&renewed));
    ends.send(true, request);
    ends.send(false, response);
    [refused, ends.sent]
}

fn shown(keys: fn() -> Shown) -> Vec<Sent> {
    let role = || PublicKeys { role: Both, keys: keys() };
    let mut ends = Ends::new(Profile::Default, [role(), role()]);
    ends.connect();
    ends.sent
}

/// A client and a server, and the datagrams that they sent. The roles of both endpoints have the same type `R`.
struct Ends<R: Roles> {
    ends: [End<R>; 2],
    sent: Vec<Sent>,
}

struct End<R: Roles> {
    endpoint: Endpoint<PeerArray<(), 2, 1, 400, 1400>, R>,
    environment: Environment<Compact>,
    path: Path,
    session: Option<PeerId>,
    /// The identity and the key that the server knows for a client; `None` if the server knows no client.
    psk: Option<(Vec<u8>, Vec<u8>)>,
    /// The session that a client can resume, with its ticket or session id; `None` if it has none.
    kept: Option<Resumed>,
}

impl<R: Roles> Ends<R> {
    fn new(profile: Profile, roles: [R; 2]) -> Self {
        let mut last = 0;
        let ends = roles.map(|role| {
            last += 1;
            End::new(last, profile, role)
        });
        Self { ends, sent: Vec::new() }
    }

    fn connect(&mut self) {
        let client = &mut self.ends[0];
        let path = client.path;
        client.endpoint.connect(&mut client.environment.at(NOW), &path).expect("a table with a free place");
        self.deliver();
        assert!(self.ends.iter().all(|end| end.session.is_some()), "a handshake without faults");
    }

    fn connect_again(&mut self, session: &SessionState, handle: Handle<'_>) {
        self.try_again(session, handle);
        assert!(self.ends.iter().all(|end| end.session.is_some()), "a handshake without faults");
    }

    fn try_again(&mut self, session: &SessionState, handle: Handle<'_>) {
        let client = &mut self.ends[0];
        let path = client.path;
        let cx = &mut client.environment.at(NOW);
        let connected = client.endpoint.connect_again(cx, &path, session, handle);
        connected.expect("a table with a free place");
        self.deliver();
    }

    fn send(&mut self, by_client: bool, message: &[u8]) {
        let End { endpoint, environment, session, .. } = &mut self.ends[usize::from(!by_client)];
        let mut storage = [0; DATAGRAM];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        frame.append(message).expect("a short message");
        let id = session.expect("a session");
        endpoint.seal(&mut environment.at(NOW), id, &mut frame).expect("an open session");
        self.sent.push(Sent { by_client, bytes: frame.finish().to_vec() });
    }

    /// Deletes the sessions and the recorded datagrams of client and server. The session that the client can resume
    /// stays stored.
    fn forget(&mut self) {
        self.sent.clear();
        for end in &mut self.ends {
            let id = end.session.take().expect("a session");
            end.endpoint.close(id);
            while !end.poll().is_empty() {}
        }
    }

    /// Delivers datagrams until neither client nor server sends another datagram.
    fn deliver(&mut self) {
        let mut flying = VecDeque::new();
        loop {
            for (end, by_client) in self.ends.iter_mut().zip([true, false]) {
                flying.extend(end.poll().into_iter().map(|bytes| Sent { by_client, bytes }));
            }
            let Some(sent) = flying.pop_front() else { break };
            let by_client = !sent.by_client;
            let answers = self.ends[usize::from(sent.by_client)].receive(&sent.bytes);
            flying.extend(answers.into_iter().map(|bytes| Sent { by_client, bytes }));
            self.sent.push(sent);
        }
    }
}

impl<R: Roles> End<R> {
    fn new(last: u8, profile: Profile, role: R) -> Self {
        let address =
            |last| Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], port: 5684, scope: 0 };
        let path = Path { local: address(last), remote: address(3 - last) };
        let mut environment = Environment::new(Compact::new([last; 32]));
        let config = Config { profile, ..Config::default() };
        let endpoint = Endpoint::with_roles(&mut environment.at(NOW), PeerArray::new(), config, role);
        let psk = Some((b"Client_identity".to_vec(), b"0123456789abcdef".to_vec()));
        Self { endpoint, environment, path, session: None, psk, kept: None }
    }

    fn poll(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Vec::new();
        loop {
            let mut out = [0; DATAGRAM];
            let needed = match self.endpoint.poll(&mut self.environment.at(NOW), &mut out) {
                Some(Event::Transmit { len, .. }) => {
                    sent.push(out[..len.into()].to_vec());
                    continue;
                }
                Some(Event::Need(id)) => id,
                Some(_) => continue,
                None => return sent,
            };
            self.answer(needed);
        }
    }

    fn receive(&mut self, datagram: &[u8]) -> Vec<Vec<u8>> {
        let mut datagram = datagram.to_vec();
        let mut records = Records::new(&mut datagram);
        let path = self.path;
        let mut answers = Vec::new();
        loop {
            let mut out = [0; DATAGRAM];
            match self.endpoint.handle(&mut self.environment.at(NOW), &path, &mut records, &mut out) {
                Some(Event::Answer { len }) => answers.push(out[..len.into()].to_vec()),
                Some(Event::Need(id)) => self.answer(id),
                Some(Event::Established(id)) => self.established(id),
                Some(_) => {}
                None => return answers,
            }
        }
    }

    fn answer(&mut self, id: PeerId) {
        let Self { endpoint, environment, psk, .. } = self;
        let mut room = [0; size_of::<PublicKey>()];
        let Some(need) = endpoint.need(id) else { return };
        let answer = match (&need, &*psk) {
            (Need::PskForServer { .. } | Need::PskOfClient { .. }, Some((identity, key))) => {
                Answer::Psk { identity, key, principal: WHO }
            }
            (Need::PskForServer { .. } | Need::PskOfClient { .. }, None) => Answer::Unknown,
            _ => answer(&mut environment.crypto, need, &mut room),
        };
        let event = endpoint.resume(&mut environment.at(NOW), id, answer);
        match event {
            Some(Event::Established(id)) => self.established(id),
            Some(Event::Need(id)) => self.answer(id),
            _ => {}
        }
    }

    fn established(&mut self, id: PeerId) {
        self.session = Some(id);
        if let Some(Resumable::With { session, handle, .. }) = self.endpoint.resumable(id) {
            self.kept = Some(Resumed::new(session, handle));
        }
    }
}

const NOW: Instant = Instant::from_micros(0);
/// The current time of the delegation server, in seconds since 1970.
const TIME: u32 = 1_700_000_000;
/// Maximum length of a session id in bytes (RFC 5246, section 7.4.1.2).
const SESSION_ID: usize = 32;
/// Length of a datagram buffer in bytes. The longest messages are those with certificates.
const DATAGRAM: usize = 1232;
