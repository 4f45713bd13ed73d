//! Tests of the secrets of the paths of members that join: their rows, and the rows of earlier versions.

use super::world::{Counting, Devices, LAMPS, Scene, config, member, wait};
use crate::recorder::Recording;
use std::sync::atomic::Ordering;
use tegmen_control::group::Controller;
use tegmen_host::group::groupcomm::GroupKeys;
use tegmen_store::store::{Entry, Scan};
use tegmen_store::{Database, Store, Transaction, Value};
use zeroize::Zeroizing;

/// Writes all rows of groups in `from` to the empty database `to`, in one transaction. `change` changes each row, and
/// may add rows.
fn copy(from: &Database, to: &Database, change: impl Fn(Entry) -> Vec<(Vec<u8>, Value)>) {
    let entries = from.scan(Scan::of("group/", 1000)).wait().unwrap().entries;
    let rows = entries.into_iter().flat_map(change);
    to.commit(rows.fold(Transaction::default(), |all, (key, value)| all.put(key, value))).wait().unwrap();
}

fn keys(controller: &Controller<Counting, Recording>, name: &str) -> GroupKeys {
    wait(controller.parameters(LAMPS, name)).unwrap()
}

/// Returns true if the two paths have a secret in common.
fn share_a_secret(one: &GroupKeys, other: &GroupKeys) -> bool {
    one.path.iter().any(|secret| other.path.contains(secret))
}

#[test]
fn an_admission_writes_two_rows() {
    let (scene, devices) = (Scene::new("two-rows"), Devices::new());
    let store = Counting::new(scene.database(), None);
    let controller = devices.controller(store.clone());
    wait(controller.create(LAMPS, config(), &[])).unwrap();
    wait(controller.admit(LAMPS, &member("hall", 1, false))).unwrap();
    assert_eq!(store.rows.load(Ordering::Relaxed), 2, "the head and the member");
    assert!(super::world::rows(&store.database).iter().all(|key| !key.contains("/path/")));
}

#[test]
fn an_old_copy_of_the_store_gives_no_second_member_the_same_secrets() {
    let (scene, copied, devices) = (Scene::new("original"), Scene::new("copied"), Devices::new());
    let (database, copy_of_it) = (scene.database(), copied.database());
    let controller = devices.controller(Counting::new(database.clone(), None));
    wait(controller.create(LAMPS, config(), &[])).unwrap();
    copy(&database, &copy_of_it, |entry| vec![(entry.key, entry.value)]);
    let other = devices.controller(Counting::new(copy_of_it, None));
    wait(controller.admit(LAMPS, &member("hall", 1, false))).unwrap();
    wait(other.admit(LAMPS, &member("porch", 2, false))).unwrap();
    let (hall, porch) = (keys(&controller, "hall"), keys(&other, "porch"));
    assert_eq!((hall.leaf, hall.epoch, hall.group), (porch.leaf, porch.epoch, porch.group));
    assert!(!share_a_secret(&hall, &porch));
}

#[test]
fn a_member_that_joins_at_the_leaf_of_an_evicted_one_gets_no_secret_of_it() {
    let (scene, devices) = (Scene::new("same-leaf"), Devices::new());
    let controller = devices.controller(Counting::new(scene.database(), None));
    wait(controller.create(LAMPS, config(), &[member("stairs", 3, false)])).unwrap();
    wait(controller.admit(LAMPS, &member("hall", 1, false))).unwrap();
    let hall = keys(&controller, "hall");
    wait(controller.evict(LAMPS, "hall")).unwrap();
    assert!(!share_a_secret(&hall, &keys(&controller, "stairs")));
    wait(controller.admit(LAMPS, &member("porch", 2, false))).unwrap();
    drop(controller);
    let controller = devices.controller(Counting::new(scene.database(), None));
    let porch = keys(&controller, "porch");
    assert_eq!(porch.leaf, hall.leaf);
    assert!(!share_a_secret(&hall, &porch));
    assert_eq!(porch.path[1..], keys(&controller, "stairs").path[1..], "they are neighbours");
}

#[test]
fn the_rows_without_the_seed_give_no_secret_of_a_path() {
    let (scene, copied, devices) = (Scene::new("seed"), Scene::new("other-seed"), Devices::new());
    let (database, copy_of_it) = (scene.database(), copied.database());
    let controller = devices.controller(Counting::new(database.clone(), None));
    wait(controller.create(LAMPS, config(), &[])).unwrap();
    wait(controller.admit(LAMPS, &member("hall", 1, false))).unwrap();
    // The head ends with the seed.
    copy(&database, &copy_of_it, |Entry { key, value, .. }| match value {
        Value::Secret(mut bytes) => {
            *bytes.last_mut().unwrap() ^= 1;
            vec![(key, Value::Secret(bytes))]
        }
        value => vec![(key, value)],
    });
    let other = devices.controller(Counting::new(copy_of_it, None));
    assert!(!share_a_secret(&keys(&controller, "hall"), &keys(&other, "hall")));
}

#[test]
fn the_paths_in_rows_of_an_earlier_version_are_read() {
    let (scene, earlier) = (Scene::new("derived"), Scene::new("earlier"));
    let mut devices = Devices::new();
    let (database, database_before) = (scene.database(), earlier.database());
    let controller = devices.controller(Counting::new(database.clone(), None));
    wait(controller.create(LAMPS, config(), &[member("hall", 1, false), member("porch", 2, true)])).unwrap();
    wait(controller.admit(LAMPS, &member("attic", 3, false))).unwrap();
    wait(controller.evict(LAMPS, "hall")).unwrap();
    for (name, host) in [("stairs", 5), ("cellar", 4)] {
        wait(controller.admit(LAMPS, &member(name, host, false))).unwrap();
    }
    let names = ["attic", "cellar", "porch", "stairs"];
    // The earlier version has the secrets of the path of each admission in a separate row: a zero, which is the number
    // of nodes without a secret, and the secrets. This row replaces that of an eviction at the same leaf.
    copy(&database, &database_before, |Entry { key, value, .. }| {
        let text = String::from_utf8(key.clone()).unwrap();
        if text.contains("/path/") {
            return Vec::new();
        }
        let Some((prefix, name)) = text.split_once("member/") else { return vec![(key, value)] };
        let mut record: serde_json::Value = serde_json::from_slice(value.plain().unwrap()).unwrap();
        let is_first = record.as_object_mut().unwrap().remove("path").is_none();
        assert_eq!(is_first, name == "porch");
        let member = (key, Value::Plain(serde_json::to_vec(&record).unwrap()));
        let GroupKeys { leaf, path, .. } = keys(&controller, name);
        let secrets = Value::Secret(Zeroizing::new([vec![0], path.concat()].concat()));
        vec![member, (format!("{prefix}path/{leaf:06x}").into_bytes(), secrets)]
    });
    let before = devices.controller(Counting::new(database_before, None));
    for name in names {
        assert_eq!(keys(&before, name).path, keys(&controller, name).path, "{name}");
        devices.admit(&before, name);
    }
    devices.hear(&before, &wait(before.rekey(LAMPS)).unwrap());
    // A member that joins again, and a new member at the leaf of an evicted one, have paths of both forms.
    devices.evict("stairs");
    devices.hear(&before, &wait(before.admit(LAMPS, &member("stairs", 5, false))).unwrap());
    devices.admit(&before, "stairs");
    devices.evict("attic");
    devices.hear(&before, &wait(before.evict(LAMPS, "attic")).unwrap());
    devices.hear(&before, &wait(before.admit(LAMPS, &member("hall", 7, false))).unwrap());
    devices.admit(&before, "hall");
    drop(before);
    let again = devices.controller(Counting::new(earlier.database(), None));
    devices.evict("cellar");
    devices.hear(&again, &wait(again.evict(LAMPS, "cellar")).unwrap());
    devices.evict("stairs");
    devices.hear(&again, &wait(again.evict(LAMPS, "stairs")).unwrap());
}
