//! Handshakes with RSA as the key exchange, between two endpoints on a fake clock. `world::badge` has a substitute for
//! RSA. The tests of hosts use real RSA.

mod world;

use tegmen::dtls::{CertificateType, CipherSuite, ClientAuthentication, Config, Fatal, Suites};
use tegmen::time::Duration;
use world::badge::{Badge, MODULUS_LEN};
use world::puppet::{
    CLIENT_KEY_EXCHANGE, HANDSHAKE, Puppet, SERVER_HELLO, SERVER_KEY_EXCHANGE, last_alert, message, record, records,
};
use world::{Fate, World};

const RSA: Suites = Suites(&[CipherSuite::RSA_WITH_AES_128_CBC_SHA]);
/// The fatal alert decrypt_error (RFC 5246, section 7.2.2): level and description.
const DECRYPT_ERROR: (u8, u8) = (2, 51);

fn server(seed: u8) -> Badge {
    Badge { rsa: true, ..Badge::chain(seed, 0) }
}

fn world_of(seed: u64, client: Badge, server: Badge) -> World {
    let mut world = World::new(seed, Config { suites: RSA, ..Config::default() });
    world.client.wear(client);
    world.server.wear(server);
    world
}

/// Returns a world in which only the server has a certificate.
fn server_only(seed: u64) -> World {
    let server = server(2);
    world_of(seed, Badge::blank(CertificateType::X509).trusting(&server), server)
}

/// Returns a world in which both endpoints have a certificate. The client's key is an ECDSA key.
fn mutual(seed: u64) -> World {
    let (client, server) = (Badge::chain(1, 0), server(2));
    let server = server.trusting(&client).asking(ClientAuthentication::Required);
    world_of(seed, client.trusting(&server), server)
}

fn speaks(world: &mut World) {
    world.connect();
    world.run(Duration::from_secs(60));
    assert!(world.client.established, "{:?} {:?}", world.client.closed, world.server.closed);
    world.speak();
}

#[test]
fn the_server_alone_or_both_prove_themselves() {
    for mut world in [server_only(1), mutual(1)] {
        speaks(&mut world);
        let (_, record) = world.sent.last().unwrap();
        assert_eq!(record.len(), 13 + 16 + 16 + 20, "encrypt-then-MAC, with a code of SHA-1");
    }
}

#[test]
fn it_is_agreed_on_only_where_it_is_named() {
    assert!(!Suites::ALL.0.contains(&CipherSuite::RSA_WITH_AES_128_CBC_SHA));
    for (client, server) in [(RSA, Suites::ALL), (Suites::ALL, RSA)] {
        let mut world = server_only(1);
        world.client.offer(client);
        world.server.offer(server);
        world.connect();
        world.run(Duration::from_secs(10));
        assert!(!world.client.established && !world.server.established);
    }
}

#[test]
fn a_client_without_extensions_gets_none() {
    let mut world = server_only(1);
    let mut puppet = Puppet::new(1000);
    puppet.suite = [0, 0x2f];
    let hello = puppet.hello_with_cookie(&mut world);
    let flight = puppet.send(&mut world, &hello);
    let (_, _, hello) = records(&flight[0]).remove(0);
    // Header, version, random, session id, suite and compression method.
    assert_eq!((hello[0], hello.len()), (SERVER_HELLO, 12 + 2 + 32 + 1 + usize::from(hello[46]) + 2 + 1));
}

#[test]
fn a_key_of_another_kind_does_not_serve_it() {
    let server = Badge::chain(2, 0);
    let mut world = world_of(1, Badge::blank(CertificateType::X509).trusting(&server), server);
    world.connect();
    world.run(Duration::from_secs(10));
    assert!(!world.client.established && !world.server.established);
}

#[test]
fn every_single_loss_and_every_swap_of_neighbours_is_survived() {
    for of in [server_only, mutual] {
        for n in 0..14 {
            for fate in [|| Fate::LOST, || Fate::after(Duration::from_millis(15))] {
                for mtu in [200, 1232] {
                    let mut world = of(n as u64);
                    world.client.limit_mtu(mtu);
                    world.server.limit_mtu(mtu);
                    world.network = Box::new(move |at, _| if at == n { fate() } else { Fate::arrives() });
                    speaks(&mut world);
                }
            }
        }
    }
}

#[test]
fn a_handshake_ends_under_any_faults() {
    for seed in 0..200 {
        let mut world = if seed % 2 == 0 { server_only(seed) } else { mutual(seed) };
        world.random_faults();
        world.connect();
        world.run(Duration::from_secs(60));
        // Its records are authentic, and what was spoiled in clear is found out in Finished.
        assert!(!world.server.established || world.client.established || world.client.closed.is_none());
    }
}

#[test]
fn what_decrypts_may_take_its_time() {
    for mut world in [server_only(1), mutual(1)] {
        world.client.store_delay = Some(Duration::from_millis(300));
        world.server.store_delay = Some(Duration::from_millis(700));
        speaks(&mut world);
    }
}

/// The behaviour of the server that a client can see.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    /// The lengths of the server's datagrams after each step.
    answers: Vec<Vec<usize>>,
    alert: Option<(u8, u8)>,
    closed: Option<Fatal>,
    /// Number of questions of the server's endpoint to its owner.
    needs: usize,
}

/// Returns the behaviour of the server towards a client whose encrypted secret is changed by `change`.
fn with_changed(mut world: World, change: impl Fn(&mut [u8])) -> Seen {
    world.connect();
    let flight = loop {
        world.run(Duration::from_millis(1));
        // It was sent, and has not arrived.
        if let Some((_, datagram)) = world.sent.iter().find(|(client, datagram)| *client && has_key_exchange(datagram))
        {
            break datagram.clone();
        }
    };
    let changed = changed(&flight, change);
    // The client sends it, and sends it again.
    let heard = [0; 2].map(|_| world.tell_server(world.client.local, &changed));
    assert!(!world.server.established);
    let alert = heard.iter().find_map(|heard| last_alert(heard));
    let answers = heard.iter().map(|heard| heard.iter().map(Vec::len).collect()).collect();
    Seen { answers, alert, closed: world.server.closed, needs: world.server.needs }
}

fn has_key_exchange(datagram: &[u8]) -> bool {
    records(datagram).iter().any(|(kind, _, body)| *kind == HANDSHAKE && body.first() == Some(&CLIENT_KEY_EXCHANGE))
}

/// Returns a flight in which `change` has changed the EncryptedPreMasterSecret.
fn changed(flight: &[u8], change: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut out = Vec::new();
    for (kind, number, mut body) in records(flight) {
        if kind == HANDSHAKE && number >> 48 == 0 && body.first() == Some(&CLIENT_KEY_EXCHANGE) {
            assert_eq!(body.len(), 12 + 2 + MODULUS_LEN);
            change(&mut body[14..]);
        }
        out.extend(record(kind, (number >> 48) as u16, number & 0xffff_ffff_ffff, &body));
    }
    out
}

/// Fault 33 in `tegmen-testbed/faults.toml`: the padding, the version or the secret may be wrong. The behaviour of the
/// server is always the same.
#[test]
fn whichever_bit_of_the_encrypted_secret_is_wrong_the_same_follows() {
    for (of, closed) in [
        (server_only as fn(u64) -> World, Fatal::WrongKeyOrIdentity { identity_known: true }),
        // What the client signed is another flight.
        (mutual, Fatal::BadSignature),
    ] {
        let expected = with_changed(of(5), |secret| secret[100] ^= 1);
        assert_eq!((expected.alert, expected.closed), (Some(DECRYPT_ERROR), Some(closed)));
        for bit in 0..8 * MODULUS_LEN {
            let seen = with_changed(of(5), |secret| secret[bit / 8] ^= 1 << (bit % 8));
            assert_eq!(seen, expected, "bit {bit}");
        }
    }
}

#[test]
fn a_secret_with_another_version_is_no_other_failure() {
    let expected = with_changed(server_only(5), |secret| secret[0] ^= 1);
    for version in [[254, 255], [254, 252], [3, 3], [0, 0]] {
        let mut world = server_only(5);
        world.client.premaster_version = Some(version);
        // It arrives unchanged.
        assert_eq!(with_changed(world, |_| ()), expected, "{version:?}");
    }
}

#[test]
fn a_server_key_exchange_has_no_place_in_it() {
    let mut world = server_only(3);
    world.network = Box::new(|n, _| if n < 3 { Fate::arrives() } else { Fate::LOST });
    world.connect();
    world.run(Duration::from_millis(100));
    let flight = world.sent.iter().rev().find(|(client, _)| !client).unwrap().1.clone();
    let mut parts = records(&flight);
    // In the place of ServerHelloDone.
    let (kind, number, body) = parts.pop().unwrap();
    let seq = u16::from_be_bytes([body[4], body[5]]);
    for (kind, number, body) in parts {
        world.tell_client(&record(kind, 0, number, &body));
    }
    let hint = message(SERVER_KEY_EXCHANGE, seq, &[0, 0]);
    world.tell_client(&record(kind, 0, number, &hint));
    assert!(matches!(world.client.closed, Some(Fatal::UnexpectedMessage(_))), "{:?}", world.client.closed);
}
