//! The engine of an endpoint that serves: the handshakes of its clients, and deferred responses.

use super::Engine;
use crate::client::ClientError;
use crate::client::connection::Connection;
use crate::client::io::Io;
use crate::client::serving::Waiting;
use crate::clock;
use crate::server::{Command, Outcome, Reply};
use crate::x509::Purpose;
use tegmen::coap::{Builder, Code};
use tegmen::dtls::{Answer, Need, Rank};
use tegmen::endpoint::{Event, Peers as _};
use tegmen::identity::{PeerId, Principal};
use tegmen::node::SendError;

impl Engine {
    /// Answers the question of a handshake in which the peer is the client. Where we opened a handshake with it at the same time,
    /// the peer has to prove that it is the server that was meant.
    pub(super) fn on_client_need(&mut self, peer: PeerId) -> Option<Event> {
        let session = self.io.session_of(peer);
        let mut entry = session.map(|key| &mut self.sessions.all[key]);
        let Io { node, environment, arrivals, .. } = &mut self.io;
        let serving = arrivals.serving.as_ref()?;
        let mut cx = environment.at(clock::now());
        match node.endpoint.need(peer)? {
            Need::PskOfClient { identity } => {
                let mut found = serving.credentials.key_of(identity);
                if let Some(entry) = &mut entry {
                    let is_meant = |principal| principal == entry.principal && principal != Principal::NOBODY;
                    found = found.filter(|(_, principal)| is_meant(*principal));
                    entry.is_proved = found.is_some();
                }
                let answer = match &found {
                    Some((key, principal)) => Answer::Psk { identity: &[], key, principal: *principal },
                    None => Answer::Unknown,
                };
                node.endpoint.resume(&mut cx, peer, answer)
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
                        let principal = serving.credentials.certified_as(&name, certificate_type, verified.digest);
                        let spki = verified.spki.to_vec();
                        if let Some(entry) = entry {
                            entry.server = Some(name);
                        }
                        node.endpoint.resume(&mut cx, peer, Answer::Peer { public_key: &spki, principal })
                    }
                    Err(refusal) => node.endpoint.resume(&mut cx, peer, Answer::Refused(refusal.alert())),
                }
            }
            Need::Sign { credential, digest } => {
                let signature = node.endpoint.roles.keys.sign(credential, &digest);
                let answer = signature.as_deref().map_or(Answer::Unknown, Answer::Signature);
                node.endpoint.resume(&mut cx, peer, answer)
            }
            _ => node.endpoint.resume(&mut cx, peer, Answer::Unknown),
        }
    }

    /// Does what handlers have asked for.
    pub(in crate::client) fn on_command(&mut self, command: Command) {
        match command {
            Command::Respond(number, reply) => self.respond(number, reply),
            Command::Decide(number, allows) => {
                if let Some(waiting) = self.io.arrivals.serving.as_mut().and_then(|serving| serving.take(number)) {
                    self.decide(waiting, allows);
                }
            }
            _ => {}
        }
    }

    /// Takes the decision on a request.
    fn decide(&mut self, Waiting { at, deferred, copy }: Waiting, allows: bool) {
        let peer = deferred.peer;
        let Io { node, environment, arrivals, out, .. } = &mut self.io;
        if let Some(serving) = &mut arrivals.serving {
            serving.begin(&copy);
        }
        let mut cx = environment.at(clock::now());
        match node.decide(&mut cx, deferred, &copy, allows, arrivals, out) {
            Ok(len) => {
                if let Some(path) = self.io.path_of(peer).filter(|_| len > 0) {
                    self.transmit(&path, len);
                }
                self.io.rearm_for_alarm();
            }
            Err((SendError::Busy, deferred)) => {
                if let Some(serving) = &mut arrivals.serving {
                    serving.waiting.push((Waiting { at, deferred, copy }, Outcome::Decision(allows)));
                }
            }
            // The session has ended.
            Err(_) => {}
        }
    }

    /// Sends the response of a request that was deferred, unless it has one.
    fn respond(&mut self, number: u64, reply: Reply) {
        let waiting = self.io.arrivals.serving.as_mut().and_then(|serving| serving.take(number));
        if let Some(waiting) = waiting {
            self.send_deferred(waiting, reply);
        }
    }

    fn send_deferred(&mut self, Waiting { at, deferred, copy }: Waiting, reply: Reply) {
        let peer = deferred.peer;
        let write = |builder: &mut Builder<'_, '_>| {
            reply.options.iter().try_for_each(|(number, value)| builder.option(*number, value))?;
            builder.payload(&reply.payload)
        };
        let Io { node, environment, arrivals, out, .. } = &mut self.io;
        let mut cx = environment.at(clock::now());
        match node.respond(&mut cx, deferred, reply.code, write, out) {
            Ok(0) => {}
            Ok(len) => {
                if let Some(path) = self.io.path_of(peer) {
                    self.transmit(&path, len);
                    self.io.rearm_for_alarm();
                }
            }
            Err((SendError::Busy, deferred)) => {
                if let Some(serving) = &mut arrivals.serving {
                    serving.waiting.push((Waiting { at, deferred, copy }, Outcome::Response(reply)));
                }
            }
            // The client learns at least that there is no response.
            Err((_, deferred)) if reply.code.is_success() => {
                self.send_deferred(Waiting { at, deferred, copy }, Reply::new(Code::INTERNAL_SERVER_ERROR));
            }
            Err(_) => {}
        }
    }

    /// Sends the responses, and takes the decisions, that there was no space for.
    pub(super) fn respond_again(&mut self) {
        let Some(serving) = self.io.arrivals.serving.as_mut().filter(|serving| !serving.waiting.is_empty()) else {
            return;
        };
        for (waiting, outcome) in std::mem::take(&mut serving.waiting) {
            match outcome {
                Outcome::Response(reply) => self.send_deferred(waiting, reply),
                Outcome::Decision(allows) => self.decide(waiting, allows),
            }
        }
    }

    /// Answers requests with 5.03 whose responders have not answered in time.
    pub(super) fn give_up_deferred(&mut self) {
        let overdue = self.io.arrivals.serving.as_ref().map(|serving| serving.overdue(clock::now()));
        for number in overdue.into_iter().flatten() {
            self.respond(number, Reply::new(Code::SERVICE_UNAVAILABLE));
        }
    }
}

impl Connection<'_> {
    /// True if the peer became the client of our handshake with it, and did not prove that it is the server that was meant.
    pub(super) fn is_unproved(&mut self) -> bool {
        let peer = self.io.node.endpoint.peers.peer(self.entry.peer);
        peer.is_some_and(|peer| peer.rank() == Rank::OursAsServer) && !self.entry.is_proved
    }

    /// Ends such a session.
    pub(super) fn refuse(&mut self) {
        self.io.node.endpoint.close(self.entry.peer);
        self.io.is_due = true;
        let detail = "both ends connected at the same time, and the other one proved another identity than the one that was meant";
        self.fail_here(ClientError::Handshake { remote: self.entry.remote, detail: detail.to_owned() });
    }
}
