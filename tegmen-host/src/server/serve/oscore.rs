//! Requests with OSCORE (RFC 8613). The server decrypts them before the application sees them, and protects the
//! responses before the peer's exchanges keep them.

use super::CoapServer;
use crate::contexts::{OVERHEAD, Received, Untaken};
use crate::provider::HostCrypto;
use crate::server::coap_peer::CoapPeer;
use crate::server::oscore_exchange::OscoreExchange;
use crate::server::source::Source;
use crate::server::{Application, Event};
use tegmen::buf::Frame;
use tegmen::coap::handler::heading;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::counters::Counters;
use tegmen::oscore::{OscoreOption, ProtectError, RequestNonce, UnprotectError};

impl<A: Application> CoapServer<A> {
    /// Answers a request that has an OSCORE option; the code of the response, unless that comes later.
    pub(super) fn protected_request(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        counters: &mut Counters,
        crypto: &mut HostCrypto,
        datagram: &mut [u8],
        frame: &mut Frame<'_>,
    ) {
        let Ok(outer) = MessageRef::parse(datagram) else { return };
        let (head, token) = (heading(&outer, coap_peer.exchanges.message_id()), Token::new(outer.token()));
        // A copy, since the datagram is decrypted in place.
        let mut storage = [0; MAX_OPTION];
        let option = outer.option(OptionNumber::OSCORE).ok_or(UnprotectError::Unprotected);
        let option = option.and_then(|option| copy(option, &mut storage).ok_or(UnprotectError::BadOption));
        let refused = match option.and_then(|option| self.unprotect(from, option, crypto, datagram)) {
            Ok((oscore, Received::Fresh(message, nonce))) => {
                return self.on_fresh(&oscore, nonce, from, coap_peer, crypto, &message, frame);
            }
            Ok((oscore, asks)) => {
                let written = Self::written(crypto, frame, |crypto, inner| match &asks {
                    Received::First(first) => oscore.context.lock().answer_first(crypto, first, head, &token, inner),
                    _ => oscore.write_challenge(crypto, head, &token, inner),
                });
                if !written {
                    refuse(Code::INTERNAL_SERVER_ERROR, head, &token, frame);
                }
                if let Received::Unverified(message, _) = &asks {
                    let _ = self.read_uri(message);
                    self.report_request(&from.under(&oscore), message.code(), Some(Code::UNAUTHORIZED));
                }
                return;
            }
            Err(refused) => refused,
        };
        let counter = match refused {
            UnprotectError::Unprotected | UnprotectError::BadOption | UnprotectError::Malformed => {
                &mut counters.malformed
            }
            UnprotectError::UnknownContext => &mut counters.unknown_peer,
            UnprotectError::Replayed => &mut counters.replayed,
            UnprotectError::NotAuthentic => &mut counters.not_authentic,
        };
        *counter = counter.saturating_add(1);
        refuse(refused.code(), head, &token, frame);
    }

    fn unprotect<'r>(
        &self,
        from: &Source,
        option: &[u8],
        crypto: &mut HostCrypto,
        datagram: &'r mut [u8],
    ) -> Result<(OscoreExchange, Received<'r>), UnprotectError> {
        let option = OscoreOption::parse(option)?;
        if option.kid.is_none() || option.partial_iv.is_none() {
            return Err(UnprotectError::BadOption);
        }
        let context = self.contexts.find(&option).ok_or(UnprotectError::UnknownContext)?;
        let mut stored = context.lock();
        let taken = stored.check_expiry().map_err(Untaken::NotKept);
        let taken = taken.and_then(|()| stored.take_request(crypto, &option, datagram));
        let generation = stored.generation();
        drop(stored);
        let received = taken.map_err(|untaken| match untaken {
            Untaken::Refused(refused) => refused,
            Untaken::NotKept(problem) => {
                (self.events)(Event::Context { remote: from.remote, problem });
                UnprotectError::UnknownContext
            }
        })?;
        Ok((OscoreExchange { context, request: received.binding(), generation }, received))
    }

    /// Takes a request to the application as any other, and protects what is answered.
    #[expect(clippy::too_many_arguments, reason = "what a request consists of")]
    fn on_fresh(
        &mut self,
        oscore: &OscoreExchange,
        nonce: RequestNonce,
        from: &Source,
        coap_peer: &mut CoapPeer,
        crypto: &mut HostCrypto,
        message: &MessageRef<'_>,
        frame: &mut Frame<'_>,
    ) {
        let from = from.under(oscore);
        let mut code = None;
        self.protect(oscore, Some(nonce), crypto, frame, |server, inner| {
            // What is inside is authentic: nothing has to be shown of the address before it is answered.
            code = server.request(&from, coap_peer, message, &[], inner);
        });
        self.report_request(&from, message.code(), code);
    }

    /// Lets `write` make a message, and puts it into `frame`, protected as a response to the request of `oscore`. True if
    /// there is something to be sent.
    pub(super) fn protect(
        &mut self,
        oscore: &OscoreExchange,
        nonce: Option<RequestNonce>,
        crypto: &mut HostCrypto,
        frame: &mut Frame<'_>,
        write: impl FnOnce(&mut Self, &mut Frame<'_>),
    ) -> bool {
        let room = frame.room().saturating_sub(OVERHEAD);
        let mut storage = std::mem::take(&mut self.inside);
        storage.resize(OVERHEAD + room + OVERHEAD, 0);
        let mut inner = Frame::new(storage.get_mut(..OVERHEAD + room).unwrap_or(&mut []), OVERHEAD);
        write(self, &mut inner);
        let len = inner.len();
        let mut inner = Frame::around(&mut storage, OVERHEAD, OVERHEAD + len);
        let done = match MessageRef::parse(inner.bytes()) {
            Err(_) => Ok(()),
            // An acknowledgement says nothing that could be protected.
            Ok(message) if message.code() == Code::EMPTY => Ok(()),
            Ok(_) => oscore.protect_response(crypto, nonce, &mut inner),
        };
        let written = done.is_ok() && frame.append(inner.bytes()).is_ok();
        if !written && let Ok(message) = MessageRef::parse(inner.bytes()) {
            let head = (message.message_type(), message.message_id());
            refuse(Code::INTERNAL_SERVER_ERROR, head, &Token::new(message.token()), frame);
        }
        self.inside = storage;
        !frame.is_empty()
    }

    /// Puts the short response that `write` makes into `frame`; false if it cannot be made.
    fn written(
        crypto: &mut HostCrypto,
        frame: &mut Frame<'_>,
        write: impl FnOnce(&mut HostCrypto, &mut Frame<'_>) -> Result<(), ProtectError>,
    ) -> bool {
        let mut storage = [0; 2 * OVERHEAD + 32];
        let mut inner = Frame::new(&mut storage, OVERHEAD);
        write(crypto, &mut inner).is_ok() && frame.append(inner.bytes()).is_ok()
    }
}

/// Bytes of the longest OSCORE option (RFC 8613, section 2).
const MAX_OPTION: usize = 255;

/// Copies `bytes` into `storage`; `None` if they are longer.
fn copy<'s>(bytes: &[u8], storage: &'s mut [u8]) -> Option<&'s [u8]> {
    let storage = storage.get_mut(..bytes.len())?;
    storage.copy_from_slice(bytes);
    Some(storage)
}

/// An error that is not protected, and that nobody is to keep (RFC 8613, section 8.2).
fn refuse(code: Code, head: (MessageType, u16), token: &Token, frame: &mut Frame<'_>) {
    frame.truncate(0);
    let built = Builder::new(frame, head.0, code, head.1, token.as_bytes());
    let _ = built.and_then(|mut builder| builder.uint(OptionNumber::MAX_AGE, 0));
}
