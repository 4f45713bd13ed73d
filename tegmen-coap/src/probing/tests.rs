use super::*;

#[test]
fn an_endpoint_that_is_silent_is_sent_one_byte_a_second() {
    let at = |seconds| Instant::AT_ONCE.after(Duration::from_secs(seconds));
    let mut probing = Probing::new();
    assert_eq!(probing.next(), Instant::AT_ONCE);
    probing.sent(at(10), 40);
    assert_eq!(probing.next(), at(50));
    probing.sent(at(50), 5);
    // Sent too early, all the same: what was left of the wait is not lost.
    probing.sent(at(51), 5);
    assert_eq!(probing.next(), at(60));
    probing.heard();
    assert!(probing.next() <= at(52));
    probing.sent(at(52), 20);
    assert_eq!(probing.next(), at(72));
}

#[test]
fn no_length_and_no_time_overflow() {
    let mut probing = Probing::new();
    probing.sent(Instant::NEVER, usize::MAX);
    assert_eq!(probing.next(), Instant::NEVER);
}
