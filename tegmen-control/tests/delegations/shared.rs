//! Tests of servers that share one store and contact the same device at a UDP socket.

use crate::disk::{Call, Counting};
use crate::loopback::{LiveDevice, SOON, Trouble};
use crate::recorder::Seals;
use crate::restored;
use crate::talking::{is_settled, pace, runtime, until};
use crate::world::{LAMP, Scene, Server, config, renew, server, settle, ticket};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tegmen_base::secret::Secret;
use tegmen_control::delegation::{DeviceConfig, Pace};
use tegmen_trust::provider::HostCrypto;

/// Two servers of one store, and a device in epoch 1.
struct World {
    scene: Scene,
    one: Arc<Server<Counting>>,
    other: Arc<Server<Counting>>,
    /// The store of the server `one`. A test can interrupt the calls of this server.
    store: Counting,
    device: LiveDevice,
    /// The ticket of a connection of epoch 1, which `other` gave.
    ticket: Vec<u8>,
}

impl World {
    fn new(name: &str) -> Self {
        let (scene, seals) = (Scene::new(name), Seals::default());
        let database = scene.database();
        let [mut store, mut of_other] = [database.clone(), database].map(|base| Counting::new(base, None));
        (store.is_shared, of_other.is_shared) = (true, true);
        let other = Arc::new(server(&scene, of_other, &seals));
        let device = LiveDevice::start();
        let config = DeviceConfig { address: device.address(), ..config() };
        let device = device.provision(&runtime().block_on(other.imprint(LAMP, config, "root")).unwrap());
        until(&other, pace(), |report| is_settled(report, 1));
        settle(&*other);
        let ticket = ticket(&*other, "writer").unwrap();
        settle(&*other);
        let one = Arc::new(server(&scene, store.clone(), &seals));
        until(&one, pace(), |report| is_settled(report, 1));
        // Its session with the device ends.
        let run = one.run(Pace { linger: Duration::ZERO, ..pace() });
        let _ = runtime().block_on(async { tokio::time::timeout(Duration::from_millis(300), run).await });
        settle(&*one);
        Self { scene, one, other, store, device, ticket }
    }
}

#[test]
fn one_server_of_a_store_begins_an_epoch_that_is_due() {
    let World { scene: _scene, one, other, device, ticket, .. } = World::new("shared-one-begins");
    let sessions = device.seen().sessions;
    let test = async {
        other.reset(LAMP, "root").await.unwrap();
        restored::until(&|| one.show(LAMP).unwrap().reset.is_some()).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(
            (device.seen().sessions, device.ask(|lamp| lamp.epoch())),
            (sessions, 1),
            "the other server begins it"
        );
        let both = async {
            restored::until(&|| [&one, &other].iter().all(|server| server.show(LAMP).unwrap().epoch == 2)).await;
            assert!(renew(&*other, &ticket).is_some());
        };
        tokio::select! {
            () = other.run(pace()) => unreachable!(),
            () = both => {}
        }
    };
    runtime().block_on(async {
        tokio::select! {
            () = one.run(pace()) => unreachable!(),
            done = tokio::time::timeout(SOON, test) => done.unwrap(),
        }
    });
}

#[test]
fn a_server_does_not_discard_an_epoch_that_another_server_made_pending_meanwhile() {
    let World { scene: _scene, one, other, store, device, ticket, .. } = World::new("shared-pending");
    runtime().block_on(one.reset(LAMP, "root")).unwrap();
    let (made, device) = (Arc::new(Mutex::new(false)), Arc::new(device));
    let (begins, of_other, lamp) = (Arc::clone(&made), Arc::clone(&other), Arc::clone(&device));
    // The server `one` has a session with the device, and is about to make the next epoch pending.
    store.interrupt(Call::Commit, 0, move || {
        let exported = Secret::new([7; 32]);
        let next = runtime().block_on(of_other.begin_epoch(LAMP, &exported)).unwrap();
        lamp.ask(move |lamp| lamp.begin_epoch::<HostCrypto>(next.number, &exported, &next.check).unwrap());
        *begins.lock().unwrap() = true;
    });
    until(&one, pace(), |report| *made.lock().unwrap() && is_settled(report, 2));
    assert_eq!(device.ask(|lamp| lamp.epoch()), 2);
    settle(&*one);
    assert!(renew(&*one, &ticket).is_some(), "the epoch of the ticket is the previous one");
}

#[test]
fn a_server_does_not_discard_an_epoch_that_the_device_begins_during_a_handshake() {
    let World { scene: _scene, one, other, device, ticket, .. } = World::new("shared-handshake");
    let exported = [7; 32];
    let next = runtime().block_on(other.begin_epoch(LAMP, &Secret::new(exported))).unwrap();
    // The request of the server `other` arrives while the server `one` opens a session under the key of epoch 1.
    device.trouble(Trouble { begins: Some((next.number, exported, next.check)), ..Trouble::default() });
    runtime().block_on(one.reset(LAMP, "root")).unwrap();
    until(&one, pace(), |report| is_settled(report, 2));
    assert_eq!(device.ask(|lamp| lamp.epoch()), 2);
    settle(&*one);
    assert!(renew(&*one, &ticket).is_some(), "the epoch of the ticket is the previous one");
}
