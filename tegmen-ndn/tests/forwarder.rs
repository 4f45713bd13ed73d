//! Tests of forwarders whose tables are in arrays, and of networks of these forwarders on a fake clock.

mod network;

use network::{Kind, Network, Sent, TestPit, name};
use tegmen_base::crypto::RustCrypto;
use tegmen_base::time::{Duration, Instant};
use tegmen_ndn::fixed::{FixedPit, FixedStore, Routes};
use tegmen_ndn::forwarder::{Dropped, Forwarder, Outcome, Times};
use tegmen_ndn::lp::NackReason;
use tegmen_ndn::tables::{FaceId, NextHop, Store as _};
use tegmen_ndn::{Interest, Name, ReceivedData};

const fn hop(face: u16, cost: u16) -> NextHop {
    NextHop { face: FaceId(face), cost }
}

const NO_TIMES: Times = Times {
    longest_lifetime: Duration::from_secs(60),
    suppression: Duration::from_millis(10),
    retransmission: Duration::from_millis(100),
    retransmissions: 0,
};

/// A forwarder with these routes.
struct One {
    forwarder: Forwarder<Routes<'static>, TestPit, FixedStore<4, 300>>,
    now: Instant,
    /// Faces of applications of the same host.
    local: Vec<FaceId>,
}

impl One {
    fn new(routes: &[(&str, &[NextHop])], multicast: &[&str]) -> Self {
        let leak = |text: &str| Name::of_checked(Vec::leak(name(text)));
        let routes: Vec<_> = routes.iter().map(|(prefix, hops)| (leak(prefix), &*Vec::leak(hops.to_vec()))).collect();
        let multicast: Vec<_> = multicast.iter().map(|prefix| leak(prefix)).collect();
        let fib = Routes { routes: Vec::leak(routes), multicast: Vec::leak(multicast) };
        let forwarder =
            Forwarder { fib, pit: TestPit::default(), store: FixedStore::default(), times: NO_TIMES, random: 1 };
        Self { forwarder, now: Instant::from_micros(1 << 50), local: Vec::new() }
    }

    fn wait(&mut self, millis: u64) -> Vec<Sent> {
        self.now = self.now.after(Duration::from_millis(millis));
        let mut faces = network::Outbox { local: &self.local, sent: Vec::new() };
        self.forwarder.on_timeout(self.now, &mut [0; 500], &mut faces);
        faces.sent
    }

    fn ask_with(&mut self, from: u16, interest: &Interest<'_>) -> (Result<Outcome, Dropped>, Vec<Sent>) {
        let mut packet = network::interest(interest);
        let mut faces = network::Outbox { local: &self.local, sent: Vec::new() };
        let outcome = self.forwarder.on_interest::<RustCrypto>(self.now, FaceId(from), &mut packet, (), &mut faces);
        (outcome, faces.sent)
    }

    fn ask(&mut self, from: u16, text: &str, nonce: u8) -> (Result<Outcome, Dropped>, Vec<Sent>) {
        let name = name(text);
        let interest = Interest { name: Name::of_checked(&name), nonce: Some([nonce; 4]), ..Interest::default() };
        self.ask_with(from, &interest)
    }

    fn answer(&mut self, from: u16, packet: &[u8]) -> (Result<Outcome, Dropped>, Vec<Sent>) {
        let mut faces = network::Outbox { local: &self.local, sent: Vec::new() };
        let outcome = self.forwarder.on_data::<RustCrypto>(self.now, FaceId(from), packet, &mut |_| true, &mut faces);
        (outcome, faces.sent)
    }

    fn nack(&mut self, from: u16, packet: &[u8], reason: NackReason) -> (Result<Outcome, Dropped>, Vec<Sent>) {
        let mut faces = network::Outbox { local: &self.local, sent: Vec::new() };
        let outcome = self.forwarder.on_nack(self.now, FaceId(from), packet, reason, &mut faces);
        (outcome, faces.sent)
    }
}

fn kinds(sent: &[Sent]) -> Vec<(u16, Kind)> {
    sent.iter().map(|sent| (sent.to.0, sent.kind)).collect()
}

fn data(text: &str, content: &[u8]) -> Vec<u8> {
    network::data(text, content, None)
}

#[test]
fn an_interest_takes_the_longest_prefix_and_its_data_packet_returns() {
    let mut one = One::new(&[("/", &[hop(9, 0)]), ("/house", &[hop(7, 5), hop(8, 2)])], &[]);
    let (outcome, sent) = one.ask(1, "/house/temp", 1);
    assert_eq!((outcome, kinds(&sent)), (Ok(Outcome::Forwarded), vec![(8, Kind::Interest)]));
    let packet = data("/house/temp", b"21");
    let (outcome, sent) = one.answer(8, &packet);
    assert_eq!((outcome, kinds(&sent)), (Ok(Outcome::Returned), vec![(1, Kind::Data)]));
    assert_eq!(sent[0].packet, packet);
    assert!(one.forwarder.pit.0.is_empty());
    assert_eq!(kinds(&one.ask(1, "/garden", 2).1), [(9, Kind::Interest)]);
}

#[test]
fn equal_interests_are_aggregated() {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    assert_eq!(one.ask(1, "/a", 1).0, Ok(Outcome::Forwarded));
    // Also behind the suppression time.
    for (face, nonce) in [(2, 2), (4, 4)] {
        let (outcome, sent) = one.ask(face, "/a", nonce);
        assert_eq!((outcome, kinds(&sent)), (Ok(Outcome::Waits), vec![]));
        one.wait(100);
    }
    // An Interest for a prefix is another one.
    let bytes = name("/a");
    let prefix =
        Interest { name: Name::of_checked(&bytes), can_be_prefix: true, nonce: Some([3; 4]), ..Interest::default() };
    assert_eq!(one.ask_with(3, &prefix).0, Ok(Outcome::Forwarded));
    let (_, sent) = one.answer(9, &data("/a", b"x"));
    let mut sent = kinds(&sent);
    sent.sort_unstable();
    assert_eq!(sent, [(1, Kind::Data), (2, Kind::Data), (3, Kind::Data), (4, Kind::Data)]);
    assert!(one.forwarder.pit.0.is_empty());
}

#[test]
fn a_repeated_interest_tries_the_other_next_hop_and_then_the_first_again() {
    let mut one = One::new(&[("/", &[hop(8, 1), hop(9, 2)])], &[]);
    let mut asked = Vec::new();
    for nonce in 1..=4 {
        asked.extend(kinds(&one.ask(1, "/a", nonce).1));
        // Within the suppression time nothing is sent.
        assert_eq!(kinds(&one.ask(1, "/a", nonce + 10).1), []);
        one.wait(20);
    }
    assert_eq!(asked, [8, 9, 8, 9].map(|face| (face, Kind::Interest)));
}

#[test]
fn multicast_sends_to_all_next_hops_but_the_one_that_asks() {
    let mut one = One::new(&[("/", &[hop(7, 0), hop(8, 0), hop(9, 0)])], &["/all"]);
    assert_eq!(kinds(&one.ask(8, "/all/a", 1).1), [(7, Kind::Interest), (9, Kind::Interest)]);
    assert_eq!(kinds(&one.ask(8, "/one/a", 1).1), [(7, Kind::Interest)]);
}

#[test]
fn an_interest_without_a_next_hop_is_answered_by_a_nack() {
    let mut one = One::new(&[("/a", &[hop(1, 0)])], &[]);
    for (from, text) in [(1, "/a"), (1, "/b")] {
        let (outcome, sent) = one.ask(from, text, 1);
        assert_eq!((outcome, kinds(&sent)), (Err(Dropped::NoRoute), vec![(1, Kind::Nack(NackReason::NO_ROUTE))]));
    }
    assert!(one.forwarder.pit.0.is_empty());
}

#[test]
fn a_nack_leads_to_the_next_hop_that_was_not_tried_and_at_last_to_the_consumer() {
    let mut one = One::new(&[("/", &[hop(7, 1), hop(8, 2), hop(9, 3)])], &[]);
    let sent = one.ask(1, "/a", 1).1;
    let packet = sent[0].packet.clone();
    assert_eq!(one.nack(8, &packet, NackReason::NO_ROUTE).0, Err(Dropped::UnknownNack), "8 was not asked");
    let (outcome, sent) = one.nack(7, &packet, NackReason::NO_ROUTE);
    assert_eq!((outcome, kinds(&sent)), (Ok(Outcome::Forwarded), vec![(8, Kind::Interest)]));
    one.nack(8, &packet, NackReason::CONGESTION).0.unwrap();
    let (outcome, sent) = one.nack(9, &packet, NackReason::DUPLICATE);
    assert_eq!((outcome, kinds(&sent)), (Ok(Outcome::Returned), vec![(1, Kind::Nack(NackReason::CONGESTION))]));
    assert!(one.forwarder.pit.0.is_empty());
    assert_eq!(one.nack(9, &packet, NackReason::DUPLICATE).0, Err(Dropped::UnknownNack));
}

#[test]
fn the_content_store_answers_with_fresh_packets_alone_where_they_must_be() {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    one.ask(1, "/a/v=1", 1).0.unwrap();
    one.answer(9, &network::data("/a/v=1", b"x", Some(1000))).0.unwrap();
    let (outcome, sent) = one.ask(2, "/a/v=1", 2);
    assert_eq!((outcome, kinds(&sent)), (Ok(Outcome::Stored), vec![(2, Kind::Data)]));
    let bytes = name("/a");
    let prefix =
        Interest { name: Name::of_checked(&bytes), can_be_prefix: true, nonce: Some([3; 4]), ..Interest::default() };
    assert_eq!(one.ask_with(2, &prefix).0, Ok(Outcome::Stored));
    assert_eq!(one.ask(2, "/a", 4).0, Ok(Outcome::Forwarded), "the name is longer");
    let fresh = Interest { must_be_fresh: true, ..prefix };
    assert_eq!(one.ask_with(2, &fresh).0, Ok(Outcome::Stored));
    one.wait(1010);
    assert_eq!(one.ask_with(2, &prefix).0, Ok(Outcome::Stored));
    assert_eq!(one.ask_with(2, &fresh).0, Ok(Outcome::Forwarded));
}

/// A clock of 32 bits in units of 1,024 microseconds cannot compare times that are 25 days apart.
#[test]
fn a_packet_is_not_fresh_again_weeks_after_its_expiry() {
    const DAY: u64 = 86_400_000;
    let begin = Instant::from_micros(1 << 50);
    let is_found = |freshness: u64, millis: u64| {
        let mut store = FixedStore::<1, 300>::default();
        let packet = network::data("/a", b"x", Some(freshness));
        store.insert(begin, &ReceivedData::parse(&packet).unwrap());
        let bytes = name("/a");
        let fresh = Interest { name: Name::of_checked(&bytes), must_be_fresh: true, ..Interest::default() };
        store.find(begin.after(Duration::from_millis(millis)), &fresh).is_some()
    };
    assert!(is_found(1000, 0) && is_found(1000, 999) && !is_found(1000, 1000));
    assert!(is_found(24 * DAY, 24 * DAY - 1) && !is_found(24 * DAY, 24 * DAY + 1));
    for days in [1, 24, 25, 26, 40, 50, 52, 400] {
        assert!(!is_found(1000, days * DAY), "{days} days");
        assert!(days < 26 || !is_found(u64::MAX, days * DAY), "{days} days");
    }
}

#[test]
fn the_packet_that_was_not_used_for_the_longest_time_leaves_the_store() {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    let mut nonce = 0;
    let mut ask = |one: &mut One, text: &str| {
        nonce += 1;
        let outcome = one.ask(1, text, nonce).0;
        if outcome == Ok(Outcome::Forwarded) {
            one.answer(9, &data(text, b"x")).0.unwrap();
        }
        outcome
    };
    for text in ["/a", "/b", "/c", "/d"] {
        assert_eq!(ask(&mut one, text), Ok(Outcome::Forwarded));
    }
    assert_eq!(ask(&mut one, "/a"), Ok(Outcome::Stored));
    assert_eq!(ask(&mut one, "/e"), Ok(Outcome::Forwarded));
    assert_eq!(ask(&mut one, "/a"), Ok(Outcome::Stored));
    assert_eq!(ask(&mut one, "/b"), Ok(Outcome::Forwarded));
}

#[test]
fn a_data_packet_that_was_not_asked_of_its_face_is_neither_stored_nor_passed_on() {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    let poison = data("/a", b"poison");
    assert_eq!(one.answer(9, &poison).0, Err(Dropped::Unsolicited));
    one.ask(1, "/a", 1).0.unwrap();
    for from in [1, 2] {
        assert_eq!(one.answer(from, &poison).0, Err(Dropped::Unsolicited), "face {from}");
    }
    assert_eq!(one.answer(9, &data("/b", b"")).0, Err(Dropped::Unsolicited));
    assert_eq!(kinds(&one.answer(9, &data("/a", b"x")).1), [(1, Kind::Data)]);
    let (_, sent) = one.ask(2, "/a", 2);
    assert_eq!(sent[0].packet, data("/a", b"x"));
}

#[test]
fn a_pit_that_does_not_compare_faces_lets_a_neighbour_poison_the_store() {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    one.forwarder.pit.1.any_face = true;
    one.ask(1, "/a", 1).0.unwrap();
    assert_eq!(one.answer(2, &data("/a", b"poison")).0, Ok(Outcome::Returned));
}

#[test]
fn a_data_packet_with_a_refused_signature_is_neither_stored_nor_passed_on() {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    one.ask(1, "/a", 1).0.unwrap();
    let packet = data("/a", b"x");
    let mut faces = network::Outbox { local: &[], sent: Vec::new() };
    let outcome = one.forwarder.on_data::<RustCrypto>(one.now, FaceId(9), &packet, &mut |_| false, &mut faces);
    assert_eq!((outcome, faces.sent.len()), (Err(Dropped::NotAuthentic), 0));
    assert_eq!(one.ask(2, "/a", 2).0, Ok(Outcome::Waits), "it is not stored");
    assert_eq!(kinds(&one.answer(9, &packet).1).len(), 2);
}

#[test]
fn an_interest_for_a_digest_is_answered_by_that_packet_alone() {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    let (wanted, other) = (data("/a", b"x"), data("/a", b"y"));
    let digest = tegmen_base::crypto::digest::<RustCrypto, 32>(&[&wanted]);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    one.ask(1, &format!("/a/sha256digest={digits}"), 1).0.unwrap();
    assert_eq!(one.answer(9, &other).0, Err(Dropped::Unsolicited));
    assert_eq!(one.answer(9, &wanted).0, Ok(Outcome::Returned));
}

#[test]
fn the_hop_limit_is_counted_down_and_ends_an_interest() {
    let mut one = One::new(&[("/", &[hop(8, 0), hop(9, 1)])], &[]);
    one.local = vec![FaceId(9)];
    let bytes = name("/a");
    let limited = |hops| Interest {
        name: Name::of_checked(&bytes),
        hop_limit: Some(hops),
        nonce: Some([hops; 4]),
        ..Interest::default()
    };
    assert_eq!(one.ask_with(1, &limited(0)).0, Err(Dropped::HopLimit));
    let (_, sent) = one.ask_with(1, &limited(5));
    let forwarded = tegmen_ndn::ReceivedInterest::parse(&sent[0].packet).unwrap();
    assert_eq!((sent[0].to, forwarded.interest.hop_limit), (FaceId(8), Some(4)));
    one.answer(8, &data("/a", b"")).0.unwrap();
    one.forwarder.store = FixedStore::default();
    let (_, sent) = one.ask_with(1, &limited(1));
    assert_eq!(kinds(&sent), [(9, Kind::Interest)], "the last hop is an application");
}

#[test]
fn names_under_localhost_stay_on_the_host() {
    let mut one = One::new(&[("/", &[hop(8, 0), hop(9, 1)])], &[]);
    one.local = vec![FaceId(9), FaceId(10)];
    assert_eq!(one.ask(1, "/localhost/a", 1).0, Err(Dropped::Scope));
    assert_eq!(kinds(&one.ask(10, "/localhost/a", 1).1), [(9, Kind::Interest)]);
    assert_eq!(one.answer(8, &data("/localhost/a", b"")).0, Err(Dropped::Scope));
    assert_eq!(kinds(&one.answer(9, &data("/localhost/a", b"")).1), [(10, Kind::Data)]);
}

#[test]
fn names_under_localhop_pass_one_link() {
    let mut one = One::new(&[("/", &[hop(8, 0), hop(9, 1)])], &[]);
    one.local = vec![FaceId(9), FaceId(10)];
    assert_eq!(kinds(&one.ask(1, "/localhop/a", 1).1), [(9, Kind::Interest)]);
    assert_eq!(kinds(&one.ask(10, "/localhop/b", 2).1), [(8, Kind::Interest)]);
    one.forwarder.fib.routes = &[];
    assert_eq!(one.ask(1, "/localhop/c", 3).0, Err(Dropped::NoRoute));
}

#[test]
fn an_interest_ends_after_its_lifetime() {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    let bytes = name("/a");
    let interest =
        Interest { name: Name::of_checked(&bytes), lifetime: Some(500), nonce: Some([1; 4]), ..Interest::default() };
    one.ask_with(1, &interest).0.unwrap();
    one.wait(480);
    assert_eq!(one.forwarder.pit.0.len(), 1);
    one.wait(30);
    assert!(one.forwarder.pit.0.is_empty() && one.forwarder.next_timeout().is_none());
    assert_eq!(one.answer(9, &data("/a", b"x")).0, Err(Dropped::Unsolicited));
    // Its nonce is remembered, so that a copy of it that comes late is a loop.
    let (outcome, sent) = one.ask_with(2, &interest);
    assert_eq!((outcome, kinds(&sent)), (Err(Dropped::Duplicate), vec![(2, Kind::Nack(NackReason::DUPLICATE))]));
}

#[test]
fn an_interest_is_sent_again_with_another_nonce_until_it_is_answered() {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    one.forwarder.times = Times { retransmissions: 2, ..NO_TIMES };
    let first = one.ask(1, "/a", 1).1;
    let mut nonces = vec![network::nonce(&first[0].packet)];
    for expected in [1, 1, 0] {
        assert_eq!(one.wait(50).len(), 0);
        let sent = one.wait(60);
        assert_eq!(sent.len(), expected);
        nonces.extend(sent.iter().map(|sent| network::nonce(&sent.packet)));
    }
    nonces.dedup();
    assert_eq!(nonces.len(), 3);
    assert_eq!(one.answer(9, &data("/a", b"x")).0, Ok(Outcome::Returned));
    assert_eq!(one.wait(1000).len(), 0);
}

#[test]
fn malformed_packets_are_dropped() {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    let bytes = name("/a");
    let without_nonce = Interest { name: Name::of_checked(&bytes), ..Interest::default() };
    assert_eq!(one.ask_with(1, &without_nonce).0, Err(Dropped::Malformed));
    assert_eq!(one.answer(9, b"").0, Err(Dropped::Malformed));
    assert_eq!(one.nack(9, b"\x05\x00", NackReason::NO_ROUTE).0, Err(Dropped::Malformed));
    let mut faces = network::Outbox { local: &[], sent: Vec::new() };
    let outcome = one.forwarder.on_interest::<RustCrypto>(one.now, FaceId(1), &mut [5, 1], (), &mut faces);
    assert_eq!(outcome, Err(Dropped::Malformed));
}

/// Sends an Interest for a name of 8 kilobytes, for which a producer has data. Returns true if the consumer gets an
/// answer: a Nack of a forwarder that stores nothing, or the Data packet.
fn answers_a_long_name(cuts: bool) -> bool {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    one.forwarder.pit.1.cuts = cuts;
    let long = "/abcd".repeat(8 * 1024 / 6);
    let (outcome, sent) = one.ask(1, &long, 1);
    let refused = (outcome, kinds(&sent)) == (Err(Dropped::Full), vec![(1, Kind::Nack(NackReason::CONGESTION))]);
    refused && one.forwarder.pit.0.is_empty() || kinds(&one.answer(9, &data(&long, b"x")).1) == [(1, Kind::Data)]
}

#[test]
fn a_name_of_8_kilobytes_has_no_place_on_a_device() {
    assert!(answers_a_long_name(false));
}

#[test]
fn a_pit_that_cuts_a_name_of_8_kilobytes_leaves_its_consumer_without_an_answer() {
    assert!(!answers_a_long_name(true));
}

/// Lets two consumers request different names with the same nonce. Returns true if each consumer gets its answer.
fn survives_colliding_nonces(nonces_alone: bool) -> bool {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    one.forwarder.pit.1.nonces_alone = nonces_alone;
    let both = [(1, "/a"), (2, "/b")].map(|(face, name)| one.ask(face, name, 7).0 == Ok(Outcome::Forwarded));
    let answered = ["/a", "/b"].map(|name| one.answer(9, &data(name, b"x")).0 == Ok(Outcome::Returned));
    both == [true; 2] && answered == [true; 2]
}

#[test]
fn colliding_nonces_of_two_names_are_no_loop() {
    assert!(survives_colliding_nonces(false));
    // For the same name they look like a loop: the second consumer gets a Nack, and asks again with another nonce.
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    one.ask(1, "/a", 7).0.unwrap();
    assert_eq!(one.ask(2, "/a", 7).0, Err(Dropped::Duplicate));
    assert_eq!(one.ask(2, "/a", 8).0, Ok(Outcome::Waits));
    assert_eq!(kinds(&one.answer(9, &data("/a", b"x")).1), [(1, Kind::Data), (2, Kind::Data)]);
}

#[test]
fn a_pit_that_compares_nonces_alone_does_not_survive_colliding_ones() {
    assert!(!survives_colliding_nonces(true));
}

/// Lets one face send many Interests for names that do not exist. Returns true if another face still gets its answer.
fn survives_a_flood(every_place: bool) -> bool {
    let mut one = One::new(&[("/", &[hop(9, 0)])], &[]);
    one.forwarder.pit.1.every_place = every_place;
    for number in 0..200u8 {
        let _ = one.ask(1, &format!("/none/{number}"), number);
        one.wait(15);
        assert!(one.forwarder.pit.0.len() <= 8);
    }
    one.ask(2, "/a", 1).0 == Ok(Outcome::Forwarded) && one.answer(9, &data("/a", b"x")).0 == Ok(Outcome::Returned)
}

#[test]
fn a_flood_of_interests_leaves_places_for_other_faces() {
    assert!(survives_a_flood(false));
}

#[test]
fn a_pit_that_gives_every_place_to_one_face_does_not_survive_a_flood() {
    assert!(!survives_a_flood(true));
}

#[test]
fn two_forwarders_in_a_loop_send_an_interest_twice_at_most() {
    let mut network = Network::ring(2, 0, 1);
    network.ask(0, "/none", 1);
    network.run(Duration::from_secs(10));
    assert!(network.interests <= 2, "{}", network.interests);
    assert_eq!(network.nacks_to_consumers, 1);
}

#[test]
fn forwarders_that_find_no_loop_fill_their_tables_with_one_interest() {
    let mut network = Network::ring(2, 0, 1);
    network.forget_loops();
    network.ask(0, "/none", 1);
    network.run(Duration::from_secs(10));
    assert!(network.interests > 8, "{}", network.interests);
}

#[test]
fn rings_with_losses_stay_bounded_in_1_000_runs() {
    for seed in 0..1_000 {
        let size = 2 + (seed as usize % 4);
        let mut network = Network::ring(size, 20, seed);
        for number in 0..4 {
            network.ask(number % size, &format!("/none/{number}"), number as u8 + 1);
        }
        network.run(Duration::from_secs(60));
        let most = 4 * size * size * 3;
        assert!(network.interests <= most, "seed {seed}: {} Interests", network.interests);
        assert!(network.is_idle(), "seed {seed}: an Interest waits for ever");
    }
}

#[test]
fn a_line_of_forwarders_that_retransmit_delivers_where_others_fail() {
    let delivered = |retransmissions| {
        let (mut delivered, mut asked) = (0, 0);
        for seed in 0..300 {
            let mut network = Network::line(4, 20, seed, retransmissions);
            for number in 0..5 {
                network.ask(0, &format!("/producer/{number}"), number + 1);
                asked += 1;
            }
            network.run(Duration::from_secs(60));
            delivered += network.delivered;
            assert!(network.is_idle(), "seed {seed}");
        }
        (delivered * 100) / asked
    };
    let (without, with) = (delivered(0), delivered(3));
    // An Interest and its Data packet pass 4 links each, of which a frame passes 80 of 100: 17 of 100.
    assert!((5..20).contains(&without), "{without}");
    assert!(with > 3 * without, "{with}");
}

/// The measured entry has space for two faces that wait, for one next hop, and for the timer.
#[test]
fn an_entry_takes_32_bytes_and_its_name() {
    type Entries<const N: usize> = FixedPit<N, 40, 2, 1, 0>;
    assert_eq!(size_of::<Entries<11>>() - size_of::<Entries<1>>(), 10 * (32 + 40));
}
