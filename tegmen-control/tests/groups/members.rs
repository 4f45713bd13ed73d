//! Tests of members on hosts. The members join a group over DTLS. A switch sends requests to lamps over real multicast.
#![cfg(target_os = "linux")]

use super::server::{SHARED_KEY, World};
use super::world::{config, member};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tegmen::axiom::{Association, GroupNumber, Kept, KeyPath, Member, Opened, Signatures};
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen::crypto::SignatureScheme;
use tegmen::dtls::Records;
use tegmen_control::group::{GroupConfig, NewMember};
use tegmen_host::client::{AskedMembers, ClientConfig, Request, ask_members};
use tegmen_host::controller::{Controller, ControllerError, Joining, Pace};
use tegmen_host::group::{MemberSettings, Membership, MembershipError, MembershipEvent};
use tegmen_host::provider::HostCrypto;
use tegmen_host::server::{Event, Router, Server, ServerConfig};
use tegmen_host::x509::signer::{Signer as _, SoftwareKey};

/// The controller of a group, and the addresses of the members, all on one machine.
pub(super) struct Network {
    world: World,
    /// Returns the address of the member with this number. The number is the last byte of an IPv4 address, or the last
    /// 16 bits of an IPv6 address.
    address: fn(u8) -> IpAddr,
    interface: Option<&'static str>,
    multicast: UdpSocket,
}

fn v4(member: u8) -> IpAddr {
    IpAddr::from([127, 0, 77, member])
}

fn v6(member: u8) -> IpAddr {
    IpAddr::from([0xfd00, 0xa, 0, 0, 0, 0, 0, u16::from(member)])
}

/// A lamp: its CoAP server, its membership, the log of its events, and the task that follows the controller.
struct Lamp {
    server: Server,
    membership: Membership,
    log: Arc<Mutex<Vec<String>>>,
    follower: tokio::task::JoinHandle<()>,
}

impl Lamp {
    fn logged(&self, part: &str) -> bool {
        self.log.lock().unwrap().iter().any(|line| line.contains(part))
    }

    async fn wait_for(&self, part: &str) {
        let start = Instant::now();
        while !self.logged(part) {
            assert!(start.elapsed() < Duration::from_secs(20), "{part}: {:?}", self.log.lock().unwrap());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends the task, and then the server.
    async fn stop(self) {
        self.follower.abort();
        let _ = self.follower.await;
        self.server.stop();
    }
}

const QUICK: Pace = Pace {
    jitter: Duration::from_millis(20),
    shortest: Duration::from_millis(20),
    longest: Duration::from_millis(200),
};
const P256: Option<SignatureScheme> = Some(SignatureScheme::ECDSA_SECP256R1_SHA256);
const LEISURE: Duration = Duration::from_millis(100);
const WAIT: Duration = Duration::from_millis(1200);

impl Network {
    /// Makes a network with IPv4 multicast on the loopback interface.
    pub(super) async fn over_v4(name: &str, group: &str, signature: Option<SignatureScheme>) -> Self {
        let group: SocketAddr = group.parse().unwrap();
        let multicast = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket2::SockRef::from(&multicast).set_multicast_if_v4(&[127, 0, 0, 1].into()).unwrap();
        Self::new(name, (group, signature), (v4, None), multicast).await
    }

    async fn new(
        name: &str,
        (group, signature): (SocketAddr, Option<SignatureScheme>),
        (address, interface): (fn(u8) -> IpAddr, Option<&'static str>),
        multicast: UdpSocket,
    ) -> Self {
        let config = GroupConfig { address: group, signature, ..config() };
        Self { world: World::new(name, config, false).await, address, interface, multicast }
    }

    pub(super) fn controller(&self, device: &str) -> Controller {
        let uri = format!("coaps://{}/ace-group/lamps", self.world.server.addresses()[0].address);
        Controller::of_group(&uri, ClientConfig::psk(device, SHARED_KEY)).unwrap()
    }

    pub(super) fn dir(&self, device: &str) -> PathBuf {
        self.world.scene.0.join(device)
    }

    pub(super) async fn join(&self, device: &str, number: u8, sends: bool) -> Membership {
        let joining = Joining { address: Some((self.address)(number)), listens: true, sends };
        let settings = MemberSettings { interface: self.interface.map(str::to_owned), ..MemberSettings::default() };
        self.controller(device).join(&self.dir(device), joining, &settings).await.unwrap()
    }

    async fn lamp(&self, device: &str, number: u8) -> Lamp {
        self.light(device, self.join(device, number, false).await)
    }

    /// Starts the server of a lamp and the task that follows the controller.
    fn light(&self, device: &str, membership: Membership) -> Lamp {
        let log = Arc::<Mutex<Vec<String>>>::default();
        let config = ServerConfig::default().with(|config| (config.shards, config.coap.leisure) = (1, LEISURE));
        let builder = Server::with(config);
        let builder = builder.member_of(membership.clone()).on_event({
            let log = Arc::clone(&log);
            move |event: Event| log.lock().unwrap().push(event.to_string())
        });
        let name = device.to_owned();
        let router = Router::new().put("/light", move |request, response| {
            response.payload(&[name.as_bytes(), b" is ", request.payload()].concat())
        });
        let (server, controller, follower) =
            (builder.serve(router).unwrap(), self.controller(device), membership.clone());
        let follower = tokio::spawn(async move { controller.follow(&follower, QUICK).await });
        Lamp { server, membership, log, follower }
    }

    /// Sends the messages of the controller to the members, except the messages for which `is_lost` returns true.
    fn send_all(&self, is_lost: impl Fn(&[u8]) -> bool) {
        for message in std::mem::take(&mut *self.world.sent.lock().unwrap()) {
            if !is_lost(&message.bytes) {
                self.multicast.send_to(&message.bytes, message.to).unwrap();
            }
        }
    }

    /// Sends the messages of the controller to the members.
    pub(super) fn send_to_members(&self) {
        self.send_all(|_| false);
    }

    /// Sends all messages of the controller, and waits until the lamps are in the epoch of the controller.
    async fn rekeyed(&self, lamps: &[&Lamp]) {
        self.send_all(|_| false);
        let epoch = self.world.controller.show("lamps").await.unwrap().epoch;
        for lamp in lamps {
            lamp.wait_for(&format!("epoch {epoch}")).await;
            assert_eq!(lamp.membership.epoch(), epoch);
        }
    }
}

/// Sends a request to the lamps. Returns the response of each lamp by its address, and the summary of the request.
async fn switch(membership: &Membership, value: &str) -> (BTreeMap<IpAddr, String>, AskedMembers) {
    let mut answers = BTreeMap::new();
    let request = Request::new(Code::PUT, "/light").payload(value.as_bytes());
    let asked = ask_members(membership, &request, WAIT, |from, response| {
        assert!(response.code.is_success(), "{:?}", response.code);
        let before = answers.insert(from.ip(), String::from_utf8(response.payload).unwrap());
        assert_eq!(before, None, "{from} answers once");
    });
    let asked = asked.await.unwrap();
    (answers, asked)
}

/// Checks that all lamps answer the switch. Then evicts one lamp, and checks that it no longer answers, and that the
/// others still do.
async fn lights(network: Network) {
    let hall = network.lamp("hall", 1).await;
    let porch = network.lamp("porch", 2).await;
    network.rekeyed(&[&hall]).await;
    let oven = network.join("switch", 9, true).await;
    network.rekeyed(&[&hall, &porch]).await;
    let all = BTreeMap::from([
        ((network.address)(1), "hall is on".to_owned()),
        ((network.address)(2), "porch is on".to_owned()),
    ]);
    if network.world.controller.signature("lamps").await.unwrap().is_some() {
        // The lamps were there first: they ask for the public key of the switch.
        assert_eq!(switch(&oven, "on").await.0.len(), 0);
        for lamp in [&hall, &porch] {
            lamp.wait_for("the public key of a member is missing").await;
            lamp.wait_for("nothing was missed").await;
        }
    }
    let (answers, asked) = switch(&oven, "on").await;
    assert_eq!(answers, all, "{asked:?} {:?} {:?}", hall.log, porch.log);
    assert_eq!((asked.missing.len(), asked.challenged.len()), (0, 0), "the controller spared the challenge");

    let rekeying = network.world.controller.evict("lamps", "porch").await.unwrap();
    network.world.sent.lock().unwrap().extend(rekeying.messages);
    network.rekeyed(&[&hall]).await;
    porch.wait_for("has evicted this member").await;
    assert!(porch.membership.is_evicted());
    assert!(network.controller("switch").catch_up(&oven).await.unwrap(), "the switch heard nothing");
    let (answers, asked) = switch(&oven, "off").await;
    assert_eq!(answers, BTreeMap::from([((network.address)(1), "hall is off".to_owned())]));
    assert_eq!(asked.missing, [(network.address)(2)], "it answered before");

    // A restart needs no new admission, and an evicted member stays one.
    porch.stop().await;
    hall.stop().await;
    let again = Membership::open(&network.dir("porch")).unwrap();
    assert!(again.is_evicted());
    let hall = network.light("hall", Membership::open(&network.dir("hall")).unwrap());
    let (answers, asked) = switch(&oven, "on").await;
    assert_eq!(answers, BTreeMap::from([((network.address)(1), "hall is on".to_owned())]), "after a challenge");
    assert_eq!((asked.challenged.len(), asked.missing.len()), (0, 1));
    hall.stop().await;
}

#[tokio::test]
async fn lamps_answer_a_switch_and_an_evicted_one_does_not() {
    lights(Network::over_v4("lights", "239.255.77.1:20771", None).await).await;
}

#[tokio::test]
async fn lamps_answer_a_switch_with_signatures() {
    lights(Network::over_v4("lights-p256", "239.255.77.5:20775", P256).await).await;
    lights(Network::over_v4("lights-ed25519", "239.255.77.6:20776", Some(SignatureScheme::ED25519)).await).await;
}

/// The signatures of a member that signs with a private key whose public key the controller does not have. The fields
/// are the private key and the identity of the group.
struct Forged<'k>(&'k SoftwareKey, [u8; 16]);

impl Signatures for Forged<'_> {
    fn scheme(&self) -> Option<SignatureScheme> {
        Some(self.0.scheme())
    }

    fn group(&self) -> &[u8; 16] {
        &self.1
    }

    fn sign(&mut self, digest: &[u8; 32], out: &mut [u8; 72]) -> Option<usize> {
        let signature = self.0.sign_digest(digest).ok()?;
        out[..signature.len()].copy_from_slice(&signature);
        Some(signature.len())
    }

    fn key_of_sender(&mut self, _: u8) -> Option<&[u8]> {
        None
    }

    fn key_of_listener(&mut self, _: &[u8; 16]) -> Option<&[u8]> {
        None
    }

    fn note(&mut self, _: GroupNumber, _: &[u8]) {}

    fn asked(&self, _: u8, _: &[u8]) -> Option<GroupNumber> {
        None
    }
}

/// Sends a request to the lamps under the SenderID of the switch, although the sender has only the keys of the member
/// `porch`. Returns the length in bytes of a lamp's response; `None` if no lamp responds.
async fn forge(network: &Network, switch: &Membership, signatures: impl Signatures) -> Option<usize> {
    let crypto = &mut HostCrypto::from_os().unwrap();
    let keys = network.world.controller.parameters("lamps", "porch").await.unwrap();
    let master = KeyPath::<8>::new(&keys.admission()).unwrap().master_secret::<HostCrypto>();
    let association = Association { sender_id: switch.sender_id(), ..keys.association(keys.epoch, &master) };
    let mut forger = Member::<1, 1, 16, _>::with(signatures);
    forger.begin(crypto, &association, &Kept::default()).unwrap();
    // Far behind the numbers of the switch.
    forger.extend(&forger.reserve(1000, 1000));
    let mut record = Vec::new();
    for _ in 0..600 {
        let mut storage = [0; 256];
        let mut frame = Frame::new(&mut storage, forger.overhead().0);
        let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, Code::PUT, 7, b"forged!").unwrap();
        builder.option(OptionNumber::URI_PATH, b"light").unwrap();
        builder.payload(b"on").unwrap();
        forger.seal_request(crypto, &mut frame).unwrap();
        record = frame.finish().to_vec();
    }
    let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket2::SockRef::from(&socket).set_multicast_if_v4(&[127, 0, 0, 1].into()).unwrap();
    socket.send_to(&record, switch.group()).await.unwrap();
    let mut buffer = [0; 1500];
    tokio::time::timeout(WAIT, socket.recv_from(&mut buffer)).await.ok().map(|received| received.unwrap().0)
}

#[tokio::test]
async fn a_member_cannot_speak_as_another_sender() {
    for (name, group, signature) in
        [("speaks", "239.255.77.7:20777", None), ("speaks-p256", "239.255.77.8:20778", P256)]
    {
        let network = Network::over_v4(name, group, signature).await;
        let hall = network.lamp("hall", 31).await;
        let porch = network.join("porch", 32, false).await;
        let oven = network.join("switch", 39, true).await;
        network.rekeyed(&[&hall]).await;
        let answered = match signature {
            None => forge(&network, &oven, ()).await,
            Some(scheme) => {
                let key = SoftwareKey::draw(scheme).unwrap().0;
                let group = network.world.controller.show("lamps").await.unwrap().identity;
                forge(&network, &oven, Forged(&key, group)).await
            }
        };
        assert_eq!(answered.is_some(), signature.is_none(), "a lamp that takes it for one of the switch answers it");
        if signature.is_some() {
            // The lamp asked for the keys of members, and the numbers of the switch are as they were.
            hall.wait_for("the public key of a member is missing").await;
            hall.wait_for("nothing was missed").await;
            let answers = switch(&oven, "off").await.0;
            assert_eq!(answers.into_values().collect::<Vec<_>>(), ["hall is off"]);
            // An unsigned record of a member is none here.
            assert_eq!(forge(&network, &oven, ()).await, None);
        }
        drop(porch);
        hall.stop().await;
    }
}

/// Receives a request to the group as the member `hall` over `listener`. Then sends two different responses with the
/// same number, as two listeners do that have the address of `hall` and its keys.
async fn answer_twice(network: &Network, listener: &tokio::net::UdpSocket, group: SocketAddr) {
    let crypto = &mut HostCrypto::from_os().unwrap();
    let keys = network.world.controller.parameters("lamps", "hall").await.unwrap();
    let master = KeyPath::<8>::new(&keys.admission()).unwrap().master_secret::<HostCrypto>();
    let own = tokio::net::UdpSocket::bind(((network.address)(51), group.port())).await.unwrap();
    let mut buffer = [0; 1500];
    let (len, from) = listener.recv_from(&mut buffer).await.unwrap();
    for payload in [b"hall is on", b"hall is ON"] {
        let mut hall = Member::<1, 1>::new(crypto, &keys.association(keys.epoch, &master), &Kept::default()).unwrap();
        hall.extend(&hall.reserve(8, 8));
        let mut request = buffer[..len].to_vec();
        let mut records = Records::new(&mut request);
        let record = records.next_record().unwrap().unwrap();
        let (sender, opened) = hall.open_request(crypto, record).unwrap();
        let (Opened::Fresh(content) | Opened::Unverified(content, _)) = opened else { panic!("{opened:?}") };
        let token = MessageRef::parse(content).unwrap().token().to_vec();
        let mut storage = [0; 256];
        let mut frame = Frame::new(&mut storage, hall.overhead().0);
        let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, Code::CHANGED, 7, &token).unwrap();
        builder.payload(payload).unwrap();
        hall.seal_response(crypto, sender, &mut frame).unwrap();
        own.send_to(frame.finish(), from).await.unwrap();
    }
}

#[tokio::test]
async fn a_sender_reports_two_listeners_with_one_address() {
    let network = Network::over_v4("clash", "239.255.77.10:20780", None).await;
    let hall = network.join("hall", 51, false).await;
    let oven = network.join("switch", 59, true).await;
    let events = Arc::<Mutex<Vec<_>>>::default();
    let seen = Arc::clone(&events);
    oven.on_event(Arc::new(move |group, event| seen.lock().unwrap().push((group.to_owned(), event))));
    let listener = tokio::net::UdpSocket::bind(oven.group()).await.unwrap();
    listener.join_multicast_v4([239, 255, 77, 10].into(), [127, 0, 0, 1].into()).unwrap();
    let ((answers, _), ()) = tokio::join!(switch(&oven, "on"), answer_twice(&network, &listener, oven.group()));
    assert_eq!(answers.into_values().collect::<Vec<_>>(), ["hall is on"]);
    assert_eq!(*events.lock().unwrap(), [("lamps".to_owned(), MembershipEvent::Clash { sender: None })]);
    drop(hall);
}

/// Sends a request to the lamps, as a copy of the program of the switch does: with its keys, its SenderID, and the numbers
/// from 0.
async fn send_from_copy(network: &Network, switch: &Membership) {
    let crypto = &mut HostCrypto::from_os().unwrap();
    let keys = network.world.controller.parameters("lamps", "switch").await.unwrap();
    let master = KeyPath::<8>::new(&keys.admission()).unwrap().master_secret::<HostCrypto>();
    let mut copy = Member::<1, 1>::new(crypto, &keys.association(keys.epoch, &master), &Kept::default()).unwrap();
    copy.extend(&copy.reserve(1, 1));
    let mut storage = [0; 256];
    let mut frame = Frame::new(&mut storage, copy.overhead().0);
    let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, Code::PUT, 7, b"of copy").unwrap();
    builder.option(OptionNumber::URI_PATH, b"light").unwrap();
    builder.payload(b"OFF").unwrap();
    copy.seal_request(crypto, &mut frame).unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket2::SockRef::from(&socket).set_multicast_if_v4(&[127, 0, 0, 1].into()).unwrap();
    socket.send_to(frame.bytes(), switch.group()).unwrap();
}

/// Two lamps receive two different requests with the same number. They report this to the controller. The switch gets
/// another SenderID when it asks for the keys, and the copy has no keys any more.
#[tokio::test]
async fn lamps_report_two_devices_with_one_sender_id() {
    let network = Network::over_v4("sender-ids", "239.255.77.11:20781", None).await;
    let hall = network.lamp("hall", 61).await;
    let porch = network.lamp("porch", 62).await;
    let oven = network.join("switch", 69, true).await;
    network.rekeyed(&[&hall, &porch]).await;
    assert_eq!(oven.sender_id(), Some(0));
    assert_eq!(switch(&oven, "on").await.0.len(), 2);
    let before = network.world.controller.show("lamps").await.unwrap().epoch;

    send_from_copy(&network, &oven).await;
    for lamp in [&hall, &porch] {
        lamp.wait_for("two devices use the SenderID 0: a member that follows its controller reports it").await;
        lamp.wait_for("the controller gave the keys of epoch").await;
    }
    let after = network.world.controller.show("lamps").await.unwrap();
    assert_eq!(after.epoch, before + 1, "the second report changes nothing");
    network.send_to_members();

    assert!(network.controller("switch").catch_up(&oven).await.unwrap());
    assert_eq!((oven.sender_id(), oven.epoch()), (Some(1), before + 2));
    network.rekeyed(&[&hall, &porch]).await;
    assert_eq!(switch(&oven, "off").await.0.len(), 2, "{:?}", hall.log);
    // A restart continues with the new SenderID, and its numbers.
    oven.abandon();
    let oven = Membership::open(&network.dir("switch")).unwrap();
    assert_eq!(oven.sender_id(), Some(1));
    assert_eq!(switch(&oven, "on").await.0.len(), 2);
    for lamp in [hall, porch] {
        assert_eq!(lamp.log.lock().unwrap().iter().filter(|line| line.contains("two devices")).count(), 2);
        lamp.stop().await;
    }
}

/// A member that joins again has another public key. So the other members drop its first request, and ask the
/// controller for its new key. A restart of the member loses no key.
#[tokio::test]
async fn members_follow_the_public_keys_of_the_others() {
    let network = Network::over_v4("keys", "239.255.77.9:20779", P256).await;
    let hall = network.lamp("hall", 41).await;
    let oven = network.join("switch", 49, true).await;
    network.rekeyed(&[&hall]).await;
    // The lamp was there first: it does not know the key of the switch, and drops its first request.
    assert_eq!(switch(&oven, "on").await.0.len(), 0);
    hall.wait_for("the public key of a member is missing").await;
    hall.wait_for("nothing was missed").await;
    assert_eq!(switch(&oven, "on").await.0.len(), 1);
    // Nor does a restart lose keys.
    oven.abandon();
    let oven = Membership::open(&network.dir("switch")).unwrap();
    assert_eq!(switch(&oven, "off").await.0.len(), 1);
    oven.remove().unwrap();
    let oven = network.join("switch", 49, true).await;
    network.rekeyed(&[&hall]).await;
    hall.log.lock().unwrap().clear();
    assert_eq!(switch(&oven, "on").await.0.len(), 0, "the lamp has its key before");
    hall.wait_for("the public key of a member is missing").await;
    hall.wait_for("nothing was missed").await;
    assert_eq!(switch(&oven, "on").await.0.len(), 1);
    let file = std::fs::read_to_string(network.dir("switch").join("member.toml")).unwrap();
    assert!(file.contains("private_key = "));
    hall.stop().await;
}

/// A member that missed the messages of an epoch notices this itself, and asks the controller for its keys.
#[tokio::test]
async fn a_member_that_missed_an_epoch_catches_up_by_itself() {
    let network = Network::over_v4("behind", "239.255.77.2:20772", None).await;
    let (hall, oven) = (network.lamp("hall", 11).await, network.join("switch", 19, true).await);
    network.rekeyed(&[&hall]).await;
    // The message of the epoch is lost, and the request shows that there is a later epoch.
    let mut rekeyings = Vec::new();
    let behind = loop {
        rekeyings.push(network.world.controller.rekey("lamps").await.unwrap());
        assert!(network.controller("switch").catch_up(&oven).await.unwrap());
        let answers = switch(&oven, "on").await.0.len();
        // A lamp that asks the controller just then is not behind.
        if answers == 0 || rekeyings.len() == 5 {
            break answers == 0;
        }
    };
    assert!(behind, "the lamp is an epoch behind");
    let rekeying = rekeyings.pop().unwrap();
    hall.wait_for(&format!("another member uses epoch {}", rekeying.epoch)).await;
    hall.wait_for(&format!("the controller gave the keys of epoch {}", rekeying.epoch)).await;
    assert_eq!(switch(&oven, "on").await.0.len(), 1);
    // Messages of nodes are lost: that of the epoch does not open.
    let attic = NewMember { address: None, ..member("attic", 77, false) };
    let rekeying = network.world.controller.admit("lamps", &attic).await.unwrap();
    network.world.sent.lock().unwrap().extend(rekeying.messages);
    network.send_all(|message| message[0] != 3);
    hall.wait_for("a message of the controller was missed").await;
    hall.wait_for(&format!("the controller gave the keys of epoch {}", rekeying.epoch)).await;
    // Garbage makes it ask, and changes nothing.
    let before = hall.membership.epoch();
    let mut forged = vec![3; 83];
    forged[1..3].copy_from_slice(&(before + 1).to_be_bytes());
    network.multicast.send_to(&forged, hall.membership.group()).unwrap();
    hall.wait_for("nothing was missed").await;
    assert_eq!(hall.membership.epoch(), before);
    hall.stop().await;
}

#[tokio::test]
async fn a_controller_that_refuses_or_is_not_there_is_named_with_the_next_step() {
    let network = Network::over_v4("refusals", "239.255.77.3:20773", None).await;
    let (dir, settings) = (network.dir("x"), MemberSettings::default());
    let at = |number| Joining { address: Some(v4(number)), listens: true, sends: true };
    let refused = network.controller("hall").join(&dir, at(21), &settings).await.unwrap_err();
    assert!(matches!(refused, ControllerError::Forbidden { .. }), "{refused}");
    assert!(refused.to_string().contains("the log of the controller has the cause"));
    assert!(!dir.exists(), "nothing is made");
    let oven = network.controller("switch").join(&dir, at(21), &settings).await.unwrap();
    let second = Membership::open(&dir).unwrap_err();
    assert!(matches!(second, MembershipError::InUse { .. }), "{second}");
    // Nobody is admitted whose membership could not be made: an admission takes the keys of the one that is there.
    let epoch = network.world.controller.show("lamps").await.unwrap().epoch;
    let again = network.controller("switch").join(&dir, at(21), &settings).await.unwrap_err();
    assert!(matches!(again, ControllerError::Membership(MembershipError::InUse { .. })), "{again}");
    let nowhere = MemberSettings { interface: Some("nowhere".to_owned()), ..settings.clone() };
    let elsewhere = network.controller("switch").join(&network.dir("y"), at(21), &nowhere).await.unwrap_err();
    assert!(elsewhere.to_string().contains("there is no such interface"), "{elsewhere}");
    assert_eq!(network.world.controller.show("lamps").await.unwrap().epoch, epoch);
    // The switch leaves, and the controller does not know it any more.
    let controller = network.controller("switch");
    controller.leave(&oven).await.unwrap();
    let gone = controller.catch_up(&oven).await.unwrap_err();
    assert!(matches!(gone, ControllerError::NotAMember(_)), "{gone}");
    let request = Request::new(Code::GET, "/light");
    let evicted = ask_members(&oven, &request, WAIT, |_, _| {}).await.unwrap_err();
    assert!(evicted.to_string().contains("join again"), "{evicted}");
    oven.remove().unwrap();
    assert!(!dir.exists());
    for wrong in ["coap://127.0.0.1/ace-group/lamps", "coaps://127.0.0.1/lamps", "coaps://127.0.0.1/ace-group/a/b"] {
        let error = Controller::of_group(wrong, ClientConfig::default()).unwrap_err();
        assert!(error.to_string().contains("coaps://host[:port]/ace-group/NAME"), "{error}");
    }
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = ClientConfig::psk("hall", SHARED_KEY);
    let controller = Controller::of_group(&format!("coaps://{nobody}/ace-group/lamps"), config).unwrap();
    let error = controller.join(&dir, at(22), &settings).await.unwrap_err();
    assert!(error.to_string().contains("is the server running"), "{error}");
}

/// Runs one test of this program in another process, in a new network namespace. In this namespace an interface has the
/// addresses of the members.
fn in_namespace(test: &str) {
    const SCRIPT: &str = "ip link set lo up && ip link add d0 type veth peer name d1 && ip link set d0 up && ip link set d1 up \
        && for n in 1 2 9; do ip -6 addr add fd00:a::$n/64 dev d0 nodad || exit 1; done && exec \"$@\"";
    let program = std::env::current_exe().unwrap();
    let done = Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "sh", "-c", SCRIPT, "sh"])
        .arg(program)
        .args(["--exact", test, "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn lamps_answer_a_switch_over_ipv6_multicast() {
    in_namespace("members::over_ipv6_in_a_namespace");
}

#[tokio::test]
#[ignore = "lamps_answer_a_switch_over_ipv6_multicast runs it in a network namespace"]
async fn over_ipv6_in_a_namespace() {
    let multicast = UdpSocket::bind("[::]:0").unwrap();
    let group: tegmen_host::group::Group = "ff15::1%d0".parse().unwrap();
    let SocketAddr::V6(scope) = group.at(0) else { panic!("an address of IPv6") };
    socket2::SockRef::from(&multicast).set_multicast_if_v6(scope.scope_id()).unwrap();
    let group = "[ff15::1]:20774".parse().unwrap();
    lights(Network::new("ipv6", (group, None), (v6, Some("d0")), multicast).await).await;
}
