//! The reasons why two peers do not agree, and error messages (RFC 9528, section 6).

use tegmen_base::buf::{Full, Reader, Writer};
use tegmen_base::cbor;

/// The reason why we discontinue a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// A message is not valid CBOR, or is not the expected message.
    Malformed,
    /// A message is longer than [`Message::MAX`](crate::Message::MAX), or external authorization data is longer than 64 bytes.
    TooLong,
    /// The method is not 3 (static Diffie-Hellman keys of both peers).
    Method,
    /// The selected cipher suite is not 2.
    CipherSuite,
    /// A public key is not a point on P-256.
    PublicKey,
    /// Both peers chose the same connection identifier, or no connection identifier is free.
    ConnectionId,
    /// The credential of the peer is not known.
    UnknownCredential,
    /// The peer did not prove that it has the private key of its credential.
    NotAuthentic,
    /// A message has external authorization data that are critical and not supported.
    CriticalData,
    /// Our credential has no `kid`, but this message would have to identify the credential by its `kid`.
    NoKid,
    /// The crypto provider has no key agreement on P-256.
    Unsupported,
}

impl Failure {
    /// Writes the error message for the peer, and returns the bytes of the message.
    ///
    /// # Errors
    /// [`Full`] if `out` is too short. 40 bytes are enough.
    pub fn write(self, out: &mut [u8]) -> Result<&[u8], Full> {
        let mut writer = Writer::new(out);
        match self {
            // SUITES_R contains the only supported suite.
            Self::CipherSuite => writer.put(&[WRONG_SUITE, SUITE])?,
            Self::UnknownCredential => writer.put(&[UNKNOWN_CREDENTIAL, TRUE])?,
            _ => {
                writer.u8(UNSPECIFIED)?;
                let text = self.text();
                cbor::write_head(cbor::TEXT, text.len(), &mut writer)?;
                writer.put(text.as_bytes())?;
            }
        }
        Ok(writer.finish())
    }

    /// Returns the text of the error message for the peer. All failures that depend on keys have the same text, so that
    /// the text reveals nothing about keys.
    const fn text(self) -> &'static str {
        match self {
            Self::Method => "method 3 only",
            Self::CriticalData => "unknown critical EAD item",
            Self::TooLong => "message too long",
            Self::ConnectionId => "no connection identifier",
            _ => "message not valid",
        }
    }
}

/// An error message from the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerError<'m> {
    /// An unspecified error with a text for people (section 6.2).
    Unspecified(&'m str),
    /// The selected cipher suite is not supported (section 6.3).
    WrongCipherSuite,
    /// The credential that the message identified is not known (section 6.4).
    UnknownCredential,
    /// Any other error code.
    Other(u32),
}

impl<'m> PeerError<'m> {
    /// Reads an error message; `None` if it is malformed.
    pub fn parse(bytes: &'m [u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes);
        let (major, code) = cbor::read_head(&mut reader)?;
        match (major, code) {
            (cbor::UNSIGNED, 1) => {
                let len = cbor::read(cbor::TEXT, &mut reader)?;
                core::str::from_utf8(reader.take(len).ok()?).ok().map(Self::Unspecified)
            }
            (cbor::UNSIGNED, 2) => Some(Self::WrongCipherSuite),
            (cbor::UNSIGNED, 3) => Some(Self::UnknownCredential),
            (cbor::UNSIGNED, code) => u32::try_from(code).ok().map(Self::Other),
            _ => None,
        }
    }
}

/// The error code (ERR_CODE) of an unspecified error. This constant and the two constants below are the error codes of
/// RFC 9528, section 9.5, that this crate knows.
const UNSPECIFIED: u8 = 1;
const WRONG_SUITE: u8 = 2;
const UNKNOWN_CREDENTIAL: u8 = 3;
/// The number of the only supported cipher suite (RFC 9528, section 3.6).
pub(crate) const SUITE: u8 = 2;
/// The CBOR value true.
const TRUE: u8 = 0xf5;
