//! A device with delegated sessions, as a part of a [`Server`](tegmen_host::server::Server) on a host.
//!
//! The device has neither a certificate nor a private key. Its [server of delegated sessions](crate::delegation) opens
//! sessions in the name of the device. Peers resume these sessions at the device with a ticket or a session id. The
//! device itself can resume sessions at remote servers.
//!
//! * The [state](DeviceSettings::state) is a file with the epoch, its keys, and the refused connections. When a request
//!   of the server changes the state, the device replaces the whole file durably before it answers this request.
//!   Sessions that the server sent are only in memory, and are lost at a restart.
//! * A peer has the rights of the scope that its ticket names, until the delegation expires. The scopes of the device
//!   are those that its operator gave to the server. A scope that the device does not have gives no rights.
//! * When the server revokes a connection, the connection loses its rights, and its session is closed. When another
//!   epoch begins, the device closes the sessions of the previous epoch.
//! * Until its server contacts the device, the device uses the clock of its system. From then on it uses the time that
//!   the server sent.

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
