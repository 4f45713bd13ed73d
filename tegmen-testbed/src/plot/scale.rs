//! The scale of an axis: its end, its marks and their labels.

/// The scale of an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Scale {
    /// From zero, with a mark after each step.
    Linear {
        /// From a mark to the next.
        step: f64,
        /// The last mark.
        end: f64,
    },
    /// From a power of ten to another.
    Powers {
        /// The first power.
        first: i32,
        /// The last power.
        last: i32,
    },
}

impl Scale {
    /// A linear scale up to this value or more. Steps are 1, 2 or 5 of a power of ten.
    pub(super) fn linear(most: f64) -> Self {
        if !(most.is_finite() && most > 0.0) {
            return Self::Linear { step: 1.0, end: 1.0 };
        }
        let rough = most / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough).unwrap_or(rough);
        Self::Linear { step, end: (most / step).ceil() * step }
    }

    /// A scale of shares: up to 1.
    pub(super) const SHARES: Self = Self::Linear { step: 0.2, end: 1.0 };

    /// The powers of ten around these values, which are above zero.
    pub(super) fn powers(least: f64, most: f64) -> Self {
        let power = |value: f64, round: fn(f64) -> f64| match value.is_finite() && value > 0.0 {
            true => round(value.log10()) as i32,
            false => 0,
        };
        let first = power(least, f64::floor);
        Self::Powers { first, last: power(most, f64::ceil).max(first + 1) }
    }

    /// The place of a value between the ends of the axis, from 0 to 1 if the scale has it.
    pub(super) fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear { end, .. } => value / end,
            Self::Powers { first, last } => (value.log10() - f64::from(first)) / f64::from(last - first),
        }
    }

    /// Marks with their labels.
    pub(super) fn marks(self) -> Vec<(f64, String)> {
        match self {
            Self::Linear { step, end } => {
                let value = |n: u32| f64::from(n) * step;
                (0..=(end / step).round() as u32).map(|n| (value(n), number(value(n), step))).collect()
            }
            Self::Powers { first, last } => {
                // Two powers or fewer have marks between them.
                let between: &[f64] = if last - first <= 2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                let marks = |power: i32| {
                    let power = 10f64.powi(power);
                    between.iter().map(move |n| (n * power, number(n * power, power)))
                };
                let end = 10f64.powi(last);
                (first..last).flat_map(marks).chain([(end, number(end, end))]).collect()
            }
        }
    }
}

/// A number with as many digits as a step needs: thousands as `k`, millions as `M`.
pub(super) fn number(value: f64, step: f64) -> String {
    let (over, unit) = match value.abs() {
        large if large >= 1e7 => (1e6, " M"),
        large if large >= 1e4 => (1e3, " k"),
        _ => (1.0, ""),
    };
    let digits = (-(step.abs() / over).log10()).ceil().clamp(0.0, 9.0) as usize;
    let text = format!("{:.digits$}", value / over);
    let short = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short}{unit}")
}
