use super::*;

#[test]
fn a_report_has_every_section_and_its_files() {
    let folder = std::env::temp_dir().join(format!("tegmen-report-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut report = Report::new(&folder);
    report.blink(&paper::figures()).unwrap();
    report.objects_bytes(&objects::bytes::figures()).unwrap();
    report.objects_creation(&objects::creation::figures()).unwrap();
    report.handshakes(&handshakes::figures()).unwrap();
    report.two_way(&two_way::figures(two_way::Effort { readings: 4, seeds: 1 }, |_, _| {})).unwrap();
    let effort = objects::delay::Effort { readings: 30, seeds: 1 };
    report.objects_delay(&objects::delay::figures(effort, |_, _| {})).unwrap();
    let text = "about = \"a < b\"\n[network]\ntopology = \"chain\"\nhops = 1\n[traffic]\nperiod_s = 1.0\npayload = 4\n\
                    readings = 4\n[run]\nseeds = 2\n[sweep]\n\"network.hops\" = [1, 2, 3]\n";
    let plan = Plan::parse("test.toml", text).unwrap();
    let summaries = runs::run(&plan, &Store::none(), |_, _| {});
    report.plan("test", &plan, summaries).unwrap();
    assert_eq!(report.body.matches("<svg").count(), 8 + FIGURES.len());
    let matrix = report.matrix();
    let row = |paper: &str, table: &str| {
        let row = report.counts.iter().find(|counted| counted.paper == paper && counted.table == table).unwrap();
        CLASSES.into_iter().zip(row.verdicts).filter(|(_, count)| *count > 0).collect::<Vec<_>>()
    };
    assert_eq!(row("The Blink paper", "derived"), [("paper agrees with itself", 4)]);
    assert_eq!(row("Content objects", "table2"), [("equal", 30), ("not measured", 10)]);
    assert!(matrix.contains("<td><a href=\"#two-way\">table1</a></td>"), "{matrix}");
    assert!(report.body.contains("a &lt; b") && !report.body.contains("NaN"));
    let csv = fs::read_to_string(folder.join("test.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3 * 3);
    assert!(csv.lines().all(|line| line.split(',').count() == HEADER.len()), "{csv}");
    let _ = fs::remove_dir_all(&folder);
}
