//! Results for cases that the paper on Axiom does not have: groups that are smaller or larger than the group in the
//! paper, links that lose frames, and members that join and leave.

use super::controller::{Rekeying, in_frames};
use super::transaction::{ACKNOWLEDGES, Case, LOSSES, QUANTITIES, Quantity, Transaction};
use super::unicast::Unicast;
use super::{Effort, LISTENERS, Results, Scheme};
use crate::figure::{Figure, Source};
use crate::interval::{self, Mean};

pub(super) fn figures(results: &Results, rekeying: &Rekeying, unicast: &Unicast, effort: Effort) -> Vec<Figure> {
    let mut figures = sizes(results, effort);
    figures.extend(losses(results));
    figures.extend(churn(results, rekeying, unicast));
    figures
}

/// Returns the figures for each size of the group. The sender counts as a member.
fn sizes(results: &Results, effort: Effort) -> Vec<Figure> {
    let mut figures = Vec::new();
    let why = "first transaction; the leisure grows with the group, and a receiver hears each frame of the star";
    for listeners in effort.listeners {
        let of = |scheme| Case { listeners: *listeners, ..Case::paper(scheme) };
        let members = listeners + 1;
        for scheme in Scheme::ALL {
            let (case, name) = (of(scheme), scheme.name());
            figures.extend(answered(results, format!("size/{members}/{name}/answered"), case, why));
            for Quantity { name: quantity, unit, of, .. } in QUANTITIES {
                let id = format!("size/{members}/{name}/{quantity}");
                figures.extend(results.figure((id, case), None, unit, why, |run| run.first().as_ref().map(of)));
            }
            let id = format!("size/{members}/{name}/time");
            figures.extend(results.figure((id, case), None, "s", why, |run| run.first().map(|part| part.seconds)));
        }
        for other in Scheme::WITH_HANDSHAKES {
            for Quantity { name: quantity, of: amount, .. } in QUANTITIES {
                let mean = |scheme| results.mean(of(scheme), |run| run.first().as_ref().map(amount));
                let ((theirs, n), (ours, m)) = (mean(other), mean(Scheme::MulMul));
                let id = format!("size/{members}/{quantity}/{}_over_mul_mul", other.name());
                if n > 0 && m > 0 {
                    let seeds = results.of(of(other)).len() as u64;
                    let ratio = Mean { mean: theirs.mean / ours.mean, interval: None };
                    figures.push(Figure::shown(id, None, ratio.mean, "times", why).sampled(n, seeds, &ratio));
                }
            }
        }
    }
    figures
}

/// Returns the figures for each share of lost frames.
fn losses(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    let why = "two requests to three listeners; nothing repeats a request to a group";
    for (acknowledges, acknowledged) in ACKNOWLEDGES {
        for loss in LOSSES {
            for scheme in Scheme::ALL {
                let case = Case { acknowledges, loss, ..Case::paper(scheme) };
                let id = |what: &str| format!("loss/{acknowledged}/{loss}_percent/{}/{what}", scheme.name());
                figures.extend(answered(results, id("answered"), case, why));
                for Quantity { name, unit, of, .. } in QUANTITIES {
                    let total = |run: &Transaction| Some(of(&run.total));
                    figures.extend(results.figure((id(name), case), None, unit, why, total));
                }
            }
        }
    }
    figures
}

/// Returns a figure with the percentage of responses that arrived; `None` if no run of the case exists.
fn answered(results: &Results, id: String, case: Case, why: &str) -> Option<Figure> {
    let runs = results.of(case);
    let share = interval::share(&runs.iter().map(|run| run.answered).collect::<Vec<_>>());
    let n = runs.iter().map(|run| run.answered.1).sum();
    let percent = Mean { mean: 100.0 * share.mean, interval: share.interval.map(|bounds| bounds.map(|b| 100.0 * b)) };
    (n > 0).then(|| Figure::shown(id, None, percent.mean, "percent", why).sampled(n, runs.len() as u64, &percent))
}

/// Numbers of frames on the air when a listener joins a group, and when a listener is evicted.
pub(super) struct Churn {
    /// Number of frames of a handshake between a sender and the listener.
    handshake: f64,
    /// Number of frames until the new listener has the keys of the group: the frames of a handshake with the
    /// controller, of a request and its answer, and of the group messages that begin the next epoch.
    join: f64,
    /// Number of frames of the messages that begin an epoch after an eviction. These messages go to the group.
    evict: f64,
}

impl Churn {
    pub(super) fn of(results: &Results, rekeying: &Rekeying, unicast: &Unicast) -> Self {
        let keys = results.mean(Case::paper(Scheme::UniUni), |run| Some(run.keys.frames)).0.mean;
        let session = unicast.joining().map_or(f64::NAN, |flow| flow.frames.mean);
        let in_frames = |messages: &[Vec<u8>]| messages.iter().map(|message| in_frames(message)).sum::<usize>() as f64;
        Self {
            handshake: keys / LISTENERS as f64,
            join: session + in_frames(&rekeying.joining.messages),
            evict: rekeying.evictions.first().map_or(0.0, |eviction| in_frames(&eviction.key_tree.messages)),
        }
    }

    pub(super) fn joins(&self, scheme: Scheme, senders: usize) -> f64 {
        let handshakes = if scheme.has_handshakes() { senders as f64 * self.handshake } else { 0.0 };
        handshakes + if scheme.protection().is_in_group() { self.join } else { 0.0 }
    }

    pub(super) fn evicts(&self, scheme: Scheme) -> f64 {
        if scheme.protection().is_in_group() { self.evict } else { 0.0 }
    }
}

/// Returns the figures of members that join and leave. The paper does not count the messages of the controller.
fn churn(results: &Results, rekeying: &Rekeying, unicast: &Unicast) -> Vec<Figure> {
    let churn = Churn::of(results, rekeying, unicast);
    let joins = "handshakes with the senders; with keys of a group also the session with the controller and the messages of the next epoch";
    let evicts = "the messages of the next epoch, once; a sender of DTLS Uni-Uni forgets the session";
    let runs = unicast.joining().map_or(0, |flow| flow.runs);
    let figure = |id: String, frames: f64, why: &str| {
        let mean = Mean { mean: frames, interval: None };
        Figure::shown(id, None, frames, "frames", why).sampled(runs, runs, &mean)
    };
    let mut figures = Vec::new();
    for scheme in [Scheme::UniUni, Scheme::MulUni, Scheme::MulMul] {
        let name = scheme.name();
        for senders in SENDERS {
            let id = format!("churn/a_listener_joins/{name}/{senders}_senders");
            figures.push(figure(id, churn.joins(scheme, senders), joins));
        }
        let id = format!("churn/a_listener_is_evicted/{name}");
        figures.push(Figure::shown(id, None, churn.evicts(scheme), "frames", evicts).of(Source::Built));
    }
    figures
}

pub(super) const SENDERS: [usize; 5] = [1, 2, 3, 4, 8];
