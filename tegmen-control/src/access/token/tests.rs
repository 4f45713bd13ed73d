//! Tests of decisions on requests for tokens. The crate `coset` opens the tokens.

use super::*;
use crate::access::ace::{Aif, Right, Scope};
use crate::access::introspection::Publisher;
use crate::access::policy::{OwnedParty, Policy, TestedPolicy};
use crate::access::protokey::{Accepted, AcceptedBounds, Protokey};
use coset::{CborSerializable as _, TaggedCborSerializable as _};
use proptest::prelude::*;
use tegmen_base::crypto::RustCrypto;

const POLICY: &str = r#"
[[rule]]
subject = "tag:display"
publisher = "tag:kitchen"
allow = "GET /temp"

[[rule]]
name = "display-9 is lent"
subject = "display-9"
publisher = "*"
deny = "* /*"
"#;
const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);

struct Known([(OwnedParty, Mode); 2], Protokey);

impl Devices for Known {
    fn publisher(&self, name: &str) -> Option<Publisher<'_>> {
        let (party, mode) = self.0.iter().find(|(party, _)| party.party().name == name)?;
        Some(Publisher { party, protokey: &self.1, mode: *mode, address: None })
    }

    fn certified(&self, _: &[u8; 32]) -> Option<&OwnedParty> {
        None
    }
}

fn party(words: &str) -> OwnedParty {
    OwnedParty::from_words(words.split(' ')).expect(words)
}

fn protokey() -> Protokey {
    Protokey::new(&[7; 32]).expect("32 bytes")
}

fn policy() -> TestedPolicy {
    Policy::parse("policy.toml", POLICY).expect("a policy").tested().expect("its tests")
}

fn ask(client: Option<&str>, request: &TokenRequest) -> Outcome {
    let publishers = [(party("oven tag:kitchen"), Mode::Bound), (party("old tag:kitchen"), Mode::Paper)];
    let devices = Known(publishers, protokey());
    let mut accepted = Accepted::new(AcceptedBounds::default());
    let client = client.map(party);
    let policy = policy();
    let mut decision = Introspection { devices: &devices, policy: &policy, accepted: &mut accepted, lifetime: 600 };
    let client = client.as_ref().map(OwnedParty::party);
    decision.token(client, &request.encode(), NOW, &mut RustCrypto::new([3; 32]))
}

fn request(audience: &str, path: &str) -> TokenRequest {
    let aif = Aif(vec![Right { path: path.to_owned(), permissions: 1 }]);
    TokenRequest {
        audience: Some(audience.to_owned()),
        scope: Some(Scope::of(&aif)),
        cnonce: Some(vec![5; 8]),
        ..TokenRequest::default()
    }
}

#[test]
fn a_token_opens_with_another_implementation_and_names_client_rights_and_key() {
    let outcome = ask(Some("display tag:display"), &request("oven", "/temp"));
    assert_eq!((outcome.refused, outcome.reply.code), (None, Code::CREATED), "{}", outcome.message);
    let response = TokenResponse::parse(&outcome.reply.payload).expect("a response");
    assert_eq!(response.ace_profile, Some(Profile::COAP_DTLS));
    let token = coset::CoseEncrypt0::from_tagged_slice(response.access_token.as_deref().expect("a token"))
        .expect("a COSE_Encrypt0");
    let algorithm = coset::Algorithm::Assigned(coset::iana::Algorithm::AES_CCM_16_128_128);
    assert_eq!(token.protected.header.alg, Some(algorithm));
    let key = protokey().token_key::<RustCrypto>();
    let mut crypto = RustCrypto::new([4; 32]);
    let plain = token.decrypt(&[], |sealed, aad| {
        let (body, tag) = sealed.split_at(sealed.len() - 16);
        let mut body = body.to_vec();
        let nonce = &token.unprotected.iv;
        let opened = crypto.open(RustCrypto::AES_128_CCM, key.expose(), nonce, aad, &mut body, tag);
        opened.map(|()| body).map_err(|_| "not authentic")
    });
    let theirs = coset::cwt::ClaimsSet::from_slice(&plain.expect("authentic")).expect("claims");
    assert_eq!((theirs.subject.as_deref(), theirs.audience.as_deref()), (Some("display"), Some("oven")));

    let claims = cwt::open(response.access_token.as_deref().expect("a token"), &key, &mut crypto).expect("a token");
    assert_eq!((claims.scope, claims.cnonce), (request("oven", "/temp").scope, Some(vec![5; 8])));
    assert_eq!(claims.expires, Some(1_800_000_600));
    // Both ends have the key that a protokey gives for the identity in it.
    assert_eq!(claims.cnf, response.cnf);
    let Some(Confirmation::Key(key)) = claims.cnf else { panic!("a key") };
    let identity = key.kid.clone().expect("an identifier");
    let identity = SessionIdentity::parse(&identity).expect("a session identity");
    let psk = protokey().session_key::<RustCrypto>(Mode::Bound, identity, "display");
    assert_eq!(CoseKey { kid: key.kid.clone(), ..CoseKey::symmetric(psk.expose()) }, key);
    assert_eq!(outcome.session.as_deref(), Some(identity.as_str()));
    assert_eq!(outcome.token, Some(token_hash::<RustCrypto>(response.access_token.as_deref().expect("a token"))));
}

#[test]
fn a_token_that_was_changed_or_is_for_another_does_not_open() {
    let outcome = ask(Some("display tag:display"), &request("oven", "/temp"));
    let token = TokenResponse::parse(&outcome.reply.payload).expect("a response").access_token.expect("a token");
    let (key, mut crypto) = (protokey().token_key::<RustCrypto>(), RustCrypto::new([4; 32]));
    for at in 0..token.len() {
        let mut changed = token.clone();
        changed[at] ^= 1;
        assert!(cwt::open(&changed, &key, &mut crypto).is_err(), "byte {at}");
        assert!(cwt::open(&token[..at], &key, &mut crypto).is_err(), "cut at {at}");
    }
    let other = Protokey::new(&[8; 32]).expect("32 bytes").token_key::<RustCrypto>();
    assert_eq!(cwt::open(&token, &other, &mut crypto), Err(cwt::NotOpened::NotAuthentic));
}

#[test]
fn a_token_in_another_encoding_does_not_open() {
    let outcome = ask(Some("display tag:display"), &request("oven", "/temp"));
    let token = TokenResponse::parse(&outcome.reply.payload).expect("a response").access_token.expect("a token");
    let (key, mut crypto) = (protokey().token_key::<RustCrypto>(), RustCrypto::new([4; 32]));
    assert!(cwt::open(&token, &key, &mut crypto).is_ok());
    // Tag 16, an array of 3, the protected header, a map of 1, label 5, and the nonce. Each has a longer form.
    assert_eq!(token[..10], [0xd0, 0x83, 0x44, 0xa1, 0x01, 0x18, 30, 0xa1, 0x05, 0x4d]);
    let longer: [(usize, &[u8]); 6] =
        [(0, &[0xd8, 16]), (1, &[0x98, 3]), (2, &[0x58, 4]), (7, &[0xb8, 1]), (8, &[0x18, 5]), (9, &[0x58, 13])];
    for (at, form) in longer {
        let other = [&token[..at], form, &token[at + 1..]].concat();
        assert!(cwt::open(&other, &key, &mut crypto).is_err(), "the byte {at} in a longer form");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_no_token(bytes in proptest::collection::vec(any::<u8>(), 0..128), is_tagged: bool) {
        let bytes = if is_tagged { [&[0xd0, 0x83, 0x44, 0xa1, 0x01, 0x18, 30, 0xa1, 5][..], &bytes].concat() } else { bytes };
        let key = protokey().token_key::<RustCrypto>();
        prop_assert!(cwt::open(&bytes, &key, &mut RustCrypto::new([4; 32])).is_err());
    }
}

#[test]
fn a_refused_client_learns_nothing_about_devices_and_the_operator_the_rule() {
    let display = Some("display tag:display");
    let of_devices = [
        (display, request("nobody", "/temp"), Reason::UnknownPublisher.code()),
        (display, request("old", "/temp"), Reason::OtherMode.code()),
        (display, request("oven", "/door"), "no-rule"),
        (Some("lamp"), request("oven", "/temp"), "no-rule"),
        (Some("display-9 tag:display"), request("oven", "/temp"), "denied-by-rule"),
    ];
    let expected = Reply::error(Code::BAD_REQUEST, ErrorCode::UNAUTHORIZED_CLIENT);
    for (client, request, code) in of_devices {
        let outcome = ask(client, &request);
        assert_eq!((outcome.reply.code, &outcome.reply.payload), (expected.code, &expected.payload), "{code}");
        assert_eq!((outcome.refused.map(Reason::code), outcome.session), (Some(code), None));
        assert_eq!(outcome.message.contains("policy.toml:7 \"display-9 is lent\""), code == "denied-by-rule");
    }
    let own = Some(Confirmation::Key(CoseKey::symmetric(&[1; 16])));
    let unknown = Some(Confirmation::Kid(vec![1]));
    for (client, request, code, error) in [
        (None, request("oven", "/temp"), Code::UNAUTHORIZED, ErrorCode::INVALID_CLIENT),
        (
            display,
            TokenRequest { audience: None, ..request("oven", "/temp") },
            Code::BAD_REQUEST,
            ErrorCode::INVALID_REQUEST,
        ),
        (
            display,
            TokenRequest { scope: None, ..request("oven", "/temp") },
            Code::BAD_REQUEST,
            ErrorCode::INVALID_SCOPE,
        ),
        (
            display,
            TokenRequest { req_cnf: own, ..request("oven", "/temp") },
            Code::BAD_REQUEST,
            ErrorCode::UNSUPPORTED_POP_KEY,
        ),
        (
            display,
            TokenRequest { req_cnf: unknown, ..request("oven", "/temp") },
            Code::BAD_REQUEST,
            ErrorCode::INVALID_REQUEST,
        ),
        (
            display,
            TokenRequest { grant_type: Some(GrantType(0)), ..request("oven", "/temp") },
            Code::BAD_REQUEST,
            ErrorCode::UNSUPPORTED_GRANT_TYPE,
        ),
    ] {
        let (outcome, expected) = (ask(client, &request), Reply::error(code, error));
        assert_eq!((outcome.reply.code, &outcome.reply.payload), (expected.code, &expected.payload));
    }
}
