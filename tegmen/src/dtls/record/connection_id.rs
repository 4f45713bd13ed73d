//! The connection id of a record, and the changes to the format of a record with an id (RFC 9146, sections 4 and 5).

use super::{ContentType, HEADER_LEN};
use crate::buf::{Full, Writer};
use crate::crypto::Crypto;

/// Maximum number of bytes of an id that this endpoint issues, or stores for a peer. If a ClientHello has a longer id
/// (up to 255 bytes), no ids are agreed on.
pub(crate) const MAX_LEN: usize = 20;

/// The maximum numbers of bytes that a connection id adds to a record. The first number is for the bytes before the
/// content (the id), the second for the bytes after the content (the content type).
pub(crate) const MAX_OVERHEAD: (usize, usize) = (MAX_LEN, 1);

/// A connection id of up to 20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionId {
    pub(crate) len: u8,
    pub(crate) bytes: [u8; MAX_LEN],
}

impl ConnectionId {
    /// The empty id.
    pub(crate) const EMPTY: Self = Self { len: 0, bytes: [0; MAX_LEN] };

    /// Returns the id with these bytes; `None` for more than 20 bytes.
    pub(crate) fn new(id: &[u8]) -> Option<Self> {
        let mut bytes = [0; MAX_LEN];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(Self { len: id.len() as u8, bytes })
    }

    /// Returns a new id of `len` bytes. Its first byte is `shard`, and the other bytes are random.
    pub(crate) fn random<C: Crypto>(crypto: &mut C, len: u8, shard: u8) -> Self {
        let mut id = Self { len: len.min(MAX_LEN as u8), ..Self::EMPTY };
        let len = usize::from(id.len);
        if let Some([first, rest @ ..]) = id.bytes.get_mut(..len) {
            *first = shard;
            crypto.random(rest);
        }
        id
    }

    /// Returns the bytes of the id.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or(&[])
    }

    /// True if the id has no bytes.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The associated data of a record with a connection id (RFC 9146, section 5.3).
pub(crate) struct AssociatedData {
    bytes: [u8; 8 + 1 + 1 + HEADER_LEN + MAX_LEN],
    len: usize,
}

impl AsRef<[u8]> for AssociatedData {
    fn as_ref(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// Returns the associated data of a record with the connection id `id`. `header` is the header of the record without
/// the id, and `len` is the length of the inner plaintext.
pub(crate) fn associated_data(header: &[u8; HEADER_LEN], id: &ConnectionId, len: u16) -> AssociatedData {
    let mut bytes = [0; _];
    let mut writer = Writer::new(&mut bytes);
    let [fixed @ .., _, _] = header;
    let mut write = || -> Result<(), Full> {
        // Other records have their epoch and number at this place, which never have this value.
        writer.put(&[0xff; 8])?;
        writer.put(&[ContentType::TLS12_CID.0, id.len])?;
        writer.put(fixed)?;
        writer.put(id.bytes())?;
        writer.u16(len)
    };
    let _ = write(); // it fits
    let len = writer.len();
    AssociatedData { bytes, len }
}

/// Divides an inner plaintext into its content type and its content (RFC 9146, section 4). Returns `None` if all bytes
/// are zero, because the plaintext then has no content type.
pub(crate) fn inner(plaintext: &mut [u8]) -> Option<(ContentType, &mut [u8])> {
    let at = plaintext.iter().rposition(|byte| *byte != 0)?;
    let content_type = ContentType(*plaintext.get(at)?);
    Some((content_type, plaintext.get_mut(..at)?))
}

#[cfg(test)]
mod tests;
