//! A TPM 2.0 in software (swtpm), which is started for a test.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// A running swtpm, with its state in a separate directory. The process and the directory are removed when the test
/// ends.
pub(crate) struct Swtpm {
    child: Child,
    dir: PathBuf,
    /// The name of this TPM for the software stack.
    pub(crate) name: String,
}

impl Swtpm {
    /// Starts a TPM. Without swtpm, prints the command that installs it and returns `None`.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("tegmen-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let (child, name) = spawn(&dir)?;
        Some(Self { child, dir, name })
    }

    /// Returns the directory for files of the test.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Cuts the power of the TPM, and starts it again.
    #[allow(dead_code, reason = "one of the two tests that use this")]
    pub(crate) fn restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        (self.child, self.name) = spawn(&self.dir).unwrap();
    }
}

fn spawn(dir: &Path) -> Option<(Child, String)> {
    for port in pairs_of_ports() {
        let mut command = Command::new("swtpm");
        command.args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"]);
        command.arg("--tpmstate").arg(format!("dir={}", dir.display()));
        command.arg("--server").arg(format!("type=tcp,bindaddr=127.0.0.1,port={port}"));
        command.arg("--ctrl").arg(format!("type=tcp,bindaddr=127.0.0.1,port={}", port + 1));
        let Ok(mut child) = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
            println!("skipped: swtpm is missing; type: sudo apt-get install --no-install-recommends swtpm");
            return None;
        };
        if answers(&mut child, port + 1) {
            return Some((child, format!("swtpm:host=127.0.0.1,port={port}")));
        }
    }
    panic!("no two free ports beside each other");
}

/// Waits until `child` serves its control port. Returns false if `child` exits, as it does when another program has
/// one of its ports.
fn answers(child: &mut Child, control: u16) -> bool {
    let begin = Instant::now();
    // The control port answers as soon as the TPM does. The TPM serves the first connection to its other port only.
    while TcpStream::connect(("127.0.0.1", control)).is_err() {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "swtpm does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.try_wait().unwrap().is_none()
}

/// Yields the first port of each pair of successive free ports, as the software stack expects them. No pair occurs
/// twice in one process. Every pair is below the ephemeral ports, so no client takes one of its ports before swtpm
/// does.
fn pairs_of_ports() -> impl Iterator<Item = u16> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    (0..1000).filter_map(|_| {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let of_process = u16::try_from(std::process::id() % 97).unwrap() * 64;
        let port = 20_000 + 2 * (of_process.wrapping_add(turn) % 6_000);
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        (free(port) && free(port + 1)).then_some(port)
    })
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
