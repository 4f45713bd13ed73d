//! The tour of `tegmen up`.
#![cfg(target_os = "linux")]

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn tegmen(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    command.args(arguments.split_whitespace());
    command
}

/// The values of a field in the events of this name.
fn values<'e>(events: &'e [Value], event: &str, field: &str) -> Vec<&'e Value> {
    events.iter().filter(|object| object["event"] == event).map(|object| &object[field]).collect()
}

/// The folder of a run, from the path of its policy.
fn folder(events: &[Value]) -> PathBuf {
    let policy = values(events, "access", "policy")[0].as_str().unwrap();
    Path::new(policy).parent().unwrap().to_owned()
}

#[test]
fn the_tour_proves_each_step_and_leaves_nothing_behind() {
    let output = tegmen("up --once 3 --period 1 --port 0 --json").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(values(&events, "step", "step"), ["key", "allowed", "refused", "revoked", "used"]);
    let reasons = values(&events, "step", "reason");
    assert!(reasons[1].as_str().unwrap().contains("\"displays read the kitchen\""), "{text}");
    assert!(reasons[2].as_str().unwrap().contains("refused: by "), "{text}");
    assert!(reasons[2].as_str().unwrap().contains("\"the panel is lent\""), "{text}");
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["exchanges"], &last["retransmitted"]), (&"summary".into(), &3.into(), &0.into()));
    assert!(!folder(&events).exists());
}

#[test]
fn each_command_that_it_prints_works_while_it_runs() {
    let mut process = tegmen("up --period 20 --port 0 --json").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut events: Vec<Value> = Vec::new();
    while events.last().is_none_or(|event| event["event"] != "handshake") {
        events.push(serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap());
    }
    // Nobody else reads what the folder holds.
    let folder = folder(&events);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for secret in ["sealing.key", "audit.pem", "guest.toml", "session.toml", "bootstrap"] {
        assert_eq!(mode(&folder.join(secret)), 0o600, "{secret}");
    }
    let commands = values(&events, "try", "command");
    assert!(commands.len() > 5, "{events:?}");
    for (command, exit) in commands.iter().zip(values(&events, "try", "exit")) {
        let output = tegmen(command.as_str().unwrap().strip_prefix("tegmen ").unwrap()).output().unwrap();
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert_eq!(output.status.code().map(i64::from), exit.as_i64(), "{command}: {text}");
    }
    // The command that disables the oven ended its session, and it has another one since it is enabled again.
    let mut oven = |state: &str| loop {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if event["event"] == "oven" && event["state"] == state {
            return event["session"].as_str().unwrap().to_owned();
        }
    };
    oven("ended");
    let session = oven("open");
    // A session alone is revoked by its identity.
    let list =
        commands.iter().find_map(|command| command.as_str().unwrap().strip_prefix("tegmen device list")).unwrap();
    let revoked = tegmen(&format!("revoke {session}{list}")).output().unwrap();
    assert!(revoked.status.success(), "{}", String::from_utf8_lossy(&revoked.stderr));
    assert_eq!(oven("ended"), session);
    end(process, "-TERM");
    assert!(!folder.exists());
}

#[test]
fn a_signal_removes_the_keys_whenever_it_comes() {
    // The last signal comes while requests follow each other closely, so it often interrupts one.
    for (signal, after) in [("-HUP", "access"), ("-INT", "access"), ("-TERM", "blink")] {
        let mut process = tegmen("up --period 1 --port 0 --json").stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
        let access = lines.find(|line| line.contains("\"access\"")).unwrap();
        let folder = folder(&[serde_json::from_str(&access).unwrap()]);
        let after = format!("\"event\":\"{after}\"");
        assert!(access.contains(&after) || lines.any(|line| line.contains(&after)));
        end(process, signal);
        assert!(!folder.exists(), "{signal}");
    }
}

/// Ends the program in order.
fn end(mut process: std::process::Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.id().to_string()]).status().unwrap().success());
    assert!(process.wait().unwrap().success(), "{signal}");
}
