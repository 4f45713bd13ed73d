//! Tests sessions of two ends: both forms of credentials, changed messages, wrong credentials, and messages of random
//! bytes.

#[path = "common/scripted.rs"]
mod scripted;

use proptest::prelude::*;
use scripted::Scripted;
use tegmen_base::crypto::{Crypto, MAX_SHARE, NamedGroup};
use tegmen_base::secret::Secret;
use tegmen_edhoc::transfer::Body;
use tegmen_edhoc::{
    Agreed, BadCredential, ConnectionId, Credential, CredentialId, Failure, Identity, Initiator, MAX_CREDENTIAL,
    PeerError, Responder, Transfer, combined,
};

fn identity(crypto: &mut Scripted, subject: Option<&str>, kid: &[u8], transfer: Transfer) -> Identity {
    let (mut private, mut share) = ([0; 32], [0; MAX_SHARE]);
    crypto.key_pair(NamedGroup::SECP256R1, &mut private, &mut share).unwrap();
    let mut bytes = [0; MAX_CREDENTIAL];
    let credential = Credential::parse(Credential::write(subject, kid, &share, &mut bytes).unwrap()).unwrap();
    assert_eq!(credential.kid(), Some(kid));
    Identity::new(Secret::new(private), credential, transfer)
}

fn id(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).unwrap()
}

/// Two ends that know each other's credentials.
struct World {
    crypto: Scripted,
    initiator: Identity,
    responder: Identity,
}

impl World {
    fn new(at_initiator: Transfer, at_responder: Transfer) -> Self {
        let mut crypto = Scripted::seeded(3);
        let initiator = identity(&mut crypto, Some("meter-7"), &[0x2b], at_initiator);
        let responder = identity(&mut crypto, Some("gateway.example"), b"gateway", at_responder);
        Self { crypto, initiator, responder }
    }

    /// Runs a session. Calls `change` with the number and the bytes of each message before the message is delivered.
    fn run(&mut self, mut change: impl FnMut(usize, &mut Vec<u8>)) -> Result<(Agreed, Agreed), Failure> {
        let Self { crypto, initiator, responder } = self;
        let (i, message) = Initiator::begin(crypto, id(&[0x0e]))?;
        let mut bytes = message.as_bytes().to_vec();
        change(1, &mut bytes);
        let (r, message) = Responder::begin(crypto, &bytes, responder, |_| Some(id(b"abc")))?;
        bytes = message.as_bytes().to_vec();
        change(2, &mut bytes);
        let known = *responder.credential();
        let (at_i, message, last) = i.finish(crypto, &bytes, initiator, |_| Some(known))?;
        bytes = message.as_bytes().to_vec();
        change(3, &mut bytes);
        let known = *initiator.credential();
        let (at_r, message) = r.finish(crypto, &bytes, |_| Some(known))?;
        bytes = message.as_bytes().to_vec();
        change(4, &mut bytes);
        last.verify(crypto, &bytes)?;
        Ok((at_i, at_r))
    }
}

#[test]
fn both_forms_of_credentials_lead_to_the_same_keys() {
    for at_initiator in [Transfer::ByReference, Transfer::ByValue] {
        for at_responder in [Transfer::ByReference, Transfer::ByValue] {
            let mut lengths = Vec::new();
            let mut world = World::new(at_initiator, at_responder);
            let (i, r) = world.run(|_, bytes| lengths.push(bytes.len())).unwrap();
            assert_eq!(i.master_secret.expose(), r.master_secret.expose());
            assert_eq!(i.master_salt.expose(), r.master_salt.expose());
            assert_eq!((i.sender_id, i.recipient_id), (r.recipient_id, r.sender_id));
            assert_eq!(i.peer, *world.responder.credential());
            assert_eq!(r.peer, *world.initiator.credential());
            assert_eq!(lengths[2] > 100, at_initiator == Transfer::ByValue, "message_3: {lengths:?}");
        }
    }
}

#[test]
fn two_sessions_have_other_keys() {
    let mut world = World::new(Transfer::ByReference, Transfer::ByReference);
    let [(first, _), (second, _)] = [(); 2].map(|()| world.run(|_, _| ()).unwrap());
    assert_ne!(first.master_secret.expose(), second.master_secret.expose());
}

#[test]
fn no_bit_of_a_message_can_be_changed() {
    for transfer in [Transfer::ByReference, Transfer::ByValue] {
        let mut world = World::new(transfer, transfer);
        let mut lengths = [0; 5];
        world.run(|message, bytes| lengths[message] = bytes.len()).unwrap();
        for (message, len) in lengths.iter().enumerate() {
            // Each bit of the short messages, and one of each byte and a half of the long ones.
            let step = if transfer == Transfer::ByValue { 13 } else { 1 };
            for bit in (0..8 * len).step_by(step) {
                let agreed = world.run(|number, bytes| {
                    if number == message {
                        bytes[bit / 8] ^= 1 << (bit % 8);
                    }
                });
                assert!(agreed.is_err(), "message_{message}, bit {bit}");
            }
        }
    }
}

#[test]
fn a_longest_credential_can_be_sent_by_value() {
    let mut crypto = Scripted::new();
    let subject = "n".repeat(MAX_CREDENTIAL - 85);
    let mut world = World {
        initiator: identity(&mut crypto, Some(&subject), &[5], Transfer::ByValue),
        responder: identity(&mut crypto, Some(&subject), &[6], Transfer::ByValue),
        crypto,
    };
    assert_eq!(world.initiator.credential().as_bytes().len(), MAX_CREDENTIAL);
    world.run(|_, _| ()).unwrap();
}

#[test]
fn an_end_that_is_not_known_is_refused() {
    let mut world = World::new(Transfer::ByReference, Transfer::ByReference);
    let World { crypto, initiator, responder } = &mut world;
    let (i, message_1) = Initiator::begin(crypto, id(&[1])).unwrap();
    let (r, message_2) = Responder::begin(crypto, message_1.as_bytes(), responder, |_| Some(id(&[2]))).unwrap();
    let known = *responder.credential();
    let (_, message_3, _) = i.finish(crypto, message_2.as_bytes(), initiator, |_| Some(known)).unwrap();
    let refused = r.finish(crypto, message_3.as_bytes(), |named| {
        assert_eq!(*named, CredentialId::Kid(&[0x2b]));
        None
    });
    assert_eq!(refused.map(drop).unwrap_err(), Failure::UnknownCredential);
    let mut out = [0; 40];
    let error = Failure::UnknownCredential.write(&mut out).unwrap();
    assert_eq!(PeerError::parse(error), Some(PeerError::UnknownCredential));
}

/// Returns a credential that differs only in the x-coordinate, which belongs to no point of the curve.
fn off_the_curve(credential: &Credential) -> Credential {
    let mut bytes = credential.as_bytes().to_vec();
    let at = bytes.windows(3).position(|label| label == [0x21, 0x58, 0x20]).unwrap() + 3;
    bytes[at..at + 32].fill(0xff);
    Credential::parse(&bytes).unwrap()
}

/// A kid can name several credentials (RFC 9528, section 3.5.3).
#[test]
fn a_responder_tries_each_credential_with_the_kid() {
    let World { mut crypto, initiator, responder } = World::new(Transfer::ByReference, Transfer::ByReference);
    let own = *initiator.credential();
    let of_another = *identity(&mut crypto, Some("meter-8"), &[0x2b], Transfer::ByReference).credential();
    let no_point = off_the_curve(&own);
    let mut finish = |candidates: Vec<Credential>| {
        let (i, message_1) = Initiator::begin(&mut crypto, id(&[1])).unwrap();
        let begun = Responder::begin(&mut crypto, message_1.as_bytes(), &responder, |_| Some(id(&[2])));
        let (r, message_2) = begun.unwrap();
        let known = *responder.credential();
        let (_, message_3, last) = i.finish(&mut crypto, message_2.as_bytes(), &initiator, |_| Some(known)).unwrap();
        let (agreed, message_4) = r.finish(&mut crypto, message_3.as_bytes(), |_| candidates)?;
        last.verify(&mut crypto, message_4.as_bytes()).unwrap();
        Ok(agreed.peer)
    };
    assert_eq!(finish(vec![no_point, of_another, own]), Ok(own));
    assert_eq!(finish(vec![own, of_another]), Ok(own));
    assert_eq!(finish(vec![of_another]), Err(Failure::NotAuthentic));
    assert_eq!(finish(vec![no_point]), Err(Failure::PublicKey));
    assert_eq!(finish(vec![responder.credential().to_owned()]), Err(Failure::UnknownCredential), "it has another kid");
}

/// A kid can name several credentials (RFC 9528, section 3.5.3).
#[test]
fn an_initiator_tries_each_credential_with_the_kid() {
    let World { mut crypto, initiator, responder } = World::new(Transfer::ByReference, Transfer::ByReference);
    let own = *responder.credential();
    let of_another = *identity(&mut crypto, Some("gateway-2"), b"gateway", Transfer::ByReference).credential();
    let no_point = off_the_curve(&own);
    let mut finish = |candidates: Vec<Credential>| {
        let (i, message_1) = Initiator::begin(&mut crypto, id(&[1])).unwrap();
        let begun = Responder::begin(&mut crypto, message_1.as_bytes(), &responder, |_| Some(id(&[2])));
        let (r, message_2) = begun.unwrap();
        let (agreed, message_3, last) = i.finish(&mut crypto, message_2.as_bytes(), &initiator, |_| candidates)?;
        let known = *initiator.credential();
        let (_, message_4) = r.finish(&mut crypto, message_3.as_bytes(), |_| Some(known)).unwrap();
        last.verify(&mut crypto, message_4.as_bytes()).unwrap();
        Ok(agreed.peer)
    };
    assert_eq!(finish(vec![no_point, of_another, own]), Ok(own));
    assert_eq!(finish(vec![own, of_another]), Ok(own));
    assert_eq!(finish(vec![of_another]), Err(Failure::NotAuthentic));
    assert_eq!(finish(vec![no_point]), Err(Failure::PublicKey));
    assert_eq!(finish(vec![*initiator.credential()]), Err(Failure::UnknownCredential), "it has another kid");
}

/// An end that has a credential, but not its private key, does not authenticate.
#[test]
fn another_private_key_is_refused_at_both_ends() {
    let mut world = World::new(Transfer::ByReference, Transfer::ByReference);
    let stolen = *world.initiator.credential();
    world.initiator = Identity::new(Secret::new([9; 32]), stolen, Transfer::ByReference);
    assert_eq!(world.run(|_, _| ()).map(drop).unwrap_err(), Failure::NotAuthentic);
    let mut world = World::new(Transfer::ByReference, Transfer::ByReference);
    let stolen = *world.responder.credential();
    world.responder = Identity::new(Secret::new([9; 32]), stolen, Transfer::ByReference);
    assert_eq!(world.run(|_, _| ()).map(drop).unwrap_err(), Failure::NotAuthentic);
}

#[test]
fn both_ends_refuse_equal_identifiers() {
    let mut world = World::new(Transfer::ByReference, Transfer::ByReference);
    let (_, message_1) = Initiator::begin(&mut world.crypto, id(&[1])).unwrap();
    for chosen in [None, Some(id(&[1]))] {
        let begun = Responder::begin(&mut world.crypto, message_1.as_bytes(), &world.responder, |_| chosen);
        assert_eq!(begun.map(drop).unwrap_err(), Failure::ConnectionId);
    }
}

/// `lakers` returns the items that follow the first item as the value of the first item.
#[test]
fn critical_data_is_refused_at_any_place() {
    let mut world = World::new(Transfer::ByReference, Transfer::ByReference);
    let cases: [(&[u8], bool); 7] = [
        (&[0x0f], true),
        (&[0x00, 0x42, 1, 2], true),
        (&[0x0f, 0x41, 1, 0x0e], true),
        (&[0x2e], false),
        (&[0x0f, 0x2e], false),
        (&[0x00, 0x42, 1, 2, 0x2e, 0x41, 1], false),
        (&[0x0f, 0x42, 1], false),
    ];
    for (data, is_taken) in cases {
        let (_, message_1) = Initiator::begin(&mut world.crypto, id(&[1])).unwrap();
        let bytes = [message_1.as_bytes(), data].concat();
        let begun = Responder::begin(&mut world.crypto, &bytes, &world.responder, |_| Some(id(&[2])));
        assert_eq!(begun.is_ok(), is_taken, "{data:?}");
    }
}

/// An empty array of cipher suites made `lakers` 0.8.0 read the element before the first element of the array.
#[test]
fn an_empty_array_of_cipher_suites_is_refused() {
    let mut world = World::new(Transfer::ByReference, Transfer::ByReference);
    let (_, message_1) = Initiator::begin(&mut world.crypto, id(&[1])).unwrap();
    let bytes = [&[3, 0x98, 0], &message_1.as_bytes()[2..]].concat();
    let begun = Responder::begin(&mut world.crypto, &bytes, &world.responder, |_| Some(id(&[2])));
    assert!(begun.is_err());
}

#[test]
fn a_credential_has_a_key_on_p_256() {
    let valid = World::new(Transfer::ByReference, Transfer::ByReference).initiator.credential().as_bytes().to_vec();
    let at = |part: &[u8]| valid.windows(part.len()).position(|window| window == part).unwrap();
    let changed = |position: usize, byte: u8| {
        let mut bytes = valid.clone();
        bytes[position] = byte;
        Credential::parse(&bytes)
    };
    let kty = at(&[1, 2, 2, 0x41, 0x2b]) + 1;
    assert_eq!(changed(kty, 1).unwrap_err(), BadCredential::Key);
    assert_eq!(changed(at(&[0x20, 1, 0x21]) + 1, 2).unwrap_err(), BadCredential::Key);
    assert_eq!(Credential::parse(&valid[..valid.len() - 1]).unwrap_err(), BadCredential::Malformed);
    assert_eq!(Credential::parse(&[&valid[..], &[0]].concat()).unwrap_err(), BadCredential::Malformed);
    assert_eq!(Credential::parse(&[0; MAX_CREDENTIAL + 1]).unwrap_err(), BadCredential::TooLong);
}

/// A key of the type EC2 has crv, x and y (RFC 9053, section 7.1.1).
#[test]
fn a_credential_without_a_part_of_its_key_is_refused() {
    let x = [&[0x21, 0x58, 32][..], &[7; 32]].concat();
    let y = [&[0x22, 0x58, 32][..], &[8; 32]].concat();
    let members = [&[0x01, 0x02][..], &[0x20, 0x01], &x, &y];
    let with = |members: &[&[u8]]| {
        let head = [0xa1, 0x08, 0xa1, 0x01, 0xa0 | members.len() as u8];
        Credential::parse(&[&head[..], &members.concat()].concat()).map(drop)
    };
    assert_eq!(with(&members), Ok(()));
    for missing in 0..members.len() {
        let mut members = members.to_vec();
        members.remove(missing);
        assert_eq!(with(&members), Err(BadCredential::Malformed), "{missing}");
    }
}

/// A map in which a label occurs twice is not valid (RFC 9052, section 9).
#[test]
fn a_credential_in_which_a_label_occurs_twice_is_refused() {
    let x = [&[0x21, 0x58, 32][..], &[7; 32]].concat();
    let y = [&[0x22, 0x41][..], &[7]].concat();
    let members = [&[0x01, 0x02][..], &[0x02, 0x41, 0x2b], &[0x20, 0x01], &x, &y];
    let with = |members: &[&[u8]]| {
        let head = [0xa1, 0x08, 0xa1, 0x01, 0xa0 | members.len() as u8];
        Credential::parse(&[&head[..], &members.concat()].concat()).map(|credential| credential.has_x(&[7; 32]))
    };
    assert_eq!(with(&members), Ok(true));
    for twice in members {
        assert_eq!(with(&[&members[..], &[twice]].concat()), Err(BadCredential::Malformed), "{twice:x?}");
    }
    let subject = [&[0xa3, 0x02, 0x61, b'a', 0x02, 0x61, b'b', 0x08, 0xa1, 0x01, 0xa5][..], &members.concat()].concat();
    assert_eq!(Credential::parse(&subject), Err(BadCredential::Malformed));
}

#[test]
fn the_body_of_a_request_can_be_read_again() {
    for body in
        [Body::First(&[3, 2]), Body::Third(id(&[0x17]), &[7]), Body::Third(id(b"abc"), &[]), Body::Third(id(&[]), &[1])]
    {
        let mut out = [0; 16];
        assert_eq!(Body::parse(body.write(&mut out).unwrap()), Some(body));
    }
    // One byte that must be a number, and numbers that are longer than they must be.
    for body in [&[0x41, 0x07, 1][..], &[0x18, 7, 1], &[0x19, 0, 7, 1], &[0x38, 7, 1]] {
        assert_eq!(Body::parse(body), None);
    }
    assert_eq!(combined::split(&[0x42, 1, 2, 3, 4]), Some((&[0x42, 1, 2][..], &[3, 4][..])));
    for payload in [&[0x42, 1, 2][..], &[0x42, 1], &[0x02, 1], &[]] {
        assert_eq!(combined::split(payload), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), cut in 0_usize..40) {
        let mut world = World::new(Transfer::ByReference, Transfer::ByReference);
        let World { crypto, initiator, responder } = &mut world;
        let _ = Credential::parse(&bytes);
        let _ = PeerError::parse(&bytes);
        let _ = Body::parse(&bytes);
        let _ = combined::split(&bytes);
        let (i, message_1) = Initiator::begin(crypto, id(&[1])).unwrap();
        // A message that is valid at its beginning.
        let begun = [message_1.as_bytes().get(..cut).unwrap_or(message_1.as_bytes()), &bytes[..]].concat();
        let _ = Responder::begin(crypto, &begun, responder, |_| Some(id(&[2])));
        let (r, message_2) = Responder::begin(crypto, message_1.as_bytes(), responder, |_| Some(id(&[2]))).unwrap();
        let cut = [&message_2.as_bytes()[..cut], &bytes[..]].concat();
        let (peer, own) = (*responder.credential(), *initiator.credential());
        let _ = i.finish(crypto, &cut, initiator, |_| Some(peer));
        prop_assert!(r.finish(crypto, &bytes, |_| Some(own)).is_err());
    }
}

/// An attacker returns the messages of an end to the same end. The end refuses them, although it has the private key of
/// the credential in them.
#[test]
fn an_end_does_not_agree_with_itself() {
    let mut world = World::new(Transfer::ByReference, Transfer::ByReference);
    let World { crypto, initiator, .. } = &mut world;
    let (i, message_1) = Initiator::begin(crypto, id(&[1])).unwrap();
    let (_, message_2) = Responder::begin(crypto, message_1.as_bytes(), initiator, |_| Some(id(&[2]))).unwrap();
    let own = *initiator.credential();
    let refused = i.finish(crypto, message_2.as_bytes(), initiator, |_| Some(own));
    assert_eq!(refused.map(drop).unwrap_err(), Failure::UnknownCredential);
}
