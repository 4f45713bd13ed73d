//! Stores the state of a server: sessions, and the sequence numbers from which nonces are made. This state must never
//! return to an older version.
//!
//! A lease is a range of sequence numbers that a process may use. The store follows one rule: the end of a lease is
//! durable before the first number of the lease is used. A [`Database`] holds the sequence numbers of many OSCORE
//! contexts in one SQLite file, which one thread writes. A [`Place`] is the storage for the sequence numbers of one
//! context: a row of the database, or a separate file.
//!
//! Only one process at a time can open a place. A place refuses a copy, a restored older version and a file that was
//! cut short, because each of these files would repeat nonces.
#![forbid(unsafe_code)]

pub mod backup;
pub mod clock;
pub mod conformance;
pub mod database;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod files;
pub mod guard;
pub mod lock;
pub mod numbers;
mod place;
pub mod sealing;
pub mod store;
mod watch;

pub use database::{Database, Options, recover};
pub use error::StateError;
#[cfg(feature = "etcd")]
pub use etcd::Etcd;
pub use guard::Guard;
pub use numbers::{LEASE, Numbers};
pub use place::Place;
pub use sealing::SealingKey;
pub use store::answer::Answer;
pub use store::{Revision, Store, StoreError, Transaction, Value};
pub use watch::Watch;

/// The Rust block of README.md, compiled as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
