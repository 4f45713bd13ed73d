//! Two nodes in one image that resume their session with a ticket. The image runs a handshake with a pre-shared key, a
//! request, a second handshake with the ticket (RFC 5077), and another request. `dtls_delegated` is compared with this
//! image.
#![no_std]
#![no_main]

use core::cell::RefCell;
use core::hint::black_box;
use tegmen::address::Path;
use tegmen::buf::{Reader, Writer};
use tegmen::coap::handler::{AnyAuthenticated, Policy};
use tegmen::coap::{Authorized, Code, Handler, RequestId, Response};
use tegmen::crypto::Crypto;
use tegmen::cx::Cx;
use tegmen::dtls::{Answer, Found, Handle, Need, Resumable, Resumption, SessionState};
use tegmen::endpoint::Endpoint;
use tegmen::identity::{PeerId, Principal};
use tegmen::node::{self, Reply};
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, Region, exit, stack_of};
use tegmen_firmware::place::{Kept, Place};
use tegmen_firmware::resuming::{Buffers, KeyRoom, LastReply, NOW, Resumes, Role, Side, Table, address, ask, settle};
use tegmen_tickets::{OVERHEAD, TicketKeys};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 5] = [
    Note::operation(0, "handshake client"),
    Note::operation(1, "handshake server"),
    Note::operation(2, "resumption client"),
    Note::operation(3, "resumption server"),
    Note::size("node", size_of::<Node>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the client open a session with the server and send a GET, and then resume the session with the ticket and send
/// another GET. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let buffers = BUFFERS.take()?;
    let [of_client, of_server] = TABLES.take()?;
    let client = CLIENT.fill(|| node(of_client, 1, 2))?;
    let server = SERVER.fill(|| node(of_server, 2, 1))?;
    server.region = Region::new(1);
    let path = client.path;
    client.region.measured(|| client.node.endpoint.connect(&mut client.environment.at(NOW), &path)).ok()?;
    settle(client, server, buffers);
    get(client, server, buffers)?;

    client.close();
    settle(client, server, buffers);
    (client.region, server.region) = (Region::new(2), Region::new(3));
    let (session, ticket) = client.application.kept.take()?;
    let cx = &mut client.environment.at(NOW);
    let handle = Handle::Ticket(&ticket);
    client.region.measured(|| client.node.endpoint.connect_again(cx, &path, &session, handle)).ok()?;
    settle(client, server, buffers);
    (client.application.kept.is_none() && server.session.is_some()).then_some(())?;
    (client.region, server.region) = (Region::new(4), Region::new(5));
    get(client, server, buffers)
}

fn node(table: &'static mut Table, own: u8, other: u8) -> Node {
    let mut crypto = Provider::new(black_box([own; 32]));
    let keys = RefCell::new(TicketKeys::draw(&mut crypto));
    let path = Path { local: address(own), remote: address(other) };
    Side::new(table, crypto, Tickets { keys }, Lamp::default(), (path, Region::new(0)))
}

#[inline(never)]
fn get(client: &mut Node, server: &mut Node, buffers: &mut Buffers) -> Option<()> {
    client.application.reply = LastReply(None);
    ask(client, server, (Code::GET, "temp", b""), buffers)?;
    (client.application.reply.0 == Some(Code::CONTENT)).then_some(())
}

/// The application of both nodes.
#[derive(Default)]
struct Lamp {
    reply: LastReply,
    /// The session and the ticket of a client.
    kept: Option<(SessionState, [u8; TICKET_LEN])>,
}

impl Resumes for Lamp {
    fn begin(&mut self, _: Instant) {}

    fn established<S: Resumption>(&mut self, endpoint: &mut Endpoint<&'static mut Table, Role<S>>, peer: PeerId) {
        if let Some(Resumable::With { session, handle: Handle::Ticket(ticket), .. }) = endpoint.resumable(peer)
            && let Ok(ticket) = ticket.try_into()
        {
            self.kept = Some((session, ticket));
        }
    }

    fn key<'k>(&mut self, _: Need<'_>, _: &'k mut KeyRoom) -> Answer<'k> {
        Answer::Psk { identity: b"Client_identity", key: b"secretPSK", principal: Principal(1) }
    }
}

impl node::Application for Lamp {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&AnyAuthenticated, self))
    }

    fn on_reply(&mut self, _: PeerId, _: RequestId, reply: Reply<'_>) {
        self.reply.note(reply);
    }
}

impl Handler for Lamp {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        match request.message().path_is("temp") {
            true => response.payload(b"21.5"),
            false => Err(Code::NOT_FOUND),
        }
    }
}

/// The ticket keys of a server.
struct Tickets {
    keys: RefCell<TicketKeys>,
}

const TICKET_LEN: usize = OVERHEAD + SessionState::LEN;
/// Lifetime of a ticket, in seconds.
const LIFETIME: u32 = 86400;

impl Resumption for Tickets {
    fn gives_tickets(&self, _: u32) -> bool {
        true
    }

    fn open_ticket<C: Crypto>(&self, cx: &mut Cx<'_, C>, _: u32, ticket: &[u8]) -> Option<Found> {
        let mut room = Secret::<{ SessionState::LEN }>::zeroed();
        let keys = self.keys.try_borrow().ok()?;
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
        self.keys.try_borrow_mut().ok()?.seal(cx.crypto, state.written(), ticket).ok()?;
        Some(LIFETIME)
    }
}

type Node = Side<Tickets, Lamp>;

static BUFFERS: Kept<Buffers> = Kept::new(Buffers::new());
static TABLES: Kept<[Table; 2]> = Kept::new([Table::new(), Table::new()]);
static CLIENT: Place<Node> = Place::empty();
static SERVER: Place<Node> = Place::empty();
