//! Sets of rule numbers. A rule covers a request if its number is in a set for the subject, in a set for the publisher,
//! and in a set for the path. The search finds the lowest such number.

/// Number of 64-bit words in the bitmap of a block. A block is a range of 4096 consecutive rule numbers.
const WORDS: usize = 64;
/// Number of consecutive rule numbers in a block.
const NUMBERS: u32 = 4096;
/// Maximum length of [`Words::Listed`]: the list of those 64-bit words of a block's bitmap that are not zero. If more
/// words are not zero, the block stores all 64 words ([`Words::All`]).
const LISTED: usize = 32;

/// The index of a set in [`Sets`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SetId(u32);

/// A bitmap with one bit for each of the 4096 rule numbers of a block.
type Bits = [u64; WORDS];

/// The rule numbers of one set that are in one block: a range of 4096 consecutive rule numbers.
struct Block {
    /// The first rule number of the block, divided by [`NUMBERS`].
    index: u32,
    words: Words,
}

enum Words {
    /// The words of the bitmap that are not zero, each with its index in the bitmap.
    Listed(Box<[(u8, u64)]>),
    All(Box<Bits>),
}

impl Block {
    fn new(index: u32, bits: &Bits) -> Self {
        let listed: Box<[(u8, u64)]> =
            (0..).zip(bits).filter(|(_, word)| **word != 0).map(|(at, word)| (at, *word)).collect();
        let words = if listed.len() > LISTED { Words::All(Box::new(*bits)) } else { Words::Listed(listed) };
        Self { index, words }
    }

    /// Adds the numbers of the block to `bits`.
    fn add_to(&self, bits: &mut Bits) {
        match &self.words {
            Words::Listed(words) => {
                for (at, word) in words {
                    if let Some(bits) = bits.get_mut(usize::from(*at)) {
                        *bits |= word;
                    }
                }
            }
            Words::All(words) => bits.iter_mut().zip(words.iter()).for_each(|(bits, word)| *bits |= word),
        }
    }
}

/// Sets of rule numbers. All numbers are in one range, which is divided into blocks.
#[derive(Default)]
pub(super) struct Sets {
    sets: Vec<Box<[Block]>>,
    /// The number of blocks into which the range of all rule numbers is divided.
    blocks: u32,
    /// The number of words at the beginning of each bitmap that can have a bit. The other words are zero in all sets.
    words: usize,
}

impl Sets {
    /// Stores a set of numbers, and returns its index.
    pub(super) fn insert(&mut self, numbers: &[u32]) -> SetId {
        let mut numbers = numbers.to_vec();
        numbers.sort_unstable();
        let blocks = numbers.chunk_by(|a, b| a / NUMBERS == b / NUMBERS).map(|numbers| {
            let mut bits = [0; WORDS];
            for number in numbers {
                let within = number % NUMBERS;
                let at = (within / 64) as usize;
                if let Some(word) = bits.get_mut(at) {
                    *word |= 1_u64 << (within % 64);
                    self.words = self.words.max(at.saturating_add(1));
                }
            }
            Block::new(numbers.first().map_or(0, |number| number / NUMBERS), &bits)
        });
        let blocks: Box<[Block]> = blocks.collect();
        self.blocks = self.blocks.max(blocks.last().map_or(0, |block| block.index.saturating_add(1)));
        self.sets.push(blocks);
        SetId(self.sets.len().saturating_sub(1) as u32)
    }

    /// Sets a bit in `bits` for each rule number that is in one of these sets and in the block `index`. Returns false
    /// if no set has a rule number in this block.
    fn union(&self, sets: &[SetId], index: u32, bits: &mut Bits) -> bool {
        let mut any = false;
        for set in sets {
            let blocks = self.sets.get(set.0 as usize).map_or(&[][..], |blocks| blocks);
            if let Some(block) = blocks.iter().find(|block| block.index == index) {
                block.add_to(bits);
                any = true;
            }
        }
        any
    }

    /// Returns the lowest rule number that is in a set for the subject, in a set for the publisher, and in a set for
    /// the path. The elements of `kinds` are the sets for the subject, for the publisher and for the path. Returns
    /// `None` if there is no such number. Allocates no memory. The time grows with the number of sets and with the
    /// number of blocks of 4096 rule numbers.
    pub(super) fn first_common(&self, kinds: [&[SetId]; 3]) -> Option<u32> {
        (0..self.blocks).find_map(|index| self.first_in_block(kinds, index))
    }

    fn first_in_block(&self, [first, second, third]: [&[SetId]; 3], index: u32) -> Option<u32> {
        let (mut common, mut other) = ([0; WORDS], [0; WORDS]);
        if !self.union(first, index, &mut common) {
            return None;
        }
        for kind in [second, third] {
            other.iter_mut().take(self.words).for_each(|word| *word = 0);
            if !self.union(kind, index, &mut other) {
                return None;
            }
            common.iter_mut().zip(&other).take(self.words).for_each(|(word, other)| *word &= other);
        }
        let (at, word) = (0_u32..).zip(&common).take(self.words).find(|(_, word)| **word != 0)?;
        Some(index.wrapping_mul(NUMBERS).wrapping_add(at.wrapping_mul(64)).wrapping_add(word.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests;
