//! Measures a fleet of clients that reconnect at the same time, for example after a power cut. Each client performs a
//! handshake and requests a value.
//!
//! The clients have different addresses in many network prefixes, and use the retransmission timers of RFC 6347. The
//! results are the time until the last client has its answer, the number of clients without an answer, and the number
//! of alerts that ended handshakes.
//!
//! In a second measurement the server is killed and started again. The result is the time from the second start until
//! the last observer of the server is notified.

mod observers;

use crate::{
    Options, californium,
    failure::failure,
    fleet::{Fleet, News, SECRET, credentials, known},
    isolation::{private, tegmen},
    program::target,
    report::{Absent, Header, Limit, OURS, Report, Row, Samples, median},
    server::{Process, libcoap_command},
};
use std::{
    fs,
    net::SocketAddrV4,
    path::Path,
    time::{Duration, Instant},
};
use tegmen::coap::Code;
use tegmen_bench_line::Failure;

/// The number of clients, and the number of network prefixes of their addresses.
const CLIENTS: (u32, u32) = (10_000, 50);
/// Maximum time of a pass.
const PATIENCE: Duration = Duration::from_secs(40);
const LIMIT: f64 = 15.0;
/// Maximum time from the restart of a server with `--state` until every observer has a notification, in seconds.
const WITH_STATE: f64 = 10.0;
const WITHOUT_STATE: f64 = 30.0;
/// Time after which a client without an answer sends its request again. Each retransmission doubles the time (RFC 7252,
/// section 4.8).
const ACK_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the fleet against every server that is installed, and measures the restarts.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    let directory = target()?.join("bench-reconnect");
    fs::create_dir_all(&directory).map_err(failure)?;
    private(&directory.join("keys.toml"), &credentials())?;
    report.header.versions.insert("ours", format!("tegmen {}", env!("CARGO_PKG_VERSION")));
    let label = format!("{} clients of {} prefixes at once", CLIENTS.0, CLIENTS.1);
    let mut last = Samples::new(format!("{label}, until the last is answered"), "s", false);
    let mut half = Samples::new(format!("{label}, until half are"), "s", false);
    let mut answered = Samples::new(format!("{label}, answered"), "clients", true);
    let mut told = Samples::new(format!("{label}, refused with an alert about identity or key"), "clients", false);
    let mut absent: Vec<&'static str> = Vec::new();
    for pass in 0..options.passes {
        for turn in 0..SERVERS.len() {
            let (name, install) = SERVERS[(pass + turn) % SERVERS.len()];
            if absent.contains(&name) {
                continue;
            }
            eprintln!("pass {pass}: {name}");
            match start(name, &directory).and_then(|(_process, address)| burst(address)) {
                Ok(found) => {
                    last.push(name, found.percentile(1.0));
                    half.push(name, found.percentile(0.5));
                    answered.push(name, found.seconds.len() as f64);
                    told.push(name, found.blamed as f64);
                    if found.ended > 0 {
                        let Burst { ended, why, .. } = &found;
                        report.header.notes.push(format!("{name}: {ended} handshakes or sessions ended: {why}"));
                    }
                }
                Err(Failure(reason)) => {
                    absent.push(name);
                    report.absent.push(Absent { name, reason, install: install.into() });
                }
            }
        }
    }
    let (with, without) = restarts(options, &directory, &absent, &mut report)?;
    for (samples, limit) in [
        (with, Some(Limit::AtMost(WITH_STATE))),
        (without, Some(Limit::AtMost(WITHOUT_STATE))),
        (last, Some(Limit::AtMost(LIMIT))),
        (half, None),
        (answered, Some(Limit::AtLeast(f64::from(CLIENTS.0)))),
        (told, Some(Limit::AtMost(0.0))),
    ] {
        let ours = samples.numbers.iter().find(|(name, _)| *name == OURS).and_then(|(_, numbers)| median(numbers));
        let judged = limit.map(|limit| limit.judge("ours", ours)).unwrap_or_default();
        report.rows.extend(samples.rows().into_iter().map(|row| Row { judged, ..row }));
    }
    report.header.notes.push(format!(
        "reconnect: every server with its usual limits; PSK, addresses 127.1.0.0 and up, {} in each /24; a client whose \
         handshake ends begins another; unanswered clients count as {} s; n = {} passes, seed: the addresses are fixed",
        CLIENTS.0 / CLIENTS.1,
        PATIENCE.as_secs(),
        options.passes
    ));
    Ok(report)
}

/// Measures how long observers wait for a notification after a restart: kills each server while clients observe its
/// value, and starts it again. Measures Tegmen's server with `--state` and without it. Returns the times with
/// `--state`, and then the times without it.
fn restarts(
    options: &Options,
    directory: &Path,
    absent: &[&'static str],
    report: &mut Report,
) -> Result<(Samples, Samples), Failure> {
    let label = format!("{} observers, their server killed and started, until the last is notified", observers::COUNT);
    let mut with = Samples::new(format!("{label}, with --state"), "s", false);
    let mut without = Samples::new(format!("{label}, without --state"), "s", false);
    let (place, patience) = (directory.join("state"), observers::PATIENCE.as_secs_f64());
    for pass in 0..options.passes {
        for (name, is_kept) in [(OURS, true)].into_iter().chain(SERVERS.map(|(name, _)| (name, false))) {
            // A peer can use all the time until the timeout, so one pass of each is enough.
            if absent.contains(&name) || name != OURS && pass > 0 {
                continue;
            }
            let samples = if is_kept { &mut with } else { &mut without };
            eprintln!("pass {pass}: {name}: {}", samples.operation);
            // No session of an earlier pass.
            let _ = fs::remove_dir_all(&place);
            fs::create_dir_all(&place).map_err(failure)?;
            let file = place.join("state.db");
            let found = observers::restart(name, directory, is_kept.then_some(file.as_path()))?;
            let count = found.seconds.len();
            let all = count == observers::COUNT as usize;
            samples.push(name, if all { found.seconds.into_iter().fold(0.0, f64::max) } else { patience });
            if !all {
                let reason = found.ended.map(|reason| format!("; one ended: {reason}")).unwrap_or_default();
                report.header.notes.push(format!(
                    "{name}, pass {pass}, --state {is_kept}: {} of {} observers were registered, {count} notified again{reason}",
                    found.registered,
                    observers::COUNT
                ));
            }
        }
    }
    report.header.notes.push(format!(
        "observers: the client library of ours with an alive time of 4 s, PSK, a socket each; SIGKILL; the time counts from the \
         start of the second process to the first response or notification behind it; where not all are notified it is \
         {patience} s; peers: n = 1"
    ));
    Ok((with, without))
}

/// The name of each server, and the command that installs it.
const SERVERS: [(&str, &str); 4] = [
    (OURS, "cargo build --release -p tegmen-cli"),
    ("libcoap-openssl", "apt-get install libcoap3-bin"),
    ("libcoap-gnutls", "apt-get install libcoap3-bin"),
    ("californium", californium::INSTALL),
];
/// The path of the value that every server has.
const PATH: &str = "time";

/// Starts a server. Returns its process, and the address at which it accepts DTLS.
fn start(name: &str, directory: &Path) -> Result<(Process, SocketAddrV4), Failure> {
    let process = Process::start(|port| words(name, port, directory, None).ok())?;
    let address = listens(name, process.address);
    await_handshake(address)?;
    Ok((process, address))
}

/// Waits until the server has completed a handshake with a client.
fn await_handshake(address: SocketAddrV4) -> Result<(), Failure> {
    let mut one = Fleet::new(address, 1, (200, 1), known())?;
    one.connect(0)?;
    let (begin, mut stands) = (Instant::now(), false);
    while !stands {
        if begin.elapsed() > Duration::from_secs(20) {
            return Err(Failure::new("the server does not answer a handshake"));
        }
        one.turn(|news| stands |= matches!(news, News::Established(_)))?;
    }
    Ok(())
}

/// Returns the command line that starts a server.
fn words(name: &str, port: u16, directory: &Path, state: Option<&Path>) -> Result<Vec<String>, Failure> {
    match name.strip_prefix("libcoap-") {
        Some(library) => Ok(libcoap_command(library, port, &["-k", SECRET])),
        None if name == OURS => serve(port, directory, "0123456789abcdef", state),
        None => californium::secure_command(port, SECRET),
    }
}

/// Returns the address at which a server accepts DTLS. `given` is the address on its command line. A server of libcoap
/// accepts DTLS at the next higher port.
fn listens(name: &str, given: SocketAddrV4) -> SocketAddrV4 {
    SocketAddrV4::new(*given.ip(), given.port() + u16::from(name.starts_with("libcoap-")))
}

/// Returns the command line that starts Tegmen's server with this value. `state` is the file for `--state`.
fn serve(port: u16, directory: &Path, value: &str, state: Option<&Path>) -> Result<Vec<String>, Failure> {
    let (value, port) = (format!("/time={value}"), port.to_string());
    let mut words = vec![tegmen()?.to_string_lossy().into_owned()];
    words.extend(["serve", "--listen", "127.0.0.1", "--quiet", "--value", &value, "--port", &port].map(str::to_owned));
    words.extend(["--credentials".to_owned(), directory.join("keys.toml").to_string_lossy().into_owned()]);
    words.extend(state.into_iter().flat_map(|file| ["--state".to_owned(), file.to_string_lossy().into_owned()]));
    Ok(words)
}

/// The result of a pass in which all clients connect at the same time.
struct Burst {
    /// For each client that received an answer, the time until the answer in seconds.
    seconds: Vec<f64>,
    ended: u32,
    /// Number of handshakes that the server ended with an alert that blames the identity or the key of the client.
    blamed: u32,
    /// The reason why the last of the ended handshakes or sessions ended; empty if none ended.
    why: String,
}

impl Burst {
    fn percentile(&self, share: f64) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        let place = (f64::from(CLIENTS.0) * share) as usize;
        sorted.get(place.saturating_sub(1)).copied().unwrap_or(PATIENCE.as_secs_f64())
    }
}

/// Begins the handshakes of all clients at the same time. Measures until all clients have an answer, or [`PATIENCE`] is
/// over.
fn burst(server: SocketAddrV4) -> Result<Burst, Failure> {
    let count = CLIENTS.0;
    let mut fleet = Fleet::new(server, count, (0, count / CLIENTS.1), known())?;
    let begin = Instant::now();
    let mut found = Burst { seconds: Vec::new(), ended: 0, blamed: 0, why: String::new() };
    // For each client with a session and without an answer: when it asks again, and how long it waits then.
    let mut asks: Vec<Option<(Instant, Duration)>> = vec![None; count as usize];
    let mut answered = vec![false; count as usize];
    let mut again = Vec::new();
    // As fast as one process can.
    for member in 0..count {
        fleet.connect(member)?;
        if member % 64 == 63 {
            fleet.turn(|news| heard(news, &mut found, &mut asks, &mut answered, &mut again, begin))?;
        }
    }
    while found.seconds.len() < count as usize && begin.elapsed() < PATIENCE {
        fleet.turn(|news| heard(news, &mut found, &mut asks, &mut answered, &mut again, begin))?;
        for member in again.drain(..) {
            fleet.connect(member)?;
        }
        let now = Instant::now();
        for (member, ask) in (0..).zip(&mut asks) {
            if let Some((at, wait)) = ask.filter(|(at, _)| *at <= now) {
                *ask = Some((at + wait, wait * 2));
                fleet.ask(member, 1, member, PATH)?;
            }
        }
    }
    Ok(found)
}

fn heard(
    news: News,
    found: &mut Burst,
    asks: &mut [Option<(Instant, Duration)>],
    answered: &mut [bool],
    again: &mut Vec<u32>,
    begin: Instant,
) {
    match news {
        News::Established(member) => asks[member as usize] = Some((Instant::now(), ACK_TIMEOUT)),
        News::Answered(member, token, code) => {
            let is_first = !std::mem::replace(&mut answered[member as usize], true);
            if is_first && code == Code::CONTENT && token == member.to_be_bytes() {
                asks[member as usize] = None;
                found.seconds.push(begin.elapsed().as_secs_f64());
            }
        }
        News::Closed(member, reason) => {
            found.ended += 1;
            // decrypt_error, bad_record_mac and unknown_psk_identity
            let blames = matches!(reason, tegmen::dtls::Fatal::Alert(alert) if matches!(alert.0, 51 | 20 | 115));
            found.blamed += u32::from(blames);
            found.why = format!("{reason:?}");
            asks[member as usize] = None;
            if !answered[member as usize] {
                again.push(member);
            }
        }
    }
}
