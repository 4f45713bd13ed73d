//! Cuts packets that are too long for one frame into fragments, and reassembles received packets in a bounded buffer
//! (RFC 4944, section 5.3).
//!
//! A fragment contains the length of the uncompressed packet in bytes, and its own offset in this packet in units of
//! eight bytes. If one fragment is lost, the packet is lost, because this layer has no retransmission.

use super::frame::{self, LinkAddress};
use super::iphc::{self, Compressed, Context, Hop};
use tegmen_base::buf::{Full, Reader, Truncated, Writer, copy};
use tegmen_base::time::{Duration, Instant};

/// A packet that is being sent, frame by frame.
#[derive(Clone, Debug)]
pub struct Fragments<'p> {
    packet: &'p [u8],
    headers: Compressed,
    tag: u16,
    /// Number of bytes of the packet that were sent, or `None` before the first frame.
    sent: Option<usize>,
}

impl<'p> Fragments<'p> {
    /// Prepares `packet`, an uncompressed IPv6 packet, for the link. Each packet needs a different `tag`.
    ///
    /// # Errors
    /// [`Truncated`] if `packet` is not an IPv6 packet, or is too long for fragments.
    pub fn new(packet: &'p [u8], hop: &Hop, contexts: &[Context], tag: u16) -> Result<Self, Truncated> {
        if packet.len() > MAX_PACKET_LEN {
            return Err(Truncated);
        }
        Ok(Self { packet, headers: Compressed::of(packet, hop, contexts)?, tag, sent: None })
    }

    /// Prepares a payload for the link. The payload belongs to another network layer than IPv6. The payload must begin
    /// with the dispatch of that network layer, in a page of RFC 8025.
    ///
    /// # Errors
    /// [`Truncated`] if the payload does not begin with such a dispatch, or is too long for fragments.
    pub fn of_page(payload: &'p [u8], tag: u16) -> Result<Self, Truncated> {
        if payload.len() > MAX_PACKET_LEN || !payload.first().is_some_and(|first| is_page(*first)) {
            return Err(Truncated);
        }
        Ok(Self { packet: payload, headers: Compressed::NONE, tag, sent: None })
    }

    /// Returns the number of frames that the rest of the packet needs, if each frame has space for `room` bytes of
    /// payload.
    pub fn count(&self, room: usize) -> usize {
        let mut rest = self.clone();
        let mut out = [0; frame::MAX_LEN];
        let mut frames = 0usize;
        while matches!(rest.next_frame(room, &mut out), Ok(Some(_))) {
            frames = frames.saturating_add(1);
        }
        frames
    }

    /// Writes the payload of the next frame to `out`. The payload has at most `room` bytes. Returns `None` after the
    /// whole packet was sent.
    ///
    /// # Errors
    /// [`Full`] if the compressed headers do not fit into `room` bytes, or if `out` is too short for the payload.
    pub fn next_frame<'t>(&mut self, room: usize, out: &'t mut [u8]) -> Result<Option<&'t [u8]>, Full> {
        let headers = self.headers.bytes();
        let replaces = self.headers.replaces;
        let mut writer = Writer::new(out);
        let Some(sent) = self.sent else {
            let rest = self.packet.get(replaces..).unwrap_or(&[]);
            if headers.len().saturating_add(rest.len()) <= room {
                self.sent = Some(self.packet.len());
                writer.put(headers)?;
                writer.put(rest)?;
                return Ok(Some(writer.finish()));
            }
            let taken = room.checked_sub(FIRST_HEADER_LEN.wrapping_add(headers.len())).ok_or(Full)?;
            // Each fragment except the last one ends at an offset that is a multiple of 8 bytes.
            let end = replaces.wrapping_add(taken) & !7;
            let taken = end.checked_sub(replaces).ok_or(Full)?;
            writer.u16(FIRST | self.packet.len() as u16)?;
            writer.u16(self.tag)?;
            writer.put(headers)?;
            writer.put(rest.get(..taken).ok_or(Full)?)?;
            self.sent = Some(end);
            return Ok(Some(writer.finish()));
        };
        let rest = self.packet.get(sent..).unwrap_or(&[]);
        if rest.is_empty() {
            return Ok(None);
        }
        let most = room.checked_sub(NEXT_HEADER_LEN).ok_or(Full)?;
        let taken = if rest.len() <= most { rest.len() } else { most & !7 };
        if taken == 0 {
            return Err(Full);
        }
        writer.u16(NEXT | self.packet.len() as u16)?;
        writer.u16(self.tag)?;
        writer.u8((sent >> 3) as u8)?;
        writer.put(rest.get(..taken).ok_or(Full)?)?;
        self.sent = Some(sent.wrapping_add(taken));
        Ok(Some(writer.finish()))
    }
}

/// A buffer that reassembles at most `SLOTS` packets at a time, each of at most `BYTES` bytes.
///
/// If all slots are taken, a new packet replaces the oldest packet. So a sender that never completes its packets
/// cannot exclude others.
#[derive(Debug)]
pub struct Reassembly<const SLOTS: usize, const BYTES: usize> {
    slots: [Slot<BYTES>; SLOTS],
}

#[derive(Debug)]
struct Slot<const BYTES: usize> {
    /// The time of the packet's first fragment.
    since: Instant,
    hop: Hop,
    tag: u16,
    /// The length of the packet, or 0 if the slot is free.
    len: u16,
    /// One bit for each unit of eight bytes in the packet. The bit is 1 if the unit has arrived.
    have: [u32; UNITS / 32],
    bytes: [u8; BYTES],
}

impl<const BYTES: usize> Slot<BYTES> {
    /// The compiler makes all bytes zero, so that an image does not store them.
    const FREE: Self = Self {
        since: Instant::AT_ONCE,
        hop: Hop { source: LinkAddress::Absent, destination: LinkAddress::Absent },
        tag: 0,
        len: 0,
        have: [0; UNITS / 32],
        bytes: [0; BYTES],
    };

    fn put(&mut self, offset: usize, bytes: &[u8]) -> Result<(), FragmentError> {
        if self.mark(offset, offset.saturating_add(bytes.len()))? {
            copy(self.bytes.get_mut(offset..).ok_or(FragmentError::TooLong)?, bytes)?;
        }
        Ok(())
    }

    /// Records that the bytes from `start` to `end` have arrived. Returns false if all of them had arrived before: the
    /// caller then must not copy the bytes, because the bytes that came first count. Drops the packet if the fragment
    /// overlaps other fragments only in part, or if its end is after the end of the packet. Also drops the packet if a
    /// fragment other than the last ends at an offset that is not a multiple of eight (RFC 4944, section 5.3).
    fn mark(&mut self, start: usize, end: usize) -> Result<bool, FragmentError> {
        let len = usize::from(self.len);
        if end <= start || end > len || (end < len && end & 7 != 0) {
            self.len = 0;
            return Err(FragmentError::Contradicts);
        }
        let (mut new, mut old) = (false, false);
        for unit in (start >> 3)..end.div_ceil(8) {
            let Some(word) = self.have.get_mut(unit >> 5) else { continue };
            let bit = 1u32.wrapping_shl(unit as u32 & 31);
            (new, old) = (new | (*word & bit == 0), old | (*word & bit != 0));
            *word |= bit;
        }
        if new && old {
            self.len = 0;
            return Err(FragmentError::Contradicts);
        }
        Ok(new)
    }

    /// Returns the packet in the slot if all its fragments have arrived, and frees the slot. Otherwise returns `None`.
    fn complete(&mut self) -> Option<&mut [u8]> {
        let units = usize::from(self.len).div_ceil(8);
        let whole = (0..units)
            .all(|unit| self.have.get(unit >> 5).is_some_and(|word| word & 1u32.wrapping_shl(unit as u32 & 31) != 0));
        if !whole {
            return None;
        }
        let len = core::mem::take(&mut self.len);
        self.bytes.get_mut(..len.into())
    }
}

impl<const SLOTS: usize, const BYTES: usize> Default for Reassembly<SLOTS, BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const SLOTS: usize, const BYTES: usize> Reassembly<SLOTS, BYTES> {
    /// Makes an empty buffer.
    pub const fn new() -> Self {
        const { assert!(SLOTS > 0 && BYTES >= 48, "at least one slot, which can hold the headers of a packet") }
        Self { slots: [const { Slot::FREE }; SLOTS] }
    }

    /// Receives the payload of a frame. Returns the IPv6 packet, if the frame completes it.
    ///
    /// # Errors
    /// [`FragmentError`] is the reason why the frame is dropped. If the frame contradicts an incomplete packet in the
    /// buffer, this packet is also dropped.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        hop: &Hop,
        contexts: &[Context],
        payload: &[u8],
    ) -> Result<Option<&mut [u8]>, FragmentError> {
        let mut reader = Reader::new(payload);
        let slot = match payload.first().copied().ok_or(FragmentError::Truncated)? {
            IPV6 | 0x60..=0x7f => self.receive_whole(now, hop, contexts, payload)?,
            0xc0..=0xc7 => {
                let (len, tag) = (reader.u16()? & LEN_MASK, reader.u16()?);
                self.receive_first(now, hop, contexts, (len, tag), reader.rest())?
            }
            0xe0..=0xe7 => {
                let (len, tag) = (reader.u16()? & LEN_MASK, reader.u16()?);
                let offset = usize::from(reader.u8()?) << 3;
                let slot = self.slot(now, hop, len, tag)?;
                slot.put(offset, reader.rest())?;
                slot
            }
            other => return Err(FragmentError::Dispatch(other)),
        };
        Ok(slot.complete())
    }

    /// Receives the payload of a frame that belongs to another network layer than IPv6. Returns the whole payload, if
    /// the frame completes it. The payload begins with a dispatch in a page of RFC 8025, and this layer does not
    /// compress it. A payload that is whole in one frame needs no slot, so it does not replace an incomplete payload.
    ///
    /// # Errors
    /// [`FragmentError`] is the reason why the frame is dropped. If the frame contradicts an incomplete payload in the
    /// buffer, this payload is also dropped.
    pub fn receive_page<'a>(
        &'a mut self,
        now: Instant,
        hop: &Hop,
        payload: &'a [u8],
    ) -> Result<Option<&'a [u8]>, FragmentError> {
        let mut reader = Reader::new(payload);
        let first = payload.first().copied().ok_or(FragmentError::Truncated)?;
        if is_page(first) {
            return if payload.len() > BYTES { Err(FragmentError::TooLong) } else { Ok(Some(payload)) };
        }
        let is_first = match first & 0xf8 {
            0xc0 => true,
            0xe0 => false,
            _ => return Err(FragmentError::Dispatch(first)),
        };
        let (len, tag) = (reader.u16()? & LEN_MASK, reader.u16()?);
        let offset = if is_first { 0 } else { usize::from(reader.u8()?) << 3 };
        match reader.rest().first() {
            Some(page) if !is_first || is_page(*page) => {}
            Some(other) => return Err(FragmentError::Dispatch(*other)),
            None => return Err(FragmentError::Truncated),
        }
        let slot = self.slot(now, hop, len, tag)?;
        slot.put(offset, reader.rest())?;
        Ok(slot.complete().map(|payload| &*payload))
    }

    /// Removes incomplete packets that began longer than `TIMEOUT` ago.
    pub fn expire(&mut self, now: Instant) {
        for slot in &mut self.slots {
            if age(now, slot.since) >= TIMEOUT_MICROS {
                slot.len = 0;
            }
        }
    }

    /// Returns the number of packets that wait for fragments.
    pub fn pending(&self) -> usize {
        self.slots.iter().filter(|slot| slot.len != 0).count()
    }

    fn receive_whole(
        &mut self,
        now: Instant,
        hop: &Hop,
        contexts: &[Context],
        payload: &[u8],
    ) -> Result<&mut Slot<BYTES>, FragmentError> {
        let index = self.free();
        let slot = self.slots.get_mut(index).ok_or(FragmentError::TooLong)?;
        let len = match payload {
            [IPV6, packet @ ..] => {
                copy(&mut slot.bytes, packet)?;
                packet.len()
            }
            _ => {
                let read = iphc::decompress(payload, hop, contexts, None, &mut slot.bytes)?;
                let rest = payload.get(read.read..).unwrap_or(&[]);
                copy(slot.bytes.get_mut(read.written..).ok_or(FragmentError::TooLong)?, rest)?;
                read.written.saturating_add(rest.len())
            }
        };
        if len > MAX_PACKET_LEN {
            return Err(FragmentError::TooLong);
        }
        (slot.since, slot.len) = (now, len as u16);
        slot.have = [u32::MAX; UNITS / 32];
        Ok(slot)
    }

    fn receive_first(
        &mut self,
        now: Instant,
        hop: &Hop,
        contexts: &[Context],
        (len, tag): (u16, u16),
        rest: &[u8],
    ) -> Result<&mut Slot<BYTES>, FragmentError> {
        let mut headers = [0; HEADERS_LEN];
        let (written, read) = match rest {
            [IPV6, ..] => (0, 1),
            _ => {
                let read = iphc::decompress(rest, hop, contexts, Some(len.into()), &mut headers)?;
                (read.written, read.read)
            }
        };
        let slot = self.slot(now, hop, len, tag)?;
        let payload = rest.get(read..).unwrap_or(&[]);
        // The headers alone need not end at a multiple of 8 bytes. So the headers and the payload of the first fragment
        // are marked together.
        let end = written.saturating_add(payload.len());
        if slot.mark(0, end)? {
            copy(&mut slot.bytes, headers.get(..written).unwrap_or(&[]))?;
            copy(slot.bytes.get_mut(written..).ok_or(FragmentError::TooLong)?, payload)?;
        }
        Ok(slot)
    }

    /// Returns the slot for the packet to which a fragment belongs. If no slot has this packet yet, takes a slot for it.
    fn slot(&mut self, now: Instant, hop: &Hop, len: u16, tag: u16) -> Result<&mut Slot<BYTES>, FragmentError> {
        self.expire(now);
        if usize::from(len) > BYTES {
            return Err(FragmentError::TooLong);
        }
        if usize::from(len) < iphc::IP_HEADER_LEN {
            return Err(FragmentError::Contradicts);
        }
        // `len` is not 0, so a free slot is not found.
        let known = |slot: &Slot<BYTES>| slot.len == len && slot.tag == tag && slot.hop == *hop;
        let found = self.slots.iter().position(known);
        let index = found.unwrap_or_else(|| self.free());
        let slot = self.slots.get_mut(index).ok_or(FragmentError::TooLong)?;
        if slot.len == 0 {
            (slot.since, slot.hop, slot.tag, slot.len) = (now, *hop, tag, len);
            slot.have = [0; UNITS / 32];
        }
        Ok(slot)
    }

    /// Returns the index of a free slot. If no slot is free, drops the oldest packet and returns the index of its slot.
    fn free(&mut self) -> usize {
        let (mut earliest, mut oldest) = (Instant::NEVER, 0);
        for (index, slot) in self.slots.iter().enumerate() {
            let since = if slot.len == 0 { Instant::AT_ONCE } else { slot.since };
            if since <= earliest {
                (earliest, oldest) = (since, index);
            }
        }
        if let Some(slot) = self.slots.get_mut(oldest) {
            slot.len = 0;
        }
        oldest
    }
}

/// The reason why a frame's payload is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FragmentError {
    /// The fragment ends before its headers end.
    Truncated,
    /// The fragment begins with an unknown dispatch.
    Dispatch(u8),
    /// The compressed headers of the packet are refused.
    Headers(iphc::HeaderError),
    /// The packet is longer than a slot.
    TooLong,
    /// The fragment contradicts its packet: it overlaps other fragments only in part, ends after the packet, or ends at
    /// an offset that is not a multiple of eight without being the last fragment. Or the packet is shorter than an IPv6
    /// header.
    Contradicts,
}

impl From<Truncated> for FragmentError {
    fn from(_: Truncated) -> Self {
        Self::Truncated
    }
}

impl From<Full> for FragmentError {
    fn from(_: Full) -> Self {
        Self::TooLong
    }
}

impl From<iphc::HeaderError> for FragmentError {
    fn from(refused: iphc::HeaderError) -> Self {
        Self::Headers(refused)
    }
}

/// The time limit for the fragments of a packet (RFC 4944, section 5.3).
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
const TIMEOUT_MICROS: u64 = TIMEOUT.as_micros() as u64;
/// Length of the longest packet in bytes: the largest number of 11 bits.
pub(crate) const MAX_PACKET_LEN: usize = 2047;
/// Returns true if this first byte selects a page of dispatches other than page 0 (RFC 8025, section 3).
const fn is_page(first: u8) -> bool {
    first > 0xf0
}

/// The dispatch of an uncompressed IPv6 header.
const IPV6: u8 = 0x41;
const FIRST: u16 = 0b11000 << 11;
const NEXT: u16 = 0b11100 << 11;
const LEN_MASK: u16 = 0x7ff;
const FIRST_HEADER_LEN: usize = 4;
const NEXT_HEADER_LEN: usize = 5;
/// Number of units of eight bytes in the longest packet.
const UNITS: usize = 256;
/// Length of the IPv6 and UDP headers in bytes.
const HEADERS_LEN: usize = 48;

/// Returns the time from `since` to `now` in microseconds. A [`Duration`] would need a division of 64 bits.
const fn age(now: Instant, since: Instant) -> u64 {
    now.as_micros().saturating_sub(since.as_micros())
}

#[cfg(test)]
mod tests;
