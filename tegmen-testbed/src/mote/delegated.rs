//! A simulated device of a delegation server, and the tickets that the server seals for the device.

use std::convert::Infallible;
use tegmen::crypto::Compact;
use tegmen::dtls::{CipherSuite, MASTER_LEN, SessionState};
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_delegation::{
    Connection, Delegation, Device, DeviceKey, Epoch, Issuer, LONGEST_TICKET, Lost, Memory, PSK_LEN,
};
use tegmen_tickets::TicketKeys;

/// A device that has space for one session from its delegation server.
pub(crate) type Simulated = Device<NotKept, 16, 1, 32>;

/// The memory of a device that never loses power, as in the laboratory. It contains the first epoch until the device
/// has loaded this epoch. The memory ignores everything that the device stores.
#[derive(Debug)]
pub(crate) struct NotKept(Option<Epoch>);

impl Memory for NotKept {
    type Error = Infallible;

    fn load(&mut self, epoch: &mut Epoch, _: &mut [u32]) -> Result<usize, Lost> {
        *epoch = self.0.take().ok_or(Lost)?;
        Ok(0)
    }

    fn keep_epoch(&mut self, _: &Epoch) -> Result<(), Infallible> {
        Ok(())
    }

    fn keep_refused(&mut self, _: u16, _: u32) -> Result<(), Infallible> {
        Ok(())
    }
}

/// Returns the first epoch in which the server seals tickets.
pub(crate) fn first_epoch(seed: [u8; PSK_LEN]) -> Epoch {
    let device_key = DeviceKey(Secret::new(seed));
    Epoch::first(device_key).next::<Compact>(&Secret::new(seed)).expect("epoch 1")
}

/// Returns the epoch that follows [`first_epoch`].
pub(crate) fn second_epoch(seed: [u8; PSK_LEN]) -> Epoch {
    first_epoch(seed).next::<Compact>(&Secret::new(seed)).expect("epoch 2")
}

/// Makes a device in the epoch [`first_epoch`], and the issuer of its server's tickets. The device's clock shows `time`
/// at `now`.
pub(crate) fn in_first_epoch(seed: [u8; PSK_LEN], now: Instant, time: u32) -> (Simulated, Issuer) {
    (in_epoch(first_epoch(seed), now, time), Issuer::new(first_epoch(seed), None, 0))
}

/// Makes a device in this epoch. The device's clock shows `time` at `now`.
pub(crate) fn in_epoch(epoch: Epoch, now: Instant, time: u32) -> Simulated {
    let mut device = Device::load(NotKept(Some(epoch))).expect("an epoch");
    device.set_time(now, time);
    device
}

/// Makes the delegated session of the connection `number`. The server opened the session at the time `since`. The
/// session ends at the time `expires`.
pub(crate) fn delegation(number: u32, since: u32, expires: u32) -> Delegation {
    let principal = Connection::new(number, 0).expect("a number below 2^24").principal();
    let mut master = [0x4d; MASTER_LEN];
    master[..4].copy_from_slice(&number.to_be_bytes());
    let (cipher_suite, master) = (CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8, Secret::new(master));
    Delegation { session: SessionState { cipher_suite, master, principal, since: Some(since) }, expires }
}

/// Seals the ticket of a delegated session.
pub(crate) fn seal(issuer: &mut Issuer, crypto: &mut Compact, delegation: &Delegation) -> Vec<u8> {
    let mut room = [0; LONGEST_TICKET];
    issuer.seal(crypto, delegation, &mut room).expect("fewer than 65,536 tickets").0.to_vec()
}

/// Returns true if a ticket contains no name of a peer. The encrypted state may contain only the cipher suite, the
/// master secret, the connection, the scope and two times. The unencrypted part may contain only the epoch and the
/// nonce.
pub(crate) fn names_no_peer() -> bool {
    let (seed, crypto) = ([1; PSK_LEN], &mut Compact::new([3; 32]));
    let (number, scope, since, expires) = (0x01_0203, 4, 0x0506_0708, 0x090a_0b0c);
    let mut sealed = delegation(number, since, expires);
    sealed.session.principal = Connection::new(number, scope).expect("a number below 2^24").principal();
    let ticket = seal(&mut Issuer::new(first_epoch(seed), None, 0), crypto, &sealed);
    let keys = TicketKeys::of([Some(first_epoch(seed).tickets), None, None, None], 0);
    let mut room = vec![0; ticket.len()];
    let Some(opened) = keys.open(crypto, &ticket, &mut room) else { return false };
    let suite = sealed.session.cipher_suite.0.to_be_bytes();
    let (number, times) = (number.to_be_bytes(), [since.to_be_bytes(), expires.to_be_bytes()].concat());
    let state = [&suite[..], sealed.session.master.expose(), &number[1..], &[scope], &times].concat();
    let clear = ticket.len() - state.len();
    opened.state == state && clear == tegmen_tickets::OVERHEAD && ticket.starts_with(&1u16.to_be_bytes())
}
