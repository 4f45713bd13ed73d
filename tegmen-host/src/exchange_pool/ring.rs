//! Stored replies in the order of time. The memory consists of segments of one size, which all rings of a pool share.

use std::collections::VecDeque;

/// Size of a segment, in bytes. A record (a reply with its header) is always within one segment.
pub(super) const SEGMENT: usize = 16 << 10;
/// Number of segments whose memory is allocated together. Fewer and larger allocations cost less, and the system supplies
/// memory only for the pages that are used.
const BLOCK: usize = 16;
/// Records begin at multiples of this many bytes.
const UNIT: usize = 8;
/// Length of the header before the reply in a record, in bytes.
pub(super) const HEADER: usize = 16;
/// Maximum length of a stored reply, in bytes. If a reply is longer, only its header is stored.
pub(super) const REPLY_MAX: usize = 2048;
/// Maximum number of bytes of a record.
const RECORD_MAX: usize = HEADER + REPLY_MAX;

/// The position of a record: its segment, and its offset in the segment as a multiple of [`UNIT`].
pub(super) type Position = u32;

/// The header of a record, which precedes the reply and has a fixed length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// The number that the pool gave to the peer. It is never zero.
    pub(super) owner: u32,
    pub(super) print: u32,
    /// The time of the reply in ticks, see [`super::ticks`].
    pub(super) at: u32,
    pub(super) message_id: u16,
    pub(super) len: u16,
}

impl Header {
    fn bytes(self) -> [u8; HEADER] {
        let low = u64::from(self.print) << 32 | u64::from(self.owner);
        let high = u64::from(self.len) << 48 | u64::from(self.message_id) << 32 | u64::from(self.at);
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }

    /// Returns true if both replies answer the same message.
    #[inline]
    pub(super) fn is_of_message(&self, other: &Self) -> bool {
        self.owner == other.owner && self.print == other.print && self.message_id == other.message_id
    }

    #[inline]
    fn read(bytes: &[u8; HEADER]) -> Self {
        let words: u128 = u128::from_le_bytes(*bytes);
        Self {
            owner: words as u32,
            print: (words >> 32) as u32,
            at: (words >> 64) as u32,
            message_id: (words >> 96) as u16,
            len: (words >> 112) as u16,
        }
    }
}

/// The segments of a pool.
pub(super) struct Segments {
    /// The memory of the segments, [`BLOCK`] segments in each element. The last element has fewer segments if `limit`
    /// is not a multiple of [`BLOCK`].
    blocks: Vec<Box<[u8]>>,
    /// The number of segments that were used at least once.
    used: usize,
    /// The segments that belong to no ring.
    free: Vec<u32>,
    /// Maximum number of segments.
    limit: usize,
}

impl Segments {
    pub(super) fn new(limit: usize) -> Self {
        Self { blocks: Vec::new(), used: 0, free: Vec::new(), limit }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(number) = self.free.pop() {
            return Some(number);
        }
        let number = self.used;
        if number >= self.limit {
            return None;
        }
        if number == self.blocks.len() * BLOCK {
            self.blocks.push(vec![0; BLOCK.min(self.limit - number) * SEGMENT].into());
        }
        self.used += 1;
        Some(number as u32)
    }

    fn get(&self, segment: u32) -> Option<&[u8]> {
        let (block, start) = (segment as usize / BLOCK, segment as usize % BLOCK * SEGMENT);
        self.blocks.get(block)?.get(start..start + SEGMENT)
    }

    fn get_mut(&mut self, segment: u32) -> Option<&mut [u8]> {
        let (block, start) = (segment as usize / BLOCK, segment as usize % BLOCK * SEGMENT);
        self.blocks.get_mut(block)?.get_mut(start..start + SEGMENT)
    }

    #[inline]
    pub(super) fn header(&self, position: Position) -> Option<Header> {
        let (block, at) = place(position);
        let header = Header::read(self.blocks.get(block)?.get(at..)?.first_chunk()?);
        (header.owner != 0).then_some(header)
    }

    #[inline]
    pub(super) fn reply(&self, position: Position, header: &Header) -> &[u8] {
        let (block, at) = place(position);
        let record = self.blocks.get(block).and_then(|block| block.get(at + HEADER..));
        record.and_then(|record| record.get(..header.len.into())).unwrap_or(&[])
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.len()).sum::<usize>()
            + self.blocks.capacity() * size_of::<Box<[u8]>>()
            + self.free.capacity() * size_of::<u32>()
    }
}

/// Returns the index of the block of a record, and the offset in the block at which the record begins.
const fn place(position: Position) -> (usize, usize) {
    const POSITIONS: usize = BLOCK * SEGMENT / UNIT;
    (position as usize / POSITIONS, position as usize % POSITIONS * UNIT)
}

const fn position(segment: u32, at: usize) -> Position {
    segment * (SEGMENT / UNIT) as u32 + (at / UNIT) as u32
}

/// Returns the number of bytes of a record with a reply of this length.
pub(super) const fn record_len(reply: usize) -> usize {
    (HEADER + reply).next_multiple_of(UNIT)
}

/// A ring of records in the order in which they were added.
#[derive(Default)]
pub(super) struct Ring {
    segments: VecDeque<u32>,
    /// The offset of the oldest record, in the first segment.
    first: usize,
    /// The offset of the next record, in the last segment.
    end: usize,
}

impl Ring {
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    /// True if a record of maximum length fits without another segment.
    pub(super) fn has_room(&self) -> bool {
        !self.segments.is_empty() && self.end + RECORD_MAX <= SEGMENT
    }

    /// Adds a segment if a free segment exists. Returns true if the segment was added.
    pub(super) fn extend(&mut self, segments: &mut Segments) -> bool {
        let Some(number) = segments.take() else { return false };
        if let Some(last) = self.segments.back() {
            end_here(segments, *last, self.end);
        } else {
            self.first = 0;
        }
        self.segments.push_back(number);
        self.end = 0;
        true
    }

    /// Adds a record, and returns its position. Returns `None` if the last segment has no space for the record.
    pub(super) fn push(&mut self, segments: &mut Segments, header: Header, reply: &[u8]) -> Option<Position> {
        let number = *self.segments.back()?;
        let room = segments.get_mut(number)?.get_mut(self.end..)?;
        let (head, body) = room.split_first_chunk_mut::<HEADER>()?;
        body.get_mut(..reply.len())?.copy_from_slice(reply);
        *head = header.bytes();
        let at = position(number, self.end);
        self.end += record_len(reply.len());
        Some(at)
    }

    /// Removes the oldest records of the first segment, as long as `goes` returns true for them. Removes at most `most`
    /// records. Returns true if the segment became empty and was freed.
    pub(super) fn drain(
        &mut self,
        segments: &mut Segments,
        most: usize,
        mut goes: impl FnMut(Position, &Header) -> bool,
    ) -> bool {
        let Some(&number) = self.segments.front() else { return false };
        let Some(segment) = segments.get(number) else { return false };
        let end = if self.segments.len() == 1 { self.end } else { SEGMENT };
        for _ in 0..most {
            let header = segment.get(self.first..end).and_then(|rest| rest.first_chunk()).map(Header::read);
            let Some(header) = header.filter(|header| header.owner != 0) else {
                segments.free.push(number);
                self.segments.pop_front();
                self.first = 0;
                return true;
            };
            if !goes(position(number, self.first), &header) {
                return false;
            }
            self.first += record_len(header.len.into());
        }
        false
    }
}

/// Writes a mark after the last record of a segment, at the offset `at`.
fn end_here(segments: &mut Segments, number: u32, at: usize) {
    if let Some(mark) = segments.get_mut(number).and_then(|segment| segment.get_mut(at..at + 4)) {
        mark.fill(0);
    }
}
