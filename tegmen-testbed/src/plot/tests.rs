use super::*;

#[test]
fn axes_end_at_round_numbers() {
    assert_eq!(scale(97.0), (20.0, 100.0));
    assert_eq!(scale(0.31), (0.1, 0.4));
    assert_eq!(scale(0.0), (1.0, 1.0));
    assert_eq!([number(0.30000000000000004), number(20.0)], ["0.3", "20"]);
}

#[test]
fn every_point_and_bar_is_drawn_and_names_are_escaped() {
    let series = Series { name: "a < b".into(), points: vec![(0.0, 1.0, Some([0.5, 1.5])), (1.0, 2.0, None)] };
    let plot = lines("title & more", "x", "y", &[series]);
    assert_eq!(plot.matches("<circle").count(), 2);
    assert!(plot.contains("a &lt; b") && plot.contains("title &amp; more") && !plot.contains("NaN"));
    let bars = pairs("t", "y", ["paper", "ours"], &[("one".into(), 1.0, 2.0), ("two".into(), 0.0, 0.0)]);
    assert_eq!(bars.matches("<rect").count(), 4);
    assert_eq!(bars.matches("<path d=").count(), 2, "a line of the legend for each");
    assert!(!bars.contains("NaN"));
    assert!(!lines("empty", "x", "y", &[]).contains("NaN"));
}

#[test]
fn a_long_name_takes_more_lines_of_the_legend() {
    let name = "coap+dtls, network.link_addresses = extended, traffic.payload = 120, network.hops = 4";
    assert_eq!(wrapped(name).concat(), name);
    assert!(wrapped(name).iter().all(|line| line.trim_end().len() <= CHARACTERS));
    assert_eq!(wrapped("coap").len(), 1);
    let series = |name: &str| Series { name: name.into(), points: vec![(1.0, 1.0, None)] };
    let plot = lines("t", "x", "y", &[series(name), series("coap")]);
    assert!(
        plot.contains(">coap+dtls, network.link_addresses = extended, <") && plot.contains(">coap</text>"),
        "{plot}"
    );
}
