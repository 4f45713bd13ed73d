//! The file `context.toml` of a member of a group.

use super::{AAD, MemberContext, keys};
use crate::contexts::ContextError;
use crate::contexts::file::{aead_name, context_name};
use crate::contexts::keeper::Terms;
use crate::contexts::source::{CONTEXT, EARLIEST, Source};
use crate::hex::to_hex;
use crate::provider::HostCrypto;
use serde::Deserialize;
use std::path::Path;
use tegmen::crypto::{Crypto as _, Curve, MemberKey};
use tegmen::oscore::group::{Algorithms, BadGroup, GroupParameters, Ourselves, Recipient, key_of_ccs};
use tegmen::oscore::{Aead, Id, ReplayWindow};
use tegmen::secret::Secret;
use toml::Spanned;
use toml::value::Datetime;
use zeroize::{Zeroize as _, Zeroizing};

/// True if a directory contains the context of a group member, and not a context between two endpoints.
pub fn is_member(dir: &Path) -> bool {
    Source::read(dir).is_ok_and(|source| source.is_of_member())
}

/// The content of the file of a member. The group uses the group mode and the pairwise mode, and HKDF with SHA-256.
pub struct MemberFile {
    /// The name of the group.
    pub group: String,
    /// The name of this member.
    pub name: String,
    /// The Group Identifier, at most 16 bytes.
    pub group_id: Vec<u8>,
    /// The ID and the key pair of this member; `None` for a monitor, which sends no messages.
    pub own: Option<OwnKeys>,
    /// The Master Secret, at least 16 bytes.
    pub master_secret: Zeroizing<Vec<u8>>,
    /// The Master Salt, which may be empty.
    pub master_salt: Vec<u8>,
    /// The curve of the keys of all members: Ed25519 or P-256.
    pub curve: Curve,
    /// The algorithm that encrypts messages of both modes.
    pub aead: Aead,
    /// The Group Manager from which this member has its keys; `None` if no Group Manager runs.
    pub manager: Option<Manager>,
    /// The credential of the Group Manager.
    pub group_manager_credential: Vec<u8>,
    /// The time of creation, in seconds since 1970. The more time has passed since then, the more sequence numbers may
    /// have been used: see [`ContextFile::created`](crate::contexts::ContextFile::created).
    pub created: u64,
    /// The expiry time, in seconds since 1970, and its text in the file; `None` if the context does not expire.
    pub expires: Option<(u64, String)>,
    /// The other members.
    pub others: Vec<OtherMember>,
    /// The path of the file, and the number of the line with this member's credential, for error messages. For a monitor
    /// it is the line with the credential of the Group Manager.
    at: (String, usize),
}

/// The ID and the key pair of a member that sends messages.
pub struct OwnKeys {
    /// The ID of the member.
    pub sender_id: Id,
    /// The private key of the member, which is used only for Group OSCORE.
    pub private_key: Secret<32>,
    /// The credential of the member, which has the public key.
    pub credential: Vec<u8>,
}

/// The Group Manager of a member (draft-ietf-ace-key-groupcomm-oscore).
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manager {
    /// The URI of the group at the Group Manager, `coaps://host[:port]/ace-group/NAME`.
    pub uri: String,
    /// The name of the member's node at the Group Manager.
    pub node: String,
    /// The version of the keying material in the file, from 1.
    pub epoch: u16,
    /// The rights of each other member that sends requests; `None` allows everything.
    #[serde(default)]
    pub allow: Option<Vec<String>>,
    /// The roles with which the member joined, as a number: see
    /// [`Roles::number`](crate::group::groupcomm::oscore::Roles::number). `None` if an earlier version of this program,
    /// which did not store the roles, wrote the file.
    #[serde(default)]
    pub roles: Option<u64>,
    /// The URI at which this member takes rekeying messages of the Group Manager (RFC 9594, section 4.3.1); `None` for a
    /// member that observes its group.
    #[serde(default)]
    pub control_uri: Option<String>,
}

/// Another member of the group.
pub struct OtherMember {
    /// The ID of the other member.
    pub id: Id,
    /// The name of the other member.
    pub name: String,
    /// The credential of the other member.
    pub credential: Vec<u8>,
    /// The rights of the other member, as in a credentials file; `None` allows everything.
    pub allow: Option<Vec<String>>,
    /// The number of the line with this credential in the file, from 1.
    line: usize,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    group: String,
    name: Spanned<String>,
    group_id: Spanned<String>,
    sender_id: Option<Spanned<String>>,
    private_key: Option<Spanned<String>>,
    credential: Option<Spanned<String>>,
    master_secret: Spanned<String>,
    master_salt: Option<Spanned<String>>,
    curve: Spanned<String>,
    algorithm: Option<Spanned<String>>,
    manager: Option<Manager>,
    group_manager_credential: Spanned<String>,
    created: Option<Spanned<Datetime>>,
    expires: Option<Spanned<Datetime>>,
    #[serde(default)]
    member: Vec<MemberText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberText {
    id: Spanned<String>,
    name: Spanned<String>,
    credential: Spanned<String>,
    allow: Option<Vec<Spanned<String>>>,
}

const KNOWN: &str = "the context of a member has group, name, group_id, sender_id, private_key, credential (all three, or for a monitor none), \
                     master_secret, curve, group_manager_credential and, if wanted, algorithm, master_salt, created, expires, manager, and a [[member]] for each other \
                     member with id, name, credential and, if wanted, allow";
/// Minimum number of bytes of a master secret.
const MIN_SECRET: usize = 16;
/// Maximum number of bytes of a Group Identifier.
const LONGEST_GID: usize = 16;
/// Maximum number of bytes of an ID with AES-CCM-16-64-128.
const LONGEST_ID: usize = 7;
/// Length of the additional authenticated data of a message, in bytes, without the credentials.
const AAD_OVERHEAD: usize = 136;

/// Reads an ID of Group OSCORE, which is the value of `key`. Returns its position in the file, and the ID.
fn read_id(source: &Source, key: &str, value: Spanned<String>) -> Result<(usize, Id), ContextError> {
    let (at, bytes) = source.hex(key, value)?;
    let id = Id::new(&bytes).map(|id| (at, id));
    id.ok_or_else(|| source.wrong(at, format!("{key}: at most {LONGEST_ID} bytes")))
}

/// Reads a credential, which is the value of `key`. Returns its position in the file, its bytes, and its public key.
fn read_credential(
    source: &Source,
    curve: Curve,
    (key, value): (&str, Spanned<String>),
) -> Result<(usize, Vec<u8>, MemberKey), ContextError> {
    let (at, bytes) = source.hex(key, value)?;
    match key_of_ccs(&bytes, &Algorithms::both(curve)) {
        Some(key) => Ok((at, bytes, key)),
        None => {
            let curve = curve_name(curve);
            let why = format!("{key}: a CWT Claims Set with a key on {curve}, whose alg and key_ops allow signatures");
            Err(source.wrong(at, why))
        }
    }
}

/// Reads the Sender ID, the private key and the credential of the member itself. Returns the position of the credential
/// in the file, and the three values.
fn read_own(
    source: &Source,
    curve: Curve,
    (sender_id, private_key, credential): (Spanned<String>, Spanned<String>, Spanned<String>),
) -> Result<(usize, OwnKeys), ContextError> {
    let (at, credential, public) = read_credential(source, curve, ("credential", credential))?;
    let (private_at, mut private) = source.hex("private_key", private_key)?;
    let private_key = private.as_slice().try_into().ok().map(Secret::new);
    private.zeroize();
    let private_key = private_key.filter(|key| keys::public_of(curve, key) == Some(public));
    let private_key = private_key.ok_or_else(|| {
        let why = "private_key: 32 bytes, the key that credential has the public key of".to_owned();
        source.wrong(private_at, why)
    })?;
    let (_, sender_id) = read_id(source, "sender_id", sender_id)?;
    Ok((at, OwnKeys { sender_id, private_key, credential }))
}

impl MemberFile {
    /// Reads `context.toml` in a directory.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn read(dir: &Path) -> Result<Self, ContextError> {
        Self::parse(&Source::read(dir)?)
    }

    pub(super) fn parse(source: &Source) -> Result<Self, ContextError> {
        let parsed: Text = source.parse(KNOWN)?;
        let curve = curve_named(parsed.curve.get_ref())
            .ok_or_else(|| source.wrong(parsed.curve.span().start, "curve: ed25519 or p256".to_owned()))?;
        let (secret_at, master_secret) = source.hex("master_secret", parsed.master_secret)?;
        let master_secret = Zeroizing::new(master_secret);
        if master_secret.len() < MIN_SECRET {
            return Err(source.wrong(secret_at, format!("master_secret: at least {MIN_SECRET} random bytes")));
        }
        let (gid_at, group_id) = source.hex("group_id", parsed.group_id)?;
        if group_id.len() > LONGEST_GID {
            return Err(source.wrong(gid_at, format!("group_id: at most {LONGEST_GID} bytes")));
        }
        let own = match (parsed.sender_id, parsed.private_key, parsed.credential) {
            (Some(id), Some(key), Some(credential)) => Some(read_own(source, curve, (id, key, credential))?),
            (None, None, None) if parsed.manager.is_some() => None,
            _ => {
                let why = "name: a member has sender_id, private_key and credential; a monitor has none of these, and has [manager]";
                return Err(source.wrong(parsed.name.span().start, why.to_owned()));
            }
        };
        let (own_at, own) = own.unzip();
        let mut others: Vec<OtherMember> = Vec::with_capacity(parsed.member.len());
        for member in parsed.member {
            let (at, member_id) = read_id(source, "id", member.id)?;
            let is_own = own.as_ref().is_some_and(|own| own.sender_id == member_id);
            if is_own || others.iter().any(|other| other.id == member_id) {
                let id = to_hex(member_id.as_bytes());
                return Err(source.wrong(at, format!("id: two members have the ID {id}; give each another one")));
            }
            let (at, name) = (member.name.span().start, member.name.into_inner());
            if name == *parsed.name.get_ref() || others.iter().any(|other| other.name == name) {
                return Err(source.wrong(at, format!("name: two members have the name {name}; give each another one")));
            }
            let (at, credential, _) = read_credential(source, curve, ("credential", member.credential))?;
            let allow = member.allow.map(|rules| source.rules(rules)).transpose()?;
            others.push(OtherMember { id: member_id, name, credential, allow, line: source.line(at) });
        }
        let aead = match parsed.algorithm {
            None => Aead::default(),
            Some(name) => {
                let known = Aead::ALL.into_iter().find(|aead| aead_name(*aead) == name.get_ref().as_str());
                known
                    .ok_or_else(|| source.wrong(name.span().start, "algorithm: such as AES-CCM-16-64-128".to_owned()))?
            }
        };
        let manager = ("group_manager_credential", parsed.group_manager_credential);
        let (manager_at, manager, _) = read_credential(source, curve, manager)?;
        let master_salt = parsed.master_salt.map(|salt| source.hex("master_salt", salt)).transpose()?;
        let created = parsed.created.map(|at| source.time("created", &at)).transpose()?;
        Ok(Self {
            group: parsed.group,
            name: parsed.name.into_inner(),
            group_id,
            own,
            master_secret,
            master_salt: master_salt.map(|(_, salt)| salt).unwrap_or_default(),
            curve,
            aead,
            manager: parsed.manager,
            group_manager_credential: manager,
            created: created.map_or(EARLIEST, |(at, _)| at),
            expires: parsed.expires.map(|at| source.time("expires", &at)).transpose()?,
            others,
            at: (source.file().to_owned(), source.line(own_at.unwrap_or(manager_at))),
        })
    }

    /// Returns the context of this member. The next sequence number of the context is `next`.
    pub(super) fn context(&self, next: u64) -> Result<MemberContext, ContextError> {
        let parameters = GroupParameters {
            master_secret: &self.master_secret,
            master_salt: &self.master_salt,
            gid: &self.group_id,
            algorithms: Algorithms {
                aead: Some(self.aead),
                group_encryption: Some(self.aead),
                ..Algorithms::both(self.curve)
            },
        };
        let ourselves = match &self.own {
            Some(own) => Ourselves {
                id: own.sender_id,
                private_key: Secret::new(*own.private_key.expose()),
                credential: own.credential.clone(),
                kept: next,
            },
            None => self.nobody(next)?,
        };
        let context = MemberContext::new::<HostCrypto>(&parameters, ourselves, self.group_manager_credential.clone());
        context.map_err(|bad| self.wrong(self.at.1, bad))
    }

    /// Returns a random ID that no other member has, and a key pair that nobody knows. A context needs them, although the
    /// context of a monitor protects no message.
    fn nobody(&self, kept: u64) -> Result<Ourselves<Vec<u8>>, ContextError> {
        let failed = |source| ContextError::File { file: self.at.0.clone(), source };
        let mut crypto = HostCrypto::from_os().map_err(failed)?;
        let unusable = || self.wrong(self.at.1, BadGroup::Unsupported);
        let private_key = keys::draw(&mut crypto, self.curve).map_err(|_| unusable())?;
        let public = keys::public_of(self.curve, &private_key).ok_or_else(unusable)?;
        // A128GCM allows an ID of 6 bytes, and the other algorithms allow more.
        let mut ids = std::iter::repeat_with(|| {
            let mut id = [0; 6];
            crypto.random(&mut id);
            Id::new(&id)
        });
        let is_free = |id: &Id| self.others.iter().all(|other| other.id != *id);
        let id = ids.find_map(|id| id.filter(is_free)).ok_or_else(unusable)?;
        Ok(Ourselves { id, private_key, credential: keys::credential(&self.name, &public), kept })
    }

    /// Returns the recipient context of another member. `window` is the replay window of that other member; `None` if
    /// the window is not known.
    pub(super) fn recipient(
        &self,
        context: &MemberContext,
        crypto: &mut HostCrypto,
        other: &OtherMember,
        window: Option<ReplayWindow>,
    ) -> Result<Recipient<Vec<u8>>, ContextError> {
        let recipient = context.recipient(crypto, other.id, other.credential.clone(), window);
        recipient.map_err(|bad| self.wrong(other.line, bad))
    }

    fn wrong(&self, line: usize, bad: BadGroup) -> ContextError {
        let message = match bad {
            BadGroup::CredentialTooLong => {
                let most = AAD - AAD_OVERHEAD;
                format!("credential: this one and group_manager_credential have at most {most} bytes together")
            }
            BadGroup::InvalidKey => format!("credential: its key is no valid point of {}", curve_name(self.curve)),
            // The parser refuses all others.
            other => format!("{other:?}"),
        };
        ContextError::Syntax { file: self.at.0.clone(), line, message }
    }

    pub(in crate::contexts) fn terms(&self) -> Terms {
        // The keys that numbers belong to come from these. Two directories of one member are the same in a database.
        let [secret, salt, gid]: [&[u8]; 3] = [&self.master_secret, &self.master_salt, &self.group_id];
        let row = match &self.own {
            Some(own) => context_name(&[b"group", secret, salt, gid, own.sender_id.as_bytes()]),
            None => context_name(&[b"monitor", secret, salt, gid]),
        };
        let others = Some(self.others.len());
        Terms { created: self.created, expires: self.expires.clone(), row, others }
    }
}

/// Returns the curve that has this name in context files; `None` for any other name.
fn curve_named(name: &str) -> Option<Curve> {
    [Curve::Ed25519, Curve::P256].into_iter().find(|curve| curve_name(*curve) == name)
}

/// Returns the name that a curve has in context files.
pub(super) const fn curve_name(curve: Curve) -> &'static str {
    match curve {
        Curve::P256 => "p256",
        Curve::Ed25519 => "ed25519",
        Curve::X25519 => "x25519",
    }
}

/// Returns the path of the file of a member.
pub(super) fn path_in(dir: &Path) -> std::path::PathBuf {
    dir.join(CONTEXT)
}

#[cfg(test)]
mod tests;
