//! The access control server as a role of `tegmen serve`.

use super::config_file::Mistake;
use super::options::Access;
use super::store::{Place, Rows};
use crate::log::{Level, Log};
use crate::output::{Failure, runtime};
use crate::public_keys::signer;
use crate::sealing;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tegmen::coap::{Code, MessageRef, OptionNumber, Response};
use tegmen_control::access::policy::Policy;
use tegmen_control::audit::{AuditBounds, AuditLog};
use tegmen_control::delegated::DelegatedDevice;
use tegmen_control::directory::DirectoryServer;
use tegmen_control::group::server::GroupServer;
use tegmen_control::resource_server::Tokens;
use tegmen_control::server::{AccessServer, DeviceKeys, Revocations, SharedKeys};
use tegmen_control::service::Service;
use tegmen_control::state::{Bounds, Event, State, Watcher};
use tegmen_host::credentials::Credentials;
use tegmen_host::proxy::Proxy;
use tegmen_host::resources::Resources;
use tegmen_host::server::{Application, Notifier, Request, VirtualHosts};
use tegmen_host::x509::PeerVerifier;

/// The files of an access control server.
pub(crate) struct Files<'a> {
    pub(crate) store: &'a Place,
    pub(crate) sealing_key: &'a Path,
    pub(crate) policy: Option<&'a Path>,
    pub(crate) audit: &'a Path,
    pub(crate) audit_key: &'a Path,
}

/// The role of an access control server, with its open files.
pub(crate) struct Role {
    service: Arc<Service<Rows>>,
    rows: Rows,
    revocations: Revocations,
}

/// The application of a server with its roles. A request goes to the first role that has the path of the request:
/// resource server with tokens, delegated device, resource directory, groups, access control. If no role has the path,
/// the request goes to the proxy or to the resources. But if the sender is a device that the access control server
/// knows, the response to such a request is 4.03.
#[derive(Clone)]
pub(crate) struct Roles {
    pub(crate) tokens: Option<Tokens>,
    pub(crate) proxy: Option<Proxy>,
    pub(crate) device: Option<DelegatedDevice>,
    pub(crate) directory: Option<DirectoryServer>,
    pub(crate) access: Option<AccessServer<Rows>>,
    pub(crate) groups: Option<GroupServer<Rows>>,
    pub(crate) resources: Resources,
}

impl Application for Roles {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        // Before all others: the policy lets requests through that the tokens answer with a code of their own.
        if let Some(answered) = self.tokens.as_ref().and_then(|tokens| tokens.serve(request, response)) {
            return answered;
        }
        if let Some(device) = self.device.as_ref().filter(|device| device.has(request.path())) {
            return device.handle(request, response);
        }
        if let Some(directory) = self.directory.as_mut().filter(|directory| directory.has(request.path())) {
            return directory.handle(request, response);
        }
        if let Some(groups) = self.groups.as_mut().filter(|groups| groups.has(request.path())) {
            return groups.handle(request, response);
        }
        match &mut self.access {
            Some(access) if access.has(request.path()) => access.handle(request, response),
            Some(access) if access.knows(request.identity()) => Err(Code::FORBIDDEN),
            _ => match &mut self.proxy {
                Some(proxy) if proxy.has(request.message(), request.path()) => proxy.handle(request, response),
                _ => self.resources.handle(request, response),
            },
        }
    }

    fn critical_options(&self) -> &[OptionNumber] {
        self.resources.critical_options()
    }

    fn acts_on(&self, path: &str, request: &MessageRef<'_>, number: OptionNumber) -> bool {
        let proxied = self.proxy.as_ref().is_some_and(|proxy| proxy.acts_on(path, request, number));
        proxied || self.resources.acts_on(path, request, number)
    }

    fn virtual_hosts(&self) -> VirtualHosts {
        self.proxy.as_ref().map(Application::virtual_hosts).unwrap_or_default()
    }

    fn acts_on_blocks(&self, path: &str, request: &MessageRef<'_>) -> bool {
        self.resources.acts_on_blocks(path, request)
    }

    fn every_second(&mut self, notifier: &Notifier) {
        self.resources.every_second(notifier);
        if let Some(tokens) = &self.tokens {
            tokens.every_second(notifier);
        }
        if let Some(directory) = &mut self.directory {
            directory.every_second(notifier);
        }
        if let Some(access) = &mut self.access {
            access.every_second(notifier);
        }
    }
}

impl Access {
    /// Returns all mistakes in the settings of access control.
    pub(super) fn mistakes(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let options = [
            ("sealing-key", &self.sealing_key, true),
            ("audit", &self.audit, true),
            ("audit-key", &self.audit_key, true),
            ("policy", &self.policy, false),
        ];
        for (key, value, is_needed) in options {
            if value.is_some() && self.store.is_none() {
                mistakes.push(Mistake::new(key, "it needs --store"));
            }
            if value.is_none() && self.store.is_some() && is_needed {
                mistakes.push(Mistake::new("store", format!("it needs --{key}")));
            }
        }
        let mut check = |key, wrong: Option<String>| mistakes.extend(wrong.map(|why| Mistake::new(key, why)));
        let is_first = self.store.as_ref().is_some_and(Place::is_absent);
        let wrong_key = |place| sealing::check(place, is_first).err().map(|failure| failure.message);
        check("sealing-key", self.sealing_key.as_deref().and_then(wrong_key));
        check(
            "audit-key",
            self.audit_key.as_deref().and_then(|file| signer(file).err()).map(|failure| failure.message),
        );
        check("policy", self.policy.as_deref().and_then(|file| policy(file).err()));
        mistakes
    }

    /// Returns the options that name the store, the keys, the policy and the audit log of the access control server.
    /// Returns `None` if the server is no access control server.
    fn files(&self) -> Option<Files<'_>> {
        Some(Files {
            store: self.store.as_ref()?,
            sealing_key: self.sealing_key.as_deref()?,
            policy: self.policy.as_deref(),
            audit: self.audit.as_deref()?,
            audit_key: self.audit_key.as_deref()?,
        })
    }

    /// Opens the files of the access control server, and logs its numbers of devices and of policy rules. Returns
    /// `None` if the options configure no access control server.
    pub(super) fn open(&self, log: &Log) -> Result<Option<Role>, Failure> {
        let Some(files) = self.files() else { return Ok(None) };
        let role = Role::open(&files, log)?;
        let (devices, rules) = {
            let view = role.service.state().view();
            (view.devices(), view.in_force().policy.rules())
        };
        log.always(
            || format!("access control: {devices} devices, {rules} rules in the policy"),
            || json!({ "event": "access", "devices": devices, "rules": rules }),
        );
        Ok(Some(role))
    }
}

impl Role {
    /// Opens the store and the audit log, and applies the policy. Logs faults that occur later.
    pub(crate) fn open(files: &Files<'_>, log: &Log) -> Result<Self, Failure> {
        let key = sealing::open_or_draw(files.sealing_key, files.store.is_absent())?;
        let rows = files.store.open(key).map_err(Failure::usage)?;
        let signer = signer(files.audit_key)?;
        let audit = AuditLog::open(files.audit, signer, AuditBounds::default()).map_err(Failure::usage)?;
        let revocations = Revocations::default();
        let watcher = watcher(revocations.clone(), log.clone());
        runtime()?.block_on(async {
            let state = State::open(rows.clone(), Bounds::default(), watcher).await.map_err(Failure::usage)?;
            let service = Service::new(state, audit).map_err(Failure::io)?;
            let role = Self { service: Arc::new(service), rows, revocations };
            if let Some(policy) = files.policy {
                role.apply(policy).await.map_err(Failure::usage)?;
            }
            Ok(role)
        })
    }

    /// Applies the policy in a file, if the text of the file has changed since it was last applied.
    ///
    /// # Errors
    /// The reason, as a text for the operator. The present policy then stays in force.
    pub(super) async fn apply(&self, file: &Path) -> Result<(), String> {
        let text = policy(file)?;
        let name = file.display().to_string();
        self.service.configure_policy(&name, &text).await.map(drop).map_err(|error| format!("{name}: {error}"))
    }

    /// Returns the access control server, and the store of its state.
    pub(crate) fn shared(&self) -> (Arc<Service<Rows>>, Rows) {
        (Arc::clone(&self.service), self.rows.clone())
    }

    /// Returns the source of the keys that devices share with the server.
    pub(crate) fn shared_keys(&self) -> SharedKeys<Rows> {
        SharedKeys(Arc::clone(&self.service))
    }

    /// Returns the verifier of the raw public keys of devices.
    pub(super) fn device_keys(&self) -> Arc<dyn PeerVerifier> {
        Arc::new(DeviceKeys(Arc::clone(&self.service)))
    }

    /// Returns the application for a server with these credentials.
    pub(crate) fn application(&self, credentials: &Credentials) -> AccessServer<Rows> {
        AccessServer::new(Arc::clone(&self.service), credentials.clone(), self.revocations.clone())
    }
}

/// Reads a policy, and runs its tests. Returns its text. The error is the reason why the policy cannot be applied.
fn policy(file: &Path) -> Result<String, String> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("{name}: {error}; correct the path, or the permissions there"))?;
    let policy = Policy::parse(&name, &text).map_err(|error| error.to_string())?;
    match policy.tested() {
        Ok(_) => Ok(text),
        Err(failed) => {
            Err(format!("{name} fails its own tests: {}", failed.first().map_or_else(String::new, ToString::to_string)))
        }
    }
}

/// Returns a watcher that logs changes of the state, and notifies observers of the revocation list.
fn watcher(revocations: Revocations, log: Log) -> Watcher {
    Box::new(move |event| {
        revocations.take(&event);
        let level = match event {
            Event::Revocations(_) => return,
            Event::Renewed => Level::Info,
            _ => Level::Error,
        };
        let why = event.to_string();
        log.event(level, || format!("access control: {why}"), || json!({ "event": "access", "error": why }));
    })
}
