//! The claims of a token (RFC 8392, RFC 8747, RFC 9200), in a CWT and in a response to an introspection.

use super::key::Confirmation;
use super::scope::{SCOPE, Scope};
use super::token::{ACE_PROFILE, CNF, CNONCE, Profile};
use minicbor::Decoder;
use tegmen_host::cbor::{Malformed, MapWriter, bytes, integer, number, read_message, text};
use zeroize::Zeroizing;

const ISS: i64 = 1;
const SUB: i64 = 2;
const AUD: i64 = 3;
const EXP: i64 = 4;
const NBF: i64 = 5;
const IAT: i64 = 6;
const CTI: i64 = 7;
/// The label of `active`, which is no claim but a parameter of the response to an introspection. The response contains
/// `active` after the scope, and before the claims with higher labels.
pub(super) const ACTIVE: i64 = 10;
const EXI: i64 = 40;

/// The claims of a token. A field that is `None` is a claim that the token does not have. Times are seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Claims {
    /// The name of the authorization server that issued the token.
    pub issuer: Option<String>,
    /// The name of the party that the token is about: the client.
    pub subject: Option<String>,
    /// The name of the resource server for which the token is.
    pub audience: Option<String>,
    /// The time from which the token is no longer valid.
    pub expires: Option<u64>,
    /// The time before which the token is not valid.
    pub not_before: Option<u64>,
    /// The time at which the token was issued.
    pub issued_at: Option<u64>,
    /// The identifier of the token.
    pub id: Option<Vec<u8>>,
    /// The key of which the client must prove possession.
    pub cnf: Option<Confirmation>,
    /// The rights of the token.
    pub scope: Option<Scope>,
    /// The ACE profile that client and resource server use.
    pub ace_profile: Option<Profile>,
    /// The nonce that the resource server gave the client. It proves to the resource server that the token is fresh.
    pub cnonce: Option<Vec<u8>>,
    /// Seconds for which the token is valid after its first use, for a resource server without a clock (RFC 9200,
    /// section 5.10.3).
    pub expires_in: Option<u64>,
}

impl Claims {
    /// Reads the claims set of a CWT.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no claims set.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut claims = Self::default();
        read_message(message, |label, decoder| claims.take(label, decoder))?;
        Ok(claims)
    }

    /// Encodes the claims set.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut map = MapWriter::default();
        self.write(None, &mut map);
        map.finish()
    }

    /// Reads the claim with this label; returns false if no claim has this label.
    pub(super) fn take(&mut self, label: i64, decoder: &mut Decoder<'_>) -> Result<bool, Malformed> {
        match label {
            ISS => self.issuer = Some(decoder.str()?.to_owned()),
            SUB => self.subject = Some(decoder.str()?.to_owned()),
            AUD => self.audience = Some(decoder.str()?.to_owned()),
            EXP => self.expires = Some(decoder.u64()?),
            NBF => self.not_before = Some(decoder.u64()?),
            IAT => self.issued_at = Some(decoder.u64()?),
            CTI => self.id = Some(decoder.bytes()?.to_owned()),
            CNF => self.cnf = Some(Confirmation::read(decoder)?),
            SCOPE => self.scope = Some(Scope::read(decoder)?),
            ACE_PROFILE => self.ace_profile = Some(Profile(decoder.i64()?)),
            CNONCE => self.cnonce = Some(decoder.bytes()?.to_owned()),
            EXI => self.expires_in = Some(decoder.u64()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Writes the claims. If `active` is given, it is written at the position of its label.
    pub(super) fn write(&self, active: Option<bool>, map: &mut MapWriter) {
        map.optional(ISS, self.issuer.as_deref(), text);
        map.optional(SUB, self.subject.as_deref(), text);
        map.optional(AUD, self.audience.as_deref(), text);
        map.optional(EXP, self.expires, number);
        map.optional(NBF, self.not_before, number);
        map.optional(IAT, self.issued_at, number);
        map.optional(CTI, self.id.as_deref(), bytes);
        map.map(CNF, self.cnf.as_ref(), |map, cnf| cnf.write(map));
        map.optional(SCOPE, self.scope.as_ref(), |encoder, scope| scope.write(encoder));
        map.optional(ACTIVE, active, |encoder, active| encoder.bool(active).map(|_| ()));
        map.optional(ACE_PROFILE, self.ace_profile.map(|profile| profile.0), integer);
        map.optional(CNONCE, self.cnonce.as_deref(), bytes);
        map.optional(EXI, self.expires_in, number);
    }
}
