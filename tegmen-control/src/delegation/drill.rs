//! Replaces the certificates and the keys of devices after an intruder had access to their server.

use super::certificates::ReplacedCertificate;
use super::connection::DelegatedConnection;
use super::error::DelegationError;
use super::server::Delegations;
use tegmen_base::crypto::Crypto;
use tegmen_base::secret::Secret;
use tegmen_delegation::PSK_LEN;
use tegmen_store::Store;

/// A device whose server was compromised, so that an intruder can reach the device with the keys of the server.
#[derive(Debug)]
pub struct Reachable {
    /// The name of the device.
    pub device: String,
    /// The new device key, which an operator brings to the device. Until the device has this key, it still accepts the
    /// sessions and tickets of `connections`. It also accepts sessions and tickets that an intruder made with the old
    /// keys of the server.
    pub key: Secret<PSK_LEN>,
    /// The connections that have not expired. An intruder with the old keys of the server can read the records of these
    /// connections, and can resume their sessions.
    pub connections: Vec<DelegatedConnection>,
    /// The certificates of the device that the server no longer uses, without those that have expired. Until a peer has
    /// received their revocation, an intruder with their private keys can pose as the device at this peer.
    pub certificates: Vec<ReplacedCertificate>,
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Replaces the certificates and the keys of devices after an intruder had access to the server. The server first
    /// [replaces](super::Certificates::replace) the certificates of all devices. Then each device gets another [device
    /// key](Self::imprint_again). The server deletes all keys of the device's epochs, and accepts no earlier ticket of
    /// the device. The server also revokes the connections that other devices have with the devices in `names`. Returns,
    /// for each device, the connections that the intruder could use, and the replaced certificates.
    ///
    /// # Errors
    /// [`DelegationError::Certificate`], and the errors of [`Self::imprint_again`] and [`Self::connections`]. The caller
    /// must then repeat the call. After [`DelegationError::Certificate`], all devices have their earlier keys and
    /// connections, and the repeated call returns the certificates that this call replaced. After another error, some
    /// of the devices may have new keys. These keys and the connections of these devices are lost, because the call does
    /// not return them.
    pub async fn server_compromised(&self, names: &[&str], by: &str) -> Result<Vec<Reachable>, DelegationError> {
        let devices = names.iter().map(|name| self.known(name)).collect::<Result<Vec<_>, _>>()?;
        self.audit.is_writable()?;
        let mut replaced = Vec::new();
        for name in names {
            let certificates = self.replace(name).await?;
            for ReplacedCertificate { serial, issuer, revoked, .. } in &certificates {
                let end = if *revoked { "and revoked" } else { "and must be revoked by its authority" };
                let message = format!("the certificate {serial} of {issuer} of the device {name} is replaced {end}");
                self.write_or_note(true, by, "certificate-replaced", message).await?;
            }
            replaced.push(certificates);
        }
        self.write_made().await?;
        let mut reachable = Vec::new();
        for (device, certificates) in devices.into_iter().zip(replaced) {
            let now = self.now();
            let mut connections = self.all_connections(&device).await?;
            connections.retain(|connection| u64::from(connection.expires) > now);
            let key = self.change_key(&device).await?;
            reachable.push(Reachable { device: device.name.clone(), key, connections, certificates });
        }
        self.revoke_peers(names, by).await?;
        for Reachable { device, connections, .. } in &reachable {
            self.write_changed_key(device, by).await?;
            let message = format!("the device {device}: {} connections were reachable", connections.len());
            self.write_or_note(true, by, "server-compromised", message).await?;
        }
        Ok(reachable)
    }
}
