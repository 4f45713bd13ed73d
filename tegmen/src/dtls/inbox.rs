//! Fragments and early records, in the bounded room of one handshake (RFC 6347, section 4.2.3).
//!
//! The message that is due is put together at the front of the room. Whatever comes too early (a later message, a
//! record of the next epoch) waits at the back as it was received and is looked at again after each step. What does not
//! fit is dropped: the peer sends it again. A fragment that contradicts what came before is dropped whole, so that the
//! two cannot mix.

use super::handshake::{Fragment, HEADER_LEN, MessageType};
use super::{Discard, Fatal};
use crate::buf::{Reader, copy};

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

/// Disjoint pieces of a message that may wait for what is between them.
const PIECES: usize = 4;

/// The bookkeeping of the room; the room itself belongs to the peer table.
#[derive(Debug)]
pub(crate) struct Inbox {
    kind: MessageType,
    /// Length of the message at the front; 0 if none is being put together.
    total: u16,
    /// What of it has come, as start and end; empty pieces are free.
    pieces: [(u16, u16); PIECES],
    /// Bytes used at the back.
    held: u16,
}

impl Inbox {
    pub(crate) const fn new() -> Self {
        Self { kind: MessageType(0), total: 0, pieces: [(0, 0); PIECES], held: 0 }
    }

    /// Adds a fragment of the message that is due. Returns the length of the message once it is complete.
    pub(crate) fn add(&mut self, room: &mut [u8], fragment: &Fragment<'_>) -> Result<Option<usize>, AddError> {
        let total = fragment.length as usize;
        if total > room.len() {
            return Err(AddError::Fatal(Fatal::TooLarge));
        }
        if self.total == 0 {
            self.kind = fragment.message_type;
            self.total = total as u16;
            self.pieces = [(0, 0); PIECES];
            if total.saturating_add(self.held.into()) > room.len() {
                self.held = 0;
            }
        } else if self.kind != fragment.message_type || usize::from(self.total) != total {
            return Err(AddError::Discard(Discard::Malformed));
        }
        let start = fragment.offset as u16;
        let place = room.get_mut(usize::from(start)..).unwrap_or(&mut []);
        let known = |at: u16| self.pieces.iter().any(|&(start, end)| start <= at && at < end);
        let contradicts =
            (start..).zip(place.iter().zip(fragment.body)).any(|(at, (old, new))| known(at) && old != new);
        if contradicts {
            return Err(AddError::Discard(Discard::Malformed));
        }
        self.merge((start, start.wrapping_add(fragment.body.len() as u16))).map_err(AddError::Discard)?;
        copy(place, fragment.body).map_err(|_| AddError::Discard(Discard::Malformed))?;
        let complete = self.pieces.contains(&(0, self.total));
        if complete {
            self.total = 0;
        }
        Ok(complete.then_some(total))
    }

    /// Joins a piece with those it touches.
    fn merge(&mut self, mut new: (u16, u16)) -> Result<(), Discard> {
        let touches = |old: (u16, u16), new: (u16, u16)| old.0 < old.1 && old.0 <= new.1 && new.0 <= old.1;
        if !self.pieces.iter().any(|&piece| piece.0 == piece.1 || touches(piece, new)) {
            return Err(Discard::NoRoom);
        }
        // Twice, because the piece that was joined may now touch an earlier one.
        for _ in 0..2 {
            for piece in &mut self.pieces {
                if touches(*piece, new) {
                    new = (new.0.min(piece.0), new.1.max(piece.1));
                    *piece = (0, 0);
                }
            }
        }
        match self.pieces.iter_mut().find(|piece| piece.0 == piece.1) {
            Some(free) => *free = new,
            None => return Err(Discard::NoRoom),
        }
        Ok(())
    }

    /// Keeps `header` and `body` for later, if it is not there already.
    pub(crate) fn hold(&mut self, room: &mut [u8], kind: Held, header: &[u8], body: &[u8]) -> Result<(), Discard> {
        let len = header.len().wrapping_add(body.len());
        let needed = usize::from(self.held).saturating_add(len).saturating_add(ITEM_HEADER);
        let mut same = false;
        self.each(room, |_, known, bytes| {
            same |= known == kind as u8 && bytes.len() == len && bytes.starts_with(header);
            false
        });
        if same {
            return Ok(());
        }
        let start = room.len().checked_sub(needed).ok_or(Discard::NoRoom)?;
        if start < usize::from(self.total) {
            return Err(Discard::NoRoom);
        }
        let room = room.get_mut(start..).ok_or(Discard::NoRoom)?;
        let mut writer = crate::buf::Writer::new(room);
        let mut write = || -> Result<(), crate::buf::Full> {
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
        self.take(room, |kind, bytes| {
            kind == Held::Fragment as u8 && bytes.get(4..6) == Some(&seq.to_be_bytes()) && bytes.len() >= HEADER_LEN
        })
    }

    /// Finds a waiting record and marks it as used; the range of its bytes in the room.
    pub(crate) fn take_record(&mut self, room: &mut [u8]) -> Option<(usize, usize)> {
        self.take(room, |kind, _| kind == Held::Record as u8)
    }

    /// Forgets everything that waits.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    fn take(&mut self, room: &mut [u8], wanted: impl Fn(u8, &[u8]) -> bool) -> Option<(usize, usize)> {
        let (at, len) = self.each(room, |_, kind, bytes| wanted(kind, bytes))?;
        *room.get_mut(at.checked_sub(1)?)? = CONSUMED;
        Some((at, len))
    }

    /// Walks the items until `found` says so; position and length of that item's bytes.
    fn each(&self, room: &[u8], mut found: impl FnMut(usize, u8, &[u8]) -> bool) -> Option<(usize, usize)> {
        let mut at = room.len().checked_sub(self.held.into())?;
        loop {
            let mut reader = Reader::new(room.get(at..)?);
            let len = usize::from(reader.u16().ok()?);
            let kind = reader.u8().ok()?;
            let bytes = reader.take(len).ok()?;
            at = at.wrapping_add(ITEM_HEADER);
            if found(at, kind, bytes) {
                return Some((at, len));
            }
            at = at.wrapping_add(len);
        }
    }
}

/// Why a fragment was not added.
pub(crate) enum AddError {
    /// It is dropped.
    Discard(Discard),
    /// No such message can ever be put together here.
    Fatal(Fatal),
}
