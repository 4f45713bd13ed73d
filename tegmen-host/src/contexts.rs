//! OSCORE security contexts on disk. Each context has a directory with two files: one that people can edit, and one
//! with the sequence numbers. The program never replaces a stored sequence number by a lower number.
//!
//! ```text
//! alice/context.toml    IDs, secret, algorithm, rights: written once
//! alice/numbers.toml    the next sequence number: every lower one may have been used; written in advance
//! ```
//!
//! A context can be open in only one process at a time. Before a context uses sequence numbers, it leases a range of
//! them: it writes the end of this range to disk. If a directory was copied, restored from a backup or truncated, its
//! stored sequence numbers would repeat nonces, so the context cannot be opened. A call of [`recover`] raises the next
//! sequence number of this context above every number that may have been used, and the context can be opened again. If
//! rederivation is set at both endpoints, this call is not necessary: the context is opened, and the endpoints derive
//! new keys (RFC 8613, appendix B.2).

mod agreed;
mod directory;
mod file;
mod foreign;
mod keeper;
mod kind;
mod member;
mod members;
mod source;
mod windows;

pub use agreed::AgreedContexts;
pub(crate) use directory::{Received, Untaken};
pub use directory::{StoredContext, create, create_both};
pub use file::{ContextFile, aead_name as algorithm};
pub use foreign::{Format, export_to_wireshark};
pub use keeper::Used;
pub(crate) use keeper::{has_context, lock};
pub use kind::{recover, used};
pub use member::keys as member_keys;
pub use member::{
    AAD, ManagedKeys, Manager, MemberContext, MemberFile, OtherMember, OwnKeys, StoredMember, create_group, is_member,
};
pub use members::FollowedMember;
pub(crate) use members::{MEMBER_OVERHEAD, ReceivedInGroup, SharedMember, find as find_recipient};
pub use tegmen_store::LEASE;
pub use tegmen_store::clock::now;

use crate::provider::HostCrypto;
use crate::state::Database;
use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tegmen::identity::Principal;
use tegmen::oscore::{OscoreOption, RederivableContext, discovery_address};

/// Maximum number of bytes that a context between two endpoints adds to a message.
pub(crate) const OVERHEAD: usize = RederivableContext::OVERHEAD;

/// Maximum number of bytes of a protected message that a proxy has cut into blocks (MAX_UNFRAGMENTED_SIZE; RFC 8613,
/// section 4.1.3.4.2).
pub const MAX_UNFRAGMENTED_SIZE: usize = 4096;

/// Returns advice for the user after the system refused access to a file of a context.
fn next_step(refusal: &std::io::Error) -> &'static str {
    use std::io::ErrorKind;
    match refusal.kind() {
        ErrorKind::NotFound => "make a context with `tegmen oscore new`, or correct the path",
        ErrorKind::AlreadyExists => "choose another directory, or move that one away",
        _ => "correct the path, or the permissions there",
    }
}

/// Describes why a request cannot be sent to the group member with this name, and the next step. `None` means that the
/// request names no member. `others` are the names of the other members, separated by commas.
fn which_member(name: Option<&str>, others: &str) -> String {
    match (name, others) {
        (_, "") => NO_OTHER_MEMBER.to_owned(),
        (Some(name), _) => format!("the group has no member {name}: name one of {others}"),
        (None, _) => format!(
            "the group has several other members, and a request to one address is for one of them: name one of {others}"
        ),
    }
}

/// The error that a group has only one member, and the next step.
const NO_OTHER_MEMBER: &str = "this context has no other member of the group: let the others join, and get the current keys with \
                               `tegmen group update`";

/// The reason why a context cannot be used. The message of most variants also names the step that the user has to do
/// next.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// A file cannot be read or written.
    #[error("{file}: {source}: {}", next_step(source))]
    File {
        /// Path of the file.
        file: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// A file cannot be created.
    #[error("{file} cannot be written: {source}; choose another directory, or correct who may write there")]
    NotWritten {
        /// Path of the file.
        file: String,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file exists already, and is not overwritten.
    #[error("{file} is there already, and nothing is written over: choose another path, or remove what is there")]
    Exists {
        /// Path of the file.
        file: String,
    },
    /// Other users of this machine can read the secret.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds a secret: chmod 600 {file}")]
    Exposed {
        /// Path of the file.
        file: String,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file is not valid TOML of this format.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// Path of the file.
        file: String,
        /// The number of the wrong line in the file, from 1.
        line: usize,
        /// The error, and the correct form.
        message: String,
    },
    /// A group cannot be created. The text is the reason.
    #[error("{0}")]
    Group(String),
    /// Another process uses the context.
    #[error(
        "{dir}: another process uses this context; end that process first, because two processes would use the same nonces"
    )]
    InUse {
        /// The directory.
        dir: String,
    },
    /// The member is a monitor, so it sends no messages.
    #[error("{dir}: this member is a monitor, which sends no messages; join the group again without --monitor")]
    Monitor {
        /// The directory.
        dir: String,
    },
    /// The stored sequence numbers cannot be trusted.
    #[error(
        "{dir}: {why}; further messages could repeat nonces. `tegmen oscore recover {dir}` sets the next sequence number above each one that may have been used"
    )]
    Numbers {
        /// The directory.
        dir: String,
        /// The reason why the stored sequence numbers cannot be trusted.
        why: String,
    },
    /// The context is past the expiry date in its file.
    #[error(
        "{dir}: the context expired at {at}; make a new one with `tegmen oscore new`, or a new group with `tegmen oscore new-group`"
    )]
    Expired {
        /// The directory.
        dir: String,
        /// The expiry date, as in the file.
        at: String,
    },
    /// The context has been used, so it cannot be exported for the other endpoint: the exported context would begin
    /// with sequence number 0 again, and would repeat nonces.
    #[error(
        "{dir}: this context was used, and an exported end would begin with number 0 and repeat nonces. Make a new context \
         with `tegmen oscore new`, or export with --recover, past every number that may have been used"
    )]
    Used {
        /// The directory.
        dir: String,
    },
    /// The request names a member of a group, but the directory contains a context between two endpoints, which has no
    /// members.
    #[error(
        "{dir}: this context is between two endpoints, and does not protect a request to {member}: use the context of a group, or \
         leave out --member"
    )]
    NoGroup {
        /// The directory.
        dir: String,
        /// The member or the group to which the request goes, such as `the member hall`.
        member: String,
    },
    /// The context is of a group, so the request needs the name of the member to which it is sent. The request has no
    /// name, or a name that no member has.
    #[error("{dir}: {}", which_member(member.as_deref(), others))]
    WhichMember {
        /// The directory.
        dir: String,
        /// The member name in the request; `None` if the request has no name. No member in `others` has this name.
        member: Option<String>,
        /// The names of all members of the group except the member that the directory belongs to, separated by commas;
        /// empty if there is no other member.
        others: String,
    },
    /// Two contexts of one server are of the same group.
    #[error(
        "{dir}: {other} is of the same group (it has the same group_id); a request could be for either. Serve one member of a group"
    )]
    SameGroup {
        /// The directory.
        dir: String,
        /// The directory of the other context of this group.
        other: String,
    },
    /// The context has used all its 2^40 sequence numbers.
    #[error(
        "{dir}: all numbers of the context are used up; make a new one with `tegmen oscore new`, or a new group with `tegmen oscore new-group`"
    )]
    Exhausted {
        /// The directory.
        dir: String,
    },
    /// Two contexts of one server have the same Recipient ID, so the server cannot find out which of the two a request
    /// means. Either the contexts also have the same ID Context, or one of the two can derive new keys. A context
    /// that derives new keys changes its ID Context.
    #[error(
        "{dir}: {other} has the same recipient_id, and the same id_context or rederivation = true; a request could mean either"
    )]
    Ambiguous {
        /// The directory.
        dir: String,
        /// The name of the other context.
        other: String,
    },
}

/// An OSCORE context that several threads use.
#[derive(Clone)]
pub struct SharedContext(Arc<Shared>);

struct Shared {
    stored: Mutex<StoredContext>,
    /// The index of the context among the contexts of a server.
    place: u32,
    name: String,
    principal: Principal,
    /// True if an access token created the context, and the context has not opened a request yet.
    is_unused: AtomicBool,
}

impl SharedContext {
    /// Returns a shared context with this index, name and principal.
    pub(crate) fn new(stored: StoredContext, place: u32, name: String, principal: Principal) -> Self {
        let is_unused = AtomicBool::new(false);
        Self(Arc::new(Shared { stored: Mutex::new(stored), place, name, principal, is_unused }))
    }

    /// Returns a shared context that an access token created, and that has not opened a request yet.
    fn unused(stored: StoredContext, place: u32, name: String, principal: Principal) -> Self {
        let is_unused = AtomicBool::new(true);
        Self(Arc::new(Shared { stored: Mutex::new(stored), place, name, principal, is_unused }))
    }

    /// True if an access token created the context, and the context has not opened a request yet.
    fn is_unused(&self) -> bool {
        self.0.is_unused.load(Ordering::Relaxed)
    }

    /// Locks the context. No other thread can use it until the guard is dropped.
    pub fn lock(&self) -> MutexGuard<'_, StoredContext> {
        self.0.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the directory of the context.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the principal of the other endpoint. Each request that this context opened has this principal as its
    /// sender.
    pub fn principal(&self) -> Principal {
        self.0.principal
    }

    /// Returns the index of the context for [`Contexts::at`].
    pub(crate) fn place(&self) -> u32 {
        self.0.place
    }
}

/// The OSCORE contexts of a server. [`Self::find`] finds a context by the kid and the ID Context in a request.
#[derive(Clone, Default)]
pub struct Contexts {
    by_kid: Arc<HashMap<Vec<u8>, Vec<SharedContext>>>,
    all: Arc<[SharedContext]>,
    /// The contexts of groups in which the server is a member.
    members: Arc<[FollowedMember]>,
    /// The contexts on which the server and its clients agree while the server runs; `None` if the server makes no such
    /// contexts.
    agreed: Option<AgreedContexts>,
}

impl Contexts {
    /// Opens the contexts in `paths`. Each path is the directory of a context, or a directory of such directories. For
    /// each context, `learn` takes the name and the rights in the file, and returns a principal. The name of a member
    /// of a group has the name of the group as its prefix: `lights/hall`.
    ///
    /// # Errors
    /// The [`ContextError`] of the first context that cannot be used.
    pub fn open(
        paths: &[PathBuf],
        learn: impl FnMut(&str, Option<&[String]>) -> Principal,
    ) -> Result<Self, ContextError> {
        Self::open_in(paths, None, learn)
    }

    /// Does the same as [`Self::open`]. If there is a database, the sequence numbers are stored in the database.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub fn open_in(
        paths: &[PathBuf],
        database: Option<&Database>,
        mut learn: impl FnMut(&str, Option<&[String]>) -> Principal,
    ) -> Result<Self, ContextError> {
        let mut by_kid: HashMap<Vec<u8>, Vec<SharedContext>> = HashMap::new();
        let (mut all, mut members) = (Vec::new(), Vec::<(SharedMember, FollowedMember)>::new());
        for dir in directories(paths)? {
            if is_member(&dir) {
                let stored = StoredMember::open_in(&dir, database)?;
                let failed = |source| ContextError::File { file: dir.display().to_string(), source };
                let member = SharedMember::new(stored, &mut learn).map_err(failed)?;
                if let Some((other, _)) = members.iter().find(|(other, _)| other.gid() == member.gid()) {
                    return Err(ContextError::SameGroup { dir: dir.display().to_string(), other: other.dir() });
                }
                members.push((member.clone(), FollowedMember::new(dir, database.cloned(), member)));
                continue;
            }
            let place = all.len() as u32;
            let stored = StoredContext::open_in(&dir, database)?;
            let kid = stored.context.recipient_id().to_vec();
            let known = by_kid.entry(kid).or_default();
            let same = |other: &&SharedContext| {
                let other = other.lock();
                // Keys that are derived again have another ID Context each time.
                stored.rederives() || other.rederives() || other.context.id_context() == stored.context.id_context()
            };
            if let Some(other) = known.iter().find(same) {
                return Err(ContextError::Ambiguous { dir: dir.display().to_string(), other: other.name().to_owned() });
            }
            let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy().into_owned();
            let principal = learn(&name, stored.allow.as_deref());
            let shared = SharedContext::new(stored, place, name, principal);
            known.push(shared.clone());
            all.push(shared);
        }
        let members = members.into_iter().map(|(_, member)| member).collect();
        Ok(Self { by_kid: Arc::new(by_kid), all: all.into(), members, agreed: None })
    }

    /// Adds the contexts on which the server and its clients agree while the server runs.
    pub fn with_agreed(self, agreed: AgreedContexts) -> Self {
        agreed.reserve(self.by_kid.keys());
        Self { agreed: Some(agreed), ..self }
    }

    /// Returns the context with this index ([`SharedContext::place`]).
    pub(crate) fn at(&self, place: u32) -> Option<Cow<'_, SharedContext>> {
        let in_file = self.all.get(place as usize).map(Cow::Borrowed);
        in_file.or_else(|| self.agreed.as_ref()?.at(place).map(Cow::Owned))
    }

    /// Returns the context that the OSCORE option of a request names (RFC 8613, section 8.2, step 2): the context with
    /// the same kid and the same ID Context. If the option has no ID Context, returns the context with this kid that
    /// has no ID Context either. If there is no such context, returns the only context with this kid, if exactly one
    /// context has it. If the only context with the kid can derive new keys, the ID Context in the option does not
    /// matter.
    pub fn find(&self, option: &OscoreOption<'_>) -> Option<Cow<'_, SharedContext>> {
        let kid = option.kid?;
        match self.by_kid.get(kid) {
            Some(known) => Self::find_among(known, option).map(Cow::Borrowed),
            None => self.agreed.as_ref()?.find(kid).filter(|context| is_named(context, option)).map(Cow::Owned),
        }
    }

    /// Returns the group context whose Group Identifier is the ID Context in the OSCORE option of a message. The first
    /// value is the index of the context for [`Self::member_at`].
    pub(crate) fn find_member(&self, option: &OscoreOption<'_>) -> Option<(u32, SharedMember)> {
        let gid = option.kid_context?;
        let members = (0..).zip(&*self.members).filter_map(|(place, member)| Some((place, member.current()?)));
        let found = members.into_iter().find(|(_, member)| member.gid() == gid);
        if found.is_none() {
            self.members.iter().for_each(FollowedMember::note_unknown);
        }
        found
    }

    /// Returns the group context with this index and this Group Identifier, to answer a request.
    pub(crate) fn member_at(&self, place: u32, gid: &[u8]) -> Option<SharedMember> {
        self.members.get(place as usize)?.of_gid(gid)
    }

    /// Returns the contexts of groups, whose keys the server can replace while it runs.
    pub fn members(&self) -> &[FollowedMember] {
        &self.members
    }

    /// Notes that `context` opened a request. If an access token created `context`, the first request under `context`
    /// ends the other contexts from tokens of the same client: see [`AgreedContexts::take_of_token`].
    pub(crate) fn note_use(&self, context: &SharedContext) {
        if context.is_unused()
            && context.0.is_unused.swap(false, Ordering::Relaxed)
            && let Some(agreed) = &self.agreed
        {
            agreed.replace_others(context);
        }
    }

    /// Returns the context that the OSCORE option of a request names. The Recipient ID of each context in `known`
    /// equals the kid of the option.
    fn find_among<'c>(known: &'c [SharedContext], option: &OscoreOption<'_>) -> Option<&'c SharedContext> {
        if let [only] = known
            && only.lock().rederives()
        {
            return Some(only);
        }
        let exact = known.iter().find(|one| one.lock().context.id_context() == option.kid_context);
        exact.or(match known {
            [only] if option.kid_context.is_none() => Some(only),
            _ => None,
        })
    }

    /// Returns the multicast addresses to which clients send a request when they search for this server. Each context
    /// in a file, except the contexts of groups, has one address.
    pub fn discovery_addresses(&self) -> BTreeSet<Ipv6Addr> {
        let address = |context: &SharedContext| {
            let stored = context.lock();
            discovery_address::<HostCrypto>(stored.context.recipient_id(), stored.context.id_context()).into()
        };
        self.all.iter().map(address).collect()
    }

    /// Returns the number of contexts in files, including the contexts of groups.
    pub fn len(&self) -> usize {
        self.all.len() + self.members.len()
    }

    /// True if there are no contexts in files.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores the next free sequence number of each context. Call this before the server ends. After the next start,
    /// the server then need not send its clients a challenge (an Echo option).
    pub fn close(&self) {
        for context in &*self.all {
            // If the write fails, the next start continues after the lease, as after a power cut.
            let _ = context.lock().close();
        }
        self.members.iter().filter_map(FollowedMember::current).for_each(|member| member.close());
    }
}

/// Returns true if the OSCORE option of a request has no ID Context, or has the ID Context of this context.
fn is_named(context: &SharedContext, option: &OscoreOption<'_>) -> bool {
    option.kid_context.is_none() || context.lock().context.id_context() == option.kid_context
}

/// Returns the directories of contexts in `paths`. A path is the directory of a context, or contains directories of
/// contexts.
fn directories(paths: &[PathBuf]) -> Result<Vec<PathBuf>, ContextError> {
    let mut found = Vec::new();
    for path in paths {
        if path.join(source::CONTEXT).exists() {
            found.push(path.clone());
            continue;
        }
        let failed = |source| ContextError::File { file: path.display().to_string(), source };
        let mut inside: Vec<PathBuf> = std::fs::read_dir(path)
            .map_err(failed)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|dir| dir.join(source::CONTEXT).exists())
            .collect();
        if inside.is_empty() {
            return Err(failed(std::io::Error::new(std::io::ErrorKind::NotFound, "no context.toml in it")));
        }
        inside.sort();
        found.append(&mut inside);
    }
    Ok(found)
}

/// Returns a function that makes the [`ContextError`] for a file that cannot be created.
fn write_error(file: &Path) -> impl Fn(std::io::Error) -> ContextError + '_ {
    move |source| match source.kind() {
        std::io::ErrorKind::AlreadyExists => ContextError::Exists { file: file.display().to_string() },
        _ => ContextError::NotWritten { file: file.display().to_string(), source },
    }
}

fn file_error(file: &Path) -> impl Fn(std::io::Error) -> ContextError + '_ {
    move |source| ContextError::File { file: file.display().to_string(), source }
}

#[cfg(test)]
mod tests;
