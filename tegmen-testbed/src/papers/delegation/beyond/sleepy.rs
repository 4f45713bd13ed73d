//! Simulates a device whose radio sleeps. The device asks its parent for packets after each interval. The server of the
//! device is reached through the parent. Every 10 minutes on average, the server opens a session with the device and
//! sends a request. The request contains the state of a session with its ticket, or a revocation.

use super::super::PERCENT;
use super::{Case, Effort, Job, Measured, Runs, deployment, seconds, seeds};
use crate::deployment::Group;
use crate::figure::Figure;
use crate::mote::Protection;
use crate::platform::Platform;
use crate::scenario;
use tegmen_delegation::{LONGEST_TICKET, STATE_LEN};

/// Returns a case for each kind of request and each interval.
pub(super) fn cases(effort: Effort) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, interval_s) in INTERVALS {
        for (what, payload) in REQUESTS {
            let job = |seed: u64| -> Job { Box::new(move || run(interval_s, payload, seed)) };
            let id = format!("sleepy/{name}/{what}");
            let has_energy = what == REVOCATION;
            cases.push(Case {
                jobs: seeds(effort.seeds).map(job).collect(),
                figures: Box::new(move |runs| figures(&id, has_energy, interval_s, runs)),
            });
        }
    }
    cases
}

fn run(interval_s: f64, payload: usize, seed: u64) -> Measured {
    let mut deployment = deployment();
    deployment.network.nodes = Some(1);
    deployment.mote.polls_s = interval_s;
    deployment.traffic.group = Some(Group { leisure_s: 0.0, each: true, tag: 16 });
    (deployment.traffic.period_s, deployment.traffic.readings) = (PERIOD_S, REQUESTS_OF_A_RUN);
    deployment.traffic.payload = payload;
    let outcome = scenario::run_group(&deployment, Protection::CoapDtls, seed).outcome;
    let z1 = Platform::find("z1").expect("a platform of the file");
    let asleep_uj = deployment.mote.sleep_ua * z1.volts * seconds(outcome.elapsed);
    let days = seconds(outcome.elapsed) / 86_400.0;
    let mut measured = vec![
        (DELIVERED, outcome.answered as f64 / outcome.made as f64 * 100.0),
        ("energy", (outcome.energy.radio_always_on() + asleep_uj) / 1e6 / days),
    ];
    if let (Some(median), Some(longest)) = (outcome.delays.get(outcome.delays.len() / 2), outcome.delays.last()) {
        measured.extend([("median", seconds(*median)), ("longest", seconds(*longest))]);
    }
    measured
}

fn figures(name: &str, has_energy: bool, interval_s: f64, runs: &Runs) -> Vec<Figure> {
    let n = runs.seeds() * u64::from(REQUESTS_OF_A_RUN);
    let mut figures = match interval_s <= REACHABLE_S {
        true => vec![runs.complete(name, n, DELIVERED)],
        false => runs.shown(name, n, &[(DELIVERED, PERCENT, TOO_LONG)]),
    };
    figures.extend(runs.shown(
        name,
        n,
        &[
            ("median", "s", "from the request of the server to the response of the device, where there is one"),
            ("longest", "s", "the longest of a run of six hours"),
        ],
    ));
    if has_energy {
        figures.extend(runs.shown(name, n, &[("energy", "J per day", ENERGY)]));
    }
    figures
}

/// The intervals, in seconds, at which the device asks its parent for packets, each with its name. The interval 0 means
/// that the radio is always on.
const INTERVALS: [(&str, f64); 5] =
    [("always_on", 0.0), ("1_s", 1.0), ("10_s", 10.0), ("60_s", 60.0), ("300_s", 300.0)];
/// The payload length of each kind of request in bytes. A request to `/dlg/ctx` contains flags, the state of a session
/// and its ticket. A request to `/dlg/rl` contains the connection whose sessions are revoked.
const REQUESTS: [(&str, usize); 2] = [("context", 1 + STATE_LEN + LONGEST_TICKET), (REVOCATION, 4)];
const DELIVERED: &str = "delivered";
const REVOCATION: &str = "revocation";
/// The mean time between two requests of the server to the device, in seconds.
const PERIOD_S: f64 = 600.0;
const REQUESTS_OF_A_RUN: u32 = 36;
/// The device asks its parent for packets at an interval. This is the longest interval, in seconds, with which the
/// device always answers the server's first request in time. With longer intervals a handshake can need more than 60 s,
/// and the server then gives the handshake up.
const REACHABLE_S: f64 = 10.0;
const TOO_LONG: &str = "the server gives a handshake up after 60 s, and a request after 45 to 93 s, and tries again in its next conversation";
const ENERGY: &str = "of a Z1 with a conversation every 10 minutes: processor, radio while it is on, and 5 uA of sleep";
