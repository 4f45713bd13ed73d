//! The sessions that simulated nodes can resume. A server stores sessions with tickets or session ids, and a device has
//! the sessions of its delegation server.

use super::delegated::{NotKept, Simulated};
use std::cell::RefCell;
use std::rc::Rc;
use tegmen::buf::{Reader, Writer};
use tegmen::crypto::{Compact, Crypto};
use tegmen::cx::Cx;
use tegmen::dtls::{Found, Handle, Resumption, SessionState, Suites};
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_delegation::Sessions;
use tegmen_tickets::TicketKeys;

/// A session that a client can resume, with its ticket or session id.
pub(crate) struct Resumed {
    pub(crate) session: SessionState,
    is_ticket: bool,
    handle: Vec<u8>,
}

impl Resumed {
    /// Makes a resumable session with this ticket or session id.
    pub(crate) fn new(session: SessionState, handle: Handle<'_>) -> Self {
        let (is_ticket, handle) = match handle {
            Handle::Ticket(bytes) => (true, bytes.to_vec()),
            Handle::Id(bytes) => (false, bytes.to_vec()),
        };
        Self { session, is_ticket, handle }
    }

    /// Returns the ticket or the session id of the session.
    pub(crate) fn handle(&self) -> Handle<'_> {
        if self.is_ticket { Handle::Ticket(&self.handle) } else { Handle::Id(&self.handle) }
    }

    /// Returns the length of the ticket or the session id, in bytes.
    pub(crate) fn handle_len(&self) -> usize {
        self.handle.len()
    }
}

/// The delegated sessions of a simulated device. The DTLS endpoint of the node finds the sessions in this value.
pub(crate) struct OfDevice(pub(crate) Rc<RefCell<Simulated>>);

impl Resumption for OfDevice {
    const SUITES: Suites = <Sessions<'static, NotKept, 16, 1, 32> as Resumption>::SUITES;

    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, server: u32, ticket: &[u8]) -> Option<Found> {
        Sessions(&self.0).open_ticket(cx, server, ticket)
    }

    fn find(&self, now: Instant, server: u32, id: &[u8]) -> Option<SessionState> {
        Sessions(&self.0).find(now, server, id)
    }
}

/// The store of a server. If the server issues tickets, the store contains the ticket keys. Otherwise it contains the
/// server's last session, with the id of this session.
pub(crate) struct Memory {
    tickets: bool,
    keys: RefCell<TicketKeys>,
    known: RefCell<Option<(Vec<u8>, [u8; SessionState::LEN])>>,
}

impl Memory {
    /// Makes the store of a server. The server issues tickets if `tickets` is true, and session ids otherwise.
    pub(crate) fn new(tickets: bool, seed: [u8; 32]) -> Self {
        Self { tickets, keys: RefCell::new(TicketKeys::draw(&mut Compact::new(seed))), known: RefCell::default() }
    }
}

impl Resumption for Memory {
    fn gives_tickets(&self, _: u32) -> bool {
        self.tickets
    }

    fn gives_ids(&self, _: u32) -> bool {
        !self.tickets
    }

    fn takes_tickets(&self) -> bool {
        self.tickets
    }

    fn find(&self, _: Instant, _: u32, id: &[u8]) -> Option<SessionState> {
        let known = self.known.borrow();
        let (_, state) = known.as_ref().filter(|(known, _)| known == id)?;
        SessionState::read(&mut Reader::new(state)).ok()
    }

    fn remember(&self, _: Instant, _: u32, id: &[u8], session: &SessionState) {
        let mut state = [0; SessionState::LEN];
        session.write(&mut Writer::new(&mut state)).expect("space for a session");
        *self.known.borrow_mut() = Some((id.to_vec(), state));
    }

    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, _: u32, ticket: &[u8]) -> Option<Found> {
        let mut room = Secret::<{ SessionState::LEN }>::zeroed();
        let keys = self.keys.borrow();
        let opened = keys.open(cx.crypto, ticket, room.expose_mut())?;
        let session = SessionState::read(&mut Reader::new(opened.state)).ok()?;
        Some(Found { session, renew: false })
    }

    fn seal_ticket<C: Crypto>(
        &self,
        cx: &mut Cx<'_, C>,
        _: u32,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32> {
        let mut room = Secret::<{ SessionState::LEN }>::zeroed();
        let mut state = Writer::new(room.expose_mut());
        session.write(&mut state).ok()?;
        self.keys.borrow_mut().seal(cx.crypto, state.written(), ticket).ok()?;
        Some(86400)
    }
}
