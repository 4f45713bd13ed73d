//! The errors of the protection of messages.

use tegmen_base::buf::Full;
use tegmen_coap::BuildError;

/// The reason why a message cannot be protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtectError {
    /// All reserved sequence numbers are used. Store a higher end of the reserved range durably, extend the range with
    /// [`Lease::extend`](crate::Lease::extend), and then protect the message.
    LeaseSpent,
    /// All sequence numbers that this endpoint may use with its key are used. Make a new context (RFC 8613, section
    /// 7.2.1). There are 2^40 numbers, or 2^31 with AES-GCM, because a key of AES-GCM encrypts at most 2^32 messages
    /// (RFC 9053, section 4.1.1).
    Exhausted,
    /// The frame has too few free bytes in front of the message or after it.
    Full,
    /// The frame contains no message, or a message that is already protected.
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
