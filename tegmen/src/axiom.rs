//! Groups after Axiom: one protected request to many members, and one protected response from each member, without a
//! handshake.
//!
//! **The format is research, not a standard.** It follows M. Tiloca, K. Nikitin and S. Raza, "Axiom - DTLS-based
//! secure IoT group communication" (ACM TECS), cited here as the paper. Where an attack on the paper's format is
//! known, this module differs from the paper, and the documentation of the item describes the difference.
//!
//! The controller of a group gives each member an [`Association`]. A [`Member`] is made from it. A sender calls
//! [`Member::seal_request`] and sends the record to the address of the group. A listener calls [`Member::open_request`], and
//! answers with [`Member::seal_response`]. The sender calls [`Member::open_response`]. All operations work in place. Records
//! have the header of DTLS (RFC 6347, section 4.1), in which the 48 bits of the sequence number are split: a SenderID, or in a
//! response the GroupID, of 8 bits, and a truncated sequence number (TSN) of 40 bits (paper, figures 4 and 5).
//!
//! The keys prove that a request comes from a member of the group. They do not prove which member, because all
//! members have the key of requests. A response comes from the member at its source address, or from any other
//! member, because each member can compute the key of that address. No outsider can make a request or a response. In
//! a group with [`Signatures`], each record also proves to all members which member sent it.
//!
//! * No TSN is used twice under one key: each TSN comes from a lease whose end was made durable before
//!   ([`Member::reserve`]).
//! * No record is delivered twice. If a member does not know the TSNs that another member has used, a record from
//!   that other member is [`Opened::Unverified`]. The caller delivers such a record only with another proof that it
//!   is new: an Echo option in a request (RFC 9175), or in a response the token of an open request. The paper instead
//!   accepts the first record as the reference (section 6.2). An attacker defeats that with two old records.
//! * A [`KeyPath`] takes the [rekey messages](rekey) of the controller, and has the master secret of the next epoch.
//!   An evicted member cannot read these messages, and no member except the controller can forge them.
//! * A record that fails to open changes no state, no matter how many such records arrive.

mod association;
mod key_path;
mod member;
mod opened;
mod protection;
pub mod rekey;
mod signature;
mod states;
mod suite;

pub use crate::identity::SenderId;
pub use association::{Association, BadAssociation};
pub use key_path::{Admission, KeyPath, Rekeyed};
pub use member::{Kept, Member, SealRefused};
pub use opened::{GroupNumber, Opened, Proof, Unverified};
pub use signature::Signatures;
pub use suite::Suite;
