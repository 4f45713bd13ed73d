//! OSCORE (RFC 8613): messages that protect themselves, end to end, whatever carries them.
//!
//! A [`Context`] is one end of what two endpoints share. The client calls [`Context::protect_request`] on a message that
//! it built in a frame, keeps the [`Pending`], and gives it to [`Context::unprotect_response`]. The server asks
//! [`OscoreOption::parse`] which context is named, calls [`Context::unprotect_request`], and answers with
//! [`Context::protect_response`]. All of it happens in place; what is sent again is the same bytes and costs no crypto.
//!
//! No number is ever used twice: each comes from a [lease](crate::lease) whose end was made durable before. After a power
//! cut the window of the other end's numbers is lost, and a request is delivered only once a challenge was repeated
//! ([`Context::write_challenge`]; appendix B.1.2).

mod context;
mod cose;
mod option;
mod protect;
mod unprotect;

pub use context::{BadParameters, Context, Id, MAX_ID, MAX_ID_CONTEXT, MAX_PARTIAL_IV, Parameters};
pub use cose::Aead;
pub use option::{BadOption, OscoreOption, PartialIv};
pub use protect::{OVERHEAD, Stop};
pub use unprotect::{Pending, Refused, RequestBinding, RequestNonce, Unprotected};

#[cfg(test)]
mod tests;
