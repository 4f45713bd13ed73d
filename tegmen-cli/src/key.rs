//! `tegmen key`: manages the API keys of an access control server, over the HTTPS interface of this server.

use crate::admin::{Admin, after, done, rfc3339_of, save_once, segment, shown_once};
use crate::output::{Failure, Output, printable};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use tegmen_admin::Scope;

#[derive(Args)]
pub(crate) struct Key {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a key, and write it to a file that only you can read. The server cannot show the key again.
    #[command(after_help = "Example, with the token of the first start:\n  \
        tegmen key create root --scope keys:write --scope devices:write --output root.key \\\n      \
        --server https://localhost:8443 --ca ca.pem --key-file /var/lib/tegmen/bootstrap")]
    Create(Create),
    /// List the keys, without their secrets.
    List {
        #[command(flatten)]
        admin: Admin,
    },
    /// Remove a key.
    Remove {
        /// ID of the key, as `tegmen key list` shows it.
        id: String,
        #[command(flatten)]
        admin: Admin,
    },
}

#[derive(Args)]
struct Create {
    /// Name of the key, for the audit log.
    name: String,
    /// A scope of the key: a part of the interface that the key may use; may be repeated.
    #[arg(long = "scope", required = true, value_name = "SCOPE", value_parser = Scope::ALL.map(Scope::name))]
    scopes: Vec<String>,
    /// Days until the key expires. The key with which you create it must not expire earlier.
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=366))]
    days: u64,
    /// Write the key to this file, which must not exist.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    admin: Admin,
}

impl Key {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Create(create) => create.run(out)?,
            Command::List { admin } => {
                let keys = admin.send(Method::GET, "/v1/keys")?;
                for key in keys["keys"].as_array().into_iter().flatten() {
                    out.line(|| describe(key), || key.clone());
                }
            }
            Command::Remove { id, admin } => {
                admin.send(Method::DELETE, &format!("/v1/keys/{}", segment(&id)))?;
                out.line(|| printable(&format!("The key {id} is removed.")), || done("removed", &id));
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Create {
    fn run(self, out: Output) -> Result<(), Failure> {
        let Self { name, scopes, days, output, admin } = self;
        let body = json!({ "name": name, "scopes": scopes, "expires": after(days.saturating_mul(86_400)) });
        let create = || shown_once(admin.send_body(Method::POST, "/v1/keys", &body)?, "id");
        let id = save_once(std::slice::from_ref(&output), create, |id| format!("remove it by tegmen key remove {id}"))?;
        let file = output.display();
        out.line(
            || format!("Created the key {id}, and wrote it to {file} (mode 600)."),
            || json!({ "event": "created", "id": id, "file": file.to_string() }),
        );
        Ok(())
    }
}

/// Describes a key in one line.
pub(crate) fn describe(key: &Value) -> String {
    let text = |field: &str| key[field].as_str().unwrap_or_default();
    let scopes: Vec<&str> = key["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let end = rfc3339_of(&key["expires"]);
    printable(&format!("{} {}: {}, until {end}", text("id"), text("name"), scopes.join(" ")))
}
