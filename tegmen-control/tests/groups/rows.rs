//! Tests of the rows that a change writes, and of a restored backup.

use super::world::{Counting, Devices, LAMPS, Scene, config, member, wait};
use std::sync::atomic::Ordering;
use tegmen_control::group::{GroupConfig, GroupError, NewMember};
use tegmen_store::backup;

const MEMBERS: u32 = 100_000;
const LEVELS: u8 = 17;

#[test]
fn an_eviction_from_a_large_group_writes_three_rows() {
    let scene = Scene::new("large");
    let mut devices = Devices::new();
    let store = Counting::new(scene.database(), None);
    let controller = devices.controller(store.clone());
    let name = |number: u32| format!("lamp-{number}");
    let lamp = |number| NewMember {
        name: name(number),
        address: None,
        sends: false,
        checks_signatures: true,
        public_key: None,
        oscore: None,
    };
    let members: Vec<NewMember> = (0..MEMBERS).map(lamp).collect();
    let config = GroupConfig { levels: LEVELS, ..config() };
    wait(controller.create(LAMPS, config, &members)).unwrap();
    let rekeying = wait(controller.evict(LAMPS, &name(4711))).unwrap();
    assert_eq!(rekeying.messages.len(), usize::from(LEVELS) + 1 - 1, "the neighbour listens nowhere, and asks");
    assert_eq!(store.rows.load(Ordering::Relaxed), 3, "the head, the path and the member");
    assert_eq!(wait(controller.show(LAMPS)).unwrap().members.len() as u32, MEMBERS - 1);
    drop(controller);
    // The same tree is read again.
    let controller = devices.controller(store);
    assert_eq!(wait(controller.messages(LAMPS)).unwrap().messages.len(), rekeying.messages.len());
    wait(controller.parameters(LAMPS, &name(99_999))).unwrap();
    devices.evict("nobody");
}

#[test]
fn a_group_of_a_restored_backup_is_refused() {
    let scene = Scene::new("restored");
    let devices = Devices::new();
    let database = scene.database();
    let controller = devices.controller(Counting::new(database.clone(), None));
    wait(controller.create(LAMPS, config(), &[member("hall", 1, false)])).unwrap();
    let file = scene.0.join("backup");
    database.backup(&file).unwrap();
    // The epoch 2 was used after the backup.
    wait(controller.rekey(LAMPS)).unwrap();
    drop((controller, database));
    let restored = scene.0.join("restored.db");
    backup::restore(&file, &restored, scene.options()).unwrap();
    let database = tegmen_store::Database::open_with(&restored, scene.options()).unwrap();
    let controller = devices.controller(Counting::new(database, None));
    let refused = wait(controller.rekey(LAMPS)).unwrap_err();
    assert!(matches!(&refused, GroupError::Restored(name) if name == LAMPS), "{refused}");
    assert!(refused.to_string().contains("create a new group"));
    wait(controller.create("lamps-2", config(), &[])).unwrap();
    wait(controller.delete(LAMPS, None)).unwrap();
    wait(controller.create(LAMPS, config(), &[])).unwrap();
    assert_eq!(wait(controller.rekey(LAMPS)).unwrap().epoch, 2);
}
