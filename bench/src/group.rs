//! Measures groups of Axiom. Their records are compared with records of DTLS sessions, and with the group protection of
//! other stacks. Joins are compared with introspections.

mod joins;
mod peers;
mod records;

use crate::{
    Options,
    report::{Header, Report},
};
use tegmen_bench_line::Failure;

/// Measures the records and the joins of groups.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = empty(options);
    records::rows(options.passes, &mut report)?;
    peers::rows(options.passes, &mut report)?;
    joins::rows(options, &mut report)?;
    Ok(report)
}

/// Measures joins alone.
pub(crate) fn joins(options: &Options) -> Result<Report, Failure> {
    let mut report = empty(options);
    joins::rows(options, &mut report)?;
    Ok(report)
}

fn empty(options: &Options) -> Report {
    Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() }
}
