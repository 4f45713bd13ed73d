//! Events of a server, as text and as JSON.

use crate::contexts::ContextError;
use crate::credentials::CredentialsError;
use crate::group::MembershipEvent;
use crate::printable::printable;
use crate::resumption::TicketKeyError;
use crate::uri::encoded_path;
use crate::x509::{LoadError, Refusal, date};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::SystemTime;
use tegmen::coap::Code;
use tegmen::dtls::{AlertDescription, Fatal};
use tegmen::oscore::UnprotectError;

/// A function that takes the events of a server.
pub(crate) type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// An event of the server, for its operator. It contains no secret.
///
/// `Display` gives one sentence. The sentence contains names that peers chose, so escape control characters before a
/// terminal shows it. `Serialize` gives a map with the name of the event in `event` and one entry for each field.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A client established a DTLS session.
    Established {
        /// The address of the client.
        remote: SocketAddr,
        /// The identity of the client.
        identity: String,
        /// True if the client resumed an earlier session.
        resumed: bool,
    },
    /// The file of ticket keys cannot be used any more. The ticket keys in memory remain valid.
    TicketKeysFailed {
        /// The problem and its correction.
        #[serde(serialize_with = "displayed")]
        error: TicketKeyError,
    },
    /// A handshake or a session ended with an error.
    Failed {
        /// The address of the client.
        remote: SocketAddr,
        /// The identity that the client sent; `None` if the handshake ended before the client sent one.
        identity: Option<String>,
        /// The reason for the end.
        #[serde(serialize_with = "displayed")]
        reason: Fatal,
    },
    /// The server refused a ClientHello, so no handshake began. The event is reported only for a client that proved its
    /// address, or that showed a ticket of this server.
    HelloRefused {
        /// The address of the client.
        remote: SocketAddr,
        /// The alert that the client received.
        #[serde(flatten, serialize_with = "alert_and_reason")]
        alert: AlertDescription,
    },
    /// The server refused the certificate or raw public key of a client. The client does not learn the cause.
    Refused {
        /// The address of the client.
        remote: SocketAddr,
        /// The reason, and a next step for the operator.
        #[serde(rename = "reason", serialize_with = "displayed")]
        refusal: Refusal,
    },
    /// The server continues a session that began before the server started.
    Restored {
        /// The address of the client.
        remote: SocketAddr,
        /// The identity of the client.
        identity: String,
    },
    /// The server cannot write the database of [`ServerConfig::state`](super::ServerConfig::state), so it cannot
    /// reserve further record numbers for sessions. The server tries again with each record, and closes a session that
    /// has no numbers left.
    NotKept {
        /// The problem, as text.
        problem: String,
    },
    /// A certificate of the server has expired, so clients refuse it. The event is reported once for each certificate.
    CertificateExpired {
        /// The expiry time.
        #[serde(serialize_with = "dated")]
        at: SystemTime,
    },
    /// A revocation list for client certificates has expired. Until the operator replaces the list, the server refuses
    /// all clients of the authority that issued the list. The event is reported once for each list.
    RevocationDue {
        /// The time by which the operator had to replace the certificate revocation list.
        #[serde(serialize_with = "dated")]
        at: SystemTime,
    },
    /// A client connected without a certificate and without a key, but the server gives no rights to such clients. The
    /// event is reported once.
    AnonymousInVain {
        /// Address of the client.
        remote: SocketAddr,
    },
    /// The client or the server closed a session, or the session was idle for too long. No event is reported for a
    /// session that a new session from the same address replaced.
    Closed {
        /// The address of the client.
        remote: SocketAddr,
        /// The reason why the session was closed.
        #[serde(serialize_with = "displayed")]
        reason: Fatal,
    },
    /// The server did not answer ClientHellos, because it had no space for another handshake or another peer.
    Full {
        /// The number of ClientHellos since the previous event of this kind. If a client repeats its ClientHello, each
        /// repetition counts.
        unanswered: u32,
    },
    /// The server ended a session because the key that its client proved is no longer in the credentials.
    Outdated {
        /// The address of the client.
        remote: SocketAddr,
        /// The identity of the client.
        identity: String,
    },
    /// The server answered a request.
    Request(Answered),
    /// A request named an OSCORE context that cannot be used.
    Context {
        /// The address of the client.
        remote: SocketAddr,
        /// The problem.
        #[serde(serialize_with = "displayed")]
        problem: ContextError,
    },
    /// The server could not open a request with OSCORE, so it refused the request. The client learns only the code of
    /// the response. A repetition of an earlier request is also refused.
    OscoreRefused {
        /// The address of the client.
        remote: SocketAddr,
        /// The reason.
        #[serde(serialize_with = "displayed")]
        reason: UnprotectError,
    },
    /// The server refused an EDHOC message, so it has no OSCORE context with the client.
    EdhocRefused {
        /// The address of the client.
        remote: SocketAddr,
        /// The reason, and a next step for the operator.
        reason: &'static str,
    },
    /// A group membership of the server has changed, or needs an action.
    Member {
        /// The name of the group.
        group: String,
        /// The change of the membership, or the action that the membership needs, and the next step for the operator.
        #[serde(serialize_with = "displayed")]
        news: MembershipEvent,
    },
    /// The server read the credentials file again.
    Reloaded {
        /// The number of identities in the credentials file.
        identities: usize,
    },
    /// The credentials file changed and cannot be used. The previous credentials remain valid, and the server reads the
    /// file again each second.
    ReloadFailed {
        /// The problem and its correction.
        #[serde(serialize_with = "displayed")]
        error: CredentialsError,
    },
    /// The server read the certificates of authorities or the revocation lists again.
    TrustReloaded,
    /// A file with certificates of authorities or a revocation list changed and cannot be used. The previous content
    /// remains valid, and the server reads the files again each second.
    TrustReloadFailed {
        /// The problem and its correction.
        #[serde(serialize_with = "displayed")]
        error: LoadError,
    },
}

/// A request and the response to it.
#[derive(Debug, Serialize)]
pub struct Answered {
    /// The address of the client.
    pub remote: SocketAddr,
    /// The identity of the client, if it has one.
    pub identity: Option<String>,
    /// The method of the request.
    #[serde(serialize_with = "named")]
    pub method: Code,
    /// The path of the requested resource, with a leading slash.
    pub path: String,
    /// The response code.
    #[serde(serialize_with = "displayed")]
    pub code: Code,
    /// The number of bytes of the request body. If the body was in blocks, this is the sum of all blocks.
    #[serde(rename = "request_bytes")]
    pub received: usize,
    /// The number of bytes of the response body. If the body was in blocks, this is the sum of all blocks.
    #[serde(rename = "response_bytes")]
    pub sent: usize,
    /// True if this event reports only one block of a transfer. Another event, in which this value is false, reports
    /// the whole transfer: the event for the last block of a request body, or the event for the first block of a
    /// response body.
    pub block: bool,
    /// The cause of a 5.xx response. The client does not receive this text.
    pub cause: Option<String>,
    /// True if the response gives a client the data of a [group observation](super::GroupObservation). Its code is 5.03,
    /// but nothing has failed.
    #[serde(skip)]
    pub informative: bool,
}

/// The severity of an event. The first variant is the most severe one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// An event that requires an action of the operator.
    Error,
    /// An event for a request that failed because of the server, or for a client that was refused.
    Warning,
    /// An event of normal sessions and requests.
    Info,
    /// The severity of an event that reports one block of a block-wise transfer, without a 5.xx response, or a response
    /// with the data of a group observation.
    Debug,
}

impl Event {
    /// Returns the severity of the event.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::TicketKeysFailed { .. }
            | Self::NotKept { .. }
            | Self::CertificateExpired { .. }
            | Self::RevocationDue { .. }
            | Self::ReloadFailed { .. }
            | Self::TrustReloadFailed { .. } => Severity::Error,
            Self::Failed { .. }
            | Self::HelloRefused { .. }
            | Self::Refused { .. }
            | Self::AnonymousInVain { .. }
            | Self::Full { .. }
            | Self::Outdated { .. }
            | Self::Context { .. }
            | Self::OscoreRefused { .. }
            | Self::EdhocRefused { .. } => Severity::Warning,
            Self::Member { news, .. } if news.needs_operator() => Severity::Error,
            Self::Member { .. }
            | Self::Established { .. }
            | Self::Restored { .. }
            | Self::Closed { .. }
            | Self::Reloaded { .. }
            | Self::TrustReloaded => Severity::Info,
            Self::Request(answered) => answered.severity(),
        }
    }

    /// Returns the name of the event and the address of the peer, if any peer can cause such events without limit
    /// before the peer is authenticated. A log should limit the number of these events. Returns `None` for all other
    /// events.
    pub const fn unlimited(&self) -> Option<(&'static str, SocketAddr)> {
        match self {
            Self::Failed { remote, .. } => Some(("failed", *remote)),
            Self::HelloRefused { remote, .. } => Some(("hello_refused", *remote)),
            Self::Refused { remote, .. } => Some(("refused", *remote)),
            Self::Context { remote, .. } => Some(("context", *remote)),
            Self::OscoreRefused { remote, .. } => Some(("oscore_refused", *remote)),
            Self::EdhocRefused { remote, .. } => Some(("edhoc_refused", *remote)),
            _ => None,
        }
    }
}

impl Event {
    /// Emits the event to the subscriber of the crate `tracing`. The text of the event is the message, and its severity
    /// is the level. But an event that a peer can cause without limit ([`Self::unlimited`]) has the level DEBUG, so
    /// that the peer cannot fill a log. Control characters in the text are escaped. A server or an endpoint calls this
    /// method for each event if it has no function for events.
    pub fn trace(&self) {
        let severity = if self.unlimited().is_some() { Severity::Debug } else { self.severity() };
        match severity {
            Severity::Error => tracing::error!("{}", printable(&self.to_string())),
            Severity::Warning => tracing::warn!("{}", printable(&self.to_string())),
            Severity::Info => tracing::info!("{}", printable(&self.to_string())),
            Severity::Debug => tracing::debug!("{}", printable(&self.to_string())),
        }
    }
}

impl Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Established { remote, identity, .. } if identity.is_empty() => {
                write!(f, "{remote} connected without an identity")
            }
            Self::Established { remote, identity, resumed } => {
                write!(f, "{remote} authenticated as {identity}{}", if *resumed { " (resumed)" } else { "" })
            }
            Self::TicketKeysFailed { error } => error.fmt(f),
            Self::Failed { remote, identity: Some(identity), reason } => {
                write!(f, "{remote} ({identity:?}): connection failed: {reason}")
            }
            Self::Failed { remote, identity: None, reason } => {
                write!(f, "{remote}: connection failed: {reason}")
            }
            Self::HelloRefused { remote, alert } => {
                write!(f, "{remote}: ClientHello refused ({}): {}", alert.name(), why_refused(*alert))
            }
            Self::Refused { remote, refusal } => write!(f, "{remote}: certificate or public key rejected: {refusal}"),
            Self::Restored { remote, identity } => write!(f, "{remote}: session of {identity} restored"),
            Self::NotKept { problem } => write!(f, "--state cannot be written: {problem}; {NOT_KEPT}"),
            Self::CertificateExpired { at } => {
                write!(f, "our certificate expired on {}, and clients refuse it: {RENEW_CERTIFICATE}", date(*at))
            }
            Self::RevocationDue { at } => {
                write!(f, "a list of --client-crl was to be replaced by {}, {RENEW_LIST}", date(*at))
            }
            Self::AnonymousInVain { remote } => write!(f, "{remote} has no certificate, {ALLOW_ANONYMOUS}"),
            Self::Closed { remote, reason } => write!(f, "{remote} disconnected ({reason})"),
            Self::Full { unanswered } => write!(f, "{unanswered} ClientHellos were not answered: {ALLOW_MORE}"),
            Self::Outdated { remote, identity } => {
                write!(f, "{remote}: session ended: {identity} has another key in the credentials now, or none")
            }
            Self::Request(answered) => answered.fmt(f),
            Self::Context { remote, problem } => {
                write!(f, "{remote}: the OSCORE context of its request cannot be used: {problem}")
            }
            Self::OscoreRefused { remote, reason } => write!(f, "{remote}: request with OSCORE refused: {reason}"),
            Self::EdhocRefused { remote, reason } => write!(f, "{remote}: EDHOC message refused: {reason}"),
            Self::Member { group, news } => write!(f, "group {group}: {news}"),
            Self::Reloaded { identities } => write!(f, "credentials reloaded: {identities} identities"),
            Self::ReloadFailed { error } => write!(f, "credentials {NOT_RELOADED}: {error}"),
            Self::TrustReloaded => f.write_str("authorities and revocation lists reloaded"),
            Self::TrustReloadFailed { error } => {
                write!(f, "authorities and revocation lists {NOT_RELOADED}: {error}")
            }
        }
    }
}

const NOT_KEPT: &str = "sessions that use up their record numbers before it can are closed";
const RENEW_CERTIFICATE: &str = "replace it (`tegmen ca issue`), then send SIGHUP";
const RENEW_LIST: &str = "and clients of its CA are refused: replace it (`tegmen ca crl`)";
const ALLOW_ANONYMOUS: &str = "and such clients may do nothing here: give them rights with --anonymous 'GET /*', or with \
     [anonymous] in the credentials";
const ALLOW_MORE: &str =
    "all places for handshakes or peers are taken; allow more with --max-handshakes or --max-peers";
const NOT_RELOADED: &str = "not reloaded, the old ones stay in force, next try in a second";

impl Answered {
    const fn severity(&self) -> Severity {
        match (self.code.class(), self.block) {
            _ if self.informative => Severity::Debug,
            (5, _) => Severity::Warning,
            (_, true) => Severity::Debug,
            (_, false) => Severity::Info,
        }
    }
}

impl Display for Answered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.identity.as_deref().filter(|name| !name.is_empty());
        let (named, path) = (named.unwrap_or("a client without identity"), encoded_path(&self.path));
        write!(f, "{} ({named}) {} {path}: {}", self.remote, self.method.name(), self.code)?;
        match self.received.max(self.sent) {
            0 => {}
            bytes => write!(f, ", {bytes} bytes")?,
        }
        if self.block {
            f.write_str(" (block)")?;
        }
        self.cause.as_ref().map_or(Ok(()), |cause| write!(f, " ({cause})"))
    }
}

/// Returns the reason why a ClientHello is refused with this alert, and the next step for the operator.
const fn why_refused(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::HANDSHAKE_FAILURE => {
            "the client offers no cipher suite of this server, or lacks what the suite needs; compare --suites of both, and \
             whether the client has a pre-shared key where certificates are served, or the reverse; a delegated device also \
             refuses sessions that were revoked or have ended so"
        }
        AlertDescription::UNSUPPORTED_CERTIFICATE => {
            "the client takes or shows another type of certificate: give both sides certificates, or both raw public keys"
        }
        AlertDescription::PROTOCOL_VERSION => {
            "the client does not offer DTLS 1.2; update it, or switch DTLS 1.2 on there"
        }
        _ => "the ClientHello violates the standard; capture it with tshark to see what it offers",
    }
}

fn displayed<S: Serializer>(value: &impl Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

fn dated<S: Serializer>(at: &SystemTime, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&date(*at))
}

fn named<S: Serializer>(method: &Code, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(method.name())
}

fn alert_and_reason<S: Serializer>(alert: &AlertDescription, to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(2))?;
    map.serialize_entry("alert", alert.name())?;
    map.serialize_entry("reason", why_refused(*alert))?;
    map.end()
}

#[cfg(test)]
mod tests;
