//! Who may come in: a TOML file of identities, keys and rights, read again when it changes.
//!
//! ```toml
//! [[psk]]
//! identity = "sensor-17"
//! key = "00112233445566778899aabbccddeeff"    # hexadecimal, or: key_text = "a passphrase"
//! allow = ["GET /*", "PUT /blink"]            # optional; without it everything is allowed
//! ```

use crate::private;
use crate::server::KeyTicket;
use crate::x509::Digest;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};
use std::time::SystemTime;
use tegmen::coap::{Code, OptionNumber, Policy, Request};
use tegmen::dtls::handshake::certificate::CertificateType;
use tegmen::dtls::need::MAX_PSK;
use tegmen::endpoint::{Principal, Protection};
use toml::Spanned;
use zeroize::Zeroizing;

/// Longest identity in bytes (RFC 4279, section 5.3, asks for 128; the wire allows what the cookie room holds).
pub const MAX_IDENTITY: usize = 128;

/// Why a credentials file cannot be used. Each says file, line and what would be right.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// It is not there, or not readable.
    #[error("{file}: {source}: make one with `tegmen keys new --identity NAME --file {file}`")]
    Unreadable {
        /// Which file.
        file: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// Others on this machine can read the keys.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds keys: chmod 600 {file}")]
    Exposed {
        /// Which file.
        file: String,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no such TOML.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// Which file.
        file: String,
        /// Which line, from 1.
        line: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    psk: Vec<Spanned<Psk>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Psk {
    identity: Spanned<String>,
    key: Option<Spanned<String>>,
    key_text: Option<Spanned<String>>,
    allow: Option<Vec<Spanned<String>>>,
}

/// One rule of `allow`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Rule {
    /// `None` is every method.
    method: Option<Code>,
    /// With a `*` at the end everything that begins so.
    path: String,
}

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        let (method, path) = text.split_once(' ')?;
        let method = match method {
            "GET" => Some(Code::GET),
            "POST" => Some(Code::POST),
            "PUT" => Some(Code::PUT),
            "DELETE" => Some(Code::DELETE),
            "FETCH" => Some(Code::FETCH),
            "PATCH" => Some(Code::PATCH),
            "iPATCH" => Some(Code::IPATCH),
            "*" => None,
            _ => return None,
        };
        path.starts_with('/').then(|| Self { method, path: path.to_owned() })
    }

    fn text(&self) -> String {
        let known = ["GET", "POST", "PUT", "DELETE", "FETCH", "PATCH", "iPATCH"];
        let same = |name: &&str| Self::parse(&format!("{name} /")).is_some_and(|rule| rule.method == self.method);
        let method = if self.method.is_none() { "*" } else { known.into_iter().find(same).unwrap_or("*") };
        format!("{method} {}", self.path)
    }

    fn covers(&self, code: Code, path: &str) -> bool {
        let method = self.method.is_none_or(|method| method == code);
        method && self.path.strip_suffix('*').map_or(self.path == path, |prefix| path.starts_with(prefix))
    }
}

/// True if this can stand in `allow`.
pub(crate) fn is_rule(text: &str) -> bool {
    Rule::parse(text).is_some()
}

#[derive(Clone)]
struct Entry {
    key: Zeroizing<Vec<u8>>,
    allow: Option<Vec<Rule>>,
}

/// The contents of a credentials file.
#[derive(Default)]
struct Table {
    entries: HashMap<String, Entry>,
}

impl Table {
    fn parse(file: &str, text: &str) -> Result<Self, CredentialsError> {
        let line_of = |at: usize| text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
        let wrong =
            |at: usize, message: String| CredentialsError::Syntax { file: file.to_owned(), line: line_of(at), message };
        let parsed: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let message = error.message().to_owned();
            wrong(
                at,
                format!("{message}: each entry is [[psk]] with identity, key (or key_text) and, if wanted, allow"),
            )
        })?;
        let mut entries = HashMap::new();
        for psk in parsed.psk {
            let at = psk.span().start;
            let psk = psk.into_inner();
            let identity_at = psk.identity.span().start;
            let identity = psk.identity.into_inner();
            if identity.is_empty() || identity.len() > MAX_IDENTITY {
                return Err(wrong(
                    identity_at,
                    format!("identity: 1 to {MAX_IDENTITY} bytes, this has {}", identity.len()),
                ));
            }
            let (key_at, key) = match (psk.key, psk.key_text) {
                (Some(hex), None) => {
                    let at = hex.span().start;
                    let key = from_hex(hex.get_ref()).ok_or_else(|| {
                        wrong(at, "key: an even number of hexadecimal digits; for a passphrase use key_text".into())
                    })?;
                    (at, key)
                }
                (None, Some(text)) => (text.span().start, text.into_inner().into_bytes()),
                (Some(_), Some(both)) => {
                    return Err(wrong(both.span().start, "key and key_text: one of them, not both".into()));
                }
                (None, None) => return Err(wrong(at, format!("{identity}: key is missing: key = \"HEX\""))),
            };
            if key.is_empty() || key.len() > MAX_PSK {
                return Err(wrong(key_at, format!("key: 1 to {MAX_PSK} bytes, this has {}", key.len())));
            }
            let allow = match psk.allow {
                None => None,
                Some(rules) => Some(
                    rules
                        .iter()
                        .map(|rule| {
                            Rule::parse(rule.get_ref()).ok_or_else(|| {
                                let message =
                                    "allow: a method (GET, POST, PUT, DELETE, FETCH, PATCH, iPATCH or *) and a path, as \"GET /sensors/*\"";
                                wrong(rule.span().start, message.into())
                            })
                        })
                        .collect::<Result<Vec<_>, _>>()?,
                ),
            };
            let entry = Entry { key: Zeroizing::new(key), allow };
            if entries.insert(identity.clone(), entry).is_some() {
                return Err(wrong(identity_at, format!("identity: {identity} is there twice; keep one")));
            }
        }
        Ok(Self { entries })
    }
}

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

/// Identities with a number that stays the same while the process lives, whatever the file says later.
#[derive(Default)]
struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
    /// What each certificate and raw public key is called here, and the number that stands for both.
    certified: HashMap<(String, Digest), u32>,
    digests: HashMap<u32, (CertificateType, Digest)>,
}

impl Names {
    /// The number of a name, which gets one if it has none.
    fn number(&mut self, name: &str) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = self.names.len() as u32;
        self.numbers.insert(name.to_owned(), number);
        self.names.push(name.to_owned());
        number
    }
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
    learned: HashMap<String, Option<Vec<Rule>>>,
    file: Option<(PathBuf, Option<SystemTime>)>,
}

impl Credentials {
    /// One identity that may do everything.
    pub fn single(identity: &str, key: &[u8]) -> Self {
        let credentials = Self::default();
        let entry = Entry { key: Zeroizing::new(key.to_vec()), allow: None };
        credentials.replace(Table { entries: HashMap::from([(identity.to_owned(), entry)]) });
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
        let entry = Entry { key: Zeroizing::new(key.to_vec()), allow: None };
        self.replace(Table { entries: HashMap::from([(identity.to_owned(), entry)]) });
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

fn load(path: &Path) -> Result<(Table, Option<SystemTime>), CredentialsError> {
    let file = path.display().to_string();
    let unreadable = |source| CredentialsError::Unreadable { file: file.clone(), source };
    let handle = std::fs::File::open(path).map_err(unreadable)?;
    if let Some(mode) = private::exposed(&handle).map_err(unreadable)? {
        return Err(CredentialsError::Exposed { file, mode });
    }
    let modified = handle.metadata().and_then(|meta| meta.modified()).ok();
    let text = Zeroizing::new(std::io::read_to_string(handle).map_err(unreadable)?);
    Ok((Table::parse(&file, &text)?, modified))
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
