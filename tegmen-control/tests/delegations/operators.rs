//! Tests of the calls with which operators list and change devices and connections.

use crate::disk::Counting;
use crate::recorder::Seals;
use crate::world::{
    DOOR, LAMP, Scene, TIME, ask, config, imprinted, introduced, lamp, next_epoch, next_epoch_of, open, pass, renew,
    server, settle, ticket, wait,
};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use tegmen::buf::Writer;
use tegmen::dtls::Suites;
use tegmen_control::delegation::{
    Carrier, CertificateReport, Certificates, ConnectionId, DelegationError, DeviceConfig, ReplacedCertificate,
};
use tegmen_delegation::{LONGEST_TICKET, Refused};
use tegmen_host::delegate::Delegate;
use tegmen_host::public_keys::PublicKeys;
use tegmen_store::store::Scan;
use tegmen_store::{Store, Value};

#[test]
fn a_device_is_imprinted_under_one_name_and_comes_back_after_a_restart() {
    let scene = Scene::new("imprint");
    let seals = Seals::default();
    let first = server(&scene, scene.database(), &seals);
    let mut device = imprinted(&first);
    assert!(matches!(wait(first.imprint(LAMP, config(), "root")), Err(DelegationError::NameTaken(_))));
    let report = first.show(LAMP).unwrap();
    assert_eq!((report.epoch, report.before, report.pending, report.reset.as_deref()), (1, None, None, None));
    assert_eq!(first.list(None, 10), std::slice::from_ref(&report));
    assert!(first.list(Some(LAMP), 10).is_empty());
    assert!(matches!(first.show("other"), Err(DelegationError::NoDevice(_))));
    drop(first);
    let again = server(&scene, scene.database(), &seals);
    settle(&again);
    assert_eq!(again.show(LAMP).unwrap(), report);
    assert!(open(&mut device, &ticket(&again, "writer").unwrap()).is_ok());
}

#[test]
fn rows_with_keys_are_sealed() {
    let scene = Scene::new("sealed");
    let database = scene.database();
    let server = server(&scene, database.clone(), &Seals::default());
    let mut device = imprinted(&server);
    ask(&server, &mut device);
    let page = database.scan(Scan::of("delegation/device/", 10)).wait().unwrap();
    assert_eq!(page.entries.len(), 1);
    assert!(page.entries.iter().all(|entry| matches!(entry.value, Value::Secret(_))));
}

#[test]
fn a_device_that_cannot_be_used_is_refused() {
    let scene = Scene::new("refused");
    let server = server(&scene, scene.database(), &Seals::default());
    let scopes = |scopes: Vec<Vec<String>>| DeviceConfig { scopes, ..config() };
    let cases = [
        ("", config()),
        ("Lamp", config()),
        ("lamp/1", config()),
        ("lamp..example", config()),
        (LAMP, DeviceConfig { address: "[fd00::1]:0".parse().unwrap(), ..config() }),
        (LAMP, DeviceConfig { address: "[ff02::1]:5684".parse().unwrap(), ..config() }),
        (LAMP, DeviceConfig { places: 0, ..config() }),
        (LAMP, DeviceConfig { lifetime: 0, ..config() }),
        (LAMP, DeviceConfig { lifetime: u32::MAX, ..config() }),
        (LAMP, scopes(Vec::new())),
        (LAMP, scopes(vec![Vec::new()])),
        (LAMP, scopes(vec![vec!["GET".to_owned()]])),
        (LAMP, scopes(vec![vec!["GET /".to_owned()]; 256])),
    ];
    for (name, config) in cases {
        let refused = wait(server.imprint(name, config.clone(), "root"));
        assert!(matches!(refused, Err(DelegationError::Config(_))), "{name} {config:?}");
    }
    assert!(server.list(None, 10).is_empty());
}

#[test]
fn connections_come_in_pages() {
    let scene = Scene::new("pages");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let tickets: Vec<_> = (0..5).map(|peer| ticket(&server, &format!("reader-{peer}")).unwrap()).collect();
    next_epoch(&server, &mut device);
    renew(&server, &tickets[3]).unwrap();
    settle(&server);
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = wait(server.connections(LAMP, after, 2)).unwrap();
        assert!(page.connections.len() <= 2);
        all.extend(page.connections);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let ids: Vec<_> = all.iter().map(|connection| (connection.id.epoch, connection.id.number)).collect();
    assert_eq!(ids, [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (2, 32_768)]);
    assert_eq!(all[5].of, Some(ConnectionId { epoch: 1, number: 3 }));
    assert!(all.iter().all(|connection| connection.carrier == Carrier::Ticket && !connection.revoked));
    assert_eq!(all[0].peer, "reader-0");
    let preview = wait(server.preview_reset(LAMP)).unwrap();
    assert_eq!((preview.epoch, preview.return_by_ticket, preview.end_unreturned, preview.end), (2, 1, 4, 0));
    // The next epoch ends those whose peers have not returned.
    next_epoch(&server, &mut device);
    settle(&server);
    assert_eq!(wait(server.connections(LAMP, None, 100)).unwrap().connections.len(), 1);
}

#[test]
fn rows_of_epochs_that_are_over_go() {
    let scene = Scene::new("over");
    let database = scene.database();
    let server = server(&scene, database.clone(), &Seals::default());
    let mut device = imprinted(&server);
    for _ in 0..5 {
        ticket(&server, "writer").unwrap();
        settle(&server);
        let number = wait(server.connections(LAMP, None, 100)).unwrap().connections.last().unwrap().id;
        wait(server.revoke(LAMP, number, "root")).unwrap();
        next_epoch(&server, &mut device);
        settle(&server);
    }
    let count = |prefix: &str| database.scan(Scan::of(prefix, 1000)).wait().unwrap().entries.len();
    assert_eq!(count("delegation/connection/"), 1, "that of the epoch before");
    assert_eq!(count("delegation/refused/"), 1);
    assert_eq!(count("delegation/number/"), 4);
}

#[test]
fn other_scopes_end_the_connections_of_the_ones_before() {
    let scene = Scene::new("scopes");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let ticket = ticket(&server, "reader-1").unwrap();
    let same = DeviceConfig { lifetime: 60, ..config() };
    wait(server.configure(LAMP, same, None, "root")).unwrap();
    assert_eq!(server.show(LAMP).unwrap().reset, None);
    let scopes = config().scopes.into_iter().rev().collect();
    wait(server.configure(LAMP, DeviceConfig { scopes, ..config() }, None, "root")).unwrap();
    assert_eq!(server.show(LAMP).unwrap().reset.as_deref(), Some("root"));
    next_epoch(&server, &mut device);
    assert!(renew(&server, &ticket).is_none(), "the index of its scope has another meaning");
}

#[test]
fn a_compromised_server_takes_no_old_ticket_and_lists_what_was_reachable() {
    let scene = Scene::new("drill");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let (first, second) = (ticket(&server, "writer").unwrap(), ticket(&server, "reader-1").unwrap());
    next_epoch(&server, &mut device);
    renew(&server, &first).unwrap();
    assert!(matches!(wait(server.server_compromised(&["other"], "root")), Err(DelegationError::NoDevice(_))));
    let reachable = wait(server.server_compromised(&[LAMP], "root")).unwrap();
    let [lamp_of] = reachable.as_slice() else { panic!("one device") };
    let peers: Vec<_> = lamp_of.connections.iter().map(|connection| connection.peer.as_str()).collect();
    assert_eq!((lamp_of.device.as_str(), peers.as_slice()), (LAMP, ["writer", "reader-1", "writer"].as_slice()));
    assert_eq!(server.show(LAMP).unwrap().epoch, 0);
    assert!(renew(&server, &second).is_none() && ticket(&server, "writer").is_none());
    let mut device = lamp(&lamp_of.key);
    next_epoch(&server, &mut device);
    settle(&server);
    assert!(renew(&server, &second).is_none());
    assert_eq!(
        open(&mut device, &second).unwrap_err(),
        Refused::Unknown,
        "the epoch has the same number and another key"
    );
    assert!(open(&mut device, &ticket(&server, "writer").unwrap()).is_ok());
    assert_eq!(wait(server.connections(LAMP, None, 10)).unwrap().connections.len(), 1);
}

#[test]
fn a_list_of_connections_and_the_preview_of_a_reset_contain_rows_that_wait() {
    let scene = Scene::new("waiting-rows");
    let server = server(&scene, scene.database(), &Seals::default());
    let _device = imprinted(&server);
    ticket(&server, "writer").unwrap();
    assert_eq!(wait(server.connections(LAMP, None, 10)).unwrap().connections.len(), 1);
    ticket(&server, "reader-1").unwrap();
    assert_eq!(wait(server.preview_reset(LAMP)).unwrap().return_by_ticket, 2);
}

#[test]
fn another_device_key_ends_the_sessions_with_other_devices() {
    for by_drill in [false, true] {
        // The test imprints each endpoint of the session again. The other endpoint must refuse the connection.
        for (again, other) in [(LAMP, DOOR), (DOOR, LAMP)] {
            let scene = Scene::new(&format!("again-ends-{by_drill}-{again}"));
            let server = server(&scene, scene.database(), &Seals::default());
            let (mut device, mut door) = introduced(&server);
            next_epoch_of(&server, other, if other == DOOR { &mut door } else { &mut device });
            wait(server.reissue(other, "root")).unwrap();
            settle(&server);
            ticket(&server, "writer").unwrap();
            match by_drill {
                false => drop(wait(server.imprint_again(again, "root")).unwrap()),
                true => drop(wait(server.server_compromised(&[again], "root")).unwrap()),
            }
            let connections = wait(server.connections(other, None, 10)).unwrap().connections;
            let (of_device, of_others): (Vec<_>, Vec<_>) = connections.iter().partition(|one| one.peer == again);
            let epochs: Vec<_> = of_device.iter().map(|one| (one.id.epoch, one.revoked)).collect();
            assert_eq!(epochs, [(1, true), (2, true)], "the device and its peer have a connection in each epoch");
            assert!(of_others.iter().all(|one| !one.revoked), "{of_others:?}");
            assert_eq!(of_others.len(), usize::from(other == LAMP));
            assert_eq!(server.to_refuse(other).unwrap(), [of_device[1].id], "the device learns it");
        }
    }
}

#[test]
fn another_device_key_revokes_no_connection_that_has_expired() {
    let scene = Scene::new("again-expired");
    let server = server(&scene, scene.database(), &Seals::default());
    let _devices = introduced(&server);
    pass(3600);
    wait(server.imprint_again(LAMP, "root")).unwrap();
    assert!(server.to_refuse(DOOR).unwrap().is_empty(), "the list of the device has space for others");
}

#[test]
fn a_peer_that_returned_keeps_its_name() {
    let scene = Scene::new("name");
    let server = server(&scene, scene.database(), &Seals::default());
    let mut device = imprinted(&server);
    let first = ticket(&server, "writer").unwrap();
    next_epoch(&server, &mut device);
    let device = Delegate::device(&server, LAMP.as_bytes()).unwrap();
    let found = Delegate::open(&server, device, &first).unwrap();
    assert_eq!((found.peer.as_str(), found.renew), ("lamp.example 1-0", true));
    let mut room = [0; LONGEST_TICKET];
    let sealed =
        Delegate::seal(&server, device, Some(found.peer.as_str().into()), &found.session, &mut Writer::new(&mut room));
    assert!(sealed.is_some());
    settle(&server);
    let connections = wait(server.connections(LAMP, None, 10)).unwrap().connections;
    let shown: Vec<_> = connections.iter().map(|one| (one.peer.as_str(), one.of.map(|of| of.to_string()))).collect();
    assert_eq!(shown, [("writer", None), ("writer", Some("1-0".to_owned()))]);
}

#[test]
fn the_name_of_a_peer_that_returns_is_read_only_if_it_is_not_in_memory() {
    for is_restarted in [false, true] {
        let scene = Scene::new("name-read");
        let store = Counting::new(scene.database(), None);
        let mut server = server(&scene, store.clone(), &Seals::default());
        let mut device = imprinted(&server);
        let mut before = ticket(&server, "writer").unwrap();
        settle(&server);
        assert_eq!(server.entries().names, 1);
        // The second time the peer returns, its name comes from the row of its second connection.
        for _ in 0..2 {
            next_epoch(&server, &mut device);
            if is_restarted {
                server = crate::world::server(&scene, store.clone(), &Seals::default());
                settle(&server);
            }
            before = renew(&server, &before).unwrap();
            let reads = store.reads.load(Ordering::Relaxed);
            settle(&server);
            assert_eq!(store.reads.load(Ordering::Relaxed) - reads, usize::from(is_restarted));
            assert_eq!(server.entries().names, 1, "only the newest connection of the peer");
        }
        let connections = wait(server.connections(LAMP, None, 10)).unwrap().connections;
        assert!(connections.len() == 2 && connections.iter().all(|one| one.peer == "writer"));
        for _ in 0..2 {
            next_epoch(&server, &mut device);
        }
        assert_eq!(server.entries().names, 0, "the epochs of all connections have ended");
    }
}

/// A source of certificates in memory. The value has the names of the devices with a certificate. The certificate of
/// `other.example` cannot be made.
#[derive(Default)]
pub(crate) struct Made(pub(crate) Mutex<Vec<String>>);

impl Certificates for Made {
    fn of(&self, device: &str) -> Option<Arc<PublicKeys>> {
        let made = self.0.lock().unwrap();
        made.iter().any(|made| made == device).then(|| Arc::new(PublicKeys::new(Suites(&[]))))
    }

    fn prepare(&self, device: &str) -> Result<(), String> {
        match device {
            "other.example" => Err("the disk is full: free some".to_owned()),
            _ => {
                self.0.lock().unwrap().push(device.to_owned());
                Ok(())
            }
        }
    }

    fn replace(&self, device: &str) -> Result<Vec<ReplacedCertificate>, String> {
        self.0.lock().unwrap().retain(|made| made != device);
        let replaced = |serial: &str, revoked| ReplacedCertificate {
            serial: serial.to_owned(),
            issuer: "CN=works".to_owned(),
            expires: TIME + 60,
            revoked,
        };
        match device {
            LAMP => Ok(vec![replaced("1a", true), replaced("2b", false)]),
            _ => Err("the CA cannot be read: bring it back from a copy".to_owned()),
        }
    }

    fn problem(&self, device: &str) -> Option<String> {
        (device == "third.example").then(|| "the authority refuses it: see there".to_owned())
    }
}

#[test]
fn a_device_whose_certificate_cannot_be_made_is_not_imprinted() {
    let scene = Scene::new("certificate");
    let server = server(&scene, scene.database(), &Seals::default());
    let none = Delegate::credentials(&server, 1);
    assert!(none.is_none());
    let server = wait(server.with_certificates(Arc::new(Made::default()))).unwrap();
    imprinted(&server);
    let refused = wait(server.imprint("other.example", config(), "root"));
    assert!(matches!(refused, Err(DelegationError::Certificate(why)) if why.contains("free some")));
    assert!(matches!(server.show("other.example"), Err(DelegationError::NoDevice(_))));
    let device = Delegate::device(&server, LAMP.as_bytes()).unwrap();
    assert!(Delegate::credentials(&server, device).is_some() && Delegate::credentials(&server, device + 1).is_none());
    // One whose certificate comes later is imprinted, and its operator sees why it has none.
    assert_eq!(server.show(LAMP).unwrap().certificate, Some(CertificateReport::default()));
    wait(server.imprint("third.example", config(), "root")).unwrap();
    let certificates: Vec<_> = server.list(None, 10).into_iter().filter_map(|device| device.certificate).collect();
    assert_eq!(certificates.iter().filter(|certificate| certificate.problem.is_some()).count(), 1);
}

#[test]
fn a_compromised_server_replaces_the_certificates_of_its_devices() {
    let scene = Scene::new("drill-certificates");
    let server = server(&scene, scene.database(), &Seals::default());
    let server = wait(server.with_certificates(Arc::new(Made::default()))).unwrap();
    imprinted(&server);
    let device = Delegate::device(&server, LAMP.as_bytes()).unwrap();
    assert!(Delegate::credentials(&server, device).is_some());
    let reachable = wait(server.server_compromised(&[LAMP], "root")).unwrap();
    let replaced: Vec<_> = reachable[0].certificates.iter().map(|one| (one.serial.as_str(), one.revoked)).collect();
    assert_eq!(replaced, [("1a", true), ("2b", false)]);
    assert!(Delegate::credentials(&server, device).is_none(), "the old key signs nothing more");
    // After a failure, an operator repeats the command.
    let config = DeviceConfig { tags: Vec::new(), ..config() };
    wait(server.imprint(DOOR, config, "root")).unwrap();
    let failed = wait(server.server_compromised(&[LAMP, DOOR], "root"));
    assert!(matches!(failed, Err(DelegationError::Certificate(why)) if why.contains("bring it back")));
}

#[test]
fn a_drill_that_fails_at_a_certificate_loses_no_connection() {
    let scene = Scene::new("drill-repeated");
    let server = server(&scene, scene.database(), &Seals::default());
    let server = wait(server.with_certificates(Arc::new(Made::default()))).unwrap();
    let _device = imprinted(&server);
    let config = DeviceConfig { tags: Vec::new(), ..config() };
    wait(server.imprint(DOOR, config, "root")).unwrap();
    ticket(&server, "writer").unwrap();
    let failed = wait(server.server_compromised(&[LAMP, DOOR], "root"));
    assert!(matches!(failed, Err(DelegationError::Certificate(_))));
    let reachable = wait(server.server_compromised(&[LAMP], "root")).unwrap();
    assert_eq!((reachable[0].connections.len(), reachable[0].certificates.len()), (1, 2));
}

#[test]
fn a_configuration_of_an_earlier_state_is_refused() {
    let scene = Scene::new("outdated");
    let server = server(&scene, scene.database(), &Seals::default());
    imprinted(&server);
    let shown = server.show(LAMP).unwrap().revision;
    let longer = |lifetime| DeviceConfig { lifetime, ..config() };
    wait(server.configure(LAMP, longer(60), Some(shown), "root")).unwrap();
    let refused = wait(server.configure(LAMP, longer(90), Some(shown), "root"));
    assert!(matches!(refused, Err(DelegationError::Outdated(_))));
    assert_eq!(server.show(LAMP).unwrap().lifetime, 60);
}
