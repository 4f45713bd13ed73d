//! The exchange between a client and a resource server at `/authz-info` in the OSCORE profile (RFC 9203, sections 4.1
//! and 4.2).

use super::oscore::{LONGEST, short};
use tegmen_host::cbor::{Malformed, MapWriter, bytes, read_message};

const ACCESS_TOKEN: i64 = 1;
const NONCE_1: i64 = 40;
const NONCE_2: i64 = 42;
const CLIENT_RECIPIENT_ID: i64 = 43;
const SERVER_RECIPIENT_ID: i64 = 44;
/// Maximum number of bytes of a Recipient ID, because no algorithm of OSCORE allows more.
const LONGEST_ID: usize = 7;

/// The request of a client to `/authz-info` (section 4.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostedToken {
    /// The token.
    pub access_token: Vec<u8>,
    /// The client's part of a new Security Context; `None` in an update of the rights.
    pub offer: Option<Offer>,
}

/// The part of a new Security Context that one endpoint contributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The nonce, N1 or N2, at most 64 bytes.
    pub nonce: Vec<u8>,
    /// The Recipient ID of this endpoint, at most 7 bytes.
    pub recipient_id: Vec<u8>,
}

impl PostedToken {
    /// Reads the request with which a client posts a token to a resource server.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no request with a token, or contain only one of nonce and Recipient ID.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut access_token, mut nonce, mut recipient_id) = (None, None, None);
        read_message(message, |label, decoder| {
            match label {
                ACCESS_TOKEN => access_token = Some(decoder.bytes()?.to_owned()),
                NONCE_1 => nonce = Some(short(label, decoder, LONGEST)?),
                CLIENT_RECIPIENT_ID => recipient_id = Some(short(label, decoder, LONGEST_ID)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let offer = match (nonce, recipient_id) {
            (Some(nonce), Some(recipient_id)) => Some(Offer { nonce, recipient_id }),
            (None, None) => None,
            (None, Some(_)) => return Err(Malformed::Missing(NONCE_1)),
            (Some(_), None) => return Err(Malformed::Missing(CLIENT_RECIPIENT_ID)),
        };
        Ok(Self { access_token: access_token.ok_or(Malformed::Missing(ACCESS_TOKEN))?, offer })
    }

    /// Encodes the request.
    pub fn encode(&self) -> Vec<u8> {
        let mut map = MapWriter::default();
        map.entry(ACCESS_TOKEN, |encoder| bytes(encoder, &self.access_token));
        map.optional(NONCE_1, self.offer.as_ref().map(|offer| &*offer.nonce), bytes);
        map.optional(CLIENT_RECIPIENT_ID, self.offer.as_ref().map(|offer| &*offer.recipient_id), bytes);
        map.finish().to_vec()
    }
}

impl Offer {
    /// Reads the response of a resource server to a posted token (RFC 9203, section 4.2).
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no response to a posted token.
    pub fn parse_response(message: &[u8]) -> Result<Self, Malformed> {
        let (mut nonce, mut recipient_id) = (None, None);
        read_message(message, |label, decoder| {
            match label {
                NONCE_2 => nonce = Some(short(label, decoder, LONGEST)?),
                SERVER_RECIPIENT_ID => recipient_id = Some(short(label, decoder, LONGEST_ID)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let nonce = nonce.ok_or(Malformed::Missing(NONCE_2))?;
        Ok(Self { nonce, recipient_id: recipient_id.ok_or(Malformed::Missing(SERVER_RECIPIENT_ID))? })
    }

    /// Encodes the response of a resource server.
    pub fn encode_response(&self) -> Vec<u8> {
        let mut map = MapWriter::default();
        map.entry(NONCE_2, |encoder| bytes(encoder, &self.nonce));
        map.entry(SERVER_RECIPIENT_ID, |encoder| bytes(encoder, &self.recipient_id));
        map.finish().to_vec()
    }
}
