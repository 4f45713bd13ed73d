//! The Group OSCORE contexts of a server (RFC 10021), which all threads of the server share.

use super::{ContextError, MemberContext, StoredMember};
use crate::provider::HostCrypto;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tegmen::buf::Frame;
use tegmen::coap::{MessageRef, MessageType, Token};
use tegmen::identity::Principal;
use tegmen::oscore::group::{GroupNonce, GroupRequest, Mode, Recipient};
use tegmen::oscore::{Id, ProtectError, UnprotectError, Unprotected};

/// The security context of one group member, which several threads use.
#[derive(Clone)]
pub(crate) struct SharedMember(Arc<Shared>);

struct Shared {
    open: Mutex<OpenMember>,
    gid: Vec<u8>,
    /// The principal of each other member, by its ID.
    principals: HashMap<Id, Principal>,
}

struct OpenMember {
    stored: StoredMember,
    crypto: HostCrypto,
}

/// A decrypted request to a group, with the principal of the sender.
pub(crate) enum ReceivedInGroup<'r> {
    /// An authentic and new request. The values are the message, the sender, and the right to respond.
    Fresh(MessageRef<'r>, Principal, GroupNonce),
    /// An authentic request that may be a replay. The values are the message, the sender, and the data that identifies
    /// the request.
    Unverified(MessageRef<'r>, Principal, GroupRequest),
}

impl SharedMember {
    /// Makes a context that threads can share. For each other member, `learn` takes the name and the rights of the
    /// member, and returns its principal. The name has the form `GROUP/MEMBER`.
    pub(super) fn new(
        stored: StoredMember,
        mut learn: impl FnMut(&str, Option<&[String]>) -> Principal,
    ) -> std::io::Result<Self> {
        let principal = |(id, name, allow): (&Id, &str, Option<&[String]>)| {
            (*id, learn(&format!("{}/{name}", stored.group()), allow))
        };
        let principals = stored.others().map(principal).collect();
        let gid = stored.context.gid().to_vec();
        let open = Mutex::new(OpenMember { stored, crypto: HostCrypto::from_os()? });
        Ok(Self(Arc::new(Shared { open, gid, principals })))
    }

    /// Returns the Group Identifier.
    pub(super) fn gid(&self) -> &[u8] {
        &self.0.gid
    }

    /// Returns the directory as text for error messages.
    pub(super) fn dir(&self) -> String {
        self.lock().stored.dir().display().to_string()
    }

    fn lock(&self) -> MutexGuard<'_, OpenMember> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a request in place.
    ///
    /// # Errors
    /// `Err(Ok(reason))` if the message is refused for this reason, `Err(Err(error))` if the context cannot be used.
    pub(crate) fn take_request<'r>(
        &self,
        datagram: &'r mut [u8],
    ) -> Result<ReceivedInGroup<'r>, Result<UnprotectError, ContextError>> {
        let OpenMember { stored, crypto } = &mut *self.lock();
        stored.check_expiry().map_err(Err)?;
        let StoredMember { context, recipients, .. } = stored;
        let opened = context.unprotect_request(crypto, recipients.as_mut_slice(), datagram).map_err(Ok)?;
        let principal = |id: &Id| self.0.principals.get(id).copied().unwrap_or(Principal::NOBODY);
        Ok(match opened {
            Unprotected::Fresh(message, nonce) => {
                let sender = principal(nonce.request().client());
                ReceivedInGroup::Fresh(message, sender, nonce)
            }
            Unprotected::Unverified(message, request) => {
                ReceivedInGroup::Unverified(message, principal(request.client()), request)
            }
        })
    }

    /// Protects the response in `frame`, in the mode of the request.
    ///
    /// # Errors
    /// [`ProtectError`].
    pub(crate) fn protect_response(
        &self,
        request: &GroupRequest,
        nonce: Option<GroupNonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let OpenMember { stored, crypto } = &mut *self.lock();
        if nonce.is_none() {
            stored.lease_one()?;
        }
        let StoredMember { context, recipients, .. } = stored;
        let mode = match request.is_signed() {
            true => Mode::Group,
            false => Mode::Pairwise(find(recipients, request.client())?),
        };
        context.protect_response(crypto, mode, request, nonce, frame)
    }

    /// Writes a challenge as the response to a request that may be a replay.
    ///
    /// # Errors
    /// [`ProtectError`].
    pub(crate) fn write_challenge(
        &self,
        request: &GroupRequest,
        head: (MessageType, u16),
        token: &Token,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let OpenMember { stored, crypto } = &mut *self.lock();
        stored.lease_one()?;
        let StoredMember { context, recipients, .. } = stored;
        context.write_challenge(crypto, find(recipients, request.client())?, request, head, token, frame)
    }

    /// Stores the next free sequence number and all replay windows before the server ends.
    pub(super) fn close(&self) {
        // If it cannot be written, the next start continues after the lease, as after a power cut.
        let _ = self.lock().stored.close();
    }
}

/// Returns the recipient context of the member with this ID.
pub(crate) fn find<'r>(
    recipients: &'r mut [Recipient<Vec<u8>>],
    id: &Id,
) -> Result<&'r mut Recipient<Vec<u8>>, ProtectError> {
    recipients.iter_mut().find(|recipient| recipient.id() == id).ok_or(ProtectError::Unsupported)
}

/// Maximum number of bytes that a group context adds to a message.
pub(crate) const MEMBER_OVERHEAD: usize = MemberContext::OVERHEAD;
