//! Compares a number in a paper, which is called a figure, with the value of Tegmen for the same quantity.

use crate::interval::Mean;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write as _;

/// The source of Tegmen's value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Computed from other numbers of the paper. Tegmen measures nothing.
    Paper,
    /// Messages and frames that this program builds itself.
    Built,
    /// Runs of the simulator.
    Simulated,
    /// Instructions and memory of firmware images, counted under QEMU.
    Counted,
    /// Estimated from the counts of similar operations, because no image counts the operation itself.
    Estimated,
    /// A time that was measured on this machine. It differs from run to run.
    Measured,
}

impl Source {
    /// Returns the name with which tables show this source.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Built => "built",
            Self::Simulated => "simulated",
            Self::Counted => "counted",
            Self::Estimated => "estimated",
            Self::Measured => "measured",
        }
    }
}

/// The size of the sample from which a value was computed.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Number of exchanges in all runs.
    pub n: u64,
    /// Number of runs, each with another seed.
    pub seeds: u64,
    /// The lower and the upper bound of the 95 % confidence interval of the value; `None` if there was only one run.
    pub interval: Option<[f64; 2]>,
}

/// A value of Tegmen that is compared with a value of a paper, and the verdict.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The name of this figure.
    pub id: String,
    /// The value that the paper prints for this figure; `None` if the paper prints no value.
    pub paper: Option<f64>,
    /// The value that was measured, counted or simulated with Tegmen for this figure; `None` if there is no such value.
    pub ours: Option<f64>,
    /// The value of this figure that follows from other numbers of the paper; `None` if it was not computed. `ours` is
    /// `None` if this value is set.
    pub derived: Option<f64>,
    /// The unit of the values.
    pub unit: Cow<'static, str>,
    /// The source of Tegmen's value; `None` if there is no value.
    pub source: Option<Source>,
    /// The size of the sample of Tegmen's value; `None` if the value does not come from a sample.
    #[serde(flatten)]
    pub sample: Option<Sample>,
    /// The distribution of the values in the sample. Each pair has a value in milliseconds, and the share of the sample
    /// that is not above this value. The list is empty if no distribution is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distribution: Vec<(f64, f64)>,
    /// The result of the comparison between the paper's value and Tegmen's value. The text begins with one of
    /// [`CLASSES`], and may continue with the reason.
    pub verdict: String,
}

impl Figure {
    fn new(id: String, paper: Option<f64>, ours: Option<f64>, unit: &'static str, verdict: String) -> Self {
        let (source, unit) = (ours.map(|_| Source::Built), Cow::Borrowed(unit));
        Self { id, paper, ours, derived: None, unit, source, sample: None, distribution: Vec::new(), verdict }
    }

    /// Makes a figure that agrees only if both values are equal.
    pub fn equal(id: String, paper: f64, ours: f64, unit: &'static str) -> Self {
        let verdict = if paper == ours { EQUAL } else { DIFFERS };
        Self::new(id, Some(paper), Some(ours), unit, verdict.into())
    }

    /// Makes a figure that agrees if Tegmen's value differs from the paper's value by at most `percent` percent.
    pub fn near(id: String, paper: f64, ours: f64, unit: &'static str, percent: f64) -> Self {
        let near = (ours / paper - 1.0).abs() * 100.0 <= percent;
        let verdict = if near { format!("within {percent} %") } else { DIFFERS.into() };
        Self::new(id, Some(paper), Some(ours), unit, verdict)
    }

    /// Makes a figure that compares a number of the paper with the value `derived`, which follows from other numbers of
    /// the paper. The two values agree if they differ by at most `percent` percent.
    pub fn follows(id: String, paper: f64, derived: f64, unit: &'static str, percent: f64) -> Self {
        // Exact numbers need no tolerance.
        let near = paper == derived || (derived / paper - 1.0).abs() * 100.0 <= percent;
        let verdict = if near { CONSISTENT } else { DIFFERS };
        Self::new(id, Some(paper), Some(derived), unit, verdict.into()).of(Source::Paper)
    }

    /// Makes a figure whose values are shown but not compared. `why` is the reason why the two values need not be
    /// equal.
    pub fn shown(id: String, paper: Option<f64>, ours: f64, unit: &'static str, why: &str) -> Self {
        Self::new(id, paper, Some(ours), unit, format!("not judged: {why}"))
    }

    /// Makes a figure whose value must be at least `bound`. If the value is less, the verdict is `missed` with the
    /// known reason `cause`, or `differs` if `cause` is empty.
    pub fn at_least(id: String, paper: Option<f64>, ours: f64, bound: f64, unit: &'static str, cause: &str) -> Self {
        Self::bounded(id, paper, ours, ours >= bound, &format!("at least {bound}"), unit, cause)
    }

    /// Makes a figure whose value must be at most `bound`. If the value is more, the verdict is `missed` with the known
    /// reason `cause`, or `differs` if `cause` is empty.
    pub fn at_most(id: String, paper: Option<f64>, ours: f64, bound: f64, unit: &'static str, cause: &str) -> Self {
        Self::bounded(id, paper, ours, ours <= bound, &format!("at most {bound}"), unit, cause)
    }

    fn bounded(
        id: String,
        paper: Option<f64>,
        ours: f64,
        holds: bool,
        bound: &str,
        unit: &'static str,
        cause: &str,
    ) -> Self {
        let verdict = match (holds, cause) {
            (true, _) => format!("{HOLDS}: {bound}"),
            (false, "") => DIFFERS.to_owned(),
            (false, _) => format!("{MISSED}: {bound} was the aim; {cause}"),
        };
        Self::new(id, paper, Some(ours), unit, verdict)
    }

    /// Makes a figure for a conclusion of the paper. Its value is 1 if the conclusion holds for Tegmen, and 0 if it does
    /// not hold. `what` is the range in which it holds, or the reason why it does not hold.
    pub fn conclusion(id: String, holds: bool, what: &str) -> Self {
        let verdict = format!("{}: {what}", if holds { HOLDS } else { HOLDS_NOT });
        Self::new(id, Some(1.0), Some(f64::from(u8::from(holds))), "assertion", verdict)
    }

    /// Makes a figure for an assertion that must hold. Its value is 1 if the assertion holds, and otherwise 0. `what`
    /// describes the assertion.
    pub fn holds(id: String, holds: bool, what: &str) -> Self {
        let verdict = if holds { format!("holds: {what}") } else { DIFFERS.to_owned() };
        Self::new(id, None, Some(f64::from(u8::from(holds))), "assertion", verdict)
    }

    /// Sets the source of the value in [`Self::ours`]. If the source is [`Source::Paper`], the value was computed from
    /// the paper and not measured with Tegmen, so it moves to [`Self::derived`].
    pub fn of(mut self, source: Source) -> Self {
        if self.ours.is_some() {
            self.source = Some(source);
        }
        if source == Source::Paper {
            self.derived = self.ours.take();
            if self.verdict.starts_with("holds") {
                self.verdict = self.verdict.replacen("holds", CONSISTENT, 1);
            }
        }
        self
    }

    /// Marks the figure as simulated. Adds the number `n` of exchanges, the number `seeds` of runs, and the confidence
    /// interval of `mean`.
    pub fn sampled(self, n: u64, seeds: u64, mean: &Mean) -> Self {
        let sample = Some(Sample { n, seeds, interval: mean.interval });
        Self { sample, ..self.of(Source::Simulated) }
    }

    /// Returns Tegmen's value, and the bounds of its confidence interval if there is one. Returns `None` without a
    /// value.
    pub fn value(&self) -> Option<(f64, Option<[f64; 2]>)> {
        Some((self.ours?, self.sample.and_then(|sample| sample.interval)))
    }

    /// Returns the part of the name before the first slash. It names the table or figure of the paper.
    pub fn table(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }
}

/// Sets the same source for all figures, and returns them.
pub fn all_of(source: Source, figures: Vec<Figure>) -> impl Iterator<Item = Figure> {
    figures.into_iter().map(move |figure| figure.of(source))
}

/// The classes of verdicts, in the order in which the first table of the report has them.
pub const CLASSES: [&str; 9] = [EQUAL, WITHIN, HOLDS, CONSISTENT, MISPRINT, "not judged", MISSED, HOLDS_NOT, DIFFERS];

/// Returns the index of a verdict's class in [`CLASSES`]. An unknown verdict belongs to the last class.
pub fn class(verdict: &str) -> usize {
    CLASSES.iter().position(|class| verdict.starts_with(class)).unwrap_or(CLASSES.len() - 1)
}

/// Formats the figures as a table for people.
pub fn table(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| figure.id.len()).max().unwrap_or(0);
    let mut text = format!("{:width$}  {:>10}  {:>10}  {:9}\n", "", "paper", "ours", "source");
    for figure in figures {
        let number = |value: f64| if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.2}") };
        let [paper, ours] = [figure.paper, figure.ours].map(|value| value.map_or("-".into(), number));
        let source = figure.source.map_or("-", Source::name);
        let mut verdict = figure.verdict.clone();
        if let Some(derived) = figure.derived {
            verdict += &format!(" ({} follows from the paper's own numbers)", number(derived));
        }
        if let Some(Sample { n, seeds, interval }) = figure.sample {
            let bounds = interval.map(|[low, high]| format!("{} to {}, ", number(low), number(high)));
            verdict += &format!(" ({}{n} exchanges, {seeds} seeds)", bounds.unwrap_or_default());
        }
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:width$}  {paper:>10}  {ours:>10}  {source:9}  {}: {verdict}", figure.id, figure.unit);
    }
    text
}

/// The verdict on a figure for which the value of Tegmen equals the value of the paper.
pub const EQUAL: &str = "equal";
/// The verdict on a figure for which Tegmen's value is near the paper's value. The verdict also contains the maximum
/// difference in percent.
pub const WITHIN: &str = "within";
/// The verdict on an assertion of the paper that also holds for Tegmen.
pub const HOLDS: &str = "holds";
/// The verdict on a figure for which the printed value follows from other numbers of the paper. Tegmen has no value for
/// this figure.
pub const CONSISTENT: &str = "paper agrees with itself";
/// The verdict on an aim of this project that is not reached. The reason is known.
pub const MISSED: &str = "missed";
/// The verdict on a conclusion of the paper that does not hold for Tegmen.
pub const HOLDS_NOT: &str = "does not hold";
/// The verdict on a figure that fails its check: for example, Tegmen's value differs too much from the paper's value.
pub const DIFFERS: &str = "differs";
/// The verdict on a figure for which the paper contradicts itself. The verdict also contains the value that agrees with
/// the other numbers of the paper.
pub const MISPRINT: &str = "misprint";

#[cfg(test)]
mod tests;
