//! Devices that may enrol, and their one-time keys. A one-time key registers one device, and expires.

use super::device::{Credential, Device, NewDevice, check_name};
use super::{State, StateError, rows};
use crate::access::enrolment::{MAX_NAME, OneTimeKey, Request};
use crate::access::policy::OwnedParty;
use serde::{Deserialize, Serialize};
use tegmen_base::crypto::DIGEST_LEN;
use tegmen_base::hex::{from_hex, to_hex};
use tegmen_base::secret::same;
use tegmen_host::provider::HostCrypto;
use tegmen_store::store::Entry;
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};
use tegmen_trust::digest::sha256;
use zeroize::Zeroizing;

/// A device that may enrol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Enrolment {
    /// The name and the tags of the device.
    pub party: OwnedParty,
    /// The kind of the device's credential: see [`Credential::kind`].
    pub kind: String,
    /// The time until which the device may enrol, in seconds since 1970.
    pub expires: u64,
}

impl Enrolment {
    /// Makes an enrolment, after a check of the name, the tags and the kind. `expires` is in seconds since 1970.
    ///
    /// # Errors
    /// A text that explains how to correct the name, the tags or the kind.
    pub fn new(name: &str, tags: Vec<String>, kind: &str, expires: u64) -> Result<Self, String> {
        let party = OwnedParty::new(name, tags)?;
        check_name(name)?;
        if name.len() > MAX_NAME {
            return Err(format!("the name of a device that enrols has at most {MAX_NAME} bytes"));
        }
        match (Credential::of(kind, Some([0; DIGEST_LEN])), Credential::of(kind, None)) {
            (Some(_), _) => {}
            (None, Some(credential)) => drop(NewDevice::secret(party.clone(), credential, &[0; DIGEST_LEN])?),
            (None, None) => {
                return Err(
                    "kind is certificate, public-key, shared-key, protokey, protokey-paper, oscore or edhoc".to_owned()
                );
            }
        }
        Ok(Self { party, kind: kind.to_owned(), expires })
    }

    fn name(&self) -> &str {
        self.party.party().name
    }
}

/// The reason why a device was not registered.
#[derive(Debug, thiserror::Error)]
pub enum NotEnrolled {
    /// The payload is no request to enrol.
    #[error("the request is malformed")]
    Malformed,
    /// There is no one-time key for this device.
    #[error("there is no one-time key: it was used, withdrawn or replaced; create another")]
    NoKey,
    /// The one-time key has expired.
    #[error("the one-time key has expired: create another")]
    Expired,
    /// The sender does not have the one-time key.
    #[error("the proof is not that of the one-time key")]
    WrongProof,
    /// The kind of the credential differs from the kind that the operator named.
    #[error("the credential is a {found}, and the one-time key is for a {expected}")]
    OtherKind {
        /// The kind that the operator named.
        expected: String,
        /// The kind of the credential in the request.
        found: String,
    },
    /// The credential is not valid for the device.
    #[error("{0}")]
    Invalid(String),
    /// The state cannot be changed.
    #[error(transparent)]
    State(#[from] StateError),
}

impl NotEnrolled {
    /// Returns the code of this error, for the audit log. The code stays the same in later versions.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::NoKey => "no-one-time-key",
            Self::Expired => "one-time-key-expired",
            Self::WrongProof => "wrong-proof",
            Self::OtherKind { .. } => "other-kind",
            Self::Invalid(_) => "invalid-device",
            Self::State(StateError::NameTaken(_)) => "name-taken",
            Self::State(StateError::DigestTaken(_)) => "digest-taken",
            Self::State(_) => "not-stored",
        }
    }
}

/// A device that may enrol, with the content of its row in the store.
pub(super) struct Pending {
    pub(super) enrolment: Enrolment,
    /// The SHA-256 of the proof, which the device derives from its one-time key and sends in its request.
    hash: [u8; DIGEST_LEN],
    /// The key of the session in which the device enrols.
    key: Zeroizing<Vec<u8>>,
    changed: Revision,
}

/// The JSON text at the beginning of the value of an enrolment's row in the store. A byte 0 and the key of the session
/// in which the device enrols follow this text.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    kind: String,
    tags: Vec<String>,
    sha256: String,
    expires: u64,
}

impl Pending {
    /// Reads the enrolment of the device `name` from its row. Returns the fault as text if the row is not valid.
    pub(super) fn read(name: &str, entry: &Entry) -> Result<Self, String> {
        let Value::Secret(bytes) = &entry.value else { return Err("it is not sealed".to_owned()) };
        let at = bytes.iter().position(|byte| *byte == 0).ok_or("it has no key")?;
        let (text, key) = bytes.split_at_checked(at).ok_or("it has no key")?;
        let Record { kind, tags, sha256, expires } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let hash = from_hex(&sha256).and_then(|hash| hash.try_into().ok()).ok_or("its hash is none")?;
        let key = key.get(1..).filter(|key| key.len() == DIGEST_LEN).ok_or("its key has another length")?;
        let enrolment = Enrolment { party: OwnedParty::new(name, tags)?, kind, expires };
        Ok(Self { enrolment, hash, key: Zeroizing::new(key.to_vec()), changed: entry.changed })
    }

    /// Returns the key of the session in which the device enrols. Returns `None` after the one-time key has expired.
    /// `now` is in seconds since 1970.
    pub(super) fn session_key(&self, now: u64) -> Option<Zeroizing<Vec<u8>>> {
        (now < self.enrolment.expires).then(|| self.key.clone())
    }
}

fn value(enrolment: &Enrolment, key: &OneTimeKey) -> Value {
    let record = Record {
        kind: enrolment.kind.clone(),
        tags: enrolment.party.party().tags.to_vec(),
        sha256: to_hex(&sha256(key.proof::<HostCrypto>().expose())),
        expires: enrolment.expires,
    };
    let text = serde_json::to_vec(&record).unwrap_or_default();
    // JSON has no zero byte.
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len().saturating_add(DIGEST_LEN).saturating_add(1)));
    bytes.extend_from_slice(&text);
    bytes.push(0);
    bytes.extend_from_slice(key.session_key::<HostCrypto>().expose());
    Value::Secret(bytes)
}

/// Returns the device that a request registers. If the request is not valid, returns a text that describes the correct
/// request.
fn registered(request: &Request<'_>, party: OwnedParty) -> Result<NewDevice, String> {
    let (kind, value) = (request.kind, request.value);
    if let Some(credential) = value.try_into().ok().and_then(|digest| Credential::of(kind, Some(digest))) {
        return NewDevice::public(party, credential);
    }
    match Credential::of(kind, None) {
        Some(credential) => NewDevice::secret(party, credential, value),
        None => Err(format!("a {kind} is registered by its SHA-256 of 32 bytes")),
    }
}

impl<S: Store> State<S> {
    /// Allows a device that is not registered to enrol with the one-time key `key`. Stores a hash and a session key,
    /// which are derived from `key`. If an earlier one-time key for the name of this device exists, `key` replaces it.
    ///
    /// # Errors
    /// [`StateError::NameTaken`] or [`StateError::Store`].
    pub async fn expect(&self, enrolment: &Enrolment, key: &OneTimeKey) -> Result<Revision, StateError> {
        let name = enrolment.name();
        let transaction = Transaction::default().require(rows::device(name), Revision::ABSENT);
        let transaction = transaction.put(rows::enrolment(name), value(enrolment, key));
        self.commit(transaction).await.map_err(|error| match error {
            StoreError::Conflict { .. } => StateError::NameTaken(name.to_owned()),
            error => error.into(),
        })
    }

    /// Deletes the one-time key of a device.
    ///
    /// # Errors
    /// [`StateError::NoOneTimeKey`], [`StateError::Changed`] or [`StateError::Store`].
    pub async fn withdraw(&self, name: &str) -> Result<Revision, StateError> {
        let row = rows::enrolment(name);
        let entry = self.store.read(row.as_bytes(), None).await?.entry;
        let entry = entry.ok_or_else(|| StateError::NoOneTimeKey(name.to_owned()))?;
        let transaction = Transaction::default().require(row.as_str(), entry.changed).delete(row);
        self.commit(transaction).await.map_err(|error| super::changed(error, name))
    }

    /// Registers the device of this name with the credential in the payload of its request. The one-time key is
    /// deleted. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`NotEnrolled`]. Nothing has changed then.
    pub async fn enrol(&self, name: &str, payload: &[u8], now: u64) -> Result<Device, NotEnrolled> {
        let request = Request::parse(payload).ok_or(NotEnrolled::Malformed)?;
        let row = rows::enrolment(name);
        let entry = self.store.read(row.as_bytes(), None).await.map_err(StateError::from)?.entry;
        let entry = entry.ok_or(NotEnrolled::NoKey)?;
        let pending =
            Pending::read(name, &entry).map_err(|why| StateError::from(super::StateFault { key: row.clone(), why }))?;
        if now >= pending.enrolment.expires {
            return Err(NotEnrolled::Expired);
        }
        if !same(&sha256(request.proof), &pending.hash) {
            return Err(NotEnrolled::WrongProof);
        }
        let Enrolment { party, kind, .. } = pending.enrolment;
        if request.kind != kind {
            return Err(NotEnrolled::OtherKind { expected: kind, found: request.kind.escape_debug().to_string() });
        }
        let new = registered(&request, party).map_err(NotEnrolled::Invalid)?;
        let unused = Transaction::default().require(row.as_str(), pending.changed);
        match self.add_with(unused, &new).await {
            Ok(_) => Ok(new.device().clone()),
            Err(StoreError::Conflict { key, .. }) if key == row.as_bytes() => Err(NotEnrolled::NoKey),
            Err(error) => Err(super::not_added(error, new.device()).into()),
        }
    }
}
