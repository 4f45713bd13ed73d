//! Requests with OSCORE (RFC 8613), at the client.

use super::{ClientError, Response};
use crate::contexts::{StoredContext, Untaken};
use crate::provider::HostCrypto;
use tegmen::buf::Frame;
use tegmen::coap::{Code, MessageRef, OptionNumber, RequestId};
use tegmen::oscore::{Pending, ProtectError, UnprotectError};

/// The context of a client, and what was asked under it.
pub(super) struct OscoreClient {
    stored: StoredContext,
    asked: Vec<Asked>,
}

struct Asked {
    request: RequestId,
    pending: Pending,
    /// What those on the way saw of it: its code, and its OSCORE option.
    outside: (Code, Vec<u8>),
    /// Responses so far; it stands for the number of a notification, which is authentic and rises.
    responses: u32,
}

impl OscoreClient {
    pub(super) fn new(stored: StoredContext) -> Self {
        Self { stored, asked: Vec::new() }
    }

    /// True if new keys are to be derived before anything is asked (RFC 8613, appendix B.2).
    pub(super) fn is_lost(&self) -> bool {
        self.stored.is_lost()
    }

    /// Prepares for request #1.
    pub(super) fn begin_rederivation(&mut self, crypto: &mut HostCrypto) -> Result<(), ClientError> {
        self.asked.clear();
        self.stored.begin_rederivation(crypto).map_err(unprotectable)
    }

    /// Protects the request in `frame`.
    pub(super) fn protect(&mut self, crypto: &mut HostCrypto, frame: &mut Frame<'_>) -> Result<Pending, ClientError> {
        self.stored.check_expiry().map_err(ClientError::Context)?;
        if self.stored.context.lease().left() == 0 {
            self.stored.renew().map_err(ClientError::Context)?;
        }
        self.stored.context.protect_request(crypto, frame).map_err(|stop| match stop {
            ProtectError::Full => ClientError::TooLong { max: frame.room() },
            other => unprotectable(other),
        })
    }

    /// Keeps what the response to a request is to be compared with, until the request is forgotten.
    pub(super) fn wait(&mut self, request: RequestId, pending: Pending, message: &MessageRef<'_>) {
        let outside = (message.code(), message.option(OptionNumber::OSCORE).unwrap_or(&[]).to_vec());
        self.asked.push(Asked { request, pending, outside, responses: 0 });
    }

    /// What those on the way saw of a request that waits.
    pub(super) fn outside(&self, request: RequestId) -> Option<&(Code, Vec<u8>)> {
        self.asked.iter().find(|asked| asked.request == request).map(|asked| &asked.outside)
    }

    pub(super) fn forget(&mut self, request: RequestId) {
        self.asked.retain(|asked| asked.request != request);
    }

    /// Forgets all requests.
    pub(super) fn forget_all(&mut self) {
        self.asked.clear();
    }

    /// Returns the content of a response, and true if the request is to be sent again under other keys: the server did not
    /// execute it.
    pub(super) fn unprotect(
        &mut self,
        crypto: &mut HostCrypto,
        request: RequestId,
        datagram: &mut [u8],
    ) -> (Result<Response, Untaken>, bool) {
        let code = MessageRef::parse(datagram).map(|message| message.code());
        let is_refused = matches!(code, Ok(Code::UNAUTHORIZED | Code::BAD_REQUEST));
        let Some(index) = self.asked.iter().position(|asked| asked.request == request) else {
            // The keys under which it was sent are replaced since then.
            return (Err(UnprotectError::Replayed.into()), is_refused);
        };
        let Some(asked) = self.asked.get_mut(index) else {
            return (Err(UnprotectError::Replayed.into()), false);
        };
        let (message, rederived) = match self.stored.take_response(crypto, &mut asked.pending, datagram) {
            Ok(taken) => taken,
            Err(untaken) => {
                if is_refused && matches!(untaken, Untaken::Refused(UnprotectError::Unprotected)) {
                    // Perhaps it has lost our keys, or we have those of another time; at worst this costs two messages.
                    self.stored.lose();
                }
                return (Err(untaken), self.stored.is_lost());
            }
        };
        let mut reply = Response::new(&message);
        asked.responses = asked.responses.wrapping_add(1);
        let number = asked.responses.to_be_bytes();
        match reply.option(OptionNumber::OBSERVE) {
            // Inside it is empty: the order is that of the authentic numbers (RFC 8613, section 4.1.3.5.2).
            Some(_) => reply.replace_option(OptionNumber::OBSERVE, number.get(1..).unwrap_or(&[])),
            None => {
                self.asked.swap_remove(index);
            }
        }
        let again = reply.code == Code::UNAUTHORIZED && rederived;
        (Ok(reply), again)
    }
}

pub(super) fn unprotectable(stop: ProtectError) -> ClientError {
    ClientError::System(std::io::Error::other(format!("the request cannot be protected: {stop:?}")))
}
