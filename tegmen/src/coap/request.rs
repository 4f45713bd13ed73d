//! A request and its sender.

use super::MessageRef;
use super::observe;
use super::option::OptionNumber;
use crate::identity::Identity;

/// A request and the identity of its sender.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The message.
    pub message: MessageRef<'r>,
    /// The identity of the sender.
    pub identity: Identity,
    /// The number for the Observe option of the response, if the sender may become an observer; `None` if it cannot.
    notification: Option<u32>,
}

impl<'r> Request<'r> {
    /// Creates a request that is answered once.
    pub const fn new(message: MessageRef<'r>, identity: Identity) -> Self {
        Self { message, identity, notification: None }
    }

    /// Creates a request whose sender becomes an observer if it asks for that and the handler allows it. The response
    /// then carries this number in its Observe option (RFC 7641, section 4.1).
    pub const fn observable(self, number: u32) -> Self {
        Self { notification: Some(number), ..self }
    }

    /// Returns the same request, with the whole body of a block-wise transfer instead of its last block.
    pub(crate) const fn with_body(self, body: &'r [u8]) -> Self {
        Self { message: self.message.with_body(body), ..self }
    }

    /// Returns the number for the Observe option, if the client asks to be registered.
    pub(super) fn registration(&self) -> Option<u32> {
        let asked =
            self.message.code().is_safe() && self.message.uint(OptionNumber::OBSERVE) == Some(observe::REGISTER);
        self.notification.filter(|_| asked)
    }
}
