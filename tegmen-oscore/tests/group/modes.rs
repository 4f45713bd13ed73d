//! Both modes, at both ends.

use crate::world::{Group, Heard, id_of, message, request, response, said};
use tegmen_base::crypto::Curve;
use tegmen_coap::{Code, MessageRef, OptionNumber};
use tegmen_oscore::group::{Algorithms, Replies};
use tegmen_oscore::{Aead, OscoreOption, ProtectError, UnprotectError};

const CURVES: [Curve; 2] = [Curve::Ed25519, Curve::P256];

fn plain(bytes: &[u8]) -> crate::world::Said {
    said(&MessageRef::parse(bytes).unwrap())
}

fn option_of(datagram: &[u8]) -> Vec<u8> {
    MessageRef::parse(datagram).unwrap().option(OptionNumber::OSCORE).unwrap().to_vec()
}

#[test]
fn all_members_open_a_request_to_the_group_and_each_answers_in_its_mode() {
    for curve in CURVES {
        let group = Group::of(curve);
        let [mut client, mut lamp, mut bell] = ["client", "lamp", "bell"].map(|name| group.member(name));
        let (mut pending, datagram) = client.ask(&request(), None).unwrap();
        let (heard, nonce) = lamp.hear_fresh(&datagram);
        assert_eq!(heard, plain(&request()));
        let signed = lamp.answer(&response(), None, &nonce.request(), Some(nonce)).unwrap();
        let (heard, nonce) = bell.hear_fresh(&datagram);
        assert_eq!(heard, plain(&request()));
        let pairwise = bell.answer(&response(), Some("client"), &nonce.request(), Some(nonce)).unwrap();
        assert_eq!(client.learn(&mut pending, &signed).unwrap(), (plain(&response()), id_of("lamp")));
        assert_eq!(client.learn(&mut pending, &pairwise).unwrap(), (plain(&response()), id_of("bell")));
        // Each answers once under the nonce of the request (RFC 10021, section 5.3.1).
        for again in [&signed, &pairwise] {
            assert_eq!(client.learn(&mut pending, again), Err(UnprotectError::Replayed));
        }
    }
}

#[test]
fn only_its_recipient_opens_a_request_in_the_pairwise_mode() {
    for curve in CURVES {
        let group = Group::of(curve);
        let [mut client, mut lamp, mut bell] = ["client", "lamp", "bell"].map(|name| group.member(name));
        let (mut pending, datagram) = client.ask(&request(), Some("lamp")).unwrap();
        assert_eq!(bell.hear(&datagram).unwrap_err(), UnprotectError::NotAuthentic);
        let (heard, nonce) = lamp.hear_fresh(&datagram);
        assert_eq!(heard, plain(&request()));
        let answer = lamp.answer(&response(), Some("client"), &nonce.request(), Some(nonce)).unwrap();
        // Neither number nor ID nor group (section 4.3.2).
        assert_eq!(option_of(&answer), b"");
        assert_eq!(client.learn(&mut pending, &answer).unwrap(), (plain(&response()), id_of("lamp")));
    }
}

#[test]
fn the_options_are_those_of_section_4() {
    let group = Group::of(Curve::Ed25519);
    let [mut client, mut lamp] = ["client", "lamp"].map(|name| group.member(name));
    let (_, signed) = client.ask(&request(), None).unwrap();
    assert_eq!(option_of(&signed), b"\x39\x00\x07floor 7c");
    let (_, pairwise) = client.ask(&request(), Some("lamp")).unwrap();
    assert_eq!(option_of(&pairwise), b"\x19\x01\x07floor 7c");
    let (_, nonce) = lamp.hear_fresh(&signed);
    let asked = nonce.request();
    // A response to a request in the group mode has the ID of its sender in each mode (section 3.2).
    assert_eq!(option_of(&lamp.answer(&response(), None, &asked, Some(nonce)).unwrap()), b"\x28l");
    assert_eq!(option_of(&lamp.answer(&response(), None, &asked, None).unwrap()), b"\x29\x00l");
    assert_eq!(option_of(&lamp.answer(&response(), Some("client"), &asked, None).unwrap()), b"\x09\x01l");
    let (_, nonce) = lamp.hear_fresh(&pairwise);
    let asked = nonce.request();
    assert_eq!(option_of(&lamp.answer(&response(), Some("client"), &asked, None).unwrap()), b"\x01\x02");
    assert_eq!(OscoreOption::parse(b"\x28l").ok(), None);
}

#[test]
fn a_response_in_the_group_mode_answers_a_request_in_the_pairwise_mode() {
    let group = Group::of(Curve::Ed25519);
    let [mut client, mut lamp, mut bell] = ["client", "lamp", "bell"].map(|name| group.member(name));
    let (mut pending, datagram) = client.ask(&request(), Some("lamp")).unwrap();
    let (_, nonce) = lamp.hear_fresh(&datagram);
    let asked = nonce.request();
    let answer = lamp.answer(&response(), None, &asked, Some(nonce)).unwrap();
    // Another member signs a response to the same request (section 7.4).
    let other = bell.answer(&response(), None, &asked, None).unwrap();
    assert_eq!(client.learn(&mut pending, &other), Err(UnprotectError::UnknownMember));
    assert_eq!(client.learn(&mut pending, &answer).unwrap().1, id_of("lamp"));
}

#[test]
fn notifications_of_each_member_are_taken_by_rising_number() {
    let group = Group::of(Curve::P256);
    let [mut client, mut lamp, mut bell] = ["client", "lamp", "bell"].map(|name| group.member(name));
    let asks = message(Code::GET, &[(OptionNumber::OBSERVE, b"")], b"");
    let notifies = |payload: &[u8]| message(Code::CONTENT, &[(OptionNumber::OBSERVE, b"\x01")], payload);
    let (mut pending, datagram) = client.ask(&asks, None).unwrap();
    let (_, nonce) = lamp.hear_fresh(&datagram);
    let asked = nonce.request();
    let first = lamp.answer(&notifies(b"1"), None, &asked, Some(nonce)).unwrap();
    let [second, third] = [b"2", b"3"].map(|text| lamp.answer(&notifies(text), Some("client"), &asked, None).unwrap());
    let (_, nonce) = bell.hear_fresh(&datagram);
    let of_bell = bell.answer(&notifies(b"b"), None, &nonce.request(), None).unwrap();
    assert_eq!(client.learn(&mut pending, &third).unwrap().0.2, b"3");
    assert_eq!(client.learn(&mut pending, &second), Err(UnprotectError::Replayed));
    assert_eq!(client.learn(&mut pending, &third), Err(UnprotectError::Replayed));
    // The one under the nonce of the request is the oldest.
    assert_eq!(client.learn(&mut pending, &first), Err(UnprotectError::Replayed));
    // Its number is lower than that of the third of the lamp, and counts for itself.
    let (heard, from) = client.learn(&mut pending, &of_bell).unwrap();
    assert_eq!((heard.2.as_slice(), from), (b"b".as_slice(), id_of("bell")));
    let fourth = lamp.answer(&notifies(b"4"), None, &asked, None).unwrap();
    assert_eq!(client.learn(&mut pending, &fourth).unwrap().0.2, b"4");
}

#[test]
fn a_request_has_a_place_for_each_member_that_answers() {
    let group = Group::of(Curve::Ed25519);
    let [mut client, mut lamp, mut bell] = ["client", "lamp", "bell"].map(|name| group.member(name));
    let (_, datagram) = client.ask(&request(), None).unwrap();
    let mut storage = [0; 400];
    let mut frame = tegmen_base::buf::Frame::new(&mut storage, 100);
    frame.append(&request()).unwrap();
    let places = [Replies::default()];
    let mode = tegmen_oscore::group::Mode::Group;
    let mut pending = client.context.protect_request(&mut client.crypto, mode, places, &mut frame).unwrap();
    let datagram_of_one = frame.bytes().to_vec();
    assert_ne!(datagram, datagram_of_one);
    let mut answers = [&mut lamp, &mut bell].map(|member| {
        let (_, nonce) = member.hear_fresh(&datagram_of_one);
        member.answer(&response(), None, &nonce.request(), Some(nonce)).unwrap()
    });
    let [first, second] = &mut answers;
    let others = client.others.as_mut_slice();
    assert!(client.context.unprotect_response(&mut client.crypto, others, &mut pending, first).is_ok());
    let refused = client.context.unprotect_response(&mut client.crypto, others, &mut pending, second);
    assert_eq!(refused.unwrap_err(), UnprotectError::TooManyMembers);
}

#[test]
fn a_group_has_the_modes_of_its_algorithms() {
    let aead = Some(Aead::AesCcm16_64_128);
    let curve = Some(Curve::Ed25519);
    let signed = Algorithms { aead: None, group_encryption: aead, signature: curve, key_agreement: None };
    let pairwise = Algorithms { aead, group_encryption: None, signature: None, key_agreement: curve };
    let both = Algorithms::both(Curve::Ed25519);
    for (algorithms, has, has_not) in [(signed, None, Some("lamp")), (pairwise, Some("lamp"), None)] {
        let group = Group { algorithms, ..Group::of(Curve::Ed25519) };
        let [mut client, mut lamp] = ["client", "lamp"].map(|name| group.member(name));
        assert_eq!(client.ask(&request(), has_not).unwrap_err(), ProtectError::Unsupported);
        let (mut pending, datagram) = client.ask(&request(), has).unwrap();
        let (_, nonce) = lamp.hear_fresh(&datagram);
        let to = has.map(|_| "client");
        let answer = lamp.answer(&response(), to, &nonce.request(), Some(nonce)).unwrap();
        assert_eq!(client.learn(&mut pending, &answer).unwrap().0, plain(&response()));
        // A message in the other mode is discarded (section 6).
        let mut other = Group { algorithms: both, ..group }.member("client");
        let (_, datagram) = other.ask(&request(), has_not).unwrap();
        assert_eq!(lamp.hear(&datagram).unwrap_err(), UnprotectError::BadOption);
    }
}

#[test]
fn a_request_of_a_member_that_is_not_known_is_refused_until_it_is() {
    let group = Group::of(Curve::Ed25519);
    let [mut client, mut lamp] = ["client", "lamp"].map(|name| group.member(name));
    lamp.others.retain(|other| *other.id() != id_of("client"));
    let (_, datagram) = client.ask(&request(), None).unwrap();
    let refused = lamp.hear(&datagram).unwrap_err();
    assert_eq!((refused, refused.code()), (UnprotectError::UnknownMember, Code::SERVICE_UNAVAILABLE));
    let known = group.member("lamp");
    lamp.others = known.others;
    assert!(matches!(lamp.hear(&datagram).unwrap().1, Heard::Fresh(_)));
}
