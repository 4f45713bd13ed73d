use super::*;
use crate::audit::Kind;

/// Without a thread no grant becomes durable, as while a disk does not answer.
#[test]
fn the_waiting_grants_are_bounded() {
    let grants = Grants { shared: Arc::default(), thread: None };
    let until = 1_800_000_000;
    for number in 0..MOST_WAITING {
        assert!(grants.has_space(), "{number}");
        let identity = format!("oven;{number:024}");
        let session = AcceptedSession { identity, subscriber: "display".to_owned(), until, token: None };
        let record = Record { kind: Kind::Grant, who: "display".to_owned(), code: "granted", message: String::new() };
        grants.push(&session, 0, &record, Box::new(|_| ()));
    }
    assert!(!grants.has_space());
}
