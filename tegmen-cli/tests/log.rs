//! Tests the log of `tegmen serve`: a client cannot stop the server through the log, forge lines, or fill the disk.
#![cfg(unix)]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use serde_json::Value;
use std::process::Command;
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Response, Session};
use tegmen_host::uri::Scheme;
use works::{Plain, Scene, Server};

const PLAIN: &[&str] = &["--value", "/a=1", "--plain", "--no-secure", "--shards", "1"];

#[test]
fn a_log_that_nobody_reads_stops_nobody_and_tells_what_it_left_out() {
    let scene = Scene::new("log-stuck");
    let server = Server::start(&scene.0, &[PLAIN, &["--json"]].concat(), 1);
    let mut client = Plain::to(server.addresses[0]);
    // Far more than a pipe holds.
    let asked = 6000;
    for _ in 0..asked {
        assert_eq!(client.get("a"), 205);
    }
    let lines: Vec<Value> = server.end().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let requests = lines.iter().filter(|line| line["event"] == "request").count() as u64;
    let dropped: u64 = lines.iter().filter_map(|line| line["lines"].as_u64()).sum();
    assert!(requests < asked && requests + dropped >= asked, "{requests} lines, {dropped} dropped");
}

#[test]
fn a_path_forges_no_line_and_reaches_no_terminal() {
    let scene = Scene::new("log-forged");
    let server = Server::start(&scene.0, PLAIN, 1);
    let mut client = Plain::to(server.addresses[0]);
    let refused = client.get("x: 2.05\n10.0.0.1:5683 (admin) PUT /door: 2.04\u{1b}]0;owned\u{7}\u{9b}31m");
    assert!(matches!(refused, 400 | 404), "{refused}");
    assert_eq!(client.get("a"), 205);
    let lines = server.end();
    assert!(lines.iter().all(|line| !line.contains(char::is_control)), "{lines:?}");
    let forged: Vec<&String> = lines.iter().filter(|line| line.contains("door")).collect();
    assert_eq!(forged.len(), 1, "{lines:?}");
    assert!(forged[0].contains("GET /x:%202.05%0A10.0.0.1:5683%20(admin)"), "{forged:?}");
}

#[tokio::test]
async fn refused_hellos_of_one_network_are_summed_up() {
    let scene = Scene::new("log-hellos");
    std::fs::write(scene.0.join("credentials.toml"), "").unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(scene.0.join("credentials.toml"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(&scene.0, &["--value", "/a=1", "--json", "--shards", "1"], 1);
    let key = ClientKey { identity: "me".to_owned(), key: b"0123456789abcdef".to_vec().into() };
    let mut config = ClientConfig::default();
    config.trust.key = Some(key);
    config.dtls.suites = tegmen::dtls::Suites(&[tegmen::dtls::CipherSuite::PSK_WITH_AES_128_CBC_SHA256]);
    let hellos = 100;
    for _ in 0..hellos {
        let refused = Session::connect_to(server.addresses[0], Scheme::Coaps, config.clone()).await;
        assert!(matches!(refused, Err(ClientError::Handshake { .. })), "{:?}", refused.err());
    }
    let lines: Vec<Value> = server.end().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused: Vec<&Value> =
        lines.iter().filter(|line| line["event"].as_str().is_some_and(|event| event.starts_with("hello"))).collect();
    // A line for each in full, and none is left out of the count.
    let told: u64 =
        refused.iter().map(|line| u64::from(line["remote"].is_string()) + line["more"].as_u64().unwrap_or(0)).sum();
    assert_eq!(told, hellos);
    assert!(refused.len() < hellos as usize / 2, "{} lines", refused.len());
}

#[test]
fn refused_requests_with_oscore_are_summed_up_with_their_reason() {
    let scene = Scene::new("log-oscore");
    let new = Command::new(env!("CARGO_BIN_EXE_tegmen"))
        .args(["oscore", "new", "client", "server", "--sender-id", "0a"])
        .current_dir(&scene.0)
        .status();
    assert!(new.unwrap().success());
    for (kid, code, reason) in [(0x0a, 400, "does not authenticate"), (0x0b, 401, "context that is unknown")] {
        let options = ["--value", "/a=1", "--oscore", "server", "--no-secure", "--quiet", "--json", "--shards", "1"];
        let server = Server::start(&scene.0, &options, 1);
        let mut client = Plain::to(server.addresses[0]);
        let sent = 100;
        for number in 0..sent {
            // The kid is present, and the Partial IV has one byte (RFC 8613, section 6.1).
            assert_eq!(client.ask(2, &[(9, &[0x09, number, kid])], b"no ciphertext"), code);
        }
        let lines = events(&server.end());
        let refused: Vec<&Value> = lines.iter().filter(|line| line["event"] == "oscore_refused").collect();
        let told: u64 =
            refused.iter().map(|line| u64::from(line["remote"].is_string()) + line["more"].as_u64().unwrap_or(0)).sum();
        assert_eq!(told, u64::from(sent), "{lines:?}");
        assert!(refused.len() < usize::from(sent) / 2, "{} lines", refused.len());
        assert!(
            refused[0]["reason"].as_str().unwrap().contains(reason) && refused[0]["level"] == "warn",
            "{refused:?}"
        );
    }
}

/// Returns the events in the log. Checks that each event has a time and a level.
fn events(lines: &[String]) -> Vec<Value> {
    let events: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().all(|event| event["time"].as_str().is_some_and(|time| time.ends_with('Z'))), "{events:?}");
    assert!(events.iter().all(|event| event["level"].is_string()), "{events:?}");
    events
}

fn requests(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "request").collect()
}

async fn ask(server: &Server, method: Code, path: &str, payload: &[u8]) -> Response {
    let client = Session::connect_to(server.addresses[0], Scheme::Coap, ClientConfig::default()).await.unwrap();
    client.request(method, path).payload(payload).await.unwrap()
}

#[tokio::test]
async fn a_transfer_in_blocks_is_one_line_with_its_size() {
    let scene = Scene::new("log-blocks");
    for (level, lines) in [("info", 2), ("debug", 8)] {
        let server = Server::start(&scene.0, &[PLAIN, &["--log", "json", "--log-level", level]].concat(), 1);
        let body = [b'x'; 4000];
        assert_eq!(ask(&server, Code::PUT, "a", &body).await.code, Code::CHANGED);
        assert_eq!(ask(&server, Code::GET, "a", b"").await.payload, body);
        let events = events(&server.end());
        let requests = requests(&events);
        let whole: Vec<_> = requests.iter().filter(|request| request["block"] == false).collect();
        assert_eq!((requests.len(), whole.len()), (lines, 2), "{events:?}");
        assert_eq!((&whole[0]["method"], &whole[0]["request_bytes"]), (&"PUT".into(), &4000.into()));
        assert_eq!((&whole[1]["method"], &whole[1]["response_bytes"]), (&"GET".into(), &4000.into()));
    }
}

#[tokio::test]
async fn the_cause_of_a_server_error_stands_in_the_log_alone() {
    let scene = Scene::new("log-cause");
    let more = ["--command", "/none=tegmen-no-such-program", "--quiet", "--json"];
    let server = Server::start(&scene.0, &[PLAIN, &more].concat(), 1);
    assert_eq!(ask(&server, Code::GET, "a", b"").await.code, Code::CONTENT);
    let reply = ask(&server, Code::GET, "none", b"").await;
    assert_eq!(reply.code, Code::INTERNAL_SERVER_ERROR);
    let told = String::from_utf8(reply.payload).unwrap();
    assert!(!told.contains("tegmen-no-such-program"), "{told}");
    let events = events(&server.end());
    let requests = requests(&events);
    // What succeeds is not logged where it is quiet.
    assert_eq!(requests.len(), 1, "{events:?}");
    let cause = requests[0]["cause"].as_str().unwrap();
    assert!(cause.contains("tegmen-no-such-program") && cause.contains("os error 2"), "{cause}");
    assert_eq!(requests[0]["level"], "warn");
}

#[tokio::test]
async fn a_failed_handshake_names_the_identity_that_was_tried() {
    let scene = Scene::new("log-identity");
    std::fs::write(scene.0.join("credentials.toml"), "").unwrap();
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(scene.0.join("credentials.toml"), std::fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(&scene.0, &["--value", "/a=1", "--shards", "1"], 1);
    let key = ClientKey { identity: "a \"stranger\"\n".to_owned(), key: b"0123456789abcdef".to_vec().into() };
    let mut config = ClientConfig::default();
    config.trust.key = Some(key);
    assert!(Session::connect_to(server.addresses[0], Scheme::Coaps, config).await.is_err());
    let lines = server.end();
    let failed = lines.iter().find(|line| line.contains("no such identity")).expect("it failed");
    assert!(failed.contains(r#"("a \"stranger\"\n"): connection failed"#) && failed.contains(" warn "), "{failed}");
}
