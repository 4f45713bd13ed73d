//! A TPM 2.0 in software, started for a test.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running swtpm, with its state in a directory of its own; both go when the test ends.
pub(crate) struct Swtpm {
    child: Child,
    dir: PathBuf,
    /// What the software stack calls it.
    pub(crate) name: String,
}

impl Swtpm {
    /// Starts one, or says what is missing.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let dir = std::env::temp_dir().join(format!("tegmen-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        let (child, name) = spawn(&dir)?;
        Some(Self { child, dir, name })
    }

    /// Where a test may put its files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Cuts the power and gives it back.
    #[allow(dead_code, reason = "one of the two tests that use this")]
    pub(crate) fn restart(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        (self.child, self.name) = spawn(&self.dir).unwrap();
    }
}

fn spawn(dir: &Path) -> Option<(Child, String)> {
    let port = two_free_ports();
    let mut command = Command::new("swtpm");
    command.args(["socket", "--tpm2", "--flags", "not-need-init,startup-clear"]);
    command.arg("--tpmstate").arg(format!("dir={}", dir.display()));
    command.arg("--server").arg(format!("type=tcp,bindaddr=127.0.0.1,port={port}"));
    command.arg("--ctrl").arg(format!("type=tcp,bindaddr=127.0.0.1,port={}", port + 1));
    let child = match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(_) => {
            println!("skipped: swtpm is missing; type: sudo apt-get install --no-install-recommends swtpm");
            return None;
        }
    };
    // The port for control answers as soon as the TPM does; a connection to the other one would be the one it serves.
    let begin = Instant::now();
    while TcpStream::connect(("127.0.0.1", port + 1)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(30), "swtpm does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    Some((child, format!("swtpm:host=127.0.0.1,port={port}")))
}

/// Two ports beside each other, as the software stack expects them.
fn two_free_ports() -> u16 {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = first.local_addr().unwrap().port();
        if let Some(next) = port.checked_add(1)
            && TcpListener::bind(("127.0.0.1", next)).is_ok()
        {
            return port;
        }
    }
    panic!("no two free ports beside each other");
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
