//! Measures introspections at an access control server. Compares them with plain GETs in the same DTLS sessions.

use crate::{
    Options,
    access_server::{self, PEERS, THUMBPRINT, VALUE_PATH},
    addresses::{Clients, Question, Way},
    load::VALUE,
    report::{OURS, Report, Samples},
    server::Process,
};
use std::{
    path::Path,
    time::{Duration, Instant},
};
use tegmen::coap::{Code, MessageRef};
use tegmen_bench_line::Failure;
use tegmen_control::{
    access::{
        ace::{ACE_CBOR, Aif, Hint, IntrospectionRequest, IntrospectionResponse, Right, Scope},
        introspection::HINT_THUMBPRINT,
    },
    server::INTROSPECT,
};

/// Lower limit for the rate of introspections, divided by the rate of plain GETs.
const INTROSPECTIONS_MIN: f64 = 0.5;
/// Number of requests that wait for an answer at the same time. Each comes from another peer.
pub(crate) const AT_ONCE: u64 = 1024;
const WARM_UP: Duration = Duration::from_millis(100);

/// Measures three kinds of requests: plain GETs, and both kinds of introspections in [`Asked`]. In each pass the three
/// kinds are measured in turn.
pub(crate) fn measure(scene: &Path, options: &Options, report: &mut Report) -> Result<(), Failure> {
    eprintln!("introspections");
    let process = access_server::start(scene, 0)?;
    let mut clients = Clients::new(&process, Way::Dtls, PEERS)?;
    clients.await_server(&process)?;
    clients.connect(0..PEERS)?;
    clients.window = AT_ONCE;
    let about = "introspections beside a plain GET on the same sessions";
    let mut all: Vec<_> = [Asked::Certificate, Asked::Session]
        .into_iter()
        .flat_map(|asked| ["1/server CPU s", "1/s"].map(|unit| (asked, Samples::new(asked.said(about), unit, true))))
        .collect();
    for (_, samples) in &mut all {
        samples.demanded.0 = Some(INTROSPECTIONS_MIN);
    }
    let mut number = 0;
    for pass in 0..options.passes {
        let mut rates = [(0.0, 0.0); 3];
        for turn in 0..rates.len() {
            let at = (pass + turn) % rates.len();
            let asked = [Asked::Value, Asked::Certificate, Asked::Session][at];
            rates[at] = rate((&process, &mut clients), asked, &mut number, options.seconds)?;
        }
        let [get, certificate, session] = rates;
        for (asked, samples) in &mut all {
            let ours = if matches!(asked, Asked::Session) { session } else { certificate };
            let of = |(per_cpu, per_second)| if samples.unit == "1/s" { per_second } else { per_cpu };
            let (ours, get) = (of(ours), of(get));
            samples.push(OURS, ours);
            samples.push("plain GET", get);
        }
    }
    report.rows.extend(all.iter().flat_map(|(_, samples)| samples.rows()));
    report.header.notes.push(format!(
        "introspections: {PEERS} peers, {AT_ONCE} requests in flight, each of another peer, {} s a pass; an answer about a \
         certificate waits for its line of the audit log, one about a session identity also for its commit",
        options.seconds
    ));
    Ok(())
}

/// Returns the number of answers for each CPU second of the server, and then the number for each second of real time.
pub(crate) fn rate(
    (process, clients): (&Process, &mut Clients),
    asked: Asked,
    number: &mut u64,
    seconds: f64,
) -> Result<Rates, Failure> {
    clients.is_answer = is_answer;
    let constant = asked.question(0);
    let mut question = |_| {
        *number += 1;
        if matches!(asked, Asked::Session) { asked.question(*number) } else { constant.clone() }
    };
    clients.run_with(WARM_UP, &mut question)?;
    rates(process, || {
        let ran = clients.run_with(Duration::from_secs_f64(seconds), &mut question)?;
        match ran.lost {
            0 => Ok(ran.answered),
            lost => Err(Failure::new(format!("{lost} of {} requests were not answered", ran.answered + lost))),
        }
    })
}

/// The number of answers for each CPU second of a server, and then the number for each second of real time.
pub(crate) type Rates = (f64, f64);

/// Runs `work`, which returns a number of answers. Returns the rates of the server during this work.
pub(crate) fn rates(process: &Process, work: impl FnOnce() -> Result<u64, Failure>) -> Result<Rates, Failure> {
    let (cpu, begin) = (process.cpu_nanoseconds()?, Instant::now());
    let answered = work()? as f64;
    let (cpu, elapsed) = (process.cpu_nanoseconds()?.saturating_sub(cpu), begin.elapsed());
    Ok((answered * 1e9 / cpu as f64, answered / elapsed.as_secs_f64()))
}

/// The kind of request that the clients send in one measurement.
#[derive(Clone, Copy)]
pub(crate) enum Asked {
    Value,
    /// An introspection about a peer that authenticates itself with a certificate. It requests the rights of this peer
    /// at a publisher. The server stores nothing.
    Certificate,
    /// An introspection that requests the key of a session. The server accepts the identity of each session only once.
    Session,
}

impl Asked {
    fn said(self, about: &str) -> String {
        let of = if matches!(self, Self::Session) { "session identity" } else { "certificate" };
        format!("{about}, {of}")
    }

    fn question(self, number: u64) -> Question {
        let (token, hint) = match self {
            Self::Value => {
                return Question {
                    code: Code::GET,
                    path: VALUE_PATH.into(),
                    content_format: None,
                    payload: Vec::new(),
                };
            }
            Self::Certificate => (THUMBPRINT.to_vec(), Some(Hint::Name(HINT_THUMBPRINT.to_owned()))),
            // As random as identities are.
            Self::Session => {
                let random = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                (format!("oven;{random:016x}{:08x}", number as u32).into_bytes(), None)
            }
        };
        let scope = Some(Scope::of(&Aif(vec![Right { path: "/temp".to_owned(), permissions: 1 }])));
        let payload = IntrospectionRequest { scope, token, hint }.encode();
        Question { code: Code::POST, path: INTROSPECT.into(), content_format: Some(ACE_CBOR), payload }
    }
}

fn is_answer(message: &MessageRef<'_>) -> bool {
    match message.code() {
        Code::CONTENT => message.payload() == VALUE,
        Code::CREATED => IntrospectionResponse::parse(message.payload()).is_ok_and(|response| response.active),
        _ => false,
    }
}
