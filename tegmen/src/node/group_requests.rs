//! The memory of a node for its requests to groups (RFC 7252, section 8). It stores the tokens of the requests, and the
//! members whose responses arrived. If a request registers the node as observer at the members, the request is open
//! while the owner of the node observes the group. Each member numbers its notifications separately, so the memory
//! stores their order for each member (RFC 7641, section 3.4).

use crate::address::Address;
use crate::buf::Full;
use crate::coap::Busy;
use crate::coap::observe::Order;
use crate::coap::{RequestId, Token};
use crate::time::Instant;

/// The open requests to groups, and the members whose responses arrived. An open request still waits for responses.
///
/// The maximum number of open requests also limits the load on the network.
pub trait GroupRequests {
    /// False only for `()`, the type for a node that sends no requests to groups.
    const IS_ON: bool = true;
    /// True if the node can observe groups. If this constant is false, each request gets at most one response from each
    /// member.
    const OBSERVES: bool = false;

    /// Opens a request with this token until the time `until`, and returns its id. The ids are consecutive numbers,
    /// beginning with `first`, which is ignored after the first request. If a request with this token is already open,
    /// the owner of the node sends that request again. The open request then gets the new id and the new time `until`,
    /// and the memory keeps the order of the notifications that belong to this request.
    ///
    /// # Errors
    /// [`Busy::Outstanding`] if there is no memory for another request.
    fn open(&mut self, now: Instant, until: Instant, token: Token, first: u16) -> Result<RequestId, Busy>;

    /// Returns a request that is open at the time `now`, and for which `is_it` returns true. `None` if there is no such
    /// request.
    fn find(&self, now: Instant, is_it: impl FnMut(RequestId, &Token) -> bool) -> Option<RequestId>;

    /// Stores whether a request registers the node as observer at the members. `registers` is true if it does.
    fn observe(&mut self, request: RequestId, registers: bool) {
        let _ = (request, registers);
    }

    /// Stores that the member at this address sent its response, or a notification. The first value of `notification`
    /// is the Observe number of the notification; `None` for a response without this number. The second value is the
    /// time of arrival (RFC 7641, section 3.4). Returns false if the application must not get the response, because the
    /// member already sent a response, or a newer notification.
    ///
    /// # Errors
    /// [`Full`] if there is no space for the member. The response is then dropped.
    fn note(
        &mut self,
        request: RequestId,
        member: &Address,
        notification: (Option<u32>, Instant),
    ) -> Result<bool, Full>;

    /// Stores three values about a request to a protected group: the address of the group, the epoch, and the truncated
    /// sequence number (TSN) of the request. The default implementation refuses the values. It is sufficient for a node
    /// that sends no requests to protected groups.
    ///
    /// # Errors
    /// [`Full`] if there is no space for these values. The request must then not be sent.
    fn protect(&mut self, request: RequestId, sealed: (Address, u16, u64)) -> Result<(), Full> {
        let _ = (request, sealed);
        Err(Full)
    }

    /// Returns the values that [`Self::protect`] stored for a request; `None` if the request was not protected by
    /// Axiom.
    #[inline]
    fn protection(&self, request: RequestId) -> Option<(Address, u16, u64)> {
        let _ = request;
        None
    }

    /// Ends a request.
    fn close(&mut self, request: RequestId);
}

/// The memory of a node that sends no requests to groups: it stores nothing.
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
    fn note(&mut self, _: RequestId, _: &Address, _: (Option<u32>, Instant)) -> Result<bool, Full> {
        Err(Full)
    }

    #[inline]
    fn close(&mut self, _: RequestId) {}
}

/// Memory for at most `REQUESTS` open requests to groups. For each request, it stores at most `MEMBERS` members whose
/// responses arrived, and the order of the notifications of `ORDERS` members. `ORDERS` must be equal to `MEMBERS`, or 0
/// if the node observes no groups.
#[derive(Clone, Copy, Debug)]
pub struct GroupRequestArray<const REQUESTS: usize, const MEMBERS: usize, const ORDERS: usize = 0> {
    places: [Option<Place<MEMBERS, ORDERS>>; REQUESTS],
    /// The number of the next request; `None` before the first request.
    next: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
struct Place<const MEMBERS: usize, const ORDERS: usize> {
    request: RequestId,
    token: Token,
    until: Instant,
    /// The address of the group, the epoch and the TSN, if Axiom protected the request; otherwise `None`.
    sealed: Option<(Address, u16, u64)>,
    /// The members whose responses arrived.
    members: [Option<Address>; MEMBERS],
    /// For each member, the state that shows whether a notification is newer than the earlier ones. `None` if the
    /// request does not register the node as observer.
    orders: Option<[Option<Order>; ORDERS]>,
}

impl<const REQUESTS: usize, const MEMBERS: usize, const ORDERS: usize> Default
    for GroupRequestArray<REQUESTS, MEMBERS, ORDERS>
{
    fn default() -> Self {
        Self { places: [None; REQUESTS], next: None }
    }
}

impl<const REQUESTS: usize, const MEMBERS: usize, const ORDERS: usize> GroupRequests
    for GroupRequestArray<REQUESTS, MEMBERS, ORDERS>
{
    const OBSERVES: bool = ORDERS > 0;

    fn open(&mut self, now: Instant, until: Instant, token: Token, first: u16) -> Result<RequestId, Busy> {
        let is_open = |place: &Place<MEMBERS, ORDERS>| now < place.until;
        let is_again = |place: &Option<Place<MEMBERS, ORDERS>>| {
            ORDERS > 0 && place.is_some_and(|place| is_open(&place) && place.token.as_bytes() == token.as_bytes())
        };
        let again = if ORDERS > 0 { self.places.iter().position(is_again) } else { None };
        let is_free = |place: &Option<Place<MEMBERS, ORDERS>>| place.is_none_or(|place| !is_open(&place));
        let place = match again {
            Some(at) => self.places.get_mut(at),
            None => self.places.iter_mut().find(|place| is_free(place)),
        };
        let place = place.ok_or(Busy::Outstanding)?;
        let request = RequestId(self.next.unwrap_or(first.into()));
        self.next = Some(request.0.wrapping_add(1));
        let before = place.filter(|_| again.is_some());
        let new = Place { request, token, until, sealed: None, members: [None; MEMBERS], orders: None };
        *place = Some(before.map_or(new, |before| Place { request, until, ..before }));
        Ok(request)
    }

    fn find(&self, now: Instant, mut is_it: impl FnMut(RequestId, &Token) -> bool) -> Option<RequestId> {
        let mut open = self.places.iter().flatten().filter(|place| now < place.until);
        open.find(|place| is_it(place.request, &place.token)).map(|place| place.request)
    }

    fn observe(&mut self, request: RequestId, registers: bool) {
        if let Some(place) = self.places.iter_mut().flatten().find(|place| place.request == request) {
            let (members, orders) = (place.members, place.orders.unwrap_or([None; ORDERS]));
            // Members that do not allow the observation of their resource also respond to the repeated request.
            let observed = members.iter().zip(orders).filter(|(_, order)| order.is_some());
            (place.members, place.orders) = ([None; MEMBERS], registers.then_some([None; ORDERS]));
            let kept = place.members.iter_mut().zip(place.orders.iter_mut().flatten());
            kept.zip(observed).for_each(|((member, order), before)| (*member, *order) = (*before.0, before.1));
        }
    }

    fn note(
        &mut self,
        request: RequestId,
        member: &Address,
        (number, now): (Option<u32>, Instant),
    ) -> Result<bool, Full> {
        let place = self.places.iter_mut().flatten().find(|place| place.request == request).ok_or(Full)?;
        if ORDERS > 0
            && let Some(orders) = &mut place.orders
        {
            let is_it = |noted: &Option<Address>| noted.is_none_or(|noted| noted == *member);
            let at = place.members.iter().position(is_it).ok_or(Full)?;
            let (noted, last) = (place.members.get_mut(at).ok_or(Full)?, orders.get_mut(at).ok_or(Full)?);
            if noted.is_some() {
                return Ok(Order::follows(last, number, now));
            }
            (*noted, *last) = (Some(*member), number.map(|number| Order::new(number, now)));
            return Ok(true);
        }
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
