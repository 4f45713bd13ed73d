use super::*;
use proptest::prelude::*;

/// A rule that is correct except for the missing `allow` or `deny`.
const RULE: &str = "[[rule]]\nsubject = \"a\"\npublisher = \"b\"\n";

#[test]
fn a_mistake_names_file_line_key_and_what_would_be_right() {
    let test = "[[test]]\nsubject = \"a\"\npublisher = \"b\"\nrequest = \"GET /x\"\nexpect = \"allow\"\n";
    for (text, expected) in [
        ("x = 1\n".to_owned(), "p:1: x: a policy has only [[rule]] and [[test]]"),
        ("[rule]\n".to_owned(), "p:1: rule: write [[rule]] before each entry, with two brackets"),
        (
            "\n[[rule]]\npublisher = \"b\"\n".to_owned(),
            "p:2: subject: missing in this [[rule]]: subject = \"NAME\" or \"tag:TAG\"",
        ),
        (RULE.to_owned(), "p:1: allow: missing in this [[rule]]: allow = [\"GET /sensors/*\"], or deny"),
        (format!("{RULE}allow = \"GET /x\"\ndeny = \"GET /x\"\n"), "p:5: deny: a [[rule]] has allow or deny, not both"),
        (format!("{RULE}allow = \"EAT /x\"\n"), "p:4: allow: a method (GET, POST"),
        (format!("{RULE}allow = [\"GET /x\",\n\"GET x\"]\n"), "p:5: allow: a method (GET, POST"),
        (
            format!("{RULE}allow = \"GET /x*y\"\n"),
            "p:4: allow: a * stands only at the end of a path; /x*y has one before",
        ),
        (format!("{RULE}allow = \"GET /x/../y\"\n"), "p:4: allow: no request has the path /x/../y"),
        (format!("{RULE}allow = []\n"), "p:4: allow: the list is empty"),
        (format!("{RULE}allow = 1\n"), "p:4: allow: a text in quotation marks, this is of type integer"),
        (
            format!("{RULE}subjects = \"a\"\n"),
            "p:4: subjects: a [[rule]] has the keys name, subject, publisher, allow, deny",
        ),
        (format!("{RULE}name = \"\"\nallow = \"GET /x\"\n"), "p:4: name: it is empty"),
        (
            "[[rule]]\nsubject = \"a*b\"\npublisher = \"b\"\n".to_owned(),
            "p:2: subject: a * stands only at the end, as in sensor-*",
        ),
        ("[[rule]]\nsubject = \"tag:\"\npublisher = \"b\"\n".to_owned(), "p:2: subject: a name, tag:TAG, or * for all"),
        (
            test.replace("\"a\"", "[\"a\", \"b\"]"),
            "p:2: subject: one name, and tag:TAG for each tag of it; this has 2 names",
        ),
        (test.replace("\"a\"", "\"a*\""), "p:2: subject: one party; a* with a * is many"),
        (
            test.replace("GET /x", "read /x"),
            "p:4: request: one method and one path, as \"GET /temp\"; read is more than one",
        ),
        (
            test.replace("GET /x", "GET /x*"),
            "p:4: request: one method and one path, as \"GET /temp\"; /x* is many paths",
        ),
        (test.replace("\"allow\"", "\"yes\""), "p:5: expect: \"allow\" or \"deny\"; this is \"yes\""),
        (format!("{test}by = \"x\"\n"), "p:1: by: no rule has the name x"),
        (
            format!("{RULE}name = \"fan\"\nallow = \"GET /x\"\n{test}by = \"fam\"\n"),
            "p:6: by: no rule has the name fam; there is fan",
        ),
        (
            format!("{RULE}name = \"n\"\nallow = \"GET /x\"\n{RULE}name = \"n\"\ndeny = \"GET /x\"\n"),
            "p:6: name: n is the name of the rule in line 1 too",
        ),
        ("[[rule]\n".to_owned(), "p:1: "),
    ] {
        let error = Policy::parse("p", &text).expect_err(&text).to_string();
        assert!(error.starts_with(expected), "{text}\n{error}\n{expected}");
    }
}

proptest! {
    #[test]
    fn any_text_gives_a_policy_or_a_mistake_within_it(text in "(\\[\\[rule\\]\\]\n|\\[\\[test\\]\\]\n|subject|publisher|allow|deny|name|request|=|\"|\n|\\[|\\]|GET /|\\*|é|.){0,60}") {
        if let Err(error) = Policy::parse("p", &text) {
            prop_assert!(error.line >= 1 && error.line <= text.matches('\n').count() + 1);
        }
    }
}
