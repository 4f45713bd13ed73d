use super::*;
use crate::runs::{self, Store};

#[test]
fn a_report_has_a_section_and_a_file_for_each_plan() {
    let folder = std::env::temp_dir().join(format!("tegmen-report-{}", std::process::id()));
    let mut report = Report::new(&folder).unwrap();
    let text = "about = \"a < b\"\n[network]\ntopology = \"chain\"\nhops = 1\n[traffic]\nperiod_s = 1.0\npayload = 4\n\
                    readings = 4\n[run]\nseeds = 2\n[sweep]\n\"network.hops\" = [1, 2, 3]\n";
    let plan = Plan::parse("test.toml", text).unwrap();
    let summaries = runs::run(&plan, &Store::none(), |_, _| {});
    report.plan("test", &plan, summaries).unwrap();
    assert_eq!(report.body.matches("<svg").count(), FIGURES.len());
    assert!(report.body.contains("a &lt; b") && !report.body.contains("NaN"));
    let csv = fs::read_to_string(folder.join("test.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3 * 3);
    assert!(csv.lines().all(|line| line.split(',').count() == HEADER.len()), "{csv}");
    let page = report.finish("a commit", &[("test".into(), plan)]).unwrap();
    assert!(fs::read_to_string(page).unwrap().contains("<h2>a &lt; b</h2>"));
    assert!(fs::read_to_string(folder.join("manifest.json")).unwrap().contains("\"a commit\""));
    let _ = fs::remove_dir_all(&folder);
}
