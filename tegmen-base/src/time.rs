//! The caller's clock.

pub use core::time::Duration;

/// A point on the caller's monotonic clock, in microseconds from an arbitrary start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Instant {
    micros: u64,
}

impl Instant {
    /// The earliest point, for a deadline that has arrived.
    pub const AT_ONCE: Self = Self { micros: 0 };

    /// The latest point, for a deadline that never arrives.
    pub const NEVER: Self = Self { micros: u64::MAX };

    /// Converts microseconds since the start of the caller's clock.
    pub const fn from_micros(micros: u64) -> Self {
        Self { micros }
    }

    /// Returns the microseconds since the start of the caller's clock.
    pub const fn as_micros(self) -> u64 {
        self.micros
    }

    /// Returns the point `delay` after this one, or [`Self::NEVER`] if the clock would overflow.
    #[must_use]
    #[inline(never)] // 64-bit arithmetic is long on a mote
    pub const fn after(self, delay: Duration) -> Self {
        // Computes with seconds and microseconds as `u64`, because `Duration::as_micros` computes with 128 bits, which
        // takes long on a mote.
        let micros = delay.as_secs().saturating_mul(1_000_000).saturating_add(delay.subsec_micros() as u64);
        Self { micros: self.micros.saturating_add(micros) }
    }

    /// Returns the point `millis` milliseconds after this one.
    #[must_use]
    #[inline(never)]
    pub const fn after_millis(self, millis: u32) -> Self {
        Self { micros: self.micros.saturating_add((millis as u64).wrapping_mul(1000)) }
    }

    /// Returns the time in units of 2^20 microseconds, about a second. This is exact enough for times of minutes, and
    /// needs no division on a mote.
    pub const fn coarse(self) -> u32 {
        (self.micros >> 20) as u32
    }

    /// Returns the time from `earlier` to this point, or zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.micros.saturating_sub(earlier.micros))
    }
}

/// Returns a duration in whole milliseconds, at most `u32::MAX` (49 days). Timeouts are stored with this width.
pub const fn millis(duration: Duration) -> u32 {
    let millis = duration.as_secs().saturating_mul(1000).saturating_add(duration.subsec_millis() as u64);
    if millis > u32::MAX as u64 { u32::MAX } else { millis as u32 }
}
