//! Delegated sessions ([`tegmen_delegation`]) at their server.
//!
//! [`Delegations`] keeps the devices in a store: their keys, the epoch of each, the numbers that it gave to connections, and the
//! connections that it revoked. Handshakes ask it without waiting: it decides on the [rights](Rights) of a peer, and seals and
//! opens tickets from memory. [`Delegations::run`] makes durable what the handshakes leave behind, and speaks with the
//! devices.
//!
//! * A number of a connection is reserved in the store before it is used, so a server that is killed or restored gives none twice
//!   in an epoch.
//! * A revocation is durable before it is acknowledged. The device learns it later, and the server opens no ticket of the
//!   connection meanwhile.
//! * An epoch that begins is durable before the device hears of it, so that a lost response parts no keys.

mod agenda;
mod certificates;
mod changes;
mod config;
mod connection;
mod connections;
mod contact;
mod conversation;
mod decisions;
mod delegate;
mod device;
mod drill;
mod epochs;
mod error;
mod handovers;
mod introductions;
mod memory;
mod numbers;
mod operations;
mod pace;
mod reissue;
mod remotes;
mod revocations;
mod rights;
mod rows;
mod server;
mod talking;
mod work;

pub use certificates::{CertificateReport, Certificates};
pub use config::DeviceConfig;
pub(crate) use config::MAX_SCOPES;
pub use connection::{Carrier, ConnectionId, ConnectionPage, DelegatedConnection};
pub use contact::{Contact, Unreachable};
pub(crate) use decisions::SUITE;
pub use drill::Reachable;
pub use epochs::{NextEpoch, ResetPreview};
pub use error::DelegationError;
pub use introductions::Introduced;
pub use memory::{DelegationCounts, DeviceReport, Entries};
pub use pace::Pace;
pub use reissue::{Reissue, Way};
pub use revocations::Revoked;
pub use rights::Rights;
pub use server::Delegations;
