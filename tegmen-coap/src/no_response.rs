//! The No-Response option (RFC 7967).

use super::code::Code;
use super::message::MessageRef;
use super::option::OptionNumber;

/// The classes of responses that a client does not want (RFC 7967, section 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoResponse(u32);

impl NoResponse {
    /// The client wants no response of any class: 2, 4 or 5.
    pub const ALL: Self = Self(0b1_1010);

    /// Reads the option of a request. Without the option, the client wants every response.
    pub fn of(request: &MessageRef<'_>) -> Self {
        Self(request.uint(OptionNumber::NO_RESPONSE).unwrap_or(0))
    }

    /// Returns the value of the option.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Returns true if the client does not want a response with this code.
    pub fn suppresses(self, code: Code) -> bool {
        let class = u32::from(code.class()).saturating_sub(1);
        code.is_response() && self.0.checked_shr(class).unwrap_or(0) & 1 == 1
    }

    /// Returns true if the client wants no response at all, whatever code the response has.
    pub const fn suppresses_all(self) -> bool {
        self.0 & Self::ALL.0 == Self::ALL.0
    }
}
