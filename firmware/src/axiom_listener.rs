//! A listener of a protected group (Axiom) that is provisioned with its keys: it answers requests to the group. It has no node:
//! nothing comes to it but requests to the group, each of which the record layer delivers once.

use super::Provider;
use super::axiom_provisioned::{Provisioned, is_rekey_message};
use tegmen::address::Address;
use tegmen::axiom::{Opened, Proof, Rekeyed, Unverified};
use tegmen::buf::Frame;
use tegmen::coap::handler::{AnyAuthenticated, Served, serve};
use tegmen::coap::{
    Authorized, Builder, Code, Handler, MessageRef, MessageType, NoResponse, OptionNumber, Request, Response,
};
use tegmen::crypto::Crypto as _;
use tegmen::cx::Discard;
use tegmen::dtls::Records;
use tegmen::identity::{Identity, Principal, Protection};
use tegmen::time::Instant;
use tegmen_flash::Flash;

/// The listener.
pub struct Listener<F> {
    /// The member.
    pub group: Provisioned<F, SENDERS, 0>,
    lamp: Lamp,
    /// The time before which the listener sends no challenge.
    challenges_from: Instant,
    /// A response with its protection.
    response: [u8; RESPONSE_LEN],
    waiting: Option<Waiting>,
}

/// The response waits until this time.
struct Waiting {
    until: Instant,
    to: Address,
    /// The first byte of the response, and that behind it.
    place: (usize, usize),
}

impl<F: Flash> Listener<F> {
    /// A listener whose lamp is off.
    pub const fn new(group: Provisioned<F, SENDERS, 0>) -> Self {
        let challenges_from = Instant::from_micros(0);
        Self { group, lamp: Lamp { is_on: false }, challenges_from, response: [0; RESPONSE_LEN], waiting: None }
    }

    /// Takes a datagram to the address of the group: a request, or a rekey message. While a response waits, requests are dropped.
    /// Returns true if a rekey message was missed.
    pub fn take(&mut self, now: Instant, from: &Address, datagram: &mut [u8]) -> bool {
        let mut rekeyed = None;
        if is_rekey_message(datagram) {
            rekeyed = self.group.rekey(datagram);
        } else if self.waiting.is_none() {
            // A request that is not answered changes nothing else.
            let _ = self.answer(now, from, datagram);
        }
        // Without numbers the next response is lost, and nothing else.
        let _ = self.group.reserve();
        rekeyed == Some(Rekeyed::Missed)
    }

    /// Returns the response whose time has come, and where it goes.
    pub fn poll(&mut self, now: Instant) -> Option<(Address, &[u8])> {
        let Waiting { to, place: (start, end), .. } = self.waiting.take_if(|waiting| waiting.until <= now)?;
        Some((to, self.response.get(start..end)?))
    }

    /// True if the lamp is on.
    pub const fn is_on(&self) -> bool {
        self.lamp.is_on
    }

    /// Opens a request, and makes the response to it (RFC 7252, section 8.2), which waits for a random time. Errors and empty
    /// messages are not sent, except the challenge of a request that may be a replay (RFC 9175). `None` if there is no response.
    fn answer(&mut self, now: Instant, from: &Address, datagram: &mut [u8]) -> Option<()> {
        let mut records = Records::new(datagram);
        let record = records.next_record()?.ok()?;
        let (sender, opened) = self.group.member.open_request(&mut self.group.crypto, record).ok()?;
        let (content, unverified) = match opened {
            Opened::Fresh(content) => (content, None),
            Opened::Unverified(content, unverified) => (content, Some(unverified)),
            // Only the controller can help, and it hears the same two members.
            Opened::Clash => return None,
        };
        let message = MessageRef::parse(content).ok()?;
        if message.message_type() != MessageType::NonConfirmable || !message.code().is_request() {
            return None;
        }
        let is_new = match (unverified, message.option(OptionNumber::ECHO)) {
            (None, _) => true,
            (Some(record), Some(echo)) => self.accept(record, echo)?,
            (Some(_), None) => false,
        };
        let (before, behind) = self.group.member.overhead();
        let mut frame = Frame::new(self.response.get_mut(..RESPONSE_LEN - behind)?, before);
        let message_id = self.group.next().1 as u16;
        if is_new {
            let identity = Identity { principal: THE_GROUP, protection: Protection::GroupRequest(sender) };
            let request = Request::new(message, identity);
            match serve(request, &AnyAuthenticated, &mut self.lamp, message_id, &mut frame) {
                Served::Responded { code, .. } if code.is_success() && !frame.is_empty() => {}
                _ => return None,
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
        let mut frame = Frame::around(&mut self.response, start, end);
        self.group.member.seal_response(&mut self.group.crypto, sender, &mut frame).ok()?;
        let mut random = [0; 1];
        self.group.crypto.random(&mut random);
        // A quarter of a second at most, as in the paper.
        let until = now.after_millis(random[0].into());
        self.waiting = Some(Waiting { until, to: *from, place: frame.place() });
        Some(())
    }

    /// Takes a request that repeats the challenge. Returns true if the request is new, and `None` if it is not delivered.
    #[inline(never)]
    fn accept(&mut self, record: Unverified, echo: &[u8]) -> Option<bool> {
        match self.group.member.accept::<Provider>(record, Proof::Echo(echo)) {
            Ok(()) => Some(true),
            Err(Discard::Unexpected) => Some(false),
            Err(Discard::NoRoom) => {
                // The states of members that have been silent since the last call are free then.
                self.group.member.forget_idle(&mut self.group.crypto);
                None
            }
            Err(_) => None,
        }
    }
}

/// The resource of the listener.
struct Lamp {
    is_on: bool,
}

impl Handler for Lamp {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let message = request.message();
        if !message.path_is("light") {
            return Err(Code::NOT_FOUND);
        }
        match (message.code(), message.payload()) {
            (Code::GET, _) => {}
            (Code::PUT, [state @ (b'0' | b'1')]) => {
                self.is_on = *state == b'1';
                response.set_code(Code::CHANGED);
            }
            (Code::PUT, _) => return Err(Code::BAD_REQUEST),
            _ => return Err(Code::METHOD_NOT_ALLOWED),
        }
        response.payload(&[b'0' + u8::from(self.is_on)])
    }
}

/// The senders whose numbers it knows.
pub const SENDERS: usize = 4;
const THE_GROUP: Principal = Principal(1);
/// Bytes of a response with its protection.
pub const RESPONSE_LEN: usize = 64;
/// Milliseconds between two challenges, as in `tegmen::node`.
const BETWEEN_CHALLENGES: u32 = 1000;
