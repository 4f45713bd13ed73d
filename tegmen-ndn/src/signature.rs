//! Signatures of packets (packet format, sections "Data Signature" and "Interest Signature").

use crate::error::Error;
use crate::name::Name;
use crate::tlv::{self, Extent, Type};
use tegmen_base::buf::{Full, Writer};
use tegmen_base::crypto::ecdsa::SIGNATURE_LEN;
use tegmen_base::crypto::hash::HmacKey;
use tegmen_base::crypto::{
    Crypto, Curve, DIGEST_LEN, GroupCrypto, MAX_SIGNATURE, MemberKey, NotAuthentic, SCALAR_LEN, SignatureScheme,
    Unsupported, digest,
};
use tegmen_base::secret::{Secret, same};

/// The kind of a signature of a packet (SignatureType).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignatureType(pub u64);

impl SignatureType {
    /// A SHA-256 digest, which does not prove the origin.
    pub const DIGEST_SHA256: Self = Self(0);
    /// ECDSA over a SHA-256 digest.
    pub const SHA256_WITH_ECDSA: Self = Self(3);
    /// HMAC with SHA-256.
    pub const HMAC_WITH_SHA256: Self = Self(4);
    /// Ed25519 (RFC 8032).
    pub const ED25519: Self = Self(5);
}

/// Identifies the key of a signature (KeyLocator).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyLocator<'p> {
    /// The name of the key, or the name of a Data packet that contains the certificate of the key.
    Name(Name<'p>),
    /// A digest, or another short name of the key.
    Digest(&'p [u8]),
}

impl KeyLocator<'_> {
    fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        let start = out.len();
        let (kind, value) = match self {
            Self::Name(name) => (Type::NAME, name.as_bytes()),
            Self::Digest(digest) => (Type::KEY_DIGEST, *digest),
        };
        tlv::write(out, kind, value)?;
        tlv::enclose(out, start, Type::KEY_LOCATOR)
    }
}

/// SignatureInfo or InterestSignatureInfo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SignatureInfo<'p> {
    /// SignatureType.
    pub kind: SignatureType,
    /// KeyLocator. `None` if there is no KeyLocator, or if a received KeyLocator has neither a name nor a digest.
    pub key: Option<KeyLocator<'p>>,
    /// SignatureNonce, only in an Interest.
    pub nonce: Option<&'p [u8]>,
    /// SignatureTime, only in an Interest, in milliseconds since 1970.
    pub time: Option<u64>,
    /// SignatureSeqNum, only in an Interest.
    pub sequence: Option<u64>,
    /// ValidityPeriod, only in a certificate. These are the bytes of the element's value, which
    /// [`Validity`](crate::certificate::Validity) reads.
    pub validity: Option<&'p [u8]>,
}

/// The elements of a SignatureInfo or InterestSignatureInfo, in order.
const KINDS: [Type; 6] = [
    Type::SIGNATURE_TYPE,
    Type::KEY_LOCATOR,
    Type::SIGNATURE_NONCE,
    Type::SIGNATURE_TIME,
    Type::SIGNATURE_SEQUENCE,
    Type::VALIDITY_PERIOD,
];

impl<'p> SignatureInfo<'p> {
    /// Makes the description of a signature, without a nonce, a time and a sequence number.
    pub const fn new(kind: SignatureType, key: Option<KeyLocator<'p>>) -> Self {
        Self { kind, key, nonce: None, time: None, sequence: None, validity: None }
    }

    /// Returns the description of a digest without a key. [`Self::read`] replaces it.
    pub(crate) const fn unread() -> Self {
        Self::new(SignatureType::DIGEST_SHA256, None)
    }

    /// Reads the value of a SignatureInfo or InterestSignatureInfo element.
    #[cfg_attr(not(target_pointer_width = "64"), inline(never))]
    pub(crate) fn read(&mut self, value: &'p [u8], extent: Extent) -> Result<(), Error> {
        let mut fields = [None; KINDS.len()];
        // The other elements are not in a compressed packet.
        let kinds = if extent == Extent::Exact { KINDS.get(..2).unwrap_or(&[]) } else { &KINDS };
        tlv::find(value, kinds, &mut fields, extent)?;
        let [kind, key, nonce, time, sequence, validity] = &fields;
        let mut number = None;
        tlv::read_integer(kind, Type::SIGNATURE_TYPE, &mut number, extent)?;
        self.kind = SignatureType(number.ok_or(Error::Missing(Type::SIGNATURE_TYPE))?);
        if let Some(key) = key {
            let mut fields = [None; 2];
            tlv::find(key, &[Type::NAME, Type::KEY_DIGEST], &mut fields, extent)?;
            self.key = match &fields {
                [Some(name), None] => Some(KeyLocator::Name(Name::parse(name)?)),
                [None, Some(digest)] => Some(KeyLocator::Digest(digest)),
                [None, None] if extent == Extent::Known => None,
                _ => return Err(Error::Critical(Type::KEY_DIGEST)),
            };
        }
        self.nonce = *nonce;
        tlv::read_integer(time, Type::SIGNATURE_TIME, &mut self.time, extent)?;
        tlv::read_integer(sequence, Type::SIGNATURE_SEQUENCE, &mut self.sequence, extent)?;
        self.validity = *validity;
        Ok(())
    }

    /// Writes the element. `kind` is its type: SignatureInfo for a Data packet, or InterestSignatureInfo for an
    /// Interest.
    #[inline(always)]
    pub(crate) fn write(&self, kind: Type, out: &mut Writer<'_>) -> Result<(), Full> {
        let start = out.len();
        tlv::write_integer(out, Type::SIGNATURE_TYPE, self.kind.0)?;
        if let Some(key) = &self.key {
            key.write(out)?;
        }
        if let Some(nonce) = self.nonce {
            tlv::write(out, Type::SIGNATURE_NONCE, nonce)?;
        }
        if let Some(time) = self.time {
            tlv::write_integer(out, Type::SIGNATURE_TIME, time)?;
        }
        if let Some(sequence) = self.sequence {
            tlv::write_integer(out, Type::SIGNATURE_SEQUENCE, sequence)?;
        }
        if let Some(validity) = self.validity {
            tlv::write(out, Type::VALIDITY_PERIOD, validity)?;
        }
        tlv::enclose(out, start, kind)
    }
}

/// The signature of a received packet.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'p> {
    /// The description of the signature (SignatureInfo): its type and its key.
    pub info: SignatureInfo<'p>,
    /// The bytes of the signature (SignatureValue).
    pub value: &'p [u8],
    /// The signed bytes, in parts that are concatenated. For an Interest the signature does not cover the digest of the
    /// parameters, so the parts are the bytes before this digest, the bytes after it, and the parameters.
    pub portion: [&'p [u8]; 3],
}

impl Signed<'_> {
    /// Verifies the signature.
    ///
    /// # Errors
    /// [`NotAuthentic`] if the signature is wrong, or if it has another kind than the signatures of this key.
    pub fn verify<C: Crypto>(&self, crypto: &mut C, key: &(impl Verifier<C> + ?Sized)) -> Result<(), NotAuthentic> {
        key.verify(crypto, &self.info, &self.portion, self.value)
    }
}

/// A key that signs packets.
pub trait Signer<C: Crypto> {
    /// Returns the description of signatures with this key.
    fn info(&self) -> SignatureInfo<'_>;

    /// Signs a message, given in parts that are concatenated. Returns the length of the signature in `out`.
    ///
    /// # Errors
    /// [`Unsupported`] if the provider does not have this kind of signature, or the key is not valid.
    fn sign(&self, crypto: &mut C, message: &[&[u8]], out: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Unsupported>;
}

/// A key that verifies the signatures of packets.
pub trait Verifier<C: Crypto> {
    /// Verifies the signature of a message, given in parts that are concatenated.
    ///
    /// # Errors
    /// [`NotAuthentic`] if the signature is wrong, or if it has another kind than the signatures of this key.
    fn verify(
        &self,
        crypto: &mut C,
        info: &SignatureInfo<'_>,
        message: &[&[u8]],
        value: &[u8],
    ) -> Result<(), NotAuthentic>;
}

/// DigestSha256: a digest that everyone can compute, so it does not prove the origin.
#[derive(Clone, Copy, Debug)]
pub struct DigestSha256;

impl<C: Crypto> Signer<C> for DigestSha256 {
    fn info(&self) -> SignatureInfo<'_> {
        SignatureInfo::new(SignatureType::DIGEST_SHA256, None)
    }

    fn sign(&self, _: &mut C, message: &[&[u8]], out: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Unsupported> {
        *out.first_chunk_mut::<DIGEST_LEN>().ok_or(Unsupported)? = digest::<C, DIGEST_LEN>(message);
        Ok(DIGEST_LEN)
    }
}

impl<C: Crypto> Verifier<C> for DigestSha256 {
    fn verify(&self, _: &mut C, info: &SignatureInfo<'_>, message: &[&[u8]], value: &[u8]) -> Result<(), NotAuthentic> {
        let is_valid = info.kind == SignatureType::DIGEST_SHA256 && same(&digest::<C, DIGEST_LEN>(message), value);
        if is_valid { Ok(()) } else { Err(NotAuthentic) }
    }
}

/// SignatureHmacWithSha256: a key that signer and verifier share.
pub struct HmacWithSha256<'k> {
    /// The shared key of HMAC.
    pub key: &'k HmacKey,
    /// The name of the key, which the signer writes into packets.
    pub locator: KeyLocator<'k>,
}

impl<C: Crypto> Signer<C> for HmacWithSha256<'_> {
    fn info(&self) -> SignatureInfo<'_> {
        SignatureInfo::new(SignatureType::HMAC_WITH_SHA256, Some(self.locator))
    }

    fn sign(&self, _: &mut C, message: &[&[u8]], out: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Unsupported> {
        self.key.mac_into::<C>(message, out.get_mut(..DIGEST_LEN).ok_or(Unsupported)?);
        Ok(DIGEST_LEN)
    }
}

impl<C: Crypto> Verifier<C> for HmacKey {
    fn verify(&self, _: &mut C, info: &SignatureInfo<'_>, message: &[&[u8]], value: &[u8]) -> Result<(), NotAuthentic> {
        let is_valid = info.kind == SignatureType::HMAC_WITH_SHA256 && same(&self.mac::<C>(message), value);
        if is_valid { Ok(()) } else { Err(NotAuthentic) }
    }
}

/// SignatureSha256WithEcdsa: a private key on secp256r1, and the name of its public key. The signature is in DER.
pub struct Sha256WithEcdsa<'k> {
    /// The private key.
    pub key: &'k Secret<SCALAR_LEN>,
    /// The name of the public key.
    pub locator: KeyLocator<'k>,
}

impl<C: Crypto> Signer<C> for Sha256WithEcdsa<'_> {
    fn info(&self) -> SignatureInfo<'_> {
        SignatureInfo::new(SignatureType::SHA256_WITH_ECDSA, Some(self.locator))
    }

    fn sign(&self, crypto: &mut C, message: &[&[u8]], out: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Unsupported> {
        crypto.sign(self.key.expose(), &digest::<C, DIGEST_LEN>(message), out)
    }
}

/// The public key of SignatureSha256WithEcdsa on secp256r1: a SubjectPublicKeyInfo (RFC 5480, section 2).
#[derive(Clone, Copy, Debug)]
pub struct EcdsaPublicKey<'k>(pub &'k [u8]);

impl<C: Crypto> Verifier<C> for EcdsaPublicKey<'_> {
    fn verify(
        &self,
        crypto: &mut C,
        info: &SignatureInfo<'_>,
        message: &[&[u8]],
        value: &[u8],
    ) -> Result<(), NotAuthentic> {
        if info.kind != SignatureType::SHA256_WITH_ECDSA {
            return Err(NotAuthentic);
        }
        let digest = digest::<C, DIGEST_LEN>(message);
        crypto.verify(SignatureScheme::ECDSA_SECP256R1_SHA256, self.0, &digest, value)
    }
}

/// SignatureEd25519: a private key of Ed25519, and the name of its public key.
pub struct Ed25519<'k> {
    /// The private key.
    pub key: &'k Secret<SCALAR_LEN>,
    /// The name of the public key.
    pub locator: KeyLocator<'k>,
}

impl<C: GroupCrypto> Signer<C> for Ed25519<'_> {
    fn info(&self) -> SignatureInfo<'_> {
        SignatureInfo::new(SignatureType::ED25519, Some(self.locator))
    }

    fn sign(&self, crypto: &mut C, message: &[&[u8]], out: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Unsupported> {
        let signature = crypto.sign_message(Curve::Ed25519, self.key.expose(), message)?;
        *out.first_chunk_mut().ok_or(Unsupported)? = signature;
        Ok(SIGNATURE_LEN)
    }
}

/// The public key of SignatureEd25519 (RFC 8032, section 5.1.5).
#[derive(Clone, Copy, Debug)]
pub struct Ed25519PublicKey(pub [u8; 32]);

impl<C: GroupCrypto> Verifier<C> for Ed25519PublicKey {
    fn verify(
        &self,
        crypto: &mut C,
        info: &SignatureInfo<'_>,
        message: &[&[u8]],
        value: &[u8],
    ) -> Result<(), NotAuthentic> {
        if info.kind != SignatureType::ED25519 {
            return Err(NotAuthentic);
        }
        let signature: &[u8; SIGNATURE_LEN] = value.try_into().map_err(|_| NotAuthentic)?;
        crypto.verify_message(&MemberKey::Ed25519(self.0), message, signature)
    }
}
