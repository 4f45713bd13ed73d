//! Tests of sessions between two devices that an operator opens again after a new epoch has begun.

use crate::disk::{Call, Counting};
use crate::recorder::Seals;
use crate::world::{
    DOOR, LAMP, Scene, Server, TIME, imprinted, introduced, next_epoch, next_epoch_of, pass, renew, revoke, server,
    server_with, settle, ticket, wait,
};
use std::sync::Arc;
use tegmen_control::delegation::{Carrier, ConnectionId, Reissue, Way};
use tegmen_store::Database;

/// A policy without the rule that lets the lamp open a session with the door.
const WITHOUT: &str = r#"
[[rule]]
subject = ["reader-*", "writer"]
publisher = "tag:lamp"
allow = "read /*"
"#;
/// A policy that gives the lamp more rights at the door than the policy of the other tests.
const MORE: &str = r#"
[[rule]]
subject = "lamp.example"
publisher = "door.example"
allow = ["GET /light", "PUT /light"]
"#;

/// Returns the scope of the lamp's connection at the door, the time of authentication and the expiry time, in seconds
/// since 1970. Returns `None` if there is no connection in the present epoch of the door.
fn rights(server: &Server<Database>) -> Option<(u8, u32, u32)> {
    settle(server);
    let epoch = server.show(DOOR).unwrap().epoch;
    let connections = wait(server.connections(DOOR, None, 10)).unwrap().connections;
    let present = connections.into_iter().find(|one| one.id.epoch == epoch)?;
    assert_eq!((present.peer.as_str(), present.carrier), (LAMP, Carrier::Ticket));
    Some((present.scope, present.since, present.expires))
}

fn ways(reissues: &[Reissue]) -> Vec<(&str, Way, bool)> {
    reissues.iter().map(|one| (one.before.peer.as_str(), one.way, one.given.is_some())).collect()
}

#[test]
fn the_session_of_two_devices_is_given_again_with_the_rights_that_it_had() {
    let scene = Scene::new("again");
    let server = server(&scene, scene.database(), &Seals::default());
    let (mut device, mut door) = introduced(&server);
    let before = rights(&server).unwrap();
    next_epoch_of(&server, DOOR, &mut door);
    assert_eq!(rights(&server), None, "neither device can return");
    pass(1000);
    let preview = wait(server.preview_reissue(DOOR)).unwrap();
    assert_eq!((ways(&preview), rights(&server)), (vec![(LAMP, Way::Again, false)], None), "a preview changes nothing");
    let reissued = wait(server.reissue(DOOR, "root")).unwrap();
    assert_eq!(ways(&reissued), [(LAMP, Way::Again, true)]);
    assert_eq!((rights(&server), before.1), (Some(before), TIME as u32));
    assert!(wait(server.reissue(DOOR, "root")).unwrap().is_empty(), "once in an epoch");

    // The other device opens it after its own reset, too. The door has one more connection, with the same rights.
    next_epoch(&server, &mut device);
    let reissued = wait(server.reissue(LAMP, "root")).unwrap();
    let opened: Vec<_> = reissued.iter().filter(|one| one.given.is_some()).collect();
    assert!(!opened.is_empty() && opened.iter().all(|one| one.before.peer == DOOR && one.before.scope == u8::MAX));
    let connections = wait(server.connections(DOOR, None, 10)).unwrap().connections;
    assert!(connections.iter().all(|one| (one.scope, one.since, one.expires) == before), "{connections:?}");

    // It ends when it would have ended.
    pass(2600);
    next_epoch_of(&server, DOOR, &mut door);
    assert!(wait(server.reissue(DOOR, "root")).unwrap().is_empty());
}

#[test]
fn a_session_given_again_has_no_right_that_the_policy_gave_meanwhile_or_took() {
    for (name, policy, way) in [("again-more", MORE, Way::Again), ("again-without", WITHOUT, Way::NoRights)] {
        let scene = Scene::new(name);
        let (before, mut door) = {
            let server = server(&scene, scene.database(), &Seals::default());
            let (_, door) = introduced(&server);
            (rights(&server), door)
        };
        let changed = server_with(&scene, scene.database(), &Seals::default(), policy);
        settle(&changed);
        next_epoch_of(&changed, DOOR, &mut door);
        if way == Way::Again {
            // A server that asks the policy as if they authenticated themselves now gives more.
            wait(changed.introduce(LAMP, DOOR)).unwrap();
            assert_eq!((before.unwrap().0, rights(&changed).unwrap().0), (1, 0));
        }
        let reissued = wait(changed.reissue(DOOR, "root")).unwrap();
        assert_eq!(ways(&reissued), [(LAMP, way, way == Way::Again)]);
        let given = reissued[0].given;
        settle(&changed);
        let connections = wait(changed.connections(DOOR, None, 10)).unwrap().connections;
        let given = connections.iter().find(|one| Some(one.id) == given).map(|one| (one.scope, one.since, one.expires));
        assert_eq!(given, before.filter(|_| way == Way::Again));
    }
}

#[test]
fn other_peers_are_listed_and_get_nothing() {
    let scene = Scene::new("again-others");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let tickets = ["writer", "reader-1", "reader-2"].map(|peer| ticket(&server, peer).unwrap());
    settle(&server);
    let revoked = wait(server.connections(LAMP, None, 10)).unwrap().connections[2].id;
    next_epoch(&server, &mut device);
    renew(&server, &tickets[1]).unwrap();
    revoke(&server, revoked);
    settle(&server);
    let sealed = server.counts().reissued;
    let reissued = wait(server.reissue(LAMP, "root")).unwrap();
    assert_eq!(ways(&reissued), [("writer", Way::Returns, false)], "one returned, and one is revoked");
    assert_eq!(server.counts().reissued, sealed);
    assert!(renew(&server, &tickets[0]).is_some());
}

#[test]
fn a_peer_that_returned_with_a_scope_that_the_policy_took_is_listed_until_it_is_revoked() {
    let scene = Scene::new("again-returned");
    let (mut device, tickets) = {
        let server = server(&scene, scene.database(), &Seals::default());
        let device = imprinted(&server);
        let tickets = ["writer", "reader-1"].map(|peer| ticket(&server, peer).unwrap());
        settle(&server);
        (device, tickets)
    };
    let changed = server_with(&scene, scene.database(), &Seals::default(), WITHOUT);
    settle(&changed);
    next_epoch(&changed, &mut device);
    let preview = wait(changed.preview_reissue(LAMP)).unwrap();
    assert_eq!(ways(&preview), [("writer", Way::NoRights, false), ("reader-1", Way::Returns, false)]);
    tickets.iter().for_each(|ticket| assert!(renew(&changed, ticket).is_some()));
    let listed = wait(changed.reissue(LAMP, "root")).unwrap();
    assert_eq!((ways(&listed), listed[0].before.id.epoch), (vec![("writer", Way::NoRights, false)], 2));
    revoke(&changed, listed[0].before.id);
    assert!(wait(changed.preview_reissue(LAMP)).unwrap().is_empty());
}

#[test]
fn a_session_whose_connection_is_revoked_meanwhile_is_not_given_again() {
    let scene = Scene::new("again-revoked");
    let store = Counting::new(scene.database(), None);
    let server = Arc::new(server(&scene, store.clone(), &Seals::default()));
    let (mut device, _door) = introduced(&*server);
    pass(1);
    wait(server.introduce(LAMP, DOOR)).unwrap();
    settle(&*server);
    next_epoch(&*server, &mut device);
    let at = Arc::clone(&server);
    // The server reads the connections of the lamp in two scans. The third scan finds the connection of the door in the
    // first session, and the fourth scan finds its connection in the second session.
    store.interrupt(Call::Scan, 3, move || {
        wait(at.revoke(DOOR, ConnectionId { epoch: 1, number: 0 }, "root")).unwrap();
    });
    let reissued = wait(server.reissue(LAMP, "root")).unwrap();
    let given: Vec<_> = reissued.iter().map(|one| (one.way, one.given.is_some(), one.failed)).collect();
    assert_eq!(given, [(Way::Again, false, Some("no-scope")), (Way::Again, true, None)]);
    settle(&*server);
    let connections = wait(server.connections(DOOR, None, 10)).unwrap().connections;
    assert_eq!(connections.iter().filter(|one| !one.revoked).count(), 2, "{connections:?}");
}
