//! A listener (a lamp) in a group with the scheme DTLS Mul-Uni (draft-keoh-dice-multicast-security): a sender sends one
//! request to all listeners under the keys of the group. The listener is the listener of Axiom (`axiom_listener.rs`),
//! but it sends its responses over the DTLS session with the sender.

use super::axiom_listener::{Listener, Responses};
use super::axiom_provisioned::Provisioned;
use super::lamp::SENDERS;
use super::sessions::{AROUND, OUT_LEN, Sessions, Taken};
use tegmen::address::Address;
use tegmen::buf::Frame;
use tegmen::dtls::ServerOnly;
use tegmen::identity::SenderId;
use tegmen::time::Instant;
use tegmen_flash::Flash;

/// Protects responses with the DTLS sessions of their receivers.
pub struct OverSessions {
    sessions: Sessions<ServerOnly, SENDERS>,
    message_id: u16,
}

impl OverSessions {
    /// Creates the state of a listener that has sent no response yet. `sessions` are the DTLS sessions with its
    /// senders.
    pub const fn new(sessions: Sessions<ServerOnly, SENDERS>) -> Self {
        Self { sessions, message_id: 0 }
    }
}

impl Responses for OverSessions {
    #[inline]
    fn overhead<F: Flash>(_: &Provisioned<F, SENDERS, 0>) -> (usize, usize) {
        AROUND
    }

    #[inline]
    fn message_id<F: Flash>(&mut self, _: &Provisioned<F, SENDERS, 0>) -> u16 {
        let id = self.message_id;
        self.message_id = id.wrapping_add(1);
        id
    }

    #[inline]
    fn seal<F: Flash>(
        &mut self,
        now: Instant,
        _: &mut Provisioned<F, SENDERS, 0>,
        (to, _): (&Address, SenderId),
        frame: &mut Frame<'_>,
    ) -> Option<()> {
        self.sessions.seal(now, to, frame)
    }
}

impl<F: Flash> Listener<F, OverSessions> {
    /// Processes a datagram of a handshake, which is sent to the address of the listener. Writes into `out` the answer
    /// to the datagram. Returns the length of the answer, or 0 if there is none.
    pub fn take_own(&mut self, now: Instant, from: &Address, datagram: &mut [u8], out: &mut [u8; OUT_LEN]) -> usize {
        match self.responses.sessions.take(now, from, datagram, out) {
            // Requests are sent to the address of the group.
            Taken::Message(_) => 0,
            Taken::Answer(len) => len,
        }
    }

    /// Writes into `out` the next datagram that a handshake has to send now. Returns the address of its receiver, and
    /// its length.
    pub fn poll_own(&mut self, now: Instant, out: &mut [u8; OUT_LEN]) -> Option<(Address, usize)> {
        self.responses.sessions.poll(now, out)
    }
}
