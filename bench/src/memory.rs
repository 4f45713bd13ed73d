//! The ticket keys of Tegmen's stack in the benchmarks.

use std::cell::{Cell, RefCell};
use tegmen::buf::{Reader, Writer};
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::dtls::{Found, Resumption, SessionState};
use tegmen::secret::Secret;
use tegmen_tickets::TicketKeys;

/// The keys that encrypt the session tickets of Tegmen's endpoints in the benchmarks. An endpoint neither issues nor
/// accepts tickets until [`is_on`](Self::is_on) is set.
#[derive(Default)]
pub(crate) struct Memory {
    pub(crate) is_on: Cell<bool>,
    pub(crate) keys: RefCell<TicketKeys>,
}

/// The lifetime hint that tickets contain, in seconds.
const LIFETIME: u32 = 3600;

impl Resumption for Memory {
    fn gives_tickets(&self, _: u32) -> bool {
        self.is_on.get()
    }

    fn takes_tickets(&self) -> bool {
        self.is_on.get()
    }

    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, _: u32, ticket: &[u8]) -> Option<Found> {
        let mut room = Secret::<{ SessionState::LEN }>::zeroed();
        let keys = self.keys.borrow();
        let mut reader = Reader::new(keys.open(cx.crypto, ticket, room.expose_mut())?.state);
        let session = SessionState::read(&mut reader).ok()?;
        // A new one each time, as others give it.
        Some(Found { session, renew: true })
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
        let mut keys = self.keys.borrow_mut();
        if keys.is_worn() {
            *keys = TicketKeys::draw(cx.crypto);
        }
        keys.seal(cx.crypto, state.written(), ticket).ok()?;
        Some(LIFETIME)
    }
}
