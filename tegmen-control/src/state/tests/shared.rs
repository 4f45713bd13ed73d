//! Tests of several servers that share one store.

use super::super::beat::{Beat, Step};
use super::*;
use crate::access::ace::IntrospectionRequest;
use crate::access::ace::trl::{self, Cursor};
use crate::audit::{AuditBounds, AuditLog};
use crate::service::Service;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Context;
use std::time::Duration;
use tegmen_coap::Code;
use tegmen_host::x509::signer::SoftwareKey;
use tegmen_store::store::answer::{Answer, Promise, promise};
use tegmen_store::store::{Changes, Found, LeaseId, Page, Scan};

/// The access of one server to a database that several servers share.
#[derive(Clone)]
struct Part {
    database: Database,
    /// True if the transactions of this server fail.
    is_cut: Arc<AtomicBool>,
    /// The calls that wait for changes while the delivery of changes is stopped; `None` while changes are delivered.
    held: Arc<Mutex<Option<Vec<Promise<Changes>>>>>,
}

impl Part {
    fn of(database: &Database) -> Self {
        Self { database: database.clone(), is_cut: Arc::default(), held: Arc::default() }
    }

    /// Starts the delivery of changes again. The calls that waited fail, and the state repeats these calls.
    fn release(&self) {
        *self.held.lock().expect("a lock") = None;
    }
}

impl Store for Part {
    fn read(&self, key: &[u8], at: Option<Revision>) -> Answer<Found> {
        self.database.read(key, at)
    }

    fn scan(&self, scan: Scan) -> Answer<Page> {
        self.database.scan(scan)
    }

    fn commit(&self, transaction: Transaction) -> Answer<Revision> {
        match self.is_cut.load(Ordering::Acquire) {
            true => Answer::of(Err(StoreError::Unavailable { why: "it is cut off".to_owned() })),
            false => self.database.commit(transaction),
        }
    }

    fn changes(&self, prefix: &[u8], after: Revision, most: usize) -> Answer<Changes> {
        match &mut *self.held.lock().expect("a lock") {
            None => self.database.changes(prefix, after, most),
            Some(held) => {
                let (promise, answer) = promise();
                held.push(promise);
                answer
            }
        }
    }

    fn compact(&self, through: Revision) -> Answer<()> {
        self.database.compact(through)
    }

    fn grant(&self, ttl: Duration) -> Answer<LeaseId> {
        self.database.grant(ttl)
    }

    fn renew(&self, lease: LeaseId) -> Answer<()> {
        self.database.renew(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Answer<()> {
        self.database.revoke(lease)
    }

    fn is_shared(&self) -> bool {
        true
    }
}

/// Stops the delivery of later changes to a state. The state has all earlier changes.
fn hold(part: &Part) {
    *part.held.lock().expect("a lock") = Some(Vec::new());
    // A change ends the call that waits, and the next call is held.
    while part.held.lock().expect("a lock").as_ref().is_some_and(Vec::is_empty) {
        wait(part.database.commit(Transaction::default().put("access/other", Value::Plain(Vec::new())))).expect("made");
        std::thread::yield_now();
    }
}

/// Makes the steps of a beat until the store has written it. Returns the revision of the beat.
fn travel(beat: &mut Beat<Part>, state: &State<Part>) -> Revision {
    let mut cx = Context::from_waker(std::task::Waker::noop());
    loop {
        assert!(beat.turn(state.feed.shared.around(), &mut cx).is_ok());
        if let Step::Travels(_, revision) = beat.step {
            return revision;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_view_is_current_since_the_begin_of_a_beat_that_the_watch_delivered() {
    let scene = Scene::new("beat");
    let part = Part::of(&scene.database());
    // The beat of the state itself fails.
    part.is_cut.store(true, Ordering::Release);
    let state = open(part.clone());
    let since = || state.view().lease.expect("a lease").since;
    let opened = since();
    hold(&part);
    let mut beat = Beat::on(&Part::of(&part.database)).expect("a shared store");
    let revision = travel(&mut beat, &state);
    assert_eq!(since(), opened, "the transaction is done, and the view does not have it");
    part.release();
    wait(state.feed.shared.reached(revision)).expect("delivered");
    let Step::Travels(began, _) = beat.step else { panic!("a beat") };
    assert!(beat.turn(state.feed.shared.around(), &mut Context::from_waker(std::task::Waker::noop())).is_ok());
    assert_eq!(since(), began);
    let lease = Bounds::default().lease;
    assert!(state.view().is_current_at(began + lease - Duration::from_millis(1)));
    assert!(!state.view().is_current_at(began + lease));
}

#[test]
fn a_beat_notices_that_the_store_went_back() {
    let scene = Scene::new("went-back");
    let part = Part::of(&scene.database());
    let state = open(part.clone());
    furnish(&state);
    std::fs::create_dir(scene.0.join("earlier")).expect("a directory");
    let earlier = Database::open(&scene.0.join("earlier/state.db")).expect("a database");
    let mut beat = Beat::on(&Part::of(&earlier)).expect("a shared store");
    let mut cx = Context::from_waker(std::task::Waker::noop());
    while beat.turn(state.feed.shared.around(), &mut cx).is_ok() {
        assert!(!matches!(beat.step, Step::Travels(..)), "an older revision was taken for a new one");
        std::thread::yield_now();
    }
}

/// Makes the service of a state, with an audit log.
pub(super) fn serve<S: Store>(scene: &Scene, state: State<S>) -> Service<S> {
    let pair = rcgen::KeyPair::generate().expect("a key");
    let signer = SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).expect("a key");
    let audit = AuditLog::open(&scene.0.join("audit.log"), Arc::new(signer), AuditBounds::default()).expect("a log");
    Service::new(state, audit).expect("randomness")
}

pub(super) fn request(identity: &str) -> Vec<u8> {
    IntrospectionRequest { token: identity.into(), ..Default::default() }.encode().to_vec()
}

#[test]
fn without_news_from_a_shared_store_nothing_is_granted_and_revocations_are_listed() {
    let scene = Scene::new("cut-off");
    let database = scene.database();
    furnish(&open(Part::of(&database)));
    for lease in [Duration::from_secs(3600), Duration::ZERO] {
        let bounds = Bounds { lease, ..Bounds::default() };
        let state = wait(State::open(Part::of(&database), bounds, Box::new(|_| {}))).expect("a state");
        let service = serve(&scene, state);
        let hash = token_hash::<RustCrypto>(&[1]);
        wait(service.revoke_token("operator", &hash, NOW_SECONDS * 2, &["display"])).expect("revoked");
        let ask = |who, identity| wait(service.introspect(who, &request(identity)));
        let reply = ask(Some("display"), "oven;AAECAwQFBgcK");
        match lease.is_zero() {
            false => assert_eq!((reply.code, reply.max_age), (Code::CREATED, None)),
            true => assert!(reply.code == Code::SERVICE_UNAVAILABLE && reply.max_age.is_some(), "{reply:?}"),
        }
        assert_eq!(ask(None, "oven;AAECAwQFBgcI").code, Code::UNAUTHORIZED, "a refusal stays a refusal");
        let listed = service.state().view().revocations(Requester::Device("display"), Query::default());
        assert!(matches!(&listed, Ok(trl::Answer::Full { hashes, .. }) if *hashes == [hash]), "{listed:?}");
    }
}

#[test]
fn a_grant_of_a_server_that_lags_behind_is_not_made() {
    let scene = Scene::new("grounds");
    let database = scene.database();
    let (here, part) = (open(Part::of(&database)), Part::of(&database));
    furnish(&here);
    let there = open(part.clone());
    let decide = |number: u8| {
        let identity = format!("oven;AAECAwQFBg{number:02}");
        let mut view = there.view();
        assert_eq!(view.introspect::<RustCrypto>(Some("display"), &request(&identity), NOW).refused, None);
        let grounds = view.grounds(&identity, "display");
        let until = view.session_until(NOW);
        (AcceptedSession { identity, subscriber: "display".to_owned(), until, token: None }, grounds)
    };
    hold(&part);
    // The operator disables the display at another server, and learns which of its sessions to revoke.
    wait(here.set_disabled("display", true)).expect("disabled");
    // The mutant does not ask for its grounds: a disabled device gets the key of a session that nobody revokes.
    let (session, grounds) = decide(1);
    wait(there.bind(&session, &Grounds::default(), NOW_SECONDS)).expect("the attack succeeds");
    assert!(!grounds.0.is_empty());

    let (session, grounds) = decide(2);
    part.release();
    let refused = wait(there.bind(&session, &grounds, NOW_SECONDS));
    assert!(matches!(refused, Err(StateError::Changed(_))), "{refused:?}");
    // Now the view has the change. It has forgotten the identity, which is not used.
    assert!(there.view().device("display").is_some_and(|device| device.disabled));
    wait(here.set_disabled("display", false)).expect("enabled");
    wait(there.feed.shared.reached(here.view().at())).expect("delivered");
    let outcome = there.view().introspect::<RustCrypto>(Some("display"), &request(&session.identity), NOW);
    assert_eq!(outcome.refused, None);
    // Another policy counts, too.
    let grounds = there.view().grounds(&session.identity, "display");
    wait(here.apply_policy(("empty.toml", ""), "operator", None, NOW_SECONDS)).expect("applied");
    assert!(matches!(wait(there.bind(&session, &grounds, NOW_SECONDS)), Err(StateError::Changed(_))));
}

#[test]
fn the_cursor_of_one_server_leads_to_no_gap_at_another() {
    let scene = Scene::new("cursors");
    let database = scene.database();
    let first = open(Part::of(&database));
    furnish(&first);
    let second = open(Part::of(&database));
    let revoke = |number: u8| {
        let at = wait(first.revoke(&token_hash::<RustCrypto>(&[number]), NOW_SECONDS + 1, &["oven"]));
        at.expect("revoked");
        wait(second.feed.shared.reached(first.view().at())).expect("delivered");
    };
    let ask = |state: &State<Part>, cursor| {
        state.view().revocations(Requester::Device("oven"), Query { diff: Some(0), cursor })
    };
    let states = [&first, &second];
    let mut cursors = Vec::new();
    for number in 0..8 {
        revoke(number);
        for (of, at) in [(0, 1), (1, 0)] {
            let Ok(trl::Answer::Diff { cursor: Some(Cursor::At(cursor)), .. }) = ask(states[of], None) else {
                panic!("a cursor")
            };
            cursors.push((at, cursor));
        }
        for (at, cursor) in &cursors {
            // The device asks for the whole list then, whatever the other server has.
            match ask(states[*at], Some(*cursor)) {
                Ok(trl::Answer::Diff { updates, more: Some(true), .. }) => assert!(updates.is_empty(), "{number}"),
                Err(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn revocations_of_one_token_by_several_servers_are_merged() {
    let scene = Scene::new("merged");
    let database = scene.database();
    let (here, part) = (open(Part::of(&database)), Part::of(&database));
    furnish(&here);
    let there = open(part.clone());
    let hash = token_hash::<RustCrypto>(b"token");
    wait(here.revoke(&hash, NOW_SECONDS + 2, &["display"])).expect("revoked");
    wait(there.feed.shared.reached(here.view().at())).expect("delivered");
    hold(&part);
    wait(here.revoke(&hash, NOW_SECONDS + 9, &["oven"])).expect("revoked");
    // The other server has only the earlier expiry, and must not remove the token.
    assert_eq!(there.view().expired(NOW_SECONDS + 2, 1), std::slice::from_ref(&hash));
    assert_eq!(wait(there.expire(NOW_SECONDS + 2)).expect("not expired"), 0);
    part.release();
    wait(there.revoke(&hash, NOW_SECONDS + 5, &["lamp"])).expect("revoked");
    wait(here.feed.shared.reached(there.view().at())).expect("delivered");
    for state in [&here, &there] {
        assert_eq!((listed(state, "oven"), listed(state, "display")), (vec![hash.clone()], vec![hash.clone()]));
        assert!(state.view().expired(NOW_SECONDS + 8, 1).is_empty());
    }
    let row = wait(database.read(rows::revoked(&hash).as_bytes(), None)).expect("read").entry.expect("a row");
    let Revocation { expires, concerned } = rows::read(&row.value).expect("a revocation");
    assert_eq!((expires, concerned), (NOW_SECONDS + 9, ["display", "oven", "lamp"].map(str::to_owned).into()));
}
