//! AS Request Creation Hints (RFC 9200, section 5.3): the authorization server and the parameters of a token request.

use super::scope::{SCOPE, Scope};
use super::token::CNONCE;
use tegmen_host::cbor::{Malformed, MapWriter, bytes, read_message, text};

const AUTH_SERVER: i64 = 1;
const KID: i64 = 2;
const AUDIENCE: i64 = 5;

/// The payload of the 4.01 response of a resource server to a request without a token. A field that is `None` is a
/// parameter that the payload does not have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CreationHints {
    /// The URI of the authorization server.
    pub auth_server: Option<String>,
    /// The identifier of a key that the client should use.
    pub kid: Option<Vec<u8>>,
    /// The audience that the client should request.
    pub audience: Option<String>,
    /// The scope that the client should request.
    pub scope: Option<Scope>,
    /// The nonce for the token request. With it, the resource server can verify that a token is fresh.
    pub cnonce: Option<Vec<u8>>,
}

impl CreationHints {
    /// Reads the hints from the payload of a response.
    ///
    /// # Errors
    /// [`Malformed`] if the payload contains no valid hints.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut hints = Self::default();
        read_message(message, |label, decoder| {
            match label {
                AUTH_SERVER => hints.auth_server = Some(decoder.str()?.to_owned()),
                KID => hints.kid = Some(decoder.bytes()?.to_owned()),
                AUDIENCE => hints.audience = Some(decoder.str()?.to_owned()),
                SCOPE => hints.scope = Some(Scope::read(decoder)?),
                CNONCE => hints.cnonce = Some(decoder.bytes()?.to_owned()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(hints)
    }

    /// Encodes the hints.
    pub fn encode(&self) -> Vec<u8> {
        let mut map = MapWriter::default();
        map.optional(AUTH_SERVER, self.auth_server.as_deref(), text);
        map.optional(KID, self.kid.as_deref(), bytes);
        map.optional(AUDIENCE, self.audience.as_deref(), text);
        map.optional(SCOPE, self.scope.as_ref(), |encoder, scope| scope.write(encoder));
        map.optional(CNONCE, self.cnonce.as_deref(), bytes);
        map.finish().to_vec()
    }
}
