//! The sessions that wait to be handed over to a device.

use super::rows::Tag;
use std::collections::VecDeque;
use tegmen::address::Address;
use tegmen::dtls::Handle;
use tegmen_base::secret::Secret;
use tegmen_delegation::{Go, HandedOver, Request, STATE_LEN};
use zeroize::Zeroizing;

/// Sessions that wait for one device.
const MOST: usize = 64;

/// The peer at which a device opens a session.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) address: Address,
    /// The server_name (RFC 6066, section 3) with which the session was opened, or nothing.
    pub(super) server_name: Vec<u8>,
}

/// A session that waits. It is in memory alone: a server that restarts forgets it.
pub(super) struct Waiting {
    /// The epoch of the connection.
    pub(super) tag: Tag,
    pub(super) number: u32,
    /// The time from which the device refuses it, in seconds since 1970.
    pub(super) expires: u32,
    pub(super) state: Secret<STATE_LEN>,
    pub(super) is_ticket: bool,
    pub(super) handle: Zeroizing<Vec<u8>>,
    /// The peer, if the device opens the session.
    pub(super) peer: Option<Peer>,
}

impl Waiting {
    /// The request that gives the session to the device.
    pub(super) fn keep(&self) -> Request<'_> {
        let handle = if self.is_ticket { Handle::Ticket(&self.handle) } else { Handle::Id(&self.handle) };
        Request::Keep(HandedOver { state: self.state.expose(), handle, opens: self.peer.is_some() })
    }

    /// The request after it, by which the device opens the session.
    pub(super) fn go(&self) -> Option<Request<'_>> {
        let Peer { address, server_name } = self.peer.as_ref()?;
        Some(Request::Go { go: Go { number: self.number, peer: *address }, server_name })
    }
}

/// The sessions that wait for a device, the oldest first.
#[derive(Default)]
pub(super) struct Handovers(VecDeque<Waiting>);

impl Handovers {
    /// True if no further session can wait.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= MOST
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, waiting: Waiting) {
        self.0.push_back(waiting);
    }

    /// Takes the next session that is of this epoch and has not ended. The others are forgotten.
    pub(super) fn take(&mut self, tag: Option<Tag>, now: u64) -> Option<Waiting> {
        self.0.retain(|waiting| Some(waiting.tag) == tag && u64::from(waiting.expires) > now);
        self.0.pop_front()
    }

    /// Puts a session back that the device did not get.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.0.push_front(waiting);
    }

    /// Forgets the session of a connection.
    pub(super) fn forget(&mut self, number: u32) {
        self.0.retain(|waiting| waiting.number != number);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
