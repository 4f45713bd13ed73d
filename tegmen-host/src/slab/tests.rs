use super::*;
use crate::provider::HostCrypto;
use tegmen::address::Address;
use tegmen::cx::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::{Answer, Both, Config, Need, Records};
use tegmen::endpoint::{Endpoint, Event};

fn path(remote: u32) -> Path {
    let at = |number: u32| Address { ip: u128::from(number).to_be_bytes(), port: 5684, scope: 0 };
    Path { local: at(0), remote: at(remote) }
}

fn insert(table: &mut Slab<u64>, path: &Path) -> PeerId {
    let (rank, phase, is_session) = (Rank::Authenticated, Phase::Established, true);
    table.insert(&NewPeer { path, rank, phase, is_session, with_handshake: false }).unwrap().id
}

#[test]
fn ids_cost_nothing_where_there_are_none() {
    // Three lines of the cache, as without.
    assert_eq!((size_of::<Entry<u64>>(), size_of::<(u32, ConnectionIds)>()), (192, 72));
    let table = Slab::<u64>::new(Capacity::default());
    assert_eq!(table.ids.capacity(), 0);
}

#[test]
fn a_session_is_found_by_its_id_and_by_the_path_that_it_moved_to() {
    // Miri is slow.
    let count = if cfg!(miri) { 100 } else { 2000 };
    let mut table = Slab::<u64>::new(Capacity::default());
    let mut all = Vec::new();
    for number in 1..=count {
        let id = insert(&mut table, &path(number));
        let ids = ConnectionIds::new(&number.to_be_bytes(), &[], true).unwrap();
        assert!(table.set_connection_ids(id, Some(ids)));
        all.push((number, id, ids));
    }
    for (number, id, ids) in &all {
        assert_eq!(table.find_connection_id(ids.ours()), Some(*id));
        table.set_path(*id, &path(number + 10_000));
        assert_eq!(table.find(&path(*number), Phase::Established), None);
        assert_eq!(table.find(&path(number + 10_000), Phase::Established), Some(*id));
    }
    // Half of them go, and others take their places.
    for (_, id, ids) in all.iter().step_by(2) {
        table.remove(*id);
        assert_eq!(table.find_connection_id(ids.ours()), None);
    }
    for number in 1..=count / 2 {
        let id = insert(&mut table, &path(number));
        assert!(table.connection_ids(id).is_none());
    }
    for (_, id, ids) in all.iter().skip(1).step_by(2) {
        assert_eq!(table.find_connection_id(ids.ours()), Some(*id));
        assert_eq!(table.connection_ids(*id).map(|found| found.ours().to_vec()), Some(ids.ours().to_vec()));
    }
}

/// Begins handshakes with unauthenticated peers at ports of the address `10.0.NETWORK.1`. Returns the peers for which
/// the table had a place.
fn knock(table: &mut Slab<u64>, network: u8, hosts: std::ops::Range<u16>) -> Vec<PeerId> {
    let at = |ip: [u8; 4], port| Address::from(std::net::SocketAddr::from((ip, port)));
    let opened = hosts.map(|port| {
        let path = Path { local: at([127, 0, 0, 1], 5684), remote: at([10, 0, network, 1], port) };
        let (phase, is_session) = (Phase::Handshaking, true);
        table.insert(&NewPeer { path: &path, rank: Rank::Stranger, phase, is_session, with_handshake: true })
    });
    opened.filter_map(Result::ok).map(|inserted| inserted.id).collect()
}

/// Sets the time of the table.
fn at(table: &mut Slab<u64>, millis: u64) {
    assert_eq!(table.take_due(Instant::from_micros(millis * 1000)), None);
}

fn alive(table: &Slab<u64>, ids: &[PeerId]) -> usize {
    ids.iter().filter(|id| table.entry(**id).is_some()).count()
}

#[test]
fn a_burst_of_handshakes_takes_no_place_from_one_that_is_under_way() {
    let mut table = Slab::<u64>::new(Capacity { peers: 1000, handshakes: 64 });
    at(&mut table, 10_000);
    let first = knock(&mut table, 1, 0..64);
    at(&mut table, 11_500);
    let late: Vec<_> = (2..50).flat_map(|network| knock(&mut table, network, 0..20)).collect();
    assert_eq!((alive(&table, &first), late.len()), (64, 0));
    // Places are free as soon as handshakes end.
    first.iter().take(10).for_each(|id| table.remove(*id));
    assert_eq!(knock(&mut table, 2, 0..20).len(), 10);
}

#[test]
fn strangers_of_one_network_who_say_nothing_make_room_for_others_first() {
    let mut table = Slab::<u64>::new(Capacity { peers: 1000, handshakes: 64 });
    at(&mut table, 10_000);
    let silent = knock(&mut table, 1, 0..60);
    let few = knock(&mut table, 2, 0..4);
    at(&mut table, 13_000);
    assert_eq!(knock(&mut table, 1, 100..200).len(), 0, "the network that has the most places gets no more");
    assert_eq!(knock(&mut table, 3, 0..20).len(), 20);
    assert_eq!((alive(&table, &silent), alive(&table, &few)), (40, 4));
}

#[test]
fn nobody_who_says_nothing_keeps_a_place_for_long_where_all_are_taken() {
    let mut table = Slab::<u64>::new(Capacity { peers: 1000, handshakes: 64 });
    at(&mut table, 10_000);
    let silent: Vec<_> = (0..64).flat_map(|network| knock(&mut table, network, 0..1)).collect();
    at(&mut table, 30_000);
    assert_eq!(knock(&mut table, 1, 10..30).len(), 20, "although this network has a place, as each other");
    assert_eq!(alive(&table, &silent), 44);
}

#[test]
fn a_full_table_displaces_no_handshake_that_is_under_way() {
    let mut table = Slab::<u64>::new(Capacity { peers: 64, handshakes: 64 });
    at(&mut table, 10_000);
    let first = knock(&mut table, 1, 0..64);
    assert_eq!(knock(&mut table, 2, 0..20).len(), 0);
    assert_eq!(alive(&table, &first), 64);
}

#[test]
fn a_completed_handshake_leaves_its_buffer_to_later_ones() {
    let mut table = Slab::<u64>::new(Capacity::default());
    let buffers = |table: &Slab<u64>| table.handshakes.iter().flatten().filter(|one| one.incoming.is_some()).count();
    let completed = knock(&mut table, 1, 0..2 * SPARE as u16);
    let bytes = table.bytes();
    completed.iter().for_each(|id| table.set_phase(*id, Phase::Established));
    assert_eq!((table.handshakes(), buffers(&table), table.spare.len()), (completed.len(), 0, SPARE));
    assert!(table.bytes() < bytes - SPARE * INCOMING / 2);
    // Their last flights may have to be sent again.
    assert!(completed.iter().all(|id| table.handshake(*id).is_some()));
    knock(&mut table, 2, 0..1);
    assert_eq!((buffers(&table), table.spare.len()), (1, SPARE - 1));
}

#[test]
fn an_ended_handshake_leaves_its_memory_without_its_content_to_later_ones() {
    let mut table = Slab::<u64>::new(Capacity::default());
    let ended = knock(&mut table, 1, 0..SPARE as u16 + 1);
    for slot in table.handshakes.iter_mut().flatten() {
        // An item at the end of the buffer: one byte, then its length, then its kind.
        let [.., byte, _, len, kind] = &mut slot.outgoing;
        (*byte, *len, *kind) = (0x5a, 1, 1);
    }
    let bytes = table.bytes();
    ended.iter().for_each(|id| table.remove(*id));
    assert_eq!((table.handshakes(), table.spare_slots.len(), table.spare.len()), (0, SPARE, SPARE));
    assert!(table.bytes() < bytes);
    let all: Vec<_> = table.spare_slots.iter().map(|slot| &raw const **slot).collect();
    let later = knock(&mut table, 2, 0..SPARE as u16);
    assert_eq!((table.handshakes(), table.spare_slots.len(), table.spare.len()), (SPARE, 0, 0));
    let again = table.handshakes.iter().flatten().filter(|slot| all.contains(&(&raw const ***slot)));
    assert_eq!(again.count(), SPARE, "no other memory is used");
    assert!(later.iter().all(|id| table.handshake(*id).is_some()));
    let mut slots = table.handshakes.iter().flatten();
    assert!(slots.all(|slot| slot.outgoing == [0; OUTGOING] && !slot.state.is_lingering()));
}

/// Makes a session on a separate path. The principal of the session has just been authenticated with this rank.
fn establish(endpoint: &mut Slab<u64>, number: u32, rank: Rank) -> PeerId {
    let (path, phase, is_session) = (&path(number), Phase::Handshaking, true);
    let id = endpoint.insert(&NewPeer { path, rank, phase, is_session, with_handshake: true }).unwrap().id;
    endpoint.release_handshake(id);
    endpoint.set_phase(id, Phase::Established);
    id
}

#[test]
fn a_full_table_takes_a_session_of_the_principal_that_has_most() {
    let mut table = Slab::<u64>::new(Capacity { peers: 8, handshakes: 4 });
    let plain = NewPeer {
        path: &path(1000),
        rank: Rank::Stranger,
        phase: Phase::Established,
        is_session: false,
        with_handshake: false,
    };
    for number in 0..6 {
        establish(&mut table, number, Rank::Authenticated);
    }
    let stranger = table.insert(&plain).unwrap().id;
    establish(&mut table, 6, Rank::Authenticated);
    assert_eq!((table.len(), table.take_displaced()), (8, 0));
    // An unauthenticated peer is removed first. After that, no unauthenticated peer displaces an authenticated one.
    establish(&mut table, 7, Rank::Authenticated);
    assert!(table.peer(stranger).is_none());
    assert_eq!((table.len(), table.take_displaced()), (8, 1));
    assert!(table.insert(&plain).is_err());
    let waits = table.insert(&NewPeer { phase: Phase::Handshaking, with_handshake: true, path: &path(2000), ..plain });
    assert!(waits.is_ok(), "who shakes hands takes nobody's place");
    let newest = establish(&mut table, 8, Rank::Authenticated);
    assert!(table.peer(newest).is_some());
    assert_eq!((table.len(), table.take_displaced()), (9, 1));
    table.remove(waits.unwrap().id);
    assert_eq!((table.len(), table.handshaking), (8, 0));
}

thread_local! {
    /// The total number of entries that all calls of [`Slab::trim`] have examined.
    pub(super) static EXAMINED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

#[test]
fn a_new_peer_in_clear_costs_the_same_however_many_there_are() {
    let mut table = Slab::<u64>::new(Capacity { peers: 10_000, handshakes: 64 });
    EXAMINED.set(0);
    for number in 0..30_000 {
        let path = &path(number);
        let (rank, phase, is_session) = (Rank::Stranger, Phase::Established, false);
        let inserted = table.insert(&NewPeer { path, rank, phase, is_session, with_handshake: false }).unwrap();
        // A third of the peers end.
        if number % 3 == 0 {
            table.remove(inserted.id);
        }
    }
    assert!(EXAMINED.get() <= 4 * 30_000, "{} entries were examined", EXAMINED.get());
}

/// An endpoint with a pre-shared key.
struct Node {
    endpoint: Endpoint<Slab<u64>, Both>,
    crypto: HostCrypto,
    counters: Counters,
}

impl Node {
    fn new(handshakes: usize) -> Self {
        let (mut crypto, mut counters) = (HostCrypto::from_os().unwrap(), Counters::default());
        let mut cx = Cx { now: seconds(1), crypto: &mut crypto, counters: &mut counters };
        let endpoint = Endpoint::new(&mut cx, Slab::new(Capacity { peers: 8, handshakes }), Config::default());
        Self { endpoint, crypto, counters }
    }

    fn connect(&mut self, now: Instant, path: &Path) -> Vec<Vec<u8>> {
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        self.endpoint.connect(&mut cx, path).unwrap();
        self.due(now)
    }

    /// Gives these datagrams to this node. Returns the answers, and all other datagrams that the node has to send at
    /// the time `now`.
    fn turn(&mut self, now: Instant, path: &Path, datagrams: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let mut sent = self.hear(now, path, datagrams);
        sent.extend(self.due(now));
        sent
    }

    /// Returns the datagrams that this node has to send at the time `now`.
    fn due(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let (mut out, mut sent) = ([0; 1500], Vec::new());
        loop {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            match self.endpoint.poll(&mut cx, &mut out) {
                None => return sent,
                Some(Event::Transmit { len, .. }) => sent.push(out[..len.into()].to_vec()),
                Some(_) => {}
            }
        }
    }

    /// Gives these datagrams to this node. Returns only the answers, and not the other datagrams that the node has to
    /// send at the time `now`.
    fn hear(&mut self, now: Instant, path: &Path, datagrams: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let (mut out, mut sent) = ([0; 1500], Vec::new());
        for mut datagram in datagrams {
            let mut records = Records::new(&mut datagram);
            loop {
                let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                let needs = match self.endpoint.handle(&mut cx, path, &mut records, &mut out) {
                    None => break,
                    Some(Event::Answer { len } | Event::Transmit { len, .. }) => {
                        sent.push(out[..len.into()].to_vec());
                        None
                    }
                    Some(Event::Need(peer)) => Some(peer),
                    Some(_) => None,
                };
                let Some(peer) = needs else { continue };
                let (identity, key, principal) = (&b"sensor"[..], &b"sixteen bytes it"[..], Principal(1));
                let answer = match self.endpoint.need(peer) {
                    Some(Need::PskForServer { .. }) => Answer::Psk { identity, key, principal },
                    _ => Answer::Psk { identity: b"", key, principal },
                };
                let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
                self.endpoint.resume(&mut cx, peer, answer);
            }
        }
        sent
    }
}

fn seconds(seconds: u64) -> Instant {
    Instant::from_micros(seconds * 1_000_000)
}

/// Converts a path of the server to the path of the client: exchanges the local and the remote address.
fn reversed(path: &Path) -> Path {
    Path { local: path.remote, remote: path.local }
}

/// Begins a handshake of the client. Then gives the datagrams of the client to the server, and the answer of the server
/// to the client, `answers` times. Returns the datagrams that the client sends after the last answer.
fn after_answers(client: &mut Node, server: &mut Node, remote: u32, answers: usize) -> Vec<Vec<u8>> {
    let (now, at_server) = (seconds(100), path(remote));
    let mut sent = client.connect(now, &reversed(&at_server));
    for _ in 0..answers {
        let answer = server.turn(now, &at_server, sent);
        sent = client.turn(now, &reversed(&at_server), answer);
    }
    sent
}

#[test]
fn a_full_table_sends_a_last_flight_before_its_place_is_free() {
    let (mut server, mut first, mut second) = (Node::new(1), Node::new(1), Node::new(1));
    let now = seconds(100);
    let hello = after_answers(&mut second, &mut server, 2, 1);
    let finished = after_answers(&mut first, &mut server, 1, 2);
    // Both come in one batch: the server's last flight is due, and a ClientHello finds no place.
    server.hear(now, &path(1), finished);
    assert_eq!(server.counters.established, 1);
    server.hear(now, &path(2), hello.clone());
    let last_flight = server.due(now);
    first.hear(now, &reversed(&path(1)), last_flight);
    assert_eq!((first.counters.established, server.counters.table_full), (1, 1));
    // Once the flight is sent, the place is free for the next ClientHello.
    assert!(!server.turn(now, &path(2), hello).is_empty());
    assert_eq!(server.counters.table_full, 1);
}
