//! The memberships of the server in groups that Axiom or Group OSCORE protects, as a part of `tegmen serve`.

use super::options::Groups;
use crate::log::{Level, Log};
use crate::output::Failure;
use serde_json::json;
use tegmen_host::client::{ClientConfig, ClientKey};
use tegmen_host::contexts::FollowedMember;
use tegmen_host::controller::{Controller, ControllerError, OscorePace, Pace};
use tegmen_host::credentials::Credentials;
use tegmen_host::group::Membership;

/// The open memberships, and the pre-shared key with which the members request keys from their controllers.
pub(super) struct Members {
    pub(super) memberships: Vec<Membership>,
    oscore: Vec<FollowedMember>,
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

    /// Opens the memberships in the directories that the options name. `oscore` are the contexts of Group OSCORE groups.
    pub(super) fn members(&self, oscore: Vec<FollowedMember>) -> Result<Members, Failure> {
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
        Ok(Members { memberships, oscore, key: self.member_key().map_err(Failure::usage)? })
    }
}

impl Members {
    /// Logs the memberships, and starts to keep their keys up to date. Call this in the context of a runtime.
    pub(super) fn follow(&self, credentials: &Credentials, log: &Log) {
        self.oscore.iter().for_each(|member| self.follow_oscore(member, credentials, log));
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

    /// Starts to keep the keys of a member of a Group OSCORE group up to date, if the group has a Group Manager.
    fn follow_oscore(&self, member: &FollowedMember, credentials: &Credentials, log: &Log) {
        let config = ClientConfig::default().with(|config| config.trust.key.clone_from(&self.key));
        let dir = member.dir().display().to_string();
        let failed = |log: &Log, why: &str| {
            log.event(
                Level::Warn,
                || format!("member of a Group OSCORE group in {dir}: {why}"),
                || json!({ "event": "member", "dir": dir, "error": why }),
            );
        };
        if let Some(group) = member.needs_new_epoch() {
            let why =
                "the last process of this monitor did not end in order, so it processes no requests of this epoch";
            failed(log, &format!("{why}: begin the next epoch with `tegmen group rekey {group}`"));
        }
        match Controller::of_oscore_member(member.dir(), config) {
            Ok(None) => {}
            Ok(Some(_)) if self.key.is_none() => {
                failed(log, "it cannot get the keys of a later epoch: give --member-credentials");
            }
            Ok(Some(controller)) => {
                let (member, credentials, log) = (member.clone(), credentials.clone(), log.clone());
                let dir = dir.clone();
                tokio::spawn(async move {
                    let report = |followed: Result<(), &ControllerError>| match followed {
                        Ok(()) => log.event(
                            Level::Info,
                            || format!("member of a Group OSCORE group in {dir}: new keys"),
                            || json!({ "event": "member", "dir": dir, "keys": "new" }),
                        ),
                        Err(error) => log.event(
                            Level::Warn,
                            || format!("member of a Group OSCORE group in {dir}: {error}"),
                            || json!({ "event": "member", "dir": dir, "error": error.to_string() }),
                        ),
                    };
                    controller.follow_oscore(&member, &credentials, OscorePace::default(), report).await;
                });
            }
            Err(error) => failed(log, &error.to_string()),
        }
    }
}
