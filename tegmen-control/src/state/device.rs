//! Devices and services: the parties that a server knows. The server recognizes each party by its credential.

use crate::access::ace::Profile;
use crate::access::ace::cwt::LONG_KEY_LEN;
use crate::access::enrolment;
use crate::access::introspection::{Publisher, ResourceServer};
use crate::access::policy::OwnedParty;
use crate::access::protokey::{MAX_PUBLISHER, Mode, Protokey, SessionIdentity};
use crate::access::revocation::list_key;
use crate::upload::SERVER_IDENTITY;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::OnceLock;
use tegmen_base::crypto::DIGEST_LEN;
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_base::secret::Secret;
use tegmen_host::credentials::Credentials;
use tegmen_host::digest::Digest;
use tegmen_host::provider::HostCrypto;
use tegmen_store::store::Entry;
use tegmen_store::{Revision, Value};
use zeroize::Zeroizing;

/// The credential by which a server knows a device, without secrets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Credential {
    /// A certificate, by the SHA-256 of its DER.
    Certificate([u8; DIGEST_LEN]),
    /// A raw public key, by the SHA-256 of its SubjectPublicKeyInfo.
    PublicKey([u8; DIGEST_LEN]),
    /// A key that the device shares with the server, for sessions between the two.
    SharedKey,
    /// A protokey: a secret from which the keys of the device's sessions with subscribers are derived.
    Protokey(Mode),
    /// A key of 32 bytes under which the server seals tokens of the OSCORE profile (RFC 9203) for the device.
    Oscore,
    /// A key of 32 bytes for tokens of the profile of EDHOC and OSCORE (draft-ietf-ace-edhoc-oscore-profile).
    Edhoc,
}

impl Credential {
    /// Returns the name of the kind of this credential, as files and commands write this name.
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Certificate(_) => "certificate",
            Self::PublicKey(_) => "public-key",
            Self::SharedKey => "shared-key",
            Self::Protokey(Mode::Bound) => "protokey",
            Self::Protokey(Mode::Paper) => "protokey-paper",
            Self::Oscore => "oscore",
            Self::Edhoc => "edhoc",
        }
    }

    /// Returns the SHA-256 of a certificate or a raw public key; `None` for another kind of credential.
    pub const fn digest(self) -> Option<[u8; DIGEST_LEN]> {
        match self {
            Self::Certificate(digest) | Self::PublicKey(digest) => Some(digest),
            Self::SharedKey | Self::Protokey(_) | Self::Oscore | Self::Edhoc => None,
        }
    }

    /// Returns the credential of this kind. Returns `None` if the kind is unknown, if the kind needs a digest and none
    /// is given, or if the kind has no digest and one is given.
    pub fn of(kind: &str, digest: Option<[u8; DIGEST_LEN]>) -> Option<Self> {
        Some(match (kind, digest) {
            ("certificate", Some(digest)) => Self::Certificate(digest),
            ("public-key", Some(digest)) => Self::PublicKey(digest),
            ("shared-key", None) => Self::SharedKey,
            ("protokey", None) => Self::Protokey(Mode::Bound),
            ("protokey-paper", None) => Self::Protokey(Mode::Paper),
            ("oscore", None) => Self::Oscore,
            ("edhoc", None) => Self::Edhoc,
            _ => return None,
        })
    }
}

/// A device or service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Device {
    /// The name and the tags of the device.
    pub party: OwnedParty,
    /// The credential of the device.
    pub credential: Credential,
    /// True if the device is disabled: it has no rights, and nobody may get the key of a session with it.
    pub disabled: bool,
    /// The address at which the device takes tokens from this server, if the device is a publisher with a protokey.
    /// `None` if the server cannot send tokens to the device.
    pub address: Option<SocketAddr>,
}

impl Device {
    /// Returns the name of the device.
    pub fn name(&self) -> &str {
        self.party.party().name
    }
}

/// A device to be added, with its secret if its credential contains one.
#[derive(Debug)]
pub struct NewDevice {
    pub(super) device: Device,
    pub(super) secret: Option<Protokey>,
}

impl NewDevice {
    /// Makes a device with a certificate or a raw public key.
    ///
    /// # Errors
    /// A text that explains how to correct the mistake, if this kind of credential contains a secret, or if a new device
    /// cannot have this name.
    pub fn public(party: OwnedParty, credential: Credential) -> Result<Self, String> {
        check_name(party.party().name)?;
        if credential.digest().is_none() {
            return Err("a shared key and a protokey need their 16 to 64 bytes, and a key for tokens its 32".to_owned());
        }
        Ok(Self { device: Device { party, credential, disabled: false, address: None }, secret: None })
    }

    /// Makes a device with a secret: a shared key or a protokey of 16 to 64 bytes, or a key of 32 bytes that seals
    /// tokens.
    ///
    /// # Errors
    /// A text that explains how to correct one of these mistakes: the credential contains no secret, the secret has a
    /// wrong length, a new device cannot have this name, or the name of a device with a protokey or a key for tokens
    /// cannot be part of a session identity.
    pub fn secret(party: OwnedParty, credential: Credential, secret: &[u8]) -> Result<Self, String> {
        check_name(party.party().name)?;
        if credential.digest().is_some() {
            return Err("a certificate and a raw public key have no secret: give their SHA-256 alone".to_owned());
        }
        let name = party.party().name;
        let as_identity = format!("{name};AAAAAAAAAAAA");
        let is_audience = credential != Credential::SharedKey;
        if is_audience && SessionIdentity::parse(as_identity.as_bytes()).is_none() {
            return Err(format!(
                "the name of a device for which there are keys or tokens has 1 to {MAX_PUBLISHER} of the characters 0-9 A-Z a-z : . _ -; \
                 this is {}",
                name.escape_debug()
            ));
        }
        if matches!(credential, Credential::Oscore | Credential::Edhoc) && secret.len() != LONG_KEY_LEN {
            return Err(format!("a key for tokens has {LONG_KEY_LEN} bytes; this has {}", secret.len()));
        }
        let secret = Protokey::new(secret)
            .ok_or_else(|| format!("a shared key and a protokey have 16 to 64 bytes; this has {}", secret.len()))?;
        Ok(Self { device: Device { party, credential, disabled: false, address: None }, secret: Some(secret) })
    }

    /// Sets the address at which the device takes tokens from the server.
    ///
    /// # Errors
    /// A text that explains how to correct one of these mistakes: the device is no publisher with a protokey, or the
    /// address is not the address of a single device.
    pub fn at(mut self, address: SocketAddr) -> Result<Self, String> {
        if self.device.credential != Credential::Protokey(Mode::Bound) {
            return Err("only a device of the kind protokey takes tokens: leave out the address".to_owned());
        }
        let ip = address.ip();
        if address.port() == 0 || ip.is_unspecified() || ip.is_multicast() {
            return Err(format!("{address} is no address of one device: give its IP address and its UDP port"));
        }
        self.device.address = Some(address);
        Ok(self)
    }

    /// Returns the device without its secret.
    pub const fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the secret, if the credential contains one.
    pub(crate) fn secret_bytes(&self) -> Option<&[u8]> {
        self.secret.as_ref().map(Protokey::expose)
    }

    pub(super) fn value(&self) -> Value {
        value(&self.device, self.secret.as_ref())
    }
}

/// Checks the name of a new device. The name must not be a PSK identity of another kind: that of a device that enrols,
/// that of the access control server, or a session identity, which contains a semicolon. If the name is one of these,
/// returns a text that explains how to correct it.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if enrolment::name_of(name).is_some() || name == SERVER_IDENTITY || name.contains(';') {
        return Err(format!(
            "the name of a device has no ; and does not begin with \"enrol \", and is not \"{SERVER_IDENTITY}\"; this is {}",
            name.escape_debug()
        ));
    }
    Ok(())
}

/// A device, with its secret and with the revisions of its row.
pub(super) struct Known {
    pub(super) device: Device,
    pub(super) secret: Option<Protokey>,
    /// The digest of [`Self::session_key`], which is computed at its first use.
    key_digest: OnceLock<Option<Digest>>,
    /// The revision that added the device.
    pub(super) created: Revision,
    /// The revision that changed the row last.
    pub(super) changed: Revision,
}

/// The JSON text at the beginning of the value of a device's row.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record<'r> {
    #[serde(borrow)]
    kind: Cow<'r, str>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    disabled: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<SocketAddr>,
}

impl Known {
    pub(super) fn value(&self) -> Value {
        value(&self.device, self.secret.as_ref())
    }

    /// Reads the device `name` from its row. Returns the fault as text if the row is not valid.
    pub(super) fn read(name: &str, entry: &Entry) -> Result<Self, String> {
        let (text, secret) = match &entry.value {
            Value::Plain(text) => (text.as_slice(), None),
            Value::Secret(bytes) => {
                let at = bytes.iter().position(|byte| *byte == 0).ok_or("it has no secret")?;
                let (text, secret) = bytes.split_at_checked(at).ok_or("it has no secret")?;
                let secret = secret.get(1..).and_then(Protokey::new).ok_or("its secret has not 16 to 64 bytes")?;
                (text, Some(secret))
            }
            Value::Number(_) => return Err("it is a number".to_owned()),
        };
        let record: Record<'_> = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let digest = match record.sha256 {
            None => None,
            Some(digits) => {
                let digest = from_hex(&digits).and_then(|digest| digest.try_into().ok());
                Some(digest.ok_or("its digest has not 64 hexadecimal digits")?)
            }
        };
        let credential = Credential::of(&record.kind, digest).ok_or("its kind does not go with its digest")?;
        if secret.is_some() == digest.is_some() {
            return Err("its kind does not go with its secret".to_owned());
        }
        let party = OwnedParty::new(name, record.tags)?;
        let device = Device { party, credential, disabled: record.disabled, address: record.address };
        let key_digest = OnceLock::new();
        Ok(Self { device, secret, key_digest, created: entry.created, changed: entry.changed })
    }

    /// Returns the same row with another device and another secret.
    pub(super) fn with(self, device: Device, secret: Option<Protokey>) -> Self {
        Self { device, secret, key_digest: OnceLock::new(), ..self }
    }

    /// Returns the pre-shared key of the sessions between the server and the device, also for a disabled device.
    /// Returns `None` if the device has no such key.
    fn session_key(&self) -> Option<Zeroizing<Vec<u8>>> {
        let secret = self.secret.as_ref()?.expose();
        match self.device.credential {
            Credential::SharedKey => Some(Zeroizing::new(secret.to_vec())),
            Credential::Oscore | Credential::Edhoc => {
                let mut key = Secret::<LONG_KEY_LEN>::zeroed();
                *key.expose_mut() = secret.try_into().ok()?;
                Some(Zeroizing::new(list_key::<HostCrypto>(&key).expose().to_vec()))
            }
            Credential::Certificate(_) | Credential::PublicKey(_) | Credential::Protokey(_) => None,
        }
    }

    /// Returns true if the device has a pre-shared key for sessions with the server, and `digest` is the
    /// [digest](Credentials::digest_of_key) of this key or is not known.
    pub(super) fn has_session_key(&self, digest: Option<&Digest>) -> bool {
        let own = self.key_digest.get_or_init(|| self.session_key().map(|key| Credentials::digest_of_key(&key)));
        own.is_some_and(|own| digest.is_none_or(|digest| own == *digest))
    }

    /// Returns true if the device that had this name at the revision `since` is disabled now, or was removed.
    pub(super) fn has_left(&self, since: Revision) -> bool {
        self.device.disabled || self.created > since
    }

    /// Returns the device as a publisher, if it has a protokey and is enabled.
    pub(super) fn publisher(&self) -> Option<Publisher<'_>> {
        let Credential::Protokey(mode) = self.device.credential else { return None };
        let protokey = self.secret.as_ref()?;
        let Device { party, address, .. } = &self.device;
        (!self.device.disabled).then_some(Publisher { party, protokey, mode, address: *address })
    }
}

impl Known {
    /// Returns the device as a producer of encrypted content, if it has a protokey or a shared key and is enabled.
    pub(super) fn producer(&self) -> Option<(&OwnedParty, &Protokey)> {
        let Device { party, credential: Credential::Protokey(_) | Credential::SharedKey, disabled: false, .. } =
            &self.device
        else {
            return None;
        };
        Some((party, self.secret.as_ref()?))
    }

    /// Returns the device as a resource server, if it has a key for tokens and is enabled.
    pub(super) fn resource_server(&self) -> Option<ResourceServer<'_>> {
        let Device { party, credential, disabled: false, .. } = &self.device else { return None };
        let profile = match credential {
            Credential::Oscore => Profile::COAP_OSCORE,
            Credential::Edhoc => Profile::COAP_EDHOC_OSCORE,
            _ => return None,
        };
        let mut key = Secret::zeroed();
        *key.expose_mut() = self.secret.as_ref()?.expose().try_into().ok()?;
        Some(ResourceServer { party, key, profile })
    }
}

/// Returns the value of the row of a device. It is JSON. If the device has a secret, a zero byte and the secret follow,
/// and the whole value is stored encrypted.
fn value(device: &Device, secret: Option<&Protokey>) -> Value {
    let Device { party, credential, disabled, address } = device;
    let record = Record {
        kind: credential.kind().into(),
        tags: party.party().tags.to_vec(),
        sha256: credential.digest().map(|digest| to_hex(&digest)),
        disabled: *disabled,
        address: *address,
    };
    let text = serde_json::to_vec(&record).unwrap_or_default();
    match secret {
        None => Value::Plain(text),
        Some(secret) => {
            // JSON has no zero byte.
            let mut bytes = Zeroizing::new(Vec::with_capacity(text.len().saturating_add(65)));
            bytes.extend_from_slice(&text);
            bytes.push(0);
            bytes.extend_from_slice(secret.expose());
            Value::Secret(bytes)
        }
    }
}
