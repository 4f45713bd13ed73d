//! Policies that decide later, because they have to ask another server.

use super::command::Command;
use super::reply::Reply;
use crate::target::VirtualHosts;
use std::cell::Cell;
use std::sync::Arc;
use tegmen::coap::{Code, MessageRef, OptionNumber, Policy, Request};
use tokio::sync::mpsc;

/// The right to decide on one request, once, from any thread.
///
/// A request never remains without a response. If the authorization is dropped, the client receives 5.03 at once. If no
/// decision comes within [`ServerCoap::response_timeout`](super::ServerCoap::response_timeout), the client receives
/// 5.03 after this time. If no decision on a notification comes, the observer also receives 5.03, which ends its
/// observation.
pub struct Authorization {
    number: u64,
    commands: Option<mpsc::UnboundedSender<Command>>,
}

impl Authorization {
    /// Allows the request. The application then handles it. The decision has no effect after the session or the server
    /// has ended, or after the time limit of the response has passed.
    pub fn allow(mut self) {
        self.send(Command::Decide(self.number, true));
    }

    /// Denies the request. The client receives 4.01 if it has not proved an identity, and 4.03 otherwise.
    pub fn deny(mut self) {
        self.send(Command::Decide(self.number, false));
    }

    fn send(&mut self, command: Command) {
        if let Some(commands) = self.commands.take() {
            // If the server has ended there is nobody to respond to.
            let _ = commands.send(command);
        }
    }
}

impl Drop for Authorization {
    fn drop(&mut self) {
        let reply = Reply::new(Code::SERVICE_UNAVAILABLE).because("the policy dropped its authorization");
        self.send(Command::Respond(self.number, reply));
    }
}

/// The argument from which a policy takes the right to decide later: see
/// [`ServerBuilder::policy_later`](super::ServerBuilder::policy_later).
pub struct Later<'a> {
    commands: &'a mpsc::UnboundedSender<Command>,
    last: &'a Cell<u64>,
    taken: &'a Cell<Option<u64>>,
}

impl Later<'_> {
    /// Returns the right to decide on the request later. The policy then has to return `None`. If the policy returns a
    /// decision instead, the server follows this decision, and the authorization has no effect.
    pub fn authorization(&self) -> Authorization {
        self.last.set(self.last.get() + 1);
        self.taken.set(Some(self.last.get()));
        Authorization { number: self.last.get(), commands: Some(self.commands.clone()) }
    }
}

/// The policy of a server, with its concrete type erased.
#[derive(Clone)]
pub(crate) struct AnyPolicy(Arc<Decide>);

type Decide = dyn Fn(&Request<'_>, &Later<'_>) -> Option<bool> + Send + Sync;

impl AnyPolicy {
    /// Makes a policy that decides at once. If `policy` returns no decision on a request, the request is denied.
    pub(crate) fn of(policy: impl Policy + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |request, _| Some(policy.decide(request) == Some(true))))
    }

    pub(crate) fn of_later(policy: impl Fn(&Request<'_>, &Later<'_>) -> Option<bool> + Send + Sync + 'static) -> Self {
        Self(Arc::new(policy))
    }

    /// Makes a policy that also lets every client send EDHOC messages, because these messages prove the identity of the
    /// sender.
    pub(crate) fn with_edhoc(self) -> Self {
        Self::of_later(move |request, later| match is_edhoc(&request.message) {
            true => Some(true),
            false => self.decide(request, later),
        })
    }

    fn decide(&self, request: &Request<'_>, later: &Later<'_>) -> Option<bool> {
        (self.0)(request, later)
    }
}

/// True if a request is for the EDHOC resource.
fn is_edhoc(request: &MessageRef<'_>) -> bool {
    let segments = request.options().filter(|(number, _)| *number == OptionNumber::URI_PATH).map(|(_, value)| value);
    request.code() == Code::POST && segments.eq(tegmen_edhoc::transfer::PATH.split('/').map(str::as_bytes))
}

/// The policy of one shard, or of one endpoint.
pub(crate) struct Deciding {
    policy: AnyPolicy,
    commands: mpsc::UnboundedSender<Command>,
    hosts: VirtualHosts,
    /// The number that identifies the newest authorization.
    last: Cell<u64>,
    /// If the policy postponed its decision on the most recent request: the number of the [`Authorization`] that the
    /// policy took from [`Later`]. Otherwise `None`.
    taken: Cell<Option<u64>>,
}

/// The numbers of authorizations are larger than this number, and the numbers of responders are smaller. So no
/// authorization has the number of a responder.
const FIRST: u64 = 1 << 63;

impl Deciding {
    pub(crate) const fn new(policy: AnyPolicy, commands: mpsc::UnboundedSender<Command>, hosts: VirtualHosts) -> Self {
        Self { policy, commands, hosts, last: Cell::new(FIRST), taken: Cell::new(None) }
    }

    /// Returns the number of the [`Authorization`] with which the policy decides on an undecided request later. If the
    /// policy took no authorization, returns a new number that nobody uses. No decision then comes, and the server
    /// answers the request with 5.03 after the time limit.
    pub(crate) fn take_number(&self) -> u64 {
        self.taken.take().unwrap_or_else(|| {
            self.last.set(self.last.get() + 1);
            self.last.get()
        })
    }
}

impl Policy for Deciding {
    const LATER: bool = true;

    fn decide(&self, request: &Request<'_>) -> Option<bool> {
        let Self { policy, commands, hosts, last, taken } = self;
        taken.set(None);
        hosts.decide_on(request, |request| policy.decide(request, &Later { commands, last, taken }))
    }
}

/// Returns a copy of a request for [`Node::decide`](tegmen::node::Node::decide).
pub(crate) fn copy_of(message: &MessageRef<'_>) -> Vec<u8> {
    let options: usize = message.options().map(|(_, value)| value.len() + MAX_OPTION_HEAD).sum();
    let mut bytes = vec![0; MAX_HEAD + options + 1 + message.payload().len()];
    let mut frame = tegmen::buf::Frame::new(&mut bytes, 0);
    // It fits completely.
    let _ = message.write(&mut frame);
    let len = frame.len();
    bytes.truncate(len);
    bytes
}

/// Maximum number of bytes of the header and the token of a message.
const MAX_HEAD: usize = 4 + 8;
/// Maximum number of bytes of the number and the length of an option.
const MAX_OPTION_HEAD: usize = 5;
