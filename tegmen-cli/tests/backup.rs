//! Tests `tegmen backup`.
#![cfg(unix)]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use serde_json::Value;
use std::process::{Command, Output};
use works::{Scene, Server};

fn backup(scene: &Scene, options: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    command.args(["--json", "backup"]).args(options).current_dir(&scene.0).output().unwrap()
}

/// Checks that a command succeeded, and returns its output, which is one JSON object.
fn line(done: &Output) -> Value {
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

/// Checks that a command failed with this exit code, and returns its message.
fn refusal(done: &Output, code: i32) -> String {
    assert_eq!(done.status.code(), Some(code), "{}", String::from_utf8_lossy(&done.stdout));
    String::from_utf8_lossy(&done.stderr).into_owned()
}

#[test]
fn a_database_is_backed_up_verified_and_restored() {
    let scene = Scene::new("backup");
    let serve = ["--plain", "--no-secure", "--value", "/a=1", "--state", "state.db", "--json"];
    let create = ["create", "--state", "state.db", "b"];
    assert!(refusal(&backup(&scene, &create), 2).contains("there is no database"));
    let server = Server::start(&scene.0, &serve, 1);
    assert!(refusal(&backup(&scene, &create), 2).contains("another process uses this state"));
    server.end();
    let created = line(&backup(&scene, &create));
    assert_eq!((&created["event"], &created["authenticated"]), (&"created".into(), &false.into()));
    let verified = line(&backup(&scene, &["verify", "b"]));
    assert_eq!((&verified["event"], &verified["sha256"]), (&"whole".into(), &created["sha256"]));
    let restore = ["restore", "--state", "state.db", "b"];
    assert!(refusal(&backup(&scene, &restore), 2).contains("there is a database: move it away first"));
    std::fs::rename(scene.0.join("state.db"), scene.0.join("lost.db")).unwrap();
    assert_eq!(line(&backup(&scene, &restore))["event"], "restored");
    Server::start(&scene.0, &serve, 1).end();
    // The database that was moved away is refused.
    std::fs::rename(scene.0.join("lost.db"), scene.0.join("state.db")).unwrap();
    assert!(refusal(&backup(&scene, &create), 2).contains("it is a copy, or was restored from a backup"));
    let whole = std::fs::read(scene.0.join("b")).unwrap();
    std::fs::write(scene.0.join("b"), &whole[..whole.len() - 1]).unwrap();
    assert!(refusal(&backup(&scene, &["verify", "b"]), 1).contains("damaged or cut short"));
}
