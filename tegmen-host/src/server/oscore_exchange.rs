//! The OSCORE side of one exchange (RFC 8613): the context and the request to which every response is bound.

use crate::contexts::{SharedContext, StoredContext};
use std::sync::MutexGuard;
use tegmen::buf::Frame;
use tegmen::coap::{MessageType, Token};
use tegmen::crypto::Crypto;
use tegmen::oscore::{ProtectError, RequestBinding, RequestNonce};

/// The context of a request, and which request it was: what protects every response to it.
#[derive(Clone)]
pub(super) struct OscoreExchange {
    pub(super) context: SharedContext,
    pub(super) request: RequestBinding,
    /// Under which keys it came.
    pub(super) generation: u64,
}

impl OscoreExchange {
    pub(super) fn protect_response<C: Crypto>(
        &self,
        crypto: &mut C,
        nonce: Option<RequestNonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let mut stored = self.stored()?;
        if nonce.is_none() {
            stored.lease_one()?;
        }
        stored.context.protect_response(crypto, &self.request, nonce, frame)
    }

    pub(super) fn write_challenge<C: Crypto>(
        &self,
        crypto: &mut C,
        head: (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let mut stored = self.stored()?;
        stored.lease_one()?;
        stored.context.write_challenge(crypto, &self.request, head, token, frame)
    }

    /// The context, if it still has the keys under which the request came: under others its nonce may be that of another
    /// request, and the response would be bound to that.
    fn stored(&self) -> Result<MutexGuard<'_, StoredContext>, ProtectError> {
        let stored = self.context.lock();
        if stored.generation() == self.generation { Ok(stored) } else { Err(ProtectError::Exhausted) }
    }
}
