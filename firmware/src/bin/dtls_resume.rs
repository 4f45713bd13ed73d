//! Two DTLS endpoints in one image that resume their session. The image runs a handshake with a pre-shared key, in
//! which the server gives the client a ticket. A record follows, and then a second handshake with the ticket (RFC
//! 5077), which needs neither a cookie nor the pre-shared key.
#![no_std]
#![no_main]

use core::cell::{Cell, RefCell};
use tegmen::buf::{Reader, Writer};
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::dtls::{Config, Found, Handle, HandshakeState, Resumable, Resuming, Resumption, SessionState};
use tegmen::endpoint::{Endpoint, Peer, PeerArray};
use tegmen::secret::Secret;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, Region, exit, stack_of};
use tegmen_firmware::pair::{self, BACK, CLIENT, Either, End, Pair, Running, SERVER, THERE};
use tegmen_tickets::{OVERHEAD, TicketKeys};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 9] = [
    Note::operation(CLIENT.region.id(), "handshake client"),
    Note::operation(SERVER.region.id(), "handshake server"),
    Note::operation(CLIENT_AGAIN.region.id(), "resumption client"),
    Note::operation(SERVER_AGAIN.region.id(), "resumption server"),
    Note::size("Peer", size_of::<Peer>()),
    Note::size("HandshakeState", size_of::<HandshakeState>()),
    Note::size("peer table of one", size_of::<Table>()),
    Note::size("ticket", TICKET_LEN),
    Note::size("ticket keys", size_of::<TicketKeys>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Runs the whole exchange. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let mut pair = PAIR.start(endpoint)?;
    pair.client.connect(&mut pair.cx)?;
    meet(&mut pair)?;
    // The server that reads this record no longer needs its last flight, so its table has space for another handshake.
    pair.speak()?;

    (pair.client.end, pair.server.end) = (&CLIENT_AGAIN, &SERVER_AGAIN);
    (pair.client.session, pair.server.session) = (None, None);
    come_back(&mut pair.cx, pair.client)?;
    meet(&mut pair)?;
    pair.speak()
}

/// Exchanges flights until both endpoints have a session. The client stores the session and its ticket. The function is
/// not inlined, so that its variables are not on the stack twice.
#[inline(never)]
fn meet(pair: &mut Running<Table, Role, DATAGRAM_LEN>) -> Option<()> {
    pair.meet(|client| {
        if let Some(id) = client.session
            && let Some(Resumable::With { session, handle: Handle::Ticket(ticket), .. }) = client.endpoint.resumable(id)
        {
            let kept = (session, ticket.try_into().ok()?);
            client.endpoint.roles.sessions.kept.set(Some(kept));
        }
        Some(())
    })?;
    // In a resumed handshake the client's flight is the last.
    pair.finish();
    Some(())
}

fn come_back(cx: &mut Cx<'_, Provider>, client: &mut Node) -> Option<()> {
    let (session, ticket) = client.endpoint.roles.sessions.kept.take()?;
    let pair::Node { endpoint, end, .. } = client;
    let handle = Handle::Ticket(&ticket);
    end.region.measured(|| endpoint.connect_again(cx, &end.path, &session, handle)).ok().map(|_| ())
}

/// Makes an endpoint that can be client and server.
fn endpoint(cx: &mut Cx<'_, Provider>, table: &'static mut Table) -> Endpoint<&'static mut Table, Role> {
    let keys = RefCell::new(TicketKeys::draw(cx.crypto));
    let role = Resuming { role: Either, sessions: Memory { keys, kept: Cell::new(None) } };
    Endpoint::with_roles(cx, table, Config::default(), role)
}

/// The stored data of an endpoint: the ticket keys that it uses as server, and the session and the ticket that it uses
/// as client.
struct Memory {
    keys: RefCell<TicketKeys>,
    kept: Cell<Option<(SessionState, [u8; TICKET_LEN])>>,
}

const TICKET_LEN: usize = OVERHEAD + SessionState::LEN;
/// Lifetime of a ticket in seconds. The mote has no clock to measure this time. Its tickets become invalid when it
/// restarts, because it generates its ticket keys at the start.
const LIFETIME: u32 = 86400;

impl Resumption for Memory {
    fn gives_tickets(&self, _: u32) -> bool {
        true
    }

    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, _: u32, ticket: &[u8]) -> Option<Found> {
        let mut room = Secret::<{ SessionState::LEN }>::zeroed();
        let keys = self.keys.try_borrow().ok()?;
        let opened = keys.open(cx.crypto, ticket, room.expose_mut())?;
        let mut reader = Reader::new(opened.state);
        let session = SessionState::read(&mut reader).ok()?;
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
        self.keys.try_borrow_mut().ok()?.seal(cx.crypto, state.written(), ticket).ok()?;
        Some(LIFETIME)
    }
}

type Role = Resuming<Either, Memory>;
type Node = pair::Node<Table, Role>;

/// A table for two peers, because the second session replaces the first one. It has 160 bytes for fragments and early
/// records, and 400 bytes for tickets. The 400 bytes contain two tickets with the secrets of their sessions: the ticket
/// that the client sends, and the ticket that the client receives.
type Table = PeerArray<(), 2, 1, 400, 160>;

static PAIR: Pair<Table, Role, DATAGRAM_LEN> = Pair::new(Table::new(), Table::new());

static CLIENT_AGAIN: End = End { region: Region::new(4), path: THERE };
static SERVER_AGAIN: End = End { region: Region::new(5), path: BACK };
/// Length of a datagram buffer in bytes. The ClientHello with a ticket is the longest datagram.
const DATAGRAM_LEN: usize = 300;
