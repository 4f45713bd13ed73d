//! A server that answers as several named servers (RFC 6066, section 3), between two endpoints on a fake clock.

mod world;

use tegmen::dtls::{AlertDescription, CipherSuite, Config, Fatal, Suites};
use tegmen::time::Duration;
use tegmen_tickets::TicketKeys;
use world::World;
use world::badge::Badge;
use world::puppet::{ECDSA_CCM_8, Puppet, SERVER_HELLO, last_alert, records};

const CCM_8: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);
const GCM: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]);
const BOTH: Suites =
    Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);

fn badge(seed: u8, suites: Suites) -> Badge {
    Badge { suites, ..Badge::chain(seed, 0) }
}

/// Returns the credentials of a server without a name and of two named servers, `lamp` and `door`. Their seeds are 2, 3
/// and 4, so their certificates differ.
fn server() -> Badge {
    let named = vec![(b"lamp".to_vec(), badge(3, CCM_8)), (b"door".to_vec(), badge(4, GCM))];
    Badge { named, ..badge(2, BOTH) }
}

/// Returns the credentials of a client that requests this name, and trusts the servers with these seeds.
fn client(name: &[u8], trusted: &[u8]) -> Badge {
    let client = Badge { server_name: name.to_vec(), ..badge(1, BOTH) };
    trusted.iter().fold(client, |client, seed| client.trusting(&badge(*seed, BOTH)))
}

fn world(client: Badge, server: Badge) -> World {
    let mut world = World::new(1, Config { suites: BOTH, ..Config::default() });
    world.client.wear(client);
    world.server.wear(server);
    world.client.memory.tickets.set(true);
    world.server.memory.tickets.set(true);
    *world.server.memory.keys.borrow_mut() = TicketKeys::draw(&mut world.server.crypto);
    world
}

fn connect(world: &mut World) {
    world.sent.clear();
    world.connect();
    world.run(Duration::from_secs(59));
}

fn connect_again(world: &mut World) {
    world.sent.clear();
    world.connect_again();
    world.run(Duration::from_secs(59));
}

fn stand(world: &World) -> bool {
    world.client.established && world.server.established
}

/// Returns the body of the last ServerHello that was sent.
fn server_hello(world: &World) -> Vec<u8> {
    let from_server = world.sent.iter().filter(|(from_client, _)| !from_client);
    let mut messages = from_server.flat_map(|(_, datagram)| records(datagram)).map(|(.., body)| body);
    messages.rfind(|body| body.first() == Some(&SERVER_HELLO)).expect("a ServerHello")[12..].to_vec()
}

/// Returns the cipher suite of a ServerHello, and true if it contains server_name.
fn chosen(hello: &[u8]) -> (u16, bool) {
    let behind_id = 35 + usize::from(hello[34]);
    let (suite, mut list) = (u16::from_be_bytes([hello[behind_id], hello[behind_id + 1]]), &hello[behind_id + 5..]);
    let mut is_named = false;
    while let [a, b, c, d, rest @ ..] = list {
        let len = usize::from(u16::from_be_bytes([*c, *d]));
        if [*a, *b] == [0, 0] {
            assert_eq!(len, 0, "the answer to server_name is empty");
            is_named = true;
        }
        list = &rest[len..];
    }
    (suite, is_named)
}

#[test]
fn the_name_chooses_the_certificate_and_the_suites() {
    for (name, seed, suites, is_named) in
        [(&b""[..], 2, GCM, false), (b"lamp", 3, CCM_8, true), (b"DOOR", 4, GCM, true), (b"other", 2, GCM, false)]
    {
        let mut world = world(client(name, &[seed]), server());
        connect(&mut world);
        assert!(stand(&world), "{name:?}: {:?} {:?}", world.client.closed, world.server.closed);
        assert_eq!(chosen(&server_hello(&world)), (suites.0[0].0, is_named), "{name:?}");
        world.speak();
    }
    // Another certificate is not shown.
    let mut world = world(client(b"lamp", &[2, 4]), server());
    connect(&mut world);
    assert!(!stand(&world));
}

#[test]
fn only_suites_of_the_endpoint_itself_count() {
    let server = Badge { suites: GCM, ..server() };
    let mut world = world(client(b"lamp", &[3]), server);
    world.server.offer(GCM);
    connect(&mut world);
    assert!(!stand(&world));
}

#[test]
fn a_session_is_resumed_only_under_its_name() {
    for by_ticket in [true, false] {
        let mut world = world(client(b"lamp", &[3]), server());
        for node in [&world.client, &world.server] {
            node.memory.tickets.set(by_ticket);
        }
        world.server.memory.ids.set(true);
        connect(&mut world);
        assert!(stand(&world) && world.client.kept.as_ref().is_some());
        connect_again(&mut world);
        assert!(stand(&world) && world.client.resumed && world.server.resumed);
        // RFC 6066, section 3: the name is not answered when a session is resumed.
        assert!(!chosen(&server_hello(&world)).1);
        let kept = world.client.kept.clone();
        for (name, seed) in [(&b"door"[..], 4), (b"", 2)] {
            world.client.wear(client(name, &[seed]));
            world.client.kept = kept.clone();
            connect_again(&mut world);
            assert!(stand(&world), "{:?}", world.client.closed);
            assert!(!world.client.resumed && !world.server.resumed, "{name:?}");
        }
        world.client.wear(client(b"lamp", &[3]));
        world.client.kept = kept;
        connect_again(&mut world);
        assert!(stand(&world) && world.server.resumed);
    }
}

#[test]
fn an_unknown_name_is_refused_if_the_owner_says_so() {
    let server = Badge { refuses_names: true, ..server() };
    let mut world = world(client(b"other", &[2]), server);
    connect(&mut world);
    assert_eq!(world.client.closed, Some(Fatal::Alert(AlertDescription(112))));
    for (name, seed) in [(&b"door"[..], 4), (b"", 2)] {
        world.client.wear(client(name, &[seed]));
        connect(&mut world);
        assert!(stand(&world), "{name:?}: {:?}", world.client.closed);
    }
}

#[test]
fn a_malformed_name_is_refused_behind_the_cookie() {
    let names: [&[u8]; 7] =
        [&[], &[0], &[0, 0], &[0, 3, 0, 0, 0], &[0, 5, 0, 0, 1, 97], &[0, 4, 0, 0, 1, 97, 0], &[0, 4, 0, 0, 2, 97]];
    for name in names {
        let mut world = world(client(b"", &[2]), server());
        let mut puppet = Puppet::new(1000);
        puppet.suite = ECDSA_CCM_8;
        let extension = [&[0, 0, 0, name.len() as u8][..], name].concat();
        puppet.tail = [&[0, extension.len() as u8][..], &extension].concat();
        // The hello without a cookie gets one, which is all that an unproved address is sent.
        let hello = puppet.hello_with_cookie(&mut world);
        let answer = puppet.send(&mut world, &hello);
        assert_eq!(last_alert(&answer), Some((2, AlertDescription::DECODE_ERROR.0)), "{name:?}");
    }
}
