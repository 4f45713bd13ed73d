//! The reasons why a device does not start.

/// The reason why a device does not start. The text of each error also names what the user has to do next.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The state file cannot be read or written.
    #[error("{file}: {source}; correct the path, or the permissions there")]
    File {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Users other than the owner of the state file can read or write the file.
    #[error("{file} has mode {mode:o}, and others can read or write it: chmod 600 {file}")]
    Exposed {
        /// The path of the file.
        file: String,
        /// The permission bits of the file.
        mode: u32,
    },
    /// Another process has the state open.
    #[error("{0} is in use by another process: end that one, or give this device a state of its own")]
    InUse(String),
    /// The file is not the state of a device.
    #[error(
        "{0} is not the state of a delegated device, or it is damaged: correct the path; if the state is lost, imprint the device again, \
         remove the file, and start with the new device key"
    )]
    NotState(String),
    /// The state belongs to a device with another name.
    #[error(
        "{file} is the state of the device {found}, and this one is {name}: correct the name, or the path of the state"
    )]
    OtherDevice {
        /// The path of the file.
        file: String,
        /// The name in the state.
        found: String,
        /// The name of this device.
        name: String,
    },
    /// The state was made with another device key.
    #[error(
        "{0} is the state that came from another device key: if the device was imprinted again, remove this file, and start with the new \
         device key; otherwise correct the path of the key or of the state"
    )]
    OtherKey(String),
    /// There is neither a state nor a device key.
    #[error(
        "{0} does not exist, and a first start needs the device key: bring the file that `tegmen device imprint` wrote"
    )]
    NoKey(String),
    /// The state contains more refused connections than the list of this device can hold.
    #[error(
        "{0} has more refused connections than this version takes: use the version that wrote it, or imprint the device again"
    )]
    TooManyRefused(String),
    /// The system has no randomness.
    #[error("the system gives no randomness: {0}")]
    System(std::io::Error),
}
