//! Runs the commands in the console blocks of README.md and of the pages in docs/, and compares their output with the
//! blocks: `./ci.sh readme`.
//!
//! Every block that begins with ```` ```console ```` is run, in the order of the file. All blocks of a file share a
//! shell and a home directory. For README.md the shell begins in the clone of the project; for a page it begins in its
//! empty home directory. A line that begins with `$ ` is a command. The lines below it are its expected output: each
//! must be the beginning of a printed line, in this order. `...` at the end of a line stands for the rest of the line.
//! A line with only `...` stands for any number of lines. A block ```` ```console untested: REASON ```` is not run.
//! [`UNTESTED`] limits the number of such blocks.
//!
//! If the program gets names of files as arguments, it checks only these files. The `tegmen` that an earlier run of
//! README.md has installed must then exist.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Maximum number of untested blocks in all files together. This number may only be reduced.
const UNTESTED: usize = 5;
/// Maximum time that one command may take.
const PATIENCE: Duration = Duration::from_secs(240);
/// Time that a command in the background gets for its start. If the command starts a server, the time begins when the
/// server has opened its first UDP socket.
const SETTLE: Duration = Duration::from_secs(2);
const MARK: &str = "--readme-command-ended--";
const README: &str = "README.md";

/// A file, with the console blocks that it contains.
struct Page {
    name: String,
    blocks: Vec<Block>,
}

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
    let began = Instant::now();
    let pages = pages()?;
    let (mut blocks, mut untested) = (0, 0);
    for page in &pages {
        blocks += page.blocks.len();
        for block in &page.blocks {
            let Some(reason) = &block.untested else { continue };
            let place = format!("{}:{}", page.name, block.line);
            if reason.is_empty() {
                return Err(format!("{place}: the reason is missing: ```console untested: REASON"));
            }
            println!("{place}: not run: {reason}");
            untested += 1;
        }
    }
    if untested > UNTESTED {
        return Err(format!("{untested} blocks are untested, and at most {UNTESTED} may be: let one run"));
    }
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    if let Some(other) = chosen.iter().find(|name| pages.iter().all(|page| page.name != **name)) {
        return Err(format!("{other} is neither {README} nor a page in docs/ with a console block"));
    }
    for page in pages.iter().filter(|page| chosen.is_empty() || chosen.contains(&page.name)) {
        page.run()?;
    }
    println!(
        "readme: {blocks} blocks in {} files, {untested} of them not run, {} s",
        pages.len(),
        began.elapsed().as_secs()
    );
    Ok(())
}

/// Returns README.md, and then each page in docs/ that has a console block, sorted by name.
fn pages() -> Result<Vec<Page>, String> {
    let entries = std::fs::read_dir("docs").map_err(|error| format!("docs: {error}"))?;
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.ends_with(".md"))
        .map(|name| format!("docs/{name}"))
        .collect();
    names.sort();
    names.insert(0, README.to_owned());
    let mut pages = Vec::new();
    for name in names {
        let text = std::fs::read_to_string(&name).map_err(|error| format!("{name}: {error}"))?;
        let blocks = blocks(&text);
        if !blocks.is_empty() {
            pages.push(Page { name, blocks });
        }
    }
    Ok(pages)
}

impl Page {
    fn run(&self) -> Result<(), String> {
        let mut shell = Shell::start(self.name == README)?;
        for block in self.blocks.iter().filter(|block| block.untested.is_none()) {
            let began = Instant::now();
            for step in &block.commands {
                self.check(step, &mut shell)?;
            }
            println!(
                "{}:{}: {} commands ran as printed, {:.1} s",
                self.name,
                block.line,
                block.commands.len(),
                began.elapsed().as_secs_f64()
            );
        }
        Ok(())
    }

    /// Runs one command, and compares its output with the expected lines.
    fn check(&self, step: &Step, shell: &mut Shell) -> Result<(), String> {
        let mut printed = Vec::new();
        let place = format!("{}:{}: {}", self.name, step.line, step.command);
        let status = shell.run(&step.command, &mut printed).map_err(|error| format!("{place}: {error}"))?;
        if status != "0" {
            return Err(format!("{place}: exit code {status}\n{}", printed.join("\n")));
        }
        match shell.missing(&step.expected, &mut printed) {
            Some(missing) => Err(format!("{place}: did not print \"{missing}\" but\n{}", printed.join("\n"))),
            None => Ok(()),
        }
    }
}

/// Returns the console blocks of a Markdown text.
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

/// A shell that runs all blocks of a file. So its current directory and its background jobs remain from block to block.
struct Shell {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Shell {
    /// Starts a shell with an empty home directory. It begins in the clone of the project if `in_clone` is true, and
    /// otherwise in the home directory.
    fn start(in_clone: bool) -> Result<Self, String> {
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
            .current_dir(if in_clone { &root } else { &home })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null()) // bash prints there that it has no terminal
            .process_group(0)
            .spawn()
            .map_err(|error| format!("bash cannot be run: {error}"))?;
        let mut input = child.stdin.take().ok_or("bash has no standard input")?;
        let output = child.stdout.take().ok_or("bash has no standard output")?;
        writeln!(input, "exec 2>&1").map_err(|error| error.to_string())?;
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
                if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, input, lines })
    }

    /// Runs a command. Adds the printed lines to `printed`, and returns the exit code.
    fn run(&mut self, command: &str, printed: &mut Vec<String>) -> Result<String, String> {
        // A server still has its port for a moment after `kill`, and nobody types that fast. `jobs` takes a job that ended off
        // the list, so that the next one is %1 again, as at a prompt.
        let ended = match command.strip_prefix("kill %") {
            Some(jobs) => format!("[ $status = 0 ] && wait %{jobs}; jobs >/dev/null"),
            None => ":".to_owned(),
        };
        let mark = format!("status=$?; {ended}; echo \"{MARK} $status\"");
        writeln!(self.input, "{command}\n{mark}").map_err(|error| error.to_string())?;
        let end = Instant::now() + PATIENCE;
        let status = loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.split_once(MARK) {
                    // A last line without a line break precedes the mark on the same line.
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
        let without_comment = command.split_once(" #").map_or(command, |(before, _)| before);
        if without_comment.trim_end().ends_with('&') {
            if command.contains("tegmen serve") {
                self.await_server(printed)?;
            }
            std::thread::sleep(SETTLE);
        }
        Ok(status)
    }

    /// Waits until the background job that was started last has a UDP socket. On a busy machine a server needs some
    /// time to open its socket.
    fn await_server(&mut self, printed: &mut Vec<String>) -> Result<(), String> {
        self.run("echo $!", printed)?;
        let number = printed.iter().rfind(|line| !line.is_empty() && line.bytes().all(|sign| sign.is_ascii_digit()));
        let process = Path::new("/proc").join(number.ok_or("the shell printed no number of the process")?);
        let end = Instant::now() + PATIENCE;
        while process.exists() && !has_udp_socket(&process) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Returns the first expected line that was not printed; `None` if all were printed. A background job may print
    /// late, so the function waits a short time for missing lines.
    fn missing<'e>(&self, expected: &'e [String], printed: &mut Vec<String>) -> Option<&'e str> {
        let end = Instant::now() + 2 * SETTLE;
        loop {
            let mut seen = printed.iter();
            let missing = expected
                .iter()
                .filter(|line| !line.is_empty() && line.trim() != "...")
                .find(|wanted| !seen.any(|line| line.starts_with(wanted.strip_suffix("...").unwrap_or(wanted))))?;
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => printed.push(line),
                Err(_) => return Some(missing),
            }
        }
    }
}

/// Returns true if one of the process's open files is a UDP socket. /proc/PID/net/udp lists all UDP sockets, and its
/// tenth column contains the inode number of each socket.
fn has_udp_socket(process: &Path) -> bool {
    let table = |name| std::fs::read_to_string(process.join("net").join(name)).unwrap_or_default();
    let tables = table("udp") + &table("udp6");
    let sockets: Vec<String> =
        tables.lines().filter_map(|row| Some(format!("socket:[{}]", row.split_whitespace().nth(9)?))).collect();
    let Ok(files) = std::fs::read_dir(process.join("fd")) else { return false };
    files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok()).any(|file| {
        let file = file.display().to_string();
        sockets.contains(&file)
    })
}

impl Drop for Shell {
    /// Ends the background jobs that still run, and waits until they have ended, because the next file uses the same
    /// ports. The jobs are in the process group of the shell.
    fn drop(&mut self) {
        let _ = writeln!(self.input, "trap '' TERM; kill 0; wait; exit");
        let _ = self.child.wait();
    }
}
