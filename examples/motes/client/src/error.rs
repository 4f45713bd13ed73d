//! The errors of the client.

use core::fmt::{self, Display, Formatter};
use tegmen::dtls::Fatal;
use tegmen::endpoint::TableFull;
use tegmen::node::SendError;

/// The reason why a session cannot be opened, or why a request has no response.
#[derive(Debug)]
pub enum Error {
    /// The memory has no space for the session.
    Full(TableFull),
    /// The handshake failed, or the session ended.
    Closed(Fatal),
    /// The request was not sent.
    NotSent(SendError),
    /// The server rejected the request with a Reset (RFC 7252, section 4.2).
    Rejected,
    /// The server did not respond to any transmission of the request.
    NoResponse,
    /// The payload of the response is longer than [`PAYLOAD_LEN`](crate::PAYLOAD_LEN).
    LongResponse,
}

impl Display for Error {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(error) => error.fmt(f),
            Self::Closed(Fatal::TimedOut { after_finished: false }) => {
                f.write_str("the server does not answer; check its address, and that it runs")
            }
            Self::Closed(reason @ Fatal::Alert(_)) => {
                write!(f, "no session: {reason}; compare identity and key with those of the server")
            }
            Self::Closed(reason) => write!(f, "no session: {reason}"),
            Self::NotSent(error) => error.fmt(f),
            Self::Rejected => {
                f.write_str("the server rejected the request with a Reset; it does not serve CoAP requests")
            }
            Self::NoResponse => f.write_str("the server did not respond to the request; check that it still runs"),
            Self::LongResponse => f.write_str("the response is longer than the buffer for it; raise PAYLOAD_LEN"),
        }
    }
}

impl core::error::Error for Error {}
