//! Two endpoints that connect to each other at the same time, over the same pair of addresses. A rule makes one of them
//! the server, and no spoofed ClientHello can use the rule.

mod world;

use tegmen::address::Address;
use tegmen::dtls::{CipherSuite, ClientAuthentication, Config, ConnectionIdConfig, Profile, Rank, Suites};
use tegmen::endpoint::{Peers as _, Phase};
use tegmen::identity::PeerId;
use tegmen::time::Duration;
use world::badge::Badge;
use world::{Fate, Side, World};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the number of seeds: the value of `TEGMEN_SEEDS`, or `default`.
fn seeds(default: u64) -> u64 {
    std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

/// Returns a function that draws a random number below its argument.
fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) % below
    }
}

/// Makes the network repeat and reorder the first 40 datagrams, and lose at most five datagrams. So at least one of six
/// transmissions of a flight arrives before the time limit of the handshake.
fn faults(world: &mut World, seed: u64) {
    let mut draw = draws(seed);
    let (loss, mut losses) = (draw(40), 0);
    world.network = Box::new(move |n, _| {
        if n >= 40 {
            return Fate::arrives();
        }
        if draw(100) < loss && losses < 5 {
            losses += 1;
            return Fate::LOST;
        }
        let copies = if draw(6) == 0 { 2 } else { 1 };
        let delay = |draw: &mut dyn FnMut(u64) -> u64| if draw(5) == 0 { draw(900) } else { draw(12) };
        Fate((0..copies).map(|_| (Duration::from_millis(5 + delay(&mut draw)), world::Damage::Intact)).collect())
    });
}

/// Asserts that the endpoints have one session with each other, in the entries with these `ids`, and that both can
/// send.
fn assert_one_session(world: &mut World, ids: [PeerId; 2], what: &str) {
    for (node, id) in [(&world.client, ids[0]), (&world.server, ids[1])] {
        // A ClientHello that the network delayed may begin another handshake, which ends by its time.
        assert!(!node.ended.iter().any(|(ended, _)| *ended == id), "{what}: {:?}", node.ended);
    }
    assert!(world.client.established && world.server.established, "{what}");
    assert_eq!([world.client.peer, world.server.peer], ids.map(Some), "{what}: another entry");
    let mut ranks = Vec::new();
    for node in [&mut world.client, &mut world.server] {
        assert_eq!(node.endpoint.peers.len(), 1, "{what}");
        let peer = node.endpoint.peers.peer(node.peer.expect("established")).expect("still there");
        assert_eq!(peer.phase(), Phase::Established, "{what}");
        ranks.push(peer.rank());
    }
    ranks.sort();
    assert_eq!(ranks, [Rank::Ours, Rank::OursAsServer], "{what}: one client and one server");
    assert_both_can_send(world, what);
}

/// Asserts that both endpoints have the same keys: each receives the other's message exactly once.
fn assert_both_can_send(world: &mut World, what: &str) {
    world.network = Box::new(|_, _| Fate::arrives());
    world.client.say(b"ping");
    world.server.say(b"pong");
    world.run(SECOND);
    assert_eq!(
        (&world.server.heard[..], &world.client.heard[..]),
        (&[b"ping".to_vec()][..], &[b"pong".to_vec()][..]),
        "{what}"
    );
}

/// Begins a session of the client, and some milliseconds later a session of the server.
fn connect_both(world: &mut World, apart: u64) -> [PeerId; 2] {
    world.connect();
    if apart > 0 {
        world.run(Duration::from_millis(apart));
    }
    world.connect_from_server();
    [world.client.peer, world.server.peer].map(|peer| peer.expect("connected"))
}

#[test]
fn two_that_connect_at_the_same_time_have_one_session() {
    for seed in 0..100 {
        let mut world = World::new(seed, Config::default());
        let ids = connect_both(&mut world, 0);
        world.run(SECOND);
        assert_one_session(&mut world, ids, &format!("seed {seed}"));
    }
}

/// Runs thousands of seeds of loss, duplication and reordering. `TEGMEN_SEEDS` sets their number.
#[test]
fn one_session_under_loss_duplication_and_reordering() {
    for seed in 0..seeds(500) {
        let profile = if seed % 3 == 0 { Profile::Minimal } else { Profile::Default };
        let mut world = World::new(seed, Config { profile, ..Config::default() });
        faults(&mut world, seed);
        let mut draw = draws(seed + 1_000_000);
        if seed % 5 == 0 {
            world.server.store_delay = Some(Duration::from_millis(draw(700)));
        }
        let apart = if seed % 2 == 0 { 0 } else { draw(90) };
        let ids = connect_both(&mut world, apart);
        // A session that one of them has already is replaced.
        let replaces = world.client.established || world.server.established;
        world.run(Duration::from_secs(110));
        let what = format!("seed {seed}, {apart} ms apart");
        if replaces {
            assert_both_can_send(&mut world, &what);
            continue;
        }
        assert_one_session(&mut world, ids, &what);
    }
}
/// Gives both endpoints raw public keys. Each trusts the other's key, so that either can be the server.
fn wear_keys(world: &mut World) {
    let [client, server] = [1, 2].map(|seed| Badge::raw(seed).asking(ClientAuthentication::Required));
    let (of_client, of_server) = (client.clone().trusting(&server), server.trusting(&client));
    world.client.wear(of_client);
    world.server.wear(of_server);
}

#[test]
fn one_session_with_public_keys_and_connection_ids() {
    let suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);
    for seed in 0..seeds(1000) / 25 {
        let connection_id = (seed % 2 == 0).then(ConnectionIdConfig::default);
        // In a third of the worlds the ClientHellos come in fragments.
        let mtu = if seed % 3 == 0 { 120 } else { 1232 };
        let mut world = World::new(seed, Config { suites, connection_id, mtu, ..Config::default() });
        wear_keys(&mut world);
        faults(&mut world, seed);
        let apart = if seed % 4 < 2 { 0 } else { draws(seed)(40) };
        let ids = connect_both(&mut world, apart);
        world.run(Duration::from_secs(110));
        assert_one_session(&mut world, ids, &format!("seed {seed}, {apart} ms apart"));
    }
}

/// Returns the shortest possible ClientHello, with the largest random.
fn client_hello(cookie: &[u8]) -> Vec<u8> {
    let extra = cookie.len() as u8;
    let seq = u8::from(!cookie.is_empty());
    let record = [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, seq, 0, 12 + 42 + extra];
    let message = [1, 0, 0, 42 + extra, 0, seq, 0, 0, 0, 0, 0, 42 + extra];
    // PSK_WITH_AES_128_CCM_8, no compression.
    [&record[..], &message, &[254, 253], &[0xff; 32], &[0, extra], cookie, &[0, 2, 0xc0, 0xa8, 1, 0]].concat()
}

/// Returns the cookie of a HelloVerifyRequest.
fn cookie_of(request: &[u8]) -> &[u8] {
    assert_eq!((request[0], request[13], request[27]), (22, 3, 16), "a HelloVerifyRequest with a cookie of 16 bytes");
    &request[28..44]
}

/// Sends ClientHellos with the other endpoint's address to both endpoints: without a cookie, and with a cookie for the
/// attacker's own address.
fn attack(world: &mut World) {
    let own = Address { port: 3, ..world.client.local };
    let (client, server) = (world.client.local, world.server.local);
    for (victim, spoofed) in [(Side::Server, client), (Side::Client, server)] {
        let requests = world.spoof(victim, own, &client_hello(&[]));
        let cookie = cookie_of(&requests[0]).to_vec();
        for hello in [client_hello(&[]), client_hello(&cookie)] {
            let answers = world.spoof(victim, spoofed, &hello);
            cookie_of(&answers[0]);
            assert_eq!(answers.len(), 1);
        }
    }
}

/// Runs two endpoints that connect at the same time, for two minutes. With `attacked`, sends the attacker's
/// ClientHellos in each of the first 200 milliseconds, and then in each second. The returned world has the datagrams
/// that the endpoints sent, which the test compares.
fn everything_sent(seed: u64, attacked: bool) -> World {
    let mut world = World::new(seed, Config::default());
    faults(&mut world, seed);
    let ids = connect_both(&mut world, 0);
    for step in 0..320 {
        if attacked {
            attack(&mut world);
        }
        world.run(Duration::from_millis(if step < 200 { 1 } else { 1000 }));
    }
    assert_one_session(&mut world, ids, &format!("seed {seed}"));
    world
}

/// A client treats a HelloVerifyRequest that a spoofed ClientHello caused as the answer to its own ClientHello. In this
/// test, such a HelloVerifyRequest never arrives.
#[test]
fn spoofed_hellos_change_nothing() {
    for seed in 0..seeds(20) {
        let (calm, attacked) = (everything_sent(seed, false), everything_sent(seed, true));
        assert_eq!(calm.sent, attacked.sent, "seed {seed}");
    }
}

/// The attacker sends a recorded ClientHello with a cookie that was valid for this address and is not too old.
#[test]
fn a_recorded_hello_does_not_end_a_handshake() {
    let mut later = 0;
    for seed in 0..50 {
        let mut world = World::new(seed, Config::default());
        world.connect();
        world.run(SECOND);
        let hellos: Vec<_> = world.sent.iter().filter(|(client, sent)| *client && sent[13] == 1).cloned().collect();
        let recorded = &hellos.last().expect("a ClientHello with a cookie").1;
        assert!(recorded[59..62] == [0, 16, recorded[61]], "it shows a cookie");
        // The client forgets everything; the server connects to it.
        world.client = world.restarted_client(seed + 1000);
        world.connect_from_server();
        let (id, remote) = (world.server.peer.expect("connected"), world.client.local);
        for _ in 0..80 {
            let peer = world.server.endpoint.peers.peer(id).expect("still there");
            let handshakes = peer.phase() == Phase::Handshaking;
            if handshakes {
                let answers = world.spoof(Side::Server, remote, recorded);
                cookie_of(&answers[0]);
                later += 1;
            }
            world.run(Duration::from_millis(1));
        }
        let peer = world.server.endpoint.peers.peer(id).expect("still there");
        assert_eq!((peer.phase(), peer.rank()), (Phase::Established, Rank::Ours), "seed {seed}");
    }
    assert!(later > 50 * 40, "tried in all steps: {later}");
}
