//! The sender of DTLS Mul-Uni (draft-keoh-dice-multicast-security): it opens a session with each listener, asks all with one request
//! under the keys of the group, and takes the response of each over its session.

use super::asking::{Heard, REQUEST_LEN, Requests};
use super::axiom_provisioned::{Provisioned, is_rekey_message};
use super::sessions::{OUT_LEN, Sessions, Taken};
use tegmen::address::Address;
use tegmen::dtls::ClientOnly;
use tegmen::time::Instant;
use tegmen_flash::Flash;

/// The sender, with space for the sessions with as many listeners.
pub struct MulUniSender<F, const LISTENERS: usize> {
    group: Provisioned<F, 0, 0>,
    sessions: Sessions<ClientOnly, LISTENERS>,
    /// Sessions outlive an epoch, whose numbers begin again, so requests have numbers of their own.
    requests: Requests,
}

impl<F: Flash, const LISTENERS: usize> MulUniSender<F, LISTENERS> {
    /// A sender without a session.
    pub const fn new(group: Provisioned<F, 0, 0>, sessions: Sessions<ClientOnly, LISTENERS>) -> Self {
        Self { group, sessions, requests: Requests::new(0) }
    }

    /// Opens a session with a listener. `None` if there is no space for it.
    pub fn connect(&mut self, now: Instant, listener: &Address) -> Option<()> {
        self.sessions.connect(now, listener)
    }

    /// True if there is a session with this listener.
    pub fn is_open(&self, listener: &Address) -> bool {
        self.sessions.is_open(listener)
    }

    /// Writes the request that switches all lamps, which goes to the address of the group once. `None` if no number is left, or `out`
    /// is full.
    pub fn request<'o>(&mut self, is_on: bool, out: &'o mut [u8; REQUEST_LEN]) -> Option<&'o [u8]> {
        let Self { group, requests, .. } = self;
        group.request(out, |_, frame| requests.write(is_on, frame)).map(|(_, request)| request)
    }

    /// Takes a datagram: a rekey message, or one of a listener. An answer is written into `out`, and goes back. Returns its length, and
    /// the response if it is one to the last request.
    pub fn take(
        &mut self,
        now: Instant,
        from: &Address,
        datagram: &mut [u8],
        out: &mut [u8; OUT_LEN],
    ) -> (usize, Option<Heard>) {
        if is_rekey_message(datagram) {
            let _ = self.group.rekey(datagram);
            // Without numbers the next request fails, and nothing else.
            let _ = self.group.reserve();
            return (0, None);
        }
        match self.sessions.take(now, from, datagram, out) {
            Taken::Message(content) => (0, self.requests.hear(content)),
            Taken::Answer(len) => (len, None),
        }
    }

    /// Writes the next datagram of a handshake that is due into `out`. Returns its receiver and its length.
    pub fn poll(&mut self, now: Instant, out: &mut [u8; OUT_LEN]) -> Option<(Address, usize)> {
        self.sessions.poll(now, out)
    }
}
