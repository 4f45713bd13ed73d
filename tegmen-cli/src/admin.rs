//! A client of the HTTPS interface for administrators: one connection for each request.

use crate::files::{self, Readers, read_secret};
use crate::https::{self, Unanswered};
use crate::log::rfc3339;
use crate::output::{Failure, runtime};
use crate::pem::{authorities, certificates, private_key};
use clap::Args;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, IF_MATCH};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;
use tokio_rustls::rustls::ClientConfig;
use zeroize::Zeroizing;

/// Longest time for a request and its response.
const PATIENCE: Duration = Duration::from_secs(60);
/// Number of bytes that are reserved for a request body. A body with a secret is shorter, so the buffer does not grow.
/// A buffer that grows would leave a copy of the secret in memory.
const SECRET: usize = 64 << 10;
/// Longest body of a response in bytes.
const MAX_BODY: usize = 8 << 20;

/// The options that name the HTTPS interface of an access control server.
#[derive(Args)]
pub(crate) struct Interface {
    /// The interface for administrators, as https://HOST:PORT.
    #[arg(long, value_name = "URL", env = "TEGMEN_SERVER")]
    pub(crate) server: Uri,
    /// Trust the certificates of these authorities (PEM), and no others.
    #[arg(long, value_name = "FILE", env = "TEGMEN_CA")]
    ca: PathBuf,
}

/// A client of the interface of an access control server, with the files of its credential: an API key or the bootstrap
/// token, or a client certificate.
#[derive(Args)]
pub(crate) struct Admin {
    #[command(flatten)]
    interface: Interface,
    /// Read the API key, or the bootstrap token, from this file, which only its owner can read.
    #[arg(long, value_name = "FILE", env = "TEGMEN_KEY_FILE", required_unless_present = "client_cert")]
    key_file: Option<PathBuf>,
    /// Authenticate with this client certificate (PEM, followed by the certificates of its authorities). A server may
    /// accept the certificate in place of a key.
    #[arg(long, value_name = "FILE", env = "TEGMEN_CLIENT_CERT", requires = "client_cert_key")]
    client_cert: Option<PathBuf>,
    /// The private key of --client-cert in PEM. Only its owner can read the file.
    #[arg(long, value_name = "FILE", env = "TEGMEN_CLIENT_CERT_KEY", requires = "client_cert")]
    client_cert_key: Option<PathBuf>,
}

/// Makes a client without a key, for requests that need no key.
impl From<Interface> for Admin {
    fn from(interface: Interface) -> Self {
        Self { interface, key_file: None, client_cert: None, client_cert_key: None }
    }
}

impl Admin {
    /// Sends a request without a body. Returns the body of the response, or null if the response has none.
    pub(crate) fn send(&self, method: Method, path: &str) -> Result<Value, Failure> {
        self.exchange(method, path, Zeroizing::default())
    }

    /// Sends a request with a body. The body is wiped afterwards.
    pub(crate) fn send_body(&self, method: Method, path: &str, body: &impl Serialize) -> Result<Value, Failure> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(SECRET));
        serde_json::to_writer(&mut *bytes, body).map_err(Failure::new)?;
        self.exchange(method, path, bytes)
    }

    /// Requests a list that the server sends in pages, and calls `each` with each page.
    pub(crate) fn pages(&self, path: &str, mut each: impl FnMut(Value)) -> Result<(), Failure> {
        let mut after = String::new();
        loop {
            let page = self.send(Method::GET, &format!("{path}?limit=1000{after}"))?;
            let next = page["next"].as_str().map(|next| format!("&after={next}"));
            each(page);
            match next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    /// Begins a request. If there is a key, the request contains it.
    fn request(&self, method: &Method, path: &str) -> Result<Builder, Failure> {
        let (_, authority) = self.host()?;
        let request = Request::builder().method(method).uri(path).header(HOST, authority);
        let Some(file) = &self.key_file else { return Ok(request) };
        if !file.exists() {
            return Err(Failure::usage(format!(
                "--key-file: there is no file {}: correct the path, or let an administrator create a key (tegmen key create). The                  first key is created with the bootstrap token, which a server without keys writes when it starts",
                file.display()
            )));
        }
        let key = Zeroizing::new(format!("Bearer {}", &*secret(file, "--key-file")?));
        let mut key = HeaderValue::from_str(&key)
            .map_err(|_| Failure::usage(format!("{} has no API key in one line", file.display())))?;
        key.set_sensitive(true);
        Ok(request.header(AUTHORIZATION, key))
    }

    fn exchange(&self, method: Method, path: &str, body: Zeroizing<Vec<u8>>) -> Result<Value, Failure> {
        runtime()?.block_on(self.exchange_on(method, path, body))
    }

    /// Reads the resource at a path. Returns the body of the response, or null if the response has none.
    pub(crate) async fn read(&self, path: &str) -> Result<Value, Failure> {
        self.exchange_on(Method::GET, path, Zeroizing::default()).await
    }

    async fn exchange_on(&self, method: Method, path: &str, body: Zeroizing<Vec<u8>>) -> Result<Value, Failure> {
        let mut request = self.request(&method, path)?;
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if method == Method::PUT || method == Method::PATCH || method == Method::DELETE {
            // The command means the state that the server has.
            request = request.header(IF_MATCH, "*");
        }
        let request = request.body(Full::new(Bytes::from_owner(body))).map_err(Failure::new)?;
        let late = |_| self.unanswered(&method, &format!("nothing came within {} s", PATIENCE.as_secs()));
        let (status, body) = tokio::time::timeout(PATIENCE, self.ask(request)).await.map_err(late)??;
        if !status.is_success() {
            return Err(self.refused(status, &body));
        }
        match body.is_empty() {
            true => Ok(Value::Null),
            false => serde_json::from_slice(&body).map_err(|_| self.foreign(status)),
        }
    }

    /// Makes the error for a request that the server refuses, from the status and the body of the response.
    fn refused(&self, status: StatusCode, body: &[u8]) -> Failure {
        let problem: Value = serde_json::from_slice(body).unwrap_or_default();
        match (problem["detail"].as_str(), problem["code"].as_str()) {
            (Some(detail), Some(code)) => refusal(detail, code),
            _ => self.foreign(status),
        }
    }

    /// Returns the host of the URL, and the value of the header Host.
    fn host(&self) -> Result<(String, &str), Failure> {
        let path = self.interface.server.path_and_query().map_or("", |path| path.as_str());
        match (self.interface.server.scheme_str(), self.interface.server.authority(), path) {
            (Some("https"), Some(authority), "" | "/") if !authority.as_str().contains('@') => {
                Ok((authority.host().trim_matches(['[', ']']).to_owned(), authority.as_str()))
            }
            _ => Err(Failure::usage(format!("--server: {}: write it as https://HOST:PORT", self.interface.server))),
        }
    }

    fn tls(&self) -> Result<ClientConfig, Failure> {
        let roots = authorities(&self.interface.ca).map_err(|why| Failure::usage(format!("--ca: {why}")))?;
        let builder = https::trusting(roots).map_err(Failure::new)?;
        let (Some(cert), Some(key)) = (&self.client_cert, &self.client_cert_key) else {
            return Ok(builder.with_no_client_auth());
        };
        let chain = certificates(cert).map_err(|why| Failure::usage(format!("--client-cert: {why}")))?;
        let own = private_key(key).map_err(|why| Failure::usage(format!("--client-cert-key: {why}")))?;
        let wrong = |error| Failure::usage(format!("--client-cert-key: {}: {error}", key.display()));
        builder.with_client_auth_cert(chain, own).map_err(wrong)
    }

    /// Sends a request on a new connection. Returns the whole response.
    async fn ask(&self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), Failure> {
        let method = request.method().clone();
        let (_connection, response) = self.open(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        Ok((status, body.map_err(|error| self.unanswered(&method, &error))?.to_bytes()))
    }

    /// Sends a request on a new connection. Returns the connection, which ends when it is dropped, and the response
    /// up to its body.
    async fn open(&self, request: Request<Full<Bytes>>) -> Result<(JoinSet<()>, Response<Incoming>), Failure> {
        let ((host, _), config) = (self.host()?, self.tls()?);
        let port = self.interface.server.port_u16().unwrap_or(https::PORT);
        let method = request.method().clone();
        https::send(config, (&host, port), request).await.map_err(|error| match error {
            Unanswered::Name => Failure::usage(format!("--server: {host} is neither a host name nor an address")),
            Unanswered::Unreached(error) => {
                Failure::new(format!("{} cannot be reached: {error}: does the server run with --admin?", self.interface.server))
            }
            Unanswered::Tls(error) => Failure::new(format!(
                "the TLS handshake with {} failed: {error}: compare --ca with the authority of its certificate, and the host \
                 with the names in it",
                self.interface.server
            )),
            Unanswered::Http(error) => self.unanswered(&method, &error),
        })
    }

    /// Requests the events after the event with the ID `after`; with `None`, the events from now on. Returns the
    /// connection, which ends when it is dropped, and the body of the response. The inner error is the refusal of the
    /// server. The outer error is any other failure.
    pub(crate) async fn follow(
        &self,
        after: Option<&str>,
    ) -> Result<Result<(JoinSet<()>, Incoming), Failure>, Failure> {
        let mut request = self.request(&Method::GET, "/v1/events")?;
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let request = request.body(Full::default()).map_err(Failure::usage)?;
        let late = |_| self.unanswered(&Method::GET, &format!("nothing came within {} s", PATIENCE.as_secs()));
        let (connection, response) = tokio::time::timeout(PATIENCE, self.open(request)).await.map_err(late)??;
        let status = response.status();
        if status.is_success() {
            return Ok(Ok((connection, response.into_body())));
        }
        let body = Limited::new(response.into_body(), MAX_BODY).collect().await;
        let body = body.map_err(|error| self.unanswered(&Method::GET, &error))?;
        Ok(Err(self.refused(status, &body.to_bytes())))
    }

    /// Makes the error for a request that got no response.
    fn unanswered(&self, method: &Method, why: &dyn Display) -> Failure {
        let next_step = match method.is_safe() {
            true => "try again",
            false => "it may have made the change: check that before you send it again",
        };
        Failure::new(format!("{} did not answer: {why}: {next_step}", self.interface.server))
    }

    fn foreign(&self, status: StatusCode) -> Failure {
        let server = &self.interface.server;
        Failure::new(format!(
            "{server} answered {status} in a form that no access control server has: compare --server with the address of its \
             --admin"
        ))
    }
}

/// Makes the error for a request that the server refuses, with the reason and the code of the server.
pub(crate) fn refusal(detail: &str, code: &str) -> Failure {
    Failure::new(format!("the server refuses it: {detail} ({code})"))
}

/// Encodes a name as a segment of a path.
pub(crate) fn segment(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
}

/// Reads a secret from the file of an option with [`read_secret`]. The error names the option.
pub(crate) fn secret(file: &Path, option: &str) -> Result<Zeroizing<String>, Failure> {
    read_secret(file).map_err(|why| Failure::usage(format!("{option}: {why}")))
}

/// Calls `create`, which creates keys that the server shows only once. Writes each key to one file of `outputs`. If one
/// of these files exists already, fails and does not call `create`. If a key cannot be written, the error contains the
/// text of `undo`, which names the command that removes the created entry.
pub(crate) fn save_once<T, K: AsRef<[u8]>>(
    outputs: &[PathBuf],
    create: impl FnOnce() -> Result<(T, Vec<K>), Failure>,
    undo: impl FnOnce(&T) -> String,
) -> Result<T, Failure> {
    if let Some(file) = outputs.iter().find(|output| output.exists()) {
        return Err(Failure::usage(format!("--output: {} exists: remove it, or name another file", file.display())));
    }
    let remove = || outputs.iter().for_each(|output| drop(std::fs::remove_file(output)));
    // A key that cannot be written would be lost.
    let empty = |output: &PathBuf| files::write(output, b"", Readers::Owner);
    let made = outputs.iter().try_for_each(empty).and_then(|()| create());
    let (made, keys) = made.inspect_err(|_| remove())?;
    let mut write = outputs.iter().zip(&keys).map(|(output, key)| files::write(output, key.as_ref(), Readers::Owner));
    match write.find_map(Result::err) {
        Some(failure) => Err(Failure::new(format!("{}; the key is lost: {}", failure.message, undo(&made)))),
        None => Ok(made),
    }
}

/// Takes the key out of the response of a server that shows a key only once. Returns the value of the field `name` in
/// the response, and a list that contains only the key.
pub(crate) fn shown_once(mut created: Value, name: &str) -> Result<(String, Vec<Zeroizing<String>>), Failure> {
    match (created[name].take(), created["key"].take()) {
        (Value::String(name), Value::String(key)) => Ok((name, vec![Zeroizing::new(key)])),
        _ => Err(Failure::new("the server answered without a key: compare the URL")),
    }
}

/// Calls `each` with each entry of a list that the server sends in pages.
pub(crate) fn pages(admin: &Admin, list: &str, mut each: impl FnMut(&Value)) -> Result<(), Failure> {
    admin.pages(&format!("/v1/{list}"), |page| page[list].as_array().into_iter().flatten().for_each(&mut each))
}

/// Formats a time in seconds since 1970 as text (RFC 3339).
pub(crate) fn rfc3339_of(seconds: &Value) -> String {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds.as_u64().unwrap_or_default()));
    time.map_or_else(String::new, rfc3339)
}

/// Returns the time that is this number of seconds later than now, in seconds since 1970.
pub(crate) fn after(seconds: u64) -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_secs().saturating_add(seconds)
}

/// Returns the JSON object that reports a change, with the name of the event and the name of the changed object.
pub(crate) fn done(event: &str, name: &str) -> Value {
    json!({ "event": event, "name": name })
}
