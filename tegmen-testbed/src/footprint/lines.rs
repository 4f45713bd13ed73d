//! Finds the source lines of instructions, after inlining.

use super::Error;
use super::build::output_of;
use std::path::Path;
use std::process::Command;

/// Returns the crate and the source line for each of these addresses in an image, such as `("tegmen",
/// "src/buf.rs:12")`.
pub(super) fn of<'a>(image: &Path, addresses: impl Iterator<Item = &'a str>) -> Result<Vec<(String, String)>, Error> {
    let lines = output_of(
        Command::new("arm-none-eabi-addr2line").args(["--inlines", "--addresses", "--exe"]).arg(image).args(addresses),
    )?;
    Ok(sources(&lines))
}

/// Reads the output of addr2line. Returns the crate and the source line for every address. Of the inlined lines at an
/// address, it returns the innermost line that is not in `core`. If all lines are in `core`, it returns the outermost
/// line.
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

/// Returns the crate and the source line for a path such as
/// `/home/me/.cargo/registry/src/index/aes-0.9.1/src/soft.rs:12`. Returns `None` for an unknown path, which begins with
/// `?`.
fn source_of(line: &str) -> Option<(String, String)> {
    let line = line.split(" (").next().filter(|line| !line.starts_with('?'))?;
    let (krate, file) = line.rsplit_once("/src/").unwrap_or(("", line.strip_prefix("src/").unwrap_or(line)));
    let krate = match krate.rsplit('/').next() {
        None | Some("" | "." | "firmware") => "tegmen-firmware",
        Some(krate) => krate,
    };
    Some((krate.to_owned(), format!("src/{file}")))
}

/// The crate to which an address belongs if no source line of another crate belongs to the address.
pub(super) const CORE: &str = "core";

#[cfg(test)]
mod tests;
