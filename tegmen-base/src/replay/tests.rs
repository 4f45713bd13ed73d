use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

#[test]
fn a_forged_number_does_not_move_the_window() {
    let mut window = ReplayWindow::new();
    window.fresh(5).unwrap().accept();
    drop(window.fresh(1 << 47).unwrap());
    window.fresh(6).unwrap().accept();
    assert!(window.fresh(5).is_err());
}

#[test]
fn a_number_behind_the_window_is_refused() {
    let mut window = ReplayWindow::new();
    window.fresh(64).unwrap().accept();
    assert!(window.fresh(0).is_err());
    assert!(window.fresh(1).is_ok());
}

#[test]
fn a_lost_window_tells_its_mark_and_every_other_window_none() {
    assert_eq!(ReplayWindow::lost(0).mark(), Some(0));
    assert_eq!(ReplayWindow::lost(77).mark(), Some(77));
    let mut window = ReplayWindow::new();
    assert_eq!(window.mark(), None);
    for number in [0, 1, 500, 1 << 39] {
        window.fresh(number).unwrap().accept();
        assert_eq!(window.mark(), None, "{number}");
    }
}

#[test]
fn what_counts_as_seen_is_refused() {
    let mut window = ReplayWindow::seen_up_to(100);
    assert_eq!(window.mark(), None);
    assert!((0..=100).all(|number| window.fresh(number).is_err()));
    window.fresh(101).unwrap().accept();
    assert!((0..=101).all(|number| window.fresh(number).is_err()));
}

proptest! {
    #[test]
    fn it_agrees_with_a_set(numbers in proptest::collection::vec(0u64..200, 0..400)) {
        let (mut window, mut model, mut next) = (ReplayWindow::new(), HashSet::new(), 0u64);
        for n in numbers {
            let fresh = !model.contains(&n) && n + 64 >= next;
            match window.fresh(n) {
                Ok(proof) => { prop_assert!(fresh); proof.accept(); model.insert(n); next = next.max(n + 1); }
                Err(Replayed) => prop_assert!(!fresh),
            }
        }
    }
}
