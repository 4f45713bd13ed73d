//! The file `context.toml` of a context between two endpoints. People can edit this file.

use super::ContextError;
use super::keeper::Terms;
use super::source::{EARLIEST, Source, utc};
use crate::hex::to_hex;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::path::Path;
use tegmen::oscore::{Aead, Parameters};
use toml::Spanned;
use toml::value::Datetime;
use zeroize::Zeroizing;

/// The content of the file of a context.
#[derive(Clone)]
pub struct ContextFile {
    /// The Sender ID of this endpoint, 0 to 7 bytes.
    pub sender_id: Vec<u8>,
    /// The Recipient ID, which is the Sender ID of the other endpoint, 0 to 7 bytes.
    pub recipient_id: Vec<u8>,
    /// The Master Secret, at least 16 bytes.
    pub master_secret: Zeroizing<Vec<u8>>,
    /// The Master Salt, which may be empty.
    pub master_salt: Vec<u8>,
    /// The ID Context, which distinguishes several contexts with one Master Secret; `None` if there is none.
    pub id_context: Option<Vec<u8>>,
    /// The AEAD algorithm.
    pub aead: Aead,
    /// The time of creation, in seconds since 1970. The total of the sequence numbers that the context has reserved is at
    /// most 4 times the number of milliseconds since one day before this time. If the file of sequence numbers is lost,
    /// this limit shows which numbers the context cannot have used.
    pub created: u64,
    /// The expiry time, in seconds since 1970, and its text in the file; `None` if the context does not expire.
    pub expires: Option<(u64, String)>,
    /// The rights of the other endpoint, as in a credentials file; `None` allows everything.
    pub allow: Option<Vec<String>>,
    /// True if both endpoints derive new keys when the sequence numbers cannot be trusted (RFC 8613, appendix B.2). If
    /// this is false, a context whose numbers cannot be trusted is refused.
    pub rederivation: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    sender_id: Spanned<String>,
    recipient_id: Spanned<String>,
    master_secret: Spanned<String>,
    #[serde(default)]
    master_salt: Option<Spanned<String>>,
    id_context: Option<Spanned<String>>,
    algorithm: Option<Spanned<String>>,
    created: Option<Spanned<Datetime>>,
    expires: Option<Spanned<Datetime>>,
    allow: Option<Vec<Spanned<String>>>,
    #[serde(default)]
    rederivation: bool,
}

/// Maximum number of bytes of an ID Context. Each mote can store an ID Context of this length.
const LONGEST_ID_CONTEXT: usize = 16;
const NOT_OF_TWO_ENDS: &str = "it is the context of a member of a group: use a context between two endpoints here, which `tegmen oscore new` makes";
/// Minimum number of bytes of a Master Secret.
const MIN_SECRET: usize = 16;

impl ContextFile {
    /// Reads `context.toml` in a directory.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn read(dir: &Path) -> Result<Self, ContextError> {
        let source = Source::read(dir)?;
        match source.is_of_member() {
            true => Err(source.wrong(0, NOT_OF_TWO_ENDS.to_owned())),
            false => Self::parse(&source),
        }
    }

    pub(super) fn parse(source: &Source) -> Result<Self, ContextError> {
        let wrong = |at: usize, message: String| source.wrong(at, message);
        let parsed: Text = source.parse(
            "a context has sender_id, recipient_id, master_secret and, if wanted, master_salt, id_context, algorithm, \
             created, expires, allow, rederivation",
        )?;
        let hex = |key: &str, value: Spanned<String>| source.hex(key, value);
        let algorithm_at = parsed.algorithm.as_ref().map_or(0, |name| name.span().start);
        let aead = match &parsed.algorithm {
            None => Aead::default(),
            Some(name) => Aead::ALL.into_iter().find(|aead| aead_name(*aead) == name.get_ref()).ok_or_else(|| {
                wrong(algorithm_at, format!("algorithm: one of {}", Aead::ALL.map(aead_name).join(", ")))
            })?,
        };
        let (secret_at, master_secret) = hex("master_secret", parsed.master_secret)?;
        if master_secret.len() < MIN_SECRET {
            return Err(wrong(secret_at, format!("master_secret: at least {MIN_SECRET} random bytes")));
        }
        let (sender_at, sender_id) = hex("sender_id", parsed.sender_id)?;
        let (recipient_at, recipient_id) = hex("recipient_id", parsed.recipient_id)?;
        for (at, id) in [(sender_at, &sender_id), (recipient_at, &recipient_id)] {
            if id.len() > aead.max_id() {
                return Err(wrong(at, format!("an ID: at most {} bytes with {}", aead.max_id(), aead_name(aead))));
            }
        }
        if sender_id == recipient_id {
            return Err(wrong(recipient_at, "recipient_id: another one than sender_id".to_owned()));
        }
        let id_context = match parsed.id_context {
            None => None,
            Some(value) => {
                let (at, id_context) = hex("id_context", value)?;
                if id_context.len() > LONGEST_ID_CONTEXT {
                    return Err(wrong(at, format!("id_context: at most {LONGEST_ID_CONTEXT} bytes")));
                }
                Some(id_context)
            }
        };
        let expires = parsed.expires.map(|at| source.time("expires", &at)).transpose()?;
        let created = parsed.created.map(|at| source.time("created", &at)).transpose()?;
        let master_salt = parsed.master_salt.map(|salt| hex("master_salt", salt)).transpose()?;
        let allow = parsed.allow.map(|rules| source.rules(rules)).transpose()?;
        Ok(Self {
            sender_id,
            recipient_id,
            master_secret: Zeroizing::new(master_secret),
            master_salt: master_salt.map(|(_, salt)| salt).unwrap_or_default(),
            id_context,
            aead,
            created: created.map_or(EARLIEST, |(at, _)| at),
            expires,
            allow,
            rederivation: parsed.rederivation,
        })
    }

    /// Returns the same context for the other endpoint, with the two IDs exchanged.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        Self { sender_id: self.recipient_id.clone(), recipient_id: self.sender_id.clone(), ..self.clone() }
    }

    /// Returns the same context with this expiry time, in seconds since 1970.
    #[must_use]
    pub fn until(self, expires: u64) -> Self {
        Self { expires: Some((expires, utc(expires))), ..self }
    }

    pub(super) fn to_text(&self) -> Zeroizing<String> {
        let mut text = String::from(
            "# An OSCORE security context (RFC 8613). Anyone who reads this file can read and forge its messages.\n",
        );
        let mut line = |key: &str, value: &str| text.push_str(&format!("{key} = \"{value}\"\n"));
        line("sender_id", &to_hex(&self.sender_id));
        line("recipient_id", &to_hex(&self.recipient_id));
        line("master_secret", &to_hex(&self.master_secret));
        line("master_salt", &to_hex(&self.master_salt));
        if let Some(id_context) = &self.id_context {
            line("id_context", &to_hex(id_context));
        }
        line("algorithm", aead_name(self.aead));
        text.push_str(&format!("created = {}\n", utc(self.created)));
        if let Some((_, at)) = &self.expires {
            text.push_str(&format!("expires = {at}\n"));
        }
        if let Some(allow) = &self.allow {
            text.push_str(&format!("allow = {allow:?}\n"));
        }
        if self.rederivation {
            text.push_str("rederivation = true\n");
        }
        Zeroizing::new(text)
    }

    pub(super) fn terms(&self) -> Terms {
        Terms { created: self.created, expires: self.expires.clone(), row: self.row(), others: None }
    }

    /// Returns the key of the database row with the sequence numbers of the context. Two directories of the same
    /// context have the same key.
    fn row(&self) -> String {
        let id_context = self.id_context.as_deref();
        let (has, id_context) = ([u8::from(id_context.is_some()), self.aead.cose_id()], id_context.unwrap_or(&[]));
        context_name(&[&self.master_secret, &self.master_salt, &self.sender_id, &self.recipient_id, &has, id_context])
    }

    pub(super) fn parameters(&self) -> Parameters<'_> {
        Parameters {
            master_secret: &self.master_secret,
            master_salt: &self.master_salt,
            sender_id: &self.sender_id,
            recipient_id: &self.recipient_id,
            id_context: self.id_context.as_deref(),
            aead: self.aead,
        }
    }
}

/// Returns the name of an algorithm in the COSE registry.
pub const fn aead_name(aead: Aead) -> &'static str {
    match aead {
        Aead::AesCcm16_64_128 => "AES-CCM-16-64-128",
        Aead::AesCcm16_128_128 => "AES-CCM-16-128-128",
        Aead::AesCcm64_64_128 => "AES-CCM-64-64-128",
        Aead::AesCcm64_128_128 => "AES-CCM-64-128-128",
        Aead::A128Gcm => "A128GCM",
    }
}

/// Returns the key of the database row for a context. `parts` are the secrets and the IDs of the context.
pub(super) fn context_name(parts: &[&[u8]]) -> String {
    let mut hash = Sha256::new_with_prefix(b"tegmen state of a context");
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    format!("{CONTEXTS}{}", to_hex(hash.finalize().get(..16).unwrap_or(&[])))
}

/// The prefix of the keys of database rows that contain contexts.
const CONTEXTS: &str = "oscore/";

#[cfg(test)]
mod tests;
