//! Requests that protect themselves (OSCORE, RFC 8613), at the client.

use super::{Client, ClientError, Reply};
use crate::contexts::StoredContext;
use crate::provider::HostCrypto;
use std::net::SocketAddr;
use tegmen::buf::Frame;
use tegmen::coap::{Code, MessageRef, OptionNumber, RequestId};
use tegmen::oscore::{Pending, Refused, Stop};

/// The context of a client, and what was asked under it.
pub(super) struct Objects {
    stored: StoredContext,
    asked: Vec<Asked>,
}

struct Asked {
    request: RequestId,
    pending: Pending,
    /// Responses so far; it stands for the number of a notification, which is authentic and rises.
    responses: u32,
}

/// Requests that may wait for responses at once.
const MAX_ASKED: usize = 64;

impl Objects {
    pub(super) fn new(stored: StoredContext) -> Self {
        Self { stored, asked: Vec::new() }
    }

    /// Protects the request in `frame`.
    pub(super) fn protect(&mut self, crypto: &mut HostCrypto, frame: &mut Frame<'_>) -> Result<Pending, ClientError> {
        self.stored.check_expiry().map_err(ClientError::Context)?;
        if self.stored.context.lease().left() == 0 {
            self.stored.renew().map_err(ClientError::Context)?;
        }
        self.stored.context.protect_request(crypto, frame).map_err(|stop| match stop {
            Stop::Full => ClientError::TooLong { max: frame.room() },
            other => ClientError::System(std::io::Error::other(format!("the request cannot be protected: {other:?}"))),
        })
    }

    /// Keeps what the response to a request is to be compared with.
    pub(super) fn wait(&mut self, request: RequestId, pending: Pending) {
        if self.asked.len() >= MAX_ASKED {
            self.asked.remove(0);
        }
        self.asked.push(Asked { request, pending, responses: 0 });
    }

    pub(super) fn forget(&mut self, request: RequestId) {
        self.asked.retain(|asked| asked.request != request);
    }

    /// What is inside a response.
    pub(super) fn unprotect(
        &mut self,
        crypto: &mut HostCrypto,
        request: RequestId,
        datagram: &mut [u8],
    ) -> Result<Reply, Refused> {
        let index = self.asked.iter().position(|asked| asked.request == request).ok_or(Refused::Replayed)?;
        let asked = self.asked.get_mut(index).ok_or(Refused::Replayed)?;
        let message = self.stored.context.unprotect_response(crypto, &mut asked.pending, datagram)?;
        let mut reply = Reply::new(&message);
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

impl Client {
    /// Why a response to a protected request is not taken.
    pub(super) fn refused(remote: SocketAddr, refused: Refused, datagram: &[u8]) -> ClientError {
        if refused != Refused::Unprotected {
            return ClientError::NotProtected { remote, detail: "a response that is not authentic" };
        }
        let code = MessageRef::parse(datagram).map_or(Code::EMPTY, |message| message.code());
        let detail = match code {
            Code::UNAUTHORIZED => {
                "4.01: it does not know the context (compare sender_id, recipient_id and id_context of both sides), or takes \
                 the request for a replay"
            }
            Code::BAD_REQUEST => {
                "4.00: it cannot decrypt the request (compare master_secret, master_salt and algorithm)"
            }
            Code::BAD_OPTION => "4.02: it does not know OSCORE",
            _ if code.is_success() => "a response that is not protected; perhaps another server answers there",
            _ => "an error that is not protected",
        };
        ClientError::NotProtected { remote, detail }
    }
}
