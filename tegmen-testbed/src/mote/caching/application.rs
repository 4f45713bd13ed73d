//! The application of a node: a producer serves its resources, and a forwarder answers or forwards requests.

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
    /// The caching proxy of a forwarder; `None` at all other nodes.
    pub proxy: Option<Box<Forwarding>>,
    pub now: Instant,
    /// Number of requests that were served and whose cost is not yet counted.
    pub served: u32,
    /// Number of replies whose cost is not yet counted. The replies came from other proxies and from producers.
    pub heard: u32,
    /// The requests of this node that have ended. Each entry has the peer, the request, and a flag that is true if the
    /// response contains a reading.
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

/// Returns the name of a producer, which is the Uri-Host of requests for its readings.
pub(in super::super) fn name(producer: usize) -> String {
    format!("p{producer}")
}

/// Returns the number of the producer with this name; `None` if the name has another form.
pub(super) fn producer(name: &[u8]) -> Option<usize> {
    std::str::from_utf8(name).ok()?.strip_prefix('p')?.parse().ok()
}

/// Returns the path of the reading with this number.
pub(super) fn path(item: u64) -> String {
    format!("{RESOURCE}{item}")
}

/// Maximum number of responses that a forwarder stores. It is the same as in the paper.
const ENTRIES: usize = 30;
/// Maximum size of a stored response and its cache key, in bytes.
const ENTRY: usize = 64;
/// A reading of two bytes.
const READING: [u8; 2] = 2150u16.to_be_bytes();
