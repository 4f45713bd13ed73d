//! Tests handshakes with a device that contains no public-key cryptography.

use crate::world::recorder::{Recorder, Spent};
use crate::world::{End, Remote, START, TIME, delegation, device_end, in_first_epoch, key, new_device, seal, settle};
use tegmen::dtls::{AlertDescription, Fatal, Handle};
use tegmen::secret::Secret;
use tegmen_delegation::{Epoch, HandedOver, LONGEST_TICKET, Refused};

#[test]
fn a_peer_resumes_at_the_device_with_a_ticket() {
    let spent = Spent::default();
    let (state, mut issuer) = in_first_epoch(1);
    let (mut device, _) = device_end(state, &spent);
    let mut remote = End::new(2, 1, Remote::default(), &spent);
    let delegation = delegation(5, 3);
    let ticket = seal(&mut issuer, &mut remote.crypto, &delegation);
    assert!(ticket.len() == LONGEST_TICKET && ticket.len() <= 92);
    remote.connect_again(&delegation.session, Handle::Ticket(&ticket));
    settle(&mut remote, &mut device);
    assert!(remote.established.is_some());
    assert!(device.established.is_some() && device.resumed && remote.resumed);
    // A second use resumes again.
    remote.connect_again(&delegation.session, Handle::Ticket(&ticket));
    settle(&mut remote, &mut device);
    assert!(remote.established.is_some());
}

#[test]
fn a_device_resumes_at_its_peer_by_id_and_a_peer_at_the_device() {
    let spent = Spent::default();
    let (state, _) = in_first_epoch(1);
    let (mut device, cell) = device_end(state, &spent);
    let master = *delegation(1, 0).session.master.expose();
    let mut remote = End::new(2, 1, Remote { known: Some((vec![7; 32], master)) }, &spent);

    let kept = delegation(1, 0).state().unwrap();
    let session = HandedOver { state: kept.expose(), handle: Handle::Id(&[7; 32]), opens: true };
    cell.borrow_mut().keep(session).unwrap();
    {
        let mut state = cell.borrow_mut();
        let (session, handle) = state.to_open(START, 1).unwrap();
        device.connect_again(&session, handle);
    }
    settle(&mut device, &mut remote);
    assert!(device.established.is_some() && remote.established.is_some());

    let kept = delegation(2, 0).state().unwrap();
    let session = HandedOver { state: kept.expose(), handle: Handle::Id(&[8; 32]), opens: false };
    cell.borrow_mut().keep(session).unwrap();
    remote.connect_again(&delegation(2, 0).session, Handle::Id(&[8; 32]));
    settle(&mut remote, &mut device);
    assert!(remote.established.is_some());
}

#[test]
fn a_peer_that_does_not_resume_gets_no_weaker_session() {
    let spent = Spent::default();
    let (mut device, _) = device_end(in_first_epoch(1).0, &spent);
    let mut remote = End::new(2, 1, Remote::default(), &spent);
    (device.psk, remote.psk) = ([1; 32], [1; 32]);
    device.connect_again(&delegation(1, 0).session, Handle::Id(&[7; 32]));
    settle(&mut device, &mut remote);
    assert!(device.established.is_none() && remote.established.is_none());
    assert_eq!(device.closed, Some(Fatal::Alert(AlertDescription::HANDSHAKE_FAILURE)));
}

#[test]
fn all_refusals_are_one_alert_to_the_peer() {
    let spent = Spent::default();
    let (state, mut issuer) = in_first_epoch(1);
    let (mut device, cell) = device_end(state, &spent);
    let mut remote = End::new(2, 1, Remote::default(), &spent);
    cell.borrow_mut().refuse(5).unwrap();
    let (revoked, mut other) = (delegation(5, 0), in_first_epoch(2).1);
    let mut expired = delegation(6, 0);
    expired.expires = TIME;
    let mut early = delegation(7, 0);
    early.session.since = Some(TIME + 61);
    let tickets = [
        (Refused::Revoked, seal(&mut issuer, &mut remote.crypto, &revoked)),
        (Refused::Expired, seal(&mut issuer, &mut remote.crypto, &expired)),
        (Refused::Early, seal(&mut issuer, &mut remote.crypto, &early)),
        (Refused::Unknown, seal(&mut other, &mut remote.crypto, &delegation(8, 0))),
        (Refused::Epoch, vec![0; LONGEST_TICKET]),
    ];
    for (reason, ticket) in tickets {
        let before = cell.borrow().status().refusals.of(reason);
        remote.connect_again(&revoked.session, Handle::Ticket(&ticket));
        settle(&mut remote, &mut device);
        assert_eq!(remote.closed, Some(Fatal::Alert(AlertDescription::HANDSHAKE_FAILURE)), "{reason:?}");
        assert!(remote.established.is_none());
        assert!(cell.borrow().status().refusals.of(reason) > before, "{reason:?}");
    }
}

#[test]
fn a_copied_ticket_fails_without_its_master_secret() {
    let spent = Spent::default();
    let (state, mut issuer) = in_first_epoch(1);
    let (mut device, _) = device_end(state, &spent);
    let mut attacker = End::new(2, 1, Remote::default(), &spent);
    let ticket = seal(&mut issuer, &mut attacker.crypto, &delegation(5, 0));
    // It has another secret.
    attacker.connect_again(&delegation(6, 0).session, Handle::Ticket(&ticket));
    settle(&mut attacker, &mut device);
    assert!(attacker.established.is_none() && device.established.is_none());
}

#[test]
fn both_ends_of_a_session_with_the_server_derive_one_epoch() {
    let spent = Spent::default();
    let (mut device, cell) = device_end(new_device(1), &spent);
    let mut server = End::new(2, 1, Remote::default(), &spent);
    let psk = *key(1).psk::<Recorder>(b"sensor").expose();
    assert_eq!(psk, *cell.borrow().psk::<Recorder>(b"sensor").expose());
    (device.psk, server.psk) = (psk, psk);
    device.connect();
    settle(&mut device, &mut server);
    let exported = server.exported.unwrap();
    assert_eq!(Some(exported), device.exported);
    let epoch = Epoch::first(key(1)).next::<Recorder>(&Secret::new(exported)).unwrap();
    let check = epoch.check::<Recorder>();
    let begin = |check: &[u8; 8]| {
        let exported = Secret::new(exported);
        cell.borrow_mut().begin_epoch::<Recorder>(1, &exported, check)
    };
    assert!(begin(&[0; 8]).is_err() && cell.borrow().epoch() == 0);
    begin(&check).unwrap();
    assert_eq!(cell.borrow().epoch(), 1);
    // Again, as the server may repeat it.
    begin(&check).unwrap();
    assert!(begin(&[0; 8]).is_err());
}
