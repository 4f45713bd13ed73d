//! Tests of decisions, and of attacks. The attacks succeed on a faulty server or with [`Mode::Paper`], and fail with
//! the default settings.

mod attacks;
mod content;

use super::*;
use crate::access::ace::{Aif, Material, Right};
use crate::access::policy::Policy;
use crate::access::protokey::AcceptedBounds;
use std::collections::HashMap;
use tegmen_base::crypto::RustCrypto;
use tegmen_base::time::Duration;

const POLICY: &str = r#"
[[rule]]
name = "displays read the kitchen"
subject = "tag:display"
publisher = "tag:kitchen"
allow = "read /temp"

[[rule]]
name = "display-9 is lent"
subject = "display-9"
publisher = "*"
deny = "* /*"
"#;

struct Known {
    publishers: HashMap<&'static str, (OwnedParty, Mode)>,
    protokey: Protokey,
    certified: (OwnedParty, [u8; 32]),
}

impl Devices for Known {
    fn publisher(&self, name: &str) -> Option<Publisher<'_>> {
        let (party, mode) = self.publishers.get(name)?;
        Some(Publisher { party, protokey: &self.protokey, mode: *mode, address: None })
    }

    fn certified(&self, thumbprint: &[u8; 32]) -> Option<&OwnedParty> {
        (self.certified.1 == *thumbprint).then_some(&self.certified.0)
    }

    fn producer(&self, name: &str) -> Option<(&OwnedParty, &Protokey)> {
        self.publishers.get(name).map(|(party, _)| (party, &self.protokey))
    }
}

fn party(words: &str) -> OwnedParty {
    OwnedParty::from_words(words.split(' ')).expect(words)
}

fn protokey() -> Protokey {
    Protokey::new(&[7; 32]).expect("32 bytes")
}

/// A server for tests. Two servers of this type have the same devices and the same policy, and share nothing else.
struct Server {
    devices: Known,
    policy: TestedPolicy,
    accepted: Accepted,
    now: Instant,
}

impl Server {
    fn new() -> Self {
        let publishers = HashMap::from([
            ("oven", (party("oven tag:kitchen"), Mode::Bound)),
            ("old-oven", (party("old-oven tag:kitchen"), Mode::Paper)),
            ("lamp", (party("lamp"), Mode::Bound)),
        ]);
        let certified = (party("fridge tag:kitchen"), [9; 32]);
        Self {
            devices: Known { publishers, protokey: protokey(), certified },
            policy: Policy::parse("policy.toml", POLICY).expect("a policy").tested().expect("its tests"),
            accepted: Accepted::new(AcceptedBounds { identities: 8, each: 4, lifetime: Duration::from_secs(100) }),
            now: Instant::AT_ONCE,
        }
    }

    fn ask(&mut self, subscriber: Option<&str>, payload: &[u8]) -> Outcome {
        let subscriber = subscriber.map(party);
        let (devices, policy) = (&self.devices, &self.policy);
        let mut introspection = Introspection { devices, policy, accepted: &mut self.accepted, lifetime: 600 };
        introspection.answer::<RustCrypto>(subscriber.as_ref().map(OwnedParty::party), payload, self.now)
    }

    fn ask_for(&mut self, subscriber: &str, token: &str, hint: Option<&str>) -> Outcome {
        self.ask(Some(subscriber), &request(token.as_bytes(), hint, None))
    }
}

fn request(token: &[u8], hint: Option<&str>, rights: Option<&[(&str, u64)]>) -> Vec<u8> {
    let right = |(path, permissions): &(&str, u64)| Right { path: (*path).to_owned(), permissions: *permissions };
    let scope = rights.map(|rights| Scope::of(&Aif(rights.iter().map(right).collect())));
    IntrospectionRequest { scope, token: token.to_vec(), hint: hint.map(|hint| Hint::Name(hint.to_owned())) }.encode()
}

/// Returns the key that a subscriber receives, if it receives one.
fn key(outcome: &Outcome) -> Option<Vec<u8>> {
    let response = IntrospectionResponse::parse(&outcome.reply.payload).ok().filter(|response| response.active)?;
    match response.claims.cnf {
        Some(Confirmation::Key(CoseKey { material: Material::Symmetric(key), .. })) => Some(key.to_vec()),
        _ => None,
    }
}

#[test]
fn a_subscriber_gets_the_key_that_the_publisher_derives() {
    let mut server = Server::new();
    let outcome = server.ask_for("display-3 tag:display", "oven;AAECAwQFBgcI", Some(HINT_PROTOKEY));
    assert_eq!((outcome.reply.code, outcome.refused), (Code::CREATED, None), "{}", outcome.message);
    let identity = SessionIdentity::parse(b"oven;AAECAwQFBgcI").expect("an identity");
    let (protokey, subscriber) = (protokey(), "display-3");
    let publisher = crate::access::protokey::Publisher { protokey: &protokey, mode: Mode::Bound, subscriber };
    let theirs = publisher.key::<RustCrypto>(identity, Some(b"display-3")).expect("the hint");
    assert_eq!(key(&outcome).as_deref(), Some(&theirs.expose()[..]));
    let response = IntrospectionResponse::parse(&outcome.reply.payload).expect("a response");
    assert_eq!((response.claims.subject.as_deref(), response.claims.expires_in), (Some("oven"), Some(600)));
    assert_eq!(outcome.message, "display-3 tag:display asks for the session oven;AAECAwQFBgcI: granted");
}

#[test]
fn a_scope_is_granted_whole_or_not_at_all() {
    for (rights, granted) in [
        (&[("/temp", 1)][..], true),
        (&[("/temp", 17)], true),
        (&[("/temp", 17), ("/temp", 1)], true),
        (&[("/temp", 17 | 4)], false),
        (&[("/temp", 1), ("/door", 1)], false),
        (&[("/temp", 0)], false),
        (&[("/temp", 1 << 32)], false),
        (&[("/temp/../temp", 1)], false),
        (&[("temp", 1)], false),
        (&[], false),
    ] {
        let mut server = Server::new();
        let outcome = server.ask(Some("d tag:display"), &request(b"oven;AAECAwQFBgcI", None, Some(rights)));
        assert_eq!(key(&outcome).is_some(), granted, "{rights:?}: {}", outcome.message);
        assert_eq!(server.accepted.len(), usize::from(granted), "a refused request leaves no trace");
    }
    let text = IntrospectionRequest {
        scope: Some(Scope::Text("read".into())),
        token: b"oven;AAECAwQFBgcI".to_vec(),
        hint: None,
    };
    assert_eq!(Server::new().ask(Some("d tag:display"), &text.encode()).refused, Some(Reason::NoScope));
}

#[test]
fn a_certificate_is_known_by_its_thumbprint_and_has_no_key() {
    let mut server = Server::new();
    let mut ask = |subscriber, token: &[u8]| server.ask(Some(subscriber), &request(token, Some(HINT_THUMBPRINT), None));
    let outcome = ask("d tag:display", &[9; 32]);
    let response = IntrospectionResponse::parse(&outcome.reply.payload).expect("a response");
    assert!(response.active && response.claims.cnf.is_none());
    assert_eq!(response.claims.subject.as_deref(), Some("fridge"));
    assert_eq!(ask("d", &[9; 32]).refused, Some(Reason::NothingAllowed));
    assert_eq!(ask("d tag:display", &[8; 32]).refused, Some(Reason::UnknownPublisher));
    assert_eq!(ask("d tag:display", &[9; 31]).refused, Some(Reason::NoIdentity));
}

#[test]
fn a_refusal_tells_the_operator_the_rule_and_the_peer_nothing() {
    let mut server = Server::new();
    let rights: &[(&str, u64)] = &[("/temp", 1)];
    let lent = server.ask(Some("display-9 tag:display"), &request(b"oven;AAECAwQFBgcI", None, Some(rights)));
    assert_eq!(lent.refused.map(Reason::code), Some("denied-by-rule"));
    assert!(lent.message.contains("policy.toml:8 \"display-9 is lent\""), "{}", lent.message);
    server.ask_for("d tag:display", "oven;AAECAwQFBgcI", None);
    let inactive = [
        ("display-9 tag:display", "oven;AAECAwQFBgcI", None, "nothing-allowed"),
        ("d tag:display", "toaster;AAECAwQFBgcI", None, "unknown-publisher"),
        ("d tag:display", "lamp;AAECAwQFBgcI", None, "nothing-allowed"),
        ("d tag:display", "oven;AAECAwQFBgcI", None, "identity-used"),
        ("e tag:display", "oven;AAECAwQFBgcI", None, "identity-of-another"),
        ("d tag:display", "oven;AAECAwQFBgcJ", Some(HINT_PAPER), "other-mode"),
        ("d tag:display", "old-oven;AAECAwQFBgcJ", None, "other-mode"),
        ("d tag:display", "no identity", None, "no-identity"),
    ];
    for (subscriber, token, hint, code) in inactive {
        let outcome = server.ask_for(subscriber, token, hint);
        assert_eq!(outcome.refused.map(Reason::code), Some(code), "{token}");
        assert_eq!(
            (outcome.reply.code, &outcome.reply.payload[..], outcome.reply.max_age),
            (lent.reply.code, &[0xa1, 0x0a, 0xf4][..], None)
        );
    }
}

#[test]
fn what_is_no_request_is_an_error() {
    let mut server = Server::new();
    let outcome = server.ask(None, &request(b"oven;AAECAwQFBgcI", None, None));
    assert_eq!(
        (outcome.reply.code, outcome.refused.map(Reason::code)),
        (Code::UNAUTHORIZED, Some("not-authenticated"))
    );
    for payload in [&b""[..], &[0xa0], &[0xff; 40]] {
        let outcome = server.ask(Some("d"), payload);
        assert_eq!((outcome.reply.code, outcome.refused.map(Reason::code)), (Code::BAD_REQUEST, Some("malformed")));
        assert_eq!(&outcome.reply.payload[..], &[0xa1, 0x18, 30, 1]);
    }
    let outcome = server.ask_for("d tag:display", "oven;AAECAwQFBgcI", Some("jwt"));
    assert_eq!((outcome.reply.code, outcome.refused), (Code::BAD_REQUEST, Some(Reason::UnknownHint)));
}

#[test]
fn a_full_table_refuses_before_it_looks_at_devices() {
    let mut server = Server::new();
    for number in 0..4 {
        assert!(key(&server.ask_for("d tag:display", &format!("oven;AAECAwQFBg{number:02}"), None)).is_some());
    }
    for token in ["oven;AAECAwQFBgcI", "toaster;AAECAwQFBgcI"] {
        let outcome = server.ask_for("d tag:display", token, None);
        assert_eq!((outcome.reply.code, outcome.reply.max_age), (Code::TOO_MANY_REQUESTS, Some(60)));
    }
    for number in 4..8 {
        assert!(key(&server.ask_for("e tag:display", &format!("oven;AAECAwQFBg{number:02}"), None)).is_some());
    }
    for token in ["oven;AAECAwQFBgcI", "toaster;AAECAwQFBgcI"] {
        assert_eq!(server.ask_for("f tag:display", token, None).reply.code, Code::SERVICE_UNAVAILABLE);
    }
    server.now = Instant::AT_ONCE.after(Duration::from_secs(100));
    assert!(key(&server.ask_for("f tag:display", "oven;AAECAwQFBgcI", None)).is_some());
}

/// The subject of a certificate may contain a line break, but the operator's log must have one line for each request.
#[test]
fn a_name_with_a_line_break_makes_no_second_line() {
    let mut server = Server::new();
    for payload in [request(b"oven;AAECAwQFBgcI", None, None), b"\xff".to_vec()] {
        let subscriber = Party::named("eve\noven asks for the session x: granted");
        let (devices, policy) = (&server.devices, &server.policy);
        let mut introspection = Introspection { devices, policy, accepted: &mut server.accepted, lifetime: 600 };
        let outcome = introspection.answer::<RustCrypto>(Some(subscriber), &payload, server.now);
        assert!(!outcome.message.contains('\n'), "{}", outcome.message);
    }
}
