//! The numbers of processor instructions that the operations of a node of Named Data Networking need.

use serde::{Deserialize, Serialize};

/// Numbers of processor instructions of each operation of a node. The values come from `data/ndn-instructions.toml`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NdnCosts {
    /// Number of processor instructions to create an Interest at a consumer, and to store and send this Interest at the
    /// forwarder of the consumer.
    pub create: u64,
    /// Number of processor instructions that a forwarder executes to send an Interest again.
    pub again: u64,
    /// Number of processor instructions that a forwarder executes to process an Interest. The forwarder sends the
    /// Interest to the next hop, or answers it from its content store.
    pub on_interest: u64,
    /// Number of processor instructions that a forwarder executes to process a Data packet. The forwarder stores the
    /// packet, and sends it to the faces with pending Interests.
    pub on_data: u64,
    /// Number of processor instructions to search the content store, for each packet that the store contains.
    pub of_stored: u64,
    /// Numbers of processor instructions that a producer executes to create a Data packet: first without protection,
    /// then with encryption and a signature.
    pub create_data: [u64; 2],
    /// Numbers of processor instructions that a consumer executes to read a Data packet: first without protection, then
    /// with the verification of the signature and the decryption of the content.
    pub open: [u64; 2],
}

impl NdnCosts {
    pub(super) fn counted() -> Self {
        toml::from_str(include_str!("../../data/ndn-instructions.toml"))
            .expect("the file is part of the program, and a test reads it")
    }

    /// Returns the number of instructions to create a Data packet, with or without protection.
    pub const fn create_of(&self, is_protected: bool) -> u64 {
        self.create_data[is_protected as usize]
    }

    /// Returns the number of instructions to read a Data packet, with or without protection.
    pub const fn open_of(&self, is_protected: bool) -> u64 {
        self.open[is_protected as usize]
    }
}
