//! Tests of the estimated number of clients.

use super::*;

fn at(seconds: u64) -> Instant {
    Instant::AT_ONCE.after(Duration::from_secs(seconds))
}

fn count_of(clients: u32) -> ObserverCount {
    let mut count = ObserverCount::new(at(0));
    (0..clients).for_each(|_| count.on_registration());
    count
}

/// The example of the draft (section 7.3.3): 32 clients, 8 wanted confirmations, and 4 confirmations.
#[test]
fn the_example_of_the_draft() {
    let mut count = count_of(32);
    assert_eq!(count.ask(at(599)), None);
    assert_eq!(count.ask(at(600)), Some(2));
    assert_eq!(count.ask(at(601)), None, "one question at a time");
    (0..4).for_each(|_| count.on_confirmation());
    assert!(!count.conclude(at(600 + 451)));
    assert!(!count.conclude(at(600 + 452)));
    assert_eq!(count.count, 16);
    assert_eq!(count.ask(at(600 + 452 + 599)), None);
    assert_eq!(count.ask(at(600 + 452 + 600)), Some(1));
}

#[test]
fn the_divider_is_the_logarithm_rounded_up() {
    for (clients, divider) in [(0, 0), (1, 0), (8, 0), (9, 1), (16, 1), (17, 2), (1000, 7), (u32::MAX, 29)] {
        let mut count = ObserverCount { count: clients, ..ObserverCount::new(at(0)) };
        assert_eq!(count.ask(at(600)), Some(divider), "{clients}");
    }
}

#[test]
fn two_questions_without_a_confirmation_end_the_observation() {
    let mut count = count_of(3);
    count.ask(at(600));
    assert!(!count.conclude(at(1052)));
    assert_eq!(count.ask(at(1052)), Some(0), "the second question follows at once");
    assert!(count.conclude(at(1504)));
}

#[test]
fn a_client_that_registers_or_confirms_keeps_the_observation() {
    let mut count = count_of(1);
    count.ask(at(600));
    assert!(!count.conclude(at(1052)));
    count.ask(at(1052));
    count.on_confirmation();
    assert!(!count.conclude(at(1504)));
    assert_eq!(count.count, 1);
    let mut count = count_of(1);
    count.ask(at(600));
    count.on_registration();
    assert!(!count.conclude(at(1052)));
    assert_eq!(count.count, 1);
}

#[test]
fn a_confirmation_without_a_question_counts_nothing() {
    let mut count = count_of(1);
    (0..9).for_each(|_| count.on_confirmation());
    count.ask(at(600));
    assert!(!count.conclude(at(1052)));
    assert_eq!(count.count, 0);
}

#[test]
fn a_question_without_an_answer_is_asked_again_of_a_part_of_the_clients() {
    let mut count = count_of(1000);
    let mut now = 600;
    let mut silent = |count: &mut ObserverCount| {
        let divider = count.ask(at(now)).unwrap();
        now += 452;
        (divider, count.conclude(at(now)))
    };
    // The numbers of clients are 1000, 125, 15, 1 and 0.
    for divider in [7, 4, 1, 0] {
        assert_eq!(silent(&mut count), (divider, false));
    }
    assert_eq!(silent(&mut count), (0, true));
}
