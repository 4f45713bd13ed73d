//! Error responses (RFC 9200, section 5.8.3).

use tegmen_host::cbor::{Malformed, MapWriter, integer, read_message, text};

const ERROR: i64 = 30;
const DESCRIPTION: i64 = 31;
const URI: i64 = 32;

/// The code of an error (RFC 9200, section 8.4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorCode(pub i64);

impl ErrorCode {
    /// The request is malformed, or a parameter is missing.
    pub const INVALID_REQUEST: Self = Self(1);
    /// The client did not authenticate itself.
    pub const INVALID_CLIENT: Self = Self(2);
    /// The grant of the client is not valid.
    pub const INVALID_GRANT: Self = Self(3);
    /// The client has no right to this kind of request.
    pub const UNAUTHORIZED_CLIENT: Self = Self(4);
    /// The grant type is not supported.
    pub const UNSUPPORTED_GRANT_TYPE: Self = Self(5);
    /// The client has no right to the scope, or the scope is unknown.
    pub const INVALID_SCOPE: Self = Self(6);
    /// The resource server does not support the key.
    pub const UNSUPPORTED_POP_KEY: Self = Self(7);
    /// Client and resource server have no profile in common.
    pub const INCOMPATIBLE_ACE_PROFILES: Self = Self(8);
}

/// The payload of an error response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorResponse {
    /// The code of the error.
    pub error: ErrorCode,
    /// A description for people; `None` if the response has none.
    pub description: Option<String>,
    /// The URI of a page with more information; `None` if the response has none.
    pub uri: Option<String>,
}

impl ErrorResponse {
    /// Makes an error response without a description.
    pub const fn new(error: ErrorCode) -> Self {
        Self { error, description: None, uri: None }
    }

    /// Reads the payload of an error response.
    ///
    /// # Errors
    /// [`Malformed`] if the payload is not that of an error response, or contains no error code.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut error, mut description, mut uri) = (None, None, None);
        read_message(message, |label, decoder| {
            match label {
                ERROR => error = Some(ErrorCode(decoder.i64()?)),
                DESCRIPTION => description = Some(decoder.str()?.to_owned()),
                URI => uri = Some(decoder.str()?.to_owned()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { error: error.ok_or(Malformed::Missing(ERROR))?, description, uri })
    }

    /// Encodes the error.
    pub fn encode(&self) -> Vec<u8> {
        let mut map = MapWriter::default();
        map.entry(ERROR, |encoder| integer(encoder, self.error.0));
        map.optional(DESCRIPTION, self.description.as_deref(), text);
        map.optional(URI, self.uri.as_deref(), text);
        map.finish().to_vec()
    }
}
