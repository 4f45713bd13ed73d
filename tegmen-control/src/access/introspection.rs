//! Decides on a request to `/introspect`: whether a subscriber may have the key of a publisher's session, or the key of
//! the content that a producer publishes.
//!
//! The caller of [`Introspection::answer`] has already authenticated the subscriber, and has received the request.
//! Afterwards the caller sends [`Outcome::reply`] to the peer, and shows [`Outcome::message`] to the operator. If the
//! reason of a refusal depends on other devices, the response is always `{active: false}`, so that it reveals nothing
//! about these devices.

use super::ace::cwt::LONG_KEY_LEN;
use super::ace::trl::TokenHash;
use super::ace::{
    ACE_CBOR, Aif, Claims, Confirmation, CoseKey, ErrorCode, ErrorResponse, Hint, IntrospectionRequest,
    IntrospectionResponse, Malformed, Profile, Scope,
};
use super::policy::{Decision, OwnedParty, Party, Question, RuleId, TestedPolicy};
use super::protokey::{Accepted, Mode, NotAccepted, Protokey, SessionIdentity};
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;
use tegmen_base::crypto::{Crypto, DIGEST_LEN};
use tegmen_base::hex::to_hex;
use tegmen_base::secret::Secret;
use tegmen_base::time::Instant;
use tegmen_coap::{Code, Methods, OptionNumber};
use tegmen_host::server;
use zeroize::Zeroizing;

/// The number of bytes that are first allocated for [`Outcome::message`]. Most messages fit.
const MESSAGE: usize = 192;

/// The Max-Age, in seconds, of the response to a request whose session identity the server cannot store. After this
/// time the peer may repeat the request.
const FULL_FOR: u32 = 60;

/// Seconds after which a peer may repeat a request that the server cannot decide or grant now.
const RETRY_AFTER: u32 = 10;

/// The value of token_type_hint (RFC 9200, section 5.9) in an introspection request whose token is a session identity.
pub const HINT_PROTOKEY: &str = "protokey";
/// The value of token_type_hint in an introspection request whose token is a session identity, and whose session key
/// does not depend on the name of the subscriber: see [`Mode::Paper`].
pub const HINT_PAPER: &str = "protokey-paper";
/// The value of token_type_hint in an introspection request whose token is the SHA-256 of a certificate.
pub const HINT_THUMBPRINT: &str = "x5t";
/// The value of token_type_hint in an introspection request whose token is the identity of a content key. The scope of
/// the request is GET on the path of one content.
pub const HINT_CONTENT: &str = "content-key";

/// The number of AES-CCM-16-64-128, the algorithm of content keys, in the COSE registry (RFC 9053, section 4.2).
pub(crate) const CONTENT_ALGORITHM: i64 = 10;

/// A publisher with a protokey: a secret that it shares with the access control server, and from which the keys of its
/// sessions are derived.
#[derive(Clone, Copy, Debug)]
pub struct Publisher<'d> {
    /// The name and the tags of the publisher.
    pub party: &'d OwnedParty,
    /// The protokey of the publisher.
    pub protokey: &'d Protokey,
    /// The derivation of keys for this publisher. It is [`Mode::Paper`] only if the operator chose this mode.
    pub mode: Mode,
    /// The address at which the publisher takes tokens from this server. `None` if the server cannot send tokens to the
    /// publisher.
    pub address: Option<SocketAddr>,
}

/// A resource server with the OSCORE profile (RFC 9203), or with the profile of EDHOC and OSCORE.
#[derive(Debug)]
pub struct ResourceServer<'d> {
    /// The name and the tags of the resource server.
    pub party: &'d OwnedParty,
    /// The key under which tokens for the resource server are sealed.
    pub key: Secret<LONG_KEY_LEN>,
    /// The profile of the resource server.
    pub profile: Profile,
}

/// The devices of a server, as introspection reads them.
pub trait Devices {
    /// Returns the publisher of this name, if the publisher has a protokey.
    fn publisher(&self, name: &str) -> Option<Publisher<'_>>;
    /// Returns the publisher whose certificate has this SHA-256.
    fn certified(&self, thumbprint: &[u8; DIGEST_LEN]) -> Option<&OwnedParty>;

    /// Returns the producer of this name, with the secret from which its content keys are derived.
    fn producer(&self, _: &str) -> Option<(&OwnedParty, &Protokey)> {
        None
    }

    /// Returns the resource server of this name, if the resource server uses OSCORE.
    fn resource_server(&self, _: &str) -> Option<ResourceServer<'_>> {
        None
    }

    /// Returns true if the token with this hash, or this session identity, is revoked.
    fn is_revoked(&self, _: &[u8]) -> bool {
        false
    }
}

/// The reason of a refusal, for the operator. The codes that [`Self::code`] returns stay the same in later versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// The peer did not authenticate itself.
    NotAuthenticated,
    /// The payload is no valid request.
    Malformed(Malformed),
    /// The server does not know the value of token_type_hint in the introspection request.
    UnknownHint,
    /// The token in the request is neither a session identity nor the SHA-256 of a certificate.
    NoIdentity,
    /// The server has no publisher with the name or certificate in the request.
    UnknownPublisher,
    /// The [`Mode`] in which the publisher derives keys differs from the mode that the subscriber requests.
    OtherMode,
    /// The policy refuses. The decision contains the rule, if a rule decided.
    Policy(Decision),
    /// The policy gives this subscriber no right at this publisher.
    NothingAllowed,
    /// The scope does not have the form of RFC 9237, or contains a right that has no meaning on this server.
    NoScope,
    /// The server does not accept the session identity. The value is the reason.
    Identity(NotAccepted),
    /// The client requests a token with a grant type other than client credentials.
    GrantType,
    /// The client sends its own key although the server generates the key, or sends no key although the profile needs
    /// one.
    OwnKey,
    /// The client names the key of an earlier token, but has no valid token with this key, or the key belongs to
    /// another resource server.
    UnknownKey,
    /// The client asks for an upload, but the bytes for the publisher in its request are no valid connection request.
    NoAddress(Malformed),
}

impl Reason {
    /// Returns the code of this reason, for the audit log. The code stays the same in later versions.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotAuthenticated => "not-authenticated",
            Self::Malformed(_) => "malformed",
            Self::UnknownHint => "unknown-hint",
            Self::NoIdentity => "no-identity",
            Self::UnknownPublisher => "unknown-publisher",
            Self::OtherMode => "other-mode",
            Self::Policy(decision) => decision.code(),
            Self::NothingAllowed => "nothing-allowed",
            Self::NoScope => "no-scope",
            Self::GrantType => "grant-type",
            Self::OwnKey => "own-key",
            Self::UnknownKey => "unknown-key",
            Self::NoAddress(_) => "no-address",
            Self::Identity(NotAccepted::Used) => "identity-used",
            Self::Identity(NotAccepted::OfAnother) => "identity-of-another",
            Self::Identity(NotAccepted::TooMany) => "too-many-identities",
            Self::Identity(NotAccepted::Full) => "table-full",
        }
    }

    /// Returns the rule of the policy that refused the request; `None` if the refusal has another reason.
    pub const fn rule(self) -> Option<RuleId> {
        match self {
            Self::Policy(decision) => decision.rule(),
            _ => None,
        }
    }
}

/// The response to send.
#[derive(Debug)]
pub struct Reply {
    /// 2.01, or the code of an error.
    pub code: Code,
    /// The payload, `application/ace+cbor`. It may contain a key, and is wiped on drop.
    pub payload: Zeroizing<Vec<u8>>,
    /// Seconds after which the peer may ask again, for the option Max-Age; `None` if the response has no Max-Age.
    pub max_age: Option<u32>,
    /// The cause of a 5.03 response, for the operator; `None` for another response. The peer does not receive the
    /// cause.
    pub cause: Option<String>,
}

impl Reply {
    pub(crate) fn new(code: Code, payload: Zeroizing<Vec<u8>>) -> Self {
        Self { code, payload, max_age: None, cause: None }
    }

    pub(crate) fn error(code: Code, error: ErrorCode) -> Self {
        Self::new(code, Zeroizing::new(ErrorResponse::new(error).encode()))
    }

    /// Makes the response to a request for a token that the server does not grant. Each error has the code 4.00, except
    /// `invalid_client` (RFC 9200, section 5.8.3).
    pub(crate) fn unauthorized_client() -> Self {
        Self::error(Code::BAD_REQUEST, ErrorCode::UNAUTHORIZED_CLIENT)
    }

    /// Makes a 5.03 response with its cause for the operator. The peer may ask again after `seconds`.
    pub(crate) fn busy(seconds: u32, cause: impl Into<String>) -> Self {
        let reply = Self::new(Code::SERVICE_UNAVAILABLE, Zeroizing::default());
        Self { max_age: Some(seconds), cause: Some(cause.into()), ..reply }
    }

    /// Makes a 5.03 response: the server cannot decide or grant now, and the peer may ask again later. `cause` is the
    /// reason.
    pub(crate) fn later(cause: &impl ToString) -> Self {
        Self::busy(RETRY_AFTER, cause.to_string())
    }

    /// Makes the response to a request whose session identity the server cannot store: 5.03 if the table of accepted
    /// session identities is full, and 4.29 if the subscriber already has the maximum number of identities.
    pub(super) fn no_room(full: NotAccepted) -> Self {
        match full {
            NotAccepted::Full => Self::busy(FULL_FOR, "the table of session identities is full"),
            _ => Self { max_age: Some(FULL_FOR), ..Self::new(Code::TOO_MANY_REQUESTS, Zeroizing::default()) },
        }
    }
}

/// Makes the response of a server over CoAP.
impl From<Reply> for server::Reply {
    fn from(Reply { code, mut payload, max_age, cause }: Reply) -> Self {
        let has_content = !payload.is_empty();
        let reply = Self::new(code).payload(std::mem::take(&mut *payload));
        let reply = if has_content { reply.uint(OptionNumber::CONTENT_FORMAT, ACE_CBOR.into()) } else { reply };
        let reply = match max_age {
            Some(seconds) => reply.max_age(Duration::from_secs(seconds.into())),
            None => reply,
        };
        match cause {
            Some(cause) => reply.because(cause),
            None => reply,
        }
    }
}

/// The result of a decision on a request.
#[derive(Debug)]
pub struct Outcome {
    /// The response.
    pub reply: Reply,
    /// The reason of the refusal; `None` if the request was granted.
    pub refused: Option<Reason>,
    /// The session identity that was accepted; `None` if no identity was accepted. The caller must make the identity
    /// durable before it sends the response, so that the identity is not accepted again after a restart.
    pub session: Option<String>,
    /// The [hash](super::revocation::token_hash) of the access token that was issued; `None` if no token was issued.
    pub token: Option<TokenHash>,
    /// The upload of the token to the publisher, which the caller must try before it sends the response. `None` if
    /// there is nothing to upload.
    pub upload: Option<Upload>,
    /// One line for the operator, without any secret. The line contains the subscriber and the token. If a rule of the
    /// policy refused the request, it also contains this rule.
    pub message: String,
}

/// The upload of a token to its publisher (RFC 9200, section 5.10.1).
#[derive(Debug)]
pub struct Upload {
    /// The address of the publisher.
    pub address: SocketAddr,
    /// The pre-shared key of the session in which the access control server uploads the token.
    pub key: Secret<DIGEST_LEN>,
    /// The payload of the request, `application/ace+cbor`.
    pub request: Zeroizing<Vec<u8>>,
    /// The response to the client if the publisher takes the token. If the publisher cannot be reached, the response is
    /// [`Outcome::reply`].
    pub taken: Reply,
}

impl Outcome {
    pub(super) fn refused(reply: Reply, reason: Reason, asked: String) -> Self {
        let message = format!("{asked}: refused ({})", reason.code());
        Self { reply, refused: Some(reason), session: None, token: None, upload: None, message }
    }
}

/// A response that grants a request.
struct Granted {
    response: IntrospectionResponse,
    /// True if the decision accepted a session identity, which is the token of the request.
    is_session: bool,
}

/// The token about which a subscriber asks. The value of token_type_hint in the request determines the kind of the
/// token.
#[derive(Clone, Copy)]
enum Asked<'t> {
    Session(Mode, SessionIdentity<'t>),
    /// The key of a content. The value is the identity of the key.
    Content(SessionIdentity<'t>),
    /// The value of token_type_hint in the request is that for session identities or content keys, but the token of the
    /// request does not have the form of an identity.
    NoIdentity(&'t [u8]),
    Certificate(&'t [u8; DIGEST_LEN]),
    NoCertificate,
    Unknown,
}

impl<'t> Asked<'t> {
    fn of(hint: Option<&Hint>, token: &'t [u8]) -> Self {
        let identity =
            |of: fn(SessionIdentity<'t>) -> Self| SessionIdentity::parse(token).map_or(Self::NoIdentity(token), of);
        let session = || identity(|identity| Self::Session(Mode::Bound, identity));
        match hint {
            None => session(),
            Some(Hint::Name(name)) if name == HINT_PROTOKEY => session(),
            Some(Hint::Name(name)) if name == HINT_PAPER => identity(|identity| Self::Session(Mode::Paper, identity)),
            Some(Hint::Name(name)) if name == HINT_CONTENT => identity(Self::Content),
            Some(Hint::Name(name)) if name == HINT_THUMBPRINT => {
                token.try_into().map_or(Self::NoCertificate, Self::Certificate)
            }
            Some(_) => Self::Unknown,
        }
    }
}

/// Formats the token for a message to the operator.
impl fmt::Display for Asked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(_, identity) => {
                f.write_str("the session ")?;
                f.write_str(identity.as_str())
            }
            Self::Content(identity) => {
                f.write_str("the content key ")?;
                f.write_str(identity.as_str())
            }
            Self::NoIdentity(token) => {
                f.write_str("the key ")?;
                String::from_utf8_lossy(token).escape_debug().fmt(f)
            }
            Self::Certificate(thumbprint) => {
                f.write_str("the certificate ")?;
                f.write_str(&to_hex(*thumbprint))
            }
            Self::NoCertificate => f.write_str("a certificate, without its SHA-256"),
            Self::Unknown => f.write_str("a token of a kind that this server does not know"),
        }
    }
}

/// The inputs of a decision.
pub struct Introspection<'a, D> {
    /// The devices of the server.
    pub devices: &'a D,
    /// The policy in force.
    pub policy: &'a TestedPolicy,
    /// The session identities that were accepted. An identity that the decision accepts is added.
    pub accepted: &'a mut Accepted,
    /// Seconds for which a subscriber may use the result of the decision.
    pub lifetime: u64,
}

impl<D: Devices> Introspection<'_, D> {
    /// Answers the payload of a request. `subscriber` is the authenticated peer. The name of the subscriber is an input
    /// to the derivation of the key.
    pub fn answer<C: Crypto>(&mut self, subscriber: Option<Party<'_>>, payload: &[u8], now: Instant) -> Outcome {
        let Some(subscriber) = subscriber.filter(|party| !party.name.is_empty()) else {
            return refuse(Reason::NotAuthenticated, "a peer that did not authenticate itself".to_owned());
        };
        let who = Escaped(subscriber);
        let request = match IntrospectionRequest::parse(payload) {
            Ok(request) => request,
            Err(error) => return refuse(Reason::Malformed(error), format!("{who} asks for something: {error}")),
        };
        let IntrospectionRequest { token, scope, hint } = request;
        let asked = Asked::of(hint.as_ref(), &token);
        let mut message = String::with_capacity(MESSAGE);
        // Memory takes all text.
        let _ = write!(message, "{who} asks for {asked}");
        if matches!(asked, Asked::Content(_))
            && let Some(path) = scope.as_ref().and_then(content_path)
        {
            let _ = write!(message, " of {}", path.escape_debug());
        }
        let granted = match asked {
            Asked::Session(mode, identity) => self.session::<C>(subscriber, (mode, identity), scope, now),
            Asked::Certificate(thumbprint) => self.certificate(subscriber, thumbprint, scope),
            Asked::Content(identity) => self.content::<C>(subscriber, identity, scope),
            Asked::NoIdentity(_) | Asked::NoCertificate => Err(Reason::NoIdentity),
            Asked::Unknown => Err(Reason::UnknownHint),
        };
        match granted {
            Ok(Granted { response, is_session }) => {
                message.push_str(": granted");
                // A session identity is text.
                let session = is_session.then(|| String::from_utf8(token).unwrap_or_default());
                let reply = Reply::new(Code::CREATED, response.encode());
                Outcome { reply, refused: None, session, token: None, upload: None, message }
            }
            Err(reason) => {
                if let Some(rule) = reason.rule() {
                    let _ = write!(message, ": {}", self.policy.describe(rule));
                }
                refuse(reason, message)
            }
        }
    }

    /// Grants the key of a session. Returns the response with the key, or the reason of the refusal.
    fn session<C: Crypto>(
        &mut self,
        subscriber: Party<'_>,
        (mode, identity): (Mode, SessionIdentity<'_>),
        scope: Option<Scope>,
        now: Instant,
    ) -> Result<Granted, Reason> {
        let prefetched = self.accepted.prefetch(identity);
        // This precedes every lookup of a device, so that the answer reveals nothing about devices.
        self.accepted.has_room(subscriber.name, now).map_err(Reason::Identity)?;
        let publisher = self.devices.publisher(identity.publisher()).ok_or(Reason::UnknownPublisher)?;
        if publisher.mode != mode {
            return Err(Reason::OtherMode);
        }
        self.permit(subscriber, publisher.party.party(), scope.as_ref())?;
        self.accepted.accept_prefetched(prefetched, subscriber.name, now).map_err(Reason::Identity)?;
        let psk = publisher.protokey.session_key::<C>(mode, identity, subscriber.name);
        let cnf = Some(Confirmation::Key(CoseKey::symmetric(psk.expose())));
        let response = self.response(publisher.party, cnf, Some(Profile::COAP_DTLS), scope);
        Ok(Granted { response, is_session: true })
    }

    /// Grants rights at a publisher with a certificate. Returns the response, which contains no key, or the reason of
    /// the refusal.
    fn certificate(
        &self,
        subscriber: Party<'_>,
        thumbprint: &[u8; DIGEST_LEN],
        scope: Option<Scope>,
    ) -> Result<Granted, Reason> {
        let publisher = self.devices.certified(thumbprint).ok_or(Reason::UnknownPublisher)?;
        self.permit(subscriber, publisher.party(), scope.as_ref())?;
        Ok(Granted { response: self.response(publisher, None, Some(Profile::COAP_DTLS), scope), is_session: false })
    }

    /// Grants the key of a content. Returns the response with the key, or the reason of the refusal. The key belongs to
    /// the path in the scope, so a right for one path never opens the content of another path. A producer gets its own
    /// keys without a rule of the policy.
    fn content<C: Crypto>(
        &self,
        consumer: Party<'_>,
        identity: SessionIdentity<'_>,
        scope: Option<Scope>,
    ) -> Result<Granted, Reason> {
        let (producer, secret) = self.devices.producer(identity.publisher()).ok_or(Reason::UnknownPublisher)?;
        let path = scope.as_ref().and_then(content_path).ok_or(Reason::NoScope)?;
        if producer.party().name != consumer.name {
            self.permit(consumer, producer.party(), scope.as_ref())?;
        }
        let key = CoseKey {
            kid: Some(identity.as_str().into()),
            algorithm: Some(CONTENT_ALGORITHM),
            ..CoseKey::symmetric(secret.content_key::<C>(identity, &path).expose())
        };
        Ok(Granted { response: self.response(producer, Some(Confirmation::Key(key)), None, scope), is_session: false })
    }

    /// Returns `Ok` if the policy allows all rights of the scope. A request for more rights than the policy allows is
    /// refused as a whole, and does not get a smaller scope. Without a scope, the policy must allow the subject at
    /// least one request at the publisher.
    pub(super) fn permit(&self, subject: Party<'_>, publisher: Party<'_>, scope: Option<&Scope>) -> Result<(), Reason> {
        let Some(scope) = scope else {
            let connects = self.policy.connects(&subject, &publisher);
            return if connects { Ok(()) } else { Err(Reason::NothingAllowed) };
        };
        let rights = scope.rights().and_then(Aif::on_resources).filter(|rights| !rights.0.is_empty());
        let rights = rights.ok_or(Reason::NoScope)?;
        for right in &rights.0 {
            let methods = right.methods().filter(|methods| methods.0 != 0).ok_or(Reason::NoScope)?;
            for method in methods.codes() {
                let decision = self.policy.decide(&Question { subject, publisher, method, path: &right.path });
                if !decision.is_allowed() {
                    return Err(Reason::Policy(decision));
                }
            }
        }
        Ok(())
    }

    fn response(
        &self,
        publisher: &OwnedParty,
        cnf: Option<Confirmation>,
        ace_profile: Option<Profile>,
        scope: Option<Scope>,
    ) -> IntrospectionResponse {
        let claims = Claims {
            subject: Some(publisher.party().name.to_owned()),
            cnf,
            scope,
            ace_profile,
            expires_in: Some(self.lifetime),
            ..Claims::default()
        };
        IntrospectionResponse { active: true, claims }
    }
}

/// Returns the path of a scope that consists of one right, GET on this path; `None` for another scope.
fn content_path(scope: &Scope) -> Option<String> {
    let mut rights = scope.rights()?.0.into_iter();
    let right = rights.next().filter(|right| right.methods() == Some(Methods::of(Code::GET)))?;
    rights.next().is_none().then_some(right.path)
}

/// Writes the name and the tags of a party into a message for the operator. A name may contain any characters. If a
/// name or a tag has unusual characters, this type escapes them.
pub(super) struct Escaped<'p>(pub(super) Party<'p>);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(party) = self;
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'\\".contains(&byte));
        if is_plain(party.name) && party.tags.iter().all(|tag| is_plain(tag)) {
            return party.fmt(f);
        }
        party.to_string().escape_debug().fmt(f)
    }
}

/// Returns the outcome for a session identity that the store already has, because another server accepted the identity,
/// or because this server accepted it before a restart. `of_another` is true if the identity was accepted for another
/// subscriber.
pub fn used_before(subscriber: &str, identity: &str, of_another: bool) -> Outcome {
    let reason = Reason::Identity(if of_another { NotAccepted::OfAnother } else { NotAccepted::Used });
    refuse(reason, format!("{} asks for the session {identity}", subscriber.escape_debug()))
}

/// Makes the outcome of a refused request. The response does not reveal a reason that depends on other devices.
fn refuse(reason: Reason, asked: String) -> Outcome {
    let reply = match reason {
        Reason::NotAuthenticated => Reply::error(Code::UNAUTHORIZED, ErrorCode::INVALID_CLIENT),
        Reason::Malformed(_)
        | Reason::UnknownHint
        | Reason::GrantType
        | Reason::OwnKey
        | Reason::UnknownKey
        | Reason::NoAddress(_) => Reply::error(Code::BAD_REQUEST, ErrorCode::INVALID_REQUEST),
        Reason::Identity(full @ (NotAccepted::Full | NotAccepted::TooMany)) => Reply::no_room(full),
        Reason::NoIdentity
        | Reason::UnknownPublisher
        | Reason::OtherMode
        | Reason::Policy(_)
        | Reason::NothingAllowed
        | Reason::NoScope
        | Reason::Identity(NotAccepted::Used | NotAccepted::OfAnother) => {
            Reply::new(Code::CREATED, IntrospectionResponse::inactive().encode())
        }
    };
    Outcome::refused(reply, reason, asked)
}

#[cfg(test)]
mod tests;
