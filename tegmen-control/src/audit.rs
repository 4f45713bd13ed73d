//! The audit log: which keys and rights a server gave, refused and took back, and what operators changed.
//!
//! The log is a file of lines of JSON. Each line has its number and the SHA-256 of the previous line, so a change of a line shows
//! in the next one. From time to time the server signs a [`Head`]: the number and the hash of the last line. An operator copies
//! heads to another machine; with one of them [`verify`] finds each change, deletion, reordering and truncation of the lines up
//! to it, and names the line. A log contains no secret.
//!
//! A thread writes the lines, many with one synchronization ([`AuditLog`]). A change that gives rights waits for its line, and
//! is refused while the log cannot be written. A change that takes rights away never waits.

mod head;
mod line;
mod log;
mod verify;

pub use head::{Head, HeadError};
pub use line::{Kind, MAX_MESSAGE, Record};
pub use log::{AuditBounds, AuditError, AuditLog, NotWritten};
pub(crate) use log::{Records, Then};
pub use verify::{Broken, Verified, verify};

#[cfg(test)]
mod tests;
