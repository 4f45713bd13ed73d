//! Runs each example in the way that `README.md` describes. The examples are images under QEMU, and a program on this
//! host. Each of them sends requests to `tegmen serve`.
//!
//! The environment variable `TEGMEN` is the path of the program `tegmen`. Without this variable, the test uses the
//! program in `target/release` of the project.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const TARGET: &str = "thumbv7m-none-eabi";
const IMAGES: [&str; 2] = ["mote-embassy", "mote-smoltcp"];
/// The example that runs on this host.
const PROGRAM: &str = "mote-nal";
const IDENTITY: &str = "sensor-17";
const KEY: &str = "000102030405060708090a0b0c0d0e0f";
const WRONG_KEY: &str = "ff0102030405060708090a0b0c0d0e0f";
/// Time limit of one run. It is long enough for a busy machine, and for a run that waits for seconds because datagrams
/// are lost.
const LIMIT: Duration = Duration::from_secs(600);

#[test]
fn each_example_reads_a_value_and_writes_one() {
    for example in examples() {
        let server = Server::start();
        let (is_success, log) = run(example, server.address.port(), KEY);
        assert!(is_success, "{example}:\n{log}");
        in_order(&log, &["the server has the same key", "GET /temp: 2.05 21.5", "PUT /led: 2.04"]);
        assert_eq!(server.value("/led"), "on", "{example}:\n{log}");
    }
}

#[test]
fn an_example_with_another_key_prints_the_reason() {
    for example in examples() {
        let server = Server::start();
        let (is_success, log) = run(example, server.address.port(), WRONG_KEY);
        assert!(!is_success, "{example}:\n{log}");
        assert!(log.contains("compare identity and key with those of the server"), "{example}:\n{log}");
        assert_eq!(server.value("/led"), "off", "{example}:\n{log}");
    }
}

#[test]
fn an_example_sends_lost_datagrams_again() {
    for example in examples() {
        let server = Server::start();
        let relay = Relay::start(server.address);
        let (is_success, log) = run(example, relay.address.port(), KEY);
        assert!(is_success, "{example}:\n{log}");
        assert_eq!(relay.lost.load(Ordering::Relaxed), 2, "{example}:\n{log}");
        assert_eq!(server.value("/led"), "on", "{example}:\n{log}");
    }
}

#[test]
fn the_size_of_an_image_is_printed() {
    for image in examples().filter(|example| IMAGES.contains(example)) {
        let file = target().join(TARGET).join("release").join(image);
        let bytes = flash(&std::fs::read(&file).unwrap());
        println!("{image}: {bytes} bytes of flash");
        assert!((10_000..262_144).contains(&bytes), "{image}: {bytes} bytes of flash");
    }
}

/// Builds the examples that can be built and run on this machine, and returns their names. Prints the reason why the
/// other examples cannot run.
fn examples() -> impl Iterator<Item = &'static str> {
    let has_images = match missing() {
        Some(missing) => {
            println!("skipped {IMAGES:?}: {missing}");
            false
        }
        None => true,
    };
    if has_images {
        for image in IMAGES {
            cargo(&["build", "--release", "--locked", "--target", TARGET, "-p", image]);
        }
    }
    cargo(&["build", "--release", "--locked", "-p", PROGRAM]);
    IMAGES.into_iter().filter(move |_| has_images).chain([PROGRAM])
}

/// Returns the command that installs the first missing tool. Returns `None` if all tools that the images need are
/// installed.
fn missing() -> Option<String> {
    let runs = |program| Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !runs("qemu-system-arm") {
        return Some("type: apt install qemu-system-arm".into());
    }
    if !runs("defmt-print") {
        return Some("type: cargo install --locked defmt-print".into());
    }
    let output = Command::new("rustc").args(["--print", "target-libdir", "--target", TARGET]).output().unwrap();
    let libraries = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    (!libraries.is_dir()).then(|| format!("type: rustup target add {TARGET}"))
}

fn motes() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the target directory of cargo. It also contains the program of this test.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// Makes a command of cargo. Removes the environment variables that the run of this test has set, so that the command
/// does the same as on the command line of a user.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(motes()).env("CARGO_TARGET_DIR", target());
    for name in ["CARGO_PROFILE_RELEASE_LTO", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
        command.env_remove(name);
    }
    command
}

fn cargo(arguments: &[&str]) {
    let output = command(arguments).output().expect("cargo");
    assert!(output.status.success(), "cargo {arguments:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

/// Runs an example with the server at this port of the host. Returns true if the example succeeded, and the log of the
/// example.
fn run(example: &str, port: u16, key: &str) -> (bool, String) {
    // QEMU's user network has this host at 10.0.2.2.
    let (host, target) = if example == PROGRAM { ("127.0.0.1", None) } else { ("10.0.2.2", Some(TARGET)) };
    let mut arguments = vec!["run", "--quiet", "--release", "--locked", "-p", example];
    arguments.extend(target.iter().flat_map(|target| ["--target", target]));
    let server = format!("{host}:{port}");
    let mut command = command(&[&arguments[..], &["--", &server, IDENTITY, key]].concat());
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let readers = [read(child.stdout.take()), read(child.stderr.take())];
    let end = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > end => {
                child.kill().unwrap();
                panic!("{example} does not end within {LIMIT:?}");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    (status.success(), readers.map(|reader| reader.join().unwrap()).concat())
}

/// Reads a stream to its end, in another thread.
fn read(stream: Option<impl std::io::Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = Vec::new();
        stream.unwrap().read_to_end(&mut text).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    })
}

fn in_order(log: &str, parts: &[&str]) {
    let mut rest = log;
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { panic!("{part:?} is missing in:\n{log}") };
        rest = behind;
    }
}

/// Returns the number of bytes of an ELF file that are loaded: code, constants, and the initial values of variables.
fn flash(elf: &[u8]) -> usize {
    let half = |at: usize| usize::from(u16::from_le_bytes([elf[at], elf[at + 1]]));
    let word = |at: usize| u32::from_le_bytes(elf[at..at + 4].try_into().unwrap()) as usize;
    let (table, entry_len, entries) = (word(28), half(42), half(44));
    let loaded = |entry: &usize| word(*entry) == 1;
    (0..entries).map(|number| table + number * entry_len).filter(loaded).map(|entry| word(entry + 16)).sum()
}

/// Makes a command that starts the program `tegmen`.
fn tegmen() -> Command {
    let program = std::env::var_os("TEGMEN").map_or_else(|| motes().join("../../target/release/tegmen"), PathBuf::from);
    assert!(program.is_file(), "{} is missing; type: cargo build --release -p tegmen-cli", program.display());
    Command::new(program)
}

/// A temporary directory. It is removed when this value is dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("tegmen-motes-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running `tegmen serve` with the values `/temp` and `/led`.
struct Server {
    process: Child,
    address: SocketAddr,
    directory: Directory,
}

impl Server {
    fn start() -> Self {
        let directory = Directory::new();
        let credentials = directory.0.join("credentials.toml");
        std::fs::write(&credentials, format!("[[psk]]\nidentity = \"{IDENTITY}\"\nkey = \"{KEY}\"\n")).unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(&credentials, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let mut command = tegmen();
        command.args(["serve", "--json", "--listen", "127.0.0.1", "--port", "0"]);
        command.args(["--value", "/temp=21.5", "--value", "/led=off"]).current_dir(&directory.0);
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next().expect("it listens").unwrap();
            let address = line.split_once("\"address\":\"").and_then(|(_, rest)| rest.split('"').next());
            if let Some(address) = address {
                break address.parse().unwrap();
            }
        };
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address, directory }
    }

    /// Returns the value at `path`, which another client reads from the server.
    fn value(&self, path: &str) -> String {
        let mut command = tegmen();
        command.current_dir(&self.directory.0).args(["get", "--credentials", "credentials.toml"]);
        command.arg(format!("coaps://{}{path}", self.address));
        let output = command.output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The content types of DTLS records that the relay distinguishes (RFC 5246, section 6.2.1).
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;

/// A relay between one client and the server. It drops two datagrams of the client: the first datagram of the
/// handshake, and the first datagram that contains a request.
struct Relay {
    address: SocketAddr,
    lost: Arc<AtomicUsize>,
}

impl Relay {
    fn start(server: SocketAddr) -> Self {
        let to_client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to_server = UdpSocket::bind("127.0.0.1:0").unwrap();
        to_server.connect(server).unwrap();
        let (address, lost) = (to_client.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&lost);
        // The threads end with the test.
        std::thread::spawn(move || {
            let mut to_lose = vec![HANDSHAKE, APPLICATION_DATA];
            let mut is_first = true;
            let mut datagram = [0; 2048];
            while let Ok((len, from)) = to_client.recv_from(&mut datagram) {
                if std::mem::take(&mut is_first) {
                    let (to_client, to_server) = (to_client.try_clone().unwrap(), to_server.try_clone().unwrap());
                    std::thread::spawn(move || {
                        let mut datagram = [0; 2048];
                        while let Ok(len) = to_server.recv(&mut datagram) {
                            let _ = to_client.send_to(&datagram[..len], from);
                        }
                    });
                }
                if let Some(place) = to_lose.iter().position(|content_type| *content_type == datagram[0]) {
                    to_lose.remove(place);
                    count.fetch_add(1, Ordering::Relaxed);
                } else if to_server.send(&datagram[..len]).is_err() {
                    return;
                }
            }
        });
        Self { address, lost }
    }
}
