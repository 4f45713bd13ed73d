//! The view: all rows of the state in memory, so that a decision reads nothing from the store.

use super::device::{Credential, Device, Known};
use super::enrolment::{Enrolment, Pending};
use super::lease::Lease;
use super::rows::{self, AcceptedSession, PolicyHead, Revocation, Row};
use super::{Bounds, StateError, StateFault};
use crate::access::ace::cwt::LONG_KEY_LEN;
use crate::access::ace::trl::{Answer, Query, TokenHash, TrlError};
use crate::access::introspection::{Devices, Introspection, Outcome, Publisher, ResourceServer};
use crate::access::policy::{OwnedParty, Party, Policy, TestedPolicy};
use crate::access::protokey::{Accepted, AcceptedIdentity, NotAccepted, Protokey, SessionIdentity};
use crate::access::revocation::{ListFull, Requester, RevocationList};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use tegmen_base::crypto::{Crypto, DIGEST_LEN};
use tegmen_base::secret::Secret;
use tegmen_base::time::Instant;
use tegmen_host::digest::Digest;
use tegmen_host::hash::Keys;
use tegmen_store::Revision;
use tegmen_store::store::{Changed, Entry, MAX_OPERATIONS};
use zeroize::Zeroizing;

/// The policy in force.
#[derive(Clone)]
pub struct InForce {
    /// The policy. If no policy was applied, this is a policy without rules, which refuses everything.
    pub policy: Arc<TestedPolicy>,
    /// The revision that applied the policy; [`Revision::ABSENT`] if no policy was applied.
    pub revision: Revision,
}

/// The state of a server in memory. It contains all changes of the store up to one revision.
pub struct View {
    at: Revision,
    /// The time for which the view is current. `None` if no other server changes the store: the view is then always
    /// current.
    pub(super) lease: Option<Lease>,
    devices: Registry,
    /// The number of changes of devices until now.
    device_changes: u64,
    enrolments: BTreeMap<String, Pending>,
    in_force: InForce,
    /// The main row of the policy, as the store has it; `None` if no policy was applied.
    head: Option<PolicyHead>,
    /// The parts of the policy's text, by their numbers. Each part is a row in the store.
    parts: BTreeMap<u8, Vec<u8>>,
    accepted: Accepted,
    revoked: RevocationList,
    /// The devices whose part of the revocation list changed since the last call of [`Self::take_concerned`].
    concerned: BTreeSet<String>,
    lifetime: u64,
    /// The number of the next row that contains many session identities. The key of the row contains this number.
    pub(super) next_sessions: u64,
}

/// The rows on which the grant of a key depends, with the revisions at which they were read. Empty if no other server
/// changes the store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Grounds(pub(super) Vec<(Vec<u8>, Revision)>);

/// The devices in memory.
#[derive(Default)]
struct Registry {
    known: HashMap<String, Known, Keys>,
    names: HashMap<[u8; DIGEST_LEN], String, Keys>,
}

impl Registry {
    /// Returns the device of this name if it is enabled.
    fn enabled(&self, name: Option<&str>) -> Option<Party<'_>> {
        let known = self.known.get(name?)?;
        (!known.device.disabled).then(|| known.device.party.party())
    }
}

/// The parts of the view that decisions read: the devices, and the list of revoked tokens.
struct InView<'v> {
    devices: &'v Registry,
    revoked: &'v RevocationList,
}

impl Devices for InView<'_> {
    fn publisher(&self, name: &str) -> Option<Publisher<'_>> {
        self.devices.known.get(name)?.publisher()
    }

    fn certified(&self, digest: &[u8; DIGEST_LEN]) -> Option<&OwnedParty> {
        let known = self.devices.known.get(self.devices.names.get(digest)?)?;
        (!known.device.disabled).then_some(&known.device.party)
    }

    fn producer(&self, name: &str) -> Option<(&OwnedParty, &Protokey)> {
        self.devices.known.get(name)?.producer()
    }

    fn resource_server(&self, name: &str) -> Option<ResourceServer<'_>> {
        self.devices.known.get(name)?.resource_server()
    }

    fn is_revoked(&self, hash: &[u8]) -> bool {
        self.revoked.is_revoked(hash)
    }
}

impl View {
    /// Applies changes from the store, up to the revision `through`. All changes of a revision must be in `changes`.
    /// Returns the faults of the rows that cannot be read. Such a row gives no rights: see [`Self::refuse`].
    pub(super) fn apply(&mut self, changes: &[Changed], through: Revision) -> Vec<StateFault> {
        let mut faults = Vec::new();
        for revision in changes.chunk_by(|one, next| one.revision == next.revision) {
            let mut is_other_policy = None;
            let mut unrevoked = BTreeSet::new();
            for change in revision {
                let row = Row::of(&change.key);
                let of_device = matches!(row, Some(Row::Device(_) | Row::Digest(_)));
                self.device_changes = self.device_changes.wrapping_add(of_device.into());
                let applied = match (row, &change.entry) {
                    (None, _) => Ok(()),
                    (Some(Row::Revoked(hash)), None) => {
                        unrevoked.insert(hash);
                        Ok(())
                    }
                    (Some(row), Some(entry)) => {
                        if matches!(row, Row::Policy) {
                            is_other_policy = Some(change.revision);
                        }
                        let applied = self.put(&row, entry);
                        applied.inspect_err(|_| self.refuse(&row))
                    }
                    (Some(row), None) => {
                        self.remove(&row);
                        Ok(())
                    }
                };
                faults.extend(applied.err().map(|why| fault(&change.key, why)));
            }
            self.concerned.extend(self.revoked.remove(&unrevoked));
            if let Some(revision) = is_other_policy {
                faults.extend(self.policy_of(revision).err().map(|why| fault(rows::POLICY.as_bytes(), why)));
            }
        }
        self.at = self.at.max(through);
        faults
    }

    /// Removes all devices, one-time keys and the policy, so that everything is refused.
    pub(super) fn lose(&mut self) {
        self.devices = Registry::default();
        self.device_changes = self.device_changes.wrapping_add(1);
        self.enrolments.clear();
        self.in_force.policy = Arc::new(TestedPolicy::without_rules());
    }

    /// Returns the devices whose part of the revocation list changed since the last call.
    pub(super) fn take_concerned(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.concerned)
    }

    fn put(&mut self, row: &Row<'_>, entry: &Entry) -> Result<(), String> {
        match *row {
            Row::Device(name) => {
                let known = rows::read_device(name, entry)?;
                self.revoked.register(name);
                self.devices.known.insert(name.to_owned(), known);
            }
            Row::Digest(digest) => {
                let name = entry.value.plain().and_then(|name| std::str::from_utf8(name).ok());
                self.devices.names.insert(digest, name.ok_or("it is no name")?.to_owned());
            }
            Row::Enrolment(name) => {
                self.enrolments.insert(name.to_owned(), Pending::read(name, entry)?);
            }
            Row::Policy => self.head = Some(rows::read(&entry.value)?),
            Row::Part(number) => {
                let text = entry.value.plain().ok_or("it is not stored in clear")?;
                self.parts.insert(number, text.to_vec());
            }
            // This server accepted it.
            Row::Session(identity) if self.accepted.has(identity) => {}
            Row::Session(identity) => self.remember(rows::read_session(identity, &entry.value)?),
            // No other server writes such rows, and this one remembers an identity before it writes it.
            Row::Sessions(_) => {}
            Row::Revoked(ref hash) => {
                let Revocation { expires, concerned } = rows::read(&entry.value)?;
                let known = concerned.iter().filter(|name| self.devices.known.contains_key(*name));
                known.for_each(|name| self.revoked.register(name));
                self.concerned.extend(self.revoked.add(hash.clone(), expires, concerned));
            }
        }
        Ok(())
    }

    /// Withdraws the rights that a row gave before it got a content that cannot be read, because another server may have
    /// disabled the device or revoked the token. The policy in force stays in force.
    fn refuse(&mut self, row: &Row<'_>) {
        match row {
            Row::Device(_) | Row::Digest(_) | Row::Enrolment(_) => self.remove(row),
            // The key of the row names the token, but no device. So only introspection refuses the token, and devices do not
            // receive it in their lists, until the row can be read or another server removes it.
            Row::Revoked(hash) => self.revoked.add_unreadable(hash.clone()),
            Row::Policy | Row::Part(_) | Row::Session(_) | Row::Sessions(_) => {}
        }
    }

    fn remove(&mut self, row: &Row<'_>) {
        match row {
            Row::Device(name) => drop(self.devices.known.remove(*name)),
            Row::Digest(digest) => drop(self.devices.names.remove(digest)),
            Row::Enrolment(name) => drop(self.enrolments.remove(*name)),
            Row::Part(number) => drop(self.parts.remove(number)),
            // A session identity ends by its time, and a policy is only replaced.
            Row::Session(_) | Row::Sessions(_) | Row::Policy | Row::Revoked(_) => {}
        }
    }

    fn remember(&mut self, session: AcceptedSession) {
        let AcceptedSession { identity, subscriber, token, .. } = &session;
        if let Some(identity) = SessionIdentity::parse(identity.as_bytes()) {
            self.accepted.remember(identity, subscriber, session.end(), token.as_deref().map(Into::into));
        }
    }

    /// Records that a session identity is about to be written to the store. Only one call succeeds for each identity.
    ///
    /// # Errors
    /// [`StateError::SessionUsed`] if the identity is in the store, or is about to be written.
    pub(crate) fn bind(&mut self, session: &AcceptedSession) -> Result<(), StateError> {
        let AcceptedSession { identity, subscriber, token, .. } = session;
        if self.accepted.bind_last(identity, subscriber) {
            return Ok(());
        }
        // Every identity was read from a request, or made from one that was.
        let Some(identity) = SessionIdentity::parse(identity.as_bytes()) else { return Ok(()) };
        let bound = self.accepted.bind(identity, subscriber, session.end(), token.as_deref());
        bound.map_err(|reason| StateError::SessionUsed { of_another: reason == NotAccepted::OfAnother })
    }

    /// Parses the policy from its rows, and puts it in force. `revision` is the revision that wrote the rows.
    fn policy_of(&mut self, revision: Revision) -> Result<(), String> {
        let Some(head) = &self.head else { return Ok(()) };
        let parts: Option<Vec<&[u8]>> = (0..head.parts).map(|part| self.parts.get(&part).map(Vec::as_slice)).collect();
        let text = String::from_utf8(parts.ok_or("a part of its text is missing")?.concat());
        let text = text.map_err(|_| "its text is not UTF-8")?;
        let policy = Policy::parse(&head.file, &text).map_err(|error| error.to_string())?;
        let tested = policy
            .tested()
            .map_err(|failed| failed.first().map_or_else(|| "a test fails".to_owned(), ToString::to_string))?;
        self.in_force = InForce { policy: Arc::new(tested), revision };
        Ok(())
    }

    /// Returns the revision up to which the view has all changes of the store.
    pub const fn at(&self) -> Revision {
        self.at
    }

    /// Returns the number of changes of devices until now. While this number is the same, the view has the same devices.
    pub(crate) const fn device_changes(&self) -> u64 {
        self.device_changes
    }

    /// Returns true if the view has all changes of other servers, except those of the last few seconds (see
    /// [`Bounds::lease`](super::Bounds::lease)). If false, nothing may be granted.
    pub fn is_current(&self) -> bool {
        self.lease.is_none_or(|lease| lease.holds(std::time::Instant::now()))
    }

    pub(super) fn is_current_at(&self, now: std::time::Instant) -> bool {
        self.lease.is_none_or(|lease| lease.holds(now))
    }

    /// Lets the view count as current for the whole duration of [`Bounds::lease`](super::Bounds::lease) after the time
    /// `since`. The caller has checked that the view has all changes that the store acknowledged before `since`.
    pub(super) fn renew(&mut self, since: std::time::Instant) {
        if let Some(lease) = &mut self.lease {
            lease.since = lease.since.max(since);
        }
    }

    /// Returns the policy in force.
    pub fn in_force(&self) -> InForce {
        self.in_force.clone()
    }

    /// Returns the name of the file of the policy in force, and its text; `None` if no policy was applied.
    pub fn policy_text(&self) -> Option<(&str, String)> {
        let head = self.head.as_ref()?;
        let parts: Vec<&[u8]> = (0..head.parts).filter_map(|part| self.parts.get(&part)).map(Vec::as_slice).collect();
        Some((&head.file, String::from_utf8_lossy(&parts.concat()).into_owned()))
    }

    /// Returns the operator who applied the policy in force; `None` if no policy was applied.
    pub(crate) fn policy_by(&self) -> Option<&str> {
        self.head.as_ref().map(|head| head.by.as_str())
    }

    /// Returns true if this text is the text of the policy in force.
    pub fn has_policy(&self, text: &str) -> bool {
        let parts = self.head.iter().flat_map(|head| 0..head.parts).filter_map(|part| self.parts.get(&part));
        self.head.is_some() && parts.flatten().eq(text.as_bytes())
    }

    /// Returns the device of this name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.known.get(name).map(|known| &known.device)
    }

    /// Returns true if the device of this name is enabled, and was added before this revision.
    pub(crate) fn has_since(&self, name: &str, revision: Revision) -> bool {
        self.devices.known.get(name).is_some_and(|known| !known.has_left(revision))
    }

    /// Returns the device whose certificate or raw public key has this SHA-256.
    pub fn with_digest(&self, digest: &[u8; DIGEST_LEN]) -> Option<&Device> {
        self.device(self.devices.names.get(digest)?)
    }

    /// Returns the number of devices.
    pub fn devices(&self) -> usize {
        self.devices.known.len()
    }

    /// Returns the key that an enabled device shares with the server, if it has one.
    pub fn shared_key(&self, name: &str) -> Option<Zeroizing<Vec<u8>>> {
        let known = self.devices.known.get(name)?;
        let is_shared = known.device.credential == Credential::SharedKey && !known.device.disabled;
        known.secret.as_ref().filter(|_| is_shared).map(|secret| Zeroizing::new(secret.expose().to_vec()))
    }

    /// Returns the device of this name, also a disabled device, if it has a pre-shared key for sessions with the server,
    /// and `digest` is the digest of this key or is not known.
    pub(crate) fn with_session_key(&self, name: &str, digest: Option<&Digest>) -> Option<&Device> {
        let known = self.devices.known.get(name)?;
        known.has_session_key(digest).then_some(&known.device)
    }

    /// Returns the key that seals tokens for the resource server of this name, if the resource server is enabled.
    pub fn token_key(&self, name: &str) -> Option<Secret<LONG_KEY_LEN>> {
        Some(self.devices.known.get(name)?.resource_server()?.key)
    }

    /// Returns the devices that may enrol and whose names follow the name `after`, in the order of their names. With
    /// `None` returns all devices that may enrol.
    pub fn enrolments(&self, after: Option<&str>) -> impl Iterator<Item = &Enrolment> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.enrolments.range::<str, _>((from, Bound::Unbounded)).map(|(_, pending)| &pending.enrolment)
    }

    /// Returns the key of the session in which the device of this name enrols, if it may enrol. `now` is in seconds
    /// since 1970.
    pub fn enrolment_key(&self, name: &str, now: u64) -> Option<Zeroizing<Vec<u8>>> {
        self.enrolments.get(name)?.session_key(now)
    }

    pub(super) fn expired_enrolments(&self, now: u64) -> Vec<String> {
        let expired = self.enrolments(None).filter(|enrolment| enrolment.expires <= now).take(MAX_OPERATIONS);
        expired.map(|enrolment| enrolment.party.party().name.to_owned()).collect()
    }

    /// Decides on a request to `/introspect`. `subscriber` is the device that sent the request, or `None` if the peer
    /// is no device. The view remembers an accepted session identity ([`Outcome::session`]) at once, but the identity
    /// is durable only after [`State::bind`](super::State::bind). `now` is the time since 1970.
    pub fn introspect<C: Crypto>(&mut self, subscriber: Option<&str>, payload: &[u8], now: Instant) -> Outcome {
        let Self { devices, revoked, in_force, accepted, lifetime, .. } = self;
        let policy = Arc::clone(&in_force.policy);
        let lifetime = *lifetime;
        let subscriber = devices.enabled(subscriber);
        let devices = &InView { devices, revoked };
        Introspection { devices, policy: &policy, accepted, lifetime }.answer::<C>(subscriber, payload, now)
    }

    /// Decides on a request to `/token` in the same way as [`Self::introspect`]. `client` is the device that sent the
    /// request, or `None` if the peer is no device.
    pub fn token<C: Crypto>(&mut self, client: Option<&str>, payload: &[u8], now: Instant, crypto: &mut C) -> Outcome {
        let Self { devices, revoked, in_force, accepted, lifetime, .. } = self;
        let policy = Arc::clone(&in_force.policy);
        let lifetime = *lifetime;
        let client = devices.enabled(client);
        let devices = &InView { devices, revoked };
        Introspection { devices, policy: &policy, accepted, lifetime }.token(client, payload, now, crypto)
    }

    /// Returns the rows on which the grant of this session to this subscriber depends.
    pub fn grounds(&self, identity: &str, subscriber: &str) -> Grounds {
        if self.lease.is_none() {
            return Grounds::default();
        }
        let publisher = SessionIdentity::parse(identity.as_bytes()).map(|identity| identity.publisher());
        let mut names = vec![subscriber];
        names.extend(publisher.filter(|publisher| *publisher != subscriber));
        let changed = |name: &str| self.devices.known.get(name).map_or(Revision::ABSENT, |known| known.changed);
        let mut rows: Vec<_> = names.iter().map(|name| (rows::device(name).into_bytes(), changed(name))).collect();
        rows.push((rows::POLICY.into(), self.in_force.revision));
        Grounds(rows)
    }

    /// Removes an accepted session identity that no server made durable.
    pub(super) fn take_back(&mut self, identity: &str) {
        self.accepted.take_back(identity);
    }

    /// Returns the time until which the server remembers a session identity that it accepts at `now`. The returned time
    /// is in seconds since 1970.
    pub fn session_until(&self, now: Instant) -> u64 {
        now.after(self.accepted.lifetime()).as_micros().div_ceil(1_000_000)
    }

    /// Returns the accepted session identities for which `choose` returns true. `choose` receives the identity and the
    /// subscriber.
    pub fn sessions(&self, mut choose: impl FnMut(SessionIdentity<'_>, &str) -> bool) -> Vec<AcceptedSession> {
        let sessions = self.accepted.iter().filter(|accepted| {
            SessionIdentity::parse(accepted.identity.as_bytes())
                .is_some_and(|identity| choose(identity, accepted.subscriber))
        });
        let owned = |accepted: AcceptedIdentity<'_>| AcceptedSession {
            identity: accepted.identity.to_owned(),
            subscriber: accepted.subscriber.to_owned(),
            until: accepted.until.as_micros().div_ceil(1_000_000),
            token: accepted.token.map(<[u8]>::to_vec),
        };
        sessions.map(owned).collect()
    }

    /// Returns true if the token with this hash is revoked.
    pub fn is_revoked(&self, hash: &[u8]) -> bool {
        self.revoked.is_revoked(hash)
    }

    /// Answers a query of the revocation list: see [`RevocationList::answer`].
    ///
    /// # Errors
    /// The payload of a 4.00 response.
    pub fn revocations(&mut self, requester: Requester<'_>, query: Query) -> Result<Answer, TrlError> {
        if let Requester::Device(name) = requester
            && self.devices.known.contains_key(name)
        {
            self.revoked.register(name);
        }
        self.revoked.answer(requester, query)
    }

    /// Returns a page of the revocation list: see [`RevocationList::page`].
    pub fn revoked_page(&self, after: Option<&[u8]>, most: usize) -> (Vec<TokenHash>, bool) {
        self.revoked.page(after, most)
    }

    /// Checks that the token with this hash is on the revocation list, or that one more token fits into it.
    pub(super) fn has_room_for_revocation(&self, hash: &[u8]) -> Result<(), ListFull> {
        if self.is_revoked(hash) { Ok(()) } else { self.revoked.has_room() }
    }

    /// Returns true if the revocation list has at least half of its maximum number of tokens.
    pub(crate) fn is_revocation_list_half_full(&self) -> bool {
        self.revoked.is_half_full()
    }

    pub(super) fn expired(&self, now: u64, most: usize) -> Vec<TokenHash> {
        self.revoked.expired(now, most)
    }
}

/// Each revision of the store reserves this number of indices for updates of the revocation list. So two views that
/// began at different revisions use different indices. A client whose cursor is from before a restart, or from another
/// server, gets the whole list.
const UPDATES: u64 = 1 << 20;

/// A view that is being loaded. After that it contains all rows that the store has at one revision.
pub(super) struct Loading {
    view: View,
    /// The devices that were read so far. The table of devices is made only after all devices were read. So it has the
    /// right size at once, and does not have to grow.
    devices: Vec<(String, Known)>,
    sessions: Vec<AcceptedSession>,
    policy: Revision,
}

impl Loading {
    /// Begins a view without rows. `at` is the revision of the store up to which the view will contain all changes.
    /// `lease` is the time for which the view counts as current; `None` if no other server changes the store.
    pub(super) fn new(at: Revision, bounds: &Bounds, lease: Option<Lease>) -> Self {
        let view = View {
            at,
            lease,
            devices: Registry::default(),
            device_changes: 0,
            enrolments: BTreeMap::new(),
            in_force: InForce { policy: Arc::new(TestedPolicy::without_rules()), revision: Revision::ABSENT },
            head: None,
            parts: BTreeMap::new(),
            accepted: Accepted::new(bounds.sessions),
            revoked: RevocationList::starting_at(bounds.revoked, at.0.saturating_mul(UPDATES)),
            concerned: BTreeSet::new(),
            lifetime: bounds.lifetime,
            next_sessions: 0,
        };
        Self { view, devices: Vec::new(), sessions: Vec::new(), policy: Revision::ABSENT }
    }

    /// Adds a page of rows.
    pub(super) fn take(&mut self, entries: Vec<Entry>) -> Result<(), StateFault> {
        entries.into_iter().try_for_each(|entry| self.take_one(&entry).map_err(|why| fault(&entry.key, why)))
    }

    fn take_one(&mut self, entry: &Entry) -> Result<(), String> {
        match Row::of(&entry.key) {
            Some(Row::Session(identity)) => self.sessions.push(rows::read_session(identity, &entry.value)?),
            Some(Row::Sessions(number)) => {
                self.sessions.append(&mut rows::read_sessions(rows::plain(&entry.value)?)?);
                self.view.next_sessions = self.view.next_sessions.max(number.saturating_add(1));
            }
            Some(Row::Revoked(hash)) => {
                let Revocation { expires, concerned } = rows::read(&entry.value)?;
                self.view.revoked.load(hash, expires, concerned);
            }
            // It is registered at the revocation list when the list is about it, or when it asks for the list.
            Some(Row::Device(name)) => {
                self.devices.push((name.to_owned(), rows::read_device(name, entry)?));
            }
            Some(row) => {
                if matches!(row, Row::Policy) {
                    self.policy = entry.changed;
                }
                self.view.put(&row, entry)?;
            }
            None => {}
        }
        Ok(())
    }

    /// Returns the view, after the last page was added.
    pub(super) fn finish(self) -> Result<View, StateFault> {
        let Self { mut view, devices, mut sessions, policy } = self;
        view.devices.known = devices.into_iter().collect();
        sessions.sort_unstable_by_key(|session| session.until);
        sessions.into_iter().for_each(|session| view.remember(session));
        let View { devices, revoked, .. } = &mut view;
        revoked.register_concerned(|name| devices.known.contains_key(name));
        view.policy_of(policy).map_err(|why| fault(rows::POLICY.as_bytes(), why))?;
        Ok(view)
    }
}

fn fault(key: &[u8], why: String) -> StateFault {
    StateFault { key: String::from_utf8_lossy(key).into_owned(), why }
}
