//! The controller of groups after Axiom, as a part of `tegmen serve`.

use super::access;
use super::config_file::Mistake;
use super::options::Groups;
use super::store::Rows;
use crate::log::{Level, Log};
use crate::output::Failure;
use crate::public_keys::signer;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::group::Controller;
use tegmen_control::group::server::{ByPolicy, Event, GroupServer};
use tegmen_host::credentials::Credentials;
use tegmen_host::x509::signer::{SignatureScheme, Signer};

/// A controller that is open.
pub(super) struct Role {
    pub(super) controller: Arc<Controller<Rows>>,
    /// The publisher in rules of the policy.
    party: OwnedParty,
}

impl Groups {
    /// Returns all mistakes.
    pub(super) fn mistakes(&self, plain: bool, has_store: bool) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if !self.group.is_empty() && !plain {
            mistakes.push(Mistake::new("group", "groups are joined with plain CoAP: it needs --plain"));
        }
        match &self.group_controller {
            Some(_) if !has_store => mistakes.push(Mistake::new("group-controller", "it needs --store")),
            Some(name) => mistakes.extend(party(name).err().map(|why| Mistake::new("group-controller", why))),
            None if self.group_key.is_some() => mistakes.push(Mistake::new("group-key", "it needs --group-controller")),
            None => {}
        }
        let wrong_key = self.group_key.as_deref().and_then(|file| group_key(file).err());
        mistakes.extend(wrong_key.map(|failure| Mistake::new("group-key", failure.message)));
        mistakes
    }

    /// Opens the controller on the store of access control, and writes so to the log; `None` if the server has no such role.
    pub(super) fn open(&self, access: Option<&access::Role>, log: &Log) -> Result<Option<Role>, Failure> {
        let (Some(name), Some(access)) = (&self.group_controller, access) else { return Ok(None) };
        let key = self.group_key.as_deref().map(group_key).transpose()?;
        let (_, rows) = access.shared();
        let controller = Arc::new(Controller::new(rows, key).map_err(Failure::io)?);
        log.always(
            || format!("control of groups, as {name} in the policy"),
            || json!({ "event": "group_controller", "name": name }),
        );
        Ok(Some(Role { controller, party: party(name).map_err(Failure::usage)? }))
    }
}

impl Role {
    /// Returns the application for a server with these credentials. The policy of the access control server gives the rights.
    pub(super) fn application(&self, access: &access::Role, credentials: &Credentials, log: Log) -> GroupServer<Rows> {
        let ((service, _), credentials) = (access.shared(), credentials.clone());
        let authority = ByPolicy { service, credentials, controller: self.party.clone() };
        let events = Arc::new(move |event: Event<'_>| write(&log, &event));
        GroupServer::new(Arc::clone(&self.controller), Arc::new(authority), events)
    }
}

fn party(name: &str) -> Result<OwnedParty, String> {
    OwnedParty::new(name, Vec::new())
}

/// Opens the key that signs rekey messages.
fn group_key(file: &Path) -> Result<Arc<dyn Signer>, Failure> {
    let key = signer(file)?;
    match key.scheme() {
        SignatureScheme::ECDSA_SECP256R1_SHA256 => Ok(key),
        _ => Err(Failure::usage(format!("{}: it is an RSA key: give a key on secp256r1", file.display()))),
    }
}

/// Writes an event of the server to the log.
fn write(log: &Log, event: &Event<'_>) {
    match event {
        Event::Rekeying { group, rekeying, message } => log.event(
            Level::Info,
            || message.clone(),
            || json!({ "event": "group_changed", "group": group, "epoch": rekeying.epoch, "message": message }),
        ),
        // Anybody can cause these without limit, and the server has a line for the response.
        Event::Refused { who: None, .. } => {}
        Event::Refused { who: Some(who), message } => log.event(
            Level::Warn,
            || message.clone(),
            || json!({ "event": "group_refused", "who": who, "message": message }),
        ),
    }
}
