//! Reads the text of a credentials file.

use crate::digest::{Digest, sha256_of};
use crate::hex::{from_hex, to_hex};
use crate::private;
use crate::reading::Stamp;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
use tegmen::coap::{self, Code, Methods};
use tegmen::dtls::{CertificateType, MAX_PSK};
use toml::Spanned;
use zeroize::Zeroizing;

/// Maximum length of an identity in bytes. RFC 4279, section 5.3, requires support for identities of this length. A
/// server accepts an identity only if the identity fits into the buffer in which the handshake also stores the cookie.
pub const MAX_IDENTITY: usize = 128;

/// Proposes a remedy to the operator after the system refused access to a credentials file.
fn next_step(file: &str, refusal: &std::io::Error) -> String {
    match refusal.kind() {
        std::io::ErrorKind::NotFound => format!("make one with `tegmen keys new --identity NAME --file {file}`"),
        _ => "correct the path, or the permissions there".to_owned(),
    }
}

/// The reason why a credentials file cannot be used. The text of each error names the file, and proposes a remedy. For
/// a mistake in the file, the text also names the line.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The file does not exist, or is not readable.
    #[error("the credentials {file} cannot be read: {source}: {}", next_step(file, source))]
    Unreadable {
        /// Path of the file.
        file: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Other users of this machine can read the keys.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds keys: chmod 600 {file}")]
    Exposed {
        /// Path of the file.
        file: String,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file is not valid TOML of this format.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// Path of the file.
        file: String,
        /// Number of the line, from 1.
        line: usize,
        /// The mistake, and its correction.
        message: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    psk: Vec<Spanned<Psk>>,
    #[serde(default)]
    certificate: Vec<NamedEntry>,
    #[serde(default)]
    raw_key: Vec<NamedEntry>,
    anonymous: Option<Anonymous>,
}

/// Rights of clients without a certificate or key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Anonymous {
    allow: Vec<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Psk {
    identity: Spanned<String>,
    key: Option<Spanned<String>>,
    key_text: Option<Spanned<String>>,
    previous_key: Option<Spanned<String>>,
    previous_key_text: Option<Spanned<String>>,
    allow: Option<Vec<Spanned<String>>>,
}

/// Rights of a peer that proves a name with a public key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedEntry {
    name: Spanned<String>,
    allow: Option<Vec<Spanned<String>>>,
}

/// The rules; `None` allows everything.
pub(super) type Allow = Option<Vec<Rule>>;

/// Returns true if one of the rules covers this method and path.
pub(super) fn covers(allow: &Allow, code: Code, path: impl Iterator<Item = u8> + Clone) -> bool {
    allow.as_ref().is_none_or(|rules| rules.iter().any(|rule| rule.covers(code, path.clone())))
}

/// One rule of the list `allow`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    methods: Methods,
    path: String,
}

impl Rule {
    pub(super) fn parse(text: &str) -> Option<Self> {
        coap::Rule::parse(text).map(|rule| Self { methods: rule.methods, path: rule.path.to_owned() })
    }

    fn view(&self) -> coap::Rule<'_> {
        coap::Rule { methods: self.methods, path: &self.path }
    }

    /// True if the rule allows this method at the path of these bytes.
    pub(super) fn covers(&self, code: Code, path: impl Iterator<Item = u8>) -> bool {
        self.view().covers(code, path)
    }
}

/// True if `allow` can contain this text.
pub fn is_rule(text: &str) -> bool {
    coap::Rule::parse(text).is_some()
}

/// A key, and the digest that identifies it.
#[derive(Clone)]
pub(super) struct Key {
    pub(super) bytes: Zeroizing<Vec<u8>>,
    pub(super) fingerprint: Digest,
}

impl Key {
    fn new(bytes: Vec<u8>) -> Self {
        let bytes = Zeroizing::new(bytes);
        let fingerprint = fingerprint(&bytes);
        Self { bytes, fingerprint }
    }
}

/// Returns the digest that identifies a pre-shared key.
pub(super) fn fingerprint(key: &[u8]) -> Digest {
    sha256_of(&[b"tegmen psk ", key])
}

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) key: Key,
    /// The previous key, with which the owner is still accepted; `None` if the key is not being replaced.
    pub(super) previous: Option<Key>,
    pub(super) allow: Allow,
}

impl Entry {
    /// Returns the keys with which the owner of the entry is accepted.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        std::iter::once(&self.key).chain(&self.previous)
    }
}

/// The contents of a credentials file.
#[derive(Default)]
pub(super) struct Table {
    /// Pre-shared keys by identity.
    pub(super) psk: HashMap<String, Entry>,
    certificates: Named,
    raw_keys: Named,
    /// Rights of peers without a certificate or key.
    pub(super) anonymous: Vec<Rule>,
}

/// Rights of peers with public keys. An entry of the credentials file contains either the name of a peer, or the digest
/// of its certificate or key.
#[derive(Default)]
pub(super) struct Named {
    names: HashMap<String, Allow>,
    digests: HashMap<Digest, Allow>,
    /// Rights of peers without their own entry; `None` if the file has no entry [`OTHERS`].
    others: Option<Allow>,
}

impl Named {
    /// Adds an entry. Returns false if the name has an entry already. If `name` is not valid, the error is a text with
    /// the valid form.
    fn insert(&mut self, name: String, allow: Allow) -> Result<bool, &'static str> {
        let old = match name.strip_prefix(DIGEST) {
            _ if name.is_empty() => return Err("the subject of a certificate, or the name of a raw key"),
            _ if name == OTHERS => self.others.replace(allow),
            None => self.names.insert(name, allow),
            Some(hex) => {
                let digest = from_hex(hex).and_then(|digest| digest.try_into().ok());
                let digest = digest.ok_or("behind sha256: 64 hexadecimal digits, as `tegmen keys show` prints them")?;
                self.digests.insert(digest, allow)
            }
        };
        Ok(old.is_none())
    }

    /// Returns the rights of a peer with this name, whose certificate or key has this digest.
    pub(super) fn find(&self, name: &str, digest: &Digest) -> Option<&Allow> {
        self.digests.get(digest).or_else(|| self.names.get(name))
    }

    /// Returns the rights in the entry of this name.
    pub(super) fn named(&self, name: &str) -> Option<&Allow> {
        self.names.get(name)
    }

    /// Returns the rights of all names without their own entry.
    pub(super) const fn others(&self) -> Option<&Allow> {
        self.others.as_ref()
    }
}

/// Prefix of a name that is the digest of a certificate or key.
const DIGEST: &str = "sha256:";
/// The name of the entry that applies to all peers without their own entry.
const OTHERS: &str = "*";

/// Returns `sha256:` and the digest in hexadecimal digits: the name of a certificate whose subject cannot be used as a
/// name.
pub(crate) fn digest_name(digest: &Digest) -> String {
    format!("{DIGEST}{}", to_hex(digest))
}

impl Table {
    /// Makes a table with one identity that has all rights.
    pub(super) fn single(identity: &str, key: &[u8]) -> Self {
        let entry = Entry { key: Key::new(key.to_vec()), previous: None, allow: None };
        Self { psk: HashMap::from([(identity.to_owned(), entry)]), ..Self::default() }
    }

    /// Returns the rights of peers with certificates, or the rights of peers with raw public keys, by name or digest.
    pub(super) const fn certified(&self, kind: CertificateType) -> &Named {
        if kind.0 == CertificateType::RAW_PUBLIC_KEY.0 { &self.raw_keys } else { &self.certificates }
    }

    pub(super) fn parse(file: &str, text: &str) -> Result<Self, CredentialsError> {
        let line_of = |at: usize| text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
        let wrong =
            |at: usize, message: String| CredentialsError::Syntax { file: file.to_owned(), line: line_of(at), message };
        let parsed: File = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let message = error.message().to_owned();
            wrong(
                at,
                format!(
                    "{message}: an entry is [[psk]] with identity, key (or key_text) and, if wanted, allow; or \
                     [[certificate]] or [[raw_key]] with name and, if wanted, allow; or [anonymous] with allow"
                ),
            )
        })?;
        let allowed = |allow: Option<Vec<Spanned<String>>>| {
            let rule = |rule: &Spanned<String>| {
                Rule::parse(rule.get_ref())
                    .ok_or_else(|| wrong(rule.span().start, format!("allow: {}", coap::Rule::EXPECTED)))
            };
            allow.map(|rules| rules.iter().map(rule).collect::<Result<Vec<_>, _>>()).transpose()
        };
        let mut table = Self::default();
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
            let read = |name, hex, text| read_key(name, hex, text).map_err(|(at, message)| wrong(at, message));
            let key = read("key", psk.key, psk.key_text)?
                .ok_or_else(|| wrong(at, format!("{identity}: key is missing: key = \"HEX\"")))?;
            let previous = read("previous_key", psk.previous_key, psk.previous_key_text)?;
            let entry = Entry { key, previous, allow: allowed(psk.allow)? };
            if table.psk.insert(identity.clone(), entry).is_some() {
                return Err(wrong(identity_at, format!("identity: {identity} is there twice; keep one")));
            }
        }
        for (entries, named) in [(&mut table.certificates, parsed.certificate), (&mut table.raw_keys, parsed.raw_key)] {
            for NamedEntry { name, allow } in named {
                let at = name.span().start;
                let name = name.into_inner();
                match entries.insert(name.clone(), allowed(allow)?) {
                    Ok(true) => {}
                    Ok(false) => return Err(wrong(at, format!("name: {name} is there twice; keep one"))),
                    Err(expected) => return Err(wrong(at, format!("name: {expected}"))),
                }
            }
        }
        table.anonymous = allowed(parsed.anonymous.map(|anonymous| anonymous.allow))?.unwrap_or_default();
        Ok(table)
    }
}

/// Reads a key from one of two fields: `name`, which has hexadecimal digits, or `name` followed by `_text`, which has
/// text. Returns `None` if the file has neither field. The error is a position in the file, and a message.
fn read_key(
    name: &str,
    hex: Option<Spanned<String>>,
    text: Option<Spanned<String>>,
) -> Result<Option<Key>, (usize, String)> {
    let (at, key) = match (hex, text) {
        (None, None) => return Ok(None),
        (Some(hex), None) => {
            let expected = || format!("{name}: an even number of hexadecimal digits; for a passphrase use {name}_text");
            (hex.span().start, from_hex(hex.get_ref()).ok_or_else(|| (hex.span().start, expected()))?)
        }
        (None, Some(text)) => (text.span().start, text.into_inner().into_bytes()),
        (Some(_), Some(both)) => {
            return Err((both.span().start, format!("{name} and {name}_text: one of them, not both")));
        }
    };
    match key.is_empty() || key.len() > MAX_PSK {
        true => Err((at, format!("{name}: 1 to {MAX_PSK} bytes, this has {}", key.len()))),
        false => Ok(Some(Key::new(key))),
    }
}

/// Reads a credentials file. Returns its content, and its [`Stamp`], which changes when the file changes. The stamp is
/// taken before the content is read, so a later check also finds a change that happened during the read.
pub(super) fn load(path: &Path) -> Result<(Table, Stamp), CredentialsError> {
    let file = path.display().to_string();
    let unreadable = |source| CredentialsError::Unreadable { file: file.clone(), source };
    let handle = std::fs::File::open(path).map_err(unreadable)?;
    if let Some(mode) = private::exposed(&handle).map_err(unreadable)? {
        return Err(CredentialsError::Exposed { file, mode });
    }
    let stamp = Stamp::of(&handle.metadata().map_err(unreadable)?);
    let text = Zeroizing::new(std::io::read_to_string(handle).map_err(unreadable)?);
    Ok((Table::parse(&file, &text)?, stamp))
}
