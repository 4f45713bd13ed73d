//! Obtains certificates of devices from a certification authority over ACME (RFC 8555).
//!
//! A task obtains and renews the certificates one after the other, and handshakes read them from memory. The directory
//! of `--delegation-acme-dir` contains the account and, for each device, a file with its private key and its
//! certificate. Each file is durable before its content is used.

mod answers;
mod authority;

pub(super) use authority::{Settings, host_and_port};

use super::device_keys;
use crate::ca::{KeyType, draw_key};
use crate::files::{self, Readers, remove};
use crate::log::rfc3339;
use crate::public_keys::certificates;
use answers::Answers;
use authority::Authority;
use instant_acme::Account;
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tegmen_control::delegation::{Certificates, ReplacedCertificate};
use tegmen_host::hex::{from_hex, to_hex};
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::x509::signer::{Signer as _, SoftwareKey};
use tegmen_host::x509::{AllowedKey, CertificateInfo, PeerVerifier};
use tegmen_store::files::{beside, rename};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use zeroize::Zeroizing;

/// A certificate is renewed this long before it expires. A certificate with a validity of less than three times this
/// duration is renewed after two thirds of its validity.
const RENEW: Duration = Duration::from_secs(30 * 86_400);
/// The pause after the first failed attempt to obtain a certificate for a device. Each further pause is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(300);
/// Maximum pause after a failed attempt to obtain a certificate for a device.
const LONGEST_PAUSE: Duration = Duration::from_secs(12 * 3600);
/// Maximum time to obtain one certificate.
const PATIENCE: Duration = Duration::from_secs(240);
/// The longest time for which the task waits before it reads the clock of the system again. An operator may set this
/// clock at any time.
const LOOK: Duration = Duration::from_secs(600);
/// The suffix of the name of a file with a certificate that was replaced after a compromise of the server. The file
/// also contains the private key, with which an operator can ask the authority to revoke the certificate (RFC 8555,
/// section 7.6).
const REPLACED: &str = ".replaced";
/// The error of an attempt to obtain a certificate for a private key that was replaced during the attempt.
const REPLACED_MEANWHILE: &str = "its private key was replaced meanwhile";

/// The certificates that an authority issues for devices.
pub(super) struct OfAcme {
    authority: Authority,
    dir: PathBuf,
    /// A verifier of the servers with which devices open sessions.
    servers: Arc<dyn PeerVerifier>,
    devices: Mutex<BTreeMap<String, Device>>,
    /// A lock that is held while the files of a device change.
    files: Mutex<()>,
    answers: Arc<Answers>,
    wanted: Notify,
}

/// The certificate of a device, and the attempts to obtain it.
struct Device {
    keys: Option<Arc<PublicKeys>>,
    /// The time of the next attempt to obtain a certificate.
    due: SystemTime,
    failures: u32,
    problem: Option<String>,
    /// The number of replacements of the private key. An attempt that began before a replacement has no effect.
    replacements: u32,
    /// True if a replacement has begun, and files with the replaced private key may still have their names. No attempt to
    /// obtain a certificate begins then, because it would use the replaced private key.
    is_replacing: bool,
}

impl OfAcme {
    pub(super) fn new(settings: Settings, servers: Arc<dyn PeerVerifier>) -> Self {
        let dir = settings.dir.clone();
        let (devices, files, answers, wanted) = (Mutex::default(), Mutex::default(), Arc::default(), Notify::new());
        Self { authority: Authority::new(settings), dir, servers, devices, files, answers, wanted }
    }

    /// Starts two tasks on the runtime. One task obtains certificates. The other task answers the challenges of the
    /// authority at `listener`. Both tasks end when `tasks` is dropped.
    pub(super) fn start(self: &Arc<Self>, listener: TcpListener, tasks: &mut JoinSet<()>) {
        tasks.spawn(answers::serve(listener, Arc::clone(&self.answers)));
        let certificates = Arc::clone(self);
        tasks.spawn(async move { certificates.obtain_always().await });
    }

    fn devices(&self) -> MutexGuard<'_, BTreeMap<String, Device>> {
        self.devices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn obtain_always(&self) {
        let mut account = None;
        loop {
            let first = {
                let devices = self.devices();
                let first =
                    devices.iter().filter(|(_, device)| !device.is_replacing).min_by_key(|(_, device)| device.due);
                first.map(|(name, device)| (name.clone(), device.due, device.replacements))
            };
            let left =
                first.as_ref().map_or(LOOK, |(_, due, _)| due.duration_since(SystemTime::now()).unwrap_or_default());
            match first {
                Some((device, _, replacements)) if left.is_zero() => {
                    let late = |_| Err(format!("it was not finished after {} s", PATIENCE.as_secs()));
                    let obtained =
                        tokio::time::timeout(PATIENCE, self.obtain(&mut account, &device, replacements)).await;
                    let obtained = obtained.unwrap_or_else(late);
                    if obtained.is_err() {
                        // The directory of the authority is read again.
                        account = None;
                    }
                    self.note(&device, replacements, obtained);
                }
                _ => drop(tokio::time::timeout(left.min(LOOK), self.wanted.notified()).await),
            }
        }
    }

    /// Makes a new private key for a device, and obtains a certificate for this key. Fails if the private key of the
    /// device was replaced meanwhile: `replacements` is the number of replacements when the attempt began.
    async fn obtain(&self, account: &mut Option<Account>, device: &str, replacements: u32) -> Result<Held, String> {
        let account = match account {
            Some(account) => account,
            None => account.insert(self.authority.account().await?),
        };
        let key = || self.draft_key(device, replacements);
        let (key, chain) = self.authority.certificate(account, device, key, &self.answers).await?;
        self.take(device, replacements, &key, &chain)
    }

    /// Returns the private key for which a certificate of a device is requested, after it is durable. Makes a new key
    /// unless an attempt that was cut off has left one. Fails if the private key of the device was replaced.
    fn draft_key(&self, device: &str, replacements: u32) -> Result<Zeroizing<String>, String> {
        let _files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_current(device, replacements) {
            return Err(REPLACED_MEANWHILE.to_owned());
        }
        let draft = self.draft(device);
        if !draft.exists() {
            let key = draw_key(KeyType::P256).map_err(|failure| failure.message)?;
            files::write(&draft, key.as_bytes(), Readers::Owner).map_err(|failure| failure.message)?;
        }
        files::read_secret(&draft)
    }

    /// Writes a certificate that the authority issued, and its private key, to the file of the device. If the private
    /// key was replaced meanwhile, writes them to a file from which an operator asks for the revocation, and fails.
    fn take(&self, device: &str, replacements: u32, key: &str, chain: &str) -> Result<Held, String> {
        only_certificates(chain)?;
        let both = Zeroizing::new([key, "\n", chain].concat());
        let file = self.file(device);
        let _files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = beside(&file, "obtained");
        files::write(&taken, both.as_bytes(), Readers::Owner).map_err(|failure| failure.message)?;
        if !self.is_current(device, replacements) {
            let kept = self.keep_replaced(device, &taken)?;
            let kept = kept.display();
            tracing::warn!(
                "delegation: the authority issued a certificate of {device} for a key that was replaced meanwhile: \
                 ask the authority to revoke the certificate in {kept}"
            );
            remove(&self.replaced_draft(device, key)?).map_err(|failure| failure.message)?;
            return Err(REPLACED_MEANWHILE.to_owned());
        }
        // The one before stays in use if the new one cannot be used.
        self.load(&taken, device)?;
        rename(&taken, &file).map_err(|error| format!("{}: {error}", file.display()))?;
        let _ = std::fs::remove_file(self.draft(device));
        self.load(&file, device)
    }

    /// Returns true if the private key of a device was not replaced since an attempt began, and no replacement is
    /// incomplete. `replacements` is the number of replacements when the attempt began.
    fn is_current(&self, device: &str, replacements: u32) -> bool {
        let devices = self.devices();
        devices.get(device).is_some_and(|device| device.replacements == replacements && !device.is_replacing)
    }

    /// Moves a file with a private key and its certificate to the file `NAME.SERIAL.replaced`. Returns the new path.
    fn keep_replaced(&self, device: &str, file: &Path) -> Result<PathBuf, String> {
        let serial = to_hex(&own_certificate(file)?.serial);
        let kept = self.dir.join(format!("{device}.{serial}{REPLACED}"));
        rename(file, &kept).map_err(|error| format!("{}: {error}", file.display()))?;
        Ok(kept)
    }

    /// Returns the path of the file for a replaced private key for which a certificate may exist that the server did
    /// not receive. The name contains SHA-256 of the public key.
    fn replaced_draft(&self, device: &str, key: &str) -> Result<PathBuf, String> {
        let key = SoftwareKey::from_pem(key.as_bytes())?;
        let digest = to_hex(&AllowedKey::of(key.public_key(), "").digest);
        Ok(self.dir.join(format!("{device}.{digest}.key{REPLACED}")))
    }

    /// Keeps the private key of an attempt that did not end, because the authority may have issued a certificate for
    /// this key.
    fn keep_draft(&self, device: &str) -> Result<(), String> {
        let draft = self.draft(device);
        if !draft.exists() {
            return Ok(());
        }
        let wrong = |why| format!("{}: {why}: move it away", draft.display());
        let kept = self.replaced_draft(device, &files::read_secret(&draft)?).map_err(wrong)?;
        rename(&draft, &kept).map_err(|error| format!("{}: {error}", draft.display()))?;
        let kept = kept.display();
        tracing::warn!(
            "delegation: the authority may have issued a certificate of {device} for the replaced key in {kept}: \
             ask the authority to revoke each certificate with this key"
        );
        Ok(())
    }

    /// Stores the result of an attempt to obtain a certificate for a device, and sets the time of the next attempt. Does
    /// nothing if the private key of the device was replaced during the attempt.
    fn note(&self, name: &str, replacements: u32, obtained: Result<Held, String>) {
        let now = SystemTime::now();
        let mut devices = self.devices();
        let device = devices.get_mut(name).filter(|device| device.replacements == replacements);
        let Some(device) = device else { return };
        let failures = device.failures.saturating_add(1);
        let pause = FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(8)).min(LONGEST_PAUSE);
        let again = now.checked_add(pause).unwrap_or(now);
        match obtained {
            Ok(Held { keys, due }) if due > now => {
                tracing::info!("delegation: {name} has a certificate, which is renewed at {}", rfc3339(due));
                *device = Device { keys: Some(Arc::new(keys)), due, ..Device::due(replacements, None) };
            }
            Ok(Held { keys, .. }) => {
                let problem =
                    Some("the authority issued a certificate that ends at once: compare the clocks".to_owned());
                let keys = Some(Arc::new(keys));
                *device = Device { keys, due: again, failures, ..Device::due(replacements, problem) };
            }
            Err(why) => {
                tracing::warn!("delegation: no certificate for {name}: {why}");
                device.problem = Some(format!("{why}. The next attempt is at {}", rfc3339(again)));
                (device.due, device.failures) = (again, failures);
            }
        }
    }

    /// Returns the path of the file with the private key for which a certificate of a device is requested. The file
    /// exists only if the authority may have received the request.
    fn draft(&self, device: &str) -> PathBuf {
        self.dir.join(format!("{device}.key"))
    }

    /// Returns the path of the file with the private key and the certificate of a device.
    fn file(&self, device: &str) -> PathBuf {
        self.dir.join(format!("{device}.pem"))
    }

    /// Returns the certificates of a device in the files that [`Certificates::replace`] kept, without those that have
    /// expired.
    fn replaced(&self, device: &str) -> Result<Vec<ReplacedCertificate>, String> {
        let wrong = |error| format!("{}: {error}", self.dir.display());
        let mut replaced = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(wrong)? {
            let file = entry.map_err(wrong)?.path();
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let serial = name.strip_prefix(device).and_then(|rest| rest.strip_prefix('.'));
            if serial.and_then(|rest| rest.strip_suffix(REPLACED)).is_none_or(|serial| from_hex(serial).is_none()) {
                continue;
            }
            let CertificateInfo { serial, issuer, not_after, .. } = own_certificate(&file)?;
            if not_after > SystemTime::now() {
                let expires = not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
                replaced.push(ReplacedCertificate { serial: to_hex(&serial), issuer, expires, revoked: false });
            }
        }
        Ok(replaced)
    }

    /// Loads the private key and the certificate of a device from a file.
    fn load(&self, file: &Path, device: &str) -> Result<Held, String> {
        let own = own_certificate(file)?;
        if !own.names.iter().any(|name| name.eq_ignore_ascii_case(device)) {
            return Err(format!("{}: the certificate is not of {device}", file.display()));
        }
        let keys = device_keys::load(file, file)?.believing(Arc::clone(&self.servers));
        Ok(Held { keys, due: renewal(own.not_before, own.not_after) })
    }
}

impl Device {
    /// Makes a device without a certificate. The server obtains the certificate as soon as it can.
    const fn due(replacements: u32, problem: Option<String>) -> Self {
        let due = SystemTime::UNIX_EPOCH;
        Self { keys: None, due, failures: 0, problem, replacements, is_replacing: false }
    }
}

/// Reads the first certificate in a file, which is the certificate of the device.
fn own_certificate(file: &Path) -> Result<CertificateInfo, String> {
    let chain = certificates(file).map_err(|failure| failure.message)?;
    let own = chain.first().and_then(|own| CertificateInfo::parse(own));
    own.ok_or_else(|| format!("{}: no certificate that can be read", file.display()))
}

/// The certificate of a device with its private key, and the time at which the certificate is renewed.
struct Held {
    keys: PublicKeys,
    due: SystemTime,
}

/// Verifies that a chain in PEM contains only certificates (RFC 8555, section 11.4). The error names the first
/// other part.
fn only_certificates(chain: &str) -> Result<(), String> {
    let mut labels = chain.split("-----BEGIN").skip(1).map(|part| part.split("-----").next().unwrap_or(part));
    match labels.find(|label| *label != " CERTIFICATE") {
        Some(other) => {
            let other: String = other.trim().chars().take(40).collect();
            Err(format!("the authority sent {other:?} in the chain of certificates"))
        }
        None => Ok(()),
    }
}

/// Returns the time at which a certificate that is valid from `begin` to `end` is renewed.
fn renewal(begin: SystemTime, end: SystemTime) -> SystemTime {
    let third = end.duration_since(begin).unwrap_or_default() / 3;
    end.checked_sub(third.min(RENEW)).unwrap_or(begin)
}

impl Certificates for OfAcme {
    fn of(&self, device: &str) -> Option<Arc<PublicKeys>> {
        self.devices().get(device)?.keys.clone()
    }

    fn prepare(&self, device: &str) -> Result<(), String> {
        if let Some(keys) = self.of(device) {
            return keys.reload_if_changed().map(drop).map_err(|error| error.to_string());
        }
        if self.devices().contains_key(device) {
            return Ok(());
        }
        let mut new = Device::due(0, None);
        let file = self.file(device);
        match file.exists().then(|| self.load(&file, device)) {
            Some(Ok(Held { keys, due })) => (new.keys, new.due) = (Some(Arc::new(keys)), due),
            Some(Err(why)) => new.problem = Some(why),
            None => new.problem = Some("the authority has not issued it yet".to_owned()),
        }
        self.devices().entry(device.to_owned()).or_insert(new);
        self.wanted.notify_one();
        Ok(())
    }

    fn replace(&self, device: &str) -> Result<Vec<ReplacedCertificate>, String> {
        let _files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut devices = self.devices();
            let replacements = devices.get(device).map_or(0, |before| before.replacements.saturating_add(1));
            let problem =
                Some("its private key is replaced, and files with that key are not moved: repeat it".to_owned());
            devices.insert(device.to_owned(), Device { is_replacing: true, ..Device::due(replacements, problem) });
        }
        let file = self.file(device);
        if file.exists() {
            self.keep_replaced(device, &file)?;
        }
        self.keep_draft(device)?;
        if let Some(device) = self.devices().get_mut(device) {
            let problem = "its private key was replaced, and the authority has not issued a certificate";
            (device.is_replacing, device.problem) = (false, Some(problem.to_owned()));
        }
        self.wanted.notify_one();
        self.replaced(device)
    }

    fn problem(&self, device: &str) -> Option<String> {
        self.devices().get(device)?.problem.clone()
    }
}

#[cfg(test)]
mod tests;
