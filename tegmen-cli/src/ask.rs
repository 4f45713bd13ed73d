//! `tegmen get`, `put`, `post`, `delete`, `fetch`, `patch`, `ipatch`: send a request, and print the response.

use crate::connect::{Connect, seconds};
use crate::output::{Failure, Output, printable, printable_lines, runtime};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use tegmen::coap::{Block, Code, OptionNumber, uint, uint_bytes};
use tegmen_host::client::{self, Progress, Request, Response, Session};
use tegmen_host::contexts::MemberFile;
use tegmen_host::formats;
use tegmen_host::group::Group;
use tegmen_host::hex::{from_hex, to_hex};
use tegmen_host::uri::{Scheme, Uri};

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen get coap://localhost/.well-known/core\n  \
    tegmen get -u Client_identity -k 73656372657450534b coaps://[::1]/time\n  \
    tegmen get --credentials keys.toml --json coaps://gateway.local/temp\n  \
    tegmen get --oscore client coap://localhost/temp\n  \
    tegmen get coap://localhost/firmware.bin --output firmware.bin\n  \
    tegmen get 'coap://224.0.1.187%eth0/.well-known/core'     # of all CoAP nodes at eth0\n  \
    tegmen get --pcap session.pcapng -u me -k 00ff coaps://localhost/temp   # and open it in Wireshark")]
pub(crate) struct Get {
    #[command(flatten)]
    request: RequestArgs,
}

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen put --credentials keys.toml coaps://localhost/led 1\n  \
    tegmen put -u id -k 00ff coaps://localhost/config --file config.json --content-format json\n  \
    echo on | tegmen post coap://localhost/pump --file -\n  \
    tegmen patch coap://localhost/config '{\"rate\":5}' --content-format merge-patch\n  \
    tegmen fetch coap://localhost/log 'since yesterday'")]
pub(crate) struct WithPayload {
    #[command(flatten)]
    request: RequestArgs,
    /// The payload as text; '' is an empty payload. Only POST works without a payload.
    #[arg(conflicts_with_all = ["file", "hex"])]
    payload: Option<String>,
    /// Read the payload from this file; - is standard input.
    #[arg(long, conflicts_with = "hex")]
    file: Option<PathBuf>,
    /// The payload in hexadecimal.
    #[arg(long)]
    hex: Option<String>,
    /// Content-Format of the payload: a number, a name such as text, json, cbor, or a media type.
    #[arg(long, value_parser = content_format)]
    content_format: Option<u16>,
}

#[derive(Args)]
pub(crate) struct RequestArgs {
    /// URI of the resource: `coap://host[:port]/path?query`, or the same with coaps.
    uri: String,
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Content-Format to request for the response (Accept): a number, a name such as json, or a media type.
    #[arg(long, value_parser = content_format)]
    accept: Option<u16>,
    /// Send the request to the proxy at this URI, coap://host[:port] or coaps. Keys and certificates are then for the
    /// session with the proxy. OSCORE protects a request on the whole path to the server.
    #[arg(long, value_name = "URI", env = "TEGMEN_PROXY")]
    proxy: Option<String>,
    /// Add a CoAP option by its number, with a value in hexadecimal (0x...) or text; may be repeated. If-Match is 1,
    /// ETag 4, If-None-Match 5, No-Response 258.
    #[arg(long = "option", short = 'O', value_name = "NUMBER[=VALUE]", value_parser = other_option)]
    options: Vec<(OptionNumber, Vec<u8>)>,
    /// Seconds to wait for responses of a group (a multicast address); members answer within 5 seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 7.0, value_parser = seconds)]
    group_wait: f64,
    /// Write the payload of the response to this file, unchanged.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show options, round-trip time and handshake time on standard error.
    #[arg(long, short)]
    verbose: bool,
}

pub(crate) fn content_format(text: &str) -> Result<u16, String> {
    formats::parse(text).ok_or_else(|| format!("a number, a media type, or one of {}", formats::names()))
}

fn other_option(text: &str) -> Result<(OptionNumber, Vec<u8>), String> {
    let (number, value) = text.split_once('=').unwrap_or((text, ""));
    let number = number.parse().map_err(|_| "write it as NUMBER, NUMBER=text or NUMBER=0xHEX".to_owned())?;
    let value = match value.strip_prefix("0x") {
        Some(hex) => from_hex(hex).ok_or("behind 0x an even number of hexadecimal digits")?,
        None => value.as_bytes().to_vec(),
    };
    Ok((OptionNumber(number), value))
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
                let unreadable = |error| format!("the payload {} cannot be read: {error}", file.display());
                std::fs::read(file).map_err(|error| Failure::usage(unreadable(error)))?
            }
            (_, _, Some(hex)) => {
                from_hex(hex).ok_or_else(|| Failure::usage("--hex needs an even number of hexadecimal digits"))?
            }
            _ if method == Code::POST => Vec::new(),
            _ => {
                return Err(Failure::usage(
                    "a payload is missing: give it as text behind the URI, with --file or with --hex; '' is an empty one",
                ));
            }
        };
        let is_json = self.content_format.is_some_and(|format| matches!(format, 50..=52 | 110));
        if is_json && let Err(error) = serde_json::from_slice::<serde::de::IgnoredAny>(&payload) {
            return Err(Failure::usage(format!(
                "the payload is not JSON, but --content-format names JSON: {error}; correct one of the two"
            )));
        }
        self.request.run(out, method, &payload, self.content_format)
    }
}

impl RequestArgs {
    pub(crate) fn uri(&self) -> Result<Uri, Failure> {
        Uri::parse(&self.uri).map_err(Failure::usage)
    }

    /// Returns the URI of the server that receives the request. This is the proxy, if there is one. Returns an error if
    /// the keys on the command line do not protect a request to this server.
    pub(crate) fn server(&self) -> Result<Uri, Failure> {
        let server = match &self.proxy {
            None => self.uri()?,
            Some(proxy) => {
                let uri = Uri::parse(proxy).map_err(Failure::usage)?;
                if !uri.path.is_empty() || !uri.query.is_empty() {
                    return Err(Failure::usage(format!("{proxy}: name the proxy alone, as coap://host[:port]")));
                }
                if self.connect.agrees() {
                    return Err(Failure::usage(
                        "--edhoc does not work through a proxy, because the client would agree on a context with the proxy: \
                         leave out --proxy, or use --oscore with a context of the server",
                    ));
                }
                uri
            }
        };
        self.connect.check(&server)?;
        Ok(server)
    }

    /// Returns the options of the request. These are the options of the command line and, if there is a proxy, the
    /// options that name the target of the request (RFC 7252, section 5.10.2).
    pub(crate) fn options(&self, uri: &Uri) -> Vec<(OptionNumber, Vec<u8>)> {
        let mut options = self.options.clone();
        if self.proxy.is_some() {
            let host = if uri.host.contains(':') { format!("[{}]", uri.host) } else { uri.host.clone() };
            options.push((OptionNumber::PROXY_SCHEME, uri.scheme.to_string().into_bytes()));
            options.push((OptionNumber::URI_HOST, host.into_bytes()));
            if uri.port != uri.scheme.default_port() {
                options.push((OptionNumber::URI_PORT, uint_bytes(uri.port.into(), &mut [0; 4]).to_vec()));
            }
        }
        options
    }

    /// Returns the request. `options` is the list that [`Self::options`] returns.
    pub(crate) fn ask<'a>(
        &self,
        (uri, options): (&'a Uri, &'a [(OptionNumber, Vec<u8>)]),
        method: Code,
        payload: &'a [u8],
        format: Option<u16>,
    ) -> Request<'a> {
        let request = Request::to(method, uri).payload(payload).options(options);
        let request = self.accept.map_or(request, |accept| request.accept(accept));
        format.map_or(request, |format| request.content_format(format))
    }

    fn run(self, out: Output, method: Code, payload: &[u8], content_format: Option<u16>) -> Result<ExitCode, Failure> {
        let uri = self.uri()?;
        let (server, options) = (self.server()?, self.options(&uri));
        let request = self.ask((&uri, &options), method, payload, content_format);
        if Group::is_named_by(&server.host) {
            return self.ask_group(out, &uri, &request);
        }
        let config = self.connect.config(&uri)?;
        let (reply, handshake) = runtime()?.block_on(async {
            let session = Session::connect(&server, config).await.map_err(Failure::request)?;
            let progress = progress(out);
            let request = progress.as_ref().map_or(request, |progress| request.progress(progress));
            let reply = request.over(&session).await.map_err(Failure::request)?;
            let handshake = Handshake { time: session.handshake_time(), resumed: session.is_resumed() };
            session.close();
            Ok::<_, Failure>((reply, handshake))
        })?;
        if self.verbose {
            eprintln!("{} {}, round trip {:.1} ms", reply.code, reply.code.name(), millis(reply.round_trip));
            if server.scheme == Scheme::Coaps {
                let resumed = if handshake.resumed { ", resumed" } else { "" };
                eprintln!("handshake {:.1} ms{resumed}", millis(handshake.time));
            }
            for (number, value) in reply.options() {
                eprintln!("{}", option_text(number, value));
            }
        }
        if reply.lacks_block1() {
            eprintln!(
                "the server confirmed no block (its response has no Block1): perhaps it took the last block for the whole \
                 body; compare what it stored"
            );
        }
        if let Some(file) = self.output.as_ref().filter(|_| reply.code.is_success()) {
            let failed = |error| Failure::new(format!("{} cannot be written: {error}", file.display()));
            std::fs::write(file, &reply.payload).map_err(failed)?;
            let (len, name) = (reply.payload.len(), file.display().to_string());
            out.line(
                || format!("{len} bytes written to {name}"),
                || json!({ "code": reply.code.to_string(), "bytes": len, "file": name }),
            );
        } else {
            print(out, &reply, handshake);
        }
        Ok(if reply.code.is_success() { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// Prints the response of a member of a group, with the name that the member proved.
fn show_member(out: Output, name: Option<&str>, from: SocketAddr, reply: &Response) {
    let text = || printable_lines(&readable(reply).unwrap_or_else(|| to_hex(&reply.payload)));
    let place = || name.map_or_else(|| from.to_string(), |name| format!("{name} at {from}"));
    out.line(
        || format!("{}  {} {}", place(), reply.code, text()),
        || {
            let mut object = object(reply);
            object["from"] = json!(from.to_string());
            if let Some(name) = name {
                object["member"] = json!(name);
            }
            object
        },
    );
}

impl RequestArgs {
    /// Sends a request to all members of a group that Group OSCORE protects, and prints their responses.
    fn ask_oscore_group(
        &self,
        out: Output,
        (context, group): (&Path, &Group),
        uri: &Uri,
        request: &Request<'_>,
    ) -> Result<ExitCode, Failure> {
        let show = |name: &str, from: SocketAddr, reply: Response| show_member(out, Some(name), from, &reply);
        let wait = Duration::from_secs_f64(self.group_wait);
        let asked = client::ask_oscore_group(context, (group, uri.port), request, wait, show);
        let asked = runtime()?.block_on(asked).map_err(Failure::request)?;
        if asked.missing.is_empty() {
            return match asked.responded.is_empty() {
                false => Ok(ExitCode::SUCCESS),
                // Only monitors, which send nothing, can have received the request.
                true => Err(Failure::new(format!(
                    "{}: no member responds, because this context has no other member of the group: let the others join, and \
                     get the current keys with `tegmen group update`",
                    context.display()
                ))),
            };
        }
        let names = asked.missing.into_iter().collect::<Vec<_>>().join(", ");
        let is_managed = MemberFile::read(context).is_ok_and(|file| file.manager.is_some());
        let update = match is_managed {
            true => format!(
                ". If the group has new keys, `tegmen group update --state {}` gets them: run it with the credentials of this member",
                context.display()
            ),
            false => String::new(),
        };
        let silent = Failure::new(format!(
            "no response within {} s: {names}; members do not answer with errors{update}",
            self.group_wait
        ));
        if asked.responded.is_empty() {
            return Err(silent);
        }
        out.failure(&silent);
        Ok(ExitCode::SUCCESS)
    }

    /// Returns the group that a URI names, and the time to wait for responses.
    pub(crate) fn group(&self, uri: &Uri) -> Result<(Group, Duration), Failure> {
        if uri.scheme == Scheme::Coaps {
            return Err(Failure::usage("DTLS has no groups: ask with coap://, or each server by its own address"));
        }
        self.connect.check_group()?;
        let group: Group = uri.host.parse().map_err(Failure::usage)?;
        Ok((group, Duration::from_secs_f64(self.group_wait)))
    }

    /// Makes the error that no member answered, with the next step.
    pub(crate) fn silence_of(&self, group: &Group) -> Failure {
        Failure::new(format!(
            "no member of the group {group} answered within {} s; members do not answer with errors; if the group is on \
             another interface, name that interface, as in {}%eth0",
            self.group_wait, group.ip
        ))
    }

    /// Sends a request to all members of a multicast group, and prints their responses.
    fn ask_group(&self, out: Output, uri: &Uri, request: &Request<'_>) -> Result<ExitCode, Failure> {
        let (group, wait) = self.group(uri)?;
        if let Some(context) = self.connect.context(uri)? {
            return self.ask_oscore_group(out, (&context, &group), uri, request);
        }
        let show = |from: SocketAddr, reply: Response| show_member(out, None, from, &reply);
        let asked = client::ask_group(&group, uri.port, request, wait, show);
        let count = runtime()?.block_on(asked).map_err(Failure::request)?;
        if count > 0 { Ok(ExitCode::SUCCESS) } else { Err(self.silence_of(&group)) }
    }
}

/// Returns a function that shows a progress bar for a transfer of several blocks, if the output is a terminal.
fn progress(out: Output) -> Option<impl Fn(Progress) + Sync> {
    if out.json || !std::io::stderr().is_terminal() {
        return None;
    }
    let style = "{msg} {wide_bar} {bytes}/{total_bytes}, {bytes_per_sec}, {eta} left";
    let style = ProgressStyle::with_template(style).ok()?;
    let bar = ProgressBar::no_length().with_style(style);
    Some(move |Progress { upload, done, total }| {
        bar.set_message(if upload { "up" } else { "down" });
        if let Some(total) = total {
            bar.set_length(total as u64);
        }
        bar.set_position(done as u64);
        if total == Some(done) {
            bar.finish_and_clear();
        }
    })
}

/// Formats an option with its name and its value. The value has the format of this option (RFC 7252, section 5.10).
fn option_text(number: OptionNumber, value: &[u8]) -> String {
    let uint = || uint(value).map(|number| number.to_string());
    let text = || std::str::from_utf8(value).ok().map(|text| text.escape_debug().to_string());
    let (name, shown) = match number {
        OptionNumber::ETAG => ("ETag", None),
        OptionNumber::OBSERVE => ("Observe", uint()),
        OptionNumber::LOCATION_PATH => ("Location-Path", text()),
        OptionNumber::OSCORE => ("OSCORE", None),
        OptionNumber::CONTENT_FORMAT => ("Content-Format", uint()),
        OptionNumber::MAX_AGE => ("Max-Age", uint()),
        OptionNumber(20) => ("Location-Query", text()),
        OptionNumber::BLOCK2 | OptionNumber::BLOCK1 => {
            let block = Block::read(value).ok();
            let shown = block.map(|block| {
                format!("{} of {} bytes{}", block.number, block.size(), if block.more { ", more follow" } else { "" })
            });
            (if number == OptionNumber::BLOCK2 { "Block2" } else { "Block1" }, shown)
        }
        OptionNumber::SIZE2 => ("Size2", uint()),
        OptionNumber::SIZE1 => ("Size1", uint()),
        OptionNumber::ECHO => ("Echo", None),
        OptionNumber(other) => return format!("option {other}: {}", to_hex(value)),
    };
    format!("{name}: {}", shown.unwrap_or_else(|| to_hex(value)))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Returns the response as a JSON object.
pub(crate) fn object(reply: &Response) -> Value {
    let options: Vec<Value> = reply
        .options()
        .map(|(number, value)| json!({ "number": number.0, "hex": to_hex(value), "uint": uint(value) }))
        .collect();
    let format = reply.content_format();
    json!({
        "code": reply.code.to_string(),
        "name": reply.code.name(),
        "content_format": format,
        "media_type": format.and_then(|format| formats::media_type(format as u16)),
        "options": options,
        "payload_hex": to_hex(&reply.payload),
        "payload_text": std::str::from_utf8(&reply.payload).ok(),
        "round_trip_ms": millis(reply.round_trip),
        "lacks_block1": reply.lacks_block1(),
    })
}

/// Returns the payload as readable text, or `None` if the payload is not text.
pub(crate) fn readable(reply: &Response) -> Option<String> {
    let plain = || {
        let text = std::str::from_utf8(&reply.payload).ok()?;
        text.chars().all(|c| !c.is_control() || c.is_whitespace()).then(|| text.to_owned())
    };
    formats::show(reply.content_format(), &reply.payload).or_else(plain)
}

/// Prints an error response, and advice for its code.
pub(crate) fn complain(reply: &Response) {
    let detail = printable_lines(&readable(reply).unwrap_or_else(|| to_hex(&reply.payload)));
    let separator = if detail.is_empty() { "" } else { ": " };
    let advice = match (reply.code, reply.uint(OptionNumber::MAX_AGE)) {
        (Code::TOO_MANY_REQUESTS | Code::SERVICE_UNAVAILABLE, Some(seconds)) => format!("; again in {seconds} s"),
        (Code::REQUEST_ENTITY_TOO_LARGE, _) => match reply.uint(OptionNumber::SIZE1) {
            Some(limit) => format!("; the server takes at most {limit} bytes"),
            None => "; the server takes no body of this size".to_owned(),
        },
        (code, _) if code.class() == 5 => "; the log of the server has the cause".to_owned(),
        _ => String::new(),
    };
    eprintln!("{} {}{separator}{detail}{advice}", reply.code, reply.code.name());
}

/// The duration of a handshake, and true if the handshake resumed a session.
#[derive(Clone, Copy)]
struct Handshake {
    time: Duration,
    resumed: bool,
}

fn print(out: Output, reply: &Response, handshake: Handshake) {
    if out.json {
        let mut object = object(reply);
        object["handshake_ms"] = json!(millis(handshake.time));
        object["resumed"] = json!(handshake.resumed);
        println!("{object}");
        return;
    }
    if !reply.code.is_success() {
        complain(reply);
        return;
    }
    // To a terminal as people read it, to a file or a program as it is.
    let terminal = std::io::stdout().is_terminal();
    match readable(reply) {
        _ if reply.payload.is_empty() => eprintln!("{} {}", reply.code, reply.code.name()),
        Some(text) if terminal => println!("{}", printable_lines(&text)),
        Some(_) if std::str::from_utf8(&reply.payload).is_ok() => {
            println!("{}", String::from_utf8_lossy(&reply.payload))
        }
        Some(text) if reply.content_format() != Some(42) => println!("{text}"),
        _ if terminal => println!("{}", to_hex(&reply.payload)),
        _ => {
            let _ = std::io::stdout().write_all(&reply.payload);
        }
    }
    let location: String = reply
        .options()
        .filter(|(number, _)| *number == OptionNumber::LOCATION_PATH)
        .map(|(_, value)| format!("/{}", String::from_utf8_lossy(value)))
        .collect();
    if !location.is_empty() {
        eprintln!("created at {}", printable(&location));
    }
}
