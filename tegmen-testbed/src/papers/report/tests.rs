use super::*;
use crate::figure::CLASSES;

#[test]
fn a_report_has_a_section_for_each_paper() {
    let folder = std::env::temp_dir().join(format!("tegmen-papers-{}", std::process::id()));
    let mut report = Report::new(&folder).unwrap();
    blink(&mut report, &paper::figures()).unwrap();
    objects_bytes(&mut report, &objects::bytes::figures()).unwrap();
    objects_creation(&mut report, &objects::creation::figures()).unwrap();
    handshakes(&mut report, &handshakes::figures()).unwrap();
    let effort = delegation::Effort { seeds: 1, peers: &[2], devices: 4 };
    delegation(&mut report, &delegation::figures(effort, |_, _| {})).unwrap();
    two_way(&mut report, &two_way::figures(two_way::Effort { readings: 4, seeds: 1 }, |_, _| {})).unwrap();
    let effort = architecture::Effort { seeds: 1 };
    two_way_architecture(&mut report, &architecture::figures(&architecture::tests::messages(), effort, |_, _| {}))
        .unwrap();
    axiom(&mut report, &axiom::tests::FIGURES).unwrap();
    let effort = objects::delay::Effort { readings: 30, seeds: 1 };
    objects_delay(&mut report, &objects::delay::figures(effort, |_, _| {})).unwrap();
    let effort = objects::caches::Effort { requests: 5, seeds: 1 };
    objects_cache(&mut report, &objects::caches::figures(effort, |_, _| {})).unwrap();
    assert_eq!(report.body.matches("<svg").count(), 18);
    let matrix = report.matrix();
    let row = |paper: &str, table: &str| {
        let row = report.counts.iter().find(|counted| counted.paper == paper && counted.table == table).unwrap();
        CLASSES.into_iter().zip(row.verdicts).filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!(row("The Blink paper", "derived"), [("paper agrees with itself", 4)]);
    assert_eq!(row("Content objects", "table2"), [("equal", 40), ("not judged", 1)]);
    assert!(matrix.contains("<td><a href=\"#two-way\">table1</a></td>"), "{matrix}");
    assert!(!report.body.contains("NaN"));
    let _ = std::fs::remove_dir_all(&folder);
}
