//! The peer table and the end of sessions: the peers that displace others, and the ways in which sessions end.

mod world;

use tegmen::address::Path;
use tegmen::cx::Cx;
use tegmen::dtls::{Config, Fatal, Rank};
use tegmen::endpoint::{Misuse, Peers as _, Phase, TableFull};
use tegmen::time::Duration;
use world::puppet::*;
use world::{Fate, World};

fn world() -> World {
    World::new(21, Config::default())
}

fn assert_alive(world: &mut World, puppet: &mut Puppet) {
    let before = world.server.heard.len();
    let sealed = puppet.seal(APPLICATION_DATA, b"alive?");
    puppet.send(world, &sealed);
    assert_eq!(world.server.heard[before..], [b"alive?"]);
}

fn phase(world: &World, puppet: &Puppet) -> Option<Phase> {
    let path = world.server.path(puppet.address);
    let phases = [Phase::Established, Phase::Handshaking];
    phases.into_iter().find(|phase| world.server.endpoint.peers.find(&path, *phase).is_some())
}

/// The number of peers in the tables of these worlds. Three of them can be in a handshake.
const PEERS: u16 = 4;

#[test]
fn a_stranger_never_displaces_an_authenticated_peer() {
    let mut world = world();
    let mut puppets: Vec<_> = (0..PEERS).map(|n| Puppet::established(&mut world, 1000 + n)).collect();
    for port in 2000..2050 {
        let mut stranger = Puppet::new(port);
        let hello = stranger.hello_with_cookie(&mut world);
        assert!(stranger.send(&mut world, &hello).is_empty());
        assert_eq!(phase(&world, &stranger), None);
    }
    assert_eq!((world.server.counters.table_full, world.server.counters.evicted), (50, 0));
    for puppet in &mut puppets {
        assert_alive(&mut world, puppet);
    }
}

#[test]
fn a_stranger_who_finds_no_place_leaves_the_last_flights_of_others() {
    let mut world = world();
    let mut puppets: Vec<_> = (0..PEERS).map(|n| Puppet::established(&mut world, 1000 + n)).collect();
    let mut stranger = Puppet::new(2000);
    let hello = stranger.hello_with_cookie(&mut world);
    assert!(stranger.send(&mut world, &hello).is_empty());
    // The newest sessions still linger, and their clients may have missed the end.
    for puppet in &mut puppets[1..] {
        let finished = puppet.finished_message();
        let finished = puppet.seal(HANDSHAKE, &finished);
        assert_eq!(puppet.send(&mut world, &finished).len(), 1);
    }
}

#[test]
fn the_oldest_of_the_strangers_makes_room_for_a_new_one() {
    let mut world = world();
    let mut strangers: Vec<_> = (0..4).map(|n| Puppet::new(1000 + n)).collect();
    for stranger in &mut strangers {
        stranger.reach_server_hello_done(&mut world);
    }
    assert_eq!(world.server.counters.evicted, 1);
    assert_eq!(phase(&world, &strangers[0]), None);
    for stranger in &mut strangers[1..] {
        stranger.finish(&mut world);
        assert_alive(&mut world, stranger);
    }
}

#[test]
fn a_handshake_takes_the_room_of_one_that_only_lingers() {
    let mut world = world();
    let mut first = Puppet::established(&mut world, 1000);
    let mut others: Vec<_> = (1..3).map(|n| Puppet::new(1000 + n)).collect();
    for other in &mut others {
        other.reach_server_hello_done(&mut world);
    }
    let mut last = Puppet::established(&mut world, 1009);
    assert_eq!(world.server.counters.evicted, 0);
    for other in &mut others {
        other.finish(&mut world);
        assert_alive(&mut world, other);
    }
    assert_alive(&mut world, &mut first);
    assert_alive(&mut world, &mut last);
}

#[test]
fn an_association_of_ours_displaces_the_lowest_and_never_one_of_ours() {
    let mut world = world();
    let mut puppets: Vec<_> = (0..PEERS).map(|n| Puppet::established(&mut world, 1000 + n)).collect();
    let mut cx = Cx { now: world.now, crypto: &mut world.server.crypto, counters: &mut world.server.counters };
    let to = |port| Path { local: world.server.local, remote: Puppet::new(port).address };
    // Only three handshakes at once.
    for port in 3000..3003 {
        world.server.endpoint.connect(&mut cx, &to(port)).unwrap();
    }
    assert_eq!(world.server.endpoint.connect(&mut cx, &to(3003)), Err(TableFull));
    assert_eq!((cx.counters.evicted, cx.counters.table_full), (3, 1));
    assert_eq!(phase(&world, &puppets[0]), None, "the oldest went first");
    assert_alive(&mut world, &mut puppets[3]);
}

#[test]
fn a_stale_id_names_nobody() {
    let mut world = world();
    let first = Puppet::established(&mut world, 1000);
    let stale = world.server.peer.unwrap();
    world.server.endpoint.peers.remove(stale);
    let mut same_place = None;
    for port in 1001..=1000 + PEERS {
        let puppet = Puppet::established(&mut world, port);
        let id = world.server.peer.unwrap();
        if id.index == stale.index {
            assert_ne!(id, stale);
            same_place = Some(puppet);
        }
    }
    assert!(world.server.endpoint.peers.peer(stale).is_none());
    world.server.endpoint.close(stale);
    assert_eq!((phase(&world, &first), world.server.endpoint.peers.len()), (None, PEERS.into()));
    assert_eq!(phase(&world, &same_place.unwrap()), Some(Phase::Established));
}

#[test]
fn an_unfinished_handshake_is_given_up_and_its_room_is_free_again() {
    let mut world = world();
    let mut puppet = Puppet::new(1000);
    puppet.reach_server_hello_done(&mut world);
    world.run(Duration::from_secs(59));
    assert_eq!(phase(&world, &puppet), Some(Phase::Handshaking));
    world.run(Duration::from_secs(2));
    assert_eq!(world.server.closed, Some(Fatal::TimedOut { after_finished: false }));
    assert_eq!((world.server.endpoint.peers.len(), world.server.endpoint.next_alarm()), (0, None));
}

#[test]
fn a_store_that_never_answers_holds_up_nobody_else() {
    let mut world = world();
    world.server.store_delay = Some(Duration::from_secs(1_000_000));
    let mut waiting = Puppet::new(1000);
    waiting.reach_server_hello_done(&mut world);
    let exchange = waiting.key_exchange(b"Client_identity", b"0123456789abcdef");
    waiting.send(&mut world, &exchange);
    world.server.store_delay = None;
    let mut other = Puppet::established(&mut world, 1001);
    assert_alive(&mut world, &mut other);
    assert_eq!(phase(&world, &waiting), Some(Phase::Handshaking));
    // Whatever it sends meanwhile is not answered, and its place is free again in time.
    for _ in 0..100 {
        let again = waiting.plain(HANDSHAKE, &exchange[13..]);
        waiting.send(&mut world, &again);
    }
    world.run(Duration::from_secs(61));
    assert_eq!(phase(&world, &waiting), None);
    assert_alive(&mut world, &mut other);
}

#[test]
fn a_session_that_hears_nothing_is_forgotten_after_the_idle_timeout() {
    let mut world = World::new(21, Config { idle_timeout: Duration::from_secs(100), ..Config::default() });
    let mut quiet = Puppet::established(&mut world, 1000);
    let mut busy = Puppet::established(&mut world, 1001);
    for _ in 0..30 {
        world.run(Duration::from_secs(10));
        assert_alive(&mut world, &mut busy);
        if world.now.as_micros() < 99_000_000 {
            // A record that does not open does not keep a peer alive.
            let mut forged = quiet.seal(APPLICATION_DATA, b"forged");
            forged[20] ^= 1;
            quiet.send(&mut world, &forged);
            assert_eq!(phase(&world, &quiet), Some(Phase::Established));
        }
    }
    assert_eq!(phase(&world, &quiet), None);
    assert_eq!(world.server.closed, Some(Fatal::Idle));
}

#[test]
fn a_cookie_stays_valid_over_one_rotation_of_its_key() {
    let mut world = world();
    let mut early = Puppet::new(1000);
    let mut late = Puppet::new(1001);
    let hello = early.hello_with_cookie(&mut world);
    world.run(Duration::from_secs(61));
    let other = late.hello_with_cookie(&mut world);
    assert_eq!(records(&early.send(&mut world, &hello)[0])[0].2[0], SERVER_HELLO);
    world.run(Duration::from_secs(130));
    assert_eq!(records(&late.send(&mut world, &other)[0])[0].2[0], HELLO_VERIFY_REQUEST);
}

#[test]
fn sessions_do_not_mix() {
    let mut world = world();
    world.connect();
    let mut first = Puppet::new(1000);
    first.reach_server_hello_done(&mut world);
    let mut second = Puppet::established(&mut world, 1001);
    world.run(Duration::from_secs(1));
    first.finish(&mut world);
    assert!(world.client.established);
    // A record of one from the address of the other.
    let home = first.address;
    let stray = first.seal(APPLICATION_DATA, b"stray");
    first.address = second.address;
    first.send(&mut world, &stray);
    assert!(world.server.heard.is_empty());
    first.address = home;
    first.send(&mut world, &stray);
    assert_eq!(world.server.heard, [b"stray"]);
    assert_alive(&mut world, &mut second);
    world.client.say(b"third");
    world.run(Duration::from_secs(1));
    assert_eq!(world.server.heard.last().unwrap(), b"third");
}

#[test]
fn close_notify_is_told_and_answered_from_either_end() {
    for from_client in [true, false] {
        let mut world = world();
        world.connect();
        world.run(Duration::from_secs(2));
        let before = world.sent.len();
        let (closing, other) = match from_client {
            true => (&mut world.client, &mut world.server),
            false => (&mut world.server, &mut world.client),
        };
        closing.close();
        other.closed = None;
        world.run(Duration::from_secs(1));
        let other = if from_client { &world.server } else { &world.client };
        assert_eq!(other.closed, Some(Fatal::Closed));
        // Both alerts are sealed: header, nonce, two bytes, tag.
        let alerts: Vec<_> = world.sent[before..].iter().map(|(by_client, d)| (*by_client, d[0], d.len())).collect();
        assert_eq!(alerts, [(from_client, ALERT, 31), (!from_client, ALERT, 31)]);
        assert!(world.client.endpoint.peers.is_empty() && world.server.endpoint.peers.is_empty());
    }
}

#[test]
fn a_finished_that_comes_again_in_fragments_is_answered_with_one_flight() {
    let mut world = world();
    let mut puppet = Puppet::established(&mut world, 1000);
    let finished = puppet.finished_message()[12..].to_vec();
    let mut flights = 0;
    for piece in 0..6 {
        let piece = fragment(FINISHED, 12, puppet.message_seq, 2 * piece, &finished[2 * piece as usize..][..2]);
        let piece = puppet.seal(HANDSHAKE, &piece);
        flights += puppet.send(&mut world, &piece).len();
    }
    assert_eq!((flights, world.server.counters.unexpected), (1, 5));
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn an_alert_behind_our_change_cipher_spec_is_protected() {
    let mut world = world();
    // The server's last flight is lost: its session stands, and the client still waits.
    world.network = Box::new(|n, _| if n < 5 { Fate::arrives() } else { Fate::LOST });
    world.connect();
    world.run(Duration::from_millis(100));
    assert!(world.server.established && !world.client.established);
    world.network = Box::new(|_, _| Fate::arrives());
    world.client.close();
    let before = world.sent.len();
    world.run(Duration::from_millis(100));
    assert_eq!((world.sent[before].1[0], world.sent[before].1[4]), (ALERT, 1), "in epoch 1");
    assert_eq!(world.server.closed, Some(Fatal::Closed));
}

#[test]
fn a_closed_session_seals_no_more() {
    let mut world = world();
    world.connect();
    world.run(Duration::from_secs(1));
    let id = world.client.peer.unwrap();
    world.client.close();
    let mut storage = [0; 100];
    let mut frame = tegmen::buf::Frame::new(&mut storage, tegmen::endpoint::HEADROOM);
    let mut cx = Cx { now: world.now, crypto: &mut world.client.crypto, counters: &mut world.client.counters };
    assert_eq!(world.client.endpoint.seal(&mut cx, id, &mut frame), Err(Misuse::NotEstablished));
}

#[test]
fn a_key_that_failed_too_often_ends_its_session() {
    let mut world = world();
    let mut puppet = Puppet::established(&mut world, 1000);
    let good = puppet.seal(APPLICATION_DATA, b"good");
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    for _ in 0..1023 {
        assert!(puppet.send(&mut world, &bad).is_empty());
    }
    assert_eq!(phase(&world, &puppet), Some(Phase::Established));
    let farewell = puppet.send(&mut world, &bad);
    assert_eq!(world.server.closed, Some(Fatal::KeyExhausted));
    let (kind, _, body) = records(&farewell[0]).remove(0);
    assert_eq!((kind, puppet.open(ALERT, &body)), (ALERT, Some(vec![1, 0])));
    // A new handshake gives new keys.
    let mut puppet = Puppet::established(&mut world, 1000);
    assert_alive(&mut world, &mut puppet);
}

#[test]
fn a_session_that_waits_for_nothing_sets_no_alarm() {
    let mut world = world();
    world.connect();
    world.run(Duration::from_secs(70));
    assert!(world.client.established);
    assert_eq!(world.client.endpoint.next_alarm(), None);
}

#[test]
fn a_client_is_told_when_nobody_answers() {
    let mut world = world();
    world.network = Box::new(|_, _| Fate::LOST);
    world.connect();
    world.run(Duration::from_secs(61));
    assert_eq!(world.client.closed, Some(Fatal::TimedOut { after_finished: false }));
    // At 0, 1, 3, 7, 15 and 31 seconds.
    assert_eq!((world.sent.len(), world.client.endpoint.peers.len()), (6, 0));
}

#[test]
fn a_datagram_in_clear_is_never_taken_for_one_of_a_session() {
    let mut world = world();
    let puppet = Puppet::established(&mut world, 1000);
    let [path, other] = [puppet.address, Puppet::new(1001).address].map(|remote| world.server.path(remote));
    let mut cx = Cx { now: world.now, crypto: &mut world.server.crypto, counters: &mut world.server.counters };
    assert_eq!(world.server.endpoint.plain(&mut cx, &path, Rank::Stranger), Err(TableFull));
    let id = world.server.endpoint.plain(&mut cx, &other, Rank::Stranger).unwrap();
    assert_eq!(world.server.endpoint.plain(&mut cx, &other, Rank::Stranger), Ok(id));
    // And no protected record counts as a datagram in clear.
    let stray = record(APPLICATION_DATA, 1, 0, &[7; 40]);
    assert!(Puppet::new(1001).send(&mut world, &stray).is_empty());
    assert!(world.server.heard.is_empty());
    // Nor does it end an exchange in clear in a place that a session had before, whose keys are wiped.
    let session = world.server.endpoint.peers.find(&path, Phase::Established).unwrap();
    world.server.endpoint.peers.remove(session);
    let mut cx = Cx { now: world.now, crypto: &mut world.server.crypto, counters: &mut world.server.counters };
    let id = world.server.endpoint.plain(&mut cx, &path, Rank::Stranger).unwrap();
    assert!(Puppet::new(1000).send(&mut world, &stray).is_empty());
    assert_eq!(world.server.endpoint.peers.find(&path, Phase::Established), Some(id));
}

#[test]
fn a_buffer_of_the_size_of_the_mtu_is_enough() {
    for mtu in 80..160 {
        let mut world = World::new(21, Config { mtu, ..Config::default() });
        world.buffers(usize::from(mtu));
        world.connect();
        world.run(Duration::from_secs(10));
        // Below 91 bytes the second hello does not fit one datagram, and a server takes it only whole.
        assert_eq!(world.client.established, mtu >= 91, "{mtu} {:?}", world.client.closed);
        assert!(world.sent.iter().all(|(_, datagram)| datagram.len() <= usize::from(mtu)));
    }
}
