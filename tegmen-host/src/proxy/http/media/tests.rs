use super::*;

#[test]
fn a_registered_content_format_has_its_media_type() {
    for (format, text) in [(0, "text/plain; charset=utf-8"), (40, "application/link-format"), (50, "application/json")]
    {
        assert_eq!(media_type(format), text);
        assert_eq!(content_format(text), Some(format as u16));
    }
}

#[test]
fn a_content_format_without_a_name_goes_through_by_its_number() {
    assert_eq!(media_type(65_001), "application/coap-payload;cf=65001");
    assert_eq!(media_type(70_000), "application/coap-payload;cf=70000");
    assert_eq!(content_format("application/coap-payload;cf=65001"), Some(65_001));
    assert_eq!(content_format("application/coap-payload; CF=40"), Some(40));
    assert_eq!(content_format("application/coap-payload"), None);
    assert_eq!(content_format("application/coap-payload;cf=70000"), None);
    assert_eq!(content_format("application/json;cf=1"), None);
}

#[test]
fn other_media_types_map_loosely() {
    for (text, format) in [
        ("Application/JSON; charset=UTF-8", JSON),
        ("application/vnd.x+json", JSON),
        ("application/soap+xml", XML),
        ("text/xml", XML),
        ("application/x+cbor", CBOR),
        ("text/html;charset=\"utf-8\"", TEXT),
        ("application/x-www-form-urlencoded", OCTETS),
        ("image/png", OCTETS),
    ] {
        assert_eq!(content_format(text), Some(format), "{text}");
    }
}

#[test]
fn a_media_type_that_would_lose_something_has_no_content_format() {
    for text in ["text/plain;charset=iso-8859-1", "multipart/form-data; boundary=x", "json", "50", "/", "a/", ";", ""] {
        assert_eq!(content_format(text), None, "{text}");
    }
}

#[test]
fn accept_asks_for_the_best_format_that_has_a_number() {
    let accepted = |values: &[&'static str]| accepted(values.iter().copied());
    assert_eq!(accepted(&[]), None);
    assert_eq!(accepted(&["*/*"]), None);
    assert_eq!(accepted(&["text/html,application/xml;q=0.9,*/*;q=0.8"]), None);
    assert_eq!(accepted(&["application/cbor;q=0.5, application/json"]), Some(50));
    assert_eq!(accepted(&["text/html", "application/cbor;q=0.1"]), Some(60));
    assert_eq!(accepted(&["application/coap-payload;cf=65001"]), Some(65_001));
    assert_eq!(accepted(&["text/*"]), None);
    assert_eq!(accepted(&["text/html"]), None);
    assert_eq!(accepted(&["text/html, image/*;q=0.1"]), None);
    assert_eq!(accepted(&["application/json;q=0"]), None);
    assert_eq!(accepted(&["", ",;,", "q=1"]), None);
}

proptest::proptest! {
    #[test]
    fn any_text_is_read(text in "\\PC{0,60}") {
        let _ = (content_format(&text), accepted([text.as_str()].into_iter()));
    }
}
