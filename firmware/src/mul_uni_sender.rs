//! The sender in a group of lamps with the scheme DTLS Mul-Uni (draft-keoh-dice-multicast-security). It opens a session
//! with each listener, sends one request to all listeners under the keys of the group, and receives the response of
//! each listener over the session with this listener.

use super::asking::{Heard, REQUEST_LEN, Requests};
use super::axiom_provisioned::{Provisioned, is_rekey_message};
use super::sessions::{OUT_LEN, Sessions, Taken};
use tegmen::address::Address;
use tegmen::dtls::ClientOnly;
use tegmen::time::Instant;
use tegmen_flash::Flash;

/// A sender that sends each request once to the group, and receives the responses over DTLS sessions. It has space for
/// sessions with `LISTENERS` listeners.
pub struct MulUniSender<F, const LISTENERS: usize> {
    group: Provisioned<F, 0, 0>,
    sessions: Sessions<ClientOnly, LISTENERS>,
    /// The requests, which have their own numbers. The token of a request is made from the number of the request, and
    /// not from its record number: record numbers begin again in each epoch, but the sessions with the listeners
    /// continue.
    requests: Requests,
}

impl<F: Flash, const LISTENERS: usize> MulUniSender<F, LISTENERS> {
    /// Creates a sender without a session.
    pub const fn new(group: Provisioned<F, 0, 0>, sessions: Sessions<ClientOnly, LISTENERS>) -> Self {
        Self { group, sessions, requests: Requests::new(0) }
    }

    /// Opens a session with a listener. Returns `None` if there is no space for it.
    pub fn connect(&mut self, now: Instant, listener: &Address) -> Option<()> {
        self.sessions.connect(now, listener)
    }

    /// Returns true if there is a session with this listener.
    pub fn is_open(&self, listener: &Address) -> bool {
        self.sessions.is_open(listener)
    }

    /// Writes the request that switches all lamps. Send it once, to the address of the group. Returns `None` if no
    /// record number is left in this epoch, if the flash memory does not work, or if the request does not fit `out`.
    pub fn request<'o>(&mut self, is_on: bool, out: &'o mut [u8; REQUEST_LEN]) -> Option<&'o [u8]> {
        let Self { group, requests, .. } = self;
        group.request(out, |_, frame| requests.write(is_on, frame)).map(|(_, request)| request)
    }

    /// Processes a received datagram: a rekey message, or a DTLS datagram of a listener. If the listener needs a
    /// datagram in return, such as the next one of the handshake, writes this datagram into `out`. Returns the length
    /// of the datagram in `out`, and the listener's response if it belongs to the last request.
    pub fn take(
        &mut self,
        now: Instant,
        from: &Address,
        datagram: &mut [u8],
        out: &mut [u8; OUT_LEN],
    ) -> (usize, Option<Heard>) {
        if is_rekey_message(datagram) {
            let _ = self.group.rekey(datagram);
            // If no record numbers can be reserved, only the next request fails.
            let _ = self.group.reserve();
            return (0, None);
        }
        match self.sessions.take(now, from, datagram, out) {
            Taken::Message(content) => (0, self.requests.hear(content)),
            Taken::Answer(len) => (len, None),
        }
    }

    /// Writes into `out` the next datagram that a handshake has to send now. Returns the address of its receiver, and
    /// its length.
    pub fn poll(&mut self, now: Instant, out: &mut [u8; OUT_LEN]) -> Option<(Address, usize)> {
        self.sessions.poll(now, out)
    }
}
