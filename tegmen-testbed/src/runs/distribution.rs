//! Distributions of delays, in steps that two runs have in common.

use crate::sim::Micros;
use serde::{Deserialize, Serialize};

/// The number of delays in each step: pairs of the end of a step and a number, in the order of the steps. A step is a
/// sixteenth of its distance from zero, so that the distributions of runs can be added.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Distribution(Vec<(Micros, u64)>);

impl Distribution {
    /// The distribution of these delays.
    pub fn of(delays: &[Micros]) -> Self {
        let mut counts = std::collections::BTreeMap::new();
        delays.iter().for_each(|delay| *counts.entry(end(*delay)).or_insert(0) += 1);
        Self(counts.into_iter().collect())
    }

    /// Adds the delays of another run.
    pub fn add(&mut self, other: &Self) {
        for (end, count) in &other.0 {
            match self.0.binary_search_by_key(end, |(end, _)| *end) {
                Ok(place) => self.0[place].1 += count,
                Err(place) => self.0.insert(place, (*end, *count)),
            }
        }
    }

    /// Pairs of milliseconds and the share of `all` that took at most as long.
    pub fn shares(&self, all: u64) -> Vec<(f64, f64)> {
        let mut below = 0;
        let share = |(end, count): &(Micros, u64)| {
            below += count;
            (*end as f64 / 1e3, below as f64 / all as f64)
        };
        self.0.iter().map(share).collect()
    }
}

/// The end of the step of a delay: the least that is not below it of the numbers with five binary digits and zeros.
const fn end(delay: Micros) -> Micros {
    let digits = Micros::BITS - delay.leading_zeros();
    if digits <= DIGITS {
        return delay;
    }
    let step = 1 << (digits - DIGITS);
    delay.div_ceil(step) * step
}

/// Binary digits of a step.
const DIGITS: u32 = 5;

#[cfg(test)]
mod tests;
