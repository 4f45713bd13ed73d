use super::super::Bytes;
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

fn curve() -> Footprint {
    let mut curve = image("p256", 0, &[]);
    curve.components.insert(P256.to_owned(), Bytes { text: 6_800, data: 0, bss: 0 });
    let most = [("key pair", 2_400_000), ("agree", 5_200_000), ("sign", 3_000_000), ("verify", 6_900_000)];
    for (operation, most) in most {
        curve.operations.insert(operation.to_owned(), most);
        curve.operations.insert(format!("{operation}, other key"), most);
    }
    curve
}

fn handshake(name: &str, text: u64, instructions: u64) -> Footprint {
    let mut made = image(name, text, &[]);
    made.operations.insert("handshake client".to_owned(), instructions);
    made
}

fn resuming(name: &str, text: u64, operations: [(&str, u64); 2]) -> Footprint {
    let mut made = image(name, text, &[("ticket", 92)]);
    made.operations.extend(operations.map(|(of, most)| (of.to_owned(), most)));
    made
}

/// Returns images for which all relations hold. Each number has its maximum, so that a relation fails if the number
/// grows.
fn images() -> Vec<Footprint> {
    let mut sender = image("axiom_sender", 0, &[("read state", 48), ("read state, MAC only", 64)]);
    sender.stack = 32 * 1024 - 30_001;
    let mut images = vec![
        image("axiom_listener", 17_216, &[("write state", 40), ("association, one sender", 232)]),
        sender,
        image("coap", 8000, &[]),
        image("dtls_psk", 0, &[("peer table of one", 580)]),
        curve(),
        handshake("dtls_rpk", 33_000, 18_000_000),
        handshake("dtls_x509", 38_000, 32_000_000),
        resuming("dtls_resume_coap", 0, [("resumption client", 290_910), ("resumption server", 100_000)]),
        resuming("dtls_delegated", 3_072, [("delegated client", 320_000), ("resumption server", 110_000)]),
    ];
    let others = ["coap_uni_sender", "coap_mul_sender", "dtls_uni_uni_sender", "dtls_mul_uni_sender"];
    images.extend(others.map(|name| Footprint { stack: 32 * 1024 - 30_001, ..image(name, 0, &[]) }));
    images
}

#[test]
fn relations_hold_up_to_their_limits() {
    let relations = of(&images()).unwrap();
    assert!(
        relations.iter().all(|relation| relation.holds() && relation.most - relation.measured <= 1),
        "{relations:?}"
    );
    assert_eq!(relations.len(), 28);
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
    assert_eq!(above(&|images| images[9].bss += 1), "the same of CoAP Uni");
    assert_eq!(above(&|images| images[10].bss += 1), "the same of CoAP Mul");
    assert_eq!(above(&|images| images[11].data += 1), "the same of DTLS Uni-Uni to 150 listeners");
    assert_eq!(above(&|images| images[12].stack += 1), "the same of DTLS Mul-Uni to 150 listeners");
    assert_eq!(above(&|images| images[0].text += 1), "text of axiom_listener above coap");
    assert_eq!(above(&|images| images[4].components.get_mut(P256).unwrap().text += 1), "text of secp256r1");
    assert_eq!(above(&|images| images[4].stack += 1), "stack of p256");
    assert_eq!(above(&|images| images[5].text += 1), "text of dtls_rpk");
    assert_eq!(above(&|images| images[6].text += 1), "text of dtls_x509");
    let slower = |image: usize, operation: &'static str| {
        above(&move |images: &mut Vec<Footprint>| *images[image].operations.get_mut(operation).unwrap() += 1)
    };
    let apart = "key pairs of two keys, instructions apart";
    assert_eq!(slower(4, "key pair"), format!("instructions of a key pair, {apart}"));
    assert_eq!(slower(4, "key pair, other key"), apart);
    let apart = "agreements of two keys, instructions apart";
    assert_eq!(slower(4, "agree"), format!("instructions of a key agreement, {apart}"));
    let apart = "signatures of two keys, instructions apart";
    assert_eq!(slower(4, "sign"), format!("instructions of a signature, {apart}"));
    assert_eq!(slower(4, "verify"), "instructions of a verification");
    assert_eq!(slower(5, "handshake client"), "instructions of a handshake, dtls_rpk");
    assert_eq!(slower(6, "handshake client"), "instructions of a handshake, dtls_x509");
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
