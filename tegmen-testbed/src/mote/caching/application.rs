//! The resources of a producer, and the requests that a forwarder answers from its cache or forwards.

use super::{ITEMS, Part, RESOURCE, memory};
use tegmen::coap::handler::{Anybody, Policy};
use tegmen::coap::{Authorized, Code, Handler, MessageRef, OptionNumber, RequestId, Response};
use tegmen::identity::PeerId;
use tegmen::node::{self, DeferredRequest, Reply};
use tegmen::oscore::RequestBinding;
use tegmen::time::Instant;
use tegmen_proxy::Proxy;

type Exchange = (u16, RequestBinding);
type Forwarding = Proxy<Exchange, ENTRIES, ENTRY, { memory::OUT }, { memory::MESSAGE }>;

/// The application of a node.
pub(super) struct Application {
    /// The proxy of a forwarder.
    pub proxy: Option<Box<Forwarding>>,
    pub now: Instant,
    /// Number of requests that were served and are not yet counted.
    pub served: u32,
    /// Number of replies from other proxies and from producers that are not yet counted.
    pub heard: u32,
    /// The ends of the node's own requests. True for a response with a reading.
    pub replies: Vec<(PeerId, RequestId, bool)>,
}

impl Application {
    pub(super) fn new(part: &Part) -> Self {
        let mut proxy = None;
        if let Part::Forwarder { stores, .. } = part {
            proxy.insert(Box::<Forwarding>::default()).stores = *stores;
        }
        Self { proxy, now: Instant::from_micros(1), served: 0, heard: 0, replies: Vec::new() }
    }
}

impl Handler for Application {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.served += 1;
        let message = request.message();
        if let Some(proxy) = &mut self.proxy {
            return proxy.handle(self.now, message, response);
        }
        if !(0..ITEMS).any(|item| message.path_is(&path(item))) {
            return Err(Code::NOT_FOUND);
        }
        response.payload(&READING)
    }

    fn acts_on(&self, _: &MessageRef<'_>, number: OptionNumber) -> bool {
        match self.proxy {
            Some(_) => Forwarding::acts_on(number),
            None => self.critical_options().contains(&number),
        }
    }
}

impl node::Application<Exchange> for Application {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Anybody, self))
    }

    fn on_deferred(&mut self, mut request: DeferredRequest<'_, Exchange>) {
        request.acknowledges_later = true;
        if let Some(proxy) = &mut self.proxy {
            proxy.on_deferred(request);
        }
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        if matches!(reply, Reply::Acknowledged) {
            return;
        }
        if let Some(proxy) = &mut self.proxy {
            self.heard += u32::from(proxy.on_reply(self.now, (peer, request), &reply));
            return;
        }
        let is_reading = matches!(reply, Reply::Response(response) if response.code() == Code::CONTENT);
        self.replies.push((peer, request, is_reading));
    }
}

/// Returns the Uri-Host of a producer.
pub(in super::super) fn name(producer: usize) -> String {
    format!("p{producer}")
}

/// Returns the number of the producer with this Uri-Host.
pub(super) fn producer(name: &[u8]) -> Option<usize> {
    std::str::from_utf8(name).ok()?.strip_prefix('p')?.parse().ok()
}

/// Returns the path of a reading.
pub(super) fn path(item: u64) -> String {
    format!("{RESOURCE}{item}")
}

/// Number of responses that a forwarder stores, as in the paper.
const ENTRIES: usize = 30;
/// Maximum size of a stored response with its key, in bytes.
const ENTRY: usize = 64;
/// A reading of two bytes.
const READING: [u8; 2] = 2150u16.to_be_bytes();
