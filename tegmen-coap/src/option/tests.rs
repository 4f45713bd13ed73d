use super::*;
use proptest::prelude::*;
use std::vec::Vec;

proptest! {
    #[test]
    fn what_is_retained_is_what_was_asked_for_and_no_longer_than_before(
        options in proptest::collection::vec((prop_oneof![0u16..10, 0u16..700], 0usize..300), 0..8),
        part in proptest::sample::select(std::vec![Part::Outside, Part::InsideRequest, Part::InsideResponse]),
    ) {
        let (mut number, mut expected) = (0, Vec::new());
        let mut storage = std::vec![0; 4000];
        let mut writer = Writer::new(&mut storage);
        for (delta, value_len) in options {
            number += delta;
            let value: Vec<u8> = (0..value_len).map(|i| (i + usize::from(number)) as u8).collect();
            write(&mut writer, delta, &value).unwrap();
            let class = OptionNumber(number).class();
            match (part, OptionNumber(number)) {
                (Part::Outside, OptionNumber::OSCORE) => {}
                (Part::InsideResponse, OptionNumber::OBSERVE) => expected.push((OptionNumber::OBSERVE, Vec::new())),
                _ if (part == Part::Outside) == (class == Class::Unprotected) => {
                    expected.push((OptionNumber(number), value));
                }
                _ => {}
            }
        }
        let run = writer.finish();
        let left = retain(run, part);
        let found: Vec<_> = Options::new(&run[..left], &[]).map(|(n, value)| (n, value.to_vec())).collect();
        prop_assert_eq!(found, expected);
    }
}
