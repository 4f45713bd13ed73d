//! The commands to a shard: deferred responses, keys, and changes that observers receive.

use super::{COMMANDS, Shard};
use crate::credentials::{IdentityKey, IdentityKeys};
use crate::server::Application;
use crate::server::command::{Command, FoundKey};
use crate::server::deferred::{DeferredRequest, Outcome, PREFETCHED};
use crate::server::notifier::Changes;
use crate::server::reply::Reply;
use tegmen::coap::Code;
use tegmen::node::SendError;
use tegmen::time::Instant;

impl<A: Application> Shard<A> {
    pub(super) fn on_command(&mut self, now: Instant, command: Command) {
        match command {
            Command::Respond(number, reply) => self.on_reply(now, number, Some(reply)),
            Command::Release(release) => self.coap_server.deferrals.release(release),
            Command::Decide(number, allows) => {
                if let Some(request) = self.coap_server.deferrals.take(number) {
                    self.decide(now, request, allows);
                }
            }
            Command::GroupRegistration(registration) => self.on_group_registration(now, registration),
            Command::Key(FoundKey { peer, identity, found, asked }) => {
                let learned = found.map(|found| {
                    let name = found.name.as_deref().unwrap_or(&identity);
                    // An owner with a name of its own may have another key for each PSK identity.
                    let key = found.name.is_none().then_some(found.key.as_slice());
                    let principal = self.coap_server.credentials.learn_stored(name, key, found.allow.as_deref());
                    let previous = found.previous.map(|key| IdentityKey { key, principal });
                    IdentityKeys { current: IdentityKey { key: found.key, principal }, previous }
                });
                self.hold(asked, peer, learned);
            }
            Command::StillHas { name, found } => self.on_still_has(name, found),
            Command::Worked { peer, worked } => {
                self.signing.ended();
                self.on_worked(now, peer, worked);
                self.sign_next();
            }
            Command::Keys(keys) => {
                self.node.endpoint.roles.keys.own = *keys;
                self.report_ends();
            }
            Command::Limits(limits) => {
                self.coap_server.limits = limits;
                self.node.features.set_limits(&limits);
            }
            Command::Pulse(answer) => {
                self.publish();
                // The caller may have given up.
                let _ = answer.send(());
            }
            Command::Sessions(answer) => {
                // The caller may have given up.
                let _ = answer.send(self.sessions());
            }
            Command::Close(peer, answer) => {
                let _ = answer.send(self.end_session(peer));
            }
            Command::Leased { peer, end, result } => self.on_leased(peer, end, result),
            Command::ChangedFor(path, whom) => {
                let (peers, observers) = (&mut self.node.endpoint.peers, &mut self.node.features.observers);
                observers.mark_for(&path, &*whom, peers);
                self.group_observations.mark(&path, &*whom);
                self.notify_groups(now);
            }
            Command::Changed => {
                let changes = self.coap_server.resources.notifier.shards.get(self.number).map(Changes::take);
                for path in changes.iter().flatten() {
                    self.node.notify(path);
                    self.group_observations.mark(path, |_| true);
                }
                self.notify_groups(now);
            }
        }
    }

    /// Responds with 5.03 to overdue requests. Handles the responses and decisions that had to wait, because too many
    /// messages waited for an acknowledgement.
    pub(super) fn give_up_deferred(&mut self, now: Instant) {
        let (before, overdue) = self.coap_server.deferrals.overdue(now, self.coap_server.limits.response_timeout);
        for (number, reply) in overdue {
            self.on_reply(now, number, Some(reply));
        }
        for (request, outcome) in self.coap_server.deferrals.take_waiting(before) {
            match outcome {
                Outcome::Response(reply) => self.respond(now, request, reply),
                Outcome::Decision(allows) => self.decide(now, request, allows),
            }
        }
    }

    /// Acknowledges each request that still has no response after 500 ms. Before this time, the response itself could
    /// be the acknowledgement.
    pub(super) fn acknowledge_deferred(&mut self, now: Instant) {
        while let Some(request) = self.coap_server.deferrals.take_unacknowledged(now) {
            let Self { node, environment, outbox, .. } = self;
            if let Some(event) = request.acknowledge(node, &mut environment.at(now), outbox.draft()) {
                self.on_event(now, event);
            }
        }
    }

    /// Sends a limited number of prepared responses.
    pub(super) fn send_prepared(&mut self, now: Instant) {
        for count in 0..COMMANDS {
            if count % PREFETCHED == 0 && self.coap_server.deferrals.has_released() {
                let peers = &self.node.endpoint.peers;
                self.coap_server.deferrals.prefetch_released(|peer| peers.prefetch_peer(peer));
            }
            let Some((number, instead)) = self.coap_server.deferrals.next_released() else { break };
            self.on_reply(now, number, instead);
        }
    }

    /// Sends the deferred response to a request, unless the request already has a response. The response is `reply`, or
    /// the prepared response if `reply` is `None`.
    fn on_reply(&mut self, now: Instant, number: u64, reply: Option<Reply>) {
        let peers = &mut self.node.endpoint.peers;
        if let Some((request, reply)) = self.coap_server.conclude(number, reply, peers) {
            self.respond(now, request, reply);
        }
    }

    /// Handles the decision of the policy on a request.
    fn decide(&mut self, now: Instant, mut request: DeferredRequest, allows: bool) {
        let Some((copy, share)) = self.coap_server.begin_decision(&mut request) else {
            return self.respond(now, request, Reply::new(Code::SERVICE_UNAVAILABLE));
        };
        let peer = request.deferred.peer;
        let Self { node, environment, coap_server, outbox, .. } = self;
        let cx = &mut environment.at(now);
        match node.decide(cx, request.deferred, &copy, allows, coap_server, outbox.draft()) {
            Ok(0) => {}
            Ok(len) => self.transmit(peer, len as u16),
            Err((SendError::Busy, deferred)) => {
                let request = DeferredRequest { deferred, copy: Some((copy, share)), ..request };
                coap_server.deferrals.postpone(request, Outcome::Decision(allows));
            }
            // The session has ended.
            Err(_) => {}
        }
    }

    /// Sends a deferred response.
    fn respond(&mut self, now: Instant, request: DeferredRequest, reply: Reply) {
        let Self { node, environment, coap_server, outbox, .. } = self;
        let cx = &mut environment.at(now);
        if let Some((peer, len)) = coap_server.deferrals.respond(node, cx, request, reply, outbox.draft()) {
            self.transmit(peer, len as u16);
        }
    }
}
