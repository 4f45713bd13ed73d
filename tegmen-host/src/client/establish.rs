//! The session of a client: its handshake, and another handshake if the server does not know the session any more.

use super::connection::Connection;
use super::persistence::PersistentSession;
use super::resumption::{self, Offer, ResumptionStore};
use super::{ClientConfig, ClientError, Request, Response, Role, Session, Table, transfer};
use crate::clock;
use crate::provider::HostCrypto;
use crate::public_keys::PublicKeys;
use std::io;
use std::time::Duration;
use tegmen::address::Path;
use tegmen::coap::Code;
use tegmen::counters::Counters;
use tegmen::crypto::Crypto as _;
use tegmen::cx::Cx;
use tegmen::dtls::resumption::Handle;
use tegmen::dtls::roles::{ClientOnly, Extended, Resuming};
use tegmen::dtls::{Config, Fatal};
use tegmen::endpoint::Endpoint;
use tegmen::identity::{PeerId, Principal};
use tegmen::time::Instant;

/// Time limit of one handshake of a reconnection: a server that starts meanwhile is found by the next one.
const ATTEMPT: Duration = Duration::from_secs(7);
/// Sessions that one request may begin.
const MOST_PER_REQUEST: u32 = 3;

/// The pauses between attempts: each is random, up to a limit that doubles from 1 to 8 seconds, so that a fleet does not
/// come in one burst.
pub(super) struct Backoff {
    most: Duration,
}

impl Backoff {
    const LONGEST: Duration = Duration::from_secs(8);

    pub(super) const fn new() -> Self {
        Self { most: Duration::from_secs(1) }
    }

    pub(super) async fn pause(&mut self, session: &Session) {
        let mut random = [0; 4];
        session.lock().crypto.random(&mut random);
        let part = u32::from_ne_bytes(random);
        tokio::time::sleep(self.most.mul_f64(f64::from(part) / f64::from(u32::MAX))).await;
        self.most = (self.most * 2).min(Self::LONGEST);
    }
}

pub(super) fn no_room() -> ClientError {
    ClientError::System(io::Error::other("no room for a peer"))
}

/// Restores the session of an earlier process, if there is one: the peer whose session continues.
///
/// # Errors
/// [`ClientError`], if the file of the session cannot be used.
pub(super) fn restore(
    endpoint: &mut Endpoint<Table, Role>,
    cx: &mut Cx<'_, HostCrypto>,
    path: &Path,
    kept: Option<&mut PersistentSession>,
) -> Result<Option<PeerId>, ClientError> {
    let Some(kept) = kept else { return Ok(None) };
    let Some((session, lease_end)) = kept.take(cx.crypto, path.local.port)? else { return Ok(None) };
    let Ok(peer) = endpoint.restore_session(cx, path, Principal(0), &session) else { return Ok(None) };
    endpoint.lease_session(peer, lease_end);
    Ok(Some(peer))
}

/// An endpoint without peers.
pub(super) fn new_endpoint(
    crypto: &mut HostCrypto,
    counters: &mut Counters,
    config: &ClientConfig,
    dtls: Config,
) -> Endpoint<Table, Role> {
    let keys = config.trust.public_keys.clone().unwrap_or_else(|| PublicKeys::new(dtls.suites));
    let role = Resuming { role: ClientOnly, sessions: resumption::AcceptsTickets(config.state.resume.is_some()) };
    let role = tegmen::dtls::roles::PublicKeys { role: Extended::with(role, &dtls), keys };
    Endpoint::with_roles(&mut Cx { now: clock::now(), crypto, counters }, Table::new(), dtls, role)
}

impl Connection {
    /// Sends a ClientHello from a new endpoint. The state of the session before is discarded.
    fn hello(&mut self, offer: Option<&Offer>, handshake_timeout: Duration) -> Result<(), ClientError> {
        let dtls = Config { handshake_timeout, mtu: self.mtu, ..self.config.dtls };
        let endpoint = new_endpoint(&mut self.crypto, &mut self.counters, &self.config, dtls);
        self.replace_endpoint(endpoint);
        let mut cx = Cx { now: clock::now(), crypto: &mut self.crypto, counters: &mut self.counters };
        let connected = match offer {
            Some((session, true, ticket)) => {
                self.node.endpoint.connect_again(&mut cx, &self.path, session, Handle::Ticket(ticket))
            }
            Some((session, false, id)) => {
                self.node.endpoint.connect_again(&mut cx, &self.path, session, Handle::Id(id))
            }
            None => self.node.endpoint.connect(&mut cx, &self.path),
        };
        self.talk_to(connected.map_err(|_| no_room())?);
        self.run_due();
        self.rearm(self.next_wake());
        Ok(())
    }
}

impl Session {
    /// Begins a session, with a resumed handshake if there is something to resume. Where the server ends that or does not
    /// answer it, a full handshake follows.
    pub(super) async fn establish(&self, timeout: Duration) -> Result<(), ClientError> {
        let offer = self.lock().resumption.as_ref().and_then(ResumptionStore::offer);
        if let Some(offer) = offer {
            let timeout = timeout / 3;
            self.lock().hello(Some(&offer), timeout)?;
            let done = self.handshake(timeout).await;
            let mut guard = self.lock();
            let connection = &mut *guard;
            match done {
                Err(error) if connection.closed.is_none() && !error.is_silence() => return Err(error),
                Err(_) => {}
                done => return done,
            }
            // RFC 5246, section 7.2.2: a session that ended in a fatal alert is not resumed.
            if let (Some(Fatal::Alert(_)), Some(store)) = (connection.closed, &mut connection.resumption) {
                store.forget()?;
            }
        }
        self.lock().hello(None, timeout)?;
        self.handshake(timeout).await
    }

    /// True if the session is over, or another one than the one with the number `since` is there.
    pub(super) fn was_lost(&self, since: u32) -> bool {
        let connection = self.lock();
        connection.is_over() || connection.reconnects != since
    }

    /// True if what failed with `error` in the session with the number `since` can be tried again, in another session if
    /// there was one.
    pub(super) fn may_try_again(&self, error: &ClientError, since: u32) -> bool {
        let is_closed = matches!(error, ClientError::Closed { .. });
        self.config().recovery.reconnect && !is_closed && (self.was_lost(since) || error.is_passing())
    }

    /// Begins another session in the place of one that is over. Attempts follow one another with random pauses. If several
    /// requests need it, one of them does it and the others wait.
    ///
    /// # Errors
    /// That of the attempt that ends behind `until`, or the first that another attempt does not mend.
    pub(super) async fn reconnect(&self, until: Instant) -> Result<(), ClientError> {
        let _one = self.shared().renewal.lock().await;
        {
            let mut connection = self.lock();
            if connection.socket.is_none() {
                return Err(ClientError::Closed { remote: connection.remote });
            }
            if !connection.is_over() {
                return Ok(());
            }
            connection.forget_session();
        }
        let mut backoff = Backoff::new();
        loop {
            backoff.pause(self).await;
            match self.establish(self.config().dtls.handshake_timeout.min(ATTEMPT)).await {
                Ok(()) => {
                    let mut connection = self.lock();
                    connection.reconnects += 1;
                    connection.places.wake_first();
                    return connection.keep_session();
                }
                Err(error) if !error.is_passing() || clock::now() >= until => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// As [`transfer::request`], again in another session where one ends or is unknown to the server, if the request
    /// may be executed twice.
    pub(super) async fn request_again(&self, request: &Request<'_>) -> Result<Response, ClientError> {
        let reconnect = self.config().recovery.reconnect;
        let until = clock::now().after(self.config().coap.timeout);
        let mut attempts = 0;
        loop {
            // Nothing of this request was sent yet, or it may be sent again.
            if reconnect && self.lock().is_over() {
                self.reconnect(until).await?;
            }
            let since = self.reconnects();
            attempts += 1;
            match transfer::request(self, request).await {
                Err(error)
                    if reconnect
                        && self.was_lost(since)
                        && !matches!(error, ClientError::Closed { .. })
                        && is_idempotent(request.method)
                        && attempts <= MOST_PER_REQUEST => {}
                done => return done,
            }
        }
    }
}

/// True if a request of this method has the same effect once and twice (RFC 7252, section 5.1; RFC 8132).
fn is_idempotent(method: Code) -> bool {
    matches!(method, Code::GET | Code::PUT | Code::DELETE | Code::FETCH | Code::IPATCH)
}
