//! HTTP at a proxy (RFC 8075; RFC 7252, section 10).
//!
//! [`serve`] takes the requests of HTTP clients for CoAP servers, and asks the forward proxy of a CoAP server in their place. To that server
//! they are clients in clear: its policy, its proxy and its limits decide on each request as on one that came over CoAP.
//!
//! `origin` asks HTTP servers, which are origins of the proxy as others.

mod front;
mod media;
pub(super) mod origin;

pub use front::{HttpFront, serve};
