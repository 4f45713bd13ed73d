//! The protection of the records of a group (Axiom paper, sections 5.4 and 5.6). The records have the format and the
//! protection of DTLS records, but their sequence number consists of an id and a TSN.

use super::association::IV_LEN;
use super::opened::GroupNumber;
use super::suite::Suite;
use crate::buf::Full;
use crate::counters::Discard;
use crate::crypto::Crypto;
use crate::crypto::hash::{DIGEST_LEN, hmac};
use crate::dtls::record::{
    ContentType, EXPLICIT_LEN, GCM_TAG_LEN, HEADER_LEN, MAX_CONTENT, Record, RecordNumber, TAG_LEN, associated_data,
    header, nonce, open_aead, seal_aead,
};
use crate::secret::{Secret, same};

/// Number of bits of a truncated sequence number.
const TSN_BITS: u32 = 40;

impl GroupNumber {
    pub(super) const fn of(record: &Record<'_>) -> Self {
        let number = record.number();
        let sequence = number.sequence();
        let tsn = sequence & const { (1 << TSN_BITS) - 1 };
        Self { epoch: record.epoch(), id: (sequence >> TSN_BITS) as u8, tsn }
    }

    const fn record_number(self) -> RecordNumber {
        RecordNumber::new(self.epoch, (self.id as u64) << TSN_BITS | self.tsn)
    }
}

/// A key of one direction, and the implicit part of the nonce that belongs to this key.
pub(super) struct Protection<'k, const KEY: usize> {
    pub(super) suite: Suite,
    pub(super) key: &'k Secret<KEY>,
    pub(super) iv: [u8; IV_LEN],
}

impl<const KEY: usize> Protection<'_, KEY> {
    /// True if an HMAC protects the records and no cipher encrypts them. If the keys (`KEY`) are shorter than the keys
    /// of an HMAC, the result is always false. Then the compiler omits the code that protects records with an HMAC.
    const fn is_mac_only(&self) -> bool {
        KEY == DIGEST_LEN && !self.suite.encrypts()
    }

    /// Seals a whole record in place. `record` begins with space for the header and the explicit nonce. The content
    /// follows, and then space for the tag. Returns the tag.
    ///
    /// # Errors
    /// [`Full`] if the record is too short, or if its content is too long.
    pub(super) fn seal<'t, C: Crypto>(
        &self,
        crypto: &mut C,
        number: GroupNumber,
        record: &'t mut [u8],
    ) -> Result<&'t [u8], Full> {
        let (head, fragment) = record.split_first_chunk_mut::<HEADER_LEN>().ok_or(Full)?;
        let around = self.suite.explicit_len().wrapping_add(self.suite.tag_len());
        let len = fragment.len().checked_sub(around).filter(|len| *len <= MAX_CONTENT).ok_or(Full)?;
        let number = number.record_number();
        *head = header(ContentType::APPLICATION_DATA, number, fragment.len() as u16);
        let aad = associated_data(head, len as u16);
        if self.is_mac_only() {
            let (content, tag) = fragment.split_last_chunk_mut().ok_or(Full)?;
            *tag = self.mac::<C>(&aad, content);
            return Ok(tag);
        }
        let (explicit, body) = fragment.split_first_chunk_mut::<EXPLICIT_LEN>().ok_or(Full)?;
        *explicit = number.0.to_be_bytes();
        let (key, nonce) = (self.key.expose(), &nonce(self.iv, *explicit));
        let (aead, tag_len) = self.aead::<C>();
        seal_aead(crypto, (aead, tag_len), key, nonce, &aad, body)?;
        body.get(len..).ok_or(Full)
    }

    /// Opens a record in place.
    ///
    /// # Errors
    /// [`Discard::Malformed`] or [`Discard::NotAuthentic`].
    pub(super) fn open<'r, C: Crypto>(&self, crypto: &mut C, record: Record<'r>) -> Result<&'r mut [u8], Discard> {
        let number = record.number().0.to_be_bytes();
        let Record { header, body } = record;
        if self.is_mac_only() {
            let (content, tag) = body.split_last_chunk_mut::<DIGEST_LEN>().ok_or(Discard::Malformed)?;
            if content.len() > MAX_CONTENT {
                return Err(Discard::Malformed);
            }
            let made = self.mac::<C>(&associated_data(header, content.len() as u16), content);
            return if same(&made, tag) { Ok(content) } else { Err(Discard::NotAuthentic) };
        }
        let (explicit, body) = body.split_first_chunk_mut::<EXPLICIT_LEN>().ok_or(Discard::Malformed)?;
        // The explicit nonce must be equal to the record number in the header, so that a record has only one record
        // number.
        if *explicit != number {
            return Err(Discard::Malformed);
        }
        let (aead, tag_len) = self.aead::<C>();
        let with = (self.key.expose().as_slice(), &nonce(self.iv, number));
        let aad = |len| associated_data(header, len);
        // Anybody can send to a group, so failed records must never end its keys.
        open_aead(crypto, (Some(aead), tag_len), with, &mut 0, MAX_CONTENT, aad, body)
    }

    /// Returns the AEAD algorithm of the suite, and the number of bytes of its tag.
    fn aead<C: Crypto>(&self) -> (C::Aead, usize) {
        match (self.suite, C::AES_128_GCM) {
            (Suite::Gcm, Some(gcm)) => (gcm, GCM_TAG_LEN),
            (Suite::Ccm8, _) => (C::AES_128_CCM, TAG_LEN),
            _ => (C::AES_128_CCM, GCM_TAG_LEN),
        }
    }

    /// Returns the MAC of a record that is not encrypted (RFC 5246, section 6.2.3.1).
    fn mac<C: Crypto>(&self, aad: &[u8], content: &[u8]) -> [u8; DIGEST_LEN] {
        hmac::<C, DIGEST_LEN>(&[self.key.expose()], &[aad, content])
    }
}

/// Returns the fingerprint of a record: 21 bits of its tag, or 1 if these bits are all zero. A record and its replay
/// have the same fingerprint. Two different records with the same number usually have different fingerprints.
pub(super) fn fingerprint(tag: &[u8]) -> u32 {
    let last = tag.last_chunk().copied().map_or(0, u32::from_be_bytes);
    (last & FINGERPRINTS).max(1)
}

/// A mask that selects the bits of a record's tag that are the fingerprint of the record.
pub(super) const FINGERPRINTS: u32 = (1 << 21) - 1;
