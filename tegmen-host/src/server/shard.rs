//! One shard: its sockets, its endpoint with the peers, and the clock.

mod commands;
mod persistence;
mod session;
mod unauthenticated;

use super::cid_routing::{CidRouting, Passed};
use super::coap_peer::{Attached, CoapPeer};
use super::command::Command;
use super::held::Held;
use super::leisure::Leisure;
use super::limits::{Gate, Limited};
use super::serve::CoapServer;
use super::shared::Shared;
use super::signing::Signing;
use super::source::Source;
use super::{Application, Event, Kind, Signatures, StartError, Totals};
use crate::clock;
use crate::credentials::KeyStore;
use crate::provider::HostCrypto;
use crate::public_keys::PublicKeys;
use crate::resumption::{ResumptionCounters, ServerResumption};
use crate::slab::Slab;
use crate::udp::{Inbound, MAX_DATAGRAM, Outbox, Socket};
use persistence::Persistence;
use session::Tried;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::SystemTime;
use tegmen::address::Path;
use tegmen::buf::Frame;
use tegmen::coap::exchange::{Due, EXCHANGE_LIFETIME};
use tegmen::counters::Counters;
use tegmen::crypto::Crypto as _;
use tegmen::cx::Cx;
use tegmen::dtls::association::Rank;
use tegmen::dtls::record::ContentType;
use tegmen::dtls::roles::{Extended, Resuming};
use tegmen::dtls::{AlertDescription, Records, alert};
use tegmen::endpoint::{Endpoint, Event as EndpointEvent, Peers as _};
use tegmen::identity::{Identity, PeerId, Protection};
use tegmen::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};
use unauthenticated::Unauthenticated;

/// The alert, if this answer to a hello refuses it: a fatal one in clear (RFC 6347, section 4.1).
fn refusal(answer: &[u8]) -> Option<AlertDescription> {
    match *answer {
        [content_type, _, _, 0, 0, .., alert::FATAL, description] if content_type == ContentType::ALERT.0 => {
            Some(AlertDescription(description))
        }
        _ => None,
    }
}

pub(super) type Table = Slab<Attached>;
type Role = tegmen::dtls::roles::PublicKeys<Extended<Resuming<Limited, ServerResumption>>, PublicKeys>;

pub(super) struct Shard<A> {
    /// Which of the server's.
    number: usize,
    endpoint: Endpoint<Table, Role>,
    resumption: ServerResumption,
    /// Sessions established, by kind.
    established: [u64; Kind::NAMES.len()],
    crypto: HostCrypto,
    counters: Counters,
    outbox: Outbox,
    secure_ports: Vec<u16>,
    coap_server: CoapServer<A>,
    totals: Arc<Mutex<Totals>>,
    seconds: u32,
    /// When our certificate expires and when a CRL is due, and whether that is over.
    ends: [Option<(SystemTime, bool)>; 2],
    /// Of the credentials by which sessions were looked at last.
    version: u64,
    /// ClientHellos for which there was no place, up to the last event that reports them.
    unanswered: u32,
    gate: Arc<Gate>,
    store: Option<Arc<dyn KeyStore>>,
    store_answers_every: Duration,
    /// Handshakes that wait for a private key.
    signing: Signing,
    /// What is known of identities that were asked for, until it is time to act upon it.
    held: Held,
    tried: Tried,
    /// The time that an application has for a deferred response.
    response_timeout: std::time::Duration,
    /// How long a response to what a group was sent may wait.
    leisure: Duration,
    leisurely: Leisure,
    unauthenticated: Unauthenticated,
    cid_routing: CidRouting,
    /// Those of the sessions that are kept over a restart; `None` if none is.
    persistence: Option<Persistence>,
}

/// Batches that are taken from one socket before the others have their turn.
const BATCHES: usize = 16;
/// So that a tick which comes a little early still counts.
const ALMOST_A_SECOND: Duration = Duration::from_millis(900);
/// Seconds between two events that there is no space for handshakes or peers.
const FULL_EVENTS_EVERY: u32 = 10;
/// Commands that are done between two batches.
const COMMANDS: usize = 64;

impl<A: Application> Shard<A> {
    /// Returns shard `number`, whose commands come through `commands`, and which publishes its counts in `totals`.
    ///
    /// # Errors
    /// [`StartError::System`] without randomness, [`StartError::KeyLog`] if the key log cannot be written.
    pub(super) fn new(
        shared: &Shared<'_, A>,
        number: usize,
        commands: mpsc::UnboundedSender<Command>,
        totals: Arc<Mutex<Totals>>,
    ) -> Result<Self, StartError> {
        let (config, shards) = (shared.config, shared.shards());
        let mut crypto = shared.crypto()?;
        let mut counters = Counters::default();
        let mut cx = Cx { now: clock::now(), crypto: &mut crypto, counters: &mut counters };
        let (capacity, dtls) = (shared.capacity(), shared.dtls(number));
        let role = Resuming { role: Limited(shared.gate.clone()), sessions: shared.resumption.clone() };
        let role = tegmen::dtls::roles::PublicKeys { role: Extended::with(role, &dtls), keys: shared.keys.clone() };
        let endpoint = Endpoint::with_roles(&mut cx, Table::new(capacity), dtls, role);
        let per_second = config.sessions.signatures_per_second.div_ceil(shards as u32);
        let idle = config.dtls.idle_timeout;
        let give_up = if idle.is_zero() { Instant::NEVER } else { clock::now().after(idle) };
        Ok(Self {
            number,
            endpoint,
            resumption: shared.resumption.clone(),
            established: Default::default(),
            crypto,
            counters,
            outbox: Outbox::default(),
            secure_ports: shared.addresses.iter().filter(|l| l.secure).map(|l| l.address.port()).collect(),
            signing: Signing::new(per_second, commands.clone(), number),
            coap_server: CoapServer::new(shared, number, commands),
            totals,
            seconds: 0,
            ends: [None; 2],
            version: shared.credentials.version(),
            unanswered: 0,
            store: config.trust.key_store.clone(),
            store_answers_every: config.trust.key_store_answers_every,
            held: Held::new(capacity.handshakes),
            tried: Tried::default(),
            response_timeout: config.coap.response_timeout,
            leisure: config.coap.leisure,
            leisurely: Leisure::default(),
            unauthenticated: Unauthenticated::new(config.coap.max_unauthenticated.div_ceil(shards)),
            cid_routing: CidRouting::new(number, shared.to_shards.clone(), shared.waiting.clone()),
            persistence: shared.sessions.clone().map(|sessions| Persistence::new(sessions, give_up)),
            gate: shared.gate.clone(),
        })
    }

    pub(super) async fn run(
        mut self,
        sockets: Vec<Socket>,
        mut commands: mpsc::UnboundedReceiver<Command>,
        mut passed: mpsc::Receiver<Passed>,
        mut stopped: watch::Receiver<bool>,
        reload: bool,
    ) {
        let mut inbound = Inbound::default();
        let mut every_second = tokio::time::interval(std::time::Duration::from_secs(1));
        let mut second = clock::now();
        loop {
            let alarm =
                self.endpoint.next_alarm().into_iter().chain(self.held.next()).chain(self.leisurely.next()).min();
            let readable = std::future::poll_fn(|cx| {
                let ready = sockets.iter().any(|socket| socket.poll_readable(cx).is_ready());
                if ready { Poll::Ready(()) } else { Poll::Pending }
            });
            tokio::select! {
                biased;
                _ = stopped.changed() => break,
                () = readable => {
                    for socket in &sockets {
                        for _ in 0..BATCHES {
                            let now = clock::now();
                            match socket.receive(&mut inbound) {
                                Ok(true) => {}
                                Ok(false) | Err(_) => break,
                            }
                            self.endpoint.peers.prefetch(inbound.paths().iter());
                            if socket.is_in_group() {
                                inbound.each(|path, datagram| self.on_group_request(now, *path, datagram));
                            } else {
                                inbound.each(|path, datagram| self.on_datagram(now, *path, datagram));
                            }
                            // Others wait, too: what is done elsewhere must not wait until nobody says anything.
                            for _ in 0..COMMANDS {
                                let Ok(command) = commands.try_recv() else { break };
                                self.on_command(command);
                            }
                            for _ in 0..COMMANDS {
                                let Ok(passed) = passed.try_recv() else { break };
                                self.on_passed(passed);
                            }
                            self.poll();
                            self.notify(now);
                            self.outbox.flush(&sockets).await;
                        }
                    }
                }
                Some(command) = commands.recv() => self.on_command(command),
                Some(passed) = passed.recv() => self.on_passed(passed),
                () = std::future::ready(()), if !self.coap_server.observers.is_idle() => {}
                () = sleep_until(alarm), if alarm.is_some() => {}
                _ = every_second.tick() => {}
            }
            let now = clock::now();
            // Also where there was always something to receive.
            if now >= second {
                second = now.after(ALMOST_A_SECOND);
                self.on_second(reload);
            }
            self.on_held(now);
            while let Some((path, datagram)) = self.leisurely.take(now) {
                self.outbox.push(path, &datagram);
            }
            self.poll();
            self.notify(now);
            self.outbox.flush(&sockets).await;
        }
        self.park();
        self.say_goodbye();
        self.publish();
        self.outbox.flush(&sockets).await;
    }

    #[inline]
    fn on_datagram(&mut self, now: Instant, path: Path, datagram: &mut [u8]) {
        if !self.secure_ports.contains(&path.local.port) {
            let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
            if let Ok(peer) = self.endpoint.plain(&mut cx, &path, Rank::Stranger) {
                self.on_message(now, peer, datagram);
            }
            return;
        }
        if !self.cid_routing.pass(&path, datagram) {
            self.on_records(now, path, datagram);
        }
    }

    /// Handles a datagram that another shard received, for a session of this shard.
    fn on_passed(&mut self, Passed { path, mut datagram }: Passed) {
        self.cid_routing.taken(&path);
        self.on_records(clock::now(), path, &mut datagram);
    }

    #[inline]
    fn on_records(&mut self, now: Instant, path: Path, datagram: &mut [u8]) {
        if self.persistence.is_some() {
            self.restore(now, &path, datagram);
        }
        let mut records = Records::new(datagram);
        loop {
            let Self { endpoint, crypto, counters, outbox, .. } = self;
            let mut cx = Cx { now, crypto, counters };
            let draft = outbox.draft();
            match endpoint.handle(&mut cx, &path, &mut records, draft.storage) {
                None => return,
                Some(EndpointEvent::Answer { len }) => {
                    let refusal = draft.storage.get(..len.into()).and_then(refusal);
                    outbox.queue(path, len.into());
                    if let Some(alert) = refusal {
                        (self.coap_server.events)(Event::HelloRefused { remote: path.remote.into(), alert });
                    }
                }
                Some(EndpointEvent::Message { peer, bytes }) => self.on_message(now, peer, records.bytes(bytes)),
                Some(event) => self.on_event(now, event),
            }
        }
    }

    /// What is due by the clock, and what was made ready to send.
    pub(super) fn poll(&mut self) {
        let now = clock::now();
        loop {
            let Self { endpoint, crypto, counters, outbox, .. } = self;
            let mut cx = Cx { now, crypto, counters };
            let draft = outbox.draft();
            match endpoint.poll(&mut cx, draft.storage) {
                None => return,
                Some(EndpointEvent::Transmit { peer, len }) => {
                    if let Some(peer) = endpoint.peers.peer(peer) {
                        outbox.queue(*peer.path(), len.into());
                    }
                }
                Some(EndpointEvent::Alarm(peer)) => self.on_alarm(now, peer),
                Some(event) => self.on_event(now, event),
            }
        }
    }

    fn on_message(&mut self, now: Instant, peer: PeerId, bytes: &mut [u8]) {
        let Some((from, path)) = self.source(now, peer) else { return };
        let Some(len) = self.serve(&from, |server, coap_peer, counters, crypto, frame| {
            server.receive(&from, coap_peer, counters, crypto, bytes, frame);
        }) else {
            return;
        };
        if from.unverified
            && self
                .endpoint
                .peers
                .attached(peer)
                .is_some_and(|coap_peer| coap_peer.as_ref().is_some_and(|coap_peer| coap_peer.verified))
        {
            self.endpoint.verify_session(peer);
        }
        self.seal(&from, path, len);
    }

    /// Handles a datagram to a group. Nothing is answered at once, and only responses that help the sender are sent
    /// (RFC 7252, section 8.1).
    fn on_group_request(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        let mut cx = Cx { now, crypto: &mut self.crypto, counters: &mut self.counters };
        let Ok(peer) = self.endpoint.plain(&mut cx, &path, Rank::Stranger) else { return };
        let Some((from, path)) = self.source(now, peer) else { return };
        let from = Source { to_group: true, ..from };
        let answered = self
            .serve(&from, |server, coap_peer, _, _, frame| server.receive_in_group(&from, coap_peer, datagram, frame));
        if answered.is_some_and(|len| len > 0) {
            let mut random = [0; 4];
            self.crypto.random(&mut random);
            let mut draft = self.outbox.draft();
            let frame = draft.sealable(from.headroom, answered.unwrap_or(0));
            self.leisurely.keep(now, self.leisure, u32::from_ne_bytes(random), path, frame.bytes());
        }
    }

    /// Serves a message of a peer. Returns the length of the answer, which is in the draft.
    fn serve(
        &mut self,
        from: &Source,
        receive: impl FnOnce(&mut CoapServer<A>, &mut CoapPeer, &mut Counters, &mut HostCrypto, &mut Frame<'_>),
    ) -> Option<usize> {
        let attached = self.endpoint.peers.attached(from.peer)?;
        let opened = attached.is_none();
        let coap_peer = attached.get_or_insert_with(|| {
            let mut random = [0; 10];
            self.crypto.random(&mut random);
            Box::new(CoapPeer::new(from.now, random, self.coap_server.forgotten.clone()))
        });
        let mut draft = self.outbox.draft();
        let mut frame = draft.frame(from.headroom, from.max_content);
        receive(&mut self.coap_server, coap_peer, &mut self.counters, &mut self.crypto, &mut frame);
        let len = frame.len();
        if opened {
            self.endpoint.peers.schedule(from.peer, from.now.after(EXCHANGE_LIFETIME));
            if from.identity.protection == Protection::Plain {
                self.unauthenticated.add(&mut self.endpoint.peers, from.peer);
            }
        }
        Some(len)
    }

    pub(super) fn source(&mut self, now: Instant, peer: PeerId) -> Option<(Source, Path)> {
        let headroom = self.endpoint.headroom::<HostCrypto>(peer);
        let unverified = self.persistence.is_some() && self.endpoint.is_unverified(peer);
        let entry = self.endpoint.peers.peer(peer)?;
        let path = *entry.path();
        let identity = Identity { principal: entry.principal(), protection: entry.protection() };
        Some((
            Source {
                now,
                peer,
                identity,
                remote: path.remote.into(),
                max_content: entry.max_content(),
                headroom,
                to_group: false,
                unverified,
                oscore: None,
            },
            path,
        ))
    }

    /// Seals what lies in the draft, `len` bytes of it, and queues it.
    pub(super) fn seal(&mut self, to: &Source, path: Path, len: usize) {
        if len == 0 {
            return;
        }
        let mut draft = self.outbox.draft();
        let mut frame = draft.sealable(to.headroom, len);
        let mut cx = Cx { now: to.now, crypto: &mut self.crypto, counters: &mut self.counters };
        if self.endpoint.seal(&mut cx, to.peer, &mut frame).is_ok() {
            let len = frame.len();
            self.outbox.queue(path, len);
        }
        if self.persistence.is_some() {
            self.lease_ahead(to.peer);
        }
    }

    /// The answer to what the peer said from its new address went to the old one; the peer would ask again, but later.
    pub(super) fn repeat_reply(&mut self, now: Instant, peer: PeerId) {
        let Some(Some(coap_peer)) = self.endpoint.peers.attached(peer) else { return };
        let reply = coap_peer.exchanges.last_reply(&self.coap_server.pool, now).to_vec();
        self.send(now, peer, &reply);
    }

    /// Sends `message` to `peer`, protected as the peer is.
    pub(super) fn send(&mut self, now: Instant, peer: PeerId, message: &[u8]) {
        let Some((to, path)) = self.source(now, peer) else { return };
        let mut draft = self.outbox.draft();
        let mut frame = draft.frame(to.headroom, to.max_content);
        if frame.append(message).is_ok() {
            self.seal(&to, path, message.len());
        }
    }

    fn on_alarm(&mut self, now: Instant, peer: PeerId) {
        loop {
            let Some(Some(coap_peer)) = self.endpoint.peers.attached(peer) else { return };
            let mut storage = [0; MAX_DATAGRAM];
            let mut frame = Frame::new(&mut storage, 0);
            match coap_peer.exchanges.poll(&mut self.coap_server.pool, now, &mut frame) {
                Some(Due::Retransmit) => self.send(now, peer, frame.bytes()),
                // Who does not acknowledge a notification is not there (RFC 7641, section 4.5).
                Some(Due::TimedOut(id)) => coap_peer.on_refused(id),
                None => break,
            }
        }
        let Some(attached) = self.endpoint.peers.attached(peer) else { return };
        let Some(coap_peer) = attached else { return };
        if coap_peer.has_news(&self.coap_server.pool) {
            self.coap_server.observers.queue(peer, coap_peer);
        }
        coap_peer.transfers.forget(now);
        let quiet_at = coap_peer.last.after(EXCHANGE_LIFETIME);
        let next = match coap_peer.exchanges.next_deadline(&self.coap_server.pool) {
            Some(deadline) => deadline.min(quiet_at.max(now.after_millis(1000))),
            // Whatever was exchanged is forgotten by the peer, too.
            None if quiet_at <= now && coap_peer.observations.is_empty() => {
                *attached = None;
                return;
            }
            None if coap_peer.observations.is_empty() => quiet_at,
            None => now.after(EXCHANGE_LIFETIME),
        };
        self.endpoint.peers.schedule(peer, next);
    }

    fn on_second(&mut self, reload: bool) {
        self.seconds = self.seconds.wrapping_add(1);
        self.coap_server.give_back(clock::now());
        self.give_up_deferred(clock::now());
        if self.seconds.is_multiple_of(64) {
            let peers = &mut self.endpoint.peers;
            let observes =
                |peer, path: &str| matches!(peers.attached(peer), Some(Some(coap_peer)) if coap_peer.observes(path));
            self.coap_server.observers.retain(observes);
            self.sweep_persisted(clock::now());
        }
        if self.seconds.is_multiple_of(FULL_EVENTS_EVERY) && self.counters.table_full != self.unanswered {
            let unanswered = self.counters.table_full.wrapping_sub(self.unanswered);
            self.unanswered = self.counters.table_full;
            (self.coap_server.events)(Event::Full { unanswered });
        }
        if reload {
            self.coap_server.application.every_second(&self.coap_server.notifier);
            if let Err(error) = self.resumption.tick(&mut self.crypto) {
                (self.coap_server.events)(Event::TicketKeysFailed { error });
            }
            self.report_ends();
            match self.endpoint.roles().keys.reload_if_changed() {
                Ok(false) => {}
                Ok(true) => (self.coap_server.events)(Event::TrustReloaded),
                Err(error) => (self.coap_server.events)(Event::TrustReloadFailed { error }),
            }
            match self.coap_server.credentials.reload_if_changed() {
                Ok(None) => {}
                Ok(Some(identities)) => (self.coap_server.events)(Event::Reloaded { identities }),
                Err(error) => (self.coap_server.events)(Event::ReloadFailed { error }),
            }
        }
        let version = self.coap_server.credentials.version();
        if std::mem::replace(&mut self.version, version) != version {
            self.end_outdated();
        }
        self.publish();
    }

    /// Says once what of the server's own has come to its end. One shard does it for all.
    pub(super) fn report_ends(&mut self) {
        if self.number != 0 {
            return;
        }
        let keys = &self.endpoint.roles().keys;
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

    /// Lets the totals be read.
    fn publish(&mut self) {
        let displaced = self.endpoint.peers.take_displaced() as u32;
        self.counters.evicted = self.counters.evicted.saturating_add(displaced);
        let totals = Totals {
            counters: self.counters,
            peers: self.endpoint.peers.len(),
            handshakes: self.endpoint.peers.handshakes(),
            table_bytes: self.endpoint.peers.bytes(),
            requests: self.coap_server.requests,
            signatures: Signatures {
                done: self.signing.done,
                displaced: self.signing.displaced,
                waiting: self.signing.waiting(),
            },
            established: self.established,
            // All shards have the same.
            hellos_dropped: if self.number == 0 { self.gate.dropped() } else { 0 },
            resumption: if self.number == 0 { self.resumption.counters() } else { ResumptionCounters::default() },
            exchange_bytes: self.coap_server.pool.heap_bytes(),
            exchanges_refused: self.coap_server.refused,
            body_bytes: if self.number == 0 { self.coap_server.bodies.used() } else { 0 },
            observations: self.coap_server.observations.used(),
            address_changes: self.endpoint.address_changes(),
            certificate_expires: self.ends[0].map(|(at, _)| at),
            revocation_due: self.ends[1].map(|(at, _)| at),
            passed_on: self.cid_routing.passed,
            not_passed_on: self.cid_routing.dropped,
        };
        *self.totals.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = totals;
    }

    /// Tells every peer with a session that it is over.
    fn say_goodbye(&mut self) {
        let protected =
            |(id, peer): (PeerId, &tegmen::endpoint::Peer)| (peer.protection() == Protection::Dtls).then_some(id);
        let ids: Vec<PeerId> = self.endpoint.peers.iter().filter_map(protected).collect();
        for id in ids {
            self.endpoint.close(id);
        }
        self.poll();
    }
}

async fn sleep_until(alarm: Option<Instant>) {
    if let Some(alarm) = alarm {
        tokio::time::sleep_until(clock::tokio_instant(alarm)).await;
    }
}
