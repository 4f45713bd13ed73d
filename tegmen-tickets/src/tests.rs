use super::*;
use std::vec::Vec;
use tegmen_base::crypto::Compact;

fn sealed(keys: &mut TicketKeys, crypto: &mut Compact, state: &[u8]) -> Vec<u8> {
    let mut storage = [0; 200];
    let mut writer = Writer::new(&mut storage);
    keys.seal(crypto, state, &mut writer).unwrap();
    writer.written().to_vec()
}

#[test]
fn a_ticket_opens_as_it_was_and_only_as_it_was() {
    let crypto = &mut Compact::new([1; 32]);
    let mut keys = TicketKeys::draw(crypto);
    let ticket = sealed(&mut keys, crypto, b"what is remembered");
    assert_eq!(ticket.len(), 18 + OVERHEAD);
    let room = &mut [0; 64];
    let opened = keys.open(crypto, &ticket, room).unwrap();
    assert_eq!(opened, Opened { state: b"what is remembered", fresh: true });
    for bit in 0..ticket.len() * 8 {
        let mut forged = ticket.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert!(keys.open(crypto, &forged, room).is_none(), "bit {bit}");
    }
    for cut in 0..ticket.len() {
        assert!(keys.open(crypto, &ticket[..cut], room).is_none(), "{cut} bytes");
    }
    assert!(keys.open(crypto, &[&ticket[..], &[0]].concat(), room).is_none());
    assert!(keys.open(crypto, &ticket, &mut [0; 17]).is_none());
    assert!(TicketKeys::draw(crypto).open(crypto, &ticket, room).is_none());
    assert_ne!(sealed(&mut keys, crypto, b"what is remembered"), ticket);
}

#[test]
fn a_clone_with_the_same_generator_repeats_no_nonce_for_another_state() {
    let copy = |keys: &TicketKeys| {
        let copy = |key: Option<&TicketKey>| key.map(|key| TicketKey(Secret::new(*key.0.expose())));
        TicketKeys::of(keys.keys().map(copy), 0)
    };
    let one = TicketKeys::draw(&mut Compact::new([1; 32]));
    let seal = |state: &[u8]| sealed(&mut copy(&one), &mut Compact::new([2; 32]), state);
    let nonce = |ticket: Vec<u8>| ticket[..NAME_LEN + DRAWN_LEN].to_vec();
    assert_eq!(nonce(seal(b"state")), nonce(seal(b"state")));
    assert_ne!(nonce(seal(b"state")), nonce(seal(b"other")));
}

#[test]
fn two_old_keys_open_and_a_third_does_not() {
    let crypto = &mut Compact::new([1; 32]);
    let mut keys = TicketKeys::draw(crypto);
    let ticket = sealed(&mut keys, crypto, b"state");
    let room = &mut [0; 64];
    for (rotations, expected) in [(0, Some(true)), (1, Some(false)), (2, Some(false)), (3, None), (4, None)] {
        let got = keys.open(crypto, &ticket, room).map(|opened| opened.fresh);
        assert_eq!(got, expected, "after {rotations}");
        keys.rotate(TicketKey::draw(crypto));
    }
}

#[test]
fn who_knows_the_next_key_opens_what_others_seal_already() {
    let crypto = &mut Compact::new([1; 32]);
    let mut ahead = TicketKeys::draw(crypto);
    let copy = |key: Option<&TicketKey>| key.map(|key| TicketKey(Secret::new(*key.0.expose())));
    let behind = TicketKeys::of(ahead.keys().map(copy), 0);
    ahead.rotate(TicketKey::draw(crypto));
    let ticket = sealed(&mut ahead, crypto, b"state");
    assert!(behind.open(crypto, &ticket, &mut [0; 64]).is_some_and(|opened| opened.fresh));
}

#[test]
fn a_worn_key_seals_no_more() {
    let crypto = &mut Compact::new([1; 32]);
    let copy = TicketKeys::draw(crypto).keys().map(|key| key.map(|key| TicketKey(Secret::new(*key.0.expose()))));
    let mut keys = TicketKeys::of(copy, MAX_SEALED - 1);
    sealed(&mut keys, crypto, b"last");
    assert!(keys.is_worn());
    assert!(keys.seal(crypto, b"one more", &mut Writer::new(&mut [0; 100])).is_err());
    keys.rotate(TicketKey::draw(crypto));
    sealed(&mut keys, crypto, b"first");
    assert!(TicketKeys::default().seal(crypto, b"", &mut Writer::new(&mut [0; 100])).is_err());
}
