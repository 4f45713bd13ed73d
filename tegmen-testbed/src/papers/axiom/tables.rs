//! Tables I and II, and figures 10 to 12 of the paper. As in the paper, there are three listeners, the MAC layer
//! acknowledges frames, and tags have 8 bytes.

use super::transaction::{Case, Part, ROLES, Transaction};
use super::{Longer, Paper, Results, Scheme};
use crate::figure::Figure;
use crate::platform::Energy;

pub(super) fn figures(paper: &Paper, results: &Results) -> Vec<Figure> {
    let mut figures = table1(paper, results);
    figures.extend(figure10(paper, results));
    figures.extend(table2(paper, results));
    figures.extend(figures11and12(paper, results));
    figures
}

/// Returns the figures of table I: the duration of each handshake and of an exchange, in seconds.
fn table1(paper: &Paper, results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for scheme in Scheme::ALL {
        let (case, name) = (Case::paper(scheme), scheme.name());
        let printed = paper.table1.get(name);
        if scheme.has_handshakes() {
            for place in 0..case.listeners {
                let id = format!("table1/{name}/handshake_{}", place + 1);
                let paper = printed.and_then(|times| times.handshakes.get(place)).copied();
                let time = |run: &Transaction| run.handshakes.get(place).copied();
                figures.extend(results.figure((id, case), paper, "s", HANDSHAKE, time));
            }
        }
        let id = format!("table1/{name}/exchange");
        let time = |run: &Transaction| run.exchange.as_ref().map(|part| part.seconds);
        figures.extend(results.figure((id, case), printed.map(|times| times.exchange), "s", EXCHANGE, time));
    }
    figures
}

/// Returns the values of figure 10: the duration of the first transaction in seconds. There are values for listeners
/// that wait before they answer, as in the paper, and for listeners that do not wait.
fn figure10(paper: &Paper, results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    let seconds = |run: &Transaction| run.first().map(|part| part.seconds);
    for (leisure, which) in [(true, "with_leisure"), (false, "without_leisure")] {
        let case = |scheme| Case { leisure, ..Case::paper(scheme) };
        for scheme in Scheme::ALL {
            let id = format!("figure10/{which}/{}", scheme.name());
            let printed = paper.table1.get(scheme.name()).map(|times| times.all()).filter(|_| leisure);
            figures.extend(results.figure((id, case(scheme)), printed, "s", EXCHANGE, seconds));
        }
        let Longer { uni_uni_over_mul_mul, mul_uni_over_mul_mul, coap_mul_over_coap_uni } = paper.figure10;
        for (longer, shorter, printed) in [
            (Scheme::UniUni, Scheme::MulMul, uni_uni_over_mul_mul),
            (Scheme::MulUni, Scheme::MulMul, mul_uni_over_mul_mul),
            (Scheme::CoapMul, Scheme::CoapUni, coap_mul_over_coap_uni),
        ] {
            let mean = |scheme| results.mean(case(scheme), seconds).0.mean;
            let id = format!("figure10/{which}/{}_over_{}", longer.name(), shorter.name());
            let ratio = mean(longer) / mean(shorter);
            let why = "a handshake takes a fraction of the paper's time here, and the leisure is the same";
            figures.push(shown(results, (id, case(longer)), Some(printed).filter(|_| leisure), ratio, "times", why));
        }
    }
    figures
}

/// Returns the figures of table II: the energy of the processor, of sending and of receiving, in millijoules. Each
/// energy is given for the exchange of keys, and for the first request with its responses.
fn table2(paper: &Paper, results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (role, of_role) in ROLES {
        for scheme in Scheme::ALL {
            let (case, name) = (Case::paper(scheme), scheme.name());
            let printed = &paper.table2[role][name];
            for (place, (what, of)) in ENERGIES.into_iter().enumerate() {
                let id = |part: &str| format!("table2/{role}/{name}/{part}/{what}");
                let millijoules = |part: &Part| of(&of_role(part)) / 1e3;
                if let Some(keys) = printed.keys {
                    let of_keys = |run: &Transaction| run.exchange.is_some().then(|| millijoules(&run.keys));
                    figures.extend(results.figure((id("keys"), case), Some(keys[place]), "mJ", ENERGY, of_keys));
                }
                let of_exchange = |run: &Transaction| run.exchange.as_ref().map(millijoules);
                let printed = Some(printed.exchange[place]);
                figures.extend(results.figure((id("exchange"), case), printed, "mJ", ENERGY, of_exchange));
            }
        }
    }
    figures
}

/// Returns the values of figures 11 and 12: the energy of the first transaction in millijoules, at the sender and at a
/// listener.
fn figures11and12(paper: &Paper, results: &Results) -> Vec<Figure> {
    let mut figures = Vec::new();
    for ((role, of_role), figure) in ROLES.into_iter().zip(["figure11", "figure12"]) {
        let millijoules = |run: &Transaction| run.first().map(|part| of_role(&part).radio_by_frame() / 1e3);
        for scheme in Scheme::ALL {
            let id = format!("{figure}/{}", scheme.name());
            let printed = Some(paper.table2[role][scheme.name()].all());
            figures.extend(results.figure((id, Case::paper(scheme)), printed, "mJ", ENERGY, millijoules));
        }
        for other in Scheme::WITH_HANDSHAKES {
            let mean = |scheme| results.mean(Case::paper(scheme), millijoules).0.mean;
            let id = format!("{figure}/{}_over_mul_mul", other.name());
            let ratio = mean(other) / mean(Scheme::MulMul);
            let printed = Some(paper.figures11and12[role]);
            figures.push(shown(results, (id, Case::paper(other)), printed, ratio, "times", ENERGY));
        }
    }
    figures
}

fn shown(
    results: &Results,
    (id, case): (String, Case),
    paper: Option<f64>,
    ours: f64,
    unit: &'static str,
    why: &str,
) -> Figure {
    let seeds = results.of(case).len() as u64;
    let mean = crate::interval::Mean { mean: ours, interval: None };
    Figure::shown(id, paper, ours, unit, why).sampled(seeds, seeds, &mean)
}

type OfEnergy = fn(&Energy) -> f64;
const ENERGIES: [(&str, OfEnergy); 3] =
    [("cpu", |energy| energy.cpu_uj), ("tx", |energy| energy.tx_uj), ("rx", |energy| energy.rx_uj)];
const HANDSHAKE: &str = "a handshake takes less time here; the paper's sender sets up contexts in the first one";
const EXCHANGE: &str =
    "with the time of the operating system that was set on plain CoAP; the paper's clock counts 8 ms";
const ENERGY: &str = "the radio sends acknowledgements, which the paper does not count, and receives for frames alone";
