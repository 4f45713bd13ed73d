//! Cases for scans and watches: one revision for all pages, changes without gaps, compaction.

use super::{Driver, keys, plain, put, text};
use crate::store::{Revision, Scan, Store, StoreError, Transaction};
use crate::watch::Watch;
use std::collections::BTreeSet;

pub(super) fn pages<D: Driver>(driver: &D) {
    let store = driver.open();
    for number in 0..10 {
        store.commit(put(&format!("k/{number}"), "old")).wait().expect("a commit");
    }
    store.commit(put("l", "other")).wait().expect("a commit");
    let (mut scan, mut keys) = (Some(Scan::of("k/", 3)), Vec::new());
    while let Some(this) = scan {
        let page = store.scan(this.clone()).wait().expect("a scan");
        keys.extend(page.entries.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()));
        assert!(page.entries.iter().all(|entry| entry.value == plain("old")));
        let change = put("k/9", "new").delete("k/8").put("k/0a", plain("new"));
        store.commit(change).wait().expect("a commit");
        scan = this.following(&page);
    }
    assert_eq!(keys, (0..10).map(|number| format!("k/{number}")).collect::<Vec<_>>());
}

pub(super) fn prefixes<D: Driver>(driver: &D) {
    let store = driver.open();
    for key in ["a", "a/", "a/1", "a/10", "a/2", "a0", "b"] {
        store.commit(put(key, "x")).wait().expect("a commit");
    }
    let last = [0xff, 0xff];
    store.commit(Transaction::default().put(last, plain("x"))).wait().expect("a commit");
    for most in 1..4 {
        assert_eq!(keys(&store, "a/", most), ["a/", "a/1", "a/10", "a/2"]);
        assert_eq!(keys(&store, "c", most), [""; 0]);
        assert_eq!(keys(&store, "", most).len(), 8);
    }
    assert_eq!(store.scan(Scan::of([0xff], 1)).wait().expect("a scan").entries.len(), 1);
}

pub(super) fn watch<D: Driver>(driver: &D) {
    let store = driver.open();
    let begin = store.read(b"w/a", None).wait().expect("a read").at;
    let first = store.commit(put("w/a", "1").put("other", plain("x"))).wait().expect("a commit");
    let second = store.commit(put("w/a", "2")).wait().expect("a commit");
    let third = store.commit(Transaction::default().delete("w/a")).wait().expect("a commit");
    let mut watch = Watch::new(store.clone(), "w/", begin);
    let changes = watch.wait().expect("changes").changes;
    let seen: Vec<_> = changes.iter().map(|change| (change.revision, change.entry.is_some())).collect();
    assert_eq!(seen, [(first, true), (second, true), (third, false)]);
    // One that waits is answered by the next change of its keys, and by no other.
    let waiting = std::thread::spawn(move || watch.wait().expect("changes").changes);
    store.commit(put("other", "y")).wait().expect("a commit");
    let fourth = store.commit(put("w/b", "1")).wait().expect("a commit");
    let changes = waiting.join().expect("a watch");
    assert_eq!(changes.iter().map(|change| change.revision).collect::<Vec<_>>(), [fourth]);
    store.compact(third).wait().expect("a compaction");
    let told = store.changes(b"w/", first, 10).wait();
    assert_eq!(told, Err(StoreError::Compacted { oldest: third }));
    assert!(matches!(store.read(b"w/a", Some(first)).wait(), Err(StoreError::Compacted { .. })));
    let page = store.scan(Scan { at: Some(first), ..Scan::of("w/", 10) }).wait();
    assert!(matches!(page, Err(StoreError::Compacted { .. })));
    assert_eq!(text(&store, "w/b", None), Some("1".into()));
    assert_eq!(store.changes(b"w/", third, 10).wait().expect("changes").changes.len(), 1);
}

pub(super) fn whole_revisions<D: Driver>(driver: &D) {
    let store = driver.open();
    let begin = store.read(b"k", None).wait().expect("a read").at;
    let mut revisions = Vec::new();
    for number in 0..4 {
        let three = ["c", "a", "b"]
            .into_iter()
            .fold(Transaction::default(), |all, key| all.put(format!("{key}{number}"), plain("x")));
        revisions.push(store.commit(three).wait().expect("a commit"));
    }
    let (mut after, mut seen) = (begin, Vec::new());
    while seen.len() < 12 {
        let changes = store.changes(b"", after, 1).wait().expect("changes");
        let keys: Vec<_> = changes.changes.iter().map(|change| change.key.clone()).collect();
        assert_eq!(keys.len(), 3, "one revision, the whole of it");
        assert!(keys.is_sorted());
        seen.extend(changes.changes.iter().map(|change| change.revision));
        after = changes.through;
    }
    assert_eq!(seen, revisions.into_iter().flat_map(|revision| [revision; 3]).collect::<Vec<_>>());
}

pub(super) fn watch_beside_writers<D: Driver>(driver: &D) {
    let store = driver.open();
    let begin = store.read(b"k", None).wait().expect("a read").at;
    let mut watch = Watch::new(store.clone(), "k/", begin);
    let write = |writer: usize| {
        let mut made = Vec::new();
        for turn in 0..TURNS {
            let key = format!("k/{writer}/{turn}");
            let at = store.commit(put(&key, "x").put(format!("other/{writer}"), plain("x"))).wait();
            made.push((at.expect("a commit"), key.into_bytes()));
        }
        made
    };
    let (watched, made) = std::thread::scope(|scope| {
        let watched = scope.spawn(move || {
            let mut seen: Vec<(Revision, Vec<u8>)> = Vec::new();
            while seen.len() < WRITERS * TURNS {
                let changes = watch.wait().expect("changes");
                seen.extend(changes.changes.into_iter().map(|change| (change.revision, change.key)));
            }
            seen
        });
        let write = &write;
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || write(writer))).collect();
        let made: BTreeSet<_> = writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect();
        (watched.join().expect("a watch"), made)
    });
    assert!(watched.is_sorted_by_key(|(revision, _)| *revision));
    assert_eq!(watched.len(), made.len());
    assert_eq!(watched.into_iter().collect::<BTreeSet<_>>(), made);
}

pub(super) fn watch_after_restart<D: Driver>(driver: &D) {
    let store = driver.open();
    let begin = store.commit(put("k/0", "x")).wait().expect("a commit");
    let mut made = vec![store.commit(put("k/1", "x")).wait().expect("a commit")];
    driver.crash(store);
    let store = driver.open();
    made.push(store.commit(put("k/2", "x")).wait().expect("a commit"));
    let changes = store.changes(b"k/", begin, 10).wait().expect("changes").changes;
    assert_eq!(changes.iter().map(|change| change.revision).collect::<Vec<_>>(), made);
}

pub(super) fn future<D: Driver>(driver: &D) {
    let store = driver.open();
    let newest = store.commit(put("a", "1")).wait().expect("a commit");
    let later = Some(Revision(newest.0 + 1));
    let not_yet = StoreError::NotYet { newest };
    assert_eq!(store.read(b"a", later).wait(), Err(not_yet.clone()));
    assert_eq!(store.scan(Scan { at: later, ..Scan::of("a", 1) }).wait(), Err(not_yet.clone()));
    assert_eq!(store.changes(b"a", Revision(newest.0 + 1), 1).wait(), Err(not_yet));
    assert_eq!(text(&store, "a", Some(newest)), Some("1".into()));
}

/// The number of threads that write at the same time. Each thread makes `TURNS` changes.
const WRITERS: usize = 4;
const TURNS: usize = 25;
