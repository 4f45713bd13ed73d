//! The notifications of the members that observe a group (RFC 9594, section 6.1). They are the rekeying messages of a
//! Group OSCORE group.

use super::config::GroupError;
use super::controller::Controller;
use std::sync::Arc;
use std::time::Duration;
use tegmen_base::crypto::Crypto;
use tegmen_host::group::groupcomm::GROUPS;
use tegmen_host::server::Notifier;
use tegmen_store::{Revision, Store, StoreError};
use tokio::sync::OnceCell;

/// The pause after an error of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// The task that notifies the observers of a server. It starts with the first observer.
#[derive(Default)]
pub(super) struct Observers(OnceCell<()>);

impl Observers {
    /// Starts the task, unless it runs already. After this call, each change of a group causes a notification to the
    /// observers of this group. So call this function before the response to a registration is made. The task follows
    /// the store, so it also finds the changes of other controllers. It ends with the runtime of the caller.
    ///
    /// # Errors
    /// [`GroupError::Store`].
    pub(super) async fn start<S: Store, C: Crypto + Send + 'static>(
        &self,
        controller: &Arc<Controller<S, C>>,
        notifier: &Notifier,
    ) -> Result<(), GroupError> {
        let start = async || {
            let mut after = Some(controller.newest().await?);
            let (controller, notifier) = (Arc::clone(controller), notifier.clone());
            tokio::spawn(async move {
                loop {
                    let groups = changed_groups(&controller, &mut after).await;
                    groups.iter().for_each(|group| notifier.changed(&format!("{GROUPS}/{group}")));
                }
            });
            Ok(())
        };
        self.0.get_or_try_init(start).await.copied()
    }
}

/// Waits until groups have changed after the revision `after`, and returns their names. Sets `after` for the next call.
/// With `None` returns the names of all groups. A caller may drop the future, and call the function again.
pub(super) async fn changed_groups<S: Store, C: Crypto>(
    controller: &Controller<S, C>,
    after: &mut Option<Revision>,
) -> Vec<String> {
    loop {
        let changed = match *after {
            None => all(controller).await,
            Some(after) => match controller.changed_groups(after).await {
                // The store forgot changes, so all groups count as changed.
                Err(GroupError::Store(StoreError::Compacted { .. })) => all(controller).await,
                changed => changed,
            },
        };
        match changed {
            Ok((groups, through)) => {
                *after = Some(through);
                return groups;
            }
            Err(error) => {
                tracing::error!("groups: members cannot be notified of new keys now: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Returns the names of all groups, and a revision that is not later than the read of the names.
async fn all<S: Store, C: Crypto>(controller: &Controller<S, C>) -> Result<(Vec<String>, Revision), GroupError> {
    let through = controller.newest().await?;
    Ok((controller.names().await?, through))
}
