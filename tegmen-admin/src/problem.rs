//! Problem documents (RFC 9457).

use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::response::{IntoResponse, Response};
use tegmen_control::service::ServiceError;
use tegmen_control::state::StateError;
use tegmen_store::StoreError;

/// The reason why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// The status.
    pub status: StatusCode,
    /// A word for programs that stays the same in later versions.
    pub code: &'static str,
    /// The cause and the next step, for people.
    pub detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into() }
    }

    pub(crate) fn malformed(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "malformed", detail)
    }

    pub(crate) fn body(&self) -> serde_json::Value {
        serde_json::json!({
            "type": format!("tag:tegmen,2026:{}", self.code),
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "code": self.code,
            "detail": self.detail,
        })
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let response = (self.status, [(CONTENT_TYPE, "application/problem+json")], self.body().to_string());
        if self.status == StatusCode::UNAUTHORIZED {
            return ([(WWW_AUTHENTICATE, "Bearer")], response).into_response();
        }
        if self.status == StatusCode::TOO_MANY_REQUESTS {
            return ([(RETRY_AFTER, "60")], response).into_response();
        }
        response.into_response()
    }
}

impl From<StateError> for Problem {
    fn from(error: StateError) -> Self {
        let (status, code) = match &error {
            StateError::NameTaken(_) => (StatusCode::CONFLICT, "name-taken"),
            StateError::DigestTaken(_) => (StatusCode::CONFLICT, "digest-taken"),
            StateError::Unknown(_) => (StatusCode::NOT_FOUND, "unknown-device"),
            StateError::Party(_) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-device"),
            StateError::Policy(_) => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-policy"),
            StateError::Tests(_) => (StatusCode::UNPROCESSABLE_ENTITY, "policy-fails-tests"),
            StateError::PolicyTooLong(_) => (StatusCode::PAYLOAD_TOO_LARGE, "policy-too-long"),
            StateError::Changed(_) => (StatusCode::PRECONDITION_FAILED, "changed-meanwhile"),
            StateError::ListFull(_) => (StatusCode::INSUFFICIENT_STORAGE, "revocation-list-full"),
            StateError::Store(error) => return error.clone().into(),
            StateError::SessionUsed { .. } | StateError::Fault(_) | StateError::System(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal")
            }
        };
        Self::new(status, code, error.to_string())
    }
}

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::State(error) => error.into(),
            ServiceError::Audit(error) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "audit-unavailable", error.to_string())
            }
            error @ ServiceError::UnknownSession(_) => {
                Self::new(StatusCode::NOT_FOUND, "unknown-session", error.to_string())
            }
        }
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let (status, code) = match &error {
            StoreError::Unavailable { .. } => (StatusCode::SERVICE_UNAVAILABLE, "store-unavailable"),
            StoreError::Conflict { .. } => (StatusCode::PRECONDITION_FAILED, "changed-meanwhile"),
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        };
        Self::new(status, code, error.to_string())
    }
}
