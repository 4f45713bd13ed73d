//! Tests of the Group Manager of Group OSCORE groups: Sender IDs and Group Identifiers that are never repeated, joins
//! over real sockets, and attacks.

use super::server::{SHARED_KEY, World, labels};
use super::world::{Devices, LAMPS, Scene, config, member, wait};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageType};
use tegmen::crypto::{Curve, SignatureScheme};
use tegmen::oscore::group::{Mode, Replies};
use tegmen::oscore::{ProtectError, UnprotectError, Unprotected};
use tegmen_control::group::{Controller, GroupConfig, GroupError, NewMember, NewOscoreMember, Protocol};
use tegmen_host::client::{ClientConfig, Response, Session};
use tegmen_host::contexts::{ContextError, Contexts, MemberFile, StoredMember, member_keys};
use tegmen_host::controller::{self, ControllerError, OscoreJoining, OscorePace};
use tegmen_host::credentials::Credentials;
use tegmen_host::group::groupcomm::oscore::{
    KdcCred, OscoreChallenge, OscoreCred, OscoreCreds, OscoreFilter, OscoreJoinRequest, OscoreKeys, OscorePossession,
    OscoreRekeying, Roles, encode_names, subject_of,
};
use tegmen_host::group::groupcomm::{GROUPCOMM_CBOR, GroupcommError};
use tegmen_host::problem;
use tegmen_store::store::Transaction;
use tegmen_store::{Database, Store, Value, backup};
use tegmen_trust::provider::HostCrypto;

/// CoAP Content-Format of `application/cbor`.
const CBOR: u16 = 60;
pub(crate) const SWITCH: u64 = 2;
pub(crate) const LAMP: u64 = 4;
pub(crate) const MONITOR: u64 = 8;

/// Returns the configuration of a Group OSCORE group with 8 members.
pub(crate) fn oscore(scheme: SignatureScheme) -> GroupConfig {
    GroupConfig { protocol: Protocol::Oscore, signature: Some(scheme), ..config() }
}

pub(crate) fn roles(number: u64) -> Roles {
    Roles::of_number(number).unwrap()
}

/// Returns a new member with a key pair of its own.
fn new(name: &str, number: u64) -> NewMember {
    let private = member_keys::draw(&mut HostCrypto::from_os().unwrap(), Curve::Ed25519).unwrap();
    let credential = member_keys::credential(name, &member_keys::public_of(Curve::Ed25519, &private).unwrap());
    let oscore = Some(NewOscoreMember { roles: roles(number), cnonce: vec![1; 8], control_uri: None });
    NewMember { address: None, public_key: Some(credential), oscore, ..member(name, 1, false) }
}

/// The Group Identifiers that a group had, and the Sender IDs that it gave, each once.
#[derive(Default)]
struct Given {
    gids: BTreeSet<Vec<u8>>,
    secrets: BTreeSet<Vec<u8>>,
    ids: BTreeSet<Vec<u8>>,
}

impl Given {
    /// Notes that a change gave this member a Sender ID, and began an epoch.
    fn note<C: tegmen::crypto::Crypto>(&mut self, controller: &Controller<Database, C>, name: &str) {
        let (keys, _) = wait(controller.oscore_keys(LAMPS, name)).unwrap();
        assert!(self.ids.insert(keys.sender_id.clone().unwrap()), "{name} has a Sender ID of another member");
        self.epoch(&keys);
    }

    fn epoch(&mut self, keys: &OscoreKeys) {
        assert!(self.gids.insert(keys.gid.clone()), "the Group Identifier is repeated");
        assert!(self.secrets.insert(keys.master_secret.to_vec()), "the Master Secret is repeated");
    }
}

#[test]
fn a_sender_id_is_never_given_twice_and_no_gid_is_repeated() {
    let scene = Scene::new("oscore-ids");
    let (devices, database) = (Devices::new(), scene.database());
    let mut controller = devices.controller(database.clone());
    wait(controller.create(LAMPS, oscore(SignatureScheme::ED25519), &[])).unwrap();
    let mut given = Given::default();
    for round in 0..3 {
        for name in ["hall", "porch"] {
            wait(controller.admit(LAMPS, &new(name, LAMP))).unwrap();
            given.note(&controller, name);
        }
        // It joins again while it is a member, and gets another Sender ID on its own request.
        wait(controller.admit(LAMPS, &new("hall", LAMP))).unwrap();
        given.note(&controller, "hall");
        let (_, id) = wait(controller.renew_sender_id(LAMPS, "hall")).unwrap();
        given.note(&controller, "hall");
        assert!(given.ids.contains(&id));
        // A second controller of the store, which knows nothing of the first one, and the first one after it.
        let other = devices.controller(database.clone());
        wait(other.admit(LAMPS, &new("attic", SWITCH))).unwrap();
        given.note(&other, "attic");
        wait(controller.rekey(LAMPS)).unwrap();
        let kept = wait(controller.oscore_keys(LAMPS, "attic")).unwrap().0;
        given.epoch(&kept);
        assert!(given.ids.contains(&kept.sender_id.unwrap()), "a new epoch keeps the Sender IDs");
        for name in ["hall", "porch", "attic"] {
            wait(controller.evict(LAMPS, name)).unwrap();
        }
        // A controller that was killed, and starts again.
        if round == 1 {
            drop(controller);
            controller = devices.controller(database.clone());
        }
    }
    assert_eq!(given.ids.len(), 15);
}

#[test]
fn a_restored_backup_never_repeats_a_gid_or_a_sender_id() {
    let scene = Scene::new("oscore-restored");
    let (devices, database) = (Devices::new(), scene.database());
    let controller = devices.controller(database.clone());
    wait(controller.create(LAMPS, oscore(SignatureScheme::ED25519), &[])).unwrap();
    wait(controller.admit(LAMPS, &new("hall", LAMP))).unwrap();
    let file = scene.0.join("backup");
    database.backup(&file).unwrap();
    let mut given = Given::default();
    given.note(&controller, "hall");
    // These were given after the backup.
    wait(controller.admit(LAMPS, &new("porch", LAMP))).unwrap();
    given.note(&controller, "porch");
    drop((controller, database));
    let restored = scene.0.join("restored.db");
    backup::restore(&file, &restored, scene.options()).unwrap();
    let database = Database::open_with(&restored, scene.options()).unwrap();
    let controller = devices.controller(database);
    let refused =
        |result: Result<(), GroupError>| assert!(matches!(result, Err(GroupError::Restored(_))), "{result:?}");
    refused(wait(controller.admit(LAMPS, &new("attic", LAMP))).map(drop));
    refused(wait(controller.oscore_keys(LAMPS, "hall")).map(drop));
    refused(wait(controller.renew_sender_id(LAMPS, "hall")).map(drop));
    refused(wait(controller.rekey(LAMPS)).map(drop));
    // A new group of the same name has other Group Identifiers and secrets.
    wait(controller.delete(LAMPS, None)).unwrap();
    wait(controller.create(LAMPS, oscore(SignatureScheme::ED25519), &[])).unwrap();
    for name in ["hall", "porch"] {
        wait(controller.admit(LAMPS, &new(name, LAMP))).unwrap();
        given.epoch(&wait(controller.oscore_keys(LAMPS, name)).unwrap().0);
    }
}

#[test]
fn a_group_takes_members_of_its_own_protocol_alone() {
    let scene = Scene::new("oscore-kinds");
    let (devices, database) = (Devices::new(), scene.database());
    let controller = devices.controller(database);
    let wrong = GroupConfig { signature: None, ..oscore(SignatureScheme::ED25519) };
    assert!(matches!(wait(controller.create(LAMPS, wrong, &[])), Err(GroupError::Config(_))));
    let p256 = oscore(SignatureScheme::ECDSA_SECP256R1_SHA256);
    wait(controller.create(LAMPS, p256, &[])).unwrap();
    wait(controller.create("axiom", config(), &[])).unwrap();
    let admitted = |group, new| wait(controller.admit(group, &new)).map(drop);
    assert!(matches!(admitted("axiom", new("hall", LAMP)), Err(GroupError::OtherProtocol(_))));
    assert!(matches!(admitted(LAMPS, member("hall", 1, true)), Err(GroupError::OtherProtocol(_))));
    assert!(matches!(admitted(LAMPS, new("hall", LAMP)), Err(GroupError::OtherCredential(_))), "a key on Ed25519");
    let other_name = NewMember { name: "porch".to_owned(), ..new("hall", LAMP) };
    assert!(matches!(admitted(LAMPS, other_name), Err(GroupError::OtherCredential(_))));
    assert!(matches!(wait(controller.parameters(LAMPS, "hall")), Err(GroupError::OtherProtocol(_))));
    assert!(matches!(wait(controller.oscore_keys("axiom", "hall")), Err(GroupError::OtherProtocol(_))));
    // A monitor has no Sender ID and no credential, and gets the keys of the group.
    let monitor = NewMember { public_key: None, ..new("hall", MONITOR) };
    admitted(LAMPS, monitor).unwrap();
    let (keys, _) = wait(controller.oscore_keys(LAMPS, "hall")).unwrap();
    assert_eq!((keys.sender_id, keys.curve, keys.number), (None, Curve::P256, 2));
    assert!(matches!(wait(controller.renew_sender_id(LAMPS, "hall")), Err(GroupError::NoSenderId(_))));
}

/// A member of the group of a [`World`], which has joined over a session.
pub(crate) struct Joined {
    pub(crate) controller: controller::Controller,
    pub(crate) dir: PathBuf,
}

impl World {
    pub(crate) fn oscore_controller(&self, name: &str) -> controller::Controller {
        let uri = format!("coaps://{}/ace-group/lamps", self.server.addresses()[0].address);
        controller::Controller::of_group(&uri, ClientConfig::psk(name, SHARED_KEY)).unwrap()
    }

    pub(crate) async fn try_join(&self, name: &str, number: u64) -> Result<Joined, ControllerError> {
        self.join_at(name, number, None).await
    }

    pub(crate) async fn join_at(
        &self,
        name: &str,
        number: u64,
        control_port: Option<u16>,
    ) -> Result<Joined, ControllerError> {
        let (controller, dir) = (self.oscore_controller(name), self.scene.0.join(name));
        let joining = OscoreJoining { name: name.to_owned(), roles: roles(number), allow: None, control_port };
        controller.join_oscore(&dir, &joining).await?;
        Ok(Joined { controller, dir })
    }

    pub(crate) async fn joined(&self, name: &str, number: u64) -> Joined {
        self.try_join(name, number).await.unwrap()
    }
}

impl Joined {
    pub(crate) fn open(&self) -> StoredMember {
        StoredMember::open(&self.dir).unwrap()
    }
}

/// Protects a request to all members.
pub(crate) fn ask(member: &mut StoredMember) -> Vec<u8> {
    let mut storage = [0; 400];
    let mut frame = Frame::new(&mut storage, 200);
    let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, Code::PUT, 1, b"t").unwrap();
    builder.payload(b"on").unwrap();
    let crypto = &mut HostCrypto::from_os().unwrap();
    member.context.protect_request(crypto, Mode::Group, [Replies::default(); 3], &mut frame).unwrap();
    frame.finish().to_vec()
}

/// Returns the payload of a request that a member opens. The request may have to be repeated with an Echo option.
pub(crate) fn opened(member: &mut StoredMember, request: &[u8]) -> Result<Vec<u8>, UnprotectError> {
    let crypto = &mut HostCrypto::from_os().unwrap();
    let mut request = request.to_vec();
    let StoredMember { context, recipients, .. } = member;
    match context.unprotect_request(crypto, recipients.as_mut_slice(), &mut request)? {
        Unprotected::Fresh(message, _) => Ok(message.payload().to_vec()),
        Unprotected::Unverified(message, _) => Ok(message.payload().to_vec()),
    }
}

#[tokio::test]
async fn members_join_talk_follow_new_keys_and_leave() {
    for scheme in [SignatureScheme::ED25519, SignatureScheme::ECDSA_SECP256R1_SHA256] {
        let world = World::new(&format!("oscore-{}", scheme.0), oscore(scheme), false).await;
        let hall = world.joined("hall", LAMP).await;
        let switch = world.joined("switch", SWITCH).await;
        // The hall joined first, so it asks for the keys of the epoch that began with the switch.
        assert!(hall.controller.update_oscore(&hall.dir).await.unwrap());
        assert!(!hall.controller.update_oscore(&hall.dir).await.unwrap(), "the keys are current");
        let (mut of_hall, mut of_switch) = (hall.open(), switch.open());
        assert_eq!(of_hall.context.gid(), of_switch.context.gid());
        let request = ask(&mut of_switch);
        assert_eq!(opened(&mut of_hall, &request).unwrap(), b"on");
        drop((of_hall, of_switch));

        // Each member keeps its Sender ID in the next epoch.
        world.controller.rekey("lamps").await.unwrap();
        let of_switch = switch.open();
        let before = (of_switch.context.gid().to_vec(), *of_switch.context.id());
        drop(of_switch);
        assert!(switch.controller.update_oscore(&switch.dir).await.unwrap());
        let of_switch = &mut switch.open();
        assert_eq!((of_switch.context.id(), before.0 == of_switch.context.gid()), (&before.1, false));
        let request = ask(of_switch);
        assert!(matches!(opened(&mut hall.open(), &request), Err(UnprotectError::UnknownContext)));
        assert!(hall.controller.update_oscore(&hall.dir).await.unwrap());
        assert_eq!(opened(&mut hall.open(), &request).unwrap(), b"on");

        let session = world.device("hall").await;
        let leaf = world.controller.node("lamps", "hall").await.unwrap();
        hall.controller.leave_oscore(&leaf.to_string()).await.unwrap();
        let refused = session.get("/ace-group/lamps").await.unwrap();
        assert_eq!((refused.code, refused.payload), (Code::FORBIDDEN, GroupcommError::NotAMember.encode()));
    }
}

pub(crate) async fn post(session: &Session, request: &OscoreJoinRequest) -> Response {
    session.post("/ace-group/lamps", &request.encode()).content_format(GROUPCOMM_CBOR).await.unwrap()
}

pub(crate) fn request(number: u64) -> OscoreJoinRequest {
    let (group, roles) = ("lamps".to_owned(), roles(number));
    OscoreJoinRequest { group, roles, creds: None, cnonce: vec![6; 8], possession: None, control_uri: None }
}

#[tokio::test]
async fn a_join_with_the_credential_of_another_member_is_refused() {
    let world = World::new("oscore-possession", oscore(SignatureScheme::ED25519), false).await;
    let crypto = &mut HostCrypto::from_os().unwrap();
    let pair = |crypto: &mut HostCrypto, name: &str| {
        let private = member_keys::draw(crypto, Curve::Ed25519).unwrap();
        (member_keys::credential(name, &member_keys::public_of(Curve::Ed25519, &private).unwrap()), private)
    };
    let (hall, porch) = (world.device("hall").await, world.device("porch").await);
    let challenge = async |session: &Session| {
        let reply = session.post("/ace-group/lamps", &[]).await.unwrap();
        assert_eq!(reply.code, Code::BAD_REQUEST);
        OscoreChallenge::parse(&reply.payload).unwrap()
    };
    let proved = |crypto: &mut HostCrypto, nonce: &[u8], credential: &[u8], private| {
        let ours = (credential.to_vec(), Curve::Ed25519, private);
        let proof = OscorePossession::prove(crypto, &request(LAMP), nonce, ours).unwrap();
        OscoreJoinRequest { possession: Some(proof), ..request(LAMP) }
    };
    let (of_hall, hall_key) = pair(crypto, "hall");
    let nonce = challenge(&hall).await.nonce;
    let right = proved(crypto, &nonce, &of_hall, &hall_key);
    assert_eq!(post(&hall, &right).await.code, Code::CREATED);

    // The porch has seen the request of the hall, and repeats it; or it puts its own name on the key of the hall.
    let refusal = |error: GroupcommError| (Code::BAD_REQUEST, error.encode());
    let answer = async |request: &OscoreJoinRequest| {
        let reply = post(&porch, request).await;
        (reply.code, reply.payload)
    };
    let (stolen, other_key) = (pair(crypto, "porch").0, pair(crypto, "porch").1);
    let nonce = challenge(&porch).await.nonce;
    assert_eq!(answer(&right).await, refusal(GroupcommError::OtherCredential));
    let without_key = proved(crypto, &nonce, &stolen, &other_key);
    assert_eq!(answer(&without_key).await, refusal(GroupcommError::NoPossession));
    // A right signature over the nonce that the hall received.
    let (of_porch, porch_key) = pair(crypto, "porch");
    let of_other_nonce = proved(crypto, &challenge(&hall).await.nonce, &of_porch, &porch_key);
    assert_eq!(answer(&of_other_nonce).await, refusal(GroupcommError::NoPossession));
    assert_eq!(world.controller.show("lamps").await.unwrap().size, 1, "nobody else has joined");
    let right = proved(crypto, &nonce, &of_porch, &porch_key);
    assert_eq!(post(&porch, &right).await.code, Code::CREATED);
}

#[tokio::test]
async fn a_member_without_the_right_to_a_role_is_refused() {
    let world = World::new("oscore-rights", oscore(SignatureScheme::ED25519), false).await;
    let forbidden = |result: Result<Joined, ControllerError>| {
        assert!(matches!(result, Err(ControllerError::Forbidden { code: Code::FORBIDDEN, .. })));
    };
    forbidden(world.try_join("hall", SWITCH).await);
    forbidden(world.try_join("hall", SWITCH | LAMP).await);
    forbidden(world.try_join("switch", LAMP).await);
    forbidden(world.try_join("oven", MONITOR).await);
    assert!(world.logged("hall asks to be a requester of the group lamps"));
    assert_eq!(world.controller.show("lamps").await.unwrap().epoch, 1, "nothing has changed");
    for path in ["", "/num", "/creds", "/kdc-cred", "/nodes/8"] {
        let response = world.device("oven").await.get(&format!("/ace-group/lamps{path}")).await.unwrap();
        assert_eq!((response.code, response.payload.as_slice()), (Code::FORBIDDEN, [].as_slice()), "{path}");
    }
    // The hall may join, and is no member yet.
    let hall = world.device("hall").await;
    for path in ["", "/num", "/creds", "/kdc-cred", "/nodes/8"] {
        let response = hall.get(&format!("/ace-group/lamps{path}")).await.unwrap();
        assert_eq!((response.code, response.payload), (Code::FORBIDDEN, GroupcommError::NotAMember.encode()), "{path}");
    }
    let axiom = super::server::post(&hall, "/ace-group/lamps", &super::server::join(2, false)).await;
    assert_eq!(axiom.code, Code::BAD_REQUEST, "a request of Axiom");
}

#[tokio::test]
async fn the_resources_of_a_member_have_its_keys_and_no_others() {
    let world = World::new("oscore-resources", oscore(SignatureScheme::ED25519), false).await;
    world.joined("hall", LAMP).await;
    world.joined("switch", SWITCH).await;
    let (hall, path) = (world.device("hall").await, "/ace-group/lamps");
    let nodes = |leaf: u32| format!("{path}/nodes/{leaf}");
    let own = nodes(world.controller.node("lamps", "hall").await.unwrap());
    let other = nodes(world.controller.node("lamps", "switch").await.unwrap());
    let keys = OscoreKeys::parse(&hall.get(path).await.unwrap().payload).unwrap();
    assert_eq!((keys.number, keys.sender_id), (3, None), "the keys of the group alone");
    let keys = OscoreKeys::parse(&hall.get(&own).await.unwrap().payload).unwrap();
    assert_eq!((keys.gid.len(), keys.sender_id), (8, Some(vec![0])));
    for code in [hall.get(&other).await, hall.delete(&other).await, hall.post(&other, b"").await] {
        assert_eq!(code.unwrap().code, Code::FORBIDDEN);
    }
    assert_eq!(hall.get("/ace-group/lamps/num").await.unwrap().payload, [3]);
    let creds = OscoreCreds::parse(&hall.get("/ace-group/lamps/creds").await.unwrap().payload).unwrap();
    assert!(matches!(creds.creds.as_slice(), [cred] if cred.id == [1] && cred.roles == roles(SWITCH)));
    let filter = OscoreFilter { roles: vec![LAMP], ..OscoreFilter::default() }.encode();
    let fetched = hall.request(Code::FETCH, "/ace-group/lamps/creds").payload(&filter).content_format(GROUPCOMM_CBOR);
    assert_eq!(OscoreCreds::parse(&fetched.await.unwrap().payload).unwrap().creds, []);

    // Another Sender ID begins an epoch, in which the old one is stale.
    let renewed = hall.post(&own, b"").await.unwrap();
    assert_eq!((renewed.code, renewed.payload), (Code::CHANGED, vec![0xa1, 0x15, 0x41, 2]));
    let stale = async |since: &[u8]| {
        let request = hall.request(Code::FETCH, "/ace-group/lamps/stale-sids").payload(since).content_format(CBOR);
        let response = request.await.unwrap();
        (response.code, response.content_format(), response.payload)
    };
    assert_eq!(stale(&[3]).await, (Code::CONTENT, Some(CBOR.into()), vec![0x81, 0x41, 0]));
    for wrong in [&[4][..], &[5], &[], &[0x20], &[0x61, b'3']] {
        assert_eq!(stale(wrong).await.0, Code::BAD_REQUEST, "{wrong:?}: the current version is 4");
    }
    // After further changes, the first sets are not stored any more.
    for _ in 0..8 {
        world.controller.renew_sender_id("lamps", "switch").await.unwrap();
    }
    assert_eq!(stale(&[3]).await, (Code::CONTENT, None, Vec::new()));
    assert_eq!(stale(&[11]).await.2, [0x81, 0x41, 9]);

    let policies = hall.get("/ace-group/lamps/policies").await.unwrap();
    assert_eq!(policies.content_format(), Some(GROUPCOMM_CBOR.into()));
    assert_eq!(policies.payload, [0xa1, 16, 0xa2, 1, 0x18, 30, 2, 0]);
    let active = hall.get("/ace-group/lamps/active").await.unwrap();
    assert_eq!((active.content_format(), active.payload), (Some(CBOR.into()), vec![0xf5]));
    let porch = world.device("porch").await;
    for path in ["policies", "active"] {
        let refused = porch.get(&format!("/ace-group/lamps/{path}")).await.unwrap();
        let because = (Some(problem::CONTENT_FORMAT.into()), GroupcommError::NotAMember.encode());
        assert_eq!((refused.code, (refused.content_format(), refused.payload)), (Code::FORBIDDEN, because), "{path}");
    }
}

#[tokio::test]
async fn responses_of_a_group_manager_have_the_parameters_of_rfc_9594() {
    const EXP: i64 = 11;
    const EXI: i64 = 12;
    let world = World::new("oscore-parameters", oscore(SignatureScheme::ED25519), false).await;
    let (hall, switch) = (world.device("hall").await, world.device("switch").await);
    let explained = |response: Response| (response.code, response.content_format(), response.payload);
    let because = |code, error: GroupcommError| (code, Some(problem::CONTENT_FORMAT.into()), error.encode());
    let no_member = [hall.get("/ace-group/lamps").await, hall.delete("/ace-group/lamps/nodes/8").await];
    for refused in no_member {
        assert_eq!(explained(refused.unwrap()), because(Code::FORBIDDEN, GroupcommError::NotAMember));
    }
    world.joined("hall", LAMP).await;
    let own = format!("/ace-group/lamps/nodes/{}", world.controller.node("lamps", "hall").await.unwrap());
    for path in ["/ace-group/lamps", own.as_str()] {
        let labels = labels(&hall.get(path).await.unwrap().payload);
        assert!(labels.contains(&EXP) && labels.contains(&EXI), "{path}: {labels:?}");
    }
    for path in ["", "/num", "/creds", "/kdc-cred"] {
        let response = hall.get(&format!("/ace-group/lamps{path}")).await.unwrap();
        assert_eq!((response.code, response.content_format()), (Code::CONTENT, Some(GROUPCOMM_CBOR.into())), "{path}");
    }
    let fetch = async |payload: &[u8]| {
        let request = hall.request(Code::FETCH, "/ace-group/lamps/creds").payload(payload);
        let response = request.content_format(GROUPCOMM_CBOR).await.unwrap();
        (response.code, response.content_format())
    };
    assert_eq!(fetch(&OscoreFilter::default().encode()).await, (Code::CONTENT, Some(GROUPCOMM_CBOR.into())));
    let empty = [0xa1, 4, 0x83, 0xf5, 0x80, 0x80];
    assert_eq!(fetch(&empty).await, (Code::BAD_REQUEST, None), "a filter without roles and members");

    // A monitor needs no Sender ID. It is the second member, and selects roles that nobody has.
    let filter = OscoreFilter { roles: vec![SWITCH], ..OscoreFilter::default() };
    for (creds, expected) in [(Some(filter), [13, 14, 15].as_slice()), (None, &[])] {
        let joined = post(&switch, &OscoreJoinRequest { creds, ..request(MONITOR) }).await;
        let labels = labels(&joined.payload);
        let found: Vec<i64> = labels.iter().copied().filter(|label| (13..=15).contains(label)).collect();
        assert_eq!(found, expected, "{:?}", joined.code);
        assert!(labels.contains(&EXP) && labels.contains(&EXI), "{labels:?}");
    }
    let node = format!("/ace-group/lamps/nodes/{}", world.controller.node("lamps", "switch").await.unwrap());
    let refused = switch.post(&node, b"").await.unwrap();
    assert_eq!(explained(refused), because(Code::BAD_REQUEST, GroupcommError::OtherRoles));

    // No epoch is left for another Sender ID.
    while world.controller.rekey("lamps").await.is_ok() {}
    let refused = hall.post(&own, b"").await.unwrap();
    assert_eq!(explained(refused), because(Code::SERVICE_UNAVAILABLE, GroupcommError::NoNodeIdentifier));
}

/// Returns the credential of the Group Manager in the payload of a response, and its proof.
pub(crate) fn kdc_cred(payload: &[u8]) -> KdcCred {
    let mut decoder = minicbor::Decoder::new(payload);
    let mut kdc = KdcCred { credential: Vec::new(), nonce: Vec::new(), signature: Vec::new() };
    for _ in 0..decoder.map().unwrap().unwrap() {
        match decoder.i64().unwrap() {
            17 => kdc.credential = decoder.bytes().unwrap().to_vec(),
            18 => kdc.nonce = decoder.bytes().unwrap().to_vec(),
            19 => kdc.signature = decoder.bytes().unwrap().to_vec(),
            _ => decoder.skip().unwrap(),
        }
    }
    kdc
}

#[tokio::test]
async fn the_group_manager_signs_the_nonce_of_each_member() {
    let world = World::new("oscore-kdc", oscore(SignatureScheme::ED25519), false).await;
    let (crypto, curve) = (&mut HostCrypto::from_os().unwrap(), Curve::Ed25519);
    let (switch, hall) = (world.device("switch").await, world.device("hall").await);
    let monitors = |cnonce: [u8; 8]| OscoreJoinRequest { cnonce: cnonce.to_vec(), ..request(MONITOR) };
    // The switch joins again with another nonce.
    for (device, cnonce) in [(&switch, [1; 8]), (&hall, [2; 8]), (&switch, [3; 8])] {
        let joined = post(device, &monitors(cnonce)).await;
        let kdc = kdc_cred(&joined.payload);
        assert!(kdc.proves(crypto, curve, &cnonce), "{:?}", joined.code);
        assert!(!kdc.proves(crypto, curve, &[4; 8]));
        let asked = kdc_cred(&device.get("/ace-group/lamps/kdc-cred").await.unwrap().payload);
        assert!(asked.credential == kdc.credential && asked.nonce != kdc.nonce);
        assert!(asked.proves(crypto, curve, &cnonce));
    }
    // A controller that starts again knows the nonce of each member, also after another change of the group.
    world.controller.rekey("lamps").await.unwrap();
    let controller = Controller::new(world.store.clone(), None).unwrap();
    for (device, cnonce) in [("hall", [2; 8]), ("switch", [3; 8])] {
        assert!(controller.manager_cred("lamps", device).await.unwrap().proves(crypto, curve, &cnonce), "{device}");
    }
    // Without a nonce, the Group Manager signs an empty one.
    let joined = post(&hall, &OscoreJoinRequest { cnonce: Vec::new(), ..request(MONITOR) }).await;
    assert!(kdc_cred(&joined.payload).proves(crypto, curve, &[]));
}

#[tokio::test]
async fn a_join_reads_no_row_of_a_group_in_memory() {
    let world = World::new("oscore-reads", oscore(SignatureScheme::ED25519), false).await;
    let (switch, hall) = (world.device("switch").await, world.device("hall").await);
    let creds = Some(OscoreFilter::default());
    post(&switch, &OscoreJoinRequest { creds: creds.clone(), ..request(MONITOR) }).await;
    let before = world.store.reads.load(Ordering::Relaxed);
    let joined = post(&hall, &OscoreJoinRequest { creds, ..request(MONITOR) }).await;
    assert_eq!(joined.code, Code::CREATED);
    assert!(kdc_cred(&joined.payload).proves(&mut HostCrypto::from_os().unwrap(), Curve::Ed25519, &[6; 8]));
    assert_eq!(world.store.reads.load(Ordering::Relaxed), before);
}

#[tokio::test]
async fn an_evicted_member_has_no_keys_of_the_next_gid() {
    let world = World::new("oscore-evicted", oscore(SignatureScheme::ED25519), false).await;
    let hall = world.joined("hall", LAMP).await;
    let porch = world.joined("porch", LAMP).await;
    let switch = world.joined("switch", SWITCH).await;
    for member in [&hall, &porch] {
        member.controller.update_oscore(&member.dir).await.unwrap();
    }
    let before = ask(&mut hall.open());
    assert_eq!(opened(&mut porch.open(), &before).unwrap(), b"on", "before its eviction it is a member");

    world.controller.evict("lamps", "hall").await.unwrap();
    let refused = hall.controller.update_oscore(&hall.dir).await;
    assert!(matches!(refused, Err(ControllerError::NotAMember(_))));
    for member in [&porch, &switch] {
        member.controller.update_oscore(&member.dir).await.unwrap();
    }
    let request = ask(&mut switch.open());
    assert!(matches!(opened(&mut hall.open(), &request), Err(UnprotectError::UnknownContext)));
    // It knows the Group Identifier from the message, and writes it into its file.
    let text = std::fs::read_to_string(hall.dir.join("context.toml")).unwrap();
    let hex = |gid: &[u8]| gid.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (old, new) = (hex(hall.open().context.gid()), hex(switch.open().context.gid()));
    std::fs::write(hall.dir.join("context.toml"), text.replace(&old, &new)).unwrap();
    assert_eq!(hall.open().context.gid(), switch.open().context.gid());
    assert!(matches!(opened(&mut hall.open(), &request), Err(UnprotectError::NotAuthentic)));
    let forged = ask(&mut hall.open());
    assert!(matches!(opened(&mut porch.open(), &forged), Err(UnprotectError::UnknownMember)));
    assert_eq!(opened(&mut porch.open(), &request).unwrap(), b"on");
}

/// Returns the labels of the parameters in `key` of a message.
pub(crate) fn key_labels(payload: &[u8]) -> Vec<i64> {
    let mut decoder = minicbor::Decoder::new(payload);
    for _ in 0..decoder.map().unwrap().unwrap() {
        let label = decoder.i64().unwrap();
        let start = decoder.position();
        decoder.skip().unwrap();
        if label == 8 {
            return labels(&payload[start..decoder.position()]);
        }
    }
    Vec::new()
}

#[tokio::test]
async fn a_member_that_observes_its_group_gets_each_rekeying() {
    let world = World::new("oscore-observed", oscore(SignatureScheme::ED25519), false).await;
    world.joined("hall", LAMP).await;
    world.joined("switch", SWITCH).await;
    let hall = world.device("hall").await;
    let mut observed = hall.request(Code::GET, "/ace-group/lamps").observe().await.unwrap();
    assert!(observed.is_registered());
    let mut next = async || {
        let reply = observed.next().await.unwrap().unwrap();
        assert_eq!((reply.code, reply.content_format()), (Code::CONTENT, Some(GROUPCOMM_CBOR.into())));
        (OscoreRekeying::parse(&reply.payload).unwrap(), reply.payload)
    };
    let first = next().await.0;
    assert_eq!((first.number, first.stale), (3, None), "the registration gets the current keys");

    // A join, an epoch of the operator, and an eviction.
    world.joined("porch", LAMP).await;
    let (joined, payload) = next().await;
    assert_eq!((joined.number, joined.stale), (4, Some(vec![])));
    assert!(matches!(joined.joined.as_slice(), [cred] if cred.id == [2] && cred.roles == roles(LAMP)));
    assert_eq!(labels(&payload), [7, 8, 9, 10, 11, 12, 13, 14, 15, 34]);
    assert_eq!(key_labels(&payload), [2, 5, 6], "the Master Secret, the Master Salt and the Group Identifier");
    let keys = world.controller.oscore_keys("lamps", "hall").await.unwrap().0;
    assert_eq!((&joined.gid, &joined.master_secret), (&keys.gid, &keys.master_secret));
    assert_eq!(joined.master_salt, keys.master_salt);
    world.controller.rekey("lamps").await.unwrap();
    let (rekeyed, payload) = next().await;
    assert_eq!((rekeyed.number, rekeyed.stale, rekeyed.joined), (5, Some(vec![]), vec![]));
    assert_eq!(labels(&payload), [7, 8, 9, 10, 11, 12, 34]);
    world.controller.evict("lamps", "switch").await.unwrap();
    let evicted = next().await.0;
    assert_eq!((evicted.number, evicted.stale), (6, Some(vec![vec![1]])));
    assert_ne!(evicted.master_secret, rekeyed.master_secret);

    // Another controller of the store evicts the porch.
    let other = Controller::new(world.store.clone(), None).unwrap();
    other.evict("lamps", "porch").await.unwrap();
    let evicted = next().await.0;
    assert_eq!((evicted.number, evicted.stale), (7, Some(vec![vec![2]])));
}

#[tokio::test]
async fn an_observation_ends_with_the_membership_and_with_the_group() {
    let world = World::new("oscore-unobserved", oscore(SignatureScheme::ED25519), false).await;
    let mut observations = Vec::new();
    for name in ["hall", "porch"] {
        world.joined(name, LAMP).await;
        let session = world.device(name).await;
        let mut observed = session.request(Code::GET, "/ace-group/lamps").observe().await.unwrap();
        observed.next().await.unwrap();
        observations.push(observed);
    }
    let mut of_porch = observations.pop().unwrap();
    let mut of_hall = observations.pop().unwrap();
    // A peer that is no member gets no observation.
    let switch = world.device("switch").await;
    assert!(!switch.request(Code::GET, "/ace-group/lamps").observe().await.unwrap().is_registered());

    world.controller.evict("lamps", "hall").await.unwrap();
    let last = loop {
        let reply = of_hall.next().await.unwrap().unwrap();
        if reply.code != Code::CONTENT {
            break reply;
        }
        assert_eq!(OscoreRekeying::parse(&reply.payload).unwrap().number, 3, "the keys before its eviction");
    };
    assert_eq!((last.code, last.payload), (Code::FORBIDDEN, GroupcommError::NotAMember.encode()));
    assert!(of_hall.next().await.unwrap().is_none());

    let evicted = of_porch.next().await.unwrap().unwrap();
    assert_eq!(OscoreRekeying::parse(&evicted.payload).unwrap().stale, Some(vec![vec![0]]));
    world.controller.delete("lamps", None).await.unwrap();
    let last = of_porch.next().await.unwrap().unwrap();
    assert_eq!((last.code, last.content_format()), (Code::NOT_FOUND, Some(problem::CONTENT_FORMAT.into())));
    assert_eq!(last.payload, [0xa1, 0, 0xa1, 0, 6]);
    assert!(of_porch.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_server_installs_the_keys_of_each_rekeying_and_forgets_them_with_its_eviction() {
    let world = World::new("oscore-followed", oscore(SignatureScheme::ED25519), false).await;
    let hall = world.joined("hall", LAMP).await;
    world.joined("switch", SWITCH).await;
    let credentials = Credentials::default();
    let contexts =
        Contexts::open(std::slice::from_ref(&hall.dir), |name, allow| credentials.learn(name, allow)).unwrap();
    let [member] = contexts.members() else { panic!("one member") };
    // Only messages of the Group Manager bring keys in this time.
    let hour = Duration::from_secs(3600);
    let pace = OscorePace { check: hour, jitter: Duration::ZERO, shortest: hour, poll: hour };
    let (sender, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let report = move |result: Result<(), &ControllerError>| {
        let evicted = result.map_err(|error| matches!(error, ControllerError::NotAMember(_)));
        sender.send(evicted).unwrap();
    };
    let (controller, followed, known) = (hall.controller.clone(), member.clone(), credentials.clone());
    let following = tokio::spawn(async move { controller.follow_oscore(&followed, &known, pace, report).await });
    let others = || {
        let file = MemberFile::read(&hall.dir).unwrap();
        let names: Vec<String> = file.others.iter().map(|other| other.name.clone()).collect();
        (file.manager.unwrap().epoch, names.join(" "))
    };
    assert_eq!(reports.recv().await, Some(Ok(())));
    assert_eq!(others(), (3, "switch".to_owned()), "it missed the join of the switch");
    let porch = world.joined("porch", LAMP).await;
    assert_eq!(reports.recv().await, Some(Ok(())));
    assert_eq!(others(), (4, "switch porch".to_owned()));
    world.controller.evict("lamps", "switch").await.unwrap();
    assert_eq!(reports.recv().await, Some(Ok(())));
    assert_eq!(others(), (5, "porch".to_owned()));
    world.controller.rekey("lamps").await.unwrap();
    assert_eq!(reports.recv().await, Some(Ok(())));
    assert_eq!(others(), (6, "porch".to_owned()));
    porch.controller.update_oscore(&porch.dir).await.unwrap();
    let (file, of_porch) = (MemberFile::read(&hall.dir).unwrap(), MemberFile::read(&porch.dir).unwrap());
    assert_eq!((&file.group_id, &file.master_salt), (&of_porch.group_id, &of_porch.master_salt));
    let own = file.own.as_ref().unwrap();
    assert_eq!((&file.master_secret, own.sender_id.as_bytes()), (&of_porch.master_secret, &[0][..]));

    world.controller.evict("lamps", "hall").await.unwrap();
    assert_eq!(reports.recv().await, Some(Err(true)));
    following.await.unwrap();
    assert_eq!(others().0, 6);
}

#[tokio::test]
async fn a_member_joins_again_without_its_credential() {
    let world = World::new("oscore-again", oscore(SignatureScheme::ED25519), false).await;
    let hall = world.device("hall").await;
    // An empty request, and one without a credential, ask for the demand of a proof.
    for payload in [Vec::new(), request(LAMP).encode().to_vec()] {
        let demand = hall.post("/ace-group/lamps", &payload).content_format(GROUPCOMM_CBOR).await.unwrap();
        assert_eq!((demand.code, demand.content_format()), (Code::BAD_REQUEST, Some(GROUPCOMM_CBOR.into())));
        assert_eq!(labels(&demand.payload), [29, 30, 31]);
    }
    world.joined("hall", LAMP).await;
    world.joined("switch", SWITCH).await;
    world.joined("porch", LAMP).await;
    let switch = world.device("switch").await;
    let of_hall = async || {
        let creds = OscoreCreds::parse(&switch.get("/ace-group/lamps/creds").await.unwrap().payload).unwrap();
        let find = |cred: &&OscoreCred| subject_of(&cred.credential).as_deref() == Some("hall");
        creds.creds.iter().find(find).unwrap().clone()
    };
    let before = of_hall().await;
    let again = OscoreJoinRequest { creds: Some(OscoreFilter::default()), ..request(LAMP) };
    let joined = post(&hall, &again).await;
    assert_eq!(joined.code, Code::CHANGED);
    let keys = OscoreKeys::parse(&joined.payload).unwrap();
    assert_eq!((keys.number, keys.sender_id), (5, Some(vec![3])), "it has another Sender ID");
    let creds: Vec<_> = keys.creds.unwrap().into_iter().map(|cred| (cred.id, cred.roles)).collect();
    assert_eq!(creds, [(vec![1], roles(SWITCH))], "a responder gets the credentials of the requesters");
    assert!(labels(&joined.payload).contains(&16), "the policies of the group");
    let after = of_hall().await;
    assert_eq!((after.id, after.credential), (vec![3], before.credential));
    // Its former Sender ID is stale.
    let stale = hall.request(Code::FETCH, "/ace-group/lamps/stale-sids").payload(&[4]).content_format(CBOR);
    assert_eq!(stale.await.unwrap().payload, [0x81, 0x41, 0]);
}

#[tokio::test]
async fn a_monitor_opens_requests_and_protects_no_message() {
    for scheme in [SignatureScheme::ED25519, SignatureScheme::ECDSA_SECP256R1_SHA256] {
        let world = World::new(&format!("oscore-monitor-{}", scheme.0), oscore(scheme), false).await;
        let switch = world.joined("switch", SWITCH).await;
        let monitor = world.joined("hall", MONITOR).await;
        let file = MemberFile::read(&monitor.dir).unwrap();
        assert!(file.own.is_none());
        let names = file.others.iter().map(|other| other.name.as_str()).collect::<Vec<_>>();
        assert_eq!(names, ["switch"], "it gets the credentials of the requesters");
        switch.controller.update_oscore(&switch.dir).await.unwrap();
        let request = ask(&mut switch.open());
        let is_fresh = |member: &mut StoredMember, request: &[u8]| {
            let crypto = &mut HostCrypto::from_os().unwrap();
            let mut request = request.to_vec();
            let StoredMember { context, recipients, .. } = member;
            let opened = context.unprotect_request(crypto, recipients.as_mut_slice(), &mut request);
            opened.map(|opened| matches!(opened, Unprotected::Fresh(..)))
        };
        let mut opened = monitor.open();
        assert_eq!(is_fresh(&mut opened, &request), Ok(true), "it needs no challenge");
        assert_eq!(is_fresh(&mut opened, &request), Err(UnprotectError::Replayed));
        assert!(matches!(opened.renew(), Err(ContextError::Monitor { .. })));
        let mut storage = [0; 400];
        let mut frame = Frame::new(&mut storage, 200);
        Builder::new(&mut frame, MessageType::NonConfirmable, Code::PUT, 1, b"t").unwrap();
        let crypto = &mut HostCrypto::from_os().unwrap();
        let protected = opened.context.protect_request(crypto, Mode::Group, [Replies::default(); 3], &mut frame);
        assert!(matches!(protected, Err(ProtectError::LeaseSpent | ProtectError::Exhausted)), "{:?}", protected.err());
        // Its replay windows survive an orderly end, and are lost in a power cut.
        opened.close().unwrap();
        drop(opened);
        assert_eq!(is_fresh(&mut monitor.open(), &request), Err(UnprotectError::Replayed));
        monitor.open().abandon();
        let later = ask(&mut switch.open());
        assert_eq!(is_fresh(&mut monitor.open(), &later), Ok(false), "it cannot know which requests are new");

        // In the next epoch it has new windows. Its request for keys brings no Sender ID.
        world.controller.rekey("lamps").await.unwrap();
        for member in [&switch, &monitor] {
            assert!(member.controller.update_oscore(&member.dir).await.unwrap());
        }
        let request = ask(&mut switch.open());
        assert_eq!(is_fresh(&mut monitor.open(), &request), Ok(true));
        let node = world.controller.node("lamps", "hall").await.unwrap().to_string();
        monitor.controller.leave_oscore(&node).await.unwrap();
    }
}

#[tokio::test]
async fn a_device_finds_the_name_of_a_group_by_its_current_gid() {
    let world = World::new("oscore-names", oscore(SignatureScheme::ED25519), false).await;
    world.controller.create("axiom", config(), &[]).await.unwrap();
    world.joined("hall", LAMP).await;
    let gid = world.controller.show("lamps").await.unwrap().gid.unwrap();
    let names = async |device: &str, gids: &[&[u8]]| {
        let mut encoder = minicbor::Encoder::new(Vec::new());
        encoder.map(1).unwrap().u8(0).unwrap().array(gids.len() as u64).unwrap();
        for gid in gids {
            encoder.bytes(gid).unwrap();
        }
        let session = world.device(device).await;
        let request = session.request(Code::FETCH, "/ace-group").payload(encoder.writer());
        let reply = request.content_format(GROUPCOMM_CBOR).await.unwrap();
        (reply.code, reply.content_format(), reply.payload)
    };
    let answer = |payload: Vec<u8>| (Code::CONTENT, Some(GROUPCOMM_CBOR.into()), payload);
    let found = answer(encode_names(&[(gid.clone(), "lamps".to_owned())]));
    let none = answer(vec![0x40]);
    assert_eq!(names("porch", &[&[1], &gid]).await, found, "a device that may join");
    assert_eq!(names("oven", &[&gid]).await, none, "a device without the right to the group");
    let mut other = gid.clone();
    other[7] ^= 1;
    assert_eq!(names("hall", &[&other, &gid[..7]]).await, none);
    assert_eq!(names("hall", &[]).await.0, Code::BAD_REQUEST);
    let mut many: Vec<&[u8]> = vec![&[1]; 15];
    many.push(&gid);
    assert_eq!(names("hall", &many).await, found, "16 Group Identifiers");
    many.push(&[2]);
    assert_eq!(names("hall", &many).await.0, Code::BAD_REQUEST);
    // A row that cannot be read is the row of another group.
    let damage = Transaction::default().put("group/name/axiom", Value::Plain(b"no identity".to_vec()));
    world.store.database.commit(damage).wait().unwrap();
    assert_eq!(names("hall", &[&gid]).await, found);
    world.controller.rekey("lamps").await.unwrap();
    assert_eq!(names("hall", &[&gid]).await, none, "the Group Identifier of an earlier epoch");
    let hall = world.device("hall").await;
    assert_eq!(hall.get("/ace-group").await.unwrap().code, Code::METHOD_NOT_ALLOWED);
}
