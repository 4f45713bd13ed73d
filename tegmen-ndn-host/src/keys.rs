//! Private keys, and the certificates that they sign.
//!
//! The file of a private key contains a Data packet that is never sent. The name of the packet is the name of the key,
//! and its ContentType is [`SIGNING_KEY`](ContentType::SIGNING_KEY). The content is the encoded key: ECPrivateKey (RFC
//! 5915), or PKCS #8 of Ed25519 (RFC 8410). The key itself signs the packet. The program ndnd uses the same format.

use std::fmt;
use tegmen_base::buf::{Frame, Full, Reader, Truncated, Writer};
use tegmen_base::crypto::{
    Crypto as _, MAX_SHARE, MAX_SIGNATURE, NamedGroup, P256_PREFIX, RustCrypto, SCALAR_LEN, Unsupported, curves,
    ed25519,
};
use tegmen_base::secret::{Secret, same};
use tegmen_ndn::certificate::{self, Certificate, ED25519_PREFIX, KEY, PublicKey, Validity};
use tegmen_ndn::signature::{Ed25519, KeyLocator, Sha256WithEcdsa, SignatureInfo, SignatureType, Signer};
use tegmen_ndn::tlv::{self, Type};
use tegmen_ndn::{Component, ContentType, Data, Error, MAX_HEAD, Name, ReceivedData, WriteError};
use zeroize::Zeroizing;

use crate::management::bytes_of;

/// Length of the identifier of a new key in bytes.
const ID_LEN: usize = 8;

/// The bytes of ECPrivateKey that follow its outer length, up to the private key itself.
const EC_VERSION: [u8; 5] = [0x02, 0x01, 0x01, 0x04, 0x20];
/// The parameters in ECPrivateKey: the OBJECT IDENTIFIER of secp256r1.
const EC_PARAMETERS: [u8; 12] = [0xa0, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
/// The bytes of ECPrivateKey in front of the public key, which is a point on the curve.
const EC_POINT: [u8; 5] = [0xa1, 0x44, 0x03, 0x42, 0x00];
/// The bytes of PKCS #8 in front of a private key of Ed25519.
const PKCS8_ED25519: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// The kind of a key pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    /// ECDSA on secp256r1.
    P256,
    /// Ed25519.
    Ed25519,
}

/// The reason why a packet contains no private key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyError {
    /// The bytes are not a Data packet.
    Packet(Error),
    /// The ContentType is not that of a private key.
    ContentType,
    /// The name does not end with `KEY` and an identifier.
    Name,
    /// The content is not a private key on secp256r1 or of Ed25519.
    Content,
    /// The key did not sign the packet.
    Signature,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Packet(error) => return write!(f, "no Data packet: {error}"),
            Self::ContentType => "the ContentType of the packet is not that of a private key",
            Self::Name => "the name does not end with KEY and an identifier",
            Self::Content => "the content is no private key on secp256r1 or of Ed25519",
            Self::Signature => "the key did not sign its own packet: the file was changed",
        })
    }
}

impl std::error::Error for KeyError {}

impl From<Error> for KeyError {
    fn from(error: Error) -> Self {
        Self::Packet(error)
    }
}

impl From<Truncated> for KeyError {
    fn from(_: Truncated) -> Self {
        Self::Content
    }
}

/// A private key with its name.
pub struct Key {
    name: Vec<u8>,
    kind: KeyKind,
    secret: Secret<SCALAR_LEN>,
    public_key: Vec<u8>,
}

impl Key {
    /// Makes a new key for an identity, with a random identifier.
    ///
    /// # Errors
    /// [`Unsupported`] if the crypto provider does not have the curve. [`RustCrypto`] has both curves.
    pub fn generate(crypto: &mut RustCrypto, identity: &Name<'_>, kind: KeyKind) -> Result<Self, Unsupported> {
        let mut id = [0; ID_LEN];
        crypto.random(&mut id);
        let more = bytes_of(32, |out| {
            KEY.write(out)?;
            Component::generic(&id).write(out)
        });
        let mut secret = Secret::zeroed();
        match kind {
            KeyKind::P256 => {
                crypto.key_pair(NamedGroup::SECP256R1, secret.expose_mut(), &mut [0; MAX_SHARE])?;
            }
            KeyKind::Ed25519 => crypto.random(secret.expose_mut()),
        }
        Self::of([identity.as_bytes(), &more].concat(), kind, secret)
    }

    fn of(name: Vec<u8>, kind: KeyKind, secret: Secret<SCALAR_LEN>) -> Result<Self, Unsupported> {
        let public_key = match kind {
            KeyKind::P256 => curves::public_key_of(secret.expose())?.to_vec(),
            KeyKind::Ed25519 => [&ED25519_PREFIX[..], &ed25519::public_key_of(secret.expose())].concat(),
        };
        Ok(Self { name, kind, secret, public_key })
    }

    /// Reads the packet of a private key, and verifies that the key signed it.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn parse(crypto: &mut RustCrypto, packet: &[u8]) -> Result<Self, KeyError> {
        let received = ReceivedData::parse(packet)?;
        if received.data.content_type != Some(ContentType::SIGNING_KEY) {
            return Err(KeyError::ContentType);
        }
        certificate::identity_of(&received.data.name).ok_or(KeyError::Name)?;
        let content = received.data.content.unwrap_or(&[]);
        let name = received.data.name.as_bytes().to_vec();
        let key = match received.signed.info.kind {
            SignatureType::SHA256_WITH_ECDSA => Self::of(name, KeyKind::P256, parse_ec(content)?),
            SignatureType::ED25519 => {
                let secret = content.strip_prefix(&PKCS8_ED25519).and_then(|secret| secret.try_into().ok());
                Self::of(name, KeyKind::Ed25519, Secret::new(secret.ok_or(KeyError::Content)?))
            }
            _ => return Err(KeyError::Content),
        };
        let key = key.map_err(|_| KeyError::Content)?;
        let public_key = PublicKey::parse(&key.public_key).ok_or(KeyError::Content)?;
        received.signed.verify(crypto, &public_key).map_err(|_| KeyError::Signature)?;
        // A point beside the number must belong to it.
        let point = key.public_key.strip_prefix(&P256_PREFIX).filter(|_| content.len() > 2 + EC_VERSION.len() + 60);
        if point.is_some_and(|point| !content.ends_with(point)) {
            return Err(KeyError::Content);
        }
        Ok(key)
    }

    /// Returns the packet of the private key. Keep it as secret as the key.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn to_packet(&self, crypto: &mut RustCrypto) -> Result<Zeroizing<Vec<u8>>, WriteError> {
        let mut content = Zeroizing::new([0; 128]);
        let mut out = Writer::new(&mut content[..]);
        self.write_secret(&mut out)?;
        let data = Data {
            name: self.name(),
            content_type: Some(ContentType::SIGNING_KEY),
            content: Some(out.written()),
            ..Data::default()
        };
        let mut storage = Zeroizing::new(vec![0; 2 * self.name.len() + 600]);
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        data.write(crypto, &self.signer(self.name()), &mut frame)?;
        Ok(Zeroizing::new(frame.bytes().to_vec()))
    }

    fn write_secret(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        match self.kind {
            KeyKind::P256 => {
                let point = self.public_key.strip_prefix(&P256_PREFIX).unwrap_or(&[]);
                out.u8(0x30)?;
                out.behind_len::<1>(|out| {
                    for part in [&EC_VERSION[..], self.secret.expose(), &EC_PARAMETERS, &EC_POINT, point] {
                        out.put(part)?;
                    }
                    Ok(())
                })
            }
            KeyKind::Ed25519 => {
                out.put(&PKCS8_ED25519)?;
                out.put(self.secret.expose())
            }
        }
    }

    /// Returns the name of the key.
    pub fn name(&self) -> Name<'_> {
        Name::of_checked(&self.name)
    }

    /// Returns the kind of the key.
    pub const fn kind(&self) -> KeyKind {
        self.kind
    }

    /// Returns the public key, a SubjectPublicKeyInfo.
    pub fn public_key(&self) -> &[u8] {
        &self.public_key
    }

    /// Returns true if a certificate belongs to this key.
    pub fn is_of(&self, certificate: &Certificate<'_>) -> bool {
        certificate.key_name() == self.name()
            && certificate.received.data.content.is_some_and(|info| same(info, &self.public_key))
    }

    /// Returns a signer with this key. The KeyLocator of each packet that it signs is `locator`: the name of the key,
    /// or of a certificate of the key.
    pub const fn signer<'k>(&'k self, locator: Name<'k>) -> KeySigner<'k> {
        KeySigner { key: self, locator }
    }

    /// Makes a certificate for a public key, and signs it with this key. `locator` is the KeyLocator of the
    /// certificate: the name of this key, or of a certificate of this key.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn certify(
        &self,
        crypto: &mut RustCrypto,
        locator: Name<'_>,
        subject: &Subject<'_>,
        validity: Validity,
    ) -> Result<Vec<u8>, WriteError> {
        let end = bytes_of(subject.issuer.value.len() + 32, |out| {
            subject.issuer.write(out)?;
            tlv::write_integer(out, Type::VERSION, subject.version)
        });
        let name = [subject.key_name.as_bytes(), &end].concat();
        let mut storage = vec![0; name.len() + subject.public_key.len() + locator.as_bytes().len() + 300];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        let (name, signer) = (Name::of_checked(&name), self.signer(locator));
        certificate::write(crypto, &name, subject.public_key, validity, &signer, &mut frame)?;
        Ok(frame.bytes().to_vec())
    }
}

/// The certified key, and the values that the issuer chooses for its certificate.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'s> {
    /// The name of the certified key.
    pub key_name: Name<'s>,
    /// The certified public key, a SubjectPublicKeyInfo.
    pub public_key: &'s [u8],
    /// The component of the certificate's name that names the issuer.
    pub issuer: Component<'s>,
    /// The version of the certificate.
    pub version: u64,
}

/// Reads ECPrivateKey (RFC 5915) on secp256r1, with or without the point.
fn parse_ec(content: &[u8]) -> Result<Secret<SCALAR_LEN>, KeyError> {
    let mut reader = Reader::new(content);
    if reader.u8()? != 0x30 {
        return Err(KeyError::Content);
    }
    let mut reader = Reader::new(Some(reader.with_len8()?).filter(|_| reader.is_empty()).ok_or(KeyError::Content)?);
    let version = reader.take(EC_VERSION.len())?;
    let secret = Secret::new(reader.array()?);
    let parameters = reader.take(EC_PARAMETERS.len())?;
    let rest = reader.rest();
    let is_point = rest.is_empty() || rest.strip_prefix(&EC_POINT).is_some_and(|point| point.len() == MAX_SHARE);
    if version == EC_VERSION && parameters == EC_PARAMETERS && is_point { Ok(secret) } else { Err(KeyError::Content) }
}

/// A signer with a private key.
pub struct KeySigner<'k> {
    key: &'k Key,
    locator: Name<'k>,
}

impl Signer<RustCrypto> for KeySigner<'_> {
    fn info(&self) -> SignatureInfo<'_> {
        let kind = match self.key.kind {
            KeyKind::P256 => SignatureType::SHA256_WITH_ECDSA,
            KeyKind::Ed25519 => SignatureType::ED25519,
        };
        SignatureInfo::new(kind, Some(KeyLocator::Name(self.locator)))
    }

    fn sign(
        &self,
        crypto: &mut RustCrypto,
        message: &[&[u8]],
        out: &mut [u8; MAX_SIGNATURE],
    ) -> Result<usize, Unsupported> {
        let (key, locator) = (&self.key.secret, KeyLocator::Name(self.locator));
        match self.key.kind {
            KeyKind::P256 => Sha256WithEcdsa { key, locator }.sign(crypto, message, out),
            KeyKind::Ed25519 => Ed25519 { key, locator }.sign(crypto, message, out),
        }
    }
}
