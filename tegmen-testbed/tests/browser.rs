//! The report in a real browser: every plot is drawn, no label is cut, and the console stays silent.
//!
//! Without chromium the test says that it is skipped, and passes; `./ci.sh lab` installs it and so runs it. About a minute.

use std::path::Path;
use std::process::Command;
use tegmen_testbed::papers::axiom::{Change, Eviction, Joining, Rekeying, Repair};
use tegmen_testbed::papers::report;
use tegmen_testbed::papers::two_way::architecture::Messages;
use tegmen_testbed::plans;
use tegmen_testbed::runs::Store;

/// The times that chromium is started. A start of it may not end, whatever the page.
const STARTS: usize = 3;

/// The output and the console of chromium after it opened the page.
fn browse(page: &Path, options: &[&str]) -> (String, String) {
    for start in 0..STARTS {
        let profile = page.with_file_name(format!("profile-{start}"));
        let mut chromium = Command::new("timeout");
        chromium.args(["--kill-after", "5", "60", "chromium", "--headless", "--no-sandbox", "--disable-gpu"]);
        chromium.args(["--enable-logging=stderr", &format!("--user-data-dir={}", profile.display())]).args(options);
        let output = chromium.arg(format!("file://{}", page.display())).output().expect("timeout of coreutils");
        if output.status.success() {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            return (text(&output.stdout), text(&output.stderr));
        }
        println!("chromium: {}", output.status);
    }
    panic!("chromium did not open {} in {STARTS} starts of a minute each", page.display());
}

#[test]
fn the_report_opens_from_disk_with_all_its_plots() {
    if Command::new("chromium").arg("--version").output().is_err() {
        println!("skipped: chromium is not installed; type: apt-get install chromium");
        return;
    }
    let folder = std::env::temp_dir().join(format!("tegmen-browser-{}", std::process::id()));
    let plans: Vec<_> =
        plans::ALL[..2].iter().map(|named| (named.name.to_owned(), named.plan().expect("a plan"))).collect();
    let named = |name: &str| (name.as_bytes().to_vec(), vec![7; 32]);
    let messages = Messages {
        enrolment: named("enrol oven"),
        enrol: vec![1; 78],
        session: named("oven;AAECAwQFBgcICQoL"),
        introspection: [vec![2; 40], vec![3; 70]],
        token: [vec![4; 50], vec![5; 120]],
        server: named("access control server"),
        upload: vec![6; 200],
        revoked: vec![7; 40],
    };
    let change = Change { messages: vec![vec![1; 95]; 3], milliseconds: 1.0 };
    let eviction = Eviction { members: 4, key_tree: change.clone(), point_to_point: change.clone() };
    let repair =
        Repair { loss: 5, members: 999, messages: 11, missed: vec![(1, 98), (4, 1)], missed_point_to_point: 50 };
    let rekeying = Rekeying {
        evictions: vec![eviction],
        joining: Joining { session: [vec![1; 60], vec![2; 300]], messages: change.messages },
        repairs: vec![repair],
        answer: vec![3; 400],
    };
    let inputs = (plans.as_slice(), &messages, &rekeying);
    let page = report::write(&folder, &Store::none(), "test", 1, inputs, |_, _, _| {}).expect("a report");
    let html = std::fs::read_to_string(&page).expect("the page");
    for outside in ["http://", "https://", "<script", "@import", "src="] {
        let found = html.replace("http://www.w3.org/2000/svg", "").contains(outside);
        assert!(!found, "{outside} in the page: it is to stand alone");
    }
    // Every figure that lies beside the page is in it, and drawn: it has a size on a screen and on a phone.
    let figures = std::fs::read_dir(&folder).expect("the folder").flatten();
    let figures = figures.filter(|file| file.path().extension().is_some_and(|extension| extension == "svg")).count();
    assert!(figures >= 5, "{figures}");
    // No label is cut off by its picture or lies over another.
    for width in [1280, 390] {
        let probe = folder.join("probe.html");
        let script = "<script>addEventListener('load', () => { const drawn = [...document.querySelectorAll('svg')]\
            .filter(svg => svg.getBoundingClientRect().width > 250 && svg.getBBox().height > 100).length;\
            const wide = document.documentElement.scrollWidth > innerWidth + 1;\
            let cut = [], over = [];\
            for (const svg of document.querySelectorAll('svg')) {\
                const outer = svg.getBoundingClientRect();\
                const texts = [...svg.querySelectorAll('text')].filter(text => text.textContent);\
                const boxes = texts.map(text => text.getBoundingClientRect());\
                boxes.forEach((a, i) => {\
                    if (a.left < outer.left - 1 || a.right > outer.right + 1 || a.top < outer.top - 1\
                        || a.bottom > outer.bottom + 1) cut.push(texts[i].textContent);\
                    boxes.slice(i + 1).forEach((b, k) => {\
                        if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1\
                            && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2)\
                            over.push(texts[i].textContent + ' / ' + texts[i + 1 + k].textContent); }); }); }\
            document.title = `drawn ${drawn} wide ${wide} cut ${cut} over ${over}`; });</script></body>";
        std::fs::write(&probe, html.replace("</body>", script)).expect("a page");
        let size = format!("--window-size={width},900");
        let (dom, console) = browse(&probe, &["--dump-dom", &size, "--virtual-time-budget=2000"]);
        assert!(
            dom.contains(&format!("<title>drawn {figures} wide false cut  over </title>")),
            "at {width}: {}",
            dom.lines().find(|line| line.contains("<title>")).unwrap_or_default()
        );
        let errors: Vec<_> = console.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
    let _ = std::fs::remove_dir_all(&folder);
}
