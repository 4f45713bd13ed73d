//! Sessions that are stored outside of an endpoint and continue later: after the endpoint stored them when it ended,
//! after a power cut, and from copies.

mod world;

use tegmen::buf::Writer;
use tegmen::cx::Cx;
use tegmen::dtls::record::{CHUNK, MAX_SEALED};
use tegmen::dtls::{CipherSuite, Config, SEALED_SESSION_LEN, Session, Suites};
use tegmen::endpoint::{Misuse, Peers as _};
use tegmen::identity::Principal;
use tegmen::time::Duration;
use world::{Node, World};

fn established(seed: u64, config: Config) -> World {
    let mut world = World::new(seed, config);
    world.connect();
    world.run(Duration::from_secs(5));
    assert!(world.client.established && world.server.established);
    world
}

fn seal(node: &mut Node, session: &Session) -> Vec<u8> {
    let mut storage = [0; SEALED_SESSION_LEN];
    let mut writer = Writer::new(&mut storage);
    session.seal(&mut node.crypto, &[5; 16], b"peer", &mut writer).unwrap();
    writer.written().to_vec()
}

/// A sealed session with the end of its reserved record numbers, as a store keeps it. The new end is stored before the
/// first of the newly reserved record numbers is used.
struct Kept {
    sealed: Vec<u8>,
    end: u32,
}

/// Stores a copy of the session of `node`, for the case of a power cut.
fn keep_copy(node: &mut Node) -> Kept {
    let id = node.peer.unwrap();
    node.endpoint.lease_session(id, CHUNK);
    let session = node.endpoint.copy_session(id).unwrap();
    Kept { sealed: seal(node, &session), end: CHUNK }
}

/// Continues a stored session in the endpoint of `node`. This endpoint replaces an endpoint that no longer exists.
fn come_back(world: &mut World, mut node: Node, kept: &mut Kept, at_server: bool) {
    let remote = if at_server { world.client.local } else { world.server.local };
    let path = node.path(remote);
    let mut session = Session::open(&mut node.crypto, &[5; 16], b"peer", &kept.sealed).unwrap();
    let (next, window) = session.position();
    let begun = next.max(kept.end).div_ceil(CHUNK) * CHUNK;
    session.go_on(begun, window);
    kept.end = begun + CHUNK;
    let mut cx = Cx { now: world.now, crypto: &mut node.crypto, counters: &mut node.counters };
    let id = node.endpoint.restore_session(&mut cx, &path, Principal(7), &session).unwrap();
    assert_eq!(node.endpoint.peers.peer(id).unwrap().principal(), Principal(7));
    (node.peer, node.established) = (Some(id), true);
    assert_eq!(node.try_to_seal(world.now, 4), Err(Misuse::KeyExhausted), "nothing before the lease is kept");
    node.endpoint.lease_session(id, kept.end);
    *(if at_server { &mut world.server } else { &mut world.client }) = node;
}

fn say(world: &mut World, from_client: bool, text: &[u8]) {
    if from_client {
        world.client.say(text)
    } else {
        world.server.say(text)
    }
    world.run(Duration::from_secs(1));
    let heard = if from_client { &world.server.heard } else { &world.client.heard };
    assert_eq!(heard.last().map(Vec::as_slice), Some(text));
}

const CBC: Suites = Suites(&[CipherSuite::PSK_WITH_AES_128_CBC_SHA256]);
const CHACHA20: Suites = Suites(&[CipherSuite::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256]);

#[test]
fn a_session_moves_in_order_and_goes_on_without_a_handshake() {
    for suites in [Suites::CCM_8, Suites::GCM, CHACHA20, CBC] {
        let mut world = established(1, Config { suites, ..Config::default() });
        say(&mut world, true, b"one");
        say(&mut world, false, b"two");
        for at_server in [true, false] {
            let node = if at_server { &mut world.server } else { &mut world.client };
            let id = node.peer.unwrap();
            let session = node.endpoint.take_session(id).unwrap();
            assert!(node.endpoint.take_session(id).is_none(), "it is gone from where it was");
            let mut kept = Kept { sealed: seal(node, &session), end: 0 };
            let new = if at_server { world.restarted_server(9) } else { world.restarted_client(9) };
            come_back(&mut world, new, &mut kept, at_server);
            let node = if at_server { &mut world.server } else { &mut world.client };
            assert!(!node.endpoint.is_unverified(node.peer.unwrap()));
        }
        let before = world.sent.len();
        say(&mut world, true, b"three");
        say(&mut world, false, b"four");
        assert_eq!(world.sent.len(), before + 2);
        // What was sent before it moved is known.
        let heard = world.server.heard.len();
        for (from_client, datagram) in world.sent.clone() {
            if from_client {
                world.tell_server(world.client.local, &datagram);
            }
        }
        assert_eq!(world.server.heard.len(), heard);
    }
}

#[test]
fn after_a_power_cut_nothing_counts_before_the_peer_proved_that_it_is_fresh() {
    let mut world = established(2, Config::default());
    let mut kept = keep_copy(&mut world.server);
    for text in [b"1", b"2", b"3"] {
        say(&mut world, true, text);
    }
    say(&mut world, false, b"x");
    world.client.close();
    world.run(Duration::from_millis(1));
    let close_notify = world.sent.last().unwrap().1.clone();
    let replays: Vec<Vec<u8>> = world.sent.iter().filter(|(client, _)| *client).map(|(_, d)| d.clone()).collect();
    let server = world.restarted_server(3);
    come_back(&mut world, server, &mut kept, true);
    let id = world.server.peer.unwrap();
    assert!(world.server.endpoint.is_unverified(id));
    // Replays are authentic, but perhaps not fresh: an alert ends no session.
    for datagram in replays.iter().chain([&close_notify]) {
        world.tell_server(world.client.local, datagram);
        assert!(world.server.endpoint.is_unverified(id) && world.server.closed.is_none());
    }
    world.server.endpoint.verify_session(id);
    let heard = world.server.heard.len();
    for datagram in &replays {
        world.tell_server(world.client.local, datagram);
    }
    assert_eq!(world.server.heard.len(), heard, "nothing up to what was verified is taken again");
}

#[test]
fn power_cuts_without_end_use_no_nonce_twice() {
    // The ciphers of the world stop at a nonce that comes twice.
    let mut world = established(3, Config::default());
    let (mut server, mut client) = (keep_copy(&mut world.server), keep_copy(&mut world.client));
    let mut draw = 12345u64;
    for n in 0..100u64 {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        match (draw >> 60) % 4 {
            0 => {
                let node = world.restarted_server(1000 + n);
                come_back(&mut world, node, &mut server, true);
            }
            1 => {
                let node = world.restarted_client(2000 + n);
                come_back(&mut world, node, &mut client, false);
            }
            _ => {}
        }
        say(&mut world, draw >> 59 & 1 == 1, &n.to_be_bytes());
        for node in [&mut world.server, &mut world.client] {
            let id = node.peer.unwrap();
            node.endpoint.verify_session(id);
        }
    }
}

#[test]
fn a_session_without_numbers_and_a_path_that_is_taken_are_refused() {
    let mut world = established(4, Config::default());
    let (id, path) = (world.server.peer.unwrap(), world.server.path(world.client.local));
    let mut session = world.server.endpoint.copy_session(id).unwrap();
    assert!(session.position().0 >= MAX_SEALED, "all numbers are leased to the session that lives");
    world.server.endpoint.lease_session(id, CHUNK);
    session = world.server.endpoint.copy_session(id).unwrap();
    assert_eq!(session.position().0, CHUNK);
    let (now, server) = (world.now, &mut world.server);
    let mut cx = Cx { now, crypto: &mut server.crypto, counters: &mut server.counters };
    let taken = server.endpoint.restore_session(&mut cx, &path, Principal(7), &session);
    assert_eq!(taken, None);
    session.go_on(1000 * CHUNK, None);
    let mut server = world.restarted_server(5);
    let mut cx = Cx { now, crypto: &mut server.crypto, counters: &mut server.counters };
    let exhausted = server.endpoint.restore_session(&mut cx, &path, Principal(7), &session);
    assert_eq!(exhausted, None);
}
