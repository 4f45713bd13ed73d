//! Operations with which an operator adds, changes and lists devices.

use super::certificates::CertificateReport;
use super::config::DeviceConfig;
use super::device::Known;
use super::error::DelegationError;
use super::memory::{Device, DeviceReport};
use super::server::Delegations;
use crate::audit::{Kind, Record};
use std::sync::Arc;
use tegmen_base::crypto::Crypto;
use tegmen_base::secret::Secret;
use tegmen_delegation::{DeviceKey, Epoch, PSK_LEN};
use tegmen_store::{Revision, Store, StoreError, Transaction};

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Adds a device on behalf of the operator `by`. Generates the device key ([`tegmen_delegation::DeviceKey`]) and
    /// returns it. No other call returns this key. The operator brings the key to the device.
    ///
    /// # Errors
    /// [`DelegationError::Config`] if the name or the configuration is not valid, [`DelegationError::Certificate`],
    /// [`DelegationError::NameTaken`], [`DelegationError::Audit`] or [`DelegationError::Store`].
    pub async fn imprint(
        &self,
        name: &str,
        config: DeviceConfig,
        by: &str,
    ) -> Result<Secret<PSK_LEN>, DelegationError> {
        let party = config.party(name).map_err(DelegationError::Config)?;
        self.audit.is_writable()?;
        self.prepare(name).await?;
        let (key, kept) = self.draw_key();
        let mut known = Known::new(party, config, kept, self.now());
        let row = known.row();
        let transaction = Transaction::default().require(row.as_str(), Revision::ABSENT).put(row, known.value());
        known.changed = self.store.commit(transaction).await.map_err(|error| match error {
            StoreError::Conflict { .. } => DelegationError::NameTaken(name.to_owned()),
            error => error.into(),
        })?;
        let device = self.registry_mut(|registry| registry.add::<C>(known));
        self.wake(&device);
        self.want(&device);
        self.write(by, "imprinted", format!("the device {name} gets its device key")).await?;
        Ok(key)
    }

    /// Gives a device another device key, and returns the key as [`Self::imprint`] does. For the server, all
    /// connections of the device end at once. For the device, they end when the device gets the new key. The call also
    /// [revokes](Self::revoke) the connections that other devices have with this device as their peer.
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`], [`DelegationError::Audit`], [`DelegationError::Changed`],
    /// [`DelegationError::Fault`] or [`DelegationError::Store`]. After an error, the device may have another key, which
    /// is lost. Other devices may then still accept the sessions of the device. So the caller must repeat the call.
    pub async fn imprint_again(&self, name: &str, by: &str) -> Result<Secret<PSK_LEN>, DelegationError> {
        let device = self.known(name)?;
        self.audit.is_writable()?;
        let key = self.change_key(&device).await?;
        self.revoke_peers(&[name], by).await?;
        self.write_changed_key(name, by).await?;
        Ok(key)
    }

    /// Gives a device another device key, and returns the key. With its old key, the device then gets no new connection
    /// with another device. The caller must revoke the existing connections.
    pub(super) async fn change_key(&self, device: &Arc<Device>) -> Result<Secret<PSK_LEN>, DelegationError> {
        let (key, kept) = self.draw_key();
        self.change(device, |known| {
            *known = Known {
                changed: known.changed,
                disabled: known.disabled,
                ..Known::new(known.party.clone(), known.config.clone(), DeviceKey(copy(&kept.0)), self.now())
            };
            Ok(((), Transaction::default()))
        })
        .await?;
        self.want_at_once(device);
        Ok(key)
    }

    /// Records in the audit log that a device gets another device key.
    pub(super) async fn write_changed_key(&self, name: &str, by: &str) -> Result<(), DelegationError> {
        self.write(by, "imprinted-again", format!("the device {name} gets another device key")).await
    }

    /// Gives a device another configuration. If the scopes change, the next epoch is due, and no connection continues
    /// in the next epoch. If `over` is given, the change is made only if `over` is the revision of the device.
    ///
    /// # Errors
    /// [`DelegationError::Config`], [`DelegationError::Outdated`], and the errors of [`Self::imprint_again`].
    pub async fn configure(
        &self,
        name: &str,
        config: DeviceConfig,
        over: Option<Revision>,
        by: &str,
    ) -> Result<(), DelegationError> {
        let device = self.known(name)?;
        let party = config.party(name).map_err(DelegationError::Config)?;
        self.audit.is_writable()?;
        self.change(&device, |known| {
            if over.is_some_and(|over| over != known.changed) {
                return Err(DelegationError::Outdated(name.to_owned()));
            }
            if known.config.scopes != config.scopes && known.present.has_tickets() {
                (known.reset, known.forget, known.before) = (Some(by.to_owned()), true, None);
            }
            (known.party, known.config) = (party.clone(), config.clone());
            Ok(((), Transaction::default()))
        })
        .await?;
        self.want_at_once(&device);
        self.write(by, "configured", format!("the device {name} has another configuration")).await
    }

    /// Disables a device, or enables it again. The server gives peers no session with a disabled device. Existing
    /// sessions of the device continue until [`Self::revoke`] ends them.
    ///
    /// # Errors
    /// The errors of [`Self::imprint_again`].
    pub async fn set_disabled(&self, name: &str, disabled: bool, by: &str) -> Result<(), DelegationError> {
        let device = self.known(name)?;
        if !disabled {
            self.audit.is_writable()?;
        }
        self.change(&device, |known| {
            known.disabled = disabled;
            Ok(((), Transaction::default()))
        })
        .await?;
        let (code, word) = if disabled { ("disabled", "disabled") } else { ("enabled", "enabled again") };
        self.write_or_note(disabled, by, code, format!("the device {name} is {word}")).await
    }

    /// Returns at most `most` devices whose names follow the name `after`, in the order of their names.
    pub fn list(&self, after: Option<&str>, most: usize) -> Vec<DeviceReport> {
        self.registry(|registry| registry.after(after).take(most).map(|device| self.shown(device)).collect())
    }

    /// Returns the device of this name.
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`].
    pub fn show(&self, name: &str) -> Result<DeviceReport, DelegationError> {
        let device = self.known(name)?;
        Ok(self.shown(&device))
    }

    fn shown(&self, device: &Device) -> DeviceReport {
        let certificates = self.certificates.as_deref();
        let certificate = certificates.map(|certificates| CertificateReport::of(certificates, &device.name));
        DeviceReport { certificate, ..device.state().report() }
    }

    /// Generates a device key. Returns two copies: one for the device, and one for the device's row.
    fn draw_key(&self) -> (Secret<PSK_LEN>, DeviceKey) {
        let mut key = Secret::zeroed();
        self.crypto().random(key.expose_mut());
        let kept = copy(&key);
        (key, Epoch::first(DeviceKey(kept)).key)
    }

    /// Writes an audit record for a change that gives rights, and waits until the record is durable. `by` is the
    /// operator who makes the change.
    async fn write(&self, by: &str, code: &'static str, message: String) -> Result<(), DelegationError> {
        self.write_or_note(false, by, code, message).await
    }

    /// Writes an audit record for a change that `by`, an operator or the server, makes. If `takes` is true, the change
    /// takes rights away, and this function does not wait until the record is durable.
    pub(super) async fn write_or_note(
        &self,
        takes: bool,
        by: &str,
        code: &'static str,
        message: String,
    ) -> Result<(), DelegationError> {
        let kind = if takes { Kind::Revocation } else { Kind::Device };
        let record = Record { kind, who: by.to_owned(), code, message };
        match takes {
            true => self.audit.note(record),
            false => self.audit.write(record).await?,
        }
        Ok(())
    }
}

const fn copy(key: &Secret<PSK_LEN>) -> Secret<PSK_LEN> {
    Secret::new(*key.expose())
}
