//! The server of delegated sessions, as a part of `tegmen serve`.

use super::acme::{self, OfAcme, Settings};
use super::config_file::Mistake;
use super::options::Delegation;
use super::store::Rows;
use super::{access, device_keys};
use crate::ca;
use crate::log::Log;
use crate::output::{Failure, runtime};
use crate::public_keys::servers_of;
use serde_json::json;
use std::collections::{HashMap, HashSet};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tegmen_admin::LoginAuthority;
use tegmen_control::delegation::{Certificates, Delegations, Pace, ReplacedCertificate, Rights};
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::x509::PeerVerifier;
use tokio::task::JoinSet;

/// The lifetime of the certificate of a device, if the CA of this server issues it.
const VALID: Duration = Duration::from_secs(90 * 86_400);
/// A certificate is renewed this long before it expires.
const RENEW: Duration = Duration::from_secs(30 * 86_400);

/// The role of a server of delegated sessions, with its open store.
pub(crate) struct Role {
    pub(crate) server: Arc<Delegations<Rows>>,
    /// The authority that issues certificates to users who log in; `None` if the server has no CA of its own.
    pub(crate) logins: Option<Arc<dyn LoginAuthority>>,
    acme: Option<Acme>,
}

/// The certificates of devices that ACME obtains, and the listener for the challenges of the authority.
struct Acme {
    certificates: Arc<OfAcme>,
    listener: TcpListener,
}

impl Delegation {
    /// Returns all mistakes in the settings of delegated sessions.
    pub(super) fn mistakes(&self, has_store: bool) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let needs = |key: &str, other: &str| Mistake::new(key, format!("it needs --{other}"));
        let source = match (&self.delegation_ca, &self.delegation_acme) {
            (Some(_), _) => Some("delegation-ca"),
            (None, acme) => acme.as_ref().map(|_| "delegation-acme"),
        };
        if !self.delegation_trust.is_empty() && source.is_none() {
            mistakes.push(needs("delegation-trust", "delegation-ca or --delegation-acme"));
        }
        if !self.delegation_crl.is_empty() && self.delegation_trust.is_empty() {
            mistakes.push(needs("delegation-crl", "delegation-trust"));
        }
        let wrong = servers_of(&self.delegation_trust, &self.delegation_crl).err();
        mistakes.extend(wrong.map(|failure| Mistake::new("delegation-trust", failure.message)));
        mistakes.extend(self.mistakes_of_acme());
        mistakes.extend(source.filter(|_| !has_store).map(|key| needs(key, "store")));
        let without_ca = self.delegation_ca.as_ref().filter(|dir| !dir.join("index.json").is_file());
        mistakes.extend(without_ca.map(|dir| {
            let dir = dir.display();
            let why = format!("{dir} has no CA: make one with `tegmen ca init {dir}`, or correct the path");
            Mistake::new("delegation-ca", why)
        }));
        mistakes
    }

    /// Returns the mistakes in the settings of ACME.
    fn mistakes_of_acme(&self) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let Some(directory) = &self.delegation_acme else {
            let others = [
                ("delegation-acme-dir", self.delegation_acme_dir.is_some()),
                ("delegation-acme-contact", self.delegation_acme_contact.is_some()),
                ("delegation-acme-binding", self.delegation_acme_binding.is_some()),
            ];
            let needless = others.into_iter().filter(|(_, is_given)| *is_given);
            return needless.map(|(key, _)| Mistake::new(key, "it needs --delegation-acme")).collect();
        };
        if acme::host_and_port(directory).is_none() {
            mistakes.push(Mistake::new("delegation-acme", format!("{directory}: write it as https://HOST/PATH")));
        }
        match self.acme() {
            None => mistakes.push(Mistake::new("delegation-acme", "it needs --delegation-acme-dir")),
            Some(settings) => {
                if !settings.dir.is_dir() {
                    let dir = settings.dir.display();
                    let why =
                        format!("{dir} is not a directory: create it (mkdir -p -m 700 {dir}), or correct the path");
                    mistakes.push(Mistake::new("delegation-acme-dir", why));
                }
                mistakes.extend(settings.client().err().map(|why| Mistake::new("delegation-acme-trust", why)));
                mistakes.extend(settings.binding().err().map(|why| Mistake::new("delegation-acme-binding", why)));
            }
        }
        mistakes
    }

    /// Returns the settings of ACME, if the certificates of devices come from ACME.
    fn acme(&self) -> Option<Settings> {
        Some(Settings {
            directory: self.delegation_acme.clone()?,
            dir: self.delegation_acme_dir.clone()?,
            contact: self.delegation_acme_contact.clone(),
            trust: self.delegation_acme_trust.clone(),
            binding: self.delegation_acme_binding.clone(),
        })
    }

    /// Opens the certificates that ACME obtained, and the listener for the challenges. Returns `None` if the
    /// certificates of devices do not come from ACME.
    fn open_acme(&self, servers: &Arc<dyn PeerVerifier>, log: &Log) -> Result<Option<Acme>, Failure> {
        let Some(settings) = self.acme() else { return Ok(None) };
        let address = self.delegation_acme_listen;
        let listener = TcpListener::bind(address).map_err(|error| {
            Failure::usage(format!(
                "--delegation-acme-listen: nothing can be served at {address}: {error}; choose another port, to which port 80 of the \
                 devices leads"
            ))
        })?;
        let at = listener.local_addr().unwrap_or(address);
        log.always(
            || format!("challenges of {} are answered at http://{at}/", settings.directory),
            || json!({ "event": "challenges", "address": at.to_string() }),
        );
        Ok(Some(Acme { certificates: Arc::new(OfAcme::new(settings, Arc::clone(servers))), listener }))
    }

    /// Opens the server of delegated sessions, which uses the store of access control. Logs the number of its devices.
    /// Returns `None` if the options configure no such server.
    pub(super) fn open(&self, access: Option<&access::Role>, log: &Log) -> Result<Option<Role>, Failure> {
        let Some(access) = access else { return Ok(None) };
        let servers = servers_of(&self.delegation_trust, &self.delegation_crl)?;
        let acme = self.open_acme(&servers, log)?;
        let certificates: Arc<dyn Certificates> = match (&self.delegation_ca, &acme) {
            (Some(dir), _) => of_ca(dir, servers),
            (None, Some(acme)) => Arc::clone(&acme.certificates) as _,
            (None, None) => return Ok(None),
        };
        let logins = self.delegation_ca.as_deref().map(ca::Logins::open).transpose()?;
        let logins = logins.map(|logins| Arc::new(logins) as Arc<dyn LoginAuthority>);
        let role = Role { acme, logins, ..runtime()?.block_on(Role::open(certificates, access))? };
        let devices = role.server.list(None, usize::MAX).len();
        log.always(
            || format!("delegated sessions for {devices} devices"),
            || json!({ "event": "delegation", "devices": devices }),
        );
        Ok(Some(role))
    }
}

impl Role {
    /// Opens the server of delegated sessions, which uses the store of access control. `certificates` are the
    /// certificates of devices.
    pub(crate) async fn open(certificates: Arc<dyn Certificates>, access: &access::Role) -> Result<Self, Failure> {
        let (service, rows) = access.shared();
        let audit = service.audit().clone();
        let rights: Arc<dyn Rights> = service;
        let server = Delegations::open(rows, rights, audit).await.map_err(Failure::usage)?;
        let server = server.with_certificates(certificates).await.map_err(Failure::usage)?;
        Ok(Self { server: Arc::new(server), logins: None, acme: None })
    }

    /// Starts the tasks of the server on the runtime. They end when the returned value is dropped.
    pub(crate) fn start(&self) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let server = Arc::clone(&self.server);
        tasks.spawn(async move { server.run(Pace::default()).await });
        if let Some(Acme { certificates, listener }) = &self.acme {
            match listener.try_clone() {
                Ok(listener) => certificates.start(listener, &mut tasks),
                Err(error) => tracing::error!("delegation: challenges are not answered: {error}"),
            }
        }
        tasks
    }
}

/// Returns the certificates of devices that the CA in a directory issues. `servers` verifies the servers with which the
/// devices open sessions.
pub(crate) fn of_ca(dir: &Path, servers: Arc<dyn PeerVerifier>) -> Arc<dyn Certificates> {
    Arc::new(OfCa {
        dir: dir.to_owned(),
        servers,
        known: Mutex::default(),
        problems: Mutex::default(),
        unfinished: Mutex::default(),
    })
}

/// The certificates of devices in the directory of the CA that issues them.
struct OfCa {
    dir: PathBuf,
    /// A verifier of the servers with which devices open sessions.
    servers: Arc<dyn PeerVerifier>,
    known: Mutex<HashMap<String, Arc<PublicKeys>>>,
    /// The devices whose last attempt to make a certificate failed, each with the reason.
    problems: Mutex<HashMap<String, String>>,
    /// The devices whose last replacement failed. Their files may still contain the earlier private key. The lock is
    /// held while the files of a device change.
    unfinished: Mutex<HashSet<String>>,
}

impl OfCa {
    fn known(&self) -> MutexGuard<'_, HashMap<String, Arc<PublicKeys>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unfinished(&self) -> MutexGuard<'_, HashSet<String>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Certificates for OfCa {
    fn of(&self, device: &str) -> Option<Arc<PublicKeys>> {
        self.known().get(device).cloned()
    }

    fn prepare(&self, device: &str) -> Result<(), String> {
        let made = self.make(device);
        self.note(device, made.as_ref().copied());
        made
    }

    fn replace(&self, device: &str) -> Result<Vec<ReplacedCertificate>, String> {
        let mut unfinished = self.unfinished();
        unfinished.insert(device.to_owned());
        // No handshake uses the old key any more, even if the CA fails.
        self.known().remove(device);
        let replaced = ca::replace_for_device(&self.dir, device, VALID).map_err(|failure| failure.message);
        let replaced = replaced.and_then(|replaced| {
            let (certificate, key) = ca::device_files(&self.dir, device);
            self.insert(device, device_keys::load(&certificate, &key)?);
            unfinished.remove(device);
            Ok(replaced)
        });
        self.note(device, replaced.as_ref().map(drop));
        replaced
    }

    fn problem(&self, device: &str) -> Option<String> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).get(device).cloned()
    }
}

impl OfCa {
    /// Stores the problem if the certificate of a device could not be made, and removes the problem otherwise.
    fn note(&self, device: &str, made: Result<(), &String>) {
        let mut problems = self.problems.lock().unwrap_or_else(PoisonError::into_inner);
        match made {
            Ok(()) => drop(problems.remove(device)),
            Err(why) => drop(problems.insert(device.to_owned(), why.clone())),
        }
    }

    /// Makes the certificate of a device, unless a certificate exists that does not expire soon. Loads the certificate.
    fn make(&self, device: &str) -> Result<(), String> {
        let mut unfinished = self.unfinished();
        let renewed_before = SystemTime::now().checked_add(RENEW).unwrap_or(SystemTime::now());
        let is_fresh = |keys: &PublicKeys| keys.certificate_expires().is_some_and(|end| end > renewed_before);
        if let Some(keys) = self.of(device).filter(|keys| is_fresh(keys)) {
            return keys.reload_if_changed().map(drop).map_err(|error| error.to_string());
        }
        if unfinished.contains(device) {
            ca::remove_device_files(&self.dir, device).map_err(|failure| failure.message)?;
        }
        let (certificate, key) = ca::device_files(&self.dir, device);
        let load = || device_keys::load(&certificate, &key);
        let found = if certificate.exists() && key.exists() { Some(load()?) } else { None };
        let keys = match found.filter(is_fresh) {
            Some(keys) => keys,
            None => {
                ca::issue_for_device(&self.dir, device, VALID).map_err(|failure| failure.message)?;
                load()?
            }
        };
        self.insert(device, keys);
        unfinished.remove(device);
        Ok(())
    }

    /// Uses a certificate and its private key in the handshakes of a device from now on.
    fn insert(&self, device: &str, keys: PublicKeys) {
        self.known().insert(device.to_owned(), Arc::new(keys.believing(Arc::clone(&self.servers))));
    }
}

#[cfg(test)]
mod tests;
