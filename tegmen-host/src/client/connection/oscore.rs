//! Requests with OSCORE (RFC 8613): the derivation of new keys, and responses that are refused.

use super::Part;
use crate::client::{Client, ClientError, Request};
use crate::contexts::Untaken;
use std::net::SocketAddr;
use tegmen::coap::{Code, MessageRef};
use tegmen::oscore::UnprotectError;

impl Client {
    /// Has new keys derived: request #1 asks for nothing, since a server may deliver it to its application.
    pub(super) async fn rederive(&mut self) -> Result<(), ClientError> {
        let Some(oscore) = &mut self.oscore else { return Ok(()) };
        oscore.begin_rederivation(&mut self.crypto)?;
        let ask = Request {
            method: Code::GET,
            path: &[],
            query: &[],
            content_format: None,
            accept: None,
            payload: &[],
            options: &[],
        };
        let (request, start) = self.begin(&ask, Part::default()).await?;
        let answer = self.response_to(request, start.after(self.config.timeout)).await;
        self.forget(request);
        match &self.oscore {
            Some(oscore) if oscore.is_lost() => {
                Err(answer.err().unwrap_or(ClientError::NoNewKeys { remote: self.remote }))
            }
            _ => Ok(()),
        }
    }

    /// Why a response to a protected request is not taken.
    pub(super) fn refused(remote: SocketAddr, untaken: Untaken, datagram: &[u8]) -> ClientError {
        let refused = match untaken {
            Untaken::Refused(refused) => refused,
            Untaken::NotKept(error) => return ClientError::Context(error),
        };
        if refused != UnprotectError::Unprotected {
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
