//! Signature checkers: they verify the signatures of messages whose content they cannot read.

use crate::vectors::{algorithms, all, bytes};
use crate::world::{Group, Member, Recorder, covered, credential, id_of, request, response};
use tegmen_base::crypto::Curve;
use tegmen_oscore::group::{Algorithms, BadGroup, GroupParameters, GroupRequest, SignatureChecker};
use tegmen_oscore::{Id, UnprotectError};

type Checker = SignatureChecker<Vec<u8>, 512>;

const CURVES: [Curve; 2] = [Curve::Ed25519, Curve::P256];

impl Group {
    fn checker(&self, curve: Curve) -> Checker {
        let Self { gid, secret, manager, algorithms } = *self;
        let parameters = GroupParameters { master_secret: &secret, master_salt: b"salt", gid, algorithms };
        let key = parameters.signature_encryption_key::<Recorder>().unwrap();
        Checker::new(gid, algorithms, key, credential(curve, manager)).unwrap()
    }
}

/// Checks a request, with the credentials of all members.
fn check(checker: &Checker, curve: Curve, datagram: &[u8]) -> Result<GroupRequest, UnprotectError> {
    let known = ["client", "lamp"].map(|name| (id_of(name), credential(curve, name)));
    let find = |id: &[u8]| known.iter().find(|(known, _)| known.as_bytes() == id).map(|(_, it)| it.as_slice());
    checker.check_request(&mut Recorder::new(), find, datagram)
}

/// Checks a response, with the credential of the lamp.
fn check_answer(
    checker: &Checker,
    curve: Curve,
    request: &GroupRequest,
    datagram: &[u8],
) -> Result<Id, UnprotectError> {
    let lamp = credential(curve, "lamp");
    let find = |id: &[u8]| (id == id_of("lamp").as_bytes()).then_some(lamp.as_slice());
    checker.check_response(&mut Recorder::new(), find, request, datagram)
}

/// Lets the client send a request to all members, and lets the lamp answer twice: under the nonce of the request, and
/// with a Partial IV.
fn exchange(group: &Group) -> (Vec<u8>, [Vec<u8>; 2]) {
    let [mut client, mut lamp] = ["client", "lamp"].map(|name| group.member(name));
    let (_, asked) = client.ask(&request(), None).unwrap();
    let (_, nonce) = lamp.hear_fresh(&asked);
    let request = nonce.request();
    let first = lamp.answer(&response(), None, &request, Some(nonce)).unwrap();
    (asked, [first, lamp.answer(&response(), None, &request, None).unwrap()])
}

#[test]
fn a_checker_verifies_what_members_signed_and_nothing_that_was_changed() {
    for curve in CURVES {
        let group = Group::of(curve);
        let (asked, answers) = exchange(&group);
        let checker = group.checker(curve);
        let request = check(&checker, curve, &asked).unwrap();
        assert_eq!((request.client(), request.gid(), request.is_signed()), (&id_of("client"), group.gid, true));
        for answer in &answers {
            assert_eq!(check_answer(&checker, curve, &request, answer), Ok(id_of("lamp")));
        }
        for at in covered(&asked) {
            let mut changed = asked.clone();
            changed[at] ^= 1;
            assert!(check(&checker, curve, &changed).is_err(), "byte {at}");
        }
        for answer in &answers {
            for at in covered(answer) {
                let mut changed = answer.clone();
                changed[at] ^= 1;
                assert!(check_answer(&checker, curve, &request, &changed).is_err(), "byte {at}");
            }
        }
    }
}

#[test]
fn a_checker_verifies_messages_of_aiocoap() {
    let mut checked = 0;
    for group in all() {
        let (secret, salt, gid) = (bytes(&group["master_secret"]), bytes(&group["master_salt"]), bytes(&group["gid"]));
        let algorithms = algorithms(&group);
        let parameters = GroupParameters { master_secret: &secret, master_salt: &salt, gid: &gid, algorithms };
        let key = parameters.signature_encryption_key::<Recorder>().unwrap();
        let checker = Checker::new(&gid, algorithms, key, bytes(&group["group_manager_credential"])).unwrap();
        let of = |name: &str| (bytes(&group[name]["id"]), bytes(&group[name]["credential"]));
        let (client, server, crypto) = (of("client"), of("server"), &mut Recorder::new());
        for exchange in group["exchanges"].as_array().unwrap() {
            let name = format!("{}: {}", group["name"], exchange["name"]);
            let (asked, answer) = (bytes(&exchange["request"]), bytes(&exchange["response"]));
            let find = |id: &[u8]| (id == client.0).then_some(client.1.as_slice());
            let request = checker.check_request(crypto, find, &asked);
            if exchange["pairwise"] == true {
                assert_eq!(request, Err(UnprotectError::BadOption), "{name}");
                continue;
            }
            let find = |id: &[u8]| (id == server.0).then_some(server.1.as_slice());
            let from = checker.check_response(crypto, find, &request.expect(&name), &answer);
            match exchange["name"] == "group, pairwise response" {
                true => assert_eq!(from, Err(UnprotectError::BadOption), "{name}"),
                false => assert_eq!(from.expect(&name).as_bytes(), server.0, "{name}"),
            }
            checked += 1;
        }
    }
    assert!(checked > 3, "{checked} exchanges in the group mode");
}

#[test]
fn a_checker_tells_why_it_cannot_verify_a_message() {
    let curve = Curve::Ed25519;
    let group = Group::of(curve);
    let checker = group.checker(curve);
    let (asked, [answer, with_number]) = exchange(&group);
    let request_of = |asked: &[u8]| check(&checker, curve, asked);
    let request = request_of(&asked).unwrap();
    // A request that is not protected, one in the pairwise mode, and a response in place of a request.
    assert_eq!(request_of(&crate::world::request()), Err(UnprotectError::Unprotected));
    assert_eq!(request_of(b"no message"), Err(UnprotectError::Unprotected));
    let mut client = group.member("client");
    assert_eq!(
        request_of(&client.ask(&crate::world::request(), Some("lamp")).unwrap().1),
        Err(UnprotectError::BadOption)
    );
    assert_eq!(request_of(&with_number), Err(UnprotectError::BadOption));
    assert_eq!(check_answer(&checker, curve, &request, &asked), Err(UnprotectError::BadOption));
    // A member that the checker does not know, or another key for the ID of a member.
    let none = checker.check_request(&mut Recorder::new(), |_| None, &asked);
    assert_eq!(none, Err(UnprotectError::UnknownMember));
    let of = |name: &str| credential(curve, name);
    let crypto = &mut Recorder::new();
    let other = of("lamp");
    assert_eq!(checker.check_request(crypto, |_| Some(&other), &asked), Err(UnprotectError::NotAuthentic));
    let of_other_curve = credential(Curve::P256, "client");
    assert_eq!(checker.check_request(crypto, |_| Some(&of_other_curve), &asked), Err(UnprotectError::UnknownMember));
    // A response to another request.
    let (_, second) = client.ask(&crate::world::request(), None).unwrap();
    let second = request_of(&second).unwrap();
    assert_eq!(check_answer(&checker, curve, &second, &answer), Err(UnprotectError::NotAuthentic));
    // Other keys of the group, and the right Group Identifier with other keys.
    let later = Group { gid: b"floor 8", ..group };
    assert_eq!(check(&later.checker(curve), curve, &asked), Err(UnprotectError::UnknownContext));
    assert_eq!(check_answer(&later.checker(curve), curve, &request, &answer), Err(UnprotectError::UnknownContext));
    for wrong in [Group { secret: [8; 16], ..group }, Group { manager: "other", ..group }] {
        assert_eq!(check(&wrong.checker(curve), curve, &asked), Err(UnprotectError::NotAuthentic));
    }
}

#[test]
fn a_checker_verifies_a_response_under_new_keys() {
    let curve = Curve::Ed25519;
    let (old, new) = (Group::of(curve), Group { gid: b"floor 8", secret: [8; 16], ..Group::of(curve) });
    let (asked, [under_old, _]) = exchange(&old);
    let request = check(&old.checker(curve), curve, &asked).unwrap();
    let Member { context, crypto, others } = &mut new.member("lamp");
    let _ = others;
    let mut storage = [0; 400];
    let mut frame = tegmen_base::buf::Frame::new(&mut storage, 100);
    frame.append(&response()).unwrap();
    context.protect_response(crypto, tegmen_oscore::group::Mode::Group, &request, None, &mut frame).unwrap();
    assert_eq!(check_answer(&new.checker(curve), curve, &request, frame.bytes()), Ok(id_of("lamp")));
    assert_eq!(check_answer(&new.checker(curve), curve, &request, &under_old), Err(UnprotectError::UnknownContext));
}

#[test]
fn a_group_without_signatures_has_no_checker() {
    let key = || tegmen_base::secret::Secret::new([1; 16]);
    let pairwise = Algorithms { group_encryption: None, signature: None, ..Algorithms::both(Curve::P256) };
    assert_eq!(Checker::new(b"g", pairwise, key(), Vec::new()).unwrap_err(), BadGroup::Algorithms);
    let both = Algorithms::both(Curve::P256);
    assert_eq!(Checker::new(&[0; 17], both, key(), Vec::new()).unwrap_err(), BadGroup::GidTooLong);
    let debug = format!("{:?}", Checker::new(b"g", both, key(), Vec::new()).unwrap());
    assert!(!debug.contains("encryption_key"), "{debug}");
}
