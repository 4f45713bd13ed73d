//! Cases for transactions: requirements, sizes, writers at the same time, restarts.

use super::{Driver, keys, plain, put, text};
use crate::store::{MAX_BYTES, MAX_KEY, MAX_OPERATIONS, MAX_VALUE, Revision, Store, StoreError, Transaction, Value};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use zeroize::Zeroizing;

pub(super) fn whole<D: Driver>(driver: &D) {
    let store = driver.open();
    let first = store.commit(put("a", "1").put("b", plain("1"))).wait().expect("a commit");
    let refused = store.commit(put("a", "2").delete("b").require("b", Revision::ABSENT)).wait();
    assert_eq!(refused, Err(StoreError::Conflict { key: b"b".to_vec(), found: first }));
    assert_eq!((text(&store, "a", None), text(&store, "b", None)), (Some("1".into()), Some("1".into())));
    let second = store.commit(put("a", "2").delete("b").require("b", first)).wait().expect("a commit");
    assert!(second > first);
    assert_eq!((text(&store, "a", None), text(&store, "b", None)), (Some("2".into()), None));
    assert_eq!(text(&store, "b", Some(first)), Some("1".into()), "as it was then");
    assert!(matches!(store.commit(put("a", "3").delete("a")).wait(), Err(StoreError::Invalid { .. })));
}

pub(super) fn requirements<D: Driver>(driver: &D) {
    let store = driver.open();
    let first = store.commit(put("a", "1").require("a", Revision::ABSENT)).wait().expect("the row is absent");
    let second = store.commit(put("b", "1").require("a", first)).wait().expect("a row that does not change");
    let entry = store.read(b"a", None).wait().expect("a read").entry.expect("a row");
    assert_eq!((entry.created, entry.changed), (first, first), "a requirement changes nothing");
    let third = store.commit(put("a", "2").require("b", second)).wait().expect("a commit");
    let entry = store.read(b"a", None).wait().expect("a read").entry.expect("a row");
    assert_eq!((entry.created, entry.changed), (first, third));
    for (at, found) in [(first, third), (second, third), (Revision::ABSENT, third)] {
        let refused = store.commit(put("a", "3").require("a", at)).wait();
        assert_eq!(refused, Err(StoreError::Conflict { key: b"a".to_vec(), found }));
    }
    store.commit(Transaction::default().delete("a").require("a", third)).wait().expect("a commit");
    let refused = store.commit(put("a", "3").require("a", third)).wait();
    assert_eq!(refused, Err(StoreError::Conflict { key: b"a".to_vec(), found: Revision::ABSENT }));
    let again = store.commit(put("a", "4").require("a", Revision::ABSENT)).wait().expect("the row is gone");
    let entry = store.read(b"a", None).wait().expect("a read").entry.expect("a row");
    assert_eq!(entry.created, again, "this is another row");
}

pub(super) fn without_changes<D: Driver>(driver: &D) {
    let store = driver.open();
    let first = store.commit(put("a", "1")).wait().expect("a commit");
    let nothing = Transaction::default().require("a", first);
    assert_eq!(store.commit(nothing).wait(), Ok(first));
    assert_eq!(store.commit(Transaction::default().delete("never there")).wait(), Ok(first));
    assert_eq!(store.read(b"a", None).wait().expect("a read").at, first);
}

pub(super) fn sizes<D: Driver>(driver: &D) {
    let store = driver.open();
    let bytes = |len: usize| Value::Plain(vec![7; len]);
    let many = |count: usize| (0..count).fold(Transaction::default(), |all, number| all.delete(format!("k{number}")));
    let in_sum = |last: usize| {
        let full = (0..MAX_BYTES / MAX_VALUE - 1)
            .fold(Transaction::default(), |all, number| all.put(format!("v{number}"), bytes(MAX_VALUE)));
        full.put("w", bytes(MAX_VALUE - 1)).put("x", bytes(last))
    };
    for (name, taken, refused) in [
        ("a key", put(&"k".repeat(MAX_KEY), "x"), put(&"k".repeat(MAX_KEY + 1), "x")),
        ("an empty key", put("k", "x"), put("", "x")),
        (
            "a value",
            Transaction::default().put("v", bytes(MAX_VALUE)),
            Transaction::default().put("v", bytes(MAX_VALUE + 1)),
        ),
        ("operations", many(MAX_OPERATIONS), many(MAX_OPERATIONS + 1)),
        ("the sum of values", in_sum(1), in_sum(2)),
    ] {
        assert!(store.commit(taken).wait().is_ok(), "{name}");
        assert!(matches!(store.commit(refused).wait(), Err(StoreError::Invalid { .. })), "{name}");
    }
    let page = store.scan(crate::store::Scan { most: 0, ..Default::default() }).wait();
    assert!(matches!(page, Err(StoreError::Invalid { .. })));
    let value = store.read(b"v", None).wait().expect("a read").entry.map(|entry| entry.value);
    assert_eq!(value, Some(bytes(MAX_VALUE)));
}

pub(super) fn values<D: Driver>(driver: &D) {
    let secret = || Value::Secret(Zeroizing::new(vec![0, 1, 0xff]));
    let store = driver.open();
    let plain = Value::Plain(vec![0, 0xff, b'\n']);
    let key = [0, 0xff, b'/'];
    let at =
        store.commit(Transaction::default().put(key, plain.clone()).put("s", secret()).put("e", Value::Plain(vec![])));
    let at = at.wait().expect("a commit");
    drop(store);
    let store = driver.open();
    let value = |key: &[u8]| store.read(key, Some(at)).wait().expect("a read").entry.map(|entry| entry.value);
    assert_eq!((value(&key), value(b"e")), (Some(plain), Some(Value::Plain(vec![]))));
    assert!(value(b"s") == Some(secret()));
}

pub(super) fn many_writers<D: Driver>(driver: &D) {
    let store = driver.open();
    store.commit(put("count", "0")).wait().expect("a commit");
    let add = |writer: usize| {
        for turn in 0..TURNS {
            loop {
                let entry = store.read(b"count", None).wait().expect("a read").entry.expect("a row");
                let count: usize =
                    String::from_utf8_lossy(entry.value.plain().expect("text")).parse().expect("a number");
                let next = put("count", &(count + 1).to_string()).require("count", entry.changed);
                match store.commit(next.put(format!("by/{writer}/{turn}"), plain("x"))).wait() {
                    Ok(_) => break,
                    Err(StoreError::Conflict { key, .. }) => assert_eq!(key, b"count"),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || add(writer));
        }
    });
    assert_eq!(text(&store, "count", None), Some((WRITERS * TURNS).to_string()));
    assert_eq!(keys(&store, "by/", 7).len(), WRITERS * TURNS);
}

pub(super) fn restarts<D: Driver>(driver: &D) {
    let mut used = BTreeSet::new();
    for round in 0..6 {
        let store = driver.open();
        let answers: Vec<_> = (0..50).map(|number| store.commit(put(&format!("{round}/{number}"), "x"))).collect();
        // The order of calls that are made at the same time is not promised.
        let made: BTreeSet<_> = answers.into_iter().map(|answer| answer.wait().expect("a commit")).collect();
        assert_eq!(made.len(), 50, "a revision came twice");
        assert!(made.first() > used.last(), "a revision came again");
        used.extend(made);
        if round % 2 == 0 {
            driver.crash(store);
        }
    }
    assert_eq!(keys(&driver.open(), "", 1000).len(), 300);
}

pub(super) fn tasks<D: Driver>(driver: &D) {
    struct Woken(mpsc::Sender<()>);
    impl Wake for Woken {
        fn wake(self: std::sync::Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let store = driver.open();
    let (sender, woken) = mpsc::channel();
    let waker = Waker::from(std::sync::Arc::new(Woken(sender)));
    let mut answer = pin!(store.commit(put("a", "1")));
    let revision = loop {
        match answer.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => break result.expect("a commit"),
            Poll::Pending => woken.recv().expect("it wakes"),
        }
    };
    assert_eq!(text(&store, "a", Some(revision)), Some("1".into()));
}

/// The number of threads that write at the same time. Each thread makes `TURNS` changes.
const WRITERS: usize = 8;
const TURNS: usize = 20;
