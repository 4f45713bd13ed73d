//! Resource directory (RFC 9176): endpoints register their links, and clients look them up.
//!
//! A [`Directory`] keeps registrations in memory. Registrations expire unless endpoints renew them. [`DirectoryServer`]
//! answers requests over CoAP:
//!
//! ```text
//! POST   /rd?ep=NAME             application/link-format (40): registers an endpoint with its links (section 5)
//! POST   /rd/ID                  renews a registration (section 5.3.1)
//! DELETE /rd/ID                  removes it (section 5.3.2)
//! POST   /.well-known/rd?ep=NAME the directory asks the sender for its links (section 5.1)
//! GET    /rd-lookup/res          the links of all endpoints; Observe (section 6.2)
//! GET    /rd-lookup/ep           the endpoints; Observe (section 6.4)
//! ```
//!
//! [`Registering`] is the client of a directory: a server that registers its own links, and renews the registration.
//!
//! The policy of the server decides on the rights of each sender. In addition, a name belongs to the identity that
//! registered it first (section 7.5). An endpoint may register only its own address, unless it is a [commissioning
//! tool](DirectorySettings::tools).

mod error;
mod links;
mod lookup;
mod registering;
mod registrations;
mod server;

pub use error::DirectoryError;
pub use registering::{NotRegistered, Registering, RegistrationEvent};
pub use registrations::{Directory, DirectoryBounds, Registrant};
pub use server::{DirectoryServer, DirectorySettings};

/// The path of registrations, without the first slash.
pub const REGISTRATIONS: &str = "rd";
/// The path of simple registrations, without the first slash.
pub const SIMPLE: &str = ".well-known/rd";
/// The path for lookups of links, without the first slash.
pub const LOOKUP_RESOURCES: &str = "rd-lookup/res";
/// The path for lookups of endpoints, without the first slash.
pub const LOOKUP_ENDPOINTS: &str = "rd-lookup/ep";
/// The Content-Format application/link-format.
pub const LINK_FORMAT: u32 = 40;
