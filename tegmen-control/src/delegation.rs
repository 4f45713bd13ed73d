//! The server of delegated sessions ([`tegmen_delegation`]).
//!
//! [`Delegations`] keeps the devices in a store: their keys, the epoch of each device, the reserved connection numbers,
//! and the connections that were revoked. A handshake asks [`Delegations`] for decisions, and receives them at once,
//! because they need only data in memory. The decisions are about the [rights](Rights) of a peer, and about the tickets
//! that the server seals and opens. [`Delegations::run`] makes the results of handshakes durable, and contacts the
//! devices.
//!
//! * The number of a connection is reserved in the store before it is used. So a server that is killed, or restored
//!   from a backup, gives no number twice in an epoch.
//! * A revocation is durable before it is acknowledged. The device receives it later. From the acknowledgement on, the
//!   server opens no ticket of the connection.
//! * A new epoch is durable before the server asks the device to begin it. So the server and the device both have the
//!   keys of the new epoch, even if the response of the device is lost.

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
mod follow;
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

pub use certificates::{CertificateReport, Certificates, ReplacedCertificate};
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
