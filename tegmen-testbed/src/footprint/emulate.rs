//! Runs an image that contains measurements in QEMU, and reads the counts of the plugin.

use super::Error;
use super::elf::Image;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The costs of one region that the image has marked for measurement.
pub(super) struct Region {
    /// Number of instructions in all passes through the region together. One operation can need many passes: a
    /// handshake, for example, consists of many calls.
    pub(super) instructions: u64,
    /// Number of bytes between the top of the stack and the lowest address that was used.
    pub(super) stack: u64,
}

/// Runs the image to its end. Returns the costs of each region by the number of the region.
pub(super) fn run(image: &Image, plugin: &Path) -> Result<BTreeMap<u32, Region>, Error> {
    let counts = image.path.with_extension("counts");
    let _ = std::fs::remove_file(&counts); // those of an earlier run
    let failed = |what: String| Error::Image(image.path.clone(), what);

    let mut qemu = Command::new("qemu-system-arm")
        .args(["-machine", "lm3s6965evb", "-cpu", "cortex-m3", "-nographic", "-no-reboot"])
        .args(["-semihosting-config", "enable=on,target=native", "-plugin"])
        .arg(format!(
            "{},marks={:#x},stack_top={:#x},stack_limit={:#x},out={}",
            plugin.display(),
            image.marks,
            image.stack_top,
            image.stack_limit,
            counts.display()
        ))
        .arg("-kernel")
        .arg(&image.path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;

    let deadline = Instant::now() + TIME_LIMIT;
    let status = loop {
        if let Some(status) = qemu.try_wait().map_err(|error| failed(error.to_string()))? {
            break status;
        }
        if Instant::now() > deadline {
            let _ = qemu.kill();
            let _ = qemu.wait();
            return Err(failed(format!("did not end within {} seconds", TIME_LIMIT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if !status.success() {
        let mut errors = String::new();
        if let Some(mut stderr) = qemu.stderr.take() {
            let _ = std::io::Read::read_to_string(&mut stderr, &mut errors);
        }
        return Err(failed(format!("failed under QEMU ({status})\n{errors}")));
    }
    let text = std::fs::read_to_string(&counts).map_err(|error| Error::File(counts, error))?;
    text.lines().map(|line| region(line).ok_or_else(|| failed(format!("counts not understood: {line}")))).collect()
}

/// Reads one line that the plugin has printed: `region ID count=N instructions=N loads=N stores=N stack=N`. Returns
/// `None` for any other line.
fn region(line: &str) -> Option<(u32, Region)> {
    let mut words = line.strip_prefix("region ")?.split(' ');
    let id = words.next()?.parse().ok()?;
    let values = words
        .map(|word| word.split_once('=').and_then(|(name, value)| Some((name, value.parse().ok()?))))
        .collect::<Option<BTreeMap<&str, u64>>>()?;
    Some((id, Region { instructions: *values.get("instructions")?, stack: *values.get("stack")? }))
}

/// Maximum time for an image. An image takes less than a second, so an image that needs longer than this has failed.
const TIME_LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
