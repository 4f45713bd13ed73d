use super::{DAY, allowed};

#[test]
fn the_numbers_of_a_pace_begin_a_day_ahead_and_never_wrap() {
    // As the directories of contexts and the databases of earlier releases have it: 4 a millisecond.
    assert_eq!(allowed(4 * DAY, 1_000, 1_000), 4 * DAY);
    assert_eq!(allowed(4 * DAY, 1_000, 3_500), 4 * (DAY + 2_500));
    assert_eq!(allowed(4 * DAY, 3_500, 1_000), 4 * DAY, "the clock went back");
    assert_eq!(allowed(1, 0, DAY - 1), 1);
    assert_eq!(allowed(u64::MAX, 0, u64::MAX), u64::MAX);
}
