use super::*;
use proptest::prelude::*;

#[test]
fn a_problem_is_written_as_rfc_9290_says() {
    let bytes = Problem::new("no", "it").to_cbor();
    assert_eq!(bytes, [0xa2, 0x20, 0x62, b'n', b'o', 0x21, 0x62, b'i', b't']);
    assert_eq!(Problem::from_cbor(&bytes).unwrap().to_string(), "no: it");
}

#[test]
fn a_title_with_a_language_and_unknown_entries_are_read() {
    // { -1: 38(["en", "Title"]), 0: {1: 2}, "x": 3, -4: 132 }
    let bytes = [
        0xa4, 0x20, 0xd8, 38, 0x82, 0x62, b'e', b'n', 0x65, b'T', b'i', b't', b'l', b'e', 0x00, 0xa1, 1, 2, 0x61, b'x',
        3, 0x23, 0x18, 132,
    ];
    let problem = Problem::from_cbor(&bytes).unwrap();
    assert_eq!((problem.title.as_deref(), problem.response_code), (Some("Title"), Some(132)));
}

/// A map in which a label occurs twice is not valid (RFC 8949, section 5.3).
#[test]
fn a_problem_in_which_a_label_occurs_twice_is_refused() {
    for entry in [&[0x20, 0x61, b'a'][..], &[0x21, 0x61, b'a'], &[0x22, 0x61, b'a'], &[0x23, 0x18, 132], &[0x05, 0]] {
        assert!(Problem::from_cbor(&[&[0xa1][..], entry].concat()).is_ok());
        assert!(Problem::from_cbor(&[&[0xa2][..], entry, entry].concat()).is_err(), "{entry:x?}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(title in ".*", detail in ".*", code in any::<u8>()) {
        let problem = Problem { response_code: Some(code), ..Problem::new(title, detail) };
        prop_assert_eq!(Problem::from_cbor(&problem.to_cbor()), Ok(problem));
    }

    #[test]
    fn any_bytes_are_a_problem_or_not(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
        let _ = Problem::from_cbor(&bytes);
    }
}
