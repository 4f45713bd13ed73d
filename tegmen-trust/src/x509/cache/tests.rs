use super::*;

#[test]
fn it_keeps_what_is_asked_for_and_counts_lookups() {
    let cache = Cache::new(8);
    for number in 0..200_u8 {
        cache.insert([number; 32], Span::ALWAYS);
        assert_eq!(cache.find(&[0; 32], 0), Some(Span::ALWAYS), "asked for each time");
    }
    assert_eq!(cache.find(&[150; 32], 0), None);
    assert_eq!(cache.counters(), CacheCounters { hits: 200, misses: 1 });
    cache.clear();
    assert_eq!(cache.find(&[0; 32], 0), None);
    let none = Cache::new(0);
    none.insert([0; 32], Span::ALWAYS);
    assert_eq!(none.find(&[0; 32], 0), None);
}

#[test]
fn an_entry_holds_only_within_its_span() {
    let cache = Cache::new(2);
    cache.insert([1; 32], Span { from: 10, until: 20 });
    let found = [9, 10, 20, 21].map(|now| cache.find(&[1; 32], now).is_some());
    assert_eq!(found, [false, true, true, false]);
}
