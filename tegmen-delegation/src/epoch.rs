//! The keys that a device shares with its delegation server.

use tegmen::crypto::hash::HmacKey;
use tegmen::crypto::{Crypto, DIGEST_LEN};
use tegmen::secret::Secret;
use tegmen_tickets::TicketKey;

/// The label of the keying material of a session between device and server (RFC 5705), from which the next epoch gets its key.
pub const EXPORTER: &[u8] = b"EXPORTER-tegmen-delegation-epoch";
/// Bytes of a pre-shared key, and of the keying material under [`EXPORTER`].
pub const PSK_LEN: usize = DIGEST_LEN;

/// Bytes of [`Epoch::check`].
pub const CHECK_LEN: usize = 8;

/// The secret that a device shares with its delegation server during one epoch, 32 random bytes for the first.
///
/// [`Self::next`] is the secret of the next epoch. It does not reveal this one, so a stolen device key does not open the sessions
/// of earlier epochs.
#[derive(Debug)]
pub struct DeviceKey(pub Secret<PSK_LEN>);

impl DeviceKey {
    /// The pre-shared key of a session between device and server, whose PSK identity is `identity`.
    pub fn psk<C: Crypto>(&self, identity: &[u8]) -> Secret<PSK_LEN> {
        self.derive::<C>(&[b"tegmen delegation session\0", identity])
    }

    /// The secret of the next epoch.
    pub fn next<C: Crypto>(&self) -> Self {
        Self(self.derive::<C>(&[b"tegmen delegation epoch"]))
    }

    fn derive<C: Crypto>(&self, message: &[&[u8]]) -> Secret<PSK_LEN> {
        let mut out = Secret::zeroed();
        derive::<C>(self.0.expose(), message, out.expose_mut());
        out
    }
}

/// An epoch: the time between two resets, in which one key seals the tickets of a device.
#[derive(Debug)]
pub struct Epoch {
    /// The number of the epoch, 0 before the first one. There are no tickets in epoch 0.
    pub number: u16,
    /// The device key of the epoch.
    pub key: DeviceKey,
    /// The key of the tickets.
    pub tickets: TicketKey,
}

impl Epoch {
    /// The epoch of a device that is new, or was reset to a new device key.
    pub const fn first(key: DeviceKey) -> Self {
        Self { number: 0, key, tickets: TicketKey(Secret::zeroed()) }
    }

    /// The epoch behind this one, which a session between device and server begins. `exported` is its keying material under
    /// [`EXPORTER`]. Returns `None` behind epoch 65,535: the device then needs a new device key.
    pub fn next<C: Crypto>(&self, exported: &Secret<PSK_LEN>) -> Option<Self> {
        let number = self.number.checked_add(1)?;
        let mut next = Self { number, ..Self::first(self.key.next::<C>()) };
        let (name, rest) = next.tickets.0.expose_mut().split_first_chunk_mut::<2>()?;
        *name = number.to_be_bytes();
        derive::<C>(exported.expose(), &[b"tegmen delegation tickets", name], rest);
        Some(next)
    }

    /// A value that device and server compare before they use the ticket key: they derive different keys if they do not mean the
    /// same session. It does not reveal the key.
    pub fn check<C: Crypto>(&self) -> [u8; CHECK_LEN] {
        let mut check = [0; CHECK_LEN];
        derive::<C>(self.tickets.0.expose(), &[b"tegmen delegation check"], &mut check);
        check
    }

    /// True if the epoch has a ticket key.
    pub const fn has_tickets(&self) -> bool {
        self.number > 0
    }
}

/// Writes the first bytes of the HMAC-SHA-256 of a message, as many as `out` has.
#[inline(never)]
fn derive<C: Crypto>(key: &[u8], message: &[&[u8]], out: &mut [u8]) {
    HmacKey::new::<C>(&[key]).mac_into::<C>(message, out);
}
