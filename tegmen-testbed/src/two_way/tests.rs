use super::*;
use crate::figure::EQUAL;

#[test]
fn what_follows_from_the_papers_own_figures_comes_out() {
    let figures = figures(Effort { readings: 8, seeds: 1 }, |_, _| {});
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", crate::figure::table(&figures));
    let table: Vec<_> = figures.iter().filter(|figure| figure.id.starts_with("table1/")).collect();
    assert_eq!(table.len(), 17 + 4);
    assert!(table.iter().all(|figure| figure.verdict == NEAR));
    let equal = figures.iter().filter(|figure| figure.verdict == EQUAL).count();
    assert_eq!(equal, 3 + 1 + 2, "the battery and its two lives, the overhead, both sums of memory");
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
    assert_eq!(near(String::new(), 100.0, 100.39, "mJ").verdict, NEAR);
    assert_eq!(near(String::new(), 100.0, 100.41, "mJ").verdict, DIFFERS);
}
