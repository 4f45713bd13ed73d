//! Tests `tegmen lab`: the merging of partial results, and a run that is stopped.
#![cfg(unix)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A deployment whose computation is long enough to be stopped halfway. It has 24 runs of a tenth of a second each
/// without optimisation.
const DEPLOYMENT: &str = r#"about = "six motes in the rain"
[network]
topology = "star"
nodes = 6
bursts = "fading"
[traffic]
period_s = 2.0
readings = 80
payload = 12
[stack]
protections = ["coap+dtls"]
[run]
seeds = 24
"#;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("tegmen-lab-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("rain.toml"), DEPLOYMENT).unwrap();
        Self(folder)
    }

    fn lab(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        command.arg("lab").args(args).current_dir(&self.0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.lab(args).output().unwrap()
    }

    fn kept(&self) -> Vec<(PathBuf, std::time::SystemTime)> {
        let Ok(entries) = fs::read_dir(self.0.join("target/lab/runs")) else { return Vec::new() };
        let files = entries.map(|entry| entry.unwrap().path());
        let whole = files.filter(|file| file.extension().is_some_and(|end| end == "json"));
        let mut kept: Vec<_> =
            whole.map(|file| (file.clone(), fs::metadata(&file).unwrap().modified().unwrap())).collect();
        kept.sort();
        kept
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn what_is_interrupted_keeps_what_is_done_and_computes_the_rest() {
    let folder = Folder::new("interrupt");
    let mut child = folder.lab(&["run", "rain.toml"]).spawn().unwrap();
    let begin = Instant::now();
    while folder.kept().len() < 3 {
        assert!(begin.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none(), "it runs");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    assert!(!child.wait().unwrap().success());
    let before = folder.kept();
    assert!((3..24).contains(&before.len()), "{} runs were done", before.len());

    let again = folder.run(&["run", "rain.toml", "--out", "rest.csv"]);
    let said = text(&again.stdout);
    assert!(again.status.success() && said.contains(&format!("{} of 24 runs were kept", before.len())), "{said}");
    let after = folder.kept();
    assert!(after.len() == 24 && before.iter().all(|kept| after.contains(kept)), "those were not written again");

    let fresh = folder.run(&["run", "rain.toml", "--out", "fresh.csv", "--runs", "elsewhere"]);
    assert!(fresh.status.success());
    let read = |name: &str| fs::read_to_string(folder.0.join(name)).unwrap();
    assert_eq!(read("rest.csv"), read("fresh.csv"));
}

#[test]
fn an_interrupt_says_how_many_runs_are_kept_and_where() {
    let folder = Folder::new("stopped");
    let mut child = folder.lab(&["run", "rain.toml"]).spawn().unwrap();
    let begin = Instant::now();
    while folder.kept().len() < 3 {
        assert!(begin.elapsed() < Duration::from_secs(120) && child.try_wait().unwrap().is_none(), "it runs");
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("of 24 runs are finished and kept in target/lab/runs"), "{said}");
}

#[test]
fn runs_that_cannot_be_kept_are_refused_before_they_are_computed() {
    let folder = Folder::new("unusable");
    fs::write(folder.0.join("file"), "not a folder").unwrap();
    let output = folder.run(&["run", "rain.toml", "--runs", "file/runs"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--runs file/runs") && said.contains("name a folder that can be written"), "{said}");
}

#[test]
fn json_is_one_object_a_line() {
    let folder = Folder::new("lines");
    let output = folder.run(&["run", "blink-bytes", "--json"]);
    let lines: Vec<serde_json::Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 20 && lines.iter().all(serde_json::Value::is_object), "{} lines", lines.len());
}

#[test]
fn parts_are_merged_to_the_bytes_of_the_whole() {
    let folder = Folder::new("merge");
    let part = |seeds: &str, out: &str| {
        let run = folder.run(&["run", "rain.toml", "--seeds", seeds, "--out", out, "--json"]);
        assert!(run.status.success(), "{}", text(&run.stderr));
        run.stdout
    };
    part("1..2", "a.csv");
    part("3..4", "b.csv");
    let whole = part("1..4", "whole.csv");
    let merged = folder.run(&["merge", "rain.toml", "b.csv", "a.csv", "-o", "c.csv", "--json"]);
    assert_eq!((text(&merged.stderr), text(&merged.stdout)), (String::new(), text(&whole)));
    let read = |name: &str| fs::read(Path::new(&folder.0).join(name)).unwrap();
    assert_eq!(read("c.csv"), read("whole.csv"));

    let overlap = folder.run(&["merge", "rain.toml", "a.csv", "whole.csv", "-o", "d.csv"]);
    assert_eq!(overlap.status.code(), Some(2));
    assert!(text(&overlap.stderr).contains("both have seed 1"), "{}", text(&overlap.stderr));
    let wrong = folder.run(&["run", "rain.toml", "--seeds", "5..1"]);
    assert!(text(&wrong.stderr).contains("as 1..50"), "{}", text(&wrong.stderr));
}
