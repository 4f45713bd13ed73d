//! The memory of a server for bodies that are longer than a message (RFC 7959). These are request bodies that the
//! server reassembles, and responses that clients read block by block.

use crate::buf::{Full, copy};
use crate::coap::EXCHANGE_LIFETIME;
use crate::coap::block::{Assembly, Block, Step, etag};
use crate::coap::{Code, MessageRef, Request};
use crate::identity::{Identity, PeerId, Protection};
use crate::time::Instant;

/// The identity of a block-wise transfer. It consists of three parts: the peer from which the requests arrive, the
/// identity of the requests' sender, and a fingerprint of the method and the options that all requests of the transfer
/// share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// The peer from which the requests of the transfer arrive.
    pub peer: PeerId,
    /// The identity of the requests' sender. With OSCORE, the peer can be a proxy, which forwards the requests of
    /// several senders.
    pub identity: Identity,
    /// A fingerprint of the method and of the options that all requests of the transfer share: see
    /// [`MessageRef::operation`].
    fingerprint: u64,
}

impl Operation {
    /// Returns the identity of the transfer to which a request of this peer belongs.
    pub fn of(peer: PeerId, request: &Request<'_>) -> Self {
        Self { peer, identity: request.identity, fingerprint: request.message.operation() }
    }
}

/// The memory for the bodies of all block-wise transfers in which a node is the server.
///
/// If a transfer does not continue, the node forgets it after [`EXCHANGE_LIFETIME`]. With `()`, a node reassembles no
/// bodies: it refuses blocks of request bodies with 4.02. Its response to a request that is not safe must then fit a
/// message.
pub trait Bodies {
    /// False only for `()`, the type for a node that stores no bodies.
    const IS_ON: bool = true;

    /// Returns the maximum number of bytes of the body of a request.
    fn limit(&self) -> usize;

    /// Adds a block to the request body of the transfer `operation`. The block with number 0 begins a new body.
    /// `announced` is the length of the whole body in the client's Size1 option (RFC 7959, section 4); 0 if the request
    /// has no Size1 option. Returns true if the body is complete. The body is then stored until [`Self::release`].
    ///
    /// # Errors
    /// * The errors of [`Assembly::accept`].
    /// * 4.08 if the first block of the body is missing.
    /// * 4.13 if the announced length is more than [`Self::limit`].
    /// * 5.03 if there is no space for another body.
    fn upload(
        &mut self,
        now: Instant,
        operation: &Operation,
        block: (Block, &[u8]),
        announced: usize,
    ) -> Result<bool, Code>;

    /// Returns two slices of the memory. The first is the complete request body of the transfer; it is empty if there
    /// is no body. The second is space for the response; it is empty if this peer can get no space. Removes an older
    /// response of the same transfer.
    fn space(&mut self, now: Instant, operation: &Operation) -> (&[u8], &mut [u8]);

    /// Stores the response that was written into the first `len` bytes of the space for a response. The client will
    /// request the blocks of this response.
    ///
    /// # Errors
    /// [`Full`] if there is no memory for the message.
    fn keep(&mut self, now: Instant, operation: &Operation, len: usize) -> Result<(), Full>;

    /// Returns the complete request body of the transfer; an empty slice if there is no body.
    fn body(&self, operation: &Operation) -> &[u8];

    /// Removes the complete request body of the transfer. Also frees the memory that was reserved for the response,
    /// unless the response is stored there.
    fn release(&mut self, operation: &Operation);

    /// Returns the stored response of this transfer, and an entity tag that was computed from its payload. The entity
    /// tag is for a response without an ETag option. Returns `None` if there is no stored response.
    fn kept(&mut self, now: Instant, operation: &Operation) -> Option<(&[u8], [u8; 4])>;
}

/// The memory of a node that stores no bodies.
impl Bodies for () {
    const IS_ON: bool = false;

    #[inline]
    fn limit(&self) -> usize {
        0
    }

    #[inline]
    fn upload(&mut self, _: Instant, _: &Operation, _: (Block, &[u8]), _: usize) -> Result<bool, Code> {
        Err(Code::BAD_OPTION)
    }

    #[inline]
    fn space(&mut self, _: Instant, _: &Operation) -> (&[u8], &mut [u8]) {
        (&[], &mut [])
    }

    #[inline]
    fn keep(&mut self, _: Instant, _: &Operation, _: usize) -> Result<(), Full> {
        Err(Full)
    }

    #[inline]
    fn body(&self, _: &Operation) -> &[u8] {
        &[]
    }

    #[inline]
    fn release(&mut self, _: &Operation) {}

    #[inline]
    fn kept(&mut self, _: Instant, _: &Operation) -> Option<(&[u8], [u8; 4])> {
        None
    }
}

/// Memory for at most `N` bodies. Each is a request body or a whole response, and has at most `BYTES` bytes. A whole
/// response includes its header, token and options. All peers without protection together get memory for at most
/// `UNPROTECTED` bodies.
///
/// If the body of a request arrives in blocks and its response is long, the request needs memory for two bodies. If all
/// memory is in use, a new body of a peer replaces the oldest body of the same peer. If that peer has no stored body,
/// its new body is refused.
#[derive(Clone, Copy, Debug)]
pub struct BodyArray<const N: usize, const BYTES: usize, const UNPROTECTED: usize> {
    places: [Place<BYTES>; N],
}

#[derive(Clone, Copy, Debug)]
struct Place<const BYTES: usize> {
    operation: Option<Operation>,
    content: Content,
    /// The time at which the last block of the transfer was received or sent.
    last: Instant,
    bytes: [u8; BYTES],
}

/// The content of one element of a [`BodyArray`], which stores the body of one transfer.
#[derive(Clone, Copy, Debug)]
enum Content {
    /// A request body that is not complete yet.
    Upload(Assembly),
    /// A complete request body with this number of bytes.
    Body(u16),
    /// Space for the response to the request that the handler processes now.
    Space,
    /// A response with this number of bytes, and its entity tag.
    Response(u16, [u8; 4]),
}

impl<const BYTES: usize> Place<BYTES> {
    const VACANT: Self = Self { operation: None, content: Content::Space, last: Instant::NEVER, bytes: [0; BYTES] };

    fn is_of(&self, operation: &Operation) -> bool {
        self.operation.as_ref() == Some(operation)
    }

    /// True if this element of the [`BodyArray`] holds the request body of the transfer `operation`.
    fn is_upload_of(&self, operation: &Operation) -> bool {
        self.is_of(operation) && matches!(self.content, Content::Upload(_) | Content::Body(_))
    }

    /// True if this element of the [`BodyArray`] holds the response of the transfer `operation`, or space for this
    /// response.
    fn is_response_to(&self, operation: &Operation) -> bool {
        self.is_of(operation) && matches!(self.content, Content::Space | Content::Response(..))
    }

    fn body(&self) -> &[u8] {
        match self.content {
            Content::Body(len) => self.bytes.get(..len.into()).unwrap_or(&[]),
            _ => &[],
        }
    }

    /// Adds a block to the request body in this element of the [`BodyArray`]. Returns true if the body is complete.
    fn add(&mut self, mut assembly: Assembly, (block, bytes): (Block, &[u8])) -> Result<bool, Code> {
        let step = assembly.accept(block, bytes.len(), BYTES)?;
        let (Step::Continue(at) | Step::Complete(at)) = step;
        let place = self.bytes.get_mut(at..).ok_or(Code::REQUEST_ENTITY_TOO_LARGE)?;
        copy(place, bytes).map_err(|Full| Code::REQUEST_ENTITY_TOO_LARGE)?;
        let complete = matches!(step, Step::Complete(_));
        self.content = if complete { Content::Body(assembly.received() as u16) } else { Content::Upload(assembly) };
        Ok(complete)
    }
}

impl<const N: usize, const BYTES: usize, const UNPROTECTED: usize> BodyArray<N, BYTES, UNPROTECTED> {
    /// Chooses an element of the array for a transfer, and sets the content of this element to [`Content::Space`].
    /// Returns `None` if no element is available.
    fn take(&mut self, now: Instant, operation: &Operation) -> Option<&mut Place<BYTES>> {
        let is_old = |place: &&mut Place<BYTES>| now.since(place.last) >= EXCHANGE_LIFETIME;
        self.places.iter_mut().filter(is_old).for_each(|place| place.operation = None);
        let is_unprotected = |other: &Operation| other.identity.protection == Protection::Plain;
        let unprotected = self.places.iter().filter(|place| place.operation.as_ref().is_some_and(is_unprotected));
        let may_have_more = !is_unprotected(operation) || unprotected.count() < UNPROTECTED;
        let vacant = self.places.iter().position(|place| place.operation.is_none()).filter(|_| may_have_more);
        let is_own = |place: &Place<BYTES>| {
            let of_peer = place.operation.is_some_and(|other| other.peer == operation.peer);
            // The body of the request that the handler processes now is still needed.
            of_peer && !(place.is_of(operation) && matches!(place.content, Content::Body(_)))
        };
        let own = self.places.iter().enumerate().filter(|(_, place)| is_own(place));
        let oldest = own.min_by_key(|(_, place)| place.last).map(|(number, _)| number);
        let place = self.places.get_mut(vacant.or(oldest)?)?;
        (place.operation, place.content, place.last) = (Some(*operation), Content::Space, now);
        Some(place)
    }

    fn remove(&mut self, is_it: impl Fn(&Place<BYTES>) -> bool) {
        self.places.iter_mut().filter(|place| is_it(place)).for_each(|place| place.operation = None);
    }
}

impl<const N: usize, const BYTES: usize, const UNPROTECTED: usize> Default for BodyArray<N, BYTES, UNPROTECTED> {
    fn default() -> Self {
        // A length has 16 bits.
        const { assert!(BYTES <= u16::MAX as usize) };
        Self { places: [Place::VACANT; N] }
    }
}

impl<const N: usize, const BYTES: usize, const UNPROTECTED: usize> Bodies for BodyArray<N, BYTES, UNPROTECTED> {
    fn limit(&self) -> usize {
        BYTES
    }

    fn upload(
        &mut self,
        now: Instant,
        operation: &Operation,
        block: (Block, &[u8]),
        announced: usize,
    ) -> Result<bool, Code> {
        if announced > BYTES {
            return Err(Code::REQUEST_ENTITY_TOO_LARGE);
        }
        let is_live = |place: &Place<BYTES>| now.since(place.last) < EXCHANGE_LIFETIME;
        let begun = self.places.iter().position(|place| place.is_upload_of(operation) && is_live(place));
        let place = match begun {
            Some(begun) => self.places.get_mut(begun),
            None if block.0.number > 0 => return Err(Code::REQUEST_ENTITY_INCOMPLETE),
            None => self.take(now, operation),
        };
        let place = place.ok_or(Code::SERVICE_UNAVAILABLE)?;
        place.last = now;
        let assembly = match place.content {
            Content::Upload(assembly) => assembly,
            _ => Assembly::default(),
        };
        let added = place.add(assembly, block);
        let is_empty = matches!(place.content, Content::Space);
        if added == Err(Code::REQUEST_ENTITY_TOO_LARGE) || is_empty {
            place.operation = None;
        }
        added
    }

    fn space(&mut self, now: Instant, operation: &Operation) -> (&[u8], &mut [u8]) {
        self.remove(|place| place.is_response_to(operation));
        self.take(now, operation);
        let (mut body, mut space): (&[u8], &mut [u8]) = (&[], &mut []);
        for place in self.places.iter_mut().filter(|place| place.is_of(operation)) {
            match place.content {
                Content::Body(len) => body = place.bytes.get(..len.into()).unwrap_or(&[]),
                Content::Space => space = &mut place.bytes,
                Content::Upload(_) | Content::Response(..) => {}
            }
        }
        (body, space)
    }

    fn keep(&mut self, now: Instant, operation: &Operation, len: usize) -> Result<(), Full> {
        let place = self.places.iter_mut().find(|place| place.is_response_to(operation)).ok_or(Full)?;
        let message = place.bytes.get(..len).and_then(|bytes| MessageRef::parse(bytes).ok()).ok_or(Full)?;
        (place.content, place.last) = (Content::Response(len as u16, etag(message.payload())), now);
        Ok(())
    }

    fn body(&self, operation: &Operation) -> &[u8] {
        self.places.iter().find(|place| place.is_upload_of(operation)).map_or(&[], Place::body)
    }

    fn release(&mut self, operation: &Operation) {
        self.remove(|place| place.is_of(operation) && matches!(place.content, Content::Body(_) | Content::Space));
    }

    fn kept(&mut self, now: Instant, operation: &Operation) -> Option<(&[u8], [u8; 4])> {
        let place = self.places.iter_mut().find(|place| place.is_response_to(operation))?;
        let Content::Response(len, etag) = place.content else { return None };
        if now.since(place.last) >= EXCHANGE_LIFETIME {
            return None;
        }
        place.last = now;
        Some((place.bytes.get(..len.into())?, etag))
    }
}
