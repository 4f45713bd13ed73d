//! Starts and ends programs, reads their output and writes to their input.

use std::fs;
use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// A running program. When this value is dropped, the program ends and its output is written to the log directory.
pub(crate) struct Process {
    name: String,
    child: Child,
    stdin: Option<ChildStdin>,
    /// Standard output.
    pub(crate) out: Arc<Printed>,
    /// Standard error.
    pub(crate) err: Arc<Printed>,
    log: PathBuf,
    deadline: Instant,
}

impl Process {
    /// Starts `command`. No method waits for the program after `deadline`. `log` is the path of the log files without
    /// the extension.
    pub(crate) fn start(mut command: Command, log: PathBuf, deadline: Instant) -> Result<Self, String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let name = name.rsplit('/').next().unwrap_or_default().to_owned();
        let line = format!("{command:?}\n");
        let _ = fs::write(log.with_extension("command"), line);
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().map_err(|error| format!("{name} does not start: {error}"))?;
        let out = Printed::follow(child.stdout.take());
        let err = Printed::follow(child.stderr.take());
        let stdin = child.stdin.take();
        Ok(Self { name, child, stdin, out, err, log, deadline })
    }

    /// Waits until standard output has `text` at or after the position `from`. Returns the position where the text
    /// begins.
    pub(crate) fn await_output(&self, text: impl AsRef<[u8]>, from: usize) -> Result<usize, String> {
        self.await_printed(&self.out, text.as_ref(), from)
    }

    /// Waits until standard error has `text` at or after the position `from`. Returns the position where the text
    /// begins.
    pub(crate) fn await_error(&self, text: impl AsRef<[u8]>, from: usize) -> Result<usize, String> {
        self.await_printed(&self.err, text.as_ref(), from)
    }

    fn await_printed(&self, printed: &Printed, text: &[u8], from: usize) -> Result<usize, String> {
        printed.find(text, from, self.deadline).ok_or_else(|| {
            let all = [self.out.text(), self.err.text()].join("\n");
            let last: Vec<&str> = all.lines().rev().filter(|line| !line.trim().is_empty()).take(2).collect();
            let last = if last.is_empty() { "nothing".to_owned() } else { last.join(" < ") };
            format!("{} never printed {:?}; its last words: {last}", self.name, String::from_utf8_lossy(text))
        })
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Writes to the standard input of the program.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), String> {
        let stdin = self.stdin.as_mut().ok_or_else(|| format!("{} takes no more input", self.name))?;
        let written = stdin.write_all(bytes).and_then(|()| stdin.flush());
        written.map_err(|error| format!("{} does not read its input: {error}", self.name))
    }

    /// Closes the standard input of the program. Many programs end after that.
    pub(crate) fn close_input(&mut self) {
        self.stdin = None;
    }

    /// Waits until the program ends by itself.
    pub(crate) fn await_end(&mut self) -> Result<ExitStatus, String> {
        loop {
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                self.out.await_closed(self.deadline);
                self.err.await_closed(self.deadline);
                return Ok(status);
            }
            if Instant::now() > self.deadline {
                return Err(format!("{} did not end", self.name));
            }
            thread::sleep(POLL);
        }
    }

    /// Kills the program, so that it cannot send close_notify. This simulates a power failure.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stdin = None;
        if let (Ok(None), Ok(id)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let id = rustix::process::Pid::from_raw(id);
            let _ = id.map(|id| rustix::process::kill_process(id, rustix::process::Signal::TERM));
        }
        let patience = Instant::now() + Duration::from_secs(2);
        while Instant::now() < patience && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(POLL);
        }
        self.kill();
        let _ = fs::write(self.log.with_extension("out"), &*self.out.bytes());
        let _ = fs::write(self.log.with_extension("err"), &*self.err.bytes());
    }
}

/// The output of a program so far.
#[derive(Default)]
pub(crate) struct Printed {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    bytes: Vec<u8>,
    closed: bool,
}

impl Printed {
    fn follow(pipe: Option<impl Read + Send + 'static>) -> Arc<Self> {
        let printed = Arc::new(Self::default());
        let follower = printed.clone();
        let follow = move || {
            let mut buffer = [0; 4096];
            let mut pipe = pipe;
            while let Some(len) = pipe.as_mut().and_then(|pipe| pipe.read(&mut buffer).ok()).filter(|len| *len > 0) {
                follower.lock().bytes.extend_from_slice(&buffer[..len]);
                follower.news.notify_all();
            }
            follower.lock().closed = true;
            follower.news.notify_all();
        };
        thread::spawn(follow);
        printed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for `text` at or after the position `from`. Returns the position where the text begins, or `None` if it
    /// did not arrive.
    fn find(&self, text: &[u8], from: usize, deadline: Instant) -> Option<usize> {
        let mut state = self.lock();
        loop {
            let behind = state.bytes.get(from..).unwrap_or(&[]);
            if let Some(at) = behind.windows(text.len().max(1)).position(|window| window == text) {
                return Some(from + at);
            }
            let patience = deadline.saturating_duration_since(Instant::now());
            if state.closed || patience.is_zero() {
                return None;
            }
            state = self.news.wait_timeout(state, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn await_closed(&self, deadline: Instant) {
        let mut state = self.lock();
        while !state.closed && Instant::now() < deadline {
            state = self.news.wait_timeout(state, POLL).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns the whole output.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// Returns the whole output as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }

    /// Returns the number of bytes of the output so far.
    pub(crate) fn len(&self) -> usize {
        self.lock().bytes.len()
    }
}

const POLL: Duration = Duration::from_millis(5);
