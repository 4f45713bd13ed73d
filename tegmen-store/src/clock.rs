//! The clock of the system, in seconds and milliseconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// True if a time, in seconds since 1970, is in the future: the clock went back.
pub fn is_in_future(written: u64) -> bool {
    written > now().saturating_add(CLOCK_TOLERANCE)
}

/// Seconds since 1970.
pub fn now() -> u64 {
    now_millis() / 1000
}

/// Milliseconds since 1970.
pub fn now_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Seconds by which a clock may go back without being noticed: what time services correct.
const CLOCK_TOLERANCE: u64 = 120;
