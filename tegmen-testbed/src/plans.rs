//! The plans of the laboratory that do not reproduce a paper. Each plan is a file.

use crate::deployment::{Plan, Wrong};

/// The name of a plan, and the content of its file.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    /// The name of the plan for `tegmen lab run`.
    pub name: &'static str,
    text: &'static str,
}

/// All plans, in the order of the report.
pub const ALL: &[Named] = &[
    Named { name: "greenhouse", text: include_str!("../../examples/greenhouse.toml") },
    Named { name: "loss", text: include_str!("../plans/loss.toml") },
    Named { name: "bursts", text: include_str!("../plans/bursts.toml") },
    Named { name: "group", text: include_str!("../plans/group.toml") },
    Named { name: "hundred", text: include_str!("../plans/hundred.toml") },
];

impl Named {
    /// Reads the plan.
    ///
    /// # Errors
    /// [`Wrong`] if the file has an error. A test checks that no plan has an error.
    pub fn plan(&self) -> Result<Plan, Wrong> {
        Plan::parse(self.name, self.text)
    }
}

#[cfg(test)]
mod tests;
