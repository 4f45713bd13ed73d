//! OSCORE (RFC 8613) between Tegmen and peers. Each peer is a library that a program of this project uses.
//!
//! `oscore-server CONTEXT HOST PORT` and `oscore-client CONTEXT METHOD URI [PAYLOAD]` do the same as `coap-server` and
//! `coap-client` (`plain.rs`), but protect the messages. CONTEXT is a file with an OSCORE context, which `tegmen oscore
//! export` writes in the format of the peer. With the METHOD `observe`, PAYLOAD is the number of representations after
//! which the client ends the observation. In each scenario a relay records the traffic: each request and each
//! successful response must be protected, and neither the client nor the server may use a sequence number twice.

pub(crate) mod group;
mod liboscore;
mod own;
mod rederivation;
mod wire;

pub(crate) use own::reader_cells;

use crate::capture::{Capture, Datagram};
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, Trouble, free_port};
use crate::ours::observe_counting;
use crate::peers::{self, Built, Places};
use crate::plain::{big, is, separate};
use crate::process::Process;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tegmen::coap::{Code, OptionNumber};

struct Peer {
    name: &'static str,
    version: &'static str,
    program: Arc<Built>,
    /// Format of the peer's contexts, for `tegmen oscore export --to`.
    format: &'static str,
    /// True if the peer requests an Echo after the loss of its replay window. The client of the peer must also answer a
    /// request for an Echo.
    echo: bool,
    /// True if the peer's client accepts notifications with an empty inner Observe, which RFC 8613 requires.
    observes: bool,
    /// True if the peer's client can cancel an observation at the server.
    cancels: bool,
    /// True if the peer supports the derivation of new keys (RFC 8613, appendix B.2).
    rederives: bool,
}

/// Returns one [`Cell`] (a row of the result table) for each scenario in which Tegmen uses OSCORE with another library,
/// or with Tegmen itself. Also returns the programs that must be built for these scenarios.
pub(crate) fn all(places: &Places, aiocoap: &Arc<Built>) -> (Vec<Cell>, Vec<Arc<Built>>) {
    let californium = places.java_peer("californium-oscore");
    let peers = [
        Peer {
            name: "aiocoap",
            version: "0.4.17",
            program: aiocoap.clone(),
            format: "aiocoap",
            echo: true,
            observes: true,
            cancels: false,
            rederives: false,
        },
        Peer {
            name: "Californium cf-oscore",
            version: "3.13.0",
            program: californium,
            format: "libcoap",
            echo: false,
            observes: false,
            cancels: true,
            rederives: true,
        },
    ];
    let through = aiocoap.clone();
    let through =
        Cell::new("aiocoap", "0.4.17", Role::Server, "OSCORE: a proxy that cuts what is protected", move |scene| {
            through.ready()?;
            through_a_proxy(&scene.with_new_deadline(), &through)
        });
    let (of_liboscore, liboscore) = liboscore::all(places);
    let (of_groups, members) = group::all(places);
    let built = peers.iter().map(|peer| peer.program.clone()).chain([liboscore]).chain(members).collect();
    let mut cells: Vec<Cell> = peers.into_iter().flat_map(|peer| cells(Arc::new(peer))).collect();
    cells.extend(of_liboscore);
    cells.extend(of_groups);
    cells.push(through);
    cells.extend(own::cells());
    (cells, built)
}

fn cells(peer: Arc<Peer>) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add_with = |role, scenario: &str, context: &'static [&str], play: fn(&Scene, &Peer) -> Check| {
        let played = peer.clone();
        cells.push(Cell::new(peer.name, peer.version, role, &format!("OSCORE: {scenario}"), move |scene| {
            played.program.ready()?;
            let scene = scene.with_new_deadline();
            ends(&scene, played.format, context)?;
            play(&scene, &played)
        }));
    };
    for (name, context) in CONTEXTS {
        add_with(Role::Server, &format!("GET, PUT with {name}"), context, server_methods);
        add_with(Role::Client, &format!("GET, PUT with {name}"), context, client_methods);
    }
    if peer.rederives {
        for (role, scenario, context, play) in rederivation::ROWS {
            add_with(role, scenario, context, play);
        }
    }
    let mut add = |role, scenario: &str, play| add_with(role, scenario, &[], play);
    add(Role::Server, "GET, PUT", server_methods);
    add(Role::Server, "block-wise, 5000 bytes both ways", server_blocks);
    add(Role::Server, "observe", server_observe);
    add(Role::Server, "separate response", server_separate);
    add(Role::Server, "a request after our crash", server_our_crash);
    add(Role::Server, "an Echo asked for after its crash", server_its_crash);
    add(Role::Client, "GET, PUT", client_methods);
    add(Role::Client, "block-wise, 5000 bytes both ways", client_blocks);
    add(Role::Client, "observe", client_observe);
    add(Role::Client, "the end of an observation", client_cancel);
    add(Role::Client, "separate response", client_separate);
    add(Role::Client, "no Echo asked for after our restart in order", client_our_restart);
    add(Role::Client, "an Echo asked for after our crash", client_our_crash);
    add(Role::Client, "a request after its crash", client_its_crash);
    add(Role::Client, "is the version of the table", |_, peer| peers::is_version(&peer.program, peer.version));
    cells
}

/// The names of contexts that differ from the usual context, each with the options of `tegmen oscore new` that create
/// it.
const CONTEXTS: [(&str, &[&str]); 5] = [
    ("an ID Context", &["--id-context", "0a0b0c"]),
    ("AES-CCM-16-128-128", &["--algorithm", "AES-CCM-16-128-128"]),
    ("AES-CCM-64-64-128", &["--algorithm", "AES-CCM-64-64-128"]),
    ("AES-CCM-64-128-128", &["--algorithm", "AES-CCM-64-128-128"]),
    ("A128GCM", &["--algorithm", "A128GCM"]),
];

/// Creates an OSCORE context: a file for Tegmen, and a file for the peer in the format of the peer. Also creates a
/// second context, with which the tests write the observed value.
pub(crate) fn ends(scene: &Scene, format: &str, context: &[&str]) -> Check {
    make(scene, &[&["new", OURS, "unused", "--sender-id", "01", "--recipient-id", "02"], context].concat())?;
    make(scene, &["new", WRITER, "contexts/writer", "--sender-id", "03", "--recipient-id", "01"])?;
    make(scene, &["export", "--to", format, OURS, THEIRS])
}

pub(crate) const OURS: &str = "contexts/ours";
pub(crate) const THEIRS: &str = "theirs";
const WRITER: &str = "writer";

/// Runs `tegmen oscore` with `words`.
fn make(scene: &Scene, words: &[&str]) -> Check {
    let contexts = scene.directory().join("contexts");
    std::fs::create_dir_all(contexts).map_err(|error| error.to_string())?;
    let mut process = scene.tegmen(&[&["oscore"], words].concat())?;
    match process.await_end()?.success() {
        true => Ok(()),
        false => Err(process.err.text().trim().into()),
    }
}

/// Starts `tegmen serve` with OSCORE only, with `/v`, `/slow` and the directory `/files`.
pub(crate) fn serve(scene: &Scene, port: u16) -> Result<Process, String> {
    scene.file("slow.sh", "sleep 2\nprintf slowly\n")?;
    std::fs::create_dir_all(scene.directory().join("files")).map_err(|error| error.to_string())?;
    let plain_port = port.to_string();
    let to = ["serve", "--listen", "127.0.0.1", "--plain-port", &plain_port, "--no-secure", "--shards", "1"];
    let what = ["--value", "/v=hello", "--command", "/slow=sh slow.sh", "--dir-rw", "/files=files"];
    let process = scene.tegmen(&[&to[..], &what, &["--oscore", "contexts"]].concat())?;
    process.await_output("OSCORE with ", 0)?;
    Ok(process)
}

/// Starts Tegmen's server and a relay to it.
fn served(scene: &Scene) -> Result<(Process, u16, Capture), String> {
    let port = free_port()?;
    let process = serve(scene, port)?;
    Ok((process, port, Capture::start((LOOPBACK, port).into())?))
}

fn uri(port: u16, path: &str) -> String {
    format!("coap://127.0.0.1:{port}/{path}")
}

impl Peer {
    fn serve_at(&self, scene: &Scene, address: SocketAddr) -> Result<Process, String> {
        let mut command = self.program.command()?;
        command.args(["oscore-server", THEIRS, &address.ip().to_string(), &address.port().to_string()]);
        let process = scene.start_command(command)?;
        process.await_output("listening\n", 0)?;
        Ok(process)
    }

    /// Starts the peer's server and a relay to it.
    fn serve(&self, scene: &Scene) -> Result<(Process, SocketAddr, Capture), String> {
        let address = SocketAddr::new(LOOPBACK, free_port()?);
        Ok((self.serve_at(scene, address)?, address, Capture::start(address)?))
    }

    fn start(&self, scene: &Scene, words: &[&str]) -> Result<Process, String> {
        let mut command = self.program.command()?;
        command.args(["oscore-client", THEIRS]).args(words);
        scene.start_command(command)
    }

    /// Runs the peer's client. Returns its output.
    fn ask(&self, scene: &Scene, words: &[&str]) -> Result<String, String> {
        let mut process = self.start(scene, words)?;
        if !process.await_end()?.success() {
            let told = process.err.text();
            return Err(format!("the client failed: {}", told.lines().last().unwrap_or("it printed nothing")));
        }
        Ok(process.out.text().trim().to_owned())
    }

    fn expect(&self, scene: &Scene, words: &[&str], expected: &str) -> Check {
        let printed = self.ask(scene, words)?;
        match printed == expected {
            true => Ok(()),
            false => Err(format!("the client printed {printed:?}, not {expected:?}").into()),
        }
    }
}

/// Runs Tegmen's client with the context of this scenario. Checks the code and the payload that the client receives.
fn brings(scene: &Scene, words: &[&str], code: &str, payload: &str) -> Check {
    is(scene, &[words, &["--oscore", OURS]].concat(), code, payload)
}

/// Checks block-wise transfers between Tegmen's client and Tegmen's server through a proxy. The proxy supports CoAP but
/// not OSCORE, and splits messages of more than 256 bytes into blocks (RFC 8613, section 4.1.3.4.2). Tegmen's own
/// blocks have 1024 bytes, so the proxy splits each of these protected messages.
fn through_a_proxy(scene: &Scene, proxy: &Built) -> Check {
    make(scene, &["new", OURS, "unused", "--sender-id", "01", "--recipient-id", "02"])?;
    make(scene, &["new", "client", "contexts/server", "--sender-id", "05", "--recipient-id", "06"])?;
    let (_served, _, behind) = served(scene)?;
    let address = SocketAddr::new(LOOPBACK, free_port()?);
    let mut command = proxy.command()?;
    command.args([
        "proxy",
        &address.ip().to_string(),
        &address.port().to_string(),
        &format!("127.0.0.1:{}", behind.port),
    ]);
    let process = scene.start_command(command)?;
    process.await_output("listening\n", 0)?;
    let before = Capture::start(address)?;
    let file = scene.file("big", big())?;
    let target = uri(before.port, "files/new");
    let through =
        |words: &[&str], code, payload: &str| is(scene, &[words, &["--oscore", "client"]].concat(), code, payload);
    through(&["put", &target, "--file", &file.to_string_lossy()], "2.01", "")?;
    through(&["get", &target], "2.05", &big())?;
    for (capture, option, who) in [(&behind, OptionNumber::BLOCK1, "server"), (&before, OptionNumber::BLOCK2, "client")]
    {
        if wire::with_option(capture, option)? < 5 {
            return Err(format!("our {who} got nothing that was cut").into());
        }
    }
    Ok(())
}

/// Waits until a datagram has passed the relay.
fn await_traffic(scene: &Scene, capture: &Capture) -> Result<(), String> {
    while capture.datagrams().is_empty() {
        if Instant::now() > scene.deadline {
            return Err("nothing was sent".to_owned());
        }
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Returns the datagrams that pass the relay while `happens` runs, and 300 ms longer.
fn passing(capture: &Capture, happens: impl FnOnce() -> Check) -> Result<Vec<Datagram>, Trouble> {
    let before = capture.datagrams().len();
    happens()?;
    sleep(Duration::from_millis(300));
    Ok(capture.datagrams().split_off(before))
}

// --- the peer is the server ---

fn server_methods(scene: &Scene, peer: &Peer) -> Check {
    let (_server, _, capture) = peer.serve(scene)?;
    let v = uri(capture.port, "v");
    brings(scene, &["get", &v], "2.05", "hello")?;
    brings(scene, &["put", &v, "a new value"], "2.04", "")?;
    brings(scene, &["get", &v], "2.05", "a new value")?;
    wire::protected(&capture)
}

fn server_blocks(scene: &Scene, peer: &Peer) -> Check {
    let (server, _, capture) = peer.serve(scene)?;
    let big_uri = uri(capture.port, "big");
    let get = passing(&capture, || brings(scene, &["get", &big_uri], "2.05", &big()))?;
    let file = scene.file("big", big())?;
    let put = passing(&capture, || brings(scene, &["put", &big_uri, "--file", &file.to_string_lossy()], "2.04", ""))?;
    server.await_output("took 5000 bytes\n", 0)?;
    for (name, passed) in [("GET", get), ("PUT", put)] {
        // A block has at most 1024 bytes.
        if wire::requests(&passed) < 5 {
            return Err(format!("{} datagrams are no blocks of {name}", passed.len()).into());
        }
    }
    wire::protected(&capture)
}

/// Checks an observation of the resource `/count` of the peer. Its value increases twice a second. After the fourth
/// representation Tegmen's client cancels the observation. The peer must then report that it has no observers.
fn server_observe(scene: &Scene, peer: &Peer) -> Check {
    let (server, _, capture) = peer.serve(scene)?;
    observe_counting(scene, &uri(capture.port, "count"), &["--oscore", OURS])?;
    server.await_output("observers 0", 0)?;
    wire::protected(&capture)
}

fn server_separate(scene: &Scene, peer: &Peer) -> Check {
    let (_server, _, capture) = peer.serve(scene)?;
    brings(scene, &["get", &uri(capture.port, "slow")], "2.05", "slowly")?;
    // The acknowledgement is the last datagram, and can still be in transit.
    sleep(Duration::from_millis(200));
    separate(&capture, Code::CHANGED)?;
    wire::protected(&capture)
}

/// Checks a crash of Tegmen's client. The killed client leaves no record of the last sequence number that it used. The
/// next client must not use a sequence number again.
fn server_our_crash(scene: &Scene, peer: &Peer) -> Check {
    let (_server, _, capture) = peer.serve(scene)?;
    let mut killed = scene.tegmen(&["get", &uri(capture.port, "slow"), "--oscore", OURS])?;
    await_traffic(scene, &capture)?;
    killed.kill();
    brings(scene, &["get", &uri(capture.port, "v")], "2.05", "hello")?;
    wire::protected(&capture)
}

/// Checks a crash of the peer's server. The peer lost its replay window, so it must verify with an Echo that a request
/// is fresh (appendix B.1.2).
fn server_its_crash(scene: &Scene, peer: &Peer) -> Check {
    let (mut server, address, capture) = peer.serve(scene)?;
    let v = uri(capture.port, "v");
    let old = passing(&capture, || brings(scene, &["get", &v], "2.05", "hello"))?;
    server.kill();
    let _server = peer.serve_at(scene, address)?;
    let first = passing(&capture, || brings(scene, &["get", &v], "2.05", "hello"))?;
    let second = passing(&capture, || brings(scene, &["get", &v], "2.05", "hello"))?;
    wire::protected(&capture)?;
    match (wire::requests(&first), wire::requests(&second)) {
        (2, 1) => Ok(()),
        (1, 1) if !peer.echo => {
            let request = old.first().ok_or("nothing passed")?;
            let code = wire::code(&sent_again(address, &request.bytes)?)?;
            match code.is_success() {
                true => Err(Trouble::Lacks(format!(
                    "it asks for no Echo after its restart: a request from before, sent again, brings {code}"
                ))),
                false => Err(format!("it asks for no Echo, and answers an old request with {code}").into()),
            }
        }
        counts => Err(format!("the requests after its restart were {counts:?}, not (2, 1)").into()),
    }
}

/// Sends `request` from a new port. Returns the answer.
fn sent_again(server: SocketAddr, request: &[u8]) -> Result<Vec<u8>, String> {
    let exchange = || {
        let socket = UdpSocket::bind((LOOPBACK, 0))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket.send_to(request, server)?;
        let mut answer = vec![0; 2048];
        let len = socket.recv(&mut answer)?;
        answer.truncate(len);
        Ok(answer)
    };
    exchange().map_err(|error: std::io::Error| format!("a request sent again: {error}"))
}

// --- the peer is the client ---

fn client_methods(scene: &Scene, peer: &Peer) -> Check {
    let (_served, _, capture) = served(scene)?;
    let v = uri(capture.port, "v");
    peer.expect(scene, &["get", &v], "2.05 hello")?;
    peer.expect(scene, &["put", &v, "a new value"], "2.04")?;
    peer.expect(scene, &["get", &v], "2.05 a new value")?;
    wire::protected(&capture)
}

fn client_blocks(scene: &Scene, peer: &Peer) -> Check {
    let (_served, _, capture) = served(scene)?;
    scene.file("files/big", big())?;
    peer.expect(scene, &["get", &uri(capture.port, "files/big")], "2.05 BIG")?;
    peer.expect(scene, &["put", &uri(capture.port, "files/new"), "BIG"], "2.01")?;
    if std::fs::read_to_string(scene.directory().join("files/new")).unwrap_or_default() != big() {
        return Err("the file has other bytes than those that were put".into());
    }
    wire::protected(&capture)
}

/// Checks that the peer's client observes the resource `/v` of Tegmen's server, and receives each value that the test
/// writes.
fn client_observe(scene: &Scene, peer: &Peer) -> Check {
    let (_served, port, capture) = served(scene)?;
    let observer = peer.start(scene, &["observe", &uri(capture.port, "v"), "4"])?;
    let mut from = observer.await_output("2.05 hello\n", 0)?;
    for value in ["one", "two", "three"] {
        let passed = passing(&capture, || write(scene, port, value))?;
        let delivered = observer.out.text().contains(value);
        if !peer.observes && wire::acknowledged(&passed) && !delivered {
            wire::protected(&capture)?;
            return Err(Trouble::Lacks(
                "it acknowledges a notification and never delivers it: its inner Observe is empty (RFC 8613, section \
                 4.1.3.5.2), which this client takes for a number that does not rise"
                    .to_owned(),
            ));
        }
        from = observer.await_output(format!("2.05 {value}\n"), from)?;
    }
    wire::protected(&capture)
}

/// Sends a PUT with the new value of the observed resource to the server at `port`. The request does not pass the relay
/// that records the traffic of the observing client.
pub(crate) fn write(scene: &Scene, port: u16, value: &str) -> Check {
    is(scene, &["put", &uri(port, "v"), value, "--oscore", WRITER], "2.04", "")
}

/// Checks that a client that cancelled its observation gets no further notifications.
fn client_cancel(scene: &Scene, peer: &Peer) -> Check {
    let (_served, port, capture) = served(scene)?;
    let observer = peer.start(scene, &["observe", &uri(capture.port, "v"), "1"])?;
    observer.await_output("2.05 hello\n", 0)?;
    observer.await_output("cancelled\n", 0)?;
    // The client may reject one more notification with a Reset (RFC 7641, section 3.6).
    passing(&capture, || write(scene, port, "unseen"))?;
    let passed = passing(&capture, || write(scene, port, "unseen, too"))?;
    wire::protected(&capture)?;
    match passed.len() {
        0 => Ok(()),
        _ if !peer.cancels && wire::acknowledged(&passed) => {
            Err(Trouble::Lacks("it acknowledges all notifications after the application has cancelled".to_owned()))
        }
        more => Err(format!("{more} datagrams passed after the observer had gone").into()),
    }
}

fn client_separate(scene: &Scene, peer: &Peer) -> Check {
    let (_served, _, capture) = served(scene)?;
    peer.expect(scene, &["get", &uri(capture.port, "slow")], "2.05 slowly")?;
    separate(&capture, Code::CHANGED)?;
    wire::protected(&capture)
}

fn client_our_restart(scene: &Scene, peer: &Peer) -> Check {
    let (served, port, capture) = served(scene)?;
    let v = uri(capture.port, "v");
    peer.expect(scene, &["get", &v], "2.05 hello")?;
    // The server ends in order and stores its replay window.
    drop(served);
    let _served = serve(scene, port)?;
    let passed = passing(&capture, || peer.expect(scene, &["get", &v], "2.05 hello"))?;
    wire::protected(&capture)?;
    match wire::requests(&passed) {
        1 => Ok(()),
        count => Err(format!("it took {count} requests").into()),
    }
}

fn client_our_crash(scene: &Scene, peer: &Peer) -> Check {
    let (mut served, port, capture) = served(scene)?;
    let v = uri(capture.port, "v");
    peer.expect(scene, &["get", &v], "2.05 hello")?;
    served.kill();
    let _served = serve(scene, port)?;
    let mut printed = String::new();
    let first = passing(&capture, || {
        printed = peer.ask(scene, &["get", &v])?;
        Ok(())
    })?;
    wire::protected(&capture)?;
    match (printed.as_str(), wire::requests(&first)) {
        ("2.05 hello", 2) => {
            let second = passing(&capture, || peer.expect(scene, &["get", &v], "2.05 hello"))?;
            wire::protected(&capture)?;
            match wire::requests(&second) {
                1 => Ok(()),
                count => Err(format!("the next one took {count} requests").into()),
            }
        }
        (printed, 1) if !peer.echo && printed.starts_with("4.01") && printed.contains("Echo") => {
            let same = peer.ask(scene, &["get", &v])?;
            Err(Trouble::Lacks(format!("it gives the application {same:?} and does not repeat the request")))
        }
        (printed, count) => Err(format!("{count} requests brought {printed:?}").into()),
    }
}

fn client_its_crash(scene: &Scene, peer: &Peer) -> Check {
    let (_served, _, capture) = served(scene)?;
    let mut killed = peer.start(scene, &["get", &uri(capture.port, "slow")])?;
    await_traffic(scene, &capture)?;
    killed.kill();
    peer.expect(scene, &["get", &uri(capture.port, "v")], "2.05 hello")?;
    wire::protected(&capture)
}
