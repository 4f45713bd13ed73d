//! Attacks on a group, each with its name. Each attack fails against our member. It succeeds against a member that
//! follows the Axiom paper, or against a mutant: a member that follows the paper, but lacks one more check.

use crate::group::{
    Group, Heard, address, draw, hear_request, hear_response, request, response, try_request, try_response, tsn_of,
};
use crate::paper::{Outcome, Paper, reveal};
use tegmen::address::Address;
use tegmen::axiom::{BadAssociation, Kept, Member, Proof, SealRefused, Suite};
use tegmen::crypto::RustCrypto;
use tegmen::cx::Discard;

type Light = Member<4, 4>;

/// Returns a crypto provider, and a group whose tags have 16 bytes.
fn scene() -> (RustCrypto, Group) {
    (RustCrypto::new([7; 32]), Group::new(Suite::Ccm))
}

/// Returns the member `number`. The controller has sent it the information that the senders 1 and 2 begin with TSN 0.
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
    // The mutant remembers no numbers, and delivers a request as often as it comes.
    let mut mutant = Paper::mutant(&group, 3, |it| it.forgets_numbers = true);
    for _ in 0..3 {
        assert_eq!(mutant.hear_request(&sent[1]), Outcome::Delivered(vec![1]));
    }
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
    // The mutants have one key towards all senders: the second takes the response to the first for its own.
    let [mut listener, mut two] = [3, 2].map(|number| Paper::mutant(&group, number, |it| it.has_one_key = true));
    let answer = listener.response((1, address(1)), b"!");
    assert_eq!(two.hear_response(&address(3), &answer), Outcome::Delivered(b"!".to_vec()));

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

#[test]
fn hole_1_a_response_forged_by_an_outsider_is_refused() {
    let (crypto, group) = (&mut scene().0, Group::new(Suite::MacOnly));
    // The outsider has no key. With the paper's secret, which is empty where there is no cipher, it needs none.
    let nothing = Group { master_secret: [0; 48], client_random: [0; 32], server_random: [0; 32], ..group.clone() };
    let forged = Paper::new(&nothing, 3).response((1, address(1)), b"the door is closed");
    let delivered = Outcome::Delivered(b"the door is closed".to_vec());
    assert_eq!(Paper::new(&group, 1).hear_response(&address(3), &forged), delivered);

    let mut sender = group.member::<32>(crypto, 1);
    assert_eq!(hear_response(&mut sender, crypto, &address(3), &forged).err(), Some(Discard::NotAuthentic));
    // The forgery fails because of its secret alone: with the keys of the group, the same bytes are right.
    let genuine = Paper::mutant(&group, 3, |it| it.has_secret = true).response((1, address(1)), b"the door is closed");
    let heard = hear_response(&mut sender, crypto, &address(3), &genuine).unwrap();
    assert_eq!(heard.unverified().0, b"the door is closed");
}

#[test]
fn hole_2_two_listeners_behind_one_address_are_a_clash() {
    let (crypto, group) = (&mut scene().0, scene().1);
    // By the paper two listeners behind one address use one key and one nonce, and nobody notices: the sender drops the second
    // response, and an outsider has the difference of the contents.
    let contents: [&[u8]; 2] = [b"it is 19 C", b"it is 23 C"];
    let answers = contents.map(|content| Paper::new(&group, 3).response((1, address(1)), content));
    let mut sender = Paper::new(&group, 1);
    assert_eq!(sender.hear_response(&address(3), &answers[0]), Outcome::Delivered(contents[0].to_vec()));
    assert_eq!(sender.hear_response(&address(3), &answers[1]), Outcome::Dropped);
    assert!(reveal([&answers[0], &answers[1]], contents));

    // The controller refuses the second listener. Where there are two all the same, the first response of the second shows it.
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
fn hole_2_a_response_from_another_port_is_refused() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let elsewhere = Address { port: 40_000, ..address(3) };
    // A program beside the listener, with keys of the group, answers from another port of its address. The mutant reports two
    // listeners behind one address, so that the controller begins an epoch as often as the program likes.
    let mut program = Paper::new(&group, 3);
    let forged = program.response((1, address(1)), b"not the listener");
    let mut mutant = Paper::mutant(&group, 1, |it| it.finds_twins = true);
    let genuine = Paper::new(&group, 3).response((1, address(1)), b"the listener");
    assert_eq!(mutant.hear_response(&address(3), &genuine), Outcome::Delivered(b"the listener".to_vec()));
    assert_eq!(mutant.hear_response(&elsewhere, &forged), Outcome::Clash);

    let (mut sender, mut listener) = (informed(&group, crypto, 1), informed(&group, crypto, 3));
    let asked = request(&mut sender, crypto, b"?");
    let (from, _) = hear_request(&mut listener, crypto, &asked).unwrap();
    let answer = response(&mut listener, crypto, from, b"!");
    assert_eq!(hear_response(&mut sender, crypto, &elsewhere, &forged).err(), Some(Discard::UnknownPeer));
    let (_, number) = hear_response(&mut sender, crypto, &address(3), &answer).unwrap().unverified();
    sender.accept::<RustCrypto>(number, Proof::AnswerTo(tsn_of(&asked))).unwrap();
    for record in [&forged, &answer] {
        assert_eq!(hear_response(&mut sender, crypto, &elsewhere, record).err(), Some(Discard::UnknownPeer));
    }
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
    // By the paper an outsider delivers a request from another address. The listener makes a second state with the same key.
    let mut listener = Paper::new(&group, 3);
    let contents: [&[u8]; 2] = [b"closed", b"opened"];
    let answers = [1, 77].map(|host| listener.response((1, address(host)), contents[usize::from(host == 77)]));
    assert!(reveal([&answers[0], &answers[1]], contents));

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
    // The paper drops the first one, and delivers the second, however old it is.
    let mut mutant = Paper::mutant(&group, 3, |it| it.was_here = false);
    assert_eq!(mutant.hear_request(&old[0]), Outcome::Dropped);
    assert_eq!(mutant.hear_request(&old[1]), Outcome::Delivered(vec![1]));

    let mut joiner = group.member::<16>(crypto, 3);
    for record in old.iter().chain(&old) {
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

/// Returns a listener that has followed a rekeying into the next epoch, that epoch, and the SenderID 4, which joins with it.
fn listener_of_next_epoch(crypto: &mut RustCrypto) -> (Light, Group, Light) {
    let group = Group::new(Suite::Ccm);
    let mut listener = informed(&group, crypto, 3);
    let next = group.next();
    listener.rekey(crypto, &next.association(3)).unwrap();
    listener.extend(&listener.reserve(10, 10));
    let joined = next.member::<16>(crypto, 4);
    (listener, next, joined)
}

#[test]
fn the_first_request_of_a_sender_that_joins_later_is_delivered_once() {
    let crypto = &mut RustCrypto::new([7; 32]);
    let (mut listener, next, mut joined) = listener_of_next_epoch(crypto);
    let sent: Vec<_> = (0..4).map(|number| request(&mut joined, crypto, &[number])).collect();
    // A forgery of a later record leaves no state that would refuse the sender.
    let mut forged = sent[3].clone();
    *forged.last_mut().unwrap() ^= 1;
    assert_eq!(hear_request(&mut listener, crypto, &forged).err(), Some(Discard::NotAuthentic));
    // The network has changed the order of the first requests.
    for number in [2, 0, 1] {
        assert_eq!(hear_request(&mut listener, crypto, &sent[number]).unwrap().1.fresh(), [number as u8]);
    }
    for record in &sent[..3] {
        assert_eq!(hear_request(&mut listener, crypto, record).err(), Some(Discard::Replayed));
    }
    // Nothing of the time before this epoch is accepted, not even from an earlier member with the same SenderID.
    let before = Group { epoch: 1, ..Group::new(next.suite) };
    let old = request(&mut before.member::<16>(crypto, 4), crypto, b"old");
    assert_eq!(hear_request(&mut listener, crypto, &old).err(), Some(Discard::UnknownPeer));
    // The listener is the first one in the next epoch, too, and for another sender.
    let mut other = next.member::<16>(crypto, 2);
    let first = request(&mut other, crypto, b"other");
    hear_request(&mut listener, crypto, &first).unwrap().1.fresh();
}

#[test]
fn a_request_of_a_forgotten_sender_is_delivered_only_if_its_number_is_higher() {
    let crypto = &mut RustCrypto::new([7; 32]);
    let (mut listener, next, mut joined) = listener_of_next_epoch(crypto);
    let mut other = next.member::<16>(crypto, 5);
    let low = request(&mut other, crypto, b"low");
    let sent: Vec<_> = (0..5).map(|number| request(&mut joined, crypto, &[number])).collect();
    for record in &sent[..4] {
        hear_request(&mut listener, crypto, record).unwrap().1.fresh();
    }
    for _ in 0..2 {
        listener.forget_idle(crypto);
    }
    // The listener does not know any more which sender has used which of the numbers up to 3.
    for record in sent[..4].iter().chain([&low]) {
        hear_request(&mut listener, crypto, record).unwrap().1.unverified();
    }
    // The number 4 was never accepted from any forgotten sender.
    hear_request(&mut listener, crypto, &sent[4]).unwrap().1.fresh();
    for record in &sent {
        assert_eq!(hear_request(&mut listener, crypto, record).err(), Some(Discard::Replayed));
    }
}

#[test]
fn a_listener_that_came_late_or_restarted_delivers_no_request_without_a_proof() {
    let crypto = &mut RustCrypto::new([7; 32]);
    let (mut listener, next, mut joined) = listener_of_next_epoch(crypto);
    let sent = request(&mut joined, crypto, b"old");
    // It restarts in the epoch.
    let kept = listener.reserve(0, 0);
    let mut restarted: Light = Member::new(crypto, &next.association(3), &kept).unwrap();
    restarted.extend(&restarted.reserve(10, 10));
    hear_request(&mut restarted, crypto, &sent).unwrap().1.unverified();
    // It has missed the rekeying to the epoch after it, and gets the keys in the middle of that epoch.
    let after = next.next();
    let mut joined = after.member::<16>(crypto, 4);
    let sent = request(&mut joined, crypto, b"old");
    listener.begin(crypto, &after.association(3), &kept).unwrap();
    listener.extend(&listener.reserve(10, 10));
    hear_request(&mut listener, crypto, &sent).unwrap().1.unverified();
    // A listener that restarted follows the next rekeying.
    let last = after.next();
    let mut joined = last.member::<16>(crypto, 4);
    listener.rekey(crypto, &last.association(3)).unwrap();
    listener.extend(&listener.reserve(10, 10));
    let sent = request(&mut joined, crypto, b"new");
    hear_request(&mut listener, crypto, &sent).unwrap().1.fresh();
}

#[test]
fn a_request_without_space_for_the_state_of_its_sender_is_not_delivered() {
    let crypto = &mut RustCrypto::new([7; 32]);
    let (mut listener, next, _) = listener_of_next_epoch(crypto);
    // The listener has space for four senders, and knows two from the epoch before.
    let mut senders = [4, 5, 6].map(|number| next.member::<16>(crypto, number));
    let sent = senders.each_mut().map(|sender| request(sender, crypto, b"first"));
    for record in &sent[..2] {
        hear_request(&mut listener, crypto, record).unwrap().1.fresh();
    }
    for _ in 0..2 {
        hear_request(&mut listener, crypto, &sent[2]).unwrap().1.unverified();
    }
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
fn an_epoch_is_not_rolled_back() {
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
    // An attacker who resets a member gives it the association of an old epoch, with records of that time. The mutant has no
    // durable epoch, and delivers them.
    let old = request(&mut informed(&group, crypto, 2), crypto, b"open");
    let mut mutant: Light = Member::new(crypto, &group.association(1), &Kept::default()).unwrap();
    mutant.know_sender::<RustCrypto>(2, 0).unwrap();
    mutant.extend(&mutant.reserve(1, 0));
    assert_eq!(hear_request(&mut mutant, crypto, &old).unwrap().1.fresh(), b"open");
    let back = Member::<4, 4>::new(crypto, &group.association(1), &kept);
    assert_eq!(back.err(), Some(BadAssociation::Epoch));
    assert_eq!(hear_request(&mut member, crypto, &old).err(), Some(Discard::UnknownPeer));
    let mut last = group.clone();
    last.epoch = u16::MAX;
    let mut member = last.member::<16>(crypto, 1);
    last.epoch = 0;
    assert_eq!(member.rekey(crypto, &last.association(1)).err(), Some(BadAssociation::Epoch));
}

#[test]
fn an_evicted_member_with_all_old_keys_reads_nothing_and_is_not_heard() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut evicted) = (informed(&group, crypto, 1), informed(&group, crypto, 2));
    let mut listener = informed(&group, crypto, 3);
    let before = request(&mut evicted, crypto, b"in time");
    // A group whose epoch changes, and not its secret: the evicted member reads and sends as before.
    let renumbered = Group { epoch: 2, ..group.clone() };
    let [mut mutant, mut posing] = [3, 2].map(|number| Paper::new(&renumbered, number));
    assert_eq!(mutant.hear_request(&posing.request(b"let me in")), Outcome::Delivered(b"let me in".to_vec()));
    assert_eq!(posing.hear_request(&mutant.request(b"secret")), Outcome::Delivered(b"secret".to_vec()));

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
    // By the paper only a sender finds it, and only if it listens, too. A listener drops the second request.
    let contents: [&[u8]; 2] = [b"ours  ", b"theirs"];
    let sent = contents.map(|content| Paper::new(&group, 1).request(content));
    let mut listener = Paper::new(&group, 3);
    assert_eq!(listener.hear_request(&sent[0]), Outcome::Delivered(contents[0].to_vec()));
    assert_eq!(listener.hear_request(&sent[1]), Outcome::Dropped);
    assert!(reveal([&sent[0], &sent[1]], contents));

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
    // By the paper a sender takes its own request for that of another sender, and gets another SenderID each time.
    let mut sender = Paper::new(&group, 1);
    let ours = sender.request(b"ours");
    assert_eq!(sender.hear_request(&ours), Outcome::Clash);

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
    // The mutant has the limit of a session with 8-byte tags. An outsider needs a thousand datagrams to end the group.
    let mut mutant = Paper::mutant(&group, 3, |it| it.tries = Some(1 << 10));
    for number in 1..5000u32 {
        let mut garbage = pattern.clone();
        garbage[7..11].copy_from_slice(&number.to_be_bytes());
        garbage.copy_within(3..11, 13);
        garbage[22] ^= number as u8;
        assert_eq!(mutant.hear_request(&garbage), Outcome::Dropped);
        assert_eq!(hear_request(&mut listener, crypto, &garbage).err(), Some(Discard::NotAuthentic));
        assert!(hear_response(&mut sender, crypto, &address(3), &garbage).is_err());
    }
    assert_eq!(mutant.hear_request(&pattern), Outcome::Dropped, "the mutant is silent");
    assert_eq!(Paper::new(&group, 3).hear_request(&pattern), Outcome::Delivered(b"off".to_vec()));
    let (from, heard) = hear_request(&mut listener, crypto, &pattern).unwrap();
    assert_eq!(heard.fresh(), b"off");
    let answer = response(&mut listener, crypto, from, b"done");
    hear_response(&mut sender, crypto, &address(3), &answer).unwrap().unverified();
}

#[test]
fn no_tsn_is_used_beyond_the_limit() {
    let (crypto, group) = (&mut scene().0, scene().1);
    // By the paper a member trusts the controller to begin an epoch in time. Its number is 0 again after the last one.
    let contents: [&[u8]; 2] = [b"the first", b"2^40 more"];
    let mut sender = Paper::new(&group, 1);
    let first = sender.request(contents[0]);
    sender.next = 1 << 40;
    assert!(reveal([&first, &sender.request(contents[1])], contents));

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
