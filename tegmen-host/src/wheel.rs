//! A hierarchical timing wheel for the entries of a slab. Setting, moving and clearing an alarm cost the same for a
//! million entries as for ten, and finding the earliest alarm reads six words.

use tegmen::time::Instant;

/// An index that stands for no entry.
pub(crate) const NONE: u32 = u32::MAX;
const LEVELS: usize = 6;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// The number of the list whose entries have alarms that have passed.
const DUE: u16 = (LEVELS * SLOTS) as u16;
/// The list number of an entry without an alarm, which is in no list.
const UNLINKED: u16 = DUE + 1;
/// Number of bits by which a time in microseconds is shifted right to give ticks: a tick has 1024 microseconds.
const TICK_SHIFT: u32 = 10;

/// The data of the wheel in a slab entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) at: Instant,
    prev: u32,
    next: u32,
    list: u16,
}

impl Link {
    pub(crate) const fn new() -> Self {
        Self { at: Instant::NEVER, prev: NONE, next: NONE, list: UNLINKED }
    }
}

/// Access to the links of the entries.
pub(crate) trait Links {
    fn link(&mut self, index: u32) -> &mut Link;
}

/// A timing wheel: the first entry of each list, and the tick up to which the wheel has examined the lists.
pub(crate) struct Wheel {
    elapsed: u64,
    occupied: [u64; LEVELS],
    heads: Box<[u32; LEVELS * SLOTS + 1]>,
}

impl Wheel {
    pub(crate) fn new() -> Self {
        Self { elapsed: 0, occupied: [0; LEVELS], heads: Box::new([NONE; LEVELS * SLOTS + 1]) }
    }

    /// Sets the alarm of `index`, which must not have an alarm.
    pub(crate) fn set(&mut self, links: &mut impl Links, index: u32, at: Instant) {
        let list = self.list_of(at);
        let head = self.heads[usize::from(list)];
        *links.link(index) = Link { at, prev: NONE, next: head, list };
        if head != NONE {
            links.link(head).prev = index;
        }
        self.heads[usize::from(list)] = index;
        if list != DUE {
            self.occupied[usize::from(list) / SLOTS] |= 1 << (usize::from(list) % SLOTS);
        }
    }

    /// Clears the alarm of `index`, if it has one.
    pub(crate) fn clear(&mut self, links: &mut impl Links, index: u32) {
        let Link { prev, next, list, .. } = core::mem::replace(links.link(index), Link::new());
        if list == UNLINKED {
            return;
        }
        match prev {
            NONE => self.heads[usize::from(list)] = next,
            prev => links.link(prev).next = next,
        }
        if next != NONE {
            links.link(next).prev = prev;
        }
        if list != DUE && self.heads[usize::from(list)] == NONE {
            self.occupied[usize::from(list) / SLOTS] &= !(1 << (usize::from(list) % SLOTS));
        }
    }

    /// Returns the tick of an alarm: the first tick that does not begin before the alarm.
    fn tick(at: Instant) -> u64 {
        at.as_micros().saturating_add((1 << TICK_SHIFT) - 1) >> TICK_SHIFT
    }

    fn list_of(&self, at: Instant) -> u16 {
        let when = Self::tick(at);
        if when <= self.elapsed {
            return DUE;
        }
        // The level is given by the highest bit in which the two times differ.
        let level = (63 - (when ^ self.elapsed).leading_zeros()) / SLOT_BITS;
        if level as usize >= LEVELS {
            return ((LEVELS - 1) * SLOTS + SLOTS - 1) as u16; // in two years at the soonest: looked at again then
        }
        let slot = (when >> (level * SLOT_BITS)) as usize % SLOTS;
        (level as usize * SLOTS + slot) as u16
    }

    /// Returns the earliest slot that contains an entry. The result is the number of the slot's list, and the tick at
    /// which the slot begins.
    fn first(&self) -> Option<(usize, u64)> {
        for (level, occupied) in self.occupied.iter().enumerate() {
            if *occupied == 0 {
                continue;
            }
            let shift = level as u32 * SLOT_BITS;
            let position = (self.elapsed >> shift) as u32 % SLOTS as u32;
            let distance = occupied.rotate_right(position).trailing_zeros();
            let slot = (position + distance) as usize % SLOTS;
            let round = self.elapsed >> (shift + SLOT_BITS) << (shift + SLOT_BITS);
            let begin = round + ((slot as u64) << shift);
            return Some((level * SLOTS + slot, begin));
        }
        None
    }

    /// Returns a time at or before the earliest alarm; `None` if no alarm is set. If the earliest alarm is near, the
    /// returned time is close to it.
    pub(crate) fn next(&self) -> Option<Instant> {
        if self.heads[usize::from(DUE)] != NONE {
            return Some(Instant::from_micros(0));
        }
        self.first().map(|(_, begin)| Instant::from_micros(begin << TICK_SHIFT))
    }

    /// Returns an entry whose alarm is at or before `now`, and clears its alarm.
    pub(crate) fn take_due(&mut self, links: &mut impl Links, now: Instant) -> Option<u32> {
        let now = now.as_micros() >> TICK_SHIFT;
        while self.heads[usize::from(DUE)] == NONE {
            let (list, begin) = self.first().filter(|(_, begin)| *begin <= now)?;
            self.elapsed = self.elapsed.max(begin);
            // The slot's entries move down a level, or become due.
            let mut index = core::mem::replace(&mut self.heads[list], NONE);
            self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
            while index != NONE {
                let Link { at, next, .. } = *links.link(index);
                self.set(links, index, at);
                index = next;
            }
        }
        let index = self.heads[usize::from(DUE)];
        self.clear(links, index);
        Some(index)
    }

    /// Returns the number of bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.heads)
    }
}

#[cfg(test)]
mod tests;
