//! A watch, which returns all changes after a revision, without gaps.

use crate::store::{Changes, Revision, Store, StoreError};

/// A watch of the changes of the keys that begin with a prefix.
pub struct Watch<S> {
    store: S,
    prefix: Vec<u8>,
    after: Revision,
}

impl<S: Store> Watch<S> {
    /// Watches changes after the revision `after`, which is the revision of a read or a scan, or of the last change
    /// that the caller received.
    pub fn new(store: S, prefix: impl Into<Vec<u8>>, after: Revision) -> Self {
        Self { store, prefix: prefix.into(), after }
    }

    /// Returns the revision up to which all changes were returned.
    pub const fn after(&self) -> Revision {
        self.after
    }

    /// Returns the next changes. Waits until there is at least one change.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] if the watch was too slow: the caller then reads the rows again, and begins another
    /// watch.
    pub async fn next(&mut self) -> Result<Changes, StoreError> {
        let changes = self.store.changes(&self.prefix, self.after, MOST).await?;
        self.after = changes.through;
        Ok(changes)
    }

    /// Blocks the thread until there is at least one change. Returns the changes that [`Self::next`] would return.
    ///
    /// # Errors
    /// The errors of [`Self::next`].
    pub fn wait(&mut self) -> Result<Changes, StoreError> {
        let changes = self.store.changes(&self.prefix, self.after, MOST).wait()?;
        self.after = changes.through;
        Ok(changes)
    }
}

/// Maximum number of changes that one call returns. A call returns a few more changes if this limit would divide the
/// changes of one revision.
const MOST: usize = 256;
