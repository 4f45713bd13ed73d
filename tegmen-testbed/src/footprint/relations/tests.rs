use super::*;
use std::collections::BTreeMap;

fn image(name: &str, text: u64, sizes: &[(&str, u64)]) -> Footprint {
    Footprint {
        image: name.into(),
        provider: "compact".into(),
        text,
        data: 1,
        bss: 30_000,
        stack: 2000,
        panics: 0,
        operations: BTreeMap::new(),
        sizes: sizes.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect(),
        components: BTreeMap::new(),
        panic_places: Vec::new(),
    }
}

/// Images of which everything holds, and nothing more would.
fn images() -> Vec<Footprint> {
    let mut sender = image("axiom_sender", 0, &[("read state", 48), ("read state, MAC only", 64)]);
    sender.stack = 32 * 1024 - 30_001;
    vec![
        image("axiom_listener", 17_216, &[("write state", 40), ("association, one sender", 232)]),
        sender,
        image("coap", 8000, &[]),
        image("dtls_psk", 0, &[("peer table of one", 580)]),
    ]
}

#[test]
fn relations_hold_up_to_their_limits() {
    let relations = of(&images()).unwrap();
    assert!(relations.iter().all(|relation| relation.measured == relation.most && relation.holds()), "{relations:?}");
}

#[test]
fn a_byte_above_a_limit_is_found() {
    let above = |change: &dyn Fn(&mut Vec<Footprint>)| {
        let mut images = images();
        change(&mut images);
        let relations = of(&images).unwrap();
        let above: Vec<&str> =
            relations.iter().filter(|relation| !relation.holds()).map(|relation| relation.what).collect();
        above.join(", ")
    };
    let grow = |image: usize, size: &'static str| {
        above(&move |images: &mut Vec<Footprint>| *images[image].sizes.get_mut(size).unwrap() += 1)
    };
    assert_eq!(grow(1, "read state"), "state of a listener at a sender");
    assert_eq!(grow(1, "read state, MAC only"), "the same with an HMAC and no cipher");
    assert_eq!(grow(0, "write state"), "state of a sender at a listener");
    assert_eq!(grow(0, "association, one sender"), "association with one sender, 40 % of a DTLS peer");
    assert_eq!(above(&|images| images[1].bss += 1), "all RAM and stack of a sender to 400 listeners");
    assert_eq!(above(&|images| images[0].text += 1), "text of axiom_listener above coap");
}

#[test]
fn a_missing_image_or_size_is_named() {
    let mut images = images();
    images[3].sizes.clear();
    let error = of(&images).unwrap_err().to_string();
    assert_eq!(error, "relations among images: peer table of one of dtls_psk is missing");
    images.remove(2);
    images[2].sizes.insert("peer table of one".into(), 580);
    assert_eq!(of(&images).unwrap_err().to_string(), "relations among images: the image of coap is missing");
}
