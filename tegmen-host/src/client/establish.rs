//! The session of a client: its handshake, and another handshake if the server does not know the session any more.

use super::persistence::PersistentSession;
use super::resumption::{self, Offer, ResumptionStore};
use super::{Client, ClientConfig, ClientError, Role, Table};
use crate::clock;
use crate::provider::HostCrypto;
use crate::public_keys::PublicKeys;
use std::io;
use std::time::Duration;
use tegmen::address::Path;
use tegmen::coap::{Code, Exchanges};
use tegmen::counters::Counters;
use tegmen::crypto::Crypto as _;
use tegmen::cx::Cx;
use tegmen::dtls::resumption::Handle;
use tegmen::dtls::roles::{ClientOnly, Extended, Resuming};
use tegmen::dtls::{Config, Fatal};
use tegmen::endpoint::{Endpoint, Peers as _};
use tegmen::identity::{PeerId, Principal, Protection};
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

    pub(super) async fn pause(&mut self, crypto: &mut HostCrypto) {
        let mut random = [0; 4];
        crypto.random(&mut random);
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
    let keys = config.public_keys.clone().unwrap_or_else(|| PublicKeys::new(dtls.suites));
    let role = Resuming { role: ClientOnly, sessions: resumption::AcceptsTickets(config.resume.is_some()) };
    let role = tegmen::dtls::roles::PublicKeys { role: Extended::with(role, &dtls), keys };
    Endpoint::with_roles(&mut Cx { now: clock::now(), crypto, counters }, Table::new(), dtls, role)
}

impl Client {
    /// Talks to `peer` of the endpoint from now on.
    pub(super) fn talk_to(&mut self, peer: PeerId) {
        self.peer = peer;
        let mut first_id = [0; 2];
        self.crypto.random(&mut first_id);
        if let Some(exchanges) = self.endpoint.peers.attached(peer) {
            **exchanges = Exchanges::new(u16::from_ne_bytes(first_id));
        }
    }

    /// Begins a session, with a resumed handshake if there is something to resume. Where the server ends that or does not
    /// answer it, a full handshake follows.
    pub(super) async fn establish(&mut self, timeout: Duration) -> Result<(), ClientError> {
        if let Some(offer) = self.resumption.as_ref().and_then(ResumptionStore::offer) {
            let timeout = timeout / 3;
            self.hello(Some(&offer), timeout)?;
            match self.handshake(timeout).await {
                Err(error) if self.closed.is_none() && !error.is_silence() => return Err(error),
                Err(_) => {}
                done => return done,
            }
            // RFC 5246, section 7.2.2: a session that ended in a fatal alert is not resumed.
            if let (Some(Fatal::Alert(_)), Some(store)) = (self.closed, &mut self.resumption) {
                store.forget()?;
            }
        }
        self.hello(None, timeout)?;
        self.handshake(timeout).await
    }

    /// Sends a ClientHello from a new endpoint. The state of the session before is discarded.
    fn hello(&mut self, offer: Option<&Offer>, handshake_timeout: Duration) -> Result<(), ClientError> {
        let dtls = Config { handshake_timeout, ..self.config.dtls };
        self.endpoint = new_endpoint(&mut self.crypto, &mut self.counters, &self.config, dtls);
        let mut cx = Cx { now: clock::now(), crypto: &mut self.crypto, counters: &mut self.counters };
        let connected = match offer {
            Some((session, true, ticket)) => {
                self.endpoint.connect_again(&mut cx, &self.path, session, Handle::Ticket(ticket))
            }
            Some((session, false, id)) => self.endpoint.connect_again(&mut cx, &self.path, session, Handle::Id(id)),
            None => self.endpoint.connect(&mut cx, &self.path),
        };
        self.talk_to(connected.map_err(|_| no_room())?);
        (self.established, self.closed, self.refusal) = (false, None, None);
        self.is_answered();
        self.unread.clear();
        if let Some(oscore) = &mut self.oscore {
            oscore.forget_all();
        }
        Ok(())
    }

    /// True if there is no session any more, or the server answers nothing in it.
    pub(super) fn is_over(&self) -> bool {
        self.is_gone() || self.protection == Protection::Dtls && self.is_silent()
    }

    /// True if there is no session any more.
    fn is_gone(&self) -> bool {
        self.closed.is_some() || !self.established
    }

    /// True if the server did not answer a confirmable message and its first retransmissions.
    pub(super) fn is_silent(&self) -> bool {
        clock::now() >= self.silent_at
    }

    /// True if what failed with `error` can be tried again, in another session if there was one.
    pub(super) fn may_try_again(&self, error: &ClientError) -> bool {
        self.config.reconnect && (self.is_over() || error.is_passing())
    }

    /// Begins another session in the place of one that is over. Attempts follow one another with random pauses.
    ///
    /// # Errors
    /// That of the attempt that ends behind `until`, or the first that another attempt does not mend.
    pub(super) async fn reconnect(&mut self, until: Instant) -> Result<(), ClientError> {
        self.forget_session();
        let mut backoff = Backoff::new();
        loop {
            backoff.pause(&mut self.crypto).await;
            match self.establish(self.config.dtls.handshake_timeout.min(ATTEMPT)).await {
                Ok(()) => {
                    self.reconnects += 1;
                    return self.keep_session();
                }
                Err(error) if !error.is_passing() || clock::now() >= until => return Err(error),
                Err(_) => {}
            }
        }
    }

    /// As [`super::transfer::request`], again in another session where one ends or is unknown to the server, if the request
    /// may be executed twice.
    pub(super) async fn request_again(&mut self, ask: &super::Request<'_>) -> Result<super::Response, ClientError> {
        let until = clock::now().after(self.config.timeout);
        let most = self.reconnects + MOST_PER_REQUEST;
        // Nothing of this request was sent yet.
        if self.config.reconnect && self.is_over() {
            self.reconnect(until).await?;
        }
        loop {
            match super::transfer::request(self, ask).await {
                Err(_)
                    if self.config.reconnect
                        && self.is_over()
                        && is_idempotent(ask.method)
                        && self.reconnects < most =>
                {
                    self.reconnect(until).await?;
                }
                done => return done,
            }
        }
    }
}

/// True if a request of this method has the same effect once and twice (RFC 7252, section 5.1; RFC 8132).
fn is_idempotent(method: Code) -> bool {
    matches!(method, Code::GET | Code::PUT | Code::DELETE | Code::FETCH | Code::IPATCH)
}
