//! Source authenticity (Axiom paper, section 7.4): a record of a group with signatures proves to all members which
//! member sent it.

use crate::group::{
    Group, Heard, address, hear_request, hear_response, request, response, try_request, try_response, tsn_of,
};
use crate::keys::Keys;
use p256_order::negated;
use tegmen::axiom::{Association, Kept, Member, Proof, SealRefused, SenderId, Signatures, Suite};
use tegmen::crypto::RustCrypto;
use tegmen::cx::Discard;

type Signing<const KEY: usize> = Member<4, 4, KEY, Keys>;

/// Number of bytes of a signature.
const SIGNATURE: usize = 64;

/// Creates a member with this association and these signatures. It knows that the senders 1 and 2 begin with TSN 0.
fn member<const KEY: usize, S: Signatures>(
    crypto: &mut RustCrypto,
    association: &Association<'_>,
    signatures: S,
) -> Member<4, 4, KEY, S> {
    let mut member = Member::with(signatures);
    member.begin(crypto, association, &Kept::default()).unwrap();
    member.extend(&member.reserve(1000, 1000));
    for sender in [1, 2].into_iter().filter(|sender| association.sender_id != Some(*sender)) {
        member.know_sender::<RustCrypto>(sender, 0).unwrap();
    }
    member
}

/// Creates the member `number` of a group with signatures.
fn signing(crypto: &mut RustCrypto, group: &Group, number: u8) -> Signing<16> {
    member(crypto, &group.association(number), Keys::new(number))
}

/// Creates a member with all keys of the group, which claims to be the member `as_other`. `signatures` has the private
/// key of another member.
fn impostor<S: Signatures>(crypto: &mut RustCrypto, group: &Group, as_other: u8, signatures: S) -> Member<4, 4, 16, S> {
    member(crypto, &group.association(as_other), signatures)
}

fn scene() -> (RustCrypto, Group) {
    (RustCrypto::new([7; 32]), Group::new(Suite::Ccm))
}

/// Returns a request with this token.
fn asking(token: u64, text: &[u8]) -> Vec<u8> {
    [&token.to_be_bytes()[..], text].concat()
}

/// Returns a response to the request with this token.
fn answering(token: u64, text: &[u8]) -> Vec<u8> {
    [&[0; 8][..], &token.to_be_bytes(), text].concat()
}

fn fresh(heard: Result<(SenderId, Heard), Discard>) -> (u8, Vec<u8>) {
    let (sender, heard) = heard.unwrap();
    (sender.number(), heard.fresh())
}

#[test]
fn a_member_cannot_speak_as_another_sender() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (open, orders) = (asking(1, b"open"), asking(1, b"close"));
    // Member 2 has all keys of the group. Without signatures its request is one of the sender 1.
    let mut forger = impostor(crypto, &group, 1, ());
    let mut listener: Member<4, 4> = member(crypto, &group.association(3), ());
    let forged = request(&mut forger, crypto, &open);
    assert_eq!(fresh(hear_request(&mut listener, crypto, &forged)), (1, open.clone()));

    let mut forger = impostor(crypto, &group, 1, Keys::new(2));
    let (mut sender, mut listener) = (signing(crypto, &group, 1), signing(crypto, &group, 3));
    let forged = request(&mut forger, crypto, &open);
    assert_eq!(hear_request(&mut listener, crypto, &forged).err(), Some(Discard::NotAuthentic));
    // The number of the forgery is not used up.
    let genuine = request(&mut sender, crypto, &orders);
    assert_eq!(tsn_of(&genuine), tsn_of(&forged));
    assert_eq!(fresh(hear_request(&mut listener, crypto, &genuine)), (1, orders));
    assert_eq!(hear_request(&mut listener, crypto, &genuine).err(), Some(Discard::Replayed));
    // A request without a signature is none here.
    let mut without = impostor(crypto, &group, 1, ());
    request(&mut without, crypto, &open);
    let unsigned = request(&mut without, crypto, &[&open[..], &[0; 80]].concat());
    assert_eq!(hear_request(&mut listener, crypto, &unsigned).err(), Some(Discard::NotAuthentic));
}

#[test]
fn a_member_cannot_answer_as_another_listener() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (question, answer) = (asking(1, b"?"), answering(1, b"closed"));
    let mut asker: Member<4, 4> = member(crypto, &group.association(1), ());
    // Member 2 answers from the address of the listener 3, whose key it can derive.
    let mut forger = impostor(crypto, &group, 3, ());
    let asked = request(&mut asker, crypto, &question);
    let (from, _) = hear_request(&mut forger, crypto, &asked).unwrap();
    let forged = response(&mut forger, crypto, from, &answer);
    let (content, record) = hear_response(&mut asker, crypto, &address(3), &forged).unwrap().unverified();
    assert_eq!(content, answer);
    asker.accept::<RustCrypto>(record, Proof::AnswerTo(tsn_of(&asked))).unwrap();

    let mut asker = signing(crypto, &group, 1);
    let mut forger = impostor(crypto, &group, 3, Keys::new(2));
    let mut listener = signing(crypto, &group, 3);
    let asked = request(&mut asker, crypto, &question);
    let (from, _) = hear_request(&mut forger, crypto, &asked).unwrap();
    let forged = response(&mut forger, crypto, from, &answer);
    assert_eq!(hear_response(&mut asker, crypto, &address(3), &forged).err(), Some(Discard::NotAuthentic));
    let (from, _) = hear_request(&mut listener, crypto, &asked).unwrap();
    let genuine = response(&mut listener, crypto, from, &answer);
    let (content, record) = hear_response(&mut asker, crypto, &address(3), &genuine).unwrap().unverified();
    assert_eq!(content, answer);
    asker.accept::<RustCrypto>(record, Proof::AnswerTo(tsn_of(&asked))).unwrap();
    // Also when the numbers of the listener are known.
    let forged = (0..2).map(|_| response(&mut forger, crypto, from, &answer)).last().unwrap();
    assert_eq!(hear_response(&mut asker, crypto, &address(3), &forged).err(), Some(Discard::NotAuthentic));
}

#[test]
fn a_bad_signature_changes_no_state() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut listener) = (signing(crypto, &group, 1), signing(crypto, &group, 3));
    let sent: Vec<_> = (0..70).map(|token| request(&mut sender, crypto, &asking(token, b"?"))).collect();
    // Neither a record far ahead, which would move the window, nor one within it.
    let spoilt = |record: &[u8]| {
        let mut spoilt = record.to_vec();
        *spoilt.last_mut().unwrap() ^= 1;
        spoilt
    };
    assert_eq!(hear_request(&mut listener, crypto, &spoilt(&sent[69])).err(), Some(Discard::NotAuthentic));
    for record in [&sent[0], &sent[2], &sent[1]] {
        assert_eq!(hear_request(&mut listener, crypto, &spoilt(record)).err(), Some(Discard::NotAuthentic));
        fresh(hear_request(&mut listener, crypto, record));
    }
    // Without signatures a member can forge a clash with the number of the newest record.
    let [mut sender_without, mut forger, mut listener_without] =
        [1, 1, 3].map(|number| member::<16, _>(crypto, &group.association(number), ()));
    let genuine = request(&mut sender_without, crypto, &asking(1, b"?"));
    fresh(hear_request(&mut listener_without, crypto, &genuine));
    let forged = request(&mut forger, crypto, &asking(9, b"!"));
    assert!(matches!(hear_request(&mut listener_without, crypto, &forged).unwrap().1, Heard::Clash));
    // With them the forgery is none.
    let mut forger = impostor(crypto, &group, 1, Keys::new(2));
    let forged = (0..3).map(|_| request(&mut forger, crypto, &asking(9, b"!"))).last().unwrap();
    assert_eq!(hear_request(&mut listener, crypto, &forged).err(), Some(Discard::NotAuthentic));
    // Nor is it one at the member whose SenderID it has.
    assert_eq!(hear_request(&mut sender, crypto, &spoilt(&sent[0])).err(), Some(Discard::Replayed));
    let ahead = (0..80).map(|_| request(&mut forger, crypto, &asking(9, b"!"))).last().unwrap();
    assert_eq!(hear_request(&mut sender, crypto, &ahead).err(), Some(Discard::NotAuthentic));
    // The directory notes no request with a bad signature.
    assert_eq!(listener.signatures().requests.len(), 3);
    // An unknown sender gets no challenge for a bad signature.
    let mut stranger = signing(crypto, &group, 0);
    let strange = request(&mut stranger, crypto, &asking(1, b"?"));
    assert_eq!(hear_request(&mut listener, crypto, &spoilt(&strange)).err(), Some(Discard::NotAuthentic));
    let (_, heard) = hear_request(&mut listener, crypto, &strange).unwrap();
    heard.unverified();
}

#[test]
fn a_true_clash_has_two_right_signatures() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let mut listener = signing(crypto, &group, 3);
    let mut twins = [signing(crypto, &group, 1), signing(crypto, &group, 1)];
    let [one, two] = [0, 1].map(|which| request(&mut twins[which], crypto, &asking(which as u64, b"?")));
    fresh(hear_request(&mut listener, crypto, &one));
    assert!(matches!(hear_request(&mut listener, crypto, &two).unwrap().1, Heard::Clash));
    assert!(matches!(hear_request(&mut twins[0], crypto, &two).unwrap().1, Heard::Clash));
    // The other form of an ECDSA signature is no other record.
    let mut other_form = one.clone();
    let at = other_form.len() - SIGNATURE / 2;
    let s = negated(other_form[at..].try_into().unwrap());
    other_form[at..].copy_from_slice(&s);
    assert_ne!(other_form, one);
    assert_eq!(hear_request(&mut listener, crypto, &other_form).err(), Some(Discard::Replayed));
    assert_eq!(hear_request(&mut twins[0], crypto, &other_form).err(), Some(Discard::Replayed));
}

#[test]
fn a_signature_is_for_one_request() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut listener) = (signing(crypto, &group, 1), signing(crypto, &group, 3));
    let mut forger = impostor(crypto, &group, 1, Keys::new(2));
    let genuine = request(&mut sender, crypto, &asking(1, b"?"));
    let signature = &genuine[genuine.len() - SIGNATURE..];
    for content in [asking(1, b"!"), asking(1, b"?")] {
        // The same content gets another number.
        let mut forged = (0..2).map(|_| request(&mut forger, crypto, &content)).last().unwrap();
        let at = forged.len() - SIGNATURE;
        forged[at..].copy_from_slice(signature);
        assert_eq!(hear_request(&mut listener, crypto, &forged).err(), Some(Discard::NotAuthentic));
    }
    fresh(hear_request(&mut listener, crypto, &genuine));
}

#[test]
fn a_response_is_for_one_request() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut asker, mut listener) = (signing(crypto, &group, 1), signing(crypto, &group, 3));
    let asked = request(&mut asker, crypto, &asking(1, b"is it on?"));
    let (from, _) = hear_request(&mut listener, crypto, &asked).unwrap();
    let answer = response(&mut listener, crypto, from, &answering(1, b"no"));
    // A sender that uses its token again, in the same epoch or in another.
    let again = request(&mut asker, crypto, &asking(1, b"is it off?"));
    assert_ne!(tsn_of(&asked), tsn_of(&again));
    assert_eq!(hear_response(&mut asker, crypto, &address(3), &answer).err(), Some(Discard::NotAuthentic));
    let (to, token) = asker.signatures().requests.pop().unwrap();
    let mut other_epoch = to;
    other_epoch.epoch += 1;
    asker.signatures().requests = vec![(other_epoch, token)];
    assert_eq!(hear_response(&mut asker, crypto, &address(3), &answer).err(), Some(Discard::NotAuthentic));
    // Without the request there is nothing that the response could answer.
    asker.signatures().requests.clear();
    assert_eq!(hear_response(&mut asker, crypto, &address(3), &answer).err(), Some(Discard::Unexpected));
    listener.signatures().requests.clear();
    let refused = try_response(&mut listener, crypto, from, &answering(1, b"no"));
    assert_eq!(refused, Err(SealRefused::Unsigned));
}

#[test]
fn a_signature_is_for_one_group_and_epoch() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let mut sender = signing(crypto, &group, 1);
    let genuine = request(&mut sender, crypto, &asking(1, b"?"));
    // The other group has the same secrets, by a mistake, and another identity.
    let other = Keys { group: [8; 16], ..Keys::new(3) };
    let mut listener: Signing<16> = member(crypto, &group.association(3), other);
    assert_eq!(hear_request(&mut listener, crypto, &genuine).err(), Some(Discard::NotAuthentic));
    // The epoch is of the number in the associated data. A member has the keys of both epochs, and seals the content again.
    let next = group.next();
    let mut forger = impostor(crypto, &next, 1, Keys::new(2));
    let mut forged = request(&mut forger, crypto, &asking(1, b"?"));
    let at = forged.len() - SIGNATURE;
    forged[at..].copy_from_slice(&genuine[at..]);
    let mut listener = signing(crypto, &next, 3);
    assert_eq!(hear_request(&mut listener, crypto, &forged).err(), Some(Discard::NotAuthentic));
}

#[test]
fn a_record_of_a_member_without_a_known_key_is_refused() {
    let (crypto, group) = (&mut scene().0, scene().1);
    let (mut sender, mut listener) = (signing(crypto, &group, 1), signing(crypto, &group, 3));
    let key = listener.signatures().directory.remove(&1).unwrap();
    let sent = request(&mut sender, crypto, &asking(1, b"?"));
    assert_eq!(hear_request(&mut listener, crypto, &sent).err(), Some(Discard::UnknownPeer));
    assert_eq!(listener.signatures().missing, [1]);
    // An outsider makes nobody ask for keys.
    let mut spoilt = sent.clone();
    spoilt[30] ^= 1;
    assert_eq!(hear_request(&mut listener, crypto, &spoilt).err(), Some(Discard::NotAuthentic));
    assert_eq!(listener.signatures().missing, [1]);
    listener.signatures().directory.insert(1, key);
    fresh(hear_request(&mut listener, crypto, &sent));
}

/// Exchanges a request and its response in a group with signatures.
fn round<const KEY: usize>(suite: Suite) {
    let (crypto, group) = (&mut scene().0, Group::new(suite));
    let mut sender: Signing<KEY> = member(crypto, &group.association(1), Keys::new(1));
    let mut listener: Signing<KEY> = member(crypto, &group.association(3), Keys::new(3));
    let plain: Member<4, 4, KEY> = member(crypto, &group.association(3), ());
    assert_eq!(listener.overhead().1, plain.overhead().1 + SIGNATURE);
    for token in 0..3 {
        let asked = try_request(&mut sender, crypto, &asking(token, b"?")).unwrap();
        let (from, heard) = hear_request(&mut listener, crypto, &asked).unwrap();
        assert_eq!(heard.fresh(), asking(token, b"?"));
        let answer = response(&mut listener, crypto, from, &answering(token, b"!"));
        let heard = hear_response(&mut sender, crypto, &address(3), &answer).unwrap();
        if token > 0 {
            assert_eq!(heard.fresh(), answering(token, b"!"));
            continue;
        }
        let (content, record) = heard.unverified();
        assert_eq!(content, answering(token, b"!"));
        sender.accept::<RustCrypto>(record, Proof::AnswerTo(tsn_of(&asked))).unwrap();
    }
}

#[test]
fn records_are_signed_under_each_suite() {
    round::<16>(Suite::Ccm);
    round::<16>(Suite::Ccm8);
    round::<16>(Suite::Gcm);
    round::<32>(Suite::MacOnly);
}

/// Arithmetic on the order of the base point of secp256r1.
mod p256_order {
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa, 0xad,
        0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ];

    /// Returns the order minus the number, as big-endian bytes.
    pub fn negated(number: &[u8; 32]) -> [u8; 32] {
        let (mut result, mut borrow) = ([0; 32], 0_i16);
        for at in (0..32).rev() {
            let difference = i16::from(ORDER[at]) - i16::from(number[at]) - borrow;
            borrow = i16::from(difference < 0);
            result[at] = difference.rem_euclid(256) as u8;
        }
        result
    }
}
