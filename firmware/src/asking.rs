//! The requests of a sender that switches the lamps of a group, and the responses to them. The images of all five
//! schemes (ways to protect the requests and responses, see README.md) share this code.

use tegmen::address::Address;
use tegmen::buf::Frame;
use tegmen::coap::{BuildError, Builder, Code, MessageRef, MessageType, OptionNumber};

/// The response of a listener to the last request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The listener has served the request. The value is the code of its response.
    Served(Code),
    /// The listener requires the same request again, with the Echo option of the listener's response.
    Challenged,
}

impl Heard {
    /// Reads a response. If the response contains an Echo option, its value becomes the `challenge`, which the next
    /// request must repeat.
    #[inline(always)]
    pub fn of(response: &MessageRef<'_>, challenge: &mut Option<Challenge>) -> Self {
        let echo = response.option(OptionNumber::ECHO).and_then(|echo| echo.try_into().ok());
        match (response.code(), echo) {
            (Code::UNAUTHORIZED, Some(echo)) => {
                *challenge = Some(echo);
                Self::Challenged
            }
            (code, _) => Self::Served(code),
        }
    }
}

/// Writes the request with this number: PUT /light. The number is the record number, or a number that [`Requests`]
/// gives to the request. The token of the request is made from it.
///
/// # Errors
/// [`BuildError`] if the frame has no space.
pub fn write(number: u64, is_on: bool, challenge: Option<Challenge>, frame: &mut Frame<'_>) -> Result<(), BuildError> {
    let kind = MessageType::NonConfirmable;
    let mut message = Builder::new(frame, kind, Code::PUT, number as u16, &token(number))?;
    message.path("light")?;
    if let Some(challenge) = challenge {
        message.option(OptionNumber::ECHO, &challenge)?;
    }
    message.payload(&[b'0' + u8::from(is_on)])
}

/// Returns true if a message is a response to the request with the number `asked`: its token is made from this number.
#[inline(always)]
pub fn answers(message: &MessageRef<'_>, asked: u64) -> bool {
    let is_response = message.message_type() == MessageType::NonConfirmable && message.code().is_response();
    is_response && message.token() == token(asked) && !message.options().any(|(number, _)| number.is_critical())
}

/// Returns the token of a request: the lowest 3 bytes of its number. The tokens of all requests of an epoch differ,
/// because a key seals at most 2^23 records.
const fn token(number: u64) -> [u8; 3] {
    let [.., a, b, c] = number.to_be_bytes();
    [a, b, c]
}

/// The requests of a sender that gives its requests numbers of their own, and does not use record numbers as their
/// numbers.
pub struct Requests {
    next: u64,
    /// The number of the last request, or `None` if no response is expected.
    asked: Option<u64>,
    challenge: Option<Challenge>,
}

impl Requests {
    /// Creates the state of a sender that has sent no request yet. `first` is the number of the first request. The Token
    /// of a request is made from its number. If the requests are not protected, choose `first` at random, so that an
    /// attacker cannot guess the Token (RFC 7252, section 5.3.1).
    pub const fn new(first: u64) -> Self {
        Self { next: first, asked: None, challenge: None }
    }

    /// Writes a request, which becomes the last request. Returns `None` if the frame has no space.
    pub fn write(&mut self, is_on: bool, frame: &mut Frame<'_>) -> Option<()> {
        write(self.next, is_on, self.challenge.take(), frame).ok()?;
        self.asked = Some(self.next);
        self.next = self.next.wrapping_add(1);
        Some(())
    }

    /// Processes a message of a listener. Returns the response if it belongs to the last request.
    pub fn hear(&mut self, content: &[u8]) -> Option<Heard> {
        let message = MessageRef::parse(content).ok()?;
        let is_answer = answers(&message, self.asked?);
        is_answer.then(|| Heard::of(&message, &mut self.challenge))
    }
}

/// A list of the addresses of listeners.
pub struct Listeners<const LISTENERS: usize> {
    addresses: [Address; LISTENERS],
    len: usize,
}

impl<const LISTENERS: usize> Listeners<LISTENERS> {
    /// An empty list. All its bytes are zero.
    pub const NONE: Self = Self { addresses: [Address { ip: [0; 16], port: 0, scope: 0 }; LISTENERS], len: 0 };

    /// Adds an address. Returns `None` if the list already contains it, or is full.
    pub fn add(&mut self, listener: &Address) -> Option<()> {
        if self.addresses.iter().take(self.len).any(|known| known == listener) {
            return None;
        }
        *self.addresses.get_mut(self.len)? = *listener;
        self.len += 1;
        Some(())
    }

    /// Removes all addresses.
    pub const fn clear(&mut self) {
        self.len = 0;
    }
}

/// A round of requests, one to each listener. The sender waits for a response before it sends the next request.
pub struct Round<const LISTENERS: usize> {
    /// The listeners, in the order in which they get requests. This is a reference, so that a list of hundreds of
    /// addresses is not moved.
    listeners: &'static mut Listeners<LISTENERS>,
    requests: Requests,
    is_on: bool,
    /// The index of the listener to which the current request is sent.
    place: usize,
}

impl<const LISTENERS: usize> Round<LISTENERS> {
    /// Creates the state before the first round. `requests` comes from [`Requests::new`].
    pub const fn new(listeners: &'static mut Listeners<LISTENERS>, requests: Requests) -> Self {
        Self { listeners, requests, is_on: false, place: usize::MAX }
    }

    /// Adds a listener. Returns `None` if the list already contains it, or is full.
    pub fn add(&mut self, listener: &Address) -> Option<()> {
        self.listeners.add(listener)
    }

    /// Begins a round of requests, which switches all lamps on or off.
    pub const fn begin(&mut self, is_on: bool) {
        (self.is_on, self.place, self.requests.asked) = (is_on, 0, None);
    }

    /// Stops waiting for the response of the current listener, and continues with the next listener.
    pub const fn skip(&mut self) {
        (self.place, self.requests.asked) = (self.place.saturating_add(1), None);
    }

    /// Returns the listener that gets the next request. Returns `None` while the sender waits for a response, and after
    /// the last listener.
    pub fn next(&self) -> Option<Address> {
        if self.requests.asked.is_some() { None } else { self.turn() }
    }

    fn turn(&self) -> Option<Address> {
        self.listeners.addresses.get(..self.listeners.len)?.get(self.place).copied()
    }

    /// Writes the request to the [next](Self::next) listener.
    pub fn write(&mut self, frame: &mut Frame<'_>) -> Option<()> {
        self.requests.write(self.is_on, frame)
    }

    /// Processes a message of a listener. Returns the response if the sender waits for this response.
    pub fn hear(&mut self, from: &Address, content: &[u8]) -> Option<Heard> {
        if self.turn() != Some(*from) {
            return None;
        }
        let heard = self.requests.hear(content)?;
        match heard {
            Heard::Served(_) => self.skip(),
            Heard::Challenged => self.requests.asked = None,
        }
        Some(heard)
    }
}

/// The value of an Echo option.
pub type Challenge = [u8; 8];
/// Maximum length of a request with its protection, in bytes.
pub const REQUEST_LEN: usize = 80;
