//! Tests that a created group has all its rows, and that a failed attempt to create a group leaves no rows.

use super::world::{Counting, Devices, LAMPS, Moment, Scene, config, member, rows, wait};
use tegmen_control::group::{GroupConfig, GroupError, NewMember};

/// A number of members that does not fit into one transaction.
const MEMBERS: usize = 250;
/// The number of transactions that create a group with [`MEMBERS`] members: one writes the mark of an unfinished group,
/// two write members, and one writes the head.
const TRANSACTIONS: usize = 4;

fn many() -> (GroupConfig, Vec<NewMember>) {
    let lamp = |number| NewMember {
        name: format!("lamp-{number}"),
        address: None,
        sends: false,
        checks_signatures: true,
        public_key: None,
        oscore: None,
    };
    (GroupConfig { levels: 8, ..config() }, (0..MEMBERS).map(lamp).collect())
}

#[test]
fn a_name_that_is_taken_leaves_no_row() {
    let (scene, devices) = (Scene::new("taken"), Devices::new());
    let database = scene.database();
    let controller = devices.controller(Counting::new(database.clone(), None));
    wait(controller.create(LAMPS, config(), &[])).unwrap();
    let before = rows(&database);
    let (large, members) = many();
    for (config, members) in [(config(), vec![member("hall", 1, false)]), (large, members)] {
        let refused = wait(controller.create(LAMPS, config, &members)).unwrap_err();
        assert!(matches!(&refused, GroupError::NameTaken(name) if name == LAMPS), "{refused}");
        assert_eq!(rows(&database), before);
    }
}

#[test]
fn a_name_that_is_taken_meanwhile_leaves_no_row() {
    // A group whose rows fit one transaction, and one that needs several.
    for (number, members) in [(0, 1), (1, MEMBERS), (2, MEMBERS), (TRANSACTIONS - 1, MEMBERS)] {
        let (scene, devices) = (Scene::new(&format!("taken-{members}-{number}")), Devices::new());
        let database = scene.database();
        let other = devices.controller(Counting::new(database.clone(), None));
        let store = Counting::new(database.clone(), None).before(number, move || {
            wait(other.create(LAMPS, config(), &[member("porch", 1, false)])).unwrap();
        });
        let controller = devices.controller(store);
        let (config, new) = many();
        let refused = wait(controller.create(LAMPS, config, &new[..members])).unwrap_err();
        assert!(matches!(&refused, GroupError::NameTaken(name) if name == LAMPS), "{refused}");
        assert_eq!(rows(&database).len(), 5, "name, GroupID, head, guard and the member of the other group");
        let report = wait(controller.show(LAMPS)).unwrap();
        assert_eq!(report.members.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["porch"]);
    }
}

#[test]
fn a_group_is_created_whole_while_another_one_is_deleted() {
    for number in 0..TRANSACTIONS {
        let (scene, devices) = (Scene::new(&format!("created-{number}")), Devices::new());
        let database = scene.database();
        let other = devices.controller(Counting::new(database.clone(), None));
        let store = Counting::new(database.clone(), None).before(number, move || {
            wait(other.create("doors", config(), &[])).unwrap();
            // This deletes rows that belong to no group.
            wait(other.delete("doors", None)).unwrap();
        });
        let controller = devices.controller(store);
        let (config, members) = many();
        wait(controller.create(LAMPS, config, &members)).unwrap();
        assert_eq!(rows(&database).len(), MEMBERS + 4, "name, GroupID, head, guard and members");
        assert_eq!(wait(controller.show(LAMPS)).unwrap().members.len(), MEMBERS);
    }
}

#[test]
fn rows_of_a_creation_that_a_power_cut_ends_belong_to_no_group_and_are_deleted_later() {
    for cut in 0..TRANSACTIONS {
        for moment in [Moment::BeforeCommit, Moment::BeforeAnswer] {
            let (scene, devices) = (Scene::new(&format!("created-{moment:?}-{cut}")), Devices::new());
            let (config, members) = many();
            let controller = devices.controller(Counting::new(scene.database(), Some((cut, moment))));
            assert!(matches!(wait(controller.create(LAMPS, config, &members)), Err(GroupError::Store(_))));
            drop(controller);
            let database = scene.database();
            let controller = devices.controller(Counting::new(database.clone(), None));
            match wait(controller.create(LAMPS, config, &[])) {
                Ok(()) => assert_eq!(wait(controller.show(LAMPS)).unwrap().members.len(), 0),
                Err(error) => {
                    assert!(matches!(error, GroupError::NameTaken(_)), "{error}");
                    assert_eq!((cut, moment), (TRANSACTIONS - 1, Moment::BeforeAnswer));
                    assert_eq!(wait(controller.show(LAMPS)).unwrap().members.len(), MEMBERS);
                }
            }
            wait(controller.delete(LAMPS, None)).unwrap();
            assert_eq!(rows(&database), Vec::<String>::new());
        }
    }
}
