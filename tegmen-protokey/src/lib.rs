//! Keys of sessions and of content that are derived from protokeys (T. Kothmayr and others, "A DTLS Based End-To-End
//! Security Architecture for the Internet of Things with Two-Way Authentication", section IV).
//!
//! A publisher without public-key cryptography shares a *protokey* only with the access control server. For each
//! session the publisher makes a [`SessionIdentity`], derives the pre-shared key of the session from this identity, and
//! sends the identity in the handshake. The subscriber requests the key of this identity from the access control
//! server. If the subscriber knows the key, the publisher knows that the access control server trusts the subscriber.
//!
//! In the paper the key depends only on the session identity. So a subscriber that has the key of a session can send
//! the identity of this session to another subscriber, and pretend to be the publisher. By default, this crate also
//! derives the key from the name of the subscriber, so the other subscriber gets another key for this identity.
//! [`Mode::Paper`] derives the key as in the paper, for publishers that cannot be changed. Other subscribers are then
//! protected only if the access control server accepts each session identity once.
//!
//! Publishers on motes and the server use this crate. The crate needs neither an operating system nor a heap.

#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

#[cfg(test)]
extern crate std;

use core::fmt;
use tegmen_base::buf::Writer;
use tegmen_base::crypto::hash::HmacKey;
use tegmen_base::crypto::{Crypto, DIGEST_LEN, KEY_LEN};
use tegmen_base::hex::digits;
use tegmen_base::secret::{Secret, same};

/// Longest session identity in bytes (RFC 4279, section 5.3).
pub const MAX_IDENTITY: usize = 128;
/// Longest name of a publisher in bytes.
pub const MAX_PUBLISHER: usize = 64;
/// Number of random bytes in an identity that [`SessionIdentity::write`] writes.
pub const NONCE_LEN: usize = 12;
/// Minimum number of characters after the semicolon of a session identity. In base64url they encode 9 random bytes.
const MIN_NONCE: usize = 12;
/// Minimum number of bytes of a protokey.
const PROTOKEY_MIN: usize = 16;
/// Maximum number of bytes of a protokey.
const PROTOKEY_MAX: usize = 64;

/// The identity of a session or of a content key: the name of the publisher, `;`, and at least 9 random bytes as
/// base64url without padding (RFC 4648, section 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionIdentity<'a> {
    text: &'a str,
    publisher: &'a str,
}

impl<'a> SessionIdentity<'a> {
    /// Reads an identity. Returns `None` if the bytes are not an identity. The name has 1 to 64 of the characters
    /// `0-9A-Za-z:._-`. The identity has at most 128 bytes. It consists of printable ASCII characters, so every DTLS
    /// library can handle it as text.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let text = core::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_IDENTITY)?;
        let (publisher, nonce) = text.split_once(';')?;
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_name = |byte: u8| is_base64(byte) || matches!(byte, b':' | b'.');
        let right = (1..=MAX_PUBLISHER).contains(&publisher.len())
            && all_are(publisher, is_name)
            && nonce.len() >= MIN_NONCE
            && nonce.len() % 4 != 1
            && all_are(nonce, is_base64);
        right.then_some(Self { text, publisher })
    }

    /// Writes the identity of a session of this publisher. The random bytes `nonce` follow the semicolon as hexadecimal
    /// digits, which are also characters of base64url. Returns `None` if [`Self::parse`] does not accept the name
    /// `publisher`.
    pub fn write(publisher: &str, nonce: &[u8; NONCE_LEN], buffer: &'a mut [u8; MAX_IDENTITY]) -> Option<Self> {
        let mut writer = Writer::new(buffer);
        writer.put(publisher.as_bytes()).ok()?;
        writer.u8(b';').ok()?;
        for byte in nonce {
            writer.put(&digits(*byte)).ok()?;
        }
        let len = writer.written().len();
        Self::parse(buffer.get(..len)?)
    }

    /// Returns the name of the publisher.
    pub const fn publisher(&self) -> &'a str {
        self.publisher
    }

    /// Returns the whole identity.
    pub const fn as_str(&self) -> &'a str {
        self.text
    }
}

/// Returns true if `is` is true for all bytes of `text`. On hosts the loop has no early end, so that the processor can
/// examine several bytes at once. On motes this would take more code.
fn all_are(text: &str, is: impl Fn(u8) -> bool) -> bool {
    if usize::BITS >= 64 { text.bytes().fold(true, |all, byte| all & is(byte)) } else { text.bytes().all(is) }
}

impl fmt::Display for SessionIdentity<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text)
    }
}

/// The way in which a key depends on the subscriber.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The key is also derived from the name of the subscriber, so that it is useless to other subscribers.
    #[default]
    Bound,
    /// As in the paper, the key does not depend on the name of the subscriber. See the [module](self).
    Paper,
}

/// The secret of a publisher: 16 to 64 random bytes, wiped on drop.
pub struct Protokey {
    bytes: Secret<PROTOKEY_MAX>,
    len: usize,
}

impl Protokey {
    /// Makes a protokey of these bytes. Returns `None` for fewer than 16 or more than 64 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut protokey = Self { bytes: Secret::zeroed(), len: bytes.len() };
        protokey
            .bytes
            .expose_mut()
            .get_mut(..bytes.len())
            .filter(|_| bytes.len() >= PROTOKEY_MIN)?
            .copy_from_slice(bytes);
        Some(protokey)
    }

    /// Returns the bytes, for a store that encrypts them.
    pub fn expose(&self) -> &[u8] {
        self.bytes.expose().get(..self.len).unwrap_or(&[])
    }

    /// Derives the pre-shared key of a session with this subscriber. The key is an HMAC-SHA-256 with the protokey as
    /// its key. The message of the HMAC is the session identity, a zero byte and the name of the subscriber. In
    /// [`Mode::Paper`] the message is only the session identity.
    pub fn session_key<C: Crypto>(
        &self,
        mode: Mode,
        identity: SessionIdentity<'_>,
        subscriber: &str,
    ) -> Secret<DIGEST_LEN> {
        let key = HmacKey::new::<C>(&[self.expose()]);
        let identity = identity.text.as_bytes();
        let mut psk = Secret::zeroed();
        match mode {
            Mode::Bound => key.mac_into::<C>(&[identity, &[0], subscriber.as_bytes()], psk.expose_mut()),
            Mode::Paper => key.mac_into::<C>(&[identity], psk.expose_mut()),
        }
        psk
    }
}

impl Protokey {
    /// Derives the key under which access tokens for this publisher are encrypted: the first bytes of an HMAC of a
    /// fixed text. The HMAC in [`Self::session_key`] never has this text as its message: each of its messages begins
    /// with a session identity, which contains no space, and this text has a space after its first word.
    pub fn token_key<C: Crypto>(&self) -> Secret<KEY_LEN> {
        self.short_key::<C>(&[b"tegmen access token"])
    }

    /// Derives the key for the content of the resource `path`: the first bytes of an HMAC. The message of the HMAC is a
    /// fixed text, the identity of the key, a zero byte and the path. `identity` has the form of a session identity.
    /// The producer chooses the identity at random, so nobody can request the key before the producer uses it.
    ///
    /// An identity contains no zero byte, so each message has only one identity and one path. After its third word, the
    /// message has a space and a fourth word. So the message differs from the messages for [`Self::session_key`],
    /// [`Self::token_key`] and [`Self::server_key`].
    pub fn content_key<C: Crypto>(&self, identity: SessionIdentity<'_>, path: &str) -> Secret<KEY_LEN> {
        let message = [b"tegmen content key ".as_slice(), identity.text.as_bytes(), &[0], path.as_bytes()];
        self.short_key::<C>(&message)
    }

    /// Returns the first bytes of an HMAC with the protokey as its key.
    fn short_key<C: Crypto>(&self, message: &[&[u8]]) -> Secret<KEY_LEN> {
        let mut digest = Secret::<DIGEST_LEN>::zeroed();
        HmacKey::new::<C>(&[self.expose()]).mac_into::<C>(message, digest.expose_mut());
        let mut key = Secret::zeroed();
        if let Some((first, _)) = digest.expose().split_first_chunk::<KEY_LEN>() {
            key.expose_mut().copy_from_slice(first);
        }
        key
    }

    /// Derives the pre-shared key of the sessions that the access control server opens with the publisher: the HMAC of
    /// a fixed text. The text differs from the text of [`Self::token_key`]. It contains spaces, so it is never the
    /// message of the HMAC in [`Self::session_key`].
    pub fn server_key<C: Crypto>(&self) -> Secret<DIGEST_LEN> {
        let mut key = Secret::zeroed();
        HmacKey::new::<C>(&[self.expose()]).mac_into::<C>(&[b"tegmen access control server"], key.expose_mut());
        key
    }
}

impl fmt::Debug for Protokey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protokey")
    }
}

/// The error that the server in a publisher's DTLS handshake is not the configured subscriber. The publisher then ends
/// the handshake, and derives no other key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WrongHint {
    /// The handshake contains no identity hint.
    Missing,
    /// The identity hint is not the name of the configured subscriber.
    Other,
}

/// The publisher's end of a session: its protokey, and the subscriber in its configuration.
#[derive(Debug)]
pub struct Publisher<'a> {
    /// The protokey.
    pub protokey: &'a Protokey,
    /// The mode of derivation.
    pub mode: Mode,
    /// The name of the subscriber. The subscriber proves this name to the access control server.
    pub subscriber: &'a str,
}

impl Publisher<'_> {
    /// Derives the key for a handshake in which the server sent this identity hint (RFC 4279, section 5.2).
    ///
    /// # Errors
    /// [`WrongHint`] if the mode is [`Mode::Bound`], and the hint is missing or is not the configured subscriber.
    pub fn key<C: Crypto>(
        &self,
        identity: SessionIdentity<'_>,
        hint: Option<&[u8]>,
    ) -> Result<Secret<DIGEST_LEN>, WrongHint> {
        if self.mode == Mode::Bound {
            let hint = hint.filter(|hint| !hint.is_empty()).ok_or(WrongHint::Missing)?;
            if !same(hint, self.subscriber.as_bytes()) {
                return Err(WrongHint::Other);
            }
        }
        Ok(self.protokey.session_key::<C>(self.mode, identity, self.subscriber))
    }
}

impl fmt::Display for WrongHint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the subscriber sent no identity hint; set its name there",
            Self::Other => "the identity hint is not the configured subscriber",
        })
    }
}

impl core::error::Error for WrongHint {}

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests;
