//! The right to respond later.

use super::command::Command;
use super::deferred::{DeferredRequest, DeferredResponse};
use tegmen::coap::Code;
use tokio::sync::mpsc;

/// The right to respond to one request, once.
pub struct Responder {
    request: DeferredRequest,
    commands: mpsc::UnboundedSender<Command>,
    cause: Option<String>,
}

impl Responder {
    pub(super) fn new(request: DeferredRequest, commands: &mpsc::UnboundedSender<Command>) -> Self {
        Self { request, commands: commands.clone(), cause: None }
    }

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
