//! The application of a node in a group. A member serves its resource, and node 0 stores the responses that have
//! arrived.

use super::{Protection, RESOURCE, Setup};
use std::collections::VecDeque;
use tegmen::address::{Address, Path};
use tegmen::coap::handler::{Anybody, Policy};
use tegmen::coap::{Authorized, Code, Handler, MessageRef, RequestId, Response};
use tegmen::identity::{Identity, PeerId};
use tegmen::node::{self, DeferredRequest, Reply};

pub(super) struct Application {
    setup: Setup,
    /// Number of requests that were served and whose cost is not yet counted.
    pub(super) served: u32,
    /// The tokens of received group requests. The member answers each of these requests later, over its DTLS session.
    pub(super) deferred: Vec<Vec<u8>>,
    /// The responses to requests that were sent to the group. Each entry has the request, and the address of the member
    /// that sent the response.
    pub(super) heard: VecDeque<(RequestId, Address)>,
    /// The ended requests that were sent to only one member. Each entry has a flag that is true if a response arrived.
    pub(super) replies: VecDeque<(RequestId, bool)>,
}

impl Application {
    pub(super) const fn new(setup: Setup) -> Self {
        Self { setup, served: 0, deferred: Vec::new(), heard: VecDeque::new(), replies: VecDeque::new() }
    }
}

impl node::Application for Application {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Anybody, self))
    }

    fn on_deferred(&mut self, request: DeferredRequest<'_>) {
        self.deferred.push(request.message.token().to_vec());
    }

    fn on_reply(&mut self, _: PeerId, request: RequestId, reply: Reply<'_>) {
        let is_answered = match reply {
            Reply::Response(response) => response.code().is_success(),
            Reply::Acknowledged => return,
            Reply::Cut(_) | Reply::Reset | Reply::TimedOut | Reply::NotSent(_) | Reply::Refused { .. } => false,
        };
        self.replies.push_back((request, is_answered));
    }

    fn on_member_response(&mut self, request: RequestId, (path, _): (&Path, Identity), response: &MessageRef<'_>) {
        if response.code().is_success() {
            self.heard.push_back((request, path.remote));
        }
    }
}

impl Handler for Application {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.served += 1;
        if !request.message().path_is(RESOURCE) {
            return Err(Code::NOT_FOUND);
        }
        if self.setup.protection == Protection::AxiomDtls {
            response.defer();
            return Ok(());
        }
        response.set_code(Code::CHANGED);
        let payload = vec![0x24; self.setup.response];
        if payload.is_empty() { Ok(()) } else { response.payload(&payload) }
    }
}
