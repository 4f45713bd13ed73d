//! The state of a device: its epoch, the connections that it refuses, and the sessions that were handed over.

use crate::epoch::{self, CHECK_LEN, DeviceKey, Epoch, PSK_LEN};
use crate::message::{HandedOver, Status};
use crate::refusal::{Refusals, Refused};
use crate::ticket::{Delegation, Ticket};
use tegmen::crypto::Crypto;
use tegmen::dtls::{Handle, SessionState};
use tegmen::secret::{Secret, same};
use tegmen::time::Instant;
use tegmen_tickets::TicketKeys;

/// Seconds by which the clock of a server may be ahead of the time that the device knows.
const TOLERANCE: u32 = 60;

/// Memory that keeps its content without power.
pub trait Memory {
    /// The error of the hardware.
    type Error;

    /// Keeps an epoch in place of the one before. It is durable when this returns, and whole: after a power cut there is one of
    /// both.
    ///
    /// # Errors
    /// The error of the hardware; the epoch before is then still kept.
    fn keep_epoch(&mut self, epoch: &Epoch) -> Result<(), Self::Error>;

    /// Keeps a number of a connection that is refused in this epoch, beside those that were kept in it. It is durable when this
    /// returns.
    ///
    /// # Errors
    /// The error of the hardware.
    fn keep_refused(&mut self, epoch: u16, number: u32) -> Result<(), Self::Error>;
}

/// The content of a [`Memory`].
#[derive(Debug)]
pub struct Stored<'s> {
    /// The epoch that was kept last.
    pub epoch: Epoch,
    /// The numbers of the connections that were refused in this epoch.
    pub refused: &'s [u32],
}

/// A device with at most `REFUSED` refused connections in an epoch, and places for `SESSIONS` sessions that are handed over, each
/// with a ticket or an id of up to `HANDLE` bytes.
#[derive(Debug)]
pub struct Device<M, const REFUSED: usize, const SESSIONS: usize, const HANDLE: usize> {
    memory: M,
    number: u16,
    key: DeviceKey,
    keys: TicketKeys,
    refused: [u32; REFUSED],
    refused_len: usize,
    /// Places of the list that the memory holds, too.
    kept_len: usize,
    sessions: [Option<Kept<HANDLE>>; SESSIONS],
    /// The time of the server, and when the device learned it.
    time: Option<(u32, Instant)>,
    refusals: Refusals,
}

/// A session that was handed over.
#[derive(Debug)]
struct Kept<const HANDLE: usize> {
    delegation: Delegation,
    is_ticket: bool,
    /// True if the device opens the session, false if its peer does.
    opens: bool,
    handle: [u8; HANDLE],
    len: usize,
}

impl<const HANDLE: usize> Kept<HANDLE> {
    fn bytes(&self) -> &[u8] {
        self.handle.get(..self.len).unwrap_or(&[])
    }
}

/// The reason why a device rejects a request of its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// The value does not fit the state of the device.
    Wrong,
    /// There is no place left.
    NoPlace,
    /// The memory failed.
    Memory,
}

impl<M: Memory, const REFUSED: usize, const SESSIONS: usize, const HANDLE: usize> Device<M, REFUSED, SESSIONS, HANDLE> {
    /// A device with the content of its memory. It refuses all sessions until it knows the [time](Self::set_time). Returns `None`
    /// if more connections were refused than there are places.
    pub fn new(memory: M, stored: Stored<'_>) -> Option<Self> {
        let mut refused = [0; REFUSED];
        refused.get_mut(..stored.refused.len())?.copy_from_slice(stored.refused);
        let Epoch { number, key, tickets } = stored.epoch;
        let keys = TicketKeys::of([(number > 0).then_some(tickets), None, None, None], 0);
        Some(Self {
            memory,
            number,
            key,
            keys,
            refused,
            refused_len: stored.refused.len(),
            kept_len: stored.refused.len(),
            sessions: [const { None }; SESSIONS],
            time: None,
            refusals: Refusals::default(),
        })
    }

    /// The memory of the device.
    pub fn into_memory(self) -> M {
        self.memory
    }

    /// The number of the epoch.
    pub const fn epoch(&self) -> u16 {
        self.number
    }

    /// The pre-shared key of a session with the server under this PSK identity.
    pub fn psk<C: Crypto>(&self, identity: &[u8]) -> Secret<PSK_LEN> {
        self.key.psk::<C>(identity)
    }

    /// Sets the time of the server, in seconds since 1970. A device without a clock of its own counts from here.
    pub const fn set_time(&mut self, now: Instant, seconds: u32) {
        self.time = Some((seconds, now));
    }

    /// Begins the epoch `number`, which follows the present one. `exported` is the keying material of the session with the server
    /// under [`EXPORTER`](crate::EXPORTER). All tickets and sessions of the epoch before are refused from now on, and its list of
    /// refused connections is empty. The number of the present epoch changes nothing.
    ///
    /// The owner then closes all sessions with a [`Connection`](crate::Connection).
    ///
    /// # Errors
    /// [`Rejected::Wrong`] for another number, and if `check` is not [that](Epoch::check) of the epoch; [`Rejected::Memory`]. The
    /// present epoch does not end.
    pub fn begin_epoch<C: Crypto>(
        &mut self,
        number: u16,
        exported: &Secret<PSK_LEN>,
        check: &[u8; CHECK_LEN],
    ) -> Result<(), Rejected> {
        if number == self.number {
            let [present, ..] = self.keys.keys();
            let is_right = present.is_some_and(|key| same(&epoch::check::<C>(key), check));
            return is_right.then_some(()).ok_or(Rejected::Wrong);
        }
        let present = Epoch { number: self.number, key: self.key.copy(), ..Epoch::first(DeviceKey(Secret::zeroed())) };
        let is_right = |next: &Epoch| next.number == number && same(&next.check::<C>(), check);
        let next = present.next::<C>(exported).filter(is_right).ok_or(Rejected::Wrong)?;
        self.memory.keep_epoch(&next).map_err(|_| Rejected::Memory)?;
        let Epoch { number, key, tickets } = next;
        (self.number, self.key) = (number, key);
        self.keys = TicketKeys::of([Some(tickets), None, None, None], 0);
        (self.refused_len, self.kept_len) = (0, 0);
        self.sessions = [const { None }; SESSIONS];
        Ok(())
    }

    /// Refuses a connection for the rest of the epoch. Returns the number of places left in the list.
    ///
    /// The owner then closes the session of the connection, if there is one.
    ///
    /// # Errors
    /// [`Rejected::NoPlace`]: the server begins a new epoch in place of it. [`Rejected::Memory`]: the connection is refused until
    /// the device restarts, and the next call tries again to keep it.
    pub fn refuse(&mut self, number: u32) -> Result<usize, Rejected> {
        if !self.is_refused(number) {
            *self.refused.get_mut(self.refused_len).ok_or(Rejected::NoPlace)? = number;
            self.refused_len = self.refused_len.saturating_add(1);
            for session in &mut self.sessions {
                session.take_if(|kept| kept.delegation.connection().is_some_and(|of| of.number == number));
            }
        }
        for number in self.refused.iter().take(self.refused_len).skip(self.kept_len) {
            self.memory.keep_refused(self.number, *number).map_err(|_| Rejected::Memory)?;
            self.kept_len = self.kept_len.saturating_add(1);
        }
        Ok(REFUSED.saturating_sub(self.refused_len))
    }

    /// True if the server revoked the connection with this number.
    pub fn is_refused(&self, number: u32) -> bool {
        self.refused.iter().take(self.refused_len).any(|refused| *refused == number)
    }

    /// Keeps a session that the server opened, until it ends, the epoch ends, or the device restarts. A session of the same
    /// connection is replaced.
    ///
    /// # Errors
    /// [`Rejected::Wrong`] if the connection is refused, [`Rejected::NoPlace`], also for a ticket or an id that is too long.
    pub fn keep(&mut self, session: HandedOver<'_>) -> Result<(), Rejected> {
        let HandedOver { delegation, handle, opens } = session;
        let connection = delegation.connection().ok_or(Rejected::Wrong)?;
        if self.is_refused(connection.number) {
            return Err(Rejected::Wrong);
        }
        let (is_ticket, bytes) = match handle {
            Handle::Ticket(bytes) => (true, bytes),
            Handle::Id(bytes) => (false, bytes),
        };
        let mut kept = Kept { delegation, is_ticket, opens, handle: [0; HANDLE], len: bytes.len() };
        kept.handle.get_mut(..bytes.len()).ok_or(Rejected::NoPlace)?.copy_from_slice(bytes);
        let is_same = |place: &Option<Kept<HANDLE>>| {
            place
                .as_ref()
                .is_some_and(|kept| kept.delegation.connection().is_some_and(|of| of.number == connection.number))
        };
        let place = match self.sessions.iter().position(is_same) {
            Some(place) => place,
            None => self.sessions.iter().position(Option::is_none).ok_or(Rejected::NoPlace)?,
        };
        *self.sessions.get_mut(place).ok_or(Rejected::NoPlace)? = Some(kept);
        Ok(())
    }

    /// The session of a connection that the device opens, for
    /// [`Endpoint::connect_again`](tegmen::endpoint::Endpoint::connect_again); `None` if there is none, or it is refused.
    pub fn to_open(&mut self, now: Instant, number: u32) -> Option<(&SessionState, Handle<'_>)> {
        let place = self.sessions.iter().position(|place| {
            let kept = place.as_ref().filter(|kept| kept.opens);
            kept.and_then(|kept| kept.delegation.connection()).is_some_and(|of| of.number == number)
        })?;
        let kept = self.sessions.get(place)?.as_ref()?;
        if let Err(reason) = self.admit(now, &kept.delegation) {
            self.refusals.count(reason);
            return None;
        }
        let kept = self.sessions.get(place)?.as_ref()?;
        let handle = if kept.is_ticket { Handle::Ticket(kept.bytes()) } else { Handle::Id(kept.bytes()) };
        Some((&kept.delegation.session, handle))
    }

    /// The state of the device, for its server.
    pub fn status(&self) -> Status {
        Status {
            epoch: self.number,
            refused: self.refused_len as u32,
            most_refused: REFUSED as u32,
            sessions: self.sessions.iter().flatten().count() as u32,
            most_sessions: SESSIONS as u32,
            refusals: self.refusals,
        }
    }

    /// Opens the ticket of a peer.
    ///
    /// # Errors
    /// [`Refused`], which is counted.
    pub fn open<C: Crypto>(&mut self, now: Instant, crypto: &mut C, ticket: Ticket<'_>) -> Result<Delegation, Refused> {
        let opened = match ticket.open(&self.keys, crypto) {
            Some(delegation) => self.admit(now, &delegation).map(|()| delegation),
            None if ticket.epoch() == Some(self.number) => Err(Refused::Unknown),
            None => Err(Refused::Epoch),
        };
        opened.inspect_err(|reason| self.refusals.count(*reason))
    }

    /// The session with this id, which the server handed over for a peer that opens it; `None` if there is none, or it is refused.
    pub fn find(&mut self, now: Instant, id: &[u8]) -> Option<SessionState> {
        let kept = self.sessions.iter().flatten().find(|kept| !kept.opens && !kept.is_ticket && kept.bytes() == id)?;
        match self.admit(now, &kept.delegation) {
            Ok(()) => Some(copy(&kept.delegation.session)),
            Err(reason) => {
                self.refusals.count(reason);
                None
            }
        }
    }

    fn admit(&self, now: Instant, delegation: &Delegation) -> Result<(), Refused> {
        let connection = delegation.connection().ok_or(Refused::Unknown)?;
        if self.is_refused(connection.number) {
            return Err(Refused::Revoked);
        }
        let (time, learned) = self.time.ok_or(Refused::NoTime)?;
        let time = u64::from(time).saturating_add(seconds(now, learned));
        let since = delegation.session.since.ok_or(Refused::Unknown)?;
        match () {
            () if u64::from(since) > time.saturating_add(TOLERANCE.into()) => Err(Refused::Early),
            () if u64::from(delegation.expires) <= time => Err(Refused::Expired),
            () => Ok(()),
        }
    }
}

/// Seconds between two points of the clock, without a division.
fn seconds(now: Instant, earlier: Instant) -> u64 {
    let units = u64::from(now.coarse().saturating_sub(earlier.coarse()));
    // A unit has 1.048576 seconds.
    units.saturating_add(units.saturating_mul(814_971) >> 24)
}

fn copy(session: &SessionState) -> SessionState {
    SessionState { master: Secret::new(*session.master.expose()), ..*session }
}
