//! Attacks on messages, by an outsider and by a member.

use crate::world::{Group, Heard, Member, covered, id_of, request, response};
use proptest::prelude::*;
use tegmen_base::crypto::Curve;
use tegmen_coap::OptionNumber;
use tegmen_oscore::UnprotectError;

/// Lets a client send a request to the member `lamp`, and lets this member answer. Returns the client, the member
/// `lamp`, the client's state of the request that waits, the bytes of the request, and the bytes of the response.
fn exchange(curve: Curve, pairwise: bool) -> (Member, Member, crate::world::Pending, Vec<u8>, Vec<u8>) {
    let group = Group::of(curve);
    let [mut client, mut lamp] = ["client", "lamp"].map(|name| group.member(name));
    let (to, back) = if pairwise { (Some("lamp"), Some("client")) } else { (None, None) };
    let (pending, datagram) = client.ask(&request(), to).unwrap();
    let (_, nonce) = group.member("lamp").hear_fresh(&datagram);
    let answer = lamp.answer(&response(), back, &nonce.request(), Some(nonce)).unwrap();
    (client, lamp, pending, datagram, answer)
}

#[test]
fn a_message_with_any_bit_flipped_is_refused_and_moves_no_window() {
    for (curve, pairwise) in [(Curve::Ed25519, false), (Curve::Ed25519, true), (Curve::P256, true)] {
        let (mut client, mut lamp, mut pending, datagram, answer) = exchange(curve, pairwise);
        for at in covered(&datagram) {
            for bit in 0..8 {
                let mut flipped = datagram.clone();
                flipped[at] ^= 1 << bit;
                assert!(lamp.hear(&flipped).is_err(), "byte {at}, bit {bit}");
            }
        }
        assert!(matches!(lamp.hear(&datagram), Ok((_, Heard::Fresh(_)))));
        for at in covered(&answer) {
            for bit in 0..8 {
                let mut flipped = answer.clone();
                flipped[at] ^= 1 << bit;
                assert!(client.learn(&mut pending, &flipped).is_err(), "byte {at}, bit {bit}");
            }
        }
        assert!(client.learn(&mut pending, &answer).is_ok());
    }
}

#[test]
fn a_request_is_taken_once() {
    for pairwise in [false, true] {
        let (_, mut lamp, _, datagram, _) = exchange(Curve::Ed25519, pairwise);
        assert!(matches!(lamp.hear(&datagram), Ok((_, Heard::Fresh(_)))));
        assert_eq!(lamp.hear(&datagram).unwrap_err(), UnprotectError::Replayed);
    }
}

#[test]
fn a_response_answers_its_own_request() {
    for pairwise in [false, true] {
        let (mut client, _, _, _, answer) = exchange(Curve::Ed25519, pairwise);
        let (mut other, _) = client.ask(&request(), pairwise.then_some("lamp")).unwrap();
        assert_eq!(client.learn(&mut other, &answer).unwrap_err(), UnprotectError::NotAuthentic);
    }
}

/// The attacker is a member, so it knows the keys of the group. It sends under the ID of another member, and signs with
/// its own key.
#[test]
fn a_member_cannot_speak_as_another() {
    for curve in [Curve::Ed25519, Curve::P256] {
        let group = Group::of(curve);
        let mut lamp = group.member("lamp");
        let mut forger = group.member("bell");
        let parameters = tegmen_oscore::group::GroupParameters {
            master_secret: &group.secret,
            master_salt: b"salt",
            gid: group.gid,
            algorithms: group.algorithms,
        };
        let ourselves = tegmen_oscore::group::Ourselves {
            id: id_of("client"),
            private_key: tegmen_base::secret::Secret::new(crate::world::private_key("bell")),
            credential: crate::world::credential(curve, "client"),
            kept: 0,
        };
        let manager = crate::world::credential(curve, "manager");
        forger.context = crate::world::Context::new::<crate::world::Recorder>(&parameters, ourselves, manager).unwrap();
        forger.context.lease_mut().extend(10);
        for to in [None, Some("lamp")] {
            let (_, datagram) = forger.ask(&request(), to).unwrap();
            assert_eq!(lamp.hear(&datagram).unwrap_err(), UnprotectError::NotAuthentic);
        }
    }
}

/// RFC 10021, section 14.8: the other group is a clone of this group under another Group Manager. Two more groups have
/// another secret or another Group Identifier.
#[test]
fn a_message_of_another_group_is_refused() {
    let group = Group::of(Curve::Ed25519);
    for (other, refused) in [
        (Group { manager: "cloner", ..group }, UnprotectError::NotAuthentic),
        (Group { secret: [8; 16], ..group }, UnprotectError::NotAuthentic),
        (Group { gid: b"floor 8", ..group }, UnprotectError::UnknownContext),
    ] {
        for to in [None, Some("lamp")] {
            let (_, datagram) = other.member("client").ask(&request(), to).unwrap();
            assert_eq!(group.member("lamp").hear(&datagram).unwrap_err(), refused);
        }
    }
}

#[test]
fn a_message_of_ours_that_comes_back_is_refused() {
    let mut client = Group::of(Curve::Ed25519).member("client");
    let (_, datagram) = client.ask(&request(), None).unwrap();
    assert_eq!(client.hear(&datagram).unwrap_err(), UnprotectError::UnknownMember);
}

/// RFC 8613, section 8.2: the code of the outer message is not trusted, so a receiver does not take a response for a
/// request, or a request for a response.
#[test]
fn a_response_is_no_request() {
    let group = Group::of(Curve::Ed25519);
    let [mut client, mut lamp] = ["client", "lamp"].map(|name| group.member(name));
    let (mut pending, datagram) = client.ask(&request(), None).unwrap();
    assert!(lamp.learn(&mut pending, &datagram).is_err());
    let (_, nonce) = lamp.hear_fresh(&datagram);
    let answer = lamp.answer(&response(), None, &nonce.request(), None).unwrap();
    assert!(client.hear(&answer).is_err());
}

proptest! {
    #[test]
    fn any_bytes_are_refused_and_change_nothing(
        option in proptest::collection::vec(any::<u8>(), 0..20),
        payload in proptest::collection::vec(any::<u8>(), 0..120),
        mut whole in proptest::collection::vec(any::<u8>(), 0..120),
    ) {
        let group = Group::of(Curve::Ed25519);
        let [mut client, mut lamp] = ["client", "lamp"].map(|name| group.member(name));
        let (mut pending, datagram) = client.ask(&request(), None).unwrap();
        let made = crate::world::message(tegmen_coap::Code::POST, &[(OptionNumber::OSCORE, &option)], &payload);
        let named = [b"\x39\x05\x07floor 7c".as_slice(), b"\x19\x05\x07floor 7c", b"\x28l", b""];
        whole.truncate(100);
        for bytes in named.map(|option| {
            crate::world::message(tegmen_coap::Code::POST, &[(OptionNumber::OSCORE, option)], &whole)
        }).iter().chain([&made]) {
            prop_assert!(lamp.hear(bytes).is_err());
            prop_assert!(client.learn(&mut pending, bytes).is_err());
        }
        let is_fresh = matches!(lamp.hear(&datagram), Ok((_, Heard::Fresh(_))));
        prop_assert!(is_fresh);
    }
}
