//! The context of a member whose group has a Group Manager. The keys of each epoch replace the file `context.toml` in
//! the directory of the member.

use super::file::{Manager, MemberFile, curve_name, path_in};
use crate::contexts::file::aead_name;
use crate::contexts::source::{Source, utc};
use crate::contexts::{ContextError, keeper};
use crate::group::groupcomm::oscore::{OscoreKeys, subject_of};
use crate::hex::to_hex;
use std::path::Path;
use tegmen::secret::Secret;
use tegmen_store::Numbers;
use zeroize::Zeroizing;

/// The keys of an epoch for one member, and the member's own data, such as its private key.
pub struct ManagedKeys<'k> {
    /// The name of the group.
    pub group: &'k str,
    /// The name of this member.
    pub name: &'k str,
    /// The Group Manager that issued the keys, and the version (epoch) of the keys.
    pub manager: Manager,
    /// The keys, the Sender ID of this member, and the credentials of the other members.
    pub keys: &'k OscoreKeys,
    /// The private key and the credential of this member; `None` for a monitor.
    pub own: Option<(&'k Secret<32>, &'k [u8])>,
    /// The credential of the Group Manager.
    pub group_manager_credential: &'k [u8],
    /// The time at which this device joined the group, in seconds since 1970. The more time has passed since then, the
    /// more sequence numbers may have been used.
    pub joined: u64,
}

impl ManagedKeys<'_> {
    /// Writes the context of a device that has joined the group, and that has a Sender ID that nobody had before. If the
    /// directory has an older context, replaces it.
    ///
    /// # Errors
    /// [`ContextError`]; [`ContextError::InUse`] if a process uses the older context.
    pub fn create(&self, dir: &Path) -> Result<(), ContextError> {
        let text = self.text(dir)?;
        if !path_in(dir).exists() {
            return keeper::create(dir, &text, &Numbers::fresh());
        }
        let _lock = keeper::lock(dir)?;
        keeper::replace(dir, &text, &self.numbers())
    }

    /// Replaces the context by the keys of a later epoch, in a directory that no process uses.
    ///
    /// # Errors
    /// [`ContextError`]; [`ContextError::InUse`] if a process uses the older context.
    pub fn update(&self, dir: &Path) -> Result<(), ContextError> {
        let text = self.text(dir)?;
        let _lock = keeper::lock(dir)?;
        keeper::replace(dir, &text, &self.numbers())
    }

    /// Replaces the context by the keys of a later epoch, in a directory that this process has locked. Before the call,
    /// the caller must end the use of the sequence numbers of the older context.
    pub(crate) fn replace(&self, dir: &Path) -> Result<(), ContextError> {
        keeper::replace(dir, &self.text(dir)?, &self.numbers())
    }

    /// Returns the sequence numbers with which this member begins. They are above each number that a process with an
    /// older copy of the directory may have used with the new keys, and the replay windows count as lost. A monitor uses
    /// no numbers, and cannot send the challenge that a lost replay window needs. So it begins with new replay windows.
    fn numbers(&self) -> Numbers {
        match self.own {
            Some(_) => Numbers::from(keeper::allowance(self.joined), None),
            None => Numbers::fresh(),
        }
    }

    /// Returns the text of the file `context.toml`, which [`MemberFile::parse`] has accepted.
    fn text(&self, dir: &Path) -> Result<Zeroizing<String>, ContextError> {
        let Self { group, name, manager, keys, own, group_manager_credential, joined } = self;
        let quoted = |text: &str| toml::Value::String(text.to_owned());
        let rules = |rules: &[String]| toml::Value::Array(rules.iter().map(|rule| quoted(rule)).collect());
        let secret = Zeroizing::new(to_hex(&keys.master_secret));
        let private_key = own.map(|(private_key, _)| Zeroizing::new(to_hex(private_key.expose())));
        let mut text = Zeroizing::new(String::with_capacity(8192));
        text.push_str(&format!(
            "# One member's end of the security context of a group (RFC 10021), from its Group Manager. Anyone who reads this file can\n\
             # read all messages of the group and can send as this member. tegmen replaces it when the group gets new keys.\n\
             group = {}\nname = {}\ngroup_id = \"{}\"\nmaster_salt = \"{}\"\n\
             algorithm = \"{}\"\ncurve = \"{}\"\ngroup_manager_credential = \"{}\"\ncreated = {}\n",
            quoted(group),
            quoted(name),
            to_hex(&keys.gid),
            to_hex(&keys.master_salt),
            aead_name(keys.aead),
            curve_name(keys.curve),
            to_hex(group_manager_credential),
            utc(*joined),
        ));
        if let (Some((_, credential)), Some(id)) = (own, &keys.sender_id) {
            text.push_str(&format!("sender_id = \"{}\"\ncredential = \"{}\"\n", to_hex(id), to_hex(credential)));
        }
        let secrets = [("master_secret", Some(&secret)), ("private_key", private_key.as_ref())];
        for (key, digits) in secrets.into_iter().filter_map(|(key, digits)| Some((key, digits?))) {
            text.push_str(key);
            text.push_str(" = \"");
            text.push_str(digits);
            text.push_str("\"\n");
        }
        let Manager { uri, node, epoch, allow, roles, control_uri } = manager;
        text.push_str(&format!("\n[manager]\nuri = {}\nnode = {}\nepoch = {epoch}\n", quoted(uri), quoted(node)));
        if let Some(roles) = roles {
            text.push_str(&format!("roles = {roles}\n"));
        }
        if let Some(uri) = control_uri {
            text.push_str(&format!("control_uri = {}\n", quoted(uri)));
        }
        if let Some(allow) = allow {
            text.push_str(&format!("allow = {}\n", rules(allow)));
        }
        for cred in keys.creds.iter().flatten() {
            let id = to_hex(&cred.id);
            let other = subject_of(&cred.credential).unwrap_or_else(|| format!("member-{id}"));
            let credential = to_hex(&cred.credential);
            text.push_str(&format!(
                "\n[[member]]\nname = {}\nid = \"{id}\"\ncredential = \"{credential}\"\n",
                quoted(&other)
            ));
            // A member that is no requester may send no request.
            let allow = if cred.roles.requester { allow.as_deref() } else { Some(&[][..]) };
            if let Some(allow) = allow {
                text.push_str(&format!("allow = {}\n", rules(allow)));
            }
        }
        MemberFile::parse(&Source::of(&path_in(dir).display().to_string(), &text))?;
        Ok(text)
    }
}
