//! The controller of the groups in a store.
//!
//! A change of a group is planned in memory. One transaction then makes the change durable. The messages of the change
//! are sealed and signed only after the transaction. The transaction succeeds only if the main row of the group, its
//! head, is the same as at the time of the plan. So if two controllers change a group at the same time, one change
//! succeeds, and the other controller plans again. The messages of the last change are derived from the rows of the
//! group in the store. So a controller that was killed at any point makes the same messages again
//! ([`Controller::messages`]), and a key and a nonce never protect two different messages.

mod admissions;
mod clashes;
mod gathering;
mod group_ids;
mod manager;

pub(super) use clashes::Clash;

use super::GroupIdentity;
use super::config::{GroupConfig, GroupError, Protocol};
use super::happened::GroupHappened;
use super::members::{Member, Members, NewMember};
use super::oscore::{self, SenderIds};
use super::outbox::Outbox;
use super::rekeying::{Outgoing, Rekeying};
use super::rows::{self, Begun, GUARD, Head, Row};
use super::tree::{Admitted, Change, KeyTree, MAX_LEVELS, Path, Refused, reserved};
use crate::access::policy::OwnedParty;
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tegmen_base::crypto::{Crypto, DIGEST_LEN, SignatureScheme};
use tegmen_base::hex::from_hex;
use tegmen_base::secret::Secret;
use tegmen_host::group::groupcomm::{Cred, Creds, CredsFilter, GROUPS, GroupKeys, address_bytes};
use tegmen_host::group::member_file::MemberFile;
use tegmen_host::hash::Keys;
use tegmen_host::provider::HostCrypto;
use tegmen_host::x509::signer::Signer;
use tegmen_store::clock::now;
use tegmen_store::store::{Changed, Entry, Scan};
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};

/// Maximum number of plans for one change. A change is planned again if another controller changed the group during the
/// previous plan.
const PLANS: usize = 8;
/// Maximum number of rows that one call reads from the store.
const PAGE: usize = 1000;
/// Maximum number of members whose rows one transaction writes when a group is created.
const BATCH: usize = 100;
/// Maximum number of transactions that wait for the store at the same time while a group is created. Each transaction
/// writes [`BATCH`] members. The store makes several transactions durable at once.
const AT_ONCE: usize = 64;
/// Maximum time for which [`Controller::first_sent`] waits until the messages of a change were sent once.
const PATIENCE: Duration = Duration::from_secs(10);
/// Maximum number of bytes of the name of a group.
const MAX_NAME: usize = 64;

/// A report about a group, for the operator of the group. The report contains no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The configuration, which never changes.
    pub config: GroupConfig,
    /// The identity of the group: 16 random bytes.
    pub identity: GroupIdentity,
    /// The number of the current epoch, from 1.
    pub epoch: u16,
    /// The number of epochs that can follow the current epoch.
    pub epochs_left: usize,
    /// The number of epochs that are reserved for evictions. `epochs_left` includes them.
    pub epochs_reserved: usize,
    /// The number of all members, even if `members` contains only a part of them.
    pub size: usize,
    /// The members with their names, in the order of the names. [`Controller::page`] returns only a part of them.
    pub members: Vec<(String, Member)>,
    /// The controllers that send requests to the group: the name and the SenderID of each.
    pub replicas: Vec<(String, u8)>,
    /// The number of SenderIDs in use, by members and controllers.
    pub sender_ids: usize,
    /// The revision of the store at which the group changed last.
    pub revision: Revision,
    /// The Group Identifier of the current epoch, in a Group OSCORE group.
    pub gid: Option<Vec<u8>>,
}

impl Report {
    /// Returns the warnings about the group `name`. There is one warning if few epochs are left, one if the group has
    /// the maximum number of members, and one if all SenderIDs are in use. Each warning also names what the operator
    /// has to do next.
    pub fn lacks(&self, name: &str) -> Vec<String> {
        let space = 1_usize << self.config.levels.min(MAX_LEVELS);
        let full = || Refused::Full.to_string();
        let no_sender_id = || GroupError::NoSenderId(self.config.senders).to_string();
        let full = (self.size >= space).then(full);
        let is_axiom = self.config.protocol == Protocol::Axiom;
        let no_sender_id = (is_axiom && self.sender_ids >= usize::from(self.config.senders)).then(no_sender_id);
        few_epochs(name, self.epochs_left, self.epochs_reserved).into_iter().chain(full).chain(no_sender_id).collect()
    }
}

/// The state of the epochs of a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Epochs {
    /// The number of the current epoch, from 1.
    pub current: u16,
    /// The number of epochs that can follow the current epoch, including those that are reserved for evictions.
    pub left: u16,
    /// A warning if few epochs are left. The warning also names what the operator has to do next.
    pub warning: Option<String>,
}

/// Returns a warning if a group has few epochs left.
fn few_epochs(name: &str, left: usize, reserved: usize) -> Option<String> {
    let few = || {
        format!("the group {name} has {left} more epochs, the last {reserved} for evictions only: create a new group")
    };
    (left <= reserved.saturating_mul(2)).then(few)
}

/// A group in memory, with the content of its rows at one revision.
struct Group {
    name: String,
    prefix: String,
    config: GroupConfig,
    tree: KeyTree,
    members: Members,
    /// Time at which the current epoch began, in seconds since 1970.
    since: u64,
    /// The Sender IDs of a Group OSCORE group.
    ids: SenderIds,
    /// The epochs in which members joined together who still have one row.
    joined: BTreeSet<u16>,
    /// The revision of the store that last changed the head, the main row of the group.
    at: Revision,
}

/// The changes that one transaction makes in the rows of a group.
#[derive(Default)]
struct Step {
    /// The change of the key tree that begins a new epoch; `None` if no epoch begins.
    change: Option<Change>,
    /// The time at which the new epoch begins, in seconds since 1970.
    since: u64,
    /// The names of the members that change, each with the new record of the member. `None` in place of a record
    /// removes the member.
    members: Vec<(String, Option<Member>)>,
    /// The row of members that joined together, with the epoch in which they joined. The row has all `members` of the
    /// step. `None` in place of the row deletes it: `members` then have separate rows.
    joined: Option<(u16, Option<Value>)>,
    replica: Option<(String, Option<u8>)>,
    /// The Sender IDs after the change, in a Group OSCORE group; `None` if they stay as they are.
    ids: Option<SenderIds>,
}

/// The controller of the groups of a store. Several controllers may share the store.
pub struct Controller<S, C = HostCrypto> {
    store: S,
    signer: Option<Arc<dyn Signer>>,
    crypto: Mutex<C>,
    groups: Mutex<HashMap<String, Arc<Place>, Keys>>,
    /// True if the GroupIDs of all existing groups are reserved. A controller holds the lock while it chooses a
    /// GroupID, so it chooses one GroupID at a time.
    group_ids: tokio::sync::Mutex<bool>,
    outbox: Option<Outbox>,
    gathering: gathering::Gathering,
}

/// The entry of a group in the memory of the controller.
#[derive(Default)]
struct Place {
    /// The lock of the calls that change the group or read its rows: one call at a time. A call that also locks `admits`
    /// locks it first, and a call that also locks `group` locks `turn` first.
    turn: tokio::sync::Mutex<()>,
    /// The group; `None` if it is not loaded. Only a call that has the `turn` changes a loaded group. A change does not
    /// hold this lock while it waits for the store, so calls that only need the group in memory do not wait.
    group: tokio::sync::Mutex<Option<Group>>,
    waiting: admissions::Waiting,
    /// The lock of the call that admits the members in `waiting`. Other calls for the group may lock `turn` while this
    /// call waits for further members.
    admits: tokio::sync::Mutex<()>,
}

/// The lock of the calls that change a group or read its rows.
type Turn<'p> = tokio::sync::MutexGuard<'p, ()>;
/// The lock of a group in memory.
type Held<'p> = tokio::sync::MutexGuard<'p, Option<Group>>;

impl Place {
    /// Locks the group for a call that changes the group or reads its rows.
    async fn lock(&self) -> (Turn<'_>, Held<'_>) {
        let turn = self.turn.lock().await;
        (turn, self.group.lock().await)
    }

    /// Locks the group for the response to the admission of the member `name` in the epoch `since`. Without a [`Turn`],
    /// the group in memory has this admission, so the response needs no row.
    async fn lock_admission(&self, (name, since): (&str, u16)) -> (Option<Turn<'_>>, Held<'_>) {
        let held = self.group.lock().await;
        let is_admission = |group: &Group| group.members.get(name).is_some_and(|member| member.since == since);
        if held.as_ref().is_some_and(is_admission) {
            return (None, held);
        }
        drop(held);
        let (turn, held) = self.lock().await;
        (Some(turn), held)
    }
}

impl<S: Store> Controller<S> {
    /// Makes a controller for the groups in `store`. `signer` signs rekey messages with a key on secp256r1. Without a
    /// signer, each member gets separate rekey messages.
    ///
    /// # Errors
    /// The error of the system if it has no randomness.
    pub fn new(store: S, signer: Option<Arc<dyn Signer>>) -> std::io::Result<Self> {
        Ok(Self::with(store, signer, HostCrypto::from_os()?))
    }
}

impl<S: Store, C: Crypto> Controller<S, C> {
    /// Makes a controller as [`Self::new`] does, with the cryptographic provider `crypto`.
    pub fn with(store: S, signer: Option<Arc<dyn Signer>>, crypto: C) -> Self {
        let group_ids = tokio::sync::Mutex::default();
        let (crypto, gathering) = (Mutex::new(crypto), Default::default());
        Self { store, signer, crypto, groups: Mutex::default(), group_ids, outbox: None, gathering }
    }

    /// Adds an outbox to the controller. The controller puts the messages of each change into this outbox, and
    /// [`send()`](super::send) sends them from there.
    #[must_use]
    pub fn with_outbox(mut self, outbox: Outbox) -> Self {
        self.outbox = Some(outbox);
        self
    }

    /// Waits until all messages of the change that began `epoch` were sent once, but at most for [`PATIENCE`]. The
    /// server of the controller calls this function before it gives a new member its keys. So the other members know
    /// the epoch before the new member uses the epoch.
    pub(super) async fn first_sent(&self, group: &str, epoch: u16) {
        if let Some(outbox) = &self.outbox {
            let _ = tokio::time::timeout(PATIENCE, outbox.first_sent(group, epoch)).await;
        }
    }

    pub(super) const fn outbox(&self) -> Option<&Outbox> {
        self.outbox.as_ref()
    }

    pub(super) fn crypto(&self) -> MutexGuard<'_, C> {
        self.crypto.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a group with its first members, in the epoch 1. The caller gives the members their
    /// [parameters](Self::parameters); no message is sent.
    ///
    /// # Errors
    /// [`GroupError::NameTaken`]; [`GroupError::Name`] if the name of the group or of a member is not valid, or if two
    /// members have the same name; [`GroupError::Config`], [`GroupError::OtherFamily`], [`GroupError::AddressTaken`],
    /// [`GroupError::NoSenderId`], [`GroupError::GroupIdTaken`], [`GroupError::NoGroupId`]; [`Refused::Full`] if there
    /// are more members than leaves; [`GroupError::Changed`] if another controller changed rows of the new group during
    /// each attempt. After these errors the group does not exist. After [`GroupError::Store`] the group may exist.
    pub async fn create(&self, name: &str, config: GroupConfig, members: &[NewMember]) -> Result<(), GroupError> {
        check_name(name)?;
        config.check()?;
        let first = first_members(&config, members)?;
        for _ in 0..PLANS {
            if self.store.read(rows::name(name).as_bytes(), None).await?.entry.is_some() {
                return Err(GroupError::NameTaken(name.to_owned()));
            }
            let (mut identity, mut seed) = ([0; 16], Secret::zeroed());
            {
                let mut crypto = self.crypto();
                crypto.random(&mut identity);
                crypto.random(seed.expose_mut());
            }
            match self.write_new((name, &config), (&identity, &seed), &first).await {
                // Another controller has created a group of this name, or has deleted the new rows as the rest of a
                // failed attempt.
                Err(GroupError::Store(StoreError::Conflict { .. })) => {}
                written => {
                    // The group in memory may be an earlier group of this name, which another controller has deleted.
                    if let Ok(place) = self.place(name).await {
                        *place.lock().await.1 = None;
                    }
                    return written;
                }
            }
        }
        Err(GroupError::Changed(name.to_owned()))
    }

    /// Writes the rows of a new group. The last transaction writes the head, the main row of the group. If several
    /// transactions are necessary, the first one writes a mark, which is a row for a group that is deleted or not
    /// created yet. The last transaction removes the mark. With this mark the rows of a failed attempt can be found and
    /// deleted.
    async fn write_new(
        &self,
        (name, config): (&str, &GroupConfig),
        (identity, seed): (&GroupIdentity, &Secret<DIGEST_LEN>),
        members: &[(String, Member)],
    ) -> Result<(), GroupError> {
        let prefix = rows::prefix(identity);
        let put = |rows: Transaction, (name, member): &(String, Member)| {
            rows.put(Row::Member(name).key(&prefix), rows::plain(member))
        };
        let (before, with_head) = members.split_at(members.len().saturating_sub(BATCH));
        let begun = Begun { epoch: 1, since: now(), changed: Vec::new(), ids: SenderIds::default() };
        let last = |config: &GroupConfig| {
            let rows = Transaction::default()
                .require(rows::name(name), Revision::ABSENT)
                .put(rows::name(name), rows::identity(identity))
                .put(Row::Head.key(&prefix), Head::value((name, config), begun.clone(), seed, false))
                .put(Row::Guard.key(&prefix), Value::Number(GUARD));
            with_head.iter().fold(rows, put)
        };
        if before.is_empty() {
            return self.commit_new((name, config), last).await;
        }
        let mark = rows::deleted(identity);
        let made = Transaction::default().require(mark.as_str(), Revision::ABSENT);
        let at = self.store.commit(made.put(mark.as_str(), Value::Plain(Vec::new()))).await?;
        let written = async {
            for batches in before.chunks(BATCH * AT_ONCE) {
                let marked = || Transaction::default().require(mark.as_str(), at);
                let commit = |batch: &[_]| self.store.commit(batch.iter().fold(marked(), put));
                let answers: Vec<_> = batches.chunks(BATCH).map(commit).collect();
                for answer in answers {
                    answer.await?;
                }
            }
            let last = |config: &GroupConfig| last(config).require(mark.as_str(), at).delete(mark.as_str());
            self.commit_new((name, config), last).await
        };
        let written = written.await;
        if written.is_err() {
            // If this fails, the next deletion of any group removes the rows.
            let _ = self.clean(mark.as_bytes(), at).await;
        }
        written
    }

    /// Evicts a member. The next epoch begins. The evicted member cannot decrypt messages of the new epoch.
    ///
    /// # Errors
    /// The errors of [`Self::admit`].
    pub async fn evict(&self, group: &str, member: &str) -> Result<Rekeying, GroupError> {
        self.change(group, |group, crypto| {
            let leaving = group.member(member)?;
            let change = group.tree.evict(crypto, leaving.leaf)?;
            let ids = group.ids_after(0, [leaving]);
            Ok(Step { change: Some(change), members: vec![(member.to_owned(), None)], ids, ..Step::default() })
        })
        .await
    }

    /// Begins the next epoch with the same members.
    ///
    /// # Errors
    /// The errors of [`Self::admit`].
    pub async fn rekey(&self, group: &str) -> Result<Rekeying, GroupError> {
        self.change(group, |group, _| Ok(Step { change: Some(group.tree.rekey()?), ..Step::default() })).await
    }

    /// Begins the next epoch with the same members if the current epoch has lasted for the time `age` or longer.
    /// Otherwise returns `None`.
    ///
    /// # Errors
    /// The errors of [`Self::admit`].
    pub async fn rekey_after(&self, group: &str, age: Duration) -> Result<Option<Rekeying>, GroupError> {
        let is_young = |since: u64| now().saturating_sub(since) < age.as_secs();
        if is_young(self.head(group).await?.begun.since) {
            return Ok(None);
        }
        let rekeying = self.change(group, |group, _| match is_young(group.since) {
            true => Err(GroupError::Changed(group.name.clone())),
            false => Ok(Step { change: Some(group.tree.rekey()?), ..Step::default() }),
        });
        match rekeying.await {
            // Another controller has begun an epoch during this call.
            Err(GroupError::Changed(_)) => Ok(None),
            rekeying => rekeying.map(Some),
        }
    }

    /// Returns the messages of the last change again, for a controller that was killed before it sent them. The epoch 1
    /// has no messages.
    ///
    /// # Errors
    /// [`GroupError::NotSigned`] if the controller cannot sign at the moment, and the errors of [`Self::show`].
    pub async fn messages(&self, group: &str) -> Result<Rekeying, GroupError> {
        let place = self.place(group).await?;
        let (_turn, mut place) = place.lock().await;
        let group = self.current(&mut place, group).await?;
        group.rekeying(&mut *self.crypto(), self.signer.as_deref())
    }

    /// Returns the SenderID of the controller `replica`, which sends requests to the group. A controller without a
    /// SenderID gets one. No two controllers have the same SenderID.
    ///
    /// # Errors
    /// [`GroupError::NoSenderId`] if all SenderIDs are in use, [`GroupError::Name`] if the name is not valid for a
    /// member, [`GroupError::Changed`] if other controllers changed the group during each attempt, and the errors of
    /// [`Self::show`].
    pub async fn replica(&self, group: &str, replica: &str) -> Result<u8, GroupError> {
        check_member_name(replica)?;
        let place = self.place(group).await?;
        let (_turn, mut held) = place.lock().await;
        for _ in 0..PLANS {
            let known = self.current(&mut held, group).await?;
            known.require(Protocol::Axiom)?;
            if let Some(id) = known.members.replica(replica) {
                return Ok(id);
            }
            // Nobody had it in this epoch: a SenderID is given back by an eviction, which begins an epoch.
            let id = known.members.free_sender_id(known.config.senders, &[])?;
            let step = Step { replica: Some((replica.to_owned(), Some(id))), ..Step::default() };
            let (is_made, now_held) = self.commit(&place, held, step).await?;
            if is_made {
                return Ok(id);
            }
            held = now_held;
        }
        Err(GroupError::Changed(group.to_owned()))
    }

    /// Removes the SenderID of the controller `replica`, which sends no further requests to the group. The next epoch
    /// begins.
    ///
    /// # Errors
    /// The errors of [`Self::admit`].
    pub async fn retire(&self, group: &str, replica: &str) -> Result<Rekeying, GroupError> {
        self.change(group, |group, _| {
            let no_member = || GroupError::NoMember { group: group.name.clone(), member: replica.to_owned() };
            group.members.replica(replica).ok_or_else(no_member)?;
            let change = Some(group.tree.rekey()?);
            Ok(Step { change, replica: Some((replica.to_owned(), None)), ..Step::default() })
        })
        .await
    }

    /// Deletes a group. From then on the controller knows none of the members of the group, and makes no message for
    /// them. A group that is later created with this name has another identity and other secrets, so no nonce is used
    /// twice under one key. If `over` is given, the group is deleted only if `over` is the [revision](Report::revision)
    /// of its last change.
    ///
    /// # Errors
    /// [`GroupError::Outdated`] if the group has changed since `over`, [`GroupError::NoGroup`],
    /// [`GroupError::Changed`], [`GroupError::Store`]. After an error nothing has changed, except perhaps after
    /// [`GroupError::Store`].
    pub async fn delete(&self, group: &str, over: Option<Revision>) -> Result<(), GroupError> {
        let place = self.place(group).await?;
        let (_turn, mut place) = place.lock().await;
        *place = None;
        for _ in 0..PLANS {
            let identity = self.identity(group).await?;
            let prefix = rows::prefix(&identity);
            let head = Row::Head.key(&prefix);
            let entry = self.store.read(head.as_bytes(), None).await?.entry;
            let Entry { value, changed: at, .. } = entry.ok_or_else(|| GroupError::NoGroup(group.to_owned()))?;
            if over.is_some_and(|over| over != at) {
                return Err(GroupError::Outdated(group.to_owned()));
            }
            // Without its head a group is none: what is left of it is deleted afterwards.
            let transaction = Transaction::default()
                .require(head.as_str(), at)
                .delete(rows::name(group))
                .delete(head)
                .delete(Row::Guard.key(&prefix))
                .put(rows::deleted(&identity), Value::Plain(Vec::new()));
            let (transaction, is_shared) = self.release_group_id(transaction, group, &value).await?;
            match self.store.commit(transaction).await {
                Ok(_) => {
                    if is_shared {
                        self.reserve_again().await;
                    }
                    self.outbox.iter().for_each(|outbox| outbox.forget(group));
                    // If this fails, the next deletion of any group removes the remaining rows.
                    let _ = self.clean_all().await;
                    return Ok(());
                }
                Err(StoreError::Conflict { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(GroupError::Changed(group.to_owned()))
    }

    /// Deletes all rows of groups that were deleted, and the rows of new groups whose creation was not completed.
    async fn clean_all(&self) -> Result<(), StoreError> {
        let deleted = self.store.scan(Scan::of(rows::DELETED, PAGE)).await?;
        for Entry { key, changed, .. } in deleted.entries {
            self.clean(&key, changed).await?;
        }
        Ok(())
    }

    /// Deletes the rows of the group to which `mark` belongs. A mark is the row that a deleted or unfinished group has.
    /// Does nothing if the mark has changed since the revision `at`.
    async fn clean(&self, mark: &[u8], at: Revision) -> Result<(), StoreError> {
        let Some(prefix) = rows::prefix_of_deleted(mark) else { return Ok(()) };
        // A controller that creates the group writes no further row of it, because it requires the mark as it was.
        let claim = Transaction::default().require(mark, at).put(mark, Value::Plain(Vec::new()));
        match self.store.commit(claim).await {
            // The group is created, or another controller deletes the rows.
            Err(StoreError::Conflict { .. }) => return Ok(()),
            claimed => claimed?,
        };
        loop {
            let page = self.store.scan(Scan::of(prefix.as_str(), PAGE)).await?;
            let delete = |rows: Transaction, entry: &Entry| rows.delete(entry.key.clone());
            let commit = |rows: &[Entry]| self.store.commit(rows.iter().fold(Transaction::default(), delete));
            let answers: Vec<_> = page.entries.chunks(BATCH).map(commit).collect();
            for answer in answers {
                answer.await?;
            }
            if page.next.is_none() {
                break;
            }
        }
        self.store.commit(Transaction::default().delete(mark)).await.map(drop)
    }

    /// Returns at most `most` names of groups, in the order of the names. The first returned name is the next name
    /// after `after`, or the first of all names if `after` is `None`.
    ///
    /// # Errors
    /// [`GroupError::Store`].
    pub async fn list(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, GroupError> {
        let after = after.map(|name| rows::name(name).into_bytes());
        let page = self.store.scan(Scan { after, ..Scan::of(rows::NAMES, most) }).await?;
        let name = |entry: Entry| Some(std::str::from_utf8(&entry.key).ok()?.strip_prefix(rows::NAMES)?.to_owned());
        Ok(page.entries.into_iter().filter_map(name).collect())
    }

    /// Returns the epochs of a group without loading the group.
    ///
    /// # Errors
    /// [`GroupError::NoGroup`], [`GroupError::Fault`] or [`GroupError::Store`].
    pub async fn epochs(&self, group: &str) -> Result<Epochs, GroupError> {
        let Head { config, begun, .. } = self.head(group).await?;
        let left = config.last_epoch.saturating_sub(begun.epoch);
        let reserved = reserved(usize::from(config.last_epoch).saturating_add(1));
        Ok(Epochs { current: begun.epoch, left, warning: few_epochs(group, left.into(), reserved) })
    }

    /// Reads only the head of a group, its main row, from the store. The group in memory stays unchanged.
    async fn head(&self, group: &str) -> Result<Head, GroupError> {
        let prefix = rows::prefix(&self.identity(group).await?);
        let row = Row::Head.key(&prefix);
        let head = self.store.read(row.as_bytes(), None).await?.entry;
        let head = head.ok_or_else(|| GroupError::NoGroup(group.to_owned()))?;
        Head::read(&head.value).map_err(|why| GroupError::Fault { key: row, why })
    }

    /// Returns the names of all groups.
    pub(super) async fn names(&self) -> Result<Vec<String>, GroupError> {
        let mut names: Vec<String> = Vec::new();
        loop {
            let page = self.list(names.last().map(String::as_str), PAGE).await?;
            if page.is_empty() {
                return Ok(names);
            }
            names.extend(page);
        }
    }

    /// Returns the newest revision of the store.
    pub(super) async fn newest(&self) -> Result<Revision, GroupError> {
        Ok(self.store.read(rows::NAMES.as_bytes(), None).await?.at)
    }

    /// Waits until groups have changed after the revision `after`. Returns their names, and the revision to pass to the
    /// next call.
    pub(super) async fn changed_groups(&self, after: Revision) -> Result<(Vec<String>, Revision), GroupError> {
        let changes = self.store.changes(rows::GROUPS.as_bytes(), after, PAGE).await?;
        let revisions = changes.changes.chunk_by(|one, next| one.revision == next.revision);
        let mut groups: Vec<String> =
            revisions.flat_map(GroupHappened::of).map(|happened| happened.group().to_owned()).collect();
        groups.sort_unstable();
        groups.dedup();
        Ok((groups, changes.through))
    }

    /// Returns the names of the members of a group, each with the revision of the store at which the member was
    /// admitted.
    pub(super) async fn admissions(&self, group: &str) -> Result<Vec<(String, Revision)>, GroupError> {
        let prefix = rows::prefix(&self.identity(group).await?);
        let mut members = Vec::new();
        // The second prefix is that of all rows of members that joined together.
        for rows in [Row::Member("").key(&prefix), format!("{prefix}joined/")] {
            let mut next = Some(Scan::of(rows, PAGE));
            while let Some(scan) = next {
                let page = self.store.scan(scan.clone()).await?;
                for entry in &page.entries {
                    members.extend(admitted(entry, &prefix)?);
                }
                next = scan.following(&page);
            }
        }
        Ok(members)
    }

    /// Returns the admissions of those members of a group that are in `names`: see [`Self::admissions`].
    pub(super) async fn admissions_of(
        &self,
        group: &str,
        names: &BTreeSet<String>,
    ) -> Result<Vec<(String, Revision)>, GroupError> {
        let prefix = rows::prefix(&self.identity(group).await?);
        let mut members = Vec::new();
        for name in names {
            let found = self.store.read(Row::Member(name).key(&prefix).as_bytes(), None).await?;
            if let Some(entry) = found.entry {
                members.extend(admitted(&entry, &prefix)?);
            }
        }
        let mut next = Some(Scan::of(format!("{prefix}joined/"), PAGE));
        while let Some(scan) = next {
            let page = self.store.scan(scan.clone()).await?;
            for entry in &page.entries {
                members.extend(admitted(entry, &prefix)?.into_iter().filter(|(name, _)| names.contains(name)));
            }
            next = scan.following(&page);
        }
        Ok(members)
    }

    /// Returns a group with all its members.
    ///
    /// # Errors
    /// [`GroupError::NoGroup`], [`GroupError::Restored`] if the group comes from a restored backup,
    /// [`GroupError::Fault`] if a row cannot be read, [`GroupError::Store`].
    pub async fn show(&self, group: &str) -> Result<Report, GroupError> {
        self.page(group, None, usize::MAX).await
    }

    /// Returns a group as [`Self::show`] does, but with at most `most` members. The members are in the order of their
    /// names. The first returned member is the next member after the name `after`, or the first of all members if
    /// `after` is `None`.
    ///
    /// # Errors
    /// The errors of [`Self::show`].
    pub async fn page(&self, group: &str, after: Option<&str>, most: usize) -> Result<Report, GroupError> {
        let place = self.place(group).await?;
        let (_turn, mut place) = place.lock().await;
        let group = self.current(&mut place, group).await?;
        let members = group.members.behind(after).take(most);
        Ok(Report {
            config: group.config,
            identity: *group.tree.group(),
            epoch: group.tree.epoch(),
            epochs_left: group.tree.epochs_left(),
            epochs_reserved: group.tree.epochs_reserved(),
            size: group.members.len(),
            members: members.map(|(name, member)| (name.to_owned(), member.clone())).collect(),
            replicas: group.members.replicas().map(|(name, id)| (name.to_owned(), id)).collect(),
            sender_ids: group.members.sender_ids().count(),
            revision: group.at,
            gid: group.gid(),
        })
    }

    /// Returns the number of the leaf that a member has in the key tree of the group.
    ///
    /// # Errors
    /// [`GroupError::NoMember`], and the errors of [`Self::show`].
    pub async fn node(&self, group: &str, member: &str) -> Result<u32, GroupError> {
        let place = self.place(group).await?;
        let (_turn, mut place) = place.lock().await;
        let group = self.current(&mut place, group).await?;
        Ok(group.member(member)?.leaf)
    }

    /// Returns the parameters of a member. A member needs its parameters after its admission, and after it missed an
    /// epoch. The parameters contain secrets of this member.
    ///
    /// # Errors
    /// [`GroupError::NoMember`], and the errors of [`Self::show`].
    pub async fn parameters(&self, group: &str, member: &str) -> Result<GroupKeys, GroupError> {
        self.admitted(group, member, u16::MAX).await
    }

    /// Returns the parameters of a member as [`Self::parameters`] does, for the response to the request with which the
    /// member joined. `since` is the epoch that began when this request admitted the member.
    ///
    /// # Errors
    /// The errors of [`Self::parameters`], and [`GroupError::AdmittedAgain`] if a later admission gave the same member
    /// other keys. Each admission has its own keys, because two devices with the same keys would use the same nonces.
    pub async fn admitted(&self, group: &str, member: &str, since: u16) -> Result<GroupKeys, GroupError> {
        self.admitted_with(group, (member, since), None).await
    }

    /// Returns the parameters of a member as [`Self::admitted`] does, with the public keys of the other members that
    /// `filter` selects.
    pub(super) async fn admitted_with(
        &self,
        group: &str,
        (name, since): (&str, u16),
        filter: Option<&CredsFilter>,
    ) -> Result<GroupKeys, GroupError> {
        let place = self.place(group).await?;
        let mut held = place.lock_admission((name, since)).await;
        let (group, member) = self.with_admission(&mut held, (group, Protocol::Axiom), (name, since)).await?;
        let is_new = member.since == group.tree.epoch();
        let Admitted { group: identity, epoch, chain, secret, leaf, path } = group.tree.admit::<C>(member.leaf)?;
        Ok(GroupKeys {
            group: identity,
            group_id: group.config.group_id.unwrap_or_default(),
            address: (address_bytes(group.config.address.ip()), group.config.address.port()),
            suite: group.config.suite,
            senders: group.config.senders,
            sender_id: member.sender_id,
            own_address: member.address.map_or([0; 16], address_bytes),
            late: group.members.sender_ids().filter(|id| is_new && Some(*id) != member.sender_id).collect(),
            epoch,
            chain,
            secret,
            randoms: *group.tree.randoms(),
            leaf,
            path,
            controller: self.signer.as_ref().map(|signer| signer.public_key().to_vec()),
            signature: group.config.signature,
            creds: filter.map(|filter| group.creds(name, filter)),
        })
    }

    /// Returns a group of this protocol and one of its members, which was admitted in the epoch `since` or in an
    /// earlier epoch. `held` is the result of [`Place::lock_admission`]. Does not read the store without a [`Turn`]: the
    /// response to this admission needs no later change.
    async fn with_admission<'h>(
        &self,
        (turn, held): &'h mut (Option<Turn<'_>>, Held<'_>),
        (group, protocol): (&str, Protocol),
        (name, since): (&str, u16),
    ) -> Result<(&'h Group, &'h Member), GroupError> {
        let group: &Group = match turn {
            None => self.loaded(held, group).await?,
            Some(_) => self.current(held, group).await?,
        };
        group.require(protocol)?;
        let member = group.admitted_member(name)?;
        match member.since > since {
            true => Err(GroupError::AdmittedAgain { group: group.name.clone(), member: name.to_owned() }),
            false => Ok((group, member)),
        }
    }

    /// Returns the public keys that the member `member` needs in a group with signatures. These are the public keys of
    /// the members that `filter` selects, without `member` itself.
    ///
    /// # Errors
    /// [`GroupError`]; [`GroupError::NoMember`] if the group has no such member.
    pub async fn creds(&self, group: &str, member: &str, filter: &CredsFilter) -> Result<Creds, GroupError> {
        let place = self.place(group).await?;
        let (_turn, mut place) = place.lock().await;
        let group = self.current(&mut place, group).await?;
        group.member(member)?;
        Ok(Creds { epoch: group.tree.epoch(), creds: group.creds(member, filter) })
    }

    /// Returns the scheme of the signatures of a group; `None` if the group has no signatures. If the group is loaded,
    /// the scheme comes from the memory of this controller. The scheme is wrong if another controller has replaced the
    /// group by another group of the same name. An admission then fails if the other group requires a public key and the
    /// device gave none, or gave one of another scheme. It does not fail if the other group has no signatures.
    ///
    /// # Errors
    /// The errors of [`Self::show`].
    pub async fn signature(&self, group: &str) -> Result<Option<SignatureScheme>, GroupError> {
        let place = self.place(group).await?;
        let mut held = place.group.lock().await;
        Ok(self.loaded(&mut held, group).await?.config.signature)
    }

    /// Returns the content of the file with which an operator provisions a member. The file contains the
    /// [parameters](Self::admitted) of the member, which was admitted in the epoch `since`. `at` is the URI of the
    /// server of the controller, such as `coaps://HOST`. A member that missed an epoch asks this server for its
    /// parameters. With `None` the file names no server.
    ///
    /// # Errors
    /// The errors of [`Self::admitted`].
    pub async fn member_file(
        &self,
        group: &str,
        (member, since): (&str, u16),
        at: Option<&str>,
    ) -> Result<MemberFile, GroupError> {
        let keys = self.admitted(group, member, since).await?;
        let controller = at.map(|at| format!("{}/{GROUPS}/{group}", at.trim_end_matches('/')));
        Ok(MemberFile { group: group.to_owned(), member: member.to_owned(), controller, keys })
    }

    /// Plans a change, makes the change durable, and seals the messages of the change.
    async fn change(
        &self,
        name: &str,
        plan: impl Fn(&Group, &mut C) -> Result<Step, GroupError>,
    ) -> Result<Rekeying, GroupError> {
        let place = self.place(name).await?;
        let (_turn, mut held) = place.lock().await;
        for attempt in 0..PLANS {
            let group = self.to_plan(attempt, &mut held, name).await?;
            let planned = plan(group, &mut self.crypto());
            if attempt == 0 && planned.is_err() {
                continue;
            }
            let (is_made, now_held) = self.commit(&place, held, Step { since: now(), ..planned? }).await?;
            if is_made {
                return self.hand_over(&now_held, name);
            }
            held = now_held;
        }
        Err(GroupError::Changed(name.to_owned()))
    }

    /// Seals the messages of a durable change, and puts the messages into the outbox.
    fn hand_over(&self, held: &Held<'_>, name: &str) -> Result<Rekeying, GroupError> {
        let group = held.as_ref().ok_or_else(|| GroupError::NoGroup(name.to_owned()))?;
        let rekeying = group.rekeying(&mut *self.crypto(), self.signer.as_deref());
        if let Some(outbox) = &self.outbox {
            outbox.begin_epoch();
            match &rekeying {
                Ok(rekeying) => outbox.put(&group.name, rekeying, Instant::now()),
                Err(_) => outbox.resume(&group.name, Instant::now()),
            }
        }
        rekeying
    }

    /// Makes a [`Step`] durable, and applies it to the group in memory. Returns false if another controller changed the
    /// group since the revision of the group in memory. The caller has the [`Turn`]. The lock of the group is free while
    /// the store makes the step durable, and the function returns it locked again.
    async fn commit<'p>(
        &self,
        place: &'p Place,
        mut held: Held<'p>,
        step: Step,
    ) -> Result<(bool, Held<'p>), GroupError> {
        let Some(group) = &mut *held else { return Ok((false, held)) };
        let joined = group.joined_with(&step);
        if !joined.is_empty() && !Box::pin(self.separate(group, &joined)).await? {
            return Ok((false, held));
        }
        // A change may be durable although the store reports an error, or although the caller waits for it no longer.
        let name = group.name.clone();
        let mut unheard = Unheard(self.outbox.as_ref().map(|outbox| (outbox, name.as_str())));
        let transaction = group.transaction(&step);
        drop(held);
        self.gathering.planned().await;
        let committed = self.store.commit(transaction).await;
        let mut held = place.group.lock().await;
        let is_made = match committed {
            Ok(revision) => {
                if let Some(group) = &mut *held {
                    group.take(step, revision);
                }
                true
            }
            Err(StoreError::Conflict { .. }) => false,
            Err(error) => return Err(error.into()),
        };
        unheard.0 = None;
        Ok((is_made, held))
    }

    /// Replaces the common row of the members that joined together in each of these epochs by a row for each of these
    /// members. The group has the same members and the same epoch afterwards. Returns false if another controller changed
    /// the group since the revision of the group in memory.
    async fn separate(&self, group: &mut Group, epochs: &BTreeSet<u16>) -> Result<bool, GroupError> {
        for epoch in epochs {
            let row = Row::Joined(*epoch).key(&group.prefix);
            let Some(Entry { key, value, changed, .. }) = self.store.read(row.as_bytes(), None).await?.entry else {
                return Ok(false);
            };
            let members = rows::read_joined(&value).map_err(|why| fault(&key, why))?.into_iter();
            let members = members.map(|(name, member)| (name, Some(Member { admitted: Some(changed.0), ..member })));
            let step = Step { members: members.collect(), joined: Some((*epoch, None)), ..Step::default() };
            match self.store.commit(group.transaction(&step)).await {
                Ok(revision) => group.take(step, revision),
                Err(StoreError::Conflict { .. }) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Returns the entry of a group in the memory of this controller. The group must exist.
    async fn place(&self, name: &str) -> Result<Arc<Place>, GroupError> {
        let groups = || self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = groups().get(name) {
            return Ok(Arc::clone(place));
        }
        self.identity(name).await?;
        Ok(Arc::clone(groups().entry(name.to_owned()).or_default()))
    }

    async fn identity(&self, name: &str) -> Result<GroupIdentity, GroupError> {
        let row = rows::name(name);
        let entry = match check_name(name) {
            Ok(()) => self.store.read(row.as_bytes(), None).await?.entry,
            Err(_) => None,
        };
        let entry = entry.ok_or_else(|| GroupError::NoGroup(name.to_owned()))?;
        rows::read_identity(&entry.value).map_err(|why| GroupError::Fault { key: row, why })
    }

    /// Returns the group with all changes that the store has now.
    async fn current<'p>(&self, place: &'p mut Option<Group>, name: &str) -> Result<&'p mut Group, GroupError> {
        if let Some(group) = place.as_mut() {
            match Box::pin(self.follow(group)).await {
                Ok(()) => {}
                // It is read again: history is gone, or there may be another group of this name.
                Err(GroupError::Store(StoreError::Compacted { .. }) | GroupError::NoGroup(_)) => *place = None,
                Err(error) => return Err(error),
            }
        }
        self.loaded(place, name).await
    }

    /// Returns the group for which a change is planned. The first attempt uses the group from memory and does not read
    /// the store. If another controller has changed the group, the transaction of this attempt fails. Later attempts
    /// read the changes from the store.
    async fn to_plan<'p>(
        &self,
        attempt: usize,
        place: &'p mut Option<Group>,
        name: &str,
    ) -> Result<&'p mut Group, GroupError> {
        if attempt == 0 { self.loaded(place, name).await } else { self.current(place, name).await }
    }

    /// Returns the group from memory. Loads the group from the store first if it is not in memory.
    async fn loaded<'p>(&self, place: &'p mut Option<Group>, name: &str) -> Result<&'p mut Group, GroupError> {
        if place.is_none() {
            // Few calls load a group, and the future is large.
            *place = Some(Box::pin(self.load(name)).await?);
        }
        place.as_mut().ok_or_else(|| GroupError::NoGroup(name.to_owned()))
    }

    /// Applies the changes that the store has and the group in memory lacks: changes of other controllers, and changes
    /// of this controller for which the store reported no result.
    async fn follow(&self, group: &mut Group) -> Result<(), GroupError> {
        let head = self.store.read(Row::Head.key(&group.prefix).as_bytes(), None).await?.entry;
        let newest = head.ok_or_else(|| GroupError::NoGroup(group.name.clone()))?.changed;
        while group.at < newest {
            let changes = self.store.changes(group.prefix.as_bytes(), group.at, PAGE).await?;
            for revision in changes.changes.chunk_by(|one, next| one.revision == next.revision) {
                let step = Step::read::<C>(revision, &group.prefix, &group.tree)?;
                group.take(step, revision.first().map_or(group.at, |change| change.revision));
            }
            group.at = group.at.max(changes.through.min(newest));
        }
        Ok(())
    }

    /// Reads all rows of a group.
    async fn load(&self, name: &str) -> Result<Group, GroupError> {
        let identity = self.identity(name).await?;
        let prefix = rows::prefix(&identity);
        let (mut head, mut guard, mut paths, mut members) = (None, None, Vec::new(), Members::default());
        let (mut origins, mut joined) = (Vec::new(), BTreeSet::new());
        let mut next = Some(Scan::of(prefix.as_str(), PAGE));
        while let Some(scan) = next {
            let page = self.store.scan(scan.clone()).await?;
            for entry in &page.entries {
                let fault = |why| fault(&entry.key, why);
                match Row::of(&entry.key, &prefix) {
                    Some(Row::Head) => head = Some((Head::read(&entry.value).map_err(fault)?, entry.changed)),
                    Some(Row::Guard) => guard = Some(entry.value.clone()),
                    Some(Row::Path(leaf)) => {
                        paths.push((entry.changed, rows::read_path(leaf, &entry.value).map_err(fault)?));
                    }
                    Some(Row::Replica(name)) => {
                        members.set_replica(name, Some(rows::read(&entry.value).map_err(fault)?));
                    }
                    Some(Row::Joined(epoch)) => drop(joined.insert(epoch)),
                    Some(Row::Member(_)) | None => {}
                }
                for (name, member) in members_in(entry, &prefix)? {
                    let at = member.admitted_at(entry.changed);
                    origins.extend(member.path.clone().map(|origin| (at, member.leaf, member.since, origin)));
                    members.set(&name, Some(member));
                }
            }
            next = scan.following(&page);
        }
        let (Head { config, begun: Begun { epoch, since, changed, ids }, seed, .. }, at) =
            head.ok_or_else(|| GroupError::NoGroup(name.to_owned()))?;
        if guard != Some(Value::Number(GUARD)) {
            return Err(GroupError::Restored(name.to_owned()));
        }
        let mut tree = KeyTree::from_seed::<C>(identity, seed, config.levels, config.last_epoch);
        for (_, member) in members.iter() {
            tree.occupy::<C>(member.leaf, member.checks_signatures);
        }
        for (changed, leaf, since, origin) in origins {
            paths.push((changed, tree.derive::<C>((leaf, since), &origin)));
        }
        // The newest path above a node has its secret.
        paths.sort_unstable_by_key(|(changed, _)| *changed);
        tree.resume(paths.into_iter().flat_map(|(_, nodes)| nodes), epoch, changed);
        Ok(Group { name: name.to_owned(), prefix, config, tree, members, since, ids, joined, at })
    }
}

/// A change whose transaction was sent to the store, and whose result is not known yet. The change may be durable. If
/// this value is dropped before the result is known, the messages of the last change are made again from the rows of
/// the group in the store.
struct Unheard<'a>(Option<(&'a Outbox, &'a str)>);

impl Drop for Unheard<'_> {
    fn drop(&mut self) {
        if let Some((outbox, group)) = self.0 {
            outbox.resume(group, Instant::now());
        }
    }
}

impl Group {
    fn member(&self, name: &str) -> Result<&Member, GroupError> {
        let no_member = || GroupError::NoMember { group: self.name.clone(), member: name.to_owned() };
        self.members.get(name).ok_or_else(no_member)
    }

    /// Returns the public keys of the members that `filter` selects, without the member `name`.
    fn creds(&self, name: &str, filter: &CredsFilter) -> Vec<Cred> {
        let others = self.members.iter().filter(|(other, _)| *other != name);
        let creds = others.filter_map(|(_, other)| {
            let public_key = from_hex(other.public_key.as_deref()?)?;
            Some(Cred { sender_id: other.sender_id, address: other.address.map_or([0; 16], address_bytes), public_key })
        });
        creds.filter(|cred| filter.selects(cred)).collect()
    }

    /// Returns an error if the group does not have this protocol.
    fn require(&self, protocol: Protocol) -> Result<(), GroupError> {
        match self.config.protocol == protocol {
            true => Ok(()),
            false => Err(GroupError::OtherProtocol(self.name.clone())),
        }
    }

    /// Returns the Group Identifier of the current epoch; `None` for an Axiom group.
    fn gid(&self) -> Option<Vec<u8>> {
        let is_oscore = self.config.protocol == Protocol::Oscore;
        is_oscore.then(|| oscore::gid(self.tree.group(), self.tree.epoch()))
    }

    /// Returns the Sender IDs of a Group OSCORE group after a change that gives `given` further Sender IDs, and makes the
    /// Sender IDs of `stale` stale. Returns `None` for an Axiom group.
    fn ids_after<'m>(&self, given: u32, stale: impl IntoIterator<Item = &'m Member>) -> Option<SenderIds> {
        let is_oscore = self.config.protocol == Protocol::Oscore;
        let stale = || stale.into_iter().filter_map(|member| member.oscore.as_ref()?.id).collect();
        is_oscore.then(|| self.ids.after(given, self.tree.epoch(), stale()))
    }

    /// Returns the transaction that makes a [`Step`] durable, on condition that no other controller has changed the
    /// group.
    fn transaction(&self, step: &Step) -> Transaction {
        let head = Row::Head.key(&self.prefix);
        let mut transaction = Transaction::default().require(head.as_str(), self.at);
        let (epoch, changed) = self.tree.last();
        let ids = step.ids.as_ref().unwrap_or(&self.ids).clone();
        let mut begun = Begun { epoch, since: self.since, changed: changed.to_vec(), ids };
        if let Some(change) = &step.change {
            begun = Begun { epoch: change.epoch, since: step.since, changed: change.leaves().collect(), ..begun };
            // The row of a member that joins has the origin of its path.
            for Path { leaf, nodes, .. } in change.paths.iter().filter(|path| path.origin.is_none()) {
                transaction = transaction.put(Row::Path(*leaf).key(&self.prefix), rows::path_value(nodes));
            }
        }
        if let Some((epoch, row)) = &step.joined {
            transaction = set(transaction, Row::Joined(*epoch).key(&self.prefix), row.clone());
        }
        let has_common_row = matches!(step.joined, Some((_, Some(_))));
        for (name, member) in step.members.iter().filter(|_| !has_common_row) {
            debug_assert!(
                member.as_ref().is_none_or(|member| step.has_path_of(member) || member.admitted.is_some()),
                "the row of {name} has no new path"
            );
            transaction = set(transaction, Row::Member(name).key(&self.prefix), member.as_ref().map(rows::plain));
        }
        if let Some((name, id)) = &step.replica {
            transaction = set(transaction, Row::Replica(name).key(&self.prefix), id.as_ref().map(rows::plain));
        }
        let separates = |epoch: &u16| matches!(&step.joined, Some((separated, None)) if separated == epoch);
        let has_joined = has_common_row || self.joined.iter().any(|epoch| !separates(epoch));
        transaction.put(head, Head::value((&self.name, &self.config), begun, self.tree.seed(), has_joined))
    }

    /// Returns the epochs of the common rows that contain members that `step` changes.
    fn joined_with(&self, step: &Step) -> BTreeSet<u16> {
        // The members of a common row that the step writes are new.
        if self.joined.is_empty() || matches!(step.joined, Some((_, Some(_)))) {
            return BTreeSet::new();
        }
        let changed = step.members.iter().filter_map(|(name, _)| self.members.get(name));
        changed.map(|member| member.since).filter(|since| self.joined.contains(since)).collect()
    }

    /// Applies a durable [`Step`] to the group in memory.
    fn take(&mut self, step: Step, revision: Revision) {
        if let Some(change) = step.change.filter(|change| change.epoch != self.tree.epoch()) {
            self.tree.apply(change);
            self.since = step.since;
        }
        for (name, member) in step.members {
            self.members.set(&name, member);
        }
        if let Some((name, id)) = step.replica {
            self.members.set_replica(&name, id);
        }
        match step.joined {
            Some((epoch, Some(_))) => drop(self.joined.insert(epoch)),
            Some((epoch, None)) => drop(self.joined.remove(&epoch)),
            None => {}
        }
        if let Some(ids) = step.ids {
            self.ids = ids;
        }
        self.at = revision;
    }

    /// Makes the rekey messages of the last change. The members of a Group OSCORE group observe the group, so they get no
    /// datagrams here: see [`Controller::oscore_rekeying`].
    fn rekeying<C: Crypto>(&self, crypto: &mut C, signer: Option<&dyn Signer>) -> Result<Rekeying, GroupError> {
        if self.config.protocol == Protocol::Oscore {
            return Ok(Rekeying { epoch: self.tree.epoch(), messages: Vec::new(), warning: self.warning() });
        }
        let port = self.config.address.port();
        let messages = self.tree.messages(crypto, signer).map_err(|refused| match refused {
            Refused::NotSigned => GroupError::NotSigned,
            refused => refused.into(),
        })?;
        let messages = messages.into_iter().filter_map(|message| {
            let to = match message.to {
                None => self.config.address,
                // A member that does not listen asks the controller.
                Some(leaf) => SocketAddr::new(self.members.address_at(leaf)?, port),
            };
            Some(Outgoing { to, bytes: message.bytes })
        });
        Ok(Rekeying { epoch: self.tree.epoch(), messages: messages.collect(), warning: self.warning() })
    }

    fn warning(&self) -> Option<String> {
        few_epochs(&self.name, self.tree.epochs_left(), self.tree.epochs_reserved())
    }
}

impl Step {
    /// Returns true if the change gives a new path to this member, and if the member's record has the origin of this path.
    /// Each written record needs this, because a node that several paths contain has the secret of the record written last.
    fn has_path_of(&self, member: &Member) -> bool {
        let paths = self.change.iter().flat_map(|change| &change.paths);
        member.path.is_some() && paths.filter(|path| path.leaf == member.leaf).any(|path| path.origin == member.path)
    }

    /// Reads a [`Step`] from the rows that one revision changed. `tree` is the key tree of the group, in any epoch.
    fn read<C: Crypto>(rows: &[Changed], prefix: &str, tree: &KeyTree) -> Result<Self, GroupError> {
        let mut step = Self::default();
        let (mut head, mut paths) = (None, HashMap::new());
        for Changed { key, entry, .. } in rows {
            let fault = |why| fault(key, why);
            let value = entry.as_ref().map(|entry| &entry.value);
            match Row::of(key, prefix) {
                Some(Row::Head) => head = value.map(Head::read).transpose().map_err(fault)?,
                Some(Row::Path(leaf)) => {
                    let nodes = value.map(|value| rows::read_path(leaf, value)).transpose().map_err(fault)?;
                    paths.insert(leaf, nodes.unwrap_or_default());
                }
                Some(Row::Member(name)) => {
                    step.members.push((name.to_owned(), value.map(rows::read).transpose().map_err(fault)?));
                }
                Some(Row::Joined(epoch)) => {
                    let members = value.map(rows::read_joined).transpose().map_err(fault)?.into_iter().flatten();
                    step.members.extend(members.map(|(name, member)| (name, Some(member))));
                    step.joined = Some((epoch, value.cloned()));
                }
                Some(Row::Replica(name)) => {
                    step.replica = Some((name.to_owned(), value.map(rows::read).transpose().map_err(fault)?));
                }
                Some(Row::Guard) | None => {}
            }
        }
        if let Some(Head { begun: Begun { epoch, since, changed, ids }, .. }) = head {
            let of =
                |leaf: u32| step.members.iter().filter_map(|(_, member)| member.as_ref()).find(|it| it.leaf == leaf);
            let path = |leaf| {
                let member = of(leaf);
                let checks_signatures = member.is_none_or(|member| member.checks_signatures);
                let origin = member.and_then(|member| member.path.clone());
                let derived = origin.as_ref().map(|origin| tree.derive::<C>((leaf, epoch), origin));
                let nodes = derived.or_else(|| paths.remove(&leaf)).unwrap_or_default();
                Path { leaf, checks_signatures, nodes, origin }
            };
            step.since = since;
            step.ids = Some(ids);
            step.change = Some(Change { epoch, paths: changed.into_iter().map(path).collect() });
        }
        Ok(step)
    }
}

/// Returns the members in a row of a group, with their names. A row of another kind has no members.
fn members_in(entry: &Entry, prefix: &str) -> Result<Vec<(String, Member)>, GroupError> {
    let members = match Row::of(&entry.key, prefix) {
        Some(Row::Member(name)) => rows::read(&entry.value).map(|member| vec![(name.to_owned(), member)]),
        Some(Row::Joined(_)) => rows::read_joined(&entry.value),
        _ => Ok(Vec::new()),
    };
    members.map_err(|why| fault(&entry.key, why))
}

/// Returns the names of the members in a row of a group, each with the revision at which the member was admitted.
fn admitted(entry: &Entry, prefix: &str) -> Result<Vec<(String, Revision)>, GroupError> {
    let members = members_in(entry, prefix)?.into_iter();
    Ok(members.map(|(name, member)| (name, member.admitted_at(entry.changed))).collect())
}

/// Adds to a transaction the write of a row, or the deletion of the row if `value` is `None`.
fn set(transaction: Transaction, key: String, value: Option<Value>) -> Transaction {
    match value {
        Some(value) => transaction.put(key, value),
        None => transaction.delete(key),
    }
}

/// Checks the first members of a new group, and gives each of them a leaf. Returns the members, each with its name.
fn first_members(config: &GroupConfig, new: &[NewMember]) -> Result<Vec<(String, Member)>, GroupError> {
    let first = 1_u32 << config.levels;
    let mut members = Members::default();
    for (leaf, new) in (first..).zip(new) {
        check_member_name(&new.name)?;
        if config.protocol == Protocol::Oscore || new.oscore.is_some() {
            return Err(GroupError::NoPublicKey(new.name.clone()));
        }
        config.check_address(&new.name, new.address)?;
        members.check_address(&new.name, new.address)?;
        let sender_id = if new.sends { Some(members.free_sender_id(config.senders, &[])?) } else { None };
        if leaf >= first.saturating_mul(2) {
            return Err(Refused::Full.into());
        }
        if members.get(&new.name).is_some() {
            return Err(GroupError::Name(format!("{} is a member once: remove it from the list", new.name)));
        }
        let NewMember { name, address, checks_signatures, .. } = new;
        let public_key = new.check_key(config)?;
        let (address, checks_signatures) = (*address, *checks_signatures);
        let member = Member {
            leaf,
            sender_id,
            address,
            checks_signatures,
            since: 1,
            clashed: false,
            public_key,
            oscore: None,
            path: None,
            admitted: None,
        };
        members.set(name, Some(member));
    }
    Ok(members.iter().map(|(name, member)| (name.to_owned(), member.clone())).collect())
}

fn check_name(name: &str) -> Result<(), GroupError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_name = (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(is_plain) && !name.starts_with('.');
    let why = "the name of a group has 1 to 64 letters, digits, dots, hyphens and underscores, and begins with no dot";
    if is_name { Ok(()) } else { Err(GroupError::Name(why.to_owned())) }
}

fn check_member_name(name: &str) -> Result<(), GroupError> {
    OwnedParty::new(name, Vec::new()).map(drop).map_err(GroupError::Name)
}

fn fault(key: &[u8], why: String) -> GroupError {
    GroupError::Fault { key: String::from_utf8_lossy(key).into_owned(), why }
}
