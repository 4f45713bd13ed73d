use super::canvas::{width, wrapped};
use super::scale::{Scale, number};
use super::*;

#[test]
fn axes_end_at_round_numbers() {
    assert_eq!(Scale::linear(97.0), Scale::Linear { step: 20.0, end: 100.0 });
    assert_eq!(Scale::linear(0.31), Scale::Linear { step: 0.1, end: 0.4 });
    assert_eq!(Scale::linear(0.0), Scale::Linear { step: 1.0, end: 1.0 });
    assert_eq!(Scale::powers(7.0, 93_000.0), Scale::Powers { first: 0, last: 5 });
    assert_eq!(Scale::powers(10.0, 10.0), Scale::Powers { first: 1, last: 2 });
    assert_eq!(Scale::powers(10.0, 1000.0).place(100.0), 0.5);
}

#[test]
fn labels_have_the_digits_of_their_step() {
    let labels = |scale: Scale| scale.marks().into_iter().map(|(_, text)| text).collect::<Vec<_>>();
    assert_eq!(labels(Scale::linear(0.0009)), ["0", "0.0002", "0.0004", "0.0006", "0.0008", "0.001"]);
    assert_eq!(labels(Scale::linear(97.0)), ["0", "20", "40", "60", "80", "100"]);
    assert_eq!(labels(Scale::powers(0.5, 20.0)), ["0.1", "1", "10", "100"]);
    assert_eq!(labels(Scale::powers(12.0, 900.0)), ["10", "20", "50", "100", "200", "500", "1000"]);
    assert_eq!([number(20_000.0, 5_000.0), number(12_500.0, 100.0), number(3e7, 1e7)], ["20 k", "12.5 k", "30 M"]);
}

#[test]
fn every_point_and_bar_is_drawn_and_names_are_escaped() {
    let series = Series { name: "a < b".into(), points: vec![(0.0, (1.0, Some([0.5, 1.5]))), (1.0, (2.0, None))] };
    let plot = lines("title & more", "x", "y", &[series]);
    assert_eq!(plot.matches("<circle").count(), 2);
    assert!(plot.contains("a &lt; b") && plot.contains("title &amp; more") && !plot.contains("NaN"));
    let rows =
        [Bars::pair("one", 1.0, 2.0), Bars { name: "two".into(), values: vec![(0.0, None), (3.0, Some([1.0, 4.0]))] }];
    let plot = bars("t", "y", &["paper", "ours"], &rows);
    assert_eq!(plot.matches("</title></rect>").count(), 4);
    assert_eq!(plot.matches("class=\"range\"").count(), 1);
    assert!(!plot.contains("NaN"));
    assert!(!lines("empty", "x", "y", &[]).contains("NaN"));
    assert!(!bars("empty", "x", &[], &[]).contains("NaN"));
    assert!(!distribution("empty", "x", "y", &[]).contains("NaN"));
}

#[test]
fn a_distribution_rises_by_steps_and_ends_at_the_right() {
    let series = Series { name: "coap".into(), points: vec![(10.0, (0.5, None)), (100.0, (0.9, None))] };
    let plot = distribution("t", "ms", "share", &[series]);
    let points = plot.split_once("points=\"").and_then(|(_, rest)| rest.split_once('"')).expect("a line").0;
    assert_eq!(points.split(' ').count(), 5, "{points}");
    assert!(points.contains(" 370.0,"), "{points}");
}

#[test]
fn a_long_name_takes_more_lines() {
    let name = "coap+dtls, network.link_addresses = extended, traffic.payload = 120, network.hops = 4";
    assert_eq!(wrapped(name, 200.0).concat(), name);
    assert!(wrapped(name, 200.0).iter().all(|line| width(line.trim_end()) <= 200.0));
    assert_eq!(wrapped("coap", 200.0).len(), 1);
    let word = "m".repeat(100);
    assert!(wrapped(&word, 200.0).iter().all(|line| width(line) <= 200.0) && wrapped(&word, 200.0).concat() == word);
    let series = |name: &str| Series { name: name.into(), points: vec![(1.0, (1.0, None))] };
    let plot = lines("t", "x", "y", &[series(name), series("coap")]);
    assert!(plot.contains(">coap</text>") && !plot.contains(&format!(">{name}</text>")), "{plot}");
}

#[test]
fn a_map_has_a_ring_for_each_hop_and_the_color_of_each_share() {
    let node = |parent, answered| Node { parent, answered };
    let nodes = [node(0, None), node(0, Some(1.0)), node(0, Some(0.5)), node(1, Some(0.93))];
    let plot = map("t", &nodes);
    for (class, name) in
        [("m0", "node 1: 100.0 %"), ("m4", "node 2: 50.0 %"), ("m2", "node 3: 93.0 %"), ("node", "node 0")]
    {
        let found = plot.lines().any(|line| line.contains(&format!("class=\"{class}\"")) && line.contains(name));
        assert!(found, "{name}: {plot}");
    }
    assert_eq!(plot.matches("class=\"axis\"").count(), nodes.len());
    assert!(!plot.contains("NaN"));
}

#[test]
fn a_map_of_a_thousand_nodes_has_dots_without_numbers_and_a_row_has_them_in_line() {
    let star: Vec<_> = (0..1000).map(|_| Node { parent: 0, answered: Some(1.0) }).collect();
    let plot = map("t", &star);
    assert_eq!((plot.matches("<title>node ").count(), plot.contains(">17</text>")), (1000, false));
    let row: Vec<_> = (0..4_usize).map(|n| Node { parent: n.saturating_sub(1), answered: None }).collect();
    let plot = map("t", &row);
    let heights: Vec<_> = plot.split("cy=\"").skip(1).take(4).map(|rest| rest.split('"').next()).collect();
    assert!(heights.windows(2).all(|pair| pair[0] == pair[1]) && plot.contains(">3</text>"), "{plot}");
}
