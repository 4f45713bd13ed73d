use super::*;

const HELLO: [u8; 14] = [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1];
const START: u64 = 10_000_000;

fn flood(gate: &mut Gate, from: &str, micros: u64, count: usize) -> usize {
    let from: SocketAddr = from.parse().unwrap();
    (0..count).filter(|_| gate.admits(Instant::from_micros(START + micros), from, &HELLO)).count()
}

#[test]
fn a_flood_from_one_prefix_leaves_the_others() {
    let mut gate = Gate::new(HelloLimits { per_prefix: 100, total: 10_000 });
    assert_eq!(flood(&mut gate, "10.1.1.1:1", 0, 1000), 200);
    assert_eq!(flood(&mut gate, "10.1.1.99:7", 0, 1000), 0, "the same prefix");
    assert_eq!(flood(&mut gate, "10.1.2.1:1", 0, 100), 100);
    assert_eq!(flood(&mut gate, "[2001:db8::1]:1", 0, 1000), 200);
    assert_eq!(flood(&mut gate, "[2001:db8:0:ff::1]:1", 0, 1000), 0, "the same /56");
    assert_eq!(flood(&mut gate, "10.1.1.1:1", 1_000_000, 1000), 100, "a second later");
    assert_eq!(gate.dropped, 800 + 1000 + 800 + 1000 + 900);
}

#[test]
fn a_flood_from_everywhere_is_bounded_in_all() {
    let mut gate = Gate::new(HelloLimits { per_prefix: 100, total: 1000 });
    let through: usize = (0..250).map(|net| flood(&mut gate, &format!("10.{net}.1.1:1"), 0, 100)).sum();
    assert_eq!(through, 2000);
}

#[test]
fn only_hellos_are_counted_and_no_limit_is_none() {
    let mut gate = Gate::new(HelloLimits { per_prefix: 1, total: 1 });
    let from = "10.1.1.1:1".parse().unwrap();
    for datagram in [&[23; 40][..], &HELLO[..13], b"", &[22, 254, 253, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]] {
        assert!((0..100).all(|_| gate.admits(Instant::from_micros(START), from, datagram)));
    }
    let mut open = Gate::new(HelloLimits { per_prefix: 0, total: 0 });
    assert_eq!(flood(&mut open, "10.1.1.1:1", 0, 100_000), 100_000);
}
