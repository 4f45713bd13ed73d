//! The control plane of Tegmen.
//!
//! [`access`] decides on rights, with a [policy](access::policy) in one file. This module does no input and output: its
//! functions take values and the time, and return answers. [`state`] is the data that the access control server keeps
//! in a store, and [`audit`] is the log of its decisions. A device registers itself by [`enrolment`]. [`service`] joins
//! these modules, and [`server`] serves them over CoAP.
//!
//! [`subscriber`] is a subscriber that gets keys and rights from the server by introspection. [`agent`] gets keys for
//! programs with another DTLS stack. [`publisher`] is a publisher that has a protokey, and takes tokens from the
//! server. [`resource_server`] is a publisher that uses OSCORE, and takes tokens from clients. [`token_client`] is a
//! client that requests tokens from the server and posts them to a resource server. [`group`] is the controller of
//! Axiom groups. [`delegation`] is the server of devices with delegated sessions, and [`delegated`] is such a device on
//! a host.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod access;
#[cfg(unix)]
pub mod agent;
pub mod audit;
pub mod delegated;
pub mod delegation;
pub mod directory;
pub mod enrolment;
pub mod group;
pub mod publisher;
pub mod resource_server;
pub mod server;
pub mod service;
pub mod state;
pub mod subscriber;
pub mod token_client;
mod upload;

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
