//! A request and its sender.

use super::MessageRef;
use super::observe;
use super::option::OptionNumber;
use crate::identity::Identity;

/// A request, and the identity of its sender.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The message with the request.
    pub message: MessageRef<'r>,
    /// The identity of the sender.
    pub identity: Identity,
    /// The number for the Observe option of the response, if the sender may become an observer; otherwise `None`.
    notification: Option<u32>,
}

impl<'r> Request<'r> {
    /// Creates a request whose sender does not become an observer, so that it gets one response.
    pub const fn new(message: MessageRef<'r>, identity: Identity) -> Self {
        Self { message, identity, notification: None }
    }

    /// Returns this request with a change: its sender becomes an observer if it asks for this and the handler allows
    /// it. The Observe option of the response then has the value `number` (RFC 7641, section 4.1).
    pub const fn observable(self, number: u32) -> Self {
        Self { notification: Some(number), ..self }
    }

    /// Returns the same request with another body. If a block-wise transfer is complete, its whole body replaces the
    /// last block.
    pub(crate) const fn with_body(self, body: &'r [u8]) -> Self {
        Self { message: self.message.with_body(body), ..self }
    }

    /// Returns the number for the Observe option, if the sender asks to be registered as observer and may become one;
    /// otherwise `None`.
    pub(super) fn registration(&self) -> Option<u32> {
        let asked =
            self.message.code().is_safe() && self.message.uint(OptionNumber::OBSERVE) == Some(observe::REGISTER);
        self.notification.filter(|_| asked)
    }
}
