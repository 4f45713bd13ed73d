//! Keys in a TPM 2.0 (feature `tpm`). They are created and used in the TPM, and never leave it.
//!
//! A key is at a persistent handle of the TPM, or in a file that is encrypted under the storage root of the TPM. The
//! file has the format that other software for TPMs reads (`BEGIN TSS2 PRIVATE KEY`). The key has no password. Anyone
//! who can reach the TPM may use the key, so the access rights of the device file protect it.

pub mod sealed;

use super::signer::{PremasterDecrypter, SignError, SignatureScheme, Signer};
use crate::hex::to_hex;
use rustls_pki_types::pem::{PemObject as _, SectionKind};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::{Mutex, PoisonError};
use tegmen::buf::Reader;
use tegmen::dtls::premaster_secret;
use tegmen::secret::{Secret, wipe};
use tegmen_x509::der::{self, INTEGER, OCTET_STRING, OID, SEQUENCE};
use tss_esapi::attributes::ObjectAttributesBuilder;
use tss_esapi::constants::CapabilityType;
use tss_esapi::constants::tss::{TPM2_RH_NULL, TPM2_ST_HASHCHECK};
use tss_esapi::handles::{KeyHandle, ObjectHandle, PersistentTpmHandle, TpmHandle};
use tss_esapi::interface_types::algorithm::{HashingAlgorithm, PublicAlgorithm};
use tss_esapi::interface_types::dynamic_handles::Persistent;
use tss_esapi::interface_types::ecc::EccCurve;
use tss_esapi::interface_types::key_bits::RsaKeyBits;
use tss_esapi::interface_types::resource_handles::{Hierarchy, Provision};
use tss_esapi::interface_types::session_handles::AuthSession;
use tss_esapi::structures::{
    CapabilityData, Data, Digest, EccPoint, EccScheme, HashScheme, HashcheckTicket, KeyDerivationFunctionScheme,
    Private, Public, PublicBuilder, PublicEccParametersBuilder, PublicKeyRsa, PublicRsaParametersBuilder,
    RsaDecryptionScheme, RsaExponent, RsaScheme, Signature, SymmetricDefinitionObject,
};
use tss_esapi::tcti_ldr::TctiNameConf;
use tss_esapi::traits::{Marshall as _, UnMarshall as _};
use tss_esapi::tss2_esys::TPMT_TK_HASHCHECK;
use tss_esapi::{Context, Error};

/// The TPM device on Linux, with the resource manager of the kernel.
pub const DEFAULT_TPM: &str = "device:/dev/tpmrm0";

/// The kind of a key to create.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TpmKeyKind {
    /// ECDSA on secp256r1.
    P256,
    /// RSA of 2048 bits, which signs and decrypts.
    Rsa2048,
}

/// The location of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// At a persistent handle of the TPM's owner hierarchy: 0x81000000 to 0x817fffff.
    Persistent(u32),
    /// In a file that is encrypted under the storage root of the TPM. The file is useless on any other machine.
    File(PathBuf),
}

/// The reason why a key in a TPM cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub enum TpmError {
    /// The TPM does not answer.
    #[error("{tpm}: {message}: is there a TPM 2.0, and may this user use it (on Debian: group tss)?")]
    Unreachable {
        /// The name of the TPM.
        tpm: String,
        /// The error of the software stack for TPMs.
        message: String,
    },
    /// The TPM refuses a command.
    #[error("the TPM refused to {doing}: {message}")]
    Refused {
        /// The operation that the TPM refuses.
        doing: &'static str,
        /// The error of the TPM.
        message: String,
    },
    /// The file or handle has no usable key, or the file or handle for a new key is already in use.
    #[error("{place}: {message}")]
    Place {
        /// A file or a handle.
        place: String,
        /// The error and a remedy.
        message: String,
    },
}

/// A private key in a TPM, with a connection to this TPM.
pub struct TpmKey {
    connection: Mutex<Connection>,
    scheme: SignatureScheme,
    spki: Vec<u8>,
    decrypts: bool,
}

struct Connection {
    context: Context,
    key: KeyHandle,
    /// True if the key is only in the transient memory of the TPM, from which it must be removed when this value is
    /// dropped.
    transient: bool,
}

impl TpmKey {
    /// Makes a key in the TPM and keeps it at `place`, which must be free. `tpm` names the TPM as the software stack
    /// does: `device:/dev/tpmrm0`, `swtpm:host=127.0.0.1,port=2321`.
    ///
    /// # Errors
    /// [`TpmError`].
    pub fn create(tpm: &str, kind: TpmKeyKind, place: &Place) -> Result<Self, TpmError> {
        let mut context = connect(tpm)?;
        match place {
            Place::Persistent(number) => {
                if is_taken(&mut context, persistent(*number)?)? {
                    return Err(place.wrong("there is something already: choose another handle"));
                }
            }
            Place::File(file) if file.exists() => {
                return Err(place.wrong("it exists: move it away, or choose another file"));
            }
            Place::File(_) => {}
        }
        let template = kind.template().map_err(refused("describe the key"))?;
        let root = storage_root(&mut context)?;
        let made = context
            .execute_with_session(Some(AuthSession::Password), |context| {
                context.create(root, template, None, None, None, None)
            })
            .map_err(refused("make the key"));
        let loaded = made.and_then(|made| {
            let key = load(&mut context, root, &made.out_private, &made.out_public)?;
            Ok((key, made.out_private, made.out_public))
        });
        flush(&mut context, root);
        let (key, private, public) = loaded?;
        // The connection takes the key out of the TPM's memory, whatever happens from here on.
        let mut connection = Connection { context, key, transient: true };
        match place {
            Place::File(file) => write_file(file, LOADABLE_KEY, &private, &public)?,
            Place::Persistent(number) => {
                let handle = Persistent::Persistent(persistent(*number)?);
                connection
                    .context
                    .execute_with_session(Some(AuthSession::Password), |context| {
                        context.evict_control(Provision::Owner, key.into(), handle)
                    })
                    .map_err(refused("keep the key at a persistent handle"))?;
            }
        }
        Self::from(connection, &public, place)
    }

    /// Opens an existing key.
    ///
    /// # Errors
    /// [`TpmError`].
    pub fn open(tpm: &str, place: &Place) -> Result<Self, TpmError> {
        let (connection, public) = match place {
            Place::Persistent(number) => {
                let mut context = connect(tpm)?;
                let handle = persistent(*number)?;
                if !is_taken(&mut context, handle)? {
                    return Err(place.wrong("nothing is there: make a key with `tegmen keys tpm create --handle`"));
                }
                let found =
                    context.tr_from_tpm_public(TpmHandle::Persistent(handle)).map_err(refused("find the key"))?;
                let key = KeyHandle::from(found);
                let (public, _, _) = context.read_public(key).map_err(refused("show the key"))?;
                (Connection { context, key, transient: false }, public)
            }
            Place::File(file) => {
                let contents = std::fs::read(file).map_err(|error| place.wrong(&error.to_string()))?;
                let (private, public) = parse_file(&contents, LOADABLE_KEY)
                    .ok_or_else(|| place.wrong("no key of a TPM's storage root in it (TSS2 PRIVATE KEY)"))?;
                let mut context = connect(tpm)?;
                let root = storage_root(&mut context)?;
                let key = load(&mut context, root, &private, &public);
                flush(&mut context, root);
                (Connection { context, key: key?, transient: true }, public)
            }
        };
        Self::from(connection, &public, place)
    }

    /// Removes a key permanently from the persistent memory of the TPM. (For a key in a file, delete the file.)
    ///
    /// # Errors
    /// [`TpmError`].
    pub fn remove(tpm: &str, handle: u32) -> Result<(), TpmError> {
        let mut context = connect(tpm)?;
        let handle = persistent(handle)?;
        if !is_taken(&mut context, handle)? {
            return Err(Place::Persistent(handle.into()).wrong("nothing is there"));
        }
        let found = context.tr_from_tpm_public(TpmHandle::Persistent(handle)).map_err(refused("find the key"))?;
        context
            .execute_with_session(Some(AuthSession::Password), |context| {
                context.evict_control(Provision::Owner, found, Persistent::Persistent(handle))
            })
            .map_err(refused("remove the key"))?;
        Ok(())
    }

    fn from(connection: Connection, public: &Public, place: &Place) -> Result<Self, TpmError> {
        let (scheme, spki) = spki(public)
            .ok_or_else(|| place.wrong("a key that is not used here: ECDSA P-256, or RSA of 2048 to 4096 bits"))?;
        let decrypts = matches!(public, Public::Rsa { object_attributes, .. } if object_attributes.decrypt());
        Ok(Self { connection: Mutex::new(connection), scheme, spki, decrypts })
    }

    fn with<T>(&self, act: impl FnOnce(&mut Context, KeyHandle) -> Result<T, Error>) -> Result<T, Error> {
        let mut connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let key = connection.key;
        connection.context.execute_with_session(Some(AuthSession::Password), |context| act(context, key))
    }
}

impl Signer for TpmKey {
    fn scheme(&self) -> SignatureScheme {
        self.scheme
    }

    fn public_key(&self) -> &[u8] {
        &self.spki
    }

    fn sign_digest(&self, digest: &[u8; 32]) -> Result<Vec<u8>, SignError> {
        let failed = |error: Error| SignError(format!("the TPM reports: {error}"));
        let hash_scheme = HashScheme::new(HashingAlgorithm::Sha256);
        let scheme = match self.scheme {
            SignatureScheme::RSA_PKCS1_SHA256 => tss_esapi::structures::SignatureScheme::RsaSsa { hash_scheme },
            _ => tss_esapi::structures::SignatureScheme::EcDsa { hash_scheme },
        };
        let digest = Digest::try_from(&digest[..]).map_err(failed)?;
        // The key may sign any digest, and so none needs to come from the TPM itself.
        let ticket = TPMT_TK_HASHCHECK { tag: TPM2_ST_HASHCHECK, hierarchy: TPM2_RH_NULL, digest: Default::default() };
        let ticket = HashcheckTicket::try_from(ticket).map_err(failed)?;
        match self.with(|context, key| context.sign(key, digest, scheme, ticket)).map_err(failed)? {
            Signature::RsaSsa(signature) => Ok(signature.signature().value().to_vec()),
            Signature::EcDsa(signature) => {
                let numbers = [signature.signature_r().value(), signature.signature_s().value()];
                Ok(sequence(&numbers.map(unsigned)))
            }
            _ => Err(SignError("the TPM made a signature of another kind".to_owned())),
        }
    }

    fn decrypter(&self) -> Option<&dyn PremasterDecrypter> {
        self.decrypts.then_some(self)
    }
}

impl PremasterDecrypter for TpmKey {
    fn premaster_secret(&self, encrypted: &[u8], version: [u8; 2], random: &Secret<48>) -> Secret<48> {
        // What cannot be a ciphertext is no secret, and the TPM is not asked.
        let modulus = super::PublicKey::parse(&self.spki).and_then(|key| {
            let mut pair = der::inside(&mut Reader::new(key.bytes), SEQUENCE).ok()?;
            der::positive(&mut pair).ok()
        });
        if !modulus.is_some_and(|modulus| encrypted.len() == modulus.len() && encrypted < modulus) {
            return Secret::new(*random.expose());
        }
        // Without padding, since whether that is right must not be seen from outside, not even by its time.
        let block = PublicKeyRsa::try_from(encrypted).and_then(|text| {
            self.with(|context, key| context.rsa_decrypt(key, text, RsaDecryptionScheme::Null, Data::default()))
        });
        let mut block = block.map(|block| block.value().to_vec()).unwrap_or_default();
        let secret = premaster_secret(&block, encrypted.len(), version, random);
        wipe(&mut block);
        secret
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.transient {
            flush(&mut self.context, self.key);
        }
    }
}

impl TpmKeyKind {
    fn template(self) -> Result<Public, Error> {
        let attributes = ObjectAttributesBuilder::new()
            .with_fixed_tpm(true)
            .with_fixed_parent(true)
            .with_sensitive_data_origin(true)
            .with_user_with_auth(true)
            .with_no_da(true)
            .with_sign_encrypt(true)
            .with_decrypt(self == Self::Rsa2048)
            .build()?;
        let builder = PublicBuilder::new()
            .with_name_hashing_algorithm(HashingAlgorithm::Sha256)
            .with_object_attributes(attributes);
        let scheme = EccScheme::EcDsa(HashScheme::new(HashingAlgorithm::Sha256));
        match self {
            Self::P256 => builder
                .with_public_algorithm(PublicAlgorithm::Ecc)
                .with_ecc_parameters(
                    PublicEccParametersBuilder::new_unrestricted_signing_key(scheme, EccCurve::NistP256)
                        .with_key_derivation_function_scheme(KeyDerivationFunctionScheme::Null)
                        .build()?,
                )
                .with_ecc_unique_identifier(EccPoint::default())
                .build(),
            Self::Rsa2048 => builder
                .with_public_algorithm(PublicAlgorithm::Rsa)
                .with_rsa_parameters(
                    PublicRsaParametersBuilder::new()
                        .with_scheme(RsaScheme::Null)
                        .with_key_bits(RsaKeyBits::Rsa2048)
                        .with_exponent(RsaExponent::default())
                        .with_is_signing_key(true)
                        .with_is_decryption_key(true)
                        .build()?,
                )
                .with_rsa_unique_identifier(PublicKeyRsa::default())
                .build(),
        }
    }
}

impl Place {
    fn wrong(&self, message: &str) -> TpmError {
        let place = match self {
            Self::Persistent(handle) => format!("handle {handle:#x}"),
            Self::File(file) => file.display().to_string(),
        };
        TpmError::Place { place, message: message.to_owned() }
    }
}

fn refused(doing: &'static str) -> impl Fn(Error) -> TpmError {
    move |error| TpmError::Refused { doing, message: error.to_string() }
}

fn connect(tpm: &str) -> Result<Context, TpmError> {
    let unreachable = |error: Error| TpmError::Unreachable { tpm: tpm.to_owned(), message: error.to_string() };
    Context::new(TctiNameConf::from_str(tpm).map_err(unreachable)?).map_err(unreachable)
}

fn persistent(handle: u32) -> Result<PersistentTpmHandle, TpmError> {
    let range = "a persistent handle of the owner is 0x81000000 to 0x817fffff";
    match (0x8100_0000..=0x817f_ffff).contains(&handle) {
        true => PersistentTpmHandle::new(handle).map_err(|_| Place::Persistent(handle).wrong(range)),
        false => Err(Place::Persistent(handle).wrong(range)),
    }
}

/// Returns true if there is an object at a persistent handle.
fn is_taken(context: &mut Context, handle: PersistentTpmHandle) -> Result<bool, TpmError> {
    let number = u32::from(handle);
    let (found, _) = context.get_capability(CapabilityType::Handles, number, 1).map_err(refused("list its handles"))?;
    Ok(matches!(found, CapabilityData::Handles(list) if list.first() == Some(&TpmHandle::Persistent(handle))))
}

/// Derives the storage root of the owner from the seed of the TPM. The result is the same each time.
fn storage_root(context: &mut Context) -> Result<KeyHandle, TpmError> {
    let template = || {
        let attributes = ObjectAttributesBuilder::new()
            .with_fixed_tpm(true)
            .with_fixed_parent(true)
            .with_sensitive_data_origin(true)
            .with_user_with_auth(true)
            .with_no_da(true)
            .with_decrypt(true)
            .with_restricted(true)
            .build()?;
        PublicBuilder::new()
            .with_public_algorithm(PublicAlgorithm::Ecc)
            .with_name_hashing_algorithm(HashingAlgorithm::Sha256)
            .with_object_attributes(attributes)
            .with_ecc_parameters(
                PublicEccParametersBuilder::new_restricted_decryption_key(
                    SymmetricDefinitionObject::AES_128_CFB,
                    EccCurve::NistP256,
                )
                .build()?,
            )
            .with_ecc_unique_identifier(EccPoint::default())
            .build()
    };
    let template = template().map_err(refused("describe the storage root"))?;
    let root = context.execute_with_session(Some(AuthSession::Password), |context| {
        context.create_primary(Hierarchy::Owner, template, None, None, None, None)
    });
    Ok(root.map_err(refused("derive its storage root (has the owner a password?)"))?.key_handle)
}

fn load(context: &mut Context, root: KeyHandle, private: &Private, public: &Public) -> Result<KeyHandle, TpmError> {
    context
        .execute_with_session(Some(AuthSession::Password), |context| {
            context.load(root, private.clone(), public.clone())
        })
        .map_err(refused("load the key (was it made by another TPM?)"))
}

fn flush(context: &mut Context, key: KeyHandle) {
    // A key that cannot be flushed now stays in the TPM until its next start.
    let _ = context.flush_context(ObjectHandle::from(key));
}

/// Returns the SubjectPublicKeyInfo of a key in a TPM (RFC 5480, RFC 3279).
fn spki(public: &Public) -> Option<(SignatureScheme, Vec<u8>)> {
    match public {
        Public::Ecc { parameters, unique, .. } if parameters.ecc_curve() == EccCurve::NistP256 => {
            let mut point = [0; 65];
            point[0] = 4;
            for (number, room) in [(unique.x().value(), 1..33), (unique.y().value(), 33..65)] {
                let room = point.get_mut(room)?;
                let start = room.len().checked_sub(number.len())?;
                room.get_mut(start..)?.copy_from_slice(number);
            }
            let algorithm = sequence(&[element(OID, EC_PUBLIC_KEY), element(OID, SECP256R1)]);
            Some((SignatureScheme::ECDSA_SECP256R1_SHA256, sequence(&[algorithm, bits(&point)])))
        }
        Public::Rsa { parameters, unique, .. } => {
            let exponent = match parameters.exponent().value() {
                0 => 65_537_u32,
                exponent => exponent,
            };
            let key = sequence(&[unsigned(unique.value()), unsigned(&exponent.to_be_bytes())]);
            let algorithm = sequence(&[element(OID, RSA_ENCRYPTION), element(0x05, &[])]);
            let spki = sequence(&[algorithm, bits(&key)]);
            let fits = matches!(super::PublicKey::parse(&spki)?.kind, super::KeyKind::Rsa { bits: 2048..=4096 });
            fits.then_some((SignatureScheme::RSA_PKCS1_SHA256, spki))
        }
        _ => None,
    }
}

const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
const SECP256R1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const RSA_ENCRYPTION: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
/// The OBJECT IDENTIFIER id-loadablekey of the Trusted Computing Group, which marks a file with a key: 2.23.133.10.1.3.
const LOADABLE_KEY: &[u8] = &[0x67, 0x81, 0x05, 10, 1, 3];
/// The OBJECT IDENTIFIER id-sealedkey of the Trusted Computing Group, which marks a file with sealed data:
/// 2.23.133.10.1.5.
const SEALED_DATA: &[u8] = &[0x67, 0x81, 0x05, 10, 1, 5];

/// Encodes an element of DER. All elements of this module are shorter than 64 KiB.
fn element(tag: u8, value: &[u8]) -> Vec<u8> {
    let len = value.len();
    let mut out = match len {
        0..=0x7f => vec![tag, len as u8],
        0x80..=0xff => vec![tag, 0x81, len as u8],
        _ => vec![tag, 0x82, (len >> 8) as u8, len as u8],
    };
    out.extend(value);
    out
}

fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

fn bits(value: &[u8]) -> Vec<u8> {
    element(der::BIT_STRING, &[&[0], value].concat())
}

/// Encodes an INTEGER that is not negative.
fn unsigned(number: &[u8]) -> Vec<u8> {
    let number = super::certificate::significant(number);
    match number.first() {
        Some(..0x80) => element(INTEGER, number),
        _ => element(INTEGER, &[&[0], number].concat()),
    }
}

/// Writes a new file with a wrapped object: the DER structure TPMKey in PEM. The structure contains the type of the
/// object, a flag that the object has no password, the handle of the owner, the public part, and the private part. The
/// handle means that the storage root of the owner is the parent of the object.
fn write_file(file: &std::path::Path, kind: &[u8], private: &Private, public: &Public) -> Result<(), TpmError> {
    let place = Place::File(file.to_owned());
    let sized = |bytes: &[u8]| {
        let mut out = (bytes.len() as u16).to_be_bytes().to_vec();
        out.extend(bytes);
        out
    };
    let public = public.marshall().map_err(refused("describe the key"))?;
    let der = sequence(&[
        element(OID, kind),
        element(der::context(0), &element(der::BOOLEAN, &[0xff])),
        unsigned(&OWNER),
        element(OCTET_STRING, &sized(&public)),
        element(OCTET_STRING, &sized(private.value())),
    ]);
    let mut pem = String::from("-----BEGIN TSS2 PRIVATE KEY-----\n");
    for line in base64(&der).as_bytes().chunks(64) {
        let _ = writeln!(pem, "{}", String::from_utf8_lossy(line));
    }
    pem.push_str("-----END TSS2 PRIVATE KEY-----\n");
    let written = crate::private::open(std::fs::File::options().write(true).create_new(true), file)
        .and_then(|mut open| std::io::Write::write_all(&mut open, pem.as_bytes()).and_then(|()| open.sync_all()));
    written.map_err(|error| place.wrong(&error.to_string()))
}

/// TPM_RH_OWNER.
const OWNER: [u8; 4] = [0x40, 0, 0, 1];

/// Parses the file of a wrapped object. Returns `None` if the file has another format, or if the type of the object is
/// not `kind`.
fn parse_file(contents: &[u8], kind: &[u8]) -> Option<(Private, Public)> {
    let text = std::str::from_utf8(contents).ok()?;
    let (_, body) = text.split_once("-----BEGIN TSS2 PRIVATE KEY-----")?;
    let (body, _) = body.split_once("-----END TSS2 PRIVATE KEY-----")?;
    // The reader of PEM knows only the labels of certificates and keys.
    let pem = format!("-----BEGIN PRIVATE KEY-----{body}-----END PRIVATE KEY-----\n");
    let (_, der) = <(SectionKind, Vec<u8>)>::from_pem_slice(pem.as_bytes()).ok()?;
    let mut key = der::inside(&mut Reader::new(&der), SEQUENCE).ok()?;
    let is_of_kind = der::value(&mut key, OID).ok()? == kind;
    let _empty_password = der::optional(&mut key, der::context(0)).ok()?;
    let of_owner = der::positive(&mut key).ok()? == OWNER;
    let sized = |bytes: &[u8]| {
        let (len, rest) = bytes.split_first_chunk::<2>()?;
        (rest.len() == usize::from(u16::from_be_bytes(*len))).then(|| rest.to_vec())
    };
    let mut octets = || der::value(&mut key, OCTET_STRING).ok().and_then(sized);
    let (public, private) = (octets()?, octets()?);
    if !is_of_kind || !of_owner || !key.rest().is_empty() {
        return None;
    }
    Some((Private::try_from(private).ok()?, Public::unmarshall(&public).ok()?))
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().chain(&[0, 0]).take(3).fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        for at in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * at) & 63) as usize];
            out.push(if at <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

impl std::fmt::Debug for TpmKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TpmKey({})", to_hex(&crate::digest::sha256(&self.spki)))
    }
}
