//! The numbers of the connections of an epoch, which are reserved in blocks.
//!
//! Each number stands for one ticket at most. One half of the numbers is for peers that authenticate themselves, the other for
//! peers that return with a ticket of the previous epoch: a copied ticket takes no number of the first half, so that
//! copies never force an epoch to end.

use std::collections::VecDeque;
use std::ops::Range;
use tegmen_delegation::MAX_TICKETS;
use tegmen_store::store::Number;

/// Numbers for each purpose in an epoch.
pub(super) const EACH: u32 = MAX_TICKETS / 2;
/// Numbers that are reserved at once.
const BLOCK: u32 = 256;
/// Numbers with which the next block is reserved.
const LOW: usize = 96;

/// The use of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A peer authenticated itself.
    New,
    /// A peer returned with a ticket of the previous epoch.
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

    /// The first number.
    pub(super) const fn first(self) -> u32 {
        match self {
            Self::New => 0,
            Self::Again => EACH,
        }
    }

    /// The purpose that a number was given for.
    pub(super) const fn of_number(number: u32) -> Self {
        if number < EACH { Self::New } else { Self::Again }
    }
}

/// The numbers of a new epoch, none of which is reserved. The pace takes a number that a backup moves behind [`EACH`], where no
/// server comes otherwise.
pub(super) const UNUSED: Number = Number { next: 0, pace: EACH as u64 + 1 };

/// True if a restore moved the numbers: some may have been used that the store does not know.
pub(super) const fn is_restored(number: Number) -> bool {
    number.next > EACH as u64
}

/// The numbers of a row with those of the next block reserved, and the block; `None` if all are reserved.
pub(super) fn reserve(number: Number, purpose: Purpose) -> Option<(Number, Range<u32>)> {
    let from = u32::try_from(number.next).ok().filter(|from| *from < EACH)?;
    let end = from.saturating_add(BLOCK).min(EACH);
    let block = from.saturating_add(purpose.first())..end.saturating_add(purpose.first());
    Some((Number { next: end.into(), ..number }, block))
}

/// Numbers that this server reserved and has not used.
#[derive(Clone, Default, Debug)]
pub(super) struct Free {
    blocks: VecDeque<Range<u32>>,
    /// True if no number is left to be reserved.
    pub(super) is_last: bool,
}

impl Free {
    pub(super) fn add(&mut self, block: Range<u32>) {
        self.blocks.push_back(block);
    }

    /// Takes a number, which nobody gets again.
    pub(super) fn take(&mut self) -> Option<u32> {
        loop {
            match self.blocks.front_mut()?.next() {
                Some(number) => return Some(number),
                None => drop(self.blocks.pop_front()),
            }
        }
    }

    /// True if the next block is to be reserved.
    pub(super) fn is_low(&self) -> bool {
        !self.is_last && self.blocks.iter().map(ExactSizeIterator::len).sum::<usize>() < LOW
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.blocks.iter().any(|block| block.contains(&number))
    }
}

/// The first numbers of an epoch that waits.
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
