//! The request for a token and its response (RFC 9200, section 5.8; RFC 9201). The parameters for an upload by the
//! server have the labels of draft-ietf-ace-workflow-and-params-04. These labels may change before the draft becomes an
//! RFC.

use super::key::Confirmation;
use super::scope::{SCOPE, Scope};
use tegmen_host::cbor::{Malformed, MapWriter, bytes, integer, number, read_message, text};
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
const TOKEN_UPLOAD: i64 = 48;
const TOKEN_HASH: i64 = 49;
const TO_RS: i64 = 50;

/// The grant type of a token request (RFC 9200, section 8.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GrantType(pub i64);

impl GrantType {
    /// The client authenticates itself with its own credentials. This is the default.
    pub const CLIENT_CREDENTIALS: Self = Self(2);
}

/// The kind of a token (RFC 9200, section 8.7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TokenType(pub i64);

impl TokenType {
    /// Every holder of the token may use it.
    pub const BEARER: Self = Self(1);
    /// A client that uses the token must prove that it has the key in `cnf`.
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
    /// EDHOC and OSCORE (draft-ietf-ace-edhoc-oscore-profile). IANA has not assigned a number to this profile yet.
    /// Tegmen uses the number 4, which is unassigned.
    pub const COAP_EDHOC_OSCORE: Self = Self(4);
}

/// The part of the response that identifies the token: the token itself, its hash, or neither. The client chooses this
/// part if the server uploads the token to the resource server (draft-ietf-ace-workflow-and-params-04, section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returned {
    /// Neither the token nor its hash.
    Nothing,
    /// The hash of the token, in the binary format in which a revocation list contains it (RFC 6920, section 6).
    Hash,
    /// The token.
    Token,
}

impl Returned {
    const ALL: [Self; 3] = [Self::Nothing, Self::Hash, Self::Token];

    fn read(decoder: &mut minicbor::Decoder<'_>) -> Result<Self, Malformed> {
        let value = usize::try_from(decoder.u64()?).ok();
        value.and_then(|value| Self::ALL.get(value).copied()).ok_or(Malformed::Value(TOKEN_UPLOAD))
    }

    const fn value(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Hash => 1,
            Self::Token => 2,
        }
    }
}

/// A request to `/token`. A field that is `None` is a parameter that the request does not have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TokenRequest {
    /// The key to which the token shall be bound.
    pub req_cnf: Option<Confirmation>,
    /// The name of the resource server for which the client wants a token.
    pub audience: Option<String>,
    /// The requested rights.
    pub scope: Option<Scope>,
    /// The name of the client.
    pub client_id: Option<String>,
    /// The grant type.
    pub grant_type: Option<GrantType>,
    /// True if the client asks for the profile of the resource server. The message then contains the parameter
    /// `ace_profile` with the value null.
    pub ace_profile: bool,
    /// The nonce from the creation hints of the resource server. With it, the resource server can verify that a token
    /// is fresh.
    pub cnonce: Option<Vec<u8>>,
    /// `None` if the client does not ask for an upload. Otherwise the client asks the server to upload the token to the
    /// resource server, and the value is the part of the response that identifies the token.
    pub upload: Option<Returned>,
    /// The bytes that the server sends to the resource server in the upload, together with the token.
    pub to_rs: Option<Vec<u8>>,
}

impl TokenRequest {
    /// Reads the request of a client for a token.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no token request.
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
                    decoder.null()?;
                    request.ace_profile = true;
                }
                CNONCE => request.cnonce = Some(decoder.bytes()?.to_owned()),
                TOKEN_UPLOAD => request.upload = Some(Returned::read(decoder)?),
                TO_RS => request.to_rs = Some(decoder.bytes()?.to_owned()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(request)
    }

    /// Encodes the request.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut map = MapWriter::default();
        map.map(REQ_CNF, self.req_cnf.as_ref(), |map, cnf| cnf.write(map));
        map.optional(AUDIENCE, self.audience.as_deref(), text);
        map.optional(SCOPE, self.scope.as_ref(), |encoder, scope| scope.write(encoder));
        map.optional(CLIENT_ID, self.client_id.as_deref(), text);
        map.optional(GRANT_TYPE, self.grant_type.map(|grant| grant.0), integer);
        map.optional(ACE_PROFILE, self.ace_profile.then_some(()), |encoder, ()| encoder.null().map(|_| ()));
        map.optional(CNONCE, self.cnonce.as_deref(), bytes);
        map.optional(TOKEN_UPLOAD, self.upload.map(Returned::value), number);
        map.optional(TO_RS, self.to_rs.as_deref(), bytes);
        map.finish()
    }
}

/// The 2.01 response that grants a token. A field that is `None` is a parameter that the response does not have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TokenResponse {
    /// The token, which is opaque to the client. It is `None` only if [`Self::uploaded`] is true.
    pub access_token: Option<Vec<u8>>,
    /// Seconds for which the token is valid.
    pub expires_in: Option<u64>,
    /// The key to which the token is bound, if the client did not choose it.
    pub cnf: Option<Confirmation>,
    /// The granted rights, if they differ from the requested rights.
    pub scope: Option<Scope>,
    /// The kind of the token. If it is `None`, the client must prove possession of a key ([`TokenType::POP`]).
    pub token_type: Option<TokenType>,
    /// The profile that the client uses with the resource server.
    pub ace_profile: Option<Profile>,
    /// The public key of the resource server.
    pub rs_cnf: Option<Confirmation>,
    /// The result of the upload: true if the resource server has the token. `None` if the server tried no upload.
    pub uploaded: Option<bool>,
    /// The hash of the token, in the binary format in which a revocation list contains it (RFC 6920, section 6).
    pub token_hash: Option<Vec<u8>>,
}

impl TokenResponse {
    /// Reads the response of an authorization server to a token request.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no response to a token request, or if the response contains no token and does not
    /// state that the resource server has the token.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut response = Self::default();
        read_message(message, |label, decoder| {
            match label {
                ACCESS_TOKEN => response.access_token = Some(decoder.bytes()?.to_owned()),
                EXPIRES_IN => response.expires_in = Some(decoder.u64()?),
                CNF => response.cnf = Some(Confirmation::read(decoder)?),
                SCOPE => response.scope = Some(Scope::read(decoder)?),
                TOKEN_TYPE => response.token_type = Some(TokenType(decoder.i64()?)),
                ACE_PROFILE => response.ace_profile = Some(Profile(decoder.i64()?)),
                RS_CNF => response.rs_cnf = Some(Confirmation::read(decoder)?),
                TOKEN_UPLOAD => {
                    response.uploaded = Some(match decoder.u64()? {
                        0 => true,
                        1 => false,
                        _ => return Err(Malformed::Value(TOKEN_UPLOAD)),
                    });
                }
                TOKEN_HASH => response.token_hash = Some(decoder.bytes()?.to_owned()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let is_whole = response.access_token.is_some() || response.uploaded == Some(true);
        if is_whole { Ok(response) } else { Err(Malformed::Missing(ACCESS_TOKEN)) }
    }

    /// Encodes the response.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut map = MapWriter::default();
        map.optional(ACCESS_TOKEN, self.access_token.as_deref(), bytes);
        map.optional(EXPIRES_IN, self.expires_in, number);
        map.map(CNF, self.cnf.as_ref(), |map, cnf| cnf.write(map));
        map.optional(SCOPE, self.scope.as_ref(), |encoder, scope| scope.write(encoder));
        map.optional(TOKEN_TYPE, self.token_type.map(|kind| kind.0), integer);
        map.optional(ACE_PROFILE, self.ace_profile.map(|profile| profile.0), integer);
        map.map(RS_CNF, self.rs_cnf.as_ref(), |map, cnf| cnf.write(map));
        map.optional(TOKEN_UPLOAD, self.uploaded.map(|uploaded| u64::from(!uploaded)), number);
        map.optional(TOKEN_HASH, self.token_hash.as_deref(), bytes);
        map.finish()
    }
}
