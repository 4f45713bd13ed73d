//! The log of `tegmen serve`.
#![cfg(unix)]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use serde_json::Value;
use tegmen::coap::Code;
use tegmen_host::client::{Ask, Client, ClientConfig, Reply};
use works::{Scene, Server};

const PLAIN: &[&str] = &["--value", "/a=1", "--plain", "--no-secure", "--shards", "1"];

/// The events of the log, each with a time and a level.
fn events(lines: &[String]) -> Vec<Value> {
    let events: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(events.iter().all(|event| event["time"].as_str().is_some_and(|time| time.ends_with('Z'))), "{events:?}");
    assert!(events.iter().all(|event| event["level"].is_string()), "{events:?}");
    events
}

fn requests(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "request").collect()
}

async fn ask(server: &Server, method: Code, path: &str, payload: &[u8]) -> Reply {
    let mut client = Client::connect_to(server.addresses[0], false, ClientConfig::default()).await.unwrap();
    let (path, query, options) = ([path.to_owned()], &[], &[]);
    let ask = Ask { method, path: &path, query, content_format: None, accept: None, payload, options };
    client.request(&ask).await.unwrap()
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
