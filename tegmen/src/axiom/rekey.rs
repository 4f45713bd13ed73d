//! Rekey messages: their format, and the keys that protect them. The controller and the members use this module.
//!
//! The keys of a group form a binary tree (Wong, Gouda, Lam, "Secure group communications using key graphs"). Its nodes
//! have numbers: 1 is the root, and the children of `n` are `2n` and `2n + 1`. Each node has a secret. Each member has
//! a leaf, and knows the secrets of all nodes on the path from its leaf to the root. To replace the secrets of a path,
//! the controller draws a random secret for the lowest node of the path. It derives the secret of each higher node from
//! the secret of the node below. So the members of a subtree beside the path need only one message, with one new
//! secret. From this secret they derive the secrets of all higher nodes.
//!
//! A node message contains the new secret of a node, encrypted under the secret of a node below it. If that lower node
//! is not a leaf, several members have its secret. So the controller signs the message. A message that is encrypted
//! under the secret of a leaf has no signature, because only one member has that secret.
//!
//! An epoch message contains the random secret of the next epoch, encrypted under the secret of the root. A hash chain
//! authenticates the message: the controller has computed `h(e - 1) = H(group, e, h(e), H(secret of e))` from the last
//! epoch to the first.

use super::signature::{MAX_DER, verify};
use crate::buf::{Full, Reader, Truncated, Writer};
use crate::crypto::ecdsa::{SIGNATURE_LEN, from_der};
use crate::crypto::hash::HmacKey;
use crate::crypto::{Crypto, DIGEST_LEN, KEY_LEN, NotAuthentic, SignatureScheme, digest, hmac};
use crate::secret::Secret;

/// Maximum number of bytes of a rekey message: the length of a node message with its signature. With 32 bytes of
/// headers, this message fills a frame of IEEE 802.15.4.
pub const MAX_MESSAGE: usize = SIGNED_LEN + SIGNATURE_LEN;

/// Number of bytes of a signed node message before its signature.
const SIGNED_LEN: usize = NODE_HEAD + KEY_LEN + SIGNED_TAG;
/// Number of bytes of the tag of a node message with a signature. The receiver verifies the tag before the signature,
/// so that outsiders cannot make it verify signatures.
const SIGNED_TAG: usize = 8;
/// Number of bytes of the tag of a node message without a signature, and of the tag of an epoch message.
const TAG: usize = 16;
/// Number of bytes before the secret in a node message: kind (1), epoch (2), levels (1), node (3).
const NODE_HEAD: usize = 7;
/// Number of bytes before the secret in an epoch message: kind (1), epoch (2), element of the hash chain (32).
const EPOCH_HEAD: usize = 3 + DIGEST_LEN;

/// The first byte of a node message with a signature: the kind of the message. The next two constants are the kinds of
/// a node message without a signature, and of an epoch message.
const SIGNED: u8 = 1;
const PAIRWISE: u8 = 2;
const EPOCH: u8 = 3;

/// A function that signs a digest for [`seal_node`]. It writes the ECDSA-Sig-Value in DER, and returns its length. It
/// returns `None` if it made no signature.
type Sign<'s> = dyn Fn(&[u8; DIGEST_LEN], &mut [u8; MAX_DER]) -> Option<usize> + 's;

/// The position of a new secret in the tree of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The epoch that the next epoch message begins.
    pub epoch: u16,
    /// The number of the node whose secret encrypts the new secret. This number is below 2^24.
    pub under: u32,
    /// The number of levels from the node `under` up to the node that gets the new secret; at least 1.
    pub up: u8,
}

/// A rekey message.
pub(super) enum Message<'m> {
    Node { place: Place, sealed: &'m [u8], signature: Option<&'m [u8; SIGNATURE_LEN]> },
    Epoch { epoch: u16, chain: &'m [u8; DIGEST_LEN] },
}

impl<'m> Message<'m> {
    /// Reads a message. Fails if other bytes follow the message.
    pub(super) fn parse(bytes: &'m [u8]) -> Result<Self, Truncated> {
        let mut reader = Reader::new(bytes);
        let (kind, epoch) = (reader.u8()?, reader.u16()?);
        let message = match kind {
            EPOCH => {
                let chain = reader.array_ref()?;
                reader.array_ref::<{ DIGEST_LEN + TAG }>()?;
                Self::Epoch { epoch, chain }
            }
            SIGNED | PAIRWISE => {
                let place = Place { epoch, up: reader.u8()?, under: reader.u24()? };
                let (len, is_signed) = if kind == SIGNED { (SIGNED_TAG, true) } else { (TAG, false) };
                reader.take(KEY_LEN.wrapping_add(len))?;
                let sealed = bytes.get(..NODE_HEAD.wrapping_add(KEY_LEN).wrapping_add(len)).ok_or(Truncated)?;
                Self::Node { place, sealed, signature: if is_signed { Some(reader.array_ref()?) } else { None } }
            }
            _ => return Err(Truncated),
        };
        if reader.is_empty() { Ok(message) } else { Err(Truncated) }
    }
}

/// Derives the secret of the parent of a node from the new secret of this node.
pub fn parent_of<C: Crypto>(group: &[u8; 16], secret: &Secret<KEY_LEN>) -> Secret<KEY_LEN> {
    derive::<C>(b"axiom parent", group, secret)
}

/// Computes the element of the hash chain for the epoch before `epoch`. `chain` is the element for `epoch`, and
/// `secret` is the secret of `epoch`.
pub fn link<C: Crypto>(
    group: &[u8; 16],
    epoch: u16,
    chain: &[u8; DIGEST_LEN],
    secret: &Secret<DIGEST_LEN>,
) -> [u8; DIGEST_LEN] {
    let committed: [u8; DIGEST_LEN] = digest::<C, DIGEST_LEN>(&[secret.expose()]);
    digest::<C, DIGEST_LEN>(&[b"axiom chain", group, &epoch.to_be_bytes(), chain, &committed])
}

/// Derives the master secret of an epoch from the secret of the epoch. The [`Association`](super::Association) of the
/// epoch contains this master secret.
pub fn master_secret<C: Crypto>(group: &[u8; 16], epoch: u16, secret: &Secret<DIGEST_LEN>) -> Secret<48> {
    let mut master = Secret::zeroed();
    let seed: [&[u8]; 3] = [b"axiom epoch", group, &epoch.to_be_bytes()];
    HmacKey::new::<C>(&[secret.expose()]).prf::<C>(&seed, master.expose_mut());
    master
}

/// Writes a node message with the new secret `secret`. The secret is encrypted under `key`, which is the secret of the
/// node `place.under`. If `sign` is `None`, the message has no signature, and is only for the member with the leaf
/// `place.under`.
///
/// The nonce contains the kind of the message, and `place`. So encrypt at most one secret with the same `place` under
/// the same key.
///
/// # Errors
/// [`Full`] if there is no space in `out`, if the number of the node is not below 2^24, or if `sign` returned `None`.
pub fn seal_node<C: Crypto>(
    crypto: &mut C,
    group: &[u8; 16],
    place: Place,
    (key, secret): (&Secret<KEY_LEN>, &Secret<KEY_LEN>),
    sign: Option<&Sign<'_>>,
    out: &mut Writer<'_>,
) -> Result<(), Full> {
    let mut message = [0; MAX_MESSAGE];
    let mut writer = Writer::new(&mut message);
    writer.u8(if sign.is_some() { SIGNED } else { PAIRWISE })?;
    writer.u16(place.epoch)?;
    writer.u8(place.up)?;
    writer.u24(place.under)?;
    writer.put(secret.expose())?;
    let tag = if sign.is_some() { SIGNED_TAG } else { TAG };
    writer.put([0; TAG].get(..tag).ok_or(Full)?)?;
    let key = derive::<C>(b"axiom node", group, key);
    seal(crypto, &key, NODE_HEAD, tag, writer.finish())?;
    let (sealed, rest) = message.split_at_checked(NODE_HEAD.wrapping_add(KEY_LEN).wrapping_add(tag)).ok_or(Full)?;
    out.put(sealed)?;
    let Some(sign) = sign else { return Ok(()) };
    let mut der = [0; MAX_DER];
    let len = sign(&signed_digest::<C>(group, sealed), &mut der).ok_or(Full)?;
    debug_assert_eq!(rest.len(), SIGNATURE_LEN);
    out.put(&from_der(der.get(..len).ok_or(Full)?).map_err(|_| Full)?)
}

/// Writes the epoch message of `epoch`. It contains the secret of the epoch, encrypted under the secret of the root,
/// and the epoch's element of the hash chain.
///
/// # Errors
/// [`Full`] if there is no space in `out`.
pub fn seal_epoch<C: Crypto>(
    crypto: &mut C,
    group: &[u8; 16],
    (epoch, chain): (u16, &[u8; DIGEST_LEN]),
    (root, secret): (&Secret<KEY_LEN>, &Secret<DIGEST_LEN>),
    out: &mut Writer<'_>,
) -> Result<(), Full> {
    let mut message = [0; EPOCH_HEAD + DIGEST_LEN + TAG];
    let mut writer = Writer::new(&mut message);
    writer.u8(EPOCH)?;
    writer.u16(epoch)?;
    writer.put(chain)?;
    writer.put(secret.expose())?;
    let key = derive::<C>(b"axiom root", group, root);
    seal(crypto, &key, EPOCH_HEAD, TAG, &mut message)?;
    out.put(&message)
}

/// Decrypts the secret of a node message. If the message has a signature, the secret is not authentic before [`check`]
/// accepts the signature.
pub(super) fn open_node<C: Crypto>(
    crypto: &mut C,
    group: &[u8; 16],
    key: &Secret<KEY_LEN>,
    sealed: &[u8],
) -> Result<Secret<KEY_LEN>, NotAuthentic> {
    open(crypto, &derive::<C>(b"axiom node", group, key), NODE_HEAD, sealed)
}

/// Decrypts the secret of an epoch message. The secret is not authentic before the hash chain proves it.
pub(super) fn open_epoch<C: Crypto>(
    crypto: &mut C,
    group: &[u8; 16],
    root: &Secret<KEY_LEN>,
    message: &[u8],
) -> Result<Secret<DIGEST_LEN>, NotAuthentic> {
    open(crypto, &derive::<C>(b"axiom root", group, root), EPOCH_HEAD, message)
}

/// Verifies the signature of the controller on a node message.
pub(super) fn check<C: Crypto>(
    crypto: &mut C,
    group: &[u8; 16],
    controller: &[u8],
    sealed: &[u8],
    signature: &[u8; SIGNATURE_LEN],
) -> Result<(), NotAuthentic> {
    let digest = signed_digest::<C>(group, sealed);
    verify(crypto, (SignatureScheme::ECDSA_SECP256R1_SHA256, controller), &digest, signature)
}

fn signed_digest<C: Crypto>(group: &[u8; 16], sealed: &[u8]) -> [u8; DIGEST_LEN] {
    digest::<C, DIGEST_LEN>(&[b"axiom rekey", group, sealed])
}

fn derive<C: Crypto>(label: &[u8], group: &[u8; 16], secret: &Secret<KEY_LEN>) -> Secret<KEY_LEN> {
    let code = Secret::new(hmac::<C, DIGEST_LEN>(&[secret.expose()], &[label, group]));
    let mut key = Secret::zeroed();
    for (to, from) in key.expose_mut().iter_mut().zip(code.expose()) {
        *to = *from;
    }
    key
}

/// Returns the nonce: four zeros, and then the first 7 bytes of the message. In a node message, these bytes are the
/// kind, the epoch, the number of levels and the node. One key seals at most one message with the same nonce.
fn nonce(message: &[u8]) -> [u8; 12] {
    let mut nonce = [0; 12];
    for (to, from) in nonce.iter_mut().skip(4).zip(message.iter().take(NODE_HEAD)) {
        *to = *from;
    }
    nonce
}

fn seal<C: Crypto>(
    crypto: &mut C,
    key: &Secret<KEY_LEN>,
    head: usize,
    tag: usize,
    message: &mut [u8],
) -> Result<(), Full> {
    let nonce = nonce(message);
    let (aad, body) = message.split_at_mut_checked(head).ok_or(Full)?;
    let at = body.len().checked_sub(tag).ok_or(Full)?;
    let (body, tag) = body.split_at_mut_checked(at).ok_or(Full)?;
    crypto.seal(C::AES_128_CCM, key.expose(), &nonce, aad, body, tag).map_err(|_| Full)
}

fn open<C: Crypto, const LEN: usize>(
    crypto: &mut C,
    key: &Secret<KEY_LEN>,
    head: usize,
    message: &[u8],
) -> Result<Secret<LEN>, NotAuthentic> {
    let (aad, body) = message.split_at_checked(head).ok_or(NotAuthentic)?;
    let (body, tag) = body.split_first_chunk::<LEN>().ok_or(NotAuthentic)?;
    let mut secret = Secret::new(*body);
    crypto.open(C::AES_128_CCM, key.expose(), &nonce(message), aad, secret.expose_mut(), tag)?;
    Ok(secret)
}
