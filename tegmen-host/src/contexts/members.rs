//! The Group OSCORE contexts of a server (RFC 10021), which all threads of the server share.

use super::{ContextError, ManagedKeys, MemberContext, StoredMember};
use crate::credentials::Credentials;
use crate::provider::HostCrypto;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tegmen::buf::Frame;
use tegmen::coap::{MessageRef, MessageType, Token};
use tegmen::identity::Principal;
use tegmen::oscore::group::{GroupNonce, GroupRequest, Mode, Recipient};
use tegmen::oscore::{Id, ProtectError, UnprotectError, Unprotected};
use tegmen_store::Database;
use tokio::sync::Notify;

/// The time for which a member can answer, with old keys, requests that it received under the old keys.
const OLD: Duration = Duration::from_secs(30);

/// The context of a group member at a server. The keys of a later epoch can replace the context while the server runs.
#[derive(Clone)]
pub struct FollowedMember(Arc<Followed>);

struct Followed {
    dir: PathBuf,
    database: Option<Database>,
    epochs: RwLock<Epochs>,
    /// The signal that a message named a group that no context has.
    unknown: Notify,
}

struct Epochs {
    /// The context of the newest epoch; `None` for a member that was evicted.
    current: Option<SharedMember>,
    /// The context of the previous epoch, and the time at which it was replaced.
    before: Option<(SharedMember, Instant)>,
}

impl FollowedMember {
    pub(super) fn new(dir: PathBuf, database: Option<Database>, member: SharedMember) -> Self {
        let epochs = RwLock::new(Epochs { current: Some(member), before: None });
        Self(Arc::new(Followed { dir, database, epochs, unknown: Notify::new() }))
    }

    /// Returns the directory of the context.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// Waits until a message named a group that no context of the server has.
    pub(crate) async fn unknown(&self) {
        self.0.unknown.notified().await;
    }

    /// Notes that a message named a group that no context of the server has.
    pub(super) fn note_unknown(&self) {
        self.0.unknown.notify_one();
    }

    /// Returns the context of the newest epoch; `None` for a member that was evicted.
    pub(crate) fn current(&self) -> Option<SharedMember> {
        self.0.epochs.read().unwrap_or_else(PoisonError::into_inner).current.clone()
    }

    /// Returns the name of the group if the member is a monitor that processes no request of this epoch, because its last
    /// process did not end in order (RFC 10021, section 2.6.1.1). Such a monitor needs a new epoch of the group.
    pub fn needs_new_epoch(&self) -> Option<String> {
        let member = self.current()?;
        let OpenMember { stored, .. } = &*member.lock();
        (stored.is_monitor() && stored.has_lost_window()).then(|| stored.group().to_owned())
    }

    /// True if the context is of the OSCORE group with this name, and is not the context of a monitor.
    pub(crate) fn is_of(&self, group: &str) -> bool {
        self.current().is_some_and(|member| {
            let OpenMember { stored, .. } = &*member.lock();
            stored.group() == group && !stored.is_monitor()
        })
    }

    /// Returns the context with this Group Identifier, to answer a request.
    pub(super) fn of_gid(&self, gid: &[u8]) -> Option<SharedMember> {
        let epochs = self.0.epochs.read().unwrap_or_else(PoisonError::into_inner);
        let before = epochs.before.as_ref().filter(|(_, at)| at.elapsed() < OLD).map(|(member, _)| member);
        epochs.current.iter().chain(before).find(|member| member.gid() == gid).cloned()
    }

    /// Replaces the context by the keys of a later epoch, on disk and in memory. No further request under the old keys
    /// is accepted.
    ///
    /// # Errors
    /// [`ContextError`].
    pub(crate) fn replace(&self, keys: &ManagedKeys<'_>, credentials: &Credentials) -> Result<(), ContextError> {
        let Followed { dir, database, epochs, .. } = &*self.0;
        let mut epochs = epochs.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(current) = &epochs.current {
            current.lock().stored.retire();
        }
        keys.replace(dir)?;
        let stored = StoredMember::open_in(dir, database.as_ref())?;
        let failed = |source| ContextError::File { file: dir.display().to_string(), source };
        let new = SharedMember::new(stored, |name, allow| credentials.learn(name, allow)).map_err(failed)?;
        let before = epochs.current.replace(new).map(|member| (member, Instant::now()));
        if let Some((forgotten, _)) = std::mem::replace(&mut epochs.before, before) {
            forgotten.0.principals.values().for_each(|principal| credentials.forget(*principal));
        }
        Ok(())
    }

    /// Removes the keys of an evicted member from memory. The files on disk remain.
    pub(crate) fn evict(&self) {
        let mut epochs = self.0.epochs.write().unwrap_or_else(PoisonError::into_inner);
        *epochs = Epochs { current: None, before: None };
    }
}

/// The security context of one group member in one epoch, which several threads use.
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
    /// An authentic and new request. The values are the message, the sender, and the permission for one response.
    Fresh(MessageRef<'r>, Principal, GroupNonce),
    /// An authentic request that may be a replay. The values are the message, the sender, and the data that identifies
    /// the request.
    Unverified(MessageRef<'r>, Principal, GroupRequest),
}

impl SharedMember {
    /// Makes a context that threads can share. Calls `learn` for each member of the group except the member that has
    /// this context. `learn` takes the name and the rights of a member, and returns the principal of this member. The
    /// name has the form `GROUP/MEMBER`.
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

    /// True if another member of the group has this principal.
    pub(crate) fn has(&self, principal: Principal) -> bool {
        self.0.principals.values().any(|other| *other == principal)
    }

    /// Returns the Group Identifier.
    pub(crate) fn gid(&self) -> &[u8] {
        &self.0.gid
    }

    /// True if the context has expired.
    pub(crate) fn has_expired(&self) -> bool {
        self.lock().stored.check_expiry().is_err()
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
    /// [`ProtectError`]; [`ProtectError::Unsupported`] for a monitor, which sends no responses.
    pub(crate) fn protect_response(
        &self,
        request: &GroupRequest,
        nonce: Option<GroupNonce>,
        frame: &mut Frame<'_>,
    ) -> Result<(), ProtectError> {
        let OpenMember { stored, crypto } = &mut *self.lock();
        if stored.is_monitor() {
            return Err(ProtectError::Unsupported);
        }
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

    /// Protects the request in `frame` in the group mode, as the phantom request of a group observation. Returns the
    /// request, to which [`Self::protect_response`] binds the notifications.
    ///
    /// # Errors
    /// [`ProtectError`]; [`ProtectError::Unsupported`] for a monitor.
    pub(crate) fn protect_phantom(&self, frame: &mut Frame<'_>) -> Result<GroupRequest, ProtectError> {
        let OpenMember { stored, crypto } = &mut *self.lock();
        if stored.is_monitor() {
            return Err(ProtectError::Unsupported);
        }
        stored.lease_one()?;
        stored.check_expiry().map_err(|_| ProtectError::Exhausted)?;
        let pending = stored.context.protect_request(crypto, Mode::Group, [], frame)?;
        Ok(*pending.request())
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
