//! A server with its listener, and a client.

use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tegmen_admin::{Api, Scope, serve, tls};
use tegmen_control::audit::{AuditBounds, AuditLog};
use tegmen_control::service::Service;
use tegmen_control::state::{Bounds, State};
use tegmen_store::{Database, Options, Revision, SealingKey, Store, Transaction};
use tegmen_trust::x509::signer::SoftwareKey;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// An hour from now, in seconds since 1970.
pub(crate) fn later() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600
}

/// A wrong key with the ID of this one.
pub(crate) fn token(key: &str) -> String {
    let (front, _) = key.rsplit_once('_').unwrap();
    format!("{front}_{}", "0".repeat(64))
}

pub(crate) struct Scene {
    dir: PathBuf,
    pub(crate) store: Database,
    address: SocketAddr,
    client: TlsConnector,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: String,
    pub(crate) text: String,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or("")
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}

impl Scene {
    pub(crate) async fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("tegmen-admin-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("key"), "4".repeat(64)).unwrap();
        #[cfg(unix)]
        std::fs::set_permissions(dir.join("key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let sealing = Arc::new(SealingKey::from_file(&dir.join("key")).unwrap());
        let store =
            Database::open_with(&dir.join("state.db"), Options { sealing: Some(sealing), ..Options::default() })
                .unwrap();
        let state = State::open(store.clone(), Bounds::default(), Box::new(|_| ())).await.unwrap();
        let pair = KeyPair::generate().unwrap();
        let signer = Arc::new(SoftwareKey::from_pem(pair.serialize_pem().as_bytes()).unwrap());
        let audit = AuditLog::open(&dir.join("audit.log"), signer, AuditBounds::default()).unwrap();
        let service = Arc::new(Service::new(state, audit).unwrap());
        let (api, written) = Api::open(service, store.clone(), &dir.join("bootstrap")).await.unwrap();
        assert!(written);
        let pair = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&pair).unwrap();
        let key = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
        let config = tls(vec![certificate.der().clone()], key, None).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let client = client.with_safe_default_protocol_versions().unwrap();
        let client = TlsConnector::from(Arc::new(client.with_root_certificates(roots).with_no_client_auth()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, Arc::new(config), None, Arc::new(api)));
        Self { dir, store, address, client }
    }

    pub(crate) fn bootstrap_file(&self) -> PathBuf {
        self.dir.join("bootstrap")
    }

    pub(crate) fn bootstrap_token(&self) -> String {
        std::fs::read_to_string(self.bootstrap_file()).unwrap().trim().to_owned()
    }

    /// A key with all scopes, which the bootstrap token creates.
    pub(crate) async fn first_key(&self) -> String {
        let scopes: Vec<&str> = Scope::ALL.iter().map(|scope| scope.name()).collect();
        self.key(&self.bootstrap_token(), &scopes).await.1
    }

    /// A key with these scopes, created by the holder of another one: its ID and the key.
    pub(crate) async fn key(&self, by: &str, scopes: &[&str]) -> (String, String) {
        let expires = if by.contains("bootstrap") { later() + 60 } else { later() };
        let body = json!({ "name": "test", "scopes": scopes, "expires": expires });
        let created = self.ask("POST", "/v1/keys", Some(by), &[], &body).await;
        assert_eq!(created.status, 201, "{created:?}");
        (created.body["id"].as_str().unwrap().to_owned(), created.body["key"].as_str().unwrap().to_owned())
    }

    /// Writes another scope into the row of a key.
    pub(crate) async fn widen(&self, id: &str, scopes: &[&str], more: &str) {
        let row = format!("admin/key/{id}");
        let entry = self.store.read(row.as_bytes(), None).await.unwrap().entry.unwrap();
        let mut record: Value = serde_json::from_slice(entry.value.plain().unwrap()).unwrap();
        record["key"]["scopes"] = json!([scopes, &[more]].concat());
        let value = tegmen_store::Value::Plain(record.to_string().into_bytes());
        self.store.commit(Transaction::default().put(row, value)).await.unwrap();
    }

    /// The lines of the audit log.
    pub(crate) fn audit(&self) -> String {
        std::fs::read_to_string(self.dir.join("audit.log")).unwrap()
    }

    pub(crate) async fn revision(&self) -> Revision {
        self.store.read(b"none", None).await.unwrap().at
    }

    /// One request on a connection of its own. A body of `Null` is none, and a string goes as it is.
    pub(crate) async fn ask(
        &self,
        method: &str,
        path: &str,
        key: Option<&str>,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let body = match body {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            body => body.to_string(),
        };
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
        key.iter().for_each(|key| request += &format!("authorization: Bearer {key}\r\n"));
        headers.iter().for_each(|(name, value)| request += &format!("{name}: {value}\r\n"));
        request += &format!("content-length: {}\r\n\r\n", body.len());
        let stream = TcpStream::connect(self.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut stream = self.client.connect(name, stream).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        // A server that refuses by the length alone closes before it took all of the body.
        let _ = stream.write_all(body.as_bytes()).await;
        let _ = stream.flush().await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (headers, text) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {method} {path}"));
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        let body = serde_json::from_str(text).unwrap_or(Value::Null);
        Answer { status, headers: headers.to_owned(), text: text.to_owned(), body }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
