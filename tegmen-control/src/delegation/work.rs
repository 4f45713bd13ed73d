//! The work behind handshakes: rows of connections, blocks of numbers, and rows that count no more.

use super::error::DelegationError;
use super::memory::Device;
use super::numbers::{Purpose, is_restored, reserve};
use super::rows;
use super::server::{Delegations, Made, PAGE, note_numbers};
use std::sync::Arc;
use std::time::Duration;
use tegmen_base::crypto::Crypto;
use tegmen_store::store::{MAX_OPERATIONS, Scan};
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};

/// Time after which the work is looked for without a notice.
const EVERY: Duration = Duration::from_secs(10);
/// The pause after a failure of the store.
const PAUSE: Duration = Duration::from_secs(1);

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Makes durable what handshakes leave behind, and reserves numbers for the next ones. It never returns; its owner drops it.
    pub async fn run(&self) {
        loop {
            if let Err(error) = self.settle().await {
                tracing::error!("delegation: {error}");
                tokio::time::sleep(PAUSE).await;
            }
            let _ = tokio::time::timeout(EVERY, self.work.notified()).await;
        }
    }

    /// Does the work that is due now, as [`Self::run`] does again and again.
    ///
    /// # Errors
    /// The first failure of the store. The rest of the work stays due.
    pub async fn settle(&self) -> Result<(), DelegationError> {
        self.write_made().await?;
        let mut failed = Ok(());
        for device in self.take_due() {
            if let Err(error) = self.settle_device(&device).await {
                self.wake(&device);
                failed = Err(error);
            }
        }
        failed
    }

    async fn settle_device(&self, device: &Arc<Device>) -> Result<(), DelegationError> {
        for purpose in Purpose::ALL {
            let (tag, is_low) = {
                let mut state = device.state();
                (state.tag, state.free(purpose).is_low())
            };
            if let Some(tag) = tag.filter(|_| is_low) {
                self.reserve(device, tag, purpose).await?;
            }
        }
        let is_littered = std::mem::take(&mut device.state().is_littered);
        if is_littered && let Err(error) = self.clean(device).await {
            device.state().is_littered = true;
            return Err(error);
        }
        Ok(())
    }

    /// Writes the rows of connections that handshakes made.
    pub(super) async fn write_made(&self) -> Result<(), DelegationError> {
        let _one = self.writing.lock().await;
        loop {
            let mut transaction = Transaction::default();
            let mut count = 0_usize;
            for Made { device, tag, number, row } in self.made().iter().take(MAX_OPERATIONS) {
                transaction = transaction.put(rows::connection(&device.name, tag, *number), rows::plain(row));
                count = count.saturating_add(1);
            }
            if count == 0 {
                return Ok(());
            }
            self.store.commit(transaction).await?;
            let written: Vec<Made> = {
                let mut made = self.made();
                let count = count.min(made.len());
                made.drain(..count).collect()
            };
            for Made { device, tag, number, .. } in written {
                let mut state = device.state();
                if state.tag == Some(tag) {
                    state.unwritten.remove(&number);
                }
            }
        }
    }

    /// Reserves the next block of numbers.
    async fn reserve(&self, device: &Arc<Device>, tag: rows::Tag, purpose: Purpose) -> Result<(), DelegationError> {
        let row = rows::numbers(&device.name, &tag, purpose);
        let found = self.store.read(row.as_bytes(), None).await?;
        let (number, changed) = match found.entry.map(|entry| (entry.value, entry.changed)) {
            Some((Value::Number(number), changed)) => (Some(number), changed),
            _ => (None, Revision::ABSENT),
        };
        if number.is_some_and(is_restored) {
            note_numbers::<C>(&mut device.state(), tag, true);
        }
        let Some((next, block)) = number.and_then(|number| reserve(number, purpose)) else {
            device.state().free(purpose).is_last = true;
            let is_due = device.state().known.reset.is_some();
            return match purpose {
                Purpose::New if !is_due => self.reset(&device.name, "no number is left").await,
                _ => Ok(()),
            };
        };
        let transaction = Transaction::default().require(row.as_str(), changed).put(row, Value::Number(next));
        match self.store.commit(transaction).await {
            Ok(_) => {
                let mut state = device.state();
                if state.tag == Some(tag) {
                    state.free(purpose).add(block);
                }
                Ok(())
            }
            // Another server reserves at the same time.
            Err(StoreError::Conflict { .. }) => {
                self.wake(device);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the rows of epochs that count no more. The numbers go last, when nothing is left that belongs to them.
    async fn clean(&self, device: &Device) -> Result<(), DelegationError> {
        let (kept, changed) = {
            let state = device.state();
            (state.known.tags::<C>(), state.known.changed)
        };
        for prefix in rows::of_epochs(&device.name) {
            let mut scan = Some(Scan::of(prefix.as_str(), PAGE));
            while let Some(next) = scan {
                let page = self.store.scan(next.clone()).await?;
                let is_over = |key: &[u8]| rows::tag_of(key, &prefix).is_some_and(|tag| !kept.contains(&Some(tag)));
                let keys: Vec<&Vec<u8>> =
                    page.entries.iter().map(|entry| &entry.key).filter(|key| is_over(key)).collect();
                for keys in keys.chunks(MAX_OPERATIONS.saturating_sub(1)) {
                    // An epoch that another server begins meanwhile counts.
                    let row = rows::device(&device.name);
                    let delete = keys.iter().map(|key| (*key).clone()).collect();
                    let transaction = Transaction { delete, ..Transaction::default() }.require(row, changed);
                    match self.store.commit(transaction).await {
                        Err(StoreError::Conflict { .. }) => {
                            device.state().is_littered = true;
                            return Ok(());
                        }
                        made => drop(made?),
                    }
                }
                scan = next.following(&page);
            }
        }
        Ok(())
    }
}
