//! The certificate with which Tegmen's client or Tegmen's server authenticates itself, and the verifier of its peer's
//! certificate.

use crate::failure::failure;
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use std::{fs, path::Path, sync::Arc};
use tegmen::dtls::{CipherSuite, ClientAuthentication, Suites};
use tegmen_bench_line::{Failure, KeyForm, PublicKeys};
use tegmen_host::{
    public_keys::PublicKeys as HostKeys,
    x509::{Purpose, Settings, Trust, Verifier, signer::SoftwareKey},
};

/// The credentials of Tegmen's client or of Tegmen's server, and the verifier of its peer's certificate.
pub(crate) struct Proof {
    pub(crate) keys: HostKeys,
    pub(crate) signer: Arc<SoftwareKey>,
    pub(crate) verifier: Arc<Verifier>,
    /// The role of the peer: client or server.
    pub(crate) peer: Purpose,
}

impl Proof {
    pub(crate) fn from_files(keys: &PublicKeys, peer: Purpose, remembered: bool) -> Result<Self, Failure> {
        let KeyForm::X509 { ca, certificate, key } = &keys.form else {
            return Err(Failure::new("raw public keys are not measured"));
        };
        let suites = match keys.suite.as_str() {
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => &[CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256],
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => &[CipherSuite::ECDHE_RSA_WITH_AES_128_GCM_SHA256],
            other => return Err(Failure::new(format!("{other} is not measured"))),
        };
        let mut trust = Trust::default();
        trust.add_anchors(&read(ca)?).map_err(Failure::new)?;
        let settings = Settings { cache_entries: if remembered { 1024 } else { 0 }, ..Settings::default() };
        let verifier = Arc::new(Verifier::new(trust, settings));
        let signer = Arc::new(SoftwareKey::from_pem(&read(key)?).map_err(Failure::new)?);
        let pem = read(certificate)?;
        let chain: Result<Vec<Vec<u8>>, _> =
            CertificateDer::pem_slice_iter(&pem).map(|der| der.map(|der| der.to_vec())).collect();
        let chain = chain.map_err(failure)?;
        let keys = HostKeys::new(Suites(suites)).with_chain(&chain, signer.clone()).map_err(failure)?;
        let keys = keys.believing(verifier.clone()).asking(ClientAuthentication::Required);
        Ok(Self { keys, signer, verifier, peer })
    }
}

/// Reads a file. The message of a failure contains the path of the file.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}
