//! Many sessions held at once, ours alone: what one costs when there are many.

use crate::{
    Options,
    program::CANDIDATES,
    report::{Absent, Header, OURS, Report, Samples},
};
use tegmen_bench_line::{Command, Failure, Reply};

/// Holds as many sessions as were asked for.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(1), rows: Vec::new(), absent: Vec::new() };
    let [ours, ..] = &CANDIDATES;
    match ours.ask_once(Command::Heap(options.count))? {
        Reply::Heap { client, server } => {
            for (end, bytes) in [("client", client), ("server", server)] {
                let mut samples = Samples::new(format!("{} sessions, {end}", options.count), "B each", false);
                samples.push(OURS, bytes as f64);
                report.rows.extend(samples.rows());
            }
        }
        Reply::Absent(reason) => {
            report.absent.push(Absent { name: ours.name, reason, install: ours.install.to_owned() });
        }
        other => return Err(Failure::new(other.to_string())),
    }
    Ok(report)
}
