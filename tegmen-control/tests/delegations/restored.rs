//! Tests of restored backups, and of two servers that share one store.

use crate::operators::Made;
use crate::recorder::Seals;
use crate::world::{
    Counting, DOOR, LAMP, Scene, Server, ask, config, imprinted, next_epoch, open, renew, server, settle, ticket, wait,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tegmen_control::delegation::{ConnectionId, Pace};
use tegmen_store::backup::restore;
use tegmen_store::store::Scan;
use tegmen_store::{Database, Store as _, Transaction, Value};

/// Replaces a database that was lost by a database from its backup.
fn restored(scene: &Scene, database: Database, backup: &Path) {
    database.abandon();
    drop(database);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(scene.0.join(format!("state.db{suffix}")));
    }
    restore(backup, &scene.0.join("state.db"), scene.options()).unwrap();
}

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
    let numbers = wait(database.scan(Scan::of("delegation/number/", 10))).unwrap().entries;
    // The server gives more numbers, and revokes one: the backup has none of it.
    let later: BTreeSet<u32> = (0..300)
        .filter_map(|count| {
            if count % 50 == 0 {
                settle(&first);
            }
            ticket(&first, "writer")
        })
        .map(|ticket| open(&mut device, &ticket).unwrap().0.number)
        .collect();
    settle(&first);
    assert!(later.len() > 256, "numbers of the next block are among them");
    wait(first.revoke(LAMP, ConnectionId { epoch: 1, number: 0 }, "root")).unwrap();
    drop(first);
    restored(&scene, database, &backup);
    // A mutant leaves the numbers as they are in the backup, and gives another peer a number that was used after the backup. The store
    // moves no number back, so its row is removed first.
    let mutant = scene.database();
    let delete = numbers.iter().map(|entry| entry.key.clone()).collect();
    wait(mutant.commit(Transaction { delete, ..Transaction::default() })).unwrap();
    let unmoved = numbers.into_iter().fold(Transaction::default(), |rows, entry| rows.put(entry.key, entry.value));
    wait(mutant.commit(unmoved)).unwrap();
    let again = server(&scene, mutant.clone(), &Seals::default());
    settle(&again);
    let given: BTreeSet<u32> = (0..300)
        .filter_map(|_| ticket(&again, "reader-1"))
        .map(|ticket| open(&mut device, &ticket).unwrap().0.number)
        .collect();
    assert!(given.intersection(&later).next().is_some(), "{given:?}");
    drop(again);
    restored(&scene, mutant, &backup);

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
    restored(&scene, database, &backup);

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

#[test]
fn a_server_learns_what_another_server_of_its_store_changes() {
    let scene = Scene::new("follows");
    let seals = Seals::default();
    let mut store = Counting::new(scene.database(), None);
    store.is_shared = true;
    let certificates = Arc::new(Made::default());
    let one = wait(server(&scene, store.clone(), &seals).with_certificates(Arc::clone(&certificates) as _)).unwrap();
    let one = Arc::new(one);
    let mut device = imprinted(&*one);
    let tickets = ["writer", "reader-1"].map(|peer| ticket(&*one, peer).unwrap());
    settle(&*one);
    next_epoch(&*one, &mut device);
    let other = server(&scene, store, &seals);
    let revoked = ConnectionId { epoch: 1, number: 0 };
    let changes = async {
        other.set_disabled(LAMP, true, "root").await.unwrap();
        until(&|| one.device(LAMP.as_bytes()).is_none()).await;
        other.set_disabled(LAMP, false, "root").await.unwrap();
        until(&|| one.device(LAMP.as_bytes()).is_some()).await;
        other.imprint(DOOR, config(), "root").await.unwrap();
        until(&|| one.device(DOOR.as_bytes()).is_some()).await;
        until(&|| certificates.0.lock().unwrap().iter().any(|device| device == DOOR)).await;
        // The other server has no list of the tickets that this server gave in the meantime, so the next epoch ends
        // these tickets.
        let by_other = other.revoke(LAMP, revoked, "root").await.unwrap();
        assert!(by_other.by_reset);
        until(&|| one.show(LAMP).unwrap().reset.is_some()).await;
        assert!(tickets.iter().all(|ticket| renew(&*one, ticket).is_none()));
        other.imprint_again(LAMP, "root").await.unwrap();
        until(&|| one.show(LAMP).unwrap().epoch == 0).await;
        assert!(ticket(&*one, "writer").is_none(), "the old key seals no ticket");
    };
    follow(&one, changes);
}

/// Waits until `is_so` returns true.
pub(crate) async fn until(is_so: &dyn Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Runs the server while another server of its store makes changes.
fn follow(server: &Arc<Server<Counting>>, changes: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        tokio::select! {
            () = server.run(Pace::default()) => {}
            done = tokio::time::timeout(Duration::from_secs(30), changes) => done.unwrap(),
        }
    });
}

#[test]
fn a_server_follows_a_device_although_another_one_cannot_be_read() {
    let scene = Scene::new("follows-others");
    let seals = Seals::default();
    let mut store = Counting::new(scene.database(), None);
    store.is_shared = true;
    let one = Arc::new(server(&scene, store.clone(), &seals));
    imprinted(&*one);
    let other = server(&scene, store.clone(), &seals);
    // No server of this version has written this row. The name comes before the name of the other device.
    let unreadable = Transaction::default().put("delegation/device/a.example", Value::Plain(b"{}".to_vec()));
    wait(store.database.commit(unreadable)).unwrap();
    follow(&one, async {
        for disabled in [true, false] {
            other.set_disabled(LAMP, disabled, "root").await.unwrap();
            until(&|| one.show(LAMP).unwrap().disabled == disabled).await;
        }
        let again = Transaction::default().put("delegation/device/a.example", Value::Plain(b"[]".to_vec()));
        store.database.commit(again).await.unwrap();
        other.set_disabled(LAMP, true, "root").await.unwrap();
        until(&|| one.show(LAMP).unwrap().disabled).await;
    });
}
