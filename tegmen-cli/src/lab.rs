//! `tegmen lab`: runs the experiments of the papers, and measures the motes.

mod messages;
mod rekeying;

use crate::output::{Failure, Output};
use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::json;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tegmen_testbed::advice::Advice;
use tegmen_testbed::figure::{self, Figure};
use tegmen_testbed::mote::Protection;
use tegmen_testbed::papers::plans::Inputs;
use tegmen_testbed::papers::{self, agreement, report};
use tegmen_testbed::runs::{self, Run, Store, parts};
use tegmen_testbed::{deployment, footprint, parallel, pcap, plans, scenario};

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen lab list\n  tegmen lab run blink-bytes --json\n  tegmen lab footprint")]
pub(crate) struct Lab {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the plans.
    List,
    /// Run a plan: one figure or table of a paper, measured with the protocol stack of Tegmen.
    #[command(
        after_help = "Examples:\n  tegmen lab run blink-bytes --json\n  tegmen lab run loss --seeds 1..50 --out here.csv"
    )]
    Run {
        /// Name of the plan, from `tegmen lab list`, or a file that describes a deployment.
        plan: String,
        /// First and last seed, such as 1..50, instead of the seeds in the file. Other machines can run the other
        /// seeds.
        #[arg(long)]
        seeds: Option<String>,
        /// Write every run to this file, as CSV. `tegmen lab merge` merges such files.
        #[arg(long)]
        out: Option<PathBuf>,
        #[command(flatten)]
        kept: Kept,
    },
    /// Merge the files of `run --seeds FIRST..LAST --out FILE` from several machines into the result of one run.
    #[command(after_help = "Example:\n  tegmen lab merge loss here.csv there.csv --out all.csv")]
    Merge {
        /// The plan, or the file that describes the deployment.
        plan: String,
        /// The files to merge.
        #[arg(required = true)]
        parts: Vec<PathBuf>,
        /// Write every run to this file, as CSV.
        #[arg(long, short)]
        out: PathBuf,
    },
    /// Compare the protections that a deployment can afford: bytes, delay, delivery, battery life and memory of each.
    #[command(after_help = "Example:\n  tegmen lab plan examples/greenhouse.toml")]
    Plan {
        /// The file that describes the deployment.
        deployment: PathBuf,
        #[command(flatten)]
        kept: Kept,
    },
    /// Run every plan and write the report: one HTML file that a browser opens from disk, with its SVG and CSV files in
    /// the same directory.
    #[command(
        after_help = "Examples:\n  tegmen lab report && xdg-open target/lab/index.html\n  tegmen lab report my-deployment.toml\n  tegmen lab report --finished"
    )]
    Report {
        /// Files that describe your own deployments. The report shows them before the plans of the laboratory.
        deployments: Vec<PathBuf>,
        /// Compute nothing: show only the plans whose finished runs are kept. For each other plan, name the command
        /// that runs it.
        #[arg(long)]
        finished: bool,
        /// Directory for the report.
        #[arg(long, default_value = "target/lab")]
        folder: PathBuf,
        #[command(flatten)]
        kept: Kept,
    },
    /// Write the frames that a deployment sends by radio to a capture that Wireshark and tshark decode.
    #[command(after_help = "Example:\n  tegmen lab pcap examples/greenhouse.toml --out greenhouse.pcap")]
    Pcap {
        /// A plan, or a file that describes a deployment. If the file varies settings, the first value of each setting
        /// is used. The run has the first seed in the file.
        deployment: String,
        /// Protection to use.
        #[arg(long, default_value = "coap+dtls")]
        protection: String,
        /// Capture file to write.
        #[arg(long)]
        out: PathBuf,
    },
    /// Build the firmware images, measure them under QEMU, and compare the measurements with the committed budget.
    #[command(
        after_help = "Examples:\n  tegmen lab footprint\n  tegmen lab footprint --update   write the measurements as the new budget"
    )]
    Footprint {
        /// Write the measurements as the new budget.
        #[arg(long)]
        update: bool,
        /// The source tree of Tegmen.
        #[arg(long, default_value = ".")]
        project: PathBuf,
    },
}

/// The option that names the directory of finished runs.
#[derive(Args)]
struct Kept {
    /// Directory that keeps finished runs. If a run is kept there, the same program does not compute it again.
    #[arg(long, default_value = "target/lab/runs")]
    runs: PathBuf,
}

impl Kept {
    fn store(&self) -> Result<Store, Failure> {
        let unusable = |error| {
            let folder = self.runs.display();
            Failure::usage(format!(
                "--runs {folder}: finished runs cannot be kept there ({error}): name a folder that can be written"
            ))
        };
        let store = Store::at(&self.runs).map_err(unusable)?;
        // Whether it can be written is known before anything is computed.
        let probe = self.runs.join(format!("probe-{}", std::process::id()));
        std::fs::write(&probe, []).and_then(|()| std::fs::remove_file(&probe)).map_err(unusable)?;
        Ok(store)
    }

    /// Starts a thread that waits for an interrupt or a termination signal. The thread then prints how many runs are
    /// kept and where, and ends the program.
    fn say_when_stopped(&self, out: Output, done: &Arc<AtomicUsize>, all: &Arc<AtomicUsize>) {
        let (folder, done, all) = (self.runs.display().to_string(), done.clone(), all.clone());
        std::thread::spawn(move || {
            let Ok(runtime) = crate::output::runtime() else { return };
            runtime.block_on(async { crate::serve::ended().await });
            let (done, all) = (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed));
            let message = format!(
                "stopped: {done} of {all} runs are finished and kept in {folder}; the same command computes only the rest"
            );
            out.failure(&Failure { message, code: STOPPED });
            std::process::exit(STOPPED.into());
        });
    }
}

/// The name of the plan that compares the simulator with ns-3. Its results have another form than the results of the
/// other plans.
const NS3: &str = "ns3-agreement";
const ABOUT_NS3: &str = "the radio and MAC of the simulator beside the model lr-wpan of ns-3, case by case";

/// The functions that make the inputs of some plans: the messages of access control, and the costs of rekeying.
const INPUTS: Inputs<'static> = Inputs {
    messages: &messages::messages,
    rekeying: &|| rekeying::rekeying().map_err(|failure| io::Error::other(failure.message)),
};

/// Runs a plan of a paper, unless its figures are kept already. Prints the figures.
fn run_paper(out: Output, plan: &papers::plans::Plan, kept: &Kept) -> Result<ExitCode, Failure> {
    let store = kept.store()?;
    let progress = Progress::new();
    let figures = plan.figures(&store, &INPUTS, u64::MAX, &|done, all| progress.set(done, all));
    progress.end();
    Ok(print_figures(out, &figures.map_err(Failure::io)?))
}

/// Prints the figures of a paper beside the measured figures. Returns the exit code 1 if a measured figure should agree
/// with a figure of the paper, but differs.
fn print_figures(out: Output, figures: &[Figure]) -> ExitCode {
    let differs = figures.iter().any(|figure| figure.verdict == figure::DIFFERS);
    print_rows(out, figures, || figure::table(figures));
    if differs { ExitCode::from(1) } else { ExitCode::SUCCESS }
}

fn run_agreement(out: Output, kept: &Kept) -> Result<ExitCode, Failure> {
    let store = kept.store()?;
    let progress = Progress::new();
    let rows = agreement::kept_or_new(&store, u64::MAX, |done, all| progress.set(done, all));
    progress.end();
    let differs = rows.iter().any(|row| row.verdict == agreement::DIFFERS);
    print_rows(out, &rows, || agreement::table(&rows));
    Ok(if differs { ExitCode::from(1) } else { ExitCode::SUCCESS })
}

/// Finds a plan of the laboratory by its name, or reads a plan from a file.
fn find_plan(name: &str) -> Result<deployment::Plan, Failure> {
    match plans::ALL.iter().find(|named| named.name == name) {
        Some(named) => named.plan().map_err(Failure::new),
        None if name.ends_with(".toml") => read_file(Path::new(name)),
        None => Err(Failure::usage(format!(
            "there is no plan {name}: `tegmen lab list` names those that are; a file ends with .toml"
        ))),
    }
}

/// Returns the commit of the checkout in which the program runs, or a text which states that there is no checkout.
fn commit() -> String {
    let git = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let text = git.ok().filter(|git| git.status.success()).and_then(|git| String::from_utf8(git.stdout).ok());
    text.map_or_else(|| "unknown (not a checkout)".into(), |text| text.trim().to_owned())
}

fn read_file(path: &Path) -> Result<deployment::Plan, Failure> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
    deployment::Plan::parse(&name, &text).map_err(Failure::usage)
}

/// Runs a plan, unless its runs are kept already. Prints how much faster than real time the new runs were.
fn run_plan(out: Output, plan: &deployment::Plan, kept: &Kept) -> Result<Vec<Run>, Failure> {
    let store = kept.store()?;
    let progress = Progress::new();
    kept.say_when_stopped(out, &progress.done, &progress.all);
    let runs = runs::all(plan, &store, |done, all| progress.set(done, all));
    progress.end();
    out.text(&plan.about);
    let speeds: Vec<f64> = runs.iter().filter_map(Run::speed).collect();
    if speeds.len() < runs.len() {
        out.text(format!("{} of {} runs were kept from before", runs.len() - speeds.len(), runs.len()));
    }
    if !speeds.is_empty() {
        let slowest = speeds.into_iter().fold(f64::INFINITY, f64::min);
        out.text(format!("each run at least {slowest:.0} times faster than real time, on one core"));
    }
    Ok(runs)
}

fn write_runs(file: &Path, plan: &deployment::Plan, runs: &[Run]) -> Result<(), Failure> {
    let written = parts::write(plan, runs).and_then(|text| std::fs::write(file, text));
    written.map_err(|error| Failure::new(format!("{}: {error}", file.display())))
}

/// Prints the rows of a result: with `--json` one JSON object per line, and otherwise the text that `table` returns.
fn print_rows<R: Serialize>(out: Output, rows: &[R], table: impl FnOnce() -> String) {
    for row in rows.iter().filter(|_| out.json) {
        out.line(String::new, || serde_json::to_value(row).unwrap_or_default());
    }
    if !out.json {
        out.text(table().trim_end());
    }
}

/// A progress bar with the remaining time. It is shown only on a terminal. `done` is the number of finished runs, and
/// `all` is the number of all runs.
struct Progress {
    bar: indicatif::ProgressBar,
    done: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

impl Progress {
    fn new() -> Self {
        let style = indicatif::ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {eta} left {msg}");
        let bar = indicatif::ProgressBar::new(0);
        let bar = style.map(|style| bar.clone().with_style(style)).unwrap_or(bar);
        Self { bar, done: Arc::default(), all: Arc::default() }
    }

    fn set(&self, done: usize, all: usize) {
        self.bar.set_length(all as u64);
        self.bar.set_position(done as u64);
        // Threads report in any order.
        self.done.fetch_max(done, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }

    /// Sets the name of the plan that runs now. If this name differs from the name of the previous plan, the count of
    /// finished runs begins with 0 again.
    fn begin(&self, what: &str) {
        if self.bar.message() != what {
            self.bar.set_message(what.to_owned());
            self.done.store(0, Ordering::Relaxed);
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// The exit code of a program that an interrupt ended: 128 plus the number of the signal.
const STOPPED: u8 = 130;

/// Runs a plan, of a paper or from a file.
fn run(
    out: Output,
    plan: String,
    seeds: Option<String>,
    file: Option<PathBuf>,
    kept: &Kept,
) -> Result<ExitCode, Failure> {
    let of_paper = papers::plans::ALL.iter().find(|known| known.name == plan);
    if (of_paper.is_some() || plan == NS3) && (seeds.is_some() || file.is_some()) {
        return Err(Failure::usage(format!("{plan} is run whole: without --seeds and --out")));
    }
    match of_paper {
        Some(known) => return run_paper(out, known, kept),
        None if plan == NS3 => return run_agreement(out, kept),
        None => {}
    }
    let mut plan = find_plan(&plan)?;
    if let Some(seeds) = seeds {
        let seeds = parts::seeds(&seeds).map_err(|what| Failure::usage(format!("--seeds {what}")))?;
        parts::set_seeds(&mut plan, &seeds);
    }
    let runs = run_plan(out, &plan, kept)?;
    if let Some(file) = file {
        write_runs(&file, &plan, &runs)?;
    }
    let summaries = runs::summarize(&plan, &runs);
    print_rows(out, &summaries, || runs::table(&summaries));
    Ok(ExitCode::SUCCESS)
}

/// Merges the runs of several machines.
fn merge(out: Output, plan: &str, parts: &[PathBuf], file: &Path) -> Result<ExitCode, Failure> {
    let plan = find_plan(plan)?;
    let read = |path: &PathBuf| {
        let name = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => Ok((name, text)),
            Err(error) => Err(Failure::usage(format!("{name}: {error}"))),
        }
    };
    let texts = parts.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let runs = runs::parts::merge(&plan, &texts).map_err(Failure::usage)?;
    write_runs(file, &plan, &runs)?;
    let summaries = runs::summarize(&plan, &runs);
    print_rows(out, &summaries, || runs::table(&summaries));
    Ok(ExitCode::SUCCESS)
}

/// Writes the frames of one run to a capture file.
fn capture(out: Output, deployment: &str, protection: &str, file: &Path) -> Result<ExitCode, Failure> {
    let plan = find_plan(deployment)?;
    let case = plan.cases.first().ok_or_else(|| Failure::usage("the file has no case"))?;
    let known = match case.deployment.traffic.group.is_some() {
        true => Protection::OF_GROUPS.to_vec(),
        false => [&Protection::ALL[..], &Protection::NAMED].concat(),
    };
    let names: Vec<_> = known.iter().map(|known| known.name()).collect();
    let protection = known.iter().copied().find(|known| known.name() == protection);
    let protection = protection.ok_or_else(|| Failure::usage(format!("--protection: one of {}", names.join(", "))))?;
    let seed = case.deployment.run.first_seed;
    // On a thread with the stack that large networks need.
    let once = |(): &()| scenario::run(&case.deployment, protection, seed, true).1;
    let frames = parallel::each(&[()], once, |_| {}).concat();
    let named = |error| Failure::new(format!("{}: {error}", file.display()));
    let mut capture = std::io::BufWriter::new(std::fs::File::create(file).map_err(named)?);
    pcap::write(&frames, &mut capture).map_err(named)?;
    std::io::Write::flush(&mut capture).map_err(named)?;
    let name = file.display().to_string();
    out.line(|| format!("{name}: {} frames", frames.len()), || json!({ "file": name, "frames": frames.len() }));
    Ok(ExitCode::SUCCESS)
}

/// Reads the deployments of the user. Returns each deployment with the name of its section in the report. No other
/// section has the same name.
fn own_deployments(files: &[PathBuf]) -> Result<Vec<(String, deployment::Plan)>, Failure> {
    let mut plans: Vec<(String, deployment::Plan)> = Vec::new();
    for path in files {
        let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let name = format!("own-{}", stem.chars().map(plain).collect::<String>());
        if plans.iter().any(|(known, _)| *known == name) {
            let path = path.display();
            return Err(Failure::usage(format!("{path}: another deployment has this file name: rename one")));
        }
        plans.push((name, read_file(path)?));
    }
    Ok(plans)
}

/// Runs every plan, or with `finished` only reads the kept runs, and writes the report.
fn write_report(
    out: Output,
    deployments: &[PathBuf],
    finished: bool,
    folder: &Path,
    kept: &Kept,
) -> Result<ExitCode, Failure> {
    let own = own_deployments(deployments)?;
    let named = |named: &plans::Named| Ok((named.name.to_owned(), named.plan().map_err(Failure::new)?));
    let plans = plans::ALL.iter().map(named).collect::<Result<Vec<_>, Failure>>()?;
    let store = kept.store()?;
    let progress = Progress::new();
    kept.say_when_stopped(out, &progress.done, &progress.all);
    let (commit, inputs) = (commit(), if finished { None } else { Some(&INPUTS) });
    let content = report::Content { commit: &commit, seeds: u64::MAX, deployments: [&own, &plans], inputs };
    let file = report::write(folder, &store, &content, |what, done, all| {
        progress.begin(what);
        progress.set(done, all);
    });
    progress.end();
    let file = file.map_err(|error| Failure::new(format!("{}: {error}", folder.display())))?;
    let name = file.display().to_string();
    out.line(|| name.clone(), || json!({ "report": name }));
    Ok(ExitCode::SUCCESS)
}

impl Lab {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::List => {
                let of_papers = papers::plans::ALL.iter().map(|plan| (plan.name, plan.about));
                for (name, about) in of_papers.chain([(NS3, ABOUT_NS3)]) {
                    out.line(|| format!("{name:16} {about}"), || json!({ "plan": name, "about": about }));
                }
                for named in plans::ALL {
                    let about = named.plan().map_err(Failure::new)?.about;
                    out.line(|| format!("{:16} {about}", named.name), || json!({ "plan": named.name, "about": about }));
                }
                Ok(ExitCode::SUCCESS)
            }
            Command::Run { plan, seeds, out: file, kept } => run(out, plan, seeds, file, &kept),
            Command::Merge { plan, parts, out: file } => merge(out, &plan, &parts, &file),
            Command::Plan { deployment, kept } => {
                let plan = read_file(&deployment)?;
                let advice = Advice::of(runs::summarize(&plan, &run_plan(out, &plan, &kept)?));
                out.line(|| advice.text().trim_end().to_owned(), || serde_json::to_value(&advice).unwrap_or_default());
                Ok(ExitCode::SUCCESS)
            }
            Command::Pcap { deployment, protection, out: file } => capture(out, &deployment, &protection, &file),
            Command::Report { deployments, finished, folder, kept } => {
                write_report(out, &deployments, finished, &folder, &kept)
            }
            Command::Footprint { update, project } => {
                let options = footprint::Options { json: out.json, update };
                if !project.join("firmware/budget.toml").exists() {
                    let project = project.display();
                    return Err(Failure::usage(format!(
                        "{project} is not the source tree of Tegmen: go there, or name it with --project"
                    )));
                }
                match footprint::run(&project, &options) {
                    Ok(footprint::Verdict::WithinBudget) => Ok(ExitCode::SUCCESS),
                    Ok(footprint::Verdict::OverBudget) => Ok(ExitCode::from(1)),
                    Err(error) => Err(Failure::new(error)),
                }
            }
        }
    }
}
