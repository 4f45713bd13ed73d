//! OSCORE: both ends of a context in one image, which exchange a protected GET and its response in memory.
#![no_std]
#![no_main]

use core::hint::black_box;
use tegmen::buf::Frame;
use tegmen::coap::message::HEADER_LEN;
use tegmen::coap::{Builder, Code, MessageType, OptionNumber};
use tegmen::oscore::{Aead, Context, OVERHEAD, Parameters, Pending, Unprotected};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, mark_begin, mark_end, measured, stack_of};
use tegmen_firmware::place::{Kept, Place};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 8] = [
    Note::operation(DERIVE, "derive context"),
    Note::operation(CREATE, "create request"),
    Note::operation(PROTECT_REQUEST, "protect request"),
    Note::operation(UNPROTECT_REQUEST, "unprotect request"),
    Note::operation(PROTECT_RESPONSE, "protect response"),
    Note::operation(UNPROTECT_RESPONSE, "unprotect response"),
    Note::size("Context", size_of::<Context>()),
    Note::size("Pending", size_of::<Pending>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// The exchange; `None` if anything goes another way than expected.
fn run() -> Option<()> {
    let client = CLIENT.fill(|| Node::new(b"c", b"s"))?;
    let server = SERVER.fill(|| Node::new(b"s", b"c"))?;
    let Wire { there, back } = WIRE.take()?;

    let mut request = Frame::new(there, OVERHEAD);
    let mut pending = measured(CREATE, || client.create(&mut request))?;
    let mut response = Frame::new(back, OVERHEAD);
    server.answer(request.bytes_mut(), &mut response)?;
    client.hear(&mut pending, response.bytes_mut())
}

/// One end.
struct Node {
    context: Option<Context>,
    crypto: Provider,
}

impl Node {
    #[inline(never)]
    fn new(sender_id: &[u8], recipient_id: &[u8]) -> Self {
        let parameters = Parameters {
            master_secret: black_box(&[7; 16]),
            master_salt: &[],
            sender_id,
            recipient_id,
            id_context: None,
            aead: Aead::AesCcm16_64_128,
        };
        let mut context = measured(DERIVE, || Context::new::<Provider>(&parameters)).ok();
        if let Some(context) = &mut context {
            // A mote writes the end of the lease to its flash memory first.
            context.lease_mut().extend(32);
        }
        Self { context, crypto: Provider::new([1; 32]) }
    }

    /// A confirmable GET, protected.
    #[inline(never)]
    fn create(&mut self, frame: &mut Frame<'_>) -> Option<Pending> {
        let message_id = black_box(0x1234);
        let mut message = Builder::new(frame, MessageType::Confirmable, Code::GET, message_id, &[0xca, 0xfe]).ok()?;
        message.path(PATH).ok()?;
        let context = self.context.as_mut()?;
        measured(PROTECT_REQUEST, || context.protect_request(&mut self.crypto, frame)).ok()
    }

    /// Takes the request out of a datagram, and writes the response.
    #[inline(never)]
    fn answer(&mut self, datagram: &mut [u8], frame: &mut Frame<'_>) -> Option<()> {
        let context = self.context.as_mut()?;
        mark_begin(UNPROTECT_REQUEST);
        let opened = context.unprotect_request(&mut self.crypto, datagram);
        mark_end(UNPROTECT_REQUEST);
        let Ok(Unprotected::Fresh(ref request, nonce)) = opened else { return None };
        if request.code() != Code::GET || !request.path_is(PATH) {
            return None;
        }
        let (kind, id, token) = (MessageType::Acknowledgement, request.message_id(), request.token());
        let mut response = Builder::new(frame, kind, Code::CONTENT, id, token).ok()?;
        response.uint(OptionNumber::CONTENT_FORMAT, OCTET_STREAM).ok()?;
        response.payload(&black_box(215u16).to_be_bytes()).ok()?;
        let binding = nonce.binding();
        let protect = || context.protect_response(&mut self.crypto, &binding, Some(nonce), frame);
        measured(PROTECT_RESPONSE, protect).ok()
    }

    #[inline(never)]
    fn hear(&mut self, pending: &mut Pending, datagram: &mut [u8]) -> Option<()> {
        let context = self.context.as_ref()?;
        mark_begin(UNPROTECT_RESPONSE);
        let opened = context.unprotect_response(&mut self.crypto, pending, datagram);
        mark_end(UNPROTECT_RESPONSE);
        let response = opened.ok()?;
        (response.code() == Code::CONTENT && response.payload() == [0, 215]).then_some(())
    }
}

/// A datagram each way, with the room that protecting needs.
struct Wire {
    there: [u8; ROOM],
    back: [u8; ROOM],
}

const ROOM: usize = OVERHEAD + HEADER_LEN + 64;

static CLIENT: Place<Node> = Place::empty();
static SERVER: Place<Node> = Place::empty();
static WIRE: Kept<Wire> = Kept::new(Wire { there: [0; ROOM], back: [0; ROOM] });

const DERIVE: u32 = 0;
const CREATE: u32 = 1;
const PROTECT_REQUEST: u32 = 2;
const UNPROTECT_REQUEST: u32 = 3;
const PROTECT_RESPONSE: u32 = 4;
const UNPROTECT_RESPONSE: u32 = 5;

const PATH: &str = "sensors/temperature";
const OCTET_STREAM: u32 = 42;
