//! Tests of the GroupIDs, which the groups at one port must not share.

use super::world::{Counting, Devices, LAMPS, Moment, Scene, config, rows, wait};
use tegmen_base::crypto::SignatureScheme;
use tegmen_control::group::{Controller, GroupConfig, GroupError, Protocol};
use tegmen_store::{Database, Store, Transaction};

fn at(port: u16) -> GroupConfig {
    GroupConfig { address: (config().address.ip(), port).into(), ..config() }
}

fn id<S: Store, C: tegmen_base::crypto::Crypto>(controller: &Controller<S, C>, group: &str) -> Option<u8> {
    wait(controller.show(group)).unwrap().config.group_id
}

fn reservations(database: &Database) -> Vec<String> {
    rows(database).into_iter().filter(|key| key.starts_with("group/id/")).collect()
}

/// Creates groups at the port 5684 as an earlier version did: without reservations.
fn create_without_reservation(devices: &Devices, database: &Database, groups: &[(&str, u8)]) {
    let controller = devices.controller(database.clone());
    for (name, id) in groups {
        wait(controller.create(name, GroupConfig { group_id: Some(*id), ..at(5684) }, &[])).unwrap();
        database.commit(Transaction::default().delete(format!("group/id/5684/{id}"))).wait().unwrap();
    }
}

#[test]
fn groups_at_one_port_have_different_group_ids() {
    let (scene, devices) = (Scene::new("ids"), Devices::new());
    let database = scene.database();
    let controller = devices.controller(database.clone());
    for (name, config) in [(LAMPS, at(5684)), ("doors", at(5684)), ("attic", at(5685))] {
        wait(controller.create(name, config, &[])).unwrap();
    }
    assert_eq!([LAMPS, "doors", "attic"].map(|name| id(&controller, name)), [Some(1), Some(2), Some(1)]);
    // The operator may choose a free GroupID.
    let refused = wait(controller.create("cellar", GroupConfig { group_id: Some(2), ..at(5684) }, &[])).unwrap_err();
    assert!(matches!(&refused, GroupError::GroupIdTaken { id: 2, port: 5684, group } if group == "doors"), "{refused}");
    assert!(refused.to_string().contains("doors"), "{refused}");
    assert!(matches!(wait(controller.show("cellar")), Err(GroupError::NoGroup(_))));
    wait(controller.create("cellar", GroupConfig { group_id: Some(9), ..at(5684) }, &[])).unwrap();
    assert_eq!(id(&controller, "cellar"), Some(9));
    assert_eq!(reservations(&database), ["group/id/5684/1", "group/id/5684/2", "group/id/5684/9", "group/id/5685/1"]);
    // The deletion of a group releases its GroupID.
    wait(controller.delete(LAMPS, None)).unwrap();
    assert_eq!(reservations(&database), ["group/id/5684/2", "group/id/5684/9", "group/id/5685/1"]);
    wait(controller.create("porch", at(5684), &[])).unwrap();
    assert_eq!(id(&controller, "porch"), Some(1));
    // A Group OSCORE group has no GroupID.
    let signature = Some(SignatureScheme::ED25519);
    let oscore = GroupConfig { protocol: Protocol::Oscore, signature, group_id: Some(1), ..at(5684) };
    wait(controller.create("oscore", oscore, &[])).unwrap();
    assert_eq!((id(&controller, "oscore"), reservations(&database).len()), (None, 4));
    for name in ["doors", "attic", "cellar", "porch", "oscore"] {
        wait(controller.delete(name, None)).unwrap();
    }
    assert_eq!(rows(&database), Vec::<String>::new());
}

#[test]
fn a_port_whose_group_ids_are_all_in_use_refuses_another_group() {
    let (scene, devices) = (Scene::new("ids-used-up"), Devices::new());
    let database = scene.database();
    let controller = devices.controller(database.clone());
    for number in 1..=255 {
        wait(controller.create(&format!("group-{number}"), at(5684), &[])).unwrap();
    }
    assert_eq!(reservations(&database).len(), 255);
    let refused = wait(controller.create(LAMPS, at(5684), &[])).unwrap_err();
    assert!(matches!(refused, GroupError::NoGroupId(5684)), "{refused}");
    assert!(refused.to_string().contains("another port"), "{refused}");
    wait(controller.create(LAMPS, at(5685), &[])).unwrap();
    wait(controller.delete("group-77", None)).unwrap();
    wait(controller.create("doors", at(5684), &[])).unwrap();
    assert_eq!(id(&controller, "doors"), Some(77));
}

#[test]
fn groups_that_are_created_at_the_same_time_have_different_group_ids() {
    let (scene, devices) = (Scene::new("ids-at-once"), Devices::new());
    let database = scene.database();
    // Another controller creates a group after this controller has chosen a GroupID, and before its transaction.
    let other = devices.controller(database.clone());
    let store = Counting::new(database.clone(), None).before(0, move || {
        wait(other.create("doors", at(5684), &[])).unwrap();
    });
    let controller = devices.controller(store);
    wait(controller.create(LAMPS, at(5684), &[])).unwrap();
    assert_eq!(["doors", LAMPS].map(|name| id(&controller, name)), [Some(1), Some(2)]);
    // One controller creates many groups at the same time.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let controller = std::sync::Arc::new(devices.controller(database.clone()));
    let created: Vec<_> = (0..100)
        .map(|number| {
            let controller = std::sync::Arc::clone(&controller);
            runtime.spawn(async move { controller.create(&format!("group-{number}"), at(5684), &[]).await })
        })
        .collect();
    for created in created {
        runtime.block_on(created).unwrap().unwrap();
    }
    assert_eq!(reservations(&database).len(), 102);
}

#[test]
fn groups_of_an_earlier_version_keep_their_group_ids() {
    let (scene, devices) = (Scene::new("ids-migrated"), Devices::new());
    let database = scene.database();
    create_without_reservation(&devices, &database, &[(LAMPS, 1), ("doors", 1), ("cellar", 7)]);
    let [one, seven] = [1, 7].map(|id| GroupConfig { group_id: Some(id), ..at(5684) });
    // Both groups with the GroupID 1 work.
    let controller = devices.controller(database.clone());
    for name in [LAMPS, "doors"] {
        assert_eq!(wait(controller.rekey(name)).unwrap().epoch, 2);
        assert_eq!(id(&controller, name), Some(1));
    }
    // No other group gets the GroupIDs of groups of the earlier version.
    let refused = wait(controller.create("attic", seven, &[])).unwrap_err();
    assert!(matches!(&refused, GroupError::GroupIdTaken { id: 7, group, .. } if group == "cellar"), "{refused}");
    let refused = wait(controller.create("attic", one, &[])).unwrap_err();
    assert!(matches!(&refused, GroupError::GroupIdTaken { id: 1, .. }), "{refused}");
    assert!(refused.to_string().contains("several groups"), "{refused}");
    wait(controller.create("attic", at(5684), &[])).unwrap();
    assert_eq!(id(&controller, "attic"), Some(2));
    wait(controller.delete("cellar", None)).unwrap();
    wait(controller.delete(LAMPS, None)).unwrap();
    assert_eq!(reservations(&database), ["group/id/5684/1", "group/id/5684/2"], "the group doors still has it");
    // The next controller finds that only one group has the GroupID 1.
    let controller = devices.controller(database.clone());
    wait(controller.create("porch", at(5684), &[])).unwrap();
    assert_eq!(id(&controller, "porch"), Some(3));
    for name in ["doors", "attic", "porch"] {
        wait(controller.delete(name, None)).unwrap();
    }
    assert_eq!(rows(&database), Vec::<String>::new());
}

#[test]
fn the_same_controller_releases_a_group_id_that_several_groups_had() {
    let (scene, devices) = (Scene::new("ids-shared"), Devices::new());
    let database = scene.database();
    create_without_reservation(&devices, &database, &[(LAMPS, 1), ("doors", 1)]);
    let controller = devices.controller(database.clone());
    wait(controller.create("attic", at(5684), &[])).unwrap();
    wait(controller.delete(LAMPS, None)).unwrap();
    wait(controller.create("porch", at(5684), &[])).unwrap();
    assert_eq!(id(&controller, "porch"), Some(3), "the group doors has the GroupID 1");
    wait(controller.delete("doors", None)).unwrap();
    wait(controller.create("cellar", at(5684), &[])).unwrap();
    assert_eq!(id(&controller, "cellar"), Some(1));
}

#[test]
fn a_reservation_that_belongs_to_no_group_is_released() {
    let (scene, devices) = (Scene::new("ids-stale"), Devices::new());
    let database = scene.database();
    create_without_reservation(&devices, &database, &[(LAMPS, 1), ("doors", 1)]);
    let controller = devices.controller(database.clone());
    wait(controller.create("attic", at(5684), &[])).unwrap();
    for name in [LAMPS, "doors", "attic"] {
        wait(controller.delete(name, None)).unwrap();
    }
    assert_eq!(reservations(&database), ["group/id/5684/1"]);
    let controller = devices.controller(database.clone());
    wait(controller.create("porch", at(5684), &[])).unwrap();
    assert_eq!(id(&controller, "porch"), Some(1));
}

#[test]
fn a_power_cut_leaves_the_group_and_its_group_id_or_neither() {
    for moment in [Moment::BeforeCommit, Moment::BeforeAnswer] {
        let (scene, devices) = (Scene::new(&format!("ids-{moment:?}")), Devices::new());
        let controller = devices.controller(Counting::new(scene.database(), Some((0, moment))));
        assert!(matches!(wait(controller.create(LAMPS, at(5684), &[])), Err(GroupError::Store(_))));
        drop(controller);
        let database = scene.database();
        let controller = devices.controller(database.clone());
        wait(controller.create("doors", at(5684), &[])).unwrap();
        match moment {
            Moment::BeforeCommit => assert_eq!(id(&controller, "doors"), Some(1)),
            _ => assert_eq!([LAMPS, "doors"].map(|name| id(&controller, name)), [Some(1), Some(2)]),
        }
    }
}
