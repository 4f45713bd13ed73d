//! The work after handshakes: writes the rows of connections to the store, reserves blocks of connection numbers, and
//! removes the rows of connections that are no longer valid.

use super::certificates::{Certificates, ReplacedCertificate};
use super::error::DelegationError;
use super::memory::Device;
use super::numbers::{Purpose, is_restored, reserve};
use super::rows::{self, ConnectionRow};
use super::server::{Delegations, Made, PAGE, note_numbers};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tegmen_base::crypto::Crypto;
use tegmen_store::store::{MAX_OPERATIONS, Scan};
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};

/// The interval at which the task searches for work even if no handshake has notified it.
const EVERY: Duration = Duration::from_secs(10);
/// The time after which the server checks again if certificates expire soon.
const PREPARE_EVERY: Duration = Duration::from_secs(6 * 3600);
/// The time for which the row of a connection waits for further rows. The wait saves time, because one commit costs the
/// same for one row and for many. No caller waits for the row.
const GATHERING: Duration = Duration::from_millis(200);
/// If at least this number of rows wait, they are written immediately, without a pause for further rows.
pub(super) const ENOUGH: usize = 1024;
/// Maximum number of rows of connections that are written at once, in several transactions. Many rows of one commit
/// share pages of the database, so a large commit writes less for each row than a small one.
const MOST_WRITTEN: usize = 16 * MAX_OPERATIONS;
/// The pause after a failure of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// Returns the transaction that writes the rows of these connections.
fn transaction(made: &[&Made]) -> Transaction {
    let transaction = Transaction { put: Vec::with_capacity(made.len()), ..Transaction::default() };
    made.iter().fold(transaction, |transaction, Made { device, tag, number, row, .. }| {
        transaction.put(rows::connection(&device.name, tag, *number), rows::plain(row))
    })
}

/// Completes the first [`MOST_WRITTEN`] waiting rows whose peers returned while the rows of their earlier connections
/// still wait, too. Copies the names from these rows. Returns the entries whose names must be read from the store: for
/// each, its position in `made`, the name of its device, and the earlier connection. An entry whose earlier connection
/// waits and has no name yet stays without a name until the next call.
fn name_from_waiting(made: &mut VecDeque<Made>) -> Vec<(usize, String, (rows::Tag, u32))> {
    let (mut waiting, mut unnamed) = (HashMap::new(), Vec::new());
    if made.iter().take(MOST_WRITTEN).all(|made| made.name_at.is_none()) {
        return unnamed;
    }
    for at in 0..made.len().min(MOST_WRITTEN) {
        let Some(Made { device, tag, number, name_at, .. }) = made.get(at) else { break };
        let (address, of) = (Arc::as_ptr(device), *name_at);
        waiting.insert((address, *tag, *number), at);
        let Some(of) = of else { continue };
        let earlier = waiting.get(&(address, of.0, of.1)).and_then(|at| made.get(*at));
        let Some(earlier) = earlier else {
            unnamed.push((at, device.name.clone(), of));
            continue;
        };
        if earlier.name_at.is_none() {
            let peer = earlier.row.peer.clone();
            if let Some(made) = made.get_mut(at) {
                (made.name_at, made.row.peer) = (None, peer);
            }
        }
    }
    unnamed
}

/// The work for one device, which the task has begun. If this value is dropped before the work is done, the work is due
/// again.
struct Taken<'s, S: Store, C: Crypto> {
    server: &'s Delegations<S, C>,
    device: Arc<Device>,
    is_done: bool,
}

impl<S: Store, C: Crypto> Drop for Taken<'_, S, C> {
    fn drop(&mut self) {
        if !self.is_done {
            self.server.wake(&self.device);
        }
    }
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    pub(super) async fn settle_always(&self) {
        let mut prepared = Instant::now();
        loop {
            if prepared.elapsed() >= PREPARE_EVERY {
                prepared = Instant::now();
                if let Err(error) = self.prepare_all().await {
                    tracing::error!("delegation: {error}");
                }
            }
            if let Err(error) = self.settle().await {
                tracing::error!("delegation: {error}");
                tokio::time::sleep(PAUSE).await;
            }
            let _ = tokio::time::timeout(EVERY, self.work.notified()).await;
            let _ = tokio::time::timeout(GATHERING, self.urgent.notified()).await;
        }
    }

    /// Does the work that is due now: writes the rows of new connections, reserves numbers for connections, and removes
    /// rows of earlier epochs. [`Self::run`] calls this function repeatedly.
    ///
    /// # Errors
    /// The first failure of the store. The rest of the work stays due.
    pub async fn settle(&self) -> Result<(), DelegationError> {
        self.write_made().await?;
        let mut failed = Ok(());
        // Those that are not done stay due, also if this future is dropped.
        let taken: Vec<_> =
            self.take_due().into_iter().map(|device| Taken { server: self, device, is_done: false }).collect();
        let mut written = Instant::now();
        for mut taken in taken {
            // Rows do not wait until the work for all devices is done.
            if written.elapsed() >= GATHERING {
                self.write_made().await?;
                written = Instant::now();
            }
            match self.settle_device(&taken.device).await {
                Ok(()) => taken.is_done = true,
                Err(error) => failed = Err(error),
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

    /// Writes the rows of the connections that began with handshakes.
    pub(super) async fn write_made(&self) -> Result<(), DelegationError> {
        let _one = self.writing.lock().await;
        loop {
            self.name_returned().await?;
            let transactions: Vec<(usize, Transaction)> = {
                let made = self.made();
                let named: Vec<_> = made.iter().take_while(|made| made.name_at.is_none()).take(MOST_WRITTEN).collect();
                named.chunks(MAX_OPERATIONS).map(|rows| (rows.len(), transaction(rows))).collect()
            };
            if transactions.is_empty() {
                return Ok(());
            }
            // All commits start before the first answer is awaited, so that the store can make them durable together.
            let commit = |(count, transaction)| (count, self.store.commit(transaction));
            let answers: Vec<_> = transactions.into_iter().map(commit).collect();
            // No commit is left running after a failure of another one. The rows after the failed commit are written
            // again.
            let mut failed = Ok(());
            for (count, answer) in answers {
                let answer = answer.await;
                failed = failed.and_then(|()| answer.map(drop));
                if failed.is_ok() {
                    self.forget_made(count);
                }
            }
            failed?;
        }
    }

    /// Removes the first connections from those whose rows are not durable yet. `count` is their number.
    fn forget_made(&self, count: usize) {
        let written: Vec<Made> = {
            let mut made = self.made();
            let count = count.min(made.len());
            made.drain(..count).collect()
        };
        for Made { device, tag, number, row, .. } in written {
            let mut state = device.state();
            state.remember(tag, number, row.peer);
            if state.tag == Some(tag) {
                state.unwritten.remove(&number);
            }
        }
    }

    /// Completes the rows of connections whose peers returned with a ticket, before these rows are written. Copies the
    /// name of each peer that is not in memory from the row of its earlier connection. One call completes at most
    /// [`MOST_WRITTEN`] rows.
    async fn name_returned(&self) -> Result<(), DelegationError> {
        let unnamed = name_from_waiting(&mut self.made());
        // All reads start before the first answer is awaited.
        let read = |(at, device, (tag, number)): (usize, String, (rows::Tag, u32))| {
            (at, self.store.read(rows::connection(&device, &tag, number).as_bytes(), None))
        };
        let answers: Vec<_> = unnamed.into_iter().map(read).collect();
        // When the last answer is there, usually all are there. So the task waits only once.
        for (at, answer) in answers.into_iter().rev() {
            let entry = answer.await?.entry;
            let peer = entry.and_then(|entry| rows::read::<ConnectionRow>(&entry.value).ok()).map(|row| row.peer);
            // Only the holder of `writing` removes entries of `made`, so `at` is still the same entry.
            if let Some(made) = self.made().get_mut(at) {
                if peer.is_none() {
                    tracing::error!(
                        "delegation: the connection {} of the device {} has no name of its peer, because the connection \
                         that it replaces is not stored; revoke it by its number",
                        made.number,
                        made.device.name
                    );
                }
                (made.name_at, made.row.peer) = (None, peer.unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Makes the certificates of all devices that have no certificate, or whose certificate expires soon.
    ///
    /// # Errors
    /// [`DelegationError::Certificate`] for the first certificate that cannot be made. The others are still made.
    pub(super) async fn prepare_all(&self) -> Result<(), DelegationError> {
        let names: Vec<String> =
            self.registry(|registry| registry.after(None).map(|device| device.name.clone()).collect());
        let mut failed = Ok(());
        for name in names {
            let prepared = self.prepare(&name).await;
            failed = failed.and(prepared);
        }
        failed
    }

    /// Makes the certificate of a device, if the server has a source of certificates.
    ///
    /// # Errors
    /// [`DelegationError::Certificate`].
    pub(super) async fn prepare(&self, name: &str) -> Result<(), DelegationError> {
        self.ask_certificates(name, |certificates, name| certificates.prepare(name)).await
    }

    /// Replaces the certificates of a device, if the server has a source of certificates. Returns the replaced
    /// certificates.
    ///
    /// # Errors
    /// [`DelegationError::Certificate`].
    pub(super) async fn replace(&self, name: &str) -> Result<Vec<ReplacedCertificate>, DelegationError> {
        self.ask_certificates(name, |certificates, name| certificates.replace(name)).await
    }

    /// Calls the source of certificates, which may wait for a disk. Returns an empty result if there is no source.
    async fn ask_certificates<T: Default + Send + 'static>(
        &self,
        name: &str,
        ask: fn(&dyn Certificates, &str) -> Result<T, String>,
    ) -> Result<T, DelegationError> {
        let Some(certificates) = self.certificates.clone() else { return Ok(T::default()) };
        let device = name.to_owned();
        let answer = tokio::task::spawn_blocking(move || ask(&*certificates, &device)).await;
        let answer = answer.map_err(|error| error.to_string()).flatten();
        answer.map_err(|why| DelegationError::Certificate(format!("the certificate of the device {name}: {why}")))
    }

    /// Reserves the next block of numbers for connections. If no number for new connections is left, the next epoch is
    /// due.
    async fn reserve(&self, device: &Arc<Device>, tag: rows::Tag, purpose: Purpose) -> Result<(), DelegationError> {
        let row = rows::numbers(&device.name, &tag, purpose);
        let known = device.state().known.changed;
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
        // Another server may have revoked a peer. A server that has not read this revocation must not give a number to
        // the peer.
        let transaction = Transaction::default()
            .require(rows::device(&device.name), known)
            .require(row.as_str(), changed)
            .put(row, Value::Number(next));
        match self.store.commit(transaction).await {
            Ok(_) => {
                let mut state = device.state();
                if state.tag == Some(tag) {
                    state.free(purpose).add(block);
                }
                Ok(())
            }
            // Another server reserved numbers or changed the device in the meantime.
            Err(StoreError::Conflict { .. }) => {
                let _one = device.changing.lock().await;
                self.reload(device).await?;
                self.wake(device);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the rows of epochs that are no longer valid. The rows with the counters of reserved connection numbers
    /// are removed last, when no other row of the epoch is left.
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
