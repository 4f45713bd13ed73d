//! Tests which functions of this project are between the socket and the application: over DTLS, over OSCORE, and over
//! both.

use std::backtrace::Backtrace;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use tegmen::coap::{Code, Response};
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::contexts::{self, ContextFile, Contexts};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Application, Listen, Request, Server, ServerConfig};
use tegmen_host::uri::Scheme;

/// Maximum number of functions of this project between the socket and the application.
const MOST: usize = 8;
/// The page that lists the path of a datagram through the functions of this project.
const ARCHITECTURE: &str = include_str!("../../ARCHITECTURE.md");

/// An application that sends a backtrace of each request to the test.
#[derive(Clone)]
struct Tracing(mpsc::Sender<String>);

impl Application for Tracing {
    #[inline(never)]
    fn handle(&mut self, _: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.0.send(Backtrace::force_capture().to_string()).unwrap();
        response.payload(b"21.5")
    }
}

/// Returns the functions of this project's crates between the socket and the application, the outermost first. Inlined
/// functions and closures count, too.
fn ours(backtrace: &str) -> Vec<String> {
    // A function is a line "  12: path::of::function", and one with its place, "at ./src/udp.rs:1:2".
    let mut frames: Vec<(&str, &str)> = Vec::new();
    for line in backtrace.lines().map(str::trim_start) {
        match (line.strip_prefix("at "), line.split_once(": "), frames.last_mut()) {
            (Some(place), _, Some(frame)) => frame.1 = place,
            (_, Some((_, name)), _) => frames.push((name, "")),
            _ => {}
        }
    }
    let application = frames.iter().position(|(_, place)| place.contains("tests/backtrace.rs"));
    // The functions that receive are asynchronous: `run`, and `receive` in it.
    let is_run = |(name, place): &(&str, &str)| {
        let is_asynchronous = name.contains("async_fn") || name.ends_with("receive::{{closure}}");
        place.contains("server/shard.rs") && (is_asynchronous || name.contains("run"))
    };
    let run = frames.iter().position(is_run);
    let (Some(application), Some(run)) = (application, run) else { panic!("no way from the socket:\n{backtrace}") };
    let is_ours = |(_, place): &&(&str, &str)| !place.starts_with("/rustc/") && !place.contains("/registry/");
    frames[application + 1..run].iter().rev().filter(is_ours).map(|(name, _)| short(name)).collect()
}

/// Returns the last part of the name of a function: `handle` for `<Router as Application<X, Y>>::handle`.
fn short(name: &str) -> String {
    let mut plain = String::new();
    let mut depth = 0;
    for character in name.chars() {
        depth += i32::from(character == '<') - i32::from(character == '>');
        if depth == 0 && character != '>' {
            plain.push(character);
        }
    }
    plain.rsplit("::").next().unwrap_or_default().to_owned()
}

/// Makes two OSCORE contexts in `dir`: the context of the client, and the context of the server.
fn create_contexts(dir: &Path) {
    let context = ContextFile {
        sender_id: vec![1],
        recipient_id: vec![2],
        master_secret: vec![7; 16].into(),
        master_salt: Vec::new(),
        id_context: None,
        aead: tegmen::oscore::Aead::AesCcm16_64_128,
        created: contexts::now(),
        expires: None,
        allow: None,
        rederivation: false,
    };
    contexts::create(&dir.join("client"), &context).unwrap();
    contexts::create(&dir.join("server"), &context.mirrored()).unwrap();
}

/// Sends a GET, and returns the functions that process it.
async fn functions(scheme: Scheme, oscore: bool) -> Vec<String> {
    let dir: PathBuf = std::env::temp_dir().join(format!("tegmen-way-{}-{scheme}-{oscore}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    create_contexts(&dir);
    let credentials = Credentials::single("me", b"key");
    let contexts = Contexts::open(&[dir.join("server")], |name, _| credentials.learn(name, None)).unwrap();
    let listen = vec![Listen { address: "127.0.0.1:0".parse().unwrap(), scheme }];
    let config = ServerConfig::default().with(|config| {
        config.oscore = contexts;
        config.listen = listen;
        config.shards = 1;
    });
    let (sender, receiver) = mpsc::channel();
    let server = Server::with(config).credentials(credentials).serve(Tracing(sender)).unwrap();
    let mut config = ClientConfig::psk("me", b"key");
    config.oscore = oscore.then(|| dir.join("client"));
    let session = Session::connect_to(server.addresses()[0].address, scheme, config).await.unwrap();
    assert_eq!(session.get("/value").await.unwrap().payload, b"21.5");
    let backtrace = receiver.recv().unwrap();
    let _ = std::fs::remove_dir_all(&dir);
    ours(&backtrace)
}

#[tokio::test]
async fn at_most_eight_functions_lie_between_the_socket_and_the_application() {
    for (scheme, oscore) in [(Scheme::Coaps, false), (Scheme::Coap, true), (Scheme::Coaps, true)] {
        let functions = functions(scheme, oscore).await;
        assert!((4..=MOST).contains(&functions.len()), "{} functions: {functions:?}", functions.len());
        // Each is in the path of a datagram in ARCHITECTURE.md, in the same order.
        let mut rest = ARCHITECTURE.split_once("\nin   ").unwrap().1.split_once("\nout  ").unwrap().0;
        for name in &functions {
            let ends = |at: usize| !rest[at..].starts_with(|next: char| next.is_alphanumeric() || next == '_');
            let name = format!("::{name}");
            let mut places = rest.match_indices(&name).map(|(at, _)| at + name.len());
            let Some(end) = places.find(|end| ends(*end)) else { panic!("no {name} in its place of {functions:?}") };
            rest = &rest[end..];
        }
    }
}
