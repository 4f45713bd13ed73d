//! Two endpoints in one function with a fake clock. The network loses, repeats, reorders and damages datagrams.

mod world;

use tegmen::dtls::{CipherSuite, Config, Fatal, Profile, Suites};
use tegmen::time::Duration;
use world::{Fate, World};

#[test]
fn a_handshake_and_messages_both_ways() {
    let mut world = World::new(1, Config::default());
    world.connect();
    world.run(Duration::from_secs(5));
    assert!(world.client.established && world.server.established);
    world.client.say(b"ping");
    world.run(Duration::from_secs(1));
    assert_eq!(world.server.heard, [b"ping"]);
    world.server.say(b"pong");
    world.run(Duration::from_secs(1));
    assert_eq!(world.client.heard, [b"pong"]);
}

/// Returns the number of bytes of the record that carries a message of four bytes; `None` if the endpoints agree on no
/// cipher suite.
fn agreed(client: Suites, server: Suites) -> Option<usize> {
    let mut world = World::new(1, Config::default());
    world.client.offer(client);
    world.server.offer(server);
    world.connect();
    world.run(Duration::from_secs(5));
    if !world.client.established {
        assert!(!world.server.established);
        return None;
    }
    let before = world.sent.len();
    world.client.say(b"ping");
    world.run(Duration::from_secs(1));
    assert_eq!(world.server.heard, [b"ping"]);
    Some(world.sent[before].1.len())
}

#[test]
fn the_server_chooses_what_it_would_rather_have_of_what_is_offered() {
    let (ccm_8, gcm) = (Some(13 + 8 + 4 + 8), Some(13 + 8 + 4 + 16));
    for (client, server, expected) in [
        (Suites::CCM_8, Suites::CCM_8, ccm_8),
        (Suites::CCM_8, Suites::GCM_THEN_CCM_8, ccm_8),
        (Suites::CCM_8_THEN_GCM, Suites::CCM_8, ccm_8),
        (Suites::CCM_8_THEN_GCM, Suites::CCM_8_THEN_GCM, ccm_8),
        (Suites::CCM_8_THEN_GCM, Suites::GCM_THEN_CCM_8, gcm),
        (Suites::GCM_THEN_CCM_8, Suites::CCM_8_THEN_GCM, ccm_8),
        (Suites::GCM_THEN_CCM_8, Suites::GCM, gcm),
        (Suites::GCM, Suites::CCM_8_THEN_GCM, gcm),
        (Suites::GCM, Suites::GCM, gcm),
        (Suites::GCM, Suites::CCM_8, None),
        (Suites::CCM_8, Suites::GCM, None),
    ] {
        assert_eq!(agreed(client, server), expected, "{client:?} {server:?}");
    }
}

/// Both endpoints support encrypt-then-MAC. The tests with other implementations examine a peer without it.
#[test]
fn cbc_is_agreed_on_only_where_it_is_named_and_then_with_encrypt_then_mac() {
    const CBC: Suites = Suites(&[CipherSuite::PSK_WITH_AES_128_CBC_SHA256]);
    let encrypt_then_mac = 13 + 16 + 16 + 32;
    assert_eq!(agreed(CBC, CBC), Some(encrypt_then_mac));
    assert_eq!((agreed(CBC, Suites::ALL), agreed(Suites::ALL, CBC)), (None, None));
    assert!(!Suites::ALL.0.contains(&CipherSuite::PSK_WITH_AES_128_CBC_SHA256));
    for lost in 0..12 {
        let mut world = World::new(7, Config { suites: CBC, ..Config::default() });
        world.network = Box::new(move |n, _| if n == lost { Fate::LOST } else { Fate::arrives() });
        world.connect();
        world.run(Duration::from_secs(60));
        assert!(world.client.established && world.server.established, "lost datagram {lost}");
    }
}

#[test]
fn a_handshake_with_gcm_survives_every_single_loss() {
    for lost in 0..12 {
        let mut world = World::new(7, Config { suites: Suites::GCM, ..Config::default() });
        world.network = Box::new(move |n, _| if n == lost { Fate::LOST } else { Fate::arrives() });
        world.connect();
        world.client.say(b"ping");
        world.run(Duration::from_secs(50));
        assert!(world.client.established && world.server.established, "lost {lost}");
    }
}

#[test]
fn the_minimal_profile_has_the_bytes_of_the_blink_paper() {
    let mut world = World::new(1, Config { profile: Profile::Minimal, ..Config::default() });
    world.connect();
    world.run(Duration::from_secs(5));
    assert!(world.client.established && world.server.established);
    let sizes: Vec<usize> = world.sent.iter().map(|(_, datagram)| datagram.len()).collect();
    assert_eq!(sizes, [67, 44, 83, 88, 42, 14, 53, 14, 53]);
}

#[test]
fn a_handshake_survives_every_single_loss() {
    for lost in 0..12 {
        for profile in [Profile::Default, Profile::Minimal] {
            let mut world = World::new(7, Config { profile, ..Config::default() });
            world.network = Box::new(move |n, _| if n == lost { Fate::LOST } else { Fate::arrives() });
            world.connect();
            world.client.say(b"ping");
            world.run(Duration::from_secs(50));
            assert!(world.client.established && world.server.established, "lost {lost} {profile:?}");
        }
    }
}

#[test]
fn a_handshake_survives_every_swap_of_neighbours() {
    for held in 0..12 {
        for profile in [Profile::Default, Profile::Minimal] {
            let mut world = World::new(7, Config { profile, ..Config::default() });
            world.network =
                Box::new(move |n, _| if n == held { Fate::after(Duration::from_millis(15)) } else { Fate::arrives() });
            world.connect();
            world.run(Duration::from_secs(50));
            assert!(world.client.established && world.server.established, "held {held} {profile:?}");
        }
    }
}

#[test]
fn fragments_of_a_small_mtu_come_together() {
    let mut world = World::new(3, Config { mtu: 64, ..Config::default() });
    world.connect();
    world.run(Duration::from_secs(50));
    // The second ClientHello cannot be accepted in fragments: a server without state has no buffer for them.
    assert!(!world.server.established);
    let mut world = World::new(3, Config { mtu: 100, ..Config::default() });
    world.server.limit_mtu(64);
    world.connect();
    world.run(Duration::from_secs(50));
    assert!(world.client.established && world.server.established);
}

#[test]
fn wrong_key_and_wrong_identity_are_one_outcome_to_the_peer() {
    let mut alerts = Vec::new();
    for (identity, key, known) in
        [("Client_identity", *b"not the same key", true), ("nobody", *b"0123456789abcdef", false)]
    {
        let mut world = World::new(9, Config::default());
        world.client.credentials(identity, key);
        world.connect();
        world.run(Duration::from_secs(70));
        assert!(!world.client.established && !world.server.established);
        assert_eq!(world.server.closed, Some(Fatal::WrongKeyOrIdentity { identity_known: known }));
        alerts.push((world.client.closed, world.sent.iter().map(|(_, d)| d.len()).rfind(|len| *len < 40)));
    }
    assert_eq!(alerts[0], alerts[1]);
}

#[test]
fn a_server_that_waits_for_its_store_loses_nothing() {
    let mut world = World::new(4, Config::default());
    world.server.store_delay = Some(Duration::from_millis(300));
    world.connect();
    let start = world.now;
    while !world.client.established && world.now.since(start) < Duration::from_secs(10) {
        world.run(Duration::from_millis(20));
    }
    assert!(world.client.established);
    assert!(world.now.since(start) < Duration::from_millis(600), "the early Finished had to be sent again");
}

#[test]
fn a_client_that_restarts_takes_over_only_when_it_proved_its_key() {
    let mut world = World::new(5, Config::default());
    world.connect();
    world.run(Duration::from_secs(2));
    let first = world.server.peer.unwrap();
    // Another client at the same address begins again, with a wrong key.
    let mut intruder = world.restarted_client(77);
    intruder.credentials("Client_identity", *b"not the same key");
    let honest = core::mem::replace(&mut world.client, intruder);
    world.connect();
    world.run(Duration::from_secs(70));
    assert!(!world.client.established);
    world.client = honest;
    world.client.say(b"still here");
    world.run(Duration::from_secs(1));
    assert_eq!(world.server.heard, [b"still here"]);
    assert_eq!(world.server.peer, Some(first));
    // The honest client begins again.
    world.client = world.restarted_client(78);
    world.connect();
    world.run(Duration::from_secs(2));
    assert!(world.client.established);
    assert_ne!(world.server.peer, Some(first));
    world.client.say(b"anew");
    world.run(Duration::from_secs(1));
    assert_eq!(world.server.heard.last().unwrap(), b"anew");
}

#[test]
fn closing_is_told_to_the_peer() {
    let mut world = World::new(6, Config::default());
    world.connect();
    world.run(Duration::from_secs(2));
    world.client.close();
    world.run(Duration::from_secs(1));
    assert_eq!(world.server.closed, Some(Fatal::Closed));
}

fn seeds() -> u64 {
    std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(500)
}

/// Runs thousands of seeds of restarts in addition to all other faults. `TEGMEN_SEEDS` sets their number.
#[test]
fn either_end_may_restart_at_any_time() {
    for seed in 0..seeds() {
        let profile = if seed % 3 == 0 { Profile::Minimal } else { Profile::Default };
        let mut world = World::new(seed, Config { profile, ..Config::default() });
        world.random_faults();
        world.connect();
        // Most restarts fall into the handshake, which without faults takes 60 ms.
        let scale = [7, 131, 2003][seed as usize % 3];
        for restart in 1..=3 {
            world.run(Duration::from_millis(seed.wrapping_mul(restart) % 61 * scale / 7));
            world.client.say(b"early");
            if (seed >> restart) & 1 == 0 {
                world.client = world.restarted_client(seed + restart * 1_000_000);
                world.connect();
            } else {
                world.server = world.restarted_server(seed + restart * 1_000_000);
            }
        }
        world.run(Duration::from_secs(55));
        // Now the network loses nothing, and a client whose message does not arrive connects again.
        world.network = Box::new(|_, _| Fate::arrives());
        world.run(Duration::from_secs(1));
        world.client.say(b"heard?");
        world.run(Duration::from_secs(1));
        if !world.server.heard.iter().any(|text| text == b"heard?") {
            world.client = world.restarted_client(seed + 9_000_000);
            world.connect();
            world.run(Duration::from_secs(20));
        }
        assert!(world.client.established && world.server.established, "seed {seed}");
        world.client.say(b"ping");
        world.server.say(b"pong");
        world.run(Duration::from_secs(2));
        assert_eq!(world.server.heard.iter().filter(|text| *text == b"ping").count(), 1, "seed {seed}");
        assert_eq!(world.client.heard.iter().filter(|text| *text == b"pong").count(), 1, "seed {seed}");
    }
}

/// Runs thousands of seeds of loss, repetition, reordering, truncation and damage. `TEGMEN_SEEDS` sets their number.
#[test]
fn handshakes_and_messages_under_random_faults() {
    for seed in 0..seeds() {
        let profile = if seed % 3 == 0 { Profile::Minimal } else { Profile::Default };
        let mut world = World::new(seed, Config { profile, ..Config::default() });
        world.random_faults();
        if seed % 5 == 0 {
            world.server.store_delay = Some(Duration::from_millis(seed % 700));
        }
        world.connect();
        world.run(Duration::from_secs(55));
        if !(world.client.established && world.server.established) {
            // With a third of all datagrams lost a handshake may run out of time. But it must never be complete on one
            // side alone once the network loses nothing again.
            world.network = Box::new(|_, _| Fate::arrives());
            if !world.client.established {
                world.client = world.restarted_client(seed + 1_000_000);
                world.connect();
            }
            world.run(Duration::from_secs(30));
        }
        assert!(world.client.established, "seed {seed}: client not established");
        world.network = Box::new(|_, _| Fate::arrives());
        world.client.say(b"ping");
        world.run(Duration::from_secs(2));
        assert!(world.server.established, "seed {seed}: server not established");
        assert_eq!(world.server.heard.iter().filter(|h| *h == b"ping").count(), 1, "seed {seed}");
        world.server.say(b"pong");
        world.run(Duration::from_secs(1));
        assert_eq!(world.client.heard.iter().filter(|h| *h == b"pong").count(), 1, "seed {seed}");
    }
}
