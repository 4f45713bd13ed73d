//! Tests the report in a real browser, with the widths of a phone and of a desktop screen, and in light and dark
//! colors. Every plot must be drawn, no label may be cut or cover another label, all labels must be readable, and the
//! console must stay empty.
//!
//! Without chromium the tests print that they are skipped, and pass. `./ci.sh lab` installs chromium, and so runs them.
//! They take a few minutes.

mod chromium;

use chromium::{Screen, on_screens};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use tegmen_testbed::deployment::Plan;
use tegmen_testbed::papers::axiom::{Change, Eviction, Joining, Rekeying, Repair};
use tegmen_testbed::papers::plans::Inputs;
use tegmen_testbed::papers::report::{self, Content};
use tegmen_testbed::papers::two_way::architecture::Messages;
use tegmen_testbed::plot::{self, Series};
use tegmen_testbed::runs::{Store, parts};

const SCREENS: [Screen; 4] = [
    Screen { width: 390, dark: false },
    Screen { width: 390, dark: true },
    Screen { width: 1280, dark: false },
    Screen { width: 1280, dark: true },
];

/// A folder that is removed when this value is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tegmen-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns true if chromium is installed. Otherwise prints that the test is skipped.
fn browser() -> bool {
    let installed = chromium::is_installed();
    if !installed {
        println!("skipped: chromium is not installed; type: apt-get install chromium");
    }
    installed
}

/// Returns the faults that the script `labels.js` finds on each screen.
fn measure(page: &Path) -> Vec<(Screen, Value)> {
    let results = on_screens(page, &SCREENS, include_str!("labels.js"));
    let results = SCREENS.into_iter().zip(results).map(|(screen, (found, console))| {
        assert!(console.is_empty(), "{screen:?}: {console:?}");
        assert_eq!((&found["width"], &found["dark"]), (&json!(screen.width), &json!(screen.dark)), "emulated");
        (screen, found)
    });
    results.collect()
}

fn messages() -> Messages {
    let named = |name: &str| (name.as_bytes().to_vec(), vec![7; 32]);
    Messages {
        enrolment: named("enrol oven"),
        enrol: vec![1; 78],
        session: named("oven;AAECAwQFBgcICQoL"),
        introspection: [vec![2; 40], vec![3; 70]],
        token: [vec![4; 50], vec![5; 120]],
        server: named("access control server"),
        upload: vec![6; 200],
        revoked: vec![7; 40],
    }
}

fn rekeying() -> Rekeying {
    let change = Change { messages: vec![vec![1; 95]; 3], milliseconds: 1.0 };
    let eviction = Eviction { members: 4, key_tree: change.clone(), point_to_point: change.clone() };
    let repair =
        Repair { loss: 5, members: 999, messages: 11, missed: vec![(1, 98), (4, 1)], missed_point_to_point: 50 };
    Rekeying {
        evictions: vec![eviction],
        joining: Joining { session: [vec![1; 60], vec![2; 300]], messages: change.messages },
        repairs: vec![repair],
        answer: vec![3; 400],
    }
}

/// Writes a report with all papers and three deployments, each with few seeds. Returns the path of its page.
fn write(folder: &Path) -> PathBuf {
    let named = |name: &str| {
        let named = tegmen_testbed::plans::ALL.iter().find(|named| named.name == name).expect("a name");
        let mut plan = named.plan().expect("a plan");
        parts::set_seeds(&mut plan, &(1..=2));
        (name.to_owned(), plan)
    };
    // A map of many nodes.
    let own = "about = \"A barn of forty sensors around a gateway\"\n[network]\ntopology = \"star\"\nnodes = 40\nloss = 0.3\n\
               [traffic]\nperiod_s = 10.0\nreadings = 5\npayload = 12\n[run]\nseeds = 2\n";
    let own = [("own-barn".to_owned(), Plan::parse("barn.toml", own).expect("a plan"))];
    let plans = ["greenhouse", "loss", "bursts"].map(named);
    let inputs = Inputs { messages: &|| Ok(messages()), rekeying: &|| Ok(rekeying()) };
    let content = Content { commit: "test", seeds: 1, deployments: [&own, &plans], inputs: Some(&inputs) };
    report::write(folder, &Store::none(), &content, |_, _, _| {}).expect("a report")
}

#[test]
fn the_report_opens_from_disk_and_every_label_can_be_read_on_every_screen() {
    if !browser() {
        return;
    }
    let folder = Folder::new("browser");
    let page = write(&folder.0);
    let html = fs::read_to_string(&page).expect("the page");
    for outside in ["http://", "https://", "<script", "@import", "src="] {
        let found = html.replace("http://www.w3.org/2000/svg", "").contains(outside);
        assert!(!found, "{outside} in the page: it is to stand alone");
    }
    let links: BTreeSet<_> = html.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    for link in links {
        assert_eq!(html.matches(&format!("id=\"{link}\"")).count(), 1, "the link {link}");
    }
    // Every figure that lies beside the page is in it, and drawn: it has a size on a screen and on a phone.
    let figures = fs::read_dir(&folder.0).expect("the folder").flatten();
    let figures = figures.filter(|file| file.path().extension().is_some_and(|extension| extension == "svg")).count();
    assert!(figures >= 30, "{figures}");
    for (screen, found) in measure(&page) {
        assert_eq!(found["drawn"], figures, "{screen:?}");
        for fault in ["cut", "over", "faint", "small"] {
            assert_eq!(found[fault], json!([]), "{screen:?}: {fault}");
        }
    }
}

#[test]
fn a_figure_that_cannot_be_read_is_found_on_every_screen() {
    if !browser() {
        return;
    }
    let folder = Folder::new("browser-bad");
    let series = Series { name: "coap".into(), points: vec![(1.0, (1.0, None)), (2.0, (4.0, None))] };
    let good = plot::lines("A title", "seconds", "bytes", &[series]);
    let bad = |faults: &str| good.replace("</svg>", &format!("{faults}</svg>"));
    let figures = [
        good.clone(),
        bad("<text x=\"400\" y=\"200\">beyond the edge</text>"),
        bad("<text x=\"100\" y=\"200\">one label</text><text x=\"104\" y=\"203\">its neighbour</text>"),
        bad("<text x=\"100\" y=\"200\" style=\"fill:#777\">as grey as dusk</text>"),
        bad("<text x=\"100\" y=\"200\" font-size=\"5\">too small</text>"),
    ];
    let page = |figures: &[String]| {
        let file = folder.0.join("bad.html");
        let style = "<meta name=\"viewport\" content=\"width=device-width\"><style>body{margin:0}svg{width:100%;max-width:30rem}\
                     @media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}}</style>";
        let heading = if figures.len() > 1 { "<h2 style=\"width:50rem;margin-left:50rem\">far right</h2>" } else { "" };
        fs::write(&file, format!("<!doctype html><meta charset=\"utf-8\">{style}{heading}{}", figures.concat()))
            .expect("a page");
        file
    };
    for (screen, found) in measure(&page(&figures)) {
        let cut = json!(["beyond the edge", "the page is wider than the screen", "far right"]);
        assert_eq!(found["cut"], cut, "{screen:?}");
        assert_eq!(found["over"], json!(["one label / its neighbour"]), "{screen:?}");
        assert_eq!(found["faint"], json!(["as grey as dusk"]), "{screen:?}");
        assert_eq!(found["small"], json!(["too small"]), "{screen:?}");
    }
    for (screen, found) in measure(&page(&figures[..1])) {
        for fault in ["cut", "over", "faint", "small"] {
            assert_eq!(found[fault], json!([]), "{screen:?}: {fault}");
        }
    }
}
