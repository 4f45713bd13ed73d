use super::*;
use std::string::ToString;

fn covers(rule: &str, code: Code, path: &str) -> bool {
    Rule::parse(rule).expect(rule).covers(code, path.bytes())
}

#[test]
fn a_rule_covers_its_methods_at_its_path() {
    assert!(covers("GET /temp", Code::GET, "/temp"));
    assert!(!covers("GET /temp", Code::PUT, "/temp"));
    assert!(!covers("GET /temp", Code::GET, "/temp/1"));
    assert!(covers("GET /sensors/*", Code::GET, "/sensors/1"));
    assert!(!covers("GET /sensors/*", Code::GET, "/sensors"));
    assert!(covers("* /*", Code(31), "/anything"));
    assert!(!covers("read-write /*", Code(31), "/anything"));
}

#[test]
fn the_words_have_the_permissions_of_rfc_9237() {
    for (word, number) in [("read", 17), ("write", 102), ("read-write", 119), ("GET", 1), ("iPATCH", 64), ("*", 255)] {
        assert_eq!(Methods::named(word), Some(Methods(number)), "{word}");
    }
    assert!(!covers("read-write /temp", Code::DELETE, "/temp"));
    for code in 1..=7 {
        assert_eq!(Methods::named(Code(code).name()), Some(Methods::of(Code(code))));
    }
}

#[test]
fn what_is_written_is_read_as_the_same() {
    for text in ["GET /temp", "read /a/*", "write /", "read-write /*", "* /x", "iPATCH /y", "DELETE /z*"] {
        assert_eq!(Rule::parse(text).expect(text).to_string(), text);
    }
    assert_eq!(Methods(1 | 8).to_string(), "GET,DELETE");
    for text in ["", "GET", "GET temp", "get /temp", "HEAD /temp", " /temp"] {
        assert_eq!(Rule::parse(text), None, "{text}");
    }
}

#[test]
fn a_rule_covers_another_one_or_meets_it() {
    let rule = |text| Rule::parse(text).expect(text);
    let cases = [
        ("GET /a/*", "GET /a/b", true, true),
        ("GET /a/*", "GET /a/b*", true, true),
        ("GET /a/b*", "GET /a/*", false, true),
        ("GET /a", "GET /a", true, true),
        ("GET /a", "GET /a*", false, true),
        ("GET /a", "GET /ab", false, false),
        ("GET /a*", "GET /b*", false, false),
        ("PUT /*", "GET /a", true, false),
    ];
    for (one, other, covers, meets) in cases {
        assert_eq!(rule(one).has_paths_of(&rule(other)), covers, "{one} and {other}");
        assert_eq!((rule(one).meets(&rule(other)), rule(other).meets(&rule(one))), (meets, meets), "{one} and {other}");
    }
}
