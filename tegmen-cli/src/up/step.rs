//! A step of the demonstration of `tegmen up`, and the failure of a step.

use crate::output::{Failure, Output, printable_lines};
use serde_json::{Value, json};

/// A step of the demonstration that had the expected result, with the texts and values that are printed.
pub(super) struct Step {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The measured values of this run, as text.
    pub(super) facts: Vec<String>,
    pub(super) proved: &'static str,
    /// The same measured values as in `facts`, as JSON fields.
    pub(super) more: Value,
}

impl Step {
    /// Prints the step with this number.
    pub(super) fn print(self, out: Output, number: usize) {
        let Self { name, title, facts, proved, more } = self;
        out.line(
            || {
                let facts: String = facts.iter().map(|fact| format!("\n  {}", printable_lines(fact))).collect();
                format!("{number} {title}{facts}\n  Proved: {proved}.")
            },
            || {
                let mut object = json!({ "event": "step", "step": name, "number": number, "proved": proved });
                if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
                    object.extend(more);
                }
                object
            },
        );
    }
}

/// Makes the error for a step that did not have the expected result.
pub(super) fn unproved(step: &str, why: &impl std::fmt::Display) -> Failure {
    Failure::new(format!(
        "the step '{step}' has another outcome than the one that it proves: {why}; report this as a fault"
    ))
}
