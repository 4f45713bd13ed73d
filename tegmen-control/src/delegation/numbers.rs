//! The numbers of the connections of an epoch. The server reserves these numbers in blocks.
//!
//! Each number is used for at most one connection. One half of the numbers is for peers that authenticate themselves.
//! The other half is for peers that return with a ticket of the previous epoch. An attacker that returns many times
//! with a copied ticket uses only numbers of the second half. The next epoch must begin when all numbers of the first
//! half are used. The use of all numbers of the second half has no such effect.

use std::collections::VecDeque;
use std::ops::Range;
use tegmen_delegation::MAX_TICKETS;
use tegmen_store::store::Number;

/// The count of connection numbers for each [`Purpose`] in an epoch.
pub(super) const EACH: u32 = MAX_TICKETS / 2;
/// The count of numbers in a block. A server reserves one block at a time.
const BLOCK: u32 = 256;
/// The count of free numbers below which the next block is reserved.
const LOW: usize = 96;

/// The purpose of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// The number is for the connection of a peer that authenticated itself.
    New,
    /// The number is for the connection of a peer that returned with a ticket of the previous epoch.
    Again,
}

impl Purpose {
    pub(super) const ALL: [Self; 2] = [Self::New, Self::Again];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Again => "again",
        }
    }

    pub(super) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|purpose| purpose.word() == word)
    }

    /// Returns the first number for this purpose.
    pub(super) const fn first(self) -> u32 {
        match self {
            Self::New => 0,
            Self::Again => EACH,
        }
    }

    /// Returns the purpose of a number.
    pub(super) const fn of_number(number: u32) -> Self {
        if number < EACH { Self::New } else { Self::Again }
    }
}

/// The counter of the numbers for one purpose in a new epoch, before any number is reserved. The restore of a backup
/// increases a counter by at least the value `pace`. This value is above [`EACH`], so a restored counter is above
/// [`EACH`]. Reservations never increase the counter above [`EACH`].
pub(super) const UNUSED: Number = Number { next: 0, pace: EACH as u64 + 1 };

/// Returns true if the restore of a backup has increased the counter. The store then does not know which numbers were
/// used after the backup.
pub(super) const fn is_restored(number: Number) -> bool {
    number.next > EACH as u64
}

/// Reserves the next block of numbers. Returns two values: the counter that the caller must write into the row, and the
/// block. Returns `None` if all numbers are reserved.
pub(super) fn reserve(number: Number, purpose: Purpose) -> Option<(Number, Range<u32>)> {
    let from = u32::try_from(number.next).ok().filter(|from| *from < EACH)?;
    let end = from.saturating_add(BLOCK).min(EACH);
    let block = from.saturating_add(purpose.first())..end.saturating_add(purpose.first());
    Some((Number { next: end.into(), ..number }, block))
}

/// Numbers that this server has reserved and has not given to a connection yet.
#[derive(Clone, Default, Debug)]
pub(super) struct Free {
    blocks: VecDeque<Range<u32>>,
    /// True if no further number can be reserved.
    pub(super) is_last: bool,
}

impl Free {
    pub(super) fn add(&mut self, block: Range<u32>) {
        self.blocks.push_back(block);
    }

    /// Returns a free number, which is never returned again; `None` if no number is free.
    pub(super) fn take(&mut self) -> Option<u32> {
        loop {
            match self.blocks.front_mut()?.next() {
                Some(number) => return Some(number),
                None => drop(self.blocks.pop_front()),
            }
        }
    }

    /// Returns true if the next block must be reserved.
    pub(super) fn is_low(&self) -> bool {
        !self.is_last && self.blocks.iter().map(ExactSizeIterator::len).sum::<usize>() < LOW
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.blocks.iter().any(|block| block.contains(&number))
    }
}

/// The first reserved numbers of a pending epoch.
#[derive(Default, Debug)]
pub(super) struct NextNumbers {
    pub(super) new: Free,
    pub(super) again: Free,
}

impl NextNumbers {
    pub(super) const fn free(&mut self, purpose: Purpose) -> &mut Free {
        match purpose {
            Purpose::New => &mut self.new,
            Purpose::Again => &mut self.again,
        }
    }
}
