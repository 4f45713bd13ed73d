//! Tests of the common row of members that join together, and of these members when one of them leaves or changes.

use super::server::service;
use super::world::{Counting, Devices, LAMPS, Moment, Scene, config, member, rows, software_key, wait};
use crate::recorder::Recording;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tegmen_base::crypto::Crypto;
use tegmen_control::group::{Controller, GroupError, GroupHappened, Rekeying, evict_departed};
use tegmen_store::store::Scan;
use tegmen_store::{Database, Revision, Store, Value};

/// The members that join together, and the host number of the address of each.
const TOGETHER: [(&str, u8); 3] = [("hall", 1), ("porch", 2), ("switch", 4)];

/// Begins the next epoch, and admits the members in [`TOGETHER`] in the epoch after that. Returns the messages of both
/// epochs.
async fn join<S: Store, C: Crypto>(controller: &Controller<S, C>) -> [Rekeying; 2] {
    let [hall, porch, switch] = TOGETHER.map(|(name, host)| member(name, host, false));
    let (rekeying, hall, porch, switch) = tokio::join!(
        controller.rekey(LAMPS),
        controller.add(LAMPS, &hall),
        controller.add(LAMPS, &porch),
        controller.add(LAMPS, &switch)
    );
    let joined = [hall.unwrap(), porch.unwrap(), switch.unwrap()];
    let epochs = joined.each_ref().map(|rekeying| rekeying.epoch);
    assert_eq!(epochs, [epochs[0]; 3]);
    let with_messages = |rekeying: &Rekeying| !rekeying.messages.is_empty();
    [rekeying.unwrap(), joined.into_iter().find(with_messages).unwrap()]
}

/// Creates a group with the member `attic`, and admits the members in [`TOGETHER`]. The database has a fault at the
/// transaction with the number `cut`.
fn group(name: &str, cut: Option<(usize, Moment)>) -> (Scene, Devices, Counting, Controller<Counting, Recording>) {
    let (scene, mut devices) = (Scene::new(name), Devices::new());
    let store = Counting::new(scene.database(), cut);
    let controller = devices.controller(store.clone());
    wait(controller.create(LAMPS, config(), &[member("attic", 5, false)])).unwrap();
    devices.admit(&controller, "attic");
    let [first, joined] = wait(join(&controller));
    devices.open(&first);
    devices.hear(&controller, &joined);
    TOGETHER.iter().for_each(|(name, _)| devices.admit(&controller, name));
    (scene, devices, store, controller)
}

/// Returns the number of common rows, and the number of rows of single members.
fn count(database: &Database) -> (usize, usize) {
    let rows = rows(database);
    let count = |part: &str| rows.iter().filter(|key| key.contains(part)).count();
    (count("/joined/"), count("/member/"))
}

/// Returns true if the head of the group is one that an earlier version of this program refuses.
fn is_refused_by_earlier_versions(database: &Database) -> bool {
    let entries = database.scan(Scan::of("group/", 1000)).wait().unwrap().entries;
    let head = entries.iter().find(|entry| entry.key.ends_with(b"/head")).unwrap();
    let Value::Secret(bytes) = &head.value else { panic!("the head is sealed") };
    bytes.windows(13).any(|part| part == br#""joined":true"#)
}

#[test]
fn members_that_join_together_have_one_row_until_one_of_them_changes() {
    let (scene, mut devices, store, controller) = group("together", None);
    assert_eq!(store.rows.load(Ordering::Relaxed), 2, "the head and the common row");
    assert_eq!(count(&store.database), (1, 1));
    assert!(is_refused_by_earlier_versions(&store.database));
    // The change of another member leaves the row as it is.
    devices.evict("attic");
    devices.hear(&controller, &wait(controller.evict(LAMPS, "attic")).unwrap());
    assert_eq!(count(&store.database), (1, 0));
    let other = devices.controller(store.clone());
    let before = wait(other.show(LAMPS)).unwrap();
    assert_eq!(before, wait(controller.show(LAMPS)).unwrap(), "another controller reads the same group");
    devices.evict("porch");
    devices.hear(&controller, &wait(controller.evict(LAMPS, "porch")).unwrap());
    assert_eq!(count(&store.database), (0, 2));
    assert!(!is_refused_by_earlier_versions(&store.database));
    assert_eq!(wait(other.show(LAMPS)).unwrap(), wait(controller.show(LAMPS)).unwrap(), "one that follows the changes");
    devices.hear(&other, &wait(other.rekey(LAMPS)).unwrap());
    // A member that joins again has a row of its own, and the newest secrets.
    devices.evict("hall");
    devices.hear(&other, &wait(other.admit(LAMPS, &member("hall", 1, false))).unwrap());
    devices.admit(&other, "hall");
    drop((controller, other, store));
    let again = devices.controller(Counting::new(scene.database(), None));
    devices.evict("switch");
    devices.hear(&again, &wait(again.evict(LAMPS, "switch")).unwrap());
    devices.hear(&again, &wait(again.rekey(LAMPS)).unwrap());
}

#[test]
fn each_of_several_common_rows_is_separated_alone() {
    let (scene, mut devices, store, controller) = group("together-twice", None);
    let [cellar, stairs] = [member("cellar", 6, false), member("stairs", 8, false)];
    let (first, joined, _) = wait(async {
        tokio::join!(controller.rekey(LAMPS), controller.add(LAMPS, &cellar), controller.add(LAMPS, &stairs))
    });
    devices.open(&first.unwrap());
    devices.hear(&controller, &joined.unwrap());
    ["cellar", "stairs"].iter().for_each(|name| devices.admit(&controller, name));
    assert_eq!(count(&store.database), (2, 1));
    devices.evict("switch");
    devices.hear(&controller, &wait(controller.evict(LAMPS, "switch")).unwrap());
    assert_eq!(count(&store.database), (1, 3));
    assert!(is_refused_by_earlier_versions(&store.database));
    drop((controller, store));
    // The row of `stairs` is older than the rows of `hall` and `porch`, and has the newer secrets.
    let again = devices.controller(Counting::new(scene.database(), None));
    for name in ["stairs", "hall"] {
        devices.evict(name);
        devices.hear(&again, &wait(again.evict(LAMPS, name)).unwrap());
    }
}

#[test]
fn a_member_that_joins_again_with_new_members_has_no_second_row() {
    let (scene, mut devices, store, controller) = group("together-again", None);
    let [hall, stairs] = [member("hall", 1, false), member("stairs", 8, false)];
    let (first, joined, _) = wait(async {
        tokio::join!(controller.rekey(LAMPS), controller.admit(LAMPS, &hall), controller.admit(LAMPS, &stairs))
    });
    devices.open(&first.unwrap());
    devices.evict("hall");
    devices.hear(&controller, &joined.unwrap());
    ["hall", "stairs"].iter().for_each(|name| devices.admit(&controller, name));
    assert_eq!(count(&store.database), (0, 5));
    drop((controller, store));
    let again = devices.controller(Counting::new(scene.database(), None));
    devices.evict("hall");
    devices.hear(&again, &wait(again.evict(LAMPS, "hall")).unwrap());
    assert_eq!(wait(again.show(LAMPS)).unwrap().members.len(), 4);
}

#[test]
fn a_power_cut_while_a_common_row_is_separated_loses_no_eviction() {
    // The transactions 0 to 2 create the group, begin the epoch 2 and admit the members. The transaction 3 separates
    // their row, and the transaction 4 evicts a member.
    for cut in [3, 4] {
        for moment in [Moment::BeforeCommit, Moment::BeforeAnswer] {
            let (scene, mut devices, store, controller) = group(&format!("cut-{cut}-{moment:?}"), Some((cut, moment)));
            let failed = wait(controller.evict(LAMPS, "porch"));
            assert!(matches!(failed, Err(GroupError::Store(_))), "{failed:?}");
            drop((controller, store));
            let controller = devices.controller(Counting::new(scene.database(), None));
            let has_left = !wait(controller.show(LAMPS)).unwrap().members.iter().any(|(name, _)| name == "porch");
            assert_eq!(has_left, (cut, moment) == (4, Moment::BeforeAnswer));
            let messages = wait(controller.messages(LAMPS)).unwrap();
            if has_left {
                devices.evict("porch");
            }
            devices.hear(&controller, &messages);
            if !has_left {
                devices.evict("porch");
                devices.hear(&controller, &wait(controller.evict(LAMPS, "porch")).unwrap());
            }
            devices.hear(&controller, &wait(controller.rekey(LAMPS)).unwrap());
        }
    }
}

#[test]
fn a_watcher_learns_of_each_member_that_joins_together_and_nothing_of_a_separation() {
    let (_scene, _, store, controller) = group("together-watched", None);
    wait(controller.evict(LAMPS, "porch")).unwrap();
    let changes = store.database.changes(b"", Revision(0), 1000).wait().unwrap().changes;
    let happened = changes.chunk_by(|one, next| one.revision == next.revision).flat_map(GroupHappened::of);
    let said = happened.map(|happened| match happened {
        GroupHappened::Created { .. } => "created".to_owned(),
        GroupHappened::Deleted { .. } => "deleted".to_owned(),
        GroupHappened::Admitted { name, member, .. } => format!("{name} in {}", member.since),
        GroupHappened::Left { name, .. } => format!("{name} left"),
        GroupHappened::Epoch { epoch, .. } => epoch.to_string(),
    });
    let said: Vec<String> = said.collect();
    assert_eq!(said, ["created", "2", "hall in 3", "porch in 3", "switch in 3", "3", "porch left", "4"]);
}

/// Waits until the group has these members.
async fn until(controller: &Controller<Database>, expected: &[&str]) {
    let mut names: Vec<String> = Vec::new();
    for _ in 0..2000 {
        names = controller.show(LAMPS).await.unwrap().members.into_iter().map(|(name, _)| name).collect();
        if names == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(names, expected);
}

#[tokio::test]
async fn a_device_that_was_disabled_before_the_separation_is_evicted() {
    let (scene, signer) = (Scene::new("together-departed"), software_key());
    let database = scene.database();
    let service = service(&scene, database.clone(), &signer).await;
    let controller = Controller::new(database.clone(), Some(signer as _)).unwrap();
    controller.create(LAMPS, config(), &[]).await.unwrap();
    join(&controller).await;
    // No task evicts members now. The row of `hall` becomes newer than the change of its device.
    service.disable("operator", "hall").await.unwrap();
    controller.evict(LAMPS, "porch").await.unwrap();
    assert_eq!(count(&database), (0, 2));
    let controller = Arc::new(controller);
    let evicting = {
        let (controller, service) = (Arc::clone(&controller), Arc::clone(&service));
        tokio::spawn(async move { evict_departed(&*controller, &*service).await })
    };
    until(&controller, &["switch"]).await;
    // The task also finds the members of a common row when their devices are disabled.
    let [oven, gateway] = [member("oven", 6, false), member("gateway", 8, false)];
    let (rekeying, ..) =
        tokio::join!(controller.rekey(LAMPS), controller.add(LAMPS, &oven), controller.add(LAMPS, &gateway));
    rekeying.unwrap();
    assert_eq!(count(&database), (1, 1));
    service.disable("operator", "oven").await.unwrap();
    until(&controller, &["gateway", "switch"]).await;
    evicting.abort();
}
