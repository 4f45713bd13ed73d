//! Runs the examples of the libraries in the same way as a reader does. Each must end with exit code 0, or report what
//! it needs.

#[allow(dead_code, reason = "other tests put files beside the state of the TPM")]
#[path = "../../tegmen-trust/tests/swtpm/mod.rs"]
mod swtpm;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use swtpm::Swtpm;

/// The folders that contain examples.
const FOLDERS: [&str; 3] = ["tegmen/examples", "tegmen-host/examples", "tegmen-control/examples"];
/// Examples that end without input, with their arguments.
const RUN: [(&str, &[&str]); 16] = [
    ("tegmen/examples/bytes_over_dtls", &[]),
    ("tegmen/examples/in_memory", &[]),
    ("tegmen-host/examples/blocks", &[]),
    ("tegmen-host/examples/certificates", &[]),
    ("tegmen-host/examples/client_and_server", &[]),
    ("tegmen-host/examples/delegation", &[]),
    ("tegmen-host/examples/edhoc", &[]),
    ("tegmen-host/examples/group", &[]),
    ("tegmen-host/examples/observe", &[]),
    ("tegmen-host/examples/oscore", &[]),
    ("tegmen-host/examples/policy_and_keys", &[]),
    ("tegmen-host/examples/proxy", &[]),
    ("tegmen-host/examples/resumption", &[]),
    ("tegmen-control/examples/group_eviction", &["100"]),
    ("tegmen-control/examples/lights_group", &[]),
    // With a TPM, for which `an_example_without_a_tpm_names_the_next_step` has the other case.
    ("tegmen-host/examples/tpm", &[]),
];
/// Examples that need other programs or settings. Each has a part of the error message that it prints without
/// arguments.
const REFUSE: [(&str, &str); 4] = [
    ("tegmen-host/examples/gateway", "start the server at the second one"),
    ("tegmen-host/examples/light", "name the protections: plain, dtls, oscore=DIR"),
    ("tegmen-host/examples/publisher", "start a subscriber at the URI"),
    ("tegmen-control/examples/subscriber", "start an access control server"),
];
/// Examples that no test runs, with the reason.
const NOT_RUN: [(&str, &str); 3] = [
    ("tegmen/examples/timing", "the step timing of ci.sh runs it: it measures the optimized build"),
    ("tegmen-host/examples/blink_client", "it asks the server at the default port until somebody ends it"),
    ("tegmen-host/examples/blink_server", "it serves at the default port until somebody ends it"),
];
/// Maximum time for one example.
const LIMIT: Duration = Duration::from_secs(30);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the path of an example's program. Cargo builds it into the folder `examples` beside the folder of the tests.
fn program(example: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let name = format!("{}{}", example.rsplit('/').next().unwrap(), std::env::consts::EXE_SUFFIX);
    let program = test.ancestors().nth(2).unwrap().join("examples").join(name);
    let missing = "is missing; type: cargo build -p tegmen -p tegmen-host -p tegmen-control --examples";
    assert!(program.is_file(), "{} {missing}", program.display());
    program
}

/// Runs an example. Returns true if it ended with exit code 0, and its output.
fn run(example: &str, arguments: &[&str], tpm: Option<&str>) -> (bool, String) {
    let file = std::env::temp_dir().join(format!("tegmen-{}-{}", std::process::id(), example.replace('/', "-")));
    let output = std::fs::File::create(&file).unwrap();
    let mut command = Command::new(program(example));
    command.args(arguments).env("TEGMEN_TPM", tpm.unwrap_or("device:/dev/no-such-tpm")).env("TSS2_LOG", "all+NONE");
    command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
    let (begin, mut child) = (Instant::now(), command.spawn().unwrap());
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if begin.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = String::from_utf8_lossy(&std::fs::read(&file).unwrap()).into_owned();
    let _ = std::fs::remove_file(&file);
    println!("{example}: {} ms", begin.elapsed().as_millis());
    let status = status.unwrap_or_else(|| panic!("{example} did not end within {LIMIT:?}:\n{text}"));
    (status.success(), text)
}

#[test]
fn each_example_ends_with_exit_code_0() {
    let tpm = Swtpm::start("examples");
    let mut failed = String::new();
    for (example, arguments) in RUN {
        let (succeeded, text) = run(example, arguments, tpm.as_ref().map(|tpm| tpm.name.as_str()));
        let needs_tpm =
            example.ends_with("/tpm") && (tpm.is_none() || text.contains("built without support for a TPM"));
        if succeeded == needs_tpm {
            failed += &format!("{example}:\n{text}\n");
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

#[test]
fn an_example_without_a_tpm_names_the_next_step() {
    let (succeeded, text) = run("tegmen-host/examples/tpm", &[], None);
    let next = if text.contains("built without support") { "Install libtss2-dev" } else { "install swtpm" };
    assert!(!succeeded && text.contains(next), "{text}");
}

#[test]
fn an_example_without_its_arguments_names_them() {
    for (example, message) in REFUSE {
        let (succeeded, text) = run(example, &[], None);
        assert!(!succeeded && text.contains(message), "{example}:\n{text}");
    }
}

#[test]
fn each_file_in_a_folder_of_examples_is_in_one_list() {
    let mut files = BTreeSet::new();
    for folder in FOLDERS {
        for entry in root().join(folder).read_dir().unwrap() {
            let path = entry.unwrap().path();
            files.insert(format!("{folder}/{}", path.file_stem().unwrap().to_str().unwrap()));
        }
    }
    let listed =
        RUN.iter().map(|row| row.0).chain(REFUSE.iter().map(|row| row.0)).chain(NOT_RUN.iter().map(|row| row.0));
    let listed: Vec<_> = listed.map(str::to_owned).collect();
    let unique: BTreeSet<_> = listed.iter().cloned().collect();
    assert_eq!(unique.len(), listed.len(), "an example is in two lists");
    assert_eq!(files, unique, "the folders have the left ones, the lists of this test the right ones");
}

#[test]
fn the_page_about_the_library_lists_each_example() {
    let page = std::fs::read_to_string(root().join("docs/library.md")).unwrap();
    let all = RUN.iter().map(|row| row.0).chain(REFUSE.iter().map(|row| row.0));
    let missing: Vec<_> = all.filter(|example| !page.contains(&format!("(../{example}.rs)"))).collect();
    assert!(missing.is_empty(), "docs/library.md has no link to {missing:?}");
}
