//! A sender of a protected group (Axiom) that is provisioned with its keys: it switches the lamps of all listeners with one request
//! to the group, and takes the response of each listener. It has no node.

use super::Provider;
use super::axiom_provisioned::{Provisioned, is_rekey_message};
use tegmen::address::Address;
use tegmen::axiom::{Opened, Proof, Rekeyed};
use tegmen::buf::Frame;
use tegmen::coap::{BuildError, Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen::cx::Discard;
use tegmen::dtls::Records;
use tegmen_flash::Flash;

/// The sender, with space for the states of as many listeners.
pub struct Sender<F, const LISTENERS: usize> {
    group: Provisioned<F, 0, LISTENERS>,
    /// The number of the last request, if it is of this epoch. It is the token, too: no other request has it.
    asked: Option<u64>,
    /// The value that a listener wants to have repeated in the next request.
    challenge: Option<[u8; CHALLENGE_LEN]>,
}

/// The response of a listener to the last request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The listener has served the request with this code.
    Served(Code),
    /// The listener serves the request if it is [sent](Sender::request) again.
    Challenged,
}

impl<F: Flash, const LISTENERS: usize> Sender<F, LISTENERS> {
    /// A sender that has sent nothing.
    pub const fn new(group: Provisioned<F, 0, LISTENERS>) -> Self {
        Self { group, asked: None, challenge: None }
    }

    /// Writes the request that switches all lamps, which goes to the address of the group once. `None` if no number is left, or `out`
    /// is full.
    pub fn request<'o>(&mut self, is_on: bool, out: &'o mut [u8; REQUEST_LEN]) -> Option<&'o [u8]> {
        self.group.reserve()?;
        let (number, _) = self.group.next();
        let (before, behind) = self.group.member.overhead();
        let mut frame = Frame::new(out.get_mut(..REQUEST_LEN - behind)?, before);
        write(number, is_on, self.challenge.take(), &mut frame).ok()?;
        let (start, end) = frame.place();
        let mut frame = Frame::around(out, start, end);
        self.asked = self.group.member.seal_request(&mut self.group.crypto, &mut frame).ok();
        let (start, end) = frame.place();
        self.asked.and_then(|_| out.get(start..end))
    }

    /// Takes a datagram: a rekey message, or a response. Returns the response if it is one to the last request.
    pub fn take(&mut self, from: &Address, datagram: &mut [u8]) -> Option<Heard> {
        if !is_rekey_message(datagram) {
            return self.hear(from, datagram);
        }
        if self.group.rekey(datagram) == Some(Rekeyed::Epoch) {
            (self.asked, self.challenge) = (None, None);
        }
        // Without numbers the next request fails, and nothing else.
        let _ = self.group.reserve();
        None
    }

    fn hear(&mut self, from: &Address, datagram: &mut [u8]) -> Option<Heard> {
        let mut records = Records::new(datagram);
        let record = records.next_record()?.ok()?;
        let (content, unverified) = match self.group.member.open_response(&mut self.group.crypto, from, record).ok()? {
            Opened::Fresh(content) => (content, None),
            Opened::Unverified(content, unverified) => (content, Some(unverified)),
            // Only the controller can help, and it hears the same two members.
            Opened::Clash => return None,
        };
        let message = MessageRef::parse(content).ok()?;
        let asked = self.asked?;
        let is_response = message.message_type() == MessageType::NonConfirmable && message.code().is_response();
        let is_critical = message.options().any(|(number, _)| number.is_critical());
        if !is_response || is_critical || message.token() != token(asked) {
            return None;
        }
        if let Some(unverified) = unverified {
            let accepted = self.group.member.accept::<Provider>(unverified, Proof::AnswerTo(asked));
            if accepted == Err(Discard::NoRoom) {
                // The states of listeners that have been silent since the last call are free then.
                self.group.member.forget_idle(&mut self.group.crypto);
            }
            accepted.ok()?;
        }
        let echo = message.option(OptionNumber::ECHO).and_then(|echo| echo.try_into().ok());
        match (message.code(), echo) {
            (Code::UNAUTHORIZED, Some(echo)) => {
                self.challenge = Some(echo);
                Some(Heard::Challenged)
            }
            (code, _) => Some(Heard::Served(code)),
        }
    }
}

/// PUT /light.
fn write(
    number: u64,
    is_on: bool,
    challenge: Option<[u8; CHALLENGE_LEN]>,
    frame: &mut Frame<'_>,
) -> Result<(), BuildError> {
    let kind = MessageType::NonConfirmable;
    let mut message = Builder::new(frame, kind, Code::PUT, number as u16, &token(number))?;
    message.path("light")?;
    if let Some(challenge) = challenge {
        message.option(OptionNumber::ECHO, &challenge)?;
    }
    message.payload(&[b'0' + u8::from(is_on)])
}

/// A key seals at most 2^23 records, so the tokens of all requests of an epoch differ in 3 bytes.
const fn token(number: u64) -> [u8; 3] {
    let [.., a, b, c] = number.to_be_bytes();
    [a, b, c]
}

/// Bytes of a request with its protection.
pub const REQUEST_LEN: usize = 80;
const CHALLENGE_LEN: usize = 8;
