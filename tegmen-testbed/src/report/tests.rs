use super::*;

#[test]
fn a_report_has_every_section_and_its_files() {
    let folder = std::env::temp_dir().join(format!("tegmen-report-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut report = Report { folder: &folder, body: String::new(), contents: String::new() };
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
    assert!(report.body.contains("a &lt; b") && !report.body.contains("NaN"));
    let csv = fs::read_to_string(folder.join("test.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3 * 3);
    assert!(csv.lines().all(|line| line.split(',').count() == HEADER.len()), "{csv}");
    let _ = fs::remove_dir_all(&folder);
}
