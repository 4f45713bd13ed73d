//! Cases for numbers that only increase.

use super::{Driver, put};
use crate::store::{Number, Store, StoreError, Transaction, Value};
use std::collections::BTreeSet;

fn number(next: u64, pace: u64) -> Transaction {
    Transaction::default().put("n", Value::Number(Number { next, pace }))
}

/// Returns the current number, and the revision that changed it last.
fn found(store: &impl Store) -> (Number, crate::Revision) {
    let entry = store.read(b"n", None).wait().expect("a read").entry.expect("a row");
    let Value::Number(number) = entry.value else { panic!("this is a number") };
    (number, entry.changed)
}

pub(super) fn forward<D: Driver>(driver: &D) {
    let store = driver.open();
    store.commit(number(5, 100)).wait().expect("a commit");
    for refused in [number(5, 100), number(4, 100), number(6, 101), put("n", "text")] {
        let refused = store.commit(refused).wait();
        assert_eq!(refused, Err(StoreError::NotForward { key: b"n".to_vec() }));
    }
    store.commit(number(90, 100)).wait().expect("a commit");
    assert_eq!(store.commit(number(1000, 100)).wait(), Err(StoreError::TooFast { key: b"n".to_vec() }));
    assert_eq!(found(&store).0, Number { next: 90, pace: 100 });
    let none = Transaction::default().put("none", Value::Number(Number { next: 0, pace: 0 }));
    assert!(matches!(store.commit(none).wait(), Err(StoreError::Invalid { .. })));
}

pub(super) fn many_writers<D: Driver>(driver: &D) {
    let store = driver.open();
    store.commit(number(0, PACE)).wait().expect("a commit");
    let take = || {
        let mut taken = Vec::new();
        while taken.len() < TURNS {
            let (Number { next, pace }, at) = found(&store);
            match store.commit(number(next + 1, pace).require("n", at)).wait() {
                Ok(_) => taken.push(next),
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        taken
    };
    let taken: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS).map(|_| scope.spawn(take)).collect();
        writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect()
    });
    assert_eq!(taken.len(), WRITERS * TURNS);
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), taken.len(), "a number came twice");
    assert_eq!(found(&store).0.next, taken.len() as u64);
}

pub(super) fn crash<D: Driver>(driver: &D) {
    let store = driver.open();
    store.commit(number(0, PACE)).wait().expect("a commit");
    driver.crash(store);
    for round in 1..5 {
        let store = driver.open();
        assert_eq!(found(&store).0, Number { next: round - 1, pace: PACE });
        store.commit(number(round, PACE)).wait().expect("a commit");
        driver.crash(store);
    }
}

const PACE: u64 = 1_000_000;
/// The number of threads that write at the same time. Each thread increases the number `TURNS` times.
const WRITERS: usize = 8;
const TURNS: usize = 10;
