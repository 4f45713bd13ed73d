//! Block-wise transfer (RFC 7959): the Block options, and the assembly of a request body.
//!
//! Response bodies need no code in this module. `Response` of the crate `tegmen` keeps only the requested block of
//! the body that the handler writes, so a server stores no state between the blocks.

use super::code::Code;
use super::message::MessageRef;
use super::option::{self, OptionNumber};

/// Size of the largest block in bytes.
pub const MAX_SIZE: usize = 1024;

/// The value of a Block1 or Block2 option (RFC 7959, section 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Position of the block in the body, in units of the size of this block. The number has 20 bits.
    pub number: u32,
    /// True if another block follows this block.
    pub more: bool,
    /// The exponent of the size, 0 to 6. A block has `2^(4 + exponent)` bytes, 16 to 1024.
    pub size_exponent: u8,
}

impl Block {
    /// Returns the first block of a body. The block has the largest size that is at most `size`, but at least 16
    /// bytes.
    pub const fn first(size: usize) -> Self {
        let size = if size > MAX_SIZE { MAX_SIZE } else { size };
        let exponent = (size | 16).ilog2().saturating_sub(4);
        Self { number: 0, more: false, size_exponent: exponent as u8 }
    }

    /// Reads the value of an option.
    ///
    /// # Errors
    /// 4.00 if the value is longer than three bytes or has the reserved size (RFC 7959, section 2.2).
    pub fn read(value: &[u8]) -> Result<Self, Code> {
        let bits = option::uint(value).filter(|_| value.len() <= 3).ok_or(Code::BAD_REQUEST)?;
        let size_exponent = (bits & 7) as u8;
        if size_exponent == 7 {
            return Err(Code::BAD_REQUEST);
        }
        Ok(Self { number: bits >> 4, more: bits & 8 != 0, size_exponent })
    }

    /// Returns the value of the option.
    pub const fn value(self) -> u32 {
        self.number << 4 | (self.more as u32) << 3 | self.size_exponent as u32
    }

    /// Returns the size of a block in bytes.
    pub const fn size(self) -> usize {
        16 << self.size_exponent
    }

    /// Returns the number of bytes of the body before this block.
    pub const fn offset(self) -> usize {
        (self.number as usize).saturating_mul(self.size())
    }

    /// Returns a block that begins at the same position of the body, and has at most `size` bytes, but at least 16.
    pub fn limited(self, size: usize) -> Self {
        let size_exponent = self.size_exponent.min(Self::first(size).size_exponent);
        let number = self.number << self.size_exponent.saturating_sub(size_exponent);
        Self { number, size_exponent, ..self }
    }
}

impl MessageRef<'_> {
    /// Reads the Block1 or Block2 option, if there is one.
    ///
    /// # Errors
    /// The error of [`Block::read`].
    pub fn block(&self, number: OptionNumber) -> Result<Option<Block>, Code> {
        self.option(number).map(Block::read).transpose()
    }

    /// Returns a fingerprint that all requests of one block-wise transfer share. It covers the method, the options of
    /// the cache key except the Block options, and Request-Tag (RFC 7959, section 2.5; RFC 9175, section 3.3).
    pub fn operation(&self) -> u64 {
        let mut hash = Fnv::EMPTY;
        hash.add(&[self.code().0]);
        for (number, value) in self.options() {
            let part_of_key = match number {
                OptionNumber::BLOCK1 | OptionNumber::BLOCK2 | OptionNumber::OBSERVE | OptionNumber::ECHO => false,
                OptionNumber::NO_RESPONSE => false,
                OptionNumber::REQUEST_TAG => true,
                other => other.is_cache_key(),
            };
            if part_of_key {
                hash.add(&number.0.to_be_bytes());
                hash.add(&(value.len() as u16).to_be_bytes());
                hash.add(value);
            }
        }
        hash.0
    }
}

/// The hash FNV-1a. It is not collision-resistant, but a peer that constructs two transfers with the same fingerprint
/// harms only its own transfers.
#[derive(Clone, Copy, Debug)]
pub struct Fnv(u64);

impl Fnv {
    /// The hash of no bytes.
    pub const EMPTY: Self = Self(0xcbf2_9ce4_8422_2325);

    /// Adds bytes to the input of the hash.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// Returns the hash, shortened to 32 bits.
    pub const fn short(self) -> u32 {
        (self.0 >> 32) as u32 ^ self.0 as u32
    }
}

/// Computes an entity tag (RFC 7252, section 5.10.6) from these bytes.
pub fn etag(bytes: &[u8]) -> [u8; 4] {
    let mut hash = Fnv::EMPTY;
    hash.add(bytes);
    hash.short().to_be_bytes()
}

/// The state of one request body whose blocks arrive in order (RFC 7959, section 2.5). The caller stores the bytes.
#[derive(Clone, Copy, Default, Debug)]
pub struct Assembly {
    len: usize,
}

/// The next step after a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Store the block at this position of the body, and answer 2.31.
    Continue(usize),
    /// Store the block at this position. It is the last block of the body.
    Complete(usize),
}

impl Assembly {
    /// Returns the number of received bytes of the body.
    pub const fn received(&self) -> usize {
        self.len
    }

    /// Accepts the next block, of `len` bytes. The whole body may have at most `limit` bytes. The first block starts
    /// a new body.
    ///
    /// # Errors
    /// 4.00 if the block is longer than the size in its option, or if it is shorter and is not the last block; 4.08
    /// if it does not follow the previous block; 4.13 if the body would become longer than `limit`.
    pub fn accept(&mut self, block: Block, len: usize, limit: usize) -> Result<Step, Code> {
        if block.number == 0 {
            self.len = 0;
        }
        let at = block.offset();
        if len > block.size() || block.more && len != block.size() {
            return Err(Code::BAD_REQUEST);
        }
        if at != self.len {
            return Err(Code::REQUEST_ENTITY_INCOMPLETE);
        }
        let end = at.saturating_add(len);
        if end > limit {
            self.len = 0;
            return Err(Code::REQUEST_ENTITY_TOO_LARGE);
        }
        self.len = end;
        Ok(if block.more { Step::Continue(at) } else { Step::Complete(at) })
    }
}

#[cfg(test)]
mod tests;
