//! An authority that issues certificates to users who log in, and the certificate requests of these users.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, PublicKeyData,
    SerialNumber, SignatureAlgorithm,
};
use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tegmen_admin::{LoginAuthority, LoginCertificate, NotCertified};
use tegmen_trust::x509::CertificateInfo;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;

/// An authority that issues a certificate for each name and key.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The names in the valid certificates, each with the expiry time in seconds since 1970.
    pub(crate) given: Mutex<Vec<(String, u64)>>,
    /// The name in a certificate that the authority issued for another purpose than a login.
    pub(crate) taken: &'static str,
}

/// A public key: a point of P-256.
struct Point(Vec<u8>);

impl PublicKeyData for Point {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &rcgen::PKCS_ECDSA_P256_SHA256
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut names = DistinguishedName::new();
    names.push(DnType::CommonName, name);
    names
}

impl Authority {
    pub(crate) fn new(issuer: Issuer<'static, KeyPair>) -> Self {
        Self { issuer, given: Mutex::default(), taken: "reader" }
    }
}

impl LoginAuthority for Authority {
    fn is_taken(&self, name: &str) -> Result<bool, String> {
        Ok(name == self.taken)
    }

    fn certify(&self, name: &str, spki: &[u8], valid: Duration) -> Result<LoginCertificate, NotCertified> {
        let end = SystemTime::now() + valid;
        let expires = end.duration_since(UNIX_EPOCH).unwrap().as_secs();
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        params.serial_number = Some(SerialNumber::from(vec![1]));
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(expires);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&Point(spki[spki.len() - 65..].to_vec()), &self.issuer).unwrap().pem();
        self.given.lock().unwrap().push((name.to_owned(), expires));
        Ok(LoginCertificate { certificate, authority: "the authority".to_owned(), expires })
    }

    fn revoke(&self, name: &str) -> Result<Vec<u64>, String> {
        let (revoked, valid) = self.given.lock().unwrap().drain(..).partition(|(of, _)| of == name);
        *self.given.lock().unwrap() = valid;
        let revoked: Vec<(String, u64)> = revoked;
        Ok(revoked.into_iter().map(|(_, end)| end).collect())
    }
}

/// Returns a certificate request in PEM with this common name.
pub(crate) fn request(name: &str) -> String {
    request_of(name, &KeyPair::generate().unwrap())
}

pub(crate) fn request_of(name: &str, key: &KeyPair) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(name);
    params.serialize_request(key).unwrap().pem().unwrap()
}

/// Returns the decoded content of a certificate in PEM.
pub(crate) fn content(pem: &str) -> CertificateInfo {
    CertificateInfo::parse(&CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap()
}
