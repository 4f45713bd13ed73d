//! Introspection of a token (RFC 9200, section 5.9).

use super::claims::{ACTIVE, Claims};
use super::scope::{SCOPE, Scope};
use minicbor::data::Type;
use tegmen_host::cbor::{Malformed, MapWriter, bytes, integer, is_integer, read_message, text};
use zeroize::Zeroizing;

const TOKEN: i64 = 11;
const TOKEN_TYPE_HINT: i64 = 33;

/// The kind of token that a resource server assumes in its question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hint {
    /// By name.
    Name(String),
    /// By number, as for a token of proof of possession in RFC 9200, figure 14.
    Number(i64),
}

/// A request to `/introspect`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IntrospectionRequest {
    /// The rights that the resource server asks about. RFC 9200 has no such parameter; other servers ignore it.
    pub scope: Option<Scope>,
    /// The token, or a reference to one. The message may have it as bytes or as text.
    pub token: Vec<u8>,
    /// The kind of the token.
    pub hint: Option<Hint>,
}

impl IntrospectionRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are something else, or have no token.
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

    /// Writes the request, the token as bytes.
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

/// The response to introspection: 2.01.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IntrospectionResponse {
    /// True if the token is valid now. For another token the response has no claims (RFC 7662, section 2.2).
    pub active: bool,
    /// The claims of a valid token.
    pub claims: Claims,
}

impl IntrospectionResponse {
    /// The response about a token that is unknown, expired, revoked or about others.
    pub fn inactive() -> Self {
        Self::default()
    }

    /// Reads a response.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are something else, or lack the state of the token.
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

    /// Writes the response.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut map = MapWriter::default();
        self.claims.write(Some(self.active), &mut map);
        map.finish()
    }
}
