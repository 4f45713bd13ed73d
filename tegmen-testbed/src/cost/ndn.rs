//! Instructions of a node of Named Data Networking.

use serde::{Deserialize, Serialize};

/// Instructions of the operations of a node: see `data/ndn-instructions.toml`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NdnCosts {
    /// A consumer creates an Interest, and its forwarder keeps and sends it.
    pub create: u64,
    /// A forwarder sends an Interest again.
    pub again: u64,
    /// A forwarder takes an Interest, and sends it to the next hop or answers it.
    pub on_interest: u64,
    /// A forwarder takes a Data packet, stores it, and sends it to the faces that asked.
    pub on_data: u64,
    /// The search in the content store, for each packet in it.
    pub of_stored: u64,
    /// A producer creates a Data packet: in clear, and encrypted and signed.
    pub create_data: [u64; 2],
    /// A consumer reads a Data packet: in clear, and one whose signature it verifies and whose content it decrypts.
    pub open: [u64; 2],
}

impl NdnCosts {
    pub(super) fn counted() -> Self {
        toml::from_str(include_str!("../../data/ndn-instructions.toml"))
            .expect("the file is part of the program, and a test reads it")
    }

    /// Returns the cost of creating a Data packet.
    pub const fn create_of(&self, is_protected: bool) -> u64 {
        self.create_data[is_protected as usize]
    }

    /// Returns the cost of reading a Data packet.
    pub const fn open_of(&self, is_protected: bool) -> u64 {
        self.open[is_protected as usize]
    }
}
