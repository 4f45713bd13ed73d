//! Block-wise transfer (RFC 7959): the Block options, and the assembly of a request body.
//!
//! A response body needs nothing here: [`super::handler::Response`] keeps of what the handler writes the block that was
//! asked for, so that a server holds no state between the blocks.

use super::code::Code;
use super::message::MessageRef;
use super::option::{self, OptionNumber};

/// Largest block that there is, in bytes.
pub const MAX_SIZE: usize = 1024;

/// The value of a Block1 or Block2 option (RFC 7959, section 2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Block {
    /// Position, counted in blocks of this size; 20 bits.
    pub number: u32,
    /// True if another block follows.
    pub more: bool,
    /// The size is `2^(4 + exponent)` bytes, 16 to 1024: 0 to 6.
    pub size_exponent: u8,
}

impl Block {
    /// The first block, of the largest size that is at most `size`; 16 bytes if it is smaller.
    pub const fn first(size: usize) -> Self {
        let size = if size > MAX_SIZE { MAX_SIZE } else { size };
        let exponent = (size | 16).ilog2().saturating_sub(4);
        Self { number: 0, more: false, size_exponent: exponent as u8 }
    }

    /// Reads the value of an option.
    ///
    /// # Errors
    /// 4.00 if it is longer than three bytes or has the reserved size (RFC 7959, section 2.2).
    pub fn read(value: &[u8]) -> Result<Self, Code> {
        let bits = option::uint(value).filter(|_| value.len() <= 3).ok_or(Code::BAD_REQUEST)?;
        let size_exponent = (bits & 7) as u8;
        if size_exponent == 7 {
            return Err(Code::BAD_REQUEST);
        }
        Ok(Self { number: bits >> 4, more: bits & 8 != 0, size_exponent })
    }

    /// The value of the option.
    pub const fn value(self) -> u32 {
        self.number << 4 | (self.more as u32) << 3 | self.size_exponent as u32
    }

    /// Bytes of a block.
    pub const fn size(self) -> usize {
        16 << self.size_exponent
    }

    /// Bytes of the body before this block.
    pub const fn offset(self) -> usize {
        (self.number as usize).saturating_mul(self.size())
    }

    /// The same place in the body with blocks of at most `size` bytes.
    pub fn limited(self, size: usize) -> Self {
        let size_exponent = self.size_exponent.min(Self::first(size).size_exponent);
        let number = self.number << self.size_exponent.saturating_sub(size_exponent);
        Self { number, size_exponent, ..self }
    }
}

impl MessageRef<'_> {
    /// The Block1 or Block2 option, if there is one.
    ///
    /// # Errors
    /// That of [`Block::read`].
    pub fn block(&self, number: OptionNumber) -> Result<Option<Block>, Code> {
        self.option(number).map(Block::read).transpose()
    }

    /// A fingerprint of what makes two requests parts of one operation: method, options of the cache key but for the
    /// Block options, and Request-Tag (RFC 7959, section 2.5; RFC 9175, section 3.3).
    pub fn operation(&self) -> u64 {
        let mut hash = Fnv::new();
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

/// FNV-1a. Who finds two operations with one fingerprint mixes up nothing but transfers of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fnv(u64);

impl Fnv {
    pub(crate) const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// 32 bits of it.
    pub(crate) const fn short(self) -> u32 {
        (self.0 >> 32) as u32 ^ self.0 as u32
    }
}

/// An entity tag (RFC 7252, section 5.10.6) made of these bytes.
pub fn etag(bytes: &[u8]) -> [u8; 4] {
    let mut hash = Fnv::new();
    hash.add(bytes);
    hash.short().to_be_bytes()
}

/// Takes in the blocks of one request body, in order (RFC 7959, section 2.5). The bytes are kept by the caller.
#[derive(Clone, Copy, Default, Debug)]
pub struct Assembly {
    len: usize,
}

/// What to do with a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Put it at this place of the body, and answer 2.31.
    Continue(usize),
    /// Put it at this place; the body ends with it.
    Complete(usize),
}

impl Assembly {
    /// Bytes of the body so far.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// True before the first block.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes the next block, which has `len` bytes, of a body that may have `limit`. The first block begins anew.
    ///
    /// # Errors
    /// 4.00 if a block that is not the last has another length than it says, 4.08 if it does not follow the one before,
    /// 4.13 if the body becomes longer than `limit`.
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
mod tests {
    use super::*;
    use crate::buf::Frame;
    use crate::coap::message::{Builder, MessageType};
    use proptest::prelude::*;
    use std::vec::Vec;

    #[test]
    fn the_examples_of_rfc_7959_read_and_write() {
        // Section 3.1: 2:0/1/128, 2:1/1/64; figure 4 and others in between.
        let cases: [(&[u8], Block); 4] = [
            (&[0x0b], Block { number: 0, more: true, size_exponent: 3 }),
            (&[0x1a], Block { number: 1, more: true, size_exponent: 2 }),
            (&[], Block { number: 0, more: false, size_exponent: 0 }),
            (&[0xff, 0xff, 0xfe], Block { number: 0xf_ffff, more: true, size_exponent: 6 }),
        ];
        for (bytes, block) in cases {
            assert_eq!(Block::read(bytes), Ok(block));
            assert_eq!(Some(block.value()), option::uint(bytes));
        }
    }

    #[test]
    fn the_reserved_size_and_long_values_are_bad_requests() {
        for value in [&[0x07][..], &[0x0f], &[0xff, 0xff, 0xff], &[0, 0, 0, 0x06], &[1, 2, 3, 4, 5]] {
            assert_eq!(Block::read(value), Err(Code::BAD_REQUEST), "{value:x?}");
        }
    }

    #[test]
    fn sizes_are_the_powers_of_two_from_16_to_1024() {
        for (size, expected) in
            [(0, 16), (15, 16), (16, 16), (31, 16), (32, 32), (1023, 512), (1024, 1024), (9999, 1024)]
        {
            assert_eq!(Block::first(size).size(), expected, "{size}");
        }
    }

    fn request(options: &[(u16, &[u8])]) -> Vec<u8> {
        let mut storage = [0; 200];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::PUT, 1, b"t").unwrap();
        for (number, value) in options {
            builder.option(OptionNumber(*number), value).unwrap();
        }
        frame.finish().to_vec()
    }

    fn operation(options: &[(u16, &[u8])]) -> u64 {
        MessageRef::parse(&request(options)).unwrap().operation()
    }

    #[test]
    fn blocks_of_one_operation_have_one_fingerprint_and_others_another() {
        let plain = operation(&[(11, b"a")]);
        assert_eq!(plain, operation(&[(11, b"a"), (27, b"\x16")]));
        assert_eq!(plain, operation(&[(11, b"a"), (23, b"\x16"), (28, b""), (60, b"\x10"), (252, b"echo")]));
        for other in
            [&[(11u16, &b"b"[..])][..], &[(11, b"a"), (15, b"q")], &[(11, b"a"), (292, b"1")], &[(11, b""), (11, b"a")]]
        {
            assert_ne!(plain, operation(other), "{other:?}");
        }
    }

    fn block(number: u32, more: bool) -> Block {
        Block { number, more, size_exponent: 0 }
    }

    #[test]
    fn a_gap_a_repetition_and_a_stranger_are_incomplete() {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.accept(block(1, true), 16, 100), Err(Code::REQUEST_ENTITY_INCOMPLETE));
        assert_eq!(assembly.accept(block(0, true), 16, 100), Ok(Step::Continue(0)));
        assert_eq!(assembly.accept(block(2, true), 16, 100), Err(Code::REQUEST_ENTITY_INCOMPLETE));
        assert_eq!(assembly.accept(block(1, true), 16, 100), Ok(Step::Continue(16)));
        assert_eq!(assembly.accept(block(1, true), 16, 100), Err(Code::REQUEST_ENTITY_INCOMPLETE));
        assert_eq!(assembly.accept(block(2, false), 3, 100), Ok(Step::Complete(32)));
        assert_eq!(assembly.len(), 35);
    }

    #[test]
    fn a_body_that_never_ends_is_too_large() {
        let mut assembly = Assembly::default();
        for number in 0..6 {
            assert_eq!(assembly.accept(block(number, true), 16, 100), Ok(Step::Continue(16 * number as usize)));
        }
        assert_eq!(assembly.accept(block(6, true), 16, 100), Err(Code::REQUEST_ENTITY_TOO_LARGE));
        assert!(assembly.is_empty());
    }

    #[test]
    fn a_block_of_another_length_than_it_says_is_a_bad_request() {
        for (more, len) in [(true, 15), (true, 0), (true, 17), (false, 17)] {
            assert_eq!(Assembly::default().accept(block(0, more), len, 100), Err(Code::BAD_REQUEST));
        }
    }

    #[test]
    fn the_size_may_become_smaller_in_the_middle() {
        let mut assembly = Assembly::default();
        let big = Block { number: 0, more: true, size_exponent: 2 };
        assert_eq!(assembly.accept(big, 64, 100), Ok(Step::Continue(0)));
        let smaller = Block { number: 1, more: false, size_exponent: 2 }.limited(16);
        assert_eq!(smaller, Block { number: 4, more: false, size_exponent: 0 });
        assert_eq!(assembly.accept(smaller, 16, 100), Ok(Step::Complete(64)));
    }

    proptest! {
        #[test]
        fn any_value_reads_or_is_a_bad_request(value in proptest::collection::vec(any::<u8>(), 0..6)) {
            if let Ok(block) = Block::read(&value) {
                prop_assert_eq!(Some(block.value()), option::uint(&value));
                prop_assert!(block.offset() < 1 << 30);
            }
        }

        #[test]
        fn an_assembly_is_what_was_written_in_order(blocks in proptest::collection::vec((0u32..5, any::<bool>(), 0usize..20), 0..40)) {
            let (mut assembly, mut model) = (Assembly::default(), 0);
            for (number, more, len) in blocks {
                if number == 0 {
                    model = 0;
                }
                match assembly.accept(block(number, more), len, 64) {
                    Ok(Step::Continue(at) | Step::Complete(at)) => {
                        prop_assert_eq!(at, model);
                        model += len;
                        prop_assert!(model <= 64);
                    }
                    Err(Code::REQUEST_ENTITY_TOO_LARGE) => model = 0,
                    Err(_) => {}
                }
                prop_assert_eq!(assembly.len(), model);
            }
        }
    }
}
