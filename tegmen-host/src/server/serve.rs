//! Handles the messages of a peer, and notifies observers of changes.

mod oscore;
mod outer_block;

use super::builder::AnyPolicy;
use super::coap_peer::{CoapPeer, Forgotten, MAX_OBSERVATIONS, Observed};
use super::command::Command;
use super::deferred::{Deferrals, DeferredRequest};
use super::event::EventSink;
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
use crate::provider::HostCrypto;
use crate::request_uri::{InvalidUri, Path, Query};
use outer_block::{OuterBlock, acknowledge};
use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, MutexGuard, PoisonError};
use tegmen::buf::Frame;
use tegmen::coap::exchange::Received;
use tegmen::coap::handler::{
    Authorized, Handler, Request, Response, Served, heading, respond, separate_response, serve,
};
use tegmen::coap::message::BuildError;
use tegmen::coap::observe::{DEREGISTER, Observation};
use tegmen::coap::storage::Repeat;
use tegmen::coap::{Block, Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::counters::Counters;
use tegmen::identity::{PeerId, Protection};
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
    /// The exchanges of all peers.
    pub(super) pool: ExchangePool,
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
    pub(super) inside: Vec<u8>,
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
            pool: pool(config, shared.shards()),
            deferrals: RefCell::default(),
            forgotten: Forgotten::default(),
            report: Report::default(),
            contexts: config.oscore.clone(),
            path: String::new(),
            inside: Vec::new(),
        }
    }

    /// Takes a message of a peer; `frame` holds what is to be answered.
    pub(super) fn receive(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        counters: &mut Counters,
        crypto: &mut HostCrypto,
        bytes: &mut [u8],
        frame: &mut Frame<'_>,
    ) {
        coap_peer.last = from.now;
        coap_peer.probing.heard();
        match coap_peer.exchanges.receive(&mut self.pool, from.now, bytes) {
            Received::Request(message, key) if message.option(OptionNumber::OSCORE).is_some() => {
                match self.gather(from, coap_peer, &message, frame) {
                    OuterBlock::Uncut => self.protected_request(from, coap_peer, counters, crypto, bytes, frame),
                    OuterBlock::Gathered(mut whole, block) => {
                        self.protected_request(from, coap_peer, counters, crypto, &mut whole, frame);
                        acknowledge(block, frame);
                    }
                    OuterBlock::Answered => {}
                }
                coap_peer.exchanges.keep_reply(&mut self.pool, from.now, key, Repeat::Idempotent, frame.bytes());
                self.requests += 1;
            }
            Received::Request(message, key) => {
                let repeat = self.effect(&message);
                let code = if coap_peer.exchanges.has_room(&mut self.pool, from.now, repeat) {
                    let code = self.request(from, coap_peer, &message, bytes, frame);
                    let repeat = if self.report.executed.get() { repeat } else { Repeat::Safe };
                    coap_peer.exchanges.keep_reply(&mut self.pool, from.now, key, repeat, frame.bytes());
                    code
                } else {
                    self.refuse(coap_peer, &message, frame)
                };
                self.requests += 1;
                self.report_request(from, message.code(), code);
            }
            Received::Duplicate(reply) => {
                counters.duplicates = counters.duplicates.saturating_add(1);
                let _ = frame.append(reply);
            }
            Received::Reject(reset) => {
                let _ = frame.append(&reset);
            }
            Received::Acknowledged(id) => coap_peer.on_acknowledged(id),
            Received::Reset(id) => coap_peer.on_refused(id),
            Received::Rejected { message_id } => coap_peer.on_rejected(message_id),
            Received::Response { .. } | Received::Nothing => {}
        }
        if coap_peer.has_news(&self.pool) {
            self.observers.queue(from.peer, coap_peer);
        }
    }

    /// Returns the effect of repeating a request. A block that others follow is only put to those before it.
    fn effect(&self, message: &MessageRef<'_>) -> Repeat {
        match message.block(OptionNumber::BLOCK1) {
            Ok(Some(block)) if block.more => Repeat::Idempotent,
            _ => Repeat::of(message.code()),
        }
    }

    /// Answers 5.03 to a request that must not be executed twice, and that nothing could be remembered of.
    fn refuse(&mut self, coap_peer: &mut CoapPeer, message: &MessageRef<'_>, frame: &mut Frame<'_>) -> Option<Code> {
        self.refused += 1;
        let cause = Cell::new(Some("no memory is left to recognise the request if it is repeated".to_owned()));
        self.report = Report { received: message.payload().len(), cause, ..Report::default() };
        let _ = self.read_uri(message);
        let (message_type, message_id) = heading(message, coap_peer.exchanges.message_id());
        let _ = Builder::new(frame, message_type, Code::SERVICE_UNAVAILABLE, message_id, message.token());
        Some(Code::SERVICE_UNAVAILABLE)
    }

    /// Gives back what the pool holds for peers that are not remembered any more, and replies that are too old.
    pub(super) fn give_back(&mut self, now: Instant) {
        self.forgotten.give_back(&mut self.pool);
        self.pool.tick(now);
    }

    /// Takes a message that a group was sent; `frame` holds what is to be answered at leisure, if it is of any use to the
    /// sender: no acknowledgement, no Reset, no error, nothing empty (RFC 7252, sections 8.1 and 8.2).
    pub(super) fn receive_in_group(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        bytes: &[u8],
        frame: &mut Frame<'_>,
    ) {
        let group_request = |message: &MessageRef<'_>| {
            message.message_type() == MessageType::NonConfirmable && message.code().is_request()
        };
        // Group OSCORE is not built.
        let protected = |message: &MessageRef<'_>| message.option(OptionNumber::OSCORE).is_some();
        if !MessageRef::parse(bytes).is_ok_and(|message| group_request(&message) && !protected(&message)) {
            return;
        }
        coap_peer.last = from.now;
        let received = coap_peer.exchanges.receive(&mut self.pool, from.now, bytes);
        let Received::Request(message, key) = received else { return };
        let repeat = Repeat::of(message.code());
        if !coap_peer.exchanges.has_room(&mut self.pool, from.now, repeat) {
            self.refused += 1;
            return;
        }
        let code = self.request(from, coap_peer, &message, bytes, frame);
        coap_peer.exchanges.keep_reply(&mut self.pool, from.now, key, repeat, &[]);
        self.requests += 1;
        self.report_request(from, message.code(), code);
        let of_use = MessageRef::parse(frame.bytes()).is_ok_and(|response| {
            let empty = response.code() == Code::CONTENT && response.payload().is_empty();
            let asks_for_echo = response.option(OptionNumber::ECHO).is_some();
            asks_for_echo || response.code().is_success() && !empty
        });
        if !of_use {
            frame.truncate(0);
        }
    }

    /// Reads path and query of a request, once for the handler, the observers and the report.
    ///
    /// # Errors
    /// [`InvalidUri`]; the report then has the path with its invalid bytes replaced.
    fn read_uri(&mut self, message: &MessageRef<'_>) -> Result<(), InvalidUri> {
        self.path.clear();
        let path = Path::of(message).and_then(|path| Query::of(message).map(|_| path));
        for (number, segment) in message.values(OptionNumber::URI_PATH).enumerate() {
            if number > 0 {
                self.path.push('/');
            }
            self.path.push_str(&String::from_utf8_lossy(segment));
        }
        path.map(|_| ())
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

    /// Answers a request; the code of the response, unless that comes later.
    pub(super) fn request(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        message: &MessageRef<'_>,
        bytes: &[u8],
        frame: &mut Frame<'_>,
    ) -> Option<Code> {
        let later = message.block(OptionNumber::BLOCK2).ok().flatten().is_some_and(|block| block.number > 0);
        self.report = Report { received: message.payload().len(), block: later, ..Report::default() };
        let valid = self.read_uri(message);
        let path = std::mem::take(&mut self.path);
        let code = self.respond(from, coap_peer, (message, valid.map(|()| &*path)), bytes, frame);
        self.path = path;
        if self.limits.report_requests
            && let Ok(response) = MessageRef::parse(frame.bytes())
        {
            let whole = response.uint(OptionNumber::SIZE2).map(|size| size as usize);
            self.report.sent = whole.unwrap_or(response.payload().len());
        }
        code
    }

    fn respond(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        (message, path): (&MessageRef<'_>, Result<&str, InvalidUri>),
        bytes: &[u8],
        frame: &mut Frame<'_>,
    ) -> Option<Code> {
        let answer_id = coap_peer.exchanges.message_id();
        let head = heading(message, answer_id);
        let refuse = |code: Code, frame: &mut Frame<'_>, option: Option<(OptionNumber, u32)>| {
            frame.truncate(0);
            let built = Builder::new(frame, head.0, code, head.1, message.token());
            let _ = built.and_then(|mut builder| option.map_or(Ok(()), |(number, value)| builder.uint(number, value)));
            Some(code)
        };
        if self.is_too_fast(from.now, coap_peer) {
            return refuse(Code::TOO_MANY_REQUESTS, frame, Some((OptionNumber::MAX_AGE, 1)));
        }
        let unproven =
            self.limits.verify_addresses && from.identity.protection == Protection::Plain && !coap_peer.verified;
        if from.unverified && !coap_peer.verified && from.oscore.is_none() {
            // Nothing is done before the sender showed that it says this now (RFC 9175, section 2.3).
            if !message.option(OptionNumber::ECHO).is_some_and(|echo| secret::same(echo, &coap_peer.echo)) {
                return challenge(head, message, &coap_peer.echo, frame);
            }
            coap_peer.verified = true;
        }
        if unproven && message.option(OptionNumber::ECHO).is_some_and(|echo| secret::same(echo, &coap_peer.echo)) {
            coap_peer.verified = true;
        } else if unproven && !message.code().is_safe() {
            return challenge(head, message, &coap_peer.echo, frame);
        }
        let Ok(path) = path else { return refuse(Code::BAD_REQUEST, frame, None) };
        if message.uint(OptionNumber::OBSERVE) == Some(DEREGISTER) {
            coap_peer.deregister(message.token());
        }
        let block = match message.block(OptionNumber::BLOCK1) {
            Err(code) => return refuse(code, frame, None),
            Ok(block) => block.filter(|block| block.more || block.number > 0),
        };
        let served = match block {
            None if message.payload().len() > self.limits.max_body => {
                let most = (OptionNumber::SIZE1, self.limits.max_body as u32);
                return refuse(Code::REQUEST_ENTITY_TOO_LARGE, frame, Some(most));
            }
            None => self.serve(from, coap_peer, (message, path), answer_id, frame),
            Some(block) => match self.upload(from, coap_peer, message, block) {
                Err((code, option)) => return refuse(code, frame, option),
                Ok(body) => self.serve(from, coap_peer, (&message.with_body(&body), path), answer_id, frame),
            },
        };
        if unproven && !coap_peer.verified && frame.len() > AMPLIFICATION * bytes.len() {
            return challenge(head, message, &coap_peer.echo, frame);
        }
        match served {
            Served::Responded { code, observed } => {
                if observed {
                    self.register(from, coap_peer, (message, path), bytes);
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

    /// Takes a request whose body is complete to the application.
    fn serve(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        (message, path): (&MessageRef<'_>, &str),
        answer_id: u16,
        frame: &mut Frame<'_>,
    ) -> Served {
        let asked = message.block(OptionNumber::BLOCK2).ok().flatten();
        let in_parts = message.option(OptionNumber::BLOCK1).is_some();
        let (message_type, message_id) = heading(message, answer_id);
        if asked.is_some_and(|block| block.number > 0) {
            if let Some(whole) = coap_peer.transfers.kept(from.now, from.operation(message))
                && Authorized::new(&self.policy, Request::new(*message, from.identity)).is_ok()
            {
                return write(whole, asked, message_type, message_id, message.token(), frame);
            }
            if !message.code().is_safe() {
                let built = Builder::new(frame, message_type, LOST, message_id, message.token());
                return built.map_or(Served::NoRoom, |_| Served::Responded { code: LOST, observed: false });
            }
        }
        let number = coap_peer.next_number(message.token());
        let request = Request::new(*message, from.identity);
        let has_room = !from.to_group
            && (number > 1 || coap_peer.observations.len() < MAX_OBSERVATIONS && !self.observations.is_full());
        let request = if has_room { request.observable(number) } else { request };
        let cause = &self.report.cause;
        let exchange = Exchange {
            from,
            path,
            commands: &self.commands,
            notifier: &self.notifier,
            cause,
            deferrals: &self.deferrals,
            deferred: Cell::default(),
        };
        let mut handler = Bridge { application: &mut self.application, exchange, executed: &self.report.executed };
        if message.code().is_safe() && !in_parts {
            return serve(request, &self.policy, &mut handler, answer_id, frame);
        }
        // What cannot be made again is made whole, and cut here.
        let mut whole_frame = self.scratch.frame(self.limits.max_body);
        let served = serve(request, &self.policy, &mut handler, answer_id, &mut whole_frame);
        let Ok(response) = MessageRef::parse(whole_frame.bytes()) else { return served };
        let size = asked.map_or(tegmen::coap::block::MAX_SIZE, Block::size);
        if response.payload().len() <= size && frame.append(whole_frame.bytes()).is_ok() {
            return served;
        }
        let whole = Whole::of(&response);
        let written = write(&whole, asked, message_type, message_id, message.token(), frame);
        if coap_peer.transfers.keep(from, from.operation(message), whole, &self.bodies) {
            return written;
        }
        frame.truncate(0);
        self.report.cause.set(Some(self.bodies.complaint()));
        let code = Code::SERVICE_UNAVAILABLE;
        let built = Builder::new(frame, message_type, code, message_id, message.token());
        built.map_or(Served::NoRoom, |_| Served::Responded { code, observed: false })
    }

    /// The sender observes from now on.
    fn register(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        (message, path): (&MessageRef<'_>, &str),
        bytes: &[u8],
    ) {
        let observation = Observation::new(Token::new(message.token()), coap_peer.next_number(message.token()));
        coap_peer.deregister(message.token());
        // There is room, or the response would not have said that it can be observed.
        let Some(share) = self.observations.share(1) else { return };
        let path: Arc<str> = path.into();
        self.observers.add(&path, from.peer);
        coap_peer.observations.push(Observed {
            observation,
            request: match &from.oscore {
                None => bytes.into(),
                Some(_) => in_clear(message),
            },
            oscore: from.oscore.clone(),
            path,
            changed: false,
            pending: None,
            message_id: None,
            _share: share,
        });
    }

    /// Writes the next notification that is due for this peer; `None` if there is none.
    pub(super) fn notify(
        &mut self,
        from: &Source,
        coap_peer: &mut CoapPeer,
        crypto: &mut HostCrypto,
        random: u8,
        frame: &mut Frame<'_>,
    ) -> Option<()> {
        if coap_peer.exchanges.outstanding(&self.pool) > 0 {
            return None;
        }
        let index = coap_peer.observations.iter().position(Observed::is_due)?;
        let observed = coap_peer.observations.get_mut(index)?;
        observed.changed = false;
        // Sooner than PROBING_RATE allows, an acknowledgement has to show that the client is there (RFC 7641, section 4.5.1).
        let early = from.now < coap_peer.probing.next();
        let confirmable = observed.observation.confirm(self.limits.unconfirmed) || early;
        let message_type = if confirmable { MessageType::Confirmable } else { MessageType::NonConfirmable };
        let head = (message_type, coap_peer.exchanges.message_id());
        let served = match observed.oscore.clone() {
            None => self.renew(from, observed, head, frame),
            Some(oscore) => {
                let mut served = Served::NoRoom;
                let from = from.under(&oscore);
                self.protect(&oscore, None, crypto, frame, |server, inner| {
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
        let sent = coap_peer.exchanges.sent(&mut self.pool, from.now, frame.bytes(), random).ok();
        if !confirmable {
            coap_peer.probing.sent(from.now, frame.len());
        }
        observed.pending = sent.filter(|_| confirmable);
        observed.message_id = (!confirmable).then_some(head.1);
        // An error is the last notification (RFC 7641, section 4.2).
        if !matches!(served, Served::Responded { observed: true, .. }) {
            coap_peer.observations.swap_remove(index);
        }
        let complete = matches!(served, Served::Responded { .. }) && sent.is_some();
        complete.then_some(())
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
    pub(super) fn complete(
        &mut self,
        to: &Source,
        coap_peer: &mut CoapPeer,
        (request, reply): (DeferredRequest, Reply),
        crypto: &mut HostCrypto,
        random: u8,
        frame: &mut Frame<'_>,
    ) -> Option<()> {
        if request.to_group && !reply.code.is_success() {
            return None;
        }
        let message_id = coap_peer.exchanges.message_id();
        match request.oscore.clone() {
            None => self.write_separate(to, coap_peer, (request, reply), message_id, frame)?,
            Some(oscore) => {
                let (to, mut written) = (to.under(&oscore), None);
                self.protect(&oscore, None, crypto, frame, |server, inner| {
                    written = server.write_separate(&to, coap_peer, (request, reply), message_id, inner);
                });
                written?;
            }
        }
        coap_peer.exchanges.sent(&mut self.pool, to.now, frame.bytes(), random).ok()?;
        Some(())
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
fn challenge(head: (MessageType, u16), message: &MessageRef<'_>, echo: &[u8], frame: &mut Frame<'_>) -> Option<Code> {
    frame.truncate(0);
    let built = Builder::new(frame, head.0, Code::UNAUTHORIZED, head.1, message.token());
    let _ = built.and_then(|mut builder| builder.option(OptionNumber::ECHO, echo));
    Some(Code::UNAUTHORIZED)
}

fn write(
    whole: &Whole,
    asked: Option<Block>,
    message_type: MessageType,
    message_id: u16,
    token: &[u8],
    frame: &mut Frame<'_>,
) -> Served {
    let written = Builder::new(frame, message_type, Code::CONTENT, message_id, token)
        .and_then(|builder| whole.write(asked, builder));
    match written {
        Ok(_) => Served::Responded { code: Code(frame.bytes().get(1).copied().unwrap_or(0)), observed: false },
        Err(BuildError::Full | BuildError::Order) => Served::NoRoom,
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
