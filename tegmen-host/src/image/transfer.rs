//! The state of a transfer at the sender of an image.

use super::{ImageId, ImageReport, UNIT, Units};
use crate::digest::{Digest, sha256};
use std::collections::BTreeMap;
use std::net::IpAddr;
use tegmen::coap::{Block, block};

/// Number of blocks that a Block1 option can number (RFC 7959, section 2.2).
const MAX_BLOCKS: usize = 1 << 20;
/// Length in bytes of a report that fits in any response.
const REPORT: usize = 256;
/// The sender gives up after this number of successive requests for reports, if no report showed progress. A report
/// that the member is still receiving another image counts as progress, because this member can take the image of the
/// sender later.
const MAX_IDLE: u32 = 3;

/// The reason why bytes cannot be sent as an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAnImage {
    /// The image is empty.
    #[error("the image is empty")]
    Empty,
    /// The image has more blocks than a Block1 option can number.
    #[error(
        "the image has {size} bytes, and with blocks of {block} bytes at most {max} can be sent: send larger blocks"
    )]
    TooLarge {
        /// The size of the image in bytes.
        size: usize,
        /// The size of a block in bytes.
        block: usize,
        /// Maximum number of bytes of an image in blocks of this size.
        max: usize,
    },
    /// The size of the blocks is not 64, 128, 256, 512 or 1024 bytes.
    #[error("a block has 64, 128, 256, 512 or 1024 bytes")]
    Block,
}

/// The next step of the sender of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advance {
    /// Send [`ImageTransfer::blocks`], and request the reports again. If no member lacks a block now, only request the
    /// reports again.
    Again,
    /// All members that answered have the image, and no member that was expected to answer is missing.
    Done,
    /// The last requests brought no progress, or all members without the image refuse it.
    GivenUp,
}

/// The transfer of an image to the members of a group. Request the report of each member, pass it to [`Self::note`],
/// and then call [`Self::advance`]. After [`Advance::Again`] send [`Self::blocks`], and request the reports again.
#[derive(Debug)]
pub struct ImageTransfer<'i> {
    image: &'i [u8],
    digest: Digest,
    id: ImageId,
    block: Block,
    members: BTreeMap<IpAddr, ImageReport>,
    /// Number of requests for reports since the last report that showed progress of a member.
    idle: u32,
    /// True if a report of a member has changed since the last call of [`Self::advance`].
    is_further: bool,
}

impl<'i> ImageTransfer<'i> {
    /// Begins to send an image in blocks of `block` bytes.
    ///
    /// # Errors
    /// [`NotAnImage`] if the image is empty or too large, or if the block size is not valid.
    pub fn new(image: &'i [u8], block: usize) -> Result<Self, NotAnImage> {
        let first = Block::first(block);
        if first.size() != block || block < UNIT as usize || block > block::MAX_SIZE {
            return Err(NotAnImage::Block);
        }
        let max = MAX_BLOCKS.saturating_mul(block);
        let size = u32::try_from(image.len()).ok().filter(|_| image.len() <= max);
        let size = size.ok_or(NotAnImage::TooLarge { size: image.len(), block, max })?;
        if size == 0 {
            return Err(NotAnImage::Empty);
        }
        let digest = sha256(image);
        let id = ImageId::new(&digest, size);
        Ok(Self { image, digest, id, block: first, members: BTreeMap::new(), idle: 0, is_further: false })
    }

    /// Returns the name of the image.
    pub const fn id(&self) -> ImageId {
        self.id
    }

    /// Returns the SHA-256 digest of the image.
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Returns the block option of the requests with which the sender asks members for their reports. The option asks
    /// for blocks of 256 bytes. If the blocks of the image are larger than 256 bytes, the option asks for blocks of
    /// that larger size.
    pub fn report_block(&self) -> Block {
        Block::first(self.block.size().max(REPORT))
    }

    /// Notes the report of a member.
    pub fn note(&mut self, member: IpAddr, report: ImageReport) {
        let before = self.members.insert(member, report);
        let now = self.members.get(&member);
        self.is_further |= before.as_ref() != now;
    }

    /// Returns the last report of each member.
    pub const fn members(&self) -> &BTreeMap<IpAddr, ImageReport> {
        &self.members
    }

    /// True if the report shows that its member has the image.
    pub fn is_complete(&self, report: &ImageReport) -> bool {
        *report == ImageReport::Complete(self.digest)
    }

    /// Returns the next step. Call this when a request for reports has ended. `is_missing` is true if an expected
    /// member did not respond.
    pub fn advance(&mut self, is_missing: bool) -> Advance {
        let all = !self.members.is_empty() && self.members.values().all(|report| self.is_complete(report));
        if all && !is_missing {
            return Advance::Done;
        }
        let is_settled = |report: &ImageReport| matches!(report, ImageReport::Complete(_) | ImageReport::TooLarge(_));
        if !is_missing && !self.members.is_empty() && self.members.values().all(is_settled) {
            return Advance::GivenUp;
        }
        // A member that receives another image takes this one after no new block of the other came for 60 seconds.
        let is_busy = self.members.values().any(|report| matches!(report, ImageReport::Busy(_)));
        let is_further = std::mem::take(&mut self.is_further) || is_busy;
        self.idle = if is_further { 0 } else { self.idle + 1 };
        if self.idle < MAX_IDLE { Advance::Again } else { Advance::GivenUp }
    }

    /// Returns each block that at least one member lacks in its last report, and the bytes of the block. The blocks are
    /// in the order of the image.
    pub fn blocks(&self) -> impl Iterator<Item = (Block, &'i [u8])> + use<'i> {
        let mut lacking = Units::none(self.id.units());
        for report in self.members.values() {
            if let ImageReport::Lacks(gaps) = report {
                for gap in gaps {
                    lacking.add(gap.clone());
                }
            }
        }
        let (first, units) = (self.block, self.block.size() as u32 / UNIT);
        let blocks = self.image.chunks(first.size()).zip(0_u32..);
        let last = self.image.len().div_ceil(first.size()).saturating_sub(1);
        blocks.filter_map(move |(bytes, number)| {
            let is_lacking = (number * units..(number + 1) * units).any(|unit| lacking.has(unit));
            is_lacking.then_some((Block { number, more: (number as usize) < last, ..first }, bytes))
        })
    }
}
