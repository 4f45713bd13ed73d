//! Tests with the messages of the RFCs, tests in both directions with the independent crate `dcaf`, and tests of
//! properties of the parsers.

mod oracle;
mod oscore;
mod properties;

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a digit") as u8;
    digits.chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Figure 4 of RFC 9200.
#[test]
fn a_request_for_a_token_with_a_symmetric_key() {
    let message = bytes("A2 05 6E 74656D7053656E736F7234373131 1818 68 6D79636C69656E74");
    let request = TokenRequest {
        audience: Some("tempSensor4711".into()),
        client_id: Some("myclient".into()),
        ..TokenRequest::default()
    };
    assert_eq!(TokenRequest::parse(&message).as_ref(), Ok(&request));
    assert_eq!(*request.encode(), message);
}

/// Figure 5 of RFC 9200.
#[test]
fn a_request_for_a_token_with_an_asymmetric_key() {
    let message = bytes(
        "A2 04 A1 01 A5 01 02 02 41 11 20 01 \
         21 5820 BAC5B11CAD8F99F9C72B05CF4B9E26D244DC189F745228255A219A86D6A09EFF \
         22 5820 20138BF82DC1B6D562BE0FA54AB7804A3A64B6D72CCFED6B6FB6ED28BBFC117E \
         1818 68 6D79636C69656E74",
    );
    let request = TokenRequest::parse(&message).expect("the RFC's");
    let Some(Confirmation::Key(key)) = &request.req_cnf else { panic!("a key") };
    assert_eq!(key.kid.as_deref(), Some(&[0x11][..]));
    assert!(matches!(&key.material, Material::Ec2 { curve: 1, x, y } if x[0] == 0xba && y[31] == 0x7e));
    assert_eq!(*request.encode(), message);
}

/// Figure 6 of RFC 9200.
#[test]
fn a_request_for_a_token_with_a_referenced_key() {
    let message =
        bytes("A4 04 A1 03 48 EA483475724CD775 05 68 76616C7665343234 09 64 72656164 1818 68 6D79636C69656E74");
    let request = TokenRequest {
        req_cnf: Some(Confirmation::Kid(bytes("EA483475724CD775"))),
        audience: Some("valve424".into()),
        scope: Some(Scope::Text("read".into())),
        client_id: Some("myclient".into()),
        ..TokenRequest::default()
    };
    assert_eq!(TokenRequest::parse(&message).as_ref(), Ok(&request));
    assert_eq!(*request.encode(), message);
}

/// Figure 2 of RFC 9200. The bytes of this message are in figure 3.
#[test]
fn creation_hints() {
    let message = bytes(
        "a4 01 78 1c 636f6170733a2f2f61732e6578616d706c652e636f6d2f746f6b656e \
         05 76 636f6170733a2f2f72732e6578616d706c652e636f6d 09 66 7254656d7043 18 27 45 e0a156bb3f",
    );
    let hints = CreationHints {
        auth_server: Some("coaps://as.example.com/token".into()),
        kid: None,
        audience: Some("coaps://rs.example.com".into()),
        scope: Some(Scope::Text("rTempC".into())),
        cnonce: Some(bytes("e0a156bb3f")),
    };
    assert_eq!(CreationHints::parse(&message).as_ref(), Ok(&hints));
    assert_eq!(hints.encode(), message);
}

/// The request and the response of figures 14 and 15 of RFC 9200, which prints them as diagnostic notation.
#[test]
fn introspection_of_a_token() {
    let request = bytes("A2 0B 48 EE08F4757250E375 1821 02");
    let parsed = IntrospectionRequest::parse(&request).expect("a request");
    assert_eq!((parsed.token.len(), &parsed.hint), (8, &Some(Hint::Number(2))));
    assert_eq!(parsed.encode(), request);
    let response = bytes(
        "A4 08 A1 01 A3 01 04 02 44 DFD1AA97 20 51 849B5786457C1491BE3A76DCEA6C427108 09 64 72656164 0A F5 1826 01",
    );
    let parsed = IntrospectionResponse::parse(&response).expect("a response");
    assert!(parsed.active);
    assert_eq!(parsed.claims.ace_profile, Some(Profile::COAP_DTLS));
    assert_eq!(*parsed.encode(), response);
    assert_eq!(*IntrospectionResponse::inactive().encode(), bytes("A1 0A F4"), "no word more");
}

#[test]
fn a_token_may_come_as_text() {
    let parsed = IntrospectionRequest::parse(&bytes("A1 0B 63 613B62")).expect("a request");
    assert_eq!(parsed.token, b"a;b");
}

/// The example of RFC 9237, section 3: `[["/s/temp", 1], ["/a/led", 5], ["/dtls", 2]]`.
#[test]
fn rights_of_rfc_9237() {
    let message = bytes("83 82 67 2F732F74656D70 01 82 66 2F612F6C6564 05 82 65 2F64746C73 02");
    let aif = Aif::parse(&message).expect("the RFC's");
    let rights: Vec<_> = aif.0.iter().map(|right| (right.path.as_str(), right.permissions)).collect();
    assert_eq!(rights, [("/s/temp", 1), ("/a/led", 5), ("/dtls", 2)]);
    assert_eq!(aif.encode(), message);
    assert_eq!(Scope::of(&aif).rights().as_ref(), Some(&aif));
    assert_eq!(Scope::Text("/s/temp".into()).rights(), None);
    let dynamic = Right { path: "/a/make-coffee".into(), permissions: 0x1_0000_0002 };
    assert_eq!(dynamic.methods(), None, "a right on what a request creates is no method of CoAP");
}

/// The roles are those of draft-ietf-ace-key-groupcomm-oscore, section 3: 1 is a requester, 2 a responder, 3 a monitor,
/// and 4 a signature verifier. The permissions have one bit for each role.
#[test]
fn roles_in_a_group_are_rights_on_the_resources_of_the_controller() {
    let of = |path: &str, permissions| Right { path: path.to_owned(), permissions };
    let rights = |entries: Vec<Right>| {
        let rights = Aif(entries).on_resources()?.0;
        Some(rights.into_iter().map(|right| (right.path, right.permissions)).collect::<Vec<_>>())
    };
    let paths = |roles| rights(vec![of("g1", roles)]);
    let post = |paths: &[&str]| Some(paths.iter().map(|path| (format!("/ace-group/g1{path}"), 2)).collect());
    assert_eq!(paths(0b10), post(&["", "/requester"]));
    assert_eq!(paths(0b100), post(&["", "/responder"]));
    assert_eq!(paths(0b110), post(&["", "/requester", "/responder"]));
    assert_eq!(paths(0b1000), post(&[""]));
    assert_eq!(paths(0b1_0000), post(&["/verifier"]), "a verifier may not join");
    assert_eq!(paths(0b1_1000), post(&["", "/verifier"]));
    // No role; the bit that marks a scope entry of an administrator; a role that does not exist; no name.
    for wrong in [of("g1", 0), of("g1", 0b11), of("g1", 0b10_0000), of("", 2)] {
        assert_eq!(rights(vec![of("/temp", 1), wrong]), None);
    }
    let mixed = rights(vec![of("/temp", 1), of("g1", 0b1000)]);
    assert_eq!(mixed, Some(vec![("/temp".to_owned(), 1), ("/ace-group/g1".to_owned(), 2)]));
    let many = |count| rights(vec![of("g1", 0b110); count]).map(|rights| rights.len());
    assert_eq!((many(MAX_RIGHTS / 3), many(MAX_RIGHTS / 3 + 1)), (Some(63), None));
}

#[test]
fn a_message_that_is_none_is_refused_with_the_parameter() {
    for (message, expected) in [
        ("", Malformed::Syntax),
        ("80", Malformed::Syntax),
        ("A1 0A", Malformed::Syntax),
        ("A1 0A 01", Malformed::Syntax),
        ("A1 0A F5 00", Malformed::Syntax),
        ("A0", Malformed::Missing(10)),
        ("A2 0A F5 0A F5", Malformed::Repeated(10)),
        ("A2 0A F5 08 A0", Malformed::Missing(1)),
        ("A2 0A F5 08 A2 03 41 00 01 A2 01 04 20 41 00", Malformed::Value(1)),
        ("A2 0A F5 08 A1 01 A2 01 09 20 41 00", Malformed::Value(1)),
        ("A2 0A F5 08 A1 01 A2 01 04 20 01", Malformed::Missing(-1)),
        ("BB FFFFFFFFFFFFFFFF 0A F5", Malformed::Syntax),
        // The end of an item, and a simple value below 32 in two bytes, in values that are skipped.
        ("A2 0A F5 1901F4 FF", Malformed::Syntax),
        ("A2 0A F5 1901F4 82 01 FF", Malformed::Syntax),
        ("A2 0A F5 1901F4 A1 01 FF", Malformed::Syntax),
        ("A2 0A F5 1901F4 BF 01 FF", Malformed::Syntax),
        ("A2 0A F5 1901F4 C1 FF", Malformed::Syntax),
        ("A2 0A F5 61 78 FF", Malformed::Syntax),
        ("A2 0A F5 1901F4 F8 1F", Malformed::Syntax),
        ("A2 0A F5 1901F4 9F F8 00 FF", Malformed::Syntax),
        // The key_ops of a public key.
        ("A2 0A F5 08 A1 01 A5 01 02 20 01 21 41 01 22 41 01 04 81 02", Malformed::Value(4)),
        ("A2 0A F5 08 A1 01 A5 01 02 20 01 21 41 01 22 41 01 04 61 78", Malformed::Syntax),
    ] {
        assert_eq!(IntrospectionResponse::parse(&bytes(message)), Err(expected), "{message}");
    }
    assert_eq!(IntrospectionResponse::parse(&vec![0; MAX_MESSAGE + 1]), Err(Malformed::TooLong));
    let many: Vec<u8> = [0xb8, 65].into_iter().chain((0..65).flat_map(|label| [0x18, 100 + label, 0])).collect();
    assert_eq!(IntrospectionResponse::parse(&many), Err(Malformed::TooLong));
    assert!(IntrospectionResponse::parse(&bytes("A2 0A F5 08 A1 01 A5 01 02 20 01 21 41 01 22 41 01 04 80")).is_ok());
    assert!(IntrospectionResponse::parse(&bytes("A2 0A F5 08 A1 01 A3 01 04 20 41 01 04 82 01 02")).is_ok());
    assert!(
        IntrospectionResponse::parse(&bytes("A2 0A F5 1901F4 86 F8 20 F6 9F 01 FF BF 01 02 FF C1 00 5F 41 00 FF"))
            .is_ok()
    );
    // Unknown labels, keys of text and maps without a length are well-formed.
    assert!(IntrospectionResponse::parse(&bytes("BF 0A F5 1901F4 82 01 F6 61 78 A1 01 02 FF")).is_ok());
    assert!(Aif::parse(&[&[0x98, 65][..], &[0x82, 0x60, 0x00].repeat(65)].concat()).is_err());
}

/// RFC 9200, section 5.8.1.
#[test]
fn the_profile_in_a_request_is_null() {
    assert!(TokenRequest::parse(&bytes("A1 1826 F6")).expect("a request").ace_profile);
    for value in ["01", "F5", "F7", "FF", "F81F", "81FF"] {
        assert_eq!(TokenRequest::parse(&bytes(&format!("A1 1826 {value}"))), Err(Malformed::Syntax), "{value}");
    }
}

#[test]
fn a_secret_key_is_not_printed() {
    let cnf = Confirmation::Key(CoseKey::symmetric(b"0123456789abcdef"));
    let printed =
        format!("{:?}", IntrospectionResponse { active: true, claims: Claims { cnf: Some(cnf), ..Claims::default() } });
    assert!(printed.contains("Symmetric") && !printed.contains("48, 49"), "{printed}");
}

mod revocation_lists {
    use super::super::trl::*;
    use super::bytes;

    fn parse(query: &[&str]) -> Result<Query, TrlError> {
        Query::parse(query.iter().map(|option| option.as_bytes()))
    }

    #[test]
    fn a_query_is_for_the_list_or_for_updates() {
        for (query, expected) in [
            (&[][..], Ok(Query::default())),
            (&["pmax=10", "x"], Ok(Query::default())),
            (&["diff=0"], Ok(Query { diff: Some(0), cursor: None })),
            (&["cursor=7", "diff=3"], Ok(Query { diff: Some(3), cursor: Some(7) })),
            (&["cursor=7"], Err(TrlErrorId::INVALID_SET)),
            (&["diff=-1", "cursor=7"], Err(TrlErrorId::INVALID_VALUE)),
            (&["diff"], Err(TrlErrorId::INVALID_VALUE)),
            (&["diff="], Err(TrlErrorId::INVALID_VALUE)),
            (&["diff=1", "diff=1"], Err(TrlErrorId::INVALID_VALUE)),
            (&["diff=1", "cursor=+1"], Ok(Query { diff: Some(1), cursor: Some(u64::MAX) })),
            (&["diff=1", "cursor=1", "cursor=1"], Ok(Query { diff: Some(1), cursor: Some(u64::MAX) })),
            (&["cursor=-1"], Err(TrlErrorId::INVALID_SET)),
            (&["diff=99999999999999999999"], Ok(Query { diff: Some(u64::MAX), cursor: None })),
        ] {
            assert_eq!(parse(query).map_err(|error| error.error), expected, "{query:?}");
        }
    }

    #[test]
    fn an_error_is_an_entry_of_problem_details() {
        let error = TrlError { error: TrlErrorId::INVALID_VALUE, cursor: Some(Cursor::At(42)) };
        assert_eq!(error.encode(), bytes("A1 01 A2 00 00 01 182A"));
        // With title and detail, as in the example of section 6.1 of RFC 9770.
        assert_eq!(TrlError::parse(&bytes("A3 20 61 78 21 61 79 01 A2 00 00 01 182A")), Ok(error));
        assert!(TrlError::parse(&bytes("A1 20 61 78")).is_err());
    }

    #[test]
    fn an_answer_has_either_the_list_or_updates() {
        let full = Answer::Full { hashes: vec![vec![1, 2]], cursor: Some(Cursor::Null) };
        assert_eq!(full.encode(), bytes("A2 00 81 42 0102 02 F6"));
        let update = Update { removed: vec![], added: vec![vec![1]] };
        let diff = Answer::Diff { updates: vec![update], cursor: Some(Cursor::At(3)), more: Some(false) };
        assert_eq!(diff.encode(), bytes("A3 01 81 82 80 81 41 01 02 03 03 F4"));
        assert!(Answer::parse(&bytes("A2 00 80 01 80")).is_err());
        assert!(Answer::parse(&bytes("A0")).is_err());
        assert!(Answer::parse(&bytes("A1 01 81 81 80")).is_err());
    }
}
