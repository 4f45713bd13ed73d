//! A figure of a paper, and our value for it.

use crate::interval::Mean;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt::Write as _;

/// The source of our value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Arithmetic on numbers of the paper itself: nothing is measured.
    Paper,
    /// Messages and frames that this program builds.
    Built,
    /// Runs of the simulator.
    Simulated,
    /// Instructions and memory of firmware images, counted under QEMU.
    Counted,
    /// Counts of similar operations, where no image counts the operation itself.
    Estimated,
    /// The time that this machine took. It is not the same each time.
    Measured,
}

impl Source {
    /// Returns the name of the source in tables.
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

/// The sample behind a number.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// Exchanges of all runs.
    pub n: u64,
    /// Runs.
    pub seeds: u64,
    /// Bounds of its 95 % interval; empty for one run.
    pub interval: Option<[f64; 2]>,
}

/// One figure.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// The name of the figure.
    pub id: String,
    /// The value in the paper, if it prints one to compare with.
    pub paper: Option<f64>,
    /// Our value, if it was measured.
    pub ours: Option<f64>,
    /// The value that follows from other numbers of the paper; `ours` is empty then.
    pub derived: Option<f64>,
    /// In what.
    pub unit: Cow<'static, str>,
    /// The source of our value; empty if there is none.
    pub source: Option<Source>,
    /// The sample after it, if there is one.
    #[serde(flatten)]
    pub sample: Option<Sample>,
    /// The distribution after the figure, if there is one: pairs of a value in milliseconds, and the share of the sample up to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distribution: Vec<(f64, f64)>,
    /// The verdict: see [`EQUAL`], [`CONSISTENT`], [`DIFFERS`], [`MISPRINT`]; or why they need not agree.
    pub verdict: String,
}

impl Figure {
    fn new(id: String, paper: Option<f64>, ours: Option<f64>, unit: &'static str, verdict: String) -> Self {
        let (source, unit) = (ours.map(|_| Source::Built), Cow::Borrowed(unit));
        Self { id, paper, ours, derived: None, unit, source, sample: None, distribution: Vec::new(), verdict }
    }

    /// A figure that must be the paper's.
    pub fn equal(id: String, paper: f64, ours: f64, unit: &'static str) -> Self {
        let verdict = if paper == ours { EQUAL } else { DIFFERS };
        Self::new(id, Some(paper), Some(ours), unit, verdict.into())
    }

    /// A figure that must equal the paper's within a number of percent.
    pub fn near(id: String, paper: f64, ours: f64, unit: &'static str, percent: f64) -> Self {
        let near = (ours / paper - 1.0).abs() * 100.0 <= percent;
        let verdict = if near { format!("within {percent} %") } else { DIFFERS.into() };
        Self::new(id, Some(paper), Some(ours), unit, verdict)
    }

    /// A figure that must follow from other numbers of the paper, within a number of percent.
    pub fn follows(id: String, paper: f64, derived: f64, unit: &'static str, percent: f64) -> Self {
        // Exact numbers need no tolerance.
        let near = paper == derived || (derived / paper - 1.0).abs() * 100.0 <= percent;
        let verdict = if near { CONSISTENT } else { DIFFERS };
        Self::new(id, Some(paper), Some(derived), unit, verdict.into()).of(Source::Paper)
    }

    /// Returns a figure without comparison, with the reason why our value need not equal the paper's.
    pub fn shown(id: String, paper: Option<f64>, ours: f64, unit: &'static str, why: &str) -> Self {
        Self::new(id, paper, Some(ours), unit, format!("not judged: {why}"))
    }

    /// A figure that must be at least `bound`. `cause` is the known reason if it is less; without one the figure differs.
    pub fn at_least(id: String, paper: Option<f64>, ours: f64, bound: f64, unit: &'static str, cause: &str) -> Self {
        Self::bounded(id, paper, ours, ours >= bound, &format!("at least {bound}"), unit, cause)
    }

    /// A figure that must be at most `bound`.
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

    /// A conclusion of the paper, as 1 if it holds for this stack. `what` is the range in which it holds, or the reason why it does not.
    pub fn conclusion(id: String, holds: bool, what: &str) -> Self {
        let verdict = format!("{}: {what}", if holds { HOLDS } else { HOLDS_NOT });
        Self::new(id, Some(1.0), Some(f64::from(u8::from(holds))), "assertion", verdict)
    }

    /// Something that must hold, as 1 if it does.
    pub fn holds(id: String, holds: bool, what: &str) -> Self {
        let verdict = if holds { format!("holds: {what}") } else { DIFFERS.to_owned() };
        Self::new(id, None, Some(f64::from(u8::from(holds))), "assertion", verdict)
    }

    /// The figure with another source of our number.
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

    /// Marks the figure as simulated, with the number of exchanges and of runs.
    pub fn sampled(self, n: u64, seeds: u64, mean: &Mean) -> Self {
        let sample = Some(Sample { n, seeds, interval: mean.interval });
        Self { sample, ..self.of(Source::Simulated) }
    }

    /// Our value with the bounds of its interval, if there is one.
    pub fn value(&self) -> Option<(f64, Option<[f64; 2]>)> {
        Some((self.ours?, self.sample.and_then(|sample| sample.interval)))
    }

    /// The paper and the table or figure of this number: the part of its name before the first slash.
    pub fn table(&self) -> &str {
        self.id.split('/').next().unwrap_or_default()
    }
}

/// Figures that are all of one source.
pub fn all_of(source: Source, figures: Vec<Figure>) -> impl Iterator<Item = Figure> {
    figures.into_iter().map(move |figure| figure.of(source))
}

/// Classes of verdicts, in the order of the report's first table.
pub const CLASSES: [&str; 9] = [EQUAL, WITHIN, HOLDS, CONSISTENT, MISPRINT, "not judged", MISSED, HOLDS_NOT, DIFFERS];

/// The class of a verdict: its place in [`CLASSES`].
pub fn class(verdict: &str) -> usize {
    CLASSES.iter().position(|class| verdict.starts_with(class)).unwrap_or(CLASSES.len() - 1)
}

/// The figures as a table for people.
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

/// Our value equals the paper's.
pub const EQUAL: &str = "equal";
/// Ours is near the paper's: the bound follows.
pub const WITHIN: &str = "within";
/// The paper's assertion holds here.
pub const HOLDS: &str = "holds";
/// The paper's figure follows from its other figures. It has no value of ours.
pub const CONSISTENT: &str = "paper agrees with itself";
/// An aim of this project was not reached, for a cause that is known.
pub const MISSED: &str = "missed";
/// The paper's conclusion does not hold for this stack.
pub const HOLDS_NOT: &str = "does not hold";
/// The figures should agree, and do not.
pub const DIFFERS: &str = "differs";
/// The paper contradicts itself; what fits follows.
pub const MISPRINT: &str = "misprint";

#[cfg(test)]
mod tests;
