//! A server that accepts two pre-shared keys of one PSK identity, on a fake clock.

mod world;

use tegmen::dtls::{CipherSuite, Config, Fatal, Suites};
use tegmen::endpoint::Peers as _;
use tegmen::identity::Principal;
use tegmen::time::Duration;
use tegmen_tickets::TicketKeys;
use world::{Damage, Fate, World};

const ALL: [Suites; 5] = [
    Suites::CCM_8,
    Suites::GCM,
    Suites(&[CipherSuite::PSK_WITH_AES_128_CBC_SHA256]),
    Suites(&[CipherSuite::ECDHE_PSK_WITH_AES_128_CCM_8_SHA256]),
    Suites(&[CipherSuite::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256]),
];
const CURRENT: &[u8] = b"0123456789abcdef";
const PREVIOUS: &[u8] = b"a key of another length, which is longer than a block of SHA-256";

/// Creates a world with a server that accepts both keys, and a client that has `key`.
fn world(seed: u64, suites: Suites, key: &[u8]) -> World {
    let mut world = World::new(seed, Config { suites, ..Config::default() });
    world.client.memory.tickets.set(true);
    world.server.memory.tickets.set(true);
    *world.server.memory.keys.borrow_mut() = TicketKeys::draw(&mut world.server.crypto);
    world.server.previous_key = Some(PREVIOUS.to_vec());
    world.client.credentials("Client_identity", key);
    world
}

fn principal(world: &mut World) -> Principal {
    world.server.endpoint.peers.peer(world.server.peer.unwrap()).unwrap().principal()
}

/// The type of the ClientKeyExchange, the first message of the client's last flight. The Finished of the client is in
/// the same flight.
const CLIENT_KEY_EXCHANGE: u8 = 16;

#[test]
fn a_client_may_have_either_key() {
    for suites in ALL {
        for (key, expected) in [(CURRENT, Principal(7)), (PREVIOUS, Principal(8))] {
            let mut world = world(1, suites, key);
            world.connect();
            // No flight is sent again in this time.
            world.run(Duration::from_millis(500));
            assert!(world.client.established && world.server.established, "{suites:?} {:?}", world.server.closed);
            assert_eq!(principal(&mut world), expected);
            world.speak();
            world.connect_again();
            world.run(Duration::from_millis(500));
            assert!(world.client.resumed && world.server.resumed);
            assert_eq!(principal(&mut world), expected, "a ticket keeps it");
            world.speak();
        }
    }
}

#[test]
fn a_client_with_a_third_key_is_refused_as_with_one_key() {
    let third = b"not the same key";
    for suites in ALL {
        let mut outcomes = Vec::new();
        for previous in [None, Some(PREVIOUS.to_vec())] {
            let mut world = world(1, suites, third);
            world.server.previous_key = previous;
            world.connect();
            world.run(Duration::from_secs(10));
            assert_eq!(world.server.closed, Some(Fatal::WrongKeyOrIdentity { identity_known: true }));
            assert!(!world.client.established && !world.server.established);
            let lens: Vec<_> =
                world.sent.iter().map(|(from_client, datagram)| (*from_client, datagram.len())).collect();
            outcomes.push((world.now, lens));
        }
        assert_eq!(outcomes[0], outcomes[1]);
    }
}

#[test]
fn a_forged_finished_keeps_neither_key_out() {
    for suites in ALL {
        for key in [CURRENT, PREVIOUS] {
            let mut world = world(1, suites, key);
            // The flight of the client comes twice, and the last record of the first copy is forged.
            world.network = Box::new(|_, datagram| match datagram[13] == CLIENT_KEY_EXCHANGE {
                true => {
                    let last_byte = Damage::Flipped { at: datagram.len() - 1, bit: 0 };
                    Fate(vec![(Duration::from_millis(5), last_byte), (Duration::from_millis(10), Damage::Intact)])
                }
                false => Fate::arrives(),
            });
            world.connect();
            world.run(Duration::from_millis(500));
            assert!(world.client.established && world.server.established, "{suites:?} {:?}", world.server.closed);
            world.speak();
        }
    }
}

#[test]
fn datagrams_are_lost_and_repeated() {
    for seed in 0..1000 {
        let key = if seed % 2 == 0 { CURRENT } else { PREVIOUS };
        let mut world = world(seed, ALL[seed as usize % ALL.len()], key);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        world.network = Box::new(move |number, _| {
            if number > 5 {
                return Fate::arrives();
            }
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            match state % 8 {
                0 | 1 => Fate::LOST,
                2 => {
                    Fate(vec![(Duration::from_millis(5), Damage::Intact), (Duration::from_millis(40), Damage::Intact)])
                }
                3 => Fate::after(Duration::from_millis(700)),
                _ => Fate::arrives(),
            }
        });
        world.connect();
        world.run(Duration::from_secs(60));
        assert!(world.client.established && world.server.established, "{seed}: {:?}", world.server.closed);
        world.speak();
    }
}
