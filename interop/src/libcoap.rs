//! The example server and the example client of libcoap: with OpenSSL, with GnuTLS and without DTLS.

use crate::cell::{Cell, Check, Role, Scene, Trouble, free_port};
use crate::ours::{Answer, Library, Psk, Served, ask, names_identity_and_key, probe, start_ask};
use crate::process::Process;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;
use tegmen::coap::Code;

/// The DTLS library with which a program of libcoap is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    OpenSsl,
    GnuTls,
    NoTls,
}

impl Build {
    const ALL: [Self; 3] = [Self::OpenSsl, Self::GnuTls, Self::NoTls];

    const fn suffix(self) -> &'static str {
        match self {
            Self::OpenSsl => "openssl",
            Self::GnuTls => "gnutls",
            Self::NoTls => "notls",
        }
    }

    fn server(self) -> String {
        format!("coap-server-{}", self.suffix())
    }

    pub(crate) fn client(self) -> String {
        format!("coap-client-{}", self.suffix())
    }

    pub(crate) fn peer(self) -> String {
        format!("libcoap-{}", self.suffix())
    }

    fn secure(self) -> bool {
        self != Self::NoTls
    }
}

/// Returns the names of the programs that must be installed.
pub(crate) fn programs() -> Vec<String> {
    Build::ALL.iter().flat_map(|build| [build.server(), build.client()]).collect()
}

/// Returns the version of libcoap, which its example client prints if it gets no arguments.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(Build::NoTls.client()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let version = text.split_whitespace().nth(1)?.strip_prefix('v')?;
    Some(version.to_owned())
}

/// A scenario: its name, and the function that runs it with one build of the peer.
type Scenario = (&'static str, fn(&Scene, Build) -> Check);

/// Returns one [`Cell`] (a row of the result table) for each scenario with the programs of libcoap.
pub(crate) fn cells(version: &str) -> Vec<Cell> {
    let mut cells = Vec::new();
    for build in Build::ALL {
        let mut add = |role, scenario: &str, play: fn(&Scene, Build) -> Check| {
            cells.push(Cell::new(&build.peer(), version, role, scenario, move |scene| play(scene, build)));
        };
        let scenarios: [Scenario; 8] = [
            ("GET", server_get),
            ("PUT, then GET of the same value", server_put_get),
            ("/.well-known/core", server_well_known_core),
            ("separate response", server_separate),
            ("NON", server_non),
            ("several requests in one session", server_several),
            ("observe", server_observe),
            ("block-wise, 5000 bytes both ways", server_blocks),
        ];
        for (scenario, play) in scenarios {
            add(Role::Server, scenario, play);
        }
        add(Role::Server, "IPv6", server_ipv6);
        if build.secure() {
            add(Role::Server, "minimal profile", server_minimal);
            add(Role::Server, "wrong key", server_wrong_key);
            add(Role::Server, "unknown identity", server_unknown_identity);
            add(Role::Server, "key of 64 bytes", server_long_key);
            add(Role::Server, "probe", |scene, build| {
                let server = Server::start(scene, build)?;
                probe(scene, server.address, &Psk::usual(), "</time>")
            });
        }
        let scenarios: [Scenario; 10] = [
            ("GET", client_get),
            ("PUT, then GET of the same value", client_put_get),
            ("/.well-known/core", client_well_known_core),
            ("separate response", client_separate),
            ("ping while it waits", client_ping),
            ("NON", client_non),
            ("several requests in one session", client_several),
            ("IPv6", client_ipv6),
            ("observe", client_observe),
            ("block-wise, 5000 bytes both ways", client_blocks),
        ];
        for (scenario, play) in scenarios {
            add(Role::Client, scenario, play);
        }
        if build == Build::NoTls {
            add(Role::Client, "request to a group", client_group);
        }
        if build.secure() {
            add(Role::Client, "wrong key", client_wrong_key);
            add(Role::Client, "unknown identity", client_unknown_identity);
            add(Role::Client, "key of 64 bytes", client_long_key);
        }
    }
    cells
}

// --- coap-server ---

pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    psk: Option<Psk>,
}

impl Server {
    pub(crate) fn start(scene: &Scene, build: Build) -> Result<Self, String> {
        Self::start_with(scene, build, (Ipv4Addr::LOCALHOST, 0).into(), &Psk::usual(), &[])
    }

    /// Starts the server. For DTLS the server uses the port after the port on its command line.
    pub(crate) fn start_with(
        scene: &Scene,
        build: Build,
        host: SocketAddr,
        psk: &Psk,
        more: &[&str],
    ) -> Result<Self, String> {
        let port = free_port()?;
        let (host_text, port_text) = (host.ip().to_string(), port.to_string());
        let mut command = Command::new(build.server());
        command.args(["-A", &host_text, "-p", &port_text, "-d", "10", "-v", "7"]);
        if build.secure() {
            command.arg("-k").arg(psk.word());
        }
        command.args(more);
        let process = scene.start_command(command)?;
        let secure_port = if build.secure() { port + 1 } else { port };
        let address = SocketAddr::new(host.ip(), secure_port);
        await_bound(scene, address)?;
        Ok(Self { process, address, psk: build.secure().then(|| psk.clone()) })
    }

    pub(crate) fn uri(&self, path: &str) -> String {
        let scheme = if self.psk.is_some() { "coaps" } else { "coap" };
        format!("{scheme}://{}/{path}", self.address)
    }

    fn ask(&self, scene: &Scene, method: &str, path: &str, more: &[&str]) -> Result<Answer, String> {
        ask(scene, &[&[method, &self.uri(path)], more].concat(), self.psk.as_ref())
    }

    /// Waits for `text` in the server's log, because the server may log the last message late.
    fn saw(&self, text: &str) -> Result<(), String> {
        self.process.await_output(text, 0).map(drop)
    }
}

/// Waits until the port is in use, because the server prints nothing when it is ready.
fn await_bound(scene: &Scene, address: SocketAddr) -> Result<(), String> {
    while std::net::UdpSocket::bind(address).is_ok() {
        if std::time::Instant::now() > scene.deadline {
            return Err(format!("nobody took {address}"));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

pub(crate) fn is(answer: &Answer, code: &str, payload_begins: &str) -> Check {
    if answer.code == code && answer.payload.starts_with(payload_begins) {
        return Ok(());
    }
    Err(format!("the answer was {} {:?}, not {code} {payload_begins:?}", answer.code, answer.payload).into())
}

pub(crate) const INDEX: &str = "This is a test server made with libcoap";

fn server_get(scene: &Scene, build: Build) -> Check {
    let server = Server::start(scene, build)?;
    is(&server.ask(scene, "get", "", &[])?, "2.05", INDEX)?;
    is(&server.ask(scene, "get", "nothing", &[])?, "4.04", "")
}

fn server_put_get(scene: &Scene, build: Build) -> Check {
    let server = Server::start(scene, build)?;
    // It responds "created" for a new value, and "changed" for one that exists.
    is(&server.ask(scene, "put", "example_data", &["a first value"])?, "2.01", "")?;
    is(&server.ask(scene, "put", "example_data", &["a new value"])?, "2.04", "")?;
    is(&server.ask(scene, "get", "example_data", &[])?, "2.05", "a new value")?;
    is(&server.ask(scene, "put", "made/here", &["1"])?, "2.01", "")?;
    is(&server.ask(scene, "get", "made/here", &[])?, "2.05", "1")?;
    is(&server.ask(scene, "delete", "made/here", &[])?, "2.02", "")
}

fn server_well_known_core(scene: &Scene, build: Build) -> Check {
    let answer = Server::start(scene, build)?.ask(scene, "get", ".well-known/core", &[])?;
    is(&answer, "2.05", "</>")?;
    if answer.payload.contains("</time>") { Ok(()) } else { Err("it lists no </time>".into()) }
}

fn server_separate(scene: &Scene, build: Build) -> Check {
    let server = Server::start(scene, build)?;
    let answer = server.ask(scene, "get", "async?1", &[])?;
    is(&answer, "2.05", "done")?;
    if answer.round_trip < Duration::from_millis(900) {
        return Err(format!("it came after {:?}, so it was not separate", answer.round_trip).into());
    }
    Ok(server.saw("t:ACK c:0.00")?)
}

fn server_non(scene: &Scene, build: Build) -> Check {
    let server = Server::start(scene, build)?;
    is(&server.ask(scene, "get", "", &["--non"])?, "2.05", INDEX)?;
    Ok(server.saw("t:NON c:GET")?)
}

fn server_several(scene: &Scene, build: Build) -> Check {
    let server = Server::start(scene, build)?;
    let client = Library::connect(server.address, server.psk.as_ref(), None)?;
    for number in 0..10u8 {
        let value = [b'0' + number];
        client.request(Code::PUT, "example_data", &value).map_err(|error| error.to_string())?;
        let reply = client.request(Code::GET, "example_data", b"").map_err(|error| error.to_string())?;
        if reply.code != Code::CONTENT || reply.payload != value {
            return Err(format!("answer {number} was {} {:?}", reply.code, reply.payload).into());
        }
    }
    client.close();
    Ok(())
}

/// Checks an observation of the server's time, which changes every second. The last request must cancel the observation
/// (RFC 7641, section 3.6).
fn server_observe(scene: &Scene, build: Build) -> Check {
    let server = Server::start(scene, build)?;
    let (uri, hex) = (server.uri("time"), Psk::usual().hex());
    let mut words = vec!["observe", &uri, "--count", "3", "--json"];
    if build.secure() {
        words.extend(["--identity", "Client_identity", "--key", &hex]);
    }
    let mut observer = scene.tegmen(&words)?;
    if !observer.await_end()?.success() {
        return Err(format!("tegmen reports: {}", observer.err.text().trim()).into());
    }
    let seen = observer.out.text().matches("\"event\":\"representation\"").count();
    if seen != 3 {
        return Err(format!("{seen} representations came, not 3").into());
    }
    server.saw("Observe:0")?;
    Ok(server.saw("Observe:1")?)
}

/// Returns 5000 bytes: 1000 different numbers, each followed by a space.
fn big() -> String {
    (0..1000).map(|number| format!("{number:04} ")).collect()
}

fn server_blocks(scene: &Scene, build: Build) -> Check {
    let server = Server::start(scene, build)?;
    let file = scene.file("big", big())?;
    let put = server.ask(scene, "put", "example_data", &["--file", &file.to_string_lossy(), "--block-size", "256"])?;
    if !put.code.starts_with('2') {
        return Err(format!("PUT brought {} {:?}", put.code, put.payload).into());
    }
    is(&server.ask(scene, "get", "example_data", &["--block-size", "256"])?, "2.05", &big())?;
    server.saw("Block1:19/_/256")?;
    Ok(server.saw("Block2:19/_/256")?)
}

fn server_ipv6(scene: &Scene, build: Build) -> Check {
    let host = (std::net::Ipv6Addr::LOCALHOST, 0).into();
    let server = Server::start_with(scene, build, host, &Psk::usual(), &[])?;
    is(&server.ask(scene, "get", "", &[])?, "2.05", INDEX)
}

fn server_minimal(scene: &Scene, build: Build) -> Check {
    let server = Server::start(scene, build)?;
    is(&server.ask(scene, "get", "", &["--minimal"])?, "2.05", INDEX)
}

fn server_wrong_key(scene: &Scene, build: Build) -> Check {
    let server = Server::start(scene, build)?;
    let asked = start_ask(scene, &["get", &server.uri("")], Some(&Psk::with_key("wrongPSK")))?;
    names_identity_and_key(&asked.failure()?)
}

/// Checks that a client with an unknown identity fails. With `-i` the server has a list of identities.
fn server_unknown_identity(scene: &Scene, build: Build) -> Check {
    scene.file("identities", "CoAP,Client_identity,secretPSK\n")?;
    let psk = Psk::with_key("anotherPSK");
    let server = Server::start_with(scene, build, (Ipv4Addr::LOCALHOST, 0).into(), &psk, &["-i", "identities"])?;
    // An identity in the list has the key of the list.
    is(&ask(scene, &["get", &server.uri("")], Some(&Psk::usual()))?, "2.05", INDEX)?;
    let stranger = Psk { identity: "nobody".to_owned(), key: "secretPSK".into() };
    let asked = start_ask(scene, &["get", &server.uri("")], Some(&stranger))?;
    names_identity_and_key(&asked.failure()?)
}

fn server_long_key(scene: &Scene, build: Build) -> Check {
    let psk = Psk::with_key(&"k".repeat(64));
    let server = Server::start_with(scene, build, (Ipv4Addr::LOCALHOST, 0).into(), &psk, &[])?;
    is(&server.ask(scene, "get", "", &[])?, "2.05", INDEX)
}

// --- coap-client ---

/// The client of libcoap, which sends requests to a Tegmen server. Its exit code is always 0, so the scenarios check
/// its output.
pub(crate) struct Client<'s> {
    scene: &'s Scene,
    build: Build,
    served: Served,
    psk: Psk,
}

impl<'s> Client<'s> {
    fn new(scene: &'s Scene, build: Build) -> Result<Self, String> {
        Self::with(scene, build, &Psk::usual(), Psk::usual())
    }

    /// Makes a client as [`Self::new`] does, with the identities and keys of the server and of the client.
    pub(crate) fn with(scene: &'s Scene, build: Build, servers: &Psk, psk: Psk) -> Result<Self, String> {
        Ok(Self { scene, build, served: Served::start(scene, servers)?, psk })
    }

    fn ask_at(&self, host: &str, path: &str, more: &[&str]) -> Result<Process, String> {
        let (scheme, port) = match self.build.secure() {
            true => ("coaps", self.served.port),
            false => ("coap", self.served.port + 1),
        };
        let uri = format!("{scheme}://{host}:{port}/{path}");
        let mut command = Command::new(self.build.client());
        command.args(["-B", "15", "-v", "7"]);
        if self.build.secure() {
            command.args(["-u", &self.psk.identity, "-k"]).arg(self.psk.word());
        }
        command.args(more).arg(&uri);
        let mut process = self.scene.start_command(command)?;
        process.await_end()?;
        Ok(process)
    }

    /// Requests `path` from `host`. Returns the process of the client, and a text for each response: its code and its
    /// payload, as the client logs them.
    fn responses_at(&self, host: &str, path: &str, more: &[&str]) -> Result<(Process, Vec<String>), String> {
        let process = self.ask_at(host, path, more)?;
        let printed = [process.out.text(), process.err.text()].concat();
        let responses = responses(&printed);
        Ok((process, responses))
    }

    pub(crate) fn expect(&self, path: &str, more: &[&str], expected: &[&str]) -> Result<Process, Trouble> {
        self.expect_at("127.0.0.1", path, more, expected)
    }

    fn expect_at(&self, host: &str, path: &str, more: &[&str], expected: &[&str]) -> Result<Process, Trouble> {
        let (process, responses) = self.responses_at(host, path, more)?;
        if responses == expected {
            return Ok(process);
        }
        Err(format!("the client saw {responses:?}, not {expected:?}").into())
    }
}

/// Reads the output of a client. Returns a text for each response: its code and its payload, as the client logs them.
pub(crate) fn responses(printed: &str) -> Vec<String> {
    let response = |line: &str| {
        let code = line.split_once(" c:")?.1.split(' ').next()?.to_owned();
        let payload = line.split_once(" :: '").map_or("", |(_, payload)| payload.trim_end_matches('\''));
        let is_response = code.starts_with(['2', '4', '5']);
        is_response.then(|| format!("{code} {payload}").trim().to_owned())
    };
    printed.lines().filter_map(response).collect()
}

pub(crate) fn printed(process: &Process, text: &str) -> Check {
    let all = [process.out.text(), process.err.text()].concat();
    if all.contains(text) { Ok(()) } else { Err(format!("the client's log has no {text:?}").into()) }
}

fn client_get(scene: &Scene, build: Build) -> Check {
    let client = Client::new(scene, build)?;
    client.expect("v", &[], &["2.05 hello"])?;
    client.expect("nothing", &[], &["4.04"])?;
    Ok(())
}

fn client_put_get(scene: &Scene, build: Build) -> Check {
    let client = Client::new(scene, build)?;
    client.expect("v", &["-m", "put", "-e", "a new value"], &["2.04"])?;
    client.expect("v", &[], &["2.05 a new value"])?;
    let process = client.ask_at("127.0.0.1", "blink", &["-m", "put", "-e", "1"])?;
    printed(&process, "\x01")
}

fn client_well_known_core(scene: &Scene, build: Build) -> Check {
    let (process, _) = Client::new(scene, build)?.responses_at("127.0.0.1", ".well-known/core", &[])?;
    printed(&process, "</v>;rt=\"value\"")
}

fn client_separate(scene: &Scene, build: Build) -> Check {
    let process = Client::new(scene, build)?.expect("slow", &[], &["2.05 slowly"])?;
    printed(&process, "t:ACK c:0.00")?;
    printed(&process, "t:CON c:2.05")
}

/// Checks a ping. With `-K 1` the client pings after a second without traffic: it sends an empty confirmable message,
/// which the server must answer with a Reset.
fn client_ping(scene: &Scene, build: Build) -> Check {
    let process = Client::new(scene, build)?.expect("slow", &["-K", "1"], &["2.05 slowly"])?;
    printed(&process, "t:CON c:0.00")?;
    printed(&process, "t:RST c:0.00")
}

fn client_non(scene: &Scene, build: Build) -> Check {
    let process = Client::new(scene, build)?.expect("v", &["-N"], &["2.05 hello"])?;
    printed(&process, "t:NON c:GET")?;
    printed(&process, "t:NON c:2.05")
}

/// Checks that a server that has joined a multicast group responds from its own address, and sends no response if it
/// does not have the resource.
fn client_group(scene: &Scene, build: Build) -> Check {
    let joined = ["--group", "224.0.1.187%127.0.0.1", "--leisure", "0.5"];
    let served = Served::start_with(scene, &Psk::usual(), &joined)?;
    let client = Client { scene, build, served, psk: Psk::usual() };
    let one_way = ["-N", "-a", "127.0.0.1", "-B", "3"];
    client.expect_at("224.0.1.187", "v", &one_way, &["2.05 hello"])?;
    client.expect_at("224.0.1.187", "nothing", &one_way, &[])?;
    Ok(())
}

fn client_several(scene: &Scene, build: Build) -> Check {
    let client = Client::new(scene, build)?;
    client.expect("v", &["-G", "3"], &["2.05 hello"; 3])?;
    let sessions = client
        .served
        .process
        .out
        .text()
        .lines()
        .filter(|line| line.contains(" authenticated as Client_identity"))
        .count();
    match (build.secure(), sessions) {
        (true, 1) | (false, 0) => Ok(()),
        _ => Err(format!("it took {sessions} sessions").into()),
    }
}

fn client_ipv6(scene: &Scene, build: Build) -> Check {
    Client::new(scene, build)?.expect_at("[::1]", "v", &[], &["2.05 hello"])?;
    Ok(())
}

fn client_refused(scene: &Scene, build: Build, psk: Psk, operator_reads: &str) -> Check {
    let client = Client::with(scene, build, &Psk::usual(), psk)?;
    let process = client.expect("v", &[], &[])?;
    let alert = if build == Build::GnuTls { "Alert '51'" } else { "fatal:decrypt error" };
    printed(&process, alert)?;
    client.served.process.await_output(operator_reads, 0)?;
    Ok(())
}

fn client_wrong_key(scene: &Scene, build: Build) -> Check {
    client_refused(scene, build, Psk::with_key("wrongPSK"), "its key is another one")
}

fn client_unknown_identity(scene: &Scene, build: Build) -> Check {
    client_refused(scene, build, Psk::with_identity("nobody"), "no such identity")
}

fn client_long_key(scene: &Scene, build: Build) -> Check {
    let psk = Psk::with_key(&"k".repeat(64));
    Client::with(scene, build, &psk, psk.clone())?.expect("v", &[], &["2.05 hello"])?;
    Ok(())
}

/// Checks that libcoap's client observes the resource `/v` of Tegmen's server for three seconds, and receives each
/// value that the test writes. Then the client cancels the observation.
fn client_observe(scene: &Scene, build: Build) -> Check {
    let client = Client::new(scene, build)?;
    let direct = format!("coap://127.0.0.1:{}/v", client.served.port + 1);
    std::thread::scope(|scope| {
        let observer = scope.spawn(|| client.responses_at("127.0.0.1", "v", &["-s", "3"]));
        client.served.process.await_output("GET /v: 2.05", 0)?;
        for value in ["one", "two"] {
            is(&ask(scene, &["put", &direct, value], None)?, "2.04", "")?;
            std::thread::sleep(Duration::from_millis(200));
        }
        let (process, responses) = observer.join().map_err(|_| "the client panicked")??;
        if !responses.starts_with(&["2.05 hello", "2.05 one", "2.05 two"].map(str::to_owned)) {
            return Err(format!("the client saw {responses:?}").into());
        }
        printed(&process, "Observe:1")
    })
}

fn client_blocks(scene: &Scene, build: Build) -> Check {
    let files = scene.directory().join("files");
    std::fs::create_dir_all(&files).map_err(|error| error.to_string())?;
    let file = scene.file("big", big())?.to_string_lossy().into_owned();
    let served = Served::start_with(scene, &Psk::usual(), &["--dir-rw", "/files=files"])?;
    let client = Client { scene, build, served, psk: Psk::usual() };
    let put = client.ask_at("127.0.0.1", "files/new", &["-m", "put", "-f", &file, "-b", "256"])?;
    printed(&put, "Block1:19/_/256")?;
    if std::fs::read_to_string(files.join("new")).unwrap_or_default() != big() {
        return Err("the file has other bytes than those that were put".into());
    }
    let get = client.ask_at("127.0.0.1", "files/new", &["-b", "256", "-o", "got"])?;
    printed(&get, "Block2:19/_/256")?;
    if std::fs::read_to_string(scene.directory().join("got")).unwrap_or_default() != big() {
        return Err("the client got other bytes than those of the file".into());
    }
    Ok(())
}
