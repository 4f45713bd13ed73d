//! The interface for administrators, as a part of `tegmen serve`.

use super::config_file::Mistake;
use super::options::Admin;
use super::roles::Certified;
use super::{access, delegation, groups};
use crate::log::Log;
use crate::output::Failure;
use crate::pem::{authorities, certificates, private_key};
use serde_json::json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tegmen_admin::{Api, ClientCertificates, Scopes, Tls, serve};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::rustls;

impl Admin {
    /// Returns all mistakes in the settings of the interface for administrators.
    pub(super) fn mistakes(&self, has_store: bool) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let files = [
            ("admin-cert", &self.admin_cert),
            ("admin-cert-key", &self.admin_cert_key),
            ("bootstrap", &self.bootstrap),
        ];
        for (key, file) in files {
            match (self.admin, file) {
                (None, Some(_)) => mistakes.push(Mistake::new(key, "it needs --admin")),
                (Some(_), None) => mistakes.push(Mistake::new("admin", format!("it needs --{key}"))),
                _ => {}
            }
        }
        if self.admin.is_some() && !has_store {
            mistakes.push(Mistake::new("admin", "it needs --store"));
        }
        if self.admin.is_none() && self.admin_ca.is_some() {
            mistakes.push(Mistake::new("admin-ca", "it needs --admin"));
        }
        match (&self.admin_ca, self.admin_role.is_empty(), self.admin_client.is_empty()) {
            (None, false, _) => mistakes.push(Mistake::new("admin-role", "it needs --admin-ca")),
            (None, _, false) => mistakes.push(Mistake::new("admin-client", "it needs --admin-ca")),
            (Some(_), _, true) => mistakes.push(Mistake::new("admin-ca", "it needs --admin-client")),
            _ => {}
        }
        mistakes.extend(self.tls().err().unwrap_or_default());
        mistakes
    }

    /// Reads the certificate chain and the key of the interface for administrators, and the authorities of its clients.
    /// Returns `None` if the interface is not configured.
    ///
    /// # Errors
    /// All mistakes in the files.
    pub(super) fn tls(&self) -> Result<Option<Tls>, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let note = |key: &'static str| move |why: String| Mistake::new(key, why);
        let own = self.admin_cert.as_deref().map(|file| certificates(file).map_err(note("admin-cert")));
        let key = self.admin_cert_key.as_deref().map(|file| private_key(file).map_err(note("admin-cert-key")));
        let clients = self.admin_ca.as_deref().map(|file| self.clients(file)).transpose();
        match (own.transpose(), key.transpose(), clients) {
            (Ok(Some(own)), Ok(Some(key)), Ok(clients)) => {
                let wrong = |error| vec![Mistake::new("admin-cert-key", self.unusable(&error))];
                return Tls::new(own, key, clients).map(Some).map_err(wrong);
            }
            (own, key, clients) => {
                mistakes.extend(own.err());
                mistakes.extend(key.err());
                mistakes.extend(clients.err());
            }
        }
        if mistakes.is_empty() { Ok(None) } else { Err(mistakes) }
    }

    /// Returns the reason why the certificate and the key cannot be used together.
    fn unusable(&self, error: &rustls::Error) -> String {
        let name = |file: &Option<PathBuf>| file.as_deref().unwrap_or(Path::new("")).display().to_string();
        let (cert, key) = (name(&self.admin_cert), name(&self.admin_cert_key));
        match error {
            rustls::Error::InconsistentKeys(_) => format!("{key} is not the key of the certificate {cert}"),
            error => format!("{cert} and {key} cannot be used: {error}"),
        }
    }

    /// Returns the settings for client certificates at the interface for administrators. An authority in the file `ca`
    /// must have issued the certificate of a client. The certificate has the scopes of the role that `--admin-client`
    /// assigns to its digest, and otherwise no scopes.
    fn clients(&self, ca: &Path) -> Result<ClientCertificates, Mistake> {
        let wrong = |why: String| Mistake::new("admin-ca", why);
        let roots = authorities(ca).map_err(wrong)?;
        let mut scopes = HashMap::new();
        for Certified { digest, role } in &self.admin_client {
            let found = self.admin_role.iter().find(|known| known.name == *role);
            let unknown = || Mistake::new("admin-client", format!("there is no role {role}: add it by --admin-role"));
            scopes.insert(digest.clone(), found.ok_or_else(unknown)?.scopes.clone());
        }
        Ok(ClientCertificates { roots, scopes, others: Scopes::new() })
    }

    /// Serves the interface for administrators on the runtime, if it is configured. If the server controls groups or
    /// delegates sessions, the interface includes them. This function returns after the listener is bound. With the
    /// returned sender the caller can change the certificates of the interface. Returns `None` if the interface is not
    /// configured.
    pub(super) async fn start(
        &self,
        role: &access::Role,
        groups: Option<&groups::Role>,
        delegation: Option<&delegation::Role>,
        log: &Log,
    ) -> Result<Option<watch::Sender<Arc<Tls>>>, Failure> {
        let (Some(address), Some(file)) = (&self.admin, &self.bootstrap) else { return Ok(None) };
        let wrong = |mistakes: Vec<Mistake>| {
            Failure::usage(mistakes.into_iter().map(|mistake| mistake.why).collect::<Vec<_>>().join("\n"))
        };
        let Some(tls) = self.tls().map_err(wrong)? else { return Ok(None) };
        let (sender, tls) = watch::channel(Arc::new(tls));
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::usage(format!("--admin: nothing can be served at {address}: {error}; choose another port"))
        })?;
        let at = listener.local_addr().unwrap_or(*address);
        let (service, rows) = role.shared();
        let (mut api, is_written) = Api::open(service, rows, file).await.map_err(Failure::usage)?;
        api.delegations = delegation.map(|role| Arc::clone(&role.server));
        api.logins = delegation.and_then(|role| role.logins.clone());
        api.groups = groups.map(|role| Arc::clone(&role.controller));
        log.always(
            || format!("administration at https://{at}/v1/"),
            || json!({ "event": "admin", "address": at.to_string() }),
        );
        if is_written {
            let file = file.display();
            log.always(
                || format!("the bootstrap token is in {file}: create the first API key with it"),
                || json!({ "event": "bootstrap", "file": file.to_string() }),
            );
        }
        tokio::spawn(serve(listener, tls, Arc::new(api)));
        Ok(Some(sender))
    }
}
