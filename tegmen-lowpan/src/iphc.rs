//! Header compression: LOWPAN_IPHC for IPv6 and LOWPAN_NHC for UDP (RFC 6282).
//!
//! Compression leaves out data that the link layer or a shared context provides. [`Compressed::of`] compresses the
//! headers of a packet, and [`decompress`] restores them. The payload after the headers does not change.

use super::frame::LinkAddress;
use tegmen_base::buf::{Full, Reader, Truncated, Writer};

/// The link addresses of the sender and the receiver of a frame. An IPv6 address that the sender left out is computed
/// from one of these link addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hop {
    /// The link address of the sender of the frame.
    pub source: LinkAddress,
    /// The link address of the receiver of the frame.
    pub destination: LinkAddress,
}

/// A prefix that all nodes of the network identify by a number (RFC 6775, section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Context {
    /// The number that identifies the prefix in compressed headers, 0 to 15.
    pub id: u8,
    /// The prefix.
    pub prefix: [u8; 16],
    /// The length of the prefix in bits, at most 128.
    pub len: u8,
}

impl Context {
    /// Returns `address` with its first `len` bits replaced by the prefix.
    fn over(&self, mut address: [u8; 16]) -> [u8; 16] {
        let mut left = self.len;
        for (byte, prefix) in address.iter_mut().zip(self.prefix) {
            let mask = if left >= 8 { 0xff } else { !(0xff_u8 >> left) };
            *byte = (*byte & !mask) | (prefix & mask);
            left = left.saturating_sub(8);
        }
        address
    }
}

/// The compressed headers of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compressed {
    bytes: [u8; MAX_COMPRESSED_LEN],
    len: u8,
    /// The number of bytes of the packet's headers that the compressed headers replace.
    pub replaces: usize,
}

impl Compressed {
    /// Compressed headers with a length of 0 bytes, for a payload without IPv6 headers.
    pub(super) const NONE: Self = Self { bytes: [0; MAX_COMPRESSED_LEN], len: 0, replaces: 0 };

    /// Compresses the IPv6 header of `packet`, and its UDP header if it has one.
    ///
    /// `contexts` are the contexts that the sender and the receiver of the frame know.
    ///
    /// # Errors
    /// [`Truncated`] if the packet ends within its headers, or if the length in its IPv6 header is wrong. A caller that
    /// passes such a packet has a fault.
    pub fn of(packet: &[u8], hop: &Hop, contexts: &[Context]) -> Result<Self, Truncated> {
        let mut this = Self { bytes: [0; MAX_COMPRESSED_LEN], len: 0, replaces: IP_HEADER_LEN };
        let mut out = Writer::new(&mut this.bytes);
        let udp = write(packet, hop, contexts, &mut out)?;
        this.len = out.len() as u8;
        if udp {
            this.replaces = IP_HEADER_LEN.wrapping_add(UDP_HEADER_LEN);
        }
        Ok(this)
    }

    /// Returns the compressed headers.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or(&[])
    }
}

/// Writes the compressed headers. Returns true if they include the UDP header.
fn write(packet: &[u8], hop: &Hop, contexts: &[Context], out: &mut Writer<'_>) -> Result<bool, Truncated> {
    let mut reader = Reader::new(packet);
    let first = reader.array().map(u32::from_be_bytes)?;
    let payload_len = reader.u16()?;
    let [next_header, hop_limit] = reader.array()?;
    let (source, destination) = (reader.array::<16>()?, reader.array::<16>()?);
    if first >> 28 != 6 || reader.rest().len() != usize::from(payload_len) {
        return Err(Truncated);
    }
    let udp = next_header == UDP && udp_len_is_implied(reader.rest());

    let traffic = (first >> 20) as u8;
    let flow = first & 0xf_ffff;
    let (ecn, dscp) = (traffic & 3, traffic >> 2);
    let tf: u16 = match (flow, dscp, ecn) {
        (0, 0, 0) => 3,
        (0, _, _) => 2,
        (_, 0, _) => 1,
        _ => 0,
    };
    let hlim: u16 = match hop_limit {
        1 => 1,
        64 => 2,
        255 => 3,
        _ => 0,
    };
    let from = Choice::of_source(&source, &hop.source, contexts);
    let to = Choice::of_destination(&destination, &hop.destination, contexts);
    let ids = (from.context << 4) | to.context;

    let mut control: u16 = 0b011 << 13;
    control |= (tf << 11) | (u16::from(udp) << 10) | (hlim << 8);
    control |= (u16::from(ids != 0) << 7) | (from.mode << 4) | to.mode;
    let all = (|| {
        out.u16(control)?;
        if ids != 0 {
            out.u8(ids)?;
        }
        let [_, flow_high, flow_middle, flow_low] = flow.to_be_bytes();
        match tf {
            0 => out.put(&[traffic.rotate_right(2), flow_high, flow_middle, flow_low])?,
            1 => out.put(&[(ecn << 6) | flow_high, flow_middle, flow_low])?,
            2 => out.u8(traffic.rotate_right(2))?,
            _ => {}
        }
        if !udp {
            out.u8(next_header)?;
        }
        if hlim == 0 {
            out.u8(hop_limit)?;
        }
        from.write(&source, out)?;
        to.write(&destination, out)?;
        Ok::<(), Full>(())
    })();
    all.map_err(|_| Truncated)?;
    if udp {
        let mut header = Reader::new(reader.rest());
        let (source, destination) = (header.u16()?, header.u16()?);
        let _len = header.u16()?;
        write_udp(source, destination, header.u16()?, out).map_err(|_| Truncated)?;
    }
    Ok(udp)
}

/// Writes LOWPAN_NHC for UDP (RFC 6282, section 4.3), with the checksum.
fn write_udp(source: u16, destination: u16, checksum: u16, out: &mut Writer<'_>) -> Result<(), Full> {
    let ([source_high, source_low], [destination_high, destination_low]) =
        (source.to_be_bytes(), destination.to_be_bytes());
    if source & 0xfff0 == 0xf0b0 && destination & 0xfff0 == 0xf0b0 {
        out.put(&[NHC_UDP | 3, (source_low << 4) | (destination_low & 0xf)])?;
    } else if destination_high == 0xf0 {
        out.put(&[NHC_UDP | 1, source_high, source_low, destination_low])?;
    } else if source_high == 0xf0 {
        out.put(&[NHC_UDP | 2, source_low, destination_high, destination_low])?;
    } else {
        out.put(&[NHC_UDP, source_high, source_low, destination_high, destination_low])?;
    }
    out.u16(checksum)
}

/// Returns true if the length in the UDP header is the length of the whole IPv6 payload. The length can then be left
/// out.
fn udp_len_is_implied(payload: &[u8]) -> bool {
    let mut header = Reader::new(payload);
    header.take(4).is_ok() && header.u16().is_ok_and(|len| usize::from(len) == payload.len()) && header.u16().is_ok()
}

/// The form in which an address is compressed: the mode bits in the header, the context, and the bytes of the address
/// that follow the header (inline).
struct Choice {
    /// The mode bits: SAC and SAM for a source address; M, DAC and DAM for a destination address (RFC 6282, section
    /// 3.1.1).
    mode: u16,
    context: u8,
    inline: Inline,
}

enum Inline {
    /// No byte is written.
    None,
    /// The last bytes of the address are written. The value is the number of these bytes.
    Last(usize),
    /// The second byte and the last bytes of the address are written. The value is the number of the last bytes.
    SecondAndLast(usize),
    /// The second byte, the third byte and the last four bytes are written. This is the form for a multicast address
    /// that contains a unicast prefix (RFC 6282, section 3.2.4).
    Prefixed,
}

impl Choice {
    fn of_source(address: &[u8; 16], link: &LinkAddress, contexts: &[Context]) -> Self {
        // SAC=1 with SAM=00 is the unspecified address.
        if *address == [0; 16] {
            return Self { mode: 4, context: 0, inline: Inline::None };
        }
        Self::of_unicast(address, link, contexts)
    }

    fn of_destination(address: &[u8; 16], link: &LinkAddress, contexts: &[Context]) -> Self {
        let [0xff, flags, third, ..] = *address else { return Self::of_unicast(address, link, contexts) };
        let rest = |from: usize| address.get(from..).unwrap_or(&[]);
        let zeros = |from: usize, to: usize| address.get(from..to).is_some_and(|bytes| bytes.iter().all(|b| *b == 0));
        let plain = |mode, inline| Self { mode: M | mode, context: 0, inline };
        if flags == 2 && zeros(2, 15) {
            return plain(3, Inline::Last(1));
        }
        if zeros(2, 13) {
            return plain(2, Inline::SecondAndLast(3));
        }
        if zeros(2, 11) {
            return plain(1, Inline::SecondAndLast(5));
        }
        // The address has the form ffXX:XXLL:PPPP:PPPP:PPPP:PPPP:XXXX:XXXX. LL and P are the length and the prefix of a
        // context, whose prefix has at most 64 bits.
        let prefix = |context: &&Context| {
            context.len <= 64
                && rest(3).first() == Some(&context.len)
                && address.get(4..12) == context.over([0; 16]).get(..8)
        };
        let _ = third;
        match contexts.iter().find(prefix) {
            Some(context) => Self { mode: M | AC, context: context.id & 0xf, inline: Inline::Prefixed },
            None => plain(0, Inline::Last(16)),
        }
    }

    fn of_unicast(address: &[u8; 16], link: &LinkAddress, contexts: &[Context]) -> Self {
        // Chooses the form with the fewest bytes. Uses a context only if this saves bytes.
        let mut best = Self { mode: 0, context: 0, inline: Inline::Last(16) };
        let mut best_len = 16;
        for (sam, len) in [(3, 0), (2, 2), (1, 8)] {
            let base = assemble(len, address, link);
            if len >= best_len {
                break;
            }
            let Some(base) = base else { continue };
            if link_local(base) == *address {
                (best, best_len) = (Self { mode: sam, context: 0, inline: Inline::Last(len) }, len);
            } else if let Some(context) = contexts.iter().find(|context| context.over(base) == *address) {
                let inline = Inline::Last(len);
                (best, best_len) = (Self { mode: AC | sam, context: context.id & 0xf, inline }, len);
            }
        }
        best
    }

    fn write(&self, address: &[u8; 16], out: &mut Writer<'_>) -> Result<(), Full> {
        let last = |n: usize| address.get(16usize.saturating_sub(n)..).unwrap_or(&[]);
        let [_, second, third, ..] = *address;
        match self.inline {
            Inline::None => Ok(()),
            Inline::Last(n) => out.put(last(n)),
            Inline::SecondAndLast(n) => {
                out.u8(second)?;
                out.put(last(n))
            }
            Inline::Prefixed => {
                out.put(&[second, third])?;
                out.put(last(4))
            }
        }
    }
}

/// Restores the interface identifier of an IPv6 address. Returns 16 bytes: the first 8 bytes are zero, and the last 8
/// bytes are the interface identifier. The frame contains the last `len` bytes of the address, which are also the last
/// bytes of `inline`. If `len` is 0, the interface identifier is computed from the link address (RFC 6282, section
/// 3.2.2).
fn assemble(len: usize, inline: &[u8; 16], link: &LinkAddress) -> Option<[u8; 16]> {
    let id = match (len, inline) {
        (0, _) => link.interface_id()?,
        (2, [.., high, low]) => [0, 0, 0, 0xff, 0xfe, 0, *high, *low],
        (_, [_, _, _, _, _, _, _, _, id @ ..]) => *id,
    };
    let [a, b, c, d, e, f, g, h] = id;
    Some([0, 0, 0, 0, 0, 0, 0, 0, a, b, c, d, e, f, g, h])
}

fn link_local(mut address: [u8; 16]) -> [u8; 16] {
    let [first, second, ..] = &mut address;
    (*first, *second) = (0xfe, 0x80);
    address
}

/// The result of decompression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Decompressed {
    /// Number of bytes of compressed headers that were read.
    pub read: usize,
    /// Number of bytes of uncompressed headers that were written.
    pub written: usize,
}

/// Decompresses the headers at the front of `bytes`, and writes them to the front of `out`. `packet_len` is the length
/// of the uncompressed packet. If it is `None`, the payload of the packet ends at the end of `bytes`.
///
/// # Errors
/// [`HeaderError`]
pub fn decompress(
    bytes: &[u8],
    hop: &Hop,
    contexts: &[Context],
    packet_len: Option<usize>,
    out: &mut [u8],
) -> Result<Decompressed, HeaderError> {
    let mut reader = Reader::new(bytes);
    let control = reader.u16()?;
    if control >> 13 != 0b011 {
        return Err(HeaderError::Unsupported);
    }
    let ids = if control & (1 << 7) != 0 { reader.u8()? } else { 0 };
    let first = match (control >> 11) & 3 {
        0 => {
            let [traffic, flow @ ..] = reader.array::<4>()?;
            (u32::from(traffic.rotate_left(2)) << 20) | (number(flow) & 0xf_ffff)
        }
        1 => {
            let [head, middle, low] = reader.array::<3>()?;
            (u32::from(head >> 6) << 20) | (number([head, middle, low]) & 0xf_ffff)
        }
        2 => u32::from(reader.u8()?.rotate_left(2)) << 20,
        _ => 0,
    };
    let compressed_next = control & (1 << 10) != 0;
    let next_header = if compressed_next { UDP } else { reader.u8()? };
    let hop_limit = match (control >> 8) & 3 {
        0 => reader.u8()?,
        1 => 1,
        2 => 64,
        _ => 255,
    };
    let context = |id: u8| contexts.iter().find(|context| context.id == id).ok_or(HeaderError::UnknownContext(id));
    let (source_mode, destination_mode) = ((control >> 4) & 7, control & 0xf);
    let source = match source_mode {
        4 => [0; 16],
        mode => read_unicast(mode, &hop.source, || context(ids >> 4), &mut reader)?,
    };
    let destination = match destination_mode & M {
        0 if destination_mode == AC => return Err(HeaderError::Unsupported), // reserved
        0 => read_unicast(destination_mode, &hop.destination, || context(ids & 0xf), &mut reader)?,
        _ => read_multicast(destination_mode, || context(ids & 0xf), &mut reader)?,
    };

    let udp = if compressed_next { Some(read_udp(&mut reader)?) } else { None };
    let read = bytes.len().wrapping_sub(reader.rest().len());
    let headers_len = if udp.is_some() { IP_HEADER_LEN.wrapping_add(UDP_HEADER_LEN) } else { IP_HEADER_LEN };
    let packet_len = packet_len.unwrap_or(headers_len.saturating_add(reader.rest().len()));
    let payload_len = packet_len.checked_sub(IP_HEADER_LEN).and_then(|len| u16::try_from(len).ok());
    let payload_len = payload_len.ok_or(HeaderError::WrongLength)?;
    if packet_len < headers_len {
        return Err(HeaderError::WrongLength);
    }
    let mut writer = Writer::new(out);
    writer.put(&((6 << 28) | first).to_be_bytes())?;
    writer.u16(payload_len)?;
    writer.put(&[next_header, hop_limit])?;
    writer.put(&source)?;
    writer.put(&destination)?;
    if let Some((source, destination, checksum)) = udp {
        for word in [source, destination, payload_len, checksum] {
            writer.u16(word)?;
        }
    }
    Ok(Decompressed { read, written: writer.len() })
}

fn read_unicast<'c>(
    mode: u16,
    link: &LinkAddress,
    context: impl FnOnce() -> Result<&'c Context, HeaderError>,
    reader: &mut Reader<'_>,
) -> Result<[u8; 16], HeaderError> {
    let len = match mode & 3 {
        0 => return Ok(reader.array()?),
        1 => 8,
        2 => 2,
        _ => 0,
    };
    let mut inline = [0; 16];
    if let Some(room) = inline.get_mut(16usize.wrapping_sub(len)..) {
        room.copy_from_slice(reader.take(len)?);
    }
    let base = assemble(len, &inline, link).ok_or(HeaderError::NoLinkAddress)?;
    Ok(if mode & AC != 0 { context()?.over(base) } else { link_local(base) })
}

fn read_multicast<'c>(
    mode: u16,
    context: impl FnOnce() -> Result<&'c Context, HeaderError>,
    reader: &mut Reader<'_>,
) -> Result<[u8; 16], HeaderError> {
    if mode & AC != 0 {
        if mode & 3 != 0 {
            return Err(HeaderError::Unsupported); // reserved
        }
        let context = context()?;
        let [b, c, w, x, y, z] = reader.array::<6>()?;
        let [p0, p1, p2, p3, p4, p5, p6, p7, ..] = context.over([0; 16]);
        return Ok([0xff, b, c, context.len, p0, p1, p2, p3, p4, p5, p6, p7, w, x, y, z]);
    }
    Ok(match mode & 3 {
        0 => reader.array()?,
        1 => {
            let [b, v, w, x, y, z] = reader.array()?;
            [0xff, b, 0, 0, 0, 0, 0, 0, 0, 0, 0, v, w, x, y, z]
        }
        2 => {
            let [b, x, y, z] = reader.array()?;
            [0xff, b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, x, y, z]
        }
        _ => [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, reader.u8()?],
    })
}

/// Reads a compressed UDP header. Returns the source port, the destination port, and the checksum. A header without a
/// checksum is refused, because this layer does not know whether the packet has an additional integrity check (RFC
/// 6282, section 4.3.2).
fn read_udp(reader: &mut Reader<'_>) -> Result<(u16, u16, u16), HeaderError> {
    let nhc = reader.u8()?;
    if nhc & 0xf8 != NHC_UDP {
        return Err(HeaderError::Unsupported);
    }
    if nhc & 4 != 0 {
        return Err(HeaderError::NoChecksum);
    }
    let (source, destination) = match nhc & 3 {
        0 => (reader.u16()?, reader.u16()?),
        1 => (reader.u16()?, 0xf000 | u16::from(reader.u8()?)),
        2 => (0xf000 | u16::from(reader.u8()?), reader.u16()?),
        _ => {
            let both = u16::from(reader.u8()?);
            (0xf0b0 | (both >> 4), 0xf0b0 | (both & 0xf))
        }
    };
    Ok((source, destination, reader.u16()?))
}

fn number([high, middle, low]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, high, middle, low])
}

/// The reason why a packet with compressed headers is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HeaderError {
    /// The headers are not complete.
    Truncated,
    /// A dispatch, a reserved mode or a next header is not supported.
    Unsupported,
    /// The headers use a context that this node does not have.
    UnknownContext(u8),
    /// An address was left out, and the frame does not contain the link address from which to compute it.
    NoLinkAddress,
    /// The packet cannot have the length that its fragments announced.
    WrongLength,
    /// The packet is longer than the buffer.
    TooLong,
    /// The sender left out the UDP checksum. Nothing proves that the packet has an additional integrity check, so the
    /// packet is dropped (RFC 6282, section 4.3.2).
    NoChecksum,
}

impl From<Truncated> for HeaderError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

impl From<Full> for HeaderError {
    fn from(_: Full) -> Self {
        Self::TooLong
    }
}

/// The bit SAC in the mode of a source address, and the bit DAC in the mode of a destination address: the address uses
/// a context.
const AC: u16 = 4;
/// The bit M: the destination is a multicast address.
const M: u16 = 8;
/// The dispatch of LOWPAN_NHC for UDP: 11110xxx.
const NHC_UDP: u8 = 0xf0;
/// The protocol number of UDP.
const UDP: u8 = 17;
pub(super) const IP_HEADER_LEN: usize = 40;
const UDP_HEADER_LEN: usize = 8;
/// Maximum length of compressed headers in bytes: control 2, contexts 1, traffic 4, next header 1, hop limit 1,
/// addresses 32, UDP 7.
const MAX_COMPRESSED_LEN: usize = 48;

#[cfg(test)]
mod tests;
