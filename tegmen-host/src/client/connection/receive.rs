//! The replies to the requests of a session.

use super::super::arrivals::Arrival;
use super::super::oscore::OscoreClient;
use super::super::places::Arrived;
use super::Connection;
use crate::client::{ClientError, Response};
use std::net::SocketAddr;
use tegmen::coap::{Code, MessageRef, OptionNumber, RequestId};
use tegmen::node::Oscore as _;
use tegmen::oscore::UnprotectError;

impl Connection<'_> {
    /// Delivers a reply to the request that waits for it.
    pub(in crate::client) fn deliver(&mut self, request: RequestId, arrival: Arrival) {
        let Some(at) = self.entry.places.find(request) else { return };
        let arrived = match arrival {
            Arrival::Response(response) if self.is_unasked(at, &response) => {
                self.is_tried();
                Arrived::Refused(self.refused(UnprotectError::UnknownContext, response.code))
            }
            Arrival::Acknowledged => {
                self.entry.places.answered(at);
                return;
            }
            Arrival::Response(response) => {
                self.is_tried();
                self.note_repetition(at, request);
                Arrived::Response(response)
            }
            Arrival::Refused(reason, code) => {
                self.is_tried();
                self.note_repetition(at, request);
                Arrived::Refused(self.refused(reason, code))
            }
            Arrival::Reset => Arrived::Refused(ClientError::Reset { remote: self.entry.remote }),
            Arrival::TimedOut => Arrived::Unanswered,
        };
        self.entry.places.deliver(at, arrived);
    }

    /// True if `response` is protected by OSCORE, but the request with the index `at` was not.
    fn is_unasked(&mut self, at: usize, response: &Response) -> bool {
        self.oscore().is_none()
            && response.option(OptionNumber::OSCORE).is_some()
            && !self.entry.places.get(at).is_some_and(|place| place.is_forwarded)
    }

    /// Opens the protected response to the request with the index `at`. The response was assembled from the blocks into
    /// which a proxy had cut it.
    pub(in crate::client) fn open(
        &mut self,
        at: usize,
        request: RequestId,
        message: &mut [u8],
    ) -> Result<Response, ClientError> {
        let code = MessageRef::parse(message).map_or(Code::EMPTY, |message| message.code());
        let (oscore, crypto) = (&mut self.io.node.features.oscore, &mut self.io.environment.crypto);
        let opened = oscore.unprotect_response(crypto, self.entry.peer, request, message);
        let opened = opened.map(|message| Response::new(&message));
        self.note_repetition(at, request);
        opened.map_err(|reason| self.refused(reason, code))
    }

    /// Sets the field `again` of the table entry with the index `at`: true if `request` has to be sent again under
    /// other keys, and false otherwise.
    fn note_repetition(&mut self, at: usize, request: RequestId) {
        let again = self.oscore().is_some_and(|oscore| oscore.is_again(request));
        if let Some(place) = self.entry.places.get(at) {
            place.again = again;
        }
    }

    /// Returns the error for a response that the client does not accept, because of the OSCORE protection of the
    /// request or of the response.
    fn refused(&mut self, reason: UnprotectError, code: Code) -> ClientError {
        let is_in_group = self.oscore().is_some_and(|oscore| oscore.is_of_group());
        match self.oscore().map(OscoreClient::take_problem) {
            Some(Some(problem)) => ClientError::Context(problem),
            Some(None) => match self.oscore().and_then(OscoreClient::take_peer_error) {
                Some(detail) => ClientError::Edhoc { remote: self.entry.remote, detail },
                None => refused(self.entry.remote, reason, (code, is_in_group)),
            },
            None => {
                let detail = "a response with OSCORE to a request without it";
                ClientError::NotProtected { remote: self.entry.remote, detail }
            }
        }
    }
}

/// Returns the error for a response with this code that cannot be opened. `is_in_group` is true if the request was
/// protected with the context of a group.
fn refused(remote: SocketAddr, reason: UnprotectError, (code, is_in_group): (Code, bool)) -> ClientError {
    if reason != UnprotectError::Unprotected {
        return ClientError::NotProtected { remote, detail: "a response that is not authentic" };
    }
    let detail = match code {
        Code::UNAUTHORIZED if is_in_group => {
            "4.01: it does not know these keys of the group: get the current keys with `tegmen group update`, or compare group_id of \
             both members if the group has no Group Manager; otherwise it takes the request for a replay"
        }
        Code::BAD_REQUEST if is_in_group => {
            "4.00: it cannot decrypt the request: is this the address of the member that --member names, and do both members have \
             the same keys (`tegmen group update`)?"
        }
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
