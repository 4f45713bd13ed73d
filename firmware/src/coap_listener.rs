//! A listener in a group of lamps, for messages without protection (CoAP Uni and CoAP Mul). It answers requests to its
//! own address immediately, and requests to the group within the leisure.

use super::lamp::{Lamp, SENDERS, Waiting, is_request};
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::coap::handler::Anybody;
use tegmen::coap::{Exchanges, Fixed, Received, Repeat, Request};
use tegmen::identity::{Identity, Principal, Protection};
use tegmen::time::Instant;

/// A listener (a lamp) that receives requests without protection (CoAP Uni and CoAP Mul).
pub struct CoapListener {
    senders: [Sender; SENDERS],
    /// The index at which the next unknown sender is stored.
    next: usize,
    lamp: Lamp,
    message_id: u16,
    waiting: Waiting,
}

/// A sender, with the Message IDs of its last requests. So the listener serves no request of this sender twice.
struct Sender {
    address: Address,
    exchanges: Exchanges<Storage>,
}

impl CoapListener {
    /// Creates a listener whose lamp is off. `message_id` is the Message ID of its first response. Choose it at random.
    pub fn new(message_id: u16) -> Self {
        let address = Address { ip: [0; 16], port: 0, scope: 0 };
        let senders = [(); SENDERS].map(|()| Sender { address, exchanges: Exchanges::default() });
        Self { senders, next: 0, lamp: Lamp { is_on: false }, message_id, waiting: Waiting::NONE }
    }

    /// Processes a datagram that arrived over `path`. Drops requests while a response waits to be sent. A request to
    /// the group is answered after a time that `random` selects within the leisure.
    pub fn take(&mut self, now: Instant, path: &Path, datagram: &[u8], random: u8) {
        if self.waiting.is_free() {
            // If the request is not answered, no state changes, so the result is ignored.
            let _ = self.answer(now, path, datagram, random);
        }
    }

    /// Returns the response that must be sent now, and the address of its receiver.
    pub fn poll(&mut self, now: Instant) -> Option<(Address, &[u8])> {
        self.waiting.poll(now)
    }

    /// Returns true if the lamp is on.
    pub const fn is_on(&self) -> bool {
        self.lamp.is_on
    }

    fn answer(&mut self, now: Instant, path: &Path, datagram: &[u8], random: u8) -> Option<()> {
        let place = self.place_of(&path.remote);
        let exchanges = &mut self.senders.get_mut(place)?.exchanges;
        let Received::Request(message, key) = exchanges.receive(&mut Fixed, now, datagram) else { return None };
        if !is_request(&message) {
            return None;
        }
        exchanges.keep_reply(&mut Fixed, now, key, Repeat::of(message.code()), &[]);
        let identity = Identity { principal: Principal::NOBODY, protection: Protection::Plain };
        let mut frame = Frame::new(&mut self.waiting.response, 0);
        let code = self.lamp.respond(Request::new(message, identity), &Anybody, self.message_id, &mut frame)?;
        self.message_id = self.message_id.wrapping_add(1);
        let is_to_group = path.local.ip.starts_with(&[0xff]);
        // A request to the group gets no error (RFC 7252, section 8.2).
        if is_to_group && !code.is_success() {
            return None;
        }
        let (place, leisure) = (frame.place(), if is_to_group { random } else { 0 });
        // The response is sent after a random time of at most 255 ms, as in the Axiom paper.
        self.waiting.put(now.after_millis(leisure.into()), &path.remote, place);
        Some(())
    }

    /// Returns the index of a sender. An unknown sender replaces the sender that was stored first.
    fn place_of(&mut self, address: &Address) -> usize {
        if let Some(known) = self.senders.iter().position(|sender| sender.address == *address) {
            return known;
        }
        let place = self.next;
        if let Some(sender) = self.senders.get_mut(place) {
            *sender = Sender { address: *address, exchanges: Exchanges::default() };
        }
        self.next = (place + 1) % SENDERS;
        place
    }
}

/// Space for the Message IDs of the last four requests of a sender. No reply is stored, because the listener drops a
/// repeated request.
type Storage = Fixed<0, 0, 4, 1>;
