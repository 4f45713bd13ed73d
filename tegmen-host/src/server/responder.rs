//! The exchange that an application serves, and the right to respond to it later.

use super::command::Command;
use super::deferred::{DeferredRequest, DeferredResponse};
use super::notifier::Notifier;
use super::source::Source;
use std::cell::Cell;
use tegmen::coap::handler::Response;
use tegmen::coap::{Code, MessageRef};
use tokio::sync::mpsc;

/// The exchange that an application serves: it can defer the response, state the cause of a 5.xx, and notify observers.
pub struct Exchange<'a> {
    pub(super) from: &'a Source,
    pub(super) message: &'a MessageRef<'a>,
    pub(super) path: &'a str,
    pub(super) commands: &'a mpsc::UnboundedSender<Command>,
    pub(super) notifier: &'a Notifier,
    pub(super) cause: &'a Cell<Option<String>>,
}

impl Exchange<'_> {
    /// Returns the path of the request without a slash in front, as policy, observers and log see it: see
    /// [`crate::request_uri`].
    pub const fn path(&self) -> &str {
        self.path
    }

    /// Defers the response; the request is acknowledged now.
    pub fn defer(&self, response: &mut Response<'_, '_>) -> Responder {
        response.defer();
        Responder {
            request: DeferredRequest::new(self.from, self.message, self.path),
            commands: self.commands.clone(),
            cause: None,
        }
    }

    /// Sets the cause of a 5.xx response, for the operator. The client does not receive it.
    pub fn because(&self, cause: impl Into<String>) {
        self.cause.set(Some(cause.into()));
    }

    /// Notifies those who observe `path` that its representation changed: see [`Notifier::changed`].
    pub fn changed(&self, path: &str) {
        self.notifier.changed(path);
    }

    /// A notifier to keep.
    pub fn notifier(&self) -> Notifier {
        self.notifier.clone()
    }
}

/// The right to respond to one request, once.
pub struct Responder {
    request: DeferredRequest,
    commands: mpsc::UnboundedSender<Command>,
    cause: Option<String>,
}

impl Responder {
    /// Sets the cause of a 5.xx response, for the operator. The client does not receive it.
    #[must_use]
    pub fn because(self, cause: impl Into<String>) -> Self {
        Self { cause: Some(cause.into()), ..self }
    }

    /// Sends the response; a payload that does not fit one message goes in blocks.
    pub fn respond(self, code: Code, content_format: Option<u16>, payload: Vec<u8>) {
        let deferred = DeferredResponse { request: self.request, code, content_format, payload, cause: self.cause };
        // If the server ended meanwhile there is nobody to tell.
        let _ = self.commands.send(Command::Respond(deferred));
    }
}
