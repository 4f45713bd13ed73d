//! The keying material of a Group OSCORE group: the Group_OSCORE_Input_Material object.

use super::super::creds::{MAX_WITH_CREDS, algorithm_of, scheme_of as scheme_with};
use super::super::{GKTY, KEY, PROFILE};
use super::creds::{NUM, ReadOscoreCreds};
use super::{CCS, GROUP_OSCORE, OscoreCred, scheme_of, signed, verifies, write_policies};
use crate::cbor::{Malformed, MapWriter, Out, Sink, Written, bytes, integer, number, read_map, read_message_of};
use crate::provider::HostCrypto;
use minicbor::{Decoder, Encoder};
use tegmen::crypto::{Curve, GroupCrypto as _, Unsupported};
use tegmen::oscore::Aead;
use tegmen::secret::Secret;
use tegmen_store::clock::now;
use zeroize::Zeroizing;

pub(super) const EXP: i64 = 11;
/// The label of the number of seconds from the response to the time in [`EXP`].
pub(super) const EXI: i64 = 12;
const KDC_CRED: i64 = 17;
const KDC_NONCE: i64 = 18;
const KDC_CRED_VERIFY: i64 = 19;

// Labels of the parameters of a security context (RFC 9203, section 3.2.1). The labels from GROUP_SENDER_ID on are the
// suggestions of section 16.6 of the draft.
pub(super) const MS: i64 = 2;
const HKDF: i64 = 3;
const ALG: i64 = 4;
pub(super) const SALT: i64 = 5;
pub(super) const CONTEXT_ID: i64 = 6;
const GROUP_SENDER_ID: i64 = 7;
const CRED_FMT: i64 = 8;
const GP_ENC_ALG: i64 = 9;
const SIGN_ALG: i64 = 10;
const SIGN_PARAMS: i64 = 11;
const ECDH_ALG: i64 = 12;
const ECDH_PARAMS: i64 = 13;

/// The two COSE algorithm numbers for HKDF with SHA-256 that RFC 9203 allows in the parameter `hkdf`: the number of the
/// HKDF, and the number of its HMAC.
const HKDF_SHA_256: [i64; 2] = [-10, 5];
/// ECDH-SS + HKDF-256 (RFC 9053, section 6.3.1).
pub(super) const ECDH_SS: i64 = -27;

/// Returns the key type and the curve of COSE for keys on this curve.
pub(super) const fn capabilities(curve: Curve) -> (i64, i64) {
    match curve {
        Curve::P256 => (2, 1),
        Curve::X25519 => (1, 4),
        Curve::Ed25519 => (1, 6),
    }
}

/// Returns the key type and the curve of COSE for the key agreement of the pairwise mode. Keys on Ed25519 are converted
/// to X25519 (section 14.3 of the draft).
pub(super) const fn agreement(curve: Curve) -> (i64, i64) {
    capabilities(match curve {
        Curve::Ed25519 => Curve::X25519,
        other => other,
    })
}

/// The keying material of a group for one member. Secrets are wiped on drop.
pub struct OscoreKeys {
    /// The Group Identifier.
    pub gid: Vec<u8>,
    /// The Master Secret.
    pub master_secret: Zeroizing<Vec<u8>>,
    /// The Master Salt, which may be empty.
    pub master_salt: Vec<u8>,
    /// The algorithm that encrypts messages of both modes.
    pub aead: Aead,
    /// The curve of the keys of all members.
    pub curve: Curve,
    /// The Sender ID of the member; `None` for a monitor, and in a response that has only the keys of the group.
    pub sender_id: Option<Vec<u8>>,
    /// The version of the keying material, from 1.
    pub number: u16,
    /// The time after which the keying material must not be used, in seconds since 1970.
    pub expires: u64,
    /// Credentials of other members; `None` if the member has not asked for credentials.
    pub creds: Option<Vec<OscoreCred>>,
    /// The credential of the Group Manager, in the response to a join request.
    pub kdc: Option<KdcCred>,
}

/// The credential of a Group Manager, with the proof that the Group Manager has the private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KdcCred {
    /// The credential: a CWT Claims Set.
    pub credential: Vec<u8>,
    /// A nonce of the Group Manager.
    pub nonce: Vec<u8>,
    /// The signature over the nonce of the member (`cnonce` of its request to join) and the nonce of the Group Manager,
    /// each as a CBOR byte string (RFC 9594, section 4.3.1).
    pub signature: Vec<u8>,
}

impl KdcCred {
    /// Signs the nonces of a member and of the Group Manager to prove the possession of the private key.
    ///
    /// # Errors
    /// [`Unsupported`] if the private key is not valid on the curve.
    pub fn prove(
        crypto: &mut HostCrypto,
        (cnonce, nonce): (&[u8], [u8; 8]),
        (credential, curve, private): (Vec<u8>, Curve, &Secret<32>),
    ) -> Result<Self, Unsupported> {
        let signature = crypto.sign_message(curve, private.expose(), &[&signed(&[cnonce, &nonce])])?;
        Ok(Self { credential, nonce: nonce.to_vec(), signature: signature.to_vec() })
    }

    /// True if the signature proves that the Group Manager has the private key of its credential. `cnonce` is the nonce
    /// in the request with which the member joined.
    pub fn proves(&self, crypto: &mut HostCrypto, curve: Curve, cnonce: &[u8]) -> bool {
        verifies(crypto, (curve, &self.credential), &signed(&[cnonce, &self.nonce]), &self.signature)
    }

    fn write(&self, map: &mut MapWriter) {
        map.entry(KDC_CRED, |encoder| bytes(encoder, &self.credential));
        map.entry(KDC_NONCE, |encoder| bytes(encoder, &self.nonce));
        map.entry(KDC_CRED_VERIFY, |encoder| bytes(encoder, &self.signature));
    }

    /// Writes the payload of a response with the credential of the Group Manager.
    pub fn encode(&self) -> Out {
        let mut map = MapWriter::default();
        self.write(&mut map);
        map.finish()
    }

    /// Reads the payload of a response with the credential of the Group Manager.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not such a payload.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut read = ReadKdcCred::default();
        read_message_of(message, MAX_WITH_CREDS, |label, decoder| read.take(label, decoder))?;
        read.finish_if_any()?.ok_or(Malformed::Missing(KDC_CRED))
    }
}

/// The credential of a Group Manager, and its proof, from a map that is being read.
#[derive(Default)]
struct ReadKdcCred {
    credential: Option<Vec<u8>>,
    nonce: Option<Vec<u8>>,
    signature: Option<Vec<u8>>,
}

impl ReadKdcCred {
    /// Reads the value of a label. Returns false if the label does not belong to the credential of a Group Manager.
    fn take(&mut self, label: i64, decoder: &mut Decoder<'_>) -> Result<bool, Malformed> {
        let place = match label {
            KDC_CRED => &mut self.credential,
            KDC_NONCE => &mut self.nonce,
            KDC_CRED_VERIFY => &mut self.signature,
            _ => return Ok(false),
        };
        *place = Some(decoder.bytes()?.to_vec());
        Ok(true)
    }

    /// Returns the credential with its proof; `None` if the map has none of the three parameters.
    fn finish_if_any(self) -> Result<Option<KdcCred>, Malformed> {
        match (self.credential, self.nonce, self.signature) {
            (Some(credential), Some(nonce), Some(signature)) => Ok(Some(KdcCred { credential, nonce, signature })),
            (None, None, None) => Ok(None),
            _ => Err(Malformed::Value(KDC_CRED)),
        }
    }
}

impl OscoreKeys {
    /// Writes the payload of a response with keying material.
    pub fn encode(&self) -> Out {
        let mut map = MapWriter::default();
        map.entry(GKTY, |encoder| integer(encoder, GROUP_OSCORE));
        map.map(KEY, Some(self), |map, keys| keys.write_key(map));
        map.entry(NUM, |encoder| number(encoder, self.number.into()));
        map.entry(PROFILE, |encoder| integer(encoder, GROUP_OSCORE));
        map.entry(EXP, |encoder| number(encoder, self.expires));
        map.entry(EXI, |encoder| number(encoder, self.expires.saturating_sub(now())));
        if let Some(creds) = &self.creds {
            OscoreCred::write_all(creds, &mut map);
        }
        // Only the response to a join request has these parameters.
        if let Some(kdc) = &self.kdc {
            write_policies(&mut map);
            kdc.write(&mut map);
        }
        map.finish()
    }

    fn write_key(&self, map: &mut MapWriter) {
        let salt = Some(self.master_salt.as_slice()).filter(|salt| !salt.is_empty());
        map.entry(MS, |encoder| bytes(encoder, &self.master_secret));
        map.entry(ALG, |encoder| integer(encoder, self.aead.cose_id().into()));
        map.optional(SALT, salt, bytes);
        map.entry(CONTEXT_ID, |encoder| bytes(encoder, &self.gid));
        map.optional(GROUP_SENDER_ID, self.sender_id.as_deref(), bytes);
        write_algorithms(map, self.aead, self.curve);
        map.entry(ECDH_PARAMS, |encoder| parameters(encoder, agreement(self.curve)));
    }

    /// Reads the payload of a response.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not keying material of Group OSCORE, or if the group uses algorithms that this
    /// program does not have: see [`Malformed::Value`], whose number is the label of a parameter of RFC 9594.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut key = ReadKey::default();
        let (mut kind, mut version, mut expires) = (None, None, None);
        let (mut creds, mut kdc) = (ReadOscoreCreds::default(), ReadKdcCred::default());
        let mut has_key = false;
        read_message_of(message, MAX_WITH_CREDS, |label, decoder| {
            match label {
                GKTY => kind = Some(decoder.i64()?),
                KEY => {
                    read_map(decoder, |label, decoder| key.take(label, decoder))?;
                    has_key = true;
                }
                NUM => version = Some(decoder.u16()?),
                EXP => expires = Some(decoder.u64()?),
                _ => return Ok(creds.take(label, decoder)? || kdc.take(label, decoder)?),
            }
            Ok(true)
        })?;
        if kind != Some(GROUP_OSCORE) {
            return Err(Malformed::Value(GKTY));
        }
        if !has_key {
            return Err(Malformed::Missing(KEY));
        }
        let kdc = kdc.finish_if_any()?;
        let Some((aead, curve, gid)) = key.known() else { return Err(Malformed::Value(KEY)) };
        Ok(Self {
            gid,
            master_secret: key.secret,
            master_salt: key.salt,
            aead,
            curve,
            sender_id: key.sender_id,
            number: version.ok_or(Malformed::Missing(NUM))?,
            expires: expires.ok_or(Malformed::Missing(EXP))?,
            creds: creds.finish_if_any()?,
            kdc,
        })
    }
}

/// Writes the format of the credentials, and the algorithms of both modes except the AEAD Algorithm.
fn write_algorithms(map: &mut MapWriter, aead: Aead, curve: Curve) {
    map.entry(CRED_FMT, |encoder| integer(encoder, CCS));
    map.entry(GP_ENC_ALG, |encoder| integer(encoder, aead.cose_id().into()));
    map.entry(SIGN_ALG, |encoder| integer(encoder, algorithm_of(scheme_of(curve))));
    map.entry(SIGN_PARAMS, |encoder| parameters(encoder, capabilities(curve)));
    map.entry(ECDH_ALG, |encoder| integer(encoder, ECDH_SS));
}

/// Writes the parameters of an algorithm that uses keys of this type on this curve.
fn parameters(encoder: &mut Encoder<Sink<'_>>, (kty, crv): (i64, i64)) -> Written {
    encoder.array(2)?.array(1)?.i64(kty)?.array(2)?.i64(kty)?;
    integer(encoder, crv)
}

/// Writes the parameters in the `key` of a response for signature verifiers (section 9.6).
pub(super) fn write_verification_key(map: &mut MapWriter, gid: &[u8], (aead, curve): (Aead, Curve)) {
    let [_, hkdf] = HKDF_SHA_256;
    map.entry(HKDF, |encoder| integer(encoder, hkdf));
    map.entry(ALG, |encoder| integer(encoder, aead.cose_id().into()));
    map.entry(CONTEXT_ID, |encoder| bytes(encoder, gid));
    write_algorithms(map, aead, curve);
}

/// The parameters of a security context that are being read.
#[derive(Default)]
pub(super) struct ReadKey {
    pub(super) secret: Zeroizing<Vec<u8>>,
    pub(super) salt: Vec<u8>,
    pub(super) gid: Option<Vec<u8>>,
    sender_id: Option<Vec<u8>>,
    hkdf: Option<i64>,
    alg: Option<i64>,
    gp_enc_alg: Option<i64>,
    sign_alg: Option<i64>,
    ecdh_alg: Option<i64>,
    cred_fmt: Option<i64>,
}

impl ReadKey {
    pub(super) fn take(&mut self, label: i64, decoder: &mut Decoder<'_>) -> Result<bool, Malformed> {
        match label {
            MS => self.secret = Zeroizing::new(decoder.bytes()?.to_vec()),
            SALT => self.salt = decoder.bytes()?.to_vec(),
            CONTEXT_ID => self.gid = Some(decoder.bytes()?.to_vec()),
            GROUP_SENDER_ID => self.sender_id = Some(decoder.bytes()?.to_vec()),
            HKDF => self.hkdf = Some(decoder.i64()?),
            ALG => self.alg = Some(decoder.i64()?),
            GP_ENC_ALG => self.gp_enc_alg = Some(decoder.i64()?),
            SIGN_ALG => self.sign_alg = Some(decoder.i64()?),
            ECDH_ALG => self.ecdh_alg = Some(decoder.i64()?),
            CRED_FMT => self.cred_fmt = Some(decoder.i64()?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the algorithm, the curve and the Group Identifier, if this program has all algorithms of the group.
    pub(super) fn known(&self) -> Option<(Aead, Curve, Vec<u8>)> {
        let is_known = self.hkdf.is_none_or(|hkdf| HKDF_SHA_256.contains(&hkdf))
            && self.ecdh_alg == Some(ECDH_SS)
            && self.cred_fmt == Some(CCS)
            && self.alg == self.gp_enc_alg;
        let aead = Aead::ALL.into_iter().find(|aead| Some(i64::from(aead.cose_id())) == self.alg)?;
        let curve = super::curve_of(scheme_with(self.sign_alg?)?);
        self.gid.clone().filter(|_| is_known).map(|gid| (aead, curve, gid))
    }
}
