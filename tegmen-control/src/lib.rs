//! Control plane of Tegmen.
//!
//! [`access`] decides on rights: a [policy](access::policy) in one file. It has no input and output: its functions take values
//! and the clock, and return answers. [`state`] is what its server keeps in a store, and [`audit`] is the log of its decisions.
//! A device registers itself by [`enrolment`]. [`service`] joins the three, and [`server`] serves it over CoAP.
//! [`subscriber`] is the other end of introspection, and [`agent`] is that end for programs with another DTLS stack.
//! [`publisher`] is a publisher with a protokey that takes tokens from the server, [`resource_server`] one with
//! OSCORE that takes them from clients, and [`token_client`] such a client. [`group`] is the controller of groups after Axiom.
//! [`delegation`] is the server of devices with delegated sessions, and [`delegated`] is such a device on a host.
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
