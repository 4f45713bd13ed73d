//! The group memberships of a node, each with its state on disk.

use super::error::MembershipError;
use super::membership::{Membership, State};
use tegmen::address::Address;
use tegmen::axiom::{Opened, Proof, SealRefused, SenderId, Unverified};
use tegmen::buf::Frame;
use tegmen::crypto::Crypto;
use tegmen::cx::Discard;
use tegmen::dtls::record::Record;
use tegmen::identity::Principal;
use tegmen::node::{Groups, MemberRegistration};
use tegmen::time::Instant;

/// The memberships of a node.
#[derive(Clone, Default)]
pub(crate) struct Memberships(pub(crate) Vec<Membership>);

impl Memberships {
    /// Checks that the node can distinguish its groups.
    ///
    /// # Errors
    /// [`MembershipError::Alike`] for two groups with the same address, or with the same GroupID and the same port.
    pub(crate) fn check(memberships: &[Membership]) -> Result<(), MembershipError> {
        let id = |membership: &Membership| (membership.group_id(), membership.address_of_group().port);
        let mut rest = memberships.iter();
        while let Some(one) = rest.next() {
            let is_alike =
                |other: &&Membership| other.address_of_group() == one.address_of_group() || id(other) == id(one);
            if let Some(other) = rest.clone().find(is_alike) {
                return Err(MembershipError::Alike { one: one.name().to_owned(), other: other.name().to_owned() });
            }
        }
        Ok(())
    }

    /// Returns the membership in the group with this address.
    pub(crate) fn find(&self, group: &Address) -> Option<&Membership> {
        self.0.iter().find(|membership| membership.address_of_group() == group)
    }

    /// Calls `use_it` with the state of the membership in this group, and returns the result. Returns `None` if the
    /// node is not a member of the group.
    fn with<T>(&self, group: &Address, use_it: impl FnOnce(&mut State) -> T) -> Option<T> {
        self.find(group).map(|membership| use_it(&mut membership.lock()))
    }

    /// Calls `open`, which opens a record of a group. Counts records that cannot be opened, because they may show that
    /// the member has missed an epoch.
    fn open<T>(&self, group: &Address, open: impl FnOnce(&mut State) -> Result<T, Discard>) -> Result<T, Discard> {
        let membership = self.find(group).ok_or(Discard::UnknownPeer)?;
        let mut state = membership.lock();
        let opened = open(&mut state);
        let signatures = state.groups.member(group).map(|member| member.signatures());
        let was_verified = signatures.is_some_and(|signatures| signatures.was_asked());
        match &opened {
            Err(_) if was_verified => membership.note_unverified(&mut state),
            Ok(_) => membership.note_opened(&mut state, true),
            Err(Discard::NotAuthentic) => membership.note_opened(&mut state, false),
            Err(_) => {}
        }
        opened
    }
}

impl Groups for Memberships {
    type Registration = MemberRegistration;

    fn registration(registration: MemberRegistration) -> Option<MemberRegistration> {
        Some(registration)
    }

    fn principal(&self, group: &Address) -> Option<Principal> {
        // The server chose it after the membership was opened.
        self.with(group, |state| state.groups.principal(group).map(|_| state.principal))?
    }

    fn address(&self, group: &Address) -> Option<[u8; 16]> {
        self.with(group, |state| state.groups.address(group))?
    }

    fn of_response(&self, group_id: u8, port: u16) -> Option<Address> {
        let is_it =
            |membership: &&Membership| membership.group_id() == group_id && membership.address_of_group().port == port;
        self.0.iter().find(is_it).map(|membership| *membership.address_of_group())
    }

    fn epoch(&self, group: &Address) -> u16 {
        self.with(group, |state| state.groups.epoch(group)).unwrap_or(0)
    }

    fn overhead(&self, group: &Address) -> (usize, usize) {
        self.with(group, |state| state.groups.overhead(group)).unwrap_or((0, 0))
    }

    fn seal_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        frame: &mut Frame<'_>,
    ) -> Result<u64, SealRefused> {
        let sealed = self.with(group, |state| {
            state.lease_ahead(group);
            state.groups.seal_request(crypto, group, frame)
        });
        sealed.unwrap_or(Err(SealRefused::NotASender))
    }

    fn seal_response<C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        sender: SenderId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SealRefused> {
        let sealed = self.with(group, |state| {
            state.lease_ahead(group);
            state.groups.seal_response(crypto, group, sender, frame)
        });
        sealed.unwrap_or(Err(SealRefused::Exhausted))
    }

    fn open_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        record: Record<'r>,
    ) -> Result<(SenderId, Opened<'r>), Discard> {
        self.open(group, |state| state.groups.open_request(crypto, group, record))
    }

    fn open_response<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        group: &Address,
        from: &Address,
        record: Record<'r>,
    ) -> Result<Opened<'r>, Discard> {
        self.open(group, |state| state.groups.open_response(crypto, group, from, record))
    }

    fn accept<C: Crypto>(&mut self, group: &Address, record: Unverified, proof: Proof<'_>) -> Result<(), Discard> {
        let accepted = self.with(group, |state| state.groups.accept::<C>(group, record, proof));
        accepted.unwrap_or(Err(Discard::UnknownPeer))
    }

    fn may_challenge(&mut self, now: Instant, group: &Address) -> bool {
        self.with(group, |state| state.groups.may_challenge(now, group)).unwrap_or(false)
    }

    fn challenge(&self, group: &Address) -> Option<[u8; 8]> {
        self.with(group, |state| state.groups.challenge(group))?
    }

    fn forget_idle<C: Crypto>(&mut self, crypto: &mut C, group: &Address) {
        self.with(group, |state| state.groups.forget_idle(crypto, group));
    }
}
