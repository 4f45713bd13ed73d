//! Group OSCORE (RFC 10021): messages to the members of a group, and messages between two of them.
//!
//! A [`GroupContext`] is one member's end of the security context: what all members have in common, and what this member sends with.
//! For each other member its owner keeps a [`Recipient`], and finds it by the ID that a message carries ([`Recipients`]). In the group mode
//! all members can read a message, and a signature proves which one sent it. In the pairwise mode the keys of a message are those of two
//! members alone, and nothing is signed.
//!
//! ```text
//! client                                                    server
//!   GroupContext::protect_request      group or pairwise ->   GroupContext::unprotect_request
//!   GroupContext::unprotect_response  <- group or pairwise    GroupContext::protect_response
//! ```
//!
//! Numbers come from a [lease](crate::Lease), those of both modes from the same. A request of a member whose replay window is not
//! known is answered with a challenge ([`GroupContext::write_challenge`], section 9). When the Group Manager gives the group new keys, the
//! owner makes a new context, and [renews](GroupContext::renew) each recipient for it; earlier requests are then answered with a number
//! of the new context.
//!
//! A proxy cannot store these messages, because each is different. [Deterministic requests](DeterministicClient) are the same from each
//! member, and a proxy answers all members with one stored response, which it cannot read.
//!
//! Algorithms without integrity protection (A128CBC) and HKDF with SHA-512 are not supported.

mod aad;
mod algorithms;
mod context;
mod credential;
mod deterministic;
mod exchange;
mod gid;
mod keystream;
mod protect;
mod recipient;
mod unprotect;

pub use algorithms::Algorithms;
pub use context::{BadGroup, GroupContext, GroupParameters, Ourselves};
pub use credential::key_of_ccs;
pub use deterministic::{DeterministicClient, DeterministicRequest};
pub use exchange::{GroupNonce, GroupPending, GroupRequest, Replies};
pub use protect::Mode;
pub use recipient::{Recipient, Recipients};

#[cfg(test)]
mod tests;
