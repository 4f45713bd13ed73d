//! HTTP at a proxy (RFC 8075; RFC 7252, section 10).
//!
//! [`serve`] takes requests of HTTP clients for CoAP servers, and sends them to the forward proxy of a CoAP server. For
//! that server the HTTP clients are clients in clear: its policy, its proxy and its limits apply to each request in the
//! same way as to a request over CoAP.
//!
//! `origin` sends requests to HTTP servers. For the proxy, these servers are origins.

mod front;
mod media;
pub(super) mod origin;

pub use front::{HttpFront, serve};
