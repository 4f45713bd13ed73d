use super::*;
use proptest::prelude::*;

#[test]
fn a_rule_allows_names_tags_and_their_beginnings() {
    let policy = policy(KITCHEN);
    for (subject, publisher, request, expected) in [
        ("display-3", "oven tag:kitchen", "GET /sensors/1", "allowed"),
        ("panel tag:display", "oven tag:kitchen", "FETCH /status", "allowed"),
        ("display-3", "oven", "GET /sensors/1", "no-rule"),
        ("panel", "oven tag:kitchen", "GET /sensors/1", "no-rule"),
        ("display-3", "oven tag:kitchen", "PUT /sensors/1", "no-rule"),
        ("display-3", "oven tag:kitchen", "GET /sensors", "no-rule"),
        ("display-9", "oven tag:kitchen", "GET /sensors/1", "denied-by-rule"),
        ("display-9 tag:display", "lamp", "DELETE /x", "denied-by-rule"),
        ("cook", "fridge", "PUT /program", "allowed"),
        ("cook", "fridge", "DELETE /program", "no-rule"),
        ("tag:display x", "oven tag:kitchen", "GET /status", "allowed"),
    ] {
        assert_eq!(decide(&policy, subject, publisher, request).code(), expected, "{subject} {publisher} {request}");
    }
}

#[test]
fn an_empty_policy_allows_nothing() {
    assert_eq!(decide(&policy(""), "a", "b", "GET /"), Decision::NoRule);
}

#[test]
fn a_name_that_looks_like_a_tag_is_no_tag() {
    let policy = policy("[[rule]]\nsubject = \"tag:admin\"\npublisher = \"*\"\nallow = \"* /*\"\n");
    let question =
        |name| Question { subject: Party::named(name), publisher: Party::named("p"), method: Code::GET, path: "/" };
    assert_eq!(policy.decide(&question("tag:admin")), Decision::NoRule);
    assert_eq!(policy.decide(&question("admin")), Decision::NoRule);
    assert!(decide(&policy, "x tag:admin", "p", "GET /").is_allowed());
}

#[test]
fn a_path_that_no_request_has_is_refused_under_a_rule_for_all() {
    let policy = policy("[[rule]]\nsubject = \"*\"\npublisher = \"*\"\nallow = \"* /*\"\n");
    for (path, expected) in [
        ("/", "allowed"),
        ("/a/", "allowed"),
        ("/a//b", "bad-path"),
        ("//a", "bad-path"),
        ("/a/../b", "bad-path"),
        ("/./a", "bad-path"),
        ("/..", "bad-path"),
        ("a", "bad-path"),
        ("", "bad-path"),
        ("/..a", "allowed"),
    ] {
        let question = Question { subject: Party::named("s"), publisher: Party::named("p"), method: Code::GET, path };
        assert_eq!(policy.decide(&question).code(), expected, "{path}");
    }
}

#[test]
fn a_party_with_too_many_tags_is_refused() {
    let policy = policy("[[rule]]\nsubject = \"*\"\npublisher = \"*\"\nallow = \"* /*\"\n");
    let tags: Vec<String> = (0..17).map(|tag| tag.to_string()).collect();
    let subject = Party { name: "s", tags: &tags };
    let question = Question { subject, publisher: Party::named("p"), method: Code::GET, path: "/" };
    assert_eq!(policy.decide(&question), Decision::TooManyTags);
    let subject = Party { name: "s", tags: &tags[..16] };
    assert!(policy.decide(&Question { subject, ..question }).is_allowed());
}

#[test]
fn a_rule_for_no_registered_method_needs_the_star() {
    let policy = policy(KITCHEN);
    let question =
        Question { subject: Party::named("display-9"), publisher: Party::named("p"), method: Code(31), path: "/x" };
    assert_eq!(policy.decide(&question).code(), "denied-by-rule");
}

#[test]
fn an_explanation_names_the_rule_and_those_that_came_near() {
    let policy = policy(KITCHEN);
    let explain = |subject: &str, publisher: &str, request: &str| {
        let (subject, publisher) = (party(subject), party(publisher));
        let (method, path) = file::request(request).expect(request);
        policy.explain(&Question { subject: subject.party(), publisher: publisher.party(), method, path })
    };
    let lent = explain("display-9", "oven tag:kitchen", "GET /status");
    assert!(lent.message.contains("policy.toml:8 \"display-9 is lent\""), "{}", lent.message);
    assert_eq!(lent.also.len(), 1, "the rule that would allow it");
    let near = explain("cook", "fridge", "DELETE /program");
    assert!(near.message.ends_with("refused: no rule allows it"), "{}", near.message);
    assert_eq!(near.near.len(), 1);
    assert_eq!((near.near[0].part, policy.line_of(near.near[0].rule)), (Part::Request, 14));
    assert!(near.to_string().contains("policy.toml:14: allow cook at oven, fridge: read-write /program"), "{near}");
    let other = explain("display-1", "lamp", "GET /status");
    assert_eq!(other.near[0].part, Part::Publisher);
}

#[test]
fn a_policy_that_fails_its_own_tests_is_not_applied() {
    assert!(policy(KITCHEN).tested().is_ok());
    let broken = KITCHEN.replace("publisher = \"*\"", "publisher = \"lamp\"");
    let failed = policy(&broken).tested().expect_err("display-9 reads the oven again");
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].line, 26);
    assert!(
        failed[0].message.contains("expects deny by the rule \"display-9 is lent\", the policy decides allow"),
        "{}",
        failed[0]
    );
    // The right answer for another reason fails too.
    let other = KITCHEN.replace("subject = \"display-9\"\npublisher = \"*\"", "subject = \"lamp\"\npublisher = \"*\"");
    let other = other.replace("GET /sensors/1\"\nexpect = \"deny\"", "GET /sensors\"\nexpect = \"deny\"");
    assert_eq!(policy(&other).failed_tests().len(), 1);
}

#[test]
fn a_pair_connects_if_something_is_allowed_and_not_everything_denied() {
    let policy = policy(KITCHEN);
    let connects = |subject, publisher| policy.connects(&party(subject).party(), &party(publisher).party());
    assert!(connects("display-3", "oven tag:kitchen"));
    assert!(connects("cook", "oven"));
    assert!(!connects("display-9", "oven tag:kitchen"));
    assert!(!connects("cook", "lamp"));
}

/// Decides in the simplest way, without an index.
fn plain(rules: &[Rule], question: &Question<'_>) -> Option<(Effect, usize)> {
    let covers = |rule: &&Rule| {
        rule.covers_subject(&question.subject)
            && rule.covers_publisher(&question.publisher)
            && rule.covers_request(question.method, question.path)
    };
    let first = |effect| rules.iter().filter(|rule| rule.effect == effect).find(covers);
    first(Effect::Deny).or_else(|| first(Effect::Allow)).map(|rule| (rule.effect, rule.line))
}

fn word() -> impl Strategy<Value = String> {
    ("(tag:)?", "[ab]{0,2}", "\\*?").prop_filter_map("empty", |(tag, text, star)| {
        (!text.is_empty() || !star.is_empty()).then(|| format!("{tag}{text}{star}"))
    })
}

fn rule_text() -> impl Strategy<Value = String> {
    let resource = ("GET|PUT|read|read-write|\\*", "/[ab]{0,2}", "\\*?").prop_map(|(m, p, s)| format!("{m} {p}{s}"));
    let list = |words| proptest::collection::vec(words, 1..3);
    (list(word().boxed()), list(word().boxed()), any::<bool>(), list(resource.boxed())).prop_map(|(s, p, allow, r)| {
        let effect = if allow { "allow" } else { "deny" };
        format!("[[rule]]\nsubject = {s:?}\npublisher = {p:?}\n{effect} = {r:?}\n")
    })
}

proptest! {
    #[test]
    fn the_index_decides_as_the_rules_read(
        rules in proptest::collection::vec(rule_text(), 0..30),
        names in ("[ab]{1,3}", "[ab]{1,3}"),
        tags in (proptest::collection::vec("[ab]{1,2}", 0..3), proptest::collection::vec("[ab]{1,2}", 0..3)),
        method in 1_u8..9,
        path in "/[ab]{0,3}",
    ) {
        let policy = policy(&rules.concat());
        let subject = Party { name: &names.0, tags: &tags.0 };
        let publisher = Party { name: &names.1, tags: &tags.1 };
        let question = Question { subject, publisher, method: Code(method), path: &path };
        let decision = policy.decide(&question);
        let found = decision.rule().map(|rule| (decision.effect(), policy.line_of(rule)));
        prop_assert_eq!(found, plain(&policy.rules, &question));
    }
}

#[test]
fn all_requests_of_a_rule_are_allowed_or_the_answer_is_no() {
    let text = r#"
[[rule]]
subject = "display"
publisher = "oven"
allow = ["read /*", "PUT /light"]

[[rule]]
subject = "display"
publisher = "oven"
deny = "GET /secret/*"
"#;
    let (policy, display, oven) = (policy(text), party("display"), party("oven"));
    let cases = [
        ("GET /light", true),
        ("read /light*", true),
        ("PUT /light", true),
        ("PUT /light*", false),
        ("read-write /light", false),
        ("GET /*", false),
        ("GET /sec*", false),
        ("FETCH /sec*", true),
        ("GET /secret/1", false),
        ("GET /a/../b", false),
    ];
    for (asked, is_allowed) in cases {
        let rule = tegmen_coap::Rule::parse(asked).expect(asked);
        assert_eq!(policy.allows_all(&display.party(), &oven.party(), &rule), is_allowed, "{asked}");
        assert!(!policy.allows_all(&oven.party(), &oven.party(), &rule));
    }
}
