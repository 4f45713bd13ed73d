use super::*;

#[test]
fn the_id_of_a_deleted_key_and_the_id_of_its_event_are_both_printed() {
    let deleted = json!({ "change": "key-deleted", "id": "9e92" });
    assert_eq!(with_id(&deleted, Some("4")), json!({ "change": "key-deleted", "id": "4", "key": { "id": "9e92" } }));
    let removed = json!({ "change": "device-removed", "name": "oven" });
    assert_eq!(with_id(&removed, Some("5")), json!({ "change": "device-removed", "id": "5", "name": "oven" }));
}
