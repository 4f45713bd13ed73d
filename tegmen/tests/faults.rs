//! Faults that other implementations had, one test for each: what a hostile peer sends, and that we survive it.

mod world;

use tegmen::dtls::{Config, Fatal};
use tegmen::endpoint::{Peers as _, Phase};
use tegmen::time::Duration;
use world::puppet::*;
use world::{Damage, Fate, World};

const IDENTITY: &[u8] = b"Client_identity";

fn world() -> World {
    World::new(11, Config::default())
}

/// The server's session with this puppet takes application data.
fn assert_alive(world: &mut World, puppet: &mut Puppet) {
    let before = world.server.heard.len();
    let sealed = puppet.seal(APPLICATION_DATA, b"alive?");
    puppet.send(world, &sealed);
    assert_eq!(world.server.heard[before..], [b"alive?"]);
}

/// Whoever comes next is served.
fn assert_serves(world: &mut World) {
    let mut next = Puppet::established(world, 4999);
    assert_alive(world, &mut next);
}

fn server_phase(world: &World, puppet: &Puppet) -> Option<Phase> {
    let path = world.server.path(puppet.address);
    let phases = [Phase::Established, Phase::Handshaking];
    phases.into_iter().find(|phase| world.server.endpoint.peers.find(&path, *phase).is_some())
}

/// A world whose client waits for the answer to its second hello, and the number of that answer.
fn client_awaits_server_hello() -> World {
    let mut world = world();
    world.network = Box::new(|n, _| if n < 3 { Fate::arrives() } else { Fate::LOST });
    world.connect();
    world.run(Duration::from_millis(100));
    assert!(world.client.closed.is_none());
    world
}

#[test]
fn an_early_change_cipher_spec_makes_no_keys() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    let change = puppet.change_cipher_spec();
    puppet.send(&mut world, &change);
    // What an all-zero key would have sealed.
    let mut crypto = tegmen::crypto::rustcrypto::RustCrypto::new([0; 32]);
    for content_type in [HANDSHAKE, APPLICATION_DATA, ALERT] {
        let sealed = seal_with(&mut crypto, &[0; 16], &[0; 4], content_type, 0, &message(FINISHED, 2, &[0; 12]));
        assert!(puppet.send(&mut world, &sealed).is_empty());
    }
    assert_eq!(server_phase(&world, &puppet), Some(Phase::Handshaking));
    assert!(world.server.heard.is_empty());
    // The honest handshake goes on as if nothing had been.
    puppet.finish(&mut world);
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn a_finished_in_clear_is_dropped() {
    for changed in [false, true] {
        let mut world = world();
        let mut puppet = Puppet::new(1000);
        puppet.reach_server_hello_done(&mut world);
        let key_exchange = puppet.key_exchange(IDENTITY, b"0123456789abcdef");
        puppet.send(&mut world, &key_exchange);
        if changed {
            let change = puppet.change_cipher_spec();
            puppet.send(&mut world, &change);
        }
        let finished = puppet.finished_message();
        let in_clear = puppet.plain(HANDSHAKE, &finished);
        assert!(puppet.send(&mut world, &in_clear).is_empty());
        assert!(!world.server.established);
        puppet.change_and_finish(&mut world);
        assert_alive(&mut world, &mut puppet);
    }
}

#[test]
fn a_finished_in_clear_that_came_early_is_not_taken_later() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    let key_exchange = puppet.key_exchange(IDENTITY, b"0123456789abcdef");
    let finished = puppet.finished_message();
    let in_clear = puppet.plain(HANDSHAKE, &finished);
    puppet.send(&mut world, &in_clear);
    puppet.send(&mut world, &key_exchange);
    let change = puppet.change_cipher_spec();
    puppet.send(&mut world, &change);
    assert!(!world.server.established);
    let sealed = puppet.seal(HANDSHAKE, &finished);
    puppet.send(&mut world, &sealed);
    assert_alive(&mut world, &mut puppet);
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

#[test]
fn a_wrong_cookie_makes_no_state() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.hello_with_cookie(&mut world);
    let good = puppet.cookie.clone();
    let mut wrong: Vec<Vec<u8>> = (0..128)
        .map(|bit| {
            let mut cookie = good.clone();
            cookie[bit / 8] ^= 1 << (bit % 8);
            cookie
        })
        .collect();
    wrong.extend([vec![0], good[..15].to_vec(), [&good[..], &[0]].concat(), vec![7; 255]]);
    for cookie in wrong {
        puppet.cookie = cookie;
        let hello = puppet.hello();
        let answer = puppet.send(&mut world, &hello);
        assert_eq!((answer.len(), answer[0].len()), (1, 44));
        assert_eq!(records(&answer[0])[0].2[0], HELLO_VERIFY_REQUEST);
        assert_eq!(world.server.endpoint.peers.len(), 0);
    }
    puppet.cookie = good;
    let hello = puppet.hello();
    puppet.send(&mut world, &hello);
    assert_eq!(world.server.endpoint.peers.len(), 1);
}

#[test]
fn a_cookie_is_bound_to_address_port_and_hello() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    let hello = puppet.hello_with_cookie(&mut world);
    let home = puppet.address;
    puppet.address.port = 1001;
    assert_eq!(records(&puppet.send(&mut world, &hello)[0])[0].2[0], HELLO_VERIFY_REQUEST);
    puppet.address = home;
    puppet.address.ip[15] ^= 1;
    assert_eq!(records(&puppet.send(&mut world, &hello)[0])[0].2[0], HELLO_VERIFY_REQUEST);
    puppet.address = home;
    puppet.random[31] ^= 1;
    let other = puppet.hello();
    assert_eq!(records(&puppet.send(&mut world, &other)[0])[0].2[0], HELLO_VERIFY_REQUEST);
    assert_eq!(world.server.endpoint.peers.len(), 0);
    assert_eq!(records(&puppet.send(&mut world, &hello)[0])[0].2[0], SERVER_HELLO);
}

#[test]
fn nothing_larger_than_the_hello_is_sent_before_the_address_is_proven() {
    let mut world = world();
    for port in 1..=2000 {
        let mut puppet = Puppet::new(port);
        let hello = puppet.hello();
        let answers = puppet.send(&mut world, &hello);
        assert_eq!(answers.len(), 1);
        assert!(answers[0].len() <= hello.len());
    }
    assert_eq!(world.server.endpoint.peers.len(), 0);
    assert_eq!(world.server.endpoint.next_alarm(), None);
}

/// A world where the server waits for a ClientKeyExchange, of which the puppet already made the message.
fn awaiting_key_exchange() -> (World, Puppet, Vec<u8>) {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    let message = puppet.key_exchange_message(IDENTITY, b"0123456789abcdef");
    (world, puppet, message)
}

/// Sends a piece of the message behind its handshake header.
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
fn every_truncation_inside_a_hello_is_dropped() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.hello_with_cookie(&mut world);
    // With lengths of record and message that agree with what is there, so that the hello's own lengths are at fault.
    let tail = [0, 13, 0, 23, 0, 0, 0xff, 1, 0, 1, 0, 0, 10, 0, 0];
    let body = client_hello(&puppet.random, &puppet.cookie, &[0xc0, 0xa8, 0, 0xff], &tail);
    let without_extensions = body.len() - tail.len();
    for len in 0..body.len() {
        let answer = puppet.send(&mut world, &record(HANDSHAKE, 0, 2, &message(CLIENT_HELLO, 1, &body[..len])));
        // Without the extensions it is a hello again, whose cookie does not fit.
        assert_eq!(answer.len(), usize::from(len == without_extensions), "{len} of {}", body.len());
    }
    assert_eq!(world.server.endpoint.peers.len(), 0);
    assert_serves(&mut world);
}

#[test]
fn every_bit_flip_of_a_hello_does_no_harm() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    let hello = puppet.hello_with_cookie(&mut world);
    for bit in 0..hello.len() * 8 {
        let mut flipped = hello.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let answers = puppet.send(&mut world, &flipped);
        // In the bodies every bit is under the cookie; the two headers are not.
        let in_header = bit / 8 < 25;
        let hello_verify = answers.iter().all(|a| records(a)[0].2[0] == HELLO_VERIFY_REQUEST && a.len() <= hello.len());
        assert!(in_header || hello_verify, "bit {bit}");
        assert!(world.server.endpoint.peers.len() <= 1 && (in_header || world.server.endpoint.peers.is_empty()));
        if in_header && !world.server.endpoint.peers.is_empty() {
            world.run(Duration::from_secs(61));
            let mut again = Puppet::new(1000);
            again.hello_with_cookie(&mut world);
        }
    }
    world.run(Duration::from_secs(61));
    let mut honest = Puppet::established(&mut world, 1000);
    assert_alive(&mut world, &mut honest);
}

#[test]
fn odd_empty_and_overlong_lists_in_a_hello_are_dropped() {
    let mut world = world();
    let random = [1; 32];
    let good = client_hello(&random, &[], &CCM_8, &[]);
    let mut hellos = vec![
        client_hello(&random, &[], &[], &[]),
        client_hello(&random, &[], &[0xc0, 0xa8, 0xc0], &[]),
        client_hello(&random, &[], &[0xc0], &[]),
    ];
    let with = |at: usize, value: u8| {
        let mut hello = good.clone();
        hello[at] = value;
        hello
    };
    // session_id 33 and 255 bytes; cookie, suites and compression methods that claim more than there is.
    hellos.extend([with(34, 33), with(34, 255), with(35, 255), with(36, 255), with(37, 4), with(40, 255), with(40, 0)]);
    for hello in hellos {
        let answer =
            world.tell_server(Puppet::new(5).address, &record(HANDSHAKE, 0, 0, &message(CLIENT_HELLO, 0, &hello)));
        assert!(answer.is_empty(), "{hello:02x?}");
    }
    assert_serves(&mut world);
}

#[test]
fn an_extension_longer_than_its_hello_is_not_read() {
    for tail in [
        &[0, 4, 0, 23, 0, 1][..],
        &[0, 5, 0, 23, 0, 2, 0],
        &[0, 4, 0, 23, 0xff, 0xff],
        &[0xff, 0xff, 0, 23, 0, 0],
        &[0, 3, 0, 23, 0],
        &[0, 1, 0],
        &[0],
        &[0, 4, 0, 23, 0, 0, 7],
    ] {
        let mut world = client_awaits_server_hello();
        let hello = client_hello(&[1; 32], &[], &CCM_8, tail);
        let hello = record(HANDSHAKE, 0, 0, &message(CLIENT_HELLO, 0, &hello));
        assert!(world.tell_server(Puppet::new(5).address, &hello).is_empty(), "{tail:02x?}");
        // A client has state, and says so.
        let hello = server_hello([254, 253], CCM_8, 0, tail);
        let answer = world.tell_client(&record(HANDSHAKE, 0, 1, &message(SERVER_HELLO, 1, &hello)));
        assert_eq!((last_alert(&answer), world.client.closed), (Some((2, 50)), Some(Fatal::Decode)), "{tail:02x?}");
    }
}

#[test]
fn hellos_of_odd_epochs_do_not_hinder_the_next_handshake() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    let hello = puppet.hello_with_cookie(&mut world);
    let body = records(&hello)[0].2.clone();
    for epoch in [1, 2, 0x7fff, 0xffff] {
        assert!(puppet.send(&mut world, &record(HANDSHAKE, epoch, 1, &body)).is_empty());
    }
    assert_eq!(world.server.endpoint.peers.len(), 0);
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    // The same within a handshake: its messages under epochs that they do not belong to.
    let key_exchange = puppet.key_exchange(IDENTITY, b"0123456789abcdef");
    let body = records(&key_exchange)[0].2.clone();
    for epoch in [1, 2, 0xffff] {
        assert!(puppet.send(&mut world, &record(HANDSHAKE, epoch, 1, &body)).is_empty());
        assert!(puppet.send(&mut world, &record(CHANGE_CIPHER_SPEC, epoch, 2, &[1])).is_empty());
    }
    assert_serves(&mut world);
    let mut puppet = Puppet::established(&mut world, 1000);
    assert_alive(&mut world, &mut puppet);
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
    // The crypto provider of the world has checked keys and nonces besides.
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
        // Not even room for nonce and tag.
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

/// What an eavesdropper sees of a handshake that fails, and what the operator does.
#[derive(Clone, PartialEq, Debug)]
struct Failed {
    /// For each datagram of the client: how many came back, and their bytes.
    seen: Vec<(usize, Vec<u8>)>,
    alert: Option<(u8, u8)>,
    closed: Option<Fatal>,
}

fn failed_handshake(identity: &[u8], key: &[u8]) -> Failed {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    let mut answers = Vec::new();
    let key_exchange = puppet.key_exchange(identity, key);
    answers.push(puppet.send(&mut world, &key_exchange));
    let change = puppet.change_cipher_spec();
    answers.push(puppet.send(&mut world, &change));
    for _ in 0..3 {
        let finished = puppet.finished();
        answers.push(puppet.send(&mut world, &finished));
    }
    assert!(!world.server.established);
    let alert = answers.iter().rev().find_map(|answers| last_alert(answers));
    let seen = answers.iter().map(|a| (a.len(), a.iter().flatten().copied().collect())).collect();
    Failed { seen, alert, closed: world.server.closed }
}

#[test]
fn unknown_empty_and_overlong_identities_look_like_a_wrong_key() {
    let wrong_key = failed_handshake(IDENTITY, b"not the same key");
    assert_eq!(wrong_key.alert, Some((2, 51)));
    assert_eq!(wrong_key.closed, Some(Fatal::WrongKeyOrIdentity { identity_known: true }));
    for identity in [&b""[..], b"nobody", b"Client_identity\0", &[0xff; 255], &[b'x'; 256], &[b'x'; 1000]] {
        let outcome = failed_handshake(identity, b"0123456789abcdef");
        let closed = Some(Fatal::WrongKeyOrIdentity { identity_known: false });
        assert_eq!(outcome, Failed { closed, ..wrong_key.clone() }, "{} bytes", identity.len());
    }
}

#[test]
fn an_identity_of_65535_bytes_is_refused_with_its_first_fragment() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    let body = Puppet::identity(&[b'x'; 65535]);
    let first = fragment(CLIENT_KEY_EXCHANGE, body.len() as u32, 2, 0, &body[..1000]);
    let first = puppet.plain(HANDSHAKE, &first);
    assert_eq!(last_alert(&puppet.send(&mut world, &first)), Some((2, 40)));
    assert_eq!(world.server.endpoint.peers.len(), 0);
    assert_serves(&mut world);
}

#[test]
fn an_identity_whose_length_is_wrong_is_a_decode_error() {
    for (claimed, there) in [(16, 15), (14, 15), (65535, 15), (0, 1)] {
        let mut world = world();
        let mut puppet = Puppet::new(1000);
        puppet.reach_server_hello_done(&mut world);
        let body = [&u16::to_be_bytes(claimed)[..], &vec![b'x'; there]].concat();
        let datagram = puppet.plain(HANDSHAKE, &message(CLIENT_KEY_EXCHANGE, 2, &body));
        assert_eq!(last_alert(&puppet.send(&mut world, &datagram)), Some((2, 50)));
        assert_eq!(world.server.closed, Some(Fatal::Decode));
    }
}

#[test]
fn a_server_that_chooses_what_was_not_offered_gets_illegal_parameter() {
    let renegotiation = [0, 5, 0xff, 1, 0, 1, 0];
    let twelve = [254, 253];
    for (hello, alert, fatal) in [
        (server_hello(twelve, [0x00, 0xa8], 0, &[]), 47, Fatal::IllegalParameter),
        (server_hello(twelve, [0xc0, 0xae], 0, &[]), 47, Fatal::IllegalParameter),
        (server_hello(twelve, [0x00, 0x00], 0, &[]), 47, Fatal::IllegalParameter),
        (server_hello(twelve, [0x00, 0xff], 0, &[]), 47, Fatal::IllegalParameter),
        (server_hello(twelve, CCM_8, 1, &[]), 47, Fatal::IllegalParameter),
        (server_hello(twelve, CCM_8, 0, &[0, 4, 0, 22, 0, 0]), 110, Fatal::UnsupportedExtension),
        (server_hello([254, 255], CCM_8, 0, &[]), 70, Fatal::Version),
        (server_hello([254, 252], CCM_8, 0, &[]), 70, Fatal::Version),
        (server_hello([3, 3], CCM_8, 0, &[]), 70, Fatal::Version),
        (server_hello(twelve, CCM_8, 0, &[0, 5, 0, 23, 0, 1, 0]), 50, Fatal::Decode),
    ] {
        let mut world = client_awaits_server_hello();
        let answer = world.tell_client(&record(HANDSHAKE, 0, 1, &message(SERVER_HELLO, 1, &hello)));
        assert_eq!((last_alert(&answer), world.client.closed), (Some((2, alert)), Some(fatal)));
    }
    // What a good server may say.
    let mut world = client_awaits_server_hello();
    let hello = server_hello(twelve, CCM_8, 0, &renegotiation);
    world.tell_client(&record(HANDSHAKE, 0, 1, &message(SERVER_HELLO, 1, &hello)));
    assert_eq!(world.client.closed, None);
}

#[test]
fn a_client_without_our_suite_or_null_compression_is_told_so() {
    for (suites, compression, version, alert) in [
        (&[0x00, 0xa8][..], 0, [254, 253], 40),
        (&[0xc0, 0xae, 0x00, 0xff], 0, [254, 253], 40),
        (&CCM_8, 1, [254, 253], 40),
        (&CCM_8, 0, [254, 255], 70),
        (&CCM_8, 0, [3, 3], 70),
    ] {
        let mut world = world();
        let mut puppet = Puppet::new(1000);
        let hello = |cookie: &[u8]| {
            let mut body = client_hello(&[1; 32], cookie, suites, &[]);
            *body.last_mut().unwrap() = compression;
            body[..2].copy_from_slice(&version);
            record(HANDSHAKE, 0, 0, &message(CLIENT_HELLO, 0, &body))
        };
        let answer = puppet.send(&mut world, &hello(&[]));
        puppet.cookie = records(&answer[0])[0].2[15..].to_vec();
        let answer = puppet.send(&mut world, &hello(&puppet.cookie));
        assert_eq!(last_alert(&answer), Some((2, alert)));
        assert_eq!(world.server.endpoint.peers.len(), 0);
    }
    // A later version is answered with ours.
    let mut world = world();
    let mut body = client_hello(&[1; 32], &[], &CCM_8, &[]);
    body[..2].copy_from_slice(&[254, 252]);
    let mut puppet = Puppet::new(1000);
    let answer = puppet.send(&mut world, &record(HANDSHAKE, 0, 0, &message(CLIENT_HELLO, 0, &body)));
    puppet.cookie = records(&answer[0])[0].2[15..].to_vec();
    let mut body = client_hello(&[1; 32], &puppet.cookie, &CCM_8, &[]);
    body[..2].copy_from_slice(&[254, 252]);
    let answer = puppet.send(&mut world, &record(HANDSHAKE, 0, 1, &message(CLIENT_HELLO, 1, &body)));
    assert_eq!(records(&answer[0])[0].2[12..14], [254, 253]);
}

#[test]
fn a_hello_within_a_session_does_not_end_it() {
    let mut world = world();
    let mut puppet = Puppet::established(&mut world, 1000);
    // Protected: a renegotiation, which is refused by silence.
    let body = message(CLIENT_HELLO, 3, &client_hello(&[9; 32], &[], &CCM_8, &[]));
    let renegotiation = puppet.seal(HANDSHAKE, &body);
    assert!(puppet.send(&mut world, &renegotiation).is_empty());
    let request = puppet.seal(HANDSHAKE, &message(0, 3, &[]));
    assert!(puppet.send(&mut world, &request).is_empty());
    assert_alive(&mut world, &mut puppet);
    // In clear, from the same address and port: the old session stays until the new one is complete.
    let mut again = Puppet::new(1000);
    again.random = [0x77; 32];
    again.hello_with_cookie(&mut world);
    assert_alive(&mut world, &mut puppet);
    let mut again = Puppet::new(1000);
    again.random = [0x78; 32];
    again.reach_server_hello_done(&mut world);
    assert_alive(&mut world, &mut puppet);
    let wrong = again.key_exchange(IDENTITY, b"0123456789abcdef");
    again.send(&mut world, &wrong);
    assert_alive(&mut world, &mut puppet);
    again.change_and_finish(&mut world);
    assert_alive(&mut world, &mut again);
    // Now the old keys are gone.
    let before = world.server.heard.len();
    let old = puppet.seal(APPLICATION_DATA, b"old");
    puppet.send(&mut world, &old);
    assert_eq!(world.server.heard.len(), before);
}

#[test]
fn a_late_copy_of_the_hello_does_not_hinder_the_end_of_its_handshake() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    let hello = puppet.hello_with_cookie(&mut world);
    puppet.take_server_flight(&mut world, &hello);
    let key_exchange = puppet.key_exchange(IDENTITY, b"0123456789abcdef");
    puppet.send(&mut world, &key_exchange);
    let change = puppet.change_cipher_spec();
    puppet.send(&mut world, &change);
    let finished = puppet.finished();
    puppet.send(&mut world, &finished); // and the answer is lost
    assert!(world.server.established);
    // The same hello once more, delayed by the network.
    assert!(puppet.send(&mut world, &hello).is_empty());
    puppet.send(&mut world, &key_exchange);
    puppet.send(&mut world, &change);
    let flight = puppet.finished();
    let flight = puppet.send(&mut world, &flight);
    assert_eq!(records(&flight[0])[0].0, CHANGE_CIPHER_SPEC);
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn a_message_behind_the_last_of_a_flight_does_not_stop_the_handshake() {
    let mut world = client_awaits_server_hello();
    let hello = message(SERVER_HELLO, 1, &server_hello([254, 253], CCM_8, 0, &[]));
    world.tell_client(&record(HANDSHAKE, 0, 1, &hello));
    // ServerHelloDone, and behind it in the same record what nobody asked for.
    let done = [message(SERVER_HELLO_DONE, 2, &[]), message(SERVER_HELLO_DONE, 3, &[])].concat();
    let flight = world.tell_client(&record(HANDSHAKE, 0, 2, &done));
    assert_eq!(records(&flight[0])[0].2[0], CLIENT_KEY_EXCHANGE);
}

#[test]
fn two_ends_do_not_answer_repetition_with_repetition_for_ever() {
    let mut world = world();
    // One bit of the HelloVerifyRequest is wrong: the client now takes the ServerHelloDone for an old one.
    world.network = Box::new(|n, _| match n {
        1 => Fate(vec![(Duration::from_millis(10), Damage::Flipped { at: 18, bit: 1 })]),
        _ => Fate::arrives(),
    });
    world.connect();
    world.run(Duration::from_secs(10));
    assert!(world.sent.len() < 30, "{} datagrams in ten seconds", world.sent.len());
}
