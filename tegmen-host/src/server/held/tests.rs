use super::*;

#[test]
fn keys_that_were_found_are_held_in_the_order_of_their_times_and_are_bounded() {
    let at = Instant::from_micros;
    let mut held = Held::new(3);
    for (micros, index) in [(30, 1), (10, 2), (10, 3)] {
        assert!(held.hold(at(micros), PeerId::new(index, 2), None));
    }
    assert!(!held.hold(at(5), PeerId::new(4, 2), None), "there is no room for more");
    assert_eq!(held.next(), Some(at(10)));
    assert!(held.take(at(9)).is_none());
    let mut taken = || held.take(at(20)).map(|(peer, _)| peer.index);
    assert_eq!((taken(), taken(), taken()), (Some(2), Some(3), None));
    assert!(held.hold(at(40), PeerId::new(5, 2), None));
    assert_eq!(held.next(), Some(at(30)));
}
