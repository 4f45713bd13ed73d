//! A subscriber, which sends introspection requests to an access control server. If a publisher shares a secret, its
//! protokey, with this server, the subscriber gets the key of a session with this publisher. If a publisher has a
//! certificate, the subscriber learns its own rights at this publisher. The subscriber ends sessions whose keys the
//! server revokes.
//!
//! A subscriber may also ask the server to let a publisher open the session: [`Introspector::invite`]. A consumer of
//! encrypted content asks the server for the key of the content: [`content_key`].

mod content;
mod deliveries;
mod invitation;
mod revocation;

pub use content::{ContentKey, content_key};
pub use deliveries::{Deliveries, RefusedDelivery, may_read};
pub use invitation::ExpectedSession;

use crate::access::ace::{
    ACE_CBOR, Claims, Confirmation, CoseKey, ErrorCode, ErrorResponse, IntrospectionRequest, IntrospectionResponse,
    Material, TokenResponse,
};
use crate::access::protokey::SessionIdentity;
use crate::server::INTROSPECT;
use invitation::Invited;
use std::fmt;
use std::sync::{Arc, Mutex};
use tegmen::dtls::MAX_PSK;
use tegmen_coap::{Code, OptionNumber};
use tegmen_host::client::{ClientError, Response, Session};
use tegmen_host::credentials::{KeyStore, KeyTicket, StoredKey};
use tokio::runtime::Handle;
use zeroize::Zeroizing;

/// The key store of a subscriber's server. It finds the key for each handshake whose PSK identity is a
/// [`SessionIdentity`]: see [`ServerBuilder::key_store`](tegmen_host::server::ServerBuilder::key_store).
///
/// The access control server gives the key of a session only once. If a handshake fails after the server gave the key,
/// the next handshake needs another identity. All clones of this value are the same subscriber.
#[derive(Clone)]
pub struct Introspector {
    server: Session,
    runtime: Handle,
    allow: Arc<[String]>,
    invited: Arc<Mutex<Invited>>,
}

impl Introspector {
    /// Makes a subscriber. `server` is a session with the access control server in which the subscriber proved its
    /// identity. `runtime` is the handle of a Tokio runtime, which must run during the handshakes. `allow` are the
    /// rules for publishers, written as in the credentials file: a publisher may make only the requests that a rule
    /// allows.
    pub fn new(server: Session, runtime: Handle, allow: Vec<String>) -> Self {
        Self { server, runtime, allow: allow.into(), invited: Arc::default() }
    }
}

impl KeyStore for Introspector {
    fn find(&self, identity: &str, ticket: KeyTicket) {
        if SessionIdentity::parse(identity.as_bytes()).is_none() {
            return ticket.answer(None);
        }
        let Some(ticket) = self.of_invited(identity, ticket) else { return };
        let (asker, identity) = (self.clone(), identity.to_owned());
        self.runtime.spawn(async move {
            let key = match SessionIdentity::parse(identity.as_bytes()) {
                Some(identity) => introspect(&asker.server, identity).await.ok(),
                None => None,
            };
            ticket.answer(key.map(|SessionKey { key, .. }| asker.stored(key)));
        });
    }
}

impl Introspector {
    /// Returns the key of a session together with the rules for the publisher. The key store gives both to the
    /// subscriber's server.
    fn stored(&self, key: Zeroizing<Vec<u8>>) -> StoredKey {
        StoredKey { name: None, key, previous: None, allow: Some(self.allow.to_vec()) }
    }
}

/// The key of one session with a publisher. The key is wiped on drop.
pub struct SessionKey {
    /// The pre-shared key, 1 to 64 bytes.
    pub key: Zeroizing<Vec<u8>>,
    /// Seconds for which the subscriber may use the session; `None` if the server gives no limit.
    pub expires_in: Option<u64>,
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKey").field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

/// The reason why a subscriber gets no key, or gets no right at a publisher.
#[derive(Debug, thiserror::Error)]
pub enum NotGranted {
    /// The server refuses the request. It does not give the reason to the subscriber.
    #[error(
        "the access control server refuses: its audit log has the reason. It grants only what its policy gives this subscriber at \
         an enabled publisher, and it gives the key of a session only once"
    )]
    Refused,
    /// The server has no enabled device for the subscriber.
    #[error("the access control server has no enabled device for this subscriber: add it there, or enable it")]
    NotADevice,
    /// The server refuses the request, but may grant it later.
    #[error("the access control server refuses for now ({code}): ask again in {seconds} s")]
    Later {
        /// The code of the response, 4.29 or 5.03.
        code: Code,
        /// Seconds after which the subscriber may ask again.
        seconds: u32,
    },
    /// The access control server cannot reach the publisher.
    #[error(
        "the access control server cannot reach the publisher: see that the publisher runs, and that the server has its address"
    )]
    Unreachable,
    /// The subscriber already stores the maximum number of keys.
    #[error("the subscriber has as many sessions that publishers open as it can have: wait until some of them expire")]
    Full,
    /// The response is no valid response to an introspection.
    #[error("the response {code} does not answer an introspection: check the address of the access control server")]
    Unexpected {
        /// The code of the response.
        code: Code,
    },
    /// No response arrived.
    #[error("the access control server cannot be asked: {0}")]
    NoResponse(#[from] ClientError),
}

impl NotGranted {
    /// Returns the code of this error, for programs. The code stays the same in later versions.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::NotADevice => "not-a-device",
            Self::Later { .. } => "later",
            Self::Unreachable => "unreachable",
            Self::Full => "full",
            Self::Unexpected { .. } => "unexpected-response",
            Self::NoResponse(_) => "no-response",
        }
    }
}

/// Asks for the key of a session. `server` is a session with the access control server in which the subscriber proved
/// its identity.
///
/// If this session ends during the request, the request is sent once more in a new session. If the server already gave
/// the key in the lost response, it refuses the second request.
///
/// # Errors
/// [`NotGranted`].
pub async fn introspect(server: &Session, identity: SessionIdentity<'_>) -> Result<SessionKey, NotGranted> {
    let request = IntrospectionRequest { token: identity.as_str().into(), ..IntrospectionRequest::default() };
    let claims = ask(server, &request).await?;
    match claims.cnf {
        Some(Confirmation::Key(CoseKey { material: Material::Symmetric(key), .. }))
            if (1..=MAX_PSK).contains(&key.len()) =>
        {
            Ok(SessionKey { key, expires_in: claims.expires_in })
        }
        _ => Err(NotGranted::Unexpected { code: Code::CREATED }),
    }
}

/// Returns two values for a response that grants a token: the payload, and the parsed response. Returns an error for
/// any other response.
pub(crate) fn granted(response: Response) -> Result<(Zeroizing<Vec<u8>>, TokenResponse), NotGranted> {
    let (code, max_age) = (response.code, response.uint(OptionNumber::MAX_AGE));
    let payload = Zeroizing::new(response.payload);
    match code {
        Code::CREATED => {}
        // RFC 9200, section 5.8.3. Other servers, and earlier versions of this one, answer 4.03.
        Code::BAD_REQUEST if is_unauthorized_client(&payload) => return Err(NotGranted::Refused),
        Code::FORBIDDEN => return Err(NotGranted::Refused),
        Code::UNAUTHORIZED => return Err(NotGranted::NotADevice),
        Code::TOO_MANY_REQUESTS | Code::SERVICE_UNAVAILABLE => {
            return Err(NotGranted::Later { code, seconds: max_age.unwrap_or(60) });
        }
        code => return Err(NotGranted::Unexpected { code }),
    }
    let response = TokenResponse::parse(&payload).map_err(|_| NotGranted::Unexpected { code })?;
    Ok((payload, response))
}

/// Returns true if the payload of an error response has the error `unauthorized_client`.
fn is_unauthorized_client(payload: &[u8]) -> bool {
    ErrorResponse::parse(payload).is_ok_and(|response| response.error == ErrorCode::UNAUTHORIZED_CLIENT)
}

/// Asks the access control server about a token. Returns the claims of the token if it is active.
async fn ask(server: &Session, request: &IntrospectionRequest) -> Result<Claims, NotGranted> {
    let request = request.encode();
    let post = async || server.post(INTROSPECT, &request).content_format(ACE_CBOR).await;
    let response = match post().await {
        Err(ClientError::Ended { .. }) => post().await?,
        response => response?,
    };
    let (code, max_age) = (response.code, response.uint(OptionNumber::MAX_AGE));
    let payload = Zeroizing::new(response.payload);
    match code {
        Code::CREATED => {}
        Code::UNAUTHORIZED => return Err(NotGranted::NotADevice),
        // The default of Max-Age is 60 seconds (RFC 7252, section 5.10.5).
        Code::TOO_MANY_REQUESTS | Code::SERVICE_UNAVAILABLE => {
            return Err(NotGranted::Later { code, seconds: max_age.unwrap_or(60) });
        }
        code => return Err(NotGranted::Unexpected { code }),
    }
    let response = IntrospectionResponse::parse(&payload).map_err(|_| NotGranted::Unexpected { code })?;
    if response.active { Ok(response.claims) } else { Err(NotGranted::Refused) }
}
