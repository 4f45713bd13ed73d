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

/// The count of connection numbers that each [`Purpose`] has in an epoch.
pub(super) const EACH: u32 = MAX_TICKETS / 2;
/// The count of connection numbers that a server reserves in the store at a time. These numbers are consecutive, and
/// are called a block.
const BLOCK: u32 = 256;
/// If a server has fewer reserved and unused connection numbers than this, it reserves the next block of numbers.
const LOW: usize = 96;

/// The purpose of a connection number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// For the connection of a peer that authenticated itself.
    New,
    /// A number for the connection of a peer that returned to the server with a ticket of the previous epoch.
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

    /// Returns the first number of the range of connection numbers that this purpose has.
    pub(super) const fn first(self) -> u32 {
        match self {
            Self::New => 0,
            Self::Again => EACH,
        }
    }

    /// Returns the purpose of a connection number.
    pub(super) const fn of_number(number: u32) -> Self {
        if number < EACH { Self::New } else { Self::Again }
    }
}

/// The first value of the counter of reserved connection numbers. Each epoch has one counter for each [`Purpose`].
/// Reservations increase a counter to [`EACH`] at most. The restore of a backup increases it by at least its `pace`,
/// which is [`EACH`] + 1. So a counter above [`EACH`] shows that the store was restored: see [`is_restored`].
pub(super) const UNUSED: Number = Number { next: 0, pace: EACH as u64 + 1 };

/// Returns true if the restore of a backup has increased the counter. The store then does not know which numbers were
/// used after the backup.
pub(super) const fn is_restored(number: Number) -> bool {
    number.next > EACH as u64
}

/// Reserves the next block of connection numbers. `number` is the present value of the counter in the store. Returns
/// two values: the new value, which the caller must write into the store, and the block. Returns `None` if all
/// connection numbers for this purpose are reserved.
pub(super) fn reserve(number: Number, purpose: Purpose) -> Option<(Number, Range<u32>)> {
    let from = u32::try_from(number.next).ok().filter(|from| *from < EACH)?;
    let end = from.saturating_add(BLOCK).min(EACH);
    let block = from.saturating_add(purpose.first())..end.saturating_add(purpose.first());
    Some((Number { next: end.into(), ..number }, block))
}

/// Connection numbers that this server has reserved, and has not given to a connection yet.
#[derive(Clone, Default, Debug)]
pub(super) struct Free {
    blocks: VecDeque<Range<u32>>,
    /// True if no further connection number can be reserved.
    pub(super) is_last: bool,
}

impl Free {
    pub(super) fn add(&mut self, block: Range<u32>) {
        self.blocks.push_back(block);
    }

    /// Removes a reserved connection number, and returns it; `None` if no reserved number is left.
    pub(super) fn take(&mut self) -> Option<u32> {
        loop {
            match self.blocks.front_mut()?.next() {
                Some(number) => return Some(number),
                None => drop(self.blocks.pop_front()),
            }
        }
    }

    /// Returns true if the server must reserve another block of connection numbers, because it has fewer than [`LOW`]
    /// left.
    pub(super) fn is_low(&self) -> bool {
        !self.is_last && self.blocks.iter().map(ExactSizeIterator::len).sum::<usize>() < LOW
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.blocks.iter().any(|block| block.contains(&number))
    }
}

/// The connection numbers that the server has reserved for the next epoch before this epoch begins.
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
