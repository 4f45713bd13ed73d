//! The security context of a group at one member (RFC 10021, section 2): the Common Context and the Sender Context.

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
    /// Master Salt, which may be empty.
    pub master_salt: &'a [u8],
    /// Group Identifier, which this crate limits to 16 bytes.
    pub gid: &'a [u8],
    /// The algorithms of the group.
    pub algorithms: Algorithms,
}

impl GroupParameters<'_> {
    /// Derives the Signature Encryption Key (RFC 10021, section 2.1.9), which a [`SignatureChecker`] needs. A member
    /// derives this key in [`GroupContext::new`]. Returns `None` if the Group Identifier is too long.
    ///
    /// [`SignatureChecker`]: super::SignatureChecker
    pub fn signature_encryption_key<C: Crypto>(&self) -> Option<Secret<KEY_LEN>> {
        let gid = Gid::new(self.gid)?;
        let mut master = Hkdf::none();
        master.extract::<C>(self.master_salt, &[self.master_secret]);
        let aead = self.algorithms.of_derivation().unwrap_or_default();
        let mut key = Secret::zeroed();
        expand::<C>(&master, (&gid, aead), &Id::default(), SIGNATURE_ENCRYPTION_KEY, key.expose_mut());
        Some(key)
    }
}

/// The parameters of this member.
pub struct Ourselves<B> {
    /// The ID of this member.
    pub id: Id,
    /// The private key of this member, which it uses only for Group OSCORE.
    pub private_key: Secret<SCALAR_LEN>,
    /// The authentication credential of this member: a CWT Claims Set.
    pub credential: B,
    /// The end of the reserved sequence numbers ([lease](Lease)) of this member that was last stored, or 0 if this ID
    /// was never used.
    pub kept: u64,
}

/// The reason why a context or a recipient cannot be made from the parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadGroup {
    /// An ID is longer than the nonces of the algorithms allow.
    IdTooLong {
        /// Maximum number of bytes of the ID.
        max: usize,
    },
    /// The Group Identifier is longer than 16 bytes.
    GidTooLong,
    /// The algorithms allow neither the group mode nor the pairwise mode, or the two modes need keys on different
    /// curves.
    Algorithms,
    /// The provider does not have the algorithm.
    Unsupported,
    /// The credential is not a CWT Claims Set with a key on the group's curve, or the key is limited to another algorithm
    /// or to other operations.
    Credential,
    /// The key of the credential is not a point of the curve, or is a point of small order.
    InvalidKey,
    /// The credential is longer than the space for it in the context.
    CredentialTooLong,
    /// The other member has the ID of this member. Both would use the same nonces under the same key.
    SameIds,
}

/// The security context of a group at one member: the Common Context and the Sender Context.
///
/// `B` is the type of the bytes of an authentication credential. The additional authenticated data of a message contain
/// the credentials of its sender and of the Group Manager. `AAD` is the length of the buffer for these data on the
/// stack: 136 bytes, plus the length of the longest credential of a member, plus the length of the Group Manager's
/// credential.
pub struct GroupContext<B, const AAD: usize> {
    pub(super) lease: Lease,
    pub(super) gid: Gid,
    pub(super) algorithms: Algorithms,
    /// HKDF with the master secret and salt, to derive the keys of further members.
    master: Hkdf,
    /// The common IV. A shorter IV is at the beginning of the array.
    common_iv: [u8; MAX_NONCE],
    pub(super) signature_encryption_key: Secret<KEY_LEN>,
    pub(super) group_manager_credential: B,
    pub(super) sender_id: Id,
    pub(super) sender_key: Secret<KEY_LEN>,
    pub(super) private_key: Secret<SCALAR_LEN>,
    pub(super) credential: B,
}

impl<B: AsRef<[u8]>, const AAD: usize> GroupContext<B, AAD> {
    /// Derives the context of a member. Before the context can protect a message with a new sequence number, the caller
    /// must [reserve](Self::lease_mut) sequence numbers for it.
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
        algorithms.curve().ok_or(BadGroup::Algorithms)?;
        let needs_gcm = [algorithms.aead, algorithms.group_encryption].contains(&Some(Aead::A128Gcm));
        if needs_gcm && C::AES_128_GCM.is_none() {
            return Err(BadGroup::Unsupported);
        }
        key_of_ccs(credential.as_ref(), &algorithms).ok_or(BadGroup::Credential)?;
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
    /// is `None` if it is not known which sequence numbers the member has used. This is the case after a power cut, and
    /// after any recipient of this context was deleted (RFC 10021, section 2.6.1.2). For a member from which no message
    /// has arrived, pass `Some` with the default [`ReplayWindow`].
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
        let public_key = key_of_ccs(credential.as_ref(), &self.algorithms).ok_or(BadGroup::Credential)?;
        if id == self.sender_id {
            return Err(BadGroup::SameIds);
        }
        crypto.validate(&public_key).map_err(|_| BadGroup::InvalidKey)?;
        Ok(self.validated::<C>(id, (credential, public_key), window))
    }

    /// Derives the Recipient Context of a member. The caller must have validated the public key of the member.
    fn validated<C: GroupCrypto>(
        &self,
        id: Id,
        (credential, public_key): (B, MemberKey),
        window: Option<ReplayWindow>,
    ) -> Recipient<B> {
        let window = window.unwrap_or(ReplayWindow::lost(NO_CHALLENGE));
        Recipient { id, key: self.key_of::<C>(&id), credential, public_key, window, pairwise: None }
    }

    /// Derives the keys of a recipient again for this new context (RFC 10021, section 2.6.3.2). Resets the replay
    /// window of the recipient, and deletes its pairwise keys.
    ///
    /// # Errors
    /// [`BadGroup`].
    pub fn renew<C: GroupCrypto>(&self, recipient: Recipient<B>) -> Result<Recipient<B>, BadGroup> {
        let Recipient { id, credential, public_key, .. } = recipient;
        self.check(&id, credential.as_ref())?;
        if key_of_ccs(credential.as_ref(), &self.algorithms).is_none() {
            return Err(BadGroup::Credential);
        }
        Ok(self.validated::<C>(id, (credential, public_key), Some(ReplayWindow::new())))
    }

    /// Continues a request of this member under this new context. From then on, only responses under this context are
    /// accepted, and the sequence numbers of all members begin with 0 again (RFC 10021, section 2.6.3.2).
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

    /// Derives the Sender or Recipient Key of a member (RFC 10021, section 2.3).
    pub(super) fn key_of<C: Crypto>(&self, id: &Id) -> Secret<KEY_LEN> {
        let mut key = Secret::zeroed();
        self.expand::<C>(id, KEY, key.expose_mut());
        key
    }

    fn expand<C: Crypto>(&self, id: &Id, kind: &[u8], out: &mut [u8]) {
        let aead = self.algorithms.of_derivation().unwrap_or_default();
        expand::<C>(&self.master, (&self.gid, aead), id, kind, out);
    }

    /// Returns the pairwise keys with another member. Derives them at the first call (RFC 10021, section 2.5.1).
    ///
    /// # Errors
    /// [`NotAuthentic`] if the group does not use the pairwise mode, or the member's public key is not valid.
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

    /// Derives the pairwise key under which the member `id` sends (RFC 10021, section 2.5.1). `sender_key` is the
    /// Sender Key of the member `id`. `secret` has three parts, which are concatenated: the credentials of both
    /// members, and their shared secret.
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

    /// Returns the nonce for the message with the member ID and the sequence number in `of`. The algorithm uses the
    /// first bytes of the common IV (RFC 10021, section 3.3).
    pub(super) fn nonce(&self, aead: Aead, of: (&Id, &PartialIv)) -> Nonce {
        let at = aead.nonce_at();
        if at == 0 {
            return Nonce::new(aead, &self.common_iv, of);
        }
        let mut iv = [0; MAX_NONCE];
        iv.iter_mut().skip(at).zip(self.common_iv).for_each(|(to, from)| *to = from);
        Nonce::new(aead, &iv, of)
    }

    /// Returns the reserved range of sequence numbers for messages that this member sends in both modes. To reserve
    /// more sequence numbers, first store the new end of the range durably, and then call [`Lease::extend`]. The
    /// highest sequence number is 2^40 - 1, or 2^31 - 1 with AES-GCM.
    pub const fn lease_mut(&mut self) -> &mut Lease {
        &mut self.lease
    }

    /// Returns the reserved range of sequence numbers for messages that this member sends in both modes.
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the Group Identifier.
    pub fn gid(&self) -> &[u8] {
        self.gid.as_bytes()
    }

    /// Returns the ID of this member.
    pub const fn id(&self) -> &Id {
        &self.sender_id
    }

    /// Returns true if the option of a request, or of a response with a kid context, identifies this context.
    pub fn is_named_by(&self, option: &OscoreOption<'_>) -> bool {
        option.kid_context == Some(self.gid.as_bytes())
    }

    /// Takes the sequence number of the next message from the reserved range.
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

/// Derives bytes for `id` (RFC 8613, section 3.2.1). `kind` is the type of the bytes, such as "Key" or "IV", as an
/// encoded text of CBOR.
fn expand<C: Crypto>(hkdf: &Hkdf, (gid, aead): (&Gid, Aead), id: &Id, kind: &[u8], out: &mut [u8]) {
    let mut info = Cbor::<INFO_LEN>::beginning_with([0x85]);
    write_info_of(&mut info, Some(gid.as_bytes()), aead, id, (kind, out.len() as u8));
    hkdf.expand::<C>(info.as_bytes(), out);
}

/// The type of the Signature Encryption Key (RFC 10021, section 2.1.9).
const SIGNATURE_ENCRYPTION_KEY: &[u8] = b"\x65SEKey";
