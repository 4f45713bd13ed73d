use super::*;

/// Without a thread no grant becomes durable, as while a disk does not answer.
#[test]
fn the_waiting_grants_are_bounded() {
    let grants = Grants { shared: Arc::default(), thread: None };
    let until = 1_800_000_000;
    for number in 0..MOST_WAITING {
        assert!(grants.has_space(), "{number}");
        let identity = format!("oven;{number:024}");
        let session = AcceptedSession { identity, subscriber: "display".to_owned(), until, token: None };
        grants.push(session, 0, String::new(), |_| None);
    }
    assert!(!grants.has_space());
}
