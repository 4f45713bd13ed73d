//! Requests to groups (RFC 7252, section 8). A request is one message, and each member sends one response. If the
//! request registers the node as an observer (RFC 7641), each member sends many responses.

use super::Node;
use super::application::Application;
use super::error::SendError;
use super::features::{ExchangeOf, Features, StateOf};
use super::group_requests::GroupRequests as _;
use super::oscore::Oscore as _;
use super::request_head::{RequestHead, RequestToken};
use super::serve::discard;
use crate::address::Path;
use crate::buf::{Frame, Full, copy};
use crate::coap::BuildError;
use crate::coap::PeerExchanges;
use crate::coap::observe::REGISTER;
use crate::coap::{Builder, MessageRef, MessageType, OptionNumber, RequestId, Token, empty_message};
use crate::counters::{Discard, bump};
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::{Identity, Principal, Protection};
use crate::time::Instant;

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Writes into `out` a non-confirmable request to a group. `write` adds the options and the payload of the request.
    /// The request is in plaintext or protected with OSCORE ([`RequestHead::with_oscore`] and
    /// [`Oscore::GROUPS`](super::Oscore::GROUPS)). The owner of the node sends the datagram once to the address of the
    /// group. Returns the id of the request and the length of the datagram. Ids of requests to groups are numbered
    /// separately from those of other requests.
    ///
    /// Until the time `until`, the node passes the response of each member to [`Application::on_member_response`].
    /// Members send their responses after a random delay (the leisure), so `until` must allow for this delay and for
    /// the delays of the network. The node reports no event when the time `until` has come.
    ///
    /// If a message has the Message ID of an earlier message of the same sender, the receiver treats the later message
    /// as a repetition of the earlier message (RFC 7252, section 4.5). The node does not know the members of the group.
    /// So a later request to one member has, with a probability of 1 in 65,536, the same Message ID as a request to the
    /// group. The request to the member then gets no response.
    ///
    /// [`GroupRequests::close`](super::GroupRequests::close) ends a request before the time `until`.
    ///
    /// # Observing a group
    ///
    /// A request whose Observe option has the value 0 registers the node as observer at each member that allows the
    /// observation of its resource (RFC 7641). This requires
    /// [`GroupRequests::OBSERVES`](super::GroupRequests::OBSERVES). The owner of the node draws the token of 7 bytes at
    /// random ([`RequestHead::with_token`]). Until the time `until`, the node also passes the notifications of the
    /// members to [`Application::on_member_response`], except late notifications.
    ///
    /// Before Max-Age of a response expires, the owner sends the request again with the same token
    /// (draft-ietf-core-groupcomm-bis). Then new members register the node, and members that lost the registration
    /// register it again. Each call returns a new id, which replaces the earlier id of the request. A request with the
    /// same token whose Observe option has the value 1 deregisters the node.
    ///
    /// # Errors
    /// * [`SendError::Busy`] if there is no memory for another request to a group, or if the owner's token does not
    ///   have 7 bytes.
    /// * [`SendError::TooLong`].
    ///
    /// After an error, send nothing. If the owner called this function to send an open request again, the error also
    /// ends the open request.
    pub fn request_group<'t, C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        until: Instant,
        head: impl Into<RequestHead<'t>>,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<(RequestId, usize), SendError> {
        let mut frame = Frame::new(out, 0);
        let head = head.into();
        let with_oscore = F::Oscore::GROUPS && head.with_oscore;
        if with_oscore {
            frame.indent(F::Oscore::OVERHEAD);
        }
        let request = self.write_group_request(cx, until, head, write, &mut frame)?;
        if with_oscore {
            if let Err(error) = self.features.oscore().0.protect_group_request(cx.crypto, request, &mut frame) {
                self.features.group_requests().close(request);
                return Err(error);
            }
            frame.move_to_front();
        }
        Ok((request, frame.len()))
    }

    /// Creates a request to a group, and writes its message into `frame`.
    pub(super) fn write_group_request<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        until: Instant,
        head: RequestHead<'_>,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        frame: &mut Frame<'_>,
    ) -> Result<RequestId, SendError> {
        let mut random = [0; 2 + TOKEN];
        cx.crypto.random(&mut random);
        let [high, low, token @ ..] = random;
        let requests = self.features.group_requests();
        let token = match head.token {
            RequestToken::Given(token) if F::GroupRequests::OBSERVES && token.len() == TOKEN => Token::new(token),
            RequestToken::Given(_) => return Err(SendError::Busy),
            RequestToken::Drawn => {
                let token = Token::new(&token);
                // If the random generator repeats a token, the responses to two requests must not be confused.
                if requests.find(cx.now, |_, open| *open == token).is_some() {
                    return Err(SendError::Busy);
                }
                token
            }
        };
        let request = requests.open(cx.now, until, token, u16::from_be_bytes([high, low]))?;
        let head = (MessageType::NonConfirmable, head.code, message_id(request));
        let built =
            Builder::new(frame, head.0, head.1, head.2, token.as_bytes()).and_then(|mut builder| write(&mut builder));
        if let Err(error) = built {
            requests.close(request);
            return Err(error.into());
        }
        if F::GroupRequests::OBSERVES
            && let Ok(message) = MessageRef::parse(frame.bytes())
        {
            requests.observe(request, message.uint(OptionNumber::OBSERVE) == Some(REGISTER));
        }
        Ok(request)
    }

    /// Processes a message that arrived over `path` without a session, if it answers a request to a group. Decrypts a
    /// response with OSCORE in place. If the message needs an acknowledgement, writes the acknowledgement into `out`.
    /// Returns the length of the acknowledgement, or 0 if there is none. The caller sends the acknowledgement over
    /// `path`. Returns `None` for every other message.
    ///
    /// [`Self::handle_plain`] calls this function first. An owner that drops messages from unknown addresses must call
    /// this function before it drops a message, because a member needs no entry in the peer table.
    pub fn handle_member<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        path: &Path,
        datagram: &mut [u8],
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
            // A member must not reject the request (RFC 7252, section 8.1). A rejection ends nothing, not even an
            // exchange with this peer whose message has the same Message ID.
            MessageType::Reset => {
                let is_it = |request, _: &Token| message_id(request) == message.message_id();
                return requests.find(cx.now, is_it).map(|_| 0);
            }
            MessageType::Acknowledgement => return None,
        };
        let has_oscore = message.option(OptionNumber::OSCORE).is_some();
        if !message.code().is_response() || has_oscore && !F::Oscore::GROUPS {
            return None;
        }
        let request = requests.find(cx.now, |_, token| token.as_bytes() == message.token())?;
        let must_have = F::Oscore::GROUPS && self.features.oscore().0.is_group_protected(request);
        if self.features.group_requests().protection(request).is_some() || has_oscore != must_have {
            // Either the request was protected and its response is not, or the response is protected and the request
            // was not.
            return None;
        }
        let acknowledgement = empty_message(MessageType::Acknowledgement, message.message_id());
        let (message, who) = match has_oscore {
            false => (message, Identity { principal: Principal::NOBODY, protection: Protection::Plain }),
            true => match self.features.oscore().0.unprotect_member(cx.crypto, request, datagram) {
                Ok((message, principal)) => (message, Identity { principal, protection: Protection::Oscore }),
                Err(reason) => {
                    cx.counters.discard(discard(reason));
                    return Some(0);
                }
            },
        };
        let requests = self.features.group_requests();
        let notification = notification::<F>(&message);
        match requests.note(request, &path.remote, (notification, cx.now)) {
            Ok(true) => application.on_member_response(request, (path, who), &message),
            Ok(false) => bump(&mut cx.counters.duplicates),
            Err(Full) => {
                // A confirmable response will be sent again, because it is not acknowledged.
                cx.counters.discard(Discard::NoRoom);
                return Some(0);
            }
        }
        let is_written = confirmable && copy(out, &acknowledgement).is_ok();
        Some(if is_written { acknowledgement.len() } else { 0 })
    }
}

/// Returns the Observe number of a notification. Returns `None` for a response without this number. Also returns `None`
/// for an error, because an error is the last response of an observation.
#[inline]
pub(super) fn notification<F: Features>(response: &MessageRef<'_>) -> Option<u32> {
    if !F::GroupRequests::OBSERVES || !response.code().is_success() {
        return None;
    }
    response.uint(OptionNumber::OBSERVE)
}

/// Number of bytes of the token of a request to a group. The tokens that a node draws for requests to peers have other
/// lengths, so the node can distinguish the responses to both kinds of requests.
const TOKEN: usize = 7;

/// Returns the Message ID of a request to a group.
const fn message_id(request: RequestId) -> u16 {
    request.0 as u16
}
