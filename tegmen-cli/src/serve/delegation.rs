//! The server of delegated sessions, as a part of `tegmen serve`.

use super::access;
use super::config_file::Mistake;
use super::options::Delegation;
use super::store::Rows;
use crate::ca;
use crate::log::Log;
use crate::output::{Failure, runtime};
use crate::public_keys::{certificates, servers_of, signer};
use serde_json::json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tegmen::dtls::{CipherSuite, Suites};
use tegmen_control::delegation::{Certificates, Delegations, Pace, Rights};
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::x509::PeerVerifier;
use tokio::task::JoinSet;

/// The suite of the sessions of devices.
pub(crate) const SUITES: Suites = Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8]);
/// Time for which the certificate of a device is valid.
const VALID: Duration = Duration::from_secs(90 * 86_400);
/// Time before the end of a certificate in which another one is issued.
const RENEW: Duration = Duration::from_secs(30 * 86_400);

/// A server of delegated sessions that is open.
pub(crate) struct Role {
    pub(crate) server: Arc<Delegations<Rows>>,
}

impl Delegation {
    /// Returns all mistakes.
    pub(super) fn mistakes(&self, has_store: bool) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let needs = |key: &str, other: &str| Mistake::new(key, format!("it needs --{other}"));
        if !self.delegation_trust.is_empty() && self.delegation_ca.is_none() {
            mistakes.push(needs("delegation-trust", "delegation-ca"));
        }
        if !self.delegation_crl.is_empty() && self.delegation_trust.is_empty() {
            mistakes.push(needs("delegation-crl", "delegation-trust"));
        }
        let wrong = servers_of(&self.delegation_trust, &self.delegation_crl).err();
        mistakes.extend(wrong.map(|failure| Mistake::new("delegation-trust", failure.message)));
        let Some(dir) = &self.delegation_ca else { return mistakes };
        if !has_store {
            mistakes.push(needs("delegation-ca", "store"));
        }
        if !dir.join("index.json").is_file() {
            let dir = dir.display();
            mistakes.push(Mistake::new(
                "delegation-ca",
                format!("{dir} has no CA: make one with `tegmen ca init {dir}`, or correct the path"),
            ));
        }
        mistakes
    }

    /// Opens the server on the store of access control, and writes so to the log; `None` if the server has no such role.
    pub(super) fn open(&self, access: Option<&access::Role>, log: &Log) -> Result<Option<Role>, Failure> {
        let (Some(dir), Some(access)) = (&self.delegation_ca, access) else { return Ok(None) };
        let servers = servers_of(&self.delegation_trust, &self.delegation_crl)?;
        let role = runtime()?.block_on(Role::open(dir, servers, access))?;
        let devices = role.server.list(None, usize::MAX).len();
        log.always(
            || format!("delegated sessions for {devices} devices"),
            || json!({ "event": "delegation", "devices": devices }),
        );
        Ok(Some(role))
    }
}

impl Role {
    /// Opens the server on the store of access control. The CA in the directory issues the certificates of devices, which open sessions
    /// with `servers`.
    pub(crate) async fn open(
        dir: &Path,
        servers: Arc<dyn PeerVerifier>,
        access: &access::Role,
    ) -> Result<Self, Failure> {
        let (service, rows) = access.shared();
        let audit = service.audit().clone();
        let certificates = Arc::new(OfCa { dir: dir.to_owned(), servers, known: Mutex::default() });
        let rights: Arc<dyn Rights> = service;
        let server = Delegations::open(rows, rights, audit).await.map_err(Failure::usage)?;
        let server = server.with_certificates(certificates).await.map_err(Failure::usage)?;
        Ok(Self { server: Arc::new(server) })
    }

    /// Starts the task of the server on the runtime. It ends when the value is dropped.
    pub(crate) fn start(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let server = Arc::clone(&self.server);
        tasks.spawn(async move { server.run(Pace::default()).await });
        tasks
    }
}

/// The certificates of devices in the directory of a CA, which issues them.
struct OfCa {
    dir: PathBuf,
    /// The servers with which devices open sessions.
    servers: Arc<dyn PeerVerifier>,
    known: Mutex<HashMap<String, Arc<PublicKeys>>>,
}

impl OfCa {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<PublicKeys>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Certificates for OfCa {
    fn of(&self, device: &str) -> Option<Arc<PublicKeys>> {
        self.known().get(device).cloned()
    }

    fn prepare(&self, device: &str) -> Result<(), String> {
        let renewed_before = SystemTime::now().checked_add(RENEW).unwrap_or(SystemTime::now());
        let is_fresh = |keys: &PublicKeys| keys.certificate_expires().is_some_and(|end| end > renewed_before);
        if let Some(keys) = self.of(device).filter(|keys| is_fresh(keys)) {
            return keys.reload_if_changed().map(drop).map_err(|error| error.to_string());
        }
        let files = ca::device_files(&self.dir, device);
        let mut keys = if files.0.exists() { load(&files)? } else { issue(&self.dir, device, &files)? };
        if !is_fresh(&keys) {
            keys = issue(&self.dir, device, &files)?;
        }
        self.known().insert(device.to_owned(), Arc::new(keys.believing(Arc::clone(&self.servers))));
        Ok(())
    }
}

/// Issues a certificate for a device, and loads it.
fn issue(dir: &Path, device: &str, files: &(PathBuf, PathBuf)) -> Result<PublicKeys, String> {
    ca::issue_for_device(dir, device, VALID).map_err(|failure| failure.message)?;
    load(files)
}

/// Loads the certificate of a device, and its key.
fn load((certificate, key): &(PathBuf, PathBuf)) -> Result<PublicKeys, String> {
    let chain = certificates(certificate).map_err(|failure| failure.message)?;
    let signer = signer(key).map_err(|failure| failure.message)?;
    let keys = PublicKeys::new(SUITES).with_chain(&chain, signer);
    keys.map_err(|error| format!("{}: {error}", certificate.display()))
}
