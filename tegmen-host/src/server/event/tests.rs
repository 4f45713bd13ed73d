use super::*;
use crate::group::MembershipEvent;
use serde_json::{Value, json};
use std::time::Duration;

fn four() -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 7], 40000))
}

fn six() -> SocketAddr {
    SocketAddr::from(([0x2001, 0xdb8, 0, 0, 0, 0, 0, 7], 40000))
}

fn sensor() -> String {
    "sensor \"17\"".to_owned()
}

fn at() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn missing() -> std::io::Error {
    std::io::ErrorKind::NotFound.into()
}

fn answered(code: Code, identity: Option<&str>, block: bool, cause: Option<&str>) -> Answered {
    let (method, path, received, sent) = (Code::PUT, "/a b/é".to_owned(), 3, 5);
    let (identity, cause) = (identity.map(str::to_owned), cause.map(str::to_owned));
    Answered { remote: six(), identity, method, path, code, received, sent, block, cause, informative: false }
}

/// Checks the severity, the text and the JSON of an event. Also checks that [`Event::unlimited`] and the JSON have the
/// same name and the same address.
#[track_caller]
fn check(event: Event, severity: Severity, text: &str, object: Value) {
    assert_eq!(event.severity(), severity);
    assert_eq!(event.to_string(), text);
    let json = serde_json::to_string(&event).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), object);
    if let Some((name, remote)) = event.unlimited() {
        assert_eq!(object["event"], name);
        assert_eq!(object["remote"], remote.to_string());
    }
}

#[test]
fn an_event_of_a_peer_reads_the_same_as_text_and_as_json() {
    check(
        Event::Restored { remote: four(), identity: sensor() },
        Severity::Info,
        "192.0.2.7:40000: session of sensor \"17\" restored",
        json!({ "event": "restored", "identity": "sensor \"17\"", "remote": "192.0.2.7:40000" }),
    );
    check(
        Event::Established { remote: four(), identity: String::new(), resumed: false },
        Severity::Info,
        "192.0.2.7:40000 connected without an identity",
        json!({ "event": "established", "identity": "", "remote": "192.0.2.7:40000", "resumed": false }),
    );
    check(
        Event::Established { remote: four(), identity: sensor(), resumed: false },
        Severity::Info,
        "192.0.2.7:40000 authenticated as sensor \"17\"",
        json!({ "event": "established", "identity": "sensor \"17\"", "remote": "192.0.2.7:40000", "resumed": false }),
    );
    check(
        Event::Established { remote: six(), identity: sensor(), resumed: true },
        Severity::Info,
        "[2001:db8::7]:40000 authenticated as sensor \"17\" (resumed)",
        json!({ "event": "established", "identity": "sensor \"17\"", "remote": "[2001:db8::7]:40000", "resumed": true }),
    );
    check(
        Event::Failed { remote: four(), identity: Some(sensor()), reason: Fatal::Idle },
        Severity::Warning,
        "192.0.2.7:40000 (\"sensor \\\"17\\\"\"): connection failed: idle timeout",
        json!({ "event": "failed", "identity": "sensor \"17\"", "reason": "idle timeout", "remote": "192.0.2.7:40000" }),
    );
    check(
        Event::Failed { remote: six(), identity: None, reason: Fatal::Alert(AlertDescription::HANDSHAKE_FAILURE) },
        Severity::Warning,
        "[2001:db8::7]:40000: connection failed: alert handshake_failure",
        json!({ "event": "failed", "identity": null, "reason": "alert handshake_failure", "remote": "[2001:db8::7]:40000" }),
    );
    check(
        Event::HelloRefused { remote: four(), alert: AlertDescription::HANDSHAKE_FAILURE },
        Severity::Warning,
        "192.0.2.7:40000: ClientHello refused (handshake_failure): the client offers no cipher suite of this server, or lacks what the suite needs; compare --suites of both, and whether the client has a pre-shared key where certificates are served, or the reverse; a delegated device also refuses sessions that were revoked or have ended so",
        json!({ "event": "hello_refused", "alert": "handshake_failure", "reason": "the client offers no cipher suite of this server, or lacks what the suite needs; compare --suites of both, and whether the client has a pre-shared key where certificates are served, or the reverse; a delegated device also refuses sessions that were revoked or have ended so", "remote": "192.0.2.7:40000" }),
    );
    check(
        Event::HelloRefused { remote: six(), alert: AlertDescription(99) },
        Severity::Warning,
        "[2001:db8::7]:40000: ClientHello refused (unassigned): the ClientHello violates the standard; capture it with tshark to see what it offers",
        json!({ "event": "hello_refused", "alert": "unassigned", "reason": "the ClientHello violates the standard; capture it with tshark to see what it offers", "remote": "[2001:db8::7]:40000" }),
    );
    check(
        Event::Refused { remote: four(), refusal: Refusal::Expired { not_after: at() } },
        Severity::Warning,
        "192.0.2.7:40000: certificate or public key rejected: a certificate of the peer's path expired on 2027-01-15 08:00:00 UTC: renew it, or set this machine's clock",
        json!({ "event": "refused", "reason": "a certificate of the peer's path expired on 2027-01-15 08:00:00 UTC: renew it, or set this machine's clock", "remote": "192.0.2.7:40000" }),
    );
    check(
        Event::Closed { remote: four(), reason: Fatal::Closed },
        Severity::Info,
        "192.0.2.7:40000 disconnected (close_notify)",
        json!({ "event": "closed", "reason": "close_notify", "remote": "192.0.2.7:40000" }),
    );
    check(
        Event::Outdated { remote: four(), identity: sensor() },
        Severity::Warning,
        "192.0.2.7:40000: session ended: sensor \"17\" has another key in the credentials now, or none",
        json!({ "event": "outdated", "identity": "sensor \"17\"", "remote": "192.0.2.7:40000" }),
    );
    check(
        Event::AnonymousInVain { remote: four() },
        Severity::Warning,
        "192.0.2.7:40000 has no certificate, and such clients may do nothing here: give them rights with --anonymous 'GET /*', or with [anonymous] in the credentials",
        json!({ "event": "anonymous_in_vain", "remote": "192.0.2.7:40000" }),
    );
    check(
        Event::Context { remote: four(), problem: ContextError::Exists { file: "ctx".to_owned() } },
        Severity::Warning,
        "192.0.2.7:40000: the OSCORE context of its request cannot be used: ctx is there already, and nothing is written over: choose another path, or remove what is there",
        json!({ "event": "context", "problem": "ctx is there already, and nothing is written over: choose another path, or remove what is there", "remote": "192.0.2.7:40000" }),
    );
}

#[test]
fn a_refusal_of_oscore_or_edhoc_reads_the_same_as_text_and_as_json() {
    check(
        Event::OscoreRefused { remote: six(), reason: UnprotectError::NotAuthentic },
        Severity::Warning,
        "[2001:db8::7]:40000: request with OSCORE refused: the message does not authenticate; compare the keys of both sides",
        json!({ "event": "oscore_refused", "reason": "the message does not authenticate; compare the keys of both sides", "remote": "[2001:db8::7]:40000" }),
    );
    check(
        Event::EdhocRefused { remote: four(), reason: "a message is too long" },
        Severity::Warning,
        "192.0.2.7:40000: EDHOC message refused: a message is too long",
        json!({ "event": "edhoc_refused", "reason": "a message is too long", "remote": "192.0.2.7:40000" }),
    );
}

#[test]
fn an_event_of_the_server_reads_the_same_as_text_and_as_json() {
    check(
        Event::TicketKeysFailed { error: TicketKeyError::File { file: "keys".to_owned(), source: missing() } },
        Severity::Error,
        "keys: entity not found: ticket keys are kept there; correct the path, or who may write there",
        json!({ "event": "ticket_keys_failed", "error": "keys: entity not found: ticket keys are kept there; correct the path, or who may write there" }),
    );
    check(
        Event::Full { unanswered: 3 },
        Severity::Warning,
        "3 ClientHellos were not answered: all places for handshakes or peers are taken; allow more with --max-handshakes or --max-peers",
        json!({ "event": "full", "unanswered": 3 }),
    );
    check(
        Event::NotKept { problem: "disk full".to_owned() },
        Severity::Error,
        "--state cannot be written: disk full; sessions that use up their record numbers before it can are closed",
        json!({ "event": "not_kept", "problem": "disk full" }),
    );
    check(
        Event::CertificateExpired { at: at() },
        Severity::Error,
        "our certificate expired on 2027-01-15 08:00:00 UTC, and clients refuse it: replace it (`tegmen ca issue`), then send SIGHUP",
        json!({ "event": "certificate_expired", "at": "2027-01-15 08:00:00 UTC" }),
    );
    check(
        Event::RevocationDue { at: at() },
        Severity::Error,
        "a list of --client-crl was to be replaced by 2027-01-15 08:00:00 UTC, and clients of its CA are refused: replace it (`tegmen ca crl`)",
        json!({ "event": "revocation_due", "at": "2027-01-15 08:00:00 UTC" }),
    );
    check(
        Event::Reloaded { identities: 4 },
        Severity::Info,
        "credentials reloaded: 4 identities",
        json!({ "event": "reloaded", "identities": 4 }),
    );
    check(
        Event::ReloadFailed { error: CredentialsError::Unreadable { file: "c.toml".to_owned(), source: missing() } },
        Severity::Error,
        "credentials not reloaded, the old ones stay in force, next try in a second: the credentials c.toml cannot be read: entity not found: make one with `tegmen keys new --identity NAME --file c.toml`",
        json!({ "event": "reload_failed", "error": "the credentials c.toml cannot be read: entity not found: make one with `tegmen keys new --identity NAME --file c.toml`" }),
    );
    check(
        Event::Member { group: "lamps".to_owned(), news: MembershipEvent::Rekeyed { epoch: 3 } },
        Severity::Info,
        "group lamps: epoch 3 has begun",
        json!({ "event": "member", "group": "lamps", "news": "epoch 3 has begun" }),
    );
    check(
        Event::TrustReloaded,
        Severity::Info,
        "authorities and revocation lists reloaded",
        json!({ "event": "trust_reloaded" }),
    );
    check(
        Event::TrustReloadFailed { error: LoadError::Unreadable { file: "ca.pem".to_owned(), source: missing() } },
        Severity::Error,
        "authorities and revocation lists not reloaded, the old ones stay in force, next try in a second: ca.pem: entity not found: give a readable file, PEM or DER",
        json!({ "event": "trust_reload_failed", "error": "ca.pem: entity not found: give a readable file, PEM or DER" }),
    );
}

#[test]
fn an_answered_request_reads_the_same_as_text_and_as_json() {
    check(
        Event::Request(answered(Code::CHANGED, Some("x"), false, None)),
        Severity::Info,
        "[2001:db8::7]:40000 (x) PUT /a%20b/%C3%A9: 2.04, 5 bytes",
        json!({ "event": "request", "block": false, "cause": null, "code": "2.04", "identity": "x", "method": "PUT", "path": "/a b/é", "remote": "[2001:db8::7]:40000", "request_bytes": 3, "response_bytes": 5 }),
    );
    check(
        Event::Request(answered(Code::CONTINUE, Some(""), true, None)),
        Severity::Debug,
        "[2001:db8::7]:40000 (a client without identity) PUT /a%20b/%C3%A9: 2.31, 5 bytes (block)",
        json!({ "event": "request", "block": true, "cause": null, "code": "2.31", "identity": "", "method": "PUT", "path": "/a b/é", "remote": "[2001:db8::7]:40000", "request_bytes": 3, "response_bytes": 5 }),
    );
    check(
        Event::Request(answered(Code::INTERNAL_SERVER_ERROR, None, false, Some("broken"))),
        Severity::Warning,
        "[2001:db8::7]:40000 (a client without identity) PUT /a%20b/%C3%A9: 5.00, 5 bytes (broken)",
        json!({ "event": "request", "block": false, "cause": "broken", "code": "5.00", "identity": null, "method": "PUT", "path": "/a b/é", "remote": "[2001:db8::7]:40000", "request_bytes": 3, "response_bytes": 5 }),
    );
}

/// The level and the message of each event of `tracing`.
#[derive(Clone, Default)]
struct Traced(Arc<std::sync::Mutex<Vec<(tracing::Level, String)>>>);

impl tracing::Subscriber for Traced {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO && metadata.target().starts_with("tegmen_host::server")
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Message(String);
        impl tracing::field::Visit for Message {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
                assert_eq!(field.name(), "message");
                self.0 = format!("{value:?}");
            }
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push((*event.metadata().level(), message.0));
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn a_subscriber_of_tracing_gets_each_event_at_its_level_and_on_one_line() {
    let traced = Traced::default();
    tracing::subscriber::with_default(traced.clone(), || {
        Event::Established { remote: four(), identity: "a\nb\u{1b}".to_owned(), resumed: false }.trace();
        Event::Full { unanswered: 2 }.trace();
        Event::RevocationDue { at: at() }.trace();
        Event::Request(answered(Code::CONTINUE, None, true, None)).trace();
        // An unauthenticated peer must not fill a log.
        Event::Failed { remote: four(), identity: None, reason: Fatal::Decode }.trace();
    });
    let events = traced.0.lock().unwrap();
    let levels: Vec<tracing::Level> = events.iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, [tracing::Level::INFO, tracing::Level::WARN, tracing::Level::ERROR]);
    assert_eq!(events[0].1, "192.0.2.7:40000 authenticated as a\\nb\\u{1b}");
}

#[test]
fn the_data_of_a_group_observation_is_no_failure() {
    let unavailable = |informative| {
        let answered = answered(Code::SERVICE_UNAVAILABLE, None, false, None);
        Event::Request(Answered { informative, ..answered }).severity()
    };
    assert_eq!((unavailable(false), unavailable(true)), (Severity::Warning, Severity::Debug));
}
