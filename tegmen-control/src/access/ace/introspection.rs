//! Introspection of a token (RFC 9200, section 5.9).

use super::claims::{ACTIVE, Claims};
use super::scope::{SCOPE, Scope};
use minicbor::data::Type;
use tegmen_host::cbor::{Malformed, MapWriter, bytes, integer, is_integer, read_message, text};
use zeroize::Zeroizing;

const TOKEN: i64 = 11;
const TOKEN_TYPE_HINT: i64 = 33;

/// The hint in a request: the kind of token that the resource server presumes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hint {
    /// The kind of the token as a name.
    Name(String),
    /// The kind of the token as a number, such as the number of a proof-of-possession token (RFC 9200, figure 14).
    Number(i64),
}

/// A request to `/introspect`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IntrospectionRequest {
    /// The rights about which the resource server asks. RFC 9200 has no such parameter, and other servers ignore it.
    pub scope: Option<Scope>,
    /// The token, or a reference to a token. The message may contain it as bytes or as text.
    pub token: Vec<u8>,
    /// The kind of the token; `None` if the request has no hint.
    pub hint: Option<Hint>,
}

impl IntrospectionRequest {
    /// Reads the request of a resource server to `/introspect`.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no introspection request, or contain no token.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut token, mut hint, mut scope) = (None, None, None);
        read_message(message, |label, decoder| {
            match label {
                SCOPE => scope = Some(Scope::read(decoder)?),
                TOKEN if decoder.datatype()? == Type::String => token = Some(decoder.str()?.as_bytes().to_owned()),
                TOKEN => token = Some(decoder.bytes()?.to_owned()),
                TOKEN_TYPE_HINT if is_integer(decoder.datatype()?) => hint = Some(Hint::Number(decoder.i64()?)),
                TOKEN_TYPE_HINT => hint = Some(Hint::Name(decoder.str()?.to_owned())),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(Self { scope, token: token.ok_or(Malformed::Missing(TOKEN))?, hint })
    }

    /// Encodes the request, with the token as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut map = MapWriter::default();
        map.optional(SCOPE, self.scope.as_ref(), |encoder, scope| scope.write(encoder));
        map.entry(TOKEN, |encoder| bytes(encoder, &self.token));
        map.optional(TOKEN_TYPE_HINT, self.hint.as_ref(), |encoder, hint| match hint {
            Hint::Name(name) => text(encoder, name),
            Hint::Number(number) => integer(encoder, *number),
        });
        map.finish().to_vec()
    }
}

/// The 2.01 response to an introspection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IntrospectionResponse {
    /// True if the token is valid now. The response for a token that is not valid has no claims (RFC 7662, section
    /// 2.2).
    pub active: bool,
    /// The claims of a valid token.
    pub claims: Claims,
}

impl IntrospectionResponse {
    /// Returns the response for a token that is unknown, expired, revoked, or not for this resource server.
    pub fn inactive() -> Self {
        Self::default()
    }

    /// Reads the response of the access control server to an introspection request.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no response to an introspection request, or do not state if the token is active.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut active = None;
        let mut claims = Claims::default();
        read_message(message, |label, decoder| match label {
            ACTIVE => {
                active = Some(decoder.bool()?);
                Ok(true)
            }
            _ => claims.take(label, decoder),
        })?;
        Ok(Self { active: active.ok_or(Malformed::Missing(ACTIVE))?, claims })
    }

    /// Encodes the response.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut map = MapWriter::default();
        self.claims.write(Some(self.active), &mut map);
        map.finish()
    }
}
