use super::*;

#[test]
fn a_tag_is_found_by_its_digest() {
    let mut tags = Tags::default();
    let tag = tags.remember("W/\"5c3-1f\"").unwrap();
    assert_eq!(tags.find(&tag), Some("W/\"5c3-1f\""));
    assert_ne!(tags.remember("\"5c3-1f\"").unwrap(), tag);
    assert_eq!(tags.find(b"e1"), None);
    assert_eq!(tags.remember(&"a".repeat(257)), None);
}

#[test]
fn the_number_of_tags_is_bounded() {
    let mut tags = Tags::default();
    for number in 0..3 * MOST {
        tags.remember(&number.to_string());
        assert!(tags.0.len() <= MOST);
    }
}
