//! The clock of the system, in seconds and milliseconds since 1970.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns true if a stored time, in seconds since 1970, is in the future. In this case, the clock was set back after
/// the time was stored, or the clock is not set now.
pub fn is_in_future(written: u64) -> bool {
    written > now().saturating_add(CLOCK_TOLERANCE)
}

/// Returns the seconds since 1970.
pub fn now() -> u64 {
    now_millis() / 1000
}

/// Returns the milliseconds since 1970.
pub fn now_millis() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// Milliseconds in a day.
pub const DAY: u64 = 24 * 3600 * 1000;

/// Returns the first number that was certainly not used until `now`, if the numbers increase by at most `pace` in a day
/// and began with 0 at the time `since`. Both times are in milliseconds since 1970. The calculation adds one day to the
/// time between them. No lease (a range of sequence numbers or revisions that a process may use) ends above the result,
/// so the result and all higher numbers are unused even after a loss of all state.
pub fn allowed(pace: u64, since: u64, now: u64) -> u64 {
    let time = now.saturating_sub(since).saturating_add(DAY);
    let allowed = u128::from(time).saturating_mul(pace.into()) / u128::from(DAY);
    u64::try_from(allowed).unwrap_or(u64::MAX)
}

/// Seconds by which a clock may go back without an error, because time services make such corrections.
const CLOCK_TOLERANCE: u64 = 120;

#[cfg(test)]
mod tests;
