//! Groups that Axiom protects. One protected request is sent to many members, and each member sends one protected
//! response, without a handshake.
//!
//! **The format is research, not a standard.** It follows M. Tiloca, K. Nikitin and S. Raza, "Axiom - DTLS-based secure
//! IoT group communication" (ACM TECS), which is called the paper here. If an attack on a part of the paper's format is
//! known, this module differs from the paper in this part. The documentation of the function or type that implements
//! the part describes the difference.
//!
//! The controller of a group sends each member an [`Association`], from which the member creates a [`Member`]. A sender
//! calls [`Member::seal_request`], and sends the record to the address of the group. A listener calls
//! [`Member::open_request`], and responds with [`Member::seal_response`]. The sender then calls
//! [`Member::open_response`]. All operations change a record in place.
//!
//! Records have the header of DTLS (RFC 6347, section 4.1), but the 48 bits of the sequence number have two parts. The
//! first 8 bits are a SenderID in a request, or the GroupID in a response. The other 40 bits are a truncated sequence
//! number (TSN; figures 4 and 5 of the paper).
//!
//! The keys prove that a request comes from some member of the group. They do not prove which member sent it, because
//! all members have the key of requests. A response comes from the member at its source address or from another member,
//! because each member can compute the key of that address. No outsider can make a request or a response. In a group
//! with [`Signatures`], each record also proves to all members which member sent it.
//!
//! * No TSN is used twice under one key: each TSN comes from a reserved range of TSNs (a lease), and the end of the
//!   range is stored durably before the first TSN of the range is used ([`Member::reserve`]).
//! * No record is delivered twice. If a member does not know which TSNs another member has used, a record from that
//!   other member is [`Opened::Unverified`]. The caller delivers such a record only after another proof that it is new.
//!   For a request, this proof is an Echo option (RFC 9175); for a response, it is the token of an open request. In the
//!   paper, a member accepts the first such record as the reference (section 6.2 of the paper), and two recorded
//!   records defeat this rule.
//! * A [`KeyPath`] processes the [rekey messages](rekey) of the controller, and computes the master secret of the next
//!   epoch. An evicted member cannot read these messages, and only the controller can make them.
//! * A record that fails to open changes no state. So any number of such records does no harm.

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
