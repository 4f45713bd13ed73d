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
    assert_eq!(judged, 6 + 1, "six medians of table III and one of figure 9");
    assert!(
        figures.iter().all(|figure| figure.ours.is_none() || figure.sample.is_some_and(|sample| sample.seeds == 2))
    );
    // What was not calibrated is near all the same.
    let of_ndn = ["ndn/median", "ndn/mean", "ndn_protected/median", "ndn_protected/mean"];
    for id in ["coap_protected/median", "oscore/median", "coap_dtls/median", "coap_dtls/mean"].iter().chain(&of_ndn) {
        let Figure { paper, ours, .. } = find(&format!("table3/{id}"));
        let ratio = ours.unwrap() / paper.unwrap();
        assert!((0.85..1.15).contains(&ratio), "{id}: {ratio}");
    }
    assert!(figures.iter().all(|figure| figure.ours.is_some()));
    assert!(find("fig9/single_hop/ndn/median").verdict.contains("table III"));
    for links in ["equal", "unequal", "unequal_bursty"] {
        let [least, most] = paper().fig9.success_percent["ndn_family"];
        let figure = find(&format!("fig9/multi_hop/{links}/ndn_protected/success"));
        assert_eq!(figure.paper, Some((least + most) / 2.0));
        assert!(figure.verdict.contains("92 to 97"), "{figure:?}");
    }
    assert_eq!(figures.iter().filter(|figure| figure.unit == "assertion").count(), 5 + 3);
}

#[test]
fn the_same_seeds_give_the_same_figures() {
    let effort = Effort { readings: 20, seeds: 1 };
    assert_eq!(figures(effort, |_, _| {}), figures(effort, |_, _| {}));
}
