//! A device that resumes sessions which a delegation server opened in its name. The other endpoint is in the same
//! image, and has two tasks. As the delegation server it sets the time, hands a session over and revokes a connection.
//! As a peer it resumes sessions. The messages of the server are constants. The image contains no public-key
//! cryptography. `dtls_resume_coap` is the same image without delegation.
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
use tegmen_delegation::{
    Connection, Device, Due, FlashMemory, LONGEST_TICKET, Resource, Resources, SERVER, Sessions, Unread,
};
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
    Note::size("Device", size_of::<UnreadState>()),
    Note::size("ticket", LONGEST_TICKET),
];

/// The first records of the flash memory: the epoch. The installer of the image must write the same records into the
/// device.
#[used]
#[unsafe(link_section = ".numbers")]
static FIRST: [u8; MEMORY.len()] = MEMORY;

/// The erased records after [`FIRST`].
#[used]
#[unsafe(link_section = ".erased")]
static ERASED: [u8; USED - MEMORY.len()] = [0xff; _];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the delegation server provision the device, and then lets a peer and the device resume delegated sessions with
/// each other. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let buffers = BUFFERS.take()?;
    let [of_device, of_other] = TABLES.take()?;
    let (state, other_state) = (DEVICE_STATE.take()?.read().ok()?, OTHER_STATE.take()?.read().ok()?);
    let device = &mut DEVICE.fill(|| OfMain(node(of_device, state, 1, 2)))?.0;
    let other = &mut OTHER.fill(|| OfMain(node(of_other, other_state, 2, 1)))?.0;
    count(device, other, 0);
    handshake(device, other, None, buffers)?;
    tell(device, other, Resource::Epoch, &SET_TIME, buffers)?;
    tell(other, device, Resource::Epoch, &SET_TIME, buffers)?;
    // The device refuses a request to begin another epoch, because its check value does not match.
    (exchange(other, device, Resource::Epoch.path(), &NEXT_EPOCH, buffers)? == Code::CONFLICT).then_some(())?;

    // The peer connects to the device with a ticket.
    let of_ticket = session(1);
    count(other, device, 2);
    handshake(other, device, Some((&of_ticket, Handle::Ticket(&TICKET))), buffers)?;
    count(other, device, 4);
    get(other, device, buffers)?;

    // The device connects to the peer.
    handshake(device, other, None, buffers)?;
    let mut to_accept = KEEP_TO_OPEN;
    *to_accept.first_mut()? = 0;
    tell(device, other, Resource::Keep, &to_accept, buffers)?;
    tell(other, device, Resource::Keep, &KEEP_TO_OPEN, buffers)?;
    tell(other, device, Resource::Go, &GO, buffers)?;
    let Some(Due::Open(go)) = device.application.resources.due.take() else { return None };
    count(device, other, 6);
    device.path.remote = go.peer;
    match &state.try_borrow_mut().ok()?.to_open(NOW, go.number) {
        Some((session, handle)) => handshake(device, other, Some((session, *handle)), buffers)?,
        None => return None,
    }
    count(device, other, 4);
    get(device, other, buffers)?;

    // The server revokes the connection of the ticket.
    handshake(device, other, None, buffers)?;
    tell(other, device, Resource::Refuse, &REFUSE, buffers)?;
    let refused = handshake(other, device, Some((&of_ticket, Handle::Ticket(&TICKET))), buffers);
    refused.is_none().then_some(())
}

/// Selects the measured regions in which the instructions of the following steps are counted: `region` for the client,
/// and `region + 1` for the server.
fn count(client: &mut Node, server: &mut Node, region: u32) {
    (client.region, server.region) = (Region::new(region), Region::new(region + 1));
}

fn node(table: &'static mut Table, device: &'static RefCell<State>, own: u8, other: u8) -> Node {
    let resources = Resources { device, exported: None, now: NOW, due: None };
    let path = Path { local: address(own), remote: address(other) };
    let application = Sensor { resources, reply: LastReply(None) };
    let crypto = Provider::new(black_box([own; 32]));
    Side::new(table, crypto, Sessions(device), application, (path, Region::new(0)))
}

/// Opens or resumes a session. Returns `None` if the other endpoint refuses.
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

/// Sends a request of the server. Returns `None` if the device does not execute it.
#[inline(never)]
fn tell(from: &mut Node, to: &mut Node, resource: Resource, payload: &[u8], buffers: &mut Buffers) -> Option<()> {
    (exchange(from, to, resource.path(), payload, buffers)? == Code::CHANGED).then_some(())
}

/// Sends the GET of a peer. Returns `None` if the response has another code than 2.05.
#[inline(never)]
fn get(from: &mut Node, to: &mut Node, buffers: &mut Buffers) -> Option<()> {
    (exchange(from, to, "temp", b"", buffers)? == Code::CONTENT).then_some(())
}

/// Sends a POST with this payload, or a GET if the payload is empty. Returns the code of the response.
#[inline(never)]
fn exchange(from: &mut Node, to: &mut Node, path: &str, payload: &[u8], buffers: &mut Buffers) -> Option<Code> {
    let code = if payload.is_empty() { Code::GET } else { Code::POST };
    from.application.reply = LastReply(None);
    ask(from, to, (code, path, payload), buffers)?;
    from.application.reply.0
}

/// Makes the session of the connection with this number. The peer has this session, and resumes it at the device.
fn session(number: u32) -> SessionState {
    let principal = Connection { number, scope: 0 }.principal();
    let (cipher_suite, master) = (CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8, Secret::new([number as u8; MASTER_LEN]));
    SessionState { cipher_suite, master, principal, since: None }
}

/// The application of both nodes.
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
        *room = device.psk::<Provider>(identity);
        Answer::Psk { identity: IDENTITY, key: room.expose(), principal: SERVER }
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

/// The flash memory of the chip, of which only the first [`USED`] bytes of each page are used. The image must contain
/// the contents of the flash memory, and is smaller with these short pages.
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

type State = Device<FlashMemory<FirstOfPages>, REFUSED, 1, 32>;
type UnreadState = Unread<FlashMemory<FirstOfPages>, REFUSED, 1, 32>;
type Node = Side<Sessions<'static, FlashMemory<FirstOfPages>, REFUSED, 1, 32>, Sensor>;

static BUFFERS: Kept<Buffers> = Kept::new(Buffers::new());
static TABLES: Kept<[Table; 2]> = Kept::new([Table::new(), Table::new()]);
static DEVICE: Place<OfMain<Node>> = Place::empty();
static OTHER: Place<OfMain<Node>> = Place::empty();
static DEVICE_STATE: Kept<UnreadState> = Kept::new(Unread::new(FlashMemory::new(FirstOfPages(Pages))));
static OTHER_STATE: Kept<UnreadState> = Kept::new(Unread::new(FlashMemory::new(FirstOfPages(Pages))));

/// The payload of a request to begin epoch 2. It contains the check value of epoch 1 (a value derived from the keys of
/// an epoch), so the device must refuse the request.
const NEXT_EPOCH: [u8; SET_TIME.len()] = {
    let mut request = SET_TIME;
    request[1] += 1;
    request
};
/// The PSK identity of the device.
const IDENTITY: &[u8] = b"sensor;0;7c6b0f92";
/// Number of entries in the list of refused connections.
const REFUSED: usize = 16;
/// Number of bytes of a page that are used: seven records with the epoch, one record for each entry of the list of
/// refused connections, and four records that a power cut may leave.
const USED: usize = (7 + REFUSED + 4) * RECORD_LEN;
