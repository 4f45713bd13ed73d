//! Tests of groups whose records have signatures. Members prove that they have a private key, and get the public keys
//! of the other members.

use super::server::{World, admitted, join, labels, post};
use super::world::{config, member};
use std::sync::atomic::Ordering;
use tegmen::coap::Code;
use tegmen::crypto::SignatureScheme;
use tegmen_control::group::{GroupConfig, GroupError};
use tegmen_host::client::{Response, Session};
use tegmen_host::group::groupcomm::{
    Challenge, Creds, CredsFilter, GROUPCOMM_CBOR, GroupcommError, JoinRequest, Possession, REQUESTER, RESPONDER,
};
use tegmen_host::problem;
use tegmen_trust::x509::signer::{Signer as _, SoftwareKey};

const LAMPS: &str = "/ace-group/lamps";
const CREDS: &str = "/ace-group/lamps/creds";

fn signed(scheme: SignatureScheme) -> GroupConfig {
    GroupConfig { signature: Some(scheme), ..config() }
}

/// Returns a request to join that contains the proof for a challenge, signed with `key`.
fn proving(request: &JoinRequest, challenge: &Challenge, key: &SoftwareKey) -> JoinRequest {
    let possession = Some(Possession::prove(request, challenge, [3; 8], key).unwrap());
    JoinRequest { possession, creds: Some(CredsFilter::default()), ..request.clone() }
}

async fn challenge(session: &Session, request: &JoinRequest) -> Challenge {
    let response = post(session, LAMPS, request).await;
    assert_eq!((response.code, response.content_format()), (Code::BAD_REQUEST, Some(GROUPCOMM_CBOR.into())));
    Challenge::parse(&response.payload).unwrap()
}

async fn fetch(session: &Session, filter: &CredsFilter) -> Response {
    let payload = filter.encode();
    session.request(Code::FETCH, CREDS).payload(&payload).content_format(GROUPCOMM_CBOR).await.unwrap()
}

#[tokio::test]
async fn a_device_joins_only_with_a_key_that_it_has() {
    for scheme in [SignatureScheme::ECDSA_SECP256R1_SHA256, SignatureScheme::ED25519] {
        let other = if scheme == SignatureScheme::ED25519 {
            SignatureScheme::ECDSA_SECP256R1_SHA256
        } else {
            SignatureScheme::ED25519
        };
        let world = World::new(&format!("possession-{}", scheme.0), signed(scheme), false).await;
        let (key, of_another) = (SoftwareKey::draw(scheme).unwrap().0, SoftwareKey::draw(scheme).unwrap().0);
        let hall = world.device("hall").await;
        let request = join(2, false);
        let asked = challenge(&hall, &request).await;
        assert_eq!(asked.scheme, scheme);
        let refused = async |session: &Session, request: &JoinRequest, error: GroupcommError| {
            let response = post(session, LAMPS, request).await;
            assert_eq!((response.code, &response.payload), (Code::BAD_REQUEST, &error.encode()));
            assert_eq!(response.content_format(), Some(problem::CONTENT_FORMAT.into()));
        };
        // The public key of another device.
        let mut stolen = proving(&request, &asked, &key);
        stolen.possession.as_mut().unwrap().public_key = of_another.public_key().to_vec();
        refused(&hall, &stolen, GroupcommError::NoPossession).await;
        // The proof of another device, in a session of our own.
        let proof = proving(&request, &asked, &key);
        refused(&world.device("porch").await, &proof, GroupcommError::NoPossession).await;
        let other = SoftwareKey::draw(other).unwrap().0;
        refused(&hall, &proving(&request, &asked, &other), GroupcommError::OtherCredential).await;
        assert!(world.logged("does not prove that it has the private key"));
        // Nobody was admitted, and nothing was rekeyed.
        let report = world.controller.show("lamps").await.unwrap();
        assert_eq!((report.epoch, report.size), (1, 0));

        let (keys, _) = admitted(&post(&hall, LAMPS, &proof).await);
        assert_eq!((keys.signature, keys.creds.as_deref()), (Some(scheme), Some([].as_slice())), "it is alone");
        let report = world.controller.show("lamps").await.unwrap();
        let row = report.members[0].1.public_key.clone().unwrap();
        assert_eq!(tegmen_base::hex::from_hex(&row).unwrap(), key.public_key());
        // A right is needed as before.
        let oven = world.device("oven").await;
        assert_eq!(post(&oven, LAMPS, &request).await.code, Code::FORBIDDEN);
    }
}

#[tokio::test]
async fn members_get_the_public_keys_of_the_others() {
    let scheme = SignatureScheme::ED25519;
    let world = World::new("creds", signed(scheme), false).await;
    let keys: Vec<_> = (0..3).map(|_| SoftwareKey::draw(scheme).unwrap().0).collect();
    let mut sessions = Vec::new();
    for (at, (device, sends)) in [("switch", true), ("hall", false), ("porch", false)].into_iter().enumerate() {
        let session = world.device(device).await;
        let request = join(at as u8 + 1, sends);
        let asked = challenge(&session, &request).await;
        let (admitted, path) = admitted(&post(&session, LAMPS, &proving(&request, &asked, &keys[at])).await);
        let got: Vec<_> = admitted.creds.iter().flatten().map(|cred| cred.public_key.clone()).collect();
        let mut before: Vec<_> = keys[..at].iter().map(|key| key.public_key().to_vec()).collect();
        before.sort_by_key(|key| got.iter().position(|other| other == key));
        assert_eq!(got, before);
        sessions.push((session, path));
    }
    let [(switch, _), (hall, hall_path), _] = sessions.as_slice() else { panic!("three members") };
    let selected = async |session: &Session, filter: CredsFilter| {
        let response = fetch(session, &filter).await;
        assert_eq!(response.code, Code::CONTENT);
        let Creds { epoch, creds } = Creds::parse(&response.payload).unwrap();
        assert_eq!(epoch, 4);
        let name = |cred: tegmen_host::group::groupcomm::Cred| {
            keys.iter().position(|key| key.public_key() == cred.public_key).unwrap()
        };
        let mut who: Vec<_> = creds.into_iter().map(name).collect();
        who.sort_unstable();
        who
    };
    assert_eq!(selected(hall, CredsFilter::default()).await, [0, 2]);
    assert_eq!(selected(hall, CredsFilter::of_role(REQUESTER)).await, [0]);
    assert_eq!(selected(switch, CredsFilter::of_role(RESPONDER)).await, [1, 2]);
    let address = |host: u8| [&[0xfd][..], &[0; 14], &[host]].concat();
    let some = |members: &[Vec<u8>], excludes| CredsFilter { members: members.to_vec(), excludes, roles: vec![] };
    assert_eq!(selected(hall, some(&[vec![0]], false)).await, [0], "by its SenderID");
    assert_eq!(selected(switch, some(&[address(3)], false)).await, [2], "by its address");
    assert_eq!(selected(switch, some(&[address(3)], true)).await, [1]);
    let all = Creds::parse(&switch.get(CREDS).await.unwrap().payload).unwrap();
    assert_eq!((all.creds.len(), &all.creds), (2, &Creds::parse(&all.encode()).unwrap().creds));
    assert_eq!(switch.request(Code::FETCH, CREDS).payload(&[0xa0]).await.unwrap().code, Code(0x8f));
    let empty = switch.request(Code::FETCH, CREDS).payload(&[0xa0]).content_format(GROUPCOMM_CBOR);
    assert_eq!(empty.await.unwrap().code, Code::BAD_REQUEST);

    // The key leaves with its member, and only members get keys.
    assert_eq!(hall.delete(hall_path).await.unwrap().code, Code::DELETED);
    let response = fetch(switch, &CredsFilter::default()).await;
    assert_eq!(Creds::parse(&response.payload).unwrap().creds.len(), 1);
    let refused = fetch(hall, &CredsFilter::default()).await;
    assert_eq!((refused.code, refused.payload), (Code::FORBIDDEN, GroupcommError::NotAMember.encode()));
    assert_eq!(fetch(&world.device("oven").await, &CredsFilter::default()).await.code, Code::FORBIDDEN);
}

#[tokio::test]
async fn a_response_to_a_join_has_creds_if_the_request_has_get_creds() {
    const OF_CREDS: [i64; 3] = [13, 14, 15];
    let scheme = SignatureScheme::ED25519;
    let world = World::new("get-creds", signed(scheme), false).await;
    for (device, host, asks) in [("hall", 2, true), ("porch", 3, false), ("hall", 2, true)] {
        let session = world.device(device).await;
        let request = join(host, false);
        let asked = challenge(&session, &request).await;
        let request = proving(&request, &asked, &SoftwareKey::draw(scheme).unwrap().0);
        let request = JoinRequest { creds: request.creds.filter(|_| asks), ..request };
        let labels = labels(&post(&session, LAMPS, &request).await.payload);
        let found: Vec<i64> = labels.into_iter().filter(|label| OF_CREDS.contains(label)).collect();
        assert_eq!(found, if asks { OF_CREDS.as_slice() } else { &[] }, "{device}");
    }
}

#[tokio::test]
async fn a_join_with_get_creds_reads_no_row_of_a_group_in_memory() {
    let world = World::new("creds-reads", signed(SignatureScheme::ED25519), false).await;
    let mut reads = Vec::new();
    for (device, host) in [("hall", 2), ("porch", 3)] {
        let (session, request) = (world.device(device).await, join(host, false));
        let asked = challenge(&session, &request).await;
        let request = proving(&request, &asked, &SoftwareKey::draw(SignatureScheme::ED25519).unwrap().0);
        let before = world.store.reads.load(Ordering::Relaxed);
        let (keys, _) = admitted(&post(&session, LAMPS, &request).await);
        assert_eq!(keys.creds.map(|creds| creds.len()), Some(usize::from(host) - 2), "{device}");
        reads.push(world.store.reads.load(Ordering::Relaxed) - before);
    }
    assert_eq!(reads, [0, 0]);
}

#[tokio::test]
async fn a_filter_without_roles_and_members_is_malformed() {
    let world = World::new("empty-filter", signed(SignatureScheme::ED25519), false).await;
    let hall = world.device("hall").await;
    let request = join(2, false);
    let asked = challenge(&hall, &request).await;
    let right = proving(&request, &asked, &SoftwareKey::draw(SignatureScheme::ED25519).unwrap().0);
    // The filter [false, [], []].
    let creds = Some(CredsFilter { excludes: true, ..CredsFilter::default() });
    let refused = post(&hall, LAMPS, &JoinRequest { creds, ..right.clone() }).await;
    assert_eq!((refused.code, refused.payload.as_slice()), (Code::BAD_REQUEST, [].as_slice()));
    assert_eq!(post(&hall, LAMPS, &right).await.code, Code::CREATED);
    for includes in [0xf5, 0xf4] {
        let payload = [0xa1, 4, 0x83, includes, 0x80, 0x80];
        let refused = hall.request(Code::FETCH, CREDS).payload(&payload).content_format(GROUPCOMM_CBOR).await.unwrap();
        assert_eq!((refused.code, refused.payload.as_slice()), (Code::BAD_REQUEST, [].as_slice()), "{includes:x}");
    }
}

#[tokio::test]
async fn an_operator_provisions_no_member_of_a_group_with_signatures() {
    let world = World::new("unprovisioned", signed(SignatureScheme::ED25519), false).await;
    let refused = world.controller.add("lamps", &member("hall", 1, false)).await.unwrap_err();
    assert!(matches!(refused, GroupError::NoPublicKey(_)), "{refused}");
    let config = signed(SignatureScheme::ED25519);
    let refused = world.controller.create("doors", config, &[member("hall", 1, false)]).await.unwrap_err();
    assert!(matches!(refused, GroupError::NoPublicKey(_)), "{refused}");
    // The row of the group is read as it was written.
    let config = GroupConfig { group_id: Some(1), ..config };
    assert_eq!(world.controller.show("lamps").await.unwrap().config, config);
}
