//! Runs the console blocks of README.md as printed: `./ci.sh readme`.
//!
//! Every block that begins with ```` ```console ```` runs, in order, in one shell whose home directory is target/readme/home. A
//! line that begins with `$ ` is a command. Each line behind it must be the beginning of one that was printed since, in this
//! order; `...` stands for any lines. A block ```` ```console untested: REASON ```` does not run, and at most four may be so.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Blocks that may stay untested.
const UNTESTED: usize = 4;
/// Longest that one command may take.
const PATIENCE: Duration = Duration::from_secs(240);
/// Time that a command in the background has to begin listening.
const SETTLE: Duration = Duration::from_millis(700);
const MARK: &str = "--readme-command-ended--";

struct Block {
    line: usize,
    untested: Option<String>,
    commands: Vec<Step>,
}

struct Step {
    line: usize,
    command: String,
    expected: Vec<String>,
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("readme: {message}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let text = std::fs::read_to_string("README.md").map_err(|error| format!("README.md: {error}"))?;
    let blocks = blocks(&text);
    let untested: Vec<&Block> = blocks.iter().filter(|block| block.untested.is_some()).collect();
    for block in &untested {
        println!("README.md:{}: not run: {}", block.line, block.untested.as_deref().unwrap_or(""));
    }
    if untested.len() > UNTESTED || untested.iter().any(|block| block.untested.as_deref() == Some("")) {
        return Err(format!("at most {UNTESTED} blocks may be untested, each with a reason"));
    }
    let mut shell = Shell::start()?;
    for block in blocks.iter().filter(|block| block.untested.is_none()) {
        let began = Instant::now();
        for step in &block.commands {
            let mut printed = Vec::new();
            let place = format!("README.md:{}: {}", step.line, step.command);
            let status = shell.run(&step.command, &mut printed).map_err(|error| format!("{place}: {error}"))?;
            if status != "0" {
                return Err(format!("{place}: exit code {status}\n{}", printed.join("\n")));
            }
            if let Some(missing) = shell.missing(&step.expected, &mut printed) {
                return Err(format!("{place}: did not print \"{missing}\" but\n{}", printed.join("\n")));
            }
        }
        let commands = block.commands.len();
        println!(
            "README.md:{}: {commands} commands ran as printed, {:.1} s",
            block.line,
            began.elapsed().as_secs_f64()
        );
    }
    println!("readme: {} blocks, {} of them not run", blocks.len(), untested.len());
    Ok(())
}

/// The console blocks of a Markdown text.
fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(info) = line.strip_prefix("```console") else { continue };
        let untested = info.trim().strip_prefix("untested:").map(|reason| reason.trim().to_owned());
        let mut commands: Vec<Step> = Vec::new();
        for (at, line) in lines.by_ref().take_while(|(_, line)| !line.starts_with("```")) {
            match (line.strip_prefix("$ "), commands.last_mut()) {
                (Some(command), _) => {
                    commands.push(Step { line: at + 1, command: command.to_owned(), expected: Vec::new() });
                }
                (None, Some(step)) if step.command.ends_with('\\') => {
                    step.command.truncate(step.command.len() - 1);
                    step.command.push_str(line.trim_start());
                }
                // The lines of a here-document, up to the last one.
                (None, Some(step)) if step.command.contains("<<'END'") && !step.command.ends_with("\nEND") => {
                    step.command.push('\n');
                    step.command.push_str(line);
                }
                (None, Some(step)) => step.expected.push(line.trim_end().to_owned()),
                (None, None) => {}
            }
        }
        blocks.push(Block { line: at + 1, untested, commands });
    }
    blocks
}

/// A shell that stays for all blocks, so that its directory and its background jobs do, too.
struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    fn start() -> Result<Self, String> {
        let root = std::env::current_dir().map_err(|error| error.to_string())?;
        let (home, installed) = (root.join("target/readme/home"), root.join("target/readme/installed"));
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(&home).map_err(|error| format!("{}: {error}", home.display()))?;
        let was_home = std::env::var("HOME").unwrap_or_default();
        let kept = |name: &str, folder: &str| std::env::var(name).unwrap_or_else(|_| format!("{was_home}/{folder}"));
        let path = std::env::var("PATH").unwrap_or_default();
        let mut child = Command::new("bash")
            .arg("-m")
            .env("CARGO_HOME", kept("CARGO_HOME", ".cargo"))
            .env("RUSTUP_HOME", kept("RUSTUP_HOME", ".rustup"))
            .env("CARGO_INSTALL_ROOT", &installed)
            .env("PATH", format!("{}:{path}", Path::new(&installed).join("bin").display()))
            .env("HOME", &home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()) // bash says there that it has no terminal
            .process_group(0)
            .spawn()
            .map_err(|error| format!("bash cannot be run: {error}"))?;
        let mut input = child.stdin.take().ok_or("bash has no standard input")?;
        let output = child.stdout.take().ok_or("bash has no standard output")?;
        writeln!(input, "exec 2>&1").map_err(|error| error.to_string())?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, lines })
    }

    /// Runs a command, adds its lines to `printed` and returns its exit code.
    fn run(&mut self, command: &str, printed: &mut Vec<String>) -> Result<String, String> {
        // A server still has its port for a moment after `kill`, and nobody types that fast. `jobs` takes a job that ended off
        // the list, so that the next one is %1 again, as at a prompt.
        let ended = if command.starts_with("kill %") { "[ $status = 0 ] && wait; jobs >/dev/null" } else { ":" };
        let mark = format!("status=$?; {ended}; echo \"{MARK} $status\"");
        writeln!(self.input, "{command}\n{mark}").map_err(|error| error.to_string())?;
        let end = Instant::now() + PATIENCE;
        let status = loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.split_once(MARK) {
                    // A last line without a line break stands in front of the mark.
                    Some((before, status)) => {
                        printed.extend((!before.is_empty()).then(|| before.to_owned()));
                        break status.trim().to_owned();
                    }
                    None => printed.push(line),
                },
                Err(RecvTimeoutError::Timeout) => return Err(format!("did not end within {} s", PATIENCE.as_secs())),
                Err(RecvTimeoutError::Disconnected) => return Err("the shell ended".to_owned()),
            }
        };
        if command.trim_end().ends_with('&') {
            std::thread::sleep(SETTLE);
        }
        Ok(status)
    }

    /// The first of the expected lines that was not printed. A background job may print late, so it waits a moment.
    fn missing<'e>(&self, expected: &'e [String], printed: &mut Vec<String>) -> Option<&'e str> {
        let end = Instant::now() + 4 * SETTLE;
        loop {
            let mut seen = printed.iter();
            let missing = expected
                .iter()
                .filter(|line| !line.is_empty() && line.trim() != "...")
                .find(|wanted| !seen.any(|line| line.starts_with(wanted.as_str())))?;
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => printed.push(line),
                Err(_) => return Some(missing),
            }
        }
    }
}

impl Drop for Shell {
    /// Ends the background jobs that are left; each has a process group of its own.
    fn drop(&mut self) {
        let _ = writeln!(self.input, "kill $(jobs -p) 2>/dev/null; exit");
        let _ = self.child.wait();
    }
}
