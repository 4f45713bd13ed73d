//! Faults that other implementations had with records, datagrams and fragments. A hostile peer sends the messages that
//! caused them, and our endpoint must not fail.

mod world;

use tegmen::dtls::{Config, Fatal};
use tegmen::endpoint::{Peers as _, Phase};
use tegmen::time::Duration;
use world::puppet::*;
use world::{Fate, World};

const IDENTITY: &[u8] = b"Client_identity";

fn world() -> World {
    World::new(11, Config::default())
}

#[test]
fn application_data_of_epoch_0_is_dropped() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    let data = record(APPLICATION_DATA, 0, 0, b"hello");
    assert!(puppet.send(&mut world, &data).is_empty());
    puppet.reach_server_hello_done(&mut world);
    assert!(puppet.send(&mut world, &data).is_empty());
    puppet.finish(&mut world);
    let data = puppet.plain(APPLICATION_DATA, b"hello");
    assert!(puppet.send(&mut world, &data).is_empty());
    assert!(world.server.heard.is_empty());
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn application_data_before_finished_is_not_delivered() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    let key_exchange = puppet.key_exchange(IDENTITY, b"0123456789abcdef");
    let change = puppet.change_cipher_spec();
    for datagram in [key_exchange, change] {
        let early = puppet.seal(APPLICATION_DATA, b"too early");
        puppet.send(&mut world, &early);
        puppet.send(&mut world, &datagram);
    }
    let early = puppet.seal(APPLICATION_DATA, b"too early");
    puppet.send(&mut world, &early);
    let finished = puppet.finished();
    puppet.send(&mut world, &finished);
    assert!(world.server.established && world.server.heard.is_empty());
    assert_alive(&mut world, &mut puppet);
}

/// Returns three values: a world whose server waits for a ClientKeyExchange, the puppet client, and the
/// ClientKeyExchange, which the client has not sent yet.
fn awaiting_key_exchange() -> (World, Puppet, Vec<u8>) {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    let message = puppet.key_exchange_message(IDENTITY, b"0123456789abcdef");
    (world, puppet, message)
}

/// Sends a fragment of the message with the bytes in `range`.
fn send_piece(world: &mut World, puppet: &mut Puppet, message: &[u8], range: std::ops::Range<usize>) {
    let body = &message[12..];
    let seq = u16::from_be_bytes([message[4], message[5]]);
    let piece = fragment(message[0], body.len() as u32, seq, range.start as u32, &body[range]);
    let datagram = puppet.plain(HANDSHAKE, &piece);
    assert!(puppet.send(world, &datagram).is_empty());
}

#[test]
fn a_fragment_with_another_total_length_is_dropped() {
    let (mut world, mut puppet, message) = awaiting_key_exchange();
    send_piece(&mut world, &mut puppet, &message, 0..8);
    for total in [9, 18, 400] {
        let wrong = fragment(CLIENT_KEY_EXCHANGE, total, 2, 8, &[0x41; 1]);
        let wrong = puppet.plain(HANDSHAKE, &wrong);
        assert!(puppet.send(&mut world, &wrong).is_empty());
    }
    send_piece(&mut world, &mut puppet, &message, 8..17);
    puppet.change_and_finish(&mut world);
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn a_fragment_past_the_end_of_its_message_is_dropped() {
    let (mut world, mut puppet, message) = awaiting_key_exchange();
    for (total, offset, len) in
        [(17, 0xff_ffff, 1), (17, 17, 1), (17, 0, 18), (0, 0, 1), (17, 1, 17), (17, 0xff_fff0, 16)]
    {
        let wrong = fragment(CLIENT_KEY_EXCHANGE, total, 2, offset, &vec![0x41; len]);
        let wrong = puppet.plain(HANDSHAKE, &wrong);
        assert!(puppet.send(&mut world, &wrong).is_empty());
    }
    assert_eq!(world.server.counters.malformed, 6);
    send_piece(&mut world, &mut puppet, &message, 0..17);
    puppet.change_and_finish(&mut world);
}

#[test]
fn a_flood_of_empty_fragments_takes_no_room() {
    let (mut world, mut puppet, message) = awaiting_key_exchange();
    for n in 0..10_000u32 {
        let empty = fragment(CLIENT_KEY_EXCHANGE, 17, 2, n % 18, &[]);
        let empty = puppet.plain(HANDSHAKE, &empty);
        assert!(puppet.send(&mut world, &empty).is_empty());
    }
    for at in (0..17).step_by(2).chain((1..17).step_by(2)) {
        send_piece(&mut world, &mut puppet, &message, at..at + 1);
    }
    puppet.change_and_finish(&mut world);
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn early_messages_take_bounded_room() {
    let (mut world, mut puppet, message_2) = awaiting_key_exchange();
    // Later messages with huge lengths, and as many small ones as there are numbers.
    for seq in 3..300 {
        for datagram in [fragment(CLIENT_KEY_EXCHANGE, 0xff_ffff, seq, 0, &[0; 40]), message(FINISHED, seq, &[7; 100])]
        {
            let datagram = puppet.plain(HANDSHAKE, &datagram);
            assert!(puppet.send(&mut world, &datagram).is_empty());
        }
        let sealed = record(HANDSHAKE, 1, seq.into(), &[9; 48]);
        assert!(puppet.send(&mut world, &sealed).is_empty());
    }
    assert!(world.server.counters.no_room > 0);
    let whole = puppet.plain(HANDSHAKE, &message_2);
    puppet.send(&mut world, &whole);
    assert_eq!(server_phase(&world, &puppet), Some(Phase::Handshaking));
    assert_serves(&mut world);
}

#[test]
fn a_message_that_can_never_fit_ends_the_handshake_at_once() {
    let (mut world, mut puppet, _) = awaiting_key_exchange();
    let huge = fragment(CLIENT_KEY_EXCHANGE, 0xff_ffff, 2, 0, &[0; 40]);
    let huge = puppet.plain(HANDSHAKE, &huge);
    let answer = puppet.send(&mut world, &huge);
    assert_eq!(last_alert(&answer), Some((2, 40)));
    assert_eq!(world.server.closed, Some(Fatal::TooLarge));
    assert_eq!(world.server.endpoint.peers.len(), 0);
}

#[test]
fn overlapping_fragments_that_contradict_do_not_mix() {
    let (mut world, mut puppet, message) = awaiting_key_exchange();
    send_piece(&mut world, &mut puppet, &message, 0..10);
    let mut other = message.clone();
    other[12 + 9] ^= 1;
    send_piece(&mut world, &mut puppet, &other, 5..17);
    assert_eq!(world.server.counters.malformed, 1);
    // The first stays, and the same bytes may overlap.
    send_piece(&mut world, &mut puppet, &message, 3..12);
    send_piece(&mut world, &mut puppet, &message, 10..17);
    puppet.change_and_finish(&mut world);
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn a_fragment_of_another_type_is_dropped() {
    let (mut world, mut puppet, message) = awaiting_key_exchange();
    send_piece(&mut world, &mut puppet, &message, 0..8);
    for kind in [FINISHED, SERVER_HELLO, CLIENT_HELLO, 0, 255] {
        let wrong = fragment(kind, 17, 2, 8, &message[20..29]);
        let wrong = puppet.plain(HANDSHAKE, &wrong);
        assert!(puppet.send(&mut world, &wrong).is_empty());
    }
    send_piece(&mut world, &mut puppet, &message, 8..17);
    puppet.change_and_finish(&mut world);
}

#[test]
fn a_piece_of_a_message_that_came_whole_does_not_hinder_the_next() {
    let mut world = client_awaits_server_hello();
    let hello = server_hello([254, 253], CCM_8, 0, &[]);
    let tell = |world: &mut World, sequence: u64, body: &[u8]| world.tell_client(&record(HANDSHAKE, 0, sequence, body));
    // Half of a hello, then all of it; then a hint in two pieces.
    tell(&mut world, 1, &fragment(SERVER_HELLO, hello.len() as u32, 1, 0, &hello[..10]));
    tell(&mut world, 2, &message(SERVER_HELLO, 1, &hello));
    tell(&mut world, 3, &fragment(SERVER_KEY_EXCHANGE, 6, 2, 0, &[0, 4, b'h']));
    tell(&mut world, 4, &fragment(SERVER_KEY_EXCHANGE, 6, 2, 3, b"int"));
    let flight = tell(&mut world, 5, &message(SERVER_HELLO_DONE, 3, &[]));
    assert_eq!(records(&flight[0])[0].2[0], CLIENT_KEY_EXCHANGE);
}

#[test]
fn every_truncation_of_every_datagram_is_dropped() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    let mut sent = 0;
    let mut with_prefixes = |world: &mut World, puppet: &mut Puppet, datagram: &[u8]| {
        for len in 0..datagram.len() {
            assert!(puppet.send(world, &datagram[..len]).is_empty(), "{len} bytes of {datagram:02x?}");
            sent += 1;
        }
    };
    let hello = puppet.hello();
    with_prefixes(&mut world, &mut puppet, &hello);
    puppet = Puppet::new(1000);
    let hello = puppet.hello_with_cookie(&mut world);
    with_prefixes(&mut world, &mut puppet, &hello);
    puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    let key_exchange = puppet.key_exchange(IDENTITY, b"0123456789abcdef");
    with_prefixes(&mut world, &mut puppet, &key_exchange);
    puppet.send(&mut world, &key_exchange);
    let change = puppet.change_cipher_spec();
    with_prefixes(&mut world, &mut puppet, &change);
    puppet.send(&mut world, &change);
    let finished = puppet.finished();
    with_prefixes(&mut world, &mut puppet, &finished);
    puppet.send(&mut world, &finished);
    assert!(world.server.established);
    let data = puppet.seal(APPLICATION_DATA, b"hello");
    with_prefixes(&mut world, &mut puppet, &data);
    assert!(sent > 280 && world.server.heard.is_empty());
    puppet.send(&mut world, &data);
    assert_eq!(world.server.heard, [b"hello"]);
}

#[test]
fn no_record_number_repeats_under_one_key_however_often_a_flight_is_sent() {
    let mut world = world();
    // For 15 seconds nothing of the server's last flight arrives; then everything.
    world.network = Box::new(|n, datagram| match datagram[0] {
        CHANGE_CIPHER_SPEC if n < 13 => Fate::LOST,
        _ => Fate::arrives(),
    });
    world.connect();
    world.run(Duration::from_secs(58));
    assert!(world.client.established && world.server.established);
    world.client.say(b"ping");
    world.server.say(b"pong");
    world.run(Duration::from_secs(1));
    let mut finished = [0, 0];
    let mut numbers = std::collections::HashSet::new();
    for (from_client, datagram) in &world.sent {
        for (_, number, body) in records(datagram).into_iter().filter(|(_, number, _)| number >> 48 == 1) {
            assert!(numbers.insert((*from_client, number)), "{number:x} twice");
            assert_eq!(body[..8], number.to_be_bytes(), "the explicit nonce is the number");
            finished[usize::from(*from_client)] += 1;
        }
    }
    // The crypto provider of the world has also checked keys and nonces.
    assert!(finished[0] > 4 && finished[1] > 4, "{finished:?}");
}

#[test]
fn a_forged_number_does_not_shut_out_later_records() {
    let mut world = world();
    let mut puppet = Puppet::established(&mut world, 1000);
    for sequence in [1 << 47, (1 << 48) - 1, 2, 1000] {
        let mut forged = puppet.seal_as(APPLICATION_DATA, 1, b"forged");
        forged[5..11].copy_from_slice(&number(1, sequence)[2..]);
        puppet.send(&mut world, &forged);
    }
    assert!(world.server.heard.is_empty());
    assert_eq!(world.server.counters.not_authentic, 4);
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn a_replayed_record_is_dropped() {
    let mut world = world();
    let mut puppet = Puppet::established(&mut world, 1000);
    let records: Vec<_> = (0..100).map(|n| puppet.seal(APPLICATION_DATA, &[n])).collect();
    for record in records.iter().chain(&records).chain(records.iter().rev()) {
        puppet.send(&mut world, record);
    }
    assert_eq!(world.server.heard, (0..100).map(|n| vec![n]).collect::<Vec<_>>());
    assert_eq!(world.server.counters.replayed, 200);
}

#[test]
fn garbage_of_a_later_epoch_changes_nothing() {
    let mut world = world();
    let mut puppet = Puppet::established(&mut world, 1000);
    for n in 0..1000u64 {
        let content_type = [HANDSHAKE, APPLICATION_DATA, ALERT, CHANGE_CIPHER_SPEC][n as usize % 4];
        assert!(puppet.send(&mut world, &record(content_type, 2, n, &[n as u8; 60])).is_empty());
    }
    assert_eq!(world.server.counters.unknown_peer, 1000);
    assert_alive(&mut world, &mut puppet);
    // And the same while a handshake is under way.
    let mut puppet = Puppet::new(1001);
    puppet.reach_server_hello_done(&mut world);
    for n in 0..1000u64 {
        assert!(puppet.send(&mut world, &record(HANDSHAKE, 2, n, &[n as u8; 60])).is_empty());
    }
    puppet.finish(&mut world);
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn an_alert_in_clear_does_not_end_a_session() {
    let mut world = world();
    let mut puppet = Puppet::established(&mut world, 1000);
    for round in 0..2 {
        for (level, description) in [(2, 40), (1, 0), (2, 0), (2, 20), (1, 90), (9, 9)] {
            let alert = puppet.plain(ALERT, &[level, description]);
            assert!(puppet.send(&mut world, &alert).is_empty());
        }
        // At first its last flight is still kept for repetition; not any more in the second round.
        assert_alive(&mut world, &mut puppet);
        assert!(world.server.closed.is_none(), "{round}");
    }
    // The client's side of a session.
    world.connect();
    world.run(Duration::from_secs(1));
    assert!(world.client.established);
    world.tell_client(&record(ALERT, 0, 9, &[2, 40]));
    world.server.say(b"still there");
    world.run(Duration::from_secs(1));
    assert_eq!((world.client.closed, &world.client.heard[..]), (None, &[b"still there".to_vec()][..]));
}

#[test]
fn a_bad_tag_does_not_end_a_session() {
    let mut world = world();
    let mut puppet = Puppet::established(&mut world, 1000);
    let good = puppet.seal(APPLICATION_DATA, b"hello");
    let mut refused = 0;
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(puppet.send(&mut world, &bad).is_empty(), "bit {bit}");
        assert!(world.server.heard.is_empty(), "bit {bit} of a record is not protected");
        refused += 1;
    }
    assert_eq!(refused, 8 * 34);
    assert!(world.server.closed.is_none());
    puppet.send(&mut world, &good);
    assert_eq!(world.server.heard, [b"hello"]);
}

#[test]
fn a_record_with_more_than_2_to_the_14_bytes_is_dropped() {
    let mut world = world();
    let mut puppet = Puppet::established(&mut world, 1000);
    for len in [16385, 16384 + 9, 20_000, 65_000] {
        let long = puppet.seal(APPLICATION_DATA, &vec![7; len]);
        assert!(puppet.send(&mut world, &long).is_empty());
    }
    assert!(world.server.heard.is_empty());
    let longest = puppet.seal(APPLICATION_DATA, &[7; 16384]);
    puppet.send(&mut world, &longest);
    assert_eq!(world.server.heard.last().unwrap().len(), 16384);
    let empty = puppet.seal(APPLICATION_DATA, &[]);
    puppet.send(&mut world, &empty);
    assert!(world.server.heard.last().unwrap().is_empty());
    for len in 0..16 {
        // Too short even for nonce and tag.
        puppet.send(&mut world, &record(APPLICATION_DATA, 1, 99, &vec![0; len]));
    }
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn explicit_nonces_of_ten_thousand_records_are_all_different() {
    let mut world = world();
    world.connect();
    world.run(Duration::from_secs(1));
    for _ in 0..10_000 {
        world.client.say(b"x");
    }
    world.run(Duration::from_secs(1));
    let protected = world.sent.iter().filter(|(from_client, datagram)| *from_client && datagram[0] == APPLICATION_DATA);
    let nonces: std::collections::HashSet<_> = protected.map(|(_, datagram)| datagram[13..21].to_vec()).collect();
    assert_eq!((nonces.len(), world.server.heard.len()), (10_000, 10_000));
}
