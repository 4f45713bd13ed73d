use super::*;
use crate::figure::DIFFERS;

#[test]
fn what_the_paper_says_of_sending_again_holds() {
    let figures = figures();
    assert!(figures.iter().all(|figure| figure.verdict != DIFFERS), "{}", crate::figure::table(&figures));
    let ours = |id: &str| figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours).unwrap();
    let least = ours("fig11/oscore/first/time_least");
    assert!((ours("fig11/oscore/first/time_most") / least - 1.3).abs() < 0.01);
    assert_eq!(ours("fig11/coap/first/instructions"), ours("fig11/coap_protected/first/instructions"));
    assert!(figures.iter().all(|figure| figure.ours.is_some()));
    assert!(ours("fig11/ndn/again/instructions") < ours("fig11/ndn/first/instructions") / 2.0);
    assert_eq!(figures.iter().filter(|figure| figure.unit == "assertion").count(), 5);
    let is_estimated = |figure: &&crate::figure::Figure| figure.source == Some(crate::figure::Source::Estimated);
    assert!(figures.iter().filter(is_estimated).all(|figure| figure.id.contains("ndn")));
    assert_eq!(figures.iter().filter(is_estimated).count(), 6 + 2);
}
