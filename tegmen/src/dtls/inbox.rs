//! The bounded receive buffer of one handshake, which stores fragments and early records (RFC 6347, section 4.2.3).
//!
//! The front of the buffer holds the message that the handshake expects next. There it is reassembled from its
//! fragments. The end of the buffer holds items that arrived too early: fragments of later messages, and records of the
//! next epoch. After each step of the handshake, the items that the handshake now expects are processed. If an item
//! does not fit into the buffer, it is dropped, and the peer sends it again. If a fragment contradicts bytes that
//! arrived earlier, the whole fragment is dropped, so that the content of two messages cannot mix.

use super::Fatal;
use super::handshake::{Fragment, MessageType};
use super::outcome::Outcome;
use super::roles::Roles;
use crate::buf::{Full, Reader, Writer, copy, shift_left};
use crate::counters::Discard;

/// The kind of an item that arrived too early. The item waits at the end of the receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// A whole message that arrived too early, or a fragment of such a message. The item begins with the handshake
    /// header.
    Fragment,
    /// A whole record of the protected epoch, with its header.
    Record,
}

const CONSUMED: u8 = 0xff;
/// Number of bytes before each waiting item: its length (2 bytes) and its kind (1 byte).
const ITEM_HEADER: usize = 3;

/// The state of the receive buffer. The buffer itself is in the peer table.
#[derive(Debug)]
pub(crate) struct Inbox {
    kind: MessageType,
    /// Length of the message at the front; 0 if no message is being reassembled. After the space for the message, the
    /// buffer has one bit for each byte of the message. The bit is set when the byte has arrived. If the message is
    /// verified while it arrives, this field has another meaning: the number of bytes of the message that are now at
    /// the front of the buffer.
    total: u16,
    /// Number of bytes of the message at the front that have arrived.
    come: u16,
    /// Number of bytes at the end of the buffer that waiting items use.
    held: u16,
}

impl Inbox {
    pub(crate) const fn new() -> Self {
        Self { kind: MessageType(0), total: 0, come: 0, held: 0 }
    }

    /// Adds a fragment of the message that the handshake expects next. Returns the length of this message if it is now
    /// complete, otherwise `None`. `long` is true if messages may be long, as certificates are. In this case, a
    /// fragment of which no byte has arrived before is copied with one call and not byte by byte.
    pub(crate) fn add(
        &mut self,
        room: &mut [u8],
        fragment: &Fragment<'_>,
        long: bool,
    ) -> Result<Option<usize>, Outcome> {
        let total = fragment.length() as usize;
        let free = room.len().saturating_sub(self.held.into());
        let (message, rest) = room.split_at_mut_checked(total).ok_or(Fatal::TooLarge)?;
        let bits = rest.get_mut(..total.div_ceil(8)).ok_or(Fatal::TooLarge)?;
        if self.total == 0 {
            self.kind = fragment.message_type();
            self.total = total as u16;
            self.come = 0;
            if free < total.saturating_add(bits.len()) {
                self.held = 0;
            }
            bits.fill(0);
        } else if self.kind != fragment.message_type() || usize::from(self.total) != total {
            return Err(Discard::Malformed.into());
        }
        let offset = fragment.offset() as usize;
        let new = long
            && masks(offset, fragment.body.len()).all(|(at, mask)| bits.get(at).is_some_and(|come| come & mask == 0));
        if new {
            copy(message.get_mut(offset..).unwrap_or(&mut []), fragment.body).map_err(|_| Discard::Malformed)?;
            for (at, mask) in masks(offset, fragment.body.len()) {
                if let Some(come) = bits.get_mut(at) {
                    *come |= mask;
                }
            }
            self.come = self.come.wrapping_add(fragment.body.len() as u16);
        }
        // The first pass compares and the second writes, so that a contradiction drops the whole fragment.
        for write in if new { &[][..] } else { &[false, true] } {
            for (at, new) in (offset..).zip(fragment.body) {
                let (Some(old), Some(come)) = (message.get_mut(at), bits.get_mut(at / 8)) else { break };
                let bit = 1 << (at % 8);
                if *come & bit == 0 {
                    if *write {
                        *old = *new;
                        *come |= bit;
                        self.come = self.come.wrapping_add(1);
                    }
                } else if old != new {
                    return Err(Discard::Malformed.into());
                }
            }
        }
        if self.come < self.total {
            return Ok(None);
        }
        self.forget_pieces();
        Ok(Some(total))
    }

    /// Forgets the message at the front. The waiting items at the end of the buffer remain.
    pub(crate) const fn forget_pieces(&mut self) {
        (self.total, self.come) = (0, 0);
    }

    /// Stores a whole message at the front of the buffer until [`Self::forget_pieces`].
    pub(crate) fn keep(&mut self, room: &mut [u8], message: &[u8]) -> Result<(), Fatal> {
        self.make_room(room, message.len());
        copy(room, message).map_err(|_| Fatal::TooLarge)?;
        self.keep_front(message.len());
        Ok(())
    }

    /// Does the same as [`Self::keep`] for a message that waited at the end of the buffer. This message has `len` bytes
    /// and begins at the position `at`.
    pub(crate) fn keep_waiting(&mut self, room: &mut [u8], at: usize, len: usize) {
        self.make_room(room, len);
        if let Some(up_to_end) = room.get_mut(..at.saturating_add(len)) {
            shift_left(up_to_end, at, 0);
            self.keep_front(len);
        }
    }

    /// Does the same as [`Self::keep`] for a message that is already at the front of the buffer, after its reassembly.
    pub(crate) const fn keep_front(&mut self, len: usize) {
        self.total = len as u16;
    }

    /// Returns the handshake message that is stored at the front of the buffer.
    pub(crate) fn kept<'r>(&self, room: &'r [u8]) -> &'r [u8] {
        room.get(..self.total.into()).unwrap_or(&[])
    }

    /// Returns the field `total`: the length of the handshake message that is reassembled at the front of the buffer.
    /// If the message is verified while it arrives, returns the number of its bytes that are still there.
    pub(crate) const fn front(&self) -> usize {
        self.total as usize
    }

    /// Returns how many bytes of the message at the front of the buffer have arrived.
    pub(crate) const fn come(&self) -> usize {
        self.come as usize
    }

    /// Counts `len` more received bytes of the message. These bytes are already at the front of the buffer.
    pub(crate) const fn advance(&mut self, len: usize) {
        self.total = self.total.wrapping_add(len as u16);
        self.come = self.come.wrapping_add(len as u16);
    }

    /// Sets the number of bytes at the front of the buffer to `len`. [`Self::front`] returns this number.
    pub(crate) const fn set_front(&mut self, len: usize) {
        self.total = len as u16;
    }

    /// Returns the position in the buffer at which the waiting items begin: fragments of later messages, and records of
    /// the next epoch. The bytes before this position are available for the message at the front.
    pub(crate) fn free(&self, room: &[u8]) -> usize {
        room.len().saturating_sub(self.held.into())
    }

    /// Drops all waiting items: fragments of later messages, and records of the next epoch. Returns false if there were
    /// none.
    pub(crate) fn drop_held(&mut self) -> bool {
        core::mem::take(&mut self.held) > 0
    }

    fn make_room(&mut self, room: &[u8], len: usize) {
        if room.len().saturating_sub(self.held.into()) < len.saturating_add(len.div_ceil(8)) {
            self.held = 0;
        }
    }

    /// Stores `header` and `body` together as a waiting item. Does nothing if an item with the same bytes already
    /// waits.
    pub(crate) fn hold(&mut self, room: &mut [u8], kind: Held, header: &[u8], body: &[u8]) -> Result<(), Discard> {
        let len = header.len().wrapping_add(body.len());
        let needed = usize::from(self.held).saturating_add(len).saturating_add(ITEM_HEADER);
        let same = |known, bytes: &[u8]| known == kind as u8 && bytes.len() == len && bytes.starts_with(header);
        if self.each(room, same).is_some() {
            return Ok(());
        }
        let start = room.len().checked_sub(needed).ok_or(Discard::NoRoom)?;
        let front = usize::from(self.total);
        if start < front.saturating_add(front.div_ceil(8)) {
            return Err(Discard::NoRoom);
        }
        let room = room.get_mut(start..).ok_or(Discard::NoRoom)?;
        let mut writer = Writer::new(room);
        let mut write = || -> Result<(), Full> {
            writer.u16(len as u16)?;
            writer.u8(kind as u8)?;
            writer.put(header)?;
            writer.put(body)
        };
        write().map_err(|_| Discard::NoRoom)?;
        self.held = needed as u16;
        Ok(())
    }

    /// Finds a waiting fragment of the message with the message_seq `seq`, and marks it as used. Returns the position
    /// and the length of the fragment in the buffer. The fragment includes its handshake header. If certificates are
    /// verified in parts, finds only a fragment that begins inside or directly after the bytes of the message that have
    /// arrived.
    pub(crate) fn take_fragment<R: Roles>(&mut self, room: &mut [u8], seq: u16) -> Option<(usize, usize)> {
        self.take::<R>(room, Held::Fragment, Some(seq))
    }

    /// Finds a waiting record, and marks it as used. Returns the position and the length of the record in the buffer.
    pub(crate) fn take_record<R: Roles>(&mut self, room: &mut [u8]) -> Option<(usize, usize)> {
        self.take::<R>(room, Held::Record, None)
    }

    /// Forgets the handshake message at the front of the buffer, and all items that wait at its end.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Finds a waiting item of the kind `wanted`, and marks it as used. If `seq` is given, the item must be a fragment
    /// with this message_seq. In a handshake header, the message_seq follows the type and the length, and the offset
    /// follows the message_seq.
    #[inline(never)]
    fn take<R: Roles>(&mut self, room: &mut [u8], wanted: Held, seq: Option<u16>) -> Option<(usize, usize)> {
        let (at, len) = self.each(room, |kind, bytes| {
            let [_, _, _, _, high, low, o0, o1, o2, ..] = *bytes else { return false };
            // The three bytes of the offset and the byte before them, so that one instruction loads them as a word.
            let offset = || u32::from_be_bytes([low, o0, o1, o2]) << 8;
            let is_due = || !R::CERTIFICATES_IN_PARTS || offset() <= u32::from(self.come) << 8;
            kind == wanted as u8 && seq.is_none_or(|seq| seq == u16::from_be_bytes([high, low]) && is_due())
        })?;
        *room.get_mut(at.checked_sub(1)?)? = CONSUMED;
        Some((at, len))
    }

    /// Calls `found` with the kind and the bytes of each waiting item, until it returns true. Returns the position and
    /// the length of the bytes of that item; `None` if `found` never returns true.
    fn each(&self, room: &[u8], mut found: impl FnMut(u8, &[u8]) -> bool) -> Option<(usize, usize)> {
        let mut at = room.len().checked_sub(self.held.into())?;
        loop {
            let mut reader = Reader::new(room.get(at..)?);
            let len = usize::from(reader.u16().ok()?);
            let kind = reader.u8().ok()?;
            let bytes = reader.take(len).ok()?;
            at = at.wrapping_add(ITEM_HEADER);
            if found(kind, bytes) {
                return Some((at, len));
            }
            at = at.wrapping_add(len);
        }
    }
}

/// Finds the bits that record the arrival of `len` bytes of a message, beginning with the byte at `offset`. For each
/// byte that contains such bits, returns the index of this byte and the mask of these bits.
fn masks(offset: usize, len: usize) -> impl Iterator<Item = (usize, u8)> {
    let end = offset.saturating_add(len);
    (offset / 8..end.div_ceil(8)).map(move |at| {
        let before = offset.saturating_sub(at.wrapping_mul(8));
        let behind = at.wrapping_mul(8).wrapping_add(8).saturating_sub(end);
        (at, 0xff_u8.checked_shl(before as u32).unwrap_or(0) & 0xff_u8.checked_shr(behind as u32).unwrap_or(0))
    })
}

#[cfg(test)]
mod tests;
