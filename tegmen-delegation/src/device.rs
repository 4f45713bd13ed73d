//! The state of a device: its epoch, the connections that it refuses, and the sessions that were handed over.

use crate::admission::Admission;
use crate::epoch::{CHECK_LEN, Epoch, PSK_LEN};
use crate::message::{HandedOver, Status};
use crate::refusal::Refused;
use crate::ticket::{Delegation, Ticket};
use tegmen::buf::copy;
use tegmen::crypto::Crypto;
use tegmen::dtls::{Handle, SessionState};
use tegmen::secret::{Secret, same};
use tegmen::time::Instant;

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
    epoch: Epoch,
    admission: Admission<REFUSED>,
    sessions: [Option<Kept<HANDLE>>; SESSIONS],
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
        let admission = Admission::new(stored.refused)?;
        Some(Self { memory, epoch: stored.epoch, admission, sessions: [const { None }; SESSIONS] })
    }

    /// The memory of the device.
    pub fn into_memory(self) -> M {
        self.memory
    }

    /// The number of the epoch.
    pub const fn epoch(&self) -> u16 {
        self.epoch.number
    }

    /// The pre-shared key of a session with the server under this PSK identity.
    pub fn psk<C: Crypto>(&self, identity: &[u8]) -> Secret<PSK_LEN> {
        self.epoch.key.psk::<C>(identity)
    }

    /// Sets the time of the server, in seconds since 1970. A device without a clock of its own counts from here.
    pub const fn set_time(&mut self, now: Instant, seconds: u32) {
        self.admission.set_time(now, seconds);
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
        let next = if number == self.epoch.number { None } else { self.epoch.next::<C>(exported) };
        let meant = next.as_ref().unwrap_or(&self.epoch);
        if meant.number != number || !meant.has_tickets() || !same(&meant.check::<C>(), check) {
            return Err(Rejected::Wrong);
        }
        if let Some(next) = next {
            self.memory.keep_epoch(&next).map_err(|_| Rejected::Memory)?;
            self.epoch = next;
            self.admission.clear();
            self.sessions = [const { None }; SESSIONS];
        }
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
        if !self.admission.refuse(number) {
            return Err(Rejected::NoPlace);
        }
        self.forget(number);
        let (memory, epoch) = (&mut self.memory, self.epoch.number);
        self.admission.keep(|number| memory.keep_refused(epoch, number)).map_err(|_| Rejected::Memory)?;
        Ok(REFUSED.saturating_sub(self.admission.refused().len()))
    }

    /// True if the server revoked the connection with this number.
    pub fn is_refused(&self, number: u32) -> bool {
        self.admission.refused().contains(&number)
    }

    /// Keeps a session that the server opened, until it ends, the epoch ends, or the device restarts. A session of the same
    /// connection is replaced.
    ///
    /// # Errors
    /// [`Rejected::Wrong`] if the connection is refused, [`Rejected::NoPlace`], also for a ticket or an id that is too long.
    pub fn keep(&mut self, session: HandedOver<'_>) -> Result<(), Rejected> {
        let (is_ticket, bytes) = match session.handle {
            Handle::Ticket(bytes) => (true, bytes),
            Handle::Id(bytes) => (false, bytes),
        };
        let delegation = Delegation::read(session.state).ok_or(Rejected::Wrong)?;
        let connection = delegation.connection().ok_or(Rejected::Wrong)?;
        if self.is_refused(connection.number) {
            return Err(Rejected::Wrong);
        }
        let mut handle = [0; HANDLE];
        copy(&mut handle, bytes).map_err(|_| Rejected::NoPlace)?;
        self.forget(connection.number);
        let place = self.sessions.iter_mut().find(|place| place.is_none()).ok_or(Rejected::NoPlace)?;
        *place = Some(Kept { delegation, is_ticket, opens: session.opens, handle, len: bytes.len() });
        Ok(())
    }

    fn forget(&mut self, number: u32) {
        for place in &mut self.sessions {
            place.take_if(|kept| kept.delegation.number() == number);
        }
    }

    /// The session of a connection that the device opens, for
    /// [`Endpoint::connect_again`](tegmen::endpoint::Endpoint::connect_again); `None` if there is none, or it is refused.
    pub fn to_open(&mut self, now: Instant, number: u32) -> Option<(&SessionState, Handle<'_>)> {
        let kept = self.admitted(now, |kept| kept.opens && kept.delegation.number() == number)?;
        let handle = if kept.is_ticket { Handle::Ticket(kept.bytes()) } else { Handle::Id(kept.bytes()) };
        Some((&kept.delegation.session, handle))
    }

    /// The session with this id, which the server handed over for a peer that opens it; `None` if there is none, or it is refused.
    pub fn find(&mut self, now: Instant, id: &[u8]) -> Option<SessionState> {
        let kept = self.admitted(now, |kept| !kept.opens && !kept.is_ticket && kept.bytes() == id)?;
        let session = &kept.delegation.session;
        Some(SessionState { master: Secret::new(*session.master.expose()), ..*session })
    }

    /// The first of these sessions, if it is admitted.
    fn admitted(&mut self, now: Instant, is_meant: impl Fn(&Kept<HANDLE>) -> bool) -> Option<&Kept<HANDLE>> {
        let kept = self.sessions.iter().flatten().find(|kept| is_meant(kept))?;
        self.admission.admit(now, &kept.delegation).ok()?;
        Some(kept)
    }

    /// The state of the device, for its server.
    pub fn status(&self) -> Status {
        Status {
            epoch: self.epoch.number,
            refused: self.admission.refused().len() as u16,
            most_refused: REFUSED as u16,
            sessions: self.sessions.iter().flatten().count() as u16,
            most_sessions: SESSIONS as u16,
            refusals: self.admission.refusals(),
        }
    }

    /// Opens the ticket of a peer.
    ///
    /// # Errors
    /// [`Refused`], which is counted.
    pub fn open<C: Crypto>(&mut self, now: Instant, crypto: &mut C, ticket: Ticket<'_>) -> Result<Delegation, Refused> {
        if !self.epoch.has_tickets() || ticket.epoch() != Some(self.epoch.number) {
            return Err(self.admission.count(Refused::Epoch));
        }
        let opened = ticket.open(&self.epoch.tickets, crypto);
        let delegation = opened.ok_or_else(|| self.admission.count(Refused::Unknown))?;
        self.admission.admit(now, &delegation).map(|()| delegation)
    }
}
