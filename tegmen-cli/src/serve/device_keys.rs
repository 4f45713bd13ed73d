//! The certificate of a delegated device, and its private key.

use crate::public_keys::{certificates, signer};
use std::path::Path;
use tegmen::dtls::{CipherSuite, Suites};
use tegmen_host::public_keys::PublicKeys;

/// The only cipher suite of the sessions of devices.
pub(crate) const SUITES: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);

/// Loads the certificates and the private key of a device. The first certificate in the file is the certificate of the
/// device. The error is the reason why the certificates or the key cannot be used.
pub(super) fn load(certificate: &Path, key: &Path) -> Result<PublicKeys, String> {
    let chain = certificates(certificate).map_err(|failure| failure.message)?;
    let signer = signer(key).map_err(|failure| failure.message)?;
    let keys = PublicKeys::new(SUITES).with_chain(&chain, signer);
    keys.map_err(|error| format!("{}: {error}", certificate.display()))
}
