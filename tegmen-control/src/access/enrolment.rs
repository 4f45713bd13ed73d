//! Enrolment of a device by a one-time key.
//!
//! An operator creates a one-time key for the name of a device, together with the tags of the device and the kind of
//! its credential. The device opens a session with a key that both endpoints derive from the one-time key. In this
//! session the device sends its credential with a proof, which is also derived from the one-time key. The server stores
//! the key of the session encrypted, but only a hash of the proof. So a copy of the database does not suffice to
//! register a device, even together with the key that decrypts the database. A one-time key registers one device.
//!
//! ```text
//! one-time key     = NAME ";" 64 hexadecimal digits
//! PSK identity     = "enrol " NAME
//! key              = HMAC-SHA-256(one-time key, "tegmen enrolment session")
//! proof            = HMAC-SHA-256(one-time key, "tegmen enrolment proof")
//! POST /enrol      application/cbor (60): [proof, kind, SHA-256 of a certificate or public key, or a secret]
//! ```

use minicbor::{Decoder, Encoder};
use std::fmt;
use tegmen_base::crypto::hash::HmacKey;
use tegmen_base::crypto::{Crypto, DIGEST_LEN};
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_base::secret::Secret;
use zeroize::Zeroizing;

/// The path of enrolment, without the first slash.
pub const ENROL: &str = "enrol";
/// Maximum number of bytes of the name of a device that enrols. The PSK identity for the enrolment consists of a prefix
/// and this name, and has at most 128 bytes.
pub const MAX_NAME: usize = 120;
/// The Content-Format of the request: `application/cbor`.
pub const CBOR: u16 = 60;
const IDENTITY: &str = "enrol ";
const KEY_LEN: usize = 32;
/// Maximum number of bytes of a request.
const MAX_REQUEST: usize = 256;

/// A key with which one device registers its credential once. The key is wiped on drop.
pub struct OneTimeKey {
    name: String,
    secret: Secret<KEY_LEN>,
}

impl OneTimeKey {
    /// Makes the one-time key for the device of this name from 32 random bytes.
    pub fn new(name: &str, secret: Secret<KEY_LEN>) -> Self {
        Self { name: name.to_owned(), secret }
    }

    /// Reads a key in the format of [`Self::text`]. Returns `None` if the text is no such key.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, digits) = text.rsplit_once(';')?;
        let bytes = Zeroizing::new(from_hex(digits)?);
        let mut secret = Secret::zeroed();
        if name.is_empty() || name.len() > MAX_NAME || bytes.len() != KEY_LEN {
            return None;
        }
        secret.expose_mut().copy_from_slice(&bytes);
        Some(Self { name: name.to_owned(), secret })
    }

    /// Returns the key as one line of text, which the operator gives to the device.
    pub fn text(&self) -> Zeroizing<String> {
        let digits = Zeroizing::new(to_hex(self.secret.expose()));
        Zeroizing::new(format!("{};{}", self.name, *digits))
    }

    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the key of the session in which the device enrols.
    pub fn session_key<C: Crypto>(&self) -> Secret<DIGEST_LEN> {
        self.derive::<C>(b"tegmen enrolment session")
    }

    /// Returns the proof for the request to enrol. The proof shows that the sender of the request has this one-time
    /// key.
    pub fn proof<C: Crypto>(&self) -> Secret<DIGEST_LEN> {
        self.derive::<C>(b"tegmen enrolment proof")
    }

    fn derive<C: Crypto>(&self, label: &[u8]) -> Secret<DIGEST_LEN> {
        let mut derived = Secret::zeroed();
        HmacKey::new::<C>(&[self.secret.expose()]).mac_into::<C>(&[label], derived.expose_mut());
        derived
    }
}

impl fmt::Debug for OneTimeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OneTimeKey({})", self.name)
    }
}

/// Returns the PSK identity with which the device of this name opens the session for its enrolment.
pub fn identity(name: &str) -> String {
    format!("{IDENTITY}{name}")
}

/// Returns the name of the device that enrols with a PSK identity; `None` if the identity has another purpose.
pub fn name_of(identity: &str) -> Option<&str> {
    identity.strip_prefix(IDENTITY)
}

/// A request to enrol.
pub struct Request<'r> {
    pub(crate) proof: &'r [u8],
    pub(crate) kind: &'r str,
    pub(crate) value: &'r [u8],
}

impl<'r> Request<'r> {
    /// Reads a request; returns `None` if the bytes are no request.
    pub(crate) fn parse(bytes: &'r [u8]) -> Option<Self> {
        if bytes.len() > MAX_REQUEST {
            return None;
        }
        let mut decoder = Decoder::new(bytes);
        if decoder.array().ok()? != Some(3) {
            return None;
        }
        let (proof, kind, value) = (decoder.bytes().ok()?, decoder.str().ok()?, decoder.bytes().ok()?);
        (decoder.position() == bytes.len()).then_some(Self { proof, kind, value })
    }

    /// Encodes the request that registers a credential of this kind. `value` is the SHA-256 of a certificate or public
    /// key, or a secret. The returned bytes are wiped on drop.
    pub fn encode<C: Crypto>(key: &OneTimeKey, kind: &str, value: &[u8]) -> Zeroizing<Vec<u8>> {
        let proof = key.proof::<C>();
        // It never outgrows this, so that no copy of a secret remains.
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_REQUEST));
        let mut encoder = Encoder::new(&mut *bytes);
        let written = encoder
            .array(3)
            .and_then(|encoder| encoder.bytes(proof.expose()))
            .and_then(|encoder| encoder.str(kind))
            .and_then(|encoder| encoder.bytes(value));
        debug_assert!(written.is_ok(), "a write to memory does not fail");
        bytes
    }
}

#[cfg(test)]
mod tests;
