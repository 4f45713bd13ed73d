use super::*;
use crate::figure::{CLASSES, Figure};
use crate::papers::{axiom, blink, delegation, handshakes, objects, two_way, two_way::architecture};

#[test]
fn a_report_has_a_section_for_each_plan_of_a_paper() {
    let folder = std::env::temp_dir().join(format!("tegmen-papers-{}", std::process::id()));
    let mut report = Report::new(&folder).unwrap();
    let figures = |name: &str| -> Vec<Figure> {
        match name {
            "blink" => blink::paper::figures(),
            "blink-bytes" => blink::figures(),
            "objects-bytes" => objects::bytes::figures(),
            "objects-delay" => objects::delay::figures(objects::delay::Effort { readings: 30, seeds: 1 }, |_, _| {}),
            "objects-creation" => objects::creation::figures(),
            "objects-discovery" => {
                objects::discovery::figures(objects::discovery::Effort { links: 10, ..objects::discovery::FULL })
            }
            "objects-cache" => objects::caches::figures(objects::caches::Effort { requests: 5, seeds: 1 }, |_, _| {}),
            "handshakes" => handshakes::figures(),
            "delegation" => delegation::figures(delegation::Effort { seeds: 1, peers: &[2], devices: 4 }, |_, _| {}),
            "two-way" => two_way::figures(two_way::Effort { readings: 4, seeds: 1 }, |_, _| {}),
            "two-way-architecture" => {
                let effort = architecture::Effort { seeds: 1 };
                architecture::figures(&architecture::tests::messages(), effort, |_, _| {})
            }
            "axiom" => axiom::tests::FIGURES.clone(),
            other => panic!("{other} has no figures here"),
        }
    };
    for plan in plans::ALL {
        report.begin(plan.paper, plan.name, plan.title);
        (plan.section)(&mut report, &figures(plan.name)).unwrap();
        report.end();
    }
    assert_eq!(report.body.matches("<svg").count(), 22);
    let verdicts = |plan: &str, table: &str| {
        let verdicts = report.overview.verdicts(plan, table).unwrap();
        CLASSES.into_iter().zip(verdicts).filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!(verdicts("blink", "derived"), [("paper agrees with itself", 4)]);
    assert_eq!(verdicts("objects-bytes", "table2"), [("equal", 40), ("not judged", 1)]);
    let page = std::fs::read_to_string(report.finish("a commit", &[]).unwrap()).unwrap();
    assert!(page.contains("href=\"#two-way-table1\">table 1 ") && !page.contains("NaN"), "{page}");
    let _ = std::fs::remove_dir_all(&folder);
}

#[test]
fn without_inputs_nothing_is_computed_and_each_plan_is_named_with_its_command() {
    let folder = std::env::temp_dir().join(format!("tegmen-papers-none-{}", std::process::id()));
    let deployments: Vec<_> =
        crate::plans::ALL.iter().map(|named| (named.name.to_owned(), named.plan().unwrap())).collect();
    let content = Content { commit: "a commit", seeds: 1, deployments: [&[], &deployments], inputs: None };
    let page = write(&folder, &Store::none(), &content, |name, _, _| panic!("{name} is computed")).unwrap();
    let page = std::fs::read_to_string(page).unwrap();
    for name in plans::ALL.iter().map(|plan| plan.name).chain([NS3, "loss"]) {
        assert!(page.contains(&format!("<code>tegmen lab run {name}</code>")), "{name}: {page}");
    }
    assert!(!page.contains("<svg"));
    let _ = std::fs::remove_dir_all(&folder);
}
