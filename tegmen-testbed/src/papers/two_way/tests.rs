use super::*;
use crate::figure::{CONSISTENT, DIFFERS};

#[test]
fn what_follows_from_the_papers_own_figures_comes_out() {
    let figures = figures(Effort { readings: 8, seeds: 1 }, |_, _| {});
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", crate::figure::table(&figures));
    let table: Vec<_> = figures.iter().filter(|figure| figure.id.starts_with("table1/")).collect();
    assert_eq!(table.len(), 17 + 4);
    let own = figures.iter().filter(|figure| figure.verdict.starts_with(CONSISTENT)).count();
    assert_eq!(
        own,
        21 + 3 + 1 + 2 + 1,
        "table I, the battery and its two lives, the overhead, sums of memory, figure 7"
    );
    let paper: Vec<_> = figures.iter().filter(|figure| figure.source == Some(Source::Paper)).collect();
    assert!(paper.len() > own && paper.iter().all(|figure| figure.ours.is_none()), "{paper:?}");
    let simulated: Vec<_> = figures.iter().filter(|figure| figure.source == Some(Source::Simulated)).collect();
    assert!(simulated.len() > 90 && simulated.iter().all(|figure| figure.sample.is_some()));
}

#[test]
fn records_have_what_the_paper_counts_and_one_byte_more() {
    let added = |len: usize| Protection::Aes128Sha1.record_len(len) - len;
    assert_eq!((0..300).map(added).min(), Some(50));
    assert_eq!((0..300).map(added).max(), Some(65));
    assert_eq!(Protection::Sha1Only.record_len(7), 40);
}

#[test]
fn an_energy_that_is_not_the_papers_is_found() {
    let follows = |derived| Figure::follows(String::new(), 100.0, derived, "mJ", PERCENT).verdict;
    assert_eq!((follows(100.39), follows(100.41)), (CONSISTENT.into(), DIFFERS.into()));
}
