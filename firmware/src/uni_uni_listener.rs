//! A listener (a lamp) in a group with the scheme DTLS Uni-Uni: a sender sends its request to each listener over a
//! separate DTLS session. The listener sends its response over the same session.

use super::lamp::{Lamp, SENDERS, is_request};
use super::sessions::{AROUND, OUT_LEN, Sessions, Taken};
use tegmen::address::Address;
use tegmen::buf::Frame;
use tegmen::coap::handler::AnyAuthenticated;
use tegmen::coap::{MessageRef, Request};
use tegmen::dtls::ServerOnly;
use tegmen::identity::{Identity, Principal, Protection};
use tegmen::time::Instant;

/// A listener that receives requests, and sends responses, over DTLS sessions with the senders.
pub struct UniUniListener {
    sessions: Sessions<ServerOnly, SENDERS>,
    lamp: Lamp,
    message_id: u16,
}

impl UniUniListener {
    /// Creates a listener without a session, whose lamp is off.
    pub const fn new(sessions: Sessions<ServerOnly, SENDERS>) -> Self {
        Self { sessions, lamp: Lamp { is_on: false }, message_id: 0 }
    }

    /// Processes a datagram. Writes the answer for its sender into `out`. Returns the length of the answer, or 0 if
    /// there is none.
    pub fn take(&mut self, now: Instant, from: &Address, datagram: &mut [u8], out: &mut [u8; OUT_LEN]) -> usize {
        match self.sessions.take(now, from, datagram, out) {
            Taken::Message(content) => self.answer(now, from, content, out).unwrap_or(0),
            Taken::Answer(len) => len,
        }
    }

    /// Writes into `out` the next datagram that a handshake has to send now. Returns the address of its receiver, and
    /// its length.
    pub fn poll(&mut self, now: Instant, out: &mut [u8; OUT_LEN]) -> Option<(Address, usize)> {
        self.sessions.poll(now, out)
    }

    /// Returns true if the lamp is on.
    pub const fn is_on(&self) -> bool {
        self.lamp.is_on
    }

    fn answer(&mut self, now: Instant, from: &Address, content: &[u8], out: &mut [u8; OUT_LEN]) -> Option<usize> {
        let message = MessageRef::parse(content).ok()?;
        if !is_request(&message) {
            return None;
        }
        let identity = Identity { principal: THE_SENDER, protection: Protection::Dtls };
        let (before, behind) = AROUND;
        let mut frame = Frame::new(out.get_mut(..OUT_LEN - behind)?, before);
        self.lamp.respond(Request::new(message, identity), &AnyAuthenticated, self.message_id, &mut frame)?;
        self.message_id = self.message_id.wrapping_add(1);
        let (start, end) = frame.place();
        let mut frame = Frame::around(out, start, end);
        self.sessions.seal(now, from, &mut frame)?;
        Some(frame.len())
    }
}

const THE_SENDER: Principal = Principal(1);
