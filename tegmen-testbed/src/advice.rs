//! Advice about the protections that a deployment can afford. It follows from the figures of the deployment's runs.

use crate::runs::Summary;
use serde::Serialize;
use std::fmt::Write as _;

/// The advice for a deployment, and the figures from which it follows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Advice {
    /// The figures of each [case](crate::deployment::Case) of the deployment with each protection.
    pub table: Vec<Summary>,
    /// The recommendation. It has one text for each [case](crate::deployment::Case) of the deployment.
    pub recommendation: Vec<String>,
}

impl Advice {
    /// Makes the advice from the figures of a deployment.
    pub fn of(table: Vec<Summary>) -> Self {
        let mut recommendation = Vec::new();
        let mut cases: Vec<_> = table.iter().map(|summary| &summary.case).collect();
        cases.dedup();
        for case in cases {
            let rows: Vec<&Summary> = table.iter().filter(|summary| summary.case == *case).collect();
            let name = case.iter().map(|(key, value)| format!("{key} = {value}: ")).collect::<String>();
            recommendation.push(name + &conclude(&rows));
        }
        Self { table, recommendation }
    }

    /// Formats the figures and the recommendation as text for people.
    pub fn text(&self) -> String {
        let mut text = crate::runs::table(&self.table);
        text.push('\n');
        for sentence in &self.recommendation {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{sentence}");
        }
        text
    }
}

/// Returns one or two sentences about the protections of one case.
fn conclude(rows: &[&Summary]) -> String {
    let Some(cheapest) = rows.iter().min_by(|a, b| a.energy_uj.mean.total_cmp(&b.energy_uj.mean)) else {
        return "nothing was run".into();
    };
    let secured = rows.iter().filter(|row| row.protection.protects_readings());
    let Some(best) = secured.min_by(|a, b| a.energy_uj.mean.total_cmp(&b.energy_uj.mean)) else {
        return format!("only {} was run, which protects no reading", cheapest.protection.name());
    };
    let percent = |ours: f64, theirs: f64| (ours / theirs - 1.0) * 100.0;
    let delivered = best.delivered.mean * 100.0;
    let verdict = if best.delivered.mean < cheapest.delivered.mean - 0.02 {
        format!(
            "{} delivers {delivered:.1} % where {} delivers {:.1} %: shorten the way or its losses first",
            best.protection.name(),
            cheapest.protection.name(),
            cheapest.delivered.mean * 100.0
        )
    } else if best.delivered.mean < 0.95 {
        format!("only {delivered:.1} % of the readings are answered, whatever the protection: the links are the matter")
    } else {
        format!("take {}", best.protection.name())
    };
    let cost = if best.protection == cheapest.protection {
        String::new()
    } else {
        format!(
            "; against {} it costs {:+.0} % bytes, {:+.1} ms in the median, {:+.0} % energy",
            cheapest.protection.name(),
            percent(best.bytes_per_reading.mean, cheapest.bytes_per_reading.mean),
            best.delay_p50_ms.mean - cheapest.delay_p50_ms.mean,
            percent(best.energy_uj.mean, cheapest.energy_uj.mean),
        )
    };
    let radio = match best.battery_years_always_on < best.battery_years / 2.0 {
        true => format!(
            "; the battery lasts {:.1} years if the radio sleeps between frames, {:.0} days if it never does",
            best.battery_years,
            best.battery_years_always_on * 365.25
        ),
        false => format!("; the battery lasts {:.1} years", best.battery_years_always_on),
    };
    verdict + &cost + &radio
}

#[cfg(test)]
mod tests;
