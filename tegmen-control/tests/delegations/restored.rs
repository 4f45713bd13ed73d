//! Backups, and two servers on one store.

use crate::recorder::Seals;
use crate::world::{LAMP, Scene, ask, imprinted, next_epoch, open, renew, server, settle, ticket, wait};
use std::collections::BTreeSet;
use tegmen_control::delegation::ConnectionId;
use tegmen_store::backup::restore;

#[test]
fn a_restored_server_never_repeats_a_nonce() {
    let scene = Scene::new("restored");
    let seals = Seals::default();
    let database = scene.database();
    let first = server(&scene, database.clone(), &seals);
    let mut device = imprinted(&first);
    let early = ticket(&first, "writer").unwrap();
    settle(&first);
    let backup = scene.0.join("backup");
    database.backup(&backup).unwrap();
    // The server gives more numbers, and revokes one: the backup has none of it.
    let later: BTreeSet<u32> = (0..300)
        .filter_map(|_| ticket(&first, "writer"))
        .map(|ticket| open(&mut device, &ticket).unwrap().0.number)
        .collect();
    settle(&first);
    assert!(later.len() > 100);
    wait(first.revoke(LAMP, ConnectionId { epoch: 1, number: 0 }, "root")).unwrap();
    drop(first);
    database.abandon();
    drop(database);
    let file = scene.0.join("state.db");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(scene.0.join(format!("state.db{suffix}")));
    }
    restore(&backup, &file, scene.options()).unwrap();

    let again = server(&scene, scene.database(), &seals);
    settle(&again);
    let report = again.show(LAMP).unwrap();
    assert!(report.restored && report.reset.is_some());
    assert!(ticket(&again, "writer").is_none(), "no number of the epoch is free for certain");
    next_epoch(&again, &mut device);
    assert!(renew(&again, &early).is_none(), "its revocation may be lost");
    assert!(!again.show(LAMP).unwrap().restored);
    assert!(open(&mut device, &ticket(&again, "writer").unwrap()).is_ok());
    assert_eq!(seals.lock().unwrap().repeated, 0);
}

#[test]
fn an_epoch_that_waits_in_a_backup_gives_no_number_after_its_restore() {
    let scene = Scene::new("waits");
    let seals = Seals::default();
    let database = scene.database();
    let first = server(&scene, database.clone(), &seals);
    let mut device = imprinted(&first);
    let next = ask(&first, &mut device);
    let backup = scene.0.join("backup");
    database.backup(&backup).unwrap();
    wait(first.epoch_begun(LAMP, next)).unwrap();
    settle(&first);
    let used = open(&mut device, &ticket(&first, "writer").unwrap()).unwrap().0.number;
    assert_eq!(used, 0);
    drop(first);
    database.abandon();
    drop(database);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(scene.0.join(format!("state.db{suffix}")));
    }
    restore(&backup, &scene.0.join("state.db"), scene.options()).unwrap();

    let again = server(&scene, scene.database(), &seals);
    wait(again.epoch_begun(LAMP, next)).unwrap();
    settle(&again);
    assert!(again.show(LAMP).unwrap().restored);
    assert!(ticket(&again, "writer").is_none());
    next_epoch(&again, &mut device);
    assert!(open(&mut device, &ticket(&again, "writer").unwrap()).is_ok());
    assert_eq!(seals.lock().unwrap().repeated, 0);
}

#[test]
fn two_servers_on_one_store_give_no_number_twice() {
    let scene = Scene::new("two");
    let seals = Seals::default();
    let database = scene.database();
    let one = server(&scene, database.clone(), &seals);
    let mut device = imprinted(&one);
    let other = server(&scene, database, &seals);
    let mut numbers = BTreeSet::new();
    let mut given = 0;
    for _ in 0..1000 {
        for server in [&one, &other] {
            match ticket(server, "writer") {
                Some(ticket) => {
                    given += 1;
                    numbers.insert(open(&mut device, &ticket).unwrap().0.number);
                }
                None => settle(server),
            }
        }
    }
    assert!(given > 1900);
    assert_eq!(numbers.len(), given, "each number once");
}
