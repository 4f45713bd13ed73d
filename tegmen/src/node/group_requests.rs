//! The memory of requests to groups (RFC 7252, section 8): their tokens, and the members whose responses came.

use crate::address::Address;
use crate::buf::Full;
use crate::coap::Busy;
use crate::coap::{RequestId, Token};
use crate::time::Instant;

/// The requests to groups whose responses may still come, and the members that sent theirs.
///
/// A request that is open takes a place, so that their number limits the load on the network, too.
pub trait GroupRequests {
    /// True unless this is `()`.
    const IS_ON: bool = true;

    /// Opens a request with this token until the time `until`, and gives it a name. The number of the first request is `first`;
    /// each further one is 1 more.
    ///
    /// # Errors
    /// [`Busy::Outstanding`] if there is no place.
    fn open(&mut self, now: Instant, until: Instant, token: Token, first: u16) -> Result<RequestId, Busy>;

    /// Returns a request that is open at the time `now`, and for which `is_it` holds.
    fn find(&self, now: Instant, is_it: impl FnMut(RequestId, &Token) -> bool) -> Option<RequestId>;

    /// Notes that the member at this address sent its response. Returns false if it did so before.
    ///
    /// # Errors
    /// [`Full`] if there is no space; the response is then dropped.
    fn note(&mut self, request: RequestId, member: &Address) -> Result<bool, Full>;

    /// Notes that a request was protected: the address of the group, the epoch, and the truncated sequence number (TSN). The default is for an owner that asks in clear only.
    ///
    /// # Errors
    /// [`Full`] if there is no space for this; the request must then not be sent.
    fn protect(&mut self, request: RequestId, sealed: (Address, u16, u64)) -> Result<(), Full> {
        let _ = (request, sealed);
        Err(Full)
    }

    /// Returns what [`Self::protect`] noted of a request; `None` if it was sent in clear.
    #[inline]
    fn protection(&self, request: RequestId) -> Option<(Address, u16, u64)> {
        let _ = request;
        None
    }

    /// Ends a request.
    fn close(&mut self, request: RequestId);
}

/// No group is asked.
impl GroupRequests for () {
    const IS_ON: bool = false;

    #[inline]
    fn open(&mut self, _: Instant, _: Instant, _: Token, _: u16) -> Result<RequestId, Busy> {
        Err(Busy::Outstanding)
    }

    #[inline]
    fn find(&self, _: Instant, _: impl FnMut(RequestId, &Token) -> bool) -> Option<RequestId> {
        None
    }

    #[inline]
    fn note(&mut self, _: RequestId, _: &Address) -> Result<bool, Full> {
        Err(Full)
    }

    #[inline]
    fn close(&mut self, _: RequestId) {}
}

/// At most `REQUESTS` requests to groups at the same time, each with the responses of at most `MEMBERS` members.
#[derive(Clone, Copy, Debug)]
pub struct GroupRequestArray<const REQUESTS: usize, const MEMBERS: usize> {
    places: [Option<Place<MEMBERS>>; REQUESTS],
    /// The number of the next request.
    next: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Place<const MEMBERS: usize> {
    request: RequestId,
    token: Token,
    until: Instant,
    /// The group, the epoch and the number, if the request was protected.
    sealed: Option<(Address, u16, u64)>,
    /// The members that sent their responses.
    members: [Option<Address>; MEMBERS],
}

impl<const REQUESTS: usize, const MEMBERS: usize> Default for GroupRequestArray<REQUESTS, MEMBERS> {
    fn default() -> Self {
        Self { places: [None; REQUESTS], next: None }
    }
}

impl<const REQUESTS: usize, const MEMBERS: usize> GroupRequests for GroupRequestArray<REQUESTS, MEMBERS> {
    fn open(&mut self, now: Instant, until: Instant, token: Token, first: u16) -> Result<RequestId, Busy> {
        let is_free = |place: &&mut Option<Place<MEMBERS>>| place.is_none_or(|place| place.until <= now);
        let place = self.places.iter_mut().find(is_free).ok_or(Busy::Outstanding)?;
        let request = RequestId(self.next.unwrap_or(first.into()));
        self.next = Some(request.0.wrapping_add(1));
        *place = Some(Place { request, token, until, sealed: None, members: [None; MEMBERS] });
        Ok(request)
    }

    fn find(&self, now: Instant, mut is_it: impl FnMut(RequestId, &Token) -> bool) -> Option<RequestId> {
        let mut open = self.places.iter().flatten().filter(|place| now < place.until);
        open.find(|place| is_it(place.request, &place.token)).map(|place| place.request)
    }

    fn note(&mut self, request: RequestId, member: &Address) -> Result<bool, Full> {
        let place = self.places.iter_mut().flatten().find(|place| place.request == request).ok_or(Full)?;
        if place.members.iter().flatten().any(|noted| noted == member) {
            return Ok(false);
        }
        *place.members.iter_mut().find(|place| place.is_none()).ok_or(Full)? = Some(*member);
        Ok(true)
    }

    fn protect(&mut self, request: RequestId, sealed: (Address, u16, u64)) -> Result<(), Full> {
        let place = self.places.iter_mut().flatten().find(|place| place.request == request).ok_or(Full)?;
        place.sealed = Some(sealed);
        Ok(())
    }

    fn protection(&self, request: RequestId) -> Option<(Address, u16, u64)> {
        self.places.iter().flatten().find(|place| place.request == request)?.sealed
    }

    fn close(&mut self, request: RequestId) {
        for place in &mut self.places {
            *place = place.filter(|place| place.request != request);
        }
    }
}
