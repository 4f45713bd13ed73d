//! Measures plain CoAP over loopback. In each pass one client keeps 64 confirmable GETs waiting for their answers, at
//! one server after the other. After the GETs, each pass measures [`blocks`](crate::blocks) and
//! [`observe`](crate::observe).
//!
//! The client first stores 16 bytes at every server, at the path `/example_data` of libcoap's example server. So all
//! answers have the same size. The result is the number of requests for each CPU second of the *server's* process. The
//! number for each second of real time is also reported, but it depends on the client and on other work of the machine.

use crate::{
    Options,
    blocks::Blocks,
    echo,
    load::{Answer, Load, VALUE, WINDOW},
    observe::Observe,
    ours,
    report::{Absent, BASE, Header, OURS, Report, Row, Samples},
    server::{Beside, Process, libcoap_command},
};
use std::{
    path::Path,
    time::{Duration, Instant},
};
use tegmen_bench_line::Failure;

/// Measures every server that is installed.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    measure(options, Beside::Libcoap, &mut report)?;
    Ok(report)
}

/// Adds the rows that compare Tegmen's server with the server `beside` and with other servers.
pub(crate) fn measure(options: &Options, beside: Beside<'_>, report: &mut Report) -> Result<(), Failure> {
    let mut servers = Vec::new();
    let kinds: &[Kind<'_>] = match beside {
        Beside::Libcoap => &[Kind::Ours, Kind::Echo, Kind::Libcoap("notls"), Kind::Libcoap("openssl")],
        Beside::Base(programs) => &[Kind::Ours, Kind::Base(programs)],
    };
    for &kind in kinds {
        match Server::start(kind, options) {
            Ok(server) => servers.push(server),
            Err(reason) => {
                report.absent.push(Absent { name: kind.name(), reason: reason.0, install: kind.install().into() });
            }
        }
    }
    let mut blocks = Blocks::start(beside, report);
    let mut observe = Observe::new(options, beside);
    let mut per_cpu = Samples::new("CON GET of 16 bytes, 64 in flight", "1/server CPU s", true);
    let mut per_second = Samples::new("CON GET of 16 bytes, 64 in flight", "1/s", true);
    let count = servers.len();
    for pass in 0..options.passes {
        for turn in 0..count {
            let server = &mut servers[(pass + turn) % count];
            let (each_cpu, each_second) = server.measure(options.seconds)?;
            per_cpu.push(server.kind.name(), each_cpu);
            per_second.push(server.kind.name(), each_second);
        }
        blocks.pass(pass, options)?;
        observe.pass(pass, report)?;
    }
    let not_behind = |row: Row| if row.peer_name == Kind::Echo.name() { row } else { row.not_behind() };
    report.rows.extend([per_cpu, per_second].iter().flat_map(Samples::rows).map(not_behind));
    report.header.notes.push(format!(
        "coap: path /{}, value of {} bytes put first, {WINDOW} in flight, {} s a pass",
        options.path,
        VALUE.len(),
        options.seconds
    ));
    for server in &servers {
        report.header.notes.push(format!(
            "{}: answers of {} bytes, {} lost, {:.1} requests a system call of the client",
            server.kind.name(),
            server.answer_len,
            server.lost,
            server.batch
        ));
    }
    blocks.finish(report);
    observe.finish(report);
    Ok(())
}

/// A server that can be measured.
#[derive(Clone, Copy)]
enum Kind<'a> {
    Ours,
    Base(&'a Path),
    Echo,
    /// The example server of libcoap, built with this TLS library. The benchmark uses only its port without DTLS.
    Libcoap(&'static str),
}

impl Kind<'_> {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => OURS,
            Self::Base(_) => BASE,
            Self::Echo => "udp-echo",
            Self::Libcoap("notls") => "libcoap-notls",
            Self::Libcoap(_) => "libcoap-openssl",
        }
    }

    fn install(self) -> &'static str {
        match self {
            Self::Ours | Self::Base(_) => "cargo build --release -p tegmen-cli",
            Self::Echo => "nothing, it is part of this program",
            Self::Libcoap(_) => "apt-get install libcoap3-bin",
        }
    }

    /// Returns the command line that starts the server; `None` if the server is not built.
    fn words(self, port: u16, options: &Options) -> Option<Vec<String>> {
        match self {
            Self::Ours => {
                let typed = options.serve.as_ref().map(|words| words.replace("{port}", &port.to_string()));
                let typed = typed.map(|words| words.split_whitespace().map(String::from).collect());
                typed.or_else(|| ours::serve_command(port, &[EXAMPLE], &[]))
            }
            Self::Base(programs) => ours::serve_command_in(programs, port, &[EXAMPLE], &[]),
            Self::Echo => echo::command(port).ok(),
            Self::Libcoap(library) => Some(libcoap_command(library, port, &[])),
        }
    }

    fn answer(self) -> Answer {
        if matches!(self, Self::Echo) { Answer::Echo } else { Answer::Content }
    }
}

/// A running server and its client.
struct Server<'a> {
    kind: Kind<'a>,
    process: Process,
    load: Load,
    answer_len: usize,
    lost: u64,
    batch: f64,
}

impl<'a> Server<'a> {
    fn start(kind: Kind<'a>, options: &Options) -> Result<Self, Failure> {
        let process = Process::start(|port| kind.words(port, options))?;
        let load = Load::new(process.address.into(), &options.path, kind.answer())?;
        let mut server = Self { kind, process, load, answer_len: 0, lost: 0, batch: 0.0 };
        server.load.prepare()?;
        server.load.run(WARM_UP)?;
        Ok(server)
    }

    /// Returns the number of requests for each CPU second of the server, and then the number for each second of real
    /// time.
    fn measure(&mut self, seconds: f64) -> Result<(f64, f64), Failure> {
        self.load.run(WARM_UP)?;
        let (cpu, begin) = (self.process.cpu_nanoseconds()?, Instant::now());
        let counted = self.load.run(Duration::from_secs_f64(seconds))?;
        let elapsed = begin.elapsed();
        let cpu = self.process.cpu_nanoseconds()?.saturating_sub(cpu);
        (self.answer_len, self.batch) = (counted.answer_len, counted.batch);
        self.lost += counted.lost;
        let answered = counted.answered as f64;
        Ok((answered * 1e9 / cpu as f64, answered / elapsed.as_secs_f64()))
    }
}

/// The resource that Tegmen's server has from the start, as an argument of its command line.
const EXAMPLE: &str = "/example_data=0123456789abcdef";
/// Warm-up time. During this time the requests of an earlier pass are answered or given up.
const WARM_UP: Duration = Duration::from_millis(100);
