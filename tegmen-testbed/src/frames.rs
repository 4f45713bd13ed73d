//! The frames that carry a datagram over one hop.

use tegmen::address::{Address, Path};
use tegmen_lowpan::frame::{self, Header, LinkAddress, PanId};
use tegmen_lowpan::ip;
use tegmen_lowpan::{Interface, Network};

/// The PSDUs, with their check sequence, in which a datagram goes from one node to another; none if it does not fit.
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
