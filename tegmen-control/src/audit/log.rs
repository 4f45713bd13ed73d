//! The audit log of a running server.

use super::head::Head;
use super::line::{GENESIS, Kind, Link, MAX_LINE, Record, hash, write_line};
use crate::access::introspection::Reply;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tegmen_base::private;
use tegmen_host::server::Prepared;
use tegmen_store::StoreError;
use tegmen_store::clock::now;
use tegmen_store::files::{beside, sync_directory};
use tegmen_store::store::answer::promise;
use tegmen_trust::digest::Digest;
use tegmen_trust::x509::signer::Signer;

/// Limits of an [`AuditLog`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AuditBounds {
    /// Maximum number of records that wait to be written. If half of this number wait, only records of revocations and
    /// refusals are accepted.
    pub spool: usize,
    /// Maximum number of bytes of the file. A write that would make the file longer fails, as on a full disk: see
    /// [`AuditLog::set_longest`].
    pub file: u64,
    /// The time between two heads, if there are new lines. A head is a signed statement of the number of lines and the
    /// hash of the last line.
    pub head_every: Duration,
}

impl Default for AuditBounds {
    /// Returns the default limits: 8192 waiting records, a file of 64 GiB, and one minute between two signatures of the
    /// number of lines and the hash of the last line.
    fn default() -> Self {
        Self { spool: 8192, file: 64 << 30, head_every: Duration::from_secs(60) }
    }
}

/// The reason why an audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The system refuses access to the file.
    #[error("the audit log {file} cannot be opened: {source}: correct the path, or the permissions there")]
    File {
        /// The path of the log.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Another process writes this log.
    #[error("another process writes the audit log {0}: end that process, or name another file")]
    InUse(String),
    /// The end of the log differs from what the server wrote last.
    #[error(
        "the audit log {file} {why}: run `tegmen audit verify`, keep the file as evidence, and name another one for the server"
    )]
    Touched {
        /// The path of the log.
        file: String,
        /// The fault.
        why: &'static str,
    },
}

/// The reason why an event that gives rights was not recorded. The rights are then not given.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotWritten {
    /// The log cannot be written now. The value is the reason.
    #[error(
        "the audit log cannot be written ({0}): until it can, the server grants nothing and applies no policy; revocations continue"
    )]
    Log(String),
    /// The store did not accept the event, so the log gets no line for it.
    #[error("the event is not stored: {0}")]
    NotStored(#[from] StoreError),
}

/// An open log. Clones use the same log. When the last clone is dropped, all waiting records are written, and the log
/// is closed.
#[derive(Clone)]
pub struct AuditLog(Arc<Owner>);

struct Owner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    spool: Mutex<Spool>,
    changed: Condvar,
    bounds: AuditBounds,
    /// Maximum number of bytes of the file of the audit log.
    longest: AtomicU64,
}

#[derive(Default)]
struct Spool {
    waiting: Records,
    /// True if a caller has added all records of a batch, so that the writing thread does not wait for further records.
    is_whole: bool,
    /// True if a caller waits for the result of a waiting record.
    is_awaited: bool,
    /// The number of records that were lost because the queue was full.
    lost: u64,
    /// The reason why the last attempt to write failed; `None` if it succeeded.
    failed: Option<String>,
    closing: bool,
}

/// Records as JSON, in the order in which they arrived. One buffer holds all texts, so the thread that writes allocates
/// and frees no memory for single records.
#[derive(Default)]
pub(crate) struct Records {
    text: Vec<u8>,
    each: Vec<Waiting>,
    /// The responses that are sent when the lines of all records are durable, or replaced by 5.03 when the write of the
    /// lines has failed.
    prepared: Prepared,
}

struct Waiting {
    /// The position in the buffer after the last byte of the record.
    end: usize,
    /// True if a caller or a peer waits until the line of the record is durable.
    is_awaited: bool,
    /// The function that receives the result once, when the line of the record is durable, or when the write of the
    /// line has failed.
    then: Option<Then>,
}

impl Records {
    /// Adds a record for which nobody waits.
    fn push(&mut self, record: &Record) {
        record.write(now(), &mut self.text);
        self.each.push(Waiting { end: self.text.len(), is_awaited: false, then: None });
    }

    /// Adds a record, and prepares its response as [`AuditLog::write_then`] does.
    pub(crate) fn push_awaited(&mut self, record: &Record, prepare: impl FnOnce(&mut Prepared) -> Option<Then>) {
        record.write(now(), &mut self.text);
        let then = prepare(&mut self.prepared);
        self.each.push(Waiting { end: self.text.len(), is_awaited: true, then });
    }

    /// Adds the function `last` to the record that was added last. `last` is called when the line of this record is
    /// durable, or when the write of the line has failed. If the record has another function already, `last` is called
    /// after that function. Does nothing if there is no record.
    pub(crate) fn after_last(&mut self, last: impl FnOnce() + Send + 'static) {
        if let Some(waiting) = self.each.last_mut() {
            let then = waiting.then.take();
            waiting.then = Some(Box::new(move |written| {
                if let Some(then) = then {
                    then(written);
                }
                last();
            }));
        }
    }

    /// Returns the number of records.
    pub(crate) const fn len(&self) -> usize {
        self.each.len()
    }

    const fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// Returns the texts of the records.
    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.each.iter().map(|waiting| waiting.end));
        starts.zip(&self.each).map(|(start, waiting)| self.text.get(start..waiting.end).unwrap_or_default())
    }

    /// Appends the records of `others` for which nobody waits.
    fn extend_unawaited(&mut self, others: &Self) {
        for (text, waiting) in others.texts().zip(&others.each) {
            if !waiting.is_awaited {
                self.text.extend_from_slice(text);
                self.each.push(Waiting { end: self.text.len(), is_awaited: false, then: None });
            }
        }
    }

    /// Moves all records of `others` to the end of `self`.
    fn append(&mut self, others: &mut Self) {
        if self.is_empty() {
            std::mem::swap(self, others);
            return;
        }
        self.prepared.append(&mut others.prepared);
        let start = self.text.len();
        self.text.append(&mut others.text);
        let behind = |waiting: Waiting| Waiting { end: waiting.end.saturating_add(start), ..waiting };
        self.each.extend(others.each.drain(..).map(behind));
    }

    /// Sends the prepared responses, or 5.03 instead of each of them if the write has failed. Then passes the result to
    /// all waiting callers, and removes all records. The buffer stays allocated, up to a limit.
    pub(crate) fn answer(&mut self, result: &Result<(), NotWritten>) {
        match result {
            Ok(()) => self.prepared.send(),
            Err(not_written) => self.prepared.send_instead(&Reply::later(not_written).into()),
        }
        self.each.drain(..).filter_map(|waiting| waiting.then).for_each(|then| then(result.clone()));
        self.text.clear();
        self.text.shrink_to(KEPT);
    }
}

/// A function that receives the result of writing a record. It must return quickly.
pub(crate) type Then = Box<dyn FnOnce(Result<(), NotWritten>) + Send>;

impl AuditLog {
    /// Opens a log, or begins a new one. `signer` signs the heads: statements of the number of lines and the hash of
    /// the last line. A head is written into a file with the same name and the extension `.head`.
    ///
    /// If a crash cut the last line, the line was never acknowledged, and is removed.
    ///
    /// # Errors
    /// [`AuditError`], also if the log is shorter than the last signed head.
    pub fn open(file: &Path, signer: Arc<dyn Signer>, bounds: AuditBounds) -> Result<Self, AuditError> {
        let writer = Writer::open(file, signer, bounds.head_every)?;
        let longest = AtomicU64::new(bounds.file);
        let shared = Arc::new(Shared { spool: Mutex::default(), changed: Condvar::new(), bounds, longest });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("tegmen-audit".to_owned());
        let failed = |source| AuditError::File { file: file.display().to_string(), source };
        let thread = thread.spawn(move || of_thread.run(writer)).map_err(failed)?;
        let log = Self(Arc::new(Owner { shared, thread: Mutex::new(Some(thread)) }));
        log.note(Record {
            kind: Kind::Server,
            who: String::new(),
            code: "started",
            message: "the audit log is open".to_owned(),
        });
        Ok(log)
    }

    /// Changes [`AuditBounds::file`]. If a full log gets more space in this way, the server can write into it again
    /// within a second.
    pub fn set_longest(&self, bytes: u64) {
        self.0.shared.longest.store(bytes, Ordering::Relaxed);
    }

    /// Checks that the log now accepts records of events that give rights.
    ///
    /// # Errors
    /// [`NotWritten`].
    pub fn is_writable(&self) -> Result<(), NotWritten> {
        self.0.shared.lock().takes_grants(&self.0.shared.bounds)
    }

    /// Records an event that gives rights. Returns `Ok` when the line is durable. Only then may the event take place.
    ///
    /// # Errors
    /// [`NotWritten`]: the event must not take place.
    pub async fn write(&self, record: Record) -> Result<(), NotWritten> {
        let (promise, answer) = promise();
        self.write_then(&record, |_| Some(Box::new(|written| promise.answer(Ok(written)))));
        answer.await.unwrap_or_else(|error| Err(NotWritten::Log(error.to_string())))
    }

    /// Records an event as [`Self::write`] does. `prepare` prepares the response. Either it adds the response to the
    /// [`Prepared`], which sends the response when the line is durable, or sends 5.03 if the line cannot be written. Or
    /// it returns a function that receives the result, on the thread that writes the log or on the calling thread. This
    /// function must return quickly.
    pub(crate) fn write_then(&self, record: &Record, prepare: impl FnOnce(&mut Prepared) -> Option<Then>) {
        let mut spool = self.0.shared.lock();
        match spool.takes_grants(&self.0.shared.bounds) {
            Ok(()) => {
                let is_first = spool.waiting.is_empty() || !spool.is_awaited;
                spool.is_awaited = true;
                spool.waiting.push_awaited(record, prepare);
                self.0.shared.wake(spool, is_first);
            }
            Err(not_written) => {
                drop(spool);
                let mut refused = Records::default();
                refused.push_awaited(record, prepare);
                refused.answer(&Err(not_written));
            }
        }
    }

    /// Records all events in `records` as [`Self::write_then`] does, and empties `records`.
    pub(crate) fn write_all(&self, records: &mut Records) {
        let mut spool = self.0.shared.lock();
        match spool.takes_grants(&self.0.shared.bounds) {
            Ok(()) => {
                spool.waiting.append(records);
                (spool.is_whole, spool.is_awaited) = (true, true);
                drop(spool);
                self.0.shared.changed.notify_one();
            }
            Err(not_written) => {
                drop(spool);
                records.answer(&Err(not_written));
            }
        }
    }

    /// Records an event that takes rights away or refuses them. This function never waits and never fails. If the queue
    /// of records is full, the record is lost. As soon as the log can be written again, it gets a line with the number
    /// of lost records.
    pub fn note(&self, record: Record) {
        let mut spool = self.0.shared.lock();
        if spool.waiting.len() >= self.0.shared.bounds.spool {
            spool.lost = spool.lost.saturating_add(1);
            return;
        }
        let is_first = spool.waiting.is_empty();
        spool.waiting.push(&record);
        self.0.shared.wake(spool, is_first);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.lock().closing = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl Spool {
    fn takes_grants(&self, bounds: &AuditBounds) -> Result<(), NotWritten> {
        match &self.failed {
            Some(why) => Err(NotWritten::Log(why.clone())),
            None if self.waiting.len() >= bounds.spool / 2 => Err(NotWritten::Log("too many records wait".to_owned())),
            None => Ok(()),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Spool> {
        self.spool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the writing thread after a record was added, if necessary: if `is_first`, or if now [`MOST_GATHERED`]
    /// records wait. `is_first` is true if no record waited before, or if this is the first waiting record whose result
    /// is awaited. In other cases the thread is already gathering records for its next write.
    fn wake(&self, spool: MutexGuard<'_, Spool>, is_first: bool) {
        let is_enough = spool.waiting.len() == MOST_GATHERED;
        drop(spool);
        if is_first || is_enough {
            self.changed.notify_one();
        }
    }

    fn run(&self, mut writer: Writer) {
        // True after a batch of many records. The next record then waits for others, and one sync serves all of them.
        let mut gathers = false;
        let (mut batch, mut lines) = (Records::default(), Vec::new());
        loop {
            let mut spool = self.lock();
            // After a failure the next attempt is a second later, whatever comes meanwhile.
            let pause = if spool.failed.is_some() { RETRY } else { writer.until_head() };
            let is_idle = |spool: &mut Spool| !spool.closing && (spool.waiting.is_empty() || spool.failed.is_some());
            spool = self.changed.wait_timeout_while(spool, pause, is_idle).unwrap_or_else(PoisonError::into_inner).0;
            let is_unawaited =
                |spool: &mut Spool| !spool.closing && !spool.is_awaited && spool.waiting.len() < MOST_GATHERED;
            if !spool.waiting.is_empty() {
                let gathered = self.changed.wait_timeout_while(spool, GATHERING_UNAWAITED, is_unawaited);
                spool = gathered.unwrap_or_else(PoisonError::into_inner).0;
            }
            if gathers {
                let is_small =
                    |spool: &mut Spool| !spool.closing && !spool.is_whole && spool.waiting.len() < MOST_GATHERED;
                let gathered = self.changed.wait_timeout_while(spool, GATHERING, is_small);
                spool = gathered.unwrap_or_else(PoisonError::into_inner).0;
            }
            (spool.is_whole, spool.is_awaited) = (false, false);
            let closing = spool.closing;
            std::mem::swap(&mut batch, &mut spool.waiting);
            gathers = batch.len() >= MANY;
            let (lost, had_failed) = (spool.lost, spool.failed.is_some());
            drop(spool);

            let mut gap = Records::default();
            if lost > 0 || had_failed {
                gap.push(&resumed(lost));
            }
            let records = gap.texts().chain(batch.texts());
            let result = writer.append(records, &mut lines, self.longest.load(Ordering::Relaxed));
            let mut spool = self.lock();
            match result {
                Ok(()) => {
                    spool.lost = spool.lost.saturating_sub(lost);
                    spool.failed = None;
                    drop(spool);
                    if had_failed {
                        tracing::info!(
                            "the audit log is written again; {lost} records of refusals and revocations are lost"
                        );
                    }
                    batch.answer(&Ok(()));
                }
                Err(why) => {
                    spool.failed = Some(why.clone());
                    // The rest waits before what came meanwhile. A caller that waits for a line is refused.
                    let mut rest = Records::default();
                    rest.extend_unawaited(&batch);
                    rest.append(&mut spool.waiting);
                    spool.waiting = rest;
                    drop(spool);
                    if !had_failed {
                        tracing::error!("{}", NotWritten::Log(why.clone()));
                    }
                    batch.answer(&Err(NotWritten::Log(why)));
                }
            }
            writer.sign_head(closing);
            if closing {
                return;
            }
        }
    }
}

fn resumed(lost: u64) -> Record {
    let message = format!("the log could not be written; {lost} records of revocations and refusals are lost");
    Record { kind: Kind::Server, who: String::new(), code: "resumed", message }
}

/// The open file of the log, with the data that the next line needs: the number and the hash of the last line.
struct Writer {
    file: File,
    head_file: PathBuf,
    signer: Arc<dyn Signer>,
    head_every: Duration,
    /// The number of durable bytes.
    len: u64,
    /// The number of durable lines.
    lines: u64,
    /// The hash of the last durable line.
    last: Digest,
    /// True if the file may contain a part of a failed write.
    has_rest: bool,
    /// The number of lines of the log that the last head states. A head is a signed statement about the log.
    signed: u64,
    /// The time of the last attempt to sign the head of the log; before the first attempt, the time at which the log
    /// was opened.
    signed_at: Instant,
}

impl Writer {
    fn open(path: &Path, signer: Arc<dyn Signer>, head_every: Duration) -> Result<Self, AuditError> {
        let name = path.display().to_string();
        let failed = |source| AuditError::File { file: name.clone(), source };
        let touched = |why| AuditError::Touched { file: name.clone(), why };
        let options = &mut OpenOptions::new();
        let mut file =
            private::open(options.read(true).write(true).create(true).truncate(false), path).map_err(failed)?;
        file.try_lock().map_err(|_| AuditError::InUse(name.clone()))?;
        sync_directory(path).map_err(failed)?;
        let (len, last_line) = last_line(&mut file).map_err(failed)?;
        let (lines, last) = match &last_line {
            None => (0, GENESIS),
            Some(line) => match Link::read(line) {
                Some(link) => (link.n, hash(line)),
                None => return Err(touched("does not end with a line of an audit log")),
            },
        };
        let head_file = beside(path, "head");
        let signed = match std::fs::read(&head_file) {
            Ok(text) => {
                let head = Head::parse(&text).map_err(|_| touched("has a head beside it that is not signed"))?;
                if head.lines > lines || head.lines == lines && head.hash != last {
                    return Err(touched("does not end with the line that its signed head names"));
                }
                head.lines
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(failed(error)),
        };
        let signed_at = Instant::now();
        let has_rest = false;
        Ok(Self { file, head_file, signer, head_every, len, lines, last, has_rest, signed, signed_at })
    }

    /// Writes records and makes them durable. After an error no record is durable, and the error has the reason. `text`
    /// is a buffer for the lines of the records.
    fn append<'r>(
        &mut self,
        records: impl Iterator<Item = &'r [u8]>,
        text: &mut Vec<u8>,
        longest: u64,
    ) -> Result<(), String> {
        text.clear();
        text.shrink_to(KEPT);
        let (mut lines, mut last) = (self.lines, self.last);
        for record in records {
            lines = lines.saturating_add(1);
            last = write_line(text, lines, &last, record);
        }
        if text.is_empty() {
            return Ok(());
        }
        let len = self.len.saturating_add(text.len() as u64);
        if len > longest {
            return Err(format!(
                "it would have more than {longest} bytes: raise its bound, or move it away and start again"
            ));
        }
        self.write(text).map_err(|error| error.to_string())?;
        (self.len, self.lines, self.last) = (len, lines, last);
        Ok(())
    }

    fn write(&mut self, text: &[u8]) -> io::Result<()> {
        if std::mem::replace(&mut self.has_rest, true) {
            self.file.set_len(self.len)?;
        }
        self.file.seek(SeekFrom::Start(self.len))?;
        self.file.write_all(text)?;
        self.file.sync_data()?;
        self.has_rest = false;
        Ok(())
    }

    /// Returns the time until the server must sign the next head, a statement of the number of lines and the hash of
    /// the last line. If the last head covers all lines, returns the whole interval between two heads.
    fn until_head(&self) -> Duration {
        let is_new = self.lines > self.signed;
        if is_new { self.head_every.saturating_sub(self.signed_at.elapsed()) } else { self.head_every }
    }

    /// Signs the head of the log (the number and the hash of the last line), and writes it to the head file. Does this
    /// only if the log has new lines, and if the interval `head_every` has passed or the log is being closed. If the
    /// signature or the write fails, the next attempt follows after the same interval.
    fn sign_head(&mut self, closing: bool) {
        let is_due = closing || self.signed_at.elapsed() >= self.head_every;
        if !is_due || self.lines == self.signed {
            return;
        }
        self.signed_at = Instant::now();
        let head = Head::sign(self.lines, self.last, now(), &*self.signer).map_err(|error| error.to_string());
        match head.and_then(|head| head.write(&self.head_file).map_err(|error| error.to_string())) {
            Ok(()) => self.signed = self.lines,
            Err(why) => tracing::error!("the head {} is not signed or not written: {why}", self.head_file.display()),
        }
    }
}

/// Returns two values: the number of bytes up to the end of the last complete line, and this line without its line
/// feed. Cuts the bytes after this line from the file.
fn last_line(file: &mut File) -> io::Result<(u64, Option<Vec<u8>>)> {
    let len = file.seek(SeekFrom::End(0))?;
    let from = len.saturating_sub(END);
    file.seek(SeekFrom::Start(from))?;
    let mut end = Vec::new();
    file.take(END).read_to_end(&mut end)?;
    let behind = end.iter().rev().take_while(|byte| **byte != b'\n').count() as u64;
    let whole = len.saturating_sub(behind);
    if behind > 0 {
        file.set_len(whole)?;
        file.sync_data()?;
        end.truncate(end.len().saturating_sub(behind as usize));
    }
    let line =
        end.strip_suffix(b"\n").map(|lines| lines.rsplit(|byte| *byte == b'\n').next().unwrap_or(lines).to_vec());
    Ok((whole, line))
}

/// The number of bytes at the end of the file in which [`last_line`] searches. Two lines of the maximum length fit: one
/// complete line, and one that a crash cut.
const END: u64 = 2 * MAX_LINE as u64;

/// The time for which a record waits for further records, if the previous batch had at least [`MANY`] records.
const GATHERING: Duration = Duration::from_millis(1);
const MANY: usize = 8;
/// The time for which records wait for further records, if no caller waits for the results of these records. The wait
/// saves time, because one synchronization of the file costs the same for one record and for many.
const GATHERING_UNAWAITED: Duration = Duration::from_millis(200);
/// If at least this number of records wait, they are written immediately, without a pause for further records.
const MOST_GATHERED: usize = 1024;

/// Maximum number of bytes that stay allocated for a buffer of records or lines.
const KEPT: usize = 1 << 20;

/// The pause after a failed write, before the next attempt.
const RETRY: Duration = Duration::from_secs(1);
