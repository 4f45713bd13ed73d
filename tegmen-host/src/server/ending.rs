//! The end of a server, as its shards see it.

use tokio::time::Instant;

/// The way in which a server ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// The server continues.
    No,
    /// The server answers the requests with a deferred response, until this time at most, and then ends.
    Drained { by: Instant },
    /// The server ends at once.
    Now,
}
