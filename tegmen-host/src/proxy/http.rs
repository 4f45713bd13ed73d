//! HTTP at a proxy (RFC 8075; RFC 7252, section 10).
//!
//! [`serve`] takes requests of HTTP clients for CoAP servers, and gives them to the forward proxy in a CoAP server.
//! That server treats an HTTP client in the same way as a CoAP client without DTLS and OSCORE: the same access policy,
//! proxy settings and limits apply to its requests.
//!
//! `origin` sends requests to HTTP servers. For the proxy, these servers are origins.

mod front;
mod media;
pub(super) mod origin;

pub use front::{HttpFront, serve};
