use super::*;
use crate::deployment::Plan;
use crate::runs::{self, Store};

#[test]
fn a_report_has_a_section_and_a_file_for_each_plan() {
    let folder = std::env::temp_dir().join(format!("tegmen-report-{}", std::process::id()));
    let mut report = Report::new(&folder).unwrap();
    let text = "about = \"a < b\"\n[network]\ntopology = \"chain\"\nhops = 1\n[traffic]\nperiod_s = 1.0\npayload = 4\n\
                    readings = 4\n[run]\nseeds = 2\n[sweep]\n\"network.hops\" = [1, 2, 3]\n";
    let plan = Plan::parse("test.toml", text).unwrap();
    let summaries = runs::run(&plan, &Store::none(), |_, _| {});
    report.plan("test", true, &plan, summaries).unwrap();
    assert_eq!(report.body.matches("<svg").count(), 3 + 1, "three figures over the hops, and the delays");
    assert!(report.body.contains("a &lt; b") && !report.body.contains("NaN"));
    let csv = fs::read_to_string(folder.join("test.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 3 * 3);
    assert!(csv.lines().all(|line| line.split(',').count() == 27), "{csv}");
    let page = fs::read_to_string(report.finish("a commit", &["test"]).unwrap()).unwrap();
    assert!(
        page.contains("<h2>a &lt; b</h2>") && page.contains("<a href=\"#test\">test</a>: a &lt; b. 9 cases"),
        "{page}"
    );
    assert!(fs::read_to_string(folder.join("manifest.json")).unwrap().contains("\"a commit\""));
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn a_deployment_of_several_nodes_has_bars_and_a_map_for_each_protection() {
    let folder = std::env::temp_dir().join(format!("tegmen-report-map-{}", std::process::id()));
    let mut report = Report::new(&folder).unwrap();
    let text = "about = \"a star\"\n[network]\ntopology = \"star\"\nnodes = 3\n[traffic]\nperiod_s = 1.0\npayload = 4\n\
                    readings = 4\n[stack]\nprotections = [\"coap\", \"oscore\"]\n[run]\nseeds = 2\n";
    let plan = Plan::parse("test.toml", text).unwrap();
    let summaries = runs::run(&plan, &Store::none(), |_, _| {});
    report.plan("test", false, &plan, summaries).unwrap();
    for file in ["delivered", "delay", "energy", "delays", "nodes-coap", "nodes-oscore"] {
        let svg = fs::read_to_string(folder.join(format!("test-{file}.svg"))).unwrap_or_else(|_| panic!("{file}"));
        assert!(svg.starts_with("<svg") && !svg.contains("NaN"), "{svg}");
    }
    let map = fs::read_to_string(folder.join("test-nodes-coap.svg")).unwrap();
    assert_eq!(map.matches("<title>node ").count(), 1 + 3);
    let _ = fs::remove_dir_all(&folder);
}

#[test]
fn the_first_row_of_each_table_has_an_id_that_the_overview_links() {
    let folder = std::env::temp_dir().join(format!("tegmen-report-id-{}", std::process::id()));
    let mut report = Report::new(&folder).unwrap();
    report.begin(Paper { name: "P", title: "A paper" }, "plan", "Its plan");
    let figure = |id: &str| Figure::equal(id.into(), 1.0, 1.0, "bytes");
    report.figures(&[figure("table1/a"), figure("table1/b"), figure("fig2/a")]).unwrap();
    report.end();
    let page = fs::read_to_string(report.finish("a commit", &["plan"]).unwrap()).unwrap();
    for id in ["plan-table1", "plan-fig2"] {
        assert_eq!(page.matches(&format!("<tr id=\"{id}\">")).count(), 1, "{page}");
        assert_eq!(page.matches(&format!("href=\"#{id}\"")).count(), 1);
    }
    let _ = fs::remove_dir_all(&folder);
}
