//! Tests `tegmen agent` and `tegmen agent ask` with an access control server.
#![cfg(target_os = "linux")]

#[path = "works/operator.rs"]
#[allow(dead_code, reason = "each test uses its part")]
mod operator;
#[allow(dead_code, reason = "each test uses its part")]
mod works;

use operator::{SHARED_KEY, derived, furnish};
use serde_json::Value;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;
use tegmen_host::hex::to_hex;
use works::{Scene, Server};

const CONFIG: &str = r#"[addresses]
listen = ["127.0.0.1"]

[access]
store = "access.db"
sealing-key = "sealing.key"
policy = "policy.toml"
audit = "audit.log"
audit-key = "audit.pem"
"#;

/// Starts the access control server at a port; 0 takes any free port.
fn access(dir: &Path, port: u16) -> Server {
    Server::spawn(dir, &["serve", "--config", "tegmen.toml", "--port", &port.to_string()], 1)
}

/// Starts the agent of a device, and waits until programs can send it requests.
fn agent(dir: &Path, server: &Server, device: &str) -> Server {
    let (uri, key) = (format!("coaps://{}", server.addresses[0]), to_hex(&SHARED_KEY));
    let arguments = ["agent", &uri, "--socket", "agent.sock", "--identity", device, "--key", &key, "--json"];
    let mut agent = Server::spawn(dir, &arguments, 0);
    event(&mut agent, "listening");
    agent
}

/// Returns the next event of this name in the log of an agent.
fn event(agent: &mut Server, name: &str) -> Value {
    let lines = agent.lines.by_ref().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    lines.into_iter().find(|line| line["event"] == name).unwrap_or_else(|| panic!("no event {name}"))
}

fn ask(dir: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    let command = command.args(["agent", "ask", "--socket", "agent.sock"]).args(words).current_dir(dir);
    // The options of the agent that are in the environment do not matter to those who ask it.
    command.env("TEGMEN_IDENTITY", "display").output().unwrap()
}

/// Runs `tegmen agent ask`, checks that it gets a key, and returns its output.
fn answer(dir: &Path, words: &[&str]) -> String {
    let output = ask(dir, words);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Runs `tegmen agent ask` for a key that the program does not get. Returns the exit code and the message of the
/// command.
fn refusal(dir: &Path, words: &[&str]) -> (Option<i32>, String) {
    let output = ask(dir, words);
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_program_gets_the_keys_of_its_publishers_from_the_agent() {
    let scene = Scene::new("agent");
    let dir = &scene.0;
    furnish(dir);
    std::fs::write(dir.join("tegmen.toml"), CONFIG).unwrap();
    let server = access(dir, 0);
    let mut agent = agent(dir, &server, "display");
    let identity = "oven;AAECAwQFBgcI";
    assert_eq!(answer(dir, &["session", identity]), to_hex(&derived(identity, "display")));
    let given = event(&mut agent, "asked");
    assert_eq!((&given["code"], &given["identity"]), (&"given".into(), &identity.into()));

    let (code, why) = refusal(dir, &["session", identity]);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("refused: the access control server refuses"), "{why}");
    assert_eq!(event(&mut agent, "asked")["code"], "refused");

    let printed = answer(dir, &["publisher", "oven"]);
    let (identity, key) = printed.split_once(' ').unwrap();
    assert_eq!(key, to_hex(&derived(identity, "display")));
    let printed: Value = serde_json::from_str(&answer(dir, &["publisher", "oven", "--json"])).unwrap();
    let identity = printed["identity"].as_str().unwrap();
    assert_eq!(printed["key"], to_hex(&derived(identity, "display")));
    assert!(printed["expires_in"].as_u64().is_some_and(|seconds| seconds > 0), "{printed}");

    for wrong in [["session", "oven"], ["publisher", "oven;AAECAwQFBgcI"], ["publisher", "oven\nsession"]] {
        let (code, why) = refusal(dir, &wrong);
        assert_eq!(code, Some(2), "{why}");
    }

    let lines = agent.end();
    assert!(lines.iter().all(|line| !line.contains(key)), "the log has no key: {lines:?}");
    assert!(!dir.join("agent.sock").exists());
    let (code, why) = refusal(dir, &["publisher", "oven"]);
    assert!(code == Some(1) && why.contains("is the agent running"), "{why}");
}

/// A server that ends in order closes its sessions. A server that was killed does not close its sessions. After a kill,
/// a new server starts, and ignores the first request that the agent sends in the old session. The agent then repeats
/// this request once in a new session.
#[test]
fn the_agent_repeats_a_question_once_after_its_session_was_lost() {
    let scene = Scene::new("agent-lost");
    let dir = &scene.0;
    furnish(dir);
    std::fs::write(dir.join("tegmen.toml"), CONFIG).unwrap();
    let mut server = access(dir, 0);
    let port = server.addresses[0].port();
    let mut agent = agent(dir, &server, "display");
    for (number, in_order) in [(1, true), (2, false)] {
        let before = format!("oven;AAECAwQFBgc{number}");
        assert_eq!(answer(dir, &["session", &before]), to_hex(&derived(&before, "display")));
        if in_order {
            server.end();
        } else {
            drop(server);
        }
        server = access(dir, port);
        let after = format!("oven;AAECAwQFBgd{number}");
        assert_eq!(answer(dir, &["session", &after]), to_hex(&derived(&after, "display")));
        assert_eq!(event(&mut agent, "reconnected")["sessions"], number);
    }
    let (code, why) = refusal(dir, &["session", "oven;AAECAwQFBgc1"]);
    assert!(
        code == Some(1) && why.contains("refused"),
        "the restarted server knows the identities that it accepted earlier: {why}"
    );
}

#[test]
fn a_service_manager_learns_when_programs_can_ask() {
    let scene = Scene::new("agent-notify");
    let dir = &scene.0;
    furnish(dir);
    std::fs::write(dir.join("tegmen.toml"), CONFIG).unwrap();
    let server = access(dir, 0);
    let notifications = UnixDatagram::bind(dir.join("notify.sock")).unwrap();
    notifications.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let (uri, key) = (format!("coaps://{}", server.addresses[0]), to_hex(&SHARED_KEY));
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
    command.args(["agent", &uri, "--socket", "agent.sock", "--identity", "display", "--key", &key]);
    let mut process = command.env("NOTIFY_SOCKET", dir.join("notify.sock")).current_dir(dir).spawn().unwrap();
    let mut told = [0; 64];
    let len = notifications.recv(&mut told).unwrap();
    assert_eq!(&told[..len], b"READY=1");
    answer(dir, &["publisher", "oven"]);
    assert!(Command::new("kill").args(["-TERM", &process.id().to_string()]).status().unwrap().success());
    let len = notifications.recv(&mut told).unwrap();
    assert_eq!(&told[..len], b"STOPPING=1");
    assert!(process.wait().unwrap().success());
    assert!(!dir.join("agent.sock").exists());
}

#[test]
fn an_agent_that_cannot_begin_says_so() {
    let scene = Scene::new("agent-wrong");
    let tegmen = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tegmen"));
        let output = command.args(words.split(' ')).current_dir(&scene.0).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for (words, expected) in [
        ("agent", "--socket"),
        ("agent coaps://127.0.0.1", "--socket"),
        ("agent coap://127.0.0.1 --socket a", "as coaps://host"),
        ("agent coaps://127.0.0.1/token --socket a", "as coaps://host"),
        ("agent ask --socket a", "publisher"),
        ("agent coaps://127.0.0.1 --socket a ask --socket a publisher oven", "ask"),
    ] {
        let (code, why) = tegmen(words);
        assert!(code == Some(2) && why.contains(expected), "{words}: {why}");
    }
}
