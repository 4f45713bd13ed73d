//! A publisher with a protokey, which is a secret that the publisher shares with the access control server. The
//! publisher takes tokens from this server, and may refuse them.
//!
//! ```text
//! POST /authz-info   application/ace+cbor (19): a token for this publisher, and the address of its subscriber (RFC 9200, section 5.10.1)
//! ```
//!
//! The access control server opens a session with the publisher under a key that is derived from the protokey, and
//! uploads a token that the subscriber has requested. The publisher takes the token if it has the resources for another
//! session. Otherwise it answers 5.03 with the time after which the server may ask again. After the publisher has taken
//! the token, the session between publisher and subscriber can be opened. If the request contains the address of the
//! subscriber, the publisher opens the session. If the request contains no address, the subscriber opens the session.
//! The token contains the key of this session.
//!
//! The subscriber has only the rights of the token, until the token expires.

use crate::access::ace::cwt::{self, NotOpened};
use crate::access::ace::{ACE_CBOR, Aif, Confirmation, CoseKey, Malformed, Material, TokenUpload};
use crate::access::protokey::{Mode, Protokey, SessionIdentity};
pub use crate::upload::{AUTHZ_INFO, SERVER_IDENTITY};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber, Response};
use tegmen_base::secret::same;
use tegmen_host::credentials::{KeyStore, KeyTicket, StoredKey};
use tegmen_host::provider::HostCrypto;
use tegmen_host::server::{Request, Server};
use tegmen_store::clock::now_millis;
use zeroize::Zeroizing;

/// The interval at which sessions with an expired token are ended.
const INTERVAL: Duration = Duration::from_secs(1);
/// Characters that are refused in the path of a right. The path becomes part of a rule of the credentials file, and a
/// `*` in this rule would match further paths. The path of a URI can contain the other refused characters only in
/// encoded form.
const NO_PATH: [char; 5] = ['*', '?', '#', '%', ' '];
/// Maximum number of tokens whose identities are remembered until the tokens expire, including the tokens in use.
const REMEMBERED: usize = 1 << 16;

/// The reason why a publisher does not take a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// The payload is no valid request of the access control server.
    #[error("no token of this form: {0}")]
    Malformed(#[from] Malformed),
    /// The token is not sealed for this publisher, or its key does not match its session identity.
    #[error("the token is of another issuer or for another audience")]
    NotAuthentic,
    /// The token contains no rights in the form of RFC 9237, or a right on a path that is not the path of one resource.
    #[error("the token has rights that this publisher does not understand")]
    Scope,
    /// The token is expired, or contains no expiry time.
    #[error("the token is expired, or has no end: correct the clocks")]
    Expired,
    /// The publisher has the token already.
    #[error("the publisher took this token before")]
    Used,
    /// The publisher does not have the resources for another session, or the subscriber already has its maximum number
    /// of tokens and the token is not newer than all of them.
    #[error("the publisher has no resources for another session: ask again in {seconds} s")]
    Busy {
        /// Seconds after which one of the tokens in use expires, so that the server may ask again.
        seconds: u32,
    },
}

impl Refusal {
    /// Returns the code of the response (RFC 9200, section 5.10.1.1).
    const fn code(self) -> Code {
        match self {
            Self::Malformed(_) | Self::Scope => Code::BAD_REQUEST,
            Self::NotAuthentic | Self::Expired => Code::UNAUTHORIZED,
            Self::Used => Code::FORBIDDEN,
            Self::Busy { .. } => Code::SERVICE_UNAVAILABLE,
        }
    }
}

impl From<NotOpened> for Refusal {
    fn from(error: NotOpened) -> Self {
        match error {
            NotOpened::Malformed(malformed) => Self::Malformed(malformed),
            NotOpened::NotAuthentic => Self::NotAuthentic,
        }
    }
}

/// A token that a publisher has taken. Its key is wiped on drop.
pub struct Ticket {
    /// The session identity, by which publisher and subscriber name the key.
    pub identity: String,
    /// The pre-shared key of the session, 32 bytes.
    pub key: Zeroizing<Vec<u8>>,
    /// The name of the subscriber.
    pub subscriber: String,
    /// The rights of the subscriber.
    pub rights: Aif,
    /// The time at which the token expires, in seconds since 1970.
    pub expires: u64,
    /// The address at which the subscriber waits for the publisher; `None` if the subscriber opens the session.
    pub connect: Option<SocketAddr>,
}

impl std::fmt::Debug for Ticket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ticket").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// The tokens of a publisher. All clones use the same tokens.
///
/// This type is the [key store](tegmen_host::server::ServerBuilder::key_store) of the publisher's server. It lets the
/// access control server upload tokens, and lets a subscriber with a token make the requests that the token allows.
#[derive(Clone)]
pub struct Tickets(Arc<Inner>);

struct Inner {
    name: String,
    protokey: Protokey,
    most: usize,
    crypto: Mutex<HostCrypto>,
    taken: Mutex<BTreeMap<String, Taken>>,
}

/// A token that is not expired. The publisher remembers the token even after its session ended, so that the token is
/// not taken a second time.
struct Taken {
    /// The token; `None` if its session ended.
    ticket: Option<Arc<Ticket>>,
    /// The time of issue and the time at which the token expires, in seconds since 1970. Tokens are compared by these
    /// two values; a newer token has larger ones.
    age: (u64, u64),
}

impl Taken {
    const fn expires(&self) -> u64 {
        self.age.1
    }
}

impl Tickets {
    /// Makes an empty table of tokens for the publisher of this name. At most `most` tokens are in use at the same
    /// time, each for one session. The maximum for one subscriber is a quarter of `most`, but at least two. If a
    /// subscriber has its maximum, a newer token ends its oldest token, which is then no longer [in use](Self::in_use).
    ///
    /// # Errors
    /// The error of the system if it has no randomness.
    pub fn new(name: &str, protokey: Protokey, most: usize) -> std::io::Result<Self> {
        let crypto = Mutex::new(HostCrypto::from_os()?);
        Ok(Self(Arc::new(Inner { name: name.to_owned(), protokey, most, crypto, taken: Mutex::default() })))
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<String, Taken>> {
        self.0.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the token in the payload of a request of the access control server. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`Refusal`]. Nothing has changed then.
    pub fn take(&self, payload: &[u8], now: u64) -> Result<Arc<Ticket>, Refusal> {
        let (ticket, issued_at) = self.open(payload, now)?;
        let age = (issued_at, ticket.expires);
        let mut taken = self.taken();
        taken.retain(|_, taken| taken.expires() > now);
        if taken.contains_key(&ticket.identity) {
            return Err(Refusal::Used);
        }
        let in_use = || taken.iter().filter(|(_, taken)| taken.ticket.is_some());
        let is_own = |taken: &Taken| taken.ticket.as_ref().is_some_and(|used| used.subscriber == ticket.subscriber);
        let own = || taken.iter().filter(|(_, taken)| is_own(taken));
        // A subscriber that uses its whole share gives its oldest token up for a newer one.
        let has_share = own().count() >= share(self.0.most);
        let is_newest = own().all(|(_, taken)| taken.age < age);
        let oldest = own().min_by_key(|(_, taken)| taken.age).filter(|_| has_share);
        let first = match () {
            () if has_share && !is_newest => own().map(|(_, taken)| taken.expires()).min(),
            () if !has_share && in_use().count() >= self.0.most => in_use().map(|(_, taken)| taken.expires()).min(),
            () if taken.len() >= REMEMBERED => taken.values().map(Taken::expires).min(),
            () => None,
        };
        if let Some(first) = first {
            let seconds = u32::try_from(first.saturating_sub(now)).unwrap_or(u32::MAX).max(1);
            return Err(Refusal::Busy { seconds });
        }
        if let Some(oldest) = oldest.map(|(identity, _)| identity.clone()).and_then(|oldest| taken.get_mut(&oldest)) {
            oldest.ticket = None;
        }
        let ticket = Arc::new(ticket);
        taken.insert(ticket.identity.clone(), Taken { ticket: Some(Arc::clone(&ticket)), age });
        Ok(ticket)
    }

    /// Opens a token, and checks its content. Returns the token and its time of issue, which is 0 if the token has none.
    fn open(&self, payload: &[u8], now: u64) -> Result<(Ticket, u64), Refusal> {
        let Inner { name, protokey, crypto, .. } = &*self.0;
        let TokenUpload { access_token, connect } = TokenUpload::parse(payload)?;
        let claims = {
            let mut crypto = crypto.lock().unwrap_or_else(PoisonError::into_inner);
            cwt::open(&access_token, &protokey.token_key::<HostCrypto>(), &mut *crypto)?
        };
        let Some(Confirmation::Key(CoseKey { kid: Some(kid), material: Material::Symmetric(key), .. })) = claims.cnf
        else {
            return Err(Refusal::NotAuthentic);
        };
        let identity = SessionIdentity::parse(&kid).filter(|identity| identity.publisher() == name);
        let (Some(identity), Some(subscriber)) = (identity, claims.subject) else { return Err(Refusal::NotAuthentic) };
        let own = protokey.session_key::<HostCrypto>(Mode::Bound, identity, &subscriber);
        if claims.audience.as_deref() != Some(name) || !same(&key, own.expose()) {
            return Err(Refusal::NotAuthentic);
        }
        let rights = claims.scope.and_then(|scope| scope.rights()).and_then(Aif::on_resources);
        let rights = rights.filter(is_understood).ok_or(Refusal::Scope)?;
        let is_valid = |expires: &u64| *expires > now && claims.not_before.is_none_or(|begin| begin <= now);
        let expires = claims.expires.filter(is_valid).ok_or(Refusal::Expired)?;
        let (identity, connect) = (identity.as_str().to_owned(), connect.map(|connect| connect.address));
        let ticket = Ticket { identity, key, subscriber, rights, expires, connect };
        Ok((ticket, claims.issued_at.unwrap_or_default()))
    }

    /// Ends the use of a token whose session ended, so that another token can be taken. The same token is not taken a
    /// second time.
    pub fn end(&self, identity: &str) {
        if let Some(taken) = self.taken().get_mut(identity) {
            taken.ticket = None;
        }
    }

    /// Returns a handler for POST at `/authz-info`. The handler calls `taken` for each token that the publisher takes.
    /// `taken` must return quickly. If `taken` opens the session with the subscriber, it must start a task for this.
    pub fn handler(
        &self,
        taken: impl Fn(Arc<Ticket>) + Send + Sync + 'static,
    ) -> impl Fn(&Request<'_>, &mut Response<'_, '_>) -> Result<(), Code> + Send + Sync + 'static {
        let tickets = self.clone();
        move |request, response| {
            if request.message().uint(OptionNumber::CONTENT_FORMAT) != Some(ACE_CBOR.into()) {
                return Err(Code::UNSUPPORTED_CONTENT_FORMAT);
            }
            match tickets.take(request.payload(), now_millis() / 1000) {
                Ok(ticket) => {
                    taken(ticket);
                    response.set_code(Code::CREATED);
                    Ok(())
                }
                Err(refusal) => {
                    request.because(refusal.to_string());
                    response.set_code(refusal.code());
                    match refusal {
                        Refusal::Busy { seconds } => response.uint(OptionNumber::MAX_AGE, seconds),
                        _ => Ok(()),
                    }
                }
            }
        }
    }

    /// Returns the token of a session, if the token is in use and not expired. `now` is in seconds since 1970.
    pub fn in_use(&self, identity: &str, now: u64) -> Option<Arc<Ticket>> {
        self.taken().get(identity).and_then(|taken| taken.ticket.clone()).filter(|ticket| ticket.expires > now)
    }

    /// Closes the sessions of subscribers whose token has expired, and the sessions whose token is no longer [in
    /// use](Self::end). Checks all sessions once a second. This future never returns.
    pub async fn end_expired(&self, server: &Arc<Server>) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let (tickets, server) = (self.clone(), Arc::clone(server));
            // A session whose handshake began before the end of its token may begin after it, so all sessions are examined.
            let ended = tokio::task::spawn_blocking(move || {
                let now = now_millis() / 1000;
                let of_token = |identity: &str| {
                    let identity = SessionIdentity::parse(identity.as_bytes());
                    identity.is_some_and(|identity| identity.publisher() == tickets.0.name)
                };
                let sessions = server.sessions().into_iter().filter(|session| of_token(&session.identity));
                for session in sessions.filter(|session| tickets.in_use(&session.identity, now).is_none()) {
                    server.close(session.id);
                }
            });
            let _ = ended.await;
        }
    }
}

/// Returns the maximum number of tokens of one client in a table for `most` tokens. This maximum leaves space for the
/// tokens of other clients. It is at least two, because a client that lost its state needs a new token while its last
/// token is still valid.
pub(crate) fn share(most: usize) -> usize {
    (most / 4).max(2)
}

/// Returns true if there is at least one right, and each right has only methods of CoAP and the path of one resource.
/// No right may be on the path `/authz-info`, which takes tokens.
pub(crate) fn is_understood(rights: &Aif) -> bool {
    !rights.0.is_empty()
        && rights.0.iter().all(|right| {
            let is_path = right.path.starts_with('/') && !right.path.contains(NO_PATH);
            is_path && right.path.strip_prefix('/') != Some(AUTHZ_INFO) && right.methods().is_some()
        })
}

/// Returns these rights in the form of rules of the credentials file.
pub(crate) fn rules(rights: &Aif) -> Vec<String> {
    let of_right = |right: &crate::access::ace::Right| {
        let methods = right.methods().into_iter().flat_map(tegmen_coap::Methods::codes);
        methods.map(|method| format!("{} {}", tegmen_coap::Methods::of(method), right.path)).collect::<Vec<_>>()
    };
    rights.0.iter().flat_map(of_right).collect()
}

impl KeyStore for Tickets {
    fn find(&self, identity: &str, ticket: KeyTicket) {
        let now = now_millis() / 1000;
        let (key, allow) = if identity == SERVER_IDENTITY {
            let key = self.0.protokey.server_key::<HostCrypto>();
            (Zeroizing::new(key.expose().to_vec()), vec![format!("POST /{AUTHZ_INFO}")])
        } else {
            match self.in_use(identity, now).filter(|taken| taken.connect.is_none()) {
                Some(taken) => (taken.key.clone(), rules(&taken.rights)),
                None => return ticket.answer(None),
            }
        };
        ticket.answer(Some(StoredKey { name: None, key, previous: None, allow: Some(allow) }));
    }
}
