use super::*;

fn footprint(text: u64, handshake: u64) -> Footprint {
    Footprint {
        image: "dtls".into(),
        provider: "compact".into(),
        text,
        data: 0,
        bss: 8,
        stack: 600,
        panics: 0,
        operations: [("handshake".into(), handshake)].into(),
        sizes: [("peer".into(), 160)].into(),
        components: BTreeMap::new(),
        panic_places: Vec::new(),
    }
}

#[test]
fn a_budget_is_read_as_it_was_written_and_kept_by_what_made_it() {
    let budget = Budget::of(&[footprint(100, 50)]);
    let read: Budget = toml::from_str(&toml::to_string(&budget).unwrap()).unwrap();
    assert_eq!(read, budget);
    assert_eq!(budget.compare(&[footprint(100, 50)]), []);
    assert_eq!(budget.compare(&[footprint(99, 1)]), []);
}

#[test]
fn what_grew_is_named() {
    let excesses = Budget::of(&[footprint(100, 50)]).compare(&[footprint(117, 51)]);
    let named = excesses.iter().map(|excess| (excess.what.as_str(), excess.measured, excess.limit));
    assert_eq!(named.collect::<Vec<_>>(), [("instructions of handshake", 51, Some(50)), ("text", 117, Some(100))]);
    assert_eq!(Budget::of(&[footprint(100, 9000)]).compare(&[footprint(116, 9009)]), []);
    assert_eq!(Budget::of(&[footprint(100, 9000)]).compare(&[footprint(100, 9010)]).len(), 1);
}

#[test]
fn an_image_without_limits_is_over_budget() {
    assert!(Budget::default().compare(&[footprint(1, 1)]).iter().all(|excess| excess.limit.is_none()));
}
