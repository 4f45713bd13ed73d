//! The report of a member on an image.

use super::ImageId;
use crate::cbor::{self, Malformed, MapWriter};
use crate::digest::Digest;
use std::ops::Range;

/// The report of a member about one image: which parts of the image the member lacks. The report is a CBOR map with one
/// entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ImageReport {
    /// Label 1: the member has the image with this SHA-256 digest.
    Complete(Digest),
    /// Label 2: the member lacks these units (parts of 64 bytes of the image), and possibly later units that did not
    /// fit in the report. An empty list means that the member has all units, and is now verifying the image. The
    /// encoding is an array of counts of units, which alternate: the number of units that the member has, the number of
    /// the following units that it lacks, the number of the following units that it has, and so on.
    Lacks(Vec<Range<u32>>),
    /// Label 3: the member is receiving another image. The value is the first bytes of the digest of that other image.
    Busy([u8; 8]),
    /// Label 4: the member accepts only images of at most this number of bytes.
    TooLarge(u32),
}

const COMPLETE: i64 = 1;
const LACKS: i64 = 2;
const BUSY: i64 = 3;
const TOO_LARGE: i64 = 4;
/// Number of bytes of the encoded map without the counts of units: the head of the map, the label, and the head of the
/// array.
const HEAD: usize = 1 + 1 + 3;

impl ImageReport {
    /// Returns a report of the missing units in `gaps`. If a report of `longest` bytes cannot hold all gaps, it
    /// contains only the first gaps.
    pub(crate) fn of_gaps(gaps: impl Iterator<Item = Range<u32>>, longest: usize) -> Self {
        let (mut len, mut end) = (HEAD, 0);
        let fits = |gap: &Range<u32>| {
            len += len_of(gap.start - end) + len_of(gap.end - gap.start);
            end = gap.end;
            len <= longest
        };
        Self::Lacks(gaps.take_while(fits).collect())
    }

    /// Writes the report.
    pub fn write(&self) -> Vec<u8> {
        let mut map = MapWriter::default();
        match self {
            Self::Complete(digest) => map.entry(COMPLETE, |encoder| cbor::bytes(encoder, digest)),
            Self::Lacks(gaps) => map.entry(LACKS, |encoder| {
                encoder.array(2 * gaps.len() as u64)?;
                let mut end = 0;
                for gap in gaps {
                    encoder.u32(gap.start.saturating_sub(end))?.u32(gap.end.saturating_sub(gap.start))?;
                    end = gap.end;
                }
                Ok(())
            }),
            Self::Busy(digest) => map.entry(BUSY, |encoder| cbor::bytes(encoder, digest)),
            Self::TooLarge(max) => map.entry(TOO_LARGE, |encoder| cbor::number(encoder, u64::from(*max))),
        };
        map.finish().to_vec()
    }

    /// Reads a report on an image.
    ///
    /// # Errors
    /// [`Malformed`], also if a range is empty or after the end of the image.
    pub fn read(bytes: &[u8], id: ImageId) -> Result<Self, Malformed> {
        let mut report = None;
        cbor::read_message(bytes, |label, decoder| {
            let wrong = Malformed::Value(label);
            report = Some(match label {
                COMPLETE => Self::Complete(decoder.bytes()?.try_into().map_err(|_| wrong)?),
                LACKS => {
                    let (mut gaps, mut at, mut is_gap) = (Vec::new(), 0_u32, false);
                    cbor::read_array(decoder, |decoder| {
                        let end = at.checked_add(decoder.u32()?).filter(|end| *end <= id.units()).ok_or(wrong)?;
                        if is_gap {
                            gaps.push(at..end);
                        }
                        // Two gaps are not beside each other, and none is empty.
                        if at == end && (is_gap || !gaps.is_empty()) {
                            return Err(wrong);
                        }
                        (at, is_gap) = (end, !is_gap);
                        Ok(())
                    })?;
                    if is_gap {
                        return Err(wrong);
                    }
                    Self::Lacks(gaps)
                }
                BUSY => Self::Busy(decoder.bytes()?.try_into().map_err(|_| wrong)?),
                TOO_LARGE => Self::TooLarge(decoder.u32()?),
                _ => return Ok(false),
            });
            Ok(true)
        })?;
        report.ok_or(Malformed::Missing(LACKS))
    }
}

/// Returns the number of bytes of a CBOR number (RFC 8949, section 3).
const fn len_of(number: u32) -> usize {
    match number {
        0..24 => 1,
        24..0x100 => 2,
        0x100..0x1_0000 => 3,
        _ => 5,
    }
}
