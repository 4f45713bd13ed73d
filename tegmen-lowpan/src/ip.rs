//! IPv6 and UDP headers (RFC 8200, RFC 768), for motes without an operating system.
//!
//! The module supports only the headers of a UDP datagram: no fragments, no options and no ICMP. It refuses a packet
//! with an extension header.

use tegmen_base::address::{Address, Path};
use tegmen_base::buf::{Full, Reader, Truncated, Writer};

/// A received UDP datagram. [`Datagram::parse`] has checked every length and the checksum.
#[derive(PartialEq, Eq, Debug)]
pub struct Datagram<'r> {
    /// The two addresses of the packet. `remote` is its source address, and is never a multicast address. `local` is
    /// its destination address. The destination may be another node, so the caller must compare `local` with its own
    /// addresses.
    pub path: Path,
    /// The payload, which the caller can decrypt in place.
    pub payload: &'r mut [u8],
}

impl<'r> Datagram<'r> {
    /// Reads `packet`, which begins with its IPv6 header. If `packet` is longer than the lengths in its headers, the
    /// further bytes are padding, and this function ignores them.
    ///
    /// # Errors
    /// [`ParseError`]. The caller drops such a packet without an answer, and counts it.
    pub fn parse(packet: &'r mut [u8]) -> Result<Self, ParseError> {
        let mut header = Reader::new(packet);
        if header.array().map(u32::from_be_bytes)? >> 28 != 6 {
            return Err(ParseError::NotIpv6);
        }
        let payload_len = header.u16()?;
        match header.u8()? {
            UDP => {}
            // RFC 8200, section 4; RFC 4302, RFC 4303, RFC 6275, RFC 7401, RFC 5533, and the two for experiments.
            extension @ (0 | 43 | 44 | 50 | 51 | 60 | 135 | 139 | 140 | 253 | 254) => {
                return Err(ParseError::ExtensionHeader(extension));
            }
            other => return Err(ParseError::NotUdp(other)),
        }
        let _hop_limit = header.u8()?;
        let source: [u8; 16] = header.array()?;
        let destination: [u8; 16] = header.array()?;
        if matches!(source, [0xff, ..]) {
            return Err(ParseError::MulticastSource); // RFC 4291, section 2.7
        }

        let ip_payload = header.take(payload_len.into())?;
        let mut header = Reader::new(ip_payload);
        let (source_port, destination_port) = (header.u16()?, header.u16()?);
        let len = header.u16()?;
        let checksum = header.u16()?;
        let udp = Reader::new(ip_payload).take(len.into())?;
        if udp.len() < UDP_HEADER_LEN {
            return Err(ParseError::Truncated);
        }
        // Over IPv6 the UDP checksum is not optional (RFC 8200, section 8.1). The sum over an intact datagram,
        // including its checksum, has only bits that are 1 (RFC 1071, section 1).
        if checksum == 0 || Sum::of_pseudo_header(&source, &destination, len).add(udp).folded() != u16::MAX {
            return Err(ParseError::BadChecksum);
        }
        let end = IP_HEADER_LEN.wrapping_add(len.into());
        Ok(Self {
            path: Path {
                local: Address { ip: destination, port: destination_port, scope: 0 },
                remote: Address { ip: source, port: source_port, scope: 0 },
            },
            payload: packet.get_mut(HEADROOM..end).ok_or(ParseError::Truncated)?,
        })
    }
}

/// Returns the IPv6 and UDP headers of a packet with `payload` from `path.local` to `path.remote`.
///
/// # Errors
/// [`Full`] if the payload is longer than a UDP datagram can be.
pub fn headers(path: &Path, hop_limit: u8, payload: &[u8]) -> Result<[u8; HEADROOM], Full> {
    let Path { local, remote } = path;
    let len = payload.len().checked_add(UDP_HEADER_LEN).and_then(|len| u16::try_from(len).ok()).ok_or(Full)?;
    let mut headers = [0; HEADROOM];
    let mut header = Writer::new(&mut headers);
    header.put(&(6u32 << 28).to_be_bytes())?;
    header.u16(len)?;
    header.put(&[UDP, hop_limit])?;
    header.put(&local.ip)?;
    header.put(&remote.ip)?;

    header.u16(local.port)?;
    header.u16(remote.port)?;
    header.u16(len)?;
    let sum = Sum::of_pseudo_header(&local.ip, &remote.ip, len);
    let sum = sum.add_word(local.port).add_word(remote.port).add_word(len).add(payload).folded();
    // A checksum of zero means that there is none (RFC 768).
    header.u16(if sum == u16::MAX { u16::MAX } else { !sum })?;
    Ok(headers)
}

/// The reason why a received packet is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseError {
    /// The version is not 6.
    NotIpv6,
    /// The packet is shorter than its headers, or shorter than the length in one of its headers. Or the length in the
    /// UDP header is less than the length of the UDP header itself.
    Truncated,
    /// The packet has the extension header with this number. No extension header is supported.
    ExtensionHeader(u8),
    /// The packet contains another protocol, with this number.
    NotUdp(u8),
    /// The source address is a multicast address.
    MulticastSource,
    /// The UDP checksum is wrong or missing.
    BadChecksum,
}

/// The ones' complement sum of RFC 1071. The bytes can be added in several steps. Each step except the last must add an
/// even number of bytes.
#[derive(Clone, Copy)]
struct Sum(u32);

impl Sum {
    /// Returns the sum of the pseudo-header (RFC 8200, section 8.1).
    fn of_pseudo_header(source: &[u8; 16], destination: &[u8; 16], udp_len: u16) -> Self {
        Self(UDP.into()).add_word(udp_len).add(source).add(destination)
    }

    fn add_word(self, word: u16) -> Self {
        // The sum of 2^16 words is below 2^32, and a datagram has at most 2^15 words. So the sum does not overflow.
        Self(self.0.wrapping_add(word.into()))
    }

    /// Adds `bytes` to the sum, as words of two bytes. The number of bytes must be even in each call except the last.
    fn add(self, bytes: &[u8]) -> Self {
        let (words, odd) = bytes.as_chunks::<2>();
        let sum = words.iter().fold(self, |sum, &word| sum.add_word(u16::from_be_bytes(word)));
        odd.iter().fold(sum, |sum, &byte| sum.add_word(u16::from_be_bytes([byte, 0])))
    }

    /// Returns the sum in 16 bits, with the carries added to it.
    fn folded(self) -> u16 {
        let once = (self.0 & 0xffff).wrapping_add(self.0 >> 16);
        (once & 0xffff).wrapping_add(once >> 16) as u16
    }
}

impl From<Truncated> for ParseError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

/// Length of the [`headers`] in bytes.
pub const HEADROOM: usize = IP_HEADER_LEN + UDP_HEADER_LEN;
const IP_HEADER_LEN: usize = 40;
const UDP_HEADER_LEN: usize = 8;
/// The protocol number of UDP.
const UDP: u8 = 17;

#[cfg(test)]
mod tests;
