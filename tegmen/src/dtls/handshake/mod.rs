//! Handshake messages (RFC 6347, section 4.2): one file each, reading and writing together.

pub mod client_hello;
pub mod extension;
pub mod finished;
pub mod hello_verify_request;
pub mod key_exchange;
pub mod server_hello;

use crate::buf::{Full, Reader, Truncated};

/// Bytes of a handshake header.
pub const HEADER_LEN: usize = 12;

/// The first byte of a handshake message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageType(pub u8);

impl MessageType {
    /// Asks for a renegotiation, which is refused here.
    pub const HELLO_REQUEST: Self = Self(0);
    /// Opens a handshake.
    pub const CLIENT_HELLO: Self = Self(1);
    /// Chooses what the client offered.
    pub const SERVER_HELLO: Self = Self(2);
    /// Asks the client to prove its address.
    pub const HELLO_VERIFY_REQUEST: Self = Self(3);
    /// Carries the PSK identity hint.
    pub const SERVER_KEY_EXCHANGE: Self = Self(12);
    /// Ends the server's flight; empty.
    pub const SERVER_HELLO_DONE: Self = Self(14);
    /// Carries the PSK identity.
    pub const CLIENT_KEY_EXCHANGE: Self = Self(16);
    /// Proves that both saw the same handshake.
    pub const FINISHED: Self = Self(20);
}

/// A handshake message or a piece of one.
#[derive(Clone, Copy, Debug)]
pub struct Fragment<'r> {
    /// Type of the whole message.
    pub message_type: MessageType,
    /// Length of the whole message in bytes, without this header.
    pub length: u32,
    /// Number of the message in its sender's handshake.
    pub message_seq: u16,
    /// Where this piece begins.
    pub offset: u32,
    /// The piece.
    pub body: &'r [u8],
}

impl<'r> Fragment<'r> {
    /// Reads one fragment; a piece that would reach past its message does not parse.
    pub fn read(reader: &mut Reader<'r>) -> Result<Self, Truncated> {
        let message_type = MessageType(reader.u8()?);
        let length = reader.u24()?;
        let message_seq = reader.u16()?;
        let offset = reader.u24()?;
        let fragment_length = reader.u24()?;
        let body = reader.take(fragment_length as usize)?;
        if offset.wrapping_add(fragment_length) > length {
            return Err(Truncated);
        }
        Ok(Self { message_type, length, message_seq, offset, body })
    }

    /// True if this is the whole message.
    pub const fn is_whole(&self) -> bool {
        self.offset == 0 && self.body.len() as u32 == self.length
    }

    /// The header of this fragment.
    pub fn header(&self) -> [u8; HEADER_LEN] {
        header(self.message_type, self.length, self.message_seq, self.offset, self.body.len() as u32)
    }
}

/// A handshake header. The transcript hash takes it as if the message came in one piece (RFC 6347, section 4.2.6).
pub(crate) fn header(kind: MessageType, length: u32, seq: u16, offset: u32, fragment: u32) -> [u8; HEADER_LEN] {
    let [_, l0, l1, l2] = length.to_be_bytes();
    let [s0, s1] = seq.to_be_bytes();
    let [_, o0, o1, o2] = offset.to_be_bytes();
    let [_, f0, f1, f2] = fragment.to_be_bytes();
    [kind.0, l0, l1, l2, s0, s1, o0, o1, o2, f0, f1, f2]
}

/// Protocol version, random and all else that both hellos begin with.
pub(crate) type Random = [u8; 32];

/// A body that is read to its last byte.
pub(crate) fn end(reader: &Reader<'_>) -> Result<(), Truncated> {
    if reader.is_empty() { Ok(()) } else { Err(Truncated) }
}

pub(crate) type Write = Result<(), Full>;
