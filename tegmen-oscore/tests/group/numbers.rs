//! Numbers, windows and keys that are lost or renewed.

use crate::world::{Group, Heard, Member, Recorder, id_of, message, request, response};
use tegmen_base::buf::Frame;
use tegmen_base::crypto::Curve;
use tegmen_coap::{Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen_oscore::group::GroupRequest;
use tegmen_oscore::{Aead, ProtectError, UnprotectError};

/// Makes the member `old` again, as it is after a power cut: it knows the end of its reserved sequence numbers, but has
/// lost all replay windows.
fn restarted(group: &Group, name: &str, old: Member) -> Member {
    let mut context = group.context(name, old.context.lease().end());
    context.lease_mut().extend(old.context.lease().end() + 100);
    let others = old
        .others
        .iter()
        .map(|other| context.recipient(&mut Recorder::new(), *other.id(), other.credential().clone(), None).unwrap());
    Member { others: others.collect(), context, crypto: old.crypto }
}

fn challenge(member: &mut Member, client: &str, request: &GroupRequest) -> Vec<u8> {
    let mut storage = [0; 400];
    let mut frame = Frame::new(&mut storage, 100);
    let Member { context, others, crypto } = member;
    let client = others.iter_mut().find(|other| *other.id() == id_of(client)).unwrap();
    let token = Token::new(b"tk");
    context.write_challenge(crypto, client, request, (MessageType::NonConfirmable, 9), &token, &mut frame).unwrap();
    frame.bytes().to_vec()
}

#[test]
fn after_a_lost_window_nothing_is_delivered_before_the_challenge_came_back() {
    for curve in [Curve::Ed25519, Curve::P256] {
        let group = Group::of(curve);
        let [mut client, mut lamp] = ["client", "lamp"].map(|name| group.member(name));
        let (_, recorded) = client.ask(&request(), None).unwrap();
        let (_, nonce) = lamp.hear_fresh(&recorded);
        lamp.answer(&response(), None, &nonce.request(), Some(nonce)).unwrap();
        let mut lamp = restarted(&group, "lamp", lamp);

        let Ok((_, Heard::Unverified(_))) = lamp.hear(&recorded) else { panic!("a replay was delivered") };
        let (mut pending, datagram) = client.ask(&request(), None).unwrap();
        let Ok((_, Heard::Unverified(asked))) = lamp.hear(&datagram) else { panic!() };
        let refused = challenge(&mut lamp, "client", &asked);
        let ((code, options, payload), from) = client.learn(&mut pending, &refused).unwrap();
        assert_eq!((code, payload, from), (Code::UNAUTHORIZED, Vec::new(), id_of("lamp")));
        let [(OptionNumber::ECHO, echo)] = options.as_slice() else { panic!("{options:?}") };

        // A request to all that repeats the challenge may be meant for another member (section 9).
        let repeats = message(Code::PUT, &[(OptionNumber::ECHO, echo)], b"on");
        let (_, to_all) = client.ask(&repeats, None).unwrap();
        assert!(matches!(lamp.hear(&to_all), Ok((_, Heard::Unverified(_)))));
        let (mut pending, datagram) = client.ask(&repeats, Some("lamp")).unwrap();
        let (_, nonce) = lamp.hear_fresh(&datagram);
        let answer = lamp.answer(&response(), Some("client"), &nonce.request(), Some(nonce)).unwrap();
        assert!(client.learn(&mut pending, &answer).is_ok());
        for old in [&recorded, &to_all, &datagram] {
            assert_eq!(lamp.hear(old).unwrap_err(), UnprotectError::Replayed);
        }
        let (_, datagram) = client.ask(&request(), None).unwrap();
        lamp.hear_fresh(&datagram);
    }
}

#[test]
fn a_challenge_of_a_group_without_a_pairwise_mode_is_repeated_in_the_group_mode() {
    let mut group = Group::of(Curve::Ed25519);
    (group.algorithms.aead, group.algorithms.key_agreement) = (None, None);
    let [mut client, lamp] = ["client", "lamp"].map(|name| group.member(name));
    let mut lamp = restarted(&group, "lamp", lamp);
    let (mut pending, datagram) = client.ask(&request(), None).unwrap();
    let Ok((_, Heard::Unverified(asked))) = lamp.hear(&datagram) else { panic!() };
    let refused = challenge(&mut lamp, "client", &asked);
    let ((_, options, _), _) = client.learn(&mut pending, &refused).unwrap();
    let repeats = message(Code::PUT, &[(OptionNumber::ECHO, &options[0].1)], b"on");
    let (_, datagram) = client.ask(&repeats, None).unwrap();
    lamp.hear_fresh(&datagram);
}

#[test]
fn nothing_is_protected_without_a_lease_and_nothing_after_the_last_number() {
    let group = Group::of(Curve::Ed25519);
    let mut client = group.member("client");
    client.context.lease_mut().stop();
    assert_eq!(client.ask(&request(), None).unwrap_err(), ProtectError::LeaseSpent);
    client.context = group.context("client", (1 << 40) - 1);
    assert!(client.ask(&request(), None).is_ok());
    assert_eq!(client.ask(&request(), Some("lamp")).unwrap_err(), ProtectError::Exhausted);
}

/// Section 2.5.3: both modes take their numbers from the same sequence.
#[test]
fn both_modes_take_numbers_of_one_sequence() {
    let mut client = Group::of(Curve::Ed25519).member("client");
    for (number, to) in [None, Some("lamp"), Some("bell"), None].into_iter().enumerate() {
        let (_, datagram) = client.ask(&request(), to).unwrap();
        let option = MessageRef::parse(&datagram).unwrap().option(OptionNumber::OSCORE).unwrap().to_vec();
        assert_eq!(usize::from(option[1]), number);
    }
}

/// The group gets new keys while a request waits (sections 2.6.3.2 and 7.3).
#[test]
fn a_request_under_old_keys_is_answered_under_the_new_ones_with_a_number() {
    let old = Group::of(Curve::Ed25519);
    let new = Group { gid: b"floor 7, 2", secret: [9; 16], ..old };
    let [mut client, mut lamp] = ["client", "lamp"].map(|name| old.member(name));
    let asks = message(Code::GET, &[(OptionNumber::OBSERVE, b"")], b"");
    let notifies = |payload: &[u8]| message(Code::CONTENT, &[(OptionNumber::OBSERVE, b"\x01")], payload);
    let (mut pending, datagram) = client.ask(&asks, None).unwrap();
    let (_, nonce) = lamp.hear_fresh(&datagram);
    let asked = nonce.request();
    let [first, late] = [b"1", b"2"].map(|text| lamp.answer(&notifies(text), None, &asked, None).unwrap());
    client.learn(&mut pending, &first).unwrap();

    let renewed = |mut member: Member, name: &str| {
        let context = new.context(name, 0);
        let others = member.others.drain(..).map(|other| context.renew::<Recorder>(other).unwrap()).collect();
        Member { context, others, crypto: member.crypto }
    };
    let mut lamp = renewed(lamp, "lamp");
    // The nonce of the request is never used under the new keys.
    let answer = lamp.answer(&notifies(b"3"), None, &asked, Some(nonce)).unwrap();
    let option = MessageRef::parse(&answer).unwrap().option(OptionNumber::OSCORE).unwrap().to_vec();
    assert_eq!(option, b"\x39\x00\x0afloor 7, 2l");
    assert_eq!(client.learn(&mut pending, &answer).unwrap_err(), UnprotectError::UnknownContext);
    let mut client = renewed(client, "client");
    assert_eq!(client.learn(&mut pending, &answer).unwrap_err(), UnprotectError::UnknownContext);
    client.context.renew_pending(&mut pending);
    // Its number is lower than those under the old keys.
    assert_eq!(client.learn(&mut pending, &answer).unwrap().0.2, b"3");
    assert_eq!(client.learn(&mut pending, &answer).unwrap_err(), UnprotectError::Replayed);
    assert!(client.learn(&mut pending, &late).is_err());
    // Responses under the old context are over.
    let mut old_client = old.member("client");
    assert_eq!(old_client.learn(&mut pending, &late).unwrap_err(), UnprotectError::UnknownContext);
    // New requests are under the new keys alone.
    assert!(lamp.hear(&datagram).is_err());
    let (_, datagram) = client.ask(&request(), Some("lamp")).unwrap();
    lamp.hear_fresh(&datagram);
}

/// Cuts the power of the client and of the server before random requests. The cipher of the test fails if a nonce is
/// used twice under one key, and no request may be delivered twice.
#[test]
fn after_any_number_of_crashes_no_nonce_comes_twice_and_no_replay_is_delivered() {
    let group = Group::of(Curve::Ed25519);
    let mut client = group.member("client");
    let mut lamp = group.member("lamp");
    let (mut recorded, mut delivered) = (Vec::new(), 0);
    let mut random = 0x9e37_79b9_u32;
    for round in 0..300 {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let to = (random >> 20 & 1 == 1).then_some("lamp");
        if random >> 28 == 0 {
            client = restarted(&group, "client", client);
        }
        if random >> 24 & 15 == 0 {
            lamp = restarted(&group, "lamp", lamp);
        }
        let (mut pending, mut datagram) = client.ask(&request(), to).unwrap();
        if let (_, Heard::Unverified(asked)) = lamp.hear(&datagram).unwrap() {
            let refused = challenge(&mut lamp, "client", &asked);
            let ((_, options, _), _) = client.learn(&mut pending, &refused).unwrap();
            recorded.push(datagram);
            let repeats = message(Code::PUT, &[(OptionNumber::ECHO, &options[0].1)], b"on");
            (pending, datagram) = client.ask(&repeats, Some("lamp")).unwrap();
            let (_, nonce) = lamp.hear_fresh(&datagram);
            let answer = lamp.answer(&response(), Some("client"), &nonce.request(), Some(nonce)).unwrap();
            client.learn(&mut pending, &answer).unwrap();
        }
        delivered += 1;
        recorded.push(datagram);
        for old in recorded.iter().rev().take(70).chain(recorded.iter().take(5)) {
            assert!(!matches!(lamp.hear(old), Ok((_, Heard::Fresh(_)))), "round {round}");
        }
    }
    assert_eq!(delivered, 300);
}

/// A key of AES-GCM encrypts at most 2^32 messages (RFC 9053, section 4.1.1): half of them under sequence numbers of
/// its own member, and half of them under sequence numbers of 256 other members.
#[test]
fn a_key_of_aes_gcm_encrypts_no_more_than_2_to_the_32_messages() {
    let mut group = Group::of(Curve::Ed25519);
    (group.algorithms.aead, group.algorithms.group_encryption) = (Some(Aead::A128Gcm), Some(Aead::A128Gcm));
    for to in [None, Some("lamp")] {
        let [mut client, mut lamp] = ["client", "lamp"].map(|name| group.member(name));
        for (number, own) in [(0, 0), ((1 << 23) - 1, 0), (1 << 23, 1)] {
            client.context = group.context("client", number);
            client.context.lease_mut().extend(u64::MAX);
            let (mut pending, datagram) = client.ask(&request(), to).unwrap();
            let (_, nonce) = lamp.hear_fresh(&datagram);
            let first = lamp.context.lease().next();
            let back = to.map(|_| "client");
            let answer = lamp.answer(&response(), back, &nonce.request(), Some(nonce)).unwrap();
            assert_eq!(lamp.context.lease().next() - first, own, "numbers of the response to request {number}");
            assert!(client.learn(&mut pending, &answer).is_ok());
        }
        client.context = group.context("client", (1 << 31) - 1);
        client.context.lease_mut().extend(u64::MAX);
        assert!(client.ask(&request(), to).is_ok());
        assert_eq!(client.ask(&request(), to).map(drop).unwrap_err(), ProtectError::Exhausted);
    }
}
