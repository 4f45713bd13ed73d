//! CoAP without protection: builds and parses a GET, and then lets a client and a server exchange a request and its
//! response in memory.
#![no_std]
#![no_main]

use core::hint::black_box;
use tegmen::buf::Frame;
use tegmen::coap::handler::{Anybody, serve};
use tegmen::coap::{
    Authorized, Builder, Code, Exchanges, Fixed, Handler, MessageRef, MessageType, OptionNumber, Received, Repeat,
    Request, Response,
};
use tegmen::identity::{Identity, Principal, Protection};
use tegmen::time::Instant;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::Place;

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 8] = [
    Note::operation(BUILD, "build GET"),
    Note::operation(PARSE, "parse GET"),
    Note::operation(MATCH, "match its path"),
    Note::operation(ASK, "keep request"),
    Note::operation(RETRANSMIT, "retransmit request"),
    Note::operation(SERVE, "serve request"),
    Note::operation(HEAR, "match response"),
    Note::size("exchanges of a peer", size_of::<OneExchange>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Lets the client send a GET to the server, retransmit the GET, and process the response. Returns `None` if a result
/// is not the expected one.
fn run() -> Option<()> {
    let client = CLIENT.fill(|| OneExchange::new(1))?;
    let server = SERVER.fill(|| OneExchange::new(2))?;
    let mut arrays = Fixed;
    let mut thermometer = Thermometer { reading: black_box(215) };

    let mut storage = [0; 64];
    let mut frame = Frame::new(&mut storage, 0);
    measured(BUILD, || build_get(&mut frame))?;
    let request = black_box(frame.bytes());
    let sent = measured(ASK, || client.sent(&mut Fixed, NOW, request, 7)).ok()?;

    let due = client.next_deadline(&Fixed)?;
    let mut storage = [0; 64];
    let mut reply = Frame::new(&mut storage, 0);
    measured(RETRANSMIT, || client.poll(&mut Fixed, due, &mut reply))?;
    if reply.bytes() != request {
        return None;
    }
    reply.truncate(0);

    let get = measured(PARSE, || MessageRef::parse(request)).ok()?;
    let path_matches = measured(MATCH, || get.path_is(PATH));

    measured(SERVE, || answer(server, request, &mut thermometer, &mut reply))?;

    match measured(HEAR, || client.receive(&mut arrays, NOW, black_box(reply.bytes()))) {
        Received::Response { request, message, .. } if request == sent => {
            let expected = message.code() == Code::CONTENT && message.payload() == [0, 215];
            (expected && path_matches).then_some(())
        }
        _ => None,
    }
}

/// Builds a confirmable GET with a token of two bytes.
fn build_get(frame: &mut Frame<'_>) -> Option<()> {
    let message_id = black_box(0x1234);
    let mut message = Builder::new(frame, MessageType::Confirmable, Code::GET, message_id, &[0xca, 0xfe]).ok()?;
    message.path(PATH).ok()
}

fn answer(
    exchanges: &mut OneExchange,
    datagram: &[u8],
    thermometer: &mut Thermometer,
    reply: &mut Frame<'_>,
) -> Option<()> {
    let Received::Request(message, key) = exchanges.receive(&mut Fixed, NOW, datagram) else { return None };
    let identity = Identity { principal: Principal::NOBODY, protection: Protection::Plain };
    let message_id = exchanges.message_id();
    serve(Request::new(message, identity), &Anybody, thermometer, message_id, reply);
    exchanges.keep_reply(&mut Fixed, NOW, key, Repeat::of(message.code()), reply.bytes());
    Some(())
}

/// The resource that the GET requests.
struct Thermometer {
    reading: u16,
}

impl Handler for Thermometer {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if !request.message().path_is(PATH) {
            return Err(Code::NOT_FOUND);
        }
        if request.message().code() != Code::GET {
            return Err(Code::METHOD_NOT_ALLOWED);
        }
        response.uint(OptionNumber::CONTENT_FORMAT, OCTET_STREAM)?;
        response.payload(&self.reading.to_be_bytes())
    }
}

/// The exchanges of the client with the server, or of the server with the client. Each of the two nodes keeps one
/// request that it sent, of at most 64 bytes, until the response arrives. It also keeps the replies to the last four
/// messages of the other node, at most 64 bytes in total.
type OneExchange = Exchanges<Fixed<1, 64, 4, 64>>;

static CLIENT: Place<OneExchange> = Place::empty();
static SERVER: Place<OneExchange> = Place::empty();

const BUILD: u32 = 0;
const PARSE: u32 = 1;
const ASK: u32 = 2;
const SERVE: u32 = 3;
const HEAR: u32 = 4;
const MATCH: u32 = 5;
const RETRANSMIT: u32 = 6;

const PATH: &str = "sensors/temperature";
const OCTET_STREAM: u32 = 42;
/// The time of every call. No exchange of this image depends on the clock.
const NOW: Instant = Instant::from_micros(0);
