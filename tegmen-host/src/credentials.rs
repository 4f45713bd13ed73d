//! Who may come in: a TOML file of identities, keys and rights, read again when it changes.
//!
//! ```toml
//! [[psk]]
//! identity = "sensor-17"
//! key = "00112233445566778899aabbccddeeff"    # hexadecimal, or: key_text = "a passphrase"
//! allow = ["GET /*", "PUT /blink"]            # optional; without it everything is allowed
//! ```

mod file;
mod principals;

pub(crate) use file::is_rule;
pub use file::{CredentialsError, MAX_IDENTITY};

use crate::server::KeyTicket;
use crate::x509::Digest;
use file::{Allow, Rule, Table, load};
use principals::Names;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::SystemTime;
use tegmen::coap::{Code, OptionNumber, Policy, Request};
use tegmen::dtls::handshake::certificate::CertificateType;
use tegmen::endpoint::{Principal, Protection};
use zeroize::Zeroizing;

/// Bytes from hexadecimal digits.
pub fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let value = |digit: u8| char::from(digit).to_digit(16);
    digits.chunks(2).map(|pair| Some((value(pair[0])? << 4 | value(pair[1])?) as u8)).collect()
}

/// Hexadecimal digits of bytes.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Credentials that all shards share.
#[derive(Clone, Default)]
pub struct Credentials {
    shared: Arc<RwLock<Shared>>,
}

/// A key that a [`KeyStore`] found.
pub struct StoredKey {
    /// The pre-shared key, 1 to 64 bytes.
    pub key: Zeroizing<Vec<u8>>,
    /// What its owner may do, as in the credentials file: `"GET /sensors/*"`. `None` is everything. A rule that cannot be
    /// read allows nothing.
    pub allow: Option<Vec<String>>,
}

/// Where a server looks for keys that are in no file: a database, another server.
pub trait KeyStore: Send + Sync + 'static {
    /// Looks for the key of an identity. It must return at once; the answer goes to the ticket, from any thread. If there
    /// never is one, the handshake is given up in time.
    fn find(&self, identity: &str, ticket: KeyTicket);
}

#[derive(Default)]
struct Shared {
    table: Table,
    names: Names,
    /// Of identities that a store knows.
    learned: HashMap<String, Allow>,
    file: Option<(PathBuf, Option<SystemTime>)>,
}

impl Credentials {
    /// One identity that may do everything.
    pub fn single(identity: &str, key: &[u8]) -> Self {
        let credentials = Self::default();
        credentials.replace(Table::single(identity, key));
        credentials
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`CredentialsError`].
    pub fn from_file(path: &Path) -> Result<Self, CredentialsError> {
        let credentials = Self::default();
        let (table, modified) = load(path)?;
        credentials.replace(table);
        credentials.write(|shared| shared.file = Some((path.to_owned(), modified)));
        Ok(credentials)
    }

    /// Reads the file again if it changed. `Ok(Some(n))` says how many identities it has now. On an error the old
    /// credentials stay in force.
    ///
    /// # Errors
    /// [`CredentialsError`], once for each change of the file.
    pub fn reload_if_changed(&self) -> Result<Option<usize>, CredentialsError> {
        let Some((path, known)) = self.read(|shared| shared.file.clone()) else { return Ok(None) };
        let modified = std::fs::metadata(&path).and_then(|meta| meta.modified()).ok();
        if modified == known {
            return Ok(None);
        }
        self.write(|shared| shared.file = Some((path.clone(), modified)));
        let (table, _) = load(&path)?;
        let count = table.entries.len();
        self.replace(table);
        Ok(Some(count))
    }

    fn read<T>(&self, with: impl FnOnce(&Shared) -> T) -> T {
        with(&self.shared.read().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn write<T>(&self, with: impl FnOnce(&mut Shared) -> T) -> T {
        with(&mut self.shared.write().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn replace(&self, table: Table) {
        self.write(|shared| {
            for name in table.entries.keys() {
                shared.names.number(name);
            }
            shared.table = table;
        });
    }

    /// The key of an identity, and the number by which requests of its owner will be known.
    pub fn key_of(&self, identity: &[u8]) -> Option<(Zeroizing<Vec<u8>>, Principal)> {
        let identity = std::str::from_utf8(identity).ok()?;
        self.read(|shared| {
            let entry = shared.table.entries.get(identity)?;
            let number = shared.names.numbers.get(identity)?;
            Some((entry.key.clone(), Principal(*number)))
        })
    }

    /// Takes what a store found: the number by which requests of its owner will be known.
    pub fn learn(&self, identity: &str, allow: Option<&[String]>) -> Principal {
        let rules = allow.map(|texts| texts.iter().filter_map(|text| Rule::parse(text)).collect());
        self.write(|shared| {
            shared.learned.insert(identity.to_owned(), rules);
            Principal(shared.names.number(identity))
        })
    }

    /// Takes a peer that proved itself with a certificate, or a raw public key, of this digest: the number by which its
    /// requests will be known. It is another one than that of a peer of the same name with another certificate.
    pub(crate) fn learn_certified(&self, name: &str, kind: CertificateType, digest: Digest) -> Principal {
        self.write(|shared| {
            shared.learned.insert(name.to_owned(), None);
            let names = &mut shared.names;
            let key = (name.to_owned(), digest);
            if let Some(number) = names.certified.get(&key) {
                return Principal(*number);
            }
            let number = names.names.len() as u32;
            names.names.push(name.to_owned());
            names.certified.insert(key, number);
            names.digests.insert(number, (kind, digest));
            Principal(number)
        })
    }

    /// What a peer proved itself with that [`Self::learn_certified`] has taken.
    pub(crate) fn certified(&self, principal: Principal) -> Option<(CertificateType, Digest)> {
        self.read(|shared| shared.names.digests.get(&principal.0).copied())
    }

    /// The number of an identity that a store knew.
    pub(crate) fn known(&self, identity: &str) -> Option<Principal> {
        self.read(|shared| {
            shared.learned.get(identity)?;
            shared.names.numbers.get(identity).copied().map(Principal)
        })
    }

    /// As if a file with this one identity had been read.
    #[cfg(test)]
    pub(crate) fn set_single(&self, identity: &str, key: &[u8]) {
        self.replace(Table::single(identity, key));
    }

    /// The identity behind a number.
    pub fn name_of(&self, principal: Principal) -> Option<String> {
        self.read(|shared| shared.names.names.get(principal.0 as usize).cloned())
    }

    /// The identity behind a number, whether the file has it, and what it may do if the file does not; `None` is everything.
    pub(crate) fn standing(&self, principal: Principal) -> Option<(String, bool, Option<Vec<String>>)> {
        self.read(|shared| {
            let name = shared.names.names.get(principal.0 as usize)?.clone();
            let listed = shared.table.entries.contains_key(&name);
            let learned = shared.learned.get(&name);
            if !listed && learned.is_none() {
                return None;
            }
            let rules = learned.and_then(Option::as_ref).filter(|_| !listed);
            let allow = rules.map(|rules| rules.iter().map(Rule::text).collect());
            Some((name, listed, allow))
        })
    }

    /// All identities, in order.
    pub fn identities(&self) -> Vec<String> {
        let mut names: Vec<String> = self.read(|shared| shared.table.entries.keys().cloned().collect());
        names.sort();
        names
    }

    /// True if the owner of this number may do this, as the file says now: who was removed may nothing.
    fn allows(&self, principal: Principal, code: Code, path: &str) -> bool {
        self.read(|shared| {
            let name = shared.names.names.get(principal.0 as usize);
            let Some(name) = name else { return false };
            let rules = match (shared.table.entries.get(name), shared.learned.get(name)) {
                (Some(entry), _) => &entry.allow,
                (None, Some(rules)) => rules,
                (None, None) => return false,
            };
            rules.as_ref().is_none_or(|rules| rules.iter().any(|rule| rule.covers(code, path)))
        })
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.identities()).finish()
    }
}

/// Rights as the credentials file gives them. Requests without protection may do what `plain_allowed` says.
#[derive(Clone)]
pub struct FilePolicy {
    /// Where the rules come from.
    pub credentials: Credentials,
    /// True if requests over plain CoAP are served at all.
    pub plain_allowed: bool,
}

impl Policy for FilePolicy {
    fn allows(&self, request: &Request<'_>) -> bool {
        match request.identity.protection {
            Protection::Plain => self.plain_allowed,
            Protection::Dtls | Protection::Oscore => {
                let message = &request.message;
                let mut path = String::new();
                for segment in message.values(OptionNumber::URI_PATH) {
                    path.push('/');
                    path.push_str(&String::from_utf8_lossy(segment));
                }
                if path.is_empty() {
                    path.push('/');
                }
                self.credentials.allows(request.identity.principal, message.code(), &path)
            }
        }
    }
}

#[cfg(test)]
mod tests;
