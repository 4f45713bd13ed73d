//! The plan `two-way-architecture`: the exchanges between a publisher and its access control server or subscriber, over
//! one hop and over four. It also compares the handshakes of the paper with those of Tegmen.
//!
//! An exchange is a list of datagrams. A client and a server in this process make the datagrams, with the messages of
//! Tegmen. The simulator then carries them over the radio. The datagrams that one endpoint sends together are called a
//! turn. A turn is sent when the previous turn has arrived completely, and is sent again after a timeout. The peer of
//! the publisher is on the Internet, and the last hop ends at a border router. The plan counts the bytes of the
//! messages that this peer exchanges on the Internet, but does not simulate these messages. The plan assumes that the
//! peer needs 20 ms before it sends a turn.

mod rsa;

use super::{Paper, paper};
use crate::cost::{self, CYCLES_PER_INSTRUCTION};
use crate::deployment::{Deployment, Plan};
use crate::figure::{Figure, Source};
use crate::interval::{self, Mean};
use crate::mote::Exchange;
use crate::papers::ends::{self, Sent, Session};
use crate::papers::messages::{self, message, request};
use crate::parallel;
use crate::platform::Platform;
use crate::scenario::{self, Outcome};
use crate::sim::Micros;
use tegmen::coap::{Code, MessageType, OptionNumber};
use tegmen::time::Duration;

/// The access control messages that Tegmen writes. The caller passes them, because this crate does not depend on the
/// crate that writes them.
#[derive(Clone, Debug)]
pub struct Messages {
    /// The PSK identity and the key of the session in which a publisher enrols.
    pub enrolment: (Vec<u8>, Vec<u8>),
    /// The payload of `POST /enrol`.
    pub enrol: Vec<u8>,
    /// The PSK identity and the key of a session between the publisher and its subscriber.
    pub session: (Vec<u8>, Vec<u8>),
    /// The payload of a `POST /introspect` request, and the payload of its response.
    pub introspection: [Vec<u8>; 2],
    /// The payload of a `POST /token` request, and the payload of its response. The token is for a session that the
    /// publisher opens.
    pub token: [Vec<u8>; 2],
    /// The PSK identity and the key of a session between the access control server and the publisher.
    pub server: (Vec<u8>, Vec<u8>),
    /// The payload of `POST /authz-info`.
    pub upload: Vec<u8>,
    /// The payload of a notification that a token is revoked.
    pub revoked: Vec<u8>,
}

/// The number of runs of each case.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of runs, each with another seed.
    pub seeds: u64,
}

/// The number of runs that `tegmen lab run` and the report use.
pub const FULL: Effort = Effort { seeds: 60 };

/// Returns all figures of the plan `two-way-architecture`. Calls `done` with the number of finished runs and the number
/// of all runs.
pub fn figures(messages: &Messages, effort: Effort, done: impl Fn(usize, usize) + Sync) -> Vec<Figure> {
    let paper = paper();
    let mut flows = exchanges(messages);
    flows.push(certificates());
    flows.extend(rsa::handshakes(&paper));
    let jobs: Vec<(&Flow, usize, u64)> = flows
        .iter()
        .flat_map(|flow| HOPS.map(|(hops, _)| (flow, hops)))
        .flat_map(|(flow, hops)| (1..=effort.seeds).map(move |seed| (flow, hops, seed)))
        .collect();
    let all = jobs.len();
    let outcomes = parallel::each(&jobs, |(flow, hops, seed)| run(flow, *hops, *seed), |n| done(n, all));
    let mut results: Vec<Result> = Vec::new();
    for ((flow, hops, _), outcome) in jobs.iter().zip(outcomes) {
        match results.last_mut() {
            Some(result) if result.of == (flow.name, *hops) => result.runs.push(outcome),
            _ => results.push(Result { of: (flow.name, *hops), runs: vec![outcome] }),
        }
    }
    let mut figures: Vec<_> = flows.iter().flat_map(counted).collect();
    figures.extend(internet(messages));
    figures.extend(results.iter().flat_map(Result::figures));
    figures.extend(verdicts(&results));
    figures.extend(figure8(&paper));
    figures
}

/// A datagram of an exchange over the radio.
struct Step {
    by_publisher: bool,
    bytes: Vec<u8>,
    /// The time that the sender needs before it sends the datagram, in microseconds.
    pause: Micros,
}

impl Step {
    /// Returns one step for each datagram of a session. The publisher is the client of the session if `is_client` is
    /// true, and otherwise the server. The publisher needs the time `work` before each of its datagrams.
    fn all(sent: Vec<Sent>, is_client: bool, work: Micros) -> impl Iterator<Item = Self> {
        sent.into_iter().map(move |Sent { by_client, bytes }| {
            let by_publisher = by_client == is_client;
            Self { by_publisher, bytes, pause: if by_publisher { work } else { INTERNET } }
        })
    }
}

/// An exchange between a publisher and a peer on the Internet.
struct Flow {
    name: &'static str,
    by_publisher: bool,
    exchange: Exchange,
}

impl Flow {
    fn new(name: &'static str, steps: &[Step], timeout: Duration) -> Self {
        let by_publisher = steps.first().is_some_and(|step| step.by_publisher);
        let datagrams = steps.iter().map(|step| (step.by_publisher, step.bytes.clone(), step.pause)).collect();
        Self { name, by_publisher, exchange: Exchange::of(datagrams, timeout) }
    }

    fn datagrams(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.exchange.turns.iter().flat_map(|turn| &turn.datagrams)
    }
}

/// Returns the exchanges of access control, such as enrolment and revocation.
fn exchanges(messages: &Messages) -> Vec<Flow> {
    let client = handshake_micros("dtls_psk", "client") / CLIENT_TURNS;
    let server = handshake_micros("dtls_psk", "server") / SERVER_TURNS;
    let (identity, key) = &messages.enrolment;
    let mut session = Session::open(identity, key);
    session.send(true, &request(Code::POST, "enrol", Some(CBOR), &messages.enrol));
    session.send(false, &response(Code::CREATED, None));
    session.close(true);
    let enrolment: Vec<_> = Step::all(session.sent(), true, client).collect();

    let (identity, key) = &messages.session;
    let delivery = || {
        let mut session = Session::open(identity, key);
        let handshake = session.len();
        session.send(true, &request(Code::PUT, "temp", None, READING));
        session.send(false, &response(Code::CHANGED, None));
        let mut steps: Vec<_> = Step::all(session.sent(), true, client).collect();
        // The subscriber asks for the key before it can check the Finished message of the publisher.
        steps[handshake - 1].pause += INTERNET;
        steps
    };

    let uploaded = |answer: &[u8]| {
        let (identity, key) = &messages.server;
        let mut session = Session::open(identity, key);
        session.send(true, &request(Code::POST, "authz-info", Some(ACE_CBOR), &messages.upload));
        session.send(false, answer);
        session.close(true);
        Step::all(session.sent(), false, server)
    };
    let ticket: Vec<_> = uploaded(&response(Code::CREATED, None)).chain(delivery()).collect();
    let refusal: Vec<_> = uploaded(&response(Code::SERVICE_UNAVAILABLE, Some(60))).collect();

    let mut session = Session::open(identity, key);
    let handshake = session.len();
    session.close(false);
    let end = session.sent().split_off(handshake);
    let again = Session::refused(identity, key);
    let revocation: Vec<_> = Step::all(end, true, client).chain(Step::all(again, true, client)).collect();

    let timeout = Duration::from_secs(1);
    vec![
        Flow::new(ENROLMENT, &enrolment, timeout),
        Flow::new(FIRST_CONTACT, &delivery(), timeout),
        Flow::new(TICKET, &ticket, timeout),
        Flow::new(REFUSAL, &refusal, timeout),
        Flow::new(REVOCATION, &revocation, timeout),
    ]
}

/// Returns Tegmen's handshake with certificates between a publisher and its peer. It includes the computing time of the
/// publisher's processor.
fn certificates() -> Flow {
    let mut steps: Vec<_> = Step::all(ends::certificate_chains(), true, 0).collect();
    // The publisher is the client. It computes nearly all of this time after flight 4, before the last flight of the
    // client.
    if let Some(last) = steps.iter_mut().rfind(|step| step.by_publisher) {
        last.pause = handshake_micros("dtls_x509", "client");
    }
    Flow::new(P256, &steps, Duration::from_secs(1))
}

/// Returns the time that the client or the server of a handshake needs on the mote of the paper. `image` is the
/// firmware image whose handshake was measured, and `end` is the client or the server.
fn handshake_micros(image: &str, end: &str) -> Micros {
    let opal = Platform::find("opal").expect("a platform of the file");
    let instructions = super::instructions(image, &format!("handshake {end}"));
    cost::micros(instructions, CYCLES_PER_INSTRUCTION[1], opal.clock_hz)
}

fn response(code: Code, max_age: Option<u32>) -> Vec<u8> {
    message(MessageType::Acknowledgement, code, |message| match max_age {
        Some(seconds) => message.uint(OptionNumber::MAX_AGE, seconds),
        None => Ok(()),
    })
}

/// Runs the exchange of a flow once, over a chain with this number of hops. The last node of the chain begins the
/// exchange.
fn run(flow: &Flow, hops: usize, seed: u64) -> Outcome {
    let plan = Plan::parse("two-way", include_str!("../../../plans/two-way.toml"));
    let plan = plan.expect("the plan is part of the program, and a test reads it");
    let mut deployment: Deployment = plan.cases.into_iter().next().expect("a plan has a case").deployment;
    deployment.network.hops = Some(hops);
    deployment.network.forwarders = hops - 1;
    deployment.traffic.readings = 1;
    scenario::run_exchange(&deployment, &flow.exchange, seed)
}

/// Returns the figures that the datagrams of a flow determine, without a simulation.
fn counted(flow: &Flow) -> Vec<Figure> {
    let why = if flow.by_publisher { "the publisher begins" } else { "the other end begins" };
    let count = |what: &str, ours: usize, unit| {
        Figure::shown(format!("{}/{what}", flow.name), None, ours as f64, unit, why).of(Source::Counted)
    };
    let records: usize = flow.datagrams().map(|datagram| rsa::records(datagram)).sum();
    vec![
        count("messages", records, "messages"),
        count("datagrams", flow.datagrams().count(), "datagrams"),
        count("bytes", flow.datagrams().map(Vec::len).sum(), "bytes"),
    ]
}

/// Returns the figures of the messages that the peers of the publisher exchange on the Internet.
fn internet(messages: &Messages) -> Vec<Figure> {
    let coap = |path, payload: &[u8]| request(Code::POST, path, Some(ACE_CBOR), payload).len();
    let answer = |payload: &[u8]| messages::answer(Code::CREATED, ACE_CBOR, payload).len();
    [
        (FIRST_CONTACT, "introspection_request", coap("introspect", &messages.introspection[0])),
        (FIRST_CONTACT, "introspection_response", answer(&messages.introspection[1])),
        (TICKET, "token_request", coap("token", &messages.token[0])),
        (TICKET, "token_response", answer(&messages.token[1])),
        (REVOCATION, "notification", answer(&messages.revoked)),
    ]
    .map(|(flow, what, bytes)| {
        let why = "a CoAP message on the Internet, without its record and headers";
        Figure::shown(format!("{flow}/internet/{what}"), None, bytes as f64, "bytes", why).of(Source::Counted)
    })
    .into()
}

/// The results of all runs of a flow over the same number of hops.
struct Result {
    of: (&'static str, usize),
    runs: Vec<Outcome>,
}

impl Result {
    fn mean(&self, of: impl Fn(&Outcome) -> Option<f64>) -> Mean {
        interval::mean(&self.runs.iter().filter_map(of).collect::<Vec<_>>())
    }

    fn delay(&self) -> Mean {
        self.mean(|run| run.delays.first().map(|delay| *delay as f64 / 1e3))
    }

    /// Returns the share of runs in which the last datagram arrived.
    fn ended(&self) -> f64 {
        self.runs.iter().filter(|run| run.answered == 1).count() as f64 / self.runs.len() as f64
    }

    fn figures(&self) -> Vec<Figure> {
        let (name, hops) = self.of;
        let hops = HOPS.iter().find(|(known, _)| *known == hops).map_or("", |(_, name)| name);
        let seeds = self.runs.len() as u64;
        let figure = |what: &str, mean: &Mean, unit, why| {
            Figure::shown(format!("{name}/{hops}/{what}"), None, mean.mean, unit, why).sampled(seeds, seeds, mean)
        };
        let radio = "of all nodes, with acknowledgements of the link layer";
        vec![
            figure("delay", &self.delay(), "ms", "until the last datagram has come, in the runs that came to it"),
            figure("ended", &self.mean(|run| Some(100.0 * run.answered as f64)), "percent", ENDED),
            figure("frames", &self.mean(|run| Some(run.frames as f64)), "frames", radio),
            figure("bytes_on_air", &self.mean(|run| Some(run.bytes as f64)), "bytes", radio),
        ]
    }
}

fn verdicts(results: &[Result]) -> Vec<Figure> {
    let delay = |name: &str, hops: usize| {
        let found = results.iter().find(|result| result.of == (name, hops)).expect("each flow ran");
        found.delay().mean
    };
    let everywhere =
        |shorter: &str, longer: &str| HOPS.iter().all(|(hops, _)| delay(shorter, *hops) < delay(longer, *hops));
    let holds = |id: &str, holds, what: &str| Figure::holds(format!("verdict/{id}"), holds, what);
    vec![
        holds(
            "every_exchange_of_ours_ended",
            results.iter().filter(|result| !rsa::NAMES.contains(&result.of.0)).all(|result| result.ended() == 1.0),
            "each run came to its last datagram",
        ),
        holds(
            "smaller_keys_are_faster",
            everywhere(rsa::NAMES[0], rsa::NAMES[2]) && everywhere(rsa::NAMES[1], rsa::NAMES[3]),
            "figure 7: a handshake is shorter with RSA of 1024 bits than of 2048",
        ),
        holds(
            "without_the_client_faster",
            everywhere(rsa::NAMES[1], rsa::NAMES[0]) && everywhere(rsa::NAMES[3], rsa::NAMES[2]),
            "figure 7: a handshake is shorter without authentication of the client",
        ),
        holds(
            "p256_is_faster_than_a_tpm",
            everywhere(P256, rsa::NAMES[2]),
            "P-256 on the processor takes less time than RSA of 2048 bits in the paper's TPM, with chains of two certificates",
        ),
        holds(
            "refusal_is_cheaper_than_a_ticket",
            everywhere(REFUSAL, TICKET),
            "a publisher without resources is done sooner than one that opens the session",
        ),
    ]
}

/// Returns the values of figure 8: the current of the mote during a handshake that authenticates client and server. The
/// current follows from the numbers of table I.
fn figure8(paper: &Paper) -> Vec<Figure> {
    let row = |name: &str| &paper.table1.minimum[name];
    let (twi, operations) = (row("tpm_twi"), ["tpm_start", "tpm_verify", "tpm_encrypt", "tpm_sign"]);
    let mut figures = Vec::new();
    let mut begins = 0.0;
    for (number, name) in
        (1..).zip(["tpm_start", "tpm_twi", "tpm_verify", "tpm_twi", "tpm_encrypt", "tpm_twi", "tpm_sign"])
    {
        let why = "the order is that of the figure, which prints no number; the bus has a third of its time before each operation";
        let of = row(name);
        let id = |what: &str| format!("fig8/{number}_{name}/{what}");
        let share = if name == "tpm_twi" { 3.0 } else { 1.0 };
        figures.push(Figure::shown(id("begins"), None, begins, "ms", why).of(Source::Paper));
        figures.push(Figure::shown(id("current"), None, of.ma, "mA", why).of(Source::Paper));
        begins += of.ms[0] / share;
    }
    let longest = ["tpm_start", "tpm_sign"].iter().all(|name| {
        operations[1..3].iter().all(|other| row(name).ms[0] > row(other).ms[0]) && row(name).ms[0] > twi.ms[0] / 3.0
    });
    let lower = operations.iter().all(|name| row(name).ma > twi.ma);
    let what = "the start of the TPM and its signature are the longest operations without a break";
    figures.push(Figure::holds("fig8/start_and_sign_are_longest".into(), longest, what).of(Source::Paper));
    let what = "the bus draws less current than each operation";
    figures.push(Figure::holds("fig8/the_bus_draws_less".into(), lower, what).of(Source::Paper));
    figures
}

/// Assumed time from the last hop to a server on the Internet and back, in microseconds.
const INTERNET: Micros = 20_000;
/// Number of flights that a client sends in a handshake. The client's computing time is divided equally among them.
const CLIENT_TURNS: Micros = 3;
const SERVER_TURNS: Micros = 3;
const HOPS: [(usize, &str); 2] = [(1, "one_hop"), (4, "four_hops")];
const READING: &[u8] = b"21.5";
const ENDED: &str = "of the runs, each of which ends 93 s after its begin";
/// Content-Formats of CoAP.
const CBOR: u16 = 60;
const ACE_CBOR: u16 = 19;
const ENROLMENT: &str = "enrolment";
const FIRST_CONTACT: &str = "first_contact";
const TICKET: &str = "ticket";
const REFUSAL: &str = "refusal";
const REVOCATION: &str = "revocation";
const P256: &str = "handshake_p256_mutual";

#[cfg(test)]
pub(crate) mod tests;
