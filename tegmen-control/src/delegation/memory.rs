//! The devices in memory. A handshake reads only this memory, so it never waits for the store. A connection takes
//! memory only until its row in the store is durable. Afterwards only the name of its peer may stay in memory, for the
//! newest connections of each device.

use super::certificates::CertificateReport;
use super::connection::ConnectionId;
use super::contact::Contact;
use super::device::Known;
use super::handovers::Handovers;
use super::numbers::{Free, NextNumbers, Purpose};
use super::rows::Tag;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tegmen::dtls::MASTER_LEN;
use tegmen_base::crypto::Crypto;
use tegmen_base::secret::{Secret, same};
use tegmen_delegation::{Connection, Issuer};
use tegmen_store::Revision;
use tokio::sync::Notify;

/// Maximum number of peers of one device that the server remembers because they returned with a ticket and have not
/// received another ticket yet.
const MOST_RETURNING: usize = 256;

/// Maximum number of connections of one device for which the server remembers the name of the peer.
const MOST_NAMES: usize = 64;

/// Maximum time between the request to begin the next epoch and the answer of the device. The time includes the time
/// that the server needs to record the answer.
const RESPONSE: Duration = Duration::from_secs(5);
/// Minimum time between two lines of the audit log about one disabled device.
const NOTES: Duration = Duration::from_secs(60);

/// A report about a device, for the operator of the device. The report contains no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceReport {
    /// The name for which peers ask in order to reach the device.
    pub name: String,
    /// The tags of the device. Rules of the policy can name the device by a tag.
    pub tags: Vec<String>,
    /// The address at which the device receives requests from its server.
    pub address: SocketAddr,
    /// The scopes that the device knows. Each scope is a list of rules.
    pub scopes: Vec<Vec<String>>,
    /// Maximum number of entries in the device's list of refused connections.
    pub places: u32,
    /// The lifetime of a delegation in seconds: the time for which a peer can use the device without authenticating
    /// itself again.
    pub lifetime: u32,
    /// True if the device is disabled.
    pub disabled: bool,
    /// The time at which the device key was generated, in seconds since 1970.
    pub imprinted: u64,
    /// The number of the present epoch; 0 until the server contacts the device for the first time.
    pub epoch: u16,
    /// The number of the previous epoch; `None` if the connections of the previous epoch are no longer valid.
    pub before: Option<u16>,
    /// The number of the next epoch, if the server has asked the device to begin this epoch and the device has not
    /// acknowledged the request; otherwise `None`.
    pub pending: Option<u16>,
    /// The reason why the next epoch must begin: an operator's request or another cause. `None` if no epoch is due.
    pub reset: Option<String>,
    /// The number of connections that are refused in the present epoch.
    pub refused: usize,
    /// The number of connections whose refusal the device has not acknowledged.
    pub untold: usize,
    /// True if the store was restored from a backup in the present epoch. The server then gives no numbers to new
    /// connections until the next epoch begins.
    pub restored: bool,
    /// The revision of the store at which the device changed last.
    pub revision: Revision,
    /// The time of the last successful conversation with the device, and the failures since then.
    pub contact: Contact,
    /// The certificate of the device; `None` if the server has no certificates for its devices.
    pub certificate: Option<CertificateReport>,
}

/// Counters of events since the start of the server. Some of these events are conversations. In a conversation, the
/// server sends the requests that wait for a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DelegationCounts {
    /// The number of tickets that were sealed for peers that authenticated themselves.
    pub sealed: u64,
    /// The number of tickets that were sealed for peers that returned with a ticket.
    pub reissued: u64,
    /// The number of peers that got no session because they have no rights at the device, or no name that could have
    /// rights.
    pub without_rights: u64,
    /// The number of peers that got no session for a reason other than missing rights: for example because the device
    /// is disabled, or because the device refused the session.
    pub not_given: u64,
    /// The number of tickets that were refused when a peer returned with them.
    pub refused: u64,
    /// The number of revocations that devices acknowledged.
    pub acknowledged: u64,
    /// The number of sessions that the server sent to devices.
    pub handed_over: u64,
    /// The number of conversations in which a device received all waiting requests.
    pub conversations: u64,
    /// The number of conversations that failed.
    pub failed_conversations: u64,
    /// The number of epochs that devices began.
    pub epochs: u64,
    /// The number of conversations in which a device had returned to an older copy of its state. Such a device refuses
    /// fewer connections than it had acknowledged, so the server sends it all refused connections again.
    pub forgotten: u64,
}

/// The numbers of entries that the delegation server has in memory, one number for each kind of entry. The entries of
/// the devices themselves are not counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entries {
    /// The number of connections whose rows in the store are not durable yet.
    pub connections: usize,
    /// The number of peers that returned with a ticket and have not received a new ticket yet.
    pub returning: usize,
    /// The number of sessions that wait to be sent to devices.
    pub sessions: usize,
    /// The number of connections that are refused in the present and the previous epoch.
    pub refused: usize,
    /// The number of connections whose row is durable and for which the server remembers the name of the peer.
    pub names: usize,
    /// The number of devices that may still have rows of earlier epochs in the store.
    pub littered: usize,
}

/// A device in memory.
pub(super) struct Device {
    /// The number that this process gave the device, from 1.
    pub(super) id: u32,
    pub(super) name: String,
    /// A lock that is held while a task changes the device's row in the store.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// The signal that there is more work for the device. A conversation whose session with the device is still open
    /// waits for this signal.
    pub(super) wanted: Notify,
    state: Mutex<InMemory>,
}

impl Device {
    pub(super) fn state(&self) -> MutexGuard<'_, InMemory> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The data about a device that change while the server runs.
pub(super) struct InMemory {
    pub(super) known: Known,
    pub(super) issuer: Issuer,
    /// The tag that identifies the present epoch; `None` in epoch 0.
    pub(super) tag: Option<Tag>,
    pub(super) tag_before: Option<Tag>,
    /// The refused connections of each valid epoch, by the tag of the epoch and the number of the connection. The value
    /// is true if the device has acknowledged the refusal.
    pub(super) refused: HashMap<Tag, BTreeMap<u32, bool>>,
    /// The connections whose revocation has begun and is not durable, by the tag of their epoch and by their number. No
    /// other connection replaces them. A connection whose revocation failed stays here until its epoch is no longer
    /// valid.
    ending: BTreeSet<(Tag, u32)>,
    pub(super) new: Free,
    pub(super) again: Free,
    /// The tag of the pending epoch, and the connection numbers that this server has reserved in this epoch. `None` if
    /// no epoch is pending, or if this process did not make the pending epoch.
    pub(super) next_numbers: Option<(Tag, NextNumbers)>,
    /// True if the store was restored from a backup since the epoch began.
    pub(super) restored: bool,
    /// True if a change of the device's row failed, so that the row in the store may differ from the row in memory.
    pub(super) is_stale: bool,
    /// True if the store may still contain rows of epochs that are no longer valid.
    pub(super) is_littered: bool,
    /// The time at which the server last asked the device to begin the pending epoch; `None` if it has not asked.
    asked: Option<Instant>,
    /// The time of the last line of the audit log about a session that was not opened because the device is disabled.
    refusal_noted: Option<Instant>,
    returning: VecDeque<Returning>,
    /// The names of the peers of the newest connections whose rows are durable, the oldest first. Each connection is
    /// given by the tag of its epoch and its number. If a peer returns, the row of its next connection needs this name.
    names: VecDeque<(Tag, u32, String)>,
    /// The numbers of the connections whose rows in the store are not durable yet.
    pub(super) unwritten: BTreeSet<u32>,
    pub(super) handovers: Handovers,
    pub(super) contact: Contact,
}

/// A peer that returned with a ticket. The entry is removed when the peer gets another ticket.
struct Returning {
    old: Connection,
    master: Secret<MASTER_LEN>,
    since: u32,
    expires: u32,
}

/// The content of the ticket of a returning peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Kept {
    pub(super) old: Connection,
    pub(super) since: u32,
    pub(super) expires: u32,
}

impl InMemory {
    fn new<C: Crypto>(known: Known) -> Self {
        let [tag, _, tag_before] = known.tags::<C>();
        Self {
            issuer: known.issuer(),
            known,
            tag,
            tag_before,
            refused: HashMap::new(),
            ending: BTreeSet::new(),
            new: Free::default(),
            again: Free::default(),
            next_numbers: None,
            restored: false,
            is_stale: false,
            is_littered: false,
            asked: None,
            refusal_noted: None,
            returning: VecDeque::new(),
            names: VecDeque::new(),
            unwritten: BTreeSet::new(),
            handovers: Handovers::default(),
            contact: Contact::default(),
        }
    }

    /// Replaces the row of the device in memory by a newer version of the row. If the present epoch has changed,
    /// forgets the reserved numbers of the earlier epoch, so these numbers are never used.
    pub(super) fn adopt<C: Crypto>(&mut self, mut known: Known) {
        let [tag, ..] = known.tags::<C>();
        if tag == self.tag && self.restored {
            end_restored(&mut known);
        }
        let [_, _, tag_before] = known.tags::<C>();
        if tag != self.tag {
            let numbers = self.next_numbers.take_if(|(of, _)| Some(*of) == tag);
            let NextNumbers { new, again } = numbers.map(|(_, numbers)| numbers).unwrap_or_default();
            (self.new, self.again, self.restored) = (new, again, false);
            self.asked = None;
            self.unwritten.clear();
            self.returning.clear();
            self.handovers.clear();
            self.is_littered = true;
        }
        let is_valid = |of: Tag| Some(of) == tag || Some(of) == tag_before;
        self.refused.retain(|of, _| is_valid(*of));
        self.ending.retain(|(of, _)| is_valid(*of));
        self.names.retain(|(of, ..)| is_valid(*of));
        self.issuer = known.issuer();
        (self.known, self.tag, self.tag_before, self.is_stale) = (known, tag, tag_before, false);
    }

    /// Records that a backup was restored in the present epoch. The restore increased the counters of the connection
    /// numbers, and the revocations that were made after the backup are lost. So the next epoch is due, and no
    /// connection of the previous epoch continues.
    pub(super) fn is_restored(&mut self) {
        self.restored = true;
        end_restored(&mut self.known);
        (self.issuer, self.tag_before) = (self.known.issuer(), None);
    }

    pub(super) const fn free(&mut self, purpose: Purpose) -> &mut Free {
        match purpose {
            Purpose::New => &mut self.new,
            Purpose::Again => &mut self.again,
        }
    }

    /// Returns the tag of the epoch of a connection; `None` if the epoch is no longer valid.
    pub(super) fn tag_of(&self, id: ConnectionId) -> Option<Tag> {
        let before = self.known.before.as_ref();
        match id.epoch {
            epoch if epoch == self.known.present.number => self.tag,
            epoch if before.is_some_and(|before| before.number == epoch) => self.tag_before,
            _ => None,
        }
    }

    /// Returns true if the connection with this number is refused in the epoch with this tag.
    pub(super) fn is_refused(&self, tag: Option<Tag>, number: u32) -> bool {
        tag.and_then(|tag| self.refused.get(&tag)).is_some_and(|refused| refused.contains_key(&number))
    }

    /// Records that the revocation of a connection begins. From now on, no other connection replaces this connection.
    pub(super) fn ends(&mut self, tag: Tag, number: u32) {
        self.ending.insert((tag, number));
    }

    /// Records that a connection is not revoked, because no such connection exists.
    pub(super) fn goes_on(&mut self, tag: Tag, number: u32) {
        self.ending.remove(&(tag, number));
    }

    /// Records that the revocation of a connection is durable. Drops a session of this connection that waits to be sent
    /// to the device.
    pub(super) fn refuse(&mut self, tag: Tag, number: u32) {
        self.ending.remove(&(tag, number));
        if [self.tag, self.tag_before].contains(&Some(tag)) {
            self.refused.entry(tag).or_default().entry(number).or_insert(false);
        }
        if self.tag == Some(tag) {
            self.handovers.forget(number);
        }
    }

    /// Returns true if another connection may replace the connection with this number of the epoch with this tag: the
    /// connection is not refused, and its revocation has not begun.
    pub(super) fn may_continue(&self, tag: Option<Tag>, number: u32) -> bool {
        tag.is_some_and(|tag| !self.ending.contains(&(tag, number))) && !self.is_refused(tag, number)
    }

    /// Adds refused connections that were read from the store. Each connection is given by the tag of its epoch, its
    /// number, and true if the device has acknowledged the refusal. If a connection must still be sent to the device,
    /// its row does not change this, because the device may have lost the refusal.
    pub(super) fn load_refused(&mut self, refused: Vec<(Tag, u32, bool)>) {
        let valid = [self.tag, self.tag_before];
        for (tag, number, told) in refused.into_iter().filter(|(tag, ..)| valid.contains(&Some(*tag))) {
            let of_epoch = self.refused.entry(tag).or_default();
            of_epoch.entry(number).and_modify(|known| *known &= told).or_insert(told);
        }
    }

    /// Returns the numbers of the connections of the present epoch that the device must refuse and whose refusal it has
    /// not acknowledged.
    pub(super) fn untold(&self) -> Vec<u32> {
        let refused = self.tag.and_then(|tag| self.refused.get(&tag));
        refused.into_iter().flatten().filter(|(_, told)| !**told).map(|(number, _)| *number).collect()
    }

    /// Returns the number of revoked connections of the present epoch for which the device has acknowledged that it
    /// refuses them.
    pub(super) fn told(&self) -> usize {
        let refused = self.tag.and_then(|tag| self.refused.get(&tag));
        refused.into_iter().flatten().filter(|(_, told)| **told).count()
    }

    /// Records that all refused connections of the present epoch must be sent to the device again. The rows in the
    /// store still record that the device acknowledged these connections. If the server restarts before it has sent the
    /// connections again, it reads the rows, and detects once more that the device refuses fewer connections than it
    /// acknowledged.
    pub(super) fn is_forgotten(&mut self) {
        let refused = self.tag.and_then(|tag| self.refused.get_mut(&tag));
        refused.into_iter().flatten().for_each(|(_, told)| *told = false);
    }

    /// Records that the server now asks the device to begin the pending epoch.
    pub(super) fn asks(&mut self) {
        self.asked = Some(Instant::now());
    }

    /// Returns true if the server asked the device to begin the next epoch within the last [`RESPONSE`], so that an
    /// answer may still arrive.
    pub(super) fn may_have_begun_next(&self) -> bool {
        self.known.pending.is_some() && self.asked.is_some_and(|asked| asked.elapsed() < RESPONSE)
    }

    /// Returns true if the server must send a request to the device. A disabled device receives only revocations.
    pub(super) fn has_work(&self) -> bool {
        let is_due = self.known.is_next_due() || !self.handovers.is_empty();
        is_due && !self.known.disabled || !self.untold().is_empty()
    }

    /// Returns true if handshakes may use the device.
    pub(super) const fn is_usable(&self) -> bool {
        !self.known.disabled
    }

    /// Returns true if the audit log must get a line about a session that is refused because the device is disabled: at most
    /// once a minute, because unauthenticated peers cause such refusals.
    pub(super) fn must_note_refusal(&mut self) -> bool {
        let is_due = self.known.disabled && self.refusal_noted.is_none_or(|at| at.elapsed() >= NOTES);
        if is_due {
            self.refusal_noted = Some(Instant::now());
        }
        is_due
    }

    /// Remembers a peer that returned with a ticket. If [`MOST_RETURNING`] peers are already remembered, forgets the
    /// peer that returned first. The forgotten peer must then authenticate itself again.
    pub(super) fn returns(&mut self, kept: Kept, master: &Secret<MASTER_LEN>) {
        let Kept { old, since, expires } = kept;
        // The server asks twice in one handshake.
        let is_it = |known: &Returning| known.old == old && same(known.master.expose(), master.expose());
        self.returning.retain(|known| !is_it(known));
        if self.returning.len() >= MOST_RETURNING {
            self.returning.pop_front();
        }
        let master = Secret::new(*master.expose());
        self.returning.push_back(Returning { old, master, since, expires });
    }

    /// Removes the record of a peer that returned to the server with a ticket. Returns the content of this ticket;
    /// `None` if there is no such record. `old` is the connection of the peer's ticket, and `master` is the master
    /// secret of the peer's session.
    pub(super) fn take_returning(&mut self, old: Connection, master: &Secret<MASTER_LEN>) -> Option<Kept> {
        let is_it = |returning: &Returning| returning.old == old && same(returning.master.expose(), master.expose());
        let at = self.returning.iter().position(is_it)?;
        let Returning { old, since, expires, .. } = self.returning.remove(at)?;
        Some(Kept { old, since, expires })
    }

    /// Remembers the name of the peer of a connection whose row is durable. If [`MOST_NAMES`] names are already
    /// remembered, forgets the one that was remembered first. The server then reads it from the row.
    pub(super) fn remember(&mut self, tag: Tag, number: u32, peer: String) {
        if peer.is_empty() || ![self.tag, self.tag_before].contains(&Some(tag)) {
            return;
        }
        if self.names.len() >= MOST_NAMES {
            self.names.pop_front();
        }
        self.names.push_back((tag, number, peer));
    }

    /// Removes and returns the name of the peer of a connection of the previous epoch; `None` if the server does not
    /// remember it.
    pub(super) fn take_name(&mut self, number: u32) -> Option<String> {
        let tag = self.tag_before?;
        let at = self.names.iter().position(|(of, known, _)| (*of, *known) == (tag, number))?;
        self.names.remove(at).map(|(.., peer)| peer)
    }

    /// Adds the numbers of entries of this device to `entries`.
    pub(super) fn count(&self, entries: &mut Entries) {
        let refused: usize = self.refused.values().map(BTreeMap::len).sum();
        entries.returning = entries.returning.saturating_add(self.returning.len());
        entries.names = entries.names.saturating_add(self.names.len());
        entries.sessions = entries.sessions.saturating_add(self.handovers.len());
        entries.refused = entries.refused.saturating_add(refused);
        entries.littered = entries.littered.saturating_add(usize::from(self.is_littered));
    }

    /// Returns the report about the device. The report does not yet contain the certificate of the device.
    pub(super) fn report(&self) -> DeviceReport {
        let Known { party, config, disabled, imprinted, reset, present, pending, before, changed, .. } = &self.known;
        DeviceReport {
            name: party.party().name.to_owned(),
            tags: config.tags.clone(),
            address: config.address,
            scopes: config.scopes.clone(),
            places: config.places,
            lifetime: config.lifetime,
            disabled: *disabled,
            imprinted: *imprinted,
            epoch: present.number,
            before: before.as_ref().map(|before| before.number),
            pending: pending.as_ref().map(|pending| pending.number),
            reset: reset.clone(),
            refused: self.tag.and_then(|tag| self.refused.get(&tag)).map_or(0, BTreeMap::len),
            untold: self.untold().len(),
            restored: self.restored,
            revision: *changed,
            contact: self.contact.clone(),
            certificate: None,
        }
    }
}

fn end_restored(known: &mut Known) {
    known.before = None;
    known.reset.get_or_insert_with(|| "restored from a backup".to_owned());
}

/// All devices of the server.
#[derive(Default)]
pub(super) struct Registry {
    by_name: BTreeMap<String, Arc<Device>>,
    /// The number of each device. A handshake looks up its device by name three times, and a search in `by_name` reads
    /// the names of ten other devices if there are a thousand.
    numbers: HashMap<String, u32>,
    /// The devices in the order of their numbers, which begin with 1. No device is removed.
    by_id: Vec<Arc<Device>>,
}

impl Registry {
    pub(super) fn named(&self, name: &str) -> Option<Arc<Device>> {
        self.numbered(*self.numbers.get(name)?)
    }

    pub(super) fn numbered(&self, id: u32) -> Option<Arc<Device>> {
        self.by_id.get((id as usize).checked_sub(1)?).cloned()
    }

    /// Returns the devices whose names follow the name `after`, in the order of their names. With `None` returns all
    /// devices.
    pub(super) fn after<'r>(&'r self, after: Option<&str>) -> impl Iterator<Item = &'r Arc<Device>> + use<'r> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.by_name.range::<str, _>((from, std::ops::Bound::Unbounded)).map(|(_, device)| device)
    }

    /// Adds a device, or replaces the row of a known device.
    pub(super) fn add<C: Crypto>(&mut self, known: Known) -> Arc<Device> {
        if let Some(device) = self.by_name.get(known.name()) {
            device.state().adopt::<C>(known);
            return Arc::clone(device);
        }
        let id = u32::try_from(self.by_id.len()).unwrap_or(u32::MAX).saturating_add(1);
        let name = known.name().to_owned();
        let state = Mutex::new(InMemory::new::<C>(known));
        let (changing, wanted) = (tokio::sync::Mutex::default(), Notify::new());
        let device = Arc::new(Device { id, name: name.clone(), changing, wanted, state });
        self.by_id.push(Arc::clone(&device));
        self.numbers.insert(name.clone(), id);
        self.by_name.insert(name, Arc::clone(&device));
        device
    }
}

#[cfg(test)]
mod tests;
