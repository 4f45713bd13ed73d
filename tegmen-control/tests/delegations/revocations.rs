//! Tests of revocations. If a connection of the present epoch replaced a connection of the previous epoch, a revocation
//! of one of the two always covers both. It also covers each further connection that replaced the same connection of
//! the previous epoch.

use crate::disk::{Call, Counting};
use crate::recorder::Seals;
use crate::world::{LAMP, Lamp, Scene, Server, imprinted, next_epoch, open, renew, server, settle, ticket, wait};
use std::sync::{Arc, Mutex};
use tegmen_control::delegation::{ConnectionId, DelegationError};
use tegmen_delegation::Refused;
use tegmen_store::Store;

fn id(epoch: u16, number: u32) -> ConnectionId {
    ConnectionId { epoch, number }
}

fn revoke<S: Store>(server: &Server<S>, id: ConnectionId) -> (Vec<ConnectionId>, bool) {
    let revoked = wait(server.revoke(LAMP, id, "root")).unwrap();
    (revoked.connections, revoked.by_reset)
}

#[test]
fn a_device_refuses_a_revoked_connection_once_it_is_told() {
    let scene = Scene::new("told");
    let seals = Seals::default();
    let first = server(&scene, scene.database(), &seals);
    let mut device = imprinted(&first);
    let ticket = ticket(&first, "writer").unwrap();
    assert_eq!(revoke(&first, id(1, 0)), (vec![id(1, 0)], false));
    assert_eq!(revoke(&first, id(1, 0)), (vec![id(1, 0)], false), "it is revoked already");
    drop(first);
    let again = server(&scene, scene.database(), &seals);
    assert_eq!(again.to_refuse(LAMP).unwrap(), [id(1, 0)], "a restart forgets nothing");
    device.refuse(0).unwrap();
    assert_eq!(open(&mut device, &ticket).unwrap_err(), Refused::Revoked);
    wait(again.refused_by_device(LAMP, id(1, 0))).unwrap();
    assert!(again.to_refuse(LAMP).unwrap().is_empty());
    assert_eq!(again.show(LAMP).unwrap().refused, 1);
    drop(again);
    let third = server(&scene, scene.database(), &seals);
    assert!(third.to_refuse(LAMP).unwrap().is_empty());
    assert_eq!(third.show(LAMP).unwrap().refused, 1);
}

#[test]
fn a_revocation_covers_the_connection_in_both_epochs() {
    for by_old in [true, false] {
        let scene = Scene::new(&format!("both-{by_old}"));
        let server = server(&scene, scene.database(), &Seals::default());
        let mut device = imprinted(&server);
        let (first, other) = (ticket(&server, "writer").unwrap(), ticket(&server, "writer").unwrap());
        next_epoch(&server, &mut device);
        renew(&server, &first).unwrap();
        renew(&server, &first).unwrap();
        let named = if by_old { id(1, 0) } else { id(2, 32_769) };
        assert_eq!(revoke(&server, named), (vec![id(1, 0), id(2, 32_768), id(2, 32_769)], false));
        assert!(renew(&server, &first).is_none());
        assert!(renew(&server, &other).is_some());
        assert_eq!(server.to_refuse(LAMP).unwrap(), [id(2, 32_768), id(2, 32_769)]);
    }
}

#[test]
fn a_revocation_with_too_many_connections_for_one_transaction_begins_an_epoch() {
    for by_old in [true, false] {
        let scene = Scene::new(&format!("many-{by_old}"));
        let seals = Seals::default();
        let first = server(&scene, scene.database(), &seals);
        let mut device = imprinted(&first);
        let ticket = ticket(&first, "writer").unwrap();
        next_epoch(&first, &mut device);
        let copies: Vec<_> = (0..130).map(|_| renew(&first, &ticket).unwrap()).collect();
        let named = if by_old { id(1, 0) } else { id(2, 32_768 + 129) };
        let (connections, by_reset) = revoke(&first, named);
        assert_eq!((connections.len(), by_reset), (131, true));
        assert_eq!(wait(first.revoke_peers(&["writer"], "root")).unwrap(), [], "all of them are revoked");
        drop(first);
        let again = server(&scene, scene.database(), &seals);
        settle(&again);
        assert!(again.show(LAMP).unwrap().reset.is_some());
        assert!(renew(&again, &ticket).is_none());
        next_epoch(&again, &mut device);
        assert!(copies.iter().all(|copy| open(&mut device, copy).is_err() && renew(&again, copy).is_none()));
    }
}

#[test]
fn a_full_list_begins_an_epoch_and_refuses_no_revocation() {
    let scene = Scene::new("full");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let tickets: Vec<_> = (0..6).map(|_| ticket(&server, "writer").unwrap()).collect();
    for number in 0..5 {
        assert_eq!(revoke(&server, id(1, number)).1, number >= 4, "the device has four places");
    }
    assert_eq!(server.show(LAMP).unwrap().reset.as_deref(), Some("the list of the device is full"));
    next_epoch(&server, &mut device);
    assert!(tickets[..5].iter().all(|ticket| renew(&server, ticket).is_none()));
    assert!(renew(&server, &tickets[5]).is_some());
    assert_eq!(server.show(LAMP).unwrap().refused, 0);
}

#[test]
fn numbers_of_a_killed_server_can_be_revoked() {
    let scene = Scene::new("unaccounted");
    let seals = Seals::default();
    let first = server(&scene, scene.database(), &seals);
    let mut device = imprinted(&first);
    let lost = ticket(&first, "writer").unwrap();
    assert!(wait(first.unaccounted(LAMP)).unwrap().is_empty());
    // It is killed before the row is written.
    drop(first);
    let again = server(&scene, scene.database(), &seals);
    settle(&again);
    let unaccounted = wait(again.unaccounted(LAMP)).unwrap();
    assert_eq!(unaccounted.len(), 512, "a block of each kind");
    let number = open(&mut device, &lost).unwrap().0.number;
    assert!(unaccounted.contains(&id(1, number)));
    assert_eq!(revoke(&again, id(1, number)), (vec![id(1, number)], false));
    next_epoch(&again, &mut device);
    assert!(renew(&again, &lost).is_none());
    let unknown = [id(1, 4000), id(2, 4000), id(3, 0)];
    for unknown in unknown {
        let refused = wait(again.revoke(LAMP, unknown, "root"));
        assert!(matches!(refused, Err(DelegationError::NoConnection { .. })), "{unknown}");
    }
}

#[test]
fn a_number_of_a_killed_server_can_be_revoked_in_the_next_epoch() {
    let scene = Scene::new("unaccounted-before");
    let seals = Seals::default();
    let first = server(&scene, scene.database(), &seals);
    let mut device = imprinted(&first);
    let lost = ticket(&first, "writer").unwrap();
    // It is killed before the row is written.
    drop(first);
    let again = server(&scene, scene.database(), &seals);
    // The server has numbers of the next epoch, and has not given any of them to a peer.
    next_epoch(&again, &mut device);
    assert_eq!(revoke(&again, id(1, 0)), (vec![id(1, 0)], false));
    assert!(renew(&again, &lost).is_none());
}

#[test]
fn a_copy_that_a_killed_server_gave_ends_with_the_connection() {
    for by_old in [true, false] {
        let scene = Scene::new(&format!("copy-{by_old}"));
        let seals = Seals::default();
        let first = server(&scene, scene.database(), &seals);
        let mut device = imprinted(&first);
        let ticket = ticket(&first, "writer").unwrap();
        next_epoch(&first, &mut device);
        let copy = renew(&first, &ticket).unwrap();
        // It is killed before the row of the copy is written.
        drop(first);
        let again = server(&scene, scene.database(), &seals);
        settle(&again);
        let named = if by_old { id(1, 0) } else { id(2, open(&mut device, &copy).unwrap().0.number) };
        assert!(revoke(&again, named).1, "the device learns it by the next epoch");
        assert!(renew(&again, &ticket).is_none());
        next_epoch(&again, &mut device);
        assert!(renew(&again, &copy).is_none() && renew(&again, &ticket).is_none());
        assert!(open(&mut device, &copy).is_err());
    }
}

/// A server with a store whose calls a test can interrupt, a device, and the ticket of a connection of epoch 1.
fn interruptible(scene: &Scene) -> (Arc<Server<Counting>>, Counting, Lamp, Vec<u8>) {
    let store = Counting::new(scene.database(), None);
    let server = Arc::new(server(scene, store.clone(), &Seals::default()));
    let device = imprinted(&*server);
    let ticket = ticket(&*server, "writer").unwrap();
    settle(&*server);
    (server, store, device, ticket)
}

#[test]
fn a_peer_that_returns_during_its_revocation_gets_no_ticket() {
    for by_old in [true, false] {
        let scene = Scene::new(&format!("meanwhile-{by_old}"));
        let (server, store, mut device, ticket) = interruptible(&scene);
        next_epoch(&*server, &mut device);
        renew(&*server, &ticket).unwrap();
        settle(&*server);
        let returned = Arc::new(Mutex::new(None));
        let (at, gets, old) = (Arc::clone(&server), Arc::clone(&returned), ticket.clone());
        // The revocation is not durable yet, and the server has read which connections it covers.
        store.interrupt(Call::Commit, 0, move || *gets.lock().unwrap() = Some(renew(&*at, &old)));
        let named = if by_old { id(1, 0) } else { id(2, 32_768) };
        assert_eq!(revoke(&*server, named), (vec![id(1, 0), id(2, 32_768)], false));
        assert_eq!(*returned.lock().unwrap(), Some(None), "the connection is about to be revoked");
        assert_eq!(server.to_refuse(LAMP).unwrap(), [id(2, 32_768)]);
    }
}

#[test]
fn an_epoch_that_begins_during_a_revocation_does_not_let_the_peer_return() {
    let scene = Scene::new("begins");
    let (server, store, device, ticket) = interruptible(&scene);
    let (returned, device) = (Arc::new(Mutex::new(None)), Mutex::new(device));
    let (at, gets, old) = (Arc::clone(&server), Arc::clone(&returned), ticket.clone());
    store.interrupt(Call::Read, 0, move || {
        next_epoch(&*at, &mut device.lock().unwrap());
        *gets.lock().unwrap() = Some(renew(&*at, &old));
    });
    assert_eq!(revoke(&*server, id(1, 0)), (vec![id(1, 0)], false));
    assert_eq!(*returned.lock().unwrap(), Some(None));
    assert!(renew(&*server, &ticket).is_none());
}

#[test]
fn a_revocation_that_fails_leaves_its_peer_with_the_ticket_it_has() {
    let scene = Scene::new("fails");
    let (server, _, mut device, ticket) = interruptible(&scene);
    next_epoch(&*server, &mut device);
    let unknown = wait(server.revoke(LAMP, id(1, 300), "root"));
    assert!(matches!(unknown, Err(DelegationError::NoConnection { .. })));
    assert!(renew(&*server, &ticket).is_some(), "another connection was named");
}

#[test]
fn a_peer_that_another_server_lets_return_during_its_revocation_loses_the_ticket_with_the_epoch() {
    let scene = Scene::new("of-other");
    let (one, store, mut device, ticket) = interruptible(&scene);
    next_epoch(&*one, &mut device);
    // Another server of the store has no numbers yet, and does not read the revocation in time.
    let other = server(&scene, store.database.clone(), &Seals::default());
    let (returned, old) = (Arc::new(Mutex::new(None)), ticket.clone());
    let gets = Arc::clone(&returned);
    store.interrupt(Call::Commit, 0, move || {
        settle(&other);
        *gets.lock().unwrap() = renew(&other, &old);
    });
    let (revoked, by_reset) = revoke(&*one, id(1, 0));
    let copy = returned.lock().unwrap().take().unwrap();
    assert_eq!((revoked, by_reset), (vec![id(1, 0)], true), "the next epoch ends what the other server gave");
    next_epoch(&*one, &mut device);
    assert!(open(&mut device, &copy).is_err() && renew(&*one, &copy).is_none());
}

#[test]
fn a_server_reserves_no_numbers_under_a_state_that_another_server_has_changed() {
    let scene = Scene::new("of-other-later");
    let (one, store, mut device, ticket) = interruptible(&scene);
    next_epoch(&*one, &mut device);
    let other = server(&scene, store.database.clone(), &Seals::default());
    assert_eq!(revoke(&*one, id(1, 0)), (vec![id(1, 0)], false));
    settle(&other);
    assert!(renew(&other, &ticket).is_none(), "it has no number for the peer");
}
