//! Handshake messages (RFC 6347, section 4.2). Each message has a separate file with the functions that read and write
//! it.

pub(crate) mod certificate;
pub(crate) mod certificate_request;
pub(crate) mod client_hello;
pub(crate) mod extension;
pub(crate) mod finished;
pub(crate) mod hello_verify_request;
pub(crate) mod key_exchange;
pub(crate) mod new_session_ticket;
pub(crate) mod server_hello;
pub(crate) mod server_key_exchange;

use super::VERSION;
use crate::buf::{Full, Reader, Truncated, Writer};

/// Number of bytes of a handshake header.
pub(crate) const HEADER_LEN: usize = 12;

/// The type of a handshake message, which is its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageType(pub u8);

impl MessageType {
    /// HelloRequest: the server asks for a renegotiation. This endpoint refuses it.
    pub const HELLO_REQUEST: Self = Self(0);
    /// ClientHello: the client opens a handshake, and offers parameters.
    pub const CLIENT_HELLO: Self = Self(1);
    /// ServerHello: the server chooses parameters from the offer of the client.
    pub const SERVER_HELLO: Self = Self(2);
    /// HelloVerifyRequest: the server asks the client to prove its address.
    pub const HELLO_VERIFY_REQUEST: Self = Self(3);
    /// NewSessionTicket: carries a ticket with which the client can later resume the session.
    pub const NEW_SESSION_TICKET: Self = Self(4);
    /// Certificate: carries a chain of certificates, or a raw public key.
    pub const CERTIFICATE: Self = Self(11);
    /// ServerKeyExchange: carries the PSK identity hint, the server's share of a key agreement, or both.
    pub const SERVER_KEY_EXCHANGE: Self = Self(12);
    /// CertificateRequest: asks the client for a certificate.
    pub const CERTIFICATE_REQUEST: Self = Self(13);
    /// ServerHelloDone: ends the server's flight. It has no content.
    pub const SERVER_HELLO_DONE: Self = Self(14);
    /// CertificateVerify: proves that the client has the private key of its certificate.
    pub const CERTIFICATE_VERIFY: Self = Self(15);
    /// ClientKeyExchange: carries the PSK identity, the client's share of a key agreement, or both.
    pub const CLIENT_KEY_EXCHANGE: Self = Self(16);
    /// Finished: proves that both endpoints saw the same handshake.
    pub const FINISHED: Self = Self(20);
}

/// A handshake message, or a fragment of a handshake message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment<'r> {
    /// The handshake header of the fragment, in the received record. This field is a reference and not a copy, because
    /// a mote then needs only one register for it.
    pub(crate) header: &'r [u8; HEADER_LEN],
    /// The bytes of the fragment after its header.
    pub(crate) body: &'r [u8],
}

impl<'r> Fragment<'r> {
    /// Reads one fragment. Fails if the end of the fragment would be after the end of its message.
    pub(crate) fn read(reader: &mut Reader<'r>) -> Result<Self, Truncated> {
        let header = reader.array_ref::<HEADER_LEN>()?;
        let [.., before, high, middle, low] = *header;
        let body = reader.take(u24([before, high, middle, low]) as usize)?;
        let fragment = Self { header, body };
        match fragment.offset().wrapping_add(body.len() as u32) > fragment.length() {
            true => Err(Truncated),
            false => Ok(fragment),
        }
    }

    /// Returns the type of the whole message.
    pub(crate) const fn message_type(&self) -> MessageType {
        let [kind, ..] = *self.header;
        MessageType(kind)
    }

    /// Returns the length of the whole message in bytes, without this header.
    #[inline(never)]
    pub(crate) const fn length(&self) -> u32 {
        let [before, high, middle, low, ..] = *self.header;
        u24([before, high, middle, low])
    }

    /// Returns the message_seq: each endpoint numbers its messages of a handshake, beginning with 0.
    pub(crate) const fn message_seq(&self) -> u16 {
        let [_, _, _, _, high, low, ..] = *self.header;
        u16::from_be_bytes([high, low])
    }

    /// Returns the position of the first byte of this fragment in the message.
    #[inline(never)]
    pub(crate) const fn offset(&self) -> u32 {
        let [_, _, _, _, _, before, high, middle, low, ..] = *self.header;
        u24([before, high, middle, low])
    }

    /// True if this fragment is the whole message.
    pub(crate) const fn is_whole(&self) -> bool {
        self.body.len() as u32 == self.length()
    }
}

/// Returns the number in the last three bytes, and ignores the first byte. With four bytes, one instruction can load
/// all of them.
#[inline(never)]
pub(crate) const fn u24(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0xff_ffff
}

/// Returns a handshake header. For the transcript, `offset` is 0 and `fragment` is `length`, as in an unfragmented
/// message (RFC 6347, section 4.2.6).
#[inline(never)]
pub(crate) fn header(kind: MessageType, length: u32, seq: u16, offset: u32, fragment: u32) -> [u8; HEADER_LEN] {
    let [_, l0, l1, l2] = length.to_be_bytes();
    let [s0, s1] = seq.to_be_bytes();
    let [_, o0, o1, o2] = offset.to_be_bytes();
    let [_, f0, f1, f2] = fragment.to_be_bytes();
    [kind.0, l0, l1, l2, s0, s1, o0, o1, o2, f0, f1, f2]
}

/// The random of a ClientHello or ServerHello (RFC 5246, section 7.4.1.2).
pub(crate) type Random = [u8; 32];

/// Returns an error if the body of a message has unread bytes.
pub(crate) fn end(reader: &Reader<'_>) -> Result<(), Truncated> {
    if reader.is_empty() { Ok(()) } else { Err(Truncated) }
}

pub(crate) type Write = Result<(), Full>;

/// Writes the fields of a ClientHello or ServerHello before the session id (RFC 5246, sections 7.4.1.2 and 7.4.1.3).
fn write_hello(writer: &mut Writer<'_>, random: &Random) -> Write {
    writer.put(&VERSION)?;
    writer.put(random)
}

#[cfg(test)]
mod tests;
