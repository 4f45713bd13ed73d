//! Clashes: a member reports that two members use one SenderID (Axiom paper, section 7.5).

use super::{Controller, Group, Step};
use crate::group::config::{GroupError, Protocol};
use crate::group::members::Member;
use crate::group::rekeying::Rekeying;
use tegmen_base::crypto::Crypto;
use tegmen_store::Store;

/// The report of a member: the epoch of the clash, and the SenderID that two members use.
pub(in crate::group) type Clash = (u16, u8);

impl<S: Store, C: Crypto> Controller<S, C> {
    /// Returns the names of the members that have the SenderID of a clash. Returns `None` if there is nothing to do: the
    /// epoch of the clash is over, so no member uses its keys any more, or no device has the SenderID.
    ///
    /// # Errors
    /// [`GroupError::NoMember`] or [`GroupError::Clashed`] for the member that reports the clash,
    /// [`GroupError::OtherProtocol`] for a Group OSCORE group, and the errors of [`Self::show`].
    pub(in crate::group) async fn clashing(
        &self,
        group: &str,
        reporter: &str,
        clash: Clash,
    ) -> Result<Option<Vec<String>>, GroupError> {
        let place = self.place(group).await?;
        let (_turn, mut held) = place.lock().await;
        let users = self.current(&mut held, group).await?.users_of(reporter, clash)?;
        Ok(users.map(|users| users.into_iter().map(|(name, _)| name).collect()))
    }

    /// Returns the epoch that began when the clash of a member was reported, if the member has not joined since then.
    /// Otherwise returns `None`, also for a device that is no member. If the group is loaded, the answer comes from the
    /// memory of this controller. It is right after a request for keys that this controller refused because of the clash.
    ///
    /// # Errors
    /// The errors of [`Self::show`].
    pub(in crate::group) async fn clash_of(&self, group: &str, member: &str) -> Result<Option<u16>, GroupError> {
        let place = self.place(group).await?;
        let mut held = place.group.lock().await;
        let clashed = self.loaded(&mut held, group).await?.members.get(member).filter(|member| member.clashed);
        Ok(clashed.map(|member| member.since))
    }

    /// Ends a clash. The next epoch begins, because the two members have used nonces twice. Each member with the SenderID
    /// gets another SenderID if one is free. It also gets a new leaf secret, so none of the devices that use the
    /// SenderID can decrypt messages of the new epoch. The controller gives no keys to such a member until one of its
    /// devices joins again. After this join the controller gives the same keys to each device with the credentials of
    /// the member. A device with the earlier admission refuses these keys, so only the device that joined uses the new
    /// SenderID.
    ///
    /// # Errors
    /// [`GroupError::Outdated`] if [`Self::clashing`] returns `None`, and the errors of [`Self::clashing`] and of
    /// [`Self::admit`].
    pub(in crate::group) async fn end_clash(
        &self,
        group: &str,
        reporter: &str,
        clash: Clash,
    ) -> Result<Rekeying, GroupError> {
        let plan = |group: &Group, crypto: &mut C| {
            let users = group.users_of(reporter, clash)?.ok_or_else(|| GroupError::Outdated(group.name.clone()))?;
            let mut given = Vec::new();
            let paths: Vec<_> = users.iter().map(|(_, member)| (member.leaf, member.checks_signatures)).collect();
            let change = group.tree.admit_all(crypto, &paths)?;
            let renewed = users.into_iter().zip(&change.paths).map(|((name, member), path)| {
                let sender_id = group.members.free_sender_id(group.config.senders, &given).ok().or(member.sender_id);
                given.extend(sender_id);
                let (since, path) = (change.epoch, path.origin.clone());
                (name, Some(Member { sender_id, since, clashed: true, path, admitted: None, ..member }))
            });
            Ok(Step { members: renewed.collect(), change: Some(change), ..Step::default() })
        };
        self.change(group, plan).await
    }
}

impl Group {
    /// Returns the members with the SenderID of a clash, which `reporter` reports. The list is empty if only a controller
    /// has the SenderID. Returns `None` if there is nothing to do.
    fn users_of(&self, reporter: &str, (epoch, id): Clash) -> Result<Option<Vec<(String, Member)>>, GroupError> {
        self.require(Protocol::Axiom)?;
        self.admitted_member(reporter)?;
        // No device has the keys of a member whose clash was reported, until the member joins again.
        let users = self.members.iter().filter(|(_, member)| member.sender_id == Some(id) && !member.clashed);
        let users: Vec<_> = users.map(|(name, member)| (name.to_owned(), member.clone())).collect();
        let is_used = !users.is_empty() || self.members.replicas().any(|(_, used)| used == id);
        Ok(Some(users).filter(|_| is_used && epoch == self.tree.epoch()))
    }

    /// Returns a member that may have the keys of the group.
    pub(super) fn admitted_member(&self, name: &str) -> Result<&Member, GroupError> {
        let member = self.member(name)?;
        match member.clashed {
            true => Err(GroupError::Clashed { group: self.name.clone(), member: name.to_owned() }),
            false => Ok(member),
        }
    }
}
