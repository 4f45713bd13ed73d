//! A file that a group receives as an image, in blocks that may arrive in any order (see [`crate::image`]).
//!
//! The received bytes are in a hidden file beside the file that they will replace. The hidden file also has a bit for
//! each unit of 64 bytes, which shows whether the unit was received. So a transfer continues after a restart. After a
//! power cut, received units may be missing on disk: then the digest does not match, and the transfer starts again.

use super::files::{Stamp, Trouble, trouble};
use crate::digest::Digest;
use crate::image::{ImageId, ImageReport, Units, units_of};
use sha2::{Digest as _, Sha256};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::time::Instant;
use tegmen_store::files::{directory_of, rename};

/// The time without a new block after which another image can replace an incomplete image.
const PATIENCE: Duration = Duration::from_secs(60);
/// The first bytes of the trailer. The trailer is at the end of the hidden file of an incomplete image.
const MAGIC: [u8; 8] = *b"tegmen i";
/// Length of the trailer in bytes: [`MAGIC`] (8), the digest in the name of the image (8), and the size of the image
/// (4).
const END: usize = 8 + 8 + 4;
/// Number of bytes of a file that one step reads when the digest of the file is computed.
const READ: usize = 64 * 1024;

/// A file that is replaced by a received image, after all blocks of the image have arrived and the digest of the image
/// has been verified.
#[derive(Debug)]
pub struct Image {
    file: PathBuf,
    max: u32,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The digest of the file, and the state of the file when the digest was computed.
    known: Option<(Stamp, Digest)>,
    incoming: Incoming,
}

/// The image that is being received.
#[derive(Debug)]
enum Incoming {
    Nothing,
    Receiving(Receiving),
    Verifying(ImageId),
}

/// An image of which blocks are missing.
#[derive(Debug)]
struct Receiving {
    id: ImageId,
    part: Part,
    units: Units,
    /// The time of the last new block.
    last: Instant,
}

/// The result of receiving a block.
#[derive(Debug)]
pub(super) enum Taken {
    /// Further blocks are missing.
    Incomplete,
    /// All blocks have arrived, and [`Image::finish`] has to verify them.
    Whole(Whole),
    /// The file already has the content of this image.
    Known,
}

/// All blocks of an image, which are not verified yet.
#[derive(Debug)]
pub(super) struct Whole {
    id: ImageId,
    part: Part,
}

impl Image {
    /// Returns the receiver of images that replace `file`. An image can have at most `max` bytes. Continues an
    /// incomplete transfer of an earlier process.
    ///
    /// # Errors
    /// The error of the system, if the directory of the file does not exist, or the file cannot be read.
    pub fn new(file: PathBuf, max: u32, now: Instant) -> io::Result<Self> {
        if !directory_of(&file).is_dir() || file.file_name().is_none() || file.is_dir() {
            return Err(io::Error::new(
                ErrorKind::NotFound,
                "no file can be made here: name one in a directory that is there",
            ));
        }
        let part = Part::path(&file);
        let image = Self { file, max, state: Mutex::new(State { known: None, incoming: Incoming::Nothing }) };
        match Receiving::again(&part, max, now) {
            // The process ended before the image was verified. One that is wrong is removed, and the transfer starts over.
            Some(Receiving { id, part, units, .. }) if units.is_whole() => drop(image.finish(Whole { id, part })),
            Some(receiving) => image.lock().incoming = Incoming::Receiving(receiving),
            None => {}
        }
        // Hashed now, and not when the first question comes.
        image.lock().digest(&image.file, None)?;
        Ok(image)
    }

    /// Returns the path of the file that contains the image.
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports the missing units of an image, in at most `longest` bytes.
    pub(super) fn report(&self, id: ImageId, longest: usize, now: Instant) -> Result<ImageReport, Trouble> {
        let mut state = self.lock();
        if id.size > self.max {
            return Ok(ImageReport::TooLarge(self.max));
        }
        if let Some(digest) = state.digest(&self.file, Some(id)).map_err(|error| trouble(&self.file, &error))? {
            return Ok(ImageReport::Complete(digest));
        }
        Ok(match &state.incoming {
            Incoming::Receiving(receiving) if receiving.id == id => {
                ImageReport::of_gaps(receiving.units.gaps(), longest)
            }
            Incoming::Verifying(verifying) if *verifying == id => ImageReport::Lacks(Vec::new()),
            Incoming::Receiving(receiving) if receiving.is_fresh(now) => ImageReport::Busy(receiving.id.digest),
            Incoming::Verifying(verifying) => ImageReport::Busy(verifying.digest),
            // One gap is the whole image.
            _ => ImageReport::of_gaps(std::iter::once(0..id.units()), longest),
        })
    }

    /// Writes `bytes` into the image at the offset `start`. A block that was already received changes nothing.
    pub(super) fn take(&self, id: ImageId, start: u32, bytes: &[u8], now: Instant) -> Result<Taken, Trouble> {
        let units = units_of(start, bytes.len(), id.size).ok_or(Code::BAD_REQUEST)?;
        if id.size > self.max {
            return Err(Code::REQUEST_ENTITY_TOO_LARGE.into());
        }
        let mut state = self.lock();
        let is_it = match &state.incoming {
            Incoming::Receiving(receiving) if receiving.id == id => true,
            Incoming::Verifying(verifying) if *verifying == id => return Ok(Taken::Incomplete),
            // Otherwise blocks of two images take turns, and none of the two is ever complete.
            Incoming::Receiving(receiving) if receiving.is_fresh(now) => return Err(Code::CONFLICT.into()),
            Incoming::Verifying(_) => return Err(Code::CONFLICT.into()),
            Incoming::Receiving(_) | Incoming::Nothing => false,
        };
        let part = Part::path(&self.file);
        let failed = |error: io::Error| trouble(&part, &error);
        if !is_it {
            if state.digest(&self.file, Some(id)).map_err(failed)?.is_some() {
                return Ok(Taken::Known);
            }
            state.incoming = Incoming::Nothing;
            state.incoming = Incoming::Receiving(Receiving::new(&part, id, now).map_err(failed)?);
        }
        let Incoming::Receiving(receiving) = &mut state.incoming else { return Ok(Taken::Incomplete) };
        receiving.add((start, bytes), units, now).map_err(failed)?;
        if !receiving.units.is_whole() {
            return Ok(Taken::Incomplete);
        }
        match std::mem::replace(&mut state.incoming, Incoming::Verifying(id)) {
            Incoming::Receiving(Receiving { part, .. }) => Ok(Taken::Whole(Whole { id, part })),
            other => {
                state.incoming = other;
                Ok(Taken::Incomplete)
            }
        }
    }

    /// Verifies the digest of an image, and replaces the file with the image. This reads the whole image, and waits for
    /// the disk.
    pub(super) fn finish(&self, whole: Whole) -> Result<(), Trouble> {
        let Whole { id, mut part } = whole;
        let finished = part.finish(id, &self.file);
        let mut state = self.lock();
        state.incoming = Incoming::Nothing;
        match finished {
            Ok(Some(digest)) => {
                state.known = Stamp::of_file(&self.file).map(|stamp| (stamp, digest));
                Ok(())
            }
            Ok(None) => {
                let cause = Some(format!("{id}: the digest of the image is another one; the transfer starts over"));
                Err(Trouble { code: Code::UNPROCESSABLE_ENTITY, cause })
            }
            Err(error) => Err(trouble(&self.file, &error)),
        }
    }
}

impl State {
    /// Returns the digest of the file. Computes it again if the file changed. Returns `None` if there is no file, or if
    /// `id` names an image that is not the content of the file.
    fn digest(&mut self, file: &Path, id: Option<ImageId>) -> io::Result<Option<Digest>> {
        let Some(stamp) = Stamp::of_file(file) else { return Ok(None) };
        if id.is_some_and(|id| stamp.size() != u64::from(id.size)) {
            return Ok(None);
        }
        let digest = match self.known {
            Some((known, digest)) if known == stamp => digest,
            _ => {
                let digest = digest_of(&mut File::open(file)?, stamp.size())?;
                self.known = Some((stamp, digest));
                digest
            }
        };
        Ok(Some(digest).filter(|digest| id.is_none_or(|id| id.is_of(digest))))
    }
}

impl Receiving {
    /// Begins to receive an image.
    fn new(path: &Path, id: ImageId, now: Instant) -> io::Result<Self> {
        // Another resource, or another process, may receive an image there.
        if let Ok(other) = File::open(path) {
            other.try_lock()?;
        }
        // Nobody else's file is written through a link.
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        file.try_lock()?;
        let mut part = Part { path: Some(path.to_owned()), file, is_kept: false };
        part.file.set_len(id.size as u64 + Units::bytes_of(id.units()) as u64)?;
        part.write(part.file.metadata()?.len(), &[&MAGIC[..], &id.digest, &id.size.to_be_bytes()].concat())?;
        part.is_kept = true;
        Ok(Self { id, part, units: Units::none(id.units()), last: now })
    }

    /// Continues the image whose received blocks are in the hidden file `path`. Returns `None` if there is no file at
    /// `path`, or if the file is not valid.
    fn again(path: &Path, max: u32, now: Instant) -> Option<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        file.try_lock().ok()?;
        let len = file.metadata().ok().filter(|meta| meta.is_file())?.len();
        let mut end = [0; END];
        file.seek(SeekFrom::Start(len.checked_sub(END as u64)?)).and_then(|_| file.read_exact(&mut end)).ok()?;
        let (digest, size) = end.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let id = ImageId { digest: *digest, size: u32::from_be_bytes(size.try_into().ok()?) };
        let mut bits = vec![0; Units::bytes_of(id.units())];
        let is_right = id.size <= max && len == u64::from(id.size) + bits.len() as u64 + END as u64;
        if !is_right {
            return None;
        }
        file.seek(SeekFrom::Start(id.size.into())).and_then(|_| file.read_exact(&mut bits)).ok()?;
        let units = Units::read(id.units(), bits)?;
        Some(Self { id, part: Part { path: Some(path.to_owned()), file, is_kept: true }, units, last: now })
    }

    /// True if a new block of this image arrived less than [`PATIENCE`] ago. Another image must then wait.
    fn is_fresh(&self, now: Instant) -> bool {
        now.since(self.last) < PATIENCE
    }

    /// Writes bytes that begin at `start`, unless they were already received.
    fn add(&mut self, (start, bytes): (u32, &[u8]), units: Range<u32>, now: Instant) -> io::Result<()> {
        if units.clone().all(|unit| self.units.has(unit)) {
            return Ok(());
        }
        self.part.write(start.into(), bytes)?;
        self.units.add(units.clone());
        self.last = now;
        let (at, bits) = self.units.bytes(&units);
        self.part.write(u64::from(self.id.size) + at as u64, bits)
    }
}

/// The locked file of an image that is not verified. Dropping this value removes the file, unless `is_kept` is true.
#[derive(Debug)]
struct Part {
    path: Option<PathBuf>,
    file: File,
    is_kept: bool,
}

impl Part {
    /// Returns the path of the hidden file beside `file`. A server never serves hidden names.
    fn path(file: &Path) -> PathBuf {
        let mut name = std::ffi::OsString::from(".");
        name.push(file.file_name().unwrap_or_default());
        name.push(".part");
        file.with_file_name(name)
    }

    fn write(&mut self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(at))?;
        self.file.write_all(bytes)
    }

    /// Computes the digest of the received image. If the digest matches the name of the image, renames the hidden file
    /// with the received blocks to `file` and returns the digest. If it does not match, returns `None`.
    fn finish(&mut self, id: ImageId, file: &Path) -> io::Result<Option<Digest>> {
        self.is_kept = false;
        self.file.set_len(id.size.into())?;
        self.file.seek(SeekFrom::Start(0))?;
        let digest = digest_of(&mut self.file, id.size.into())?;
        let Some(path) = self.path.as_ref().filter(|_| id.is_of(&digest)) else { return Ok(None) };
        self.file.sync_all()?;
        rename(path, file)?;
        self.path = None;
        Ok(Some(digest))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(path) = self.path.as_ref().filter(|_| !self.is_kept) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Returns the SHA-256 digest of the next `len` bytes.
fn digest_of(file: &mut File, len: u64) -> io::Result<Digest> {
    let (mut hash, mut buffer, mut left) = (Sha256::new(), vec![0; READ], len);
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(READ).min(READ);
        let bytes = buffer.get_mut(..most).unwrap_or(&mut []);
        file.read_exact(bytes)?;
        hash.update(&*bytes);
        left -= most as u64;
    }
    Ok(hash.finalize().into())
}

#[cfg(test)]
mod tests;
