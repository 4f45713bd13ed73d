//! The monotonic clock of the process.

use std::sync::OnceLock;
use tegmen::time::Instant;

/// Returns the current time, in microseconds since the first call.
pub fn now() -> Instant {
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    Instant::from_micros(u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX))
}

/// Converts `at` to a time of tokio's clock.
pub(crate) fn tokio_instant(at: Instant) -> tokio::time::Instant {
    tokio::time::Instant::now() + at.since(now())
}
