//! Attacks on a group, each by its name.

use crate::group::{
    Group, Heard, address, draw, hear_request, hear_response, request, response, try_request, try_response, tsn_of,
};
use tegmen::address::Address;
use tegmen::axiom::{BadAssociation, Kept, Member, Proof, SealRefused, Suite};
use tegmen::crypto::hash::HmacKey;
use tegmen::crypto::{RustCrypto, hmac};
use tegmen::cx::Discard;

type Light = Member<4, 4>;

/// A provider, and a group with 16-byte tags.
fn scene() -> (RustCrypto, Group) {
    (RustCrypto::new([7; 32]), Group::new(Suite::Ccm))
}

/// The member `number`, which knows from the controller that the senders 1 and 2 begin with 0.
fn informed(group: &Group, crypto: &mut RustCrypto, number: u8) -> Light {
    let mut member = group.member::<16>(crypto, number);
    for sender in [1, 2] {
        if sender != number {
            member.know_sender::<RustCrypto>(sender, 0).unwrap();
        }
    }
    member
}

#[test]
fn a_replayed_request_is_refused() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut listener) = (informed(&group, crypto, 1), informed(&group, crypto, 3));
    let sent: Vec<_> = (0..3).map(|number| request(&mut sender, crypto, &[number])).collect();
    for number in [1, 0, 2] {
        let (_, heard) = hear_request(&mut listener, crypto, &sent[number]).unwrap();
        assert_eq!(heard.fresh(), [number as u8]);
    }
    for record in &sent {
        assert_eq!(hear_request(&mut listener, crypto, record).err(), Some(Discard::Replayed));
    }
    // One that was lost, and comes when the window is past it.
    let lost = request(&mut sender, crypto, b"lost");
    for _ in 0..64 {
        let newer = request(&mut sender, crypto, b"newer");
        hear_request(&mut listener, crypto, &newer).unwrap().1.fresh();
    }
    assert_eq!(hear_request(&mut listener, crypto, &lost).err(), Some(Discard::Replayed));
}

#[test]
fn a_response_replayed_to_another_sender_is_refused() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut one, mut two) = (informed(&group, crypto, 1), informed(&group, crypto, 2));
    let mut listener = informed(&group, crypto, 3);
    let asked = request(&mut one, crypto, b"?");
    let (from, _) = hear_request(&mut listener, crypto, &asked).unwrap();
    let answer = response(&mut listener, crypto, from, b"!");
    assert_eq!(hear_response(&mut two, crypto, &address(3), &answer).err(), Some(Discard::NotAuthentic));
    // The same bytes from the address of another listener.
    assert_eq!(hear_response(&mut one, crypto, &address(2), &answer).err(), Some(Discard::NotAuthentic));
    let (content, number) = hear_response(&mut one, crypto, &address(3), &answer).unwrap().unverified();
    assert_eq!(content, b"!");
    one.accept::<RustCrypto>(number, Proof::AnswerTo(tsn_of(&asked))).unwrap();
    assert_eq!(hear_response(&mut one, crypto, &address(3), &answer).err(), Some(Discard::Replayed));
}

/// A response of the MAC-only suite from the address of member 3 to sender 1, with the first number, under the individual key
/// that this secret gives.
fn mac_only_response(group: &Group, secret: &[&[u8]], content: &[u8]) -> Vec<u8> {
    let mut key = [0; 32];
    HmacKey::new::<RustCrypto>(secret).prf::<RustCrypto>(&[b"key derivation", &address(3).ip, &[1]], &mut key);
    let number = [0, 1, group.group_id, 0, 0, 0, 0, 0];
    let (kind, len) = ([23, 0xfe, 0xfd], (content.len() as u16).to_be_bytes());
    let code = hmac::<RustCrypto, 32>(&[&key], &[&number, &kind, &len, content]);
    let body = (content.len() as u16 + 32).to_be_bytes();
    [&kind[..], &number, &body, content, &code].concat()
}

#[test]
fn hole_1_an_outsider_cannot_make_a_response_of_the_mac_only_suite() {
    let (crypto, group) = (&mut scene().0, Group::new(Suite::MacOnly));
    let mut sender = group.member::<32>(crypto, 1);
    // With the paper's secret, which is empty where there is no cipher, anybody can.
    let forged = mac_only_response(&group, &[], b"open the door");
    assert_eq!(hear_response(&mut sender, crypto, &address(3), &forged).err(), Some(Discard::NotAuthentic));
    // The same bytes under the keys of the group are right, so the forgery fails because of its secret alone.
    let mut block = [0; 64];
    let seed: [&[u8]; 3] = [b"key expansion", &group.server_random, &group.client_random];
    HmacKey::new::<RustCrypto>(&[&group.master_secret]).prf::<RustCrypto>(&seed, &mut block);
    let true_one = mac_only_response(&group, &[&block], b"open the door");
    let heard = hear_response(&mut sender, crypto, &address(3), &true_one).unwrap();
    assert_eq!(heard.unverified().0, b"open the door");
}

#[test]
fn hole_2_two_listeners_behind_one_address_are_a_clash() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let mut sender = informed(&group, crypto, 1);
    let mut twins = [informed(&group, crypto, 3), informed(&group, crypto, 3)];
    let asked = request(&mut sender, crypto, b"?");
    let answers = twins.each_mut().map(|twin| {
        let (from, _) = hear_request(twin, crypto, &asked).unwrap();
        // Each has a content of its own, and the same number.
        let content = draw(crypto);
        response(twin, crypto, from, &content)
    });
    let (_, number) = hear_response(&mut sender, crypto, &address(3), &answers[0]).unwrap().unverified();
    sender.accept::<RustCrypto>(number, Proof::AnswerTo(tsn_of(&asked))).unwrap();
    // From another port nobody is a listener, so nobody can seem to be two.
    let elsewhere = Address { port: 40_000, ..address(3) };
    assert_eq!(hear_response(&mut sender, crypto, &elsewhere, &answers[1]).err(), Some(Discard::UnknownPeer));
    // A replay is none, however often it comes, and a forgery is none.
    for _ in 0..3 {
        assert_eq!(hear_response(&mut sender, crypto, &address(3), &answers[0]).err(), Some(Discard::Replayed));
        let mut forged = answers[1].clone();
        *forged.last_mut().unwrap() ^= 1;
        assert_eq!(hear_response(&mut sender, crypto, &address(3), &forged).err(), Some(Discard::NotAuthentic));
    }
    let heard = hear_response(&mut sender, crypto, &address(3), &answers[1]);
    assert!(matches!(heard, Ok(Heard::Clash)), "{heard:?}");
}

#[test]
fn hole_2_a_link_local_listener_is_on_the_link_of_the_group() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let local = Address { ip: *b"\xfe\x80\0\0\0\0\0\0mote0001", ..address(3) };
    let (mut sender, mut listening) = (informed(&group, crypto, 1), group.association(3));
    listening.address = local.ip;
    let mut listener: Light = Member::new(crypto, &listening, &Kept::default()).unwrap();
    listener.extend(&listener.reserve(0, 10));
    let asked = request(&mut sender, crypto, b"?");
    let (from, _) = hear_request(&mut listener, crypto, &asked).unwrap();
    let answer = response(&mut listener, crypto, from, b"!");
    let elsewhere = Address { scope: 2, ..local };
    assert_eq!(hear_response(&mut sender, crypto, &elsewhere, &answer).err(), Some(Discard::UnknownPeer));
    hear_response(&mut sender, crypto, &local, &answer).unwrap().unverified();
}

#[test]
fn hole_3_response_numbers_never_come_back() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut one, mut two) = (informed(&group, crypto, 1), informed(&group, crypto, 2));
    let mut listener = informed(&group, crypto, 3);
    let mut numbers = Vec::new();
    for round in 0..4 {
        for sender in [&mut one, &mut two] {
            let asked = request(sender, crypto, &[round]);
            let Ok((from, heard)) = hear_request(&mut listener, crypto, &asked) else { panic!("refused") };
            if let Heard::Unverified(_, number) = heard {
                let echo = listener.challenge().to_vec();
                listener.accept::<RustCrypto>(number, Proof::Echo(&echo)).unwrap();
            }
            numbers.push(response(&mut listener, crypto, from, b"!")[6..11].to_vec());
        }
        // The states of both senders go, and with them their keys.
        listener.forget_idle(crypto);
        listener.forget_idle(crypto);
    }
    let expected: Vec<_> = (0..8u64).map(|number| number.to_be_bytes()[3..].to_vec()).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn hole_4_a_late_joiner_delivers_no_two_old_records() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let mut sender = informed(&group, crypto, 1);
    let old: Vec<_> = (0..5).map(|number| request(&mut sender, crypto, &[number])).collect();
    let mut joiner = group.member::<16>(crypto, 3);
    for record in old.iter().chain(&old) {
        // The paper drops the first one, and delivers what is newer.
        hear_request(&mut joiner, crypto, record).unwrap().1.unverified();
    }
    // With the number of the controller, none of them comes as far.
    joiner.know_sender::<RustCrypto>(1, 5).unwrap();
    for record in &old {
        assert_eq!(hear_request(&mut joiner, crypto, record).err(), Some(Discard::Replayed));
    }
    let new = request(&mut sender, crypto, b"new");
    assert_eq!(hear_request(&mut joiner, crypto, &new).unwrap().1.fresh(), b"new");
}

#[test]
fn hole_4_a_challenge_lets_a_sender_in_and_nothing_old() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut joiner) = (informed(&group, crypto, 1), group.member::<16>(crypto, 3));
    let old = request(&mut sender, crypto, b"old");
    let (_, number) = hear_request(&mut joiner, crypto, &old).unwrap().1.unverified();
    assert_eq!(joiner.accept::<RustCrypto>(number, Proof::Echo(b"a guess.")).err(), Some(Discard::Unexpected));
    let echo = joiner.challenge().to_vec();
    let proof = request(&mut sender, crypto, &echo);
    let (content, number) = hear_request(&mut joiner, crypto, &proof).unwrap().1.unverified();
    let (_, again) = hear_request(&mut joiner, crypto, &proof).unwrap().1.unverified();
    joiner.accept::<RustCrypto>(number, Proof::Echo(&content)).unwrap();
    assert_eq!(joiner.accept::<RustCrypto>(again, Proof::Echo(&content)).err(), Some(Discard::Replayed));
    for record in [&old, &proof] {
        assert_eq!(hear_request(&mut joiner, crypto, record).err(), Some(Discard::Replayed));
    }
    let new = request(&mut sender, crypto, b"new");
    hear_request(&mut joiner, crypto, &new).unwrap().1.fresh();
}

#[test]
fn hole_4_a_forgotten_state_lets_no_replay_in() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut listener) = (informed(&group, crypto, 1), group.member::<16>(crypto, 3));
    let echo = listener.challenge().to_vec();
    let proof = request(&mut sender, crypto, &echo);
    let (content, number) = hear_request(&mut listener, crypto, &proof).unwrap().1.unverified();
    listener.accept::<RustCrypto>(number, Proof::Echo(&content)).unwrap();
    listener.forget_idle(crypto);
    assert_eq!(hear_request(&mut listener, crypto, &proof).err(), Some(Discard::Replayed));
    listener.forget_idle(crypto);
    // The request has repeated a challenge, but an old one.
    let (content, number) = hear_request(&mut listener, crypto, &proof).unwrap().1.unverified();
    assert_eq!(listener.accept::<RustCrypto>(number, Proof::Echo(&content)).err(), Some(Discard::Unexpected));
    // The controller might not have received it.
    listener.know_sender::<RustCrypto>(1, 0).unwrap();
    hear_request(&mut listener, crypto, &proof).unwrap().1.unverified();
}

#[test]
fn hole_4_a_delayed_response_lets_no_newer_one_in_again() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut listener) = (informed(&group, crypto, 1), informed(&group, crypto, 3));
    let asked: Vec<_> = (0..3).map(|number| request(&mut sender, crypto, &[number])).collect();
    let answers = asked.iter().map(|asked| {
        let (from, _) = hear_request(&mut listener, crypto, asked).unwrap();
        response(&mut listener, crypto, from, b"!")
    });
    let answers = answers.collect::<Vec<_>>();
    let (_, number) = hear_response(&mut sender, crypto, &address(3), &answers[0]).unwrap().unverified();
    sender.accept::<RustCrypto>(number, Proof::AnswerTo(0)).unwrap();
    hear_response(&mut sender, crypto, &address(3), &answers[2]).unwrap().fresh();
    sender.forget_idle(crypto);
    sender.forget_idle(crypto);
    // It answers an open request, and is older than one that was delivered.
    let (_, number) = hear_response(&mut sender, crypto, &address(3), &answers[1]).unwrap().unverified();
    assert_eq!(sender.accept::<RustCrypto>(number, Proof::AnswerTo(1)).err(), Some(Discard::Unexpected));
    hear_response(&mut sender, crypto, &address(3), &answers[2]).unwrap().unverified();
    // A request that was never sealed proves nothing, nor does the proof of another kind.
    let challenge = sender.challenge().to_vec();
    for wrong in [Proof::AnswerTo(3), Proof::Echo(&challenge)] {
        let (_, number) = hear_response(&mut sender, crypto, &address(3), &answers[2]).unwrap().unverified();
        assert_eq!(sender.accept::<RustCrypto>(number, wrong).err(), Some(Discard::Unexpected));
    }
}

#[test]
fn a_listener_that_never_sent_delivers_nothing_again_after_a_reboot() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let mut sender = informed(&group, crypto, 1);
    let sent = request(&mut sender, crypto, b"once");
    let mut listener: Light = Member::new(crypto, &group.association(3), &Kept::default()).unwrap();
    listener.know_sender::<RustCrypto>(1, 0).unwrap();
    // Before the epoch is durable, a restart would count as its first use.
    assert_eq!(hear_request(&mut listener, crypto, &sent).err(), Some(Discard::Unexpected));
    let kept = listener.reserve(0, 0);
    listener.extend(&kept);
    hear_request(&mut listener, crypto, &sent).unwrap().1.fresh();

    let mut listener: Light = Member::new(crypto, &group.association(3), &kept).unwrap();
    listener.know_sender::<RustCrypto>(1, 0).unwrap();
    hear_request(&mut listener, crypto, &sent).unwrap().1.unverified();
}

#[test]
fn a_number_of_the_controller_does_not_wrap() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut listener) = (informed(&group, crypto, 1), group.member::<16>(crypto, 3));
    let sent = request(&mut sender, crypto, b"old");
    listener.know_sender::<RustCrypto>(1, 1 << 41).unwrap();
    assert_eq!(hear_request(&mut listener, crypto, &sent).err(), Some(Discard::Replayed));
}

#[test]
fn a_reboot_lets_no_replay_in_and_repeats_no_number() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut listener) = (informed(&group, crypto, 1), informed(&group, crypto, 3));
    let kept = sender.reserve(0, 0);
    let old = request(&mut sender, crypto, b"old");
    hear_request(&mut listener, crypto, &old).unwrap().1.fresh();

    let mut listener: Light = Member::new(crypto, &group.association(3), &listener.reserve(0, 0)).unwrap();
    // What the controller knows may be older than what was delivered.
    listener.know_sender::<RustCrypto>(1, 0).unwrap();
    hear_request(&mut listener, crypto, &old).unwrap().1.unverified();

    let mut sender: Light = Member::new(crypto, &group.association(1), &kept).unwrap();
    assert_eq!(try_request(&mut sender, crypto, b"new"), Err(SealRefused::LeaseSpent));
    sender.extend(&sender.reserve(1, 0));
    let new = request(&mut sender, crypto, b"new");
    assert_eq!(new[6..11], 1000u64.to_be_bytes()[3..]);
    // Without storage it needs a new epoch.
    assert_eq!(try_request(&mut sender, crypto, b"newer"), Err(SealRefused::LeaseSpent));
}

#[test]
fn an_epoch_never_goes_back() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let next = group.next();
    let mut member = informed(&group, crypto, 1);
    let in_old = member.reserve(500, 500);
    member.rekey(crypto, &next.association(1)).unwrap();
    // A reservation of the epoch before is none of this one.
    member.extend(&in_old);
    assert_eq!(try_request(&mut member, crypto, b"on"), Err(SealRefused::LeaseSpent));
    let kept = member.reserve(10, 10);
    assert_eq!((kept.epoch, kept.requests, kept.responses), (2, 10, 10));
    for wrong in [&group, &next, &next.next().next()] {
        assert_eq!(member.rekey(crypto, &wrong.association(1)).err(), Some(BadAssociation::Epoch));
    }
    let back = Member::<4, 4>::new(crypto, &group.association(1), &kept);
    assert_eq!(back.err(), Some(BadAssociation::Epoch));
    let mut last = group.clone();
    last.epoch = u16::MAX;
    let mut member = last.member::<16>(crypto, 1);
    last.epoch = 0;
    assert_eq!(member.rekey(crypto, &last.association(1)).err(), Some(BadAssociation::Epoch));
}

#[test]
fn an_evicted_member_reads_nothing_and_is_not_heard() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut evicted) = (informed(&group, crypto, 1), informed(&group, crypto, 2));
    let mut listener = informed(&group, crypto, 3);
    let before = request(&mut evicted, crypto, b"in time");
    let next = group.next();
    for (number, member) in [(1, &mut sender), (3, &mut listener)] {
        member.rekey(crypto, &next.association(number)).unwrap();
        member.extend(&member.reserve(10, 10));
    }
    let now = request(&mut sender, crypto, b"secret");
    assert_eq!(hear_request(&mut evicted, crypto, &now).err(), Some(Discard::UnknownPeer));
    assert_eq!(hear_request(&mut listener, crypto, &before).err(), Some(Discard::UnknownPeer));
    // It knows the number of the epoch and all old keys, and not the new secret.
    let mut posing = group.clone();
    posing.epoch = 2;
    let mut posing = posing.member::<16>(crypto, 2);
    assert_eq!(hear_request(&mut posing, crypto, &now).err(), Some(Discard::NotAuthentic));
    let forged = request(&mut posing, crypto, b"let me in");
    assert_eq!(hear_request(&mut listener, crypto, &forged).err(), Some(Discard::NotAuthentic));
    assert_eq!(hear_request(&mut listener, crypto, &now).unwrap().1.fresh(), b"secret");
}

#[test]
fn hole_6_two_senders_with_one_sender_id_are_a_clash() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut first, mut second) = (informed(&group, crypto, 1), informed(&group, crypto, 1));
    let mut listener = informed(&group, crypto, 3);
    let (ours, theirs) = (request(&mut first, crypto, b"ours"), request(&mut second, crypto, b"theirs"));
    // Each of the two finds it, and so does a listener.
    for (member, record) in [(&mut first, &theirs), (&mut second, &ours)] {
        let heard = hear_request(member, crypto, record);
        assert!(matches!(heard, Ok((_, Heard::Clash))), "{heard:?}");
    }
    hear_request(&mut listener, crypto, &ours).unwrap().1.fresh();
    assert!(matches!(hear_request(&mut listener, crypto, &theirs), Ok((_, Heard::Clash))));
    // A number that was never used proves it as well.
    let ahead = (0..5).map(|_| request(&mut second, crypto, b"ahead")).last().unwrap();
    assert!(matches!(hear_request(&mut first, crypto, &ahead), Ok((_, Heard::Clash))));
}

#[test]
fn hole_6_a_replay_of_our_own_record_is_no_clash() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let mut sender = informed(&group, crypto, 1);
    let mut sent = Vec::new();
    for number in 0..30 {
        sent.push(request(&mut sender, crypto, &[number]));
        for record in &sent {
            assert_eq!(hear_request(&mut sender, crypto, record).err(), Some(Discard::Replayed));
        }
    }
    // Nor is it one after a restart, or if it is spoilt.
    let kept = sender.reserve(0, 0);
    let mut restarted: Light = Member::new(crypto, &group.association(1), &kept).unwrap();
    restarted.extend(&restarted.reserve(10, 0));
    request(&mut restarted, crypto, b"one of this run");
    for record in &sent {
        for member in [&mut sender, &mut restarted] {
            assert_eq!(hear_request(member, crypto, record).err(), Some(Discard::Replayed));
            for at in [10, 13 + 8, record.len() - 1] {
                let mut spoilt = record.clone();
                spoilt[at] ^= 0x40;
                assert!(hear_request(member, crypto, &spoilt).is_err());
            }
        }
    }
}

#[test]
fn garbage_cannot_silence_a_group() {
    let (crypto, group) = (&mut scene().0, Group::new(Suite::Ccm8));
    let (mut sender, mut listener) = (informed(&group, crypto, 1), informed(&group, crypto, 3));
    let pattern = request(&mut sender, crypto, b"off");
    for number in 1..5000u32 {
        let mut garbage = pattern.clone();
        garbage[7..11].copy_from_slice(&number.to_be_bytes());
        garbage.copy_within(3..11, 13);
        garbage[22] ^= number as u8;
        assert_eq!(hear_request(&mut listener, crypto, &garbage).err(), Some(Discard::NotAuthentic));
        assert!(hear_response(&mut sender, crypto, &address(3), &garbage).is_err());
    }
    let (from, heard) = hear_request(&mut listener, crypto, &pattern).unwrap();
    assert_eq!(heard.fresh(), b"off");
    let answer = response(&mut listener, crypto, from, b"done");
    hear_response(&mut sender, crypto, &address(3), &answer).unwrap().unverified();
}

#[test]
fn a_key_seals_no_more_than_its_share() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let share = (1 << 23) / 4;
    let kept = Kept { epoch: 1, requests: share - 1, responses: (1 << 23) - 1 };
    let mut member: Light = Member::new(crypto, &group.association(1), &kept).unwrap();
    member.extend(&member.reserve(1 << 30, 1 << 30));
    let mut other = informed(&group, crypto, 2);
    let asked = request(&mut other, crypto, b"?");
    let (from, _) = hear_request(&mut member, crypto, &asked).unwrap();
    request(&mut member, crypto, b"the last one");
    response(&mut member, crypto, from, b"the last one");
    assert_eq!(try_request(&mut member, crypto, b"one more"), Err(SealRefused::Exhausted));
    assert_eq!(try_response(&mut member, crypto, from, b"one more"), Err(SealRefused::Exhausted));
    // The next epoch has keys that sealed nothing.
    member.rekey(crypto, &group.next().association(1)).unwrap();
    member.extend(&member.reserve(1, 0));
    request(&mut member, crypto, b"the first one");
}

#[test]
fn a_full_table_refuses_and_takes_a_member_once_others_are_forgotten() {
    let (crypto, mut group) = (&mut scene().0, scene().1);
    group.senders = 0;
    let mut listener = group.member::<16>(crypto, 100);
    for sender in 0..4 {
        listener.know_sender::<RustCrypto>(sender, 0).unwrap();
    }
    assert!(listener.know_sender::<RustCrypto>(4, 0).is_err());
    let mut fifth = group.member::<16>(crypto, 5);
    for forgets in [false, true] {
        if forgets {
            listener.forget_idle(crypto);
            listener.forget_idle(crypto);
        }
        let echo = listener.challenge().to_vec();
        let proof = request(&mut fifth, crypto, &echo);
        let (content, number) = hear_request(&mut listener, crypto, &proof).unwrap().1.unverified();
        let expected = if forgets { Ok(()) } else { Err(Discard::NoRoom) };
        assert_eq!(listener.accept::<RustCrypto>(number, Proof::Echo(&content)), expected);
    }
    let next = request(&mut fifth, crypto, b"next");
    hear_request(&mut listener, crypto, &next).unwrap().1.fresh();
}

#[test]
fn a_member_that_sends_no_requests_seals_none_and_hears_no_response() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let mut association = group.association(3);
    association.sender_id = None;
    let mut listener: Light = Member::new(crypto, &association, &Kept::default()).unwrap();
    listener.extend(&listener.reserve(10, 10));
    assert_eq!(try_request(&mut listener, crypto, b"?"), Err(SealRefused::NotASender));
    let mut sender = informed(&group, crypto, 1);
    let asked = request(&mut sender, crypto, b"?");
    let (from, _) = hear_request(&mut listener, crypto, &asked).unwrap();
    let answer = response(&mut listener, crypto, from, b"!");
    assert_eq!(hear_response(&mut listener, crypto, &address(3), &answer).err(), Some(Discard::UnknownPeer));
}
