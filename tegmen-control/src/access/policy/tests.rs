//! Tests of decisions, of mistakes in files, of the tests in policies, of explanations and of differences.

mod decisions;
mod differences;
mod mistakes;

use super::*;

const KITCHEN: &str = r#"
[[rule]]
name = "displays read the kitchen"
subject = ["display-*", "tag:display"]
publisher = "tag:kitchen"
allow = ["GET /sensors/*", "read /status"]

[[rule]]
name = "display-9 is lent"
subject = "display-9"
publisher = "*"
deny = "* /*"

[[rule]]
subject = "cook"
publisher = ["oven", "fridge"]
allow = "read-write /program"

[[test]]
subject = "display-3"
publisher = ["oven", "tag:kitchen"]
request = "GET /sensors/1"
expect = "allow"
by = "displays read the kitchen"

[[test]]
subject = "display-9"
publisher = ["oven", "tag:kitchen"]
request = "GET /sensors/1"
expect = "deny"
by = "display-9 is lent"
"#;

fn policy(text: &str) -> Policy {
    Policy::parse("policy.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

fn party(words: &str) -> OwnedParty {
    OwnedParty::from_words(words.split(' ')).expect(words)
}

fn decide(policy: &Policy, subject: &str, publisher: &str, request: &str) -> Decision {
    let (subject, publisher) = (party(subject), party(publisher));
    let (method, path) = file::request(request).expect(request);
    policy.decide(&Question { subject: subject.party(), publisher: publisher.party(), method, path })
}
