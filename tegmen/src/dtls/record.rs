//! The record layer (RFC 6347, section 4.1) with AES-128-CCM_8 (RFC 6655).

use super::connection_id::{self, ConnectionId};
use super::handshake::MessageType;
use super::session::Session;
use super::{Discard, VERSION};
use crate::buf::{Frame, Full, Reader, Truncated, Writer};
use crate::crypto::{Crypto, KEY_LEN};
use crate::replay::ReplayWindow;
use crate::secret::Secret;

/// Bytes of a record header.
pub const HEADER_LEN: usize = 13;
/// Bytes of the explicit nonce behind the header (RFC 6655, section 3).
pub const EXPLICIT_LEN: usize = 8;
/// Bytes of the tag of CCM_8.
pub const TAG_LEN: usize = 8;
/// Bytes of tag behind a record of TLS_PSK_WITH_AES_128_GCM_SHA256.
pub const GCM_TAG_LEN: usize = 16;
/// What a record protected with CCM_8 adds to its content: 29 bytes.
pub const OVERHEAD: usize = HEADER_LEN + EXPLICIT_LEN + TAG_LEN;
/// What stands before the content of a protected record.
pub const HEADROOM: usize = HEADER_LEN + EXPLICIT_LEN;
/// Bytes of the implicit part of the nonce, from the key block.
pub const SALT_LEN: usize = 4;

/// Longest content of a record (RFC 5246, section 6.2.1).
pub const MAX_CONTENT: usize = 1 << 14;
/// Records sealed under one key before a new handshake is due.
pub const MAX_SEALED: u32 = 1 << 23;
/// Records that failed to open under one key before a new handshake is due.
pub const MAX_FAILED: u16 = 1 << 10;

/// What a record carries (RFC 5246, section 6.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentType(pub u8);

impl ContentType {
    /// The sender uses its new keys from here on.
    pub const CHANGE_CIPHER_SPEC: Self = Self(20);
    /// Two bytes: level and description.
    pub const ALERT: Self = Self(21);
    /// Handshake messages or fragments of them.
    pub const HANDSHAKE: Self = Self(22);
    /// The application's bytes.
    pub const APPLICATION_DATA: Self = Self(23);
    /// The record has a connection id, and its type inside (RFC 9146, section 4).
    pub const TLS12_CID: Self = Self(25);
    /// Whether a peer receives at a new address (RFC 9853, section 4).
    pub const RETURN_ROUTABILITY_CHECK: Self = Self(27);
}

/// Epoch (16 bits) and sequence number (48 bits), as they stand in the header.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordNumber(pub u64);

impl RecordNumber {
    /// The number `sequence` of `epoch`; bits past the 48th are the caller's mistake and are cut.
    pub const fn new(epoch: u16, sequence: u64) -> Self {
        Self((epoch as u64) << 48 | sequence & 0xffff_ffff_ffff)
    }

    /// The epoch: 0 is plaintext.
    pub const fn epoch(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The number within the epoch.
    pub const fn sequence(self) -> u64 {
        self.0 & 0xffff_ffff_ffff
    }
}

/// One received record, still sealed if its epoch is not 0.
#[derive(Debug)]
pub struct Record<'r> {
    /// Where it lies: a mote keeps what it says in three registers.
    pub(crate) header: &'r [u8; HEADER_LEN],
    /// What follows the header.
    pub body: &'r mut [u8],
}

impl Record<'_> {
    /// What it carries.
    pub const fn content_type(&self) -> ContentType {
        let [content_type, ..] = *self.header;
        ContentType(content_type)
    }

    /// Its epoch and sequence number.
    pub const fn number(&self) -> RecordNumber {
        let [_, _, _, number @ .., _, _] = self.header;
        RecordNumber(u64::from_be_bytes(*number))
    }

    /// Its epoch: 0 is plaintext.
    pub const fn epoch(&self) -> u16 {
        let [_, _, _, high, low, ..] = *self.header;
        u16::from_be_bytes([high, low])
    }

    /// True if it carries, sealed, what an application says.
    #[inline]
    pub(crate) fn is_application_data(&self) -> bool {
        self.epoch() != 0 && self.content_type() == ContentType::APPLICATION_DATA
    }

    /// True if it is one of a return routability check, sealed without a connection id.
    pub(crate) fn is_return_routability_check(&self) -> bool {
        self.epoch() != 0 && self.content_type() == ContentType::RETURN_ROUTABILITY_CHECK
    }

    /// True if it begins with a ClientHello in clear.
    pub(crate) fn is_client_hello(&self) -> bool {
        self.epoch() == 0
            && self.content_type() == ContentType::HANDSHAKE
            && self.body.first() == Some(&MessageType::CLIENT_HELLO.0)
    }
}

/// The records of one datagram, one after the other.
#[derive(Debug)]
pub struct Records<'r> {
    rest: &'r mut [u8],
}

impl<'r> Records<'r> {
    /// All records of `datagram`.
    pub const fn new(datagram: &'r mut [u8]) -> Self {
        Self { rest: datagram }
    }

    /// The next record, `None` at the end. A record that does not parse ends the datagram.
    pub fn next_record(&mut self) -> Option<Result<Record<'r>, Discard>> {
        (!self.is_empty()).then(|| self.take().ok_or(Discard::Malformed))
    }

    /// As [`Self::next_record`], where a record with a connection id has one of `len` bytes (RFC 9146, section 4).
    pub fn next_record_with_id(&mut self, len: usize) -> Option<Result<Record<'r>, Discard>> {
        match self.has_connection_id() {
            true => Some(self.take_with_id(len).map(|(_, record)| record).ok_or(Discard::Malformed)),
            false => self.next_record(),
        }
    }

    /// True at the end.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next record; `None` at the end, or if it does not parse, and then nothing is left.
    #[inline]
    pub(crate) fn take(&mut self) -> Option<Record<'r>> {
        let rest = core::mem::take(&mut self.rest);
        let (header, rest) = rest.split_first_chunk_mut::<HEADER_LEN>()?;
        let header = &*header;
        let [_, major, minor, .., high, low] = *header;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let (body, rest) = rest.split_at_mut_checked(len)?;
        let record = Record { header, body };
        // Before the version is agreed on the minor one may be any; afterwards it is what the tag is computed with.
        let version_fits = major == VERSION[0] && (record.epoch() == 0 || minor == VERSION[1]);
        if !version_fits || len > MAX_CONTENT.saturating_add(EXPLICIT_LEN + GCM_TAG_LEN) {
            return None;
        }
        self.rest = rest;
        Some(record)
    }

    /// True if the next record has a connection id.
    pub(crate) fn has_connection_id(&self) -> bool {
        self.rest.first() == Some(&ContentType::TLS12_CID.0)
    }

    /// As [`Self::take`], for a record with a connection id of `len` bytes, which nothing in it says; and its id.
    pub(crate) fn take_with_id(&mut self, len: usize) -> Option<(&'r [u8], Record<'r>)> {
        let rest = core::mem::take(&mut self.rest);
        // The id goes to the front, so that what is behind it is a header like any other.
        rest.get_mut(..len.checked_add(NUMBER_END)?)?.rotate_right(len);
        let (id, rest) = rest.split_at_mut_checked(len)?;
        self.rest = rest;
        let record = self.take()?;
        (record.epoch() != 0).then_some((id, record))
    }
}

/// Where the number ends in a header, and the id begins if there is one.
const NUMBER_END: usize = HEADER_LEN - 2;

/// The header of a record whose body is `len` bytes.
#[inline]
pub(crate) fn header(content_type: ContentType, number: RecordNumber, len: u16) -> [u8; HEADER_LEN] {
    let mut header = [content_type.0, VERSION[0], VERSION[1], 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let [_, _, _, place @ .., high, low] = &mut header;
    *place = number.0.to_be_bytes();
    [*high, *low] = len.to_be_bytes();
    header
}

/// Writes a record of epoch 0 at the front of `out`: its header, `head`, and `behind` bytes that stand there already.
/// Returns its length.
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

/// The associated data (RFC 5246, section 6.2.3.3): number, type and version of the record, length of its content.
#[inline]
fn associated_data(header: &[u8; HEADER_LEN], len: u16) -> [u8; HEADER_LEN] {
    let [content_type, major, minor, number @ .., _, _] = header;
    let mut data = [0, 0, 0, 0, 0, 0, 0, 0, *content_type, *major, *minor, 0, 0];
    let [place @ .., _, _, _, high, low] = &mut data;
    *place = *number;
    [*high, *low] = len.to_be_bytes();
    data
}

fn nonce(salt: &[u8; SALT_LEN], explicit: &[u8; EXPLICIT_LEN]) -> [u8; SALT_LEN + EXPLICIT_LEN] {
    let mut nonce = [0; SALT_LEN + EXPLICIT_LEN];
    let [a, b, c, d, place @ ..] = &mut nonce;
    [*a, *b, *c, *d] = *salt;
    *place = *explicit;
    nonce
}

/// The key of one direction.
#[derive(Debug)]
pub(crate) struct TrafficKey {
    pub(crate) key: Secret<KEY_LEN>,
    pub(crate) salt: [u8; SALT_LEN],
}

impl TrafficKey {
    const fn none() -> Self {
        Self { key: Secret::zeroed(), salt: [0; SALT_LEN] }
    }
}

/// The cipher of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Aead {
    /// AES_128_CCM_8 (RFC 6655): a tag of 8 bytes.
    Ccm8,
    /// AES_128_GCM (RFC 5288): a tag of 16 bytes; nonce and associated data are those of CCM_8.
    Gcm,
}

impl Aead {
    /// True only where the provider has GCM, so that nothing of it is linked where it has not.
    const fn is_gcm<C: Crypto>(self) -> bool {
        C::GCM && matches!(self, Self::Gcm)
    }
}

/// Both directions of an association in its protected epoch: what is left of a handshake.
#[derive(Debug)]
pub struct Channel {
    pub(crate) write: TrafficKey,
    pub(crate) read: TrafficKey,
    next_sequence: u32,
    window: ReplayWindow,
    failed_opens: u16,
    aead: Aead,
    /// Chunks of record numbers that may be used.
    lease: u8,
}

/// Record numbers that a session outside of its endpoint leases at a time.
pub const CHUNK: u32 = 1 << 16;
/// Chunks of a key: all numbers there are.
const CHUNKS: u8 = (MAX_SEALED / CHUNK) as u8;

/// The epoch of the first keys, the only one without renegotiation.
pub(crate) const PROTECTED_EPOCH: u16 = 1;

/// The key may seal no more records, or the content does not fit.
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
            next_sequence: 0,
            window: ReplayWindow::new(),
            failed_opens: 0,
            aead: Aead::Ccm8,
            lease: 0,
        }
    }

    /// Bytes that [`Self::seal`] puts behind the content.
    #[inline]
    pub const fn tag_len<C: Crypto>(&self) -> usize {
        if self.aead.is_gcm::<C>() { GCM_TAG_LEN } else { TAG_LEN }
    }

    /// Begins anew with the keys of a key block (RFC 5246, section 6.3; no MAC keys): client key, server key, client
    /// salt, server salt.
    pub(crate) fn set_keys(&mut self, block: &[u8], client: bool, aead: Aead) -> Result<(), Truncated> {
        self.aead = aead;
        self.lease = CHUNKS;
        self.next_sequence = 0;
        self.window = ReplayWindow::new();
        self.failed_opens = 0;
        let mut reader = Reader::new(block);
        let (mine, theirs) = (&mut self.write, &mut self.read);
        let (first, second) = if client { (mine, theirs) } else { (theirs, mine) };
        *first.key.expose_mut() = reader.array()?;
        *second.key.expose_mut() = reader.array()?;
        first.salt = reader.array()?;
        second.salt = reader.array()?;
        Ok(())
    }

    /// Forgets the keys; nothing can be opened or sealed any more.
    pub(crate) fn wipe(&mut self) {
        self.write.key.wipe();
        self.read.key.wipe();
        self.next_sequence = MAX_SEALED;
        self.failed_opens = MAX_FAILED;
    }

    /// Records sealed so far.
    pub const fn sealed(&self) -> u32 {
        self.next_sequence
    }

    /// Seals what is in `frame`, which needs [`HEADROOM`] bytes before its content and [`TAG_LEN`] behind.
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
        let record = frame.widen(HEADROOM, self.tag_len::<C>()).unwrap_or(&mut []);
        self.seal_record(crypto, content_type, record)
    }

    /// As [`Self::seal`], for a whole record: what is sealed, and around it the room that it needs.
    // As with `open`.
    #[cfg_attr(target_pointer_width = "64", inline)]
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn seal_record<C: Crypto>(
        &mut self,
        crypto: &mut C,
        content_type: ContentType,
        record: &mut [u8],
    ) -> Result<(), SealError> {
        self.seal_with(crypto, HEADROOM, record, |place, number, sealed_len, len| {
            let place = place.first_chunk_mut::<HEADER_LEN>().ok_or(Full)?;
            *place = header(content_type, number, sealed_len);
            Ok(associated_data(place, len))
        })
    }

    /// As [`Self::seal_record`], for a record with the connection id `id` (RFC 9146, section 4): before the content lies
    /// room of [`HEADROOM`] and the length of the id, behind it one byte for its type, then as much padding as the record
    /// is to have, then room for the tag. `content` is the length of the content.
    pub(crate) fn seal_with_id<C: Crypto>(
        &mut self,
        crypto: &mut C,
        content_type: ContentType,
        id: &ConnectionId,
        content: usize,
        record: &mut [u8],
    ) -> Result<(), SealError> {
        let headroom = HEADROOM.wrapping_add(id.bytes().len());
        let tag_len = self.tag_len::<C>();
        let inner = record.get_mut(headroom..).and_then(|rest| {
            let len = rest.len().checked_sub(tag_len)?;
            rest.get_mut(..len)?.get_mut(content..)
        });
        if let Some([kind, padding @ ..]) = inner {
            *kind = content_type.0;
            padding.fill(0);
        }
        self.seal_with(crypto, headroom, record, |place, number, sealed_len, len| {
            let header = header(ContentType::TLS12_CID, number, sealed_len);
            let (number, length) = header.split_at(NUMBER_END);
            let mut writer = Writer::new(place);
            writer.put(number)?;
            writer.put(id.bytes())?;
            writer.put(length)?;
            Ok(connection_id::associated_data(&header, id, len))
        })
    }

    /// Seals a whole record, before whose content lie `headroom` bytes; `write_header` is given those before the explicit
    /// nonce, the number, the length of what follows the header and that of the content, and makes the associated data.
    #[inline(always)]
    fn seal_with<C: Crypto, A: AsRef<[u8]>>(
        &mut self,
        crypto: &mut C,
        headroom: usize,
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
        let len = record.len().checked_sub(self.tag_len::<C>()).filter(|len| *len <= MAX_CONTENT);
        let len = len.ok_or(SealError::Full)? as u16;
        let sealed_len = (EXPLICIT_LEN as u16).wrapping_add(record.len() as u16);
        let (place, explicit) = head.split_last_chunk_mut::<EXPLICIT_LEN>().ok_or(SealError::Full)?;
        let aad = write_header(place, number, sealed_len, len)?;
        let aad = aad.as_ref();
        *explicit = number.0.to_be_bytes();
        let nonce = nonce(&self.write.salt, explicit);
        let key = self.write.key.expose();
        let sealed = if self.aead.is_gcm::<C>() {
            let (body, tag) = record.split_last_chunk_mut().ok_or(SealError::Full)?;
            crypto.gcm_seal(key, &nonce, aad, body, tag)
        } else {
            let (body, tag) = record.split_last_chunk_mut::<TAG_LEN>().ok_or(SealError::Full)?;
            crypto.ccm_seal(key, &nonce, aad, body, tag)
        };
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

    /// As [`Self::open`], for a record with our connection id `id`: what it carries, and of which type.
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
        let (tag_len, gcm) = (self.tag_len::<C>(), self.aead.is_gcm::<C>());
        let fresh = self.window.fresh(record.number().sequence()).map_err(|_| Discard::Replayed)?;
        let (explicit, rest) = record.body.split_first_chunk_mut::<EXPLICIT_LEN>().ok_or(Discard::Malformed)?;
        let (key, nonce) = (self.read.key.expose(), nonce(&self.read.salt, explicit));
        let len = rest.len().checked_sub(tag_len).filter(|len| *len <= limit);
        let aad = associated_data(record.header, len.ok_or(Discard::Malformed)? as u16);
        let aad = aad.as_ref();
        let (content, opened) = if gcm {
            let (content, tag) = rest.split_last_chunk_mut().ok_or(Discard::Malformed)?;
            let opened = crypto.gcm_open(key, &nonce, aad, content, tag);
            (content, opened)
        } else {
            let (content, tag) = rest.split_last_chunk_mut::<TAG_LEN>().ok_or(Discard::Malformed)?;
            let opened = crypto.ccm_open(key, &nonce, aad, content, tag);
            (content, opened)
        };
        if opened.is_err() {
            self.failed_opens = self.failed_opens.saturating_add(1);
            return Err(Discard::NotAuthentic);
        }
        fresh.accept();
        Ok(content)
    }

    /// One more than the last record number that may be used.
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
        *self.write.key.expose_mut() = *session.write.0.expose();
        *self.read.key.expose_mut() = *session.read.0.expose();
        (self.write.salt, self.read.salt) = (session.write.1, session.read.1);
        (self.aead, self.lease, self.failed_opens) = (session.aead, 0, 0);
        (self.next_sequence, self.window) = (session.next, session.window.clone());
    }

    pub(crate) const fn aead(&self) -> Aead {
        self.aead
    }

    pub(crate) const fn window(&self) -> &ReplayWindow {
        &self.window
    }

    /// True while what the peer has used is not known, because it was lost.
    pub const fn is_unverified(&self) -> bool {
        self.window.mark().is_some()
    }

    /// As [`Self::open`], while the window is lost: what comes out is authentic, and perhaps a replay.
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

#[cfg(test)]
mod tests;
