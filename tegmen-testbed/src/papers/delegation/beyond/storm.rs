//! Simulates the end of a device's epoch. All peers of the device then return to the device over the radio at about the
//! same time. The device is node 0 of a star, and its peers are the other nodes.

use super::super::PERCENT;
use super::{Case, Effort, Job, Measured, Runs, deployment, seconds, seeds};
use crate::figure::{Figure, Source};
use crate::mote::Protection;
use crate::scenario;
use tegmen::time::Duration;

/// Returns a case for each protection, for each number of peers, and for each time span in [`SPANS`].
pub(super) fn cases(effort: Effort) -> Vec<Case> {
    let mut cases = Vec::new();
    for &peers in effort.peers {
        for (span, within_s) in SPANS {
            for protection in [Protection::Delegation, Protection::Certificate] {
                cases.push(case(effort, protection, peers, (span, within_s)));
            }
        }
    }
    cases
}

fn case(effort: Effort, protection: Protection, peers: usize, (span, within_s): (&'static str, f64)) -> Case {
    let job = |seed: u64| -> Job { Box::new(move || run(protection, peers, within_s, seed)) };
    let name = format!("storm/{}/{peers}_peers/{span}", protection.name());
    let is_delegated = protection == Protection::Delegation;
    Case {
        jobs: seeds(effort.seeds).map(job).collect(),
        figures: Box::new(move |runs| figures(&name, is_delegated, peers as u64, runs)),
    }
}

fn run(protection: Protection, peers: usize, within_s: f64, seed: u64) -> Measured {
    let mut deployment = deployment();
    deployment.network.nodes = Some(peers);
    deployment.traffic.period_s = within_s;
    let storm = scenario::run_storm(&deployment, protection, REISSUE, seed);
    let (outcome, each) = (&storm.outcome, peers as f64);
    let mut measured = vec![
        ("returned", outcome.answered as f64 / each * 100.0),
        ("frames", outcome.frames as f64 / each),
        ("bytes", outcome.bytes as f64 / each),
        ("refusals", storm.refusals as f64 / each),
        (ANSWERS, storm.public_key_answers as f64 / each),
        ("collided", storm.collisions as f64 / outcome.frames as f64 * 100.0),
    ];
    if outcome.answered == outcome.made {
        measured.push(("time", seconds(outcome.last_answer)));
    }
    if let Some(median) = outcome.delays.get(outcome.delays.len() / 2) {
        measured.push(("median", seconds(*median)));
    }
    measured
}

fn figures(name: &str, is_delegated: bool, peers: u64, runs: &Runs) -> Vec<Figure> {
    let n = runs.seeds() * peers;
    let refused = if is_delegated { REFUSED } else { "no session is resumed, so none is refused" };
    let mut figures = vec![runs.complete(name, n, "returned")];
    figures.extend(runs.shown(
        name,
        n,
        &[
            ("time", "s", "from the end of the epoch until the last peer has its response"),
            ("median", "s", "from the reading of a peer until its response"),
            ("frames", "frames per peer", "with acknowledgements of the link layer"),
            ("bytes", "bytes per peer", "PSDUs of all these frames"),
            ("collided", PERCENT, "frames that were on the air at the same time as another one"),
            ("refusals", EACH, refused),
        ],
    ));
    match is_delegated {
        true => {
            let answers = runs.mean(ANSWERS);
            let bounded = Figure::at_most(format!("{name}/{ANSWERS}"), None, answers.mean, 0.0, EACH, "");
            figures.push(bounded.sampled(n, runs.seeds(), &answers));
        }
        false => figures.extend(runs.shown(name, n, &[(ANSWERS, EACH, PUBLIC_KEYS)])),
    }
    figures
}

/// Compares delegation with certificates. Each figure is a time or a number of frames with delegation, in percent of
/// the same value with certificates.
pub(super) fn verdicts(effort: Effort, figures: &[Figure]) -> Vec<Figure> {
    let mut verdicts = Vec::new();
    for peers in effort.peers {
        for (span, within_s) in SPANS {
            let of = |protection: Protection, what: &str| {
                let id = format!("storm/{}/{peers}_peers/{span}/{what}", protection.name());
                figures.iter().find(|figure| figure.id == id).and_then(|figure| figure.ours)
            };
            for (what, cause) in [("time", if within_s < 1.0 { NO_RANDOM_PART } else { "" }), ("frames", "")] {
                let both = of(Protection::Delegation, what).zip(of(Protection::Certificate, what));
                let percent = both.map_or(f64::MAX, |(delegated, certified)| delegated / certified * 100.0);
                let id = format!("storm/verdict/{peers}_peers/{span}/{what}");
                verdicts.push(Figure::at_most(id, None, percent, 100.0, OF_CERTIFICATES, cause).of(Source::Simulated));
            }
        }
    }
    verdicts
}

/// The time spans within which all peers send their next message, each with its name and its seconds. A peer notices
/// the end of its session when it sends this message.
const SPANS: [(&str, f64); 3] = [("in_100_ms", 0.1), ("in_a_second", 1.0), ("in_a_minute", 60.0)];
/// The time that a peer needs to get a ticket of the current epoch from the server. On the Internet the peer and the
/// server send datagrams in three turns. In a turn one of them sends all datagrams that it can send before it needs an
/// answer. Each turn takes 20 ms, and uses no radio.
pub(super) const REISSUE: Duration = Duration::from_millis(60);
const OF_CERTIFICATES: &str = "percent of certificates";
const NO_RANDOM_PART: &str =
    "peers that begin together send again together, because a timer of DTLS has no random part";
const ANSWERS: &str = "public_key_answers";
const EACH: &str = "per peer";
const REFUSED: &str = "alerts of the device; a ClientHello that comes again is refused again";
const PUBLIC_KEYS: &str = "a verification of the certificates and the signature of the device, and a signature";
