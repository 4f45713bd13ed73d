//! The security context of a group at one member (RFC 10021, section 2): its Common Context and its Sender Context.

use super::aad;
use super::algorithms::Algorithms;
use super::credential::key_of_ccs;
use super::exchange::{GroupPending, Replies};
use super::gid::Gid;
use super::recipient::{PairwiseKeys, Recipient};
use crate::context::NO_CHALLENGE;
use crate::cose::{Aead, Cbor, MAX_NONCE, Nonce};
use crate::derivation::{IV, KEY, write_info_of};
use crate::error::ProtectError;
use crate::id::Id;
use crate::naming::INFO_LEN;
use crate::option::{OscoreOption, PartialIv};
use tegmen_base::crypto::hkdf::Hkdf;
use tegmen_base::crypto::{Crypto, GroupCrypto, KEY_LEN, MemberKey, NotAuthentic, SCALAR_LEN};
use tegmen_base::lease::Lease;
use tegmen_base::replay::ReplayWindow;
use tegmen_base::secret::{self, Secret};

/// The parameters that the Group Manager gives to all members.
#[derive(Clone, Copy)]
pub struct GroupParameters<'a> {
    /// Master Secret: random, at least 16 bytes.
    pub master_secret: &'a [u8],
    /// Master Salt; may be empty.
    pub master_salt: &'a [u8],
    /// Group Identifier: at most 16 bytes here.
    pub gid: &'a [u8],
    /// The algorithms of the group.
    pub algorithms: Algorithms,
}

/// The parameters of this member.
pub struct Ourselves<B> {
    /// Our ID.
    pub id: Id,
    /// Our private key, for nothing but Group OSCORE.
    pub private_key: Secret<SCALAR_LEN>,
    /// Our authentication credential: a CWT Claims Set.
    pub credential: B,
    /// The end of the lease of our numbers that was stored last, or 0 for an ID that nobody has used before.
    pub kept: u64,
}

/// The reason why the parameters do not give a context or a recipient.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadGroup {
    /// An ID is longer than the algorithms' nonces allow.
    IdTooLong {
        /// Bytes that it may have.
        max: usize,
    },
    /// The Group Identifier is longer than 16 bytes.
    GidTooLong,
    /// The algorithms allow no mode, or the two modes have keys of different curves.
    Algorithms,
    /// The provider has no such algorithm.
    Unsupported,
    /// The credential is no CWT Claims Set with a key of the group's curve.
    Credential,
    /// The key of the credential is not a point of the curve, or one of small order.
    InvalidKey,
    /// The credential is longer than the context can hold.
    CredentialTooLong,
    /// The member has the ID of this one, so that both would use the same nonces under the same key.
    SameIds,
}

/// One member's end of the security context of a group: the Common Context and the Sender Context.
///
/// `B` holds the bytes of an authentication credential. A message and its credentials are authenticated together, for which the stack has
/// place for `AAD` bytes: 136, and those of the longest credential and of the Group Manager's.
pub struct GroupContext<B, const AAD: usize> {
    pub(super) lease: Lease,
    pub(super) gid: Gid,
    pub(super) algorithms: Algorithms,
    /// The master secret and salt, to derive the keys of members that are not known yet.
    master: Hkdf,
    /// At the beginning, if it is shorter.
    common_iv: [u8; MAX_NONCE],
    pub(super) signature_encryption_key: Secret<KEY_LEN>,
    pub(super) group_manager_credential: B,
    pub(super) sender_id: Id,
    pub(super) sender_key: Secret<KEY_LEN>,
    pub(super) private_key: Secret<SCALAR_LEN>,
    pub(super) credential: B,
}

impl<B: AsRef<[u8]>, const AAD: usize> GroupContext<B, AAD> {
    /// Derives the context of a member. The lease must be [extended](Self::lease_mut) before the context can send with numbers of its own.
    ///
    /// # Errors
    /// [`BadGroup`].
    pub fn new<C: GroupCrypto>(
        parameters: &GroupParameters<'_>,
        ourselves: Ourselves<B>,
        group_manager_credential: B,
    ) -> Result<Self, BadGroup> {
        let GroupParameters { master_secret, master_salt, gid, algorithms } = *parameters;
        let Ourselves { id: sender_id, private_key, credential, kept } = ourselves;
        let curve = algorithms.curve().ok_or(BadGroup::Algorithms)?;
        let needs_gcm = [algorithms.aead, algorithms.group_encryption].contains(&Some(Aead::A128Gcm));
        if needs_gcm && C::AES_128_GCM.is_none() {
            return Err(BadGroup::Unsupported);
        }
        let key = key_of_ccs(credential.as_ref()).ok_or(BadGroup::Credential)?;
        if key.curve() != curve {
            return Err(BadGroup::Credential);
        }
        let mut context = Self {
            lease: Lease::resume(kept),
            gid: Gid::new(gid).ok_or(BadGroup::GidTooLong)?,
            algorithms,
            master: Hkdf::none(),
            common_iv: [0; MAX_NONCE],
            signature_encryption_key: Secret::zeroed(),
            group_manager_credential,
            sender_id,
            sender_key: Secret::zeroed(),
            private_key,
            credential,
        };
        context.check(&sender_id, context.credential.as_ref())?;
        context.master.extract::<C>(master_salt, &[master_secret]);
        context.sender_key = context.key_of::<C>(&sender_id);
        let mut iv = [0; MAX_NONCE];
        let len = algorithms.common_iv_len();
        context.expand::<C>(&Id::default(), IV, iv.get_mut(..len).unwrap_or(&mut []));
        context.common_iv = iv;
        let mut key = Secret::zeroed();
        context.expand::<C>(&Id::default(), SIGNATURE_ENCRYPTION_KEY, key.expose_mut());
        context.signature_encryption_key = key;
        Ok(context)
    }

    /// Derives the Recipient Context of another member, whose authentication credential is a CWT Claims Set. `window`
    /// is `None` if it is not known which numbers the member has used. This is the case after a power cut, and after
    /// any recipient of this context was deleted (section 2.6.1.2). `window` is the default value for a member from
    /// which no message has arrived here.
    ///
    /// # Errors
    /// [`BadGroup`].
    pub fn recipient<C: GroupCrypto>(
        &self,
        crypto: &mut C,
        id: Id,
        credential: B,
        window: Option<ReplayWindow>,
    ) -> Result<Recipient<B>, BadGroup> {
        self.check(&id, credential.as_ref())?;
        let public_key = key_of_ccs(credential.as_ref()).ok_or(BadGroup::Credential)?;
        if self.algorithms.curve() != Some(public_key.curve()) {
            return Err(BadGroup::Credential);
        }
        if id == self.sender_id {
            return Err(BadGroup::SameIds);
        }
        crypto.validate(&public_key).map_err(|_| BadGroup::InvalidKey)?;
        Ok(self.validated::<C>(id, (credential, public_key), window))
    }

    /// Derives the Recipient Context of a member, whose key is valid.
    fn validated<C: GroupCrypto>(
        &self,
        id: Id,
        (credential, public_key): (B, MemberKey),
        window: Option<ReplayWindow>,
    ) -> Recipient<B> {
        let window = window.unwrap_or(ReplayWindow::lost(NO_CHALLENGE));
        Recipient { id, key: self.key_of::<C>(&id), credential, public_key, window, pairwise: None }
    }

    /// Derives the keys of a recipient again, for this context, which is new (section 2.6.3.2): its window begins again, and its pairwise
    /// keys are deleted.
    ///
    /// # Errors
    /// [`BadGroup`].
    pub fn renew<C: GroupCrypto>(&self, recipient: Recipient<B>) -> Result<Recipient<B>, BadGroup> {
        let Recipient { id, credential, public_key, .. } = recipient;
        self.check(&id, credential.as_ref())?;
        if self.algorithms.curve() != Some(public_key.curve()) {
            return Err(BadGroup::Credential);
        }
        Ok(self.validated::<C>(id, (credential, public_key), Some(ReplayWindow::new())))
    }

    /// Continues a request of ours under this new context. From then on the request gets only responses under this
    /// context, and the numbers of the members begin again (section 2.6.3.2).
    pub fn renew_pending<R: AsMut<[Replies]>>(&self, pending: &mut GroupPending<R>) {
        pending.renew(&self.gid);
    }

    pub(super) fn check(&self, id: &Id, credential: &[u8]) -> Result<(), BadGroup> {
        let max = self.algorithms.max_id();
        if id.as_bytes().len() > max {
            return Err(BadGroup::IdTooLong { max });
        }
        let credentials = credential.len().saturating_add(self.group_manager_credential.as_ref().len());
        if credentials.saturating_add(aad::OVERHEAD) > AAD {
            return Err(BadGroup::CredentialTooLong);
        }
        Ok(())
    }

    /// The Sender or Recipient Key of a member (section 2.3).
    pub(super) fn key_of<C: Crypto>(&self, id: &Id) -> Secret<KEY_LEN> {
        let mut key = Secret::zeroed();
        self.expand::<C>(id, KEY, key.expose_mut());
        key
    }

    fn expand<C: Crypto>(&self, id: &Id, kind: &[u8], out: &mut [u8]) {
        let aead = self.algorithms.of_derivation().unwrap_or_default();
        expand::<C>(&self.master, (&self.gid, aead), id, kind, out);
    }

    /// The pairwise keys with another member, derived if there are none (section 2.5.1).
    ///
    /// # Errors
    /// [`NotAuthentic`] if the group has no pairwise mode, or the member's public key is not valid.
    pub(super) fn pairwise<'k, C: GroupCrypto>(
        &self,
        crypto: &mut C,
        recipient: &'k mut Recipient<B>,
    ) -> Result<(Aead, &'k PairwiseKeys), NotAuthentic> {
        let aead = self.algorithms.of_pairwise_mode().ok_or(NotAuthentic)?;
        let Recipient { id, key, credential, public_key, pairwise, .. } = recipient;
        if pairwise.is_none() {
            let mut shared = Secret::<SCALAR_LEN>::zeroed();
            crypto.agree_static(self.private_key.expose(), public_key, shared.expose_mut())?;
            let (ours, theirs) = (self.credential.as_ref(), credential.as_ref());
            *pairwise = Some(PairwiseKeys {
                sender: self.pairwise_key::<C>(
                    aead,
                    &self.sender_key,
                    &[ours, theirs, shared.expose()],
                    &self.sender_id,
                ),
                recipient: self.pairwise_key::<C>(aead, key, &[theirs, ours, shared.expose()], id),
            });
        }
        pairwise.as_ref().map(|keys| (aead, keys)).ok_or(NotAuthentic)
    }

    /// Derives the key with which the member `id` sends: from its Sender Key, and from `secret` in parts (section 2.5.1).
    pub(super) fn pairwise_key<C: Crypto>(
        &self,
        aead: Aead,
        sender_key: &Secret<KEY_LEN>,
        secret: &[&[u8]],
        id: &Id,
    ) -> Secret<KEY_LEN> {
        let mut hkdf = Hkdf::none();
        hkdf.extract::<C>(sender_key.expose(), secret);
        let mut key = Secret::zeroed();
        expand::<C>(&hkdf, (&self.gid, aead), id, KEY, key.expose_mut());
        key
    }

    /// The nonce for a number of a member. The algorithm takes the first bytes of the common IV (section 3.3).
    pub(super) fn nonce(&self, aead: Aead, of: (&Id, &PartialIv)) -> Nonce {
        let at = aead.nonce_at();
        if at == 0 {
            return Nonce::new(aead, &self.common_iv, of);
        }
        let mut iv = [0; MAX_NONCE];
        iv.iter_mut().skip(at).zip(self.common_iv).for_each(|(to, from)| *to = from);
        Nonce::new(aead, &iv, of)
    }

    /// The numbers of our messages, in both modes. The owner stores the new end first, and extends the lease then. The last number is 2^40 - 1.
    pub const fn lease_mut(&mut self) -> &mut Lease {
        &mut self.lease
    }

    /// The numbers of our messages, in both modes.
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the Group Identifier.
    pub fn gid(&self) -> &[u8] {
        self.gid.as_bytes()
    }

    /// Returns our ID.
    pub const fn id(&self) -> &Id {
        &self.sender_id
    }

    /// True if the option of a request, or of a response with a kid context, names this context.
    pub fn is_named_by(&self, option: &OscoreOption<'_>) -> bool {
        option.kid_context == Some(self.gid.as_bytes())
    }

    /// Takes the number of the next message from the lease.
    pub(super) fn take_number(&mut self) -> Result<PartialIv, ProtectError> {
        let number = PartialIv::new(self.lease.next()).ok_or(ProtectError::Exhausted)?;
        self.lease.take().ok_or(ProtectError::LeaseSpent)?;
        Ok(number)
    }
}

impl<B, const AAD: usize> Drop for GroupContext<B, AAD> {
    fn drop(&mut self) {
        secret::wipe(&mut self.common_iv);
    }
}

impl<B, const AAD: usize> core::fmt::Debug for GroupContext<B, AAD> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut all = f.debug_struct("GroupContext");
        all.field("gid", &self.gid.as_bytes()).field("sender_id", &self.sender_id);
        all.field("algorithms", &self.algorithms).field("lease", &self.lease).finish_non_exhaustive()
    }
}

/// Derives bytes of the type `kind`, a text of CBOR, for `id` (RFC 8613, section 3.2.1).
fn expand<C: Crypto>(hkdf: &Hkdf, (gid, aead): (&Gid, Aead), id: &Id, kind: &[u8], out: &mut [u8]) {
    let mut info = Cbor::<INFO_LEN>::beginning_with([0x85]);
    write_info_of(&mut info, Some(gid.as_bytes()), aead, id, (kind, out.len() as u8));
    hkdf.expand::<C>(info.as_bytes(), out);
}

/// The type of the Signature Encryption Key (section 2.1.9).
const SIGNATURE_ENCRYPTION_KEY: &[u8] = b"\x65SEKey";
