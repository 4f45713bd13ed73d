//! Benchmarks that compare Tegmen with other stacks in one run. In each pass all programs are measured in turn, so that
//! their ratios are comparable.
//!
//! `tegmen-bench BENCHMARK [--json] [--no-instructions] [--passes K]` runs a benchmark, for example `dtls` or `coap`.
//! `bench/setup.sh` builds the peers.
mod access_server;
mod addresses;
mod blocks;
mod californium;
mod certificates;
mod coap;
mod compare;
mod control;
mod crowd;
mod delegation;
mod dtls;
mod echo;
mod failure;
mod fleet;
mod group;
mod introspections;
mod isolation;
mod limit;
mod load;
mod memory;
mod mmsg;
mod ndn;
mod observe;
mod oscore;
mod ours;
mod program;
mod proof;
mod proxy;
mod reconnect;
mod report;
mod scene;
mod server;
mod session;
mod sessions;

use std::{env, process::ExitCode};
use tegmen_bench_line::{Failure, run_with};

/// Options of the command line.
#[derive(Clone)]
struct Options {
    json: bool,
    instructions: bool,
    passes: usize,
    seconds: f64,
    serve: Option<String>,
    path: String,
    count: Option<u32>,
    speaking: bool,
    observers: u32,
    /// The commit with which the working tree is compared; `None` if no commits are compared.
    base: Option<String>,
    /// The minimum speed of the working tree, divided by the speed of the other commit; `None` if there is no minimum.
    bound: Option<f64>,
}

fn main() -> ExitCode {
    let mut words = env::args().skip(1);
    let verb = words.next().unwrap_or_default();
    let rest: Vec<String> = words.collect();
    let run = match verb.as_str() {
        // These are programs of their own that the driver starts.
        "ours" => return run_with(ours::stack(), &rest),
        "echo" => return finish(echo::run(rest.first().map_or("127.0.0.1:0", String::as_str)).map(|()| None), false),
        "oscore-pairs" => return finish(oscore::pairs(&rest).map(|()| None), false),
        access_server::VERB => return finish(access_server::serve(&rest).map(|()| None), false),
        delegation::server::VERB => return finish(delegation::server::serve(&rest).map(|()| None), false),
        delegation::resuming::VERB => return finish(delegation::resuming::serve(&rest).map(|()| None), false),
        session::VERB => return finish(session::client(&rest).map(|()| None), false),
        "dtls" => dtls::run,
        "addresses" => addresses::run,
        "coap" => coap::run,
        "compare" => compare::run,
        "control" => control::run,
        "delegation" => delegation::run,
        "group" => group::run,
        "isolation" => isolation::run,
        "joins" => group::joins,
        "limit" => limit::run,
        "ndn" => ndn::run,
        "oscore" => oscore::run,
        "proxy" => proxy::run,
        "reconnect" => reconnect::run,
        "session" => session::run,
        "sessions" => sessions::run,
        _ => return finish(Err(Failure::new(USAGE)), false),
    };
    match Options::parse(&verb, &rest) {
        Ok(options) => finish(run(&options).map(Some), options.json),
        Err(misuse) => finish(Err(misuse), false),
    }
}

fn finish(result: Result<Option<report::Report>, Failure>, json: bool) -> ExitCode {
    match result {
        Ok(report) => {
            report.iter().for_each(|report| report.print(json));
            if report.is_some_and(|report| report.is_behind()) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

impl Options {
    fn parse(verb: &str, words: &[String]) -> Result<Self, Failure> {
        let mut options = Self {
            json: false,
            instructions: true,
            passes: if verb == "compare" { compare::PASSES_MIN } else { 9 },
            seconds: 1.0,
            serve: None,
            path: "example_data".into(),
            count: None,
            speaking: false,
            observers: 10_000,
            base: None,
            bound: None,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| Failure::new(format!("{word} needs a value")));
            match word.as_str() {
                "--json" => options.json = true,
                "--instructions" => options.instructions = true,
                "--no-instructions" => options.instructions = false,
                "--passes" => options.passes = number(value()?)?,
                "--seconds" => options.seconds = number(value()?)?,
                "--speaking" => options.speaking = true,
                "--serve" => options.serve = Some(value()?.clone()),
                "--path" => options.path = value()?.clone(),
                "--observers" => options.observers = number(value()?)?,
                "--bound" => options.bound = Some(number(value()?)?),
                "--count" => options.count = Some(number(value()?)?),
                base if verb == "compare" && options.base.is_none() && !base.starts_with('-') => {
                    options.base = Some(base.to_owned())
                }
                _ => return Err(Failure::new(USAGE)),
            }
        }
        Ok(options)
    }
}

fn number<N: std::str::FromStr>(word: &str) -> Result<N, Failure> {
    word.parse().map_err(|_| Failure::new(format!("not a number: {word}")))
}

const USAGE: &str = "\
tegmen-bench dtls [--no-instructions]
                                     PSK-CCM8 handshakes, records, heap and bytes, ours beside every peer, and
                                     records at the limit of the processor
tegmen-bench limit                   the last of these alone
tegmen-bench oscore [--no-instructions]
                                     requests and responses of OSCORE, ours beside libOSCORE
tegmen-bench coap [--seconds S] [--serve 'COMMAND with {port}'] [--path P] [--observers N]
                                     CON GET, 64 in flight, ours beside libcoap and a bare UDP echo; transfers of 64
                                     KiB in blocks, and notifications to 10,000 observers by default, beside libcoap
tegmen-bench ndn [--seconds S]       packets for each CPU second of a forwarder of NDN, passed on and stored, beside ndnd,
                                     and over UDP beside a bare UDP echo
tegmen-bench addresses [--seconds S] requests from 1,000 and 10,000 peer addresses, one in flight from each at most: plain
                                     and DTLS beside libcoap, OSCORE beside Californium
tegmen-bench isolation               requests of sessions while unauthenticated peers begin RSA handshakes, server and
                                     load on one processor each
tegmen-bench reconnect               10,000 clients that begin at once, against our server and libcoap's
tegmen-bench session [--seconds S]   64 requests at once by one client, plain and over DTLS, our client beside those of
                                     go-coap and libcoap
tegmen-bench sessions [--count N]    N sessions held at once, a million by default: bytes of each, and the time to
                                     find one, to take the next alarm, to open a record
tegmen-bench sessions --speaking [--count N]
                                     memory of `tegmen serve` for N sessions that each asked once, a million by default
tegmen-bench control [--seconds S] [--count N]
                                     introspections at an access control server beside plain GETs on the same sessions;
                                     its durable grants beside bare SQLite; the database and the start of a server with
                                     N devices, 1,000,000 by default
tegmen-bench delegation              delegations and new tickets at a delegation server beside the curve operations alone and
                                     beside resumptions without a delegate; 1,000 devices that are reset at once
tegmen-bench group [--seconds S]     records of a group beside those of DTLS sessions, of wolfSSL's multicast and of aiocoap's
                                     Group OSCORE; joins beside introspections on the same sessions
tegmen-bench joins [--seconds S]     the last of these alone
tegmen-bench proxy [--seconds S]     a reverse proxy that answers from its cache beside libcoap's server and Californium's proxy,
                                     and that asks the origin each time beside the proxies of Californium and aiocoap
tegmen-bench compare BASE [--bound R] [--no-instructions]
                                     the working tree beside the commit BASE: handshakes, records, OSCORE, CoAP. With a
                                     bound it ends with 1 if the interval of a row lies below R of the base's
                                     speed, or a row was not measured; group and proxy do so with bounds of
                                     their own

  --json        one JSON object instead of a table
  --passes K    interleaved passes, 9 by default, 31 at least to compare";
