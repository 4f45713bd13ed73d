//! The devices in memory, so that a handshake waits for nothing. Nothing of a connection stays here after its row is durable.

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

/// Peers of a device that return with a ticket at the same time.
const MOST_RETURNING: usize = 256;

/// The time in which a device answers the request for the next epoch, and the server notes it.
const RESPONSE: Duration = Duration::from_secs(5);

/// A device as its operator sees it. It has no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceReport {
    /// The name, by which peers ask for the device.
    pub name: String,
    /// The tags of the device, by which rules of the policy name it.
    pub tags: Vec<String>,
    /// The address at which the device takes requests of its server.
    pub address: SocketAddr,
    /// The scopes that the device knows.
    pub scopes: Vec<Vec<String>>,
    /// Places of the list of refused connections at the device.
    pub places: u32,
    /// Time for which a delegation lasts, in seconds.
    pub lifetime: u32,
    /// True if the device takes part in nothing.
    pub disabled: bool,
    /// The time at which the device key was drawn, in seconds since 1970.
    pub imprinted: u64,
    /// The number of the present epoch; 0 before the server spoke with the device for the first time.
    pub epoch: u16,
    /// The number of the previous epoch, if its connections continue in the present one.
    pub before: Option<u16>,
    /// The number of the next epoch, if the device was asked to begin it and has not acknowledged it.
    pub pending: Option<u16>,
    /// The operator or the reason that asked for the next epoch, if it is due.
    pub reset: Option<String>,
    /// The connections that are refused in this epoch.
    pub refused: usize,
    /// Those among them that the device has not acknowledged.
    pub untold: usize,
    /// True if the store was restored from a backup, and the epoch gives no number until the next one begins.
    pub restored: bool,
    /// The revision of the store at which the device changed last.
    pub revision: Revision,
    /// The contact of the server with the device.
    pub contact: Contact,
    /// The certificate of the device, if the server has certificates.
    pub certificate: Option<CertificateReport>,
}

/// Counts since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DelegationCounts {
    /// Tickets that were sealed for peers that authenticated themselves.
    pub sealed: u64,
    /// Tickets that were sealed for peers that returned with one.
    pub reissued: u64,
    /// Peers that got no session for want of rights.
    pub without_rights: u64,
    /// Peers that got no session for another reason.
    pub not_given: u64,
    /// Tickets of returning peers that were refused.
    pub refused: u64,
    /// Revocations that devices acknowledged.
    pub acknowledged: u64,
    /// Sessions that were handed over to devices.
    pub handed_over: u64,
    /// Conversations in which a device got all that waited for it.
    pub conversations: u64,
    /// Conversations that failed.
    pub failed_conversations: u64,
    /// Epochs that devices began.
    pub epochs: u64,
    /// Conversations in which a device refused fewer connections than it had acknowledged.
    pub forgotten: u64,
}

/// Entries in memory beside the devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Entries {
    /// Connections whose rows are not durable yet.
    pub connections: usize,
    /// Peers that returned with a ticket and have not got another one.
    pub returning: usize,
    /// Sessions that wait to be handed over.
    pub sessions: usize,
    /// Connections that are refused in the epochs that count.
    pub refused: usize,
    /// Devices of which rows of earlier epochs may still be in the store.
    pub littered: usize,
}

/// A device in memory.
pub(super) struct Device {
    /// The number in this process, from 1.
    pub(super) id: u32,
    pub(super) name: String,
    /// Held while the row is changed.
    pub(super) changing: tokio::sync::Mutex<()>,
    /// Notified when something waits for the device.
    pub(super) wanted: Notify,
    state: Mutex<InMemory>,
}

impl Device {
    pub(super) fn state(&self) -> MutexGuard<'_, InMemory> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of a device.
pub(super) struct InMemory {
    pub(super) known: Known,
    pub(super) issuer: Issuer,
    /// The tag of the present epoch; `None` in epoch 0.
    pub(super) tag: Option<Tag>,
    pub(super) tag_before: Option<Tag>,
    /// The connections that are refused, and if the device acknowledged it, for each epoch that counts.
    pub(super) refused: HashMap<Tag, BTreeMap<u32, bool>>,
    pub(super) new: Free,
    pub(super) again: Free,
    /// The numbers that this server reserved in the epoch that waits.
    pub(super) next_numbers: Option<(Tag, NextNumbers)>,
    /// True if the store was restored from a backup since the epoch began.
    pub(super) restored: bool,
    /// True if a change failed, and the row may be another one.
    pub(super) is_stale: bool,
    /// True if rows of epochs that count no more may be in the store.
    pub(super) is_littered: bool,
    /// The time at which the device was asked to begin the epoch that waits.
    asked: Option<Instant>,
    returning: VecDeque<Returning>,
    /// Numbers whose rows are not durable yet.
    pub(super) unwritten: BTreeSet<u32>,
    pub(super) handovers: Handovers,
    pub(super) contact: Contact,
}

/// A peer that returned with a ticket, until it gets another one.
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
            new: Free::default(),
            again: Free::default(),
            next_numbers: None,
            restored: false,
            is_stale: false,
            is_littered: false,
            asked: None,
            returning: VecDeque::new(),
            unwritten: BTreeSet::new(),
            handovers: Handovers::default(),
            contact: Contact::default(),
        }
    }

    /// Takes the row as it is now. Numbers of an epoch that is over are never used again.
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
        self.refused.retain(|of, _| Some(*of) == tag || Some(*of) == tag_before);
        self.issuer = known.issuer();
        (self.known, self.tag, self.tag_before, self.is_stale) = (known, tag, tag_before, false);
    }

    /// Notes that a backup moved the numbers of the present epoch: later revocations are lost, so the next epoch is due, and no
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

    /// The epoch of a connection, if it counts.
    pub(super) fn tag_of(&self, id: ConnectionId) -> Option<Tag> {
        let before = self.known.before.as_ref();
        match id.epoch {
            epoch if epoch == self.known.present.number => self.tag,
            epoch if before.is_some_and(|before| before.number == epoch) => self.tag_before,
            _ => None,
        }
    }

    /// True if the connection with this number is refused in the epoch of this tag.
    pub(super) fn is_refused(&self, tag: Option<Tag>, number: u32) -> bool {
        tag.and_then(|tag| self.refused.get(&tag)).is_some_and(|refused| refused.contains_key(&number))
    }

    /// The connections of the present epoch that the device is to refuse, and has not acknowledged.
    pub(super) fn untold(&self) -> Vec<u32> {
        let refused = self.tag.and_then(|tag| self.refused.get(&tag));
        refused.into_iter().flatten().filter(|(_, told)| !**told).map(|(number, _)| *number).collect()
    }

    /// The number of connections of the present epoch whose refusal the device acknowledged.
    pub(super) fn told(&self) -> usize {
        let refused = self.tag.and_then(|tag| self.refused.get(&tag));
        refused.into_iter().flatten().filter(|(_, told)| **told).count()
    }

    /// Notes that the device has to learn all refused connections of the present epoch again. Their rows stay as they are: a server that
    /// restarts meanwhile compares the numbers again.
    pub(super) fn is_forgotten(&mut self) {
        let refused = self.tag.and_then(|tag| self.refused.get_mut(&tag));
        refused.into_iter().flatten().for_each(|(_, told)| *told = false);
    }

    /// Notes that the device is asked to begin the epoch that waits.
    pub(super) fn asks(&mut self) {
        self.asked = Some(Instant::now());
    }

    /// True if the device was asked for the next epoch a moment ago, and its response may be under way.
    pub(super) fn may_have_begun_next(&self) -> bool {
        self.known.pending.is_some() && self.asked.is_some_and(|asked| asked.elapsed() < RESPONSE)
    }

    /// True if something waits for the device. A disabled device learns revocations alone.
    pub(super) fn has_work(&self) -> bool {
        let is_due = self.known.is_next_due() || !self.handovers.is_empty();
        is_due && !self.known.disabled || !self.untold().is_empty()
    }

    /// True if the device can be used for handshakes.
    pub(super) const fn is_usable(&self) -> bool {
        !self.known.disabled
    }

    /// Remembers a peer that returned. The oldest one is forgotten if there are too many: it authenticates itself again.
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

    /// Takes the content of the ticket with which the peer of this session returned.
    pub(super) fn take_returning(&mut self, old: Connection, master: &Secret<MASTER_LEN>) -> Option<Kept> {
        let is_it = |returning: &Returning| returning.old == old && same(returning.master.expose(), master.expose());
        let at = self.returning.iter().position(is_it)?;
        let Returning { old, since, expires, .. } = self.returning.remove(at)?;
        Some(Kept { old, since, expires })
    }

    /// Adds the entries of this device.
    pub(super) fn count(&self, entries: &mut Entries) {
        let refused: usize = self.refused.values().map(BTreeMap::len).sum();
        entries.returning = entries.returning.saturating_add(self.returning.len());
        entries.sessions = entries.sessions.saturating_add(self.handovers.len());
        entries.refused = entries.refused.saturating_add(refused);
        entries.littered = entries.littered.saturating_add(usize::from(self.is_littered));
    }

    /// The device as its operator sees it, without its certificate.
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

/// All devices.
#[derive(Default)]
pub(super) struct Registry {
    by_name: BTreeMap<String, Arc<Device>>,
    by_id: HashMap<u32, Arc<Device>>,
    last: u32,
}

impl Registry {
    pub(super) fn named(&self, name: &str) -> Option<Arc<Device>> {
        self.by_name.get(name).cloned()
    }

    pub(super) fn numbered(&self, id: u32) -> Option<Arc<Device>> {
        self.by_id.get(&id).cloned()
    }

    /// The devices behind a name, in the order of their names.
    pub(super) fn after<'r>(&'r self, after: Option<&str>) -> impl Iterator<Item = &'r Arc<Device>> + use<'r> {
        let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
        self.by_name.range::<str, _>((from, std::ops::Bound::Unbounded)).map(|(_, device)| device)
    }

    /// Adds a device, or replaces the row of a known one.
    pub(super) fn add<C: Crypto>(&mut self, known: Known) -> Arc<Device> {
        if let Some(device) = self.by_name.get(known.name()) {
            device.state().adopt::<C>(known);
            return Arc::clone(device);
        }
        self.last = self.last.saturating_add(1);
        let name = known.name().to_owned();
        let state = Mutex::new(InMemory::new::<C>(known));
        let (changing, wanted) = (tokio::sync::Mutex::default(), Notify::new());
        let device = Arc::new(Device { id: self.last, name: name.clone(), changing, wanted, state });
        self.by_id.insert(self.last, Arc::clone(&device));
        self.by_name.insert(name, Arc::clone(&device));
        device
    }
}
