//! Peers that are CoAP libraries. Each library is used by a program of this project, which is a server or a client.
//!
//! `coap-server HOST PORT` prints `listening`. It has four resources: `/v` (GET, PUT, DELETE, and POST, which appends),
//! `/slow` (which sends a separate response), `/count` (which clients can observe), and `/big` (which returns and
//! accepts 5000 bytes). `coap-client METHOD URI [PAYLOAD]` prints one line `CODE PAYLOAD` for each response. METHOD
//! `observe` prints four responses, cancels the observation, prints `cancelled` and keeps running. In place of a
//! payload, `BIG` means the same 5000 bytes.

use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, Trouble, free_port};
use crate::ours::{Psk, Served, ask, observe_counting, probe};
use crate::peers::{self, Built};
use crate::process::Process;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tegmen::coap::Code;

struct Peer {
    name: &'static str,
    version: &'static str,
    program: Arc<Built>,
    /// True if the program supports DTLS. It then takes a PSK identity and a key as its last two arguments.
    secure: bool,
}

/// Returns one [`Cell`] (a row of the result table) for each scenario with a CoAP library, and the programs that must
/// be built for these scenarios.
pub(crate) fn all(aiocoap: &Arc<Built>, java: &Arc<Built>) -> (Vec<Cell>, Vec<Arc<Built>>) {
    let peers = [
        Peer { name: "aiocoap", version: "0.4.17", program: aiocoap.clone(), secure: false },
        Peer { name: "Californium", version: "3.14.0", program: java.clone(), secure: true },
    ];
    let built = peers.iter().map(|peer| peer.program.clone()).collect();
    (peers.into_iter().flat_map(|peer| cells(Arc::new(peer))).collect(), built)
}

fn cells(peer: Arc<Peer>) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |role, scenario: &str, play: fn(&Scene, &Peer) -> Check| {
        let played = peer.clone();
        cells.push(Cell::new(peer.name, peer.version, role, scenario, move |scene| {
            played.program.ready()?;
            play(&scene.with_new_deadline(), &played)
        }));
    };
    add(Role::Server, "GET, PUT, POST, DELETE", |scene, peer| server_methods(scene, peer, LOOPBACK));
    add(Role::Server, "IPv6", |scene, peer| server_methods(scene, peer, Ipv6Addr::LOCALHOST.into()));
    add(Role::Server, "separate response", server_separate);
    add(Role::Server, "NON", server_non);
    add(Role::Server, "/.well-known/core", server_well_known_core);
    add(Role::Server, "observe", server_observe);
    add(Role::Server, "block-wise, 5000 bytes both ways", |scene, peer| server_blocks(scene, peer, 1024));
    add(Role::Server, "block-wise, 5000 bytes both ways, blocks of 64", |scene, peer| server_blocks(scene, peer, 64));
    add(Role::Client, "GET, PUT, POST, DELETE", |scene, peer| client_methods(scene, peer, LOOPBACK));
    add(Role::Client, "IPv6", |scene, peer| client_methods(scene, peer, Ipv6Addr::LOCALHOST.into()));
    add(Role::Client, "separate response", client_separate);
    add(Role::Client, "NON", client_non);
    add(Role::Client, "/.well-known/core", client_well_known_core);
    add(Role::Client, "observe", client_observe);
    add(Role::Client, "block-wise, 5000 bytes both ways", client_blocks);
    if peer.secure {
        add(Role::Server, "coaps: GET, PUT", server_coaps);
        add(Role::Server, "coaps: probe", |scene, peer| {
            let psk = Psk::usual();
            let (_server, address) = peer.serve_with(scene, LOOPBACK, &[&psk.identity, &psk.hex()])?;
            probe(scene, address, &psk, "</v>")
        });
        add(Role::Client, "coaps: GET, PUT", client_coaps);
    }
    add(Role::Client, "is the version of the table", |_, peer| peers::is_version(&peer.program, peer.version));
    cells
}

impl Peer {
    fn serve(&self, scene: &Scene, host: IpAddr) -> Result<(Process, SocketAddr), String> {
        self.serve_with(scene, host, &[])
    }

    fn serve_with(&self, scene: &Scene, host: IpAddr, key: &[&str]) -> Result<(Process, SocketAddr), String> {
        let address = SocketAddr::new(host, free_port()?);
        let mut command = self.program.command()?;
        command.args(["coap-server", &host.to_string(), &address.port().to_string()]).args(key);
        let process = scene.start_command(command)?;
        process.await_output("listening\n", 0)?;
        Ok((process, address))
    }

    /// Runs the peer's client. Returns its output.
    fn ask(&self, scene: &Scene, words: &[&str]) -> Result<String, String> {
        let mut command = self.program.command()?;
        command.arg("coap-client").args(words);
        let mut process = scene.start_command(command)?;
        let status = process.await_end()?;
        if !status.success() {
            let told = process.err.text();
            return Err(format!("the client failed: {}", told.lines().last().unwrap_or("it printed nothing")));
        }
        Ok(process.out.text().trim().to_owned())
    }

    fn expect(&self, scene: &Scene, words: &[&str], expected: &str) -> Check {
        let printed = self.ask(scene, words)?;
        if printed == expected {
            Ok(())
        } else {
            Err(format!("the client printed {printed:?}, not {expected:?}").into())
        }
    }
}

// --- the peer is the server ---

pub(crate) fn is(scene: &Scene, words: &[&str], code: &str, payload: &str) -> Check {
    is_with(scene, words, None, code, payload)
}

fn is_with(scene: &Scene, words: &[&str], psk: Option<&Psk>, code: &str, payload: &str) -> Check {
    let answer = ask(scene, words, psk)?;
    if (answer.code.as_str(), answer.payload.as_str()) == (code, payload) {
        return Ok(());
    }
    let Some(method) = words.first() else { return Err("no words".into()) };
    Err(format!("{method} brought {} {:?}, not {code} {payload:?}", answer.code, answer.payload).into())
}

fn server_methods(scene: &Scene, peer: &Peer, host: IpAddr) -> Check {
    let (_server, address) = peer.serve(scene, host)?;
    let uri = format!("coap://{address}/v");
    is(scene, &["get", &uri], "2.05", "hello")?;
    is(scene, &["put", &uri, "a new value"], "2.04", "")?;
    is(scene, &["post", &uri, " and more"], "2.04", "a new value and more")?;
    is(scene, &["delete", &uri], "2.02", "")?;
    is(scene, &["get", &uri], "4.04", "")?;
    is(scene, &["put", &uri, "another"], "2.01", "")?;
    is(scene, &["get", &uri], "2.05", "another")
}

/// Checks that the server sent an empty acknowledgement, and then a confirmable response with this code and another
/// Message ID. The client must have acknowledged the response.
pub(crate) fn separate(capture: &Capture, code: Code) -> Check {
    let datagrams = capture.datagrams();
    let seen = |to_server: bool, begin: &[u8], len: usize| {
        datagrams.iter().any(|datagram| {
            datagram.to_server == to_server && datagram.bytes.len() >= len && datagram.bytes.starts_with(begin)
        })
    };
    let response = datagrams.iter().find(|datagram| {
        !datagram.to_server
            && matches!(datagram.bytes.as_slice(), [first, is, ..] if first & 0xf0 == 0x40 && *is == code.0)
    });
    let Some(&[_, _, id0, id1, ..]) = response.map(|response| response.bytes.as_slice()) else {
        return Err("no confirmable response passed".into());
    };
    match (seen(false, &[0x60, 0], 4), seen(true, &[0x60, 0, id0, id1], 4)) {
        (true, true) => Ok(()),
        (false, _) => Err("no empty acknowledgement came from the server".into()),
        (_, false) => Err("the client did not acknowledge the response".into()),
    }
}

fn server_separate(scene: &Scene, peer: &Peer) -> Check {
    let (_server, address) = peer.serve(scene, LOOPBACK)?;
    let capture = Capture::start(address)?;
    is(scene, &["get", &format!("coap://127.0.0.1:{}/slow", capture.port)], "2.05", "slowly")?;
    // The acknowledgement is the last datagram, and can still be in transit.
    std::thread::sleep(std::time::Duration::from_millis(200));
    separate(&capture, Code::CONTENT)
}

/// Checks that messages of type 1 (Non-confirmable) passed in both directions (RFC 7252, section 3).
fn both_non(capture: &Capture) -> Check {
    let datagrams = capture.datagrams();
    let non = datagrams.iter().all(|datagram| datagram.bytes.first().is_some_and(|first| first & 0xf0 == 0x50));
    if non && datagrams.len() == 2 { Ok(()) } else { Err("not everything that passed was NON".into()) }
}

fn server_non(scene: &Scene, peer: &Peer) -> Check {
    let (_server, address) = peer.serve(scene, LOOPBACK)?;
    let capture = Capture::start(address)?;
    is(scene, &["get", "--non", &format!("coap://127.0.0.1:{}/v", capture.port)], "2.05", "hello")?;
    both_non(&capture)
}

fn server_well_known_core(scene: &Scene, peer: &Peer) -> Check {
    let (_server, address) = peer.serve(scene, LOOPBACK)?;
    let answer = ask(scene, &["get", &format!("coap://{address}/.well-known/core")], None)?;
    let complete = ["</v>", "</slow>", "</count>"].iter().all(|link| answer.payload.contains(link));
    if complete { Ok(()) } else { Err(format!("its links are {:?}", answer.payload).into()) }
}

/// Checks an observation of the resource `/count` of the peer. Its value increases twice a second. After the fourth
/// representation Tegmen's client cancels the observation. The peer must then report that it has no observers.
fn server_observe(scene: &Scene, peer: &Peer) -> Check {
    let (server, address) = peer.serve(scene, LOOPBACK)?;
    observe_counting(scene, &format!("coap://{address}/count"), &[])?;
    server.await_output("observers 0", 0)?;
    Ok(())
}

/// Returns the 5000 bytes that the programs of the peers call `BIG`.
pub(crate) fn big() -> String {
    "0123456789abcdef".chars().cycle().take(5000).collect()
}

fn server_blocks(scene: &Scene, peer: &Peer, size: usize) -> Check {
    let (server, address) = peer.serve(scene, LOOPBACK)?;
    let capture = Capture::start(address)?;
    let uri = format!("coap://127.0.0.1:{}/big", capture.port);
    let size_text = size.to_string();
    is(scene, &["get", &uri, "--block-size", &size_text], "2.05", &big())?;
    let blocks = capture.datagrams().len();
    let file = scene.file("big", big())?;
    is(scene, &["put", &uri, "--file", &file.to_string_lossy(), "--block-size", &size_text], "2.04", "")?;
    server.await_output("took 5000 bytes\n", 0)?;
    let all = capture.datagrams().len();
    // Each block takes a request and an answer.
    let wanted = 5000usize.div_ceil(size).saturating_mul(2);
    if blocks >= wanted && all.saturating_sub(blocks) >= wanted {
        return Ok(());
    }
    Err(format!("{blocks} datagrams for GET and {} for PUT are no blocks of {size}", all - blocks).into())
}

fn server_coaps(scene: &Scene, peer: &Peer) -> Check {
    let psk = Psk::usual();
    let (_server, address) = peer.serve_with(scene, LOOPBACK, &[&psk.identity, &psk.hex()])?;
    let uri = format!("coaps://{address}/v");
    is_with(scene, &["get", &uri], Some(&psk), "2.05", "hello")?;
    is_with(scene, &["put", &uri, "a new value"], Some(&psk), "2.04", "")?;
    is_with(scene, &["get", &uri], Some(&psk), "2.05", "a new value")
}

// --- the peer is the client ---

fn client_methods(scene: &Scene, peer: &Peer, host: IpAddr) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let at = |path: &str| format!("coap://{}/{path}", SocketAddr::new(host, served.port + 1));
    peer.expect(scene, &["get", &at("v")], "2.05 hello")?;
    peer.expect(scene, &["put", &at("v"), "a new value"], "2.04")?;
    peer.expect(scene, &["get", &at("v")], "2.05 a new value")?;
    // The output of a program is the response to GET and POST alike.
    peer.expect(scene, &["post", &at("slow")], "2.05 slowly")?;
    let refused = peer.ask(scene, &["delete", &at("v")])?;
    if !refused.starts_with("4.05") {
        return Err(format!("DELETE of a value brought {refused:?}, not 4.05").into());
    }
    let missing = peer.ask(scene, &["get", &at("nothing")])?;
    if missing.starts_with("4.04") { Ok(()) } else { Err(format!("GET of nothing brought {missing:?}").into()) }
}

fn client_separate(scene: &Scene, peer: &Peer) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let capture = Capture::start((LOOPBACK, served.port + 1).into())?;
    peer.expect(scene, &["get", &format!("coap://127.0.0.1:{}/slow", capture.port)], "2.05 slowly")?;
    separate(&capture, Code::CONTENT)
}

fn client_non(scene: &Scene, peer: &Peer) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let capture = Capture::start((LOOPBACK, served.port + 1).into())?;
    peer.expect(scene, &["non", &format!("coap://127.0.0.1:{}/v", capture.port)], "2.05 hello")?;
    both_non(&capture)
}

fn client_well_known_core(scene: &Scene, peer: &Peer) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let uri = format!("coap://127.0.0.1:{}/.well-known/core", served.port + 1);
    let printed = peer.ask(scene, &["get", &uri])?;
    if printed.contains("</v>;rt=\"value\"") { Ok(()) } else { Err(format!("the client printed {printed:?}").into()) }
}

/// Checks that the peer's client observes the resource `/v` of Tegmen's server, and receives each value that the test
/// writes. After the client has cancelled the observation, it receives no later value.
fn client_observe(scene: &Scene, peer: &Peer) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let capture = Capture::start((LOOPBACK, served.port + 1).into())?;
    let mut command = peer.program.command()?;
    command.args(["coap-client", "observe", &format!("coap://127.0.0.1:{}/v", capture.port)]);
    let observer = scene.start_command(command)?;
    let direct = format!("coap://127.0.0.1:{}/v", served.port + 1);
    let mut from = observer.await_output("2.05 hello\n", 0)?;
    for value in ["one", "two", "three"] {
        is(scene, &["put", &direct, value], "2.04", "")?;
        from = observer.await_output(format!("2.05 {value}\n"), from)?;
    }
    observer.await_output("cancelled\n", from)?;
    let passed = || -> Result<usize, Trouble> {
        let before = capture.datagrams().len();
        is(scene, &["put", &direct, "unseen"], "2.04", "")?;
        is(scene, &["put", &direct, "unseen, too"], "2.04", "")?;
        std::thread::sleep(std::time::Duration::from_millis(300));
        Ok(capture.datagrams().len().saturating_sub(before))
    };
    // It may answer one more with a Reset (RFC 7641, section 3.6).
    passed()?;
    match passed()? {
        0 => Ok(()),
        more => Err(format!("{more} datagrams passed after the observer had gone").into()),
    }
}

fn client_blocks(scene: &Scene, peer: &Peer) -> Check {
    let files = scene.directory().join("files");
    std::fs::create_dir_all(&files).map_err(|error| error.to_string())?;
    scene.file("files/big", big())?;
    let served = Served::start_with(scene, &Psk::usual(), &["--dir-rw", "/files=files"])?;
    let at = |name: &str| format!("coap://127.0.0.1:{}/files/{name}", served.port + 1);
    peer.expect(scene, &["get", &at("big")], "2.05 BIG")?;
    peer.expect(scene, &["put", &at("new"), "BIG"], "2.01")?;
    peer.expect(scene, &["put", &at("new"), "BIG"], "2.04")?;
    if std::fs::read_to_string(files.join("new")).unwrap_or_default() != big() {
        return Err("the file has other bytes than those that were put".into());
    }
    peer.expect(scene, &["delete", &at("new")], "2.02")?;
    if files.join("new").exists() { Err("DELETE left the file".into()) } else { Ok(()) }
}

fn client_coaps(scene: &Scene, peer: &Peer) -> Check {
    let psk = Psk::usual();
    let served = Served::start(scene, &psk)?;
    let uri = format!("coaps://127.0.0.1:{}/v", served.port);
    peer.expect(scene, &["get", &uri, "", &psk.identity, &psk.hex()], "2.05 hello")?;
    peer.expect(scene, &["put", &uri, "a new value", &psk.identity, &psk.hex()], "2.04")?;
    peer.expect(scene, &["get", &uri, "", &psk.identity, &psk.hex()], "2.05 a new value")
}
