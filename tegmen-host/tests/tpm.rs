//! Tests handshakes with keys in a TPM. Each test starts swtpm, a TPM in software.

#[path = "../../tegmen-trust/tests/swtpm/mod.rs"]
mod swtpm;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use swtpm::Swtpm;
use tegmen::dtls::{CipherSuite, Suites};
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::resources::Resources;
use tegmen_host::server::{Listen, Server, ServerConfig};
use tegmen_host::uri::Scheme;
use tegmen_host::x509::signer::{SignatureScheme, Signer as _};
use tegmen_host::x509::tpm::{Place, TpmKey, TpmKeyKind};
use tegmen_host::x509::{Settings, Trust, Verifier};

/// The public key of a key in a TPM, for which the test CA issues a certificate.
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

/// A process of `openssl s_server`, which ends when this value is dropped.
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
    for (handle, kind) in [0x8101_0011, 0x8101_0012].into_iter().zip([TpmKeyKind::P256, TpmKeyKind::Rsa2048]) {
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
        let mut config = ClientConfig::default();
        config.trust.public_keys = Some(keys);
        let client = Session::connect_to(([127, 0, 0, 1], port).into(), Scheme::Coaps, config).await.unwrap();
        assert_eq!(client.server().as_deref(), Some("CN=server"));
        // The peer prints the subject of our certificate, which it has verified, with the session.
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
    let listen = vec![Listen { address: ([127, 0, 0, 1], 0).into(), scheme: Scheme::Coaps }];
    let mut config = ServerConfig::default();
    config.listen = listen;
    config.trust.public_keys = Some(keys);
    let server = Server::with(config).serve(Resources::new([])).unwrap();
    let mut trust = Trust::default();
    trust.add_anchors(ca.pem().as_bytes()).unwrap();
    let keys = PublicKeys::new(RSA).believing(Arc::new(Verifier::new(trust, Settings::default())));
    let mut config = ClientConfig::default();
    config.trust.public_keys = Some(keys.expecting("127.0.0.1"));
    let client = Session::connect_to(server.addresses()[0].address, Scheme::Coaps, config).await.unwrap();
    assert_eq!(client.server().as_deref(), Some("CN=server"));
}
