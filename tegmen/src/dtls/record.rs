//! The record layer (RFC 6347, section 4.1): the format of records, their protection, and the [`Channel`] of a session.
//! The channel has the keys and the record numbers of both directions.

mod cbc;
mod channel;
pub(crate) mod cipher;
pub(crate) mod connection_id;
mod keys;
mod protection;

pub(crate) use channel::SealError;
pub use channel::{CHUNK, Channel};
pub(crate) use cipher::{Cipher, associated_data, nonce};
pub(crate) use keys::{KEY_BLOCK_LEN, Keys, LONG_KEY_LEN, LongKey, LongKeys, TrafficKey};
pub(crate) use protection::{open_aead, seal_aead};

use super::VERSION;
use crate::buf::{Full, Span, Writer};
use crate::counters::Discard;

/// Number of bytes of a record header.
pub(crate) const HEADER_LEN: usize = 13;
/// Number of bytes of the explicit nonce after the header (RFC 6655, section 3).
pub(crate) const EXPLICIT_LEN: usize = 8;
/// Number of bytes of the tag of CCM_8.
pub(crate) const TAG_LEN: usize = 8;
/// Number of bytes of the tag of GCM and of ChaCha20-Poly1305.
pub(crate) const GCM_TAG_LEN: usize = 16;
/// Number of bytes that a record with CCM_8 has in addition to its content: 29.
pub const OVERHEAD: usize = HEADER_LEN + EXPLICIT_LEN + TAG_LEN;
/// Number of bytes of header and explicit nonce, before the content of a protected record.
pub(crate) const HEADROOM: usize = HEADER_LEN + EXPLICIT_LEN;
/// Number of bytes of the implicit part of the nonce. This part comes from the key block.
pub(crate) const SALT_LEN: usize = 4;

/// True if the program is for a host, which has space for keys that are longer than those of AES-128. ChaCha20-Poly1305
/// and CBC need longer keys. A mote has no such space.
pub(crate) const HAS_LONG_KEYS: bool = cfg!(feature = "alloc");

/// Maximum number of bytes of the content of a record (RFC 5246, section 6.2.1).
pub(crate) const MAX_CONTENT: usize = 1 << 14;
/// Maximum number of bytes that a cipher adds to the content (RFC 5246, section 6.2.3).
const MAX_EXPANSION: usize = 2048;
/// Maximum number of records that may be sealed under one key. After this number, a new handshake is necessary.
pub const MAX_SEALED: u32 = 1 << 23;
/// Maximum number of records that may fail to open under one key, for ciphers with a tag of 8 bytes. After this number,
/// a new handshake is necessary. Longer tags need no limit in this module: RFC 9147, section 4.5.3, allows 2^36
/// forgeries for a tag of 16 bytes.
pub(crate) const MAX_FAILED: u16 = 1 << 10;

/// The content type of a record (RFC 5246, section 6.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentType(pub u8);

impl ContentType {
    /// ChangeCipherSpec: the sender uses its new keys from the next record on.
    pub const CHANGE_CIPHER_SPEC: Self = Self(20);
    /// Alert: two bytes, level and description.
    pub const ALERT: Self = Self(21);
    /// Handshake messages, or fragments of handshake messages.
    pub const HANDSHAKE: Self = Self(22);
    /// Application data.
    pub const APPLICATION_DATA: Self = Self(23);
    /// The type of a record with a connection id. The real content type is encrypted together with the content (RFC
    /// 9146, section 4).
    pub const TLS12_CID: Self = Self(25);
    /// A message of a return routability check: the peer must prove that it receives records at a new address (RFC
    /// 9853, section 4).
    pub const RETURN_ROUTABILITY_CHECK: Self = Self(27);
}

/// Epoch (16 bits) and sequence number (48 bits) of a record, as in its header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct RecordNumber(pub(crate) u64);

impl RecordNumber {
    /// Returns the number `sequence` of `epoch`. The caller must pass at most 48 bits; higher bits are removed.
    pub(crate) const fn new(epoch: u16, sequence: u64) -> Self {
        Self((epoch as u64) << 48 | sequence & 0xffff_ffff_ffff)
    }

    /// Returns the sequence number within the epoch.
    pub(crate) const fn sequence(self) -> u64 {
        self.0 & 0xffff_ffff_ffff
    }
}

/// One received record. It is encrypted if its epoch is not 0.
#[derive(Debug)]
pub struct Record<'r> {
    /// The header in the datagram. This field is a reference and not a copy, because a mote then keeps fewer values in
    /// registers.
    pub(crate) header: &'r [u8; HEADER_LEN],
    /// The bytes after the header.
    pub body: &'r mut [u8],
}

impl<'r> Record<'r> {
    /// Returns the record at the front of `rest`; `None` if it does not parse.
    #[inline]
    fn parse(rest: &'r mut [u8]) -> Option<Self> {
        let (header, rest) = rest.split_first_chunk_mut::<HEADER_LEN>()?;
        let header = &*header;
        let [_, major, minor, .., high, low] = *header;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let record = Self { header, body: rest.get_mut(..len)? };
        // Before the version is agreed on, every minor version is accepted. Afterwards it is part of the
        // authenticated data.
        let version_fits = major == VERSION[0] && (record.epoch() == 0 || minor == VERSION[1]);
        (version_fits && len <= MAX_CONTENT.saturating_add(MAX_EXPANSION)).then_some(record)
    }
}

impl Record<'_> {
    /// Returns the content type of the record.
    pub const fn content_type(&self) -> ContentType {
        let [content_type, ..] = *self.header;
        ContentType(content_type)
    }

    /// Returns the epoch and sequence number of the record.
    pub(crate) const fn number(&self) -> RecordNumber {
        let [_, _, _, number @ .., _, _] = self.header;
        RecordNumber(u64::from_be_bytes(*number))
    }

    /// Returns the epoch of the record. Records of epoch 0 are plaintext.
    pub const fn epoch(&self) -> u16 {
        let [_, _, _, high, low, ..] = *self.header;
        u16::from_be_bytes([high, low])
    }

    /// True if the record carries protected application data.
    #[inline]
    pub(crate) fn is_application_data(&self) -> bool {
        self.epoch() != 0 && self.content_type() == ContentType::APPLICATION_DATA
    }

    /// True if the record carries a message of a return routability check, and is protected but has no connection id.
    pub(crate) fn is_return_routability_check(&self) -> bool {
        self.epoch() != 0 && self.content_type() == ContentType::RETURN_ROUTABILITY_CHECK
    }
}

/// The records of one datagram, in order.
#[derive(Debug)]
pub struct Records<'d> {
    datagram: &'d mut [u8],
    /// Position at which the next record starts.
    at: usize,
}

impl<'d> Records<'d> {
    /// Creates the iterator over all records of `datagram`.
    pub const fn new(datagram: &'d mut [u8]) -> Self {
        Self { datagram, at: 0 }
    }

    /// Returns the next record; `None` at the end of the datagram. If a record does not parse, returns an error, and
    /// ignores the rest of the datagram.
    pub fn next_record(&mut self) -> Option<Result<Record<'_>, Discard>> {
        (!self.is_empty()).then(|| self.take().ok_or(Discard::Malformed))
    }

    /// Does the same as [`Self::next_record`] for records that may have a connection id of `len` bytes (RFC 9146,
    /// section 4).
    pub fn next_record_with_id(&mut self, len: usize) -> Option<Result<Record<'_>, Discard>> {
        match self.has_connection_id() {
            true => Some(self.take_with_id(len).map(|(_, record)| record).ok_or(Discard::Malformed)),
            false => self.next_record(),
        }
    }

    /// Returns the bytes of the datagram at `span`. The span must come from an event for this datagram.
    pub fn bytes(&mut self, span: Span) -> &mut [u8] {
        span.of_mut(self.datagram)
    }

    /// Returns the memory address of the datagram, for [`Span::within`].
    #[inline]
    pub(crate) fn address(&self) -> usize {
        self.datagram.as_ptr().addr()
    }

    /// True if no record was taken from the datagram yet.
    pub(crate) const fn is_whole(&self) -> bool {
        self.at == 0
    }

    /// Returns the position at which the next record starts.
    pub(crate) const fn position(&self) -> usize {
        self.at
    }

    /// Goes back to the record at this position, so that it is taken again. The record must not have been opened.
    pub(crate) const fn go_back(&mut self, at: usize) {
        self.at = at;
    }

    /// True if the datagram has no more records.
    pub(crate) const fn is_empty(&self) -> bool {
        self.at >= self.datagram.len()
    }

    /// Returns the next record; `None` at the end of the datagram. If the record does not parse, returns `None` and
    /// discards the rest of the datagram.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Record<'_>> {
        let at = core::mem::replace(&mut self.at, usize::MAX);
        let record = Record::parse(self.datagram.get_mut(at..)?)?;
        self.at = at.wrapping_add(HEADER_LEN).wrapping_add(record.body.len());
        Some(record)
    }

    /// Returns the number of the next record, if this record carries protected application data; otherwise `None`.
    pub(crate) fn next_protected(&self) -> Option<RecordNumber> {
        let [content_type, _, _, number @ ..] = self.datagram.get(self.at..)?.first_chunk::<11>()?;
        let number = RecordNumber(u64::from_be_bytes(*number));
        (ContentType(*content_type) == ContentType::APPLICATION_DATA && number.0 >> 48 != 0).then_some(number)
    }

    /// True if the next record has a connection id.
    pub(crate) fn has_connection_id(&self) -> bool {
        self.datagram.get(self.at) == Some(&ContentType::TLS12_CID.0)
    }

    /// Does the same as [`Self::take`] for a record with a connection id, and also returns the id. The caller supplies
    /// the length `len` of the id, because the header of the record does not contain it.
    pub(crate) fn take_with_id(&mut self, len: usize) -> Option<(&[u8], Record<'_>)> {
        let at = core::mem::replace(&mut self.at, self.datagram.len());
        let rest = self.datagram.get_mut(at..)?;
        // The id is moved to the front, so that the usual header follows it.
        rest.get_mut(..len.checked_add(NUMBER_END)?)?.rotate_right(len);
        let (id, rest) = rest.split_at_mut_checked(len)?;
        let record = Record::parse(rest)?;
        self.at = at.wrapping_add(len).wrapping_add(HEADER_LEN).wrapping_add(record.body.len());
        (record.epoch() != 0).then_some((id, record))
    }
}

/// The offset in a record header at which the record number ends. A connection id follows the record number.
const NUMBER_END: usize = HEADER_LEN - 2;

/// Returns the header of a record whose body has `len` bytes.
#[inline]
pub(crate) fn header(content_type: ContentType, number: RecordNumber, len: u16) -> [u8; HEADER_LEN] {
    let mut header = [content_type.0, VERSION[0], VERSION[1], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let [_, _, _, place @ .., high, low] = &mut header;
    *place = number.0.to_be_bytes();
    [*high, *low] = len.to_be_bytes();
    header
}

/// Writes a plaintext record of epoch 0 at the front of `out`. The record consists of its header, of `head`, and of
/// `behind` more bytes. This function writes the header and `head`. The caller has already written the `behind` bytes
/// into `out` after the space for `head`. Returns the length of the record.
#[inline(never)]
pub(crate) fn write_plain(
    out: &mut [u8],
    content_type: ContentType,
    number: RecordNumber,
    head: &[u8],
    behind: usize,
) -> Result<usize, Full> {
    let len = head.len().wrapping_add(behind);
    let mut writer = Writer::new(out);
    writer.put(&header(content_type, number, len as u16))?;
    writer.put(head)?;
    Ok(writer.len().wrapping_add(behind))
}

#[cfg(test)]
pub(crate) mod tests;
