//! The reason why a message was not sent.

use crate::axiom::SealRefused;
use crate::coap::BuildError;
use crate::coap::Busy;
use crate::endpoint::Misuse;
use crate::oscore::ProtectError;

/// The reason why a message was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendError {
    /// As many exchanges with the peer are open as NSTART allows (RFC 7252, section 4.7), or as there is space for, or
    /// PROBING_RATE does not allow a message without acknowledgement yet; and no further message can wait. Wait for an
    /// exchange to end.
    Busy,
    /// The message is longer than what can be kept for retransmission.
    TooLong,
    /// The message cannot be protected.
    Misuse(Misuse),
    /// The message cannot be protected with OSCORE.
    Oscore(ProtectError),
    /// The message cannot be protected for its group.
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
