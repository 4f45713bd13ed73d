//! CoAP (RFC 7252).
//!
//! [`MessageRef`] parses into a view and [`Builder`] builds in place; [`Exchanges`] is the message layer of one peer
//! (retransmission, deduplication, matching of responses); [`handler`] takes a request to the application and back; [`link`]
//! writes `/.well-known/core`; [`block`] is Block-wise transfer (RFC 7959), [`observe`] is Observe (RFC 7641); [`Probing`]
//! spares those who do not answer; [`ExchangeStorage`] is the memory of the message layer.

pub mod block;
mod code;
pub(crate) mod exchange;
mod freshness;
pub mod handler;
pub mod link;
pub(crate) mod message;
mod no_response;
pub mod observe;
pub(crate) mod option;
mod probing;
mod request;
mod response;
pub(crate) mod storage;

pub use block::Block;
pub use code::Code;
pub use exchange::{Due, Exchanges, PeerExchanges, Received};
pub use freshness::Freshness;
pub use handler::{Authorized, Handler, Policy};
pub use message::{BuildError, Builder, HEADER_LEN, Malformed, MessageRef, MessageType, Token, empty_message};
pub(crate) use no_response::NoResponse;
pub use option::{OptionNumber, Options, uint, uint_bytes};
pub use probing::Probing;
pub use request::Request;
pub use response::Response;
pub use storage::{Busy, EXCHANGE_LIFETIME, ExchangeStorage, Fixed, Outgoing, Repeat, RequestId, Waiting};
