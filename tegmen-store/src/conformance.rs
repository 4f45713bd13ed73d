//! The test cases that every driver of a [`Store`] must pass. A test of a driver implements [`Driver`] and runs
//! [`cases`].
//!
//! ```no_run
//! use tegmen_store::conformance::{Driver, cases};
//! # fn driver<D: Driver>(new: fn(&str) -> D) {
//! for case in cases() {
//!     println!("{}", case.name);
//!     (case.run)(&new(case.name));
//! }
//! # }
//! ```

mod history;
mod leases;
mod numbers;
mod transactions;

use crate::store::{Revision, Scan, Store, Transaction, Value};
use std::time::Duration;

/// The driver of a [`Store`] that the test cases examine, and the storage that holds the rows of the store.
pub trait Driver {
    /// The type of the store.
    type Store: Store;

    /// Opens the store with a sealing key. At the first call the store has no rows. At a later call the store has the
    /// rows that an earlier store wrote. Before each later call, the test case drops the earlier store, or passes it to
    /// [`Self::crash`].
    fn open(&self) -> Self::Store;

    /// Ends a store as `kill -9` would end its process.
    fn crash(&self, store: Self::Store);

    /// Advances the clock of the store by `time`. The store measures leases with this clock.
    fn pass(&self, time: Duration);
}

/// One test case. The test case panics if the driver does not pass it.
pub struct Case<D> {
    /// The name of the test case. It is a statement about the store, with `_` between the words.
    pub name: &'static str,
    /// Runs the test case. The storage of the driver must hold no rows at the beginning.
    pub run: fn(&D),
}

/// Returns all test cases.
pub fn cases<D: Driver>() -> Vec<Case<D>> {
    let case = |name, run| Case { name, run };
    vec![
        case("a_transaction_is_made_as_a_whole_or_not_at_all", transactions::whole::<D>),
        case("a_requirement_names_the_revision_of_the_last_change", transactions::requirements),
        case("a_transaction_without_changes_has_no_revision_of_its_own", transactions::without_changes),
        case("limits_of_sizes_hold_exactly", transactions::sizes),
        case("values_come_back_as_they_were", transactions::values),
        case("many_writers_lose_no_update", transactions::many_writers),
        case("no_revision_comes_again_after_a_restart_and_rows_stay", transactions::restarts),
        case("a_task_awaits_an_answer", transactions::tasks),
        case("pages_of_one_revision_have_each_row_once_while_others_change", history::pages),
        case("a_scan_begins_and_ends_with_its_prefix", history::prefixes),
        case("a_watch_sees_each_change_in_order_and_is_told_of_compaction", history::watch),
        case("changes_come_in_whole_revisions", history::whole_revisions),
        case("a_watch_beside_many_writers_has_no_gap", history::watch_beside_writers),
        case("a_watch_goes_on_after_a_restart", history::watch_after_restart),
        case("a_revision_of_the_future_is_not_there_yet", history::future),
        case("rows_of_a_lease_go_in_one_revision_when_its_time_is_over", leases::end),
        case("a_lease_that_is_revoked_takes_its_rows_along", leases::revoke),
        case("a_row_leaves_its_lease_when_it_is_written_again", leases::leave),
        case("a_restart_renews_a_lease", leases::restart),
        case("a_number_only_goes_forward_at_its_pace", numbers::forward),
        case("many_writers_take_no_number_twice", numbers::many_writers),
        case("a_number_is_not_behind_after_a_crash", numbers::crash),
    ]
}

fn plain(text: &str) -> Value {
    Value::Plain(text.as_bytes().to_vec())
}

fn put(key: &str, text: &str) -> Transaction {
    Transaction::default().put(key, plain(text))
}

/// Returns the text in the row of `key`, at the revision `at`; at the newest revision if `at` is `None`.
fn text(store: &impl Store, key: &str, at: Option<Revision>) -> Option<String> {
    let entry = store.read(key.as_bytes(), at).wait().expect("a read").entry?;
    entry.value.plain().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Returns the keys that begin with `prefix`. Reads the rows of these keys in pages of `most` rows.
fn keys(store: &impl Store, prefix: &str, most: usize) -> Vec<String> {
    let (mut scan, mut keys) = (Some(Scan::of(prefix, most)), Vec::new());
    while let Some(this) = scan {
        let page = store.scan(this.clone()).wait().expect("a scan");
        assert!(page.entries.len() <= most);
        keys.extend(page.entries.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()));
        scan = this.following(&page);
    }
    keys
}
