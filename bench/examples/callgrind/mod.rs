//! Counts the instructions of one function in a program that starts itself under callgrind.

use std::process::Command;

/// Any failure, with its message.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// Returns the number of instructions in `program::counted`, if this program runs with the arguments `row` and `times`.
pub(crate) fn instructions(program: &str, row: &str, times: u32) -> Result<u64, Failure> {
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--collect-atstart=no"]);
    command.arg(format!("--toggle-collect=*{program}::counted*")).arg(std::env::current_exe()?);
    let output = command.arg(row).arg(times.to_string()).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let count = text.lines().find_map(|line| line.split_once("Collected :")).map(|(_, count)| count.trim().parse());
    match count {
        Some(Ok(count)) if output.status.success() && count > 0 => Ok(count),
        _ => Err(format!("{row}: {text}").into()),
    }
}
