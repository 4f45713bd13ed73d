//! The exchanges that this endpoint began. Their messages are stored in cells: pieces of memory of one size. A long
//! message takes several cells.

use tegmen::buf::{Frame, Full};
use tegmen::coap::{Busy, Outgoing, RequestId, Waiting};

/// The index that marks the end of a list.
pub(super) const NONE: u32 = u32::MAX;
/// Number of bytes of a message that one cell (a piece of memory of fixed size) contains. A cell also contains the
/// index of the message's next cell, and so has the size of one cache line of the processor.
const CELL: usize = 60;
/// Number of slots in a block of a table ([`Slots`]). If a table has no free slot, it gets another block, and copies no
/// slots.
const BLOCK: usize = 256;

#[derive(Clone, Copy)]
struct Slot<T> {
    next: u32,
    value: T,
}

/// A table of slots, each with the index of the next slot in its list. The free slots are also a list.
struct Slots<T> {
    blocks: Vec<Box<[Slot<T>]>>,
    free: u32,
    used: usize,
}

impl<T: Copy> Slots<T> {
    const fn new() -> Self {
        Self { blocks: Vec::new(), free: NONE, used: 0 }
    }

    fn get(&self, at: u32) -> Option<&Slot<T>> {
        self.blocks.get(at as usize / BLOCK)?.get(at as usize % BLOCK)
    }

    fn get_mut(&mut self, at: u32) -> Option<&mut Slot<T>> {
        self.blocks.get_mut(at as usize / BLOCK)?.get_mut(at as usize % BLOCK)
    }

    fn add(&mut self, value: T) -> u32 {
        if self.free == NONE {
            let first = (self.blocks.len() * BLOCK) as u32;
            let next = |i: u32| if i + 1 < BLOCK as u32 { first + i + 1 } else { NONE };
            self.blocks.push((0..BLOCK as u32).map(|i| Slot { next: next(i), value }).collect());
            self.free = first;
        }
        let at = self.free;
        if let Some(slot) = self.get_mut(at) {
            let next = std::mem::replace(slot, Slot { next: NONE, value }).next;
            self.free = next;
            self.used += 1;
        }
        at
    }

    /// Frees a slot, and returns the index of the next slot in its list.
    fn remove(&mut self, at: u32) -> u32 {
        let free = self.free;
        let Some(slot) = self.get_mut(at) else { return NONE };
        let next = std::mem::replace(&mut slot.next, free);
        self.free = at;
        self.used -= 1;
        next
    }

    fn next(&self, at: u32) -> u32 {
        self.get(at).map_or(NONE, |slot| slot.next)
    }

    const fn used_bytes(&self) -> usize {
        self.used * size_of::<Slot<T>>()
    }

    fn heap_bytes(&self) -> usize {
        self.blocks.len() * BLOCK * size_of::<Slot<T>>() + self.blocks.capacity() * size_of::<Box<[Slot<T>]>>()
    }
}

#[derive(Clone, Copy)]
struct Sent {
    exchange: Outgoing,
    /// The index of the first cell of the message. A cell is a piece of memory for up to [`CELL`] bytes of a message.
    cells: u32,
    len: u16,
}

/// The exchanges that this endpoint began, with all peers.
pub(super) struct SentMessages {
    exchanges: Slots<Sent>,
    cells: Slots<[u8; CELL]>,
    /// Maximum number of bytes that all entries in `exchanges` and `cells` have together. A cell contains up to
    /// [`CELL`] bytes of a message.
    limit: usize,
}

impl SentMessages {
    pub(super) const fn new(limit: usize) -> Self {
        Self { exchanges: Slots::new(), cells: Slots::new(), limit }
    }

    /// Adds an exchange with this message to the list of a peer. `first` is the index of the first exchange of the
    /// list.
    pub(super) fn open(&mut self, first: &mut u32, message: &[u8]) -> Result<&mut Outgoing, Busy> {
        let len = u16::try_from(message.len()).map_err(|_| Busy::TooLong)?;
        let needed = size_of::<Slot<Sent>>() + message.len().div_ceil(CELL) * size_of::<Slot<[u8; CELL]>>();
        if self.used_bytes() + needed > self.limit {
            return Err(Busy::Outstanding);
        }
        let mut cells = NONE;
        for part in message.chunks(CELL).rev() {
            let mut bytes = [0; CELL];
            bytes[..part.len()].copy_from_slice(part);
            let cell = self.cells.add(bytes);
            if let Some(slot) = self.cells.get_mut(cell) {
                slot.next = cells;
            }
            cells = cell;
        }
        let added = self.exchanges.add(Sent { exchange: Outgoing::NONE, cells, len });
        let mut last = NONE;
        let mut at = *first;
        while at != NONE {
            (last, at) = (at, self.exchanges.next(at));
        }
        match self.exchanges.get_mut(last) {
            Some(slot) => slot.next = added,
            None => *first = added,
        }
        self.exchanges.get_mut(added).map(|slot| &mut slot.value.exchange).ok_or(Busy::Outstanding)
    }

    pub(super) fn iter(&self, first: u32) -> impl Iterator<Item = &Outgoing> {
        let slots = std::iter::successors(self.exchanges.get(first), |slot| self.exchanges.get(slot.next));
        slots.map(|slot| &slot.value.exchange)
    }

    fn position(&self, first: u32, mut is_it: impl FnMut(&Outgoing) -> bool) -> Option<u32> {
        let mut at = first;
        loop {
            let slot = self.exchanges.get(at)?;
            if is_it(&slot.value.exchange) {
                return Some(at);
            }
            at = slot.next;
        }
    }

    pub(super) fn find(&mut self, first: u32, is_it: impl FnMut(&Outgoing) -> bool) -> Option<&mut Outgoing> {
        let at = self.position(first, is_it)?;
        self.exchanges.get_mut(at).map(|slot| &mut slot.value.exchange)
    }

    pub(super) fn write(&self, first: u32, id: RequestId, frame: &mut Frame<'_>) -> Result<(), Full> {
        let sent = self.position(first, |exchange| exchange.id == id).and_then(|at| self.exchanges.get(at));
        let Some(Sent { cells, len, .. }) = sent.map(|slot| slot.value) else { return Ok(()) };
        let (mut at, mut rest) = (cells, usize::from(len));
        if frame.room() < rest {
            return Err(Full);
        }
        while let Some(cell) = self.cells.get(at) {
            let part = rest.min(CELL);
            frame.append(&cell.value[..part])?;
            rest -= part;
            at = cell.next;
        }
        Ok(())
    }

    /// Frees the slot of the exchange `id` in the table if the exchange has ended. Frees the cells (pieces of memory)
    /// that contain the message of the exchange if the message will not be sent again.
    pub(super) fn settle(&mut self, first: &mut u32, id: RequestId) {
        let found = self.find(*first, |exchange| exchange.id == id).map(|exchange| exchange.waiting);
        match found {
            Some(Waiting::Nothing) => self.close(first, id),
            Some(Waiting::Response | Waiting::SeparateResponse | Waiting::Notifications) => {
                self.drop_message(*first, id)
            }
            Some(Waiting::Acknowledgement) | None => {}
        }
    }

    fn drop_message(&mut self, first: u32, id: RequestId) {
        let Some(at) = self.position(first, |exchange| exchange.id == id) else { return };
        let Some(slot) = self.exchanges.get_mut(at) else { return };
        slot.value.len = 0;
        let mut cell = std::mem::replace(&mut slot.value.cells, NONE);
        while cell != NONE {
            cell = self.cells.remove(cell);
        }
    }

    fn close(&mut self, first: &mut u32, id: RequestId) {
        let Some(at) = self.position(*first, |exchange| exchange.id == id) else { return };
        self.drop_message(*first, id);
        let next = self.exchanges.remove(at);
        if *first == at {
            *first = next;
            return;
        }
        let mut before = *first;
        while let Some(slot) = self.exchanges.get_mut(before) {
            if slot.next == at {
                slot.next = next;
                return;
            }
            before = slot.next;
        }
    }

    /// Ends all exchanges of the list that begins with the slot `first`.
    pub(super) fn forget(&mut self, first: &mut u32) {
        while let Some(id) = self.exchanges.get(*first).map(|slot| slot.value.exchange.id) {
            self.close(first, id);
        }
        *first = NONE;
    }

    /// Returns the number of bytes that exchanges and messages take now.
    pub(super) const fn used_bytes(&self) -> usize {
        self.exchanges.used_bytes() + self.cells.used_bytes()
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.exchanges.heap_bytes() + self.cells.heap_bytes()
    }
}
