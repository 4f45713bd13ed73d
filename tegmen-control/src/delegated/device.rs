//! A device with delegated sessions: its answers to handshakes and to requests of its server, and its decisions on
//! rights.

use super::admitted::{Admitted, AdmittedConnections};
use super::error::DeviceError;
use super::scopes::Scopes;
use super::state_file::{REFUSED, StateFile};
use crate::delegation::ConnectionId;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tegmen::buf::Writer;
use tegmen::coap::{Code, Policy, Response};
use tegmen::dtls::SessionState;
use tegmen::identity::{Identity, Principal, Protection};
use tegmen_base::time::Instant;
use tegmen_delegation::{
    Connection, Device, DeviceKey, Due, EXPORTER, Go, Refused, Request as DeviceRequest, Resource, Resources, Status,
    Ticket,
};
use tegmen_host::clock;
use tegmen_host::credentials::{Credentials, FilePolicy, Held, KeyStore, KeyTicket, StoredKey};
use tegmen_host::delegate::{Delegate, Delegated, Proved};
use tegmen_host::exporter::Exported;
use tegmen_host::provider::HostCrypto;
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::request_uri::Path;
use tegmen_host::server::{Exporter, Request, ServerConfig, Session, SessionId};
use tegmen_store::clock::now_millis;
use tokio::sync::Notify;
use zeroize::Zeroizing;

/// Maximum number of sessions that the device's server has sent to the device and that have not ended.
const SESSIONS: usize = 64;
/// Maximum number of bytes of a ticket that another server has issued and that the device stores.
const HANDLE: usize = 1024;
/// Maximum number of characters of a DNS name.
const LONGEST_NAME: usize = 253;
/// The number by which the DTLS server names the device. The server has only this device, so each server_name in a
/// ClientHello selects this device.
const ITSELF: u32 = 1;
/// The name of the device's server, as it appears in the log and in rules.
const SERVER_NAME: &str = "delegation server";

/// The settings of a device.
#[derive(Debug)]
pub struct DeviceSettings {
    /// The name of the device. The device's server uses the same name for it.
    pub name: String,
    /// The device key that the operator brought to the device. The first start requires it. At a later start it may be
    /// `None`; if it is given, it is compared with the state.
    pub key: Option<DeviceKey>,
    /// The file of the durable state, which the first start creates. The file contains secrets.
    pub state: PathBuf,
    /// The scopes of the device, in the same order as in the configuration of the device at its server.
    pub scopes: Scopes,
}

/// A device with delegated sessions. All clones refer to the same device.
///
/// [`Self::configure`] makes a DTLS server the endpoint of the device, and [`Self::policy`] is the policy of this
/// server. [`Self::handle`] answers requests to the paths for which [`Self::has`] returns true. After these requests,
/// [`Self::run`] closes the sessions that have ended, and opens the sessions that the server requested.
#[derive(Clone)]
pub struct DelegatedDevice(pub(super) Arc<Inner>);

pub(super) struct Inner {
    name: String,
    scopes: Scopes,
    pub(super) credentials: Credentials,
    /// The principal of the device's server: the number that all sessions with this server have.
    server: Principal,
    /// Keeps the number `server` registered.
    _held: Option<Held>,
    state: Mutex<State>,
    /// The signal that [`DelegatedDevice::run`] has work, such as a session to close or to open.
    pub(super) work: Notify,
}

type OnHost = Device<StateFile, REFUSED, SESSIONS, HANDLE>;

/// The changing state of a device.
pub(super) struct State {
    pub(super) device: RefCell<OnHost>,
    crypto: HostCrypto,
    pub(super) admitted: AdmittedConnections,
    /// The last session with the device's server, and the keying material that this session exported. The keying
    /// material is `None` after an epoch has begun in the session.
    pub(super) server: Option<(SessionId, Option<Exported>)>,
    /// True if there may be sessions that must be closed.
    pub(super) has_ended: bool,
    /// The sessions that the device must open, each with the server_name that its ClientHello contains.
    pub(super) to_open: Vec<(Go, String)>,
    /// True if the operator was informed that the PSK identity of a server names another device or another epoch.
    is_reported: bool,
    /// The earliest time at which the next refused session is reported to the operator.
    next_report: Instant,
}

impl State {
    fn admit(&mut self, connection: Connection, expires: u32) -> (u32, ConnectionId) {
        let id = self.admitted.admit(Admitted { connection, expires });
        (id, ConnectionId { epoch: self.device.borrow().epoch(), number: connection.number })
    }

    /// Admits the peer of a session. Returns two values: the session with a new principal, and the name of the peer.
    /// The principal is the number that this device gives to the connection.
    fn delegated(&mut self, session: SessionState, expires: u32) -> Option<(SessionState, String)> {
        let (id, connection) = self.admit(Connection::of(session.principal)?, expires);
        Some((SessionState { principal: Principal(id), ..session }, format!("connection {connection}")))
    }

    /// Logs the reason why the device refuses the session of a peer. Logs at most one reason a second, because a peer
    /// can cause any number of refusals.
    fn report(&mut self, reason: Refused) {
        let now = clock::now();
        if now >= self.next_report {
            self.next_report = now.after_millis(1000);
            tracing::info!("delegation: the ticket of a peer is refused: {}", why(reason));
        }
    }

    /// Removes and returns the session of the connection `number`, which the device must open. The principal of the
    /// session is the number that the device itself gives to the connection.
    pub(super) fn take_to_open(&mut self, number: u32) -> Option<ToOpen> {
        let now = clock::now();
        let (session, handle) = {
            let device = &mut *self.device.borrow_mut();
            let (session, handle) = device.to_open(now, number)?;
            (session, Handed::of(handle))
        };
        let expires = self.device.borrow().expires(number)?;
        let (session, peer) = self.delegated(session, expires)?;
        Some(ToOpen { session, handle, peer })
    }
}

/// A session that the device opens with a peer. The principal of the session is the number that the device itself gives
/// to the connection with this peer.
pub(super) struct ToOpen {
    pub(super) session: SessionState,
    pub(super) handle: Handed,
    /// The name of the peer.
    pub(super) peer: String,
}

/// The ticket or the session id with which a session is resumed.
pub(super) struct Handed {
    pub(super) is_ticket: bool,
    pub(super) bytes: Vec<u8>,
}

impl Handed {
    fn of(handle: tegmen::dtls::Handle<'_>) -> Self {
        match handle {
            tegmen::dtls::Handle::Ticket(bytes) => Self { is_ticket: true, bytes: bytes.to_vec() },
            tegmen::dtls::Handle::Id(bytes) => Self { is_ticket: false, bytes: bytes.to_vec() },
        }
    }
}

/// Returns the reason as text for the operator. The peer gets the same alert for all reasons.
const fn why(reason: Refused) -> &'static str {
    match reason {
        Refused::Unknown => "it is not authentic, or of another device",
        Refused::Epoch => {
            "it is of another epoch; the peer gets another ticket when it returns to the delegation server"
        }
        Refused::Revoked => "the delegation server revoked the connection",
        Refused::Expired => "the delegation has ended; the peer authenticates itself at the delegation server again",
        Refused::Early => "it is from the future: correct the clock of this system or of the delegation server",
        Refused::NoTime => "the device does not know the time yet",
    }
}

fn seconds() -> u32 {
    u32::try_from(now_millis() / 1000).unwrap_or(u32::MAX)
}

impl DelegatedDevice {
    /// Opens a device. The first start creates its state. `credentials` are the credentials of the DTLS server that is
    /// the endpoint of the device.
    ///
    /// # Errors
    /// [`DeviceError`].
    pub fn open(settings: DeviceSettings, credentials: Credentials) -> Result<Self, DeviceError> {
        let DeviceSettings { name, key, state: file, scopes } = settings;
        let device = Device::load(StateFile::open(&file, &name, key.as_ref())?);
        let mut device = device.map_err(|_| DeviceError::TooManyRefused(file.display().to_string()))?;
        device.set_time(clock::now(), seconds());
        let state = State {
            device: RefCell::new(device),
            crypto: HostCrypto::from_os().map_err(DeviceError::System)?,
            admitted: AdmittedConnections::default(),
            server: None,
            has_ended: false,
            to_open: Vec::new(),
            is_reported: false,
            next_report: Instant::AT_ONCE,
        };
        let server = credentials.learn_stored(SERVER_NAME, None, Some(&[]));
        let _held = credentials.hold(server);
        let (state, work) = (Mutex::new(state), Notify::new());
        Ok(Self(Arc::new(Inner { name, scopes, credentials, server, _held, state, work })))
    }

    /// Returns the status of the device, as it is sent to the device's server.
    pub fn status(&self) -> Status {
        self.state().device.borrow().status()
    }

    /// Makes the DTLS server of `config` the endpoint of the device. In its handshakes this DTLS server asks the device
    /// for delegated sessions, and for the key of the device's own server, the delegation server.
    pub fn configure(&self, config: &mut ServerConfig) {
        config.delegate = Some(Arc::new(self.clone()));
        config.trust.key_store = Some(Arc::new(self.clone()));
        let device = self.clone();
        let take = move |session: &Session, exported| match device.connection_of(session.principal) {
            Some(id) => device.begin_connection(id),
            None if device.is_server_principal(session.principal) => device.begin_session(session.id, exported),
            None => {}
        };
        config.exporter = Some(Exporter { label: EXPORTER, take: Arc::new(take) });
    }

    /// Returns the policy. A delegated peer has the rights of its scope. The delegation server may send requests to the
    /// resources of the delegation protocol, and to no other resource. Any other peer has the rights that the
    /// credentials of the DTLS server give it. Requests over plain CoAP are allowed if `plain_allowed` is true.
    pub fn policy(&self, plain_allowed: bool) -> impl Policy + Send + Sync + 'static {
        let others = FilePolicy { credentials: self.0.credentials.clone(), plain_allowed };
        ScopePolicy { device: self.clone(), others }
    }

    /// Returns true if the device has this path. The path begins without a slash.
    pub fn has(&self, path: &str) -> bool {
        resource(path).is_some()
    }

    /// Answers a request of the device's server.
    ///
    /// # Errors
    /// The code of an error response, if the sender is not the device's server, or the request cannot be answered.
    pub fn handle(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let resource = resource(request.path()).ok_or(Code::NOT_FOUND)?;
        if !self.is_server(request.identity()) {
            return Err(Code::FORBIDDEN);
        }
        let server_name = match DeviceRequest::read(resource, request.message().payload()) {
            Ok(DeviceRequest::Go { server_name, .. }) => name_of(server_name).ok_or(Code::BAD_REQUEST)?,
            _ => "",
        };
        let (answered, due) = {
            let state = &mut *self.state();
            let State { device, server, .. } = state;
            let exported = server.as_ref().and_then(|(_, exported)| exported.as_ref());
            // A move would leave a copy of the bytes in the field.
            let exported = exported.map(|exported| Exported::new(*exported.expose()));
            let mut resources = Resources { device, exported, now: clock::now(), due: None };
            let answered = resources.answer::<HostCrypto>(resource, request.message(), response);
            let due = resources.due;
            if let Some((_, exported)) = server.as_mut().filter(|_| resources.exported.is_none()) {
                *exported = None;
            }
            if answered == Err(Code::INTERNAL_SERVER_ERROR)
                && let Some(problem) = device.borrow().memory().problem()
            {
                request.because(format!("the state of the device is not kept: {problem}"));
            }
            state.is_reported = false;
            match due {
                Some(Due::Close(number)) => state.admitted.end(number),
                Some(Due::CloseAll) => state.admitted.end_all(),
                Some(Due::Open(go)) => state.to_open.push((go, server_name.to_owned())),
                None => {}
            }
            (answered, due)
        };
        match due {
            Some(Due::Close(number)) => tracing::info!("delegation: the server revoked the connection {number}"),
            Some(Due::CloseAll) => tracing::info!("delegation: epoch {} begins", self.status().epoch),
            Some(Due::Open(_)) | None => {}
        }
        self.0.work.notify_one();
        answered
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if this is the principal of the device's server.
    pub(super) fn is_server_principal(&self, principal: Principal) -> bool {
        principal == self.0.server
    }

    /// Returns the number by which the device names the connection of the peer with this principal. Returns `None` if
    /// the peer is no delegated peer. The connection may have ended already.
    pub(super) fn connection_of(&self, principal: Principal) -> Option<u32> {
        self.0.credentials.delegated(principal).and_then(|(device, id)| (device == ITSELF).then_some(id))
    }

    /// Returns the principal that the policy uses for the requests of the delegated peer `peer`. `id` contains the
    /// number of the connection at this device.
    pub(super) fn principal_of(&self, peer: &str, id: Principal) -> Principal {
        self.0.credentials.delegated_as(peer, ITSELF, id.0)
    }

    fn is_server(&self, identity: &Identity) -> bool {
        identity.protection == Protection::Dtls && self.is_server_principal(identity.principal)
    }

    /// Begins a connection whose handshake is complete. If the connection has ended since the ClientHello, its session
    /// will be closed.
    fn begin_connection(&self, id: u32) {
        let state = &mut *self.state();
        if state.admitted.get(id).is_none() {
            state.has_ended = true;
            self.0.work.notify_one();
        }
    }

    /// Begins a session with the device's server. An earlier session with this server will be closed. `exported` is the
    /// keying material of the new session.
    fn begin_session(&self, id: SessionId, exported: Exported) {
        let state = &mut *self.state();
        state.has_ended |= state.server.replace((id, Some(exported))).is_some();
        self.0.work.notify_one();
    }

    /// Returns true if the scope of a delegated peer allows a request.
    fn allows(&self, id: u32, request: &tegmen::coap::Request<'_>) -> bool {
        let admitted = {
            let state = &mut *self.state();
            let time = state.device.borrow().time(clock::now());
            state.admitted.get(id).filter(|admitted| time.is_some_and(|time| time < admitted.expires))
        };
        let Some(admitted) = admitted else { return false };
        Path::of(&request.message)
            .is_ok_and(|path| self.0.scopes.allows(admitted.connection.scope, request.message.code(), path.bytes()))
    }

    /// Returns the key of a session with the device's server. `identity` is the PSK identity that the server sent: name
    /// of the device, epoch and random digits. Returns `None` if the identity has the name of another device.
    fn key_for(&self, identity: &str) -> Option<Zeroizing<Vec<u8>>> {
        let state = &mut *self.state();
        let epoch = state.device.borrow().epoch();
        let mut parts = identity.split(';');
        let (name, meant) = (parts.next(), parts.next().and_then(|meant| meant.parse::<u16>().ok()));
        let is_ours = name == Some(&self.0.name);
        if (!is_ours || meant != Some(epoch)) && !std::mem::replace(&mut state.is_reported, true) {
            let (own, identity) = (&self.0.name, identity.escape_debug());
            tracing::warn!(
                "delegation: somebody comes as the server of {identity}; this is {own} in epoch {epoch}: if the server does not reach \
                 the device, correct its name or address, or imprint it again"
            );
        }
        let psk = state.device.borrow().psk::<HostCrypto>(identity.as_bytes());
        is_ours.then(|| Zeroizing::new(psk.expose().to_vec()))
    }
}

/// Returns the server_name of a request as text. An empty name is valid. Returns `None` if the name is too long, or has
/// a character that is not allowed in a DNS name.
fn name_of(server_name: &[u8]) -> Option<&str> {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    let name = std::str::from_utf8(server_name).ok()?;
    (name.len() <= LONGEST_NAME && server_name.iter().all(is_of_name)).then_some(name)
}

fn resource(path: &str) -> Option<Resource> {
    Resource::ALL.into_iter().find(|resource| resource.path() == path)
}

/// The policy of the device: scopes for delegated peers, and credentials for other peers.
struct ScopePolicy {
    device: DelegatedDevice,
    others: FilePolicy,
}

impl Policy for ScopePolicy {
    fn decide(&self, request: &tegmen::coap::Request<'_>) -> Option<bool> {
        let identity = &request.identity;
        if self.device.is_server(identity) {
            // Its other requests have no rights.
            return Some(Resource::ALL.into_iter().any(|resource| request.message.path_is(resource.path())));
        }
        match self.device.connection_of(identity.principal) {
            Some(id) => Some(self.device.allows(id, request)),
            None => self.others.decide(request),
        }
    }
}

/// Opens the tickets and sessions that the device's server sealed. The device has no certificate, and gives no tickets.
impl Delegate for DelegatedDevice {
    fn device(&self, _: &[u8]) -> Option<u32> {
        Some(ITSELF)
    }

    fn credentials(&self, _: u32) -> Option<Arc<PublicKeys>> {
        None
    }

    fn seal(&self, _: u32, _: Option<Proved<'_>>, _: &SessionState, _: &mut Writer<'_>) -> Option<u32> {
        None
    }

    fn open(&self, _: u32, ticket: &[u8]) -> Option<Delegated> {
        let state = &mut *self.state();
        let opened = state.device.borrow_mut().open(clock::now(), &mut state.crypto, Ticket(ticket));
        let delegation = opened.inspect_err(|reason| state.report(*reason)).ok()?;
        let (session, peer) = state.delegated(delegation.session, delegation.expires)?;
        Some(Delegated { session, peer, renew: false })
    }

    fn find(&self, _: u32, id: &[u8]) -> Option<Delegated> {
        let state = &mut *self.state();
        let session = state.device.borrow_mut().find(clock::now(), id)?;
        let expires = state.device.borrow().expires(Connection::of(session.principal)?.number)?;
        let (session, peer) = state.delegated(session, expires)?;
        Some(Delegated { session, peer, renew: false })
    }

    fn remember(&self, _: u32, _: Option<Proved<'_>>, _: &[u8], _: &SessionState) {}
}

impl KeyStore for DelegatedDevice {
    fn find(&self, identity: &str, ticket: KeyTicket) {
        let name = Some(SERVER_NAME.to_owned());
        let stored = |key| StoredKey { name, key, previous: None, allow: Some(Vec::new()) };
        ticket.answer(self.key_for(identity).map(stored));
    }
}
