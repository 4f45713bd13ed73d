//! The resources of a producer, and the requests that a forwarder answers from its cache or forwards.

use super::{ITEMS, Part, RESOURCE};
use tegmen::buf::Frame;
use tegmen::coap::cache::{self, Cache, FixedCache, Found, Treatment};
use tegmen::coap::handler::{Anybody, Policy};
use tegmen::coap::{Authorized, Code, Handler, MessageRef, OptionNumber, RequestId, Response, uint_bytes};
use tegmen::identity::PeerId;
use tegmen::node::{self, Deferred, DeferredRequest, Reply};
use tegmen::oscore::RequestBinding;
use tegmen::time::Instant;

type Exchange = (u16, RequestBinding);
type Options = Vec<(OptionNumber, Vec<u8>)>;

/// The application of a node.
pub(super) struct Application {
    is_proxy: bool,
    cache: Option<Cache<FixedCache<ENTRIES, ENTRY>>>,
    pub now: Instant,
    /// Requests that were served since they were counted.
    pub served: u32,
    /// The request whose response the handler deferred.
    deferred: Option<Forwarded>,
    /// Requests to be forwarded.
    pub forwarded: Vec<Forwarded>,
    /// Requests that were forwarded, and have no response.
    pub waiting: Vec<Waiting>,
    /// The responses.
    pub answers: Vec<Answer>,
    /// The ends of own requests: true for a response with a reading.
    pub replies: Vec<(PeerId, RequestId, bool)>,
}

/// A request that is to be forwarded.
pub(super) struct Forwarded {
    /// The number of the producer that it is for.
    pub producer: usize,
    pub code: Code,
    pub options: Options,
    pub payload: Vec<u8>,
    /// The key of its response in the cache, and the length of the part that names the resource; `None` if it is not stored.
    pub key: Option<(Vec<u8>, usize)>,
    /// The right to answer.
    pub deferred: Option<Deferred<Exchange>>,
}

/// A request that was forwarded.
pub(super) struct Waiting {
    pub peer: PeerId,
    pub request: RequestId,
    pub key: Option<(Vec<u8>, usize)>,
    pub deferred: Option<Deferred<Exchange>>,
}

/// A response that is to be forwarded.
pub(super) struct Answer {
    pub deferred: Deferred<Exchange>,
    pub code: Code,
    pub options: Options,
    pub payload: Vec<u8>,
}

impl Application {
    pub(super) fn new(part: &Part) -> Self {
        Self {
            is_proxy: matches!(part, Part::Forwarder { .. }),
            cache: matches!(part, Part::Forwarder { stores: true, .. }).then(Cache::default),
            now: Instant::from_micros(1),
            served: 0,
            deferred: None,
            forwarded: Vec::new(),
            waiting: Vec::new(),
            answers: Vec::new(),
            replies: Vec::new(),
        }
    }

    /// Answers a request from the cache, or defers the response.
    fn forward(&mut self, message: &MessageRef<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let host = message.option(OptionNumber::URI_HOST).ok_or(Code::BAD_REQUEST)?;
        let producer = producer(host).ok_or(Code::BAD_GATEWAY)?;
        let mut key = None;
        if let Some(cache) = self.cache.as_mut().filter(|_| cache::is_cacheable(message)) {
            let mut bytes = Vec::new();
            cache::write_resource(host, message, 0, |part| bytes.extend(part));
            let resource = bytes.len();
            cache::write_variant(message, |part| bytes.extend(part));
            if let Found::Fresh { response: stored, max_age } = cache.look_up(self.now, &bytes, message) {
                response.set_code(stored.code());
                for (number, value) in with_max_age(&stored, Some(max_age)) {
                    response.option(number, &value)?;
                }
                return response.payload(stored.payload());
            }
            key = Some((bytes, resource));
        }
        let options = message.options().map(|(number, value)| (number, value.to_vec())).collect();
        let (code, payload) = (message.code(), message.payload().to_vec());
        self.deferred = Some(Forwarded { producer, code, options, payload, key, deferred: None });
        response.defer();
        Ok(())
    }

    /// Stores the response to a request that was forwarded, if it may be stored, and passes it on.
    fn pass(&mut self, Waiting { key, deferred, .. }: Waiting, response: Option<&MessageRef<'_>>) {
        let Some(deferred) = deferred else { return };
        let Some(response) = response else {
            // With a Max-Age of 0 no cache stores the error.
            let options = vec![(OptionNumber::MAX_AGE, Vec::new())];
            return self.answers.push(Answer { deferred, code: Code::GATEWAY_TIMEOUT, options, payload: Vec::new() });
        };
        if let (Some(cache), Some((key, resource))) = (&mut self.cache, &key) {
            let mut storage = [0; ENTRY];
            let mut frame = Frame::new(&mut storage, 0);
            if cache::write_stored(response.code(), response.options(), response.payload(), &mut frame).is_ok() {
                cache.take(self.now, (key, *resource), (), (response, frame.bytes()));
            }
        }
        let max_age = response.option(OptionNumber::MAX_AGE).map(|_| cache::max_age(response).as_secs() as u32);
        let (options, payload) = (with_max_age(response, max_age), response.payload().to_vec());
        self.answers.push(Answer { deferred, code: response.code(), options, payload });
    }
}

/// The options of a response that a proxy forwards, with this Max-Age.
fn with_max_age(response: &MessageRef<'_>, max_age: Option<u32>) -> Options {
    let forwarded = response.options().filter(|(number, _)| cache::in_response(*number) == Treatment::Passed);
    let max_age = max_age.map(|age| (OptionNumber::MAX_AGE, uint_bytes(age, &mut [0; 4]).to_vec()));
    let mut options: Options = forwarded.map(|(number, value)| (number, value.to_vec())).chain(max_age).collect();
    options.sort_by_key(|(number, _)| *number);
    options
}

impl Handler for Application {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        self.served += 1;
        let message = request.message();
        if self.is_proxy {
            return self.forward(message, response);
        }
        if !(0..ITEMS).any(|item| message.path_is(&path(item))) {
            return Err(Code::NOT_FOUND);
        }
        response.payload(&READING)
    }

    fn acts_on(&self, _: &MessageRef<'_>, number: OptionNumber) -> bool {
        match self.is_proxy {
            true => cache::in_request(number) != Treatment::Refused,
            false => self.critical_options().contains(&number),
        }
    }
}

impl node::Application<Exchange> for Application {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&Anybody, self))
    }

    fn on_deferred(&mut self, mut request: DeferredRequest<'_, Exchange>) {
        request.acknowledges_later = true;
        if let Some(forwarded) = self.deferred.take() {
            self.forwarded.push(Forwarded { deferred: Some(request.keep()), ..forwarded });
        }
    }

    fn on_reply(&mut self, peer: PeerId, request: RequestId, reply: Reply<'_>) {
        let response = match reply {
            Reply::Response(response) => Some(response),
            Reply::Acknowledged => return,
            _ => None,
        };
        if let Some(place) = self.waiting.iter().position(|waiting| (waiting.peer, waiting.request) == (peer, request))
        {
            let waiting = self.waiting.swap_remove(place);
            return self.pass(waiting, response);
        }
        let is_reading = response.is_some_and(|response| response.code() == Code::CONTENT);
        self.replies.push((peer, request, is_reading));
    }
}

/// The Uri-Host of a producer.
pub(super) fn name(producer: usize) -> String {
    format!("p{producer}")
}

/// The producer with this Uri-Host.
fn producer(name: &[u8]) -> Option<usize> {
    std::str::from_utf8(name).ok()?.strip_prefix('p')?.parse().ok()
}

/// The path of a reading.
pub(super) fn path(item: u64) -> String {
    format!("{RESOURCE}{item}")
}

/// Responses that a forwarder stores, as in the paper.
const ENTRIES: usize = 30;
/// Bytes of such a response with its key.
const ENTRY: usize = 64;
/// A reading in two bytes.
const READING: [u8; 2] = 2150u16.to_be_bytes();
