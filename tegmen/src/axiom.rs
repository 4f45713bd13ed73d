//! Groups after Axiom: one protected request to many members, and a protected response of each, without a handshake.
//!
//! **The format is research, not a standard.** It follows M. Tiloca, K. Nikitin and S. Raza, "Axiom - DTLS-based secure IoT
//! group communication" (ACM TECS), cited here as the paper. Where the paper is open to an attack, this module does not follow
//! it, and the documentation of the item gives the difference.
//!
//! The controller of a group gives each member an [`Association`]. A [`Member`] is made from it. A sender calls
//! [`Member::seal_request`] and sends the record to the address of the group. A listener calls [`Member::open_request`], and
//! answers with [`Member::seal_response`]. The sender calls [`Member::open_response`]. All operations work in place. Records
//! have the header of DTLS (RFC 6347, section 4.1), in which the 48 bits of the sequence number are split: a SenderID, or in a
//! response the GroupID, of 8 bits, and a truncated sequence number (TSN) of 40 bits (paper, figures 4 and 5).
//!
//! The keys prove that a request comes from a member of the group. They do not prove which member, because all members
//! have the key of requests. A response comes from the member at its address or from any other member, because each of
//! them can compute the same key. No outsider can make either. In a group with [`Signatures`], each record also proves
//! its member to all others.
//!
//! * No number is used twice: each comes from a lease whose end was made durable before ([`Member::reserve`]).
//! * No record is delivered twice. A record of a member whose numbers are not known is [`Opened::Unverified`], and the
//!   caller delivers it only with another proof that it is new: an Echo option in a request (RFC 9175), the token of an
//!   open request in a response. The paper takes the first record as the reference (section 6.2), which two old records
//!   defeat.
//! * A [`KeyPath`] takes the [rekey messages](rekey) of the controller, which an evicted member cannot read and no
//!   other member can forge, and has the master secret of the next epoch.
//! * A record that fails to open changes nothing, however many arrive.

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
