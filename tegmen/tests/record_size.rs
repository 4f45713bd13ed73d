//! The extensions record_size_limit (RFC 8449) and max_fragment_length (RFC 6066, section 4). Two endpoints agree on
//! limits, and neither sends a record that is longer than the limit of the other.

mod world;

use tegmen::dtls::{Config, Fatal, Profile};
use tegmen::endpoint::Misuse;
use tegmen::time::Duration;
use world::puppet::{
    ALERT, APPLICATION_DATA, CLIENT_HELLO, HANDSHAKE, Puppet, SERVER_HELLO, last_alert, offer_of, records,
};
use world::{Fate, World};

/// Maximum number of bytes of content in a record (RFC 5246, section 6.2.1).
const MAX_CONTENT: usize = 1 << 14;

/// Returns a world of two endpoints with these limits, after their handshake.
fn connected(client: u16, server: u16) -> World {
    let mut world = World::new(1, Config::default());
    world.client.limit_records(client);
    world.server.limit_records(server);
    world.connect();
    world.run(Duration::from_secs(5));
    assert!(world.client.established && world.server.established);
    world
}

#[test]
fn each_side_sends_what_the_other_takes_and_no_more() {
    for (client, server, at_client, at_server) in [
        // A client that asks for no limit gets none, whatever limit the server has.
        (0, 0, MAX_CONTENT, MAX_CONTENT),
        (0, 64, MAX_CONTENT, MAX_CONTENT),
        (64, 0, MAX_CONTENT, 64),
        (64, 100, 100, 64),
        (600, 512, 512, 600),
        (1, 65535, MAX_CONTENT, 64),
    ] {
        let mut world = connected(client, server);
        let found = (world.client.max_content(), world.server.max_content());
        assert_eq!(found, (at_client, at_server), "{client} {server}");
        let now = world.now;
        for (node, limit) in [(&mut world.client, at_client), (&mut world.server, at_server)] {
            assert_eq!(node.try_to_seal(now, limit), Ok(()));
            assert_eq!(node.try_to_seal(now, limit + 1), Err(Misuse::TooLong), "{client} {server}");
        }
    }
}

#[test]
fn the_longest_record_arrives() {
    let mut world = connected(64, 100);
    world.client.say(&[1; 100]);
    world.server.say(&[2; 64]);
    world.run(Duration::from_secs(1));
    assert_eq!((&world.server.heard, &world.client.heard), (&vec![vec![1; 100]], &vec![vec![2; 64]]));
}

/// Returns the type and the length of the content of each record that one endpoint sent. Omits ClientHellos, because
/// they precede the agreement.
fn contents(world: &World, client: bool) -> Vec<(u8, usize)> {
    let sent = world.sent.iter().filter(|(from, _)| *from == client);
    let is_hello = |kind, body: &[u8]| kind == HANDSHAKE && body.first() == Some(&CLIENT_HELLO);
    let all = sent.flat_map(|(_, datagram)| records(datagram));
    let records = all.filter(|(kind, number, body)| number >> 48 > 0 || !is_hello(*kind, body));
    records.map(|(kind, number, body)| (kind, body.len() - if number >> 48 == 0 { 0 } else { 16 })).collect()
}

#[test]
fn messages_of_the_handshake_are_cut_to_the_limit() {
    for lost in 0..16 {
        let mut world = World::new(1, Config::default());
        world.client.limit_records(64);
        world.server.limit_records(64);
        for node in [&mut world.client, &mut world.server] {
            node.credentials(&"i".repeat(200), [7; 16]);
        }
        world.network = Box::new(move |n, _| if n == lost { Fate::LOST } else { Fate::arrives() });
        world.connect();
        world.run(Duration::from_secs(50));
        assert!(world.client.established && world.server.established, "lost {lost}");
        for client in [true, false] {
            let all = contents(&world, client);
            assert!(all.iter().all(|(_, len)| *len <= 64), "lost {lost}: {all:?}");
        }
        assert!(contents(&world, true).iter().filter(|(kind, _)| *kind == HANDSHAKE).count() >= 4, "in pieces");
    }
}

#[test]
fn a_session_after_one_with_limits_has_none_of_them() {
    let mut world = connected(64, 64);
    world.client.limit_records(0);
    world.client.established = false;
    world.connect();
    world.run(Duration::from_secs(5));
    assert!(world.client.established);
    assert_eq!((world.client.max_content(), world.server.max_content()), (MAX_CONTENT, MAX_CONTENT));
}

#[test]
fn the_minimal_profile_says_nothing_of_it_and_hears_nothing() {
    for (client, server) in [(Profile::Minimal, Profile::Default), (Profile::Default, Profile::Minimal)] {
        let limited = |profile| Config { profile, record_size_limit: 64, ..Config::default() };
        let mut world = World::new(1, limited(client));
        world.server = World::new(2, limited(server)).server;
        world.connect();
        world.run(Duration::from_secs(5));
        assert!(world.client.established && world.server.established);
        assert_eq!((world.client.max_content(), world.server.max_content()), (MAX_CONTENT, MAX_CONTENT));
    }
}

const LIMIT_100: [u8; 6] = [0, 28, 0, 2, 0, 100];
const LENGTH_512: [u8; 5] = [0, 1, 0, 1, 1];

/// Returns a puppet client whose ClientHello has these extensions.
fn hello_with(extensions: &[&[u8]]) -> Puppet {
    let list = extensions.concat();
    let mut puppet = Puppet::new(9);
    puppet.tail = [&(list.len() as u16).to_be_bytes()[..], &list].concat();
    puppet
}

/// Returns the extensions of the ServerHello that answers a client with these extensions. If the server sends an alert
/// instead, returns the level and the description of the alert.
fn answered(extensions: &[&[u8]]) -> Result<Vec<u8>, (u8, u8)> {
    let mut world = World::new(1, Config { record_size_limit: 600, ..Config::default() });
    let mut puppet = hello_with(extensions);
    let hello = puppet.hello_with_cookie(&mut world);
    let flight = puppet.send(&mut world, &hello);
    let Some((_, _, body)) = flight
        .iter()
        .flat_map(|datagram| records(datagram))
        .find(|(_, _, body)| body[0] == SERVER_HELLO && body.len() > 2)
    else {
        return Err(last_alert(&flight).unwrap());
    };
    // Header, version, random, session id, suite, compression.
    Ok(body[12 + 2 + 32 + 1 + 2 + 1..].to_vec())
}

/// RFC 6066, section 4: max_fragment_length can have four values.
#[test]
fn a_client_offers_the_longest_length_within_its_limit() {
    for (limit, length) in
        [(511, None), (512, Some(1)), (1500, Some(2)), (2048, Some(3)), (9000, Some(4)), (16384, None)]
    {
        let mut world = World::new(1, Config { record_size_limit: limit, ..Config::default() });
        world.connect();
        world.run(Duration::from_secs(1));
        let (_, extensions) = offer_of(&world.sent[0].1);
        let offered = extensions.into_iter().find(|(kind, _)| *kind == 1).map(|(_, content)| content);
        assert_eq!(offered, length.map(|length| vec![length]), "{limit}");
    }
}

#[test]
fn a_server_answers_one_of_the_two_extensions() {
    assert_eq!(answered(&[&LIMIT_100]), Ok(vec![0, 6, 0, 28, 0, 2, 2, 88]));
    assert_eq!(answered(&[&LENGTH_512]), Ok(vec![0, 5, 0, 1, 0, 1, 1]));
    assert_eq!(answered(&[&LENGTH_512, &LIMIT_100]), Ok(vec![0, 6, 0, 28, 0, 2, 2, 88]));
    // A limit above the longest content of a record counts as that length.
    assert_eq!(answered(&[&[0, 28, 0, 2, 0xff, 0xff]]), Ok(vec![0, 6, 0, 28, 0, 2, 2, 88]));
}

#[test]
fn a_limit_below_64_and_a_length_that_is_none_of_the_four_are_illegal() {
    for extension in [&[0u8, 28, 0, 2, 0, 63][..], &[0, 28, 0, 2, 0, 0], &[0, 1, 0, 1, 0], &[0, 1, 0, 1, 5]] {
        assert_eq!(answered(&[extension]), Err((2, 47)), "{extension:?}");
    }
    // A max_fragment_length is ignored if there is a record_size_limit.
    assert!(answered(&[&[0, 1, 0, 1, 5], &LIMIT_100]).is_ok());
}

#[test]
fn a_client_refuses_an_answer_that_it_did_not_ask_for() {
    let both = [0, 11, 0, 28, 0, 2, 0, 100, 0, 1, 0, 1, 1];
    for (limit, tail, expected) in [
        (0, &[0, 6, 0, 28, 0, 2, 0, 100][..], Fatal::UnsupportedExtension),
        (0, &[0, 5, 0, 1, 0, 1, 1], Fatal::UnsupportedExtension),
        (600, &both, Fatal::IllegalParameter),
        (600, &[0, 6, 0, 28, 0, 2, 0, 63], Fatal::IllegalParameter),
        (600, &[0, 5, 0, 1, 0, 1, 2], Fatal::IllegalParameter),
        (100, &[0, 5, 0, 1, 0, 1, 1], Fatal::UnsupportedExtension),
    ] {
        let mut world = World::new(1, Config { record_size_limit: limit, ..Config::default() });
        world.connect();
        world.tell_client(&[]);
        let hello = world::puppet::server_hello([254, 253], world::puppet::CCM_8, 0, tail);
        let message = world::puppet::message(SERVER_HELLO, 0, &hello);
        world.tell_client(&world::puppet::record(HANDSHAKE, 0, 0, &message));
        assert_eq!(world.client.closed, Some(expected), "{limit} {tail:?}");
    }
}

#[test]
fn an_authentic_record_that_is_too_long_ends_the_session_with_record_overflow() {
    for (extension, limit) in [(&LIMIT_100[..], 600), (&LENGTH_512, 512)] {
        let mut world = World::new(1, Config { record_size_limit: 600, ..Config::default() });
        let mut puppet = hello_with(&[extension]);
        puppet.reach_server_hello_done(&mut world);
        puppet.finish(&mut world);
        let longest = puppet.seal(APPLICATION_DATA, &vec![1; limit]);
        puppet.send(&mut world, &longest);
        assert_eq!(world.server.heard, [vec![1; limit]]);
        let too_long = puppet.seal(APPLICATION_DATA, &vec![2; limit + 1]);
        let answer = puppet.send(&mut world, &too_long);
        assert_eq!((world.server.closed, world.server.heard.len()), (Some(Fatal::RecordOverflow), 1));
        let (kind, _, sealed) = records(&answer[0]).remove(0);
        assert_eq!((kind, puppet.open(ALERT, &sealed)), (ALERT, Some(vec![2, 22])));
    }
}

#[test]
fn a_record_that_is_not_authentic_may_be_of_any_length() {
    let mut world = World::new(1, Config { record_size_limit: 100, ..Config::default() });
    let mut puppet = hello_with(&[&LIMIT_100]);
    puppet.reach_server_hello_done(&mut world);
    puppet.finish(&mut world);
    let mut forged = puppet.seal(APPLICATION_DATA, &[2; 500]);
    *forged.last_mut().unwrap() ^= 1;
    puppet.send(&mut world, &forged);
    assert_eq!(world.server.closed, None);
}
