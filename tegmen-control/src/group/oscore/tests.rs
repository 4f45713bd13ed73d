use super::*;

#[test]
fn the_sets_of_stale_sender_ids_are_limited() {
    let mut ids = SenderIds::default();
    for epoch in 1..=20 {
        ids = ids.after(1, epoch, vec![u32::from(epoch)]);
    }
    assert_eq!((ids.given, ids.stale.len(), ids.forgotten), (20, STALE_SETS, 12));
    assert_eq!(ids.stale_since(12), None, "a member that knows less forgets all others");
    assert_eq!(ids.stale_since(19), Some(vec![vec![19], vec![20]]));
    assert_eq!(ids.stale_since(21), Some(vec![]));
    assert_eq!(ids.after(0, 21, vec![]).stale, ids.stale);
}
