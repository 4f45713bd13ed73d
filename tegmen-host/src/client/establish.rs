//! The handshake of a client session, and a further handshake if the server no longer knows the session.

use super::connection::Connection;
use super::resumable::Offer;
use super::resumption;
use super::serving::MayServe;
use super::{ClientConfig, ClientError, Request, Response, Role, Session, Table, transfer};
use crate::clock;
use crate::provider::HostCrypto;
use crate::public_keys::PublicKeys;
use crate::resumption::ended_in_alert;
use crate::slab::Capacity;
use std::io;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::crypto::Crypto as _;
use tegmen::cx::Environment;
use tegmen::dtls::{Extended, Handle, Keys as _, Rank, Resuming};
use tegmen::endpoint::Endpoint;
use tegmen::time::Instant;

/// The time limit of one handshake when the client reconnects. If the server is not running yet, the client begins
/// another handshake after this time, and the server may answer the new handshake.
const ATTEMPT: Duration = Duration::from_secs(7);
/// The maximum numbers of peers and handshakes of an endpoint.
const CAPACITY: Capacity = Capacity { peers: 1 << 20, handshakes: 4096 };
/// Maximum number of sessions in which the client sends one request again.
const MOST_PER_REQUEST: u32 = 3;

/// The pauses between attempts. Each pause is random, up to a limit that doubles from 1 to 8 seconds, so that the
/// clients of a fleet do not reconnect at the same time.
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
        session.with(|connection| connection.io.environment.crypto.random(&mut random));
        let part = u32::from_ne_bytes(random);
        tokio::time::sleep(self.most.mul_f64(f64::from(part) / f64::from(u32::MAX))).await;
        self.most = (self.most * 2).min(Self::LONGEST);
    }
}

pub(super) fn no_room() -> ClientError {
    ClientError::System(io::Error::other("the table of peers is full"))
}

/// Returns a DTLS endpoint of the crate `tegmen`, without peers.
pub(super) fn new_endpoint(
    environment: &mut Environment<HostCrypto>,
    config: &ClientConfig,
    role: MayServe,
) -> Endpoint<Table, Role> {
    let dtls = config.dtls;
    let keys = config.trust.public_keys.clone().unwrap_or_else(|| PublicKeys::new(dtls.suites));
    let state = &config.state;
    let takes_tickets = state.resume.is_some() || state.hand_over || state.handed_over.is_some();
    let role = Resuming { role, sessions: resumption::AcceptsTickets(takes_tickets) };
    let role = tegmen::dtls::PublicKeys { role: Extended::with(role, &dtls), keys };
    Endpoint::with_roles(&mut environment.at(clock::now()), Table::with_blocks(CAPACITY), dtls, role)
}

impl Connection<'_> {
    /// Restores the session that an earlier process stored, if there is one.
    ///
    /// # Errors
    /// [`ClientError`], if the file of the session cannot be used.
    pub(super) fn restore(&mut self) -> Result<(), ClientError> {
        let Self { io, entry } = self;
        let Some(kept) = &mut entry.kept else { return Ok(()) };
        let Some((session, lease_end)) = kept.take(&mut io.environment.crypto, entry.path.local.port)? else {
            return Ok(());
        };
        let mut cx = io.environment.at(clock::now());
        let Some(peer) = io.node.endpoint.restore_session(&mut cx, &entry.path, entry.principal, &session) else {
            return Ok(());
        };
        io.node.endpoint.lease_session(peer, lease_end);
        self.talk_to(peer);
        self.entry.established = true;
        Ok(())
    }

    /// Begins a session in clear.
    pub(super) fn begin_plain(&mut self) -> Result<(), ClientError> {
        let Self { io, entry } = self;
        let mut cx = io.environment.at(clock::now());
        let peer = io.node.endpoint.plain(&mut cx, &entry.path, Rank::Ours).map_err(|_| no_room())?;
        self.talk_to(peer);
        self.entry.established = true;
        Ok(())
    }

    /// Removes the peer and the state of the previous session, and sends a ClientHello.
    fn hello(&mut self, offer: Option<&Offer>, handshake_timeout: Duration) -> Result<(), ClientError> {
        self.leave_peer();
        self.entry.handshake_timeout = handshake_timeout;
        self.send_hello(offer)
    }

    /// Begins a handshake with a ClientHello. If a handshake with the server is in progress, the new handshake replaces
    /// it.
    pub(super) fn send_hello(&mut self, offer: Option<&Offer>) -> Result<(), ClientError> {
        let Self { io, entry } = self;
        if io.is_shut() {
            return Err(ClientError::Closed { remote: entry.remote });
        }
        let (endpoint, path) = (&mut io.node.endpoint, &entry.path);
        endpoint.limit_mtu(entry.mtu);
        let now = clock::now();
        let mut cx = io.environment.at(now);
        let connected = match offer {
            Some((session, true, ticket)) => endpoint.connect_again(&mut cx, path, session, Handle::Ticket(ticket)),
            Some((session, false, id)) => endpoint.connect_again(&mut cx, path, session, Handle::Id(id)),
            None => endpoint.connect(&mut cx, path),
        };
        let peer = connected.map_err(|_| no_room())?;
        let name = entry.config.trust.public_keys.as_ref().map_or(&[][..], |keys| keys.server_name());
        endpoint.limit_handshake(peer, name, now.after(entry.handshake_timeout)).map_err(|_| no_room())?;
        self.talk_to(peer);
        self.io.is_due = true;
        Ok(())
    }
}

impl Session {
    /// Begins a session. If there is a ticket or a session id, first tries to resume the earlier session. If the server
    /// ends the handshake of this attempt, or does not answer, makes a full handshake.
    pub(super) async fn establish(&self, timeout: Duration) -> Result<(), ClientError> {
        if let Some(handed_over) = &self.config().state.handed_over {
            return self.resume_only(&handed_over.offer(), timeout).await;
        }
        let offer = self.with(|connection| {
            let principal = connection.entry.principal;
            connection.entry.resumption.as_ref()?.offer(principal)
        });
        if let Some(offer) = offer {
            let timeout = timeout / 3;
            self.with(|connection| connection.hello(Some(&offer), timeout))?;
            let done = self.handshake(timeout).await;
            let closed = self.with(|connection| connection.entry.closed);
            match done {
                Err(error) if closed.is_none() && !error.is_silence() => return Err(error),
                Err(_) => {}
                done => return done,
            }
            // RFC 5246, section 7.2.2: a session that ended in a fatal alert is not resumed.
            if closed.is_some_and(ended_in_alert) {
                self.with(|connection| match &mut connection.entry.resumption {
                    Some(store) => store.forget(),
                    None => Ok(()),
                })?;
            }
        }
        self.with(|connection| connection.hello(None, timeout))?;
        self.handshake(timeout).await
    }

    /// Resumes a session that another client handed over. If the server makes a full handshake instead, ends the new
    /// session and returns an error.
    async fn resume_only(&self, offer: &Offer, timeout: Duration) -> Result<(), ClientError> {
        self.with(|connection| connection.hello(Some(offer), timeout))?;
        self.handshake(timeout).await?;
        if self.is_resumed() {
            return Ok(());
        }
        self.with(|connection| connection.close());
        let detail = "the server did not resume the session that was handed over".to_owned();
        Err(ClientError::Handshake { remote: self.remote(), detail })
    }

    /// True if the session in which [`Session::reconnects`] had the value `since` has ended, or was replaced by a new
    /// session.
    pub(super) fn was_lost(&self, since: u32) -> bool {
        self.with(|connection| connection.is_over() || connection.entry.reconnects != since)
    }

    /// True if a request that failed with `error` can be sent again. `since` is the value of [`Session::reconnects`]
    /// when the request was sent. If the session over which it was sent has ended, the request needs a new session.
    pub(super) fn may_try_again(&self, error: &ClientError, since: u32) -> bool {
        let is_closed = matches!(error, ClientError::Closed { .. });
        self.config().recovery.reconnect && !is_closed && (self.was_lost(since) || error.is_passing())
    }

    /// Replaces a session that has ended by a new session. There are random pauses between the attempts. If several
    /// requests need the new session, one of them makes the attempts, and the others wait.
    ///
    /// # Errors
    /// The error of the first attempt that ends after `until`. An error that a further attempt cannot fix is returned
    /// at once.
    pub(super) async fn reconnect(&self, until: Instant) -> Result<(), ClientError> {
        let _one = self.0.renewal.lock().await;
        let is_over = self.with(|connection| {
            if connection.entry.is_shut {
                return Err(ClientError::Closed { remote: connection.entry.remote });
            }
            let is_over = connection.is_over();
            if is_over {
                connection.forget_session();
            }
            Ok(is_over)
        })?;
        if !is_over {
            return Ok(());
        }
        let mut backoff = Backoff::new();
        loop {
            backoff.pause(self).await;
            match self.establish(self.config().dtls.handshake_timeout.min(ATTEMPT)).await {
                Ok(()) => {
                    return self.with(|connection| {
                        connection.entry.reconnects += 1;
                        connection.entry.places.wake_first();
                        connection.keep_session()
                    });
                }
                Err(error) if !error.is_passing() || clock::now() >= until => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// Does the same as [`transfer::request`]. If the session ends, or the server does not know the session, sends the
    /// request again in a new session. But a request that must not be executed twice is not sent again.
    pub(super) async fn request_again(&self, request: &Request<'_>) -> Result<Response, ClientError> {
        let reconnect = self.config().recovery.reconnect;
        let until = clock::now().after(self.config().coap.timeout);
        let mut attempts = 0;
        loop {
            // Nothing of this request was sent yet, or it may be sent again.
            if reconnect && self.with(|connection| connection.is_over()) {
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

/// True if executing a request of this method twice has the same effect as once (RFC 7252, section 5.1; RFC 8132).
pub(super) fn is_idempotent(method: Code) -> bool {
    matches!(method, Code::GET | Code::PUT | Code::DELETE | Code::FETCH | Code::IPATCH)
}
