//! Keys in a TPM: swtpm is one in software, started for each test.

mod swtpm;

use aws_lc_rs::rsa::{Pkcs1PublicEncryptingKey, PublicEncryptingKey};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use swtpm::Swtpm;
use tegmen::dtls::{CipherSuite, Suites};
use tegmen::secret::Secret;
use tegmen_host::client::{Client, ClientConfig};
use tegmen_host::credentials::Credentials;
use tegmen_host::provider::public::verify_digest;
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::resources::Resources;
use tegmen_host::server::{Listen, Server, ServerConfig};
use tegmen_host::x509::signer::{PremasterDecrypter as _, SignatureScheme, Signer as _};
use tegmen_host::x509::tpm::{Place, TpmError, TpmKey, TpmKeyKind};
use tegmen_host::x509::{Settings, Trust, Verifier};

const KINDS: [(TpmKeyKind, SignatureScheme); 2] = [
    (TpmKeyKind::P256, SignatureScheme::ECDSA_SECP256R1_SHA256),
    (TpmKeyKind::Rsa2048, SignatureScheme::RSA_PKCS1_SHA256),
];

fn signs(key: &TpmKey) {
    // Twenty times, since a number of an ECDSA signature has a zero before it in half of all cases.
    for turn in 0..20 {
        let digest = [turn; 32];
        let signature = key.sign_digest(&digest).unwrap();
        assert_eq!(verify_digest(key.scheme(), key.public_key(), &digest, &signature), Ok(()));
        assert!(verify_digest(key.scheme(), key.public_key(), &[99; 32], &signature).is_err());
    }
}

#[test]
fn a_key_in_a_file_is_of_use_with_its_tpm_alone_and_survives_its_restart() {
    let Some(mut tpm) = Swtpm::start("tpm-file") else { return };
    for (kind, scheme) in KINDS {
        let file = tpm.dir().join(format!("{kind:?}.pem"));
        let place = Place::File(file.clone());
        let public = {
            let key = TpmKey::create(&tpm.name, kind, &place).unwrap();
            assert_eq!(key.scheme(), scheme);
            signs(&key);
            key.public_key().to_vec()
        };
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("-----BEGIN TSS2 PRIVATE KEY-----\n"), "{text}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        }
        tpm.restart();
        {
            let key = TpmKey::open(&tpm.name, &place).unwrap();
            assert_eq!(key.public_key(), public);
            signs(&key);
        }
        assert!(
            matches!(TpmKey::create(&tpm.name, kind, &place), Err(TpmError::Place { .. })),
            "nothing is written over"
        );
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        // Neither another TPM nor a changed file.
        let other = Swtpm::start("tpm-other").unwrap();
        assert!(matches!(TpmKey::open(&other.name, &place), Err(TpmError::Refused { .. })));
        for at in (40..text.len() - 40).step_by(61) {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            std::fs::write(&file, &changed).unwrap();
            assert!(TpmKey::open(&tpm.name, &place).is_err(), "byte {at}");
        }
        std::fs::write(&file, &text).unwrap();
        assert!(TpmKey::open(&tpm.name, &place).is_ok(), "no memory of the TPM is lost");
    }
}

#[test]
fn a_key_at_a_handle_stays_until_it_is_removed() {
    let Some(mut tpm) = Swtpm::start("tpm-handle") else { return };
    for (handle, (kind, scheme)) in [0x8101_0001, 0x8101_0002].into_iter().zip(KINDS) {
        let place = Place::Persistent(handle);
        assert!(matches!(TpmKey::open(&tpm.name, &place), Err(TpmError::Place { .. })));
        let public = TpmKey::create(&tpm.name, kind, &place).unwrap().public_key().to_vec();
        assert!(matches!(TpmKey::create(&tpm.name, kind, &place), Err(TpmError::Place { .. })));
        tpm.restart();
        {
            let key = TpmKey::open(&tpm.name, &place).unwrap();
            assert_eq!((key.public_key(), key.scheme()), (&public[..], scheme));
            signs(&key);
        }
        TpmKey::remove(&tpm.name, handle).unwrap();
        assert!(TpmKey::open(&tpm.name, &place).is_err());
        assert!(TpmKey::remove(&tpm.name, handle).is_err());
    }
    assert!(matches!(TpmKey::open(&tpm.name, &Place::Persistent(0x8180_0000)), Err(TpmError::Place { .. })));
    let nowhere = TpmKey::open("swtpm:host=127.0.0.1,port=1", &Place::Persistent(0x8101_0001)).unwrap_err();
    assert!(nowhere.to_string().contains("group tss"), "{nowhere}");
}

/// FAULTS 33: no oracle for paddings; what is right is decrypted, everything else gives the random secret.
#[test]
fn an_rsa_key_decrypts_a_premaster_secret_and_tells_nothing_of_wrong_ones() {
    let Some(tpm) = Swtpm::start("tpm-decrypt") else { return };
    let key = TpmKey::create(&tpm.name, TpmKeyKind::Rsa2048, &Place::Persistent(0x8101_0003)).unwrap();
    let public = Pkcs1PublicEncryptingKey::new(PublicEncryptingKey::from_der(key.public_key()).unwrap()).unwrap();
    let encrypt = |message: &[u8]| {
        let mut room = [0; 256];
        public.encrypt(message, &mut room).unwrap();
        room
    };
    let version = [0xfe, 0xfd];
    let mut secret = [7; 48];
    secret[..2].copy_from_slice(&version);
    let random = Secret::new([0xaa; 48]);
    let right = encrypt(&secret);
    assert_eq!(*key.premaster_secret(&right, version, &random).expose(), secret);
    let mut flipped = right;
    flipped[255] ^= 1;
    secret[1] = 0xff;
    let other_version = encrypt(&secret);
    let (shorter, longer) = (encrypt(&[7; 47]), encrypt(&[7; 49]));
    for wrong in [&flipped[..], &other_version, &shorter, &longer, &right[1..], &[0; 256], &[255; 256], &[], &[1; 600]]
    {
        assert_eq!(*key.premaster_secret(wrong, version, &random).expose(), *random.expose());
    }
    let ecdsa = {
        drop(key);
        TpmKey::create(&tpm.name, TpmKeyKind::P256, &Place::Persistent(0x8101_0004)).unwrap()
    };
    assert_eq!(*ecdsa.premaster_secret(&right, version, &random).expose(), *random.expose());
}

/// A public key that somebody else has the private one of.
struct Certified<'k>(&'k TpmKey);

impl rcgen::PublicKeyData for Certified<'_> {
    fn der_bytes(&self) -> &[u8] {
        // Behind the algorithm and the header of the BIT STRING.
        match self.0.scheme() {
            SignatureScheme::ECDSA_SECP256R1_SHA256 => &self.0.public_key()[26..],
            _ => &self.0.public_key()[24..],
        }
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        match self.0.scheme() {
            SignatureScheme::ECDSA_SECP256R1_SHA256 => &rcgen::PKCS_ECDSA_P256_SHA256,
            _ => &rcgen::PKCS_RSA_SHA256,
        }
    }
}

fn params(name: &str, purpose: Option<ExtendedKeyUsagePurpose>) -> CertificateParams {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    match purpose {
        Some(purpose) => {
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
            params.extended_key_usages = vec![purpose];
        }
        None => {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        }
    }
    params
}

/// `openssl s_server`, ended when it is dropped.
struct OpenSsl(Child);

impl Drop for OpenSsl {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_mutual_handshake_with_openssl_whose_key_is_in_the_tpm_alone() {
    let Some(tpm) = Swtpm::start("tpm-handshake") else { return };
    let ca = CertifiedIssuer::self_signed(params("CA", None), KeyPair::generate().unwrap()).unwrap();
    let server_key = KeyPair::generate().unwrap();
    let server = params("server", Some(ExtendedKeyUsagePurpose::ServerAuth)).signed_by(&server_key, &ca).unwrap();
    let file = |name: &str, text: &str| {
        let path = tpm.dir().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (anchor, chain) = (file("ca.pem", &ca.pem()), file("server.pem", &server.pem()));
    let key = file("server.key", &server_key.serialize_pem());
    for (handle, (kind, _)) in [0x8101_0011, 0x8101_0012].into_iter().zip(KINDS) {
        let in_tpm = TpmKey::create(&tpm.name, kind, &Place::Persistent(handle)).unwrap();
        let ours = params("device", Some(ExtendedKeyUsagePurpose::ClientAuth)).signed_by(&Certified(&in_tpm), &ca);
        let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("openssl");
        command.args(["s_server", "-dtls1_2", "-accept", &format!("127.0.0.1:{port}"), "-Verify", "2"]);
        command.arg("-verify_return_error").arg("-CAfile").arg(&anchor).arg("-cert").arg(&chain).arg("-key").arg(&key);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut peer = OpenSsl(command.spawn().expect("openssl is installed"));
        let mut lines = BufReader::new(peer.0.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.by_ref().any(|line| line.starts_with("ACCEPT")));

        let mut trust = Trust::default();
        trust.add_anchors(ca.pem().as_bytes()).unwrap();
        let keys = PublicKeys::new(SUITES).with_chain(&[ours.unwrap().der().to_vec()], Arc::new(in_tpm)).unwrap();
        let keys = keys.believing(Arc::new(Verifier::new(trust, Settings::default()))).expecting("127.0.0.1");
        let config = ClientConfig { public_keys: Some(keys), ..ClientConfig::default() };
        let client = Client::connect_to(([127, 0, 0, 1], port).into(), true, config).await.unwrap();
        assert_eq!(client.server(), Some("CN=server"));
        // It has verified us, and says so with the session.
        assert!(lines.by_ref().any(|line| line.contains("subject=") && line.contains("device")));
        assert!(lines.by_ref().any(|line| line.starts_with("CIPHER is ECDHE-ECDSA-AES128-GCM-SHA256")));
    }
}

#[tokio::test]
async fn a_server_whose_key_is_in_the_tpm_decrypts_what_clients_encrypt() {
    const RSA: Suites = Suites(&[CipherSuite::RSA_WITH_AES_128_CBC_SHA]);
    let Some(tpm) = Swtpm::start("tpm-server") else { return };
    let ca = CertifiedIssuer::self_signed(params("CA", None), KeyPair::generate().unwrap()).unwrap();
    let in_tpm = TpmKey::create(&tpm.name, TpmKeyKind::Rsa2048, &Place::Persistent(0x8101_0021)).unwrap();
    let mut ours = params("server", Some(ExtendedKeyUsagePurpose::ServerAuth));
    ours.key_usages = vec![KeyUsagePurpose::KeyEncipherment];
    let ours = ours.signed_by(&Certified(&in_tpm), &ca).unwrap();
    let keys = PublicKeys::new(RSA).with_chain(&[ours.der().to_vec()], Arc::new(in_tpm)).unwrap();
    assert!(keys.can_serve(CipherSuite::RSA_WITH_AES_128_CBC_SHA));
    let listen = vec![Listen { address: ([127, 0, 0, 1], 0).into(), secure: true }];
    let config = ServerConfig { listen, public_keys: Some(keys), ..ServerConfig::default() };
    let server = Server::start(&config, &Credentials::default(), Resources::new([]), Arc::new(|_| ())).unwrap();
    let mut trust = Trust::default();
    trust.add_anchors(ca.pem().as_bytes()).unwrap();
    let keys = PublicKeys::new(RSA).believing(Arc::new(Verifier::new(trust, Settings::default())));
    let config = ClientConfig { public_keys: Some(keys.expecting("127.0.0.1")), ..ClientConfig::default() };
    let client = Client::connect_to(server.addresses()[0].address, true, config).await.unwrap();
    assert_eq!(client.server(), Some("CN=server"));
}
