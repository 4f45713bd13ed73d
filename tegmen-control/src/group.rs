//! The controller of groups: of Axiom groups ([`tegmen::axiom`]), and of Group OSCORE groups
//! ([`tegmen::oscore::group`]), whose Group Manager it is.
//!
//! A [`KeyTree`] has the keys of one group, and makes the messages that replace keys. A [`Controller`] keeps groups in
//! a store: it creates groups, admits and evicts members, and begins epochs. [`send()`] sends the messages of the
//! controller, [`send_to_members`] sends rekeying messages to single members of Group OSCORE groups, and [`server`]
//! serves the controller over CoAP (RFC 9594). A member that an operator provisions reads
//! its keys with [`MemberFile::open`].

mod config;
mod control;
mod control_uri;
mod controller;
mod departures;
mod happened;
mod joins;
mod members;
mod observers;
mod oscore;
mod outbox;
mod periodic;
mod possession;
mod rekeying;
mod rows;
mod sending;
pub mod server;
mod tree;

pub use config::{GroupConfig, GroupError, PROTOCOLS, Protocol, SIGNATURES, SUITES};
pub use control::send_to_members;
pub use controller::{Controller, Epochs, Report};
pub use departures::evict_departed;
pub use happened::GroupHappened;
pub use members::{Member, NewMember};
pub use oscore::{NewOscoreMember, OscoreMember};
pub use outbox::{GroupCounts, Outbox, Pace};
pub use periodic::rekey_periodically;
pub use rekeying::{Outgoing, Rekeying};
pub use sending::{Sending, send};
pub use tegmen_host::group::member_file::MemberFile;
pub use tree::{Admitted, Change, KeyTree, MAX_LEVELS, Refused, RekeyMessage};

/// The identity of a group: 16 random bytes.
pub type GroupIdentity = [u8; 16];
