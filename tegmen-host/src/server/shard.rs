//! One shard of a server: its sockets, its endpoint with the peers, and its timers.

mod commands;
mod group_observations;
mod persistence;
mod session;

use super::cid_routing::{CidRouting, Passed};
use super::coap_peer::Attached;
use super::command::Command;
use super::ending::{Answering, Ending};
use super::held::Held;
use super::limits::{Gate, Limited};
use super::oscore::is_protected;
use super::serve::{CoapServer, Features, Resources, pool};
use super::server_keys::ServerKeys;
use super::shared::Shared;
use super::signing::Signing;
use super::sockets::own_addresses;
use super::tried::Tried;
use super::unauthenticated::Unauthenticated;
use super::{Application, Event, Exporter, Kind, ServerLimits, Signatures, StartError, Totals};
use crate::clock;
use crate::credentials::{Credentials, KeyStore};
use crate::group::Membership;
use crate::provider::HostCrypto;
use crate::resumption::{ResumptionCounters, ServerResumption};
use crate::slab::Slab;
use crate::udp::{Inbound, Outbox, Socket};
use crate::uri::Scheme;
use group_observations::GroupObservations;
use persistence::Persistence;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::SystemTime;
use tegmen::address::{Address, Path};
use tegmen::coap::PeerExchanges as _;
use tegmen::cx::Environment;
use tegmen::dtls::record::ContentType;
use tegmen::dtls::{AlertDescription, Extended, PublicKeys, Records, Resuming};
use tegmen::endpoint::{Endpoint, Event as EndpointEvent, Peers as _};
use tegmen::identity::{PeerId, Protection};
use tegmen::node::Node;
use tegmen::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// The level of a fatal alert (RFC 5246, section 7.2).
const FATAL: u8 = 2;

/// Returns the alert if `answer` refuses a ClientHello. Such an answer is a fatal alert in an unencrypted record (RFC
/// 6347, section 4.1). Returns `None` for another answer.
pub(crate) fn refusal(answer: &[u8]) -> Option<AlertDescription> {
    match *answer {
        [content_type, _, _, 0, 0, .., FATAL, description] if content_type == ContentType::ALERT.0 => {
            Some(AlertDescription(description))
        }
        _ => None,
    }
}

pub(super) type Table = Slab<Attached>;
type Role = PublicKeys<Extended<Resuming<Limited, ServerResumption>>, ServerKeys>;

pub(super) struct Shard<A> {
    /// The number of the shard in its server.
    number: usize,
    node: Node<Table, Role, Features>,
    resumption: ServerResumption,
    /// The number of established sessions of each kind.
    established: [u64; Kind::NAMES.len()],
    environment: Environment<HostCrypto>,
    outbox: Outbox,
    secure_ports: Vec<u16>,
    /// The addresses from which the server sends responses as a member of a group, and at which it does not listen.
    own_addresses: Vec<Address>,
    coap_server: CoapServer<A>,
    totals: Arc<Mutex<Totals>>,
    seconds: u32,
    /// The expiry time of the server's certificate, and then the time by which a CRL has to be replaced. A value is
    /// `None` if there is no such time. The Boolean in each value is true if the time has passed.
    ends: [Option<(SystemTime, bool)>; 2],
    /// The version of the credentials when the sessions were last checked against them.
    version: u64,
    gate: Arc<Gate>,
    store: Option<Arc<dyn KeyStore>>,
    store_answers_every: Duration,
    /// The handshakes that wait for a private-key operation.
    signing: Signing,
    /// The answers of the key store to handshakes that need a key. Each answer waits until the time at which it may be
    /// used.
    held: Held,
    tried: Tried,
    cid_routing: CidRouting,
    /// The sessions that the server keeps over a restart; `None` if it keeps none.
    persistence: Option<Persistence>,
    exporter: Option<Exporter>,
    answering: Answering,
    /// The group observations that have started. Only the first shard has any.
    group_observations: GroupObservations,
}

/// Maximum number of batches of datagrams that are received from one socket before the next socket is read.
const BATCHES: usize = 16;
/// The minimum time between two runs of the work that is due each second. It is shorter than a second, because a timer
/// can fire early.
const ALMOST_A_SECOND: Duration = Duration::from_millis(900);
/// Maximum number of messages, including notifications, that are sent because of timers before datagrams are received
/// again.
const POLLED: usize = 256;
/// Maximum number of commands that are executed, and of prepared responses that are sent, between two batches of received
/// datagrams.
const COMMANDS: usize = 64;

impl<A: Application> Shard<A> {
    /// Returns shard `number`. Handlers send commands to the shard through `commands`. The shard publishes its counts
    /// in `totals`.
    ///
    /// # Errors
    /// [`StartError::System`] if there is no randomness, [`StartError::KeyLog`] if the key log cannot be written.
    pub(super) fn new(
        shared: &Shared<'_, A>,
        number: usize,
        commands: mpsc::UnboundedSender<Command>,
        totals: Arc<Mutex<Totals>>,
    ) -> Result<Self, StartError> {
        let (config, shards) = (shared.config, shared.shards());
        let mut environment = Environment::new(shared.crypto()?);
        let (capacity, dtls) = (shared.capacity(), shared.dtls(number));
        let role = Resuming { role: Limited(shared.gate.clone()), sessions: shared.resumption.clone() };
        let keys = ServerKeys::new(shared.keys.clone(), config.delegate.clone());
        let role = PublicKeys { role: Extended::with(role, &dtls), keys };
        let endpoint = Endpoint::with_roles(&mut environment.at(clock::now()), Table::new(capacity), dtls, role);
        let features = Features::new(shared, number);
        let mut resources = Resources::new(shared.application.clone(), commands.clone(), shared.notifier.clone());
        resources.edhoc = config.edhoc.clone().map(|edhoc| (edhoc, shared.events.clone()));
        resources.offers = shared.offers.clone();
        let unauthenticated = Unauthenticated::new(config.coap.max_unauthenticated.div_ceil(shards));
        let limits = (ServerLimits::from(config), unauthenticated);
        let rights = (shared.policy.clone(), Credentials::clone(shared.credentials));
        let mut coap_server = CoapServer::new(resources, rights, shared.events.clone(), limits, &features.bodies);
        coap_server.deferrals.acknowledges_later = true;
        coap_server.memberships = features.groups.clone();
        let mut node = Node::with_features(endpoint, pool(&config.coap, shards), features);
        // A client that has several requests at once is sent their deferred responses at once.
        node.set_nstart(usize::MAX);
        let per_second = config.sessions.signatures_per_second.div_ceil(shards as u32);
        let idle = config.dtls.idle_timeout;
        let give_up = if idle.is_zero() { Instant::NEVER } else { clock::now().after(idle) };
        Ok(Self {
            number,
            node,
            resumption: shared.resumption.clone(),
            established: Default::default(),
            environment,
            outbox: Outbox::default(),
            secure_ports: shared
                .addresses
                .iter()
                .filter(|l| l.scheme == Scheme::Coaps)
                .map(|l| l.address.port())
                .collect(),
            own_addresses: own_addresses(&config.memberships, &shared.addresses)
                .into_iter()
                .map(Address::from)
                .collect(),
            signing: Signing::new(per_second, commands, number),
            coap_server,
            totals,
            seconds: 0,
            ends: [None; 2],
            version: shared.credentials.version(),
            store: config.trust.key_store.clone(),
            store_answers_every: config.trust.key_store_answers_every,
            held: Held::new(capacity.handshakes),
            tried: Tried::default(),
            cid_routing: CidRouting::new(number, shared.to_shards.clone(), shared.waiting.clone()),
            persistence: shared.sessions.clone().map(|sessions| Persistence::new(sessions, give_up)),
            exporter: config.exporter.clone(),
            answering: Answering::new(&shared.answering),
            group_observations: GroupObservations::new(shared.offers.clone()),
            gate: shared.gate.clone(),
        })
    }

    /// Serves until `ending` changes. After that the shard receives nothing from its own sockets, but still handles
    /// datagrams for its sessions that other shards received. A server that drains ends all shards together, when none
    /// has a request to answer.
    pub(super) async fn run(
        mut self,
        sockets: Vec<Socket>,
        mut commands: mpsc::UnboundedReceiver<Command>,
        mut passed: mpsc::Receiver<Passed>,
        mut ending: watch::Receiver<Ending>,
    ) {
        let mut inbound = Inbound::default();
        let mut every_second = tokio::time::interval(std::time::Duration::from_secs(1));
        let mut second = clock::now();
        let mut is_more_due = false;
        // The time by which this shard ends, once it is known, and whether other shards may still pass datagrams on.
        let (mut ends_by, mut is_passed_to) = (None, true);
        loop {
            let acknowledgement = self.coap_server.deferrals.next_acknowledgement();
            let alarms = self.node.endpoint.next_alarm().into_iter().chain(self.held.next());
            let alarm = alarms.chain(acknowledgement).min();
            let patience = ends_by.filter(|by| *by > tokio::time::Instant::now());
            tokio::select! {
                biased;
                _ = ending.changed(), if ends_by.is_none() => {
                    ends_by = Some(match *ending.borrow() {
                        Ending::Drained { by } => by,
                        Ending::No | Ending::Now => tokio::time::Instant::now(),
                    });
                    self.cid_routing.end();
                }
                () = self.answering.changed(), if ends_by.is_some() => {}
                () = readable(&sockets), if ends_by.is_none() => {
                    let is_more = self.receive(&sockets, &mut inbound, (&mut commands, &mut passed)).await;
                    if is_more {
                        // The other tasks of this thread, such as the requests of a proxy, do not wait for the end of a flood.
                        tokio::task::yield_now().await;
                    }
                }
                Some(command) = commands.recv() => {
                    self.on_command(clock::now(), command);
                    // Responses that come together are sent together.
                    self.do_some(&mut commands, &mut passed);
                }
                from_other = passed.recv(), if is_passed_to => match from_other {
                    Some(passed) => self.on_passed(passed),
                    None => is_passed_to = false,
                },
                // A timer would wait for the next millisecond.
                () = tokio::task::yield_now(), if is_more_due || self.coap_server.deferrals.has_released() => {
                    self.send_prepared(clock::now());
                }
                () = tokio::time::sleep_until(patience.unwrap_or_else(tokio::time::Instant::now)), if patience.is_some() => {}
                () = sleep_until(alarm), if alarm.is_some() => {}
                _ = every_second.tick() => {}
            }
            let now = clock::now();
            // Also where there was always something to receive.
            if now >= second {
                second = now.after(ALMOST_A_SECOND);
                self.on_second(self.number == 0);
            }
            self.on_held(now);
            self.acknowledge_deferred(now);
            is_more_due = self.poll();
            self.outbox.flush(&sockets).await;
            if let Some(by) = ends_by
                && !is_passed_to
            {
                self.answering.set(!self.coap_server.deferrals.is_empty());
                if self.answering.is_over() || tokio::time::Instant::now() >= by {
                    break;
                }
            }
        }
        self.park();
        self.end_group_observations();
        self.say_goodbye();
        self.publish();
        self.outbox.flush(&sockets).await;
    }

    /// Receives waiting datagrams from each socket, up to a limit, and handles them. Returns true if a socket may have
    /// more datagrams.
    async fn receive(
        &mut self,
        sockets: &[Socket],
        inbound: &mut Inbound,
        (commands, passed): (&mut mpsc::UnboundedReceiver<Command>, &mut mpsc::Receiver<Passed>),
    ) -> bool {
        let mut is_more = false;
        for socket in sockets {
            for batch in 1..=BATCHES {
                let now = clock::now();
                match socket.receive(inbound) {
                    Ok(true) => is_more |= batch == BATCHES,
                    Ok(false) | Err(_) => break,
                }
                self.node.endpoint.peers.prefetch(inbound.paths().iter());
                let to_group = socket.is_in_group();
                for (path, datagram) in inbound.datagrams() {
                    if to_group {
                        self.on_group_request(now, path, datagram);
                    } else {
                        self.on_datagram(now, path, datagram, false);
                    }
                }
                self.do_some(commands, passed);
                self.poll();
                self.outbox.flush(sockets).await;
            }
        }
        is_more
    }

    /// Executes a limited number of commands, sends a limited number of prepared responses, and handles a limited number
    /// of datagrams that other shards received.
    /// Without this call the commands and these datagrams would wait while other datagrams arrive continuously.
    fn do_some(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>, passed: &mut mpsc::Receiver<Passed>) {
        let now = clock::now();
        for _ in 0..COMMANDS {
            let Ok(command) = commands.try_recv() else { break };
            self.on_command(now, command);
        }
        self.send_prepared(now);
        for _ in 0..COMMANDS {
            let Ok(passed) = passed.try_recv() else { break };
            self.on_passed(passed);
        }
    }

    /// Handles a datagram. `is_passed` is true if another shard received it.
    #[inline]
    fn on_datagram(&mut self, now: Instant, path: &Path, datagram: &mut [u8], is_passed: bool) {
        if !self.node.features.groups.0.is_empty() && self.is_for_member(path, datagram) {
            return;
        }
        if !self.secure_ports.contains(&path.local.port) {
            let Self { node, environment, coap_server, outbox, .. } = self;
            let out = outbox.draft();
            let event = node.handle_plain(&mut environment.at(now), path, datagram, coap_server, out);
            if let Some(event) = event {
                self.on_event(now, event);
            }
            return self.on_handled(now, path);
        }
        if !is_passed && self.cid_routing.pass(path, datagram) {
            return;
        }
        if self.persistence.is_some() && self.restore(now, path, datagram) {
            return;
        }
        let mut records = Records::new(datagram);
        loop {
            let Self { node, environment, coap_server, outbox, .. } = self;
            let out = outbox.draft();
            match node.handle(&mut environment.at(now), path, &mut records, coap_server, out) {
                None => return self.on_handled(now, path),
                Some(EndpointEvent::Answer { len }) => {
                    let refusal = outbox.draft().get(..len.into()).and_then(refusal);
                    outbox.queue(*path, len.into());
                    if let Some(alert) = refusal {
                        (self.coap_server.events)(Event::HelloRefused { remote: path.remote.into(), alert });
                    }
                }
                Some(event) => self.on_event(now, event),
            }
        }
    }

    /// Handles a datagram that another shard received, for a session of this shard.
    fn on_passed(&mut self, Passed { path, mut datagram }: Passed) {
        self.cid_routing.taken(&path);
        self.on_datagram(clock::now(), &path, &mut datagram, true);
    }

    /// Handles a datagram to a multicast group. Each response waits for a random time. The server does not send
    /// responses that are not useful to the sender, such as most errors (RFC 7252, section 8.1).
    fn on_group_request(&mut self, now: Instant, path: &Path, datagram: &mut [u8]) {
        if let Some(membership) = self.node.features.groups.find(&path.local).cloned() {
            return self.on_protected(now, &membership, path, datagram);
        }
        if self.secure_ports.contains(&path.local.port) {
            return;
        }
        if self.node.features.oscore.is_named_by(datagram) {
            self.on_discovery(now, path, datagram);
        } else {
            let Self { node, environment, coap_server, outbox, .. } = self;
            node.handle_group(&mut environment.at(now), path, datagram, coap_server, outbox.draft());
            self.on_handled(now, path);
        }
    }

    /// Handles a protected request to a group, under a context that no other server has. A client sends such a request
    /// when it searches for the server. The response is sent at once, because no other member can respond. A request
    /// that cannot be opened gets no response (RFC 7252, section 8.2).
    fn on_discovery(&mut self, now: Instant, path: &Path, datagram: &mut [u8]) {
        let Self { node, environment, coap_server, outbox, .. } = self;
        match node.handle_plain(&mut environment.at(now), path, datagram, coap_server, outbox.draft()) {
            Some(EndpointEvent::Transmit { len, .. })
                if !outbox.draft().get(..len.into()).is_some_and(is_protected) => {}
            Some(event) => self.on_event(now, event),
            None => {}
        }
        self.on_handled(now, path);
    }

    /// Handles a datagram to a group that Axiom protects.
    fn on_protected(&mut self, now: Instant, membership: &Membership, path: &Path, datagram: &mut [u8]) {
        let Self { node, environment, coap_server, outbox, .. } = self;
        if is_rekey_message(datagram) {
            membership.rekey(&mut environment.crypto, datagram);
            return;
        }
        membership.note_epoch(datagram);
        node.handle_protected_group(&mut environment.at(now), path, datagram, coap_server, outbox.draft());
        self.on_handled(now, path);
    }

    /// Handles a message that the controller of a group sent to one member alone. Returns true if the datagram is such
    /// a message, or if its destination address is used only by memberships. No other part of the server may then
    /// handle the datagram.
    fn is_for_member(&mut self, path: &Path, datagram: &[u8]) -> bool {
        if !is_rekey_message(datagram) {
            return self.own_addresses.contains(&path.local);
        }
        let Self { node, environment, .. } = self;
        let same_port = |member: &&Membership| member.group().port() == path.local.port;
        for membership in node.features.groups.0.iter().filter(same_port) {
            membership.rekey(&mut environment.crypto, datagram);
        }
        true
    }

    /// Handles a limited number of due timers, so that other work does not wait long. Returns true if more timers may
    /// be due.
    pub(super) fn poll(&mut self) -> bool {
        let now = clock::now();
        for _ in 0..POLLED {
            let Self { node, environment, coap_server, outbox, .. } = self;
            let Some(event) = node.poll(&mut environment.at(now), coap_server, outbox.draft()) else { return false };
            self.on_event(now, event);
        }
        true
    }

    /// Completes the work for a datagram that came over `path`. For each peer that has just got memory for exchanges,
    /// sets an alarm after EXCHANGE_LIFETIME. The node then frees this memory if the peer has sent nothing in the
    /// meantime. Reports the requests that OSCORE refused.
    #[inline]
    fn on_handled(&mut self, now: Instant, path: &Path) {
        let Node { endpoint, features, .. } = &mut self.node;
        self.coap_server.on_handled(now, &mut endpoint.peers, &mut features.observers);
        while let Some(problem) = self.node.features.oscore.problems.pop() {
            let to_group = SocketAddr::from(path.local).ip().to_canonical().is_multicast();
            if let Some(event) = problem.event(path.remote.into(), to_group) {
                (self.coap_server.events)(event);
            }
        }
    }

    /// Queues the first `len` bytes of the outbox's draft buffer as a datagram for `peer`.
    pub(super) fn transmit(&mut self, peer: PeerId, len: u16) {
        if let Some(path) = self.node.path(peer) {
            self.outbox.queue(path, len.into());
        }
        if self.persistence.is_some() {
            self.lease_ahead(peer);
        }
    }

    /// Sends the last reply again to a peer that has a new address, because the reply was sent to the old address.
    /// Without this the peer would wait for the reply, and then repeat its request.
    pub(super) fn repeat_reply(&mut self, now: Instant, peer: PeerId) {
        let Self { node, environment, outbox, .. } = self;
        let event = node.write(&mut environment.at(now), peer, outbox.draft(), |cx, attached, pool, frame| {
            if let Some(exchanges) = attached.exchanges() {
                // A frame without the message is not sent.
                let _ = frame.append(exchanges.last_reply(pool, cx.now));
            }
        });
        if let Some(event) = event {
            self.on_event(now, event);
        }
    }

    fn on_second(&mut self, reload: bool) {
        self.seconds = self.seconds.wrapping_add(1);
        self.coap_server.give_back(&mut self.node.storage, clock::now());
        self.give_up_deferred(clock::now());
        self.notify_groups(clock::now());
        self.node.endpoint.roles.keys.forget_devices();
        let Node { endpoint, features, .. } = &mut self.node;
        self.coap_server.deferrals.retain_peers(|peer| endpoint.peers.peer(peer).is_some());
        features.sweep(clock::now(), |peer| {
            endpoint.peers.attached(peer).is_some_and(|attached| attached.coap_peer().is_some())
        });
        if self.seconds.is_multiple_of(64) {
            self.sweep_persisted(clock::now());
        }
        self.coap_server.report_full(clock::now(), self.environment.counters.table_full);
        if reload {
            self.coap_server.every_second();
            if let Err(error) = self.resumption.tick(&mut self.environment.crypto) {
                (self.coap_server.events)(Event::TicketKeysFailed { error });
            }
            self.report_ends();
            match self.node.endpoint.roles.keys.own.reload_if_changed() {
                Ok(false) => {}
                Ok(true) => (self.coap_server.events)(Event::TrustReloaded),
                Err(error) => (self.coap_server.events)(Event::TrustReloadFailed { error }),
            }
        }
        let version = self.coap_server.credentials.version();
        if std::mem::replace(&mut self.version, version) != version {
            self.end_outdated();
        }
        self.publish();
    }

    /// Reports once that the server's certificate has expired, and once that a CRL has to be replaced. Only the first
    /// shard makes these reports.
    pub(super) fn report_ends(&mut self) {
        if self.number != 0 {
            return;
        }
        let keys = &self.node.endpoint.roles.keys.own;
        let ends = [keys.certificate_expires(), keys.revocation_due()];
        let said = std::mem::replace(&mut self.ends, ends.map(|at| at.map(|at| (at, at <= SystemTime::now()))));
        for (is_list, (now, said)) in self.ends.iter().zip(said).enumerate() {
            if let Some((at, true)) = *now
                && *now != said
            {
                (self.coap_server.events)(if is_list == 0 {
                    Event::CertificateExpired { at }
                } else {
                    Event::RevocationDue { at }
                });
            }
        }
    }

    /// Publishes the totals of this shard.
    pub(super) fn publish(&mut self) {
        let displaced = self.node.endpoint.peers.take_displaced() as u32;
        self.environment.counters.evicted = self.environment.counters.evicted.saturating_add(displaced);
        let totals = Totals {
            counters: self.environment.counters,
            peers: self.node.endpoint.peers.len(),
            handshakes: self.node.endpoint.peers.handshakes(),
            table_bytes: self.node.endpoint.peers.bytes(),
            requests: self.coap_server.requests + self.node.features.oscore.unopened,
            signatures: Signatures {
                done: self.signing.done,
                displaced: self.signing.displaced,
                waiting: self.signing.waiting(),
            },
            established: self.established,
            // All shards have the same.
            hellos_dropped: if self.number == 0 { self.gate.dropped() } else { 0 },
            resumption: if self.number == 0 { self.resumption.counters() } else { ResumptionCounters::default() },
            devices: if self.number == 0 { self.resumption.device_counters() } else { ResumptionCounters::default() },
            exchange_bytes: self.node.storage.heap_bytes(),
            exchanges_refused: self.coap_server.refused,
            body_bytes: if self.number == 0 { self.coap_server.bodies.used() } else { 0 },
            observations: self.node.features.observers.len(),
            address_changes: self.node.endpoint.address_changes(),
            certificate_expires: self.ends[0].map(|(at, _)| at),
            revocation_due: self.ends[1].map(|(at, _)| at),
            passed_on: self.cid_routing.passed,
            not_passed_on: self.cid_routing.dropped,
        };
        *self.totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = totals;
    }

    /// Ends every DTLS session with a close_notify alert.
    fn say_goodbye(&mut self) {
        let protected =
            |(id, peer): (PeerId, &tegmen::endpoint::Peer)| (peer.protection() == Protection::Dtls).then_some(id);
        let ids: Vec<PeerId> = self.node.endpoint.peers.iter().filter_map(protected).collect();
        for id in ids {
            self.node.endpoint.close(id);
        }
        while self.poll() {}
    }
}

/// True for a datagram that can only be a message of a group's controller: its first byte is neither the first byte of
/// a record nor of a CoAP message.
fn is_rekey_message(datagram: &[u8]) -> bool {
    matches!(datagram.first(), Some(1..=3))
}

/// Waits until a socket may have something to receive.
async fn readable(sockets: &[Socket]) {
    std::future::poll_fn(|cx| {
        let ready = sockets.iter().any(|socket| socket.poll_readable(cx).is_ready());
        if ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

async fn sleep_until(alarm: Option<Instant>) {
    if let Some(alarm) = alarm {
        tokio::time::sleep_until(clock::tokio_instant(alarm)).await;
    }
}
