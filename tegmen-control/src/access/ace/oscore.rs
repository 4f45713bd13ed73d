//! The input material of an OSCORE Security Context, and the derivation of the context (RFC 9203, sections 3.2.1 and
//! 4.3).

use minicbor::data::Type;
use minicbor::{Decoder, Encoder};
use std::fmt;
use tegmen::oscore::Aead;
use tegmen_host::cbor::{Malformed, MapWriter, Sink, Written, bytes, number, read_map};
use tegmen_host::contexts::{self, ContextFile};
use zeroize::Zeroizing;

/// The label of the identifier in input material (RFC 9203, section 3.2.1).
const ID: i64 = 0;
/// The label of the version of OSCORE in input material.
const VERSION: i64 = 1;
/// The label of the Master Secret in input material.
const MASTER_SECRET: i64 = 2;
/// The label of the key derivation in input material.
const HKDF: i64 = 3;
/// The label of the AEAD Algorithm in input material.
const ALGORITHM: i64 = 4;
/// The label of the salt in input material.
const SALT: i64 = 5;
/// The label of the ID Context in input material.
const CONTEXT_ID: i64 = 6;

/// The version of OSCORE (RFC 8613, section 5.4).
const OSCORE_VERSION: u64 = 1;
/// The numbers and names by which a message can name HKDF with SHA-256. COSE has two entries for it: as the HMAC
/// algorithm, and as the direct key derivation.
const HKDF_SHA_256: [(i64, &str); 2] = [(5, "HMAC 256/256"), (-10, "direct+HKDF-SHA-256")];
/// Minimum number of bytes of a Master Secret.
const MIN_SECRET: usize = 16;
/// Maximum number of bytes of an identifier of input material, of a salt, and of a nonce.
pub(super) const LONGEST: usize = 64;
/// Maximum number of bytes of an ID Context. The file of a context has the same limit.
const LONGEST_CONTEXT_ID: usize = 16;

/// OSCORE_Input_Material: the Master Secret and the parameters of a Security Context. The secret is wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct InputMaterial {
    /// The identifier of the material. A token that updates the rights names the material by this identifier.
    pub id: Vec<u8>,
    /// The Master Secret, at least 16 bytes.
    pub master_secret: Zeroizing<Vec<u8>>,
    /// The AEAD Algorithm.
    pub aead: Aead,
    /// The salt from which the Master Salt is made; it may be empty.
    pub salt: Vec<u8>,
    /// The ID Context, at most 16 bytes; `None` if the context has none.
    pub context_id: Option<Vec<u8>>,
}

impl fmt::Debug for InputMaterial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InputMaterial").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The reason why two endpoints with this material cannot have a Security Context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoContext {
    /// The endpoints have the same Recipient ID, so the keys of the two directions would be the same.
    #[error("both ends chose the same Recipient ID")]
    SameIds,
    /// A Recipient ID is longer than the algorithm allows.
    #[error("a Recipient ID is longer than the {max} bytes that the algorithm takes")]
    IdTooLong {
        /// Maximum number of bytes of a Recipient ID with this algorithm.
        max: usize,
    },
}

impl InputMaterial {
    /// Returns material with the default algorithms and without a salt.
    pub fn new(id: Vec<u8>, master_secret: &[u8]) -> Self {
        let master_secret = Zeroizing::new(master_secret.to_vec());
        Self { id, master_secret, aead: Aead::default(), salt: Vec::new(), context_id: None }
    }

    /// Reads the material. A resource server must not ignore any parameter (section 4.2). So this function refuses a
    /// key derivation other than HKDF with SHA-256, an AEAD that this build does not contain, and a parameter that RFC
    /// 9203 does not define.
    pub(super) fn read(decoder: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let entries = decoder.clone().map()?;
        let (mut id, mut master_secret, mut aead) = (None, None, Aead::default());
        let (mut salt, mut context_id) = (Vec::new(), None);
        let mut known = 0_u64;
        read_map(decoder, |label, decoder| {
            match label {
                ID => id = Some(short(label, decoder, LONGEST)?),
                VERSION if decoder.u64()? == OSCORE_VERSION => {}
                MASTER_SECRET => {
                    let secret = decoder.bytes()?;
                    if !(MIN_SECRET..=LONGEST).contains(&secret.len()) {
                        return Err(Malformed::Value(label));
                    }
                    master_secret = Some(Zeroizing::new(secret.to_vec()));
                }
                HKDF => {
                    let hkdf = HKDF_SHA_256.iter();
                    named(decoder, hkdf.map(|(value, name)| (*value, *name, ()))).ok_or(Malformed::Value(label))?;
                }
                ALGORITHM => {
                    let all = Aead::ALL.iter().map(|aead| (aead.cose_id().into(), contexts::algorithm(*aead), *aead));
                    aead = named(decoder, all).ok_or(Malformed::Value(label))?;
                }
                SALT => salt = short(label, decoder, LONGEST)?,
                CONTEXT_ID => context_id = Some(short(label, decoder, LONGEST_CONTEXT_ID)?),
                _ => return Err(Malformed::Value(label)),
            }
            known = known.saturating_add(1);
            Ok(true)
        })?;
        // A label of text is skipped above, and is none of RFC 9203.
        if entries != Some(known) {
            return Err(Malformed::Syntax);
        }
        let id = id.ok_or(Malformed::Missing(ID))?;
        let master_secret = master_secret.ok_or(Malformed::Missing(MASTER_SECRET))?;
        Ok(Self { id, master_secret, aead, salt, context_id })
    }

    pub(super) fn write(&self, map: &mut MapWriter) {
        map.entry(ID, |encoder| bytes(encoder, &self.id));
        map.entry(MASTER_SECRET, |encoder| bytes(encoder, &self.master_secret));
        let aead = (self.aead != Aead::default()).then_some(self.aead.cose_id().into());
        map.optional(ALGORITHM, aead, number);
        map.optional(SALT, Some(&*self.salt).filter(|salt| !salt.is_empty()), bytes);
        map.optional(CONTEXT_ID, self.context_id.as_deref(), bytes);
    }

    /// Returns the Master Salt: the salt, N1 and N2, each as a CBOR byte string (section 4.3).
    pub fn master_salt(&self, nonces: &Nonces<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(Sink::new(&mut out));
        let written: Written = (|| {
            encoder.bytes(&self.salt)?.bytes(nonces.client)?.bytes(nonces.server)?;
            Ok(())
        })();
        debug_assert!(written.is_ok(), "a write to memory does not fail");
        out
    }

    /// Returns the Security Context of an endpoint with this Sender ID and this Recipient ID (RFC 9203, section 4.3).
    /// The returned context never expires, and allows the other endpoint all requests. The caller must set the expiry
    /// and the rights.
    ///
    /// # Errors
    /// [`NoContext`].
    pub fn context(
        &self,
        nonces: &Nonces<'_>,
        sender_id: &[u8],
        recipient_id: &[u8],
    ) -> Result<ContextFile, NoContext> {
        let max = self.aead.max_id();
        if sender_id == recipient_id {
            return Err(NoContext::SameIds);
        }
        if sender_id.len() > max || recipient_id.len() > max {
            return Err(NoContext::IdTooLong { max });
        }
        Ok(ContextFile {
            sender_id: sender_id.to_vec(),
            recipient_id: recipient_id.to_vec(),
            master_secret: self.master_secret.clone(),
            master_salt: self.master_salt(nonces),
            id_context: self.context_id.clone(),
            aead: self.aead,
            created: contexts::now(),
            expires: None,
            allow: None,
            rederivation: false,
        })
    }
}

/// The nonces of both endpoints. They are new for each Security Context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonces<'n> {
    /// The nonce N1 of the client.
    pub client: &'n [u8],
    /// The nonce N2 of the resource server.
    pub server: &'n [u8],
}

/// Reads a byte string of at most `longest` bytes. `label` is the label of its parameter, for the error.
pub(super) fn short(label: i64, decoder: &mut Decoder<'_>, longest: usize) -> Result<Vec<u8>, Malformed> {
    let bytes = decoder.bytes()?;
    if bytes.len() > longest { Err(Malformed::Value(label)) } else { Ok(bytes.to_vec()) }
}

/// Reads the number or the name of an algorithm; returns `None` if `known` does not contain it.
fn named<'k, T>(decoder: &mut Decoder<'_>, mut known: impl Iterator<Item = (i64, &'k str, T)>) -> Option<T> {
    let found = if decoder.datatype().ok()? == Type::String {
        let name = decoder.str().ok()?;
        known.find(|(_, known, _)| *known == name)
    } else {
        let number = decoder.i64().ok()?;
        known.find(|(known, ..)| *known == number)
    };
    found.map(|(.., value)| value)
}
