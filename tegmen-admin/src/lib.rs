//! The HTTPS interface for the administrators of an access control server.
//!
//! [`Api`] answers requests about devices, the policy, revocations, groups, delegated sessions, users and API keys, and
//! logs users in. [`serve()`] is its listener. The module `routes` checks each request in the same order: credential,
//! scope, size, syntax and `Idempotency-Key`. Then it makes the change. A request that fails a check gets a
//! [`Problem`], and changes nothing in the store.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::indexing_slicing, clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::unreachable)
)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod api;
mod attempts;
mod authority;
mod delegation;
mod description;
mod document;
mod events;
mod failures;
mod groups;
mod handlers;
mod keys;
mod listener;
mod login;
mod messages;
mod operation;
mod parts;
mod passwords;
mod problem;
mod replay;
mod reply;
mod routes;
mod scope;
mod tls;
mod users;

pub use api::Api;
pub use authority::{LoginAuthority, LoginCertificate, NotCertified};
pub use keys::KeysError;
pub use listener::serve;
pub use operation::Route;
pub use problem::{Code, Problem};
pub use scope::{Scope, Scopes};
pub use tls::{ClientCertificates, Tls};

/// Returns the SHA-256 of the concatenated parts in hexadecimal digits.
fn sha256(parts: &[&[u8]]) -> String {
    tegmen_base::hex::to_hex(&tegmen_trust::digest::sha256_of(parts))
}

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
