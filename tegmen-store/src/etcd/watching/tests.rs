//! Tests of a watch without a cluster.

use super::super::content;
use super::super::gateway::Gateway;
use super::super::wire::{Base64, Event, Int, KeyValue};
use super::{Cluster, Watches, Watching};
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

#[test]
fn a_revision_with_a_row_that_cannot_be_read_is_not_left_out_later() {
    let (cluster, watches) = (cluster(), Watches::default());
    // Without a sealing key nobody reads a secret.
    let sealed = vec![2; 64];
    let plain = content::write(b"a/row", 2, &Value::Plain(vec![1]), 0, None).unwrap();
    watches.keep(Watching {
        prefix: b"a/".to_vec(),
        after: Revision(10),
        seen: 12,
        ready: [event(&cluster, 11, sealed), event(&cluster, 12, plain)].into(),
        stream: None,
        turn: 0,
        is_checked: true,
    });
    let (promise, answer) = promise();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(cluster.changes(&watches, (b"a/".to_vec(), Revision(10), 8), promise));
    assert_eq!(answer.wait(), Err(StoreError::Sealed));
    // The next call after the same revision asks the cluster again, so it does not get revision 12 alone.
    assert!(watches.take(b"a/", Revision(10)).is_none());
}
