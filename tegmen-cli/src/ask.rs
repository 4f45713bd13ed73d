//! `tegmen get`, `put`, `post`, `delete`: one request, one response.

use crate::output::{Failure, Output, runtime};
use clap::Args;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tegmen::coap::{Code, OptionNumber, option};
use tegmen::dtls::Profile;
use tegmen_host::client::{Ask, Client, ClientConfig, ClientKey, Reply};
use tegmen_host::credentials::{Credentials, from_hex, to_hex};
use tegmen_host::uri::Uri;
use zeroize::Zeroizing;

/// How to reach the server.
#[derive(Args)]
pub(crate) struct Connect {
    /// PSK identity for coaps.
    #[arg(long, short = 'u', env = "TEGMEN_IDENTITY")]
    identity: Option<String>,
    /// Key in hexadecimal. Others on this machine can see it among the processes; a credentials file hides it.
    #[arg(long, short = 'k', env = "TEGMEN_KEY", hide_env_values = true, conflicts_with = "credentials")]
    key: Option<String>,
    /// Credentials file; its only identity is taken, or the one that --identity names.
    #[arg(long, env = "TEGMEN_CREDENTIALS")]
    credentials: Option<PathBuf>,
    /// Seconds after which a request is given up.
    #[arg(long, default_value_t = 90)]
    timeout: u64,
    /// Seconds after which a handshake is given up.
    #[arg(long, default_value_t = 30)]
    handshake_timeout: u64,
    /// Ask without wanting an acknowledgement (NON).
    #[arg(long)]
    non: bool,
    /// Offer no TLS extensions: the bytes of the Blink paper. Weaker: no extended master secret.
    #[arg(long)]
    minimal: bool,
    /// Append the session's secrets to this file (RFC 9850). Whoever reads it reads the traffic.
    #[arg(long, env = "SSLKEYLOGFILE")]
    key_log: Option<PathBuf>,
}

impl Connect {
    fn key(&self) -> Result<Option<ClientKey>, Failure> {
        if let Some(hex) = &self.key {
            let identity = self.identity.clone().ok_or_else(|| Failure::usage("--key goes with --identity NAME"))?;
            let key = from_hex(hex).filter(|key| !key.is_empty());
            let key = key.ok_or_else(|| Failure::usage("--key: an even number of hexadecimal digits"))?;
            return Ok(Some(ClientKey { identity, key: Zeroizing::new(key) }));
        }
        let Some(file) = &self.credentials else { return Ok(None) };
        let known = Credentials::from_file(file).map_err(Failure::new)?;
        let name = file.display();
        let identity = match (&self.identity, known.identities().as_slice()) {
            (Some(identity), _) => identity.clone(),
            (None, [only]) => only.clone(),
            (None, []) => {
                return Err(Failure::new(format!(
                    "{name} holds no identity: tegmen keys new --file {name} --identity NAME"
                )));
            }
            (None, several) => {
                return Err(Failure::usage(format!("{name} holds {}: choose one with --identity", several.join(", "))));
            }
        };
        let (key, _) = known.key_of(identity.as_bytes()).ok_or_else(|| {
            Failure::new(format!("{name} has no identity {identity}; it holds {}", known.identities().join(", ")))
        })?;
        Ok(Some(ClientKey { identity, key }))
    }

    pub(crate) fn config(&self) -> Result<ClientConfig, Failure> {
        let mut config = ClientConfig {
            key: self.key()?,
            timeout: Duration::from_secs(self.timeout),
            confirmable: !self.non,
            key_log: self.key_log.clone(),
            ..ClientConfig::default()
        };
        config.dtls.handshake_timeout = Duration::from_secs(self.handshake_timeout);
        if self.minimal {
            config.dtls.profile = Profile::Minimal;
        }
        Ok(config)
    }
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen get coap://localhost/.well-known/core\n  \
    tegmen get -u Client_identity -k 73656372657450534b coaps://[::1]/time\n  \
    tegmen get --credentials keys.toml --json coaps://gateway.local/temp")]
pub(crate) struct Get {
    #[command(flatten)]
    request: RequestArgs,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen put --credentials keys.toml coaps://localhost/led 1\n  \
    tegmen put -u id -k 00ff coaps://localhost/config --file config.json --content-format 50\n  \
    echo on | tegmen post coap://localhost/pump --file -")]
pub(crate) struct WithPayload {
    #[command(flatten)]
    request: RequestArgs,
    /// The payload as text.
    #[arg(conflicts_with_all = ["file", "hex"])]
    payload: Option<String>,
    /// The payload from a file; - is standard input.
    #[arg(long, conflicts_with = "hex")]
    file: Option<PathBuf>,
    /// The payload in hexadecimal.
    #[arg(long)]
    hex: Option<String>,
    /// Content-Format of the payload, as a number (0 text, 50 JSON, 60 CBOR).
    #[arg(long)]
    content_format: Option<u16>,
}

#[derive(Args)]
struct RequestArgs {
    /// `coap://host[:port]/path?query`, or coaps.
    uri: String,
    #[command(flatten)]
    connect: Connect,
    /// Content-Format that is wanted, as a number.
    #[arg(long)]
    accept: Option<u16>,
    /// Show options, round trip and handshake time, on standard error.
    #[arg(long, short)]
    verbose: bool,
}

impl Get {
    pub(crate) fn run(self, out: Output, method: Code) -> Result<ExitCode, Failure> {
        self.request.run(out, method, &[], None)
    }
}

impl WithPayload {
    pub(crate) fn run(self, out: Output, method: Code) -> Result<ExitCode, Failure> {
        let payload = match (&self.payload, &self.file, &self.hex) {
            (Some(text), _, _) => text.clone().into_bytes(),
            (_, Some(file), _) if file.as_os_str() == "-" => {
                let mut bytes = Vec::new();
                std::io::stdin().read_to_end(&mut bytes).map_err(Failure::io)?;
                bytes
            }
            (_, Some(file), _) => {
                std::fs::read(file).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?
            }
            (_, _, Some(hex)) => {
                from_hex(hex).ok_or_else(|| Failure::usage("--hex: an even number of hexadecimal digits"))?
            }
            _ => Vec::new(),
        };
        self.request.run(out, method, &payload, self.content_format)
    }
}

impl RequestArgs {
    fn run(self, out: Output, method: Code, payload: &[u8], content_format: Option<u16>) -> Result<ExitCode, Failure> {
        let uri = Uri::parse(&self.uri).map_err(Failure::usage)?;
        let config = self.connect.config()?;
        let ask = Ask {
            method,
            path: &uri.path,
            query: &uri.query,
            content_format,
            accept: self.accept,
            payload,
            options: &[],
        };
        let (reply, handshake) = runtime()?.block_on(async {
            let mut client = Client::connect(&uri, config).await.map_err(Failure::new)?;
            let reply = client.request(&ask).await.map_err(Failure::new)?;
            let handshake = client.handshake_time();
            client.close().await;
            Ok::<_, Failure>((reply, handshake))
        })?;
        if self.verbose {
            eprintln!("{} {}, round trip {:.1} ms", reply.code, reply.code.name(), millis(reply.round_trip));
            if uri.secure {
                eprintln!("handshake {:.1} ms", millis(handshake));
            }
            for (number, value) in &reply.options {
                eprintln!("option {}: {}", number.0, to_hex(value));
            }
        }
        print(out, &reply, handshake);
        Ok(if reply.code.is_success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn print(out: Output, reply: &Reply, handshake: Duration) {
    if out.json {
        let options: Vec<Value> = reply
            .options
            .iter()
            .map(|(number, value)| json!({ "number": number.0, "hex": to_hex(value), "uint": option::uint(value) }))
            .collect();
        let object = json!({
            "code": reply.code.to_string(),
            "name": reply.code.name(),
            "content_format": reply.content_format(),
            "options": options,
            "payload_hex": to_hex(&reply.payload),
            "payload_text": std::str::from_utf8(&reply.payload).ok(),
            "round_trip_ms": millis(reply.round_trip),
            "handshake_ms": millis(handshake),
        });
        println!("{object}");
        return;
    }
    if !reply.code.is_success() {
        let detail = String::from_utf8_lossy(&reply.payload);
        let separator = if detail.is_empty() { "" } else { ": " };
        eprintln!("{} {}{separator}{detail}", reply.code, reply.code.name());
        return;
    }
    let text = std::str::from_utf8(&reply.payload)
        .ok()
        .filter(|text| text.chars().all(|c| !c.is_control() || c.is_whitespace()));
    match text {
        Some("") => eprintln!("{} {}", reply.code, reply.code.name()),
        Some(text) => println!("{text}"),
        // To a terminal in hexadecimal, to a file as it is.
        None if std::io::IsTerminal::is_terminal(&std::io::stdout()) => println!("{}", to_hex(&reply.payload)),
        None => {
            let _ = std::io::stdout().write_all(&reply.payload);
        }
    }
    let location: String = reply
        .options
        .iter()
        .filter(|(number, _)| *number == OptionNumber::LOCATION_PATH)
        .map(|(_, value)| format!("/{}", String::from_utf8_lossy(value)))
        .collect();
    if !location.is_empty() {
        eprintln!("made at {location}");
    }
}
