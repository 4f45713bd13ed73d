//! The conclusions of the paper, with the verdict whether they hold for Tegmen. Each verdict names the group sizes or
//! the numbers of exchanges for which the conclusion holds.

use super::controller::{Eviction, Rekeying};
use super::growth::{Churn, SENDERS};
use super::transaction::{Case, Load, Part, QUANTITIES, ROLES};
use super::unicast::Unicast;
use super::{Effort, LISTENERS, Paper, Results, Scheme, state};
use crate::figure::{Figure, Source, all_of};
use crate::platform::Energy;

pub(super) fn figures(
    paper: &Paper,
    (rekeying, unicast): (&Rekeying, &Unicast),
    results: &Results,
    effort: Effort,
) -> Vec<Figure> {
    let view = View { results, effort };
    let churn = Churn::of(results, rekeying, unicast);
    let mut figures = vec![
        view.longer_with_leisure(),
        view.five_times_faster(paper),
        view.no_cost_of_keys(),
        view.as_good_as_without_protection(),
        view.comparable_from_then_on(),
        view.overhead_is_independent_of_size(),
    ];
    figures.extend(["sender", "listener"].map(|role| view.less_energy(paper, role)));
    figures.extend(view.advantage_by_size());
    figures.extend(view.advantage_by_exchanges());
    figures.extend(churn_is_free(&churn));
    figures.push(rekeying_scales(rekeying));
    figures.push(state::least_memory());
    all_of(Source::Simulated, figures).collect()
}

struct View<'r> {
    results: &'r Results,
    effort: Effort,
}

impl View<'_> {
    fn first(&self, case: Case, of: impl Fn(&Part) -> f64) -> f64 {
        self.results.mean(case, |run| run.first().as_ref().map(&of)).0.mean
    }

    fn later(&self, case: Case, of: impl Fn(&Part) -> f64) -> f64 {
        self.results.mean(case, |run| run.later.as_ref().map(&of)).0.mean
    }

    fn seconds(&self, scheme: Scheme, leisure: bool) -> f64 {
        self.first(Case { leisure, ..Case::paper(scheme) }, |part| part.seconds)
    }

    fn longer_with_leisure(&self) -> Figure {
        let ratio = |leisure| self.seconds(Scheme::CoapMul, leisure) / self.seconds(Scheme::CoapUni, leisure);
        let what = format!(
            "CoAP Mul takes {:.1} times the time of CoAP Uni with the leisure, and {:.1} times without",
            ratio(true),
            ratio(false)
        );
        Figure::conclusion("conclusion/coap_mul_takes_longer_with_leisure".into(), ratio(true) > 2.0, &what)
    }

    fn five_times_faster(&self, paper: &Paper) -> Figure {
        let ratio = |leisure| self.seconds(Scheme::UniUni, leisure) / self.seconds(Scheme::MulMul, leisure);
        let what = format!(
            "a first transaction takes {:.1} times as long with DTLS Uni-Uni as with Axiom with the leisure, and {:.1} times without: \
             handshakes are short here",
            ratio(true),
            ratio(false)
        );
        let holds = ratio(true) >= paper.figure10.uni_uni_over_mul_mul;
        Figure::conclusion("conclusion/axiom_is_five_times_faster".into(), holds, &what)
    }

    /// Checks whether Axiom reduces the energy of the first transaction by the factor of the paper. The ratios are
    /// rounded as in the paper.
    fn less_energy(&self, paper: &Paper, role: &str) -> Figure {
        let (_, of_role) = ROLES.into_iter().find(|(name, _)| *name == role).expect("a role");
        let ratio = |listeners, load, of: fn(&Energy) -> f64| {
            let case = |scheme| Case { listeners, load, ..Case::paper(scheme) };
            let energy = |scheme| self.first(case(scheme), |part| of(&of_role(part)));
            Scheme::WITH_HANDSHAKES.map(|other| energy(other) / energy(Scheme::MulMul))
        };
        let printed = paper.figures11and12[role];
        let reaches = |ratios: [f64; 2]| ratios.iter().all(|ratio| ratio.round() >= printed);
        let reached = |listeners: &&usize| reaches(ratio(**listeners, Load::Paper, Energy::radio_by_frame));
        // The smallest group from which on all groups reach the factor.
        let from = self.effort.listeners.iter().rev().take_while(reached).last();
        let from = from.map_or("in no size of group".into(), |listeners| format!("from {} members on", listeners + 1));
        let [ours, light] = Load::ALL.map(|load| ratio(LISTENERS, load, Energy::radio_by_frame));
        let always_on = ratio(LISTENERS, Load::Paper, Energy::radio_always_on);
        let what = format!(
            "against Uni-Uni and Mul-Uni Axiom takes {:.1} and {:.1} times less energy of the {role} ({printed} in the paper), \
             which is reached {from}; with the short payload {:.1} and {:.1} times, with a radio that is always on {:.1} and {:.1} times",
            ours[0], ours[1], light[0], light[1], always_on[0], always_on[1]
        );
        Figure::conclusion(format!("conclusion/less_energy_at_the_{role}"), reaches(ours), &what)
    }

    fn no_cost_of_keys(&self) -> Figure {
        let case = Case::paper(Scheme::MulMul);
        let share = |of: fn(&Part) -> f64| {
            100.0 * self.results.mean(case, |run| Some(of(&run.keys))).0.mean / self.first(case, of)
        };
        let (sender, listener) =
            (share(|part| part.sender.radio_by_frame()), share(|part| part.listener.radio_by_frame()));
        let what = format!(
            "keys are {sender:.0} % of the energy of the sender and {listener:.0} % of a listener's in the first transaction"
        );
        Figure::conclusion("conclusion/keys_of_axiom_are_cheap".into(), sender.max(listener) < 20.0, &what)
    }

    fn as_good_as_without_protection(&self) -> Figure {
        let energy = |scheme, of: fn(&Part) -> f64| self.later(Case::paper(scheme), of);
        let more = |of: fn(&Part) -> f64| 100.0 * (energy(Scheme::MulMul, of) / energy(Scheme::CoapMul, of) - 1.0);
        let (sender, listener) =
            (more(|part| part.sender.radio_by_frame()), more(|part| part.listener.radio_by_frame()));
        let what = format!(
            "an exchange takes {sender:.0} % more energy of the sender than CoAP Mul, and {listener:.0} % more of a listener"
        );
        Figure::conclusion(
            "conclusion/axiom_is_comparable_to_plain_multicast".into(),
            sender.max(listener) < 50.0,
            &what,
        )
    }

    fn comparable_from_then_on(&self) -> Figure {
        let ratio = |of: fn(&Part) -> f64| {
            self.later(Case::paper(Scheme::MulUni), of) / self.later(Case::paper(Scheme::MulMul), of)
        };
        let ratios = QUANTITIES.map(|quantity| ratio(quantity.of));
        let what = format!(
            "from the second exchange on DTLS Mul-Uni takes {:.2} times the frames, {:.2} times the bytes and {:.2} times the energy of the sender of Axiom",
            ratios[0], ratios[1], ratios[2]
        );
        let holds = ratios.iter().all(|ratio| (0.95..1.05).contains(ratio));
        Figure::conclusion("conclusion/mul_uni_is_comparable_after_the_first".into(), holds, &what)
    }

    fn overhead_is_independent_of_size(&self) -> Figure {
        let of = |scheme, listeners| {
            let case = Case { listeners, ..Case::paper(scheme) };
            self.later(case, |part| part.frames)
        };
        let complete =
            |listeners: &&usize| of(Scheme::MulMul, **listeners).is_finite() && of(Scheme::CoapMul, **listeners) > 0.0;
        let sizes: Vec<usize> = self.effort.listeners.iter().filter(complete).copied().collect();
        let most = sizes
            .iter()
            .map(|listeners| of(Scheme::MulMul, *listeners) / of(Scheme::CoapMul, *listeners))
            .fold(0.0, f64::max);
        let what = format!(
            "Axiom needs at most {most:.2} times the frames of CoAP Mul in groups of {} to {} members",
            first(&sizes) + 1,
            last(&sizes) + 1
        );
        Figure::conclusion("conclusion/overhead_is_independent_of_the_size".into(), most < 1.1, &what)
    }

    /// Checks whether Axiom needs fewer frames, fewer bytes and less energy than each scheme with handshakes, in groups
    /// of all sizes. Each verdict contains the ratios in the smallest and in the largest group.
    fn advantage_by_size(&self) -> Vec<Figure> {
        let ratio = |listeners, other, of: fn(&Part) -> f64| {
            let case = |scheme| Case { listeners, ..Case::paper(scheme) };
            self.first(case(other), of) / self.first(case(Scheme::MulMul), of)
        };
        Scheme::WITH_HANDSHAKES
            .iter()
            .flat_map(|other| QUANTITIES.iter().map(move |quantity| (*other, quantity)))
            .map(|(other, quantity)| {
                let ratios: Vec<(usize, f64)> = self
                    .effort
                    .listeners
                    .iter()
                    .map(|listeners| (listeners + 1, ratio(*listeners, other, quantity.of)))
                    .filter(|(_, ratio)| ratio.is_finite())
                    .collect();
                let [(least, low), (most, high)] =
                    [ratios.first(), ratios.last()].map(|end| end.copied().unwrap_or((0, 0.0)));
                let what = format!(
                    "{} takes {low:.1} times as much with {least} members, and {high:.1} times with {most}",
                    other.name()
                );
                let id = format!("conclusion/axiom_takes_less/{}/{}", quantity.name, other.name());
                Figure::conclusion(id, ratios.iter().all(|(_, ratio)| *ratio > 1.0), &what)
            })
            .collect()
    }

    /// For each scheme with handshakes, computes the number of exchanges after which the sender's energy is less than
    /// 1.1 times its energy with Axiom. The advantage of Axiom becomes smaller with each exchange, because the other
    /// scheme needs its handshakes only once.
    fn advantage_by_exchanges(&self) -> Vec<Figure> {
        Scheme::WITH_HANDSHAKES
            .iter()
            .map(|other| {
                let of = |part: &Part| part.sender.radio_by_frame();
                let total = |scheme, exchanges: f64| {
                    let case = Case::paper(scheme);
                    self.first(case, of) + (exchanges - 1.0) * self.later(case, of)
                };
                let ratio = |exchanges: f64| total(*other, exchanges) / total(Scheme::MulMul, exchanges);
                let ends = (1..=10_000).find(|exchanges| ratio(f64::from(*exchanges)) < 1.1);
                let after = |exchanges| format!("{:.2} times after {exchanges}", ratio(f64::from(exchanges)));
                let lasts =
                    ends.map_or("however many follow".into(), |ends| format!("until {ends} exchanges have followed"));
                let what = format!(
                    "the sender saves more than a tenth of its energy against {} {lasts}: {}, {}",
                    other.name(),
                    after(10),
                    after(100)
                );
                let id = format!("conclusion/advantage_lasts/{}", other.name());
                Figure::conclusion(id, ratio(10.0) >= 1.1, &what)
            })
            .collect()
    }
}

/// Compares the cost of joining and leaving with the paper. The paper counts no such cost for Axiom, because it does
/// not count the messages of the controller.
fn churn_is_free(churn: &Churn) -> [Figure; 2] {
    let (axiom, handshakes) =
        (|senders| churn.joins(Scheme::MulMul, senders), |senders| churn.joins(Scheme::UniUni, senders));
    let from = SENDERS.into_iter().find(|senders| axiom(*senders) < handshakes(*senders));
    let from = from
        .map_or(format!("more than {} senders", SENDERS[SENDERS.len() - 1]), |senders| format!("{senders} senders on"));
    let joining = format!(
        "a listener that joins needs a session with the controller and a new epoch, {:.0} frames in all; that is fewer than the \
         handshakes of DTLS Uni-Uni from {from}",
        axiom(1)
    );
    let leaving = format!(
        "so that an evicted member reads nothing, the others get {:.0} frames in the smallest group",
        churn.evicts(Scheme::MulMul)
    );
    [
        Figure::conclusion("conclusion/joining_has_no_impact".into(), axiom(1) == 0.0, &joining),
        Figure::conclusion("conclusion/leaving_has_no_impact".into(), churn.evicts(Scheme::MulMul) == 0.0, &leaving),
    ]
}

/// Compares two methods to rekey a group: a key tree, and a separate message to each member. The verdict names the
/// group sizes for which the key tree needs fewer messages and fewer bytes.
fn rekeying_scales(rekeying: &Rekeying) -> Figure {
    let evictions = &rekeying.evictions;
    let from = |saves: &dyn Fn(&Eviction) -> bool| {
        // The smallest size of group from which on `saves` is true for all groups.
        let count = evictions.iter().rev().take_while(|eviction| saves(eviction)).count();
        evictions[evictions.len() - count..].first().map(|eviction| eviction.members)
    };
    let fewer = from(&|eviction| eviction.key_tree.messages.len() < eviction.point_to_point.messages.len());
    let less = from(&|eviction| eviction.key_tree.bytes() < eviction.point_to_point.bytes());
    let members =
        |from: Option<u32>| from.map_or("in no size of group".into(), |from| format!("from {from} members on"));
    let largest = evictions.last().map_or(String::new(), |last| {
        let (tree, alone) = (last.key_tree.bytes(), last.point_to_point.bytes());
        format!("; among {} members it takes {tree} bytes instead of {alone}", last.members)
    });
    let what = format!(
        "a key tree needs fewer messages than a message for each member {}, and fewer bytes {}{largest}",
        members(fewer),
        members(less)
    );
    Figure::conclusion("conclusion/rekeying_scales".into(), less.is_some(), &what)
}

fn first(sizes: &[usize]) -> usize {
    sizes.first().copied().unwrap_or(0)
}

fn last(sizes: &[usize]) -> usize {
    sizes.last().copied().unwrap_or(0)
}
