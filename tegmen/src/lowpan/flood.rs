//! Multicast over several hops: a mesh header that names the originator, a broadcast header that numbers what it sends
//! (RFC 4944, sections 5.2 and 11.1), and a memory of what was relayed already.

use super::frame::LinkAddress;
use crate::buf::{Full, Reader, Truncated, Writer};
use crate::time::{Duration, Instant};

/// What stands before the payload of a flooded frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Hops that it may still take.
    pub hops_left: u8,
    /// Who sent it first.
    pub originator: LinkAddress,
    /// Whom it is for; usually everybody.
    pub destination: LinkAddress,
    /// The originator's number for it.
    pub sequence: u8,
}

impl Header {
    /// Reads the header at the front of a frame's payload; `None` if it begins with something else.
    ///
    /// # Errors
    /// [`Truncated`], also for a mesh header without a broadcast header: nobody here relays unicast frames.
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
    /// [`Full`], also if one of the addresses is absent.
    pub fn write(&self, out: &mut Writer<'_>) -> Result<(), Full> {
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

/// The last `N` floods that were seen. Who floods more than that within [`MEMORY`] is relayed twice at most by each
/// node, and still ends with its hops.
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
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { entries: [(LinkAddress::Absent, 0, Instant::NEVER); N], next: 0 }
    }

    /// True the first time that this flood comes.
    pub fn is_new(&mut self, now: Instant, header: &Header) -> bool {
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

/// How long a flood is remembered: longer than it takes to cross any network, shorter than 256 of them.
pub const MEMORY: Duration = Duration::from_secs(10);
/// LOWPAN_BC0.
const BC0: u8 = 0x50;
const ORIGINATOR_SHORT: u8 = 0x20;
const FINAL_SHORT: u8 = 0x10;
/// As many hops, or more: they stand in a byte of their own.
const DEEP: u8 = 0xf;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: Header =
        Header { hops_left: 3, originator: LinkAddress::Short(1), destination: LinkAddress::BROADCAST, sequence: 9 };

    #[test]
    fn a_flood_takes_seven_bytes_between_short_addresses() {
        let mut out = [0; 20];
        let mut writer = Writer::new(&mut out);
        HEADER.write(&mut writer).unwrap();
        assert_eq!(writer.written(), [0xb3, 0, 1, 0xff, 0xff, 0x50, 9]);
    }

    #[test]
    fn what_was_seen_is_not_new_until_it_is_forgotten() {
        let now = Instant::from_micros(5);
        let mut seen = Seen::<2>::new();
        assert!(seen.is_new(now, &HEADER));
        assert!(!seen.is_new(now, &HEADER));
        assert!(seen.is_new(now, &Header { sequence: 10, ..HEADER }));
        assert!(seen.is_new(now, &Header { originator: LinkAddress::Short(2), ..HEADER }));
        assert!(seen.is_new(now, &HEADER), "displaced by the two that came after");
        assert!(seen.is_new(now.after(MEMORY), &HEADER));
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(hops_left: u8, short: (bool, bool), ids: ([u8; 8], [u8; 8]), sequence: u8) {
            let address = |short: bool, id: [u8; 8]| match short {
                true => LinkAddress::Short(u16::from_be_bytes([id[0], id[1]])),
                false => LinkAddress::Extended(id),
            };
            let header = Header {
                hops_left,
                originator: address(short.0, ids.0),
                destination: address(short.1, ids.1),
                sequence,
            };
            let mut out = [0; 24];
            let mut writer = Writer::new(&mut out);
            header.write(&mut writer).unwrap();
            let mut reader = Reader::new(writer.written());
            prop_assert_eq!(Header::read(&mut reader), Ok(Some(header)));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn anything_can_be_read(bytes in proptest::collection::vec(any::<u8>(), 0..30)) {
            let _ = Header::read(&mut Reader::new(&bytes));
        }
    }
}
