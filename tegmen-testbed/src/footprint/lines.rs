//! Finds the source line of an instruction, after inlining.

use super::Error;
use super::build::output_of;
use std::path::Path;
use std::process::Command;

/// Returns the crate and the source line of each of these addresses of an image, such as `("tegmen", "src/buf.rs:12")`.
pub(super) fn of<'a>(image: &Path, addresses: impl Iterator<Item = &'a str>) -> Result<Vec<(String, String)>, Error> {
    let lines = output_of(
        Command::new("arm-none-eabi-addr2line").args(["--inlines", "--addresses", "--exe"]).arg(image).args(addresses),
    )?;
    Ok(sources(&lines))
}

/// Reads the output of addr2line. Returns the crate and the source line of every address: the innermost line outside of
/// `core`, or the outermost line in `core` if there is no other.
fn sources(lines: &str) -> Vec<(String, String)> {
    let mut sources: Vec<(String, String)> = Vec::new();
    for line in lines.lines() {
        if line.starts_with("0x") {
            sources.push((CORE.to_owned(), "?".to_owned()));
        } else if let (Some(source), Some(better)) =
            (sources.last_mut().filter(|known| known.0 == CORE), source_of(line))
        {
            *source = better;
        }
    }
    sources
}

/// Returns the crate and its file from a path such as `/home/me/.cargo/registry/src/index/aes-0.9.1/src/soft.rs:12`.
fn source_of(line: &str) -> Option<(String, String)> {
    let line = line.split(" (").next().filter(|line| !line.starts_with('?'))?;
    let (krate, file) = line.rsplit_once("/src/").unwrap_or(("", line.strip_prefix("src/").unwrap_or(line)));
    let krate = match krate.rsplit('/').next() {
        None | Some("" | "." | "firmware") => "tegmen-firmware",
        Some(krate) => krate,
    };
    Some((krate.to_owned(), format!("src/{file}")))
}

/// The crate of the addresses that belong to no line of another crate.
pub(super) const CORE: &str = "core";

#[cfg(test)]
mod tests;
