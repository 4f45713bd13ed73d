//! Group OSCORE groups, whose Group Manager is the controller (draft-ietf-ace-key-groupcomm-oscore).
//!
//! Each change of a group begins an epoch, and each epoch has its own Group Identifier and its own Master Secret. Both
//! are derived from the rows that an Axiom group has too: the identity of the group, the number of the epoch, and the
//! seed, which only the controller knows. So the controller detects a restored backup in the same way as for an Axiom
//! group, and two controllers of one store never use the same Group Identifier for different Master Secrets.
//!
//! The Sender IDs of a group are consecutive numbers. The main row of the group contains the next number. So the
//! controller gives no Sender ID twice while the group exists.

use super::GroupIdentity;
use super::config::{GroupConfig, GroupError};
use serde::{Deserialize, Serialize};
use tegmen::oscore::group::{Algorithms, GroupParameters, key_of_ccs};
use tegmen_base::crypto::{Crypto, Curve, DIGEST_LEN, KEY_LEN, hmac};
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_base::secret::Secret;
use tegmen_host::contexts::member_keys;
use tegmen_host::group::groupcomm::oscore::{OscoreCred, OscoreKeys, Roles, curve_of, sender_id_of, subject_of};
use zeroize::Zeroizing;

/// Number of bytes of a Master Secret, and of a Master Salt.
const SECRET: usize = 16;
const SALT: usize = 8;
/// Number of bytes of the identity of a group in a Group Identifier.
const GID_IDENTITY: usize = 6;
/// The `exp` of all keys, in seconds since 1970: the keys of an epoch have no time limit of their own.
const NEVER: u64 = u32::MAX as u64;
/// Maximum number of bytes of a credential.
const LONGEST_CREDENTIAL: usize = 400;
/// Maximum number of versions of the keying material whose stale Sender IDs are stored.
pub(super) const STALE_SETS: usize = 8;

/// The additional data of a member that will be admitted to a Group OSCORE group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewOscoreMember {
    /// The roles of the member.
    pub roles: Roles,
    /// The nonce of the member (`cnonce` of its request to join). The controller signs this nonce to prove that it has
    /// its own private key. The value is empty if the request has no nonce.
    pub cnonce: Vec<u8>,
    /// The URI at which the member takes rekeying messages; `None` if the member takes none.
    pub control_uri: Option<String>,
}

/// The additional data of a member of a Group OSCORE group.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OscoreMember {
    /// The Sender ID as an integer; `None` for a monitor. No other member has or had this Sender ID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// The number of the roles: the sum of 2 for a requester, 4 for a responder and 8 for a monitor.
    pub roles: u8,
    /// The credential in hexadecimal digits, a CWT Claims Set; `None` for a monitor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The nonce of the member's last request to join, in hexadecimal digits. Empty if that request had no nonce, or if
    /// an earlier version of this program, which did not store the nonce, admitted the member.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cnonce: String,
    /// The URI at which the member takes rekeying messages, at the address of the session with which it joined; `None` if
    /// the member takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_uri: Option<String>,
}

impl OscoreMember {
    /// Returns the Sender ID; `None` for a monitor.
    pub fn sender_id(&self) -> Option<Vec<u8>> {
        self.id.map(sender_id_of)
    }

    /// Returns the names of the roles.
    pub fn role_names(&self) -> impl Iterator<Item = &'static str> {
        let names = [(2, "requester"), (4, "responder"), (8, "monitor")];
        let roles = self.roles;
        names.into_iter().filter(move |(role, _)| roles & role != 0).map(|(_, name)| name)
    }

    /// Makes the record of a new member of a Group OSCORE group. `id` is its Sender ID as an integer.
    pub(super) fn of(credential: Option<&[u8]>, new: &NewOscoreMember, id: u32) -> Self {
        let NewOscoreMember { roles, cnonce, control_uri } = new;
        let credential = credential.filter(|_| !roles.monitor).map(to_hex);
        let id = (!roles.monitor).then_some(id);
        Self { id, roles: roles.number() as u8, credential, cnonce: to_hex(cnonce), control_uri: control_uri.clone() }
    }

    /// Returns the Sender ID, the roles and the credential of the member, for a response of the Group Manager. Returns
    /// `None` for a monitor, which has no Sender ID.
    pub(super) fn cred(&self) -> Option<OscoreCred> {
        let credential = from_hex(self.credential.as_deref()?)?;
        Some(OscoreCred { id: sender_id_of(self.id?), roles: Roles::of_number(self.roles.into())?, credential })
    }
}

/// The Sender IDs of a Group OSCORE group.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SenderIds {
    /// The number of Sender IDs that the controller has given to members. It is also the number of the next Sender ID.
    pub(super) given: u32,
    /// The Sender IDs that became stale, each set with the epoch in which they were valid last, the oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) stale: Vec<(u16, Vec<u32>)>,
    /// The newest epoch whose stale Sender IDs are not stored any more.
    #[serde(default)]
    pub(super) forgotten: u16,
}

impl SenderIds {
    pub(super) fn is_unused(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the state of the Sender IDs after a change of the group. The change gives `given` further Sender IDs to
    /// members. The Sender IDs in `stale` are valid for the last time in the epoch `epoch`.
    pub(super) fn after(&self, given: u32, epoch: u16, stale: Vec<u32>) -> Self {
        let mut next = Self { given: self.given.saturating_add(given), ..self.clone() };
        if !stale.is_empty() {
            next.stale.push((epoch, stale));
        }
        while next.stale.len() > STALE_SETS {
            next.forgotten = next.stale.remove(0).0;
        }
        next
    }

    /// Returns the Sender IDs that were valid last in the epoch `epoch`.
    pub(super) fn stale_in(&self, epoch: u16) -> Vec<Vec<u8>> {
        let ids = self.stale.iter().filter(|(last, _)| *last == epoch).flat_map(|(_, ids)| ids);
        ids.copied().map(sender_id_of).collect()
    }

    /// Returns the stale Sender IDs that were valid last in the epoch `since` or in a later epoch; `None` if they are
    /// not all stored any more.
    pub(super) fn stale_since(&self, since: u16) -> Option<Vec<Vec<u8>>> {
        let ids = self.stale.iter().filter(|(epoch, _)| *epoch >= since).flat_map(|(_, ids)| ids);
        (since > self.forgotten).then(|| ids.copied().map(sender_id_of).collect())
    }
}

/// Checks the credential of a device that joins: a CWT Claims Set with a key on the curve of the group, which
/// the parameters `alg` and `key_ops` of the key allow for signatures. If the credential contains the name of a device,
/// the name must be `name`.
pub(super) fn check_credential(config: &GroupConfig, name: &str, credential: &[u8]) -> Result<(), GroupError> {
    let has_key = curve(config).is_some_and(|curve| key_of_ccs(credential, &Algorithms::both(curve)).is_some());
    let is_ours = subject_of(credential).is_none_or(|subject| subject == name);
    match has_key && is_ours && credential.len() <= LONGEST_CREDENTIAL {
        true => Ok(()),
        false => Err(GroupError::OtherCredential(name.to_owned())),
    }
}

/// Returns the curve of the keys of a group; `None` for a group without signatures.
pub(super) fn curve(config: &GroupConfig) -> Option<Curve> {
    config.signature.map(curve_of)
}

/// Returns the Group Identifier of an epoch: 6 bytes of the identity of the group, which are random, and the number of
/// the epoch.
pub(super) fn gid(group: &GroupIdentity, epoch: u16) -> Vec<u8> {
    group.iter().take(GID_IDENTITY).copied().chain(epoch.to_be_bytes()).collect()
}

/// True if a Group Identifier can be that of an epoch of this group.
pub(super) fn is_gid_of(gid: &[u8], group: &GroupIdentity) -> bool {
    gid.len() == GID_IDENTITY.saturating_add(size_of::<u16>())
        && gid.iter().zip(group).take(GID_IDENTITY).all(|(a, b)| a == b)
}

/// Returns the keys of an epoch, without a Sender ID and credentials. Returns `None` if the configuration is not for
/// Group OSCORE.
pub(super) fn keys<C: Crypto>(
    config: &GroupConfig,
    group: &GroupIdentity,
    seed: &Secret<DIGEST_LEN>,
    epoch: u16,
) -> Option<OscoreKeys> {
    let secret = derive::<C>(seed, &[b"oscore master secret", group, &epoch.to_be_bytes()]);
    let salt = derive::<C>(seed, &[b"oscore master salt", group, &epoch.to_be_bytes()]);
    Some(OscoreKeys {
        gid: gid(group, epoch),
        master_secret: Zeroizing::new(secret.expose().iter().take(SECRET).copied().collect()),
        master_salt: salt.expose().iter().take(SALT).copied().collect(),
        aead: config.aead()?,
        curve: curve(config)?,
        sender_id: None,
        number: epoch,
        expires: NEVER,
        creds: None,
        kdc: None,
    })
}

/// Derives the key that encrypts the signatures of messages under these keys (RFC 10021, section 2.1.9).
pub(super) fn signature_encryption_key<C: Crypto>(keys: &OscoreKeys) -> Option<Secret<KEY_LEN>> {
    let OscoreKeys { gid, master_secret, master_salt, aead, curve, .. } = keys;
    let algorithms = Algorithms { aead: Some(*aead), group_encryption: Some(*aead), ..Algorithms::both(*curve) };
    GroupParameters { master_secret, master_salt, gid, algorithms }.signature_encryption_key::<C>()
}

/// Returns the private key and the credential of the Group Manager in a group. Returns `None` if the configuration is
/// not for Group OSCORE.
pub(super) fn manager<C: Crypto>(
    config: &GroupConfig,
    group: &GroupIdentity,
    seed: &Secret<DIGEST_LEN>,
) -> Option<(Vec<u8>, Curve, Secret<32>)> {
    let curve = curve(config)?;
    // Few numbers of 32 bytes are no private key on P-256.
    (0..=u8::MAX).find_map(|attempt| {
        let private = derive::<C>(seed, &[b"oscore manager", group, &[attempt]]);
        let public = member_keys::public_of(curve, &private)?;
        Some((member_keys::credential(MANAGER, &public), curve, private))
    })
}

/// The name of the Group Manager in its credential.
const MANAGER: &str = "group manager";

fn derive<C: Crypto>(seed: &Secret<DIGEST_LEN>, parts: &[&[u8]]) -> Secret<DIGEST_LEN> {
    Secret::new(hmac::<C, DIGEST_LEN>(&[seed.expose()], parts))
}

#[cfg(test)]
mod tests;
