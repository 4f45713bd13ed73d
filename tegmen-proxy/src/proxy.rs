//! The forward proxy: see [`Proxy`].

use crate::held::{self, Held, is_of_blocks};
use crate::key::{Key, Target};
use crate::response::{write_known, write_stored};
use tegmen::buf::Frame;
use tegmen::coap::cache::{self, Cache, CacheStorage as _, FixedCache, Found, Treatment};
use tegmen::coap::{Code, MessageRef, OptionNumber, PeerExchanges, RequestId, Response};
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::dtls::Roles;
use tegmen::endpoint::Peers;
use tegmen::identity::PeerId;
use tegmen::node::{Deferred, DeferredRequest, Features, Node, Oscore, Reply, RequestHead, SendError};
use tegmen::oscore::OpenedRequest;
use tegmen::time::Instant;

/// A proxy for at most `WAITING` requests that wait for their responses. Messages have at most `MESSAGE` bytes. The
/// cache has `ENTRIES` responses of at most `ENTRY` bytes, each with its key. `X` is the type of a request that OSCORE
/// has decrypted: see [`Oscore::Exchange`].
///
/// A message that OSCORE protects for another endpoint is forwarded with its protected content unchanged, and is never
/// stored.
pub struct Proxy<X: OpenedRequest, const ENTRIES: usize, const ENTRY: usize, const WAITING: usize, const MESSAGE: usize>
{
    /// True if responses are stored in the cache.
    pub stores: bool,
    cache: Cache<FixedCache<ENTRIES, ENTRY>>,
    /// The request that must be forwarded next; `None` if no request waits to be forwarded.
    asked: Option<Asked<X, ENTRY>>,
    request: Held<MESSAGE>,
    waiting: [Option<Waiting<X, ENTRY>>; WAITING],
    /// The response that must be sent to its client next; `None` if there is no response.
    passing: Option<Passing<X>>,
    response: Held<MESSAGE>,
}

/// A request that must be forwarded.
struct Asked<X: OpenedRequest, const ENTRY: usize> {
    method: Code,
    key: Option<Key<ENTRY>>,
    /// True if the request has an OSCORE option. If the request has none, but the response has one, the client gets
    /// 5.02.
    is_protected: bool,
    /// The value of Hop-Limit in the forwarded request; `None` if the request of the client has no Hop-Limit.
    hops: Option<u8>,
    /// The ETag of a stored response that is no longer fresh. The forwarded request asks whether this response is still
    /// valid.
    etag: Option<Held<MAX_ETAG>>,
    /// The right to answer the request later. This field is `None` until the node passes the right to
    /// [`Proxy::on_deferred`], after the handler has returned.
    right: Option<Deferred<X>>,
}

/// A request that was forwarded.
struct Waiting<X: OpenedRequest, const ENTRY: usize> {
    /// The peer to which the request was forwarded, and the id of the forwarded request. `None` if the request could
    /// not be sent, or ended without a response: the client then gets the code `failed`.
    sent: Option<(PeerId, RequestId)>,
    asked: Asked<X, ENTRY>,
    /// The code for the client if there is no response.
    failed: Code,
}

/// A response that must be sent to its client.
struct Passing<X: OpenedRequest> {
    right: Deferred<X>,
    /// The error code that the client receives in place of the response; `None` if the client receives the response.
    failed: Option<Code>,
    max_age: Option<u32>,
}

/// The next hop of a forwarded request.
#[derive(Clone, Copy, Debug)]
pub struct Next<'t> {
    /// The peer to which the request is sent.
    pub peer: PeerId,
    /// True if the peer is the target itself. The options that name the target are then omitted.
    pub is_origin: bool,
    /// The token of the forwarded request; `None` if the node draws the token.
    pub token: Option<&'t [u8]>,
}

impl<X: OpenedRequest, const ENTRIES: usize, const ENTRY: usize, const WAITING: usize, const MESSAGE: usize> Default
    for Proxy<X, ENTRIES, ENTRY, WAITING, MESSAGE>
{
    fn default() -> Self {
        Self {
            stores: ENTRIES > 0,
            cache: Cache::default(),
            asked: None,
            request: Held::EMPTY,
            waiting: [const { None }; WAITING],
            passing: None,
            response: Held::EMPTY,
        }
    }
}

impl<X: OpenedRequest, const ENTRIES: usize, const ENTRY: usize, const WAITING: usize, const MESSAGE: usize>
    Proxy<X, ENTRIES, ENTRY, WAITING, MESSAGE>
{
    /// True if the proxy supports this option in a request that is passed to [`Self::handle`]: it processes the option,
    /// or forwards it. A request with any other critical option is refused with 4.02 (RFC 7252, section 5.4.1). The
    /// owner's [`Handler`](tegmen::coap::Handler) must have `IN_BLOCKS` false, and `acts_on_blocks` must return true,
    /// so that each block is forwarded.
    pub const fn acts_on(number: OptionNumber) -> bool {
        !matches!(cache::in_request(number), Treatment::Refused)
    }

    /// Answers a request from the cache. If the cache has no fresh response, stores the request until it is forwarded,
    /// and defers the response.
    ///
    /// # Errors
    /// * The codes of [`Target::of`].
    /// * 5.08 if the request may pass no further proxy (RFC 8768, section 3), and 4.00 if its Hop-Limit is invalid.
    /// * 5.03 if `WAITING` requests wait, or if the previous request has not been forwarded yet.
    /// * 4.13 if the request is longer than `MESSAGE` bytes.
    pub fn handle(
        &mut self,
        now: Instant,
        message: &MessageRef<'_>,
        response: &mut Response<'_, '_>,
    ) -> Result<(), Code> {
        let target = Target::of(message)?;
        let limited = message.option(OptionNumber::HOP_LIMIT).map(|_| cache::hops(message, 0)).transpose()?;
        let key = Key::<ENTRY>::of(&target, message).filter(|_| self.stores);
        let mut stale = None;
        if let Some(key) = key.as_ref().and_then(Key::cacheable) {
            match self.cache.look_up(now, key, message) {
                Found::Fresh { response: stored, max_age } => return write_stored(&stored, max_age, response),
                Found::Known { etag, max_age } => return write_known(etag, max_age, response),
                Found::Stale { etag } => {
                    let mut held = Held::EMPTY;
                    stale = held.set(|frame| frame.append(etag)).ok().map(|()| held);
                }
                Found::Nothing => {}
            }
        }
        let hops = match limited {
            Some(None) => return Err(Code::HOP_LIMIT_REACHED),
            Some(hops) => hops,
            None => None,
        };
        if self.asked.is_some() || self.waiting.iter().all(Option::is_some) {
            return Err(Code::SERVICE_UNAVAILABLE);
        }
        self.request.set(|frame| held::write_whole(message, frame)).map_err(|_| Code::REQUEST_ENTITY_TOO_LARGE)?;
        let is_protected = message.option(OptionNumber::OSCORE).is_some();
        self.asked = Some(Asked { method: message.code(), key, is_protected, hops, etag: stale, right: None });
        response.defer();
        Ok(())
    }

    /// Stores the right to send a response to the request that was last passed to [`Self::handle`]. `request` contains
    /// this right, because [`Self::handle`] has deferred the response.
    pub fn on_deferred(&mut self, request: DeferredRequest<'_, X>) {
        if let Some(asked) = &mut self.asked
            && asked.right.is_none()
        {
            asked.right = Some(request.keep());
        }
    }

    /// Returns the target of the request that must be forwarded. The owner then calls [`Self::forward`] or
    /// [`Self::refuse`].
    pub fn target(&self) -> Option<Target<'_>> {
        self.asked.as_ref().filter(|asked| asked.right.is_some())?;
        Target::of(&self.request.message()?).ok()
    }

    /// Refuses the request that must be forwarded: its client gets the error code `failed`. Use 5.02 if the owner does
    /// not know the target, and 4.03 if clients are not allowed to use the target.
    pub fn refuse(&mut self, failed: Code) {
        if let Some(asked) = self.asked.take() {
            self.wait(Waiting { sent: None, asked, failed });
        }
    }

    /// Forwards the request that [`Self::handle`] stored. Writes the datagram for the peer `next.peer` into `out`, and
    /// returns its length. The length is 0 if there is no request, or if the request waits in the queue of the node.
    ///
    /// # Errors
    /// [`SendError`]. The client then gets 5.03.
    pub fn forward<C: Crypto, P: Peers<Attached: PeerExchanges>, R: Roles, F: Features>(
        &mut self,
        cx: &mut Cx<'_, C>,
        node: &mut Node<P, R, F>,
        next: Next<'_>,
        out: &mut [u8],
    ) -> Result<usize, SendError> {
        let Some(asked) = self.asked.take() else { return Ok(0) };
        let Some(message) = self.request.message() else { return Ok(0) };
        let head = RequestHead::new(asked.method);
        let head = next.token.map_or(head, |token| head.with_token(token));
        let sent = node.request(
            cx,
            next.peer,
            head,
            |request| {
                let is_forwarded = |number| match cache::in_request(number) {
                    Treatment::Key | Treatment::Passed => true,
                    Treatment::Target => !next.is_origin,
                    // The Request-Tag keeps the blocks of different bodies apart (RFC 9175, section 3).
                    Treatment::Taken | Treatment::Refused => {
                        is_of_blocks(number) || number == OptionNumber::REQUEST_TAG
                    }
                };
                for (number, value) in message.options().filter(|(number, _)| is_forwarded(*number)) {
                    request.option(number, value)?;
                }
                if let Some(hops) = asked.hops {
                    request.insert(OptionNumber::HOP_LIMIT, &[hops])?;
                }
                if let Some(etag) = &asked.etag {
                    request.insert(OptionNumber::ETAG, etag.as_bytes())?;
                }
                request.payload(message.payload())
            },
            out,
        );
        let (sent, result) = match sent {
            Ok((request, len)) => (Some((next.peer, request)), Ok(len)),
            Err(error) => (None, Err(error)),
        };
        self.wait(Waiting { sent, asked, failed: Code::SERVICE_UNAVAILABLE });
        result
    }

    /// Takes a reply to a request of the node. Returns false if the proxy did not send the request.
    pub fn on_reply(&mut self, now: Instant, (peer, request): (PeerId, RequestId), reply: &Reply<'_>) -> bool {
        let is_it = |place: &&mut Option<Waiting<X, ENTRY>>| {
            place.as_ref().is_some_and(|waiting| waiting.sent == Some((peer, request)))
        };
        let Some(place) = self.waiting.iter_mut().find(is_it) else { return false };
        let failed = match reply {
            Reply::Acknowledged => return true,
            Reply::Response(response) => {
                let Some(waiting) = place.take() else { return true };
                self.take(now, waiting.asked, response);
                return true;
            }
            Reply::TimedOut => Code::GATEWAY_TIMEOUT,
            Reply::NotSent(_) => Code::SERVICE_UNAVAILABLE,
            Reply::Reset | Reply::Refused { .. } | Reply::Cut(_) => Code::BAD_GATEWAY,
        };
        let Some(waiting) = place.take() else { return true };
        // The origin may have made the change, although no response came.
        self.invalidate(&waiting.asked, failed);
        self.wait(Waiting { sent: None, failed, ..waiting });
        true
    }

    /// Removes the stored responses for the resource of a request, if the request may have changed the resource.
    /// Responses to other requests for the resource that still wait may be from before the change, so they are not
    /// stored. `response` is the code of the response, or the code for the client if there is no response.
    fn invalidate(&mut self, asked: &Asked<X, ENTRY>, response: Code) {
        let Some(key) = asked.key.as_ref().filter(|_| cache::changes(asked.method, response)) else { return };
        self.cache.storage.remove_resource(key.resource());
        let keys = self.waiting.iter_mut().flatten().filter_map(|waiting| waiting.asked.key.as_mut());
        keys.filter(|other| other.resource() == key.resource()).for_each(Key::forbid);
    }

    /// Stores the response to a forwarded request in the cache, if it may be stored. Holds the response until it is
    /// sent to the client.
    fn take(&mut self, now: Instant, mut asked: Asked<X, ENTRY>, response: &MessageRef<'_>) {
        self.invalidate(&asked, response.code());
        let Self { cache, response: held, .. } = self;
        // The owner sends each response to its client before the next response arrives.
        let is_free = self.passing.is_none();
        let is_known = |(number, _)| cache::in_response(number) != Treatment::Refused;
        let key = asked.key.as_ref().and_then(|key| Some((key.cacheable()?, key.resource_len())));
        // The ETags of clients are not forwarded, so a 2.03 confirms the stored response or nothing.
        let is_asked_for = response.code() != Code::VALID || asked.etag.is_some() && key.is_some();
        let is_in_clear = response.option(OptionNumber::OSCORE).is_none();
        let is_usable =
            is_free && is_asked_for && (is_in_clear || asked.is_protected) && response.options().all(is_known);
        let is_block = response.options().any(|(number, _)| is_of_blocks(number));
        let is_held = is_usable
            && match (&asked.etag, key) {
                (Some(etag), Some(key)) if response.code() == Code::VALID => {
                    let known = (etag.as_bytes(), response);
                    let revalidate =
                        |frame: &mut Frame<'_>| cache.revalidate(now, key, (), known, frame).then_some(()).ok_or(());
                    held.set(revalidate).is_ok()
                }
                _ if is_block => held.set(|frame| held::write_whole(response, frame)).is_ok(),
                (_, key) => {
                    let written = held.set(|frame| {
                        cache::write_stored(response.code(), response.options(), response.payload(), frame)
                    });
                    if let (Ok(()), Some(key)) = (written, key) {
                        cache.take(now, key, (), (response, held.as_bytes()));
                    }
                    written.is_ok()
                }
            };
        if !is_held {
            let failed = if is_free { Code::BAD_GATEWAY } else { Code::SERVICE_UNAVAILABLE };
            return self.wait(Waiting { sent: None, asked, failed });
        }
        let max_age = response.option(OptionNumber::MAX_AGE).map(|_| cache::max_age(response).as_secs() as u32);
        if let Some(right) = asked.right.take() {
            self.passing = Some(Passing { right, failed: None, max_age });
        }
    }

    /// Protects the next response for its client, and writes the datagram into `out`. Returns the client, and the
    /// length of the datagram to send; `None` if there is no response. If a response cannot be sent now, the response
    /// is lost, and the function continues with the next response. This occurs, for example, if the client has not
    /// acknowledged an earlier response, and the node has no [`Queue`](tegmen::node::Queue).
    pub fn respond<
        C: Crypto,
        P: Peers<Attached: PeerExchanges>,
        R: Roles,
        F: Features<Oscore: Oscore<Exchange = X>>,
    >(
        &mut self,
        cx: &mut Cx<'_, C>,
        node: &mut Node<P, R, F>,
        out: &mut [u8],
    ) -> Option<(PeerId, usize)> {
        loop {
            let Passing { right, failed, max_age } = self.passing.take().or_else(|| self.take_failed())?;
            let (peer, held) = (right.peer, self.response.message());
            let code = failed.or_else(|| Some(held.as_ref()?.code())).unwrap_or(Code::BAD_GATEWAY);
            let held = held.filter(|_| failed.is_none());
            let sent = node.respond(
                cx,
                right,
                code,
                |response| {
                    if let Some(held) = &held {
                        let is_passed =
                            |number| cache::in_response(number) == Treatment::Passed || is_of_blocks(number);
                        for (number, value) in held.options().filter(|(number, _)| is_passed(*number)) {
                            response.option(number, value)?;
                        }
                    }
                    if let Some(max_age) = max_age {
                        let mut bytes = [0; 4];
                        response.insert(OptionNumber::MAX_AGE, tegmen::coap::uint_bytes(max_age, &mut bytes))?;
                    }
                    response.payload(held.map_or(&[], |held| held.payload()))
                },
                out,
            );
            match sent {
                Ok(len) if len > 0 => return Some((peer, len)),
                // A client that does not acknowledge its last response must not delay the responses of other clients.
                _ => {}
            }
        }
    }

    /// Finds a request that could not be forwarded, or got no response, and removes it from the waiting requests.
    /// Returns the error response for its client. The Max-Age of this response is 0, so that no cache stores it.
    fn take_failed(&mut self) -> Option<Passing<X>> {
        let is_failed =
            |place: &&mut Option<Waiting<X, ENTRY>>| place.as_ref().is_some_and(|waiting| waiting.sent.is_none());
        loop {
            let Waiting { asked, failed, .. } = self.waiting.iter_mut().find(is_failed)?.take()?;
            if let Some(right) = asked.right {
                return Some(Passing { right, failed: Some(failed), max_age: Some(0) });
            }
        }
    }

    /// Stores a forwarded request in a free element of `self.waiting`. [`Self::handle`] has checked that an element is
    /// free.
    fn wait(&mut self, waiting: Waiting<X, ENTRY>) {
        if let Some(place) = self.waiting.iter_mut().find(|place| place.is_none()) {
            *place = Some(waiting);
        }
    }
}

/// Maximum number of bytes of an ETag (RFC 7252, section 5.10.6).
const MAX_ETAG: usize = 8;
