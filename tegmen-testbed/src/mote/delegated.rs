//! A device of a delegation server, and the tickets that its server seals for it.

use std::convert::Infallible;
use tegmen::crypto::Compact;
use tegmen::dtls::{CipherSuite, MASTER_LEN, SessionState};
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_delegation::{
    Connection, Delegation, Device, DeviceKey, Epoch, Issuer, LONGEST_TICKET, Lost, Memory, PSK_LEN,
};
use tegmen_tickets::TicketKeys;

/// A device with one place for a session that is handed over.
pub(crate) type Simulated = Device<NotKept, 16, 1, 32>;

/// A memory that keeps nothing beyond its first epoch, which the device reads once: the devices of the laboratory do not lose power.
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

/// The first epoch that has tickets.
pub(crate) fn first_epoch(seed: [u8; PSK_LEN]) -> Epoch {
    let device_key = DeviceKey(Secret::new(seed));
    Epoch::first(device_key).next::<Compact>(&Secret::new(seed)).expect("epoch 1")
}

/// The epoch after the first one that has tickets.
pub(crate) fn second_epoch(seed: [u8; PSK_LEN]) -> Epoch {
    first_epoch(seed).next::<Compact>(&Secret::new(seed)).expect("epoch 2")
}

/// A device in its first epoch that learned the time `time` now, and the tickets of its server.
pub(crate) fn in_first_epoch(seed: [u8; PSK_LEN], now: Instant, time: u32) -> (Simulated, Issuer) {
    (in_epoch(first_epoch(seed), now, time), Issuer::new(first_epoch(seed), None, 0))
}

/// A device in this epoch that learned the time `time` now.
pub(crate) fn in_epoch(epoch: Epoch, now: Instant, time: u32) -> Simulated {
    let mut device = Device::load(NotKept(Some(epoch))).expect("an epoch");
    device.set_time(now, time);
    device
}

/// The session of a connection that the server opened at the time `since`, which ends at `expires`.
pub(crate) fn delegation(number: u32, since: u32, expires: u32) -> Delegation {
    let principal = Connection::new(number, 0).expect("a number below 2^24").principal();
    let mut master = [0x4d; MASTER_LEN];
    master[..4].copy_from_slice(&number.to_be_bytes());
    let (cipher_suite, master) = (CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8, Secret::new(master));
    Delegation { session: SessionState { cipher_suite, master, principal, since: Some(since) }, expires }
}

/// Seals a ticket.
pub(crate) fn seal(issuer: &mut Issuer, crypto: &mut Compact, delegation: &Delegation) -> Vec<u8> {
    let mut room = [0; LONGEST_TICKET];
    issuer.seal(crypto, delegation, &mut room).expect("fewer than 65,536 tickets").0.to_vec()
}

/// True if the state that a ticket opens to has nothing but suite, master secret, connection, scope and two times, and its clear part
/// nothing but epoch and nonce.
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
