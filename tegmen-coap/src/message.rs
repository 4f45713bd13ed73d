//! Messages (RFC 7252, section 3): a view of a received message, and a builder for a new one.

use super::code::Code;
use super::option::{self, OptionNumber, Options};
use tegmen_base::buf::{Frame, Full, Reader, Writer};

/// The type of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageType {
    /// The message is retransmitted until it is acknowledged.
    Confirmable,
    /// The message is sent once.
    NonConfirmable,
    /// The message acknowledges a confirmable message, and may contain the response.
    Acknowledgement,
    /// The sender of this Reset could not process a message that it received.
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

/// Length of the longest token in bytes.
pub const MAX_TOKEN: usize = 8;
/// Number of bytes before the token.
pub const HEADER_LEN: usize = 4;
const VERSION: u8 = 1;
const PAYLOAD_MARKER: u8 = 0xff;

/// The bytes by which a client assigns a response to its request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Token {
    bytes: [u8; MAX_TOKEN],
    len: u8,
}

impl Token {
    /// Makes the token without bytes.
    pub const fn new_empty() -> Self {
        Self { bytes: [0; MAX_TOKEN], len: 0 }
    }

    /// Makes a token of these bytes. Bytes after the eighth are left out.
    pub fn new(bytes: &[u8]) -> Self {
        let mut token = Self::default();
        for (to, from) in token.bytes.iter_mut().zip(bytes) {
            *to = *from;
            token.len = token.len.wrapping_add(1);
        }
        token
    }

    /// Returns the bytes of the token.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or(&[])
    }
}

/// The reason why bytes are not a CoAP message (RFC 7252, section 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// The datagram has fewer than four bytes, or its version is not 1. It is ignored without an answer.
    NotCoap,
    /// The type and the Message ID are known, so the message can be answered with Reset. The error is in the token, in
    /// the options or in the payload. It may also be in the options or the payload of the plaintext that OSCORE
    /// decrypted.
    Message {
        /// The type in the header.
        message_type: MessageType,
        /// The Message ID in the header.
        message_id: u16,
    },
}

/// A received message. [`MessageRef::parse`] has checked it, so no accessor can fail.
///
/// The options are in two parts, outer and inner, because an OSCORE message has both. An unprotected message has only
/// outer options.
#[derive(Clone, Copy, Debug)]
pub struct MessageRef<'a> {
    message_type: MessageType,
    code: Code,
    message_id: u16,
    token: &'a [u8],
    outer: &'a [u8],
    inner: &'a [u8],
    payload: &'a [u8],
    /// True if the payload is the whole body of a block-wise transfer.
    assembled: bool,
    /// A set of 32 bits. Bit `i` is set if the message has an option whose number modulo 32 is `i`. If the bit for a
    /// number is not set, the message has no option with this number, so no search is necessary.
    present: u32,
}

impl<'a> MessageRef<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`Malformed::NotCoap`] if the datagram must be ignored. [`Malformed::Message`] if it can be answered
    /// with Reset.
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
        let (outer, payload, present) = split_payload(rest).ok_or(malformed)?;
        Ok(Self { message_type, code, message_id, token, outer, inner: &[], payload, assembled: false, present })
    }

    /// Returns the message that an OSCORE message protects. It has the header and outer options of this message, and
    /// the code, options and payload of the decrypted `plaintext` (RFC 8613, section 5.3).
    ///
    /// # Errors
    /// [`Malformed`] if the plaintext does not parse.
    pub fn with_plaintext(mut self, plaintext: &'a [u8]) -> Result<Self, Malformed> {
        self.enclose(plaintext).map(|()| self)
    }

    /// Adds the decrypted `plaintext` to this message, with the same result as [`Self::with_plaintext`].
    #[inline]
    pub fn enclose(&mut self, plaintext: &'a [u8]) -> Result<(), Malformed> {
        let malformed = Malformed::Message { message_type: self.message_type, message_id: self.message_id };
        let (&code, rest) = plaintext.split_first().ok_or(malformed)?;
        let (inner, payload, present) = split_payload(rest).ok_or(malformed)?;
        (self.code, self.inner, self.payload) = (Code(code), inner, payload);
        self.present |= present;
        Ok(())
    }

    /// Writes the message again. If OSCORE protected the message, the written message has no protection.
    ///
    /// # Errors
    /// [`BuildError::Full`] if the message does not fit into `frame`.
    pub fn write(&self, frame: &mut Frame<'_>) -> Result<(), BuildError> {
        let mut builder = Builder::new(frame, self.message_type, self.code, self.message_id, self.token)?;
        for (number, value) in self.options().filter(|(number, _)| *number != OptionNumber::OSCORE) {
            builder.option(number, value)?;
        }
        builder.payload(self.payload)
    }

    /// Returns this message with the payload `body`. This message is the last message of a block-wise transfer: its
    /// payload is only the last block, and `body` is the whole body of the transfer.
    pub const fn with_body(self, body: &'a [u8]) -> Self {
        Self { payload: body, assembled: true, ..self }
    }

    /// Returns true if the payload is a whole body that consists of several blocks.
    pub const fn is_assembled(&self) -> bool {
        self.assembled
    }

    /// Returns the type of the message.
    pub const fn message_type(&self) -> MessageType {
        self.message_type
    }

    /// Returns the method or the response code.
    pub const fn code(&self) -> Code {
        self.code
    }

    /// Returns the Message ID.
    pub const fn message_id(&self) -> u16 {
        self.message_id
    }

    /// Returns the token.
    pub const fn token(&self) -> &'a [u8] {
        self.token
    }

    /// Returns the payload, which is empty if there is none.
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the number of bytes of the encoded outer options.
    pub const fn options_len(&self) -> usize {
        self.outer.len()
    }

    /// Returns all options in order.
    pub fn options(&self) -> Options<'a> {
        Options::new(self.outer, self.inner)
    }

    /// Returns the value of the first option of this number.
    pub fn option(&self, number: OptionNumber) -> Option<&'a [u8]> {
        if self.present & bit(number.0) == 0 {
            return None;
        }
        option::find(self.outer, number).or_else(|| option::find(self.inner, number))
    }

    /// Returns true if the message may have an option of class U (RFC 8613, section 4.1) other than OSCORE. If the
    /// result is false, the message certainly has no such option.
    pub const fn may_have_unprotected(&self) -> bool {
        self.present & UNPROTECTED != 0
    }

    /// Returns the values of all options of this number.
    pub fn values(&self, number: OptionNumber) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.options().filter(move |(n, _)| *n == number).map(|(_, value)| value)
    }

    /// Returns true if the path of the message is `path`. Slashes separate the segments of `path`. A slash in front
    /// would mean an empty first segment.
    pub fn path_is(&self, path: &str) -> bool {
        // `rest` is the part of `path` that was not compared yet. `None` means that no segment remains, and `Some` with
        // no bytes means one more empty segment.
        let mut rest = Some(path.as_bytes()).filter(|path| !path.is_empty());
        for run in &[self.outer, self.inner] {
            let (mut reader, mut previous) = (Reader::new(run), 0);
            while let Ok((number, value)) = option::read(&mut reader, previous) {
                previous = number.0;
                if number != OptionNumber::URI_PATH {
                    continue;
                }
                let Some(path) = rest else { return false };
                let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
                let (segment, behind) = path.split_at_checked(end).unwrap_or((path, &[]));
                if segment != value {
                    return false;
                }
                rest = behind.get(1..);
            }
        }
        rest.is_none()
    }

    /// Returns the number in an option of format `uint`, if the message has the option.
    pub fn uint(&self, number: OptionNumber) -> Option<u32> {
        self.option(number).and_then(option::uint)
    }
}

const fn bit(number: u16) -> u32 {
    1 << (number & 31)
}

/// The options of class U other than OSCORE, as a set of bits in the form of the field `present` of [`MessageRef`].
const UNPROTECTED: u32 = bit(OptionNumber::URI_HOST.0)
    | bit(OptionNumber::URI_PORT.0)
    | bit(OptionNumber::HOP_LIMIT.0)
    | bit(OptionNumber::PROXY_URI.0)
    | bit(OptionNumber::PROXY_SCHEME.0);

/// Reads all options of a message, which are at the beginning of `bytes`. Returns the bytes of the options, the payload
/// after the options, and the set of option numbers in the form of the field `present` of [`MessageRef`]. Returns
/// `None` for a payload marker without payload, or for options that cannot be parsed.
fn split_payload(bytes: &[u8]) -> Option<(&[u8], &[u8], u32)> {
    let mut reader = Reader::new(bytes);
    let (mut number, mut present) = (0, 0);
    loop {
        match reader.rest() {
            [] => return Some((bytes, &[], present)),
            [PAYLOAD_MARKER] => return None,
            [PAYLOAD_MARKER, payload @ ..] => {
                let options = bytes.len().wrapping_sub(payload.len()).wrapping_sub(1);
                return Some((bytes.get(..options)?, payload, present));
            }
            _ => {
                number = option::read(&mut reader, number).ok()?.0.0;
                present |= bit(number);
            }
        }
    }
}

/// Returns a message without token, options and payload: an empty acknowledgement or a Reset.
pub fn empty_message(message_type: MessageType, message_id: u16) -> [u8; HEADER_LEN] {
    header(message_type, 0, Code::EMPTY, message_id)
}

fn header(message_type: MessageType, token_len: u8, code: Code, message_id: u16) -> [u8; HEADER_LEN] {
    let [id0, id1] = message_id.to_be_bytes();
    [VERSION << 6 | (message_type as u8) << 4 | token_len, code.0, id0, id1]
}

/// The reason why a message could not be built.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BuildError {
    /// The frame is full.
    Full,
    /// An option has a lower number than the previous one, or comes after the payload.
    Order,
}

impl From<Full> for BuildError {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

/// Maximum number of bytes that [`Builder::insert`] writes: the header and the value of the inserted option, and the
/// new header of the next option.
const MAX_INSERTED: usize = 24;

/// A builder that writes a message into a frame, in the order of the wire: options by rising number, then the
/// payload.
pub struct Builder<'f, 't> {
    frame: &'f mut Frame<'t>,
    /// The position in the frame where the message begins.
    start: usize,
    last: u16,
    has_payload: bool,
}

impl<'f, 't> Builder<'f, 't> {
    /// Writes the header and the token of a new message.
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
        let room = frame.extend(HEADER_LEN.wrapping_add(token_len.into()))?;
        let (head, behind) = room.split_first_chunk_mut().ok_or(Full)?;
        *head = header(message_type, token_len, code, message_id);
        behind.iter_mut().zip(token).for_each(|(to, from)| *to = *from);
        Ok(Self { frame, start, last: 0, has_payload: false })
    }

    /// Sets the code of the message.
    pub fn set_code(&mut self, code: Code) {
        if let Some(byte) = self.frame.bytes_mut().get_mut(self.start.wrapping_add(1)) {
            *byte = code.0;
        }
    }

    /// Returns the code of the message.
    pub fn code(&self) -> Code {
        Code(self.frame.bytes().get(self.start.wrapping_add(1)).copied().unwrap_or(0))
    }

    /// Returns true if an option of this number was added.
    pub fn has(&self, number: OptionNumber) -> bool {
        let message = self.frame.bytes().get(self.start..).unwrap_or(&[]);
        MessageRef::parse(message).is_ok_and(|message| message.option(number).is_some())
    }

    /// Removes the last `len` bytes of the payload.
    pub fn cut(&mut self, len: usize) {
        self.frame.cut(len);
    }

    /// Adds an option.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn option(&mut self, number: OptionNumber, value: &[u8]) -> Result<(), BuildError> {
        if self.has_payload || number.0 < self.last {
            return Err(BuildError::Order);
        }
        let delta = number.0.wrapping_sub(self.last);
        if delta < 13 && value.len() < 13 {
            // Most options are short. A mote needs few instructions for a short option.
            put_behind(self.frame, (delta << 4) as u8 | value.len() as u8, value)?;
        } else {
            self.frame.append_with(|writer| option::write(writer, delta, value))?;
        }
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

    /// Inserts an option at the position of its number, before options with higher numbers and before the payload.
    ///
    /// # Errors
    /// [`BuildError::Full`].
    pub fn insert(&mut self, number: OptionNumber, value: &[u8]) -> Result<(), BuildError> {
        if number.0 >= self.last && !self.has_payload {
            return self.option(number, value);
        }
        let message = self.frame.bytes().get(self.start..).ok_or(BuildError::Full)?;
        let token_len = usize::from(message.first().copied().unwrap_or(0) & 15);
        let options_at = HEADER_LEN.saturating_add(token_len);
        let mut reader = Reader::new(message.get(options_at..).unwrap_or(&[]));
        let mut previous = 0;
        let (at, next) = loop {
            let at = message.len().saturating_sub(reader.rest().len());
            match reader.rest().first() {
                None | Some(&PAYLOAD_MARKER) => break (at, None),
                Some(_) => {}
            }
            let (other, next_value) = option::read(&mut reader, previous).map_err(|_| BuildError::Full)?;
            if other > number {
                let end = message.len().saturating_sub(reader.rest().len());
                break (at, Some((other, next_value.len(), end.saturating_sub(next_value.len()))));
            }
            previous = other.0;
        };
        // Writes the option, and a new header of the next option, because the number of the option before it has
        // changed.
        let mut storage = [0; MAX_INSERTED];
        let mut writer = Writer::new(&mut storage);
        option::write(&mut writer, number.0.saturating_sub(previous), value)?;
        let mut removed = 0;
        if let Some((other, len, value_at)) = next {
            writer.put(option::Header::new(other.0.saturating_sub(number.0), len).as_bytes())?;
            removed = value_at.saturating_sub(at);
        }
        self.last = self.last.max(number.0);
        Ok(self.frame.splice(self.start.saturating_add(at), removed, writer.written())?)
    }

    /// Adds one Uri-Path option for each segment of `path`. Slashes separate the segments. Empty segments are left out,
    /// so a slash in front has no effect.
    ///
    /// # Errors
    /// [`BuildError`].
    pub fn path(&mut self, path: &str) -> Result<(), BuildError> {
        // Splits the bytes and not the `str`, because the code that splits a `str` can panic, and would be added to the
        // image of a mote.
        let mut rest = path.as_bytes();
        loop {
            let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let (segment, behind) = rest.split_at_checked(end).unwrap_or((rest, &[]));
            if !segment.is_empty() {
                self.option(OptionNumber::URI_PATH, segment)?;
            }
            let Some((_slash, next)) = behind.split_first() else { return Ok(()) };
            rest = next;
        }
    }

    /// Appends bytes to the payload. The first call puts the payload marker before the bytes. If `bytes` is empty, the
    /// call adds nothing.
    ///
    /// # Errors
    /// [`BuildError::Full`].
    pub fn payload(&mut self, bytes: &[u8]) -> Result<(), BuildError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.has_payload {
            return Ok(self.frame.append(bytes)?);
        }
        put_behind(self.frame, PAYLOAD_MARKER, bytes)?;
        self.has_payload = true;
        Ok(())
    }

    /// Returns the number of bytes that still fit into the frame. The payload marker takes one of these bytes, if it is
    /// not written yet.
    pub fn room(&self) -> usize {
        self.frame.room()
    }

    /// Removes options and payload, so that another response can be written. The header and the token, which has
    /// `token_len` bytes, remain.
    pub fn restart(&mut self, token_len: usize) {
        self.frame.truncate(self.start.wrapping_add(HEADER_LEN).wrapping_add(token_len));
        (self.last, self.has_payload) = (0, false);
    }
}

/// Appends the byte `first` and the bytes `rest`. If they do not fit, appends nothing.
#[cfg_attr(target_pointer_width = "64", inline)]
#[cfg_attr(not(target_pointer_width = "64"), inline(never))]
fn put_behind(frame: &mut Frame<'_>, first: u8, rest: &[u8]) -> Result<(), Full> {
    let (place, behind) = frame.extend(rest.len().saturating_add(1))?.split_first_mut().ok_or(Full)?;
    *place = first;
    behind.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
    Ok(())
}

#[cfg(test)]
mod tests;
