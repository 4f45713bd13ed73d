//! Tests of a store that has deleted changes which a view does not have.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tegmen_store::store::answer::Answer;
use tegmen_store::store::{Changes, Found, LeaseId, Page, Scan};

/// A database that reports compacted history as soon as the flag in the second field is set.
#[derive(Clone)]
struct Forgetful(Database, Arc<AtomicBool>);

impl Store for Forgetful {
    fn read(&self, key: &[u8], at: Option<Revision>) -> Answer<Found> {
        self.0.read(key, at)
    }

    fn scan(&self, scan: Scan) -> Answer<Page> {
        self.0.scan(scan)
    }

    fn commit(&self, transaction: Transaction) -> Answer<Revision> {
        self.0.commit(transaction)
    }

    fn changes(&self, prefix: &[u8], after: Revision, most: usize) -> Answer<Changes> {
        if self.1.load(Ordering::Acquire) {
            return Answer::of(Err(StoreError::Compacted { oldest: Revision(after.0 + 1) }));
        }
        self.0.changes(prefix, after, most)
    }

    fn compact(&self, through: Revision) -> Answer<()> {
        self.0.compact(through)
    }

    fn grant(&self, ttl: Duration) -> Answer<LeaseId> {
        self.0.grant(ttl)
    }

    fn renew(&self, lease: LeaseId) -> Answer<()> {
        self.0.renew(lease)
    }

    fn revoke(&self, lease: LeaseId) -> Answer<()> {
        self.0.revoke(lease)
    }

    fn is_shared(&self) -> bool {
        self.0.is_shared()
    }
}

#[test]
fn a_view_that_missed_changes_decides_on_nothing() {
    let scene = Scene::new("lost");
    let (sender, events) = std::sync::mpsc::channel();
    let is_compacted = Arc::new(AtomicBool::new(false));
    let store = Forgetful(scene.database(), Arc::clone(&is_compacted));
    let watcher: Watcher = Box::new(move |event| {
        if matches!(event, Event::Lost) {
            let _ = sender.send(());
        }
    });
    let state = wait(State::open(store, Bounds::default(), watcher)).expect("a state");
    furnish(&state);
    let asks = |identity: &str| {
        let request = crate::access::ace::IntrospectionRequest { token: identity.into(), ..Default::default() };
        state.view().introspect::<RustCrypto>(Some("display"), &request.encode(), NOW).refused
    };
    assert_eq!(asks("oven;AAAAAAAAAAAA"), None);
    // This change ends the call for changes that waits. The next call learns that some are gone.
    is_compacted.store(true, Ordering::Release);
    let _ = wait(state.set_disabled("oven", true));
    events.recv().expect("the state says so");
    assert_eq!(asks("oven;AAAAAAAAAAAB"), Some(Reason::NotAuthenticated));
    assert!(state.view().device("display").is_none() && state.view().shared_key("display").is_none());
    // A change is not in force here, and does not wait for a view that does not follow.
    assert!(matches!(wait(state.set_disabled("display", true)), Err(StateError::Store(_))));
}
