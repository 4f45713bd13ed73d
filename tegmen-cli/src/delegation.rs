//! `tegmen delegation`: manages delegated sessions, over the HTTPS interface of the delegation server.

use crate::admin::{Admin, done, rfc3339_of, save_once, segment, shown_once};
use crate::output::{Failure, Output, printable};
use clap::{Args, Subcommand};
use hyper::Method;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use zeroize::Zeroizing;

/// The path of the delegated devices in the HTTPS interface.
const DEVICES: &str = "/v1/delegation/devices";

#[derive(Args)]
pub(crate) struct Delegation {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the delegated devices and their epochs, and show which devices the server does not reach.
    Devices {
        #[command(flatten)]
        admin: Admin,
    },
    /// Show a delegated device. Its keys are never shown.
    Show(Named),
    /// Give a device another configuration. If the scopes change, all connections of the device end when its next epoch
    /// begins.
    Configure(Configure),
    /// Disable a device: the server opens no new sessions in the name of the device. Existing sessions of the device
    /// continue until they are revoked.
    Disable(Named),
    /// Enable a device again.
    Enable(Named),
    /// Let a device open a session with another device of the server. The policy decides which rights each device has
    /// at the other device.
    #[command(after_help = "Example:\n  tegmen delegation create switch.example lamp.example")]
    Create {
        /// Name of the device that opens the session.
        opener: String,
        /// Name of the other device.
        other: String,
        #[command(flatten)]
        admin: Admin,
    },
    /// Open a session of a device with an outside server, which is a server that does not belong to this installation.
    /// The delegation server performs the handshake with the certificate of the device, and the device resumes the
    /// session at the outside server. The delegation server accepts the outside server if one of the authorities in
    /// --delegation-trust issued its certificate.
    #[command(
        after_help = "Example:\n  tegmen delegation connect lamp.example '[2001:db8::5]:5684' --server-name hub.example"
    )]
    Connect {
        #[command(flatten)]
        named: Named,
        /// The address and port of the server with which the device opens the session. This server does not belong to
        /// this installation.
        #[arg(value_name = "IP:PORT")]
        address: SocketAddr,
        /// The name in the certificate of the server with which the device opens the session.
        #[arg(long, value_name = "NAME")]
        server_name: String,
    },
    /// List the connections of a device.
    List {
        #[command(flatten)]
        named: Named,
        /// List only reserved connection numbers without an entry in the store. If the server was killed, a peer may
        /// have a connection with such a number.
        #[arg(long)]
        unaccounted: bool,
    },
    /// Revoke connections of a device, each written as EPOCH-NUMBER. The server then accepts no ticket of these
    /// connections, and informs the device at once, or when the device wakes.
    #[command(after_help = "Example:\n  tegmen delegation revoke lamp.example 3-17 3-18")]
    Revoke {
        /// Name of the device.
        name: String,
        /// The connections, such as 3-17 for number 17 in epoch 3.
        #[arg(required = true)]
        connections: Vec<String>,
        #[command(flatten)]
        admin: Admin,
    },
    /// Begin the next epoch of a device: all its sessions and tickets end. A peer with a ticket gets a new ticket when
    /// the peer returns to the server. The new ticket has the same rights and the same expiry time.
    Reset {
        #[command(flatten)]
        named: Named,
        /// Show what would end, and change nothing.
        #[arg(long)]
        preview: bool,
    },
    /// After a reset, reopen the sessions between a device and other devices of the server. Show how each connection of
    /// the previous epoch continues in the current epoch. No connection gets another scope, another time of
    /// authentication or another expiry time.
    Reissue {
        #[command(flatten)]
        named: Named,
        /// Show which sessions would be opened, and change nothing.
        #[arg(long)]
        preview: bool,
    },
    /// Treat the server as compromised: draw new device keys, and list the connections that an intruder with the old
    /// keys can read and resume. The new keys are written to files NAME.key that only you can read. Bring these files
    /// to the devices. The command also replaces the certificates of the devices and their private keys. It lists the
    /// old certificates, and revokes those that the CA of the server issued.
    #[command(
        after_help = "Example:\n  tegmen delegation server-compromised lamp.example valve.example --output-dir keys"
    )]
    ServerCompromised {
        /// Names of the devices that get new keys.
        #[arg(required = true)]
        devices: Vec<String>,
        /// Write the device keys to this directory.
        #[arg(long, value_name = "DIR")]
        output_dir: PathBuf,
        #[command(flatten)]
        admin: Admin,
    },
}

#[derive(Args)]
struct Named {
    /// Name of the device.
    name: String,
    #[command(flatten)]
    admin: Admin,
}

/// The configuration of a device.
#[derive(Args)]
struct Configuration {
    /// The address and port at which the device receives requests from its server.
    #[arg(long, value_name = "IP:PORT")]
    address: Option<SocketAddr>,
    /// A scope that the device knows: rules with a comma between them, such as 'GET /temp,PUT /light'; may be
    /// repeated. A peer gets the first scope whose rules are all allowed by the policy.
    #[arg(long = "scope", value_name = "RULES")]
    scopes: Vec<String>,
    /// A tag of the device, by which rules of the policy can name the device; may be repeated.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// Number of connections that the device can refuse in an epoch: the size of its list of refused connections.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    places: u32,
    /// Hours for which a delegation lasts.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=744))]
    hours: u32,
}

impl Configuration {
    /// Returns the configuration in the form that the server reads.
    fn body(&self) -> Result<Value, Failure> {
        let Self { address, scopes, tags, places, hours } = self;
        let Some(address) = address else {
            return Err(Failure::usage("--address: the address of the device is needed, as [fd00::17]:5684"));
        };
        if scopes.is_empty() {
            return Err(Failure::usage("--scope: a device has a scope at least, as --scope 'GET /temp'"));
        }
        let rules = |scope: &String| scope.split(',').map(|rule| rule.trim().to_owned()).collect::<Vec<_>>();
        let scopes: Vec<_> = scopes.iter().map(rules).collect();
        let lifetime = hours.saturating_mul(3600);
        Ok(json!({ "address": address, "scopes": scopes, "tags": tags, "places": places, "lifetime": lifetime }))
    }
}

#[derive(Args)]
struct Configure {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    configuration: Configuration,
}

/// The options of `tegmen device imprint`.
#[derive(Args)]
pub(crate) struct Imprint {
    #[command(flatten)]
    named: Named,
    #[command(flatten)]
    configuration: Configuration,
    /// Draw a new device key for a device that the server knows. All connections of the device end.
    #[arg(long, conflicts_with_all = ["address", "scopes", "tags", "places", "hours"])]
    again: bool,
    /// Write the device key to this file, which must not exist: 64 hexadecimal digits.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
}

impl Imprint {
    pub(crate) fn run(self, out: Output) -> Result<(), Failure> {
        let Self { named, configuration, again, output } = self;
        let Named { name, admin } = &named;
        let created = match again {
            true => None,
            false => Some(json!({ "name": name, "config": configuration.body()? })),
        };
        let create = || {
            let imprinted = match &created {
                Some(body) => admin.send_body(Method::POST, DEVICES, body)?,
                None => admin.send(Method::POST, &format!("{}/imprint", named.path()))?,
            };
            shown_once(imprinted, "name")
        };
        let undo = |name: &String| format!("draw another by tegmen device imprint {name} --again");
        let name = save_once(std::slice::from_ref(&output), create, undo)?;
        let file = output.display();
        out.line(
            || {
                printable(&format!(
                    "Imprinted {name}, and wrote its device key to {file} (mode 600). Bring it to the device."
                ))
            },
            || json!({ "event": "imprinted", "name": name, "file": file.to_string() }),
        );
        Ok(())
    }
}

impl Delegation {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Devices { admin } => admin.pages(DEVICES, |page| {
                let devices = page["devices"].as_array().into_iter().flatten();
                devices.for_each(|device| out.line(|| describe(device), || device.clone()));
            })?,
            Command::Show(named) => {
                let device = named.admin.send(Method::GET, &named.path())?;
                out.line(|| describe(&device), || device.clone());
            }
            Command::Configure(Configure { named, configuration }) => {
                named.admin.send_body(Method::PUT, &named.path(), &configuration.body()?)?;
                named.report("configured", out);
            }
            Command::Disable(named) => named.set_disabled(true, out)?,
            Command::Enable(named) => named.set_disabled(false, out)?,
            Command::Create { opener, other, admin } => {
                let body = json!({ "opener": opener, "other": other });
                let created = admin.send_body(Method::POST, "/v1/delegation/introductions", &body)?;
                let id = |field: &str| created[field].as_str().unwrap_or_default().to_owned();
                let text = format!(
                    "{opener} opens a session with {other}: the connection {} at {opener}, and {} at {other}.",
                    id("opener"),
                    id("other")
                );
                out.line(|| printable(&text), || created.clone());
            }
            Command::Connect { named: Named { name, admin }, address, server_name } => {
                let body = json!({ "device": name, "address": address, "server_name": server_name });
                let opened = admin.send_body(Method::POST, "/v1/delegation/sessions", &body)?;
                let id = opened["connection"].as_str().unwrap_or_default();
                let text = format!("{name} resumes a session at {address}: the connection {id}.");
                out.line(|| printable(&text), || opened.clone());
            }
            Command::List { named, unaccounted: false } => {
                named.admin.pages(&format!("{}/connections", named.path()), |page| {
                    let connections = page["connections"].as_array().into_iter().flatten();
                    connections.for_each(|one| out.line(|| describe_connection(one), || one.clone()));
                })?;
            }
            Command::List { named, unaccounted: true } => {
                let unaccounted = named.admin.send(Method::GET, &format!("{}/unaccounted", named.path()))?;
                for id in unaccounted["connections"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                    out.line(|| id.to_owned(), || json!({ "id": id }));
                }
            }
            Command::Revoke { name, connections, admin } => revoke(&Named { name, admin }, &connections, out)?,
            Command::Reset { named, preview } => named.reset(preview, out)?,
            Command::Reissue { named, preview } => named.reissue(preview, out)?,
            Command::ServerCompromised { devices, output_dir, admin } => {
                server_compromised(&admin, &devices, &output_dir, out)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Named {
    fn path(&self) -> String {
        format!("{DEVICES}/{}", segment(&self.name))
    }

    fn set_disabled(&self, disabled: bool, out: Output) -> Result<(), Failure> {
        self.admin.send_body(Method::PATCH, &self.path(), &json!({ "disabled": disabled }))?;
        self.report(if disabled { "disabled" } else { "enabled" }, out);
        Ok(())
    }

    fn report(&self, event: &str, out: Output) {
        out.line(|| printable(&format!("The device {} is {event}.", self.name)), || done(event, &self.name));
    }

    fn reset(&self, preview: bool, out: Output) -> Result<(), Failure> {
        let method = if preview { Method::GET } else { Method::POST };
        let ends = self.admin.send(method, &format!("{}/reset", self.path()))?;
        let count = |field: &str| ends[field].as_u64().unwrap_or_default();
        let (again, end) = (count("return_by_ticket"), count("end").saturating_add(count("end_unreturned")));
        let (next, free) = (count("epoch").saturating_add(1), count("revoked"));
        let verb = if preview { "would begin" } else { "begins" };
        let text = format!(
            "{} {verb} the epoch {next}: {again} peers get another ticket when they return, {end} authenticate themselves again, and \
             the places of {free} revoked connections become free.",
            self.name
        );
        let mut object = ends.clone();
        object["event"] = if preview { "preview" } else { "reset" }.into();
        object["name"] = self.name.as_str().into();
        out.line(|| printable(&text), || object);
        Ok(())
    }

    fn reissue(&self, preview: bool, out: Output) -> Result<(), Failure> {
        let method = if preview { Method::GET } else { Method::POST };
        let reissued = self.admin.send(method, &format!("{}/reissue", self.path()))?;
        for one in reissued["connections"].as_array().into_iter().flatten() {
            out.line(|| describe_reissue(one, preview), || one.clone());
        }
        Ok(())
    }
}

/// Describes in one line how a connection of the previous epoch continues in the current epoch, or why it ends.
fn describe_reissue(reissue: &Value, preview: bool) -> String {
    let before = describe_connection(&reissue["before"]);
    let what = match (reissue["way"].as_str(), reissue["given"].as_str(), reissue["failed"].as_str()) {
        (_, Some(given), _) => format!("given again as {given}"),
        (_, _, Some(code)) => format!("not given again ({code})"),
        (Some("again"), ..) if preview => "would be given again".to_owned(),
        (Some("again"), ..) => "not given again".to_owned(),
        (Some("returns"), ..) => "its peer gets another ticket when it returns".to_owned(),
        (Some("no-rights"), ..) => {
            "the policy no longer allows its scope: revoke it, because its peer keeps this scope".to_owned()
        }
        _ => "ends: its peer authenticates itself again, or you open the session again".to_owned(),
    };
    printable(&format!("{before}: {what}"))
}

/// Revokes connections one after the other. If the server does not revoke a connection, continues with the next one.
fn revoke(named: &Named, connections: &[String], out: Output) -> Result<(), Failure> {
    let mut failures = Vec::new();
    for id in connections {
        match named.admin.send(Method::DELETE, &format!("{}/connections/{}", named.path(), segment(id))) {
            Ok(revoked) => {
                let all = revoked["connections"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let all = all.collect::<Vec<_>>().join(", ");
                let by = match (revoked["by_reset"] == true, revoked["confirmed"] == false) {
                    (true, _) => " The next epoch of the device begins.",
                    (false, true) => {
                        " The device has not confirmed it yet, and may still accept it: see tegmen delegation show."
                    }
                    (false, false) => "",
                };
                let mut object = revoked.clone();
                object["event"] = "revoked".into();
                object["name"] = named.name.as_str().into();
                out.line(|| printable(&format!("Revoked {all} of {}.{by}", named.name)), || object);
            }
            Err(failure) => failures.push(failure.message),
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::new(failures.join("\n"))) }
}

/// Draws new device keys, and prints the connections that an intruder with the old keys can read and resume.
fn server_compromised(admin: &Admin, names: &[String], dir: &Path, out: Output) -> Result<(), Failure> {
    let wrong = |error| Failure::usage(format!("--output-dir: {}: {error}: correct the path", dir.display()));
    std::fs::create_dir_all(dir).map_err(wrong)?;
    let outputs: Vec<PathBuf> = names.iter().map(|name| dir.join(format!("{name}.key"))).collect();
    if let Some(name) = names.iter().find(|name| name.contains(['/', '\\']) || name.starts_with('.')) {
        return Err(Failure::usage(format!("{name} is no name of a delegated device")));
    }
    let create = || {
        let mut drill =
            admin.send_body(Method::POST, "/v1/delegation/server-compromised", &json!({ "devices": names }))?;
        let mut devices = match drill["devices"].take() {
            Value::Array(devices) if devices.len() == names.len() => devices,
            _ => return Err(Failure::new("the server answered without the keys: compare the URL")),
        };
        let keys = devices.iter_mut().map(|device| match device["key"].take() {
            Value::String(key) => Ok(Zeroizing::new(key)),
            _ => Err(Failure::new("the server answered without a key: compare the URL")),
        });
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        Ok((devices, keys))
    };
    let undo = |_: &Vec<Value>| "repeat the command".to_owned();
    let devices = save_once(&outputs, create, undo)?;
    for (device, file) in devices.iter().zip(&outputs) {
        let (connections, certificates) = (device["connections"].as_array(), device["certificates"].as_array());
        let (name, file) = (device["name"].as_str().unwrap_or_default(), file.display());
        let count = connections.map_or(0, Vec::len);
        out.line(
            || {
                printable(&format!(
                    "{name} has another device key, in {file} (mode 600). {count} connections were reachable:"
                ))
            },
            || {
                json!({ "event": "imprinted", "name": name, "file": file.to_string(), "connections": connections,
                    "certificates": certificates })
            },
        );
        if !out.json {
            connections.into_iter().flatten().for_each(|one| out.text(format!("  {}", describe_connection(one))));
            certificates.into_iter().flatten().for_each(|one| out.text(describe_replaced(one)));
        }
    }
    Ok(())
}

/// Describes a replaced certificate, and the next step of the operator, in one line.
fn describe_replaced(certificate: &Value) -> String {
    let text = |field: &str| certificate[field].as_str().unwrap_or_default();
    let until = rfc3339_of(&certificate["expires"]);
    let next = match certificate["revoked"].as_bool() {
        Some(true) => "is revoked in the CRL: copy crl.pem to every peer",
        _ => "is replaced: ask the authority to revoke it",
    };
    printable(&format!("The certificate {} of {}, valid until {until}, {next}.", text("serial"), text("issuer")))
}

/// Describes a device in one line.
fn describe(device: &Value) -> String {
    let text = |field: &str| device[field].as_str().unwrap_or_default().to_owned();
    let epoch = match (device["epoch"].as_u64(), device["pending"].as_u64()) {
        (Some(0), _) => "not reached yet".to_owned(),
        (epoch, None) => format!("epoch {}", epoch.unwrap_or_default()),
        (epoch, Some(next)) => format!("epoch {}, next {next}", epoch.unwrap_or_default()),
    };
    let mut line = format!("{} at {}: {epoch}", text("name"), text("address"));
    let mut add = |part: String| line += &format!(", {part}");
    if let Some(why) = device["reset"].as_str() {
        add(format!("next epoch due ({why})"));
    }
    match device["untold"].as_u64() {
        None | Some(0) => {}
        Some(untold) => add(format!("{untold} revocations not acknowledged yet")),
    }
    if device["disabled"] == true {
        add("disabled".to_owned());
    }
    let unreachable = &device["unreachable"];
    if unreachable.is_object() {
        let (since, why) = (rfc3339_of(&unreachable["since"]), unreachable["why"].as_str().unwrap_or_default());
        add(format!("unreachable since {since}: {why}"));
    } else if !device["heard"].is_null() {
        add(format!("heard {}", rfc3339_of(&device["heard"])));
    }
    let certificate = &device["certificate"];
    if certificate.is_object() {
        add(match certificate["expires"].is_null() {
            true => "no certificate".to_owned(),
            false => format!("certificate until {}", rfc3339_of(&certificate["expires"])),
        });
    }
    if let Some(why) = certificate["problem"].as_str() {
        add(format!("certificate: {why}"));
    }
    printable(&line)
}

/// Describes a connection in one line.
fn describe_connection(connection: &Value) -> String {
    let text = |field: &str| connection[field].as_str().unwrap_or_default().to_owned();
    let (since, until) = (rfc3339_of(&connection["since"]), rfc3339_of(&connection["expires"]));
    let of = connection["of"].as_str().map_or_else(String::new, |of| format!(", in place of {of}"));
    let revoked = if connection["revoked"] == true { ", revoked" } else { "" };
    let (id, peer, carrier, scope) = (text("id"), text("peer"), text("carrier"), &connection["scope"]);
    printable(&format!("{id} {peer}: scope {scope}, by {carrier}, since {since} until {until}{of}{revoked}"))
}
