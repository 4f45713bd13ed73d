//! Changes of the row of a device. A change is durable before it is in force.

use super::device::Known;
use super::error::DelegationError;
use super::memory::Device;
use super::server::Delegations;
use std::sync::Arc;
use tegmen_base::crypto::Crypto;
use tegmen_store::{Store, StoreError, Transaction};

/// Maximum number of plans for one change. A change is planned again if another server changed the device during the
/// previous plan.
pub(super) const PLANS: usize = 8;

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Changes the row of a device, together with the other rows in the transaction that `plan` returns.
    ///
    /// # Errors
    /// [`DelegationError::Changed`] if other servers changed the device during each attempt. [`DelegationError::Store`]
    /// if the store fails; the change may then be durable. If `plan` returns an error, this function returns the same
    /// error.
    pub(super) async fn change<T>(
        &self,
        device: &Arc<Device>,
        mut plan: impl FnMut(&mut Known) -> Result<(T, Transaction), DelegationError>,
    ) -> Result<T, DelegationError> {
        let _one = device.changing.lock().await;
        for _ in 0..PLANS {
            let is_stale = device.state().is_stale;
            if is_stale {
                self.reload(device).await?;
            }
            let mut known = device.state().known.copy();
            let (made, transaction) = plan(&mut known)?;
            let row = known.row();
            let transaction = transaction.require(row.as_str(), known.changed).put(row, known.value());
            // The caller may give up meanwhile, and an error may hide that the row is changed.
            device.state().is_stale = true;
            match self.store.commit(transaction).await {
                Ok(revision) => {
                    known.changed = revision;
                    device.state().adopt::<C>(known);
                    self.wake(device);
                    if device.state().has_work() {
                        self.want(device);
                    }
                    return Ok(made);
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(DelegationError::Changed(device.name.clone()))
    }
}
