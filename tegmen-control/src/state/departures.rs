//! Reports the devices that were disabled or removed. A service that has given keys to devices needs these reports.

use super::{State, StateFault, read_device, rows};
use crate::state::Happened;
use std::collections::BTreeSet;
use tegmen_store::store::Scan;
use tegmen_store::{Revision, Store, StoreError};

/// The number of changes after which the store ends an answer. An answer contains only complete revisions, so it may
/// contain more changes than this number.
const MOST: usize = 256;

impl<S: Store> State<S> {
    /// Returns the newest revision of the store.
    pub(crate) async fn newest(&self) -> Result<Revision, StoreError> {
        Ok(self.store.scan(Scan::of(rows::DEVICES, 1)).await?.at)
    }

    /// Waits for changes of devices after the revision `after`. Returns after the view has these changes. Returns the
    /// names of the devices that were disabled or removed, and the revision for the next call.
    pub(crate) async fn departures(&self, after: Revision) -> Result<(BTreeSet<String>, Revision), StoreError> {
        let changes = self.store.changes(rows::DEVICES.as_bytes(), after, MOST).await?;
        if let Some(last) = changes.changes.last() {
            self.feed.shared.reached(last.revision).await?;
        }
        let left = |happened| match happened {
            Happened::DeviceChanged(device) if device.disabled => Some(device.name().to_owned()),
            Happened::DeviceRemoved(name) => Some(name),
            _ => None,
        };
        Ok((changes.changes.iter().flat_map(Happened::of).filter_map(left).collect(), changes.through))
    }

    /// Returns true if the store has no enabled device of this name that was added before this revision.
    pub(crate) async fn has_left(&self, name: &str, since: Revision) -> Result<bool, StoreError> {
        let found = self.store.read(rows::device(name).as_bytes(), None).await?;
        let known = found.entry.map(|entry| read_device(name, &entry)).transpose();
        // A row that cannot be read is reported by the view, and proves nothing about the device.
        Ok(known.map_or_else(|_: StateFault| false, |known| known.is_none_or(|known| known.has_left(since))))
    }
}
