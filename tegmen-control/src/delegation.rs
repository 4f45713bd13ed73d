//! Delegated sessions ([`tegmen_delegation`]) at their server.
//!
//! [`Delegations`] keeps the devices in a store: their keys, the epoch of each, the numbers that it gave to connections, and the
//! connections that it revoked. Handshakes ask it without waiting: it decides on the [rights](Rights) of a peer, and seals and
//! opens tickets from memory. [`Delegations::run`] makes durable what the handshakes leave behind.
//!
//! * A number of a connection is reserved in the store before it is used, so a server that is killed or restored gives none twice
//!   in an epoch.
//! * A revocation is durable before it is acknowledged. The device learns it later, and the server opens no ticket of the
//!   connection meanwhile.
//! * An epoch that begins is durable before the device hears of it, so that a lost response parts no keys.

mod changes;
mod config;
mod connection;
mod connections;
mod decisions;
mod device;
mod drill;
mod epochs;
mod error;
mod memory;
mod numbers;
mod operations;
mod revocations;
mod rights;
mod rows;
mod server;
mod work;

pub use config::DeviceConfig;
pub use connection::{Carrier, ConnectionId, ConnectionPage, DelegatedConnection};
pub use drill::Reachable;
pub use epochs::{NextEpoch, ResetPreview};
pub use error::DelegationError;
pub use memory::{DelegationCounts, DeviceReport};
pub use revocations::Revoked;
pub use rights::Rights;
pub use server::Delegations;
