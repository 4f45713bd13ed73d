//! The interface for administrators, as a part of `tegmen serve`.

use super::access::Role;
use super::config_file::Mistake;
use super::options::Admin;
use crate::log::Log;
use crate::output::Failure;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tegmen_admin::{Api, serve, tls};
use tokio::net::TcpListener;

impl Admin {
    /// Returns all mistakes.
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
        let certificates = self.admin_cert.as_deref().and_then(|file| certificates(file).err());
        mistakes.extend(certificates.map(|why| Mistake::new("admin-cert", why)));
        let key = self.admin_cert_key.as_deref().and_then(|file| private_key(file).err());
        mistakes.extend(key.map(|why| Mistake::new("admin-cert-key", why)));
        mistakes
    }

    /// Serves the interface on the runtime, if it is wanted. Returns after its listener is bound.
    pub(super) async fn start(&self, role: &Role, log: &Log) -> Result<(), Failure> {
        let Self { admin: Some(address), admin_cert: Some(cert), admin_cert_key: Some(key), bootstrap: Some(file) } =
            self
        else {
            return Ok(());
        };
        let key = private_key(key).map_err(Failure::usage)?;
        let config = tls(certificates(cert).map_err(Failure::usage)?, key, None).map_err(Failure::usage)?;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Failure::usage(format!("--admin: nothing can be served at {address}: {error}; choose another port"))
        })?;
        let at = listener.local_addr().unwrap_or(*address);
        let (service, rows) = role.shared();
        let (api, is_written) = Api::open(service, rows, file).await.map_err(Failure::usage)?;
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
        tokio::spawn(serve(listener, Arc::new(config), None, Arc::new(api)));
        Ok(())
    }
}

/// Reads certificates; the reason if there are none.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| format!("{}: {error}", file.display()))?;
    if certificates.is_empty() {
        return Err(format!("{} has no certificate: write it in PEM", file.display()));
    }
    Ok(certificates)
}

/// Reads a private key; the reason if it is none.
fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_file(file).map_err(|error| format!("{}: {error}", file.display()))
}
