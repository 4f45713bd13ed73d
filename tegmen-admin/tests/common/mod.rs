//! A server with its listener, and a client of the server.

pub(crate) mod document;
pub(crate) mod events;
pub(crate) mod logins;

use document::check;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use tegmen_admin::{Api, ClientCertificates, Route, Scope, Tls, serve};
use tegmen_base::hex::to_hex;
use tegmen_control::audit::{AuditBounds, AuditLog};
use tegmen_control::delegation::{Delegations, Rights};
use tegmen_control::group::Controller;
use tegmen_control::service::Service;
use tegmen_control::state::{Bounds, State};
use tegmen_store::{Database, Options, Revision, SealingKey, Store, Transaction};
use tegmen_trust::x509::signer::{Signer, SoftwareKey};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Returns the time an hour from now, in seconds since 1970.
pub(crate) fn later() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() + 3600
}

/// Returns a text with the ID of the API key `key`, but with a wrong secret.
pub(crate) fn token(key: &str) -> String {
    let (front, _) = key.rsplit_once('_').unwrap();
    format!("{front}_{}", "0".repeat(64))
}

/// Returns the routes that need a scope, each with its scope.
pub(crate) fn routes() -> Vec<(Route, Scope)> {
    Api::<Database>::routes().into_iter().filter_map(|route| route.scope.map(|scope| (route, scope))).collect()
}

/// Returns the path of a route with values in place of its parameters.
pub(crate) fn filled(path: &str) -> String {
    path.replace("{name}", "nobody").replace("{id}", "0123456789abcdef").replace("{member}", "nobody")
}

pub(crate) struct Scene {
    dir: PathBuf,
    pub(crate) store: Database,
    pub(crate) service: Arc<Service<Database>>,
    pub(crate) groups: Arc<Controller<Database>>,
    pub(crate) delegations: Arc<Delegations<Database>>,
    pub(crate) logins: Arc<logins::Authority>,
    pub(crate) api: Arc<Api<Database>>,
    /// The address from which the client connects.
    pub(crate) from: Mutex<Ipv4Addr>,
    pub(crate) address: SocketAddr,
    client: TlsConnector,
    roots: RootCertStore,
    /// The certificates of two clients, each with its private key. The interface accepts the authority that issued both
    /// certificates. The first certificate has scopes of its own.
    clients: Vec<(CertificateDer<'static>, Vec<u8>)>,
    certified: ClientCertificates,
    /// The certificate of the server and its private key.
    server: (CertificateDer<'static>, PrivateKeyDer<'static>),
    tls: watch::Sender<Arc<Tls>>,
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: String,
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

fn connector(roots: &RootCertStore, own: Option<&(CertificateDer<'static>, Vec<u8>)>) -> TlsConnector {
    let client = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let client = client.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots.clone());
    let client = match own {
        None => client.with_no_client_auth(),
        Some((certificate, key)) => {
            let key = PrivateKeyDer::try_from(key.clone()).unwrap();
            client.with_client_auth_cert(vec![certificate.clone()], key).unwrap()
        }
    };
    TlsConnector::from(Arc::new(client))
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
        let groups = Arc::new(Controller::new(store.clone(), Some(Arc::clone(&signer) as Arc<dyn Signer>)).unwrap());
        let audit = AuditLog::open(&dir.join("audit.log"), signer, AuditBounds::default()).unwrap();
        let service = Arc::new(Service::new(state, audit).unwrap());
        let (mut api, written) = Api::open(Arc::clone(&service), store.clone(), &dir.join("bootstrap")).await.unwrap();
        assert!(written);
        api.groups = (!name.ends_with("without-groups")).then(|| Arc::clone(&groups));
        let rights: Arc<dyn Rights> = Arc::clone(&service) as Arc<dyn Rights>;
        let delegations = Delegations::open(store.clone(), rights, service.audit().clone()).await.unwrap();
        let delegations = Arc::new(delegations);
        api.delegations = (!name.ends_with("without-groups")).then(|| Arc::clone(&delegations));
        let pair = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&pair).unwrap();
        let key = PrivateKeyDer::try_from(pair.serialize_der()).unwrap();
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(vec![]).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).unwrap();
        let logins = Arc::new(logins::Authority::new(Issuer::new(ca.clone(), KeyPair::generate().unwrap())));
        if !name.ends_with("without-groups") {
            api.logins = Some(Arc::clone(&logins) as _);
        }
        let issuer = Issuer::new(ca, ca_key);
        let clients: Vec<_> = ["first", "second"]
            .map(|name| {
                let pair = KeyPair::generate().unwrap();
                let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
                (params.signed_by(&pair, &issuer).unwrap().der().clone(), pair.serialize_der())
            })
            .into();
        let mut authority = RootCertStore::empty();
        authority.add(ca_certificate.der().clone()).unwrap();
        let digest = to_hex(&tegmen_trust::digest::sha256(&clients[0].0));
        let certified = ClientCertificates {
            roots: authority,
            scopes: [(digest, [Scope::DevicesRead].into())].into(),
            others: [Scope::PolicyRead].into(),
        };
        let tls = Tls::new(vec![certificate.der().clone()], key.clone_key(), Some(certified.clone())).unwrap();
        let (tls, receiver) = watch::channel(Arc::new(tls));
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let client = connector(&roots, None);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let api = Arc::new(api);
        tokio::spawn(serve(listener, receiver, Arc::clone(&api)));
        let from = Mutex::new(Ipv4Addr::LOCALHOST);
        let server = (certificate.der().clone(), key);
        Self {
            dir,
            store,
            service,
            groups,
            delegations,
            logins,
            api,
            from,
            address,
            client,
            roots,
            clients,
            certified,
            server,
            tls,
        }
    }

    /// Makes the client use the certificate with this index in `clients` from now on.
    pub(crate) fn use_client(&mut self, number: usize) {
        self.client = connector(&self.roots, Some(&self.clients[number]));
    }

    /// Makes the server accept other client certificates from now on. `change` changes the present ones.
    pub(crate) fn accept(&self, change: impl FnOnce(&mut ClientCertificates)) {
        let mut certified = self.certified.clone();
        change(&mut certified);
        let (certificate, key) = &self.server;
        let tls = Tls::new(vec![certificate.clone()], key.clone_key(), Some(certified)).unwrap();
        self.tls.send_replace(Arc::new(tls));
    }

    /// Returns an authority that did not issue the certificates of the two clients.
    pub(crate) fn other_authority(&self) -> RootCertStore {
        self.roots.clone()
    }

    pub(crate) fn bootstrap_file(&self) -> PathBuf {
        self.dir.join("bootstrap")
    }

    /// Opens the interface again, as a restart does. Returns true if it wrote a bootstrap token.
    pub(crate) async fn restart(&self) -> bool {
        let opened = Api::open(Arc::clone(&self.service), self.store.clone(), &self.bootstrap_file()).await;
        opened.unwrap().1
    }

    pub(crate) fn bootstrap_token(&self) -> String {
        std::fs::read_to_string(self.bootstrap_file()).unwrap().trim().to_owned()
    }

    /// Creates a key with all scopes with the help of the bootstrap token. Returns the text of the key.
    pub(crate) async fn first_key(&self) -> String {
        let scopes: Vec<&str> = Scope::ALL.iter().map(|scope| scope.name()).collect();
        self.key(&self.bootstrap_token(), &scopes).await.1
    }

    /// Creates a key with these scopes. The API key `by` authenticates the request. Returns the ID of the new key, and
    /// the text of the new key.
    pub(crate) async fn key(&self, by: &str, scopes: &[&str]) -> (String, String) {
        let expires = if by.contains("bootstrap") { later() + 60 } else { later() };
        let body = json!({ "name": "test", "scopes": scopes, "expires": expires });
        let created = self.ask("POST", "/v1/keys", Some(by), &[], &body).await;
        assert_eq!(created.status, 201, "{created:?}");
        (created.body["id"].as_str().unwrap().to_owned(), created.body["key"].as_str().unwrap().to_owned())
    }

    /// Writes the scopes `scopes` and the scope `more` into the row of the key with this ID, without the checks of the
    /// interface.
    pub(crate) async fn widen(&self, id: &str, scopes: &[&str], more: &str) {
        let row = format!("admin/key/{id}");
        let entry = self.store.read(row.as_bytes(), None).await.unwrap().entry.unwrap();
        let mut record: Value = serde_json::from_slice(entry.value.plain().unwrap()).unwrap();
        record["key"]["scopes"] = json!([scopes, &[more]].concat());
        let value = tegmen_store::Value::Plain(record.to_string().into_bytes());
        self.store.commit(Transaction::default().put(row, value)).await.unwrap();
    }

    /// Returns all lines of the audit log.
    pub(crate) fn audit(&self) -> String {
        std::fs::read_to_string(self.dir.join("audit.log")).unwrap()
    }

    /// Waits until the audit log contains this text, because the server writes most lines only after the answer.
    pub(crate) async fn audited(&self, text: &str) {
        let end = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
        while !self.audit().contains(text) {
            assert!(tokio::time::Instant::now() < end, "{text}: {}", self.audit());
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn revision(&self) -> Revision {
        self.store.read(b"none", None).await.unwrap().at
    }

    /// Connects to the interface over TLS.
    pub(crate) async fn connect(&self) -> TlsStream<TcpStream> {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((*self.from.lock().unwrap(), 0))).unwrap();
        let stream = socket.connect(self.address).await.unwrap();
        self.client.connect(ServerName::try_from("localhost").unwrap(), stream).await.unwrap()
    }

    /// Sends one request on a separate connection, and returns the answer. If `body` is `Null`, the request has no
    /// body. If `body` is a string, the request contains the text of this string unchanged. Checks the request and the
    /// answer against the OpenAPI document.
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
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        // A server that refuses by the length alone closes before it took all of the body.
        let _ = stream.write_all(body.as_bytes()).await;
        let _ = stream.flush().await;
        let answer = whole(&mut stream).await;
        let (headers, text) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer to {method} {path}"));
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        let content = serde_json::from_str(text).unwrap_or(Value::Null);
        let answer = Answer { status, headers: headers.to_owned(), text: text.to_owned(), body: content };
        check(method, path, &body, &answer);
        answer
    }
}

/// Reads an answer up to the end of the connection. Reads a stream of events only up to its first event.
async fn whole(stream: &mut TlsStream<TcpStream>) -> String {
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut part).await {
        answer.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&answer);
        if text.contains("\r\ncontent-type: text/event-stream\r\n") && text.contains("\n\n") {
            break;
        }
    }
    String::from_utf8(answer).unwrap()
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}
