//! The Tokio runtime of one shard.

use super::StartError;
use tokio::runtime::EnterGuard;

/// A runtime that can be dropped in any thread, for example when a server is started inside another runtime and fails.
pub(super) struct Runtime(Option<tokio::runtime::Runtime>);

impl Runtime {
    pub(super) fn new() -> Result<Self, StartError> {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().map(|runtime| Self(Some(runtime))).map_err(StartError::System)
    }

    pub(super) fn block_on(mut self, future: impl Future<Output = ()>) {
        if let Some(runtime) = self.0.take() {
            runtime.block_on(future);
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
