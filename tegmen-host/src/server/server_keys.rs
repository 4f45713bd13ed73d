//! The keys of a server, and of the devices in whose name it answers.

use crate::delegate::Delegate;
use crate::public_keys::PublicKeys;
use crate::x509::signer::Signer;
use std::cell::OnceCell;
use std::sync::Arc;
use tegmen::dtls::{CertificateType, ClientAuthentication, Credential, Keys, Suites};

/// Bytes of the longest name of DNS (RFC 1035, section 2.3.4). No device has a longer one.
const LONGEST_NAME: usize = 255;
/// Lists of devices whose credentials are kept.
const LISTS: usize = 64;

/// The keys of a shard.
pub(super) struct ServerKeys {
    /// The keys of the server itself, and the clients that it trusts.
    pub(super) own: PublicKeys,
    delegate: Option<Arc<dyn Delegate>>,
    /// The devices of present handshakes, in lists by their numbers. A list only grows while the endpoint has the keys, so that
    /// the endpoint can borrow from it.
    devices: [OnceCell<Box<Device>>; LISTS],
}

/// The credentials of a device, as they were at its first handshake of the second.
struct Device {
    number: u32,
    keys: Option<Arc<PublicKeys>>,
    next: OnceCell<Box<Self>>,
}

impl ServerKeys {
    pub(super) fn new(own: PublicKeys, delegate: Option<Arc<dyn Delegate>>) -> Self {
        Self { own, delegate, devices: [const { OnceCell::new() }; LISTS] }
    }

    /// Returns the keys of a device, or those of the server itself if the number is 0; `None` for a device without credentials.
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

    /// Returns a private key.
    pub(super) fn key(&self, server: u32, credential: u8) -> Option<Arc<dyn Signer>> {
        self.of(server)?.key(credential)
    }

    /// Asks the owner again for the credentials of devices. A handshake in progress fails if its device has other ones now.
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
