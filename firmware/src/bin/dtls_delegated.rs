//! A device that resumes sessions which a delegation server opened in its name, and the other end in the same image: it is the
//! server that sets the time, hands a session over and revokes a connection, and the peer that resumes. The messages of the server are constants. No public-key
//! cryptography is linked. `dtls_resume_coap` is the image without delegation.
#![no_std]
#![no_main]

#[path = "../delegated.rs"]
pub mod delegated;

use core::cell::RefCell;
use core::hint::black_box;
use delegated::{GO, KEEP_TO_OPEN, MEMORY, REFUSE, SET_TIME, TICKET};
use tegmen::address::Path;
use tegmen::coap::handler::{AnyAuthenticated, Policy};
use tegmen::coap::{Authorized, Code, Handler, RequestId, Response};
use tegmen::dtls::{Answer, CipherSuite, Handle, MASTER_LEN, Need, Resumption, SessionState};
use tegmen::endpoint::Endpoint;
use tegmen::identity::PeerId;
use tegmen::node::{self, Reply};
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_delegation::{Connection, Device, Due, FlashMemory, LONGEST_TICKET, Resources, SERVER, Sessions};
use tegmen_firmware::Provider;
use tegmen_firmware::flash::Pages;
use tegmen_firmware::measure::{Note, Region, exit, stack_of};
use tegmen_firmware::place::{Kept, OfMain, Place};
use tegmen_firmware::resuming::{Buffers, KeyRoom, LastReply, NOW, Resumes, Role, Side, Table, address, ask, settle};
use tegmen_flash::{Flash, Page, RECORD_LEN};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 8] = [
    Note::operation(0, "handshake client"),
    Note::operation(1, "handshake server"),
    Note::operation(2, "resumption client"),
    Note::operation(3, "resumption server"),
    Note::operation(6, "delegated client"),
    Note::operation(7, "delegated server"),
    Note::size("Device", size_of::<State>()),
    Note::size("ticket", LONGEST_TICKET),
];

/// The first page: the epoch, as the one who writes the image to a device writes it, too. The places behind it are erased.
#[used]
#[unsafe(link_section = ".numbers")]
static FIRST: [u8; USED] = {
    let mut page = [0xff; USED];
    let mut at = 0;
    while at < MEMORY.len() {
        page[at] = MEMORY[at];
        at += 1;
    }
    page
};

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// `None` if anything goes another way than expected.
fn run() -> Option<()> {
    let buffers = BUFFERS.take()?;
    let [of_device, of_other] = TABLES.take()?;
    let device = DEVICE.fill(|| OfMain(node(of_device, &DEVICE_STATE, 1, 2)))?.0.as_mut()?;
    let other = OTHER.fill(|| OfMain(node(of_other, &OTHER_STATE, 2, 1)))?.0.as_mut()?;
    count(device, other, 0);
    handshake(device, other, None, buffers)?;
    tell(device, other, "dlg/ep", &SET_TIME, Code::CHANGED, buffers)?;
    tell(other, device, "dlg/ep", &SET_TIME, Code::CHANGED, buffers)?;
    // Another epoch begins in a session that both ends mean.
    let mut wrong = SET_TIME;
    *wrong.get_mut(1)? += 1;
    tell(other, device, "dlg/ep", &wrong, Code::CONFLICT, buffers)?;

    // The peer comes with a ticket.
    count(other, device, 2);
    handshake(other, device, Some((&session(1), Handle::Ticket(&TICKET))), buffers)?;
    count(other, device, 4);
    get(other, device, buffers)?;

    // The device comes to the peer.
    handshake(device, other, None, buffers)?;
    let mut to_accept = KEEP_TO_OPEN;
    *to_accept.first_mut()? = 0;
    tell(device, other, "dlg/ctx", &to_accept, Code::CHANGED, buffers)?;
    tell(other, device, "dlg/ctx", &KEEP_TO_OPEN, Code::CHANGED, buffers)?;
    tell(other, device, "dlg/go", &GO, Code::CHANGED, buffers)?;
    let Some(Due::Open(go)) = device.application.resources.due.take() else { return None };
    count(device, other, 6);
    device.path.remote = go.peer;
    let state = device.application.resources.device;
    handshake(device, other, state.try_borrow_mut().ok()?.to_open(NOW, go.number), buffers)?;
    count(device, other, 4);
    get(device, other, buffers)?;

    // The server revokes the connection of the ticket.
    handshake(device, other, None, buffers)?;
    tell(other, device, "dlg/rl", &REFUSE, Code::CHANGED, buffers)?;
    let refused = handshake(other, device, Some((&session(1), Handle::Ticket(&TICKET))), buffers);
    refused.is_none().then_some(())
}

/// The work of the client and of the server counts as this region and the next.
fn count(client: &mut Node, server: &mut Node, region: u32) {
    (client.region, server.region) = (Region::new(region), Region::new(region + 1));
}

fn node(table: &'static mut Table, state: &'static Kept<Option<State>>, own: u8, other: u8) -> Option<Node> {
    let state = state.take()?;
    let mut refused = [0; REFUSED];
    let (memory, stored) = FlashMemory::open(FirstOfPages(Pages), &mut refused).ok()?;
    let device: &'static RefCell<_> = state.insert(RefCell::new(Device::new(memory, stored)?));
    let resources = Resources { device, exported: None, now: NOW, due: None };
    let path = Path { local: address(own), remote: address(other) };
    let application = Sensor { resources, reply: LastReply(None) };
    let crypto = Provider::new(black_box([own; 32]));
    Some(Side::new(table, crypto, Sessions(device), application, (path, Region::new(0))))
}

/// Opens a session, or resumes it. `None` if the other end refuses.
#[inline(never)]
fn handshake(
    client: &mut Node,
    server: &mut Node,
    resumed: Option<(&SessionState, Handle<'_>)>,
    buffers: &mut Buffers,
) -> Option<()> {
    (client.session, server.session) = (None, None);
    let cx = &mut client.environment.at(NOW);
    let (endpoint, path) = (&mut client.node.endpoint, &client.path);
    let begin = || match resumed {
        Some((session, handle)) => endpoint.connect_again(cx, path, session, handle),
        None => endpoint.connect(cx, path),
    };
    client.region.measured(begin).ok()?;
    settle(client, server, buffers);
    client.session.and(server.session).map(|_| ())
}

/// Sends a request of the server, whose response has this code.
#[inline(never)]
fn tell(from: &mut Node, to: &mut Node, path: &str, payload: &[u8], code: Code, buffers: &mut Buffers) -> Option<()> {
    from.application.reply = LastReply(None);
    ask(from, to, (Code::POST, path, payload), buffers)?;
    (from.application.reply.0 == Some(code)).then_some(())
}

#[inline(never)]
fn get(client: &mut Node, server: &mut Node, buffers: &mut Buffers) -> Option<()> {
    client.application.reply = LastReply(None);
    ask(client, server, (Code::GET, "temp", b""), buffers)?;
    (client.application.reply.0 == Some(Code::CONTENT)).then_some(())
}

/// The session of the ticket, at its peer.
fn session(number: u32) -> SessionState {
    let principal = Connection { number, scope: 0 }.principal();
    let (cipher_suite, master) = (CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8, Secret::new([number as u8; MASTER_LEN]));
    SessionState { cipher_suite, master, principal, since: None }
}

/// The application of both.
struct Sensor {
    resources: Resources<'static, FlashMemory<FirstOfPages>, REFUSED, 1, 32>,
    reply: LastReply,
}

impl Resumes for Sensor {
    fn begin(&mut self, now: Instant) {
        self.resources.now = now;
    }

    fn established<S: Resumption>(&mut self, endpoint: &mut Endpoint<&'static mut Table, Role<S>>, peer: PeerId) {
        self.resources.established::<Provider, _, _>(endpoint, peer);
    }

    fn key<'k>(&mut self, need: Need<'_>, room: &'k mut KeyRoom) -> Answer<'k> {
        let identity = match need {
            Need::PskOfClient { identity } => identity,
            _ => IDENTITY,
        };
        let Ok(device) = self.resources.device.try_borrow() else { return Answer::Unknown };
        room.copy_from_slice(device.psk::<Provider>(identity).expose());
        Answer::Psk { identity: IDENTITY, key: room, principal: SERVER }
    }
}

impl node::Application for Sensor {
    fn server(&mut self) -> Option<(&impl Policy, &mut impl Handler)> {
        Some((&AnyAuthenticated, self))
    }

    fn on_reply(&mut self, _: PeerId, _: RequestId, reply: Reply<'_>) {
        self.reply.note(reply);
    }
}

impl Handler for Sensor {
    const IN_BLOCKS: bool = false;

    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if let Some(answer) = self.resources.handle::<Provider>(request, response) {
            return answer;
        }
        match request.message().path_is("temp") {
            true => response.payload(b"21.5"),
            false => Err(Code::NOT_FOUND),
        }
    }
}

/// The first bytes of each page, so that the image holds no more of them than the device uses.
struct FirstOfPages(Pages);

impl Flash for FirstOfPages {
    type Error = <Pages as Flash>::Error;

    const PAGE_LEN: usize = USED;

    fn read(&self, page: Page, at: usize, out: &mut [u8; RECORD_LEN]) {
        self.0.read(page, at, out);
    }

    fn program(&mut self, page: Page, at: usize, record: &[u8; RECORD_LEN]) -> Result<(), Self::Error> {
        self.0.program(page, at, record)
    }

    fn erase(&mut self, page: Page) -> Result<(), Self::Error> {
        self.0.erase(page)
    }
}

type State = RefCell<Device<FlashMemory<FirstOfPages>, REFUSED, 1, 32>>;
type Node = Side<Sessions<'static, FlashMemory<FirstOfPages>, REFUSED, 1, 32>, Sensor>;

static BUFFERS: Kept<Buffers> = Kept::new(Buffers::new());
static TABLES: Kept<[Table; 2]> = Kept::new([Table::new(), Table::new()]);
static DEVICE: Place<OfMain<Option<Node>>> = Place::empty();
static OTHER: Place<OfMain<Option<Node>>> = Place::empty();
static DEVICE_STATE: Kept<Option<State>> = Kept::new(None);
static OTHER_STATE: Kept<Option<State>> = Kept::new(None);

/// The PSK identity of the device.
const IDENTITY: &[u8] = b"sensor;0;7c6b0f92";
/// Places of the list of refused connections.
const REFUSED: usize = 16;
/// Bytes of a page that are used: the epoch in seven records, the list, and four records that a power cut may leave.
const USED: usize = (7 + REFUSED + 4) * RECORD_LEN;
