//! Tests of the conversations between a server and devices at UDP sockets. Responses of the devices are lost, and the
//! devices and the server restart.

use crate::loopback::{LiveDevice, PLACES, SOON, Trouble};
use crate::recorder::Seals;
use crate::test_ca::TestCa;
use crate::world::{LAMP, Scene, Server, TIME, config, lamp, open, pass, revoke, server, session, settle, ticket};
use std::sync::Arc;
use std::time::Duration;
use tegmen::dtls::{CipherSuite, Handle, Suites};
use tegmen_base::secret::Secret;
use tegmen_base::time::Instant;
use tegmen_control::delegation::{
    Carrier, Certificates, ConnectionId, DelegationError, DeviceConfig, DeviceReport, Pace, ReplacedCertificate,
};
use tegmen_delegation::{Connection, Refused, Ticket};
use tegmen_host::delegate::Delegate;
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::resources::Resources;
use tegmen_host::resumption::{ResumptionConfig, ResumptionCounters};
use tegmen_host::server::{Listen, Server as RemoteServer, ServerConfig};
use tegmen_host::uri::Scheme;
use tegmen_store::{Database, Store};
use tegmen_trust::provider::HostCrypto;

/// Returns short time limits and intervals, for a device on the same machine.
pub(crate) fn pace() -> Pace {
    Pace {
        patience: Duration::from_secs(3),
        first_pause: Duration::from_millis(20),
        longest_pause: Duration::from_millis(200),
        linger: Duration::from_millis(300),
        ..Pace::default()
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Runs the server until `is_wanted` returns true for a report of the device, and returns this report.
pub(crate) fn until<S: Store>(
    server: &Arc<Server<S>>,
    pace: Pace,
    is_wanted: impl Fn(&DeviceReport) -> bool,
) -> DeviceReport {
    runtime().block_on(async {
        let wanted = async {
            loop {
                let report = server.show(LAMP).unwrap();
                if is_wanted(&report) {
                    return report;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            () = server.run(pace) => unreachable!(),
            report = tokio::time::timeout(SOON, wanted) => {
                report.unwrap_or_else(|_| panic!("{:?}", server.show(LAMP)))
            }
        }
    })
}

/// Returns true if the device is in this epoch, and has received all requests that waited for it.
pub(crate) fn is_settled(report: &DeviceReport, epoch: u16) -> bool {
    let is_known = report.contact.status.is_some_and(|status| status.epoch == epoch);
    report.epoch == epoch && is_known && report.pending.is_none() && report.reset.is_none() && report.untold == 0
}

struct World {
    scene: Scene,
    seals: Seals,
    server: Arc<Server<Database>>,
    device: LiveDevice,
}

impl World {
    /// Makes a device that has its device key, and a server that has not contacted the device yet.
    fn new(name: &str) -> Self {
        let (scene, seals) = (Scene::new(name), Seals::default());
        let server = Arc::new(server(&scene, scene.database(), &seals));
        let device = LiveDevice::start();
        // The list of the device is longer in the configuration.
        let config = DeviceConfig { address: device.address(), places: 100, ..config() };
        let key = runtime().block_on(server.imprint(LAMP, config, "root")).unwrap();
        Self { scene, seals, server, device: device.provision(&key) }
    }

    /// Makes a server, and its device. The device is in epoch 1, and knows the time.
    fn in_first_epoch(name: &str) -> Self {
        let world = Self::new(name);
        world.until_settled(1);
        world
    }

    fn until_settled(&self, epoch: u16) -> DeviceReport {
        until(&self.server, pace(), |report| is_settled(report, epoch))
    }

    /// Runs the server until its open sessions with the device have ended, because no further request waits.
    fn rest(&self) {
        let (pace, time) = (Pace { linger: Duration::ZERO, ..pace() }, Duration::from_millis(400));
        let _ = runtime().block_on(async { tokio::time::timeout(time, self.server.run(pace)).await });
    }

    /// Kills the server, and starts it again.
    fn restart_server(self) -> Self {
        let Self { scene, seals, server: old, device } = self;
        drop(old);
        let server = Arc::new(server(&scene, scene.database(), &seals));
        Self { scene, seals, server, device }
    }

    /// Returns a ticket of the peer `writer` for the device.
    fn ticket(&self) -> Vec<u8> {
        // A commit of a server that was cut off may come between a read and a commit of this one.
        let tried = (0..10).find_map(|_| {
            settle(&self.server);
            ticket(&self.server, "writer")
        });
        tried.unwrap()
    }

    /// Opens a ticket at the device, and returns the number of its connection.
    fn open(&self, ticket: &[u8]) -> Result<u32, Refused> {
        let ticket = ticket.to_vec();
        self.device.ask(move |lamp| {
            let now = Instant::from_micros(2_000_000);
            let opened = lamp.open(now, &mut HostCrypto::from_os().unwrap(), Ticket(&ticket));
            opened.map(|delegation| delegation.connection().unwrap().number)
        })
    }
}

#[test]
fn a_new_device_begins_its_first_epoch_and_learns_the_time() {
    let world = World::in_first_epoch("talk-first");
    let report = world.server.show(LAMP).unwrap();
    assert!(report.contact.heard.is_some() && report.contact.unreachable.is_none());
    assert!(world.open(&world.ticket()).is_ok());
    assert_eq!(world.device.seen().executed, ["dlg/ep", "dlg/st"]);
    let counts = world.server.counts();
    assert_eq!((counts.conversations, counts.failed_conversations, counts.epochs), (1, 0, 1));
}

#[test]
fn a_device_that_dies_with_the_response_has_the_keys_of_its_server() {
    let world = World::new("talk-died");
    world.device.trouble(Trouble { dies_after: Some("dlg/ep"), ..Trouble::default() });
    let report = until(&world.server, pace(), |report| report.contact.unreachable.is_some());
    assert_eq!((report.epoch, report.pending), (0, Some(1)), "the device has begun it, and the server does not know");
    world.until_settled(1);
    assert!(world.open(&world.ticket()).is_ok());
    // It began once: the second request brought the time.
    let seen = world.device.seen();
    assert_eq!((seen.starts, world.server.counts().epochs), (2, 1));
    // The same again, with a server that dies, too.
    world.device.trouble(Trouble { dies_after: Some("dlg/ep"), ..Trouble::default() });
    runtime().block_on(world.server.reset(LAMP, "root")).unwrap();
    until(&world.server, pace(), |report| report.pending == Some(2) && report.contact.unreachable.is_some());
    let world = world.restart_server();
    assert_eq!(world.server.show(LAMP).unwrap().pending, Some(2));
    world.until_settled(2);
    assert!(world.open(&world.ticket()).is_ok());
}

#[test]
fn lost_datagrams_are_sent_again() {
    let world = World::new("talk-lost");
    world.device.trouble(Trouble { loses: Some(("dlg/ep", 1)), ..Trouble::default() });
    world.until_settled(1);
    assert!(world.open(&world.ticket()).is_ok());
    assert_eq!(world.server.counts().epochs, 1);
}

#[test]
fn a_device_that_restarted_learns_the_time_from_the_server_that_a_peer_comes_to() {
    let world = World::in_first_epoch("talk-restart");
    world.rest();
    let ticket = world.ticket();
    let number = world.open(&ticket).unwrap();
    world.device.trouble(Trouble { restarts: true, ..Trouble::default() });
    until(&world.server, pace(), |_| world.device.seen().starts == 2);
    assert_eq!(world.open(&ticket), Err(Refused::NoTime));
    // A peer comes to the server at once, and another one when the device was not heard for a minute.
    let again = world.ticket();
    world.rest();
    assert_eq!(world.open(&again), Err(Refused::NoTime));
    pass(61);
    let other = world.ticket();
    until(&world.server, pace(), |report| report.contact.heard == Some(TIME + 61));
    assert_eq!(world.open(&ticket), Ok(number));
    assert!(world.open(&again).is_ok() && world.open(&other).is_ok());
}

#[test]
fn a_sleeping_device_is_reported_and_refuses_what_was_revoked_when_it_wakes() {
    let world = World::in_first_epoch("talk-sleep");
    let (ticket, other) = (world.ticket(), world.ticket());
    let number = world.open(&ticket).unwrap();
    world.device.trouble(Trouble { asleep: true, ..Trouble::default() });
    let id = ConnectionId { epoch: 1, number };
    runtime().block_on(world.server.revoke(LAMP, id, "root")).unwrap();
    let short = Pace { patience: Duration::from_millis(200), ..pace() };
    let report = until(&world.server, short, |report| {
        report.contact.unreachable.as_ref().is_some_and(|unreachable| unreachable.attempts >= 2)
    });
    let unreachable = report.contact.unreachable.unwrap();
    assert!(unreachable.why.contains("did not answer"), "{}", unreachable.why);
    assert_eq!((report.untold, unreachable.since), (1, TIME));
    world.device.trouble(Trouble::default());
    // The conversation ends after the device acknowledged the revocation.
    until(&world.server, pace(), |report| is_settled(report, 1) && report.contact.unreachable.is_none());
    assert_eq!(world.open(&ticket), Err(Refused::Revoked));
    assert!(world.open(&other).is_ok());
    assert_eq!(world.server.counts().acknowledged, 1);
}

#[test]
fn a_device_whose_state_is_an_earlier_copy_is_told_again_what_was_revoked() {
    let world = World::in_first_epoch("talk-copy");
    let (first, second, other) = (world.ticket(), world.ticket(), world.ticket());
    let revoked = |ticket: &[u8]| ConnectionId { epoch: 1, number: world.open(ticket).unwrap() };
    let earliest = world.device.copy();
    revoke(&world.server, revoked(&first));
    world.until_settled(1);
    let between = world.device.copy();
    revoke(&world.server, revoked(&second));
    world.until_settled(1);
    world.rest();
    for (copy, forgotten) in [(between, 1), (earliest, 2)] {
        assert_eq!([&first, &second].map(|ticket| world.open(ticket)), [Err(Refused::Revoked); 2]);
        world.device.put_back(copy);
        // The attack: until its server speaks with it, the device with a clock of its own lets the peer in.
        world.device.ask(|lamp| lamp.set_time(Instant::from_micros(2_000_000), u32::try_from(TIME).unwrap()));
        assert!(world.open(&second).is_ok());
        let before = world.device.seen().executed.len();
        pass(61);
        let _ = world.ticket();
        until(&world.server, pace(), |report| {
            is_settled(report, 1) && report.contact.heard == Some(TIME + 61 * forgotten)
        });
        assert_eq!([&first, &second].map(|ticket| world.open(ticket)), [Err(Refused::Revoked); 2]);
        assert!(world.open(&other).is_ok());
        // The state shows it, all are sent again, and then the state is complete.
        assert_eq!(world.device.seen().executed[before..], ["dlg/ep", "dlg/st", "dlg/rl", "dlg/rl", "dlg/st"][..]);
        assert_eq!(world.server.counts().forgotten, forgotten);
        world.rest();
    }
    let report = world.server.show(LAMP).unwrap();
    assert!(report.contact.unreachable.is_none() && report.contact.status.is_some_and(|status| status.refused == 2));
}

#[test]
fn a_device_that_keeps_no_revocation_is_reported_and_tried_again_after_pauses() {
    let world = World::in_first_epoch("talk-keeps-nothing");
    let ticket = world.ticket();
    let number = world.open(&ticket).unwrap();
    world.device.trouble(Trouble { keeps_nothing: true, ..Trouble::default() });
    revoke(&world.server, ConnectionId { epoch: 1, number });
    let report = until(&world.server, pace(), |report| {
        report.contact.unreachable.as_ref().is_some_and(|unreachable| unreachable.attempts >= 2)
    });
    let unreachable = report.contact.unreachable.unwrap();
    assert!(unreachable.why.contains("refuses 0 connections, and acknowledged 1"), "{}", unreachable.why);
    // A conversation sends it twice at most. The next one follows a pause.
    let told = world.device.seen().executed.iter().filter(|path| **path == "dlg/rl").count();
    let failed = usize::try_from(world.server.counts().failed_conversations).unwrap();
    assert!(told <= 2 * failed + 2, "{told} times in {failed} conversations");
    world.device.trouble(Trouble::default());
    until(&world.server, pace(), |report| report.contact.unreachable.is_none());
    assert_eq!(world.open(&ticket), Err(Refused::Revoked));
}

#[test]
fn a_full_list_at_the_device_begins_the_next_epoch() {
    let world = World::in_first_epoch("talk-full");
    let tickets: Vec<Vec<u8>> = (0..=PLACES).map(|_| world.ticket()).collect();
    for ticket in &tickets {
        revoke(&world.server, ConnectionId { epoch: 1, number: world.open(ticket).unwrap() });
    }
    let report = world.until_settled(2);
    assert_eq!(report.refused, 0, "the list is empty again");
    assert!(tickets.iter().all(|ticket| world.open(ticket) == Err(Refused::Epoch)));
    assert!(world.open(&world.ticket()).is_ok());
}

#[test]
fn a_session_of_a_peer_without_tickets_is_handed_over_to_the_device() {
    let world = World::in_first_epoch("talk-handover");
    settle(&world.server);
    let (server, opened) = (&world.server, session());
    let lamp = Delegate::device(&**server, LAMP.as_bytes()).unwrap();
    server.remember(lamp, Some("stranger".into()), &[6; 32], &opened);
    server.remember(lamp, Some("writer".into()), &[7; 32], &opened);
    let kept = |report: &DeviceReport| report.contact.status.is_some_and(|status| status.sessions == 1);
    until(server, pace(), kept);
    let (found, unknown) = world.device.ask(|lamp| {
        let now = Instant::from_micros(2_000_000);
        (lamp.find(now, &[7; 32]), lamp.find(now, &[6; 32]))
    });
    assert_eq!(found.unwrap().master.expose(), opened.master.expose());
    assert!(unknown.is_none(), "the policy gives a stranger nothing");
    assert_eq!((server.counts().handed_over, server.counts().without_rights), (1, 1));
    settle(server);
    let connections = runtime().block_on(server.connections(LAMP, None, 10)).unwrap().connections;
    assert_eq!(
        connections.iter().map(|one| (one.peer.as_str(), one.carrier)).collect::<Vec<_>>(),
        [("writer", Carrier::Id)]
    );
    // The server itself resumes no session by its id.
    assert!(server.find(lamp, &[7; 32]).is_none());
    // A revocation reaches the device, which forgets the session.
    revoke(server, connections[0].id);
    world.until_settled(1);
    assert!(world.device.ask(|lamp| lamp.find(Instant::from_micros(2_000_000), &[7; 32])).is_none());
}

#[test]
fn one_device_opens_a_session_with_another() {
    const DOOR: &str = "door.example";
    let world = World::in_first_epoch("talk-introduce");
    let server = &world.server;
    let runtime = runtime();
    let config = DeviceConfig { tags: Vec::new(), ..config() };
    let mut door = lamp(&runtime.block_on(server.imprint(DOOR, config.clone(), "root")).unwrap());
    let exported = Secret::new([9; 32]);
    let next = runtime.block_on(server.begin_epoch(DOOR, &exported)).unwrap();
    door.begin_epoch::<HostCrypto>(next.number, &exported, &next.check).unwrap();
    runtime.block_on(server.epoch_begun(DOOR, next)).unwrap();
    settle(server);
    let refused = runtime.block_on(server.introduce(DOOR, LAMP));
    assert!(matches!(refused, Err(DelegationError::NotGiven { code: "no-scope", .. })), "{refused:?}");
    let introduced = runtime.block_on(server.introduce(LAMP, DOOR)).unwrap();
    until(server, pace(), |_| !world.device.seen().opens.is_empty());
    let go = world.device.seen().opens[0];
    assert_eq!((go.number, go.peer), (introduced.opener.number, config.address.into()));
    let (session, ticket) = world.device.ask(move |lamp| {
        let (session, handle) = lamp.to_open(Instant::from_micros(2_000_000), go.number).unwrap();
        let Handle::Ticket(ticket) = handle else { panic!("{handle:?}") };
        let ticket = ticket.to_vec();
        (session, ticket)
    });
    let (connection, delegation) = open(&mut door, &ticket).unwrap();
    assert_eq!((connection.number, connection.scope), (introduced.other.number, 1), "the policy allows GET");
    assert_eq!(delegation.session.master.expose(), session.master.expose());
    // The other device has no rights where the session was opened.
    assert_eq!(Connection::of(session.principal).unwrap().scope, u8::MAX);
    let rows = |name| runtime.block_on(server.connections(name, None, 10)).unwrap().connections;
    assert_eq!((rows(LAMP)[0].peer.as_str(), rows(LAMP)[0].carrier), (DOOR, Carrier::Device));
    assert_eq!((rows(DOOR)[0].peer.as_str(), rows(DOOR)[0].carrier), (LAMP, Carrier::Ticket));
}

#[test]
fn a_session_of_an_earlier_device_key_begins_no_epoch() {
    let world = World::new("talk-again");
    let server = &world.server;
    runtime().block_on(async {
        let imprinted = async {
            let show = || server.show(LAMP).unwrap();
            while !is_settled(&show(), 1) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            // The session with the device stays open for a time.
            server.imprint_again(LAMP, "root").await.unwrap();
            while show().contact.unreachable.is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            show()
        };
        let pace = Pace { linger: Duration::from_secs(20), ..pace() };
        tokio::select! {
            () = server.run(pace) => unreachable!(),
            report = tokio::time::timeout(SOON, imprinted) => {
                let report = report.unwrap();
                assert_eq!((report.epoch, report.pending), (0, None), "{report:?}");
            }
        }
    });
    assert_eq!(world.device.ask(|lamp| lamp.epoch()), 1);
}

#[test]
fn each_epoch_begins_in_a_session_of_its_own() {
    let world = World::new("talk-own-session");
    let server = &world.server;
    runtime().block_on(async {
        let epochs = async {
            for epoch in 1..=3 {
                while !is_settled(&server.show(LAMP).unwrap(), epoch) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                if epoch < 3 {
                    // The session with the device is still open.
                    server.reset(LAMP, "root").await.unwrap();
                }
            }
        };
        let pace = Pace { linger: Duration::from_secs(20), ..pace() };
        tokio::select! {
            () = server.run(pace) => unreachable!(),
            settled = tokio::time::timeout(SOON, epochs) => settled.unwrap(),
        }
    });
    let (seen, counts) = (world.device.seen(), world.server.counts());
    assert_eq!(seen.sessions, 3, "each ticket key comes from a handshake of its own");
    assert_eq!(seen.executed, ["dlg/ep", "dlg/st"].repeat(3));
    assert_eq!((counts.epochs, counts.failed_conversations), (3, 0));
}

/// The source of certificates of the server. It has one certificate, for the device of the tests.
struct OfDevice(Arc<PublicKeys>);

impl Certificates for OfDevice {
    fn of(&self, device: &str) -> Option<Arc<PublicKeys>> {
        (device == LAMP).then(|| Arc::clone(&self.0))
    }

    fn prepare(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn replace(&self, _: &str) -> Result<Vec<ReplacedCertificate>, String> {
        Ok(Vec::new())
    }

    fn problem(&self, _: &str) -> Option<String> {
        None
    }
}

#[test]
fn a_device_resumes_at_a_server_elsewhere_by_ticket_and_by_id() {
    let ca = TestCa::new("works");
    for tickets in [true, false] {
        let config = ServerConfig::default().with(|config| {
            config.listen = vec![Listen { address: "127.0.0.1:0".parse().unwrap(), scheme: Scheme::Coaps }];
            config.shards = 1;
            config.trust.public_keys = Some(ca.server());
            config.resumption = Some(ResumptionConfig { tickets, ..ResumptionConfig::default() });
        });
        let remote = RemoteServer::with(config).serve(Resources::new([])).unwrap();
        let address = remote.addresses()[0].address;
        let World { scene, server, device, .. } = World::in_first_epoch(&format!("talk-remote-{tickets}"));
        let runtime = runtime();
        let refused = runtime.block_on(server.open_at(LAMP, address, "127.0.0.1"));
        assert!(
            matches!(&refused, Err(DelegationError::Remote { why, .. }) if why.contains("certificate")),
            "{refused:?}"
        );
        let keys = Arc::new(ca.client(Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8])));
        let server = Arc::into_inner(server).unwrap();
        let server = Arc::new(runtime.block_on(server.with_certificates(Arc::new(OfDevice(keys)))).unwrap());
        settle(&server);
        for (name, words) in [("other.example", "not for other.example"), ("", "server_name is empty")] {
            let refused = runtime.block_on(server.open_at(LAMP, address, name));
            assert!(matches!(&refused, Err(DelegationError::Remote { why, .. }) if why.contains(words)), "{refused:?}");
        }
        let id = runtime.block_on(server.open_at(LAMP, address, "127.0.0.1")).unwrap();
        until(&server, pace(), |_| !device.seen().established.is_empty());
        assert_eq!(device.seen().established, [Connection { number: id.number, scope: u8::MAX }]);
        // A shard counts each second.
        let taken = |counts: &ResumptionCounters| if tickets { counts.tickets_opened } else { counts.ids_found };
        let counted = (0..200).find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            Some(remote.totals().resumption).filter(|counts| taken(counts) > 0)
        });
        let counted = counted.unwrap();
        assert_eq!((counted.tickets_refused, counted.ids_refused), (0, 0));
        let connections = runtime.block_on(server.connections(LAMP, None, 10)).unwrap().connections;
        assert_eq!(connections.iter().map(|one| (one.id, one.carrier)).collect::<Vec<_>>(), [(id, Carrier::Device)]);
        drop((device, scene));
    }
}

#[test]
fn a_server_goes_on_after_any_trouble() {
    for seed in 0..8_u64 {
        let mut world = World::new(&format!("talk-seed-{seed}"));
        let (mut random, mut epoch) = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, 0);
        let mut below = |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % limit
        };
        for _ in 0..4 {
            epoch += 1;
            let path = ["dlg/ep", "dlg/rl", "dlg/st"][below(3) as usize];
            let trouble = match below(3) {
                0 => Trouble { dies_after: Some(path), ..Trouble::default() },
                1 => Trouble { loses: Some((path, below(3) as u8)), ..Trouble::default() },
                _ => Trouble::default(),
            };
            if epoch > 1 {
                let ticket = world.ticket();
                let number = world.open(&ticket).unwrap();
                revoke(&world.server, ConnectionId { epoch: epoch - 1, number });
                world.device.trouble(trouble);
                world.until_settled(epoch - 1);
                assert_eq!(world.open(&ticket), Err(Refused::Revoked), "seed {seed}");
                runtime().block_on(world.server.reset(LAMP, "root")).unwrap();
            }
            world.device.trouble(trouble);
            if below(2) == 0 {
                let short = Duration::from_millis(10 * below(30));
                let _ = runtime().block_on(async { tokio::time::timeout(short, world.server.run(pace())).await });
                world = world.restart_server();
            }
            world.until_settled(epoch);
            assert!(world.open(&world.ticket()).is_ok(), "seed {seed}");
        }
        assert_eq!(world.seals.lock().unwrap().repeated, 0);
    }
}
