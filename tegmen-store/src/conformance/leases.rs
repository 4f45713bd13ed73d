//! Cases for leases, and for the rows that are attached to them.

use super::{Driver, keys, plain, put, text};
use crate::store::{LeaseId, Store, StoreError, Transaction};
use std::time::Duration;

/// The duration of each lease in the test cases of this module.
const TTL: Duration = Duration::from_secs(10);
const MOST_OF_IT: Duration = Duration::from_secs(9);

pub(super) fn end<D: Driver>(driver: &D) {
    let store = driver.open();
    let lease = store.grant(TTL).wait().expect("a lease");
    let attached = Transaction::default().put_leased("a", plain("1"), lease).put_leased("b", plain("1"), lease);
    let begin = store.commit(attached).wait().expect("a commit");
    driver.pass(MOST_OF_IT);
    store.renew(lease).wait().expect("a renewal");
    driver.pass(MOST_OF_IT);
    assert_eq!(text(&store, "a", None), Some("1".into()));
    driver.pass(TTL - MOST_OF_IT);
    let changes = store.changes(b"", begin, 10);
    // A store may look at its clock only when it is called.
    let _ = store.read(b"a", None).wait().expect("a read");
    let gone = changes.wait().expect("changes").changes;
    assert!(gone.len() == 2 && gone.iter().all(|change| change.entry.is_none()));
    assert!(gone.windows(2).all(|pair| pair[0].revision == pair[1].revision));
    assert_eq!(store.renew(lease).wait(), Err(StoreError::LeaseEnded(lease)));
    let late = store.commit(Transaction::default().put_leased("c", plain("1"), lease)).wait();
    assert_eq!(late, Err(StoreError::LeaseEnded(lease)));
    assert_eq!(store.revoke(LeaseId(7)).wait(), Err(StoreError::LeaseEnded(LeaseId(7))));
}

pub(super) fn revoke<D: Driver>(driver: &D) {
    let store = driver.open();
    let (one, other) = (store.grant(TTL).wait().expect("a lease"), store.grant(TTL).wait().expect("a lease"));
    assert_ne!(one, other);
    let attached = put("kept", "x").put_leased("a", plain("1"), one).put_leased("b", plain("1"), other);
    store.commit(attached).wait().expect("a commit");
    let entry = store.read(b"a", None).wait().expect("a read").entry.expect("a row");
    assert_eq!(entry.lease, Some(one));
    store.revoke(one).wait().expect("an end");
    assert_eq!(keys(&store, "", 10), ["b", "kept"]);
    assert_eq!(store.revoke(one).wait(), Err(StoreError::LeaseEnded(one)));
    assert_eq!(store.renew(one).wait(), Err(StoreError::LeaseEnded(one)));
    driver.crash(store);
    let store = driver.open();
    assert_eq!(keys(&store, "", 10), ["b", "kept"], "an end that was answered is durable");
    assert_eq!(store.renew(one).wait(), Err(StoreError::LeaseEnded(one)));
    store.renew(other).wait().expect("a renewal");
}

pub(super) fn leave<D: Driver>(driver: &D) {
    let store = driver.open();
    let (one, other) = (store.grant(TTL).wait().expect("a lease"), store.grant(TTL).wait().expect("a lease"));
    let attached = ["free", "moved", "again"]
        .into_iter()
        .fold(Transaction::default(), |all, key| all.put_leased(key, plain("1"), one));
    store.commit(attached).wait().expect("a commit");
    store.commit(Transaction::default().delete("again")).wait().expect("a commit");
    let again = put("free", "2").put("again", plain("2")).put_leased("moved", plain("2"), other);
    store.commit(again).wait().expect("a commit");
    store.revoke(one).wait().expect("an end");
    assert_eq!(keys(&store, "", 10), ["again", "free", "moved"]);
    store.revoke(other).wait().expect("an end");
    assert_eq!(keys(&store, "", 10), ["again", "free"]);
}

pub(super) fn restart<D: Driver>(driver: &D) {
    let store = driver.open();
    let lease = store.grant(TTL).wait().expect("a lease");
    store.commit(Transaction::default().put_leased("a", plain("1"), lease)).wait().expect("a commit");
    driver.pass(MOST_OF_IT);
    driver.crash(store);
    let store = driver.open();
    driver.pass(MOST_OF_IT);
    assert_eq!(text(&store, "a", None), Some("1".into()));
    store.renew(lease).wait().expect("a renewal");
}
