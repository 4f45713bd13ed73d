//! The beginning and the end of sessions: the answers to handshakes, and the reports to the operator.

use super::Shard;
use crate::clock;
use crate::credentials::KeyTicket;
use crate::exporter;
use crate::provider::HostCrypto;
use crate::resumption::ended_in_alert;
use crate::server::command::{Command, FoundKey};
use crate::server::held::Found;
use crate::server::key_operation::{Asked, Operation, Worked};
use crate::server::{Application, Event, Exporter, Kind, Session, SessionId};
use crate::x509::Purpose;
use std::net::SocketAddr;
use tegmen::address::Path;
use tegmen::crypto::Crypto as _;
use tegmen::dtls::{Answer, CertificateType, Fatal, Need, Rank};
use tegmen::endpoint::{Event as EndpointEvent, Peer, Peers as _, Phase};
use tegmen::identity::{PeerId, Principal, Protection};
use tegmen::secret::Secret;
use tegmen::time::{Duration, Instant};

/// True for a peer with an established DTLS session.
fn is_session(peer: &Peer) -> bool {
    peer.phase() == Phase::Established && peer.protection() == Protection::Dtls
}

impl<A: Application> Shard<A> {
    pub(super) fn on_event(&mut self, now: Instant, event: EndpointEvent) {
        match event {
            EndpointEvent::Need(peer) => self.on_need(now, peer),
            EndpointEvent::Established(peer) => {
                let resumed = self.node.endpoint.is_resumed(peer);
                self.hold_number(peer);
                // Its key may have been changed while it shook hands.
                if self.end_if_outdated(peer) {
                    return;
                }
                if let Some(suite) = self.node.endpoint.cipher_suite(peer) {
                    self.established[Kind::of(suite, resumed) as usize] += 1;
                }
                if let Some(entry) = self.node.endpoint.peers.peer(peer) {
                    let (remote, principal) = (SocketAddr::from(entry.path().remote), entry.principal());
                    let identity = self.coap_server.credentials.name_of(principal).unwrap_or_default();
                    (self.coap_server.events)(Event::Established { remote, identity, resumed });
                    if principal == Principal::NOBODY && self.coap_server.credentials.is_first_in_vain() {
                        (self.coap_server.events)(Event::AnonymousInVain { remote });
                    }
                }
                self.export(peer);
                self.keep(peer);
            }
            EndpointEvent::Moved(peer) => {
                self.keep(peer);
                self.repeat_reply(now, peer);
            }
            EndpointEvent::Closed { peer, reason } => {
                self.forget(peer);
                let Some(entry) = self.node.endpoint.peers.peer(peer) else { return };
                // Without a proof anybody could send the alert in a handshake with the ticket of another client.
                if ended_in_alert(reason) && entry.rank() >= Rank::Authenticated {
                    self.resumption.end(entry.principal());
                }
                let remote = SocketAddr::from(entry.path().remote);
                let identity = self.coap_server.credentials.name_of(entry.principal()).or_else(|| self.tried.of(peer));
                (self.coap_server.events)(match reason {
                    Fatal::Closed | Fatal::Idle => Event::Closed { remote, reason },
                    reason => Event::Failed { remote, identity, reason },
                });
            }
            EndpointEvent::Transmit { peer, len } => self.transmit(peer, len),
            EndpointEvent::Answer { .. } | EndpointEvent::Message { .. } | EndpointEvent::Alarm(_) => {}
        }
    }

    /// Reserves the number that identifies the principal of a peer, after the peer proved its identity. The credentials
    /// give this number to no other principal until the peer leaves the peer table.
    pub(super) fn hold_number(&mut self, peer: PeerId) {
        let peers = &mut self.node.endpoint.peers;
        let Some(principal) = peers.peer(peer).map(|entry| entry.principal()) else { return };
        if let Some(attached) = peers.attached(peer) {
            attached.hold(self.coap_server.credentials.hold(principal));
        }
    }

    /// Returns the established sessions.
    pub(super) fn sessions(&self) -> Vec<Session> {
        let established = |(_, peer): &(PeerId, &Peer)| is_session(peer);
        let session = |(peer, entry): (PeerId, &Peer)| self.session(peer, entry.path(), entry.principal());
        self.node.endpoint.peers.iter().filter(established).map(session).collect()
    }

    /// Describes the session of a peer.
    fn session(&self, peer: PeerId, path: &Path, principal: Principal) -> Session {
        let identity = self.coap_server.credentials.name_of(principal).unwrap_or_default();
        Session { id: SessionId { shard: self.number, peer }, remote: path.remote.into(), identity, principal }
    }

    /// Exports keying material of a session that has just been established: passes the material to the function of the
    /// [`Exporter`].
    fn export(&mut self, peer: PeerId) {
        let Some(Exporter { label, take }) = &self.exporter else { return };
        let exported = exporter::export::<HostCrypto, _, _>(&mut self.node.endpoint, peer, label);
        let entry = self.node.endpoint.peers.peer(peer).map(|entry| (*entry.path(), entry.principal()));
        if let (Some(exported), Some((path, principal))) = (exported, entry) {
            take(&self.session(peer, &path, principal), exported);
        }
    }

    /// Ends the session of a peer with a close_notify alert. Returns false if the peer has no session.
    pub(super) fn end_session(&mut self, peer: PeerId) -> bool {
        let Some(entry) = self.node.endpoint.peers.peer(peer).filter(|entry| is_session(entry)) else { return false };
        let (remote, reason) = (entry.path().remote.into(), Fatal::Closed);
        (self.coap_server.events)(Event::Closed { remote, reason });
        self.forget(peer);
        self.node.endpoint.close(peer);
        true
    }

    /// Ends every session whose peer proved its identity with a key that is no longer valid.
    pub(super) fn end_outdated(&mut self) {
        let settled = |(id, peer): (PeerId, &Peer)| (peer.phase() == Phase::Established).then_some(id);
        let all: Vec<PeerId> = self.node.endpoint.peers.iter().filter_map(settled).collect();
        for peer in all {
            self.end_if_outdated(peer);
        }
    }

    /// Ends the session of a peer if the key with which the peer proved its identity is no longer valid. Returns true
    /// if the session ended.
    fn end_if_outdated(&mut self, peer: PeerId) -> bool {
        let Some(entry) = self.node.endpoint.peers.peer(peer) else { return false };
        let (remote, principal, protection) = (entry.path().remote.into(), entry.principal(), entry.protection());
        if protection != Protection::Dtls || self.coap_server.credentials.is_current(principal) {
            return false;
        }
        let identity = self.coap_server.credentials.name_of(principal).unwrap_or_default();
        (self.coap_server.events)(Event::Outdated { remote, identity });
        self.forget(peer);
        self.node.endpoint.close(peer);
        true
    }

    /// Continues a handshake that needs a key, a verification or a private-key operation.
    fn on_need(&mut self, now: Instant, peer: PeerId) {
        let identity = match self.node.endpoint.need(peer) {
            Some(Need::PskOfClient { identity }) => identity,
            Some(Need::VerifyPeer { certificate_type, content }) => {
                let content = content.to_vec();
                return self.verify(now, peer, certificate_type, &content);
            }
            Some(Need::Sign { .. } | Need::Decrypt { .. }) => {
                return match self.operation(peer) {
                    None => self.resume(now, peer, Answer::Unknown),
                    Some(operation) if operation.key.is_quick() => self.on_worked(now, peer, operation.run()),
                    Some(_) => self.wait_for_key(peer),
                };
            }
            _ => return,
        };
        self.tried.add(peer, identity);
        let found = self.coap_server.credentials.keys_of(identity);
        let Some(store) = &self.store else { return self.answer(now, peer, found) };
        match std::str::from_utf8(identity) {
            Ok(identity) if found.is_none() => {
                let (commands, identity) = (self.coap_server.resources.commands.clone(), identity.to_owned());
                let asked = identity.clone();
                let ticket = KeyTicket::new(move |found| {
                    // This fails only if the server ended meanwhile, and then no shard needs the key.
                    let _ = commands.send(Command::Key(FoundKey { peer, identity, found, asked: now }));
                });
                store.find(&asked, ticket);
            }
            // Waits as long as for the store, so that the time does not reveal which of the two knows an identity.
            _ => self.hold(now, peer, found),
        }
    }

    /// Returns the private-key operation that a handshake needs. Returns `None` if the handshake has ended, needs
    /// something other than a private key, or needs a key that the server no longer has.
    fn operation(&mut self, peer: PeerId) -> Option<Operation> {
        let (server, credential, asked) = match self.node.endpoint.need(peer)? {
            Need::Sign { server, credential, digest } => (server, credential, Asked::Sign(digest)),
            Need::Decrypt { server, credential, encrypted, version } => {
                // Drawn before, and whatever comes out (RFC 5246, section 7.4.7.1).
                let mut random = Secret::zeroed();
                self.environment.crypto.random(random.expose_mut());
                (server, credential, Asked::Decrypt { encrypted: encrypted.to_vec(), version, random })
            }
            _ => return None,
        };
        Some(Operation { key: self.node.endpoint.roles.keys.key(server, credential)?, asked })
    }

    /// Queues a handshake that waits for a private key. If too many handshakes wait, the server gives up one of them
    /// without a message. The client of that handshake repeats its flight, or begins again.
    fn wait_for_key(&mut self, peer: PeerId) {
        let Some(entry) = self.node.endpoint.peers.peer(peer) else { return };
        let remote = SocketAddr::from(entry.path().remote).ip();
        if let Some(given_up) = self.signing.wait(peer, remote)
            && self.node.endpoint.need(given_up).is_some()
        {
            self.node.endpoint.peers.remove(given_up);
        }
        self.sign_next();
    }

    /// Passes private-key operations to the worker while the worker can take them. Handshakes that ended in the
    /// meantime are skipped.
    pub(super) fn sign_next(&mut self) {
        while let Some(peer) = self.signing.next() {
            if let Some(operation) = self.operation(peer) {
                self.signing.begin(peer, operation);
            }
        }
    }

    /// Continues a handshake that waited for a private key.
    pub(super) fn on_worked(&mut self, now: Instant, peer: PeerId, worked: Worked) {
        match worked {
            Worked::Signature(Some(signature)) => self.resume(now, peer, Answer::Signature(&signature)),
            Worked::Signature(None) => self.resume(now, peer, Answer::Unknown),
            Worked::Premaster(premaster) => self.resume(now, peer, Answer::Premaster(&premaster)),
        }
    }

    fn answer(&mut self, now: Instant, peer: PeerId, found: Found) {
        match &found {
            Some(keys) => keys.answer(|answer| self.resume(now, peer, answer)),
            None => self.resume(now, peer, Answer::Unknown),
        }
    }

    /// Verifies the certificate or raw public key of a client, and continues its handshake with the result.
    fn verify(&mut self, now: Instant, peer: PeerId, kind: CertificateType, content: &[u8]) {
        let verified = self.node.endpoint.roles.keys.own.verify(kind, content, Purpose::Client);
        let verified = match verified {
            Ok(verified) => verified,
            Err(refusal) => {
                let alert = refusal.alert();
                if let Some(entry) = self.node.endpoint.peers.peer(peer) {
                    let remote = SocketAddr::from(entry.path().remote);
                    (self.coap_server.events)(Event::Refused { remote, refusal });
                }
                return self.resume(now, peer, Answer::Refused(alert));
            }
        };
        let public_key = verified.spki.to_vec();
        let credentials = &self.coap_server.credentials;
        let principal = credentials.certified_as(&verified.name, kind, verified.digest);
        credentials.set_certificate_end(principal, verified.not_after);
        self.resume(now, peer, Answer::Peer { public_key: &public_key, principal });
    }

    fn resume(&mut self, now: Instant, peer: PeerId, answer: Answer<'_>) {
        if let Some(event) = self.node.endpoint.resume(&mut self.environment.at(now), peer, answer) {
            self.on_event(now, event);
        }
    }

    /// Stores an answer of the key store. The server uses the answer at the next time at which a multiple of the
    /// interval in the settings has passed since `asked`, the time at which it asked the key store.
    pub(super) fn hold(&mut self, asked: Instant, peer: PeerId, found: Found) {
        let every = self.store_answers_every.as_micros().max(1) as u64;
        let took = clock::now().since(asked).as_micros() as u64;
        let at = asked.after(Duration::from_micros((took + 1).next_multiple_of(every)));
        if !self.held.hold(at, peer, found) {
            // Its client begins again, as where a datagram was lost.
            self.node.endpoint.peers.remove(peer);
        }
    }

    /// Continues each handshake for which an answer of the key store is stored and may be used at `now`.
    pub(super) fn on_held(&mut self, now: Instant) {
        while let Some((peer, found)) = self.held.take(now) {
            self.answer(now, peer, found);
        }
    }
}
