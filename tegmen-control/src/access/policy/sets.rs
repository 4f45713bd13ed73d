//! Sets of rule numbers. A rule covers a request if its number is in a set for the subject, in a set for the publisher,
//! and in a set for the path. The search finds the lowest such number.

/// Number of 64-bit words in a block.
const WORDS: usize = 64;
/// Number of rule numbers in a block.
const NUMBERS: u32 = 4096;
/// Maximum number of words in the list of a block. The list has only the words that are not zero. If a block has more
/// words that are not zero, the block stores all its 64 words instead.
const LISTED: usize = 32;

/// The index of a set in [`Sets`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SetId(u32);

/// One bit for each number of a block.
type Bits = [u64; WORDS];

/// The numbers of one set in the range of one block.
struct Block {
    /// The first number of the block divided by [`NUMBERS`].
    index: u32,
    words: Words,
}

enum Words {
    /// The words that are not zero, each with its position in the block.
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
                if let Some(word) = bits.get_mut((within / 64) as usize) {
                    *word |= 1_u64 << (within % 64);
                }
            }
            Block::new(numbers.first().map_or(0, |number| number / NUMBERS), &bits)
        });
        let blocks: Box<[Block]> = blocks.collect();
        self.blocks = self.blocks.max(blocks.last().map_or(0, |block| block.index.saturating_add(1)));
        self.sets.push(blocks);
        SetId(self.sets.len().saturating_sub(1) as u32)
    }

    /// Adds to `bits` the numbers of these sets that belong to the block `index`. Returns false if there are no such
    /// numbers.
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
    /// number of blocks.
    pub(super) fn first_common(&self, kinds: [&[SetId]; 3]) -> Option<u32> {
        (0..self.blocks).find_map(|index| self.first_in_block(kinds, index))
    }

    fn first_in_block(&self, [first, second, third]: [&[SetId]; 3], index: u32) -> Option<u32> {
        let (mut common, mut other) = ([0; WORDS], [0; WORDS]);
        if !self.union(first, index, &mut common) {
            return None;
        }
        for kind in [second, third] {
            other.fill(0);
            if !self.union(kind, index, &mut other) {
                return None;
            }
            common.iter_mut().zip(&other).for_each(|(word, other)| *word &= other);
        }
        let (at, word) = (0_u32..).zip(&common).find(|(_, word)| **word != 0)?;
        Some(index.wrapping_mul(NUMBERS).wrapping_add(at.wrapping_mul(64)).wrapping_add(word.trailing_zeros()))
    }
}

#[cfg(test)]
mod tests;
