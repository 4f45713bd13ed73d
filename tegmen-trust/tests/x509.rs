//! Tests each reason for a refusal, the cache, the reloading of files, and the keys of this end, with certificates that
//! the tests generate.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, NameConstraints,
    PublicKeyData, RevokedCertParams, SerialNumber, SignatureAlgorithm, SigningKey as _,
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tegmen_trust::provider::public::verify_digest;
use tegmen_trust::x509::signer::{KeyError, SignatureScheme, Signer as _, SoftwareKey};
use tegmen_trust::x509::{
    AllowedKey, CacheCounters, Files, PeerVerifier, Purpose, RawKeys, Refusal, Settings, Trust, Verified, Verifier,
    verify_raw,
};

/// The time of the tests in seconds since 1970: a day in 2026.
const NOW: u64 = 1_790_000_000;
const DAY: u64 = 86_400;

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A CA, or an end entity: a certificate and its key.
struct Party {
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

fn params(name: &str, change: impl FnOnce(&mut CertificateParams)) -> CertificateParams {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = epoch + Duration::from_secs(NOW - DAY);
    params.not_after = epoch + Duration::from_secs(NOW + DAY);
    change(&mut params);
    params
}

fn ca(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
}

impl Party {
    fn root(name: &str) -> Self {
        Self::own(name, ca)
    }

    fn own(name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let (params, key) = (params(name, change), KeyPair::generate().unwrap());
        Self { der: params.self_signed(&key).unwrap().der().to_vec(), issuer: Issuer::new(params, key) }
    }

    fn issues(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let (params, key) = (params(name, change), KeyPair::generate().unwrap());
        Self { der: params.signed_by(&key, &self.issuer).unwrap().der().to_vec(), issuer: Issuer::new(params, key) }
    }

    fn crl(&self, serials: &[u64], from: u64, until: u64) -> Vec<u8> {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: epoch + Duration::from_secs(NOW - 60),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: epoch + Duration::from_secs(from),
            next_update: epoch + Duration::from_secs(until),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().der().to_vec()
    }
}

/// Returns a certificate_list (RFC 5246, section 7.4.2) without its outer length.
fn list(certificates: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for der in certificates {
        out.extend(&(der.len() as u32).to_be_bytes()[1..]);
        out.extend(*der);
    }
    out
}

fn trust(anchors: &[&Party]) -> Trust {
    let mut trust = Trust::default();
    for anchor in anchors {
        assert_eq!(trust.add_anchors(&anchor.der), Ok(1));
    }
    trust
}

fn verifier(anchors: &[&Party]) -> Verifier {
    Verifier::new(trust(anchors), Settings::default())
}

/// Verifies the certificates of a server with the name `name`. Checks that a second verification has the same result.
fn verify<'c>(verifier: &Verifier, chain: &'c [u8], name: Option<&str>) -> Result<Verified<'c>, Refusal> {
    let first = verifier.verify(chain, Purpose::Server, name, at(NOW));
    assert_eq!(verifier.verify(chain, Purpose::Server, name, at(NOW)), first);
    if let Err(refusal) = &first {
        assert_eq!(refusal.alert().0, 46);
        assert!(refusal.to_string().contains(": "), "a cause and a next step: {refusal}");
    }
    first
}

fn dns(params: &mut CertificateParams) {
    params.subject_alt_names =
        CertificateParams::new(["gateway.example".to_owned(), "192.0.2.7".into(), "2001:db8::7".into()])
            .unwrap()
            .subject_alt_names;
}

#[test]
fn a_path_to_an_anchor_is_believed_and_says_who_it_is() {
    let root = Party::root("Root");
    let sub = root.issues("Sub", ca);
    let end = sub.issues("device, \"1\"", |params| {
        dns(params);
        params.distinguished_name.push(DnType::OrganizationName, "Works");
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let verifier = verifier(&[&Party::root("Other"), &root]);
    let chain = list(&[&end.der, &sub.der]);
    for name in [None, Some("gateway.example"), Some("GATEWAY.example"), Some("192.0.2.7"), Some("2001:db8::7")] {
        let verified = verify(&verifier, &chain, name).unwrap();
        assert_eq!(verified.name, "O=Works,CN=device\\, \\\"1\\\"");
        assert_eq!(verified.names, ["gateway.example", "192.0.2.7", "2001:db8::7"]);
        assert_eq!(verified.not_after, Some(at(NOW + DAY)));
        assert_eq!(verified.until, Some(at(NOW + DAY)));
        let digest: [u8; 32] =
            aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &end.der).as_ref().try_into().unwrap();
        assert_eq!(verified.digest, digest);
        assert_eq!(verified.spki, end.issuer.key().subject_public_key_info());
    }
    // The root itself and certificates in another order do no harm.
    assert!(verify(&verifier, &list(&[&end.der, &root.der, &sub.der]), None).is_ok());
}

#[test]
fn a_certificate_that_is_itself_the_anchor_is_believed() {
    let pinned = Party::own("pinned", dns);
    assert!(verify(&verifier(&[&pinned]), &list(&[&pinned.der]), Some("gateway.example")).is_ok());
    let same_name = Party::own("pinned", dns);
    let refusal = verify(&verifier(&[&pinned]), &list(&[&same_name.der]), Some("gateway.example")).unwrap_err();
    assert_eq!(refusal, Refusal::BadSignature);
}

/// An RSAPublicKey of 1024 bits in DER.
struct Weak(Vec<u8>);

impl Weak {
    fn new() -> Self {
        let mut der = vec![0x30, 0x81, 0x89, 2, 0x81, 0x81, 0];
        der.extend([0xc1; 128]);
        der.extend([2, 3, 1, 0, 1]);
        Self(der)
    }
}

impl PublicKeyData for Weak {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_RSA_SHA256
    }
}

#[test]
fn each_reason_has_a_refusal_of_its_own() {
    let root = Party::root("Root");
    let verifier = verifier(&[&root]);
    let refuse = |party: &Party| verify(&verifier, &list(&[&party.der]), Some("gateway.example")).unwrap_err();
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let issue = |change: &dyn Fn(&mut CertificateParams)| {
        root.issues("device1", |params| {
            dns(params);
            change(params);
        })
    };
    assert!(verify(&verifier, &list(&[&issue(&|_| {}).der]), Some("gateway.example")).is_ok());

    let expired = issue(&|params| params.not_after = epoch + Duration::from_secs(NOW - 1));
    assert_eq!(refuse(&expired), Refusal::Expired { not_after: at(NOW - 1) });
    let early = issue(&|params| params.not_before = epoch + Duration::from_secs(NOW + 1));
    assert_eq!(refuse(&early), Refusal::NotYetValid { not_before: at(NOW + 1) });
    assert!(refuse(&early).to_string().contains("valid only from 2026-09-21 14:13:21 UTC"));

    let other = root.issues("device1", |params| {
        params.subject_alt_names = CertificateParams::new(["other.example".to_owned()]).unwrap().subject_alt_names;
    });
    let presented = "other.example".to_owned();
    assert_eq!(refuse(&other), Refusal::WrongName { asked: "gateway.example".into(), presented });
    // The common name is no name of a host (RFC 9525, section 2).
    let common = root.issues("gateway.example", |_| {});
    assert!(matches!(refuse(&common), Refusal::WrongName { .. }));
    let chain = list(&[&issue(&|_| {}).der]);
    for name in ["", "other.example", "192.0.2.8", "example", "x.gateway.example", "not a name", "gateway.example\0"] {
        assert!(matches!(verify(&verifier, &chain, Some(name)), Err(Refusal::WrongName { .. })), "{name}");
    }

    let client = issue(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth]);
    assert!(matches!(refuse(&client), Refusal::WrongUsage(why) if why.contains("serverAuth")));
    assert!(verifier.verify(&list(&[&client.der]), Purpose::Client, None, at(NOW)).is_ok());
    let server = issue(&|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    let refusal = verifier.verify(&list(&[&server.der]), Purpose::Client, None, at(NOW)).unwrap_err();
    assert!(matches!(refusal, Refusal::WrongUsage(why) if why.contains("clientAuth")));
    let encipher = issue(&|params| params.key_usages = vec![KeyUsagePurpose::KeyEncipherment]);
    assert!(matches!(refuse(&encipher), Refusal::WrongUsage(why) if why.contains("digitalSignature")));
    // A certificate with a key usage must allow keyEncipherment if a secret is encrypted to its key.
    let encrypted = |party: &Party| {
        let chain = list(&[&party.der]);
        verifier.verify(&chain, Purpose::EncryptedServer, None, at(NOW)).map(|verified| verified.digest)
    };
    assert!(encrypted(&encipher).is_ok());
    assert!(encrypted(&issue(&|params| params.key_usages = vec![])).is_ok());
    let signs = issue(&|params| params.key_usages = vec![KeyUsagePurpose::DigitalSignature]);
    assert!(matches!(encrypted(&signs), Err(Refusal::WrongUsage(why)) if why.contains("keyEncipherment")));
    assert!(matches!(encrypted(&client), Err(Refusal::WrongUsage(why)) if why.contains("serverAuth")));
    let authority = issue(&|params| {
        ca(params);
        params.key_usages.push(KeyUsagePurpose::DigitalSignature);
    });
    assert!(matches!(refuse(&authority), Refusal::WrongUsage(why) if why.contains("is a CA")));

    let stranger = Party::root("Stranger").issues("device1", dns);
    assert_eq!(refuse(&stranger), Refusal::UnknownIssuer { issuer: "CN=Stranger".into() });
    let impostor = Party::root("Root").issues("device1", dns);
    assert_eq!(refuse(&impostor), Refusal::BadSignature);

    let weak = params("device1", dns).signed_by(&Weak::new(), &root.issuer).unwrap();
    assert_eq!(verify(&verifier, &list(&[weak.der()]), None), Err(Refusal::WeakKey));

    let other_curve = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    let other_curve = params("device1", dns).signed_by(&other_curve, &root.issuer).unwrap();
    assert_eq!(verify(&verifier, &list(&[other_curve.der()]), None), Err(Refusal::UnsupportedAlgorithm));

    let critical = issue(&|params| {
        let mut unknown = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99999, 1], vec![5, 0]);
        unknown.set_criticality(true);
        params.custom_extensions.push(unknown);
    });
    assert_eq!(refuse(&critical), Refusal::UnsupportedExtension);
}

/// Adds a critical key usage whose value is `der`.
fn key_usage(params: &mut CertificateParams, der: &[u8]) {
    let mut usage = CustomExtension::from_oid_content(&[2, 5, 29, 15], der.to_vec());
    usage.set_criticality(true);
    params.key_usages.clear();
    params.custom_extensions.push(usage);
}

#[test]
fn a_key_usage_in_another_encoding_than_der_is_refused() {
    let root = Party::root("Root");
    let verifier = verifier(&[&root]);
    let end_with = |usage: &[u8]| {
        let end = root.issues("device1", |params| key_usage(params, usage));
        verify(&verifier, &list(&[&end.der]), None).map(drop)
    };
    let ca_with = |usage: &[u8]| {
        let middle = root.issues("Middle", |params| {
            ca(params);
            key_usage(params, usage);
        });
        verify(&verifier, &list(&[&middle.issues("device1", dns).der, &middle.der]), None).map(drop)
    };
    assert_eq!(end_with(&[3, 2, 7, 0x80]), Ok(()));
    assert_eq!(ca_with(&[3, 2, 2, 4]), Ok(()));
    for wrong in [&[3, 2, 7, 0x80, 5, 0][..], &[3, 2, 0, 0x80], &[3, 2, 8, 0x80], &[3, 3, 0, 0x80, 0], &[3, 1, 0], &[]]
    {
        assert!(matches!(end_with(wrong), Err(Refusal::Malformed(_))), "{wrong:?}: {:?}", end_with(wrong));
    }
    for wrong in [&[3, 2, 2, 4, 5, 0][..], &[3, 2, 0, 4], &[3, 2, 3, 4], &[3, 3, 0, 4, 0], &[3, 1, 0], &[]] {
        assert!(matches!(ca_with(wrong), Err(Refusal::Malformed(_))), "{wrong:?}: {:?}", ca_with(wrong));
    }
}

#[test]
fn a_ca_that_may_not_issue_does_not() {
    let root = Party::root("Root");
    let verifier = verifier(&[&root]);
    let chain_of = |middle: &Party| list(&[&middle.issues("device1", dns).der, &middle.der]);
    let no_ca = root.issues("Middle", |_| {});
    assert!(
        matches!(verify(&verifier, &chain_of(&no_ca), None), Err(Refusal::WrongUsage(why)) if why.contains("no CA"))
    );
    let crl_only = root.issues("Middle", |params| {
        ca(params);
        params.key_usages = vec![KeyUsagePurpose::CrlSign];
    });
    // The library that makes certificates keeps to the rule, and so the signature is made by another of that name and key.
    let key = KeyPair::from_pem(&crl_only.issuer.key().serialize_pem()).unwrap();
    let signer = Issuer::new(params("Middle", ca), key);
    let end = params("device1", dns).signed_by(&KeyPair::generate().unwrap(), &signer).unwrap();
    let refusal = verify(&verifier, &list(&[end.der(), &crl_only.der]), None).unwrap_err();
    assert!(matches!(refusal, Refusal::WrongUsage(why) if why.contains("keyCertSign")), "{refusal}");
    let last = root.issues("Last", |params| {
        ca(params);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    });
    assert!(verify(&verifier, &chain_of(&last), None).is_ok());
    let beyond = last.issues("Beyond", ca);
    let chain = list(&[&beyond.issues("device1", dns).der, &beyond.der, &last.der]);
    assert!(matches!(verify(&verifier, &chain, None), Err(Refusal::WrongUsage(why)) if why.contains("longer")));
    let narrow = root.issues("Narrow", |params| {
        ca(params);
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: vec![GeneralSubtree::DnsName("test_ca.example".into())],
            excluded_subtrees: vec![],
        });
    });
    assert_eq!(verify(&verifier, &chain_of(&narrow), None), Err(Refusal::NameConstraint));
}

#[test]
fn a_list_that_is_too_long_or_not_well_formed_is_refused() {
    let root = Party::root("Root");
    let end = root.issues("device1", dns);
    let believed = verifier(&[&root]);
    let five = list(&[&end.der, &root.der, &root.der, &root.der, &root.der]);
    assert!(verify(&believed, &five, None).is_ok());
    let six = [&five[..], &list(&[&root.der])].concat();
    assert_eq!(verify(&believed, &six, None), Err(Refusal::TooLong { max: 5 }));
    let deep = Verifier::new(trust(&[&root]), Settings { max_certificates: 1000, ..Settings::default() });
    assert_eq!(verify(&deep, &six.repeat(3), None), Err(Refusal::TooLong { max: 8 }));

    let chain = list(&[&end.der]);
    assert_eq!(verify(&believed, &[], None), Err(Refusal::Malformed("the list of certificates is empty")));
    for cut in 1..chain.len() {
        assert!(matches!(verify(&believed, &chain[..cut], None), Err(Refusal::Malformed(_))), "{cut}");
    }
    assert!(matches!(verify(&believed, &[&chain[..], &[0]].concat(), None), Err(Refusal::Malformed(_))));
    assert!(matches!(verify(&believed, &[&chain[..], &[0; 3]].concat(), None), Err(Refusal::Malformed(_))));
    // Whatever bit is wrong, nobody comes in: each is in what is signed or in the signature, or in the lengths.
    for bit in 0..chain.len() * 8 {
        let mut spoiled = chain.clone();
        spoiled[bit / 8] ^= 0x80 >> (bit % 8);
        assert!(believed.verify(&spoiled, Purpose::Server, None, at(NOW)).is_err(), "bit {bit}");
    }
}

#[test]
fn who_is_on_a_crl_is_revoked_and_a_crl_that_is_due_says_nothing() {
    let root = Party::root("Root");
    let sub = root.issues("Sub", |params| {
        ca(params);
        params.serial_number = Some(SerialNumber::from(77));
    });
    let end = sub.issues("device1", |params| params.serial_number = Some(SerialNumber::from(0x1234)));
    let chain = list(&[&end.der, &sub.der]);
    let with = |crls: &[Vec<u8>], missing_crl_allowed| {
        let mut trust = trust(&[&root]);
        for crl in crls {
            assert_eq!(trust.add_crls(crl), Ok(1));
        }
        Verifier::new(trust, Settings { missing_crl_allowed, ..Settings::default() })
    };
    let (from, until) = (NOW - 100, NOW + 100);
    let clean = [root.crl(&[], from, until), sub.crl(&[7], from, NOW + 50)];
    let verifier = with(&clean, false);
    assert_eq!(verify(&verifier, &chain, None).unwrap().until, Some(at(NOW + 49)), "the nearest nextUpdate");
    // Nothing in the cache goes beyond it.
    assert!(matches!(verifier.verify(&chain, Purpose::Server, None, at(NOW + 50)), Err(Refusal::RevocationUnknown(_))));

    let end_revoked = [root.crl(&[], from, until), sub.crl(&[0x1234], from, until)];
    assert_eq!(verify(&with(&end_revoked, false), &chain, None), Err(Refusal::Revoked));
    let sub_revoked = [root.crl(&[77], from, until), sub.crl(&[], from, until)];
    assert_eq!(verify(&with(&sub_revoked, false), &chain, None), Err(Refusal::Revoked));
    // The newest counts, in whatever order they come.
    let newer = [sub.crl(&[], from, until), sub.crl(&[0x1234], from + 1, until), root.crl(&[], from, until)];
    assert_eq!(verify(&with(&newer, false), &chain, None), Err(Refusal::Revoked));

    let missing = [sub.crl(&[], from, until)];
    assert!(matches!(verify(&with(&missing, false), &chain, None), Err(Refusal::RevocationUnknown(_))));
    assert!(verify(&with(&missing, true), &chain, None).is_ok());
    let forged = [root.crl(&[], from, until), Party::root("Sub").crl(&[], from, until)];
    assert!(matches!(verify(&with(&forged, false), &chain, None), Err(Refusal::RevocationUnknown(_))));
    assert!(trust(&[&root]).add_crls(b"no crl").is_err());
    assert!(trust(&[&root]).add_crls(&root.der).is_err());
}

/// Returns an element in DER: tag, length and value. The value must have fewer than 256 bytes.
fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    let len = u8::try_from(value.len()).unwrap();
    let head = if len < 0x80 { vec![tag, len] } else { vec![tag, 0x81, len] };
    [head, value].concat()
}

/// Returns a CRL of the CA `Root`. The only entry of the CRL has the serial number 9, and an extension that no RFC
/// defines. `critical` contains the bytes between the identifier and the value of the extension.
fn crl_with_extension_of_an_entry(root: &Party, critical: &[u8]) -> Vec<u8> {
    let ecdsa_with_sha256 = tlv(0x30, &[&[6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]]);
    let root_name = tlv(0x30, &[&tlv(0x31, &[&tlv(0x30, &[&[6, 3, 0x55, 4, 3], &tlv(0x0c, &[b"Root"])])])]);
    let time = |text: &[u8]| tlv(0x17, &[text]);
    let extension = tlv(0x30, &[&[6, 3, 0x55, 0x1d, 99], critical, &[4, 2, 5, 0]]);
    let entry = tlv(0x30, &[&[2, 1, 9], &time(b"260921000000Z"), &tlv(0x30, &[&extension])]);
    let number = tlv(0x30, &[&[6, 3, 0x55, 0x1d, 20, 4, 3, 2, 1, 1]]);
    let list = tlv(
        0x30,
        &[
            &[2, 1, 1],
            &ecdsa_with_sha256,
            &root_name,
            &time(b"260921000000Z"),
            &time(b"260922000000Z"),
            &tlv(0x30, &[&entry]),
            &tlv(0xa0, &[&tlv(0x30, &[&number])]),
        ],
    );
    let signature = root.issuer.key().sign(&list).unwrap();
    tlv(0x30, &[&list, &ecdsa_with_sha256, &tlv(3, &[&[0], &signature])])
}

#[test]
fn a_crl_with_an_unknown_critical_extension_of_an_entry_is_refused() {
    let root = Party::root("Root");
    let issued = |serial: u64| root.issues("device1", |params| params.serial_number = Some(SerialNumber::from(serial)));
    let mut believed = trust(&[&root]);
    assert_eq!(believed.add_crls(&crl_with_extension_of_an_entry(&root, &[])), Ok(1));
    let verifier = Verifier::new(believed, Settings::default());
    assert!(verify(&verifier, &list(&[&issued(8).der]), None).is_ok());
    assert_eq!(verify(&verifier, &list(&[&issued(9).der]), None), Err(Refusal::Revoked));
    let refused = trust(&[&root]).add_crls(&crl_with_extension_of_an_entry(&root, &[1, 1, 0xff]));
    assert!(refused.unwrap_err().contains("a CRL that cannot be used"));
}

#[test]
fn a_plain_list_revokes_by_digest_and_by_serial_number() {
    let root = Party::root("Root");
    let sub = root.issues("Sub", ca);
    let end = sub.issues("device1", |params| params.serial_number = Some(SerialNumber::from(0x12_3456)));
    let chain = list(&[&end.der, &sub.der]);
    let hex = |der: &[u8]| {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, der);
        digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect::<String>()
    };
    for (text, revoked) in [
        (String::new(), false),
        (format!("# lost\n\n{}  # in the field\n", hex(&end.der)), true),
        (hex(&sub.der), true),
        (hex(&root.der), true),
        ("serial 00:12:34:56 issuer CN=Sub".to_owned(), true),
        ("serial 123456 issuer CN=Root".to_owned(), false),
        ("serial 123457 issuer CN=Sub".to_owned(), false),
    ] {
        let mut trust = trust(&[&root]);
        trust.add_revoked(&text).unwrap();
        let verdict = verify(&Verifier::new(trust, Settings::default()), &chain, None);
        assert_eq!(verdict.err(), revoked.then_some(Refusal::Revoked), "{text}");
    }
    for wrong in ["x", "\nserial 1 issuer CN=a", "serial 12", "00ff"] {
        let line = wrong.lines().count();
        assert!(trust(&[&root]).add_revoked(wrong).unwrap_err().starts_with(&format!("line {line}: ")), "{wrong}");
    }
}

#[test]
fn a_verified_path_is_verified_once_within_its_time_and_never_beyond() {
    let root = Party::root("Root");
    let sub = root.issues("Sub", |params| {
        ca(params);
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(NOW + 10);
    });
    let end = sub.issues("device1", dns);
    let chain = list(&[&end.der, &sub.der]);
    let verifier = verifier(&[&root]);
    let verify = |name, now| verifier.verify(&chain, Purpose::Server, name, at(now)).map(|verified| verified.name);
    let counters = || verifier.cache_counters();
    let name = Ok("CN=device1".to_owned());
    assert_eq!(verify(None, NOW), name);
    assert_eq!(counters(), CacheCounters { hits: 0, misses: 1 });
    assert_eq!(verify(None, NOW + 10), name);
    assert_eq!(counters(), CacheCounters { hits: 1, misses: 1 });
    // The certificate between expires before the end entity's.
    assert_eq!(verify(None, NOW + 11), Err(Refusal::Expired { not_after: at(NOW + 10) }));
    assert!(matches!(verify(None, NOW - 2 * DAY), Err(Refusal::NotYetValid { .. })));
    // Another name, another purpose, another order: another question.
    assert_eq!(counters().hits, 1);
    assert_eq!(verify(Some("gateway.example"), NOW), name);
    assert!(verify(Some("other.example"), NOW).is_err());
    assert!(verifier.verify(&chain, Purpose::Client, None, at(NOW)).is_ok());
    assert_eq!(counters().hits, 1);
    assert!(verify(Some("other.example"), NOW).is_err(), "a refusal is not kept");
    assert_eq!(counters().hits, 1);
    // With other trust nothing of the old is left.
    let mut revoking = trust(&[&root]);
    revoking.add_revoked("serial 00 issuer CN=Root").unwrap();
    verifier.replace(revoking);
    assert_eq!(verify(None, NOW), name);
    assert_eq!(counters().hits, 1);
    assert_eq!(verify(None, NOW), name);
    assert_eq!(counters().hits, 2);
}

#[test]
fn a_ca_of_a_known_path_is_checked_again_for_each_other_peer() {
    let root = Party::root("Root");
    let sub = root.issues("Sub", |params| {
        ca(params);
        params.serial_number = Some(SerialNumber::from(9));
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(NOW + 10);
    });
    let verifier = verifier(&[&root]);
    let verify =
        |chain: &[u8], now| verifier.verify(chain, Purpose::Server, None, at(now)).map(|verified| verified.name);
    let chains: Vec<_> = (0..6).map(|_| list(&[&sub.issues("device", dns).der, &sub.der])).collect();
    assert_eq!(verify(&chains[0], NOW), Ok("CN=device".to_owned()));
    assert_eq!(verify(&chains[1], NOW), Ok("CN=device".to_owned()), "with the verified signature of the CA");
    assert_eq!(verify(&chains[2], NOW + 11), Err(Refusal::Expired { not_after: at(NOW + 10) }));
    // The same CA with one changed byte of its signature, and a peer that the CA did not issue.
    let mut changed = chains[3].clone();
    *changed.last_mut().unwrap() ^= 1;
    assert_eq!(verify(&changed, NOW), Err(Refusal::BadSignature));
    let other = Party::root("Root").issues("Sub", ca);
    assert_eq!(verify(&list(&[&other.issues("device", dns).der, &sub.der]), NOW), Err(Refusal::BadSignature));
    let mut revoking = trust(&[&root]);
    revoking.add_revoked("serial 09 issuer CN=Root").unwrap();
    verifier.replace(revoking);
    assert_eq!(verify(&chains[4], NOW), Err(Refusal::Revoked));
    // An anchor of the same name with another key.
    verifier.replace(trust(&[&Party::root("Root")]));
    assert_eq!(verify(&chains[5], NOW), Err(Refusal::BadSignature));
}

#[test]
fn changed_files_are_read_again_and_a_bad_change_keeps_the_old() {
    let dir = std::env::temp_dir().join(format!("tegmen-x509-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let root = Party::root("Root");
    let end = root.issues("device1", |params| params.serial_number = Some(SerialNumber::from(5)));
    let chain = list(&[&end.der]);
    let (anchor, crl) = (dir.join("ca.pem"), dir.join("crl.der"));
    let pem = rcgen_pem(&root.der);
    std::fs::write(&anchor, format!("Some text before it\n{pem}")).unwrap();
    std::fs::write(&crl, root.crl(&[], NOW - 10, NOW + 100)).unwrap();
    let files = Files { anchors: vec![anchor.clone()], crls: vec![crl.clone()], ..Files::default() };
    let verifier = Verifier::from_files(files, Settings::default()).unwrap();
    let verify = || verifier.verify(&chain, Purpose::Client, None, at(NOW)).map(|verified| verified.name);
    assert!(verify().is_ok());
    assert!(!verifier.reload_if_changed().unwrap());
    // The old and the new list differ in length, so that the change is seen however coarse the clock of the disk is.
    std::fs::write(&crl, root.crl(&[5, 6], NOW - 5, NOW + 100)).unwrap();
    assert!(verify().is_ok(), "not before it is read");
    assert!(verifier.reload_if_changed().unwrap());
    assert_eq!(verify(), Err(Refusal::Revoked));
    std::fs::write(&anchor, "nothing").unwrap();
    let error = verifier.reload_if_changed().unwrap_err().to_string();
    assert!(error.contains("ca.pem: no certificate in it: give"), "{error}");
    assert!(!verifier.reload_if_changed().unwrap(), "once for each change");
    assert_eq!(verify(), Err(Refusal::Revoked));
    std::fs::remove_file(&anchor).unwrap();
    assert!(verifier.reload_if_changed().unwrap_err().to_string().contains("ca.pem: No such file"));
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn files_of_trust_that_could_not_be_read_are_read_again_until_they_can() {
    let dir = std::env::temp_dir().join(format!("tegmen-x509-again-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let root = Party::root("Root");
    let device = root.issues("device", |params| params.serial_number = Some(SerialNumber::from(5)));
    let chain = list(&[&device.der]);
    let (anchor, crl) = (dir.join("ca.pem"), dir.join("crl.der"));
    std::fs::write(&anchor, rcgen_pem(&root.der)).unwrap();
    // The two files have the same time and length, and differ only in their content.
    let write = |bytes: &[u8]| {
        std::fs::write(&crl, bytes).unwrap();
        std::fs::File::options().write(true).open(&crl).unwrap().set_modified(at(1)).unwrap();
    };
    let revoked = root.crl(&[5], NOW - 5, NOW + 100);
    write(&root.crl(&[], NOW - 10, NOW + 100));
    let files = Files { anchors: vec![anchor], crls: vec![crl.clone()], ..Files::default() };
    let verifier = Verifier::from_files(files, Settings::default()).unwrap();
    let verify = || verifier.verify(&chain, Purpose::Client, None, at(NOW)).map(|verified| verified.name);
    assert!(verify().is_ok());
    write(&vec![0x30; revoked.len()]);
    assert!(verifier.reload_if_changed().is_err());
    assert!(!verifier.reload_if_changed().unwrap(), "the same is said once");
    assert!(verify().is_ok());
    write(&revoked);
    assert!(verifier.reload_if_changed().unwrap());
    assert_eq!(verify(), Err(Refusal::Revoked));
    assert!(!verifier.reload_if_changed().unwrap());
    std::fs::remove_dir_all(&dir).unwrap();
}

fn rcgen_pem(der: &[u8]) -> String {
    let body: Vec<_> =
        base64(der).as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", body.join("\n"))
}

fn base64(bytes: &[u8]) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let word = chunk.iter().chain(&[0, 0]).take(3).fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        let letter = |at: usize| match at <= chunk.len() {
            true => char::from(letters[(word >> (18 - 6 * at) & 63) as usize]),
            false => '=',
        };
        [letter(0), letter(1), letter(2), letter(3)]
    };
    bytes.chunks(3).flat_map(group).collect()
}

#[test]
fn raw_keys_are_believed_if_they_are_on_the_list() {
    let key = KeyPair::generate().unwrap();
    let spki = key.subject_public_key_info();
    let allowed =
        RawKeys(vec![AllowedKey { digest: [1; 32], name: "other".into() }, AllowedKey::of(&spki, "sensor-17")]);
    let verified = PeerVerifier::verify_raw(&allowed, &spki).unwrap();
    assert_eq!((verified.name.as_str(), verified.spki, verified.until), ("sensor-17", &spki[..], None));
    assert!(matches!(verify_raw(&spki, &allowed.0[..1]), Err(Refusal::UnknownKey { .. })));
    assert!(matches!(verify_raw(&[&spki[..], &[0]].concat(), &allowed.0), Err(Refusal::Malformed(_))));
    for cut in 0..spki.len() {
        assert!(verify_raw(&spki[..cut], &allowed.0).is_err());
    }
    let edwards = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap().subject_public_key_info();
    let anyone = [AllowedKey::of(&edwards, "e"), AllowedKey::of(&Weak::new().subject_public_key_info(), "w")];
    assert_eq!(verify_raw(&edwards, &anyone), Err(Refusal::UnsupportedAlgorithm));
    assert_eq!(verify_raw(&Weak::new().subject_public_key_info(), &anyone), Err(Refusal::WeakKey));
    // Neither takes what is the other's.
    assert!(allowed.takes_raw_keys() && !allowed.takes_certificates());
    assert!(matches!(allowed.verify(&[], Purpose::Client, None, at(NOW)), Err(Refusal::NotTaken(_))));
    let verifier = verifier(&[]);
    assert!(verifier.takes_certificates() && !verifier.takes_raw_keys());
    assert!(matches!(verifier.verify_raw(&spki), Err(Refusal::NotTaken(_))));
}

#[test]
fn keys_in_every_form_sign_what_their_public_key_verifies() {
    let ecdsa = KeyPair::generate().unwrap();
    let rsa = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
    for (pair, scheme) in [(&ecdsa, SignatureScheme::ECDSA_SECP256R1_SHA256), (&rsa, SignatureScheme::RSA_PKCS1_SHA256)]
    {
        let key = SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).unwrap();
        assert_eq!(key.scheme(), scheme);
        assert_eq!(key.public_key(), pair.subject_public_key_info());
        let digest = [7; 32];
        let signature = key.sign_digest(&digest).unwrap();
        assert_eq!(verify_digest(scheme, key.public_key(), &digest, &signature), Ok(()));
        assert!(verify_digest(scheme, key.public_key(), &[8; 32], &signature).is_err());
        assert!(!format!("{key:?}").contains(&pair.serialize_pem()[30..60]));
    }
    let edwards = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    assert!(SoftwareKey::from_pem(edwards.serialize_pem().as_bytes()).is_err());
    assert!(SoftwareKey::from_pem(b"").is_err());
}

/// Reads keys that `openssl genpkey`, `openssl ecparam -genkey` and `openssl genrsa -traditional` wrote.
#[test]
fn keys_of_openssl_are_read() {
    let dir = std::env::temp_dir().join(format!("tegmen-keys-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("key.pem");
    let openssl = |arguments: &str| {
        let (verb, rest) = arguments.split_once(' ').unwrap();
        let mut command = std::process::Command::new("openssl");
        let done = command.arg(verb).arg("-out").arg(&file).args(rest.split(' ')).output();
        match done {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            done => {
                let done = done.unwrap();
                assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
                true
            }
        }
    };
    for (arguments, label, scheme) in [
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256", "BEGIN PRIVATE KEY", Some(0x0403)),
        ("ecparam -name prime256v1 -genkey", "BEGIN EC PRIVATE KEY", Some(0x0403)),
        ("genrsa -traditional 2048", "BEGIN RSA PRIVATE KEY", Some(0x0401)),
        ("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:3072", "BEGIN PRIVATE KEY", Some(0x0401)),
        ("genrsa 1024", "BEGIN PRIVATE KEY", None),
        ("genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-384", "BEGIN PRIVATE KEY", None),
        ("genpkey -algorithm ED25519", "BEGIN PRIVATE KEY", None),
    ] {
        if !openssl(arguments) {
            println!("skipped: openssl is missing; type: sudo apt-get install openssl");
            break;
        }
        assert!(std::fs::read_to_string(&file).unwrap().contains(label));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
            assert!(matches!(SoftwareKey::from_file(&file), Err(KeyError::Exposed { mode: 0o640, .. })));
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        match (SoftwareKey::from_file(&file), scheme) {
            (Ok(key), Some(scheme)) => {
                assert_eq!(key.scheme().0, scheme, "{arguments}");
                let signature = key.sign_digest(&[1; 32]).unwrap();
                assert_eq!(verify_digest(key.scheme(), key.public_key(), &[1; 32], &signature), Ok(()));
            }
            (Err(KeyError::Unusable { .. }), None) => {}
            (outcome, _) => panic!("{arguments}: {outcome:?}"),
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(matches!(SoftwareKey::from_file(&file), Err(KeyError::Unreadable { .. })));
}
