//! IPv6 and UDP headers (RFC 8200, RFC 768), for motes that have no operating system to write them.
//!
//! Only what a datagram needs: no fragments, no options, no ICMP. A packet with an extension header is refused.

use crate::buf::{Frame, Full, Reader, Truncated, Writer};
use crate::endpoint::{Address, Path};

/// A received UDP datagram. [`Datagram::parse`] has checked every length and the checksum.
#[derive(PartialEq, Eq, Debug)]
pub struct Datagram<'r> {
    /// `remote` sent it, and is never a group; `local` is its destination, which may be another node: the caller
    /// compares.
    pub path: Path,
    /// The payload, to be opened where it lies.
    pub payload: &'r mut [u8],
}

impl<'r> Datagram<'r> {
    /// Reads `packet`, which begins with its IPv6 header. Bytes past the lengths of the headers are padding, ignored.
    ///
    /// # Errors
    /// [`Refused`]; such a packet is dropped in silence and counted.
    pub fn parse(packet: &'r mut [u8]) -> Result<Self, Refused> {
        let mut header = Reader::new(packet);
        if header.u32()? >> 28 != 6 {
            return Err(Refused::NotIpv6);
        }
        let payload_len = header.u16()?;
        match header.u8()? {
            UDP => {}
            // RFC 8200, section 4; RFC 4302, RFC 4303, RFC 6275, RFC 7401, RFC 5533, and the two for experiments.
            extension @ (0 | 43 | 44 | 50 | 51 | 60 | 135 | 139 | 140 | 253 | 254) => {
                return Err(Refused::ExtensionHeader(extension));
            }
            other => return Err(Refused::NotUdp(other)),
        }
        let _hop_limit = header.u8()?;
        let source: [u8; 16] = header.array()?;
        let destination: [u8; 16] = header.array()?;
        if matches!(source, [0xff, ..]) {
            return Err(Refused::MulticastSource); // RFC 4291, section 2.7
        }

        let ip_payload = header.take(payload_len.into())?;
        let mut header = Reader::new(ip_payload);
        let (source_port, destination_port) = (header.u16()?, header.u16()?);
        let len = header.u16()?;
        let checksum = header.u16()?;
        let udp = Reader::new(ip_payload).take(len.into())?;
        if udp.len() < UDP_HEADER_LEN {
            return Err(Refused::Truncated);
        }
        // RFC 8200, section 8.1: over IPv6 the checksum is not optional. With the transmitted one included, the sum
        // of an intact datagram is all ones (RFC 1071, section 1).
        if checksum == 0 || Sum::of_pseudo_header(&source, &destination, len).add(udp).folded() != u16::MAX {
            return Err(Refused::BadChecksum);
        }
        let end = IP_HEADER_LEN.wrapping_add(len.into());
        Ok(Self {
            path: Path {
                local: Address { ip: destination, port: destination_port, scope: 0 },
                remote: Address { ip: source, port: source_port, scope: 0 },
            },
            payload: packet.get_mut(HEADROOM..end).ok_or(Refused::Truncated)?,
        })
    }
}

/// The IPv6 and UDP header of a packet that carries `payload` from `path.local` to `path.remote`.
///
/// # Errors
/// [`Full`] if the payload is longer than a UDP datagram can be.
pub fn headers(path: &Path, hop_limit: u8, payload: &[u8]) -> Result<[u8; HEADROOM], Full> {
    let Path { local, remote } = path;
    let len = payload.len().checked_add(UDP_HEADER_LEN).and_then(|len| u16::try_from(len).ok()).ok_or(Full)?;
    let mut headers = [0; HEADROOM];
    let mut header = Writer::new(&mut headers);
    header.u32(6 << 28)?;
    header.u16(len)?;
    header.put(&[UDP, hop_limit])?;
    header.put(&local.ip)?;
    header.put(&remote.ip)?;

    header.u16(local.port)?;
    header.u16(remote.port)?;
    header.u16(len)?;
    let sum = Sum::of_pseudo_header(&local.ip, &remote.ip, len);
    let sum = sum.add_word(local.port).add_word(remote.port).add_word(len).add(payload).folded();
    // A checksum of zero would say that there is none (RFC 768).
    header.u16(if sum == u16::MAX { u16::MAX } else { !sum })?;
    Ok(headers)
}

/// Puts the [`headers`] in front of the payload that `frame` holds, which takes [`HEADROOM`] bytes.
///
/// # Errors
/// [`Full`] if the frame has less headroom, or as [`headers`]; nothing is written.
pub fn prepend_headers(frame: &mut Frame<'_>, path: &Path, hop_limit: u8) -> Result<(), Full> {
    let headers = headers(path, hop_limit, frame.bytes())?;
    frame.prepend(&headers)
}

/// Computes the checksum of a UDP datagram that came without one because a layer below left it out (RFC 6282, section
/// 4.3.2). `packet` begins with its IPv6 header; what is not UDP stays as it is.
pub fn restore_checksum(packet: &mut [u8]) {
    let mut header = Reader::new(packet);
    let fields = (header.take(6).ok(), header.u8().ok(), header.u8().ok(), header.array().ok(), header.array().ok());
    let (Some(_), Some(UDP), Some(_), Some(source), Some(destination)) = fields else { return };
    let udp = header.rest();
    let Ok(len) = u16::try_from(udp.len()) else { return };
    let sum = Sum::of_pseudo_header(&source, &destination, len).add(udp).folded();
    if let Some(checksum) = packet.get_mut(CHECKSUM) {
        checksum.copy_from_slice(&(if sum == u16::MAX { u16::MAX } else { !sum }).to_be_bytes());
    }
}

/// Why a received packet is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The version is not 6.
    NotIpv6,
    /// It ends before its headers say so, or a length in them is too small to hold what it counts.
    Truncated,
    /// It has the extension header of this number, and none is understood here.
    ExtensionHeader(u8),
    /// It carries another protocol, of this number.
    NotUdp(u8),
    /// Its source is a group.
    MulticastSource,
    /// The UDP checksum is wrong or missing.
    BadChecksum,
}

/// The ones' complement sum of RFC 1071, over whole 16-bit words until the last piece.
#[derive(Clone, Copy)]
struct Sum(u32);

impl Sum {
    /// RFC 8200, section 8.1.
    fn of_pseudo_header(source: &[u8; 16], destination: &[u8; 16], udp_len: u16) -> Self {
        Self(UDP.into()).add_word(udp_len).add(source).add(destination)
    }

    fn add_word(self, word: u16) -> Self {
        // 2^16 words of 2^16 - 1 do not reach 2^32, and a datagram has half as many.
        Self(self.0.wrapping_add(word.into()))
    }

    /// Adds `bytes`; if their number is odd, nothing may follow.
    fn add(self, bytes: &[u8]) -> Self {
        let (words, odd) = bytes.as_chunks::<2>();
        let sum = words.iter().fold(self, |sum, &word| sum.add_word(u16::from_be_bytes(word)));
        odd.iter().fold(sum, |sum, &byte| sum.add_word(u16::from_be_bytes([byte, 0])))
    }

    /// The sum in 16 bits, carries added back in.
    fn folded(self) -> u16 {
        let once = (self.0 & 0xffff).wrapping_add(self.0 >> 16);
        (once & 0xffff).wrapping_add(once >> 16) as u16
    }
}

impl From<Truncated> for Refused {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

/// Bytes of the [`headers`].
pub const HEADROOM: usize = IP_HEADER_LEN + UDP_HEADER_LEN;
const IP_HEADER_LEN: usize = 40;
const UDP_HEADER_LEN: usize = 8;
/// Where the checksum of UDP lies, from the start of the packet.
const CHECKSUM: core::ops::Range<usize> = 46..48;
/// The protocol number of UDP.
const UDP: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn path(local_port: u16, remote_port: u16) -> Path {
        let address =
            |last, port| Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], port, scope: 0 };
        Path { local: address(1, local_port), remote: address(2, remote_port) }
    }

    fn packet(path: &Path, payload: &[u8]) -> Vec<u8> {
        let mut storage = std::vec![0; HEADROOM + payload.len()];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        frame.append(payload).unwrap();
        prepend_headers(&mut frame, path, 64).unwrap();
        frame.finish().to_vec()
    }

    #[test]
    fn headers_are_those_of_the_standards() {
        // The checksum by hand: ones' complement of fd00 + 1 + fd00 + 2 + 11 + b + 1633 + 1634 + b + 6162 + 6300.
        let expected = [
            &[0x60, 0, 0, 0, 0, 11, 17, 64][..],
            &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
            &[0x16, 0x33, 0x16, 0x34, 0, 11, 0x15, 0x0a],
            b"abc",
        ]
        .concat();
        assert_eq!(packet(&path(0x1633, 0x1634), b"abc"), expected);
    }

    #[test]
    fn a_checksum_that_comes_out_as_zero_is_sent_as_all_ones() {
        let mut found = false;
        for word in 0..=u16::MAX {
            let mut sent = packet(&path(1, 2), &word.to_be_bytes());
            assert_ne!(sent[46..48], [0, 0]);
            found |= sent[46..48] == [0xff, 0xff];
            assert!(Datagram::parse(&mut sent).is_ok());
        }
        assert!(found);
    }

    #[test]
    fn what_is_not_plain_udp_is_refused_with_its_reason() {
        let refusal = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut bytes = packet(&path(5683, 5683), b"hello");
            change(&mut bytes);
            Datagram::parse(&mut bytes).map(|_| ()).unwrap_err()
        };
        assert_eq!(refusal(&|p| p[0] = 0x45), Refused::NotIpv6);
        assert_eq!(refusal(&|p| p[6] = 0), Refused::ExtensionHeader(0));
        assert_eq!(refusal(&|p| p[6] = 44), Refused::ExtensionHeader(44));
        assert_eq!(refusal(&|p| p[6] = 6), Refused::NotUdp(6));
        assert_eq!(refusal(&|p| p[8] = 0xff), Refused::MulticastSource);
        assert_eq!(refusal(&|p| p[46..48].fill(0)), Refused::BadChecksum);
        assert_eq!(refusal(&|p| p[50] ^= 1), Refused::BadChecksum);
        assert_eq!(refusal(&|p| p[5] += 1), Refused::Truncated); // longer than the packet
        assert_eq!(refusal(&|p| p[45] += 1), Refused::Truncated); // longer than the IPv6 payload
        assert_eq!(refusal(&|p| p[45] = 7), Refused::Truncated); // shorter than its own header
        assert_eq!(refusal(&|p| p[5] = 7), Refused::Truncated);
        for len in 0..HEADROOM {
            assert_eq!(refusal(&|p| p.truncate(len)), Refused::Truncated);
        }
    }

    #[test]
    fn padding_behind_the_packet_is_ignored() {
        let mut bytes = packet(&path(1, 2), b"hello");
        bytes.extend([1, 2, 3]);
        assert_eq!(Datagram::parse(&mut bytes).unwrap().payload, b"hello");
    }

    #[test]
    fn a_frame_without_headroom_or_with_too_much_payload_is_full() {
        let mut storage = [0; 60];
        let mut frame = Frame::new(&mut storage, HEADROOM - 1);
        assert_eq!(prepend_headers(&mut frame, &path(1, 2), 1), Err(Full));
        let mut storage = std::vec![0; HEADROOM + 0xffff];
        let mut frame = Frame::new(&mut storage, HEADROOM);
        frame.append(&std::vec![0; 0xffff - 7]).unwrap();
        assert_eq!(prepend_headers(&mut frame, &path(1, 2), 1), Err(Full));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_at_the_other_end(
            ips: [[u8; 16]; 2], ports: [u16; 2], payload in proptest::collection::vec(any::<u8>(), 0..1500),
        ) {
            prop_assume!(ips[0][0] != 0xff);
            let [local, remote] = [0, 1].map(|i| Address { ip: ips[i], port: ports[i], scope: 0 });
            let mut bytes = packet(&Path { local, remote }, &payload);
            let path = Path { local: remote, remote: local };
            let mut expected = payload.clone();
            prop_assert_eq!(Datagram::parse(&mut bytes), Ok(Datagram { path, payload: &mut expected }));
        }

        #[test]
        fn a_damaged_bit_behind_the_first_word_is_noticed(
            payload in proptest::collection::vec(any::<u8>(), 0..200), bit in 64usize..,
        ) {
            let original = packet(&path(1, 2), &payload);
            let mut bytes = original.clone();
            let bit = 64 + bit % (8 * (bytes.len() - 8)); // not the flow label and the hop limit, which nothing covers
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            prop_assert!(Datagram::parse(&mut bytes).is_err());
        }

        #[test]
        fn anything_can_be_parsed(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), udp: bool) {
            if udp && bytes.len() > 46 {
                (bytes[0], bytes[4], bytes[6], bytes[44]) = (0x60, 0, UDP, 0);
            }
            let _ = Datagram::parse(&mut bytes);
        }
    }
}
