//! Checks the rights of a subscriber at publishers with certificates, for each request.

use super::{NotGranted, ask};
use crate::access::ace::{Aif, Hint, IntrospectionRequest, Right, Scope};
use crate::access::introspection::HINT_THUMBPRINT;
use std::fmt;
use std::sync::Arc;
use tegmen::coap::{Code, Policy as _, Request};
use tegmen::dtls::CertificateType;
use tegmen_host::client::Session;
use tegmen_host::credentials::{Credentials, FilePolicy};
use tegmen_host::digest::Digest;
use tegmen_host::request_uri::Path;
use tegmen_host::server::Later;
use tokio::runtime::Handle;

/// Decides on the requests that the server of a subscriber receives: see
/// [`ServerBuilder::policy_later`](tegmen_host::server::ServerBuilder::policy_later).
///
/// First, the credentials of the server must give the sender the right to make the request. A sender with a certificate
/// is a publisher. It delivers data with PUT, POST, PATCH or iPATCH. Such a request gives the subscriber the data of a
/// path. A GET of the same path at the publisher gives the same data. So the access control server must also allow the
/// subscriber to GET this path at this publisher. The subscriber asks the access control server about each request. So
/// a change of a policy, a publisher or a subscriber is effective for the next request. A publisher with a certificate
/// may send no request with another method.
///
/// The publisher receives 4.03 if the access control server refuses, and 5.03 if the access control server makes no
/// decision.
pub struct Deliveries {
    server: Session,
    runtime: Handle,
    local: FilePolicy,
    on_refusal: Arc<dyn Fn(RefusedDelivery) + Send + Sync>,
}

/// A request of a publisher that was refused.
#[derive(Debug)]
pub struct RefusedDelivery {
    /// The name that the publisher proved.
    pub publisher: String,
    /// The path of the request.
    pub path: String,
    /// The reason of the refusal.
    pub why: NotGranted,
}

impl fmt::Display for RefusedDelivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { publisher, path, why } = self;
        write!(f, "{} of {} is refused: {why}", path.escape_debug(), publisher.escape_debug())
    }
}

impl Deliveries {
    /// Makes the value that decides on the requests that the subscriber's own CoAP server receives. `server` is a
    /// session with the access control server. In this session the subscriber has proved its identity. `runtime` is the
    /// handle of a Tokio runtime, which must run during the requests. `credentials` are the credentials of the
    /// subscriber's CoAP server. `on_refusal` receives each request that the access control server does not allow, and
    /// must return quickly.
    pub fn new(
        server: Session,
        runtime: Handle,
        credentials: Credentials,
        on_refusal: impl Fn(RefusedDelivery) + Send + Sync + 'static,
    ) -> Self {
        let local = FilePolicy { credentials, plain_allowed: false };
        Self { server, runtime, local, on_refusal: Arc::new(on_refusal) }
    }

    /// Decides on a request. Returns the decision if it is possible at once. Otherwise returns `None`, and gives the
    /// decision later to the [`Authorization`](tegmen_host::server::Authorization) from `later`.
    pub fn decide(&self, request: &Request<'_>, later: &Later<'_>) -> Option<bool> {
        let principal = request.identity.principal;
        if self.local.decide(request) != Some(true) {
            return Some(false);
        }
        let Some((kind, digest)) = self.local.credentials.certified(principal) else { return Some(true) };
        let delivers = matches!(request.message.code(), Code::PUT | Code::POST | Code::PATCH | Code::IPATCH);
        let (CertificateType::X509, true, Ok(path)) = (kind, delivers, Path::of(&request.message)) else {
            return Some(false);
        };
        let publisher = self.local.credentials.name_of(principal).unwrap_or_default();
        let (server, path, on_refusal) = (self.server.clone(), path.to_string(), Arc::clone(&self.on_refusal));
        let authorization = later.authorization();
        self.runtime.spawn(async move {
            let Err(why) = may_read(&server, &digest, &path).await else { return authorization.allow() };
            match why {
                NotGranted::Refused | NotGranted::NotADevice => authorization.deny(),
                // Dropping it answers 5.03.
                NotGranted::Later { .. }
                | NotGranted::Unreachable
                | NotGranted::Full
                | NotGranted::Unexpected { .. }
                | NotGranted::NoResponse(_) => drop(authorization),
            }
            on_refusal(RefusedDelivery { publisher, path, why });
        });
        None
    }
}

/// Asks the access control server if the subscriber may GET a path at the publisher whose certificate has this SHA-256.
/// Returns `Ok` if it may. `server` is a session with the access control server in which the subscriber proved its
/// identity.
///
/// # Errors
/// [`NotGranted`]: the server refuses, or makes no decision.
pub async fn may_read(server: &Session, certificate: &Digest, path: &str) -> Result<(), NotGranted> {
    let scope = Scope::of(&Aif(vec![Right { path: path.to_owned(), permissions: GET }]));
    let request = IntrospectionRequest {
        scope: Some(scope.clone()),
        token: certificate.to_vec(),
        hint: Some(Hint::Name(HINT_THUMBPRINT.to_owned())),
    };
    let claims = ask(server, &request).await?;
    // RFC 9200 has no scope in this request: another server may ignore it, and answer for another scope.
    if claims.scope == Some(scope) { Ok(()) } else { Err(NotGranted::Unexpected { code: Code::CREATED }) }
}

/// The bit for GET in the permissions of a scope (RFC 9237, section 3).
const GET: u64 = 1;
