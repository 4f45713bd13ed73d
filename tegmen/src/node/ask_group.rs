//! Requests to groups (RFC 7252, section 8): one message, and a response of each member.

use super::Node;
use super::application::Application;
use super::error::SendError;
use super::features::{ExchangeOf, Features, StateOf};
use super::group_requests::GroupRequests as _;
use crate::address::Path;
use crate::buf::{Frame, Full, copy};
use crate::coap::BuildError;
use crate::coap::PeerExchanges;
use crate::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, RequestId, Token, empty_message};
use crate::counters::{Discard, bump};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::{Identity, Principal, Protection};
use crate::time::Instant;

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Writes a request to a group into `out`, in clear and not confirmable; `write` adds its options and payload. The owner
    /// sends it to the address of the group once. Returns the request, whose number counts the requests to groups alone, and
    /// the length of the datagram.
    ///
    /// Until the time `until`, the response of each member comes to [`Application::on_member_response`]. Allow for the leisure
    /// of the members and for the delays of the network; there is no event at the end.
    ///
    /// A member takes a message for a repetition if it has the Message ID of an earlier one (RFC 7252, section 4.5). The node does
    /// not know the members, so a request to one of them can have the Message ID of a request to the group, by a chance of 1 to
    /// 65,536. It then has no response.
    ///
    /// [`GroupRequests::close`](super::GroupRequests::close) ends the request before.
    ///
    /// # Errors
    /// [`SendError::Busy`] if as many requests to groups are open as there is space for, and [`SendError::TooLong`]; nothing must
    /// then be sent.
    pub fn request_group<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        until: Instant,
        code: Code,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        let mut frame = Frame::new(out, 0);
        let request = self.write_group_request(cx, until, code, write, &mut frame)?;
        Ok((request, frame.len()))
    }

    /// Opens a request to a group, and writes it into `frame`.
    pub(super) fn write_group_request<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        until: Instant,
        code: Code,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        frame: &mut Frame<'_>,
    ) -> Result<RequestId, SendError> {
        let mut random = [0; 2 + TOKEN];
        cx.crypto.random(&mut random);
        let [high, low, token @ ..] = random;
        let token = Token::new(&token);
        let requests = self.features.group_requests();
        // A generator that repeats itself must not mix the responses to two requests.
        if requests.find(cx.now, |_, open| *open == token).is_some() {
            return Err(SendError::Busy);
        }
        let request = requests.open(cx.now, until, token, u16::from_be_bytes([high, low]))?;
        let head = (MessageType::NonConfirmable, code, message_id(request));
        let built =
            Builder::new(frame, head.0, head.1, head.2, token.as_bytes()).and_then(|mut builder| write(&mut builder));
        if let Err(error) = built {
            requests.close(request);
            return Err(error.into());
        }
        Ok(request)
    }

    /// Takes a message that came in clear over `path`, if it answers a request to a group. Returns the length of the
    /// acknowledgement in `out` that is to be sent back over `path`, 0 if there is none, and `None` for any other message.
    ///
    /// [`Self::handle_plain`] does the same first. An owner that drops messages from unknown addresses calls this before,
    /// because a member needs no entry in the table of peers.
    pub fn handle_member<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        datagram: &[u8],
        application: &mut impl Application<ExchangeOf<F>, StateOf<P>>,
        out: &mut [u8],
    ) -> Option<usize> {
        let requests = self.features.group_requests();
        if !F::GroupRequests::IS_ON || requests.find(cx.now, |_, _| true).is_none() {
            return None;
        }
        let message = MessageRef::parse(datagram).ok()?;
        let confirmable = match message.message_type() {
            MessageType::Confirmable => true,
            MessageType::NonConfirmable => false,
            // A member must not reject the request (RFC 7252, section 8.1). If one does, that ends nothing, nor an exchange with
            // this peer whose message has the same Message ID.
            MessageType::Reset => {
                let is_it = |request, _: &Token| message_id(request) == message.message_id();
                return requests.find(cx.now, is_it).map(|_| 0);
            }
            MessageType::Acknowledgement => return None,
        };
        if !message.code().is_response() || message.option(OptionNumber::OSCORE).is_some() {
            return None;
        }
        let request = requests.find(cx.now, |_, token| token.as_bytes() == message.token())?;
        if requests.protection(request).is_some() {
            // The request was protected, and its response is not.
            return None;
        }
        match requests.note(request, &path.remote) {
            Ok(true) => {
                let nobody = Identity { principal: Principal::NOBODY, protection: Protection::Plain };
                application.on_member_response(request, (path, nobody), &message);
            }
            Ok(false) => bump(&mut cx.counters.duplicates),
            Err(Full) => {
                // A confirmable response comes again, and is not acknowledged.
                cx.counters.discard(Discard::NoRoom);
                return Some(0);
            }
        }
        let acknowledgement = empty_message(MessageType::Acknowledgement, message.message_id());
        let is_written = confirmable && copy(out, &acknowledgement).is_ok();
        Some(if is_written { acknowledgement.len() } else { 0 })
    }
}

/// Bytes of the token of a request to a group. The tokens that a node draws for requests to peers have other lengths, so that
/// no response is taken for one of the other kind.
const TOKEN: usize = 7;

/// Returns the Message ID of a request to a group.
const fn message_id(request: RequestId) -> u16 {
    request.0 as u16
}
