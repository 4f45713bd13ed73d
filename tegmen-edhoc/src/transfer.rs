//! The bodies of requests to `/.well-known/edhoc` (RFC 9528, appendix A.2). A request has the method POST. The body
//! of a 2.04 response is message_2 or message_4. The body of an error response is an [error
//! message](crate::Failure::write).

use crate::connection_id::ConnectionId;
use tegmen_base::buf::{Full, Reader, Writer};

/// The path of the resource.
pub const PATH: &str = ".well-known/edhoc";
/// The Content-Format application/edhoc+cbor-seq of message_2, message_4 and error messages.
pub const MESSAGE_FORMAT: u16 = 64;
/// The Content-Format application/cid-edhoc+cbor-seq of message_1 and message_3, which have an identifier before the
/// message.
pub const IDENTIFIED_FORMAT: u16 = 65;

/// The body of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body<'m> {
    /// message_1.
    First(&'m [u8]),
    /// C_R and message_3.
    Third(ConnectionId, &'m [u8]),
}

impl<'m> Body<'m> {
    /// Reads the body of a request. Returns `None` if it is malformed.
    pub fn parse(bytes: &'m [u8]) -> Option<Self> {
        if let Some(message) = bytes.strip_prefix(&[TRUE]) {
            return Some(Self::First(message));
        }
        let mut reader = Reader::new(bytes);
        let recipient_id = ConnectionId::read(&mut reader)?;
        Some(Self::Third(recipient_id, reader.rest()))
    }

    /// Writes the body of a request, and returns its bytes.
    ///
    /// # Errors
    /// [`Full`] if `out` is too short. 8 bytes more than the message are enough.
    pub fn write<'o>(&self, out: &'o mut [u8]) -> Result<&'o [u8], Full> {
        let mut writer = Writer::new(out);
        match self {
            Self::First(message) => {
                writer.u8(TRUE)?;
                writer.put(message)?;
            }
            Self::Third(recipient_id, message) => {
                writer.put(recipient_id.as_cbor())?;
                writer.put(message)?;
            }
        }
        Ok(writer.finish())
    }
}

/// The CBOR value true, which precedes message_1.
const TRUE: u8 = 0xf5;
