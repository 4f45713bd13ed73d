//! The answers of operations. Each type of answer adds its own description to the OpenAPI document, so the document
//! describes exactly the data that the server sends.

use crate::description::Description;
use crate::replay::Kept;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::Stream;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::marker::PhantomData;
use tegmen_store::Revision;

/// An answer, with its status, entity tag and body.
pub(crate) struct Reply {
    status: StatusCode,
    revision: Option<Revision>,
    body: Option<Value>,
    /// The name of the field that contains a secret; `None` if there is no such field. If a client repeats a request
    /// with the same `Idempotency-Key`, only the answer to the first of these requests contains the field.
    once: Option<&'static str>,
}

impl Reply {
    fn of_body(status: StatusCode, body: &impl Serialize) -> Self {
        Self { status, revision: None, body: serde_json::to_value(body).ok(), once: None }
    }

    /// Returns the answer in the form in which it is stored, without the secret field.
    pub(crate) fn kept(&self) -> Kept {
        let mut body = self.body.clone().unwrap_or(Value::Null);
        if let (Some(once), Some(fields)) = (self.once, body.as_object_mut()) {
            fields.remove(once);
        }
        Kept { status: self.status.as_u16(), revision: self.revision.map(|revision| revision.0), body }
    }

    pub(crate) fn of(kept: Kept) -> Self {
        let status = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let revision = kept.revision.map(Revision);
        Self { status, revision, body: Some(kept.body).filter(|body| !body.is_null()), once: None }
    }
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

/// A type whose values are successful answers of an operation. Its functions convert such a value to the [`Reply`] that
/// the server sends, and add the description of the type to the OpenAPI document.
pub(crate) trait Answer: Send + 'static {
    fn reply(self) -> Reply;
    fn describe(about: &mut Description<'_>);
}

/// An answer that shows an object.
pub(crate) struct Shown<T>(pub(crate) T);

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Shown<T> {
    fn reply(self) -> Reply {
        Reply::of_body(StatusCode::OK, &self.0)
    }

    fn describe(about: &mut Description<'_>) {
        about.gives::<T>(StatusCode::OK, "What was asked for.");
    }
}

/// An answer that shows an object which was created.
pub(crate) struct Created<T>(pub(crate) T);

impl<T: Serialize + JsonSchema + Send + 'static> Answer for Created<T> {
    fn reply(self) -> Reply {
        Reply::of_body(StatusCode::CREATED, &self.0)
    }

    fn describe(about: &mut Description<'_>) {
        about.gives::<T>(StatusCode::CREATED, "What was made.");
    }
}

/// An answer with a secret in the field of this name. Only the answer to the first request with an `Idempotency-Key`
/// contains the field. The answers to repetitions of this request do not.
pub(crate) struct Once<A>(pub(crate) A, pub(crate) &'static str);

impl<A: Answer> Answer for Once<A> {
    fn reply(self) -> Reply {
        Reply { once: Some(self.1), ..self.0.reply() }
    }

    fn describe(about: &mut Description<'_>) {
        A::describe(about);
    }
}

/// An empty answer after a change was made.
pub(crate) struct Done;

impl Answer for Done {
    fn reply(self) -> Reply {
        Reply { status: StatusCode::NO_CONTENT, revision: None, body: None, once: None }
    }

    fn describe(about: &mut Description<'_>) {
        about.response(StatusCode::NO_CONTENT, json!({ "description": "The change was made." }));
    }
}

/// An answer with an entity tag, which contains the revision of the object.
pub(crate) struct Tagged<A>(pub(crate) A, pub(crate) Revision);

impl<A: Answer> Answer for Tagged<A> {
    fn reply(self) -> Reply {
        Reply { revision: Some(self.1), ..self.0.reply() }
    }

    fn describe(about: &mut Description<'_>) {
        A::describe(about);
        about.tagged();
    }
}

/// An answer that is a stream of server-sent events. An event with the name `changes` has data of the type `C`. An
/// event with the name `end` has data of the type `E`.
pub(crate) struct Streamed<C, E>(Response, PhantomData<fn() -> (C, E)>);

impl<C, E> Streamed<C, E> {
    pub(crate) fn new(events: impl Stream<Item = Result<Event, Infallible>> + Send + 'static) -> Self {
        Self(([(CACHE_CONTROL, "no-store")], Sse::new(events)).into_response(), PhantomData)
    }
}

impl<C, E> IntoResponse for Streamed<C, E> {
    fn into_response(self) -> Response {
        self.0
    }
}
