//! Handshakes with certificates, raw public keys and ephemeral key agreements, between two endpoints on a fake clock.

mod world;

use tegmen::crypto::curves;
use tegmen::dtls::{CertificateType, CipherSuite, ClientAuthentication, Config, Fatal, Suites};
use tegmen::time::Duration;
use world::badge::Badge;
use world::puppet::{
    CERTIFICATE, CERTIFICATE_REQUEST, CERTIFICATE_VERIFY, CLIENT_KEY_EXCHANGE, ECDSA_CCM_8 as SUITE, HANDSHAKE, Puppet,
    SERVER_HELLO, SERVER_HELLO_DONE, SERVER_KEY_EXCHANGE, last_alert, message, offer_of, record, records, server_hello,
};
use world::{Fate, World};

const ECDHE_PSK: Suites = Suites(&[CipherSuite::ECDHE_PSK_WITH_AES_128_CCM_8_SHA256]);
const CHACHA20: Suites = Suites(&[CipherSuite::ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256]);
const ECDSA_CCM_8: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);
const ECDSA_GCM: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]);

fn world(seed: u64, suites: Suites, client: Badge, server: Badge) -> World {
    let mut world = World::new(seed, Config { suites, ..Config::default() });
    world.client.wear(client);
    world.server.wear(server);
    world
}

/// Returns the credentials of two endpoints that trust each other.
fn mutual(of: fn(u8) -> Badge) -> (Badge, Badge) {
    let (client, server) = (of(1), of(2));
    let server = server.clone().trusting(&client).asking(ClientAuthentication::Required);
    (client.trusting(&server), server)
}

fn certificate(seed: u8) -> Badge {
    Badge::chain(seed, 0)
}

fn speaks(world: &mut World) {
    world.connect();
    world.run(Duration::from_secs(60));
    assert!(world.client.established, "{:?} {:?}", world.client.closed, world.server.closed);
    world.speak();
}

#[test]
fn a_psk_with_an_agreement() {
    speaks(&mut world(1, ECDHE_PSK, Badge::default(), Badge::default()));
}

#[test]
fn a_psk_with_an_agreement_and_chacha20() {
    let mut world = world(1, CHACHA20, Badge::default(), Badge::default());
    speaks(&mut world);
    let (_, record) = world.sent.last().unwrap();
    assert_eq!(record.len(), 13 + 4 + 16, "no part of the nonce is in the record");
}

#[test]
fn a_wrong_psk_with_an_agreement() {
    for suites in [ECDHE_PSK, CHACHA20] {
        let mut world = world(1, suites, Badge::default(), Badge::default());
        world.client.credentials("Client_identity", [1; 16]);
        world.connect();
        world.run(Duration::from_secs(10));
        assert_eq!(world.server.closed, Some(Fatal::WrongKeyOrIdentity { identity_known: true }));
        assert!(!world.client.established);
    }
}

#[test]
fn certificates_on_both_sides() {
    for suites in [ECDSA_CCM_8, ECDSA_GCM] {
        let (client, server) = mutual(certificate);
        speaks(&mut world(1, suites, client, server));
    }
}

#[test]
fn raw_public_keys_on_both_sides() {
    let (client, server) = mutual(Badge::raw);
    speaks(&mut world(1, ECDSA_CCM_8, client, server));
}

#[test]
fn a_client_without_a_certificate() {
    let server = certificate(2);
    let client = Badge::blank(CertificateType::X509).trusting(&server);
    speaks(&mut world(1, ECDSA_CCM_8, client.clone(), server.clone()));
    speaks(&mut world(1, ECDSA_CCM_8, client.clone(), server.clone().asking(ClientAuthentication::Asked)));
    let mut world = world(1, ECDSA_CCM_8, client, server.asking(ClientAuthentication::Required));
    world.connect();
    world.run(Duration::from_secs(10));
    assert_eq!(world.server.closed, Some(Fatal::NoCertificate));
    assert!(!world.client.established);
}

#[test]
fn who_is_not_trusted_is_refused() {
    let (client, server) = mutual(certificate);
    let stranger = certificate(3).trusting(&server);
    let mut one = world(1, ECDSA_CCM_8, stranger, server.clone());
    one.connect();
    one.run(Duration::from_secs(10));
    assert!(matches!(one.server.closed, Some(Fatal::Refused(_))), "{:?}", one.server.closed);
    let stranger = certificate(3).trusting(&client).asking(ClientAuthentication::Required);
    let mut other = world(1, ECDSA_CCM_8, client, stranger);
    other.connect();
    other.run(Duration::from_secs(10));
    assert!(matches!(other.client.closed, Some(Fatal::Refused(_))), "{:?}", other.client.closed);
}

#[test]
fn who_shows_the_key_of_another_is_found_out() {
    let (client, server) = mutual(certificate);
    let mut one = world(1, ECDSA_CCM_8, Badge { impostor: true, ..client.clone() }, server.clone());
    one.connect();
    one.run(Duration::from_secs(10));
    assert_eq!(one.server.closed, Some(Fatal::BadSignature));
    let mut other = world(1, ECDSA_CCM_8, client, Badge { impostor: true, ..server });
    other.connect();
    other.run(Duration::from_secs(10));
    assert_eq!(other.client.closed, Some(Fatal::BadSignature));
}

#[test]
fn every_single_loss_is_survived() {
    for suites in [ECDHE_PSK, CHACHA20, ECDSA_CCM_8] {
        for lost in 0..14 {
            let (client, server) = mutual(certificate);
            let mut world = world(lost as u64, suites, client, server);
            world.network = Box::new(move |n, _| if n == lost { Fate::LOST } else { Fate::arrives() });
            speaks(&mut world);
        }
    }
}

#[test]
fn long_chains_come_in_fragments() {
    for mtu in [200, 300, 1232] {
        for lost in 0..20 {
            let (client, server) = mutual(|seed| Badge::chain(seed, 300));
            let mut world = world(lost as u64, ECDSA_CCM_8, client, server);
            world.client.limit_mtu(mtu);
            world.server.limit_mtu(mtu);
            world.network = Box::new(move |n, _| if n == lost { Fate::LOST } else { Fate::arrives() });
            speaks(&mut world);
        }
    }
}

#[test]
fn certificates_that_a_mote_reads_come_in_fragments() {
    for mtu in [200, 1232] {
        for lost in 0..14 {
            let server = Badge::certified().asking(ClientAuthentication::Required);
            let mut world = world(lost as u64, ECDSA_CCM_8, Badge::certified(), server);
            world.client.limit_mtu(mtu);
            world.server.limit_mtu(mtu);
            world.network = Box::new(move |n, _| if n == lost { Fate::LOST } else { Fate::arrives() });
            speaks(&mut world);
        }
    }
}

#[test]
fn who_has_no_certificate_of_the_anchor_is_refused() {
    // The key of the anchor is another; then the peer shows the certificates of others with a key of its own.
    let mut elsewhere = Badge::certified();
    elsewhere.anchor.as_mut().unwrap().1 = curves::public_key_of(&[9; 32]).unwrap();
    let mut one = world(1, ECDSA_CCM_8, elsewhere, Badge::certified());
    one.connect();
    one.run(Duration::from_secs(10));
    assert!(matches!(one.client.closed, Some(Fatal::Refused(_))), "{:?}", one.client.closed);
    let attacker = Badge { private: Some([9; 32]), ..Badge::certified() };
    let mut other = world(1, ECDSA_CCM_8, Badge::certified(), attacker);
    other.connect();
    other.run(Duration::from_secs(10));
    assert_eq!(other.client.closed, Some(Fatal::BadSignature));
}

#[test]
fn a_certificate_that_fits_nowhere_ends_the_handshake() {
    let (client, server) = mutual(|seed| Badge::chain(seed, 900));
    let mut world = world(1, ECDSA_CCM_8, client, server);
    world.connect();
    world.run(Duration::from_secs(70));
    assert_eq!(world.client.closed, Some(Fatal::TooLarge));
}

#[test]
fn a_verifier_may_take_its_time() {
    let (client, server) = mutual(certificate);
    let mut world = world(1, ECDSA_CCM_8, client, server);
    world.client.store_delay = Some(Duration::from_millis(300));
    world.server.store_delay = Some(Duration::from_millis(700));
    speaks(&mut world);
}

#[test]
fn a_change_cipher_spec_that_comes_while_the_owner_verifies_is_remembered() {
    let (client, server) = mutual(certificate);
    let mut world = world(1, ECDSA_CCM_8, client, server);
    world.server.store_delay = Some(Duration::from_millis(100));
    speaks(&mut world);
    assert_eq!((world.client.counters.retransmitted, world.server.counters.retransmitted), (0, 0));
    assert_eq!(world.server.counters.unexpected, 0);
}

/// Returns the world of a server that requires certificates, a puppet client that has received the server's
/// ServerHelloDone, and the credentials of the client.
fn by_hand() -> (World, Puppet, Badge) {
    let (client, server) = mutual(certificate);
    let mut world = world(1, ECDSA_CCM_8, Badge::default(), server);
    let mut puppet = Puppet::new(1000);
    puppet.suite = SUITE;
    // supported_groups: secp256r1; signature_algorithms: ecdsa_secp256r1_sha256
    puppet.tail = vec![0, 16, 0, 10, 0, 4, 0, 2, 0, 23, 0, 13, 0, 4, 0, 2, 4, 3];
    puppet.reach_server_hello_done(&mut world);
    (world, puppet, client)
}

/// Returns the answer of a server with a certificate to a ClientHello with these extensions and a cookie.
fn answer_to(tail: &[u8]) -> Vec<Vec<u8>> {
    let (_, server) = mutual(certificate);
    let mut world = world(1, ECDSA_CCM_8, Badge::default(), server);
    let mut puppet = Puppet::new(1000);
    puppet.suite = SUITE;
    puppet.tail = [&(tail.len() as u16).to_be_bytes()[..], tail].concat();
    let hello = puppet.hello_with_cookie(&mut world);
    puppet.send(&mut world, &hello)
}

/// The extension supported_groups with secp256r1.
const GROUPS: [u8; 8] = [0, 10, 0, 4, 0, 2, 0, 23];
const SCHEMES: [u8; 8] = [0, 13, 0, 4, 0, 2, 4, 3];

#[test]
fn point_formats_are_answered_to_a_client_that_sent_them_and_no_other() {
    const FORMATS: [u8; 6] = [0, 11, 0, 2, 1, 0];
    for (tail, answered) in
        [([&GROUPS[..], &SCHEMES].concat(), false), ([&GROUPS[..], &SCHEMES, &FORMATS].concat(), true)]
    {
        let flight = answer_to(&tail);
        let (_, _, hello) = records(&flight[0]).remove(0);
        assert_eq!(hello[0], SERVER_HELLO);
        assert_eq!(hello.windows(6).any(|bytes| bytes == FORMATS), answered);
    }
}

/// RFC 8422, sections 4 and 5.1.2: a client lists its curves, and uncompressed points alone, if it offers a suite that
/// needs them. RFC 5746, section 3.4: each ClientHello has the signalling suite.
#[test]
fn a_client_lists_curves_only_with_a_suite_that_needs_them() {
    for (suites, lists) in [(ECDSA_CCM_8, true), (ECDHE_PSK, true), (Suites::CCM_8_THEN_GCM, false)] {
        let (client, server) = mutual(certificate);
        let mut world = world(1, suites, client, server);
        world.connect();
        world.run(Duration::from_secs(1));
        let (offered, extensions) = offer_of(&world.sent[0].1);
        let content = |kind| extensions.iter().find(|(found, _)| *found == kind).map(|(_, content)| &content[..]);
        assert_eq!(content(10).is_some(), lists, "supported_groups");
        assert_eq!(content(11), lists.then_some(&[1, 0][..]), "ec_point_formats");
        assert_eq!(offered.last_chunk(), Some(&[0x00, 0xff]));
    }
}

#[test]
fn a_client_that_takes_no_uncompressed_points_is_refused() {
    // ansiX962_compressed_prime alone, and a list whose length is wrong.
    for formats in [[0, 11, 0, 2, 1, 1], [0, 11, 0, 2, 2, 0]] {
        assert_eq!(last_alert(&answer_to(&[&GROUPS[..], &SCHEMES, &formats].concat())), Some((2, 47)));
    }
}

/// RFC 8422, section 5.1.2: a server examines ec_point_formats even if it chooses a suite without curves.
#[test]
fn point_formats_are_checked_whichever_suite_is_chosen() {
    const COMPRESSED: [u8; 6] = [0, 11, 0, 2, 1, 1];
    const UNCOMPRESSED: [u8; 6] = [0, 11, 0, 2, 1, 0];
    let x448 = [0, 10, 0, 4, 0, 2, 0, 30];
    for (groups, formats, refused) in
        [(GROUPS, COMPRESSED, true), (x448, COMPRESSED, true), (GROUPS, UNCOMPRESSED, false)]
    {
        let mut world = World::new(1, Config::default());
        let mut puppet = Puppet::new(1000);
        let tail = [&groups[..], &formats].concat();
        puppet.tail = [&(tail.len() as u16).to_be_bytes()[..], &tail].concat();
        let hello = puppet.hello_with_cookie(&mut world);
        let answer = puppet.send(&mut world, &hello);
        assert_eq!(last_alert(&answer), refused.then_some((2, 47)), "{groups:02x?}");
    }
}

#[test]
fn a_client_without_the_curve_of_the_certificate_is_refused() {
    // x25519 alone, then behind it secp256r1.
    let x25519 = [0, 10, 0, 4, 0, 2, 0, 29];
    assert_eq!(last_alert(&answer_to(&[&x25519[..], &SCHEMES].concat())), Some((2, 40)));
    let both = [0, 10, 0, 6, 0, 4, 0, 29, 0, 23];
    let flight = answer_to(&[&both[..], &SCHEMES].concat());
    assert_eq!(records(&flight[0])[0].2[0], SERVER_HELLO);
}

fn shown(badge: &Badge) -> Vec<u8> {
    [&(badge.content.len() as u32).to_be_bytes()[1..], &badge.content].concat()
}

/// Sends a correct ChangeCipherSpec and Finished. Returns true if the server accepts them as the end of the handshake.
fn finishes(world: &mut World, puppet: &mut Puppet) -> bool {
    let change = puppet.change_cipher_spec();
    puppet.send(world, &change);
    let finished = puppet.finished();
    puppet.send(world, &finished);
    world.server.established
}

#[test]
fn a_client_by_hand_that_does_all_is_authenticated() {
    let (mut world, mut puppet, client) = by_hand();
    for record in [puppet.next_message(CERTIFICATE, &shown(&client)), puppet.share()] {
        puppet.send(&mut world, &record);
    }
    let verify = puppet.certificate_verify(&client.private.unwrap());
    puppet.send(&mut world, &verify);
    assert!(finishes(&mut world, &mut puppet), "{:?}", world.server.closed);
}

#[test]
fn who_leaves_certificate_verify_out_is_not_authenticated() {
    let (mut world, mut puppet, client) = by_hand();
    for record in [puppet.next_message(CERTIFICATE, &shown(&client)), puppet.share()] {
        puppet.send(&mut world, &record);
    }
    assert!(!finishes(&mut world, &mut puppet));
    let data = puppet.seal(world::puppet::APPLICATION_DATA, b"hello");
    puppet.send(&mut world, &data);
    assert!(world.server.heard.is_empty());
}

#[test]
fn who_leaves_the_certificate_out_is_not_authenticated() {
    for empty in [false, true] {
        let (mut world, mut puppet, _) = by_hand();
        if empty {
            let none = puppet.next_message(CERTIFICATE, &[0, 0, 0]);
            puppet.send(&mut world, &none);
            assert_eq!(world.server.closed, Some(Fatal::NoCertificate));
        }
        let share = puppet.share();
        puppet.send(&mut world, &share);
        assert!(!finishes(&mut world, &mut puppet));
        assert!(world.server.heard.is_empty());
    }
}

#[test]
fn a_signature_of_another_handshake_proves_nothing() {
    let (mut world, mut puppet, client) = by_hand();
    let certificate = puppet.next_message(CERTIFICATE, &shown(&client));
    // Signed before the share, and so over another transcript.
    let mut early = Puppet::new(1000);
    (early.message_seq, early.plain_sequence) = (puppet.message_seq + 1, puppet.plain_sequence + 2);
    let verify = early.certificate_verify(&client.private.unwrap());
    for record in [certificate, puppet.share(), verify] {
        puppet.send(&mut world, &record);
    }
    assert_eq!(world.server.closed, Some(Fatal::BadSignature));
    assert!(!finishes(&mut world, &mut puppet));
}

/// The server sends its flight again only if the client asks for it.
#[test]
fn the_client_asks_again_for_any_part_of_the_servers_flight() {
    for lost in 2..14 {
        let (client, server) = mutual(certificate);
        let mut world = world(7, ECDSA_GCM, client, server);
        let hour = Duration::from_secs(3600);
        let config =
            Config { suites: ECDSA_GCM, mtu: 200, retransmit_first: hour, retransmit_max: hour, ..Config::default() };
        world.server.configure_as(config);
        let mut from_server = 0;
        world.network = Box::new(move |_, datagram| {
            let is_servers =
                matches!(datagram[13], 2 | 12 | 13 | 14) || datagram[13] == CERTIFICATE && from_server < 10;
            from_server += usize::from(is_servers);
            if is_servers && from_server == lost { Fate::LOST } else { Fate::arrives() }
        });
        world.connect();
        world.run(Duration::from_secs(50));
        assert!(world.client.established && world.server.established, "lost {lost}");
        assert!(world.client.counters.retransmitted <= 1, "{} times", world.client.counters.retransmitted);
    }
}

/// The datagrams of the flight together need more time than the first timeout, but no gap between two of these
/// datagrams is as long as the timeout.
#[test]
fn a_slow_flight_is_not_asked_for_again() {
    let (client, server) = mutual(certificate);
    let mut world = world(7, ECDSA_GCM, client, server);
    world.server.limit_mtu(200);
    let mut slow = 0;
    world.network = Box::new(move |n, datagram| {
        if n >= 3 && matches!(datagram[13], 2 | 11 | 12 | 13 | 14) && slow < 10 {
            slow += 1;
            return Fate::after(Duration::from_millis(150 * slow));
        }
        Fate::arrives()
    });
    world.connect();
    world.run(Duration::from_secs(50));
    assert!(world.client.established && world.server.established);
    assert_eq!(world.client.counters.retransmitted, 0);
}

/// Makes the network lose every datagram that is longer than `mtu` bytes.
fn carries(world: &mut World, mtu: usize) {
    world.network = Box::new(move |_, datagram| if datagram.len() > mtu { Fate::LOST } else { Fate::arrives() });
}

#[test]
fn flights_that_are_lost_are_sent_in_smaller_datagrams_until_they_fit_the_path() {
    for path in [1232, 512, 256, 200] {
        let chain: fn(u8) -> Badge = |seed| Badge::chain(seed, 300);
        let (client, server) = mutual(chain);
        let mut world = world(7, ECDSA_GCM, client, server);
        carries(&mut world, path);
        world.connect();
        world.run(Duration::from_secs(60));
        assert!(world.client.established && world.server.established, "{path} bytes");
        let from_server = world.sent.iter().filter(|(is_clients, _)| !is_clients);
        let lens: Vec<usize> = from_server.map(|(_, datagram)| datagram.len()).collect();
        // The configured size is tried more than once: a single loss proves nothing about the path.
        let tried = lens.iter().filter(|len| **len > path).count();
        assert!(path == 1232 || tried >= 2, "{path} bytes: {lens:?}");
        speaks_on(&mut world);
    }
}

/// Sends a message in both directions of an established session.
fn speaks_on(world: &mut World) {
    world.client.say(b"ping");
    world.run(Duration::from_secs(1));
    assert_eq!(world.server.heard, [b"ping"]);
}

#[test]
fn a_single_loss_does_not_make_datagrams_smaller() {
    let (client, server) = mutual(certificate);
    let mut world = world(7, ECDSA_GCM, client, server);
    let mut lost = false;
    world.network = Box::new(move |_, datagram| {
        let is_flight = datagram.len() > 300;
        if is_flight && !lost {
            lost = true;
            return Fate::LOST;
        }
        Fate::arrives()
    });
    world.connect();
    world.run(Duration::from_secs(20));
    assert!(world.client.established && world.server.established);
    let longest: Vec<usize> = world.sent.iter().map(|(_, datagram)| datagram.len()).filter(|len| *len > 300).collect();
    assert!(longest.len() >= 3 && longest[0] == longest[1], "{longest:?}");
}

/// Returns the error of a client with this badge for extensions in the ServerHello; `None` if it continues.
fn answered(client: Badge, extensions: &[&[u8]]) -> Option<Fatal> {
    let mut world = world(7, ECDSA_GCM, client, certificate(2));
    world.network = Box::new(|n, _| if n < 3 { Fate::arrives() } else { Fate::LOST });
    world.connect();
    world.run(Duration::from_millis(100));
    let list = extensions.concat();
    let tail = [&(list.len() as u16).to_be_bytes()[..], &list].concat();
    let hello = server_hello([254, 253], [0xc0, 0x2b], 0, &tail);
    world.tell_client(&record(HANDSHAKE, 0, 1, &message(SERVER_HELLO, 1, &hello)));
    world.client.closed
}

const RAW_CLIENT: &[u8] = &[0, 19, 0, 1, 2];
const X509_CLIENT: &[u8] = &[0, 19, 0, 1, 0];
const RAW_SERVER: &[u8] = &[0, 20, 0, 1, 2];
const X509_SERVER: &[u8] = &[0, 20, 0, 1, 0];

/// RFC 8422, sections 5.10 and 5.11: client and server end a handshake in which the shared secret of x25519 is zero.
#[test]
fn an_x25519_key_of_small_order_is_an_illegal_parameter() {
    const SUITE: [u8; 2] = [0xd0, 0x03];
    let one: [u8; 32] = std::array::from_fn(|at| u8::from(at == 0));
    let order_8 = [
        0xe0, 0xeb, 0x7a, 0x7c, 0x3b, 0x41, 0xb8, 0xae, 0x16, 0x56, 0xe3, 0xfa, 0xf1, 0x9f, 0xc4, 0x6a, 0xda, 0x09,
        0x8d, 0xeb, 0x9c, 0x32, 0xb1, 0xfd, 0x86, 0x62, 0x05, 0x16, 0x5f, 0x49, 0xb8, 0x00,
    ];
    for share in [[0; 32], one, order_8] {
        let mut at_server = world(1, ECDHE_PSK, Badge::default(), Badge::default());
        let mut puppet = Puppet::new(1000);
        puppet.suite = SUITE;
        puppet.tail = vec![0, 8, 0, 10, 0, 4, 0, 2, 0, 29]; // supported_groups: x25519
        puppet.reach_server_hello_done(&mut at_server);
        let body = [&Puppet::identity(b"Client_identity")[..], &[32], &share].concat();
        let key_exchange = puppet.next_message(CLIENT_KEY_EXCHANGE, &body);
        let answer = puppet.send(&mut at_server, &key_exchange);
        assert_eq!((last_alert(&answer), at_server.server.closed), (Some((2, 47)), Some(Fatal::IllegalParameter)));

        let mut at_client = world(7, ECDHE_PSK, Badge::default(), Badge::default());
        at_client.network = Box::new(|n, _| if n < 3 { Fate::arrives() } else { Fate::LOST });
        at_client.connect();
        at_client.run(Duration::from_millis(100));
        // The ServerKeyExchange has no hint, and has the share after the named curve x25519.
        let key = [&[0, 0, 3, 0, 29, 32][..], &share].concat();
        let hello = server_hello([254, 253], SUITE, 0, &[]);
        let flight = [(SERVER_HELLO, hello), (SERVER_KEY_EXCHANGE, key), (SERVER_HELLO_DONE, Vec::new())];
        let mut answer = Vec::new();
        for (seq, (kind, body)) in (1..).zip(flight) {
            answer = at_client.tell_client(&record(HANDSHAKE, 0, seq, &message(kind, seq as u16, &body)));
        }
        assert_eq!((last_alert(&answer), at_client.client.closed), (Some((2, 47)), Some(Fatal::IllegalParameter)));
    }
}

#[test]
fn a_certificate_type_that_was_not_offered_is_refused() {
    let raw = || Badge::raw(1);
    let either = || Badge { peer_types: vec![CertificateType::RAW_PUBLIC_KEY, CertificateType::X509], ..raw() };
    for (client, extensions, expected) in [
        (certificate(1), &[][..], None),
        // It offers X.509 alone, and so no type at all.
        (certificate(1), &[RAW_CLIENT], Some(Fatal::UnsupportedExtension)),
        (certificate(1), &[X509_CLIENT], Some(Fatal::UnsupportedExtension)),
        (certificate(1), &[X509_SERVER], Some(Fatal::UnsupportedExtension)),
        (raw(), &[RAW_CLIENT, RAW_SERVER], None),
        (raw(), &[X509_CLIENT, RAW_SERVER], Some(Fatal::IllegalParameter)),
        (raw(), &[RAW_CLIENT, X509_SERVER], Some(Fatal::IllegalParameter)),
        (either(), &[RAW_CLIENT, X509_SERVER], None),
        (either(), &[RAW_CLIENT, &[0, 20, 0, 2, 2, 0]], Some(Fatal::Decode)),
    ] {
        assert_eq!(answered(client, extensions), expected, "{extensions:?}");
    }
}

#[test]
fn a_server_without_uncompressed_points_is_refused() {
    for (formats, expected) in [
        (&[0, 11, 0, 2, 1, 0][..], None),
        (&[0, 11, 0, 3, 2, 1, 0], None),
        (&[0, 11, 0, 2, 1, 1], Some(Fatal::IllegalParameter)),
        (&[0, 11, 0, 3, 2, 1, 2], Some(Fatal::IllegalParameter)),
        (&[0, 11, 0, 1, 0], Some(Fatal::IllegalParameter)),
        (&[0, 11, 0, 0], Some(Fatal::IllegalParameter)),
    ] {
        assert_eq!(answered(certificate(1), &[formats]), expected, "{formats:?}");
    }
}

#[test]
fn no_type_of_certificate_in_common_is_told_from_no_suite_in_common() {
    let raw = || Badge::raw(1);
    let required = |server: Badge| server.asking(ClientAuthentication::Required);
    for (client, server, suites, alert) in [
        // The client takes X.509 alone, or raw keys alone.
        (certificate(1), Badge::raw(2), ECDSA_GCM, 43),
        (raw(), certificate(2), ECDSA_GCM, 43),
        // The server wants a certificate of the type that the client does not have.
        (Badge { peer_types: vec![CertificateType::X509], ..raw() }, required(certificate(2)), ECDSA_GCM, 43),
        (certificate(1), certificate(2), ECDSA_CCM_8, 40),
    ] {
        let mut world = world(7, suites, client, server);
        world.server.offer(ECDSA_GCM);
        world.connect();
        world.run(Duration::from_secs(5));
        let closed = world.client.closed;
        assert!(matches!(closed, Some(Fatal::Alert(told)) if told.0 == alert), "{closed:?}, not {alert}");
    }
}

#[test]
fn a_signature_of_a_scheme_that_was_not_asked_for_is_an_illegal_parameter() {
    // ecdsa_secp384r1_sha384, ed25519, ecdsa_sha1
    for scheme in [[5, 3], [8, 7], [2, 3]] {
        let (mut world, mut puppet, client) = by_hand();
        for record in [puppet.next_message(CERTIFICATE, &shown(&client)), puppet.share()] {
            puppet.send(&mut world, &record);
        }
        let verify = puppet.next_message(CERTIFICATE_VERIFY, &[&scheme[..], &[0, 2, 0x30, 0]].concat());
        puppet.send(&mut world, &verify);
        assert_eq!(world.server.closed, Some(Fatal::IllegalParameter));
    }
}

#[test]
fn a_server_name_in_an_answer_does_not_parse() {
    let client = || Badge { server_name: b"gateway.example".to_vec(), ..certificate(1) };
    assert_eq!(answered(client(), &[&[0, 0, 0, 0]]), None);
    assert_eq!(answered(client(), &[&[0, 0, 0, 2, 0, 0]]), Some(Fatal::Decode));
    assert_eq!(answered(certificate(1), &[&[0, 0, 0, 0]]), Some(Fatal::UnsupportedExtension));
}

#[test]
fn a_server_that_answers_an_extension_twice_is_refused() {
    let formats: &[u8] = &[0, 11, 0, 2, 1, 0];
    assert_eq!(answered(certificate(1), &[formats]), None);
    assert_eq!(answered(certificate(1), &[formats, formats]), Some(Fatal::Decode));
}

/// Returns true if a plaintext record of the datagram begins with a fragment of a message of this kind.
fn has(datagram: &[u8], kind: u8) -> bool {
    records(datagram).iter().any(|(content, number, body)| (*content, number >> 48, body[0]) == (HANDSHAKE, 0, kind))
}

/// The key of a client can be in slow hardware, so the client does not use the key in a handshake that fails early.
#[test]
fn a_client_signs_only_after_the_whole_flight_of_its_server() {
    for lost in [SERVER_HELLO, CERTIFICATE, SERVER_KEY_EXCHANGE, CERTIFICATE_REQUEST, SERVER_HELLO_DONE] {
        let (client, server) = mutual(certificate);
        let mut world = world(7, ECDSA_CCM_8, client, server);
        world.server.limit_mtu(200);
        world.network = Box::new(move |_, datagram| if has(datagram, lost) { Fate::LOST } else { Fate::arrives() });
        world.connect();
        world.run(Duration::from_secs(10));
        assert!(world.sent.iter().any(|(is_clients, datagram)| !is_clients && has(datagram, lost)));
        assert_eq!(world.client.signatures, 0, "without message {lost}");
        world.network = Box::new(|_, _| Fate::arrives());
        world.run(Duration::from_secs(50));
        assert!(world.client.established && world.server.established, "message {lost}");
        assert_eq!(world.client.signatures, 1);
    }
}

#[test]
fn a_repeated_flight_has_the_signature_of_the_first() {
    for (lost, client_repeats) in [(SERVER_KEY_EXCHANGE, false), (CERTIFICATE_VERIFY, true)] {
        let (client, server) = mutual(certificate);
        let mut world = world(7, ECDSA_CCM_8, client, server);
        let mut losses = 0;
        world.network = Box::new(move |_, datagram| {
            let is_lost = losses < 2 && has(datagram, lost);
            losses += usize::from(is_lost);
            if is_lost { Fate::LOST } else { Fate::arrives() }
        });
        world.connect();
        world.run(Duration::from_secs(50));
        assert!(world.client.established && world.server.established, "message {lost}");
        let sent =
            world.sent.iter().filter(|(is_clients, datagram)| *is_clients == client_repeats && has(datagram, lost));
        assert_eq!(sent.count(), 3, "message {lost}");
        assert_eq!((world.client.signatures, world.server.signatures), (1, 1), "message {lost}");
    }
}

#[test]
fn no_suite_without_authentication_is_agreed_on() {
    for number in 0..=u16::MAX {
        let suite = CipherSuite(number);
        let is_known = suite.channel(false, &[0; 256], true).is_some();
        let authenticates = suite.has_certificate() || suite.name().contains("PSK_WITH");
        assert_eq!(is_known, authenticates, "{suite:?}");
    }
    // TLS_NULL_WITH_NULL_NULL, TLS_DH_anon_WITH_AES_128_CBC_SHA256 and TLS_ECDH_anon_WITH_AES_128_CBC_SHA.
    for suite in [[0, 0], [0, 0x6c], [0xc0, 0x18]] {
        let mut world = world(1, Suites::ALL, Badge::default(), certificate(2));
        let mut puppet = Puppet::new(1000);
        puppet.suite = suite;
        puppet.tail = [&[0, 16][..], &GROUPS, &SCHEMES].concat();
        let hello = puppet.hello_with_cookie(&mut world);
        assert_eq!(last_alert(&puppet.send(&mut world, &hello)), Some((2, 40)), "{suite:02x?}");
    }
}
