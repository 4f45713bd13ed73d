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
    /// A response came that new keys were taken from, and nothing was asked since.
    rederived: bool,
}

struct Asked {
    request: RequestId,
    pending: Pending,
    /// What those on the way saw of it: its code, and its OSCORE option.
    outside: (Code, Vec<u8>),
    /// Responses so far; it stands for the number of a notification, which is authentic and rises.
    responses: u32,
}

/// Requests that may wait for responses at once.
const MAX_ASKED: usize = 64;

impl OscoreClient {
    pub(super) fn new(stored: StoredContext) -> Self {
        Self { stored, asked: Vec::new(), rederived: false }
    }

    /// True if new keys are to be derived before anything is asked (RFC 8613, appendix B.2).
    pub(super) fn is_lost(&self) -> bool {
        self.stored.is_lost()
    }

    /// True if a request is to be sent again under other keys than before.
    pub(super) fn begins_anew(&self, answer: &Result<Response, ClientError>) -> bool {
        match answer {
            Ok(reply) => reply.code == Code::UNAUTHORIZED && self.rederived,
            Err(ClientError::NotProtected { .. }) => self.stored.is_lost(),
            Err(_) => false,
        }
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
        self.rederived = false;
        self.stored.context.protect_request(crypto, frame).map_err(|stop| match stop {
            ProtectError::Full => ClientError::TooLong { max: frame.room() },
            other => unprotectable(other),
        })
    }

    /// Keeps what the response to a request is to be compared with.
    pub(super) fn wait(&mut self, request: RequestId, pending: Pending, message: &[u8]) {
        let outside = MessageRef::parse(message).map_or((Code::EMPTY, Vec::new()), |message| {
            (message.code(), message.option(OptionNumber::OSCORE).unwrap_or(&[]).to_vec())
        });
        if self.asked.len() >= MAX_ASKED {
            self.asked.remove(0);
        }
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

    /// What is inside a response.
    pub(super) fn unprotect(
        &mut self,
        crypto: &mut HostCrypto,
        request: RequestId,
        datagram: &mut [u8],
    ) -> Result<Response, Untaken> {
        let index = self.asked.iter().position(|asked| asked.request == request).ok_or(UnprotectError::Replayed)?;
        let asked = self.asked.get_mut(index).ok_or(UnprotectError::Replayed)?;
        let code = MessageRef::parse(datagram).map(|message| message.code());
        let taken = self.stored.take_response(crypto, &mut asked.pending, datagram);
        if let Err(Untaken::Refused(UnprotectError::Unprotected)) = taken
            && let Ok(Code::UNAUTHORIZED | Code::BAD_REQUEST) = code
        {
            // Perhaps it has lost our keys, or we have those of another time; at worst this costs two messages.
            self.stored.lose();
        }
        let (message, rederived) = taken?;
        self.rederived = rederived;
        let mut reply = Response::new(&message);
        asked.responses = asked.responses.wrapping_add(1);
        let number = asked.responses.to_be_bytes();
        let observe = reply.options.iter_mut().find(|(number, _)| *number == OptionNumber::OBSERVE);
        match observe {
            // Inside it is empty: the order is that of the authentic numbers (RFC 8613, section 4.1.3.5.2).
            Some((_, value)) => *value = number.get(1..).unwrap_or(&[]).to_vec(),
            None => {
                self.asked.swap_remove(index);
            }
        }
        Ok(reply)
    }
}

fn unprotectable(stop: ProtectError) -> ClientError {
    ClientError::System(std::io::Error::other(format!("the request cannot be protected: {stop:?}")))
}
