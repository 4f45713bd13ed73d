//! Both directions of a session: the keys, the record numbers, the limit up to which our record numbers are reserved
//! (the lease), and the replay window.

use super::cipher::associated_data;
use super::connection_id::{self, ConnectionId};
use super::protection::Protection;
use super::{
    Cipher, ContentType, HEADER_LEN, Keys, MAX_CONTENT, MAX_FAILED, MAX_SEALED, NUMBER_END, Record, RecordNumber,
    header,
};
use crate::buf::{Frame, Full, Truncated, Writer};
use crate::counters::Discard;
use crate::crypto::Crypto;
use tegmen_base::replay::ReplayWindow;

/// The keys and record numbers of both directions of an association, in its protected epoch. The handshake sets the
/// keys.
#[derive(Debug)]
pub struct Channel {
    keys: Keys,
    next_sequence: u32,
    window: ReplayWindow,
    failed_opens: u16,
    cipher: Cipher,
    /// Number of chunks of record numbers that are reserved for this channel. The channel may use only the record
    /// numbers in these chunks: see [`Self::lease_end`].
    lease: u8,
}

/// Number of record numbers in a chunk: a range of consecutive record numbers. For a session that is stored outside of
/// its endpoint, one chunk is reserved at a time.
pub const CHUNK: u32 = 1 << 16;
/// The number of chunks into which all record numbers of one key are divided. A chunk is a range of [`CHUNK`] record
/// numbers.
const CHUNKS: u8 = (MAX_SEALED / CHUNK) as u8;

/// The reason why a record was not encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealError {
    /// The frame has no space for header, explicit nonce and tag, or the content is longer than 2^14 bytes.
    Full,
    /// The key has sealed 2^23 records, so a new handshake is necessary. Or all reserved record numbers are used
    /// ([`Channel::lease_end`]).
    KeyExhausted,
}

impl From<Full> for SealError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl Channel {
    /// A channel that has no keys yet.
    pub(crate) const fn none() -> Self {
        Self {
            keys: Keys::none(),
            next_sequence: 0,
            window: ReplayWindow::new(),
            failed_opens: 0,
            cipher: Cipher::Ccm8,
            lease: 0,
        }
    }

    /// Returns the number of bytes that [`Self::seal`] adds before the content.
    #[inline]
    pub(crate) const fn headroom<C: Crypto>(&self) -> usize {
        HEADER_LEN.wrapping_add(self.cipher.explicit_len::<C>())
    }

    /// Returns the number of bytes that [`Self::seal`] adds after a content of `len` bytes.
    #[inline]
    pub(crate) const fn tailroom<C: Crypto>(&self, len: usize) -> usize {
        self.cipher.tail_len::<C>(len)
    }

    /// Returns the maximum number of bytes that [`Self::seal`] adds after any content.
    #[inline]
    pub(crate) const fn max_tailroom<C: Crypto>(&self) -> usize {
        self.cipher.max_tail_len::<C>()
    }

    /// Returns the maximum number of bytes that [`Self::seal`] adds to any content, before and after it together.
    pub const fn max_overhead<C: Crypto>(&self) -> usize {
        self.headroom::<C>().wrapping_add(self.max_tailroom::<C>())
    }

    /// Sets the keys to those of a key block (RFC 5246, section 6.3), and resets everything else. `client` is true if
    /// our endpoint is the client. If the cipher has no MAC keys, the block contains the client key, the server key,
    /// the client salt and the server salt.
    pub(crate) fn set_keys(&mut self, block: &[u8], client: bool, cipher: Cipher) -> Result<(), Truncated> {
        self.cipher = cipher;
        self.lease = CHUNKS;
        self.next_sequence = 0;
        self.window = ReplayWindow::new();
        self.failed_opens = 0;
        self.keys.set(block, client, cipher)
    }

    #[cfg(test)]
    pub(super) const fn skip_to(&mut self, number: u32) {
        self.next_sequence = number;
    }

    /// Wipes the keys. After that, no record can be opened or sealed.
    pub(crate) fn wipe(&mut self) {
        self.keys.wipe();
        self.next_sequence = MAX_SEALED;
        self.failed_opens = MAX_FAILED;
    }

    /// Returns the number of records that were sealed.
    pub const fn sealed(&self) -> u32 {
        self.next_sequence
    }

    /// Encrypts the content of `frame` in place. The frame needs `Self::headroom` free bytes before the content and
    /// `Self::tailroom` free bytes after it.
    ///
    /// # Errors
    /// `KeyExhausted` if the key has sealed its maximum number of records, or if all reserved record numbers are used
    /// ([`Self::lease_end`]). No record number is used up then. `Full` if the record is longer than its buffer, or if
    /// the content is longer than 2^14 bytes. One record number is used up then.
    #[inline]
    pub fn seal<C: Crypto>(
        &mut self,
        crypto: &mut C,
        content_type: ContentType,
        frame: &mut Frame<'_>,
    ) -> Result<(), SealError> {
        // If the frame is too short, the record is refused after its record number is used, like every record that does
        // not fit.
        let len = frame.len();
        let record = frame.widen(self.headroom::<C>(), self.tailroom::<C>(len)).unwrap_or(&mut []);
        self.seal_record(crypto, content_type, len, record)
    }

    /// Does the same as [`Self::seal`] for a content of `len` bytes in `record`. The content already has the necessary
    /// free bytes before and after it.
    // An image of a mote must not contain this code twice, so the function is inlined only on a host.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn seal_record<C: Crypto>(
        &mut self,
        crypto: &mut C,
        content_type: ContentType,
        len: usize,
        record: &mut [u8],
    ) -> Result<(), SealError> {
        self.seal_with(crypto, HEADER_LEN, len, record, |place, number, sealed_len, len| {
            let place = place.first_chunk_mut::<HEADER_LEN>().ok_or(Full)?;
            *place = header(content_type, number, sealed_len);
            Ok(associated_data(place, len))
        })
    }

    /// Does the same as [`Self::seal_record`] for a record with the connection id `id` (RFC 9146, section 4). `content`
    /// is the length of the content. Before the content, `record` needs [`Self::headroom`] bytes and the bytes of the
    /// id. After the content it needs one byte for the content type, the bytes of the padding, and the bytes of the
    /// tag. `inner` is the total number of bytes of content, content type and padding.
    pub(crate) fn seal_with_id<C: Crypto>(
        &mut self,
        crypto: &mut C,
        content_type: ContentType,
        id: &ConnectionId,
        content: usize,
        inner: usize,
        record: &mut [u8],
    ) -> Result<(), SealError> {
        let headroom = self.headroom::<C>().wrapping_add(id.bytes().len());
        let end = headroom.wrapping_add(inner);
        if let Some([kind, padding @ ..]) = record.get_mut(headroom.wrapping_add(content)..end) {
            *kind = content_type.0;
            padding.fill(0);
        }
        let head_len = HEADER_LEN.wrapping_add(id.bytes().len());
        self.seal_with(crypto, head_len, inner, record, |place, number, sealed_len, len| {
            let header = header(ContentType::TLS12_CID, number, sealed_len);
            let (number, length) = header.split_at(NUMBER_END);
            let mut writer = Writer::new(place);
            writer.put(number)?;
            writer.put(id.bytes())?;
            writer.put(length)?;
            Ok(connection_id::associated_data(&header, id, len))
        })
    }

    /// Seals a whole record in place. The record has `head_len` bytes of header, the explicit nonce, a content of
    /// `content` bytes, and the tag. Calls `write_header` with the first `head_len` bytes of the record, the record
    /// number, the length of the record after the header, and the length that the associated data contains.
    /// `write_header` writes the header, and returns the associated data.
    #[inline(always)]
    fn seal_with<C: Crypto, A: AsRef<[u8]>>(
        &mut self,
        crypto: &mut C,
        head_len: usize,
        content: usize,
        record: &mut [u8],
        write_header: impl FnOnce(&mut [u8], RecordNumber, u16, u16) -> Result<A, Full>,
    ) -> Result<(), SealError> {
        if self.next_sequence >= self.lease_end() {
            return Err(SealError::KeyExhausted);
        }
        let number = RecordNumber::new(self.epoch(), self.next_sequence.into());
        // The record number is used up before the cipher runs, so that it is never used again, even after an error.
        self.next_sequence = self.next_sequence.wrapping_add(1);
        let (head, fragment) = record.split_at_mut_checked(head_len).ok_or(SealError::Full)?;
        let len = self.cipher.authentic_len::<C>(content, fragment.len()).ok_or(SealError::Full)?;
        let aad = write_header(head, number, fragment.len() as u16, len as u16)?;
        let protection = Protection::writing(&self.keys, self.cipher);
        protection.seal(crypto, &number.0.to_be_bytes(), aad.as_ref(), content, fragment)?;
        // Here a header whose number is masked with bytes of the ciphertext is finished (RFC 9147, section 4.2.3).
        Ok(())
    }

    /// Opens `record` in place. The replay window moves only after the tag has proved that the record is authentic.
    ///
    /// # Errors
    /// The reason why the record is dropped.
    // An image of a mote must not contain this code twice; a server opens millions of records a second.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub fn open<'r, C: Crypto>(&mut self, crypto: &mut C, record: Record<'r>) -> Result<&'r mut [u8], Discard> {
        self.open_with(crypto, record, MAX_CONTENT, associated_data)
    }

    /// Does the same as [`Self::open`] for a record with our connection id `id`. Returns the content type and the
    /// content.
    pub(crate) fn open_with_id<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        id: &ConnectionId,
        record: Record<'r>,
    ) -> Result<(ContentType, &'r mut [u8]), Discard> {
        let aad = |header: &[u8; HEADER_LEN], len| connection_id::associated_data(header, id, len);
        // The content type is in the plaintext.
        let plaintext = self.open_with(crypto, record, MAX_CONTENT.saturating_add(1), aad)?;
        connection_id::inner(plaintext).ok_or(Discard::Unexpected)
    }

    /// Opens a record of a session with or without connection ids. If we issued no connection id, `id` is `None`, and
    /// this function does the same as [`Self::open`].
    ///
    /// If we issued a connection id, `id` is this id. The function then does the same as [`Self::open_with_id`], and
    /// refuses a record without a connection id (RFC 9146, section 3). The caller sets `content_type` to the type in
    /// the header. If the record has a connection id, this function replaces that type by the decrypted content type.
    // The type is not part of the result, because both would not fit the registers of a mote.
    #[inline(always)]
    pub(crate) fn open_by<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        id: Option<&ConnectionId>,
        record: Record<'r>,
        content_type: &mut ContentType,
    ) -> Result<&'r mut [u8], Discard> {
        match id {
            None => self.open(crypto, record),
            Some(_) if *content_type != ContentType::TLS12_CID => Err(Discard::Unexpected),
            Some(id) => self.open_with_id(crypto, id, record).map(|(inside, content)| {
                *content_type = inside;
                content
            }),
        }
    }

    #[inline(always)]
    fn open_with<'r, C: Crypto, A: AsRef<[u8]>>(
        &mut self,
        crypto: &mut C,
        record: Record<'r>,
        limit: usize,
        associated_data: impl FnOnce(&[u8; HEADER_LEN], u16) -> A,
    ) -> Result<&'r mut [u8], Discard> {
        if record.epoch() != self.epoch() {
            return Err(Discard::UnknownPeer);
        }
        if self.failed_opens >= MAX_FAILED {
            return Err(Discard::NotAuthentic);
        }
        let number = record.number();
        let fresh = self.window.fresh(number.sequence()).map_err(|_| Discard::Replayed)?;
        let associated_data = |len| associated_data(record.header, len);
        let protection = Protection::reading(&self.keys, self.cipher);
        let (number, failed) = (&number.0.to_be_bytes(), &mut self.failed_opens);
        let opened = protection.open(crypto, number, failed, limit, associated_data, record.body);
        let content = opened?;
        fresh.accept();
        if self.cipher.is_cbc::<C>() && content.len() > limit {
            return Err(Discard::Malformed);
        }
        Ok(content)
    }

    /// Returns the number of records that failed to open. Counts only the failures that are limited: see
    /// [`MAX_FAILED`](super::MAX_FAILED).
    pub(crate) const fn failed_opens(&self) -> u16 {
        self.failed_opens
    }

    /// Takes `before`, an earlier value of [`Self::failed_opens`], and sets the count of failed records to this value.
    /// Returns true if the count was higher.
    pub(crate) const fn forgive(&mut self, before: u16) -> bool {
        let failed = self.failed_opens > before;
        self.failed_opens = before;
        failed
    }

    /// Returns the end of the reserved record numbers: one more than the last record number that the channel may use.
    pub const fn lease_end(&self) -> u32 {
        (self.lease as u32).wrapping_mul(CHUNK)
    }

    /// Allows the channel to use all record numbers below `end`. `end` is a multiple of [`CHUNK`] that the owner of the
    /// endpoint has already stored durably.
    pub(crate) const fn set_lease(&mut self, end: u32) {
        let chunks = end / CHUNK;
        self.lease = if chunks > CHUNKS as u32 { CHUNKS } else { chunks as u8 };
    }

    /// Continues a stored session with these keys, with the next record number `next`, and with this replay window. No
    /// record can be sealed before [`Self::set_lease`].
    pub(crate) fn restore(&mut self, keys: &Keys, cipher: Cipher, next: u32, window: &ReplayWindow) {
        self.keys = keys.copy();
        (self.cipher, self.lease, self.failed_opens) = (cipher, 0, 0);
        (self.next_sequence, self.window) = (next, window.clone());
    }

    pub(crate) const fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Returns the epoch of the keys, which is always 1: without renegotiation, only the first protected epoch
    /// exists.
    const fn epoch(&self) -> u16 {
        1
    }

    pub(crate) const fn cipher(&self) -> Cipher {
        self.cipher
    }

    pub(crate) const fn window(&self) -> &ReplayWindow {
        &self.window
    }

    /// True if the replay window was lost and is not verified yet. The record numbers that the peer has used are then
    /// not known.
    pub(crate) const fn is_unverified(&self) -> bool {
        self.window.mark().is_some()
    }

    /// Does the same as [`Self::open_by`] while the replay window is lost. The content is authentic, but the record may
    /// be a replay.
    pub(crate) fn open_unverified<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        id: Option<&ConnectionId>,
        record: Record<'r>,
        content_type: &mut ContentType,
    ) -> Result<&'r mut [u8], Discard> {
        let (mark, number) = (self.window.mark().unwrap_or(0), record.number().sequence());
        self.window = ReplayWindow::new();
        let opened = self.open_by(crypto, id, record, content_type);
        self.window = ReplayWindow::lost(if opened.is_ok() { mark.max(number) } else { mark });
        opened
    }

    /// Begins a new replay window, after the peer proved that its last record is fresh. The channel accepts no record
    /// with the number of that record or a lower number.
    pub(crate) const fn verify(&mut self) {
        if let Some(mark) = self.window.mark() {
            self.window = ReplayWindow::seen_up_to(mark);
        }
    }

    /// True after a key has reached one of its limits. A new handshake is then necessary.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.next_sequence >= MAX_SEALED || self.failed_opens >= MAX_FAILED
    }
}
