//! The client of an ACME authority: the account of the server at the authority, and orders (RFC 8555, sections 7.3
//! and 7.4).

use super::answers::{Answers, Given};
use crate::ca::CertificateKey;
use crate::files::{self, Readers, read_secret};
use crate::https;
use crate::pem::authorities;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, Uri};
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, BodyWrapper, BytesResponse, ChallengeType, Error,
    ExternalAccountKey, HttpClient, Identifier, NewAccount, NewOrder, Order, OrderStatus, Problem, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tegmen_host::x509::signer::SoftwareKey;
use tokio_rustls::rustls::ClientConfig;
use zeroize::Zeroizing;

/// Longest body of a response in bytes.
const MAX_BODY: usize = 1 << 20;
/// Longest time for one request.
const PATIENCE: Duration = Duration::from_secs(30);
/// The policy by which the client reads the state of an order again and again, until the order is ready.
const READING: RetryPolicy =
    RetryPolicy::new().initial_delay(Duration::from_millis(500)).backoff(1.5).timeout(Duration::from_secs(90));

/// The settings for ACME.
#[derive(Clone)]
pub(in crate::serve) struct Settings {
    /// The URL of the directory (RFC 8555, section 7.1.1).
    pub(in crate::serve) directory: Uri,
    /// The directory for the account file and for the files of devices.
    pub(in crate::serve) dir: PathBuf,
    /// The URL at which the authority reaches the operator.
    pub(in crate::serve) contact: Option<String>,
    /// The file with certificates of authorities in PEM. One of these authorities must have issued the
    /// certificate of the ACME server.
    pub(in crate::serve) trust: PathBuf,
    /// The file with the external account binding; `None` if the authority needs none.
    pub(in crate::serve) binding: Option<PathBuf>,
}

impl Settings {
    /// Reads the external account binding: the identifier of the key, and the key in base64url.
    pub(in crate::serve) fn binding(&self) -> Result<Option<ExternalAccountKey>, String> {
        let Some(file) = &self.binding else { return Ok(None) };
        let text = read_secret(file)?;
        let mut words = text.split_ascii_whitespace();
        let form = || format!("{}: write the identifier of the key, a space, and the key in base64url", file.display());
        let (Some(id), Some(key), None) = (words.next(), words.next(), words.next()) else { return Err(form()) };
        let key = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(key.trim_end_matches('=')).map_err(|_| form())?);
        Ok(Some(ExternalAccountKey::new(id.to_owned(), &key)))
    }

    /// Returns the configuration of the HTTPS client.
    pub(in crate::serve) fn client(&self) -> Result<Arc<ClientConfig>, String> {
        let builder = https::trusting(authorities(&self.trust)?).map_err(|error| error.to_string())?;
        Ok(Arc::new(builder.with_no_client_auth()))
    }
}

/// Returns the host and the port of an HTTPS URL.
pub(in crate::serve) fn host_and_port(url: &Uri) -> Option<(&str, u16)> {
    let host = url.host().filter(|_| url.scheme_str() == Some("https"))?;
    Some((host.trim_matches(['[', ']']), url.port_u16().unwrap_or(https::PORT)))
}

/// Maximum number of times that the client repeats a request that the authority rejects with `badNonce`. In addition,
/// the ACME library itself repeats each of these requests up to two times.
const REPEATED: usize = 8;

/// Sends a request again while the authority rejects its nonce (RFC 8555, section 6.5). A macro, because the compiler
/// cannot prove that the future of a function with an asynchronous closure is `Send`.
macro_rules! with_fresh_nonce {
    ($request:expr) => {{
        let mut left = REPEATED;
        loop {
            match $request.await {
                Err(Error::Api(problem)) if left > 0 && is_bad_nonce(&problem) => left -= 1,
                result => break result,
            }
        }
    }};
}

fn is_bad_nonce(problem: &Problem) -> bool {
    problem.r#type.as_deref() == Some("urn:ietf:params:acme:error:badNonce")
}

/// Serves the response of each challenge of the type http-01 that the order still needs, and reports to the authority
/// that the response is ready.
async fn give_responses(order: &mut Order, answers: &Arc<Answers>, given: &mut Vec<Given>) -> Result<(), Error> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let challenge = authorization.challenge(ChallengeType::Http01);
        let mut challenge = challenge.ok_or(Error::Str("it offers no challenge http-01"))?;
        given.push(answers.give(&challenge.token, challenge.key_authorization().as_str()));
        challenge.set_ready().await?;
    }
    Ok(())
}

/// A client of the authority that these settings name.
pub(super) struct Authority(Settings);

impl Authority {
    pub(super) const fn new(settings: Settings) -> Self {
        Self(settings)
    }

    /// Opens the account at the authority. The first call creates the account, and writes it to a file before the first
    /// order.
    pub(super) async fn account(&self) -> Result<Account, String> {
        let Settings { directory, dir, contact, .. } = &self.0;
        let directory = directory.to_string();
        let file = dir.join("account.json");
        if file.exists() {
            let text = read_secret(&file)?;
            let wrong = |error| format!("{}: {error}: bring it back from a copy, or remove it", file.display());
            let known: serde_json::Value = serde_json::from_str(&text).map_err(wrong)?;
            if known["directory"] != directory.as_str() {
                return Err(format!(
                    "{} has the account of {}: name another directory with --delegation-acme-dir",
                    file.display(),
                    known["directory"]
                ));
            }
            let known: AccountCredentials = serde_json::from_str(&text).map_err(wrong)?;
            let builder = Account::builder_with_http(Box::new(Https(self.0.client()?)));
            return builder.from_credentials(known).await.map_err(|error| self.refused(&error));
        }
        let binding = self.0.binding()?;
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let client = self.0.client()?;
        let builder = || Account::builder_with_http(Box::new(Https(Arc::clone(&client))));
        let created = with_fresh_nonce!(builder().create(&new, directory.clone(), binding.as_ref()));
        let (account, credentials) = created.map_err(|error| self.refused(&error))?;
        let text = Zeroizing::new(serde_json::to_vec(&credentials).map_err(|error| error.to_string())?);
        files::write(&file, &text, Readers::Owner).map_err(|failure| failure.message)?;
        Ok(account)
    }

    /// Obtains a certificate of a device. Calls `key` for the private key after the authority has accepted the order, and
    /// before the client sends the certificate request. Returns the private key, and the certificate with the
    /// certificates of its authorities, in PEM.
    pub(super) async fn certificate(
        &self,
        account: &Account,
        device: &str,
        key: impl FnOnce() -> Result<Zeroizing<String>, String>,
        answers: &Arc<Answers>,
    ) -> Result<(Zeroizing<String>, String), String> {
        let names = [Identifier::Dns(device.to_owned())];
        let ordered = with_fresh_nonce!(account.new_order(&NewOrder::new(&names)));
        let mut order = ordered.map_err(|error| self.refused(&error))?;
        let mut given = Vec::new();
        let answered = with_fresh_nonce!(give_responses(&mut order, answers, &mut given));
        answered.map_err(|error| self.refused(&error))?;
        match with_fresh_nonce!(order.poll_ready(&READING)) {
            Ok(OrderStatus::Ready) => {}
            Ok(_) | Err(Error::Api(_)) => return Err(self.not_proven(&mut order, device).await),
            Err(error) => return Err(self.refused(&error)),
        }
        let key = key()?;
        let request = request(device, &key)?;
        let finalized = with_fresh_nonce!(order.finalize_csr(&request));
        finalized.map_err(|error| self.refused(&error))?;
        let issued = with_fresh_nonce!(order.poll_certificate(&READING));
        Ok((key, issued.map_err(|error| self.refused(&error))?))
    }

    /// Returns the reason why the authority does not accept that this server controls the name `device`.
    async fn not_proven(&self, order: &mut Order, device: &str) -> String {
        let mut why = "it gives no reason".to_owned();
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let read = with_fresh_nonce!(authorization.refresh());
            let Ok(state) = read else { continue };
            if let Some(error) = state.challenges.iter().find_map(|challenge| challenge.error.as_ref()) {
                why = error.detail.clone().unwrap_or_else(|| error.to_string());
            }
        }
        format!(
            "{} refuses the challenge: {why}: http://{device}/.well-known/acme-challenge/ has to lead to --delegation-acme-listen",
            self.0.directory
        )
    }

    fn refused(&self, error: &Error) -> String {
        let directory = &self.0.directory;
        match error {
            Error::Api(problem) => format!("{directory} refuses it: {problem}"),
            Error::Other(error) => {
                format!("{directory}: {error}: compare --delegation-acme, and --delegation-acme-trust")
            }
            error => format!("{directory}: {error}"),
        }
    }
}

/// Makes the certificate request for a device (RFC 2986), in DER.
fn request(device: &str, key: &str) -> Result<Vec<u8>, String> {
    let key = CertificateKey::from(SoftwareKey::from_pem(key.as_bytes())?).map_err(|failure| failure.message)?;
    let mut params = CertificateParams::new(vec![device.to_owned()]).map_err(|error| error.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(|error| error.to_string())?;
    Ok(request.der().to_vec())
}

/// An HTTPS client in the form that the library for ACME needs.
struct Https(Arc<ClientConfig>);

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let config = Arc::clone(&self.0);
        let late = |_| Error::Other(format!("it did not answer within {} s", PATIENCE.as_secs()).into());
        Box::pin(async move { tokio::time::timeout(PATIENCE, exchange(config, request)).await.map_err(late)? })
    }
}

/// Sends a request. Returns the response with its whole body.
async fn exchange(config: Arc<ClientConfig>, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
    let (mut parts, body) = request.into_parts();
    let url = std::mem::take(&mut parts.uri);
    let (host, port) = host_and_port(&url).ok_or_else(|| Error::Other(format!("{url} is no URL of HTTPS").into()))?;
    if let Some(authority) = url.authority() {
        parts
            .headers
            .insert(HOST, HeaderValue::from_str(authority.as_str()).map_err(|error| Error::Http(error.into()))?);
    }
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse()?;
    let sent = https::send(config, (host, port), Request::from_parts(parts, body)).await;
    let (_connection, response) = sent.map_err(|error| Error::Other(error.into()))?;
    let (parts, body) = response.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await.map_err(Error::Other)?;
    Ok(Response::from_parts(parts, Full::new(body.to_bytes())).into())
}
