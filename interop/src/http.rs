//! HTTP at Tegmen's proxy. The HTTP client curl requests resources of libcoap and aiocoap. libcoap's client requests
//! resources of an HTTP server in Python.

use crate::cell::{Cell, Check, Role, Scene, free_port};
use crate::libcoap::{self, Build};
use crate::ours::{Psk, Served};
use crate::peers::{Built, source};
use crate::plain::big;
use crate::process::Process;
use crate::proxy::{Proxied, origin};
use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

/// The name of the HTTP client, and of its program.
pub(crate) const PEER: &str = "curl";

/// Returns the version of curl, if the program is installed.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(PEER).arg("--version").output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).split_whitespace().nth(1)?.to_owned())
}

/// Returns one [`Cell`] (a row of the result table) for each scenario with the HTTP client curl.
pub(crate) fn cells(version: &str, aiocoap: &Arc<Built>) -> Vec<Cell> {
    let mut cells = Vec::new();
    if libcoap::version().is_some() {
        let mut add = |scenario: &str, play: fn(&Scene) -> Check| {
            let scenario = format!("proxy to libcoap: {scenario}");
            cells.push(Cell::new(PEER, version, Role::Client, &scenario, play));
        };
        add("GET from the cache, PUT, GET, 404", libcoap_methods);
        add("ETag, 304", libcoap_conditions);
        add("5000 bytes both ways", libcoap_blocks);
    }
    let program = Arc::clone(aiocoap);
    let scenario = "proxy to aiocoap: GET, PUT, DELETE, 5000 bytes both ways";
    cells.push(Cell::new(PEER, version, Role::Client, scenario, move |scene| {
        program.ready()?;
        aiocoap_methods(&scene.with_new_deadline(), &program)
    }));
    cells
}

/// Returns one [`Cell`] (a row of the result table) for each scenario with an HTTP server, if its program and libcoap's
/// client are installed.
pub(crate) fn server_cells() -> Vec<Cell> {
    let Ok(output) = Command::new("python3").arg("--version").output() else { return Vec::new() };
    let version = String::from_utf8_lossy(&output.stdout).trim().replace("Python ", "");
    if libcoap::version().is_none() {
        return Vec::new();
    }
    let mut cells = Vec::new();
    let mut add = |scenario: &str, play: fn(&Scene) -> Check| {
        let scenario = format!("proxy, client of libcoap: {scenario}");
        cells.push(Cell::new("http.server", &version, Role::Server, &scenario, play));
    };
    add("GET from the cache, PUT, GET, DELETE, 4.04", server_methods);
    add("304", server_conditions);
    add("5000 bytes both ways", server_blocks);
    cells
}

/// An HTTP server of Python, and Tegmen's proxy that forwards requests to it.
struct Site<'a> {
    scene: &'a Scene,
    process: Process,
    port: u16,
    served: Served,
}

impl<'a> Site<'a> {
    fn start(scene: &'a Scene) -> Result<Self, String> {
        let port = free_port()?;
        let mut command = Command::new("python3");
        command.arg(source("http_server.py")).arg(port.to_string());
        let process = scene.start_command(command)?;
        process.await_output("listening\n", 0)?;
        let served = Served::start_with(scene, &Psk::usual(), &["--proxy-to", "http://127.0.0.1:*"])?;
        Ok(Self { scene, process, port, served })
    }

    /// Uses libcoap's client to request a resource of the HTTP server. Returns the responses.
    fn ask(&self, path: &str, words: &[&str]) -> Result<Vec<String>, String> {
        let proxy = format!("coap://127.0.0.1:{}", self.served.port + 1);
        let uri = format!("http://127.0.0.1:{}{path}", self.port);
        let words = [&["-B", "15", "-v", "7", "-P", &proxy], words, &[&uri]].concat();
        let mut process = self.scene.start(&Build::NoTls.client(), &words)?;
        process.await_end()?;
        Ok(libcoap::responses(&[process.out.text(), process.err.text()].concat()))
    }

    fn expects(&self, path: &str, words: &[&str], expected: &str) -> Check {
        match self.ask(path, words)?.as_slice() {
            [response] if response == expected => Ok(()),
            other => Err(format!("{words:?}: {other:?} came, not {expected:?}").into()),
        }
    }

    /// Checks that the HTTP server received the requests in `expected`.
    fn had(&self, expected: &[&str]) -> Check {
        let expected = format!("listening\n{}\n", expected.join("\n"));
        self.process.await_output(&expected, 0)?;
        match self.process.out.text() {
            printed if printed == expected => Ok(()),
            printed => Err(format!("the server printed {printed:?}, not {expected:?}").into()),
        }
    }
}

fn server_methods(scene: &Scene) -> Check {
    let site = Site::start(scene)?;
    site.expects("/v", &[], "2.05 hello")?;
    site.expects("/v", &[], "2.05 hello")?;
    site.had(&["GET /v 200 0"])?;
    site.expects("/v", &["-m", "put", "-e", "new"], "2.04")?;
    site.expects("/v", &[], "2.05 new")?;
    site.expects("/v", &["-m", "delete"], "2.02")?;
    site.expects("/v", &[], "4.04 nothing is here")?;
    site.had(&["GET /v 200 0", "PUT /v 204 3", "GET /v 200 0", "DELETE /v 204 0", "GET /v 404 0"])
}

fn server_conditions(scene: &Scene) -> Check {
    let site = Site::start(scene)?;
    site.expects("/short", &[], "2.05 short")?;
    std::thread::sleep(std::time::Duration::from_millis(1500));
    site.expects("/short", &[], "2.05 short")?;
    site.had(&["GET /short 200 0", "GET /short 304 0"])
}

fn server_blocks(scene: &Scene) -> Check {
    let site = Site::start(scene)?;
    let file = scene.file("big", big())?;
    site.ask("/v", &["-m", "put", "-f", &file.to_string_lossy()])?;
    let got = scene.directory().join("got");
    site.ask("/v", &["-o", &got.to_string_lossy()])?;
    site.had(&["PUT /v 204 5000", "GET /v 200 0"])?;
    match fs::read(got).map_err(|error| error.to_string())? == big().into_bytes() {
        true => Ok(()),
        false => Err("other bytes came".into()),
    }
}

/// Tegmen's proxy with an HTTP listener. The proxy forwards the requests to an origin.
struct Front<'a> {
    scene: &'a Scene,
    proxied: Proxied,
    port: u16,
}

/// The response that curl received.
struct Fetched {
    status: String,
    head: String,
    body: Vec<u8>,
}

impl<'a> Front<'a> {
    fn before(scene: &'a Scene, address: SocketAddr) -> Result<Self, String> {
        let port = free_port()?;
        let proxied = Proxied::with(scene, address, &["--proxy-http", &format!("127.0.0.1:{port}")])?;
        let front = Self { scene, proxied, port };
        // The process listens here later than in clear.
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            if std::time::Instant::now() > scene.deadline {
                return Err(format!("nobody took port {port}"));
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        Ok(front)
    }

    /// Uses curl to request a resource of the origin.
    fn curl(&self, path: &str, words: &[&str]) -> Result<Fetched, String> {
        let uri = format!("http://127.0.0.1:{}/hc/{}", self.port, self.proxied.uri(path));
        let (head, body) = (self.scene.directory().join("head"), self.scene.directory().join("body"));
        let _ = fs::remove_file(&body);
        let output = ["-sS", "-D", "head", "-o", "body", "-w", "%{http_code}"];
        let mut process = self.scene.start(PEER, &[&output[..], words, &[&uri]].concat())?;
        process.await_end()?;
        let read = fs::read_to_string(head).map_err(|error| format!("{error}: {}", process.err.text()))?;
        let body = fs::read(body).unwrap_or_default();
        Ok(Fetched { status: process.out.text(), head: read.to_ascii_lowercase(), body })
    }

    /// Checks the status and the body of a response.
    fn fetches(&self, path: &str, words: &[&str], status: &str, body: &str) -> Check {
        let fetched = self.curl(path, words)?;
        match fetched.status == status && fetched.body == body.as_bytes() {
            true => Ok(()),
            false => {
                let came = String::from_utf8_lossy(&fetched.body);
                Err(format!("{words:?}: {} {came:?} came, not {status} {body:?}", fetched.status).into())
            }
        }
    }
}

fn libcoap_methods(scene: &Scene) -> Check {
    let server = libcoap::Server::start(scene, Build::NoTls)?;
    let front = Front::before(scene, server.address)?;
    let path = "example_data";
    front.fetches(path, &["-X", "PUT", "-H", "Content-Type: text/plain", "-d", "first"], "201", "")?;
    front.fetches(path, &[], "200", "first")?;
    front.fetches(path, &[], "200", "first")?;
    front.proxied.came(2)?;
    front.fetches(path, &["-X", "PUT", "-H", "Content-Type: text/plain", "-d", "second"], "204", "")?;
    front.fetches(path, &[], "200", "second")?;
    match front.curl("nothing", &[])?.status.as_str() {
        "404" => Ok(()),
        other => Err(format!("{other} came, not 404").into()),
    }
}

/// Checks conditional requests. libcoap gives an entity tag to a representation of several blocks.
fn libcoap_conditions(scene: &Scene) -> Check {
    let server = libcoap::Server::start(scene, Build::NoTls)?;
    let front = Front::before(scene, server.address)?;
    let path = "example_data";
    scene.file("big", big())?;
    front.fetches(path, &["-T", "big"], "201", "")?;
    let fetched = front.curl(path, &[])?;
    let tag = fetched.head.lines().find_map(|line| line.strip_prefix("etag: "));
    let Some(tag) = tag else { return Err(format!("no ETag came: {}", fetched.head).into()) };
    front.fetches(path, &["-H", &format!("If-None-Match: {tag}")], "304", "")?;
    front.fetches(path, &["-H", "If-None-Match: \"00\""], "200", &big())
}

fn libcoap_blocks(scene: &Scene) -> Check {
    let server = libcoap::Server::start(scene, Build::NoTls)?;
    let front = Front::before(scene, server.address)?;
    scene.file("big", big())?;
    front.fetches("example_data", &["-T", "big"], "201", "")?;
    front.fetches("example_data", &[], "200", &big())
}

fn aiocoap_methods(scene: &Scene, peer: &Built) -> Check {
    let (server, address) = origin(scene, peer)?;
    let front = Front::before(scene, address)?;
    front.fetches("v", &[], "200", "hello")?;
    front.fetches("v", &["-X", "PUT", "-d", "new"], "204", "")?;
    front.fetches("v", &[], "200", "new")?;
    front.fetches("v", &["-X", "DELETE"], "204", "")?;
    front.fetches("big", &[], "200", &big())?;
    scene.file("big", big())?;
    front.fetches("big", &["-T", "big"], "204", "")?;
    server.await_output("took 5000 bytes\n", 0)?;
    Ok(())
}
