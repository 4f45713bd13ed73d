use super::*;
use crate::figure::{CONSISTENT, EQUAL};

#[test]
fn all_bytes_are_equal_and_no_figure_differs() {
    let figures = figures();
    let bytes: Vec<_> = figures.iter().filter(|f| f.id.starts_with("table2/") || f.id.starts_with("table3/")).collect();
    assert_eq!(bytes.len(), 26);
    for figure in bytes {
        assert_eq!(figure.verdict, EQUAL, "{figure:?}");
    }
    // Tables IV and V, and what is derived from them, follow from the paper's own measurement of its board.
    let own = figures.iter().filter(|figure| figure.source == Some(Source::Paper));
    let (all, ours) = own.fold((0, 0), |(all, ours), figure| (all + 1, ours + usize::from(figure.ours.is_some())));
    assert_eq!((all, ours), (52, 0));
    let differing: Vec<_> = figures.iter().filter(|figure| figure.verdict == DIFFERS).collect();
    assert!(differing.is_empty(), "{differing:?}");
}

#[test]
fn three_figures_of_the_paper_are_misprints_and_each_is_one() {
    let paper = paper();
    assert_eq!(paper.misprints.len(), 3);
    let figures = figures();
    for (id, misprint) in &paper.misprints {
        let named = figures.iter().any(|f| f.id.starts_with(id) && f.verdict.starts_with(MISPRINT));
        assert!(named, "{id}");
        // What fits makes the row whole.
        let rows = if id.starts_with("table4") { &paper.table4 } else { &paper.table5 };
        let row = rows[id.split_once('/').unwrap().1];
        let (ms, kticks) = match misprint.field.as_str() {
            "ms" => (misprint.fits, row.kticks),
            _ => (row.ms, misprint.fits),
        };
        // The paper cuts microjoules to whole ones: 88.8 is printed as 88.
        let energy = 98.668 * ms;
        let within = |printed: f64, derived: f64| (derived / printed - 1.0).abs() <= PERCENT / 100.0;
        assert!(within(row.uj, energy) || row.uj == energy.floor(), "{id}: {energy}");
        assert!(within(kticks, ms * 16.0), "{id}");
    }
    let energies = figures.iter().filter(|f| f.id.ends_with("/energy")).count();
    assert_eq!(energies, 24);
}

#[test]
fn a_figure_that_is_off_is_told() {
    let follows = |derived| Figure::follows("x".into(), 266.0, derived, "uJ", PERCENT).verdict;
    assert!(follows(266.4) == CONSISTENT && follows(268.0) == DIFFERS);
    assert_eq!(Figure::equal("x".into(), 30.0, 31.0, "bytes").verdict, DIFFERS);
}
