use super::*;

const START: Instant = Instant::from_micros(1_000_000);

#[test]
fn the_order_of_rfc_7641_section_3_4() {
    let newer = |old: u32, new: u32, seconds: u64| {
        Order::new(old, START).is_newer(new, START.after(Duration::from_secs(seconds)))
    };
    assert!(newer(1, 2, 0));
    assert!(!newer(2, 1, 0));
    assert!(!newer(2, 2, 0));
    assert!(newer(0, (1 << 23) - 1, 0));
    assert!(!newer(0, 1 << 23, 0));
    assert!(newer(NUMBER_MASK, 0, 0));
    assert!(newer(NUMBER_MASK - 5, 3, 0));
    assert!(!newer(3, NUMBER_MASK - 5, 0));
    assert!(!newer(2, 1, 128));
    assert!(newer(2, 1, 129));
    assert!(newer(2, 2, 129));
}

#[test]
fn an_old_notification_does_not_move_the_order() {
    let mut order = Order::new(10, START);
    assert!(!order.is_newer(9, START));
    assert!(order.is_newer(11, START));
    assert!(!order.is_newer(10, START));
}

#[test]
fn numbers_of_an_observation_rise_over_the_end_of_24_bits() {
    let mut observation = Observation::new(Token::new(b"t"), NUMBER_MASK - 1);
    let mut order = Order::new(observation.number(), START);
    for _ in 0..4 {
        assert!(order.is_newer(observation.next(), START));
    }
    assert_eq!(observation.number(), 2);
}

#[test]
fn every_so_many_notifications_are_confirmable() {
    let mut observation = Observation::new(Token::new(b"t"), 1);
    let confirmed: std::vec::Vec<bool> = (0..7).map(|_| observation.confirm(2)).collect();
    assert_eq!(confirmed, [false, false, true, false, false, true, false]);
    let mut always = Observation::new(Token::new(b"t"), 1);
    assert!((0..3).all(|_| always.confirm(0)));
}
