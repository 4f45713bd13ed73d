//! Connection ids (RFC 9146) and return routability checks (RFC 9853) between two endpoints. The address of the client
//! changes.

mod world;

use tegmen::address::Address;
use tegmen::cx::Cx;
use tegmen::dtls::{AddressChanges, CipherSuite, Config, ConnectionIdConfig, Fatal, Profile, Session, Suites};
use tegmen::endpoint::Peers as _;
use tegmen::identity::Principal;
use tegmen::time::Duration;
use world::{Fate, Node, World};

const ID: ConnectionIdConfig =
    ConnectionIdConfig { len: 8, shard: 3, padding: 0, check: true, follow_unchecked: false };

fn with(connection_id: Option<ConnectionIdConfig>) -> Config {
    Config { connection_id, ..Config::default() }
}

/// Returns a world with a session between a client and a server with these settings.
fn established(seed: u64, client: Config, server: Config) -> World {
    let mut world = World::new(seed, server);
    world.client.configure_as(client);
    world.connect();
    world.run(Duration::from_secs(5));
    assert!(world.client.established && world.server.established);
    world
}

/// Returns our connection id and the peer's connection id, and true if checks were agreed on.
fn ids(node: &mut Node) -> Option<(Vec<u8>, Vec<u8>, bool)> {
    let ids = node.endpoint.peers.connection_ids(node.peer.unwrap())?;
    Some((ids.ours().to_vec(), ids.theirs().to_vec(), ids.return_routability()))
}

/// Returns the address to which `node` sends its records.
fn remote(node: &mut Node) -> Address {
    node.endpoint.peers.peer(node.peer.unwrap()).unwrap().path().remote
}

fn changes(node: &mut Node) -> (u32, u32, u32) {
    let AddressChanges { followed, checked, refused } = node.endpoint.address_changes();
    (followed, checked, refused)
}

/// Sends a message of one endpoint, and delivers it.
fn say(world: &mut World, from_client: bool, text: &[u8]) {
    let node = if from_client { &mut world.client } else { &mut world.server };
    node.say(text);
    world.run(Duration::from_millis(500));
}

fn sent_last(world: &World, by_client: bool) -> &[u8] {
    let (_, datagram) = world.sent.iter().rfind(|(who, _)| *who == by_client).unwrap();
    datagram
}

const CBC: Suites = Suites(&[CipherSuite::PSK_WITH_AES_128_CBC_SHA256]);
const CHACHA20: Suites = Suites(&[CipherSuite::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256]);

#[test]
fn each_end_finds_its_own_id_in_what_it_receives() {
    for (suites, around) in [(Suites::CCM_8, 8 + 8), (Suites::GCM, 8 + 16), (CHACHA20, 16)] {
        for (client_len, server_len) in [(0, 1), (1, 0), (0, 20), (20, 0), (8, 8), (20, 20), (4, 12)] {
            let config = |len| Config { suites, ..with(Some(ConnectionIdConfig { len, ..ID })) };
            let mut world = established(1, config(client_len), config(server_len));
            let (at_client, from_server, checks) = ids(&mut world.client).unwrap();
            assert_eq!((at_client.len(), from_server.len()), (client_len.into(), server_len.into()));
            assert_eq!(ids(&mut world.server), Some((from_server.clone(), at_client.clone(), true)));
            assert!(checks);
            for (from_client, id) in [(true, &from_server), (false, &at_client)] {
                say(&mut world, from_client, b"ping");
                let heard = if from_client { &world.server.heard } else { &world.client.heard };
                assert_eq!(heard.last().unwrap(), b"ping");
                let record = sent_last(&world, from_client);
                match id.is_empty() {
                    true => assert_eq!(record[0], 23),
                    false => {
                        assert_eq!((record[0], &record[11..11 + id.len()]), (25, &id[..]));
                        assert_eq!(id[0], ID.shard);
                        // The type of the content is inside.
                        assert_eq!(record.len(), 13 + id.len() + 4 + 1 + around);
                    }
                }
            }
        }
    }
}

#[test]
fn everything_of_the_protected_epoch_has_the_id_from_finished_on() {
    let mut world = established(2, with(Some(ID)), with(Some(ID)));
    world.client.close();
    world.run(Duration::from_secs(1));
    let mut protected = 0;
    for (_, datagram) in &world.sent {
        let mut rest = &datagram[..];
        while !rest.is_empty() {
            let id = if rest[0] == 25 { 8 } else { 0 };
            assert_eq!(id > 0, rest[3..5] != [0, 0], "epoch 1 and only that");
            protected += usize::from(id > 0);
            let len = usize::from(u16::from_be_bytes([rest[11 + id], rest[12 + id]]));
            rest = &rest[13 + id + len..];
        }
    }
    assert_eq!(protected, 4, "two Finished, and an alert of each");
    assert!(world.server.closed.is_some());
}

#[test]
fn forgeries_from_elsewhere_neither_end_a_session_nor_stop_it_for_long() {
    let mut world = established(5, with(Some(ID)), with(Some(ID)));
    say(&mut world, true, b"here");
    let forged = |n: u64| {
        let mut record = sent_last(&world, true).to_vec();
        record[5..11].copy_from_slice(&(1000 + n).to_be_bytes()[2..]);
        record
    };
    let forged: Vec<_> = (0..5000).map(forged).collect();
    let elsewhere = Address { port: 4000, ..world.client.local };
    for record in &forged[..4000] {
        assert!(world.tell_server(elsewhere, record).is_empty());
    }
    assert_eq!(world.server.closed, None);
    assert_eq!(world.server.counters.not_authentic, 8, "the others were not tried");
    say(&mut world, true, b"still here");
    assert_eq!(world.server.heard.last().unwrap(), b"still here");
    // The client moves, once the forger was silent for a while.
    world.run(Duration::from_secs(70));
    world.rebind(4001);
    say(&mut world, true, b"moved");
    assert_eq!(remote(&mut world.server).port, 4001);
    // From the address of the session itself they count.
    let from = world.client.seen_at;
    for record in &forged[..1024] {
        world.tell_server(from, record);
    }
    assert_eq!(world.server.closed, Some(Fatal::KeyExhausted));
}

#[test]
fn peers_without_the_extension_talk_as_ever() {
    for (client, server) in [(None, Some(ID)), (Some(ID), None), (None, None)] {
        let mut world = established(3, with(client), with(server));
        assert_eq!((ids(&mut world.client), ids(&mut world.server)), (None, None));
        say(&mut world, true, b"ping");
        assert_eq!(world.server.heard, [b"ping"]);
        assert_eq!(sent_last(&world, true)[0], 23);
    }
    let minimal = Config { profile: Profile::Minimal, ..with(Some(ID)) };
    let mut world = established(3, minimal, minimal);
    assert_eq!(ids(&mut world.client), None);
    // Two ends that both issue empty ids agree on no ids.
    let none = with(Some(ConnectionIdConfig { len: 0, ..ID }));
    let mut world = established(3, none, none);
    assert_eq!((ids(&mut world.client), ids(&mut world.server)), (None, None));
}

#[test]
fn padding_hides_how_long_a_message_is() {
    let padded = with(Some(ConnectionIdConfig { padding: 32, ..ID }));
    let mut world = established(4, padded, padded);
    let mut lengths = Vec::new();
    for len in [1, 20, 31, 32, 63] {
        say(&mut world, true, &vec![0; len]);
        assert_eq!(world.server.heard.last().unwrap(), &vec![0; len]);
        lengths.push(sent_last(&world, true).len() - (13 + 8 + 8 + 8));
    }
    assert_eq!(lengths, [32, 32, 32, 64, 64]);
}

#[test]
fn the_address_follows_a_client_behind_a_nat_that_forgot_it() {
    for (client_len, server_len) in [(0, 8), (8, 8)] {
        let config = |len| with(Some(ConnectionIdConfig { len, ..ID }));
        let mut world = established(5, config(client_len), config(server_len));
        world.rebind(4000);
        say(&mut world, true, b"from elsewhere");
        assert_eq!(world.server.heard, [b"from elsewhere"]);
        assert_eq!(remote(&mut world.server), world.client.seen_at);
        assert_eq!(changes(&mut world.server), (1, 1, 0));
        say(&mut world, false, b"there you are");
        assert_eq!(world.client.heard, [b"there you are"]);
    }
}

#[test]
fn a_client_that_moves_is_followed_and_says_that_its_old_address_is_not_to_be_used() {
    let mut world = established(6, with(Some(ID)), with(Some(ID)));
    world.move_client(4000);
    say(&mut world, true, b"I moved");
    assert_eq!(changes(&mut world.server), (1, 1, 0));
    assert_eq!(remote(&mut world.server), world.client.local);
}

#[test]
fn a_spoofed_source_gets_no_more_than_a_challenge_and_the_old_address_is_kept() {
    let mut world = established(7, with(Some(ID)), with(Some(ID)));
    let honest = world.client.seen_at;
    let victim = Address { port: 9999, ..honest };
    // An attacker on the path holds a record back, and sends it from the victim's address.
    world.network = Box::new(|_, _| Fate::LOST);
    say(&mut world, true, b"held back");
    let record = sent_last(&world, true).to_vec();
    world.network = Box::new(|_, _| Fate::arrives());
    let to_victim = world.tell_server(victim, &record);
    assert_eq!(world.server.heard, [b"held back"]);
    assert_eq!(to_victim.len(), 1);
    assert!(to_victim[0].len() <= 3 * record.len());
    assert_eq!(remote(&mut world.server), honest);
    // Again: a replay, which gets nothing at all.
    assert!(world.tell_server(victim, &record).is_empty());
    say(&mut world, false, b"still to the honest one");
    assert_eq!(world.client.heard, [b"still to the honest one"]);
    assert_eq!(changes(&mut world.server), (0, 1, 0));
}

#[test]
fn only_the_response_from_where_the_challenge_went_moves_the_session() {
    let mut world = established(8, with(Some(ID)), with(Some(ID)));
    let honest = world.client.seen_at;
    world.network = Box::new(|_, _| Fate::LOST);
    say(&mut world, true, b"one");
    let elsewhere = Address { port: 7777, ..honest };
    let record = sent_last(&world, true).to_vec();
    let [challenge] = &world.tell_server(elsewhere, &record)[..] else { panic!("no challenge") };
    let [response] = &world.tell_client(challenge)[..] else { panic!("no response") };
    // From the old address, and then, as a replay, from the new one.
    assert!(world.tell_server(honest, response).is_empty());
    assert!(world.tell_server(elsewhere, response).is_empty());
    assert_eq!(remote(&mut world.server), honest);
    assert_eq!(changes(&mut world.server).0, 0);
}

#[test]
fn a_response_that_comes_too_late_moves_nothing() {
    let mut world = established(9, with(Some(ID)), with(Some(ID)));
    let honest = world.client.seen_at;
    world.network = Box::new(|_, _| Fate::LOST);
    say(&mut world, true, b"one");
    let elsewhere = Address { port: 7777, ..honest };
    let record = sent_last(&world, true).to_vec();
    let [challenge] = &world.tell_server(elsewhere, &record)[..] else { panic!("no challenge") };
    let [response] = &world.tell_client(challenge)[..] else { panic!("no response") };
    world.run(Duration::from_secs(2));
    assert!(world.tell_server(elsewhere, response).is_empty());
    assert_eq!((remote(&mut world.server), changes(&mut world.server)), (honest, (0, 1, 0)));
}

#[test]
fn a_record_that_is_not_the_newest_moves_nothing() {
    let mut world = established(10, with(Some(ID)), with(Some(ID)));
    let honest = world.client.seen_at;
    let before = world.sent.len();
    world.network = Box::new(move |n, _| if n == before { Fate::LOST } else { Fate::arrives() });
    say(&mut world, true, b"late");
    let late = sent_last(&world, true).to_vec();
    say(&mut world, true, b"in time");
    let elsewhere = Address { port: 7777, ..honest };
    assert!(world.tell_server(elsewhere, &late).is_empty(), "no challenge");
    assert_eq!(world.server.heard, [&b"in time"[..], b"late"]);
    assert_eq!((remote(&mut world.server), changes(&mut world.server)), (honest, (0, 0, 1)));
}

#[test]
fn without_the_check_a_peer_stays_where_it_was_unless_the_owner_wants_it_followed() {
    for follow_unchecked in [false, true] {
        let server = with(Some(ConnectionIdConfig { follow_unchecked, ..ID }));
        let mut world = established(11, with(Some(ConnectionIdConfig { check: false, ..ID })), server);
        let old = world.client.seen_at;
        world.rebind(4000);
        say(&mut world, true, b"from elsewhere");
        assert_eq!(world.server.heard, [b"from elsewhere"]);
        let (expected, counts) = if follow_unchecked { (world.client.seen_at, (1, 0, 0)) } else { (old, (0, 0, 1)) };
        assert_eq!((remote(&mut world.server), changes(&mut world.server)), (expected, counts));
    }
}

#[test]
fn fault_36_a_record_whose_id_is_wrong_is_dropped_and_the_old_address_kept() {
    let mut world = established(12, with(Some(ID)), with(Some(ID)));
    let honest = world.client.seen_at;
    let elsewhere = Address { port: 7777, ..honest };
    world.network = Box::new(|_, _| Fate::LOST);
    say(&mut world, true, b"good");
    let good = sent_last(&world, true).to_vec();
    let counted = |world: &World| {
        let c = &world.server.counters;
        c.malformed + c.unknown_peer + c.not_authentic + c.unexpected + c.replayed
    };
    let tell = |world: &mut World, record: &[u8]| {
        let before = counted(world);
        assert!(world.tell_server(elsewhere, record).is_empty());
        assert!(counted(world) > before, "{record:?}");
    };
    // Ids of other lengths, from none to the longest that fits its byte in a hello.
    for len in [0, 1, 7, 9, 20, 255] {
        let id = vec![good[11]; len];
        tell(&mut world, &[&good[..11], &id, &good[19..]].concat());
    }
    // An id of no session, the id without a byte of the record after it, and every cut.
    let mut unknown = good.clone();
    unknown[18] ^= 1;
    tell(&mut world, &unknown);
    for len in 1..good.len() {
        tell(&mut world, &good[..len]);
    }
    // The right id, and a record that is not authentic; and the content under the type that hides nothing.
    for at in [12 + 8, 30, good.len() - 1] {
        let mut forged = good.clone();
        forged[at] ^= 1;
        tell(&mut world, &forged);
    }
    tell(&mut world, &[&[23], &good[1..11], &good[19..]].concat());
    assert!(world.server.heard.is_empty());
    assert_eq!((remote(&mut world.server), changes(&mut world.server)), (honest, (0, 0, 0)));
    assert_eq!(world.tell_server(honest, &good), Vec::<Vec<u8>>::new());
    assert_eq!(world.server.heard, [b"good"]);
}

#[test]
fn fault_36_a_record_with_an_id_before_the_handshake_has_ended_is_dropped() {
    let mut world = World::new(13, with(Some(ID)));
    // The client's last flight is kept from the server.
    let finished = |datagram: &[u8]| datagram.windows(3).any(|bytes| bytes == [25, 254, 253]);
    world.network = Box::new(move |_, datagram| if finished(datagram) { Fate::LOST } else { Fate::arrives() });
    world.connect();
    world.run(Duration::from_millis(500));
    assert!(!world.server.established);
    let flight = world.sent.iter().find(|(client, datagram)| *client && finished(datagram)).unwrap().1.clone();
    let at = flight.windows(3).position(|bytes| bytes == [25, 254, 253]).unwrap();
    let elsewhere = Address { port: 7777, ..world.client.seen_at };
    let before = world.server.counters;
    assert!(world.tell_server(elsewhere, &flight[at..]).is_empty());
    let after = world.server.counters;
    assert_eq!(after.unexpected - before.unexpected, 1);
    assert!(!world.server.established);
    world.network = Box::new(|_, _| Fate::arrives());
    world.run(Duration::from_secs(10));
    assert!(world.client.established && world.server.established);
}

#[test]
fn a_record_without_the_id_that_we_gave_is_nobodys() {
    let mut world = established(14, with(Some(ID)), with(Some(ID)));
    let honest = world.client.seen_at;
    // The client forgets that it has to write an id.
    let id = world.client.peer.unwrap();
    world.client.endpoint.peers.set_connection_ids(id, None);
    let before = world.server.counters.unexpected;
    say(&mut world, true, b"plain");
    assert_eq!(sent_last(&world, true)[0], 23);
    assert!(world.server.heard.is_empty());
    assert_eq!(world.server.counters.unexpected - before, 1);
    assert_eq!(remote(&mut world.server), honest);
}

#[test]
fn a_session_that_moves_to_another_endpoint_keeps_its_ids() {
    let mut world = established(15, with(Some(ID)), with(Some(ID)));
    let had = ids(&mut world.server).unwrap();
    let session = world.server.endpoint.take_session(world.server.peer.unwrap()).unwrap();
    let restore = |node: &mut Node, now, session: &Session, remote| {
        let path = node.path(remote);
        let mut cx = Cx { now, crypto: &mut node.crypto, counters: &mut node.counters };
        node.endpoint.restore_session(&mut cx, &path, Principal(7), session)
    };
    let (now, at) = (world.now, world.client.seen_at);
    // An endpoint whose ids have another length could not read it.
    for other in [None, Some(ConnectionIdConfig { len: 7, ..ID })] {
        let mut node = world.restarted_server(99);
        node.configure_as(with(other));
        assert_eq!(restore(&mut node, now, &session, at), None);
    }
    let mut node = world.restarted_server(100);
    let id = restore(&mut node, now, &session, at).unwrap();
    node.endpoint.lease_session(id, 1 << 16);
    (node.peer, node.established) = (Some(id), true);
    assert_eq!(restore(&mut node, now, &session, Address { port: 5, ..at }), None, "taken");
    world.server = node;
    assert_eq!(ids(&mut world.server), Some(had));
    world.rebind(4000);
    say(&mut world, true, b"to the other endpoint");
    assert_eq!(world.server.heard, [b"to the other endpoint"]);
    assert_eq!(changes(&mut world.server), (1, 1, 0));
}

/// Changes the address of a client again and again, over a network that loses, repeats, reorders and damages datagrams.
fn wander(seed: u64) {
    let lens = [(0, 8), (8, 8), (1, 20), (20, 1), (8, 0)];
    let (client_len, server_len) = lens[seed as usize % lens.len()];
    let suites = [Suites::CCM_8, Suites::GCM, CHACHA20, CBC][seed as usize / 8 % 4];
    let padding = if seed & 16 == 0 { 0 } else { 16 };
    let config = |len| Config { suites, ..with(Some(ConnectionIdConfig { len, padding, ..ID })) };
    let mut world = World::new(seed, config(server_len));
    world.client.configure_as(config(client_len));
    world.random_faults();
    world.connect();
    world.run(Duration::from_secs(60));
    if !(world.client.established && world.server.established) {
        return;
    }
    let first = world.client.seen_at;
    let mut said = 0u32;
    for turn in 0..6u16 {
        if turn > 0 && server_len > 0 {
            match (seed >> turn) & 1 {
                0 => world.rebind(2000 + turn),
                _ => world.move_client(3000 + turn),
            }
        }
        for _ in 0..3 {
            said += 1;
            world.client.say(&said.to_be_bytes());
            world.run(Duration::from_millis(1500));
            // The server received only messages that the client sent.
            assert!(world.server.heard.iter().all(|text| said >= u32::from_be_bytes(text[..].try_into().unwrap())));
        }
    }
    // The server has sent no message of its own yet, so all that it sent to a new address were challenges.
    for (address, (received, sent)) in world.at_server.iter().filter(|(address, _)| **address != first) {
        assert!(*sent <= 3 * received, "seed {seed}: {sent} bytes to {address:?} for {received}");
    }
    // Nothing was heard twice.
    let mut heard = world.server.heard.clone();
    heard.sort();
    heard.dedup();
    assert_eq!(heard.len(), world.server.heard.len(), "seed {seed}");
    // The network calms down: the next message of a client at a new address moves its session there.
    world.network = Box::new(|_, _| Fate::arrives());
    world.run(Duration::from_secs(2));
    if world.client.closed.is_some() || world.server.closed.is_some() {
        return;
    }
    for _ in 0..2 {
        say(&mut world, true, b"last");
        world.run(Duration::from_secs(1));
    }
    if server_len > 0 {
        assert_eq!(remote(&mut world.server), world.client.seen_at, "seed {seed}");
        say(&mut world, false, b"found");
        assert_eq!(world.client.heard.last().unwrap(), b"found", "seed {seed}");
    }
}

#[test]
fn a_client_that_wanders_is_found_again_whatever_the_network_does() {
    for seed in 0..2000 {
        wander(seed);
    }
}
