//! Begins epochs periodically.

use super::controller::Controller;
use super::outbox::Outbox;
use std::collections::BTreeSet;
use std::time::Duration;
use tegmen_base::crypto::Crypto;
use tegmen_store::Store;

/// The number of checks of each group in one `period` of [`rekey_periodically`]. The interval between two checks is at
/// least [`SHORTEST`] and at most [`LONGEST`].
const PARTS: u32 = 8;
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(600);

/// Begins an epoch in each group whose present epoch has lasted for `period` or longer. It does not matter if another
/// controller of the store began the old epoch, or if the old epoch began before a restart. Runs until the future is
/// dropped.
///
/// Events of the crate `tracing` report groups whose epoch cannot be replaced.
pub async fn rekey_periodically<S: Store, C: Crypto>(controller: &Controller<S, C>, period: Duration) {
    let mut refused = BTreeSet::new();
    loop {
        match controller.names().await {
            Ok(names) => {
                for name in &names {
                    rekey(controller, name, period, &mut refused).await;
                }
            }
            Err(error) => {
                tracing::error!("groups: the names of the groups cannot be read, for a periodic epoch: {error}");
            }
        }
        let pause = period.checked_div(PARTS).unwrap_or(period).clamp(SHORTEST, LONGEST);
        tokio::time::sleep(pause).await;
    }
}

/// Begins an epoch in the group if its present epoch has lasted for `period` or longer. `refused` are the groups whose
/// failure was already reported.
async fn rekey<S: Store, C: Crypto>(
    controller: &Controller<S, C>,
    group: &str,
    period: Duration,
    refused: &mut BTreeSet<String>,
) {
    match controller.rekey_after(group, period).await {
        Ok(None) => {}
        Ok(Some(rekeying)) => {
            refused.remove(group);
            tracing::debug!("groups: {group} begins the epoch {}", rekeying.epoch);
            if let Some(warning) = rekeying.warning {
                tracing::warn!("groups: {warning}");
            }
        }
        Err(error) => {
            if refused.insert(group.to_owned()) {
                controller.outbox().into_iter().for_each(Outbox::fail);
                tracing::error!("groups: {group} keeps its epoch for longer than the period: {error}");
            }
        }
    }
}
