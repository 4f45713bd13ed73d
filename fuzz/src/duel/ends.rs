//! The two kinds of endpoint pairs: a client and a server that resume an earlier session, and a client and a server
//! that have no earlier session.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use tegmen::buf::{Reader, Writer};
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::dtls::{Both, Config, Extended, Found, Handle, Resumable, Resuming, Resumption, Roles, SessionState};
use tegmen::endpoint::{Endpoint, PeerArray, Peers};
use tegmen::identity::PeerId;
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_tickets::TicketKeys;

/// The common properties of both endpoints (client and server) of a script: the type of their roles, the type of their
/// tables of peers, and the limits for datagrams to an unauthenticated peer.
pub(super) trait Ends {
    type Role: Roles;
    type Table: Peers;

    fn table() -> Self::Table;
    fn role(crypto: &mut impl Crypto, config: &Config) -> Self::Role;
    /// Returns the data with which the client can resume the session that was just established, if there is any.
    fn keep(_: &mut Endpoint<Self::Table, Self::Role>, _: PeerId) -> Option<Kept> {
        None
    }
    /// Maximum number of bytes that an endpoint may send to an unauthenticated peer for each byte that it received from
    /// this peer.
    const AMPLIFICATION: usize = 1;
    /// True if an endpoint may send datagrams to an unauthenticated peer also when its timers fire. If false, each
    /// datagram to an unauthenticated peer must answer a datagram of this peer immediately.
    const LATER: bool = false;
}

/// The data with which a client resumes a session. The first value is the state of the session. The second value is
/// true if the client has a ticket, and false if it has a session id. The third value is the ticket or the session id.
pub(super) type Kept = (SessionState, bool, Vec<u8>);

/// The pair of a client and a server that have no earlier session.
pub(super) struct Full;

impl Ends for Full {
    type Role = Extended<Both>;
    type Table = PeerArray<(), 3, 2, 32, 160, 3>;

    fn table() -> Self::Table {
        PeerArray::new()
    }

    fn role(_: &mut impl Crypto, config: &Config) -> Self::Role {
        Extended::with(Both, config)
    }
}

/// The pair of a client and a server that resume a session.
pub(super) struct Resumed;

impl Ends for Resumed {
    type Role = Resuming<Extended<Both>, Memory>;
    type Table = PeerArray<(), 3, 2, 400, 160, 3>;
    // A peer that repeats a ClientHello with a valid ticket receives the first flight of the server, and two
    // retransmissions of this flight.
    const AMPLIFICATION: usize = 6;
    const LATER: bool = true;

    fn table() -> Self::Table {
        PeerArray::new()
    }

    fn role(crypto: &mut impl Crypto, config: &Config) -> Self::Role {
        let keys = RefCell::new(TicketKeys::draw(crypto));
        let sessions = Memory { keys, ids: RefCell::default(), by_id: Cell::new(false) };
        Resuming { role: Extended::with(Both, config), sessions }
    }

    fn keep(endpoint: &mut Endpoint<Self::Table, Self::Role>, id: PeerId) -> Option<Kept> {
        match endpoint.resumable(id)? {
            Resumable::With { session, handle: Handle::Ticket(ticket), .. } => Some((session, true, ticket.to_vec())),
            Resumable::With { session, handle: Handle::Id(id), .. } => Some((session, false, id.to_vec())),
            Resumable::Again => None,
        }
    }
}

/// The ticket keys and stored sessions of a server.
pub(super) struct Memory {
    pub(super) keys: RefCell<TicketKeys>,
    pub(super) ids: RefCell<HashMap<Vec<u8>, SessionState>>,
    pub(super) by_id: Cell<bool>,
}

impl Resumption for Memory {
    fn gives_tickets(&self, _: u32) -> bool {
        !self.by_id.get()
    }

    fn gives_ids(&self, _: u32) -> bool {
        self.by_id.get()
    }

    fn takes_tickets(&self) -> bool {
        !self.by_id.get()
    }

    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, _: u32, ticket: &[u8]) -> Option<Found> {
        let mut room = [0; SessionState::LEN];
        let opened = self.keys.borrow().open(cx.crypto, ticket, &mut room)?;
        let session = SessionState::read(&mut Reader::new(opened.state)).expect("it is what was sealed");
        Some(Found { session, renew: ticket[ticket.len() - 1] & 1 == 0 })
    }

    fn seal_ticket<C: Crypto>(
        &self,
        cx: &mut Cx<'_, C>,
        _: u32,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32> {
        let mut room = [0; SessionState::LEN];
        let mut state = Writer::new(&mut room);
        session.write(&mut state).ok()?;
        self.keys.borrow_mut().seal(cx.crypto, state.written(), ticket).ok()?;
        Some(3600)
    }

    fn find(&self, _: Instant, _: u32, id: &[u8]) -> Option<SessionState> {
        self.ids.borrow().get(id).map(copy_of)
    }

    fn remember(&self, _: Instant, _: u32, id: &[u8], session: &SessionState) {
        self.ids.borrow_mut().insert(id.to_vec(), copy_of(session));
    }
}

fn copy_of(session: &SessionState) -> SessionState {
    SessionState { master: Secret::new(*session.master.expose()), ..*session }
}
