//! The request that an application handles.

use super::command::Command;
use super::notifier::Notifier;
use super::prepared::Prepared;
use super::reply::Reply;
use super::responder::Responder;
use crate::request_uri::Query;
use std::cell::Cell;
use std::net::SocketAddr;
use tegmen::coap::handler::Authorized;
use tegmen::coap::{Code, MessageRef, Response};
use tegmen::identity::Identity;
use tokio::sync::mpsc;

/// A request that the policy has allowed. The application can defer its response, report the cause of a 5.xx response,
/// and notify observers.
pub struct Request<'a> {
    pub(super) authorized: &'a Authorized<'a>,
    pub(super) exchange: &'a Exchange<'a>,
}

/// The state of the exchange of a request.
pub(super) struct Exchange<'a> {
    pub(super) path: &'a str,
    /// The address of the sender; `None` for a notification.
    pub(super) remote: Option<SocketAddr>,
    pub(super) commands: &'a mpsc::UnboundedSender<Command>,
    pub(super) notifier: &'a Notifier,
    pub(super) cause: &'a Cell<Option<String>>,
    /// The number of the newest responder.
    pub(super) responders: &'a Cell<u64>,
    /// The number of this request's responder, if the response is deferred.
    pub(super) deferred: &'a Cell<Option<u64>>,
    /// The response to this request, if the application has prepared it.
    pub(super) prepared: &'a Cell<Option<Reply>>,
    /// True if it is cheap to answer this request a second time.
    pub(super) is_cheap: &'a Cell<bool>,
}

impl Request<'_> {
    /// Returns the method.
    pub const fn method(&self) -> Code {
        self.message().code()
    }

    /// Returns the path without a leading slash, as the policy, the observers and the log use it: see
    /// [`crate::request_uri`].
    pub const fn path(&self) -> &str {
        self.exchange.path
    }

    /// Returns the query.
    ///
    /// # Errors
    /// 4.00 if an argument is not UTF-8. The server refuses such a request before it reaches an application.
    pub fn query(&self) -> Result<Query<'_>, Code> {
        Query::of(self.message()).map_err(|_| Code::BAD_REQUEST)
    }

    /// Returns the body. If the body came in blocks, returns all blocks together.
    pub const fn payload(&self) -> &[u8] {
        self.message().payload()
    }

    /// Returns the identity of the sender, and the protection of its request.
    pub const fn identity(&self) -> &Identity {
        self.authorized.identity()
    }

    /// Returns the address from which the request came; `None` if the handler runs for a notification.
    pub const fn remote(&self) -> Option<SocketAddr> {
        self.exchange.remote
    }

    /// Returns the message with all its options.
    pub const fn message(&self) -> &MessageRef<'_> {
        self.authorized.message()
    }

    /// Returns the request in the form that the handlers of the core take, such as [`tegmen::coap::link::respond`].
    pub const fn authorized(&self) -> &Authorized<'_> {
        self.authorized
    }

    /// Defers the response. If the response is sent within 500 ms, it is also the acknowledgement of the request.
    /// Otherwise the request is acknowledged after 500 ms, and the response is a separate message (RFC 7252, section
    /// 5.2). If the handler returns an error after this call, the error is the response. A second call replaces the
    /// first responder.
    ///
    /// A handler may call both this method and [`Response::observable`]. The request is then acknowledged at once, and
    /// the client observes the resource after it receives the response. The handler may also defer each notification.
    pub fn defer(&self, response: &mut Response<'_, '_>) -> Responder {
        Responder::new(self.defer_as(response, None), self.exchange.commands)
    }

    /// Defers the response in the same way as [`Self::defer`], if the application already has the response and must not
    /// send it yet. Adds the response to `prepared`, which sends it together with others. This costs less than a
    /// [`Responder`] for each request.
    pub fn prepare(&self, response: &mut Response<'_, '_>, reply: Reply, prepared: &mut Prepared) {
        prepared.add(self.defer_as(response, Some(reply)), self.exchange.commands);
    }

    /// Defers the response, which is `prepared` if it is known. Returns the number of the request.
    fn defer_as(&self, response: &mut Response<'_, '_>, prepared: Option<Reply>) -> u64 {
        response.defer();
        let number = self.exchange.responders.get() + 1;
        self.exchange.responders.set(number);
        self.exchange.deferred.set(Some(number));
        self.exchange.prepared.set(prepared);
        number
    }

    /// Marks this request as one that is cheap to answer. If the request has a safe method and no protection by OSCORE,
    /// the server keeps no copy of the response, and a repeated request comes to the application again.
    pub(crate) fn mark_cheap(&self) {
        self.exchange.is_cheap.set(true);
    }

    /// Sets the cause of a 5.xx response, for the operator. The client does not receive it.
    pub fn because(&self, cause: impl Into<String>) {
        self.exchange.cause.set(Some(cause.into()));
    }

    /// Notifies the observers of `path` that the representation at this path changed: see [`Notifier::changed`].
    pub fn changed(&self, path: &str) {
        self.exchange.notifier.changed(path);
    }

    /// Returns a notifier that the application can store.
    pub fn notifier(&self) -> Notifier {
        self.exchange.notifier.clone()
    }
}
