//! Multicast over several hops. A flooded frame has a mesh header that names the originator, and a broadcast header
//! with a sequence number (RFC 4944, sections 5.2 and 11.1). Each node keeps a record of the frames that it relayed.

use super::frame::LinkAddress;
use tegmen_base::buf::{Full, Reader, Truncated, Writer};
use tegmen_base::time::{Duration, Instant};

/// The headers before the payload of a flooded frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Number of hops that the frame may still take.
    pub hops_left: u8,
    /// The address of the node that sent the frame first.
    pub originator: LinkAddress,
    /// The destination of the frame; usually the broadcast address.
    pub destination: LinkAddress,
    /// The sequence number that the originator gave to the flood.
    pub sequence: u8,
}

impl Header {
    /// Reads the mesh header and the broadcast header at the front of a frame's payload. Returns `None` if the payload
    /// begins with another header.
    ///
    /// # Errors
    /// [`Truncated`], also for a mesh header without a broadcast header, because this crate does not relay unicast
    /// frames.
    pub fn read(bytes: &mut Reader<'_>) -> Result<Option<Self>, Truncated> {
        let Some(first) = bytes.rest().first().copied().filter(|first| first >> 6 == 0b10) else { return Ok(None) };
        bytes.u8()?;
        let hops_left = match first & 0xf {
            DEEP => bytes.u8()?,
            hops => hops,
        };
        let originator = read_address(first & ORIGINATOR_SHORT != 0, bytes)?;
        let destination = read_address(first & FINAL_SHORT != 0, bytes)?;
        if bytes.u8()? != BC0 {
            return Err(Truncated);
        }
        Ok(Some(Self { hops_left, originator, destination, sequence: bytes.u8()? }))
    }

    /// Writes the header.
    ///
    /// # Errors
    /// [`Full`], also if one of the addresses is [`LinkAddress::Absent`].
    pub(crate) fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
        let bit = |address: &LinkAddress, bit| match address {
            LinkAddress::Short(_) => Ok(bit),
            LinkAddress::Extended(_) => Ok(0),
            LinkAddress::Absent => Err(Full),
        };
        let deep = self.hops_left >= DEEP;
        let hops = if deep { DEEP } else { self.hops_left };
        out.u8(0x80 | bit(&self.originator, ORIGINATOR_SHORT)? | bit(&self.destination, FINAL_SHORT)? | hops)?;
        if deep {
            out.u8(self.hops_left)?;
        }
        for address in [&self.originator, &self.destination] {
            match address {
                LinkAddress::Short(short) => out.u16(*short)?,
                LinkAddress::Extended(extended) => out.put(extended)?,
                LinkAddress::Absent => {}
            }
        }
        out.put(&[BC0, self.sequence])
    }
}

fn read_address(short: bool, bytes: &mut Reader<'_>) -> Result<LinkAddress, Truncated> {
    Ok(if short { LinkAddress::Short(bytes.u16()?) } else { LinkAddress::Extended(bytes.array()?) })
}

/// A record of the last `N` floods that this node received. The node remembers each flood for 10 seconds. If more than
/// `N` floods arrive in this time, the node forgets the oldest flood, and may relay a frame of that flood again. The
/// hop limit in the frame still ends the flood.
#[derive(Debug)]
pub struct Seen<const N: usize> {
    entries: [(LinkAddress, u8, Instant); N],
    next: usize,
}

impl<const N: usize> Default for Seen<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Seen<N> {
    /// Makes a record without floods.
    pub(crate) const fn new() -> Self {
        Self { entries: [(LinkAddress::Absent, 0, Instant::NEVER); N], next: 0 }
    }

    /// Returns true for the first frame of a flood, and remembers the flood. Two frames belong to one flood if the
    /// originator and the sequence number are the same.
    pub(crate) fn is_new(&mut self, now: Instant, header: &Header) -> bool {
        let known = |(originator, sequence, at): &(LinkAddress, u8, Instant)| {
            *originator == header.originator
                && *sequence == header.sequence
                && *at != Instant::NEVER
                && now.since(*at) < MEMORY
        };
        if self.entries.iter().any(known) {
            return false;
        }
        if let Some(entry) = self.entries.get_mut(self.next) {
            *entry = (header.originator, header.sequence, now);
        }
        self.next = self.next.wrapping_add(1);
        if self.next >= N {
            self.next = 0;
        }
        true
    }
}

/// The time for which a node remembers a flood. A flood crosses a network in less than this time. An originator uses a
/// sequence number again after 256 floods, and 256 floods take longer than this time.
pub(crate) const MEMORY: Duration = Duration::from_secs(10);
/// The dispatch LOWPAN_BC0.
const BC0: u8 = 0x50;
const ORIGINATOR_SHORT: u8 = 0x20;
const FINAL_SHORT: u8 = 0x10;
/// The value of the hop field in the mesh header if the number of hops is 15 or more. The number of hops is then in a
/// separate byte after the field.
const DEEP: u8 = 0xf;

#[cfg(test)]
mod tests;
