//! A member of a group: its keys, its record numbers (TSNs), and the states that it stores about the other members.

use super::association::{Association, BadAssociation, GroupKeys};
use super::opened::{GroupNumber, Opened, Origin, Proof, Unverified};
use super::protection::{Protection, fingerprint};
use super::signature::{self, NotSealed, Signatures, Signed, Unchecked, scheme_of, signature_len};
use super::states::{ListenerState, Seen, SenderState, find};
use super::suite::Suite;
use crate::address::Address;
use crate::buf::{Frame, Full};
use crate::counters::Discard;
use crate::crypto::{Crypto, KEY_LEN};
use crate::dtls::record::{ContentType, MAX_SEALED, Record};
use crate::identity::SenderId;
use crate::secret::same;
use tegmen_base::lease::Lease;

/// A member of an Axiom group: it holds the keys of the group and the record numbers of the group's members. It has
/// space for the states of `SENDERS` senders, whose requests it receives, and of `LISTENERS` listeners, whose responses
/// it receives. Both numbers may be 0. A TSN is the truncated sequence number of a record. A member numbers its
/// requests and its responses separately.
///
/// `KEY` is the length of a key in bytes: 16, or 32 with [`Suite::MacOnly`]. `S` is the type that makes and verifies
/// the signatures of records; it is `()` in a group without signatures.
pub struct Member<const SENDERS: usize, const LISTENERS: usize, const KEY: usize = KEY_LEN, S = ()> {
    /// The reserved range ([`Lease`]) of TSNs that our requests may use. The end of the range is stored durably before
    /// the first TSN of the range is used.
    requests: Lease,
    /// The reserved range of TSNs that our responses may use. Responses to all senders share these TSNs. After a
    /// restart the individual keys are the same as before, so no TSN may be used twice.
    responses: Lease,
    /// The first TSN that our requests can use after the last restart of the member. Before that restart, requests of
    /// this epoch may have used the lower TSNs.
    first: u64,
    /// One more than the highest TSN of all senders whose state was forgotten. After a restart in the same epoch this
    /// field is `u64::MAX`, because all states are lost.
    forgotten: u64,
    keys: GroupKeys<KEY>,
    /// A TSN of our requests. If the member does not know the TSNs of a listener, a response of this listener is fresh
    /// only if it answers a request of ours whose TSN is not lower than this value.
    proving: u64,
    /// The value that a sender must repeat in an Echo option if the member does not know the TSNs of this sender.
    challenge: [u8; CHALLENGE_LEN],
    /// Fingerprints of our last requests: 21 bits of the tag of each request. The lowest bits of a request's TSN are
    /// the index of its fingerprint. An element is 0 while it has no fingerprint.
    sent: [u32; SENT],
    group: Address,
    address: [u8; 16],
    /// One more than the highest TSN that our requests may use in one epoch. It is our share of the records that all
    /// senders together may seal with the key of requests.
    limit: u32,
    epoch: u16,
    suite: Suite,
    group_id: u8,
    sender_id: Option<u8>,
    /// True if a [`Kept`] value of this epoch is stored durably, so that after a restart the member knows that it was
    /// already in this epoch.
    is_kept: bool,
    /// True if the member followed a rekeying into this epoch. It was then in the epoch from the beginning, where all
    /// senders have the TSN 0, so each record from an unknown sender is new if its TSN is not below `forgotten`.
    is_from_start: bool,
    senders: [SenderState<KEY>; SENDERS],
    listeners: [ListenerState<KEY>; LISTENERS],
    signatures: S,
}

/// Number of bytes of a challenge.
const CHALLENGE_LEN: usize = 8;

/// Number of our last requests whose fingerprints are stored: a power of 2. A received request with our SenderID and
/// our TSN, but with another fingerprint, comes from another member.
const SENT: usize = 8;

/// The numbers that a member stores durably: its epoch, and the ends of its two reserved ranges of TSNs ([`Lease`]).
/// The owner of the member stores the end of a range before the member uses the first TSN of the range. The default
/// value is for a member that was never in the group.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Kept {
    /// The epoch in which the member can use its reserved TSNs.
    pub epoch: u16,
    /// One more than the highest TSN that a request may have used.
    pub requests: u64,
    /// One more than the highest TSN that a response may have used.
    pub responses: u64,
}

/// The reason why a record is not sealed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SealRefused {
    /// The member has no SenderID.
    NotASender,
    /// All reserved TSNs are used: store a new [reservation](Member::reserve) durably, and then pass it to
    /// [`Member::extend`].
    LeaseSpent,
    /// The member has sealed as many records as its key may seal in one epoch. The controller must begin the next
    /// epoch.
    Exhausted,
    /// The frame has no space for header, nonce and tag, or the content is longer than 2^14 bytes. The TSN of the
    /// record is then used up.
    Full,
    /// The private key made no signature, or the [`Signatures`] no longer store the request that the response answers.
    /// The TSN of the record is then used up.
    Unsigned,
}

impl From<Full> for SealRefused {
    fn from(_: Full) -> Self {
        Self::Full
    }
}

impl From<NotSealed> for SealRefused {
    fn from(why: NotSealed) -> Self {
        match why {
            NotSealed::Full => Self::Full,
            NotSealed::Unsigned => Self::Unsigned,
        }
    }
}

impl<const SENDERS: usize, const LISTENERS: usize, const KEY: usize> Member<SENDERS, LISTENERS, KEY> {
    /// A member of no group. It refuses every record before [`Self::begin`]. All its bytes are zero, so a static
    /// variable with this value takes no flash memory. The value is also not built on the stack first, even if it has
    /// space for many states.
    pub const EMPTY: Self = Self::with(());

    /// Creates a member in the epoch of `association`, in a group without signatures. `kept` is the value that was
    /// last made durable in this group, or the default.
    ///
    /// If `kept` belongs to an earlier epoch, TSNs begin with 0. If `kept` belongs to this epoch, the member has
    /// restarted. Our TSNs then continue after those in `kept`, and the member does not know the TSNs of the other
    /// members. A member without durable storage must not begin again in the same epoch: it needs the association of a
    /// new epoch. Before [`Self::extend`], the member can seal no record. If it has not restarted in this epoch, it can
    /// also open no request before that call.
    ///
    /// # Errors
    /// [`BadAssociation`]; in particular [`BadAssociation::Epoch`] if `kept` belongs to a later epoch.
    pub fn new<C: Crypto>(crypto: &mut C, association: &Association<'_>, kept: &Kept) -> Result<Self, BadAssociation> {
        let mut made = Self::EMPTY;
        made.begin(crypto, association, kept)?;
        Ok(made)
    }
}

impl<const SENDERS: usize, const LISTENERS: usize, const KEY: usize, S> Member<SENDERS, LISTENERS, KEY, S> {
    /// Creates a member of no group. `signatures` will make and verify the signatures of records. The member refuses
    /// every record before [`Self::begin`].
    pub const fn with(signatures: S) -> Self {
        Self {
            requests: Lease::resume(0),
            responses: Lease::resume(0),
            first: 0,
            proving: 0,
            forgotten: 0,
            keys: GroupKeys::none(),
            challenge: [0; CHALLENGE_LEN],
            sent: [0; SENT],
            group: Address { ip: [0; 16], port: 0, scope: 0 },
            address: [0; 16],
            limit: 0,
            epoch: 0,
            suite: Suite::Ccm,
            group_id: 0,
            sender_id: None,
            is_kept: false,
            is_from_start: false,
            senders: [const { SenderState::none() }; SENDERS],
            listeners: [const { ListenerState::none() }; LISTENERS],
            signatures,
        }
    }
}

impl<const SENDERS: usize, const LISTENERS: usize, const KEY: usize, S: Signatures> Member<SENDERS, LISTENERS, KEY, S> {
    /// Returns the value that makes and verifies the member's signatures. It stores the public keys of the other
    /// members, so the owner of the member can add and remove keys.
    pub const fn signatures(&mut self) -> &mut S {
        &mut self.signatures
    }

    /// Does the same as [`Member::new`], but changes this member instead of creating one.
    ///
    /// # Errors
    /// The errors of [`Member::new`]. The member is then unchanged.
    pub fn begin<C: Crypto>(
        &mut self,
        crypto: &mut C,
        association: &Association<'_>,
        kept: &Kept,
    ) -> Result<(), BadAssociation> {
        self.enter(crypto, association, kept)?;
        self.senders.iter_mut().for_each(|state| *state = SenderState::none());
        Ok(())
    }

    /// Continues in the next epoch. The controller sent the association of that epoch, and the caller has
    /// authenticated it. The TSNs of all senders begin with 0, also those of senders that join in or after this epoch:
    /// the first request of an unknown sender is [`Opened::Fresh`]. From now on, records of the previous epoch are
    /// refused. Before [`Self::extend`], the member can seal no record and open no request.
    ///
    /// A member that missed an epoch asks the controller for an association, and calls [`Self::begin`].
    ///
    /// # Errors
    /// [`BadAssociation`]; in particular [`BadAssociation::Epoch`] if the association does not belong to the next
    /// epoch. The member is then unchanged.
    pub fn rekey<C: Crypto>(&mut self, crypto: &mut C, association: &Association<'_>) -> Result<(), BadAssociation> {
        if self.epoch.checked_add(1) != Some(association.epoch) || association.group_id != self.group_id {
            return Err(BadAssociation::Epoch);
        }
        self.enter(crypto, association, &Kept::default())?;
        self.is_from_start = true;
        for state in self.senders.iter_mut().filter(|state| state.seen.is_taken()) {
            state.seen = Seen::nothing();
            state.key = self.keys.individual::<C>(&self.address, state.id);
        }
        Ok(())
    }

    /// Enters an epoch: sets all fields as [`Member::new`] does, except the states of senders.
    fn enter<C: Crypto>(
        &mut self,
        crypto: &mut C,
        association: &Association<'_>,
        kept: &Kept,
    ) -> Result<(), BadAssociation> {
        let Association { group_id, group, suite, epoch, senders, sender_id, address, .. } = *association;
        if epoch == 0 || epoch < kept.epoch {
            return Err(BadAssociation::Epoch);
        }
        self.keys = GroupKeys::derive::<C>(association)?;
        let restarts = epoch == kept.epoch;
        let (requests, responses) = if restarts { (kept.requests, kept.responses) } else { (0, 0) };
        let senders = if senders == 0 { MAX_SENDERS } else { senders.into() };
        self.requests = Lease::resume(requests);
        self.responses = Lease::resume(responses);
        (self.first, self.proving) = (requests, requests);
        self.forgotten = if restarts { u64::MAX } else { 0 };
        crypto.random(&mut self.challenge);
        self.sent = [0; SENT];
        (self.group, self.address) = (group, address);
        self.limit = MAX_SEALED.checked_div(senders).unwrap_or(0);
        (self.epoch, self.suite, self.group_id, self.sender_id) = (epoch, suite, group_id, sender_id);
        (self.is_kept, self.is_from_start) = (restarts, false);
        self.listeners.iter_mut().for_each(|state| *state = ListenerState::none());
        Ok(())
    }

    /// Returns the value that the owner of the member must store durably before the member can seal `requests` more
    /// requests and `responses` more responses. Both numbers may be 0 for a member that only receives. The value also
    /// contains the current epoch. So after a restart, the stored value shows that the member was already in this
    /// epoch.
    pub const fn reserve(&self, requests: u64, responses: u64) -> Kept {
        Kept {
            epoch: self.epoch,
            requests: self.requests.end().saturating_add(requests),
            responses: self.responses.end().saturating_add(responses),
        }
    }

    /// Allows the member to use the TSNs of a [reservation](Self::reserve) that the owner of the member has just made
    /// durable. If the reservation belongs to another epoch, nothing changes.
    pub const fn extend(&mut self, kept: &Kept) {
        if kept.epoch == self.epoch && kept.epoch != 0 {
            self.requests.extend(kept.requests);
            self.responses.extend(kept.responses);
            self.is_kept = true;
        }
    }

    /// Sets `next` as the next TSN (record number) of `sender`. The controller sent this TSN to the member (Axiom
    /// paper, section 6.2). Requests of this sender with lower TSNs are refused, and requests with this or a higher TSN
    /// are new.
    ///
    /// Nothing changes in three cases:
    /// * The sender already has a state.
    /// * A state with TSNs above `next` was forgotten.
    /// * The member has restarted in this epoch.
    ///
    /// In the last two cases, the member may have delivered requests that the controller did not receive. The requests
    /// of this sender are then [`Opened::Unverified`] until the sender has proved that a request is fresh.
    ///
    /// # Errors
    /// [`Full`] if there is no space for the state of the sender.
    pub fn know_sender<C: Crypto>(&mut self, sender: u8, next: u64) -> Result<(), Full> {
        if next < self.forgotten || self.senders.iter().any(|state| state.is_of(sender)) {
            return Ok(());
        }
        self.add_sender::<C>(sender, Seen::before(next))
    }

    /// Forgets the states of members that have sent no record since the last call. The next record of such a member
    /// is [`Opened::Unverified`], so that no record is delivered twice. It is [`Opened::Fresh`] only if its TSN is higher
    /// than all TSNs of forgotten senders, and if the member followed a [rekeying](Self::rekey) into this epoch. Draws a new [challenge](Self::challenge).
    /// Call this function at regular intervals. The interval is the time for which a member may be silent. Also call it
    /// after [`Discard::NoRoom`].
    pub fn forget_idle<C: Crypto>(&mut self, crypto: &mut C) {
        // With the old challenge, a request that repeated it could prove twice that it is new.
        crypto.random(&mut self.challenge);
        for state in &mut self.senders {
            if state.seen.is_taken() && state.seen.is_idle() {
                self.forgotten = self.forgotten.max(state.seen.next());
                *state = SenderState::none();
            }
        }
        for state in &mut self.listeners {
            if state.seen.is_taken() && state.seen.is_idle() {
                // With the old limit, a delayed response to an earlier request would allow newer responses again.
                self.proving = self.requests.next();
                *state = ListenerState::none();
            }
        }
    }

    /// Returns the multicast address and the port to which requests are sent.
    pub(crate) const fn group(&self) -> &Address {
        &self.group
    }

    /// Returns the GroupID: the byte that identifies the group in the header of a response.
    pub(crate) const fn group_id(&self) -> u8 {
        self.group_id
    }

    /// Returns the source address of our responses.
    pub(crate) const fn address(&self) -> &[u8; 16] {
        &self.address
    }

    /// Returns the current epoch.
    pub(crate) const fn epoch(&self) -> u16 {
        self.epoch
    }

    /// Returns the number of requests and the number of responses that can be sealed before the next
    /// [`Self::extend`].
    pub const fn left(&self) -> (u64, u64) {
        (self.requests.left(), self.responses.left())
    }

    /// Returns the Echo value (RFC 9175) for the response to a request that is [`Opened::Unverified`]: 8 random
    /// bytes.
    pub const fn challenge(&self) -> &[u8; CHALLENGE_LEN] {
        &self.challenge
    }

    /// Returns the number of bytes that sealing adds before the content, and the number that it adds after the
    /// content.
    pub fn overhead(&self) -> (usize, usize) {
        (self.suite.headroom(), self.suite.tag_len().wrapping_add(signature_len(&self.signatures)))
    }

    /// Seals a request to the group in place in `frame` (Axiom paper, section 5.4). The caller sends the record once,
    /// to the address of the group. Returns the TSN of the record, for [`Proof::AnswerTo`].
    ///
    /// # Errors
    /// [`SealRefused`] has the reason.
    pub fn seal_request<C: Crypto>(&mut self, crypto: &mut C, frame: &mut Frame<'_>) -> Result<u64, SealRefused> {
        let id = self.sender_id.ok_or(SealRefused::NotASender)?;
        let tsn = take(&mut self.requests, self.limit)?;
        let number = GroupNumber { epoch: self.epoch, id, tsn };
        let protection = self.keys.of_requests(self.suite);
        let sealed =
            protection.seal_in(crypto, &mut self.signatures, (number, Signed::Request), frame).map(fingerprint);
        if let Some(place) = self.sent.get_mut(place_of(tsn)) {
            *place = sealed.unwrap_or(0);
        }
        sealed?;
        Ok(tsn)
    }

    /// Opens a request to the group in place (Axiom paper, section 5.4). Returns the SenderID of the request, and the
    /// result.
    ///
    /// # Errors
    /// The reason why the record is dropped; the member is then unchanged. The reason is also [`Discard::Replayed`] if
    /// this member itself sent the request. It is [`Discard::Unexpected`] before the first [`Self::extend`] in this
    /// epoch, unless the member has restarted in this epoch.
    pub fn open_request<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        record: Record<'r>,
    ) -> Result<(SenderId, Opened<'r>), Discard> {
        let GroupNumber { id, tsn, .. } = self.number(&record)?;
        if !self.is_kept {
            return Err(Discard::Unexpected);
        }
        let signed = (Signed::Request, || Origin::Sender(id));
        let (record, unchecked) = Unchecked::take(&self.signatures, record, signed)?;
        let mark = fingerprint(record.body);
        let requests = self.keys.of_requests(self.suite);
        if self.sender_id == Some(id) {
            if !self.is_of_another(tsn, mark) {
                return Err(Discard::Replayed);
            }
            signature::open(crypto, &mut self.signatures, &requests, (record, unchecked))?;
            return Ok((SenderId(id), Opened::Clash));
        }
        let signatures = &mut self.signatures;
        let opened = match self.senders.iter_mut().find(|state| state.is_of(id)) {
            Some(state) => {
                let open = || signature::open(crypto, signatures, &requests, (record, unchecked));
                state.seen.open(tsn, mark, open)?
            }
            None => {
                let content = signature::open(crypto, signatures, &requests, (record, unchecked))?;
                let mut seen = Seen::before(self.forgotten);
                let is_new = self.is_from_start && seen.accept(tsn, mark).is_ok();
                if is_new && self.add_sender::<C>(id, seen).is_ok() {
                    Opened::Fresh(content)
                } else {
                    let from = Origin::Sender(id);
                    Opened::Unverified(content, Unverified { from, epoch: self.epoch, tsn, fingerprint: mark })
                }
            }
        };
        if S::IS_ON
            && let Opened::Fresh(content) | Opened::Unverified(content, _) = &opened
        {
            self.signatures.note(GroupNumber { epoch: self.epoch, id, tsn }, content);
        }
        Ok((SenderId(id), opened))
    }

    /// Seals a response to a sender in place in `frame` (Axiom paper, section 5.6). The caller sends the record to the
    /// source address of the request, from our address in the [`Association`] and from the port of the group.
    ///
    /// # Errors
    /// [`SealRefused`] has the reason.
    pub fn seal_response<C: Crypto>(
        &mut self,
        crypto: &mut C,
        sender: SenderId,
        frame: &mut Frame<'_>,
    ) -> Result<(), SealRefused> {
        let tsn = take(&mut self.responses, MAX_SEALED)?;
        let number = GroupNumber { epoch: self.epoch, id: self.group_id, tsn };
        let known = self.senders.iter().find(|state| state.is_of(sender.0));
        let derived;
        let key = match known {
            Some(state) => &state.key,
            None => {
                derived = self.keys.individual::<C>(&self.address, sender.0);
                &derived
            }
        };
        let protection = Protection { suite: self.suite, key, iv: self.keys.response_iv };
        let signed = Signed::Response { sender: sender.0 };
        protection.seal_in(crypto, &mut self.signatures, (number, signed), frame)?;
        Ok(())
    }

    /// Opens a response to our request. The response came from the address `from` (Axiom paper, section 5.6).
    ///
    /// # Errors
    /// The reason why the record is dropped; the member is then unchanged.
    pub fn open_response<'r, C: Crypto>(
        &mut self,
        crypto: &mut C,
        from: &Address,
        record: Record<'r>,
    ) -> Result<Opened<'r>, Discard> {
        let GroupNumber { id, tsn, .. } = self.number(&record)?;
        let sender = self.sender_id.filter(|_| id == self.group_id).ok_or(Discard::UnknownPeer)?;
        let is_link_local = from.ip.starts_with(&[0xfe, 0x80]);
        if from.port != self.group.port || is_link_local && from.scope != self.group.scope {
            return Err(Discard::UnknownPeer);
        }
        let signed = (Signed::Response { sender }, || Origin::Listener(from.ip));
        let (record, unchecked) = Unchecked::take(&self.signatures, record, signed)?;
        let fingerprint = fingerprint(record.body);
        let (suite, iv) = (self.suite, self.keys.response_iv);
        let signatures = &mut self.signatures;
        match find(&mut self.listeners, &from.ip, false) {
            Some(ListenerState { seen, key, .. }) => {
                let protection = Protection { suite, key, iv };
                let open = || signature::open(crypto, signatures, &protection, (record, unchecked));
                seen.open(tsn, fingerprint, open)
            }
            None => {
                let key = &self.keys.individual::<C>(&from.ip, sender);
                let protection = Protection { suite, key, iv };
                let content = signature::open(crypto, signatures, &protection, (record, unchecked))?;
                let from = Origin::Listener(from.ip);
                Ok(Opened::Unverified(content, Unverified { from, epoch: self.epoch, tsn, fingerprint }))
            }
        }
    }

    /// Checks the proof that a record is new, and stores the TSN of the record. From now on, earlier records of the
    /// same member are refused, and later records are new.
    ///
    /// # Errors
    /// If this function fails, do not deliver the record.
    /// * [`Discard::Unexpected`]: `proof` does not prove that the record is new.
    /// * [`Discard::Replayed`]: a record with the same TSN was accepted meanwhile, or the TSN is too old for the replay
    ///   window.
    /// * [`Discard::UnknownPeer`]: the epoch of the record is over.
    /// * [`Discard::NoRoom`]: there is no space for the state of the member. Call [`Self::forget_idle`], and try again.
    pub fn accept<C: Crypto>(&mut self, record: Unverified, proof: Proof<'_>) -> Result<(), Discard> {
        let Unverified { from, epoch, tsn, fingerprint } = record;
        if epoch != self.epoch {
            return Err(Discard::UnknownPeer);
        }
        let seen = Seen::up_to(tsn, fingerprint);
        let is_proof = match (&from, proof) {
            (Origin::Sender(_), Proof::Echo(echo)) => same(self.challenge.as_slice(), echo),
            (Origin::Listener(_), Proof::AnswerTo(asked)) => (self.proving..self.requests.next()).contains(&asked),
            _ => false,
        };
        match from {
            _ if !is_proof => Err(Discard::Unexpected),
            Origin::Sender(id) => match self.senders.iter_mut().find(|state| state.is_of(id)) {
                Some(state) => state.seen.accept(tsn, fingerprint),
                None => self.add_sender::<C>(id, seen).map_err(|_| Discard::NoRoom),
            },
            Origin::Listener(address) => match find(&mut self.listeners, &address, false) {
                Some(state) => state.seen.accept(tsn, fingerprint),
                None => {
                    let sender = self.sender_id.ok_or(Discard::UnknownPeer)?;
                    let place = find(&mut self.listeners, &address, true);
                    let place = place.ok_or(Discard::NoRoom)?;
                    let key = self.keys.individual::<C>(&address, sender);
                    *place = ListenerState { seen, key, address };
                    Ok(())
                }
            },
        }
    }

    /// Returns the epoch, the id and the TSN in the header of a record. Fails if the record belongs to another epoch,
    /// or does not carry application data.
    fn number(&self, record: &Record<'_>) -> Result<GroupNumber, Discard> {
        if record.content_type() != ContentType::APPLICATION_DATA {
            return Err(Discard::Unexpected);
        }
        let number = GroupNumber::of(record);
        if number.epoch == self.epoch { Ok(number) } else { Err(Discard::UnknownPeer) }
    }

    /// True if it is certain that another member sent this request with our SenderID: we have not used its TSN, or we
    /// used this TSN for a record with another fingerprint. Returns false for a TSN that we may have used before a
    /// restart, and for a TSN whose fingerprint is not stored, because such a TSN proves nothing.
    fn is_of_another(&self, tsn: u64, mark: u32) -> bool {
        let age = self.requests.next().checked_sub(tsn);
        match age {
            None | Some(0) => true,
            Some(age) if tsn >= self.first && age <= SENT as u64 => {
                let ours = self.sent.get(place_of(tsn)).copied().unwrap_or(0);
                ours != 0 && ours != mark
            }
            Some(_) => false,
        }
    }

    fn add_sender<C: Crypto>(&mut self, id: u8, seen: Seen) -> Result<(), Full> {
        let place = self.senders.iter_mut().find(|state| !state.seen.is_taken()).ok_or(Full)?;
        let key = self.keys.individual::<C>(&self.address, id);
        *place = SenderState { seen, key, id };
        Ok(())
    }
}

/// Number of possible SenderIDs.
const MAX_SENDERS: u32 = 256;

/// Takes the next TSN of a reserved range. Fails if this TSN is not below `limit`, or if all TSNs of the range are
/// used.
fn take(lease: &mut Lease, limit: u32) -> Result<u64, SealRefused> {
    if lease.next() >= limit.into() {
        return Err(SealRefused::Exhausted);
    }
    lease.take().ok_or(SealRefused::LeaseSpent)
}

/// Returns the index of the fingerprint of our request with this TSN in [`Member::sent`].
const fn place_of(tsn: u64) -> usize {
    (tsn & const { SENT as u64 - 1 }) as usize
}

impl<const KEY: usize> GroupKeys<KEY> {
    const fn of_requests(&self, suite: Suite) -> Protection<'_, KEY> {
        Protection { suite, key: &self.request, iv: self.request_iv }
    }
}

impl<const KEY: usize> Protection<'_, KEY> {
    /// Seals the content of a frame, and signs it if the group has signatures. Returns the tag.
    fn seal_in<'f, C: Crypto, S: Signatures>(
        &self,
        crypto: &mut C,
        signatures: &mut S,
        (number, what): (GroupNumber, Signed),
        frame: &'f mut Frame<'_>,
    ) -> Result<&'f [u8], SealRefused> {
        let (before, behind) = (self.suite.headroom(), self.suite.tag_len());
        let Some(scheme) = scheme_of(signatures) else {
            return Ok(self.seal(crypto, number, frame.widen(before, behind)?)?);
        };
        let record = frame.widen(before, behind.wrapping_add(signature_len(signatures)))?;
        Ok(signature::seal(crypto, (signatures, scheme), (self, number), what, record)?)
    }
}
