//! The Axiom groups of which a node is a member: the trait that the owner of the node implements, and an implementation
//! with an array of groups.

use super::registration::MemberRegistration;
use crate::address::Address;
use crate::axiom::{Member, Opened, Proof, SealRefused, SenderId, Signatures, Unverified};
use crate::buf::{Frame, Full};
use crate::counters::Discard;
use crate::crypto::{Crypto, KEY_LEN};
use crate::dtls::record::Record;
use crate::identity::Principal;
use crate::time::{Duration, Instant};
use core::convert::Infallible;

/// The protected groups of which a node is a member. Each group is identified by its multicast address.
///
/// `()` is the type for a node without groups: it has no size and no code.
pub trait Groups {
    /// False only for `()`, the type for a node without groups.
    const IS_ON: bool = true;

    /// The type of the data that the node stores for an observer that is a member of a group. It contains the
    /// [`MemberRegistration`] that was passed to [`Self::registration`].
    type Registration: Copy + AsMut<MemberRegistration>;

    /// Converts a registration into the form that the node stores with an observer; `None` if the node has no groups.
    fn registration(registration: MemberRegistration) -> Option<Self::Registration>;

    /// Returns the principal of the group with this address; `None` if the node is not a member of the group.
    fn principal(&self, group: &Address) -> Option<Principal>;

    /// Returns the source address of our responses in the group; `None` if the node is not a member of the group.
    fn address(&self, group: &Address) -> Option<[u8; 16]>;

    /// Returns the address of the group to which a received response belongs. `group_id` is the GroupID in the header
    /// of the response, and `port` is the port at which it arrived. `None` if the node is not a member of such a group.
    fn of_response(&self, group_id: u8, port: u16) -> Option<Address>;

    /// Returns the epoch of a group; 0 if the node is not a member of the group.
    fn epoch(&self, group: &Address) -> u16;

    /// Returns two numbers: the number of bytes that the protection of a group adds before a message, and the number of
    /// bytes that it adds after the message.
    fn overhead(&self, group: &Address) -> (usize, usize);

    /// Protects the request in `frame`. Returns its truncated sequence number (TSN).
    ///
    /// # Errors
    /// [`SealRefused`] has the reason.
    fn seal_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        frame: &mut Frame<'_>,
    ) -> Result<u64, SealRefused>;

    /// Protects the response in `frame` to a request of the member `sender`.
    ///
    /// # Errors
    /// [`SealRefused`] has the reason.
    fn seal_response<C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        sender: SenderId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SealRefused>;

    /// Opens a request that was sent to a group. Returns the SenderID of the request, and the result.
    ///
    /// # Errors
    /// The reason why the record is dropped.
    fn open_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        record: Record<'r>,
    ) -> Result<(SenderId, Opened<'r>), Discard>;

    /// Opens the response of a member to our request to a group. The response arrived from the address `from`.
    ///
    /// # Errors
    /// The reason why the record is dropped.
    fn open_response<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        from: &Address,
        record: Record<'r>,
    ) -> Result<Opened<'r>, Discard>;

    /// Takes the proof that a record is new: see [`Member::accept`].
    ///
    /// # Errors
    /// The reason why the record is dropped.
    fn accept<C: Crypto>(&mut self, group: &Address, record: Unverified, proof: Proof<'_>) -> Result<(), Discard>;

    /// Returns true if the node may now challenge the sender of a request that may be a replay, and counts the
    /// challenge. A challenge is a response and uses up one of our record numbers, and anybody can replay requests. So
    /// an implementation must limit the rate of challenges, so that our record numbers suffice for the epoch.
    fn may_challenge(&mut self, now: Instant, group: &Address) -> bool;

    /// Returns the value of the Echo option for a challenge in this group; `None` if the node is not a member of the
    /// group.
    fn challenge(&self, group: &Address) -> Option<[u8; 8]>;

    /// Forgets the states of silent members: see [`Member::forget_idle`].
    fn forget_idle<C: Crypto>(&mut self, crypto: &mut C, group: &Address);
}

/// The groups of a node that is a member of no group.
impl Groups for () {
    const IS_ON: bool = false;
    type Registration = Infallible;

    #[inline]
    fn registration(_: MemberRegistration) -> Option<Infallible> {
        None
    }

    #[inline]
    fn principal(&self, _: &Address) -> Option<Principal> {
        None
    }

    #[inline]
    fn address(&self, _: &Address) -> Option<[u8; 16]> {
        None
    }

    #[inline]
    fn of_response(&self, _: u8, _: u16) -> Option<Address> {
        None
    }

    #[inline]
    fn epoch(&self, _: &Address) -> u16 {
        0
    }

    #[inline]
    fn overhead(&self, _: &Address) -> (usize, usize) {
        (0, 0)
    }

    #[inline]
    fn seal_request<C: Crypto>(&mut self, _: &mut C, _: &Address, _: &mut Frame<'_>) -> Result<u64, SealRefused> {
        Err(SealRefused::NotASender)
    }

    #[inline]
    fn seal_response<C: Crypto>(
        &mut self,
        _: &mut C,
        _: &Address,
        _: SenderId,
        _: &mut Frame<'_>,
    ) -> Result<(), SealRefused> {
        Err(SealRefused::Exhausted)
    }

    #[inline]
    fn open_request<'r, C: Crypto>(
        &mut self,
        _: &mut C,
        _: &Address,
        _: Record<'r>,
    ) -> Result<(SenderId, Opened<'r>), Discard> {
        Err(Discard::UnknownPeer)
    }

    #[inline]
    fn open_response<'r, C: Crypto>(
        &mut self,
        _: &mut C,
        _: &Address,
        _: &Address,
        _: Record<'r>,
    ) -> Result<Opened<'r>, Discard> {
        Err(Discard::UnknownPeer)
    }

    #[inline]
    fn accept<C: Crypto>(&mut self, _: &Address, _: Unverified, _: Proof<'_>) -> Result<(), Discard> {
        Err(Discard::UnknownPeer)
    }

    #[inline]
    fn may_challenge(&mut self, _: Instant, _: &Address) -> bool {
        false
    }

    #[inline]
    fn challenge(&self, _: &Address) -> Option<[u8; 8]> {
        None
    }

    #[inline]
    fn forget_idle<C: Crypto>(&mut self, _: &mut C, _: &Address) {}
}

/// Memory for at most `GROUPS` groups. In each group it stores the states of at most `SENDERS` senders and `LISTENERS`
/// listeners: see [`Member`].
///
/// In each group, our member may use only record numbers that are reserved for it. The owner of the node must reserve
/// more record numbers before all of them are used: see [`Self::member`], [`Member::left`] and [`Member::reserve`].
pub struct GroupArray<
    const GROUPS: usize,
    const SENDERS: usize,
    const LISTENERS: usize,
    const KEY: usize = KEY_LEN,
    S = (),
> {
    places: [Option<Place<SENDERS, LISTENERS, KEY, S>>; GROUPS],
}

struct Place<const SENDERS: usize, const LISTENERS: usize, const KEY: usize, S> {
    member: Member<SENDERS, LISTENERS, KEY, S>,
    principal: Principal,
    /// The time before which the node sends no challenge in this group.
    challenges_from: Instant,
}

/// The minimum time between two challenges in a group. With this limit, challenges alone need more than 96 days to use
/// up the 2^23 record numbers of our responses in an epoch.
const BETWEEN_CHALLENGES: Duration = Duration::from_secs(1);

impl<const GROUPS: usize, const SENDERS: usize, const LISTENERS: usize, const KEY: usize, S> Default
    for GroupArray<GROUPS, SENDERS, LISTENERS, KEY, S>
{
    fn default() -> Self {
        Self { places: [const { None }; GROUPS] }
    }
}

impl<const GROUPS: usize, const SENDERS: usize, const LISTENERS: usize, const KEY: usize, S: Signatures>
    GroupArray<GROUPS, SENDERS, LISTENERS, KEY, S>
{
    /// Adds a group. The application sees messages of the group's members under `principal`.
    ///
    /// # Errors
    /// [`Full`] if the array has no space, or if it already has a group that cannot be distinguished from the new
    /// group. Such a group has the same address, or the same GroupID and port.
    pub fn join(&mut self, member: Member<SENDERS, LISTENERS, KEY, S>, principal: Principal) -> Result<(), Full> {
        let (group, id) = (member.group(), member.group_id());
        if self.place(group).is_some() || self.of_response(id, group.port).is_some() {
            return Err(Full);
        }
        let place = self.places.iter_mut().find(|place| place.is_none()).ok_or(Full)?;
        *place = Some(Place { member, principal, challenges_from: Instant::AT_ONCE });
        Ok(())
    }

    /// Removes the group with this address, and wipes its keys.
    pub fn leave(&mut self, group: &Address) {
        for place in &mut self.places {
            if place.as_ref().is_some_and(|place| place.member.group() == group) {
                *place = None;
            }
        }
    }

    /// Returns our member of the group with this address; `None` if there is no such group.
    pub fn member(&mut self, group: &Address) -> Option<&mut Member<SENDERS, LISTENERS, KEY, S>> {
        self.place_mut(group).map(|place| &mut place.member)
    }

    fn place(&self, group: &Address) -> Option<&Place<SENDERS, LISTENERS, KEY, S>> {
        self.places.iter().flatten().find(|place| place.member.group() == group)
    }

    fn place_mut(&mut self, group: &Address) -> Option<&mut Place<SENDERS, LISTENERS, KEY, S>> {
        self.places.iter_mut().flatten().find(|place| place.member.group() == group)
    }
}

impl<const GROUPS: usize, const SENDERS: usize, const LISTENERS: usize, const KEY: usize, S: Signatures> Groups
    for GroupArray<GROUPS, SENDERS, LISTENERS, KEY, S>
{
    type Registration = MemberRegistration;

    fn registration(registration: MemberRegistration) -> Option<MemberRegistration> {
        Some(registration)
    }

    fn principal(&self, group: &Address) -> Option<Principal> {
        self.place(group).map(|place| place.principal)
    }

    fn address(&self, group: &Address) -> Option<[u8; 16]> {
        self.place(group).map(|place| *place.member.address())
    }

    fn of_response(&self, group_id: u8, port: u16) -> Option<Address> {
        let mut members = self.places.iter().flatten().map(|place| &place.member);
        let member = members.find(|member| member.group_id() == group_id && member.group().port == port)?;
        Some(*member.group())
    }

    fn epoch(&self, group: &Address) -> u16 {
        self.place(group).map_or(0, |place| place.member.epoch())
    }

    fn overhead(&self, group: &Address) -> (usize, usize) {
        self.place(group).map_or((0, 0), |place| place.member.overhead())
    }

    fn seal_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        frame: &mut Frame<'_>,
    ) -> Result<u64, SealRefused> {
        self.member(group).ok_or(SealRefused::NotASender)?.seal_request(crypto, frame)
    }

    fn seal_response<C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        sender: SenderId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SealRefused> {
        self.member(group).ok_or(SealRefused::Exhausted)?.seal_response(crypto, sender, frame)
    }

    fn open_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        record: Record<'r>,
    ) -> Result<(SenderId, Opened<'r>), Discard> {
        self.member(group).ok_or(Discard::UnknownPeer)?.open_request(crypto, record)
    }

    fn open_response<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        from: &Address,
        record: Record<'r>,
    ) -> Result<Opened<'r>, Discard> {
        self.member(group).ok_or(Discard::UnknownPeer)?.open_response(crypto, from, record)
    }

    fn accept<C: Crypto>(&mut self, group: &Address, record: Unverified, proof: Proof<'_>) -> Result<(), Discard> {
        self.member(group).ok_or(Discard::UnknownPeer)?.accept::<C>(record, proof)
    }

    fn may_challenge(&mut self, now: Instant, group: &Address) -> bool {
        let Some(place) = self.place_mut(group).filter(|place| place.challenges_from <= now) else { return false };
        place.challenges_from = now.after(BETWEEN_CHALLENGES);
        true
    }

    fn challenge(&self, group: &Address) -> Option<[u8; 8]> {
        self.place(group).map(|place| *place.member.challenge())
    }

    fn forget_idle<C: Crypto>(&mut self, crypto: &mut C, group: &Address) {
        if let Some(member) = self.member(group) {
            member.forget_idle(crypto);
        }
    }
}
