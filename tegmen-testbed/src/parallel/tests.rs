use super::*;

#[test]
fn results_are_in_the_order_of_the_work() {
    let items: Vec<u64> = (0..100).collect();
    let slow_first = |item: &u64| {
        std::thread::sleep(std::time::Duration::from_micros((100 - item) * 20));
        item * item
    };
    assert_eq!(each(&items, slow_first, |_| {}), items.iter().map(|item| item * item).collect::<Vec<_>>());
}

#[test]
fn nothing_to_do_is_done_at_once() {
    assert_eq!(each(&[], |item: &u8| *item, |_| {}), Vec::<u8>::new());
}
