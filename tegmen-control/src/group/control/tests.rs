use super::*;

fn members(names: &[&str]) -> BTreeMap<Arc<str>, Arc<str>> {
    names.iter().map(|name| (Arc::from(*name), Arc::from(format!("coaps://192.0.2.1/{name}")))).collect()
}

fn target(name: &str) -> Target {
    ("lights".into(), name.into())
}

/// Starts all requests that are due. Returns the names of the members, and the kinds of the requests.
fn started(requests: &mut Requests, at: Instant) -> Vec<(String, Kind)> {
    let next = |requests: &mut Requests| requests.next(at).ok();
    let due = std::iter::from_fn(|| next(requests));
    due.map(|due| (due.target.1.to_string(), due.kind)).collect()
}

fn failed() -> Outcome {
    Outcome::Failed("no answer".to_owned())
}

const REKEYING: Kind = Kind::Rekeying;

#[test]
fn a_member_that_does_not_respond_gets_four_requests_in_an_epoch() {
    let (mut requests, begin) = (Requests::default(), Instant::now());
    let seconds = |seconds| begin + Duration::from_secs(seconds);
    let hall = [("hall".to_owned(), REKEYING)];
    requests.update("lights", &members(&["hall"]), begin);
    for (at, next) in [(0, 5), (5, 25), (25, 105)] {
        assert_eq!(started(&mut requests, seconds(at)), hall);
        assert_eq!(requests.done(&target("hall"), failed(), seconds(at)), None);
        assert_eq!(requests.next(seconds(at)), Err(Some(seconds(next))));
        // Another epoch begins, and causes no additional request.
        requests.update("lights", &members(&["hall"]), seconds(at));
        assert_eq!(requests.next(seconds(at)), Err(Some(seconds(next))));
    }
    assert_eq!(started(&mut requests, seconds(105)), hall);
    assert_eq!(requests.done(&target("hall"), failed(), seconds(105)).as_deref(), Some("no answer"));
    assert_eq!(requests.next(seconds(1000)), Err(None));
    requests.update("lights", &members(&["hall"]), seconds(1000));
    assert_eq!(started(&mut requests, seconds(1000)), hall, "the next epoch");
    assert!(requests.done(&target("hall"), Outcome::Refused(Code::NOT_FOUND), seconds(1000)).is_some());
    assert_eq!(requests.next(seconds(2000)), Err(None), "a request that is refused is not repeated");
}

#[test]
fn an_epoch_that_begins_during_a_request_causes_another_one() {
    let (mut requests, at) = (Requests::default(), Instant::now());
    requests.update("lights", &members(&["hall"]), at);
    assert_eq!(started(&mut requests, at).len(), 1);
    requests.update("lights", &members(&["hall"]), at);
    assert_eq!(requests.next(at), Err(None), "a member has one request at a time");
    requests.done(&target("hall"), Outcome::Done, at);
    assert_eq!(started(&mut requests, at), [("hall".to_owned(), REKEYING)]);
}

#[test]
fn a_member_that_is_gone_gets_one_message_and_is_forgotten() {
    let (mut requests, at) = (Requests::default(), Instant::now());
    requests.update("lights", &members(&["hall", "porch"]), at);
    requests.update("doors", &members(&["hall"]), at);
    assert_eq!(started(&mut requests, at).len(), 3);
    // The eviction comes while a request to the member runs.
    requests.update("lights", &members(&["porch"]), at);
    let doors: Target = ("doors".into(), "hall".into());
    [target("hall"), target("porch"), doors].iter().for_each(|to| drop(requests.done(to, Outcome::Done, at)));
    let evicted = ("hall".to_owned(), Kind::Eviction);
    assert_eq!(started(&mut requests, at), [evicted, ("porch".to_owned(), REKEYING)]);
    requests.done(&target("hall"), Outcome::Done, at);
    requests.update("lights", &members(&["porch"]), at);
    assert!(!requests.members.contains_key(&target("hall")));
    assert_eq!(requests.members.len(), 2);

    // A member that joins again gets keys, and no message about its eviction.
    requests.done(&target("porch"), Outcome::Done, at);
    started(&mut requests, at);
    requests.done(&target("porch"), Outcome::Done, at);
    requests.update("lights", &members(&[]), at);
    requests.update("lights", &members(&["porch"]), at);
    assert_eq!(started(&mut requests, at), [("porch".to_owned(), REKEYING)]);
}

#[test]
fn the_number_of_requests_at_the_same_time_is_limited() {
    let (mut requests, at) = (Requests::default(), Instant::now());
    let names: Vec<String> = (0..AT_ONCE + 2).map(|number| number.to_string()).collect();
    requests.update("lights", &members(&names.iter().map(String::as_str).collect::<Vec<_>>()), at);
    let first = started(&mut requests, at);
    assert_eq!(first.len(), AT_ONCE);
    assert_eq!(requests.next(at), Err(None));
    requests.done(&target(&first[0].0), Outcome::Done, at);
    assert_eq!(started(&mut requests, at).len(), 1);
}
