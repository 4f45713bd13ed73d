//! Faults that other implementations had with the messages of a handshake. A hostile peer sends the messages that
//! caused these faults, and our endpoint must not fail.

mod world;

use tegmen::dtls::{AlertDescription, Config, Fatal, Need, Suites};
use tegmen::endpoint::{Peers as _, Phase};
use tegmen::time::Duration;
use world::puppet::*;
use world::recorder::COMPRESSED;
use world::{Damage, Fate, World};

const IDENTITY: &[u8] = b"Client_identity";

fn world() -> World {
    World::new(11, Config::default())
}

#[test]
fn an_early_change_cipher_spec_makes_no_keys() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    let change = puppet.change_cipher_spec();
    puppet.send(&mut world, &change);
    // What an all-zero key would have sealed.
    let mut crypto = tegmen::crypto::RustCrypto::new([0; 32]);
    for content_type in [HANDSHAKE, APPLICATION_DATA, ALERT] {
        let sealed = seal_with(&mut crypto, &[0; 16], &[0; 4], content_type, 0, &message(FINISHED, 2, &[0; 12]));
        assert!(puppet.send(&mut world, &sealed).is_empty());
    }
    assert_eq!(server_phase(&world, &puppet), Some(Phase::Handshaking));
    assert!(world.server.heard.is_empty());
    // The honest handshake continues unaffected.
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

/// The record is protected with the right keys, so only the comparison of the verify data refuses the Finished.
#[test]
fn a_finished_with_any_bit_changed_ends_the_handshake() {
    for bit in 0..96 {
        let mut world = world();
        let mut puppet = Puppet::new(1000);
        puppet.reach_server_hello_done(&mut world);
        let key_exchange = puppet.key_exchange(IDENTITY, b"0123456789abcdef");
        puppet.send(&mut world, &key_exchange);
        let change = puppet.change_cipher_spec();
        puppet.send(&mut world, &change);
        let mut finished = puppet.finished_message();
        finished[12 + bit / 8] ^= 1 << (bit % 8);
        let finished = puppet.seal(HANDSHAKE, &finished);
        let answer = puppet.send(&mut world, &finished);
        assert_eq!((world.server.established, world.server.closed), (false, Some(Fatal::BadFinished)), "bit {bit}");
        assert_eq!(last_alert(&answer), Some((2, AlertDescription::DECRYPT_ERROR.0)), "bit {bit}");
        assert!(world.server.endpoint.peers.is_empty());
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

#[test]
fn one_hello_of_a_datagram_is_answered_and_only_as_its_first_record() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    let hellos: Vec<u8> = (0..19).flat_map(|_| puppet.hello()).collect();
    assert_eq!(puppet.send(&mut world, &hellos).len(), 1);
    assert_eq!((world.server.counters.cookies_sent, world.server.counters.unexpected), (1, 18));
    let hello = puppet.hello_with_cookie(&mut world);
    let cookies_sent = world.server.counters.cookies_sent;
    let alert = record(ALERT, 0, 0, &[1, 0]);
    let sealed = record(APPLICATION_DATA, 1, 0, &[0; 25]);
    let with_id = record(25, 1, 0, &[0; 40]);
    for first in [alert, sealed, with_id] {
        assert!(puppet.send(&mut world, &[&first[..], &hello].concat()).is_empty());
        assert_eq!((world.server.endpoint.peers.len(), world.server.counters.cookies_sent), (0, cookies_sent));
    }
    // A fatal alert frees a handshake, but the same datagram begins no other.
    puppet.take_server_flight(&mut world, &hello);
    let alert = record(ALERT, 0, 9, &[2, 0]);
    puppet.send(&mut world, &[&alert[..], &hello].concat());
    assert_eq!(server_phase(&world, &puppet), None);
    assert_eq!(records(&puppet.send(&mut world, &hello)[0])[0].2[0], SERVER_HELLO);
}

/// Returns a client whose ClientHello is longer than usual, because it has an unknown extension.
fn client_with_a_long_hello(port: u16) -> Puppet {
    let mut puppet = Puppet::new(port);
    puppet.tail = [&[0x01, 0x30, 0x6a, 0x6a, 0x01, 0x2c][..], &[7; 300]].concat();
    puppet
}

/// Gets a cookie for the first fragment of the client's ClientHello.
fn get_cookie_for_fragments(world: &mut World, puppet: &mut Puppet) {
    let [first, second] = puppet.hello_in_fragments(200);
    let answer = puppet.send(world, &first);
    assert_eq!(answer.len(), 1);
    assert!(answer[0].len() <= first.len());
    let (_, _, body) = records(&answer[0]).remove(0);
    assert_eq!(body[0], HELLO_VERIFY_REQUEST);
    assert!(puppet.send(world, &second).is_empty());
    assert_eq!(world.server.endpoint.peers.len(), 0, "no state before the cookie");
    puppet.cookie = body[15..].to_vec();
    puppet.message_seq = 1;
}

/// Completes the handshake after `flight`, the server's flight that answers the client's ClientHello.
fn finish_behind(world: &mut World, puppet: &mut Puppet, flight: &[Vec<u8>]) {
    let body = client_hello(&puppet.random, &puppet.cookie, &puppet.suite, &puppet.tail);
    puppet.hash(&message(CLIENT_HELLO, puppet.message_seq, &body));
    assert_eq!(records(&flight[0])[0].2[0], SERVER_HELLO);
    puppet.take_flight(flight);
    puppet.finish(world);
    assert_alive(world, puppet);
}

#[test]
fn a_hello_in_fragments_is_answered_once_its_cookie_is_right() {
    for cut in [60, 80, 200, 350] {
        let mut world = world();
        let mut puppet = client_with_a_long_hello(1000);
        get_cookie_for_fragments(&mut world, &mut puppet);
        let [first, second] = puppet.hello_in_fragments(cut);
        assert!(puppet.send(&mut world, &first).is_empty());
        assert_eq!(world.server.endpoint.peers.len(), 1);
        let flight = puppet.send(&mut world, &second);
        finish_behind(&mut world, &mut puppet, &flight);
    }
    // Both in one datagram; and a hello that fitted as long as it had no cookie.
    let mut world = world();
    let mut puppet = client_with_a_long_hello(1000);
    puppet.hello_with_cookie(&mut world);
    let flight = puppet.hello_in_fragments(60).concat();
    let flight = puppet.send(&mut world, &flight);
    finish_behind(&mut world, &mut puppet, &flight);
}

#[test]
fn a_fragment_of_a_hello_that_is_lost_comes_again() {
    let mut world = world();
    let mut puppet = client_with_a_long_hello(1000);
    get_cookie_for_fragments(&mut world, &mut puppet);
    let [first, second] = puppet.hello_in_fragments(200);
    assert!(puppet.send(&mut world, &second).is_empty(), "before the first it is not kept");
    for _ in 0..2 {
        assert!(puppet.send(&mut world, &first).is_empty());
        assert_eq!(world.server.endpoint.peers.len(), 1);
    }
    let flight = puppet.send(&mut world, &second);
    // The flight is lost, and the client sends its ClientHello again.
    let [first, second] = puppet.hello_in_fragments(200);
    let again = [puppet.send(&mut world, &first), puppet.send(&mut world, &second)].concat();
    assert_eq!(again.len(), flight.len());
    finish_behind(&mut world, &mut puppet, &again);
}

#[test]
fn first_fragments_of_hellos_make_no_state_without_a_right_cookie() {
    let mut world = world();
    for port in 1..=2000 {
        let mut puppet = client_with_a_long_hello(port);
        puppet.cookie = vec![port as u8; usize::from(port % 3) * 8];
        for datagram in puppet.hello_in_fragments(200) {
            assert!(puppet.send(&mut world, &datagram).iter().all(|answer| answer.len() <= datagram.len()));
        }
    }
    assert_eq!((world.server.endpoint.peers.len(), world.server.endpoint.next_alarm()), (0, None));
    assert_eq!(world.server.counters.cookies_sent, 2000);
    // One that never ends is given up.
    let mut puppet = client_with_a_long_hello(1000);
    get_cookie_for_fragments(&mut world, &mut puppet);
    let [first, _] = puppet.hello_in_fragments(200);
    puppet.send(&mut world, &first);
    world.run(Duration::from_secs(61));
    assert_eq!(world.server.endpoint.peers.len(), 0);
    // One that is too long is refused at once.
    let mut puppet = client_with_a_long_hello(1001);
    puppet.tail = vec![0; 5000];
    get_cookie_for_fragments(&mut world, &mut puppet);
    let [first, _] = puppet.hello_in_fragments(200);
    assert_eq!(last_alert(&puppet.send(&mut world, &first)), Some((2, 40)));
}

#[test]
fn fragments_of_a_hello_that_overlap_or_contradict_do_not_mix() {
    let mut world = world();
    let mut puppet = client_with_a_long_hello(1000);
    get_cookie_for_fragments(&mut world, &mut puppet);
    let [first, second] = puppet.hello_in_fragments(200);
    puppet.send(&mut world, &first);
    let body = client_hello(&puppet.random, &puppet.cookie, &puppet.suite, &puppet.tail);
    let len = body.len() as u32;
    let mut other = body[150..].to_vec();
    other[10] ^= 1;
    let contradicts = fragment(CLIENT_HELLO, len, 1, 150, &other);
    let longer = fragment(CLIENT_HELLO, len + 1, 1, 200, &body[200..]);
    let of_another = fragment(CLIENT_HELLO, len, 2, 200, &body[200..]);
    for wrong in [contradicts, longer, of_another] {
        assert!(puppet.send(&mut world, &record(HANDSHAKE, 0, 9, &wrong)).is_empty());
    }
    // An overlap with the same bytes is harmless.
    let overlaps = fragment(CLIENT_HELLO, len, 1, 150, &body[150..250]);
    assert!(puppet.send(&mut world, &record(HANDSHAKE, 0, 9, &overlaps)).is_empty());
    let flight = puppet.send(&mut world, &second);
    finish_behind(&mut world, &mut puppet, &flight);
    // Other suites than those that the cookie was given for, behind a first fragment that is right.
    let mut puppet = Puppet::new(1001);
    puppet.hello_with_cookie(&mut world);
    puppet.suite = ECDSA_CCM_8;
    let [first, second] = puppet.hello_in_fragments(52);
    assert!(puppet.send(&mut world, &first).is_empty());
    let answer = puppet.send(&mut world, &second);
    assert_eq!(records(&answer[0])[0].2[0], HELLO_VERIFY_REQUEST);
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
        // A client has state, and answers with an alert.
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

/// The view of an eavesdropper on a failed handshake, and the view of the operator.
#[derive(Clone, PartialEq, Debug)]
struct Failed {
    /// For each datagram of the client: the number of the server's answers, and the bytes of all these answers.
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
    // A ServerHello with an extension that the client signalled is accepted.
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
        (&CCM_8, 1, [254, 253], 47),
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
fn a_hello_of_a_later_version_is_answered_with_ours() {
    for version in [[254, 252], [254, 0], [253, 255], [252, 255], [128, 0]] {
        let mut world = world();
        let mut puppet = Puppet::new(1000);
        let hello = |cookie: &[u8], seq| {
            let mut body = client_hello(&[1; 32], cookie, &CCM_8, &[]);
            body[..2].copy_from_slice(&version);
            record(HANDSHAKE, 0, seq, &message(CLIENT_HELLO, seq as u16, &body))
        };
        let answer = puppet.send(&mut world, &hello(&[], 0));
        puppet.cookie = records(&answer[0])[0].2[15..].to_vec();
        let answer = puppet.send(&mut world, &hello(&puppet.cookie, 1));
        assert_eq!(records(&answer[0])[0].2[12..14], [254, 253], "{version:?}");
    }
}

/// RFC 6347, section 4.2.1: an answer has the number of the ClientHello's record, and the server continues from this
/// number.
#[test]
fn the_answers_to_a_hello_have_the_number_of_its_record() {
    let mut world = world();
    let puppet = Puppet::new(1000);
    let hello = |number, cookie: &[u8], seq| {
        record(HANDSHAKE, 0, number, &message(CLIENT_HELLO, seq, &client_hello(&[1; 32], cookie, &CCM_8, &[])))
    };
    let answer = records(&puppet.send(&mut world, &hello(41, &[], 0))[0]).remove(0);
    assert_eq!((answer.1, answer.2[0]), (41, HELLO_VERIFY_REQUEST));
    let cookie = &answer.2[15..];
    let mut next = 43;
    for number in [43, 44] {
        let flight = puppet.send(&mut world, &hello(number, cookie, 1));
        let flight: Vec<_> = flight.iter().flat_map(|datagram| records(datagram)).collect();
        assert_eq!(flight[0].2[0], SERVER_HELLO);
        let numbers: Vec<_> = flight.iter().map(|(_, number, _)| *number).collect();
        assert_eq!(numbers, (next..).take(flight.len()).collect::<Vec<_>>());
        next += flight.len() as u64;
    }
}

#[test]
fn a_hello_within_a_session_does_not_end_it() {
    let mut world = world();
    let mut puppet = Puppet::established(&mut world, 1000);
    // Protected: a renegotiation, each request for which is refused with no_renegotiation, a warning.
    let hello = message(CLIENT_HELLO, 3, &client_hello(&[9; 32], &[], &CCM_8, &[]));
    for body in [&hello, &hello, &message(HELLO_REQUEST, 3, &[])] {
        let renegotiation = puppet.seal(HANDSHAKE, body);
        let answers = puppet.send(&mut world, &renegotiation);
        assert_eq!(answers.len(), 1);
        let (kind, _, sealed) = records(&answers[0]).remove(0);
        assert_eq!((kind, puppet.open(ALERT, &sealed)), (ALERT, Some(vec![1, 100])));
    }
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

/// RFC 5746, section 4.2: a client that refuses to renegotiate answers each HelloRequest with no_renegotiation.
#[test]
fn a_hello_request_within_a_session_does_not_end_it() {
    let mut world = World::new(11, Config { suites: Suites::CCM_8, ..Config::default() });
    world.server.memory.ids.set(true);
    world.connect();
    world.run(Duration::from_secs(5));
    assert!(world.client.established && world.server.established);
    let mut server = Puppet::of_server(&world);
    for _ in 0..3 {
        let request = server.seal(HANDSHAKE, &message(HELLO_REQUEST, 0, &[]));
        let answers = world.tell_client(&request);
        assert_eq!(answers.len(), 1);
        let (kind, _, sealed) = records(&answers[0]).remove(0);
        assert_eq!((kind, server.open(ALERT, &sealed)), (ALERT, Some(vec![1, 100])));
    }
    // Another message of a handshake gets no answer.
    let hello = server.seal(HANDSHAKE, &message(SERVER_HELLO, 0, &server_hello([254, 253], CCM_8, 0, &[])));
    assert!(world.tell_client(&hello).is_empty());
    world.speak();
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

/// Returns a HelloVerifyRequest in its record.
fn hello_verify_request(sequence: u64, message_seq: u16, cookie: &[u8]) -> Vec<u8> {
    let body = [&[254, 255, cookie.len() as u8][..], cookie].concat();
    record(HANDSHAKE, 0, sequence, &message(HELLO_VERIFY_REQUEST, message_seq, &body))
}

/// Returns the record numbers and the cookies of the ClientHellos that a client sends.
fn hellos(datagrams: &[Vec<u8>]) -> Vec<(u64, Vec<u8>)> {
    let hellos = datagrams.iter().flat_map(|datagram| records(datagram));
    let hellos = hellos.filter(|(kind, _, body)| (*kind, body[0]) == (HANDSHAKE, CLIENT_HELLO));
    hellos.map(|(_, number, body)| (number, body[48..][..usize::from(body[47])].to_vec())).collect()
}

#[test]
fn a_hello_verify_request_that_answers_an_older_hello_is_dropped() {
    let mut world = world();
    world.network = Box::new(|_, _| Fate::LOST);
    world.connect();
    world.run(Duration::from_millis(1500));
    // Two hellos without a cookie, numbers 0 and 1, each answered with a cookie of its own (RFC 6347, section 4.2.1).
    let answer = world.tell_client(&hello_verify_request(0, 0, b"first"));
    assert_eq!(hellos(&answer), [(2, b"first".to_vec())]);
    for _ in 0..3 {
        assert!(world.tell_client(&hello_verify_request(1, 0, b"second")).is_empty());
        assert!(world.tell_client(&hello_verify_request(0, 0, b"first")).is_empty());
    }
    // The hello with the cookie is still the one that is repeated, and may itself be asked for another cookie.
    let before = world.sent.len();
    world.run(Duration::from_millis(1500));
    let sent: Vec<_> = world.sent[before..].iter().map(|(_, datagram)| datagram.clone()).collect();
    assert_eq!(hellos(&sent), [(3, b"first".to_vec())]);
    for (number, cookie, next) in [(2, b"third", 4), (4, b"forth", 5)] {
        let answer = world.tell_client(&hello_verify_request(number, 0, cookie));
        assert_eq!(hellos(&answer), [(next, cookie.to_vec())]);
        assert!(world.tell_client(&hello_verify_request(number, 0, b"again")).is_empty());
    }
}

#[test]
fn a_late_alert_of_an_earlier_handshake_does_not_end_the_next_one() {
    let mut world = World::new(11, Config { suites: Suites::CCM_8, ..Config::default() });
    world.server.offer(Suites::GCM);
    // The hello with the cookie is refused, comes again before the alert, and is refused again.
    world.network = Box::new(|n, datagram| match (n, datagram[0]) {
        (3, ALERT) => Fate::after(Duration::from_millis(1100)),
        (_, ALERT) => Fate::after(Duration::from_millis(700)),
        _ => Fate::arrives(),
    });
    world.connect();
    world.run(Duration::from_millis(1200));
    let alerts = world.sent.iter().filter(|(is_clients, datagram)| !is_clients && datagram[0] == ALERT);
    assert_eq!(alerts.map(|(_, alert)| records(alert)[0].1).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(world.client.closed.take(), Some(Fatal::Alert(AlertDescription::HANDSHAKE_FAILURE)));

    // The hello of the next handshake from the same address is still on its way when the second alert comes.
    world.server.offer(Suites::CCM_8);
    world.network = Box::new(|_, _| Fate::after(Duration::from_millis(900)));
    world.connect();
    world.run(Duration::from_millis(800));
    assert_eq!((world.client.closed, world.client.counters.unexpected), (None, 1));
    world.network = Box::new(|_, _| Fate::arrives());
    world.run(Duration::from_secs(5));
    assert!(world.client.established && world.server.established);
    world.speak();
}

#[test]
fn an_alert_that_answers_a_hello_ends_the_handshake() {
    for number in [0, 1] {
        let mut world = world();
        world.network = Box::new(|_, _| Fate::LOST);
        world.connect();
        world.run(Duration::from_millis(1500));
        // Two hellos, numbers 0 and 1.
        assert!(world.tell_client(&record(ALERT, 0, 2, &[2, 40])).is_empty());
        assert_eq!(world.client.closed, None);
        assert!(world.tell_client(&record(ALERT, 0, number, &[2, 40])).is_empty());
        assert_eq!(world.client.closed, Some(Fatal::Alert(AlertDescription::HANDSHAKE_FAILURE)));
    }
}

#[test]
fn a_handshake_survives_hello_verify_requests_that_come_late_and_again() {
    for late in [0, 100, 1100, 2500] {
        let mut world = World::new(11, Config { cookie_lifetime: Duration::from_millis(400), ..Config::default() });
        let mut requests = 0;
        world.network = Box::new(move |_, datagram| match datagram[13] {
            // From now on the cookies of two hellos differ; the first of them comes when the second one is in use.
            HELLO_VERIFY_REQUEST if datagram[0] == HANDSHAKE => {
                requests += 1;
                match requests {
                    1 => Fate(vec![(Duration::from_millis(1030 + late), Damage::Intact); 2]),
                    _ => Fate(vec![
                        (Duration::from_millis(10), Damage::Intact),
                        (Duration::from_millis(60), Damage::Intact),
                    ]),
                }
            }
            _ => Fate::after(Duration::from_millis(40)),
        });
        world.connect();
        world.run(Duration::from_secs(30));
        assert!(world.client.established && world.server.established, "{late} ms late");
    }
}

/// Returns the ServerHello of a server that answers the ClientHello with message_seq 1.
fn first_of_the_servers_flight() -> Vec<u8> {
    record(HANDSHAKE, 0, 1, &message(SERVER_HELLO, 1, &server_hello([254, 253], CCM_8, 0, &[])))
}

#[test]
fn a_client_repeats_its_hello_until_the_servers_flight_is_complete() {
    for hint in [None, Some(0), Some(20), Some(240)] {
        let mut world = client_awaits_server_hello();
        world.network = Box::new(|_, _| Fate::LOST);
        let hello = hellos(&[world.sent[2].1.clone()]).remove(0);
        world.tell_client(&first_of_the_servers_flight());
        if let Some(len) = hint {
            let body = [&u16::to_be_bytes(len)[..], &vec![b'h'; len.into()]].concat();
            world.tell_client(&record(HANDSHAKE, 0, 2, &message(SERVER_KEY_EXCHANGE, 2, &body)));
        }
        let before = world.sent.len();
        world.run(Duration::from_secs(5));
        let again: Vec<_> = world.sent[before..].iter().map(|(_, datagram)| datagram.clone()).collect();
        let again: Vec<_> = hellos(&again).into_iter().map(|(_, cookie)| cookie).collect();
        // A hint as long as this one takes the place of the cookie.
        let cookie = if hint == Some(240) { Vec::new() } else { hello.1 };
        assert_eq!(again, [cookie.clone(), cookie], "hint {hint:?}");
        // After the missing end of the flight the client continues, and from then on repeats its next flight.
        let seq = if hint.is_some() { 3 } else { 2 };
        let answer = world.tell_client(&record(HANDSHAKE, 0, 3, &message(SERVER_HELLO_DONE, seq, &[])));
        assert_eq!(records(&answer[0])[0].2[0], CLIENT_KEY_EXCHANGE);
        let before = world.sent.len();
        world.run(Duration::from_secs(5));
        let again = world.sent[before..].iter().filter(|(is_clients, _)| *is_clients);
        let again: Vec<_> = again.map(|(_, datagram)| records(datagram)[0].2[0]).collect();
        assert_eq!(again, [CLIENT_KEY_EXCHANGE; 2]);
    }
}

#[test]
fn a_hint_reaches_the_owner_behind_a_cookie() {
    let mut world = client_awaits_server_hello();
    world.client.store_delay = Some(Duration::from_secs(1));
    world.tell_client(&first_of_the_servers_flight());
    let body = [&[0, 4][..], b"hint"].concat();
    world.tell_client(&record(HANDSHAKE, 0, 2, &message(SERVER_KEY_EXCHANGE, 2, &body)));
    world.tell_client(&record(HANDSHAKE, 0, 3, &message(SERVER_HELLO_DONE, 3, &[])));
    let id = world.client.peer.unwrap();
    assert_eq!(world.client.endpoint.need(id), Some(Need::PskForServer { hint: b"hint" }));
}

#[test]
fn a_hello_verify_request_is_put_together_from_fragments() {
    for (message_seq, order) in [(0, [0, 1, 2]), (0, [2, 0, 1]), (7, [1, 2, 0])] {
        let mut world = world();
        world.network = Box::new(|_, _| Fate::LOST);
        world.connect();
        world.run(Duration::from_millis(100));
        let body = [&[254, 255, 9][..], b"a cookie."].concat();
        let mut answer = Vec::new();
        for (number, piece) in order.into_iter().enumerate() {
            assert!(answer.is_empty());
            let piece = fragment(HELLO_VERIFY_REQUEST, 12, message_seq, piece * 4, &body[piece as usize * 4..][..4]);
            answer = world.tell_client(&record(HANDSHAKE, 0, number as u64, &piece));
        }
        assert_eq!(hellos(&answer), [(1, b"a cookie.".to_vec())]);
        // What comes next is numbered behind it, and the transcript begins with the hello that has the cookie.
        let hello = server_hello([254, 253], CCM_8, 0, &[]);
        let flight = [message(SERVER_HELLO, message_seq + 1, &hello), message(SERVER_HELLO_DONE, message_seq + 2, &[])];
        let answer = world.tell_client(&record(HANDSHAKE, 0, 1, &flight.concat()));
        assert_eq!(records(&answer[0])[0].2[0], CLIENT_KEY_EXCHANGE);
    }
}

#[test]
fn a_finished_of_another_length_does_not_parse() {
    for len in [0, 11, 13, 36] {
        let mut world = world();
        let mut puppet = Puppet::new(1000);
        puppet.reach_server_hello_done(&mut world);
        let key_exchange = puppet.key_exchange(IDENTITY, b"0123456789abcdef");
        puppet.send(&mut world, &key_exchange);
        let change = puppet.change_cipher_spec();
        puppet.send(&mut world, &change);
        let finished = puppet.seal(HANDSHAKE, &message(FINISHED, puppet.message_seq, &vec![0; len]));
        puppet.send(&mut world, &finished);
        assert_eq!(world.server.closed, Some(Fatal::Decode), "{len} bytes");
    }
}

#[test]
fn a_client_hello_with_an_extension_twice_is_dropped() {
    let mut world = world();
    for (tail, answers) in [(&[0, 4, 0, 23, 0, 0][..], 1), (&[0, 8, 0, 23, 0, 0, 0, 23, 0, 0], 0)] {
        let hello = record(HANDSHAKE, 0, 0, &message(CLIENT_HELLO, 0, &client_hello(&[1; 32], &[], &CCM_8, tail)));
        assert_eq!(world.tell_server(Puppet::new(5).address, &hello).len(), answers);
    }
}

/// RFC 5746, sections 3.4 and 3.6: renegotiation_info is empty in a first handshake.
#[test]
fn a_hello_of_a_renegotiation_is_answered_with_handshake_failure() {
    for (tail, alert) in [
        (&[0, 6, 0xff, 1, 0, 2, 1, 7][..], 40),
        (&[0, 17, 0xff, 1, 0, 13, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12], 40),
        // The length of renegotiated_connection is wrong, or the content of the extension has no length.
        (&[0, 6, 0xff, 1, 0, 2, 2, 7], 50),
        (&[0, 4, 0xff, 1, 0, 0], 50),
    ] {
        let mut world = client_awaits_server_hello();
        let hello = server_hello([254, 253], CCM_8, 0, tail);
        let answer = world.tell_client(&record(HANDSHAKE, 0, 1, &message(SERVER_HELLO, 1, &hello)));
        assert_eq!(last_alert(&answer), Some((2, alert)), "{tail:02x?}");
        assert!(world.client.closed.is_some());

        let mut puppet = Puppet::new(1000);
        puppet.tail = tail.to_vec();
        let hello = puppet.hello();
        let answer = puppet.send(&mut world, &hello);
        if alert == 50 {
            assert!(answer.is_empty(), "nothing proves the address of a client whose ClientHello does not parse");
            continue;
        }
        puppet.cookie = records(&answer[0])[0].2[15..].to_vec();
        puppet.message_seq = 1;
        let hello = puppet.hello();
        assert_eq!(last_alert(&puppet.send(&mut world, &hello)), Some((2, alert)), "{tail:02x?}");
    }
}

#[test]
fn fragments_of_a_message_that_is_not_due_yet_are_counted() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    let before = world.server.counters.no_room;
    let seq = puppet.message_seq + 1;
    for offset in [0, 6] {
        let piece = puppet.plain(HANDSHAKE, &fragment(FINISHED, 12, seq, offset, &[0; 6]));
        assert!(puppet.send(&mut world, &piece).is_empty());
    }
    assert_eq!(world.server.counters.no_room, before + 2);
    puppet.finish(&mut world);
    assert_alive(&mut world, &mut puppet);
}

/// The time of a handshake must not show whether an identity is unknown or has a long key.
#[test]
fn every_length_of_a_key_costs_a_server_the_same() {
    let cost = |identity: &[u8], len: usize| {
        let mut world = world();
        world.server.credentials("Client_identity", vec![7; len]);
        let mut puppet = Puppet::new(1000);
        puppet.reach_server_hello_done(&mut world);
        let key_exchange = puppet.key_exchange(identity, b"0123456789abcdef");
        let before = COMPRESSED.get();
        puppet.send(&mut world, &key_exchange);
        COMPRESSED.get() - before
    };
    let unknown = cost(b"somebody", 16);
    for len in [1, 16, 30, 31, 32, 60, 63, 64] {
        assert_eq!(cost(IDENTITY, len), unknown, "{len} bytes");
    }
}
