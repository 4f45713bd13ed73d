//! Messages (RFC 7252, section 3): a view of a received one, and a builder for the next.

use super::code::Code;
use super::option::{self, OptionNumber, Options};
use crate::buf::{Frame, Full, Reader};

/// The type of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageType {
    /// Sent again until it is acknowledged.
    Confirmable,
    /// Sent once.
    NonConfirmable,
    /// Acknowledges a confirmable message, and may carry the response.
    Acknowledgement,
    /// The message could not be processed.
    Reset,
}

impl MessageType {
    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Confirmable,
            1 => Self::NonConfirmable,
            2 => Self::Acknowledgement,
            _ => Self::Reset,
        }
    }
}

/// Longest token in bytes.
pub const MAX_TOKEN: usize = 8;
/// Bytes before the token.
pub const HEADER_LEN: usize = 4;
const VERSION: u8 = 1;
const PAYLOAD_MARKER: u8 = 0xff;

/// The bytes by which a client knows the response to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Token {
    bytes: [u8; MAX_TOKEN],
    len: u8,
}

impl Token {
    /// The token of no bytes.
    pub(crate) const fn new_empty() -> Self {
        Self { bytes: [0; MAX_TOKEN], len: 0 }
    }

    /// A token of these bytes; what is past the eighth is cut.
    pub fn new(bytes: &[u8]) -> Self {
        let mut token = Self::default();
        for (to, from) in token.bytes.iter_mut().zip(bytes) {
            *to = *from;
            token.len = token.len.wrapping_add(1);
        }
        token
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or(&[])
    }
}

/// Why bytes are no CoAP message (RFC 7252, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// Fewer than four bytes, or another version: ignored in silence.
    NotCoap,
    /// A header that can be answered with Reset, and something wrong behind it.
    Message {
        /// The type in the header.
        message_type: MessageType,
        /// The Message ID in the header.
        message_id: u16,
    },
}

/// A received message. [`MessageRef::parse`] has walked it, so every accessor is total.
///
/// Options come in two runs, outer and inner, because an OSCORE message has both; a plain one has only the outer.
#[derive(Clone, Copy, Debug)]
pub struct MessageRef<'a> {
    message_type: MessageType,
    code: Code,
    message_id: u16,
    token: &'a [u8],
    outer: &'a [u8],
    inner: &'a [u8],
    payload: &'a [u8],
}

impl<'a> MessageRef<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`Malformed`], which says whether a Reset is due.
    pub fn parse(datagram: &'a [u8]) -> Result<Self, Malformed> {
        let (&[first, code, id0, id1], rest) = datagram.split_first_chunk::<HEADER_LEN>().ok_or(Malformed::NotCoap)?;
        if first >> 6 != VERSION {
            return Err(Malformed::NotCoap);
        }
        let message_type = MessageType::from_bits(first >> 4);
        let message_id = u16::from_be_bytes([id0, id1]);
        let malformed = Malformed::Message { message_type, message_id };
        let token_len = usize::from(first & 15);
        let code = Code(code);
        if token_len > MAX_TOKEN {
            return Err(malformed);
        }
        let (token, rest) = rest.split_at_checked(token_len).ok_or(malformed)?;
        if code == Code::EMPTY && datagram.len() > HEADER_LEN {
            return Err(malformed);
        }
        let (outer, payload) = split_payload(rest).ok_or(malformed)?;
        Ok(Self { message_type, code, message_id, token, outer, inner: &[], payload })
    }

    /// The message that an OSCORE message protects: the header and outer options of this one, the code, options and
    /// payload of the decrypted `plaintext` (RFC 8613, section 5.3).
    ///
    /// # Errors
    /// [`Malformed`] if the plaintext does not parse.
    pub fn with_plaintext(self, plaintext: &'a [u8]) -> Result<Self, Malformed> {
        let malformed = Malformed::Message { message_type: self.message_type, message_id: self.message_id };
        let (&code, rest) = plaintext.split_first().ok_or(malformed)?;
        let (inner, payload) = split_payload(rest).ok_or(malformed)?;
        Ok(Self { code: Code(code), inner, payload, ..self })
    }

    /// Type.
    pub const fn message_type(&self) -> MessageType {
        self.message_type
    }

    /// Method or response code.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Message ID.
    pub const fn message_id(&self) -> u16 {
        self.message_id
    }

    /// Token.
    pub const fn token(&self) -> &'a [u8] {
        self.token
    }

    /// Payload; empty if there is none.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// All options in order.
    pub fn options(&self) -> Options<'a> {
        Options::new(self.outer, self.inner)
    }

    /// The first option of this number.
    pub fn option(&self, number: OptionNumber) -> Option<&'a [u8]> {
        self.options().find(|(n, _)| *n == number).map(|(_, value)| value)
    }

    /// The values of all options of this number.
    pub fn values(&self, number: OptionNumber) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.options().filter(move |(n, _)| *n == number).map(|(_, value)| value)
    }

    /// True if the path is `path`, whose segments are separated by slashes, without one in front.
    pub fn path_is(&self, path: &str) -> bool {
        let mut segments = self.values(OptionNumber::URI_PATH);
        if path.is_empty() {
            return segments.next().is_none();
        }
        path.split('/').all(|segment| segments.next() == Some(segment.as_bytes())) && segments.next().is_none()
    }

    /// The number of an option of format `uint`, if it is there.
    pub fn uint(&self, number: OptionNumber) -> Option<u32> {
        self.option(number).and_then(option::uint)
    }

    /// The first critical option that is not in `known` (RFC 7252, section 5.4.1).
    pub fn unknown_critical(&self, known: &[OptionNumber]) -> Option<OptionNumber> {
        self.options().map(|(number, _)| number).find(|number| number.is_critical() && !known.contains(number))
    }
}

/// Walks the options; what they take, and the payload behind them. A marker without payload is an error.
fn split_payload(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut reader = Reader::new(bytes);
    let mut number = 0;
    loop {
        match reader.rest() {
            [] => return Some((bytes, &[])),
            [PAYLOAD_MARKER] => return None,
            [PAYLOAD_MARKER, payload @ ..] => {
                let options = bytes.len().checked_sub(payload.len())?.checked_sub(1)?;
                return Some((bytes.get(..options)?, payload));
            }
            _ => number = option::read(&mut reader, number).ok()?.0.0,
        }
    }
}

/// The header of a message without options and payload: an empty acknowledgement or a Reset, complete.
pub fn empty(message_type: MessageType, message_id: u16) -> [u8; HEADER_LEN] {
    header(message_type, 0, Code::EMPTY, message_id)
}

fn header(message_type: MessageType, token_len: u8, code: Code, message_id: u16) -> [u8; HEADER_LEN] {
    let [id0, id1] = message_id.to_be_bytes();
    [VERSION << 6 | (message_type as u8) << 4 | token_len, code.0, id0, id1]
}

/// Why a message could not be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildError {
    /// The frame is full.
    Full,
    /// An option has a lower number than the one before, or comes behind the payload.
    Order,
}

impl From<Full> for BuildError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// Writes a message into a frame, in the order of the wire: options by rising number, then the payload.
pub struct Builder<'f, 't> {
    frame: &'f mut Frame<'t>,
    /// Where the message begins in the frame.
    start: usize,
    last: u16,
    has_payload: bool,
}

impl<'f, 't> Builder<'f, 't> {
    /// Begins a message.
    ///
    /// # Errors
    /// [`BuildError::Full`].
    pub fn new(
        frame: &'f mut Frame<'t>,
        message_type: MessageType,
        code: Code,
        message_id: u16,
        token: &[u8],
    ) -> Result<Self, BuildError> {
        let start = frame.len();
        let token_len = (token.len().min(MAX_TOKEN)) as u8;
        frame.append(&header(message_type, token_len, code, message_id))?;
        frame.append(token.get(..token_len.into()).unwrap_or(&[]))?;
        Ok(Self { frame, start, last: 0, has_payload: false })
    }

    /// Sets the code that the message goes out with.
    pub fn set_code(&mut self, code: Code) {
        if let Some(byte) = self.frame.bytes_mut().get_mut(self.start.wrapping_add(1)) {
            *byte = code.0;
        }
    }

    /// Adds an option.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn option(&mut self, number: OptionNumber, value: &[u8]) -> Result<(), BuildError> {
        if self.has_payload {
            return Err(BuildError::Order);
        }
        let delta = number.0.checked_sub(self.last).ok_or(BuildError::Order)?;
        self.frame.append_with(|writer| option::write(writer, delta, value))?;
        self.last = number.0;
        Ok(())
    }

    /// Adds an option of format `uint`.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn uint(&mut self, number: OptionNumber, value: u32) -> Result<(), BuildError> {
        let mut bytes = [0; 4];
        self.option(number, option::uint_bytes(value, &mut bytes))
    }

    /// Adds one Uri-Path option for each segment of `path`, which are separated by slashes, without one in front.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn path(&mut self, path: &str) -> Result<(), BuildError> {
        for segment in path.split('/').filter(|segment| !segment.is_empty()) {
            self.option(OptionNumber::URI_PATH, segment.as_bytes())?;
        }
        Ok(())
    }

    /// Adds to the payload; the first call puts the marker before it. Nothing is added for no bytes.
    ///
    /// # Errors
    /// [`BuildError::Full`].
    pub fn payload(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.has_payload {
            self.frame.append(&[PAYLOAD_MARKER])?;
            self.has_payload = true;
        }
        Ok(self.frame.append(bytes)?)
    }

    /// Bytes that still fit, the payload marker not counted.
    pub fn room(&self) -> usize {
        self.frame.room()
    }

    /// Forgets options and payload, so that another response can be written.
    pub fn restart(&mut self, token_len: usize) {
        self.frame.truncate(self.start.wrapping_add(HEADER_LEN).wrapping_add(token_len));
        (self.last, self.has_payload) = (0, false);
    }
}
