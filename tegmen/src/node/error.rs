//! The reason why a message was not sent.

use crate::axiom::SealRefused;
use crate::coap::BuildError;
use crate::coap::Busy;
use crate::endpoint::Misuse;
use crate::oscore::ProtectError;

/// The reason why a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// The node cannot send the message now, and has no memory in which the message can wait. One of these limits is
    /// reached: NSTART (RFC 7252, section 4.7), the memory for exchanges, or PROBING_RATE for messages without
    /// acknowledgement. Try again later, for example after an exchange has ended.
    Busy,
    /// The message is longer than the memory for retransmissions allows.
    TooLong,
    /// DTLS cannot protect the message.
    Misuse(Misuse),
    /// OSCORE cannot protect the message.
    Oscore(ProtectError),
    /// Axiom cannot protect the message for its group.
    Group(SealRefused),
}

impl From<SealRefused> for SendError {
    fn from(refused: SealRefused) -> Self {
        Self::Group(refused)
    }
}

impl From<ProtectError> for SendError {
    fn from(error: ProtectError) -> Self {
        Self::Oscore(error)
    }
}

impl From<Busy> for SendError {
    fn from(busy: Busy) -> Self {
        match busy {
            Busy::Outstanding => Self::Busy,
            Busy::TooLong => Self::TooLong,
        }
    }
}

impl From<BuildError> for SendError {
    fn from(_: BuildError) -> Self {
        Self::TooLong
    }
}

impl From<Misuse> for SendError {
    fn from(misuse: Misuse) -> Self {
        Self::Misuse(misuse)
    }
}
