//! Encrypts content with AES-128-CCM. The nonce comes from the name, so one name must never have two contents.
//!
//! A producer has one key. The nonce is the beginning of the SHA-256 digest of the whole name, and the tag follows the
//! content. So two contents with the same name would have the same nonce. Therefore a [`Publisher`] appends a version
//! to each name. Versions come from a reserved range ([`Lease`]), whose end is stored durably before the first version
//! of the range is used. So no version is used twice, even after a power cut.

use crate::error::WriteError;
use crate::name::{Component, Name};
use crate::tlv::{Type, integer_bytes};
use core::fmt::{self, Display, Formatter};
use tegmen_base::buf::{Full, Writer};
use tegmen_base::crypto::{Crypto, DIGEST_LEN, KEY_LEN, NotAuthentic, Unsupported, digest};
use tegmen_base::lease::Lease;
use tegmen_base::secret::Secret;

/// Number of bytes that encryption appends to a content.
pub const TAG_LEN: usize = 8;

/// Length of the nonce in bytes.
const NONCE_LEN: usize = 13;

/// The key for the contents of one producer.
#[derive(Debug)]
pub struct ContentKey(Secret<KEY_LEN>);

impl ContentKey {
    /// Makes a value from a key that no other producer has.
    pub const fn new(key: Secret<KEY_LEN>) -> Self {
        Self(key)
    }

    /// Decrypts the content of a Data packet with this name in place. Returns the length of the content without its tag.
    ///
    /// # Errors
    /// [`NotAuthentic`] if the tag is wrong or missing. The content must then not be used.
    pub fn open<C: Crypto>(&self, crypto: &mut C, name: &Name<'_>, content: &mut [u8]) -> Result<usize, NotAuthentic> {
        let len = content.len().checked_sub(TAG_LEN).ok_or(NotAuthentic)?;
        let (body, tag) = content.split_at_mut_checked(len).ok_or(NotAuthentic)?;
        crypto.open(C::AES_128_CCM, self.0.expose(), &nonce::<C>(name), &[], body, tag)?;
        Ok(len)
    }

    /// Encrypts a content in place, and appends the tag. Only a [`Publisher`] calls this, because a name must not
    /// have two contents.
    fn seal<C: Crypto>(&self, crypto: &mut C, name: &Name<'_>, content: &mut Writer<'_>) -> Result<(), WriteError> {
        let mut tag = [0; TAG_LEN];
        content.put(&tag)?;
        let len = content.len().saturating_sub(TAG_LEN);
        content.truncate(len);
        crypto.seal(C::AES_128_CCM, self.0.expose(), &nonce::<C>(name), &[], content.written_mut(), &mut tag)?;
        Ok(content.put(&tag)?)
    }
}

fn nonce<C: Crypto>(name: &Name<'_>) -> [u8; NONCE_LEN] {
    let digest = digest::<C, DIGEST_LEN>(&[name.as_bytes()]);
    let mut nonce = [0; NONCE_LEN];
    nonce.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
    nonce
}

/// A producer of encrypted contents.
#[derive(Debug)]
pub struct Publisher {
    key: ContentKey,
    versions: Lease,
}

/// The reason why a content cannot be published.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PublishError {
    /// All reserved versions are used: store a higher end of the reserved versions durably, then call
    /// [`Publisher::extend`] with it.
    NoVersion,
    /// The name or the content does not fit into its buffer.
    Full,
    /// The provider of ciphers does not have AES-128-CCM.
    Unsupported,
}

impl Display for PublishError {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoVersion => "no version is left: store the next end of the lease first",
            Self::Full => "the name or the content does not fit its place",
            Self::Unsupported => "the provider of ciphers does not have AES-128-CCM",
        })
    }
}

impl core::error::Error for PublishError {}

impl From<Full> for PublishError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl From<WriteError> for PublishError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Unsupported => Self::Unsupported,
            WriteError::Full | WriteError::Name => Self::Full,
        }
    }
}

impl From<Unsupported> for PublishError {
    fn from(_: Unsupported) -> Self {
        Self::Unsupported
    }
}

impl Publisher {
    /// Continues with versions from `stored` on. `stored` is the end of the reserved versions that was last stored for
    /// this key, or 0 for a new key. A producer that has lost the stored end must use a new key. Nothing can be
    /// published until [`Self::extend`].
    pub const fn resume(key: ContentKey, stored: u64) -> Self {
        Self { key, versions: Lease::resume(stored) }
    }

    /// Reserves all versions below `stored`. The caller must already have stored this number durably, so that no
    /// version is used twice after a restart.
    pub const fn extend(&mut self, stored: u64) {
        self.versions.extend(stored);
    }

    /// Returns how many reserved versions are not used yet.
    pub const fn left(&self) -> u64 {
        self.versions.left()
    }

    /// Encrypts a content, and makes a name for it. Replaces the bytes in `name` with `prefix` and a version. `content`
    /// contains the content before the call, and afterwards the encrypted content and the tag. Returns the version.
    ///
    /// # Errors
    /// [`PublishError`]. After each error except [`PublishError::NoVersion`], the version is used up.
    pub fn publish<C: Crypto>(
        &mut self,
        crypto: &mut C,
        prefix: &Name<'_>,
        name: &mut Writer<'_>,
        content: &mut Writer<'_>,
    ) -> Result<u64, PublishError> {
        let version = self.versions.take().ok_or(PublishError::NoVersion)?;
        name.truncate(0);
        name.put(prefix.as_bytes())?;
        let mut bytes = [0; 8];
        Component { kind: Type::VERSION, value: integer_bytes(version, &mut bytes) }.write(name)?;
        self.key.seal(crypto, &Name::of_checked(name.written()), content)?;
        Ok(version)
    }
}
