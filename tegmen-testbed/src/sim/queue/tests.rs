use super::*;

#[test]
fn events_come_by_time_then_in_the_order_of_planning() {
    let mut queue = Queue::default();
    for (at, node) in [(5, 0), (3, 2), (5, 1), (3, 1)] {
        queue.plan(at, Event::Ready { node });
    }
    let order: Vec<_> = std::iter::from_fn(|| queue.take(5)).collect();
    let expected = [(3, 2), (3, 1), (5, 0), (5, 1)].map(|(at, node)| (at, Event::Ready { node }));
    assert_eq!(order, expected);
}

#[test]
fn what_is_later_stays() {
    let mut queue = Queue::default();
    queue.plan(6, Event::Ready { node: 0 });
    assert_eq!(queue.take(5), None);
    assert!(queue.take(6).is_some());
}
