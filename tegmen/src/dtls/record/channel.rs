//! Both directions of a session: keys, numbers, and the replay window.

use super::cbc::BLOCK_LEN;
use super::cipher::{associated_data, nonce, nonce_of_number};
use super::{
    Cipher, ContentType, EXPLICIT_LEN, HEADER_LEN, LongKey, LongKeys, MAX_CONTENT, MAX_FAILED, MAX_SEALED, NUMBER_END,
    Record, RecordNumber, TAG_LEN, TrafficKey, header,
};
use crate::buf::{Frame, Full, Reader, Truncated, Writer};
use crate::counters::Discard;
use crate::crypto::Crypto;
use crate::dtls::CipherSuite;
use crate::dtls::connection_id::{self, ConnectionId};
use crate::dtls::session::Session;
use crate::replay::ReplayWindow;

/// Both directions of an association in its protected epoch: the result of a handshake.
#[derive(Debug)]
pub struct Channel {
    pub(crate) write: TrafficKey,
    pub(crate) read: TrafficKey,
    /// In place of both, where the cipher has longer ones.
    pub(crate) long: LongKeys,
    next_sequence: u32,
    window: ReplayWindow,
    failed_opens: u16,
    cipher: Cipher,
    /// Chunks of record numbers that may be used.
    lease: u8,
}

/// Record numbers that a session outside of its endpoint leases at a time.
pub const CHUNK: u32 = 1 << 16;
/// Chunks of a key: all numbers there are.
const CHUNKS: u8 = (MAX_SEALED / CHUNK) as u8;

/// The epoch of the first keys, the only one without renegotiation.
const PROTECTED_EPOCH: u16 = 1;

/// An error of encryption: the key may encrypt no more records, or the content does not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealError {
    /// The frame has no room for header, explicit nonce and tag, or the content is above 2^14 bytes.
    Full,
    /// 2^23 records were sealed, and a new handshake is due; or what was leased is used up ([`Channel::lease_end`]).
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
            write: TrafficKey::none(),
            read: TrafficKey::none(),
            long: LongKeys::none(),
            next_sequence: 0,
            window: ReplayWindow::new(),
            failed_opens: 0,
            cipher: Cipher::Ccm8,
            lease: 0,
        }
    }

    /// A channel of one end under a key block (RFC 5246, section 6.3) that did not come from a handshake here: for tools and
    /// tests that look at records. `encrypt_then_mac` is that of RFC 7366.
    ///
    /// `None` if the suite is not known, or the block too short.
    pub fn from_key_block(suite: CipherSuite, encrypt_then_mac: bool, block: &[u8], client: bool) -> Option<Self> {
        let (_, cipher) = suite.parts()?;
        let cipher = if encrypt_then_mac { cipher.with_encrypt_then_mac()? } else { cipher };
        let mut channel = Self::none();
        channel.set_keys(block, client, cipher).ok()?;
        Some(channel)
    }

    /// Bytes that [`Self::seal`] puts before the content.
    #[inline]
    pub const fn headroom<C: Crypto>(&self) -> usize {
        HEADER_LEN.wrapping_add(self.cipher.explicit_len::<C>())
    }

    /// Bytes that [`Self::seal`] puts behind a content of `len` bytes.
    #[inline]
    pub const fn tailroom<C: Crypto>(&self, len: usize) -> usize {
        self.cipher.tail_len::<C>(len)
    }

    /// Bytes that [`Self::seal`] puts behind any content at most.
    #[inline]
    pub const fn max_tailroom<C: Crypto>(&self) -> usize {
        self.cipher.max_tail_len::<C>()
    }

    /// Resets the channel to the keys of a key block (RFC 5246, section 6.3; no MAC keys): client key, server key,
    /// client salt, server salt.
    pub(crate) fn set_keys(&mut self, block: &[u8], client: bool, cipher: Cipher) -> Result<(), Truncated> {
        self.cipher = cipher;
        self.lease = CHUNKS;
        self.next_sequence = 0;
        self.window = ReplayWindow::new();
        self.failed_opens = 0;
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

    #[cfg(test)]
    pub(super) const fn skip_to(&mut self, number: u32) {
        self.next_sequence = number;
    }

    /// Forgets the keys; nothing can be opened or sealed any more.
    pub(crate) fn wipe(&mut self) {
        self.write.key.wipe();
        self.read.key.wipe();
        self.long = LongKeys::none();
        self.next_sequence = MAX_SEALED;
        self.failed_opens = MAX_FAILED;
    }

    /// Returns the number of records encrypted.
    pub const fn sealed(&self) -> u32 {
        self.next_sequence
    }

    /// Seals what is in `frame`, which needs [`Self::headroom`] bytes before its content and [`Self::tailroom`] behind.
    ///
    /// # Errors
    /// [`SealError`]; no number is spent on [`SealError::Full`] before the cipher ran.
    #[inline]
    pub fn seal<C: Crypto>(
        &mut self,
        crypto: &mut C,
        content_type: ContentType,
        frame: &mut Frame<'_>,
    ) -> Result<(), SealError> {
        // What is too short is refused after its number was spent, as whatever else does not fit.
        let len = frame.len();
        let record = frame.widen(self.headroom::<C>(), self.tailroom::<C>(len)).unwrap_or(&mut []);
        self.seal_record(crypto, content_type, len, record)
    }

    /// As [`Self::seal`], for a whole record: a content of `len` bytes, and around it the room that it needs.
    // As with `open`.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn seal_record<C: Crypto>(
        &mut self,
        crypto: &mut C,
        content_type: ContentType,
        len: usize,
        record: &mut [u8],
    ) -> Result<(), SealError> {
        self.seal_with(crypto, self.headroom::<C>(), len, record, |place, number, sealed_len, len| {
            let place = place.first_chunk_mut::<HEADER_LEN>().ok_or(Full)?;
            *place = header(content_type, number, sealed_len);
            Ok(associated_data(place, len))
        })
    }

    /// Does the same as [`Self::seal_record`], for a record with the connection id `id` (RFC 9146, section 4). Before
    /// the content there must be room of [`Self::headroom`] and the length of the id. Behind the content there must be
    /// one byte for its type, padding up to `inner` bytes, and room for the tag. `content` is the length of the
    /// content.
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
        self.seal_with(crypto, headroom, inner, record, |place, number, sealed_len, len| {
            let header = header(ContentType::TLS12_CID, number, sealed_len);
            let (number, length) = header.split_at(NUMBER_END);
            let mut writer = Writer::new(place);
            writer.put(number)?;
            writer.put(id.bytes())?;
            writer.put(length)?;
            Ok(connection_id::associated_data(&header, id, len))
        })
    }

    /// Seals a whole record, before whose content of `content` bytes lie `headroom` bytes; `write_header` is given those before the explicit
    /// nonce, the number, the length of what follows the header and that of the content, and makes the associated data.
    #[inline(always)]
    fn seal_with<C: Crypto, A: AsRef<[u8]>>(
        &mut self,
        crypto: &mut C,
        headroom: usize,
        content: usize,
        record: &mut [u8],
        write_header: impl FnOnce(&mut [u8], RecordNumber, u16, u16) -> Result<A, Full>,
    ) -> Result<(), SealError> {
        if self.next_sequence >= self.lease_end() {
            return Err(SealError::KeyExhausted);
        }
        let number = RecordNumber::new(PROTECTED_EPOCH, self.next_sequence.into());
        // The number is spent before the cipher runs: whatever happens next, it is not used again.
        self.next_sequence = self.next_sequence.wrapping_add(1);
        let (head, record) = record.split_at_mut_checked(headroom).ok_or(SealError::Full)?;
        if let Some(mode) = self.cipher.mode::<C>() {
            let fits = content <= MAX_CONTENT && record.len() == content.wrapping_add(mode.tail_len(content));
            let (place, iv) = head.split_last_chunk_mut().filter(|_| fits).ok_or(SealError::Full)?;
            crypto.random(iv);
            let sealed_len = record.len().wrapping_add(iv.len()) as u16;
            let aad = write_header(place, number, sealed_len, mode.authentic_len(content) as u16)?;
            let key = self.long.write().ok_or(SealError::Full)?;
            return mode.seal(crypto, key, aad.as_ref(), iv, content, record).ok_or(SealError::Full);
        }
        let len = record.len().checked_sub(self.cipher.tail_len::<C>(content)).filter(|len| *len <= MAX_CONTENT);
        let len = len.ok_or(SealError::Full)?;
        let sealed_len = (self.cipher.explicit_len::<C>() as u16).wrapping_add(record.len() as u16);
        let mut nowhere = [0; EXPLICIT_LEN];
        let (place, explicit) = match self.cipher.is_chacha20::<C>() {
            true => (head, &mut nowhere),
            false => head.split_last_chunk_mut().ok_or(SealError::Full)?,
        };
        let aad = write_header(place, number, sealed_len, len as u16)?;
        let aad = aad.as_ref();
        *explicit = number.0.to_be_bytes();
        let (key, nonce) = match self.cipher.is_chacha20::<C>() {
            true => {
                let (key, iv) = self.long.write().and_then(LongKey::chacha20).ok_or(SealError::Full)?;
                (key.as_slice(), nonce_of_number(iv, explicit))
            }
            false => (self.write.key.expose().as_slice(), nonce(&self.write.salt, explicit)),
        };
        let (body, tag) = record.split_at_mut_checked(len).ok_or(SealError::Full)?;
        let sealed = crypto.seal(self.cipher.aead::<C>(), key, &nonce, aad, body, tag);
        sealed.map_err(|_| SealError::Full)
    }

    /// Opens `record` in place. The window moves only after the tag proved the record authentic.
    ///
    /// # Errors
    /// Why the record is dropped.
    // Twice in an image is too much for a mote; a server opens millions a second.
    #[cfg_attr(target_pointer_width = "64", inline(always))]
    pub fn open<'r, C: Crypto>(&mut self, crypto: &mut C, record: Record<'r>) -> Result<&'r mut [u8], Discard> {
        self.open_with(crypto, record, MAX_CONTENT, associated_data)
    }

    /// Does the same as [`Self::open`], for a record with our connection id `id`. Returns the content and its type.
    pub(crate) fn open_with_id<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        id: &ConnectionId,
        record: Record<'r>,
    ) -> Result<(ContentType, &'r mut [u8]), Discard> {
        let aad = |header: &[u8; HEADER_LEN], len| connection_id::associated_data(header, id, len);
        // The type of the content is inside.
        let plaintext = self.open_with(crypto, record, MAX_CONTENT.saturating_add(1), aad)?;
        connection_id::inner(plaintext).ok_or(Discard::Unexpected)
    }

    /// As [`Self::open`] or, with the id that we gave, [`Self::open_with_id`]: a record without it is then nobody's (RFC
    /// 9146, section 3). `content_type` is that of the header, and becomes that of the content.
    // Both in the result would not fit the registers of a mote.
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
        if record.epoch() != PROTECTED_EPOCH {
            return Err(Discard::UnknownPeer);
        }
        if self.failed_opens >= MAX_FAILED {
            return Err(Discard::NotAuthentic);
        }
        let fresh = self.window.fresh(record.number().sequence()).map_err(|_| Discard::Replayed)?;
        if let Some(mode) = self.cipher.mode::<C>() {
            if !mode.fits(record.body.len()) {
                return Err(Discard::Malformed);
            }
            let key = self.long.read().ok_or(Discard::NotAuthentic)?;
            let len = mode.open(crypto, key, |len| associated_data(record.header, len), record.body);
            let len = len.ok_or(Discard::NotAuthentic)?;
            fresh.accept();
            let content = record.body.get_mut(BLOCK_LEN..).and_then(|text| text.get_mut(..len));
            return content.filter(|content| content.len() <= limit).ok_or(Discard::Malformed);
        }
        let number = record.number().0.to_be_bytes();
        let tag_len = self.cipher.tail_len::<C>(0);
        let (explicit, rest) = match self.cipher.is_chacha20::<C>() {
            true => (&number, record.body),
            false => {
                let (explicit, rest) = record.body.split_first_chunk_mut().ok_or(Discard::Malformed)?;
                (&*explicit, rest)
            }
        };
        let len = rest.len().checked_sub(tag_len).filter(|len| *len <= limit).ok_or(Discard::Malformed)?;
        let aad = associated_data(record.header, len as u16);
        let (key, nonce) = match self.cipher.is_chacha20::<C>() {
            true => {
                let (key, iv) = self.long.read().and_then(LongKey::chacha20).ok_or(Discard::NotAuthentic)?;
                (key.as_slice(), nonce_of_number(iv, explicit))
            }
            false => (self.read.key.expose().as_slice(), nonce(&self.read.salt, explicit)),
        };
        let (content, tag) = rest.split_at_mut_checked(len).ok_or(Discard::Malformed)?;
        let opened = crypto.open(self.cipher.aead::<C>(), key, &nonce, aad.as_ref(), content, tag);
        if opened.is_err() {
            if tag_len == TAG_LEN {
                self.failed_opens = self.failed_opens.saturating_add(1);
            }
            return Err(Discard::NotAuthentic);
        }
        fresh.accept();
        Ok(content)
    }

    /// Records that failed to open, of those that count.
    pub(crate) const fn failed_opens(&self) -> u16 {
        self.failed_opens
    }

    /// Takes back what failed since there were `before`; true if anything did.
    pub(crate) const fn forgive(&mut self, before: u16) -> bool {
        let failed = self.failed_opens > before;
        self.failed_opens = before;
        failed
    }

    /// Returns one more than the last record number that may be used.
    pub const fn lease_end(&self) -> u32 {
        (self.lease as u32).wrapping_mul(CHUNK)
    }

    /// Allows all numbers before `end`, a multiple of [`CHUNK`] that was made durable before.
    pub(crate) const fn set_lease(&mut self, end: u32) {
        let chunks = end / CHUNK;
        self.lease = if chunks > CHUNKS as u32 { CHUNKS } else { chunks as u8 };
    }

    /// Goes on with a session that was kept; nothing may be sealed before [`Self::set_lease`].
    pub(crate) fn restore(&mut self, session: &Session) {
        (self.write, self.read, self.long) = (session.write.copy(), session.read.copy(), session.long.copy());
        (self.cipher, self.lease, self.failed_opens) = (session.cipher, 0, 0);
        (self.next_sequence, self.window) = (session.next, session.window.clone());
    }

    pub(crate) const fn cipher(&self) -> Cipher {
        self.cipher
    }

    pub(crate) const fn window(&self) -> &ReplayWindow {
        &self.window
    }

    /// True while what the peer has used is not known, because it was lost.
    pub const fn is_unverified(&self) -> bool {
        self.window.mark().is_some()
    }

    /// Does the same as [`Self::open`], while the window is lost: the result is authentic, but may be a replay.
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

    /// The peer proved that what it sent last is fresh: nothing up to there is taken again.
    pub(crate) const fn verify(&mut self) {
        if let Some(mark) = self.window.mark() {
            self.window = ReplayWindow::seen_up_to(mark);
        }
    }

    /// True once a key reached a limit that calls for a new handshake.
    pub const fn is_exhausted(&self) -> bool {
        self.next_sequence >= MAX_SEALED || self.failed_opens >= MAX_FAILED
    }
}
