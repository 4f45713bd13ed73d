//! The certificates in which a server speaks for its devices.

use std::sync::Arc;
use tegmen_host::public_keys::PublicKeys;

/// The certificates of devices, and their private keys.
pub trait Certificates: Send + Sync {
    /// Returns the certificate of a device and its private key, from memory; `None` if it has none.
    fn of(&self, device: &str) -> Option<Arc<PublicKeys>>;

    /// Makes the certificate of a device, if there is none yet or the one that there is ends soon. It may wait for a disk.
    ///
    /// # Errors
    /// The reason, with the next step.
    fn prepare(&self, device: &str) -> Result<(), String>;
}
