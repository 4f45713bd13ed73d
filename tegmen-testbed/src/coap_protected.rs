//! CoAP with a protected payload. This is the protocol "CoAP (Protected)" of the paper on content object security. Use
//! it only to reproduce this paper. For any other purpose use [OSCORE](tegmen::oscore).
//!
//! A producer encrypts the payload of its responses with AES-128-CCM. The key identifier (2 bytes) and the variable
//! part of the nonce (2 bytes) precede the encrypted payload, and the tag (8 bytes) follows. This adds 12 bytes. The
//! rest of the nonce is derived from the resource's URI, which client and server know.
//!
//! **Limits**: Requests have no protection, so neither their content nor their origin is certain. Anyone can change the
//! options and the code of a response. Anyone can deliver an old response again, or deliver responses in another order.
//! A response is not bound to its request, so an attacker can use it as the response to another request for the same
//! resource. A reader knows only that an owner of the key once wrote the payload for this URI.
//!
//! A key must belong to one producer, which chooses the URIs of its resources itself. Two URIs whose hashes begin with
//! the same 56 bits would otherwise use the same nonces. A resource can send 2^16 messages under one key. The producer
//! reserves message numbers in ranges. Such a range is called a lease. The producer stores the end of a lease before it
//! uses the first number of the lease. So the producer uses no message number twice, even after a power cut.

use std::fmt;
use std::ops::Range;
use tegmen::buf::{Full, Reader, Writer};
use tegmen::crypto::{Crypto, DIGEST_LEN, KEY_LEN, NotAuthentic, digest};
use tegmen::secret::Secret;

/// Number of bytes that the protection adds to a payload.
pub const OVERHEAD: usize = KEY_ID_LEN + NUMBER_LEN + TAG_LEN;
/// Length of the key identifier, in bytes.
pub const KEY_ID_LEN: usize = 2;
/// Length of the variable part of the nonce, which is sent with the payload, in bytes.
pub const NUMBER_LEN: usize = 2;
/// Length of the tag, in bytes.
pub const TAG_LEN: usize = 8;
/// Maximum number of messages of a resource under one key.
pub const MAX_MESSAGES: u64 = 1 << 16;

/// The reason why a payload cannot be protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PayloadError {
    /// All reserved message numbers are used. Store a higher end of the reserved range (the lease), and then
    /// [extend](Resource::extend) the lease.
    LeaseSpent,
    /// The resource has used all 2^16 message numbers under this key. It needs a new key.
    Exhausted,
    /// The protected message does not fit into the buffer.
    Full,
    /// The cryptographic provider does not support the algorithm.
    Unsupported,
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LeaseSpent => "the lease of message numbers is used up; keep a new end and extend the lease",
            Self::Exhausted => "all message numbers of the key are used up; use a new key",
            Self::Full => "the payload is longer than its buffer",
            Self::Unsupported => "the crypto provider does not have the algorithm",
        })
    }
}

impl std::error::Error for PayloadError {}

impl From<Full> for PayloadError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// The state of a resource with protected content, at the producer of the resource or at a reader.
pub struct Resource {
    key: Secret<KEY_LEN>,
    /// The part of the nonce that is the same for all messages: the key identifier, and the beginning of the hash of
    /// the URI.
    fixed: [u8; NONCE_LEN - NUMBER_LEN],
    /// The reserved message numbers (the lease) that the producer may still use.
    lease: Range<u64>,
}

impl Resource {
    /// Makes the state of the resource at `uri` under the key with the identifier `key_id`. A producer reserves its
    /// message numbers in ranges, and stores the end of each range. `kept` is the end that the producer stored last, or
    /// 0 for a new key. A reader passes any value, because it uses no message numbers.
    pub fn new<C: Crypto>(key: Secret<KEY_LEN>, key_id: u16, uri: &[u8], kept: u64) -> Self {
        let digest = digest::<C, DIGEST_LEN>(&[uri]);
        let mut fixed = [0; NONCE_LEN - NUMBER_LEN];
        let mut writer = Writer::new(&mut fixed);
        let uri = digest.get(..URI_LEN).unwrap_or(&[]);
        // Cannot fail, because 2, 2 and 7 bytes fit. The first four bytes are the same for all URIs of a key, as
        // providers expect.
        let _ = writer.u16(key_id).and_then(|()| writer.u16(0)).and_then(|()| writer.put(uri));
        Self { key, fixed, lease: kept..kept }
    }

    /// Returns how many reserved message numbers the producer may still use.
    pub const fn left(&self) -> u64 {
        self.lease.end.saturating_sub(self.lease.start)
    }

    /// Allows all message numbers below `kept`. The caller must have stored `kept` durably as the end of the reserved
    /// range.
    pub fn extend(&mut self, kept: u64) {
        self.lease.end = self.lease.end.max(kept);
    }

    /// Protects `payload`, and writes the result into `out`.
    ///
    /// # Errors
    /// [`PayloadError`]. After [`PayloadError::LeaseSpent`] and [`PayloadError::Exhausted`] the call has used up no
    /// message number.
    pub fn seal<'o, C: Crypto>(
        &mut self,
        crypto: &mut C,
        payload: &[u8],
        out: &'o mut [u8],
    ) -> Result<&'o [u8], PayloadError> {
        if self.lease.start >= MAX_MESSAGES {
            return Err(PayloadError::Exhausted);
        }
        let number = (self.lease.next().ok_or(PayloadError::LeaseSpent)? as u16).to_be_bytes();
        let (head, rest) = out.split_first_chunk_mut::<HEAD_LEN>().ok_or(PayloadError::Full)?;
        let mut writer = Writer::new(head);
        writer.put(self.key_id())?;
        writer.put(&number)?;
        let mut writer = Writer::new(rest);
        writer.put(payload)?;
        writer.put(&[0; TAG_LEN])?;
        let rest = writer.finish();
        let (body, tag) = rest.split_at_mut_checked(payload.len()).ok_or(PayloadError::Full)?;
        let nonce = self.nonce(number);
        crypto
            .seal(C::AES_128_CCM, self.key.expose(), &nonce, &[], body, tag)
            .map_err(|_| PayloadError::Unsupported)?;
        out.get(..payload.len().saturating_add(OVERHEAD)).ok_or(PayloadError::Full)
    }

    /// Decrypts a payload in place. A second call with the same payload also succeeds, so the function does not detect
    /// replays: see the limits of the [module](self).
    ///
    /// # Errors
    /// [`NotAuthentic`]. The bytes of `payload` must then not be used.
    pub fn open<'p, C: Crypto>(&self, crypto: &mut C, payload: &'p mut [u8]) -> Result<&'p [u8], NotAuthentic> {
        let (head, rest) = payload.split_first_chunk_mut::<HEAD_LEN>().ok_or(NotAuthentic)?;
        let mut reader = Reader::new(head);
        let key_id = reader.take(KEY_ID_LEN).map_err(|_| NotAuthentic)?;
        let number = reader.array().map_err(|_| NotAuthentic)?;
        let at = rest.len().checked_sub(TAG_LEN).filter(|_| key_id == self.key_id()).ok_or(NotAuthentic)?;
        let (body, tag) = rest.split_at_mut_checked(at).ok_or(NotAuthentic)?;
        crypto.open(C::AES_128_CCM, self.key.expose(), &self.nonce(number), &[], body, tag)?;
        Ok(body)
    }

    fn key_id(&self) -> &[u8] {
        self.fixed.get(..KEY_ID_LEN).unwrap_or(&[])
    }

    fn nonce(&self, number: [u8; NUMBER_LEN]) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        let mut writer = Writer::new(&mut nonce);
        // Cannot fail: 11 and 2 bytes.
        let _ = writer.put(&self.fixed).and_then(|()| writer.put(&number));
        nonce
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resource").field("key_id", &self.key_id()).field("lease", &self.lease).finish_non_exhaustive()
    }
}

const NONCE_LEN: usize = 13;
const URI_LEN: usize = 7;
const HEAD_LEN: usize = KEY_ID_LEN + NUMBER_LEN;

#[cfg(test)]
mod tests;
