use super::*;

#[test]
fn earlier_sessions_are_not_resumed_and_later_ones_are() {
    let (mut ended, lifetime) = (Ended::default(), Duration::from_secs(100));
    ended.add(b"a".to_vec(), 50, lifetime);
    assert!(ended.has(b"a", 49) && ended.has(b"a", 50) && !ended.has(b"a", 51));
    assert!(!ended.has(b"b", 49));
    ended.add(b"a".to_vec(), 60, lifetime);
    assert!(ended.has(b"a", 60) && !ended.has(b"a", 61));
}

#[test]
fn more_clients_than_the_list_has_space_for_end_the_earlier_sessions_of_all() {
    let (mut ended, lifetime) = (Ended::default(), Duration::from_secs(100));
    let first = MOST as u32 / 2;
    for number in 0..=MOST as u32 {
        ended.add(number.to_be_bytes().to_vec(), if number < first { 10 } else { 20 }, lifetime);
    }
    assert_eq!(ended.by_client.len(), MOST / 2 + 1);
    assert!(ended.has(b"somebody else", 10) && !ended.has(b"somebody else", 11));
    assert!(ended.has(&first.to_be_bytes(), 20));
}

#[test]
fn more_clients_than_the_list_has_space_for_at_one_time_end_the_sessions_of_all() {
    let (mut ended, lifetime) = (Ended::default(), Duration::from_secs(100));
    let add = |ended: &mut Ended, at: u32| ended.add(at.to_be_bytes().to_vec(), at, lifetime);
    for at in 0..MOST as u32 {
        add(&mut ended, at);
    }
    assert_eq!(ended.by_client.len(), MOST);
    // The sessions of most of them are too old by now.
    let now = MOST as u32;
    add(&mut ended, now);
    assert_eq!((ended.by_client.len(), ended.everybody), (101, None));
    for at in 0..MOST {
        ended.add(format!("{at}").into_bytes(), now, lifetime);
    }
    assert!(ended.by_client.len() <= MOST);
    assert!(ended.has(b"somebody else", now) && !ended.has(b"somebody else", now + 1));
}
