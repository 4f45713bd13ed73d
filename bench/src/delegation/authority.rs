//! An authority that issues the certificates of devices and of peers. One process creates the authority, and another
//! process reads its files.

use crate::{failure::failure, isolation::private, proof::read};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use std::{fs, path::Path, sync::Arc};
use tegmen::dtls::{CipherSuite, Suites};
use tegmen_bench_line::Failure;
use tegmen_host::{
    public_keys::PublicKeys,
    x509::{Settings, Trust, Verifier, signer::SoftwareKey},
};

/// The only cipher suite that the peers and the server without delegation accept. Devices can resume sessions with this
/// suite.
pub(super) const SUITES: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);

/// The number of certificates in a chain below the trust anchor. The chain has the certificate of the authority, and a
/// certificate that the authority issued.
pub(super) const CERTIFICATES: usize = 2;

/// An authority with a key on secp256r1. A trust anchor has issued its certificate.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// The certificate of the authority.
    certificate: Vec<u8>,
    anchor: Vec<u8>,
}

impl Authority {
    /// Creates an authority, and writes its files into this directory.
    pub(super) fn create(directory: &Path) -> Result<Self, Failure> {
        let (root_key, key) = (KeyPair::generate().map_err(failure)?, KeyPair::generate().map_err(failure)?);
        let root = params("trust anchor")?;
        let anchor = root.self_signed(&root_key).map_err(failure)?.pem();
        let certificate = params(NAME)?.signed_by(&key, &Issuer::new(root, root_key)).map_err(failure)?.pem();
        private(&directory.join(KEY), &key.serialize_pem())?;
        fs::write(directory.join(CERTIFICATE), certificate).map_err(failure)?;
        fs::write(directory.join(ANCHOR), anchor).map_err(failure)?;
        Self::open(directory)
    }

    /// Reads the authority from the files in this directory.
    pub(super) fn open(directory: &Path) -> Result<Self, Failure> {
        let key = fs::read_to_string(directory.join(KEY)).map_err(failure)?;
        // Issuers of one key and these parameters are the same.
        let issuer = Issuer::new(params(NAME)?, KeyPair::from_pem(&key).map_err(failure)?);
        let certificate = CertificateDer::from_pem_slice(&read(&directory.join(CERTIFICATE))?).map_err(failure)?;
        Ok(Self { issuer, certificate: certificate.to_vec(), anchor: read(&directory.join(ANCHOR))? })
    }

    /// Makes a verifier. It remembers at most `cache_entries` verified chains.
    pub(super) fn verifier(&self, cache_entries: usize) -> Result<Arc<Verifier>, Failure> {
        let mut trust = Trust::default();
        trust.add_anchors(&self.anchor).map_err(Failure::new)?;
        Ok(Arc::new(Verifier::new(trust, Settings { cache_entries, ..Settings::default() })))
    }

    /// Issues a certificate with this name. Returns the certificate together with its private key.
    pub(super) fn issue(&self, name: &str, purpose: ExtendedKeyUsagePurpose) -> Result<PublicKeys, Failure> {
        let key = KeyPair::generate().map_err(failure)?;
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(failure)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![purpose];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let certificate = params.signed_by(&key, &self.issuer).map_err(failure)?;
        let signer = SoftwareKey::from_pem(key.serialize_pem().as_bytes()).map_err(Failure::new)?;
        let chain = [certificate.der().to_vec(), self.certificate.clone()];
        PublicKeys::new(SUITES).with_chain(&chain, Arc::new(signer)).map_err(failure)
    }
}

/// Returns the parameters of a CA certificate with this name.
fn params(name: &str) -> Result<CertificateParams, Failure> {
    let mut params = CertificateParams::new(Vec::new()).map_err(failure)?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    Ok(params)
}

const NAME: &str = "authority";
const KEY: &str = "authority.key";
const CERTIFICATE: &str = "authority.pem";
const ANCHOR: &str = "anchor.pem";
