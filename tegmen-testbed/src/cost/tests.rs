use super::*;

#[test]
fn the_budget_has_what_is_needed() {
    let costs = Costs::of_budget();
    assert!(costs.client > 10 * costs.seal && costs.seal > costs.build, "{costs:?}");
    assert_eq!((costs.seal_of(64), costs.open_of(64)), (costs.seal, costs.open));
    assert!(costs.seal_of(16) < costs.seal);
    assert_eq!([80, 300].map(|len| costs.send_of(len)), costs.send);
    assert_eq!([80, 300].map(|len| costs.receive_of(len)), costs.receive);
    assert!(0 < costs.send_of(10) && costs.receive_of(10) < costs.receive_of(200));
    let (plain, secured) = (Memory::of_image("coap").unwrap(), Memory::of_image("blink_server").unwrap());
    assert!(plain.rom < secured.rom && plain.ram < secured.ram);
    assert_eq!(Memory::of_image("no such image"), None);
}

#[test]
fn instructions_take_their_time() {
    assert_eq!(micros(16_000, 1.0, 16_000_000), 1_000);
    assert_eq!(micros(16_000, 1.3, 16_000_000), 1_300);
}
