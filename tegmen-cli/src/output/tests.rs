use super::*;

#[test]
fn text_stays_on_its_line() {
    let forged = "x: 2.05\n10.0.0.1 \u{1b}]0;owned\u{7}\u{9b}31m\u{202e}\u{2028}'\"\\ \u{e9}e\u{301}";
    let shown = printable(forged);
    let expected = "x: 2.05\\n10.0.0.1 \\u{1b}]0;owned\\u{7}\\u{9b}31m\\u{202e}\\u{2028}'\"\\ \u{e9}e\u{301}";
    assert_eq!(shown, expected);
}

#[test]
fn lines_and_tabs_of_a_text_stay() {
    assert_eq!(printable_lines("a\tb\n\u{1b}[31mc\n"), "a\tb\n\\u{1b}[31mc\n");
}
