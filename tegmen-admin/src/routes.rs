//! The table of routes, and the steps that each request passes.

use crate::api::{Admitted, Api, Operation};
use crate::handlers::Reply;
use crate::keys::{Principal, Right};
use crate::problem::Problem;
use crate::replay::{self, Kept};
use crate::scope::Scope;
use axum::Router;
use axum::body::to_bytes;
use axum::extract::{RawPathParams, Request};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, ETAG};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;
use tegmen_store::{Revision, Store};

/// Most bytes of a body: of the longest policy, with what JSON adds.
const MAX_BODY: usize = 2 << 20;
/// Time in which a body comes.
const BODY_TIME: Duration = Duration::from_secs(30);

/// A route with its method and the scope that it needs.
#[derive(Debug)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with names of its parameters in braces.
    pub path: &'static str,
    /// The scope that a request needs.
    pub scope: Scope,
    pub(crate) operation: Operation,
}

const fn route(method: Method, path: &'static str, scope: Scope, operation: Operation) -> Route {
    Route { method, path, scope, operation }
}

/// All routes. The router is made from this table, so no route is without a scope.
pub static ROUTES: [Route; 16] = [
    route(Method::GET, "/v1/devices", Scope::DevicesRead, Operation::ListDevices),
    route(Method::POST, "/v1/devices", Scope::DevicesWrite, Operation::AddDevice),
    route(Method::GET, "/v1/devices/{name}", Scope::DevicesRead, Operation::ShowDevice),
    route(Method::PUT, "/v1/devices/{name}", Scope::DevicesWrite, Operation::ReplaceDevice),
    route(Method::PATCH, "/v1/devices/{name}", Scope::DevicesWrite, Operation::ChangeDevice),
    route(Method::DELETE, "/v1/devices/{name}", Scope::DevicesWrite, Operation::RemoveDevice),
    route(Method::GET, "/v1/policy", Scope::PolicyRead, Operation::ShowPolicy),
    route(Method::PUT, "/v1/policy", Scope::PolicyWrite, Operation::ApplyPolicy),
    route(Method::POST, "/v1/policy/test", Scope::PolicyRead, Operation::TestPolicy),
    route(Method::POST, "/v1/policy/diff", Scope::PolicyRead, Operation::DiffPolicy),
    route(Method::POST, "/v1/policy/explain", Scope::PolicyRead, Operation::ExplainPolicy),
    route(Method::GET, "/v1/revocations", Scope::AuditRead, Operation::ListRevocations),
    route(Method::POST, "/v1/revocations", Scope::Revoke, Operation::Revoke),
    route(Method::GET, "/v1/keys", Scope::KeysWrite, Operation::ListKeys),
    route(Method::POST, "/v1/keys", Scope::KeysWrite, Operation::CreateKey),
    route(Method::DELETE, "/v1/keys/{id}", Scope::KeysWrite, Operation::DeleteKey),
];

/// The sender of the requests of one connection.
#[derive(Clone)]
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The principal that its client certificate proves.
    pub(crate) certified: Option<Arc<Principal>>,
}

impl<S: Store> Api<S> {
    /// The router with all of [`ROUTES`].
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let mut router = Router::new();
        for route in &ROUTES {
            let filter = MethodFilter::try_from(route.method.clone()).unwrap_or(MethodFilter::TRACE);
            let api = Arc::clone(&self);
            let answer = move |parameters: Result<RawPathParams, _>, request: Request| async move {
                let parameters = parameters.map_err(|_: axum::extract::rejection::RawPathParamsRejection| {
                    Problem::malformed("the path is not UTF-8")
                });
                match parameters {
                    Ok(parameters) => {
                        let name = parameters.iter().next().map_or("", |(_, value)| value).to_owned();
                        api.answer(route, name, request).await.unwrap_or_else(IntoResponse::into_response)
                    }
                    Err(problem) => problem.into_response(),
                }
            };
            router = router.route(route.path, on(filter, answer));
        }
        let missing =
            || async { Problem::new(StatusCode::NOT_FOUND, "no-route", "there is no such path: see docs/admin.md") };
        let other = || async {
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "no-method", "the path has other methods: see docs/admin.md")
        };
        router.fallback(missing).method_not_allowed_fallback(other)
    }

    async fn answer(&self, route: &Route, name: String, request: Request) -> Result<Response, Problem> {
        let (parts, body) = request.into_parts();
        let by = self.authenticate(&parts).await?;
        let is_first_key = matches!(by.right, Right::FirstKey(_)) && route.operation == Operation::CreateKey;
        if !by.has(route.scope) && !is_first_key {
            let detail = format!("{} {} needs the scope {}", route.method, route.path, route.scope.name());
            return Err(Problem::new(StatusCode::FORBIDDEN, "scope-missing", detail));
        }
        let too_slow = |_| Problem::new(StatusCode::REQUEST_TIMEOUT, "too-slow", "a body comes within 30 seconds");
        let too_long = |_| {
            let detail = format!("a body has at most {MAX_BODY} bytes, and comes whole");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-long", detail)
        };
        let body =
            tokio::time::timeout(BODY_TIME, to_bytes(body, MAX_BODY)).await.map_err(too_slow)?.map_err(too_long)?;
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let admitted = Admitted { name, query, over: if_match(&parts.headers), body, by };
        let write = match self.read_request(route.operation, &admitted).await? {
            Ok(reply) => return Ok(reply.into_response()),
            Err(write) => write,
        };
        let key = parts.headers.get("idempotency-key").filter(|_| route.method == Method::POST);
        let Some(key) = key else { return Ok(self.make(write, &admitted.by).await?.into_response()) };
        let key = key.to_str().map_err(|_| Problem::malformed("an Idempotency-Key has visible ASCII characters"))?;
        let content = [route.path.as_bytes(), &[0], &admitted.body[..]];
        match replay::look_up(&self.store, &admitted.by.name, key, &content).await? {
            Err(kept) => Ok(Reply::of(kept).into_response()),
            Ok(first) => {
                let outcome = self.make(write, &admitted.by).await;
                let kept = match &outcome {
                    Ok(reply) => reply.kept(),
                    Err(problem) => Kept { status: problem.status.as_u16(), revision: None, body: problem.body() },
                };
                first.keep(&self.store, kept).await;
                Ok(outcome?.into_response())
            }
        }
    }

    /// The sender, by its API key, or by its client certificate if it sends no key.
    async fn authenticate(&self, parts: &Parts) -> Result<Principal, Problem> {
        let peer = parts.extensions.get::<Peer>();
        let address = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.address);
        let now = crate::now();
        let unauthorized = |detail| Problem::new(StatusCode::UNAUTHORIZED, "unauthorized", detail);
        let Some(header) = parts.headers.get(AUTHORIZATION) else {
            let certified = peer.and_then(|peer| peer.certified.as_deref());
            return certified.cloned().ok_or_else(|| {
                unauthorized("send an API key as Authorization: Bearer KEY, or connect with a client certificate")
            });
        };
        if self.failures.is_refused(address, now) {
            let detail = "this address sent too many wrong keys: try again in a minute";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "too-many-failures", detail));
        }
        let token = header.to_str().ok().and_then(|header| header.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map_or("", |(_, token)| token);
        let outcome = self.keys.authenticate(token.trim()).await;
        if outcome.as_ref().is_err_and(|problem| problem.status == StatusCode::UNAUTHORIZED) {
            self.failures.add(address, now);
        }
        outcome
    }
}

/// Reads `If-Match`: `*`, or one entity tag, which is a revision in quotes.
fn if_match(headers: &HeaderMap) -> Result<Option<Revision>, Problem> {
    let missing = "send If-Match with the ETag of the last GET, or * for any";
    let header = headers
        .get("if-match")
        .ok_or_else(|| Problem::new(StatusCode::PRECONDITION_REQUIRED, "if-match-missing", missing))?;
    let text = header.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let revision = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).and_then(|text| text.parse().ok());
    revision.map(|revision| Some(Revision(revision))).ok_or_else(|| Problem::malformed(missing))
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let kind = if self.status.is_success() { "application/json" } else { "application/problem+json" };
        let body = self.body.as_ref().map_or_else(String::new, ToString::to_string);
        let mut response = (self.status, [(CONTENT_TYPE, kind), (CACHE_CONTROL, "no-store")], body).into_response();
        if let Some(Ok(tag)) = self.revision.map(|revision| format!("\"{}\"", revision.0).try_into()) {
            response.headers_mut().insert(ETAG, tag);
        }
        response
    }
}
