//! Measures reverse proxies with GETs from many peer addresses. In one measurement the cache of the proxy answers the
//! GETs, and in the other the origin answers them.
//!
//! One `tegmen serve` process is the origin of all proxies. Its CPU time does not count in the results. The CPU time of
//! the origin shows whether the caches answer: it is nearly zero if they do.

use crate::{
    Options,
    addresses::{Clients, PATH, Question, WARM_UP_COMPILED, Way},
    californium, echo,
    load::VALUE,
    ours,
    program::python,
    report::{Absent, Header, Judged, OURS, Report, Row, Samples},
    server::{Process, libcoap_command},
};
use std::time::Duration;
use tegmen::coap::Code;
use tegmen_bench_line::Failure;

/// Measures every server that is installed. In each pass all servers are measured in turn.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    let value = format!("/{PATH}={}", String::from_utf8_lossy(VALUE));
    let origin = Process::start(|port| ours::serve_command(port, &[&value], &[]))?;
    for what in [What::Hits, What::Misses] {
        scene(what, &origin, options, &mut report)?;
    }
    report.header.notes.push(format!(
        "each of {CLIENTS} addresses asks in turn, 64 requests wait for an answer at once, {} s a pass; misses have a query each that \
         was not asked for before",
        options.seconds
    ));
    Ok(report)
}

/// Measures all servers with one source of answers: the cache or the origin.
fn scene(what: What, origin: &Process, options: &Options, report: &mut Report) -> Result<(), Failure> {
    eprintln!("{}", what.operation());
    let mut servers = Vec::new();
    for &(kind, bound) in what.kinds() {
        match Server::start(kind, what, origin) {
            Ok(server) => servers.push(server),
            Err(reason) if kind == Kind::Ours => return Err(reason),
            Err(Failure(reason)) => {
                let reason = format!("{}: {reason}", what.operation());
                report.absent.push(Absent { name: kind.name(), reason, install: kind.install().into() });
                let row = Row::new(what.operation(), kind.name(), UNIT, None);
                // The bound is in the results, and does not make the command fail.
                let judged = bound.map_or(row.judged, |bound| Judged { binds: false, ..row.judge_bound(bound) });
                report.rows.push(Row { more_is_better: true, judged, ..row });
            }
        }
    }
    let mut samples = Samples::new(what.operation(), UNIT, true);
    let turns = servers.len();
    for pass in 0..options.passes {
        for turn in 0..turns {
            let server = &mut servers[(pass + turn) % turns];
            samples.push(server.kind.name(), server.measure(options.seconds, origin)?);
        }
    }
    for mut row in samples.rows() {
        let bound = what.kinds().iter().find(|(kind, _)| kind.name() == row.peer_name).and_then(|(_, bound)| *bound);
        row.judged = bound.map_or(row.judged, |bound| row.judge_bound(bound));
        report.rows.push(row);
    }
    for Server { kind, lost, .. } in servers.iter().filter(|server| server.lost > 0) {
        report.header.notes.push(format!("{}, {}: {lost} requests were not answered", what.operation(), kind.name()));
    }
    Ok(())
}

/// The source of the answers: the cache of the proxy, or the origin.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Hits,
    Misses,
}

impl What {
    fn operation(self) -> String {
        let from = if self == Self::Hits { "from the cache" } else { "from the origin" };
        format!("GET of 16 bytes through a proxy, {from}, {CLIENTS} addresses")
    }

    /// Returns the servers that are compared if the answers come from the source `self`. A server has a factor if Tegmen
    /// must be at least this many times as fast as the server.
    const fn kinds(self) -> &'static [(Kind, Option<f64>)] {
        match self {
            Self::Hits => {
                &[(Kind::Ours, None), (Kind::Libcoap, Some(2.0)), (Kind::Californium, Some(5.0)), (Kind::Echo, None)]
            }
            Self::Misses => &[(Kind::Ours, None), (Kind::Aiocoap, Some(3.0)), (Kind::Californium, Some(3.0))],
        }
    }
}

/// A server that can be measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Ours,
    /// The example server of libcoap. It is not a proxy: it answers each GET with a value that it stores itself.
    Libcoap,
    Californium,
    Aiocoap,
    /// A server that returns each datagram to its sender. It shows the cost of the system calls.
    Echo,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Ours => OURS,
            Self::Libcoap => "libcoap-notls",
            Self::Californium => "californium",
            Self::Aiocoap => "aiocoap",
            Self::Echo => "udp-echo",
        }
    }

    const fn install(self) -> &'static str {
        match self {
            Self::Ours => "cargo build --release -p tegmen-cli",
            Self::Libcoap => "apt-get install libcoap3-bin",
            Self::Californium => californium::INSTALL,
            Self::Aiocoap => "bench/setup.sh aiocoap",
            Self::Echo => "nothing, it is part of this program",
        }
    }

    /// Returns the command line that starts the server.
    fn words(self, port: u16, origin: &Process) -> Result<Vec<String>, Failure> {
        let uri = format!("coap://{}", origin.address);
        Ok(match self {
            Self::Ours => {
                let (reverse, peers) = (format!("/{HOUSE}={uri}"), (2 * CLIENTS).to_string());
                // As many requests at once to the origin as the others send: they have no limit.
                let options = ["--proxy-reverse", &reverse, "--max-peers", &peers, "--proxy-nstart", "64"];
                ours::serve_command(port, &[], &options).ok_or_else(ours::missing)?
            }
            Self::Libcoap => libcoap_command("notls", port, &[]),
            Self::Echo => echo::command(port)?,
            Self::Californium => californium::proxy_command(port, PATH, &format!("{uri}/{PATH}"))?,
            Self::Aiocoap => {
                let options = format!(
                    "-m aiocoap.cli.proxy --reverse --bind 127.0.0.1:{port} --pathbased {HOUSE}:{}",
                    origin.address
                );
                let python = python()?.to_string_lossy().into_owned();
                [python].into_iter().chain(options.split(' ').map(String::from)).collect()
            }
        })
    }

    /// Returns the path to which the clients send their GETs at this server. It is the path of the measured resource at
    /// the origin, with a prefix if the proxy needs one.
    fn path(self) -> String {
        match self {
            Self::Ours | Self::Aiocoap => format!("{HOUSE}/{PATH}"),
            Self::Libcoap | Self::Californium | Self::Echo => PATH.to_owned(),
        }
    }
}

/// A running server and its clients.
struct Server {
    kind: Kind,
    what: What,
    process: Process,
    clients: Clients,
    asked: u64,
    lost: u64,
}

impl Server {
    /// Starts the server, lets every client send one request, and lets the server warm up if it needs a warm-up.
    fn start(kind: Kind, what: What, origin: &Process) -> Result<Self, Failure> {
        let mut refused = None;
        let process = Process::start(|port| kind.words(port, origin).map_err(|reason| refused = Some(reason)).ok());
        let process = process.map_err(|reason| refused.unwrap_or(reason))?;
        let clients = Clients::new(&process, Way::Plain, CLIENTS)?;
        clients.await_server(&process)?;
        let mut server = Self { kind, what, process, clients, asked: 0, lost: 0 };
        if kind == Kind::Echo {
            server.clients.is_answer = |_| true;
        }
        if kind == Kind::Libcoap {
            server.clients.put()?;
        }
        let question = Question { path: kind.path().into(), ..Question::of_value(Code::GET, b"") };
        server.clients.ask_first(&question)?;
        server.clients.each_asks(0..CLIENTS, |_| question.clone())?;
        let warm_up = if kind == Kind::Californium { WARM_UP_COMPILED } else { Duration::ZERO };
        server.clients.run_with(warm_up, &mut questions(kind, what, &mut server.asked))?;
        Ok(server)
    }

    /// Sends requests for `seconds` seconds. Returns the number of requests for each CPU second of the server.
    fn measure(&mut self, seconds: f64, origin: &Process) -> Result<f64, Failure> {
        let Self { kind, what, process, clients, asked, lost } = self;
        let before = (process.cpu_nanoseconds()?, origin.cpu_nanoseconds()?);
        let (rate, unanswered) = clients.rate(process, seconds, &mut questions(*kind, *what, asked))?;
        let spent_since = |process: &Process, before| Ok(process.cpu_nanoseconds()?.saturating_sub(before));
        let spent = (spent_since(process, before.0)?, spent_since(origin, before.1)?);
        *lost += unanswered;
        if *what == What::Hits && spent.1 > spent.0 / 20 {
            return Err(Failure::new(format!("{}: the origin answers what the cache should", kind.name())));
        }
        Ok(rate)
    }
}

/// Returns a function that makes the GETs of the clients. If the cache must answer, all GETs are the same. If the
/// origin must answer, each GET has another query.
fn questions(kind: Kind, what: What, asked: &mut u64) -> impl FnMut(u32) -> Question {
    let path = kind.path();
    move |_| {
        *asked += 1;
        let path = if what == What::Hits { path.clone() } else { format!("{path}?n={asked}") };
        Question { path: path.into(), ..Question::of_value(Code::GET, b"") }
    }
}

/// The first component of the path under which a proxy serves the resources of the origin.
const HOUSE: &str = "house";
const CLIENTS: u32 = 10_000;
const UNIT: &str = "1/server CPU s";
