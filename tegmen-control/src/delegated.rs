//! A device with delegated sessions, as a part of a [`Server`](tegmen_host::server::Server) on a host.
//!
//! The device has neither a certificate nor a private key. Its [server of delegated sessions](crate::delegation) opens sessions in its
//! name. Peers resume these sessions at the device with a ticket or an id, and the device resumes others at servers elsewhere.
//!
//! * The [state](DeviceSettings::state) is in a file, which is replaced as a whole and is durable before the device answers: the epoch
//!   with its keys, and the refused connections. Sessions that were handed over are in memory, and do not survive a restart.
//! * A peer has the rights of the scope that its ticket names, until the delegation ends. The scopes of the device are those that its
//!   operator gave to the server. A scope that the device does not have gives no rights.
//! * A connection that the server revoked has no rights from then on, and its session is closed. Another epoch closes the sessions of
//!   the previous epoch.
//! * The device has the clock of its system, and the time of its server once the server speaks with it.

mod admitted;
mod device;
mod error;
mod open;
mod scopes;
mod state_file;
mod work;

pub use device::{DelegatedDevice, DeviceSettings};
pub use error::DeviceError;
pub use scopes::Scopes;
