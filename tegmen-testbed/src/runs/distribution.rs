//! Distributions of delays. The delays are counted in intervals of time (steps) that are the same for all runs.

use crate::sim::Micros;
use serde::{Deserialize, Serialize};

/// A histogram of delays. The axis of time is divided into intervals (steps). Each pair has the end of a step in
/// microseconds, and the number of delays in the step. The width of a step is at most a sixteenth of its end. All runs
/// have the same steps, so their distributions can be added.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Distribution(Vec<(Micros, u64)>);

impl Distribution {
    /// Counts these delays.
    pub fn of(delays: &[Micros]) -> Self {
        let mut counts = std::collections::BTreeMap::new();
        delays.iter().for_each(|delay| *counts.entry(end(*delay)).or_insert(0) += 1);
        Self(counts.into_iter().collect())
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (end, count) in &other.0 {
            match self.0.binary_search_by_key(end, |(end, _)| *end) {
                Ok(place) => self.0[place].1 += count,
                Err(place) => self.0.insert(place, (*end, *count)),
            }
        }
    }

    /// Returns the distribution as shares of `all` delays. Each pair has a delay in milliseconds (the upper bound of an
    /// interval of this histogram), and the share of delays that are at most this long.
    pub fn shares(&self, all: u64) -> Vec<(f64, f64)> {
        let mut below = 0;
        let share = |(end, count): &(Micros, u64)| {
            below += count;
            (*end as f64 / 1e3, below as f64 / all as f64)
        };
        self.0.iter().map(share).collect()
    }
}

/// Returns the upper bound of the histogram interval (step) to which a delay belongs, in microseconds. It is the
/// smallest number that is not less than the delay and whose binary form has at most five digits before its final
/// zeros.
const fn end(delay: Micros) -> Micros {
    let digits = Micros::BITS - delay.leading_zeros();
    if digits <= DIGITS {
        return delay;
    }
    let step = 1 << (digits - DIGITS);
    delay.div_ceil(step) * step
}

/// Number of binary digits to which the upper bound of each interval of the histogram is rounded.
const DIGITS: u32 = 5;

#[cfg(test)]
mod tests;
