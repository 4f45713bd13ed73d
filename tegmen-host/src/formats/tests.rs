use super::*;

#[test]
fn formats_are_found_by_number_name_and_media_type() {
    for text in ["50", "json", "application/json"] {
        assert_eq!(parse(text), Some(50), "{text}");
    }
    assert_eq!(parse("text/plain"), Some(0));
    assert_eq!(parse("12345"), Some(12345));
    assert_eq!((parse("jason"), parse(""), parse("70000")), (None, None, None));
}

#[test]
fn representations_are_shown_as_people_read_them() {
    assert_eq!(show(Some(50), br#"{"a":[1]}"#).unwrap(), "{\n  \"a\": [\n    1\n  ]\n}");
    assert_eq!(show(Some(60), &[0xa1, 0x61, b'a', 0x01]).unwrap(), "{\"a\": 1}");
    assert_eq!(show(Some(40), b"</a>;obs,</b>").unwrap(), "</a>;obs,\n</b>");
    assert_eq!(show(Some(50), b"{"), None);
    assert_eq!((show(Some(0), b"x"), show(None, b"x")), (None, None));
}
