//! State that must never return to an earlier version: the sequence numbers from which nonces are made, and the
//! sequence numbers that the other endpoint has used.
//!
//! One rule applies: a sender reserves sequence numbers in advance (a lease), and the end of the reserved range is on
//! disk before the first of these numbers is used. The state of a context or a session is in one of two places:
//!
//! * a separate file, which is written and renamed in one step: for OSCORE contexts (see [`crate::contexts`]), and for
//!   the session of a client ([`SessionFile`]);
//! * a SQLite [`Database`] for many sessions or contexts: for the sessions of a server ([`Sessions`]), and for its
//!   contexts.
//!
//! Each file or database is open in one process at a time. Tegmen detects and refuses a copy, a restored older version
//! and a file that was cut short, because they would repeat nonces.

mod session_file;
mod sessions;

pub use session_file::SessionFile;
pub use sessions::{Restored, SessionName, Sessions, With};
pub use tegmen_store::{Database, StateError, recover};
