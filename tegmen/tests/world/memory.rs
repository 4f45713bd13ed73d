//! The memory in which a node of the world stores sessions for resumption.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use tegmen::buf::{Reader, Writer};
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::dtls::{CipherSuite, Found, Handle, MASTER_LEN, Resumable, Resumption, SessionState};
use tegmen::identity::Principal;
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_tickets::TicketKeys;

type Known = (CipherSuite, [u8; MASTER_LEN], Principal);

/// A store of sessions. All copies of a value share the same memory.
#[derive(Clone, Default)]
pub struct SessionStore(Rc<Inner>);

#[derive(Default)]
pub struct Inner {
    pub tickets: Cell<bool>,
    pub ids: Cell<bool>,
    pub keys: RefCell<TicketKeys>,
    /// True if no session may be resumed.
    pub revoked: Cell<bool>,
    known: RefCell<HashMap<(u32, Vec<u8>), Known>>,
    /// Number of tickets that were sealed. The next field is the number of tickets that were opened.
    pub sealed: Cell<u32>,
    pub opened: Cell<u32>,
}

impl core::ops::Deref for SessionStore {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

pub const LIFETIME: u32 = 3600;

impl Resumption for SessionStore {
    fn gives_tickets(&self, _: u32) -> bool {
        self.tickets.get()
    }

    fn gives_ids(&self, _: u32) -> bool {
        self.ids.get()
    }

    fn takes_tickets(&self) -> bool {
        self.tickets.get()
    }

    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, server: u32, ticket: &[u8]) -> Option<Found> {
        let mut room = [0; 100];
        let opened = self.keys.borrow().open(cx.crypto, ticket, &mut room)?;
        let mut reader = Reader::new(opened.state);
        let session = SessionState::read(&mut reader).ok()?;
        let since = reader.array().map(u32::from_be_bytes).ok()?;
        let of_server = reader.array().map(u32::from_be_bytes).ok()?;
        if of_server != server {
            return None;
        }
        self.opened.set(self.opened.get() + 1);
        let session = SessionState { since: Some(since), ..session };
        let live = cx.now < Instant::from_micros(u64::from(since) * 1_000_000).after_millis(LIFETIME * 1000);
        (live && !self.revoked.get()).then_some(Found { session, renew: !opened.fresh })
    }

    fn seal_ticket<C: Crypto>(
        &self,
        cx: &mut Cx<'_, C>,
        server: u32,
        session: &SessionState,
        ticket: &mut Writer<'_>,
    ) -> Option<u32> {
        let since = session.since.unwrap_or((cx.now.as_micros() / 1_000_000) as u32);
        let mut room = [0; 100];
        let mut state = Writer::new(&mut room);
        session.write(&mut state).ok()?;
        state.put(&since.to_be_bytes()).ok()?;
        state.u32(server).ok()?;
        self.keys.borrow_mut().seal(cx.crypto, state.written(), ticket).ok()?;
        self.sealed.set(self.sealed.get() + 1);
        Some(LIFETIME)
    }

    fn find(&self, _: Instant, server: u32, id: &[u8]) -> Option<SessionState> {
        let known = self.known.borrow();
        let (cipher_suite, master, principal) = known.get(&(server, id.to_vec())).filter(|_| !self.revoked.get())?;
        let (cipher_suite, principal, since) = (*cipher_suite, *principal, None);
        Some(SessionState { cipher_suite, master: Secret::new(*master), principal, since })
    }

    fn remember(&self, _: Instant, server: u32, id: &[u8], session: &SessionState) {
        let known = (session.cipher_suite, *session.master.expose(), session.principal);
        self.known.borrow_mut().insert((server, id.to_vec()), known);
    }
}

/// The data with which a client can later resume a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub suite: CipherSuite,
    pub master: [u8; MASTER_LEN],
    pub principal: Principal,
    pub ticket: bool,
    pub handle: Vec<u8>,
}

impl Kept {
    /// Returns the value that replaces the present data of the client: the data of a new ticket or id, or `Some(None)`
    /// if the session cannot be resumed. Returns `None` if the client keeps its present data.
    pub fn of(resumable: Option<Resumable<'_>>) -> Option<Option<Self>> {
        let Some(resumable) = resumable else { return Some(None) };
        let Resumable::With { session, handle, .. } = resumable else { return None };
        let (ticket, bytes) = match handle {
            Handle::Ticket(bytes) => (true, bytes),
            Handle::Id(bytes) => (false, bytes),
        };
        Some(Some(Self {
            suite: session.cipher_suite,
            master: *session.master.expose(),
            principal: session.principal,
            ticket,
            handle: bytes.to_vec(),
        }))
    }

    pub fn session(&self) -> SessionState {
        let (cipher_suite, master) = (self.suite, Secret::new(self.master));
        SessionState { cipher_suite, master, principal: self.principal, since: None }
    }

    pub fn handle(&self) -> Handle<'_> {
        if self.ticket { Handle::Ticket(&self.handle) } else { Handle::Id(&self.handle) }
    }
}
