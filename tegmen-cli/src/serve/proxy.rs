//! The proxy as a part of `tegmen serve`.

use super::config_file::Mistake;
use super::options::ProxyOptions;
use crate::connect::only_key;
use crate::log::Log;
use crate::output::Failure;
use crate::pem::certificates;
use crate::public_keys::servers_of;
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr};
use tegmen_host::proxy::http::{self, HttpFront};
use tegmen_host::proxy::{Proxy, ProxyConfig, ProxyError};
use tegmen_host::public_keys::{PublicKeys, SUITES};
use tegmen_host::server::Listen;
use tegmen_host::uri::Scheme;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

impl ProxyOptions {
    /// Returns true if the options make the server a proxy.
    pub(super) const fn is_given(&self) -> bool {
        !self.proxy_to.is_empty() || !self.proxy_reverse.is_empty() || !self.proxy_host.is_empty()
    }

    /// Returns all mistakes in the settings of the proxy. `plain` is true if the server has unprotected clients.
    pub(super) fn mistakes(&self, plain: bool) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let mut check = |key, wrong: Option<String>| mistakes.extend(wrong.map(|why| Mistake::new(key, why)));
        check("proxy-credentials", self.proxy_credentials.as_deref().and_then(|file| only_key(file).err()));
        check("proxy-ca", servers_of(&self.proxy_ca, &[]).err().map(|failure| failure.message));
        let given = [("proxy-credentials", self.proxy_credentials.is_some()), ("proxy-ca", !self.proxy_ca.is_empty())];
        for (key, _) in given.into_iter().filter(|(_, is_given)| *is_given && !self.is_given()) {
            check(key, Some("it needs --proxy-to, --proxy-reverse or --proxy-host".to_owned()));
        }
        if self.proxy_http.is_some() {
            check("proxy-http", self.proxy_to.is_empty().then(|| "it needs --proxy-to".to_owned()));
            check("proxy-http", (!plain).then(|| "its clients are clients in clear: it needs --plain".to_owned()));
        }
        let mut paths: Vec<_> = self.proxy_reverse.iter().map(|reverse| reverse.path()).collect();
        paths.sort_unstable();
        let twice = paths.windows(2).find(|pair| pair[0] == pair[1]);
        check("proxy-reverse", twice.map(|pair| format!("/{}: there are two origins at this path", pair[0])));
        let mut names: Vec<_> = self.proxy_host.iter().map(|host| host.name()).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1]);
        check("proxy-host", twice.map(|pair| format!("{}: there are two origins of this host", pair[0])));
        // A file that cannot be read is a mistake already.
        match self.config().map(|config| config.check()) {
            Ok(Err(wrong @ ProxyError::Name(_))) => check("proxy-name", Some(wrong.to_string())),
            Ok(Err(wrong)) => check("", Some(wrong.to_string())),
            Ok(Ok(())) | Err(_) => {}
        }
        mistakes
    }

    /// Starts the proxy. Returns `None` if the server is not a proxy.
    pub(super) fn open(&self) -> Result<Option<Proxy>, Failure> {
        if !self.is_given() {
            return Ok(None);
        }
        Proxy::new(self.config()?).map(Some).map_err(Failure::usage)
    }

    /// Returns the settings of the proxy.
    fn config(&self) -> Result<ProxyConfig, Failure> {
        let key = self.proxy_credentials.as_deref().map(only_key).transpose().map_err(Failure::usage)?;
        let public_keys = match self.proxy_ca.is_empty() {
            true => None,
            false => Some(PublicKeys::new(SUITES).believing(servers_of(&self.proxy_ca, &[])?)),
        };
        let mut authorities = Vec::new();
        for file in &self.proxy_ca {
            let read = certificates(file).map_err(Failure::usage)?;
            authorities.extend(read.iter().map(|certificate| certificate.to_vec()));
        }
        Ok(ProxyConfig::default().with(|config| {
            config.https_authorities = authorities;
            config.targets.clone_from(&self.proxy_to);
            config.reverse.clone_from(&self.proxy_reverse);
            config.hosts.clone_from(&self.proxy_host);
            config.cache = self.proxy_cache;
            config.cache_of_client = self.proxy_cache_client;
            config.name.clone_from(&self.proxy_name);
            config.client.trust.key = key;
            config.client.trust.public_keys = public_keys;
            config.client.coap.nstart = self.proxy_nstart as usize;
        }))
    }

    /// Starts a task that serves HTTP clients, if the options allow HTTP clients to use the proxy. `addresses` are the
    /// addresses at which the CoAP server listens. The task runs on the runtime until the returned value is dropped.
    pub(super) async fn serve_http(
        &self,
        addresses: &[Listen],
        max_body: usize,
        log: &Log,
    ) -> Result<JoinSet<()>, Failure> {
        let mut tasks = JoinSet::new();
        let Some(address) = self.proxy_http else { return Ok(tasks) };
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::usage(format!("--proxy-http: nothing can be served at {address}: {error}; choose another port"))
        })?;
        let at = listener.local_addr().unwrap_or(address);
        // The settings were checked before: there is one.
        let plain = addresses.iter().find(|listen| listen.scheme == Scheme::Coap);
        let proxy = plain.map_or(at, |listen| reached(listen.address));
        log.always(
            || format!("HTTP clients use the proxy at http://{at}/hc/"),
            || json!({ "event": "http_proxy", "address": at.to_string() }),
        );
        tasks.spawn(http::serve(listener, HttpFront { proxy, max_body }));
        Ok(tasks)
    }
}

/// Returns the address to which a program on this machine sends datagrams for a socket that is bound to `address`.
fn reached(address: SocketAddr) -> SocketAddr {
    match address.ip().is_unspecified() {
        // A socket of [::] takes IPv4, too.
        true => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), address.port()),
        false => address,
    }
}
