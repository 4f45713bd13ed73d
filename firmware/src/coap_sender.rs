//! Senders for a group of lamps, without protection of the messages. CoAP Uni sends a request to each listener, and
//! CoAP Mul sends one request to all listeners.

use super::asking::{Heard, Listeners, REQUEST_LEN, Requests, Round};
use tegmen::address::Address;
use tegmen::buf::Frame;

/// Writes the request to the next listener of the round into `out`. In a round, each listener gets the request once.
/// Returns the receiver and the request.
pub fn ask_next<'o, const LISTENERS: usize>(
    round: &mut Round<LISTENERS>,
    out: &'o mut [u8; REQUEST_LEN],
) -> Option<(Address, &'o [u8])> {
    let to = round.next()?;
    let mut frame = Frame::new(out, 0);
    round.write(&mut frame)?;
    Some((to, frame.finish()))
}

/// A sender that sends each request once to all listeners, without protection (CoAP Mul).
pub struct MulSender<const LISTENERS: usize> {
    requests: Requests,
    /// The listeners from which a response has arrived, so that a repeated response counts once.
    heard: &'static mut Listeners<LISTENERS>,
}

impl<const LISTENERS: usize> MulSender<LISTENERS> {
    /// Creates a sender that has sent nothing. `requests` comes from [`Requests::new`].
    pub const fn new(requests: Requests, heard: &'static mut Listeners<LISTENERS>) -> Self {
        Self { requests, heard }
    }

    /// Writes the request that switches all lamps. Send it once, to the address of the group.
    pub fn request<'o>(&mut self, is_on: bool, out: &'o mut [u8; REQUEST_LEN]) -> Option<&'o [u8]> {
        let mut frame = Frame::new(out, 0);
        self.requests.write(is_on, &mut frame)?;
        self.heard.clear();
        Some(frame.finish())
    }

    /// Processes a datagram. Returns the response if it is the first response of this listener to the last request.
    pub fn take(&mut self, from: &Address, datagram: &[u8]) -> Option<Heard> {
        let heard = self.requests.hear(datagram)?;
        self.heard.add(from).map(|()| heard)
    }
}
