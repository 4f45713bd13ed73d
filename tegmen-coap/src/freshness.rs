//! The proof that a peer receives datagrams at its current address. The peer gives this proof with the Echo option (RFC
//! 9175, section 2).

use super::message::MessageRef;
use super::option::OptionNumber;
use tegmen_base::secret;

/// The proof that a peer receives datagrams at the source address of its messages, and that its requests are not
/// replays.
#[derive(Clone, Copy, Debug)]
pub struct Freshness {
    echo: [u8; 8],
    is_shown: bool,
    verifies_address: bool,
}

/// Maximum number of response bytes for each byte of the request, as long as the peer has not proved that it receives
/// datagrams at its address (RFC 9175, section 2.4).
const AMPLIFICATION: usize = 3;

impl Freshness {
    /// Makes the state of a peer that has proved nothing. The peer must repeat `echo`, which the caller draws at
    /// random.
    pub const fn new(echo: [u8; 8]) -> Self {
        Self { echo, is_shown: false, verifies_address: false }
    }

    /// Sets whether an unprotected peer must prove its address. If so, this endpoint does not execute a request that
    /// changes a resource until the peer has given the proof. Before the proof, a response has at most 3 bytes for each
    /// byte of its request.
    pub const fn verify_address(&mut self, verifies_address: bool) {
        self.verifies_address = verifies_address;
    }

    /// Returns true after the peer has repeated the value of the Echo option.
    pub const fn is_shown(&self) -> bool {
        self.is_shown
    }

    /// Returns the value of the Echo option in a challenge.
    pub const fn echo(&self) -> &[u8; 8] {
        &self.echo
    }

    /// Returns false if the request must be answered with a challenge. `is_unverified` is true if the request may be
    /// a replay, and `is_plain` if it is unprotected.
    #[inline]
    pub fn admits(&mut self, request: &MessageRef<'_>, is_unverified: bool, is_plain: bool) -> bool {
        let is_unproven = is_plain && self.verifies_address;
        if self.is_shown || !is_unverified && !is_unproven {
            return true;
        }
        self.is_shown = request.option(OptionNumber::ECHO).is_some_and(|echo| secret::same(echo, &self.echo));
        self.is_shown || !is_unverified && request.code().is_safe()
    }

    /// Returns false if a response of `len` bytes is too long for a peer that has not proved its address. `is_plain` is
    /// true if the request is unprotected, and `request_len` is the length of the request in bytes.
    #[inline]
    pub const fn allows(&self, is_plain: bool, request_len: usize, len: usize) -> bool {
        let is_unproven = is_plain && self.verifies_address && !self.is_shown;
        !is_unproven || len <= request_len.saturating_mul(AMPLIFICATION)
    }
}

#[cfg(test)]
mod tests;
