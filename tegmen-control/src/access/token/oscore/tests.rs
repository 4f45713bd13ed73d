//! Tests of tokens for resource servers with the OSCORE profile.

use super::*;
use crate::access::ace::{Aif, ErrorCode, ErrorResponse, Right, Scope};
use crate::access::introspection::Publisher;
use crate::access::policy::{OwnedParty, Policy, TestedPolicy};
use crate::access::protokey::{Accepted, AcceptedBounds};
use std::collections::BTreeSet;
use tegmen_base::hex::from_hex;
use tegmen_coap::Code;
use tegmen_host::provider::HostCrypto;

const POLICY: &str = r#"
[[rule]]
subject = "tag:display"
publisher = "tag:kitchen"
allow = "GET /temp"
"#;
const NOW: Instant = Instant::from_micros(1_800_000_000_000_000);
const KEY: [u8; 32] = [7; 32];

/// The resource servers `oven`, `hob` and `lock`, and the revoked tokens. `lock` uses EDHOC.
struct Known([OwnedParty; 3], BTreeSet<Vec<u8>>);

impl Devices for Known {
    fn publisher(&self, _: &str) -> Option<Publisher<'_>> {
        None
    }

    fn certified(&self, _: &[u8; 32]) -> Option<&OwnedParty> {
        None
    }

    fn resource_server(&self, name: &str) -> Option<ResourceServer<'_>> {
        let party = self.0.iter().find(|party| party.party().name == name)?;
        let profile = if name == "lock" { Profile::COAP_EDHOC_OSCORE } else { Profile::COAP_OSCORE };
        Some(ResourceServer { party, key: Secret::new(KEY), profile })
    }

    fn is_revoked(&self, hash: &[u8]) -> bool {
        self.1.contains(hash)
    }
}

fn party(words: &str) -> OwnedParty {
    OwnedParty::from_words(words.split(' ')).expect(words)
}

struct Scene {
    devices: Known,
    policy: TestedPolicy,
    accepted: Accepted,
    crypto: HostCrypto,
}

impl Scene {
    fn new() -> Self {
        Self {
            devices: Known(["oven tag:kitchen", "hob tag:kitchen", "lock tag:kitchen"].map(party), BTreeSet::new()),
            policy: Policy::parse("policy.toml", POLICY).expect("a policy").tested().expect("its tests"),
            accepted: Accepted::new(AcceptedBounds::default()),
            crypto: HostCrypto::from_os().expect("randomness"),
        }
    }

    fn ask(&mut self, client: &str, request: &TokenRequest) -> Outcome {
        let Self { devices, policy, accepted, crypto } = self;
        let client = party(client);
        let mut decision = Introspection { devices: &*devices, policy: &*policy, accepted, lifetime: 600 };
        decision.token(Some(client.party()), &request.encode(), NOW, crypto)
    }

    fn open(&mut self, outcome: &Outcome) -> (TokenResponse, Claims) {
        assert_eq!((outcome.refused, outcome.reply.code), (None, Code::CREATED), "{}", outcome.message);
        let response = TokenResponse::parse(&outcome.reply.payload).expect("a response");
        let token = response.access_token.as_deref().expect("a token");
        let claims = cwt::open(token, &Secret::new(KEY), &mut self.crypto).expect("a token");
        (response, claims)
    }
}

fn request(audience: &str, path: &str, req_cnf: Option<Confirmation>) -> TokenRequest {
    let aif = Aif(vec![Right { path: path.to_owned(), permissions: 1 }]);
    TokenRequest {
        req_cnf,
        audience: Some(audience.to_owned()),
        scope: Some(Scope::of(&aif)),
        ..TokenRequest::default()
    }
}

fn kid(claims: &Claims) -> Confirmation {
    match &claims.cnf {
        Some(Confirmation::Osc(material)) => Confirmation::Kid(material.id.clone()),
        other => panic!("no input material: {other:?}"),
    }
}

#[test]
fn client_and_resource_server_get_the_same_input_material() {
    let mut scene = Scene::new();
    let outcome = scene.ask("display tag:display", &request("oven", "/temp", None));
    let (response, claims) = scene.open(&outcome);
    assert_eq!((response.ace_profile, response.expires_in), (Some(Profile::COAP_OSCORE), Some(600)));
    assert_eq!(response.cnf, claims.cnf);
    assert_eq!((claims.subject.as_deref(), claims.audience.as_deref()), (Some("display"), Some("oven")));
    assert_eq!((claims.issued_at, claims.expires), (Some(1_800_000_000), Some(1_800_000_600)));
    assert_eq!(claims.scope, request("oven", "/temp", None).scope);
    let Some(Confirmation::Osc(material)) = &claims.cnf else { panic!("no input material") };
    assert_eq!(outcome.session.as_deref().map(str::as_bytes), Some(&*material.id));
    assert!(!outcome.message.contains(&to_hex(&material.master_secret)), "{}", outcome.message);
    // Two requests have different material (RFC 9203, section 3.2).
    let again = scene.ask("display tag:display", &request("oven", "/temp", None));
    let (_, again) = scene.open(&again);
    let Some(Confirmation::Osc(other)) = &again.cnf else { panic!("no input material") };
    assert!(other.id != material.id && other.master_secret != material.master_secret);
}

#[test]
fn an_update_has_the_identifier_in_the_token_and_no_key_in_the_response() {
    let mut scene = Scene::new();
    let first = scene.ask("display tag:display", &request("oven", "/temp", None));
    let (_, first) = scene.open(&first);
    let outcome = scene.ask("display tag:display", &request("oven", "/temp", Some(kid(&first))));
    let (response, claims) = scene.open(&outcome);
    assert_eq!((response.cnf, response.ace_profile), (None, Some(Profile::COAP_OSCORE)));
    assert_eq!(claims.cnf, Some(kid(&first)));
    assert!(outcome.session.is_some() && outcome.token.is_some(), "it can be revoked");
    // A further update names the same material.
    let again = scene.ask("display tag:display", &request("oven", "/temp", Some(kid(&first))));
    assert_eq!(scene.open(&again).1.cnf, Some(kid(&first)));
}

/// The base point of P-256 (SEC 2, section 2.4.2): x, y.
const POINT: [&str; 2] = [
    "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
    "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5",
];

fn key_of(curve: i64, x: &[u8], y: &[u8]) -> Confirmation {
    let material = Material::Ec2 { curve, x: x.to_vec(), y: y.to_vec() };
    Confirmation::Key(CoseKey { kid: Some(vec![3]), algorithm: None, material })
}

fn public_key(curve: i64, len: usize) -> Confirmation {
    let [x, y] = POINT.map(|coordinate| from_hex(coordinate).expect("hexadecimal"));
    key_of(curve, &x[..len], &y[..len])
}

#[test]
fn a_token_for_edhoc_has_the_public_key_of_the_client() {
    let mut scene = Scene::new();
    let outcome = scene.ask("display tag:display", &request("lock", "/temp", Some(public_key(1, 32))));
    let (response, claims) = scene.open(&outcome);
    assert_eq!((response.ace_profile, response.cnf), (Some(Profile::COAP_EDHOC_OSCORE), None));
    assert_eq!(claims.cnf, Some(public_key(1, 32)));
}

/// RFC 9053, section 7.1.1; RFC 9528, section 9.2.
#[test]
fn a_key_that_is_no_point_of_the_curve_is_refused() {
    let mut scene = Scene::new();
    let [x, y] = POINT.map(|coordinate| from_hex(coordinate).expect("hexadecimal"));
    let other_y = [&y[..31], &[y[31] ^ 1]].concat();
    let keys =
        [(&x, &other_y), (&y, &x), (&vec![1; 32], &vec![2; 32]), (&vec![0; 32], &vec![0; 32]), (&vec![0xff; 32], &y)];
    for (x, y) in keys {
        let outcome = scene.ask("display tag:display", &request("lock", "/temp", Some(key_of(1, x, y))));
        assert_eq!((outcome.refused, outcome.session), (Some(Reason::OwnKey), None), "{x:x?} {y:x?}");
    }
}

/// A key is used only for the algorithm that it names (RFC 9052, section 7.1). EDHOC uses it for ECDH.
#[test]
fn a_key_for_another_algorithm_is_refused() {
    let mut scene = Scene::new();
    for (algorithm, expected) in [(-27, None), (-25, None), (-7, Some(Reason::OwnKey)), (-26, Some(Reason::OwnKey))] {
        let Confirmation::Key(key) = public_key(1, 32) else { panic!("a key") };
        let key = Confirmation::Key(CoseKey { algorithm: Some(algorithm), ..key });
        let outcome = scene.ask("display tag:display", &request("lock", "/temp", Some(key)));
        assert_eq!(outcome.refused, expected, "{algorithm}");
    }
}

#[test]
fn a_key_that_the_client_does_not_have_is_refused() {
    let mut scene = Scene::new();
    let outcome = scene.ask("display tag:display", &request("oven", "/temp", None));
    let (_, claims) = scene.open(&outcome);
    let known = kid(&claims);
    let invalid = Reason::UnknownKey.code();
    for (client, asked, why) in [
        ("display-2 tag:display", request("oven", "/temp", Some(known.clone())), invalid),
        ("display tag:display", request("hob", "/temp", Some(known.clone())), invalid),
        ("display tag:display", request("none", "/temp", Some(known.clone())), invalid),
        ("display tag:display", request("oven", "/temp", Some(Confirmation::Kid(vec![1]))), invalid),
        ("display tag:display", request("oven", "/other", Some(known.clone())), "no-rule"),
        ("display tag:display", request("oven", "/temp", Some(Confirmation::Key(CoseKey::symmetric(&KEY)))), "own-key"),
        ("display tag:display", request("oven", "/temp", claims.cnf.clone()), "own-key"),
        ("display tag:display", request("none", "/temp", None), "unknown-publisher"),
        ("lamp tag:light", request("oven", "/temp", None), "no-rule"),
        ("lamp tag:light", request("lock", "/temp", None), "no-rule"),
        ("display tag:display", request("lock", "/temp", None), "own-key"),
        ("display tag:display", request("lock", "/temp", Some(public_key(1, 31))), "own-key"),
        ("display tag:display", request("lock", "/temp", Some(public_key(2, 32))), "own-key"),
        ("display tag:display", request("oven", "/temp", Some(public_key(1, 32))), "own-key"),
    ] {
        let outcome = scene.ask(client, &asked);
        let reason = outcome.refused.expect(why);
        assert_eq!(reason.code(), why, "{client} {asked:?}");
        let error = ErrorResponse::parse(&outcome.reply.payload).expect("an error").error;
        let expected = match reason {
            Reason::UnknownKey => (Code::BAD_REQUEST, ErrorCode::INVALID_REQUEST),
            Reason::OwnKey => (Code::BAD_REQUEST, ErrorCode::UNSUPPORTED_POP_KEY),
            _ => (Code::BAD_REQUEST, ErrorCode::UNAUTHORIZED_CLIENT),
        };
        assert_eq!((outcome.reply.code, error), expected);
    }
    scene.devices.1.insert(outcome.token.expect("a token"));
    let outcome = scene.ask("display tag:display", &request("oven", "/temp", Some(known)));
    assert_eq!(outcome.refused, Some(Reason::UnknownKey), "it is revoked");
}
