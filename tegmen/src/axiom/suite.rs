//! The cipher suites of groups (Axiom paper, section 5.3).

use crate::crypto::hash::DIGEST_LEN;
use crate::crypto::{Crypto, KEY_LEN};
use crate::dtls::record::{EXPLICIT_LEN, GCM_TAG_LEN, HEADER_LEN, TAG_LEN};

/// The protection of all records of a group. Each variant has the protection of the DTLS cipher suite that its
/// description names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Suite {
    /// TLS_PSK_WITH_AES_128_CCM (RFC 6655): a tag of 16 bytes. Use this suite unless you have a reason for another
    /// suite.
    Ccm,
    /// TLS_PSK_WITH_AES_128_CCM_8 (RFC 6655): a tag of 8 bytes. Anybody can send records to a group, and a group does
    /// not limit the number of records that fail to open. So an outsider can try as many records as the network can
    /// carry, and each of these records succeeds with a probability of 2^-64.
    Ccm8,
    /// TLS_PSK_WITH_AES_128_GCM_SHA256 (RFC 5487): a tag of 16 bytes.
    Gcm,
    /// TLS_PSK_WITH_NULL_SHA256 (RFC 5487): an HMAC of 32 bytes. **This suite does not encrypt**: anybody can read
    /// the content.
    MacOnly,
}

impl Suite {
    /// Returns the number of bytes of a key. It is the key of the cipher or of the HMAC (RFC 5246, section 6.3).
    pub(super) const fn key_len(self) -> usize {
        if self.encrypts() { KEY_LEN } else { DIGEST_LEN }
    }

    pub(super) const fn encrypts(self) -> bool {
        !matches!(self, Self::MacOnly)
    }

    /// True if the crypto provider supports the suite.
    pub(super) const fn is_in<C: Crypto>(self) -> bool {
        !matches!(self, Self::Gcm) || C::AES_128_GCM.is_some()
    }

    /// Returns the number of bytes between the header and the content. They are the explicit part of the nonce. The
    /// number is 0 for a suite without a cipher.
    pub(super) const fn explicit_len(self) -> usize {
        if self.encrypts() { EXPLICIT_LEN } else { 0 }
    }

    /// Returns the number of bytes before the content of a record, including the header.
    pub(super) const fn headroom(self) -> usize {
        HEADER_LEN.wrapping_add(self.explicit_len())
    }

    /// Returns the number of bytes of the tag, which follows the content of a record.
    pub(super) const fn tag_len(self) -> usize {
        match self {
            Self::Ccm | Self::Gcm => GCM_TAG_LEN,
            Self::Ccm8 => TAG_LEN,
            Self::MacOnly => DIGEST_LEN,
        }
    }
}
