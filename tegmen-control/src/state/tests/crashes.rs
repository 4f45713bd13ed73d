//! Cuts the power at every step of a revocation.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tegmen_store::store::answer::Answer;
use tegmen_store::store::{Changes, Found, LeaseId, Page, Scan};

/// The time of a power cut, relative to a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Moment {
    /// The store has received the transaction, but the disk does not have it.
    BeforeCommit,
    /// The disk has the transaction, but the server has not received the answer.
    BeforeAnswer,
}

/// A database whose power is cut at one transaction.
#[derive(Clone)]
pub(super) struct Cut {
    pub(super) database: Database,
    pub(super) transactions: Arc<AtomicUsize>,
    pub(super) at: (usize, Moment),
}

impl Store for Cut {
    fn read(&self, key: &[u8], at: Option<Revision>) -> Answer<Found> {
        self.database.read(key, at)
    }

    fn scan(&self, scan: Scan) -> Answer<Page> {
        self.database.scan(scan)
    }

    fn commit(&self, transaction: Transaction) -> Answer<Revision> {
        let (cut, moment) = self.at;
        if self.transactions.fetch_add(1, Ordering::Relaxed) != cut {
            return self.database.commit(transaction);
        }
        if moment == Moment::BeforeAnswer {
            self.database.commit(transaction).wait().expect("durable");
        }
        self.database.abandon();
        Answer::of(Err(StoreError::Unavailable { why: "the power was cut".to_owned() }))
    }

    fn changes(&self, prefix: &[u8], after: Revision, most: usize) -> Answer<Changes> {
        self.database.changes(prefix, after, most)
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
        self.database.is_shared()
    }
}

const EXPIRES: u64 = NOW_SECONDS + 1000;

/// Revokes a token in the way of a faulty server: acknowledges the revocation when the store has the transaction,
/// before the commit.
fn revoke_early(state: &State<Cut>, hash: &[u8]) -> bool {
    let value = rows::json(&Revocation { expires: EXPIRES, concerned: vec!["oven".to_owned()] });
    drop(state.store.commit(Transaction::default().put(rows::revoked(hash), value)));
    true
}

fn revoke(state: &State<Cut>, hash: &[u8]) -> bool {
    wait(state.revoke(hash, EXPIRES, &["oven"])).is_ok()
}

/// Runs a server that revokes tokens, one at a time, until the power is cut. Repeats this for each transaction at which
/// the power can be cut, and opens the state again each time. Returns the number of revocations that were acknowledged
/// and are lost.
fn lost(revoke: impl Fn(&State<Cut>, &[u8]) -> bool) -> usize {
    let mut lost = 0;
    for moment in [Moment::BeforeCommit, Moment::BeforeAnswer] {
        for step in 0..4 {
            let scene = Scene::new("crash");
            let state = scene.open();
            furnish(&state);
            drop(state);
            let transactions = Arc::new(AtomicUsize::new(0));
            let state = open(Cut { database: scene.database(), transactions, at: (step, moment) });
            let hashes: Vec<_> = (0..5_u8).map(|number| token_hash::<RustCrypto>(&[number])).collect();
            let acknowledged: Vec<_> = hashes.iter().filter(|hash| revoke(&state, hash)).collect();
            drop(state);
            let state = scene.open();
            let mut view = state.view();
            for hash in acknowledged {
                lost += usize::from(!view.is_revoked(hash));
            }
            // The restarted server decides as before.
            let request =
                crate::access::ace::IntrospectionRequest { token: "oven;AAAAAAAAAAAA".into(), ..Default::default() };
            let outcome = view.introspect::<RustCrypto>(Some("display"), &request.encode(), NOW);
            assert_eq!(outcome.refused, None, "{moment:?} {step}");
        }
    }
    lost
}

#[test]
fn revocation_outlives_a_crash() {
    assert!(lost(revoke_early) > 0, "the mutant loses what it acknowledged");
    assert_eq!(lost(revoke), 0);
}
