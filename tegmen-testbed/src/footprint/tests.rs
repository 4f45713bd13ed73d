use super::*;

#[test]
fn numbers_are_grouped_by_thousands() {
    assert_eq!([0, 999, 1000, 1234567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
}
