use super::*;

fn prefix(ip: &str) -> Prefix {
    Prefix::of(ip.parse().unwrap())
}

#[test]
fn a_second_has_one_line_of_a_kind_and_prefix_and_none_is_uncounted() {
    let (mut repeats, start) = (Repeats::default(), Instant::now());
    let (here, there) = (prefix("192.0.2.7"), prefix("2001:db8::7"));
    let mut written = 0;
    let mut told = 0;
    for millis in 0..3000 {
        if let Some(more) = repeats.take("refused", here, start + Duration::from_millis(millis)) {
            (written, told) = (written + 1, told + 1 + more);
        }
    }
    assert_eq!(written, 3);
    // Another network and another kind have lines of their own.
    assert_eq!(repeats.take("refused", there, start + Duration::from_millis(3000)), Some(0));
    assert_eq!(repeats.take("failed", here, start + Duration::from_millis(2999)), Some(0));
    assert_eq!(repeats.due(Some(start + Duration::from_millis(2999))), []);
    let due = repeats.due(Some(start + Duration::from_millis(3500)));
    assert_eq!(due.iter().map(|due| (due.0, due.1)).collect::<Vec<_>>(), [("refused", here)]);
    assert_eq!(told + due[0].2, 3000);
    assert_eq!(repeats.due(None), []);
}

#[test]
fn networks_without_end_take_bounded_room() {
    let (mut repeats, now) = (Repeats::default(), Instant::now());
    let lines = (0..100_000u32).filter_map(|n| {
        let prefix = Prefix::of(Ipv4Addr::from_bits(n << 8).into());
        repeats.take("refused", prefix, now)
    });
    assert_eq!(lines.count(), TOLD_APART + 1);
    assert_eq!(repeats.0.len(), TOLD_APART + 1);
    assert_eq!(repeats.due(None), [("refused", Prefix::Other, 100_000 - TOLD_APART as u64 - 1)]);
    assert!(repeats.due(None).is_empty() && repeats.0.is_empty());
}

#[test]
fn a_prefix_is_shown_with_its_length() {
    assert_eq!(prefix("::ffff:192.0.2.7").to_string(), "192.0.2.0/24");
    assert_eq!(prefix("2001:db8:1:2ff::7").to_string(), "2001:db8:1:200::/56");
}
