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
    let queue = grants.shared.lock();
    let counts: Vec<usize> = queue.waiting.iter().map(|batch| batch.sessions.sessions().len()).collect();
    assert_eq!(counts, queue.waiting.iter().map(|batch| batch.records.len()).collect::<Vec<_>>());
    assert!(counts.len() > 1, "one row has no room for all of them: {counts:?}");
    assert_eq!(counts.iter().sum::<usize>(), MOST_WAITING);
    assert!(queue.waiting.iter().rev().skip(1).all(|batch| !batch.sessions.has_room()), "{counts:?}");
}

/// Callers that send their next request as soon as they have a result.
#[test]
fn a_commit_waits_for_three_quarters_of_the_callers() {
    for (count, waiting, expected) in
        [(1, 0, 0), (4, 3, 0), (8, 0, 6), (6, 2, 6), (1024, 0, 768), (768, 256, 768), (3000, 1000, MOST_GATHERED)]
    {
        assert_eq!(enough(count, waiting), expected, "{count} and {waiting}");
    }
    // The commits stay large if a commit takes a quarter of the time between two commits.
    let mut count = 1024;
    for _ in 0..50 {
        count = enough(count, 170);
    }
    assert!((500..=520).contains(&count), "{count}");
}
