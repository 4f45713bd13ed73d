//! The state of a device: its epoch, the connections that it refuses, and the sessions that the delegation server
//! opened for it.

use crate::admission::Admission;
use crate::epoch::{CHECK_LEN, Epoch, PSK_LEN};
use crate::message::{HandedOver, OPENS, Status, handle};
use crate::refusal::Refused;
use crate::ticket::{Connection, Delegation, STATE_LEN, Ticket, terms};
use core::cell::RefCell;
use core::mem::swap;
use tegmen::buf::copy;
use tegmen::crypto::Crypto;
use tegmen::dtls::{Handle, SessionState};
use tegmen::secret::Secret;
use tegmen::time::Instant;

/// The memory holds no epoch: the device is new, or the content was lost. The device needs a new device key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost;

/// Memory that keeps its content without power.
pub trait Memory {
    /// The error type of the hardware.
    type Error;

    /// Copies the epoch that was stored last into `epoch`. Copies the numbers of the connections that were refused in
    /// this epoch into `refused`, and returns the count of these numbers.
    ///
    /// # Errors
    /// [`Lost`] if there is no epoch, or if `refused` is too short.
    fn load(&mut self, epoch: &mut Epoch, refused: &mut [u32]) -> Result<usize, Lost>;

    /// Stores an epoch in place of the previous one. When this function returns, the new epoch is durable. After a
    /// power cut, the memory holds either the whole new epoch or the whole previous epoch.
    ///
    /// # Errors
    /// The error of the hardware. The previous epoch is then still stored.
    fn keep_epoch(&mut self, epoch: &Epoch) -> Result<(), Self::Error>;

    /// Stores the number of a connection that is refused in this epoch. The numbers that were stored before remain
    /// stored. When this function returns, the number is durable.
    ///
    /// # Errors
    /// The error of the hardware.
    fn keep_refused(&mut self, epoch: u16, number: u32) -> Result<(), Self::Error>;
}

/// A device that refuses at most `REFUSED` connections in an epoch, and stores at most `SESSIONS` sessions that the
/// server hands over. Each session has a ticket or an id of up to `HANDLE` bytes.
#[derive(Debug)]
pub struct Device<M, const REFUSED: usize, const SESSIONS: usize, const HANDLE: usize> {
    memory: M,
    epoch: Epoch,
    admission: Admission<REFUSED>,
    sessions: [Kept<HANDLE>; SESSIONS],
}

/// Storage for one session that the server hands over.
#[derive(Debug)]
struct Kept<const HANDLE: usize> {
    state: Secret<STATE_LEN>,
    /// [`USED`] together with the flags of a [`HandedOver`]; 0 if this storage is free.
    flags: u8,
    handle: [u8; HANDLE],
    len: usize,
}

/// Flag: the storage holds a session.
const USED: u8 = 4;

impl<const HANDLE: usize> Kept<HANDLE> {
    const FREE: Self = Self { state: Secret::zeroed(), flags: 0, handle: [0; HANDLE], len: 0 };

    fn bytes(&self) -> &[u8] {
        self.handle.get(..self.len).unwrap_or(&[])
    }

    /// Returns the number of the connection to which the session belongs.
    const fn number(&self) -> u32 {
        terms(self.state.expose()).0.0 >> 8
    }
}

/// A device that has not read its memory yet. A mote keeps this value in a static variable. If all bytes of the memory
/// `M` are zero, all bytes of this value are zero. The linker then needs no bytes of flash memory for the initial value
/// of the variable.
#[derive(Debug)]
pub struct Unread<M, const REFUSED: usize, const SESSIONS: usize, const HANDLE: usize>(
    RefCell<Device<M, REFUSED, SESSIONS, HANDLE>>,
);

impl<M: Memory, const REFUSED: usize, const SESSIONS: usize, const HANDLE: usize> Unread<M, REFUSED, SESSIONS, HANDLE> {
    /// Creates a device with this memory.
    pub const fn new(memory: M) -> Self {
        let sessions = [const { Kept::FREE }; SESSIONS];
        Self(RefCell::new(Device { memory, epoch: Epoch::blank(), admission: Admission::new(), sessions }))
    }

    /// Reads the memory, and returns the device. The device refuses all sessions until it knows the
    /// [time](Device::set_time).
    ///
    /// # Errors
    /// [`Lost`] if the memory holds no epoch, or if it holds more than `REFUSED` refused connections.
    pub fn read(&mut self) -> Result<&RefCell<Device<M, REFUSED, SESSIONS, HANDLE>>, Lost> {
        let Device { memory, epoch, admission, .. } = self.0.get_mut();
        admission.load(|refused| memory.load(epoch, refused))?;
        Ok(&self.0)
    }
}

/// The reason why a device rejects a request of its server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejected {
    /// The request contradicts the state of the device.
    Wrong,
    /// The list of refused connections is full, or the device cannot store a further session.
    NoPlace,
    /// The memory failed to store the epoch or the refused connection.
    Memory,
}

impl<M: Memory, const REFUSED: usize, const SESSIONS: usize, const HANDLE: usize> Device<M, REFUSED, SESSIONS, HANDLE> {
    /// Creates a device with the content of its memory. The device refuses all sessions until it knows the
    /// [time](Self::set_time).
    ///
    /// # Errors
    /// The errors of [`Unread::read`].
    pub fn load(memory: M) -> Result<Self, Lost> {
        let mut unread = Unread::new(memory);
        unread.read()?;
        Ok(unread.0.into_inner())
    }

    /// Returns the memory of the device.
    pub fn into_memory(self) -> M {
        self.memory
    }

    /// Returns a shared reference to the memory of the device. Only the device itself may change the memory.
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// Returns the time of the server at `now`, in seconds since 1970; `None` before the device knows it.
    pub fn time(&self, now: Instant) -> Option<u32> {
        self.admission.time(now)
    }

    /// Returns the number of the present epoch.
    pub const fn epoch(&self) -> u16 {
        self.epoch.number
    }

    /// Returns the pre-shared key for a session with the delegation server. `identity` is the PSK identity in the
    /// handshake of this session.
    pub fn psk<C: Crypto>(&self, identity: &[u8]) -> Secret<PSK_LEN> {
        self.epoch.key.psk::<C>(identity)
    }

    /// Sets the time that the server sent: at the instant `now`, `seconds` have passed since the beginning of 1970. A
    /// device without a real-time clock counts from this time on.
    pub const fn set_time(&mut self, now: Instant, seconds: u32) {
        self.admission.set_time(now, seconds);
    }

    /// Begins the epoch `number`, which must follow the present epoch. `exported` is the keying material that the
    /// session with the server exports under the label [`EXPORTER`](crate::EXPORTER). From now on, the device refuses
    /// all tickets and sessions of the previous epoch, and its list of refused connections is empty. If `number` is the
    /// number of the present epoch, this function changes nothing.
    ///
    /// The owner of the device must then close all DTLS sessions whose principal belongs to a
    /// [`Connection`](crate::Connection).
    ///
    /// # Errors
    /// [`Rejected::Wrong`] if `number` is neither the present nor the next epoch, or if `check` is not the
    /// [check](Epoch::check) of the epoch; [`Rejected::Memory`] if the memory failed. After an error, the present epoch
    /// continues.
    pub fn begin_epoch<C: Crypto>(
        &mut self,
        number: u16,
        exported: &Secret<PSK_LEN>,
        check: &[u8; CHECK_LEN],
    ) -> Result<(), Rejected> {
        if number == self.epoch.number {
            return if self.epoch.is_meant::<C>(number, check) { Ok(()) } else { Err(Rejected::Wrong) };
        }
        let mut next = Epoch::blank();
        if !self.epoch.write_next::<C>(exported, &mut next) || !next.is_meant::<C>(number, check) {
            return Err(Rejected::Wrong);
        }
        self.memory.keep_epoch(&next).map_err(|_| Rejected::Memory)?;
        swap(&mut self.epoch, &mut next);
        self.admission.clear();
        self.forget(None);
        Ok(())
    }

    /// Refuses a connection for the rest of the epoch. Returns the number of further connections for which the list of
    /// refused connections has space.
    ///
    /// The owner of the device must then close the session of the connection, if there is one.
    ///
    /// # Errors
    /// [`Rejected::NoPlace`] if the list is full; the server then begins a new epoch. [`Rejected::Memory`] if the
    /// memory failed; the device refuses the connection until it restarts, and the next call of this function tries
    /// again to store the number.
    pub fn refuse(&mut self, number: u32) -> Result<usize, Rejected> {
        if !self.admission.refuse(number) {
            return Err(Rejected::NoPlace);
        }
        self.forget(Some(number));
        let (memory, epoch) = (&mut self.memory, self.epoch.number);
        self.admission.keep(|number| memory.keep_refused(epoch, number)).map_err(|_| Rejected::Memory)?;
        Ok(REFUSED.saturating_sub(self.admission.len()))
    }

    /// Returns true if the server revoked the connection with this number. For a number of 2^24 or more, which no
    /// connection has, the result has no meaning.
    pub fn is_refused(&self, number: u32) -> bool {
        self.admission.is_refused(number)
    }

    /// Stores a session that the server opened, until the session ends, the epoch ends, or the device restarts. The
    /// session replaces an earlier session of the same connection.
    ///
    /// # Errors
    /// [`Rejected::Wrong`] if the connection is refused, or if the state contains no valid connection.
    /// [`Rejected::NoPlace`] if the device already stores `SESSIONS` sessions, or if the ticket or id is longer than
    /// `HANDLE` bytes.
    pub fn keep(&mut self, session: HandedOver<'_>) -> Result<(), Rejected> {
        let (flags, bytes) = session.flags();
        let connection = Connection::of(terms(session.state).0).ok_or(Rejected::Wrong)?;
        if self.is_refused(connection.number) {
            return Err(Rejected::Wrong);
        }
        if bytes.len() > HANDLE {
            return Err(Rejected::NoPlace);
        }
        self.forget(Some(connection.number));
        let mut places = self.sessions.iter_mut();
        let place = places.find(|place| place.flags == 0).ok_or(Rejected::NoPlace)?;
        *place.state.expose_mut() = *session.state;
        let _ = copy(&mut place.handle, bytes); // it fits
        (place.flags, place.len) = (USED | flags, bytes.len());
        Ok(())
    }

    /// Removes the stored session of this connection, or all stored sessions if `number` is `None`.
    #[inline(never)]
    fn forget(&mut self, number: Option<u32>) {
        for place in &mut self.sessions {
            if number.is_none_or(|number| place.number() == number) {
                place.state.wipe();
                place.flags = 0;
            }
        }
    }

    /// Returns the session of the connection `number`, and the ticket or id with which the device resumes this session
    /// as client. The caller passes both to [`Endpoint::connect_again`](tegmen::endpoint::Endpoint::connect_again).
    /// Returns `None` if there is no such session, or if the session is refused.
    pub fn to_open(&mut self, now: Instant, number: u32) -> Option<(SessionState, Handle<'_>)> {
        let kept = self.sessions.iter().find(|kept| kept.flags & OPENS != 0 && kept.number() == number)?;
        match self.admission.admit(now, Ok(kept.state.expose())) {
            Ok(Delegation { session, .. }) => Some((session, handle(kept.flags, kept.bytes()))),
            Err(_) => None,
        }
    }

    /// Returns the session with this id. The server handed over the session for a peer that resumes it. Returns `None`
    /// if there is no such session, or if the session is refused.
    pub fn find(&mut self, now: Instant, id: &[u8]) -> Option<SessionState> {
        let is_meant = |kept: &&Kept<HANDLE>| kept.flags == USED && kept.bytes() == id;
        let kept = self.sessions.iter().find(is_meant)?;
        match self.admission.admit(now, Ok(kept.state.expose())) {
            Ok(Delegation { session, .. }) => Some(session),
            Err(_) => None,
        }
    }

    /// Returns the time at which the session of this connection ends, in seconds since 1970. Returns `None` if the
    /// server handed over no such session.
    pub fn expires(&self, number: u32) -> Option<u32> {
        let kept = self.sessions.iter().find(|kept| kept.flags != 0 && kept.number() == number)?;
        Some(terms(kept.state.expose()).2)
    }

    /// Returns the state of the device, which the device reports to its delegation server.
    pub fn status(&self) -> Status {
        Status {
            epoch: self.epoch.number,
            refused: self.admission.len() as u16,
            most_refused: REFUSED as u16,
            sessions: self.sessions.iter().filter(|place| place.flags != 0).count() as u16,
            most_sessions: SESSIONS as u16,
            refusals: self.admission.refusals(),
        }
    }

    /// Opens the ticket that a peer sent, and returns the session in the ticket.
    ///
    /// # Errors
    /// [`Refused`] is the reason of the refusal. The device also counts the refusal.
    pub fn open<C: Crypto>(&mut self, now: Instant, crypto: &mut C, ticket: Ticket<'_>) -> Result<Delegation, Refused> {
        let mut state = Secret::zeroed();
        let state = if !self.epoch.has_tickets() || ticket.epoch() != Some(self.epoch.number) {
            Err(Refused::Epoch)
        } else if ticket.open_into(&self.epoch.tickets, crypto, &mut state) {
            Ok(state.expose())
        } else {
            Err(Refused::Unknown)
        };
        self.admission.admit(now, state)
    }
}
