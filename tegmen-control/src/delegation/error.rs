//! The reasons why a change of a device or a connection is not made.

use crate::audit::NotWritten;
use tegmen_store::StoreError;

/// The reason why an operator's change was not made. The text of each error also names what the operator has to do
/// next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DelegationError {
    /// There is no device of this name.
    #[error("there is no delegated device {0}: imprint it, or correct the name")]
    NoDevice(String),
    /// A device of this name exists already.
    #[error("there is a delegated device {0}: choose another name, or imprint it again")]
    NameTaken(String),
    /// The name or the configuration of a device is not valid.
    #[error("{0}")]
    Config(String),
    /// The device is disabled.
    #[error("the device {0} is disabled: enable it first")]
    Disabled(String),
    /// The device has no connection with this identifier, or the connection belongs neither to the present epoch nor to
    /// the previous one.
    #[error(
        "the device {name} has no connection {id} now: list its connections; those of earlier epochs have ended, and those under an earlier device key end when the device has its present key"
    )]
    NoConnection {
        /// The name of the device.
        name: String,
        /// The identifier of the connection.
        id: super::connection::ConnectionId,
    },
    /// The present epoch of the device is the last epoch of its device key. The value is the name of the device.
    #[error("the device {0} is in the last epoch of its device key: imprint it again")]
    NoMoreEpochs(String),
    /// The device has no pending epoch that it could acknowledge.
    #[error("the device {0} has no epoch that waits: begin one")]
    NoPending(String),
    /// The device has changed since the revision that the operator names.
    #[error("the device {0} was changed meanwhile: show it, and decide again")]
    Outdated(String),
    /// The server does not give a peer a session with a device.
    #[error("{peer} gets no session with the device {device} ({code}): see the audit log, and the policy")]
    NotGiven {
        /// The name of the device.
        device: String,
        /// The name of the peer.
        peer: String,
        /// The code of the reason why the peer gets no session. The code stays the same in later versions.
        code: &'static str,
    },
    /// A remote server opens no session with a device of this server.
    #[error("the device {device} has no session with {remote}: {why}")]
    Remote {
        /// The name of the device.
        device: String,
        /// The address of the remote server.
        remote: std::net::SocketAddr,
        /// The reason, as text.
        why: String,
    },
    /// The certificate of a device cannot be made.
    #[error("{0}")]
    Certificate(String),
    /// Other servers changed the device during each attempt.
    #[error("another server changed the device {0} each time: try again")]
    Changed(String),
    /// A row cannot be read.
    #[error("the row {key} cannot be read: {why}: restore it from a backup, or use the version that wrote it")]
    Fault {
        /// The key of the row as text.
        key: String,
        /// The fault in the value of the row.
        why: String,
    },
    /// The audit log cannot be written.
    #[error(transparent)]
    Audit(#[from] NotWritten),
    /// The store refused the change, or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
