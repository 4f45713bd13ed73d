//! CoAP (RFC 7252): requests, their rights and their responses.
//!
//! [`handler`] takes a request to the application and back; [`link`] writes `/.well-known/core`. Messages, options and the
//! message layer are those of the crate [`tegmen_coap`], whose items are here again.

pub mod handler;
pub mod link;
mod request;
mod response;

pub use handler::{Authorized, Handler, Policy};
pub use request::Request;
pub use response::Response;
pub use tegmen_coap::*;
