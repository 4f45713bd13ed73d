//! Processes received requests, and writes their responses.

use super::Node;
use super::application::{Answer, Application, Deferred, DeferredRequest, Incoming, Refusal};
use super::blockwise::{self, Step, observe, serve_whole, write_separate};
use super::bodies::{Bodies as _, Operation};
use super::error::SendError;
use super::features::{ExchangeOf, Features, RegistrationOf};
use super::groups::Groups;
use super::leisure::Leisure;
use super::notify::{defer, deregister, register};
use super::observers::Observers as _;
use super::oscore::{Opened, Oscore, Outer};
use super::registration::MemberRegistration;
use super::send::Protect;
use crate::address::Path;
use crate::buf::Frame;
use crate::coap::PeerExchanges;
use crate::coap::handler::{Decided, Request, Served, heading, serve_as};
use crate::coap::observe::{DEREGISTER, REGISTER};
use crate::coap::{Block, Builder, Code, Late, MessageRef, MessageType, NoResponse, OptionNumber, Token};
use crate::coap::{BuildError, empty_message};
use crate::coap::{ExchangeStorage, Repeat};
use crate::counters::Discard;
use crate::crypto::Crypto;
use crate::cx::Cx;
use crate::dtls::roles::Roles;
use crate::endpoint::{Misuse, Peers};
use crate::identity::{Identity, PeerId, Protection};
use crate::oscore::{OpenedRequest, UnprotectError};
use crate::time::{Duration, Instant};

impl<P: Peers<Attached: PeerExchanges>, R: Roles, F: Features> Node<P, R, F> {
    /// Writes into `out` the response to a deferred request, and protects this response. The response is a confirmable
    /// message, or the acknowledgement of the request if the request is not acknowledged yet. `write` adds the payload,
    /// and all options except Observe and Block2. OSCORE protects the response if it protected the request. If OSCORE
    /// fails, the node sends 5.00 without protection.
    ///
    /// If the response is longer than a message and the node has [`Bodies`](super::Bodies), the node stores the
    /// response and sends it in blocks. If there is no memory to store the response, the node sends 5.03 instead. If
    /// the handler let the client observe the resource, a response with 2.05 or 2.03 makes the client an observer, or
    /// is a notification. A response with another code ends the observation.
    ///
    /// The node sends a confirmable response again until it is acknowledged. Returns the length of the datagram to
    /// send. The length is 0 if the response waits in the node's [`Queue`](super::Queue). It is also 0 if the response
    /// is not sent, because the client suppresses the response (RFC 7967), or because the response is an error and the
    /// request was sent to a group (RFC 7252, section 8.2).
    ///
    /// # Errors
    /// [`SendError`]. After an error, send nothing. After [`SendError::Busy`], call this function again later, with the
    /// [`Deferred`] that is returned together with the error.
    pub fn respond<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        mut deferred: Deferred<ExchangeOf<F>>,
        code: Code,
        write: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<usize, (SendError, Deferred<ExchangeOf<F>>)> {
        let number = if deferred.observes { self.conclude(&deferred, code) } else { None };
        if deferred.no_response.suppresses(code) || deferred.to_group && !code.is_success() {
            return Ok(self.acknowledge(cx, &mut deferred, out));
        }
        if F::Groups::IS_ON
            && let Some(sender) = deferred.identity.protection.member()
        {
            return match self.respond_to_member(cx, &deferred, (sender, code, number), write, out) {
                Ok(len) => {
                    if number.is_some() {
                        self.on_responded_to_member(cx.now, &deferred);
                    }
                    Ok(len)
                }
                Err(error) => Err((error, deferred)),
            };
        }
        let (now, peer, token) = (cx.now, deferred.peer, deferred.token);
        let is_protected = deferred.exchange.is_some();
        let reserved = self.reserved::<C>(peer, is_protected, out);
        // A response that was not sent may have used the nonce. The next attempt then uses a new sequence number.
        let protect = match &mut deferred.exchange {
            Some((exchange, nonce)) => Protect::Response(&*exchange, nonce.take()),
            None => Protect::Nothing,
        };
        let transfer = deferred.transfer.as_ref().filter(|_| F::Bodies::IS_ON);
        let write = |features: &mut F, builder: &mut Builder<'_, '_>| match transfer {
            Some((operation, asked)) => {
                write_separate((now, operation, *asked), features.bodies(), number, reserved, write, builder)
            }
            None => {
                write(builder)?;
                if F::Observers::PLACES > 0 { observe(number, builder) } else { Ok(()) }
            }
        };
        let sent = match deferred.late {
            Some(late) => {
                let sent = self.acknowledge_with(cx, peer, (late, code, token), protect, write, out);
                sent.map(|len| (None, len))
            }
            None => {
                let head = (MessageType::Confirmable, code);
                let sent = self.send(cx, peer, head, token.as_bytes(), protect, write, out);
                sent.map(|(id, len)| (Some(id), len))
            }
        };
        match sent {
            Ok((id, len)) => {
                if number.is_some()
                    && let Some(id) = id
                {
                    self.on_responded(&deferred, id);
                }
                Ok(len)
            }
            Err(SendError::Oscore(_)) => self.respond_unprotected(cx, deferred, out),
            Err(error) => Err((error, deferred)),
        }
    }

    /// Writes into `out` the acknowledgement of a deferred request, if the request is not acknowledged yet. Returns the
    /// length of the datagram to send, or 0 if there is no datagram to send.
    fn acknowledge<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        deferred: &mut Deferred<ExchangeOf<F>>,
        out: &mut [u8],
    ) -> usize {
        let Some(late) = deferred.late.take() else { return 0 };
        let mut frame = Frame::new(out, self.endpoint.headroom::<C>(deferred.peer));
        match frame.append(&empty_message(MessageType::Acknowledgement, late.message_id)) {
            Ok(()) => self.reply_late(cx, deferred.peer, late, frame).unwrap_or(0),
            Err(_) => 0,
        }
    }

    /// Writes into `out` a response that is also the acknowledgement of its request. Returns the length of the datagram
    /// to send.
    fn acknowledge_with<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        (late, code, token): (Late, Code, Token),
        protect: Protect<'_, ExchangeOf<F>>,
        write: impl FnOnce(&mut F, &mut Builder<'_, '_>) -> Result<(), BuildError>,
        out: &mut [u8],
    ) -> Result<usize, SendError> {
        let mut frame = Frame::new(out, self.endpoint.headroom::<C>(peer));
        if F::Oscore::IS_ON && !matches!(protect, Protect::Nothing) {
            frame.indent(F::Oscore::OVERHEAD);
        }
        let (message_type, token) = (MessageType::Acknowledgement, token.as_bytes());
        let mut builder = Builder::new(&mut frame, message_type, code, late.message_id, token)?;
        write(&mut self.features, &mut builder)?;
        if F::Oscore::IS_ON
            && let Protect::Response(exchange, nonce) = protect
        {
            let (oscore, _) = self.features.oscore();
            oscore.protect_response(cx.crypto, exchange, nonce, &mut frame)?;
        }
        self.reply_late(cx, peer, late, frame)
    }

    /// Stores a copy of the reply that `frame` contains, so that the node can send the reply again if the peer repeats
    /// the request. Then protects the reply, and returns the length of the datagram.
    fn reply_late<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        peer: PeerId,
        late: Late,
        mut frame: Frame<'_>,
    ) -> Result<usize, SendError> {
        let exchanges = self.endpoint.peers.attached(peer).and_then(PeerExchanges::exchanges);
        let exchanges = exchanges.ok_or(Misuse::NotEstablished)?;
        exchanges.keep_late_reply(&mut self.storage, cx.now, late, frame.bytes());
        self.endpoint.seal(cx, peer, &mut frame)?;
        if F::Oscore::IS_ON {
            frame.move_to_front();
        }
        Ok(frame.len())
    }

    /// Responds with 5.00 without protection to a deferred request, because OSCORE cannot protect the response (RFC
    /// 8613, section 8.3). The sender of the request is then no longer an observer.
    fn respond_unprotected<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        deferred: Deferred<ExchangeOf<F>>,
        out: &mut [u8],
    ) -> Result<usize, (SendError, Deferred<ExchangeOf<F>>)> {
        let code = Code::INTERNAL_SERVER_ERROR;
        if deferred.observes {
            self.conclude(&deferred, code);
        }
        let head = (MessageType::Confirmable, code);
        let write = |_: &mut F, builder: &mut Builder<'_, '_>| builder.uint(OptionNumber::MAX_AGE, 0);
        let sent = self.send(cx, deferred.peer, head, deferred.token.as_bytes(), Protect::Nothing, write, out);
        sent.map(|(_, len)| len).map_err(|error| (error, deferred))
    }
}

/// Returns the effect that a second execution of this request would have. The body of the request may arrive in blocks.
/// The node only stores a block that is not the last block, so a second copy of the block has no further effect.
#[inline]
fn effect(message: &MessageRef<'_>) -> Repeat {
    match message.block(OptionNumber::BLOCK1) {
        Ok(Some(block)) if block.more => Repeat::Idempotent,
        _ => Repeat::of(message.code()),
    }
}

/// The sender of a request, and the data that is needed to protect the response to the request.
pub(super) struct Sender<'p, X: OpenedRequest> {
    pub(super) path: &'p Path,
    pub(super) identity: Identity,
    /// True if the request may be a replay, because the replay window of its session was lost (RFC 9175, section
    /// 2.3).
    pub(super) is_unverified: bool,
    pub(super) to_group: bool,
    /// Number of bytes of the datagram that contained the request.
    pub(super) len: usize,
    /// Number of bytes that the protection adds after the response.
    pub(super) tailroom: usize,
    /// If OSCORE protected the request: the identity of the request in the security context, and the right to answer
    /// the request once with its nonce. Otherwise `None`.
    pub(super) exchange: Option<(X, Option<X::Nonce>)>,
    /// The last block of the request, if a proxy divided the protected request into blocks.
    pub(super) last: Option<Block>,
}

impl<'p, X: OpenedRequest> Sender<'p, X> {
    /// Describes the sender of a request before OSCORE decrypts the request. So the fields [`Self::exchange`] and
    /// [`Self::last`], which OSCORE sets, are `None`. The datagram of the request has `len` bytes.
    #[inline]
    pub(super) const fn new(
        (path, identity): (&'p Path, Identity),
        (is_unverified, to_group): (bool, bool),
        len: usize,
        tailroom: usize,
    ) -> Self {
        Self { path, identity, is_unverified, to_group, len, tailroom, exchange: None, last: None }
    }
}

/// Three parts of a node's memory. The first is the data of one peer, such as its open exchanges. The second is the
/// memory for the CoAP exchanges of all peers. The third is the memory of the node's optional features, such as OSCORE.
type Memory<'a, A, F> = (&'a mut A, &'a mut <A as PeerExchanges>::Storage, &'a mut F);

/// The type of the memory that contains a protected request after it was reassembled from blocks.
type WholeOf<F> = <<F as Features>::Oscore as Oscore>::Whole;

/// The type of the key with which the exchanges of a peer find a received message in their memory.
type KeyOf<A> = <<A as PeerExchanges>::Storage as ExchangeStorage>::Key;

/// Writes into `frame` the response to a request, and stores the response for a repetition of the request. If the
/// request must not be executed twice and there is no space to remember it, the response is 5.03.
#[inline(always)]
pub(super) fn answer<C: Crypto, A: PeerExchanges, F: Features>(
    cx: &mut Cx<'_, C>,
    peer: PeerId,
    (attached, storage, features): Memory<'_, A, F>,
    (message, key): (MessageRef<'_>, KeyOf<A>),
    mut sender: Sender<'_, ExchangeOf<F>>,
    application: &mut impl Application<ExchangeOf<F>, A::State>,
    frame: &mut Frame<'_>,
) {
    let Some(exchanges) = attached.exchanges() else { return };
    if application.server().is_none() {
        if message.message_type() == MessageType::Confirmable {
            let _ = frame.append(&empty_message(MessageType::Reset, message.message_id()));
        }
        return;
    }
    let own_id = exchanges.message_id();
    let head = heading(&message, own_id);
    // The OSCORE context or the group refuses a second copy of a protected request.
    let repeat = match &sender.exchange {
        Some(_) => Repeat::Idempotent,
        None if F::Groups::IS_ON && sender.identity.protection.member().is_some() => Repeat::Idempotent,
        None if F::Bodies::IS_ON => effect(&message),
        None => Repeat::of(message.code()),
    };
    let Sender { path, identity, to_group, .. } = sender;
    let incoming = Incoming { now: cx.now, peer, path, identity, message: &message, to_group };
    let acknowledges = head.0 == MessageType::Acknowledgement;
    let mut late = A::Storage::late(key, repeat).filter(|_| acknowledges && sender.last.is_none());
    let may_be_late = late.is_some();
    let admitted = admit(cx, (attached, storage), &incoming, &sender, repeat, application);
    let admitted = match admitted {
        Ok(()) if F::Groups::IS_ON => challenge_member(features.groups(), &sender),
        other => other,
    };
    let mut answered = match admitted {
        Ok(()) => {
            let memory = (cx.now, &mut *features);
            answer_admitted(memory, peer, message, (&mut sender, head, &mut late), None, application, frame)
        }
        Err((answer, option)) => {
            write_refusal(head, message.token(), answer, option.as_ref(), frame);
            answer
        }
    };
    if answered == Answer::Deferred && may_be_late && late.is_none() {
        // No message is sent before the response, or before the owner acknowledges the request.
        frame.truncate(0);
    }
    if let Some(challenged) = challenge_instead(attached, &sender, head, message.token(), frame) {
        answered = challenged;
    }
    let is_kept = answered != Answer::NoMemory;
    let repeat = application.on_answered(&incoming, answered, frame.bytes(), repeat);
    if F::Leisure::IS_ON && sender.to_group {
        let is_sent = is_useful(frame.bytes())
            && seal_to_member(cx, features, &sender, application, frame)
            && protect_to_group(cx, features.oscore().0, &mut sender.exchange, frame);
        if !is_sent {
            frame.truncate(0);
        }
        answer_at_leisure(cx, peer, features.leisure(), frame);
    }
    if F::Oscore::IS_ON {
        let (oscore, _) = features.oscore();
        protect(cx, oscore, sender.exchange, head, message.token(), frame);
        if let Some(last) = sender.last {
            oscore.acknowledge(last, frame);
        }
    }
    if is_kept && let Some(exchanges) = attached.exchanges() {
        exchanges.keep_reply(storage, cx.now, key, repeat, frame.bytes());
    }
}

/// If the address of the sender is not verified and the response in `frame` is too long for such an address, replaces
/// the response by a challenge. The client must first prove that it receives at the address (RFC 9175, section 2.4).
/// Returns the code of the challenge as an [`Answer`], or `None` if the response remains.
#[inline]
pub(super) fn challenge_instead<A: PeerExchanges, X: OpenedRequest>(
    attached: &mut A,
    sender: &Sender<'_, X>,
    head: (MessageType, u16),
    token: &[u8],
    frame: &mut Frame<'_>,
) -> Option<Answer> {
    let is_plain = sender.identity.protection == Protection::Plain;
    let freshness = attached.freshness().filter(|_| A::VERIFIES)?;
    if freshness.allows(is_plain, sender.len, frame.len()) {
        return None;
    }
    frame.truncate(0);
    let challenged = Answer::Code(Code::UNAUTHORIZED);
    write_refusal(head, token, challenged, Some(&Challenge::Echo(*freshness.echo())), frame);
    Some(challenged)
}

/// The option of a response that the node itself writes. This response has no payload. The node sends it instead of
/// calling the handler, or in place of the handler's response.
pub(super) enum Challenge {
    /// The Echo value that the client must repeat (RFC 9175, section 2.3).
    Echo([u8; 8]),
    Uint(OptionNumber, u32),
}

/// Decides whether the handler may process a request.
///
/// # Errors
/// The outcome and the option of the response that the node sends instead of calling the handler.
#[inline]
fn admit<C: Crypto, A: PeerExchanges, X: OpenedRequest>(
    cx: &mut Cx<'_, C>,
    (attached, storage): (&mut A, &mut A::Storage),
    incoming: &Incoming<'_>,
    sender: &Sender<'_, X>,
    repeat: Repeat,
    application: &mut impl Application<X, A::State>,
) -> Result<(), (Answer, Option<Challenge>)> {
    let state = attached.with_state().map(|(_, state)| state);
    application.admit(incoming, state).map_err(|Refusal { code, option }| {
        (Answer::Code(code), option.map(|(number, value)| Challenge::Uint(number, value)))
    })?;
    if let Some(exchanges) = attached.exchanges()
        && !exchanges.has_room(storage, cx.now, repeat)
    {
        return Err((Answer::NoMemory, None));
    }
    // OSCORE itself shows that a request is fresh, and a member of a group gets another kind of challenge.
    let in_group = sender.identity.protection.member().is_some();
    let is_unverified = sender.is_unverified && sender.exchange.is_none() && !in_group;
    let is_plain = sender.identity.protection == Protection::Plain;
    if A::VERIFIES
        && let Some(freshness) = attached.freshness()
        && !freshness.admits(incoming.message, is_unverified, is_plain)
    {
        return Err((Answer::Code(Code::UNAUTHORIZED), Some(Challenge::Echo(*freshness.echo()))));
    }
    Ok(())
}

/// Returns an error if a request of a group member may be a replay. The node then refuses the request, and challenges
/// the member.
///
/// # Errors
/// The response to the request, and the Echo option with which the node challenges the member.
fn challenge_member<X: OpenedRequest>(
    groups: &mut impl Groups,
    sender: &Sender<'_, X>,
) -> Result<(), (Answer, Option<Challenge>)> {
    match sender.identity.protection.member() {
        Some(_) if sender.is_unverified => {
            let challenge = groups.challenge(&sender.path.local).map(Challenge::Echo);
            Err((Answer::Code(Code::UNAUTHORIZED), challenge))
        }
        _ => Ok(()),
    }
}

/// Protects the response in `frame` for the member that sent the request, if the request was protected for a group.
/// Returns false if the protection failed. The response must then not be sent.
pub(super) fn seal_to_member<C: Crypto, F: Features, S>(
    cx: &mut Cx<'_, C>,
    features: &mut F,
    sender: &Sender<'_, ExchangeOf<F>>,
    application: &mut impl Application<ExchangeOf<F>, S>,
    frame: &mut Frame<'_>,
) -> bool {
    match sender.identity.protection.member() {
        Some(to) if F::Groups::IS_ON => {
            let group = &sender.path.local;
            let sealed = features.groups().seal_response(cx.crypto, group, to, frame);
            if let Err(refused) = sealed {
                application.on_unsealed_response(group, refused);
            }
            sealed.is_ok()
        }
        _ => true,
    }
}

/// Writes a response that replaces the response of the handler, and has no payload.
pub(super) fn write_refusal(
    (message_type, message_id): (MessageType, u16),
    token: &[u8],
    answer: Answer,
    option: Option<&Challenge>,
    frame: &mut Frame<'_>,
) {
    let code = match answer {
        Answer::Code(code) => code,
        _ => Code::SERVICE_UNAVAILABLE,
    };
    let built = Builder::new(frame, message_type, code, message_id, token);
    let _ = built.and_then(|mut builder| match option {
        None => Ok(()),
        Some(Challenge::Echo(echo)) => builder.option(OptionNumber::ECHO, echo),
        Some(Challenge::Uint(number, value)) => builder.uint(*number, *value),
    });
}

/// Calls the handler, which writes the response, or the response to a block, into `frame`. The message has the type and
/// the Message ID of `head`. `decided` is the decision of the policy on the request, if the policy had deferred this
/// decision and has now made it. If `decided` is `None`, this function asks the policy. `late` has the data with which
/// a deferred response can be sent in the acknowledgement of the request; it is `None` if this is not possible. If the
/// owner of the node takes the data, `late` becomes `None`.
#[inline]
pub(super) fn answer_admitted<F: Features, P>(
    (now, features): (Instant, &mut F),
    peer: PeerId,
    message: MessageRef<'_>,
    (sender, head, late): (&mut Sender<'_, ExchangeOf<F>>, (MessageType, u16), &mut Option<Late>),
    decided: Option<Decided>,
    application: &mut impl Application<ExchangeOf<F>, P>,
    frame: &mut Frame<'_>,
) -> Answer {
    let Some((policy, handler)) = application.server() else { return Answer::NoRoom };
    let mut request = Request::new(message, sender.identity);
    let Some(decided) = decided.or_else(|| Decided::ask(policy, handler, &request)) else {
        return postpone::<F, P>(peer, &message, (sender, head), application, frame);
    };
    let registration = sender.exchange.as_ref().map(|(exchange, _)| (*exchange, sender.identity.principal));
    let owner = registration.as_ref().map(|(_, owner)| *owner);
    let (mut registers, mut operation, mut in_blocks) = (false, None, false);
    if F::Observers::PLACES > 0 && may_register::<F>(&message, sender.to_group) {
        let to_group = registration_to_group::<F>(now, features, sender, head);
        (request, registers) = register(features.observers(), peer, request, registration, to_group);
    }
    let served = if F::Bodies::IS_ON {
        let bodies = features.bodies();
        let mut limited = frame.reserving(sender.tailroom);
        let served = match blockwise::take((now, peer), bodies, request, decided, handler, head, &mut limited) {
            Step::Answered(served) => served,
            Step::Serve(request) => serve_as(&request, decided, handler, head, &mut limited),
            Step::ServeWhole(transfer, has_body) => {
                (operation, in_blocks) = (Some(transfer), has_body);
                serve_whole(now, (transfer, has_body), bodies, request, (decided, handler), head, &mut limited)
            }
        };
        let (_, end) = limited.place();
        frame.end_at(end);
        served
    } else {
        serve_as(&request, decided, handler, head, frame)
    };
    let is_observed =
        matches!(served, Served::Responded { observed: true, .. } | Served::Deferred { observed: true, .. });
    if registers && !is_observed {
        deregister(features.observers(), peer, message.token(), owner);
    }
    if let Served::Deferred { token, .. } = served {
        let observes = registers && is_observed;
        if observes {
            defer(features.observers(), peer, message.token(), owner);
        }
        let (mut message, to_group) = (message, sender.to_group);
        if F::Bodies::IS_ON {
            operation.get_or_insert_with(|| Operation::of(peer, &request));
            if in_blocks && let Some(operation) = &operation {
                message = message.with_body(features.bodies().body(operation));
            }
        }
        application.on_deferred(DeferredRequest {
            peer,
            identity: sender.identity,
            token,
            message: &message,
            exchange: sender.exchange.take(),
            operation,
            observes,
            to_group,
            is_undecided: false,
            notification: None,
            // A response that makes the client an observer is confirmable, like the notifications after it.
            late: if observes { None } else { Some(late) },
            acknowledges_later: false,
        });
    }
    if let Some(operation) = operation {
        features.bodies().release(&operation);
    }
    match served {
        Served::Responded { code, .. } => Answer::Code(code),
        Served::Deferred { .. } => Answer::Deferred,
        Served::NoRoom => Answer::NoRoom,
    }
}

/// True if the sender of a request may become an observer. A request to a group may register only if it does not
/// suppress the response (RFC 7967), because the response is the first notification.
#[inline]
fn may_register<F: Features>(message: &MessageRef<'_>, to_group: bool) -> bool {
    if !F::Leisure::IS_ON {
        return !to_group;
    }
    let deregisters = || message.uint(OptionNumber::OBSERVE) == Some(DEREGISTER);
    !to_group || deregisters() || !NoResponse::of(message).suppresses(Code::CONTENT)
}

/// Returns two values for a registration that was sent to a group. If the registration was not sent to a group, both
/// values are `None`. If a member of an Axiom group sent the registration, the first value is the data that the node
/// stores for this member. The second value has the Message ID of the response and the Observe number of the first
/// notification.
#[inline]
fn registration_to_group<F: Features>(
    now: Instant,
    features: &mut F,
    sender: &Sender<'_, ExchangeOf<F>>,
    (_, message_id): (MessageType, u16),
) -> (Option<RegistrationOf<F>>, Option<(u16, u32)>) {
    if !F::Leisure::IS_ON || !sender.to_group {
        return (None, None);
    }
    let of_member = sender.identity.protection.member().filter(|_| F::Groups::IS_ON).and_then(|_| {
        let epoch = features.groups().epoch(&sender.path.local);
        F::Groups::registration(MemberRegistration::new(sender.identity, epoch, now))
    });
    (of_member, Some((message_id, features.observers().first_number(now))))
}

/// Passes a request to the application, because the policy has not decided on it yet. Writes at most an acknowledgement
/// for the sender. Before the decision, the sender does not become an observer, and an older registration with the same
/// token remains.
fn postpone<F: Features, P>(
    peer: PeerId,
    message: &MessageRef<'_>,
    (sender, (message_type, message_id)): (&mut Sender<'_, ExchangeOf<F>>, (MessageType, u16)),
    application: &mut impl Application<ExchangeOf<F>, P>,
    frame: &mut Frame<'_>,
) -> Answer {
    let acknowledges = message_type == MessageType::Acknowledgement;
    if acknowledges && frame.append(&empty_message(message_type, message_id)).is_err() {
        return Answer::NoRoom;
    }
    let (identity, token, to_group) = (sender.identity, Token::new(message.token()), sender.to_group);
    let registers = message.code().is_safe() && message.uint(OptionNumber::OBSERVE) == Some(REGISTER);
    let observes = F::Observers::PLACES > 0 && registers && may_register::<F>(message, to_group);
    let (exchange, operation) = (sender.exchange.take(), None);
    application.on_deferred(DeferredRequest {
        peer,
        identity,
        token,
        message,
        exchange,
        operation,
        observes,
        to_group,
        is_undecided: true,
        notification: None,
        late: None,
        acknowledges_later: false,
    });
    Answer::Deferred
}

/// True if the sender of a request to a group needs this response (RFC 7252, sections 8.1 and 8.2). Returns false for
/// acknowledgements, for Resets, and for errors without a challenge. Returns true for a 2.05 response without a payload
/// only if this response begins an observation.
pub(super) fn is_useful(response: &[u8]) -> bool {
    MessageRef::parse(response).is_ok_and(|response| {
        let is_empty = response.code() == Code::CONTENT && response.payload().is_empty();
        let is_first = response.option(OptionNumber::OBSERVE).is_some();
        response.option(OptionNumber::ECHO).is_some() || response.code().is_success() && (is_first || !is_empty)
    })
}

/// Stores a copy of the response that `frame` contains, so that the node can send it after a random time. Then empties
/// the frame, so that the node sends nothing now.
fn answer_at_leisure<C: Crypto>(cx: &mut Cx<'_, C>, peer: PeerId, leisure: &mut impl Leisure, frame: &mut Frame<'_>) {
    if !frame.is_empty() {
        let mut random = [0; 4];
        cx.crypto.random(&mut random);
        let micros = leisure.longest().as_micros() as u64;
        let micros = micros.saturating_mul(u32::from_ne_bytes(random).into()) >> 32;
        // If there is no space, the response is not sent.
        let _ = leisure.keep(cx.now.after(Duration::from_micros(micros)), peer, frame.bytes());
    }
    frame.truncate(0);
}

/// The type of the right to answer a request once with the request's nonce. `O` is the OSCORE implementation.
type NonceOf<O> = <<O as Oscore>::Exchange as OpenedRequest>::Nonce;

/// Protects the response in `frame` with OSCORE. Does not protect an empty acknowledgement or a Reset.
fn protect<C: Crypto, O: Oscore>(
    cx: &mut Cx<'_, C>,
    oscore: &mut O,
    exchange: Option<(O::Exchange, Option<NonceOf<O>>)>,
    head: (MessageType, u16),
    token: &[u8],
    frame: &mut Frame<'_>,
) {
    let Some((exchange, nonce)) = exchange else { return };
    let responds = MessageRef::parse(frame.bytes()).is_ok_and(|message| message.code().is_response());
    if responds && oscore.protect_response(cx.crypto, &exchange, nonce, frame).is_err() {
        refuse(Code::INTERNAL_SERVER_ERROR, head, token, frame);
    }
}

/// Protects the response in `frame` with OSCORE, if the request was sent to a group and OSCORE decrypted it. Returns
/// false if the protection failed. The response must then not be sent.
fn protect_to_group<C: Crypto, O: Oscore>(
    cx: &mut Cx<'_, C>,
    oscore: &mut O,
    exchange: &mut Option<(O::Exchange, Option<NonceOf<O>>)>,
    frame: &mut Frame<'_>,
) -> bool {
    match exchange.take() {
        Some((exchange, nonce)) if O::GROUPS => oscore.protect_response(cx.crypto, &exchange, nonce, frame).is_ok(),
        _ => true,
    }
}

/// Decrypts a request with an OSCORE option. Returns the decrypted request with its sender. Returns `None` if the
/// request must not be executed; then `frame` has the response. If a proxy divided the request into blocks, the whole
/// request is stored in `whole`. The response to a request that does not decrypt is not stored, because anybody can
/// send such a request.
pub(super) fn open<'d, 'p, C: Crypto, A: PeerExchanges, F: Features>(
    cx: &mut Cx<'_, C>,
    peer: PeerId,
    (attached, storage, features): Memory<'_, A, F>,
    (mut datagram, key, whole): (&'d mut [u8], KeyOf<A>, &'d mut Option<WholeOf<F>>),
    mut sender: Sender<'p, ExchangeOf<F>>,
    application: &mut impl Application<ExchangeOf<F>, A::State>,
    frame: &mut Frame<'_>,
) -> Option<(MessageRef<'d>, Sender<'p, ExchangeOf<F>>)> {
    let outside = MessageRef::parse(datagram).ok()?;
    let head = heading(&outside, attached.exchanges()?.message_id());
    let token = Token::new(outside.token());
    let (oscore, _) = features.oscore();
    if F::Oscore::GATHERS {
        let is_shown = attached.freshness().is_some_and(|freshness| freshness.is_shown());
        let from = (sender.identity, sender.is_unverified && !is_shown);
        match oscore.gather(cx.now, peer, from, datagram, head, frame) {
            Outer::Uncut => {}
            Outer::Whole { message, last } => {
                sender.last = Some(last);
                datagram = whole.insert(message).as_mut();
            }
            Outer::Answered => {
                keep(cx, (attached, storage), key, frame);
                return None;
            }
        }
    }
    frame.indent(F::Oscore::OVERHEAD);
    let is_kept = match oscore.unprotect_request(cx.crypto, peer, datagram) {
        Ok(Opened::Fresh { message, principal, exchange, nonce }) => {
            sender.identity = Identity { principal, protection: Protection::Oscore };
            sender.tailroom = sender.tailroom.saturating_add(F::Oscore::OVERHEAD);
            sender.exchange = Some((exchange, Some(nonce)));
            return Some((message, sender));
        }
        Ok(Opened::Unverified { message, principal, exchange }) => {
            if oscore.write_challenge(cx.crypto, &exchange, head, &token, frame).is_err() {
                refuse(Code::INTERNAL_SERVER_ERROR, head, token.as_bytes(), frame);
            }
            if let Some(message) = &message {
                let (now, path, to_group) = (cx.now, sender.path, sender.to_group);
                let identity = Identity { principal, protection: Protection::Oscore };
                let incoming = Incoming { now, peer, path, identity, message, to_group };
                // The request counts for the application, but its response is a protected challenge in any case.
                let _ = application.admit(&incoming, attached.with_state().map(|(_, state)| state));
                application.on_answered(&incoming, Answer::Code(Code::UNAUTHORIZED), &[], Repeat::Idempotent);
            }
            true
        }
        Err(reason) => {
            cx.counters.discard(discard(reason));
            if !(F::Oscore::GROUPS && sender.to_group) {
                refuse(reason.code(), head, token.as_bytes(), frame);
            }
            false
        }
    };
    if let Some(last) = sender.last {
        oscore.acknowledge(last, frame);
    }
    if F::Oscore::GROUPS && sender.to_group {
        answer_at_leisure(cx, peer, features.leisure(), frame);
    }
    if is_kept {
        keep(cx, (attached, storage), key, frame);
    }
    None
}

/// Stores a copy of the response that `frame` contains, so that the node can send it again if the request is repeated.
/// Called only for a request that was not executed.
fn keep<C: Crypto, A: PeerExchanges>(
    cx: &mut Cx<'_, C>,
    (attached, storage): (&mut A, &mut A::Storage),
    key: KeyOf<A>,
    frame: &Frame<'_>,
) {
    if let Some(exchanges) = attached.exchanges() {
        exchanges.keep_reply(storage, cx.now, key, Repeat::Idempotent, frame.bytes());
    }
}

/// Returns the counter to increment for a message that could not be decrypted for this reason.
pub(super) const fn discard(reason: UnprotectError) -> Discard {
    match reason {
        UnprotectError::Unprotected | UnprotectError::BadOption | UnprotectError::Malformed => Discard::Malformed,
        UnprotectError::UnknownContext | UnprotectError::UnknownMember | UnprotectError::TooManyMembers => {
            Discard::UnknownPeer
        }
        UnprotectError::Replayed => Discard::Replayed,
        UnprotectError::NotAuthentic => Discard::NotAuthentic,
    }
}

/// Replaces the message in `frame` by an unprotected error response that no cache may store (RFC 8613, section 8.2).
fn refuse(code: Code, (message_type, message_id): (MessageType, u16), token: &[u8], frame: &mut Frame<'_>) {
    frame.truncate(0);
    let built = Builder::new(frame, message_type, code, message_id, token);
    let _ = built.and_then(|mut builder| builder.uint(OptionNumber::MAX_AGE, 0));
}
