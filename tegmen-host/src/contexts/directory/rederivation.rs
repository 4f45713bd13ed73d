//! Rederivation: both endpoints of a context derive new keys after one endpoint lost its sequence numbers (RFC 8613,
//! appendix B.2).
//!
//! Each derivation makes a new ID Context, and the sequence numbers of the new keys begin at zero. Before the context
//! sends a message under the new keys, it stores the new ID Context and the end of the range of sequence numbers that
//! it may use.

use super::StoredContext;
use crate::contexts::ContextError;
use crate::contexts::file::ContextFile;
use crate::provider::HostCrypto;
use std::path::Path;
use tegmen::buf::Frame;
use tegmen::coap::{MessageRef, MessageType, OptionNumber, Token};
use tegmen::crypto::Crypto;
use tegmen::oscore::{
    FirstRequest, MAX_DERIVED_ID_CONTEXT, MAX_PARTIAL_IV, Offers, OscoreOption, Pending, ProtectError,
    RederivableContext, Rederived, RequestBinding, RequestNonce, UnprotectError, Unprotected,
};
use tegmen_store::{LEASE, Numbers};

/// The state of rederivation (the derivation of new keys) for one context.
pub(crate) struct Rederivation {
    file: ContextFile,
    /// True after the loss of the sequence numbers of the context, until the context has new keys.
    is_lost: bool,
    offers: Option<Offers>,
    /// The number of key changes since the context was opened.
    generation: u64,
}

impl Rederivation {
    pub(crate) const fn new(file: ContextFile, is_lost: bool) -> Self {
        Self { file, is_lost, offers: None, generation: 0 }
    }

    /// Returns the ID Context in a file of sequence numbers that cannot be trusted, and no other value of the file. The
    /// other endpoint may still send messages under this ID Context. This endpoint sends no message under this ID
    /// Context.
    pub(crate) fn of_lost(numbers: &Path) -> Numbers {
        let id_context =
            Numbers::id_context_in(numbers).filter(|id_context| id_context.len() <= MAX_DERIVED_ID_CONTEXT);
        id_context.map_or(Numbers::default(), |id_context| Numbers::default().under(&id_context, true))
    }
}

/// The result of opening a protected request.
pub(crate) enum Received<'r> {
    /// An authentic and new request, for the application.
    Fresh(MessageRef<'r>, RequestNonce),
    /// An authentic request that may be a replay. The answer is a challenge.
    Unverified(MessageRef<'r>, RequestBinding),
    /// A request that has to be answered by [`StoredContext::answer_first`].
    First(FirstRequest),
}

impl Received<'_> {
    /// Returns the identifier of the request.
    pub(crate) const fn binding(&self) -> RequestBinding {
        match self {
            Self::Fresh(_, nonce) => nonce.binding(),
            Self::Unverified(_, request) => *request,
            Self::First(first) => first.binding(),
        }
    }
}

impl<'r> From<Unprotected<'r>> for Received<'r> {
    fn from(unprotected: Unprotected<'r>) -> Self {
        match unprotected {
            Unprotected::Fresh(message, nonce) => Self::Fresh(message, nonce),
            Unprotected::Unverified(message, request) => Self::Unverified(message, request),
        }
    }
}

/// The reason why a message is not accepted.
pub(crate) enum Untaken {
    /// The message is not authentic, or is for another context.
    Refused(UnprotectError),
    /// The new keys cannot be stored.
    NotKept(ContextError),
}

impl From<UnprotectError> for Untaken {
    fn from(refused: UnprotectError) -> Self {
        Self::Refused(refused)
    }
}

impl From<ContextError> for Untaken {
    fn from(error: ContextError) -> Self {
        Self::NotKept(error)
    }
}

impl StoredContext {
    /// True if both endpoints derive new keys after sequence numbers were lost.
    pub const fn rederives(&self) -> bool {
        self.rederivation.is_some()
    }

    /// Returns true if the context must derive new keys before it can send.
    pub fn is_lost(&self) -> bool {
        let exhausted = self.context.lease().next() > MAX_PARTIAL_IV;
        self.is_unknown || self.rederivation.as_ref().is_some_and(|rederivation| rederivation.is_lost || exhausted)
    }

    /// Returns the number of key changes since the context was opened. A request that arrived before a key change
    /// cannot be answered after this change.
    pub fn generation(&self) -> u64 {
        self.rederivation.as_ref().map_or(0, |rederivation| rederivation.generation)
    }

    /// Returns the record `numbers` of sequence numbers together with the ID Context of the current keys. If the
    /// current keys were not derived by rederivation, returns the record without an ID Context.
    pub(crate) fn named(&self, numbers: Numbers) -> Numbers {
        let theirs = self.rederivation.as_ref().and_then(|rederivation| rederivation.file.id_context.as_deref());
        match self.context.id_context().filter(|ours| self.rederives() && Some(*ours) != theirs) {
            Some(derived) => numbers.under(derived, self.context.is_settled()),
            None => numbers,
        }
    }

    /// Notes that the other endpoint no longer knows the keys. New keys have to be derived before the next message.
    pub(crate) fn lose(&mut self) {
        match &mut self.rederivation {
            Some(rederivation) => rederivation.is_lost = true,
            None => self.is_unknown = self.is_agreed(),
        }
    }

    /// Replaces the lost keys by the keys for request #1, which begins a rederivation. These keys can protect only one
    /// request.
    pub(crate) fn begin_rederivation(&mut self, crypto: &mut HostCrypto) -> Result<(), ProtectError> {
        let Some(rederivation) = &mut self.rederivation else { return Err(ProtectError::Exhausted) };
        let context = RederivableContext::rederive(crypto, &rederivation.file.parameters());
        self.context = context.map_err(|_| ProtectError::Unsupported)?;
        self.context.lease_mut().extend(1);
        rederivation.generation += 1;
        Ok(())
    }

    /// Returns the decrypted message of a response. The second value is true if the response is response #1 of a
    /// rederivation. A server that sends response #1 has not executed the request, so the client must send the request
    /// again under the new keys.
    pub(crate) fn take_response<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        pending: &mut Pending,
        datagram: &'r mut [u8],
    ) -> Result<(MessageRef<'r>, bool), Untaken> {
        let Some(rederivation) = self.rederivation.as_ref().filter(|_| names_an_id_context(datagram)) else {
            let message = self.context.unprotect_response(crypto, pending, datagram)?;
            self.context.settle();
            return Ok((message, false));
        };
        let (context, message) = self.context.rederived(crypto, &rederivation.file.parameters(), pending, datagram)?;
        self.adopt(context)?;
        Ok((message, true))
    }

    /// Opens a request whose OSCORE option `option` names this context.
    pub(crate) fn take_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        option: &OscoreOption<'_>,
        datagram: &'r mut [u8],
    ) -> Result<Received<'r>, Untaken> {
        let is_lost = self.is_lost();
        let Some(rederivation) = &mut self.rederivation else {
            return Ok(self.context.unprotect_request(crypto, datagram)?.into());
        };
        if self.context.is_named_by(option) {
            let unprotected = self.context.unprotect_request(crypto, datagram)?;
            return Ok(match unprotected {
                Unprotected::Fresh(_, nonce) if is_lost => {
                    Received::First(FirstRequest::under(&self.context, nonce.binding()))
                }
                Unprotected::Unverified(_, request) if is_lost => {
                    Received::First(FirstRequest::under(&self.context, request))
                }
                other => other.into(),
            });
        }
        let offers = rederivation.offers.get_or_insert_with(|| Offers::draw(crypto));
        match offers.open(crypto, &rederivation.file.parameters(), datagram)? {
            Rederived::First(first) => Ok(Received::First(first)),
            Rederived::Second(context, message, nonce) => {
                self.adopt(context)?;
                Ok(Received::Fresh(message, nonce))
            }
        }
    }

    /// Writes response #1 of the rederivation (RFC 8613, appendix B.2).
    pub(crate) fn answer_first<C: Crypto>(
        &mut self,
        crypto: &mut C,
        first: &FirstRequest,
        head: (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let Some(rederivation) = &mut self.rederivation else { return Err(ProtectError::Unsupported) };
        let offers = rederivation.offers.get_or_insert_with(|| Offers::draw(crypto));
        offers.answer(crypto, &rederivation.file.parameters(), first, head, token, frame)
    }

    /// Stores new keys, and uses them from now on. The key material that this endpoint offered in earlier responses #1
    /// becomes invalid.
    fn adopt(&mut self, context: RederivableContext) -> Result<(), ContextError> {
        let end = context.lease().next() + LEASE;
        let numbers = Numbers::from(end, None).under(context.id_context().unwrap_or(&[]), context.is_settled());
        self.keeper.keep(&numbers)?;
        self.context = context;
        self.context.lease_mut().extend(end);
        if let Some(rederivation) = &mut self.rederivation {
            rederivation.is_lost = false;
            rederivation.offers = None;
            rederivation.generation += 1;
        }
        Ok(())
    }
}

/// True if a response has a kid context.
fn names_an_id_context(response: &[u8]) -> bool {
    let Ok(message) = MessageRef::parse(response) else { return false };
    let option = message.option(OptionNumber::OSCORE).map(OscoreOption::parse);
    option.is_some_and(|option| option.is_ok_and(|option| option.kid_context.is_some()))
}
