//! The Tokio runtime of one shard.

use super::StartError;
use std::time::Duration;
use tokio::runtime::EnterGuard;

/// The time that calls which block their thread have to end after the shard, for example the look-up of a name or the
/// write of a file. Such a call continues after this time, but the server does not wait for it.
const BLOCKING_ENDS_WITHIN: Duration = Duration::from_secs(2);

/// A runtime that can be dropped in any thread, for example when a server is started inside another runtime and fails.
pub(super) struct Runtime(Option<tokio::runtime::Runtime>);

impl Runtime {
    pub(super) fn new() -> Result<Self, StartError> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().map(|runtime| Self(Some(runtime))).map_err(StartError::System)
    }

    /// Executes `future`, and then ends the tasks of the runtime. Waits at most two seconds for calls that block their
    /// thread.
    pub(super) fn block_on(mut self, future: impl Future<Output = ()>) {
        if let Some(runtime) = self.0.take() {
            runtime.block_on(future);
            runtime.shutdown_timeout(BLOCKING_ENDS_WITHIN);
        }
    }

    /// Lets sockets register at this runtime until the guard is dropped.
    pub(super) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.0.as_ref().map(tokio::runtime::Runtime::enter)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests;
