//! EDHOC at a client (RFC 9528): a session agrees on an OSCORE context with its server before the first request.

use super::connection::{Message, Turn};
use super::session_context::SessionContext;
use super::{ClientError, Request, Response, Session};
use crate::contexts::StoredContext;
use crate::edhoc::{EdhocKeys, context_of, peer_error};
use tegmen::coap::{Code, OptionNumber};
use tegmen::crypto::Crypto as _;
use tegmen_edhoc::transfer::{Body, IDENTIFIED_FORMAT, PATH};
use tegmen_edhoc::{ConnectionId, Failure, Initiator};

impl Session {
    /// Agrees on an OSCORE context. The caller must hold the lock `renewal` of the session, so that only one request at
    /// a time agrees on a context.
    pub(super) async fn agree(&self, keys: &EdhocKeys) -> Result<(), ClientError> {
        let (initiator, message_1) = self
            .with(|connection| {
                // What was agreed on before is unknown to the server.
                connection.io.node.features.oscore.remove(connection.entry.key);
                let crypto = &mut connection.io.environment.crypto;
                let mut random = [0];
                crypto.random(&mut random);
                let recipient_id = ConnectionId::new(&random).ok_or(Failure::ConnectionId)?;
                Initiator::begin(crypto, recipient_id)
            })
            .map_err(|failure| self.failed(failure))?;
        let message_2 = self.transfer(&Body::First(message_1.as_bytes())).await?;
        let (agreed, message_3, message_4) = self
            .with(|connection| {
                let crypto = &mut connection.io.environment.crypto;
                initiator.finish(crypto, &message_2.payload, &keys.identity, |id| {
                    let meant = keys.trusted.iter().filter(|credential| credential.is_meant_by(id));
                    meant.copied().collect::<Vec<_>>()
                })
            })
            .map_err(|failure| self.failed(failure))?;
        let stored = StoredContext::of_agreed(&context_of(&agreed, None)).map(Box::new).map(SessionContext::Pair);
        let stored = stored.map_err(|_| self.failed(Failure::Unsupported))?;
        let coap = &self.config().coap;
        let combined = keys.combined && coap.confirmable && coap.nstart <= 1;
        if !combined {
            let response = self.transfer(&Body::Third(agreed.sender_id, message_3.as_bytes())).await?;
            // A server need not send message_4.
            if !response.payload.is_empty() {
                let verified =
                    self.with(|connection| message_4.verify(&mut connection.io.environment.crypto, &response.payload));
                verified.map_err(|failure| self.failed(failure))?;
            }
        }
        self.with(|connection| {
            let first = if combined { message_3.as_bytes().to_vec() } else { Vec::new() };
            connection.protect_with_agreed(stored, first);
        });
        Ok(())
    }

    /// Sends an EDHOC message in a separate request without OSCORE.
    async fn transfer(&self, body: &Body<'_>) -> Result<Response, ClientError> {
        let mut storage = [0; 320];
        let body = body.write(&mut storage).map_err(|_| self.failed(Failure::TooLong))?;
        let request = Request::new(Code::POST, PATH).content_format(IDENTIFIED_FORMAT).payload(body);
        let place = self.place();
        let response = match self.begin(&place, &Message::Agreement(&request)).await? {
            Turn::Sent(start) => self.response_to(&place, start).await?,
            // Such a message never waits for keys.
            Turn::KeysLost => return Err(self.failed(Failure::Unsupported)),
        };
        if response.code.is_success() {
            return Ok(response);
        }
        let detail = peer_error(response.uint(OptionNumber::CONTENT_FORMAT), &response.payload);
        let detail = detail.unwrap_or_else(|| match response.code {
            Code::NOT_FOUND => "it has no EDHOC (4.04)".to_owned(),
            code => format!("it answers {code}"),
        });
        Err(ClientError::Edhoc { remote: self.remote(), detail })
    }

    fn failed(&self, failure: Failure) -> ClientError {
        let detail = match failure {
            Failure::UnknownCredential => {
                "its credential is none of those that are trusted: compare it with that of the server".to_owned()
            }
            Failure::NotAuthentic => {
                "it does not prove that it has the private key of its credential: somebody else may answer".to_owned()
            }
            Failure::CipherSuite | Failure::Method => "it wants another method or cipher suite".to_owned(),
            other => format!("its message is refused ({other:?})"),
        };
        ClientError::Edhoc { remote: self.remote(), detail }
    }
}
