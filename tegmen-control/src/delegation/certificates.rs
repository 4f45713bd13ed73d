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

    /// Replaces the certificates of a device and their private key, because an intruder may have a copy of the key. From
    /// now on [`Self::of`] returns no earlier certificate. An authority that the server itself has revokes the earlier
    /// certificates at once. Returns all replaced certificates that have not expired. The call may wait for a disk.
    ///
    /// # Errors
    /// A text with the reason, and with what the operator has to do next. The caller must then repeat the call.
    fn replace(&self, device: &str) -> Result<Vec<ReplacedCertificate>, String>;

    /// Returns the reason why a device has no certificate, or why its certificate is not renewed. The text also names
    /// what the operator has to do next. Returns `None` if there is no problem.
    fn problem(&self, device: &str) -> Option<String>;
}

/// A certificate of a device that the server no longer uses, because an intruder may have a copy of its private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplacedCertificate {
    /// The serial number in hexadecimal digits.
    pub serial: String,
    /// The issuer of the certificate (RFC 4514).
    pub issuer: String,
    /// The time at which the certificate expires, in seconds since 1970.
    pub expires: u64,
    /// True if the certificate is in the revocation list of its authority. If this is false, the operator must ask the
    /// authority to revoke the certificate.
    pub revoked: bool,
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
