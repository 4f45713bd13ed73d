//! The proof that a peer receives at its address now, by the Echo option (RFC 9175, section 2).

use super::message::MessageRef;
use super::option::OptionNumber;
use tegmen_base::secret;

/// The proof that a peer is where its messages come from, and that its requests are no replays.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    echo: [u8; 8],
    is_shown: bool,
    verifies_address: bool,
}

/// The most bytes that a response may have for each byte of its request, if nobody has shown to receive at the address that
/// it goes to (RFC 9175, section 2.4).
const AMPLIFICATION: usize = 3;

impl Freshness {
    /// A peer that has shown nothing. It has to repeat `echo`, which is drawn at random.
    pub const fn new(echo: [u8; 8]) -> Self {
        Self { echo, is_shown: false, verifies_address: false }
    }

    /// Sets whether a peer in clear has to show that it receives at its address before a request changes something, and
    /// before it is sent more than 3 bytes for each byte of its request.
    pub const fn verify_address(&mut self, verifies_address: bool) {
        self.verifies_address = verifies_address;
    }

    /// Returns true once the peer has repeated the value.
    pub const fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Returns the value of the Echo option in a challenge.
    pub const fn echo(&self) -> &[u8; 8] {
        &self.echo
    }

    /// Returns false if the request must be answered with a challenge. `is_unverified` is true if it may be a replay, and
    /// `is_plain` if nothing protects it.
    #[inline]
    pub fn admits(&mut self, request: &MessageRef<'_>, is_unverified: bool, is_plain: bool) -> bool {
        let is_unproven = is_plain && self.verifies_address;
        if self.is_shown || !is_unverified && !is_unproven {
            return true;
        }
        self.is_shown = request.option(OptionNumber::ECHO).is_some_and(|echo| secret::same(echo, &self.echo));
        self.is_shown || !is_unverified && request.code().is_safe()
    }

    /// Returns false if a response of `len` bytes is too long for an address that nobody has shown to be at.
    #[inline]
    pub const fn allows(&self, is_plain: bool, request_len: usize, len: usize) -> bool {
        let is_unproven = is_plain && self.verifies_address && !self.is_shown;
        !is_unproven || len <= request_len.saturating_mul(AMPLIFICATION)
    }
}

#[cfg(test)]
mod tests;
