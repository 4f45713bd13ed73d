//! Enrolment of a device by a one-time key.
//!
//! An operator creates the key for the name of a device, with its tags and the kind of its credential. The device opens a session
//! with a key that both ends derive from the one-time key, and sends its credential with a proof, which is derived as well. The
//! server keeps the key of the session, sealed, and a hash of the proof. So a copy of its database, even with the sealing key,
//! registers no device. A one-time key registers one device.
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

/// The path of enrolment, without a slash in front.
pub const ENROL: &str = "enrol";
/// Longest name of a device that enrols, in bytes: its PSK identity has at most 128.
pub const MAX_NAME: usize = 120;
/// Content-Format of the request.
pub const CBOR: u16 = 60;
const IDENTITY: &str = "enrol ";
const KEY_LEN: usize = 32;
/// Longest request in bytes.
const MAX_REQUEST: usize = 256;

/// A key with which one device registers its credential, once. It is wiped on drop.
pub struct OneTimeKey {
    name: String,
    secret: Secret<KEY_LEN>,
}

impl OneTimeKey {
    /// Takes 32 random bytes as the key for the device of this name.
    pub fn new(name: &str, secret: Secret<KEY_LEN>) -> Self {
        Self { name: name.to_owned(), secret }
    }

    /// Reads a key as [`Self::text`] writes it; `None` if it is none.
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

    /// The key as one line of text, which the operator gives to the device.
    pub fn text(&self) -> Zeroizing<String> {
        let digits = Zeroizing::new(to_hex(self.secret.expose()));
        Zeroizing::new(format!("{};{}", self.name, *digits))
    }

    /// The name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key of the session in which the device enrols.
    pub fn session_key<C: Crypto>(&self) -> Secret<DIGEST_LEN> {
        self.derive::<C>(b"tegmen enrolment session")
    }

    /// The proof that the sender of the request has this key.
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

/// The PSK identity of the session in which the device of this name enrols.
pub fn identity(name: &str) -> String {
    format!("{IDENTITY}{name}")
}

/// The name of the device that enrols under a PSK identity; `None` if the identity is of another purpose.
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
    /// Reads a request; `None` if the bytes are none.
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

    /// Writes the request that registers a credential of this kind: the SHA-256 of a certificate or public key, or a secret. The
    /// bytes are wiped on drop.
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
        debug_assert!(written.is_ok(), "memory takes all bytes");
        bytes
    }
}

#[cfg(test)]
mod tests;
