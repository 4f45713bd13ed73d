//! The configuration of a group, and the reasons why a controller refuses a change.

use super::tree::{MAX_LEVELS, Refused};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use tegmen::axiom::Suite;
use tegmen::oscore::Aead;
use tegmen_base::crypto::SignatureScheme;
use tegmen_store::StoreError;

/// The protocol that protects the messages of a group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Axiom: the controller sends rekey messages to the members.
    #[default]
    Axiom,
    /// Group OSCORE (RFC 10021): the controller is the Group Manager, and the members ask it for new keys.
    Oscore,
}

impl Protocol {
    fn is_axiom(&self) -> bool {
        *self == Self::Axiom
    }
}

/// The protocols of a group, each with its name.
pub const PROTOCOLS: [(Protocol, &str); 2] = [(Protocol::Axiom, "axiom"), (Protocol::Oscore, "oscore")];

/// The configuration of a group, which never changes after the group is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// The protocol of the group.
    #[serde(default, skip_serializing_if = "Protocol::is_axiom")]
    pub protocol: Protocol,
    /// The GroupID, 1 to 255, which is one byte in the header of a response. With the value 0, the header of a response
    /// looks like the header of a record in a DTLS session. A controller creates no two groups with the same GroupID
    /// and the same port. If the GroupID of a new group is `None`, the controller chooses the lowest free GroupID. A
    /// Group OSCORE group has no GroupID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_id: Option<u8>,
    /// The multicast address and the port to which requests and rekey messages go.
    pub address: SocketAddr,
    /// The cipher suite that protects requests and responses. It does not protect rekey messages. In a Group OSCORE
    /// group it selects the algorithm of both modes: see [`Self::aead`].
    #[serde(with = "suite_name")]
    pub suite: Suite,
    /// The number of levels of the key tree below the root, 1 to 23. The group has space for 2^`levels` members.
    pub levels: u8,
    /// The number of the last epoch, at least 2. The first epoch has the number 1, and each change begins the next
    /// epoch.
    pub last_epoch: u16,
    /// Maximum number of SenderIDs in use at the same time, 1 to 256. The maximum number of records that one key may
    /// seal is divided among the SenderIDs. A Group OSCORE group does not use `senders`.
    pub senders: u16,
    /// The scheme of the signatures of records; `None` for a group without signatures. A Group OSCORE group has
    /// signatures.
    #[serde(default, with = "signature_name", skip_serializing_if = "Option::is_none")]
    pub signature: Option<SignatureScheme>,
}

impl GroupConfig {
    /// Returns a configuration with this address, the suite that encrypts with a tag of 16 bytes, space for 1024
    /// members, 16 SenderIDs, and the maximum number of epochs. The group has no signatures, and the controller chooses
    /// its GroupID.
    pub const fn at(address: SocketAddr) -> Self {
        Self {
            protocol: Protocol::Axiom,
            group_id: None,
            address,
            suite: Suite::Ccm,
            levels: 10,
            last_epoch: u16::MAX,
            senders: 16,
            signature: None,
        }
    }

    /// Returns the algorithm that encrypts the messages of a Group OSCORE group, in both modes: AES-CCM-16-64-128 for
    /// the suite `Ccm8`, AES-CCM-16-128-128 for `Ccm`, A128GCM for `Gcm`. Returns `None` for the suite that does not
    /// encrypt.
    pub const fn aead(&self) -> Option<Aead> {
        match self.suite {
            Suite::Ccm8 => Some(Aead::AesCcm16_64_128),
            Suite::Ccm => Some(Aead::AesCcm16_128_128),
            Suite::Gcm => Some(Aead::A128Gcm),
            Suite::MacOnly => None,
        }
    }

    pub(super) fn check(&self) -> Result<(), GroupError> {
        let wrong = |why| Err(GroupError::Config(why));
        if !self.address.ip().is_multicast() || self.address.port() == 0 {
            return wrong("the address of a group is a multicast address with a port");
        }
        if !(1..=MAX_LEVELS).contains(&self.levels) {
            return wrong("a key tree has 1 to 23 levels");
        }
        if self.last_epoch < 2 {
            return wrong("a group has at least 2 epochs");
        }
        if !(1..=256).contains(&self.senders) {
            return wrong("a group has 1 to 256 SenderIDs");
        }
        if self.protocol == Protocol::Axiom && self.group_id == Some(0) {
            return wrong(
                "with the GroupID 0 a sender treats the responses of a listener as records of its session with this \
                 listener, and loses them; an Axiom group has a GroupID from 1 to 255",
            );
        }
        if self.protocol == Protocol::Oscore && (self.signature.is_none() || self.aead().is_none()) {
            return wrong("a Group OSCORE group has signatures p256 or ed25519, and the suite ccm-8, ccm or gcm");
        }
        Ok(())
    }

    /// Checks that a member with this address can receive requests to the address of the group, and can respond to the
    /// senders. Accepts `None`, because a member without an address does not listen.
    pub(super) fn check_address(&self, member: &str, address: Option<IpAddr>) -> Result<(), GroupError> {
        match address.map(|address| address.to_canonical()) {
            Some(address) if address.is_ipv4() != self.address.is_ipv4() => {
                Err(GroupError::OtherFamily { member: member.to_owned(), address, group: self.address })
            }
            _ => Ok(()),
        }
    }
}

/// The suites of a group, each with its name.
pub const SUITES: [(Suite, &str); 4] =
    [(Suite::Ccm, "ccm"), (Suite::Ccm8, "ccm-8"), (Suite::Gcm, "gcm"), (Suite::MacOnly, "mac-only")];

/// The signature schemes of a group, each with its name.
pub const SIGNATURES: [(Option<SignatureScheme>, &str); 3] = [
    (None, "none"),
    (Some(SignatureScheme::ECDSA_SECP256R1_SHA256), "p256"),
    (Some(SignatureScheme::ED25519), "ed25519"),
];

/// Converts a signature scheme to its name and back, for `serde`.
mod signature_name {
    use super::SIGNATURES;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use tegmen_base::crypto::SignatureScheme;

    #[expect(clippy::ref_option, reason = "serde gives a reference")]
    pub(super) fn serialize<S: Serializer>(scheme: &Option<SignatureScheme>, serializer: S) -> Result<S::Ok, S::Error> {
        let name = SIGNATURES.iter().find(|(known, _)| known == scheme).map_or("none", |(_, name)| name);
        serializer.serialize_str(name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SignatureScheme>, D::Error> {
        let found = String::deserialize(deserializer)?;
        let scheme = SIGNATURES.iter().find(|(_, name)| *name == found).map(|(scheme, _)| *scheme);
        scheme.ok_or_else(|| D::Error::custom("a signature is none, p256 or ed25519"))
    }
}

/// Converts a suite to its name and back, for `serde`.
mod suite_name {
    use super::SUITES;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use tegmen::axiom::Suite;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
    pub(super) fn serialize<S: Serializer>(suite: &Suite, serializer: S) -> Result<S::Ok, S::Error> {
        let name = SUITES.iter().find(|(known, _)| known == suite).map_or("ccm", |(_, name)| name);
        serializer.serialize_str(name)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Suite, D::Error> {
        let found = String::deserialize(deserializer)?;
        let suite = SUITES.iter().find(|(_, name)| *name == found).map(|(suite, _)| *suite);
        suite.ok_or_else(|| D::Error::custom("a suite is ccm, ccm-8, gcm or mac-only"))
    }
}

/// The reason why a change of a group was not made. The text of each error also names what the operator has to do next.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GroupError {
    /// There is no group of this name.
    #[error("there is no group {0}: create it, or correct the name")]
    NoGroup(String),
    /// A group of this name exists already.
    #[error("there is a group {0}: choose another name")]
    NameTaken(String),
    /// The name is not valid for a group or a member. The value is the reason.
    #[error("{0}")]
    Name(String),
    /// The configuration of a group cannot be used. The value is the reason.
    #[error("{0}: correct the configuration of the group")]
    Config(&'static str),
    /// Another group at the same port has the GroupID.
    #[error(
        "{} the GroupID {id} at the port {port}: leave the GroupID out, and the controller chooses a free one",
        holder(group)
    )]
    GroupIdTaken {
        /// The GroupID.
        id: u8,
        /// The port of the group.
        port: u16,
        /// The name of the group that has the GroupID; empty if several groups have it.
        group: String,
    },
    /// All 255 GroupIDs of this port are in use.
    #[error("the groups at the port {0} use all 255 GroupIDs: give the group another port, or delete a group")]
    NoGroupId(u16),
    /// The group has no member of this name.
    #[error("the group {group} has no member {member}: list its members")]
    NoMember {
        /// The name of the group.
        group: String,
        /// The name of the member.
        member: String,
    },
    /// The group has a member of this name.
    #[error("the group {group} has a member {member}: evict it before you give it other keys")]
    MemberTaken {
        /// The name of the group.
        group: String,
        /// The name of the member.
        member: String,
    },
    /// The member was admitted again after the admission that the caller names. The group now has the keys of the later
    /// admission.
    #[error(
        "{member} was admitted to the group {group} again meanwhile: join again, and use its credentials in one place only"
    )]
    AdmittedAgain {
        /// The name of the group.
        group: String,
        /// The name of the member.
        member: String,
    },
    /// Two devices used the SenderID of the member. None of them gets keys until it joins again.
    #[error(
        "two devices used the SenderID of {member} in the group {group}: {member} has to join again; use its credentials and its \
         directory in one place only"
    )]
    Clashed {
        /// The name of the group.
        group: String,
        /// The name of the member.
        member: String,
    },
    /// The group has changed since the revision that the caller names.
    #[error("the group {0} was changed: read it again")]
    Outdated(String),
    /// Another member already has the address.
    #[error(
        "{member} has the address {address} in this group: a listener has an address of its own, so evict one of the two"
    )]
    AddressTaken {
        /// The address that two members of the group would have.
        address: IpAddr,
        /// The name of the member that has the address.
        member: String,
    },
    /// The address of a member that listens has another IP version than the address of the group.
    #[error(
        "{member} has the address {address}, and the group is at {group}: give it an address of the same family, IPv4 or IPv6"
    )]
    OtherFamily {
        /// The name of the member.
        member: String,
        /// The address of the member.
        address: IpAddr,
        /// The multicast address and the port of the group.
        group: SocketAddr,
    },
    /// The records of the group have signatures, and the member has given no public key.
    #[error(
        "the records of the group have signatures, and {0} has shown no public key: let the device send its own join request with its \
         public key"
    )]
    NoPublicKey(String),
    /// The group has the protocol Axiom and the request is for a Group OSCORE group, or the reverse.
    #[error(
        "the group {0} and the request have different protocols, Axiom and Group OSCORE: let the device join with the protocol of the group"
    )]
    OtherProtocol(String),
    /// The credential of the device has the name of another device, or another device has the credential.
    #[error(
        "the credential of {0} names another device, belongs to another member, or has a key that must not sign in the group: make a new \
         key pair on the device"
    )]
    OtherCredential(String),
    /// All SenderIDs are in use. The value is the number of SenderIDs of the group.
    #[error("all {0} SenderIDs of the group are in use: evict a member that sends, or create a group with more")]
    NoSenderId(u16),
    /// The key tree refuses the change.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The change is made and durable, but its messages are not signed.
    #[error(
        "the change is made, but its messages are not signed: check the key of the controller, then send them again"
    )]
    NotSigned,
    /// The store was restored from a backup.
    #[error(
        "the store of the group {0} was restored from a backup, and later epochs may have been used: create a new group"
    )]
    Restored(String),
    /// Other controllers changed the group during each attempt.
    #[error("another controller changed the group {0} each time: try again")]
    Changed(String),
    /// A row cannot be read.
    #[error("the row {key} cannot be read: {why}: restore it from a backup, or use the version that wrote it")]
    Fault {
        /// The key of the row as text.
        key: String,
        /// The fault in the value of the row.
        why: String,
    },
    /// The store refused the change, or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Returns the subject and the verb of the message of [`GroupError::GroupIdTaken`].
fn holder(group: &str) -> String {
    if group.is_empty() { "several groups have".to_owned() } else { format!("the group {group} has") }
}
