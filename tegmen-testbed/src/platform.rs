//! The currents of the motes in the papers, and the energies that follow from times.

use crate::sim::{Activity, Micros};
use serde::{Deserialize, Serialize};

/// A mote with the values that a paper prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Platform {
    /// A description of the mote, and the paper.
    pub about: String,
    /// Clock frequency of the processor, in Hz.
    pub clock_hz: u64,
    /// Power of the working processor, in milliwatts.
    pub cpu_active_mw: f64,
    /// Power of the board while it only waits, in milliwatts. The measurements of the Blink paper include it. It is 0
    /// for other papers.
    #[serde(default)]
    pub board_idle_mw: f64,
    /// Current of the sending radio, in milliamperes.
    pub tx_ma: f64,
    /// Current of the receiving radio, in milliamperes.
    pub rx_ma: f64,
    /// Supply voltage, in volts.
    pub volts: f64,
}

/// Energy of a node, in microjoules.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Energy {
    /// The energy of the working processor.
    pub cpu_uj: f64,
    /// The energy of the transmitting radio.
    pub tx_uj: f64,
    /// The energy of the radio for frames to this node.
    pub rx_uj: f64,
    /// The energy of the radio for frames to other nodes. A radio that is always on includes it.
    pub overheard_uj: f64,
    /// The energy of a radio that listens whenever it does not transmit.
    pub rx_always_on_uj: f64,
}

impl Energy {
    /// Returns the energy with a radio that receives only during frames for this node, which is the minimum.
    pub fn radio_by_frame(&self) -> f64 {
        self.cpu_uj + self.tx_uj + self.rx_uj
    }

    /// Returns the energy with a radio that is always on.
    pub fn radio_always_on(&self) -> f64 {
        self.cpu_uj + self.tx_uj + self.rx_always_on_uj
    }
}

impl Platform {
    /// Returns the mote with this name.
    pub fn find(name: &str) -> Option<Self> {
        all().into_iter().find(|(known, _)| known == name).map(|(_, platform)| platform)
    }

    /// Returns the names of all motes.
    pub fn names() -> Vec<String> {
        all().into_iter().map(|(name, _)| name).collect()
    }

    /// Returns the energy of a node whose radio had this activity in the time `elapsed`, and whose processor worked for
    /// the time `cpu`.
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

/// Returns the power of a board behind a resistor in its supply, in milliwatts. It follows from the voltage over the
/// resistor (Blink paper, section IV.C).
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
