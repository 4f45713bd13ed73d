//! The running server, and the changes of its settings while it runs.

use super::access::{Role, Roles};
use super::check::Made;
use super::members::Members;
use super::options::Sections;
use super::settings::{Settings, Values};
use super::store::Rows;
use super::systemd::Sockets;
use super::{delegated, delegation, event_sink, groups};
use crate::log::{Format, Level, Log};
use crate::output::{Failure, Output};
use serde_json::json;
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use tegmen_admin::Tls;
use tegmen_control::delegated::DelegatedDevice;
use tegmen_control::delegation::Delegations;
use tegmen_control::group::Outbox;
use tegmen_control::resource_server::Tokens;
use tegmen_host::credentials::{Credentials, FilePolicy};
use tegmen_host::edhoc::{EdhocPeer, EdhocServer};
use tegmen_host::proxy::Proxy;
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::resources::Resources;
use tegmen_host::server::{Server, ServerBuilder, ServerLimits};
use tegmen_host::state::Database;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The options that a running server can change. The other options take effect at the next start.
pub(super) const CHANGEABLE: &[&str] = &[
    "admin-ca",
    "admin-cert",
    "admin-cert-key",
    "admin-client",
    "admin-role",
    "anonymous",
    "blink",
    "cert",
    "cert-key",
    "command",
    "credentials",
    "dir",
    "dir-rw",
    "drain",
    "edhoc-clients",
    "file",
    "hello-limits",
    "image",
    "leisure",
    "log-level",
    "max-bodies",
    "max-body",
    "policy",
    "quiet",
    "requests-per-second",
    "unconfirmed",
    "value",
    "verify-addresses",
];

/// A running server, the settings with which it was started, and its present settings.
pub(super) struct Running {
    pub(super) server: Server,
    pub(super) log: Log,
    file: Option<PathBuf>,
    /// The settings that were read last. They include new values of options that need a restart.
    settings: Settings,
    started: Values,
    /// True if the server was started with a private key of its own. Only then can its certificate and key change
    /// later.
    has_key: bool,
    made: Made,
    application: Resources,
    access: Option<Role>,
    groups: Option<groups::Role>,
    delegation: Option<delegation::Role>,
    device: Option<DelegatedDevice>,
    tokens: Option<Tokens>,
    proxy: Option<Proxy>,
    members: Members,
    /// A sender of new certificates to the interface for administrators; `None` if the interface is not served.
    admin: Option<watch::Sender<Arc<Tls>>>,
    credentials: Credentials,
    edhoc: Option<EdhocServer>,
    keys: Option<PublicKeys>,
}

/// Sets the policy of a server that is a delegated device or a resource server. A server is at most one of the two. If
/// it is neither of them, the builder does not change.
fn with_policy(
    builder: ServerBuilder,
    credentials: &Credentials,
    (device, tokens): (Option<&DelegatedDevice>, Option<&Tokens>),
    plain_allowed: bool,
) -> ServerBuilder {
    match (device, tokens) {
        (Some(device), _) => builder.policy(device.policy(plain_allowed)),
        (None, Some(tokens)) => {
            builder.policy(tokens.policy(FilePolicy { credentials: credentials.clone(), plain_allowed }))
        }
        (None, None) => builder,
    }
}

/// New settings that were read without a mistake, and the resources, keys and certificates that belong to these
/// settings.
struct Change {
    settings: Settings,
    made: Made,
    credentials: Option<PathBuf>,
    edhoc_peers: Vec<EdhocPeer>,
    keys: Option<PublicKeys>,
    admin: Option<Tls>,
}

impl Running {
    /// Starts a server. Returns the server, the number of its OSCORE contexts, and the listener for its HTTP pages if
    /// the process inherited such a listener.
    pub(super) fn start(
        file: Option<PathBuf>,
        settings: Settings,
        mut sockets: Sockets,
        out: Output,
    ) -> Result<(Self, usize, Option<TcpListener>), Failure> {
        let sections = &settings.sections;
        let described = |mistake| Failure::usage(settings.describe(&[mistake]).join("\n"));
        let listener = sockets.take_listener(sections.service.metrics)?;
        let credentials = sections.credentials().map_err(described)?.unwrap_or_default();
        // The rules were checked before.
        credentials.allow_anonymous(&sections.keys.anonymous).map_err(Failure::usage)?;
        let all = |mistakes: Vec<_>| Failure::usage(settings.describe(&mistakes).join("\n"));
        let made = sections.served.make(&Made::new()).map_err(all)?;
        let state = sections.sessions.state.as_deref().map(Database::open).transpose().map_err(Failure::usage)?;
        let mut contexts = sections.keys.open_contexts(state.as_ref(), &credentials)?;
        let (count, oscore, edhoc) = (contexts.len(), contexts.members(), contexts.edhoc());
        let format = if out.json { Format::Json } else { sections.log.log };
        let log = Log::start(sections.log.level(), format).map_err(Failure::io)?;
        log.take_traces();
        let access = sections.access.open(&log)?;
        let groups = sections.groups.open(access.as_ref(), &log)?;
        let delegation = sections.delegation.open(access.as_ref(), &log)?;
        let device = sections.delegated.open(&credentials, &log)?;
        let tokens = sections.resource_server.open(&credentials, &mut contexts, &log)?;
        let members = sections.groups.members(oscore)?;
        let mut config = sections.config(contexts, state, access.as_ref().map(Role::device_keys))?;
        config.memberships.clone_from(&members.memberships);
        config.delegate = delegation.as_ref().map(|role| Arc::clone(&role.server) as _);
        if let Some(device) = &device {
            device.configure(&mut config);
        }
        let keys = config.trust.public_keys.clone();
        let application = sections.application(&made);
        let mut builder = Server::with(config)
            .credentials(credentials.clone())
            .inherit(sockets.udp)
            .on_event(event_sink(log.clone()));
        if let Some(role) = &access {
            builder = builder.key_store(role.shared_keys());
        }
        builder = with_policy(builder, &credentials, (device.as_ref(), tokens.as_ref()), sections.addresses.plain);
        let proxy = sections.proxy.open()?;
        let roles = Roles {
            tokens: tokens.clone(),
            proxy: proxy.clone(),
            device: device.clone(),
            directory: sections.directory.open(&credentials)?,
            access: access.as_ref().map(|role| role.application(&credentials)),
            groups: groups
                .as_ref()
                .zip(access.as_ref())
                .map(|(role, access)| role.application(access, &credentials, groups::event_sink(log.clone()))),
            resources: application.clone(),
        };
        let server = builder.serve(roles).map_err(Failure::usage)?;
        let (started, has_key) = (settings.values(), sections.clients.is_given());
        let running = Self {
            server,
            log,
            file,
            settings,
            started,
            has_key,
            made,
            application,
            access,
            groups,
            delegation,
            device,
            tokens,
            proxy,
            members,
            admin: None,
            credentials,
            edhoc,
            keys,
        };
        Ok((running, count, listener))
    }

    /// Returns the settings.
    pub(super) const fn sections(&self) -> &Sections {
        &self.settings.sections
    }

    /// Serves the interface for administrators, if it is configured.
    pub(super) async fn administer(&mut self) -> Result<(), Failure> {
        if let Some(role) = &self.access {
            self.admin =
                self.sections().admin.start(role, self.groups.as_ref(), self.delegation.as_ref(), &self.log).await?;
        }
        Ok(())
    }

    /// Starts the tasks of the controller on the runtime, if the server controls groups: they send rekey messages and
    /// evict members. The tasks end when the returned value is dropped.
    pub(super) fn control_groups(&self) -> JoinSet<()> {
        let both = self.groups.as_ref().zip(self.access.as_ref());
        both.map(|(groups, access)| groups.start(access)).unwrap_or_default()
    }

    /// Returns the outbox of the controller of groups, if there is one.
    pub(super) fn outbox(&self) -> Option<Outbox> {
        self.groups.as_ref().map(|role| role.outbox.clone())
    }

    /// Starts the task of the server of delegated sessions on the runtime, if the server delegates sessions. The task
    /// ends when the returned value is dropped.
    pub(super) fn delegate(&self) -> JoinSet<()> {
        self.delegation.as_ref().map(delegation::Role::start).unwrap_or_default()
    }

    /// Starts the task of the delegated device on the runtime, if the server is a delegated device. The task ends
    /// when the returned value is dropped.
    pub(super) fn run_device(&self) -> JoinSet<()> {
        let start = |device| delegated::start(device, self.server.session_list(), self.application.clone());
        self.device.as_ref().map(start).unwrap_or_default()
    }

    /// Starts a task that registers the resources of the server at a resource directory, if the options name a
    /// directory. The task runs on the runtime until the returned value is dropped.
    pub(super) fn register(&self) -> JoinSet<()> {
        self.sections().directory.start(&self.application, &self.log)
    }

    /// Logs the memberships in groups, and starts to keep their keys up to date. Call this in the context of a runtime.
    pub(super) fn follow_members(&self, log: &Log) {
        self.members.follow(&self.credentials, log);
    }

    /// Starts a task that reads the list of revoked tokens, if the server is a resource server and its options name the
    /// server of this list. The task runs on the runtime until the returned value is dropped.
    pub(super) fn follow_revocations(&self) -> JoinSet<()> {
        self.sections().resource_server.start(self.tokens.as_ref(), &self.log)
    }

    /// Returns the server of delegated sessions, if there is one.
    pub(super) fn delegations(&self) -> Option<Arc<Delegations<Rows>>> {
        self.delegation.as_ref().map(|role| Arc::clone(&role.server))
    }

    /// Returns the proxy, if the server is a proxy.
    pub(super) fn proxy(&self) -> Option<Proxy> {
        self.proxy.clone()
    }

    /// Starts a task that serves the HTTP clients of the proxy, if the options allow HTTP clients. The task runs on the
    /// runtime until the returned value is dropped.
    pub(super) async fn serve_http(&self) -> Result<JoinSet<()>, Failure> {
        let Sections { proxy, limits, .. } = self.sections();
        proxy.serve_http(self.server.addresses(), limits.max_body, &self.log).await
    }

    /// Returns the number of resources that the server has.
    pub(super) fn resources(&self) -> usize {
        self.made.len()
    }

    /// Reads the settings again, and also the files that the settings name. Then changes the options that a running
    /// server can change. After any mistake, all settings stay as they were. Returns true if the settings were changed.
    pub(super) async fn reload(&mut self) -> bool {
        let changed = match self.read_again() {
            Ok(change) => self.take(change).await.map_err(|error| vec![error]),
            Err(mistakes) => Err(mistakes),
        };
        match changed {
            Ok(before) => {
                self.report(&before);
                true
            }
            Err(mistakes) => {
                let why = mistakes.join("; ");
                self.log.event(
                    Level::Error,
                    || format!("hangup: the configuration is wrong, and the old one stays in force: {why}"),
                    || json!({ "event": "hangup", "error": why }),
                );
                false
            }
        }
    }

    fn read_again(&self) -> Result<Change, Vec<String>> {
        let settings = Settings::read(self.file.as_deref())?;
        let sections = &settings.sections;
        let mistakes = sections.mistakes(&self.made);
        if !mistakes.is_empty() {
            return Err(settings.describe(&mistakes));
        }
        let made = sections.served.make(&self.made).map_err(|mistakes| settings.describe(&mistakes))?;
        let keys = match &self.keys {
            Some(keys) if self.has_key && sections.clients.is_given() => {
                Some(sections.clients.renewed(keys).map_err(|failure| vec![failure.message])?)
            }
            _ => None,
        };
        let admin = sections.admin.tls().map_err(|mistakes| settings.describe(&mistakes))?;
        let file = &sections.keys.credentials;
        let credentials = (!sections.addresses.no_secure && file.exists()).then(|| file.clone());
        let edhoc_peers = sections.keys.edhoc_peers().map_err(|error| vec![error.to_string()])?;
        Ok(Change { made, credentials, edhoc_peers, keys, admin, settings })
    }

    /// Applies new settings. Returns the previous values of all options.
    async fn take(&mut self, change: Change) -> Result<Values, String> {
        let Change { settings, made, credentials, edhoc_peers, keys, admin } = change;
        let sections = &settings.sections;
        if let (Some(role), Some(policy)) = (&self.access, &sections.access.policy) {
            role.apply(policy).await?;
        }
        if let Some(file) = credentials {
            self.credentials.set_file(&file).map_err(|error| error.to_string())?;
        }
        self.credentials.allow_anonymous(&sections.keys.anonymous)?;
        if let Some(edhoc) = &self.edhoc {
            edhoc.set_peers(edhoc_peers, &self.credentials);
        }
        if let Some(keys) = keys {
            self.server.set_own_keys(&keys);
            self.keys = Some(keys);
        }
        if let Some((sender, tls)) = self.admin.as_ref().zip(admin) {
            sender.send_replace(Arc::new(tls));
        }
        self.server.set_limits(ServerLimits::from(&sections.plain_config()));
        self.log.set_level(sections.log.level());
        self.application.replace(&sections.application(&made), &self.server.notifier());
        let before = std::mem::replace(&mut self.settings, settings).values();
        self.made = made;
        Ok(before)
    }

    /// Logs the options whose values differ from `before`, and the options that need a restart.
    fn report(&self, before: &Values) {
        let own_key = |key: &str| key == "cert" || key == "cert-key";
        let changes_own_key = self.has_key == self.sections().clients.is_given();
        let is_changeable =
            |key: &String| CHANGEABLE.contains(&key.as_str()) && (changes_own_key || !own_key(key.as_str()));
        let mut taken = self.settings.differences(before);
        taken.retain(is_changeable);
        let mut restart = self.settings.differences(&self.started);
        restart.retain(|key| !is_changeable(key));
        let what =
            if taken.is_empty() { "no option changed".to_owned() } else { format!("changed: {}", taken.join(", ")) };
        self.log.always(
            || format!("hangup: configuration, credentials and own keys read again; {what}"),
            || json!({ "event": "hangup", "changed": taken }),
        );
        if !restart.is_empty() {
            self.log.event(
                Level::Warn,
                || format!("hangup: these options change with a restart alone: {}", restart.join(", ")),
                || json!({ "event": "restart_needed", "options": restart }),
            );
        }
    }
}
