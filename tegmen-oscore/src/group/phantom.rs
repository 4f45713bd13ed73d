//! The phantom request of a group observation (draft-ietf-core-observe-multicast-notifications-14, section 8): a server
//! protects a request to itself, and gives the protected request to each client. The notifications to all clients are
//! responses to this request.
//!
//! ```text
//! server                                            each client
//!   protect_request, to no one     in a response ->   unprotect_phantom_request
//!   protect_response               multicast ->       unprotect_response
//! ```

use super::context::GroupContext;
use super::exchange::{GroupPending, GroupRequest, Replies};
use super::recipient::Recipients;
use super::unprotect::signed_option;
use crate::unprotect::UnprotectError;
use tegmen_base::crypto::GroupCrypto;
use tegmen_coap::MessageRef;

impl<B: AsRef<[u8]>, const AAD: usize> GroupContext<B, AAD> {
    /// Verifies and decrypts the phantom request of a group observation in place. Returns the request, which must not
    /// be executed, and the state with which [`Self::unprotect_response`] opens its notifications. Only the member that
    /// protected the request can send these notifications, and each of them needs a Partial IV. There is no replay
    /// check, and the replay window of the member does not change (section 8.3.1).
    ///
    /// # Errors
    /// [`UnprotectError`]; [`UnprotectError::BadOption`] also for a request in the pairwise mode.
    pub fn unprotect_phantom_request<'r, C: GroupCrypto, R: AsMut<[Replies]>>(
        &self,
        crypto: &mut C,
        recipients: &mut (impl Recipients<B> + ?Sized),
        replies: R,
        datagram: &'r mut [u8],
    ) -> Result<(MessageRef<'r>, GroupPending<R>), UnprotectError> {
        let message = &MessageRef::parse(datagram).map_err(|_| UnprotectError::Unprotected)?;
        let (option, value) = signed_option(message)?;
        let (Some(number), Some(kid)) = (option.partial_iv, option.kid) else { return Err(UnprotectError::BadOption) };
        if !self.is_named_by(&option) {
            return Err(UnprotectError::UnknownContext);
        }
        let recipient = recipients.recipient(kid).ok_or(UnprotectError::UnknownMember)?;
        let member = recipient.id;
        let request = GroupRequest { kid: member, number, gid: self.gid, is_signed: true, hash: None };
        let (credential, mut room) = (recipient.credential.as_ref(), [0; AAD]);
        let of = (&member, &number);
        let sealed = self.read((message, datagram, &mut room), (true, true, value), of, &request, credential)?;
        self.open(crypto, recipient, &sealed, datagram)?;
        let message = sealed.parts.inside(datagram).map_err(|_| UnprotectError::Malformed)?;
        if !message.code().is_request() {
            return Err(UnprotectError::Malformed);
        }
        let mut pending = GroupPending::new(request, Some(member), replies);
        // No response may use the nonce of the request, or a sequence number before that of the request.
        let mut taken = pending.taken(&member)?;
        taken.take(None, &message)?;
        taken.take(Some(&number), &message)?;
        pending.remember(&member, taken);
        Ok((message, pending))
    }
}
