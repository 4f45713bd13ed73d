//! Messages between a member of a Group OSCORE group and its Group Manager (RFC 9594, with the keying material of
//! draft-ietf-ace-key-groupcomm-oscore).
//!
//! The draft suggests several numbers, which IANA has not registered yet (section 16). This module uses the suggested
//! numbers. They can change when the draft becomes an RFC:
//!
//! ```text
//! gkty 1   profile 1   group_senderId of a response 21   ecdh_info 31   sign_enc_key 33   stale_node_ids 34
//! key:  2 ms   4 alg   5 salt   6 contextId (the Group Identifier)     (RFC 9203)
//!       7 group_senderId   8 cred_fmt   9 gp_enc_alg   10 sign_alg   11 sign_params   12 ecdh_alg   13 ecdh_params
//! ```

mod creds;
mod keys;
mod names;
mod rekeying;
mod verification;

pub use creds::{OscoreCred, OscoreCreds, OscoreFilter, subject_of};
pub use keys::{KdcCred, OscoreKeys};
pub use names::{encode_names, parse_gids};
pub use rekeying::OscoreRekeying;
pub use verification::{VerificationData, encode_cnonce, parse_cnonce};

use super::creds::{CLIENT_CRED, CLIENT_CRED_VERIFY, CNONCE, GET_CREDS, KDCCHALLENGE, SIGN_INFO, algorithm_of};
use super::{CONTROL_URI, SCOPE, array};
use crate::cbor::{Malformed, MapWriter, Out, Sink, Written, bytes, integer, number, read_array, read_message, text};
use crate::provider::HostCrypto;
use minicbor::{Decoder, Encoder};
use std::time::Duration;
use tegmen::crypto::{Curve, DIGEST_LEN, GroupCrypto as _, SignatureScheme, Unsupported};
use tegmen::oscore::group::{Algorithms, key_of_ccs};
use tegmen::secret::Secret;

/// The key type Group_OSCORE_Input_Material, and the profile coap_group_oscore_app. The draft suggests both numbers.
const GROUP_OSCORE: i64 = 1;
/// The label of the COSE header parameter for a CWT Claims Set (RFC 9528, section 3.5.3), which is the format of all
/// credentials.
const CCS: i64 = 14;
/// The length of a signature in bytes.
const SIGNATURE: usize = 64;
/// Maximum number of bytes of a nonce of a device.
const LONGEST_NONCE: usize = 64;
/// The label of the Sender ID in a response to a request for a new Sender ID.
const GROUP_SENDER_ID: i64 = 21;
/// The label of the parameters of the pairwise mode in a demand for a proof of possession.
const ECDH_INFO: i64 = 31;
/// The label of the policies of a group, and the labels of two policies (RFC 9594, section 4.3.1).
const GROUP_POLICIES: i64 = 16;
const KEY_UPDATE_CHECK_INTERVAL: i64 = 1;
const EXPIRATION_DELTA: i64 = 2;

/// The policy Key Update Check Interval of a group: the interval at which a member checks that it has the current keys.
pub const KEY_CHECK: Duration = Duration::from_secs(30);

/// The roles of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Roles {
    /// The member sends requests to the group.
    pub requester: bool,
    /// The member responds to requests of the group.
    pub responder: bool,
    /// The member reads requests of the group, and sends nothing. It has no other role.
    pub monitor: bool,
}

impl Roles {
    /// Returns the roles with this number: the sum of 2 for a requester, 4 for a responder and 8 for a monitor. Returns
    /// `None` if a member cannot have these roles together.
    pub const fn of_number(number: u64) -> Option<Self> {
        match number {
            2 | 4 | 6 | 8 => {
                Some(Self { requester: number & 2 != 0, responder: number & 4 != 0, monitor: number & 8 != 0 })
            }
            _ => None,
        }
    }

    /// Returns the roles as a number: the sum of 2 for a requester, 4 for a responder and 8 for a monitor.
    pub const fn number(self) -> u64 {
        let Self { requester, responder, monitor } = self;
        (requester as u64) << 1 | (responder as u64) << 2 | (monitor as u64) << 3
    }

    /// True if these roles include all roles of `others`, a number as [`Self::number`] returns it.
    const fn include(self, others: u64) -> bool {
        self.number() & others == others
    }
}

/// A request to join a Group OSCORE group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OscoreJoinRequest {
    /// The name of the group.
    pub group: String,
    /// The roles that the member wants.
    pub roles: Roles,
    /// The filter for the credentials in the response; `None` for no credentials.
    pub creds: Option<OscoreFilter>,
    /// The nonce of the device (`cnonce`), at most 64 bytes. The proof of the Group Manager covers this nonce: see
    /// [`KdcCred`]. The value is empty if the request has no `cnonce`.
    pub cnonce: Vec<u8>,
    /// The credential of the member, and the proof that the member has its private key.
    pub possession: Option<OscorePossession>,
    /// The URI at which the device serves requests of the Group Manager about this group (RFC 9594, section 4.3.1);
    /// `None` if it serves no such requests.
    pub control_uri: Option<String>,
}

impl OscoreJoinRequest {
    /// Reads a join request.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a join request with a scope of Group OSCORE: see [`Self::is`].
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut scope, mut creds, mut control_uri) = (None, None, None);
        let (mut credential, mut nonce, mut signature) = (None, None, None);
        read_message(message, |label, decoder| {
            match label {
                SCOPE => scope = Some(decoder.bytes()?.to_vec()),
                GET_CREDS => creds = Some(OscoreFilter::read(decoder)?),
                CLIENT_CRED => credential = Some(decoder.bytes()?.to_vec()),
                CNONCE => nonce = Some(decoder.bytes()?.to_vec()),
                CLIENT_CRED_VERIFY => signature = Some(decoder.bytes()?.to_vec()),
                CONTROL_URI => control_uri = Some(decoder.str()?.to_owned()),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let scope = scope.ok_or(Malformed::Missing(SCOPE))?;
        let (group, roles) = read_scope(&scope)?.ok_or(Malformed::Value(SCOPE))?;
        if nonce.as_ref().is_some_and(|nonce: &Vec<u8>| nonce.len() > LONGEST_NONCE) {
            return Err(Malformed::Value(CNONCE));
        }
        let possession = match (credential, &nonce, signature) {
            (Some(credential), Some(_), Some(signature)) => Some(OscorePossession { scope, credential, signature }),
            (None, ..) => None,
            (Some(_), None, _) => return Err(Malformed::Missing(CNONCE)),
            (Some(_), _, None) => return Err(Malformed::Missing(CLIENT_CRED_VERIFY)),
        };
        Ok(Self { group, roles, creds, cnonce: nonce.unwrap_or_default(), possession, control_uri })
    }

    /// True if the scope of a join request has the form of Group OSCORE: its roles are a number.
    pub fn is(message: &[u8]) -> bool {
        let mut is_it = false;
        let read = read_message(message, |label, decoder| {
            let is_scope = label == SCOPE;
            if is_scope {
                is_it = matches!(read_scope(decoder.bytes()?), Ok(Some(_)) | Err(Malformed::Value(_)));
            }
            Ok(is_scope)
        });
        read.is_ok() && is_it
    }

    /// Writes the join request.
    pub fn encode(&self) -> Out {
        let mut map = MapWriter::default();
        let scope = self.possession.as_ref().map_or_else(|| self.scope(), |proof| proof.scope.clone());
        map.entry(SCOPE, |encoder| bytes(encoder, &scope));
        map.optional(GET_CREDS, self.creds.as_ref(), |encoder, filter| filter.write(encoder));
        let possession = self.possession.as_ref();
        map.optional(CLIENT_CRED, possession.map(|proof| proof.credential.as_slice()), bytes);
        map.optional(CNONCE, Some(self.cnonce.as_slice()).filter(|nonce| !nonce.is_empty()), bytes);
        map.optional(CLIENT_CRED_VERIFY, possession.map(|proof| proof.signature.as_slice()), bytes);
        map.optional(CONTROL_URI, self.control_uri.as_deref(), text);
        map.finish()
    }

    /// Returns the bytes of the scope as [`Self::encode`] writes them.
    pub fn scope(&self) -> Vec<u8> {
        let mut scope = Vec::new();
        let mut encoder = Encoder::new(Sink::new(&mut scope));
        let written: Written = (|| {
            encoder.array(2)?.str(&self.group)?.u64(self.roles.number())?;
            Ok(())
        })();
        debug_assert!(written.is_ok(), "a write to memory does not fail");
        scope
    }
}

/// Reads a scope entry: the name of the group, and the number of the roles. Returns `Ok(None)` if the roles are no
/// number, as in a scope of Axiom.
fn read_scope(entry: &[u8]) -> Result<Option<(String, Roles)>, Malformed> {
    let mut decoder = Decoder::new(entry);
    if decoder.array()? != Some(2) {
        return Ok(None);
    }
    let group = decoder.str()?.to_owned();
    if !crate::cbor::is_integer(decoder.datatype()?) {
        return Ok(None);
    }
    let roles = Roles::of_number(decoder.u64()?).ok_or(Malformed::Value(SCOPE))?;
    if decoder.position() == entry.len() { Ok(Some((group, roles))) } else { Err(Malformed::Value(SCOPE)) }
}

/// The credential of a joining device, with the proof that the device has the private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OscorePossession {
    /// The scope of the join request, as bytes.
    pub scope: Vec<u8>,
    /// The credential: a CWT Claims Set (`client_cred`).
    pub credential: Vec<u8>,
    /// The signature (`client_cred_verify`) over the scope, the nonce of the Group Manager and the nonce of the device,
    /// each as a CBOR byte string. It has the form of RFC 9053.
    pub signature: Vec<u8>,
}

impl OscorePossession {
    /// Signs a request to prove the possession of a private key. `request` must have a `cnonce`.
    ///
    /// # Errors
    /// [`Unsupported`] if the private key is not valid on the curve.
    pub fn prove(
        crypto: &mut HostCrypto,
        request: &OscoreJoinRequest,
        challenge: &[u8],
        (credential, curve, private): (Vec<u8>, Curve, &Secret<32>),
    ) -> Result<Self, Unsupported> {
        let scope = request.scope();
        let signed = signed(&[&scope, challenge, &request.cnonce]);
        let signature = crypto.sign_message(curve, private.expose(), &[&signed])?.to_vec();
        Ok(Self { scope, credential, signature })
    }

    /// Writes the payload of a request that replaces the credential of a member (RFC 9594, section 4.9.1). `cnonce` is the
    /// nonce that the signature covers.
    pub fn encode_update(&self, cnonce: &[u8]) -> Out {
        let mut map = MapWriter::default();
        map.entry(CLIENT_CRED, |encoder| bytes(encoder, &self.credential));
        map.entry(CNONCE, |encoder| bytes(encoder, cnonce));
        map.entry(CLIENT_CRED_VERIFY, |encoder| bytes(encoder, &self.signature));
        map.finish()
    }

    /// Reads the payload of a request that replaces the credential of a member. `scope` has the bytes of the scope with
    /// which the member joined, which the signature covers. Returns the proof and the nonce of the device.
    ///
    /// # Errors
    /// [`Malformed`] if one of the three parameters is missing, or if the nonce is longer than 64 bytes.
    pub fn parse_update(message: &[u8], scope: Vec<u8>) -> Result<(Self, Vec<u8>), Malformed> {
        let (mut credential, mut nonce, mut signature) = (None, None, None);
        read_message(message, |label, decoder| {
            let place = match label {
                CLIENT_CRED => &mut credential,
                CNONCE => &mut nonce,
                CLIENT_CRED_VERIFY => &mut signature,
                _ => return Ok(false),
            };
            *place = Some(decoder.bytes()?.to_vec());
            Ok(true)
        })?;
        let credential = credential.ok_or(Malformed::Missing(CLIENT_CRED))?;
        let signature = signature.ok_or(Malformed::Missing(CLIENT_CRED_VERIFY))?;
        let nonce: Vec<u8> = nonce.ok_or(Malformed::Missing(CNONCE))?;
        match nonce.len() <= LONGEST_NONCE {
            true => Ok((Self { scope, credential, signature }, nonce)),
            false => Err(Malformed::Value(CNONCE)),
        }
    }

    /// True if the signature proves that the device has the private key of its credential. `challenge` is the nonce of
    /// the Group Manager, and `cnonce` the nonce of the device. The public key must be a valid key on `curve`.
    pub fn proves(&self, crypto: &mut HostCrypto, curve: Curve, (challenge, cnonce): (&[u8], &[u8])) -> bool {
        let signed = signed(&[&self.scope, challenge, cnonce]);
        verifies(crypto, (curve, &self.credential), &signed, &self.signature)
    }
}

/// Returns byte strings of CBOR with these values, one after the other.
fn signed(parts: &[&[u8]]) -> Vec<u8> {
    let mut signed = Vec::new();
    let mut encoder = Encoder::new(Sink::new(&mut signed));
    let written: Written = parts.iter().try_for_each(|part| bytes(&mut encoder, part));
    debug_assert!(written.is_ok(), "a write to memory does not fail");
    signed
}

/// Verifies a signature with the public key of a credential. The public key must be of the curve.
fn verifies(crypto: &mut HostCrypto, (curve, credential): (Curve, &[u8]), message: &[u8], signature: &[u8]) -> bool {
    let Some(key) = key_of_ccs(credential, &Algorithms::both(curve)) else { return false };
    let Ok(signature) = <&[u8; SIGNATURE]>::try_from(signature) else { return false };
    crypto.validate(&key).is_ok() && crypto.verify_message(&key, &[message], signature).is_ok()
}

/// The demand of a Group Manager for a proof of possession, from a 4.00 response to a join request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OscoreChallenge {
    /// The curve of the keys of the members.
    pub curve: Curve,
    /// The nonce of the Group Manager (`kdcchallenge`).
    pub nonce: [u8; DIGEST_LEN],
}

impl OscoreChallenge {
    /// Writes the payload of the response. `group` is the name of the group.
    pub fn encode(&self, group: &str) -> Out {
        let mut map = MapWriter::default();
        map.entry(SIGN_INFO, |encoder| {
            encoder.array(1)?.array(5)?.array(1)?.str(group)?.i64(algorithm_of(scheme_of(self.curve)))?;
            let (kty, crv) = keys::capabilities(self.curve);
            encoder.array(1)?.i64(kty)?.array(2)?.i64(kty)?.i64(crv)?;
            integer(encoder, CCS)
        });
        map.entry(KDCCHALLENGE, |encoder| bytes(encoder, &self.nonce));
        map.entry(ECDH_INFO, |encoder| {
            encoder.array(1)?.array(5)?.array(1)?.str(group)?.i64(keys::ECDH_SS)?;
            let (kty, crv) = keys::agreement(self.curve);
            encoder.array(1)?.i64(kty)?.array(2)?.i64(kty)?.i64(crv)?;
            integer(encoder, CCS)
        });
        map.finish()
    }

    /// Reads the payload of a response.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut curve, mut nonce) = (None, None);
        read_message(message, |label, decoder| {
            match label {
                SIGN_INFO => read_array(decoder, |decoder| {
                    if decoder.array()? != Some(5) {
                        return Err(Malformed::Value(SIGN_INFO));
                    }
                    decoder.skip()?;
                    curve = curve.or(super::creds::scheme_of(decoder.i64()?).map(curve_of));
                    (0..3).try_for_each(|_| Ok(decoder.skip()?))
                })?,
                KDCCHALLENGE => nonce = Some(array(decoder)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let curve = curve.ok_or(Malformed::Missing(SIGN_INFO))?;
        Ok(Self { curve, nonce: nonce.ok_or(Malformed::Missing(KDCCHALLENGE))? })
    }
}

/// Returns the curve of the keys of a signature scheme.
pub const fn curve_of(scheme: SignatureScheme) -> Curve {
    match scheme {
        SignatureScheme::ED25519 => Curve::Ed25519,
        _ => Curve::P256,
    }
}

/// Returns the signature scheme for keys on a curve.
pub(super) const fn scheme_of(curve: Curve) -> SignatureScheme {
    match curve {
        Curve::Ed25519 => SignatureScheme::ED25519,
        _ => SignatureScheme::ECDSA_SECP256R1_SHA256,
    }
}

/// Returns the bytes of the Sender ID with this number: the number without zeros in front, in at least one byte.
pub fn sender_id_of(number: u32) -> Vec<u8> {
    let digits = number.to_be_bytes();
    let zeros = digits.iter().take_while(|byte| **byte == 0).count().min(3);
    digits.iter().skip(zeros).copied().collect()
}

/// Writes the payload of a response with the policies of a group.
pub fn encode_policies() -> Out {
    let mut map = MapWriter::default();
    write_policies(&mut map);
    map.finish()
}

/// Writes the policies of a group into a map. Members use no keys after the time in `exp`.
fn write_policies(map: &mut MapWriter) {
    map.map(GROUP_POLICIES, Some(KEY_CHECK.as_secs()), |map, interval| {
        map.entry(KEY_UPDATE_CHECK_INTERVAL, |encoder| number(encoder, interval));
        map.entry(EXPIRATION_DELTA, |encoder| number(encoder, 0));
    });
}

/// Writes the payload of a response with a new Sender ID.
pub fn encode_sender_id(id: &[u8]) -> Out {
    let mut map = MapWriter::default();
    map.entry(GROUP_SENDER_ID, |encoder| bytes(encoder, id));
    map.finish()
}

#[cfg(test)]
mod tests;
