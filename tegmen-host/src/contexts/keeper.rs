//! The sequence numbers of a context in a directory, for a context between two endpoints and for the context of a
//! group. This module stores the numbers, refuses numbers that cannot be trusted, and lets only one process use them at
//! a time.

use super::source::CONTEXT;
use super::{ContextError, file_error, windows, write_error};
use crate::private;
use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use tegmen::oscore::{Lease, MAX_PARTIAL_IV, ProtectError};
use tegmen_store::clock::{self, is_in_future, now, now_millis};
use tegmen_store::files::sync_directory;
use tegmen_store::lock::Locked;
use tegmen_store::{Database, LEASE, Numbers, Place};

/// The values that a [`Keeper`] needs from the file of a context, to load and check the sequence numbers.
pub(super) struct Terms {
    /// The time at which the context was made, in seconds since 1970.
    pub(super) created: u64,
    /// The expiry time, in seconds since 1970, and its text in the file; `None` if the context does not expire.
    pub(super) expires: Option<(u64, String)>,
    /// The key of the database row that stores the sequence numbers, if the context uses a database.
    pub(super) row: String,
    /// The number of other members of the group; `None` for a context between two endpoints.
    pub(super) others: Option<usize>,
}

/// The sequence numbers of an open context. While this value exists, no other process can open the context.
pub(super) struct Keeper {
    dir: PathBuf,
    place: Place,
    created: u64,
    expires: Option<(u64, String)>,
    closed: bool,
    /// True if the sequence numbers are in a database, but the file of sequence numbers does not record this yet.
    is_moving: bool,
    /// The lock on the directory; `None` for a context in memory.
    _lock: Option<Locked>,
}

impl Keeper {
    /// Returns the keeper of a context that exists only in memory. `created` is the time at which the context was made,
    /// in seconds since 1970.
    pub(super) fn in_memory(created: u64) -> Self {
        Self {
            dir: PathBuf::new(),
            place: Place::Memory,
            created,
            expires: None,
            closed: false,
            is_moving: false,
            _lock: None,
        }
    }

    /// Locks a directory. Returns the keeper and the sequence numbers. The keeper holds the lock. If the numbers cannot
    /// be trusted, the second value is an error with the reason.
    ///
    /// # Errors
    /// [`ContextError::InUse`], [`ContextError::File`].
    pub(super) fn open(
        dir: &Path,
        terms: Terms,
        database: Option<&Database>,
    ) -> Result<(Self, Result<Numbers, ContextError>), ContextError> {
        let lock = lock(dir)?;
        let numbers = numbers(dir, &terms, database);
        let is_in_database = numbers.as_ref().is_ok_and(|(_, is_in_database)| *is_in_database);
        let Terms { created, expires, row, .. } = terms;
        let keeper = Self {
            dir: dir.to_owned(),
            place: match database {
                None => Place::of_file(dir.join(NUMBERS)),
                Some(database) => Place::Database(database.clone(), row),
            },
            created,
            expires,
            closed: false,
            is_moving: database.is_some() && !is_in_database,
            _lock: Some(lock),
        };
        let numbers = numbers.map(|(numbers, _)| numbers).map_err(|why| keeper.untrusted(why));
        Ok((keeper, numbers))
    }

    /// Writes a note into the file of sequence numbers: a database has the valid numbers from now on. Does nothing if
    /// the file already contains this note. `next` is the next sequence number. Call this after the context reserved
    /// numbers in the database for the first time.
    ///
    /// # Errors
    /// [`ContextError::File`].
    pub(super) fn finish_move(&mut self, next: u64) -> Result<(), ContextError> {
        if std::mem::take(&mut self.is_moving) {
            // From now on the row is what counts.
            let moved = Numbers { in_database: true, ..Numbers::from(next, None) };
            let at = self.numbers_file();
            moved.keep(&at, true).map_err(file_error(&at))?;
        }
        Ok(())
    }

    /// Writes the file that marks the first use of the context. Call this after the first range of sequence numbers was
    /// reserved on disk (leased). If the power fails before the file is written, the reserved range already shows that
    /// the context was used.
    ///
    /// # Errors
    /// [`ContextError::File`].
    pub(super) fn leave_mark(&self) -> Result<(), ContextError> {
        leave_mark(&self.dir).map_err(write_error(&self.dir.join(USED)))
    }

    /// True for a context that is only in memory.
    pub(super) const fn is_in_memory(&self) -> bool {
        matches!(self.place, Place::Memory)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the path of the file with the sequence numbers.
    pub(super) fn numbers_file(&self) -> PathBuf {
        self.dir.join(NUMBERS)
    }

    fn name(&self) -> String {
        self.dir.display().to_string()
    }

    /// Returns the error for sequence numbers that cannot be trusted, with this reason.
    pub(super) fn untrusted(&self, why: String) -> ContextError {
        ContextError::Numbers { dir: self.name(), why }
    }

    /// Returns an error if the context has expired.
    pub(super) fn check_expiry(&self) -> Result<(), ContextError> {
        match &self.expires {
            Some((at, text)) if *at <= now() => Err(ContextError::Expired { dir: self.name(), at: text.clone() }),
            _ => Ok(()),
        }
    }

    /// Returns the end of the next lease, which is the range of sequence numbers that the context may use. Store this
    /// end with [`Self::keep`] before you extend `lease` to this end.
    ///
    /// # Errors
    /// [`ContextError::Exhausted`]; [`ContextError::Numbers`] if the context has already used all numbers that it may
    /// use at this time: see [`allowance`].
    pub(super) fn next_end(&self, lease: &Lease) -> Result<u64, ContextError> {
        let next = lease.next();
        if next > MAX_PARTIAL_IV {
            return Err(ContextError::Exhausted { dir: self.name() });
        }
        // After a recovery there is no more than what the clock allows; a few milliseconds bring enough.
        let mut allowed = allowance(self.created);
        for _ in 0..PATIENCE {
            if allowed > next {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
            allowed = allowance(self.created);
        }
        if allowed <= next {
            let why = "more of them are used than the clock allows: it went back, or is not set".to_owned();
            return Err(self.untrusted(why));
        }
        Ok(lease.end().max(next.saturating_add(LEASE).min(allowed)))
    }

    /// Writes sequence numbers to disk. Returns an error if another process has replaced the file since this process
    /// read or wrote it.
    ///
    /// # Errors
    /// [`ContextError::Numbers`] if another process uses the context; [`ContextError::File`].
    pub(super) fn keep(&mut self, numbers: &Numbers) -> Result<(), ContextError> {
        if !self.place.is_ours() {
            let why = format!("{NUMBERS} is not the one that this process wrote: another process uses the context");
            return Err(self.untrusted(why));
        }
        let kept = self.place.keep(numbers);
        kept.map_err(file_error(self.place.file()))
    }

    /// True after a call of [`Self::end`].
    pub(super) const fn is_over(&self) -> bool {
        self.closed
    }

    /// Ends the use of the sequence numbers by this process. Returns false if an earlier call has already ended it.
    pub(super) const fn end(&mut self) -> bool {
        !std::mem::replace(&mut self.closed, true)
    }
}

/// Returns the error for a message that gets no sequence number, because the context could not reserve further numbers.
pub(super) fn without_number(error: ContextError) -> ProtectError {
    match error {
        ContextError::Exhausted { .. } => ProtectError::Exhausted,
        _ => ProtectError::LeaseSpent,
    }
}

/// Makes a directory. Writes `text` to the file of the context, and `numbers` to the file of sequence numbers.
///
/// # Errors
/// [`ContextError::Exists`], [`ContextError::NotWritten`].
pub(super) fn create(dir: &Path, text: &str, numbers: &Numbers) -> Result<(), ContextError> {
    let path = dir.join(CONTEXT);
    std::fs::create_dir_all(dir).map_err(write_error(dir))?;
    let mut file = private::open(File::options().write(true).create_new(true), &path).map_err(write_error(&path))?;
    let written = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    written.map_err(write_error(&path))?;
    let path = dir.join(NUMBERS);
    numbers.keep(&path, false).map_err(write_error(&path)).map(|_| ())
}

/// Replaces the file of the context in a directory by `text`, which has new keys, and the file of sequence numbers by
/// `numbers`.
///
/// # Errors
/// [`ContextError::File`].
pub(super) fn replace(dir: &Path, text: &str, numbers: &Numbers) -> Result<(), ContextError> {
    let path = dir.join(NUMBERS);
    numbers.keep(&path, true).map_err(file_error(&path))?;
    let (path, new) = (dir.join(CONTEXT), dir.join(NEW));
    let written = private::open(File::options().write(true).create(true).truncate(true), &new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&new, &path)?;
        sync_directory(&path)
    });
    written.map_err(file_error(&new))
}

/// The sequence numbers that a context has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    /// The next sequence number. Each lower number may have been used.
    pub next: u64,
    /// True if the replay window is known. The window shows which sequence numbers the other endpoint has used.
    pub window_known: bool,
    /// True if a process has the context open now.
    pub open: bool,
    /// True if a database has the valid sequence numbers. The numbers in the directory are then not valid.
    pub in_database: bool,
    /// True if the sequence numbers belong to keys that were derived by rederivation (RFC 8613, appendix B.2).
    pub is_rederived: bool,
    /// True if nobody has used the context: neither in this directory, nor in another directory from which this
    /// directory was copied.
    pub is_unused: bool,
    /// True for the context of a group. [`Self::window_known`] is then true only if the replay windows of all other
    /// members are known.
    pub is_member: bool,
}

impl Used {
    /// Describes the state of the sequence numbers as a text for the operator.
    pub fn text(&self) -> String {
        if self.in_database {
            return "in a database of state".to_owned();
        }
        let window = match (self.open, self.window_known, self.is_member) {
            (true, ..) => "in use now",
            (false, true, false) => "what the other end used is known",
            (false, false, false) => {
                "what the other end used is not known: its next request is answered with a challenge"
            }
            (false, true, true) => "what the other members used is known",
            (false, false, true) => {
                "what each other member used is not known: the next request of such a member is answered with a challenge"
            }
        };
        let keys = if self.is_rederived { " under keys that were derived again" } else { "" };
        format!("those below {} may be used up{keys}; {window}", self.next)
    }
}

/// Reads the sequence numbers of a context without opening the context.
///
/// # Errors
/// [`ContextError::Numbers`].
pub(super) fn used(dir: &Path, terms: &Terms) -> Result<Used, ContextError> {
    let open = matches!(lock(dir), Err(ContextError::InUse { .. }));
    let wrong = |why| ContextError::Numbers { dir: dir.display().to_string(), why };
    let numbers = trusted(dir, terms).map_err(wrong)?;
    Ok(Used {
        next: numbers.next,
        window_known: numbers.window.is_some()
            || terms.others.is_some_and(|others| windows::count(&numbers.sealed) >= others),
        open,
        in_database: numbers.in_database,
        is_rederived: !numbers.with.is_empty(),
        is_unused: is_unused(dir),
        is_member: terms.others.is_some(),
    })
}

/// Raises the next sequence number of a context above every number that may have been used, and returns the new number.
/// A context may reserve only a limited number of sequence numbers in each millisecond, so the age of the context shows
/// which numbers it cannot have used: see [`allowance`].
///
/// # Errors
/// [`ContextError`]; [`ContextError::InUse`] while another process has the context open.
pub(super) fn recover(dir: &Path, terms: &Terms) -> Result<u64, ContextError> {
    let _lock = lock(dir)?;
    let path = dir.join(NUMBERS);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let known = toml::from_str::<Numbers>(&text).map_or(0, |numbers| numbers.next);
    let next = allowance(terms.created).max(known);
    if next > MAX_PARTIAL_IV {
        return Err(ContextError::Exhausted { dir: dir.display().to_string() });
    }
    Numbers::from(next, None).keep(&path, true).map_err(file_error(&path))?;
    Ok(next)
}

/// Returns the number of sequence numbers that a context may have reserved until now: 4 for each millisecond since its
/// creation, and 4 for each millisecond of one further day. `created` is the time of creation in seconds since 1970.
pub(super) fn allowance(created: u64) -> u64 {
    clock::allowed(4 * clock::DAY, created.saturating_mul(1000), now_millis())
}

/// Returns the sequence numbers with which the next process begins. The first process that uses the context writes the
/// entry `place` into the file of sequence numbers. If the file contains no `place`, no process has used the context
/// from this directory. But a copy of the directory may have been used elsewhere, or the directory may have been used
/// before a backup replaced it. So the sequence numbers in a file without `place` are used only if [`create`] wrote the
/// file and the context is younger than [`GRACE`]. Otherwise the sequence numbers begin above every one that may have
/// been used, and the replay window counts as lost.
///
/// # Errors
/// The reason why the numbers cannot be trusted.
fn trusted(dir: &Path, terms: &Terms) -> Result<Numbers, String> {
    let numbers = Numbers::read(&dir.join(NUMBERS))?;
    if numbers.place.is_some() {
        return Ok(numbers);
    }
    if dir.join(USED).exists() {
        return Err(format!("{NUMBERS} records that nobody has used the context, and it was used here (file {USED})"));
    }
    if is_in_future(terms.created) {
        return Err("the context was made in the future: the clock went back, or is not set".to_owned());
    }
    if numbers.made.is_some() && now().saturating_sub(terms.created) < GRACE {
        return Ok(numbers);
    }
    Ok(Numbers::from(allowance(terms.created).max(numbers.next), None))
}

/// Returns true if the files show that nobody has used the context. The age of the files is not checked.
fn is_unused(dir: &Path) -> bool {
    let is_new = |numbers: Numbers| numbers.place.is_none() && numbers.made.is_some() && numbers.next == 0;
    Numbers::read(&dir.join(NUMBERS)).is_ok_and(is_new) && !dir.join(USED).exists()
}

/// Returns the sequence numbers of a context. The second value is true if the file of sequence numbers already records
/// that a database has the valid sequence numbers.
///
/// # Errors
/// The reason why the numbers cannot be trusted.
fn numbers(dir: &Path, terms: &Terms, database: Option<&Database>) -> Result<(Numbers, bool), String> {
    let in_file = trusted(dir, terms)?;
    let Some(database) = database else {
        return match in_file.in_database {
            true => Err("its numbers are in a database of state (--state FILE)".to_owned()),
            false => Ok((in_file, false)),
        };
    };
    let was_there = in_file.in_database;
    let numbers = match (database.load(&terms.row).pop(), was_there) {
        (Some((_, numbers)), true) => numbers,
        // It was used from its file since, or this ended when it was just taken over.
        (Some((_, numbers)), false) if numbers.with == in_file.with => {
            Numbers { with: in_file.with, ..Numbers::from(numbers.next.max(in_file.next), None) }
        }
        // Under other keys since.
        (Some(_), false) | (None, false) => in_file,
        (None, true) if database.was_recovered() => Numbers::from(allowance(terms.created), None),
        (None, true) => return Err("its numbers are in another database of state".to_owned()),
    };
    Ok((numbers, was_there))
}

/// Writes to disk the file that marks the first use of the context.
fn leave_mark(dir: &Path) -> std::io::Result<()> {
    let path = dir.join(USED);
    if path.exists() {
        return Ok(());
    }
    let mut file = private::open(File::options().write(true).create(true).truncate(true), &path)?;
    file.write_all(b"# This context was used here. Written by tegmen; do not remove or copy.\n")?;
    file.sync_all()?;
    sync_directory(&path)
}

/// True if the directory contains a context.
pub(crate) fn has_context(dir: &Path) -> bool {
    dir.join(CONTEXT).exists()
}

/// Locks `context.toml`. Each directory of a context contains this file, so no process can open a context unless it
/// gets the lock.
pub(crate) fn lock(dir: &Path) -> Result<Locked, ContextError> {
    let path = dir.join(CONTEXT);
    // Some file systems lock only what is open for writing.
    let file = File::options().read(true).write(true).open(&path).or_else(|_| File::open(&path));
    let file = file.map_err(file_error(&path))?;
    Locked::new(file).map_err(|error| match error {
        TryLockError::WouldBlock => ContextError::InUse { dir: dir.display().to_string() },
        TryLockError::Error(source) => ContextError::File { file: path.display().to_string(), source },
    })
}

const NUMBERS: &str = "numbers.toml";
/// The name of a file that will replace `context.toml`.
const NEW: &str = "context.toml.new";
/// The name of the file that shows that the context was used at least once.
const USED: &str = "used";
/// An unused context begins with the sequence number 0 only within this number of seconds after its creation. After
/// this time the directory may be an old copy of a context that was used.
const GRACE: u64 = 600;
/// Maximum time, in milliseconds, for which the context waits until [`allowance`] permits further numbers.
const PATIENCE: u32 = 1000;
