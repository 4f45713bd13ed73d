//! The members of a group, their SenderIDs and their addresses.

use super::config::{GroupConfig, GroupError};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::Bound;
use tegmen_base::hex::to_hex;

/// A member.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The number of its leaf in the key tree: 2^levels to 2^(levels + 1) - 1.
    pub leaf: u32,
    /// Its SenderID, if it sends requests. No other member and no controller has it in the same epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender_id: Option<u8>,
    /// The address that its responses come from, if it listens; they come from the port of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// True if it checks signatures. Other members get each rekey message alone.
    pub checks_signatures: bool,
    /// The number of the epoch that began when it was admitted: 1 for a first member.
    pub since: u16,
    /// Its SubjectPublicKeyInfo in hexadecimal digits, in a group with signatures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
}

/// A member to be admitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewMember {
    /// The name of its device at the access control server, 1 to 128 bytes.
    pub name: String,
    /// The address that its responses come from, if it listens. No other member has it.
    pub address: Option<IpAddr>,
    /// True if it sends requests, and needs a SenderID for that.
    pub sends: bool,
    /// True if it checks the signatures of rekey messages (ECDSA on secp256r1).
    pub checks_signatures: bool,
    /// Its SubjectPublicKeyInfo in DER, whose private key it has proved to have. A group with signatures admits no member without.
    pub public_key: Option<Vec<u8>>,
}

impl NewMember {
    /// Refuses a member without a public key in a group with signatures. Returns the key as a row has it; none in another group.
    pub(super) fn check_key(&self, config: &GroupConfig) -> Result<Option<String>, GroupError> {
        match (&self.public_key, config.signature) {
            (_, None) => Ok(None),
            (Some(key), Some(_)) => Ok(Some(to_hex(key))),
            (None, Some(_)) => Err(GroupError::NoPublicKey(self.name.clone())),
        }
    }
}

/// The members, and who has which SenderID and address.
#[derive(Default)]
pub(super) struct Members {
    known: BTreeMap<String, Member>,
    replicas: BTreeMap<String, u8>,
    sender_ids: BTreeSet<u8>,
    addresses: HashMap<IpAddr, String>,
    leaves: HashMap<u32, String>,
}

impl Members {
    pub(super) fn get(&self, name: &str) -> Option<&Member> {
        self.known.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Member)> {
        self.known.iter().map(|(name, member)| (name.as_str(), member))
    }

    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// The members behind a name, in the order of their names.
    pub(super) fn behind(&self, after: Option<&str>) -> impl Iterator<Item = (&str, &Member)> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.known.range::<str, _>((begin, Bound::Unbounded));
        behind.map(|(name, member)| (name.as_str(), member))
    }

    pub(super) fn replica(&self, name: &str) -> Option<u8> {
        self.replicas.get(name).copied()
    }

    pub(super) fn replicas(&self) -> impl Iterator<Item = (&str, u8)> {
        self.replicas.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// The SenderIDs in use.
    pub(super) fn sender_ids(&self) -> impl Iterator<Item = u8> {
        self.sender_ids.iter().copied()
    }

    /// The address of the member with this leaf.
    pub(super) fn address_at(&self, leaf: u32) -> Option<IpAddr> {
        self.known.get(self.leaves.get(&leaf)?)?.address
    }

    /// The lowest of the first `most` SenderIDs that nobody has, nor was given.
    pub(super) fn free_sender_id(&self, most: u16, given: &[u8]) -> Result<u8, GroupError> {
        let all = 0..=u8::try_from(most.saturating_sub(1)).unwrap_or(u8::MAX);
        all.into_iter()
            .find(|id| !self.sender_ids.contains(id) && !given.contains(id))
            .ok_or(GroupError::NoSenderId(most))
    }

    /// Checks that nobody but the member of this name has an address.
    pub(super) fn check_address(&self, name: &str, address: Option<IpAddr>) -> Result<(), GroupError> {
        let Some(address) = address else { return Ok(()) };
        match self.addresses.get(&address.to_canonical()).filter(|member| *member != name) {
            Some(member) => Err(GroupError::AddressTaken { address, member: member.clone() }),
            None => Ok(()),
        }
    }

    /// Puts or removes a member.
    pub(super) fn set(&mut self, name: &str, member: Option<Member>) {
        if let Some(before) = self.known.remove(name) {
            self.leaves.remove(&before.leaf);
            before.sender_id.map(|id| self.sender_ids.remove(&id));
            before.address.map(|address| self.addresses.remove(&address.to_canonical()));
        }
        if let Some(member) = member {
            self.leaves.insert(member.leaf, name.to_owned());
            self.sender_ids.extend(member.sender_id);
            self.addresses.extend(member.address.map(|address| (address.to_canonical(), name.to_owned())));
            self.known.insert(name.to_owned(), member);
        }
    }

    /// Puts or removes the SenderID of a controller.
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
