//! Means and shares, with their confidence intervals.

use serde::Serialize;

/// A mean, and the bounds of its 95 % confidence interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Mean {
    /// The mean. Its unit is that of the values from which it was computed.
    pub mean: f64,
    /// The lower and the upper bound of the 95 % confidence interval of the mean; `None` if there is only one run.
    pub interval: Option<[f64; 2]>,
}

impl Mean {
    /// Returns half of the width of the confidence interval, as text with `digits` digits after the decimal point, or a
    /// dash if there is no interval.
    pub fn half_width(&self, digits: usize) -> String {
        self.interval.map_or("-".into(), |[low, high]| format!("{:.digits$}", (high - low) / 2.0))
    }
}

/// Returns the mean of the results of several runs. The confidence interval of the mean follows from Student's
/// distribution.
pub fn mean(values: &[f64]) -> Mean {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n.max(1.0);
    if values.len() < 2 {
        return Mean { mean, interval: None };
    }
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (n - 1.0);
    // `STUDENT` contains the 97.5 % quantiles of Student's distribution for 1 to 10 degrees of freedom. For more
    // degrees of freedom the formula is a good approximation.
    let quantile = STUDENT.get(values.len() - 2).copied().unwrap_or(1.96 + 2.4 / (n - 1.0));
    let half = quantile * (variance / n).sqrt();
    Mean { mean, interval: Some([mean - half, mean + half]) }
}

/// Returns the share of hits among the cases of all runs. For example, a case is a request, and a hit is an answered
/// request. Each entry has the number of hits and the number of cases of a run. Two intervals are computed: Wilson's
/// interval for all cases together, and Student's interval for the runs. The result has the wider interval, because the
/// cases of one run may depend on each other.
pub fn share(runs: &[(u64, u64)]) -> Mean {
    let (hits, cases) = runs.iter().fold((0, 0), |(hits, cases), run| (hits + run.0, cases + run.1));
    if cases == 0 {
        return Mean { mean: f64::NAN, interval: None };
    }
    let [mut low, mut high] = wilson(hits, cases);
    let of_each: Vec<f64> = runs.iter().filter(|run| run.1 > 0).map(|run| run.0 as f64 / run.1 as f64).collect();
    if let Some([least, most]) = mean(&of_each).interval {
        (low, high) = (low.min(least).max(0.0), high.max(most).min(1.0));
    }
    Mean { mean: hits as f64 / cases as f64, interval: Some([low, high]) }
}

/// Returns the 95 % confidence interval of a share, computed with Wilson's formula.
fn wilson(hits: u64, cases: u64) -> [f64; 2] {
    const Z: f64 = 1.96;
    let (n, p) = (cases as f64, hits as f64 / cases as f64);
    let middle = (p + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
    let half = Z / (1.0 + Z * Z / n) * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    // If there are no hits or only hits, one bound is exactly 0 or 1. The formula would give this bound with a rounding
    // error.
    let low = if hits == 0 { 0.0 } else { middle - half };
    let high = if hits == cases { 1.0 } else { middle + half };
    [low, high]
}

const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];

#[cfg(test)]
mod tests;
