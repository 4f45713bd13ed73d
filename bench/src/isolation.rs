//! Measures how many requests in established sessions are answered, and how fast, while unauthenticated peers begin RSA
//! handshakes. The server runs on one processor, and the clients and the unauthenticated peers run on another
//! processor.
//!
//! Sessions with pre-shared keys send requests at a fixed rate. Each request is sent once, and the sessions do not wait
//! for the answers. Meanwhile unauthenticated peers from many network prefixes begin handshakes with RSA certificates.
//! Each of these peers proves its address with the cookie, and sends nothing more.

use crate::{
    Options, certificates,
    failure::failure,
    fleet::{Fleet, News, credentials, known},
    ours,
    report::{Absent, Header, Limit, Report, Row, median},
};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tegmen::{
    coap::Code,
    dtls::{CipherSuite, Config, Suites},
};
use tegmen_bench_line::Failure;

const SESSIONS: u32 = 200;
const REQUESTS_PER_SECOND: f64 = 2_000.0;
const HELLOS_PER_SECOND: f64 = 5_000.0;
/// The number of unauthenticated peers, and then the number of these peers in each network prefix. So the peers have 40
/// prefixes, and no prefix reaches the server's limit of ClientHellos for a prefix.
const STRANGERS: (u32, u32) = (4_000, 100);
/// Maximum number of signatures that the server may make in a second. The server gets this number as an option of its
/// command line.
const BUDGET: f64 = 300.0;
/// The time for which requests are sent in a pass.
const PASS: Duration = Duration::from_secs(10);
/// The time after [`PASS`] for which a pass waits for the last answers.
const LAST: Duration = Duration::from_secs(1);

/// Measures how many requests of clients Tegmen's server answers, and after which time, with and without
/// unauthenticated peers that begin handshakes. If a software TPM is installed, repeats these measurements with the
/// server's key in the TPM.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    pin(std::process::id(), 1)?;
    let directory = crate::program::target()?.join("bench-isolation");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).map_err(failure)?;
    certificates::draw_rsa(&directory)?;
    let key = directory.join("rsa-key.pem");
    private(&key, &fs::read_to_string(&key).map_err(failure)?)?;
    private(&directory.join("keys.toml"), &credentials())?;
    report.header.versions.insert("ours", format!("tegmen {}", env!("CARGO_PKG_VERSION")));
    let software = ["--cert", "rsa-chain.pem", "--cert-key", "rsa-key.pem"].map(str::to_owned);
    measure(&mut report, options, &directory, "RSA-2048 key in memory", &software, &[])?;
    match Tpm::start(&directory) {
        Ok(tpm) => {
            let words = ["--cert", "ca/tpm.pem", "--cert-key", "tpm:0x81010001"].map(str::to_owned);
            measure(&mut report, options, &directory, "RSA-2048 key in a TPM (swtpm)", &words, &[(TPM, &tpm.name)])?;
        }
        Err(Failure(reason)) => report.absent.push(Absent {
            name: "swtpm",
            reason,
            install: "apt-get install swtpm libtss2-dev && cargo build --release -p tegmen-cli --features tpm".into(),
        }),
    }
    report.header.notes.push(format!(
        "isolation: server on processor 0, load on processor 1 (taskset); {SESSIONS} sessions offer {REQUESTS_PER_SECOND} \
         requests/s, each sent once; unauthenticated peers begin {HELLOS_PER_SECOND} handshakes/s from {} addresses in {} \
         prefixes, with a ClientHello without and one with cookie each; n = {} passes of {} s, seed: the addresses and \
         intervals are fixed",
        STRANGERS.0,
        STRANGERS.0 / STRANGERS.1,
        options.passes,
        PASS.as_secs()
    ));
    Ok(report)
}

/// Measures the server with one private key, and adds the rows to the report.
fn measure(
    report: &mut Report,
    options: &Options,
    directory: &Path,
    key: &str,
    words: &[String],
    environment: &[(&str, &str)],
) -> Result<(), Failure> {
    for (manner, hellos) in [("no unauthenticated peers", 0.0), ("unauthenticated peers", HELLOS_PER_SECOND)] {
        let (mut answered, mut p50, mut p99, mut signed, mut hellos_sent) = (vec![], vec![], vec![], vec![], vec![]);
        for _ in 0..options.passes {
            let server = Server::start(directory, words, environment)?;
            let pass = pass(&server, hellos)?;
            answered.push(100.0 * pass.answered());
            p50.push(pass.percentile(0.5));
            p99.push(pass.percentile(0.99));
            signed.push(pass.signatures_per_second);
            hellos_sent.push(pass.hellos_per_second);
        }
        let said = |what: &str| format!("{what}, {manner}, {key}");
        let row = |what: &str, unit, numbers: &[f64], limit: Option<Limit>| {
            let ours = median(numbers);
            Row { ours, ..Row::new(said(what), "none", unit, limit.map(|limit| limit.judge("ours", ours))) }
        };
        report
            .rows
            .push(Row { more_is_better: true, ..row("requests answered", "%", &answered, Some(Limit::AtLeast(99.0))) });
        report.rows.push(row("median time to the answer", "ms", &p50, None));
        report.rows.push(row("99th percentile of it, unanswered as infinite", "ms", &p99, Some(Limit::AtMost(50.0))));
        if hellos > 0.0 {
            // One more of a worker that may catch up.
            report.rows.push(row("signatures", "1/s", &signed, Some(Limit::AtMost(BUDGET * 1.01 + 16.0))));
            report.rows.push(row("handshakes that these peers began", "1/s", &hellos_sent, None));
        }
    }
    Ok(())
}

/// The result of one pass.
struct Pass {
    offered: usize,
    milliseconds: Vec<f64>,
    signatures_per_second: f64,
    hellos_per_second: f64,
}

impl Pass {
    fn answered(&self) -> f64 {
        self.milliseconds.len() as f64 / self.offered.max(1) as f64
    }

    fn percentile(&self, share: f64) -> f64 {
        let mut sorted = self.milliseconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get((self.offered as f64 * share) as usize).copied().unwrap_or(f64::INFINITY)
    }
}

fn pass(server: &Server, hellos: f64) -> Result<Pass, Failure> {
    let mut sessions = Fleet::new(server.address, SESSIONS, (0, 100), known())?;
    let certified = Config {
        suites: Suites(&[CipherSuite::ECDHE_RSA_WITH_AES_128_GCM_SHA256]),
        // Each tries once.
        retransmit_first: Duration::from_secs(60),
        ..Config::default()
    };
    let mut strangers = Fleet::new(server.address, STRANGERS.0, (100, STRANGERS.1), certified)?;
    let mut established = 0;
    (0..SESSIONS).try_for_each(|member| sessions.connect(member))?;
    let begin = Instant::now();
    while established < SESSIONS {
        if begin.elapsed() > Duration::from_secs(10) {
            return Err(Failure::new(format!("{established} of {SESSIONS} sessions stand after 10 s")));
        }
        sessions.turn(|news| established += u32::from(matches!(news, News::Established(_))))?;
    }
    let signed_before = server.signatures()?;
    let (mut sent, mut began) = (Vec::new(), 0_u32);
    let mut pass = Pass { offered: 0, milliseconds: Vec::new(), signatures_per_second: 0.0, hellos_per_second: 0.0 };
    let begin = Instant::now();
    loop {
        let elapsed = begin.elapsed();
        if elapsed < PASS {
            let due = (elapsed.as_secs_f64() * REQUESTS_PER_SECOND) as usize;
            while sent.len() < due {
                let number = sent.len() as u32;
                sessions.ask(number % SESSIONS, (number / SESSIONS) as u16, number, "value")?;
                sent.push(Some(Instant::now()));
            }
            let due = (elapsed.as_secs_f64() * hellos) as u32;
            // Not all at once after a wait.
            for _ in 0..due.saturating_sub(began).min(64) {
                strangers.connect(began % STRANGERS.0)?;
                began += 1;
            }
        } else if elapsed > PASS + LAST {
            break;
        }
        sessions.turn(|news| {
            if let News::Answered(_, token, Code::CONTENT) = news
                && let Some(at) = sent.get_mut(u32::from_be_bytes(token) as usize).and_then(Option::take)
            {
                pass.milliseconds.push(at.elapsed().as_secs_f64() * 1e3);
            }
        })?;
        if hellos > 0.0 {
            strangers.turn(|_| {})?;
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    pass.offered = sent.len();
    pass.signatures_per_second = (server.signatures()? - signed_before) / seconds;
    pass.hellos_per_second = f64::from(began) / PASS.as_secs_f64();
    Ok(pass)
}

/// A process of `tegmen serve` that runs on processor 0.
struct Server {
    child: Child,
    address: SocketAddrV4,
    metrics: SocketAddrV4,
}

impl Server {
    fn start(directory: &Path, words: &[String], environment: &[(&str, &str)]) -> Result<Self, Failure> {
        let (port, metrics) = (crate::server::free_port()?, crate::server::free_port()?);
        let mut command = Command::new("taskset");
        command.args(["-c", "0"]).arg(tegmen()?).arg("serve").current_dir(directory);
        command.args(["--listen", "127.0.0.1", "--shards", "1", "--quiet", "--credentials", "keys.toml"]);
        command.args(["--value", "/value=0123456789abcdef", "--signatures-per-second", &format!("{BUDGET}")]);
        command.args(["--port", &port.to_string(), "--metrics", &format!("127.0.0.1:{metrics}")]).args(words);
        command.envs(environment.iter().copied()).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().map_err(failure)?;
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let server = Self { child, address: at(port), metrics: at(metrics) };
        let begin = Instant::now();
        while server.signatures().is_err() {
            if begin.elapsed() > Duration::from_secs(10) {
                return Err(Failure::new("tegmen serve does not start"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Returns the number of signatures that the server's metrics show. The metrics are at most a second old.
    fn signatures(&self) -> Result<f64, Failure> {
        let mut stream = TcpStream::connect(self.metrics).map_err(failure)?;
        let head = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.metrics);
        stream.write_all(head.as_bytes()).map_err(failure)?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(failure)?;
        let line = text.lines().find_map(|line| line.strip_prefix("tegmen_signatures_total{result=\"done\"} "));
        let number = line.and_then(|number| number.trim().parse().ok());
        number.ok_or_else(|| Failure::new("the metrics have no count of signatures"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A software TPM that contains an RSA key, whose certificate is in `ca/tpm.pem`. The key is stored persistently in the
/// TPM. If each server loaded the key itself, each killed server would leave a loaded key in one of the few key slots
/// of the TPM.
struct Tpm {
    child: Child,
    name: String,
}

/// The name of the environment variable that identifies the TPM for the programs of Tegmen.
const TPM: &str = "TEGMEN_TPM";

impl Tpm {
    fn start(directory: &Path) -> Result<Self, Failure> {
        let port = crate::server::free_port()?.clamp(1024, 65_000);
        let state = directory.join("tpm");
        fs::create_dir_all(&state).map_err(failure)?;
        let mut command = Command::new("swtpm");
        command.args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"]);
        command.arg("--tpmstate").arg(format!("dir={}", state.display()));
        command.arg("--server").arg(format!("type=tcp,bindaddr=127.0.0.1,port={port}"));
        command.arg("--ctrl").arg(format!("type=tcp,bindaddr=127.0.0.1,port={}", port + 1));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(failure)?;
        // On the server's processor: what it does is done for the server.
        pin(child.id(), 0)?;
        let tpm = Self { child, name: format!("swtpm:host=127.0.0.1,port={port}") };
        let begin = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port + 1)).is_err() {
            if begin.elapsed() > Duration::from_secs(10) {
                return Err(Failure::new("swtpm does not answer"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        for words in [
            "ca init ca",
            "keys tpm create --handle 0x81010001 --rsa",
            "keys tpm csr --handle 0x81010001 --name tpm --out tpm.csr",
            "ca issue ca --name tpm --csr tpm.csr --ip 127.0.0.1",
        ] {
            let run =
                Command::new(tegmen()?).args(words.split(' ')).env(TPM, &tpm.name).current_dir(directory).output();
            let run = run.map_err(failure)?;
            if !run.status.success() {
                return Err(Failure::new(format!("tegmen {words}: {}", String::from_utf8_lossy(&run.stderr).trim())));
            }
        }
        Ok(tpm)
    }
}

impl Drop for Tpm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the path of the `tegmen` program that was built beside this program.
pub(crate) fn tegmen() -> Result<PathBuf, Failure> {
    let tegmen = std::env::current_exe().map_err(failure)?.with_file_name("tegmen");
    if tegmen.is_file() { Ok(tegmen) } else { Err(ours::missing()) }
}

/// Restricts all threads of a process to one processor.
fn pin(process: u32, processor: u32) -> Result<(), Failure> {
    let words = ["-a", "-c", "-p", &processor.to_string(), &process.to_string()].map(str::to_owned);
    let done = Command::new("taskset").args(words).stdout(Stdio::null()).status().map_err(failure)?;
    if done.success() { Ok(()) } else { Err(Failure::new(format!("taskset cannot use processor {processor}"))) }
}

/// Writes a file that only its owner can read.
pub(crate) fn private(file: &Path, text: &str) -> Result<(), Failure> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // One that is there keeps its mode.
    let _ = fs::remove_file(file);
    let mut options = fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(file);
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(failure)
}
