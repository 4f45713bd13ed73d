//! The text of a credentials file.

use super::from_hex;
use crate::private;
use serde::Deserialize;
use std::collections::HashMap;
use std::path::Path;
use std::time::SystemTime;
use tegmen::coap::Code;
use tegmen::dtls::need::MAX_PSK;
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
        /// Path of the file.
        file: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Others on this machine can read the keys.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds keys: chmod 600 {file}")]
    Exposed {
        /// Path of the file.
        file: String,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no such TOML.
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Psk {
    identity: Spanned<String>,
    key: Option<Spanned<String>>,
    key_text: Option<Spanned<String>>,
    allow: Option<Vec<Spanned<String>>>,
}

/// The rules; `None` allows everything.
pub(super) type Allow = Option<Vec<Rule>>;

/// One rule of `allow`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rule {
    /// `None` is every method.
    method: Option<Code>,
    /// With a `*` at the end everything that begins so.
    path: String,
}

impl Rule {
    pub(super) fn parse(text: &str) -> Option<Self> {
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

    pub(super) fn text(&self) -> String {
        let known = ["GET", "POST", "PUT", "DELETE", "FETCH", "PATCH", "iPATCH"];
        let same = |name: &&str| Self::parse(&format!("{name} /")).is_some_and(|rule| rule.method == self.method);
        let method = if self.method.is_none() { "*" } else { known.into_iter().find(same).unwrap_or("*") };
        format!("{method} {}", self.path)
    }

    pub(super) fn covers(&self, code: Code, path: &str) -> bool {
        let method = self.method.is_none_or(|method| method == code);
        method && self.path.strip_suffix('*').map_or(self.path == path, |prefix| path.starts_with(prefix))
    }
}

/// True if this can stand in `allow`.
pub(crate) fn is_rule(text: &str) -> bool {
    Rule::parse(text).is_some()
}

#[derive(Clone)]
pub(super) struct Entry {
    pub(super) key: Zeroizing<Vec<u8>>,
    pub(super) allow: Allow,
}

/// The contents of a credentials file.
#[derive(Default)]
pub(super) struct Table {
    pub(super) entries: HashMap<String, Entry>,
}

impl Table {
    /// One identity that may do everything.
    pub(super) fn single(identity: &str, key: &[u8]) -> Self {
        let entry = Entry { key: Zeroizing::new(key.to_vec()), allow: None };
        Self { entries: HashMap::from([(identity.to_owned(), entry)]) }
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

/// Reads a file; when it was changed last is looked at before.
pub(super) fn load(path: &Path) -> Result<(Table, Option<SystemTime>), CredentialsError> {
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
