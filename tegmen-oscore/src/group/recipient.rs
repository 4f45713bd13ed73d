//! Recipient Contexts (RFC 10021, section 2.2). A member has one for each member of the group except itself.

use crate::id::Id;
use tegmen_base::crypto::{KEY_LEN, MemberKey};
use tegmen_base::replay::ReplayWindow;
use tegmen_base::secret::Secret;

/// Another member of the group. `B` is the type of the bytes of its authentication credential: a `Vec` on a host, an
/// array or a `&'static [u8]` on a mote.
pub struct Recipient<B> {
    pub(super) id: Id,
    pub(super) key: Secret<KEY_LEN>,
    pub(super) credential: B,
    pub(super) public_key: MemberKey,
    pub(super) window: ReplayWindow,
    /// The pairwise keys. They are derived when a message needs them for the first time.
    pub(super) pairwise: Option<PairwiseKeys>,
}

impl<B> Recipient<B> {
    /// Returns the ID of the member. The ID may change during the membership, but the public key does not (RFC 10021,
    /// section 2.6.3).
    pub const fn id(&self) -> &Id {
        &self.id
    }

    /// Returns the authentication credential of the member.
    pub const fn credential(&self) -> &B {
        &self.credential
    }

    /// Returns the replay window, which records the sequence numbers that the member has used.
    pub const fn window(&self) -> &ReplayWindow {
        &self.window
    }
}

impl<B> core::fmt::Debug for Recipient<B> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Recipient").field("id", &self.id).field("window", &self.window).finish_non_exhaustive()
    }
}

/// The keys of messages between two members (RFC 10021, section 2.5.1).
pub(super) struct PairwiseKeys {
    pub(super) sender: Secret<KEY_LEN>,
    pub(super) recipient: Secret<KEY_LEN>,
}

/// The known other members of the group. The type that implements this trait decides how many members it stores, and
/// how it finds them.
pub trait Recipients<B> {
    /// Returns the member with this ID, or `None` if it is not known. The message is then refused with
    /// [`UnprotectError::UnknownMember`](crate::UnprotectError::UnknownMember), and the owner of the context may ask
    /// the Group Manager for the credential of the member.
    fn recipient(&mut self, id: &[u8]) -> Option<&mut Recipient<B>>;
}

impl<B> Recipients<B> for [Recipient<B>] {
    fn recipient(&mut self, id: &[u8]) -> Option<&mut Recipient<B>> {
        self.iter_mut().find(|recipient| recipient.id.as_bytes() == id)
    }
}
