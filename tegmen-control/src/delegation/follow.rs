//! Follows the changes that other servers make, if several servers share the store.

use super::device::Known;
use super::error::DelegationError;
use super::memory::Device;
use super::rows::{self, RefusedRow, Tag};
use super::server::{Delegations, PAGE, fault, name_of};
use std::sync::Arc;
use std::time::Duration;
use tegmen_base::crypto::Crypto;
use tegmen_store::store::Scan;
use tegmen_store::{Revision, Store, StoreError, Watch};

/// The pause after a failure of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// The content of the rows of a device: the device, and its refused connections. A refused connection is given by the
/// tag of its epoch, its number, and true if the device has acknowledged the refusal.
type Rows = (Known, Vec<(Tag, u32, bool)>);

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Reads a device again as soon as another server of the store has changed it. Each change of a device or of its
    /// refused connections also changes the row of the device. Returns only if no other server uses the store.
    pub(super) async fn follow(&self) {
        let mut watch = None;
        while self.store.is_shared() {
            match self.follow_from(&mut watch).await {
                Ok(()) => {}
                Err(error) => {
                    watch = None;
                    if !matches!(error, DelegationError::Store(StoreError::Compacted { .. })) {
                        tracing::error!("delegation: changes of other servers are not known: {error}");
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Waits for the next changes, and reads the changed devices. Without a watch, first begins a watch and reads all
    /// devices that have changed.
    async fn follow_from(&self, watch: &mut Option<Watch<S>>) -> Result<(), DelegationError> {
        let changes = match watch {
            Some(watch) => watch.next().await?.changes,
            None => {
                let (at, changed) = self.all_devices().await?;
                *watch = Some(Watch::new(self.store.clone(), rows::DEVICES, at));
                return self.read_changed(changed).await;
            }
        };
        let named = changes.iter().filter_map(|changed| Some((name_of(&changed.key)?.to_owned(), changed.revision)));
        self.read_changed(named.collect()).await
    }

    /// Returns the names of all devices in the store, each with the revision of its last change. Also returns the
    /// revision after which further changes are unknown.
    async fn all_devices(&self) -> Result<(Revision, Vec<(String, Revision)>), DelegationError> {
        let (mut at, mut devices) = (None, Vec::new());
        let mut scan = Some(Scan::of(rows::DEVICES, PAGE));
        while let Some(next) = scan {
            let page = self.store.scan(next.clone()).await?;
            at.get_or_insert(page.at);
            let named = page.entries.iter().filter_map(|entry| Some((name_of(&entry.key)?.to_owned(), entry.changed)));
            devices.extend(named);
            scan = next.following(&page);
        }
        Ok((at.unwrap_or(Revision::ABSENT), devices))
    }

    /// Reads the rows of devices that have changed at these revisions. If the rows of a device cannot be read, still
    /// reads the other devices. This device is read again when its row changes.
    ///
    /// # Errors
    /// [`DelegationError::Store`]. The caller must then read all devices again.
    async fn read_changed(&self, changed: Vec<(String, Revision)>) -> Result<(), DelegationError> {
        for (name, at) in changed {
            match self.read_device(&name, at).await {
                Err(error @ DelegationError::Store(_)) => return Err(error),
                Err(error) => tracing::error!("delegation: changes of another server are not known: {error}"),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Reads the rows of a device that has changed at this revision, unless the server has made the change itself.
    async fn read_device(&self, name: &str, at: Revision) -> Result<(), DelegationError> {
        let device = match self.named(name) {
            Some(device) => device,
            None => self.add(name).await?,
        };
        let one = device.changing.lock().await;
        if device.state().known.changed < at {
            self.reload(&device).await?;
        }
        drop(one);
        self.wake(&device);
        let (has_work, is_next_due) = {
            let state = device.state();
            (state.has_work(), state.known.is_next_due())
        };
        // Of two servers that begin the next epoch at the same time, one discards the epoch that the device begins.
        match has_work {
            true if is_next_due => self.want_later(&device),
            true => self.want(&device),
            false => {}
        }
        Ok(())
    }

    /// Adds a device that another server has imprinted, and makes the certificate of the device.
    async fn add(&self, name: &str) -> Result<Arc<Device>, DelegationError> {
        let (known, refused) = self.read_rows(name).await?;
        let device = self.registry_mut(|registry| {
            let device = registry.add::<C>(known);
            device.state().load_refused(refused);
            device
        });
        if let Err(error) = self.prepare(name).await {
            tracing::error!("delegation: {error}");
        }
        Ok(device)
    }

    /// Reads the row of a device and its refused connections from the store again.
    pub(super) async fn reload(&self, device: &Device) -> Result<(), DelegationError> {
        let (known, refused) = self.read_rows(&device.name).await?;
        let mut state = device.state();
        state.adopt::<C>(known);
        state.load_refused(refused);
        Ok(())
    }

    /// Reads the row of a device, and then its refused connections. With this order, no revocation is missing that was
    /// made before the row was read.
    async fn read_rows(&self, name: &str) -> Result<Rows, DelegationError> {
        let row = rows::device(name);
        let found = self.store.read(row.as_bytes(), None).await?;
        let entry = found.entry.ok_or_else(|| DelegationError::NoDevice(name.to_owned()))?;
        let known = Known::read(name, &entry).map_err(|why| fault(row.as_bytes(), why))?;
        let [_, prefix, _] = rows::of_epochs(name);
        let mut refused = Vec::new();
        self.each(&prefix, |entry| {
            let (_, tag, last) = rows::parts(&entry.key, rows::REFUSED).ok_or("it names no connection")?;
            let number = rows::number(last).ok_or("it names no connection")?;
            let row: RefusedRow = rows::read(&entry.value)?;
            refused.push((tag, number, row.told));
            Ok(())
        })
        .await?;
        Ok((known, refused))
    }
}
