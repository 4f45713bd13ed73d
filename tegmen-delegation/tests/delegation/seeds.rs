//! Tests random histories of a device and its server, which both restart at random. Compares the device with a model of
//! the rules.

use crate::world::recorder::{Recorder, Spent};
use crate::world::{Model, OneDevice, Random, START, TIME, boot, delegation, key};
use std::collections::HashSet;
use tegmen::secret::Secret;
use tegmen_delegation::{Epoch, FlashMemory, Issuer, LONGEST_TICKET, Refused, Rejected, Ticket};

/// A delegation server. `epoch` is the present epoch of the device, as the store has it. `pending` is the epoch that
/// the server has begun and the device has not confirmed yet.
struct Server {
    epoch: Epoch,
    pending: Option<Epoch>,
    sealed: u32,
    crypto: Recorder,
    next_number: u32,
}

fn copy(epoch: &Epoch) -> Epoch {
    let key = tegmen_delegation::DeviceKey(Secret::new(*epoch.key.0.expose()));
    let tickets = tegmen_tickets::TicketKey(Secret::new(*epoch.tickets.0.expose()));
    Epoch { number: epoch.number, key, tickets }
}

struct History {
    random: Random,
    device: Option<OneDevice>,
    server: Server,
    tickets: Vec<(u16, u32, Vec<u8>)>,
    /// The connections in the present epoch whose refusal the device has acknowledged.
    revoked: HashSet<u32>,
    opened: u32,
    resets: u32,
}

impl History {
    fn new(seed: u64) -> Self {
        let flash = FlashMemory::format(Model::new(), &Epoch::first(key(1))).unwrap().into_flash();
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let crypto = Recorder::new(bytes, Spent::default());
        let server = Server { epoch: Epoch::first(key(1)), pending: None, sealed: 0, crypto, next_number: 1 };
        let mut history = Self {
            random: Random(seed),
            device: Some(boot(flash)),
            server,
            tickets: Vec::new(),
            revoked: HashSet::new(),
            opened: 0,
            resets: 0,
        };
        history.device().set_time(START, TIME);
        history
    }

    fn device(&mut self) -> &mut OneDevice {
        self.device.as_mut().unwrap()
    }

    /// Restarts the device, after its power was cut.
    fn restart(&mut self) {
        let mut flash = self.device.take().unwrap().into_memory().into_flash();
        flash.power = None;
        let mut device = boot(flash);
        device.set_time(START, TIME);
        self.device = Some(device);
    }

    /// Plans a power cut of the device after a random number of bytes.
    fn unplug_soon(&mut self) {
        let mut flash = self.device.take().unwrap().into_memory().into_flash();
        flash.power = Some(self.random.below(300) as usize);
        let mut device = boot(flash);
        device.set_time(START, TIME);
        self.device = Some(device);
    }

    /// Begins the next epoch in a session whose keying material both the device and the server know. The server stores
    /// the epoch before it sends the epoch to the device.
    fn reset(&mut self) {
        let number = self.device().epoch();
        if let Some(pending) = self.server.pending.take_if(|pending| pending.number == number) {
            (self.server.epoch, self.server.sealed) = (pending, 0);
        }
        if self.server.epoch.number != number {
            panic!("the server has epoch {}, the device {number}", self.server.epoch.number);
        }
        let mut exported = [0; 32];
        exported[..8].copy_from_slice(&self.random.below(u64::MAX).to_le_bytes());
        let exported = Secret::new(exported);
        let next = self.server.epoch.next::<Recorder>(&exported).unwrap();
        let (number, check) = (next.number, next.check::<Recorder>());
        self.server.pending = Some(copy(&next));
        match self.device().begin_epoch::<Recorder>(number, &exported, &check) {
            Ok(()) => {
                self.revoked.clear();
                self.resets += 1;
                // The response may be lost: then the server learns it in the next session.
                if self.random.below(3) > 0 {
                    (self.server.epoch, self.server.sealed, self.server.pending) = (next, 0, None);
                }
            }
            Err(rejected) => {
                assert_eq!(rejected, Rejected::Memory);
                self.restart();
                if self.device().epoch() == number {
                    self.revoked.clear();
                }
            }
        }
    }

    fn issue(&mut self) {
        if self.server.pending.is_some() || self.server.epoch.number == 0 {
            return;
        }
        let Server { epoch, sealed, crypto, next_number, .. } = &mut self.server;
        let mut issuer = Issuer::new(copy(epoch), None, *sealed);
        let mut room = [0; LONGEST_TICKET];
        let number = *next_number;
        let ticket = issuer.seal(crypto, &delegation(number, 0), &mut room).unwrap().0.to_vec();
        *sealed += 1;
        *next_number += 1;
        self.tickets.push((epoch.number, number, ticket));
    }

    fn revoke(&mut self) {
        let Some((epoch, number, _)) = self.pick() else { return };
        if epoch != self.device().epoch() {
            return;
        }
        match self.device().refuse(number) {
            Ok(_) => drop(self.revoked.insert(number)),
            Err(Rejected::NoPlace) => self.reset(),
            Err(_) => self.restart(),
        }
    }

    fn pick(&mut self) -> Option<(u16, u32, Vec<u8>)> {
        let len = self.tickets.len() as u64;
        (len > 0).then(|| self.tickets[self.random.below(len) as usize].clone())
    }

    fn show(&mut self) {
        let Some((epoch, number, mut ticket)) = self.pick() else { return };
        let forged = self.random.below(4) == 0;
        if forged {
            let at = self.random.below(ticket.len() as u64 - 2) as usize + 2;
            ticket[at] ^= 1 << self.random.below(8);
        }
        let mut crypto = Recorder::new([9; 32], Spent::default());
        let revoked = self.revoked.contains(&number);
        let current = self.device().epoch();
        let opened = self.device().open(START, &mut crypto, Ticket(&ticket));
        match opened {
            Ok(delegation) => {
                assert!(!forged && !revoked && epoch == current, "epoch {epoch} in {current}, {number}");
                assert_eq!(delegation.connection().unwrap().number, number);
                self.opened += 1;
            }
            Err(reason) => assert!(forged || epoch != current || reason == Refused::Revoked, "{reason:?}"),
        }
    }
}

#[test]
fn no_history_opens_a_revoked_old_or_forged_ticket() {
    let (mut opened, mut resets) = (0, 0);
    for seed in 0..10_000 {
        let mut history = History::new(seed);
        history.reset();
        for _ in 0..24 {
            match history.random.below(12) {
                0 => history.reset(),
                1..4 => history.issue(),
                4..6 => history.revoke(),
                6 => history.restart(),
                7 => history.unplug_soon(),
                _ => history.show(),
            }
        }
        opened += history.opened;
        resets += history.resets;
    }
    assert!(opened > 10_000 && resets > 10_000, "{opened} tickets opened, {resets} epochs begun");
}
