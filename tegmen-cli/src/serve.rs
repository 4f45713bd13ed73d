//! `tegmen serve`: values, files and commands as resources.

mod page;

use crate::log::{Format, Level, Log};
use crate::output::{Failure, Output, runtime};
use crate::public_keys::{Clients, check_suites, suites};
use clap::Args;
use serde_json::json;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tegmen::dtls::{CipherSuite, ConnectionIdConfig, Suites};
use tegmen_host::contexts::Contexts;
use tegmen_host::credentials::Credentials;
use tegmen_host::group::Group;
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::resumption::ResumptionConfig;
use tegmen_host::server::{Event, HelloLimits, Listen, Server, ServerConfig};
use tegmen_host::slab::Capacity;
use tegmen_host::state::Database;
use tegmen_host::uri::Scheme;

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen serve --value /temp=21.5 --credentials keys.toml\n  \
    tegmen serve --value /temp=21.5 --oscore server --no-secure\n  \
    tegmen serve --dir /=./public --plain --no-secure\n  \
    tegmen serve --command '/uptime=uptime -p' --blink /blink --listen 127.0.0.1")]
pub(crate) struct Serve {
    /// Local address to listen on; may be repeated. Default: all addresses of this machine.
    #[arg(help_heading = "Addresses", long, value_name = "IP", value_parser = listen_address)]
    listen: Vec<IpAddr>,
    /// Port for coaps (DTLS); 0 takes any free port.
    #[arg(help_heading = "Addresses", long, default_value_t = 5684)]
    port: u16,
    /// Also serve plain CoAP: anyone may send any request, and anyone on the path can read it.
    #[arg(help_heading = "Addresses", long)]
    plain: bool,
    /// Port for plain CoAP and OSCORE.
    #[arg(help_heading = "Addresses", long, default_value_t = 5683)]
    plain_port: u16,
    /// Do not serve coaps.
    #[arg(help_heading = "Addresses", long)]
    no_secure: bool,
    /// Serve OSCORE: the directory of a context, or a directory of several; may be repeated. Requests arrive at the port
    /// of plain CoAP, which serves nothing else without --plain.
    #[arg(help_heading = "Keys and sessions", long, value_name = "DIR")]
    oscore: Vec<PathBuf>,
    /// Keep DTLS sessions and the sequence numbers of OSCORE contexts in this database, so that they survive a restart
    /// and a power cut. FILE.key beside it is a secret.
    #[arg(help_heading = "Keys and sessions", long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Credentials file; reloaded when it changes.
    #[arg(help_heading = "Keys and sessions", long, env = "TEGMEN_CREDENTIALS", default_value = "credentials.toml")]
    credentials: PathBuf,
    /// Allow this to clients without a certificate or key, as 'GET /*'; may be repeated. Default: nothing.
    #[arg(long, value_name = "RULE")]
    anonymous: Vec<String>,
    /// A value that GET reads and PUT writes: /path=text.
    #[arg(help_heading = "Resources", long, value_name = "PATH=TEXT")]
    value: Vec<String>,
    /// A file that GET reads: /path=file.
    #[arg(help_heading = "Resources", long, value_name = "PATH=FILE")]
    file: Vec<String>,
    /// The files of a directory, read-only: /path=directory. Links that lead out of it are not followed.
    #[arg(help_heading = "Resources", long, value_name = "PATH=DIR")]
    dir: Vec<String>,
    /// The files of a directory; PUT writes them and DELETE removes them: /path=directory.
    #[arg(help_heading = "Resources", long, value_name = "PATH=DIR")]
    dir_rw: Vec<String>,
    /// A program whose output answers GET, POST, FETCH, PATCH and iPATCH: /path=program arguments.
    #[arg(help_heading = "Resources", long, value_name = "PATH=COMMAND")]
    command: Vec<String>,
    /// A Blink counter at this path.
    #[arg(help_heading = "Resources", long, value_name = "PATH")]
    blink: Vec<String>,
    /// Join a multicast group with plain CoAP; may be repeated. 224.0.1.187%eth0 and ff02::fd%eth0 are all CoAP nodes on
    /// eth0; an address can name an IPv4 interface, as in 224.0.1.187%127.0.0.1.
    #[arg(help_heading = "Groups and observers", long, value_name = "ADDRESS[%INTERFACE]", requires = "plain")]
    group: Vec<Group>,
    /// Delay answers to a group by a random time up to this, so that not all members answer at once.
    #[arg(help_heading = "Groups and observers", long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    leisure: f64,
    /// Number of threads, each with its own sockets; 0 means one per core.
    #[arg(help_heading = "Limits", long, default_value_t = 0)]
    shards: usize,
    /// Maximum number of peers in the table.
    #[arg(help_heading = "Limits", long, default_value_t = Capacity::default().peers)]
    max_peers: usize,
    /// Maximum number of handshakes under way at the same time, about 8 KiB each. While all places are taken, further
    /// ClientHellos are not answered; clients repeat them.
    #[arg(help_heading = "Limits", long, value_name = "N", default_value_t = Capacity::default().handshakes)]
    max_handshakes: usize,
    /// Log events of this level and above: `error` asks the operator to act; `warn` adds refused clients and requests
    /// that failed because of the server; `info` adds sessions and one line per request; `debug` adds each block of a
    /// block-wise transfer.
    #[arg(help_heading = "Log and metrics", long, value_name = "LEVEL", value_enum, default_value_t = Level::Info)]
    log_level: Level,
    /// Format of the log on standard output: text, or one JSON object per line, as with --json.
    #[arg(help_heading = "Log and metrics", long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    log: Format,
    /// Do not log sessions or successful requests: the same as --log-level warn.
    #[arg(help_heading = "Log and metrics", long, short, conflicts_with = "log_level")]
    quiet: bool,
    /// Serve counters as OpenMetrics at http://ADDRESS:PORT/metrics, on at most 16 connections at once. Anyone who can
    /// reach the address can read them.
    #[arg(help_heading = "Log and metrics", long, value_name = "ADDRESS:PORT")]
    metrics: Option<SocketAddr>,
    /// Longest request body in bytes; a longer one is answered with 4.13 and this limit.
    #[arg(help_heading = "Limits", long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = body_size)]
    max_body: usize,
    /// Total bytes of bodies held at once for all clients, at least four times --max-body; a request beyond that
    /// is answered with 5.03. Clients without DTLS can use half of it.
    #[arg(help_heading = "Limits", long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = body_size)]
    max_bodies: usize,
    /// Total bytes of replies and messages that are kept to be sent again, for all clients. A reply is kept for 247
    /// seconds, so that a repeated request is not executed twice; a POST or PATCH for which there is no space is answered with 5.03.
    #[arg(help_heading = "Limits", long, value_name = "BYTES", default_value_t = 256 << 20, value_parser = body_size)]
    max_exchange_bytes: usize,
    /// Send up to N notifications in a row as non-confirmable: faster, but some may be lost. A notification that would
    /// exceed one byte per second without a sign of the client is confirmable all the same (PROBING_RATE, RFC 7252).
    #[arg(help_heading = "Groups and observers", long, value_name = "N", default_value_t = 0)]
    unconfirmed: u8,
    /// Require plain clients to prove their address with the Echo option (RFC 9175) before they get a long answer.
    /// Clients without Echo support are not served.
    #[arg(help_heading = "Limits", long)]
    verify_addresses: bool,
    /// Answer at most N requests per peer and second, further ones with 4.29; 0 sets no limit.
    #[arg(help_heading = "Limits", long, value_name = "N", default_value_t = 0)]
    requests_per_second: u32,
    /// ClientHellos answered per second, for each network prefix (/24 or /56) and in total; twice as many may come in a
    /// burst. 0 sets no limit.
    #[arg(help_heading = "Limits", long, value_name = "N,N", value_parser = hello_limits, default_value = "2000,20000")]
    hello_limits: HelloLimits,
    /// Signatures and decryptions per second with an RSA key or a key in a TPM, for clients that have not proved anything
    /// yet; 0 sets no limit. Further handshakes wait; their clients start again if that takes too long.
    #[arg(help_heading = "Limits", long, value_name = "N", default_value_t = ServerConfig::default().sessions.signatures_per_second)]
    signatures_per_second: u32,
    /// Accepted cipher suites in order of preference, separated by commas: ccm8, gcm (the default), ecdhe-psk-ccm8,
    /// ecdhe-psk-chacha20, ecdhe-ecdsa-gcm, ecdhe-ecdsa-ccm8, ecdhe-rsa-gcm (with --cert-key these three come first by
    /// default). Only if named, for peers that support nothing better: psk-cbc, rsa-cbc.
    #[arg(help_heading = "DTLS", long, value_name = "SUITES", value_parser = suites)]
    suites: Option<Suites>,
    #[command(flatten, next_help_heading = "Public keys")]
    clients: Clients,
    /// Longest content of a received DTLS record, 64 to 16384 bytes; announced to clients that send a record_size_limit
    /// themselves (RFC 8449).
    #[arg(help_heading = "DTLS", long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=16384))]
    record_size_limit: Option<u16>,
    /// Longest handshake datagram to send, 128 to 2048 bytes; longer messages are fragmented. Clients choose the size of
    /// blocks.
    #[arg(help_heading = "DTLS", long, value_name = "BYTES", default_value_t = 1232, value_parser = clap::value_parser!(u16).range(128..=2048))]
    mtu: u16,
    /// Disable session resumption; every connection performs a full handshake.
    #[arg(help_heading = "Keys and sessions", long)]
    no_resumption: bool,
    /// Seconds for which a client can resume a session after a full handshake.
    #[arg(help_heading = "Keys and sessions", long, value_name = "SECONDS", default_value_t = 86400, conflicts_with = "no_resumption",
          value_parser = clap::value_parser!(u64).range(60..=604_800))]
    ticket_lifetime: u64,
    /// Keep the keys of session tickets (RFC 5077) in this file, created if it does not exist: tickets then survive a
    /// restart, and servers that share the file accept each other's tickets. Secret: anyone with this file can decrypt
    /// the traffic.
    #[arg(help_heading = "Keys and sessions", long, value_name = "FILE", conflicts_with = "no_resumption")]
    ticket_keys: Option<PathBuf>,
    /// Disable connection IDs (RFC 9146); clients must reconnect when their address changes.
    #[arg(help_heading = "DTLS", long)]
    no_connection_id: bool,
    /// Follow a client to a new address even if it does not support the return routability check (RFC 9853). Anyone who
    /// can forward its records faster than the network can then redirect the answers.
    #[arg(help_heading = "DTLS", long, conflicts_with = "no_connection_id")]
    follow_unchecked: bool,
    /// Pad records to clients with a connection ID to a multiple of this many bytes.
    #[arg(help_heading = "DTLS", long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1024))]
    padding: u16,
    /// Append the secrets of all sessions to this file (RFC 9850). Secret: anyone with this file can decrypt the traffic.
    #[arg(help_heading = "DTLS", long)]
    key_log: Option<PathBuf>,
}

fn listen_address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| match text.parse::<SocketAddr>() {
        Ok(both) => format!("give the address alone, {}; ports are --port {} and --plain-port", both.ip(), both.port()),
        Err(_) => "an IP address of this machine, as 127.0.0.1 or ::1".to_owned(),
    })
}

fn body_size(text: &str) -> Result<usize, String> {
    // A Size1 option has four bytes.
    let size = text.parse().ok().filter(|size| (1..=u32::MAX as usize).contains(size));
    size.ok_or_else(|| "a number of bytes, 1 to 4294967295".to_owned())
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds, 0 to 3600".to_owned())
}

fn hello_limits(text: &str) -> Result<HelloLimits, String> {
    let numbers = text.split_once(',').map(|(prefix, all)| (prefix.trim().parse(), all.trim().parse()));
    match numbers {
        Some((Ok(per_prefix), Ok(total))) => Ok(HelloLimits { per_prefix, total }),
        _ => Err("write it as PER_PREFIX,IN_ALL: two numbers".to_owned()),
    }
}

impl Serve {
    /// Returns the addresses at which the server listens.
    fn listens(&self) -> Vec<Listen> {
        let all = [IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let addresses = if self.listen.is_empty() { &all[..] } else { &self.listen };
        let mut listen = Vec::new();
        for ip in addresses {
            if !self.no_secure {
                listen.push(Listen { address: SocketAddr::new(*ip, self.port), scheme: Scheme::Coaps });
            }
            if self.plain || !self.oscore.is_empty() {
                listen.push(Listen { address: SocketAddr::new(*ip, self.plain_port), scheme: Scheme::Coap });
            }
        }
        listen
    }

    /// Returns the settings of the server.
    fn config(&self, contexts: Contexts, state: Option<Database>, level: Level) -> Result<ServerConfig, Failure> {
        let mut config = ServerConfig::default();
        config.listen = self.listens();
        config.oscore = contexts;
        config.state = state;
        config.groups = self.group.clone();
        config.coap.leisure = Duration::from_secs_f64(self.leisure);
        config.shards = self.shards;
        config.trust.plain_allowed = self.plain;
        config.log.key_log = self.key_log.clone();
        config.log.report_requests = level >= Level::Info;
        config.coap.max_body = self.max_body;
        config.coap.max_exchange_bytes = self.max_exchange_bytes;
        config.coap.max_bodies = self.max_bodies.max(self.max_body.saturating_mul(4));
        config.coap.unconfirmed_notifications = self.unconfirmed;
        config.coap.verify_addresses = self.verify_addresses;
        config.coap.requests_per_second = self.requests_per_second;
        config.sessions.hellos = self.hello_limits;
        config.sessions.signatures_per_second = self.signatures_per_second;
        config.dtls.suites = self.suites.unwrap_or(config.dtls.suites);
        let all = Suites(&[
            CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8,
            CipherSuite::ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::PSK_WITH_AES_128_CCM_8,
            CipherSuite::PSK_WITH_AES_128_GCM_SHA256,
        ]);
        config.trust.public_keys =
            self.clients.keys(Some(self.suites.unwrap_or(all)), self.clients_file().as_deref())?;
        if let (None, Some(suites)) = (&config.trust.public_keys, self.suites) {
            // Ephemeral key exchanges need these, too.
            config.trust.public_keys = Some(PublicKeys::new(suites));
        }
        if let (Some(keys), Some(named)) = (&config.trust.public_keys, self.suites) {
            check_suites(keys, named)?;
        }
        config.dtls.mtu = self.mtu;
        config.dtls.record_size_limit = self.record_size_limit.unwrap_or(0);
        let (padding, follow_unchecked) = (self.padding, self.follow_unchecked);
        let policy = ConnectionIdConfig { padding, follow_unchecked, ..ConnectionIdConfig::default() };
        config.resumption = (!self.no_resumption).then(|| ResumptionConfig {
            lifetime: Duration::from_secs(self.ticket_lifetime),
            keys: self.ticket_keys.clone(),
            ..ResumptionConfig::default()
        });
        config.dtls.connection_id = (!self.no_connection_id).then_some(policy);
        config.sessions.capacity = Capacity { peers: self.max_peers.max(1), handshakes: self.max_handshakes.max(1) };
        Ok(config)
    }

    /// Writes to the log at which addresses and in which groups the server is, and the number of its contexts.
    fn announce(&self, server: &Server, contexts: usize, log: &Log) {
        for listen in server.addresses() {
            log.always(
                || format!("listening at {listen}/"),
                || json!({ "event": "listening", "scheme": listen.scheme.to_string(), "address": listen.address.to_string() }),
            );
        }
        if contexts > 0 {
            log.always(
                || format!("OSCORE with {contexts} context{}", if contexts == 1 { "" } else { "s" }),
                || json!({ "event": "oscore", "contexts": contexts }),
            );
        }
        for group in &self.group {
            log.always(
                || format!("joined the group {group}"),
                || json!({ "event": "joined", "group": group.to_string() }),
            );
        }
    }

    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let resources = self.resources()?;
        if self.no_secure && !self.plain && self.oscore.is_empty() {
            return Err(Failure::usage("--no-secure leaves nothing to serve without --plain or --oscore"));
        }
        let level = if self.quiet { Level::Warn } else { self.log_level };
        let format = if out.json { Format::Json } else { self.log };
        let credentials = match self.no_secure {
            true => Credentials::default(),
            // Who has public keys needs no others.
            false if self.clients.is_given() && !self.credentials.exists() => Credentials::default(),
            false => Credentials::from_file(&self.credentials).map_err(Failure::usage)?,
        };
        let wrong = |rule| Failure::usage(format!("--anonymous {rule}: write it as 'GET /sensors/*'"));
        credentials.allow_anonymous(&self.anonymous).map_err(wrong)?;
        let learn = |name: &str, allow: Option<&[String]>| credentials.learn(name, allow);
        let state = self.state.as_deref().map(Database::open).transpose().map_err(Failure::usage)?;
        let contexts = Contexts::open_in(&self.oscore, state.as_ref(), learn).map_err(Failure::usage)?;
        let count = contexts.len();
        let config = self.config(contexts, state, level)?;
        let keys = config.trust.public_keys.clone();
        let log = Log::start(level, format).map_err(Failure::io)?;
        let server = Server::with(config)
            .credentials(credentials)
            .on_event(event_sink(log.clone()))
            .serve(resources)
            .map_err(Failure::usage)?;
        let runtime = runtime()?;
        let ended = {
            // From before the first line, so that no signal of somebody who waits for that line ends the process unheard.
            let _context = runtime.enter();
            self.ended(&server, keys.as_ref(), &log)
        };
        self.announce(&server, count, &log);
        runtime.block_on(async {
            let Some(address) = self.metrics else {
                ended.await;
                return Ok(());
            };
            let listener = tokio::net::TcpListener::bind(address).await.map_err(|error| {
                Failure::usage(format!("the metrics cannot be served at {address}: {error}; choose another port"))
            })?;
            let at = listener.local_addr().unwrap_or(address);
            log.always(
                || format!("metrics at http://{at}/metrics"),
                || json!({ "event": "metrics", "address": at.to_string() }),
            );
            tokio::select! {
                () = ended => Ok(()),
                served = page::serve(listener, server.counts()) => served.map_err(Failure::io),
            }
        })?;
        let totals = server.stop();
        log.always(
            || format!("{} requests answered, {} handshakes, {} failed", totals.requests, totals.counters.established, totals.counters.failed),
            || json!({ "event": "ended", "requests": totals.requests, "established": totals.counters.established, "failed": totals.counters.failed }),
        );
        log.end();
        Ok(ExitCode::SUCCESS)
    }

    /// Does the same as [`ended`]. Until then each SIGHUP reads certificate and key again.
    fn ended<'a>(&'a self, server: &'a Server, keys: Option<&'a PublicKeys>, log: &'a Log) -> impl Future<Output = ()> {
        let renew = move || match keys.map(|keys| self.clients.renewed(keys)).transpose() {
            Ok(renewed) => {
                renewed.iter().for_each(|keys| server.set_own_keys(keys));
                log.always(|| "hangup: --cert and --cert-key read again".to_owned(), || json!({ "event": "hangup" }));
            }
            Err(Failure { message, .. }) => log.event(
                Level::Error,
                || format!("hangup: --cert and --cert-key not read again, the old ones stay in force: {message}"),
                || json!({ "event": "hangup", "error": message }),
            ),
        };
        let (ended, hangups) = (ended(), hangups(renew));
        async move {
            tokio::select! { () = ended => {} () = hangups => {} }
        }
    }

    /// Returns the file that keeps certificates of clients over a restart: beside the ticket keys, otherwise beside
    /// the state.
    fn clients_file(&self) -> Option<PathBuf> {
        let mut file = self.ticket_keys.as_ref().or(self.state.as_ref())?.clone().into_os_string();
        file.push(".clients");
        Some(file.into())
    }

    fn resources(&self) -> Result<Resources, Failure> {
        let mut resources = Vec::new();
        let mut add = |option: &str, texts: &[String], make: &dyn Fn(&str) -> Result<Resource, Failure>| {
            for text in texts {
                let (path, what) = text
                    .split_once('=')
                    .filter(|(path, _)| path.starts_with('/'))
                    .ok_or_else(|| Failure::usage(format!("--{option} {text}: write it as --{option} /path=...")))?;
                resources.push((path.to_owned(), make(what)?));
            }
            Ok::<_, Failure>(())
        };
        add("value", &self.value, &|text| Ok(Resource::value(text.as_bytes())))?;
        add("file", &self.file, &|file| match PathBuf::from(file) {
            path if path.is_file() => Ok(Resource::File(path)),
            _ => Err(Failure::usage(format!("--file: {file} is not a file that can be served: correct the path"))),
        })?;
        let directory = |writable| {
            move |dir: &str| match PathBuf::from(dir) {
                root if root.is_dir() => Ok(Resource::Directory { root, writable }),
                _ => Err(Failure::usage(format!(
                    "{dir} is not a directory: create it (mkdir -p {dir}), or correct the path"
                ))),
            }
        };
        add("dir", &self.dir, &directory(false))?;
        add("dir-rw", &self.dir_rw, &directory(true))?;
        add("command", &self.command, &|command| {
            Ok(Resource::Command(command.split_whitespace().map(str::to_owned).collect()))
        })?;
        for path in &self.blink {
            resources.push((path.clone(), Resource::Blink(Arc::default())));
        }
        if resources.is_empty() {
            return Err(Failure::usage(
                "nothing to serve: give at least one of --value, --file, --dir, --command or --blink (`tegmen help serve` has examples)",
            ));
        }
        Ok(Resources::new(resources).with_max_body(self.max_body))
    }
}

/// Acts upon each SIGHUP from now on, and never ends. Called in the context of a runtime.
fn hangups(act: impl Fn()) -> impl Future<Output = ()> {
    #[cfg(unix)]
    let mut hangup = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok();
    async move {
        #[cfg(unix)]
        while let Some(hangup) = &mut hangup
            && hangup.recv().await.is_some()
        {
            act();
        }
        let () = std::future::pending().await;
    }
}

/// Ends with an interrupt or a termination signal that comes from now on. Called in the context of a runtime.
pub(crate) fn ended() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let mut signals = {
        use tokio::signal::unix::{SignalKind, signal};
        (signal(SignalKind::terminate()).ok(), signal(SignalKind::interrupt()).ok())
    };
    async move {
        #[cfg(unix)]
        if let (Some(terminate), Some(interrupt)) = &mut signals {
            tokio::select! { _ = terminate.recv() => {} _ = interrupt.recv() => {} }
            return;
        }
        let _ = tokio::signal::ctrl_c().await;
    }
}

/// Writes the events of a server to its log.
pub(crate) fn event_sink(log: Log) -> impl Fn(Event) + Send + Sync {
    move |event: Event| {
        let (text, object) = (|| event.to_string(), || serde_json::to_value(&event).unwrap_or_default());
        match event.unlimited() {
            Some((kind, remote)) => log.limited(kind, remote, text, object),
            None => log.event(event.severity().into(), text, object),
        }
    }
}

#[cfg(test)]
mod tests;
