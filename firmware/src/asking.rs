//! A sender of a group of lamps, in each scheme: the request that switches the lamps, and the responses to it.

use tegmen::buf::Frame;
use tegmen::coap::{BuildError, Builder, Code, MessageRef, MessageType, OptionNumber};

/// The response of a listener to the last request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The listener has served the request with this code.
    Served(Code),
    /// The listener serves the request if it is sent again.
    Challenged,
}

impl Heard {
    /// Reads a response. A value that the listener wants to have repeated in the next request becomes the `challenge`.
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

/// Writes the request of this number: PUT /light.
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

/// True if a message is a response to the request of this number.
#[inline(always)]
pub fn answers(message: &MessageRef<'_>, asked: u64) -> bool {
    let is_response = message.message_type() == MessageType::NonConfirmable && message.code().is_response();
    is_response && message.token() == token(asked) && !message.options().any(|(number, _)| number.is_critical())
}

/// A key seals at most 2^23 records, so the tokens of all requests of an epoch differ in 3 bytes.
const fn token(number: u64) -> [u8; 3] {
    let [.., a, b, c] = number.to_be_bytes();
    [a, b, c]
}

/// The value of an Echo option.
pub type Challenge = [u8; 8];
/// Bytes of a request with its protection.
pub const REQUEST_LEN: usize = 80;
