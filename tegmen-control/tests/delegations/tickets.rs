//! Tests of the tickets that a server opens and seals during handshakes.

use crate::recorder::Seals;
use crate::world::{
    LAMP, Lamp, Scene, Server, TIME, ask, authenticated_again, config, imprinted, lamp, next_epoch, open, pass, renew,
    revoke, seal, server, session, settle, tell_time, ticket, wait,
};
use std::time::{Duration, SystemTime};
use tegmen::dtls::CipherSuite;
use tegmen_coap::Rule;
use tegmen_control::access::policy::{OwnedParty, Party};
use tegmen_control::delegation::{ConnectionId, Rights};
use tegmen_control::state::{Bounds, Credential, NewDevice, State};
use tegmen_delegation::{MAX_TICKETS, Refused};
use tegmen_host::delegate::{Delegate, Proved};
use tegmen_store::Database;

#[test]
fn a_peer_gets_the_first_scope_that_the_policy_allows_in_full() {
    let scene = Scene::new("scope");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    for (peer, scope) in [("writer", 0), ("reader-1", 1)] {
        let (connection, delegation) = open(&mut device, &ticket(&server, peer).unwrap()).unwrap();
        assert_eq!((connection.scope, delegation.session.since), (scope, Some(TIME as u32)), "{peer}");
        assert_eq!(u64::from(delegation.expires), TIME + 3600);
    }
    assert!(ticket(&server, "reader-9").is_none(), "a rule denies it a part of each scope");
    assert!(ticket(&server, "stranger").is_none());
    assert!(seal(&server, None, &session()).is_none(), "it proved nothing");
    let mut other = session();
    other.cipher_suite = CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256;
    assert!(seal(&server, Some("writer".into()), &other).is_none(), "no device resumes this suite");
    let counts = server.counts();
    assert_eq!((counts.sealed, counts.without_rights, counts.not_given), (2, 3, 1));
}

#[test]
fn a_device_before_its_first_epoch_and_a_disabled_one_get_no_peer() {
    let scene = Scene::new("disabled");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = lamp(&wait(server.imprint(LAMP, config(), "root")).unwrap());
    settle(&server);
    assert!(ticket(&server, "writer").is_none());
    next_epoch(&server, &mut device);
    assert!(ticket(&server, "writer").is_some());
    wait(server.set_disabled(LAMP, true, "root")).unwrap();
    assert_eq!(server.device(LAMP.as_bytes()), None);
    wait(server.set_disabled(LAMP, false, "root")).unwrap();
    assert!(server.device(b"LAMP.example").is_some(), "names of DNS have no case");
    assert!(server.device(b"other.example").is_none() && server.device(b"").is_none());
    assert!(ticket(&server, "writer").is_some());
}

#[test]
fn a_ticket_is_of_one_device() {
    let scene = Scene::new("one-device");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let key = wait(server.imprint("other.example", config(), "root")).unwrap();
    let mut other = lamp(&key);
    let ticket = ticket(&server, "writer").unwrap();
    assert!(open(&mut device, &ticket).is_ok());
    assert_eq!(open(&mut other, &ticket).unwrap_err(), Refused::Epoch);
}

#[test]
fn a_ticket_ends_with_the_certificate_of_its_peer() {
    let scene = Scene::new("certificate-end");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let until = |end: u64| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(end));
    let mut end = |until| {
        let sealed = seal(&server, Some(Proved { name: "writer", until }), &session())?;
        Some(u64::from(open(&mut device, &sealed).unwrap().1.expires))
    };
    // The mutant knows no end of a certificate: the device takes the ticket for an hour.
    assert_eq!(end(None), Some(TIME + 3600));
    assert_eq!(end(until(TIME + 600)), Some(TIME + 600));
    assert_eq!(end(until(TIME + 7200)), Some(TIME + 3600));
    assert_eq!((end(until(TIME)), server.counts().not_given), (None, 1));
    // One that was revoked gives no ticket, and another one of the same name does.
    server.refuse_certificates("writer", &[TIME + 500]);
    assert_eq!((end(until(TIME + 500)), end(until(TIME + 501))), (None, Some(TIME + 501)));
    // A return does not extend it.
    let short = Proved { name: "writer", until: until(TIME + 600) };
    let first = seal(&server, Some(short), &session()).unwrap();
    next_epoch(&server, &mut device);
    let second = renew(&server, &first).unwrap();
    assert_eq!(u64::from(open(&mut device, &second).unwrap().1.expires), TIME + 600);
}

/// Lets a peer return with a ticket 100 seconds before the ticket expires. `returns` makes the new ticket of the peer.
/// Returns the time at which the new ticket expires according to the device, in seconds since 1970.
fn end_after_return(name: &str, returns: impl Fn(&Server<Database>, &[u8]) -> Option<Vec<u8>>) -> u64 {
    let scene = Scene::new(name);
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let first = ticket(&server, "reader-1").unwrap();
    next_epoch(&server, &mut device);
    pass(3500);
    tell_time(&mut device);
    let second = returns(&server, &first).unwrap();
    open(&mut device, &second).unwrap().1.expires.into()
}

/// Calls a function in a thread with a separate clock, which begins at the same time as the clock of each test.
fn in_a_time_of_its_own(act: fn() -> u64) -> u64 {
    std::thread::spawn(act).join().unwrap()
}

#[test]
fn peers_get_tickets_as_soon_as_an_epoch_begins() {
    let scene = Scene::new("at-once");
    let (mut server, seals) = (server(&scene, scene.database(), &Seals::default()), Seals::default());
    let mut device = imprinted(&server);
    let old = ticket(&server, "writer").unwrap();
    let next = ask(&server, &mut device);
    wait(server.epoch_begun(LAMP, next)).unwrap();
    // Nothing was settled since.
    let number = |device: &mut Lamp, ticket: &[u8]| open(device, ticket).unwrap().0.number;
    let first =
        [renew(&server, &old).unwrap(), ticket(&server, "writer").unwrap()].map(|one| number(&mut device, &one));
    assert_eq!(first, [MAX_TICKETS / 2, 0]);
    settle(&server);
    assert_eq!(wait(server.unaccounted(LAMP)).unwrap(), []);
    // A server that is killed leaves the rest of the blocks, and the next one gives others.
    drop(server);
    server = self::server(&scene, scene.database(), &seals);
    settle(&server);
    let second =
        [renew(&server, &old).unwrap(), ticket(&server, "writer").unwrap()].map(|one| number(&mut device, &one));
    assert!(second.iter().zip(first).all(|(second, first)| *second > first), "{second:?}");
}

#[test]
fn a_peer_that_returns_before_its_connection_is_stored_keeps_its_name() {
    let scene = Scene::new("unstored");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let first = ticket(&server, "writer").unwrap();
    let mut tickets = vec![first];
    for _ in 0..2 {
        // No row of a connection is written meanwhile.
        let next = ask(&server, &mut device);
        wait(server.epoch_begun(LAMP, next)).unwrap();
        tickets.push(renew(&server, tickets.last().unwrap()).unwrap());
    }
    settle(&server);
    let connections = wait(server.connections(LAMP, None, 10)).unwrap().connections;
    let named: Vec<_> = connections.iter().map(|one| (one.id.epoch, one.peer.as_str())).collect();
    assert_eq!(named, [(2, "writer"), (3, "writer")]);
    // The peer is found by its name after the next epoch, too.
    next_epoch(&server, &mut device);
    renew(&server, tickets.last().unwrap()).unwrap();
    let revoked = wait(server.revoke_peers(&["writer"], "root")).unwrap();
    assert!(revoked.iter().any(|(_, id)| id.epoch == 4), "{revoked:?}");
}

#[test]
fn a_peer_that_returns_while_its_device_begins_an_epoch_resumes_and_gets_nothing_yet() {
    let scene = Scene::new("asked");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let [first, second] = [0, 1].map(|_| ticket(&server, "writer").unwrap());
    let lamp = server.device(LAMP.as_bytes()).unwrap();
    assert!(server.open_ticket(lamp, &first).is_none(), "it is for the device");
    let next = ask(&server, &mut device);
    // The response of the device is under way.
    assert_eq!(open(&mut device, &first).unwrap_err(), Refused::Epoch);
    let found = server.open_ticket(lamp, &first).unwrap();
    assert!(!found.renew);
    assert!(seal(&server, None, &found.session).is_none());
    assert_eq!(Delegate::open(&server, lamp, &first).map(|found| found.peer), Some(format!("{LAMP} 1-0")));
    revoke(&server, ConnectionId { epoch: 1, number: 1 });
    assert!(server.open_ticket(lamp, &second).is_none(), "it is revoked");
    wait(server.epoch_begun(LAMP, next)).unwrap();
    assert!(renew(&server, &first).is_some_and(|renewed| open(&mut device, &renewed).is_ok()));
    assert!(server.open_ticket(lamp, &second).is_none());
    let third = ticket(&server, "writer").unwrap();
    ask(&server, &mut device);
    let renews = |ticket: &[u8]| server.open_ticket(lamp, ticket).map(|found| found.renew);
    assert_eq!((renews(&third), renews(&first)), (Some(false), Some(true)), "the epoch before continues until then");
    pass(3600);
    assert!(server.open_ticket(lamp, &third).is_none(), "it has ended");
}

#[test]
fn reissue_never_extends_a_right() {
    // At the mutant the peer has its right for another hour, each time that it returns.
    let mutant = || end_after_return("reissue-mutant", |server, old| authenticated_again(server, "reader-1", old));
    assert_eq!(in_a_time_of_its_own(mutant), TIME + 7100);
    assert_eq!(in_a_time_of_its_own(|| end_after_return("reissue-end", renew)), TIME + 3600);

    let scene = Scene::new("reissue");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let first = ticket(&server, "reader-1").unwrap();
    let (old, before) = open(&mut device, &first).unwrap();
    next_epoch(&server, &mut device);
    assert_eq!(open(&mut device, &first).unwrap_err(), Refused::Epoch);
    pass(1000);
    let second = renew(&server, &first).unwrap();
    let (new, after) = open(&mut device, &second).unwrap();
    assert_eq!((new.scope, after.session.since, after.expires), (old.scope, before.session.since, before.expires));
    assert_eq!(after.session.master.expose(), before.session.master.expose());
    assert!(renew(&server, &second).is_none(), "a ticket of the present epoch is for the device");
    // Through further epochs as well, until it ends.
    next_epoch(&server, &mut device);
    assert!(renew(&server, &first).is_none(), "two epochs ago");
    let third = renew(&server, &second).unwrap();
    assert_eq!(open(&mut device, &third).unwrap().1.expires, before.expires);
    pass(2599);
    next_epoch(&server, &mut device);
    assert!(renew(&server, &third).is_some());
    pass(1);
    assert!(renew(&server, &third).is_none(), "the delegation ended");
    // A session with another secret takes no right of a returned peer.
    let page = wait(server.connections(LAMP, None, 10)).unwrap();
    assert!(page.connections.iter().all(|connection| connection.scope == 1 && connection.since == TIME as u32));
}

#[test]
fn a_returned_peer_is_known_by_its_secret() {
    let scene = Scene::new("secret");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let first = ticket(&server, "writer").unwrap();
    next_epoch(&server, &mut device);
    let found = server.open_ticket(server.device(LAMP.as_bytes()).unwrap(), &first).unwrap();
    let mut other = session();
    other.principal = found.session.principal;
    assert!(seal(&server, None, &other).is_none());
    assert!(seal(&server, None, &found.session).is_some());
    assert!(seal(&server, None, &found.session).is_none(), "one ticket for one return");
}

#[test]
fn forged_tickets_cannot_force_an_epoch_reset() {
    // At the mutant copies of a ticket take the numbers of peers that authenticate themselves, and the server has to begin an epoch.
    let scene = Scene::new("forged-mutant");
    let mutant = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&mutant);
    let copied = ticket(&mutant, "writer").unwrap();
    next_epoch(&mutant, &mut device);
    let is_reset = (0..40_000).any(|_| {
        if authenticated_again(&mutant, "writer", &copied).is_none() {
            settle(&mutant);
        }
        mutant.show(LAMP).unwrap().reset.is_some()
    });
    assert!(is_reset && ticket(&mutant, "reader-1").is_none());

    let scene = Scene::new("forged");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let first = ticket(&server, "writer").unwrap();
    let revoked = ticket(&server, "writer").unwrap();
    settle(&server);
    wait(server.revoke(LAMP, ConnectionId { epoch: 1, number: 1 }, "root")).unwrap();
    next_epoch(&server, &mut device);
    let before = server.show(LAMP).unwrap();
    let id = server.device(LAMP.as_bytes()).unwrap();
    for byte in 0..first.len() {
        for bit in 0..8 {
            let mut forged = first.clone();
            forged[byte] ^= 1 << bit;
            assert!(server.open_ticket(id, &forged).is_none());
        }
    }
    assert!((0..first.len()).all(|len| server.open_ticket(id, &first[..len]).is_none()));
    assert!(server.open_ticket(id, &revoked).is_none());
    settle(&server);
    assert_eq!(server.show(LAMP).unwrap(), before);
    // A copy of a ticket is as good as the ticket until the handshake fails, and takes numbers for returning peers alone.
    let mut renewed: u32 = 0;
    while renewed < 40_000 {
        match renew(&server, &first) {
            Some(_) => renewed += 1,
            None if renewed >= 32_768 => break,
            None => settle(&server),
        }
    }
    settle(&server);
    assert_eq!((renewed, server.show(LAMP).unwrap().reset), (32_768, None));
    assert!(open(&mut device, &ticket(&server, "writer").unwrap()).is_ok(), "others authenticate themselves");
}

#[test]
fn an_epoch_whose_numbers_are_used_up_ends() {
    let scene = Scene::new("used-up");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let mut sealed: u32 = 0;
    while sealed < 40_000 {
        match ticket(&server, "writer") {
            Some(_) => sealed += 1,
            None if server.show(LAMP).unwrap().reset.is_some() => break,
            None => settle(&server),
        }
    }
    assert_eq!(sealed, 32_768);
    next_epoch(&server, &mut device);
    assert!(server.show(LAMP).unwrap().reset.is_none());
    assert!(open(&mut device, &ticket(&server, "writer").unwrap()).is_ok());
}

#[test]
fn the_policy_in_force_decides_on_registered_and_other_peers() {
    const POLICY: &str = r#"
[[rule]]
subject = ["tag:display", "guest"]
publisher = "tag:lamp"
allow = "read /*"
"#;
    let scene = Scene::new("policy");
    let state = wait(State::open(scene.database(), Bounds::default(), Box::new(|_| {}))).unwrap();
    let tags = ["lamp".to_owned()];
    let device = Party { name: LAMP, tags: &tags };
    let allows = |peer| state.allow(peer, &device, &[Rule::parse("GET /light").unwrap()]);
    assert!(!allows("guest"), "without a policy nothing is allowed");
    wait(state.apply_policy(("policy.toml", POLICY), "root", None, TIME)).unwrap();
    let panel = OwnedParty::from_words(["panel", "tag:display"]).unwrap();
    wait(state.add(&NewDevice::public(panel, Credential::Certificate([1; 32])).unwrap())).unwrap();
    assert!(allows("guest") && allows("panel") && !allows("stranger"));
    assert!(!state.allow("panel", &device, &[Rule::parse("GET /light").unwrap(), Rule::parse("PUT /light").unwrap()]));
    wait(state.set_disabled("panel", true)).unwrap();
    assert!(!allows("panel"));
}
