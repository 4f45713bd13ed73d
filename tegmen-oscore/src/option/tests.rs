use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn written(option: &OscoreOption<'_>) -> Vec<u8> {
    let mut storage = [0; 40];
    let mut headroom = Headroom::new(&mut storage);
    option.write(&mut headroom);
    let left = headroom.finish().unwrap();
    storage[left..].to_vec()
}

#[test]
fn the_examples_of_rfc_8613_section_6_3() {
    for (value, partial_iv, kid_context, kid) in [
        (&[][..], None, None, None),
        (&[0x09, 0x05, 0x25], Some(5), None, Some(&[0x25][..])),
        (&[0x09, 0x00], Some(0), None, Some(&[])),
        (&[0x19, 0x05, 0x02, 0x44, 0x61, 0x25], Some(5), Some(&[0x44, 0x61][..]), Some(&[0x25])),
        (&[0x01, 0x07], Some(7), None, None),
        (&[0x08], None, None, Some(&[])),
        (&[0x10, 0x00], None, Some(&[]), None),
    ] {
        let option = OscoreOption { partial_iv: partial_iv.and_then(PartialIv::new), kid_context, kid, group: false };
        assert_eq!(OscoreOption::parse(value), Ok(option));
        assert_eq!(written(&option), value);
    }
}

#[test]
fn what_rfc_8613_forbids_is_a_bad_option() {
    for value in [
        &[0x00][..],
        &[0x20, 1],
        &[0x40],
        &[0x80],
        &[0x0e, 1, 2, 3, 4, 5, 6],
        &[0x0f, 1, 2, 3, 4, 5, 6, 7],
        &[0x0a, 0, 1],
        &[0x0a, 1],
        &[0x01],
        &[0x01, 1, 2],
        &[0x18, 5, 1, 2],
        &[0x10],
        &[0x08; 256],
    ] {
        assert_eq!(OscoreOption::parse(value), Err(BadOption), "{value:02x?}");
    }
}

proptest! {
    #[test]
    fn any_value_is_an_option_or_an_error_and_is_written_as_it_was_read(value in proptest::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(option) = OscoreOption::parse(&value) {
            prop_assert_eq!(written(&option), value);
        }
    }
}

/// RFC 10021, section 4.3.1.
#[test]
fn the_group_flag_is_known_in_a_group_alone() {
    for (value, partial_iv, kid_context, kid) in [
        (&[0x39, 0x05, 0x03, 0x44, 0x61, 0x6c, 0x25][..], Some(5), Some(&[0x44, 0x61, 0x6c][..]), Some(&[0x25][..])),
        (&[0x28, 0x52], None, None, Some(&[0x52])),
        (&[0x20], None, None, None),
    ] {
        let option = OscoreOption { partial_iv: partial_iv.and_then(PartialIv::new), kid_context, kid, group: true };
        assert_eq!(OscoreOption::parse_in_group(value), Ok(option));
        assert_eq!(written(&option), value);
        assert_eq!(OscoreOption::parse(value), Err(BadOption));
    }
    for value in [&[0x60][..], &[0xa0], &[0x40], &[0x80], &[0x00]] {
        assert_eq!(OscoreOption::parse_in_group(value), Err(BadOption));
    }
}
