//! State of a server that must never go back: numbers for nonces, and sessions.
//!
//! There is one rule: the end of a lease of numbers is durable before the first of them is used. A [`Database`] holds
//! many numbers in one SQLite file, with one thread that writes. A [`Place`] is a row there or a file of its own.
//!
//! Each place is open in one process at a time, and recognizes itself: a copy, a restored older version and a file that
//! was cut short are refused, because they would repeat nonces.
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
