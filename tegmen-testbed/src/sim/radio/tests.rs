use super::*;

#[test]
fn airtime_is_that_of_the_standard() {
    assert_eq!((airtime(5), airtime(127)), (352, 4256));
}

#[test]
fn bit_errors_follow_the_curve_of_the_standard() {
    // At equal strength a whole frame of 97 bytes survives seven times in eight, at half of it never.
    let equal = survival(1.0, 8 * 97);
    assert!((0.85..0.90).contains(&equal), "{equal}");
    assert!(survival(0.5, 8 * 97) < 0.01);
    assert!(survival(10.0, 8 * 127) > 0.999_999);
    let rates: Vec<f64> = (0..40).map(|step| bit_error_rate(f64::from(step) * 0.1)).collect();
    assert!(rates.windows(2).all(|pair| pair[0] >= pair[1]), "{rates:?}");
    assert!((rates[0] - 0.5).abs() < 1e-9);
}
