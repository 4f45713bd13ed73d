//! Tests the tour of `tegmen up`. The group of the tour needs multicast at the loopback interface.
#![cfg(target_os = "linux")]

use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

/// The port of the group. A test that runs the tour holds the read lock. A test that itself occupies the port holds the
/// write lock, so that no tour runs at the same time.
static PORT: RwLock<u16> = RwLock::new(20792);

fn tegmen(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    command.args(arguments.split_whitespace());
    command
}

/// Returns the values of a field in all events with this name.
fn values<'e>(events: &'e [Value], event: &str, field: &str) -> Vec<&'e Value> {
    events.iter().filter(|object| object["event"] == event).map(|object| &object[field]).collect()
}

/// Returns the folder of a run, from the path of its policy file.
fn folder(events: &[Value]) -> PathBuf {
    let policy = values(events, "access", "policy")[0].as_str().unwrap();
    Path::new(policy).parent().unwrap().to_owned()
}

/// The names of the last steps of the tour.
const DELEGATED: [&str; 3] = ["imprinted", "resumed", "revoked-ticket"];

/// Returns the event of the step with this name.
fn step<'e>(events: &'e [Value], name: &str) -> &'e Value {
    events.iter().find(|event| event["event"] == "step" && event["step"] == name).unwrap()
}

/// Returns the JSON objects in the output of a run that has ended successfully.
fn events(output: &std::process::Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn the_tour_proves_each_step_and_leaves_nothing_behind() {
    let _port = PORT.read().unwrap_or_else(PoisonError::into_inner);
    let output = tegmen("up --once 3 --period 1 --port 0 --json").output().unwrap();
    let events = events(&output);
    let steps = ["key", "allowed", "refused", "revoked", "used", "joined", "switched", "evicted", "replayed", "forged"];
    assert_eq!(values(&events, "step", "step"), [&steps[..], &DELEGATED].concat());
    assert_eq!(step(&events, "resumed")["denied"], "4.03");
    let reasons = values(&events, "step", "reason");
    assert!(reasons[1].as_str().unwrap().contains("\"displays read the kitchen\""), "{reasons:?}");
    assert!(reasons[2].as_str().unwrap().contains("refused: by "), "{reasons:?}");
    assert!(reasons[2].as_str().unwrap().contains("\"the panel is lent\""), "{reasons:?}");
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["exchanges"], &last["retransmitted"]), (&"summary".into(), &3.into(), &0.into()));
    assert!(!folder(&events).exists());
}

#[test]
fn one_lamp_of_the_group_is_evicted_and_an_outsider_switches_none() {
    let _port = PORT.read().unwrap_or_else(PoisonError::into_inner);
    let events = events(&tegmen("up --once 1 --period 1 --port 0 --json").output().unwrap());
    let texts = |name: &str| -> Vec<&str> {
        let mut all: Vec<_> = step(&events, name)["answers"].as_array().unwrap().iter().collect();
        all.sort_by_key(|answer| answer["text"].as_str());
        all.into_iter().map(|answer| answer["text"].as_str().unwrap()).collect()
    };
    let lights = |hall, porch, attic| serde_json::json!({ "hall": hall, "porch": porch, "attic": attic });
    let [joined, switched, evicted] = ["joined", "switched", "evicted"].map(|name| step(&events, name));
    assert_eq!((joined["members"].as_array().unwrap().len(), &joined["code"]), (3, &"4.03".into()));
    assert_eq!((&switched["datagrams"], &switched["lights"]), (&1.into(), &lights("on", "on", "on")));
    assert_eq!(texts("switched"), ["attic is on", "hall is on", "porch is on"]);
    assert_eq!(evicted["epoch"].as_u64().unwrap(), joined["epoch"].as_u64().unwrap() + 1);
    assert_eq!((&evicted["missing"][0], &evicted["lights"]), (&"attic".into(), &lights("off", "off", "on")));
    assert_eq!(texts("evicted"), ["hall is off", "porch is off"]);
    let replayed = step(&events, "replayed");
    assert_eq!((&replayed["sent"], &replayed["dropped"]), (&2.into(), &2.into()));
    assert_eq!(replayed["lights"], lights("on", "on", "on"));
    assert_eq!(texts("forged"), ["hall is off", "porch is off"]);
    assert_eq!(step(&events, "forged")["lights"], lights("off", "off", "on"));
}

#[test]
fn without_multicast_the_tour_goes_on_and_gives_the_cause() {
    let port = PORT.write().unwrap_or_else(PoisonError::into_inner);
    // Nobody else can join a group at this port.
    let _taken = loop {
        match UdpSocket::bind(("0.0.0.0", *port)) {
            Ok(socket) => break socket,
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    };
    let events = events(&tegmen("up --once 2 --period 1 --port 0 --json").output().unwrap());
    let steps = ["key", "allowed", "refused", "revoked", "used"];
    assert_eq!(values(&events, "step", "step"), [&steps[..], &DELEGATED].concat());
    let causes = values(&events, "group_left_out", "error");
    assert!(causes[0].as_str().unwrap().contains(&format!("{port} is in use")), "{causes:?}");
    assert_eq!(events.last().unwrap()["exchanges"], 2);
}

#[test]
fn each_command_that_it_prints_works_while_it_runs() {
    let _port = PORT.read().unwrap_or_else(PoisonError::into_inner);
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
    assert_eq!(
        commands.iter().filter(|command| command.as_str().unwrap().starts_with("tegmen group send ")).count(),
        2
    );
    let mut resumed = 0;
    for (command, exit) in commands.iter().zip(values(&events, "try", "exit")) {
        let output = match command.as_str().unwrap().split_once(' ').unwrap() {
            ("tegmen", arguments) => tegmen(arguments).output().unwrap(),
            (program, arguments) => Command::new(program).args(arguments.split(' ')).output().unwrap(),
        };
        let text = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        assert_eq!(output.status.code().map(i64::from), exit.as_i64(), "{command}: {text}");
        resumed += usize::from(text.contains("Reused, "));
    }
    assert_eq!(resumed, 1);
    // The lamps print what the commands did: after the second eviction one lamp is left.
    let mut lamps: Vec<String> = Vec::new();
    // The command that disables the oven ended its session, and it has another one since it is enabled again.
    let mut oven = |state: &str| loop {
        let event: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if event["event"] == "lamp" {
            lamps.push(format!("{} {}", event["lamp"].as_str().unwrap(), event["light"].as_str().unwrap()));
        }
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
    lamps.sort();
    assert_eq!(lamps, ["hall off", "hall on", "porch on"]);
    end(process, "-TERM");
    assert!(!folder.exists());
}

#[test]
fn a_signal_removes_the_keys_whenever_it_comes() {
    let _port = PORT.read().unwrap_or_else(PoisonError::into_inner);
    // The last signal comes while requests follow each other closely, so it often interrupts one.
    for (signal, after) in [("-HUP", "access"), ("-INT", "access"), ("-INT", "step"), ("-TERM", "blink")] {
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

/// Ends the program with a signal, and checks that it ends in order.
fn end(mut process: std::process::Child, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.id().to_string()]).status().unwrap().success());
    assert!(process.wait().unwrap().success(), "{signal}");
}
