//! The table of routes, and the checks that each request passes.

use crate::api::{Admitted, Api};
use crate::delegation;
use crate::description::Description;
use crate::events;
use crate::groups;
use crate::handlers;
use crate::keys::{Principal, Right};
use crate::login;
use crate::messages::Revoked;
use crate::operation::{Action, Operation, Route, Run, changes, creates, opens, reads, streams};
use crate::parts::Body;
use crate::problem::{Code, Problem};
use crate::scope::Scope;
use crate::tls::Peer;
use crate::users;
use axum::Router;
use axum::body::{Body as Incoming, Bytes, HttpBody as _};
use axum::extract::{RawPathParams, Request};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodFilter, on};
use futures_util::StreamExt as _;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tegmen_control::audit::{Kind, Record};
use tegmen_store::Store;
use zeroize::{Zeroize as _, Zeroizing};

/// Maximum number of bytes of a body. It is enough for the longest policy as JSON.
const MAX_BODY: usize = 2 << 20;
/// Maximum number of bytes of a body, if the sender has sent no credential.
const MAX_OPEN_BODY: usize = 16 << 10;
/// Maximum time for the arrival of a body.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Reads a body of at most `most` bytes; returns `None` if it is longer or incomplete. The bytes are wiped later,
/// because the body may contain a password or another secret.
async fn whole(body: Incoming, most: usize) -> Option<Bytes> {
    // With capacity for all of it the memory never moves, which would leave a copy.
    let expected = body.size_hint().upper().and_then(|upper| usize::try_from(upper).ok()).unwrap_or(most);
    let mut whole = Zeroizing::new(Vec::with_capacity(expected.min(most)));
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let part = part.ok().filter(|part| part.len() <= most.saturating_sub(whole.len()))?;
        whole.extend_from_slice(&part);
        if let Ok(mut part) = part.try_into_mut() {
            part.as_mut().zeroize();
        }
    }
    Some(Bytes::from_owner(whole))
}

/// Makes an operation that needs a scope. The first tuple is the route of the operation. The second tuple is the name
/// and the description of the operation in the OpenAPI document.
fn operation<S>(
    (method, path, scope): (Method, &'static str, Scope),
    (id, summary): (&'static str, &'static str),
    action: Action<S>,
    codes: &'static [Code],
) -> Operation<S> {
    let route = Route { method, path, scope: Some(scope) };
    Operation { route, id, summary, codes, is_for_bootstrap: false, action }
}

/// Returns all operations on devices.
fn devices<S: Store>() -> Vec<Operation<S>> {
    const DEVICES: &str = "/v1/devices";
    const DEVICE: &str = "/v1/devices/{name}";
    vec![
        operation(
            (Method::GET, DEVICES, Scope::DevicesRead),
            ("listDevices", "Lists devices in pages."),
            reads(handlers::list_devices),
            &[],
        ),
        operation(
            (Method::POST, DEVICES, Scope::DevicesWrite),
            ("addDevice", "Adds a device."),
            creates(handlers::new_device, handlers::add_device),
            &[Code::NameTaken, Code::DigestTaken, Code::InvalidDevice, Code::AuditUnavailable],
        ),
        operation(
            (Method::GET, DEVICE, Scope::DevicesRead),
            ("showDevice", "Shows a device, never its secret."),
            reads(handlers::show_device),
            &[Code::UnknownDevice],
        ),
        operation(
            (Method::PUT, DEVICE, Scope::DevicesWrite),
            ("replaceDevice", "Replaces the proof and the tags of a device."),
            changes(handlers::replacement, handlers::change_device),
            &[Code::UnknownDevice, Code::DigestTaken, Code::InvalidDevice, Code::AuditUnavailable],
        ),
        operation(
            (Method::PATCH, DEVICE, Scope::DevicesWrite),
            ("changeDevice", "Changes what is given; disabling a device revokes the keys of its sessions."),
            changes(handlers::changed, handlers::change_device),
            &[Code::UnknownDevice, Code::InvalidDevice, Code::AuditUnavailable, Code::RevocationListFull],
        ),
        operation(
            (Method::DELETE, DEVICE, Scope::DevicesWrite),
            ("removeDevice", "Removes a device, and revokes the keys of its sessions."),
            changes(Ok, handlers::remove_device),
            &[Code::UnknownDevice, Code::RevocationListFull],
        ),
    ]
}

/// Returns all operations on one-time keys, with which devices register themselves.
fn enrolments<S: Store>() -> Vec<Operation<S>> {
    const ENROLMENTS: &str = "/v1/enrolments";
    vec![
        operation(
            (Method::GET, ENROLMENTS, Scope::DevicesRead),
            ("listEnrolments", "Lists the devices that have a one-time key in pages."),
            reads(handlers::list_enrolments),
            &[],
        ),
        operation(
            (Method::POST, ENROLMENTS, Scope::DevicesWrite),
            (
                "createEnrolment",
                "Creates a one-time key, with which a device registers itself. The key replaces an earlier one for this name.",
            ),
            creates(handlers::new_enrolment, handlers::create_enrolment),
            &[Code::NameTaken, Code::InvalidDevice, Code::AuditUnavailable],
        ),
        operation(
            (Method::DELETE, "/v1/enrolments/{name}", Scope::DevicesWrite),
            ("deleteEnrolment", "Takes back the one-time key of a device."),
            changes(Ok, handlers::delete_enrolment),
            &[Code::NoOneTimeKey, Code::ChangedMeanwhile],
        ),
    ]
}

/// Returns all operations on the policy.
fn policy<S: Store>() -> Vec<Operation<S>> {
    const POLICY: &str = "/v1/policy";
    vec![
        operation(
            (Method::GET, POLICY, Scope::PolicyRead),
            ("showPolicy", "Shows the policy in force."),
            reads(handlers::show_policy),
            &[],
        ),
        operation(
            (Method::PUT, POLICY, Scope::PolicyWrite),
            ("applyPolicy", "Applies a policy, if it passes its tests."),
            changes(Ok, handlers::apply_policy),
            &[Code::InvalidPolicy, Code::PolicyFailsTests, Code::PolicyTooLong, Code::AuditUnavailable],
        ),
        operation(
            (Method::POST, "/v1/policy/test", Scope::PolicyRead),
            ("testPolicy", "Runs the tests of a policy."),
            reads(handlers::test_policy),
            &[Code::InvalidPolicy],
        ),
        operation(
            (Method::POST, "/v1/policy/diff", Scope::PolicyRead),
            ("diffPolicy", "Compares the policy in force with another one."),
            reads(handlers::diff_policy),
            &[Code::InvalidPolicy],
        ),
        operation(
            (Method::POST, "/v1/policy/explain", Scope::PolicyRead),
            ("explainPolicy", "Explains a decision of the policy in force."),
            reads(handlers::explain_policy),
            &[],
        ),
    ]
}

/// Returns all operations on revocations and keys.
fn revocations_and_keys<S: Store>() -> Vec<Operation<S>> {
    const REVOCATIONS: &str = "/v1/revocations";
    const KEYS: &str = "/v1/keys";
    let create_key = operation(
        (Method::POST, KEYS, Scope::KeysWrite),
        ("createKey", "Creates a key, with no more scopes and no later end than its creator has."),
        creates(handlers::new_key, handlers::create_key),
        &[Code::MoreThanOwnScope, Code::ChangedMeanwhile, Code::TooManyKeys, Code::NoRandom, Code::AuditUnavailable],
    );
    vec![
        operation(
            (Method::GET, REVOCATIONS, Scope::AuditRead),
            ("listRevocations", "Lists the hashes of the revoked tokens in pages."),
            reads(handlers::list_revocations),
            &[],
        ),
        operation(
            (Method::POST, REVOCATIONS, Scope::Revoke),
            ("revoke", "Revokes the key of a session that the server accepted, or a token by its hash (RFC 9770)."),
            creates(|Body(revoked): Body<Revoked>| revoked.check(), handlers::revoke),
            &[Code::UnknownSession, Code::UnknownDevice, Code::RevocationListFull],
        ),
        operation(
            (Method::GET, KEYS, Scope::KeysWrite),
            ("listKeys", "Lists the keys, without their secrets."),
            reads(handlers::list_keys),
            &[],
        ),
        Operation { is_for_bootstrap: true, ..create_key },
        operation(
            (Method::DELETE, "/v1/keys/{id}", Scope::KeysWrite),
            ("deleteKey", "Deletes a key."),
            changes(Ok, handlers::delete_key),
            &[Code::UnknownKey, Code::ChangedMeanwhile],
        ),
    ]
}

/// The problems with which the server can refuse to create a group.
const NOT_CREATED: &[Code] = &[
    Code::NoGroups,
    Code::UnknownDevice,
    Code::NameTaken,
    Code::DeviceDisabled,
    Code::AddressTaken,
    Code::GroupIdTaken,
    Code::InvalidGroup,
    Code::GroupFull,
    Code::NoSenderId,
    Code::NoGroupId,
    Code::AuditUnavailable,
];

/// Returns all operations on groups.
fn group_operations<S: Store>() -> Vec<Operation<S>> {
    const GROUPS: &str = "/v1/groups";
    const GROUP: &str = "/v1/groups/{name}";
    let (read, write) = (Scope::GroupsRead, Scope::GroupsWrite);
    vec![
        operation(
            (Method::GET, GROUPS, read),
            ("listGroups", "Lists groups in pages."),
            reads(groups::list),
            &[Code::NoGroups],
        ),
        operation(
            (Method::POST, GROUPS, write),
            ("createGroup", "Creates a group. If the request names members, admits them and returns a file for each."),
            creates(groups::new_group, groups::create),
            NOT_CREATED,
        ),
        operation(
            (Method::GET, GROUP, read),
            ("showGroup", "Shows a group with a page of its members, never its secrets."),
            reads(groups::show),
            &[Code::NoGroups, Code::UnknownGroup, Code::GroupRestored],
        ),
        operation(
            (Method::DELETE, GROUP, write),
            ("deleteGroup", "Deletes a group. One of the same name has other secrets."),
            changes(Ok, groups::delete),
            &[Code::NoGroups, Code::UnknownGroup],
        ),
        operation(
            (Method::POST, "/v1/groups/{name}/rekey", write),
            ("rekeyGroup", "Begins the next epoch with the same members."),
            creates(Ok, groups::rekey),
            &[Code::NoGroups, Code::UnknownGroup, Code::GroupRestored, Code::NoEpochLeft, Code::ChangedMeanwhile],
        ),
        operation(
            (Method::POST, "/v1/groups/{name}/members", write),
            ("addGroupMember", "Admits a member that its operator provisions with the file in the answer."),
            creates(groups::new_member, groups::add_member),
            &[
                Code::NoGroups,
                Code::UnknownGroup,
                Code::UnknownDevice,
                Code::GroupRestored,
                Code::NameTaken,
                Code::DeviceDisabled,
                Code::AddressTaken,
                Code::InvalidGroup,
                Code::GroupFull,
                Code::NoSenderId,
                Code::NoEpochLeft,
                Code::ChangedMeanwhile,
                Code::AuditUnavailable,
            ],
        ),
        operation(
            (Method::DELETE, "/v1/groups/{name}/members/{member}", write),
            ("evictGroupMember", "Evicts a member: it opens nothing of the next epoch."),
            changes(Ok, groups::evict_member),
            &[
                Code::NoGroups,
                Code::UnknownGroup,
                Code::UnknownMember,
                Code::GroupRestored,
                Code::NoEpochLeft,
                Code::ChangedMeanwhile,
            ],
        ),
    ]
}

/// Returns all operations on delegated devices.
fn delegated_devices<S: Store>() -> Vec<Operation<S>> {
    const DEVICES: &str = "/v1/delegation/devices";
    const DEVICE: &str = "/v1/delegation/devices/{name}";
    let (read, write) = (Scope::DelegationRead, Scope::DelegationWrite);
    vec![
        operation(
            (Method::GET, DEVICES, read),
            ("listDelegatedDevices", "Lists delegated devices in pages."),
            reads(delegation::list),
            &[Code::NoDelegation],
        ),
        operation(
            (Method::POST, DEVICES, write),
            ("imprintDevice", "Adds a delegated device, with its device key, which is shown once."),
            creates(delegation::new_device, delegation::imprint),
            &[Code::NoDelegation, Code::NameTaken, Code::InvalidDevice, Code::AuditUnavailable],
        ),
        operation(
            (Method::GET, DEVICE, read),
            ("showDelegatedDevice", "Shows a delegated device, never its keys."),
            reads(delegation::show),
            &[Code::NoDelegation, Code::UnknownDevice],
        ),
        operation(
            (Method::PUT, DEVICE, write),
            (
                "configureDelegatedDevice",
                "Replaces the configuration of a delegated device. Other scopes end its connections with the next epoch.",
            ),
            changes(delegation::new_config, delegation::configure),
            &[Code::NoDelegation, Code::UnknownDevice, Code::InvalidDevice, Code::AuditUnavailable],
        ),
        operation(
            (Method::PATCH, DEVICE, write),
            ("disableDelegatedDevice", "Disables a delegated device, or enables it again."),
            changes(Ok, delegation::set_disabled),
            &[Code::NoDelegation, Code::UnknownDevice, Code::ChangedMeanwhile, Code::AuditUnavailable],
        ),
        operation(
            (Method::POST, "/v1/delegation/devices/{name}/imprint", write),
            ("imprintDeviceAgain", "Gives a delegated device another device key. All its connections end."),
            creates(Ok, delegation::imprint_again),
            &[Code::NoDelegation, Code::UnknownDevice, Code::ChangedMeanwhile, Code::AuditUnavailable],
        ),
    ]
}

/// Returns all operations that open sessions in the name of delegated devices.
fn delegated_sessions<S: Store>() -> Vec<Operation<S>> {
    const REISSUE: &str = "/v1/delegation/devices/{name}/reissue";
    let (read, write) = (Scope::DelegationRead, Scope::DelegationWrite);
    vec![
        operation(
            (Method::GET, REISSUE, read),
            ("previewReissue", "Shows how the connections of the epoch before continue in the present one."),
            reads(delegation::preview_reissue),
            &[Code::NoDelegation, Code::UnknownDevice],
        ),
        operation(
            (Method::POST, REISSUE, write),
            (
                "reissueConnections",
                "Gives the sessions of a delegated device with other devices of the server again in the present epoch.",
            ),
            creates(Ok, delegation::reissue),
            &[Code::NoDelegation, Code::UnknownDevice, Code::AuditUnavailable],
        ),
        operation(
            (Method::POST, "/v1/delegation/introductions", write),
            ("introduceDevices", "Lets a delegated device open a session with another one."),
            creates(Ok, delegation::introduce),
            &[Code::NoDelegation, Code::UnknownDevice, Code::NotGiven],
        ),
        operation(
            (Method::POST, "/v1/delegation/sessions", write),
            (
                "openDelegatedSession",
                "Opens a session with a server elsewhere, which a delegated device then resumes there.",
            ),
            creates(Ok, delegation::open_session),
            &[Code::NoDelegation, Code::UnknownDevice, Code::NotGiven],
        ),
    ]
}

/// Returns all operations on the connections and the epochs of delegated devices.
fn delegated_connections<S: Store>() -> Vec<Operation<S>> {
    const RESET: &str = "/v1/delegation/devices/{name}/reset";
    let (read, write) = (Scope::DelegationRead, Scope::DelegationWrite);
    vec![
        operation(
            (Method::GET, "/v1/delegation/devices/{name}/connections", read),
            ("listDelegatedConnections", "Lists the connections of a delegated device in pages."),
            reads(delegation::connections),
            &[Code::NoDelegation, Code::UnknownDevice],
        ),
        operation(
            (Method::GET, "/v1/delegation/devices/{name}/unaccounted", read),
            (
                "listUnaccountedConnections",
                "Lists the connections that a server which was killed may have given to peers.",
            ),
            reads(delegation::unaccounted),
            &[Code::NoDelegation, Code::UnknownDevice],
        ),
        operation(
            (Method::DELETE, "/v1/delegation/devices/{name}/connections/{id}", write),
            ("revokeDelegatedConnection", "Revokes a connection of a delegated device."),
            changes(delegation::named, delegation::revoke),
            &[Code::NoDelegation, Code::UnknownDevice, Code::UnknownConnection, Code::ChangedMeanwhile],
        ),
        operation(
            (Method::GET, RESET, read),
            ("previewEpoch", "Shows what the next epoch of a delegated device ends."),
            reads(delegation::preview),
            &[Code::NoDelegation, Code::UnknownDevice],
        ),
        operation(
            (Method::POST, RESET, write),
            ("beginEpoch", "Asks for the next epoch of a delegated device."),
            creates(Ok, delegation::reset),
            &[Code::NoDelegation, Code::UnknownDevice, Code::ChangedMeanwhile],
        ),
        operation(
            (Method::POST, "/v1/delegation/server-compromised", write),
            (
                "serverCompromised",
                "Gives devices other device keys because somebody else had access to the server, and lists what was reachable.",
            ),
            creates(delegation::compromised, delegation::server_compromised),
            &[
                Code::NoDelegation,
                Code::UnknownDevice,
                Code::InvalidDevice,
                Code::ChangedMeanwhile,
                Code::AuditUnavailable,
            ],
        ),
    ]
}

/// Returns all operations on users.
fn user_operations<S: Store>() -> Vec<Operation<S>> {
    const USERS: &str = "/v1/users";
    const USER: &str = "/v1/users/{name}";
    vec![
        operation(
            (Method::GET, USERS, Scope::UsersRead),
            ("listUsers", "Lists users in pages, never with their passwords."),
            reads(users::list),
            &[],
        ),
        operation(
            (Method::POST, USERS, Scope::UsersWrite),
            ("addUser", "Adds a user, who can log in with a password."),
            changes(users::wanted, users::add),
            &[
                Code::NameTaken,
                Code::InvalidUser,
                Code::ChangedMeanwhile,
                Code::TooManyUsers,
                Code::TooManyLogins,
                Code::NoRandom,
                Code::AuditUnavailable,
            ],
        ),
        operation(
            (Method::PATCH, USER, Scope::UsersWrite),
            (
                "changeUser",
                "Changes what is given. Another password, and disabling the user, end what the user logged in with.",
            ),
            changes(users::changed, users::change),
            &[
                Code::UnknownUser,
                Code::InvalidUser,
                Code::ChangedMeanwhile,
                Code::TooManyLogins,
                Code::NoRandom,
                Code::AuditUnavailable,
            ],
        ),
        operation(
            (Method::DELETE, USER, Scope::UsersWrite),
            ("removeUser", "Removes a user, and ends what the user logged in with."),
            changes(Ok, users::remove),
            &[Code::UnknownUser, Code::ChangedMeanwhile, Code::AuditUnavailable],
        ),
        Operation {
            route: Route { method: Method::POST, path: "/v1/login", scope: None },
            id: "logIn",
            summary: "Logs a user in: gives a client certificate with the common name of the user.",
            codes: &[
                Code::Malformed,
                Code::LoginRefused,
                Code::TooSlow,
                Code::NameTaken,
                Code::TooLong,
                Code::TooManyFailures,
                Code::Internal,
                Code::NoLogins,
                Code::StoreUnavailable,
                Code::TooManyLogins,
                Code::AuditUnavailable,
                Code::TooManyCertificates,
            ],
            is_for_bootstrap: false,
            action: opens(login::check, login::log_in),
        },
    ]
}

/// Returns the operation that streams events.
fn events<S: Store>() -> Operation<S> {
    operation(
        (Method::GET, "/v1/events", Scope::AuditRead),
        ("followEvents", "Follows changes of devices, policy, revocations, sessions, keys and groups."),
        streams(events::follow),
        &[Code::HistoryGone, Code::TooManyStreams],
    )
}

/// Returns the operation that sends the OpenAPI document to any client. The operation sends the committed document. A
/// test compares this document with the document that [`Api::document`] makes.
fn document<S>() -> Operation<S> {
    fn describe(about: &mut Description<'_>) {
        about.gives::<Value>(StatusCode::OK, "An OpenAPI document.");
    }
    fn answer() -> Response {
        ([(CONTENT_TYPE, "application/json")], include_str!("../openapi.json")).into_response()
    }
    Operation {
        route: Route { method: Method::GET, path: "/v1/openapi.json", scope: None },
        id: "showDocument",
        summary: "Shows this document.",
        codes: &[],
        is_for_bootstrap: false,
        action: Action { describe, run: Run::Anyone(answer) },
    }
}

impl<S: Store> Api<S> {
    /// Returns all operations of the HTTPS interface. The router and the OpenAPI document are made from this list.
    pub(crate) fn operations() -> Vec<Operation<S>> {
        let mut operations = devices();
        operations.extend(enrolments());
        operations.extend(policy());
        operations.extend(revocations_and_keys());
        operations.extend(group_operations());
        operations.extend(delegated_devices());
        operations.extend(delegated_sessions());
        operations.extend(delegated_connections());
        operations.extend(user_operations());
        operations.extend([events(), document()]);
        operations
    }

    /// Returns all routes.
    pub fn routes() -> Vec<Route> {
        Self::operations().into_iter().map(|operation| operation.route).collect()
    }
}

impl<S: Store> Api<S> {
    /// Returns the router with all operations.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let mut router = Router::new();
        for operation in Self::operations() {
            let filter = MethodFilter::try_from(operation.route.method.clone()).unwrap_or(MethodFilter::TRACE);
            let path = operation.route.path;
            let (api, operation) = (Arc::clone(&self), Arc::new(operation));
            let answer = move |parameters: Result<RawPathParams, _>, request: Request| async move {
                let parameters = parameters.map_err(|_: axum::extract::rejection::RawPathParamsRejection| {
                    Problem::malformed("the path is not UTF-8")
                });
                match parameters {
                    Ok(parameters) => {
                        let mut parameters = parameters.iter().map(|(_, value)| value.to_owned());
                        let mut next = || parameters.next().unwrap_or_default();
                        let names = (next(), next());
                        // In a task of its own: a change is made to its end, with its audit record, though the client is gone.
                        let answer = async move { api.answer(&operation, names, request).await };
                        let answered = tokio::spawn(answer).await.unwrap_or_else(|_| {
                            Err(Problem::new(Code::Internal, "the server has a fault: see its log, and report it"))
                        });
                        answered.unwrap_or_else(IntoResponse::into_response)
                    }
                    Err(problem) => problem.into_response(),
                }
            };
            router = router.route(path, on(filter, answer));
        }
        let missing = || async { Problem::new(Code::NoRoute, "there is no such path: see docs/admin.md") };
        let other = || async { Problem::new(Code::NoMethod, "the path has other methods: see docs/admin.md") };
        router.fallback(missing).method_not_allowed_fallback(other)
    }

    async fn answer(
        self: Arc<Self>,
        operation: &Operation<S>,
        (name, member): (String, String),
        request: Request,
    ) -> Result<Response, Problem> {
        let Route { method, path, scope } = &operation.route;
        let (parts, body) = request.into_parts();
        let (run, by, most) = match &operation.action.run {
            Run::Anyone(answer) => return Ok(answer()),
            Run::Open(run) => (run, Principal::nobody(), MAX_OPEN_BODY),
            Run::Admitted(run) => {
                let by = self.authenticate(&parts).await?;
                let is_first_key = matches!(by.right, Right::FirstKey(_)) && operation.is_for_bootstrap;
                if !scope.is_some_and(|scope| by.has(scope)) && !is_first_key {
                    let scope = scope.map_or("", Scope::name);
                    let detail =
                        format!("{method} {path} needs the scope {scope}: use a key that has it, or create one");
                    let message = format!("{method} {path}: refused, because the scope {scope} is missing");
                    self.note_refusal(by.name, Code::ScopeMissing, message);
                    return Err(Problem::new(Code::ScopeMissing, detail));
                }
                (run, by, MAX_BODY)
            }
        };
        let too_slow = |_| Problem::new(Code::TooSlow, "a body comes within 30 seconds");
        let too_long = || Problem::new(Code::TooLong, format!("a body has at most {most} bytes, and comes whole"));
        let body = tokio::time::timeout(BODY_TIME, whole(body, most)).await.map_err(too_slow)?.ok_or_else(too_long)?;
        let query = parts.uri.query().unwrap_or_default().to_owned();
        let peer = parts.extensions.get().cloned();
        run(self, Admitted { path, name, member, query, headers: parts.headers, body, by, peer }).await
    }

    /// Authenticates the sender: by its API key, or by its client certificate if it sends no key.
    async fn authenticate(&self, parts: &Parts) -> Result<Principal, Problem> {
        let peer = parts.extensions.get::<Peer>();
        let address = Peer::address_of(peer);
        let now = tegmen_store::clock::now();
        let unauthorized = |detail| Problem::new(Code::Unauthorized, detail);
        let Some(header) = parts.headers.get(AUTHORIZATION) else {
            return peer.and_then(Peer::certified).ok_or_else(|| {
                unauthorized("send an API key as Authorization: Bearer KEY, or connect with a client certificate")
            });
        };
        if self.failures.is_refused(&address, now) {
            let detail = "this address sent too many wrong keys: try again in a minute";
            return Err(Problem::new(Code::TooManyFailures, detail));
        }
        let token = header.to_str().ok().and_then(|header| header.split_once(' '));
        let token = token.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer")).map_or("", |(_, token)| token);
        let outcome = self.keys.authenticate(token.trim()).await;
        if outcome.as_ref().is_err_and(|problem| problem.code == Code::Unauthorized) {
            self.failures.add(address, now);
            self.note_refusal(String::new(), Code::Unauthorized, format!("a wrong API key from {address}"));
        }
        outcome
    }

    fn note_refusal(&self, who: String, code: Code, message: String) {
        self.service.audit().note(Record { kind: Kind::Refusal, who, code: code.name(), message });
    }
}
