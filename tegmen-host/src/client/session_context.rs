//! The OSCORE context that protects the requests of a session. It is a context between two endpoints (RFC 8613), or the
//! context of a group (RFC 10021). With the context of a group, the session sends its requests to one member, in the
//! pairwise mode.

use super::multicast::PhantomPending;
use crate::contexts::{
    ContextError, ContextFile, MEMBER_OVERHEAD, OVERHEAD, StoredContext, StoredMember, Untaken, find_recipient,
};
use crate::provider::HostCrypto;
use crate::udp::MAX_DATAGRAM;
use std::path::Path;
use tegmen::buf::Frame;
use tegmen::coap::MessageRef;
use tegmen::crypto::Crypto;
use tegmen::oscore::group::{GroupPending, Mode, Replies};
use tegmen::oscore::{Id, Pending, ProtectError};

/// Returns the error that the directory has no context of a group, or the error of reading its context. `to` is the
/// member or the group to which the request goes.
pub(super) fn no_group(dir: &Path, to: String) -> ContextError {
    let read = ContextFile::read(dir);
    read.err().unwrap_or_else(|| ContextError::NoGroup { dir: dir.display().to_string(), member: to })
}

/// The OSCORE context of a session.
pub(super) enum SessionContext {
    Pair(Box<StoredContext>),
    Member(Box<AskedMember>),
}

/// The context of a group, and the member to which the session sends its requests.
pub(super) struct AskedMember {
    stored: StoredMember,
    crypto: HostCrypto,
    to: Id,
}

/// The data that is needed to open the response to a protected request.
pub(super) enum PendingRequest {
    Pair(Pending),
    Member(GroupPending<[Replies; 1]>),
}

impl SessionContext {
    /// Opens the context in a directory. If it is the context of a group, `member` is the name of the member to which
    /// requests are sent. With `None` the group must have only one other member.
    ///
    /// # Errors
    /// [`ContextError`].
    pub(super) fn open(dir: &Path, member: Option<&str>) -> Result<Self, ContextError> {
        if !crate::contexts::is_member(dir) {
            return match member {
                Some(member) => Err(no_group(dir, format!("the member {member}"))),
                None => Ok(Self::Pair(Box::new(StoredContext::open(dir)?))),
            };
        }
        let stored = StoredMember::open(dir)?;
        let only = || stored.others().count() == 1;
        let to = match member {
            Some(name) => stored.id_of(name),
            None => stored.others().next().filter(|_| only()).map(|(id, ..)| *id),
        };
        let Some(to) = to else {
            let others = stored.others().map(|(_, name, _)| name).collect::<Vec<_>>().join(", ");
            let (dir, member) = (dir.display().to_string(), member.map(str::to_owned));
            return Err(ContextError::WhichMember { dir, member, others });
        };
        let failed = |source| ContextError::File { file: dir.display().to_string(), source };
        let crypto = HostCrypto::from_os().map_err(failed)?;
        Ok(Self::Member(Box::new(AskedMember { stored, crypto, to })))
    }

    /// True if the context is that of a group.
    pub(super) const fn is_of_group(&self) -> bool {
        matches!(self, Self::Member(_))
    }

    /// Returns the maximum number of bytes that the context adds to a request.
    pub(super) const fn overhead(&self) -> usize {
        match self {
            Self::Pair(_) => OVERHEAD,
            Self::Member(_) => MEMBER_OVERHEAD,
        }
    }

    /// Checks that the context has not expired. Reserves sequence numbers on disk if there is none left for the next
    /// request.
    ///
    /// # Errors
    /// [`ContextError`].
    pub(super) fn prepare(&mut self) -> Result<(), ContextError> {
        match self {
            Self::Pair(stored) => stored.prepare(),
            Self::Member(member) => member.stored.prepare(),
        }
    }

    /// Protects the request in `frame`.
    ///
    /// # Errors
    /// [`ProtectError`].
    pub(super) fn protect_request<C: Crypto>(
        &mut self,
        crypto: &mut C,
        frame: &mut Frame<'_>,
    ) -> Result<PendingRequest, ProtectError> {
        match self {
            Self::Pair(stored) => stored.context.protect_request(crypto, frame).map(PendingRequest::Pair),
            Self::Member(member) => {
                let AskedMember { stored: StoredMember { context, recipients, .. }, crypto, to } = &mut **member;
                let mode = Mode::Pairwise(find_recipient(recipients, to)?);
                context.protect_request(crypto, mode, [Replies::default()], frame).map(PendingRequest::Member)
            }
        }
    }

    /// Opens a response in place. Returns the message. The second value is true if the response is response #1 of a
    /// rederivation (RFC 8613, appendix B.2).
    ///
    /// # Errors
    /// [`Untaken`].
    pub(super) fn take_response<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        pending: &mut PendingRequest,
        datagram: &'r mut [u8],
    ) -> Result<(MessageRef<'r>, bool), Untaken> {
        match (self, pending) {
            (Self::Pair(stored), PendingRequest::Pair(pending)) => stored.take_response(crypto, pending, datagram),
            (Self::Member(member), PendingRequest::Member(pending)) => {
                let AskedMember { stored: StoredMember { context, recipients, .. }, crypto, .. } = &mut **member;
                let (message, _) = context.unprotect_response(crypto, recipients.as_mut_slice(), pending, datagram)?;
                Ok((message, false))
            }
            _ => Err(tegmen::oscore::UnprotectError::UnknownContext.into()),
        }
    }

    /// Opens the phantom request of a group observation in place. Returns the request without protection, and the state
    /// with which its notifications are opened. Returns `None` if the member to which the session sends its requests did
    /// not protect the phantom request, or if the context is not that of a group.
    pub(super) fn open_phantom(&mut self, datagram: &mut [u8]) -> Option<(Vec<u8>, PhantomPending)> {
        let Self::Member(member) = self else { return None };
        let AskedMember { stored: StoredMember { context, recipients, .. }, crypto, to } = &mut **member;
        let recipients = recipients.as_mut_slice();
        let opened = context.unprotect_phantom_request(crypto, recipients, [Replies::default()], datagram);
        let (message, pending) = opened.ok().filter(|(_, pending)| pending.request().client() == to)?;
        let mut storage = vec![0; MAX_DATAGRAM];
        let mut frame = Frame::new(&mut storage, 0);
        message.write(&mut frame).ok()?;
        Some((frame.bytes().to_vec(), pending))
    }

    /// Opens a notification of a group observation in place. Returns `None` if it is not valid, or if the context has
    /// expired.
    pub(super) fn open_notification<'r>(
        &mut self,
        pending: &mut PhantomPending,
        datagram: &'r mut [u8],
    ) -> Option<MessageRef<'r>> {
        let Self::Member(member) = self else { return None };
        member.stored.check_expiry().ok()?;
        let AskedMember { stored: StoredMember { context, recipients, .. }, crypto, .. } = &mut **member;
        let opened = context.unprotect_response(crypto, recipients.as_mut_slice(), pending, datagram);
        opened.ok().map(|(message, _)| message)
    }

    /// True if new keys have to be derived before the next request (RFC 8613, appendix B.2).
    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Self::Pair(stored) if stored.is_lost())
    }

    /// Notes that the other endpoint no longer knows the keys.
    pub(super) fn lose(&mut self) {
        if let Self::Pair(stored) = self {
            stored.lose();
        }
    }

    /// Prepares the context for request #1, which begins a rederivation (RFC 8613, appendix B.2).
    ///
    /// # Errors
    /// [`ProtectError`].
    pub(super) fn begin_rederivation(&mut self, crypto: &mut HostCrypto) -> Result<(), ProtectError> {
        match self {
            Self::Pair(stored) => stored.begin_rederivation(crypto),
            Self::Member(_) => Err(ProtectError::Unsupported),
        }
    }
}
