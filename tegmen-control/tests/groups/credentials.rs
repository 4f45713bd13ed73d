//! Tests of members of Group OSCORE groups that replace their credentials (RFC 9594, section 4.9.1).

use super::oscore::{LAMP, MONITOR, SWITCH, ask, opened, oscore, post, request};
use super::server::World;
use super::world::config;
use tegmen::coap::Code;
use tegmen::crypto::{Curve, SignatureScheme};
use tegmen::oscore::UnprotectError;
use tegmen::secret::Secret;
use tegmen_control::group::{Controller, GroupError};
use tegmen_host::client::{Response, Session};
use tegmen_host::contexts::{ContextError, MemberFile, StoredMember, member_keys};
use tegmen_host::controller::ControllerError;
use tegmen_host::group::groupcomm::oscore::{
    OscoreChallenge, OscoreCred, OscoreCreds, OscorePossession, OscoreRekeying, subject_of,
};
use tegmen_host::group::groupcomm::{GROUPCOMM_CBOR, GroupcommError};
use tegmen_host::problem;
use tegmen_trust::provider::HostCrypto;

const ED25519: SignatureScheme = SignatureScheme::ED25519;

#[tokio::test]
async fn a_member_replaces_its_credential_and_the_others_use_the_new_one() {
    for scheme in [ED25519, SignatureScheme::ECDSA_SECP256R1_SHA256] {
        let world = World::new(&format!("credentials-{}", scheme.0), oscore(scheme), false).await;
        let switch = world.joined("switch", SWITCH).await;
        let hall = world.joined("hall", LAMP).await;
        switch.controller.update_oscore(&switch.dir).await.unwrap();
        let session = world.device("hall").await;
        let mut observed = session.request(Code::GET, "/ace-group/lamps").observe().await.unwrap();
        observed.next().await.unwrap().unwrap();
        let before = MemberFile::read(&switch.dir).unwrap();
        let of_old_key = ask(&mut switch.open());

        switch.controller.renew_credential_oscore(&switch.dir).await.unwrap();
        let after = MemberFile::read(&switch.dir).unwrap();
        let (old, new) = (before.own.unwrap(), after.own.unwrap());
        assert_eq!(old.sender_id, new.sender_id, "it keeps its Sender ID");
        assert_ne!(old.credential, new.credential);
        assert_ne!(old.private_key.expose(), new.private_key.expose());
        assert_eq!(after.manager.unwrap().epoch, before.manager.unwrap().epoch + 1);
        // The rekeying message of the new epoch has the new credential.
        let message = observed.next().await.unwrap().unwrap();
        let message = OscoreRekeying::parse(&message.payload).unwrap();
        assert_eq!((message.number, message.stale), (4, Some(vec![])));
        assert!(matches!(message.joined.as_slice(), [cred] if cred.credential == new.credential));
        let creds = OscoreCreds::parse(&session.get("/ace-group/lamps/creds").await.unwrap().payload).unwrap();
        assert!(matches!(creds.creds.as_slice(), [cred] if cred.credential == new.credential && cred.id == [0]));

        let request = ask(&mut switch.open());
        assert!(hall.controller.update_oscore(&hall.dir).await.unwrap());
        assert_eq!(opened(&mut hall.open(), &request).unwrap(), b"on");
        assert_eq!(opened(&mut hall.open(), &of_old_key), Err(UnprotectError::UnknownContext));
        // The old key with the new keys of the group proves nothing.
        let text = std::fs::read_to_string(switch.dir.join("context.toml")).unwrap();
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let text = text.replace(&hex(&new.credential), &hex(&old.credential));
        let text = text.replace(&hex(new.private_key.expose()), &hex(old.private_key.expose()));
        std::fs::write(switch.dir.join("context.toml"), text).unwrap();
        let of_old_key = ask(&mut switch.open());
        assert_eq!(opened(&mut hall.open(), &of_old_key), Err(UnprotectError::NotAuthentic));
        // A second call repairs the directory.
        switch.controller.renew_credential_oscore(&switch.dir).await.unwrap();
        assert!(hall.controller.update_oscore(&hall.dir).await.unwrap());
        assert_eq!(opened(&mut hall.open(), &ask(&mut switch.open())).unwrap(), b"on");
        // A controller that starts again has the new credential.
        let again = Controller::new(world.store.clone(), None).unwrap();
        let creds = again.oscore_creds("lamps", "hall", &Default::default()).await.unwrap().creds;
        let own = MemberFile::read(&switch.dir).unwrap().own.unwrap();
        assert!(matches!(creds.as_slice(), [cred] if cred.credential == own.credential));
    }
}

/// Returns a key pair and the credential of a device.
fn pair(name: &str, curve: Curve) -> (Vec<u8>, Secret<32>) {
    let private = member_keys::draw(&mut HostCrypto::from_os().unwrap(), curve).unwrap();
    (member_keys::credential(name, &member_keys::public_of(curve, &private).unwrap()), private)
}

/// Returns the payload of a request that replaces a credential. The proof covers the scope with these roles.
fn update(nonce: &[u8], roles: u64, (credential, private): &(Vec<u8>, Secret<32>)) -> Vec<u8> {
    let crypto = &mut HostCrypto::from_os().unwrap();
    let ours = (credential.clone(), Curve::Ed25519, private);
    let request = request(roles);
    OscorePossession::prove(crypto, &request, nonce, ours).unwrap().encode_update(&request.cnonce).to_vec()
}

async fn send(session: &Session, path: &str, payload: &[u8]) -> Response {
    session.post(path, payload).content_format(GROUPCOMM_CBOR).await.unwrap()
}

#[tokio::test]
async fn a_credential_without_a_proof_changes_nothing() {
    let world = World::new("credentials-proof", oscore(ED25519), false).await;
    for name in ["hall", "porch"] {
        world.joined(name, LAMP).await;
    }
    let monitor = world.device("switch").await;
    post(&monitor, &request(MONITOR)).await;
    let path = async |name: &str| {
        format!("/ace-group/lamps/nodes/{}/cred", world.controller.node("lamps", name).await.unwrap())
    };
    let (hall, porch) = (world.device("hall").await, world.device("porch").await);
    let own = path("hall").await;
    let demand = async |session: &Session, path: &str| {
        let reply = send(session, path, &[]).await;
        assert_eq!((reply.code, reply.content_format()), (Code::BAD_REQUEST, Some(GROUPCOMM_CBOR.into())));
        OscoreChallenge::parse(&reply.payload).unwrap().nonce
    };
    let nonce = demand(&hall, &own).await;
    let (new, other) = (pair("hall", Curve::Ed25519), pair("hall", Curve::Ed25519));
    let right = update(&nonce, LAMP, &new);
    let before = world.controller.show("lamps").await.unwrap();
    let refused = async |payload: &[u8]| {
        let reply = send(&hall, &own, payload).await;
        (reply.code, reply.content_format(), reply.payload)
    };
    let because = |error: GroupcommError| (Code::BAD_REQUEST, Some(problem::CONTENT_FORMAT.into()), error.encode());
    // Another key than that of the credential, the nonce of another device, another scope, and no signature.
    let no_proof = because(GroupcommError::NoPossession);
    assert_eq!(refused(&update(&nonce, LAMP, &(new.0.clone(), other.1))).await, no_proof);
    let of_porch = demand(&porch, &path("porch").await).await;
    assert_eq!(refused(&update(&of_porch, LAMP, &new)).await, no_proof);
    assert_eq!(refused(&update(&nonce, SWITCH, &new)).await, no_proof);
    let (mut empty, _) = OscorePossession::parse_update(&right, Vec::new()).unwrap();
    empty.signature.clear();
    assert_eq!(refused(&empty.encode_update(&request(LAMP).cnonce)).await, no_proof);
    // The name of another device, a key on another curve, and no credential.
    let stranger = because(GroupcommError::OtherCredential);
    assert_eq!(refused(&update(&nonce, LAMP, &pair("porch", Curve::Ed25519))).await, stranger);
    let (credential, _) = pair("hall", Curve::P256);
    assert_eq!(refused(&update(&nonce, LAMP, &(credential, Secret::new(*new.1.expose())))).await, stranger);
    for wrong in [vec![0xa0], right[..right.len() - 1].to_vec(), vec![0]] {
        assert_eq!(refused(&wrong).await, (Code::BAD_REQUEST, None, Vec::new()));
    }
    // Another member, a monitor, a device that is no member, and other methods.
    assert_eq!(send(&porch, &own, &right).await.code, Code::FORBIDDEN);
    let reply = send(&monitor, &path("switch").await, &right).await;
    assert_eq!((reply.code, reply.payload), (Code::BAD_REQUEST, GroupcommError::OtherRoles.encode()));
    assert_eq!(send(&world.device("oven").await, &own, &right).await.code, Code::FORBIDDEN);
    assert_eq!(hall.get(&own).await.unwrap().code, Code::METHOD_NOT_ALLOWED);
    let plain = hall.post(&own, &right).await.unwrap();
    assert_eq!(plain.code, Code::UNSUPPORTED_CONTENT_FORMAT);
    assert_eq!(world.controller.show("lamps").await.unwrap(), before, "nothing has changed");

    // The request of the hall is valid. Its repetition begins no further epoch.
    for _ in 0..2 {
        let reply = send(&hall, &own, &right).await;
        assert_eq!((reply.code, reply.payload), (Code::CHANGED, Vec::new()));
        assert_eq!(world.controller.show("lamps").await.unwrap().epoch, before.epoch + 1);
    }
    assert!(world.logged("hall has another credential in the group lamps"));
    let creds = OscoreCreds::parse(&porch.get("/ace-group/lamps/creds").await.unwrap().payload).unwrap();
    let of = |cred: &&OscoreCred| subject_of(&cred.credential).as_deref() == Some("hall");
    assert_eq!(creds.creds.iter().find(of).unwrap().credential, new.0);
    // No two members have the same credential.
    let stolen = world.controller.replace_credential("lamps", "porch", &new.0).await;
    assert!(matches!(stolen, Err(GroupError::OtherCredential(_))));
    let of_monitor = world.controller.replace_credential("lamps", "switch", &pair("switch", Curve::Ed25519).0).await;
    assert!(matches!(of_monitor, Err(GroupError::NoSenderId(_))));
}

#[tokio::test]
async fn new_credentials_count_as_joins() {
    let world = World::new("credentials-limit", oscore(ED25519), false).await;
    let hall = world.joined("hall", LAMP).await;
    let mut renewed = 0;
    let refused = loop {
        match hall.controller.renew_credential_oscore(&hall.dir).await {
            Ok(()) => renewed += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(renewed, 3, "with the join it is four changes");
    assert!(matches!(refused, ControllerError::Unavailable { code: Code::TOO_MANY_REQUESTS, retry: Some(_), .. }));
    // The refused key pair was not stored: the hall still talks to the others.
    let own = MemberFile::read(&hall.dir).unwrap().own.unwrap();
    assert_eq!(world.controller.show("lamps").await.unwrap().epoch, 5);
    let switch = world.joined("switch", SWITCH).await;
    let file = MemberFile::read(&switch.dir).unwrap();
    assert!(matches!(file.others.as_slice(), [other] if other.credential == own.credential));
}

#[tokio::test]
async fn a_directory_in_use_gets_no_new_keys() {
    let world = World::new("credentials-use", oscore(ED25519), false).await;
    let hall = world.joined("hall", LAMP).await;
    let open = hall.open();
    let refused = hall.controller.renew_credential_oscore(&hall.dir).await;
    assert!(matches!(refused, Err(ControllerError::Context(ContextError::InUse { .. }))));
    // A join would take the Sender ID from the process that has the directory open.
    let refused = world.try_join("hall", LAMP).await.err();
    assert!(matches!(refused, Some(ControllerError::Context(ContextError::InUse { .. }))));
    drop(open);
    assert_eq!(world.controller.show("lamps").await.unwrap().epoch, 2, "the controller received no request");
    // A directory of an earlier version has no roles.
    let file = hall.dir.join("context.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("roles = 4\n", "")).unwrap();
    assert!(StoredMember::open(&hall.dir).is_ok());
    let refused = hall.controller.renew_credential_oscore(&hall.dir).await;
    assert!(matches!(refused, Err(ControllerError::RolesUnknown(_))));
    let monitor = world.joined("switch", MONITOR).await;
    let refused = monitor.controller.renew_credential_oscore(&monitor.dir).await;
    assert!(matches!(refused, Err(ControllerError::Context(ContextError::Monitor { .. }))));
    assert_eq!(world.controller.show("lamps").await.unwrap().epoch, 3);
}

#[tokio::test]
async fn a_member_of_an_axiom_group_joins_again_for_another_key() {
    let world = World::new("credentials-axiom", config(), false).await;
    let hall = world.device("hall").await;
    super::server::post(&hall, "/ace-group/lamps", &super::server::join(2, false)).await;
    let path = format!("/ace-group/lamps/nodes/{}/cred", world.controller.node("lamps", "hall").await.unwrap());
    let reply = send(&hall, &path, &[]).await;
    assert_eq!(reply.code, Code::BAD_REQUEST);
    assert!(String::from_utf8_lossy(&reply.payload).contains("another protocol, Axiom or Group OSCORE"));
}
