//! Measures DTLS 1.2 with PSK and CCM_8. The client and the server of a stack run in one thread. In each pass all
//! stacks are measured in turn.

use crate::{
    Options, certificates, limit,
    program::{CANDIDATES, Candidate, Program, counts_instructions},
    report::{Absent, Header, Limit, Report, Samples},
};
use tegmen_bench_line::{Command, Failure, Reply};

/// Measures every stack that is installed.
pub(crate) fn run(options: &Options) -> Result<Report, Failure> {
    let mut report = Report { header: Header::new(options.passes), rows: Vec::new(), absent: Vec::new() };
    let mut programs = present(&mut report);
    let names: Vec<&'static Candidate> = programs.iter().map(|program| program.candidate).collect();
    measure(options, &mut programs, &mut report)?;
    drop(programs);
    report.rows.extend(certificates::rows(&names, options.passes, &mut report.header.notes)?);
    eprintln!("records at the limit");
    report.rows.extend(limit::rows(options.passes)?);
    report.rows.extend(sizes(&names)?);
    report.header.notes.push(limit::NOTE.into());
    Ok(report)
}

/// Adds the rows of handshakes and records. Each row compares Tegmen with another program.
pub(crate) fn measure(options: &Options, programs: &mut [Program], report: &mut Report) -> Result<(), Failure> {
    let counts = options.instructions && counts_instructions(report);
    for operation in OPERATIONS {
        eprintln!("{}", operation.name);
        // Not every stack can do everything.
        let mut able: Vec<&mut Program> = Vec::new();
        for program in programs.iter_mut() {
            match program.nanoseconds((operation.of)(1)) {
                Ok(_) => able.push(program),
                Err(reason) => {
                    report.header.notes.push(format!("{}: {}: {reason}", operation.name, program.candidate.name));
                }
            }
        }
        let mut samples = timed(&operation, &mut able, options.passes)?;
        if counts {
            for program in &able {
                let (few, many) = operation.counted;
                let counts = (program.instructions((operation.of)(few))?, program.instructions((operation.of)(many))?);
                let each = (counts.1 - counts.0) as f64 / f64::from(many - few);
                samples.instructions.push((program.candidate.name, each));
            }
        }
        report.rows.extend(samples.rows());
    }
    if counts {
        let note = "instructions: callgrind, difference of two lengths; it shows programs no SHA-NI";
        report.header.notes.push(note.into());
    }
    Ok(())
}

/// Starts every stack that is installed. If a stack is not installed, the report lists it as absent.
fn present(report: &mut Report) -> Vec<Program> {
    let mut programs = Vec::new();
    for candidate in &CANDIDATES {
        match candidate.start() {
            Ok(program) => {
                report.header.versions.insert(candidate.name, program.version.clone());
                programs.push(program);
            }
            Err(reason) => report.absent.push(Absent {
                name: candidate.name,
                reason: reason.0,
                install: candidate.install.to_owned(),
            }),
        }
    }
    programs
}

/// An operation that is repeated many times and measured.
struct Operation {
    name: &'static str,
    /// Returns the command that repeats the operation this number of times.
    of: fn(u32) -> Command,
    /// Number of repetitions in one pass. They take about a tenth of a second.
    timed: u32,
    /// Two numbers of repetitions. The difference between the instructions of the two runs, divided by the difference
    /// of the two numbers, gives the instructions of one repetition.
    counted: (u32, u32),
    /// Two limits, each `None` if there is no limit. The first limits the ratio of Tegmen's result to the result of
    /// each peer. The second limits the number of processor instructions that Tegmen executes for one repetition.
    demanded: (Option<f64>, Option<Limit>),
}

const OPERATIONS: [Operation; 4] = [
    Operation {
        name: "PSK-CCM8 handshake with cookie",
        of: Command::Handshakes,
        timed: 1_000,
        counted: (5, 25),
        demanded: (Some(2.0), Some(Limit::Below(400_000.0))),
    },
    Operation {
        name: "64 B record, seal + open",
        of: |count| Command::Records { count, size: 64 },
        timed: 40_000,
        counted: (100, 600),
        demanded: (Some(2.0), None),
    },
    Operation {
        name: "1024 B record, seal + open",
        of: |count| Command::Records { count, size: 1024 },
        timed: 10_000,
        counted: (50, 250),
        demanded: (Some(1.4), None),
    },
    // Last, because a program that has resumed a session continues to issue tickets.
    Operation {
        name: "PSK-CCM8 handshake resumed with a ticket",
        of: Command::Resumptions,
        timed: 2_000,
        counted: (5, 25),
        demanded: (Some(2.0), None),
    },
];

/// Measures the operation with every program in each pass. Each pass begins with another program, so that no program is
/// always the first.
fn timed(operation: &Operation, programs: &mut [&mut Program], passes: usize) -> Result<Samples, Failure> {
    let mut samples = Samples::new(operation.name, "1/CPU s", true);
    samples.demanded = operation.demanded;
    let count = programs.len();
    for pass in 0..passes {
        for turn in 0..count {
            let program = &mut programs[(pass + turn) % count];
            let nanoseconds = program.nanoseconds((operation.of)(operation.timed))?;
            samples.push(program.candidate.name, f64::from(operation.timed) * 1e9 / nanoseconds as f64);
        }
    }
    Ok(samples)
}

/// Measures the numbers that are the same in every pass: the heap memory of a session, and the bytes and datagrams of a
/// handshake.
fn sizes(candidates: &[&'static Candidate]) -> Result<Vec<crate::report::Row>, Failure> {
    let mut client = Samples::new("heap of an established session, client", "B", false);
    let mut server = Samples::new("heap of an established session, server", "B", false);
    let mut bytes = Samples::new("bytes of a handshake", "B", false);
    let mut datagrams = Samples::new("datagrams of a handshake", "1", false);
    for candidate in candidates {
        for command in [Command::Heap(SESSIONS), Command::Wire] {
            match candidate.ask_once(command)? {
                Reply::Heap { client: at_client, server: at_server } => {
                    client.push(candidate.name, at_client as f64);
                    server.push(candidate.name, at_server as f64);
                }
                Reply::Wire { bytes: sent, datagrams: count } => {
                    bytes.push(candidate.name, sent as f64);
                    datagrams.push(candidate.name, count as f64);
                }
                other => eprintln!("{}: {command}: {other}", candidate.name),
            }
        }
    }
    Ok([client, server, bytes, datagrams].iter().flat_map(Samples::rows).collect())
}

/// Number of sessions that are open at the same time when the heap memory of one session is measured.
const SESSIONS: u32 = 2_000;
