//! Answers requests.

use super::Node;
use super::application::{Application, Deferred, DeferredRequest};
use super::blockwise::{serve_in_blocks, with_whole_body};
use super::bodies::{Bodies as _, Operation};
use super::error::SendError;
use super::features::{ExchangeOf, Features};
use super::notify::{deregister, register};
use super::observers::Observers as _;
use super::oscore::{Opened, Oscore};
use super::send::Protect;
use crate::buf::Frame;
use crate::coap::exchange::{Exchanges, PeerExchanges};
use crate::coap::handler::{Request, Served, heading, serve};
use crate::coap::message::{BuildError, empty_message};
use crate::coap::storage::{ExchangeStorage, Repeat};
use crate::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use crate::counters::Discard;
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::Peers;
use crate::identity::{Identity, PeerId, Protection};
use crate::oscore::{RequestNonce, UnprotectError};

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Writes the response to a deferred request into `out`, protected, as a confirmable message; `write` adds its options
    /// and payload. It is protected with OSCORE if the request was. The node sends it again until it is acknowledged. Returns
    /// the length of the datagram to send. The length is 0 if the response waits in the node's [`Queue`](super::Queue), or the client does not want it (RFC 7967).
    ///
    /// # Errors
    /// [`SendError`]; nothing must then be sent. After [`SendError::Busy`] the response may be sent later: it returns the
    /// right to answer.
    pub fn respond<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        mut deferred: Deferred<ExchangeOf<F>>,
        code: Code,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<usize, (SendError, Deferred<ExchangeOf<F>>)> {
        if deferred.no_response.suppresses(code) {
            return Ok(0);
        }
        let (peer, token) = (deferred.peer, deferred.token);
        // A response that is not sent may have taken the nonce. The next attempt then takes a number of our own.
        let protect = match &mut deferred.exchange {
            Some((exchange, nonce)) => Protect::Response(&*exchange, nonce.take()),
            None => Protect::Nothing,
        };
        let sent = self.send(cx, peer, (MessageType::Confirmable, code), token.as_bytes(), protect, write, out);
        sent.map(|(_, len)| len).map_err(|error| (error, deferred))
    }
}

/// Returns the effect of repeating a request that an application answers. A block that others follow is only put to those
/// before it, and the context of a protected request refuses a second copy.
#[inline]
pub(super) fn effect(message: &MessageRef<'_>, is_protected: bool) -> Repeat {
    match message.block(OptionNumber::BLOCK1) {
        _ if is_protected => Repeat::Idempotent,
        Ok(Some(block)) if block.more => Repeat::Idempotent,
        _ => Repeat::of(message.code()),
    }
}

/// The sender of a request, and the protection of its response.
pub(super) struct Sender<X> {
    pub(super) identity: Identity,
    /// The request as OSCORE opened it, and the right to answer under its nonce.
    pub(super) exchange: Option<(X, RequestNonce)>,
    /// The bytes behind the response that its protection takes.
    pub(super) tailroom: usize,
}

/// Writes the response to a request into `frame`, and keeps it for a repetition of the request. A request that must not be
/// executed twice is refused with 5.03 if there is no space to remember it.
#[inline]
pub(super) fn answer<C: Crypto, S: ExchangeStorage, F: Features, P>(
    cx: &mut Cx<'_, C>,
    peer: PeerId,
    (exchanges, storage, features): (&mut Exchanges<S>, &mut S, &mut F),
    (message, key): (MessageRef<'_>, S::Key),
    Sender { identity, mut exchange, tailroom }: Sender<ExchangeOf<F>>,
    application: &mut impl Application<ExchangeOf<F>, P>,
    frame: &mut Frame<'_>,
) {
    let Some((policy, handler)) = application.server() else {
        if message.message_type() == MessageType::Confirmable {
            let _ = frame.append(&empty_message(MessageType::Reset, message.message_id()));
        }
        return;
    };
    let own_id = exchanges.message_id();
    // Its context refuses a second copy of a protected request.
    let repeat = match &exchange {
        Some(_) => Repeat::Idempotent,
        None if F::Bodies::IS_ON => effect(&message, false),
        None => Repeat::of(message.code()),
    };
    if !exchanges.has_room(storage, cx.now, repeat) {
        let (message_type, message_id) = heading(&message, own_id);
        let _ = Builder::new(frame, message_type, Code::SERVICE_UNAVAILABLE, message_id, message.token());
        if F::Oscore::IS_ON {
            protect(cx, features.oscore().0, exchange, (message_type, message_id), message.token(), frame);
        }
        return;
    }
    let mut request = Request::new(message, identity);
    let registration = exchange.as_ref().map(|(exchange, _)| (*exchange, identity.principal));
    let mut registers = false;
    if F::Observers::PLACES > 0 {
        (request, registers) = register(features.observers(), peer, request, registration);
    }
    let served = if F::Bodies::IS_ON {
        let (mut served, transfer) = (Served::NoRoom, (cx.now, Operation::of(peer, &request)));
        frame.reserving(tailroom, |frame| {
            served = serve_in_blocks(transfer, features.bodies(), request, policy, handler, own_id, frame);
        });
        served
    } else {
        serve(request, policy, handler, own_id, frame)
    };
    if registers && !matches!(served, Served::Responded { observed: true, .. }) {
        deregister(features.observers(), peer, message.token(), registration.as_ref());
    }
    if F::Bodies::IS_ON {
        let operation = Operation::of(peer, &Request::new(message, identity));
        if let Served::Deferred(token) = served {
            let message = &with_whole_body(message, features.bodies().body(&operation));
            application.on_deferred(DeferredRequest { peer, token, message, exchange: exchange.take() });
        }
        features.bodies().release(&operation);
    } else if let Served::Deferred(token) = served {
        application.on_deferred(DeferredRequest { peer, token, message: &message, exchange: exchange.take() });
    }
    if F::Oscore::IS_ON {
        protect(cx, features.oscore().0, exchange, heading(&message, own_id), message.token(), frame);
    }
    exchanges.keep_reply(storage, cx.now, key, repeat, frame.bytes());
}

/// Protects the response in `frame` with OSCORE. An acknowledgement or a Reset is empty and has no protection.
fn protect<C: Crypto, O: Oscore>(
    cx: &mut Cx<'_, C>,
    oscore: &mut O,
    exchange: Option<(O::Exchange, RequestNonce)>,
    head: (MessageType, u16),
    token: &[u8],
    frame: &mut Frame<'_>,
) {
    let Some((exchange, nonce)) = exchange else { return };
    let responds = MessageRef::parse(frame.bytes()).is_ok_and(|message| message.code().is_response());
    if responds && oscore.protect_response(cx.crypto, &exchange, Some(nonce), frame).is_err() {
        refuse(Code::INTERNAL_SERVER_ERROR, head, token, frame);
    }
}

/// Opens a request with an OSCORE option, and answers the request inside. A request that does not open is refused. The
/// refusal is not kept, because anybody can cause it.
pub(super) fn answer_protected<C: Crypto, S: ExchangeStorage, F: Features, P>(
    cx: &mut Cx<'_, C>,
    peer: PeerId,
    (exchanges, storage, features): (&mut Exchanges<S>, &mut S, &mut F),
    (datagram, key): (&mut [u8], S::Key),
    tailroom: usize,
    application: &mut impl Application<ExchangeOf<F>, P>,
    frame: &mut Frame<'_>,
) {
    frame.indent(F::Oscore::OVERHEAD);
    let Ok(outside) = MessageRef::parse(datagram) else { return };
    let (head, token) = (heading(&outside, exchanges.message_id()), Token::new(outside.token()));
    match features.oscore().0.unprotect_request(cx.crypto, peer, datagram) {
        Ok(Opened::Fresh { message, principal, exchange, nonce }) => {
            let identity = Identity { principal, protection: Protection::Oscore };
            let tailroom = tailroom.saturating_add(F::Oscore::OVERHEAD);
            let sender = Sender { identity, exchange: Some((exchange, nonce)), tailroom };
            answer(cx, peer, (exchanges, storage, features), (message, key), sender, application, frame);
        }
        Ok(Opened::Unverified(exchange)) => {
            if features.oscore().0.write_challenge(cx.crypto, &exchange, head, &token, frame).is_err() {
                refuse(Code::INTERNAL_SERVER_ERROR, head, token.as_bytes(), frame);
            }
            exchanges.keep_reply(storage, cx.now, key, Repeat::Idempotent, frame.bytes());
        }
        Err(reason) => {
            cx.counters.discard(discard(reason));
            refuse(reason.code(), head, token.as_bytes(), frame);
        }
    }
}

/// Returns the reason under which a message is counted that does not open.
pub(super) const fn discard(reason: UnprotectError) -> Discard {
    match reason {
        UnprotectError::Unprotected | UnprotectError::BadOption | UnprotectError::Malformed => Discard::Malformed,
        UnprotectError::UnknownContext => Discard::UnknownPeer,
        UnprotectError::Replayed => Discard::Replayed,
        UnprotectError::NotAuthentic => Discard::NotAuthentic,
    }
}

/// Writes an error that is not protected, and that no cache keeps (RFC 8613, section 8.2).
fn refuse(code: Code, (message_type, message_id): (MessageType, u16), token: &[u8], frame: &mut Frame<'_>) {
    frame.truncate(0);
    let built = Builder::new(frame, message_type, code, message_id, token);
    let _ = built.and_then(|mut builder| builder.uint(OptionNumber::MAX_AGE, 0));
}
