//! The work of a server on its database between power cuts, and the check of the database after each cut.

use super::disk::{Calls, Disk, Random, Site};
use super::vfs::Mounted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tegmen_store::clock::DAY;
use tegmen_store::database::Change;
use tegmen_store::store::{Changes, LeaseId, Number, Scan};
use tegmen_store::{Database, Numbers, Options, Revision, StateError, Store, StoreError, Transaction, Value};

/// Counts over all lives. A [`Life`] is the work of a server through several power cuts.
#[derive(Default, Debug)]
pub(crate) struct Counts {
    pub(crate) cuts: u64,
    /// Number of power cuts before the database was open.
    pub(crate) during_start: u64,
    /// Number of power cuts while changes waited for their acknowledgement.
    unacknowledged: u64,
    /// Number of changes without an acknowledgement that were in the database after the power cut.
    survived: u64,
    acknowledged: u64,
    numbers_issued: u64,
    /// Number of older copies of the database that replaced the newest database, and were refused.
    pub(crate) old_copies: u64,
    orderly_ends: u64,
}

impl Counts {
    pub(crate) fn json(&self) -> String {
        let Self {
            cuts,
            during_start,
            unacknowledged,
            survived,
            acknowledged,
            numbers_issued,
            old_copies,
            orderly_ends,
        } = self;
        format!(
            "{{\"power_cuts\":{cuts},\"during_a_start\":{during_start},\"with_unacknowledged_changes\":{unacknowledged},\
             \"unacknowledged_changes_that_survived\":{survived},\"acknowledged_changes\":{acknowledged},\
             \"numbers_issued\":{numbers_issued},\"old_copies_refused\":{old_copies},\"orderly_ends\":{orderly_ends},\
             \"acknowledged_changes_lost\":0,\"numbers_issued_twice\":0,\"revisions_repeated\":0}}\n"
        )
    }
}

/// The time at which the power cuts of a life happen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// While the database is created.
    AtFirst,
    /// At any time, also while the database is created.
    Ever,
}

/// A change that a server requests.
#[derive(Clone, Debug)]
enum Step {
    Put(String, String),
    Delete(String),
    /// Increases the number in the row of this key to this value. After the answer the server may use all numbers below
    /// this value.
    Number(String, u64),
    /// Writes a row of this name, with this next number, to the table of the numbers of contexts.
    Context(String, u64),
    Leased(String, LeaseId),
    Revoke(LeaseId),
}

/// The expected rows: for each key its text, and its revision if the revision is known.
type Rows = BTreeMap<String, (String, Option<Revision>)>;

/// A server and its disk, through several power cuts.
pub(crate) struct Life {
    random: Random,
    mounted: Mounted,
    file: PathBuf,
    /// Number of pages in the log at which SQLite moves them into the database.
    checkpoint_pages: u32,
    /// The rows after all acknowledged changes.
    rows: Rows,
    leased: BTreeMap<LeaseId, String>,
    /// The changes without an answer, in the order of their requests.
    open: Vec<Step>,
    /// For each key, the number below which all numbers were issued.
    issued: BTreeMap<String, u64>,
    newest: Revision,
    /// The newest revision before the present batch of changes.
    before: Revision,
    /// The revisions of the present batch.
    batch: BTreeSet<Revision>,
    /// The rows that a watcher knows.
    watched: BTreeMap<String, String>,
    /// The revision up to which the watcher has received all changes.
    seen: Revision,
    /// The revision before which the database may have deleted the history.
    compacted: Revision,
    /// A copy of the database after an orderly end, and true if a later start succeeded, so that the copy is out of
    /// date. `None` if there is no copy.
    copy: Option<(Vec<u8>, bool)>,
}

/// The number of lives so far. It gives each life a separate file system.
static LIVES: AtomicU64 = AtomicU64::new(0);

impl Life {
    pub(crate) fn new(seed: u64, left_out: Option<Site>) -> Self {
        let life = LIVES.fetch_add(1, Ordering::Relaxed);
        let name = format!("power-{}-{life}", std::process::id());
        let disk = Disk::new(seed, left_out, &name);
        // Only the key and its lock are there, the database is on the disk in memory.
        let directory = std::env::temp_dir().join("tegmen-store-power").join(&name);
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.canonicalize().unwrap().join("state.db");
        let mut random = Random(seed ^ 0x7e6_0e11);
        let checkpoint_pages = [2, 5, 12, 1000][random.below(4) as usize];
        Self {
            random,
            mounted: Mounted::new(&name, disk),
            file,
            checkpoint_pages,
            rows: Rows::new(),
            leased: BTreeMap::new(),
            open: Vec::new(),
            issued: BTreeMap::new(),
            newest: Revision::ABSENT,
            before: Revision::ABSENT,
            batch: BTreeSet::new(),
            watched: BTreeMap::new(),
            seen: Revision::ABSENT,
            compacted: Revision::ABSENT,
            copy: None,
        }
    }

    fn disk(&self) -> &Disk {
        &self.mounted.disk
    }

    pub(crate) fn calls(&self) -> BTreeMap<Site, Calls> {
        self.disk().lock().calls.clone()
    }

    fn start(&self) -> Result<Database, StateError> {
        let options = Options {
            files: Arc::new(self.disk().clone()),
            checkpoint_pages: self.checkpoint_pages,
            monotonic: Arc::new(|| Duration::ZERO),
            ..Options::default()
        };
        Database::open_with(&self.file, options)
    }

    /// Cuts the power several times, one cut after the other, and checks the database after each cut.
    ///
    /// # Errors
    /// The first fault that a check found.
    pub(crate) fn run(&mut self, when: When, counts: &mut Counts) -> Result<(), String> {
        let cuts = if when == When::AtFirst { 2 } else { [1, 2, 20][self.random.below(3) as usize] };
        for cut in 0..cuts {
            let most = [60, 200, 600][self.random.below(3) as usize];
            let is_early = when == When::AtFirst || (cut < 2 && self.random.is(50));
            let most = if is_early { 14 } else { most };
            let operations = self.random.below(most);
            self.disk().lock().cut_after(operations);
            let is_open = self.work(counts)?;
            counts.cuts += 1;
            counts.during_start += u64::from(!is_open);
            counts.unacknowledged += u64::from(!self.open.is_empty());
            self.disk().lock().restart();
            self.cut_a_start(counts);
            self.refuse_copy(counts)?;
            self.check(counts)?;
        }
        Ok(())
    }

    /// Sometimes starts the database after a cut, and cuts the power again during this start.
    fn cut_a_start(&mut self, counts: &mut Counts) {
        if !self.random.is(50) {
            return;
        }
        let operations = self.random.below(14);
        self.disk().lock().cut_after(operations);
        drop(self.start());
        counts.cuts += 1;
        counts.during_start += 1;
        self.disk().lock().restart();
    }

    /// Works until the power is cut. Returns false if the power was cut before the database was open.
    fn work(&mut self, counts: &mut Counts) -> Result<bool, String> {
        let Some(mut store) = self.opened()? else { return Ok(false) };
        for _ in 0..400 {
            match self.random.below(100) {
                0..75 => {
                    let step = self.step();
                    self.ask(&store, vec![step], counts)?;
                }
                75..90 => {
                    let steps = (0..2 + self.random.below(6)).map(|_| self.step()).collect();
                    self.ask(&store, steps, counts)?;
                }
                90..93 => {
                    // Without an answer, it may be made.
                    self.compacted = self.newest;
                    let _ = store.compact(self.newest).wait();
                }
                93..96 => self.watch(&store)?,
                _ => {
                    drop(store);
                    if !self.disk().lock().has_power() {
                        return Ok(true);
                    }
                    counts.orderly_ends += 1;
                    let name = self.name();
                    let content = self.disk().lock().content(&name);
                    self.copy = Some((content, false));
                    let Some(again) = self.opened()? else { return Ok(false) };
                    store = again;
                }
            }
            if !self.disk().lock().has_power() {
                return Ok(true);
            }
        }
        Ok(true)
    }

    fn name(&self) -> String {
        self.file.display().to_string()
    }

    /// Opens the database. Returns `None` if the power was cut meanwhile.
    fn opened(&mut self) -> Result<Option<Database>, String> {
        match self.start() {
            Ok(store) => {
                self.copy = self.copy.take().map(|(copy, _)| (copy, true));
                Ok(Some(store))
            }
            Err(error) if self.disk().lock().has_power() => Err(format!("it does not open: {error}")),
            Err(_) => Ok(None),
        }
    }

    fn step(&mut self) -> Step {
        let number = self.random.below(6);
        match self.random.below(10) {
            0..4 => {
                let (key, len) = (format!("k/{number}"), [3, 600, 5000][self.random.below(3) as usize]);
                Step::Put(key, format!("{:x}", self.random.next()).repeat(1 + len / 16))
            }
            4 => Step::Delete(format!("k/{number}")),
            5..7 => {
                let key = format!("n/{}", number % 3);
                let next = self.end_of(&key) + 1 + self.random.below(100);
                Step::Number(key, next)
            }
            7 => {
                let key = format!("c/{}", number % 3);
                let next = self.end_of(&key) + 1 + self.random.below(100);
                Step::Context(key, next)
            }
            8 => match self.leased.keys().next() {
                Some(lease) => Step::Revoke(*lease),
                None => Step::Leased("l/0".into(), LeaseId(0)),
            },
            _ => Step::Leased(format!("l/{number}"), LeaseId(0)),
        }
    }

    /// Returns the number in a row after the last acknowledged change; 0 without a row.
    fn end_of(&self, key: &str) -> u64 {
        self.rows.get(key).map_or(0, |(text, _)| text.parse().expect("a number"))
    }

    /// Requests all changes, and then waits for the answers. Records the acknowledged changes.
    fn ask(&mut self, store: &Database, steps: Vec<Step>, counts: &mut Counts) -> Result<(), String> {
        self.begin_batch();
        // Two moves of one number in one batch would need the answer of the first.
        let mut taken = Vec::new();
        let steps: Vec<Step> = steps.into_iter().filter(|step| is_first(step, &mut taken)).collect();
        let mut asked = Vec::new();
        for step in steps {
            let transaction = Transaction::default();
            let answer = match &step {
                Step::Put(key, text) => store.commit(transaction.put(key.as_str(), Value::Plain(text.clone().into()))),
                Step::Delete(key) => store.commit(transaction.delete(key.as_str())),
                Step::Number(key, next) => {
                    store.commit(transaction.put(key.as_str(), Value::Number(Number { next: *next, pace: PACE })))
                }
                Step::Context(name, next) => {
                    let change = Change::Put(name.clone(), Numbers::from(*next, None));
                    self.open.push(step.clone());
                    let result = store.change_now(change);
                    self.settle(step, result.map(|()| self.newest).map_err(|error| error.to_string()), counts)?;
                    continue;
                }
                Step::Leased(key, _) => {
                    let Ok(lease) = store.grant(Duration::from_secs(1000)).wait() else { break };
                    self.newer(Revision(lease.0))?;
                    let transaction = transaction.put_leased(key.as_str(), Value::Plain(b"leased".to_vec()), lease);
                    let step = Step::Leased(key.clone(), lease);
                    self.open.push(step.clone());
                    asked.push((step, store.commit(transaction)));
                    continue;
                }
                Step::Revoke(lease) => {
                    self.open.push(step.clone());
                    let result = store.revoke(*lease).wait();
                    self.settle(step, result.map(|()| self.newest).map_err(|error| error.to_string()), counts)?;
                    continue;
                }
            };
            self.open.push(step.clone());
            asked.push((step, answer));
        }
        for (step, answer) in asked {
            self.settle(step, answer.wait().map_err(|error| error.to_string()), counts)?;
        }
        Ok(())
    }

    fn begin_batch(&mut self) {
        self.before = self.newest;
        self.batch.clear();
    }

    /// Records a new revision. Returns an error if the revision is not newer than the revisions before the batch, or if
    /// it was used twice in the batch.
    fn newer(&mut self, revision: Revision) -> Result<(), String> {
        if revision <= self.before || !self.batch.insert(revision) {
            return Err(format!("revision {} came again", revision.0));
        }
        self.newest = self.newest.max(revision);
        Ok(())
    }

    /// Records the answer to a change.
    fn settle(&mut self, step: Step, answer: Result<Revision, String>, counts: &mut Counts) -> Result<(), String> {
        let revision = match answer {
            Ok(revision) => revision,
            Err(_) if !self.disk().lock().has_power() => return Ok(()),
            Err(error) => return Err(format!("{step:?} is refused: {error}")),
        };
        let has_revision = match &step {
            Step::Context(..) | Step::Revoke(_) => false,
            Step::Delete(key) => self.rows.contains_key(key),
            _ => true,
        };
        if has_revision {
            self.newer(revision)?;
        }
        if let Step::Number(key, next) | Step::Context(key, next) = &step {
            // The server begins at the end that it found, and uses all numbers below the new one.
            counts.numbers_issued += next - self.end_of(key);
            self.issued.insert(key.clone(), *next);
        }
        counts.acknowledged += 1;
        apply(&mut self.rows, &mut self.leased, &step, has_revision.then_some(revision));
        let at = self.open.iter().position(|open| format!("{open:?}") == format!("{step:?}"));
        at.map(|at| self.open.remove(at));
        Ok(())
    }

    /// Replaces the database by an older copy, which the next start must refuse. Restores the newest database
    /// afterwards.
    fn refuse_copy(&mut self, counts: &mut Counts) -> Result<(), String> {
        let Some((copy, true)) = &self.copy else { return Ok(()) };
        let (before, name) = (self.disk().lock().clone(), self.name());
        {
            let mut state = self.disk().lock();
            state.replace(&name, copy.clone());
            state.forget(&format!("{name}-wal"));
        }
        let refused = self.start();
        let result = match &refused {
            Err(StateError::Untrusted { .. }) => Ok(()),
            Err(error) => Err(format!("an older copy is refused for another reason: {error}")),
            Ok(_) => Err("an older copy is taken".to_owned()),
        };
        drop(refused);
        *self.disk().lock() = before;
        counts.old_copies += 1;
        result
    }

    /// Opens the database after a cut, and compares all rows with the acknowledged changes.
    fn check(&mut self, counts: &mut Counts) -> Result<(), String> {
        let store = self.start().map_err(|error| format!("it does not open: {error}"))?;
        self.copy = self.copy.take().map(|(copy, _)| (copy, true));
        let page = store.scan(Scan::of("", 1000)).wait().map_err(|error| error.to_string())?;
        let mut found = Rows::new();
        for entry in &page.entries {
            let text = match &entry.value {
                Value::Number(number) => number.next.to_string(),
                other => String::from_utf8_lossy(other.plain().unwrap_or_default()).into_owned(),
            };
            found.insert(String::from_utf8_lossy(&entry.key).into_owned(), (text, Some(entry.changed)));
        }
        for (name, numbers) in store.load("c/") {
            found.insert(name, (numbers.next.to_string(), None));
        }
        for (key, issued) in &self.issued {
            let next = found.get(key).and_then(|(text, _)| text.parse::<u64>().ok()).unwrap_or(0);
            if next < *issued {
                return Err(format!("{key}: numbers from {next} come again, {issued} were issued"));
            }
        }
        self.explain(found, counts)?;
        let newest = page.entries.iter().map(|entry| entry.changed).max().unwrap_or_default();
        self.newest = self.newest.max(newest);
        self.begin_batch();
        let mark = store.commit(Transaction::default().put("mark", Value::Plain(b"x".to_vec()))).wait();
        let mark = mark.map_err(|error| error.to_string())?;
        self.newer(mark)?;
        self.rows.insert("mark".into(), ("x".into(), Some(mark)));
        self.watch(&store)
    }

    /// Finds the number of changes without an answer that the database has made. These changes must be the first ones
    /// in the order of the requests. Records the rows that were found.
    fn explain(&mut self, found: Rows, counts: &mut Counts) -> Result<(), String> {
        let open = std::mem::take(&mut self.open);
        let (mut rows, mut leased) = (self.rows.clone(), self.leased.clone());
        for made in 0..=open.len() {
            if is_same(&rows, &found) {
                counts.survived += made as u64;
                (self.rows, self.leased) = (found, leased);
                return Ok(());
            }
            if let Some(step) = open.get(made) {
                apply(&mut rows, &mut leased, step, None);
            }
        }
        let short = |rows: &Rows| {
            let row = |(key, (text, at)): (&String, &(String, Option<Revision>))| {
                format!("{key}@{}={}", at.map_or(0, |at| at.0), text.chars().take(12).collect::<String>())
            };
            rows.iter().map(row).collect::<Vec<_>>().join(" ")
        };
        let (was, is) = (short(&self.rows), short(&found));
        Err(format!("rows are {is} and were {was}, with {} changes without an answer", open.len()))
    }

    /// Sends all changes to the watcher, whose rows must then be equal to the rows of the store.
    fn watch(&mut self, store: &Database) -> Result<(), String> {
        if self.seen >= self.newest {
            return Ok(());
        }
        match store.changes(b"", self.seen, 10_000).wait() {
            Ok(Changes { changes, through }) => {
                for change in changes {
                    let key = String::from_utf8_lossy(&change.key).into_owned();
                    match change.entry.map(|entry| entry.value) {
                        None => self.watched.remove(&key),
                        Some(Value::Number(number)) => self.watched.insert(key, number.next.to_string()),
                        Some(value) => {
                            let text = String::from_utf8_lossy(value.plain().unwrap_or_default()).into_owned();
                            self.watched.insert(key, text)
                        }
                    };
                }
                self.seen = through;
            }
            Err(StoreError::Compacted { .. }) if self.seen < self.compacted => {
                self.watched = self.in_store();
                self.seen = self.newest;
            }
            Err(_) if !self.disk().lock().has_power() => return Ok(()),
            Err(error) => return Err(format!("changes since {}: {error}", self.seen.0)),
        }
        if self.open.is_empty() && self.watched != self.in_store() {
            return Err(format!("a watcher has seen {:?}", self.watched.keys()));
        }
        Ok(())
    }

    /// Returns the expected rows that have revisions: all rows except the numbers of contexts.
    fn in_store(&self) -> BTreeMap<String, String> {
        let rows = self.rows.iter().filter(|(key, _)| !key.starts_with("c/"));
        rows.map(|(key, (text, _))| (key.clone(), text.clone())).collect()
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        if let Some(directory) = self.file.parent() {
            let _ = std::fs::remove_dir_all(directory);
        }
    }
}

/// Returns true if no earlier step of the batch has the same key. `taken` has the keys of these steps.
fn is_first(step: &Step, taken: &mut Vec<String>) -> bool {
    let key = match step {
        Step::Put(key, _) | Step::Delete(key) | Step::Number(key, _) | Step::Context(key, _) => key.clone(),
        // These wait for answers on their way.
        Step::Leased(..) | Step::Revoke(_) => "lease".to_owned(),
    };
    let is_first = !taken.contains(&key);
    taken.push(key);
    is_first
}

fn apply(rows: &mut Rows, leased: &mut BTreeMap<LeaseId, String>, step: &Step, at: Option<Revision>) {
    let key = match step {
        Step::Put(key, text) => {
            rows.insert(key.clone(), (text.clone(), at));
            return;
        }
        Step::Number(key, next) | Step::Context(key, next) => {
            rows.insert(key.clone(), (next.to_string(), at));
            return;
        }
        Step::Leased(key, lease) => {
            rows.insert(key.clone(), ("leased".to_owned(), at));
            leased.retain(|_, other| other != key);
            leased.insert(*lease, key.clone());
            return;
        }
        Step::Delete(key) => Some(key.clone()),
        Step::Revoke(lease) => leased.remove(lease),
    };
    if let Some(key) = key {
        rows.remove(&key);
    }
}

/// Returns true if the found rows are the expected rows. If the revision of an expected row is known, the found row
/// must also have this revision.
fn is_same(expected: &Rows, found: &Rows) -> bool {
    expected.len() == found.len()
        && expected.iter().zip(found).all(|((key, (text, at)), (found_key, (found_text, found_at)))| {
            key == found_key && text == found_text && (at.is_none() || at == found_at)
        })
}

/// The pace of all numbers: the maximum increase in a day.
const PACE: u64 = 1000 * DAY;
