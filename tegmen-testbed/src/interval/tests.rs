use super::*;

#[test]
fn the_interval_of_a_mean_is_that_of_student() {
    let of = mean(&[1.0, 2.0, 3.0, 4.0]);
    assert_eq!(of.mean, 2.5);
    let half = 3.182 * (5.0f64 / 3.0 / 4.0).sqrt();
    let [low, high] = of.interval.unwrap();
    assert!((low - (2.5 - half)).abs() < 1e-9 && (high - (2.5 + half)).abs() < 1e-9);
    assert_eq!(mean(&[7.0]), Mean { mean: 7.0, interval: None });
}

#[test]
fn all_of_500_is_not_certainty() {
    let [low, high] = share(&[(100, 100); 5]).interval.unwrap();
    assert!((low - 0.9924).abs() < 1e-4 && high == 1.0, "{low} {high}");
    let [low, high] = share(&[(0, 50)]).interval.unwrap();
    assert!(low == 0.0 && (high - 0.0713).abs() < 1e-4, "{low} {high}");
}

#[test]
fn runs_that_differ_widen_the_interval_of_a_share() {
    let [low, high] = share(&[(50, 100), (50, 100), (50, 100)]).interval.unwrap();
    let [least, most] = share(&[(20, 100), (50, 100), (80, 100)]).interval.unwrap();
    assert!(least < low && most > high && least >= 0.0 && most <= 1.0);
}
