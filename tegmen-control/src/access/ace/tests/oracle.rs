//! Tests of messages in both directions with the crate `dcaf`, an independent implementation.

use super::super::*;
use dcaf::common::cbor_values::ProofOfPossessionKey;
use dcaf::common::scope::{AifEncodedScope, BinaryEncodedScope, TextEncodedScope};
use dcaf::constants::cbor_abbreviations as theirs;
use dcaf::{
    AccessTokenRequest, AccessTokenResponse, AceProfile, AuthServerRequestCreationHint, ErrorCode as TheirCode,
    ErrorResponse as TheirError, GrantType as TheirGrant, Scope as TheirScope, ToCborMap, TokenType as TheirType,
};
use proptest::prelude::*;

/// Parses bytes that Tegmen wrote, and returns them as a message of the crate `dcaf`.
fn read<T: ToCborMap>(bytes: &[u8]) -> T {
    T::deserialize_from(bytes).unwrap_or_else(|error| panic!("dcaf refuses {bytes:02x?}: {error:?}"))
}

/// Returns the bytes that the crate `dcaf` writes for a message.
fn written<T: ToCborMap>(message: T) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.serialize_into(&mut bytes).expect("a message");
    bytes
}

fn their_scope(scope: &Scope) -> TheirScope {
    match scope {
        Scope::Text(text) => TheirScope::TextEncoded(TextEncodedScope::try_from(text.as_str()).expect("words")),
        Scope::Bytes(bytes) => {
            TheirScope::BinaryEncoded(BinaryEncodedScope::try_from(bytes.as_slice()).expect("bytes"))
        }
        Scope::Aif(aif) => {
            let rights = aif.0.iter().map(|right| (right.path.clone(), right.permissions));
            TheirScope::AifEncoded(AifEncodedScope::try_from(rights.collect::<Vec<_>>()).expect("rights"))
        }
    }
}

fn their_key(confirmation: &Confirmation) -> ProofOfPossessionKey {
    match confirmation {
        Confirmation::Kid(kid) => ProofOfPossessionKey::KeyId(kid.clone()),
        Confirmation::Osc(_) => panic!("dcaf has no input material of OSCORE"),
        Confirmation::Key(key) => {
            let builder = match &key.material {
                Material::Symmetric(secret) => coset::CoseKeyBuilder::new_symmetric_key(secret.to_vec()),
                Material::Ec2 { x, y, .. } => {
                    coset::CoseKeyBuilder::new_ec2_pub_key(coset::iana::EllipticCurve::P_256, x.clone(), y.clone())
                }
            };
            let builder = match &key.kid {
                Some(kid) => builder.key_id(kid.clone()),
                None => builder,
            };
            ProofOfPossessionKey::from(builder.build())
        }
    }
}

fn confirmation() -> impl Strategy<Value = Confirmation> {
    let bytes = |len| proptest::collection::vec(any::<u8>(), len);
    let kid = proptest::option::of(bytes(1..9));
    prop_oneof![
        bytes(1..9).prop_map(Confirmation::Kid),
        (kid.clone(), bytes(16..33))
            .prop_map(|(kid, key)| { Confirmation::Key(CoseKey { kid, ..CoseKey::symmetric(&key) }) }),
        (kid, bytes(32..33), bytes(32..33)).prop_map(|(kid, x, y)| {
            Confirmation::Key(CoseKey { kid, algorithm: None, material: Material::Ec2 { curve: 1, x, y } })
        }),
    ]
}

fn scope() -> impl Strategy<Value = Scope> {
    let right = ("/[a-z]{1,8}", 0_u64..128).prop_map(|(path, permissions)| Right { path, permissions });
    prop_oneof![
        "[a-z]{1,8}( [a-z]{1,8}){0,2}".prop_map(Scope::Text),
        proptest::collection::vec(any::<u8>(), 1..20).prop_map(Scope::Bytes),
        // One right alone is a scope of another kind for dcaf.
        proptest::collection::vec(right, 2..4).prop_map(|rights| Scope::Aif(Aif(rights))),
    ]
}

proptest! {
    #[test]
    fn requests_for_tokens(
        req_cnf in proptest::option::of(confirmation()),
        audience in proptest::option::of("[a-z0-9:/.]{1,20}"),
        scope in proptest::option::of(scope()),
        client_id in proptest::option::of("[a-z]{1,20}"),
        grant in proptest::option::of(0_i64..4),
        ace_profile in any::<bool>(),
        cnonce in proptest::option::of(proptest::collection::vec(any::<u8>(), 1..9)),
    ) {
        let grant_type = grant.map(GrantType);
        let ours = TokenRequest { req_cnf, audience, scope, client_id, grant_type, ace_profile, cnonce, ..TokenRequest::default() };
        let theirs = AccessTokenRequest {
            client_id: ours.client_id.clone(),
            grant_type: ours.grant_type.map(|grant| [
                TheirGrant::Password, TheirGrant::AuthorizationCode, TheirGrant::ClientCredentials, TheirGrant::RefreshToken,
            ][grant.0 as usize]),
            audience: ours.audience.clone(),
            redirect_uri: None,
            client_nonce: ours.cnonce.clone(),
            scope: ours.scope.as_ref().map(their_scope),
            ace_profile: ours.ace_profile.then_some(()),
            req_cnf: ours.req_cnf.as_ref().map(their_key),
            issuer: None,
        };
        prop_assert_eq!(read::<AccessTokenRequest>(&ours.encode()), theirs.clone());
        prop_assert_eq!(TokenRequest::parse(&written(theirs)), Ok(ours));
    }

    #[test]
    fn responses_with_tokens(
        access_token in proptest::collection::vec(any::<u8>(), 1..40),
        expires_in in proptest::option::of(any::<u32>()),
        cnf in proptest::option::of(confirmation()),
        scope in proptest::option::of(scope()),
        rs_cnf in proptest::option::of(confirmation()),
        bearer in proptest::option::of(any::<bool>()),
        oscore in proptest::option::of(any::<bool>()),
    ) {
        let ours = TokenResponse {
            access_token: Some(access_token),
            expires_in: expires_in.map(u64::from),
            cnf,
            scope,
            token_type: bearer.map(|bearer| if bearer { TokenType::BEARER } else { TokenType::POP }),
            ace_profile: oscore.map(|oscore| if oscore { Profile::COAP_OSCORE } else { Profile::COAP_DTLS }),
            rs_cnf,
            ..TokenResponse::default()
        };
        let theirs = AccessTokenResponse {
            access_token: ours.access_token.clone().unwrap_or_default(),
            expires_in,
            scope: ours.scope.as_ref().map(their_scope),
            token_type: bearer.map(|bearer| if bearer { TheirType::Bearer } else { TheirType::ProofOfPossession }),
            refresh_token: None,
            ace_profile: oscore.map(|oscore| if oscore { AceProfile::CoapOscore } else { AceProfile::CoapDtls }),
            cnf: ours.cnf.as_ref().map(their_key),
            rs_cnf: ours.rs_cnf.as_ref().map(their_key),
            issued_at: None,
        };
        prop_assert_eq!(read::<AccessTokenResponse>(&ours.encode()), theirs.clone());
        prop_assert_eq!(TokenResponse::parse(&written(theirs)), Ok(ours));
    }

    #[test]
    fn hints_and_errors(
        auth_server in proptest::option::of("[a-z:/.]{1,30}"),
        kid in proptest::option::of(proptest::collection::vec(any::<u8>(), 1..9)),
        scope in proptest::option::of(scope()),
        cnonce in proptest::option::of(proptest::collection::vec(any::<u8>(), 1..9)),
        text in proptest::option::of("[a-z ]{1,30}"),
        code in 1_usize..9,
    ) {
        let ours = CreationHints { auth_server, kid, audience: text.clone(), scope, cnonce };
        let theirs = AuthServerRequestCreationHint {
            auth_server: ours.auth_server.clone(),
            kid: ours.kid.clone(),
            audience: ours.audience.clone(),
            scope: ours.scope.as_ref().map(their_scope),
            client_nonce: ours.cnonce.clone(),
        };
        prop_assert_eq!(read::<AuthServerRequestCreationHint>(&ours.encode()), theirs.clone());
        // dcaf writes the kid as an array of numbers, which neither RFC 9200 nor its own reader has.
        let (theirs, ours) = (AuthServerRequestCreationHint { kid: None, ..theirs }, CreationHints { kid: None, ..ours });
        prop_assert_eq!(CreationHints::parse(&written(theirs)), Ok(ours));

        let ours = ErrorResponse { error: ErrorCode(code as i64), description: text.clone(), uri: text.clone() };
        let codes = [
            TheirCode::InvalidRequest, TheirCode::InvalidClient, TheirCode::InvalidGrant, TheirCode::UnauthorizedClient,
            TheirCode::UnsupportedGrantType, TheirCode::InvalidScope, TheirCode::UnsupportedPopKey,
            TheirCode::IncompatibleAceProfiles,
        ];
        let theirs = TheirError { error: codes[code - 1], description: text.clone(), uri: text };
        prop_assert_eq!(read::<TheirError>(&ours.encode()), theirs.clone());
        prop_assert_eq!(ErrorResponse::parse(&written(theirs)), Ok(ours));
    }
}

/// The crate `dcaf` has no messages for introspection. So this test compares the labels of claims with the labels of
/// the same parameters in a token response of `dcaf`.
#[test]
fn the_labels_are_those_of_dcaf() {
    let claims = Claims {
        cnf: Some(Confirmation::Kid(vec![1])),
        scope: Some(Scope::Text("r".into())),
        ace_profile: Some(Profile::COAP_DTLS),
        cnonce: Some(vec![2]),
        ..Claims::default()
    };
    let labels = [theirs::token::CNF, theirs::token::SCOPE, theirs::token::ACE_PROFILE, theirs::token::CNONCE];
    let expected = [
        &[0xa4, labels[0], 0xa1, 3, 0x41, 1][..],
        &[labels[1], 0x61, b'r'],
        &[0x18, labels[2], 1],
        &[0x18, labels[3], 0x41, 2],
    ];
    assert_eq!(*claims.encode(), expected.concat());
}
