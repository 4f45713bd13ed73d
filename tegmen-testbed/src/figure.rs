//! A figure of a paper, and ours.

use serde::Serialize;
use std::fmt::Write as _;

/// One figure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Figure {
    /// Which.
    pub id: String,
    /// What the paper prints, where it prints something to compare with.
    pub paper: Option<f64>,
    /// What came out here, where it was measured.
    pub ours: Option<f64>,
    /// In what.
    pub unit: &'static str,
    /// How they compare: see [`EQUAL`], [`WITHIN`], [`DIFFERS`], [`MISPRINT`]; or why they need not agree.
    pub verdict: String,
}

impl Figure {
    /// A figure that must be the paper's.
    pub fn equal(id: String, paper: f64, ours: f64, unit: &'static str) -> Self {
        let verdict = if paper == ours { EQUAL } else { DIFFERS };
        Self { id, paper: Some(paper), ours: Some(ours), unit, verdict: verdict.into() }
    }

    /// A figure that shows something, and why it is not held to the paper's.
    pub fn shown(id: String, paper: Option<f64>, ours: f64, unit: &'static str, why: &str) -> Self {
        Self { id, paper, ours: Some(ours), unit, verdict: format!("not judged: {why}") }
    }

    /// A figure of what is not part of this program.
    pub fn missing(id: String, paper: f64, unit: &'static str, why: &str) -> Self {
        Self { id, paper: Some(paper), ours: None, unit, verdict: format!("not measured: {why}") }
    }

    /// Something that must hold, as 1 if it does.
    pub fn holds(id: String, holds: bool, what: &str) -> Self {
        let verdict = if holds { format!("holds: {what}") } else { DIFFERS.to_owned() };
        Self { id, paper: None, ours: Some(f64::from(u8::from(holds))), unit: "assertion", verdict }
    }
}

/// The figures as a table for people.
pub fn table(figures: &[Figure]) -> String {
    let width = figures.iter().map(|figure| figure.id.len()).max().unwrap_or(0);
    let mut text = format!("{:width$}  {:>10}  {:>10}\n", "", "paper", "ours");
    for Figure { id, paper, ours, unit, verdict } in figures {
        let number = |value: f64| if value.fract() == 0.0 { format!("{value}") } else { format!("{value:.2}") };
        let [paper, ours] = [paper, ours].map(|value| value.map_or("-".into(), number));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{id:width$}  {paper:>10}  {ours:>10}  {unit}: {verdict}");
    }
    text
}

/// The paper's figure is ours.
pub const EQUAL: &str = "equal";
/// The paper's model gives its figure within 0.5 %.
pub const WITHIN: &str = "within 0.5 %";
/// The figures should agree, and do not.
pub const DIFFERS: &str = "differs";
/// The paper contradicts itself; what fits follows.
pub const MISPRINT: &str = "misprint";
