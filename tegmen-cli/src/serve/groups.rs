//! The controller of groups that Axiom protects, as a part of `tegmen serve`.

use super::access;
use super::config_file::Mistake;
use super::group_observation;
use super::interface::GroupInterface;
use super::options::Groups;
use super::store::Rows;
use crate::log::{Level, Log};
use crate::output::Failure;
use crate::public_keys::signer;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tegmen_control::access::policy::OwnedParty;
use tegmen_control::group::server::{Authority, ByPolicy, Event, GroupServer, JOIN_INTERVAL};
use tegmen_control::group::{
    Controller, Outbox, Pace, Sending, evict_departed, rekey_periodically, send, send_to_members,
};
use tegmen_host::credentials::Credentials;
use tegmen_host::x509::signer::{SignatureScheme, Signer};
use tokio::task::JoinSet;

/// The role of a controller of groups, with its open store.
pub(crate) struct Role {
    pub(crate) controller: Arc<Controller<Rows>>,
    pub(super) outbox: Outbox,
    /// The publisher that represents the controller in the rules of the policy.
    party: OwnedParty,
    sending: Sending,
    /// The maximum duration of an epoch; `None` if epochs end only at a change of the group.
    period: Option<Duration>,
    join_interval: Duration,
}

impl Groups {
    /// Returns all mistakes in the settings of groups. `plain` is true if the server serves unprotected requests, and
    /// `oscore` is true if it can have OSCORE contexts. `has_store` is true if the server has a store.
    pub(super) fn mistakes(&self, (plain, oscore): (bool, bool), has_store: bool) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        if !self.group.is_empty() && !plain && !oscore {
            let why = "requests to a group are in clear, or protected with OSCORE: it needs --plain, or --oscore with the context of a member";
            mistakes.push(Mistake::new("group", why));
        }
        mistakes.extend(group_observation::mistakes(&self.group_observation, plain, oscore));
        match &self.group_controller {
            Some(_) if !has_store => mistakes.push(Mistake::new("group-controller", "it needs --store")),
            Some(name) => mistakes.extend(party(name).err().map(|why| Mistake::new("group-controller", why))),
            None => {
                let given =
                    [("group-key", self.group_key.is_some()), ("group-interface", !self.group_interface.is_empty())];
                let given = given.into_iter().filter(|(_, is_given)| *is_given);
                mistakes.extend(given.map(|(key, _)| Mistake::new(key, "it needs --group-controller")));
            }
        }
        let mut groups: Vec<_> = self.group_interface.iter().map(|interface| interface.group.as_deref()).collect();
        groups.sort_unstable();
        if groups.windows(2).any(|pair| matches!(pair, [one, other] if one == other)) {
            mistakes.push(Mistake::new(
                "group-interface",
                "a group has one interface, and all others have one: remove the second one",
            ));
        }
        for dir in self.member.iter().filter(|dir| !dir.is_dir()) {
            let why = format!("{} is not a directory: make it with `tegmen group join`", dir.display());
            mistakes.push(Mistake::new("member", why));
        }
        mistakes.extend(self.member_key().err().map(|why| Mistake::new("member-credentials", why)));
        let wrong_key = self.group_key.as_deref().and_then(|file| group_key(file).err());
        mistakes.extend(wrong_key.map(|failure| Mistake::new("group-key", failure.message)));
        mistakes
    }

    /// Opens the controller of groups, which uses the store of access control. Logs the name of the controller. Returns
    /// `None` if the options configure no controller.
    pub(super) fn open(&self, access: Option<&access::Role>, log: &Log) -> Result<Option<Role>, Failure> {
        let (Some(name), Some(access)) = (&self.group_controller, access) else { return Ok(None) };
        let key = self.group_key.as_deref().map(group_key).transpose()?;
        let role = Role::open(name, key, access, self.sending())?;
        log.always(
            || format!("control of groups, as {name} in the policy"),
            || json!({ "event": "group_controller", "name": name }),
        );
        let period = (self.rekey_period > 0).then(|| Duration::from_secs(self.rekey_period));
        Ok(Some(Role { period, join_interval: Duration::from_secs(self.join_interval), ..role }))
    }

    fn sending(&self) -> Sending {
        let pace = Pace {
            interval: Duration::from_millis(self.rekey_interval),
            repetitions: self.rekey_repetitions,
            wait: Duration::from_secs_f64(self.rekey_wait),
        };
        let mut sending = Sending { pace, ..Sending::default() };
        for GroupInterface { group, name } in self.group_interface.iter().cloned() {
            match group {
                Some(group) => drop(sending.interfaces.insert(group, name)),
                None => sending.interface = Some(name),
            }
        }
        sending
    }
}

impl Role {
    /// Opens a controller that uses the store of access control. The controller begins no periodic epochs. `name` is
    /// the name of the controller in rules of the policy, where the controller counts as a publisher. `key` signs rekey
    /// messages.
    pub(crate) fn open(
        name: &str,
        key: Option<Arc<dyn Signer>>,
        access: &access::Role,
        sending: Sending,
    ) -> Result<Self, Failure> {
        let ((_, rows), outbox) = (access.shared(), Outbox::default());
        let controller = Controller::new(rows, key).map_err(Failure::io)?.with_outbox(outbox.clone());
        let (controller, party) = (Arc::new(controller), party(name).map_err(Failure::usage)?);
        Ok(Self { controller, outbox, party, sending, period: None, join_interval: JOIN_INTERVAL })
    }

    /// Returns the application for a server with these credentials. The policy of the access control server decides
    /// which devices may join.
    pub(crate) fn application(
        &self,
        access: &access::Role,
        credentials: &Credentials,
        events: impl Fn(Event<'_>) + Send + Sync + 'static,
    ) -> GroupServer<Rows> {
        GroupServer::new(Arc::clone(&self.controller), self.authority(access, credentials), Arc::new(events))
            .with_join_interval(self.join_interval)
    }

    /// Returns the keys and the rights of the devices, which come from the policy of the access control server.
    fn authority(&self, access: &access::Role, credentials: &Credentials) -> Arc<dyn Authority> {
        let ((service, _), credentials) = (access.shared(), credentials.clone());
        Arc::new(ByPolicy { service, credentials, controller: self.party.clone() })
    }

    /// Starts the tasks of the controller on the runtime. The tasks send the messages of the controller, begin periodic
    /// epochs, and evict the members whose devices are disabled or removed. The tasks end when the returned value is
    /// dropped.
    pub(crate) fn start(&self, access: &access::Role) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let (controller, sending) = (Arc::clone(&self.controller), self.sending.clone());
        tasks.spawn(async move { send(&*controller, &sending).await });
        // This task has no session with a device, so it needs no credentials.
        let authority = self.authority(access, &Credentials::default());
        let controller = Arc::clone(&self.controller);
        tasks.spawn(async move { send_to_members(&controller, &authority).await });
        let (controller, (service, _)) = (Arc::clone(&self.controller), access.shared());
        tasks.spawn(async move { evict_departed(&*controller, &*service).await });
        if let Some(period) = self.period {
            let controller = Arc::clone(&self.controller);
            tasks.spawn(async move { rekey_periodically(&*controller, period).await });
        }
        tasks
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

/// Returns a function that writes the events of the server to the log.
pub(crate) fn event_sink(log: Log) -> impl Fn(Event<'_>) + Send + Sync + 'static {
    move |event| write(&log, &event)
}

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
