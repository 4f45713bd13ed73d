//! Events other than datagrams: deferred responses, keys, and changes to report to observers.

use super::Shard;
use crate::clock;
use crate::server::Application;
use crate::server::coap_peer::Attached;
use crate::server::command::{Command, FoundKey};
use crate::server::notifier::Changes;
use crate::server::reply::Reply;
use crate::server::serve::Report;
use std::cell::Cell;
use std::sync::Arc;
use tegmen::coap::Code;
use tegmen::endpoint::Peers as _;
use tegmen::identity::PeerId;
use tegmen::time::Instant;

/// Peers that are sent notifications before datagrams are received again.
const NOTIFIED: usize = 256;

impl<A: Application> Shard<A> {
    pub(super) fn on_command(&mut self, command: Command) {
        match command {
            Command::Respond(number, reply) => self.on_reply(number, reply),
            Command::Key(FoundKey { peer, identity, found, asked }) => {
                let learned = found.map(|found| {
                    let principal = self.coap_server.credentials.learn_stored(&identity, found.allow.as_deref());
                    (found.key, principal)
                });
                self.hold(asked, peer, learned);
            }
            Command::Worked { peer, worked } => {
                self.signing.ended();
                self.on_worked(clock::now(), peer, worked);
                self.sign_next();
            }
            Command::Keys(keys) => {
                self.node.endpoint.roles.keys = *keys;
                self.report_ends();
            }
            Command::Sessions(answer) => {
                // The caller may have given up.
                let _ = answer.send(self.sessions());
            }
            Command::Close(peer, answer) => {
                let _ = answer.send(self.end_session(peer));
            }
            Command::Leased { peer, end, result } => self.on_leased(peer, end, result),
            Command::Changed => {
                let changes = self.coap_server.notifier.shards.get(self.number).map(Changes::take);
                for path in changes.iter().flatten() {
                    self.on_change(path);
                }
            }
        }
    }

    /// Marks those who observe `path` as to be notified.
    fn on_change(&mut self, path: &Arc<str>) {
        let mut peers = self.coap_server.observers.take(path);
        peers.retain(|peer| {
            let attached = self.node.endpoint.peers.attached(*peer);
            let Some(coap_peer) = attached.and_then(Attached::coap_peer) else { return false };
            let observes = coap_peer.mark(path);
            if observes {
                self.coap_server.observers.queue(*peer, coap_peer);
            }
            observes
        });
        self.coap_server.observers.put_back(path, peers);
    }

    /// Sends the notifications that are due, to a limited number of peers, so that other work does not wait long.
    pub(super) fn notify(&mut self, now: Instant) {
        for _ in 0..NOTIFIED {
            let Some(peer) = self.coap_server.observers.next_due() else { return };
            if let Some(coap_peer) = self.node.endpoint.peers.attached(peer).and_then(Attached::coap_peer) {
                coap_peer.queued = false;
            }
            while self.notify_one(now, peer).is_some() {}
        }
    }

    /// Sends the next notification to a peer. Returns `None` if there is none to send now.
    fn notify_one(&mut self, now: Instant, peer: PeerId) -> Option<()> {
        let to = self.source(now, peer)?;
        let Self { node, environment, coap_server, outbox, .. } = self;
        let event = node.write(&mut environment.at(now), peer, outbox.draft(), |cx, attached, pool, frame| {
            if coap_server.notify(&to, attached, pool, cx.crypto, frame).is_none() {
                frame.truncate(0);
            }
        })?;
        self.on_event(now, event);
        Some(())
    }

    /// Responds with 5.03 to the requests whose response is overdue.
    pub(super) fn give_up_deferred(&mut self, now: Instant) {
        let Some(before) = now.as_micros().checked_sub(self.response_timeout.as_micros() as u64) else { return };
        for number in self.coap_server.deferrals.get_mut().overdue(Instant::from_micros(before)) {
            let seconds = self.response_timeout.as_secs_f64();
            let cause = format!("the application did not respond within {seconds} s");
            self.on_reply(number, Reply::new(Code::SERVICE_UNAVAILABLE).because(cause));
        }
    }

    /// Sends the response of a request that was deferred, unless it has one.
    fn on_reply(&mut self, number: u64, reply: Reply) {
        let Some(request) = self.coap_server.deferrals.get_mut().take(number) else { return };
        let (now, peer) = (clock::now(), request.peer);
        let Some(to) = self.source(now, peer) else { return };
        let cause = Cell::new(reply.cause.clone());
        let (received, sent) = (request.received, reply.payload.len());
        self.coap_server.report = Report { received, sent, cause, ..Report::default() };
        let source = request.oscore.as_ref().map(|oscore| to.under(oscore));
        self.coap_server.path.clone_from(&request.path);
        self.coap_server.report_request(source.as_ref().unwrap_or(&to), request.method, Some(reply.code));
        let Self { node, environment, coap_server, outbox, .. } = self;
        let event = node.write(&mut environment.at(now), peer, outbox.draft(), |cx, attached, pool, frame| {
            if coap_server.complete(&to, attached, pool, (request, reply), cx.crypto, frame).is_none() {
                frame.truncate(0);
            }
        });
        if let Some(event) = event {
            self.on_event(now, event);
        }
    }
}
