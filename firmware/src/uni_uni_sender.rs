//! The sender in a group of lamps with the scheme DTLS Uni-Uni. It opens a session with each listener of the group, and
//! sends a request to each listener over the session with this listener.

use super::asking::{Heard, REQUEST_LEN, Round};
use super::sessions::{AROUND, OUT_LEN, Sessions, Taken};
use tegmen::address::Address;
use tegmen::buf::Frame;
use tegmen::dtls::ClientOnly;
use tegmen::time::Instant;

/// A sender that sends each request over the DTLS session with each listener. It has space for `LISTENERS` listeners.
pub struct UniUniSender<const LISTENERS: usize> {
    sessions: Sessions<ClientOnly, LISTENERS>,
    /// The listeners, and the index of the current listener.
    pub round: Round<LISTENERS>,
}

impl<const LISTENERS: usize> UniUniSender<LISTENERS> {
    /// Creates a sender without a session.
    pub const fn new(sessions: Sessions<ClientOnly, LISTENERS>, round: Round<LISTENERS>) -> Self {
        Self { sessions, round }
    }

    /// Opens a session with a listener. Returns `None` if there is no space for it.
    pub fn connect(&mut self, now: Instant, listener: &Address) -> Option<()> {
        self.sessions.connect(now, listener)
    }

    /// Returns true if there is a session with this listener.
    pub fn is_open(&self, listener: &Address) -> bool {
        self.sessions.is_open(listener)
    }

    /// Writes the request to the next listener into `out`. In a round, the sender sends one request to each listener,
    /// and waits for a response before it sends the next request. Returns the address of the listener, and the request.
    /// Returns `None` while the sender waits for a response, after the last listener of the round, or if there is no
    /// session with the listener.
    pub fn ask_next<'o>(&mut self, now: Instant, out: &'o mut [u8; REQUEST_LEN]) -> Option<(Address, &'o [u8])> {
        let to = self.round.next().filter(|to| self.sessions.is_open(to))?;
        let (before, behind) = AROUND;
        let mut frame = Frame::new(out.get_mut(..REQUEST_LEN - behind)?, before);
        self.round.write(&mut frame)?;
        let (start, end) = frame.place();
        let mut frame = Frame::around(out, start, end);
        self.sessions.seal(now, &to, &mut frame)?;
        Some((to, frame.finish()))
    }

    /// Processes a received DTLS datagram of a listener. If the listener needs a datagram in return, such as the next
    /// one of the handshake, writes this datagram into `out`. Returns the length of the datagram in `out`, and the
    /// listener's response if this sender waits for it.
    pub fn take(
        &mut self,
        now: Instant,
        from: &Address,
        datagram: &mut [u8],
        out: &mut [u8; OUT_LEN],
    ) -> (usize, Option<Heard>) {
        match self.sessions.take(now, from, datagram, out) {
            Taken::Message(content) => (0, self.round.hear(from, content)),
            Taken::Answer(len) => (len, None),
        }
    }

    /// Writes into `out` the next datagram that a handshake has to send now. Returns the address of its receiver, and
    /// its length.
    pub fn poll(&mut self, now: Instant, out: &mut [u8; OUT_LEN]) -> Option<(Address, usize)> {
        self.sessions.poll(now, out)
    }
}
