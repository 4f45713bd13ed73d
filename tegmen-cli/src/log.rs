//! The log of a server: one line for each event. A separate thread writes the lines, so that a program that stopped
//! reading the log does not block the threads of the server. Limits prevent unauthenticated clients from filling a
//! disk.

mod repeats;
mod traces;

use crate::output::printable;
use clap::ValueEnum;
use repeats::{Prefix, Repeats};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tegmen_host::server::Severity;

/// Maximum number of log lines that wait for the thread that writes them. Further lines are dropped and counted.
const WAITING: usize = 1024;
/// Maximum number of bytes that the writing thread of the log writes at once.
const BATCH: usize = 64 << 10;
/// The interval at which the writing thread of the log writes the counts of repeated events.
const TICK: Duration = Duration::from_secs(1);
/// Maximum time for which the program waits at its end until the last lines are written.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The severity of a line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, ValueEnum)]
pub(crate) enum Level {
    /// The operator has to act.
    Error,
    /// A request failed because of the server, or a client was refused.
    Warn,
    /// Sessions and requests.
    Info,
    /// Each block of a block-wise transfer.
    Debug,
}

impl From<Severity> for Level {
    fn from(severity: Severity) -> Self {
        match severity {
            Severity::Error => Self::Error,
            Severity::Warning => Self::Warn,
            Severity::Info => Self::Info,
            Severity::Debug => Self::Debug,
        }
    }
}

impl Level {
    const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
        }
    }
}

/// The format of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Format {
    /// The time, the level, and a sentence.
    Text,
    /// One JSON object.
    Json,
}

/// Writes events as text or as JSON. Its clones write to the same log.
#[derive(Clone)]
pub(crate) struct Log {
    jobs: SyncSender<Job>,
    shared: Arc<Shared>,
}

struct Shared {
    /// The least severe level that is written.
    level: AtomicU8,
    format: Format,
    /// Number of lines that were dropped since the writer last reported this number.
    dropped: AtomicU64,
    repeats: Mutex<Repeats>,
}

enum Job {
    Line(String),
    /// Write the waiting lines, then send a message to the thread that waits for the end.
    End(mpsc::Sender<()>),
}

impl Log {
    /// Starts the thread that writes to standard output. Events of less severe levels than `level` are left out.
    pub(crate) fn start(level: Level, format: Format) -> std::io::Result<Self> {
        let (jobs, waiting) = mpsc::sync_channel(WAITING);
        let level = AtomicU8::new(level as u8);
        let shared = Arc::new(Shared { level, format, dropped: AtomicU64::new(0), repeats: Mutex::default() });
        let writer = shared.clone();
        std::thread::Builder::new().name("tegmen-log".to_owned()).spawn(move || writer.write(&waiting))?;
        Ok(Self { jobs, shared })
    }

    /// Also writes the events that the libraries emit through the crate `tracing`.
    pub(crate) fn take_traces(&self) {
        traces::write_to(self.clone());
    }

    /// Sets the least severe level that is written from now on.
    pub(crate) fn set_level(&self, level: Level) {
        self.shared.level.store(level as u8, Ordering::Relaxed);
    }

    fn writes(&self, level: Level) -> bool {
        level as u8 <= self.shared.level.load(Ordering::Relaxed)
    }

    /// Writes an event at every level of the log. The start and the end of the server are such events.
    pub(crate) fn always(&self, text: impl FnOnce() -> String, object: impl FnOnce() -> Value) {
        self.write(Level::Info, text, object);
    }

    /// Writes an event: `text` for people, `object` for machines.
    pub(crate) fn event(&self, level: Level, text: impl FnOnce() -> String, object: impl FnOnce() -> Value) {
        if self.writes(level) {
            self.write(level, text, object);
        }
    }

    /// Writes an event that unauthenticated peers can cause without limit. At most one event of a kind is written per
    /// second for each network prefix (/24 or /56). The next line contains the number of events that were left out.
    pub(crate) fn limited(
        &self,
        kind: &'static str,
        remote: SocketAddr,
        text: impl FnOnce() -> String,
        object: impl FnOnce() -> Value,
    ) {
        if !self.writes(Level::Warn) {
            return;
        }
        let prefix = Prefix::of(remote.ip());
        let Some(more) = self.shared.repeats().take(kind, prefix, Instant::now()) else { return };
        let told = || if more > 0 { format!("{} (and {more} more from {prefix})", text()) } else { text() };
        self.write(Level::Warn, told, || {
            let mut object = object();
            object["event"] = json!(kind);
            object["more"] = json!(more);
            object
        });
    }

    fn write(&self, level: Level, text: impl FnOnce() -> String, object: impl FnOnce() -> Value) {
        let line = self.shared.line(level, text, object);
        if let Err(TrySendError::Full(_)) = self.jobs.try_send(Job::Line(line)) {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines are written. The wait is limited, because the reader may be stuck.
    pub(crate) fn end(self) {
        let (done, written) = mpsc::channel();
        let deadline = Instant::now() + LAST_LINES;
        let mut job = Job::End(done);
        while let Err(TrySendError::Full(back)) = self.jobs.try_send(job) {
            if Instant::now() >= deadline {
                return;
            }
            job = back;
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = written.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    }
}

impl Shared {
    fn repeats(&self) -> std::sync::MutexGuard<'_, Repeats> {
        self.repeats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(&self, level: Level, text: impl FnOnce() -> String, object: impl FnOnce() -> Value) -> String {
        let time = rfc3339(SystemTime::now());
        match self.format {
            Format::Text => format!("{time} {:5} {}", level.name(), printable(&text())),
            Format::Json => {
                let mut object = object();
                object["time"] = json!(time);
                object["level"] = json!(level.name());
                object.to_string()
            }
        }
    }

    fn write(&self, jobs: &Receiver<Job>) {
        let mut looked = Instant::now();
        loop {
            let first = jobs.recv_timeout(TICK);
            let (mut batch, mut end) = (String::new(), None);
            let mut job = first.ok();
            while let Some(next) = job {
                match next {
                    Job::Line(line) => {
                        batch.push_str(&line);
                        batch.push('\n');
                    }
                    Job::End(done) => end = Some(done),
                }
                job = if batch.len() < BATCH && end.is_none() { jobs.try_recv().ok() } else { None };
            }
            if looked.elapsed() >= TICK || end.is_some() {
                looked = Instant::now();
                self.sum_up(end.is_some(), &mut batch);
            }
            if !batch.is_empty() {
                // Nobody reads any more: the server continues.
                let mut out = std::io::stdout().lock();
                let _ = out.write_all(batch.as_bytes()).and_then(|()| out.flush());
            }
            if let Some(done) = end {
                let _ = done.send(());
                return;
            }
        }
    }

    /// Adds lines to `batch`: one for each count of events that were left out, and one for the number of dropped lines.
    /// With `end`, adds all counts, also those that are less than a second old.
    fn sum_up(&self, end: bool, batch: &mut String) {
        let mut add = |text: String, object: Value| {
            let _ = writeln!(batch, "{}", self.line(Level::Warn, || text, || object));
        };
        let at = if end { None } else { Some(Instant::now()) };
        for (kind, prefix, more) in self.repeats().due(at) {
            let object = json!({ "event": kind, "prefix": prefix.to_string(), "more": more });
            add(format!("{prefix}: {more} more: {}", kind.replace('_', " ")), object);
        }
        let dropped = self.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            let text = format!("{dropped} lines of the log were dropped: its reader is too slow");
            add(text, json!({ "event": "log_dropped", "lines": dropped }));
        }
    }
}

/// Formats a moment in UTC, to the millisecond (RFC 3339).
pub(crate) fn rfc3339(moment: SystemTime) -> String {
    let since = moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let at = time::OffsetDateTime::from_unix_timestamp(since.as_secs() as i64);
    let at = at.unwrap_or(time::OffsetDateTime::UNIX_EPOCH);
    let (year, month, day, millis) = (at.year(), u8::from(at.month()), at.day(), since.subsec_millis());
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{millis:03}Z", at.hour(), at.minute(), at.second())
}

#[cfg(test)]
mod tests;
