//! The keys of a server, and of the devices in whose name it answers.

use crate::delegate::Delegate;
use crate::public_keys::PublicKeys;
use crate::x509::signer::Signer;
use std::cell::OnceCell;
use std::sync::Arc;
use tegmen::dtls::{CertificateType, ClientAuthentication, Credential, Keys, Suites};

/// Maximum length of a DNS name in bytes (RFC 1035, section 2.3.4). No device has a longer name.
const LONGEST_NAME: usize = 255;
/// The number of lists for the credentials of devices. The number of a device selects its list.
const LISTS: usize = 1024;

/// The certificates and private keys of a shard.
pub(super) struct ServerKeys {
    /// The keys of the server itself, and the clients that it trusts.
    pub(super) own: PublicKeys,
    delegate: Option<Arc<dyn Delegate>>,
    /// The devices of current handshakes, in lists. The number of a device selects its list. A list only grows until
    /// [`Self::forget_devices`] empties it, so the endpoint can borrow the credentials of a device.
    devices: Box<[OnceCell<Box<Device>>]>,
}

/// The credentials of a device. The shard reads them from the [`Delegate`], which knows the devices, at the first
/// handshake with this device in each second.
struct Device {
    number: u32,
    keys: Option<Arc<PublicKeys>>,
    next: OnceCell<Box<Self>>,
}

impl ServerKeys {
    pub(super) fn new(own: PublicKeys, delegate: Option<Arc<dyn Delegate>>) -> Self {
        Self { own, delegate, devices: (0..LISTS).map(|_| OnceCell::new()).collect() }
    }

    /// Returns the keys of a device, or the server's own keys if the number is 0. Returns `None` for a device without
    /// credentials.
    fn of(&self, server: u32) -> Option<&PublicKeys> {
        if server == 0 {
            return Some(&self.own);
        }
        let delegate = self.delegate.as_ref()?;
        let mut place = &self.devices[server as usize % LISTS];
        loop {
            let device = place.get_or_init(|| {
                Box::new(Device { number: server, keys: delegate.credentials(server), next: OnceCell::new() })
            });
            if device.number == server {
                return device.keys.as_deref();
            }
            place = &device.next;
        }
    }

    /// Returns a private key of the device with the number `server`, or of the server itself if the number is 0.
    pub(super) fn key(&self, server: u32, credential: u8) -> Option<Arc<dyn Signer>> {
        self.of(server)?.key(credential)
    }

    /// Removes the stored credentials of devices, so that the next handshake asks the delegate for them again. A
    /// handshake in progress fails if the credentials of its device have changed.
    pub(super) fn forget_devices(&mut self) {
        for list in &mut self.devices {
            let mut first = list.take();
            // One after the other, so that a long list takes no stack.
            while let Some(mut device) = first {
                first = device.next.take();
            }
        }
    }
}

impl Keys for ServerKeys {
    const ON_HOST: bool = true;
    const NAMES: bool = true;

    fn server(&self, name: &[u8]) -> Option<u32> {
        let Some(delegate) = &self.delegate else { return Some(0) };
        let mut room = [0; LONGEST_NAME];
        let number = room.get_mut(..name.len()).and_then(|lowercase| {
            lowercase.copy_from_slice(name);
            lowercase.make_ascii_lowercase();
            delegate.device(lowercase)
        });
        Some(number.unwrap_or(0))
    }

    fn credential(&self, server: u32, number: u8) -> Option<Credential<'_>> {
        self.of(server)?.credential(0, number)
    }

    fn suites(&self, server: u32) -> Suites {
        self.of(server).unwrap_or(&self.own).suites(0)
    }

    fn client_authentication(&self) -> ClientAuthentication {
        self.own.client_authentication()
    }

    fn peer_types(&self) -> &[CertificateType] {
        self.own.peer_types()
    }
}

#[cfg(test)]
mod tests;
