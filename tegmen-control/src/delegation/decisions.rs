//! The decisions during handshakes of the server. A decision reads only data in memory, and never waits for the store.

use super::config::NO_SCOPE;
use super::connection::{Carrier, ConnectionId};
use super::error::DelegationError;
use super::handovers::{Peer, Waiting};
use super::memory::{Device, InMemory, Kept};
use super::numbers::Purpose;
use super::rights;
use super::rows::ConnectionRow;
use super::server::{Delegations, Made};
use super::work::ENOUGH;
use crate::audit::{Kind, Record};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use tegmen::buf::Writer;
use tegmen::dtls::{CipherSuite, Found, Handle, SessionState};
use tegmen_base::crypto::Crypto;
use tegmen_base::secret::Secret;
use tegmen_delegation::{Connection, Delegation, LONGEST_TICKET, Ticket};
use tegmen_host::delegate::Proved;
use tegmen_store::Store;
use zeroize::Zeroizing;

/// Maximum number of connections whose rows in the store are not durable yet. While there are this many connections, no
/// peer gets a session.
const MOST_WAITING: usize = 4096;
/// The cipher suite of sessions that devices resume.
pub(crate) const SUITE: CipherSuite = CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8;

/// The reason why a peer gets no session with a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotGiven {
    Disabled,
    NoEpoch,
    Suite,
    NoPeer,
    CertificateEnded,
    CertificateRevoked,
    NoRights,
    NoNumber,
    TooManyWait,
    NoAudit,
    NotSealed,
}

impl NotGiven {
    /// Returns the code of this reason, for the audit log. The code stays the same in later versions.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Disabled => "device-disabled",
            Self::NoEpoch => "no-epoch",
            Self::Suite => "cipher-suite",
            Self::NoPeer => "no-peer",
            Self::CertificateEnded => "certificate-ended",
            Self::CertificateRevoked => "certificate-revoked",
            Self::NoRights => "no-scope",
            Self::NoNumber => "no-number",
            Self::TooManyWait => "too-many-wait",
            Self::NoAudit => "no-audit",
            Self::NotSealed => "not-sealed",
        }
    }
}

/// A session that the server has given to a peer. The peer uses the session with a device.
pub(super) struct Given {
    pub(super) delegation: Delegation,
    pub(super) id: ConnectionId,
    scope: u8,
    /// The number of the connection of the previous epoch that this session's connection replaces.
    of: Option<u32>,
}

/// An earlier connection with a device, which a new connection replaces. The new connection never gets more rights than
/// `scope`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing<'s> {
    pub(super) peer: &'s str,
    pub(super) scope: u8,
    pub(super) since: u32,
    pub(super) expires: u32,
    pub(super) id: ConnectionId,
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Returns the number of the device of this name, if the device is enabled. Other functions name the device by this
    /// number. The number is never 0, and is valid only in this process. If the device is disabled, the audit log gets a
    /// line about it, at most once a minute.
    pub fn device(&self, server_name: &[u8]) -> Option<u32> {
        let name = std::str::from_utf8(server_name).ok()?;
        let is_other_case = name.bytes().any(|byte| byte.is_ascii_uppercase());
        let device = match is_other_case {
            true => self.named(&name.to_ascii_lowercase())?,
            false => self.named(name)?,
        };
        let (is_usable, is_low, is_noted) = {
            let mut state = device.state();
            (state.is_usable(), state.new.is_low(), state.must_note_refusal())
        };
        if is_noted {
            let refused = format!("a session in the name of {}, because the device is disabled", device.name);
            self.audit.note(Record::refused("", NotGiven::Disabled.code(), &refused));
        }
        if is_low {
            self.wake(&device);
        }
        is_usable.then_some(device.id)
    }

    /// Seals a ticket for a device, and writes it into `ticket`. If the peer in `session` returned with a ticket of the
    /// previous epoch, and [`Self::open_ticket`] opened this ticket, the peer gets a new ticket with the same rights
    /// and the same expiry. Otherwise `peer` must have proved its name, and gets the scope that the policy allows for
    /// this name. The ticket expires no later than the certificate of the peer. Returns the seconds for which the
    /// device accepts the ticket. Returns `None` if the peer gets no ticket; the audit log then has the reason.
    pub fn seal_ticket(
        &self,
        device: u32,
        peer: Option<Proved<'_>>,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32> {
        let device = self.registry(|registry| registry.numbered(device))?;
        let sealed =
            self.give(&device, peer, session, Carrier::Ticket, |state, given| self.seal_into(state, given, ticket));
        let given = self.report(&device, peer.map(|peer| peer.name), sealed)?;
        self.count(|counts| if given.of.is_some() { &mut counts.reissued } else { &mut counts.sealed });
        Some(given.delegation.expires.saturating_sub(self.seconds()))
    }

    /// Seals the ticket of the session in `given`, and writes it into `ticket`.
    pub(super) fn seal_into(
        &self,
        state: &mut InMemory,
        given: &Given,
        ticket: &mut Writer<'_>,
    ) -> Result<(), NotGiven> {
        let mut room = [0; LONGEST_TICKET];
        let sealed = state.issuer.seal(&mut *self.crypto(), &given.delegation, &mut room);
        sealed.and_then(|sealed| ticket.put(sealed.0)).map_err(|_| NotGiven::NotSealed)
    }

    /// Opens a ticket of the previous epoch, for a peer that returns and needs a ticket of the present epoch. Returns
    /// `None` if the ticket is not authentic, if its connection was revoked or has expired, or if no connection of the
    /// previous epoch continues in the present one.
    ///
    /// While the server asks the device to begin the next epoch, this function also opens a ticket of the present
    /// epoch, because the device may have begun the next epoch before the server knows it. The peer then resumes its
    /// session with the server, but gets no new ticket, and must return again later.
    pub fn open_ticket(&self, device: u32, ticket: &[u8]) -> Option<Found> {
        let device = self.registry(|registry| registry.numbered(device))?;
        self.open_of_peer(&device, Ticket(ticket)).map(|(found, _)| found)
    }

    /// Opens a ticket as [`Self::open_ticket`] does, and also returns the connection of the ticket.
    pub(super) fn open_of_peer(&self, device: &Device, ticket: Ticket<'_>) -> Option<(Found, ConnectionId)> {
        let opened = self.open_returning(&mut device.state(), ticket);
        if opened.is_none() {
            self.count(|counts| &mut counts.refused);
        }
        opened
    }

    fn open_returning(&self, state: &mut InMemory, ticket: Ticket<'_>) -> Option<(Found, ConnectionId)> {
        let epoch = ticket.epoch().filter(|_| state.is_usable())?;
        let is_before = state.known.before.as_ref().is_some_and(|before| before.number == epoch);
        // A ticket of the present epoch is for the device, unless the device is about to refuse it.
        let is_ended = || epoch == state.known.present.number && state.may_have_begun_next();
        if !is_before && !is_ended() {
            return None;
        }
        let tag = if is_before { state.tag_before } else { state.tag };
        let mut number = None;
        let is_revoked = |old| {
            number = Some(old);
            !state.may_continue(tag, old)
        };
        // It gets its new number when its ticket is sealed.
        let reissued = state.issuer.reissue(&mut *self.crypto(), ticket, self.seconds(), 0, is_revoked).ok()?;
        let Delegation { session, expires } = reissued;
        let old = Connection::new(number?, Connection::of(session.principal)?.scope)?;
        if is_before {
            state.returns(Kept { old, since: session.since?, expires }, &session.master);
        }
        let session = SessionState { principal: old.principal(), ..session };
        Some((Found { session, renew: is_before }, ConnectionId { epoch, number: old.number }))
    }

    pub(super) fn seconds(&self) -> u32 {
        u32::try_from(self.now()).unwrap_or(u32::MAX)
    }

    /// Gives a peer a session with a device. `carry` writes the ticket, or puts the session into the queue of the
    /// device.
    pub(super) fn give(
        &self,
        device: &Arc<Device>,
        peer: Option<Proved<'_>>,
        session: &SessionState,
        carrier: Carrier,
        carry: impl FnOnce(&mut InMemory, &Given) -> Result<(), NotGiven>,
    ) -> Result<Given, NotGiven> {
        let decide = |state: &mut InMemory| {
            let returned = Connection::of(session.principal).and_then(|old| state.take_returning(old, &session.master));
            match returned {
                Some(kept) => self.give_again(state, kept, session, carrier),
                None => self.give_new(state, peer.ok_or(NotGiven::NoPeer)?, session, carrier),
            }
        };
        self.give_as(device, session, decide, carry)
    }

    /// Gives a peer a session with a device. The connection of this session replaces the earlier connection `standing`.
    /// `carry` does the same as in [`Self::give`].
    pub(super) fn give_standing(
        &self,
        device: &Arc<Device>,
        standing: &Standing<'_>,
        session: &SessionState,
        carrier: Carrier,
        carry: impl FnOnce(&mut InMemory, &Given) -> Result<(), NotGiven>,
    ) -> Result<Given, NotGiven> {
        let decide = |state: &mut InMemory| {
            let Standing { peer, scope, since, expires, id } = *standing;
            let goes_on = state.may_continue(state.tag_of(id), id.number);
            let of = (id.epoch != state.known.present.number).then_some(id.number);
            let (party, config) = (state.known.party.party(), &state.known.config);
            let stands = rights::stands(&*self.rights, peer, &party, config, scope);
            if !goes_on || !stands || expires <= self.seconds() {
                return Err(NotGiven::NoRights);
            }
            let connection = take(state, if of.is_some() { Purpose::Again } else { Purpose::New }, scope)?;
            let (peer, carrier) = (peer.to_owned(), carrier.word().into());
            Ok(given(state, connection, session, ConnectionRow { peer, scope, since, expires, carrier, of }))
        };
        self.give_as(device, session, decide, carry)
    }

    fn give_as(
        &self,
        device: &Arc<Device>,
        session: &SessionState,
        decide: impl FnOnce(&mut InMemory) -> Result<(Given, ConnectionRow), NotGiven>,
        carry: impl FnOnce(&mut InMemory, &Given) -> Result<(), NotGiven>,
    ) -> Result<Given, NotGiven> {
        let state = &mut *device.state();
        if !state.is_usable() {
            return Err(NotGiven::Disabled);
        }
        let tag = state.tag.ok_or(NotGiven::NoEpoch)?;
        if session.cipher_suite != SUITE {
            return Err(NotGiven::Suite);
        }
        self.audit.is_writable().map_err(|_| NotGiven::NoAudit)?;
        if self.made().len() >= MOST_WAITING {
            return Err(NotGiven::TooManyWait);
        }
        let (given, row) = decide(state)?;
        carry(state, &given)?;
        state.unwritten.insert(given.id.number);
        let name_at = given.of.zip(state.tag_before).filter(|_| row.peer.is_empty()).map(|(number, tag)| (tag, number));
        let made = Made { device: Arc::clone(device), tag, number: given.id.number, name_at, row };
        let waiting = {
            let mut all = self.made();
            all.push_back(made);
            all.len()
        };
        self.work.notify_one();
        if waiting == ENOUGH {
            self.urgent.notify_one();
        }
        Ok(given)
    }

    fn give_new(
        &self,
        state: &mut InMemory,
        Proved { name: peer, until }: Proved<'_>,
        session: &SessionState,
        carrier: Carrier,
    ) -> Result<(Given, ConnectionRow), NotGiven> {
        let (party, config) = (state.known.party.party(), &state.known.config);
        let scope = rights::scope(&*self.rights, peer, &party, config);
        // A peer that the device opens a session with needs no rights at the device.
        let scope = scope.or((carrier == Carrier::Device).then_some(NO_SCOPE)).ok_or(NotGiven::NoRights)?;
        let since = session.since.unwrap_or_else(|| self.seconds());
        let until = until.map_or(u64::MAX, seconds_of);
        if self.is_certificate_refused(peer, until) {
            return Err(NotGiven::CertificateRevoked);
        }
        let expires = since.saturating_add(config.lifetime).min(u32::try_from(until).unwrap_or(u32::MAX));
        if expires <= self.seconds() {
            return Err(NotGiven::CertificateEnded);
        }
        let connection = take(state, Purpose::New, scope)?;
        let row =
            ConnectionRow { peer: peer.to_owned(), scope, since, expires, carrier: carrier.word().into(), of: None };
        Ok(given(state, connection, session, row))
    }

    fn give_again(
        &self,
        state: &mut InMemory,
        kept: Kept,
        session: &SessionState,
        carrier: Carrier,
    ) -> Result<(Given, ConnectionRow), NotGiven> {
        let Kept { old, since, expires } = kept;
        if !state.may_continue(state.tag_before, old.number) || expires <= self.seconds() {
            return Err(NotGiven::NoRights);
        }
        let connection = take(state, Purpose::Again, old.scope)?;
        // If the name of the peer is not in memory, this row gets it from the row of the connection before.
        let (peer, carrier) = (state.take_name(old.number).unwrap_or_default(), carrier.word().into());
        let row = ConnectionRow { peer, scope: old.scope, since, expires, carrier, of: Some(old.number) };
        Ok(given(state, connection, session, row))
    }

    /// Records the result of a decision as [`Self::report`] does. Returns the session, or an error with the reason.
    pub(super) fn given_to(
        &self,
        device: &Device,
        peer: &str,
        given: Result<Given, NotGiven>,
    ) -> Result<Given, DelegationError> {
        let code = given.as_ref().err().map_or("", |reason| reason.code());
        let none = || DelegationError::NotGiven { device: device.name.clone(), peer: peer.to_owned(), code };
        self.report(device, Some(peer), given).ok_or_else(none)
    }

    /// Records the result of a decision in the audit log. Returns the session if the decision gives one.
    pub(super) fn report(&self, device: &Device, peer: Option<&str>, given: Result<Given, NotGiven>) -> Option<Given> {
        let who = peer.unwrap_or_default();
        match given {
            Ok(given) => {
                let Given { id, scope, of, .. } = &given;
                let name = &device.name;
                let message = match of {
                    Some(of) => format!(
                        "the connection {id} with the device {name} in place of {of} of the epoch before, scope {scope}"
                    ),
                    None => format!("the connection {id} with the device {name}, scope {scope}"),
                };
                self.audit.note(Record { kind: Kind::Grant, who: who.to_owned(), code: "delegated", message });
                if device.state().free(Purpose::of_number(id.number)).is_low() {
                    self.wake(device);
                }
                self.want_if_unheard(device);
                Some(given)
            }
            Err(reason) => {
                self.audit.note(Record::refused(
                    who,
                    reason.code(),
                    &format!("a session with the device {}", device.name),
                ));
                self.count(|counts| match reason {
                    NotGiven::NoRights | NotGiven::NoPeer => &mut counts.without_rights,
                    _ => &mut counts.not_given,
                });
                if reason == NotGiven::NoNumber {
                    self.wake(device);
                }
                None
            }
        }
    }
}

/// Puts a session into the queue of its device. If `peer` is given, the device itself opens the session at the address
/// of this peer. Otherwise the peer resumes the session.
pub(super) fn hand_over(
    state: &mut InMemory,
    given: &Given,
    handle: Handle<'_>,
    peer: Option<Peer>,
) -> Result<(), NotGiven> {
    if state.handovers.is_full() {
        return Err(NotGiven::TooManyWait);
    }
    let (is_ticket, bytes) = match handle {
        Handle::Ticket(bytes) => (true, bytes),
        Handle::Id(bytes) => (false, bytes),
    };
    state.handovers.push(Waiting {
        tag: state.tag.ok_or(NotGiven::NoEpoch)?,
        number: given.id.number,
        expires: given.delegation.expires,
        state: given.delegation.state().map_err(|_| NotGiven::NotSealed)?,
        is_ticket,
        handle: Zeroizing::new(bytes.to_vec()),
        peer,
    });
    Ok(())
}

/// Converts a time to seconds since 1970.
fn seconds_of(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn take(state: &mut InMemory, purpose: Purpose, scope: u8) -> Result<Connection, NotGiven> {
    let number = state.free(purpose).take().ok_or(NotGiven::NoNumber)?;
    Connection::new(number, scope).ok_or(NotGiven::NoNumber)
}

fn given(
    state: &InMemory,
    connection: Connection,
    session: &SessionState,
    row: ConnectionRow,
) -> (Given, ConnectionRow) {
    let session = SessionState {
        cipher_suite: session.cipher_suite,
        master: Secret::new(*session.master.expose()),
        principal: connection.principal(),
        since: Some(row.since),
    };
    let id = ConnectionId { epoch: state.known.present.number, number: connection.number };
    let delegation = Delegation { session, expires: row.expires };
    (Given { delegation, id, scope: row.scope, of: row.of }, row)
}
