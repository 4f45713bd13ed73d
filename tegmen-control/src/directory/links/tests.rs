use super::*;
use proptest::prelude::*;

fn printed(text: &str) -> String {
    let links = parse(text.as_bytes()).unwrap();
    links.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The links of RFC 6690, section 5, and of RFC 9176, section 5, are written in the form in which they were received.
#[test]
fn links_are_written_as_they_came() {
    let all = [
        "",
        "</sensors/temp>;if=\"sensor\",</sensors/light>;if=\"sensor\"",
        "</sensors>;ct=40;title=\"Sensor Index\"",
        "</sensors/temp>;rt=\"temperature-c\";if=\"sensor\";obs",
        "<http://www.example.com/sensors/t123>;anchor=\"coap://a/sensors/temp\";rel=\"describedby\"",
        "</t>;anchor=\"/sensors/temp\";rel=\"alternate\"",
        "</x>;title=\"a \\\"b\\\" \\\\ c, d; e\"",
        "</x>;title*=UTF-8''%e2%82%ac;sz=100000",
    ];
    for text in all {
        assert_eq!(printed(text), text);
    }
    assert_eq!(printed(" </a> ; ct=0 , </b>\n"), "</a>;ct=0,</b>");
}

#[test]
fn a_link_that_does_not_stand_by_itself_is_refused() {
    let all = [
        "</a>,",
        ",</a>",
        "</a></b>",
        "</a",
        "/a",
        "<a>",
        "<>",
        "<//host/a>",
        "</a/../b>",
        "</a/.>",
        "</a b>",
        "</a>;",
        "</a>;=1",
        "</a>;ct=",
        "</a>;title=\"x",
        "</a>;title=\"x\\",
        "</a>;title=\"\u{7}\"",
        "</a>;anchor=\"b\"",
        "</a>;anchor=\"coap://b\"",
        "<coap://a>;anchor=\"/b\"",
        "</a>;rt=\"x\";rt=\"y\"",
        "</a>;if=\"x\";ct=0;if=\"x\"",
        "</a>;sz=1;sz=2",
        "</a>;rt;rt",
    ];
    for text in all {
        assert!(matches!(parse(text.as_bytes()), Err(DirectoryError::Malformed(_))), "{text}");
    }
    assert!(parse(b"</\xff>").is_err());
}

proptest! {
    /// No text makes the parser panic. If the parser accepts a text, the parsed list is written as text again, and the
    /// parser reads the same list from this text.
    #[test]
    fn a_list_that_was_written_is_the_same_list(text in "[<>/;=,\"\\\\a-c :.é\u{1}]{0,40}") {
        if let Ok(links) = parse(text.as_bytes()) {
            let written = links.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            prop_assert_eq!(parse(written.as_bytes()), Ok(links));
        }
    }

    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = parse(&bytes);
    }
}
