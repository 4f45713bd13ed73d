//! The adapter between Tegmen's stack and the benchmarks. All other modules treat Tegmen in the same way as a peer's
//! program.
//!
//! `tegmen-bench ours` runs [`stack`] with the same protocol of text lines as every peer's program. `tegmen-bench coap`
//! starts [`serve_command`]. The crate `tegmen_bench_line` performs the handshakes and seals the records. Each line of
//! the protocol states how many handshakes or records to make, and the size of a record.

use crate::{failure::failure, memory::Memory, proof::Proof};
use std::{borrow::Cow, cell::RefCell, rc::Rc, time::SystemTime};
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::cx::{Cx, Environment};
use tegmen::dtls::{
    Answer, Both, Config, Handle, Need, PublicKeys as PublicKeysRole, Records, Resumable, Resuming, SessionState,
};
use tegmen::endpoint::{Endpoint, Event, HEADROOM, Peers};
use tegmen::identity::{PeerId, Principal};
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_bench_line::{DATAGRAM_MAX, End, Failure, IDENTITY, KEY, Outbox, PublicKeys, Resumption, Stack};
use tegmen_host::{
    provider::HostCrypto,
    public_keys::PublicKeys as HostKeys,
    slab::{Capacity, Slab},
    x509::{Purpose, signer::Signer as _},
};
use tegmen_tickets::TicketKeys;

/// The cryptographic provider whose speed is measured.
type Provider = HostCrypto;
/// The type of the peer table that is measured.
type Table = Slab<()>;
/// The DTLS roles that are measured. They are those of a host, and support public keys and resumption.
type Role = PublicKeysRole<Resuming<Both, Memory>, HostKeys>;

/// Creates Tegmen's stack with the default settings.
pub(crate) fn stack() -> Result<Ours, Failure> {
    Ours::new(Config::default())
}

/// Returns the command line that starts Tegmen's CoAP server on 127.0.0.1 at `port`, with these values and options. It
/// runs the program `tegmen` in the directory of this program. Returns `None` if that program does not exist.
pub(crate) fn serve_command(port: u16, values: &[&str], options: &[&str]) -> Option<Vec<String>> {
    serve_command_in(std::env::current_exe().ok()?.parent()?, port, values, options)
}

/// Returns the same command line as [`serve_command`], but with the program `tegmen` in the directory `programs`.
pub(crate) fn serve_command_in(
    programs: &std::path::Path,
    port: u16,
    values: &[&str],
    options: &[&str],
) -> Option<Vec<String>> {
    let plain = format!("--plain --no-secure --plain-port {port}");
    let plain: Vec<_> = plain.split(' ').collect();
    serve_words(programs, &[&plain, options].concat(), values)
}

/// Returns the command line of `tegmen serve` with these options and values; `None` if `programs` contains no `tegmen`.
pub(crate) fn serve_words(programs: &std::path::Path, options: &[&str], values: &[&str]) -> Option<Vec<String>> {
    let tegmen = programs.join("tegmen");
    let mut words = vec![tegmen.to_string_lossy().into_owned()];
    words.extend(SERVE_OPTIONS.split(' ').chain(options.iter().copied()).map(String::from));
    words.extend(values.iter().flat_map(|value| ["--value".into(), String::from(*value)]));
    tegmen.is_file().then_some(words)
}

/// Returns the error that the program `tegmen` is not built.
pub(crate) fn missing() -> Failure {
    Failure::new("no program tegmen beside tegmen-bench; type: cargo build --release -p tegmen-cli")
}

/// The options with which every `tegmen serve` process begins. The process has one shard (a thread that serves
/// requests), because each server with which it is compared has one thread.
const SERVE_OPTIONS: &str = "serve --listen 127.0.0.1 --quiet --shards 1";

/// Tegmen's stack. It has one endpoint for all clients and one for all servers, and every session has its own address.
pub(crate) struct Ours {
    pub(crate) client: Rc<RefCell<Side>>,
    pub(crate) server: Rc<RefCell<Side>>,
    clients: u32,
}

impl Ours {
    pub(crate) fn new(config: Config) -> Result<Self, Failure> {
        Ok(Self { client: Side::new(config)?, server: Side::new(config)?, clients: 0 })
    }

    /// Replaces both endpoints with new endpoints that authenticate themselves with public keys.
    fn prove(&mut self, keys: &PublicKeys, remembered: bool) -> Result<(), Failure> {
        for (side, role) in [(&mut self.client, Purpose::Server), (&mut self.server, Purpose::Client)] {
            *side = Side::with(Config::default(), Some(Proof::from_files(keys, role, remembered)?))?;
        }
        Ok(())
    }
}

/// The endpoint for all clients or for all servers, with its sessions.
pub(crate) struct Side {
    pub(crate) node: Node,
    /// The buffer for received datagrams. As in a real program, one buffer serves all records.
    inbound: Box<[u8; DATAGRAM_MAX]>,
}

/// An endpoint, with the data that its methods need as arguments.
pub(crate) struct Node {
    pub(crate) endpoint: Endpoint<Table, Role>,
    pub(crate) environment: Environment<Provider>,
    pub(crate) now: Instant,
    /// The pre-shared key, which is the same for all identities.
    pub(crate) key: [u8; 16],
    proof: Option<Proof>,
    outbound: Box<[u8; DATAGRAM_MAX]>,
}

/// A DTLS session of Tegmen's stack, at its client or at its server.
pub(crate) struct Session {
    side: Rc<RefCell<Side>>,
    path: Path,
    /// The PSK identity. It is [`IDENTITY`], unless the caller sets another identity before the handshake.
    pub(crate) identity: Cow<'static, str>,
    peer: Option<PeerId>,
    is_established: bool,
    is_resumed: bool,
    /// The state and the ticket with which a later client can resume this session; `None` if it cannot be resumed.
    kept: Option<(SessionState, Vec<u8>)>,
    /// The state and the ticket of the session that this client resumes; `None` for a full handshake.
    from: Option<(SessionState, Vec<u8>)>,
}

impl Stack for Ours {
    type Client = Session;
    type Server = Session;

    fn version(&self) -> String {
        format!("tegmen {}", env!("CARGO_PKG_VERSION"))
    }

    fn use_public_keys(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        self.prove(keys, false)
    }

    fn remember_chains(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        self.prove(keys, true)
    }

    fn use_resumption(&mut self, by: Resumption) -> Result<(), Failure> {
        if by != Resumption::Ticket {
            return Err(Failure::new("only tickets are measured"));
        }
        for side in [&self.client, &self.server] {
            let node = &mut side.borrow_mut().node;
            node.endpoint.roles.role.sessions.is_on.set(true);
            *node.endpoint.roles.role.sessions.keys.borrow_mut() = TicketKeys::draw(&mut node.environment.crypto);
        }
        Ok(())
    }

    fn again(&mut self, end: &Session) -> Result<Session, Failure> {
        let (session, ticket) = end.kept.as_ref().ok_or_else(|| Failure::new("no ticket"))?;
        let mut again = self.client()?;
        again.from = Some((copy_of(session), ticket.clone()));
        Ok(again)
    }

    fn client(&mut self) -> Result<Session, Failure> {
        self.clients = self.clients.wrapping_add(1);
        let Path { local, remote } = path_at_server(self.clients);
        Ok(Session::new(&self.client, Path { local: remote, remote: local }))
    }

    fn server(&mut self) -> Result<Session, Failure> {
        Ok(Session::new(&self.server, path_at_server(self.clients)))
    }
}

impl Session {
    /// Lets the session stay in its endpoint when this value is dropped. Returns the id of the session.
    pub(crate) fn keep(mut self) -> Result<PeerId, Failure> {
        self.peer.take().ok_or_else(|| Failure::new("no session"))
    }

    fn new(side: &Rc<RefCell<Side>>, path: Path) -> Self {
        let side = side.clone();
        let identity = Cow::Borrowed(IDENTITY);
        Self { side, path, identity, peer: None, is_established: false, is_resumed: false, kept: None, from: None }
    }
}

impl End for Session {
    fn handshake(&mut self, datagram: Option<&[u8]>, out: &mut Outbox) -> Result<(), Failure> {
        let Side { node, inbound } = &mut *self.side.borrow_mut();
        match datagram {
            None => {
                let connected = match &self.from {
                    None => node.with(|endpoint, cx| endpoint.connect(cx, &self.path)),
                    Some((session, ticket)) => node
                        .with(|endpoint, cx| endpoint.connect_again(cx, &self.path, session, Handle::Ticket(ticket))),
                };
                self.peer = Some(connected.map_err(failure)?);
            }
            Some(datagram) => {
                let mut records = Records::new(copied(datagram, &mut inbound[..])?);
                while let Some(noted) = node.handle(&self.path, &mut records) {
                    if node.on(noted, (&self.identity, &mut self.peer), out)? {
                        self.is_established = true;
                        (self.is_resumed, self.kept) = node.established(self.peer);
                    }
                }
            }
        }
        while let Some(noted) = node.poll() {
            self.is_established |= node.on(noted, (&self.identity, &mut self.peer), out)?;
        }
        Ok(())
    }

    fn is_established(&self) -> bool {
        self.is_established
    }

    fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    fn seal(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), Failure> {
        let peer = self.peer.ok_or_else(|| Failure::new("no session"))?;
        out.push(self.side.borrow_mut().node.seal(peer, payload)?);
        Ok(())
    }

    fn open(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<usize, Failure> {
        let Side { node, inbound } = &mut *self.side.borrow_mut();
        let bytes = node.open(&self.path, copied(datagram, &mut inbound[..])?)?;
        payload.get_mut(..bytes.len()).ok_or_else(too_long)?.copy_from_slice(bytes);
        Ok(bytes.len())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(peer) = self.peer {
            self.side.borrow_mut().node.endpoint.peers.remove(peer);
        }
    }
}

impl Side {
    pub(crate) fn new(config: Config) -> Result<Rc<RefCell<Self>>, Failure> {
        Self::with(config, None)
    }

    fn with(config: Config, proof: Option<Proof>) -> Result<Rc<RefCell<Self>>, Failure> {
        let mut environment = Environment::new(Provider::from_os().map_err(failure)?);
        let now = Instant::default();
        let keys = proof.as_ref().map_or_else(|| HostKeys::new(config.suites), |proof| proof.keys.clone());
        let role = PublicKeysRole { role: Resuming { role: Both, sessions: Memory::default() }, keys };
        let endpoint = Endpoint::with_roles(&mut environment.at(now), Table::new(Capacity::default()), config, role);
        let node = Node { endpoint, environment, now, key: KEY, proof, outbound: Box::new([0; DATAGRAM_MAX]) };
        Ok(Rc::new(RefCell::new(Self { node, inbound: Box::new([0; DATAGRAM_MAX]) })))
    }
}

impl Node {
    /// Calls `call` with the endpoint and a context for the current time.
    fn with<T>(&mut self, call: impl FnOnce(&mut Endpoint<Table, Role>, &mut Cx<'_, Provider>) -> T) -> T {
        call(&mut self.endpoint, &mut self.environment.at(self.now))
    }

    fn handle(&mut self, path: &Path, records: &mut Records<'_>) -> Option<Event> {
        self.endpoint.handle(&mut self.environment.at(self.now), path, records, &mut self.outbound[..])
    }

    fn poll(&mut self) -> Option<Event> {
        self.endpoint.poll(&mut self.environment.at(self.now), &mut self.outbound[..])
    }

    /// Returns true if the session has resumed an earlier session. Also returns the state and the ticket with which
    /// this session can be resumed later, or `None`.
    fn established(&mut self, peer: Option<PeerId>) -> (bool, Option<(SessionState, Vec<u8>)>) {
        let Some(peer) = peer.filter(|_| self.endpoint.roles.role.sessions.is_on.get()) else { return (false, None) };
        let kept = match self.endpoint.resumable(peer) {
            Some(Resumable::With { session, handle: Handle::Ticket(ticket), .. }) => Some((session, ticket.to_vec())),
            _ => None,
        };
        (self.endpoint.is_resumed(peer), kept)
    }

    /// Seals one record that contains `payload`. Returns the datagram.
    #[inline]
    pub(crate) fn seal(&mut self, peer: PeerId, payload: &[u8]) -> Result<&[u8], Failure> {
        let mut frame = Frame::new(&mut self.outbound[..], HEADROOM);
        frame.append(payload).map_err(failure)?;
        self.endpoint.seal(&mut self.environment.at(self.now), peer, &mut frame).map_err(failure)?;
        Ok(frame.finish())
    }

    /// Seals one record that contains `payload`, and writes the record into `place`. The length of `place` must be that
    /// of the record.
    #[inline]
    pub(crate) fn seal_into(&mut self, peer: PeerId, payload: &[u8], place: &mut [u8]) -> Result<(), Failure> {
        let mut frame = Frame::new(place, HEADROOM);
        frame.append(payload).map_err(failure)?;
        self.seal_frame(peer, &mut frame)
    }

    /// Seals the content of `frame` as one record, in place.
    #[inline]
    pub(crate) fn seal_frame(&mut self, peer: PeerId, frame: &mut Frame<'_>) -> Result<(), Failure> {
        self.endpoint.seal(&mut self.environment.at(self.now), peer, frame).map_err(failure)
    }

    /// Loads the sessions with these paths into the CPU caches.
    pub(crate) fn prefetch(&mut self, paths: &[Path]) {
        self.endpoint.peers.prefetch(paths.iter());
    }

    /// Opens the single record in `datagram`, which came over `path`. Returns its content.
    #[inline]
    pub(crate) fn open<'r>(&mut self, path: &Path, datagram: &'r mut [u8]) -> Result<&'r mut [u8], Failure> {
        let cx = &mut self.environment.at(self.now);
        match self.endpoint.handle(cx, path, &mut Records::new(datagram), &mut []) {
            Some(Event::Message { bytes, .. }) => Ok(bytes.of_mut(datagram)),
            _ => Err(Failure::new("the record was not opened")),
        }
    }

    /// Answers the endpoint's request for a verification or a signature. Returns the next event, or `None` if the
    /// endpoint requests something else.
    fn prove(&mut self, id: PeerId) -> Result<Option<Event>, Failure> {
        let Some(proof) = &self.proof else { return Ok(None) };
        let (content, signature);
        let answer = match self.endpoint.need(id) {
            Some(Need::VerifyPeer { content: shown, .. }) => {
                content = shown.to_vec();
                let verified = proof.verifier.verify(&content, proof.peer, None, SystemTime::now()).map_err(failure)?;
                Answer::Peer { public_key: verified.spki, principal: Principal(1) }
            }
            Some(Need::Sign { digest, .. }) => {
                signature = proof.signer.sign_digest(&digest).map_err(failure)?;
                Answer::Signature(&signature)
            }
            _ => return Ok(None),
        };
        Ok(self.endpoint.resume(&mut self.environment.at(self.now), id, answer).or(Some(Event::Alarm(id))))
    }

    /// Handles an event of the endpoint. Returns true if the session is now established.
    fn on(
        &mut self,
        event: Event,
        (name, peer): (&str, &mut Option<PeerId>),
        out: &mut Outbox,
    ) -> Result<bool, Failure> {
        match event {
            Event::Answer { len } | Event::Transmit { len, .. } => out.push(&self.outbound[..len.into()]),
            Event::Need(id) => {
                *peer = Some(id);
                if let Some(next) = self.prove(id)? {
                    return self.on(next, (name, peer), out);
                }
                let key = self.key;
                let answer = match self.endpoint.need(id) {
                    Some(Need::PskOfClient { identity }) if identity != name.as_bytes() => Answer::Unknown,
                    _ => Answer::Psk { identity: name.as_bytes(), key: &key, principal: Principal(1) },
                };
                if let Some(next) = self.with(|endpoint, cx| endpoint.resume(cx, id, answer)) {
                    return self.on(next, (name, peer), out);
                }
            }
            Event::Established(id) => {
                *peer = Some(id);
                return Ok(true);
            }
            Event::Closed { reason, .. } => return Err(failure(reason)),
            Event::Message { .. } | Event::Alarm(_) | Event::Moved(_) => {}
        }
        Ok(false)
    }
}

fn copy_of(session: &SessionState) -> SessionState {
    let SessionState { cipher_suite, principal, since, ref master } = *session;
    SessionState { cipher_suite, principal, since, master: Secret::new(*master.expose()) }
}

/// Copies the datagram to the beginning of `place`, because records are opened in place. Returns the copy.
fn copied<'p>(datagram: &[u8], place: &'p mut [u8]) -> Result<&'p mut [u8], Failure> {
    let place = place.get_mut(..datagram.len()).ok_or_else(too_long)?;
    place.copy_from_slice(datagram);
    Ok(place)
}

fn too_long() -> Failure {
    Failure::new("longer than the buffer")
}

/// Returns the path that the server has for the client with the number `node`. The first client has the number 1.
#[inline]
pub(crate) fn path_at_server(node: u32) -> Path {
    Path { local: address(SERVER), remote: address(node) }
}

/// Returns the address of the node with this number, which is below 2^24.
fn address(node: u32) -> Address {
    let [_, a, b, c] = node.to_be_bytes();
    std::net::SocketAddr::from(([10, a, b, c], 5684)).into()
}

const SERVER: u32 = 0;
