//! Reasons why stored state cannot be used.

use std::io;

/// The reason why state cannot be used. Each message names the next step.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file cannot be read or written.
    #[error("{file}: {source}: sessions are kept there; correct the path, or the permissions there")]
    File {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Others on this machine can read the key.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds a key: chmod 600 {file}")]
    Exposed {
        /// The path of the file.
        file: String,
        /// Its permission bits.
        mode: u32,
    },
    /// Another process uses it.
    #[error("{file}: another process uses this state; end it first, two would use the same nonces")]
    InUse {
        /// The path of the file.
        file: String,
    },
    /// The stored state cannot be trusted.
    #[error("{file}: {why}; going on could repeat nonces. {way_out}")]
    Untrusted {
        /// The path of the file.
        file: String,
        /// The error in the file.
        why: String,
        /// The next step.
        way_out: String,
    },
}
