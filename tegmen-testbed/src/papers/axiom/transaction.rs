//! A case of the plan `axiom`: the first request to a group with its responses, and then a second request.

use super::{Effort, LISTENERS, Results, Scheme, deployment};
use crate::cost::{self, Costs};
use crate::deployment::{Group, Loss};
use crate::figure::Figure;
use crate::interval::{self, Mean};
use crate::mote::Milestone;
use crate::platform::{Energy, Platform};
use crate::scenario::{GroupRun, Noted, run_group};
use crate::sim::{Activity, Captured, Micros};

/// The parameters of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Case {
    pub(super) scheme: Scheme,
    pub(super) load: Load,
    /// Length of the tags in records of the group, in bytes.
    pub(super) tag: u8,
    /// True if the MAC layer acknowledges frames that are addressed to one node.
    pub(super) acknowledges: bool,
    /// True if listeners wait for a random time before they answer, as in the paper.
    pub(super) leisure: bool,
    pub(super) listeners: usize,
    /// The share of frames that each link loses, in percent.
    pub(super) loss: u8,
}

/// The payloads of a request and its response.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Load {
    /// Payloads that probably have the lengths of those in the paper (`plans/axiom.toml`).
    Paper,
    /// Payloads that switch a lamp: the request contains `on`, and the response is empty.
    Light,
}

impl Load {
    pub(super) const ALL: [Self; 2] = [Self::Paper, Self::Light];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Light => "light",
        }
    }
}

impl Case {
    /// Returns the case that repeats the experiment of the paper with this scheme, which is one of the compared
    /// protocols.
    pub(super) const fn paper(scheme: Scheme) -> Self {
        let load = Load::Paper;
        Self { scheme, load, tag: 8, acknowledges: true, leisure: true, listeners: LISTENERS, loss: 0 }
    }

    /// Sets the tag length of the case, if its scheme uses records of the group. Otherwise returns the case unchanged.
    const fn with_tag(self, tag: u8) -> Self {
        if self.scheme.protection().is_in_group() { Self { tag, ..self } } else { self }
    }

    /// Returns all cases of the plan `axiom`, without duplicates.
    pub(super) fn all(effort: Effort) -> Vec<Self> {
        let mut cases = Vec::new();
        for scheme in Scheme::ALL {
            let paper = Self::paper(scheme);
            for acknowledges in [true, false] {
                for (load, tag) in Load::ALL.into_iter().flat_map(|load| TAGS.map(|tag| (load, tag))) {
                    let case = Self { load, acknowledges, ..paper }.with_tag(tag);
                    cases.extend([case, Self { leisure: false, ..case }]);
                }
                cases.extend(LOSSES.iter().map(|loss| Self { acknowledges, loss: *loss, ..paper }));
            }
            cases.extend(effort.listeners.iter().map(|listeners| Self { listeners: *listeners, ..paper }));
        }
        cases.sort_unstable();
        cases.dedup();
        cases
    }

    pub(super) fn seeds(&self, effort: Effort) -> u64 {
        if self.listeners == LISTENERS { effort.seeds } else { effort.seeds_of_large }
    }

    /// Runs the case once, with two requests. The sessions are opened before the first request.
    pub(super) fn run(&self, seed: u64) -> Transaction {
        let mut deployment = deployment();
        deployment.network.nodes = Some(self.listeners);
        deployment.network.loss = Loss::Every(f64::from(self.loss) / 100.0);
        deployment.stack.acknowledgements = self.acknowledges;
        if self.load == Load::Light {
            [deployment.traffic.payload, deployment.traffic.response] = LIGHT;
        }
        let leisure_s = deployment.traffic.group.map_or(0.0, |group| group.leisure_s);
        // With more listeners the maximum wait is longer, so that the number of responses in a second is the same as
        // with three listeners (RFC 7252, section 8.2).
        let leisure_s = if self.leisure { leisure_s * self.listeners as f64 / LISTENERS as f64 } else { 0.0 };
        deployment.traffic.group = Some(Group { leisure_s, each: self.scheme.asks_each(), tag: self.tag });
        Transaction::of(self, &run_group(&deployment, self.scheme.protection(), seed))
    }
}

/// The cost of one period of a run. A run has three periods: the exchange of keys, the first request, and the second
/// request.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Part {
    pub(super) seconds: f64,
    pub(super) frames: f64,
    pub(super) bytes: f64,
    /// The energy of the sender, which is node 0.
    pub(super) sender: Energy,
    /// The mean energy of the listeners.
    pub(super) listener: Energy,
}

/// The result of one run.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Transaction {
    /// The duration of each handshake, in seconds.
    pub(super) handshakes: Vec<f64>,
    /// The cost of the keys: of the handshakes, or of the derivation of keys if the scheme has no handshakes.
    pub(super) keys: Part,
    /// The cost of the first request and its responses, without the cost of the keys; `None` if a response is missing.
    pub(super) exchange: Option<Part>,
    /// The cost of the second request and its responses; `None` if a response to either request is missing.
    pub(super) later: Option<Part>,
    /// The number of responses that arrived, and the number that would have arrived if each listener had answered both
    /// requests.
    pub(super) answered: (u64, u64),
    /// The frames, the bytes, and the energies of sender and listener in the whole run. They are known even if
    /// responses are missing.
    pub(super) total: Part,
    pub(super) sessions: u64,
    pub(super) handshake_datagrams: u64,
}

impl Transaction {
    fn of(case: &Case, run: &GroupRun) -> Self {
        let nothing = Noted {
            milestone: Milestone::Asked,
            begun: 0,
            at: 0,
            nodes: vec![(Activity::default(), 0, 0); case.listeners + 1],
        };
        let mut times = run.noted.iter();
        let asked = times.next().unwrap_or(&nothing);
        let mut before = asked.begun;
        let mut handshakes = Vec::new();
        let (mut parts, mut from) = (Vec::new(), (&nothing, asked.begun));
        let mut keys = None;
        for noted in times {
            match noted.milestone {
                Milestone::Asked => from.1 = noted.begun,
                Milestone::Opened => {
                    handshakes.push((noted.at - before) as f64 / 1e6);
                    before = noted.at;
                }
                Milestone::Connected => {
                    keys = Some(part(&run.frames, from, noted));
                    from = (noted, noted.at);
                }
                Milestone::Answered => {
                    parts.push(part(&run.frames, from, noted));
                    from = (noted, noted.at);
                }
            }
        }
        let asks = run.noted.iter().filter(|noted| noted.milestone == Milestone::Asked).count();
        // If the second request was made before the first request was answered, the costs of the two exchanges cannot
        // be separated.
        let is_first = run.noted.iter().rposition(|noted| noted.milestone == Milestone::Asked)
            > run.noted.iter().position(|noted| noted.milestone == Milestone::Answered);
        let mut parts = parts.into_iter();
        let mut exchange = parts.next().filter(|_| asks == 2 && is_first);
        let later = exchange.as_ref().and(parts.next());
        let keys = keys.unwrap_or_else(|| derived(case, exchange.as_mut()));
        let outcome = &run.outcome;
        let total = Part {
            seconds: 0.0,
            frames: outcome.frames as f64,
            bytes: outcome.bytes as f64,
            sender: run.sender,
            listener: outcome.energy,
        };
        Self {
            handshakes,
            keys,
            exchange,
            later,
            answered: (outcome.answered, outcome.made),
            total,
            sessions: outcome.sessions,
            handshake_datagrams: run.handshakes,
        }
    }

    /// Returns the cost of two periods together: the exchange (or derivation) of keys, and the first request with its
    /// responses. Returns `None` if a response to the first request is missing.
    pub(super) fn first(&self) -> Option<Part> {
        let Part { seconds, frames, bytes, sender, listener } = self.exchange.as_ref()?;
        Some(Part {
            seconds: self.keys.seconds + seconds,
            frames: self.keys.frames + frames,
            bytes: self.keys.bytes + bytes,
            sender: sum(&self.keys.sender, sender),
            listener: sum(&self.keys.listener, listener),
        })
    }
}

/// Returns the cost of a part of a run. A milestone is an event such as the end of the handshakes. The cost includes
/// all frames and energy between the milestones `from` and `to`. The duration is the time from `since` to `to`. `since`
/// is later than `from` if the node waits after the milestone `from` before it sends the next request.
fn part(frames: &[Captured], (from, since): (&Noted, Micros), to: &Noted) -> Part {
    // The acknowledgement of the last frame arrives within a millisecond (see `Noted`).
    let start = if from.at == 0 { 0 } else { from.begun + 1000 };
    let sent = frames.iter().filter(|frame| (start..to.begun + 1000).contains(&frame.at));
    let (count, bytes) = sent.fold((0, 0), |(count, bytes), frame| (count + 1, bytes + frame.psdu.len()));
    let platform = platform();
    let energies: Vec<Energy> = to
        .nodes
        .iter()
        .zip(&from.nodes)
        .map(|((now, cpu, _), (then, cpu_then, _))| {
            let activity = Activity {
                sending: now.sending - then.sending,
                receiving: now.receiving - then.receiving,
                overhearing: now.overhearing - then.overhearing,
                ..*now
            };
            platform.energy(&activity, cpu - cpu_then, to.at - since)
        })
        .collect();
    let n = energies.len().saturating_sub(1).max(1) as f64;
    let listeners = energies.iter().skip(1).fold(Energy::default(), |all, one| sum(&all, one));
    Part {
        seconds: (to.at - since) as f64 / 1e6,
        frames: f64::from(count),
        bytes: bytes as f64,
        sender: energies.first().copied().unwrap_or_default(),
        listener: scaled(&listeners, 1.0 / n),
    }
}

/// Moves the energy for the derivation of Axiom's keys out of the cost of the first exchange: subtracts this energy
/// from `exchange`, and returns it. A node derives the keys during the first exchange. For any other scheme returns
/// zero.
fn derived(case: &Case, exchange: Option<&mut Part>) -> Part {
    let mut keys = Part::default();
    let Some(exchange) = exchange.filter(|_| case.scheme == Scheme::MulMul) else { return keys };
    let (platform, deployment) = (platform(), deployment());
    // The core derives the key of a listener twice: first to open the listener's first response, and then to store the
    // key with the state of the listener.
    for (times, of_keys, of_exchange) in [
        (2 * case.listeners as u64, &mut keys.sender, &mut exchange.sender),
        (1, &mut keys.listener, &mut exchange.listener),
    ] {
        let instructions = times * Costs::of_budget().derive;
        let micros = cost::micros(instructions, deployment.mote.cycles_per_instruction, platform.clock_hz);
        of_keys.cpu_uj = platform.cpu_active_mw * micros as f64 / 1e3;
        of_exchange.cpu_uj -= of_keys.cpu_uj;
    }
    keys
}

fn sum(one: &Energy, other: &Energy) -> Energy {
    Energy {
        cpu_uj: one.cpu_uj + other.cpu_uj,
        tx_uj: one.tx_uj + other.tx_uj,
        rx_uj: one.rx_uj + other.rx_uj,
        overheard_uj: one.overheard_uj + other.overheard_uj,
        rx_always_on_uj: one.rx_always_on_uj + other.rx_always_on_uj,
    }
}

fn scaled(energy: &Energy, by: f64) -> Energy {
    Energy {
        cpu_uj: energy.cpu_uj * by,
        tx_uj: energy.tx_uj * by,
        rx_uj: energy.rx_uj * by,
        overheard_uj: energy.overheard_uj * by,
        rx_always_on_uj: energy.rx_always_on_uj * by,
    }
}

fn platform() -> Platform {
    Platform::find("cc2538").expect("a platform of the file")
}

/// A quantity for which the other protocols (schemes) are compared with Axiom, and the minimum ratio that the project
/// aims for.
pub(super) struct Quantity {
    pub(super) name: &'static str,
    pub(super) unit: &'static str,
    /// The minimum ratio that the project aims for: the value (such as the number of frames) with a scheme that needs
    /// handshakes, divided by the value with Axiom.
    pub(super) aim: f64,
    pub(super) of: fn(&Part) -> f64,
}

pub(super) const QUANTITIES: [Quantity; 4] = [
    Quantity { name: "frames", unit: "frames", aim: 5.0, of: |part| part.frames },
    Quantity { name: "bytes", unit: "bytes", aim: 8.0, of: |part| part.bytes },
    Quantity { name: "sender_energy", unit: "mJ", aim: 6.5, of: |part| part.sender.radio_by_frame() / 1e3 },
    Quantity { name: "listener_energy", unit: "mJ", aim: 4.5, of: |part| part.listener.radio_by_frame() / 1e3 },
];

impl Results {
    /// Calls `of` with the result of each run of a case. Returns the mean of the returned numbers, and the count of
    /// these numbers.
    pub(super) fn mean(&self, case: Case, of: impl Fn(&Transaction) -> Option<f64>) -> (Mean, u64) {
        let values: Vec<f64> = self.of(case).iter().filter_map(of).collect();
        (interval::mean(&values), values.len() as u64)
    }

    /// Makes a figure of a case: the mean of the numbers that `of` returns for the runs of the case. Returns `None` if
    /// `of` returns no number.
    pub(super) fn figure(
        &self,
        (id, case): (String, Case),
        paper: Option<f64>,
        unit: &'static str,
        why: &str,
        of: impl Fn(&Transaction) -> Option<f64>,
    ) -> Option<Figure> {
        let (mean, n) = self.mean(case, of);
        (n > 0).then(|| Figure::shown(id, paper, mean.mean, unit, why).sampled(n, self.of(case).len() as u64, &mean))
    }
}

/// Returns the figures of the first and of the second request for every scheme, and the ratios of the schemes to Axiom.
pub(super) fn figures(results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for load in Load::ALL {
        for (acknowledges, name) in ACKNOWLEDGES {
            for tag in TAGS {
                let of = |scheme| Case { load, acknowledges, ..Case::paper(scheme) }.with_tag(tag);
                let group = format!("{}/{name}/tag_{tag}", load.name());
                let cases = Scheme::ALL.map(of).into_iter().filter(|case| case.tag == tag);
                figures.extend(cases.flat_map(|case| amounts(results, &group, case)));
                for other in Scheme::WITH_HANDSHAKES {
                    figures.extend(ratios(results, &group, of(other), of(Scheme::MulMul)));
                }
            }
        }
    }
    figures.push(no_handshake(results));
    figures
}

/// Returns the frames, bytes, energies and times of the scheme of `case`.
fn amounts(results: &Results, group: &str, case: Case) -> Vec<Figure> {
    let name = case.scheme.name();
    let why = "runs in which each listener answered; energy of processor and radio, which receives for frames alone";
    let mut figures = Vec::new();
    for (which, part) in PARTS {
        for Quantity { name: quantity, unit, of, .. } in QUANTITIES {
            let id = format!("{which}/{group}/{name}/{quantity}");
            figures.extend(results.figure((id, case), None, unit, why, |run| part(run).as_ref().map(of)));
        }
        for (role, of) in ROLES {
            let id = format!("{which}/{group}/{name}/{role}_energy_always_on");
            let millijoules = |run: &Transaction| part(run).map(|part| of(&part).radio_always_on() / 1e3);
            let why =
                "runs in which each listener answered; energy of processor and radio, which receives all the time";
            figures.extend(results.figure((id, case), None, "mJ", why, millijoules));
        }
        for (leisure, with) in [(true, "time"), (false, "time_without_leisure")] {
            let (id, case) = (format!("{which}/{group}/{name}/{with}"), Case { leisure, ..case });
            figures.extend(results.figure((id, case), None, "s", why, |run| part(run).map(|part| part.seconds)));
        }
    }
    figures
}

/// Returns one ratio for each of [`QUANTITIES`]: the cost in the case `other` (a scheme that needs handshakes), divided
/// by the cost in the case `axiom`. Each cost is for the exchange of keys and the first request.
fn ratios(results: &Results, group: &str, other: Case, axiom: Case) -> Vec<Figure> {
    let amount = |case, of: fn(&Part) -> f64| results.mean(case, |run| run.first().as_ref().map(of));
    QUANTITIES
        .iter()
        .map(|Quantity { name, aim, of, .. }| {
            let ratio =
                |change: fn(Case) -> Case| amount(change(other), *of).0.mean / amount(change(axiom), *of).0.mean;
            let id = format!("ratio/{group}/{name}/{}_over_mul_mul", other.scheme.name());
            let (ours, n) = (ratio(|case| case), amount(other, *of).1);
            let figure = Figure::at_least(id, None, ours, *aim, "times", &causes(axiom, ratio));
            figure.sampled(n, results.of(other).len() as u64, &Mean { mean: ours, interval: None })
        })
        .collect()
}

/// Describes why the ratio of another scheme's cost to Axiom's cost is less than the aim of the project. A reason is a
/// parameter of the case `axiom`, such as the length of the tags. For each reason the text contains the ratio that
/// another value of this parameter gives. `ratio` computes it.
fn causes(axiom: Case, ratio: impl Fn(fn(Case) -> Case) -> f64) -> String {
    let mut causes = Vec::new();
    if axiom.load == Load::Paper {
        let ratio = ratio(|case| Case { load: Load::Light, ..case });
        let traffic = deployment().traffic;
        causes.push(format!(
            "{} and {} bytes of payload in request and response are the same in all schemes, and with {} and {} bytes it is {ratio:.1} \
             times",
            traffic.payload, traffic.response, LIGHT[0], LIGHT[1]
        ));
    }
    if axiom.tag != TAGS[0] {
        let ratio = ratio(|case| case.with_tag(TAGS[0]));
        causes.push(format!("with tags of {} bytes, as in the paper, it is {ratio:.1} times", TAGS[0]));
    }
    causes.join("; ")
}

fn no_handshake(results: &Results) -> Figure {
    let axiom = || results.0.iter().filter(|(case, _)| case.scheme == Scheme::MulMul).flat_map(|(_, runs)| runs);
    let none = axiom().all(|run| run.handshake_datagrams == 0 && run.sessions == 0);
    let what = format!("no datagram of a handshake and no session in {} runs of Axiom", axiom().count());
    Figure::holds("handshakes/mul_mul/none".into(), none, &what).of(crate::figure::Source::Simulated)
}

/// A function that selects the energy of the sender or of a listener.
pub(super) type OfRole = fn(&Part) -> Energy;
pub(super) const ROLES: [(&str, OfRole); 2] = [("sender", |part| part.sender), ("listener", |part| part.listener)];

/// A function that selects one period of a run. The cost of this period is shown.
type Shown = fn(&Transaction) -> Option<Part>;
const PARTS: [(&str, Shown); 2] = [("first", Transaction::first), ("later", |run| run.later.clone())];
pub(super) const ACKNOWLEDGES: [(bool, &str); 2] = [(true, "acknowledged"), (false, "unacknowledged")];
/// Payload lengths of the request and of the response with [`Load::Light`], in bytes.
const LIGHT: [usize; 2] = [2, 0];
/// Lengths of the tags in records of the group, in bytes: first the length in the paper, then Tegmen's default.
const TAGS: [u8; 2] = [8, 16];
/// The shares of frames that links lose in the cases with losses, in percent.
pub(super) const LOSSES: [u8; 3] = [5, 10, 20];
