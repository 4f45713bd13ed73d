//! Deterministic requests (draft-ietf-core-cacheable-oscore-02).

use crate::vectors::{bytes, end, frame, plain};
use crate::world::{Group, Member, Pending, Recorder, Said, id_of, message, request, said};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::HashMap;
use tegmen_base::buf::Frame;
use tegmen_base::crypto::hash::digest;
use tegmen_base::crypto::hkdf::Hkdf;
use tegmen_base::crypto::{Crypto, Curve, RustCrypto};
use tegmen_coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen_oscore::group::{
    Algorithms, BadGroup, DeterministicClient, DeterministicRequest, GroupRequest, Mode, Replies,
};
use tegmen_oscore::{Aead, Id, ProtectError, UnprotectError};

const CURVES: [Curve; 2] = [Curve::Ed25519, Curve::P256];
const MAX_AGE: (OptionNumber, &[u8]) = (OptionNumber::MAX_AGE, b"\x0e\x10");

fn get(path: &str) -> Vec<u8> {
    message(Code::GET, &[(OptionNumber::URI_PATH, path.as_bytes())], b"")
}

fn content(payload: &[u8]) -> Vec<u8> {
    message(Code::CONTENT, &[MAX_AGE], payload)
}

fn said_in(bytes: &[u8]) -> Said {
    said(&MessageRef::parse(bytes).unwrap())
}

fn client_of(member: &Member) -> DeterministicClient {
    member.context.deterministic_client::<Recorder>(id_of("deterministic")).unwrap()
}

/// Protects a request as the Deterministic Client.
fn ask(member: &mut Member, plain: &[u8], to: Option<&str>) -> Result<(Pending, Vec<u8>), ProtectError> {
    let client = client_of(member);
    let mut storage = [0; 700];
    let mut made = frame(&mut storage, plain);
    let (to, replies) = (to.map(id_of), vec![Replies::default(); 2]);
    let pending = member.context.protect_deterministic_request(&mut member.crypto, &client, to, replies, &mut made)?;
    Ok((pending, made.bytes().to_vec()))
}

/// Decrypts a request. Returns `None` for the message if its method can change a resource.
fn hear(member: &mut Member, datagram: &[u8]) -> Result<(Option<Said>, GroupRequest), UnprotectError> {
    let client = client_of(member);
    let mut datagram = datagram.to_vec();
    match member.context.unprotect_deterministic_request(&mut member.crypto, &client, &mut datagram)? {
        DeterministicRequest::Safe(message, request) => Ok((Some(said(&message)), request)),
        DeterministicRequest::Unsafe(request) => Ok((None, request)),
    }
}

fn hear_safe(member: &mut Member, datagram: &[u8]) -> (Said, GroupRequest) {
    let (said, request) = hear(member, datagram).unwrap();
    (said.unwrap(), request)
}

fn members(curve: Curve) -> [Member; 3] {
    ["client", "bell", "lamp"].map(|name| Group::of(curve).member(name))
}

/// The test compares everything but the signature, because the draft signs other bytes than RFC 9338: the signature of
/// the draft also covers an empty sign_protected, which section 3.3 of RFC 9338 leaves out.
#[test]
fn the_messages_of_the_draft_are_ours_without_the_signature() {
    let text = include_str!("../../../vectors/group-oscore/cacheable_draft.json");
    let draft: Value = serde_json::from_str(text).unwrap();
    let (mut group, server) = (draft.clone(), &draft["server"]);
    group["client"] =
        json!({ "id": "01", "number": 0, "private": server["private"], "credential": server["credential"] });
    let (client, mut at_client) = end(&group, "client", "server");
    let (mut server, _) = end(&group, "server", "client");
    let crypto = &mut Recorder::new();
    let id = Id::new(&bytes(&draft["deterministic_client"])).unwrap();
    let deterministic = client.deterministic_client::<Recorder>(id).unwrap();
    let mut storage = [0; 400];
    let mut made = frame(&mut storage, &bytes(&draft["plain_request"]));
    let replies = [Replies::default()];
    let made_request = client.protect_deterministic_request(crypto, &deterministic, None, replies, &mut made);
    assert_eq!(made.bytes(), bytes(&draft["request"]));

    let mut request = bytes(&draft["request"]);
    let opened = server.unprotect_deterministic_request(crypto, &deterministic, &mut request).unwrap();
    let DeterministicRequest::Safe(message, request) = opened else { panic!("it is a GET") };
    assert_eq!(said(&message), plain(&bytes(&draft["plain_request"])));
    let mut storage = [0; 400];
    let mut made = frame(&mut storage, &bytes(&draft["plain_response"]));
    server.protect_response(crypto, Mode::Group, &request, None, &mut made).unwrap();
    let (mut ours, mut theirs) = (made.bytes().to_vec(), bytes(&draft["response"]));
    let signed = ours.len() - 64;
    assert_eq!((ours.len(), &ours[..signed]), (theirs.len(), &theirs[..signed]));

    let mut pending = made_request.unwrap();
    let refused = client.unprotect_response(crypto, at_client.as_mut_slice(), &mut pending, &mut theirs);
    assert_eq!(refused.unwrap_err(), UnprotectError::NotAuthentic);
    let (message, from) = client.unprotect_response(crypto, at_client.as_mut_slice(), &mut pending, &mut ours).unwrap();
    assert_eq!(said(&message), plain(&bytes(&draft["plain_response"])));
    assert_eq!(from.as_bytes(), bytes(&draft["server"]["id"]));
}

#[test]
fn members_make_the_same_request_and_one_response_answers_all() {
    for curve in CURVES {
        let [mut client, mut bell, mut lamp] = members(curve);
        let before = client.context.lease().next();
        let (mut pending, datagram) = ask(&mut client, &get("light"), Some("lamp")).unwrap();
        let (mut of_bell, same) = ask(&mut bell, &get("light"), None).unwrap();
        assert_eq!(datagram, same);
        assert_eq!(client.context.lease().next(), before);
        let (heard, asked) = hear_safe(&mut lamp, &datagram);
        assert_eq!((heard, asked.is_deterministic()), (said_in(&get("light")), true));
        let answer = lamp.answer(&content(b"it is on"), None, &asked, None).unwrap();
        for (member, pending) in [(&mut client, &mut pending), (&mut bell, &mut of_bell)] {
            assert_eq!(member.learn(pending, &answer).unwrap(), (said_in(&content(b"it is on")), id_of("lamp")));
            // A request takes a response once.
            assert_eq!(member.learn(pending, &answer), Err(UnprotectError::Replayed));
        }
    }
}

#[test]
fn the_messages_outside_are_those_of_the_draft() {
    let [mut client, _, mut lamp] = members(Curve::Ed25519);
    let plain = message(Code::GET, &[(OptionNumber::URI_HOST, b"lamp"), (OptionNumber::URI_PATH, b"light")], b"");
    let (_, datagram) = ask(&mut client, &plain, None).unwrap();
    let (code, options, _) = said_in(&datagram);
    assert_eq!(code, Code::FETCH);
    let [host, oscore, (number, hash)] = options.as_slice() else { panic!("{options:?}") };
    assert_eq!(*host, (OptionNumber::URI_HOST, b"lamp".to_vec()));
    assert_eq!(*oscore, (OptionNumber::OSCORE, b"\x19\x00\x07floor 7d".to_vec()));
    assert_eq!((*number, hash.len()), (OptionNumber::REQUEST_HASH, 32));
    let (heard, asked) = hear_safe(&mut lamp, &datagram);
    assert_eq!(heard, said_in(&plain));
    let code_and_options = |bytes: &[u8]| {
        let (code, options, _) = said_in(bytes);
        (code, options)
    };
    let oscore = |value: &[u8]| (OptionNumber::OSCORE, value.to_vec());
    let max_age = |value: &[u8]| (OptionNumber::MAX_AGE, value.to_vec());
    // Each response has a number of its own: the newer one has the higher number.
    let answer = lamp.answer(&content(b"on"), None, &asked, None).unwrap();
    assert_eq!(code_and_options(&answer), (Code::CONTENT, vec![oscore(b"\x29\x00l"), max_age(b"\x0e\x10")]));
    let answer = lamp.answer(&message(Code::NOT_FOUND, &[], b""), None, &asked, None).unwrap();
    assert_eq!(code_and_options(&answer), (Code::CONTENT, vec![oscore(b"\x29\x01l")]));
    let answer = lamp.answer(&message(Code::UNAUTHORIZED, &[(OptionNumber::MAX_AGE, b"")], b""), None, &asked, None);
    assert_eq!(code_and_options(&answer.unwrap()), (Code::CONTENT, vec![oscore(b"\x29\x02l"), max_age(b"")]));
}

#[test]
fn a_request_that_comes_again_is_delivered_again() {
    let [mut client, _, mut lamp] = members(Curve::P256);
    let (_, datagram) = ask(&mut client, &get("light"), None).unwrap();
    for _ in 0..3 {
        assert_eq!(hear_safe(&mut lamp, &datagram).0, said_in(&get("light")));
    }
}

#[test]
fn messages_that_no_cache_could_store_are_not_protected() {
    let [mut client, _, mut lamp] = members(Curve::Ed25519);
    let observe = message(Code::GET, &[(OptionNumber::OBSERVE, b""), (OptionNumber::URI_PATH, b"light")], b"");
    for plain in [request(), observe, content(b"")] {
        assert_eq!(ask(&mut client, &plain, None).unwrap_err(), ProtectError::Malformed);
    }
    let (_, datagram) = ask(&mut client, &get("light"), None).unwrap();
    let (_, asked) = hear_safe(&mut lamp, &datagram);
    let before = lamp.context.lease().next();
    for option in [
        (OptionNumber::OBSERVE, &b"\x01"[..]),
        (OptionNumber::HOP_LIMIT, b"\x01"),
        (OptionNumber::MAX_AGE, b"\0\0\0\0\x01"),
    ] {
        let plain = message(Code::CONTENT, &[option], b"on");
        assert_eq!(lamp.answer(&plain, None, &asked, None).unwrap_err(), ProtectError::Malformed);
    }
    // The keys of the pairwise mode would not prove which member answers.
    assert_eq!(lamp.answer(&content(b"on"), Some("client"), &asked, None).unwrap_err(), ProtectError::Malformed);
    assert_eq!(lamp.context.lease().next(), before);
}

#[test]
fn a_client_is_derived_for_a_group_with_both_modes_and_an_id_of_its_own() {
    let aead = Some(Aead::AesCcm16_64_128);
    let curve = Some(Curve::Ed25519);
    let refused = |algorithms, id: &[u8]| {
        let context = Group { algorithms, ..Group::of(Curve::Ed25519) }.context("client", 0);
        context.deterministic_client::<Recorder>(Id::new(id).unwrap()).err()
    };
    let signed = Algorithms { aead: None, group_encryption: aead, signature: curve, key_agreement: None };
    let pairwise = Algorithms { aead, group_encryption: None, signature: None, key_agreement: curve };
    let both = Algorithms::both(Curve::Ed25519);
    let gcm = Algorithms { group_encryption: Some(Aead::A128Gcm), ..both };
    assert_eq!(refused(signed, b"d"), Some(BadGroup::Algorithms));
    assert_eq!(refused(pairwise, b"d"), Some(BadGroup::Algorithms));
    assert_eq!(refused(both, b"c"), Some(BadGroup::SameIds));
    assert_eq!(refused(gcm, &[1; 7]), Some(BadGroup::IdTooLong { max: 6 }));
    assert_eq!(refused(both, &[1; 7]), None);
}

#[test]
fn a_message_with_any_bit_flipped_is_refused() {
    let [mut client, _, mut lamp] = members(Curve::Ed25519);
    let (mut pending, datagram) = ask(&mut client, &get("light"), Some("lamp")).unwrap();
    let (_, asked) = hear_safe(&mut lamp, &datagram);
    let answer = lamp.answer(&message(Code::CONTENT, &[], b"on"), None, &asked, None).unwrap();
    // Behind header and token all is covered.
    for (at, bit) in (6..datagram.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut flipped = datagram.clone();
        flipped[at] ^= 1 << bit;
        assert!(hear(&mut lamp, &flipped).is_err(), "byte {at}, bit {bit}");
    }
    for (at, bit) in (6..answer.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut flipped = answer.clone();
        flipped[at] ^= 1 << bit;
        assert!(client.learn(&mut pending, &flipped).is_err(), "byte {at}, bit {bit}");
    }
    assert!(client.learn(&mut pending, &answer).is_ok());
}

/// All deterministic requests have the same kid and the same number. So only the hash shows which request a response
/// answers.
#[test]
fn a_response_answers_its_own_request() {
    let [mut client, mut bell, mut lamp] = members(Curve::Ed25519);
    let (_, light) = ask(&mut client, &get("light"), None).unwrap();
    let (mut pending, door) = ask(&mut client, &get("doors"), Some("lamp")).unwrap();
    let (_, asked) = hear_safe(&mut lamp, &light);
    let of_light = lamp.answer(&content(b"it is on"), None, &asked, None).unwrap();
    assert_eq!(client.learn(&mut pending, &of_light), Err(UnprotectError::NotAuthentic));
    let (_, asked) = hear_safe(&mut bell, &door);
    let of_bell = bell.answer(&content(b"it is open"), None, &asked, None).unwrap();
    assert_eq!(client.learn(&mut pending, &of_bell), Err(UnprotectError::UnknownMember));
    let (_, asked) = hear_safe(&mut lamp, &door);
    let answer = lamp.answer(&content(b"it is shut"), None, &asked, None).unwrap();
    // A response may repeat the hash (section 3.3).
    let [hash, other] = [&door, &light].map(|request| request_hash(request));
    let with = |hash: &[u8]| again(&answer, |options| options.push((OptionNumber::REQUEST_HASH, hash.to_vec())));
    for wrong in [&other[..], &hash[1..], b""] {
        assert_eq!(client.learn(&mut pending, &with(wrong)), Err(UnprotectError::NotAuthentic));
    }
    assert_eq!(client.learn(&mut pending, &with(&hash)).unwrap().0, said_in(&content(b"it is shut")));
}

fn request_hash(request: &[u8]) -> Vec<u8> {
    MessageRef::parse(request).unwrap().option(OptionNumber::REQUEST_HASH).unwrap().to_vec()
}

/// Builds the message in `datagram` again, after `change` has changed its options.
fn again(datagram: &[u8], change: impl FnOnce(&mut Vec<(OptionNumber, Vec<u8>)>)) -> Vec<u8> {
    let (code, mut options, payload) = said_in(datagram);
    change(&mut options);
    let options: Vec<_> = options.iter().map(|(number, value)| (*number, value.as_slice())).collect();
    message(code, &options, &payload)
}

#[test]
fn a_request_of_another_group_or_client_or_without_a_hash_is_refused() {
    let group = Group::of(Curve::Ed25519);
    let mut lamp = group.member("lamp");
    let (_, datagram) = ask(&mut group.member("client"), &get("light"), None).unwrap();
    for (other, refused) in [
        (Group { manager: "cloner", ..group }, UnprotectError::NotAuthentic),
        (Group { secret: [8; 16], ..group }, UnprotectError::NotAuthentic),
        (Group { gid: b"floor 8", ..group }, UnprotectError::UnknownContext),
    ] {
        let (_, datagram) = ask(&mut other.member("client"), &get("light"), None).unwrap();
        assert_eq!(hear(&mut lamp, &datagram).unwrap_err(), refused);
    }
    let with = |number: OptionNumber, value: &[u8]| {
        again(&datagram, |options| {
            options.iter_mut().filter(|(of, _)| *of == number).for_each(|(_, old)| *old = value.to_vec());
        })
    };
    let oscore = |value: &[u8]| with(OptionNumber::OSCORE, value);
    let refused = [
        (with(OptionNumber::REQUEST_HASH, b""), UnprotectError::BadOption),
        (with(OptionNumber::REQUEST_HASH, &[1; 31]), UnprotectError::BadOption),
        (with(OptionNumber::REQUEST_HASH, &[1; 33]), UnprotectError::BadOption),
        (with(OptionNumber::REQUEST_HASH, &[1; 32]), UnprotectError::NotAuthentic),
        (again(&datagram, |options| options.truncate(1)), UnprotectError::BadOption),
        (oscore(b"\x19\x01\x07floor 7d"), UnprotectError::BadOption),
        (oscore(b"\x18\x07floor 7d"), UnprotectError::BadOption),
        (oscore(b"\x39\x00\x07floor 7d"), UnprotectError::BadOption),
        (oscore(b"\x19\x00\x07floor 7c"), UnprotectError::UnknownMember),
        (oscore(b"\x09\x00d"), UnprotectError::UnknownContext),
    ];
    for (at, (datagram, error)) in refused.into_iter().enumerate() {
        assert_eq!(hear(&mut lamp, &datagram).unwrap_err(), error, "{at}");
    }
    // The other members send nothing that counts as a request of this client.
    let client = client_of(&lamp);
    let (_, pairwise) = group.member("client").ask(&get("light"), Some("lamp")).unwrap();
    assert!(client.sent(&MessageRef::parse(&datagram).unwrap()));
    assert!(!client.sent(&MessageRef::parse(&pairwise).unwrap()));
    assert_eq!(lamp.hear(&datagram).unwrap_err(), UnprotectError::UnknownMember);
}

/// A member that makes requests of the Deterministic Client with its own code, which follows the text of the draft. So
/// it can make requests that violate the draft.
struct Forger {
    sender_key: [u8; 16],
    aad: Vec<u8>,
    nonce: Vec<u8>,
}

impl Forger {
    const GROUP: Group =
        Group { gid: b"floor 7", secret: [7; 16], manager: "manager", algorithms: Algorithms::both(Curve::Ed25519) };

    /// Copies the nonce and the additional authenticated data from a valid request. These are the same for each
    /// request.
    fn new() -> Self {
        let mut member = Self::GROUP.member("bell");
        ask(&mut member, &get("light"), None).unwrap();
        let (aad, nonce) = member.crypto.last.clone().unwrap();
        let mut hkdf = Hkdf::none();
        hkdf.extract::<RustCrypto>(b"salt", &[&Self::GROUP.secret]);
        let mut sender_key = [0; 16];
        hkdf.expand::<RustCrypto>(b"\x85\x41d\x47floor 7\x0a\x63Key\x10", &mut sender_key);
        Self { sender_key, aad, nonce }
    }

    fn hash(&self, plaintext: &[u8]) -> [u8; 32] {
        // Enc_structure: an array, "Encrypt0", an empty string, and the string external_aad with a head of two bytes.
        digest::<RustCrypto, 32>(&[&self.sender_key, &self.aad[13..], plaintext])
    }

    /// Makes a request with this plaintext. Derives its key from `hash`, and writes `hash` into its Request-Hash
    /// option.
    fn request(&self, plaintext: &[u8], hash: &[u8; 32]) -> Vec<u8> {
        let mut hkdf = Hkdf::none();
        hkdf.extract::<RustCrypto>(&self.sender_key, &[hash]);
        let mut key = [0; 16];
        hkdf.expand::<RustCrypto>(b"\x85\x41d\x47floor 7\x0a\x63Key\x10", &mut key);
        let (mut body, mut tag) = (plaintext.to_vec(), [0; 8]);
        let mut crypto = RustCrypto::new([1; 32]);
        crypto.seal(RustCrypto::AES_128_CCM, &key, &self.nonce, &self.aad, &mut body, &mut tag).unwrap();
        body.extend_from_slice(&tag);
        let options = [(OptionNumber::OSCORE, &b"\x19\x00\x07floor 7d"[..]), (OptionNumber::REQUEST_HASH, hash)];
        message(Code::FETCH, &options, &body)
    }
}

#[test]
fn a_hash_of_another_request_is_refused_and_a_method_with_effects_is_not_delivered() {
    let (forger, mut lamp) = (Forger::new(), Forger::GROUP.member("lamp"));
    let (get_light, get_doors, put) = (b"\x01\xb5light", b"\x01\xb5doors", b"\x03\xb5light\xffoff");
    let hashed = |plaintext: &[u8]| forger.request(plaintext, &forger.hash(plaintext));
    assert_eq!(hashed(get_light), ask(&mut Forger::GROUP.member("client"), &get("light"), None).unwrap().1);
    // The tag is right. Without the comparison the response to this request would have the hash of the other one.
    let forged = forger.request(get_doors, &forger.hash(get_light));
    assert_eq!(hear(&mut lamp, &forged).unwrap_err(), UnprotectError::NotAuthentic);
    let (heard, asked) = hear(&mut lamp, &hashed(put)).unwrap();
    assert_eq!(heard, None);
    assert!(lamp.answer(&message(Code::UNAUTHORIZED, &[], b""), None, &asked, None).is_ok());
    for not_a_request in [&b"\x45\xffon"[..], b"\x00", b"\x01\xbf"] {
        assert_eq!(hear(&mut lamp, &hashed(not_a_request)).unwrap_err(), UnprotectError::Malformed);
    }
}

type Plain = (bool, Vec<(u16, Vec<u8>)>, Vec<u8>);

fn requests() -> impl Strategy<Value = Vec<Plain>> {
    // No option that goes outside, which is no part of what is encrypted.
    let option = (prop_oneof![Just(11u16), 40u16..1000], proptest::collection::vec(any::<u8>(), 0..3));
    let plain = (any::<bool>(), proptest::collection::vec(option, 0..3), proptest::collection::vec(0u8..2, 0..4));
    proptest::collection::vec(plain, 2..12)
}

/// Protects requests that differ from each other. [`Recorder`] fails if two of them have the same nonce and the same
/// key.
fn protects_each(plains: Vec<Plain>, mut protect: impl FnMut(&mut Recorder, &[u8]) -> Vec<u8>) {
    let crypto = &mut Recorder::new();
    let mut made: HashMap<Said, Vec<u8>> = HashMap::new();
    for (is_get, mut options, payload) in plains {
        options.sort();
        let options: Vec<_> = options.iter().map(|(number, value)| (OptionNumber(*number), value.as_slice())).collect();
        let plain = message(if is_get { Code::GET } else { Code::FETCH }, &options, &payload);
        made.entry(said_in(&plain)).or_insert_with(|| protect(crypto, &plain));
    }
}

proptest! {
    #[test]
    fn no_two_requests_have_one_key(plains in requests()) {
        let member = Group::of(Curve::Ed25519).member("client");
        let client = client_of(&member);
        protects_each(plains, |crypto, plain| {
            let mut storage = [0; 700];
            let mut made = frame(&mut storage, plain);
            let replies = vec![Replies::default()];
            let made_request = member.context.protect_deterministic_request(crypto, &client, None, replies, &mut made);
            made_request.unwrap();
            made.bytes().to_vec()
        });
    }

    #[test]
    fn any_bytes_are_refused(
        option in proptest::collection::vec(any::<u8>(), 0..20),
        hash in proptest::collection::vec(any::<u8>(), 0..40),
        payload in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let [mut client, _, mut lamp] = members(Curve::Ed25519);
        let (mut pending, _) = ask(&mut client, &get("light"), None).unwrap();
        let named = [&option[..], b"\x19\x00\x07floor 7d", b"\x29\x05l"];
        for option in named {
            for hash in [&hash[..], &[7; 32]] {
                let options = [(OptionNumber::OSCORE, option), (OptionNumber::REQUEST_HASH, hash)];
                let made = message(Code::FETCH, &options, &payload);
                prop_assert!(hear(&mut lamp, &made).is_err());
                prop_assert!(client.learn(&mut pending, &made).is_err());
            }
        }
        prop_assert!(hear(&mut lamp, &payload).is_err());
    }
}

/// Tests that [`protects_each`] detects an error. The faulty client begins at number 0 for each request, but always has
/// the same key.
#[test]
#[should_panic(expected = "a nonce was used twice")]
fn two_requests_of_a_mutant_have_one_key() {
    let plains = vec![(true, vec![], b"\x01".to_vec()), (true, vec![], b"\x02".to_vec())];
    protects_each(plains, |crypto, plain| {
        let mut member = Group::of(Curve::Ed25519).member("client");
        let mut storage = [0; 700];
        let mut made: Frame<'_> = frame(&mut storage, plain);
        let mode = Mode::Pairwise(&mut member.others[0]);
        member.context.protect_request(crypto, mode, vec![Replies::default()], &mut made).unwrap();
        made.bytes().to_vec()
    });
}

#[test]
fn a_request_that_does_not_fit_its_frame_is_refused() {
    let member = Group::of(Curve::Ed25519).member("client");
    let client = client_of(&member);
    let mut fits = false;
    for room in 0..=crate::world::Context::OVERHEAD {
        let mut storage = vec![0; 700];
        let mut frame = Frame::new(&mut storage, room);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 1, b"token").unwrap();
        builder.option(OptionNumber::URI_PATH, b"light").unwrap();
        let replies = vec![Replies::default()];
        let made =
            member.context.protect_deterministic_request(&mut Recorder::new(), &client, None, replies, &mut frame);
        fits = made.map_err(|error| assert_eq!(error, ProtectError::Full)).is_ok();
    }
    assert!(fits);
}
