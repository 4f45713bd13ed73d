//! The membership of one endpoint in one protected group, with its files in a directory.
//!
//! ```text
//! hall/member.toml      the group, its controller, and the secrets of the newest epoch: written before they are used
//! hall/numbers.toml     the next sequence number of an epoch: every lower one may have been used; written in advance
//! hall/answered.toml    the members that answered requests
//! hall/lock             held while a process uses the membership
//! ```

use super::MembershipError;
use super::event::{Behind, MembershipEvent};
use super::file::{DRAFT, MEMBER, MemberFile, MemberSettings, PrivateKey, file_error};
use super::groupcomm::{Creds, CredsFilter, GroupKeys, REQUESTER};
use super::signing::Signing;
use super::{Group, answered};
use crate::hex::to_hex;
use crate::private;
use crate::provider::HostCrypto;
use crate::x509::signer::Signer as _;
use std::fmt;
use std::fs::{File, TryLockError};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tegmen::address::Address;
use tegmen::axiom::{BadAssociation, Kept, KeyPath, Member, Rekeyed};
use tegmen::crypto::KEY_LEN;
use tegmen::dtls::ContentType;
use tegmen::identity::Principal;
use tegmen::node::{GroupArray, Groups as _};
use tegmen_store::lock::Locked;
use tegmen_store::{Numbers, Place};
use tokio::sync::Notify;
use zeroize::Zeroizing;

/// Maximum number of nodes on the path from a leaf of the key tree to its root.
const NODES: usize = 24;
/// Maximum number of members whose requests this member can check for replays: one for each SenderID.
const SENDERS: usize = 256;
/// Maximum number of members whose responses this member can check for replays.
const LISTENERS: usize = 1024;
/// Number of sequence numbers that a member reserves at once (a lease). Before the member uses the first of these
/// numbers, the number after the last of them is on disk.
const LEASE: u64 = 256;
/// Number of consecutive records of the current epoch that the member cannot open before it asks its controller for the
/// current keys.
const NOT_OPENED: u32 = 16;

/// The multicast address of all CoAP nodes (RFC 7252, section 12.8). Before a device joins a group, it does not know
/// the address of the group. It then uses this address to check that the network interface exists.
const ANY_GROUP: &str = "224.0.1.187";
const NUMBERS: &str = "numbers.toml";
const LOCK: &str = "lock";

/// A table with space for one group, the group of the membership. The table is empty while the member must not use its
/// keys, for example after its eviction.
pub(super) type OneGroup = GroupArray<1, SENDERS, LISTENERS, KEY_LEN, Signing>;

/// A function that takes the events of a membership, with the name of its group. The membership holds its lock during
/// the call, so the function must return quickly, and must not use the membership.
pub type MembershipSink = Arc<dyn Fn(&str, MembershipEvent) + Send + Sync>;

/// A member of a group. Clones refer to the same membership. Only one process at a time can have the directory of the
/// membership open.
///
/// A [`Server`](crate::server::Server) answers requests to the group as this member, and
/// [`ask_members`](crate::client::ask_members) sends requests as this member.
/// [`Controller::follow`](crate::controller::Controller::follow) fetches the current keys if the member has missed
/// messages of the controller.
#[derive(Clone)]
pub struct Membership(Arc<Shared>);

struct Shared {
    /// The name of the group.
    name: String,
    /// The address of the group, which never changes.
    group: Address,
    group_id: u8,
    state: Mutex<State>,
    /// Wakes the waiting tasks when the member finds that it may have missed an epoch.
    behind: Notify,
}

/// The state of a membership. A lock protects this state.
pub(super) struct State {
    dir: PathBuf,
    file: MemberFile,
    keys: GroupKeys,
    path: KeyPath<NODES>,
    numbers: Place,
    /// The sequence numbers that were last reserved on disk (the last lease): the epoch, the number after the last
    /// reserved number for requests, and the number after the last reserved number for responses. The member may use
    /// only reserved numbers in this epoch.
    kept: Kept,
    pub(super) groups: Box<OneGroup>,
    pub(super) principal: Principal,
    behind: Option<Behind>,
    /// Number of records of the current epoch that the member could not open since the last record that it opened.
    not_opened: u32,
    /// The epoch for which the controller last gave the public keys of other members; 0 if the controller has given
    /// none since the process started.
    creds_of: u16,
    /// A SenderID that two members use, with the epoch of these members: a report for the controller.
    clash: Option<(u16, u8)>,
    /// The last message of the controller that the member could not open because an earlier message was missing. A
    /// message to this member alone and a message to the group can arrive in the wrong order. So when the member has
    /// opened the next message, it tries the held message again.
    held: Option<Vec<u8>>,
    events: Option<MembershipSink>,
    is_closed: bool,
    _lock: Locked,
}

impl Membership {
    /// Makes a directory for a member that its controller has just admitted, and opens the membership. If the directory
    /// has an older membership in the same group, the new membership replaces it.
    ///
    /// # Errors
    /// [`MembershipError::Association`] for a cipher suite or a size of the key tree that a host does not support.
    /// [`MembershipError::Interface`] if the network interface of the group does not exist. [`MembershipError::InUse`]
    /// if a process uses the directory. [`MembershipError::OtherGroup`] if the directory has a membership in another
    /// group. [`MembershipError::Numbers`] if an earlier membership in this directory already used numbers of this
    /// epoch. [`MembershipError::File`] if a file cannot be read or written.
    pub fn create(dir: &Path, settings: &MemberSettings, keys: GroupKeys) -> Result<Self, MembershipError> {
        Self::create_with(dir, settings, keys, None)
    }

    /// Does the same as [`Self::create`]. In a group with signatures, `key` is the private key of the member; in any
    /// other group it is `None`.
    pub(crate) fn create_with(
        dir: &Path,
        settings: &MemberSettings,
        keys: GroupKeys,
        key: Option<PrivateKey>,
    ) -> Result<Self, MembershipError> {
        if keys.signature != key.as_ref().map(|key| key.key.scheme()) {
            return Err(MembershipError::NoPrivateKey { group: settings.group.clone() });
        }
        // Nothing is written that could not be used.
        multicast_of(settings, &keys)?;
        check(&settings.group, &keys)?;
        std::fs::create_dir_all(dir).map_err(file_error(dir))?;
        let lock = lock(dir)?;
        if let Ok((_, before)) = MemberFile::read(dir)
            && before.group != keys.group
        {
            return Err(MembershipError::OtherGroup { group: settings.group.clone() });
        }
        let file = MemberFile { settings: settings.clone(), is_evicted: false, key };
        // An admission begins an epoch, so its numbers begin at 0, unless a membership here has used the epoch already.
        let at = dir.join(NUMBERS);
        if Numbers::read(&at).is_ok_and(|used| kept_in(&used, &keys).is_some_and(|kept| kept.epoch >= keys.epoch)) {
            let why = format!("{NUMBERS} has numbers of epoch {} already", keys.epoch);
            return Err(MembershipError::Numbers { dir: dir.display().to_string(), why });
        }
        if at.exists() {
            std::fs::remove_file(&at).map_err(file_error(&at))?;
        }
        file.keep(dir, &keys)?;
        let kept = Kept { epoch: keys.epoch, ..Kept::default() };
        text_of(&kept, &keys).keep(&at, true).map_err(file_error(&at))?;
        let epoch = keys.epoch;
        let membership = Self::start(dir, lock, (file, keys), Kept::default())?;
        // The response to the request to join has the public keys, too.
        membership.lock().creds_of = epoch;
        Ok(membership)
    }

    /// Checks that a membership with these settings can be made in a directory, before a controller is asked to admit
    /// the member.
    pub(crate) fn check_place(dir: &Path, settings: &MemberSettings) -> Result<(), MembershipError> {
        if let Some(interface) = &settings.interface {
            format!("{ANY_GROUP}%{interface}").parse::<Group>()?;
        }
        // A directory without a membership gets no lock.
        if dir.join(MEMBER).exists() { lock(dir).map(drop) } else { Ok(()) }
    }

    /// Opens a membership in a directory. If the previous process closed the membership, it stored the next sequence
    /// number, and the member continues at this number. After a crash or a power cut, the member skips all sequence
    /// numbers that it had reserved on disk (its last lease). After each start the member no longer knows which
    /// requests of other members it has received. So each other member has to prove that its requests are new.
    ///
    /// # Errors
    /// [`MembershipError::File`], also if the directory has no membership. [`MembershipError::Exposed`] or
    /// [`MembershipError::Syntax`] for the file of the member. [`MembershipError::InUse`] if another process uses the
    /// directory. [`MembershipError::Numbers`] if the directory is a copy, or if the numbers are lost.
    /// [`MembershipError::Association`] for a cipher suite or a size of the key tree that a host does not support.
    /// [`MembershipError::Interface`] if the network interface of the group does not exist.
    pub fn open(dir: &Path) -> Result<Self, MembershipError> {
        // A directory without the file is no membership, and gets no lock.
        MemberFile::read(dir)?;
        let lock = lock(dir)?;
        // Another process may have written it before it ended.
        let (file, keys) = MemberFile::read(dir)?;
        let wrong = |why| MembershipError::Numbers { dir: dir.display().to_string(), why };
        let numbers = Numbers::read(&dir.join(NUMBERS)).map_err(wrong)?;
        let kept = kept_in(&numbers, &keys).ok_or_else(|| wrong(format!("{NUMBERS} is of another group")))?;
        let membership = Self::start(dir, lock, (file, keys), kept)?;
        // Messages of the controller may have come while no process heard them.
        membership.lock().behind.get_or_insert(Behind::Started);
        Ok(membership)
    }

    fn start(
        dir: &Path,
        lock: Locked,
        (file, keys): (MemberFile, GroupKeys),
        kept: Kept,
    ) -> Result<Self, MembershipError> {
        let (ip, port) = keys.address;
        let (group, group_id, name) = (Address { ip, port, scope: 0 }, keys.group_id, file.settings.group.clone());
        let mut state = State {
            path: KeyPath::new(&keys.admission()).map_err(|why| of_group(&name, why))?,
            dir: dir.to_owned(),
            numbers: Place::of_file(dir.join(NUMBERS)),
            kept,
            groups: Box::default(),
            principal: Principal::NOBODY,
            behind: None,
            not_opened: 0,
            creds_of: 0,
            clash: None,
            held: None,
            events: None,
            is_closed: false,
            file,
            keys,
            _lock: lock,
        };
        if kept.epoch > state.keys.epoch {
            state.behind = Some(Behind::OldFile);
        } else if !state.file.is_evicted {
            state.begin()?;
        }
        let (state, behind) = (Mutex::new(state), Notify::new());
        let membership = Self(Arc::new(Shared { name, group, group_id, state, behind }));
        membership.multicast()?;
        Ok(membership)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the name of the group at its controller.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns the multicast address and the port of the group.
    pub fn group(&self) -> SocketAddr {
        self.0.group.into()
    }

    pub(crate) fn address_of_group(&self) -> &Address {
        &self.0.group
    }

    pub(super) fn group_id(&self) -> u8 {
        self.0.group_id
    }

    /// Returns the source address of this member's responses; `None` for a member that does not listen.
    pub fn address(&self) -> Option<IpAddr> {
        let ip = self.lock().keys.own_address;
        let address = SocketAddr::from(Address { ip, port: 0, scope: 0 }).ip();
        (!address.is_unspecified()).then_some(address)
    }

    /// Returns the SenderID; `None` for a member that sends no requests.
    pub fn sender_id(&self) -> Option<u8> {
        self.lock().keys.sender_id
    }

    /// Returns the epoch in which this member sends and receives; 0 if the member must not use its keys.
    pub fn epoch(&self) -> u16 {
        self.lock().groups.epoch(&self.0.group)
    }

    /// Returns the number of the member's leaf in the key tree. The controller also uses this number as the last
    /// segment of the URI path of the member.
    pub fn leaf(&self) -> u32 {
        self.lock().keys.leaf
    }

    /// True if the controller has evicted the member.
    pub fn is_evicted(&self) -> bool {
        self.lock().file.is_evicted
    }

    /// Returns the settings of the membership.
    pub fn settings(&self) -> MemberSettings {
        self.lock().file.settings.clone()
    }

    /// Returns the multicast address of the group, and the network interface for this address.
    ///
    /// # Errors
    /// [`MembershipError::Interface`] if the interface does not exist.
    pub(crate) fn multicast(&self) -> Result<Group, MembershipError> {
        let state = self.lock();
        multicast_of(&state.file.settings, &state.keys)
    }

    /// Sets the function that takes the events of the membership.
    pub fn on_event(&self, events: MembershipSink) {
        self.lock().events = Some(events);
    }

    pub(crate) fn report(&self, event: MembershipEvent) {
        self.lock().report(event);
    }

    /// Sets the principal that the application gets as the sender of each request to the group. All members have this
    /// principal.
    pub(crate) fn set_principal(&self, principal: Principal) {
        self.lock().principal = principal;
    }

    /// Processes a message of the controller. Only the results [`Rekeyed::Nodes`] and [`Rekeyed::Epoch`] show that the
    /// message was authentic. When this method returns, the keys of a new epoch are on disk.
    pub fn rekey(&self, crypto: &mut HostCrypto, message: &[u8]) -> Option<Rekeyed> {
        let mut state = self.lock();
        if state.file.is_evicted {
            return None;
        }
        let rekeyed = self.open_message(&mut state, crypto, message)?;
        match (rekeyed, state.held.take()) {
            (Rekeyed::Nodes, Some(held)) => self.open_message(&mut state, crypto, &held).or(Some(rekeyed)),
            (_, held) => {
                state.held = if rekeyed == Rekeyed::Missed { Some(message.to_vec()) } else { held };
                Some(rekeyed)
            }
        }
    }

    fn open_message(&self, state: &mut State, crypto: &mut HostCrypto, message: &[u8]) -> Option<Rekeyed> {
        let State { path, keys, .. } = state;
        let rekeyed = path.open(crypto, keys.controller.as_deref(), message).ok()?;
        match rekeyed {
            Rekeyed::Nodes => {}
            Rekeyed::Epoch => match state.next_epoch(crypto) {
                Ok(()) => state.report(MembershipEvent::Rekeyed { epoch: state.keys.epoch }),
                Err(error) => {
                    state.report(MembershipEvent::NotKept { problem: error.to_string() });
                    self.fall_behind(state, Behind::NotKept);
                }
            },
            Rekeyed::Missed => self.fall_behind(state, Behind::MissedMessage),
        }
        Some(rekeyed)
    }

    /// Compares the epoch in the header of a protected record with the epoch of the member, before the record is
    /// opened. If the record has a later epoch, the member may have missed messages of the controller, and asks the
    /// controller for keys. The header is not authenticated yet.
    pub(crate) fn note_epoch(&self, record: &[u8]) {
        let Some(&[content_type, _, _, high, low]) = record.first_chunk() else { return };
        let epoch = u16::from_be_bytes([high, low]);
        let mut state = self.lock();
        if content_type == ContentType::APPLICATION_DATA.0 && epoch > state.groups.epoch(&self.0.group) {
            self.fall_behind(&mut state, Behind::NewerRecord(epoch));
        }
    }

    /// Notes that a record has a correct tag, but a signature that could not be verified. If the controller gave the
    /// public keys in an earlier epoch, the key of the sender can be missing or outdated, and the member asks for the
    /// keys again.
    pub(super) fn note_unverified(&self, state: &mut State) {
        if state.creds_of < state.keys.epoch {
            self.fall_behind(state, Behind::NoPublicKey);
        }
    }

    /// Reports that two members use the SenderID `sender`, or the same address if it is `None`. A SenderID is also
    /// reported to the controller, by the task that [follows](crate::controller::Controller::follow) it.
    pub(crate) fn note_clash(&self, sender: Option<u8>) {
        let mut state = self.lock();
        state.report(MembershipEvent::Clash { sender });
        if let Some(sender) = sender {
            state.clash = Some((state.keys.epoch, sender));
            self.fall_behind(&mut state, Behind::Clash(sender));
        }
    }

    /// Returns the report for the controller of a SenderID that two members use: an epoch, and the SenderID. Returns
    /// `None` if there is nothing to report: the keys of the epoch are not in use any more.
    pub(crate) fn clash(&self) -> Option<(u16, u8)> {
        self.lock().clash_to_report()
    }

    /// Forgets a report that the controller has answered.
    pub(crate) fn forget_clash(&self, reported: (u16, u8)) {
        let mut state = self.lock();
        state.clash = state.clash.filter(|clash| *clash != reported);
    }

    /// Counts the consecutive records of the current epoch that the member could not open. A record that it opened sets
    /// the count to 0. When the count reaches [`NOT_OPENED`], the member may have missed an epoch, and asks the
    /// controller for keys.
    pub(super) fn note_opened(&self, state: &mut State, is_opened: bool) {
        state.not_opened = if is_opened { 0 } else { state.not_opened.saturating_add(1) };
        if state.not_opened >= NOT_OPENED {
            let records = std::mem::take(&mut state.not_opened);
            self.fall_behind(state, Behind::NotOpened(records));
        }
    }

    fn fall_behind(&self, state: &mut State, why: Behind) {
        if state.behind.is_none() && !state.file.is_evicted {
            state.behind = Some(why);
            state.report(MembershipEvent::Behind { epoch: state.groups.epoch(&self.0.group), why });
        }
        self.0.behind.notify_one();
    }

    /// Waits until a record or a message of the controller shows that the member may have missed an epoch, or until there
    /// is a [clash](Self::clash) to report.
    pub(crate) async fn falls_behind(&self) {
        let has_to_ask = |state: &State| state.behind.is_some() || state.clash_to_report().is_some();
        while !has_to_ask(&self.lock()) {
            self.0.behind.notified().await;
        }
    }

    /// Takes the keys that the controller gave after the member asked for them. Returns true if the epoch of these keys
    /// is later than the epoch of the member. The keys are on disk when this method returns.
    ///
    /// # Errors
    /// [`MembershipError::OtherGroup`] for keys of another group, [`MembershipError::OldController`] for keys of an
    /// earlier epoch, [`MembershipError::AdmittedAgain`] for keys of another admission of this member,
    /// [`MembershipError::Association`] for keys that this host cannot use, and [`MembershipError::File`] if the keys
    /// cannot be written. After an error the member keeps its previous keys.
    pub fn catch_up(&self, mut keys: GroupKeys) -> Result<bool, MembershipError> {
        let mut state = self.lock();
        let name = &self.0.name;
        self.check_group(&state, &keys)?;
        let ours = state.keys.epoch.max(state.kept.epoch);
        if keys.epoch < ours {
            return Err(MembershipError::OldController { group: name.clone(), ours, theirs: keys.epoch });
        }
        // The path of the member stays as it was until the new keys are durable.
        let path = KeyPath::new(&state.keys.admission());
        let path = path.and_then(|mut path| path.catch_up(&keys.admission()).map(|()| path));
        let path = path.map_err(|why| of_group(name, why))?;
        let is_newer = keys.epoch != state.groups.epoch(&self.0.group);
        if is_newer {
            keys.signature = state.keys.signature;
            keys.creds.clone_from(&state.keys.creds);
            state.file.is_evicted = false;
            state.file.keep(&state.dir, &keys)?;
            (state.path, state.keys) = (path, keys);
            state.begin()?;
        }
        (state.behind, state.not_opened) = (None, 0);
        let epoch = state.keys.epoch;
        state.report(MembershipEvent::CaughtUp { epoch, is_same: !is_newer });
        Ok(is_newer)
    }

    /// Takes the keys with which the controller has admitted this member again. In a group with signatures, `key` is the
    /// new private key of the member. Another device that has the earlier keys of this member cannot use these keys. The
    /// keys are on disk when this method returns.
    ///
    /// # Errors
    /// The errors of [`Self::catch_up`], with one difference: the epoch of the keys must be later than each epoch that the
    /// member has used, because its sequence numbers begin at 0. [`MembershipError::NoPrivateKey`] for a key that is not of
    /// the scheme of the group. After an error the member keeps its previous keys.
    pub(crate) fn admitted_again(&self, keys: GroupKeys, key: Option<PrivateKey>) -> Result<(), MembershipError> {
        let mut state = self.lock();
        self.check_group(&state, &keys)?;
        let (ours, group) = (state.keys.epoch.max(state.kept.epoch), self.0.name.clone());
        if keys.epoch <= ours {
            return Err(MembershipError::OldController { group, ours, theirs: keys.epoch });
        }
        if keys.signature != key.as_ref().map(|key| key.key.scheme()) {
            return Err(MembershipError::NoPrivateKey { group });
        }
        check(&group, &keys)?;
        let path = KeyPath::new(&keys.admission()).map_err(|why| of_group(&group, why))?;
        let before = std::mem::replace(&mut state.file.key, key);
        if let Err(error) = state.file.keep(&state.dir, &keys) {
            state.file.key = before;
            return Err(error);
        }
        // The response to the request to join has the public keys, too.
        let epoch = keys.epoch;
        (state.path, state.keys, state.creds_of) = (path, keys, epoch);
        (state.behind, state.not_opened, state.clash, state.held) = (None, 0, None, None);
        state.begin()?;
        state.report(MembershipEvent::CaughtUp { epoch, is_same: false });
        Ok(())
    }

    /// Checks that keys are of the group of this membership.
    fn check_group(&self, state: &State, keys: &GroupKeys) -> Result<(), MembershipError> {
        let Address { ip, port, .. } = self.0.group;
        match keys.group == state.keys.group && keys.address == (ip, port) && keys.group_id == self.0.group_id {
            true => Ok(()),
            false => Err(MembershipError::OtherGroup { group: self.0.name.clone() }),
        }
    }

    /// Returns a filter for the public keys that the member has to ask its controller for. Returns `None` if the member
    /// has the public keys of its current epoch, or if its group has no signatures.
    pub(crate) fn missing_creds(&self) -> Option<CredsFilter> {
        let state = self.lock();
        if state.keys.signature.is_none() || state.creds_of >= state.keys.epoch {
            return None;
        }
        Some(creds_of_interest(state.keys.sender_id.is_some()))
    }

    /// Takes the public keys of other members. The keys are on disk when this method returns.
    ///
    /// # Errors
    /// [`MembershipError`] if the keys cannot be written. The member uses the keys in memory nevertheless.
    pub(crate) fn take_creds(&self, creds: Creds) -> Result<(), MembershipError> {
        let mut state = self.lock();
        state.creds_of = creds.epoch;
        state.keys.creds = Some(creds.creds);
        let State { groups, keys, .. } = &mut *state;
        if let Some(member) = groups.member(&self.0.group) {
            member.signatures().know(keys);
        }
        state.file.keep(&state.dir, &state.keys)
    }

    /// Records that the controller has evicted this member. From then on the member sends nothing, and drops all
    /// records.
    ///
    /// # Errors
    /// [`MembershipError::File`] if the eviction cannot be written. After a restart the member then does not
    /// know that it is evicted, and asks the controller again.
    pub fn evict(&self) -> Result<(), MembershipError> {
        let mut state = self.lock();
        state.groups.leave(&self.0.group);
        state.behind = None;
        state.file.is_evicted = true;
        state.report(MembershipEvent::Evicted);
        state.file.keep(&state.dir, &state.keys)
    }

    /// Returns the addresses of the members that should answer the next request, because they answered earlier
    /// requests.
    pub fn expected(&self) -> Vec<IpAddr> {
        answered::expected(&self.lock().dir)
    }

    /// Notes the members that answered a request, for [`Self::expected`].
    pub(crate) fn note_answers(&self, members: &[IpAddr]) {
        answered::note(&self.lock().dir, members);
    }

    /// Removes the directory of a member that has left its group.
    ///
    /// # Errors
    /// [`MembershipError::File`].
    pub fn remove(self) -> Result<(), MembershipError> {
        let mut state = self.lock();
        state.groups.leave(&self.0.group);
        state.is_closed = true;
        for name in [MEMBER, DRAFT, NUMBERS, answered::ANSWERED, LOCK] {
            let file = state.dir.join(name);
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(file_error(&file)(error)),
                _ => {}
            }
        }
        // The directory stays if others have files in it.
        let _ = std::fs::remove_dir(&state.dir);
        Ok(())
    }

    /// Ends the membership as a power cut does, without a write to disk. After the next start the member skips all
    /// sequence numbers that it had reserved on disk (its last lease).
    pub fn abandon(self) {
        self.lock().is_closed = true;
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership").field("group", &self.0.name).finish_non_exhaustive()
    }
}

impl State {
    /// Returns the clash of the current epoch that the member has not reported.
    fn clash_to_report(&self) -> Option<(u16, u8)> {
        self.clash.filter(|(epoch, _)| *epoch == self.keys.epoch)
    }

    fn report(&self, event: MembershipEvent) {
        if let Some(events) = &self.events {
            events(&self.file.settings.group, event);
        }
    }

    /// Makes a [`Member`] with the keys of this membership, and puts it into the table `groups`. If the epoch was never
    /// used, the sequence numbers of the member begin at 0. If the epoch was used, they begin after the numbers that
    /// were reserved on disk.
    fn begin(&mut self) -> Result<(), MembershipError> {
        let refused = |why| of_group(&self.file.settings.group, why);
        let mut crypto = HostCrypto::from_os().map_err(file_error(&self.dir))?;
        let master = self.path.master_secret::<HostCrypto>();
        let association = self.keys.association(self.keys.epoch, &master);
        let key = self.file.key.as_ref();
        let signing = key.map(|key| Signing::new(&self.keys, &key.key)).unwrap_or_default();
        let mut member = Member::with(signing);
        member.begin(&mut crypto, &association, &self.kept).map_err(refused)?;
        for sender in &self.keys.late {
            // Without space for its state, the sender proves that its requests are new.
            let _ = member.know_sender::<HostCrypto>(*sender, 0);
        }
        let group = association.group;
        self.lease()?;
        member.extend(&self.kept);
        self.groups.leave(&group);
        // It has one place, which is free.
        let _ = self.groups.join(member, self.principal);
        Ok(())
    }

    /// Begins the next epoch, after a rekey message of the controller has changed the secrets in `path`. Writes the new
    /// keys to disk before the member uses them.
    fn next_epoch(&mut self, crypto: &mut HostCrypto) -> Result<(), MembershipError> {
        let mut secrets = Zeroizing::new([[0; KEY_LEN]; NODES]);
        let admission = self.path.admission(&mut secrets);
        self.keys.epoch = admission.epoch;
        self.keys.chain = *admission.chain;
        *self.keys.secret.expose_mut() = *admission.secret;
        self.keys.path = Zeroizing::new(admission.path.to_vec());
        self.keys.late.clear();
        self.file.keep(&self.dir, &self.keys)?;
        let master = self.path.master_secret::<HostCrypto>();
        let association = self.keys.association(self.keys.epoch, &master);
        let group = association.group;
        let rekeyed = self.groups.member(&group).is_some_and(|member| member.rekey(crypto, &association).is_ok());
        if rekeyed {
            self.lease()?;
            self.extend(&group);
        } else {
            self.begin()?;
        }
        self.behind = None;
        self.not_opened = 0;
        self.held = None;
        Ok(())
    }

    /// Reserves the next [`LEASE`] sequence numbers (a lease): writes the number after the last of them to disk.
    /// Requests and responses have separate sequence numbers, and the lease ends at the same number for both.
    fn lease(&mut self) -> Result<(), MembershipError> {
        let used = if self.kept.epoch == self.keys.epoch { self.kept.requests.max(self.kept.responses) } else { 0 };
        let end = used.saturating_add(LEASE);
        self.keep(Kept { epoch: self.keys.epoch, requests: end, responses: end })
    }

    fn keep(&mut self, kept: Kept) -> Result<(), MembershipError> {
        if !self.numbers.is_ours() {
            let why = format!("{NUMBERS} is not the one that this process wrote: another process uses the membership");
            return Err(MembershipError::Numbers { dir: self.dir.display().to_string(), why });
        }
        self.numbers.keep(&text_of(&kept, &self.keys)).map_err(file_error(self.numbers.file()))?;
        self.kept = kept;
        Ok(())
    }

    /// Lets the member use the sequence numbers that are reserved on disk (the last lease).
    fn extend(&mut self, group: &Address) {
        let kept = self.kept;
        if let Some(member) = self.groups.member(group) {
            member.extend(&kept);
        }
    }

    /// Reserves the next sequence numbers (the next lease) if no reserved number is left for requests, or no reserved
    /// number is left for responses. If the disk fails, reports [`MembershipEvent::NotKept`].
    pub(super) fn lease_ahead(&mut self, group: &Address) {
        let left = self.groups.member(group).map(|member| member.left());
        if !left.is_some_and(|(requests, responses)| requests == 0 || responses == 0) {
            return;
        }
        match self.lease() {
            Ok(()) => self.extend(group),
            Err(error) => self.report(MembershipEvent::NotKept { problem: error.to_string() }),
        }
    }

    /// Closes the membership: writes the next free sequence numbers to disk. So at its next start the member does not
    /// skip the numbers that it had reserved and not used.
    fn close(&mut self) {
        if std::mem::replace(&mut self.is_closed, true) {
            return;
        }
        let group = {
            let (ip, port) = self.keys.address;
            Address { ip, port, scope: 0 }
        };
        let Some((requests, responses)) = self.groups.member(&group).map(|member| member.left()) else { return };
        let Kept { epoch, requests: end, responses: other_end } = self.kept;
        self.groups.leave(&group);
        let next =
            Kept { epoch, requests: end.saturating_sub(requests), responses: other_end.saturating_sub(responses) };
        // If it cannot be written, the next start continues after the lease, as after a power cut.
        let _ = self.keep(next);
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.close();
    }
}

/// Returns a filter for the public keys that a member needs: the keys of all members if the member sends requests, and
/// otherwise only the keys of the members that send requests.
pub(crate) fn creds_of_interest(sends: bool) -> CredsFilter {
    if sends { CredsFilter::default() } else { CredsFilter::of_role(REQUESTER) }
}

/// Returns the multicast address of the group, and the network interface for this address.
fn multicast_of(settings: &MemberSettings, keys: &GroupKeys) -> Result<Group, MembershipError> {
    let text = |ip| SocketAddr::from(Address { ip, port: 0, scope: 0 }).ip();
    let (group, own) = (text(keys.address.0), text(keys.own_address));
    let own = (own.is_ipv4() && group.is_ipv4()).then(|| own.to_string());
    let interface = settings.interface.clone().or(own);
    Ok(interface.map_or_else(|| group.to_string(), |interface| format!("{group}%{interface}")).parse()?)
}

/// Checks that the host can make a member of the group from these keys.
fn check(group: &str, keys: &GroupKeys) -> Result<(), MembershipError> {
    let path = KeyPath::<NODES>::new(&keys.admission()).map_err(|why| of_group(group, why))?;
    let master = path.master_secret::<HostCrypto>();
    let mut crypto = HostCrypto::from_os().map_err(file_error(Path::new("the system gives no randomness")))?;
    let made = Member::<0, 0>::new(&mut crypto, &keys.association(keys.epoch, &master), &Kept::default());
    made.map(drop).map_err(|why| of_group(group, why))
}

fn of_group(group: &str, why: BadAssociation) -> MembershipError {
    let group = group.to_owned();
    match why {
        BadAssociation::Admission => MembershipError::AdmittedAgain { group },
        why => MembershipError::Association { group, why },
    }
}

/// Returns the content of the file `numbers.toml`. `kept` has two limits: one more than the highest sequence number
/// that a request may have used, and the same for responses. The file contains only the higher of the two limits.
fn text_of(kept: &Kept, keys: &GroupKeys) -> Numbers {
    let with = format!("epoch {} of group {}", kept.epoch, to_hex(&keys.group));
    Numbers { with, ..Numbers::from(kept.requests.max(kept.responses), None) }
}

/// Reads the limit of the sequence numbers (the lease) from the content of the file `numbers.toml`. Returns `None` if
/// the file belongs to another group.
fn kept_in(numbers: &Numbers, keys: &GroupKeys) -> Option<Kept> {
    let epoch = numbers.with.strip_prefix("epoch ")?.strip_suffix(&format!(" of group {}", to_hex(&keys.group)))?;
    Some(Kept { epoch: epoch.parse().ok()?, requests: numbers.next, responses: numbers.next })
}

fn lock(dir: &Path) -> Result<Locked, MembershipError> {
    let path = dir.join(LOCK);
    let file = private::open(File::options().write(true).create(true).truncate(false), &path);
    Locked::new(file.map_err(file_error(&path))?).map_err(|error| match error {
        TryLockError::WouldBlock => MembershipError::InUse { dir: dir.display().to_string() },
        TryLockError::Error(source) => file_error(&path)(source),
    })
}

#[cfg(all(test, unix))]
mod tests;
