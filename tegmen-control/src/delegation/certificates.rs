//! The certificates in which a server speaks for its devices.

use std::sync::Arc;
use std::time::SystemTime;
use tegmen_host::public_keys::PublicKeys;

/// The certificates of devices, and their private keys.
pub trait Certificates: Send + Sync {
    /// Returns the certificate of a device and its private key, from memory; `None` if it has none.
    fn of(&self, device: &str) -> Option<Arc<PublicKeys>>;

    /// Makes the certificate of a device, or begins to, if there is none yet or the one that there is ends soon. It may wait for a
    /// disk.
    ///
    /// # Errors
    /// The reason, with the next step.
    fn prepare(&self, device: &str) -> Result<(), String>;

    /// Returns the reason why a device has no certificate, or why the one that it has is not renewed, with the next step; `None` if
    /// nothing is wrong.
    fn problem(&self, device: &str) -> Option<String>;
}

/// The certificate of a device, as an operator sees it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CertificateReport {
    /// The end of its validity, in seconds since 1970; `None` if the device has no certificate.
    pub expires: Option<u64>,
    /// The reason why there is none, or why it is not renewed, with the next step.
    pub problem: Option<String>,
}

impl CertificateReport {
    pub(super) fn of(certificates: &dyn Certificates, device: &str) -> Self {
        let end = certificates.of(device).and_then(|keys| keys.certificate_expires());
        let expires = end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok()).map(|since| since.as_secs());
        Self { expires, problem: certificates.problem(device) }
    }
}
