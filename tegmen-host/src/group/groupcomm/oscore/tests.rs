use super::*;
use crate::contexts::member_keys;

const GROUP: &str = "lights";

fn request(roles: u64, possession: Option<OscorePossession>) -> OscoreJoinRequest {
    let roles = Roles::of_number(roles).unwrap();
    let creds = Some(OscoreFilter::default());
    OscoreJoinRequest { group: GROUP.to_owned(), roles, creds, cnonce: vec![2; 8], possession, control_uri: None }
}

fn pair(crypto: &mut HostCrypto, curve: Curve) -> (Vec<u8>, Secret<32>) {
    let private = member_keys::draw(crypto, curve).unwrap();
    (member_keys::credential("hall", &member_keys::public_of(curve, &private).unwrap()), private)
}

#[test]
fn a_proof_of_possession_is_valid_for_its_key_its_scope_and_its_nonces_alone() {
    let mut crypto = HostCrypto::from_os().unwrap();
    for curve in [Curve::Ed25519, Curve::P256] {
        let (credential, private) = pair(&mut crypto, curve);
        let ours = (credential.clone(), curve, &private);
        let proof = OscorePossession::prove(&mut crypto, &request(6, None), &[1; 32], ours).unwrap();
        let nonces: (&[u8], &[u8]) = (&[1; 32], &[2; 8]);
        assert!(proof.proves(&mut crypto, curve, nonces));
        let mut refused =
            |wrong: &OscorePossession, nonces: (&[u8], &[u8])| assert!(!wrong.proves(&mut crypto, curve, nonces));
        refused(&proof, (&[3; 32], &[2; 8]));
        refused(&proof, (&[1; 32], &[3; 8]));
        refused(&OscorePossession { scope: request(2, None).scope(), ..proof.clone() }, nonces);
        refused(&OscorePossession { signature: vec![0; 63], ..proof.clone() }, nonces);
        let (other, _) = pair(&mut HostCrypto::from_os().unwrap(), curve);
        refused(&OscorePossession { credential: other, ..proof.clone() }, nonces);
        let other_curve = if curve == Curve::P256 { Curve::Ed25519 } else { Curve::P256 };
        assert!(!proof.proves(&mut HostCrypto::from_os().unwrap(), other_curve, nonces));

        // A request that replaces a credential has no scope: client_cred 5, cnonce 6, client_cred_verify 24.
        let update = proof.encode_update(&[2; 8]);
        assert_eq!(OscorePossession::parse_update(&update, proof.scope.clone()), Ok((proof.clone(), vec![2; 8])));
        let cut = |end: usize| OscorePossession::parse_update(&update[..end], Vec::new());
        assert!((0..update.len()).all(|end| cut(end).is_err()), "it was cut");
        let long = proof.encode_update(&[2; LONGEST_NONCE + 1]);
        assert_eq!(OscorePossession::parse_update(&long, Vec::new()), Err(Malformed::Value(CNONCE)));
        assert_eq!(OscorePossession::parse_update(&[0xa0], Vec::new()), Err(Malformed::Missing(CLIENT_CRED)));

        let whole = request(6, Some(proof));
        assert_eq!(OscoreJoinRequest::parse(&whole.encode()), Ok(whole));
    }
    let first = request(6, None);
    assert_eq!(
        OscoreJoinRequest::parse(&first.encode()),
        Ok(first.clone()),
        "a request has cnonce without a credential"
    );
    let without = OscoreJoinRequest { cnonce: Vec::new(), ..first.clone() };
    assert_eq!(OscoreJoinRequest::parse(&without.encode()), Ok(without));
    let reachable = OscoreJoinRequest { control_uri: Some("coaps://192.0.2.1/a".to_owned()), ..first.clone() };
    let encoded = reachable.encode();
    // RFC 9594, section 8: the label 26 and a text string.
    assert!(encoded.ends_with(b"\x18\x1a\x73coaps://192.0.2.1/a"));
    assert_eq!(OscoreJoinRequest::parse(&encoded), Ok(reachable));
    let long = OscoreJoinRequest { cnonce: vec![2; LONGEST_NONCE + 1], ..first };
    assert_eq!(OscoreJoinRequest::parse(&long.encode()), Err(Malformed::Value(CNONCE)));
}

#[test]
fn the_proof_of_a_group_manager_covers_both_nonces() {
    let mut crypto = HostCrypto::from_os().unwrap();
    for curve in [Curve::Ed25519, Curve::P256] {
        let (credential, private) = pair(&mut crypto, curve);
        let ours = (credential.clone(), curve, &private);
        let kdc = KdcCred::prove(&mut crypto, (&[1; 8], [5; 8]), ours).unwrap();
        assert!(kdc.proves(&mut crypto, curve, &[1; 8]));
        assert!(!kdc.proves(&mut crypto, curve, &[6; 8]), "the nonce of another member");
        assert!(!kdc.proves(&mut crypto, curve, &[]));
        assert!(!KdcCred { nonce: vec![6; 8], ..kdc.clone() }.proves(&mut crypto, curve, &[1; 8]));
        // The signed bytes of RFC 9594, section 4.3.1: two byte strings of CBOR.
        let signed = [[0x48, 1, 1, 1, 1, 1, 1, 1, 1], [0x48, 5, 5, 5, 5, 5, 5, 5, 5]].concat();
        assert!(verifies(&mut crypto, (curve, &credential), &signed, &kdc.signature));
    }
}

#[test]
fn the_scope_tells_group_oscore_from_axiom() {
    assert!(OscoreJoinRequest::is(&request(2, None).encode()));
    let axiom = super::super::JoinRequest { group: GROUP.to_owned(), sends: true, ..Default::default() };
    assert!(!OscoreJoinRequest::is(&axiom.encode()));
    assert_eq!(OscoreJoinRequest::parse(&axiom.encode()), Err(Malformed::Value(SCOPE)));
    for roles in [0, 1, 3, 5, 7, 10, 12, 16] {
        assert_eq!(Roles::of_number(roles), None, "{roles}");
    }
    for roles in [2, 4, 6, 8] {
        assert_eq!(Roles::of_number(roles).map(Roles::number), Some(roles));
    }
}

#[test]
fn keys_are_read_as_they_are_written() {
    let mut crypto = HostCrypto::from_os().unwrap();
    let (credential, private) = pair(&mut crypto, Curve::P256);
    let ours = (credential.clone(), Curve::P256, &private);
    let kdc = KdcCred::prove(&mut crypto, (&[1; 8], [5; 8]), ours).unwrap();
    let cred = OscoreCred { id: vec![1, 2], roles: Roles::of_number(4).unwrap(), credential };
    for aead in tegmen::oscore::Aead::ALL {
        let keys = OscoreKeys {
            gid: vec![7; 8],
            master_secret: vec![8; 16].into(),
            master_salt: vec![9; 8],
            aead,
            curve: Curve::P256,
            sender_id: Some(vec![3]),
            number: 4,
            expires: 5,
            creds: Some(vec![cred.clone()]),
            kdc: Some(kdc.clone()),
        };
        let read = OscoreKeys::parse(&keys.encode()).unwrap();
        assert_eq!(
            (&read.gid, &read.master_secret, &read.master_salt),
            (&vec![7; 8], &vec![8; 16].into(), &vec![9; 8])
        );
        assert_eq!((read.aead, read.curve, read.sender_id), (aead, Curve::P256, Some(vec![3])));
        let creds = Some(vec![cred.clone()]);
        assert_eq!((read.number, read.expires, read.creds, read.kdc), (4, 5, creds, Some(kdc.clone())));
    }
}

#[test]
fn a_demand_for_a_proof_has_the_parameters_of_both_modes() {
    for (curve, signs, agrees) in [(Curve::Ed25519, [1, 0x27, 6], [1, 4]), (Curve::P256, [2, 0x26, 1], [2, 1])] {
        let challenge = OscoreChallenge { curve, nonce: [3; 32] };
        let [kty, alg, crv] = signs;
        // sign_info 29, kdcchallenge 30, ecdh_info 31; -27 is ECDH-SS + HKDF-256, and 14 is the format of credentials
        let sign_info = [0x18, 29, 0x81, 0x85, 0x81, 0x61, b'g', alg, 0x81, kty, 0x82, kty, crv, 14];
        let [kty, crv] = agrees;
        let ecdh_info = [0x18, 31, 0x81, 0x85, 0x81, 0x61, b'g', 0x38, 26, 0x81, kty, 0x82, kty, crv, 14];
        let expected = [&[0xa3][..], &sign_info, &[0x18, 30, 0x58, 32], &[3; 32], &ecdh_info].concat();
        let encoded = challenge.encode("g");
        assert_eq!(encoded.as_slice(), expected);
        assert_eq!(OscoreChallenge::parse(&encoded), Ok(challenge));
    }
}

#[test]
fn keys_name_the_curve_of_the_signatures_and_that_of_the_pairwise_mode() {
    for (curve, signs, agrees) in [(Curve::Ed25519, [1, 6], [1, 4]), (Curve::P256, [2, 1], [2, 1])] {
        let keys = OscoreKeys {
            gid: vec![7],
            master_secret: vec![8; 16].into(),
            master_salt: Vec::new(),
            aead: tegmen::oscore::Aead::default(),
            curve,
            sender_id: None,
            number: 4,
            expires: 5,
            creds: None,
            kdc: None,
        };
        let encoded = keys.encode();
        let parameters = |label: u8, [kty, crv]: [u8; 2]| [label, 0x82, 0x81, kty, 0x82, kty, crv];
        for expected in [parameters(11, signs), parameters(13, agrees)] {
            assert!(encoded.windows(7).any(|part| part == expected), "{expected:?}");
        }
    }
}

#[test]
fn the_names_of_groups_are_found_by_their_group_identifiers() {
    let request = [0xa1, 0, 0x82, 0x41, 7, 0x42, 8, 9];
    assert_eq!(parse_gids(&request), Ok(vec![vec![7], vec![8, 9]]));
    for wrong in [&[0xa0][..], &[0xa1, 0, 0x80], &[0xa1, 0, 0x81, 1], &[]] {
        assert!(parse_gids(wrong).is_err(), "{wrong:?}");
    }
    let many = |count: u8| [&[0xa1, 0, 0x98, count][..], &[0x41, 7].repeat(count.into())].concat();
    assert_eq!((parse_gids(&many(16)).map(|gids| gids.len()), parse_gids(&many(17)).is_err()), (Ok(16), true));
    let response = encode_names(&[(vec![7], "g".to_owned())]);
    let expected = [&[0xa3, 0, 0x81, 0x41, 7, 1, 0x81, 0x61, b'g', 2, 0x81, 0x6c][..], b"/ace-group/g"].concat();
    assert_eq!((response, encode_names(&[])), (expected, vec![0x40]));
}

#[test]
fn a_group_has_two_policies() {
    assert_eq!(encode_policies().as_slice(), [0xa1, 16, 0xa2, 1, 0x18, 30, 2, 0]);
}

#[test]
fn a_joining_member_gets_the_credentials_of_its_counterparts() {
    let relevant = |roles| OscoreFilter::default().relevant_to(Roles::of_number(roles).unwrap()).roles;
    assert_eq!([2, 4, 6, 8].map(relevant), [vec![4], vec![2], vec![2, 4], vec![2]]);
    let own = OscoreFilter { roles: vec![8], ..OscoreFilter::default() };
    assert_eq!(own.clone().relevant_to(Roles::of_number(2).unwrap()), own);
}

#[test]
fn a_rekeying_message_has_the_parameters_of_the_draft() {
    let message = |stale, joined| OscoreRekeying {
        gid: vec![7; 2],
        master_secret: vec![8; 16].into(),
        master_salt: vec![9; 2],
        number: 4,
        expires: 5,
        stale,
        joined,
    };
    // gkty 7, key 8 with ms 2, salt 5 and contextId 6, num 9, ace_groupcomm_profile 10, exp 11, exi 12, stale_node_ids 34
    let head = [&[0xa7, 7, 1, 8, 0xa3, 2, 0x50][..], &[8; 16], &[5, 0x42, 9, 9, 6, 0x42, 7, 7]].concat();
    let stale = [0x18, 34, 0x82, 0x41, 1, 0x42, 2, 3];
    let expected = [&head[..], &[9, 4, 10, 1, 11, 5, 12, 0], &stale].concat();
    let encoded = message(Some(vec![vec![1], vec![2, 3]]), Vec::new()).encode();
    assert_eq!(encoded.as_slice(), expected);
    let read = OscoreRekeying::parse(&encoded).unwrap();
    assert_eq!((read.gid, read.master_secret.as_slice(), read.master_salt), (vec![7; 2], &[8; 16][..], vec![9; 2]));
    assert_eq!((read.number, read.expires, read.stale), (4, 5, Some(vec![vec![1], vec![2, 3]])));
    assert_eq!(read.joined, []);

    let (credential, _) = pair(&mut HostCrypto::from_os().unwrap(), Curve::P256);
    let joined = vec![OscoreCred { id: vec![1, 2], roles: Roles::of_number(4).unwrap(), credential }];
    let read = OscoreRekeying::parse(&message(Some(Vec::new()), joined.clone()).encode()).unwrap();
    assert_eq!((read.stale, read.joined), (Some(Vec::new()), joined));
    assert!((0..expected.len()).all(|end| OscoreRekeying::parse(&expected[..end]).is_err()), "it was cut");
    let without_secret = [&[0xa6, 7, 1, 8, 0xa1, 6, 0x41, 7][..], &[9, 4, 10, 1, 11, 5, 12, 0]].concat();
    assert_eq!(OscoreRekeying::parse(&without_secret).err(), Some(Malformed::Missing(super::super::KEY)));
}

#[test]
fn the_data_for_verifiers_have_the_parameters_of_the_draft() {
    let data = VerificationData {
        gid: vec![7; 2],
        signature_encryption_key: Secret::new([8; 16]),
        aead: tegmen::oscore::Aead::AesCcm16_64_128,
        curve: Curve::Ed25519,
        number: 4,
        expires: 5,
    };
    // gkty 7, key 8, num 9, ace_groupcomm_profile 10, exp 11, exi 12, sign_enc_key 33; in key: hkdf 3, alg 4, contextId
    // 6, cred_fmt 8, gp_enc_alg 9, sign_alg 10, sign_params 11, ecdh_alg 12.
    let key = [3, 5, 4, 10, 6, 0x42, 7, 7, 8, 14, 9, 10, 10, 0x27, 11, 0x82, 0x81, 1, 0x82, 1, 6, 12, 0x38, 26];
    let head = [&[0xa7, 7, 1, 8, 0xa8][..], &key, &[9, 4, 10, 1, 11, 5, 12, 0]].concat();
    let expected = [&head[..], &[0x18, 33, 0x50], &[8; 16]].concat();
    let encoded = data.encode();
    assert_eq!(encoded.as_slice(), expected);
    let read = VerificationData::parse(&encoded).unwrap();
    assert_eq!((read.gid, read.signature_encryption_key.expose()), (vec![7; 2], &[8; 16]));
    assert_eq!((read.aead, read.curve, read.number, read.expires), (data.aead, Curve::Ed25519, 4, 5));
    assert!((0..expected.len()).all(|end| VerificationData::parse(&expected[..end]).is_err()), "it was cut");
    let without = [&[0xa6][..], &head[1..]].concat();
    assert_eq!(VerificationData::parse(&without).err(), Some(Malformed::Missing(33)));
    let short = [&head[..], &[0x18, 33, 0x4f], &[8; 15]].concat();
    assert!(VerificationData::parse(&short).is_err());
}

#[test]
fn a_request_for_the_credential_of_a_group_manager_has_a_nonce() {
    assert_eq!(encode_cnonce(&[1, 2]).as_slice(), [0xa1, 6, 0x42, 1, 2]);
    for len in [1, 8, LONGEST_NONCE] {
        assert_eq!(parse_cnonce(&encode_cnonce(&vec![3; len])), Ok(vec![3; len]));
    }
    for len in [0, LONGEST_NONCE + 1] {
        assert_eq!(parse_cnonce(&encode_cnonce(&vec![3; len])), Err(Malformed::Value(CNONCE)));
    }
    assert_eq!(parse_cnonce(&[0xa0]), Err(Malformed::Missing(CNONCE)));
    let (credential, nonce, signature) = (vec![1, 2], vec![3; 8], vec![4; 64]);
    let kdc = KdcCred { credential, nonce, signature };
    assert_eq!(KdcCred::parse(&kdc.encode()), Ok(kdc.clone()));
    assert!(KdcCred::parse(&[0xa1, 17, 0x41, 1]).is_err(), "without a proof");
    assert!(KdcCred::parse(&[0xa0]).is_err());
}

#[test]
fn a_sender_id_has_no_zeros_in_front() {
    for (number, id) in [(0, &[0][..]), (255, &[255]), (256, &[1, 0]), (u32::MAX, &[255; 4])] {
        assert_eq!(sender_id_of(number), id);
    }
}

#[test]
fn a_filter_selects_by_role_and_sender_id() {
    let cred = |id: u8, roles| OscoreCred { id: vec![id], roles: Roles::of_number(roles).unwrap(), credential: vec![] };
    let (switch, hall) = (cred(1, 2), cred(2, 4));
    let responders = OscoreFilter { roles: vec![4], ..OscoreFilter::default() };
    assert!(!responders.selects(&switch) && responders.selects(&hall));
    // A number with several roles selects the members that have all of them.
    let (both, porch) = (OscoreFilter { roles: vec![6], ..OscoreFilter::default() }, cred(3, 6));
    assert!(!both.selects(&switch) && !both.selects(&hall) && both.selects(&porch));
    let any = OscoreFilter { roles: vec![2, 4], ..OscoreFilter::default() };
    assert!(any.selects(&switch) && any.selects(&hall) && any.selects(&porch));
    let one = OscoreFilter { members: vec![vec![1]], ..OscoreFilter::default() };
    assert!(one.selects(&switch) && !one.selects(&hall));
    let others = OscoreFilter { excludes: true, ..one };
    assert!(!others.selects(&switch) && others.selects(&hall));
    assert_eq!(OscoreFilter::parse(&others.encode()), Ok(others));
}
