use super::*;

#[test]
fn a_step_is_a_sixteenth_of_its_delay_at_most() {
    assert_eq!([0, 1, 31, 32, 33, 34, 63, 64, 65].map(end), [0, 1, 31, 32, 34, 34, 64, 64, 68]);
    for delay in [1_000, 14_243, 93_000_001] {
        let end = end(delay);
        assert!(end >= delay && (end - delay) * 16 <= delay, "{delay} {end}");
    }
}

#[test]
fn the_distribution_of_two_runs_is_that_of_all_their_delays() {
    let (one, other) = ([10_000, 10_100, 500_000], [9_000, 10_050]);
    let mut both = Distribution::of(&one);
    both.add(&Distribution::of(&other));
    assert_eq!(both, Distribution::of(&[one.as_slice(), other.as_slice()].concat()));
    let shares = both.shares(10);
    assert!(shares.is_sorted() && shares[0] == (9.216, 0.1), "{shares:?}");
    assert_eq!(shares.last().map(|(_, share)| *share), Some(0.5), "half of them were not answered");
}
