//! Tests of two controllers that share one store.

use super::world::{Counting, Devices, LAMPS, Scene, config, member, wait};
use std::collections::BTreeSet;
use tegmen_control::group::GroupConfig;

#[test]
fn of_two_controllers_each_change_is_made_by_one() {
    let scene = Scene::new("two");
    let mut devices = Devices::new();
    let store = Counting::new(scene.database(), None);
    let (one, other) = (devices.controller(store.clone()), devices.controller(store));
    wait(one.create(LAMPS, GroupConfig { senders: 16, ..config() }, &[])).unwrap();
    let names = ["a", "b", "c", "d", "e", "f", "g"];
    let changes = wait(async {
        let admit = async |number: usize| {
            let controller = if number.is_multiple_of(2) { &one } else { &other };
            controller.admit(LAMPS, &member(names[number], number as u8, true)).await.unwrap()
        };
        let (a, b, c, d, e, f, g) = tokio::join!(admit(0), admit(1), admit(2), admit(3), admit(4), admit(5), admit(6));
        [a, b, c, d, e, f, g]
    });
    let epochs_of =
        |which: usize| changes.iter().skip(which).step_by(2).map(|change| change.epoch).collect::<BTreeSet<u16>>();
    assert!(epochs_of(0).is_disjoint(&epochs_of(1)), "no two controllers begin the same epoch");
    let report = wait(one.show(LAMPS)).unwrap();
    let epochs: BTreeSet<u16> = &epochs_of(0) | &epochs_of(1);
    assert_eq!(epochs, (2..=report.epoch).collect(), "each change begins an epoch");
    assert_eq!(report, wait(other.show(LAMPS)).unwrap());
    let leaves: BTreeSet<u32> = report.members.iter().map(|(_, member)| member.leaf).collect();
    let ids: BTreeSet<_> = report.members.iter().map(|(_, member)| member.sender_id).collect();
    assert_eq!((leaves.len(), ids.len()), (7, 7));
    for name in names {
        devices.admit(&one, name);
    }
    // What one changes, the other continues; a loaded group, one that follows, and one that is read again have the same keys.
    devices.evict("c");
    devices.hear(&one, &wait(one.evict(LAMPS, "c")).unwrap());
    devices.hear(&other, &wait(other.messages(LAMPS)).unwrap());
    devices.evict("d");
    let evicted = wait(other.evict(LAMPS, "d")).unwrap();
    devices.hear(&other, &evicted);
    devices.hear(&one, &wait(one.rekey(LAMPS)).unwrap());
    let fresh = devices.controller(Counting::new(one_database(&scene, one, other), None));
    devices.hear(&fresh, &wait(fresh.rekey(LAMPS)).unwrap());
}

#[test]
fn a_group_that_is_created_again_is_not_the_one_that_another_controller_deleted() {
    let scene = Scene::new("again");
    let devices = Devices::new();
    let store = Counting::new(scene.database(), None);
    let (one, other) = (devices.controller(store.clone()), devices.controller(store));
    let first = [member("attic", 3, true)];
    wait(one.create(LAMPS, config(), &first)).unwrap();
    let before = wait(one.show(LAMPS)).unwrap().identity;
    wait(other.delete(LAMPS, None)).unwrap();
    wait(one.create(LAMPS, config(), &first)).unwrap();
    let file = wait(one.member_file(LAMPS, ("attic", 1), None)).unwrap();
    assert_ne!(file.keys.group, before);
    assert_eq!(file.keys.group, wait(other.show(LAMPS)).unwrap().identity);
}

/// Ends both controllers, and opens the database again.
fn one_database<A, B>(scene: &Scene, one: A, other: B) -> tegmen_store::Database {
    drop((one, other));
    scene.database()
}

#[test]
fn each_controller_has_a_sender_id_of_its_own() {
    let scene = Scene::new("replicas");
    let devices = Devices::new();
    let store = Counting::new(scene.database(), None);
    let (one, other) = (devices.controller(store.clone()), devices.controller(store));
    wait(one.create(LAMPS, config(), &[member("switch", 1, true)])).unwrap();
    assert_eq!(wait(one.replica(LAMPS, "north")).unwrap(), 1);
    assert_eq!(wait(other.replica(LAMPS, "south")).unwrap(), 2);
    assert_eq!(wait(other.replica(LAMPS, "north")).unwrap(), 1, "a controller that restarts keeps it");
    assert_eq!(wait(one.show(LAMPS)).unwrap().epoch, 1, "its keys are those of the controller anyway");
    let rekeying = wait(other.retire(LAMPS, "north")).unwrap();
    assert_eq!(rekeying.epoch, 2);
    assert_eq!(wait(one.replica(LAMPS, "east")).unwrap(), 1, "in an epoch in which nobody had it");
}

#[test]
fn a_controller_reads_again_what_the_store_has_forgotten() {
    let scene = Scene::new("compacted");
    let mut devices = Devices::new();
    let store = Counting::new(scene.database(), None);
    let (one, other) = (devices.controller(store.clone()), devices.controller(store.clone()));
    wait(one.create(LAMPS, config(), &[member("hall", 1, false), member("porch", 2, false)])).unwrap();
    devices.admit(&one, "porch");
    wait(other.show(LAMPS)).unwrap();
    devices.hear(&one, &wait(one.evict(LAMPS, "hall")).unwrap());
    devices.hear(&one, &wait(one.rekey(LAMPS)).unwrap());
    let newest = tegmen_store::Store::read(&store, b"group/none", None).wait().unwrap().at;
    tegmen_store::Store::compact(&store, newest).wait().unwrap();
    devices.hear(&other, &wait(other.rekey(LAMPS)).unwrap());
}
