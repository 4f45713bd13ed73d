//! Frames from any sender, which arrive at a node of a 6LoWPAN network.

use tegmen::time::Instant;
use tegmen_lowpan::frame::{Frame, LinkAddress, checksum, write};
use tegmen_lowpan::iphc::{Compressed, Context, Hop, decompress};
use tegmen_lowpan::route::Route;
use tegmen_lowpan::{Arrived, Interface, Network};

const OWN: [[u8; 16]; 1] = [[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, 1]];
const CONTEXTS: [Context; 1] = [Context { id: 0, prefix: OWN[0], len: 64 }];

/// Lets a node receive a sequence of frames. In `data`, two values precede each frame: a step of the clock, and the
/// length of the frame. The checksums of the frames are corrected. A frame that the parser accepts must be unchanged
/// after it is written and parsed again. The headers of an accepted packet must be unchanged after compression and
/// decompression.
pub fn frames(data: &[u8]) {
    let routes = [Route::default(LinkAddress::Short(2))];
    let link = LinkAddress::Short(1);
    let network = Network { link, own: &OWN, contexts: &CONTEXTS, routes: &routes, relays: true };
    let mut interface = Interface::<2, 1280>::new();
    let (mut rest, mut micros) = (data, 0);
    while let [step, len, bytes @ ..] = rest {
        let (body, behind) = bytes.split_at(bytes.len().min(usize::from(*len) % 126));
        rest = behind;
        micros += u64::from(*step) << 16;
        let now = Instant::from_micros(micros);
        let psdu = [body, &checksum(body).to_le_bytes()].concat();
        let Ok(frame) = Frame::parse(&psdu) else { continue };
        let mut again = [0; 127];
        let again = write(&frame.header, frame.payload, &mut again).expect("what was read can be written");
        assert_eq!(Frame::parse(again), Ok(frame));
        let hop = Hop { source: frame.header.source, destination: frame.header.destination };
        if let Ok(received) = interface.receive(now, &network, &hop, frame.payload)
            && let Some(Arrived::Here(packet) | Arrived::On(_, packet)) = received.packet
        {
            same_again(packet, &hop);
        }
        interface.expire(now);
    }
}

/// Checks that the headers of a packet are the same after they are compressed and decompressed, with two pairs of link
/// addresses.
fn same_again(packet: &[u8], hop: &Hop) {
    for hop in [*hop, Hop::default()] {
        let Ok(compressed) = Compressed::of(packet, &hop, &CONTEXTS) else { continue };
        let sent = [compressed.bytes(), &packet[compressed.replaces..]].concat();
        let mut headers = [0; 64];
        let written = decompress(&sent, &hop, &CONTEXTS, Some(packet.len()), &mut headers).expect("what we compress");
        assert_eq!(written.read, compressed.bytes().len());
        assert_eq!(headers[..written.written], packet[..compressed.replaces]);
    }
}
