//! Resumption of sessions between two endpoints on a fake clock.

mod world;

use tegmen::dtls::{CipherSuite, ClientAuthentication, Config, Fatal, Suites};
use tegmen::endpoint::{Peers as _, Phase};
use tegmen::time::Duration;
use tegmen_tickets::{TicketKey, TicketKeys};
use world::badge::Badge;
use world::puppet::{HANDSHAKE, SERVER_HELLO, last_alert, message, record};
use world::{Damage, Fate, World};

const CCM_8: Suites = Suites::CCM_8;
const CBC: Suites = Suites(&[CipherSuite::PSK_WITH_AES_128_CBC_SHA256]);
const CHACHA20: Suites = Suites(&[CipherSuite::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256]);
const ECDHE_PSK: Suites = Suites(&[CipherSuite::ECDHE_PSK_WITH_AES_128_CCM_8_SHA256]);
const ECDSA: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);

const RSA: Suites = Suites(&[CipherSuite::RSA_WITH_AES_128_CBC_SHA]);

/// Returns a world in which both endpoints support tickets.
fn with_tickets(seed: u64, suites: Suites) -> World {
    let mut world = World::new(seed, Config { suites, ..Config::default() });
    world.client.memory.tickets.set(true);
    world.server.memory.tickets.set(true);
    *world.server.memory.keys.borrow_mut() = TicketKeys::draw(&mut world.server.crypto);
    world
}

/// Returns a world in which the server stores sessions under ids.
fn with_ids(seed: u64, suites: Suites) -> World {
    let world = World::new(seed, Config { suites, ..Config::default() });
    world.server.memory.ids.set(true);
    world
}

fn mutual(world: &mut World, of: fn(u8) -> Badge) {
    let (client, server) = (of(1), of(2));
    let server = server.clone().trusting(&client).asking(ClientAuthentication::Required);
    world.client.wear(client.trusting(&server));
    world.server.wear(server);
}

/// Gives the server an RSA key, and the client an ECDSA key.
fn mutual_rsa(world: &mut World) {
    let (client, server) = (certificate(1), Badge { rsa: true, ..certificate(2) });
    let server = server.trusting(&client).asking(ClientAuthentication::Required);
    world.client.wear(client.trusting(&server));
    world.server.wear(server);
}

fn certificate(seed: u8) -> Badge {
    Badge::chain(seed, 0)
}

/// Completes a full handshake, and forgets the datagrams that were sent.
fn first(mut world: World) -> World {
    world.connect();
    world.run(Duration::from_secs(60));
    assert!(world.client.established && world.server.established, "{:?}", world.server.closed);
    assert!(!world.client.resumed && !world.server.resumed);
    assert!(world.client.kept.is_some());
    world.sent.clear();
    world
}

fn resumes(world: &mut World) {
    world.connect_again();
    world.run(Duration::from_secs(59));
    assert!(
        world.client.established && world.server.established,
        "{:?} {:?}",
        world.client.closed,
        world.server.closed
    );
    assert!(world.client.resumed && world.server.resumed);
    assert_eq!((world.client.needs, world.server.needs), (0, 0));
    world.speak();
}

/// Asserts that the server declines the offer, and that the full handshake succeeds.
fn falls_back(world: &mut World) {
    world.connect_again();
    world.run(Duration::from_secs(59));
    assert!(
        world.client.established && world.server.established,
        "{:?} {:?}",
        world.client.closed,
        world.server.closed
    );
    assert!(!world.client.resumed && !world.server.resumed);
    assert!(world.server.needs > 0);
    world.speak();
}

/// The NewSessionTicket is not protected. The Finished of the server is computed from the NewSessionTicket as the server sent it.
#[test]
fn a_client_refuses_a_finished_that_does_not_match_the_messages_it_received() {
    for bit in 0..32 {
        let mut world = with_tickets(1, CCM_8);
        world.network = Box::new(move |_, datagram| {
            let Some(lifetime) = lifetime_of_ticket(datagram) else { return Fate::arrives() };
            Fate(vec![(Duration::from_millis(5), Damage::Flipped { at: lifetime + bit / 8, bit: bit as u8 % 8 })])
        });
        world.connect();
        world.run(Duration::from_secs(60));
        assert_eq!((world.client.established, world.client.closed), (false, Some(Fatal::BadFinished)), "bit {bit}");
        assert!(world.client.kept.is_none());
    }
}

/// Returns the position of the lifetime in a datagram with a NewSessionTicket.
fn lifetime_of_ticket(datagram: &[u8]) -> Option<usize> {
    const NEW_SESSION_TICKET: u8 = 4;
    let mut at = 0;
    while let Some(header) = datagram.get(at..at + 13) {
        if header[0] == HANDSHAKE && header[3..5] == [0, 0] && datagram[at + 13] == NEW_SESSION_TICKET {
            return Some(at + 13 + 12);
        }
        at += 13 + usize::from(u16::from_be_bytes([header[11], header[12]]));
    }
    None
}

#[test]
fn tickets_of_every_kind_of_session() {
    for suites in [CCM_8, Suites::GCM, ECDHE_PSK, CHACHA20, CBC] {
        let mut world = first(with_tickets(1, suites));
        resumes(&mut world);
        resumes(&mut world);
    }
    for of in [certificate, Badge::raw] {
        let mut world = with_tickets(1, ECDSA);
        mutual(&mut world, of);
        let mut world = first(world);
        resumes(&mut world);
        resumes(&mut world);
    }
}

#[test]
fn sessions_whose_secret_was_encrypted() {
    for with in [with_tickets, with_ids] {
        let mut world = with(1, RSA);
        mutual_rsa(&mut world);
        let mut world = first(world);
        resumes(&mut world);
        resumes(&mut world);
        // Only under their own suite.
        world.server.offer(ECDSA);
        world.connect_again();
        world.run(Duration::from_secs(59));
        assert!(!world.client.established && !world.server.established);
    }
}

#[test]
fn ids_of_every_kind_of_session() {
    for suites in [CCM_8, ECDHE_PSK, CHACHA20] {
        let mut world = first(with_ids(1, suites));
        resumes(&mut world);
        resumes(&mut world);
    }
    let mut world = with_ids(1, ECDSA);
    mutual(&mut world, Badge::raw);
    resumes(&mut first(world));
}

#[test]
fn a_ticket_saves_the_cookie_round_and_an_id_does_not() {
    let mut world = first(with_tickets(1, CCM_8));
    world.connect_again();
    world.run(Duration::from_secs(1));
    assert_eq!(world.sent.len(), 3); // hello, the flight of the server, that of the client
    let mut world = first(with_ids(1, CCM_8));
    world.connect_again();
    world.run(Duration::from_secs(1));
    assert_eq!(world.sent.len(), 5);
}

#[test]
fn every_single_loss_and_every_pair_of_losses_is_survived() {
    for (of, datagrams) in [(with_tickets as fn(u64, Suites) -> World, 6), (with_ids, 8)] {
        for one in 0..datagrams {
            for other in 0..=one {
                let mut world = first(of(1, CCM_8));
                let mut sent = 0;
                world.network = Box::new(move |_, _| {
                    sent += 1;
                    if sent == one + 1 || sent == other + 1 { Fate::LOST } else { Fate::arrives() }
                });
                resumes(&mut world);
            }
        }
    }
}

/// A damaged byte may cause the loss of one record of a datagram. The retransmissions that follow this loss must end.
#[test]
fn any_byte_of_any_datagram_may_be_spoiled_and_nobody_answers_for_ever() {
    for (of, datagrams) in [(with_tickets as fn(u64, Suites) -> World, 3), (with_ids, 5)] {
        for spoiled in 0..datagrams {
            for at in 0..250 {
                let mut world = first(of(1, CCM_8));
                let mut sent = 0;
                world.network = Box::new(move |_, datagram| {
                    sent += 1;
                    let here = sent == spoiled + 1 && at < datagram.len();
                    let damage = if here { Damage::Flipped { at, bit: 3 } } else { Damage::Intact };
                    Fate(vec![(Duration::from_millis(10), damage)])
                });
                world.connect_again();
                world.run(Duration::from_secs(59));
                // A flight that is never accepted is cut into more and smaller datagrams.
                assert!(world.sent.len() < 30, "byte {at} of datagram {spoiled}: {} datagrams", world.sent.len());
                // A changed ClientHello or ServerHello may end the handshake: Finished reveals the change.
                if spoiled + 1 == datagrams {
                    assert!(world.client.established && world.server.established, "byte {at} of the last");
                    world.speak();
                }
            }
        }
    }
}

#[test]
fn every_datagram_of_a_small_mtu_may_be_late() {
    for late in 0..16 {
        let mut world = with_tickets(late as u64, CCM_8);
        world.server.memory.keys.borrow_mut().rotate(TicketKey::draw(&mut world.client.crypto));
        world.server.limit_mtu(150);
        let mut world = first(world);
        // So that the server sends a new ticket.
        world.server.memory.keys.borrow_mut().rotate(TicketKey::draw(&mut world.client.crypto));
        let mut sent = 0;
        world.network = Box::new(move |_, _| {
            sent += 1;
            if sent == late + 1 { Fate::after(Duration::from_millis(100)) } else { Fate::arrives() }
        });
        let before = world.client.kept.clone();
        resumes(&mut world);
        assert_ne!(world.client.kept, before);
        resumes(&mut world);
    }
}

#[test]
fn a_ticket_with_any_bit_changed_leads_to_a_full_handshake() {
    let world = first(with_tickets(1, CCM_8));
    let kept = world.client.kept.clone().unwrap();
    for byte in 0..kept.handle.len() {
        let mut world = first(with_tickets(1, CCM_8));
        let mut kept = world.client.kept.clone().unwrap();
        kept.handle[byte] ^= 1 << (byte % 8);
        world.client.kept = Some(kept);
        falls_back(&mut world);
        // The ticket that it got instead is valid.
        resumes(&mut world);
    }
    for len in [0, 1, 26, kept.handle.len() - 1] {
        let mut world = first(with_tickets(1, CCM_8));
        world.client.kept.as_mut().unwrap().handle.truncate(len);
        falls_back(&mut world);
    }
}

#[test]
fn a_ticket_that_is_old_or_foreign_or_revoked_leads_to_a_full_handshake() {
    let mut old = first(with_tickets(1, CCM_8));
    old.run(Duration::from_secs(u64::from(world::memory::LIFETIME)));
    falls_back(&mut old);
    let mut foreign = first(with_tickets(1, CCM_8));
    *foreign.server.memory.keys.borrow_mut() = TicketKeys::draw(&mut foreign.server.crypto);
    falls_back(&mut foreign);
    for world in [with_tickets(1, CCM_8), with_ids(1, CCM_8)] {
        let mut world = first(world);
        world.server.memory.revoked.set(true);
        falls_back(&mut world);
    }
}

#[test]
fn a_ticket_of_an_old_key_is_renewed_and_keeps_its_age() {
    let mut world = first(with_tickets(1, CCM_8));
    let half = Duration::from_secs(u64::from(world::memory::LIFETIME / 2));
    world.run(half);
    world.server.memory.keys.borrow_mut().rotate(TicketKey::draw(&mut world.client.crypto));
    let before = world.client.kept.clone().unwrap();
    resumes(&mut world);
    let renewed = world.client.kept.clone().unwrap();
    assert_ne!(renewed.handle, before.handle);
    assert_eq!(renewed.master, before.master);
    world.run(half);
    falls_back(&mut world);
}

#[test]
fn a_stolen_ticket_without_its_secret_fails_at_finished() {
    let mut world = first(with_tickets(1, CCM_8));
    world.client.say(b"mine");
    world.run(Duration::from_secs(1));
    world.client.kept.as_mut().unwrap().master[0] ^= 1;
    world.connect_again();
    world.run(Duration::from_secs(120));
    assert!(!world.client.established && !world.server.established);
    // Whose it is still speaks.
    world.server.established = true;
    world.server.say(b"still there");
    world.run(Duration::from_secs(1));
    assert_eq!(world.client.heard, [b"still there"]);
}

#[test]
fn an_alert_behind_the_change_cipher_spec_of_a_resumption_is_protected() {
    let mut world = first(with_tickets(1, CCM_8));
    let before = world.sent.len();
    // Hello, and the server's flight; the client's, which is the last, is lost.
    world.network = Box::new(move |n, _| if n < before + 2 { Fate::arrives() } else { Fate::LOST });
    world.connect_again();
    world.run(Duration::from_millis(100));
    assert!(world.client.established && !world.server.established);
    world.network = Box::new(|_, _| Fate::arrives());
    let path = world.server.path(world.client.local);
    let id = world.server.endpoint.peers.find(&path, Phase::Handshaking).unwrap();
    world.server.endpoint.close(id);
    world.run(Duration::from_millis(100));
    assert_eq!(world.client.closed, Some(Fatal::Closed));
}

#[test]
fn a_hello_without_extended_master_secret_does_not_resume() {
    let mut world = first(with_tickets(1, CCM_8));
    world.network = Box::new(|_, _| Fate::LOST);
    world.connect_again();
    world.run(Duration::from_millis(10));
    let (_, mut hello) = world.sent.remove(0);
    let at = hello.windows(4).position(|bytes| bytes == [0, 0x17, 0, 0]).unwrap();
    hello[at] = 0xee;
    let from = world.client.local;
    let answers = world.tell_server(from, &hello);
    assert_eq!(answers.len(), 1);
    let [.., cookie_len] = answers[0][..28] else { unreachable!() };
    let cookie = &answers[0][28..28 + usize::from(cookie_len)];
    // The same hello with the cookie: behind record and handshake headers, version, random and session id.
    let at = 25 + 2 + 32 + 1 + 32;
    let mut again = [&hello[..at], &[cookie_len], cookie, &hello[at + 1..]].concat();
    for (at, by) in [(11, cookie.len()), (15, cookie.len()), (23, cookie.len())] {
        let len = u16::from_be_bytes([again[at], again[at + 1]]) + by as u16;
        again[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }
    again[18] = 1; // message_seq
    assert_eq!(last_alert(&world.tell_server(from, &again)), Some((2, 40)));
}

#[test]
fn a_session_is_not_resumed_with_a_server_that_leaves_out_extended_master_secret() {
    let mut world = first(with_tickets(1, CCM_8));
    world.network = Box::new(|_, _| Fate::LOST);
    world.connect_again();
    world.run(Duration::from_millis(10));
    let (_, hello) = world.sent.remove(0);
    world.tell_client(&resuming_hello(&hello, &[]));
    assert_eq!(world.client.closed, Some(Fatal::NoExtendedMasterSecret));
}

/// Returns the record of a ServerHello that resumes the session in the ClientHello of `hello`.
fn resuming_hello(hello: &[u8], extensions: &[u8]) -> Vec<u8> {
    // The session id follows the record header, the handshake header, the version and the random.
    let session_id = &hello[25 + 2 + 32..][..33];
    let suite = CipherSuite::PSK_WITH_AES_128_CCM_8.0.to_be_bytes();
    let body = [&[254, 253][..], &[0x5a; 32], session_id, &suite, &[0], extensions].concat();
    record(HANDSHAKE, 0, 0, &message(SERVER_HELLO, 0, &body))
}

#[test]
fn a_ticket_that_does_not_fit_the_hello_is_not_shown() {
    let mut world = with_tickets(1, CCM_8);
    world.client.limit_mtu(150);
    falls_back(&mut first(world));
}

#[test]
fn a_session_whose_suite_is_not_offered_any_more_is_not_resumed() {
    let mut world = first(with_tickets(1, Suites::CCM_8_THEN_GCM));
    assert_eq!(world.client.kept.as_ref().unwrap().suite, CipherSuite::PSK_WITH_AES_128_CCM_8);
    world.server.offer(Suites::GCM);
    falls_back(&mut world);
}

/// RFC 5246, section 7.4.1.2: a ClientHello with a session id offers the suite of the session.
#[test]
fn a_client_does_not_offer_a_session_whose_suite_it_does_not_offer() {
    for with in [with_tickets, with_ids] {
        let mut world = first(with(1, Suites::CCM_8_THEN_GCM));
        world.client.offer(Suites::GCM);
        falls_back(&mut world);
        // The length of the session id follows the record header, the handshake header, the version and the random.
        assert_eq!(world.sent[0].1[25 + 2 + 32], 0);
    }
}

/// RFC 6066, sections 1.1 and 4: a server that resumes a session does not answer max_fragment_length, and the length of
/// the first handshake remains.
#[test]
fn a_client_sends_no_more_than_its_fragment_length_if_a_resumption_does_not_answer() {
    for (limit, expected) in [(600, 512), (1024, 1024), (100, 1 << 14), (0, 1 << 14)] {
        let mut world = with_tickets(1, CCM_8);
        world.client.limit_records(limit);
        let mut world = first(world);
        world.network = Box::new(|_, _| Fate::LOST);
        world.connect_again();
        world.run(Duration::from_millis(10));
        let (_, hello) = world.sent.remove(0);
        let extended_master_secret = [0, 4, 0, 0x17, 0, 0];
        world.tell_client(&resuming_hello(&hello, &extended_master_secret));
        assert_eq!((world.client.max_content(), world.client.closed), (expected, None), "{limit}");
    }
}

#[test]
fn a_client_that_has_not_proved_its_address_gets_three_flights() {
    let mut world = first(with_tickets(1, CCM_8));
    world.network = Box::new(|_, _| Fate::LOST);
    world.connect_again();
    world.run(Duration::from_millis(10));
    let (_, hello) = world.sent.remove(0);
    world.sent.clear();
    world.client.close();
    let from = world.client.local;
    assert_eq!(world.tell_server(from, &hello).len(), 1);
    world.run(Duration::from_secs(50));
    assert_eq!(world.sent.iter().filter(|(client, _)| !client).count(), 2);
}

#[test]
fn a_busy_server_asks_for_a_cookie_first_and_then_resumes() {
    let mut world = first(with_tickets(1, CCM_8));
    // Two of the three places are taken.
    for port in [77, 78] {
        let mut puppet = world::puppet::Puppet::new(port);
        puppet.reach_server_hello_done(&mut world);
    }
    world.sent.clear();
    resumes(&mut world);
    assert!(world.sent.len() >= 5 + 2);
}

#[test]
fn a_server_that_gives_nothing_promises_nothing() {
    let mut world = World::new(1, Config::default());
    world.client.memory.tickets.set(true);
    world.connect();
    world.run(Duration::from_secs(1));
    assert!(world.client.established);
    assert_eq!(world.client.kept, None);
    assert_eq!(world.client.closed, None::<Fatal>);
}
