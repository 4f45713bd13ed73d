use super::*;

#[test]
fn nothing_is_given_out_before_its_end_is_kept_and_nothing_twice() {
    let mut lease = Lease::resume(100);
    assert_eq!((lease.take(), lease.left()), (None, 0));
    lease.extend(102);
    assert_eq!((lease.take(), lease.take(), lease.take()), (Some(100), Some(101), None));
    lease.extend(50);
    assert_eq!(lease.take(), None);
    lease.extend(u64::MAX);
    assert_eq!(lease.take(), Some(102));
}

#[test]
fn the_last_number_of_all_does_not_wrap() {
    let mut lease = Lease::resume(u64::MAX - 1);
    lease.extend(u64::MAX);
    assert_eq!((lease.take(), lease.take()), (Some(u64::MAX - 1), None));
}
