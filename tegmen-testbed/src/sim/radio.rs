//! The constants of IEEE 802.15.4 at 2.4 GHz, the settings where the standard leaves a choice, and the bit errors of
//! the modulation O-QPSK.

use super::Micros;

/// The behaviour of a station's radio and MAC.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Radio {
    /// The first backoff exponent of a medium access (macMinBE).
    pub min_exponent: u8,
    /// The maximum backoff exponent (macMaxBE).
    pub max_exponent: u8,
    /// Maximum number of further backoffs when the channel is busy (macMaxCSMABackoffs).
    pub max_backoffs: u8,
    /// Maximum number of retransmissions of a frame (macMaxFrameRetries).
    pub max_retries: u8,
    /// True if a station ignores the second copy of a received frame. The sender sends such a copy if the
    /// acknowledgement of the frame was lost. The standard does not require that the copy is ignored, and ns-3 does not
    /// ignore it.
    pub rejects_duplicates: bool,
    /// True if interference does no damage when it ends before the received frame ends. This is the behaviour of ns-3,
    /// which computes bit errors only when another frame begins and when the received frame ends.
    pub forgets_interference: bool,
    /// True if the radio receives nothing during its own medium access, like the AT86RF231 in its extended mode.
    pub deaf: bool,
    /// True if frames that are addressed to one node request an acknowledgement.
    pub acknowledges: bool,
}

impl Radio {
    /// The defaults of the standard.
    pub const STANDARD: Self = Self {
        min_exponent: 3,
        max_exponent: 5,
        max_backoffs: 4,
        max_retries: 3,
        rejects_duplicates: false,
        forgets_interference: false,
        deaf: false,
        acknowledges: true,
    };

    /// The defaults of the standard, with the bit errors of ns-3's model lr-wpan.
    pub const NS3: Self = Self { forgets_interference: true, ..Self::STANDARD };
}

impl Default for Radio {
    fn default() -> Self {
        Self::STANDARD
    }
}

/// Returns the time in microseconds for which a frame is on the air. The time includes the preamble, the start of frame
/// and the length byte. The bit rate is 250 kbit/s.
pub const fn airtime(psdu_len: usize) -> Micros {
    (PHY_HEADER_LEN + psdu_len as u64) * BYTE
}

/// Returns the probability that all of `bits` bits are received without error. `sinr` is the ratio of the signal to
/// noise and interference (IEEE 802.15.4, annex E.4.1.8).
pub fn survival(sinr: f64, bits: u64) -> f64 {
    (1.0 - bit_error_rate(sinr)).powf(bits as f64)
}

/// Returns the bit error rate of O-QPSK with 16 orthogonal symbols, for this ratio of the signal to noise and
/// interference.
pub fn bit_error_rate(sinr: f64) -> f64 {
    let mut binomial = 16.0; // of 16 over k
    let mut sum = 0.0;
    for k in 2u8..=16 {
        let sign = if k & 1 == 0 { 1.0 } else { -1.0 };
        let k = f64::from(k);
        binomial *= (17.0 - k) / k;
        sum += sign * binomial * (20.0 * sinr * (1.0 / k - 1.0)).exp();
    }
    (sum * 8.0 / 15.0 / 16.0).clamp(0.0, 1.0)
}

/// The time of one byte at 250 kbit/s, in microseconds.
pub const BYTE: Micros = 32;
/// Number of bytes that a transmission has before the PSDU.
pub const PHY_HEADER_LEN: u64 = 6;
/// The length of a backoff period, in microseconds (aUnitBackoffPeriod).
pub const BACKOFF: Micros = 320;
/// The time of a clear channel assessment, in microseconds.
pub const ASSESSMENT: Micros = 128;
/// The time that a radio needs to change between receiving and sending, in microseconds (aTurnaroundTime).
pub const TURNAROUND: Micros = 192;
/// The maximum time that a sender waits for an acknowledgement, in microseconds (macAckWaitDuration).
pub const ACKNOWLEDGEMENT_WAIT: Micros = 864;
/// The silence after a frame of more than [`SHORT_FRAME_LEN`] bytes, in microseconds (macLIFSPeriod).
pub const LONG_SPACING: Micros = 640;
/// The silence after a frame of at most [`SHORT_FRAME_LEN`] bytes, in microseconds (macSIFSPeriod).
pub const SHORT_SPACING: Micros = 192;
/// Maximum length of a frame that needs only the short silence [`SHORT_SPACING`], in bytes (aMaxSIFSFrameSize).
pub const SHORT_FRAME_LEN: usize = 18;
/// The thermal noise of the receiver over 2 MHz at 290 K, in dBm.
pub const NOISE_DBM: f64 = -110.97;
/// The power in dBm above which the channel counts as busy. It is 10 dB over a sensitivity of -106.58 dBm.
pub const BUSY_DBM: f64 = -96.58;
/// The minimum ratio of the signal to noise and interference at which a receiver finds a preamble. It corresponds to -5
/// dB.
pub const LOCK_SINR: f64 = 0.316_227_766;

/// Converts a power from dBm to milliwatts.
pub fn milliwatts(dbm: f64) -> f64 {
    10f64.powf(dbm / 10.0)
}

#[cfg(test)]
mod tests;
