//! Fragments and early records, in the bounded receive buffer of one handshake (RFC 6347, section 4.2.3).
//!
//! The message that is due is put together at the front of the room. Whatever comes too early (a later message, a
//! record of the next epoch) waits at the back as it was received and is looked at again after each step. What does not
//! fit is dropped: the peer sends it again. A fragment that contradicts what came before is dropped whole, so that the
//! two cannot mix.

use super::Fatal;
use super::handshake::{Fragment, MessageType};
use super::outcome::Outcome;
use crate::buf::{Full, Reader, Writer, copy, shift_left};
use crate::counters::Discard;

/// The kind of the bytes that wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    /// A handshake header and its whole message.
    Fragment,
    /// A whole record of the protected epoch, header included.
    Record,
}

const CONSUMED: u8 = 0xff;
/// Length (2) and kind (1) before the bytes of each waiting item.
const ITEM_HEADER: usize = 3;

/// The bookkeeping of the room; the room itself belongs to the peer table.
#[derive(Debug)]
pub(crate) struct Inbox {
    kind: MessageType,
    /// Length of the message at the front; 0 if none is being put together. Behind it stands a bit for each of its bytes,
    /// set once it has come.
    total: u16,
    /// How many of its bytes have not come yet.
    missing: u16,
    /// Bytes used at the back.
    held: u16,
}

impl Inbox {
    pub(crate) const fn new() -> Self {
        Self { kind: MessageType(0), total: 0, missing: 0, held: 0 }
    }

    /// Adds a fragment of the message that is due. Returns the length of the message once it is complete. Where messages may
    /// be `long`, as certificates are, a fragment of which nothing has come yet is taken in one piece.
    pub(crate) fn add(
        &mut self,
        room: &mut [u8],
        fragment: &Fragment<'_>,
        long: bool,
    ) -> Result<Option<usize>, Outcome> {
        let total = fragment.length() as usize;
        let free = room.len().saturating_sub(self.held.into());
        let (message, rest) = room.split_at_mut_checked(total).ok_or(Fatal::TooLarge)?;
        let come = rest.get_mut(..total.div_ceil(8)).ok_or(Fatal::TooLarge)?;
        if self.total == 0 {
            self.kind = fragment.message_type();
            self.total = total as u16;
            self.missing = self.total;
            if free < total.saturating_add(come.len()) {
                self.held = 0;
            }
            come.fill(0);
        } else if self.kind != fragment.message_type() || usize::from(self.total) != total {
            return Err(Discard::Malformed.into());
        }
        let offset = fragment.offset() as usize;
        let new = long
            && masks(offset, fragment.body.len()).all(|(at, bits)| come.get(at).is_some_and(|come| come & bits == 0));
        if new {
            copy(message.get_mut(offset..).unwrap_or(&mut []), fragment.body).map_err(|_| Discard::Malformed)?;
            for (at, bits) in masks(offset, fragment.body.len()) {
                if let Some(come) = come.get_mut(at) {
                    *come |= bits;
                }
            }
            self.missing = self.missing.wrapping_sub(fragment.body.len() as u16);
        }
        // Looked at before it is written, so that what contradicts is dropped whole.
        for write in if new { &[][..] } else { &[false, true] } {
            for (at, new) in (offset..).zip(fragment.body) {
                let (Some(old), Some(come)) = (message.get_mut(at), come.get_mut(at / 8)) else { break };
                let bit = 1 << (at % 8);
                if *come & bit == 0 {
                    if *write {
                        *old = *new;
                        *come |= bit;
                        self.missing = self.missing.wrapping_sub(1);
                    }
                } else if old != new {
                    return Err(Discard::Malformed.into());
                }
            }
        }
        if self.missing > 0 {
            return Ok(None);
        }
        self.total = 0;
        Ok(Some(total))
    }

    /// Forgets the message at the front, which came whole after all; what waits at the back stays.
    pub(crate) fn forget_pieces(&mut self) {
        self.total = 0;
    }

    /// Keeps a whole message at the front until [`Self::forget_pieces`].
    pub(crate) fn keep(&mut self, room: &mut [u8], message: &[u8]) -> Result<(), Fatal> {
        self.make_room(room, message.len());
        copy(room, message).map_err(|_| Fatal::TooLarge)?;
        self.keep_front(message.len());
        Ok(())
    }

    /// Does the same as [`Self::keep`], for a message that waited at `at`.
    pub(crate) fn keep_waiting(&mut self, room: &mut [u8], at: usize, len: usize) {
        self.make_room(room, len);
        if let Some(up_to_end) = room.get_mut(..at.saturating_add(len)) {
            shift_left(up_to_end, at, 0);
            self.keep_front(len);
        }
    }

    /// Does the same as [`Self::keep`], for a message that was reassembled at the front.
    pub(crate) const fn keep_front(&mut self, len: usize) {
        self.total = len as u16;
        self.missing = 0;
    }

    /// Returns the message that is kept at the front.
    pub(crate) fn kept<'r>(&self, room: &'r [u8]) -> &'r [u8] {
        room.get(..self.total.into()).unwrap_or(&[])
    }

    fn make_room(&mut self, room: &[u8], len: usize) {
        if room.len().saturating_sub(self.held.into()) < len.saturating_add(len.div_ceil(8)) {
            self.held = 0;
        }
    }

    /// Keeps `header` and `body` for later, if it is not there already.
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

    /// Finds a waiting fragment of message `seq` and marks it as used; the range of its bytes in the room.
    pub(crate) fn take_fragment(&mut self, room: &mut [u8], seq: u16) -> Option<(usize, usize)> {
        self.take(room, Held::Fragment, Some(seq))
    }

    /// Finds a waiting record and marks it as used; the range of its bytes in the room.
    pub(crate) fn take_record(&mut self, room: &mut [u8]) -> Option<(usize, usize)> {
        self.take(room, Held::Record, None)
    }

    /// Forgets everything that waits.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// `seq` stands behind type and length of a handshake header.
    #[inline(never)]
    fn take(&mut self, room: &mut [u8], wanted: Held, seq: Option<u16>) -> Option<(usize, usize)> {
        let (at, len) = self.each(room, |kind, bytes| {
            let [_, _, _, _, high, low, ..] = *bytes else { return false };
            kind == wanted as u8 && seq.is_none_or(|seq| seq == u16::from_be_bytes([high, low]))
        })?;
        *room.get_mut(at.checked_sub(1)?)? = CONSUMED;
        Some((at, len))
    }

    /// Walks the items until `found` returns true. Returns position and length of that item's bytes.
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

/// Where the bits of `len` bytes from `offset` stand: the byte, and those in it.
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
