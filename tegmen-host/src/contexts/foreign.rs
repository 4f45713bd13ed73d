//! Imports and exports OSCORE contexts in the formats of aiocoap and libcoap.

use super::directory::create_used;
use super::file::{ContextFile, aead_name};
use super::keeper::allowance;
use super::kind::used;
use super::source::CONTEXT;
use super::{ContextError, create, file_error, write_error};
use crate::hex::{from_hex, to_hex};
use crate::private;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use tegmen::oscore::{Aead, MAX_PARTIAL_IV};
use tegmen_store::clock::now;
use tegmen_store::files::beside;
use zeroize::Zeroizing;

/// The format of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// A directory with `settings.json`, `secret.json` and `sequence.json`.
    Aiocoap,
    /// A file of lines such as `sender_id,hex,"01"`.
    Libcoap,
}

/// Writes a line for Wireshark's table `oscore_contexts` (Preferences, Protocols, OSCORE). With this line Wireshark
/// decrypts the messages of both endpoints of the context in `dir`.
///
/// # Errors
/// [`ContextError::Syntax`] for an algorithm that Wireshark does not support; [`ContextError::Exists`],
/// [`ContextError::NotWritten`].
pub fn export_to_wireshark(dir: &Path, to: &Path) -> Result<(), ContextError> {
    let context = ContextFile::read(dir)?;
    if context.aead != Aead::AesCcm16_64_128 {
        return Err(ContextError::Syntax {
            file: dir.join(CONTEXT).display().to_string(),
            line: 1,
            message: format!("algorithm: Wireshark decrypts AES-CCM-16-64-128 only, not {}", aead_name(context.aead)),
        });
    }
    let id_context = context.id_context.as_deref().unwrap_or(&[]);
    let fields: [&[u8]; 5] =
        [&context.sender_id, &context.recipient_id, &*context.master_secret, &context.master_salt, id_context];
    let mut line = Zeroizing::new(String::new());
    for field in fields {
        line.push_str(&format!("\"{}\",", to_hex(field)));
    }
    line.push_str("\"AES-CCM-16-64-128 (CCM*)\"\n");
    write(to, &line)
}

impl Format {
    /// Converts a context of aiocoap or libcoap into a directory of Tegmen. Do not use the files in `from` afterwards:
    /// two programs that use the same keys would repeat nonces.
    ///
    /// # Errors
    /// [`ContextError`].
    pub fn import(self, from: &Path, dir: &Path) -> Result<(), ContextError> {
        match self {
            Self::Aiocoap => {
                let (context, next) = read_aiocoap(from)?;
                match next {
                    None => create(dir, &context),
                    Some(next) => create_used(dir, &context, next),
                }
            }
            // libcoap's file does not contain the numbers that were used.
            Self::Libcoap => create(dir, &read_libcoap(from)?),
        }
    }

    /// `dir` contains the context of this endpoint. Writes the context for the other endpoint. With `recover` the
    /// sequence numbers of the written context begin above every number that the other endpoint may have used. The
    /// number at which they begin is written to `sequence.json` for aiocoap, and to a second file `TO.seq` for libcoap.
    ///
    /// # Errors
    /// [`ContextError::Used`] if the context was used and `recover` is false; [`ContextError::Exhausted`] if no
    /// sequence number is left; [`ContextError::Exists`], [`ContextError::NotWritten`] and [`ContextError::File`] for
    /// the files.
    pub fn export_other_end(self, dir: &Path, to: &Path, recover: bool) -> Result<(), ContextError> {
        let context = ContextFile::read(dir)?;
        if !recover {
            return match used(dir) {
                Ok(used) if used.is_unused => self.export(&context.mirrored(), to),
                _ => Err(ContextError::Used { dir: dir.display().to_string() }),
            };
        }
        let next = allowance(context.created);
        if next > MAX_PARTIAL_IV {
            return Err(ContextError::Exhausted { dir: dir.display().to_string() });
        }
        self.export(&context.mirrored(), to)?;
        match self {
            Self::Aiocoap => {
                let sequence = json!({ "next-to-send": next, "received": "unknown" });
                write(&to.join("sequence.json"), &format!("{sequence:#}\n"))
            }
            Self::Libcoap => write(&beside(to, "seq"), &format!("{next}\n")),
        }
    }

    /// Writes `context` in this format, without exchanging the Sender ID and the Recipient ID, for a program that
    /// replaces this endpoint. The context must be unused.
    ///
    /// # Errors
    /// [`ContextError::File`].
    pub fn export(self, context: &ContextFile, to: &Path) -> Result<(), ContextError> {
        let text = match self {
            Self::Aiocoap => {
                std::fs::create_dir_all(to).map_err(write_error(to))?;
                let mut settings = json!({
                    "sender-id_hex": to_hex(&context.sender_id),
                    "recipient-id_hex": to_hex(&context.recipient_id),
                    "secret_hex": to_hex(&context.master_secret),
                    "salt_hex": to_hex(&context.master_salt),
                    "algorithm": aead_name(context.aead),
                    "kdf-hashfun": "sha256",
                });
                if let Some(id_context) = &context.id_context {
                    settings["id-context_hex"] = json!(to_hex(id_context));
                }
                return write(&to.join("settings.json"), &format!("{settings:#}\n"));
            }
            Self::Libcoap => {
                let mut text = String::new();
                let mut hex = |key: &str, value: &[u8]| text.push_str(&format!("{key},hex,\"{}\"\n", to_hex(value)));
                hex("master_secret", &context.master_secret);
                hex("master_salt", &context.master_salt);
                hex("sender_id", &context.sender_id);
                hex("recipient_id", &context.recipient_id);
                if let Some(id_context) = &context.id_context {
                    hex("id_context", id_context);
                }
                if context.rederivation {
                    text.push_str("rfc8613_b_2,bool,true\nrfc8613_b_1_2,bool,false\n");
                }
                text.push_str(&format!("aead_alg,integer,{}\nhkdf_alg,integer,-10\n", context.aead.cose_id()));
                Zeroizing::new(text)
            }
        };
        write(to, &text)
    }
}

fn write(path: &Path, text: &str) -> Result<(), ContextError> {
    let mut file = private::open(File::options().write(true).create_new(true), path).map_err(write_error(path))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(write_error(path))
}

type Lookup<'a> = Box<dyn Fn(&str) -> Option<Vec<u8>> + 'a>;

/// The values of a file of another OSCORE implementation, by their names.
struct Values<'a> {
    file: String,
    value: Lookup<'a>,
}

impl Values<'_> {
    fn wrong(&self, message: &str) -> ContextError {
        ContextError::Syntax { file: self.file.clone(), line: 1, message: message.to_owned() }
    }

    fn need(&self, key: &str) -> Result<Vec<u8>, ContextError> {
        (self.value)(key).ok_or_else(|| self.wrong(&format!("{key} is missing, or not in hexadecimal or ascii")))
    }
}

fn read_aiocoap(dir: &Path) -> Result<(ContextFile, Option<u64>), ContextError> {
    let mut all = Map::new();
    for name in ["settings.json", "secret.json"] {
        let path = dir.join(name);
        let text = match std::fs::read_to_string(&path) {
            Err(error) if name == "secret.json" && error.kind() == std::io::ErrorKind::NotFound => continue,
            other => Zeroizing::new(other.map_err(file_error(&path))?),
        };
        let wrong = |error: serde_json::Error| ContextError::Syntax {
            file: path.display().to_string(),
            line: error.line(),
            message: error.to_string(),
        };
        all.extend(serde_json::from_str::<Map<String, Value>>(&text).map_err(wrong)?);
    }
    let text = |key: &str| all.get(key).and_then(Value::as_str);
    let value = |key: &str| {
        let hex = text(&format!("{key}_hex")).and_then(from_hex);
        hex.or_else(|| text(&format!("{key}_ascii")).map(|text| text.as_bytes().to_vec()))
    };
    let values = Values { file: dir.join("settings.json").display().to_string(), value: Box::new(value) };
    if text("kdf-hashfun").is_some_and(|name| name != "sha256") {
        return Err(values.wrong("kdf-hashfun: only sha256 is built here"));
    }
    let name = text("algorithm").unwrap_or("AES-CCM-16-64-128");
    let aead = Aead::ALL.into_iter().find(|aead| aead_name(*aead) == name);
    let context = ContextFile {
        sender_id: values.need("sender-id")?,
        recipient_id: values.need("recipient-id")?,
        master_secret: Zeroizing::new(values.need("secret")?),
        master_salt: (values.value)("salt").unwrap_or_default(),
        id_context: (values.value)("id-context"),
        aead: aead.ok_or_else(|| values.wrong(&format!("algorithm: {name} is not built here")))?,
        created: now(),
        expires: None,
        allow: None,
        rederivation: false,
    };
    let path = dir.join("sequence.json");
    let next = match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        other => {
            let text = other.map_err(file_error(&path))?;
            let next = serde_json::from_str::<Value>(&text).ok().and_then(|value| value["next-to-send"].as_u64());
            let damaged = || ContextError::Syntax {
                file: path.display().to_string(),
                line: 1,
                message: "next-to-send is missing: without it, nonces could be repeated".to_owned(),
            };
            Some(next.ok_or_else(damaged)?)
        }
    };
    Ok((context, next))
}

fn read_libcoap(path: &Path) -> Result<ContextFile, ContextError> {
    let text = Zeroizing::new(std::fs::read_to_string(path).map_err(file_error(path))?);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let entries: Vec<(&str, &str, &str)> = lines
        .filter_map(|line| {
            let (key, rest) = line.split_once(',')?;
            let (kind, value) = rest.split_once(',')?;
            Some((key.trim(), kind.trim(), value.trim().trim_matches('"')))
        })
        .collect();
    let find = |key: &str| entries.iter().find(|(name, ..)| *name == key).map(|(_, kind, value)| (*kind, *value));
    let value = |key: &str| match find(key)? {
        ("hex", value) => from_hex(value),
        ("ascii" | "text", value) => Some(value.as_bytes().to_vec()),
        _ => None,
    };
    let values = Values { file: path.display().to_string(), value: Box::new(value) };
    let integer = |key: &str, usual: &str| find(key).map_or(usual.to_owned(), |(_, value)| value.to_owned());
    if !matches!(integer("hkdf_alg", "-10").as_str(), "-10" | "direct+HKDF-SHA-256") {
        return Err(values.wrong("hkdf_alg: only -10 (HKDF with SHA-256) is built here"));
    }
    let number = integer("aead_alg", "10");
    let known = |aead: &Aead| number == aead.cose_id().to_string() || number == aead_name(*aead);
    Ok(ContextFile {
        sender_id: values.need("sender_id")?,
        recipient_id: values.need("recipient_id")?,
        master_secret: Zeroizing::new(values.need("master_secret")?),
        master_salt: (values.value)("master_salt").unwrap_or_default(),
        id_context: (values.value)("id_context"),
        aead: Aead::ALL
            .into_iter()
            .find(known)
            .ok_or_else(|| values.wrong(&format!("aead_alg: {number} is not built here")))?,
        created: now(),
        expires: None,
        allow: None,
        rederivation: false,
    })
}
