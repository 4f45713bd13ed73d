//! Problem documents (RFC 9457).

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use tegmen_control::delegation::DelegationError;
use tegmen_control::group::{GroupError, Refused};
use tegmen_control::service::ServiceError;
use tegmen_control::state::StateError;
use tegmen_store::StoreError;

/// The cause of a refusal. Its name is a word for programs, which stays the same in later versions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Code {
    /// The request breaks a rule of its form.
    Malformed,
    /// The request has no valid credential.
    Unauthorized,
    /// The credential does not have the scope of the route.
    ScopeMissing,
    /// The key to be created has more rights than its creator.
    MoreThanOwnScope,
    /// The interface has no operation at the path of the request.
    NoRoute,
    /// There is no device of this name.
    UnknownDevice,
    /// There is no one-time key for a device of this name.
    NoOneTimeKey,
    /// No session with this identity was accepted.
    UnknownSession,
    /// There is no key of this ID.
    UnknownKey,
    /// There is no group of this name.
    UnknownGroup,
    /// The group has no member of this name.
    UnknownMember,
    /// There is no user of this name.
    UnknownUser,
    /// The delegated device has no connection with this identifier now.
    UnknownConnection,
    /// No enabled user has this name and this password.
    LoginRefused,
    /// The path does not support this method.
    NoMethod,
    /// The body did not arrive in time.
    TooSlow,
    /// A device, group, member or user of this name exists already.
    NameTaken,
    /// Another device has this certificate or key.
    DigestTaken,
    /// The device is disabled.
    DeviceDisabled,
    /// Another member of the group has this address.
    AddressTaken,
    /// Another group at the same port has this GroupID.
    GroupIdTaken,
    /// The store of the group was restored from a backup.
    GroupRestored,
    /// A request with this `Idempotency-Key` was received before. It has no answer yet, or the server failed before it
    /// stored the answer.
    IdempotencyKeyInUse,
    /// The store no longer has the changes after `Last-Event-ID`.
    HistoryGone,
    /// The object has changed since the revision that the sender names.
    ChangedMeanwhile,
    /// The body is too long.
    TooLong,
    /// The policy is too long.
    PolicyTooLong,
    /// The device in the request is not valid.
    InvalidDevice,
    /// The group or the member in the request is not valid.
    InvalidGroup,
    /// The user in the request is not valid.
    InvalidUser,
    /// The policy has a mistake.
    InvalidPolicy,
    /// The policy fails its own tests.
    PolicyFailsTests,
    /// A different request used this `Idempotency-Key` before.
    IdempotencyKeyReused,
    /// The peer gets no session with the delegated device.
    NotGiven,
    /// The request needs `If-Match`.
    IfMatchMissing,
    /// The address sent too many wrong keys or passwords, or too many wrong passwords for the user arrived.
    TooManyFailures,
    /// An internal error of the server.
    Internal,
    /// The server controls no groups.
    NoGroups,
    /// The server delegates no sessions.
    NoDelegation,
    /// The server logs no users in.
    NoLogins,
    /// The store does not answer.
    StoreUnavailable,
    /// Too many clients follow the events.
    TooManyStreams,
    /// Too many passwords are being compared at the same time.
    TooManyLogins,
    /// The audit log cannot be written.
    AuditUnavailable,
    /// The system has no randomness.
    NoRandom,
    /// The revocation list is full.
    RevocationListFull,
    /// There are too many keys.
    TooManyKeys,
    /// There are too many users.
    TooManyUsers,
    /// The user has too many valid certificates.
    TooManyCertificates,
    /// The group already has the maximum number of members.
    GroupFull,
    /// All SenderIDs of the group are in use.
    NoSenderId,
    /// The group has no epoch left for this change.
    NoEpochLeft,
    /// All GroupIDs of the port are in use.
    NoGroupId,
}

impl Code {
    const fn entry(self) -> (StatusCode, &'static str) {
        match self {
            Self::Malformed => (StatusCode::BAD_REQUEST, "malformed"),
            Self::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::ScopeMissing => (StatusCode::FORBIDDEN, "scope-missing"),
            Self::LoginRefused => (StatusCode::FORBIDDEN, "login-refused"),
            Self::MoreThanOwnScope => (StatusCode::FORBIDDEN, "more-than-own-scope"),
            Self::NoRoute => (StatusCode::NOT_FOUND, "no-route"),
            Self::UnknownDevice => (StatusCode::NOT_FOUND, "unknown-device"),
            Self::NoOneTimeKey => (StatusCode::NOT_FOUND, "no-one-time-key"),
            Self::UnknownSession => (StatusCode::NOT_FOUND, "unknown-session"),
            Self::UnknownKey => (StatusCode::NOT_FOUND, "unknown-key"),
            Self::UnknownGroup => (StatusCode::NOT_FOUND, "unknown-group"),
            Self::UnknownMember => (StatusCode::NOT_FOUND, "unknown-member"),
            Self::UnknownUser => (StatusCode::NOT_FOUND, "unknown-user"),
            Self::UnknownConnection => (StatusCode::NOT_FOUND, "unknown-connection"),
            Self::NoMethod => (StatusCode::METHOD_NOT_ALLOWED, "no-method"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too-slow"),
            Self::NameTaken => (StatusCode::CONFLICT, "name-taken"),
            Self::DigestTaken => (StatusCode::CONFLICT, "digest-taken"),
            Self::DeviceDisabled => (StatusCode::CONFLICT, "device-disabled"),
            Self::AddressTaken => (StatusCode::CONFLICT, "address-taken"),
            Self::GroupIdTaken => (StatusCode::CONFLICT, "group-id-taken"),
            Self::GroupRestored => (StatusCode::CONFLICT, "group-restored"),
            Self::IdempotencyKeyInUse => (StatusCode::CONFLICT, "idempotency-key-in-use"),
            Self::HistoryGone => (StatusCode::GONE, "history-gone"),
            Self::ChangedMeanwhile => (StatusCode::PRECONDITION_FAILED, "changed-meanwhile"),
            Self::TooLong => (StatusCode::PAYLOAD_TOO_LARGE, "too-long"),
            Self::PolicyTooLong => (StatusCode::PAYLOAD_TOO_LARGE, "policy-too-long"),
            Self::InvalidDevice => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-device"),
            Self::InvalidGroup => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-group"),
            Self::InvalidUser => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-user"),
            Self::InvalidPolicy => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-policy"),
            Self::PolicyFailsTests => (StatusCode::UNPROCESSABLE_ENTITY, "policy-fails-tests"),
            Self::IdempotencyKeyReused => (StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused"),
            Self::NotGiven => (StatusCode::UNPROCESSABLE_ENTITY, "not-given"),
            Self::IfMatchMissing => (StatusCode::PRECONDITION_REQUIRED, "if-match-missing"),
            Self::TooManyFailures => (StatusCode::TOO_MANY_REQUESTS, "too-many-failures"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
            Self::NoGroups => (StatusCode::NOT_IMPLEMENTED, "no-groups"),
            Self::NoDelegation => (StatusCode::NOT_IMPLEMENTED, "no-delegation"),
            Self::NoLogins => (StatusCode::NOT_IMPLEMENTED, "no-logins"),
            Self::StoreUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "store-unavailable"),
            Self::TooManyStreams => (StatusCode::SERVICE_UNAVAILABLE, "too-many-streams"),
            Self::TooManyLogins => (StatusCode::SERVICE_UNAVAILABLE, "too-many-logins"),
            Self::AuditUnavailable => (StatusCode::SERVICE_UNAVAILABLE, "audit-unavailable"),
            Self::NoRandom => (StatusCode::SERVICE_UNAVAILABLE, "no-random"),
            Self::RevocationListFull => (StatusCode::INSUFFICIENT_STORAGE, "revocation-list-full"),
            Self::TooManyKeys => (StatusCode::INSUFFICIENT_STORAGE, "too-many-keys"),
            Self::TooManyUsers => (StatusCode::INSUFFICIENT_STORAGE, "too-many-users"),
            Self::TooManyCertificates => (StatusCode::INSUFFICIENT_STORAGE, "too-many-certificates"),
            Self::GroupFull => (StatusCode::INSUFFICIENT_STORAGE, "group-full"),
            Self::NoSenderId => (StatusCode::INSUFFICIENT_STORAGE, "no-sender-id"),
            Self::NoEpochLeft => (StatusCode::INSUFFICIENT_STORAGE, "no-epoch-left"),
            Self::NoGroupId => (StatusCode::INSUFFICIENT_STORAGE, "no-group-id"),
        }
    }

    /// Returns the status of the response.
    pub const fn status(self) -> StatusCode {
        self.entry().0
    }

    /// Returns the name of the code in problem documents.
    pub const fn name(self) -> &'static str {
        self.entry().1
    }
}

/// The reason why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The cause, for programs.
    pub code: Code,
    /// The cause and the next step, for people.
    pub detail: String,
}

/// A problem document (RFC 9457).
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Problem")]
pub(crate) struct Document<'a> {
    /// A URI that identifies the code.
    r#type: String,
    /// The reason phrase of the status.
    title: Option<&'a str>,
    /// The status of the response.
    status: u16,
    /// A word for programs that stays the same in later versions.
    code: &'a str,
    /// The cause and the next step, for people.
    detail: &'a str,
}

impl Problem {
    pub(crate) fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(Code::Malformed, detail)
    }

    pub(crate) fn body(&self) -> Document<'_> {
        let (status, code) = self.code.entry();
        let r#type = format!("tag:tegmen,2026:{code}");
        Document { r#type, title: status.canonical_reason(), status: status.as_u16(), code, detail: &self.detail }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let body = serde_json::to_string(&self.body()).unwrap_or_default();
        let response = (status, [(CONTENT_TYPE, "application/problem+json")], body);
        if status == StatusCode::UNAUTHORIZED {
            return ([(WWW_AUTHENTICATE, "Bearer")], response).into_response();
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            return ([(RETRY_AFTER, "60")], response).into_response();
        }
        response.into_response()
    }
}

impl From<StateError> for Problem {
    fn from(error: StateError) -> Self {
        let code = match &error {
            StateError::NameTaken(_) => Code::NameTaken,
            StateError::DigestTaken(_) => Code::DigestTaken,
            StateError::Unknown(_) => Code::UnknownDevice,
            StateError::NoOneTimeKey(_) => Code::NoOneTimeKey,
            StateError::Party(_) => Code::InvalidDevice,
            StateError::Policy(_) => Code::InvalidPolicy,
            StateError::Tests(_) => Code::PolicyFailsTests,
            StateError::PolicyTooLong(_) => Code::PolicyTooLong,
            StateError::Changed(_) => Code::ChangedMeanwhile,
            StateError::ListFull(_) => Code::RevocationListFull,
            StateError::Store(error) => return error.clone().into(),
            StateError::SessionUsed { .. } | StateError::Fault(_) | StateError::System(_) => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::State(error) => error.into(),
            ServiceError::Audit(error) => Self::new(Code::AuditUnavailable, error.to_string()),
            error @ ServiceError::UnknownSession(_) => Self::new(Code::UnknownSession, error.to_string()),
        }
    }
}

impl From<GroupError> for Problem {
    fn from(error: GroupError) -> Self {
        let code = match &error {
            GroupError::NoGroup(_) => Code::UnknownGroup,
            GroupError::NoMember { .. } | GroupError::Refused(Refused::NoMember) => Code::UnknownMember,
            GroupError::NameTaken(_) | GroupError::MemberTaken { .. } => Code::NameTaken,
            GroupError::AddressTaken { .. } => Code::AddressTaken,
            GroupError::Name(_)
            | GroupError::Config(_)
            | GroupError::OtherFamily { .. }
            | GroupError::OtherProtocol(_)
            | GroupError::OtherCredential(_)
            | GroupError::NoPublicKey(_) => Code::InvalidGroup,
            GroupError::GroupIdTaken { .. } => Code::GroupIdTaken,
            GroupError::NoGroupId(_) => Code::NoGroupId,
            GroupError::NoSenderId(_) => Code::NoSenderId,
            GroupError::Refused(Refused::Full) => Code::GroupFull,
            GroupError::Refused(Refused::LastEpoch) => Code::NoEpochLeft,
            GroupError::Restored(_) => Code::GroupRestored,
            GroupError::Outdated(_)
            | GroupError::Changed(_)
            | GroupError::AdmittedAgain { .. }
            | GroupError::Clashed { .. } => Code::ChangedMeanwhile,
            GroupError::Store(error) => return error.clone().into(),
            GroupError::NotSigned | GroupError::Refused(Refused::NotSigned) | GroupError::Fault { .. } => {
                Code::Internal
            }
        };
        Self::new(code, error.to_string())
    }
}

impl From<DelegationError> for Problem {
    fn from(error: DelegationError) -> Self {
        let code = match &error {
            DelegationError::NoDevice(_) => Code::UnknownDevice,
            DelegationError::NameTaken(_) => Code::NameTaken,
            DelegationError::Config(_) => Code::InvalidDevice,
            DelegationError::Disabled(_) => Code::DeviceDisabled,
            DelegationError::NotGiven { .. } | DelegationError::Remote { .. } => Code::NotGiven,
            DelegationError::NoConnection { .. } => Code::UnknownConnection,
            DelegationError::NoMoreEpochs(_) => Code::NoEpochLeft,
            DelegationError::Outdated(_) | DelegationError::Changed(_) | DelegationError::NoPending(_) => {
                Code::ChangedMeanwhile
            }
            DelegationError::Audit(_) => Code::AuditUnavailable,
            DelegationError::Store(error) => return error.clone().into(),
            DelegationError::Certificate(_) | DelegationError::Fault { .. } => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Unavailable { .. } => Code::StoreUnavailable,
            StoreError::Conflict { .. } => Code::ChangedMeanwhile,
            _ => Code::Internal,
        };
        Self::new(code, error.to_string())
    }
}
