//! The request for a token and its response (RFC 9200, section 5.8; RFC 9201).

use super::cbor::{Malformed, MapWriter, bytes, integer, nullable, number, read_message, text};
use super::key::Confirmation;
use super::scope::{SCOPE, Scope};
use zeroize::Zeroizing;

const ACCESS_TOKEN: i64 = 1;
const EXPIRES_IN: i64 = 2;
const REQ_CNF: i64 = 4;
const AUDIENCE: i64 = 5;
pub(super) const CNF: i64 = 8;
const CLIENT_ID: i64 = 24;
const GRANT_TYPE: i64 = 33;
const TOKEN_TYPE: i64 = 34;
pub(super) const ACE_PROFILE: i64 = 38;
pub(super) const CNONCE: i64 = 39;
const RS_CNF: i64 = 41;

/// The grant type of a token request (RFC 9200, section 8.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantType(pub i64);

impl GrantType {
    /// The client authenticates itself. The default.
    pub const CLIENT_CREDENTIALS: Self = Self(2);
}

/// The kind of a token (RFC 9200, section 8.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenType(pub i64);

impl TokenType {
    /// The owner of the token is allowed to use it.
    pub const BEARER: Self = Self(1);
    /// A client that uses the token proves that it has the key of its `cnf`.
    pub const POP: Self = Self(2);
}

/// The protection between client and resource server (RFC 9200, section 8.8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Profile(pub i64);

impl Profile {
    /// DTLS (RFC 9202).
    pub const COAP_DTLS: Self = Self(1);
    /// OSCORE (RFC 9203).
    pub const COAP_OSCORE: Self = Self(2);
}

/// A request to `/token`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TokenRequest {
    /// The key that the token shall be bound to.
    pub req_cnf: Option<Confirmation>,
    /// The resource server.
    pub audience: Option<String>,
    /// The rights.
    pub scope: Option<Scope>,
    /// The name of the client.
    pub client_id: Option<String>,
    /// The grant type.
    pub grant_type: Option<GrantType>,
    /// True if the client asks for the profile of the resource server (the parameter is there, with the value null).
    pub ace_profile: bool,
    /// The nonce of the resource server's creation hints, which proves to it that a token is fresh.
    pub cnonce: Option<Vec<u8>>,
}

impl TokenRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are something else.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut request = Self::default();
        read_message(message, |label, decoder| {
            match label {
                REQ_CNF => request.req_cnf = Some(Confirmation::read(decoder)?),
                AUDIENCE => request.audience = Some(decoder.str()?.to_owned()),
                SCOPE => request.scope = Some(Scope::read(decoder)?),
                CLIENT_ID => request.client_id = Some(decoder.str()?.to_owned()),
                GRANT_TYPE => request.grant_type = Some(GrantType(decoder.i64()?)),
                ACE_PROFILE => {
                    nullable(decoder, |decoder| decoder.skip())?;
                    request.ace_profile = true;
                }
                CNONCE => request.cnonce = Some(decoder.bytes()?.to_owned()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(request)
    }

    /// Writes the request.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut map = MapWriter::new();
        map.encoded(REQ_CNF, self.req_cnf.as_ref().map(Confirmation::value));
        map.optional(AUDIENCE, self.audience.as_deref(), text);
        map.encoded(SCOPE, self.scope.as_ref().map(Scope::value));
        map.optional(CLIENT_ID, self.client_id.as_deref(), text);
        map.optional(GRANT_TYPE, self.grant_type.map(|grant| grant.0), integer);
        map.optional(ACE_PROFILE, self.ace_profile.then_some(()), |encoder, ()| encoder.null().map(|_| ()));
        map.optional(CNONCE, self.cnonce.as_deref(), bytes);
        map.finish()
    }
}

/// The response that grants a token: 2.01.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TokenResponse {
    /// The token, opaque to the client.
    pub access_token: Vec<u8>,
    /// Seconds for which the token is valid.
    pub expires_in: Option<u64>,
    /// The key that the token is bound to, where the client did not choose it.
    pub cnf: Option<Confirmation>,
    /// The rights, where they are others than those asked for.
    pub scope: Option<Scope>,
    /// The kind of the token; proof of possession where it is missing.
    pub token_type: Option<TokenType>,
    /// The profile.
    pub ace_profile: Option<Profile>,
    /// The public key of the resource server.
    pub rs_cnf: Option<Confirmation>,
}

impl TokenResponse {
    /// Reads a response.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are something else, or have no token.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut response = Self::default();
        let mut has_token = false;
        read_message(message, |label, decoder| {
            match label {
                ACCESS_TOKEN => {
                    response.access_token = decoder.bytes()?.to_owned();
                    has_token = true;
                }
                EXPIRES_IN => response.expires_in = Some(decoder.u64()?),
                CNF => response.cnf = Some(Confirmation::read(decoder)?),
                SCOPE => response.scope = Some(Scope::read(decoder)?),
                TOKEN_TYPE => response.token_type = Some(TokenType(decoder.i64()?)),
                ACE_PROFILE => response.ace_profile = Some(Profile(decoder.i64()?)),
                RS_CNF => response.rs_cnf = Some(Confirmation::read(decoder)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        if has_token { Ok(response) } else { Err(Malformed::Missing(ACCESS_TOKEN)) }
    }

    /// Writes the response.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut map = MapWriter::new();
        map.entry(ACCESS_TOKEN, |encoder| bytes(encoder, &self.access_token));
        map.optional(EXPIRES_IN, self.expires_in, number);
        map.encoded(CNF, self.cnf.as_ref().map(Confirmation::value));
        map.encoded(SCOPE, self.scope.as_ref().map(Scope::value));
        map.optional(TOKEN_TYPE, self.token_type.map(|kind| kind.0), integer);
        map.optional(ACE_PROFILE, self.ace_profile.map(|profile| profile.0), integer);
        map.encoded(RS_CNF, self.rs_cnf.as_ref().map(Confirmation::value));
        map.finish()
    }
}
