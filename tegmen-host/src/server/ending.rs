//! The end of a server, as its shards learn of it.

use tokio::time::Instant;

/// Whether and how a server ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// It goes on.
    No,
    /// It answers the requests whose response is deferred, until this time at most, and ends.
    Drained { by: Instant },
    /// It ends.
    Now,
}
