//! Two motes in one image, connected without delay by a [`line`](super::line) in memory. As on the board, each packet
//! is encoded for the line. The line delivers each packet complete.

use super::line::uart;
use super::mote::{Application, Memory, Mote, PACKET_LEN};
use tegmen::address::Address;
use tegmen::dtls::Configured;
use tegmen::secret::Secret;
use tegmen::time::Instant;
use tegmen_firmware::measure::Region;
use tegmen_firmware::place::Place;
use tegmen_lowpan::slip::{Decoder, Start};

/// Makes a mote. This is a separate function, so that the stack holds the mote and the parts of its node only while
/// they are made.
#[inline(never)]
pub fn make<R: Configured, M: Memory>(
    place: &'static Place<Mote<R, M>>,
    now: Instant,
    node: u8,
    features: impl FnOnce() -> M::Features,
) -> Option<&'static mut Mote<R, M>> {
    place.fill(|| Mote::new(now, start(node), features()))
}

/// Returns the [`Start`] that a bridge would send to the mote with the number `node`. Mote 1 is the client of mote 2.
pub fn start(node: u8) -> Start {
    let ip = |last| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    let peer = (node == 1).then_some(Address { ip: ip(2), port: 5684, scope: 0 });
    Start { seed: Secret::new([node; 32]), ip: ip(node), peer }
}

/// Lets the two motes answer each other until neither has a packet to send. For packets with application data, the
/// instructions of the client are counted in the measured region `in_session`, and the instructions of the server in
/// the region `in_session + SERVER`. For all other packets, they are counted in the regions `HANDSHAKE` and
/// `HANDSHAKE + SERVER`.
pub fn converse<A: Application<M>, M: Memory, B: Application<N>, N: Memory>(
    (client, asking): (&mut Mote<A::Roles, M>, &mut A),
    (server, serving): (&mut Mote<B::Roles, N>, &mut B),
    now: Instant,
    in_session: u32,
    (line, storage): (&mut [u8; uart::LEN], &mut [u8; PACKET_LEN]),
) {
    loop {
        let to_server = uart::take(line);
        deliver(server, serving, now, in_session + SERVER, to_server, storage);
        let to_client = uart::take(line);
        if to_client.is_empty() {
            return;
        }
        deliver(client, asking, now, in_session, to_client, storage);
    }
}

/// Delivers to `mote` all packets whose bytes are in `line`, which the other mote has sent.
fn deliver<A: Application<M>, M: Memory>(
    mote: &mut Mote<A::Roles, M>,
    application: &mut A,
    now: Instant,
    in_session: u32,
    line: &[u8],
    storage: &mut [u8; PACKET_LEN],
) {
    let mut decoder = Decoder::new(storage);
    for byte in line {
        let Some(packet) = decoder.push(*byte) else { continue };
        let is_in_session = packet.get(RECORD) == Some(&APPLICATION_DATA);
        let region = if is_in_session { in_session } else { HANDSHAKE + in_session % 2 };
        Region::new(region).measured(|| mote.on_packet(application, now, packet));
    }
}

/// The number of the measured region in which the instructions of the client in handshakes are counted. All regions of
/// the client have even numbers. In each exchange the instructions of the server are counted in the region with the
/// next higher number.
pub const HANDSHAKE: u32 = 0;
/// The number of a measured region of the server, minus the number of the region of the client for the same exchange.
pub const SERVER: u32 = 1;
/// The offset of the record in a packet, after the headers of IPv6 and UDP.
const RECORD: usize = 48;
/// The content type application_data (RFC 6347, section 4.3.1).
const APPLICATION_DATA: u8 = 23;
