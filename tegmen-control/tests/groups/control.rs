//! Tests of the requests of a Group Manager to the `control_uri` of the members of a Group OSCORE group.

use super::oscore::{Joined, LAMP, SWITCH, oscore, post, request, roles};
use super::server::{SHARED_KEY, World};
use super::verifiers::scope;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::crypto::SignatureScheme;
use tegmen_control::group::send_to_members;
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::contexts::{Contexts, MemberFile};
use tegmen_host::controller::{CONTROL_IDENTITY, Controller, ControllerError, OscoreJoining, OscorePace, control_key};
use tegmen_host::credentials::Credentials;
use tegmen_host::group::groupcomm::GROUPCOMM_CBOR;
use tegmen_host::group::groupcomm::oscore::OscoreJoinRequest;
use tegmen_host::problem::{self, Problem};
use tegmen_host::uri::Scheme;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;

const PATH: &str = "/ace-group/lamps/node";

/// Returns a UDP port of 127.0.0.1 that nobody uses.
fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts to send messages to the members.
fn start(world: &World) -> JoinHandle<()> {
    let (controller, authority) = (Arc::clone(&world.controller), Arc::clone(&world.authority));
    tokio::spawn(async move { send_to_members(&controller, &authority).await })
}

/// A server that keeps the keys of a member current. It asks for keys only at its start.
struct Following {
    /// `Ok` for each epoch whose keys the member installs, and `Err(true)` for the end of the membership.
    reports: UnboundedReceiver<Result<(), bool>>,
    task: JoinHandle<()>,
    joined: Joined,
}

impl Following {
    fn of(joined: Joined) -> Self {
        let credentials = Credentials::default();
        let contexts =
            Contexts::open(std::slice::from_ref(&joined.dir), |name, allow| credentials.learn(name, allow)).unwrap();
        let [member] = contexts.members() else { panic!("one member") };
        let hour = Duration::from_secs(3600);
        let pace = OscorePace { check: hour, jitter: Duration::ZERO, shortest: hour, poll: hour };
        let (sender, reports) = unbounded_channel();
        let report = move |result: Result<(), &ControllerError>| {
            sender.send(result.map_err(|error| matches!(error, ControllerError::NotAMember(_)))).unwrap();
        };
        let (controller, member) = (joined.controller.clone(), member.clone());
        let task = tokio::spawn(async move {
            let _contexts = contexts;
            controller.follow_oscore(&member, &credentials, pace, report).await;
        });
        Self { reports, task, joined }
    }

    fn epoch(&self) -> u16 {
        MemberFile::read(&self.joined.dir).unwrap().manager.unwrap().epoch
    }

    /// Waits until the member has installed the keys of this epoch.
    async fn reach(&mut self, epoch: u16) {
        assert_eq!(self.reports.recv().await, Some(Ok(())));
        assert_eq!(self.epoch(), epoch);
    }
}

#[tokio::test]
async fn a_member_with_a_control_uri_gets_each_rekeying_and_the_message_of_its_eviction() {
    let world = World::new("control-followed", oscore(SignatureScheme::ED25519), false).await;
    let port = free_port();
    let hall = world.join_at("hall", LAMP, Some(port)).await.unwrap();
    let uri = MemberFile::read(&hall.dir).unwrap().manager.unwrap().control_uri;
    assert_eq!(uri, Some(format!("coaps://127.0.0.1:{port}{PATH}")));
    let sending = start(&world);
    let mut hall = Following::of(hall);
    world.joined("switch", SWITCH).await;
    hall.reach(3).await;
    world.controller.rekey("lamps").await.unwrap();
    hall.reach(4).await;
    world.controller.evict("lamps", "switch").await.unwrap();
    hall.reach(5).await;
    assert!(MemberFile::read(&hall.joined.dir).unwrap().others.is_empty());

    // A Group Manager that starts again sends the keys of the epoch that began meanwhile.
    sending.abort();
    assert!(sending.await.unwrap_err().is_cancelled());
    world.controller.rekey("lamps").await.unwrap();
    assert_eq!(hall.epoch(), 5);
    let _sending = start(&world);
    hall.reach(6).await;

    world.controller.evict("lamps", "hall").await.unwrap();
    assert_eq!(hall.reports.recv().await, Some(Err(true)));
    hall.task.await.unwrap();
    UdpSocket::bind(("127.0.0.1", port)).expect("the port is free again");
}

#[tokio::test]
async fn a_device_without_the_right_gets_no_keys_at_its_control_uri() {
    let world = World::new("control-right", oscore(SignatureScheme::ED25519), false).await;
    let port = free_port();
    let mut hall = Following::of(world.join_at("hall", LAMP, Some(port)).await.unwrap());
    let _sending = start(&world);
    world.controller.rekey("lamps").await.unwrap();
    hall.reach(3).await;
    let policy = "[[rule]]\nsubject = \"switch\"\npublisher = \"controller\"\nallow = \"POST /ace-group/lamps\"\n";
    world.service.apply_policy("operator", ("policy.toml", policy), None).await.unwrap();
    world.controller.rekey("lamps").await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(hall.epoch(), 3);
    assert!(hall.reports.try_recv().is_err());
    hall.task.abort();
}

#[tokio::test]
async fn only_the_group_manager_is_served_at_a_control_uri() {
    let world = World::new("control-strangers", oscore(SignatureScheme::ED25519), false).await;
    let port = free_port();
    let to = SocketAddr::from(([127, 0, 0, 1], port));
    let mut hall = Following::of(world.join_at("hall", LAMP, Some(port)).await.unwrap());
    let connect = async |identity: &str, key: &[u8]| {
        let config = ClientConfig::psk(identity, key).with(|config| config.recovery.reconnect = false);
        Session::connect_to(to, Scheme::Coaps, config).await
    };
    let (right, of_doors) = (control_key(&SHARED_KEY, "lamps"), control_key(&SHARED_KEY, "doors"));
    // The key of the device itself, the key of another group, and another identity.
    let wrong: [(&str, &[u8]); 4] = [
        ("hall", &SHARED_KEY),
        (CONTROL_IDENTITY, &SHARED_KEY),
        (CONTROL_IDENTITY, of_doors.expose()),
        ("hall", right.expose()),
    ];
    let manager = loop {
        match connect(CONTROL_IDENTITY, right.expose()).await {
            // The server of the member does not run yet.
            Err(ClientError::Refused { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
            connected => break connected.unwrap(),
        }
    };
    for (identity, key) in wrong {
        let refused = connect(identity, key).await.err();
        assert!(matches!(refused, Some(ClientError::IdentityOrKey { .. })), "{identity}: {refused:?}");
    }
    let code = async |method: Code, path: &str, format: u16| {
        manager.request(method, path).payload(&[0xa0]).content_format(format).await.unwrap().code
    };
    assert_eq!(code(Code::POST, "/ace-group/lamps", GROUPCOMM_CBOR).await, Code::NOT_FOUND);
    assert_eq!(code(Code::GET, PATH, GROUPCOMM_CBOR).await, Code::METHOD_NOT_ALLOWED);
    assert_eq!(code(Code::POST, PATH, 60).await, Code::UNSUPPORTED_CONTENT_FORMAT);
    assert_eq!(code(Code::POST, PATH, GROUPCOMM_CBOR).await, Code::BAD_REQUEST);
    assert_eq!(hall.reports.recv().await, Some(Err(false)), "the message is malformed");
    // The member asks, and is still a member: a DELETE request from before it joined again has no effect.
    assert_eq!(manager.delete(PATH).await.unwrap().code, Code::DELETED);
    assert!(!hall.task.is_finished());
    hall.task.abort();
}

#[tokio::test]
async fn a_control_uri_that_the_group_manager_cannot_use_is_refused() {
    let world = World::new("control-refused", oscore(SignatureScheme::ED25519), false).await;
    let hall = world.device("hall").await;
    let long = format!("coaps://127.0.0.1/{}", "a".repeat(240));
    let refused = async |session: &Session, uri: &str| {
        let control_uri = Some(uri.to_owned());
        let reply = post(session, &OscoreJoinRequest { control_uri, ..request(LAMP) }).await;
        assert_eq!(
            (reply.code, reply.content_format()),
            (Code::BAD_REQUEST, Some(problem::CONTENT_FORMAT.into())),
            "{uri}"
        );
        Problem::from_cbor(&reply.payload).unwrap().detail.unwrap()
    };
    for (uri, why) in [
        (long.as_str(), "255 bytes"),
        ("127.0.0.1", "no URI"),
        ("http://127.0.0.1/a", "no URI"),
        ("coap://127.0.0.1/a", "not coaps"),
        ("coaps://127.0.0.2/a", "not the IP address"),
        ("coaps://[::1]/a", "not the IP address"),
        ("coaps://localhost/a", "not the IP address"),
        ("coaps://127.0.0.1", "no path"),
        ("coaps://127.0.0.1/ace-group/lamps", "the path of the group"),
        ("coaps://127.0.0.1/a?b", "a query"),
    ] {
        let detail = refused(&hall, uri).await;
        assert!(detail.contains(why), "{uri}: {detail}");
        assert!(world.logged(&detail));
    }
    assert_eq!(world.controller.show("lamps").await.unwrap().size, 0);
    // A right URI, with the other form of its address: the Group Manager demands the proof.
    let control_uri = Some("coaps://[::ffff:127.0.0.1]:9/a".to_owned());
    let reply = post(&hall, &OscoreJoinRequest { control_uri, ..request(LAMP) }).await;
    assert_eq!((reply.code, reply.content_format()), (Code::BAD_REQUEST, Some(GROUPCOMM_CBOR.into())));
}

#[tokio::test]
async fn a_control_uri_of_a_device_without_a_key_is_refused() {
    // The device has a token, whose key is only for sessions that the device opens.
    let world = World::new("control-token", oscore(SignatureScheme::ED25519), true).await;
    let (identity, secret) = world.upload_token("hall", scope("lamps", 4)).await.unwrap();
    let uri = format!("coaps://{}/ace-group/lamps", world.server.addresses()[0].address);
    let controller = Controller::of_group(&uri, ClientConfig::psk(&identity, secret.as_slice())).unwrap();
    let join = async |control_port| {
        let joining = OscoreJoining { name: "hall".to_owned(), roles: roles(LAMP), allow: None, control_port };
        controller.join_oscore(&world.scene.0.join("hall"), &joining).await
    };
    let refused = join(Some(9)).await.err().unwrap();
    let reason = match &refused {
        ControllerError::Forbidden { reason: Some(reason), .. } => reason.as_str(),
        other => panic!("{other}"),
    };
    assert!(reason.contains("does not support this control_uri") && reason.ends_with("observe the group instead."));
    join(None).await.unwrap();
}

#[tokio::test]
async fn a_member_that_cannot_listen_observes_its_group() {
    let world = World::new("control-taken", oscore(SignatureScheme::ED25519), false).await;
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut hall = Following::of(world.join_at("hall", LAMP, Some(port)).await.unwrap());
    assert_eq!(hall.reports.recv().await, Some(Err(false)), "the port is taken");
    world.controller.rekey("lamps").await.unwrap();
    hall.reach(3).await;
    hall.task.abort();
}
