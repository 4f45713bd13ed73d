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

/// Takes the events of a server.
pub(crate) type EventSink = Arc<dyn Fn(Event) + Send + Sync>;

/// An event of the server, for its operator. It contains no secret.
///
/// `Display` gives one sentence; it contains names that peers chose, so escape control characters before a terminal
/// shows it. `Serialize` gives a map with the name of the event in `event` and one entry for each field.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A session began.
    Established {
        /// The address of the client.
        remote: SocketAddr,
        /// The identity of the client.
        identity: String,
        /// True if the client resumed an earlier session.
        resumed: bool,
    },
    /// The file of ticket keys cannot be used any more; those that are known stay in force.
    TicketKeysFailed {
        /// The problem and its correction.
        #[serde(serialize_with = "displayed")]
        error: TicketKeyError,
    },
    /// A handshake or a session ended otherwise than in order.
    Failed {
        /// The address of the client.
        remote: SocketAddr,
        /// The identity that the client sent; `None` if the handshake ended before that.
        identity: Option<String>,
        /// The reason.
        #[serde(serialize_with = "displayed")]
        reason: Fatal,
    },
    /// The server refused a ClientHello, and there is no handshake. The client proved its address, or showed a ticket
    /// of this server.
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
        /// The reason and a next step.
        #[serde(rename = "reason", serialize_with = "displayed")]
        refusal: Refusal,
    },
    /// A session continues that began before the start of the server.
    Restored {
        /// The address of the client.
        remote: SocketAddr,
        /// The identity of the client.
        identity: String,
    },
    /// The database of [`ServerConfig::state`](super::ServerConfig::state) cannot be written, so the record numbers of
    /// sessions cannot be extended. The server tries again with each record; it closes a session that has no numbers left.
    NotKept {
        /// The problem.
        problem: String,
    },
    /// A certificate that the server shows has expired: clients refuse it. Reported once for each certificate.
    CertificateExpired {
        /// The time.
        #[serde(serialize_with = "dated")]
        at: SystemTime,
    },
    /// A list of revoked clients is overdue: clients of that CA are refused until it is replaced. Reported once for each
    /// list.
    RevocationDue {
        /// The time by which the list was to be replaced.
        #[serde(serialize_with = "dated")]
        at: SystemTime,
    },
    /// A client without a certificate or key connected, and such clients may do nothing. Reported once.
    AnonymousInVain {
        /// Address of the client.
        remote: SocketAddr,
    },
    /// A session ended in order or was idle for too long; one that a new session of the same address replaced ends without
    /// an event.
    Closed {
        /// The address of the client.
        remote: SocketAddr,
        /// The reason.
        #[serde(serialize_with = "displayed")]
        reason: Fatal,
    },
    /// ClientHellos were not answered, because all places for handshakes, or for peers, were taken.
    Full {
        /// ClientHellos since the last such event; clients repeat theirs.
        unanswered: u32,
    },
    /// The server ended a session because the key that its peer proved is not in the credentials any more.
    Outdated {
        /// The address of the client.
        remote: SocketAddr,
        /// The identity of the client.
        identity: String,
    },
    /// A request was answered.
    Request(Answered),
    /// A request named an OSCORE context that cannot be used.
    Context {
        /// The address of the client.
        remote: SocketAddr,
        /// The problem.
        #[serde(serialize_with = "displayed")]
        problem: ContextError,
    },
    /// A membership of the server has changed, or needs something.
    Member {
        /// The name of the group.
        group: String,
        /// The news, and the next step of the operator.
        #[serde(serialize_with = "displayed")]
        news: MembershipEvent,
    },
    /// The credentials file was read again.
    Reloaded {
        /// The number of identities in it.
        identities: usize,
    },
    /// The credentials file changed and cannot be used. The old credentials stay in force, and the file is read again each
    /// second.
    ReloadFailed {
        /// The problem and its correction.
        #[serde(serialize_with = "displayed")]
        error: CredentialsError,
    },
    /// Certificates of authorities or revocation lists were read again.
    TrustReloaded,
    /// One of those files changed and cannot be used. The old content stays in force, and the server reads the files
    /// again each second.
    TrustReloadFailed {
        /// The problem and its correction.
        #[serde(serialize_with = "displayed")]
        error: LoadError,
    },
}

/// A request and its answer.
#[derive(Debug, Serialize)]
pub struct Answered {
    /// The address of the client.
    pub remote: SocketAddr,
    /// The identity of the client, if it has one.
    pub identity: Option<String>,
    /// The method of the request.
    #[serde(serialize_with = "named")]
    pub method: Code,
    /// Path with a slash in front.
    pub path: String,
    /// The response code.
    #[serde(serialize_with = "displayed")]
    pub code: Code,
    /// Bytes of the request's body: of all its blocks, if it came in blocks.
    #[serde(rename = "request_bytes")]
    pub received: usize,
    /// Bytes of the response's body: of all its blocks, if it is sent in blocks.
    #[serde(rename = "response_bytes")]
    pub sent: usize,
    /// True for a block of a transfer that another event reports as a whole: the one of the last block of a request body,
    /// or of the first block of a response.
    pub block: bool,
    /// The cause of a 5.xx. The client does not receive it.
    pub cause: Option<String>,
}

/// The severity of an event, most severe first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The operator has to act.
    Error,
    /// A request failed because of the server, or a client was refused.
    Warning,
    /// Sessions and requests.
    Info,
    /// Single blocks of a block-wise transfer.
    Debug,
}

impl Event {
    /// Returns the severity.
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
            | Self::Context { .. } => Severity::Warning,
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

    /// Returns the name of the event and the address of its peer, if a peer that has proved nothing can cause such events
    /// without limit. A log should limit their number.
    pub const fn unlimited(&self) -> Option<(&'static str, SocketAddr)> {
        match self {
            Self::Failed { remote, .. } => Some(("failed", *remote)),
            Self::HelloRefused { remote, .. } => Some(("hello_refused", *remote)),
            Self::Refused { remote, .. } => Some(("refused", *remote)),
            Self::Context { remote, .. } => Some(("context", *remote)),
            _ => None,
        }
    }
}

impl Event {
    /// Emits the event to the subscriber of the crate `tracing`: its text as message, at the level of its severity. An event that
    /// a peer can cause without limit ([`Self::unlimited`]) has the level DEBUG, so that such a peer does not fill a log.
    /// Control characters are escaped. A server and an endpoint without a function for events call this.
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

/// The reason why a ClientHello is refused with this alert, and a next step.
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
