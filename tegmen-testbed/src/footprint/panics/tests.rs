use super::*;

#[test]
fn only_branches_from_outside_into_panics_count() {
    let listing = "
000003c0 <_RNvNtCs7G4yoljm9JZ_6tegmen3buf4copy>:
     3c0:\tb510      \tpush\t{r4, lr}
     3c2:\tf000 f8a1 \tbl\t508 <_RNvNtNtCs7G4yoljm9JZ_4core5slice5index16slice_index_fail>
     3c6:\te7fe      \tb.n\t3c6 <_RNvNtCs7G4yoljm9JZ_6tegmen3buf4copy+0x6>
00000508 <_RNvNtNtCs7G4yoljm9JZ_4core5slice5index16slice_index_fail>:
     508:\tf000 f8a1 \tbl\t600 <_RNvNtCs7G4yoljm9JZ_4core9panicking9panic_fmt>
";
    assert_eq!(branches(listing), [("3c2".into(), "core::slice::index::slice_index_fail".into())]);
}
