//! `tegmen oscore`: security contexts in directories.

mod member;

use crate::connect::seconds;
use crate::output::{Failure, Output, runtime};
use crate::random;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::oscore::{Aead, discovery_address};
use tegmen_host::client::{Request, discover};
use tegmen_host::contexts::{self, ContextFile, Format};
use tegmen_host::credentials::is_rule;
use tegmen_host::hex::{from_hex, to_hex};
use tegmen_host::provider::HostCrypto;
use tegmen_host::state;
use zeroize::Zeroizing;

#[derive(Args)]
pub(crate) struct Oscore {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Create a context with a new secret: one directory for each of its two endpoints.
    #[command(after_help = "Examples:\n  tegmen oscore new client server\n  \
        tegmen oscore new sensor-17 gateway/sensor-17 --sender-id 11 --recipient-id 00 --allow 'GET /*'\n\n\
        Copy the second directory to the other endpoint. `--allow` sets the rights that the owner of the first directory has at the \
        other endpoint.")]
    New(New),
    /// Create a group with Group OSCORE (RFC 10021): each member protects messages to all members, and messages to one
    /// member. The command makes one directory for each member.
    #[command(after_help = "Examples:\n  tegmen oscore new-group lights switch hall porch\n  \
        tegmen oscore new-group lights switch hall --curve p256 --allow 'switch=GET /*' --allow 'switch=PUT /light' --allow 'hall=GET /*'\n\n\
        Copy the directory of each member to the device of this member. `--allow` sets the rights that a member has at all other \
        members. To change the group, make a new group.")]
    NewGroup(member::NewGroup),
    /// Show the IDs of a context, and the sequence numbers that it used. The context belongs to one of two endpoints,
    /// or to a member of a group. Secrets are not shown.
    Show {
        /// Directory of the context.
        dir: PathBuf,
    },
    /// Import a context of aiocoap (a directory) or libcoap (a file).
    #[command(after_help = "Example:\n  tegmen oscore import --from aiocoap ~/.config/aiocoap/alice alice\n\n\
        Do not use the original context any more: two ends with the same keys would use the same nonces.")]
    Import {
        /// Implementation that wrote the context.
        #[arg(long, value_enum)]
        from: Whose,
        /// The directory or file to read.
        source: PathBuf,
        /// Directory to create.
        dir: PathBuf,
    },
    /// Export the context that the peer of this endpoint needs, for aiocoap (a directory) or libcoap (a file).
    #[command(after_help = "Examples:\n  tegmen oscore export --to libcoap client server.conf\n  \
        tegmen oscore export --to libcoap --recover client server.conf   # then: coap-server -E server.conf,server.conf.seq\n  \
        tegmen oscore export --to wireshark client ~/.config/wireshark/oscore_contexts")]
    Export {
        /// Format to write. The format `wireshark` is a line for Wireshark's table oscore_contexts. With this line,
        /// Wireshark can decrypt both directions.
        #[arg(long, value_enum)]
        to: Target,
        /// Directory of the context.
        dir: PathBuf,
        /// The directory or file to write; it must not exist.
        target: PathBuf,
        /// Export a context that was used before. The sequence numbers of the exported endpoint then begin after all
        /// numbers that may have been used (aiocoap: sequence.json, libcoap: a second file TARGET.seq).
        #[arg(long)]
        recover: bool,
    },
    /// Find the server of a context on a link, by a protected multicast request that only this server can decrypt.
    #[command(after_help = "Example:\n  tegmen oscore find client --interface eth0\n\n\
        The server joins the address of the context with `tegmen serve --oscore DIR --oscore-discovery eth0`.")]
    Find(Find),
    /// Skip all sequence numbers that a context may have used, after the context was restored, copied or damaged. The
    /// context belongs to one of two endpoints, or to a member of a group. After this command, the other endpoint (or
    /// each other member of the group) has to prove that its next request is fresh, which costs one round trip.
    Recover {
        /// Directory of the context, or a database of `serve --state`. In a database, the command also deletes the
        /// DTLS sessions.
        dir: PathBuf,
    },
}

#[derive(Args)]
struct New {
    /// Directory for this endpoint.
    dir: PathBuf,
    /// Directory for the other endpoint.
    other: PathBuf,
    /// ID of this endpoint, 0 to 7 bytes in hexadecimal; one random byte by default.
    #[arg(long, value_name = "HEX", value_parser = bytes)]
    sender_id: Option<Bytes>,
    /// ID of the other endpoint; empty (the shortest) by default.
    #[arg(long, value_name = "HEX", value_parser = bytes)]
    recipient_id: Option<Bytes>,
    /// ID Context, up to 16 bytes in hexadecimal, for contexts that the IDs alone do not distinguish.
    #[arg(long, value_name = "HEX", value_parser = bytes)]
    id_context: Option<Bytes>,
    /// AEAD algorithm.
    #[arg(long, value_enum, default_value_t = Algorithm::AesCcm16_64_128)]
    algorithm: Algorithm,
    /// Time after which the context must not be used, such as 2027-12-31T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Derive new keys at both endpoints (RFC 8613, appendix B.2) when one endpoint has lost its sequence numbers or
    /// was restored from a backup. Without this option, the context is refused in this case.
    #[arg(long)]
    rederivation: bool,
    /// A right that this endpoint (the owner of DIR) has at the other endpoint (the owner of OTHER), as "METHOD /path";
    /// may be repeated. Default: all rights.
    #[arg(long)]
    allow: Vec<String>,
}

#[derive(Args)]
struct Find {
    /// Directory of the context.
    dir: PathBuf,
    /// Network interface of the link.
    #[arg(long)]
    interface: String,
    /// Port of the server.
    #[arg(long, default_value_t = 5683)]
    port: u16,
    /// Path of the resource that the command reads with GET.
    #[arg(long, default_value = "/")]
    path: String,
    /// Seconds to wait for a response. In this time the request is sent three times.
    #[arg(long, value_name = "SECONDS", default_value_t = 6.0, value_parser = seconds)]
    wait: f64,
}

impl Find {
    fn run(&self, out: Output) -> Result<(), Failure> {
        let file = ContextFile::read(&self.dir).map_err(Failure::usage)?;
        let address = discovery_address::<HostCrypto>(&file.sender_id, file.id_context.as_deref());
        let address = Ipv6Addr::from(address);
        let group = format!("{address}%{}", self.interface).parse().map_err(Failure::usage)?;
        let request = Request::new(Code::GET, &self.path);
        let wait = Duration::from_secs_f64(self.wait);
        let found = runtime()?.block_on(discover(&self.dir, &group, self.port, &request, wait));
        let found = found.map_err(Failure::request)?.ok_or_else(|| {
            Failure::new(format!(
                "no server responds at {group}: it needs `tegmen serve --oscore DIR --oscore-discovery INTERFACE`, on this link"
            ))
        })?;
        let (at, code) = (found.remote, found.response.code);
        let host = match at {
            SocketAddr::V6(v6) if v6.scope_id() > 0 => format!("[{}%{}]", v6.ip(), self.interface),
            SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
            SocketAddr::V4(v4) => v4.ip().to_string(),
        };
        let uri = format!("coap://{host}:{}", at.port());
        out.line(
            || format!("{uri} (asked at {address}, it answers {code})"),
            || json!({ "uri": uri, "address": address.to_string(), "code": code.to_string() }),
        );
        Ok(())
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Whose {
    Aiocoap,
    Libcoap,
}

#[derive(Clone, Copy, ValueEnum)]
enum Target {
    Aiocoap,
    Libcoap,
    Wireshark,
}

impl From<Whose> for Format {
    fn from(whose: Whose) -> Self {
        match whose {
            Whose::Aiocoap => Self::Aiocoap,
            Whose::Libcoap => Self::Libcoap,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Algorithm {
    #[value(name = "AES-CCM-16-64-128")]
    AesCcm16_64_128,
    #[value(name = "AES-CCM-16-128-128")]
    AesCcm16_128_128,
    #[value(name = "AES-CCM-64-64-128")]
    AesCcm64_64_128,
    #[value(name = "AES-CCM-64-128-128")]
    AesCcm64_128_128,
    #[value(name = "A128GCM")]
    A128Gcm,
}

impl From<Algorithm> for Aead {
    fn from(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::AesCcm16_64_128 => Self::AesCcm16_64_128,
            Algorithm::AesCcm16_128_128 => Self::AesCcm16_128_128,
            Algorithm::AesCcm64_64_128 => Self::AesCcm64_64_128,
            Algorithm::AesCcm64_128_128 => Self::AesCcm64_128_128,
            Algorithm::A128Gcm => Self::A128Gcm,
        }
    }
}

/// Bytes that the command line gives in hexadecimal.
#[derive(Clone)]
struct Bytes(Vec<u8>);

fn bytes(text: &str) -> Result<Bytes, String> {
    from_hex(text).map(Bytes).ok_or_else(|| "an even number of hexadecimal digits".to_owned())
}

impl Oscore {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::New(new) => new.run(out)?,
            Command::NewGroup(new_group) => new_group.run(out)?,
            Command::Show { dir } if contexts::is_member(&dir) => member::show(&dir, out)?,
            Command::Show { dir } => show(&dir, out)?,
            Command::Find(find) => find.run(out)?,
            Command::Import { from, source, dir } => {
                Format::from(from).import(&source, &dir).map_err(Failure::usage)?;
                let name = dir.display().to_string();
                out.line(
                    || format!("{name} is ready; do not use {} any more", source.display()),
                    || json!({ "dir": name }),
                );
            }
            Command::Export { to, dir, target, recover } => {
                let name = target.display().to_string();
                let (exported, purpose) = match to {
                    Target::Aiocoap => (Format::Aiocoap.export_other_end(&dir, &target, recover), "the other end"),
                    Target::Libcoap => (Format::Libcoap.export_other_end(&dir, &target, recover), "the other end"),
                    Target::Wireshark => (contexts::export_to_wireshark(&dir, &target), "captures"),
                };
                exported.map_err(Failure::usage)?;
                out.line(|| format!("{name} is for {purpose} of {}", dir.display()), || json!({ "file": name }));
            }
            Command::Recover { dir } if dir.is_file() => {
                state::recover(&dir).map_err(Failure::usage)?;
                let name = dir.display().to_string();
                out.line(
                    || {
                        format!(
                            "{name} is reset: clients perform new handshakes, contexts skip all numbers that may have \
                             been used"
                        )
                    },
                    || json!({ "state": name }),
                );
            }
            Command::Recover { dir } => {
                let next = contexts::recover(&dir).map_err(Failure::usage)?;
                let name = dir.display().to_string();
                out.line(
                    || format!("{name} continues at number {next}; use no copy of it"),
                    || json!({ "dir": name, "next": next }),
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl New {
    fn run(self, out: Output) -> Result<(), Failure> {
        if is_same(&self.dir, &self.other) {
            let dir = self.dir.display();
            return Err(Failure::usage(format!(
                "{dir}: the two endpoints need two directories: give each another path"
            )));
        }
        if let Some(wrong) = self.allow.iter().find(|rule| !is_rule(rule)) {
            return Err(Failure::usage(format!("--allow {wrong}: write it as 'GET /*'")));
        }
        let drawn = |len: usize| {
            let mut bytes = vec![0; len];
            random::fill(&mut bytes)?;
            Ok::<_, Failure>(bytes)
        };
        let recipient_id = self.recipient_id.map_or(Vec::new(), |bytes| bytes.0);
        let sender_id = match self.sender_id {
            Some(Bytes(id)) => id,
            None => drawn(1)?,
        };
        // Nothing is written if it is not a time.
        let expires = self.expires.map(|text| (0, text));
        let ours = ContextFile {
            sender_id,
            recipient_id,
            master_secret: Zeroizing::new(drawn(16)?),
            master_salt: drawn(8)?,
            id_context: self.id_context.map(|bytes| bytes.0),
            aead: self.algorithm.into(),
            created: contexts::now(),
            expires,
            allow: None,
            rederivation: self.rederivation,
        };
        let theirs = ContextFile { allow: (!self.allow.is_empty()).then_some(self.allow), ..ours.mirrored() };
        contexts::create_both([(self.dir.as_path(), &ours), (self.other.as_path(), &theirs)])
            .map_err(Failure::usage)?;
        let (dir, other) = (self.dir.display().to_string(), self.other.display().to_string());
        out.line(
            || {
                format!(
                    "{dir} and {other} are the two ends of a new context.\nBring {other} to the other end, and use each directory in one place only."
                )
            },
            || {
                json!({ "dir": dir, "other": other,
                    "sender_id": to_hex(&ours.sender_id), "recipient_id": to_hex(&ours.recipient_id) })
            },
        );
        Ok(())
    }
}

/// Returns true if two paths have the same components. `./a` and `a/` are the same path.
fn is_same(one: &Path, other: &Path) -> bool {
    let parts = |path: &Path| path.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>();
    parts(one) == parts(other)
}

fn show(dir: &Path, out: Output) -> Result<(), Failure> {
    let file = ContextFile::read(dir).map_err(Failure::usage)?;
    let (numbers, used) = match contexts::used(dir) {
        Ok(used) => (used.text(), Some(used)),
        Err(why) if file.rederivation => (format!("new keys are derived before the next message: {why}"), None),
        Err(why) => return Err(Failure::usage(why)),
    };
    let text = |bytes: &[u8]| if bytes.is_empty() { "empty".to_owned() } else { to_hex(bytes) };
    let id_context = file.id_context.as_deref();
    out.line(
        || {
            let mut lines = vec![
                format!("sender_id     {}", text(&file.sender_id)),
                format!("recipient_id  {}", text(&file.recipient_id)),
                format!("id_context    {}", id_context.map_or("none".to_owned(), text)),
                format!("algorithm     {}", contexts::algorithm(file.aead)),
                format!("expires       {}", file.expires.as_ref().map_or("never", |(_, at)| at)),
                format!("numbers       {numbers}"),
            ];
            if file.rederivation {
                lines.push("rederivation  new keys are derived when numbers are lost".to_owned());
            }
            if let Some(allow) = &file.allow {
                lines.push(format!("allow         {}", allow.join(", ")));
            }
            lines.join("\n")
        },
        || {
            json!({ "sender_id": to_hex(&file.sender_id), "recipient_id": to_hex(&file.recipient_id),
                "id_context": id_context.map(to_hex), "algorithm": contexts::algorithm(file.aead),
                "expires": file.expires.as_ref().map(|(_, at)| at), "allow": file.allow, "next": used.map(|used| used.next),
                "window_known": used.map(|used| used.window_known), "rederivation": file.rederivation })
        },
    );
    Ok(())
}
