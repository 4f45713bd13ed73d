//! Groups after Axiom ([`tegmen::axiom`]) at their controller.
//!
//! A [`KeyTree`] has the keys of one group, and makes the messages that replace them. A [`Controller`] keeps groups in a store:
//! it creates them, admits and evicts members, and begins epochs. [`server`] serves it over CoAP after RFC 9594. A member that an
//! operator provisions reads its keys by [`read_member_file`].

mod config;
mod controller;
mod members;
mod provisioned;
mod rows;
pub mod server;
mod tree;

pub use config::{GroupConfig, GroupError};
pub use controller::{Controller, Outgoing, Rekeying, Report};
pub use members::{Member, NewMember};
pub use provisioned::{MemberFileError, read_member_file};
pub use tree::{Admitted, Change, KeyTree, MAX_LEVELS, Refused, RekeyMessage};

/// The identity of a group: 16 random bytes.
pub type GroupIdentity = [u8; 16];
