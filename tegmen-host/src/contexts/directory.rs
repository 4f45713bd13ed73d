//! The stored OSCORE context between two endpoints, in a directory.

mod rederivation;

pub(crate) use rederivation::{Received, Untaken};

use super::ContextError;
use super::file::ContextFile;
use super::keeper::{self, Keeper};
use super::source::{CONTEXT, Source};
use crate::provider::HostCrypto;
use rederivation::Rederivation;
use std::path::Path;
use tegmen::oscore::ReplayWindow;
use tegmen::oscore::{BadParameters, Parameters, ProtectError, RederivableContext};
use tegmen_store::{Database, Numbers};

/// Makes a new directory for an unused context.
///
/// # Errors
/// [`ContextError`]; [`ContextError::Exists`] if the directory already has a context.
pub fn create(dir: &Path, context: &ContextFile) -> Result<(), ContextError> {
    create_at(dir, context, &Numbers::fresh())
}

/// Makes a directory as [`create`] does, for a context that was used elsewhere. The sequence numbers begin at `next`.
/// The replay window for the requests of the other endpoint is unknown.
pub(super) fn create_used(dir: &Path, context: &ContextFile, next: u64) -> Result<(), ContextError> {
    create_at(dir, context, &Numbers::from(next, None))
}

/// Makes two new directories, one for each endpoint of an unused context. The directories must not be the same.
///
/// # Errors
/// [`ContextError`]. If a context is not valid, or if one of the directories already has a context, nothing is written.
pub fn create_both(contexts: [(&Path, &ContextFile); 2]) -> Result<(), ContextError> {
    contexts.into_iter().try_for_each(|(dir, context)| check_new(dir, context))?;
    contexts.into_iter().try_for_each(|(dir, context)| create(dir, context))
}

fn create_at(dir: &Path, context: &ContextFile, numbers: &Numbers) -> Result<(), ContextError> {
    check_new(dir, context)?;
    keeper::create(dir, &context.to_text(), numbers)
}

/// Checks that the file of a new context will be valid, and that the directory has no context.
fn check_new(dir: &Path, context: &ContextFile) -> Result<(), ContextError> {
    let path = dir.join(CONTEXT);
    let file = path.display().to_string();
    ContextFile::parse(&Source::of(&file, &context.to_text()))?;
    if path.exists() { Err(ContextError::Exists { file }) } else { Ok(()) }
}

/// Makes the context from the content of its file. The context continues with the sequence numbers in `numbers`.
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

/// An open OSCORE context between two endpoints. No other process can open the context at the same time.
pub struct StoredContext {
    /// The context. [`Self::renew`] reserves further sequence numbers for it.
    pub context: RederivableContext,
    /// The rights of the other endpoint; `None` allows everything.
    pub allow: Option<Vec<String>>,
    pub(super) keeper: Keeper,
    /// The state of the rederivation of keys; `None` if the endpoints do not derive new keys after sequence numbers
    /// were lost.
    pub(super) rederivation: Option<Rederivation>,
    /// True if the two endpoints agreed on the context by EDHOC or with a token, and the other endpoint no longer knows
    /// the context.
    pub(super) is_unknown: bool,
}

impl StoredContext {
    /// Returns a context on which both endpoints have just agreed. The context exists only in memory. Its keys were
    /// never used before, and they are lost when the process ends.
    ///
    /// # Errors
    /// [`BadParameters`] if no context can be made from the file.
    pub(crate) fn of_agreed(file: &ContextFile) -> Result<Self, BadParameters> {
        Ok(Self {
            context: RederivableContext::new::<HostCrypto>(&file.parameters())?,
            allow: file.allow.clone(),
            keeper: Keeper::in_memory(file.created),
            rederivation: None,
            is_unknown: false,
        })
    }

    /// Opens the context in a directory. If the last use ended with [`Self::close`], the context continues at its next
    /// sequence number. If the last use ended in another way, such as a power cut, the context skips all sequence
    /// numbers that were reserved on disk, and the replay window for the requests of the other endpoint is lost.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn open(dir: &Path) -> Result<Self, ContextError> {
        Self::open_in(dir, None)
    }

    /// Does the same as [`Self::open`]. If there is a `database`, which several contexts can share, the sequence
    /// numbers are stored in the database. The file of sequence numbers then records that the database has the valid
    /// ones, and the context can no longer be opened without the database.
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

    /// True if both endpoints agreed on the context while they were running. If one endpoint no longer knows such a
    /// context, both can agree on another context.
    const fn is_agreed(&self) -> bool {
        self.keeper.is_in_memory()
    }

    /// Returns the directory of the context.
    pub fn dir(&self) -> &Path {
        self.keeper.dir()
    }

    /// Returns an error if the context has expired.
    ///
    /// # Errors
    /// [`ContextError::Expired`].
    pub fn check_expiry(&self) -> Result<(), ContextError> {
        self.keeper.check_expiry()
    }

    /// Reserves further sequence numbers. The context uses these numbers only after the end of their range is on disk.
    ///
    /// # Errors
    /// [`ContextError`]. The range of reserved numbers then does not change.
    pub fn renew(&mut self) -> Result<(), ContextError> {
        if self.is_lost() {
            return Err(self.keeper.untrusted("new keys have to be derived first".to_owned()));
        }
        let end = self.keeper.next_end(self.context.lease())?;
        self.keeper.keep(&self.named(Numbers::from(end, None)))?;
        self.context.lease_mut().extend(end);
        Ok(())
    }

    /// Checks that the context has not expired. Reserves sequence numbers if there is none left for the next message.
    ///
    /// # Errors
    /// [`ContextError`].
    pub(crate) fn prepare(&mut self) -> Result<(), ContextError> {
        self.check_expiry()?;
        if self.context.lease().left() > 0 { Ok(()) } else { self.renew() }
    }

    /// Reserves sequence numbers on disk if there is none left for the next message.
    ///
    /// # Errors
    /// [`ProtectError::LeaseSpent`] if no sequence numbers can be reserved, for example because their file cannot be
    /// written; [`ProtectError::Exhausted`] if all sequence numbers are used.
    pub fn lease_one(&mut self) -> Result<(), ProtectError> {
        if self.context.lease().left() > 0 {
            return Ok(());
        }
        self.renew().map_err(keeper::without_number)
    }

    /// Ends the use of the context in the same way as a power cut, without a write to disk. The next start skips all
    /// sequence numbers that are reserved on disk.
    pub fn abandon(mut self) {
        self.keeper.end();
    }

    /// Ends the use of the context: stores the next sequence number and the replay window. Afterwards the context
    /// protects no message. Dropping the context does the same.
    ///
    /// # Errors
    /// [`ContextError::File`]. The next start then continues as after a power cut.
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
