//! Tests attacks on delegated sessions. Each attack first succeeds against a mutant: a device or a server that lacks
//! the rule which prevents the attack.

use crate::world::recorder::{Recorder, Spent};
use crate::world::{
    End, Flashed, OneDevice, Remote, START, TIME, boot, crypto, delegation, device_end, first_epoch, in_first_epoch,
    key, new_device, open, request, seal, settle,
};
use tegmen::address::Address;
use tegmen::coap::Code;
use tegmen::crypto::Crypto as _;
use tegmen::dtls::{Handle, MASTER_LEN, SessionState};
use tegmen::identity::Principal;
use tegmen::secret::Secret;
use tegmen_delegation::{
    Connection, Delegation, Device, Epoch, FlashMemory, Go, HandedOver, Issuer, LONGEST_TICKET, Lost, Memory,
    NotReissued, Refused, Rejected, Request, Resources, SERVER, Sessions, Ticket,
};
use tegmen_tickets::TicketKeys;

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

/// The memory of a mutant. It reports success for each value that the mutant stores, but stores nothing.
struct Forgetful;

impl Memory for Forgetful {
    type Error = ();

    fn load(&mut self, epoch: &mut Epoch, _: &mut [u32]) -> Result<usize, Lost> {
        *epoch = first_epoch(1, [1; 32]);
        Ok(0)
    }

    fn keep_epoch(&mut self, _: &Epoch) -> Result<(), ()> {
        Ok(())
    }

    fn keep_refused(&mut self, _: u16, _: u32) -> Result<(), ()> {
        Ok(())
    }
}

/// Returns a mutant that starts with epoch 1 in its memory, and knows the time.
fn forgetful() -> Device<Forgetful, 4, 2, 64> {
    let mut device = Device::load(Forgetful).unwrap();
    device.set_time(START, TIME);
    device
}

#[test]
fn a_revoked_connection_is_refused_after_reboot() {
    let (mut device, mut issuer) = in_first_epoch(1);
    let ticket = seal(&mut issuer, &mut crypto(7), &delegation(5, 0));
    // The power of the mutant goes off and on again, and the connection is back.
    let mut mutant = forgetful();
    assert_eq!(mutant.refuse(5), Ok(3));
    assert_eq!(mutant.open(START, &mut crypto(9), Ticket(&ticket)).err(), Some(Refused::Revoked));
    assert!(forgetful().open(START, &mut crypto(9), Ticket(&ticket)).is_ok());

    assert_eq!(device.refuse(5), Ok(3));
    let mut device = boot(device.into_memory().into_flash());
    device.set_time(START, TIME);
    assert_eq!(open(&mut device, &ticket), Err(Refused::Revoked));
}

#[test]
fn a_number_of_no_connection_hides_no_refused_connection() {
    let (mut device, mut issuer) = in_first_epoch(1);
    let ticket = seal(&mut issuer, &mut crypto(7), &delegation(5, 0));
    assert!(open(&mut device, &ticket).is_ok());
    for number in [u32::MAX, 5, u32::MAX, 6, 7, 8] {
        assert!(device.refuse(number).is_ok(), "{number}");
    }
    assert_eq!(device.refuse(u32::MAX), Err(Rejected::NoPlace));
    assert_eq!(open(&mut device, &ticket), Err(Refused::Revoked));
    let mut device = boot(device.into_memory().into_flash());
    device.set_time(START, TIME);
    assert_eq!(open(&mut device, &ticket), Err(Refused::Revoked));
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

/// Returns epoch 2 of the device, and the keying material from which it is derived.
fn second_epoch() -> (Epoch, Secret<32>) {
    let exported = Secret::new([3; 32]);
    (first_epoch(1, [1; 32]).next::<Recorder>(&exported).unwrap(), exported)
}

#[test]
fn an_epoch_reset_ends_what_was_not_reauthorised() {
    let (mut device, mut issuer) = in_first_epoch(1);
    let (old, kept) = (delegation(5, 2), delegation(6, 0).state().unwrap());
    let ticket = seal(&mut issuer, &mut crypto(7), &old);
    device.keep(HandedOver { state: kept.expose(), handle: Handle::Id(&[8; 32]), opens: false }).unwrap();
    // Without a reset both work.
    assert!(open(&mut device, &ticket).is_ok() && device.find(START, &[8; 32]).is_some());

    let (next, exported) = second_epoch();
    let check = next.check::<Recorder>();
    // A mutant that opens tickets as its server does, with the keys of both epochs, and one that is in the old epoch again after a
    // restart.
    let ring = TicketKeys::of([Some(second_epoch().0.tickets), None, Some(first_epoch(1, [1; 32]).tickets), None], 0);
    assert!(ring.open(&mut crypto(9), &ticket, &mut [0; LONGEST_TICKET]).is_some());
    forgetful().begin_epoch::<Recorder>(2, &exported, &check).unwrap();
    assert!(forgetful().open(START, &mut crypto(9), Ticket(&ticket)).is_ok());

    device.begin_epoch::<Recorder>(2, &exported, &check).unwrap();
    assert_eq!(open(&mut device, &ticket), Err(Refused::Epoch));
    assert!(device.find(START, &[8; 32]).is_none());
    let mut device = boot(device.into_memory().into_flash());
    device.set_time(START, TIME);
    assert_eq!(open(&mut device, &ticket), Err(Refused::Epoch));
    // The name of the key in front of the ticket is that of the new one.
    let renamed = [&[0, 2], &ticket[2..]].concat();
    assert_eq!(open(&mut device, &renamed), Err(Refused::Unknown));

    // The server issues a new ticket to the peer that returns.
    let mut issuer = Issuer::new(next, Some(first_epoch(1, [1; 32])), 0);
    let again = issuer.reissue(&mut crypto(7), Ticket(&ticket), TIME + 5, 9, |_| false).unwrap();
    let ticket = seal(&mut issuer, &mut crypto(7), &again);
    assert_eq!(open(&mut device, &ticket), Ok(Connection::new(9, 2).unwrap()));
}

/// Does the work of a mutant of the server: if a peer shows an old ticket, the mutant treats the peer as if the peer
/// had authenticated itself now.
fn authenticated_again(old: &Delegation, now: u32, number: u32) -> Delegation {
    let session = SessionState { since: Some(now), ..delegation(number, 0).session };
    Delegation { session, expires: now + (old.expires - TIME) }
}

#[test]
fn reissue_never_extends_a_right() {
    let (mut device, mut issuer) = in_first_epoch(1);
    let old = delegation(5, 2);
    let ticket = seal(&mut issuer, &mut crypto(7), &old);
    let (next, exported) = second_epoch();
    device.begin_epoch::<Recorder>(2, &exported, &next.check::<Recorder>()).unwrap();
    device.set_time(START, TIME);
    let mut issuer = Issuer::new(next, Some(first_epoch(1, [1; 32])), 0);
    // The peer returns shortly before its end, and uses the new ticket after it.
    let (now, later) = (TIME + 3500, START.after_millis(3_603_000));
    let mut at_end = |issuer: &mut Issuer, new: &Delegation| {
        let ticket = seal(issuer, &mut crypto(7), new);
        let opened = device.open(later, &mut crypto(9), Ticket(&ticket));
        opened.map(|delegation| delegation.connection().unwrap().scope)
    };
    assert_eq!(at_end(&mut issuer, &authenticated_again(&old, now, 9)), Ok(0), "the mutant: another end and scope");
    let new = issuer.reissue(&mut crypto(7), Ticket(&ticket), now, 9, |_| false).unwrap();
    assert_eq!(at_end(&mut issuer, &new), Err(Refused::Expired));
    assert_eq!(new.connection(), Connection::new(9, 2));
    assert_eq!((new.session.since, new.expires), (Some(TIME), old.expires));
    assert_eq!(new.session.master.expose(), old.session.master.expose());

    // The mutant does not ask for revocations of the epoch before. The new number is on no list of the device.
    let reissue =
        |now, revoked: u32| issuer.reissue(&mut crypto(7), Ticket(&ticket), now, 9, |number| number == revoked);
    assert!(!device.is_refused(reissue(TIME, 0).unwrap().connection().unwrap().number));
    assert_eq!(reissue(TIME, 5).err(), Some(NotReissued::Revoked));
    assert_eq!(reissue(old.expires, 0).err(), Some(NotReissued::Expired));
    // Two epochs later nobody opens it.
    let after = second_epoch().0.next::<Recorder>(&Secret::new([4; 32])).unwrap();
    let issuer = Issuer::new(after, Some(second_epoch().0), 0);
    let refused = issuer.reissue(&mut crypto(7), Ticket(&ticket), TIME, 9, |_| false);
    assert_eq!(refused.err(), Some(NotReissued::Unknown));
}

/// Does the work of a mutant of the device: if a ticket does not open, the mutant refuses the connection whose number
/// is in the ticket, as if the number were authentic.
fn remember_forged(device: &mut OneDevice, ticket: &[u8]) -> Result<usize, Rejected> {
    let numbered: [u8; 4] = *ticket.last_chunk().unwrap();
    device.refuse(u32::from_be_bytes(numbered) >> 8)
}

#[test]
fn forged_tickets_cannot_force_an_epoch_reset() {
    let mut forger = crypto(11);
    let mut forged = || {
        let mut ticket = [0; LONGEST_TICKET];
        forger.random(&mut ticket);
        ticket[..2].copy_from_slice(&[0, 1]);
        ticket
    };
    // At the mutant five forged tickets fill the list, and the server has to begin an epoch.
    let (mut mutant, _) = in_first_epoch(1);
    let filled: Vec<_> = (0..5).map(|_| remember_forged(&mut mutant, &forged())).collect();
    assert_eq!(filled, [Ok(3), Ok(2), Ok(1), Ok(0), Err(Rejected::NoPlace)]);

    let (mut device, mut issuer) = in_first_epoch(1);
    let (before, mut crypto) = (device.status(), crypto(9));
    for _ in 0..100_000 {
        let ticket = forged();
        assert_eq!(device.open(START, &mut crypto, Ticket(&ticket)).err(), Some(Refused::Unknown));
    }
    // Only the count changes: no place of the list is taken, and the epoch is the same.
    let after = device.status();
    assert_eq!((after.epoch, after.refused, after.sessions), (before.epoch, before.refused, before.sessions));
    assert_eq!(after.refusals.of(Refused::Unknown), u16::MAX);
    let ticket = seal(&mut issuer, &mut crypto, &delegation(5, 0));
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

/// Returns the request to begin the epoch after `before`, and this epoch. The epoch is derived from the keying material
/// `exported`.
fn to_begin(before: &Epoch, exported: [u8; 32]) -> (Request<'static>, Epoch) {
    let next = before.next::<Recorder>(&Secret::new(exported)).unwrap();
    (Request::Epoch { number: next.number, time: TIME, check: next.check::<Recorder>() }, next)
}

#[test]
fn the_memory_of_a_device_reveals_no_ticket_key_of_an_earlier_epoch() {
    let (_, cell) = device_end(new_device(1), &Spent::default());
    let exported = [3; 32];
    let mut resources = Resources { device: cell, exported: Some(Secret::new(exported)), now: START, due: None };
    let (first, epoch) = to_begin(&Epoch::first(key(1)), exported);
    let wrong = Request::Epoch { number: 1, time: TIME, check: [0; 8] };
    assert_eq!(request(&mut resources, SERVER, &wrong), Code::CONFLICT);
    assert!(resources.exported.is_some(), "no epoch has begun in this session");
    assert_eq!(request(&mut resources, SERVER, &first), Code::CHANGED);
    // The server of a mutant begins two epochs in one session. An attacker that then reads the memory of the device has
    // the keys of both epochs.
    let (second, of_mutant) = to_begin(&epoch, exported);
    assert_ne!(of_mutant.tickets.0.expose(), epoch.tickets.0.expose());
    assert!(resources.exported.is_none(), "the keying material is erased");
    assert_eq!(request(&mut resources, SERVER, &second), Code::CONFLICT);
    assert_eq!(request(&mut resources, SERVER, &Request::Status), Code::CONTENT, "the session continues");
    assert_eq!(cell.borrow().epoch(), 1);
    // Another session has different keying material.
    resources.exported = Some(Secret::new([4; 32]));
    assert_eq!(request(&mut resources, SERVER, &to_begin(&epoch, [4; 32]).0), Code::CHANGED);
    assert_eq!(cell.borrow().epoch(), 2);
}

#[test]
fn only_the_delegation_server_sends_requests_to_the_resources_of_a_device() {
    let (_, cell) = device_end(new_device(1), &Spent::default());
    let exported = || Some(Secret::new([3; 32]));
    let mut resources = Resources { device: cell, exported: exported(), now: START, due: None };
    let begin = to_begin(&Epoch::first(key(1)), [3; 32]).0;
    let state = delegation(6, 0).state().unwrap();
    let keep = HandedOver { state: state.expose(), handle: Handle::Id(&[8; 32]), opens: true };
    let go = Go { number: 6, peer: Address { ip: [0xfd; 16], port: 5684, scope: 0 } };
    let requests =
        [begin, Request::Refuse(5), Request::Keep(keep), Request::Go { go, server_name: b"" }, Request::Status];
    let before = cell.borrow().status();
    for peer in [Principal::NOBODY, Principal(7), Connection::new(5, 0).unwrap().principal()] {
        for of_peer in &requests {
            assert_eq!(request(&mut resources, peer, of_peer), Code::FORBIDDEN, "{peer:?} {of_peer:?}");
        }
    }
    assert_eq!((cell.borrow().status(), resources.due, cell.borrow().time(START)), (before, None, None));
    for of_server in &requests {
        assert!(request(&mut resources, SERVER, of_server).is_success(), "{of_server:?}");
    }
}

/// Returns the ticket of a mutant of the server. The nonce of the ticket consists only of random bytes. If a copy of
/// the server draws the same random bytes, it seals another ticket with the same nonce.
fn sealed_under_drawn(epoch: &Epoch, crypto: &mut Recorder, delegation: &Delegation) -> Vec<u8> {
    let (name, rest) = epoch.tickets.0.expose().split_at(2);
    let (key, salt) = rest.split_at(16);
    let mut drawn = [0; 9];
    crypto.random(&mut drawn);
    let (mut state, mut tag) = (*delegation.state().unwrap().expose(), [0; 16]);
    let nonce = [salt, &drawn].concat();
    crypto.seal(Recorder::AES_128_CCM, key, &nonce, name, &mut state, &mut tag).unwrap();
    [name, &drawn, &state, &tag].concat()
}

/// Computes the master secret in the ticket `other` of another peer. The attacker uses its own ticket `own`, and the
/// session in its own ticket. This works if both tickets were sealed under the same nonce.
fn master_of(other: &[u8], own: &[u8], session: &Delegation) -> Vec<u8> {
    let state = session.state().unwrap();
    let xored = other[11..].iter().zip(&own[11..]).zip(state.expose()).map(|((other, own), state)| other ^ own ^ state);
    xored.skip(2).take(MASTER_LEN).collect()
}

#[test]
fn a_restored_server_never_repeats_a_nonce() {
    // Server and copy draw the same random numbers, and seal for other peers.
    let (of_victim, of_attacker) = (delegation(5, 0), delegation(6, 0));
    let [victim, attacker] =
        [&of_victim, &of_attacker].map(|of| sealed_under_drawn(&first_epoch(1, [1; 32]), &mut crypto(7), of));
    assert!(open(&mut in_first_epoch(1).0, &victim).is_ok(), "it is a ticket");
    assert_eq!(master_of(&victim, &attacker, &of_attacker), of_victim.session.master.expose());

    let sealed = |delegation: &Delegation| seal(&mut in_first_epoch(1).1, &mut crypto(7), delegation);
    let [victim, attacker] = [&of_victim, &of_attacker].map(sealed);
    assert_ne!(master_of(&victim, &attacker, &of_attacker), of_victim.session.master.expose());
    let nonce_of = |number| sealed(&delegation(number, 0))[2..11].to_vec();
    let nonces: std::collections::HashSet<_> = (0..2000).map(nonce_of).collect();
    assert_eq!(nonces.len(), 2000);
    assert_eq!(nonce_of(3), nonce_of(3), "the same ticket is the same bytes");
}

#[test]
fn an_epoch_has_65536_tickets() {
    let epoch = first_epoch(1, [1; 32]);
    let mut issuer = Issuer::new(epoch, None, 65_535);
    let mut room = [0; LONGEST_TICKET];
    assert!(issuer.seal(&mut crypto(7), &delegation(5, 0), &mut room).is_ok());
    assert!(issuer.seal(&mut crypto(7), &delegation(5, 0), &mut room).is_err());
    let mut none = Issuer::new(Epoch::first(crate::world::key(1)), None, 0);
    assert!(none.seal(&mut crypto(7), &delegation(5, 0), &mut room).is_err());
    assert_eq!(Device::<_, 4, 2, 64>::load(FlashMemory::new(crate::world::Model::new())).err(), Some(Lost));
}
