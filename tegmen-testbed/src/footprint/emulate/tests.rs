use super::*;

#[test]
fn a_line_of_the_plugin_is_read() {
    let (id, region) = region("region 3 count=2 instructions=200 loads=7 stores=9 stack=640").unwrap();
    assert_eq!((id, region.instructions, region.stack), (3, 200, 640));
}

#[test]
fn other_lines_are_refused() {
    for line in ["", "region", "region x count=1", "region 1 count=1 instructions=1", "region 1 count=one"] {
        assert!(region(line).is_none(), "{line}");
    }
}
