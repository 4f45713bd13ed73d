//! Tests `tegmen serve` under a service manager: reloads under load, restarts with inherited sockets, and notifications
//! to the manager.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, ClientKey, Session};
use tegmen_host::uri::Scheme;
use tokio::task::JoinSet;
use works::{Scene, Server};

/// Maximum time for which a test waits for an event. After that it fails.
const PATIENCE: Duration = Duration::from_secs(120);
const KEY: &str = "00112233445566778899aabbccddeeff";

fn credentials(dir: &Path, more: &str) {
    use std::os::unix::fs::OpenOptionsExt as _;
    let text = format!("[[psk]]\nidentity = \"me\"\nkey = \"{KEY}\"\n{more}");
    // In one step, as a server may read it at any time.
    let draft = dir.join("draft");
    let _ = std::fs::remove_file(&draft);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft).unwrap();
    file.write_all(text.as_bytes()).unwrap();
    std::fs::rename(draft, dir.join("credentials.toml")).unwrap();
}

fn configuration(dir: &Path, text: &str) {
    let draft = dir.join("draft.toml");
    std::fs::write(&draft, text).unwrap();
    std::fs::rename(draft, dir.join("tegmen.toml")).unwrap();
}

/// Opens a session whose client sends each request only once, so that a lost request fails.
async fn session(to: SocketAddr, scheme: Scheme) -> Session {
    let mut config = ClientConfig::default();
    let key = tegmen_host::hex::from_hex(KEY).unwrap().into();
    config.trust.key = (scheme == Scheme::Coaps).then(|| ClientKey { identity: "me".to_owned(), key });
    (config.coap.confirmable, config.coap.timeout) = (false, PATIENCE);
    config.recovery.reconnect = false;
    Session::connect_to(to, scheme, config).await.unwrap()
}

async fn sessions(coaps: SocketAddr, coap: SocketAddr, of_each: usize) -> Vec<Session> {
    let mut sessions = Vec::new();
    for _ in 0..of_each {
        sessions.push(session(coaps, Scheme::Coaps).await);
        sessions.push(session(coap, Scheme::Coap).await);
    }
    sessions
}

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// Returns the next event of this name in a log of JSON lines.
fn next(lines: &mut impl Iterator<Item = std::io::Result<String>>, event: &str) -> Value {
    loop {
        let line: Value = serde_json::from_str(&lines.next().expect("it runs").unwrap()).unwrap();
        if line["event"] == event {
            return line;
        }
    }
}

/// Returns the status and body of a page.
fn page(address: SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let (head, body) = page.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

const BASE: &str = "[addresses]\nplain = true\n[service]\nmetrics = \"127.0.0.1:0\"\n";

/// Lets the server read another configuration. Returns true if the configuration was valid, and the server has taken it
/// over.
fn reload(round: usize, dir: &Path, server: &mut Server, answered: &AtomicUsize, right: [&str; 2]) -> bool {
    let before = answered.load(Ordering::Relaxed);
    let is_wrong = round % 10 == 9;
    configuration(dir, if is_wrong { "[limits]\nmax-body = true\n" } else { right[round % 2] });
    credentials(dir, if round.is_multiple_of(2) { "[anonymous]\nallow = [\"GET /*\"]\n" } else { "" });
    signal(server.process.id(), "-HUP");
    let line = next(&mut server.lines, "hangup");
    assert_eq!(line["error"].is_string(), is_wrong, "{line}");
    assert!(!is_wrong || line["error"].as_str().unwrap().contains("tegmen.toml:2: limits.max-body"), "{line}");
    // There is load in each round.
    while answered.load(Ordering::Relaxed) == before {
        std::thread::yield_now();
    }
    !is_wrong
}

#[tokio::test]
async fn a_hundred_reloads_under_load_drop_no_session_and_lose_no_request() {
    let scene = Scene::new("reloads");
    credentials(&scene.0, "");
    // Each of the two gives other resources, limits, rights and levels.
    let one = format!("{BASE}[resources]\nvalue = [\"/a=1\", \"/b=1\"]\n[log]\nlog-level = \"warn\"\n");
    let two = format!(
        "{BASE}[resources]\nvalue = [\"/a=1\", \"/c=1\"]\n[log]\nlog-level = \"info\"\n[limits]\nmax-body = 100\n"
    );
    configuration(&scene.0, &one);
    let mut server = Server::start(&scene.0, &["--config", "tegmen.toml", "--shards", "2", "--json"], 3);
    let clients = sessions(server.addresses[0], server.addresses[1], 100).await;
    let put = clients[0].put("/a", b"kept").await.unwrap();
    assert_eq!(put.code, Code::CHANGED);
    let (over, answered, mut load) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), JoinSet::new());
    for client in clients {
        let (over, answered) = (over.clone(), answered.clone());
        load.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                let reply = client.get("/a").await.expect("a request is lost");
                assert_eq!((reply.code, &reply.payload[..]), (Code::CONTENT, &b"kept"[..]));
                answered.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    let dir = scene.0.clone();
    let reloads = move || {
        let refused = (0..100).filter(|round| !reload(*round, &dir, &mut server, &answered, [&one, &two])).count();
        (server, refused)
    };
    let (server, refused) = tokio::task::spawn_blocking(reloads).await.unwrap();
    over.store(true, Ordering::Relaxed);
    while let Some(done) = load.join_next().await {
        done.unwrap();
    }
    let metrics = page(server.addresses[2], "/metrics").1;
    assert!(metrics.contains(&format!("tegmen_reloads_total{{result=\"taken\"}} {}\n", 100 - refused)), "{metrics}");
    assert!(metrics.contains(&format!("tegmen_reloads_total{{result=\"refused\"}} {refused}\n")));
    for (path, word) in [("/live", "live\n"), ("/ready", "ready\n")] {
        assert_eq!(page(server.addresses[2], path), ("HTTP/1.1 200 OK".to_owned(), word.to_owned()));
    }
    let lines = server.end();
    let ended: Value = serde_json::from_str(lines.last().unwrap()).unwrap();
    assert_eq!((&ended["established"], &ended["failed"]), (&100.into(), &0.into()), "no session was begun again");
}

#[test]
fn options_that_need_a_restart_are_named_and_change_nothing() {
    let scene = Scene::new("restart-needed");
    let base = "[addresses]\nplain = true\nno-secure = true\n[resources]\nvalue = \"/a=1\"\n";
    configuration(&scene.0, base);
    let mut server = Server::start(&scene.0, &["--config", "tegmen.toml", "--json"], 1);
    for _ in 0..2 {
        configuration(&scene.0, &format!("{base}[limits]\nmax-peers = 7\nmax-body = 9\n[dtls]\nmtu = 500\n"));
        signal(server.process.id(), "-HUP");
        assert!(next(&mut server.lines, "hangup")["error"].is_null());
        let options = next(&mut server.lines, "restart_needed")["options"].clone();
        assert_eq!(options, serde_json::json!(["max-peers", "mtu"]));
    }
    server.end();
}

#[test]
fn a_reload_removes_the_edhoc_clients_that_are_no_longer_in_their_file() {
    let scene = Scene::new("edhoc-clients");
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tegmen")).args(arguments).current_dir(&scene.0).output().unwrap();
        (output.status.success(), [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat())
    };
    let credential = |name: &str| {
        assert!(run(&["edhoc", "new", name, "--name", name]).0);
        run(&["edhoc", "show", name]).1
    };
    let (meter, other, gateway) = (credential("meter"), credential("other"), credential("gateway"));
    std::fs::write(scene.0.join("gateway.credential"), gateway).unwrap();
    let clients =
        |of: &str| std::fs::write(scene.0.join("clients.toml"), format!("[[peer]]\nname = \"a\"\n{of}")).unwrap();
    clients(&meter);
    let options = ["--value", "/a=1", "--edhoc", "gateway", "--edhoc-clients", "clients.toml", "--no-secure", "--json"];
    let mut server = Server::start(&scene.0, &options, 1);
    let uri = format!("coap://{}/a", server.addresses[0]);
    let get = |name: &str| run(&["get", "--edhoc", name, "--edhoc-server", "gateway.credential", &uri]);
    assert_eq!((get("meter").0, get("other").0), (true, false));
    clients(&other);
    signal(server.process.id(), "-HUP");
    assert!(next(&mut server.lines, "hangup")["error"].is_null());
    assert_eq!((get("meter").0, get("other").0), (false, true));
    // After a mistake the old clients stay.
    clients("credential = 7\n");
    signal(server.process.id(), "-HUP");
    assert!(next(&mut server.lines, "hangup")["error"].as_str().unwrap().contains("clients.toml"));
    assert!(get("other").0);
}

#[tokio::test]
async fn a_server_that_ends_answers_the_command_that_runs_and_says_that_it_is_not_ready() {
    let scene = Scene::new("drain");
    assert!(Command::new("mkfifo").arg(scene.0.join("pipe")).status().unwrap().success());
    let options = [
        "--plain",
        "--no-secure",
        "--command",
        "/slow=cat pipe",
        "--drain",
        "3600",
        "--metrics",
        "127.0.0.1:0",
        "--json",
    ];
    let mut server = Server::start(&scene.0, &options, 2);
    let client = session(server.addresses[0], Scheme::Coap).await;
    let slow = client.get("/slow");
    let pipe = scene.0.join("pipe");
    // Opened once the command reads it, so it has begun.
    let begun = tokio::task::spawn_blocking(move || std::fs::OpenOptions::new().write(true).open(pipe).unwrap());
    let (id, metrics) = (server.process.id(), server.addresses[1]);
    let ends = async {
        let mut pipe = begun.await.unwrap();
        signal(id, "-TERM");
        let ended = move || {
            while page(metrics, "/ready").0 != "HTTP/1.1 503 Service Unavailable" {}
            assert_eq!(page(metrics, "/live").1, "live\n");
            pipe.write_all(b"late").unwrap();
        };
        tokio::task::spawn_blocking(ended).await.unwrap();
    };
    let (reply, ()) = tokio::join!(std::future::IntoFuture::into_future(slow), ends);
    assert_eq!(reply.unwrap().payload, b"late");
    assert_eq!(next(&mut server.lines, "ended")["requests"], 1);
    assert!(server.process.wait().unwrap().success());
}

/// The parent process of a server, in the role of systemd. It has the sockets of the server, and the socket for
/// notifications.
struct Manager {
    sockets: [UdpSocket; 2],
    notifications: UnixDatagram,
    name: String,
}

/// A server process that a manager started.
struct Child {
    process: std::process::Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Manager {
    fn new() -> Self {
        let bind = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let name = format!("tegmen-service-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let notifications = UnixDatagram::bind_addr(&address).unwrap();
        notifications.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { sockets: [bind(), bind()], notifications, name }
    }

    fn address(&self, number: usize) -> SocketAddr {
        self.sockets[number].local_addr().unwrap()
    }

    fn start(&self, dir: &Path) -> Child {
        let pass = |number: usize| Stdio::from(std::os::fd::OwnedFd::from(self.sockets[number].try_clone().unwrap()));
        let serve = format!(
            "LISTEN_PID=$$ exec {} serve --listen 127.0.0.1 --port {} --plain-port {} --plain --value /a=1 --state state.db --json \
             3<&0 4<&2 0</dev/null 2>&1",
            env!("CARGO_BIN_EXE_tegmen"),
            self.address(0).port(),
            self.address(1).port()
        );
        let mut process = Command::new("bash")
            .args(["-c", &serve])
            .env("LISTEN_FDS", "2")
            .env("LISTEN_FDNAMES", "coaps:coap")
            .env("NOTIFY_SOCKET", format!("@{}", self.name))
            .env("WATCHDOG_USEC", "200000")
            .current_dir(dir)
            .stdin(pass(0))
            .stderr(pass(1))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Child { process, lines }
    }

    /// Waits for a notification that begins with this text.
    fn wait_for(&self, begin: &str) -> String {
        let mut bytes = [0; 1024];
        loop {
            let len = self.notifications.recv(&mut bytes).expect("the manager is told");
            let state = String::from_utf8(bytes[..len].to_vec()).unwrap();
            if state.starts_with(begin) {
                return state;
            }
        }
    }
}

#[tokio::test]
async fn a_restart_with_inherited_sockets_loses_no_datagram_that_waits() {
    let scene = Scene::new("inherited");
    credentials(&scene.0, "");
    let manager = Manager::new();
    let mut server = manager.start(&scene.0);
    manager.wait_for("READY=1\nSTATUS=1 resources");
    let clients = sessions(manager.address(0), manager.address(1), 10).await;
    for _ in 0..3 {
        manager.wait_for("WATCHDOG=1");
        signal(server.process.id(), "-HUP");
        let reloading = manager.wait_for("RELOADING=1\nMONOTONIC_USEC=");
        assert!(reloading.rsplit('=').next().unwrap().parse::<u64>().unwrap() > 0);
        manager.wait_for("READY=1");
        signal(server.process.id(), "-TERM");
        manager.wait_for("STOPPING=1");
        let ended = next(&mut server.lines, "ended");
        assert!(server.process.wait().unwrap().success(), "{ended}");
        // All of them wait while there is no server.
        let mut waiting = JoinSet::new();
        for client in clients.clone() {
            waiting.spawn(async move { client.get("/a").await.expect("a request is lost").code });
        }
        let has_all = || {
            let mut peeked = [0; 64];
            manager.sockets.iter().all(|socket| {
                socket.set_nonblocking(true).unwrap();
                socket.peek(&mut peeked).is_ok()
            })
        };
        while !has_all() {
            tokio::task::yield_now().await;
        }
        server = manager.start(&scene.0);
        while let Some(code) = waiting.join_next().await {
            assert_eq!(code.unwrap(), Code::CONTENT);
        }
        manager.wait_for("READY=1");
    }
    signal(server.process.id(), "-TERM");
    assert_eq!(next(&mut server.lines, "ended")["established"], 0, "no session was begun again");
}

/// Returns the command of a server that inherits one socket.
fn inheriting(dir: &Path, socket: std::os::fd::OwnedFd, options: &str) -> Command {
    let tegmen = env!("CARGO_BIN_EXE_tegmen");
    let serve = format!(
        "LISTEN_FDS=1 LISTEN_PID=$$ exec {tegmen} serve --listen 127.0.0.1 --value /a=1 {options} 3<&0 0</dev/null"
    );
    let mut command = Command::new("bash");
    command.args(["-c", &serve]).current_dir(dir).stdin(Stdio::from(socket));
    command
}

#[test]
fn a_listener_that_is_inherited_serves_the_pages() {
    let scene = Scene::new("listener");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // The connection waits until the server begins.
    let asked = std::thread::spawn(move || page(address, "/ready"));
    let options = format!("--plain --plain-port 0 --no-secure --json --metrics {address}");
    let process = inheriting(&scene.0, listener.into(), &options).stdout(Stdio::null()).spawn().unwrap();
    assert_eq!(asked.join().unwrap(), ("HTTP/1.1 200 OK".to_owned(), "ready\n".to_owned()));
    signal(process.id(), "-TERM");
    assert!(process.wait_with_output().unwrap().status.success());
}

#[test]
fn sockets_that_are_not_served_are_refused() {
    let scene = Scene::new("refused");
    credentials(&scene.0, "");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let done = inheriting(&scene.0, socket.into(), "").output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2));
    assert!(
        said.contains("none of the inherited sockets has this address") && said.contains("127.0.0.1:5684"),
        "{said}"
    );
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let done = inheriting(&scene.0, listener.into(), "").output().unwrap();
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(said.contains("nothing is served there: name its address with --metrics"), "{said}");
}
