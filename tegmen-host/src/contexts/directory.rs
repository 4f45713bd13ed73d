//! A directory with one context.

mod rederivation;

pub(crate) use rederivation::{Received, Untaken};

use super::file::{CONTEXT, ContextFile};
use super::{ContextError, file_error, write_error};
use crate::private;
use crate::provider::HostCrypto;
use rederivation::Rederivation;
use std::fs::{File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use tegmen::oscore::ReplayWindow;
use tegmen::oscore::{BadParameters, MAX_PARTIAL_IV, Parameters, ProtectError, RederivableContext};
use tegmen_store::clock::{self, is_in_future, now, now_millis};
use tegmen_store::files::sync_directory;
use tegmen_store::lock::Locked;
use tegmen_store::{Database, LEASE, Numbers, Place};

const NUMBERS: &str = "numbers.toml";
/// The mark that the first use leaves.
const USED: &str = "used";
/// Seconds after its creation in which an unused context begins with number 0. A later one may be an image whose original
/// was used.
const GRACE: u64 = 600;

/// The numbers that a context has used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Used {
    /// Every number below may have been used.
    pub next: u64,
    /// True if what the other end used is known.
    pub window_known: bool,
    /// True if a process has the context open now.
    pub open: bool,
    /// True if the numbers are in a database of state, and those here are of no use.
    pub in_database: bool,
    /// True if the numbers belong to keys that were derived again (RFC 8613, appendix B.2).
    pub is_rederived: bool,
    /// True if neither this directory nor a copy that it was made from was used.
    pub is_unused: bool,
}

impl Used {
    /// In words.
    pub fn text(&self) -> String {
        if self.in_database {
            return "in a database of state".to_owned();
        }
        let window = match (self.open, self.window_known) {
            (true, _) => "in use now",
            (false, true) => "what the other end used is known",
            (false, false) => "what the other end used is not known: its next request is answered with a challenge",
        };
        let keys = if self.is_rederived { " under keys that were derived anew" } else { "" };
        format!("those below {} may be used up{keys}; {window}", self.next)
    }
}

/// Looks at the numbers of a context without opening it.
///
/// # Errors
/// [`ContextError::Numbers`] as [`StoredContext::open`].
pub fn used(dir: &Path) -> Result<Used, ContextError> {
    let open = matches!(lock(dir), Err(ContextError::InUse { .. }));
    let wrong = |why| ContextError::Numbers { dir: dir.display().to_string(), why };
    let numbers = trusted(dir, &ContextFile::read(dir)?).map_err(wrong)?;
    Ok(Used {
        next: numbers.next,
        window_known: numbers.window.is_some(),
        open,
        in_database: numbers.in_database,
        is_rederived: !numbers.with.is_empty(),
        is_unused: is_unused(dir),
    })
}

/// Writes a new directory for an unused context.
///
/// # Errors
/// [`ContextError::File`], also if there is one already.
pub fn create(dir: &Path, context: &ContextFile) -> Result<(), ContextError> {
    create_at(dir, context, &Numbers::fresh())
}

/// As [`create`], for a context that was used elsewhere: from `next` on, the numbers of the other end unknown.
pub(super) fn create_used(dir: &Path, context: &ContextFile, next: u64) -> Result<(), ContextError> {
    create_at(dir, context, &Numbers::from(next, None))
}

fn create_at(dir: &Path, context: &ContextFile, numbers: &Numbers) -> Result<(), ContextError> {
    let path = dir.join(CONTEXT);
    std::fs::create_dir_all(dir).map_err(write_error(dir))?;
    let mut file = private::open(File::options().write(true).create_new(true), &path).map_err(write_error(&path))?;
    let written = file.write_all(context.to_text().as_bytes()).and_then(|()| file.sync_all());
    written.map_err(write_error(&path))?;
    let path = dir.join(NUMBERS);
    numbers.keep(&path, false).map_err(write_error(&path))?;
    // What was written must be what is read.
    ContextFile::read(dir).map(|_| ())
}

/// The numbers that may have been leased since a context was made, at `created` in seconds since 1970: 4 each millisecond.
pub(super) fn allowance(created: u64) -> u64 {
    clock::allowed(4 * clock::DAY, created.saturating_mul(1000), now_millis())
}

/// The numbers that the next process begins with. Those of a context without a place were never used here, but an image of
/// it may have been used elsewhere, or here before it was put back: only the files that [`create`] wrote, and only within
/// [`GRACE`], begin with what they say. All others begin past everything that may have been used, with a lost window.
///
/// # Errors
/// Why they cannot be trusted.
fn trusted(dir: &Path, file: &ContextFile) -> Result<Numbers, String> {
    let numbers = Numbers::read(&dir.join(NUMBERS))?;
    if numbers.place.is_some() {
        return Ok(numbers);
    }
    if dir.join(USED).exists() {
        return Err(format!("{NUMBERS} says that nobody has used the context, and it was used here (file {USED})"));
    }
    if is_in_future(file.created) {
        return Err("the context was made in the future: the clock went back, or is not set".to_owned());
    }
    if numbers.made.is_some() && now().saturating_sub(file.created) < GRACE {
        return Ok(numbers);
    }
    Ok(Numbers::from(allowance(file.created).max(numbers.next), None))
}

/// True if nobody has used these files, however old they are.
fn is_unused(dir: &Path) -> bool {
    let is_new = |numbers: Numbers| numbers.place.is_none() && numbers.made.is_some() && numbers.next == 0;
    Numbers::read(&dir.join(NUMBERS)).is_ok_and(is_new) && !dir.join(USED).exists()
}

/// Leaves the mark of the first use, durably.
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

/// Moves a context whose numbers cannot be trusted past everything that may have been used: what a clock that never goes
/// back allowed it to lease until now.
///
/// # Errors
/// [`ContextError`]; [`ContextError::InUse`] while another process has it.
pub fn recover(dir: &Path) -> Result<u64, ContextError> {
    let context = ContextFile::read(dir)?;
    let _lock = lock(dir)?;
    let path = dir.join(NUMBERS);
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let known = toml::from_str::<Numbers>(&text).map_or(0, |numbers| numbers.next);
    let next = allowance(context.created).max(known);
    if next > MAX_PARTIAL_IV {
        return Err(ContextError::Exhausted { dir: dir.display().to_string() });
    }
    Numbers::from(next, None).keep(&path, true).map_err(file_error(&path))?;
    Ok(next)
}

/// Locks the file that the context is read from: removing it removes the context.
fn lock(dir: &Path) -> Result<Locked, ContextError> {
    let path = dir.join(CONTEXT);
    // Some file systems lock only what is open for writing.
    let file = File::options().read(true).write(true).open(&path).or_else(|_| File::open(&path));
    let file = file.map_err(file_error(&path))?;
    Locked::new(file).map_err(|error| match error {
        TryLockError::WouldBlock => ContextError::InUse { dir: dir.display().to_string() },
        TryLockError::Error(source) => ContextError::File { file: path.display().to_string(), source },
    })
}

/// The context that goes on with these numbers.
fn numbers_to_context(file: &ContextFile, numbers: &Numbers) -> Result<RederivableContext, BadParameters> {
    let (parameters, window) =
        (file.parameters(), numbers.window.map(|window| ReplayWindow::from(<(u64, u64)>::from(window))));
    match (numbers.id_context(), window) {
        (Some((id_context, settled)), window) => {
            let parameters = Parameters { id_context: Some(&id_context), ..parameters };
            RederivableContext::resume_rederived::<HostCrypto>(&parameters, numbers.next, window, settled)
        }
        (None, Some(window)) => RederivableContext::restore::<HostCrypto>(&parameters, numbers.next, window),
        (None, None) => RederivableContext::resume::<HostCrypto>(&parameters, numbers.next),
    }
}

/// A context that is open: no other process can open it meanwhile.
pub struct StoredContext {
    /// The context. Its lease is extended by [`Self::renew`].
    pub context: RederivableContext,
    /// The rights of the other end; `None` allows everything.
    pub allow: Option<Vec<String>>,
    dir: PathBuf,
    place: Place,
    created: u64,
    expires: Option<(u64, String)>,
    /// If both ends agreed to derive new keys when the numbers are lost.
    pub(super) rederivation: Option<Rederivation>,
    closed: bool,
    /// True if the other end does not know a context any more on which both agreed.
    pub(super) is_unknown: bool,
    /// `None` for a context in memory.
    _lock: Option<Locked>,
}

impl StoredContext {
    /// Returns a context on which both ends have agreed just now. It is in memory alone: its keys were never used, and nobody has them
    /// after the end of the process.
    ///
    /// # Errors
    /// [`BadParameters`].
    pub(crate) fn of_agreed(file: &ContextFile) -> Result<Self, BadParameters> {
        Ok(Self {
            context: RederivableContext::new::<HostCrypto>(&file.parameters())?,
            allow: file.allow.clone(),
            dir: PathBuf::new(),
            place: Place::Memory,
            created: file.created,
            expires: None,
            rederivation: None,
            closed: false,
            is_unknown: false,
            _lock: None,
        })
    }

    /// Opens a directory. After an orderly end the context continues at its next number. After any other end it gives
    /// up the leased numbers, and the window of the other end is lost.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn open(dir: &Path) -> Result<Self, ContextError> {
        Self::open_in(dir, None)
    }

    /// Does the same as [`Self::open`], with numbers in a database that several contexts share. The file of numbers
    /// records this, and is then not valid alone.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn open_in(dir: &Path, database: Option<&Database>) -> Result<Self, ContextError> {
        let name = || dir.display().to_string();
        let file = ContextFile::read(dir)?;
        let lock = lock(dir)?;
        let at = dir.join(NUMBERS);
        let numbers = Self::numbers(dir, &file, database);
        let in_database = numbers.as_ref().is_ok_and(|(_, in_database)| *in_database);
        let (numbers, is_lost) = match numbers {
            Ok((numbers, _)) => (numbers, false),
            Err(_) if file.rederivation => (Rederivation::of_lost(&at), true),
            Err(why) => return Err(ContextError::Numbers { dir: name(), why }),
        };
        let place = match database {
            None => Place::of_file(at.clone()),
            Some(database) => Place::Database(database.clone(), file.row()),
        };
        let context = numbers_to_context(&file, &numbers).map_err(|error| ContextError::Syntax {
            file: dir.join(CONTEXT).display().to_string(),
            line: 1,
            message: match error {
                BadParameters::Unsupported => "algorithm: this machine has no such cipher".to_owned(),
                other => format!("{other:?}"),
            },
        })?;
        let mut stored = Self {
            context,
            allow: file.allow.clone(),
            dir: dir.to_owned(),
            place,
            created: file.created,
            expires: file.expires.clone(),
            rederivation: file.rederivation.then(|| Rederivation::new(file, is_lost)),
            closed: false,
            is_unknown: false,
            _lock: Some(lock),
        };
        stored.check_expiry()?;
        if !stored.is_lost() {
            // Whoever comes after a power cut must see that this was in use, whatever it sends.
            stored.renew()?;
        }
        if database.is_some() && !in_database {
            // From now on the row is what counts.
            let moved = Numbers { in_database: true, ..Numbers::from(numbers.next, None) };
            moved.keep(&at, true).map_err(file_error(&at))?;
        }
        if !stored.is_lost() {
            // After the numbers: a power cut in between leaves a context that was used and says so.
            leave_mark(dir).map_err(write_error(&dir.join(USED)))?;
        }
        Ok(stored)
    }

    /// The numbers of a context, and whether its file says already that they are in a database.
    ///
    /// # Errors
    /// Why they cannot be trusted.
    fn numbers(dir: &Path, file: &ContextFile, database: Option<&Database>) -> Result<(Numbers, bool), String> {
        let in_file = trusted(dir, file)?;
        let Some(database) = database else {
            return match in_file.in_database {
                true => Err("its numbers are in a database of state (--state FILE)".to_owned()),
                false => Ok((in_file, false)),
            };
        };
        let was_there = in_file.in_database;
        let numbers = match (database.load(&file.row()).pop(), was_there) {
            (Some((_, numbers)), true) => numbers,
            // It was used from its file since, or this ended when it was just taken over.
            (Some((_, numbers)), false) if numbers.with == in_file.with => {
                Numbers { with: in_file.with, ..Numbers::from(numbers.next.max(in_file.next), None) }
            }
            // Under other keys since.
            (Some(_), false) | (None, false) => in_file,
            (None, true) if database.was_recovered() => Numbers::from(allowance(file.created), None),
            (None, true) => return Err("its numbers are in another database of state".to_owned()),
        };
        Ok((numbers, was_there))
    }

    /// True if both ends agreed on the context, and can agree on another one.
    const fn is_agreed(&self) -> bool {
        matches!(self.place, Place::Memory)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Refuses what is expired.
    ///
    /// # Errors
    /// [`ContextError::Expired`].
    pub fn check_expiry(&self) -> Result<(), ContextError> {
        match &self.expires {
            Some((at, text)) if *at <= now() => {
                Err(ContextError::Expired { dir: self.dir.display().to_string(), at: text.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Leases numbers: makes their end durable first.
    ///
    /// # Errors
    /// [`ContextError`]; the lease is then as it was.
    pub fn renew(&mut self) -> Result<(), ContextError> {
        if self.is_lost() {
            let why = "new keys have to be derived first".to_owned();
            return Err(ContextError::Numbers { dir: self.dir.display().to_string(), why });
        }
        let next = self.context.lease().next();
        if next > MAX_PARTIAL_IV {
            return Err(ContextError::Exhausted { dir: self.dir.display().to_string() });
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
            return Err(ContextError::Numbers { dir: self.dir.display().to_string(), why });
        }
        self.check_place()?;
        let end = self.context.lease().end().max(next.saturating_add(LEASE).min(allowed));
        self.keep(&self.named(Numbers::from(end, None)))?;
        self.context.lease_mut().extend(end);
        Ok(())
    }

    /// Refuses to write where somebody else has written since.
    pub(super) fn check_place(&self) -> Result<(), ContextError> {
        match self.place.is_ours() {
            true => Ok(()),
            false => Err(ContextError::Numbers {
                dir: self.dir.display().to_string(),
                why: format!("{NUMBERS} is not the one that this process wrote: another process uses the context"),
            }),
        }
    }

    /// Sees to it that there is a number to be used.
    ///
    /// # Errors
    /// [`ProtectError::LeaseSpent`] if the file of numbers cannot be written, [`ProtectError::Exhausted`] at the end of all numbers.
    pub fn lease_one(&mut self) -> Result<(), ProtectError> {
        if self.context.lease().left() > 0 {
            return Ok(());
        }
        self.renew().map_err(|error| match error {
            ContextError::Exhausted { .. } => ProtectError::Exhausted,
            _ => ProtectError::LeaseSpent,
        })
    }

    /// Ends like a power cut, without a write to disk. The next start continues after the lease.
    pub fn abandon(mut self) {
        self.closed = true;
    }

    /// Keeps everything as it is, at an orderly end; nothing can be protected after it.
    ///
    /// # Errors
    /// [`ContextError::File`]; the next start then goes on as after a power cut.
    pub fn close(&mut self) -> Result<(), ContextError> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        let window = self.context.window();
        let known = window.mark().is_none().then_some(<[u64; 2]>::from(window.parts()));
        let numbers = self.named(Numbers::from(self.context.lease().next(), known));
        self.context.lease_mut().stop();
        if self.is_lost() {
            // What is kept is as little to be trusted as it was.
            return Ok(());
        }
        self.check_place()?;
        self.keep(&numbers)
    }

    /// Makes numbers durable.
    pub(super) fn keep(&mut self, numbers: &Numbers) -> Result<(), ContextError> {
        let kept = self.place.keep(numbers);
        kept.map_err(file_error(self.place.file()))
    }
}

impl Drop for StoredContext {
    fn drop(&mut self) {
        // If it cannot be written, the next start goes on after the lease, as after a power cut.
        let _ = self.close();
    }
}

/// Milliseconds that are waited for the clock.
const PATIENCE: u32 = 1000;
