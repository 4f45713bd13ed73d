//! Programs that a test starts.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// Maximum time until a program begins its work.
const START: Duration = Duration::from_secs(30);

/// Calls `look` until it returns a value, and returns the value. Panics after [`START`].
pub(crate) fn wait<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + START;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "after {} s there is still no {what}", START.as_secs());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A running program on a host of the test.
pub(crate) struct Process(Child);

impl Process {
    /// Starts a program. Its output goes to a file.
    pub(crate) fn start(mut command: Command, log: &Path) -> Self {
        let log = File::options().create(true).append(true).open(log).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Process {
    /// Kills the program with SIGKILL.
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
