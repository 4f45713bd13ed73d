//! API keys, and the bootstrap token that creates the first key.
//!
//! ```text
//! admin/key/ID      a key: the hash of its secret, its name, its scopes and its end
//! admin/bootstrap   the hash of the bootstrap token; empty after it was used, or another key that creates keys was created
//! ```
//!
//! The text of a key is `tegmen_ID_SECRET`, with an ID of 8 random bytes and a secret of 32 random bytes in hexadecimal
//! digits.

use crate::problem::{Code, Problem};
use crate::scope::{Scope, Scopes};
use crate::sha256;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use tegmen_base::hex::to_hex;
use tegmen_store::clock::now;
use tegmen_store::store::{Changed, Entry, Scan};
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};
use zeroize::Zeroizing;

const KEYS: &str = "admin/key/";
pub(crate) const BOOTSTRAP: &str = "admin/bootstrap";
const PREFIX: &str = "tegmen_";
/// The ID in the text of the bootstrap token.
const FIRST: &str = "bootstrap";
/// Maximum lifetime of a key in seconds.
const LONGEST: u64 = 366 * 24 * 3600;
/// Maximum number of keys.
const MOST: usize = 1000;

/// The reason why the bootstrap token could not be written.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file could not be written.
    #[error("the bootstrap token cannot be written to {0}: {1}: choose a file in a directory of the server")]
    File(String, std::io::Error),
    /// The system has no randomness.
    #[error("the system gives no random bytes")]
    Random,
}

/// The sender of a request. Its credential, an API key or a client certificate, proves the identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Principal {
    /// The name of the sender, for the audit log and for rows of the store. For a key it is the ID of the key; for a
    /// client certificate it is `certificate-` and the SHA-256 of the certificate.
    pub(crate) name: String,
    pub(crate) right: Right,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Right {
    /// The right of a key or a certificate: its scopes, and its expiry time in seconds since 1970.
    Scopes(Scopes, u64),
    /// The right of the bootstrap token to create the first key. The value is the revision of the token's row.
    FirstKey(Revision),
}

impl Principal {
    /// Returns the sender of a request without a credential: a sender without a name and without scopes.
    pub(crate) fn nobody() -> Self {
        Self { name: String::new(), right: Right::Scopes(Scopes::new(), 0) }
    }

    /// Returns true if the sender was authenticated by an API key.
    pub(crate) fn is_key(&self) -> bool {
        is_id(&self.name)
    }

    pub(crate) fn has(&self, scope: Scope) -> bool {
        matches!(&self.right, Right::Scopes(scopes, _) if scopes.contains(&scope))
    }
}

/// A key to be created.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewKey {
    /// The name for the audit log, 1 to 64 bytes.
    #[schemars(length(min = 1, max = 64))]
    name: String,
    /// The scopes, at least one.
    #[schemars(length(min = 1))]
    scopes: Scopes,
    /// The time at which the key expires, in seconds since 1970: at most 366 days from now.
    expires: u64,
}

/// An API key, without its secret.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Key")]
pub(crate) struct Listed {
    id: String,
    name: String,
    scopes: Scopes,
    /// The time at which the key expires, in seconds since 1970.
    expires: u64,
}

/// The content of the row of an API key in the store: the hash of its secret, and its other fields.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    sha256: String,
    key: NewKey,
}

/// The API keys in a store.
pub(crate) struct Keys<S>(pub(crate) S);

fn random<const N: usize>() -> Option<String> {
    let mut bytes = Zeroizing::new([0; N]);
    aws_lc_rs::rand::fill(&mut *bytes).ok()?;
    Some(to_hex(&*bytes))
}

fn unauthorized() -> Problem {
    Problem::new(Code::Unauthorized, "send a valid API key as Authorization: Bearer KEY")
}

fn json(row: &impl Serialize) -> Value {
    Value::Plain(serde_json::to_vec(row).unwrap_or_default())
}

fn read(value: &Value) -> Option<Row> {
    serde_json::from_slice(value.plain()?).ok()
}

/// Returns the ID of the API key to which a row of the store belongs; `None` for a row of another kind. `row` is the
/// key of the row in the store.
fn id(row: &[u8]) -> Option<&str> {
    std::str::from_utf8(row).ok()?.strip_prefix(KEYS)
}

fn is_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn listed(entry: &Entry) -> Option<Listed> {
    let NewKey { name, scopes, expires } = read(&entry.value)?.key;
    Some(Listed { id: id(&entry.key)?.to_owned(), name, scopes, expires })
}

/// Returns the ID and the present content of an API key whose row changed. The content is `None` if the key was
/// deleted. Returns `None` if the row of the store does not belong to an API key.
pub(crate) fn changed(change: &Changed) -> Option<(String, Option<Listed>)> {
    let id = id(&change.key)?.to_owned();
    Some((id, change.entry.as_ref().and_then(listed)))
}

impl fmt::Display for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scopes: Vec<&str> = self.scopes.iter().map(|scope| scope.name()).collect();
        write!(f, "{}, with the scopes {}, until {}", self.name.escape_debug(), scopes.join(" "), self.expires)
    }
}

impl NewKey {
    /// Checks the fields of a key that the sender `by` wants to create. The new key may have only scopes of its
    /// creator, and must not expire after the creator's credential.
    pub(crate) fn check(&self, by: &Principal) -> Result<(), Problem> {
        let now = now();
        if self.name.is_empty() || self.name.len() > 64 {
            return Err(Problem::malformed("the name of a key has 1 to 64 bytes"));
        }
        if self.scopes.is_empty() {
            return Err(Problem::malformed("a key needs at least one scope"));
        }
        if self.expires <= now || self.expires > now.saturating_add(LONGEST) {
            return Err(Problem::malformed(
                "a key ends in the future, and within 366 days: set expires in seconds since 1970",
            ));
        }
        match &by.right {
            Right::FirstKey(_) => Ok(()),
            Right::Scopes(scopes, _) if !self.scopes.is_subset(scopes) => Err(Problem::new(
                Code::MoreThanOwnScope,
                "a key creates keys with its own scopes alone: ask an administrator who has more",
            )),
            Right::Scopes(_, end) if self.expires > *end => Err(Problem::new(
                Code::MoreThanOwnScope,
                "a key creates no key that ends after itself: set an earlier end (--days of tegmen key create)",
            )),
            Right::Scopes(..) => Ok(()),
        }
    }
}

/// Refuses a file that the bootstrap token would replace, if this file is neither empty nor a bootstrap token.
fn check_replaced(file: &Path) -> io::Result<()> {
    match std::fs::read(file) {
        Ok(bytes) if bytes.is_empty() || bytes.starts_with(format!("{PREFIX}{FIRST}_").as_bytes()) => Ok(()),
        Ok(_) => Err(io::Error::other("it exists and is no bootstrap token")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

impl<S: Store> Keys<S> {
    /// Generates a bootstrap token and writes it to the file, unless a valid key with the scope `keys:write` exists.
    /// Replaces only an empty file or an earlier bootstrap token. Returns true if the token was written.
    pub(crate) async fn bootstrap(&self, file: &Path) -> Result<bool, KeysError> {
        let (page, now) = (self.0.scan(Scan::of(KEYS, MOST)).await?, now());
        let creates_keys = |row: Row| row.key.expires > now && row.key.scopes.contains(&Scope::KeysWrite);
        if page.entries.iter().filter_map(|entry| read(&entry.value)).any(creates_keys) {
            return Ok(false);
        }
        let found = self.0.read(BOOTSTRAP.as_bytes(), None).await?.entry;
        let at = found.as_ref().map_or(Revision::ABSENT, |entry| entry.changed);
        let secret = Zeroizing::new(random::<32>().ok_or(KeysError::Random)?);
        check_replaced(file).map_err(|error| KeysError::File(file.display().to_string(), error))?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        tegmen_base::private::open(&mut options, file)
            .and_then(|mut file| writeln!(file, "{PREFIX}{FIRST}_{}", *secret))
            .map_err(|error| KeysError::File(file.display().to_string(), error))?;
        let value = Value::Plain(sha256(&[secret.as_bytes()]).into_bytes());
        self.0.commit(Transaction::default().require(BOOTSTRAP, at).put(BOOTSTRAP, value)).await?;
        Ok(true)
    }

    /// Returns the sender to which a bearer token belongs. Refuses an unknown or expired token.
    pub(crate) async fn authenticate(&self, token: &str) -> Result<Principal, Problem> {
        let (id, secret) = token.strip_prefix(PREFIX).and_then(|rest| rest.split_once('_')).ok_or_else(unauthorized)?;
        if !(id == FIRST || is_id(id)) || secret.len() != 64 {
            return Err(unauthorized());
        }
        let hash = sha256(&[secret.as_bytes()]);
        let is_same = |stored: &[u8]| verify_slices_are_equal(stored, hash.as_bytes()).is_ok();
        if id == FIRST {
            let entry = self.0.read(BOOTSTRAP.as_bytes(), None).await?.entry.ok_or_else(unauthorized)?;
            let is_same = entry.value.plain().is_some_and(is_same);
            let right = Right::FirstKey(entry.changed);
            return is_same.then(|| Principal { name: FIRST.to_owned(), right }).ok_or_else(unauthorized);
        }
        let Row { sha256: stored, key } = self.valid(id).await?;
        if !is_same(stored.as_bytes()) {
            return Err(unauthorized());
        }
        Ok(Principal { name: id.to_owned(), right: Right::Scopes(key.scopes, key.expires) })
    }

    /// Returns the row of the API key with this ID in the store. Refuses a key that does not exist or has expired.
    async fn valid(&self, id: &str) -> Result<Row, Problem> {
        let entry = self.0.read(format!("{KEYS}{id}").as_bytes(), None).await?.entry;
        entry.and_then(|entry| read(&entry.value)).filter(|row| row.key.expires > now()).ok_or_else(unauthorized)
    }

    /// Checks that the key with this ID is still valid, and that it has the scope `scope`.
    pub(crate) async fn check(&self, id: &str, scope: Scope) -> Result<(), Problem> {
        match self.valid(id).await?.key.scopes.contains(&scope) {
            true => Ok(()),
            false => Err(unauthorized()),
        }
    }

    /// Creates a key. Returns its ID, and the text of the key. The text cannot be read again later, because the store
    /// has only a hash.
    pub(crate) async fn create(&self, key: NewKey, by: &Principal) -> Result<(String, Zeroizing<String>), Problem> {
        let full = self.0.scan(Scan::of(KEYS, MOST)).await?.entries.len() >= MOST;
        if full {
            return Err(Problem::new(Code::TooManyKeys, "delete keys that ended"));
        }
        let no_random = || Problem::new(Code::NoRandom, "the system gives no random bytes");
        let (id, secret) = random::<8>().zip(random::<32>().map(Zeroizing::new)).ok_or_else(no_random)?;
        let creates_keys = key.scopes.contains(&Scope::KeysWrite);
        let row = Row { sha256: sha256(&[secret.as_bytes()]), key };
        let name = format!("{KEYS}{id}");
        let mut transaction = Transaction::default().require(name.as_str(), Revision::ABSENT).put(name, json(&row));
        if let Right::FirstKey(at) = by.right {
            transaction = transaction.require(BOOTSTRAP, at);
        }
        // The token is used, or not needed any more.
        if creates_keys || matches!(by.right, Right::FirstKey(_)) {
            transaction = transaction.put(BOOTSTRAP, Value::Plain(Vec::new()));
        }
        self.0.commit(transaction).await?;
        let key = Zeroizing::new(format!("{PREFIX}{id}_{}", *secret));
        Ok((id, key))
    }

    /// Returns all keys, without their hashes.
    pub(crate) async fn list(&self) -> Result<Vec<Listed>, Problem> {
        let page = self.0.scan(Scan::of(KEYS, MOST)).await?;
        Ok(page.entries.iter().filter_map(listed).collect())
    }

    /// Deletes a key.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), Problem> {
        let row = format!("{KEYS}{id}");
        let unknown = || Problem::new(Code::UnknownKey, "there is no key of this ID: list the keys");
        let found = if is_id(id) { self.0.read(row.as_bytes(), None).await?.entry } else { None };
        let entry = found.ok_or_else(unknown)?;
        self.0.commit(Transaction::default().require(row.as_str(), entry.changed).delete(row)).await?;
        Ok(())
    }
}
