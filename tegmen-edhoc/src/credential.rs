//! Credentials (RFC 9528, section 3.5.2): CWT Claims Sets with a public key on P-256.

use lakers::{BufferCred, BufferKid, CredentialKey, CredentialTransfer, IdCred};
use tegmen_base::buf::{Full, Reader, Writer};
use tegmen_base::cbor;
use tegmen_base::secret::Secret;

/// Maximum number of bytes of a credential.
pub const MAX_CREDENTIAL: usize = 128;
/// Maximum number of bytes of a `kid`.
const MAX_KID: usize = 16;

/// A CWT Claims Set (CCS) with a public key on P-256, and optionally with the name of the owner of this key. Both peers
/// must have identical bytes of the credential.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Credential(pub(crate) lakers::Credential);

/// The reason why bytes are not a valid [`Credential`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadCredential {
    /// The credential is longer than [`MAX_CREDENTIAL`], or its `kid` is longer than 16 bytes.
    TooLong,
    /// The bytes are not a CBOR map of definite length, or the map does not have the necessary entries: a confirmation
    /// (8) with a COSE_Key (1), and optionally a subject (2). The COSE_Key has kty, crv, x and y, and optionally kid.
    Malformed,
    /// The public key is not on P-256.
    Key,
}

impl Credential {
    /// Reads a credential.
    ///
    /// # Errors
    /// [`BadCredential`] has the reason.
    pub fn parse(bytes: &[u8]) -> Result<Self, BadCredential> {
        if bytes.len() > MAX_CREDENTIAL {
            return Err(BadCredential::TooLong);
        }
        let mut reader = Reader::new(bytes);
        let parts = Parts::read(&mut reader).filter(|_| reader.is_empty()).ok_or(BadCredential::Malformed)?;
        // A key of the type EC2 has both coordinates, although EDHOC uses x alone (RFC 9053, section 7.1.1).
        let (Some(kty), Some(curve), Some(x), Some(_)) = (parts.kty, parts.curve, parts.x, parts.y) else {
            return Err(BadCredential::Malformed);
        };
        let x: [u8; 32] = x.try_into().map_err(|_| BadCredential::Key)?;
        if (kty, curve) != (KTY_EC2, CURVE_P256) {
            return Err(BadCredential::Key);
        }
        let copy = BufferCred::new_from_slice(bytes).map_err(|_| BadCredential::TooLong)?;
        let mut credential = lakers::Credential::new_ccs(copy, x);
        if let Some(kid) = parts.kid {
            if kid.len() > MAX_KID {
                return Err(BadCredential::TooLong);
            }
            let kid = BufferKid::new_from_slice(kid).map_err(|_| BadCredential::TooLong)?;
            credential = credential.with_kid(kid);
        }
        Ok(Self(credential))
    }

    /// Writes the credential of a public key into `out`, and returns its bytes. `subject` is the name of the owner,
    /// `kid` is the short name of the key, and `share` is the public key as a point (SEC 1, uncompressed, 65 bytes).
    ///
    /// # Errors
    /// [`Full`] if `out` is too short. [`MAX_CREDENTIAL`] bytes are enough for a subject and a `kid` of 37 bytes
    /// together.
    pub fn write<'o>(subject: Option<&str>, kid: &[u8], share: &[u8; 65], out: &'o mut [u8]) -> Result<&'o [u8], Full> {
        let mut writer = Writer::new(out);
        cbor::write_head(cbor::MAP, if subject.is_some() { 2 } else { 1 }, &mut writer)?;
        if let Some(subject) = subject {
            writer.u8(SUBJECT)?;
            cbor::write_head(cbor::TEXT, subject.len(), &mut writer)?;
            writer.put(subject.as_bytes())?;
        }
        // The members are in the order of RFC 8949, section 4.2.1, in which other implementations encode them again.
        writer.put(&[CONFIRMATION, 0xa1, COSE_KEY, 0xa5, 1, KTY_EC2, 2])?;
        cbor::write_head(cbor::BYTES, kid.len(), &mut writer)?;
        writer.put(kid)?;
        let (_, point) = share.split_at(1);
        let (x, y) = point.split_at(32);
        // The label -1 with the curve, then the labels -2 and -3 with the coordinates.
        writer.put(&[0x20, CURVE_P256, 0x21])?;
        cbor::write_head(cbor::BYTES, x.len(), &mut writer)?;
        writer.put(x)?;
        writer.u8(0x22)?;
        cbor::write_head(cbor::BYTES, y.len(), &mut writer)?;
        writer.put(y)?;
        Ok(writer.finish())
    }

    /// Returns the bytes of the credential.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.bytes.content.get(..self.0.bytes.len).unwrap_or(&[])
    }

    /// Returns the short name of the key, if it has one.
    pub fn kid(&self) -> Option<&[u8]> {
        let kid = self.0.kid.as_ref()?;
        kid.content.get(..kid.len)
    }

    /// True if the x-coordinate of the key has these bytes.
    pub fn has_x(&self, x: &[u8]) -> bool {
        matches!(&self.0.key, CredentialKey::EC2Compact(ours) if ours == x)
    }

    /// True if `id` identifies this credential.
    pub fn is_meant_by(&self, id: &CredentialId<'_>) -> bool {
        match id {
            CredentialId::Kid(kid) => self.kid() == Some(kid),
            CredentialId::Value(value) => self.as_bytes() == *value,
        }
    }
}

/// The identification of the sender's credential in a message (RFC 9528, section 3.5.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CredentialId<'m> {
    /// The message contains the `kid` of the credential.
    Kid(&'m [u8]),
    /// The message contains the whole credential.
    Value(&'m [u8]),
}

impl<'m> CredentialId<'m> {
    /// Reads ID_CRED_I or ID_CRED_R. Returns `None` if it is neither a `kid` nor a whole credential.
    pub(crate) fn read(id: &'m IdCred) -> Option<Self> {
        let bytes = id.bytes.content.get(..id.bytes.len)?;
        match bytes {
            [0xa1, lakers::KCCS_LABEL, value @ ..] => Some(Self::Value(value)),
            [0xa1, lakers::KID_LABEL, kid @ ..] => {
                let mut reader = Reader::new(kid);
                cbor::read_bytes(&mut reader).filter(|_| reader.is_empty()).map(Self::Kid)
            }
            _ => None,
        }
    }
}

/// The form in which a peer sends its own credential.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// Sends only the `kid`. The receiver must already have the credential.
    ByReference,
    /// Sends the whole credential.
    ByValue,
}

impl From<Transfer> for CredentialTransfer {
    fn from(transfer: Transfer) -> Self {
        match transfer {
            Transfer::ByReference => Self::ByReference,
            Transfer::ByValue => Self::ByValue,
        }
    }
}

/// Our credential and its private key.
pub struct Identity {
    pub(crate) private: Secret<32>,
    pub(crate) credential: Credential,
    pub(crate) transfer: Transfer,
}

impl Identity {
    /// Creates the identity from its private key, which is a scalar of P-256, and its credential. A credential
    /// without a `kid` is always sent whole.
    pub fn new(private: Secret<32>, credential: Credential, transfer: Transfer) -> Self {
        let transfer = if credential.kid().is_some() { transfer } else { Transfer::ByValue };
        Self { private, credential, transfer }
    }

    /// Returns our credential.
    pub const fn credential(&self) -> &Credential {
        &self.credential
    }

    /// Returns the form in which messages contain our credential.
    pub const fn transfer(&self) -> Transfer {
        self.transfer
    }
}

/// The parts of a credential.
#[derive(Default)]
struct Parts<'c> {
    kty: Option<u8>,
    curve: Option<u8>,
    kid: Option<&'c [u8]>,
    x: Option<&'c [u8]>,
    y: Option<&'c [u8]>,
}

impl<'c> Parts<'c> {
    fn read(reader: &mut Reader<'c>) -> Option<Self> {
        let (mut key, mut subject) = (None, None);
        for _ in 0..cbor::read(cbor::MAP, reader)? {
            match cbor::read(cbor::UNSIGNED, reader)? {
                2 if subject.is_none() => {
                    let len = cbor::read(cbor::TEXT, reader)?;
                    subject = Some(reader.take(len).ok()?);
                }
                8 if key.is_none() => {
                    if cbor::read(cbor::MAP, reader)? != 1 || cbor::read(cbor::UNSIGNED, reader)? != 1 {
                        return None;
                    }
                    key = Some(Self::read_key(reader)?);
                }
                _ => return None,
            }
        }
        key
    }

    /// Reads a COSE_Key (RFC 9053, section 7.1.1). Returns `None` if a label occurs twice (RFC 9052, section 9).
    fn read_key(reader: &mut Reader<'c>) -> Option<Self> {
        let mut parts = Self::default();
        for _ in 0..cbor::read(cbor::MAP, reader)? {
            let is_refused = match cbor::read_head(reader)? {
                (cbor::UNSIGNED, 1) => {
                    parts.kty.replace(cbor::read(cbor::UNSIGNED, reader)?.try_into().ok()?).is_some()
                }
                (cbor::UNSIGNED, 2) => parts.kid.replace(cbor::read_bytes(reader)?).is_some(),
                (cbor::NEGATIVE, 0) => {
                    parts.curve.replace(cbor::read(cbor::UNSIGNED, reader)?.try_into().ok()?).is_some()
                }
                (cbor::NEGATIVE, 1) => parts.x.replace(cbor::read_bytes(reader)?).is_some(),
                (cbor::NEGATIVE, 2) => parts.y.replace(cbor::read_bytes(reader)?).is_some(),
                _ => true,
            };
            if is_refused {
                return None;
            }
        }
        Some(parts)
    }
}

const SUBJECT: u8 = 2;
const CONFIRMATION: u8 = 8;
const COSE_KEY: u8 = 1;
const KTY_EC2: u8 = 2;
const CURVE_P256: u8 = 1;
