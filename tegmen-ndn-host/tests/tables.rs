//! The tables of a host give the same answers as the tables in arrays, and do not exceed their maximum sizes.

use std::collections::BTreeSet;
use tegmen_base::buf::Frame;
use tegmen_base::crypto::{DIGEST_LEN, RustCrypto, digest};
use tegmen_base::time::{Duration, Instant};
use tegmen_ndn::fixed::{FixedPit, FixedStore, Routes};
use tegmen_ndn::forwarder::{Faces, Forwarder, Outgoing, Times};
use tegmen_ndn::signature::DigestSha256;
use tegmen_ndn::tables::{FaceId, Fib as _, NextHop, Store as _, Strategy};
use tegmen_ndn::{Data, Interest, MAX_HEAD, Name, ReceivedData, ReceivedInterest};
use tegmen_ndn_host::client::name_bytes;
use tegmen_ndn_host::tables::{HostFib, HostPit, HostStore, Limits, Token};

/// A generator of pseudo-random numbers (SplitMix64), with its state.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    fn name(&mut self) -> Vec<u8> {
        let texts: Vec<String> = (0..=self.below(3)).map(|_| format!("/{}", self.below(3))).collect();
        name_bytes(&texts.concat()).unwrap()
    }
}

#[derive(Default)]
struct Sent(BTreeSet<(u16, u8, Vec<u8>)>);

impl Sent {
    fn names(&self) -> BTreeSet<(u16, String)> {
        let name = |packet: &[u8]| ReceivedInterest::parse(packet).unwrap().interest.name.to_string();
        self.0.iter().map(|(to, _, packet)| (*to, name(packet))).collect()
    }
}

impl<K> Faces<K> for Sent {
    fn is_local(&self, face: FaceId) -> bool {
        face.0 == 4
    }

    fn send(&mut self, to: FaceId, packet: Outgoing<'_, K>) {
        let (kind, packet) = match packet {
            Outgoing::Interest(packet, _) => (0, packet),
            Outgoing::Data(packet, _) => (1, packet),
            Outgoing::Nack(packet, _, _) => (2, packet),
        };
        self.0.insert((to.0, kind, packet.to_vec()));
    }
}

fn data_of(name: &Name<'_>, freshness: u64) -> Vec<u8> {
    let mut storage = [0; 300];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    let data = Data { name: *name, freshness: Some(freshness), content: Some(name.as_bytes()), ..Data::default() };
    data.write(&mut RustCrypto::new([1; 32]), &DigestSha256, &mut frame).unwrap();
    frame.bytes().to_vec()
}

/// Gives the same packets to a forwarder with the tables of a host and to a forwarder with tables in arrays. Both
/// forwarders must send the same packets.
fn both_send_the_same(seed: u64) {
    let mut draw = Draw(seed << 32);
    let hops = [
        NextHop { face: FaceId(2), cost: 1 },
        NextHop { face: FaceId(3), cost: 2 },
        NextHop { face: FaceId(4), cost: 3 },
    ];
    let prefixes = ["/", "/0", "/0/1", "/1/2/0"].map(|text| name_bytes(text).unwrap());
    let lists = [&hops[..1], &hops[..], &hops[1..], &hops[2..]];
    let routes: Vec<_> = prefixes.iter().map(|prefix| Name::of_checked(prefix)).zip(lists).collect();
    let multicast = [Name::of_checked(&prefixes[2])];
    let mut fib = HostFib::default();
    for (prefix, hops) in &routes {
        hops.iter().for_each(|hop| fib.add(prefix, *hop));
    }
    fib.set_strategy(&multicast[0], Some(Strategy::Multicast));
    let times = Times { retransmissions: 1, ..Times::default() };
    let mut arrays = Forwarder {
        fib: Routes { routes: &routes, multicast: &multicast },
        pit: FixedPit::<200, 80, 6, 6, 4096>::default(),
        store: FixedStore::<1, 1>::default(),
        times,
        random: 7,
    };
    let limits = Limits { stored_bytes: 0, ..Limits::default() };
    let mut host = Forwarder { fib, pit: HostPit::new(limits), store: HostStore::new(0), times, random: 7 };
    let mut now = Instant::from_micros(1 << 52);
    for step in 0..300 {
        now = now.after(Duration::from_millis(draw.below(400)));
        let from = FaceId(draw.below(5) as u16);
        let (mut one, mut two) = (Sent::default(), Sent::default());
        arrays.on_timeout(now, &mut [0; 300], &mut one);
        host.on_timeout(now, &mut [0; 300], &mut two);
        // The order of retransmissions of one time differs, and so do their nonces.
        assert_eq!(one.names(), two.names(), "seed {seed}, step {step}: after the timeout");
        (one, two) = (Sent::default(), Sent::default());
        let name = draw.name();
        let name = Name::of_checked(&name);
        let outcomes = if draw.below(3) == 0 {
            let packet = data_of(&name, 0);
            (
                arrays.on_data::<RustCrypto>(now, from, &packet, &mut |_| true, &mut one),
                host.on_data::<RustCrypto>(now, from, &packet, &mut |_| true, &mut two),
            )
        } else {
            let full = [name.as_bytes(), &[1, 32], &digest::<RustCrypto, DIGEST_LEN>(&[&data_of(&name, 0)])].concat();
            let interest = Interest {
                name: if draw.below(4) == 0 { Name::of_checked(&full) } else { name },
                can_be_prefix: draw.below(2) == 0,
                must_be_fresh: draw.below(4) == 0,
                nonce: Some((draw.below(1 << 20) as u32).to_be_bytes()),
                lifetime: Some(100 + draw.below(3000)),
                hop_limit: (draw.below(4) == 0).then(|| draw.below(3) as u8),
                ..Interest::default()
            };
            let mut storage = [0; 300];
            let mut frame = Frame::new(&mut storage, MAX_HEAD);
            interest.write::<RustCrypto>(&mut frame).unwrap();
            let (mut packet, mut copy) = (frame.bytes().to_vec(), frame.bytes().to_vec());
            (
                arrays.on_interest::<RustCrypto>(now, from, &mut packet, (), &mut one),
                host.on_interest::<RustCrypto>(now, from, &mut copy, Token::default(), &mut two),
            )
        };
        assert_eq!(outcomes.0, outcomes.1, "seed {seed}, step {step}");
        assert_eq!(one.0, two.0, "seed {seed}, step {step}");
        assert_eq!(arrays.pit.len(), host.pit.len(), "seed {seed}, step {step}");
        // Timers of Interests that ended may be left.
        assert!(host.next_timeout().is_some() || arrays.next_timeout().is_none());
    }
}

#[test]
fn a_forwarder_sends_the_same_with_each_kind_of_tables_in_200_runs() {
    (0..200).for_each(both_send_the_same);
}

#[test]
fn the_longest_prefix_is_found_also_of_names_with_many_components() {
    let mut fib = HostFib::default();
    let prefix = |len: usize| name_bytes(&"/a".repeat(len)).unwrap();
    for len in [0, 1, 31, 32, 63] {
        fib.add(&Name::of_checked(&prefix(len)), NextHop { face: FaceId(len as u16), cost: 0 });
    }
    for (len, expected) in [(0, 0), (1, 1), (30, 1), (31, 31), (32, 32), (62, 32), (63, 63), (64, 63), (1000, 63)] {
        let name = prefix(len);
        let (_, hops) = fib.next_hops(&Name::of_checked(&name));
        assert_eq!(hops[0].face, FaceId(expected), "{len} components");
    }
    assert!(fib.remove(&Name::of_checked(&prefix(63)), FaceId(63)));
    assert!(!fib.remove(&Name::of_checked(&prefix(63)), FaceId(63)));
    let name = prefix(70);
    assert_eq!(fib.next_hops(&Name::of_checked(&name)).1[0].face, FaceId(32));
    fib.remove_face(FaceId(32));
    assert_eq!(fib.next_hops(&Name::of_checked(&name)).1[0].face, FaceId(31));
    assert_eq!(fib.len(), 3);
}

#[test]
fn a_store_keeps_its_bound_in_bytes_and_packets_that_are_used() {
    let now = Instant::from_micros(1 << 40);
    let mut store = HostStore::new(20_000);
    let asked = |store: &mut HostStore, number: u64| {
        let name = name_bytes(&format!("/a/{number}")).unwrap();
        let interest = Interest { name: Name::of_checked(&name), ..Interest::default() };
        store.find(now, &interest).is_some()
    };
    for number in 0..1000 {
        let name = name_bytes(&format!("/a/{number}")).unwrap();
        let packet = data_of(&Name::of_checked(&name), 1000);
        store.insert(now, &ReceivedData::parse(&packet).unwrap());
        assert!(store.bytes() <= 20_000 && asked(&mut store, number));
        assert!(asked(&mut store, 0), "it is asked for after each other packet");
    }
    assert!(store.len() > 40 && !asked(&mut store, 1), "{}", store.len());
    let prefix = name_bytes("/a").unwrap();
    let interest = Interest { name: Name::of_checked(&prefix), can_be_prefix: true, ..Interest::default() };
    assert!(store.find(now, &interest).is_some());
    let fresh = Interest { must_be_fresh: true, ..interest };
    assert!(store.find(now, &fresh).is_some());
    assert!(store.find(now.after(Duration::from_secs(2)), &fresh).is_none());
    assert!(store.find(now, &Interest { can_be_prefix: false, ..interest }).is_none());
}

/// The store must hold the same packets as a list, whose first packet was not used for the longest time.
#[test]
fn a_store_removes_the_packet_that_was_not_used_for_the_longest_time() {
    const MOST: usize = 5;
    let now = Instant::from_micros(1 << 40);
    let packets: Vec<(Vec<u8>, Vec<u8>)> = (0..20)
        .map(|number| {
            let name = name_bytes(&format!("/a/{}", number + 10)).unwrap();
            let packet = data_of(&Name::of_checked(&name), 1000);
            (name, packet)
        })
        .collect();
    let mut one = HostStore::new(1 << 20);
    one.insert(now, &ReceivedData::parse(&packets[0].1).unwrap());
    let mut store = HostStore::new(MOST * one.bytes());
    let (mut list, mut draw) = (Vec::new(), Draw(9));
    for step in 0..5000 {
        let number = draw.below(packets.len() as u64) as usize;
        let (name, packet) = &packets[number];
        let place = list.iter().position(|known| *known == number);
        if let Some(place) = place {
            list.remove(place);
        }
        if draw.below(3) == 0 {
            store.insert(now, &ReceivedData::parse(packet).unwrap());
            list.push(number);
            if list.len() > MOST {
                list.remove(0);
            }
        } else {
            let interest = Interest { name: Name::of_checked(name), ..Interest::default() };
            assert_eq!(store.find(now, &interest), place.map(|_| &packet[..]), "step {step}");
            list.extend(place.map(|_| number));
        }
        assert_eq!((store.len(), store.bytes()), (list.len(), list.len() * one.bytes()), "step {step}");
    }
}
