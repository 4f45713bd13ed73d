//! Fragments and early records, in the bounded room of one handshake (RFC 6347, section 4.2.3).
//!
//! The message that is due is put together at the front of the room. Whatever comes too early (a later message, a
//! record of the next epoch) waits at the back as it was received and is looked at again after each step. What does not
//! fit is dropped: the peer sends it again. A fragment that contradicts what came before is dropped whole, so that the
//! two cannot mix.

use super::handshake::{Fragment, MessageType};
use super::state::Stop;
use super::{Discard, Fatal};
use crate::buf::{Full, Reader, Writer, copy};

/// What kind of bytes wait.
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
    pub(crate) fn add(&mut self, room: &mut [u8], fragment: &Fragment<'_>, long: bool) -> Result<Option<usize>, Stop> {
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

    /// As [`Self::keep`], for a message that waited at `at`.
    pub(crate) fn keep_waiting(&mut self, room: &mut [u8], at: usize, len: usize) {
        self.make_room(room, len);
        if at.saturating_add(len) <= room.len() {
            room.copy_within(at..at.wrapping_add(len), 0);
            self.keep_front(len);
        }
    }

    /// As [`Self::keep`], for a message that was put together there.
    pub(crate) const fn keep_front(&mut self, len: usize) {
        self.total = len as u16;
        self.missing = 0;
    }

    /// What is kept at the front.
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

    /// Walks the items until `found` says so; position and length of that item's bytes.
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
mod tests {
    use super::*;
    use crate::dtls::handshake::{self, HEADER_LEN};
    use proptest::collection::vec;
    use proptest::prelude::*;
    use std::vec::Vec;

    const TYPE: MessageType = MessageType::CLIENT_KEY_EXCHANGE;

    fn header(total: usize, offset: usize, len: usize) -> [u8; HEADER_LEN] {
        handshake::header(TYPE, total as u32, 2, offset as u32, len as u32)
    }

    proptest! {
        /// Pieces of one message in any order, with overlaps and repetitions, and forged ones between.
        #[test]
        fn what_comes_together_is_the_message_or_nothing(
            message in vec(any::<u8>(), 2..60),
            pieces in vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<bool>()), 0..60),
            long: bool,
        ) {
            let mut room = [0; 72];
            let mut inbox = Inbox::new();
            let mut honest = true;
            for (start, end, forged) in pieces {
                let start = start.index(message.len());
                let end = start + end.index(message.len() - start + 1);
                let mut piece = message[start..end].to_vec();
                if forged {
                    piece.iter_mut().for_each(|byte| *byte ^= 0xff);
                    honest &= piece.is_empty();
                }
                let header = header(message.len(), start, piece.len());
                if let Ok(Some(len)) = inbox.add(&mut room, &Fragment { header: &header, body: &piece }, long) {
                    prop_assert_eq!(len, message.len());
                    // First wins: each byte is that of the message or that of the forger, who never overwrites.
                    let whole = &room[..len];
                    prop_assert!(whole.iter().zip(&message).all(|(is, was)| is == was || *is == was ^ 0xff));
                    prop_assert!(!honest || whole == message);
                    honest = true;
                }
            }
            // However it went: whoever sends all of it in one piece is heard, unless a forger was first.
            if honest {
                let header = header(message.len(), 0, message.len());
                let whole = Fragment { header: &header, body: &message };
                prop_assert!(matches!(inbox.add(&mut room, &whole, long), Ok(Some(_))));
            }
        }

        #[test]
        fn what_waits_is_taken_as_it_was_kept(items in vec((any::<bool>(), any::<u16>(), vec(any::<u8>(), 0..40)), 0..12)) {
            let mut room = [0; 128];
            let mut inbox = Inbox::new();
            let mut kept: Vec<(bool, Vec<u8>)> = Vec::new();
            for (record, seq, body) in items {
                let [high, low] = seq.to_be_bytes();
                let header = [0, 0, 0, 0, high, low, 0, 0, 0, 0, 0, body.len() as u8];
                let kind = if record { Held::Record } else { Held::Fragment };
                let bytes = [&header[..], &body].concat();
                let fits = kept.iter().map(|(_, bytes)| bytes.len() + 3).sum::<usize>() + bytes.len() + 3 <= 128;
                let known = kept.iter().any(|(r, b)| *r == record && b.starts_with(&header) && b.len() == bytes.len());
                prop_assert_eq!(inbox.hold(&mut room, kind, &header, &body).is_ok(), fits || known);
                if fits && !known {
                    kept.push((record, bytes));
                }
            }
            while let Some((at, len)) = inbox.take_record(&mut room) {
                let found = kept.iter().position(|(record, bytes)| *record && bytes[..] == room[at..at + len]);
                kept.remove(found.unwrap());
            }
            for seq in kept.iter().map(|(_, bytes)| u16::from_be_bytes([bytes[4], bytes[5]])).collect::<Vec<_>>() {
                let (at, len) = inbox.take_fragment(&mut room, seq).unwrap();
                let found = kept.iter().position(|(record, bytes)| !*record && bytes[..] == room[at..at + len]);
                kept.remove(found.unwrap());
            }
            prop_assert!(kept.is_empty());
        }

        #[test]
        fn any_fragments_in_any_room_are_total(
            room in 0usize..80,
            steps in vec((0u32..100, 0u32..100, vec(any::<u8>(), 0..50), any::<u8>()), 0..50),
            long: bool,
        ) {
            let mut room = std::vec![0; room];
            let mut inbox = Inbox::new();
            for (total, offset, body, step) in steps {
                let total = total.max(offset + body.len() as u32);
                let header = header(total as usize, offset as usize, body.len());
                let piece = Fragment { header: &header, body: &body };
                match step % 8 {
                    0 => { let _ = inbox.hold(&mut room, Held::Record, &[step; 12], &body); }
                    1 => { let _ = inbox.hold(&mut room, Held::Fragment, &[0, 0, 0, 0, 0, step, 0, 0, 0, 0, 0, 0], &body); }
                    2 => { inbox.take_record(&mut room); }
                    3 => { inbox.take_fragment(&mut room, u16::from(step)); }
                    4 => inbox.forget_pieces(),
                    5 if step > 250 => inbox.clear(),
                    _ => if let Ok(Some(len)) = inbox.add(&mut room, &piece, long) { prop_assert!(len <= room.len()) },
                }
            }
        }
    }
}
