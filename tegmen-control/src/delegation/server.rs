//! The server of delegated sessions, and its start.

use super::agenda::Agenda;
use super::certificates::Certificates;
use super::device::Known;
use super::error::DelegationError;
use super::memory::{DelegationCounts, Device, Entries, InMemory, Registry};
use super::numbers::{Purpose, is_restored};
use super::rights::Rights;
use super::rows::{self, ConnectionRow, RefusedRow};
use crate::audit::AuditLog;
use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use tegmen_base::crypto::Crypto;
use tegmen_host::provider::HostCrypto;
use tegmen_store::clock;
use tegmen_store::store::{Entry, Scan};
use tegmen_store::{Store, Value};
use tokio::sync::Notify;

/// Maximum number of rows that one query reads from the store.
pub(super) const PAGE: usize = 1000;

/// A connection whose row in the store is not durable yet.
pub(super) struct Made {
    pub(super) device: Arc<Device>,
    pub(super) tag: rows::Tag,
    pub(super) number: u32,
    /// The connection of the previous epoch whose row has the name of the peer: the tag of that epoch, and the number of
    /// the connection. `None` if `row` already has the name.
    pub(super) name_at: Option<(rows::Tag, u32)>,
    pub(super) row: ConnectionRow,
}

/// The server of delegated sessions: the devices of a store, and the decisions in handshakes.
///
/// The owner must call [`Self::run`] in a task. Without this task, the server reserves no connection numbers in the
/// store, and contacts no device.
pub struct Delegations<S, C = HostCrypto> {
    pub(super) store: S,
    pub(super) rights: Arc<dyn Rights>,
    pub(super) audit: AuditLog,
    crypto: Mutex<C>,
    pub(super) clock: fn() -> u64,
    registry: RwLock<Registry>,
    pub(super) made: Mutex<VecDeque<Made>>,
    /// A lock that is held while rows of connections are written.
    pub(super) writing: tokio::sync::Mutex<()>,
    /// The numbers of the devices for which [`Self::settle`] has work.
    due: Mutex<BTreeSet<u32>>,
    /// The signal that there is work for [`Self::settle`].
    pub(super) work: Notify,
    /// The signal that there is work for [`Self::settle`] that must begin at once, without waiting for further work.
    pub(super) urgent: Notify,
    pub(super) certificates: Option<Arc<dyn Certificates>>,
    agenda: Mutex<Agenda>,
    /// The signal that the time of the next conversation with a device has changed. The task that contacts devices
    /// waits for this signal.
    pub(super) speak: Notify,
    counts: Mutex<DelegationCounts>,
    /// The revoked certificates. Each is named by its peer and its expiry time, in seconds since 1970.
    revoked: Mutex<BTreeSet<(String, u64)>>,
}

impl<S: Store> Delegations<S> {
    /// Loads the devices of a store.
    ///
    /// # Errors
    /// [`DelegationError::Fault`] if a row cannot be read; [`DelegationError::Store`] if the store fails, or if the
    /// system has no randomness.
    pub async fn open(store: S, rights: Arc<dyn Rights>, audit: AuditLog) -> Result<Self, DelegationError> {
        let crypto = HostCrypto::from_os();
        let crypto = crypto.map_err(|error| tegmen_store::StoreError::Unavailable { why: error.to_string() })?;
        Self::with(store, rights, audit, crypto, clock::now).await
    }
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Loads the devices as [`Self::open`] does, with the cryptographic provider `crypto` and the clock `clock`. The
    /// clock returns seconds since 1970.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub async fn with(
        store: S,
        rights: Arc<dyn Rights>,
        audit: AuditLog,
        crypto: C,
        clock: fn() -> u64,
    ) -> Result<Self, DelegationError> {
        let delegations = Self {
            store,
            rights,
            audit,
            crypto: Mutex::new(crypto),
            clock,
            registry: RwLock::default(),
            made: Mutex::default(),
            writing: tokio::sync::Mutex::default(),
            due: Mutex::default(),
            work: Notify::new(),
            urgent: Notify::new(),
            certificates: None,
            agenda: Mutex::default(),
            speak: Notify::new(),
            counts: Mutex::default(),
            revoked: Mutex::default(),
        };
        delegations.load().await?;
        Ok(delegations)
    }

    /// Sets the source of the devices' certificates, and makes the certificates that are missing.
    ///
    /// # Errors
    /// [`DelegationError::Certificate`].
    pub async fn with_certificates(mut self, certificates: Arc<dyn Certificates>) -> Result<Self, DelegationError> {
        self.certificates = Some(certificates);
        self.prepare_all().await?;
        Ok(self)
    }

    /// From now on, refuses sessions to a peer that authenticated itself with a revoked certificate. `peer` is the name
    /// in the certificates, and `ends` are their expiry times, in seconds since 1970. The server that performs the
    /// handshakes refuses a revoked certificate itself as soon as it has read the revocation list again. This function
    /// is for handshakes that began earlier.
    pub fn refuse_certificates(&self, peer: &str, ends: &[u64]) {
        let now = self.now();
        let mut revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        revoked.retain(|(_, end)| *end >= now);
        revoked.extend(ends.iter().map(|end| (peer.to_owned(), *end)));
    }

    /// Returns true if the certificate with this name and this expiry time was revoked.
    pub(super) fn is_certificate_refused(&self, peer: &str, end: u64) -> bool {
        let revoked = self.revoked.lock().unwrap_or_else(PoisonError::into_inner);
        !revoked.is_empty() && revoked.contains(&(peer.to_owned(), end))
    }

    async fn load(&self) -> Result<(), DelegationError> {
        self.each(rows::DEVICES, |entry| {
            let name = name_of(&entry.key).ok_or("it names no device")?;
            let known = Known::read(name, entry)?;
            self.registry_mut(|registry| registry.add::<C>(known));
            Ok(())
        })
        .await?;
        self.each(rows::REFUSED, |entry| self.load_refused(entry)).await?;
        self.each(rows::NUMBERS, |entry| self.load_numbers(entry)).await?;
        self.registry(|registry| {
            for device in registry.after(None) {
                self.wake(device);
                self.want(device);
            }
        });
        Ok(())
    }

    /// Calls `take` for each row whose key has this prefix.
    pub(super) async fn each(
        &self,
        prefix: &str,
        mut take: impl FnMut(&Entry) -> Result<(), String>,
    ) -> Result<(), DelegationError> {
        let mut scan = Some(Scan::of(prefix, PAGE));
        while let Some(next) = scan {
            let page = self.store.scan(next.clone()).await?;
            for entry in &page.entries {
                take(entry).map_err(|why| fault(&entry.key, why))?;
            }
            scan = next.following(&page);
        }
        Ok(())
    }

    fn load_refused(&self, entry: &Entry) -> Result<(), String> {
        let parts = rows::parts(&entry.key, rows::REFUSED);
        let (name, tag, last) = parts.ok_or("it names no connection")?;
        let number = rows::number(last).ok_or("it names no connection")?;
        let row: RefusedRow = rows::read(&entry.value)?;
        if let Some(device) = self.named(name) {
            let mut state = device.state();
            match [state.tag, state.tag_before].contains(&Some(tag)) {
                true => drop(state.refused.entry(tag).or_default().insert(number, row.told)),
                false => state.is_littered = true,
            }
        }
        Ok(())
    }

    /// Reads a row with the counter of the reserved connection numbers. If the restore of a backup has increased the
    /// counter, marks the epoch as restored. The revocations that were made after the backup are then lost. So no
    /// connection of this epoch continues in the next epoch.
    fn load_numbers(&self, entry: &Entry) -> Result<(), String> {
        let parts = rows::parts(&entry.key, rows::NUMBERS);
        let (name, tag, _) = parts.filter(|(.., last)| Purpose::of(last).is_some()).ok_or("it names no numbers")?;
        let Value::Number(number) = entry.value else { return Err("it is no number".to_owned()) };
        if let Some(device) = self.named(name) {
            note_numbers::<C>(&mut device.state(), tag, is_restored(number));
        }
        Ok(())
    }

    pub(super) fn now(&self) -> u64 {
        (self.clock)()
    }

    pub(super) fn crypto(&self) -> MutexGuard<'_, C> {
        self.crypto.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn registry<T>(&self, read: impl FnOnce(&Registry) -> T) -> T {
        read(&self.registry.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn registry_mut<T>(&self, write: impl FnOnce(&mut Registry) -> T) -> T {
        write(&mut self.registry.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn named(&self, name: &str) -> Option<Arc<Device>> {
        self.registry(|registry| registry.named(name))
    }

    pub(super) fn known(&self, name: &str) -> Result<Arc<Device>, DelegationError> {
        self.named(name).ok_or_else(|| DelegationError::NoDevice(name.to_owned()))
    }

    pub(super) fn made(&self) -> MutexGuard<'_, VecDeque<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn agenda(&self) -> MutexGuard<'_, Agenda> {
        self.agenda.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a device to those for which [`Self::settle`] has work.
    pub(super) fn wake(&self, device: &Device) {
        self.due.lock().unwrap_or_else(PoisonError::into_inner).insert(device.id);
        self.work.notify_one();
        self.urgent.notify_one();
    }

    /// Removes and returns the devices for which [`Self::settle`] has work.
    pub(super) fn take_due(&self) -> Vec<Arc<Device>> {
        let due = std::mem::take(&mut *self.due.lock().unwrap_or_else(PoisonError::into_inner));
        self.registry(|registry| due.into_iter().filter_map(|id| registry.numbered(id)).collect())
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut DelegationCounts) -> &mut u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = count(&mut counts);
        *count = count.saturating_add(1);
    }

    /// Returns the number of entries in memory, in addition to the entries of the devices themselves. A connection has
    /// an entry only if its row in the store is not durable yet, or if the connection is refused.
    pub fn entries(&self) -> Entries {
        let mut entries = Entries { connections: self.made().len(), ..Entries::default() };
        self.registry(|registry| registry.after(None).for_each(|device| device.state().count(&mut entries)));
        entries
    }

    /// Returns the counters since the start of the server.
    pub fn counts(&self) -> DelegationCounts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Records that the store has a row with a counter of reserved connection numbers for the epoch with this tag.
/// `restored` is true if the restore of a backup has increased this counter.
pub(super) fn note_numbers<C: Crypto>(state: &mut InMemory, tag: rows::Tag, restored: bool) {
    if Some(tag) == state.tag && restored {
        state.is_restored();
    } else if !state.known.tags::<C>().contains(&Some(tag)) {
        state.is_littered = true;
    }
}

/// Returns the name of a device, which is at the end of the key of the device's row.
pub(super) fn name_of(key: &[u8]) -> Option<&str> {
    std::str::from_utf8(key).ok()?.strip_prefix(rows::DEVICES)
}

pub(super) fn fault(key: &[u8], why: String) -> DelegationError {
    DelegationError::Fault { key: String::from_utf8_lossy(key).into_owned(), why }
}
