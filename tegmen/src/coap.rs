//! CoAP (RFC 7252): requests, authorization and responses.
//!
//! [`handler`] passes a request to the application, and writes the response. [`link`] writes `/.well-known/core`.
//! Messages, options and the message layer are in the crate [`tegmen_coap`]. This module re-exports the items of that
//! crate.

pub mod handler;
pub mod link;
mod request;
mod response;

pub use handler::{Authorized, Handler, Policy};
pub use request::Request;
pub use response::Response;
pub use tegmen_coap::*;
