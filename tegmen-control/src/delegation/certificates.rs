//! The certificates with which a server authenticates itself in the name of its devices.

use std::sync::Arc;
use std::time::SystemTime;
use tegmen_host::public_keys::PublicKeys;

/// The certificates of devices, and their private keys.
pub trait Certificates: Send + Sync {
    /// Returns the certificate of a device and its private key from memory; `None` if the device has no certificate.
    fn of(&self, device: &str) -> Option<Arc<PublicKeys>>;

    /// Makes the certificate of a device, or begins to make it, if the device has none or its certificate expires soon.
    /// The call may wait for a disk.
    ///
    /// # Errors
    /// A text with the reason, and with what the operator has to do next.
    fn prepare(&self, device: &str) -> Result<(), String>;

    /// Returns the reason why a device has no certificate, or why its certificate is not renewed. The text also names
    /// what the operator has to do next. Returns `None` if there is no problem.
    fn problem(&self, device: &str) -> Option<String>;
}

/// A report about the certificate of a device, for an operator.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CertificateReport {
    /// The time at which the certificate expires, in seconds since 1970; `None` if the device has no certificate.
    pub expires: Option<u64>,
    /// The reason why the device has no certificate, or why the certificate is not renewed. The text also names what
    /// the operator has to do next. `None` if there is no problem.
    pub problem: Option<String>,
}

impl CertificateReport {
    pub(super) fn of(certificates: &dyn Certificates, device: &str) -> Self {
        let end = certificates.of(device).and_then(|keys| keys.certificate_expires());
        let expires = end.and_then(|end| end.duration_since(SystemTime::UNIX_EPOCH).ok()).map(|since| since.as_secs());
        Self { expires, problem: certificates.problem(device) }
    }
}
