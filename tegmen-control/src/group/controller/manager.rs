//! The controller as the Group Manager of Group OSCORE groups.

use super::{Controller, Group, Step};
use crate::group::config::{GroupConfig, GroupError, Protocol};
use crate::group::members::Member;
use crate::group::oscore::{self, OscoreMember};
use crate::group::rekeying::Rekeying;
use std::collections::BTreeMap;
use std::sync::Arc;
use tegmen_base::crypto::Crypto;
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_host::group::groupcomm::oscore::{
    KdcCred, OscoreCred, OscoreCreds, OscoreFilter, OscoreKeys, OscoreRekeying, Roles, VerificationData, sender_id_of,
};
use tegmen_host::provider::HostCrypto;
use tegmen_store::Store;

impl<S: Store, C: Crypto> Controller<S, C> {
    /// Returns the configuration of a group. If the group is loaded, the configuration comes from the memory of this
    /// controller. It is wrong if another controller has meanwhile replaced the group by another group of the same
    /// name. An admission uses the stored configuration.
    ///
    /// # Errors
    /// The errors of [`Self::show`].
    pub async fn config(&self, group: &str) -> Result<GroupConfig, GroupError> {
        let place = self.place(group).await?;
        let mut held = place.group.lock().await;
        Ok(self.loaded(&mut held, group).await?.config)
    }

    /// Calls `read` with a Group OSCORE group and one of its members. `since` is the epoch that admitted the member, or
    /// [`u16::MAX`] for a request that is not about an admission.
    async fn with_member<T>(
        &self,
        group: &str,
        (name, since): (&str, u16),
        read: impl FnOnce(&Group, &Member) -> Result<T, GroupError>,
    ) -> Result<T, GroupError> {
        let place = self.place(group).await?;
        let mut held = place.lock_admission((name, since)).await;
        let (group, member) = self.with_admission(&mut held, (group, Protocol::Oscore), (name, since)).await?;
        read(group, member)
    }

    /// Returns the keys of the current epoch for a member of a Group OSCORE group, with the member's Sender ID, and the
    /// number of the member's leaf in the key tree. The path of the member's resource contains this number.
    ///
    /// # Errors
    /// [`GroupError::NoMember`], [`GroupError::OtherProtocol`], and the errors of [`Self::show`].
    pub async fn oscore_keys(&self, group: &str, member: &str) -> Result<(OscoreKeys, u32), GroupError> {
        let since = (member, u16::MAX);
        self.with_member(group, since, |group, member| Ok((group.oscore_keys::<C>(member)?, member.leaf))).await
    }

    /// Returns the `control_uri` of each member of a group that has one, by the name of the member. The result is empty
    /// for a group that does not use Group OSCORE, and for a deleted group. Loads no group of Axiom.
    ///
    /// # Errors
    /// The errors of [`Self::show`].
    pub(crate) async fn control_uris(&self, group: &str) -> Result<BTreeMap<Arc<str>, Arc<str>>, GroupError> {
        let uris = async {
            if self.head(group).await?.config.protocol != Protocol::Oscore {
                return Ok(BTreeMap::new());
            }
            let uri = |(name, member): (&str, &Member)| {
                Some((Arc::from(name), Arc::from(member.oscore.as_ref()?.control_uri.as_deref()?)))
            };
            self.with_group(group, |group| Ok(group.members.iter().filter_map(uri).collect())).await
        };
        match uris.await {
            Err(GroupError::NoGroup(_)) => Ok(BTreeMap::new()),
            uris => uris,
        }
    }

    /// Returns the rekeying message of the last change of a Group OSCORE group, for one member
    /// (draft-ietf-ace-key-groupcomm-oscore, section 11.1). The message has the keys of the current epoch, the Sender IDs
    /// that became stale in the previous epoch, and the credentials of the other members that the change admitted.
    ///
    /// # Errors
    /// The errors of [`Self::oscore_keys`].
    pub(crate) async fn oscore_rekeying(&self, group: &str, name: &str) -> Result<OscoreRekeying, GroupError> {
        self.with_member(group, (name, u16::MAX), |group, member| {
            let epoch = group.tree.epoch();
            let OscoreKeys { gid, master_secret, master_salt, number, expires, .. } = group.oscore_keys::<C>(member)?;
            let joined = group.members.iter().filter(|(other, member)| *other != name && member.since == epoch);
            Ok(OscoreRekeying {
                gid,
                master_secret,
                master_salt,
                number,
                expires,
                stale: Some(group.ids.stale_in(epoch.saturating_sub(1))),
                joined: joined.filter_map(|(_, member)| member.oscore.as_ref()?.cred()).collect(),
            })
        })
        .await
    }

    /// Returns the keys of a member as [`Self::oscore_keys`] does, for the response to the request with which the member
    /// joined: with the credential of the Group Manager, and with the credentials of the other members that `filter`
    /// selects. `since` is the epoch that began when this request admitted the member.
    ///
    /// # Errors
    /// The errors of [`Self::oscore_keys`], and [`GroupError::AdmittedAgain`] if a later admission gave the same member
    /// another Sender ID.
    pub(crate) async fn oscore_admitted(
        &self,
        group: &str,
        (name, since): (&str, u16),
        filter: Option<&OscoreFilter>,
    ) -> Result<(OscoreKeys, u32), GroupError> {
        self.with_member(group, (name, since), |group, member| {
            let mut keys = group.oscore_keys::<C>(member)?;
            keys.creds = filter.map(|filter| group.oscore_creds(Some(name), filter));
            keys.kdc = Some(self.prove(group, &cnonce_of(member))?);
            Ok((keys, member.leaf))
        })
        .await
    }

    /// Returns the credentials that a member of a Group OSCORE group needs: those of the other members that `filter`
    /// selects.
    ///
    /// # Errors
    /// The errors of [`Self::oscore_keys`].
    pub async fn oscore_creds(
        &self,
        group: &str,
        name: &str,
        filter: &OscoreFilter,
    ) -> Result<OscoreCreds, GroupError> {
        self.with_member(group, (name, u16::MAX), |group, _| {
            Ok(OscoreCreds { number: group.tree.epoch(), creds: group.oscore_creds(Some(name), filter) })
        })
        .await
    }

    /// Calls `read` with a Group OSCORE group, for a peer that is no member.
    async fn with_group<T>(
        &self,
        group: &str,
        read: impl FnOnce(&Group) -> Result<T, GroupError>,
    ) -> Result<T, GroupError> {
        let place = self.place(group).await?;
        let (_turn, mut held) = place.lock().await;
        let group = self.current(&mut held, group).await?;
        group.require(Protocol::Oscore)?;
        read(group)
    }

    /// Returns the data of a Group OSCORE group with which a signature verifier verifies messages
    /// (draft-ietf-ace-key-groupcomm-oscore, section 9.6); `None` if the verifier `who` is a member of the group.
    ///
    /// # Errors
    /// [`GroupError::OtherProtocol`], and the errors of [`Self::show`].
    pub async fn verification_data(&self, group: &str, who: &str) -> Result<Option<VerificationData>, GroupError> {
        self.with_group(group, |group| match group.members.get(who) {
            Some(_) => Ok(None),
            None => group.verification_data::<C>().map(Some),
        })
        .await
    }

    /// Returns the credentials of the members that `filter` selects, for a signature verifier.
    ///
    /// # Errors
    /// The errors of [`Self::verification_data`].
    pub(crate) async fn creds_for_verifier(
        &self,
        group: &str,
        filter: &OscoreFilter,
    ) -> Result<OscoreCreds, GroupError> {
        self.with_group(group, |group| {
            Ok(OscoreCreds { number: group.tree.epoch(), creds: group.oscore_creds(None, filter) })
        })
        .await
    }

    /// Returns the credential of the Group Manager as [`Self::manager_cred`] does, for a signature verifier. The proof
    /// covers the nonce `cnonce` of the verifier. Returns `None` if the verifier `who` is a member of the group.
    ///
    /// # Errors
    /// The errors of [`Self::verification_data`].
    pub(crate) async fn manager_cred_for_verifier(
        &self,
        group: &str,
        who: &str,
        cnonce: &[u8],
    ) -> Result<Option<KdcCred>, GroupError> {
        self.with_group(group, |group| match group.members.get(who) {
            Some(_) => Ok(None),
            None => self.prove(group, cnonce).map(Some),
        })
        .await
    }

    /// Returns the credential of the Group Manager in a group, with a proof that the Group Manager has the private key.
    /// The proof covers the nonce with which the member joined.
    ///
    /// # Errors
    /// The errors of [`Self::oscore_keys`].
    pub async fn manager_cred(&self, group: &str, member: &str) -> Result<KdcCred, GroupError> {
        let prove = |group: &Group, member: &Member| self.prove(group, &cnonce_of(member));
        self.with_member(group, (member, u16::MAX), prove).await
    }

    /// Makes the credential of the Group Manager, with a proof over the nonce `cnonce`.
    fn prove(&self, group: &Group, cnonce: &[u8]) -> Result<KdcCred, GroupError> {
        let mut nonce = [0; 8];
        self.crypto().random(&mut nonce);
        let tree = &group.tree;
        let of = oscore::manager::<C>(&group.config, tree.group(), tree.seed());
        let unusable = || GroupError::Config("the keys of the Group Manager cannot be made");
        let (credential, curve, private) = of.ok_or_else(unusable)?;
        let mut crypto = HostCrypto::from_os().map_err(|_| GroupError::Config("the system has no randomness"))?;
        KdcCred::prove(&mut crypto, (cnonce, nonce), (credential, curve, &private)).map_err(|_| unusable())
    }

    /// Returns the number of the current epoch, and the Sender IDs that became stale in the epoch `since` or later. The
    /// second value is `None` if the group does not store all of these Sender IDs any more: a member then forgets all
    /// other members, and asks for their credentials.
    ///
    /// # Errors
    /// The errors of [`Self::oscore_keys`].
    pub async fn stale_ids(
        &self,
        group: &str,
        member: &str,
        since: u16,
    ) -> Result<(u16, Option<Vec<Vec<u8>>>), GroupError> {
        let stale = |group: &Group, _: &Member| Ok((group.tree.epoch(), group.ids.stale_since(since)));
        self.with_member(group, (member, u16::MAX), stale).await
    }

    /// Returns the Group OSCORE groups whose current epoch has one of these Group Identifiers, each with its Group
    /// Identifier and its name. Loads no group. Leaves out groups whose rows cannot be read.
    pub(crate) async fn groups_with(&self, gids: &[Vec<u8>]) -> Result<Vec<(Vec<u8>, String)>, GroupError> {
        let mut found = Vec::new();
        for name in self.names().await? {
            let identity = match self.identity(&name).await {
                // It was deleted meanwhile, or its row cannot be read.
                Err(GroupError::NoGroup(_) | GroupError::Fault { .. }) => continue,
                identity => identity?,
            };
            // The Group Identifiers of all epochs begin with the same bytes.
            if !gids.iter().any(|gid| oscore::is_gid_of(gid, &identity)) {
                continue;
            }
            let Ok(head) = self.head(&name).await else { continue };
            let gid = oscore::gid(&identity, head.begun.epoch);
            if head.config.protocol == Protocol::Oscore && gids.contains(&gid) {
                found.push((gid, name));
            }
        }
        Ok(found)
    }

    /// Returns the stored credential of a member of a Group OSCORE group; `None` if the device is no member, or a monitor.
    ///
    /// # Errors
    /// The errors of [`Self::oscore_keys`], except [`GroupError::NoMember`].
    pub(crate) async fn oscore_credential(&self, group: &str, name: &str) -> Result<Option<Vec<u8>>, GroupError> {
        let credential = |member: &Member| from_hex(member.oscore.as_ref()?.credential.as_deref()?);
        match self.with_member(group, (name, u16::MAX), |_, member| Ok(credential(member))).await {
            Err(GroupError::NoMember { .. }) => Ok(None),
            credential => credential,
        }
    }

    /// Returns the roles of a member of a Group OSCORE group, and the number of its leaf in the key tree.
    ///
    /// # Errors
    /// The errors of [`Self::oscore_keys`].
    pub(crate) async fn oscore_roles(&self, group: &str, member: &str) -> Result<(Roles, u32), GroupError> {
        self.with_member(group, (member, u16::MAX), |group, member| {
            let roles = member.oscore.as_ref().and_then(|record| Roles::of_number(record.roles.into()));
            let roles = roles.ok_or_else(|| GroupError::OtherProtocol(group.name.clone()))?;
            Ok((roles, member.leaf))
        })
        .await
    }

    /// Replaces the credential of a member of a Group OSCORE group. The next epoch begins, so the rekeying message gives
    /// the new credential to the other members. The member keeps its Sender ID. The caller has verified that the member
    /// has the private key of the credential.
    ///
    /// # Errors
    /// [`GroupError::OtherCredential`] if the credential does not fit the group, or if another member has it.
    /// [`GroupError::NoSenderId`] for a monitor, which has no credential. [`GroupError::NoMember`] for an unknown member,
    /// [`GroupError::OtherProtocol`] for a group that does not use Group OSCORE, and the errors of [`Self::admit`].
    pub async fn replace_credential(&self, group: &str, name: &str, credential: &[u8]) -> Result<Rekeying, GroupError> {
        self.change(group, |group, crypto| {
            group.require(Protocol::Oscore)?;
            let known = group.member(name)?;
            let record = known.oscore.clone().filter(|record| record.id.is_some()).ok_or(GroupError::NoSenderId(0))?;
            group.check_unused(name, credential, &[])?;
            // Each write of the row of a member gives its path new secrets, so the order of the rows is that of the paths.
            let change = group.tree.renew(crypto, known.leaf, known.checks_signatures)?;
            let path = change.paths.first().and_then(|path| path.origin.clone());
            let oscore = Some(OscoreMember { credential: Some(to_hex(credential)), ..record });
            let renewed = Member { oscore, since: change.epoch, path, admitted: None, ..known.clone() };
            let members = vec![(name.to_owned(), Some(renewed))];
            Ok(Step { change: Some(change), members, ..Step::default() })
        })
        .await
    }

    /// Gives a member of a Group OSCORE group another Sender ID. The next epoch begins. Returns the Sender ID.
    ///
    /// # Errors
    /// [`GroupError::NoSenderId`] for a monitor, which has no Sender ID. [`GroupError::NoMember`] for an unknown member,
    /// [`GroupError::OtherProtocol`] for a group that does not use Group OSCORE, and the errors of [`Self::admit`].
    pub async fn renew_sender_id(&self, group: &str, member: &str) -> Result<(Rekeying, Vec<u8>), GroupError> {
        let rekeying = self.change(group, |group, crypto| {
            group.require(Protocol::Oscore)?;
            let known = group.member(member)?;
            let id = group.ids.given;
            let record = known.oscore.clone().filter(|record| record.id.is_some()).ok_or(GroupError::NoSenderId(0))?;
            // Each write of the row of a member gives its path new secrets, so the order of the rows is that of the paths.
            let change = group.tree.renew(crypto, known.leaf, known.checks_signatures)?;
            let path = change.paths.first().and_then(|path| path.origin.clone());
            let oscore = Some(OscoreMember { id: Some(id), ..record });
            let renewed = Member { oscore, since: change.epoch, path, admitted: None, ..known.clone() };
            let ids = group.ids_after(1, [known]);
            let members = vec![(member.to_owned(), Some(renewed))];
            Ok(Step { change: Some(change), members, ids, ..Step::default() })
        });
        let rekeying = rekeying.await?;
        let id_of = |_: &Group, member: &Member| Ok(member.oscore.as_ref().and_then(OscoreMember::sender_id));
        let id = self.with_member(group, (member, rekeying.epoch), id_of).await?;
        Ok((rekeying, id.unwrap_or_else(|| sender_id_of(0))))
    }
}

impl Group {
    /// Returns the credentials of the members that `filter` selects, without the member `name`. A signature verifier has
    /// no such name.
    fn oscore_creds(&self, name: Option<&str>, filter: &OscoreFilter) -> Vec<OscoreCred> {
        let others = self.members.iter().filter(|(other, _)| Some(*other) != name);
        let creds = others.filter_map(|(_, other)| other.oscore.as_ref()?.cred());
        creds.filter(|cred| filter.selects(cred)).collect()
    }

    /// Returns the keys of the current epoch, without a Sender ID.
    fn common_keys<C: Crypto>(&self) -> Result<OscoreKeys, GroupError> {
        let tree = &self.tree;
        let keys = oscore::keys::<C>(&self.config, tree.group(), tree.seed(), tree.epoch());
        keys.ok_or_else(|| GroupError::OtherProtocol(self.name.clone()))
    }

    fn verification_data<C: Crypto>(&self) -> Result<VerificationData, GroupError> {
        let keys = self.common_keys::<C>()?;
        let key = oscore::signature_encryption_key::<C>(&keys);
        let OscoreKeys { gid, aead, curve, number, expires, .. } = keys;
        let signature_encryption_key = key.ok_or(GroupError::Config("the Group Identifier is too long"))?;
        Ok(VerificationData { gid, signature_encryption_key, aead, curve, number, expires })
    }

    fn oscore_keys<C: Crypto>(&self, member: &Member) -> Result<OscoreKeys, GroupError> {
        let mut keys = self.common_keys::<C>()?;
        keys.sender_id = member.oscore.as_ref().and_then(|record| record.id).map(sender_id_of);
        Ok(keys)
    }
}

/// Returns the nonce of the last request with which a member joined; empty if that request had no nonce.
fn cnonce_of(member: &Member) -> Vec<u8> {
    member.oscore.as_ref().and_then(|record| from_hex(&record.cnonce)).unwrap_or_default()
}
