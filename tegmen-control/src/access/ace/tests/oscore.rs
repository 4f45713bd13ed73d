//! Tests of the messages and the derivation of RFC 9203.

use super::super::oscore::{InputMaterial, NoContext, Nonces};
use super::super::*;
use super::bytes;
use proptest::prelude::*;
use tegmen::oscore::Aead;

const SECRET: &str = "f9af838368e353e78888e1426bd94e6f";

fn material() -> InputMaterial {
    InputMaterial::new(vec![1], &bytes(SECRET))
}

/// The claims set of figure 6 of RFC 9203.
#[test]
fn a_claims_set_has_input_material() {
    let message = bytes(
        "A5 03 76 74656D7053656E736F72496E4C6976696E67526F6F6D 06 1A 5112D728 04 1A 51145DC8 \
         09 78 18 74656D70657261747572655F67206669726D776172655F70 \
         08 A1 04 A2 00 41 01 02 50 F9AF838368E353E78888E1426BD94E6F",
    );
    let claims = Claims {
        audience: Some("tempSensorInLivingRoom".into()),
        issued_at: Some(1_360_189_224),
        expires: Some(1_360_289_224),
        scope: Some(Scope::Text("temperature_g firmware_p".into())),
        cnf: Some(Confirmation::Osc(material())),
        ..Claims::default()
    };
    assert_eq!(Claims::parse(&message).as_ref(), Ok(&claims));
    assert_eq!(Claims::parse(&claims.encode()), Ok(claims));
}

/// The response in figure 4 of RFC 9203, which prints it in diagnostic notation. The token in the figure is shortened.
#[test]
fn a_response_of_the_access_server_has_input_material() {
    let message = bytes(
        "A4 01 49 8343A1010AA2044C53 02 19 0E10 08 A1 04 A2 00 41 01 02 50 F9AF838368E353E78888E1426BD94E6F 1826 02",
    );
    let response = TokenResponse {
        access_token: Some(bytes("8343A1010AA2044C53")),
        ace_profile: Some(Profile::COAP_OSCORE),
        expires_in: Some(3600),
        cnf: Some(Confirmation::Osc(material())),
        ..TokenResponse::default()
    };
    assert_eq!(TokenResponse::parse(&message).as_ref(), Ok(&response));
    assert_eq!(*response.encode(), message);
}

/// The request of figure 11 and the response of figure 12 of RFC 9203.
#[test]
fn the_exchange_at_authz_info() {
    let request = bytes("A3 01 49 8343A1010AA2044C53 1828 48 018A278F7FAAB55A 182B 42 1645");
    let offer = Offer { nonce: bytes("018A278F7FAAB55A"), recipient_id: bytes("1645") };
    let posted = PostedToken { access_token: bytes("8343A1010AA2044C53"), offer: Some(offer) };
    assert_eq!(PostedToken::parse(&request).as_ref(), Ok(&posted));
    assert_eq!(posted.encode(), request);
    let response = bytes("A2 182A 48 25A8991CD700AC01 182C 42 0000");
    let offer = Offer { nonce: bytes("25A8991CD700AC01"), recipient_id: bytes("0000") };
    assert_eq!(Offer::parse_response(&response).as_ref(), Ok(&offer));
    assert_eq!(offer.encode_response(), response);
}

/// The example of RFC 9203, section 4.3.
#[test]
fn the_master_salt_has_the_salt_and_both_nonces() {
    let material = InputMaterial { salt: bytes(SECRET), ..material() };
    let (client, server) = (bytes("018a278f7faab55a"), bytes("25a8991cd700ac01"));
    let nonces = Nonces { client: &client, server: &server };
    let expected = bytes("50 f9af838368e353e78888e1426bd94e6f 48 018a278f7faab55a 48 25a8991cd700ac01");
    assert_eq!(material.master_salt(&nonces), expected);
    let without = InputMaterial { salt: Vec::new(), ..material };
    assert_eq!(without.master_salt(&nonces), [&[0x40], &expected[17..]].concat());
}

#[test]
fn material_with_an_unknown_parameter_or_algorithm_is_refused() {
    let claims = |osc: &str| Claims::parse(&bytes(&format!("A1 08 A1 04 {osc}"))).map(|claims| claims.cnf);
    let secret = format!("02 50 {SECRET}");
    for (rest, expected) in [
        ("", Ok(Aead::AesCcm16_64_128)),
        ("01 01 03 05", Ok(Aead::AesCcm16_64_128)),
        ("03 29 04 18 1E", Ok(Aead::AesCcm16_128_128)),
        ("03 6C 484D4143203235362F323536 04 71 4145532D43434D2D31362D36342D313238", Ok(Aead::AesCcm16_64_128)),
        ("01 02", Err(Malformed::Value(1))),
        ("03 06", Err(Malformed::Value(3))),
        ("04 03", Err(Malformed::Value(4))),
        ("07 00", Err(Malformed::Value(7))),
        ("61 78 00", Err(Malformed::Syntax)),
        ("06 51 0000000000000000000000000000000000", Err(Malformed::Value(6))),
    ] {
        // One entry for each parameter of the table.
        let more = match rest.len() {
            0 => 0,
            _ if rest.starts_with("01 01 03") || rest.contains(" 04 ") => 2,
            _ => 1,
        };
        let cnf = claims(&format!("A{} 00 41 01 {secret} {rest}", 2 + more));
        let aead = cnf.map(|cnf| match cnf {
            Some(Confirmation::Osc(material)) => material.aead,
            other => panic!("{other:?}"),
        });
        assert_eq!(aead, expected, "{rest}");
    }
    assert_eq!(claims(&format!("A1 {secret}")), Err(Malformed::Missing(0)));
    assert_eq!(claims("A1 00 41 01"), Err(Malformed::Missing(2)));
    assert_eq!(claims("A2 00 41 01 02 4F 000000000000000000000000000000"), Err(Malformed::Value(2)));
    assert_eq!(claims(&format!("BF 00 41 01 {secret} FF")), Err(Malformed::Syntax));
    assert_eq!(PostedToken::parse(&bytes("A2 01 41 00 1828 41 00")), Err(Malformed::Missing(43)));
    assert_eq!(PostedToken::parse(&bytes("A2 01 41 00 182B 41 00")), Err(Malformed::Missing(40)));
    assert!(PostedToken::parse(&bytes("A1 01 41 00")).is_ok_and(|posted| posted.offer.is_none()));
    assert_eq!(Offer::parse_response(&bytes("A1 182A 41 00")), Err(Malformed::Missing(44)));
    assert_eq!(Offer::parse_response(&bytes("A2 182A 41 00 182C 48 0000000000000000")), Err(Malformed::Value(44)));
}

#[test]
fn the_secret_is_not_printed() {
    let printed = format!("{:?}", Confirmation::Osc(material()));
    assert!(printed.contains("[1]") && !printed.contains("249"), "{printed}");
}

#[test]
fn two_ends_with_one_id_or_a_long_one_have_no_context() {
    let nonces = Nonces { client: &[1; 8], server: &[2; 8] };
    let of = |sender: &[u8], recipient: &[u8]| material().context(&nonces, sender, recipient).map(|_| ());
    assert_eq!(of(&[1], &[1]), Err(NoContext::SameIds));
    assert_eq!(of(&[1; 8], &[1]), Err(NoContext::IdTooLong { max: 7 }));
    assert_eq!(of(&[1], &[1; 7]), Ok(()));
}

fn any_material() -> impl Strategy<Value = InputMaterial> {
    let string = |len| proptest::collection::vec(any::<u8>(), len);
    let aead = prop::sample::select(Aead::ALL.to_vec());
    (string(0..64), string(16..64), aead, string(0..64), proptest::option::of(string(0..16))).prop_map(
        |(id, secret, aead, salt, context_id)| InputMaterial {
            aead,
            salt,
            context_id,
            ..InputMaterial::new(id, &secret)
        },
    )
}

proptest! {
    #[test]
    fn material_that_is_written_is_read_as_the_same(material in any_material()) {
        let claims = Claims { cnf: Some(Confirmation::Osc(material)), ..Claims::default() };
        prop_assert_eq!(Claims::parse(&claims.encode()), Ok(claims));
    }

    #[test]
    fn a_posted_token_that_is_written_is_read_as_the_same(
        access_token in proptest::collection::vec(any::<u8>(), 0..99),
        nonce in proptest::collection::vec(any::<u8>(), 0..64),
        recipient_id in proptest::collection::vec(any::<u8>(), 0..8),
        is_update in any::<bool>(),
    ) {
        let offer = Offer { nonce, recipient_id };
        prop_assert_eq!(Offer::parse_response(&offer.encode_response()), Ok(offer.clone()));
        let posted = PostedToken { access_token, offer: (!is_update).then_some(offer) };
        prop_assert_eq!(PostedToken::parse(&posted.encode()), Ok(posted));
    }

    /// Nonces of other lengths cannot give the same salt, because the length of each nonce precedes it.
    #[test]
    fn other_nonces_give_another_salt(
        material in any_material(),
        one in proptest::collection::vec(any::<u8>(), 16),
        at in 0..16_usize,
        other_at in 0..16_usize,
    ) {
        let salt = |at: usize| material.master_salt(&Nonces { client: &one[..at], server: &one[at..] });
        prop_assert_eq!(salt(at) == salt(other_at), at == other_at);
    }

    /// The sender key of each endpoint is the recipient key of the other endpoint.
    #[test]
    fn a_context_is_the_mirror_of_that_of_the_other_end(material in any_material()) {
        let nonces = Nonces { client: &[1; 8], server: &[2; 8] };
        let client = material.context(&nonces, &[1], &[2]).expect("short IDs");
        let server = material.context(&nonces, &[2], &[1]).expect("short IDs");
        prop_assert_eq!(&client.master_salt, &server.master_salt);
        prop_assert_eq!(&client.master_secret, &server.master_secret);
        prop_assert_eq!((&client.sender_id, &client.recipient_id), (&server.recipient_id, &server.sender_id));
        prop_assert_eq!((client.aead, client.id_context), (server.aead, server.id_context));
    }
}

/// A token that another implementation of CBOR and AES-CCM has sealed.
#[test]
fn a_token_under_a_key_of_32_bytes() {
    let file: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../vectors/ace_tokens.json")).expect("JSON");
    let value = |name: &str| bytes(file[name].as_str().expect(name));
    let key = tegmen_base::secret::Secret::<{ cwt::LONG_KEY_LEN }>::new(value("key").try_into().expect("32 bytes"));
    let mut crypto = tegmen_base::crypto::RustCrypto::new([1; 32]);
    let claims = cwt::open(&value("token"), &key, &mut crypto).expect("a token");
    assert_eq!(Claims::parse(&value("claims")).as_ref(), Ok(&claims));
    assert_eq!(claims.cnf, Some(Confirmation::Osc(material())));
    let again = cwt::seal(&claims, &key, &mut crypto);
    assert_eq!(cwt::open(&again, &key, &mut crypto), Ok(claims));
    for at in 0..again.len() {
        let mut changed = again.clone();
        changed[at] ^= 1;
        assert!(cwt::open(&changed, &key, &mut crypto).is_err(), "byte {at}");
        assert!(cwt::open(&again[..at], &key, &mut crypto).is_err(), "cut at {at}");
    }
    let short = tegmen_base::secret::Secret::<16>::new([1; 16]);
    assert!(cwt::open(&again, &short, &mut crypto).is_err(), "another algorithm");
}
