//! Two ends in one process that perform handshakes in the roles of the firmware's images, with real keys and
//! certificates. Every datagram is kept.

use super::delegated::{delegation, in_first_epoch, seal};
use std::cell::RefCell;
use std::collections::VecDeque;
use tegmen::address::{Address, Path};
use tegmen::buf::{Frame, Reader, Writer};
use tegmen::crypto::{Compact, Crypto, P256_PREFIX, SCALAR_LEN, SignatureScheme};
use tegmen::crypto::{MAX_SIGNATURE, curves};
use tegmen::cx::{Cx, Environment};
use tegmen::dtls::{
    Answer, Both, CertificateType, CipherSuite, ClientAuthentication, Config, Credential, Found, Handle, Keys, Need,
    Profile, PublicKeys, Records, Resumable, Resuming, Resumption, Roles, SessionState, Suites,
};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, PeerArray};
use tegmen::identity::{PeerId, Principal};
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_delegation::{HandedOver, Sessions};
use tegmen_tickets::TicketKeys;
use tegmen_x509::{Anchor, KeyPurpose, Name, PublicKey, Refusal, Rules};

/// A datagram of a handshake.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) by_client: bool,
    pub(super) bytes: Vec<u8>,
}

/// With a pre-shared key, as the image `dtls_psk`.
pub(super) fn psk(profile: Profile) -> Vec<Sent> {
    let mut ends = Ends::new(profile, [Both, Both]);
    ends.connect();
    ends.sent
}

/// A session with a pre-shared key, over which messages are sent.
pub(super) struct Session(Ends<Both>);

impl Session {
    /// Opens a session, in which the client has this identity and key.
    pub(super) fn open(identity: &[u8], key: &[u8]) -> Self {
        let mut ends = Ends::new(Profile::Default, [Both, Both]);
        ends.ends.iter_mut().for_each(|end| end.psk = Some((identity.to_vec(), key.to_vec())));
        ends.connect();
        Self(ends)
    }

    /// Returns the datagrams of a handshake in which the server does not accept the identity of the client.
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

    /// Sends a message.
    pub(super) fn send(&mut self, by_client: bool, message: &[u8]) {
        let End { endpoint, environment, session, .. } = &mut self.0.ends[usize::from(!by_client)];
        let mut storage = [0; DATAGRAM];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        frame.append(message).expect("a short message");
        let id = session.expect("a session");
        endpoint.seal(&mut environment.at(NOW), id, &mut frame).expect("an open session");
        self.0.sent.push(Sent { by_client, bytes: frame.finish().to_vec() });
    }

    /// Ends the session with a close_notify alert.
    pub(super) fn close(&mut self, by_client: bool) {
        let end = &mut self.0.ends[usize::from(!by_client)];
        let id = end.session.expect("a session");
        end.endpoint.close(id);
        self.0.sent.extend(end.poll().into_iter().map(|bytes| Sent { by_client, bytes }));
    }

    /// The number of datagrams up to now.
    pub(super) const fn len(&self) -> usize {
        self.0.sent.len()
    }

    /// The datagrams that were sent.
    pub(super) fn sent(self) -> Vec<Sent> {
        self.0.sent
    }
}

/// With raw public keys that both know, as the image `dtls_rpk`.
pub(super) fn raw_public_keys() -> Vec<Sent> {
    shown(&Shown { kind: CertificateType::RAW_PUBLIC_KEY, content: public_key().to_vec() })
}

/// With a certificate each, which the anchor issued.
pub(super) fn certificates() -> Vec<Sent> {
    let device = tegmen::dtls::certificates(PATH).next().expect("a certificate of the device");
    let content = [&(device.len() as u32).to_be_bytes()[1..], device].concat();
    shown(&Shown { kind: CertificateType::X509, content })
}

/// With the certificates of the image `dtls_x509`: that of the device, and that of the CA below the anchor.
pub(super) fn certificate_chains() -> Vec<Sent> {
    shown(&Shown { kind: CertificateType::X509, content: PATH.to_vec() })
}

/// With what an earlier handshake with a pre-shared key left, as the image `dtls_resume`: a ticket, or an id under which the
/// server remembers; and how long that is.
pub(super) fn resumed(tickets: bool) -> (Vec<Sent>, usize) {
    let role = |seed| {
        let keys = RefCell::new(TicketKeys::draw(&mut Compact::new([seed; 32])));
        Resuming { role: Both, sessions: Memory { tickets, keys, known: RefCell::default() } }
    };
    let mut ends = Ends::new(Profile::Default, [role(1), role(2)]);
    ends.connect();
    let (session, handle) = ends.ends[0].kept.take().expect("a server that gives tickets or ids gave one");
    ends.forget();
    ends.connect_again(&session, if tickets { Handle::Ticket(&handle) } else { Handle::Id(&handle) });
    (ends.sent, handle.len())
}

/// With a session that a delegation server opened in the name of the server's end, as the image `dtls_delegated`: a ticket, or an id
/// under which the session was handed over; and the length of either.
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

fn shown(content: &Shown) -> Vec<Sent> {
    let role = || PublicKeys { role: Both, keys: Shown { kind: content.kind, content: content.content.clone() } };
    let mut ends = Ends::new(Profile::Default, [role(), role()]);
    ends.connect();
    ends.sent
}

/// Two ends of the same roles, the client first.
struct Ends<R: Roles> {
    ends: [End<R>; 2],
    sent: Vec<Sent>,
}

struct End<R: Roles> {
    endpoint: Endpoint<PeerArray<(), 2, 1, 400, 1400>, R>,
    environment: Environment<Compact>,
    path: Path,
    session: Option<PeerId>,
    /// The identity and the key of a client; `None` if the identity is not accepted.
    psk: Option<(Vec<u8>, Vec<u8>)>,
    /// What a client may resume with, and the ticket or the id for it.
    kept: Option<(SessionState, Vec<u8>)>,
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
        client.endpoint.connect(&mut client.environment.at(NOW), &path).expect("a table with room");
        self.deliver();
        assert!(self.ends.iter().all(|end| end.session.is_some()), "a handshake without faults");
    }

    fn connect_again(&mut self, session: &SessionState, handle: Handle<'_>) {
        let client = &mut self.ends[0];
        let path = client.path;
        let cx = &mut client.environment.at(NOW);
        let connected = client.endpoint.connect_again(cx, &path, session, handle);
        connected.expect("a table with room");
        self.deliver();
        assert!(self.ends.iter().all(|end| end.session.is_some()), "a handshake without faults");
    }

    /// Deletes the state of the handshake, except its session.
    fn forget(&mut self) {
        self.sent.clear();
        for end in &mut self.ends {
            let id = end.session.take().expect("a session");
            end.endpoint.close(id);
            while !end.poll().is_empty() {}
        }
    }

    /// Delivers datagrams until neither end sends any more.
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
        if let Some(Resumable::With { session, handle: Handle::Ticket(bytes) | Handle::Id(bytes), .. }) =
            self.endpoint.resumable(id)
        {
            self.kept = Some((session, bytes.to_vec()));
        }
    }
}

/// Answers about public keys. All ends have the same key.
fn answer<'a>(crypto: &mut Compact, need: Need<'_>, room: &'a mut [u8; 91]) -> Answer<'a> {
    match need {
        Need::VerifyPeer { certificate_type: CertificateType::X509, content } => {
            let device = tegmen::dtls::certificates(content).count() == 1;
            // The device alone was issued by the CA of the path, and is shown to those who believe that CA.
            let ca = tegmen::dtls::certificates(PATH).nth(1).expect("a certificate of the CA");
            let name = if device { CA_NAME } else { ANCHOR_NAME };
            let key = if device { key_in(ca) } else { *ANCHOR_KEY };
            let rules = Rules {
                anchors: &[Anchor { name, public_key: &key }],
                purpose: KeyPurpose::Server,
                name: Name::Eui64([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]),
                now: None,
            };
            match rules.verify(crypto, content) {
                Ok(end_entity) => {
                    *room = end_entity.public_key;
                    Answer::Peer { public_key: room, principal: WHO }
                }
                Err(_) => Answer::Refused(Refusal::ALERT),
            }
        }
        Need::VerifyPeer { content, .. } if content == public_key() => {
            *room = public_key();
            Answer::Peer { public_key: room, principal: WHO }
        }
        Need::VerifyPeer { .. } => Answer::Refused(Refusal::ALERT),
        Need::Sign { digest, .. } => {
            let mut signature = [0; MAX_SIGNATURE];
            let len = curves::sign(&PRIVATE, &digest, &mut signature).expect("a private key");
            room[..len].copy_from_slice(&signature[..len]);
            Answer::Signature(&room[..len])
        }
        // No mote has RSA, and pre-shared keys are those of the end.
        Need::Encrypt { .. } | Need::Decrypt { .. } | Need::PskForServer { .. } | Need::PskOfClient { .. } => {
            Answer::Unknown
        }
    }
}

/// The SubjectPublicKeyInfo in a certificate.
fn key_in(der: &[u8]) -> PublicKey {
    let at = der.windows(P256_PREFIX.len()).position(|bytes| bytes == P256_PREFIX).expect("a key on secp256r1");
    der[at..].first_chunk().copied().expect("a whole key")
}

fn public_key() -> PublicKey {
    curves::public_key_of(&PRIVATE).expect("a private key")
}

/// What an end with public keys shows.
struct Shown {
    kind: CertificateType,
    content: Vec<u8>,
}

impl Keys for Shown {
    fn credential(&self, _: u32, number: u8) -> Option<Credential<'_>> {
        let scheme = SignatureScheme::ECDSA_SECP256R1_SHA256;
        (number == 0).then_some(Credential { certificate_type: self.kind, scheme, content: &self.content })
    }

    fn client_authentication(&self) -> ClientAuthentication {
        ClientAuthentication::Required
    }

    fn peer_types(&self) -> &[CertificateType] {
        std::slice::from_ref(&self.kind)
    }

    fn suites(&self, _: u32) -> Suites {
        Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8])
    }
}

/// What a server remembers: the keys of its tickets, or the last session with its id.
struct Memory {
    tickets: bool,
    keys: RefCell<TicketKeys>,
    known: RefCell<Option<(Vec<u8>, [u8; SessionState::LEN])>>,
}

impl Resumption for Memory {
    fn gives_tickets(&self, _: u32) -> bool {
        self.tickets
    }

    fn gives_ids(&self, _: u32) -> bool {
        !self.tickets
    }

    fn takes_tickets(&self) -> bool {
        self.tickets
    }

    fn find(&self, _: Instant, _: u32, id: &[u8]) -> Option<SessionState> {
        let known = self.known.borrow();
        let (_, state) = known.as_ref().filter(|(known, _)| known == id)?;
        SessionState::read(&mut Reader::new(state)).ok()
    }

    fn remember(&self, _: Instant, _: u32, id: &[u8], session: &SessionState) {
        let mut state = [0; SessionState::LEN];
        session.write(&mut Writer::new(&mut state)).expect("room for a session");
        *self.known.borrow_mut() = Some((id.to_vec(), state));
    }

    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, _: u32, ticket: &[u8]) -> Option<Found> {
        let mut room = Secret::<{ SessionState::LEN }>::zeroed();
        let keys = self.keys.borrow();
        let opened = keys.open(cx.crypto, ticket, room.expose_mut())?;
        let session = SessionState::read(&mut Reader::new(opened.state)).ok()?;
        Some(Found { session, renew: false })
    }

    fn seal_ticket<C: Crypto>(
        &self,
        cx: &mut Cx<'_, C>,
        _: u32,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32> {
        let mut room = Secret::<{ SessionState::LEN }>::zeroed();
        let mut state = Writer::new(room.expose_mut());
        session.write(&mut state).ok()?;
        self.keys.borrow_mut().seal(cx.crypto, state.written(), ticket).ok()?;
        Some(86400)
    }
}

const NOW: Instant = Instant::from_micros(0);
/// The time of a delegation server, in seconds since 1970.
const TIME: u32 = 1_700_000_000;
/// Bytes of the longest session id (RFC 5246, section 7.4.1.2).
const SESSION_ID: usize = 32;
const WHO: Principal = Principal(1);
/// The longest message is that with the certificates.
const DATAGRAM: usize = 1232;
/// The private key of the device.
const PRIVATE: [u8; SCALAR_LEN] = [1; SCALAR_LEN];
const PATH: &[u8] = include_bytes!("../../../firmware/x509/path.bin");
const ANCHOR_NAME: &[u8] = include_bytes!("../../../firmware/x509/anchor-name.der");
const ANCHOR_KEY: &PublicKey = include_bytes!("../../../firmware/x509/anchor-key.der");
/// `CN=Works CA`.
const CA_NAME: &[u8] = b"\x30\x13\x31\x11\x30\x0f\x06\x03\x55\x04\x03\x0c\x08Works CA";
