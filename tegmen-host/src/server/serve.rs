//! The application of a shard's node. It admits requests, passes them to the application of the server, and reports
//! them.

use super::authorization::{AnyPolicy, Deciding, copy_of};
use super::bodies::{Ledger, ServerBodies, Share};
use super::coap_peer::{CoapPeer, Forgettable, Forgotten};
use super::command::{Command, GroupRegistration};
use super::deferred::{Deferrals, DeferredRequest};
use super::event::EventSink;
use super::group_observations::Offers;
use super::leisure::Leisure;
use super::notifier::Notifier;
use super::observers::Observers;
use super::oscore::{OscoreExchange, ServerOscore};
use super::reply::Reply;
use super::request::Exchange;
use super::shared::Shared;
use super::unauthenticated::Unauthenticated;
use super::{Answered, Application, Event, ServerCoap, ServerLimits};
use crate::clock;
use crate::contexts::MAX_UNFRAGMENTED_SIZE;
use crate::credentials::Credentials;
use crate::edhoc::{EdhocServer, Failed};
use crate::exchange_pool::ExchangePool;
use crate::group::{MembershipEvent, Memberships};
use crate::informative::FEEDBACK_DIVIDER;
use crate::request_uri;
use crate::target::VirtualHosts;
use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tegmen::address::Address;
use tegmen::axiom::SealRefused;
use tegmen::coap::handler::{Authorized, Handler, Policy};
use tegmen::coap::{Code, EXCHANGE_LIFETIME, MessageRef, OptionNumber, PeerExchanges, Repeat, Response};
use tegmen::endpoint::Peers;
use tegmen::identity::{PeerId, Principal, Protection, SenderId};
use tegmen::node::{self, Answer, Incoming, Refusal};
use tegmen::time::{Duration, Instant};
use tegmen_edhoc::transfer::{MESSAGE_FORMAT as EDHOC_FORMAT, PATH as EDHOC_PATH};
use tokio::sync::mpsc;

/// The minimum time between two events that report a lack of space for handshakes or peers.
const FULL_EVENTS_EVERY: Duration = Duration::from_secs(10);

/// The callbacks of a node in a shard, or in an endpoint that serves requests: the application, the policy and the
/// reports.
pub(crate) struct CoapServer<A> {
    pub(crate) resources: Resources<A>,
    pub(super) policy: Deciding,
    pub(crate) credentials: Credentials,
    pub(crate) events: EventSink,
    pub(super) limits: ServerLimits,
    /// The memberships of the server in groups. The events of these memberships are reported to the operator.
    pub(super) memberships: Memberships,
    /// The ledger, which counts the bytes that bodies of requests and responses take in memory. All shards share it.
    pub(super) bodies: Arc<Ledger>,
    /// The flag that is set to true when a body gets no memory, because all bodies together have reached the limit of
    /// the ledger `bodies`.
    pub(super) bodies_refused: Arc<AtomicBool>,
    /// The number of answered requests.
    pub(super) requests: u64,
    /// The number of requests that were answered with 5.03 because the memory for exchanges was full.
    pub(super) refused: u64,
    /// The requests whose response is deferred.
    pub(crate) deferrals: Deferrals,
    /// The exchanges of forgotten peers. The memory of these exchanges in the exchange pool has not been freed yet.
    pub(crate) forgotten: Forgotten,
    /// The details of the current request, for the report to the operator.
    pub(super) report: Report,
    /// The peers that have just got memory for exchanges, and that [`Self::on_handled`] has not processed yet.
    begun: Vec<PeerId>,
    /// The peers that use CoAP in clear.
    unauthenticated: Unauthenticated,
    /// The number of unanswered ClientHellos at the last event that reported them, and the earliest time of the next
    /// event.
    full: (u32, Instant),
}

/// The application of the server, and the state of the current request.
pub(crate) struct Resources<A> {
    pub(crate) application: A,
    hosts: VirtualHosts,
    /// The EDHOC responder, which answers requests to its path in place of the application; `None` if the server does
    /// not use EDHOC.
    pub(super) edhoc: Option<(EdhocServer, EventSink)>,
    pub(super) commands: mpsc::UnboundedSender<Command>,
    pub(crate) notifier: Notifier,
    /// The path of the current request, without a leading slash.
    pub(super) path: String,
    /// The address of the sender of the current request; `None` for a notification.
    pub(super) remote: Option<Address>,
    /// The address at which the current request arrived; `None` for a notification and for a request to a group.
    local: Option<Address>,
    /// The group observations that the server can start.
    pub(super) offers: Arc<Offers>,
    /// True if the deferred response to the current request has to be a separate message.
    is_separate: bool,
    /// The path of the last request with a deferred response.
    last_deferred: Arc<str>,
    pub(super) cause: Cell<Option<String>>,
    /// The number that identifies the newest responder. With a responder, the application sends a deferred response.
    responders: Cell<u64>,
    /// The number of the responder for the current request; `None` if the response is not deferred.
    deferred: Cell<Option<u64>>,
    /// The response to the current request, if the application has prepared it.
    prepared: Cell<Option<Reply>>,
    /// The length in bytes of the request body that the application has handled; `None` if the application has not
    /// handled the current request.
    executed: Option<usize>,
    /// True if the application found it cheap to answer the current request.
    is_cheap: Cell<bool>,
}

/// Details of a request for the operator, in addition to its path and code: see [`Answered`].
#[derive(Clone, Copy, Default)]
pub(super) struct Report {
    pub(super) received: usize,
    pub(super) sent: usize,
    pub(super) block: bool,
    pub(super) informative: bool,
}

/// The optional parts of the node of a shard (see [`node::Features`]): observers, bodies, OSCORE, and requests to
/// groups.
pub(super) struct Features {
    pub(super) observers: Observers,
    pub(super) bodies: ServerBodies,
    pub(super) oscore: ServerOscore,
    pub(super) leisure: Leisure,
    pub(super) groups: Memberships,
    /// An empty value for the optional parts that a server does not use: its own requests that wait for a response, and
    /// its own requests to groups.
    nothing: (),
}

impl Features {
    /// Returns the optional parts of the node of shard `number`.
    pub(super) fn new<A: Application>(shared: &Shared<'_, A>, number: usize) -> Self {
        let hosts = shared.application.virtual_hosts();
        let (config, notifier) = (shared.config, &shared.notifier);
        let observed = notifier.shards.get(number).map(|changes| changes.observed.clone()).unwrap_or_default();
        let most = config.coap.max_observations.div_ceil(shared.shards());
        let bodies = |limit| ServerBodies::new(limit, shared.bodies.clone());
        Self {
            observers: Observers::new(observed, most, config.coap.unconfirmed_notifications).with_hosts(hosts.clone()),
            bodies: bodies(config.coap.max_body),
            oscore: ServerOscore::new(config.oscore.clone(), config.edhoc.clone(), bodies(MAX_UNFRAGMENTED_SIZE))
                .with_hosts(hosts),
            leisure: Leisure::new(config.coap.leisure),
            groups: Memberships(config.memberships.clone()),
            nothing: (),
        }
    }

    /// Changes the limits of observers, bodies and responses to groups.
    pub(super) fn set_limits(&mut self, limits: &ServerLimits) {
        self.observers.set_unconfirmed(limits.unconfirmed_notifications);
        self.bodies.set_limit(limits.max_body);
        self.leisure.set_longest(limits.leisure);
    }

    /// Removes the state of peers that no longer exist, and transfers that no client continues.
    pub(super) fn sweep(&mut self, now: Instant, mut is_there: impl FnMut(PeerId) -> bool) {
        node::Observers::retain_peers(&mut self.observers, &mut is_there);
        self.bodies.sweep(now, &mut is_there);
        self.oscore.sweep(now, &mut is_there);
        self.leisure.retain_peers(is_there);
    }
}

impl node::Features for Features {
    type Queue = ();
    type Pacing = Observers;
    type Oscore = ServerOscore;
    type Observers = Observers;
    type Bodies = ServerBodies;
    type Leisure = Leisure;
    type GroupRequests = ();
    type Groups = Memberships;

    #[inline]
    fn queue(&mut self) -> &mut () {
        &mut self.nothing
    }

    #[inline]
    fn pacing(&mut self) -> &mut Observers {
        &mut self.observers
    }

    #[inline]
    fn oscore(&mut self) -> (&mut ServerOscore, &()) {
        (&mut self.oscore, &())
    }

    #[inline]
    fn observers(&mut self) -> &mut Observers {
        &mut self.observers
    }

    #[inline]
    fn bodies(&mut self) -> &mut ServerBodies {
        &mut self.bodies
    }

    #[inline]
    fn leisure(&mut self) -> &mut Leisure {
        &mut self.leisure
    }

    #[inline]
    fn group_requests(&mut self) -> &mut () {
        &mut self.nothing
    }

    #[inline]
    fn groups(&mut self) -> &mut Memberships {
        &mut self.groups
    }
}

impl<A: Application> CoapServer<A> {
    /// Returns the application of a node. `bodies` is the memory for bodies.
    pub(crate) fn new(
        resources: Resources<A>,
        (policy, credentials): (AnyPolicy, Credentials),
        events: EventSink,
        (limits, unauthenticated): (ServerLimits, Unauthenticated),
        bodies: &ServerBodies,
    ) -> Self {
        let (bodies, bodies_refused) = bodies.ledger();
        Self {
            policy: Deciding::new(policy, resources.commands.clone(), resources.hosts.clone()),
            resources,
            credentials,
            events,
            limits,
            memberships: Memberships::default(),
            bodies,
            bodies_refused,
            requests: 0,
            refused: 0,
            deferrals: Deferrals::default(),
            forgotten: Forgotten::default(),
            report: Report::default(),
            begun: Vec::new(),
            unauthenticated,
            full: (0, Instant::AT_ONCE),
        }
    }

    /// Completes the work for a datagram. For each peer that has just got memory for exchanges, sets an alarm after
    /// EXCHANGE_LIFETIME. The node then frees this memory if the peer has sent nothing in the meantime.
    #[inline]
    pub(crate) fn on_handled<G>(
        &mut self,
        now: Instant,
        peers: &mut impl Peers<Attached: Forgettable>,
        observers: &mut Observers<G>,
    ) {
        while let Some(peer) = self.begun.pop() {
            peers.schedule(peer, now.after(EXCHANGE_LIFETIME));
            if peers.peer(peer).is_some_and(|entry| entry.protection() == Protection::Plain) {
                self.unauthenticated.add(peers, observers, peer);
            }
        }
    }

    /// Initializes the CoAP state of a peer after the peer has got memory for exchanges.
    pub(crate) fn begin(&self, coap_peer: &mut CoapPeer) {
        coap_peer.forgotten = self.forgotten.clone();
        coap_peer.freshness.verify_address(self.limits.verify_addresses);
    }

    /// Does the work that is due once a second: calls the application, forgets the peers of failed handshakes, and
    /// reads the credentials again if the file of credentials changed.
    pub(crate) fn every_second(&mut self) {
        let Resources { application, notifier, .. } = &mut self.resources;
        application.every_second(notifier);
        self.credentials.give_up_handshakes();
        match self.credentials.reload_if_changed() {
            Ok(None) => {}
            Ok(Some(identities)) => (self.events)(Event::Reloaded { identities }),
            Err(error) => (self.events)(Event::ReloadFailed { error }),
        }
    }

    /// Reports how many ClientHellos got no answer, because there was no space for a further handshake or peer. There
    /// is at most one report in ten seconds. `table_full` is the number of these ClientHellos since the start.
    pub(crate) fn report_full(&mut self, now: Instant, table_full: u32) {
        let (reported, next) = self.full;
        if table_full != reported && now >= next {
            self.full = (table_full, now.after(FULL_EVENTS_EVERY));
            (self.events)(Event::Full { unanswered: table_full.wrapping_sub(reported) });
        }
    }

    /// Frees the memory of forgotten peers in the exchange pool, and removes expired replies from the pool.
    pub(crate) fn give_back(&mut self, pool: &mut ExchangePool, now: Instant) {
        self.forgotten.give_back(pool);
        pool.tick(now);
    }

    /// Removes and returns the deferred request with this number, and its response. The response is `reply` if it is
    /// given, and otherwise the prepared response. If the client has not proved its address, and the response is too
    /// long for such a client, the returned response is a challenge. Reports the response to the operator. Returns `None`
    /// if the request already has a response, or if its peer no longer exists.
    pub(crate) fn conclude(
        &mut self,
        number: u64,
        reply: Option<Reply>,
        peers: &mut impl Peers<Attached: PeerExchanges>,
    ) -> Option<(DeferredRequest, Reply)> {
        let mut request = self.deferrals.take(number)?;
        let prepared = request.prepared.take();
        let mut reply = reply.or(prepared)?;
        let deferred = &request.deferred;
        if let Some(len) = request.unproven_len
            && let Some(freshness) = peers.attached(deferred.peer).and_then(PeerExchanges::freshness)
            && !freshness.allows(true, len, reply.first_message_len())
        {
            let challenge = Reply::new(Code::UNAUTHORIZED).option(OptionNumber::ECHO, freshness.echo());
            reply = challenge.because("the client has not proved its address");
        }
        let entry = peers.peer(deferred.peer)?;
        let informative = reply.is_informative();
        if self.reports(reply.code, informative) {
            let (remote, principal) = (entry.path().remote.into(), deferred.identity.principal);
            self.resources.cause.set(reply.cause.clone());
            self.resources.path.clear();
            self.resources.path.push_str(&request.path);
            self.report = Report { received: request.received, sent: reply.payload.len(), block: false, informative };
            self.report_request(remote, principal, request.method, reply.code);
        }
        Some((request, reply))
    }

    /// Prepares the handling of a request on which the policy has decided. Returns the copy of the request message, and
    /// the [`Share`] that counts the bytes of the copy against the limit for all bodies of the server. Returns `None`
    /// if there was no memory for the copy when the request came.
    pub(crate) fn begin_decision(&mut self, request: &mut DeferredRequest) -> Option<(Vec<u8>, Share)> {
        let (copy, share) = request.copy.take()?;
        if let Ok(message) = MessageRef::parse(&copy) {
            // The path was valid when the request came.
            let _ = self.resources.begin(&message);
            self.resources.remote = request.remote;
        }
        self.report = Report { received: request.received, ..Report::default() };
        Some((copy, share))
    }

    /// True if a response with this code is reported to the operator. `informative` is true for the data of a group
    /// observation.
    const fn reports(&self, code: Code, informative: bool) -> bool {
        self.limits.report_requests || (code.class() == 5 && !informative)
    }

    /// Reports an answered request, or a deferred response, to the operator. The report contains the path that
    /// [`Resources::begin`] has read last.
    pub(super) fn report_request(&mut self, remote: SocketAddr, principal: Principal, method: Code, code: Code) {
        let Report { received, sent, block, informative } = self.report;
        let cause = self.resources.cause.take();
        if !self.reports(code, informative) {
            return;
        }
        let identity = self.credentials.name_of(principal);
        let path = format!("/{}", self.resources.path);
        let answered = Answered { remote, identity, method, path, code, received, sent, block, cause, informative };
        (self.events)(Event::Request(answered));
    }
}

impl<A: Application> node::Application<OscoreExchange, CoapPeer> for CoapServer<A> {
    #[inline]
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&self.policy, &mut self.resources))
    }

    #[inline]
    fn admit(&mut self, incoming: &Incoming<'_>, coap_peer: Option<&mut CoapPeer>) -> Result<(), Refusal> {
        self.requests += 1;
        let message = incoming.message;
        let valid = self.resources.begin(message);
        self.resources.remote = Some(incoming.path.remote);
        self.resources.local = (!incoming.to_group).then_some(incoming.path.local);
        let block = |number| message.block(number).ok().flatten();
        let is_part = block(OptionNumber::BLOCK1).is_some_and(|block| block.more);
        let block = block(OptionNumber::BLOCK2).is_some_and(|block| block.number > 0)
            || is_part && self.resources.application.acts_on_blocks(&self.resources.path, message);
        self.report = Report { received: message.payload().len(), block, ..Report::default() };
        // A group would answer a spoofed sender with many messages, each after two operations of a private key.
        if incoming.to_group && self.resources.edhoc.is_some() && self.resources.path == EDHOC_PATH {
            return Err(Refusal { code: Code::FORBIDDEN, option: None });
        }
        let per_second = self.limits.requests_per_second;
        if !coap_peer.is_none_or(|coap_peer| coap_peer.admits(incoming.now, per_second)) {
            let option = Some((OptionNumber::MAX_AGE, 1));
            return Err(Refusal { code: Code::TOO_MANY_REQUESTS, option });
        }
        valid.map_err(|_| Refusal { code: Code::BAD_REQUEST, option: None })
    }

    #[inline]
    fn on_answered(&mut self, incoming: &Incoming<'_>, answer: Answer, response: &[u8], repeat: Repeat) -> Repeat {
        let cause = |text: &str| self.resources.cause.set(Some(text.to_owned()));
        let code = match answer {
            Answer::Deferred => None,
            Answer::Code(code) => Some(code),
            Answer::NoRoom => {
                cause("the response does not fit a message");
                Some(Code::INTERNAL_SERVER_ERROR)
            }
            Answer::NoMemory => {
                self.refused += 1;
                cause(
                    "no memory is left to recognise the request if it is repeated: allow more with --max-exchange-bytes",
                );
                Some(Code::SERVICE_UNAVAILABLE)
            }
        };
        if code == Some(Code::SERVICE_UNAVAILABLE) && self.bodies_refused.swap(false, Ordering::Relaxed) {
            self.resources.cause.set(Some(self.bodies.complaint()));
        }
        self.report.block |= code == Some(Code::CONTINUE);
        let executed = self.resources.executed;
        if code == Some(Code::PROXYING_NOT_SUPPORTED) && executed.is_none() {
            self.resources.cause.set(Some("the server is not a proxy: --proxy-to allows targets".to_owned()));
        }
        self.report.received = executed.unwrap_or(self.report.received);
        if self.limits.report_requests
            && let Ok(response) = MessageRef::parse(response)
        {
            let whole = response.uint(OptionNumber::SIZE2).map(|size| size as usize);
            self.report.sent = whole.unwrap_or(response.payload().len());
        }
        if let Some(code) = code {
            let (remote, principal) = (incoming.path.remote.into(), incoming.identity.principal);
            self.report_request(remote, principal, incoming.message.code(), code);
        }
        let is_protected = incoming.identity.protection == Protection::Oscore;
        // A request that is undecided may be executed later.
        let is_open = answer == Answer::Deferred;
        match repeat {
            Repeat::Safe if !is_protected && self.resources.is_cheap.take() => Repeat::Cheap,
            _ if executed.is_some() || is_protected || is_open => repeat,
            _ => Repeat::Safe,
        }
    }

    fn on_group_clash(&mut self, group: &Address, sender: Option<SenderId>) {
        if let Some(membership) = self.memberships.find(group) {
            membership.note_clash(sender.map(SenderId::number));
        }
    }

    fn on_unsealed_response(&mut self, group: &Address, refused: SealRefused) {
        // The membership has reported that it got no numbers, and a response without space is that of one datagram.
        if refused == SealRefused::Exhausted
            && let Some(membership) = self.memberships.find(group)
        {
            membership.report(MembershipEvent::Exhausted);
        }
    }

    fn on_notification(&mut self, _: PeerId, registration: &MessageRef<'_>) {
        // The path was valid when the client registered.
        let _ = self.resources.begin(registration);
    }

    fn on_begun(&mut self, peer: PeerId, coap_peer: &mut CoapPeer) {
        self.begin(coap_peer);
        self.begun.push(peer);
    }

    fn on_deferred(&mut self, mut request: node::DeferredRequest<'_, OscoreExchange>) {
        let (message, is_undecided) = (request.message, request.is_undecided);
        let number = if is_undecided { self.policy.take_number() } else { self.resources.take_responder() };
        let (method, received) = (message.code(), message.payload().len());
        request.acknowledges_later = self.deferrals.acknowledges_later && !self.resources.is_separate;
        let (at, path, deferred) = (clock::now(), self.resources.deferred_path(), request.keep());
        let mut copy = None;
        if is_undecided {
            let bytes = copy_of(message);
            copy = self.bodies.share_of(deferred.identity.protection, bytes.len()).map(|share| (bytes, share));
            if copy.is_none() {
                let reply = Reply::new(Code::SERVICE_UNAVAILABLE).because(self.bodies.complaint());
                // The shard receives its own commands as long as it runs.
                let _ = self.resources.commands.send(Command::Respond(number, reply));
            }
        }
        let (remote, prepared) = (self.resources.remote, self.resources.prepared.take());
        let is_unproven = self.limits.verify_addresses && deferred.identity.protection == Protection::Plain;
        let unproven_len = is_unproven.then(|| copy_of(message).len());
        let request = DeferredRequest {
            at,
            deferred,
            remote,
            method,
            path,
            received,
            unproven_len,
            is_undecided,
            copy,
            prepared,
        };
        self.deferrals.open(number, request);
    }
}

impl<A: Application> Resources<A> {
    pub(crate) fn new(application: A, commands: mpsc::UnboundedSender<Command>, notifier: Notifier) -> Self {
        Self {
            hosts: application.virtual_hosts(),
            application,
            edhoc: None,
            commands,
            notifier,
            path: String::new(),
            remote: None,
            local: None,
            offers: Arc::default(),
            is_separate: false,
            last_deferred: "".into(),
            cause: Cell::default(),
            responders: Cell::default(),
            deferred: Cell::default(),
            prepared: Cell::default(),
            executed: None,
            is_cheap: Cell::default(),
        }
    }

    /// Begins to handle a request. Reads its path and query once, for the handler, the observers and the report.
    ///
    /// # Errors
    /// [`request_uri::InvalidUri`]. The report then has the path with its invalid bytes replaced.
    #[inline]
    pub(crate) fn begin(&mut self, message: &MessageRef<'_>) -> Result<(), request_uri::InvalidUri> {
        (self.executed, self.cause, self.deferred) = (None, Cell::default(), Cell::default());
        self.is_cheap.set(false);
        self.prepared.set(None);
        (self.remote, self.local, self.is_separate) = (None, None, false);
        self.hosts.read_path(message, &mut self.path)
    }
}

impl<A> Resources<A> {
    /// Returns the number of the responder of a deferred response. If the application took no responder, returns a new
    /// number that nobody uses. The application then sends no response, and the server answers the request with 5.03
    /// after the time limit.
    pub(super) fn take_responder(&self) -> u64 {
        self.deferred.take().unwrap_or_else(|| self.next_responder())
    }

    /// Returns the path of a request with a deferred response. Consecutive requests with the same path share one
    /// string.
    fn deferred_path(&mut self) -> Arc<str> {
        if *self.last_deferred != *self.path {
            self.last_deferred = self.path.as_str().into();
        }
        Arc::clone(&self.last_deferred)
    }

    /// Returns the group observation that a request is for, and the address at which the request arrived. Returns `None`
    /// if the application handles the request.
    fn offer(&self, request: &Authorized<'_>) -> Option<(usize, Address)> {
        let local = self.local?;
        let offer = self.offers.find(&self.path, (request.message(), request.identity()), &local)?;
        Some((offer, local))
    }

    /// Returns the number of a new responder.
    fn next_responder(&self) -> u64 {
        self.responders.update(|number| number + 1);
        self.responders.get()
    }
}

impl<A: Application> Handler for Resources<A> {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let offer = self.offer(request);
        let Self {
            application,
            edhoc,
            commands,
            notifier,
            path,
            remote,
            is_separate,
            cause,
            responders,
            deferred,
            prepared,
            executed,
            is_cheap,
            ..
        } = self;
        *executed = Some(request.message().payload().len());
        let remote = remote.map(SocketAddr::from);
        let exchange = Exchange { path, remote, commands, notifier, cause, responders, deferred, prepared, is_cheap };
        let request = super::Request { authorized: request, exchange: &exchange };
        let handled = match edhoc {
            Some((edhoc, events)) if path == EDHOC_PATH && request.method() == Code::POST => {
                let (responder, events) = (request.defer(response), events.clone());
                edhoc.answer(request.payload(), move |answered| {
                    if let (Some(Err(failed)), Some(remote)) = (&answered, remote) {
                        events(Event::EdhocRefused { remote, reason: failed.reason() });
                    }
                    responder.send(edhoc_reply(answered));
                });
                Ok(())
            }
            Some(_) if path == EDHOC_PATH => Err(Code::METHOD_NOT_ALLOWED),
            _ if let Some((offer, local)) = offer => {
                let (identity, responder) = (*request.identity(), request.defer(response).into_parts());
                let confirms = request.message().uint(FEEDBACK_DIVIDER) == Some(0);
                if let Some(responder) = responder {
                    notifier.register(GroupRegistration { offer, local, identity, confirms, responder });
                }
                *is_separate = true;
                Ok(())
            }
            _ => application.handle(&request, response),
        };
        if handled.is_err() {
            // The responder, if there is one, has nothing to answer.
            deferred.set(None);
            prepared.set(None);
        }
        handled
    }

    fn critical_options(&self) -> &[OptionNumber] {
        self.application.critical_options()
    }

    fn acts_on(&self, request: &MessageRef<'_>, number: OptionNumber) -> bool {
        self.application.acts_on(&self.path, request, number)
    }

    fn acts_on_blocks(&self, request: &MessageRef<'_>) -> bool {
        self.application.acts_on_blocks(&self.path, request)
    }
}

/// Returns the response to an EDHOC message (RFC 9528, appendix A.2). `answered` is `None` if too many messages wait.
fn edhoc_reply(answered: Option<Result<Vec<u8>, Failed>>) -> Reply {
    let (code, message) = match answered {
        None => {
            let reply = Reply::new(Code::SERVICE_UNAVAILABLE).max_age(Duration::from_secs(1));
            return reply.because("too many EDHOC messages wait");
        }
        Some(Ok(message)) => (Code::CHANGED, message),
        Some(Err(failed)) => (failed.code(), failed.message()),
    };
    Reply::new(code).uint(OptionNumber::CONTENT_FORMAT, EDHOC_FORMAT.into()).payload(message)
}

/// Returns the exchange pool of one shard. A quarter of its bytes is for messages that wait for an acknowledgement, and
/// the rest is for replies.
pub(crate) fn pool(config: &ServerCoap, shards: usize) -> ExchangePool {
    let bytes = config.max_exchange_bytes / shards.max(1);
    ExchangePool::new(bytes - bytes / 4, bytes / 4)
}

#[cfg(test)]
mod tests;
