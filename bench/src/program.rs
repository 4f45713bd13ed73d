//! Finds the programs that are measured, sends commands to them, and counts their instructions with callgrind.

use crate::report::{Absent, BASE, Report};
use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command as Process, Stdio},
};
use tegmen_bench_line::{Certificates, Command, Failure, Reply};

/// The name of the directory for certificates. This directory is in the target directory.
pub(crate) const CERTIFICATES: &str = "bench-certificates";

/// A DTLS stack that can be measured.
pub(crate) struct Candidate {
    /// The name of the stack in reports.
    pub(crate) name: &'static str,
    /// The steps that a user must do to install the stack.
    pub(crate) install: &'static str,
    binary: Option<&'static str>,
}

/// All stacks that can be measured: Tegmen, and then every peer.
pub(crate) const CANDIDATES: [Candidate; 5] = [
    Candidate { name: "ours", install: "implement bench/src/ours.rs", binary: None },
    Candidate {
        name: "openssl",
        install: "apt-get install libssl-dev && bench/setup.sh openssl",
        binary: Some("tegmen-bench-openssl"),
    },
    Candidate {
        name: "tinydtls",
        install: "apt-get install autoconf automake libtool libclang-dev && bench/setup.sh tinydtls",
        binary: Some("tegmen-bench-tinydtls"),
    },
    Candidate {
        name: "wolfssl",
        install: "apt-get install autoconf automake libtool && bench/setup.sh wolfssl",
        binary: Some("tegmen-bench-wolfssl"),
    },
    Candidate { name: "dimpl", install: "bench/setup.sh dimpl", binary: Some("tegmen-bench-dimpl") },
];

/// Tegmen at another commit, with which `tegmen-bench compare` compares the working tree.
static BASE_CANDIDATE: Candidate = Candidate { name: BASE, install: "nothing, it is built", binary: None };

impl Candidate {
    /// Starts the program of the stack, and reads its version. Fails if the program is not built or does not start.
    pub(crate) fn start(&'static self) -> Result<Program, Failure> {
        self.start_as(self.words()?)
    }

    /// Starts Tegmen's program in the directory `programs`, which contains the programs of another commit.
    pub(crate) fn start_base(programs: &Path) -> Result<Program, Failure> {
        BASE_CANDIDATE.start_as(vec![programs.join("tegmen-bench").to_string_lossy().into_owned(), "ours".into()])
    }

    fn start_as(&'static self, words: Vec<String>) -> Result<Program, Failure> {
        let mut process = process(&words);
        let mut child = process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| Failure::new(format!("{}: {e}", words.join(" "))))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(Failure::new("no pipes"));
        };
        let mut program =
            Program { candidate: self, version: String::new(), words, child, input, output: BufReader::new(output) };
        match program.ask(Command::Version)? {
            Reply::Version(version) => {
                program.version = version;
                Ok(program)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Starts the program, lets it execute one command, and ends it. The settings of its allocator make the measured
    /// memory exact.
    pub(crate) fn ask_once(&self, command: Command) -> Result<Reply, Failure> {
        let mut process = process(&self.words()?);
        process.args(command.to_string().split(' ')).env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
        let output = process.output().map_err(|e| Failure::new(e.to_string()))?;
        String::from_utf8_lossy(&output.stdout).parse()
    }

    /// Returns the command line that starts the program of the stack. For Tegmen it starts this program again. For a
    /// peer it starts the built program of the peer.
    fn words(&self) -> Result<Vec<String>, Failure> {
        let Some(binary) = self.binary else {
            let exe = env::current_exe().map_err(|e| Failure::new(e.to_string()))?;
            return Ok(vec![exe.to_string_lossy().into_owned(), "ours".into()]);
        };
        Ok(vec![peer_binary(binary)?.to_string_lossy().into_owned()])
    }
}

/// Runs a program with callgrind, and returns the number of instructions from its start to its end.
pub(crate) fn instructions(words: &[String]) -> Result<u64, Failure> {
    let mut valgrind = Process::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).args(words);
    let output = valgrind.output().map_err(|e| Failure::new(format!("valgrind: {e} ({VALGRIND_INSTALL})")))?;
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    let collected = report.lines().find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok());
    collected.filter(|_| output.status.success()).ok_or_else(|| Failure::new(report))
}

/// Returns the path of a peer's program.
///
/// # Errors
/// If the program is not built.
pub(crate) fn peer_binary(name: &str) -> Result<PathBuf, Failure> {
    let path = target()?.join("bench-peers/release").join(name);
    if path.is_file() { Ok(path) } else { Err(Failure::new("not built")) }
}

/// Returns the path of the Python interpreter that has aiocoap. Fails if `bench/setup.sh aiocoap` has not installed it.
pub(crate) fn python() -> Result<PathBuf, Failure> {
    let path = target()?.join("bench-peers/python/bin/python");
    if path.is_file() { Ok(path) } else { Err(Failure::new("not installed")) }
}

/// Returns the target directory that contains this program.
pub(crate) fn target() -> Result<PathBuf, Failure> {
    let exe = env::current_exe().map_err(|e| Failure::new(e.to_string()))?;
    Ok(exe.parent().and_then(|profile| profile.parent()).map(PathBuf::from).unwrap_or_default())
}

/// Returns true if callgrind is installed. Otherwise adds to the report that it is absent, with the command that
/// installs it.
pub(crate) fn counts_instructions(report: &mut Report) -> bool {
    let reason = match valgrind_version() {
        Ok(version) => {
            report.header.versions.insert("valgrind", version);
            return true;
        }
        Err(reason) => reason,
    };
    report.absent.push(Absent { name: "valgrind", reason: reason.0, install: VALGRIND_INSTALL.into() });
    false
}

/// Returns the version that valgrind prints, or the reason why valgrind cannot run.
fn valgrind_version() -> Result<String, Failure> {
    let output = Process::new("valgrind").arg("--version").output();
    let output = output.map_err(|e| Failure::new(e.to_string()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The command that installs valgrind.
const VALGRIND_INSTALL: &str = "apt-get install valgrind";

/// A running program that measures one DTLS stack. The program waits for commands.
pub(crate) struct Program {
    /// The stack.
    pub(crate) candidate: &'static Candidate,
    /// The name and version that the stack itself reports.
    pub(crate) version: String,
    words: Vec<String>,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Returns the CPU time that the program needs for one command, in nanoseconds.
    pub(crate) fn nanoseconds(&mut self, command: Command) -> Result<u64, Failure> {
        match self.ask(command)? {
            Reply::Nanoseconds(nanoseconds) => Ok(nanoseconds),
            other => Err(unexpected(&other)),
        }
    }

    /// Counts the instructions for one command with callgrind. The count includes the start and the end of the program.
    pub(crate) fn instructions(&self, command: Command) -> Result<u64, Failure> {
        let mut words = self.words.clone();
        words.extend(command.to_string().split(' ').map(str::to_owned));
        instructions(&words)
    }

    fn ask(&mut self, command: Command) -> Result<Reply, Failure> {
        let mut line = String::new();
        writeln!(self.input, "{command}")
            .and_then(|()| self.input.flush())
            .and_then(|()| self.output.read_line(&mut line))
            .map_err(|e| Failure::new(format!("{}: {e}", self.candidate.name)))?;
        line.parse()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn process(words: &[String]) -> Process {
    let mut process = Process::new(&words[0]);
    process.args(&words[1..]);
    if let Ok(target) = target() {
        process.env(Certificates::DIRECTORY, target.join(CERTIFICATES));
    }
    process
}

fn unexpected(reply: &Reply) -> Failure {
    match reply {
        Reply::Absent(text) | Reply::Failed(text) => Failure::new(text.clone()),
        other => Failure::new(format!("unexpected reply: {other}")),
    }
}
