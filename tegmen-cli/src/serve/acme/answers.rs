//! Answers challenges of the type http-01 (RFC 8555, section 8.3), over HTTP.

use crate::serve::page::Few;
use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The path of an answer.
const PATH: &str = "/.well-known/acme-challenge/{token}";

/// The answers to pending challenges. The key of an answer is the token of its challenge.
#[derive(Default)]
pub(super) struct Answers(Mutex<HashMap<String, String>>);

impl Answers {
    fn all(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the challenge of this token until the returned value is dropped.
    pub(super) fn give(self: &Arc<Self>, token: &str, answer: &str) -> Given {
        self.all().insert(token.to_owned(), answer.to_owned());
        Given { answers: Arc::clone(self), token: token.to_owned() }
    }
}

/// An answer to a challenge. The server sends the answer until this value is dropped.
pub(super) struct Given {
    answers: Arc<Answers>,
    token: String,
}

impl Drop for Given {
    fn drop(&mut self) {
        self.answers.all().remove(&self.token);
    }
}

/// Serves the answers until the future is dropped.
pub(super) async fn serve(listener: TcpListener, answers: Arc<Answers>) {
    let answer = move |Path(token): Path<String>| async move {
        let headers = [(header::CONTENT_TYPE, "application/octet-stream"), (header::CONNECTION, "close")];
        match answers.all().get(&token) {
            Some(answer) => (StatusCode::OK, headers, answer.clone()).into_response(),
            None => (StatusCode::NOT_FOUND, headers).into_response(),
        }
    };
    let router = axum::Router::new().route(PATH, get(answer));
    let listener = listener.set_nonblocking(true).and_then(|()| tokio::net::TcpListener::from_std(listener));
    let served = match listener {
        Ok(listener) => axum::serve(Few::new(listener), router).await,
        Err(error) => Err(error),
    };
    if let Err(error) = served {
        tracing::error!("delegation: challenges are not answered: {error}");
    }
}
