//! The keys that a device shares with its delegation server.

use tegmen::buf::{Full, Reader, Truncated, Writer};
use tegmen::crypto::hash::HmacKey;
use tegmen::crypto::{Crypto, DIGEST_LEN};
use tegmen::secret::{Secret, same};
use tegmen_tickets::{TICKET_KEY_LEN, TicketKey};

/// The label of the keying material of a session between device and server (RFC 5705). The key of the next epoch is
/// derived from this material.
pub const EXPORTER: &[u8] = b"EXPORTER-tegmen-delegation-epoch";
/// Number of bytes of a pre-shared key, and of the keying material under [`EXPORTER`].
pub const PSK_LEN: usize = DIGEST_LEN;

/// Number of bytes of [`Epoch::check`].
pub const CHECK_LEN: usize = 8;

/// The secret that a device shares with its delegation server during one epoch. The secret of the first epoch is 32
/// random bytes.
///
/// [`Self::next`] derives the secret of the next epoch. The next secret does not reveal this secret, so a stolen device
/// key does not open the sessions of earlier epochs.
#[derive(Debug)]
pub struct DeviceKey(pub Secret<PSK_LEN>);

impl DeviceKey {
    /// Returns the pre-shared key for a session between device and server. `identity` is the PSK identity in the
    /// handshake of this session.
    pub fn psk<C: Crypto>(&self, identity: &[u8]) -> Secret<PSK_LEN> {
        let mut psk = Secret::zeroed();
        derive::<C>(self.0.expose(), b"session\0", identity, psk.expose_mut());
        psk
    }

    /// Returns the secret of the next epoch.
    pub fn next<C: Crypto>(&self) -> Self {
        let mut next = Self(Secret::zeroed());
        self.write_next::<C>(&mut next.0);
        next
    }

    #[inline]
    fn write_next<C: Crypto>(&self, next: &mut Secret<PSK_LEN>) {
        derive::<C>(self.0.expose(), b"epoch", &[], next.expose_mut());
    }
}

/// An epoch: the period in which one key seals the tickets of a device.
#[derive(Debug)]
pub struct Epoch {
    /// The number of the epoch. It is 0 before the first epoch, when there are no tickets. The number is also the
    /// name of the ticket key.
    pub number: u16,
    /// The device key of this epoch.
    pub key: DeviceKey,
    /// The key that seals the tickets of this epoch.
    pub tickets: TicketKey,
}

impl Epoch {
    /// Number of bytes that [`Self::write`] writes.
    pub const LEN: usize = 2 + PSK_LEN + TICKET_KEY_LEN;

    /// Writes the epoch with its keys, for a [`Memory`](crate::Memory): number, device key, ticket key.
    ///
    /// # Errors
    /// [`Full`] if there is no space.
    #[inline]
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.u16(self.number)?;
        out.put(self.key.0.expose())?;
        out.put(self.tickets.0.expose())
    }

    /// Reads the bytes that [`Self::write`] wrote.
    ///
    /// # Errors
    /// [`Truncated`] if bytes are missing.
    #[inline]
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        let number = reader.u16()?;
        let key = DeviceKey(Secret::new(reader.array()?));
        Ok(Self { number, key, tickets: TicketKey(Secret::new(reader.array()?)) })
    }

    /// Creates the epoch of a device that is new, or was reset to a new device key.
    pub const fn first(key: DeviceKey) -> Self {
        Self { number: 0, key, tickets: TicketKey(Secret::zeroed()) }
    }

    /// Returns the epoch after this epoch. The device and the server begin that epoch during a session between them.
    /// `exported` is the keying material of this session under [`EXPORTER`]. Returns `None` if this is epoch 65,535:
    /// the device then needs a new device key.
    pub fn next<C: Crypto>(&self, exported: &Secret<PSK_LEN>) -> Option<Self> {
        let mut next = Self::blank();
        self.write_next::<C>(exported, &mut next).then_some(next)
    }

    /// Writes the result of [`Self::next`] to `next`. Returns false if this is epoch 65,535.
    pub(crate) fn write_next<C: Crypto>(&self, exported: &Secret<PSK_LEN>, next: &mut Self) -> bool {
        let Some(number) = self.number.checked_add(1) else { return false };
        next.number = number;
        self.key.write_next::<C>(&mut next.key.0);
        let Some((name, rest)) = next.tickets.0.expose_mut().split_first_chunk_mut::<2>() else { return false };
        *name = number.to_be_bytes();
        derive::<C>(exported.expose(), b"tickets", name, rest);
        true
    }

    /// Returns a value into which an epoch can be written. All its bytes are zero.
    pub(crate) const fn blank() -> Self {
        Self::first(DeviceKey(Secret::zeroed()))
    }

    /// Returns the number of the epoch, as the name of the ticket key contains it.
    pub(crate) const fn number_of_tickets(&self) -> u16 {
        let &[a, b, ..] = self.tickets.0.expose();
        u16::from_be_bytes([a, b])
    }

    /// Returns a value that device and server compare before they use the ticket key. If the device and the server
    /// derived the key from different sessions, their values differ. The value does not reveal the key.
    pub fn check<C: Crypto>(&self) -> [u8; CHECK_LEN] {
        let mut check = [0; CHECK_LEN];
        derive::<C>(self.tickets.0.expose(), b"check", &[], &mut check);
        check
    }

    /// Returns true if the epoch has this number, a ticket key, and this [check](Self::check).
    #[inline(never)]
    pub(crate) fn is_meant<C: Crypto>(&self, number: u16, check: &[u8; CHECK_LEN]) -> bool {
        self.number == number && self.has_tickets() && same(&self.check::<C>(), check)
    }

    /// Returns true if the epoch has a ticket key. Each epoch except epoch 0 has a ticket key.
    pub const fn has_tickets(&self) -> bool {
        self.number > 0
    }
}

/// Writes the first `out.len()` bytes of an HMAC-SHA-256 under `key` to `out`. The HMAC covers the label, and `more`
/// after it.
#[inline(never)]
fn derive<C: Crypto>(key: &[u8], label: &[u8], more: &[u8], out: &mut [u8]) {
    // The key is computed in place, because returning it would leave a copy.
    let mut hmac = HmacKey::none();
    hmac.set::<C>(&[key]);
    hmac.mac_into::<C>(&[b"tegmen delegation ", label, more], out);
}
