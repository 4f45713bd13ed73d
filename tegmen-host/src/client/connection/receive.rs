//! The replies to the requests of a session.

use super::super::arrivals::Arrival;
use super::super::places::Arrived;
use super::Connection;
use crate::client::{ClientError, Response};
use crate::contexts::Untaken;
use std::net::SocketAddr;
use tegmen::coap::{Code, MessageRef, RequestId};
use tegmen::oscore::UnprotectError;

impl Connection<'_> {
    /// Gives a place what arrived for it.
    pub(in crate::client) fn deliver(&mut self, request: RequestId, arrival: Arrival) {
        let Some(at) = self.entry.places.find(request) else { return };
        let arrived = match arrival {
            Arrival::Acknowledged => {
                self.entry.places.answered(at);
                return;
            }
            Arrival::Response(response) => {
                self.is_tried();
                Arrived::Response(response)
            }
            Arrival::Protected(range) => {
                self.is_tried();
                let mut protected = std::mem::take(&mut self.io.arrivals.protected);
                let opened = self.open(at, request, protected.get_mut(range).unwrap_or(&mut []));
                self.io.arrivals.protected = protected;
                opened.map_or_else(Arrived::Refused, Arrived::Response)
            }
            Arrival::Reset => Arrived::Refused(ClientError::Reset { remote: self.entry.remote }),
            Arrival::TimedOut => Arrived::Unanswered,
        };
        self.entry.places.deliver(at, arrived);
    }

    /// Opens a protected response to the request of a place.
    pub(in crate::client) fn open(
        &mut self,
        at: usize,
        request: RequestId,
        message: &mut [u8],
    ) -> Result<Response, ClientError> {
        let Some(oscore) = &mut self.entry.oscore else {
            return Err(ClientError::Closed { remote: self.entry.remote });
        };
        let code = MessageRef::parse(message).map_or(Code::EMPTY, |message| message.code());
        let (opened, again) = oscore.unprotect(&mut self.io.environment.crypto, request, message);
        if let Some(place) = self.entry.places.get(at) {
            place.again = again;
        }
        opened.map_err(|untaken| refused(self.entry.remote, untaken, code))
    }
}

/// Why a response to a protected request is not taken.
fn refused(remote: SocketAddr, untaken: Untaken, code: Code) -> ClientError {
    let refused = match untaken {
        Untaken::Refused(refused) => refused,
        Untaken::NotKept(error) => return ClientError::Context(error),
    };
    if refused != UnprotectError::Unprotected {
        return ClientError::NotProtected { remote, detail: "a response that is not authentic" };
    }
    let detail = match code {
        Code::UNAUTHORIZED => {
            "4.01: it does not know the context (compare sender_id, recipient_id and id_context of both sides), or takes \
             the request for a replay"
        }
        Code::BAD_REQUEST => "4.00: it cannot decrypt the request (compare master_secret, master_salt and algorithm)",
        Code::BAD_OPTION => "4.02: it does not know OSCORE",
        _ if code.is_success() => "a response that is not protected; perhaps another server answers there",
        _ => "an error that is not protected",
    };
    ClientError::NotProtected { remote, detail }
}
