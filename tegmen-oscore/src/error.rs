//! The errors of protection.

use tegmen_base::buf::Full;
use tegmen_coap::BuildError;

/// The reason why a message cannot be protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtectError {
    /// The lease of numbers is used up: keep a new end, extend the lease, and protect the message then.
    LeaseSpent,
    /// All 2^40 numbers are used up: make a new context (RFC 8613, section 7.2.1).
    Exhausted,
    /// The frame has too few free bytes in front or behind.
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
