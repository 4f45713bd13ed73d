//! The members of a group, their SenderIDs and their addresses.

use super::config::{GroupConfig, GroupError, Protocol};
use super::oscore::{NewOscoreMember, OscoreMember};
use super::possession::is_of_scheme;
use super::tree::PathOrigin;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use tegmen_base::hex::to_hex;
use tegmen_host::hash::Keys;
use tegmen_store::Revision;

/// A member of a group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The number of the member's leaf in the key tree: 2^levels to 2^(levels + 1) - 1.
    pub leaf: u32,
    /// The SenderID of the member; `None` if the member sends no requests. In one epoch no other member and no
    /// controller has the same SenderID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_id: Option<u8>,
    /// The source address of the member's responses; `None` if the member does not listen. The source port of the
    /// responses is the port of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// True if the member checks the signatures of rekey messages. A member that does not check them gets separate
    /// rekey messages.
    pub checks_signatures: bool,
    /// The number of the epoch that began when the member was admitted: 1 for a first member.
    pub since: u16,
    /// True if two devices used the SenderID of the member. The member gets no keys until it joins again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clashed: bool,
    /// The SubjectPublicKeyInfo of the member in hexadecimal digits; `None` in a group without signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The Sender ID, the roles and the credential of a member of a Group OSCORE group; `None` in an Axiom group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oscore: Option<OscoreMember>,
    /// The data from which the last admission of the member derived the secrets of the path from the leaf. `None` for a
    /// first member, and for a member that an earlier version of this program admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<PathOrigin>,
    /// The revision of the store at which the member was admitted, if the row of the member is newer: the member joined
    /// together with others, and had one row with them before. `None` if the revision that wrote the row admitted the
    /// member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) admitted: Option<u64>,
}

impl Member {
    /// Returns the revision of the store at which the member was admitted, or got its last new secrets. `changed` is the
    /// revision that wrote the row with the member.
    pub(super) fn admitted_at(&self, changed: Revision) -> Revision {
        self.admitted.map_or(changed, Revision)
    }
}

/// A member that will be admitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewMember {
    /// The name of the member's device at the access control server, 1 to 128 bytes.
    pub name: String,
    /// The source address of the member's responses; `None` if the member does not listen. No other member may have the
    /// same address.
    pub address: Option<IpAddr>,
    /// True if the member sends requests, and so needs a SenderID.
    pub sends: bool,
    /// True if the member checks the signatures of rekey messages (ECDSA on secp256r1).
    pub checks_signatures: bool,
    /// The SubjectPublicKeyInfo of the member in DER. The member has proved that it has the private key. A group with
    /// signatures admits only members with a public key. In a Group OSCORE group this is the credential of the member.
    pub public_key: Option<Vec<u8>>,
    /// The additional data of a member of a Group OSCORE group; `None` for a member of an Axiom group.
    pub oscore: Option<NewOscoreMember>,
}

impl NewMember {
    /// Checks that a member of a group with signatures has a public key of the group's scheme. Returns the key as text
    /// for its row, or `None` for a group without signatures.
    pub(super) fn check_key(&self, config: &GroupConfig) -> Result<Option<String>, GroupError> {
        let is_monitor = self.oscore.as_ref().is_some_and(|oscore| oscore.roles.monitor);
        match (&self.public_key, config.signature) {
            _ if config.protocol == Protocol::Oscore => match self.public_key.is_some() || is_monitor {
                true => Ok(None),
                false => Err(GroupError::NoPublicKey(self.name.clone())),
            },
            (_, None) => Ok(None),
            // The scheme may differ from the scheme for which the device gave its proof, if another controller has
            // replaced the group since then.
            (Some(key), Some(scheme)) if !is_of_scheme(key, scheme) => {
                Err(GroupError::OtherCredential(self.name.clone()))
            }
            (Some(key), Some(_)) => Ok(Some(to_hex(key))),
            (None, Some(_)) => Err(GroupError::NoPublicKey(self.name.clone())),
        }
    }
}

/// The members and the controllers of a group, and the SenderIDs and addresses that they use.
#[derive(Default)]
pub(super) struct Members {
    known: BTreeMap<Arc<str>, Member>,
    replicas: BTreeMap<String, u8>,
    sender_ids: BTreeSet<u8>,
    addresses: HashMap<IpAddr, Arc<str>, Keys>,
    leaves: HashMap<u32, Arc<str>, Keys>,
}

impl Members {
    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        self.known.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.known.iter().map(|(name, member)| (&**name, member))
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns the members whose names follow the name `after`, in the order of their names. With `None` returns all
    /// members.
    pub(super) fn behind(&self, after: Option<&str>) -> impl Iterator<Item = (&str, &Member)> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.known.range::<str, _>((begin, Bound::Unbounded));
        behind.map(|(name, member)| (&**name, member))
    }

    pub(super) fn replica(&self, name: &str) -> Option<u8> {
        self.replicas.get(name).copied()
    }

    pub(super) fn replicas(&self) -> impl Iterator<Item = (&str, u8)> {
        self.replicas.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Returns the SenderIDs in use.
    pub(super) fn sender_ids(&self) -> impl Iterator<Item = u8> {
        self.sender_ids.iter().copied()
    }

    /// Returns the address of the member at this leaf; `None` if there is no member, or if it does not listen.
    pub(super) fn address_at(&self, leaf: u32) -> Option<IpAddr> {
        self.known.get(self.leaves.get(&leaf)?)?.address
    }

    /// Returns the lowest free SenderID, from 0 to `most` - 1. A SenderID is free if it is neither in use nor in
    /// `given`.
    pub(super) fn free_sender_id(&self, most: u16, given: &[u8]) -> Result<u8, GroupError> {
        let all = 0..=u8::try_from(most.saturating_sub(1)).unwrap_or(u8::MAX);
        all.into_iter()
            .find(|id| !self.sender_ids.contains(id) && !given.contains(id))
            .ok_or(GroupError::NoSenderId(most))
    }

    /// Checks that no other member than `name` has the address.
    pub(super) fn check_address(&self, name: &str, address: Option<IpAddr>) -> Result<(), GroupError> {
        let Some(address) = address else { return Ok(()) };
        match self.addresses.get(&address.to_canonical()).filter(|member| &***member != name) {
            Some(member) => Err(GroupError::AddressTaken { address, member: member.to_string() }),
            None => Ok(()),
        }
    }

    /// Adds, replaces or removes a member.
    pub(super) fn set(&mut self, name: &str, member: Option<Member>) {
        let name = Arc::<str>::from(name);
        let new = member.as_ref().map(|member| (member.leaf, member.sender_id, member.address));
        let before = match member {
            Some(member) => self.known.insert(Arc::clone(&name), member),
            None => self.known.remove(&name),
        };
        if let Some(before) = before {
            self.leaves.remove(&before.leaf);
            before.sender_id.map(|id| self.sender_ids.remove(&id));
            before.address.map(|address| self.addresses.remove(&address.to_canonical()));
        }
        if let Some((leaf, sender_id, address)) = new {
            self.leaves.insert(leaf, Arc::clone(&name));
            self.sender_ids.extend(sender_id);
            self.addresses.extend(address.map(|address| (address.to_canonical(), name)));
        }
    }

    /// Sets or removes the SenderID of a controller.
    pub(super) fn set_replica(&mut self, name: &str, id: Option<u8>) {
        if let Some(before) = self.replicas.remove(name) {
            self.sender_ids.remove(&before);
        }
        if let Some(id) = id {
            self.sender_ids.insert(id);
            self.replicas.insert(name.to_owned(), id);
        }
    }
}
