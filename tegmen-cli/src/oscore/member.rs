//! Contexts of the members of a group (RFC 10021).

use crate::output::{Failure, Output};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tegmen::crypto::Curve;
use tegmen::oscore::Id;
use tegmen_host::contexts::{self, MemberFile};
use tegmen_host::hex::to_hex;

#[derive(Args)]
pub(super) struct NewGroup {
    /// Directory for the group; the last part of this path is the name of the group.
    dir: PathBuf,
    /// Names of all members, 2 to 256.
    #[arg(required = true, num_args = 2.., value_name = "NAME")]
    names: Vec<String>,
    /// Curve of the keys of all members.
    #[arg(long, value_enum, default_value_t = KeyCurve::Ed25519)]
    curve: KeyCurve,
    /// Time after which the contexts must not be used, such as 2027-12-31T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Right of a member at all other members, as "NAME=METHOD /path"; may be repeated. Default for each member: all
    /// rights.
    #[arg(long, value_name = "NAME=RULE", value_parser = right)]
    allow: Vec<(String, String)>,
}

#[derive(Clone, Copy, ValueEnum)]
enum KeyCurve {
    #[value(name = "ed25519")]
    Ed25519,
    #[value(name = "p256")]
    P256,
}

impl From<KeyCurve> for Curve {
    fn from(curve: KeyCurve) -> Self {
        match curve {
            KeyCurve::Ed25519 => Self::Ed25519,
            KeyCurve::P256 => Self::P256,
        }
    }
}

fn right(text: &str) -> Result<(String, String), String> {
    let (name, rule) = text.split_once('=').ok_or_else(|| "a member and a right, as switch='GET /*'".to_owned())?;
    Ok((name.to_owned(), rule.to_owned()))
}

impl NewGroup {
    pub(super) fn run(self, out: Output) -> Result<(), Failure> {
        let mut allow: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, rule) in self.allow {
            allow.entry(name).or_default().push(rule);
        }
        let made = contexts::create_group(&self.dir, &self.names, self.curve.into(), &allow, self.expires.as_deref());
        made.map_err(Failure::usage)?;
        let dirs: Vec<_> = self.names.iter().map(|name| self.dir.join(name)).collect();
        let files =
            dirs.iter().map(|dir| MemberFile::read(dir)).collect::<Result<Vec<_>, _>>().map_err(Failure::new)?;
        let [first, second, ..] = files.as_slice() else { return Ok(()) };
        let dir = self.dir.display();
        out.line(
            || {
                format!(
                    "{dir} has a directory for each member of a new group: {}.\nBring each to its device, and use it in one place only:\n  \
                     at {second}: tegmen serve --oscore {dir}/{second} --no-secure\n  \
                     at {first}: tegmen get --oscore {dir}/{first} --member {second} coap://HOST/temp    # {second} alone\n  \
                     at {first}: tegmen get --oscore {dir}/{first} 'coap://[ff02::fd%INTERFACE]/temp'    # all members",
                    self.names.join(", "),
                    first = first.name,
                    second = second.name,
                )
            },
            || {
                let members = files.iter().zip(&dirs).map(|(file, dir)| {
                    json!({ "name": file.name, "id": own_id(file), "dir": dir.display().to_string() })
                });
                json!({ "dir": dir.to_string(), "group": first.group, "group_id": to_hex(&first.group_id),
                    "members": members.collect::<Vec<_>>() })
            },
        );
        Ok(())
    }
}

/// Shows the context of a member, without its secrets.
pub(super) fn show(dir: &Path, out: Output) -> Result<(), Failure> {
    let file = MemberFile::read(dir).map_err(Failure::usage)?;
    let used = contexts::used(dir).map_err(Failure::usage)?;
    let expires = file.expires.as_ref().map(|(_, at)| at);
    out.line(
        || {
            let mut lines = vec![
                format!("group         {}", file.group),
                format!("group_id      {}", to_hex(&file.group_id)),
                format!("name          {}", file.name),
                format!("sender_id     {}", file.own.as_ref().map_or_else(|| "none (monitor)".to_owned(), |own| id(&own.sender_id))),
                format!("algorithm     {}", contexts::algorithm(file.aead)),
                format!("curve         {}", curve(file.curve)),
                format!("expires       {}", expires.map_or("never", String::as_str)),
                format!("numbers       {}", used.text()),
            ];
            lines.extend(file.others.iter().map(|other| {
                let rights = other.allow.as_ref().map_or("everything".to_owned(), |rules| rules.join(", "));
                format!("member        {} (ID {}) may use: {rights}", other.name, id(&other.id))
            }));
            lines.join("\n")
        },
        || {
            let members = file.others.iter().map(|other| {
                json!({ "name": other.name, "id": hex(&other.id), "credential": to_hex(&other.credential), "allow": other.allow })
            });
            json!({ "group": file.group, "group_id": to_hex(&file.group_id), "name": file.name,
                "sender_id": own_id(&file), "algorithm": contexts::algorithm(file.aead), "curve": curve(file.curve),
                "credential": file.own.as_ref().map(|own| to_hex(&own.credential)), "expires": expires, "members": members.collect::<Vec<_>>(),
                "next": used.next, "window_known": used.window_known })
        },
    );
    Ok(())
}

/// Returns the ID of a member; `None` for a monitor.
fn own_id(file: &MemberFile) -> Option<String> {
    file.own.as_ref().map(|own| hex(&own.sender_id))
}

fn hex(id: &Id) -> String {
    to_hex(id.as_bytes())
}

fn id(id: &Id) -> String {
    if id.as_bytes().is_empty() { "empty".to_owned() } else { hex(id) }
}

const fn curve(curve: Curve) -> &'static str {
    match curve {
        Curve::Ed25519 => "ed25519",
        Curve::P256 => "p256",
        Curve::X25519 => "x25519",
    }
}
