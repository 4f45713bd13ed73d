//! The end of a server, as its shards learn of it.

use tokio::time::Instant;

/// The way in which a server ends, if it does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// It continues.
    No,
    /// It answers the requests whose response is deferred, until this time at most, and ends.
    Drained { by: Instant },
    /// It ends.
    Now,
}
