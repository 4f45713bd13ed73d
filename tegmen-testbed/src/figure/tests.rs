use super::*;

#[test]
fn arithmetic_on_the_papers_own_numbers_is_never_ours() {
    let figure = Figure::follows("table1/energy".into(), 100.0, 100.3, "mJ", 0.4);
    assert_eq!((figure.ours, figure.derived, figure.source), (None, Some(100.3), Some(Source::Paper)));
    assert_eq!(figure.verdict, CONSISTENT);
    let json = serde_json::to_value(&figure).unwrap();
    assert_eq!((&json["source"], &json["ours"]), (&"paper".into(), &serde_json::Value::Null));
    assert!(table(&[figure]).contains("paper agrees with itself (100.30 follows"));
    assert_eq!(Figure::follows("x".into(), 100.0, 100.5, "mJ", 0.4).verdict, DIFFERS);
    let held = Figure::holds("x".into(), true, "it is shorter").of(Source::Paper);
    assert_eq!((held.ours, held.verdict.as_str()), (None, "paper agrees with itself: it is shorter"));
}

#[test]
fn a_sample_says_its_size_its_seeds_and_its_interval() {
    let mean = crate::interval::mean(&[9.0, 10.0, 11.0]);
    let figure = Figure::shown("x".into(), None, 10.0, "ms", "drawn").sampled(300, 3, &mean);
    let json = serde_json::to_value(&figure).unwrap();
    assert_eq!((&json["n"], &json["seeds"], &json["source"]), (&300.into(), &3.into(), &"simulated".into()));
    assert!(json["interval"][0].as_f64().unwrap() < 8.0, "{json}");
}

#[test]
fn every_verdict_has_a_class() {
    let class_of = |figure: Figure| CLASSES[class(&figure.verdict)];
    assert_eq!(class_of(Figure::near("x".into(), 100.0, 109.0, "ms", 10.0)), WITHIN);
    assert_eq!(class_of(Figure::near("x".into(), 100.0, 111.0, "ms", 10.0)), DIFFERS);
    assert_eq!(class_of(Figure::shown("x".into(), None, 1.0, "ms", "drawn")), "not judged");
    assert_eq!(class_of(Figure::equal("x".into(), 1.0, 2.0, "ms")), DIFFERS);
}
