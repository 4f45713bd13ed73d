//! The resource directory as a part of `tegmen serve`, and the registration of this server at another directory.

use super::config_file::Mistake;
use super::options::Directory;
use crate::connect::only_key;
use crate::log::{Level, Log};
use crate::output::{Failure, printable};
use serde_json::json;
use tegmen_control::directory::{DirectoryBounds, DirectoryServer, DirectorySettings, Registering, RegistrationEvent};
use tegmen_host::client::ClientConfig;
use tegmen_host::credentials::Credentials;
use tegmen_host::resources::{ListedPath, Resources};
use tegmen_host::uri::{Scheme, Uri};
use tokio::task::JoinSet;

impl Directory {
    /// Returns all mistakes in the settings of the directory and of the registration.
    pub(super) fn mistakes(&self) -> Vec<Mistake> {
        let registering = self.registering().err();
        registering.map(|why| Mistake::new("register", why)).into_iter().collect()
    }

    /// Opens the directory. Returns `None` if the server is not a directory.
    pub(super) fn open(&self, credentials: &Credentials) -> Result<Option<DirectoryServer>, Failure> {
        if !self.directory {
            return Ok(None);
        }
        let bounds = DirectoryBounds { registrations: self.directory_max as usize, ..DirectoryBounds::default() };
        let settings = DirectorySettings { bounds, tools: self.directory_tool.clone() };
        DirectoryServer::new(settings, credentials.clone()).map(Some).map_err(Failure::io)
    }

    /// Returns the paths of the resource directory, for `/.well-known/core`.
    pub(super) fn paths(&self) -> Vec<ListedPath> {
        if self.directory { DirectoryServer::paths() } else { Vec::new() }
    }

    /// Returns the registration at another directory; `None` if the options name no directory. The error is a text for
    /// the operator.
    fn registering(&self) -> Result<Option<Registering>, String> {
        let Some(text) = &self.register else { return Ok(None) };
        let directory = Uri::parse(text).map_err(|error| error.to_string())?;
        if !directory.query.is_empty() {
            return Err(format!("{text}: leave out the query"));
        }
        let key = self.register_credentials.as_deref().map(only_key).transpose()?;
        if key.is_none() && directory.scheme == Scheme::Coaps {
            return Err("a session with the directory needs --register-credentials".to_owned());
        }
        let name = self.register_name.clone().or_else(|| key.as_ref().map(|key| key.identity.clone()));
        if name.is_none() {
            return Err("it needs --register-name".to_owned());
        }
        let config = ClientConfig::default().with(|config| config.trust.key = key);
        let (base, lifetime) = (self.register_base.clone(), self.register_lifetime);
        Ok(Some(Registering { directory, config, name, base, lifetime }))
    }

    /// Starts a task that registers this server at a directory, if the options name a directory. The task runs on the
    /// runtime until the returned value is dropped.
    pub(super) fn start(&self, resources: &Resources, log: &Log) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        // The settings were checked before.
        if let Ok(Some(registering)) = self.registering() {
            let (resources, log) = (resources.clone(), log.clone());
            let report = move |event: RegistrationEvent<'_>| match event {
                RegistrationEvent::Registered(path) => log.always(
                    || printable(&format!("registered at the resource directory, as {path}")),
                    || json!({ "event": "registered", "location": path }),
                ),
                RegistrationEvent::Failed(why, pause) => log.event(
                    Level::Warn,
                    || {
                        printable(&format!(
                            "not registered at the resource directory: {why}; another attempt in {} s",
                            pause.as_secs()
                        ))
                    },
                    || json!({ "event": "registered", "error": why.to_string() }),
                ),
            };
            tasks.spawn(async move { registering.run(move || resources.listed(), report).await });
        }
        tasks
    }
}
