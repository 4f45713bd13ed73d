//! Makes the frames that carry a datagram or an NDN packet over one hop.

use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen_lowpan::frame::{self, Header, LinkAddress, PanId};
use tegmen_lowpan::ip;
use tegmen_lowpan::{Interface, Network};
use tegmen_ndn::lowpan;

/// Returns the frames that carry a datagram from one node to another. Each frame is a PSDU with its frame check
/// sequence. The list is empty if the datagram is too long.
pub fn frames(
    from: (LinkAddress, Address),
    to: (LinkAddress, Address),
    hop_limit: u8,
    datagram: &[u8],
) -> Vec<Vec<u8>> {
    let path = Path { local: from.1, remote: to.1 };
    let Ok(headers) = ip::headers(&path, hop_limit, datagram) else { return Vec::new() };
    let packet = [&headers[..], datagram].concat();
    let network = Network { link: from.0, own: &[], contexts: &[], routes: &[], relays: false };
    let header = Header::data(PanId(0xabcd), from.0, to.0, 1);
    let room = frame::MAX_LEN - frame::FCS_LEN - header.len();
    let mut interface = Interface::<1, 1280>::new();
    let (mut payload, mut out) = ([0; frame::MAX_LEN], [0; frame::MAX_LEN]);
    let mut frames = Vec::new();
    let Ok(mut fragments) = interface.send(&network, to.0, &packet) else { return frames };
    while let Ok(Some(payload)) = fragments.next_frame(room, &mut payload) {
        frames.extend(frame::write(&header, payload, &mut out).map(|frame| frame.to_vec()));
    }
    frames
}

/// Makes the payload of the frames that carry an NDN packet: a dispatch of RFC 9139, and then the uncompressed packet.
/// Returns `None` if the bytes are not an NDN packet.
pub fn with_ndn(packet: &[u8]) -> Option<Vec<u8>> {
    let dispatch = match packet.first()? {
        5 => NDN_INTEREST,
        6 => NDN_DATA,
        _ => return None,
    };
    Some([&[lowpan::PAGE, dispatch], packet].concat())
}

/// Returns the NDN packet in a payload that [`with_ndn`] has made; `None` for any other payload.
pub fn ndn_packet(payload: &[u8]) -> Option<Vec<u8>> {
    let mut storage = [0; LONGEST_PACKET];
    let mut frame = Frame::new(&mut storage, tegmen_ndn::MAX_HEAD);
    lowpan::decompress(payload, &[], |_| None, &mut frame).ok()?;
    Some(frame.bytes().to_vec())
}

/// The dispatch of an uncompressed Interest.
const NDN_INTEREST: u8 = 0x00;
/// The dispatch of an uncompressed Data packet.
const NDN_DATA: u8 = 0x20;
/// Maximum length of an NDN packet, in bytes.
const LONGEST_PACKET: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mote::named::packets::{interest, name_of, prefix};
    use tegmen::crypto::Compact;
    use tegmen_ndn::Name;

    #[test]
    fn a_packet_of_ndn_is_behind_its_dispatch() {
        let name = name_of(&prefix(&[b"t"]), 1);
        let packet = interest::<Compact>(&Name::of_checked(&name), [1, 2, 3, 4]);
        let payload = with_ndn(&packet).unwrap();
        assert_eq!((&payload[..2], &payload[2..]), (&[0xfe, 0x00][..], &packet[..]));
        assert_eq!(ndn_packet(&payload), Some(packet));
        for other in [&[][..], &[7, 0], &[0x41, 0]] {
            assert_eq!(with_ndn(other), None);
            assert_eq!(ndn_packet(other), None);
        }
    }
}
