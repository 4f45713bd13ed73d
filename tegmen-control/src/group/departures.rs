//! Evicts members whose device is disabled or removed at the access control server.

use super::config::GroupError;
use super::controller::Controller;
use super::outbox::Outbox;
use crate::service::Service;
use std::time::Duration;
use tegmen_base::crypto::Crypto;
use tegmen_store::{Revision, Store, StoreError};

/// The pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// Evicts each member whose device is disabled or removed at the access control server. Begins with the members whose
/// device was disabled or removed while the controller did not run. Also evicts a member whose name is no device of the
/// server. Runs until the future is dropped.
///
/// Events of the crate `tracing` report the evictions and the failed evictions.
pub async fn evict_departed<S: Store, C: Crypto>(controller: &Controller<S, C>, service: &Service<S>) {
    let departures = Departures { controller, service };
    loop {
        match departures.follow().await {
            // The store forgot changes, so all members are examined again.
            Err(GroupError::Store(StoreError::Compacted { .. })) => {}
            Err(error) => {
                controller.outbox().into_iter().for_each(Outbox::fail);
                tracing::error!("groups: members whose devices are disabled cannot be evicted now: {error}");
                tokio::time::sleep(PAUSE).await;
            }
            Ok(never) => match never {},
        }
    }
}

struct Departures<'a, S, C> {
    controller: &'a Controller<S, C>,
    service: &'a Service<S>,
}

impl<S: Store, C: Crypto> Departures<'_, S, C> {
    /// Evicts the members whose device was already disabled or removed. Then waits until further devices are disabled
    /// or removed, and evicts their members. Returns only after an error.
    async fn follow(&self) -> Result<std::convert::Infallible, GroupError> {
        let mut after = self.service.state().newest().await?;
        for group in self.controller.names().await? {
            let Some(members) = readable(&group, self.controller.admissions(&group).await)? else { continue };
            for (member, since) in members {
                // The view is faster. A view before `after` may lack a change that the loop below does not report.
                let is_there = {
                    let view = self.service.state().view();
                    view.at() >= after && view.has_since(&member, since)
                };
                if !is_there {
                    self.check(&group, &member, since).await?;
                }
            }
        }
        loop {
            let (left, through) = self.service.state().departures(after).await?;
            let groups = if left.is_empty() { Vec::new() } else { self.controller.names().await? };
            for group in groups {
                let admissions = readable(&group, self.controller.admissions_of(&group, &left).await)?;
                for (member, since) in admissions.into_iter().flatten() {
                    self.check(&group, &member, since).await?;
                }
            }
            after = through;
        }
    }

    /// Evicts a member if its device was disabled or removed. `since` is the revision that admitted the member.
    async fn check(&self, group: &str, member: &str, since: Revision) -> Result<(), GroupError> {
        if !self.service.state().has_left(member, since).await? {
            return Ok(());
        }
        let warning = match self.controller.evict(group, member).await {
            Ok(rekeying) => rekeying.warning,
            // The messages follow.
            Err(GroupError::NotSigned) => None,
            // It has left by itself.
            Err(GroupError::NoMember { .. }) => return Ok(()),
            Err(error @ (GroupError::Store(_) | GroupError::Changed(_))) => return Err(error),
            Err(error) => {
                self.controller.outbox().into_iter().for_each(Outbox::fail);
                tracing::error!(
                    "groups: the device {member} is disabled or removed, and stays a member of {group}: {error}"
                );
                return Ok(());
            }
        };
        tracing::info!("groups: {member} is evicted from {group}: the device is disabled or removed");
        if let Some(warning) = warning {
            tracing::warn!("groups: {warning}");
        }
        Ok(())
    }
}

/// Converts an error that concerns only one group to `Ok(None)`: the group cannot be read, or was deleted. So the work
/// for other groups continues.
fn readable<T>(group: &str, result: Result<T, GroupError>) -> Result<Option<T>, GroupError> {
    match result {
        Err(GroupError::NoGroup(_)) => Ok(None),
        Err(error @ GroupError::Fault { .. }) => {
            tracing::error!("groups: {group}: members whose devices are disabled or removed stay members: {error}");
            Ok(None)
        }
        other => other.map(Some),
    }
}
