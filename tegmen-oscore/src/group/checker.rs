//! Signature checkers (RFC 10021, section 7.5): endpoints outside of the group that verify who sent a message.

use super::aad::{self, Aad};
use super::algorithms::Algorithms;
use super::context::BadGroup;
use super::credential::key_of_ccs;
use super::exchange::GroupRequest;
use super::gid::Gid;
use super::keystream::SIGNATURE_LEN;
use super::unprotect::{Signed, signed_option};
use crate::id::Id;
use crate::option::PartialIv;
use crate::unprotect::{Parts, UnprotectError};
use tegmen_base::crypto::{GroupCrypto, KEY_LEN};
use tegmen_base::secret::Secret;
use tegmen_coap::MessageRef;

/// The data of a group with which a signature checker verifies the signatures of messages in the group mode. The
/// checker is no member, and cannot decrypt the messages (RFC 10021, sections 7.5 and 12.3).
///
/// The checker does not detect a replay, because this is the task of the members. `B` is the type of the bytes of the
/// Group Manager's credential, and `AAD` is the length of a buffer on the stack, as in a
/// [`GroupContext`](super::GroupContext).
pub struct SignatureChecker<B, const AAD: usize> {
    gid: Gid,
    algorithms: Algorithms,
    signature_encryption_key: Secret<KEY_LEN>,
    group_manager_credential: B,
}

impl<B: AsRef<[u8]>, const AAD: usize> SignatureChecker<B, AAD> {
    /// Makes the checker of a group. `gid` is the current Group Identifier of the group, and
    /// `signature_encryption_key` belongs to this Group Identifier: see
    /// [`GroupParameters::signature_encryption_key`](super::GroupParameters::signature_encryption_key).
    ///
    /// # Errors
    /// [`BadGroup::Algorithms`] if the group does not have the group mode, [`BadGroup::GidTooLong`].
    pub fn new(
        gid: &[u8],
        algorithms: Algorithms,
        signature_encryption_key: Secret<KEY_LEN>,
        group_manager_credential: B,
    ) -> Result<Self, BadGroup> {
        if algorithms.curve().is_none() || algorithms.of_group_mode().is_none() {
            return Err(BadGroup::Algorithms);
        }
        let gid = Gid::new(gid).ok_or(BadGroup::GidTooLong)?;
        Ok(Self { gid, algorithms, signature_encryption_key, group_manager_credential })
    }

    /// Verifies the signature of a request in the group mode. `credential` returns the authentication credential of the
    /// member with an ID, or `None` if the ID is not known. Returns the identity of the request, which is necessary to
    /// verify the signatures of its responses.
    ///
    /// # Errors
    /// [`UnprotectError::Unprotected`] if the message has no OSCORE option, [`UnprotectError::BadOption`] if it is not a
    /// request in the group mode or if a credential is too long, [`UnprotectError::UnknownContext`] if it has another
    /// Group Identifier, [`UnprotectError::UnknownMember`] if the sender has no credential on the curve of the group, and
    /// [`UnprotectError::NotAuthentic`] if the signature is not valid.
    pub fn check_request<'c, C: GroupCrypto>(
        &self,
        crypto: &mut C,
        credential: impl FnOnce(&[u8]) -> Option<&'c [u8]>,
        datagram: &[u8],
    ) -> Result<GroupRequest, UnprotectError> {
        let message = &MessageRef::parse(datagram).map_err(|_| UnprotectError::Unprotected)?;
        let (option, value) = signed_option(message)?;
        if !message.code().is_request() {
            return Err(UnprotectError::BadOption);
        }
        let (Some(number), Some(kid)) = (option.partial_iv, option.kid) else { return Err(UnprotectError::BadOption) };
        if option.kid_context != Some(self.gid.as_bytes()) {
            return Err(UnprotectError::UnknownContext);
        }
        let kid = Id::new(kid).ok_or(UnprotectError::UnknownMember)?;
        let request = GroupRequest { kid, number, gid: self.gid, is_signed: true, hash: None };
        let credential = credential(kid.as_bytes()).ok_or(UnprotectError::UnknownMember)?;
        self.check(crypto, (message, datagram, value), (&kid, &number), (true, &request), credential)?;
        Ok(request)
    }

    /// Verifies the signature of a response in the group mode to `request`, and returns the ID of the member that sent
    /// the response. `credential` has the same purpose as in [`Self::check_request`].
    ///
    /// # Errors
    /// The errors of [`Self::check_request`]. If the group got new keys after the request, the checker must have the
    /// data of the group for the new keys.
    pub fn check_response<'c, C: GroupCrypto>(
        &self,
        crypto: &mut C,
        credential: impl FnOnce(&[u8]) -> Option<&'c [u8]>,
        request: &GroupRequest,
        datagram: &[u8],
    ) -> Result<Id, UnprotectError> {
        let message = &MessageRef::parse(datagram).map_err(|_| UnprotectError::Unprotected)?;
        let (option, value) = signed_option(message)?;
        let Some(kid) = option.kid.filter(|_| message.code().is_response()) else {
            return Err(UnprotectError::BadOption);
        };
        // A response without a Partial IV uses the nonce of the request, and so the keys of the request.
        let is_ours = option.kid_context.is_none_or(|gid| gid == self.gid.as_bytes());
        if !is_ours || (option.partial_iv.is_none() && request.gid != self.gid) {
            return Err(UnprotectError::UnknownContext);
        }
        let kid = Id::new(kid).ok_or(UnprotectError::UnknownMember)?;
        let credential = credential(kid.as_bytes()).ok_or(UnprotectError::UnknownMember)?;
        let of = option.partial_iv.as_ref().map_or((&request.kid, &request.number), |number| (&kid, number));
        self.check(crypto, (message, datagram, value), of, (false, request), credential)?;
        Ok(kid)
    }

    /// Verifies a signature with the credential of the sender. `of` has the ID and the sequence number from which the
    /// nonce of the message is made.
    fn check<C: GroupCrypto>(
        &self,
        crypto: &mut C,
        (message, datagram, option): (&MessageRef<'_>, &[u8], &[u8]),
        of: (&Id, &PartialIv),
        (is_request, request): (bool, &GroupRequest),
        credential: &[u8],
    ) -> Result<(), UnprotectError> {
        let key = key_of_ccs(credential, &self.algorithms).ok_or(UnprotectError::UnknownMember)?;
        crypto.validate(&key).map_err(|_| UnprotectError::UnknownMember)?;
        let (aead, _) = self.algorithms.of_group_mode().ok_or(UnprotectError::BadOption)?;
        let parts = aad::Parts {
            algorithms: &self.algorithms,
            request,
            option,
            sender_credential: credential,
            group_manager_credential: self.group_manager_credential.as_ref(),
        };
        let mut room = [0; AAD];
        let aad = &Aad::new(&parts, &mut room).map_err(|_| UnprotectError::BadOption)?;
        let parts = &Parts::of(message, datagram, aead.tag_len().wrapping_add(SIGNATURE_LEN))?;
        let signed = Signed { aad, parts, of, is_request };
        Ok(signed.verify(crypto, (&self.signature_encryption_key, &self.gid), &key, datagram)?)
    }
}

impl<B, const AAD: usize> core::fmt::Debug for SignatureChecker<B, AAD> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let mut all = f.debug_struct("SignatureChecker");
        all.field("gid", &self.gid.as_bytes()).field("algorithms", &self.algorithms).finish_non_exhaustive()
    }
}
