use super::*;
use proptest::prelude::*;
use std::vec::Vec;

fn time_of(tag: u8, text: &str) -> Option<u64> {
    let der: Vec<u8> = [tag, text.len() as u8].into_iter().chain(text.bytes()).collect();
    let mut reader = Reader::new(&der);
    time(&mut reader).ok()
}

#[test]
fn times_are_read_in_their_one_form() {
    for (tag, text, seconds) in [
        (UTC_TIME, "700101000000Z", Some(0)),
        (UTC_TIME, "500101000000Z", Some(0)),
        (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
        (GENERALIZED_TIME, "20240229123456Z", Some(1_709_210_096)),
        (GENERALIZED_TIME, "20000301000000Z", Some(951_868_800)),
        (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
        (GENERALIZED_TIME, "00000101000000Z", Some(0)),
        (UTC_TIME, "7001010000Z", None),
        (UTC_TIME, "700101000000", None),
        (UTC_TIME, "7001010000000", None),
        (UTC_TIME, "700101000000+0100", None),
        (UTC_TIME, "700230000000Z", None),
        (UTC_TIME, "701301000000Z", None),
        (UTC_TIME, "700001000000Z", None),
        (UTC_TIME, "700100000000Z", None),
        (UTC_TIME, "700101240000Z", None),
        (UTC_TIME, "70:101000000Z", None),
        (GENERALIZED_TIME, "20230229000000Z", None),
        (GENERALIZED_TIME, "21000229000000Z", None),
        (GENERALIZED_TIME, "20230228000000.5Z", None),
        (OCTET_STRING, "20230228000000Z", None),
    ] {
        assert_eq!(time_of(tag, text), seconds, "{text}");
    }
}

#[test]
fn every_day_is_one_later_than_the_day_before() {
    let mut expected = 0;
    for year in 1970..2420 {
        for month in 1..=12 {
            for day in 1..=days_of(year, month) {
                assert_eq!(days_since_1970(year, month, day), expected, "{year}-{month}-{day}");
                expected += 1;
            }
        }
    }
}

#[test]
fn every_value_has_one_form() {
    let read = |der: &[u8]| value(&mut Reader::new(der), OCTET_STRING).ok().map(<[u8]>::to_vec);
    let long = |header: &[u8], len| [header, &Vec::from_iter((0..len).map(|_| 1))].concat();
    assert_eq!(read(&[4, 1, 7]), Some(Vec::from([7])));
    for refused in [
        &[4, 0x81, 1, 7][..],
        &[4, 0x80, 7, 0, 0],
        &[4, 2, 7],
        &[4],
        &[5, 1, 7],
        &[0x1f, 1, 7],
        &long(&[4, 0x82, 0, 200], 200),
        &long(&[4, 0x83, 0, 1, 44], 300),
    ] {
        assert_eq!(read(refused), None, "{refused:?}");
    }
    assert_eq!(read(&long(&[4, 0x81, 200], 200)).map(|value| value.len()), Some(200));
    assert_eq!(read(&long(&[4, 0x82, 1, 44], 300)).map(|value| value.len()), Some(300));
    assert_eq!(read(&long(&[4, 0x83, 1, 0, 0], 65_536)).map(|value| value.len()), Some(65_536));

    let number = |der: &[u8]| positive(&mut Reader::new(der)).ok().map(<[u8]>::to_vec);
    assert_eq!(number(&[2, 2, 0, 0x80]), Some(Vec::from([0x80])));
    assert_eq!(number(&[2, 1, 0x7f]), Some(Vec::from([0x7f])));
    for refused in [&[2, 0][..], &[2, 1, 0], &[2, 1, 0x80], &[2, 2, 0, 0x7f], &[2, 2, 0, 0]] {
        assert_eq!(number(refused), None, "{refused:?}");
    }

    let bits = |der: &[u8]| named_bits(&mut Reader::new(der)).ok();
    assert_eq!(bits(&[3, 2, 7, 0x80]), Some(0x80));
    assert_eq!(bits(&[3, 3, 7, 0x88, 0x80]), Some(0x88));
    for refused in [&[3, 0][..], &[3, 1, 0], &[3, 2, 0, 0x80], &[3, 2, 7, 0], &[3, 2, 8, 0], &[3, 2, 6, 0xc1]] {
        assert_eq!(bits(refused), None, "{refused:?}");
    }

    let truth = |der: &[u8]| optional_true(&mut Reader::new(der)).ok();
    assert_eq!((truth(&[]), truth(&[1, 1, 0xff])), (Some(false), Some(true)));
    assert_eq!((truth(&[1, 1, 0]), truth(&[1, 1, 1]), truth(&[1, 0])), (None, None, None));
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
        let mut reader = Reader::new(&bytes);
        while let Ok((_, value)) = element(&mut reader) {
            let inner = || Reader::new(value);
            let _ = (positive(&mut inner()), small(&mut inner()), named_bits(&mut inner()), time(&mut inner()));
            let _ = (whole_bits(&mut inner()), optional_true(&mut inner()), whole(&mut inner(), SEQUENCE));
        }
    }
}
