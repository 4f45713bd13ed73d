//! The audit log: the keys and rights that a server gave, refused and revoked, and the changes that operators made.
//!
//! The log is a file with lines of JSON. Each line has its number and the SHA-256 of the previous line, so the next
//! line shows if a line was changed. From time to time the server signs a [`Head`], which contains the number and the
//! hash of the last line. An operator copies heads to another machine. With a copy of a head, [`verify`] finds each
//! change, deletion, reordering and truncation of the lines up to the head, and names the line. A log contains no
//! secret.
//!
//! A thread writes the lines, many of them with one synchronization of the disk ([`AuditLog`]). A change that gives
//! rights waits for its line, and is refused while the log cannot be written. A change that takes rights away never
//! waits.

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
