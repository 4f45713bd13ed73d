//! 6LoWPAN: a datagram in one frame, and a datagram in several frames. Both are sent and received.
#![no_std]
#![no_main]

use core::hint::black_box;
use tegmen::address::{Address, Path};
use tegmen::time::Instant;
use tegmen_firmware::measure::{Note, exit, measured, stack_of};
use tegmen_firmware::place::Place;
use tegmen_lowpan::frame::LinkAddress;
use tegmen_lowpan::ip::{self, Datagram};
use tegmen_lowpan::iphc::{Context, Hop};
use tegmen_lowpan::route::Route;
use tegmen_lowpan::{Arrived, Interface, Network};

#[used]
#[unsafe(link_section = ".footprint")]
static NOTES: [Note; 5] = [
    Note::operation(SEND_SHORT, "send 80 B"),
    Note::operation(RECEIVE_SHORT, "receive 80 B"),
    Note::operation(SEND_LONG, "send 300 B"),
    Note::operation(RECEIVE_LONG, "receive 300 B"),
    Note::size("end of the link", size_of::<End>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Sends and receives two datagrams. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let [here, there] = [HERE.fill(End::new)?, THERE.fill(End::new)?];
    let frames = FRAMES.fill(|| [[0; FRAME]; 4])?;
    let packet = PACKET.fill(|| [0; ip::HEADROOM + LONG])?;
    for (len, send, receive) in [(80, SEND_SHORT, RECEIVE_SHORT), (LONG, SEND_LONG, RECEIVE_LONG)] {
        let (headers, payload) = packet.get_mut(..ip::HEADROOM + len)?.split_first_chunk_mut()?;
        payload.fill(black_box(7));
        *headers = ip::headers(&Path { local: address(1), remote: address(2) }, 64, payload).ok()?;
        let packet = packet.get(..ip::HEADROOM + len)?;
        let lens = measured(send, || sent(here, black_box(packet), frames))?;
        measured(receive, || received(there, frames, &lens, len))?;
    }
    Some(())
}

/// Compresses the packet into frames. Returns the lengths of the frames, followed by 0.
#[inline(never)]
fn sent(end: &mut End, packet: &[u8], frames: &mut [[u8; FRAME]; 4]) -> Option<[usize; 4]> {
    let mut lens = [0; 4];
    let mut fragments = end.send(&network(1, &[address(1).ip]), LinkAddress::Short(2), packet).ok()?;
    for (frame, len) in frames.iter_mut().zip(&mut lens) {
        let Some(payload) = fragments.next_frame(ROOM, frame).ok()? else { break };
        *len = payload.len();
    }
    Some(lens)
}

/// Reassembles the frames, and parses the datagram in them.
#[inline(never)]
fn received(end: &mut End, frames: &[[u8; FRAME]; 4], lens: &[usize; 4], expected: usize) -> Option<()> {
    let hop = Hop { source: LinkAddress::Short(1), destination: LinkAddress::Short(2) };
    let own = [address(2).ip];
    for (frame, len) in frames.iter().zip(lens) {
        let arrived = end.receive(NOW, &network(2, &own), &hop, frame.get(..*len)?).ok()?;
        if let Some(Arrived::Here(packet)) = arrived.packet {
            return (Datagram::parse(packet).ok()?.payload.len() == expected).then_some(());
        }
    }
    None
}

fn network(link: u16, own: &[[u8; 16]]) -> Network<'_> {
    Network { link: LinkAddress::Short(link), own, contexts: &CONTEXTS, routes: &ROUTES, relays: false }
}

/// Returns the address of a mote, which is derived from its link address.
const fn address(link: u8) -> Address {
    let ip = [0xfd, 0, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, link];
    Address { ip, port: 61616, scope: 0 }
}

/// The interface of a mote with a buffer for one packet, as the simulated motes of `tegmen-testbed` have it.
type End = Interface<1, 512>;

static HERE: Place<End> = Place::empty();
static THERE: Place<End> = Place::empty();
static FRAMES: Place<[[u8; FRAME]; 4]> = Place::empty();
static PACKET: Place<[u8; ip::HEADROOM + LONG]> = Place::empty();

static CONTEXTS: [Context; 1] = [Context { id: 0, prefix: address(0).ip, len: 64 }];
static ROUTES: [Route; 1] = [Route::default(LinkAddress::Short(2))];

const SEND_SHORT: u32 = 0;
const RECEIVE_SHORT: u32 = 1;
const SEND_LONG: u32 = 2;
const RECEIVE_LONG: u32 = 3;
/// Length of the datagram that needs several frames, in bytes.
const LONG: usize = 300;
/// Length of a frame, in bytes.
const FRAME: usize = 127;
/// Number of bytes of a frame that 6LoWPAN can use: all bytes except the MAC header with short addresses, and the FCS.
const ROOM: usize = FRAME - 9 - 2;
const NOW: Instant = Instant::from_micros(1);
