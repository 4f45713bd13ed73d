use super::*;
use crate::provider::HostCrypto;
use crate::slab::{Capacity, Slab};
use std::net::SocketAddr;
use tegmen::address::Path;
use tegmen::cx::Counters;
use tegmen::cx::Cx;
use tegmen::dtls::{Config, Extended, Records};
use tegmen::endpoint::{Endpoint, Event};

const START: u64 = 10_000_000;

fn flood(gate: &Gate, from: &str, micros: u64, count: usize) -> usize {
    let from: SocketAddr = from.parse().unwrap();
    (0..count).filter(|_| gate.admits(Instant::from_micros(START + micros), from.ip())).count()
}

#[test]
fn a_flood_from_one_prefix_leaves_the_others() {
    let gate = Gate::new(HelloLimits { per_prefix: 100, total: 10_000 });
    assert_eq!(flood(&gate, "10.1.1.1:1", 0, 1000), 200);
    assert_eq!(flood(&gate, "10.1.1.99:7", 0, 1000), 0, "the same prefix");
    assert_eq!(flood(&gate, "10.1.2.1:1", 0, 100), 100);
    assert_eq!(flood(&gate, "[2001:db8::1]:1", 0, 1000), 200);
    assert_eq!(flood(&gate, "[2001:db8:0:ff::1]:1", 0, 1000), 0, "the same /56");
    assert_eq!(flood(&gate, "10.1.1.1:1", 1_000_000, 1000), 100, "a second later");
    assert_eq!(gate.dropped(), 800 + 1000 + 800 + 1000 + 900);
}

#[test]
fn a_flood_from_everywhere_is_bounded_in_all() {
    let gate = Gate::new(HelloLimits { per_prefix: 100, total: 1000 });
    let through: usize = (0..250).map(|net| flood(&gate, &format!("10.{net}.1.1:1"), 0, 100)).sum();
    assert_eq!(through, 2000);
}

#[test]
fn no_limit_is_none() {
    let open = Gate::new(HelloLimits { per_prefix: 0, total: 0 });
    assert_eq!(flood(&open, "10.1.1.1:1", 0, 100_000), 100_000);
}

/// The part of a shard that answers ClientHellos which `gate` admits.
struct Answering {
    endpoint: Endpoint<Slab<()>, Extended<Limited>>,
    crypto: HostCrypto,
    counters: Counters,
}

impl Answering {
    fn behind(gate: &Arc<Gate>) -> Self {
        let (mut crypto, mut counters) = (HostCrypto::from_os().unwrap(), Counters::new());
        let mut cx = Cx { now: Instant::from_micros(START), crypto: &mut crypto, counters: &mut counters };
        let table = Slab::new(Capacity::default());
        let role = Extended::with(Limited(gate.clone()), &Config::default());
        let endpoint = Endpoint::with_roles(&mut cx, table, Config::default(), role);
        Self { endpoint, crypto, counters }
    }

    /// Returns the number of answers to `count` copies of the datagram.
    fn answers(&mut self, count: usize, datagram: &[u8]) -> usize {
        let [local, remote] = ["10.1.1.1:5684", "10.2.2.2:4"].map(|at| at.parse::<SocketAddr>().unwrap().into());
        let now = Instant::from_micros(START);
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        let (mut answers, mut out) = (0, [0; 1500]);
        for _ in 0..count {
            let mut datagram = datagram.to_vec();
            let mut records = Records::new(&mut datagram);
            while let Some(event) = self.endpoint.handle(&mut cx, &Path { local, remote }, &mut records, &mut out) {
                answers += usize::from(matches!(event, Event::Answer { .. }));
            }
        }
        answers
    }
}

/// Returns a record with a ClientHello without a cookie.
fn hello() -> Vec<u8> {
    let mut hello = vec![22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 54];
    hello.extend([1, 0, 0, 42, 0, 0, 0, 0, 0, 0, 0, 42]);
    hello.extend([254, 253]);
    hello.extend([7; 32]);
    hello.extend([0, 0, 0, 2, 0xc0, 0xa8, 1, 0]);
    hello
}

#[test]
fn hellos_are_counted_where_they_are_answered_by_all_shards_together() {
    let gate = Arc::new(Gate::new(HelloLimits { per_prefix: 100, total: 10_000 }));
    let mut shards = [Answering::behind(&gate), Answering::behind(&gate)];
    assert_eq!(shards[0].answers(150, &hello()), 150);
    // Nothing else is counted, and what is not answered for another reason takes nothing from the others.
    let behind_another = [&[21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0][..], &hello()].concat();
    for datagram in [&[23; 40][..], &hello()[..13], b"", &behind_another] {
        assert_eq!(shards[1].answers(100, datagram), 0);
    }
    assert_eq!((shards[1].answers(1000, &hello()), gate.dropped()), (50, 950));
    assert_eq!((shards[0].answers(1000, &hello()), gate.dropped()), (0, 1950));
}

#[test]
fn a_server_that_has_just_started_answers_at_once() {
    let gate = Gate::new(HelloLimits { per_prefix: 100, total: 1000 });
    let from = "10.1.1.1".parse().unwrap();
    let admitted = (0..300).filter(|_| gate.admits(Instant::from_micros(0), from)).count();
    assert_eq!(admitted, 200, "two seconds of the rate, in the first microsecond of the clock");
}
