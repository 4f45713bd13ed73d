//! CoAP (RFC 7252).
//!
//! [`message`] parses into a view and builds in place; [`exchange`] is the message layer of one peer (retransmission,
//! deduplication, matching of responses); [`handler`] takes a request to the application and back; [`link`] writes
//! `/.well-known/core`; [`block`] and [`observe`] are what their names say (RFC 7959 and RFC 7641); [`probing`] spares
//! those who do not answer; [`storage`] is the memory of the message layer.

pub mod block;
pub mod code;
pub mod exchange;
pub mod handler;
pub mod link;
pub mod message;
mod no_response;
pub mod observe;
pub mod option;
pub mod probing;
mod request;
mod response;
pub mod storage;

pub use block::Block;
pub use code::Code;
pub use exchange::{Exchanges, Received, RequestId};
pub use handler::{Authorized, Handler, Policy};
pub use message::{Builder, MessageRef, MessageType, Token};
pub use no_response::NoResponse;
pub use option::OptionNumber;
pub use probing::Probing;
pub use request::Request;
pub use response::Response;
pub use storage::Fixed;
