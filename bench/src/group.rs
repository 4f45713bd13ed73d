//! Groups of Axiom: their records compared with pairwise records, joins compared with introspections, and both compared
//! with other stacks.

mod joins;
mod peers;
mod records;

use crate::{
    Options,
    report::{Header, Report},
};
use tegmen_bench_line::Failure;

/// Measures records and joins.
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
