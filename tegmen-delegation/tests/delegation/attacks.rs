//! Attacks. Each first succeeds against a device or a server that lacks the rule.

use crate::world::recorder::{Recorder, Spent};
use crate::world::{
    End, Flashed, Remote, START, TIME, boot, crypto, delegation, device_end, first_epoch, in_first_epoch, open, seal,
    settle,
};
use tegmen::crypto::Crypto as _;
use tegmen::dtls::Handle;
use tegmen::secret::Secret;
use tegmen_delegation::{
    Connection, Device, Epoch, FlashMemory, HandedOver, Issuer, Memory, NotReissued, Refused, Rejected, Resources,
    Sessions, Stored, Ticket,
};

#[test]
fn a_ticket_opens_only_at_its_device() {
    let (mut one, mut issuer) = in_first_epoch(1);
    let ticket = seal(&mut issuer, &mut crypto(7), &delegation(5, 0));
    assert!(open(&mut one, &ticket).is_ok());
    // Devices with one key for all: the ticket opens at both.
    let (mut clone, _) = in_first_epoch(1);
    assert!(open(&mut clone, &ticket).is_ok());
    let (mut other, _) = in_first_epoch(2);
    assert_eq!(open(&mut other, &ticket), Err(Refused::Unknown));
}

type DelegatedEnd = End<Sessions<'static, Flashed, 4, 2, 64>>;

/// A memory that keeps epochs and forgets refused connections.
struct Forgetful(Option<Epoch>);

impl Memory for Forgetful {
    type Error = ();

    fn keep_epoch(&mut self, epoch: &Epoch) -> Result<(), ()> {
        let copy = |bytes: &[u8; 32]| Secret::new(*bytes);
        let key = tegmen_delegation::DeviceKey(copy(epoch.key.0.expose()));
        let tickets = tegmen_tickets::TicketKey(Secret::new(*epoch.tickets.0.expose()));
        self.0 = Some(Epoch { number: epoch.number, key, tickets });
        Ok(())
    }

    fn keep_refused(&mut self, _: u16, _: u32) -> Result<(), ()> {
        Ok(())
    }
}

#[test]
fn a_revoked_connection_is_refused_after_reboot() {
    let (mut device, mut issuer) = in_first_epoch(1);
    let ticket = seal(&mut issuer, &mut crypto(7), &delegation(5, 0));
    assert_eq!(device.refuse(5), Ok(3));
    let mut device = boot(device.into_memory().into_flash());
    device.set_time(START, TIME);
    assert_eq!(open(&mut device, &ticket), Err(Refused::Revoked));

    // With a memory that forgets, the connection is back.
    let stored = Stored { epoch: first_epoch(1, [1; 32]), refused: &[] };
    let mut forgetful: Device<_, 4, 2, 64> = Device::new(Forgetful(None), stored).unwrap();
    forgetful.refuse(5).unwrap();
    let stored = Stored { epoch: first_epoch(1, [1; 32]), refused: &[] };
    let mut forgetful: Device<_, 4, 2, 64> = Device::new(forgetful.into_memory(), stored).unwrap();
    forgetful.set_time(START, TIME);
    assert!(forgetful.open(START, &mut crypto(9), Ticket(&ticket)).is_ok());
}

#[test]
fn a_device_refuses_everything_before_it_knows_the_time() {
    let (device, mut issuer) = in_first_epoch(1);
    let ticket = seal(&mut issuer, &mut crypto(7), &delegation(5, 0));
    let mut device = boot(device.into_memory().into_flash());
    assert_eq!(open(&mut device, &ticket), Err(Refused::NoTime));
    device.set_time(START, TIME);
    assert!(open(&mut device, &ticket).is_ok());
}

#[test]
fn a_ticket_ends_with_the_clock_of_the_device() {
    let (mut device, mut issuer) = in_first_epoch(1);
    let ticket = seal(&mut issuer, &mut crypto(7), &delegation(5, 0));
    let mut at =
        |seconds: u32| device.open(START.after_millis(seconds * 1000), &mut crypto(9), Ticket(&ticket)).map(|_| ());
    assert_eq!(at(3597), Ok(()));
    assert_eq!(at(3603), Err(Refused::Expired));
}

#[test]
fn an_epoch_reset_ends_what_was_not_reauthorised() {
    let (mut device, mut issuer) = in_first_epoch(1);
    let (old, kept) = (delegation(5, 2), delegation(6, 0).state().unwrap());
    let ticket = seal(&mut issuer, &mut crypto(7), &old);
    device.keep(HandedOver { state: kept.expose(), handle: Handle::Id(&[8; 32]), opens: false }).unwrap();
    // Without a reset both work.
    assert!(open(&mut device, &ticket).is_ok() && device.find(START, &[8; 32]).is_some());

    let exported = Secret::new([3; 32]);
    let next = first_epoch(1, [1; 32]).next::<Recorder>(&exported).unwrap();
    device.begin_epoch::<Recorder>(2, &exported, &next.check::<Recorder>()).unwrap();
    assert_eq!(open(&mut device, &ticket), Err(Refused::Epoch));
    assert!(device.find(START, &[8; 32]).is_none());
    let mut device = boot(device.into_memory().into_flash());
    device.set_time(START, TIME);
    assert_eq!(open(&mut device, &ticket), Err(Refused::Epoch));

    // The server issues a new ticket to the peer that returns.
    let mut issuer = Issuer::new(next, Some(first_epoch(1, [1; 32])), 0);
    let again = issuer.reissue(&mut crypto(7), Ticket(&ticket), TIME + 5, 9, |_| false).unwrap();
    let ticket = seal(&mut issuer, &mut crypto(7), &again);
    assert_eq!(open(&mut device, &ticket), Ok(Connection::new(9, 2).unwrap()));
}

#[test]
fn reissue_never_extends_a_right() {
    let (_, mut issuer) = in_first_epoch(1);
    let old = delegation(5, 2);
    let ticket = seal(&mut issuer, &mut crypto(7), &old);
    let next = || first_epoch(1, [1; 32]).next::<Recorder>(&Secret::new([3; 32])).unwrap();
    let issuer = Issuer::new(next(), Some(first_epoch(1, [1; 32])), 0);
    let new = issuer.reissue(&mut crypto(7), Ticket(&ticket), TIME + 3599, 9, |_| false).unwrap();
    // A new session would have a later time, another end and another scope.
    let opened_now = delegation(9, 3);
    assert_ne!(opened_now.connection().unwrap().scope, new.connection().unwrap().scope);
    assert_eq!(new.connection(), Connection::new(9, 2));
    assert_eq!((new.session.since, new.expires), (Some(TIME), old.expires));
    assert_eq!(new.session.master.expose(), old.session.master.expose());

    let reissue =
        |now, revoked: u32| issuer.reissue(&mut crypto(7), Ticket(&ticket), now, 9, |number| number == revoked);
    assert_eq!(reissue(TIME, 5).err(), Some(NotReissued::Revoked));
    assert_eq!(reissue(old.expires, 0).err(), Some(NotReissued::Expired));
    // Two epochs later nobody opens it.
    let after = next().next::<Recorder>(&Secret::new([4; 32])).unwrap();
    let issuer = Issuer::new(after, Some(next()), 0);
    let refused = issuer.reissue(&mut crypto(7), Ticket(&ticket), TIME, 9, |_| false);
    assert_eq!(refused.err(), Some(NotReissued::Unknown));
}

#[test]
fn forged_tickets_cannot_force_an_epoch_reset() {
    let (mut device, mut issuer) = in_first_epoch(1);
    let before = device.status();
    let mut forger = crypto(11);
    for _ in 0..100_000 {
        let mut ticket = [0; tegmen_delegation::LONGEST_TICKET];
        forger.random(&mut ticket);
        ticket[..2].copy_from_slice(&[0, 1]);
        assert_eq!(device.open(START, &mut forger, Ticket(&ticket)).err(), Some(Refused::Unknown));
    }
    // Only the count changes: no place of the list is taken, and the epoch is the same.
    let after = device.status();
    assert_eq!((after.epoch, after.refused, after.sessions), (before.epoch, before.refused, before.sessions));
    assert_eq!(after.refusals.of(Refused::Unknown), u16::MAX);
    let ticket = seal(&mut issuer, &mut crypto(7), &delegation(5, 0));
    assert!(open(&mut device, &ticket).is_ok());
    // What forces one is a full list, which only the server fills.
    assert!((1..=4).all(|number| device.refuse(number).is_ok()));
    assert_eq!(device.refuse(9), Err(Rejected::NoPlace));
    assert_eq!(device.refuse(2), Ok(0));
}

#[test]
fn a_peer_cannot_prevent_an_epoch_by_a_session_of_its_own() {
    let spent = Spent::default();
    let (state, mut issuer) = in_first_epoch(1);
    let (mut device, cell) = device_end(state, &spent);
    device.resources = Some(Resources { device: cell, exported: None, now: START, due: None });
    let mut other = End::new(2, 1, Remote::default(), &spent);
    (device.psk, other.psk) = ([1; 32], [1; 32]);
    device.connect();
    settle(&mut device, &mut other);
    let of_server = other.exported;
    let kept = |device: &mut DelegatedEnd| {
        device.resources.as_ref().and_then(|resources| resources.exported.as_ref().map(|exported| *exported.expose()))
    };
    assert!(of_server.is_some() && kept(&mut device) == of_server);

    let delegated = delegation(5, 0);
    let ticket = seal(&mut issuer, &mut other.crypto, &delegated);
    other.connect_again(&delegated.session, Handle::Ticket(&ticket));
    settle(&mut other, &mut device);
    // The session of the peer has keying material, too, with which no check of the server is right.
    assert!(device.resumed && device.exported != of_server);
    assert_eq!(kept(&mut device), of_server);
}

#[test]
fn a_restored_server_never_repeats_a_nonce() {
    // Server and copy draw the same random numbers, and seal for other peers.
    let nonce_of = |number| {
        let (_, mut issuer) = in_first_epoch(1);
        seal(&mut issuer, &mut crypto(7), &delegation(number, 0))[2..11].to_vec()
    };
    let (mut one, mut copy) = ([0; 16], [0; 16]);
    crypto(7).random(&mut one);
    crypto(7).random(&mut copy);
    assert_eq!(one, copy, "a nonce that is only drawn repeats");
    let nonces: std::collections::HashSet<_> = (0..2000).map(nonce_of).collect();
    assert_eq!(nonces.len(), 2000);
    assert_eq!(nonce_of(3), nonce_of(3), "the same ticket is the same bytes");
}

#[test]
fn an_epoch_has_65536_tickets() {
    let epoch = first_epoch(1, [1; 32]);
    let mut issuer = Issuer::new(epoch, None, 65_535);
    let mut room = [0; tegmen_delegation::LONGEST_TICKET];
    assert!(issuer.seal(&mut crypto(7), &delegation(5, 0), &mut room).is_ok());
    assert!(issuer.seal(&mut crypto(7), &delegation(5, 0), &mut room).is_err());
    let mut none = Issuer::new(Epoch::first(crate::world::key(1)), None, 0);
    assert!(none.seal(&mut crypto(7), &delegation(5, 0), &mut room).is_err());
    let _ = FlashMemory::open(crate::world::Model::new(), &mut []).unwrap_err();
}
