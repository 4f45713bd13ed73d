//! Tests of signature verifiers: devices that are no members, and that verify who sent a message of a Group OSCORE
//! group.

use super::oscore::{LAMP, SWITCH, ask, key_labels, oscore, roles};
use super::server::{World, labels};
use super::world::config;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageType};
use tegmen::crypto::{Curve, SignatureScheme};
use tegmen::oscore::Unprotected;
use tegmen::oscore::group::{Mode, Replies};
use tegmen_control::access::ace::{Aif, Right, Scope};
use tegmen_host::client::{Response, Session};
use tegmen_host::contexts::StoredMember;
use tegmen_host::controller::{ControllerError, NotVerified, Verified};
use tegmen_host::group::groupcomm::oscore::{
    KdcCred, OscoreCreds, OscoreFilter, VerificationData, encode_cnonce, encode_names, parse_cnonce,
};
use tegmen_host::group::groupcomm::{GROUPCOMM_CBOR, GroupcommError};
use tegmen_host::problem;
use tegmen_trust::provider::HostCrypto;

const ED25519: SignatureScheme = SignatureScheme::ED25519;
const P256: SignatureScheme = SignatureScheme::ECDSA_SECP256R1_SHA256;

async fn fetch(session: &Session, path: &str, payload: &[u8]) -> Response {
    session.request(Code::FETCH, path).payload(payload).content_format(GROUPCOMM_CBOR).await.unwrap()
}

/// Returns code, Content-Format and payload of a refusal.
fn because(error: GroupcommError) -> (Code, Option<u32>, Vec<u8>) {
    (Code::FORBIDDEN, Some(problem::CONTENT_FORMAT.into()), error.encode())
}

fn explained(response: Response) -> (Code, Option<u32>, Vec<u8>) {
    (response.code, response.content_format(), response.payload)
}

/// Lets a member answer a request in the group mode. Returns the response.
fn answer(member: &mut StoredMember, request: &[u8]) -> Vec<u8> {
    let crypto = &mut HostCrypto::from_os().unwrap();
    let mut request = request.to_vec();
    let StoredMember { context, recipients, .. } = member;
    let binding = match context.unprotect_request(crypto, recipients.as_mut_slice(), &mut request).unwrap() {
        Unprotected::Fresh(_, nonce) => nonce.request(),
        Unprotected::Unverified(_, request) => request,
    };
    let mut storage = [0; 400];
    let mut frame = Frame::new(&mut storage, 200);
    let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, Code::CHANGED, 2, b"t").unwrap();
    builder.payload(b"done").unwrap();
    context.protect_response(crypto, Mode::Group, &binding, None, &mut frame).unwrap();
    frame.finish().to_vec()
}

#[tokio::test]
async fn a_verifier_verifies_who_sent_a_message_and_cannot_read_it() {
    for scheme in [ED25519, P256] {
        let world = World::new(&format!("verifiers-{}", scheme.0), oscore(scheme), false).await;
        let switch = world.joined("switch", SWITCH).await;
        let hall = world.joined("hall", LAMP).await;
        switch.controller.update_oscore(&switch.dir).await.unwrap();
        let request = ask(&mut switch.open());
        let response = answer(&mut hall.open(), &request);

        let mut verifier = world.oscore_controller("gateway").verifier_oscore().await.unwrap();
        assert_eq!((verifier.epoch(), verifier.members()), (3, 2));
        assert_eq!(verifier.gid(), world.controller.show("lamps").await.unwrap().gid.unwrap());
        assert_eq!(verifier.verify(&response), Err(NotVerified::NoRequest));
        let of = |is_request, id: u8, name: &str| Verified { is_request, id: vec![id], name: Some(name.to_owned()) };
        assert_eq!(verifier.verify(&request), Ok(of(true, 0, "switch")));
        assert_eq!(verifier.verify(&response), Ok(of(false, 1, "hall")));
        for message in [&request, &response] {
            let mut forged = message.clone();
            *forged.last_mut().unwrap() ^= 1;
            assert_eq!(verifier.verify(&forged), Err(NotVerified::Forged));
        }
        assert_eq!(verifier.verify(&[]), Err(NotVerified::Unprotected));
        // A message in the pairwise mode has no signature.
        let mut member = switch.open();
        let StoredMember { context, recipients, .. } = &mut member;
        let mut storage = [0; 400];
        let mut frame = Frame::new(&mut storage, 200);
        Builder::new(&mut frame, MessageType::NonConfirmable, Code::GET, 3, b"u").unwrap();
        let crypto = &mut HostCrypto::from_os().unwrap();
        let mode = Mode::Pairwise(&mut recipients[0]);
        context.protect_request(crypto, mode, [Replies::default(); 3], &mut frame).unwrap();
        assert_eq!(verifier.verify(frame.bytes()), Err(NotVerified::NoSignature));
        drop(member);

        // Messages under the keys of the next epoch.
        world.controller.rekey("lamps").await.unwrap();
        switch.controller.update_oscore(&switch.dir).await.unwrap();
        let later = ask(&mut switch.open());
        assert_eq!(verifier.verify(&later), Err(NotVerified::OtherKeys));
        let mut verifier = world.oscore_controller("gateway").verifier_oscore().await.unwrap();
        assert_eq!(verifier.verify(&later), Ok(of(true, 0, "switch")));
        assert_eq!(verifier.verify(&request), Err(NotVerified::OtherKeys), "keys of an earlier epoch");
        // An evicted member is not verified any more.
        world.controller.evict("lamps", "switch").await.unwrap();
        let mut verifier = world.oscore_controller("gateway").verifier_oscore().await.unwrap();
        assert_eq!((verifier.verify(&later), verifier.members()), (Err(NotVerified::OtherKeys), 1));
    }
}

#[tokio::test]
async fn repeated_requests_do_not_make_an_authentic_response_a_forgery() {
    let world = World::new("verifiers-repeated", oscore(ED25519), false).await;
    let switch = world.joined("switch", SWITCH).await;
    let hall = world.joined("hall", LAMP).await;
    switch.controller.update_oscore(&switch.dir).await.unwrap();
    let mut asking = switch.open();
    // All these requests have the same token.
    let requests: Vec<_> = (0..5).map(|_| ask(&mut asking)).collect();
    let response = answer(&mut hall.open(), &requests[0]);
    let mut verifier = world.oscore_controller("gateway").verifier_oscore().await.unwrap();
    assert!(verifier.verify(&requests[0]).is_ok());
    for _ in 0..8 {
        assert!(verifier.verify(&requests[1]).is_ok());
    }
    assert!(verifier.verify(&response).is_ok());
    for request in &requests {
        assert!(verifier.verify(request).is_ok());
    }
    assert_eq!(verifier.verify(&response), Err(NotVerified::NoRequest));
}

#[tokio::test]
async fn the_data_for_verifiers_has_no_key_of_the_members() {
    let world = World::new("verifiers-data", oscore(ED25519), false).await;
    for (name, number) in [("switch", SWITCH), ("hall", LAMP)] {
        world.joined(name, number).await;
    }
    let gateway = world.device("gateway").await;
    let response = gateway.get("/ace-group/lamps/verif-data").await.unwrap();
    assert_eq!((response.code, response.content_format()), (Code::CONTENT, Some(GROUPCOMM_CBOR.into())));
    // gkty, key, num, ace_groupcomm_profile, exp, exi, sign_enc_key; key without ms, salt and group_senderId.
    assert_eq!(labels(&response.payload), [7, 8, 9, 10, 11, 12, 33]);
    assert_eq!(key_labels(&response.payload), [3, 4, 6, 8, 9, 10, 11, 12]);
    let data = VerificationData::parse(&response.payload).unwrap();
    let keys = world.controller.oscore_keys("lamps", "hall").await.unwrap().0;
    assert_eq!((&data.gid, data.aead, data.curve, data.number), (&keys.gid, keys.aead, keys.curve, keys.number));
    let has = |secret: &[u8]| response.payload.windows(secret.len()).any(|part| part == secret);
    assert!(!has(&keys.master_secret) && !has(&keys.master_salt));
    assert!(has(data.signature_encryption_key.expose()));

    let creds = OscoreCreds::parse(&gateway.get("/ace-group/lamps/creds").await.unwrap().payload).unwrap();
    assert_eq!((creds.number, creds.creds.len()), (3, 2));
    let filter = OscoreFilter { roles: vec![LAMP], ..OscoreFilter::default() };
    let creds = fetch(&gateway, "/ace-group/lamps/creds", &filter.encode()).await;
    let creds = OscoreCreds::parse(&creds.payload).unwrap().creds;
    assert!(matches!(creds.as_slice(), [cred] if cred.id == [1] && cred.roles == roles(LAMP)));

    let crypto = &mut HostCrypto::from_os().unwrap();
    let proofs = [[1; 8], [2; 8]].map(|cnonce| (cnonce, encode_cnonce(&cnonce)));
    for (cnonce, payload) in &proofs {
        let response = fetch(&gateway, "/ace-group/lamps/kdc-cred", payload).await;
        assert_eq!((response.code, response.content_format()), (Code::CONTENT, Some(GROUPCOMM_CBOR.into())));
        let kdc = KdcCred::parse(&response.payload).unwrap();
        assert!(kdc.proves(crypto, Curve::Ed25519, cnonce) && !kdc.proves(crypto, Curve::Ed25519, &[3; 8]));
    }
    let wrong = [vec![], vec![0xa0], encode_cnonce(&[]).to_vec(), encode_cnonce(&[1; 65]).to_vec()];
    for payload in wrong {
        assert!(parse_cnonce(&payload).is_err());
        assert_eq!(fetch(&gateway, "/ace-group/lamps/kdc-cred", &payload).await.code, Code::BAD_REQUEST);
    }
    let gid = data.gid.clone();
    let mut asked = minicbor::Encoder::new(Vec::new());
    asked.map(1).unwrap().u8(0).unwrap().array(1).unwrap().bytes(&gid).unwrap();
    let found = fetch(&gateway, "/ace-group", &asked.into_writer()).await.payload;
    assert_eq!(found, encode_names(&[(gid, "lamps".to_owned())]), "a verifier finds the name of its group");
}

#[tokio::test]
async fn a_verifier_has_no_other_right_and_a_member_is_no_verifier() {
    let world = World::new("verifiers-rights", oscore(ED25519), false).await;
    world.joined("hall", LAMP).await;
    let [hall, porch, oven, gateway] = ["hall", "porch", "oven", "gateway"].map(|name| world.device(name));
    let (hall, porch, oven, gateway) = (hall.await, porch.await, oven.await, gateway.await);
    let cnonce = encode_cnonce(&[1; 8]);
    // The gateway joins nothing, and has no other resource.
    let none = (Code::FORBIDDEN, None, Vec::new());
    for path in ["", "/num", "/policies", "/active", "/nodes/8", "/other"] {
        assert_eq!(explained(gateway.get(&format!("/ace-group/lamps{path}")).await.unwrap()), none, "{path}");
    }
    assert_eq!(explained(gateway.post("/ace-group/lamps", &[]).await.unwrap()), none);
    let refused = explained(gateway.get("/ace-group/lamps/kdc-cred").await.unwrap());
    assert_eq!(refused, because(GroupcommError::NotAMember), "a verifier has no nonce of a join");
    assert_eq!(gateway.post("/ace-group/lamps/verif-data", &[]).await.unwrap().code, Code::METHOD_NOT_ALLOWED);
    // A member, and a device that may only join.
    for device in [&hall, &porch] {
        let data = device.get("/ace-group/lamps/verif-data").await.unwrap();
        assert_eq!(explained(data), because(GroupcommError::NotAVerifier));
        let cred = fetch(device, "/ace-group/lamps/kdc-cred", &cnonce).await;
        assert_eq!(explained(cred), because(GroupcommError::NotAVerifier));
    }
    let refused = explained(porch.get("/ace-group/lamps/creds").await.unwrap());
    assert_eq!(refused, because(GroupcommError::NotAMember));
    // A device without a right gets the same response for each group.
    for group in ["lamps", "doors"] {
        for path in ["verif-data", "creds"] {
            assert_eq!(explained(oven.get(&format!("/ace-group/{group}/{path}")).await.unwrap()), none);
        }
        assert_eq!(explained(fetch(&oven, &format!("/ace-group/{group}/kdc-cred"), &cnonce).await), none);
    }
    for name in ["hall", "porch", "oven"] {
        let refused = world.oscore_controller(name).verifier_oscore().await.err();
        assert!(matches!(refused, Some(ControllerError::NotAVerifier(_))), "{name}");
    }
    // The policy gives the gateway the right to join as well: as a member it is no verifier.
    let policy = "[[rule]]\nsubject = \"gateway\"\npublisher = \"controller\"\n\
        allow = [\"POST /ace-group/lamps\", \"POST /ace-group/lamps/verifier\", \"POST /ace-group/lamps/responder\"]\n";
    world.service.apply_policy("operator", ("policy.toml", policy), None).await.unwrap();
    assert_eq!(gateway.get("/ace-group/lamps/verif-data").await.unwrap().code, Code::CONTENT);
    world.joined("gateway", LAMP).await;
    let data = gateway.get("/ace-group/lamps/verif-data").await.unwrap();
    assert_eq!(explained(data), because(GroupcommError::NotAVerifier));
    let cred = fetch(&gateway, "/ace-group/lamps/kdc-cred", &cnonce).await;
    assert_eq!(explained(cred), because(GroupcommError::NotAVerifier));
    // The right ends with the rule.
    world.controller.evict("lamps", "gateway").await.unwrap();
    assert_eq!(gateway.get("/ace-group/lamps/verif-data").await.unwrap().code, Code::CONTENT);
    world.service.apply_policy("operator", ("policy.toml", ""), None).await.unwrap();
    assert_eq!(explained(gateway.get("/ace-group/lamps/verif-data").await.unwrap()), none);
}

#[tokio::test]
async fn an_axiom_group_has_no_verifiers() {
    let world = World::new("verifiers-axiom", config(), false).await;
    let gateway = world.device("gateway").await;
    for path in ["verif-data", "creds"] {
        let refused = gateway.get(&format!("/ace-group/lamps/{path}")).await.unwrap();
        assert_eq!(refused.code, Code::BAD_REQUEST, "{path}");
        let reason = "another protocol, Axiom or Group OSCORE";
        assert!(String::from_utf8_lossy(&refused.payload).contains(reason), "{path}");
    }
    let refused = fetch(&gateway, "/ace-group/lamps/kdc-cred", &encode_cnonce(&[1; 8])).await;
    assert_eq!(refused.code, Code::BAD_REQUEST);
    let refused = world.oscore_controller("gateway").verifier_oscore().await.err();
    assert!(matches!(refused, Some(ControllerError::NoVerifiers(_))));
}

/// A scope of draft-ietf-ace-key-groupcomm-oscore, section 3: the name of the group, and the roles as a number.
pub(crate) fn scope(group: &str, roles: u64) -> Scope {
    Scope::of(&Aif(vec![Right { path: group.to_owned(), permissions: roles }]))
}

#[tokio::test]
async fn a_token_with_the_role_of_a_verifier_admits_its_client() {
    let world = World::new("verifiers-token", oscore(ED25519), true).await;
    let (gateway, identity) = world.with_token("gateway", scope("lamps", 16)).await.unwrap();
    assert_eq!(gateway.get("/ace-group/lamps/verif-data").await.unwrap().code, Code::CONTENT);
    assert_eq!(gateway.get("/ace-group/lamps/creds").await.unwrap().code, Code::CONTENT);
    let kdc = fetch(&gateway, "/ace-group/lamps/kdc-cred", &encode_cnonce(&[1; 8])).await;
    assert_eq!(kdc.code, Code::CONTENT);
    assert_eq!(gateway.get("/ace-group/lamps").await.unwrap().code, Code::FORBIDDEN);
    assert_eq!(gateway.post("/ace-group/lamps", &[]).await.unwrap().code, Code::FORBIDDEN);
    world.tickets.end(&identity);
    assert_eq!(gateway.get("/ace-group/lamps/verif-data").await.unwrap().code, Code::UNAUTHORIZED);

    // The policy does not give these roles, or the scope has no role that exists.
    let refused =
        [("gateway", 2), ("gateway", 16 | 8), ("switch", 16), ("gateway", 0), ("gateway", 17), ("gateway", 32)];
    for (device, roles) in refused {
        assert!(world.with_token(device, scope("lamps", roles)).await.is_none(), "{device} {roles}");
    }
    assert!(world.with_token("gateway", scope("doors", 16)).await.is_none());
    // The roles of members: a requester is no verifier.
    let (switch, _) = world.with_token("switch", scope("lamps", 2)).await.unwrap();
    assert_eq!(switch.post("/ace-group/lamps", &[]).await.unwrap().code, Code::BAD_REQUEST, "the demand for a proof");
    let data = switch.get("/ace-group/lamps/verif-data").await.unwrap();
    assert_eq!(explained(data), because(GroupcommError::NotAVerifier));
}
