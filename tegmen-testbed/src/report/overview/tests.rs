use super::*;

const PAPER: Paper = Paper { name: "A < B", title: "On comparisons" };

#[test]
fn every_class_of_verdicts_has_one_mark() {
    for place in 0..CLASSES.len() {
        let mut verdicts = [0; CLASSES.len()];
        verdicts[place] = 3;
        let counts: Vec<_> = GROUPS.iter().map(|group| group.of(&verdicts)).filter(|count| *count > 0).collect();
        assert_eq!(counts, [3], "{}", CLASSES[place]);
    }
}

#[test]
fn a_table_has_its_verdicts_a_link_and_the_color_of_the_worst() {
    let mut overview = Overview::default();
    overview.begin(PAPER, "plan");
    assert!(overview.count("fig9", EQUAL));
    assert!(!overview.count("fig9", "within 2 %"));
    assert!(!overview.count("fig9", "missed: at most 2 was the aim"));
    assert!(overview.count("first_try", "not judged: drawn"));
    let html = overview.html();
    assert!(html.contains("<h3>A &lt; B</h3>") && html.contains("4 rows in 2 tables"), "{html}");
    assert!(html.contains("<a class=\"missed\" href=\"#plan-fig9\">figure 9 <b>✓ 2</b> <b>✗ 1</b></a>"), "{html}");
    assert!(html.contains("<a class=\"soft\" href=\"#plan-first-try\">first try <b>· 1</b></a>"), "{html}");
}

#[test]
fn a_plan_without_results_is_named_with_its_command() {
    let mut overview = Overview::default();
    overview.begin(PAPER, "axiom");
    overview.deployment("loss", false, None);
    let html = overview.html();
    assert!(
        ["axiom", "loss"].iter().all(|name| html.contains(&format!("<code>tegmen lab run {name}</code>"))),
        "{html}"
    );
}

#[test]
fn deployments_of_the_reader_come_first() {
    let mut overview = Overview::default();
    overview.begin(PAPER, "plan");
    overview.deployment("loss", false, Some("99 %".into()));
    overview.deployment("own-barn", true, Some("98 %".into()));
    let html = overview.html();
    let place = |what: &str| html.find(what).expect("in the page");
    assert!(place("#own-barn") < place("On comparisons") && place("On comparisons") < place("#loss"), "{html}");
}
