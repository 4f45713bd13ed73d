//! Measures a client that keeps 64 confirmable requests waiting for their answers. Compares Tegmen's client with the
//! clients of go-coap and of libcoap. All clients have NSTART 64, and use the same Tegmen server.
//!
//! Each client is a process that reads lines from its standard input. A line contains a time in milliseconds. The
//! client sends requests for this time, and then prints the number of answered requests.

use crate::{
    Options, addresses,
    load::{Answer, Load, VALUE},
    ours,
    program::peer_binary,
    report::{Absent, Header, OURS, Report, Samples},
    server::{self, Process, free_port},
};
use std::{
    env,
    io::{BufRead, BufReader, Write, stdin},
    net::{Ipv4Addr, SocketAddr},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};
use tegmen::coap::Code;
use tegmen_bench_line::{Failure, IDENTITY};
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Session};
use tegmen_host::uri::Scheme;
use tokio::{runtime, task::JoinSet};

/// Measures every client that is built: first without protection, then over DTLS.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    let (server, secure_port) = start_server()?;
    let mut ways = [
        Way::start("plain", server.address.port(), &[], &mut report),
        Way::start("DTLS", secure_port, &[IDENTITY, addresses::KEY_TEXT], &mut report),
    ];
    for pass in 0..options.passes {
        for way in &mut ways {
            way.pass(pass, Duration::from_secs_f64(options.seconds))?;
        }
    }
    for way in &ways {
        report.rows.extend([&way.per_cpu, &way.per_second].into_iter().flat_map(Samples::rows));
    }
    let (len, seconds) = (VALUE.len(), options.seconds);
    let note =
        format!("session: {AT_ONCE} requests at once, NSTART {AT_ONCE}, values of {len} bytes, {seconds} s a pass");
    report.header.notes.push(note);
    Ok(report)
}

/// Starts Tegmen's server with the value at [`PATH`]. Returns the server and its port for DTLS.
fn start_server() -> Result<(Process, u16), Failure> {
    let exe = env::current_exe().map_err(failure)?;
    let programs = exe.parent().ok_or_else(|| Failure::new("no directory of programs"))?;
    let credentials = addresses::credentials()?.to_string_lossy().into_owned();
    let secure_port = free_port()?;
    let secure = secure_port.to_string();
    let process = Process::start(|port| {
        let plain = port.to_string();
        let words = ["--plain", "--plain-port", &plain, "--port", &secure, "--credentials", &credentials];
        let value = format!("{PATH}={}", String::from_utf8_lossy(VALUE));
        ours::serve_words(programs, &words, &[&value])
    })?;
    // This waits until the server answers.
    Load::new(process.address.into(), PATH.trim_start_matches('/'), Answer::Content)?.prepare()?;
    Ok((process, secure_port))
}

/// The clients that use one protection, and their results.
struct Way {
    clients: Vec<Client>,
    per_cpu: Samples,
    per_second: Samples,
}

impl Way {
    /// Starts the clients. If a client does not answer, the report lists it as absent.
    fn start(protection: &str, port: u16, key: &[&str], report: &mut Report) -> Self {
        let mut clients = Vec::new();
        for (name, install) in CLIENTS {
            match Client::start(name, port, key) {
                Ok(client) => clients.push(client),
                Err(reason) => {
                    let reason = format!("{protection}: {}", reason.0);
                    report.absent.push(Absent { name, reason, install: install.into() });
                }
            }
        }
        let operation = format!("CON GET of {} bytes by a client, {AT_ONCE} at once, {protection}", VALUE.len());
        let samples = |unit| Samples::new(operation.clone(), unit, true);
        Self { clients, per_cpu: samples("1/client CPU s"), per_second: samples("1/s") }
    }

    /// Measures each client once. Each pass begins with another client.
    fn pass(&mut self, pass: usize, time: Duration) -> Result<(), Failure> {
        let count = self.clients.len();
        for turn in 0..count {
            let client = &mut self.clients[(pass + turn) % count];
            let (each_cpu, each_second) = client.measure(time)?;
            self.per_cpu.push(client.name, each_cpu);
            self.per_second.push(client.name, each_second);
        }
        Ok(())
    }
}

/// The name of each client, and the command that builds the client.
const CLIENTS: [(&str, &str); 3] = [
    (OURS, "cargo build --release -p tegmen-bench"),
    ("go-coap", "install Go, then bench/setup.sh gocoap"),
    ("libcoap-openssl", "apt-get install libcoap3-dev && bench/setup.sh libcoap"),
];

/// A running client process. It ends when this value is dropped.
struct Client {
    name: &'static str,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Client {
    /// Starts the client, and lets it send requests for a short time.
    fn start(name: &'static str, port: u16, key: &[&str]) -> Result<Self, Failure> {
        let mut command = match name {
            OURS => Command::new(env::current_exe().map_err(failure)?),
            "go-coap" => Command::new(peer_binary("tegmen-bench-gocoap")?),
            _ => Command::new(peer_binary("tegmen-bench-libcoap")?),
        };
        if name == OURS {
            command.arg(VERB);
        }
        command.arg(Ipv4Addr::LOCALHOST.to_string()).arg(port.to_string()).args(key);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(failure)?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("no pipes"));
        };
        let mut client = Self { name, child, input, output: BufReader::new(output) };
        client.ask(WARM_UP)?;
        Ok(client)
    }

    /// Lets the client send requests for this time. Returns the number of answered requests.
    fn ask(&mut self, time: Duration) -> Result<u64, Failure> {
        writeln!(self.input, "{}", time.as_millis()).map_err(failure)?;
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(failure)?;
        line.trim().parse().map_err(|_| Failure::new(format!("{} ended", self.name)))
    }

    /// Returns the number of requests for each CPU second of the client, and then the number for each second of real
    /// time.
    fn measure(&mut self, time: Duration) -> Result<(f64, f64), Failure> {
        let process = self.child.id();
        let (cpu, begin) = (server::cpu_nanoseconds(process)?, Instant::now());
        let answered = self.ask(time)? as f64;
        let elapsed = begin.elapsed();
        let cpu = server::cpu_nanoseconds(process)?.saturating_sub(cpu);
        Ok((answered * 1e9 / cpu as f64, answered / elapsed.as_secs_f64()))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs Tegmen's client in the process that [`VERB`] starts. `words` are the arguments `ADDRESS PORT [IDENTITY KEY]`.
pub(crate) fn client(words: &[String]) -> Result<(), Failure> {
    let (ip, port, key) = match words {
        [ip, port] => (ip, port, None),
        [ip, port, identity, key] => {
            (ip, port, Some(ClientKey { identity: identity.clone(), key: key.clone().into_bytes().into() }))
        }
        _ => return Err(Failure::new("usage: tegmen-bench session-client ADDRESS PORT [IDENTITY KEY]")),
    };
    let server: SocketAddr = format!("{ip}:{port}").parse().map_err(failure)?;
    let scheme = if key.is_some() { Scheme::Coaps } else { Scheme::Coap };
    let config = ClientConfig::default().with(|config| {
        config.trust.key = key;
        config.coap.nstart = AT_ONCE;
    });
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(failure)?;
    let session = runtime.block_on(Session::connect_to(server, scheme, config)).map_err(failure)?;
    for line in stdin().lines() {
        let milliseconds = line.map_err(failure)?.parse().map_err(failure)?;
        println!("{}", runtime.block_on(ask(&session, Duration::from_millis(milliseconds)))?);
    }
    Ok(())
}

/// Sends requests for this time. Returns the number of answered requests.
async fn ask(session: &Session, time: Duration) -> Result<u64, Failure> {
    let end = Instant::now() + time;
    let mut askers = JoinSet::new();
    for _ in 0..AT_ONCE {
        askers.spawn(ask_one_by_one(session.clone(), end));
    }
    let mut answered = 0;
    while let Some(asker) = askers.join_next().await {
        answered +=
            asker.map_err(failure)?.map_err(failure)?.ok_or_else(|| Failure::new("a response without the value"))?;
    }
    Ok(answered)
}

/// Sends one request after the other until the time `end`. Returns the number of responses, or `None` if a response
/// does not contain the expected value.
async fn ask_one_by_one(session: Session, end: Instant) -> Result<Option<u64>, ClientError> {
    let mut answered = 0;
    while Instant::now() < end {
        let response = session.get(PATH).await?;
        if response.code != Code::CONTENT || response.payload.len() != VALUE.len() {
            return Ok(None);
        }
        answered += 1;
    }
    Ok(Some(answered))
}

fn failure(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

/// Number of requests that wait for an answer at the same time. It is also NSTART (RFC 7252, section 4.7).
const AT_ONCE: usize = 64;
/// The argument that starts Tegmen's client as a separate process.
pub(crate) const VERB: &str = "session-client";
/// The path that clients request.
const PATH: &str = "/example_data";
/// The time for which a client sends requests before the first pass begins.
const WARM_UP: Duration = Duration::from_millis(200);
