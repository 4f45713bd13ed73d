//! Tests of rows with many session identities.

use super::crashes::{Cut, Moment};
use super::shared::{request, serve};
use super::*;
use crate::access::ace::IntrospectionResponse;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicUsize;
use tegmen_store::store::Scan;

fn identity(number: usize) -> String {
    format!("oven;AAECAwQF{number:04}")
}

fn session<S: Store>(state: &State<S>, number: usize) -> AcceptedSession {
    let until = state.view().session_until(NOW);
    AcceptedSession { identity: identity(number), subscriber: "display".to_owned(), until, token: None }
}

/// Returns the identities with these numbers, after the state has accepted them.
fn together<S: Store>(state: &State<S>, numbers: std::ops::Range<usize>) -> ManySessions {
    let mut many = ManySessions::default();
    for number in numbers {
        assert_eq!(ask(state, "display", &identity(number)), None);
        let session = session(state, number);
        state.begin_to_bind(&session).expect("the first time");
        many.add(&session);
    }
    many
}

/// Binds identities in the way of a faulty server: acknowledges them when the store has the row, before the commit.
fn bind_early(state: &State<Cut>, many: &ManySessions, number: u64) -> bool {
    let mut row = Vec::new();
    many.sessions().iter().for_each(|session| rows::add_session(&mut row, session));
    drop(state.store.commit(Transaction::default().put(rows::sessions(number), Value::Plain(row))));
    true
}

/// Runs a server that accepts three identities at a time until the power is cut. Repeats this with the power cut at
/// each transaction, and opens the state again each time. Returns the number of identities that were acknowledged and
/// are accepted a second time.
fn twice(bind: impl Fn(&State<Cut>, &ManySessions, u64) -> bool) -> usize {
    let mut twice = 0;
    for moment in [Moment::BeforeCommit, Moment::BeforeAnswer] {
        for step in 0..4 {
            let scene = Scene::new("sessions-crash");
            furnish(&scene.open());
            let state = open(Cut { database: scene.database(), transactions: Arc::default(), at: (step, moment) });
            let acknowledged = (0..5_usize).take_while(|at| {
                let many = together(&state, 3 * at..3 * (at + 1));
                bind(&state, &many, *at as u64)
            });
            let acknowledged = acknowledged.count();
            drop(state);
            let state = scene.open();
            twice +=
                (0..3 * acknowledged).filter(|number| ask(&state, "display", &identity(*number)).is_none()).count();
            // A row that the disk has although nobody heard of it stays as it is.
            let many = together(&state, 100..103);
            wait(state.bind_many(&many, NOW_SECONDS)).expect("another number");
        }
    }
    twice
}

#[test]
fn no_identity_of_a_row_is_accepted_again_after_a_power_cut() {
    assert!(twice(bind_early) > 0, "the mutant accepts what it acknowledged");
    assert_eq!(twice(|state, many, _| wait(state.bind_many(many, NOW_SECONDS)).is_ok()), 0);
}

#[test]
fn a_row_of_one_identity_of_an_earlier_version_counts_beside_a_row_of_many() {
    let scene = Scene::new("sessions-earlier");
    let state = scene.open();
    furnish(&state);
    let old = rows::json(&Session { subscriber: "display".to_owned(), until: NOW_SECONDS + 100, token: None });
    let key = format!("access/session/{}", identity(0));
    wait(state.store.commit(Transaction::default().put(key, old))).expect("a row");
    wait(state.bind_many(&together(&state, 1..3), NOW_SECONDS)).expect("durable");
    drop(state);
    let state = scene.open();
    for number in 0..3 {
        assert_eq!(ask(&state, "display", &identity(number)), Some(Reason::Identity(NotAccepted::Used)), "{number}");
    }
    assert_eq!(ask(&state, "display", &identity(3)), None);
    // An earlier version takes each row of this prefix for JSON, and does not start with another one.
    let page = wait(state.store.scan(Scan::of("access/session/", 10))).expect("rows");
    let unread = page.entries.iter().filter(|entry| rows::read::<Session>(&entry.value).is_err());
    assert_eq!((page.entries.len(), unread.count()), (2, 1));
}

#[test]
fn identities_that_come_together_share_rows_and_each_is_granted_once() {
    const EACH: usize = 3000;
    let scene = Scene::new("sessions-together");
    let state = scene.open();
    furnish(&state);
    let service = Arc::new(serve(&scene, state));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let granted = runtime.block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for number in (0..EACH).chain(0..EACH) {
            let service = Arc::clone(&service);
            all.spawn(async move {
                let reply = service.introspect(Some("display"), &request(&identity(number))).await;
                let response = IntrospectionResponse::parse(&reply.payload).expect("a response");
                (number, response.active)
            });
        }
        let all = all.join_all().await;
        all.into_iter().filter(|(_, active)| *active).map(|(number, _)| number).collect::<Vec<_>>()
    });
    assert_eq!(granted.len(), EACH, "each once");
    assert_eq!(granted.iter().collect::<BTreeSet<_>>().len(), EACH);
    let page = wait(service.state().store.scan(Scan::of("access/session/", EACH))).expect("rows");
    assert!((2..EACH / 8).contains(&page.entries.len()), "{} rows", page.entries.len());
    drop(service);
    let log = std::fs::read(scene.0.join("audit.log")).expect("a log");
    let lines = log.split(|byte| *byte == b'\n').filter(|line| line.windows(9).any(|word| word == b": granted"));
    assert_eq!(lines.count(), EACH, "a line for each");
    let service = serve(&scene, scene.open());
    for number in (0..EACH).step_by(7) {
        let reply = wait(service.introspect(Some("display"), &request(&identity(number))));
        assert!(!IntrospectionResponse::parse(&reply.payload).expect("a response").active, "{number}");
    }
}

#[test]
fn a_row_that_the_store_refuses_gives_no_key_and_a_refusal_for_each() {
    let scene = Scene::new("sessions-refused");
    furnish(&scene.open());
    let transactions = Arc::<AtomicUsize>::default();
    let state = open(Cut { database: scene.database(), transactions, at: (0, Moment::BeforeCommit) });
    let service = serve(&scene, state);
    let reply = wait(service.introspect(Some("display"), &request(&identity(0))));
    assert!(reply.code == tegmen_coap::Code::SERVICE_UNAVAILABLE && reply.max_age.is_some(), "{reply:?}");
    drop(service);
    let log = std::fs::read_to_string(scene.0.join("audit.log")).expect("a log");
    let refused = log.lines().filter(|line| line.contains("\"not-stored\"") && line.contains(&identity(0)));
    assert_eq!(refused.count(), 1, "{log}");
    assert!(!log.contains("granted"), "{log}");
}
