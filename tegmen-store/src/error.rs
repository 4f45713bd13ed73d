//! Reasons why stored state cannot be used.

use std::io;

/// The reason why stored state cannot be used. The message names the next step of the operator.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A file could not be read or written.
    #[error("{file}: {source}: sessions are kept there; correct the path, or the permissions there")]
    File {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Other users of this machine can read the key.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds a key: chmod 600 {file}")]
    Exposed {
        /// The path of the file.
        file: String,
        /// The permission bits of the file.
        mode: u32,
    },
    /// Another process uses the file.
    #[error(
        "{file}: another process uses this state; end that process first, because two processes would use the same nonces"
    )]
    InUse {
        /// The path of the file.
        file: String,
    },
    /// The stored state cannot be trusted.
    #[error("{file}: {why}; its use could repeat nonces. {way_out}")]
    Untrusted {
        /// The path of the file.
        file: String,
        /// The fault of the file.
        why: String,
        /// The next step of the operator.
        way_out: String,
    },
    /// The tables of the database have a version that this program does not know.
    #[error(
        "{file}: its tables have version {found}, and this program knows those up to {known}: use the program that wrote \
         it, or a newer one"
    )]
    Version {
        /// The path of the file.
        file: String,
        /// The version of the tables.
        found: i64,
        /// The newest version of the tables that this program knows.
        known: i64,
    },
    /// The sealing key cannot be used.
    #[error("{file}: {why}. {way_out}")]
    Sealing {
        /// The origin of the key.
        file: String,
        /// The error of the key.
        why: String,
        /// The next step of the operator.
        way_out: String,
    },
    /// A majority of the members of a cluster does not answer.
    #[error("{address}: {why}; start etcd at a majority of these addresses, or correct them")]
    Unreachable {
        /// The address of the cluster.
        address: String,
        /// The cause.
        why: String,
    },
}
