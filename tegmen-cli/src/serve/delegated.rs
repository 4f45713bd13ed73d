//! A device with delegated sessions, as a part of `tegmen serve`.

use super::config_file::Mistake;
use super::options::Delegated;
use crate::files::read_secret;
use crate::log::{Level, Log};
use crate::output::{Failure, printable};
use serde_json::json;
use std::path::Path;
use tegmen::secret::Secret;
use tegmen_control::delegated::{DelegatedDevice, DeviceSettings, Scopes};
use tegmen_delegation::DeviceKey;
use tegmen_host::credentials::Credentials;
use tegmen_host::hex::from_hex;
use tegmen_host::resources::Resources;
use tegmen_host::server::SessionList;
use tokio::task::JoinSet;

impl Delegated {
    /// Returns all mistakes in the settings of the device. `others` are the given options that a delegated device
    /// excludes.
    pub(super) fn mistakes(&self, others: &[&str]) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let needs = |key: &str, other: &str| Mistake::new(key, format!("it needs --{other}"));
        let parts = [
            ("device-key", self.device_key.is_some()),
            ("device-state", self.device_state.is_some()),
            ("device-scope", !self.device_scope.is_empty()),
        ];
        if self.delegated.is_none() {
            let given = parts.iter().filter(|(_, is_given)| *is_given);
            mistakes.extend(given.map(|(key, _)| needs(key, "delegated")));
            return mistakes;
        }
        let missing = parts.iter().filter(|(key, is_given)| !is_given && *key != "device-key");
        mistakes.extend(missing.map(|(key, _)| needs("delegated", key)));
        let is_first = self.device_state.as_ref().is_some_and(|file| !file.exists());
        match &self.device_key {
            None if is_first => {
                let why = "the first start needs --device-key: the file that `tegmen device imprint` wrote";
                mistakes.push(Mistake::new("delegated", why));
            }
            // A later start does without the key.
            Some(file) if is_first || file.exists() => {
                mistakes.extend(device_key(file).err().map(|why| Mistake::new("device-key", why)));
            }
            _ => {}
        }
        mistakes.extend(Scopes::parse(&self.device_scope).err().map(|why| Mistake::new("device-scope", why)));
        let excluded = |other: &&str| {
            Mistake::new(other, "a delegated device has no certificate and no role of a control server: leave it out")
        };
        mistakes.extend(others.iter().map(excluded));
        mistakes
    }

    /// Opens the delegated device, and logs its name, epoch and scopes. Returns `None` if the options configure no
    /// delegated device.
    pub(super) fn open(&self, credentials: &Credentials, log: &Log) -> Result<Option<DelegatedDevice>, Failure> {
        let (Some(name), Some(state)) = (&self.delegated, &self.device_state) else { return Ok(None) };
        let key = self.device_key.as_deref().filter(|file| file.exists());
        let settings = DeviceSettings {
            name: name.clone(),
            key: key.map(device_key).transpose().map_err(Failure::usage)?,
            state: state.clone(),
            scopes: Scopes::parse(&self.device_scope).map_err(Failure::usage)?,
        };
        let scopes = settings.scopes.count();
        let device = DelegatedDevice::open(settings, credentials.clone()).map_err(Failure::usage)?;
        let status = device.status();
        let (epoch, refused, state) = (status.epoch, status.refused, state.display().to_string());
        log.always(
            || {
                let waits = if epoch == 0 { ", waits for its delegation server" } else { "" };
                printable(&format!(
                    "delegated device {name}: epoch {epoch}{waits}, {refused} connections refused, {scopes} scopes, state in {state}"
                ))
            },
            || json!({ "event": "delegated", "device": name, "epoch": epoch, "refused": refused, "scopes": scopes, "state": state }),
        );
        if let Some(file) = key.filter(|_| epoch > 0) {
            let file = file.display().to_string();
            log.event(
                Level::Warn,
                || {
                    printable(&format!(
                        "{file} leads to the keys of all epochs, and the device needs it no more: remove it"
                    ))
                },
                || json!({ "event": "device_key_left", "file": file }),
            );
        }
        Ok(Some(device))
    }
}

/// Starts the task of a device on the runtime. The task ends when the returned value is dropped.
pub(super) fn start(device: &DelegatedDevice, sessions: SessionList, resources: Resources) -> JoinSet<()> {
    let (mut tasks, device) = (JoinSet::new(), device.clone());
    tasks.spawn(async move { device.run(sessions, resources).await });
    tasks
}

/// Reads a device key from a file. The error is the reason why the key cannot be read.
fn device_key(file: &Path) -> Result<DeviceKey, String> {
    let text = read_secret(file)?;
    let bytes = from_hex(&text).map(zeroize::Zeroizing::new);
    let key = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
    let key = key.ok_or_else(|| {
        format!("{}: a device key has 64 hexadecimal digits, as `tegmen device imprint` writes it", file.display())
    })?;
    Ok(DeviceKey(Secret::new(key)))
}
