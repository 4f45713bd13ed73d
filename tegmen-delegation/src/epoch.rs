//! The keys that a device shares with its delegation server.

use tegmen::buf::{Full, Reader, Truncated, Writer};
use tegmen::crypto::hash::HmacKey;
use tegmen::crypto::{Crypto, DIGEST_LEN};
use tegmen::secret::{Secret, same};
use tegmen_tickets::{TICKET_KEY_LEN, TicketKey};

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
        let mut psk = Secret::zeroed();
        derive::<C>(self.0.expose(), b"session\0", identity, psk.expose_mut());
        psk
    }

    /// The secret of the next epoch.
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

/// An epoch: the time between two resets, in which one key seals the tickets of a device.
#[derive(Debug)]
pub struct Epoch {
    /// The number of the epoch, 0 before the first one. There are no tickets in epoch 0. The ticket key has the number as its name.
    pub number: u16,
    /// The device key of the epoch.
    pub key: DeviceKey,
    /// The key of the tickets.
    pub tickets: TicketKey,
}

impl Epoch {
    /// Bytes of [`Self::write`].
    pub const LEN: usize = 2 + PSK_LEN + TICKET_KEY_LEN;

    /// Writes the epoch with its keys, for a [`Memory`](crate::Memory): number, device key, ticket key.
    ///
    /// # Errors
    /// [`Full`].
    #[inline]
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        out.u16(self.number)?;
        out.put(self.key.0.expose())?;
        out.put(self.tickets.0.expose())
    }

    /// Reads the output of [`Self::write`].
    ///
    /// # Errors
    /// [`Truncated`].
    #[inline]
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Truncated> {
        let number = reader.u16()?;
        let key = DeviceKey(Secret::new(reader.array()?));
        Ok(Self { number, key, tickets: TicketKey(Secret::new(reader.array()?)) })
    }

    /// The epoch of a device that is new, or was reset to a new device key.
    pub const fn first(key: DeviceKey) -> Self {
        Self { number: 0, key, tickets: TicketKey(Secret::zeroed()) }
    }

    /// The epoch after this one, which a session between device and server begins. `exported` is its keying material under
    /// [`EXPORTER`]. Returns `None` behind epoch 65,535: the device then needs a new device key.
    pub fn next<C: Crypto>(&self, exported: &Secret<PSK_LEN>) -> Option<Self> {
        let mut next = Self::blank();
        self.write_next::<C>(exported, &mut next).then_some(next)
    }

    /// Writes [`Self::next`] to `next`. Returns false behind epoch 65,535.
    pub(crate) fn write_next<C: Crypto>(&self, exported: &Secret<PSK_LEN>, next: &mut Self) -> bool {
        let Some(number) = self.number.checked_add(1) else { return false };
        next.number = number;
        self.key.write_next::<C>(&mut next.key.0);
        let Some((name, rest)) = next.tickets.0.expose_mut().split_first_chunk_mut::<2>() else { return false };
        *name = number.to_be_bytes();
        derive::<C>(exported.expose(), b"tickets", name, rest);
        true
    }

    /// A place for an epoch.
    pub(crate) const fn blank() -> Self {
        Self::first(DeviceKey(Secret::zeroed()))
    }

    /// The number that the ticket key has as its name.
    pub(crate) const fn number_of_tickets(&self) -> u16 {
        let &[a, b, ..] = self.tickets.0.expose();
        u16::from_be_bytes([a, b])
    }

    /// A value that device and server compare before they use the ticket key: they derive different keys if they do not mean the
    /// same session. It does not reveal the key.
    pub fn check<C: Crypto>(&self) -> [u8; CHECK_LEN] {
        let mut check = [0; CHECK_LEN];
        derive::<C>(self.tickets.0.expose(), b"check", &[], &mut check);
        check
    }

    /// True if the epoch has this number, tickets and this [check](Self::check).
    #[inline(never)]
    pub(crate) fn is_meant<C: Crypto>(&self, number: u16, check: &[u8; CHECK_LEN]) -> bool {
        self.number == number && self.has_tickets() && same(&self.check::<C>(), check)
    }

    /// True if the epoch has a ticket key.
    pub const fn has_tickets(&self) -> bool {
        self.number > 0
    }
}

/// Writes the first bytes of the HMAC-SHA-256 of what is derived, and what follows it, as many as `out` has.
#[inline(never)]
fn derive<C: Crypto>(key: &[u8], label: &[u8], more: &[u8], out: &mut [u8]) {
    // In place, because a key that is returned is copied.
    let mut hmac = HmacKey::none();
    hmac.set::<C>(&[key]);
    hmac.mac_into::<C>(&[b"tegmen delegation ", label, more], out);
}
