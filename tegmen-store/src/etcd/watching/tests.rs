//! Tests of a watch without a cluster.

use super::super::content;
use super::super::gateway::Gateway;
use super::super::wire::{Base64, Event, Int, KeyValue};
use super::{Cluster, Watches, Watching};
use crate::store::Changes;
use crate::store::answer::promise;
use crate::{Revision, StoreError, Value};
use tokio::runtime::Builder;

/// Returns a cluster to which no request is sent, without a sealing key.
fn cluster() -> Cluster {
    let address = "etcd://127.0.0.1:1/test".parse().unwrap();
    Cluster { gateway: Gateway::new(&address), address, sealer: None }
}

/// Returns the event that wrote a row at a revision. `content` is the content of the row in etcd.
fn event(cluster: &Cluster, revision: u64, content: Vec<u8>) -> (u64, Vec<Event>) {
    let (key, value) = (Base64(cluster.address.row(b"a/row")), Base64(content));
    let kv = KeyValue { key, value, mod_revision: Int(revision), ..KeyValue::default() };
    (revision, vec![Event { kind: None, kv }])
}

/// Returns the content of a row with a secret, which cannot be read without a sealing key.
fn sealed() -> Vec<u8> {
    vec![2; 64]
}

fn plain() -> Vec<u8> {
    content::write(b"a/row", 2, &Value::Plain(vec![1]), 0, None).unwrap()
}

/// Returns a watch after revision 10 that has received two revisions.
fn watching(ready: [(u64, Vec<Event>); 2]) -> Watching {
    Watching {
        prefix: b"a/".to_vec(),
        after: Revision(10),
        seen: 12,
        ready: ready.into(),
        stream: None,
        turn: 0,
        is_checked: true,
    }
}

/// Returns the changes after the revision `after`.
fn next(cluster: &Cluster, watches: &Watches, after: u64) -> Result<Changes, StoreError> {
    let (promise, answer) = promise();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(cluster.changes(watches, (b"a/".to_vec(), Revision(after), 8), promise));
    answer.wait()
}

#[test]
fn a_revision_with_a_row_that_cannot_be_read_is_not_left_out_later() {
    let (cluster, watches) = (cluster(), Watches::default());
    watches.keep(watching([event(&cluster, 11, sealed()), event(&cluster, 12, plain())]));
    assert_eq!(next(&cluster, &watches, 10), Err(StoreError::Sealed));
    // The next call after the same revision asks the cluster again, so it does not get revision 12 alone.
    assert!(watches.take(b"a/", Revision(10)).is_none());
}

#[test]
fn the_revisions_before_a_row_that_cannot_be_read_are_returned() {
    let (cluster, watches) = (cluster(), Watches::default());
    let (key, second) = (Base64(cluster.address.row(b"a/second")), Base64(sealed()));
    let kv = KeyValue { key, value: second, mod_revision: Int(12), ..KeyValue::default() };
    // The first row of revision 12 can be read, the second cannot.
    let mut both = event(&cluster, 12, plain());
    both.1.push(Event { kind: None, kv });
    watches.keep(watching([event(&cluster, 11, plain()), both]));
    let Changes { changes, through } = next(&cluster, &watches, 10).unwrap();
    let revisions: Vec<_> = changes.iter().map(|change| change.revision).collect();
    assert_eq!((revisions, through), (vec![Revision(11)], Revision(11)));
    assert_eq!(next(&cluster, &watches, 11), Err(StoreError::Sealed));
    assert!(watches.take(b"a/", Revision(11)).is_none());
}
