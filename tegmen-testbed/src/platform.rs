//! The motes in the papers: their currents, and their energies for given times of activity.

use crate::sim::{Activity, Micros};
use serde::{Deserialize, Serialize};

/// A mote with the values that a paper prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// A description of the mote, and the name of the paper.
    pub about: String,
    /// Clock frequency of the processor, in Hz.
    pub clock_hz: u64,
    /// Power of the processor while it computes, in milliwatts.
    pub cpu_active_mw: f64,
    /// Power of the board while it only waits, in milliwatts. It is set only for the Blink paper, whose measurements
    /// include it, and is 0 for the other papers.
    #[serde(default)]
    pub board_idle_mw: f64,
    /// Current of the radio while it sends, in milliamperes.
    pub tx_ma: f64,
    /// Current of the radio while it receives, in milliamperes.
    pub rx_ma: f64,
    /// Supply voltage, in volts.
    pub volts: f64,
}

/// The energy that a node uses in a period of time, in microjoules.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Energy {
    /// The energy that the processor uses for all its computations in the period, in microjoules.
    pub cpu_uj: f64,
    /// The energy that the radio uses to send all frames of the node in the period, in microjoules.
    pub tx_uj: f64,
    /// The energy that the radio uses to receive frames for this node in the period, in microjoules.
    pub rx_uj: f64,
    /// The energy that the radio uses to receive frames for other nodes in the period, in microjoules. Only a radio
    /// that is always on uses this energy.
    pub overheard_uj: f64,
    /// The energy of a radio that listens for the whole period, except while it sends, in microjoules.
    pub rx_always_on_uj: f64,
}

impl Energy {
    /// Returns the minimum energy of the node in microjoules: its radio receives only during frames for this node.
    pub fn radio_by_frame(&self) -> f64 {
        self.cpu_uj + self.tx_uj + self.rx_uj
    }

    /// Returns the energy of the node if its radio is always on, in microjoules.
    pub fn radio_always_on(&self) -> f64 {
        self.cpu_uj + self.tx_uj + self.rx_always_on_uj
    }
}

impl Platform {
    /// Returns the mote with this name; `None` if there is none.
    pub fn find(name: &str) -> Option<Self> {
        all().into_iter().find(|(known, _)| known == name).map(|(_, platform)| platform)
    }

    /// Returns the names of all motes.
    pub fn names() -> Vec<String> {
        all().into_iter().map(|(name, _)| name).collect()
    }

    /// Returns the energy of a node during the time `elapsed`. `activity` is the activity of its radio, and `cpu` is
    /// the time for which its processor computed.
    pub fn energy(&self, activity: &Activity, cpu: Micros, elapsed: Micros) -> Energy {
        let uj = |ma: f64, micros: Micros| self.volts * ma * micros as f64 / 1e3;
        Energy {
            cpu_uj: self.cpu_active_mw * cpu as f64 / 1e3,
            tx_uj: uj(self.tx_ma, activity.sending),
            rx_uj: uj(self.rx_ma, activity.receiving),
            overheard_uj: uj(self.rx_ma, activity.overhearing),
            rx_always_on_uj: uj(self.rx_ma, elapsed.saturating_sub(activity.sending)),
        }
    }
}

/// Returns the power of a board that is connected to its supply through a resistor, in milliwatts. `volts` is the
/// voltage over the resistor (Blink paper, section IV.C).
pub fn behind_resistor(volts: f64, supply: f64, ohms: f64) -> f64 {
    volts / ohms * (supply - volts) * 1e3
}

fn all() -> Vec<(String, Platform)> {
    let table: toml::map::Map<String, toml::Value> =
        toml::from_str(include_str!("../data/platforms.toml")).expect(PART);
    table.into_iter().map(|(name, value)| (name, value.try_into().expect(PART))).collect()
}

const PART: &str = "the file is part of the program, and a test reads it";

#[cfg(test)]
mod tests;
