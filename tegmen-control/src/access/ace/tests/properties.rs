use super::super::trl::{Answer, Cursor, TrlError, Update};
use super::super::*;
use proptest::prelude::*;
use std::net::{IpAddr, SocketAddr};

fn parse_all(bytes: &[u8]) {
    let _ = TokenRequest::parse(bytes);
    let _ = TokenResponse::parse(bytes);
    let _ = IntrospectionRequest::parse(bytes);
    let _ = IntrospectionResponse::parse(bytes);
    let _ = ErrorResponse::parse(bytes);
    let _ = CreationHints::parse(bytes);
    let _ = Claims::parse(bytes);
    let _ = Aif::parse(bytes);
    let _ = Answer::parse(bytes);
    let _ = TrlError::parse(bytes);
    let _ = ConnectionRequest::parse(bytes);
    let _ = TokenUpload::parse(bytes);
    let _ = PostedToken::parse(bytes);
    let _ = Offer::parse_response(bytes);
}

fn claims() -> impl Strategy<Value = Claims> {
    let text = || proptest::option::of("\\PC{0,20}");
    let bytes = || proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20));
    let scope = prop_oneof![
        "\\PC{0,20}".prop_map(Scope::Text),
        proptest::collection::vec(("\\PC{0,9}", any::<u64>()), 0..5).prop_map(|rights| {
            Scope::of(&Aif(rights.into_iter().map(|(path, permissions)| Right { path, permissions }).collect()))
        }),
    ];
    let key = (bytes(), proptest::option::of(any::<i64>()), proptest::collection::vec(any::<u8>(), 0..40));
    let key = key.prop_map(|(kid, algorithm, secret)| {
        Confirmation::Key(CoseKey { kid, algorithm, ..CoseKey::symmetric(&secret) })
    });
    let times = [(); 5].map(|()| proptest::option::of(any::<u64>()));
    let profile = proptest::option::of(any::<i64>());
    ((text(), text(), text()), times, bytes(), bytes(), proptest::option::of(key), proptest::option::of(scope), profile)
        .prop_map(
            |(
                (issuer, subject, audience),
                [expires, not_before, issued_at, expires_in, _],
                id,
                cnonce,
                cnf,
                scope,
                profile,
            )| Claims {
                issuer,
                subject,
                audience,
                expires,
                not_before,
                issued_at,
                id,
                cnf,
                scope,
                ace_profile: profile.map(Profile),
                cnonce,
                expires_in,
            },
        )
}

proptest! {
    #[test]
    fn any_bytes_give_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        parse_all(&bytes);
    }

    #[test]
    fn a_spoiled_message_gives_a_message_or_an_error(
        claims in claims(),
        active in any::<bool>(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        end in any::<prop::sample::Index>(),
    ) {
        let mut bytes = IntrospectionResponse { active, claims }.encode().to_vec();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        parse_all(&bytes);
        parse_all(&bytes[..end.index(bytes.len())]);
    }

    #[test]
    fn what_is_written_is_read_as_the_same(claims in claims(), active in any::<bool>()) {
        prop_assert_eq!(Claims::parse(&claims.encode()), Ok(claims.clone()));
        let response = IntrospectionResponse { active, claims };
        prop_assert_eq!(IntrospectionResponse::parse(&response.encode()), Ok(response));
    }

    #[test]
    fn an_upload_that_is_written_is_read_as_the_same(
        token in proptest::collection::vec(any::<u8>(), 0..40),
        to_rs in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        ip in prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)],
        port in any::<u16>(),
        returned in proptest::option::of(prop_oneof![
            Just(Returned::Nothing), Just(Returned::Hash), Just(Returned::Token)
        ]),
        uploaded in proptest::option::of(any::<bool>()),
    ) {
        let request = TokenRequest { upload: returned, to_rs, ..TokenRequest::default() };
        prop_assert_eq!(TokenRequest::parse(&request.encode()), Ok(request));
        let (access_token, token_hash) = if uploaded == Some(true) { (None, Some(token.clone())) } else { (Some(token.clone()), None) };
        let response = TokenResponse { access_token, token_hash, uploaded, ..TokenResponse::default() };
        prop_assert_eq!(TokenResponse::parse(&response.encode()), Ok(response));
        let connect = ConnectionRequest { address: SocketAddr::new(ip, port) };
        let is_of_one = port != 0 && !ip.is_unspecified() && !ip.is_multicast();
        prop_assert_eq!(ConnectionRequest::parse(&connect.encode()).is_ok_and(|read| read == connect), is_of_one);
        let upload = TokenUpload { access_token: token, connect: is_of_one.then_some(connect) };
        prop_assert_eq!(TokenUpload::parse(&upload.encode()), Ok(upload));
    }

    #[test]
    fn a_list_that_is_written_is_read_as_the_same(
        hashes in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..34), 0..20),
        cursor in proptest::option::of(proptest::option::of(any::<u64>())),
        more in proptest::option::of(any::<bool>()),
    ) {
        let cursor = cursor.map(|at| at.map_or(Cursor::Null, Cursor::At));
        let full = Answer::Full { hashes: hashes.clone(), cursor };
        prop_assert_eq!(Answer::parse(&full.encode()), Ok(full));
        let updates = hashes.chunks(3).map(|all| Update { removed: all[1..].to_vec(), added: all[..1].to_vec() }).collect();
        let diff = Answer::Diff { updates, cursor, more };
        prop_assert_eq!(Answer::parse(&diff.encode()), Ok(diff));
    }
}

#[test]
fn arrays_within_arrays_do_not_exhaust_the_stack() {
    for open in [&[0x81_u8][..], &[0x9f], &[0xa1, 0x01], &[0xc1], &[0xbf, 0x01]] {
        parse_all(&open.repeat(2_000));
        parse_all(&[&[0xa1, 0x18, 0x63][..], &open.repeat(1_000), &[0x00]].concat());
    }
}
