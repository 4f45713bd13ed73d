#![allow(unreachable_pub, dead_code, reason = "a module of several test binaries, none of which uses all of it")]
//! A certificate authority, and functions that issue certificates.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
};
use std::sync::Arc;
use tegmen::dtls::{ClientAuthentication, Suites};
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::x509::signer::{Signer, SoftwareKey};
use tegmen_host::x509::{Settings, Trust, Verifier};

pub struct TestCa {
    pub ca: CertifiedIssuer<'static, KeyPair>,
}

impl TestCa {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::OrganizationName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Self { ca: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    pub fn issue(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> (Vec<u8>, Arc<dyn Signer>) {
        self.issue_for(&KeyPair::generate().unwrap(), name, purpose, KeyUsagePurpose::DigitalSignature)
    }

    /// Issues a certificate for a server with an RSA key.
    pub fn issue_rsa(&self, name: &str, usage: KeyUsagePurpose) -> (Vec<u8>, Arc<dyn Signer>) {
        let key = KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048).unwrap();
        self.issue_for(&key, name, ExtendedKeyUsagePurpose::ServerAuth, usage)
    }

    /// Issues a certificate for a server. The certificate is valid from the beginning of 2020 to `end`.
    pub fn issue_until(&self, name: &str, end: time::OffsetDateTime) -> (Vec<u8>, Arc<dyn Signer>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), end);
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        let signer = SoftwareKey::from_pem(key.serialize_pem().as_bytes()).unwrap();
        (certificate.der().to_vec(), Arc::new(signer))
    }

    /// Issues a certificate for a client with this subject.
    pub fn issue_as(&self, subject: rcgen::DistinguishedName) -> (Vec<u8>, Arc<dyn Signer>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = subject;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &self.ca).unwrap();
        let signer = SoftwareKey::from_pem(key.serialize_pem().as_bytes()).unwrap();
        (certificate.der().to_vec(), Arc::new(signer))
    }

    fn issue_for(
        &self,
        key: &KeyPair,
        name: &str,
        purpose: ExtendedKeyUsagePurpose,
        usage: KeyUsagePurpose,
    ) -> (Vec<u8>, Arc<dyn Signer>) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        params.key_usages = vec![usage];
        let certificate = params.signed_by(key, &self.ca).unwrap();
        let signer = SoftwareKey::from_pem(key.serialize_pem().as_bytes()).unwrap();
        (certificate.der().to_vec(), Arc::new(signer))
    }

    pub fn verifier(&self) -> Arc<Verifier> {
        let mut trust = Trust::default();
        trust.add_anchors(self.ca.pem().as_bytes()).unwrap();
        Arc::new(Verifier::new(trust, Settings::default()))
    }

    pub fn server(&self) -> PublicKeys {
        let (certificate, signer) = self.issue("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
        let keys = PublicKeys::new(SUITES).with_chain(&[certificate], signer).unwrap();
        keys.believing(self.verifier()).asking(ClientAuthentication::Required)
    }

    pub fn client(&self, suites: Suites) -> PublicKeys {
        let (certificate, signer) = self.issue("device1", ExtendedKeyUsagePurpose::ClientAuth);
        PublicKeys::new(suites).with_chain(&[certificate], signer).unwrap().believing(self.verifier())
    }
}
