//! The errors of protection, and the texts of all errors, which name the cause and, where the owner can act, the next step.

use super::option::BadOption;
use super::unprotect::UnprotectError;
use core::error::Error;
use core::fmt::{self, Display, Formatter};
use tegmen_base::buf::Full;
use tegmen_coap::BuildError;

/// The reason why a message cannot be protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtectError {
    /// The lease of numbers is used up: keep a new end, extend the lease, and protect the message then.
    LeaseSpent,
    /// All 2^40 numbers are used up: a new context is due (RFC 8613, section 7.2.1).
    Exhausted,
    /// The frame has no room in front or behind.
    Full,
    /// The frame holds no message, or one that is protected already.
    Malformed,
    /// The provider does not have the algorithm.
    Unsupported,
}

impl From<Full> for ProtectError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl From<BuildError> for ProtectError {
    fn from(_: BuildError) -> Self {
        Self::Full
    }
}

impl Display for BadOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("the OSCORE option is not valid")
    }
}

impl Error for BadOption {}

impl Display for ProtectError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseSpent => "the lease of sender sequence numbers is used up; keep a new end and extend the lease",
            Self::Exhausted => "all sender sequence numbers are used up; derive a new OSCORE context",
            Self::Full => "the message is longer than its buffer",
            Self::Malformed => "the frame holds no message, or one that is protected already",
            Self::Unsupported => "the crypto provider does not have the algorithm",
        })
    }
}

impl Error for ProtectError {}

impl Display for UnprotectError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unprotected => "the message is not protected",
            Self::BadOption => "the OSCORE option is not valid, or lacks what a request must have",
            Self::UnknownContext => "the message names an OSCORE context that is unknown",
            Self::Replayed => "the number of the message was used before, or is too old",
            Self::NotAuthentic => "the message does not authenticate; compare the keys of both sides",
            Self::Malformed => "the message is authentic, but its content is not valid",
            Self::UnknownMember => {
                "the sender is no known member of the group; ask the Group Manager for its credential"
            }
            Self::TooManyMembers => {
                "more members of the group answered than there are places for; give the request more places"
            }
        })
    }
}

impl Error for UnprotectError {}
