//! Keys and records: a comparison with the bytes of another implementation, and the effect of changed bytes.

use crate::group::{
    self, Group, PORT, address, hear_request, hear_response, request, response, try_request, try_response, tsn_of,
};
use proptest::prelude::*;
use tegmen::address::Address;
use tegmen::axiom::{BadAssociation, Kept, Member, Proof, SealRefused, Suite};
use tegmen::crypto::{Compact, RustCrypto};
use tegmen::cx::Discard;

fn crypto() -> RustCrypto {
    RustCrypto::new([7; 32])
}

/// A case of `vectors/axiom_records.json`.
struct Case(serde_json::Value);

impl Case {
    fn all() -> Vec<Self> {
        let all: serde_json::Value = serde_json::from_str(include_str!("../../../vectors/axiom_records.json")).unwrap();
        all["vectors"].as_array().unwrap().iter().cloned().map(Self).collect()
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let text = self.0[name].as_str().unwrap();
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
    }

    fn array<const N: usize>(&self, name: &str) -> [u8; N] {
        self.bytes(name).try_into().unwrap()
    }

    fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap()
    }

    fn suite(&self) -> Suite {
        let name = self.0["suite"].as_str().unwrap();
        SUITES.into_iter().find(|suite| format!("{suite:?}") == name).unwrap()
    }

    /// Checks the sender and the listener of the case.
    fn check<const KEY: usize>(&self) {
        let group = Group {
            suite: self.suite(),
            epoch: self.number("epoch") as u16,
            group_id: self.number("group_id") as u8,
            senders: 1,
            master_secret: self.array("master_secret"),
            client_random: self.array("client_random"),
            server_random: self.array("server_random"),
        };
        let crypto = &mut crypto();
        let sender_id = self.number("sender_id") as u8;
        let address = Address { ip: self.array("address"), port: PORT, scope: 0 };
        let kept =
            Kept { epoch: group.epoch, requests: self.number("request_tsn"), responses: self.number("response_tsn") };
        let sending = group.association(sender_id);
        let mut listening = group.association(0);
        (listening.sender_id, listening.address) = (None, address.ip);
        let mut sender: Member<4, 4, KEY> = Member::new(crypto, &sending, &kept).unwrap();
        sender.extend(&sender.reserve(1, 1));
        let mut listener: Member<4, 4, KEY> = Member::new(crypto, &listening, &kept).unwrap();
        listener.extend(&listener.reserve(0, 1));

        let mut content = self.bytes("content");
        let request = try_request(&mut sender, crypto, &content).unwrap();
        assert_eq!(request, self.bytes("request"));
        // After a restart nothing is known of the sender.
        let (from, heard) = hear_request(&mut listener, crypto, &request).unwrap();
        assert_eq!((from.number(), heard.unverified().0), (sender_id, content.clone()));

        content.reverse();
        let response = try_response(&mut listener, crypto, from, &content).unwrap();
        assert_eq!(response, self.bytes("response"));
        let heard = hear_response(&mut sender, crypto, &address, &response).unwrap();
        assert_eq!(heard.unverified().0, content);
    }
}

const SUITES: [Suite; 4] = [Suite::Ccm, Suite::Ccm8, Suite::Gcm, Suite::MacOnly];

#[test]
fn records_are_those_of_another_implementation() {
    let cases = Case::all();
    for suite in SUITES {
        assert_eq!(cases.iter().filter(|case| case.suite() == suite).count(), 3, "{suite:?}");
    }
    for case in cases {
        match case.suite() {
            Suite::MacOnly => case.check::<32>(),
            _ => case.check::<16>(),
        }
    }
}

#[test]
fn a_suite_needs_keys_of_its_length_and_a_provider_that_has_it() {
    let (crypto, kept) = (&mut crypto(), &Kept::default());
    for suite in SUITES {
        let group = Group::new(suite);
        let short = Member::<1, 1, 16>::new(crypto, &group.association(1), kept).err();
        let long = Member::<1, 1, 32>::new(crypto, &group.association(1), kept).err();
        let wrong = Some(BadAssociation::Suite);
        let expected = if suite == Suite::MacOnly { (wrong, None) } else { (None, wrong) };
        assert_eq!((short, long), expected, "{suite:?}");
    }
    let gcm = Group::new(Suite::Gcm);
    let without = Member::<1, 1>::new(&mut Compact::new([1; 32]), &gcm.association(1), kept);
    assert_eq!(without.err(), Some(BadAssociation::Suite));
}

#[test]
fn epoch_0_is_none_of_a_group() {
    let mut group = Group::new(Suite::Ccm);
    group.epoch = 0;
    let member = Member::<1, 1>::new(&mut crypto(), &group.association(1), &Kept::default());
    assert_eq!(member.err(), Some(BadAssociation::Epoch));
}

#[test]
fn a_member_of_no_group_refuses_everything_and_begins_as_a_new_one() {
    let (crypto, group) = (&mut crypto(), Group::new(Suite::Ccm));
    let mut sender = group.member::<16>(crypto, 1);
    let request = try_request(&mut sender, crypto, b"on").unwrap();
    let mut empty = Member::<4, 4>::EMPTY;
    empty.extend(&empty.reserve(9, 9));
    assert_eq!(empty.left(), (0, 0));
    assert_eq!(try_request(&mut empty, crypto, b"on"), Err(SealRefused::NotASender));
    let mut in_epoch_0 = request.clone();
    in_epoch_0[4] = 0;
    for request in [&request, &in_epoch_0] {
        assert!(hear_request(&mut empty, crypto, request).is_err());
    }

    let mut wrong = group.clone();
    wrong.epoch = 0;
    assert_eq!(empty.begin(crypto, &wrong.association(2), &Kept::default()), Err(BadAssociation::Epoch));
    empty.begin(crypto, &group.association(2), &Kept::default()).unwrap();
    empty.extend(&empty.reserve(9, 9));
    empty.know_sender::<RustCrypto>(1, 0).unwrap();
    let (from, heard) = hear_request(&mut empty, crypto, &request).unwrap();
    assert_eq!(heard.fresh(), b"on");
    let response = try_response(&mut empty, crypto, from, b"done").unwrap();
    assert_eq!(hear_response(&mut sender, crypto, &group::address(2), &response).unwrap().unverified().0, b"done");

    // A member that begins again has no states of others.
    empty.begin(crypto, &group.association(2), &empty.reserve(0, 0)).unwrap();
    let next = try_request(&mut sender, crypto, b"off").unwrap();
    assert_eq!(hear_request(&mut empty, crypto, &next).unwrap().1.unverified().0, b"off");
}

/// Seals a request and a response of a group, and checks that a change of their bytes is detected.
fn survives<const KEY: usize>(suite: Suite, content: &[u8], change: impl Fn(&mut Vec<u8>)) {
    let (crypto, group) = (&mut crypto(), Group::new(suite));
    let (mut sender, mut listener) = (group.member::<KEY>(crypto, 1), group.member::<KEY>(crypto, 2));
    listener.know_sender::<RustCrypto>(1, 0).unwrap();
    let request = try_request(&mut sender, crypto, content).unwrap();
    let mut changed = request.clone();
    change(&mut changed);
    if changed != request {
        assert!(hear_request(&mut listener, crypto, &changed).is_err(), "{changed:02x?}");
    }
    let (from, heard) = hear_request(&mut listener, crypto, &request).unwrap();
    assert_eq!(heard.fresh(), content);
    let response = try_response(&mut listener, crypto, from, content).unwrap();
    let mut changed = response.clone();
    change(&mut changed);
    let from = group::address(2);
    if changed != response {
        assert!(hear_response(&mut sender, crypto, &from, &changed).is_err(), "{changed:02x?}");
    }
    assert_eq!(hear_response(&mut sender, crypto, &from, &response).unwrap().unverified().0, content);
}

fn survives_in(suite: Suite, content: &[u8], change: impl Fn(&mut Vec<u8>)) {
    match suite {
        Suite::MacOnly => survives::<32>(suite, content, change),
        _ => survives::<16>(suite, content, change),
    }
}

proptest! {
    #[test]
    fn a_changed_bit_is_found_and_harms_nothing(
        which in 0..SUITES.len(),
        content in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        bit in 0..8,
    ) {
        survives_in(SUITES[which], &content, |record| {
            let at = at.index(record.len());
            record[at] ^= 1u8 << bit;
        });
    }

    #[test]
    fn a_record_that_is_cut_is_found_and_harms_nothing(
        which in 0..SUITES.len(),
        content in proptest::collection::vec(any::<u8>(), 0..60),
        len in any::<prop::sample::Index>(),
        mends_length: bool,
    ) {
        survives_in(SUITES[which], &content, |record| {
            record.truncate(len.index(record.len()));
            let body = record.len().saturating_sub(13) as u16;
            if let Some(place) = record.get_mut(11..13).filter(|_| mends_length) {
                place.copy_from_slice(&body.to_be_bytes());
            }
        });
    }

    #[test]
    fn no_bytes_of_an_outsider_open(
        which in 0..SUITES.len(),
        id in 0..4u8,
        tsn in 0..3u8,
        body in proptest::collection::vec(any::<u8>(), 0..80),
        explicit: bool,
    ) {
        let mut forged = vec![23, 0xfe, 0xfd, 0, 1, id, 0, 0, 0, 0, tsn];
        let number: Vec<u8> = if explicit { forged[3..11].to_vec() } else { Vec::new() };
        forged.extend(((number.len() + body.len()) as u16).to_be_bytes());
        forged.extend(number);
        forged.extend(body);
        survives_in(SUITES[which], b"true", |record| record.clone_from(&forged));
    }
}

#[test]
fn a_content_longer_than_a_record_is_refused() {
    let (crypto, group) = (&mut crypto(), Group::new(Suite::Ccm));
    let mut sender = group.member::<16>(crypto, 1);
    assert!(try_request(&mut sender, crypto, &[0; 1 << 14]).is_ok());
    assert!(try_request(&mut sender, crypto, &[0; (1 << 14) + 1]).is_err());
}

#[test]
fn a_record_with_another_number_in_its_nonce_is_dropped() {
    let (crypto, group) = (&mut crypto(), Group::new(Suite::Ccm));
    let (mut sender, mut listener) = (group.member::<16>(crypto, 1), group.member::<16>(crypto, 2));
    let mut request = try_request(&mut sender, crypto, b"on").unwrap();
    request[13 + 7] ^= 1;
    assert_eq!(hear_request(&mut listener, crypto, &request).err(), Some(Discard::Malformed));
}

#[test]
fn members_that_prefer_one_place_in_a_table_are_told_apart() {
    let (crypto, mut group) = (&mut crypto(), Group::new(Suite::Ccm));
    group.senders = 0;
    let mut one = group.member::<16>(crypto, 100);
    let asked = request(&mut one, crypto, b"?");
    // In a table of four places, each prefers the last one.
    let mut others = [3, 7, 11, 15].map(|number| (number, group.member::<16>(crypto, number)));
    // The same for all of them.
    let (to, _) = hear_request(&mut others[0].1, crypto, &asked).unwrap();
    for (number, other) in &mut others {
        one.know_sender::<RustCrypto>(*number, 0).unwrap();
        let answer = response(other, crypto, to, b"first");
        let (_, first) = hear_response(&mut one, crypto, &address(*number), &answer).unwrap().unverified();
        one.accept::<RustCrypto>(first, Proof::AnswerTo(tsn_of(&asked))).unwrap();
    }
    for forgotten in [None, Some(7)] {
        one.forget_idle(crypto);
        for (number, other) in others.iter_mut().filter(|(number, _)| Some(*number) != forgotten) {
            let asks = request(other, crypto, &[*number]);
            assert_eq!(hear_request(&mut one, crypto, &asks).unwrap().1.fresh(), [*number]);
            let answer = response(other, crypto, to, &[*number]);
            let heard = hear_response(&mut one, crypto, &address(*number), &answer).unwrap();
            assert_eq!(heard.fresh(), [*number]);
        }
    }
    // Now there is no state of one of them, and those behind it are found.
    one.forget_idle(crypto);
    for (number, other) in &mut others {
        let answer = response(other, crypto, to, b"last");
        let heard = hear_response(&mut one, crypto, &address(*number), &answer).unwrap();
        assert_eq!(*number == 7, matches!(heard, group::Heard::Unverified(..)), "{number}");
    }
}
