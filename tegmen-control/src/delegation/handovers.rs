//! Sessions that wait to be sent to a device.

use super::rows::Tag;
use std::collections::VecDeque;
use tegmen::address::Address;
use tegmen::dtls::Handle;
use tegmen_base::secret::Secret;
use tegmen_delegation::{Go, HandedOver, Request, STATE_LEN};
use zeroize::Zeroizing;

/// Maximum number of sessions that wait for one device.
const MOST: usize = 64;

/// The peer at which a device opens a session.
#[derive(Clone)]
pub(super) struct Peer {
    pub(super) address: Address,
    /// The server_name (RFC 6066, section 3) of the session; empty if the session has no server_name.
    pub(super) server_name: Vec<u8>,
}

/// A session that waits to be sent to its device. It is only in memory, so a server that restarts loses it.
pub(super) struct Waiting {
    /// The tag of the connection's epoch.
    pub(super) tag: Tag,
    pub(super) number: u32,
    /// The time from which the device refuses the connection, in seconds since 1970.
    pub(super) expires: u32,
    pub(super) state: Secret<STATE_LEN>,
    pub(super) is_ticket: bool,
    pub(super) handle: Zeroizing<Vec<u8>>,
    /// The peer with which the device opens the session; `None` if the peer itself resumes the session.
    pub(super) peer: Option<Peer>,
}

impl Waiting {
    /// Returns the request that sends the session to the device.
    pub(super) fn keep(&self) -> Request<'_> {
        let handle = if self.is_ticket { Handle::Ticket(&self.handle) } else { Handle::Id(&self.handle) };
        Request::Keep(HandedOver { state: self.state.expose(), handle, opens: self.peer.is_some() })
    }

    /// Returns the request with which the server asks the device to open the session. This request follows the request
    /// of [`Self::keep`]. Returns `None` if the device does not open the session, because the peer resumes it.
    pub(super) fn go(&self) -> Option<Request<'_>> {
        let Peer { address, server_name } = self.peer.as_ref()?;
        Some(Request::Go { go: Go { number: self.number, peer: *address }, server_name })
    }
}

/// The sessions that wait for a device, the oldest first.
#[derive(Default)]
pub(super) struct Handovers(VecDeque<Waiting>);

impl Handovers {
    /// Returns true if no further session can wait.
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

    /// Drops the sessions of other epochs and the sessions that have expired. Then removes and returns the oldest
    /// remaining session.
    pub(super) fn take(&mut self, tag: Option<Tag>, now: u64) -> Option<Waiting> {
        self.0.retain(|waiting| Some(waiting.tag) == tag && u64::from(waiting.expires) > now);
        self.0.pop_front()
    }

    /// Puts a session back into the queue, because the device did not receive it.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.0.push_front(waiting);
    }

    /// Drops the session of a connection.
    pub(super) fn forget(&mut self, number: u32) {
        self.0.retain(|waiting| waiting.number != number);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
