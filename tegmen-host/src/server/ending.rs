//! The signal from a server to its shards. It shows if the server ends, and in which way.

use tokio::time::Instant;

/// The way in which a server ends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// The server continues.
    No,
    /// The server first sends the responses that are deferred, and ends at the time `by` at the latest.
    Drained { by: Instant },
    /// The server ends at once.
    Now,
}
