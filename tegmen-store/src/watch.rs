//! A watch: changes from a revision on, without gaps.

use crate::store::{Changes, Revision, Store, StoreError};

/// Changes of the keys that begin with a prefix.
pub struct Watch<S> {
    store: S,
    prefix: Vec<u8>,
    after: Revision,
}

impl<S: Store> Watch<S> {
    /// Watches changes after `after`, which is the revision of a read or a scan, or of the last change that was seen.
    pub fn new(store: S, prefix: impl Into<Vec<u8>>, after: Revision) -> Self {
        Self { store, prefix: prefix.into(), after }
    }

    /// Returns the revision up to which all changes were returned.
    pub const fn after(&self) -> Revision {
        self.after
    }

    /// Returns the next changes, when there are some.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] if the watch was too slow: the caller reads again and begins another watch.
    pub async fn next(&mut self) -> Result<Changes, StoreError> {
        let changes = self.store.changes(&self.prefix, self.after, MOST).await?;
        self.after = changes.through;
        Ok(changes)
    }

    /// Does the same as [`Self::next`], and blocks the thread.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub fn wait(&mut self) -> Result<Changes, StoreError> {
        let changes = self.store.changes(&self.prefix, self.after, MOST).wait()?;
        self.after = changes.through;
        Ok(changes)
    }
}

/// Changes that one call returns at most, rounded up to whole revisions.
const MOST: usize = 256;
