//! The keys of a channel.

use super::SALT_LEN;
use super::cipher::{Cipher, MAX_MAC_LEN, NONCE_LEN};
use crate::buf::{Full, Reader, Truncated, Writer};
use crate::crypto::{CHACHA20_KEY_LEN, KEY_LEN};
use crate::secret::Secret;
#[cfg(feature = "alloc")]
use alloc::boxed::Box;

/// The keys of both directions.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) write: TrafficKey,
    pub(crate) read: TrafficKey,
    /// The keys of both directions for a cipher whose keys are longer than those of AES-128. They replace `write` and
    /// `read`.
    pub(crate) long: LongKeys,
}

impl Keys {
    pub(crate) const fn none() -> Self {
        Self { write: TrafficKey::none(), read: TrafficKey::none(), long: LongKeys::none() }
    }

    pub(crate) fn copy(&self) -> Self {
        Self { write: self.write.copy(), read: self.read.copy(), long: self.long.copy() }
    }

    pub(super) fn wipe(&mut self) {
        self.write.key.wipe();
        self.read.key.wipe();
        self.long = LongKeys::none();
    }

    /// Sets the keys of both directions from a key block (RFC 5246, section 6.3). `client` is true if we are the
    /// client. The block contains the client key, the server key, the client salt and the server salt. For a cipher
    /// with longer keys, see [`LongKey::of_block`].
    pub(super) fn set(&mut self, block: &[u8], client: bool, cipher: Cipher) -> Result<(), Truncated> {
        self.long = LongKeys::none();
        if cipher.is_long() {
            let key_of = |client| LongKey::of_block(block, client, cipher);
            self.long = LongKeys::new(key_of(client)?, key_of(!client)?);
            return Ok(());
        }
        let mut reader = Reader::new(block);
        let (mine, theirs) = (&mut self.write, &mut self.read);
        let (first, second) = if client { (mine, theirs) } else { (theirs, mine) };
        *first.key.expose_mut() = reader.array()?;
        *second.key.expose_mut() = reader.array()?;
        first.salt = reader.array()?;
        second.salt = reader.array()?;
        Ok(())
    }
}

/// The key of one direction for CCM_8 or GCM.
#[derive(Debug)]
pub(crate) struct TrafficKey {
    pub(crate) key: Secret<KEY_LEN>,
    pub(crate) salt: [u8; SALT_LEN],
}

impl TrafficKey {
    pub(crate) const fn none() -> Self {
        Self { key: Secret::zeroed(), salt: [0; SALT_LEN] }
    }

    pub(crate) const fn copy(&self) -> Self {
        Self { key: Secret::new(*self.key.expose()), salt: self.salt }
    }

    pub(crate) fn write(&self, writer: &mut Writer<'_>) -> Result<(), Full> {
        writer.put(self.key.expose())?;
        writer.put(&self.salt)
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        Ok(Self { key: Secret::new(reader.array()?), salt: reader.array()? })
    }
}

/// The key of one direction for a cipher whose keys are longer than those of AES-128: ChaCha20-Poly1305 or CBC. It
/// contains the parts of the key, in the order of the key block.
#[derive(Debug)]
pub(crate) struct LongKey(Secret<LONG_KEY_LEN>);

/// Number of bytes of the longest key: a key of CBC together with its MAC key.
pub(crate) const LONG_KEY_LEN: usize = MAX_MAC_LEN + KEY_LEN;
const _: () = assert!(LONG_KEY_LEN >= CHACHA20_KEY_LEN + NONCE_LEN);
/// Number of bytes of the longest key block.
pub(crate) const KEY_BLOCK_LEN: usize = 2 * LONG_KEY_LEN;

impl LongKey {
    /// Reads the key of the client or of the server from a key block (RFC 5246, section 6.3). `client` is true for the
    /// client's key. In the block, each part of the client's key precedes the same part of the server's key.
    pub(super) fn of_block(block: &[u8], client: bool, cipher: Cipher) -> Result<Self, Truncated> {
        let mut key = Self(Secret::zeroed());
        let mut writer = Writer::new(key.0.expose_mut());
        let mut reader = Reader::new(block);
        for len in cipher.key_parts() {
            let (of_client, of_server) = (reader.take(len)?, reader.take(len)?);
            writer.put(if client { of_client } else { of_server }).map_err(|_| Truncated)?;
        }
        Ok(key)
    }

    /// Creates the key from the bytes that [`Self::bytes`] returned.
    pub(crate) const fn of_bytes(bytes: &[u8; LONG_KEY_LEN]) -> Self {
        Self(Secret::new(*bytes))
    }

    /// Returns the bytes of the key. If the key has fewer than [`LONG_KEY_LEN`] bytes, zeros follow the key.
    pub(crate) const fn bytes(&self) -> &[u8; LONG_KEY_LEN] {
        self.0.expose()
    }

    /// Returns the two parts of a key of CBC: the key of the MAC, and the key of the cipher.
    pub(super) fn cbc<const MAC_LEN: usize>(&self) -> Option<(&[u8; MAC_LEN], &[u8; KEY_LEN])> {
        let (mac_key, key) = self.0.expose().split_first_chunk()?;
        Some((mac_key, key.first_chunk()?))
    }

    /// Returns the key and the initialization vector of ChaCha20-Poly1305.
    pub(super) fn chacha20(&self) -> Option<(&[u8; CHACHA20_KEY_LEN], &[u8; NONCE_LEN])> {
        let (key, iv) = self.0.expose().split_first_chunk()?;
        Some((key, iv.first_chunk()?))
    }
}

/// Our key and the peer's key, for a cipher whose keys are longer than those of AES-128. Most sessions have no such
/// keys, so this type has the size of one pointer. A mote has no space for such keys.
#[derive(Debug)]
pub(crate) struct LongKeys(#[cfg(feature = "alloc")] Option<Box<[LongKey; 2]>>);

#[cfg(feature = "alloc")]
impl LongKeys {
    pub(crate) const fn none() -> Self {
        Self(None)
    }

    pub(crate) fn new(write: LongKey, read: LongKey) -> Self {
        Self(Some(Box::new([write, read])))
    }

    pub(crate) fn get(&self) -> Option<&[LongKey; 2]> {
        self.0.as_deref()
    }
}

#[cfg(not(feature = "alloc"))]
impl LongKeys {
    pub(crate) const fn none() -> Self {
        Self()
    }

    pub(crate) fn new(_: LongKey, _: LongKey) -> Self {
        Self()
    }

    pub(crate) const fn get(&self) -> Option<&[LongKey; 2]> {
        None
    }
}

impl LongKeys {
    pub(crate) fn write(&self) -> Option<&LongKey> {
        self.get().map(|[write, _]| write)
    }

    pub(crate) fn read(&self) -> Option<&LongKey> {
        self.get().map(|[_, read]| read)
    }

    pub(crate) fn copy(&self) -> Self {
        let copy = |key: &LongKey| LongKey::of_bytes(key.bytes());
        self.get().map_or(Self::none(), |[write, read]| Self::new(copy(write), copy(read)))
    }
}
