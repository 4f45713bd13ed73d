use super::*;
use crate::message::{Builder, MessageType};
use proptest::prelude::*;
use std::vec::Vec;
use tegmen_base::buf::Frame;

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
    for (size, expected) in [(0, 16), (15, 16), (16, 16), (31, 16), (32, 32), (1023, 512), (1024, 1024), (9999, 1024)] {
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
    let others: [&[(u16, &[u8])]; 5] = [
        &[(11, b"b")],
        &[(11, b"a"), (12, b"2")],
        &[(11, b"a"), (15, b"q")],
        &[(11, b"a"), (292, b"1")],
        &[(11, b""), (11, b"a")],
    ];
    for other in others {
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
    assert_eq!(assembly.received(), 35);
}

#[test]
fn a_body_that_never_ends_is_too_large() {
    let mut assembly = Assembly::default();
    for number in 0..6 {
        assert_eq!(assembly.accept(block(number, true), 16, 100), Ok(Step::Continue(16 * number as usize)));
    }
    assert_eq!(assembly.accept(block(6, true), 16, 100), Err(Code::REQUEST_ENTITY_TOO_LARGE));
    assert!(assembly.received() == 0);
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
            prop_assert_eq!(assembly.received(), model);
        }
    }
}
