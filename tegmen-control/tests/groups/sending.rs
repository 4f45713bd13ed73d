//! Tests of sending the messages of a controller, over real multicast on this machine.

use super::world::{Counting, Keys, LAMPS, Moment, Scene, config, software_key};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tegmen::axiom::Rekeyed;
use tegmen_control::group::{Controller, GroupConfig, GroupCounts, NewMember, Outbox, Pace, Sending, send};
use tegmen_host::group::Group;
use tegmen_store::{Database, Store};
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::{Signer, SoftwareKey};

const GROUP: Ipv4Addr = Ipv4Addr::new(239, 255, 77, 1);
/// A multicast address whose datagrams do not leave the machine, on any interface.
const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff11, 0, 0, 0, 0, 0, 0xa, 1);

/// A socket that receives the datagrams to a multicast group.
struct Listener(UdpSocket);

impl Listener {
    /// Makes a listener of the group [`GROUP`] on the loopback interface.
    fn new() -> Self {
        let socket = UdpSocket::bind((GROUP, 0)).unwrap();
        socket.join_multicast_v4(&GROUP, &Ipv4Addr::LOCALHOST).unwrap();
        Self::of(socket)
    }

    /// Makes a listener of the group [`GROUP_V6`] on an interface with a multicast route. Returns the listener and the
    /// name of this interface; `None` if no interface has such a route. The loopback interface usually has none.
    fn v6() -> Option<(Self, String)> {
        let names =
            std::fs::read_dir("/sys/class/net").ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let listen = |name: String| {
            let index = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()?.trim().parse().ok()?;
            let socket = UdpSocket::bind("[::]:0").ok()?;
            socket.join_multicast_v6(&GROUP_V6, index).ok()?;
            let by: Group = format!("{GROUP_V6}%{name}").parse().ok()?;
            by.socket(None).ok()?.send_to(b"probe", by.at(socket.local_addr().ok()?.port())).ok()?;
            let listener = Self::of(socket);
            assert_eq!(listener.hear(), b"probe");
            Some((listener, name))
        };
        names.filter_map(listen).next()
    }

    fn of(socket: UdpSocket) -> Self {
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(socket)
    }

    /// Returns the socket address of a group, with the port of the listener.
    fn at(&self, group: impl Into<IpAddr>) -> SocketAddr {
        SocketAddr::new(group.into(), self.0.local_addr().unwrap().port())
    }

    fn hear(&self) -> Vec<u8> {
        let mut buffer = [0; 256];
        let len = self.0.recv(&mut buffer).expect("a message");
        buffer[..len].to_vec()
    }

    /// Returns true if no datagram waits.
    fn hears_nothing(&self) -> bool {
        self.0.set_nonblocking(true).unwrap();
        let error = self.0.recv(&mut [0; 256]).err();
        self.0.set_nonblocking(false).unwrap();
        error.is_some_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// A controller, and the task that sends its messages. The task ends when this value is dropped.
struct Running<S = Database> {
    controller: Arc<Controller<S>>,
    outbox: Outbox,
    sender: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Aborts the sending task in the middle of its work. Then closes the database.
    async fn kill(mut self) {
        self.sender.abort();
        assert!((&mut self.sender).await.unwrap_err().is_cancelled());
    }
}

impl<S> Drop for Running<S> {
    fn drop(&mut self) {
        self.sender.abort();
    }
}

fn sending(repetitions: u8, wait: Duration, interface: &str) -> Sending {
    let pace = Pace { interval: Duration::from_millis(1), repetitions, wait };
    Sending { pace, interface: Some(interface.to_owned()), ..Sending::default() }
}

fn controller<S: Store>(store: S, signer: &Arc<SoftwareKey>) -> (Controller<S>, Outbox) {
    let outbox = Outbox::default();
    let controller = Controller::new(store, Some(Arc::clone(signer) as _)).unwrap();
    (controller.with_outbox(outbox.clone()), outbox)
}

fn start<S: Store>(store: S, signer: &Arc<SoftwareKey>, sending: Sending) -> Running<S> {
    let (controller, outbox) = controller(store, signer);
    let controller = Arc::new(controller);
    let sender = tokio::spawn({
        let controller = Arc::clone(&controller);
        async move { send(&*controller, &sending).await }
    });
    Running { controller, outbox, sender }
}

fn member(name: &str, address: &str, checks_signatures: bool) -> NewMember {
    NewMember {
        name: name.to_owned(),
        address: Some(address.parse().unwrap()),
        sends: false,
        checks_signatures,
        public_key: None,
        oscore: None,
    }
}

/// Returns three new members. Their addresses have the IP version of the group's address `at`.
fn three(at: SocketAddr) -> [NewMember; 3] {
    let net = if at.is_ipv4() { "10.0.0." } else { "fd00::" };
    [("hall", 1), ("porch", 2), ("attic", 3)].map(|(name, host)| member(name, &format!("{net}{host}"), true))
}

async fn keys<S: Store>(controller: &Controller<S>, name: &str) -> Keys {
    Keys::new(&controller.parameters(LAMPS, name).await.unwrap().admission()).unwrap()
}

/// Passes the messages that the listener receives to a member, up to the message that begins this epoch. Returns these
/// messages.
async fn hear(listener: &Arc<Listener>, keys: &mut Keys, signer: &SoftwareKey, epoch: u16) -> Vec<Vec<u8>> {
    let crypto = &mut HostCrypto::from_os().unwrap();
    let mut heard = Vec::new();
    loop {
        let listening = Arc::clone(listener);
        let message = tokio::task::spawn_blocking(move || listening.hear()).await.unwrap();
        let opened = keys.open(crypto, Some(signer.public_key()), &message);
        let is_epoch = message[0] == 3 && message[1..3] == epoch.to_be_bytes();
        heard.push(message);
        if is_epoch {
            assert_eq!((opened, keys.epoch()), (Ok(Rekeyed::Epoch), epoch), "the messages come in their order");
            return heard;
        }
    }
}

/// Receives a number of messages, and discards them.
async fn hear_again(listener: &Arc<Listener>, messages: usize) {
    let listener = Arc::clone(listener);
    tokio::task::spawn_blocking(move || (0..messages).for_each(|_| drop(listener.hear()))).await.unwrap();
}

async fn until(mut is_true: impl AsyncFnMut() -> bool) {
    let all = async {
        while !is_true().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), all).await.expect("it comes true");
}

#[tokio::test]
async fn members_hear_each_change_and_hear_it_again_and_an_evicted_one_opens_nothing() {
    let (scene, signer, listener) = (Scene::new("sending"), software_key(), Arc::new(Listener::new()));
    let running = start(scene.database(), &signer, sending(2, Duration::from_millis(100), "127.0.0.1"));
    let at = listener.at(GROUP);
    running.controller.create(LAMPS, GroupConfig { address: at, ..config() }, &three(at)).await.unwrap();
    let (mut hall, mut attic) = (keys(&running.controller, "hall").await, keys(&running.controller, "attic").await);
    running.controller.rekey(LAMPS).await.unwrap();
    let first = hear(&listener, &mut hall, &signer, 2).await;
    assert_eq!(first.len(), 1, "a periodic change is one message");
    let mut porch = keys(&running.controller, "porch").await;
    running.controller.evict(LAMPS, "attic").await.unwrap();
    let mut second = hear(&listener, &mut hall, &signer, 3).await;
    // Repetitions of the epoch 2 may be on their way.
    second.retain(|message| *message != first[0]);
    let crypto = &mut HostCrypto::from_os().unwrap();
    for message in first.iter().chain(&second) {
        let opened = attic.open(crypto, Some(signer.public_key()), message);
        assert!(!matches!(opened, Ok(Rekeyed::Nodes)), "an evicted member has a new secret");
    }
    assert_eq!(attic.epoch(), 2);
    // A member that heard nothing the first time hears the same later.
    hear(&listener, &mut porch, &signer, 3).await;
    hear_again(&listener, second.len()).await;
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(listener.hears_nothing(), "two repetitions are over");
    let counts = running.outbox.counts();
    assert_eq!((counts.epochs, counts.failures), (2, 0));
}

#[tokio::test]
async fn a_controller_that_was_killed_sends_the_last_change_again() {
    let (scene, signer, listener) = (Scene::new("resend"), software_key(), Arc::new(Listener::new()));
    let at = listener.at(GROUP);
    let (mut hall, mut porch) = {
        // It is killed before it sends.
        let (controller, _) = controller(scene.database(), &signer);
        controller.create(LAMPS, GroupConfig { address: at, ..config() }, &three(at)).await.unwrap();
        let members = (keys(&controller, "hall").await, keys(&controller, "porch").await);
        controller.evict(LAMPS, "attic").await.unwrap();
        members
    };
    assert!(listener.hears_nothing());
    // It is killed before the repetitions.
    let running = start(scene.database(), &signer, sending(3, Duration::from_secs(3600), "127.0.0.1"));
    hear(&listener, &mut hall, &signer, 2).await;
    running.kill().await;
    let running = start(scene.database(), &signer, sending(0, Duration::ZERO, "127.0.0.1"));
    hear(&listener, &mut porch, &signer, 2).await;
    assert_eq!(hall.master_secret::<HostCrypto>().expose(), porch.master_secret::<HostCrypto>().expose());
    assert_eq!(running.outbox.counts().epochs, 0, "it has begun no epoch");
}

#[tokio::test]
async fn members_hear_a_change_whose_caller_is_gone() {
    let (scene, signer, listener) = (Scene::new("unheard"), software_key(), Arc::new(Listener::new()));
    // The second transaction is the eviction.
    let store = Counting::new(scene.database(), Some((1, Moment::NoAnswer)));
    let running = start(store.clone(), &signer, sending(0, Duration::ZERO, "127.0.0.1"));
    let at = listener.at(GROUP);
    running.controller.create(LAMPS, GroupConfig { address: at, ..config() }, &three(at)).await.unwrap();
    let mut hall = keys(&running.controller, "hall").await;
    tokio::select! {
        result = running.controller.evict(LAMPS, "attic") => panic!("{:?}", result.err()),
        () = until(async || store.has_promised()) => {}
    }
    hear(&listener, &mut hall, &signer, 2).await;
    // The next change follows the one that nobody waited for.
    running.controller.rekey(LAMPS).await.unwrap();
    hear(&listener, &mut hall, &signer, 3).await;
    let report = running.controller.show(LAMPS).await.unwrap();
    assert_eq!((report.epoch, report.members.len()), (3, 2));
}

#[tokio::test]
async fn a_member_that_checks_no_signatures_gets_its_messages_alone() {
    let (scene, signer, listener) = (Scene::new("alone"), software_key(), Arc::new(Listener::new()));
    let alone = Listener::of(UdpSocket::bind(listener.at(Ipv4Addr::new(127, 0, 0, 3))).unwrap());
    let running = start(scene.database(), &signer, sending(0, Duration::ZERO, "127.0.0.1"));
    let members = [
        member("hall", "127.0.0.2", true),
        member("porch", "127.0.0.3", false),
        member("attic", "127.0.0.4", true),
        member("cellar", "127.0.0.5", true),
    ];
    let config = GroupConfig { address: listener.at(GROUP), ..config() };
    running.controller.create(LAMPS, config, &members).await.unwrap();
    let mut porch = keys(&running.controller, "porch").await;
    let mut cellar = keys(&running.controller, "cellar").await;
    running.controller.evict(LAMPS, "hall").await.unwrap();
    let epoch = hear(&listener, &mut cellar, &signer, 2).await.pop().unwrap();
    let message = tokio::task::spawn_blocking(move || alone.hear()).await.unwrap();
    assert_eq!((message.len(), message[0]), (39, 2), "a message for this member, without a signature");
    let crypto = &mut HostCrypto::from_os().unwrap();
    assert_eq!(porch.open(crypto, None, &message), Ok(Rekeyed::Nodes));
    assert_eq!(porch.open(crypto, None, &epoch), Ok(Rekeyed::Epoch));
}

#[tokio::test]
async fn messages_go_over_ipv6_by_the_interface() {
    let Some((listener, interface)) = Listener::v6() else {
        eprintln!("no interface has a route for IPv6 multicast");
        return;
    };
    let (scene, signer, listener) = (Scene::new("ipv6"), software_key(), Arc::new(listener));
    let running = start(scene.database(), &signer, sending(0, Duration::ZERO, &interface));
    let config = GroupConfig { address: listener.at(GROUP_V6), ..config() };
    running.controller.create(LAMPS, config, &three(config.address)).await.unwrap();
    let mut hall = keys(&running.controller, "hall").await;
    running.controller.evict(LAMPS, "attic").await.unwrap();
    hear(&listener, &mut hall, &signer, 2).await;
}

#[tokio::test]
async fn an_interface_that_is_not_there_does_not_stop_an_eviction() {
    let (scene, signer, listener) = (Scene::new("unreachable"), software_key(), Arc::new(Listener::new()));
    let at = listener.at(GROUP);
    let mut interfaces = sending(0, Duration::ZERO, "nowhere");
    interfaces.interfaces = [("doors".to_owned(), "127.0.0.1".to_owned())].into();
    let running = start(scene.database(), &signer, interfaces);
    let controller = &running.controller;
    for name in [LAMPS, "doors"] {
        controller.create(name, GroupConfig { address: at, ..config() }, &three(at)).await.unwrap();
    }
    controller.evict(LAMPS, "attic").await.unwrap();
    assert_eq!(controller.show(LAMPS).await.unwrap().members.len(), 2);
    until(async || running.outbox.counts().failures >= 2).await;
    assert_eq!(running.outbox.counts(), GroupCounts { epochs: 1, messages: 0, ..running.outbox.counts() });
    // A group with another interface is not concerned.
    controller.evict("doors", "attic").await.unwrap();
    let hearing = Arc::clone(&listener);
    assert_eq!(tokio::task::spawn_blocking(move || hearing.hear()).await.unwrap()[0], 1);
}
