//! Tests the resources of `tegmen serve`, also with requests that try to tear a file, to block or exhaust the server,
//! or to leave a directory.
#![cfg(unix)]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::uri::Scheme;
use works::{Plain, Scene, Server, URI_PATH};

const PLAIN: &[&str] = &["--plain", "--no-secure", "--json"];
const IF_NONE_MATCH: u16 = 5;
const OBSERVE: u16 = 6;
const CONTENT_FORMAT: u16 = 12;
const GET: u8 = 1;
const PUT: u8 = 3;
const IPATCH: u8 = 7;

/// Starts a server with a directory that clients can write.
fn serve(dir: &Path, more: &[&str]) -> Server {
    std::fs::create_dir_all(dir.join("files")).unwrap();
    let options = [PLAIN, &["--dir-rw", "/rw=files", "--value", "/a=1"], more].concat();
    Server::start(dir, &options, 1)
}

fn put(client: &mut Plain, name: &str, payload: &[u8]) -> u16 {
    client.ask(PUT, &[(URI_PATH, b"rw"), (URI_PATH, name.as_bytes())], payload)
}

fn get(client: &mut Plain, name: &str) -> u16 {
    client.ask(GET, &[(URI_PATH, b"rw"), (URI_PATH, name.as_bytes())], b"")
}

#[test]
fn who_reads_a_file_while_many_write_it_reads_one_of_them_whole() {
    let scene = Scene::new("tear");
    let server = serve(&scene.0, &["--shards", "2", "--quiet"]);
    let file = scene.0.join("files/f");
    assert_eq!(put(&mut Plain::to(server.addresses[0]), "f", &[b'x'; 1000]), 201);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let content = std::fs::read(&file).unwrap();
                let whole = content.len() == 1000 && content.iter().all(|byte| *byte == content[0]);
                assert!(whole, "{} bytes", content.len());
            }
        });
        // With 16 clients, each of which has its own port, each shard serves some of them.
        let writers: Vec<_> = (0..16u8)
            .map(|n| {
                let mut client = Plain::to(server.addresses[0]);
                scope.spawn(move || {
                    for round in 0..40 {
                        assert_eq!(put(&mut client, "f", &[b'a' + n; 1000]), 204, "round {round}");
                    }
                })
            })
            .collect();
        let written = writers.into_iter().all(|writer| writer.join().is_ok());
        done.store(true, Ordering::Relaxed);
        assert!(reader.join().is_ok() && written);
    });
    let left = std::fs::read_dir(scene.0.join("files")).unwrap().count();
    assert_eq!(left, 1, "no draft is left");
}

#[test]
fn of_those_who_create_a_file_at_once_one_succeeds() {
    let scene = Scene::new("create");
    let server = serve(&scene.0, &["--shards", "2", "--quiet"]);
    let mut clients: Vec<Plain> = (0..16).map(|_| Plain::to(server.addresses[0])).collect();
    for round in 0..30 {
        let name = format!("f{round}");
        let options: &[(u16, &[u8])] = &[(IF_NONE_MATCH, b""), (URI_PATH, b"rw"), (URI_PATH, name.as_bytes())];
        let codes: Vec<u16> = std::thread::scope(|scope| {
            let asked: Vec<_> =
                clients.iter_mut().map(|client| scope.spawn(|| client.ask(PUT, options, b"mine"))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap()).collect()
        });
        let created = codes.iter().filter(|code| **code == 201).count();
        assert!(created == 1 && codes.iter().all(|code| matches!(code, 201 | 412)), "{codes:?}");
    }
}

#[test]
fn a_fifo_in_a_directory_is_no_file_and_stops_nobody() {
    let scene = Scene::new("fifo");
    let server = serve(&scene.0, &["--shards", "1"]);
    assert!(Command::new("mkfifo").arg(scene.0.join("files/fifo")).status().unwrap().success());
    let mut client = Plain::to(server.addresses[0]);
    assert_eq!(get(&mut client, "fifo"), 404);
    assert_eq!(client.get("a"), 205);
}

#[test]
fn links_that_leave_the_directory_are_not_followed() {
    let scene = Scene::new("links");
    let server = serve(&scene.0, &["--shards", "1"]);
    let (files, outside) = (scene.0.join("files"), scene.0.join("outside"));
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("secret"), "secret").unwrap();
    std::fs::write(files.join("own"), "own").unwrap();
    std::os::unix::fs::symlink("../outside/secret", files.join("link")).unwrap();
    std::os::unix::fs::symlink(&outside, files.join("sub")).unwrap();
    std::os::unix::fs::symlink("own", files.join("alias")).unwrap();
    let mut client = Plain::to(server.addresses[0]);
    assert_eq!(get(&mut client, "own"), 205);
    assert_eq!(get(&mut client, "alias"), 205, "which stays inside");
    assert_eq!(get(&mut client, "link"), 404);
    let below: &[(u16, &[u8])] = &[(URI_PATH, b"rw"), (URI_PATH, b"sub"), (URI_PATH, b"secret")];
    assert_eq!(client.ask(GET, below, b""), 404);
    assert_eq!(client.ask(PUT, below, b"changed"), 404);
    assert_eq!(client.ask(4, below, b""), 404);
    assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"secret");
}

#[test]
fn patches_grow_no_value_past_the_longest_body() {
    let scene = Scene::new("patches");
    let server = serve(&scene.0, &["--shards", "1", "--value", "/v={}", "--max-body", "2000"]);
    let mut client = Plain::to(server.addresses[0]);
    let mut patch = |n: usize| {
        let change = format!("{{\"{n}\":\"{}\"}}", "x".repeat(500));
        client.ask(IPATCH, &[(URI_PATH, b"v"), (CONTENT_FORMAT, &[52])], change.as_bytes())
    };
    assert_eq!([patch(0), patch(1), patch(2)], [204; 3]);
    assert_eq!([patch(3), patch(4)], [413; 2]);
    // A patch that does not lengthen the value succeeds.
    assert_eq!(patch(2), 204);
}

async fn client(server: &Server) -> Session {
    let mut config = ClientConfig::default();
    config.coap.timeout = Duration::from_secs(20);
    Session::connect_to(server.addresses[0], Scheme::Coap, config).await.unwrap()
}

#[tokio::test]
async fn a_command_that_answers_while_it_reads_takes_a_long_input() {
    let scene = Scene::new("command");
    let server = serve(&scene.0, &["--shards", "1", "--command", "/cat=cat"]);
    let client = client(&server).await;
    let payload: Vec<u8> = (0..300_000u32).map(|n| n as u8).collect();
    let reply = client.post("/cat", &payload).await.unwrap();
    assert_eq!((reply.code, reply.payload == payload), (Code::CONTENT, true));
}

#[tokio::test]
async fn who_asks_for_files_that_do_not_exist_takes_no_place_of_those_who_observe() {
    let scene = Scene::new("watch");
    let server = serve(&scene.0, &["--shards", "1", "--quiet"]);
    let mut stranger = Plain::to(server.addresses[0]);
    for n in 0..1100 {
        let name = n.to_string();
        let options: &[(u16, &[u8])] = &[(OBSERVE, b""), (URI_PATH, b"rw"), (URI_PATH, name.as_bytes())];
        assert_eq!(stranger.ask(GET, options, b""), 404);
    }
    let file = scene.0.join("files/b");
    std::fs::write(&file, "first").unwrap();
    let client = client(&server).await;
    let mut observation = client.observe("/rw/b").await.unwrap();
    assert_eq!(observation.next().await.unwrap().unwrap().payload, b"first");
    std::fs::write(&file, "and second").unwrap();
    let told = tokio::time::timeout(Duration::from_secs(20), observation.next()).await;
    assert_eq!(told.expect("it is told").unwrap().unwrap().payload, b"and second");
}

#[tokio::test]
async fn a_write_is_told_once() {
    let scene = Scene::new("once");
    let server = serve(&scene.0, &["--shards", "1"]);
    let (a, b) = (scene.0.join("files/a"), scene.0.join("files/b"));
    std::fs::write(&a, "0").unwrap();
    std::fs::write(&b, "0").unwrap();
    let (of_a, of_b) = (client(&server).await, client(&server).await);
    let mut written = of_a.observe("/rw/a").await.unwrap();
    let mut looked_at = of_b.observe("/rw/b").await.unwrap();
    assert_eq!(written.next().await.unwrap().unwrap().payload, b"0");
    assert_eq!(looked_at.next().await.unwrap().unwrap().payload, b"0");
    assert_eq!(put(&mut Plain::to(server.addresses[0]), "a", b"1"), 204);
    assert_eq!(written.next().await.unwrap().unwrap().payload, b"1");
    // The server notifies observers of b after it has examined all files. A second notification of a
    // would be from the same pass.
    std::fs::write(&b, "changed").unwrap();
    assert_eq!(looked_at.next().await.unwrap().unwrap().payload, b"changed");
    let again = tokio::time::timeout(Duration::from_millis(500), written.next()).await;
    assert!(again.is_err(), "it was told again");
}

#[test]
fn an_endpoint_that_may_not_read_the_links_of_a_directory_reports_the_missing_right() {
    let scene = Scene::new("register-refused");
    let new =
        Command::new(env!("CARGO_BIN_EXE_tegmen")).args(["oscore", "new", "a", "b"]).current_dir(&scene.0).status();
    assert!(new.unwrap().success());
    let directory = Server::start(&scene.0, &["--directory", "--oscore", "b", "--no-secure"], 1);
    let uri = format!("coap://{}", directory.addresses[0]);
    let register = ["--value", "/a=1", "--plain", "--no-secure", "--register", &uri, "--register-name", "a"];
    let mut endpoint = Server::start(&scene.0, &register, 1);
    endpoint.wait_for("the directory answers 4.01: GET /.well-known/core needs a right there");
}
