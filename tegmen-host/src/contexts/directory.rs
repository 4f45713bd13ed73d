//! A directory with one context.

mod rederivation;

pub(crate) use rederivation::{Received, Untaken};

use super::ContextError;
use super::file::ContextFile;
use super::keeper::{self, Keeper};
use super::source::CONTEXT;
use crate::provider::HostCrypto;
use rederivation::Rederivation;
use std::path::Path;
use tegmen::oscore::ReplayWindow;
use tegmen::oscore::{BadParameters, Parameters, ProtectError, RederivableContext};
use tegmen_store::{Database, Numbers};

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
    keeper::create(dir, &context.to_text(), numbers)?;
    // Reads the file again, so that an error in it shows now.
    ContextFile::read(dir).map(|_| ())
}

/// Returns the context that continues with these numbers.
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
    pub(super) keeper: Keeper,
    /// If both ends agreed to derive new keys when the numbers are lost.
    pub(super) rederivation: Option<Rederivation>,
    /// True if the other end does not know a context any more on which both agreed.
    pub(super) is_unknown: bool,
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
            keeper: Keeper::in_memory(file.created),
            rederivation: None,
            is_unknown: false,
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
        let file = ContextFile::read(dir)?;
        let (keeper, numbers) = Keeper::open(dir, file.terms(), database)?;
        let (numbers, is_lost) = match numbers {
            Ok(numbers) => (numbers, false),
            Err(_) if file.rederivation => (Rederivation::of_lost(&keeper.numbers_file()), true),
            Err(error) => return Err(error),
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
            keeper,
            rederivation: file.rederivation.then(|| Rederivation::new(file, is_lost)),
            is_unknown: false,
        };
        stored.check_expiry()?;
        if !stored.is_lost() {
            // A start after a power cut must see that this context was in use, whatever this process sends.
            stored.renew()?;
        }
        stored.keeper.finish_move(numbers.next)?;
        if !stored.is_lost() {
            stored.keeper.leave_mark()?;
        }
        Ok(stored)
    }

    /// True if both ends agreed on the context, and can agree on another one.
    const fn is_agreed(&self) -> bool {
        self.keeper.is_in_memory()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        self.keeper.dir()
    }

    /// Refuses what is expired.
    ///
    /// # Errors
    /// [`ContextError::Expired`].
    pub fn check_expiry(&self) -> Result<(), ContextError> {
        self.keeper.check_expiry()
    }

    /// Leases numbers: makes their end durable first.
    ///
    /// # Errors
    /// [`ContextError`]; the lease is then as it was.
    pub fn renew(&mut self) -> Result<(), ContextError> {
        if self.is_lost() {
            return Err(self.keeper.untrusted("new keys have to be derived first".to_owned()));
        }
        let end = self.keeper.next_end(self.context.lease())?;
        self.keeper.keep(&self.named(Numbers::from(end, None)))?;
        self.context.lease_mut().extend(end);
        Ok(())
    }

    /// Refuses an expired context, and ensures that the next message has a number.
    ///
    /// # Errors
    /// [`ContextError`].
    pub(crate) fn prepare(&mut self) -> Result<(), ContextError> {
        self.check_expiry()?;
        if self.context.lease().left() > 0 { Ok(()) } else { self.renew() }
    }

    /// Ensures that the next message has a number.
    ///
    /// # Errors
    /// [`ProtectError::LeaseSpent`] if the file of numbers cannot be written, [`ProtectError::Exhausted`] at the end of all numbers.
    pub fn lease_one(&mut self) -> Result<(), ProtectError> {
        if self.context.lease().left() > 0 {
            return Ok(());
        }
        self.renew().map_err(keeper::without_number)
    }

    /// Ends like a power cut, without a write to disk. The next start continues after the lease.
    pub fn abandon(mut self) {
        self.keeper.end();
    }

    /// Keeps everything as it is, at an orderly end; nothing can be protected after it.
    ///
    /// # Errors
    /// [`ContextError::File`]; the next start then continues as after a power cut.
    pub fn close(&mut self) -> Result<(), ContextError> {
        if !self.keeper.end() {
            return Ok(());
        }
        let window = self.context.window();
        let known = window.mark().is_none().then_some(<[u64; 2]>::from(window.parts()));
        let numbers = self.named(Numbers::from(self.context.lease().next(), known));
        self.context.lease_mut().stop();
        if self.is_lost() {
            // The kept numbers are still not to be trusted.
            return Ok(());
        }
        self.keeper.keep(&numbers)
    }
}

impl Drop for StoredContext {
    fn drop(&mut self) {
        // If the write fails, the next start continues after the lease, as after a power cut.
        let _ = self.close();
    }
}
