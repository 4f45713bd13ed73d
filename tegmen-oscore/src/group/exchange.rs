//! The identity of a request at both endpoints. The responses to the request are bound to this identity.

use super::gid::Gid;
use crate::id::Id;
use crate::option::PartialIv;
use crate::unprotect::{OpenedRequest, Taken, UnprotectError};
use tegmen_base::crypto::hash::DIGEST_LEN;

/// The identity of the request that a response answers. The response is authentic for no other request. The identity
/// does not change when the group or a member gets new keys (RFC 10021, section 7.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupRequest {
    pub(super) kid: Id,
    pub(super) number: PartialIv,
    pub(super) gid: Gid,
    /// True if the request was protected in the group mode.
    pub(super) is_signed: bool,
    /// The hash of a deterministic request, to which its responses are bound.
    pub(super) hash: Option<RequestHash>,
}

/// The hash of a deterministic request.
pub(super) type RequestHash = [u8; DIGEST_LEN];

impl GroupRequest {
    /// Returns the ID of the client.
    pub const fn client(&self) -> &Id {
        &self.kid
    }

    /// Returns the Group Identifier with which the request was protected.
    pub fn gid(&self) -> &[u8] {
        self.gid.as_bytes()
    }

    /// Returns true if the request was protected in the group mode. Only such a request can be for several members.
    pub const fn is_signed(&self) -> bool {
        self.is_signed
    }

    /// Returns true if the request is a request of the Deterministic Client. Any member may then have sent it.
    pub const fn is_deterministic(&self) -> bool {
        self.hash.is_some()
    }
}

impl OpenedRequest for GroupRequest {
    type Nonce = GroupNonce;
}

/// Permits one response that is encrypted under the nonce of the request (RFC 8613, section 5.2).
#[derive(PartialEq, Eq, Debug)]
pub struct GroupNonce(pub(super) GroupRequest);

impl GroupNonce {
    /// Returns the request of this nonce.
    pub const fn request(&self) -> GroupRequest {
        self.0
    }
}

/// Describes which responses of one member were accepted for one request. [`GroupPending`] has one value of this type
/// for each member that may answer. The default value belongs to no member yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Replies {
    /// The ID of the member that sent the responses. As long as `taken` has its default value, this value of the type
    /// `Replies` belongs to no member, and the ID has no meaning.
    member: Id,
    taken: Taken,
}

/// A request of this member that waits for responses. `R` is an array or a vector with one [`Replies`] for each member
/// that may answer.
#[derive(Debug)]
pub struct GroupPending<R> {
    pub(super) request: GroupRequest,
    /// The only member that may answer, or `None` if each member may answer. A request in the pairwise mode always has
    /// such a member. A deterministic request may have such a member.
    pub(super) to: Option<Id>,
    /// The Group Identifier of the current context. Responses under another Group Identifier are refused.
    pub(super) gid: Gid,
    replies: R,
}

impl<R: AsMut<[Replies]>> GroupPending<R> {
    pub(super) const fn new(request: GroupRequest, to: Option<Id>, replies: R) -> Self {
        Self { request, to, gid: request.gid, replies }
    }

    /// Continues the exchange under the new context of the group, which has the Group Identifier `gid`. The sequence
    /// numbers of all members begin with 0 again, and responses under the old context are refused (RFC 10021, section
    /// 2.6.3.2).
    pub(super) fn renew(&mut self, gid: &Gid) {
        if *gid != self.gid {
            self.gid = *gid;
            self.replies.as_mut().iter_mut().for_each(|replies| replies.taken.newest = 0);
        }
    }

    /// Returns which responses of a member were accepted.
    ///
    /// # Errors
    /// [`UnprotectError::TooManyMembers`] if each [`Replies`] belongs to another member.
    pub(super) fn taken(&mut self, member: &Id) -> Result<Taken, UnprotectError> {
        self.place(member).map(|place| place.taken)
    }

    /// Stores which responses of a member were accepted.
    pub(super) fn remember(&mut self, member: &Id, taken: Taken) {
        if let Ok(place) = self.place(member) {
            *place = Replies { member: *member, taken };
        }
    }

    fn place(&mut self, member: &Id) -> Result<&mut Replies, UnprotectError> {
        let places = self.replies.as_mut();
        let of_member = places.iter().position(|place| place.member == *member && place.taken != Taken::default());
        let free = || places.iter().position(|place| place.taken == Taken::default());
        let at = of_member.or_else(free).ok_or(UnprotectError::TooManyMembers)?;
        places.get_mut(at).ok_or(UnprotectError::TooManyMembers)
    }
}

impl<R> GroupPending<R> {
    /// Returns the request.
    pub const fn request(&self) -> &GroupRequest {
        &self.request
    }
}
