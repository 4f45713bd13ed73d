//! OSCORE. Both endpoints of a context in one image exchange a protected GET and its response in memory.
#![no_std]
#![no_main]

use core::hint::black_box;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, HEADER_LEN, MessageType, OptionNumber};
use tegmen::oscore::{Aead, BadParameters, Context, OVERHEAD, Parameters, Pending, Unprotected};
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

/// Lets the client protect a GET, the server answer it, and the client decrypt the response. Returns `None` if a result
/// is not the expected one.
fn run() -> Option<()> {
    let crypto = &mut Provider::new([1; 32]);
    let client = context(&CLIENT, b'c', b's')?;
    let server = context(&SERVER, b's', b'c')?;
    let Wire { there, back } = WIRE.take()?;

    let mut request = Frame::new(there, OVERHEAD);
    let mut pending = measured(CREATE, || create(client, crypto, &mut request))?;
    let mut response = Frame::new(back, OVERHEAD);
    answer(server, crypto, request.bytes_mut(), &mut response)?;
    hear(client, crypto, &mut pending, response.bytes_mut())
}

/// Makes the OSCORE context of one endpoint, with reserved sequence numbers.
#[inline(never)]
fn context(place: &'static Derived, sender_id: u8, recipient_id: u8) -> Option<&'static mut Context> {
    let parameters = Parameters {
        master_secret: black_box(&[7; 16]),
        master_salt: &[],
        sender_id: &[sender_id],
        recipient_id: &[recipient_id],
        id_context: None,
        aead: Aead::AesCcm16_64_128,
    };
    let context = measured(DERIVE, || place.fill(|| Context::new::<Provider>(&parameters)))?.as_mut().ok()?;
    // A mote first writes the end of its reserved sequence numbers to its flash memory.
    context.lease_mut().extend(32);
    Some(context)
}

/// Makes a protected confirmable GET.
#[inline(never)]
fn create(context: &mut Context, crypto: &mut Provider, frame: &mut Frame<'_>) -> Option<Pending> {
    let message_id = black_box(0x1234);
    let message = &mut Builder::new(frame, MessageType::Confirmable, Code::GET, message_id, &[0xca, 0xfe]);
    let message = message.as_mut().ok()?;
    let (collection, sensor) = PATH.as_bytes().split_at_checked(SLASH)?;
    message.option(OptionNumber::URI_PATH, collection).ok()?;
    message.option(OptionNumber::URI_PATH, sensor.get(1..)?).ok()?;
    measured(PROTECT_REQUEST, || context.protect_request(crypto, frame)).ok()
}

/// Opens the request in a datagram, and writes the response.
#[inline(never)]
fn answer(context: &mut Context, crypto: &mut Provider, datagram: &mut [u8], frame: &mut Frame<'_>) -> Option<()> {
    mark_begin(UNPROTECT_REQUEST);
    let opened = context.unprotect_request(crypto, datagram);
    mark_end(UNPROTECT_REQUEST);
    let Ok(Unprotected::Fresh(ref request, nonce)) = opened else { return None };
    if request.code() != Code::GET || !request.path_is(PATH) {
        return None;
    }
    let (kind, id, token) = (MessageType::Acknowledgement, request.message_id(), request.token());
    let response = &mut Builder::new(frame, kind, Code::CONTENT, id, token);
    let response = response.as_mut().ok()?;
    response.uint(OptionNumber::CONTENT_FORMAT, OCTET_STREAM).ok()?;
    response.payload(&black_box(215u16).to_be_bytes()).ok()?;
    let binding = nonce.binding();
    mark_begin(PROTECT_RESPONSE);
    let protected = context.protect_response(crypto, &binding, Some(nonce), frame);
    mark_end(PROTECT_RESPONSE);
    protected.ok()
}

/// Opens the response in a datagram.
#[inline(never)]
fn hear(context: &Context, crypto: &mut Provider, pending: &mut Pending, datagram: &mut [u8]) -> Option<()> {
    mark_begin(UNPROTECT_RESPONSE);
    let opened = context.unprotect_response(crypto, pending, datagram);
    mark_end(UNPROTECT_RESPONSE);
    let response = opened.ok()?;
    (response.code() == Code::CONTENT && response.payload() == [0, 215]).then_some(())
}

/// Buffers for a datagram in each direction, with the space that protection needs.
struct Wire {
    there: [u8; ROOM],
    back: [u8; ROOM],
}

const ROOM: usize = OVERHEAD + HEADER_LEN + 64;

type Derived = Place<Result<Context, BadParameters>>;

static CLIENT: Derived = Place::empty();
static SERVER: Derived = Place::empty();
static WIRE: Kept<Wire> = Kept::new(Wire { there: [0; ROOM], back: [0; ROOM] });

const DERIVE: u32 = 0;
const CREATE: u32 = 1;
const PROTECT_REQUEST: u32 = 2;
const UNPROTECT_REQUEST: u32 = 3;
const PROTECT_RESPONSE: u32 = 4;
const UNPROTECT_RESPONSE: u32 = 5;

const PATH: &str = "sensors/temperature";
/// The index of the slash in [`PATH`].
const SLASH: usize = 7;
const OCTET_STREAM: u32 = 42;
