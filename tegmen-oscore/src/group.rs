//! Group OSCORE (RFC 10021): messages to all members of a group, and messages between two members.
//!
//! A [`GroupContext`] is the security context at one member: the data that all members share, and the data with which
//! this member sends. The owner of the context also stores a [`Recipient`] for each other member. The owner finds the
//! [`Recipient`] of a message by the ID in the message ([`Recipients`]). In the group mode all members can read a
//! message, and a signature proves which member sent it. In the pairwise mode only two members have the keys of a
//! message, and there is no signature.
//!
//! ```text
//! client                                                    server
//!   GroupContext::protect_request      group or pairwise ->   GroupContext::unprotect_request
//!   GroupContext::unprotect_response  <- group or pairwise    GroupContext::protect_response
//! ```
//!
//! The sequence numbers of the messages in both modes come from one reserved range ([lease](crate::Lease)). A request
//! of a member whose replay window is not known is answered with a challenge ([`GroupContext::write_challenge`]; RFC
//! 10021, section 9). When the Group Manager gives the group new keys, the owner makes a new context, and
//! [renews](GroupContext::renew) each recipient for it. A request that arrived under the old context is then answered
//! with a sequence number of the new context.
//!
//! A proxy cannot answer a protected request from its cache, because no two protected requests have the same bytes.
//! [Deterministic requests](DeterministicClient) are the exception: they have the same bytes from each member. So a
//! proxy can answer them with one stored response, which it cannot read.
//!
//! If several clients observe a resource, the server can send one notification to all of them. The notification is a
//! response to a request that the server protected itself ([`GroupContext::unprotect_phantom_request`]).
//!
//! A [`SignatureChecker`] is no member. It verifies the signatures of messages in the group mode, for example at a
//! gateway, and cannot decrypt the messages.
//!
//! Algorithms without integrity protection (A128CBC) and HKDF with SHA-512 are not supported.

mod aad;
mod algorithms;
mod checker;
mod context;
mod credential;
mod deterministic;
mod exchange;
mod gid;
mod keystream;
mod phantom;
mod protect;
mod recipient;
mod unprotect;

pub use algorithms::Algorithms;
pub use checker::SignatureChecker;
pub use context::{BadGroup, GroupContext, GroupParameters, Ourselves};
pub use credential::key_of_ccs;
pub use deterministic::{DeterministicClient, DeterministicRequest};
pub use exchange::{GroupNonce, GroupPending, GroupRequest, Replies};
pub use protect::Mode;
pub use recipient::{Recipient, Recipients};

#[cfg(test)]
mod tests;
