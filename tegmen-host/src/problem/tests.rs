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

/// A title or detail is text, or has the tag 38 with a language, a text and optionally a direction (RFC 9290, section 2
/// and appendix A). The instance is a URI without a tag.
#[test]
fn a_text_has_no_other_tag_than_38_and_no_other_form() {
    let title = |value: &[u8]| Problem::from_cbor(&[&[0xa1, 0x20], value].concat()).map(|problem| problem.title);
    let tagged = |tag: u8, array: &[u8]| title(&[&[0xd8, tag][..], array].concat());
    let pair = [0x82, 0x62, b'e', b'n', 0x61, b'a'];
    let triple = |direction: &[u8]| [&[0x83], &pair[1..], direction].concat();
    for array in
        [pair.to_vec(), triple(&[0xf4]), triple(&[0xf5]), triple(&[0xf6]), [&[0x9f], &pair[1..], &[0xff]].concat()]
    {
        assert_eq!(tagged(38, &array), Ok(Some("a".to_owned())), "{array:x?}");
    }
    assert_eq!(tagged(37, &pair), Err(NotAProblem));
    assert_eq!(title(&[&[0xc1][..], &pair].concat()), Err(NotAProblem));
    assert_eq!(title(&[0xd8, 38, 0x61, b'a']), Err(NotAProblem));
    for array in [&[0x80][..], &[0x81, 0x61, b'a'], &triple(&[0x01]), &triple(&[0xff]), &[0x84, 0x60, 0x60, 0xf4, 0xf4]]
    {
        assert_eq!(tagged(38, array), Err(NotAProblem), "{array:x?}");
    }
    assert_eq!(Problem::from_cbor(&[&[0xa1, 0x22, 0xd8, 38][..], &pair].concat()), Err(NotAProblem));
}

/// A payload is one CBOR item (RFC 9290, section 2).
#[test]
fn bytes_after_a_problem_are_refused() {
    let bytes = Problem::new("no", "it").to_cbor();
    for more in [0x00, 0xa0, 0xff] {
        assert_eq!(Problem::from_cbor(&[&bytes[..], &[more]].concat()), Err(NotAProblem));
    }
}

#[test]
fn a_label_beyond_64_bits_is_unknown() {
    let label = [0x3b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x00];
    let read = |bytes: &[&[u8]]| Problem::from_cbor(&bytes.concat());
    assert_eq!(read(&[&[0xa1], &label]), Ok(Problem::default()));
    assert_eq!(read(&[&[0xa2], &label, &label]), Err(NotAProblem));
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
