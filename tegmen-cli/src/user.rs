//! `tegmen user`: manages the users of a delegation server, over the HTTPS interface of this server.

use crate::admin::{Admin, segment};
use crate::output::{Failure, Output, printable};
use crate::password;
use clap::{Args, Subcommand};
use hyper::Method;
use serde::Serialize;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::ExitCode;
use zeroize::Zeroizing;

const USERS: &str = "/v1/users";

#[derive(Args)]
pub(crate) struct Users {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add a user, who can log in with a password. The policy gives rights to the user under the name CN=NAME.
    #[command(after_help = "Example:\n  tegmen user add alice --hours 8")]
    Add {
        #[command(flatten)]
        named: Named,
        /// Read the password from this file, which only its owner can read. Without this option the command asks for
        /// the password.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// Hours for which a login is valid.
        #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=720))]
        hours: u32,
    },
    /// List the users, without their passwords.
    List {
        #[command(flatten)]
        admin: Admin,
    },
    /// Change a user. A new password, or --disable, revokes the certificates of earlier logins of the user, and ends
    /// the connections of the user with devices.
    #[command(
        after_help = "Examples:\n  tegmen user change alice --disable\n  tegmen user change alice --new-password"
    )]
    Change(Change),
    /// Remove a user. This revokes the certificates of the user's logins, and ends the connections of the user with
    /// devices.
    Remove(Named),
}

#[derive(Args)]
struct Named {
    /// Name of the user.
    name: String,
    #[command(flatten)]
    admin: Admin,
}

#[derive(Args)]
struct Change {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    changes: Changes,
}

#[derive(Args)]
#[group(required = true, multiple = true)]
struct Changes {
    /// Ask for a new password.
    #[arg(long, conflicts_with = "password_file")]
    new_password: bool,
    /// Read the new password from this file, which only its owner can read.
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Hours for which later logins are valid.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=720))]
    hours: Option<u32>,
    /// Disable the user.
    #[arg(long, conflicts_with = "enable")]
    disable: bool,
    /// Enable the user again.
    #[arg(long)]
    enable: bool,
}

/// A user to be added.
#[derive(Serialize)]
struct New<'n> {
    name: &'n str,
    password: &'n str,
    lifetime: u32,
}

/// A change of a user.
#[derive(Serialize)]
struct Changed<'c> {
    #[serde(skip_serializing_if = "Option::is_none")]
    password: Option<&'c str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime: Option<u32>,
}

const fn seconds(hours: u32) -> u32 {
    hours.saturating_mul(3600)
}

impl Users {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Add { named: Named { name, admin }, password_file, hours } => {
                let password = password::choose(password_file.as_deref(), &name)?;
                let new = New { name: &name, password: &password, lifetime: seconds(hours) };
                let user = admin.send_body(Method::POST, USERS, &new)?;
                let text = format!(
                    "Added the user {name}, who logs in by tegmen login {name} --output DIR. The policy gives the rights to CN={name}."
                );
                out.line(|| printable(&text), || with_event("added", user.clone()));
            }
            Command::List { admin } => admin.pages(USERS, |page| {
                let users = page["users"].as_array().into_iter().flatten();
                users.for_each(|user| out.line(|| describe(user), || user.clone()));
            })?,
            Command::Change(change) => change.run(out)?,
            Command::Remove(named) => {
                let ended = named.admin.send(Method::DELETE, &named.path())?;
                named.report("removed", &ended, out);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Change {
    fn run(self, out: Output) -> Result<(), Failure> {
        let Self { named, changes: Changes { new_password, password_file, hours, disable, enable } } = self;
        let password = match new_password || password_file.is_some() {
            true => Some(password::choose(password_file.as_deref(), &named.name)?),
            false => None,
        };
        let disabled = (disable || enable).then_some(disable);
        let password = password.as_ref().map(|password: &Zeroizing<String>| password.as_str());
        let changed = Changed { password, disabled, lifetime: hours.map(seconds) };
        let ended = named.admin.send_body(Method::PATCH, &named.path(), &changed)?;
        named.report("changed", &ended, out);
        Ok(())
    }
}

impl Named {
    fn path(&self) -> String {
        format!("{USERS}/{}", segment(&self.name))
    }

    /// Prints a change, and the logins that ended because of it.
    fn report(&self, event: &str, ended: &Value, out: Output) {
        let name = &self.name;
        let mut text = format!("The user {name} is {event}.");
        let connections: Vec<&str> =
            ended["connections"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        match ended["certificates"].as_u64() {
            None | Some(0) => {}
            Some(count) => text += &format!(" Revoked certificates: {count}."),
        }
        if !connections.is_empty() {
            text += &format!(" Revoked connections: {}.", connections.join(", "));
        }
        let mut object = with_event(event, ended.clone());
        object["name"] = json!(name);
        out.line(|| printable(&text), || object);
    }
}

fn with_event(event: &str, mut object: Value) -> Value {
    object["event"] = json!(event);
    object
}

/// Describes a user in one line.
fn describe(user: &Value) -> String {
    let hours = user["lifetime"].as_f64().unwrap_or_default() / 3600.0;
    let disabled = if user["disabled"] == true { ", disabled" } else { "" };
    printable(&format!("{}: logins of {hours} hours{disabled}", user["name"].as_str().unwrap_or_default()))
}
