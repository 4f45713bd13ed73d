//! Public keys of members (RFC 9594): the proof of possession in a request to join, and the keys in a response.
//!
//! A credential is a SubjectPublicKeyInfo in DER. The number of this format is -65537, which is in the range for
//! private use. The identifier of a member is its address as 16 bytes of IPv6, followed by its SenderID if it sends
//! requests. The address is zero if the member does not listen.

use super::{AXIOM, JoinRequest, REQUESTER, RESPONDER, array};
use crate::cbor::{
    Malformed, MapWriter, Out, Sink, Written, bytes, integer, number, read_array, read_message, read_message_of,
};
use crate::digest::sha256_of;
use crate::x509::signer::{SignError, Signer};
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};
use tegmen::crypto::{DIGEST_LEN, SignatureScheme};

pub(super) const GET_CREDS: i64 = 4;
pub(super) const CLIENT_CRED: i64 = 5;
pub(super) const CNONCE: i64 = 6;
const NUM: i64 = 9;
const CREDS: i64 = 13;
const PEER_ROLES: i64 = 14;
const PEER_IDENTIFIERS: i64 = 15;
pub(super) const CLIENT_CRED_VERIFY: i64 = 24;
pub(super) const SIGN_INFO: i64 = 29;
pub(super) const KDCCHALLENGE: i64 = 30;

/// Maximum length in bytes of a message with public keys.
pub(super) const MAX_WITH_CREDS: usize = 1 << 20;

/// The signature schemes of a group, and their algorithms in COSE (RFC 9053, section 2).
const ALGORITHMS: [(SignatureScheme, i64); 2] =
    [(SignatureScheme::ECDSA_SECP256R1_SHA256, -7), (SignatureScheme::ED25519, -8)];

/// Returns the COSE number of a signature scheme.
pub(super) fn algorithm_of(scheme: SignatureScheme) -> i64 {
    ALGORITHMS.iter().find(|(known, _)| *known == scheme).map_or(0, |(_, number)| *number)
}

/// Returns the signature scheme with this COSE number.
pub(super) fn scheme_of(algorithm: i64) -> Option<SignatureScheme> {
    ALGORITHMS.iter().find(|(_, number)| *number == algorithm).map(|(scheme, _)| *scheme)
}

/// The public key of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cred {
    /// The SenderID of the member, if it sends requests.
    pub sender_id: Option<u8>,
    /// The source address of the member's responses; zeros if the member does not listen.
    pub address: [u8; 16],
    /// The SubjectPublicKeyInfo in DER.
    pub public_key: Vec<u8>,
}

impl Cred {
    fn listens(&self) -> bool {
        self.address != [0; 16]
    }

    fn identifier(&self) -> Vec<u8> {
        self.address.iter().copied().chain(self.sender_id).collect()
    }

    /// Writes the public keys of members into a map.
    pub(super) fn write_all(creds: &[Self], map: &mut MapWriter) {
        map.entry(CREDS, |encoder| each(encoder, creds, |encoder, cred| bytes(encoder, &cred.public_key)));
        map.entry(PEER_ROLES, |encoder| {
            each(encoder, creds, |encoder, cred| {
                match (cred.sender_id.is_some(), cred.listens()) {
                    (true, true) => encoder.array(2)?.str(REQUESTER)?.str(RESPONDER)?,
                    (true, false) => encoder.str(REQUESTER)?,
                    (false, _) => encoder.str(RESPONDER)?,
                };
                Ok(())
            })
        });
        map.entry(PEER_IDENTIFIERS, |encoder| each(encoder, creds, |encoder, cred| bytes(encoder, &cred.identifier())));
    }
}

/// Writes an array.
pub(super) fn each<T>(
    encoder: &mut Encoder<Sink<'_>>,
    items: &[T],
    mut write: impl FnMut(&mut Encoder<Sink<'_>>, &T) -> Written,
) -> Written {
    encoder.array(items.len() as u64)?;
    items.iter().try_for_each(|item| write(encoder, item))
}

/// The public keys of members from a map that is being read.
#[derive(Default)]
pub(super) struct ReadCreds {
    public_keys: Option<Vec<Vec<u8>>>,
    identifiers: Vec<Vec<u8>>,
}

impl ReadCreds {
    /// Reads the value of a label. Returns false if the label does not belong to public keys of members.
    pub(super) fn take(&mut self, label: i64, decoder: &mut Decoder<'_>) -> Result<bool, Malformed> {
        let into = match label {
            CREDS => self.public_keys.get_or_insert_default(),
            PEER_IDENTIFIERS => &mut self.identifiers,
            _ => return Ok(false),
        };
        read_array(decoder, |decoder| {
            into.push(decoder.bytes()?.to_vec());
            Ok(())
        })?;
        Ok(true)
    }

    /// Returns the public keys as [`Self::finish`] does; `None` if the map has no parameter `creds`.
    pub(super) fn finish_if_any(self) -> Result<Option<Vec<Cred>>, Malformed> {
        let has_creds = self.public_keys.is_some();
        self.finish().map(|creds| has_creds.then_some(creds))
    }

    /// Returns the public keys, each with the address and the SenderID of its member.
    fn finish(self) -> Result<Vec<Cred>, Malformed> {
        let public_keys = self.public_keys.unwrap_or_default();
        if public_keys.len() != self.identifiers.len() {
            return Err(Malformed::Value(PEER_IDENTIFIERS));
        }
        let pairs = self.identifiers.into_iter().zip(public_keys);
        let creds = pairs.map(|(identifier, public_key)| {
            let (address, rest) = identifier.split_first_chunk().ok_or(Malformed::Value(PEER_IDENTIFIERS))?;
            let sender_id = match rest {
                [] => None,
                [id] => Some(*id),
                _ => return Err(Malformed::Value(PEER_IDENTIFIERS)),
            };
            Ok(Cred { sender_id, address: *address, public_key })
        });
        creds.collect()
    }
}

/// The public keys of members in an epoch, from the response to a request for public keys (RFC 9594, section 4.4).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Creds {
    /// The epoch.
    pub epoch: u16,
    /// The public keys.
    pub creds: Vec<Cred>,
}

impl Creds {
    /// Writes the payload of the response.
    pub fn encode(&self) -> Out {
        let mut map = MapWriter::default();
        map.entry(NUM, |encoder| number(encoder, self.epoch.into()));
        Cred::write_all(&self.creds, &mut map);
        map.finish()
    }

    /// Reads the payload of a response.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not the payload of a response with public keys.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut epoch, mut read) = (None, ReadCreds::default());
        read_message_of(message, MAX_WITH_CREDS, |label, decoder| match label {
            NUM => {
                epoch = Some(decoder.u16()?);
                Ok(true)
            }
            label => read.take(label, decoder),
        })?;
        Ok(Self { epoch: epoch.ok_or(Malformed::Missing(NUM))?, creds: read.finish()? })
    }
}

/// The filter of a request for public keys (`get_creds`). The filter selects members; the default selects all members.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CredsFilter {
    /// Roles of members. An empty list selects all roles.
    pub roles: Vec<String>,
    /// The SenderIDs (1 byte each) or addresses (16 bytes each) of members. An empty list selects all members.
    pub members: Vec<Vec<u8>>,
    /// True if the filter selects all members except `members`.
    pub excludes: bool,
}

impl CredsFilter {
    /// Returns a filter that selects all members with this role.
    pub fn of_role(role: &str) -> Self {
        Self { roles: vec![role.to_owned()], ..Self::default() }
    }

    /// True if the filter selects the member.
    pub fn selects(&self, cred: &Cred) -> bool {
        let has = |role: &String| match role.as_str() {
            REQUESTER => cred.sender_id.is_some(),
            RESPONDER => cred.listens(),
            _ => false,
        };
        let is_it = |id: &Vec<u8>| match id.as_slice() {
            [id] => cred.sender_id == Some(*id),
            id => id == cred.address,
        };
        let is_listed = self.members.iter().any(is_it);
        (self.roles.is_empty() || self.roles.iter().any(has)) && (self.members.is_empty() || is_listed != self.excludes)
    }

    /// Reads the value of `get_creds`. An array without roles and members is malformed (RFC 9594, section 4.4.1).
    pub(super) fn read(decoder: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let mut filter = Self::default();
        if decoder.datatype()? == Type::Null {
            decoder.null()?;
            return Ok(filter);
        }
        if decoder.array()? != Some(3) {
            return Err(Malformed::Value(GET_CREDS));
        }
        filter.excludes = !decoder.bool()?;
        read_array(decoder, |decoder| {
            filter.roles.push(decoder.str()?.to_owned());
            Ok(())
        })?;
        read_array(decoder, |decoder| {
            filter.members.push(decoder.bytes()?.to_vec());
            Ok(())
        })?;
        if filter.roles.is_empty() && filter.members.is_empty() {
            return Err(Malformed::Value(GET_CREDS));
        }
        Ok(filter)
    }

    /// Writes the value of `get_creds`.
    pub(super) fn write(&self, encoder: &mut Encoder<Sink<'_>>) -> Written {
        if *self == Self::default() {
            encoder.null()?;
            return Ok(());
        }
        encoder.array(3)?.bool(!self.excludes)?;
        each(encoder, &self.roles, |encoder, role| encoder.str(role).map(|_| ()))?;
        each(encoder, &self.members, |encoder, member| bytes(encoder, member))
    }

    /// Reads the payload of a FETCH request.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut filter = None;
        read_message(message, |label, decoder| {
            let is_it = label == GET_CREDS;
            if is_it {
                filter = Some(Self::read(decoder)?);
            }
            Ok(is_it)
        })?;
        filter.ok_or(Malformed::Missing(GET_CREDS))
    }

    /// Writes the payload of a FETCH request.
    pub fn encode(&self) -> Out {
        let mut map = MapWriter::default();
        map.entry(GET_CREDS, |encoder| self.write(encoder));
        map.finish()
    }
}

/// The controller's demand for a proof of possession, from a 4.00 response to a join request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Challenge {
    /// The signature scheme of the group.
    pub scheme: SignatureScheme,
    /// The nonce of the controller (`kdcchallenge`).
    pub nonce: [u8; DIGEST_LEN],
}

impl Challenge {
    /// Writes the payload of the response. `group` is the name of the group.
    pub fn encode(&self, group: &str) -> Out {
        let mut map = MapWriter::default();
        map.entry(SIGN_INFO, |encoder| {
            encoder.array(1)?.array(5)?.array(1)?.str(group)?;
            encoder.i64(algorithm_of(self.scheme))?.array(0)?.array(0)?;
            integer(encoder, AXIOM)
        });
        map.entry(KDCCHALLENGE, |encoder| bytes(encoder, &self.nonce));
        map.finish()
    }

    /// Reads the payload of a response.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut scheme, mut nonce) = (None, None);
        read_message(message, |label, decoder| {
            match label {
                SIGN_INFO => read_array(decoder, |decoder| {
                    if decoder.array()? != Some(5) {
                        return Err(Malformed::Value(SIGN_INFO));
                    }
                    decoder.skip()?;
                    scheme = scheme.or(scheme_of(decoder.i64()?));
                    (0..3).try_for_each(|_| Ok(decoder.skip()?))
                })?,
                KDCCHALLENGE => nonce = Some(array(decoder)?),
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let scheme = scheme.ok_or(Malformed::Missing(SIGN_INFO))?;
        Ok(Self { scheme, nonce: nonce.ok_or(Malformed::Missing(KDCCHALLENGE))? })
    }
}

/// The public key of a joining device, with the proof that the device has the private key (RFC 9594, section 4.3.1).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Possession {
    /// The scope of the join request, as bytes.
    pub scope: Vec<u8>,
    /// The SubjectPublicKeyInfo in DER (`client_cred`).
    pub public_key: Vec<u8>,
    /// The nonce of the device (`cnonce`).
    pub nonce: Vec<u8>,
    /// The signature (`client_cred_verify`). It signs the SHA-256 digest of `scope`, the nonce of the controller and
    /// the nonce of the device, each as a CBOR byte string. With ECDSA it is an ECDSA-Sig-Value in DER. With Ed25519
    /// the digest is the signed message.
    pub signature: Vec<u8>,
}

impl Possession {
    /// Signs a request to prove the possession of a private key.
    ///
    /// # Errors
    /// [`SignError`].
    pub fn prove(
        request: &JoinRequest,
        challenge: &Challenge,
        nonce: [u8; 8],
        key: &dyn Signer,
    ) -> Result<Self, SignError> {
        let scope = request.scope();
        let signature = key.sign_digest(&digest(&scope, &challenge.nonce, &nonce))?;
        Ok(Self { scope, public_key: key.public_key().to_vec(), nonce: nonce.to_vec(), signature })
    }

    /// Returns the digest that the device signs. `challenge` is the nonce of the controller.
    pub fn digest(&self, challenge: &[u8; DIGEST_LEN]) -> [u8; DIGEST_LEN] {
        digest(&self.scope, challenge, &self.nonce)
    }
}

fn digest(scope: &[u8], challenge: &[u8; DIGEST_LEN], nonce: &[u8]) -> [u8; DIGEST_LEN] {
    let mut signed = Vec::new();
    let mut encoder = Encoder::new(Sink::new(&mut signed));
    let written: Written = [scope, challenge, nonce].into_iter().try_for_each(|part| bytes(&mut encoder, part));
    debug_assert!(written.is_ok(), "a write to memory does not fail");
    sha256_of(&[&signed])
}
