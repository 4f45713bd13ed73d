//! The scale of an axis: its ends, and its marks with their labels.

/// The scale of an axis.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Scale {
    /// A linear scale that begins at zero. It has a mark at each multiple of the step.
    Linear {
        /// The difference between the values of two neighbouring marks.
        step: f64,
        /// The value of the last mark.
        end: f64,
    },
    /// A logarithmic scale from one power of ten to another.
    Powers {
        /// The exponent of the power of ten at the beginning of the axis.
        first: i32,
        /// The exponent of the power of ten at the end of the axis.
        last: i32,
    },
}

impl Scale {
    /// Makes a linear scale that ends at its first mark that is not below `most`. The step between the marks is 1, 2 or
    /// 5 times a power of ten.
    pub(super) fn linear(most: f64) -> Self {
        if !(most.is_finite() && most > 0.0) {
            return Self::Linear { step: 1.0, end: 1.0 };
        }
        let rough = most / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|n| n * power).find(|step| *step >= rough).unwrap_or(rough);
        Self::Linear { step, end: (most / step).ceil() * step }
    }

    /// The scale for shares, from 0 to 1.
    pub(super) const SHARES: Self = Self::Linear { step: 0.2, end: 1.0 };

    /// Makes a logarithmic scale that contains both values, which must be above zero.
    pub(super) fn powers(least: f64, most: f64) -> Self {
        let power = |value: f64, round: fn(f64) -> f64| match value.is_finite() && value > 0.0 {
            true => round(value.log10()) as i32,
            false => 0,
        };
        let first = power(least, f64::floor);
        Self::Powers { first, last: power(most, f64::ceil).max(first + 1) }
    }

    /// Returns the position of a value on the axis: 0 is the beginning of the axis, and 1 is its end.
    pub(super) fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear { end, .. } => value / end,
            Self::Powers { first, last } => (value.log10() - f64::from(first)) / f64::from(last - first),
        }
    }

    /// Returns the values of the marks, each with its label.
    pub(super) fn marks(self) -> Vec<(f64, String)> {
        match self {
            Self::Linear { step, end } => {
                let value = |n: u32| f64::from(n) * step;
                (0..=(end / step).round() as u32).map(|n| (value(n), number(value(n), step))).collect()
            }
            Self::Powers { first, last } => {
                // If the axis has at most two powers of ten, there are also marks between the powers.
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

/// Formats a number with as many digits as are needed for a scale with this step. Thousands are written with `k`, and
/// millions with `M`.
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
