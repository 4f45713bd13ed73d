//! The memberships of the server in groups that Axiom protects, as a part of `tegmen serve`.

use super::options::Groups;
use crate::log::{Level, Log};
use crate::output::Failure;
use serde_json::json;
use tegmen_host::client::{ClientConfig, ClientKey};
use tegmen_host::controller::{Controller, Pace};
use tegmen_host::credentials::Credentials;
use tegmen_host::group::Membership;

/// The open memberships, and the pre-shared key with which the members request keys from their controllers.
pub(super) struct Members {
    pub(super) memberships: Vec<Membership>,
    key: Option<ClientKey>,
}

impl Groups {
    /// Returns the key with which members ask their controllers; `None` if the options give no key.
    ///
    /// # Errors
    /// The reason, as a text for the operator.
    pub(super) fn member_key(&self) -> Result<Option<ClientKey>, String> {
        let Some(file) = &self.member_credentials else { return Ok(None) };
        let known = Credentials::from_file(file).map_err(|error| error.to_string())?;
        let (name, all) = (file.display(), known.identities());
        let identity = match (&self.member_identity, all.as_slice()) {
            (Some(identity), _) => identity,
            (None, [only]) => only,
            (None, _) => return Err(format!("{name} holds {} identities: name one with --member-identity", all.len())),
        };
        let keys = known.keys_of(identity.as_bytes()).ok_or_else(|| format!("{name} has no identity {identity}"))?;
        Ok(Some(ClientKey { identity: identity.clone(), key: keys.current.key }))
    }

    /// Opens the memberships in the directories that the options name.
    pub(super) fn members(&self) -> Result<Members, Failure> {
        let open = |dir: &std::path::PathBuf| {
            let opened = Membership::open(dir).map_err(|error| Failure::usage(format!("--member: {error}")))?;
            match opened.address() {
                Some(_) => Ok(opened),
                None => Err(Failure::usage(format!(
                    "--member: {} does not answer requests: join again without --no-listen",
                    dir.display()
                ))),
            }
        };
        let memberships = self.member.iter().map(open).collect::<Result<_, _>>()?;
        Ok(Members { memberships, key: self.member_key().map_err(Failure::usage)? })
    }
}

impl Members {
    /// Logs the memberships, and starts to keep their keys up to date. Call this in the context of a runtime.
    pub(super) fn follow(&self, log: &Log) {
        for membership in &self.memberships {
            let (name, group, epoch) = (membership.name(), membership.group(), membership.epoch());
            log.always(
                || format!("member of the group {name} at {group}, epoch {epoch}"),
                || json!({ "event": "member", "group": name, "at": group, "epoch": epoch }),
            );
            let config = ClientConfig::default().with(|config| config.trust.key.clone_from(&self.key));
            match (&self.key, Controller::of_member(membership, config)) {
                (Some(_), Ok(Some(controller))) => {
                    let membership = membership.clone();
                    tokio::spawn(async move { controller.follow(&membership, Pace::default()).await });
                }
                (_, Err(error)) => log.event(Level::Error, || error.to_string(), || json!({ "event": "member", "error": error.to_string() })),
                _ => log.event(
                    Level::Warn,
                    || format!("group {name}: this member cannot get the keys of an epoch that it misses: give --member-credentials, and a membership with a controller"),
                    || json!({ "event": "member", "group": name, "follows": false }),
                ),
            }
        }
    }
}
