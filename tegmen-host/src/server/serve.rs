//! Handles the messages of a peer, and notifies observers of changes.

mod oscore;
mod outer_block;

use super::builder::AnyPolicy;
use super::coap_peer::{Attached, CoapPeer, Forgotten, MAX_OBSERVATIONS, Observed, PeerExchanges};
use super::command::Command;
use super::deferred::{Deferrals, DeferredRequest};
use super::event::EventSink;
use super::leisure::Leisure;
use super::notifier::{Notifier, ObservedPaths};
use super::reply::Reply;
use super::request::Exchange;
use super::shared::Shared;
use super::source::Source;
use super::transfer::{Ledger, Scratch, Uploaded, Whole};
use super::{Answered, Application, Event, ServerConfig};
use crate::contexts::Contexts;
use crate::credentials::Credentials;
use crate::exchange_pool::ExchangePool;
use crate::request_uri::{self, InvalidUri};
use oscore::Inside;
use outer_block::{OuterBlock, acknowledge};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, MutexGuard, PoisonError};
use tegmen::address::Path;
use tegmen::buf::Frame;
use tegmen::coap::handler::{Authorized, Handler, Request, Served, heading, respond, separate_response, serve};
use tegmen::coap::observe::{DEREGISTER, Observation};
use tegmen::coap::{
    Block, BuildError, Builder, Busy, Code, MessageRef, MessageType, OptionNumber, PeerExchanges as _, Repeat,
    RequestId, Response, Token,
};
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::identity::{PeerId, Protection};
use tegmen::node::{self, Incoming};
use tegmen::secret;
use tegmen::time::{Duration, Instant};
use tokio::sync::mpsc;

/// What a shard has for all its peers.
pub(super) struct CoapServer<A> {
    pub(super) application: A,
    pub(super) policy: AnyPolicy,
    pub(super) credentials: Credentials,
    pub(super) events: EventSink,
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(super) notifier: Notifier,
    pub(super) limits: Limits,
    /// Bytes of bodies.
    pub(super) bodies: Arc<Ledger>,
    /// Observations.
    pub(super) observations: Arc<Ledger>,
    pub(super) observers: Observers,
    pub(super) scratch: Scratch,
    /// Requests answered.
    pub(super) requests: u64,
    /// Of these, the requests that were answered 5.03 because the pool was full.
    pub(super) refused: u64,
    /// Requests whose response is deferred.
    pub(super) deferrals: RefCell<Deferrals>,
    /// Of those that are not remembered any more.
    pub(super) forgotten: Forgotten,
    /// Of the request that is being answered, what the operator is told.
    pub(super) report: Report,
    pub(super) contexts: Contexts,
    /// The path of the request that is being answered, without a slash in front.
    pub(super) path: String,
    /// For a message before it is protected.
    pub(super) inside: Inside,
    /// The changes of peers that the shard has not handled yet.
    pub(super) changes: Vec<(PeerId, Change)>,
    /// True while a request to a group is answered.
    pub(super) to_group: bool,
    /// The longest time that a response to a request to a group waits.
    pub(super) leisure: Duration,
    pub(super) leisurely: Leisure,
}

/// A change in the state of a peer, for the shard.
pub(super) enum Change {
    /// Its exchanges have begun.
    Begun,
    /// It showed that its last request is fresh.
    Verified,
    /// It acknowledged a message of ours.
    Acknowledged(RequestId),
    /// It rejected a message of ours, or does not acknowledge it.
    Refused(RequestId),
    /// It rejected the message with this Message ID, which was not confirmable.
    Rejected(u16),
}

/// Details of a request for the operator, beside its path and code: see [`Answered`].
#[derive(Default)]
pub(super) struct Report {
    pub(super) received: usize,
    pub(super) sent: usize,
    pub(super) block: bool,
    pub(super) cause: Cell<Option<String>>,
    /// True if the application has executed the request.
    pub(super) executed: Cell<bool>,
}

/// Of the settings, those that apply to each request.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) max_body: usize,
    pub(super) unconfirmed: u8,
    pub(super) verify_addresses: bool,
    pub(super) requests_per_second: u32,
    pub(super) report_requests: bool,
}

impl From<&ServerConfig> for Limits {
    fn from(config: &ServerConfig) -> Self {
        Self {
            max_body: config.coap.max_body,
            unconfirmed: config.coap.unconfirmed_notifications,
            verify_addresses: config.coap.verify_addresses,
            requests_per_second: config.coap.requests_per_second,
            report_requests: config.log.report_requests,
        }
    }
}

/// Who observes what, and who is to be told.
#[derive(Default)]
pub(super) struct Observers {
    by_path: HashMap<Arc<str>, HashSet<PeerId>>,
    /// The paths, for those who ask from outside.
    paths: Arc<ObservedPaths>,
    /// Peers that there are notifications for, each once.
    due: VecDeque<PeerId>,
}

impl Observers {
    pub(super) fn new(paths: Arc<ObservedPaths>) -> Self {
        Self { paths, ..Self::default() }
    }

    fn paths(&self) -> MutexGuard<'_, HashSet<Arc<str>>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&mut self, path: &Arc<str>, peer: PeerId) {
        if !self.by_path.contains_key(path) {
            self.paths().insert(path.clone());
        }
        self.by_path.entry(path.clone()).or_default().insert(peer);
    }

    /// Puts a peer into the queue of those to be notified, unless it stands there.
    pub(super) fn queue(&mut self, peer: PeerId, coap_peer: &mut CoapPeer) {
        if !std::mem::replace(&mut coap_peer.queued, true) {
            self.due.push_back(peer);
        }
    }

    /// Returns the next peer to be notified. The caller marks its CoAP state as not queued.
    pub(super) fn next_due(&mut self) -> Option<PeerId> {
        self.due.pop_front()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// Those who observe this path, or did.
    pub(super) fn take(&mut self, path: &str) -> HashSet<PeerId> {
        self.by_path.get_mut(path).map(std::mem::take).unwrap_or_default()
    }

    pub(super) fn put_back(&mut self, path: &Arc<str>, peers: HashSet<PeerId>) {
        if peers.is_empty() {
            if self.by_path.remove(path).is_some() {
                self.paths().remove(path);
            }
        } else {
            self.by_path.insert(path.clone(), peers);
        }
    }

    /// Forgets those who observe nothing any more.
    pub(super) fn retain(&mut self, mut observes: impl FnMut(PeerId, &str) -> bool) {
        let mut paths = self.paths.lock().unwrap_or_else(PoisonError::into_inner);
        self.by_path.retain(|path, peers| {
            peers.retain(|peer| observes(*peer, path));
            if peers.is_empty() {
                paths.remove(path);
            }
            !peers.is_empty()
        });
    }
}

impl<A: Application> CoapServer<A> {
    /// Returns the CoAP server of shard `number`, whose commands come through `commands`.
    pub(super) fn new(shared: &Shared<'_, A>, number: usize, commands: mpsc::UnboundedSender<Command>) -> Self {
        let Shared { config, credentials, notifier, .. } = shared;
        let observed = notifier.shards.get(number).map(|changes| changes.observed.clone());
        Self {
            application: shared.application.clone(),
            policy: shared.policy.clone(),
            credentials: Credentials::clone(credentials),
            events: shared.events.clone(),
            commands,
            notifier: notifier.clone(),
            limits: Limits::from(*config),
            bodies: shared.bodies.clone(),
            observations: Ledger::new(config.coap.max_observations.div_ceil(shared.shards())),
            observers: Observers::new(observed.unwrap_or_default()),
            scratch: Scratch::default(),
            requests: 0,
            refused: 0,
            deferrals: RefCell::default(),
            forgotten: Forgotten::default(),
            report: Report::default(),
            contexts: config.oscore.clone(),
            path: String::new(),
            inside: Inside::default(),
            changes: Vec::new(),
            to_group: false,
            leisure: config.coap.leisure,
            leisurely: Leisure::default(),
        }
    }

    /// Answers 5.03 to a request that must not be executed twice, and that nothing could be remembered of.
    fn refuse(&mut self, message: &MessageRef<'_>, message_id: u16, frame: &mut Frame<'_>) -> Option<Code> {
        self.refused += 1;
        let cause = Cell::new(Some("no memory is left to recognise the request if it is repeated".to_owned()));
        self.report = Report { received: message.payload().len(), cause, ..Report::default() };
        let _ = self.read_uri(message);
        let (message_type, message_id) = heading(message, message_id);
        let _ = Builder::new(frame, message_type, Code::SERVICE_UNAVAILABLE, message_id, message.token());
        Some(Code::SERVICE_UNAVAILABLE)
    }

    /// Gives back what the pool holds for peers that are not remembered any more, and replies that are too old.
    pub(super) fn give_back(&mut self, pool: &mut ExchangePool, now: Instant) {
        self.forgotten.give_back(pool);
        pool.tick(now);
    }

    /// Keeps the response in `frame` for a random time, if it is of any use to the sender of a request to a group: no
    /// acknowledgement, no Reset, no error, nothing empty (RFC 7252, sections 8.1 and 8.2). Nothing is sent at once.
    fn answer_group<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, path: Path, frame: &mut Frame<'_>) {
        let of_use = MessageRef::parse(frame.bytes()).is_ok_and(|response| {
            let empty = response.code() == Code::CONTENT && response.payload().is_empty();
            let asks_for_echo = response.option(OptionNumber::ECHO).is_some();
            asks_for_echo || response.code().is_success() && !empty
        });
        if of_use {
            let mut random = [0; 4];
            cx.crypto.random(&mut random);
            self.leisurely.keep(cx.now, self.leisure, u32::from_ne_bytes(random), path, frame.bytes());
        }
        frame.truncate(0);
    }

    /// Applies a change to the state of a peer.
    pub(super) fn on_change(&mut self, peer: PeerId, coap_peer: &mut CoapPeer, change: &Change) {
        match *change {
            Change::Begun | Change::Verified => {}
            Change::Acknowledged(id) => coap_peer.on_acknowledged(id),
            Change::Refused(id) => coap_peer.on_refused(id),
            Change::Rejected(message_id) => coap_peer.on_rejected(message_id),
        }
        if coap_peer.has_news() {
            self.observers.queue(peer, coap_peer);
        }
    }

    /// Reads path and query of a request, once for the handler, the observers and the report.
    ///
    /// # Errors
    /// [`InvalidUri`]; the report then has the path with its invalid bytes replaced.
    fn read_uri(&mut self, message: &MessageRef<'_>) -> Result<(), InvalidUri> {
        request_uri::read(message, &mut self.path)
    }

    /// Reports an answered request to the operator, or the response to one that was deferred. The path is the one that was
    /// read last.
    pub(super) fn report_request(&mut self, from: &Source, method: Code, code: Option<Code>) {
        let Report { received, sent, block, cause, executed: _ } = std::mem::take(&mut self.report);
        let Some(code) = code.filter(|code| self.limits.report_requests || code.class() == 5) else { return };
        let identity = self.credentials.name_of(from.identity.principal);
        let (remote, path, cause) = (from.remote, format!("/{}", self.path), cause.into_inner());
        (self.events)(Event::Request(Answered { remote, identity, method, path, code, received, sent, block, cause }));
    }

    /// Answers a request. Returns the code of the response, unless the response comes later.
    fn request(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        (message, len): (&MessageRef<'_>, usize),
        message_id: u16,
        frame: &mut Frame<'_>,
    ) -> Option<Code> {
        let later = message.block(OptionNumber::BLOCK2).ok().flatten().is_some_and(|block| block.number > 0);
        self.report = Report { received: message.payload().len(), block: later, ..Report::default() };
        let valid = self.read_uri(message);
        let head = heading(message, message_id);
        let code = match self.admit(from, coap_peer, (message, valid), head, frame) {
            Err(code) => Some(code),
            Ok(body) => {
                let whole = body.as_ref().map_or(*message, |body| message.with_body(body));
                let served = match self.resume(from, coap_peer, &whole, head, frame) {
                    Some(served) => served,
                    None => {
                        let request = self.observable(from, coap_peer, &whole);
                        let exchange = Exchange {
                            from,
                            path: &self.path,
                            commands: &self.commands,
                            notifier: &self.notifier,
                            cause: &self.report.cause,
                            deferrals: &self.deferrals,
                            deferred: Cell::default(),
                        };
                        let executed = &self.report.executed;
                        let mut handler = Bridge { application: &mut self.application, exchange, executed };
                        if is_made_again(&whole) {
                            serve(request, &self.policy, &mut handler, message_id, frame)
                        } else {
                            // What cannot be made again is made whole, and cut here.
                            let mut response = self.scratch.frame(self.limits.max_body);
                            let served = serve(request, &self.policy, &mut handler, message_id, &mut response);
                            let len = response.len();
                            self.cut(from, coap_peer, &whole, (served, len), head, frame)
                        }
                    }
                };
                self.conclude(from, coap_peer, (message, len), served, head, frame)
            }
        };
        if self.limits.report_requests
            && let Ok(response) = MessageRef::parse(frame.bytes())
        {
            let whole = response.uint(OptionNumber::SIZE2).map(|size| size as usize);
            self.report.sent = whole.unwrap_or(response.payload().len());
        }
        code
    }

    /// Decides whether a request goes to the application now. Returns its body if that came in blocks.
    ///
    /// # Errors
    /// The code of the response, which is in `frame`.
    fn admit(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        (message, valid): (&MessageRef<'_>, Result<(), InvalidUri>),
        head: (MessageType, u16),
        frame: &mut Frame<'_>,
    ) -> Result<Option<Vec<u8>>, Code> {
        let refuse = |code: Code, frame: &mut Frame<'_>, option: Option<(OptionNumber, u32)>| {
            frame.truncate(0);
            let built = Builder::new(frame, head.0, code, head.1, message.token());
            let _ = built.and_then(|mut builder| option.map_or(Ok(()), |(number, value)| builder.uint(number, value)));
            code
        };
        if self.is_too_fast(from.now, coap_peer) {
            return Err(refuse(Code::TOO_MANY_REQUESTS, frame, Some((OptionNumber::MAX_AGE, 1))));
        }
        let unproven = self.is_unproven(from, coap_peer);
        let echoes = |coap_peer: &CoapPeer| {
            message.option(OptionNumber::ECHO).is_some_and(|echo| secret::same(echo, &coap_peer.echo))
        };
        if from.unverified && !coap_peer.verified && from.oscore.is_none() {
            // Nothing is done before the sender showed that it says this now (RFC 9175, section 2.3).
            if !echoes(coap_peer) {
                return Err(challenge(head, message, &coap_peer.echo, frame));
            }
            coap_peer.verified = true;
        }
        if unproven && echoes(coap_peer) {
            coap_peer.verified = true;
        } else if unproven && !message.code().is_safe() {
            return Err(challenge(head, message, &coap_peer.echo, frame));
        }
        if valid.is_err() {
            return Err(refuse(Code::BAD_REQUEST, frame, None));
        }
        if message.uint(OptionNumber::OBSERVE) == Some(DEREGISTER) {
            coap_peer.deregister(message.token());
        }
        let block = message.block(OptionNumber::BLOCK1).map_err(|code| refuse(code, frame, None))?;
        match block.filter(|block| block.more || block.number > 0) {
            None if message.payload().len() > self.limits.max_body => {
                let most = (OptionNumber::SIZE1, self.limits.max_body as u32);
                Err(refuse(Code::REQUEST_ENTITY_TOO_LARGE, frame, Some(most)))
            }
            None => Ok(None),
            Some(block) => match self.upload(from, coap_peer, message, block) {
                Err((code, option)) => Err(refuse(code, frame, option)),
                Ok(body) => Ok(Some(body)),
            },
        }
    }

    /// True if the sender has not shown yet that it receives at its address, and has to.
    fn is_unproven(&self, from: &Source, coap_peer: &CoapPeer) -> bool {
        self.limits.verify_addresses && from.identity.protection == Protection::Plain && !coap_peer.verified
    }

    /// Ends what follows the application's answer: a client that has to prove its address is challenged instead, and an
    /// observer is registered. Returns the code of the response, unless the response comes later.
    fn conclude(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        (message, len): (&MessageRef<'_>, usize),
        served: Served,
        head: (MessageType, u16),
        frame: &mut Frame<'_>,
    ) -> Option<Code> {
        if frame.len() > AMPLIFICATION * len && self.is_unproven(from, coap_peer) {
            return Some(challenge(head, message, &coap_peer.echo, frame));
        }
        match served {
            Served::Responded { code, observed } => {
                if observed {
                    self.register(from, coap_peer, message);
                }
                Some(code)
            }
            Served::Deferred(_) => None,
            Served::NoRoom => {
                self.report.cause.set(Some("the response does not fit a message".to_owned()));
                Some(Code::INTERNAL_SERVER_ERROR)
            }
        }
    }

    /// Takes a block of the body of a request, and returns the body once it is complete.
    ///
    /// # Errors
    /// The code of the response to this block, and its option.
    fn upload(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        message: &MessageRef<'_>,
        block: Block,
    ) -> Result<Vec<u8>, Refusal> {
        // Nobody who may not make the request may fill our memory with it.
        Authorized::new(&self.policy, Request::new(*message, from.identity)).map_err(|code| (code, None))?;
        let limit = self.limits.max_body;
        match coap_peer.transfers.upload(from, message, block, &self.bodies, limit) {
            Uploaded::Continue => {
                self.report.block = true;
                Err((Code::CONTINUE, Some((OptionNumber::BLOCK1, block.value()))))
            }
            Uploaded::Refused(Code::REQUEST_ENTITY_TOO_LARGE) => {
                Err((Code::REQUEST_ENTITY_TOO_LARGE, Some((OptionNumber::SIZE1, limit as u32))))
            }
            Uploaded::Refused(code) => {
                if code == Code::SERVICE_UNAVAILABLE {
                    self.report.cause.set(Some(self.bodies.complaint()));
                }
                Err((code, None))
            }
            Uploaded::Whole(body) => {
                self.report.received = body.len();
                Ok(body)
            }
        }
    }

    fn is_too_fast(&self, now: Instant, coap_peer: &mut CoapPeer) -> bool {
        if now.since(coap_peer.second) >= Duration::from_secs(1) {
            (coap_peer.second, coap_peer.requests) = (now, 0);
        }
        coap_peer.requests = coap_peer.requests.saturating_add(1);
        self.limits.requests_per_second > 0 && coap_peer.requests > self.limits.requests_per_second
    }

    /// Answers a request for a later block of a response that is kept, or was. `None` for every other request.
    fn resume(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        message: &MessageRef<'_>,
        head: (MessageType, u16),
        frame: &mut Frame<'_>,
    ) -> Option<Served> {
        let asked = message.block(OptionNumber::BLOCK2).ok().flatten();
        if asked.is_none_or(|block| block.number == 0) {
            return None;
        }
        if let Some(whole) = coap_peer.transfers.kept(from.now, from.operation(message))
            && Authorized::new(&self.policy, Request::new(*message, from.identity)).is_ok()
        {
            return Some(write(whole, asked, head, message.token(), frame));
        }
        if message.code().is_safe() {
            return None;
        }
        let built = Builder::new(frame, head.0, LOST, head.1, message.token());
        Some(built.map_or(Served::NoRoom, |_| Served::Responded { code: LOST, observed: false }))
    }

    /// Returns a request as the application takes it. It can be observed if there is room for a further observation.
    fn observable<'m>(&self, from: &Source, coap_peer: &CoapPeer, message: &MessageRef<'m>) -> Request<'m> {
        let number = coap_peer.next_number(message.token());
        let request = Request::new(*message, from.identity);
        let has_room = !from.to_group
            && (number > 1 || coap_peer.observations.len() < MAX_OBSERVATIONS && !self.observations.is_full());
        if has_room { request.observable(number) } else { request }
    }

    /// Writes the response in the scratch, of `len` bytes, into `frame`. If it is too long, writes the block that was asked
    /// for, and keeps the whole.
    fn cut(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        message: &MessageRef<'_>,
        (served, len): (Served, usize),
        head: (MessageType, u16),
        frame: &mut Frame<'_>,
    ) -> Served {
        let made = self.scratch.written(len);
        let Ok(response) = MessageRef::parse(made) else { return served };
        let asked = message.block(OptionNumber::BLOCK2).ok().flatten();
        let size = asked.map_or(tegmen::coap::block::MAX_SIZE, Block::size);
        if response.payload().len() <= size && frame.append(made).is_ok() {
            return served;
        }
        let whole = Whole::of(&response);
        let written = write(&whole, asked, head, message.token(), frame);
        if coap_peer.transfers.keep(from, from.operation(message), whole, &self.bodies) {
            return written;
        }
        frame.truncate(0);
        self.report.cause.set(Some(self.bodies.complaint()));
        let code = Code::SERVICE_UNAVAILABLE;
        let built = Builder::new(frame, head.0, code, head.1, message.token());
        built.map_or(Served::NoRoom, |_| Served::Responded { code, observed: false })
    }

    /// Registers the sender of a request as an observer.
    fn register(&mut self, from: &Source, coap_peer: &mut CoapPeer, message: &MessageRef<'_>) {
        let observation = Observation::new(Token::new(message.token()), coap_peer.next_number(message.token()));
        coap_peer.deregister(message.token());
        // There is room, or the response would not have said that it can be observed.
        let Some(share) = self.observations.share(1) else { return };
        let path: Arc<str> = self.path.as_str().into();
        self.observers.add(&path, from.peer);
        coap_peer.observations.push(Observed {
            observation,
            request: in_clear(message),
            oscore: from.oscore.clone(),
            path,
            changed: false,
            pending: None,
            message_id: None,
            _share: share,
        });
    }

    /// Writes the next notification that is due for this peer; `None` if there is none.
    pub(super) fn notify<C: Crypto>(
        &mut self,
        from: &Source,
        attached: &mut Attached,
        pool: &mut ExchangePool,
        crypto: &mut C,
        frame: &mut Frame<'_>,
    ) -> Option<()> {
        let (exchanges, coap_peer) = attached.with_state()?;
        if exchanges.outstanding(pool) > 0 {
            return None;
        }
        let index = coap_peer.observations.iter().position(Observed::is_due)?;
        let observed = coap_peer.observations.get_mut(index)?;
        observed.changed = false;
        // Sooner than PROBING_RATE allows, an acknowledgement has to show that the client is there (RFC 7641, section 4.5.1).
        let early = from.now < coap_peer.probing.next();
        let confirmable = observed.observation.confirm(self.limits.unconfirmed) || early;
        let message_type = if confirmable { MessageType::Confirmable } else { MessageType::NonConfirmable };
        let head = (message_type, exchanges.message_id());
        let served = match observed.oscore.clone() {
            None => self.renew(from, observed, head, frame),
            Some(oscore) => {
                let mut served = Served::NoRoom;
                let from = from.under(&oscore);
                self.protect(&oscore, crypto, frame, |server, inner| {
                    served = server.renew(&from, observed, head, inner);
                });
                served
            }
        };
        if matches!(served, Served::Deferred(_)) {
            // The frame holds the begin of a message, which must not be sent. The response that follows is the last one.
            frame.truncate(0);
            coap_peer.observations.swap_remove(index);
            return None;
        }
        let sent = send(exchanges, pool, from.now, crypto, frame).ok();
        if !confirmable {
            coap_peer.probing.sent(from.now, frame.len());
        }
        observed.pending = sent.filter(|_| confirmable);
        observed.message_id = (!confirmable).then_some(head.1);
        // An error is the last notification (RFC 7641, section 4.2).
        if !matches!(served, Served::Responded { observed: true, .. }) {
            coap_peer.observations.swap_remove(index);
        }
        if !matches!(served, Served::Responded { .. }) {
            frame.truncate(0);
        }
        sent.map(drop)
    }

    /// Creates the response to a registration again.
    fn renew(
        &mut self,
        from: &Source,
        observed: &mut Observed,
        head: (MessageType, u16),
        frame: &mut Frame<'_>,
    ) -> Served {
        let Ok(message) = MessageRef::parse(&observed.request) else { return Served::NoRoom };
        let (path, cause) = (&*observed.path, &Cell::default());
        let exchange = Exchange {
            from,
            path,
            commands: &self.commands,
            notifier: &self.notifier,
            cause,
            deferrals: &self.deferrals,
            deferred: Cell::default(),
        };
        let executed = &Cell::default();
        let mut handler = Bridge { application: &mut self.application, exchange, executed };
        let request = Request::new(message, from.identity).observable(observed.observation.next());
        respond(request, &self.policy, &mut handler, head.0, head.1, frame)
    }

    /// Writes the response of a request that was deferred; `None` if it cannot be sent.
    pub(super) fn complete<C: Crypto>(
        &mut self,
        to: &Source,
        attached: &mut Attached,
        pool: &mut ExchangePool,
        (request, reply): (DeferredRequest, Reply),
        crypto: &mut C,
        frame: &mut Frame<'_>,
    ) -> Option<()> {
        if request.to_group && !reply.code.is_success() {
            return None;
        }
        let (exchanges, coap_peer) = attached.with_state()?;
        let message_id = exchanges.message_id();
        match request.oscore.clone() {
            None => self.write_separate(to, coap_peer, (request, reply), message_id, frame)?,
            Some(oscore) => {
                let (to, mut written) = (to.under(&oscore), None);
                self.protect(&oscore, crypto, frame, |server, inner| {
                    written = server.write_separate(&to, coap_peer, (request, reply), message_id, inner);
                });
                written?;
            }
        }
        send(exchanges, pool, to.now, crypto, frame).ok().map(drop)
    }

    fn write_separate(
        &self,
        to: &Source,
        coap_peer: &mut CoapPeer,
        (request, reply): (DeferredRequest, Reply),
        message_id: u16,
        frame: &mut Frame<'_>,
    ) -> Option<()> {
        let Reply { code, options, payload, cause: _ } = reply;
        let whole = Whole::new(code, options, payload);
        let begun = separate_response(frame, code, message_id, &request.token).ok()?;
        let kept = whole.write(request.asked, begun).ok()?
            || coap_peer.transfers.keep(to, request.operation, whole, &self.bodies);
        if !kept {
            frame.truncate(0);
            separate_response(frame, Code::SERVICE_UNAVAILABLE, message_id, &request.token).ok()?;
        }
        Some(())
    }
}

/// The part of a shard in the bytes for exchanges: a quarter is for messages that wait for an acknowledgement.
pub(super) fn pool(config: &ServerConfig, shards: usize) -> ExchangePool {
    let bytes = config.coap.max_exchange_bytes / shards.max(1);
    ExchangePool::new(bytes - bytes / 4, bytes / 4)
}

/// True for a request that a group may be sent: a message that is not confirmable. Group OSCORE is not built.
pub(super) fn is_group_request(datagram: &[u8]) -> bool {
    MessageRef::parse(datagram).is_ok_and(|message| {
        message.message_type() == MessageType::NonConfirmable
            && message.code().is_request()
            && message.option(OptionNumber::OSCORE).is_none()
    })
}

/// The code of a response that is written before the application is asked, and its option.
type Refusal = (Code, Option<(OptionNumber, u32)>);

/// A request as if nothing had protected it, to be answered again for each notification.
fn in_clear(message: &MessageRef<'_>) -> Box<[u8]> {
    let options: usize = message.options().map(|(_, value)| value.len() + 5).sum();
    let mut storage = vec![0; 4 + 8 + options + 1 + message.payload().len()];
    let mut frame = Frame::new(&mut storage, 0);
    let built = Builder::new(&mut frame, message.message_type(), message.code(), message.message_id(), message.token());
    let _ = built.and_then(|mut builder| {
        message.options().try_for_each(|(number, value)| builder.option(number, value))?;
        builder.payload(message.payload())
    });
    frame.bytes().into()
}

/// A block is asked for of a response, or of a body, that is not there any more.
const LOST: Code = Code::REQUEST_ENTITY_INCOMPLETE;
/// As many times its request an answer may be that goes to an address which nobody has proved to be at (RFC 9175,
/// section 2.4).
const AMPLIFICATION: usize = 3;

/// Asks the sender to show that it receives at its address.
fn challenge(head: (MessageType, u16), message: &MessageRef<'_>, echo: &[u8], frame: &mut Frame<'_>) -> Code {
    frame.truncate(0);
    let built = Builder::new(frame, head.0, Code::UNAUTHORIZED, head.1, message.token());
    let _ = built.and_then(|mut builder| builder.option(OptionNumber::ECHO, echo));
    Code::UNAUTHORIZED
}

/// True if a later block of the response is cut from the same response, made again: the request changes nothing, and its
/// body came in one message.
fn is_made_again(message: &MessageRef<'_>) -> bool {
    message.code().is_safe() && message.option(OptionNumber::BLOCK1).is_none()
}

/// Keeps the message in `frame` until it is acknowledged, if it is confirmable. If there is no room, `frame` is empty.
///
/// # Errors
/// [`Busy`].
fn send<C: Crypto>(
    exchanges: &mut PeerExchanges,
    pool: &mut ExchangePool,
    now: Instant,
    crypto: &mut C,
    frame: &mut Frame<'_>,
) -> Result<RequestId, Busy> {
    let mut random = [0];
    crypto.random(&mut random);
    exchanges.sent(pool, now, frame.bytes(), random[0]).inspect_err(|_| frame.truncate(0))
}

fn write(whole: &Whole, asked: Option<Block>, head: (MessageType, u16), token: &[u8], frame: &mut Frame<'_>) -> Served {
    let written =
        Builder::new(frame, head.0, Code::CONTENT, head.1, token).and_then(|builder| whole.write(asked, builder));
    match written {
        Ok(_) => Served::Responded { code: Code(frame.bytes().get(1).copied().unwrap_or(0)), observed: false },
        Err(BuildError::Full | BuildError::Order) => Served::NoRoom,
    }
}

impl<A: Application> node::Application<Infallible, CoapPeer> for CoapServer<A> {
    const ANSWERS: bool = true;

    fn answer<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        incoming: Incoming<'_, CoapPeer>,
        frame: &mut Frame<'_>,
    ) -> Option<Repeat> {
        let Incoming { peer, path, identity, is_unverified, state, message, len, message_id, repeat, has_room } =
            incoming;
        let (remote, to_group) = (path.remote.into(), self.to_group);
        let from = Source { now: cx.now, peer, identity, remote, unverified: is_unverified, to_group, oscore: None };
        self.requests += 1;
        let kept = match message {
            Ok(message) if has_room => {
                let code = self.request(&from, state, (&message, len), message_id, frame);
                let repeat = if self.report.executed.get() { repeat } else { Repeat::Safe };
                self.report_request(&from, message.code(), code);
                Some(repeat)
            }
            Ok(message) => {
                let code = self.refuse(&message, message_id, frame);
                self.report_request(&from, message.code(), code);
                None
            }
            Err(datagram) => {
                let (mut gathered, mut last) = (Vec::new(), None);
                match self.gather(&from, state, datagram, message_id, frame) {
                    OuterBlock::Uncut => {}
                    OuterBlock::Gathered(whole, block) => (gathered, last) = (whole, Some(block)),
                    OuterBlock::Answered => return Some(Repeat::Idempotent),
                }
                let datagram = if last.is_some() { &mut *gathered } else { datagram };
                if let Some((oscore, nonce, message)) = self.open(&from, cx, datagram, message_id, frame) {
                    let from = from.under(&oscore);
                    let mut inside = std::mem::take(&mut self.inside);
                    let mut inner = inside.frame(frame.room());
                    let code = self.request(&from, state, (&message, len), message_id, &mut inner);
                    let written = inner.len();
                    inside.protect(&oscore, Some(nonce), cx.crypto, written, frame);
                    self.inside = inside;
                    self.report_request(&from, message.code(), code);
                }
                if let Some(block) = last {
                    acknowledge(block, frame);
                }
                Some(Repeat::Idempotent)
            }
        };
        if is_unverified && state.verified {
            self.changes.push((peer, Change::Verified));
        }
        if to_group {
            self.answer_group(cx, path, frame);
        }
        kept
    }

    fn on_begun(&mut self, peer: PeerId, coap_peer: &mut CoapPeer) {
        coap_peer.forgotten = self.forgotten.clone();
        self.changes.push((peer, Change::Begun));
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: node::Reply<'_>) {
        self.changes.push(match reply {
            node::Reply::Acknowledged => (peer, Change::Acknowledged(request)),
            // Who does not acknowledge a notification is not there (RFC 7641, section 4.5).
            node::Reply::Reset | node::Reply::TimedOut => (peer, Change::Refused(request)),
            // A server asks nothing.
            node::Reply::Response(_) | node::Reply::NotSent(_) | node::Reply::Refused { .. } => return,
        });
    }

    fn on_rejected(&mut self, peer: PeerId, message_id: u16) {
        self.changes.push((peer, Change::Rejected(message_id)));
    }
}

/// The core's handler in front of a host's application.
struct Bridge<'a, A> {
    application: &'a mut A,
    exchange: Exchange<'a>,
    executed: &'a Cell<bool>,
}

impl<A: Application> Handler for Bridge<'_, A> {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.executed.set(true);
        let request = super::Request { authorized: request, exchange: &self.exchange };
        let handled = self.application.handle(&request, response);
        if handled.is_err() {
            self.exchange.forget_deferral();
        }
        handled
    }

    fn critical_options(&self) -> &[OptionNumber] {
        self.application.critical_options()
    }
}

#[cfg(test)]
mod tests;
