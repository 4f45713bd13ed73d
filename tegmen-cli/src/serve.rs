//! `tegmen serve`: serves values, files and commands as resources.

pub(crate) mod access;
mod acme;
pub(crate) mod admin;
mod check;
mod config_file;
mod contexts;
mod delegated;
pub(crate) mod delegation;
pub(crate) mod device_keys;
mod directory;
mod group_observation;
pub(crate) mod groups;
mod interface;
mod members;
mod options;
mod page;
mod proxy;
mod reload;
mod resource_server;
mod roles;
mod settings;
pub(crate) mod store;
pub(crate) mod systemd;

use crate::ca;
use crate::log::{Level, Log};
use crate::output::{Failure, Output, runtime};
use check::Made;
use clap::Args;
use contexts::ServedContexts;
use options::Sections;
use page::Shown;
use reload::Running;
use serde_json::json;
use settings::Settings;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use systemd::{Manager, Sockets};
use tegmen::dtls::{CipherSuite, ConnectionIdConfig, Suites};
use tegmen_host::metrics::Operation;
use tegmen_host::public_keys::PublicKeys;
use tegmen_host::resumption::ResumptionConfig;
use tegmen_host::server::{Event, GroupObservation, Listen, Server, ServerConfig, Totals};
use tegmen_host::slab::Capacity;
use tegmen_host::state::Database;
use tegmen_host::uri::Scheme;
use tegmen_host::x509::PeerVerifier;
use tokio::net::TcpListener;
use tokio::sync::watch;

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen serve --value /temp=21.5 --credentials keys.toml\n  \
    tegmen serve --value /temp=21.5 --oscore server --no-secure\n  \
    tegmen serve --dir /=./public --plain --no-secure\n  \
    tegmen serve --command '/uptime=uptime -p' --blink /blink --listen 127.0.0.1\n  \
    tegmen serve --config /etc/tegmen/tegmen.toml --check-config")]
pub(crate) struct Serve {
    /// Read settings from this file (TOML). A key is the name of an option, in the section under which this help
    /// lists the option. Options on the command line and in the environment override the file. SIGHUP reads the file
    /// again.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Check the settings and end: print "ok", or all mistakes.
    #[arg(long)]
    check_config: bool,
    #[command(flatten)]
    sections: Sections,
}

impl Sections {
    /// Returns true if the server has OSCORE contexts, or can make OSCORE contexts.
    const fn have_oscore(&self) -> bool {
        self.keys.have_oscore() || self.resource_server.resource_server.is_some()
    }

    /// Returns the addresses at which the server listens.
    fn listens(&self) -> Vec<Listen> {
        let addresses = &self.addresses;
        let all = [IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let ips = if addresses.listen.is_empty() { &all[..] } else { &addresses.listen };
        let mut listen = Vec::new();
        for ip in ips {
            if !addresses.no_secure {
                listen.push(Listen { address: SocketAddr::new(*ip, addresses.port), scheme: Scheme::Coaps });
            }
            if addresses.plain || self.have_oscore() {
                listen.push(Listen { address: SocketAddr::new(*ip, addresses.plain_port), scheme: Scheme::Coap });
            }
        }
        listen
    }

    /// Returns the settings that need no file. These include all limits.
    fn plain_config(&self) -> ServerConfig {
        let Self { limits, dtls, sessions, .. } = self;
        let mut config = ServerConfig::default();
        config.listen = self.listens();
        config.groups = self.groups.group.clone();
        config.group_observations = self.groups.group_observation.clone();
        config.coap.leisure = Duration::from_secs_f64(self.groups.leisure);
        config.shards = limits.shards;
        config.trust.plain_allowed = self.addresses.plain;
        config.log.key_log = dtls.key_log.clone();
        config.log.report_requests = self.log.level() >= Level::Info;
        config.coap.max_body = limits.max_body;
        config.coap.max_exchange_bytes = limits.max_exchange_bytes;
        config.coap.max_bodies = limits.max_bodies.max(limits.max_body.saturating_mul(4));
        config.coap.unconfirmed_notifications = limits.unconfirmed;
        config.coap.verify_addresses = limits.verify_addresses;
        config.coap.requests_per_second = limits.requests_per_second;
        config.sessions.hellos = limits.hello_limits;
        config.sessions.signatures_per_second = limits.signatures_per_second;
        config.sessions.capacity =
            Capacity { peers: limits.max_peers.max(1), handshakes: limits.max_handshakes.max(1) };
        config.dtls.suites = dtls.suites.unwrap_or(config.dtls.suites);
        config.dtls.mtu = dtls.mtu;
        config.dtls.record_size_limit = dtls.record_size_limit.unwrap_or(0);
        let (padding, follow_unchecked) = (dtls.padding, dtls.follow_unchecked);
        let policy = ConnectionIdConfig { padding, follow_unchecked, ..ConnectionIdConfig::default() };
        config.dtls.connection_id = (!dtls.no_connection_id).then_some(policy);
        config.resumption = (!sessions.no_resumption).then(|| ResumptionConfig {
            lifetime: Duration::from_secs(sessions.ticket_lifetime),
            keys: sessions.ticket_keys.clone(),
            ..ResumptionConfig::default()
        });
        config
    }

    /// Returns all settings of the server. `devices` is a verifier that accepts the raw public keys of devices.
    fn config(
        &self,
        contexts: ServedContexts,
        state: Option<Database>,
        devices: Option<Arc<dyn PeerVerifier>>,
    ) -> Result<ServerConfig, Failure> {
        let mut config = self.plain_config();
        contexts.configure(&mut config);
        config.state = state;
        let all = Suites(&[
            CipherSuite::ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8,
            CipherSuite::ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            CipherSuite::PSK_WITH_AES_128_CCM_8,
            CipherSuite::PSK_WITH_AES_128_GCM_SHA256,
        ]);
        let suites = self.dtls.suites;
        let kept = self.clients_file();
        let revoked = self.delegation.delegation_ca.as_deref().map(ca::revoked_logins);
        config.trust.public_keys = self.clients.keys(Some(suites.unwrap_or(all)), kept.as_deref(), devices, revoked)?;
        if let (None, Some(suites)) = (&config.trust.public_keys, suites) {
            // Ephemeral key exchanges need these, too.
            config.trust.public_keys = Some(PublicKeys::new(suites));
        }
        Ok(config)
    }

    /// Returns the path of the file that keeps certificates of clients over a restart: the path of the file with the
    /// ticket keys, followed by the extension `.clients`. If the server has no file with ticket keys, the path begins
    /// with the path of the state.
    fn clients_file(&self) -> Option<PathBuf> {
        let sessions = &self.sessions;
        let mut file = sessions.ticket_keys.as_ref().or(sessions.state.as_ref())?.clone().into_os_string();
        file.push(".clients");
        Some(file.into())
    }

    /// Logs the addresses and the groups of the server, and the number of its contexts.
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
        if self.keys.edhoc.is_some() {
            log.always(|| "EDHOC makes OSCORE contexts".to_owned(), || json!({ "event": "edhoc" }));
        }
        for group in &self.groups.group {
            log.always(
                || format!("joined the group {group}"),
                || json!({ "event": "joined", "group": group.to_string() }),
            );
        }
        for GroupObservation { path, group, port, oscore } in &self.groups.group_observation {
            log.always(
                || format!("the notifications of /{path} are sent to {group}, port {port}"),
                || json!({ "event": "group_observation", "path": path, "group": group.to_string(), "port": port, "oscore": oscore }),
            );
        }
    }
}

impl Serve {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        // Before there are threads.
        let sockets = Sockets::inherited()?;
        let manager = Manager::of_environment()?;
        let wrong = |mistakes: Vec<String>| Failure::usage(mistakes.join("\n"));
        let settings = Settings::read(self.config.as_deref()).map_err(wrong)?;
        let mistakes = settings.sections.mistakes(&Made::new());
        if !mistakes.is_empty() {
            return Err(wrong(settings.describe(&mistakes)));
        }
        if self.check_config {
            out.line(|| "ok".to_owned(), || json!({ "event": "checked" }));
            return Ok(ExitCode::SUCCESS);
        }
        let (running, contexts, listener) = Running::start(self.config, settings, sockets, out)?;
        let log = running.log.clone();
        let totals = run(running, contexts, listener, &manager)?;
        log.always(
            || format!("{} requests answered, {} handshakes, {} failed", totals.requests, totals.counters.established, totals.counters.failed),
            || json!({ "event": "ended", "requests": totals.requests, "established": totals.counters.established, "failed": totals.counters.failed }),
        );
        log.end();
        Ok(ExitCode::SUCCESS)
    }
}

/// Runs a server until a signal ends it, and returns its counts.
fn run(
    mut running: Running,
    contexts: usize,
    listener: Option<std::net::TcpListener>,
    manager: &Manager,
) -> Result<Totals, Failure> {
    let runtime = runtime()?;
    let (mut hangups, ended) = {
        // From before the first line, so that no signal of somebody who waits for that line ends the process unheard.
        let _context = runtime.enter();
        (hangups(), ended())
    };
    let log = running.log.clone();
    running.sections().announce(&running.server, contexts, &log);
    let address = running.sections().service.metrics;
    let started = Operation {
        started: SystemTime::now(),
        ready: true,
        reloads: 0,
        reloads_refused: 0,
        groups: None,
        delegation: None,
        proxy: None,
    };
    let (operation, watched) = watch::channel(started);
    let shown = Shown {
        counts: running.server.counts(),
        pulse: running.server.pulse(),
        operation: watched,
        outbox: running.outbox(),
        delegations: running.delegations(),
        proxy: running.proxy(),
    };
    let outcome = runtime.block_on(async {
        let mut pages = std::pin::pin!(pages(listen(listener, address, &log).await?, shown.clone()));
        let _controlling = running.control_groups();
        let _delegating = running.delegate();
        let _device = running.run_device();
        let _registered = running.register();
        let _following = running.follow_revocations();
        let http = running.serve_http().await?;
        running.administer().await?;
        running.follow_members(&log);
        let mut ended = std::pin::pin!(ended);
        let mut alive = std::pin::pin!(keep_alive(&shown, manager));
        manager.report(&format!("READY=1\nSTATUS={} resources", running.resources()));
        loop {
            tokio::select! {
                () = &mut ended => break,
                () = &mut alive => {}
                Some(()) = hangups.next() => {
                    manager.report_reload();
                    let taken = running.reload().await;
                    // The settings are in force when each shard has answered.
                    shown.is_live().await;
                    operation.send_modify(|operation| match taken {
                        true => operation.reloads += 1,
                        false => operation.reloads_refused += 1,
                    });
                    let status = if taken { "" } else { "; the configuration is wrong, and the one before is in force" };
                    manager.report(&format!("READY=1\nSTATUS={} resources{status}", running.resources()));
                }
                failed = &mut pages => return Err(failed),
            }
        }
        manager.report("STOPPING=1\nSTATUS=waiting for responses of commands");
        operation.send_modify(|operation| operation.ready = false);
        drop(http);
        let patience = Duration::from_secs_f64(running.sections().service.drain);
        let server = running.server;
        let drained = tokio::task::spawn_blocking(move || server.drain(patience));
        tokio::select! {
            totals = drained => totals.map_err(Failure::new),
            failed = &mut pages => Err(failed),
        }
    });
    // Connections to the pages that are open still do not hold the process.
    runtime.shutdown_background();
    outcome
}

/// Returns a listener at the address of the HTTP pages; `None` if there is no such address. Uses `listener` if the
/// process inherited one.
async fn listen(
    listener: Option<std::net::TcpListener>,
    address: Option<SocketAddr>,
    log: &Log,
) -> Result<Option<TcpListener>, Failure> {
    let Some(address) = address else { return Ok(None) };
    let bound = match listener {
        None => TcpListener::bind(address).await,
        Some(listener) => listener.set_nonblocking(true).and_then(|()| TcpListener::from_std(listener)),
    };
    let listener = bound.map_err(|error| {
        Failure::usage(format!("--metrics: nothing can be served at {address}: {error}; choose another port"))
    })?;
    let at = listener.local_addr().unwrap_or(address);
    log.always(
        || format!("metrics at http://{at}/metrics"),
        || json!({ "event": "metrics", "address": at.to_string() }),
    );
    Ok(Some(listener))
}

/// Serves the HTTP pages. Returns only if the HTTP server fails. Without a listener, this function never returns.
async fn pages(listener: Option<TcpListener>, shown: Shown) -> Failure {
    let Some(listener) = listener else { return std::future::pending().await };
    match page::serve(listener, shown).await {
        Ok(()) => Failure::new("the pages ended"),
        Err(error) => Failure::io(error),
    }
}

/// Checks that each shard (a thread of the server) answers, and reports this to the service manager. Does this twice
/// within the time after which the service manager considers a silent server stuck. Never returns.
async fn keep_alive(shown: &Shown, manager: &Manager) {
    let Some(interval) = systemd::watchdog() else { return std::future::pending().await };
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        if shown.is_live().await {
            manager.report("WATCHDOG=1");
        }
    }
}

/// The SIGHUP signals that arrive after the call of the function [`hangups`].
pub(crate) struct Hangups {
    #[cfg(unix)]
    signals: Option<tokio::signal::unix::Signal>,
}

/// Begins to listen to SIGHUP. Call this in the context of a runtime.
pub(crate) fn hangups() -> Hangups {
    Hangups {
        #[cfg(unix)]
        signals: tokio::signal::unix::signal(tokio::signal::unix::SignalKind::hangup()).ok(),
    }
}

impl Hangups {
    /// Waits for the next SIGHUP. Several SIGHUPs that arrive together may count as one.
    pub(crate) async fn next(&mut self) -> Option<()> {
        #[cfg(unix)]
        if let Some(signals) = &mut self.signals {
            return signals.recv().await;
        }
        std::future::pending().await
    }
}

/// Returns a future that ends at the first interrupt or termination signal after this call. Call this in the context
/// of a runtime.
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

/// Returns a function that writes the events of a server to its log.
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
