//! A listener in a protected group (Axiom). It is provisioned with its keys, and answers requests to the group. It has
//! no [`Node`](tegmen::node::Node): it receives only requests to the group, and the record layer delivers each request
//! once.

use super::Provider;
use super::axiom_provisioned::{Provisioned, is_rekey_message};
use super::lamp::{Lamp, RESPONSE_LEN, SENDERS, Waiting, is_request};
use tegmen::address::Address;
use tegmen::axiom::{Opened, Proof, Rekeyed, Unverified};
use tegmen::buf::Frame;
use tegmen::coap::handler::AnyAuthenticated;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, NoResponse, OptionNumber, Request};
use tegmen::crypto::Crypto as _;
use tegmen::cx::Discard;
use tegmen::dtls::Records;
use tegmen::identity::{Identity, Principal, Protection, SenderId};
use tegmen::time::Instant;
use tegmen_flash::Flash;

/// A listener (a lamp) that answers requests to the group. `R` protects its responses.
pub struct Listener<F, R = InGroup> {
    /// The group membership of the listener, with its keys.
    pub group: Provisioned<F, SENDERS, 0>,
    /// The value that protects the responses of this listener.
    pub responses: R,
    lamp: Lamp,
    /// The time before which the listener sends no challenge.
    challenges_from: Instant,
    waiting: Waiting,
}

/// Protects the responses of a listener, with the keys of the group or with DTLS sessions. The default methods use the
/// keys of the group.
pub trait Responses {
    /// Returns the numbers of bytes that a seal adds before and after the content.
    #[inline]
    fn overhead<F: Flash>(group: &Provisioned<F, SENDERS, 0>) -> (usize, usize) {
        group.member.overhead()
    }

    /// Returns the Message ID of a response.
    #[inline]
    fn message_id<F: Flash>(&mut self, group: &Provisioned<F, SENDERS, 0>) -> u16 {
        group.next().1 as u16
    }

    /// Seals a response in place. `to` is the address of the sender. Returns `None` if the response cannot be sealed.
    #[inline]
    fn seal<F: Flash>(
        &mut self,
        _now: Instant,
        group: &mut Provisioned<F, SENDERS, 0>,
        to: (&Address, SenderId),
        frame: &mut Frame<'_>,
    ) -> Option<()> {
        group.member.seal_response(&mut group.crypto, to.1, frame).ok()
    }

    /// Takes a clash: two members have used the SenderID `sender` in the epoch `epoch`. Only the controller can end a
    /// clash. A listener without a session with the controller reports none.
    #[inline]
    fn on_clash(&mut self, _epoch: u16, _sender: SenderId) {}
}

/// Protects responses with the keys of the group.
pub struct InGroup;

impl Responses for InGroup {}

impl<F: Flash> Listener<F> {
    /// Creates a listener whose lamp is off.
    pub const fn new(group: Provisioned<F, SENDERS, 0>) -> Self {
        Self::with_responses(group, InGroup)
    }
}

impl<F: Flash, R: Responses> Listener<F, R> {
    /// Creates a listener whose lamp is off. `responses` protects its responses.
    pub const fn with_responses(group: Provisioned<F, SENDERS, 0>, responses: R) -> Self {
        let (lamp, challenges_from) = (Lamp { is_on: false }, Instant::from_micros(0));
        Self { group, responses, lamp, challenges_from, waiting: Waiting::NONE }
    }

    /// Processes a datagram to the address of the group: a request, or a rekey message. Drops requests while a response
    /// waits to be sent. Returns true if the listener has missed a rekey message.
    pub fn take(&mut self, now: Instant, from: &Address, datagram: &mut [u8]) -> bool {
        let mut rekeyed = None;
        if is_rekey_message(datagram) {
            rekeyed = self.group.rekey(datagram);
        } else if self.waiting.is_free() {
            // If the request is not answered, no state changes, so the result is ignored.
            let _ = self.answer(now, from, datagram);
        }
        // If no record numbers can be reserved, only the next response is lost.
        let _ = self.group.reserve();
        rekeyed == Some(Rekeyed::Missed)
    }

    /// Returns the response that must be sent now, and the address of its receiver.
    pub fn poll(&mut self, now: Instant) -> Option<(Address, &[u8])> {
        self.waiting.poll(now)
    }

    /// Returns true if the lamp is on.
    pub const fn is_on(&self) -> bool {
        self.lamp.is_on
    }

    /// Opens a request, and makes a response, which then waits for a random time (RFC 7252, section 8.2). A response
    /// with an error code is not sent, except the challenge for a request that may be a replay (RFC 9175). Returns
    /// `None` if there is no response.
    #[inline(never)]
    fn answer(&mut self, now: Instant, from: &Address, datagram: &mut [u8]) -> Option<()> {
        let mut records = Records::new(datagram);
        let record = records.next_record()?.ok()?;
        let (sender, opened) = self.group.member.open_request(&mut self.group.crypto, record).ok()?;
        let (content, unverified) = match opened {
            Opened::Fresh(content) => (content, None),
            Opened::Unverified(content, unverified) => (content, Some(unverified)),
            Opened::Clash => {
                self.responses.on_clash(self.group.epoch(), sender);
                return None;
            }
        };
        let message = MessageRef::parse(content).ok()?;
        if !is_request(&message) {
            return None;
        }
        let is_new = match (unverified, message.option(OptionNumber::ECHO)) {
            (None, _) => true,
            (Some(record), Some(echo)) => self.accept(record, echo)?,
            (Some(_), None) => false,
        };
        let (before, behind) = R::overhead(&self.group);
        let mut frame = Frame::new(self.waiting.response.get_mut(..RESPONSE_LEN - behind)?, before);
        let message_id = self.responses.message_id(&self.group);
        if is_new {
            let identity = Identity { principal: THE_GROUP, protection: Protection::GroupRequest(sender) };
            let request = Request::new(message, identity);
            let code = self.lamp.respond(request, &AnyAuthenticated, message_id, &mut frame)?;
            if !code.is_success() {
                return None;
            }
        } else {
            if now < self.challenges_from || NoResponse::of(&message).suppresses(Code::UNAUTHORIZED) {
                return None;
            }
            self.challenges_from = now.after_millis(BETWEEN_CHALLENGES);
            let (kind, code) = (MessageType::NonConfirmable, Code::UNAUTHORIZED);
            let mut refusal = Builder::new(&mut frame, kind, code, message_id, message.token()).ok()?;
            refusal.option(OptionNumber::ECHO, self.group.member.challenge()).ok()?;
        }
        let (start, end) = frame.place();
        let mut frame = Frame::around(&mut self.waiting.response, start, end);
        self.responses.seal(now, &mut self.group, (from, sender), &mut frame)?;
        let place = frame.place();
        let mut random = [0; 1];
        self.group.crypto.random(&mut random);
        // The response is sent after a random time of at most 255 ms, as in the Axiom paper.
        self.waiting.put(now.after_millis(random[0].into()), from, place);
        Some(())
    }

    /// Processes a request that contains an Echo value. Returns true if the value is that of the challenge, so that the
    /// request is new. Returns false if the value is different, and `None` if the request must not be delivered.
    #[inline(never)]
    fn accept(&mut self, record: Unverified, echo: &[u8]) -> Option<bool> {
        match self.group.member.accept::<Provider>(record, Proof::Echo(echo)) {
            Ok(()) => Some(true),
            Err(Discard::Unexpected) => Some(false),
            Err(Discard::NoRoom) => {
                // `forget_idle` frees the states of members that have been silent since its last call.
                self.group.member.forget_idle(&mut self.group.crypto);
                None
            }
            Err(_) => None,
        }
    }
}

const THE_GROUP: Principal = Principal(1);
/// Minimum time between two challenges in milliseconds, as in `tegmen::node`.
const BETWEEN_CHALLENGES: u32 = 1000;
