//! State that must never go back: numbers for nonces, and the numbers that the other end has used.
//!
//! There is one rule: the end of a lease of numbers is durable before the first of them is used. The state of a
//! context or a session is in one of two places:
//!
//! * a file for each, written and renamed in one step: OSCORE contexts (see [`crate::contexts`]), and the session of a
//!   client ([`SessionFile`]);
//! * a SQLite [`Database`] for many: the sessions of a server ([`Sessions`]), and its contexts.
//!
//! Each place is open in one process at a time, and recognizes itself. A copy, a restored older version and a file
//! that was cut short are refused, because they would repeat nonces.

mod session_file;
mod sessions;

pub use session_file::SessionFile;
pub use sessions::{Restored, SessionName, Sessions, With};
pub use tegmen_store::{Database, StateError, recover};
