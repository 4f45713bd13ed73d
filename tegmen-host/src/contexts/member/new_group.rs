//! A new group: makes the directories of all its members.

use super::file::{MemberFile, curve_name, is_member, path_in};
use super::keys;
use crate::contexts::source::{NO_TIME, Source, is_time, utc};
use crate::contexts::{ContextError, keeper, now};
use crate::credentials::is_rule;
use crate::hex::to_hex;
use crate::provider::HostCrypto;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tegmen::crypto::{Crypto as _, Curve};
use tegmen::secret::Secret;
use tegmen_store::Numbers;
use zeroize::Zeroizing;

/// Maximum number of members of a new group, because each member has an ID of one byte.
const MOST_MEMBERS: usize = 256;
/// Maximum number of bytes of the name of a member. This limit keeps the credential of the member short.
const LONGEST_NAME: usize = 64;

/// Makes a group of these members. Each member gets a directory `dir/NAME` with its security context, whose keys are on
/// `curve` (Ed25519 or P-256). The last component of the path `dir` is the name of the group. `allow` contains the
/// rights of members: the key is the name of a member, and the rights apply at all other members. A member without an
/// entry has all rights. `expires` is the expiry time, in the form that the file `context.toml` uses; `None` sets no
/// expiry time.
///
/// # Errors
/// [`ContextError`]. If a name or a right is not valid, if one of the directories already has a context, or if `dir`
/// already has members of a group, nothing is written.
pub fn create_group(
    dir: &Path,
    names: &[String],
    curve: Curve,
    allow: &BTreeMap<String, Vec<String>>,
    expires: Option<&str>,
) -> Result<(), ContextError> {
    check(names, allow)?;
    if expires.is_some_and(|at| !is_time(at)) {
        return Err(ContextError::Group(format!("expires: {NO_TIME}")));
    }
    let group = NewGroup::draw(dir, names, curve, expires)?;
    let texts: Vec<_> = group.members.iter().map(|member| group.text_of(member, allow)).collect();
    for (member, text) in group.members.iter().zip(&texts) {
        let path = path_in(&dir.join(member.name));
        MemberFile::parse(&Source::of(&path.display().to_string(), text))?;
        if path.exists() {
            return Err(ContextError::Exists { file: path.display().to_string() });
        }
    }
    check_no_group(dir)?;
    for (member, text) in group.members.iter().zip(&texts) {
        keeper::create(&dir.join(member.name), text, &Numbers::fresh())?;
    }
    Ok(())
}

/// Checks that no directory in `dir` has the context of a member. The members of two groups cannot read each other's
/// messages.
fn check_no_group(dir: &Path) -> Result<(), ContextError> {
    // A directory that cannot be read shows its error when the group is written.
    let Ok(mut entries) = std::fs::read_dir(dir) else { return Ok(()) };
    match entries.find_map(|entry| Some(entry.ok()?.path()).filter(|path| is_member(path))) {
        None => Ok(()),
        Some(other) => Err(ContextError::Group(format!(
            "{} already has a group, with the member {}: make a new group with all members in another directory, and replace all \
             directories of the old group",
            dir.display(),
            other.display()
        ))),
    }
}

/// Checks the names of the members, which are also names of directories, and their rights.
fn check(names: &[String], allow: &BTreeMap<String, Vec<String>>) -> Result<(), ContextError> {
    if !(2..=MOST_MEMBERS).contains(&names.len()) {
        return Err(ContextError::Group(format!("a new group has 2 to {MOST_MEMBERS} members: name them all")));
    }
    let mut known = BTreeSet::new();
    for name in names {
        let is_part = |letter: char| letter.is_alphanumeric() || "-_.".contains(letter);
        if name.len() > LONGEST_NAME || !name.starts_with(char::is_alphanumeric) || !name.chars().all(is_part) {
            return Err(ContextError::Group(format!(
                "{name:?} is no name of a member: use letters, digits, '-', '_' and '.', at most {LONGEST_NAME} bytes, and a letter or \
                 a digit in front"
            )));
        }
        if !known.insert(name) {
            return Err(ContextError::Group(format!("two members have the name {name}: give each another one")));
        }
    }
    if let Some(name) = allow.keys().find(|name| !known.contains(name)) {
        return Err(ContextError::Group(format!("{name} has rights, and is no member: add it, or correct the name")));
    }
    match allow.values().flatten().find(|rule| !is_rule(rule)) {
        Some(rule) => {
            Err(ContextError::Group(format!("allow: {}, in place of {rule:?}", tegmen::coap::Rule::EXPECTED)))
        }
        None => Ok(()),
    }
}

struct NewGroup<'n> {
    name: String,
    /// The text that is the same in the files of all members.
    common: Zeroizing<String>,
    members: Vec<NewMember<'n>>,
}

struct NewMember<'n> {
    name: &'n str,
    /// The ID, in hexadecimal digits.
    id: String,
    private_key: Secret<32>,
    credential: String,
}

impl<'n> NewGroup<'n> {
    fn draw(dir: &Path, names: &'n [String], curve: Curve, expires: Option<&str>) -> Result<Self, ContextError> {
        let unable = |why: &dyn std::fmt::Display| ContextError::Group(format!("keys cannot be made here: {why}"));
        let mut crypto = HostCrypto::from_os().map_err(|error| unable(&error))?;
        let pair = |crypto: &mut HostCrypto, name: &str| {
            let private = keys::draw(crypto, curve).map_err(|_| unable(&"the curve is not ed25519 or p256"))?;
            let public = keys::public_of(curve, &private).ok_or_else(|| unable(&"a key is not valid"))?;
            Ok::<_, ContextError>((private, to_hex(&keys::credential(name, &public))))
        };
        let mut members = Vec::with_capacity(names.len());
        for (number, name) in (0..=u8::MAX).zip(names) {
            let (private_key, credential) = pair(&mut crypto, name)?;
            members.push(NewMember { name, id: to_hex(&[number]), private_key, credential });
        }
        let (_, manager) = pair(&mut crypto, "group manager")?;
        let (mut secret, mut salt, mut group_id) = (Secret::<16>::zeroed(), [0; 8], [0; 8]);
        crypto.random(secret.expose_mut());
        crypto.random(&mut salt);
        crypto.random(&mut group_id);
        let digits = Zeroizing::new(to_hex(secret.expose()));
        let mut common = Zeroizing::new(format!(
            "group_id = \"{}\"\nmaster_secret = \"{}\"\nmaster_salt = \"{}\"\ncurve = \"{}\"\n# No Group Manager runs: its private key is \
             not kept. To change the group, make a new one.\ngroup_manager_credential = \"{manager}\"\ncreated = {}\n",
            to_hex(&group_id),
            *digits,
            to_hex(&salt),
            curve_name(curve),
            utc(now()),
        ));
        if let Some(at) = expires {
            common.push_str(&format!("expires = {at}\n"));
        }
        let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
        Ok(Self { name, common, members })
    }

    fn text_of(&self, ours: &NewMember<'_>, allow: &BTreeMap<String, Vec<String>>) -> Zeroizing<String> {
        let NewMember { name, id, private_key, credential } = ours;
        let (group, common) = (toml::Value::String(self.name.clone()), &*self.common);
        let private_key = Zeroizing::new(to_hex(private_key.expose()));
        let mut text = Zeroizing::new(format!(
            "# One member's end of the security context of a group (RFC 10021). Anyone who reads this file can read all messages of the \
             group\n# and can send as this member.\ngroup = {group}\nname = \"{name}\"\nsender_id = \"{id}\"\nprivate_key = \"{}\"\n\
             credential = \"{credential}\"\n{common}",
            *private_key
        ));
        for NewMember { name, id, credential, .. } in self.members.iter().filter(|other| other.name != ours.name) {
            text.push_str(&format!("\n[[member]]\nname = \"{name}\"\nid = \"{id}\"\ncredential = \"{credential}\"\n"));
            if let Some(rights) = allow.get(*name) {
                let rights: Vec<_> = rights.iter().cloned().map(toml::Value::String).collect();
                text.push_str(&format!("allow = {}\n", toml::Value::Array(rights)));
            }
        }
        text
    }
}
