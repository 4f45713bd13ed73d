//! Requests with OSCORE (RFC 8613). The server decrypts them before the application sees them, and protects the
//! responses before the peer's exchanges keep them.

use super::CoapServer;
use crate::contexts::{OVERHEAD, Received, Untaken};
use crate::server::oscore_exchange::OscoreExchange;
use crate::server::source::Source;
use crate::server::{Application, Event};
use tegmen::buf::Frame;
use tegmen::coap::handler::heading;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::oscore::{OscoreOption, ProtectError, RequestNonce, UnprotectError};

impl<A: Application> CoapServer<A> {
    /// Opens a request that has an OSCORE option. Returns `None` if it is not executed; `frame` then has the response.
    pub(super) fn open<'r, C: Crypto>(
        &mut self,
        from: &Source,
        cx: &mut Cx<'_, C>,
        datagram: &'r mut [u8],
        message_id: u16,
        frame: &mut Frame<'_>,
    ) -> Option<(OscoreExchange, RequestNonce, MessageRef<'r>)> {
        let outer = MessageRef::parse(datagram).ok()?;
        let (head, token) = (heading(&outer, message_id), Token::new(outer.token()));
        // A copy, since the datagram is decrypted in place.
        let mut storage = [0; MAX_OPTION];
        let option = outer.option(OptionNumber::OSCORE).ok_or(UnprotectError::Unprotected);
        let option = option.and_then(|option| copy(option, &mut storage).ok_or(UnprotectError::BadOption));
        let refused = match option.and_then(|option| self.unprotect(from, option, cx.crypto, datagram)) {
            Ok((oscore, Received::Fresh(message, nonce))) => return Some((oscore, nonce, message)),
            Ok((oscore, asks)) => {
                let written = Self::written(cx.crypto, frame, |crypto, inner| match &asks {
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
                return None;
            }
            Err(refused) => refused,
        };
        let counter = match refused {
            UnprotectError::Unprotected | UnprotectError::BadOption | UnprotectError::Malformed => {
                &mut cx.counters.malformed
            }
            UnprotectError::UnknownContext => &mut cx.counters.unknown_peer,
            UnprotectError::Replayed => &mut cx.counters.replayed,
            UnprotectError::NotAuthentic => &mut cx.counters.not_authentic,
        };
        *counter = counter.saturating_add(1);
        refuse(refused.code(), head, &token, frame);
        None
    }

    fn unprotect<'r, C: Crypto>(
        &self,
        from: &Source,
        option: &[u8],
        crypto: &mut C,
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

    /// Lets `write` make a message, and puts it into `frame`, protected as a response to the request of `oscore`.
    pub(super) fn protect<C: Crypto>(
        &mut self,
        oscore: &OscoreExchange,
        crypto: &mut C,
        frame: &mut Frame<'_>,
        write: impl FnOnce(&mut Self, &mut Frame<'_>),
    ) {
        let mut inside = std::mem::take(&mut self.inside);
        let mut inner = inside.frame(frame.room());
        write(self, &mut inner);
        let len = inner.len();
        inside.protect(oscore, None, crypto, len, frame);
        self.inside = inside;
    }

    /// Puts the short response that `write` makes into `frame`; false if it cannot be made.
    fn written<C: Crypto>(
        crypto: &mut C,
        frame: &mut Frame<'_>,
        write: impl FnOnce(&mut C, &mut Frame<'_>) -> Result<(), ProtectError>,
    ) -> bool {
        let mut storage = [0; 2 * OVERHEAD + 32];
        let mut inner = Frame::new(&mut storage, OVERHEAD);
        write(crypto, &mut inner).is_ok() && frame.append(inner.bytes()).is_ok()
    }
}

/// Memory for a message before it is protected.
#[derive(Default)]
pub(in crate::server) struct Inside(Vec<u8>);

impl Inside {
    /// Returns an empty frame for a message that fits `room` bytes once it is protected.
    pub(super) fn frame(&mut self, room: usize) -> Frame<'_> {
        let room = room.saturating_sub(OVERHEAD);
        self.0.resize(OVERHEAD + room + OVERHEAD, 0);
        Frame::new(self.0.get_mut(..OVERHEAD + room).unwrap_or(&mut []), OVERHEAD)
    }

    /// Puts the message of `len` bytes that was written last into `frame`, protected as a response to the request of `oscore`.
    /// An acknowledgement or a Reset is empty and has no protection.
    pub(super) fn protect<C: Crypto>(
        &mut self,
        oscore: &OscoreExchange,
        nonce: Option<RequestNonce>,
        crypto: &mut C,
        len: usize,
        frame: &mut Frame<'_>,
    ) {
        let mut inner = Frame::around(&mut self.0, OVERHEAD, OVERHEAD + len);
        let done = match MessageRef::parse(inner.bytes()) {
            Err(_) => Ok(()),
            Ok(message) if message.code() == Code::EMPTY => Ok(()),
            Ok(_) => oscore.protect_response(crypto, nonce, &mut inner),
        };
        let written = done.is_ok() && frame.append(inner.bytes()).is_ok();
        if !written && let Ok(message) = MessageRef::parse(inner.bytes()) {
            let head = (message.message_type(), message.message_id());
            refuse(Code::INTERNAL_SERVER_ERROR, head, &Token::new(message.token()), frame);
        }
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
