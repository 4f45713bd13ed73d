use super::*;
use crate::figure::DIFFERS;

#[test]
fn what_the_paper_says_of_delays_holds() {
    let figures = figures(Effort { readings: 150, seeds: 2 }, |_, _| {});
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", crate::figure::table(&figures));
    let find = |id: &str| figures.iter().find(|figure| figure.id == id).unwrap();
    let median = find("table3/coap/median");
    assert!((median.ours.unwrap() / median.paper.unwrap() - 1.0).abs() < 0.02, "{median:?}");
    assert!(median.verdict.ends_with("calibrated"));
    assert_eq!(figures.iter().filter(|figure| figure.verdict.ends_with("calibrated")).count(), 2);
    let judged = figures.iter().filter(|figure| figure.verdict == "within 10 %").count();
    assert_eq!(judged, 4 + 1, "four medians of table III and one of figure 9");
    assert!(
        figures.iter().all(|figure| figure.ours.is_none() || figure.sample.is_some_and(|sample| sample.seeds == 2))
    );
    // What was not calibrated is near all the same.
    for id in ["coap_protected/median", "oscore/median", "coap_dtls/median", "coap_dtls/mean"] {
        let Figure { paper, ours, .. } = find(&format!("table3/{id}"));
        let ratio = ours.unwrap() / paper.unwrap();
        assert!((0.85..1.15).contains(&ratio), "{id}: {ratio}");
    }
    assert!(find("table3/ndn/median").ours.is_none());
    assert_eq!(figures.iter().filter(|figure| figure.unit == "assertion").count(), 5);
}

#[test]
fn the_same_seeds_give_the_same_figures() {
    let effort = Effort { readings: 20, seeds: 1 };
    assert_eq!(figures(effort, |_, _| {}), figures(effort, |_, _| {}));
}
