//! The state of an access control server, stored as rows of a [`Store`].
//!
//! Each change is one transaction. The call that makes a change returns when the change is durable and in force. The
//! [`View`] has all rows in memory. The view is loaded at the start. From then on the state watches the store, and
//! applies each change of a row to the view. Decisions read only the view, so no decision waits for the store.
//!
//! The state has:
//!
//! * [`Device`]s and services, with their tags and the credentials by which the server knows them.
//! * The policy in force. A policy that fails its own tests is not applied.
//! * One-time keys of devices that may enrol.
//! * Session identities that were accepted. A session identity is the PSK identity of a session between a subscriber
//!   and a publisher. Each identity is accepted once, even after a restart.
//! * Revocations of tokens, which are durable before they are acknowledged.

mod beat;
mod departures;
mod device;
mod enrolment;
mod feed;
mod happened;
mod lease;
mod rows;
mod sessions;
mod view;

pub use device::{Credential, Device, NewDevice};
pub use enrolment::{Enrolment, NotEnrolled};
pub use happened::Happened;
pub use rows::AcceptedSession;
pub(crate) use sessions::ManySessions;
pub use view::{Grounds, InForce, View};

use crate::access::ace::trl::TokenHash;
use crate::access::policy::{FailedTest, OwnedParty, Policy, PolicyError};
use crate::access::protokey::AcceptedBounds;
use crate::access::revocation::{self, ListFull};
use device::Known;
use feed::Feed;
use lease::Lease;
use rows::{PolicyHead, Revocation, Session};
use sessions::SessionRows;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};
use tegmen_base::hex::to_hex;
use tegmen_store::store::{Entry, MAX_OPERATIONS, MAX_VALUE, Scan};
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};
use tegmen_trust::digest::sha256;
use view::Loading;

/// Limits of a [`State`].
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Limits of the session identities that are remembered.
    pub sessions: AcceptedBounds,
    /// Limits of the revocation list.
    pub revoked: revocation::Bounds,
    /// The number of seconds for which a subscriber may use the result of an introspection.
    pub lifetime: u64,
    /// The time for which the [`View`] counts as current, if several servers share the store. Within this time the
    /// server must confirm again that its view has all changes of the store. If it cannot, it grants nothing until the
    /// next confirmation.
    pub lease: Duration,
}

impl Default for Bounds {
    /// Returns the default limits of the session identities and of the revocation list, one hour as `lifetime`, and 10
    /// seconds as `lease`.
    fn default() -> Self {
        let (sessions, revoked) = (AcceptedBounds::default(), revocation::Bounds::default());
        Self { sessions, revoked, lifetime: 3600, lease: Duration::from_secs(10) }
    }
}

/// An event that is not the result of a call. The state reports it to the server and its operator.
#[derive(Debug)]
pub enum Event<'a> {
    /// The revocation list changed for these devices. The server must notify the devices among them that observe the
    /// list.
    Revocations(&'a BTreeSet<String>),
    /// A row cannot be read. A device with such a row has no rights, and a revoked token stays revoked. A policy with such
    /// a row is not applied.
    Fault(&'a StateFault),
    /// The store is not available. Decisions continue with the rows in memory, which are the [`View`].
    Unavailable(&'a StoreError),
    /// The [`View`] no longer counts as current (see [`Bounds::lease`]), so the server grants nothing.
    Ended,
    /// The [`View`] counts as current again (see [`Bounds::lease`]), so the server grants rights again.
    Renewed,
    /// The store has deleted changes that the [`View`] does not have, or has returned to an earlier state. The view
    /// refuses everything, and the server must be restarted.
    Lost,
}

impl Event<'_> {
    /// Emits the event to the subscriber of the crate `tracing`: [`Self::Renewed`] at the level INFO, a change of the
    /// revocation list at DEBUG, and all other events at ERROR.
    pub fn trace(&self) {
        match self {
            Self::Revocations(_) => tracing::debug!("access control: {self}"),
            Self::Renewed => tracing::info!("access control: {self}"),
            _ => tracing::error!("access control: {self}"),
        }
    }
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Revocations(concerned) => {
                write!(f, "the revocation list changed for {} devices", concerned.len())
            }
            Self::Fault(fault) => fault.fmt(f),
            Self::Unavailable(error) => error.fmt(f),
            Self::Ended => f.write_str("no news from the store: it grants nothing until the store answers"),
            Self::Renewed => f.write_str("the store answers again, and it grants again"),
            Self::Lost => f.write_str(
                "the store forgot changes that this server has not read, or an earlier state of it was restored; it refuses all \
                 requests: start it again",
            ),
        }
    }
}

/// A function that receives each [`Event`] of a state. A thread of the [`State`] calls the function, so it must return
/// quickly. [`Event::trace`] is such a function.
pub type Watcher = Box<dyn Fn(Event<'_>) + Send + Sync>;

/// A row that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the row {key} cannot be read: {why}: restore it from a backup, or use the version that wrote it")]
pub struct StateFault {
    /// The key of the row.
    pub key: String,
    /// The description of the fault.
    pub why: String,
}

/// The reason why a change was not made, or a row was not found.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// A device of this name exists already.
    #[error("there is a device of the name {0}: choose another name")]
    NameTaken(String),
    /// Another device has this certificate or raw public key.
    #[error(
        "another device already has the certificate or key with the SHA-256 {0}: give this device its own key, or remove the other device"
    )]
    DigestTaken(String),
    /// There is no device of this name.
    #[error("there is no device of the name {0}: add it, or correct the name")]
    Unknown(String),
    /// There is no one-time key for a device of this name.
    #[error("there is no one-time key for {0}: it was used, or withdrawn, or has expired; or correct the name")]
    NoOneTimeKey(String),
    /// A name or a tag is not valid, or [`Change::proof`] names another device than the one that is changed. The value
    /// is the reason.
    #[error("{0}")]
    Party(String),
    /// A policy has a mistake.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The policy fails its own tests. The value has the tests that fail.
    #[error("the policy fails {} of its tests, the first is {}", .0.len(), .0.first().map_or_else(String::new, ToString::to_string))]
    Tests(Vec<FailedTest>),
    /// The policy is too long. The value is its length in bytes.
    #[error("a policy has at most {most} bytes, this has {0}: name parties by tags and patterns", most = MAX_POLICY)]
    PolicyTooLong(usize),
    /// Another call or another server has changed a row meanwhile. The value is the name of the device, or a
    /// description of the changed rows.
    #[error("{0} was changed by somebody else meanwhile: read it and try again")]
    Changed(String),
    /// The session identity was accepted before.
    #[error("the session identity was accepted before")]
    SessionUsed {
        /// True if the identity was accepted for another subscriber.
        of_another: bool,
    },
    /// The revocation list is full.
    #[error(transparent)]
    ListFull(#[from] ListFull),
    /// A row cannot be read.
    #[error(transparent)]
    Fault(#[from] StateFault),
    /// The store refused the transaction, or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system cannot start a thread, or gives no random bytes.
    #[error("the system refuses a thread or randomness: {0}")]
    System(#[from] std::io::Error),
}

/// Maximum number of bytes of a policy. The limit exists because one transaction writes the whole policy.
pub const MAX_POLICY: usize = 15 * MAX_VALUE;
/// Maximum number of rows that one call reads from the store.
const PAGE: usize = 1000;

/// The changes that an operator makes to a device. If a field is `None`, the device keeps its present value.
#[derive(Debug, Default)]
pub struct Change {
    /// The device with its new credential and its new tags. The name of the device cannot change, so this value must
    /// contain the present name.
    pub proof: Option<NewDevice>,
    /// The new tags of the device. If `proof` is given too, these tags are used, and not those in `proof`.
    pub tags: Option<Vec<String>>,
    /// True to disable the device, false to enable it.
    pub disabled: Option<bool>,
}

/// A page of devices in the order of their names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DevicePage {
    /// The devices.
    pub devices: Vec<Device>,
    /// The name after which the next page begins; `None` on the last page.
    pub next: Option<String>,
}

/// The state of an access control server. Several servers may share a store.
pub struct State<S> {
    store: S,
    feed: Feed,
    session_rows: SessionRows,
}

impl<S: Store> State<S> {
    /// Loads the state from the store, and then follows changes of the store.
    ///
    /// # Errors
    /// [`StateError::Fault`] if a row cannot be read, [`StateError::Store`] if the store fails.
    pub async fn open(store: S, bounds: Bounds, watcher: Watcher) -> Result<Self, StateError> {
        let lease = store.is_shared().then(|| Lease { since: Instant::now(), length: bounds.lease });
        let mut scan = Scan::of(rows::ALL, PAGE);
        let mut page = store.scan(scan.clone()).await?;
        let mut loading = Loading::new(page.at, &bounds, lease);
        while let Some(next) = scan.following(&page) {
            // The store reads the next page while the server decodes `page`.
            let reading = store.scan(next.clone());
            loading.take(page.entries)?;
            page = reading.await?;
            scan = next;
        }
        loading.take(page.entries)?;
        let view = loading.finish()?;
        let session_rows = SessionRows::new(bounds.sessions.lifetime, view.next_sessions);
        let feed = Feed::start(store.clone(), view, watcher)?;
        Ok(Self { store, feed, session_rows })
    }

    /// Returns the view: all rows in memory. A caller must hold the guard only for the time of one decision.
    pub fn view(&self) -> MutexGuard<'_, View> {
        self.feed.shared.view()
    }

    async fn commit(&self, transaction: Transaction) -> Result<Revision, StoreError> {
        let revision = self.store.commit(transaction).await?;
        self.feed.shared.reached(revision).await?;
        Ok(revision)
    }

    /// Adds a device. Returns the revision of its row.
    ///
    /// # Errors
    /// [`StateError::NameTaken`], [`StateError::DigestTaken`] or [`StateError::Store`].
    pub async fn add(&self, new: &NewDevice) -> Result<Revision, StateError> {
        self.add_with(Transaction::default(), new).await.map_err(|error| not_added(error, new.device()))
    }

    /// Adds a device. `transaction` may contain further changes, which are made at the same time. The one-time key for
    /// the name of the device is deleted, so that nobody can enrol with this key after the device is removed.
    async fn add_with(&self, transaction: Transaction, new: &NewDevice) -> Result<Revision, StoreError> {
        let device = new.device();
        let row = rows::device(device.name());
        let mut transaction = transaction.require(row.as_str(), Revision::ABSENT).put(row, new.value());
        transaction = transaction.delete(rows::enrolment(device.name()));
        if let Some(digest) = device.credential.digest() {
            let name = Value::Plain(device.name().as_bytes().to_vec());
            transaction = transaction.require(rows::digest(&digest), Revision::ABSENT).put(rows::digest(&digest), name);
        }
        self.commit(transaction).await
    }

    /// Returns a page of at most `most` devices whose names follow the name `after`. With `None` returns the first
    /// page.
    ///
    /// # Errors
    /// [`StateError::Fault`] or [`StateError::Store`].
    pub async fn list(&self, after: Option<&str>, most: usize) -> Result<DevicePage, StateError> {
        let after = after.map(|name| rows::device(name).into_bytes());
        let page = self.store.scan(Scan { after, ..Scan::of(rows::DEVICES, most) }).await?;
        let mut devices = Vec::new();
        for entry in &page.entries {
            if let Some(name) = std::str::from_utf8(&entry.key).ok().and_then(|key| key.strip_prefix(rows::DEVICES)) {
                devices.push(read_device(name, entry)?.device);
            }
        }
        let next = page.next.and(devices.last().map(|device| device.name().to_owned()));
        Ok(DevicePage { devices, next })
    }

    /// Reads the device of this name from the store. Returns the device and the revision of its row.
    ///
    /// # Errors
    /// [`StateError::Unknown`], [`StateError::Fault`] or [`StateError::Store`].
    pub async fn find(&self, name: &str) -> Result<(Device, Revision), StateError> {
        let known = self.known(name).await?;
        Ok((known.device, known.changed))
    }

    async fn known(&self, name: &str) -> Result<Known, StateError> {
        let found = self.store.read(rows::device(name).as_bytes(), None).await?;
        let entry = found.entry.ok_or_else(|| StateError::Unknown(name.to_owned()))?;
        Ok(read_device(name, &entry)?)
    }

    /// Disables a device, or enables it again.
    ///
    /// A disabled device gets no keys and no rights, and nobody gets the key of a session with it. Keys that were given
    /// earlier stay valid until [`Self::revoke`] revokes them.
    ///
    /// # Errors
    /// [`StateError::Unknown`], [`StateError::Changed`], [`StateError::Fault`] or [`StateError::Store`].
    pub async fn set_disabled(&self, name: &str, disabled: bool) -> Result<Revision, StateError> {
        self.change(name, None, Change { disabled: Some(disabled), ..Change::default() }).await
    }

    /// Changes a device. If `over` is given, the change is made only if `over` is the revision of the device.
    ///
    /// # Errors
    /// [`StateError::Unknown`], [`StateError::Changed`], [`StateError::Party`], [`StateError::DigestTaken`],
    /// [`StateError::Fault`] or [`StateError::Store`].
    pub async fn change(&self, name: &str, over: Option<Revision>, change: Change) -> Result<Revision, StateError> {
        let mut known = self.known(name).await?;
        let revision = known.changed;
        let digest = known.device.credential.digest();
        if let Some(NewDevice { device, secret }) = change.proof {
            if device.name() != name {
                return Err(StateError::Party(format!(
                    "the device keeps its name {name}; this names {}",
                    device.name()
                )));
            }
            let disabled = known.device.disabled;
            known = known.with(Device { disabled, ..device }, secret);
        }
        if let Some(tags) = change.tags {
            known.device.party = OwnedParty::new(name, tags).map_err(StateError::Party)?;
        }
        known.device.disabled = change.disabled.unwrap_or(known.device.disabled);
        let row = rows::device(name);
        let mut transaction =
            Transaction::default().require(row.as_str(), over.unwrap_or(revision)).put(row.as_str(), known.value());
        let newer = known.device.credential.digest();
        if digest != newer {
            if let Some(digest) = digest {
                transaction = transaction.delete(rows::digest(&digest));
            }
            if let Some(digest) = newer {
                let value = Value::Plain(name.as_bytes().to_vec());
                transaction =
                    transaction.require(rows::digest(&digest), Revision::ABSENT).put(rows::digest(&digest), value);
            }
        }
        self.commit(transaction).await.map_err(|error| match error {
            StoreError::Conflict { key, .. } if key != row.as_bytes() => {
                StateError::DigestTaken(newer.map_or_else(String::new, |digest| to_hex(&digest)))
            }
            error => changed(error, name),
        })
    }

    /// Removes a device. If `over` is given, the device is removed only if `over` is its revision.
    ///
    /// # Errors
    /// [`StateError::Unknown`], [`StateError::Changed`], [`StateError::Fault`] or [`StateError::Store`].
    pub async fn remove(&self, name: &str, over: Option<Revision>) -> Result<Revision, StateError> {
        let known = self.known(name).await?;
        let row = rows::device(name);
        let mut transaction = Transaction::default().require(row.as_str(), over.unwrap_or(known.changed)).delete(row);
        if let Some(digest) = known.device.credential.digest() {
            transaction = transaction.delete(rows::digest(&digest));
        }
        self.commit(transaction).await.map_err(|error| changed(error, name))
    }

    /// Applies the policy in `text`, and makes it durable. `file` is the name of the policy's file, for messages. `by`
    /// is the operator. `now` is in seconds since 1970. If `over` is given, the policy is applied only if `over` is the
    /// revision of the policy in force.
    ///
    /// # Errors
    /// [`StateError::Policy`], [`StateError::Tests`], [`StateError::PolicyTooLong`], or [`StateError::Changed`] if the
    /// policy in force does not have the revision `over`. After these errors the policy in force is unchanged.
    pub async fn apply_policy(
        &self,
        (file, text): (&str, &str),
        by: &str,
        over: Option<Revision>,
        now: u64,
    ) -> Result<Revision, StateError> {
        Policy::parse(file, text)?.tested().map_err(StateError::Tests)?;
        if text.len() > MAX_POLICY {
            return Err(StateError::PolicyTooLong(text.len()));
        }
        let mut transaction = Transaction::default();
        let mut parts: u8 = 0;
        for part in text.as_bytes().chunks(MAX_VALUE) {
            transaction = transaction.put(rows::part(parts), Value::Plain(part.to_vec()));
            parts = parts.saturating_add(1);
        }
        let head = PolicyHead { file: file.to_owned(), parts, by: by.to_owned(), at: now };
        transaction = transaction.put(rows::POLICY, rows::json(&head));
        if let Some(over) = over {
            transaction = transaction.require(rows::POLICY, over);
        }
        self.commit(transaction).await.map_err(|error| changed(error, "the policy in force"))
    }

    /// Returns true if [`Self::remember_configured`] was last called with this text.
    pub(crate) async fn is_configured(&self, text: &str) -> Result<bool, StateError> {
        let entry = self.store.read(rows::CONFIGURED.as_bytes(), None).await?.entry;
        Ok(entry.is_some_and(|entry| entry.value.plain() == Some(&sha256(text.as_bytes()))))
    }

    /// Stores durably that the policy in `text` was applied from the configuration of a server.
    pub(crate) async fn remember_configured(&self, text: &str) -> Result<(), StateError> {
        let digest = Value::Plain(sha256(text.as_bytes()).to_vec());
        self.commit(Transaction::default().put(rows::CONFIGURED, digest)).await?;
        Ok(())
    }

    /// Stores durably that a session identity was accepted. `grounds` are the [rows](View::grounds) on which the
    /// decision to accept the identity depends. The key of the session may leave the server only after this function
    /// returns. `now` is in seconds since 1970.
    ///
    /// # Errors
    /// [`StateError::SessionUsed`] if the store already has the identity, from another server or from a time before a
    /// restart. [`StateError::Changed`] if another server has changed the policy or a device meanwhile. The view then
    /// has this change, and no longer remembers the identity, so the caller can decide again. [`StateError::Store`] if
    /// the result is unknown. The identity then cannot be used any more, and the key must not leave the server.
    pub async fn bind(&self, session: &AcceptedSession, grounds: &Grounds, now: u64) -> Result<(), StateError> {
        if !self.is_alone() {
            return self.bind_shared(session, grounds, now).await;
        }
        self.begin_to_bind(session)?;
        let mut sessions = ManySessions::default();
        sessions.add(session);
        Ok(self.bind_many(&sessions, now).await?)
    }

    /// Stores an accepted session identity durably, in a separate row. The store accepts a row for this identity only
    /// once, even if several servers write it.
    async fn bind_shared(&self, session: &AcceptedSession, grounds: &Grounds, now: u64) -> Result<(), StateError> {
        let AcceptedSession { identity, subscriber, until, token } = session;
        let row = rows::session(identity);
        let token = token.as_deref().map(to_hex);
        let value = rows::json(&Session { subscriber: subscriber.clone(), until: *until, token });
        let mut ended = None;
        loop {
            let lease = self.session_lease(now, ended).await?;
            let mut transaction = Transaction { require: grounds.0.clone(), ..Transaction::default() };
            transaction = transaction.require(row.as_str(), Revision::ABSENT);
            transaction = transaction.put_leased(row.as_str(), value.clone(), lease);
            match self.store.commit(transaction).await {
                Ok(_) => return Ok(()),
                Err(StoreError::LeaseEnded(lease)) if ended.is_none() => ended = Some(lease),
                Err(StoreError::Conflict { key, found }) if key != row.as_bytes() => {
                    self.view().take_back(identity);
                    self.feed.shared.reached(found).await?;
                    return Err(StateError::Changed("the policy or a device".to_owned()));
                }
                Err(StoreError::Conflict { .. }) => break,
                Err(error) => return Err(error.into()),
            }
        }
        let found = self.store.read(row.as_bytes(), None).await?;
        let session = found.entry.and_then(|entry| rows::read::<Session>(&entry.value).ok());
        Err(StateError::SessionUsed { of_another: session.is_some_and(|found| found.subscriber != *subscriber) })
    }

    /// Revokes a token. `hash` is the [hash](revocation::token_hash) of the token. `concerned` are the names of the
    /// devices that must learn of the revocation. `expires` is the time at which the token expires, in seconds since
    /// 1970. The revocation is durable and in force when this function returns. If the token is revoked already, the
    /// devices in `concerned` are added to the devices that know of it, and the later expiry counts.
    ///
    /// # Errors
    /// [`StateError::ListFull`], [`StateError::Fault`] or [`StateError::Store`]. The token may then still be valid.
    pub async fn revoke(&self, hash: &[u8], expires: u64, concerned: &[&str]) -> Result<(), StateError> {
        let row = rows::revoked(hash);
        let concerned = concerned.iter().map(|name| (*name).to_owned()).collect();
        let (mut revocation, mut at) = (Revocation { expires, concerned }, Revision::ABSENT);
        loop {
            if at == Revision::ABSENT {
                self.view().has_room_for_revocation(hash)?;
            }
            let transaction =
                Transaction::default().require(row.as_str(), at).put(row.as_str(), rows::json(&revocation));
            match self.commit(transaction).await {
                Err(StoreError::Conflict { .. }) => {}
                committed => return Ok(committed.map(drop)?),
            }
            at = match self.store.read(row.as_bytes(), None).await?.entry {
                Some(entry) => {
                    let fault = |why| StateFault { key: row.clone(), why };
                    let earlier: Revocation = rows::read(&entry.value).map_err(fault)?;
                    revocation = revocation.merged_into(earlier.clone());
                    if revocation == earlier {
                        return Ok(self.feed.shared.reached(entry.changed).await?);
                    }
                    entry.changed
                }
                // It expired meanwhile.
                None => Revision::ABSENT,
            };
        }
    }

    /// Removes expired tokens from the revocation list, and removes expired one-time keys. One transaction removes the
    /// tokens, and another one the keys. A later call removes the tokens and keys that do not fit into these
    /// transactions. The caller must call this function once a second. Returns the number of removed tokens.
    ///
    /// # Errors
    /// [`StateError::Store`].
    pub async fn expire(&self, now: u64) -> Result<usize, StateError> {
        let expired = self.view().expired(now, MAX_OPERATIONS / 2);
        let enrolments = self.view().expired_enrolments(now);
        let count = self.expire_tokens(&expired, now).await?;
        let delete: Vec<_> = enrolments.iter().map(|name| rows::enrolment(name).into_bytes()).collect();
        if !delete.is_empty() {
            self.commit(Transaction { delete, ..Transaction::default() }).await?;
        }
        Ok(count)
    }

    /// Removes those of the tokens from the revocation list whose rows in the store have expired. A row may have got a
    /// later expiry that the view does not have yet. Returns the number of removed tokens: zero if a row changes during
    /// the call.
    async fn expire_tokens(&self, hashes: &[TokenHash], now: u64) -> Result<usize, StateError> {
        let rows = hashes.iter().map(|hash| rows::revoked(hash));
        let reads: Vec<_> = rows.map(|row| (self.store.read(row.as_bytes(), None), row)).collect();
        let mut transaction = Transaction::default();
        for (read, row) in reads {
            if let Some(entry) = read.await?.entry
                && rows::read::<Revocation>(&entry.value).is_ok_and(|revocation| revocation.expires <= now)
            {
                transaction = transaction.require(row.as_str(), entry.changed).delete(row);
            }
        }
        let count = transaction.delete.len();
        if count == 0 {
            return Ok(0);
        }
        match self.commit(transaction).await {
            Ok(_) => Ok(count),
            Err(StoreError::Conflict { .. }) => Ok(0),
            Err(error) => Err(error.into()),
        }
    }
}

fn read_device(name: &str, entry: &Entry) -> Result<Known, StateFault> {
    rows::read_device(name, entry).map_err(|why| StateFault { key: rows::device(name), why })
}

/// Converts the error of a transaction that adds a device.
fn not_added(error: StoreError, device: &Device) -> StateError {
    match error {
        StoreError::Conflict { key, .. } if key == rows::device(device.name()).as_bytes() => {
            StateError::NameTaken(device.name().to_owned())
        }
        StoreError::Conflict { .. } => {
            StateError::DigestTaken(device.credential.digest().map_or_else(String::new, |digest| to_hex(&digest)))
        }
        error => error.into(),
    }
}

/// Converts the error of a transaction. A conflict becomes [`StateError::Changed`] with the value `what`, which names
/// the changed rows.
fn changed(error: StoreError, what: &str) -> StateError {
    match error {
        StoreError::Conflict { .. } => StateError::Changed(what.to_owned()),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests;
