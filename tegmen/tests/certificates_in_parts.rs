//! Handshakes in which both endpoints verify certificates as they arrive. The lists are longer than the receive buffer.

mod world;

use tegmen::dtls::{CipherSuite, ClientAuthentication, Config, Fatal, Suites};
use tegmen::time::Duration;
use world::badge::Badge;
use world::puppet::{
    CERTIFICATE, ECDSA_CCM_8, HANDSHAKE, Puppet, SERVER_HELLO, fragment, last_alert, message, record, server_hello,
};
use world::{Damage, Fate, World};

const SUITES: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);

/// Number of bytes of the receive buffers in the world.
const WINDOW: usize = 512;

fn entry(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[1..], bytes].concat()
}

/// Returns credentials with a list of three certificates, which does not fit the receive buffer.
fn chain(seed: u8) -> Badge {
    let mut badge = Badge::chain(seed, 0);
    for (len, factor) in [(420, 7), (300, 11)] {
        let chaff: Vec<u8> = (0..len).map(|n: usize| (n * factor) as u8).collect();
        badge.content.extend(entry(&chaff));
    }
    assert!(badge.content.len() > WINDOW);
    badge
}

fn mutual(of: fn(u8) -> Badge) -> (Badge, Badge) {
    let (client, server) = (of(1), of(2));
    let server = server.clone().trusting(&client).asking(ClientAuthentication::Required);
    (client.trusting(&server), server)
}

fn world(seed: u64, client: Badge, server: Badge) -> World<true> {
    let mut world = World::in_parts(seed, Config { suites: SUITES, ..Config::default() });
    world.client.wear(client);
    world.server.wear(server);
    world
}

/// Asserts that both endpoints have a session, and that each has verified the certificates of the other.
fn assert_speaks(world: &mut World<true>, client: &Badge, server: &Badge) {
    assert!(world.client.established, "{:?} {:?}", world.client.closed, world.server.closed);
    assert!(world.client.list == server.content && world.server.list == client.content);
    world.speak();
}

#[test]
fn a_list_longer_than_the_receive_buffer_is_verified_as_it_arrives() {
    for mtu in [1232, 508, 100] {
        let (client, server) = mutual(chain);
        let mut world = world(1, client.clone(), server.clone());
        world.client.limit_mtu(mtu);
        world.server.limit_mtu(mtu);
        world.connect();
        world.run(Duration::from_secs(1));
        assert_eq!((world.client.counters.retransmitted, world.server.counters.retransmitted), (0, 0), "{mtu}");
        assert_speaks(&mut world, &client, &server);
    }
    let (client, server) = mutual(chain);
    let mut whole = World::new(1, Config { suites: SUITES, ..Config::default() });
    whole.client.wear(client);
    whole.server.wear(server);
    whole.server.limit_mtu(508);
    whole.connect();
    whole.run(Duration::from_secs(70));
    assert_eq!(whole.client.closed, Some(Fatal::TooLarge), "it does not fit whole");
}

#[test]
fn certificates_of_a_mote_are_verified_as_they_arrive() {
    let badge = || Badge::certified().asking(ClientAuthentication::Required);
    for mtu in [200, 1232] {
        let mut world = world(1, badge(), badge());
        world.client.limit_mtu(mtu);
        world.server.limit_mtu(mtu);
        world.connect();
        world.run(Duration::from_secs(1));
        assert_speaks(&mut world, &badge(), &badge());
    }
}

#[test]
fn every_single_loss_and_delay_is_survived() {
    for mtu in [150, 1232] {
        for n in 0..30 {
            for fate in [|| Fate::LOST, || Fate::after(Duration::from_millis(35))] {
                let (client, server) = mutual(chain);
                let mut world = world(n as u64, client.clone(), server.clone());
                world.client.limit_mtu(mtu);
                world.server.limit_mtu(mtu);
                world.network = Box::new(move |number, _| if number == n { fate() } else { Fate::arrives() });
                world.connect();
                world.run(Duration::from_secs(60));
                assert_speaks(&mut world, &client, &server);
            }
        }
    }
}

/// Returns the number of seeds: hundreds, or the value of `TEGMEN_SEEDS`.
fn seeds() -> u64 {
    std::env::var("TEGMEN_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(250)
}

/// Returns the world of a seed, and the credentials of both endpoints. The seed determines the maximum size of
/// datagrams.
fn world_of(seed: u64) -> (World<true>, Badge, Badge) {
    let (client, server) = mutual(chain);
    let mut world = world(seed, client.clone(), server.clone());
    let seconds = Duration::from_secs;
    let mtu = [100, 150, 254, 508, 1232][seed as usize % 5];
    let config = Config {
        suites: SUITES,
        mtu,
        retransmit_max: seconds(2),
        handshake_timeout: seconds(600),
        ..Config::default()
    };
    world.client.configure_as(config);
    world.server.configure_as(config);
    (world, client, server)
}

#[test]
fn no_loss_repetition_or_delay_stops_a_list() {
    for seed in 0..seeds() {
        let (mut world, client, server) = world_of(seed);
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = move |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % below
        };
        let loss = draw(25);
        world.network = Box::new(move |_, _| {
            let copies = if draw(100) < loss { 0 } else { 1 + u64::from(draw(10) == 0) };
            let mut delay = || Duration::from_millis(5 + if draw(5) == 0 { draw(400) } else { draw(10) });
            Fate((0..copies).map(|_| (delay(), Damage::Intact)).collect())
        });
        world.connect();
        world.run(Duration::from_secs(600));
        assert!(world.client.established, "{seed}: {:?} {:?}", world.client.closed, world.server.closed);
        assert_speaks(&mut world, &client, &server);
    }
}

#[test]
fn whoever_is_believed_in_spite_of_damage_has_shown_what_was_verified() {
    let mut established = 0;
    for seed in 0..seeds() {
        let (mut world, client, server) = world_of(seed);
        // Some owners answer later.
        if seed.is_multiple_of(7) {
            world.client.store_delay = Some(Duration::from_millis(100));
            world.server.store_delay = Some(Duration::from_millis(30));
        }
        world.random_faults();
        world.connect();
        world.run(Duration::from_secs(600));
        if world.client.established {
            established += 1;
            assert_speaks(&mut world, &client, &server);
        }
    }
    assert!(established > seeds() / 5, "{established}");
}

#[test]
fn a_verifier_may_take_its_time() {
    let (client, server) = mutual(chain);
    let mut world = world(1, client.clone(), server.clone());
    world.client.store_delay = Some(Duration::from_millis(300));
    world.server.store_delay = Some(Duration::from_millis(700));
    world.connect();
    world.run(Duration::from_secs(60));
    assert_speaks(&mut world, &client, &server);
}

#[test]
fn who_is_not_trusted_or_has_another_key_is_refused() {
    let (client, server) = mutual(chain);
    let mut one = world(1, chain(3).trusting(&server), server.clone());
    one.connect();
    one.run(Duration::from_secs(10));
    assert!(matches!(one.server.closed, Some(Fatal::Refused(_))), "{:?}", one.server.closed);
    let mut other = world(1, client, Badge { impostor: true, ..server });
    other.connect();
    other.run(Duration::from_secs(10));
    assert_eq!(other.client.closed, Some(Fatal::BadSignature));
}

#[test]
fn a_client_without_a_certificate() {
    let blank = |server: &Badge| Badge { private: None, content: Vec::new(), ..chain(1) }.trusting(server);
    for (how, expected) in
        [(ClientAuthentication::Asked, None), (ClientAuthentication::Required, Some(Fatal::NoCertificate))]
    {
        let server = chain(2).asking(how);
        let mut world = world(1, blank(&server), server);
        world.connect();
        world.run(Duration::from_secs(10));
        assert_eq!(world.server.closed, expected);
        assert_eq!(world.client.established, expected.is_none());
    }
}

// --- by hand ---

/// Returns the world of a server that requires certificates, a puppet client that has received the server's
/// ServerHelloDone, and the credentials of the client.
fn by_hand() -> (World<true>, Puppet, Badge) {
    let (client, server) = mutual(chain);
    let mut world = world(1, Badge::default(), server);
    let mut puppet = Puppet::new(1000);
    puppet.suite = ECDSA_CCM_8;
    // supported_groups: secp256r1; signature_algorithms: ecdsa_secp256r1_sha256
    puppet.tail = vec![0, 16, 0, 10, 0, 4, 0, 2, 0, 23, 0, 13, 0, 4, 0, 2, 4, 3];
    puppet.reach_server_hello_done(&mut world);
    (world, puppet, client)
}

/// Returns a fragment of the Certificate message with this body. Does not add it to the transcript.
fn piece(puppet: &mut Puppet, body: &[u8], from: usize, to: usize) -> Vec<u8> {
    let bytes = fragment(CERTIFICATE, body.len() as u32, puppet.message_seq, from as u32, &body[from..to]);
    puppet.plain(HANDSHAKE, &bytes)
}

/// Adds a Certificate message with this `body` to the transcript of the client, and sends the messages that follow it.
/// Returns true if the handshake is complete for the server.
fn finishes(world: &mut World<true>, puppet: &mut Puppet, body: &[u8], client: &Badge) -> bool {
    puppet.hash(&message(CERTIFICATE, puppet.message_seq, body));
    puppet.message_seq += 1;
    let share = puppet.share();
    puppet.send(world, &share);
    let verify = puppet.certificate_verify(&client.private.unwrap());
    puppet.send(world, &verify);
    let change = puppet.change_cipher_spec();
    puppet.send(world, &change);
    let finished = puppet.finished();
    puppet.send(world, &finished);
    world.server.established
}

#[test]
fn fragments_of_many_sizes_in_any_order_come_together() {
    for size in [1, 2, 3, 4, 5, 6, 7, 50, 94, 97, 150, 333, 423, 500, 2000] {
        for turn in 0..3 {
            let (mut world, mut puppet, client) = by_hand();
            let body = entry(&client.content);
            let mut at: Vec<usize> = (0..body.len()).step_by(size).collect();
            match turn {
                0 => {}
                // Neighbours change places.
                1 => at.chunks_mut(2).for_each(<[usize]>::reverse),
                // Each comes twice, and those that did not fit come once more.
                _ => at = at.iter().flat_map(|at| [*at, *at]).collect(),
            }
            // A sender that sends again begins with the first.
            for _ in 0..=at.len() {
                for at in &at {
                    let bytes = piece(&mut puppet, &body, *at, body.len().min(at + size));
                    puppet.send(&mut world, &bytes);
                }
                if world.server.list == client.content {
                    break;
                }
            }
            assert!(finishes(&mut world, &mut puppet, &body, &client), "{size} {turn}: {:?}", world.server.closed);
        }
    }
}

/// Sends fragments again with other bytes. One of these fragments belongs to a certificate that was already verified,
/// another to a certificate that is not complete.
#[test]
fn what_comes_again_with_other_bytes_changes_nothing() {
    for believes_second in [false, true] {
        let (mut world, mut puppet, client) = by_hand();
        let (_, attacker) = mutual(chain);
        let (body, other) = (entry(&client.content), entry(&attacker.content));
        assert_eq!(body.len(), other.len());
        // The first certificate, and a part of the second one; then all of that with the key of somebody else.
        for (bytes, from, to) in [(&body, 0, 200), (&other, 0, 200), (&other, 50, 180), (&body, 200, body.len())] {
            let record = piece(&mut puppet, bytes, from, to);
            puppet.send(&mut world, &record);
        }
        assert_eq!(world.server.list, client.content, "verified is what came first");
        // The transcript has what was verified, so that nobody finishes who hashed the other bytes.
        let hashed = if believes_second { &other } else { &body };
        assert_eq!(finishes(&mut world, &mut puppet, hashed, &client), !believes_second);
        assert_eq!(world.server.closed, believes_second.then_some(Fatal::BadSignature));
    }
}

/// Returns the answer of a server to a Certificate message with this body, which is sent in fragments of this size.
fn answered(body: &[u8], size: usize) -> (Option<Fatal>, Option<(u8, u8)>) {
    let (mut world, mut puppet, _) = by_hand();
    let mut answers = Vec::new();
    for at in (0..body.len()).step_by(size) {
        let bytes = piece(&mut puppet, body, at, body.len().min(at + size));
        answers.extend(puppet.send(&mut world, &bytes));
    }
    (world.server.closed, last_alert(&answers))
}

#[test]
fn lengths_that_lie_are_answered_with_an_alert() {
    let certificate = entry(&[7; 100]);
    let decode = (Some(Fatal::Decode), Some((2, 50)));
    let too_large = (Some(Fatal::TooLarge), Some((2, 40)));
    let refused = Some((2, 46));
    for size in [1, 2, 60, 2000] {
        let with_len = |len: u32, bytes: &[u8]| [&len.to_be_bytes()[1..], bytes].concat();
        // The list is longer than the message, and shorter.
        assert_eq!(answered(&with_len(104, &certificate), size), decode);
        assert_eq!(answered(&with_len(102, &certificate), size), decode);
        assert_eq!(answered(&with_len(0xff_ffff, &certificate), size), decode);
        // A certificate is longer than the list: the first, and the second.
        assert_eq!(answered(&entry(&with_len(101, &[7; 100])), size), decode);
        assert_eq!(answered(&entry(&[&certificate[..], &with_len(101, &[7; 100])].concat()), size), decode);
        assert_eq!(answered(&entry(&with_len(0xff_ffff, &[7; 100])), size), decode);
        // Behind the last certificate a byte or two are left, fewer than a length has.
        assert_eq!(answered(&entry(&[&certificate[..], &[0]].concat()), size), decode);
        assert_eq!(answered(&entry(&[&certificate[..], &[0, 0]].concat()), size), decode);
        assert_eq!(answered(&entry(&[0, 0]), size), decode);
        // A certificate is larger than the buffer; one that just fits it is refused for its content.
        assert_eq!(answered(&entry(&entry(&[7; WINDOW - 5])), size), too_large);
        assert_eq!(answered(&entry(&entry(&[7; WINDOW - 6])), size).1, refused);
    }
    // No list may have 2^16 bytes.
    let long = entry(&certificate.repeat(700));
    assert_eq!(answered(&long, 1000), decode);
}

#[test]
fn another_message_in_its_place_is_unexpected() {
    let (mut world, mut puppet, _) = by_hand();
    let share = puppet.share();
    let alert = puppet.send(&mut world, &share);
    assert!(matches!(world.server.closed, Some(Fatal::UnexpectedMessage(_))), "{:?}", world.server.closed);
    assert_eq!(last_alert(&alert), Some((2, 10)));
}

#[test]
fn a_server_without_certificates_does_not_parse() {
    let (client, server) = mutual(chain);
    let mut world = world(7, client, server);
    world.network = Box::new(|n, _| if n < 3 { Fate::arrives() } else { Fate::LOST });
    world.connect();
    world.run(Duration::from_millis(100));
    let hello = server_hello([254, 253], ECDSA_CCM_8, 0, &[]);
    world.tell_client(&record(HANDSHAKE, 0, 1, &message(SERVER_HELLO, 1, &hello)));
    world.tell_client(&record(HANDSHAKE, 0, 2, &message(CERTIFICATE, 2, &[0, 0, 0])));
    assert_eq!(world.client.closed, Some(Fatal::Decode));
}
