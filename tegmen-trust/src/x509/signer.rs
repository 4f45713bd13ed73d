//! The private keys of an endpoint. With a [`Signer`], the endpoint proves its identity to a peer.

use super::rsa::BareRsa;
use super::{MAX_RSA_BITS, MIN_RSA_BITS};
use crate::private;
use aws_lc_rs::digest::{Digest, SHA256};
use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::error::{KeyRejected, Unspecified};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use tegmen::buf::Reader;
pub use tegmen::crypto::SignatureScheme;
use tegmen::dtls::premaster_secret;
use tegmen::secret::Secret;
use tegmen_x509::der::{self, INTEGER, OCTET_STRING, SEQUENCE};
use zeroize::Zeroizing;

/// A private key, in memory or in a TPM.
pub trait Signer: Send + Sync {
    /// Returns the signature scheme.
    fn scheme(&self) -> SignatureScheme;

    /// Returns the SubjectPublicKeyInfo in DER.
    fn public_key(&self) -> &[u8];

    /// Signs a SHA-256 digest. An ECDSA signature is an ECDSA-Sig-Value in DER, of at most 72 bytes. An RSA signature
    /// has as many bytes as the modulus. An Ed25519 signature has 64 bytes, and the digest is the signed message.
    ///
    /// # Errors
    /// [`SignError`] if the holder of the key cannot sign now.
    fn sign_digest(&self, digest: &[u8; 32]) -> Result<Vec<u8>, SignError>;

    /// Returns true if a signature takes less than about a tenth of a millisecond. The server then signs on the thread
    /// that receives datagrams. With a slower key the server signs and decrypts on another thread, a limited number of
    /// times per second.
    fn is_quick(&self) -> bool {
        false
    }

    /// Returns the same key as a decrypter; `None` if the key cannot decrypt.
    fn decrypter(&self) -> Option<&dyn PremasterDecrypter> {
        None
    }
}

/// An RSA private key that decrypts the premaster secret of a client, for the RSA key exchange (RFC 5246, section
/// 7.4.7.1).
pub trait PremasterDecrypter: Send + Sync {
    /// Decrypts an EncryptedPreMasterSecret. `version` is the version that the ClientHello offered.
    ///
    /// After any error in the padding, the length or the version, the result is `random`: 48 bytes that the caller drew
    /// before the call. The Finished messages of the handshake then do not match, so the client cannot find out which
    /// error occurred (Bleichenbacher's attack needs this knowledge).
    fn premaster_secret(&self, encrypted: &[u8], version: [u8; 2], random: &Secret<48>) -> Secret<48>;
}

/// The holder of the key did not sign.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the private key did not sign: {0}")]
pub struct SignError(pub String);

/// The reason why a file has no usable private key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file does not exist, or is not readable.
    #[error("{file}: {source}: give a private key in PEM; `tegmen ca issue` makes one")]
    Unreadable {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// Other users of this machine can read the key.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds a private key: chmod 600 {file}")]
    Exposed {
        /// The path of the file.
        file: String,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file contains no key, or a key that is not supported.
    #[error(
        "{file}: {message}: give an unencrypted ECDSA P-256 key, or RSA of 2048 to 4096 bits, as PKCS#8, SEC1 or PKCS#1 in PEM"
    )]
    Unusable {
        /// The path of the file.
        file: String,
        /// The error.
        message: &'static str,
    },
}

/// A private key in memory.
pub struct SoftwareKey {
    pair: Pair,
    spki: Vec<u8>,
}

enum Pair {
    Ecdsa(EcdsaKeyPair),
    /// An Ed25519 key, which signs the records of a group member. It never comes from a PEM file.
    Ed25519(Ed25519KeyPair),
    /// An RSA key in two forms: for signatures, and for decryption.
    Rsa(rsa::KeyPair, BareRsa),
}

impl SoftwareKey {
    /// Reads the key from a PEM file that only its owner can read.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn from_file(path: &Path) -> Result<Self, KeyError> {
        let file = path.display().to_string();
        let unreadable = |source| KeyError::Unreadable { file: file.clone(), source };
        let mut handle = File::open(path).map_err(unreadable)?;
        if let Some(mode) = private::exposed(&handle).map_err(unreadable)? {
            return Err(KeyError::Exposed { file, mode });
        }
        let mut pem = Zeroizing::new(Vec::new());
        handle.read_to_end(&mut pem).map_err(unreadable)?;
        Self::from_pem(&pem).map_err(|message| KeyError::Unusable { file, message })
    }

    /// Reads the first private key of a PEM text: PKCS#8 (RFC 5958), SEC1 (RFC 5915) or PKCS#1 (RFC 8017).
    ///
    /// # Errors
    /// A text that describes the fault.
    pub fn from_pem(pem: &[u8]) -> Result<Self, &'static str> {
        let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| "no private key in PEM in it")?;
        let ecdsa = |pair| Ok(Pair::Ecdsa(pair));
        let rsa =
            |pair, der| BareRsa::from_der(der).map(|bare| Pair::Rsa(pair, bare)).ok_or(KeyRejected::from(Unspecified));
        let pair = match &key {
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der)
                    .and_then(ecdsa)
                    .or_else(|_| rsa(rsa::KeyPair::from_pkcs8(der)?, inside_pkcs8(der).unwrap_or(&[])))
            }
            PrivateKeyDer::Sec1(der) => {
                EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_ASN1_SIGNING, der.secret_sec1_der())
                    .and_then(ecdsa)
            }
            PrivateKeyDer::Pkcs1(der) => {
                let der = der.secret_pkcs1_der();
                rsa::KeyPair::from_der(der).and_then(|pair| rsa(pair, der))
            }
            _ => return Err("a private key of an unknown form"),
        };
        Self::of(pair.map_err(|_| "a private key that is not used here")?)
    }

    /// Draws a key pair of ECDSA on secp256r1 or of Ed25519. Returns the signer, and its private key in DER (PKCS#8)
    /// for [`Self::from_pkcs8`].
    ///
    /// # Errors
    /// [`SignError`] if the scheme is not one of these two, or the system gives no randomness.
    pub fn draw(scheme: SignatureScheme) -> Result<(Self, Zeroizing<Vec<u8>>), SignError> {
        let failed = |_| SignError("the library drew no key".to_owned());
        let random = SystemRandom::new();
        let drawn = match scheme {
            SignatureScheme::ECDSA_SECP256R1_SHA256 => {
                EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random)
            }
            _ => Ed25519KeyPair::generate_pkcs8(&random),
        };
        let der = Zeroizing::new(drawn.map_err(failed)?.as_ref().to_vec());
        let key = Self::from_pkcs8(scheme, &der).map_err(|why| SignError(why.to_owned()))?;
        Ok((key, der))
    }

    /// Reads a private key of this scheme, ECDSA on secp256r1 or Ed25519, in DER (PKCS#8, RFC 5958).
    ///
    /// # Errors
    /// The fault of the key.
    pub fn from_pkcs8(scheme: SignatureScheme, der: &[u8]) -> Result<Self, &'static str> {
        let pair = match scheme {
            SignatureScheme::ECDSA_SECP256R1_SHA256 => {
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der).map(Pair::Ecdsa)
            }
            SignatureScheme::ED25519 => Ed25519KeyPair::from_pkcs8(der).map(Pair::Ed25519),
            _ => return Err("a scheme that is not used here"),
        };
        Self::of(pair.map_err(|_| "a private key of another scheme")?)
    }

    fn of(pair: Pair) -> Result<Self, &'static str> {
        let spki: Result<PublicKeyX509Der<'_>, _> = match &pair {
            Pair::Ecdsa(pair) => pair.public_key().as_der(),
            Pair::Ed25519(pair) => pair.public_key().as_der(),
            Pair::Rsa(pair, _) if !(MIN_RSA_BITS..=MAX_RSA_BITS).contains(&(pair.public_modulus_len() * 8)) => {
                return Err("an RSA key of a size that is not used here");
            }
            Pair::Rsa(pair, _) => pair.public_key().as_der(),
        };
        let spki = spki.map_err(|_| "a private key without a public one")?.as_ref().to_vec();
        Ok(Self { pair, spki })
    }
}

impl Signer for SoftwareKey {
    fn scheme(&self) -> SignatureScheme {
        match self.pair {
            Pair::Ecdsa(_) => SignatureScheme::ECDSA_SECP256R1_SHA256,
            Pair::Ed25519(_) => SignatureScheme::ED25519,
            Pair::Rsa(..) => SignatureScheme::RSA_PKCS1_SHA256,
        }
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn is_quick(&self) -> bool {
        matches!(self.pair, Pair::Ecdsa(_) | Pair::Ed25519(_))
    }

    fn sign_digest(&self, digest: &[u8; 32]) -> Result<Vec<u8>, SignError> {
        let failed = |_| SignError("the library failed".to_owned());
        let imported = Digest::import_less_safe(digest, &SHA256).map_err(failed)?;
        match &self.pair {
            Pair::Ecdsa(pair) => Ok(pair.sign_digest(&imported).map_err(failed)?.as_ref().to_vec()),
            Pair::Ed25519(pair) => Ok(pair.sign(digest).as_ref().to_vec()),
            Pair::Rsa(pair, _) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign_digest(&RSA_PKCS1_SHA256, &imported, &mut signature).map_err(failed)?;
                Ok(signature)
            }
        }
    }

    fn decrypter(&self) -> Option<&dyn PremasterDecrypter> {
        match self.pair {
            Pair::Ecdsa(_) | Pair::Ed25519(_) => None,
            Pair::Rsa(..) => Some(self),
        }
    }
}

impl PremasterDecrypter for SoftwareKey {
    fn premaster_secret(&self, encrypted: &[u8], version: [u8; 2], random: &Secret<48>) -> Secret<48> {
        let Pair::Rsa(_, bare) = &self.pair else { return Secret::new(*random.expose()) };
        let block = bare.decrypt(encrypted).unwrap_or_default();
        premaster_secret(&block, bare.modulus_len(), version, random)
    }
}

/// Returns the RSAPrivateKey in a PrivateKeyInfo (RFC 5958, section 2).
pub(super) fn inside_pkcs8(der: &[u8]) -> Option<&[u8]> {
    let mut parts = der::inside(&mut Reader::new(der), SEQUENCE).ok()?;
    let _version = der::value(&mut parts, INTEGER).ok()?;
    let _algorithm = der::value(&mut parts, SEQUENCE).ok()?;
    der::value(&mut parts, OCTET_STRING).ok()
}

impl std::fmt::Debug for SoftwareKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SoftwareKey")
    }
}
