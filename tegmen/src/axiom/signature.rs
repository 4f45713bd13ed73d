//! Signatures of records (Axiom paper, section 7.4). Without signatures the keys prove that some member sent a record,
//! but not which member.
//!
//! A record of a group with signatures has [`SIGNATURE_LEN`] bytes after its tag. The signature covers a SHA-256
//! digest of: "axiom request" or "axiom response", the identity of the group, the associated data of the AEAD, and
//! all bytes between the header and the signature. In a response the digest also covers the SenderID (1 byte), the
//! epoch (2 bytes) and the TSN (8 bytes) of the request that it answers.
//!
//! With ECDSA, the signature of the digest is written as two numbers of 32 bytes. With Ed25519, the digest is the
//! message that is signed (RFC 8032, section 5.1.6).

use super::opened::{GroupNumber, Origin};
use super::protection::Protection;
use crate::buf::{Full, Writer};
use crate::counters::Discard;
use crate::crypto::ecdsa::{SIGNATURE_LEN, from_der, to_der};
use crate::crypto::hash::Sha256;
use crate::crypto::{Crypto, DIGEST_LEN, NotAuthentic, SignatureScheme};
use crate::dtls::record::{HEADER_LEN, Record, associated_data};

/// Maximum number of bytes of an ECDSA-Sig-Value in DER.
pub(super) const MAX_DER: usize = 72;

/// The signatures of a member: its private key, the public keys of the other members, and the numbers of recent
/// requests, which are needed to sign and verify responses. The owner of the member supplies this type, and decides the
/// maximum number of keys and of requests.
///
/// `()` is the type for a group without signatures: it has no size and adds no code.
pub trait Signatures {
    /// False only for `()`, the type for a group without signatures.
    const IS_ON: bool = true;

    /// Returns the signature scheme of the group; `None` for a group without signatures.
    fn scheme(&self) -> Option<SignatureScheme>;

    /// Returns the identity of the group.
    fn group(&self) -> &[u8; 16];

    /// Signs a digest. Writes into `out` the signature: an ECDSA-Sig-Value in DER, or the 64 bytes of an Ed25519
    /// signature. Returns the length of the signature. Returns `None` if no signature was made. Use the private key for
    /// no other purpose.
    fn sign(&mut self, digest: &[u8; DIGEST_LEN], out: &mut [u8; 72]) -> Option<usize>;

    /// Returns the SubjectPublicKeyInfo of the sender with this SenderID, also if this member is that sender. Returns
    /// `None` if the key is not known. The member then refuses the record with [`Discard::UnknownPeer`], and the owner
    /// of the member asks the controller for the keys. The member calls this function only after the tag of the record
    /// was correct. So no outsider can make the owner ask the controller for keys.
    fn key_of_sender(&mut self, id: u8) -> Option<&[u8]>;

    /// Returns the SubjectPublicKeyInfo of the listener at this address. The rules of [`Self::key_of_sender`] apply.
    fn key_of_listener(&mut self, address: &[u8; 16]) -> Option<&[u8]>;

    /// Stores the number and the token of a request to the group. `message` is an authentic request that this member
    /// received, or a request that this member is about to seal.
    fn note(&mut self, request: GroupNumber, message: &[u8]);

    /// Returns the number of the request that a response answers. `sender` is the SenderID of the request. Finds the
    /// request by the token of the response.
    fn asked(&self, sender: u8, response: &[u8]) -> Option<GroupNumber>;
}

/// The implementation for a group whose records have no signatures. It signs nothing, and knows no public keys.
impl Signatures for () {
    const IS_ON: bool = false;

    #[inline]
    fn scheme(&self) -> Option<SignatureScheme> {
        None
    }

    #[inline]
    fn group(&self) -> &[u8; 16] {
        &[0; 16]
    }

    #[inline]
    fn sign(&mut self, _: &[u8; DIGEST_LEN], _: &mut [u8; 72]) -> Option<usize> {
        None
    }

    #[inline]
    fn key_of_sender(&mut self, _: u8) -> Option<&[u8]> {
        None
    }

    #[inline]
    fn key_of_listener(&mut self, _: &[u8; 16]) -> Option<&[u8]> {
        None
    }

    #[inline]
    fn note(&mut self, _: GroupNumber, _: &[u8]) {}

    #[inline]
    fn asked(&self, _: u8, _: &[u8]) -> Option<GroupNumber> {
        None
    }
}

/// Returns the signature scheme of the group; `None` if the group uses no signatures. If `S` is `()`, the compiler
/// removes the code of this call.
#[inline]
pub(super) fn scheme_of<S: Signatures>(signatures: &S) -> Option<SignatureScheme> {
    if S::IS_ON { signatures.scheme() } else { None }
}

/// Returns the number of bytes of a signature in the group; 0 if the group has no signatures.
#[inline]
pub(super) fn signature_len<S: Signatures>(signatures: &S) -> usize {
    if scheme_of(signatures).is_some() { SIGNATURE_LEN } else { 0 }
}

/// The kind of message that a record carries. It is part of the signed digest.
#[derive(Clone, Copy)]
pub(super) enum Signed {
    Request,
    /// A response to a request of the sender with this SenderID.
    Response {
        sender: u8,
    },
}

/// A digest that is not complete: the number of the request that a response answers must still be added.
struct Unfinished(Sha256);

impl Unfinished {
    /// Hashes a record with the associated data `aad`. `body` has all bytes between the header and the signature.
    fn of<C: Crypto>(group: &[u8; 16], what: Signed, aad: &[u8], body: &[u8]) -> Self {
        let label: &[u8] = match what {
            Signed::Request => b"axiom request",
            Signed::Response { .. } => b"axiom response",
        };
        let mut hash = Sha256::new();
        for part in [label, group, aad, body] {
            hash.update::<C>(part);
        }
        Self(hash)
    }

    fn finish<C: Crypto>(mut self, asked: Option<GroupNumber>) -> [u8; DIGEST_LEN] {
        if let Some(GroupNumber { epoch, id, tsn }) = asked {
            self.0.update::<C>(&[id]);
            self.0.update::<C>(&epoch.to_be_bytes());
            self.0.update::<C>(&tsn.to_be_bytes());
        }
        self.0.finish::<C>()
    }
}

/// Returns the number of the request that a response answers, as `Some(Some(number))`. Returns `None` if this request
/// is not known. If the record is a request, returns `Some(None)`. `content` is the decrypted content of the record.
fn answered<S: Signatures>(signatures: &S, what: Signed, content: &[u8]) -> Option<Option<GroupNumber>> {
    match what {
        Signed::Request => Some(None),
        Signed::Response { sender } => signatures.asked(sender, content).map(Some),
    }
}

/// Seals and signs a whole record in place. `record` begins with space for the header and the explicit nonce. The
/// content follows, and then space for the tag and the signature. Returns the tag.
///
/// # Errors
/// [`NotSealed`] has the reason.
pub(super) fn seal<'t, C: Crypto, S: Signatures, const KEY: usize>(
    crypto: &mut C,
    (signatures, scheme): (&mut S, SignatureScheme),
    (protection, number): (&Protection<'_, KEY>, GroupNumber),
    what: Signed,
    record: &'t mut [u8],
) -> Result<&'t [u8], NotSealed> {
    let (record, signature) = record.split_last_chunk_mut::<SIGNATURE_LEN>().ok_or(NotSealed::Full)?;
    let (before, behind) = (protection.suite.headroom(), protection.suite.tag_len());
    let end = record.len().checked_sub(behind).ok_or(NotSealed::Full)?;
    let content = record.get(before..end).ok_or(NotSealed::Full)?;
    let len = content.len() as u16;
    let asked = answered(signatures, what, content).ok_or(NotSealed::Unsigned)?;
    if let Signed::Request = what {
        signatures.note(number, content);
    }
    protection.seal(crypto, number, record).map_err(|Full| NotSealed::Full)?;
    let (header, body) = record.split_first_chunk_mut::<HEADER_LEN>().ok_or(NotSealed::Full)?;
    let digest = Unfinished::of::<C>(signatures.group(), what, &associated_data(header, len), body).finish::<C>(asked);
    let mut out = [0; MAX_DER];
    let written = signatures.sign(&digest, &mut out).ok_or(NotSealed::Unsigned)?;
    let made = out.get(..written).ok_or(NotSealed::Unsigned)?;
    *signature = match scheme {
        SignatureScheme::ED25519 => made.try_into().map_err(|_| NotSealed::Unsigned)?,
        _ => from_der(made).map_err(|_| NotSealed::Unsigned)?,
    };
    let [.., high, low] = header;
    [*high, *low] = (body.len().wrapping_add(SIGNATURE_LEN) as u16).to_be_bytes();
    record.get(end..).ok_or(NotSealed::Full)
}

/// The reason why a record was not sealed and signed.
pub(super) enum NotSealed {
    Full,
    Unsigned,
}

/// A signature that was taken from the end of a record and is not verified yet.
pub(super) struct Unchecked<'r> {
    scheme: SignatureScheme,
    signature: &'r [u8; SIGNATURE_LEN],
    what: Signed,
    from: Origin,
}

impl<'r> Unchecked<'r> {
    /// Removes the signature from the end of a record. Returns the record without the signature, and the signature. If
    /// the group has no signatures, returns the record and `None`.
    ///
    /// # Errors
    /// [`Discard::Malformed`] if the record has no signature.
    #[inline]
    pub(super) fn take<S: Signatures>(
        signatures: &S,
        record: Record<'r>,
        (what, from): (Signed, impl FnOnce() -> Origin),
    ) -> Result<(Record<'r>, Option<Self>), Discard> {
        let Some(scheme) = scheme_of(signatures) else { return Ok((record, None)) };
        let Record { header, body } = record;
        let (body, signature) = body.split_last_chunk_mut().ok_or(Discard::Malformed)?;
        Ok((Record { header, body }, Some(Self { scheme, signature, what, from: from() })))
    }
}

/// Opens a record in place, and then verifies its signature.
///
/// # Errors
/// * [`Discard::Malformed`]: the record is too short.
/// * [`Discard::NotAuthentic`]: the tag or the signature is wrong.
/// * [`Discard::UnknownPeer`]: the public key of the member is not known.
/// * [`Discard::Unexpected`]: the request that the response answers is not known.
#[inline]
pub(super) fn open<'r, C: Crypto, S: Signatures, const KEY: usize>(
    crypto: &mut C,
    signatures: &mut S,
    protection: &Protection<'_, KEY>,
    (record, unchecked): (Record<'r>, Option<Unchecked<'_>>),
) -> Result<&'r mut [u8], Discard> {
    let Some(Unchecked { scheme, signature, what, from }) = unchecked.filter(|_| S::IS_ON) else {
        return protection.open(crypto, record);
    };
    let around = protection.suite.explicit_len().wrapping_add(protection.suite.tag_len());
    let len = record.body.len().checked_sub(around).ok_or(Discard::Malformed)?;
    // Decryption replaces the ciphertext by the content, so the digest is computed first.
    let aad = associated_data(record.header, len as u16);
    let digest = Unfinished::of::<C>(signatures.group(), what, &aad, record.body);
    let content = protection.open(crypto, record)?;
    let asked = answered(signatures, what, content).ok_or(Discard::Unexpected)?;
    let digest = digest.finish::<C>(asked);
    let key = match from {
        Origin::Sender(id) => signatures.key_of_sender(id),
        Origin::Listener(address) => signatures.key_of_listener(&address),
    };
    let key = key.ok_or(Discard::UnknownPeer)?;
    verify(crypto, (scheme, key), &digest, signature).map_err(|NotAuthentic| Discard::NotAuthentic)?;
    Ok(content)
}

/// Verifies a signature with the key in a SubjectPublicKeyInfo. The signature has the form that records and rekey
/// messages use.
///
/// # Errors
/// [`NotAuthentic`] if the signature is wrong.
pub(super) fn verify<C: Crypto>(
    crypto: &mut C,
    (scheme, key): (SignatureScheme, &[u8]),
    digest: &[u8; DIGEST_LEN],
    signature: &[u8; SIGNATURE_LEN],
) -> Result<(), NotAuthentic> {
    if scheme == SignatureScheme::ED25519 {
        return crypto.verify(scheme, key, digest, signature);
    }
    let mut der = [0; MAX_DER];
    let mut writer = Writer::new(&mut der);
    to_der(signature, &mut writer).map_err(|_| NotAuthentic)?;
    crypto.verify(scheme, key, digest, writer.written())
}
