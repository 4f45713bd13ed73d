//! Reads packets from a stream, which is a sequence of elements.

use tegmen_ndn::MAX_PACKET;
use tegmen_ndn::lp::MAX_FIELDS;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Reads elements from a stream.
pub(crate) struct Framed<R> {
    reader: R,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Length of the longest accepted element in bytes.
const LONGEST: usize = MAX_PACKET + MAX_FIELDS;

impl<R: AsyncRead + Unpin> Framed<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, buffer: vec![0; 8 * LONGEST].into(), start: 0, end: 0 }
    }

    /// Waits for the next element. Returns `None` at the end of the stream, or if the next bytes are not an element of
    /// an accepted length.
    pub(crate) async fn next(&mut self) -> Option<&mut [u8]> {
        while self.arrived()? == 0 {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            }
            if self.start + LONGEST > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            match self.reader.read(self.buffer.get_mut(self.end..)?).await {
                Ok(0) | Err(_) => return None,
                Ok(len) => self.end += len,
            }
        }
        self.next_arrived()
    }

    /// Returns the next element if it has arrived completely.
    pub(crate) fn next_arrived(&mut self) -> Option<&mut [u8]> {
        let (start, len) = (self.start, self.arrived().filter(|len| *len > 0)?);
        self.start += len;
        self.buffer.get_mut(start..start + len)
    }

    /// Returns the length of the next element if it has arrived completely, and otherwise 0. Returns `None` if the next
    /// bytes are not an element of an accepted length.
    fn arrived(&self) -> Option<usize> {
        match head(self.buffer.get(self.start..self.end)?) {
            Head::Element(len) if len > LONGEST => None,
            Head::Element(len) if self.end - self.start >= len => Some(len),
            Head::Element(_) | Head::Truncated => Some(0),
            Head::Nothing => None,
        }
    }
}

enum Head {
    /// The length of the whole element in bytes.
    Element(usize),
    Truncated,
    Nothing,
}

/// Reads the type and the length of an element.
fn head(bytes: &[u8]) -> Head {
    let number = |bytes: &[u8]| -> Option<(u64, usize)> {
        let len = match bytes.first()? {
            253 => 2,
            254 => 4,
            255 => 8,
            number => return Some(((*number).into(), 1)),
        };
        let value = bytes.get(1..1 + len)?;
        Some((value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)), 1 + len))
    };
    let Some((kind, kind_len)) = number(bytes) else { return Head::Truncated };
    if !matches!(kind, 5 | 6 | 100) {
        return Head::Nothing;
    }
    let Some((len, len_len)) = number(bytes.get(kind_len..).unwrap_or(&[])) else { return Head::Truncated };
    usize::try_from(len).map_or(Head::Nothing, |len| Head::Element(len.saturating_add(kind_len + len_len)))
}
