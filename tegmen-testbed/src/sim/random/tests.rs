use super::*;

#[test]
fn streams_differ_by_seed_node_and_purpose_and_repeat() {
    let first = |seed, node, purpose| Stream::new(seed, node, purpose).below(1 << 60);
    let all = [
        first(1, 1, Purpose::Backoff),
        first(2, 1, Purpose::Backoff),
        first(1, 2, Purpose::Backoff),
        first(1, 1, Purpose::Loss),
    ];
    for (i, a) in all.iter().enumerate() {
        assert!(all[i + 1..].iter().all(|b| a != b));
    }
    assert_eq!(all[0], first(1, 1, Purpose::Backoff));
}

#[test]
fn numbers_are_spread_evenly() {
    let mut stream = Stream::new(7, 0, Purpose::Backoff);
    let mut counts = [0u32; 8];
    (0..80_000).for_each(|_| counts[stream.below(8) as usize] += 1);
    assert!(counts.iter().all(|count| (9_600..10_400).contains(count)), "{counts:?}");
    let mean = (0..100_000).map(|_| stream.unit()).sum::<f64>() / 1e5;
    assert!((mean - 0.5).abs() < 0.005, "{mean}");
}
