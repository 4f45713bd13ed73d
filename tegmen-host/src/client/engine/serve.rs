//! The server side of the engine: answers the handshakes of clients, sends deferred responses, and reports to the owner
//! of the endpoint.

use super::Engine;
use crate::client::ClientError;
use crate::client::connection::Connection;
use crate::client::io::Io;
use crate::client::serving::is_client;
use crate::clock;
use crate::server::{self, Command, DeferredRequest, Outcome, Reply};
use crate::x509::Purpose;
use std::net::SocketAddr;
use tegmen::address::Path;
use tegmen::coap::{Code, PeerExchanges as _};
use tegmen::dtls::{Answer, Fatal, Need, Rank};
use tegmen::endpoint::{Event, Peers as _};
use tegmen::identity::{PeerId, Principal};
use tegmen::node::{Observers as _, SendError};
use tegmen::time::Instant;

impl Engine {
    /// Gives a handshake the key or the verification that it needs. The peer is the client in this handshake. If this
    /// endpoint opened a handshake with the peer at the same time, the peer also has to prove that it is the expected
    /// server.
    pub(super) fn on_client_need(&mut self, peer: PeerId) -> Option<Event> {
        let session = self.io.session_of(peer);
        let mut entry = session.map(|key| &mut self.sessions.all[key]);
        let Io { node, environment, arrivals, .. } = &mut self.io;
        let serving = arrivals.serving.as_mut()?;
        let mut cx = environment.at(clock::now());
        match node.endpoint.need(peer)? {
            Need::PskOfClient { identity } => {
                let mut found = serving.credentials().keys_of(identity);
                serving.tried.add(peer, identity);
                if let Some(entry) = &mut entry {
                    let is_meant = |principal| principal == entry.principal && principal != Principal::NOBODY;
                    found = found.and_then(|keys| keys.filter(|key| is_meant(key.principal)));
                    entry.is_proved = found.is_some();
                }
                match &found {
                    Some(keys) => keys.answer(|answer| node.endpoint.resume(&mut cx, peer, answer)),
                    None => node.endpoint.resume(&mut cx, peer, Answer::Unknown),
                }
            }
            Need::VerifyPeer { certificate_type, content } => {
                let content = content.to_vec();
                let keys = &node.endpoint.roles.keys;
                let mut verified = keys.verify(certificate_type, &content, Purpose::Client);
                if let (Some(entry), Ok(_)) = (&mut entry, &verified) {
                    let keys = entry.config.trust.public_keys.clone().unwrap_or_default();
                    let meant = keys.verify(certificate_type, &content, Purpose::Server);
                    entry.is_proved = meant.is_ok();
                    if let Err(refusal) = meant {
                        verified = Err(refusal);
                    }
                }
                match verified {
                    Ok(verified) => {
                        let name = verified.name;
                        let principal = serving.credentials().certified_as(&name, certificate_type, verified.digest);
                        let spki = verified.spki.to_vec();
                        if let Some(entry) = entry {
                            entry.server = Some(name);
                        }
                        node.endpoint.resume(&mut cx, peer, Answer::Peer { public_key: &spki, principal })
                    }
                    Err(refusal) => {
                        let alert = refusal.alert();
                        if let Some(entry) = node.endpoint.peers.peer(peer) {
                            let remote = entry.path().remote.into();
                            (serving.coap_server.events)(server::Event::Refused { remote, refusal });
                        }
                        node.endpoint.resume(&mut cx, peer, Answer::Refused(alert))
                    }
                }
            }
            Need::Sign { credential, digest, .. } => {
                let signature = node.endpoint.roles.keys.sign(credential, &digest);
                let answer = signature.as_deref().map_or(Answer::Unknown, Answer::Signature);
                node.endpoint.resume(&mut cx, peer, answer)
            }
            _ => node.endpoint.resume(&mut cx, peer, Answer::Unknown),
        }
    }

    /// Reserves the number that identifies the principal of a peer, if the peer proved its identity and the endpoint
    /// serves requests. No other principal gets this number until the peer leaves the peer table.
    pub(super) fn hold_number(&mut self, peer: PeerId) {
        let Io { node, arrivals, .. } = &mut self.io;
        let peers = &mut node.endpoint.peers;
        let (Some(serving), Some(entry)) = (&arrivals.serving, peers.peer(peer)) else { return };
        let principal = entry.principal();
        if let Some(attached) = peers.attached(peer) {
            attached.hold(serving.credentials().hold(principal));
        }
    }

    /// Handles a new session that a peer opened with this endpoint.
    pub(super) fn on_client(&mut self, peer: PeerId) {
        if self.end_if_outdated(peer) {
            return;
        }
        let Io { node, arrivals, .. } = &mut self.io;
        let resumed = node.endpoint.is_resumed(peer);
        let (Some(serving), Some(entry)) = (&arrivals.serving, node.endpoint.peers.peer(peer)) else { return };
        let (remote, principal) = (SocketAddr::from(entry.path().remote), entry.principal());
        let (events, credentials) = (&serving.coap_server.events, serving.credentials());
        let identity = credentials.name_of(principal).unwrap_or_default();
        events(server::Event::Established { remote, identity, resumed });
        if principal == Principal::NOBODY && credentials.is_first_in_vain() {
            events(server::Event::AnonymousInVain { remote });
        }
    }

    /// Reports the end of a session or handshake that the peer opened.
    pub(super) fn report_end(&mut self, peer: PeerId, reason: Fatal) {
        let Io { node, arrivals, .. } = &mut self.io;
        let (Some(serving), Some(entry)) = (&arrivals.serving, node.endpoint.peers.peer(peer)) else { return };
        if matches!(entry.rank(), Rank::Ours | Rank::OursAsServer) {
            return;
        }
        let remote = entry.path().remote.into();
        let identity = serving.credentials().name_of(entry.principal()).or_else(|| serving.tried.of(peer));
        (serving.coap_server.events)(match reason {
            Fatal::Closed | Fatal::Idle => server::Event::Closed { remote, reason },
            reason => server::Event::Failed { remote, identity, reason },
        });
    }

    /// Reports a refused ClientHello if the first `len` bytes of the output buffer are an answer that refuses it.
    pub(super) fn report_refusal(&self, path: &Path, len: usize) {
        if let Some(serving) = &self.io.arrivals.serving
            && let Some(alert) = self.io.out.get(..len).and_then(server::refusal)
        {
            (serving.coap_server.events)(server::Event::HelloRefused { remote: path.remote.into(), alert });
        }
    }

    /// Ends the session that a peer opened if the key with which the peer proved its identity is no longer valid.
    /// Returns true if the session ended.
    fn end_if_outdated(&mut self, peer: PeerId) -> bool {
        let Io { node, arrivals, .. } = &mut self.io;
        let (Some(serving), Some(entry)) = (&arrivals.serving, node.endpoint.peers.peer(peer)) else { return false };
        let (remote, principal) = (entry.path().remote.into(), entry.principal());
        if serving.credentials().is_current(principal) {
            return false;
        }
        let identity = serving.credentials().name_of(principal).unwrap_or_default();
        (serving.coap_server.events)(server::Event::Outdated { remote, identity });
        node.endpoint.close(peer);
        self.io.is_due = true;
        if let Some(key) = self.io.session_of(peer) {
            self.with(key, |connection| connection.on_closed(Fatal::Closed));
        }
        true
    }

    /// Executes a command that a handler sent.
    pub(in crate::client) fn on_command(&mut self, command: Command) {
        let Io { node, arrivals, .. } = &mut self.io;
        let Some(serving) = &mut arrivals.serving else { return };
        match command {
            Command::Respond(number, reply) => self.respond(number, Some(reply)),
            Command::Release(release) => {
                serving.coap_server.deferrals.release(release);
                self.send_prepared();
            }
            Command::Decide(number, allows) => {
                if let Some(request) = serving.coap_server.deferrals.take(number) {
                    self.decide(request, allows);
                }
            }
            Command::Changed => serving.take_changes().for_each(|path| node.notify(&path)),
            Command::ChangedFor(path, whom) => {
                node.features.observers.mark_for(&path, &*whom, &mut node.endpoint.peers);
            }
            _ => {}
        }
    }

    /// Handles the decision of the policy on a request.
    fn decide(&mut self, mut request: DeferredRequest, allows: bool) {
        let Io { node, environment, arrivals, out, .. } = &mut self.io;
        let copy = arrivals.serving.as_mut().and_then(|serving| serving.coap_server.begin_decision(&mut request));
        let Some((copy, share)) = copy else {
            return self.send_deferred(request, Reply::new(Code::SERVICE_UNAVAILABLE));
        };
        let peer = request.deferred.peer;
        let mut cx = environment.at(clock::now());
        match node.decide(&mut cx, request.deferred, &copy, allows, arrivals, out) {
            Ok(len) => {
                if let Some(path) = self.io.path_of(peer).filter(|_| len > 0) {
                    self.transmit(&path, len);
                }
                self.io.rearm_for_alarm();
            }
            Err((SendError::Busy, deferred)) => {
                if let Some(serving) = &mut arrivals.serving {
                    let request = DeferredRequest { deferred, copy: Some((copy, share)), ..request };
                    serving.coap_server.deferrals.postpone(request, Outcome::Decision(allows));
                }
            }
            // The session has ended.
            Err(_) => {}
        }
    }

    /// Handles `outcome`, which is a response of the application to a request, or the decision of the policy on a
    /// request. The outcome had to wait, because too many messages waited for an acknowledgement.
    fn act(&mut self, request: DeferredRequest, outcome: Outcome) {
        match outcome {
            Outcome::Response(reply) => self.send_deferred(request, reply),
            Outcome::Decision(allows) => self.decide(request, allows),
        }
    }

    /// Sends the prepared responses that a command released.
    fn send_prepared(&mut self) {
        while let Some(serving) = &mut self.io.arrivals.serving
            && let Some((number, instead)) = serving.coap_server.deferrals.next_released()
        {
            self.respond(number, instead);
        }
    }

    /// Sends the deferred response to a request, unless the request already has a response. The response is `reply`, or
    /// the prepared response if `reply` is `None`.
    fn respond(&mut self, number: u64, reply: Option<Reply>) {
        let Io { node, arrivals, .. } = &mut self.io;
        let serving = arrivals.serving.as_mut();
        let concluded =
            serving.and_then(|serving| serving.coap_server.conclude(number, reply, &mut node.endpoint.peers));
        if let Some((request, reply)) = concluded {
            self.send_deferred(request, reply);
        }
    }

    fn send_deferred(&mut self, request: DeferredRequest, reply: Reply) {
        let Io { node, environment, arrivals, out, .. } = &mut self.io;
        let Some(serving) = &mut arrivals.serving else { return };
        let mut cx = environment.at(clock::now());
        let sent = serving.coap_server.deferrals.respond(node, &mut cx, request, reply, out);
        if let Some((peer, len)) = sent
            && let Some(path) = self.io.path_of(peer)
        {
            self.transmit(&path, len);
            self.io.rearm_for_alarm();
        }
    }

    /// Completes the work for a datagram. For each peer that has just got memory for exchanges, sets an alarm after
    /// EXCHANGE_LIFETIME. The node then frees this memory if the peer has sent nothing in the meantime. Then handles
    /// the responses and decisions that had to wait, because too many messages waited for an acknowledgement.
    pub(super) fn on_handled(&mut self) {
        let Io { node, arrivals, .. } = &mut self.io;
        let Some(serving) = &mut arrivals.serving else { return };
        let (coap_server, now) = (&mut serving.coap_server, clock::now());
        coap_server.on_handled(now, &mut node.endpoint.peers, &mut node.features.observers);
        if coap_server.deferrals.is_waiting() {
            for (request, outcome) in coap_server.deferrals.take_waiting(Instant::AT_ONCE) {
                self.act(request, outcome);
            }
        }
    }

    /// Does the work that is due once a second, as a server does: answers overdue requests with 5.03, frees the memory
    /// of peers that no longer exist, reads changed files, and ends sessions whose peer proved its identity with a key
    /// that is no longer valid.
    pub(super) fn on_second(&mut self) {
        let Io { node, environment, arrivals, .. } = &mut self.io;
        let (Some(serving), now) = (&mut arrivals.serving, clock::now()) else { return };
        if now < serving.second {
            return;
        }
        serving.second = now.after_millis(1000);
        serving.coap_server.every_second();
        serving.coap_server.report_full(now, environment.counters.table_full);
        serving.coap_server.give_back(&mut node.storage, now);
        let tegmen::node::Node { endpoint, features, .. } = node;
        let mut is_there = |peer| endpoint.peers.attached(peer).is_some_and(|attached| attached.exchanges().is_some());
        features.observers.retain_peers(&mut is_there);
        features.pacing.retain_peers(&mut is_there);
        features.bodies.sweep(now, is_there);
        serving.coap_server.deferrals.retain_peers(|peer| endpoint.peers.peer(peer).is_some());
        let (before, overdue) = serving.coap_server.deferrals.overdue(now, serving.response_timeout);
        let waiting = serving.coap_server.deferrals.take_waiting(before);
        let version = serving.credentials().version();
        let is_changed = std::mem::replace(&mut serving.version, version) != version;
        for (number, reply) in overdue {
            self.respond(number, Some(reply));
        }
        for (request, outcome) in waiting {
            self.act(request, outcome);
        }
        if is_changed {
            let clients = self.io.node.endpoint.peers.iter().filter(|(_, peer)| is_client(peer));
            let clients: Vec<PeerId> = clients.map(|(peer, _)| peer).collect();
            for peer in clients {
                self.end_if_outdated(peer);
            }
        }
    }
}

impl Connection<'_> {
    /// True for a session that both endpoints opened at the same time, if the peer has the client role in the session,
    /// and has not proved that it is the server that this endpoint expects.
    pub(super) fn is_unproved(&mut self) -> bool {
        let peer = self.io.node.endpoint.peers.peer(self.entry.peer);
        peer.is_some_and(|peer| peer.rank() == Rank::OursAsServer) && !self.entry.is_proved
    }

    /// Ends a session whose peer did not prove that it is the expected server.
    pub(super) fn refuse(&mut self) {
        self.io.node.endpoint.close(self.entry.peer);
        self.io.is_due = true;
        let detail = "both ends connected at the same time, and the other one proved another identity than the one that was meant";
        self.fail_here(ClientError::Handshake { remote: self.entry.remote, detail: detail.to_owned() });
    }
}
